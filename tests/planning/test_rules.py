"""The rules of reuse, one by one, each with the trap it closes (design, section 5)."""

from __future__ import annotations

import pytest

from peakfold.errors import ModelError, UsageError
from peakfold.ir import Graph, effect_edges, parse_graph
from peakfold.judges.plan import verify_plan
from peakfold.planning import PlanOptions, PlanResult, make_plan

from .test_properties import runs_right


def graph(body: str) -> Graph:
    return parse_graph("peakfold-graph 1\n" + body)


def plan(g: Graph, **options: object) -> PlanResult:
    defaults: dict[str, object] = {"align": 1}
    result = make_plan(g, PlanOptions(**(defaults | options)))
    failed = [check for check in verify_plan(g, result.plan) if not check.ok]
    assert not failed
    return result


def aliases(result: PlanResult, how: str) -> dict[str, str]:
    return {a.output: a.input for a in result.plan.aliases if a.how == how}


@pytest.mark.req("R22", "R46")
def test_in_place_needs_equal_shape_and_width() -> None:
    g = graph("""input x: float32[8]
        a: float32[8] = neg(x)
        b: int32[8] = cast(a, to=6)
        c: int16[8] = cast(b, to=5)
        d: int16[2,4] = reshape(c, shape=[2, 4])
        e: int16[2,4] = neg(d)
        output e""")
    assert aliases(plan(g, mode="inplace"), "inplace") == {"b": "a", "e": "d"}


def test_a_broadcast_operand_is_not_written_over() -> None:
    g = graph("""input x: uint8[4,8]
        input y: uint8[1,8]
        a: uint8[4,8] = neg(x)
        b: uint8[1,8] = neg(y)
        c: uint8[4,8] = add(b, a)
        output c""")
    assert aliases(plan(g), "inplace") == {"c": "a"}


@pytest.mark.req("R23")
def test_x_minus_its_own_first_row_is_not_in_place() -> None:
    g = graph("""input i: uint8[4,8]
        x: uint8[4,8] = relu(i)
        row: uint8[1,8] = slice(x, starts=[0], ends=[1], axes=[0])
        y: uint8[4,8] = add(x, row)
        output y""")
    result = plan(g, mode="inplace")
    assert aliases(result, "view") == {"row": "x"}
    assert "y" not in aliases(result, "inplace")
    assert runs_right(g, result.plan)
    # In an arena the row may be copied first; then, and only then, `y` may take the place of `x`.
    arena = plan(g)
    assert ("y" in aliases(arena, "inplace")) == (aliases(arena, "view") == {})
    assert runs_right(g, arena.plan)


@pytest.mark.req("R23")
def test_x_plus_its_transpose_is_not_in_place_over_shared_bytes() -> None:
    # As strided runtimes see it: the transpose is stated to be a view of the same bytes.
    g = graph("""input i: uint8[4,2]
        x: uint8[4,2] = relu(i)
        t: uint8[2,4] = transpose(x, perm=[1, 0]) views=["0<0+0"]
        y: uint8[4,2] = opaque(x, t) inplace=[0, 1]
        output y""")
    assert "y" not in aliases(plan(g), "inplace")


def test_the_same_tensor_twice_may_be_overwritten_only_if_both_reads_are_element_wise() -> None:
    square = graph("""input i: uint8[8]
        x: uint8[8] = relu(i)
        y: uint8[8] = mul(x, x)
        output y""")
    assert aliases(plan(square), "inplace") == {"y": "x"}
    mixed = graph("""input i: uint8[8]
        x: uint8[8] = relu(i)
        y: uint8[8] = opaque(x, x) inplace=[0]
        output y""")
    assert aliases(plan(mixed), "inplace") == {}


@pytest.mark.req("R10", "R47")
def test_inputs_and_outputs_are_never_overwritten() -> None:
    g = graph("""input x: uint8[8]
        a: uint8[8] = relu(x)
        b: uint8[8] = relu(a)
        output a, b""")
    result = plan(g)
    assert aliases(result, "inplace") == {}
    assert result.summary.arena_bytes == 16
    assert plan(g, inputs="reusable", outputs="external").summary.arena_bytes == 8


