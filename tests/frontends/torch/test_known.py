"""What small tensors hold decides sizes and branches of a step on tensors without memory."""

from __future__ import annotations

import copy
import random
import re
from copy import deepcopy

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from peakfold.errors import ModelError  # noqa: E402
from peakfold.frontends.torch.fake import fake_like  # noqa: E402
from peakfold.frontends.torch.module import capture  # noqa: E402
from peakfold.frontends.torch.training.step import StepOptions, fake_steps, real_steps  # noqa: E402
from peakfold.frontends.torch.unwatched.following import FollowingMode  # noqa: E402
from peakfold.frontends.torch.unwatched.known_values import key_of  # noqa: E402
from peakfold.frontends.torch.unwatched.light_examples import stretched  # noqa: E402

from .plain_loop import peak_of_loop  # noqa: E402

pytestmark = pytest.mark.torch
nn, F = torch.nn, torch.nn.functional


# Programs: each step takes tensors of a pool, by random picks, and gives one more.


def pointwise(x, y, pick):
    f = pick([torch.add, torch.mul, torch.sub, torch.eq, torch.lt, torch.maximum])
    return f(x, y) if x.shape == y.shape else f(x, y.flatten()[:1].sum())


def unary(x, _y, pick):
    return pick(
        [
            lambda: x.to(
                pick([torch.int64, torch.float32, torch.bool, torch.int32, torch.float64])
            ),
            lambda: x.clamp(min=0),
            lambda: x + 1,
            lambda: x * 2,
            lambda: x.clone(),
            lambda: x.detach(),
            lambda: torch.where(x > 0, x, torch.zeros_like(x)),
            lambda: x.logical_not(),
        ]
    )()


def viewed(x, _y, pick):
    n = x.numel()
    return pick(
        [
            lambda: x[1:],
            lambda: x[..., ::2],
            lambda: x.t(),
            lambda: x.reshape(-1),
            lambda: x.view(n),
            lambda: x.unsqueeze(0).expand(3, *x.shape),
            lambda: x[0],
            lambda: x.unsqueeze(-1),
            lambda: x.flatten().as_strided((2, 2), (1, 1)),
            lambda: x.view(torch.int32),
            lambda: x.movedim(0, -1),
            lambda: x.narrow(0, 0, 1),
            lambda: x.diagonal(),
            lambda: x.data,
            lambda: x.unfold(0, 2, 1),
            lambda: x.squeeze(),
            lambda: x.split(1)[0],
        ]
    )()


def written(x, y, pick):
    def assign(at):
        x[at] = y.flatten()[0]
        return x

    def put():
        x[x > 1] = 0
        return x

    return pick(
        [
            lambda: x.add_(1),
            lambda: x.mul_(2),
            lambda: x.fill_(3),
            lambda: x.zero_(),
            lambda: x.copy_(y),
            lambda: x.add_(y),
            lambda: assign(0),
            lambda: assign(slice(1, None)),
            put,
            lambda: x.masked_fill_(x > 2, 5),
            lambda: x.t_(),
            lambda: x.unsqueeze_(0),
            lambda: x.clamp_(max=4),
            lambda: x.index_fill_(0, torch.tensor([0]), 7),
            lambda: torch.add(x, 1, out=torch.empty_like(x)),
            lambda: x.set_(y),
            lambda: x.cumsum_(0),
            lambda: x.flatten().sub_(1),
            lambda: torch._foreach_add_([x, y], 1) and x,
            lambda: x.scatter_(0, torch.zeros_like(x, dtype=torch.int64), 9),
        ]
    )()


def reduced(x, y, pick):
    return pick(
        [
            lambda: x.sum(0),
            lambda: x.cumsum(-1),
            lambda: x.sort(-1)[1],
            lambda: x.max(0)[0],
            lambda: torch.cat([x.flatten(), y.flatten()]),
            lambda: torch.stack([x, x + 1]),
            lambda: x.argmax(),
            lambda: x.any(),
            lambda: x.prod(),
            lambda: x.flip(0),
            lambda: x.roll(1),
        ]
    )()


