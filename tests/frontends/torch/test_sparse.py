"""Tensors without a storage of their own: counted through their parts, or named."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from peakfold.errors import ModelError  # noqa: E402
from peakfold.frontends.torch.module import capture  # noqa: E402
from peakfold.frontends.torch.sparse import parts  # noqa: E402
from peakfold.ir import Role, check_graph  # noqa: E402
from peakfold.runtimes.torch.allocator import allocations, peak_of  # noqa: E402
from tests.frontends.stated import StepOptions, fake_steps, real_steps, step_graph  # noqa: E402

pytestmark = pytest.mark.torch
nn = torch.nn


class Words(nn.Module):
    """A table with a sparse gradient below a dense layer; looked up once or twice."""

    def __init__(self, *, twice=False, table=None):
        super().__init__()
        self.table = table or nn.Embedding(500, 16, sparse=True)
        self.out = nn.Linear(16, 3)
        self.twice = twice

    def forward(self, ids):
        x = self.table(ids)
        return self.out(x + self.table(ids + 100) if self.twice else x)


def sparse_adam(parameters):
    """SparseAdam takes no dense gradients: the table's only."""
    return torch.optim.SparseAdam([p for p in parameters if p.shape == (500, 16)])


def squares(y):
    """Its gradient repeats no element, so that no product copies it."""
    return y.pow(2).sum()


DISTINCT = torch.arange(24).view(4, 6).contiguous()


@pytest.mark.req("R5", "R12")
@pytest.mark.parametrize("twice", [False, True])
@pytest.mark.parametrize(
    ("optimizer", "accumulate"), [("sgd", 1), ("sgd", 2), ("adagrad", 1), (sparse_adam, 1)]
)
def test_sparse_gradients_take_what_they_take(optimizer, accumulate, twice):
    module = Words(twice=twice)
    options = StepOptions(optimizer=optimizer, accumulate=accumulate)
    predicted = fake_steps(module, (DISTINCT,), options=options)
    measured = real_steps(module, (DISTINCT,), options=options)
    for which in ("first", "steady"):
        one, two = getattr(predicted, which), getattr(measured, which)
        assert one.curve == two.curve, which
        assert one.at_peak() == two.at_peak()
    many = 24 * (1 + twice) * accumulate
    rows = many * 16 * 4 + (8 * many if many > 24 else 0)  # a single look-up's index is its input
    dense = 4 * (3 * 16 + 3)
    gradients = sum(
        s.nbytes for s in measured.first.alive(measured.first.phases[-2][1]) if s.role == "gradient"
    )
    assert gradients == dense + rows
    assert any("sparse gradients" in note for note in predicted.notes)


def test_bags_of_words():
    module = Words(table=nn.EmbeddingBag(500, 16, sparse=True, mode="sum"))
    predicted = fake_steps(module, (DISTINCT,), options=StepOptions(optimizer="adagrad"))
    measured = real_steps(module, (DISTINCT,), options=StepOptions(optimizer="adagrad"))
    assert predicted.steady.peak == measured.steady.peak


def test_repeated_indices_are_never_counted_short():
    ids = DISTINCT % 5
    options = StepOptions(optimizer=sparse_adam)
    predicted = fake_steps(Words(), (ids,), options=options).steady
    measured = real_steps(Words(), (ids,), options=options).steady
    assert predicted.peak > measured.peak
    assert predicted.phase_peaks()["backward"] == measured.phase_peaks()["backward"]


def test_the_truth_is_a_plain_run():
    """Without any mode: what torch's allocator gives out during both passes."""
    module = Words()
    changes = allocations(lambda: squares(module(DISTINCT)).backward())
    run = real_steps(module, (DISTINCT,), options=StepOptions(loss=squares)).steady
    peaks = run.phase_peaks()
    highest = max(peaks["forward"], peaks["backward"])
    assert peak_of(changes)[0] == highest - run.static_bytes


@pytest.mark.req("R27")
@pytest.mark.parametrize("optimizer", ["adagrad", sparse_adam])
def test_the_graph_holds_indices_and_values(optimizer):
    step = step_graph(Words(), (DISTINCT,), options=StepOptions(optimizer=optimizer))
    check_graph(step.graph)
    shapes = [t.shape for t in step.graph.tensors if t.role is Role.GRADIENT]
    assert {(1, 24), (24, 16)} <= set(shapes)
    assert (500, 16) not in shapes
    states = {t.shape for t in step.graph.tensors if t.role is Role.OPTIMIZER_STATE}
    assert (500, 16) in states


class Halves(nn.Linear):
    def forward(self, x):
        return super().forward(x).sum() + (x.to_sparse() if self.training else x).sum()


def test_what_has_no_known_size_is_refused():
    with pytest.raises(ModelError):
        fake_steps(Halves(4, 3), (torch.eye(4),))


class Blocked(nn.Linear):
    def forward(self, x):
        return super().forward(x.to_mkldnn().to_dense())


def test_a_layout_that_cannot_be_followed_is_named():
    assert parts(torch.eye(3).to_mkldnn()) is None
    steps = real_steps(Blocked(4, 3), (torch.eye(4),))
    assert any("memory not counted: mkldnn, made by to_mkldnn" in note for note in steps.notes)
    graph = capture(Blocked(4, 3).eval(), (torch.eye(4),), route="run")
    assert any("layout mkldnn are counted as if they were dense" in note for note in graph.notes)


@pytest.mark.parametrize("layout", ["coo", "csr", "csc", "bsr"])
def test_sparse_buffers_are_there_before_the_step(layout):
    dense = torch.eye(8) + torch.eye(8).flip(0)
    kept = {
        "coo": dense.to_sparse(),
        "csr": dense.to_sparse_csr(),
        "csc": dense.to_sparse_csc(),
        "bsr": dense.to_sparse_bsr((2, 2)),
    }[layout]
    held = sum(part.numel() * part.element_size() for part in parts(kept))

    class Mixes(nn.Linear):
        def __init__(self):
            super().__init__(4, 3)
            self.register_buffer("mix", kept)

    predicted = fake_steps(Mixes(), (torch.zeros(2, 4),)).steady
    found = sum(s.nbytes for s in predicted.storages if s.role == "state")
    assert found == held == (16 * (16 + 4) if layout == "coo" else found)
    assert predicted.peak == real_steps(Mixes(), (torch.zeros(2, 4),)).steady.peak