@pytest.mark.req("R47")
def test_input_policies() -> None:
    g = graph("""input x: uint8[8]
        a: uint8[8] = relu(x)
        b: uint8[8] = opaque(a)
        output b""")
    totals = {
        policy: plan(g, inputs=policy).summary.arena_bytes
        for policy in ("external", "pinned", "reusable")
    }
    assert totals == {"external": 16, "pinned": 24, "reusable": 16}
    assert plan(g, inputs="reusable").summary.input_bytes == 8


def test_a_view_that_is_still_to_be_read_keeps_its_bytes() -> None:
    g = graph("""input i: uint8[8]
        x: uint8[8] = opaque(i)
        v: uint8[2,4] = reshape(x, shape=[2, 4])
        y: uint8[8] = relu(x)
        z: uint8[2,4] = relu(v)
        w: uint8[8] = opaque(y, z)
        output w""")
    result = plan(g)
    assert "y" not in aliases(result, "inplace")
    assert runs_right(g, result.plan)


def test_a_small_slice_does_not_keep_its_base_alive() -> None:
    # A base of 8 MiB, a slice of 1 KiB that is read 100 ops later, 4 MiB values in between.
    between = [f"c{n}: uint8[4096,1024] = opaque(c{n - 1})" for n in range(1, 100)]
    g = graph(
        """input i: uint8[64]
        base: uint8[8192,1024] = opaque(i)
        part: uint8[1,1024] = slice(base, starts=[5], ends=[6], axes=[0])
        c0: uint8[4096,1024] = opaque(i)
        """
        + "\n".join(between)
        + """
        last: uint8[1,1024] = opaque(c99, part)
        output last"""
    )
    result = plan(g, align=64)
    assert aliases(plan(g, align=64, mode="inplace"), "view") == {"part": "base"}
    mib = 2**20
    assert 8 * mib <= result.summary.arena_bytes <= 8 * mib + 2**16
    # Whole objects cannot keep a part of one alive: there, the slice is copied instead.
    assert result.summary.both_bytes <= 12 * mib + 2**16
    # Chosen together, the slice is copied: 8 MiB and the copy, which no plan can go below.
    best = plan(g, align=64, order="best")
    assert aliases(best, "view") == {}
    assert best.summary.arena_bytes == best.summary.any_order_bound_bytes == 8 * mib + 1024


@pytest.mark.req("R10")
def test_an_output_that_would_alias_someone_elses_bytes_is_a_counted_copy() -> None:
    of_input = graph("""input x: uint8[8]
        y: uint8[2,4] = reshape(x, shape=[2, 4])
        output y""")
    result = plan(of_input)
    assert (result.plan.copies, result.summary.arena_bytes) == (["y"], 8)
    of_output = graph("""input x: uint8[8]
        a: uint8[8] = relu(x)
        b: uint8[2,4] = reshape(a, shape=[2, 4])
        output a, b""")
    result = plan(of_output)
    assert (result.plan.copies, result.summary.arena_bytes) == (["b"], 16)
    itself = graph("input x: uint8[8]\ninput y: uint8[8]\nz: uint8[8] = add(x, y)\noutput x, z")
    result = plan(itself)
    assert (result.plan.copies, result.summary.arena_bytes) == (["x"], 16)
    assert runs_right(itself, result.plan)


@pytest.mark.req("R48")
def test_results_nobody_reads_die_at_once() -> None:
    g = graph("""input x: uint8[8]
        a: uint8[8], dead: uint8[8] = opaque(x)
        b: uint8[16] = opaque(a)
        output b""")
    result = plan(g)
    lives = {b.tensors[0].tensor: (b.live[0].start, b.live[0].stop) for b in result.plan.buffers}
    assert lives == {"a": (0, 2), "dead": (0, 1), "b": (1, 2)}


@pytest.mark.req("R13")
def test_each_result_has_a_lifetime_of_its_own() -> None:
    g = graph("""input x: uint8[8]
        a: uint8[8], b: uint8[8] = opaque(x)
        c: uint8[8] = opaque(a)
        d: uint8[8] = opaque(b, c)
        output d""")
    lives = {b.tensors[0].tensor: (b.live[0].start, b.live[0].stop) for b in plan(g).plan.buffers}
    assert lives == {"a": (0, 2), "b": (0, 3), "c": (1, 3), "d": (2, 3)}