def sized(x, y, pick):
    return pick(
        [
            lambda: x.nonzero(),
            lambda: x.unique(),
            lambda: x[x > 1],
            lambda: x.masked_select(x > 0),
            lambda: torch.where(x > 0)[0],
            lambda: y.flatten()[x.flatten()[:2].bool().nonzero()],
            lambda: x[: int(x.flatten()[0].item()) % 3],
            lambda: torch.arange(x.sum().item() % 5),
            lambda: y.repeat_interleave(x.flatten().clamp(0, 2)[: y.shape[0]], 0),
            lambda: torch.zeros(len(x.flatten().tolist())),
            lambda: torch.as_tensor(x.numpy()) + 1,
            lambda: torch.zeros(2) if x.bool().any() else torch.ones(3),
        ]
    )()


GUESSED = re.compile("checks of|choices by|random numbers")
KINDS = [pointwise, unary, viewed, viewed, written, written, reduced, sized]


def roots(seed):
    make = torch.Generator().manual_seed(seed)
    whole = [torch.randint(-1, 4, shape, generator=make) for shape in ((4,), (3, 4), (2, 3))]
    floats = torch.randint(-1, 4, (4, 2), generator=make).float()
    unknown = torch.nn.Parameter(torch.randint(0, 9, (3, 4), generator=make).float(), False)
    return [*whole, floats, whole[1].clone().t(), unknown]


def told(mode, fake, real):
    """Whether a value is known, and then it is the real one."""
    found = mode.values.of(fake)
    if found is None or mode.values.why.get(key_of(fake)):
        return False
    assert (fake.shape, fake.dtype) == (real.shape, real.dtype)
    torch.testing.assert_close(found, real, rtol=0, atol=0, equal_nan=True)
    return True


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 10**9))
def test_what_is_known_is_never_wrong(seed):
    """Random programs beside real ones: every value that is known is the real one."""
    choose = random.Random(seed)
    mode = FollowingMode()
    reals = roots(seed)
    fakes = [fake_like(t, mode, {}) for t in reals]
    with torch.no_grad():
        for _ in range(14):
            kind = choose.choice(KINDS)
            one, two, state = *choose.choices(range(len(reals)), k=2), choose.getstate()
            try:
                with mode:
                    fake = kind(fakes[one], fakes[two], choose.choice)
            except Exception:  # unknown, or it makes no sense
                return
            if any(GUESSED.match(note) for note in mode.notes()):
                return  # a branch that rests on an assumption
            choose.setstate(state)
            try:
                real = kind(reals[one], reals[two], choose.choice)
            except Exception:
                return
            fakes.append(fake)
            reals.append(real)
            for fake, real in zip(fakes, reals, strict=True):
                if isinstance(fake, torch._subclasses.FakeTensor):
                    told(mode, fake, real)


SGD = {"optimizer": "sgd", "loss": lambda out: out.sum()}


class Does(nn.Module):
    """A few layers, and what a function does with them."""

    def __init__(self, run):
        super().__init__()
        self.embed, self.line, self.head = (
            nn.Embedding(50, 32),
            nn.Linear(32, 32),
            nn.Linear(32, 50),
        )
        self.unit = nn.GRU(32, 32, batch_first=True)
        self.run = run

    def forward(self, *args):
        return self.run(self, *args)

    def hidden(self, ids):
        return self.line(self.embed(ids))


def kept_rows(m, ids, labels):
    keep = labels != -100
    return F.cross_entropy(m.head(m.hidden(ids)[keep]), labels[keep])


def chosen_rows(m, ids, labels):
    at = (labels.flatten() != -100).nonzero(as_tuple=True)[0]
    return F.cross_entropy(m.head(m.hidden(ids).flatten(0, 1)[at]), labels.flatten()[at])


def selected_losses(m, ids, labels):
    rows = m.head(m.hidden(ids)).flatten(0, 1)
    losses = F.cross_entropy(rows, labels.clamp(min=0).flatten(), reduction="none")
    return losses.masked_select((labels != -100).flatten()).mean()


def lengths(m, ids, sizes):
    parts = [row[:size] for row, size in zip(m.hidden(ids), sizes.tolist(), strict=True)]
    return torch.stack([m.head(part).logsumexp(-1).mean() for part in parts]).mean()


