"""Shapes as runtimes make them: rounded products, strings, contradictions, upper bounds."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from peakfold.analysis import Index, cost_of
from peakfold.boundary import being_strict
from peakfold.errors import ModelError
from peakfold.frontends import Bindings, Loaded, load
from peakfold.judges.plan import verify_plan
from peakfold.judges.stated import proven
from peakfold.planning import PlanOptions, make_plan
from peakfold.planning.plan import Proof
from peakfold.reports.text.verbs import plan_text

F, S, I64 = TensorProto.FLOAT, TensorProto.STRING, TensorProto.INT64
ML = "ai.onnx.ml"


def stored(name: str, value: object) -> TensorProto:
    return numpy_helper.from_array(np.asarray(value), name)


def proto(
    nodes: list,
    inputs: dict,
    outputs: dict,
    weights: list = (),
    known: dict | None = None,
    opset: int = 17,
    **more: object,
) -> ModelProto:
    """A model; inputs, outputs and known tensors as (type, shape)."""
    sides = [
        [helper.make_tensor_value_info(name, *kind) for name, kind in side.items()]
        for side in (inputs, outputs, known or {})
    ]
    graph = helper.make_graph(nodes, "g", *sides[:2], list(weights), value_info=sides[2])
    domains = {"": opset, ML: 3} | {node.domain: 1 for node in nodes if node.domain not in ("", ML)}
    opsets = [helper.make_opsetid(*item) for item in domains.items()]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8, **more)


def read(path: Path, model: ModelProto, *dims: str, shapes: tuple[str, ...] = ()) -> Loaded:
    file = path / "m.onnx"
    file.write_bytes(model.SerializeToString())
    return load(file, Bindings.parse(dims, shapes))


def _resized(scale: float, size: int, declared: int | None) -> ModelProto:
    nodes = [
        helper.make_node("Resize", ["x", "", "s"], ["r"], mode="nearest"),
        helper.make_node("Conv", ["r", "w"], ["y"], pads=[1] * 4),
    ]
    weights = [
        stored("s", np.array([1, 1, scale, scale], np.float32)),
        stored("w", np.ones((8, 8, 3, 3), np.float32)),
    ]
    known = {} if declared is None else {"r": (F, [1, 8, declared, declared])}
    ends = {"x": (F, [1, 8, size, size])}, {"y": (F, None)}
    return proto(nodes, *ends, weights, known)


# What ONNX Runtime 1.32 made of each.
@pytest.mark.parametrize(
    ("scale", "size", "made"),
    [(0.7, 10, 7), (1.05, 20, 21), (2.8292683, 41, 116), (0.3, 10, 3), (224 / 706, 706, 223)],
)
def test_a_scaled_size_is_a_product_in_single_precision(
    tmp_path: Path, scale: float, size: int, made: int
) -> None:
    graph = read(tmp_path, _resized(scale, size, None)).graph
    assert graph["r"].shape == (1, 8, made, made)


def test_the_declaration_decides_between_the_two_rules(tmp_path: Path) -> None:
    graph = read(tmp_path, _resized(0.7, 10, 7)).graph
    assert cost_of(graph).total().figures.macs == 28_224
    summary = make_plan(graph, PlanOptions(align=1)).summary
    assert (summary.output_bytes, summary.arena_bytes) == (1568, 3136)
    assert any("single precision" in note and "7" in note for note in graph.notes)
    assert read(tmp_path, _resized(0.7, 10, 6)).graph["r"].shape == (1, 8, 6, 6)


_NORMALISED = helper.make_node("StringNormalizer", ["x"], ["a"], stopwords=["q"])
_SPLIT = helper.make_node("StringSplit", ["x"], ["a", "n"], delimiter="-")


def _on(name: str, op: str, domain: str = "", **attrs: object) -> NodeProto:
    return helper.make_node(op, [name], ["y"], domain=domain, **attrs)


_LABELS = {"keys_strings": ["a"], "values_int64s": [1], "domain": ML}
_CATEGORIES = {"cats_strings": ["a"], "domain": ML}
_CHAINS = {
    "labels": [_NORMALISED, _on("a", "LabelEncoder", **_LABELS)],
    "mapper": [_NORMALISED, _on("a", "CategoryMapper", cats_int64s=[0], **_CATEGORIES)],
    "one hot": [_NORMALISED, _on("a", "OneHotEncoder", **_CATEGORIES)],
    "equal": [_NORMALISED, helper.make_node("Equal", ["a", "k"], ["y"])],
    "match": [_NORMALISED, _on("a", "RegexFullMatch", pattern="a")],
    "split": [_SPLIT, _on("a", "LabelEncoder", **_LABELS)],
    "split, matched": [_SPLIT, _on("a", "RegexFullMatch", pattern="a")],
    "shape": [_SPLIT, helper.make_node("Shape", ["a"], ["s"]), _on("s", "ConstantOfShape")],
}


def _strings(nodes: list[NodeProto]) -> ModelProto:
    weights = [helper.make_tensor("k", S, [1], [b"a"]), stored("i", np.array([0, 1]))]
    return proto(nodes, {"x": (S, [4])}, {"y": (0, None)}, weights, opset=20)


@pytest.mark.parametrize("chain", _CHAINS)
def test_what_follows_a_string_of_unknown_shape_is_asked_for(tmp_path: Path, chain: str) -> None:
    graph = read(tmp_path, _strings(_CHAINS[chain])).graph
    assert graph["y"].shape is None
    with pytest.raises(ModelError, match="--shape y="):
        Index.of(graph)
    if chain == "shape":  # its rank is known
        assert graph["s"].shape == (2,)


def test_a_string_keeps_the_shape_it_has(tmp_path: Path) -> None:
    picked = helper.make_node("Gather", ["a", "i"], ["b"])
    chain = [_NORMALISED, picked, _on("b", "LabelEncoder", **_LABELS)]
    assert read(tmp_path, _strings(chain)).graph["y"].shape == (2,)
    for node, kind in ((_NORMALISED, [3]), (_SPLIT, [4, 2])):  # what the file declares
        declared = proto([node], {"x": (S, [4])}, {"a": (S, kind)}, opset=20)
        assert read(tmp_path, declared).graph["a"].shape == tuple(kind)


def _declared(dtype: int, shape: list[int]) -> ModelProto:
    nodes = [helper.make_node("Relu", ["x"], ["a"]), helper.make_node("Neg", ["a"], ["y"])]
    return proto(nodes, {"x": (F, [2, 2])}, {"y": (F, [2, 2])}, [], {"a": (dtype, shape)})


@pytest.mark.parametrize(
    ("dtype", "shape", "shown"), [(F, [3, 3], "float32[3, 3]"), (I64, [2, 2], "int64[2, 2]")]
)
def test_a_contradiction_is_named_and_holds_the_proof_back(
    tmp_path: Path, dtype: int, shape: list[int], shown: str
) -> None:
    loaded = read(tmp_path, _declared(dtype, shape))
    with being_strict(), pytest.raises(ModelError, match=r"--strict.*'a'"):
        load(loaded.path)
    (doubt,) = loaded.graph.doubts
    assert doubt in loaded.graph.notes
    assert "'a'" in doubt
    assert f"declares {shown}, its op makes float32[2, 2]" in doubt
    result = make_plan(loaded.graph, PlanOptions(align=1))
    right = make_plan(read(tmp_path, _declared(F, [2, 2])).graph, PlanOptions(align=1))
    assert result.summary.arena_bytes == right.summary.arena_bytes
    assert right.summary.optimal
    assert not right.plan.doubts
    assert not result.summary.optimal
    assert not result.summary.order_optimal
    assert not result.plan.proof.packing
    text = plan_text(result, width=100, color=False)
    assert "Not proven" in text
    assert "Proven" not in text


def test_a_judge_finds_a_proof_that_a_doubtful_graph_does_not_bear(tmp_path: Path) -> None:
    graph = read(tmp_path, _declared(F, [3, 3])).graph
    plan = make_plan(graph, PlanOptions(align=1)).plan
    assert all(check.ok for check in verify_plan(graph, plan))
    proof = Proof(packing=True, order=True)
    for forged in (
        msgspec.structs.replace(plan, proof=proof),
        msgspec.structs.replace(plan, proof=proof, doubts=[]),
    ):
        assert not all(check.ok for check in verify_plan(graph, forged))


def test_an_unknown_op_holds_the_proof_back_too(tmp_path: Path) -> None:
    nodes = [helper.make_node("Warp", ["x"], ["a"], domain="my"), _on("a", "Relu")]
    loaded = read(tmp_path, proto(nodes, {"x": (F, [4])}, {"y": (F, [4])}, [], {"a": (F, [4])}))
    result = make_plan(loaded.graph)
    assert result.plan.unsupported
    assert not result.plan.proof.order
    assert not result.summary.optimal
    with being_strict(), pytest.raises(ModelError, match="my::warp"):
        load(loaded.path)


def test_nothing_inside_a_body_is_proven_of_a_doubtful_graph(tmp_path: Path) -> None:
    def branch(name: str, op: str) -> GraphProto:
        out = helper.make_tensor_value_info(name, F, [9, 9])  # it is [2, 2]
        return helper.make_graph([helper.make_node(op, ["x"], [name])], name, [], [out])

    node = helper.make_node(
        "If", ["c"], ["y"], then_branch=branch("a", "Relu"), else_branch=branch("b", "Neg")
    )
    ends = {"x": (F, [2, 2]), "c": (TensorProto.BOOL, [])}, {"y": (F, [2, 2])}
    result = make_plan(read(tmp_path, proto([node], *ends)).graph)
    assert len(result.plan.doubts) == 2
    assert result.plan.bodies
    assert not any(proven(result.plan))


def _model_of(nodes: list, inputs: dict, outputs: list[str], weights: list = ()) -> ModelProto:
    return proto(nodes, inputs, dict.fromkeys(outputs, (0, None)), weights)


def _differing(first: list[int], second: list[int]) -> ModelProto:
    """An If whose branches make results of these shapes, and what reads it."""
    branches = {
        f"{key}_branch": helper.make_graph(
            [helper.make_node("Expand", ["x", f"s_{key}"], [key])],
            key,
            [],
            [helper.make_tensor_value_info(key, F, None)],
            [stored(f"s_{key}", np.array(shape))],
        )
        for key, shape in (("then", first), ("else", second))
    }
    nodes = [helper.make_node("If", ["c"], ["z"], **branches), _on("z", "Relu")]
    return _model_of(nodes, {"x": (F, [1]), "c": (TensorProto.BOOL, [])}, ["y"])


def test_branches_that_differ_are_bounded_where_their_ranks_agree(tmp_path: Path) -> None:
    graph = read(tmp_path, _differing([4, 8], [8, 2])).graph
    assert graph["y"].shape == (8, 8)
    assert any("'z': at most float32[8, 8]" in doubt for doubt in graph.doubts)
    summary = make_plan(graph).summary
    assert (summary.arena_bytes, summary.optimal) == (256, False)
    given = read(tmp_path, _differing([4, 8], [8, 2]), shapes=("z=8x8",)).graph
    assert not given.doubts
    graph = read(tmp_path, _differing([4, 8], [2, 2, 2])).graph
    assert graph["y"].shape is None
    with pytest.raises(ModelError, match="--shape y="):
        Index.of(graph)


# Operators that count what they find, and the largest result.
_COUNTING = {
    "NonZero": ([_on("x", "NonZero")], (2, 30)),
    "Compress": ([helper.make_node("Compress", ["x", "k"], ["y"])], (7,)),
    "Compress along": ([helper.make_node("Compress", ["x", "k"], ["y"], axis=1)], (5, 6)),
    "Unique": ([_on("x", "Unique")], (30,)),
    "Unique along": ([_on("x", "Unique", axis=-1)], (5, 6)),
    "NonMaxSuppression": (
        [helper.make_node("NonMaxSuppression", ["b", "s", "most"], ["y"])],
        (2 * 3 * 20, 3),
    ),
    "all boxes": ([helper.make_node("NonMaxSuppression", ["b", "s", "m"], ["y"])], (600, 3)),
    "no boxes": ([helper.make_node("NonMaxSuppression", ["b", "s"], ["y"])], (0, 3)),
    "what follows": (
        [
            helper.make_node("NonZero", ["x"], ["n"]),
            helper.make_node("Transpose", ["n"], ["t"]),
            helper.make_node("GatherND", ["x", "t"], ["g"]),
            helper.make_node("Relu", ["g"], ["y"]),
        ],
        (30,),
    ),
    "the best of": (
        [
            helper.make_node("NonZero", ["x"], ["n"]),
            helper.make_node("Shape", ["n"], ["h"]),
            helper.make_node("Slice", ["h", "one", "two"], ["c"]),
            helper.make_node("Cast", ["n"], ["f"], to=F),
            helper.make_node("TopK", ["f", "c"], ["y", "at"]),
        ],
        (2, 30),
    ),
}


def _counting(nodes: list) -> ModelProto:
    inputs = {
        "x": (F, [5, 6]),
        "k": (TensorProto.BOOL, [7]),
        "b": (F, [2, 100, 4]),
        "s": (F, [2, 3, 100]),
        "m": (I64, [1]),
    }
    values = {"most": [20], "one": [1], "two": [2]}
    return _model_of(nodes, inputs, ["y"], [stored(n, np.array(v)) for n, v in values.items()])


@pytest.mark.parametrize("case", _COUNTING)
def test_what_counts_what_it_finds_has_a_bound(tmp_path: Path, case: str) -> None:
    nodes, shape = _COUNTING[case]
    graph = read(tmp_path, _counting(nodes)).graph
    assert graph["y"].shape == shape
    assert any("at most" in doubt for doubt in graph.doubts)
    plan = make_plan(graph).plan
    assert not any(proven(plan))
    assert all(check.ok for check in verify_plan(graph, plan))


def test_a_count_decides_no_branch_and_no_difference(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("NonZero", ["x"], ["n"]),
        helper.make_node("Shape", ["n"], ["h"]),
        helper.make_node("Sub", ["sixty", "h"], ["d"]),  # largest where the count is smallest
        helper.make_node("ConstantOfShape", ["d"], ["y"]),
    ]
    weights = [stored("sixty", np.array([60, 60]))]
    graph = read(tmp_path, _model_of(nodes, {"x": (F, [5, 6])}, ["y"], weights)).graph
    assert graph["y"].shape is None


def test_sizes_that_are_bounds_need_not_fit_each_other(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("NonZero", ["x"], ["n"]),
        helper.make_node("Add", ["n", "w"], ["y"]),  # 30 at most, and 7
    ]
    weights = [stored("w", np.ones((1, 7), np.int64))]
    graph = read(tmp_path, _model_of(nodes, {"x": (F, [5, 6])}, ["y"], weights)).graph
    with pytest.raises(ModelError, match="--shape y="):
        Index.of(graph)
    given = read(
        tmp_path, _model_of(nodes, {"x": (F, [5, 6])}, ["y"], weights), shapes=("n=2x7",)
    ).graph
    assert given["y"].shape == (2, 7)
    assert not given.doubts


def test_what_is_found_in_stored_values_is_known(tmp_path: Path) -> None:
    weights = [stored("w", np.array([0, 3, 0, 4]))]
    graph = read(tmp_path, _model_of([_on("w", "NonZero")], {"x": (F, [1])}, ["y"], weights)).graph
    assert graph["y"].shape == (1, 2)
    assert not graph.doubts


def test_a_transform_has_one_side_where_nothing_is_said(tmp_path: Path) -> None:
    nodes = [helper.make_node("STFT", ["x", "step", "", "length"], ["y"])]
    weights = [stored("step", np.array(8)), stored("length", np.array(16))]
    graph = read(tmp_path, _model_of(nodes, {"x": (F, [1, 128, 1])}, ["y"], weights)).graph
    assert graph["y"].shape == (1, 15, 9, 2)  # what ONNX Runtime makes; onnx's own rule says 16


def test_a_branch_that_is_known_to_run_may_make_a_sequence(tmp_path: Path) -> None:
    made = helper.make_graph(
        [helper.make_node("SequenceConstruct", ["x"], ["s"])],
        "then",
        [],
        [helper.make_tensor_sequence_value_info("s", F, None)],
    )
    nodes = [
        helper.make_node("If", ["c"], ["z"], then_branch=made, else_branch=made),
        helper.make_node("SequenceLength", ["z"], ["y"]),
    ]
    weights = [stored("c", np.array(True))]
    model = _model_of(nodes, {"x": (F, [4])}, ["y"], weights)
    model.opset_import[0].version = 13  # Identity takes no sequence yet
    graph = read(tmp_path, model).graph
    assert [op.kind for op in graph.ops] == ["sequence_construct", "identity", "sequence_length"]
    assert graph["y"].shape == ()
