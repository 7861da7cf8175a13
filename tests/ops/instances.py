"""Small generated instances for every row that claims in place, views or parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import ml_dtypes
import numpy as np
import onnx
from onnx import helper

from peakfold.frontends.onnx.names import onnx_kind

from .proofs import Instance

SHAPES = ((4,), (2, 3), (1, 3, 2), ())
PAIRS = (((2, 3), (2, 3)), ((2, 3), (3,)), ((3, 1), (3, 4)), ((1,), (2, 2)), ((), ()))
ML, TRAINING, CONTRIB = "ai.onnx.ml", "ai.onnx.preview.training", "com.microsoft"

OP_TYPES = {
    onnx_kind(schema.name, schema.domain): schema.name for schema in onnx.defs.get_all_schemas()
}

FLOAT_UNARY = (
    "abs", "acos", "asin", "asinh", "atan", "atanh", "celu", "ceil", "cos", "cosh", "elu", "erf",
    "exp", "floor", "gelu", "hard_sigmoid", "hard_swish", "identity", "leaky_relu", "log",
    "mish", "neg", "reciprocal", "relu", "round", "selu", "shrink", "sigmoid", "sign", "sin",
    "sinh", "softplus", "softsign", "sqrt", "swish", "tan", "tanh", "thresholded_relu",
)  # fmt: skip
FLOAT_BINARY = ("add", "div", "mod", "mul", "pow", "sub")
BOOL_BINARY = ("and", "or", "xor")
INT_BINARY = ("bitwise_and", "bitwise_or", "bitwise_xor", "bit_shift")
COMPARISONS = ("equal", "greater", "greater_or_equal", "less", "less_or_equal")
VARIADIC = ("max", "mean", "min", "sum")


def floats(shape: tuple[int, ...], seed: int = 0, low: float = 0.1) -> np.ndarray:
    """Distinct values in (low, 0.9): legal for every function here."""
    rng = np.random.default_rng(seed)
    count = int(np.prod(shape))
    values = np.linspace(low, 0.9, count, dtype=np.float32)
    return rng.permutation(values).reshape(shape)


def integers(shape: tuple[int, ...], dtype: type, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(1, 6, shape).astype(dtype)


def make(
    op_type: str,
    *operands: np.ndarray | None,
    opset: int = 22,
    outputs: int = 1,
    domain: str = "",
    truth: Callable[..., tuple[np.ndarray, ...]] | None = None,
    **attrs: object,
) -> Instance:
    names = [f"i{at}" if v is not None else "" for at, v in enumerate(operands)]
    feeds = {n: np.asarray(v) for n, v in zip(names, operands, strict=True) if n}
    results = [f"o{at}" for at in range(outputs)]
    node = helper.make_node(op_type, names, results, domain=domain, **attrs)
    return Instance(node, feeds, opset, truth)


def unary() -> Iterator[Instance]:
    extra = {"celu": 12, "gelu": 20, "swish": 24, "shrink": 9}
    for kind in FLOAT_UNARY:
        for shape in SHAPES:
            if kind == "softsign" and shape == ():
                continue  # the reference kernel refuses a scalar
            yield make(OP_TYPES[kind], floats(shape), opset=max(22, extra.get(kind, 0)))
    for shape in SHAPES:
        yield make("Acosh", floats(shape) + 1)
        yield make("Not", floats(shape) > 0.5)
        yield make("BitwiseNot", integers(shape, np.int32))
        yield make("Trilu", floats((2, *shape, 3)))
        yield make("Trilu", floats((3, 3)), np.array(-1, np.int64), upper=0)
        yield make("Clip", floats(shape), np.float32(0.3), np.float32(0.6), opset=13)
        yield make("Clip", floats(shape), None, np.float32(0.6), opset=13)
        yield make("Clip", floats(shape), opset=6, min=0.3, max=0.6)
        for element in (ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2):
            special = floats(shape).astype(element)
            special.reshape(-1)[:1] = np.nan if element == ml_dtypes.float8_e4m3fn else np.inf
            yield make("IsNaN", special, opset=20, truth=lambda x: (np.isnan(x),))
            yield make("IsInf", special, opset=20, truth=lambda x: (np.isinf(x),))


def binary() -> Iterator[Instance]:
    for one, two in PAIRS:
        for a, b in ((one, two), (two, one)):
            for kind in FLOAT_BINARY:
                more = {"fmod": 1} if kind == "mod" else {}
                yield make(OP_TYPES[kind], floats(a), floats(b, 1), opset=15, **more)
            for kind in BOOL_BINARY:
                yield make(OP_TYPES[kind], floats(a) > 0.5, floats(b, 1) > 0.5)
            for kind in INT_BINARY:
                more = {"direction": "LEFT"} if kind == "bit_shift" else {}
                operands = integers(a, np.uint8), integers(b, np.uint8, 1)
                yield make(OP_TYPES[kind], *operands, **more)
            for kind in COMPARISONS:
                operands = integers(a, np.uint8), integers(b, np.uint8, 1)
                yield make(OP_TYPES[kind], *operands)
                yield make(OP_TYPES[kind], floats(a), floats(b, 1))
            for kind in VARIADIC:
                # The reference Mean cannot widen its first operand.
                truth = (lambda *v: ((v[0] + v[1] + v[2]) / 3,)) if kind == "mean" else None
                operands = floats(a), floats(b, 1), floats(a, 2)
                yield make(OP_TYPES[kind], *operands, truth=truth)
                yield make(OP_TYPES[kind], floats(a))
            yield make("Where", floats(a, 3) > 0.5, floats(a), floats(b, 1))
            yield make("Where", floats(b, 3) > 0.5, floats(a), floats(a, 1))
        if np.broadcast_shapes(one, two) == one:
            yield make("PRelu", floats(one, low=-1), floats(two, 1))
        yield make("SwiGLU", floats(one), floats(one, 1), opset=28)


def casts() -> Iterator[Instance]:
    for shape in SHAPES:
        x = floats(shape, low=-3) * 4
        for to in ("FLOAT", "INT32", "FLOAT16", "BOOL", "UINT32"):
            yield make("Cast", x if to != "UINT32" else abs(x), to=getattr(onnx.TensorProto, to))
        yield make("CastLike", x, np.zeros(1, np.int32))
        yield make("CastLike", x, np.zeros(1, np.float32))
        yield make("BitCast", x, opset=26, to=onnx.TensorProto.INT32)
        yield make("BitCast", x, opset=26, to=onnx.TensorProto.FLOAT)
        half = x.astype(np.float16)
        scale, zero = np.float16(0.25), np.uint16(7)
        yield make("QuantizeLinear", abs(half), scale, zero, opset=21, truth=quantized)
        short = integers(shape, np.int16)
        yield make("DequantizeLinear", short, scale, np.int16(2), opset=21, truth=dequantized)
    rows = integers((3, 4), np.int16)
    scales, zeros = np.array([0.5, 1, 2], np.float16), np.array([1, 2, 3], np.int16)
    for along, by_row in ((0, lambda v: v[:, None]), (1, lambda v: v)):
        x = rows if along == 0 else rows.T
        yield make(
            "DequantizeLinear",
            x,
            scales,
            zeros,
            opset=21,
            axis=along,
            truth=lambda v, s, z, by=by_row: dequantized(v, by(s), by(z)),
        )
        yield make(
            "QuantizeLinear",
            x.astype(np.float16),
            scales,
            zeros,
            opset=21,
            axis=along,
            truth=lambda v, s, z, by=by_row: quantized(v, by(s), by(z)),
        )


def quantized(x, scale, zero):
    low, high = np.iinfo(zero.dtype).min, np.iinfo(zero.dtype).max
    levels = np.rint(x.astype(np.float32) / scale.astype(np.float32)) + zero
    return (np.clip(levels, low, high).astype(zero.dtype),)


def dequantized(x, scale, zero):
    return (((x.astype(np.int32) - zero) * scale.astype(np.float32)).astype(scale.dtype),)


def normalised(x, scale, bias, mean, variance):
    along = (-1,) + (1,) * (x.ndim - 2)
    s, b, m, v = (a.reshape(along) for a in (scale, bias, mean, variance))
    return ((x - m) / np.sqrt(v + 1e-5) * s + b,)


def scattered(data, indices, updates):
    result = data.copy()
    for at in np.ndindex(indices.shape):
        result[(at[0], indices[at], *at[2:])] = updates[at]
    return (result,)


def layers() -> Iterator[Instance]:
    for shape in ((2, 3, 4), (1, 2), (2, 2, 2, 2)):
        c = shape[1]
        statistics = [floats((c,), seed) for seed in range(1, 5)]
        for opset in (14, 15):
            yield make("BatchNormalization", floats(shape), *statistics, opset=opset)
        # The reference kernel of version 9 takes statistics of the batch even in test mode.
        yield make("BatchNormalization", floats(shape), *statistics, opset=9, truth=normalised)
        yield make(
            "BatchNormalization", floats(shape), *statistics, opset=15, outputs=3, training_mode=1
        )
        x = floats(shape)
        yield make("Dropout", x, opset=7, ratio=0.5, truth=lambda v: (v.copy(),))
        yield make("Dropout", x, opset=12)
        yield make("Dropout", x, np.float32(0.5), opset=13)
        yield make("Dropout", x, np.float32(0.5), np.array(False), opset=13)
        yield make("Dropout", x, np.float32(0.5), np.array(True), opset=13, outputs=2, seed=3)
        yield make("ScatterElements", x, np.zeros(shape, np.int64), floats(shape, 1), axis=1)
        yield make(
            "ScatterElements",
            x,
            np.zeros(shape, np.int64),
            floats(shape, 1),
            axis=0,
            reduction="add",
            opset=18,
        )
        yield make(
            "Scatter",
            x,
            np.ones((1,) * len(shape), np.int64),
            floats((1,) * len(shape)),
            opset=9,
            axis=1,
            truth=scattered,
        )
        yield make("ScatterND", x, np.zeros((1, 1), np.int64), floats((1, *shape[1:]), 1))
        yield make(
            "ScatterND",
            x,
            np.array([[0], [0]]),
            floats((2, *shape[1:]), 1),
            reduction="mul",
            opset=18,
        )
    cache, fresh = floats((2, 5, 3)), floats((2, 2, 3), 1)
    yield make("TensorScatter", cache, fresh, np.array([1, 2]), opset=24)
    yield make("TensorScatter", cache, fresh, np.array([4, 0]), opset=24, mode="circular")


def adam(rate, step, x, gradient, first, second):
    first = 0.9 * first + 0.1 * gradient
    second = 0.999 * second + 0.001 * gradient**2
    rate = rate * np.sqrt(1 - 0.999**step) / (1 - 0.9**step)
    return (x - rate * first / (np.sqrt(second) + 1e-6)).astype(np.float32), first, second


def classical() -> Iterator[Instance]:
    for shape in ((2, 3), (1, 4)):
        x, c = floats(shape, low=-1), shape[1]
        yield make("Binarizer", x, domain=ML, threshold=0.2)
        yield make(
            "Imputer", x, domain=ML, replaced_value_float=float(x[0, 0]), imputed_value_floats=[0.5]
        )
        more = {"offset": [0.1] * c, "scale": [2.0] * c}
        yield make("Scaler", x, domain=ML, **more)
        yield make(
            "Scaler",
            integers(shape, np.int32),
            domain=ML,
            **more,
            truth=lambda v: (((v - 0.1) * 2).astype(np.float32),),
        )
        yield make(
            "LabelEncoder",
            integers(shape, np.int64),
            domain=ML,
            keys_int64s=[1, 2, 3],
            values_int64s=[7, 8, 9],
        )
        weights = [floats(shape, seed) for seed in range(4)]
        rate, step = np.array(0.1, np.float32), np.array(3, np.int64)
        yield make("Adagrad", rate, step, *weights[:3], domain=TRAINING, outputs=2)
        # The reference kernel widens its result to double.
        yield make("Adam", rate, step, *weights, domain=TRAINING, outputs=3, truth=adam)
        yield make(
            "Momentum",
            rate,
            step,
            *weights[:3],
            domain=TRAINING,
            outputs=2,
            alpha=0.9,
            beta=0.1,
            mode="nesterov",
            norm_coefficient=0.01,
        )


def real(v):
    return (v.astype(np.float32) - 1) * 0.5


def stored(v):
    return (np.clip(np.rint(v / 0.25) + 2, 0, 255).astype(np.uint8),)


def chosen(flag, one, _scale, _zero, two, *_rest):
    return stored(np.where(flag, real(one), real(two)))


def contrib() -> Iterator[Instance]:
    """No reference kernels: the truths are written from the operators' definitions."""

    def gelu(v):
        return 0.5 * v * (1 + np.tanh(0.7978845608 * (v + 0.044715 * v**3)))

    def sigmoid(v):
        return 1 / (1 + np.exp(-v))

    for one, two in PAIRS[:4]:
        a, b = integers(one, np.uint8), integers(two, np.uint8, 1)
        s, z = np.float32(0.5), np.uint8(1)
        tail = (s, z, np.float32(0.25), np.uint8(2))
        for op_type, f in (("QLinearAdd", np.add), ("QLinearMul", np.multiply)):
            for p, q in ((a, b), (b, a)):
                yield make(
                    op_type,
                    p,
                    s,
                    z,
                    q,
                    *tail,
                    domain=CONTRIB,
                    truth=lambda v, _s, _z, w, *_, f=f: stored(f(real(v), real(w))),
                )
        unary_tail = (s, z, np.float32(0.25), np.uint8(2))
        yield make(
            "QLinearSigmoid",
            a,
            *unary_tail,
            domain=CONTRIB,
            truth=lambda v, *_: stored(sigmoid(real(v)) * 9),
        )
        yield make(
            "QLinearLeakyRelu",
            a,
            *unary_tail,
            domain=CONTRIB,
            alpha=0.1,
            truth=lambda v, *_: stored(np.maximum(real(v) - 1, 0.1 * real(v))),
        )
        flag = floats(one, 2) > 0.5
        for p, q in ((a, b), (b, a)):
            yield make("QLinearWhere", flag, p, s, z, q, *tail, domain=CONTRIB, truth=chosen)
    for shape in ((2, 3), (2, 2, 3), (3,)):
        x, bias, skip = floats(shape), floats(shape[-1:], 1), floats(shape, 2)
        yield make("QuickGelu", x, domain=CONTRIB, truth=lambda v: (v * sigmoid(1.702 * v),))
        yield make("FastGelu", x, bias, domain=CONTRIB, truth=lambda v, b: (gelu(v + b),))
        yield make("FastGelu", x, domain=CONTRIB, truth=lambda v: (gelu(v),))
        yield make("BiasGelu", x, bias, domain=CONTRIB, truth=lambda v, b: (gelu(v + b),))
        yield make("BiasAdd", x, bias, skip, domain=CONTRIB, truth=lambda v, b, k: (v + b + k,))
        yield make("BiasDropout", x, bias, skip, domain=CONTRIB, truth=lambda v, b, k: (v + b + k,))
        yield make(
            "ExpandDims", x, np.array(1), domain=CONTRIB, truth=lambda v, _: (np.expand_dims(v, 1),)
        )