def lengths_by_numpy(m, ids, sizes):
    parts = [row[:size] for row, size in zip(m.hidden(ids), sizes.numpy(), strict=True)]
    return torch.stack([m.head(part).logsumexp(-1).mean() for part in parts]).mean()


def experts(m, ids, kinds):
    rows = m.hidden(ids).flatten(0, 1)
    out = torch.zeros_like(rows)
    for kind in kinds.unique():
        at = torch.where(kinds.flatten() == kind)[0]
        out.index_add_(0, at, m.line(rows[at]))
    return m.head(out).square().mean()


def branches(m, ids, labels):
    rows = m.hidden(ids)
    if (labels == -100).any():
        rows = rows * (labels != -100).unsqueeze(-1)
    if ids.max() >= 50:
        raise ValueError("an id is too large")
    return m.head(rows).square().mean()


def checked(m, ids, _):
    rows = m.hidden(ids)
    if not torch.isfinite(rows).all() or rows.isnan().any() or torch.isinf(rows.sum()):
        raise ValueError("not finite")
    return m.head(rows).square().mean()


def repeated(m, ids, sizes):
    return m.head(torch.repeat_interleave(m.hidden(ids)[:, 0], sizes, dim=0)).square().mean()


def packed(m, ids, sizes):
    rows = nn.utils.rnn.pack_padded_sequence(
        m.embed(ids), sizes, batch_first=True, enforce_sorted=False
    )
    return m.head(m.line(rows.data)).square().mean()


def buckets(m, ids, kinds):
    counts = torch.bincount(kinds.flatten(), minlength=3).tolist()
    parts = m.hidden(ids).flatten(0, 1).split(counts)
    return torch.stack([m.head(part).square().sum() for part in parts]).sum()


