"""The `grad` column is proven: each gradient is computed from the declared reads alone.

For every operand that a row gives a gradient, a formula of just the declared tensors must equal
torch's automatic differentiation of the forward op. Where the row says `pointwise`, replacing
element k of anything that is read moves element k of the gradient only, so it may be overwritten.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from peakfold.ops import KINDS, lookup
from peakfold.ops.grad import EVERY, GRADS, OPTIMIZERS

torch = pytest.importorskip("torch")
F = torch.nn.functional

Formula = Callable[..., "torch.Tensor"]


@dataclass
class Case:
    """A forward op on operands, and per operand the formula of its gradient.

    A formula takes the tensors that the row declares, in the order of its tokens.
    """

    forward: Callable[..., torch.Tensor]
    operands: tuple[torch.Tensor, ...]
    formulas: dict[int, Formula]


def values(*shape: int, low: float = 0.2, high: float = 0.8, seed: int = 0) -> torch.Tensor:
    made = torch.Generator().manual_seed(seed)
    return low + (high - low) * torch.rand(*shape, generator=made, dtype=torch.float64)


def signed(*shape: int, seed: int = 1) -> torch.Tensor:
    return values(*shape, low=-1.5, high=1.5, seed=seed)


X, Z, POSITIVE = signed(2, 3), signed(2, 3, seed=2), values(2, 3)


def unary(forward: Formula, gradient: Formula, x: torch.Tensor = X) -> Case:
    return Case(forward, (x,), {0: gradient})


def normal(x: torch.Tensor) -> torch.Tensor:
    return torch.exp(-(x**2) / 2) / (2 * torch.pi) ** 0.5


def cdf(x: torch.Tensor) -> torch.Tensor:
    return (1 + torch.erf(x / 2**0.5)) / 2


def tanh_gelu(x: torch.Tensor) -> torch.Tensor:
    return F.gelu(x, approximate="tanh")


def of_input(forward: Formula) -> Formula:
    """Any smooth function's gradient is a formula of the incoming gradient and its input."""

    def gradient(dy: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        step = 1e-6
        return dy * (forward(x + step) - forward(x - step)) / (2 * step)

    return gradient


def from_input(forward: Formula, x: torch.Tensor = X) -> Case:
    return unary(forward, of_input(forward), x)


POINTWISE = {
    "relu": unary(F.relu, lambda dy, y: dy * (y > 0)),
    "sigmoid": unary(torch.sigmoid, lambda dy, y: dy * y * (1 - y)),
    "tanh": unary(torch.tanh, lambda dy, y: dy * (1 - y * y)),
    "tan": unary(torch.tan, lambda dy, y: dy * (1 + y * y)),
    "exp": unary(torch.exp, lambda dy, y: dy * y),
    "sqrt": unary(torch.sqrt, lambda dy, y: dy / (2 * y), POSITIVE),
    "reciprocal": unary(torch.reciprocal, lambda dy, y: -dy * y * y, POSITIVE),
    "softplus": unary(F.softplus, lambda dy, y: dy * (1 - torch.exp(-y))),
    "elu": unary(F.elu, lambda dy, y: dy * torch.where(y > 0, 1.0, y + 1)),
    "celu": unary(F.celu, lambda dy, y: dy * torch.where(y > 0, 1.0, y + 1)),
    "selu": unary(
        F.selu,
        lambda dy, y: dy * torch.where(y > 0, 1.0507009873554805, y + 1.7580993408473766),
    ),
    "leaky_relu": unary(
        lambda x: F.leaky_relu(x, 0.1), lambda dy, y: dy * torch.where(y > 0, 1.0, 0.1)
    ),
    "thresholded_relu": unary(lambda x: F.threshold(x, 0.5, 0), lambda dy, y: dy * (y > 0)),
    "hard_sigmoid": unary(
        lambda x: torch.clamp(0.2 * x + 0.5, 0, 1), lambda dy, y: dy * 0.2 * ((y > 0) & (y < 1))
    ),
    "clip": unary(
        lambda x: torch.clamp(x, -0.5, 0.5), lambda dy, y: dy * ((y > -0.5) & (y < 0.5))
    ),
    "neg": unary(torch.neg, lambda dy: -dy),
    "cast": unary(lambda x: x.to(torch.float64), lambda dy: dy),
    "cast_like": unary(lambda x: x.to(torch.float64), lambda dy: dy),
    "acosh": from_input(torch.acosh, POSITIVE + 1),
    **{
        kind: from_input(forward, POSITIVE)
        for kind, forward in {
            "acos": torch.acos, "asin": torch.asin, "atanh": torch.atanh, "log": torch.log,
        }.items()
    },
    **{
        kind: from_input(forward)
        for kind, forward in {
            "abs": torch.abs, "asinh": torch.asinh, "atan": torch.atan, "cos": torch.cos,
            "cosh": torch.cosh, "erf": torch.erf, "gelu": F.gelu, "fast_gelu": tanh_gelu,
            "quick_gelu": lambda x: x * torch.sigmoid(1.702 * x), "hard_swish": F.hardswish,
            "mish": F.mish, "shrink": lambda x: F.softshrink(x, 0.1), "sin": torch.sin,
            "sinh": torch.sinh, "softsign": F.softsign, "swish": F.silu,
        }.items()
    },
    "sub": Case(torch.sub, (X, Z), {1: lambda dy: -dy}),
    "mul": Case(torch.mul, (X, Z), {0: lambda dy, b: dy * b, 1: lambda dy, a: dy * a}),
    "div": Case(
        torch.div, (X, POSITIVE),
        {0: lambda dy, b: dy / b, 1: lambda dy, b, y: -dy * y / b},
    ),
    "pow": Case(
        torch.pow, (POSITIVE, Z),
        {0: lambda dy, a, b: dy * b * a ** (b - 1), 1: lambda dy, a, y: dy * y * torch.log(a)},
    ),
    "prelu": Case(
        lambda x, slope: torch.where(x > 0, x, slope * x), (X, POSITIVE),
        {0: lambda dy, x, s: dy * torch.where(x > 0, 1.0, s), 1: lambda dy, x: dy * x * (x <= 0)},
    ),
    "max": Case(
        torch.maximum, (X, Z),
        {0: lambda dy, a, b: dy * (a > b), 1: lambda dy, a, b: dy * (b > a)},
    ),
    "min": Case(
        torch.minimum, (X, Z),
        {0: lambda dy, a, b: dy * (a < b), 1: lambda dy, a, b: dy * (b < a)},
    ),
    "mean": Case(
        lambda a, b: (a + b) / 2, (X, Z), {0: lambda dy: dy / 2, 1: lambda dy: dy / 2}
    ),
    "where": Case(
        lambda c, a, b: torch.where(c > 0, a, b), (signed(2, 3, seed=5), X, Z),
        {1: lambda dy, c: dy * (c > 0), 2: lambda dy, c: dy * (c <= 0)},
    ),
    "bias_gelu": Case(
        lambda a, b: F.gelu(a + b), (X, Z),
        dict.fromkeys((0, 1), lambda dy, a, b: dy * (cdf(a + b) + (a + b) * normal(a + b))),
    ),
    "swiglu": Case(
        lambda a, b: F.silu(a) * b, (X, Z),
        {0: lambda dy, a, b: of_input(F.silu)(dy, a) * b, 1: lambda dy, a, _b: dy * F.silu(a)},
    ),
    # The mask that a dropout keeps is what decides; here it is a given operand.
    "dropout": Case(
        lambda x, mask: x * mask * 2, (X, (Z > 0).double()), {0: lambda dy, mask: dy * mask * 2}
    ),
}  # fmt: skip

IMAGE, KERNEL = signed(2, 3, 6, 6), signed(4, 3, 3, 3, seed=4)
ROWS, COLUMNS, BIAS = signed(3, 4), signed(4, 5, seed=3), signed(5, seed=6)
INDEX = torch.tensor([2, 0, 2])


def conv(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return F.conv2d(x, w, b, padding=1)


def from_maximum(dy: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    _, where = F.max_pool2d(x, 2, return_indices=True)
    return F.max_unpool2d(dy, where, 2, output_size=x.shape)


def scattered(dy: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    return torch.zeros(3, 4, dtype=dy.dtype).index_add(0, index, dy)


OTHER = {
    "conv": Case(
        conv,
        (IMAGE, KERNEL, signed(4)),
        {
            0: lambda dy, w: torch.nn.grad.conv2d_input(IMAGE.shape, w, dy, padding=1),
            1: lambda dy, x: torch.nn.grad.conv2d_weight(x, KERNEL.shape, dy, padding=1),
            2: lambda dy: dy.sum((0, 2, 3)),
        },
    ),
    "gemm": Case(
        lambda a, b, c: a @ b + c,
        (ROWS, COLUMNS, BIAS),
        {0: lambda dy, b: dy @ b.T, 1: lambda dy, a: a.T @ dy, 2: lambda dy: dy.sum(0)},
    ),
    "matmul": Case(
        torch.matmul, (ROWS, COLUMNS), {0: lambda dy, b: dy @ b.T, 1: lambda dy, a: a.T @ dy}
    ),
    "softmax": Case(
        lambda x: x.softmax(-1),
        (ROWS,),
        {0: lambda dy, y: y * (dy - (dy * y).sum(-1, keepdim=True))},
    ),
    "log_softmax": Case(
        lambda x: x.log_softmax(-1),
        (ROWS,),
        {0: lambda dy, y: dy - y.exp() * dy.sum(-1, keepdim=True)},
    ),
    "max_pool": Case(lambda x: F.max_pool2d(x, 2), (IMAGE,), {0: from_maximum}),
    "average_pool": Case(
        lambda x: F.avg_pool2d(x, 2),
        (IMAGE,),
        {0: lambda dy: dy.repeat_interleave(2, 2).repeat_interleave(2, 3) / 4},
    ),
    "global_average_pool": Case(
        lambda x: x.mean((2, 3)),
        (IMAGE,),
        {0: lambda dy: dy[:, :, None, None].expand(IMAGE.shape) / 36},
    ),
    "reduce_sum": Case(lambda x: x.sum(1), (ROWS,), {0: lambda dy: dy[:, None].expand(3, 4)}),
    "reduce_mean": Case(lambda x: x.mean(1), (ROWS,), {0: lambda dy: dy[:, None].expand(3, 4) / 4}),
    "reduce_max": Case(
        lambda x: x.amax(1), (ROWS,), {0: lambda dy, x, y: dy[:, None] * (x == y[:, None])}
    ),
    "reduce_min": Case(
        lambda x: x.amin(1), (ROWS,), {0: lambda dy, x, y: dy[:, None] * (x == y[:, None])}
    ),
    "reduce_l2": Case(
        lambda x: x.norm(dim=1), (ROWS,), {0: lambda dy, x, y: (dy / y)[:, None] * x}
    ),
    "reduce_l1": Case(lambda x: x.abs().sum(1), (ROWS,), {0: lambda dy, x: dy[:, None] * x.sign()}),
    "reduce_prod": Case(lambda x: x.prod(1), (ROWS,), {0: lambda dy, x, y: (dy * y)[:, None] / x}),
    "reduce_sum_square": Case(
        lambda x: (x * x).sum(1), (ROWS,), {0: lambda dy, x: 2 * dy[:, None] * x}
    ),
    "reduce_log_sum": Case(
        lambda x: x.sum(1).log(),
        (ROWS.abs(),),
        {0: lambda dy, x: (dy / x.sum(1))[:, None].expand(3, 4)},
    ),
    "reduce_log_sum_exp": Case(
        lambda x: x.logsumexp(1),
        (ROWS,),
        {0: lambda dy, x, y: dy[:, None] * (x - y[:, None]).exp()},
    ),
    "gather": Case(lambda x, at: x[at], (ROWS, INDEX), {0: scattered}),
    "transpose": Case(lambda x: x.T, (ROWS,), {0: lambda dy: dy.T}),
    "slice": Case(lambda x: x[1:], (ROWS,), {0: lambda dy: F.pad(dy, (0, 0, 1, 0))}),
    "pad": Case(lambda x: F.pad(x, (0, 0, 1, 0)), (ROWS,), {0: lambda dy: dy[1:]}),
    "expand": Case(lambda x: x.expand(2, 3, 4), (ROWS,), {0: lambda dy: dy.sum(0)}),
    "trilu": Case(torch.tril, (ROWS,), {0: torch.tril}),
    "cum_sum": Case(lambda x: x.cumsum(1), (ROWS,), {0: lambda dy: dy.flip(1).cumsum(1).flip(1)}),
}

CASES = {**POINTWISE, **OTHER}


def reads(case: Case, kind: str, position: int, dy: torch.Tensor, y: torch.Tensor) -> list:
    """The declared tensors, in the order of the tokens."""
    declared = GRADS[kind].wrt.get(position) or GRADS[kind].wrt[EVERY]
    found: list[torch.Tensor] = []
    for token in declared.tokens:
        if token == "x*":
            found += case.operands
        elif token == "o1":
            found.append(case.operands[1])  # the mask
        else:
            found.append(
                {"dy": dy, "y": y}.get(token) if token[0] != "x" else case.operands[int(token[1:])]
            )
    return found


@pytest.mark.req("R50")
@pytest.mark.parametrize("kind", sorted(CASES))
def test_the_declared_reads_determine_the_gradient(kind: str) -> None:
    case = CASES[kind]
    wrt = [at for at, x in enumerate(case.operands) if x.is_floating_point()]
    operands = [x.clone().requires_grad_(at in wrt) for at, x in enumerate(case.operands)]
    y = case.forward(*operands)
    dy = signed(*y.shape, seed=9)
    truth = torch.autograd.grad(y, [operands[at] for at in wrt], dy, allow_unused=True)
    for position, formula in case.formulas.items():
        got = formula(*reads(case, kind, position, dy, y.detach()))
        torch.testing.assert_close(got, truth[wrt.index(position)], rtol=1e-6, atol=1e-7)


@pytest.mark.req("R22", "R50")
@pytest.mark.parametrize("kind", sorted(POINTWISE))
def test_pointwise_gradients_move_only_where_they_are_read(kind: str) -> None:
    case = POINTWISE[kind]
    y = case.forward(*case.operands)
    dy = signed(*y.shape, seed=9)
    moved_at_all = False
    for position, formula in case.formulas.items():
        given = reads(case, kind, position, dy, y)
        before = formula(*given)
        for at, read in enumerate(given):
            for k in range(read.numel()):
                changed = read.clone()
                changed.view(-1)[k] = changed.view(-1)[k] * 0.7 + 0.11
                after = formula(*given[:at], changed, *given[at + 1 :])
                where = (after != before).view(-1).nonzero().view(-1).tolist()
                assert where in ([], [k]), (kind, position, at)
                moved_at_all |= where == [k]
    assert moved_at_all


def test_every_pointwise_row_has_a_formula() -> None:
    claimed = {
        (kind, at)
        for kind, spec in GRADS.items()
        for at, declared in spec.wrt.items()
        if declared.form == "pointwise"
    }
    proven = {
        (kind, EVERY if EVERY in GRADS[kind].wrt else at)
        for kind, case in POINTWISE.items()
        for at in case.formulas
    }
    assert claimed == proven


@pytest.mark.req("R50")
def test_softmax_output_reads_its_output_and_the_label() -> None:
    logits, label = signed(3, 4).requires_grad_(), torch.tensor([1, 3, 0])
    F.cross_entropy(logits, label, reduction="sum").backward()
    y = logits.detach().softmax(-1)
    torch.testing.assert_close(y - F.one_hot(label, 4), logits.grad)


def test_rows_exist_for_what_the_table_names() -> None:
    assert set(GRADS) <= set(KINDS)
    for kind, spec in GRADS.items():
        assert lookup(kind).grad is spec
        assert lookup(f"{kind}_grad").known == bool(spec.wrt)
    assert all(lookup(f"{name}_step").known for name in OPTIMIZERS)


@pytest.mark.req("R12")
@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("sgd", lambda p: torch.optim.SGD(p, 0.1)),
        ("momentum", lambda p: torch.optim.SGD(p, 0.1, momentum=0.9)),
        ("adam", torch.optim.Adam),
        ("adamw", torch.optim.AdamW),
        ("rmsprop", torch.optim.RMSprop),
        ("adagrad", torch.optim.Adagrad),
    ],
)
def test_optimizer_state_is_what_torch_keeps(name: str, make: Callable) -> None:
    weight = torch.nn.Parameter(torch.ones(7, 5))
    optimizer = make([weight])
    weight.sum().backward()
    optimizer.step()
    held = [v for v in optimizer.state[weight].values() if torch.is_tensor(v) and v.numel() > 1]
    assert len(held) == OPTIMIZERS[name][0]
