from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

import peakfold
from peakfold.ir import parse_graph
from peakfold.ops import KINDS
from peakfold.planning import decode_plan, encode_plan
from peakfold.reports.records import DOCUMENTS, documents, to_json
from peakfold.target import TARGETS

from . import graphs

ROOT = Path(__file__).parents[2]


def validate(name: str, text: str) -> dict[str, object]:
    schema = json.loads((ROOT / "docs" / "schema" / f"{name}.json").read_text("utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    document = json.loads(text)
    jsonschema.validate(document, schema)
    return document


def test_the_schemas_in_the_docs_are_those_of_the_types(tmp_path: Path) -> None:
    tool = [sys.executable, str(ROOT / "tools" / "schemas.py"), "--check"]
    done = subprocess.run(tool, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert {p.stem for p in (ROOT / "docs" / "schema").glob("*.json")} == set(DOCUMENTS)


@pytest.mark.parametrize("trace", [False, True])
@pytest.mark.parametrize("text", [graphs.EX4, graphs.CHAIN, graphs.ROLES, graphs.evil()])
def test_plan_documents_follow_their_schema(text: str, trace: bool) -> None:
    report = peakfold.plan(parse_graph(text), trace=trace)
    document = validate("plan-report", report.to_json())
    assert (document["trace"] is not None) == trace
    validate("plan", encode_plan(report.plan).decode())
    assert decode_plan(report.to_json().encode()) == report.plan


CONTRACT_SUMMARY = [
    "naive_bytes",
    "inplace_bytes",
    "share_bytes",
    "both_bytes",
    "arena_bytes",
    "lower_bound_bytes",
    "objects_bound_bytes",
    "gap",
    "optimal",
    "order_optimal",
    "any_order_bound_bytes",
    "workspace_known",
    "order",
    "lanes",
    "static_bytes",
    "input_bytes",
    "output_bytes",
    "peak_op",
]


def test_the_plan_document_has_the_contract_keys() -> None:
    document = json.loads(peakfold.plan(parse_graph(graphs.CHAIN)).to_json())
    assert list(document)[:3] == ["schema", "summary", "plan"]
    assert set(CONTRACT_SUMMARY) <= set(document["summary"])


def test_the_inspect_document_has_the_contract_keys_and_null_for_the_unknown() -> None:
    document = validate(
        "inspect", peakfold.inspect(parse_graph(graphs.ROLES), fold=False).to_json()
    )
    assert document["model"] == {
        "name": "roles",
        "format": "pf",
        "ops": 5,
        "tensors": 10,
        "folded_ops": 0,
    }
    totals = document["totals"]
    assert isinstance(totals, dict)
    contract = {
        "params": 80,
        "param_bytes": 256,
        "macs": None,
        "flops": None,
        "time_s": None,
    }
    assert contract.items() <= totals.items()
    # Results of 64, 64, 32, 2 and 64 elements; the inputs are vectors, so a run is one sample.
    assert (totals["activation_elements"], totals["batch"]) == (226, 1)
    assert {"macs", "read", "written"} <= set(totals["lower_bounds"])
    assert document["static"] == {
        "parameter": 256,
        "constant": 64,
        "state": 32,
        "optimizer_state": 16,
    }
    assert document["dynamic"] == {"activation": 512, "workspace": None, "gradient": 128}
    assert (document["input_bytes"], document["output_bytes"]) == (256, 256)
    ops = document["ops"]
    assert isinstance(ops, list)
    wanted = "name kind scope macs flops params bytes_moved output_bytes intensity time_s bound"
    assert set(wanted.split()) <= set(ops[0])
    assert ops[3]["output_bytes"] is None
    assert document["unsupported"] == [{"kind": "warp", "count": 2}]
    assert document["opaque"] == ["t"]


def test_other_documents_follow_their_schemas() -> None:
    ops = validate("ops", to_json(documents.ops_document()))
    assert [row["kind"] for row in ops["ops"]] == list(KINDS)
    targets = validate("targets", to_json(documents.targets_document()))
    assert [t["name"] for t in targets["targets"]] == list(TARGETS)
    graph = parse_graph(graphs.EX4)
    verdict = validate("verify", peakfold.verify(graph, peakfold.plan(graph)).to_json())
    assert verdict["ok"] is True


def test_nothing_checked_is_not_verified() -> None:
    assert documents.verify_document([]).ok is False


def test_a_schema_refuses_another_version() -> None:
    text = peakfold.inspect(parse_graph(graphs.EX4)).to_json()
    with pytest.raises(jsonschema.ValidationError):
        validate("inspect", text.replace("peakfold.inspect/1", "peakfold.inspect/2"))


def test_a_constant_that_folding_could_keep_is_a_parameter() -> None:
    document = json.loads(peakfold.inspect(parse_graph(graphs.ROLES)).to_json())
    assert document["static"]["constant"] == 0
    assert document["static"]["parameter"] == 320


def test_the_list_of_ops_says_what_the_registry_answers() -> None:
    rows = {row.kind: row for row in documents.ops_document().ops}
    assert (rows["relu"].inplace, rows["relu"].workspace, rows["relu"].macs) == (True, True, True)
    assert (rows["conv"].inplace, rows["conv"].workspace, rows["conv"].macs) == (False, False, True)
    assert (rows["reshape"].views, rows["concat"].parts, rows["loop"].macs) == (True, True, False)