@pytest.mark.req("R8", "R11", "R12")
def test_effects_on_state_keep_their_order_and_state_is_static() -> None:
    g = graph("""input x: float32[2]
        parameter w: float32[2]
        state v: float32[2]
        optimizer_state m: float32[2]
        a: float32[2] = opaque(x, w) reads=[v]
        b: float32[2] = opaque(a) writes=[v]
        c: float32[2] = opaque(b) reads=[v]
        output c""")
    result = plan(g)
    assert result.summary.static_bytes == 24
    placed = {p.tensor for b in result.plan.buffers for p in b.tensors}
    assert placed == {"a", "b", "c"}


CONCAT = """input i: uint8[64]
    a: uint8[1,64] = opaque(i)
    b: uint8[1,64] = opaque(i)
    c: uint8[2,64] = concat(a, b, axis=0)
    d: uint8[8] = opaque(c)
    output d"""


def test_a_concatenation_takes_its_parts_in_where_the_peak_falls() -> None:
    g = graph(CONCAT)
    result = plan(g)
    assert result.summary.zero_copy_concats == 1
    assert (result.summary.arena_bytes, result.summary.arena_copying_bytes) == (128 + 8, 256)
    assert aliases(result, "concat") == {"c": "b"}  # both parts; the dict keeps the last
    assert runs_right(g, result.plan)
    off = plan(g, zero_copy=False)
    assert (off.summary.zero_copy_concats, off.summary.arena_bytes) == (0, 256)
    assert plan(g, target="mxnet").summary.zero_copy_concats == 0


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (("concat(a, b, axis=0)", "concat(a, a, axis=0)"), "a repeated part has one home only"),
        (("concat(a, b, axis=0)", "concat(a, x, axis=0)"), "a part of the caller stays there"),
        (("output d", "output d, a"), "a pinned part stays where it is"),
    ],
)
def test_a_concatenation_copies_when_a_part_has_another_home(
    change: tuple[str, str], why: str
) -> None:
    text = "input x: uint8[1,64]\n" + CONCAT.replace(*change)
    g = graph(text)
    result = plan(g)
    assert result.summary.zero_copy_concats == 0, why


def test_strided_parts_are_no_byte_ranges_and_are_copied() -> None:
    text = CONCAT.replace("uint8[1,64]", "uint8[2,32]").replace("axis=0", "axis=1")
    assert plan(graph(text)).summary.zero_copy_concats == 0


def test_parts_at_illegal_addresses_are_copied() -> None:
    g = graph(CONCAT.replace("64]", "40]"))
    assert plan(g, align=64).summary.zero_copy_concats == 0
    assert plan(g, align=8).summary.zero_copy_concats == 1


@pytest.mark.req("R14")
def test_workspace_lives_during_its_op_only_and_unknown_scratch_is_said() -> None:
    g = graph("""input x: uint8[8]
        a: uint8[8] = opaque(x) workspace=100
        b: uint8[8] = opaque(a) workspace=30
        output b""")
    result = plan(g)
    assert result.summary.arena_bytes == 108
    assert result.summary.workspace_known
    unknown = graph(
        "input x: float32[1,1,4,4]\nparameter w: float32[1,1,1,1]\n"
        "y: float32[1,1,4,4] = conv(x, w)\noutput y"
    )
    assert not plan(unknown).summary.workspace_known


def test_sub_byte_and_zero_size_tensors() -> None:
    g = graph("""input x: int4[5]
        a: int4[5] = relu(x)
        empty: float32[0] = opaque(a)
        b: int4[5] = relu(a)
        output b, empty""")
    assert plan(g).summary.arena_bytes == 3


def test_unknown_names_of_options_are_usage_errors() -> None:
    for options in (
        {"mode": "magic"},
        {"strategy": "magic"},
        {"share": "magic"},
        {"inputs": "magic"},
        {"outputs": "magic"},
        {"target": "magic"},
        {"align": 0},
        {"mode": "naive", "strategy": "by-size"},
        {"mode": "both", "strategy": "by-load"},
    ):
        with pytest.raises(UsageError):
            plan(graph("input x: uint8[1]\ny: uint8[1] = relu(x)\noutput y"), **options)


