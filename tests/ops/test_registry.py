"""The registry as a whole: complete, frozen, conservative where it knows nothing."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from math import prod
from pathlib import Path

import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peakfold.frontends.onnx.names import onnx_kind
from peakfold.ir.graph import Op, Tensor
from peakfold.ir.types import DTYPES, OPAQUE
from peakfold.ops import KINDS, VALUE_INPUTS, Context, context, lookup

DATA = Path(onnx.__file__).parent / "backend" / "test" / "data"


def nodes_of(graph):
    for node in graph.node:
        yield node
        for item in node.attribute:
            if item.HasField("g"):
                yield from nodes_of(item.g)
            for inner in item.graphs:
                yield from nodes_of(inner)


def kinds_of(files):
    for file in files:
        model = onnx.load(file, load_external_data=False)
        for part in (model.graph, *model.functions):
            for node in nodes_of(part):
                yield onnx_kind(node.op_type, node.domain), file.name


def test_every_operator_of_every_standard_set_has_a_row():
    missing = [
        (schema.domain, schema.name)
        for schema in onnx.defs.get_all_schemas_with_history()
        if not lookup(onnx_kind(schema.name, schema.domain)).known
    ]
    assert not missing


def test_every_operator_of_the_carried_models_has_a_row():
    files = sorted(DATA.rglob("*.onnx"))
    assert len(files) > 100
    assert not [found for found in kinds_of(files) if not lookup(found[0]).known]


@pytest.mark.shared
def test_every_operator_of_the_shared_models_has_a_row(shared_models):
    assert not [found for found in kinds_of(shared_models) if not lookup(found[0]).known]


def test_names_become_kinds_without_collision():
    kinds: dict[str, tuple[str, str]] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        kind = onnx_kind(schema.name, schema.domain)
        assert kinds.setdefault(kind, (schema.domain, schema.name)) == (schema.domain, schema.name)
        assert kind == kind.lower()
    for name, kind in {
        "GlobalAveragePool": "global_average_pool",
        "LSTM": "lstm",
        "PRelu": "prelu",
        "LRN": "lrn",
        "QLinearConv": "qlinear_conv",
        "MatMulNBits": "matmul_nbits",
        "If": "if",
        "GRU": "gru",
        "BatchNormalization": "batch_normalization",
        "MatMul": "matmul",
        "IsNaN": "is_nan",
        "ReduceL1": "reduce_l1",
        "ReduceLogSumExp": "reduce_log_sum_exp",
        "GatherND": "gather_nd",
        "RMSNormalization": "rms_normalization",
        "SVMClassifier": "svm_classifier",
        "DFT": "dft",
        "QLinearMatMul": "qlinear_matmul",
        "QMoE": "qmoe",
        "Col2Im": "col2im",
        "ArgMax": "arg_max",
        "SwiGLU": "swiglu",
        "ConstantOfShape": "constant_of_shape",
        "LpPool": "lp_pool",
    }.items():
        assert onnx_kind(name) == kind


def test_an_operator_of_a_strange_domain_is_not_the_standard_one():
    assert not lookup(onnx_kind("Conv", "com.example")).known
    assert not lookup(onnx_kind("Conv", "com.ms.internal.nhwc")).known
    assert lookup(onnx_kind("FusedConv", "com.microsoft")).known


def test_value_inputs_name_the_operands_as_onnx_does():
    named: dict[str, set[tuple[int, str]]] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        kind = onnx_kind(schema.name, schema.domain)
        pairs = {(at, operand.name.lower()) for at, operand in enumerate(schema.inputs)}
        named.setdefault(kind, set()).update(pairs)
    contrib = {"bias_dropout", "expand_dims", "group_query_attention"}
    # Operands that only TFLite has; `tests/frontends/tflite/test_kinds.py` checks those.
    tflite = {"arg_max", "arg_min", "transpose"}
    for kind, positions in VALUE_INPUTS.items():
        assert lookup(kind).known
        if kind == "constant_of_shape":
            assert positions == {0: "shape"}  # onnx calls it `input`
        elif kind in named and kind not in contrib | tflite:
            assert set(positions.items()) <= named[kind], kind


def test_flags_of_well_known_kinds():
    assert {kind for kind in KINDS if lookup(kind).shape_only} == {"rank", "shape", "size"}
    assert {kind for kind in KINDS if lookup(kind).widens} == {
        "cast",
        "cast_like",
        "densify",
        "dequantize",
        "dequantize_linear",
    }
    # Gradients and optimizer steps are never folded.
    training = tuple(kind for kind in KINDS if kind.endswith(("_grad", "_step")))
    assert {kind for kind in KINDS if not lookup(kind).pure} - set(training) == {
        "beam_search",
        "bernoulli",
        "bias_dropout",
        "dropout",
        "greedy_search",
        "if",
        "loop",
        "multinomial",
        "random_normal",
        "random_normal_like",
        "random_uniform",
        "random_uniform_like",
        "sampling",
        "scan",
        "sequence_map",
        "whisper_beam_search",
        # torch's
        "random_dropout",
        "random_fill",
        # TFLite's
        "assign_variable",
        "call",
        "call_once",
        "case",
        "hashtable",
        "hashtable_find",
        "hashtable_import",
        "hashtable_size",
        "random_standard_normal",
        "read_variable",
        "signal_delay",
        "signal_filter_bank_spectral_subtraction",
        "signal_framer",
        "signal_overlap_add",
        "signal_stacker",
        "stablehlo_rng_bit_generator",
        "tfl_multinomial",
        "tfl_random_uniform",
        "var_handle",
        "while",
    }
    assert {lookup(kind).engine for kind in ("conv", "gemm", "lstm", "attention")} == {"matrix"}
    assert lookup("relu").engine == "vector"
    assert lookup("transpose").engine == "copy"
    assert lookup("reshape").engine == "none"
    assert {"if", "loop", "scan"} <= set(KINDS)


def test_rows_and_tables_are_frozen():
    with pytest.raises(FrozenInstanceError):
        lookup("add").inplace = ()
    with pytest.raises(TypeError):
        VALUE_INPUTS["add"] = {}
    assert list(KINDS) == sorted(set(KINDS))


@pytest.mark.req("R22", "R14")
def test_an_unknown_kind_claims_nothing():
    spec = lookup("com.example::warp")
    x = Tensor("x", DTYPES["float32"], (4,))
    ctx = Context(Op("n", spec.kind, ("x",), ("y",)), (x,), (x,))
    assert not spec.known
    assert not spec.pure
    assert spec.inplace_inputs(ctx) == ()
    assert spec.views is None
    assert spec.parts is None
    assert spec.shape is None
    assert (spec.workspace(ctx), spec.macs(ctx), spec.other_ops(ctx)) == (None, None, None)


# --- anything goes in, nothing is raised -------------------------------------------------

DIMS = st.one_of(st.integers(0, 6), st.sampled_from(["n", "m"]))
TENSORS = st.one_of(
    st.none(),
    st.tuples(
        st.sampled_from([*(d for d in DTYPES.values() if d.bits), OPAQUE]),
        st.one_of(st.none(), st.lists(DIMS, max_size=5).map(tuple)),
    ),
)
SCALARS = st.one_of(
    st.integers(-9, 9),
    st.floats(-4, 4),
    st.sampled_from(["linear", "SAME_UPPER", "ij,jk->ik", "same", "valid", "relu6"]),
)
LISTS = st.one_of(
    st.lists(st.integers(-9, 9), max_size=6).map(tuple),
    st.lists(st.floats(-4, 4), max_size=4).map(tuple),
)
NAMES = st.sampled_from([
    "axis", "axes", "shape", "pads", "strides", "dilations", "kernel_shape", "group", "split",
    "starts", "ends", "steps", "perm", "sizes", "scales", "k", "depth", "to", "dtype",
    "num_heads", "q_num_heads", "kv_num_heads", "equation", "auto_pad", "mode", "keepdims",
    "blocksize", "repeats", "N", "K", "start", "limit", "delta", "output_shape", "direction",
    "layout", "hidden_size", "value_dtype", "targets", "num_outputs", "block_shape",
    "image_shape", "num_scan_inputs", "training_mode", "coefficients", "size", "frame_step",
    "begin", "end", "begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "offset",
    "shrink_axis_mask", "stride_h", "stride_w", "dilation_h_factor", "dilation_w_factor",
    "filter_height", "filter_width", "block_size", "paddings", "crops", "rank", "batch_dims",
    "fused_activation", "padding", "permutation", "start_indices", "limit_indices",
    "lhs_contracting_dimensions", "rhs_contracting_dimensions", "num_segments", "fft_length",
])  # fmt: skip


@settings(max_examples=2000, deadline=None, derandomize=True)
@given(
    st.sampled_from(KINDS),
    st.lists(TENSORS, max_size=6),
    st.integers(0, 4),
    st.dictionaries(NAMES, st.one_of(SCALARS, LISTS), max_size=6),
)
def test_no_row_ever_raises_and_no_range_leaves_its_tensor(kind, operands, results, attrs):
    tensors = {f"i{at}": Tensor(f"i{at}", *t) for at, t in enumerate(operands) if t is not None}
    inputs = tuple(f"i{at}" if t is not None else "" for at, t in enumerate(operands))
    outputs = tuple(f"o{at}" for at in range(results))
    tensors |= {name: Tensor(name, OPAQUE, None) for name in outputs}
    spec, op = lookup(kind), Op("n", kind, inputs, outputs, attrs)
    types = spec.shape(context(op, tensors)) if spec.shape else None
    assert types is None or len(types) == results
    for name, told in zip(outputs, types or (), strict=False):
        if told is not None:
            tensors[name] = Tensor(name, *told)
            assert all(isinstance(d, str) or d >= 0 for d in told[1])
    ctx = context(op, tensors)
    for rule in (spec.macs, spec.other_ops, spec.workspace):
        found = rule(ctx)
        assert found is None or found >= 0
    assert all(ctx.inputs[at] is not None for at in spec.inplace_inputs(ctx))
    for facts, inner, outer in (
        (spec.views(ctx) if spec.views else (), ctx.outputs, ctx.inputs),
        (spec.parts(ctx) if spec.parts else (), ctx.inputs, ctx.outputs),
    ):
        for fact in facts:
            viewer = fact.output if inner is ctx.outputs else fact.input
            base = fact.input if inner is ctx.outputs else fact.output
            check_range(fact, inner[viewer], outer[base])


def check_range(fact, piece, whole):
    assert fact.offset >= 0
    if piece is None or whole is None or piece.nbytes is None or whole.nbytes is None:
        return
    assert fact.offset + piece.nbytes <= whole.nbytes
    assert prod(piece.shape) <= prod(whole.shape)


@pytest.mark.req("R22")
def test_malformed_tensors_are_no_ranges_of_each_other():
    half, whole = (Tensor(n, DTYPES["int8"], s) for n, s in (("a", (2,)), ("y", (6,))))
    join = context(Op("n", "concat", ("a", "a"), ("y",), {"axis": 0}), {"a": half, "y": whole})
    assert lookup("concat").parts(join) == ()  # four bytes do not fill six
    opaque = Tensor("y", OPAQUE, (2,))
    for one, two in ((half, opaque), (opaque, half)):
        tensors = {"a": one, "y": two}
        ctx = context(Op("n", "reshape", ("a",), ("y",), {"shape": (2,)}), tensors)
        assert lookup("reshape").views(ctx) == ()