ATEN_UNARY = {
    "Exp2": np.exp2,
    "Expm1": np.expm1,
    "Log1p": np.log1p,
    "Log2": np.log2,
    "Trunc": np.trunc,
    "LogSigmoid": lambda v: -np.log1p(np.exp(-v)),
}


def with_row(array: np.ndarray, at: int, row: np.ndarray) -> np.ndarray:
    array = array.copy()
    array[at] = row
    return array


def aten() -> Iterator[Instance]:
    """Kinds that only torch has, by the names that give their kind."""
    for shape in SHAPES:
        for op_type, function in ATEN_UNARY.items():
            x = floats(shape) * (4 if op_type == "Trunc" else 1)
            yield make(op_type, x, truth=lambda v, f=function: (np.asarray(f(v)),))
        at = np.zeros(1, np.int64)
        if shape:
            put = {"truth": lambda v, i, u: (with_row(v, i[0], u),)}
            yield make("IndexPut", floats(shape), at, floats(shape[1:], 1), **put)
            yield make(
                "PutSlice",
                floats(shape),
                floats(shape[1:], 1),
                truth=lambda v, u: (with_row(v, -1, u),),
            )
        mask = floats(shape, 1) > 0.5
        yield make("MaskedFill", floats(shape), mask, truth=lambda v, m: (np.where(m, 7.0, v),))


def every_instance() -> list[Instance]:
    from .layout_instances import joins, layouts
    from .tflite_instances import every_tflite_instance

    groups = (
        unary,
        binary,
        casts,
        layers,
        classical,
        contrib,
        aten,
        layouts,
        joins,
        every_tflite_instance,
    )
    return [instance for group in groups for instance in group()]