def test_a_broken_graph_is_refused_with_the_op_at_fault() -> None:
    for body, words in (
        ("input x: uint8[1]\na: uint8[1] = relu(b)\nb: uint8[1] = relu(x)\noutput a", "before"),
        ("input x: uint8[1]\na: uint8[1] = relu(y)\noutput a", "does not exist"),
        ("input x: uint8[1]\na: uint8[1] = relu(x)\na: uint8[1] = relu(x)\noutput a", "two"),
        ("input x: uint8[1]\noutput y", "no tensor"),
        ("input x: uint8[-3]\noutput x", "negative"),
        ("input x: uint8[1]\na: uint8[1] = relu(x) writes=[x]\noutput a", "no state"),
    ):
        with pytest.raises(ModelError, match=words):
            make_plan(graph(body))


def test_a_view_of_a_variable_is_a_copy_where_the_variable_is_written() -> None:
    g = graph("""state v: uint8[16]
        input x: uint8[16]
        c: uint8[16] = identity(v) reads=[v]
        a: uint8[16] = opaque(x) writes=[v]
        y: uint8[16] = add(c, a)
        output y""")
    assert "c" not in aliases(plan(g), "view")
    still = graph("""state v: uint8[16]
        input x: uint8[16]
        c: uint8[16] = identity(v)
        y: uint8[16] = add(c, x)
        output y""")
    assert aliases(plan(still), "view") == {"c": "v"}


def test_reading_a_variable_as_an_operand_is_an_effect() -> None:
    g = graph("""state v: uint8[1]
        input x: uint8[1]
        d: uint8[1] = opaque(x) writes=[v]
        b: uint8[1] = opaque(x, v)
        output d, b""")
    assert effect_edges(g) == ((0, 1),)


def test_effects_of_bodies_order_their_op() -> None:
    g = graph("""state r: uint8[1]
        input k: bool[]
        a: uint8[1] = if(k) begin
          region "then" captures=[]
            state r: uint8[1]
            t: uint8[1] = opaque() reads=[r] writes=[r]
            output t
          end
        end
        b: uint8[1] = opaque() reads=[r] writes=[r]
        output a, b""")
    assert effect_edges(g) == ((0, 1),)


def test_bodies_are_ordered_too_and_their_bound_is_their_own() -> None:
    g = graph("""input k: bool[]
        input x: uint8[1]
        y: uint8[10] = if(k) begin
          region "then" captures=[x]
            input x: uint8[1]
            a: uint8[100] = opaque(x)
            b: uint8[100] = opaque(x)
            a1: uint8[10] = opaque(a)
            b1: uint8[10] = opaque(b)
            t: uint8[10] = opaque(a1, b1)
            output t
          end
        end
        output y""")
    file, best = plan(g).summary, plan(g, order="best").summary
    assert (file.arena_bytes, file.order_optimal) == (220, False)
    assert best.arena_bytes == 130


def test_a_slice_does_not_stand_in_the_way_of_a_proof() -> None:
    # Aliased, the slice keeps the relu from running in place; copied, it costs 64 bytes.
    g = graph("""input x: uint8[8]
        h: uint8[1000,4] = opaque(x)
        s: uint8[1,4] = slice(h, starts=[0], ends=[1], axes=[0])
        r: uint8[1000,4] = relu(h)
        t: uint8[1,4] = opaque(r)
        y: uint8[1,4] = opaque(t, s)
        output y""")
    for order in ("file", "best"):
        assert plan(g, order=order).summary.arena_bytes == 4000 + 4 + 4


def test_stated_facts_must_be_possible() -> None:
    for line, words in (
        ('y: uint8[640] = opaque(x) views=["0<0+0"]', "leaves its base"),
        ('y: uint8[4] = opaque(x) views=["0<0+61"]', "leaves its base"),
        ('y: uint8[4] = opaque(x) views=["0<7+0"]', "has not"),
        ("y: uint8[64] = opaque(x) inplace=[3]", "has not"),
        ("y: uint8[64] = opaque(x) workspace=-5", "workspace"),
    ):
        with pytest.raises(ModelError, match=words):
            make_plan(graph(f"input x: uint8[64]\n{line}\noutput y"))
