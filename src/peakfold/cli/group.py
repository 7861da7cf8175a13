"""The `peakfold` command: verbs loaded when they are called, and one place that ends a run.

A verb is a module of this package with a click command `command`. Its file is imported only
when it runs (or prints its own help), so that ``peakfold --help`` starts no numpy. Every error
ends here: one line on stderr and the exit code of its class, never a traceback.
"""

from __future__ import annotations

import gc
import importlib
import importlib.util
import signal
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import click

from peakfold.cli.signals import INTERRUPTED, behind, interrupt
from peakfold.errors import PeakfoldError
from peakfold.printable import one_line

_PACKAGE = "peakfold.cli"
TRACEBACK = "peakfold.traceback"

# The one-line helps stand here, so that the list of verbs needs no verb's module.
VERBS: dict[str, str] = {
    "inspect": "What a model costs, and where its memory goes.",
    "compare": "Models side by side, or one before and after a change.",
    "plan": "Plan a model's memory; show before, after and the proof.",
    "verify": "Check a plan against its model.",
    "apply": "Write a plan into a file that a runtime obeys.",
    "measure": "Run a model before and after, in a real runtime.",
    "fit": "Does it fit, and what would make it fit.",
    "modes": "Several networks in every mode, inference beside training.",
    "lanes": "What running branches together costs in memory.",
    "pack": "Pack the buffers of a CSV file, no model needed.",
    "demo": "Plan a bundled model and draw its memory map.",
    "ops": "List the op kinds peakfold knows, and what it knows of them.",
    "targets": "List the runtimes whose rules a plan can follow.",
    "devices": "List the hardware that time estimates can be made for.",
}
EPILOG = """\
\b
Examples:
  peakfold demo
  peakfold model.onnx                    the same as: peakfold inspect model.onnx
  peakfold plan model.onnx --dim batch=1 -o model.plan.json --svg map.svg
  peakfold verify model.onnx model.plan.json
"""


class PeakfoldGroup(click.Group):
    """The group of all verbs."""

    def __init__(self) -> None:
        super().__init__(
            name="peakfold",
            help="Fold a neural network's memory to a peak that is proven minimal, or nearly so.",
            epilog=EPILOG,
            params=[
                click.Option(
                    ["--version"],
                    is_flag=True,
                    is_eager=True,
                    expose_value=False,
                    callback=_print_version,
                    help="Print the version and exit.",
                ),
                traceback_option(),
            ],
            context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
            subcommand_metavar="VERB [ARGS]...",
        )

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Verbs whose module is there, in the order a newcomer meets them."""
        return [verb for verb in VERBS if _exists(verb)]

    def get_command(
        self,
        ctx: click.Context,  # noqa: ARG002 - click's signature
        cmd_name: str,
    ) -> click.Command | None:
        """Import one verb."""
        if cmd_name not in VERBS or not _exists(cmd_name):
            return None
        command = importlib.import_module(f"{_PACKAGE}.{cmd_name}").command
        if not isinstance(command, click.Command):
            raise TypeError(f"{_PACKAGE}.{cmd_name}.command is no click command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of verbs, without importing them."""
        with formatter.section("Verbs"):
            formatter.write_dl([(verb, VERBS[verb]) for verb in self.list_commands(ctx)])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """A first word that is a model file and no verb means `inspect`."""
        word = args[0]
        looks_like_file = any(mark in word for mark in "./:")
        if word not in VERBS and looks_like_file:
            return "inspect", self.get_command(ctx, "inspect"), args
        if self.get_command(ctx, word) is None:
            raise click.UsageError(
                f"there is no verb {word!r} (verbs: {', '.join(self.list_commands(ctx))})"
            )
        return super().resolve_command(ctx, args)

    def make_context(self, *args: Any, **extra: Any) -> click.Context:  # noqa: ANN401 - click's
        """Parse; click would tell of a Ctrl-C here by an empty line."""
        try:
            return super().make_context(*args, **extra)
        except KeyboardInterrupt:
            raise click.Abort from None

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401 - click's own signature
        """Run the verb; what it raises becomes a line and an exit code."""
        try:
            return super().invoke(ctx)
        except (click.exceptions.Exit, click.ClickException, click.Abort):
            raise
        except KeyboardInterrupt:
            raise click.Abort from None
        except Exception as error:  # a user never sees a traceback unasked
            ended = behind(error)
            if isinstance(ended, KeyboardInterrupt):
                raise click.Abort from None
            if ended is not None:
                raise ended from None
            if ctx.meta.get(TRACEBACK):
                traceback.print_exc()
            return _failed(error)

    def main(  # type: ignore[override]  # click's has overloads by its standalone mode
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        **extra: Any,  # noqa: ANN401 - click's
    ) -> NoReturn:
        """Run and exit with the code of the outcome."""
        # Graphs and plans are millions of records without cycles: looking for some only costs.
        gc.set_threshold(500_000, 20, 20)
        extra["standalone_mode"] = False
        given = sys.argv[1:] if args is None else list(args)
        try:
            with _one_interrupt():
                code = super().main(given or ["--help"], prog_name or "peakfold", **extra)
        except click.ClickException as error:
            say_error(error.format_message())
            code = error.exit_code
        except click.Abort:
            say_error("interrupted")
            code = INTERRUPTED
        sys.exit(code if isinstance(code, int) else 0)


@contextmanager
def _one_interrupt() -> Iterator[None]:
    """A Ctrl-C is one interrupt, for a caller of this module that took no care itself."""
    before = signal.getsignal(signal.SIGINT)
    main_thread = threading.current_thread() is threading.main_thread()
    if before is not signal.default_int_handler or not main_thread:
        yield
        return

    signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGINT) is interrupt:
            signal.signal(signal.SIGINT, before)


def _exists(verb: str) -> bool:
    return importlib.util.find_spec(f"{_PACKAGE}.{verb}") is not None


def _failed(error: Exception) -> int:
    if isinstance(error, PeakfoldError):
        say_error(str(error))
        return error.exit_code
    if isinstance(error, MemoryError):
        say_error("this machine has not enough memory for the run")
        return 1
    what = f"{type(error).__name__}: {error}"
    print_line(f"peakfold: internal error, please report: {what} (--traceback shows where)")
    return 1


def say_error(message: str) -> None:
    """One line on stderr; what a model file called its tensors cannot move the cursor."""
    print_line(f"peakfold: error: {message}")


def print_line(text: str) -> None:
    """A line on stderr with everything unprintable escaped; a closed stderr is no error."""
    safe = one_line(text)
    try:
        click.echo(safe.encode("ascii", "backslashreplace") if _ascii() else safe, err=True)
    except OSError:
        return


def _ascii() -> bool:
    encoding = (getattr(sys.stderr, "encoding", None) or "utf-8").lower()
    return not encoding.startswith("utf")


def traceback_option() -> click.Option:
    """`--traceback`, before or after the verb."""
    return click.Option(
        ["--traceback"],
        is_flag=True,
        expose_value=False,
        is_eager=True,
        callback=_keep_traceback,
        help="Show where an internal error came from.",
    )


def _keep_traceback(ctx: click.Context, _option: click.Parameter, value: bool) -> None:
    if value:
        ctx.meta[TRACEBACK] = True


def _print_version(ctx: click.Context, _option: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        from importlib.metadata import version

        click.echo(f"peakfold {version('peakfold')}")
        ctx.exit()


main = PeakfoldGroup()
