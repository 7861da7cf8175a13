"""A bounds check of a whole `.tflite` flatbuffer, before any of it is read.

Python's flatbuffers has no verifier: a reader follows whatever offset a broken file holds. This
walk visits every table, vector and string that the front end may read and checks that it lies
inside the file. Tables and vector bytes are counted against the file's size, so that a small
file whose offsets point to the same place many times cannot ask for unbounded work.

The format: FlatBuffers internals (flatbuffers.dev); field numbers: the TFLite schema.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from peakfold.errors import ModelError
from peakfold.frontends.tflite.schema import names_of

Bytes = memoryview

IDENTIFIER: Final = b"TFL3"

# Field number -> what it holds: `vN` a vector of N-byte elements, `s` a string, `T:` a table,
# `V:` a vector of tables, `U:` a union whose type is the field before. Others are scalars.
TABLES: Final[Mapping[str, Mapping[int, str]]] = {
    "Model": {
        1: "V:OperatorCode", 2: "V:SubGraph", 3: "s", 4: "V:Buffer", 5: "v4", 6: "V:Metadata",
        7: "V:SignatureDef", 8: "V:ExternalBufferGroup", 9: "V:ExternalBuffer",
    },
    "OperatorCode": {1: "s"},
    "SubGraph": {0: "V:Tensor", 1: "v4", 2: "v4", 3: "V:Operator", 4: "s"},
    "Tensor": {
        0: "v4", 3: "s", 4: "T:QuantizationParameters", 6: "T:SparsityParameters", 7: "v4",
        9: "V:VariantSubType",
    },
    "QuantizationParameters": {0: "v4", 1: "v4", 2: "v4", 3: "v8", 5: "U:QuantizationDetails"},
    "CustomQuantization": {0: "v1"},
    "BlockwiseQuantization": {3: "v4"},
    "MultiAxisQuantization": {3: "v4"},
    "SparsityParameters": {0: "v4", 1: "v4", 2: "V:DimensionMetadata"},
    "DimensionMetadata": {3: "U:SparseIndexVector", 5: "U:SparseIndexVector"},
    "Int32Vector": {0: "v4"},
    "Uint16Vector": {0: "v2"},
    "Uint8Vector": {0: "v1"},
    "VariantSubType": {0: "v4"},
    "Operator": {
        1: "v4", 2: "v4", 4: "U:BuiltinOptions", 5: "v1", 7: "v1", 8: "v4",
        12: "U:BuiltinOptions2",
    },
    "Buffer": {0: "v1"},
    "Metadata": {0: "s"},
    "SignatureDef": {0: "V:TensorMap", 1: "V:TensorMap", 2: "s"},
    "TensorMap": {0: "s"},
    "ExternalBufferGroup": {0: "s"},
    "ExternalBuffer": {4: "s"},
    # Options that hold more than scalars.
    "ConcatEmbeddingsOptions": {1: "v4", 2: "v4"},
    "FullyConnectedOptions": {5: "v1"},
    "ReshapeOptions": {0: "v4"},
    "SqueezeOptions": {0: "v4"},
    "VarHandleOptions": {0: "s", 1: "s"},
    "BucketizeOptions": {0: "v4"},
    "StablehloGatherOptions": {0: "v8", 1: "v8", 2: "v8", 4: "v8"},
    "StablehloTransposeOptions": {0: "v8"},
    "StablehloDotGeneralOptions": {0: "v8", 1: "v8", 2: "v8", 3: "v8", 4: "v4"},
    "StablehloReduceWindowOptions": {0: "v8", 1: "v8", 2: "v8", 3: "v8", 4: "v8"},
    "StablehloBroadcastInDimOptions": {0: "v8"},
    "StablehloDynamicSliceOptions": {0: "v8"},
    "StablehloPadOptions": {0: "v8", 1: "v8", 2: "v8"},
    "StablehloCustomCallOptions": {0: "s", 2: "s", 4: "v4", 5: "v1"},
    "StablehloReduceOptions": {0: "v8"},
    "StablehloSliceOptions": {0: "v8", 1: "v8", 2: "v8"},
    "StablehloConvolutionOptions": {
        0: "v8", 1: "v8", 2: "v8", 3: "v8", 4: "v1", 7: "v8", 10: "v8", 13: "v8", 16: "v4",
    },
    "StablehloScatterOptions": {1: "v8", 2: "v8", 3: "v8"},
    "StablehloCaseOptions": {0: "v4"},
    "StableHLOCompositeOptions": {0: "s", 2: "v1"},
}  # fmt: skip

_UNIONS: Final = ("BuiltinOptions", "BuiltinOptions2", "QuantizationDetails", "SparseIndexVector")
_SHARED: Final = 8
_TABLES: Final = 1 << 23
_SLACK: Final = 1 << 16


@dataclass(slots=True)
class _Walk:
    """One pass over a file.

    Attributes:
        tables: how many more tables may be visited.
        nbytes: how many more bytes of vectors and strings may be visited.
    """

    data: Bytes
    unions: Mapping[str, Mapping[int, str]]
    tables: int
    nbytes: int

    def number(self, form: str, at: int) -> int:
        """A little-endian number.

        Raises:
            ModelError: it lies outside the file.
        """
        size = struct.calcsize(form)
        if not 0 <= at <= len(self.data) - size:
            raise ModelError("its flatbuffer points outside the file")
        return int(struct.unpack_from(form, self.data, at)[0])

    def follow(self, at: int) -> int:
        """Where an offset leads."""
        step = self.number("<I", at)
        if step == 0:
            raise ModelError("its flatbuffer has an empty offset")
        return at + step

    def vector(self, at: int, width: int) -> int:
        """Number of elements of a vector; the first is at ``at + 4``."""
        count = self.number("<I", at)
        if at + 4 + count * width > len(self.data):
            raise ModelError("a vector of its flatbuffer runs over the end of the file")
        self.nbytes -= count * width
        if self.nbytes < 0:
            raise ModelError("its flatbuffer repeats the same parts too often")
        return count

    def table(self, at: int, name: str) -> None:
        """A table and everything below it."""
        self.tables -= 1
        if self.tables < 0:
            raise ModelError("its flatbuffer repeats the same parts too often")
        vtable = at - self.number("<i", at)
        size, inline = self.number("<H", vtable), self.number("<H", vtable + 2)
        if size < 4 or size % 2 or inline < 4 or at + inline > len(self.data):
            raise ModelError(f"a {name} of its flatbuffer is malformed")
        self.number("<H", vtable + size - 2)
        fields = TABLES.get(name, {})
        kind = 0
        for slot in range((size - 4) // 2):
            offset = self.number("<H", vtable + 4 + 2 * slot)
            if offset and not 4 <= offset < inline:
                raise ModelError(f"a {name} of its flatbuffer is malformed")
            what = fields.get(slot, "")
            if offset and what:
                self._field(at + offset, what, kind)
            # The type of a union is the scalar right before it.
            kind = 0 if not offset else self.number("<B", at + offset)

    def _field(self, at: int, what: str, kind: int) -> None:
        where = self.follow(at)
        if what.startswith("V:"):
            count = self.vector(where, 4)
            for position in range(where + 4, where + 4 + 4 * count, 4):
                self.table(self.follow(position), what[2:])
        elif what.startswith("T:"):
            self.table(where, what[2:])
        elif what.startswith("U:"):
            if kind:
                self.table(where, self.unions[what[2:]].get(kind, f"{what[2:]} of type {kind}"))
        else:
            self.vector(where, 1 if what == "s" else int(what[1:]))


def check_bounds(data: Bytes) -> None:
    """Check that everything a reader of this model may touch lies inside it.

    Args:
        data: the file.

    Raises:
        ModelError: what is wrong; the file is not TFLite, truncated or damaged.

    Example:
        >>> check_bounds(memoryview(b"no model at all"))
        Traceback (most recent call last):
        ...
        peakfold.errors.ModelError: not a TFLite model, or truncated (copy or convert it again)
    """
    if len(data) < 16 or bytes(data[4:8]) != IDENTIFIER:
        raise ModelError("not a TFLite model, or truncated", hint="copy or convert it again")
    walk = _Walk(
        data,
        {name: names_of(name) for name in _UNIONS},
        min(len(data) // 4, _TABLES),
        _SHARED * len(data) + _SLACK,
    )
    walk.table(walk.follow(0), "Model")
