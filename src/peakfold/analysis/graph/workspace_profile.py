"""Profiles: facts about a model's ops that were measured in a runtime, as a file.

``measure --scratch`` writes one, ``plan --profile`` reads it. What was measured goes before what
the target's table or the registry say.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated

import msgspec

from peakfold.analysis.graph.alias_facts import Facts
from peakfold.boundary import foreign
from peakfold.errors import UsageError, shortened
from peakfold.ir import Op

SCHEMA = "peakfold.profile/1"
FILE_LIMIT = 1 << 26
"""Bytes of a profile's file."""
_Bytes = Annotated[int, msgspec.Meta(ge=0, lt=2**62)]


class ProfiledOp(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One op: its name in the graph, what the runtime calls it, its scratch in bytes.

    `scratch_bytes` is `None` where it could not be measured.
    """

    op: str
    operator: str
    scratch_bytes: _Bytes | None


class Profile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What was measured, and in which runtime."""

    schema: str
    target: str
    runtime: str
    model: str
    ops: list[ProfiledOp]

    @property
    def workspace(self) -> dict[str, int]:
        """Bytes of scratch by op, of those that were measured."""
        return {o.op: o.scratch_bytes for o in self.ops if o.scratch_bytes is not None}

    @property
    def digest(self) -> str:
        """SHA-256 of its content, in whatever way its file is laid out."""
        return hashlib.sha256(msgspec.json.encode(self)).hexdigest()


def decode_profile(data: bytes, where: str = "profile") -> Profile:
    """Read a profile.

    Raises:
        UsageError: it is none, or of another version.

    Example:
        >>> decode_profile(b"{}")
        Traceback (most recent call last):
        ...
        peakfold.errors.UsageError: profile: not a profile: Object missing required field `schema`
    """
    with foreign("not a profile", where, error=UsageError):
        profile = msgspec.json.decode(data, type=Profile)
    if profile.schema != SCHEMA:
        raise UsageError(
            f"its schema is {shortened(profile.schema, 80)!r}, this version reads {SCHEMA!r}",
            where=where,
            hint="measure again",
        )
    return profile


def profiled(facts: Facts, op: Op, workspace: Mapping[str, int]) -> Facts:
    """The facts of an op with its measured scratch in place of what tables say.

    Example:
        >>> op = Op("y", "relu", ("x",), ("y",))
        >>> profiled(Facts(workspace=0), op, {"y": 64}).workspace
        64
    """
    if op.name not in workspace or op.regions:
        return facts
    return replace(facts, workspace=workspace[op.name])
