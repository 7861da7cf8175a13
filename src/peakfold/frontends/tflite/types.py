"""Element types of TFLite tensors."""

from __future__ import annotations

from peakfold.frontends.tflite.schema import names_of
from peakfold.ir import DTYPES, OPAQUE, DType


def dtype_of(code: int) -> DType:
    """The element type of a TensorType number; opaque for one this schema does not know.

    Example:
        >>> [str(dtype_of(code)) for code in (0, 1, 9, 13, 17, 99)]
        ['float32', 'float16', 'int8', 'resource', 'int4', 'opaque']
    """
    name = names_of("TensorType").get(code, "").lower()
    return DTYPES.get(name.replace("float8_", "float8"), OPAQUE)