def masked_by_buffer(m, ids, labels):
    if not hasattr(m, "seen"):
        m.seen = torch.zeros(1, dtype=torch.int64)
    m.seen.add_(1)
    rows = m.hidden(ids)
    return m.head(rows if m.seen.item() < 2 else rows[:, : int(labels.shape[1]) // 2]).sum()


def stepwise(m, ids, _):
    """An assignment element by element: the values of what is written are known, too."""
    mask = torch.empty(ids.shape, dtype=torch.bool)
    for at in range(ids.shape[0]):
        mask[at] = torch.arange(ids.shape[1]) < 10 * (at + 1)
    return m.head(m.hidden(ids)[mask]).square().mean()


def checkpointed(m, ids, labels, reentrant=False):
    def part(rows):
        return m.head(m.line(rows)[labels != -100])

    rows = torch.utils.checkpoint.checkpoint(part, m.embed(ids), use_reentrant=reentrant)
    return F.cross_entropy(rows, labels[labels != -100])


def checkpointed_reentrant(m, ids, labels):
    return checkpointed(m, ids, labels, True)


def mapped(m, ids, _):
    return torch.vmap(lambda row: m.head(m.hidden(row)).logsumexp(-1))(ids).sum()


def looped(m, ids, sizes):
    left, rows = sizes.clone(), m.hidden(ids)
    while (left > 0).any():
        rows, left = F.relu(m.line(rows)), left - 15
    return m.head(rows).logsumexp(-1).sum()


def masked_by_numpy(m, ids, sizes):
    short = np.arange(ids.shape[1])[None] < np.asarray(sizes)[:, None]
    return m.head(m.hidden(ids)[torch.from_numpy(short)]).logsumexp(-1).sum()


def copied(m, ids, sizes):
    other = copy.deepcopy(sizes)
    other[0] = 60
    return lengths(m, ids, other) + lengths(m, ids, sizes)


def unrolled(m, ids, sizes):
    given = nn.utils.rnn.pack_padded_sequence(
        m.embed(ids), sizes, batch_first=True, enforce_sorted=False
    )
    rows, _ = nn.utils.rnn.pad_packed_sequence(m.unit(given)[0], batch_first=True, total_length=12)
    return m.head(rows).logsumexp(-1).sum()


def labels():
    made = torch.randint(0, 50, (2, 64))
    made[torch.rand(2, 64) < 0.8] = -100
    return made


CASES = {
    kept_rows: labels,
    chosen_rows: labels,
    selected_losses: labels,
    branches: labels,
    checked: labels,
    stepwise: labels,
    masked_by_buffer: labels,
    mapped: labels,
    checkpointed: labels,
    checkpointed_reentrant: labels,
    **dict.fromkeys(
        (lengths, lengths_by_numpy, repeated, packed, looped, masked_by_numpy, copied),
        lambda: torch.tensor([20, 45]),
    ),
    unrolled: lambda: torch.tensor([5, 9]),
    **dict.fromkeys((experts, buckets), lambda: torch.randint(0, 3, (2, 64))),
}


@pytest.mark.parametrize("run", CASES, ids=lambda run: run.__name__)
def test_values_that_decide(run):
    torch.manual_seed(0)
    module, given = Does(run), (torch.randint(0, 50, (2, 64)), CASES[run]())
    found = fake_steps(module, given, {}, StepOptions(**SGD))
    # The loop does not list an attribute; torch does not count what numpy allocates.
    more = {masked_by_buffer: 8, masked_by_numpy: 2 * 64}.get(run, 0)
    assert found.steady.peak == peak_of_loop(deepcopy(module), given) + more
    again = fake_steps(module, given, {}, StepOptions(**SGD))
    assert (again.steady.peak, again.notes) == (found.steady.peak, found.notes)
    assert any("checks of computed values" in note for note in found.notes) == (run is checked)


@pytest.mark.parametrize("form", ["for-loop", "foreach", "fused"])
def test_counters_of_optimizers_are_known(form):
    """The step's number is read each time, whatever walks over the parameters."""
    torch.manual_seed(0)
    module, given = Does(kept_rows), (torch.randint(0, 50, (2, 64)), labels())
    options = StepOptions(optimizer="adamw", form=form, loss=lambda out: out)
    found = fake_steps(module, given, {}, options)

    def made(parameters):
        used = [p for p in parameters if p.dim() and p.shape != (96, 32) and p.shape != (96,)]
        kind = {"foreach": form == "foreach", "fused": form == "fused"}
        return torch.optim.AdamW(used, **kind)

    assert found.steady.peak == peak_of_loop(module, given, None, lambda out: out, made)


def test_values_changed_outside_are_seen():
    """A table that numpy shares is read again at each use."""

    def shared(m, ids):
        table = np.array([10, 30])
        given = torch.from_numpy(table)
        one = m.hidden(ids)[0, : int(given[0])]
        table[0] = 20
        return m.head(torch.cat([one, m.hidden(ids)[1, : int(given[0])]])).sum()

    module, given = Does(shared), (torch.randint(0, 50, (2, 64)),)
    found = fake_steps(module, given, {}, StepOptions(**SGD))
    assert found.steady.peak == peak_of_loop(module, given)


class Packed(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.LSTM(16, 24)

    def forward(self, rows, sizes):
        given = nn.utils.rnn.pack_padded_sequence(rows, sizes, enforce_sorted=False)
        out, _ = self.layer(given)
        return nn.utils.rnn.pad_packed_sequence(out)[0]


class Selected(nn.Module):
    def __init__(self):
        super().__init__()
        self.line = nn.Linear(64, 64)

    def forward(self, x):
        return self.line(x).masked_select(x > -1).sum()


class Aligned(nn.Module):
    def __init__(self):
        super().__init__()
        self.line = nn.Linear(64, 10)

    def forward(self, x, targets, steps, sizes):
        return F.ctc_loss(self.line(x).log_softmax(-1), targets, steps, sizes)


def test_packed_sequences():
    """Three sequences of 7, 3 and 1 steps; 24 bytes are their lengths."""
    module, given = Packed(), (torch.rand(7, 3, 16), torch.tensor([7, 3, 1]))
    found = fake_steps(module, given, {}, StepOptions(**SGD))
    assert found.steady.peak == peak_of_loop(module, given) == 58_504 + 24


@pytest.mark.parametrize("name", ["masked_select", "ctc"])
def test_sizes_that_masks_and_lengths_decide(name):
    """What tensors take is that of a real step; of scratch what follows from shapes is told."""
    if name == "ctc":
        targets, steps, sizes = torch.randint(1, 10, (4, 5)), torch.full((4,), 20), [5, 3, 5, 2]
        module, given = Aligned(), (torch.rand(20, 4, 64), targets, steps, torch.tensor(sizes))
    else:
        module, given = Selected(), (torch.rand(32, 64) - 1.5,)
    options = StepOptions(**SGD)
    found, real = fake_steps(module, given, {}, options), real_steps(module, given, {}, options)
    assert found.steady.without_scratch().peak == real.steady.without_scratch().peak
    assert found.steady.peak == pytest.approx(peak_of_loop(module, given), abs=16)
    assert [s.nbytes for s in found.steady.storages] == [s.nbytes for s in real.steady.storages]


def test_choices_are_dealt_evenly():
    """Experts in a loop: each takes its share, and the note says that it was assumed."""

    def routed(m, ids):
        rows = m.hidden(ids).flatten(0, 1)
        chosen = m.head(rows)[:, :4].topk(2, -1)[1]
        out = torch.zeros_like(rows)
        for expert in range(4):
            at = torch.where(chosen == expert)[0]
            assert at.shape == (64,)
            out.index_add_(0, at, m.line(rows[at]))
        return out.sum()

    found = fake_steps(Does(routed), (torch.randint(0, 50, (2, 64)),), {}, StepOptions(**SGD))
    assert any(note.startswith("choices by computed values") for note in found.notes)


def test_what_cannot_be_known_names_module_and_line():
    def doubtful(m, ids):
        rows = m.hidden(ids)
        return m.head(rows[rows.sum(-1) > 0]).sum()

    with pytest.raises(ModelError, match="values of a tensor") as caught:
        fake_steps(Does(doubtful), (torch.randint(0, 50, (2, 64)),), {}, StepOptions(**SGD))
    assert "test_known.py" in caught.value.where
    assert "--route run" in caught.value.hint


def test_inputs_without_values_are_refused():
    ids = torch.zeros(2, 64, dtype=torch.long, device="meta")
    with pytest.raises(ModelError, match="values of a tensor"):
        fake_steps(Does(lengths), (ids, ids[:, 0]), {}, StepOptions(**SGD))


def test_the_users_tensors_stay_as_they_were():
    table, sizes = torch.arange(4), torch.tensor([20, 45])

    def writing(m, ids, sizes):
        table.add_(1)
        sizes.sub_(1)
        return lengths(m, ids, sizes)

    fake_steps(Does(writing), (torch.randint(0, 50, (2, 64)), sizes), {}, StepOptions(**SGD))
    assert (table.tolist(), sizes.tolist()) == ([0, 1, 2, 3], [20, 45])


def test_a_trace_has_numbers_where_values_decide():
    given = (torch.randint(0, 50, (2, 64)), torch.tensor([20, 45]))
    graph = capture(Does(repeated), given, route="trace")
    assert (65, 50) in {tensor.shape for tensor in graph.tensors}


@pytest.mark.parametrize(
    ("given", "shape", "want"),
    [
        ([0, 1, 2], (5,), [0, 1, 2, 3, 4]),
        ([7, 1], (3,), [7, 1, 7]),
        ([1, 1], (3,), [1, 1, 1]),
        ([[4, 9]], (2, 2), [[4, 9], [4, 9]]),
        ([[4, 9, 2]], (1, 2), [[4, 9]]),
        ([True, False], (3,), [True, False, True]),
    ],
)
def test_resized_inputs_go_on_as_they_are(given, shape, want):
    assert stretched(torch.tensor(given), shape).tolist() == want


def test_a_mask_that_a_library_makes_only_when_traced():
    """512 tokens: transformers leaves the mask out unless somebody watches; grouped heads too."""
    transformers = pytest.importorskip("transformers")
    sizes = {"vocab_size": 200, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 1024}
    module = transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes, **heads)).train()
    ids = torch.randint(0, 200, (2, 512))
    given = {"input_ids": ids, "labels": ids, "use_cache": False}
    found = fake_steps(module, (), given, StepOptions(optimizer="sgd"))
    truth = peak_of_loop(deepcopy(module), (), given, lambda out: out.loss)
    assert found.steady.peak == pytest.approx(truth, rel=0.002)
