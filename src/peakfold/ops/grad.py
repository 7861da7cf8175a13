"""The `grad` column: what the backward pass of each op kind reads.

Reverse-mode differentiation of ``y = f(x0, x1, ...)`` gives for every operand the product of the
output's gradient with a Jacobian. Which forward tensors that product needs decides how long
they live, so it is declared here, exactly and per operand. Two profiles:

- ``minimal``: the fewest bytes that determine the gradient. A sigmoid needs its own output and
  not its input, an addition needs neither (arXiv 1604.06174, section 3: dependency pruning).
- ``mxnet``: what MXNet's layers of 2016 declared, one backward op per layer.

A kind without an entry is answered conservatively by the transform: its backward pass reads
every operand and every result, and it is counted and named.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from typing import Final

from peakfold.ir.graph import ViewFact
from peakfold.ops.inference import dims
from peakfold.ops.rules import per_input, per_output, unknown, views_or_none, whole, zero
from peakfold.ops.spec import Context, GradForm, GradReads, GradSpec, OpSpec

EVERY: Final = -1

_FROM_OUTPUT: Final = (
    "celu", "clip", "elu", "exp", "hard_sigmoid", "leaky_relu", "reciprocal", "selu", "sigmoid",
    "softplus", "sqrt", "tan", "tanh", "thresholded_relu",
)  # fmt: skip
_FROM_INPUT: Final = (
    "abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "erf", "fast_gelu",
    "gelu", "hard_swish", "log", "mish", "quick_gelu", "shrink", "sin", "sinh", "softsign", "swish",
)  # fmt: skip
_SAME_BYTES: Final = ("flatten", "identity", "reshape", "squeeze", "unsqueeze")
_FROM_GRADIENT: Final = (
    "cum_sum", "depth_to_space", "expand", "pad", "reduce_mean", "reduce_sum", "resize", "slice",
    "space_to_depth", "tile", "transpose", "trilu", "upsample",
)  # fmt: skip
# MXNet had one Pooling layer, which read its operand and its result whatever it pooled.
_POOLS: Final[Mapping[str, str]] = {
    "adaptive_pool": "dy x0",
    "average_pool": "dy",
    "global_average_pool": "dy",
    "global_lp_pool": "dy x0 y",
    "global_max_pool": "dy x0",
    "lp_pool": "dy x0 y",
    "max_pool": "dy x0",
    "window_pool": "dy x0",
}
_NORMS: Final = (
    "group_normalization",
    "instance_normalization",
    "layer_normalization",
    "rms_normalization",
    "simplified_layer_normalization",
)
_STOPS: Final = (
    "and", "arg_max", "arg_min", "bitwise_and", "bitwise_not", "bitwise_or", "bitwise_xor", "ceil",
    "constant", "constant_of_shape", "equal", "eye_like", "floor", "greater", "greater_or_equal",
    "hardmax", "is_inf", "is_nan", "less", "less_or_equal", "multinomial", "non_max_suppression",
    "non_zero", "not", "one_hot", "or", "random_normal", "random_normal_like", "random_uniform",
    "random_uniform_like", "range", "round", "shape", "sign", "size", "unique", "xor",
)  # fmt: skip


def _reads(text: str, form: GradForm = "other") -> GradReads:
    return GradReads(tuple(text.split()), form)


def _simple() -> Iterator[tuple[str, GradSpec]]:
    for kind in _FROM_OUTPUT:
        yield kind, GradSpec({0: _reads("dy y", "pointwise")})
    for kind in _FROM_INPUT:
        yield kind, GradSpec({0: _reads("dy x0", "pointwise")})
    for kind in _SAME_BYTES:
        yield kind, GradSpec({0: _reads("dy", "pass")})
    for kind in _FROM_GRADIENT:
        yield kind, GradSpec({0: _reads("dy")})
    for kind in _STOPS:
        yield kind, GradSpec({})
    layer = _reads("dy x0 y", "pointwise")
    yield "relu", GradSpec({0: _reads("dy y", "pointwise")}, mxnet=layer)
    pool = _reads("dy x0 y")
    for kind, least in _POOLS.items():
        yield kind, GradSpec({0: _reads(least)}, mxnet=pool)
    yield "lrn", GradSpec({0: pool}, mxnet=pool)
    dropped = _reads("dy", "pointwise")
    yield "dropout", GradSpec({0: _reads("dy o1", "pointwise")}, mxnet=dropped, mask=1)
    for kind in ("cast", "cast_like", "neg", "mean"):
        yield kind, GradSpec({(EVERY if kind == "mean" else 0): _reads("dy", "pointwise")})


def _products() -> Iterator[tuple[str, GradSpec]]:
    left, right, bias = _reads("dy x1"), _reads("dy x0"), _reads("dy")
    layer = _reads("dy x0 x1")
    for kind in ("conv", "conv_transpose", "gemm"):
        yield kind, GradSpec({0: left, 1: right, 2: bias}, mxnet=layer, bilinear=(0, 1))
    yield "matmul", GradSpec({0: left, 1: right}, mxnet=layer, bilinear=(0, 1))
    yield "einsum", GradSpec({EVERY: _reads("dy others")}, bilinear=(0, 1))
    yield "deform_conv", GradSpec({EVERY: _reads("dy x*")}, joint=True)


def _binary() -> Iterator[tuple[str, GradSpec]]:
    through, turned = _reads("dy", "pass"), _reads("dy", "pointwise")
    yield "add", GradSpec({0: through, 1: through})
    yield "bias_add", GradSpec({0: through, 1: _reads("dy"), 2: through})
    yield "sum", GradSpec({EVERY: through})
    yield "sub", GradSpec({0: through, 1: turned})
    yield "mul", GradSpec({0: _reads("dy x1", "pointwise"), 1: _reads("dy x0", "pointwise")})
    yield "div", GradSpec({0: _reads("dy x1", "pointwise"), 1: _reads("dy x1 y", "pointwise")})
    both = _reads("dy x0 x1", "pointwise")
    yield "pow", GradSpec({0: both, 1: _reads("dy x0 y", "pointwise")})
    yield "prelu", GradSpec({0: both, 1: _reads("dy x0", "pointwise")})
    yield "max", GradSpec({EVERY: _reads("dy x*", "pointwise")})
    yield "min", GradSpec({EVERY: _reads("dy x*", "pointwise")})
    chosen = _reads("dy x0", "pointwise")
    yield "where", GradSpec({1: chosen, 2: chosen})
    yield "bias_gelu", GradSpec({0: both, 1: both})
    yield "swiglu", GradSpec({0: both, 1: both})


def _coupled() -> Iterator[tuple[str, GradSpec]]:
    yield "softmax", GradSpec({0: _reads("dy y")})
    yield "log_softmax", GradSpec({0: _reads("dy y")})
    stats = _reads("dy x0 x1 o3 o4")
    yield "batch_normalization", GradSpec({0: stats, 1: stats, 2: stats}, joint=True, statistics=3)
    for kind in _NORMS:
        norm = _reads("dy x0 x1 o1 o2")
        yield kind, GradSpec({0: norm, 1: norm, 2: norm}, joint=True)
    yield "mean_variance_normalization", GradSpec({0: _reads("dy x0")})
    yield "lp_normalization", GradSpec({0: _reads("dy x0 y")})
    for kind in ("lstm", "gru", "rnn"):
        yield kind, GradSpec({at: _reads("dy x* y*") for at in (0, 1, 2, 3, 5, 6)}, joint=True)
    heads = _reads("dy x* y")
    yield "attention", GradSpec({0: heads, 1: heads, 2: heads}, joint=True)
    yield "multi_head_attention", GradSpec({0: heads, 1: heads, 2: heads}, joint=True)
    yield "grid_sample", GradSpec({0: _reads("dy x0 x1"), 1: _reads("dy x0 x1")}, joint=True)


def _moved() -> Iterator[tuple[str, GradSpec]]:
    yield "concat", GradSpec({EVERY: _reads("dy", "slices")}, joint=True, mxnet=_reads("dy"))
    yield "split", GradSpec({0: _reads("dy")})
    for kind in ("gather", "gather_elements", "gather_nd"):
        yield kind, GradSpec({0: _reads("dy x1")})
    for kind in ("scatter_elements", "scatter_nd"):
        yield kind, GradSpec({0: _reads("dy x1"), 2: _reads("dy x1")})
    yield "top_k", GradSpec({0: _reads("dy o1")})
    for kind in ("max", "min", "l2", "prod", "log_sum_exp"):
        yield f"reduce_{kind}", GradSpec({0: _reads("dy x0 y")})
    for kind in ("l1", "sum_square", "log_sum"):
        yield f"reduce_{kind}", GradSpec({0: _reads("dy x0")})


GRADS: Final[Mapping[str, GradSpec]] = {
    kind: spec
    for table in (_simple, _products, _binary, _coupled, _moved)
    for kind, spec in table()
}
"""What the backward pass of a kind reads, by kind; the registry shows it as `OpSpec.grad`."""


def _form(ctx: Context) -> str:
    form = ctx.attr("form")
    return form if isinstance(form, str) else "other"


def _inplace(ctx: Context) -> tuple[int, ...]:
    if _form(ctx) != "pointwise":
        return ()
    # MXNet's layers of 2016 offered only the incoming gradient for reuse.
    # Else what the forward pass saved comes first, as in the figure of the lecture (EX5).
    return (0,) if ctx.attr("profile") == "mxnet" else tuple(reversed(range(len(ctx.inputs))))


@views_or_none
def _views(ctx: Context) -> tuple[ViewFact, ...]:
    """A gradient that passes unchanged re-reads the bytes; one that is summed up does not."""
    form = _form(ctx)
    if form == "pass":
        return whole(ctx)
    return _slices(ctx) if form == "slices" else ()


def _slices(ctx: Context) -> tuple[ViewFact, ...]:
    # The gradient of a concatenation along the outermost real axis is cut at byte offsets.
    shape, axis = dims(ctx), ctx.int_attr("axis", 0)
    if prod(d if isinstance(d, int) else 0 for d in shape[: axis % len(shape)]) != 1:
        return ()
    starts = ctx.ints("starts") or ()
    parts = enumerate(zip(ctx.outputs, starts, strict=True))
    return tuple(ViewFact(at, 0, start) for at, (part, start) in parts if part is not None)


def _workspace(ctx: Context) -> int | None:
    return None if _form(ctx) == "other" else 0


def _macs(ctx: Context) -> int:
    # The gradient of each factor of a product costs as many multiply-accumulates as the product.
    return ctx.int_attr("macs", 0)


def _row(kind: str, spec: GradSpec) -> OpSpec:
    every = (*spec.wrt.values(), *([spec.mxnet] if spec.mxnet else []))
    forms = {reads.form for reads in every}
    return OpSpec(
        grad_kind(kind),
        inplace_if=_inplace if "pointwise" in forms else None,
        views=_views if forms & {"pass", "slices"} else None,
        workspace=_workspace,
        macs=_macs,
        other_ops=unknown,
        engine="matrix" if spec.bilinear else "vector",
        pure=False,
    )


def grad_kind(kind: str) -> str:
    """The kind of the op that computes gradients of an op of `kind`.

    Example:
        >>> grad_kind("relu")
        'relu_grad'
    """
    return f"{kind}_grad"


OPTIMIZERS: Final[Mapping[str, tuple[int, int]]] = {
    "sgd": (0, 2),
    "momentum": (1, 4),
    "adam": (2, 12),
    "adamw": (2, 14),
    "rmsprop": (1, 7),
    "adagrad": (1, 6),
    "lion": (1, 8),
}
"""Copies of a parameter that an optimizer keeps (R12), and operations per element and step."""


def _update(name: str) -> OpSpec:
    _, operations = OPTIMIZERS[name]
    return OpSpec(
        f"{name}_step", workspace=zero, macs=zero, other_ops=per_input(operations), pure=False
    )


ROWS: Final = (
    *(_row(kind, spec) for kind, spec in GRADS.items() if spec.wrt),
    # Probability less one at the label, for each sample: reads the softmax's own output.
    OpSpec(
        "softmax_output_grad",
        inplace_if=_inplace,
        workspace=zero,
        macs=zero,
        other_ops=per_output(),
        pure=False,
    ),
    *(_update(name) for name in OPTIMIZERS),
)
