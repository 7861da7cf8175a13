from __future__ import annotations

import pytest

from peakfold.analysis import Index, op_facts
from peakfold.analysis.cost.breakdown import Breakdown, break_down
from peakfold.ir import Role, parse_graph
from peakfold.target import load_target

from . import graphs


def account(text: str) -> Breakdown:
    graph = parse_graph(text)
    generic = load_target("generic")
    return break_down(Index.of(graph), [op_facts(graph, op, generic) for op in graph.ops])


@pytest.mark.req("R7", "R8", "R13")
def test_every_role_has_its_account() -> None:
    found = account(graphs.ROLES)
    assert found.static == {
        Role.PARAMETER: 256,
        Role.CONSTANT: 64,
        Role.STATE: 32,
        Role.OPTIMIZER_STATE: 16,
    }
    assert found.activation == 512  # a and b; the output is accounted apart
    assert found.outputs == 256
    assert found.inputs == 256
    assert found.gradient == 128
    assert found.elements == 128
    assert found.opaque == ("t",)


@pytest.mark.req("R15")
def test_shares_of_ops_add_up_to_the_totals() -> None:
    found = account(graphs.ROLES)
    assert sum(op.static_bytes for op in found.ops) == found.static_total == 368
    known = sum(op.output_bytes or 0 for op in found.ops)
    assert known == found.activation + found.gradient + found.outputs
    assert found.dynamic_total == known + 1024


def test_a_tied_parameter_counts_once_at_its_first_reader() -> None:
    found = account(graphs.ROLES)
    assert found.params == 64
    assert [op.params for op in found.ops] == [64, 0, 0, 0, 0]


def test_what_is_not_known_is_none_and_named() -> None:
    found = account(graphs.ROLES)
    assert found.workspace is None
    assert found.workspace_unknown == {"warp": 2}
    assert found.ops[1].workspace == 1024
    assert found.ops[3].output_bytes is None  # a string tensor


def test_known_scratch_is_a_number() -> None:
    assert account(graphs.EX4).workspace == 0


BODY = """\
peakfold-graph 1
input c: bool[1]
input x: float32[4]
parameter w: float32[4]
y: float32[4] = if(c) begin
  region "then" captures=[x, w]
    input x: float32[4]
    input w: parameter float32[4]
    parameter v: float32[8]
    z: float32[4] = opaque(x, w, v)
    output z
  end
  region "else" captures=[x]
    input x: float32[4]
    q: float32[4] = relu(x)
    output q
  end
end
output y
"""


def test_parameters_of_bodies_count_and_captured_ones_do_not_count_twice() -> None:
    found = account(BODY)
    assert found.params == 12
    assert found.ops[0].params == 12
    assert found.static_total == found.ops[0].static_bytes == 48
