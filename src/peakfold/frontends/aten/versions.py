"""The values of a torch program: every write to a storage makes new versions of what lies in it.

Torch programs write in place and look at one storage through many tensors; the IR has values.
Who reads another tensor of a written storage reads it after the write: an `after_write` op, free,
where the two are not the same bytes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable
from dataclasses import replace
from typing import Any

from peakfold.errors import ModelError
from peakfold.frontends.aten.values import Place, Ref
from peakfold.ir import Op, Role, Stated, Tensor, ViewFact


class Versions(ABC):
    """Values by the torch tensors they stand for, and the ops that order reads behind writes.

    What a tensor is, a subclass says: torch's own, or the description of one in a file. A file may
    be hostile, so its subclass limits `most_looks`: at writes, and at letters of names.

    Args:
        changeable: roles of static tensors that the program may write in place.
    """

    most_looks: float = float("inf")

    def __init__(self, changeable: frozenset[Role] = frozenset({Role.STATE})) -> None:
        self._looks = 0
        self._changeable = changeable
        self._tensors: dict[str, Tensor] = {}
        self._ops: list[Op] = []
        self._inputs: list[str] = []
        self._captured: list[str] = []
        self._name: dict[Hashable, str] = {}
        self._place: dict[str, Place] = {}
        self._version: dict[str, int] = {}
        self._writers: dict[int, list[str]] = {}
        self._same_storage: dict[int, tuple[int, int]] = {}
        self._state: dict[int, str] = {}
        self._parameters: dict[int, str] = {}
        self._kin: dict[int, list[int]] = {}
        self._declared: dict[Place, str] = {}
        self._refs: list[Ref] = []  # keeps identities alive
        self.notes: dict[str, None] = {}

    @abstractmethod
    def place_of(self, tensor: Any) -> Place:
        """Where a tensor lies."""

    @abstractmethod
    def tensor_of(
        self, name: str, tensor: Any, role: Role = Role.ACTIVATION, *, view: bool = False
    ) -> Tensor:
        """The IR tensor; `view` when it lies in another tensor's bytes."""

    @abstractmethod
    def odd_layout(self, tensor: Any) -> str:
        """What to call the layout of a tensor without strides; empty for one that has them."""

    def declare(self, ref: Ref, name: str, role: Role, trainable: bool | None = None) -> None:
        """Add an input or a static tensor; one that was declared before keeps its first name."""
        self._refs.append(ref)
        if ref.key in self._name:
            return
        place = self._placed(ref.tensor)
        twin = self._declared.get(place) if role is not Role.INPUT else None
        if twin is not None:
            self._name[ref.key] = twin  # tied: the same bytes under two names
            return
        name = self._fresh(name)
        made = self.tensor_of(name, ref.tensor, role)
        self._add_tensor(replace(made, trainable=trainable), place)
        self._name[ref.key] = name
        self._declared[place] = name
        if role is Role.INPUT:
            self._inputs.append(name)
        if role in self._changeable:
            self._state[place.storage] = name
        elif role is Role.PARAMETER:
            self._parameters[place.storage] = name

    def declare_captured(self, ref: Ref, tensor: Tensor) -> None:
        """Add an input of a body that is an outer tensor, under its name and with its role.

        To be called before formals are declared, which get names that are still free.
        """
        self._refs.append(ref)
        self._name[ref.key] = tensor.name
        if tensor.name in self._tensors:
            return
        place = self._placed(ref.tensor)
        self._add_tensor(tensor, place)
        self._captured.append(tensor.name)
        if tensor.role is Role.STATE:
            self._state[place.storage] = tensor.name
        elif tensor.role is Role.PARAMETER:
            self._parameters[place.storage] = tensor.name

    def tensor(self, ref: Ref) -> Tensor:
        """The IR tensor of a value as it is now."""
        return self._tensors[self.read(ref)]

    def alias(self, key: Hashable, ref: Ref) -> None:
        """Let another key stand for a value."""
        self._refs.append(ref)
        if ref.key in self._name:
            self._name[key] = self._name[ref.key]

    def join(self, result: Any, source: Any) -> None:
        """Say that a result lies in the storage of `source`, whatever the capture says."""
        new, old = self.place_of(result), self._placed(source)
        if new.storage != old.storage and new.storage not in self._same_storage:
            self._same_storage[new.storage] = (old.storage, (old.start or 0) - (new.start or 0))

    def name_of(self, key: Hashable) -> str | None:
        """The name of a value as it was last made, or `None` for a stranger."""
        return self._name.get(key)

    def storage_of(self, tensor: Any) -> int:
        """Identity of the storage that a tensor lies in, joined ones taken as one."""
        return self._placed(tensor).storage

    def knows(self, key: Hashable) -> bool:
        """Whether a value of this key exists."""
        return key in self._name

    def _placed(self, tensor: Any) -> Place:
        """Where a tensor lies, joined storages taken as one."""
        place = self.place_of(tensor)
        if layout := self.odd_layout(tensor):
            self.notes[f"tensors of layout {layout} are counted as if they were dense"] = None
        while place.storage in self._same_storage:
            storage, shift = self._same_storage[place.storage]
            place = place.moved(storage, shift)
        return place

    def _fresh(self, name: str) -> str:
        if name not in self._tensors:
            return name
        at = 1
        while f"{name}.{at}" in self._tensors:
            at += 1
        return f"{name}.{at}"

    def _add_tensor(self, tensor: Tensor, place: Place) -> None:
        self._tensors[tensor.name] = tensor
        self._place[tensor.name] = place
        self._version[tensor.name] = len(self._writers.get(place.storage, ()))

    def read(self, ref: Ref) -> str:
        """The name of a value as it is now, writes to its storage included.

        Raises:
            ModelError: it takes more looks at writes than are allowed.
        """
        if ref.key not in self._name:
            self.declare(ref, "untraced", Role.STATE)
            self.notes[f"tensor {self._name[ref.key]!r} comes from no operator of the program"] = (
                None
            )
        name = self._name[ref.key]
        place = self._place[name]
        writers = self._writers.get(place.storage, [])
        self._looks += len(writers) - self._version[name]
        for writer in writers[self._version[name] :]:
            self._look(0)
            written = self._place[writer]
            if written == place:
                name = writer
            elif written.storage != place.storage or written.overlaps(place):
                name = self._after_write(name, writer, ref.tensor)
        self._version[name] = len(writers)
        self._name[ref.key] = name
        return name

    def _wrote(self, storage: int, writer: str) -> None:
        """Note a write of a storage; whatever may lie in the same bytes is read after it."""
        for one in self._kin.get(storage, (storage,)):
            self._writers.setdefault(one, []).append(writer)
            self._look(1)

    def _relate(self, storages: Iterable[int]) -> None:
        """Say that storages may be the same bytes."""
        whole: list[int] = []
        for storage in dict.fromkeys(storages):
            group = self._kin.get(storage, [storage])
            if group is whole:
                continue
            if len(group) > len(whole):
                whole, group = group, whole
            whole += group
            self._kin |= dict.fromkeys((*group, storage), whole)
            self._look(len(group))

    def _look(self, count: int) -> None:
        self._looks += count
        if self._looks > self.most_looks:
            raise ModelError("too many writes of one storage are read through too many views")

    def _after_write(self, name: str, writer: str, tensor: Any) -> str:
        new = self._fresh(f"{name}.after")
        self._looks += len(new)
        place = self._place[name]
        views = (ViewFact(0, 0, 0),) if place.storage in self._state else ()
        stated = Stated(inplace=() if views else (0,), views=views)
        self._ops.append(Op(new, "after_write", (name, writer), (new,), stated=stated))
        self._add_tensor(self.tensor_of(new, tensor, view=True), place)
        return new
