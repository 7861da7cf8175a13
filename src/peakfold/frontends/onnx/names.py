"""ONNX operator names to op kinds: the naming rule alone, usable without onnx.

A kind is the snake_case form of the ONNX name. Operators of a domain that the registry does
not describe keep their domain in the kind, so that a custom ``Conv`` is never mistaken for the
standard one: it then meets the registry's conservative row. The same holds for an operator of
com.microsoft that has a standard one's name, unless its attributes are known to be the same.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Final

from peakfold.ops import CONTRIB_KINDS, lookup

STANDARD: Final = ("", "ai.onnx")
"""Both spellings of the standard domain."""

# Names whose capitals do not mark words.
_WORDS: Final = (
    ("MatMul", "Matmul"),
    ("IsNaN", "IsNan"),
    ("SiLU", "Silu"),
    ("SwiGLU", "Swiglu"),
    ("MoE", "Moe"),
)

# Contrib operators that share a name with a standard one but not its operands or outputs.
_CLASHES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "Attention": "ms_attention",
        "CausalConvWithState": "ms_causal_conv_with_state",
        "LinearAttention": "ms_linear_attention",
        "RotaryEmbedding": "ms_rotary_embedding",
        "Unique": "ms_unique",
    }
)

# Contrib operators whose row is a standard one's, or reads the attribute they have beyond it.
_SHARED: Final = frozenset(
    {"dequantize_linear", "gather_nd", "gelu", "grid_sample", "pad", "qlinear_conv",
     "quantize_linear", "quick_gelu", "range", "swiglu", "trilu"}
)  # fmt: skip

_PLAIN_DOMAINS: Final = frozenset(
    {"", "ai.onnx", "ai.onnx.ml", "ai.onnx.preview", "ai.onnx.preview.training"}
)
_CONTRIB: Final = "com.microsoft"
_BLOCKED: Final = "com.microsoft.nchwc"

_AFTER_LOWER: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")
# Three capitals and a small letter: the last capital opens a word (RMSNormalization), while
# two do not (PRelu, QLinearConv).
_AFTER_ACRONYM: Final = re.compile(r"(?<=[A-Z]{2})(?=[A-Z][a-z])")


@lru_cache(maxsize=1024)
def onnx_kind(name: str, domain: str = "") -> str:
    """The op kind of an ONNX operator.

    Args:
        name: operator type as the model writes it.
        domain: operator set domain; empty is the standard one.

    Example:
        >>> [onnx_kind(n) for n in ("GlobalAveragePool", "LSTM", "PRelu", "RMSNormalization")]
        ['global_average_pool', 'lstm', 'prelu', 'rms_normalization']
        >>> [onnx_kind(n) for n in ("QLinearMatMul", "MatMulNBits", "GatherND", "Col2Im")]
        ['qlinear_matmul', 'matmul_nbits', 'gather_nd', 'col2im']
        >>> onnx_kind("Conv", "com.example"), onnx_kind("Attention", "com.microsoft")
        ('com.example::conv', 'ms_attention')
        >>> onnx_kind("Conv", "com.microsoft"), onnx_kind("Conv", "com.microsoft.nchwc")
        ('com.microsoft::conv', 'nchwc_conv')
    """
    if domain == _CONTRIB and name in _CLASHES:
        return _CLASHES[name]
    for written, words in _WORDS:
        name = name.replace(written, words)
    snake = _AFTER_LOWER.sub("_", _AFTER_ACRONYM.sub("_", name)).lower()
    if domain == _BLOCKED and f"nchwc_{snake}" in CONTRIB_KINDS:
        return f"nchwc_{snake}"
    own = snake in CONTRIB_KINDS or snake in _SHARED or not lookup(snake).known
    if domain in _PLAIN_DOMAINS or (domain == _CONTRIB and own):
        return snake
    return f"{domain}::{snake}"
