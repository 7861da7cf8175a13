"""The plan: the one artefact. Everything after planning needs only the graph and this.

Written as JSON through msgspec, versioned by `SCHEMA`. Steps count positions in `order`;
lifetimes and byte ranges are half-open; offsets and sizes are bytes.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from peakfold.errors import InvalidPlan
from peakfold.ops.doubts import BELIEVED
from peakfold.printable import escape_json

SCHEMA = "peakfold.plan/1"
Count = Annotated[int, msgspec.Meta(ge=0, lt=2**62)]
"""Bytes, steps and ids: what a machine can address, never negative."""
Seed = Annotated[int, msgspec.Meta(ge=-(2**62), lt=2**62)]
FILE_LIMIT = 1 << 30
"""Bytes of a plan file; a plan of a million buffers has a quarter of it."""
Search = Literal["complete", "time limit"]
"""What ended a search: nothing, or a limit, so that another run may find less."""
Mode = Literal["naive", "inplace", "share", "both", "arena"]
MODES: tuple[Mode, ...] = ("naive", "inplace", "share", "both", "arena")


class _Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Base of all plan records: immutable, and a misspelt key is an error."""


class Place(_Record, frozen=True, kw_only=True):
    """A tensor inside a buffer."""

    tensor: str
    offset: Count
    """Bytes from the buffer's first byte."""
    nbytes: Count


class Live(_Record, frozen=True, kw_only=True):
    """Bytes ``[lower, upper)`` of a buffer that are in use during steps ``[start, stop)``."""

    start: Count
    stop: Count
    lower: Count
    upper: Count


class PlannedBuffer(_Record, frozen=True, kw_only=True):
    """One buffer of the arena."""

    what: Literal["tensor", "workspace", "copy"]
    offset: Count
    size: Count
    live: list[Live]
    tensors: list[Place] = []
    op: Count | None = None
    """The op whose scratch this is, for ``workspace``."""
    object: Count | None = None
    """The shared object, in the modes of that family."""


class ExternalBuffer(_Record, frozen=True, kw_only=True):
    """Memory of the caller or of a parameter, with the tensors that are views into it."""

    tensors: list[Place]


class PlannedAlias(_Record, frozen=True, kw_only=True):
    """`output` lies in the bytes of `input`.

    For ``concat``, `input` lies in `output`; for ``overlap``, the two share some of their bytes.
    """

    op: Count
    output: str
    input: str
    how: Literal["view", "inplace", "overlap", "concat"]


class Bound(_Record, frozen=True, kw_only=True):
    """Proven lower bounds in bytes; `None` = not computed."""

    offsets: Count
    """Of any offsets for these buffers in this order."""
    objects: Count
    """Of any assignment to shared objects."""
    any_order: Count
    """Of any order and any sharing."""


class Proof(_Record, frozen=True, kw_only=True):
    """What is proven minimal."""

    packing: bool
    """No arena for this order and these buffers is smaller."""
    order: bool
    """No order of this graph, however shared, needs less."""


class BodyPlan(_Record, frozen=True, kw_only=True):
    """The plan of one body of a control-flow op; its arena lies in that op's workspace."""

    op: Count
    region: Count
    plan: Plan


class GraphId(_Record, frozen=True, kw_only=True):
    """Which graph a plan is for."""

    name: str
    format: str
    source: str
    """SHA-256 of the text form as loaded."""
    digest: str
    """SHA-256 of the text form after the recipe."""


class BindingsRecord(_Record, frozen=True, kw_only=True):
    """Numbers that were put into the model."""

    dims: dict[str, Count] = {}
    shapes: dict[str, str] = {}


class PoliciesRecord(_Record, frozen=True, kw_only=True):
    """Where inputs and outputs live, and the padding."""

    inputs: Literal["external", "pinned", "reusable"]
    outputs: Literal["pinned", "external"]
    align: Annotated[int, msgspec.Meta(ge=1, lt=2**40)]


class Plan(_Record, frozen=True, kw_only=True):
    """Who lives where, when, and how good that is."""

    schema: str
    version: str
    graph: GraphId
    bindings: BindingsRecord
    recipe: list[str]
    """Graph steps to replay before the plan applies, in order."""
    target: str
    policies: PoliciesRecord
    mode: Mode
    strategy: str
    order: list[Count]
    lanes: Count | Literal["free"]
    """How many ops may run at once; ``free``: any run that the graph allows."""
    arena_bytes: Count
    buffers: list[PlannedBuffer]
    external: list[ExternalBuffer]
    aliases: list[PlannedAlias]
    copies: list[str]
    """Outputs that the runtime must copy, because their bytes belong to someone else."""
    bound: Bound
    proof: Proof
    workspace_known: bool
    unsupported: dict[str, Count]
    opaque: list[str]
    """Tensors whose size no graph states; they are outside the arena."""
    bodies: list[BodyPlan] = []
    profile: dict[str, Count] = {}
    """Measured scratch by op, that this plan was made for; bytes."""
    profile_digest: str | None = None
    """SHA-256 of the profile that `profile` was taken from; `None` without one."""
    seed: Seed = 0
    lane: list[Count] = []
    """Per op, its lane, where `lanes` is a number above 1; a lane runs its ops in `order`."""
    added: list[tuple[Count, Count]] = []
    """Edges ``(before, after)`` that the plan adds to the graph's and that a run must keep."""
    doubts: list[str] = []
    """What of the graph is doubtful; nothing is called proven beside it."""
    search: Search = "complete"
    """Whether a limit ended the search that made the plan; nothing in the plan rests on it."""

    @property
    def doubtful(self) -> bool:
        """Whether shapes or ops of the graph are doubtful, so that nothing of it is proven."""
        return bool(self.doubts) or (self.graph.format not in BELIEVED and bool(self.unsupported))


def encode_plan(plan: Plan) -> bytes:
    """The plan as canonical JSON: the same plan gives the same bytes in every process."""
    return escape_json(msgspec.json.encode(plan)) + b"\n"


def decode_plan(data: bytes, where: str = "plan") -> Plan:
    """Read a plan.

    Raises:
        InvalidPlan: not JSON, another schema version, or a field that is wrong, by path.
    """
    try:
        head = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidPlan(f"not a plan: {error}", where=where) from None
    if isinstance(head, dict) and isinstance(head.get("plan"), dict):
        head = head["plan"]  # the whole output of `plan --json` is welcome, too
    schema = head.get("schema") if isinstance(head, dict) else None
    if schema != SCHEMA:
        raise InvalidPlan(
            f"its schema is {schema!r}, this version reads {SCHEMA!r}",
            where=where,
            hint="plan the model again",
        )
    try:
        return msgspec.convert(head, Plan)
    except (msgspec.ValidationError, RecursionError) as error:
        raise InvalidPlan(f"not a plan: {error}", where=where) from None
