"""Before and after, by running: what the interpreter needs and computes with and without a plan."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from peakfold.errors import RunFailed
from peakfold.runtimes.tflite.apply_plan import Applied
from peakfold.runtimes.tflite.arena import Arena, predict_arena
from peakfold.runtimes.tflite.file_judge import judge_file
from peakfold.runtimes.tflite.instrument import watched
from peakfold.runtimes.tflite.interpreter import (
    Job,
    Outcome,
    equal_outputs,
    run_all,
    smallest_arena,
    varied,
)
from peakfold.runtimes.tflite.rewrite import Edit, rewrite
from peakfold.runtimes.tflite.schema import (
    Model,
    Signature,
    has_data,
    indices,
    offline_offsets,
    operator_name,
    parse_model,
    tensor_bytes,
    type_names,
)
from peakfold.runtimes.tflite.scratch import known_scratch
from peakfold.units import round_up

_SLACK = 1 << 20
_STATEFUL_RUNS = 20
_RUNS = 3


@dataclass(frozen=True, slots=True)
class Control:
    """A file that is wrong on purpose, and whether that was seen.

    Attributes:
        what: how it is wrong.
        judged: whether the judge of files rejects it.
        differs: whether what it computes differs.
    """

    what: str
    judged: bool
    differs: bool


@dataclass(frozen=True, slots=True)
class Measured:
    """What two files of one model need and compute; bytes.

    Attributes:
        runtime: ``tflm`` or ``litert``.
        before, after: of the arena that tensors share, without and with the plan.
        before_total, after_total: the whole arena each file was run in, the predicted one if
            that was enough; `None` for a runtime that takes none.
        tail: of it what lives as long as the interpreter.
        arena: what was predicted of `after_total`.
        too_low: whether a predicted arena was too small to start in.
        outputs_equal: whether all outputs of all runs have the same bits.
        outputs_vary: whether the outputs say anything: not all the same.
        tensors: results on the way that were compared, too.
        tensors_equal: whether they all have the same bits; `None` when none was compared.
        runs: runs compared, each on inputs of its own.
        controls: wrong files, when they were asked for.
    """

    runtime: str
    before: int
    after: int
    before_total: int | None
    after_total: int | None
    tail: int | None
    outputs_equal: bool
    outputs_vary: bool
    tensors: int
    tensors_equal: bool | None
    runs: int
    arena: Arena | None = None
    too_low: bool = False
    controls: tuple[Control, ...] = ()


def measure_tflm(
    applied: Applied, where: str, *, runs: int | None = None, seed: int = 0, controls: bool = False
) -> Measured:
    """Run TensorFlow Lite Micro on a model without and with its plan.

    Args:
        applied: both files.
        where: what errors call the model.
        runs: of each file, every one on other inputs; by default 3, and 20 for models that keep
            state from one run to the next.
        seed: of the first run's inputs.
        controls: also run files that are wrong on purpose.

    Raises:
        BackendMissing: the interpreter is not installed.
        RunFailed: it refuses the model.
    """
    model = parse_model(applied.data, where)
    shape = Signature.of(model)
    count = runs or (_STATEFUL_RUNS if keeps_state(model) else _RUNS)
    seeds = tuple(range(seed, seed + count))
    arena = round_up(applied.unplanned, 16) + 16 * len(applied.data) // 64 + 2 * _SLACK
    with tempfile.TemporaryDirectory(prefix="peakfold-") as folder:
        files = _Files(Path(folder), where)
        plain, planned = files.put(applied.plain), files.put(applied.data)
        jobs = [Job(path, arena, shape.inputs, shape.results, seeds) for path in (plain, planned)]
        before, after = files.run(jobs)
        equal = equal_outputs(before, after)
        watch = _Watched(files, applied, shape, seeds)
        expected = [_predicted(data) for data in (applied.plain, applied.data)]
        totals = [
            _whole(job, least, outcome, 2 * arena)
            for job, least, outcome in zip(jobs, expected, (before, after), strict=True)
        ]
        wrong = watch.controls() if controls else ()
    low = any(
        total > least.total and not least.unknown
        for total, least in zip(totals, expected, strict=True)
    )
    return Measured(
        "tflm",
        before.head,
        after.head,
        totals[0],
        totals[1],
        after.tail,
        equal,
        varied(before),
        watch.compared,
        watch.equal,
        count,
        expected[1],
        low,
        wrong,
    )


def _predicted(data: bytes) -> Arena:
    model = parse_model(data)
    return predict_arena(model, known_scratch(model))


def _whole(job: Job, predicted: Arena, outcome: Outcome, enough: int) -> int:
    """The arena a file starts and runs in: the predicted one, or the least above it that does.

    Nothing below is tried: smaller ones that start prove nothing.
    """
    # On inputs of its own: a loop may never end on whatever bytes an arena happens to hold.
    (start,) = run_all([replace(job, arena=predicted.total, seeds=job.seeds[:1])])
    if isinstance(start, Outcome):
        return predicted.total
    return smallest_arena(job, outcome.total, max(enough, 2 * predicted.total), predicted.total)


def measure_litert(applied: Applied, where: str, *, runs: int = _RUNS, seed: int = 0) -> Measured:
    """Run LiteRT's own kernels, which plan their arena themselves and follow the file's order.

    Raises:
        BackendMissing: LiteRT is not installed.
        RunFailed: it refuses the model.
    """
    model = parse_model(applied.data, where)
    shape = Signature.of(model)
    seeds = tuple(range(seed, seed + runs))
    with tempfile.TemporaryDirectory(prefix="peakfold-") as folder:
        files = _Files(Path(folder), where)
        jobs = [
            Job(
                files.put(data),
                0,
                shape.inputs,
                shape.results,
                seeds,
                runtime="litert",
                dynamic=arena_tensors(parse_model(data)),
            )
            for data in (applied.plain, applied.data)
        ]
        before, after = files.run(jobs)
    return Measured(
        "litert",
        before.head,
        after.head,
        None,
        None,
        None,
        equal_outputs(before, after),
        varied(before),
        0,
        None,
        runs,
    )


class _Files:
    """Files of one measurement, and runs whose errors name the model."""

    def __init__(self, folder: Path, where: str) -> None:
        self.folder = folder
        self.where = where
        self.count = 0

    def put(self, data: bytes) -> Path:
        self.count += 1
        path = self.folder / f"{self.count}.tflite"
        path.write_bytes(data)
        return path

    def run(self, jobs: list[Job]) -> list[Outcome]:
        done: list[Outcome] = []
        for outcome in run_all(jobs):
            if isinstance(outcome, RunFailed):
                hint = "try --fold-weights" if "DEQUANTIZE" in str(outcome) else outcome.hint
                if "dequantize" in outcome.what:
                    hint = "its weights are halves: try --fold-weights"
                raise RunFailed(outcome.what, where=self.where, hint=hint)
            done.append(outcome)
        return done


class _Watched:
    """Both files with every result among their outputs, and what they gave."""

    def __init__(
        self, files: _Files, applied: Applied, shape: Signature, seeds: tuple[int, ...]
    ) -> None:
        self.files = files
        self.data, self.tensors = watched(applied.data)
        plain, first = watched(applied.plain)
        self.own = len(parse_model(applied.data).subgraphs[0].tensors)
        graph = parse_model(self.data).subgraphs[0]
        total = sum(round_up(tensor_bytes(tensor) or 0, 16) for tensor in graph.tensors)
        self.job = Job(
            files.put(self.data),
            2 * total + 4 * _SLACK,
            shape.inputs,
            shape.results + len(self.tensors),
            seeds,
        )
        own = replace(self.job, model=files.put(plain), results=shape.results + len(first))
        before, after = run_all([own, self.job])
        self.good = after if isinstance(after, Outcome) else None
        self.equal: bool | None = None
        self.compared = 0
        if isinstance(before, Outcome) and isinstance(after, Outcome):
            names = [_names(data) for data in (plain, self.data)]
            both = [t for t in self.tensors if t in set(first) and names[0][t] == names[1][t]]
            results = range(shape.results)
            self.compared = len(both)  # bands of rows are of one file alone
            self.equal = equal_outputs(
                _picked(before, [*results, *(shape.results + first.index(t) for t in both)]),
                _picked(after, [*results, *(shape.results + self.tensors.index(t) for t in both)]),
            )

    def controls(self) -> tuple[Control, ...]:
        """Files that are wrong on purpose: the measurement must be able to fail."""
        table = offline_offsets(parse_model(self.data)) or ()
        main = len(parse_model(self.data).subgraphs[0].tensors)
        copies = {(0, at): table[at] for at in range(self.own, main) if table}
        zero = {**dict.fromkeys(((0, at) for at in range(self.own)), 0), **copies}
        early, order = self._one_too_early()
        edits = [
            ("all offsets are zero", Edit(offsets=zero)),
            (f"operator {early} runs first", Edit(order={0: order})),
        ]
        found = []
        for what, edit in edits:
            path = self.files.put(rewrite(self.data, edit))
            (outcome,) = run_all([replace(self.job, model=path)])
            same = (
                isinstance(outcome, Outcome)
                and self.good is not None
                and equal_outputs(self.good, outcome)
            )
            found.append(Control(what, not judge_file(path).ok, not same))
        return tuple(found)

    def _one_too_early(self) -> tuple[int, list[int]]:
        """An operator amid the model that reads what others make, and an order it opens."""
        graph = parse_model(self.data).subgraphs[0]
        made: set[int] = set()
        late = []
        for at, op in enumerate(graph.operators):
            if made.intersection(indices(op.inputs)) and set(indices(op.outputs)) & {*self.tensors}:
                late.append(at)
            made.update(indices(op.outputs))
        early = late[len(late) // 2] if late else 0
        return early, [early, *(at for at in range(len(graph.operators)) if at != early)]


def _names(data: bytes) -> list[bytes]:
    return [tensor.name or b"" for tensor in parse_model(data).subgraphs[0].tensors]


def _picked(outcome: Outcome, places: list[int]) -> Outcome:
    runs = tuple(tuple(run[at] for at in places) for run in outcome.outputs)
    return replace(outcome, outputs=runs)


def keeps_state(model: Model) -> bool:
    """Whether a run depends on earlier ones: variables, or operators that keep a history."""
    history = {
        "VAR_HANDLE",
        "CIRCULAR_BUFFER",
        "SignalFramer",
        "SignalStacker",
        "SignalDelay",
        "SignalOverlapAdd",
        "SignalFilterBankSpectralSubtraction",
    }
    return any(
        tensor.isVariable for graph in model.subgraphs for tensor in graph.tensors or ()
    ) or any(
        operator_name(model, op) in history
        for graph in model.subgraphs
        for op in graph.operators or ()
    )


def arena_tensors(model: Model) -> tuple[int, ...]:
    """Tensors of the main graph that live in LiteRT's arena."""
    graph = model.subgraphs[0]
    used = {t for op in graph.operators or () for t in (*indices(op.inputs), *indices(op.outputs))}
    used.update(indices(graph.inputs))
    # Weights that LiteRT widens once, at the first run, lie in a block of their own.
    widened: set[int] = set()
    for op in graph.operators or ():
        if operator_name(model, op) in ("DEQUANTIZE", "DENSIFY") and all(
            i in widened or has_data(model, graph.tensors[i]) for i in indices(op.inputs)
        ):
            widened.update(indices(op.outputs))
    return tuple(
        at
        for at, tensor in enumerate(graph.tensors)
        if at in used
        and at not in widened
        and not has_data(model, tensor)
        and not tensor.isVariable
        and type_names().get(int(tensor.type)) != "RESOURCE"
    )
