"""TFLite operators -> op kinds.

Where ONNX has an operator of the same meaning, the kind is shared; what differs in layout,
operands or options has a kind of its own (``tfl_`` where the bare name is ONNX's). Every builtin
operator of the schema is in the table; `None` marks placeholders that no runtime executes, which
are treated like strangers: nothing is claimed of them, and reports count them.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

_SAME_MEANING: Final = {
    "ABS": "abs", "ADD": "add", "ADD_N": "sum", "ARG_MAX": "arg_max", "ARG_MIN": "arg_min",
    "BITWISE_XOR": "bitwise_xor", "CAST": "cast", "CEIL": "ceil", "CONCATENATION": "concat",
    "COS": "cos", "CUMSUM": "cum_sum", "DIV": "div", "ELU": "elu", "EQUAL": "equal",
    "EXP": "exp", "EXPAND_DIMS": "expand_dims", "FLOOR": "floor", "FLOOR_MOD": "mod",
    "GATHER_ND": "gather_nd", "GELU": "gelu", "GREATER": "greater",
    "GREATER_EQUAL": "greater_or_equal", "HARD_SWISH": "hard_swish", "IF": "if",
    "LEAKY_RELU": "leaky_relu", "LESS": "less", "LESS_EQUAL": "less_or_equal",
    "LOCAL_RESPONSE_NORMALIZATION": "lrn", "LOG": "log", "LOGICAL_AND": "and",
    "LOGICAL_NOT": "not", "LOGICAL_OR": "or", "LOGISTIC": "sigmoid", "LOG_SOFTMAX": "log_softmax",
    "MAXIMUM": "max", "MEAN": "reduce_mean", "MINIMUM": "min", "MIRROR_PAD": "pad", "MUL": "mul",
    "NEG": "neg", "ONE_HOT": "one_hot", "PAD": "pad", "PADV2": "pad", "POW": "pow",
    "PRELU": "prelu", "RANGE": "range", "REDUCE_MAX": "reduce_max", "REDUCE_MIN": "reduce_min",
    "REDUCE_PROD": "reduce_prod", "RELU": "relu", "RESHAPE": "reshape",
    "REVERSE_SEQUENCE": "reverse_sequence", "RIGHT_SHIFT": "bit_shift", "ROUND": "round",
    "SELECT_V2": "where", "SHAPE": "shape", "SIGN": "sign", "SIN": "sin", "SOFTMAX": "softmax",
    "SQRT": "sqrt", "SQUEEZE": "squeeze", "SUB": "sub", "SUM": "reduce_sum", "TANH": "tanh",
    "TILE": "tile", "TOPK_V2": "top_k", "TRANSPOSE": "transpose", "UNIQUE": "unique",
}  # fmt: skip

_STABLEHLO: Final = {
    "STABLEHLO_ABS": "abs", "STABLEHLO_ADD": "add", "STABLEHLO_AND": "bitwise_and",
    "STABLEHLO_CASE": "case", "STABLEHLO_CBRT": "cbrt", "STABLEHLO_COMPOSITE": "call",
    "STABLEHLO_CONCATENATE": "concat", "STABLEHLO_CONVERT": "cast", "STABLEHLO_COSINE": "cos",
    "STABLEHLO_CUSTOM_CALL": None, "STABLEHLO_DIVIDE": "div", "STABLEHLO_EXPONENTIAL": "exp",
    "STABLEHLO_FLOOR": "floor", "STABLEHLO_LOG": "log", "STABLEHLO_LOGISTIC": "sigmoid",
    "STABLEHLO_MAXIMUM": "max", "STABLEHLO_MINIMUM": "min", "STABLEHLO_MULTIPLY": "mul",
    "STABLEHLO_NEGATE": "neg", "STABLEHLO_OR": "bitwise_or", "STABLEHLO_POWER": "pow",
    "STABLEHLO_REMAINDER": "mod", "STABLEHLO_RESHAPE": "reshape", "STABLEHLO_RSQRT": "rsqrt",
    "STABLEHLO_SELECT": "where", "STABLEHLO_SHIFT_LEFT": "bit_shift",
    "STABLEHLO_SUBTRACT": "sub", "STABLEHLO_TANH": "tanh", "STABLEHLO_WHILE": "while",
}  # fmt: skip

_OWN_KIND: Final = {
    "BITCAST": "tfl_bitcast", "DEPTH_TO_SPACE": "tfl_depth_to_space", "GATHER": "tfl_gather",
    "LSTM": "tfl_lstm", "MULTINOMIAL": "tfl_multinomial", "RANDOM_UNIFORM": "tfl_random_uniform",
    "RNN": "tfl_rnn", "SCATTER_ND": "tfl_scatter_nd", "SELECT": "tfl_select",
    "SLICE": "tfl_slice", "SPACE_TO_DEPTH": "tfl_space_to_depth", "SPLIT": "tfl_split",
    "WHERE": "tfl_where",
    "DELEGATE": None, "PLACEHOLDER_FOR_GREATER_OP_CODES": None, "CUSTOM": None,
}  # fmt: skip

# Their kind is their name in small letters.
_BY_NAME: Final = (
    "ASSIGN_VARIABLE", "ATAN2", "AVERAGE_POOL_2D", "BATCH_MATMUL", "BATCH_TO_SPACE_ND",
    "BIDIRECTIONAL_SEQUENCE_LSTM", "BIDIRECTIONAL_SEQUENCE_RNN", "BROADCAST_ARGS",
    "BROADCAST_TO", "BUCKETIZE", "CALL", "CALL_ONCE", "COMPLEX_ABS", "CONCAT_EMBEDDINGS",
    "CONV_2D", "CONV_3D", "CONV_3D_TRANSPOSE", "DENSIFY", "DEPTHWISE_CONV_2D", "DEQUANTIZE",
    "DILATE", "DYNAMIC_UPDATE_SLICE", "EMBEDDING_LOOKUP", "EMBEDDING_LOOKUP_SPARSE",
    "FAKE_QUANT", "FILL", "FLOOR_DIV", "FULLY_CONNECTED", "HASHTABLE", "HASHTABLE_FIND",
    "HASHTABLE_IMPORT", "HASHTABLE_LOOKUP", "HASHTABLE_SIZE", "IMAG", "L2_NORMALIZATION",
    "L2_POOL_2D", "LSH_PROJECTION", "MATRIX_DIAG", "MATRIX_SET_DIAG", "MAX_POOL_2D",
    "NON_MAX_SUPPRESSION_V4", "NON_MAX_SUPPRESSION_V5", "NOT_EQUAL", "PACK", "QUANTIZE",
    "RANDOM_STANDARD_NORMAL", "RANK", "READ_VARIABLE", "REAL", "REDUCE_ALL", "REDUCE_ANY",
    "REDUCE_WINDOW", "RELU6", "RELU_0_TO_1", "RELU_N1_TO_1", "RESIZE_BILINEAR",
    "RESIZE_NEAREST_NEIGHBOR", "REVERSE_V2", "RFFT2D", "RSQRT", "SEGMENT_SUM", "SKIP_GRAM",
    "SPACE_TO_BATCH_ND", "SPARSE_TO_DENSE", "SPLIT_V", "SQUARE", "SQUARED_DIFFERENCE",
    "STABLEHLO_BROADCAST_IN_DIM", "STABLEHLO_CLAMP", "STABLEHLO_COMPARE",
    "STABLEHLO_CONVOLUTION", "STABLEHLO_DOT_GENERAL", "STABLEHLO_DYNAMIC_SLICE",
    "STABLEHLO_DYNAMIC_UPDATE_SLICE", "STABLEHLO_GATHER", "STABLEHLO_IOTA", "STABLEHLO_PAD",
    "STABLEHLO_REDUCE", "STABLEHLO_REDUCE_WINDOW", "STABLEHLO_RNG_BIT_GENERATOR",
    "STABLEHLO_SCATTER", "STABLEHLO_SLICE", "STABLEHLO_SORT", "STABLEHLO_TRANSPOSE",
    "STRIDED_SLICE", "SVDF", "TRANSPOSE_CONV", "UNIDIRECTIONAL_SEQUENCE_LSTM",
    "UNIDIRECTIONAL_SEQUENCE_RNN", "UNPACK", "UNSORTED_SEGMENT_MAX", "UNSORTED_SEGMENT_MIN",
    "UNSORTED_SEGMENT_PROD", "UNSORTED_SEGMENT_SUM", "VAR_HANDLE", "WHILE", "ZEROS_LIKE",
)  # fmt: skip

BUILTIN_KINDS: Final[Mapping[str, str | None]] = MappingProxyType(
    {**_SAME_MEANING, **_STABLEHLO, **_OWN_KIND, **{name: name.lower() for name in _BY_NAME}}
)
"""Builtin operator of the schema -> op kind."""

CUSTOM_KINDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "Convolution2DTransposeBias": "convolution_2d_transpose_bias",
        "SignalDelay": "signal_delay",
        "SignalEnergy": "signal_energy",
        "SignalFftAutoScale": "signal_fft_auto_scale",
        "SignalFilterBank": "signal_filter_bank",
        "SignalFilterBankLog": "signal_filter_bank_log",
        "SignalFilterBankSpectralSubtraction": "signal_filter_bank_spectral_subtraction",
        "SignalFilterBankSquareRoot": "signal_filter_bank_square_root",
        "SignalFramer": "signal_framer",
        "SignalIrfft": "signal_irfft",
        "SignalOverlapAdd": "signal_overlap_add",
        "SignalPCAN": "signal_pcan",
        "SignalRfft": "signal_rfft",
        "SignalStacker": "signal_stacker",
        "SignalWindow": "signal_window",
        "TFLite_Detection_PostProcess": "detection_postprocess",
    }
)
"""Custom code -> op kind, for the custom operators that have a row."""


def tflite_kind(builtin: str, custom: str = "") -> str:
    """The op kind of an operator.

    Args:
        builtin: its name in the schema.
        custom: its custom code.

    Example:
        >>> tflite_kind("LOGISTIC"), tflite_kind("CUSTOM", "SignalRfft")
        ('sigmoid', 'signal_rfft')
        >>> tflite_kind("CUSTOM", "ethos-u"), tflite_kind("DELEGATE")
        ('tflite.custom::ethos-u', 'tflite::delegate')
    """
    if builtin == "CUSTOM":
        return CUSTOM_KINDS.get(custom, f"tflite.custom::{custom or 'without a code'}")
    return BUILTIN_KINDS.get(builtin) or f"tflite::{builtin.lower()}"
