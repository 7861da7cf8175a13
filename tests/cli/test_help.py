from __future__ import annotations

import subprocess
import sys

import pytest

from peakfold.cli import main, options
from peakfold.cli.group import VERBS
from peakfold.planning.aliasing.reference_counting import SHARE_POLICIES
from peakfold.planning.options import ARENA_STRATEGIES, SHARE_STRATEGIES
from peakfold.planning.plan import MODES
from peakfold.target import INPUT_POLICIES, OUTPUT_POLICIES

from .conftest import Call

HERE = [verb for verb in VERBS if main.get_command(None, verb) is not None]
HEAVY = """
import sys
from click.testing import CliRunner
from peakfold.cli import main
before = set(sys.modules)
result = CliRunner().invoke(main, {args!r})
assert result.exit_code == 0, result.output
print(sorted(m for m in ("numpy", "onnx", "rich", "msgspec", "numba") if m in sys.modules))
"""


def heavy_after(*args: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", HEAVY.format(args=list(args))], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_all_verbs_of_this_release_are_there() -> None:
    assert {"inspect", "plan", "verify", "demo", "ops", "targets"} <= set(HERE)


@pytest.mark.parametrize("verb", HERE)
def test_every_verb_has_help_with_an_example(call: Call, verb: str) -> None:
    result = call(verb, "--help")
    assert result.exit_code == 0
    assert f"  peakfold {verb}" in result.stdout
    assert "Example" in result.stdout
    assert call(verb, "-h").stdout == result.stdout


def test_help_lists_every_verb_and_is_what_no_argument_shows(call: Call) -> None:
    text = call("--help").stdout
    assert all(f"  {verb} " in text for verb in HERE)
    assert call().stdout == text


@pytest.mark.parametrize("args", [("--help",), ("--version",), ("plan", "--help")])
def test_help_loads_nothing_heavy(args: tuple[str, ...]) -> None:
    assert heavy_after(*args) == "[]"


def test_the_test_above_can_fail() -> None:
    assert "numpy" in heavy_after("targets", "--json")


def test_the_choices_are_the_planners_own() -> None:
    assert options.MODES == MODES
    assert options.SHARE == SHARE_POLICIES
    assert options.INPUTS == INPUT_POLICIES
    assert options.OUTPUTS == OUTPUT_POLICIES
    assert set(options.ARENA_STRATEGIES) == set(ARENA_STRATEGIES)
    assert set(options.SHARE_STRATEGIES) == set(SHARE_STRATEGIES)


def test_every_strategy_of_the_help_runs(call: Call, models: object) -> None:
    for mode, names in (("arena", ARENA_STRATEGIES), ("both", SHARE_STRATEGIES)):
        for name in names:
            result = call("plan", f"{models}/ex4.pf", "--mode", mode, "--strategy", name, "-q")
            assert result.exit_code == 0, (mode, name, result.stderr)


def test_flags_reach_the_planner(call: Call, models: object) -> None:
    import json

    flags = [
        "--target",
        "mxnet",
        "--mode",
        "share",
        "--share",
        "nnvm",
        "--inputs",
        "pinned",
        "--outputs",
        "external",
        "--align",
        "32",
        "--seed",
        "7",
        "--no-fold",
    ]
    plan = json.loads(call("plan", f"{models}/chain.pf", *flags, "--json").stdout)["plan"]
    assert plan["policies"] == {"inputs": "pinned", "outputs": "external", "align": 32}
    assert (plan["target"], plan["mode"], plan["strategy"]) == ("mxnet", "share", "counter")
    assert (plan["seed"], plan["recipe"]) == (7, [])


@pytest.mark.req("R26")
def test_techniques_can_be_switched_off(call: Call, models: object) -> None:
    import json

    def summary(*flags: str) -> dict[str, int]:
        args = ("plan", f"{models}/ex4.pf", "--align", "1", "--json", *flags)
        return json.loads(call(*args).stdout)["summary"]

    assert summary()["inplace_bytes"] == 64
    assert summary("--no-inplace")["inplace_bytes"] == 80
    assert summary()["both_bytes"] == 48
