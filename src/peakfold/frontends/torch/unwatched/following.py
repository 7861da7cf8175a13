"""A fake mode that follows values: what small tensors hold decides sizes and branches.

Each operator runs on fake tensors as ever, and beside it on the values of its operands where all
are known. Who asks for a value that is known gets it; a size that values decide is a number.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import torch
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import (
    _DISPATCH_HANDLE_DIRECTLY,
    _DISPATCH_META_HANDLERS,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
)
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils.weak import WeakIdKeyDictionary

from peakfold.frontends.torch.dispatch_modes import mapped, tensors_in
from peakfold.frontends.torch.failure import line_now
from peakfold.frontends.torch.unwatched.guesses import guessable, guessed
from peakfold.frontends.torch.unwatched.known_values import (
    INTEGERS,
    PLAIN,
    Values,
    few,
    key_of,
    plainly,
)
from peakfold.frontends.torch.unwatched.layouts import laid_out
from peakfold.frontends.torch.unwatched.sizes import BY_SHAPES, positions, sized

_aten = torch.ops.aten
_CPU = torch.device("cpu")
_LIFT = _aten.lift_fresh.default
_LIKE = frozenset(
    {"zeros_like", "ones_like", "full_like", "empty_like", "rand_like", "randn_like",
     "randint_like", "new_zeros", "new_ones", "new_full", "new_empty", "new_empty_strided"}
)  # fmt: skip
"""Operators that read no value of their operand."""
_OVER = frozenset({"zero_", "fill_", "copy_"})
"""Operators that read no value of what they write."""
_READLESS = _LIKE | _OVER
_OWN = "sizes and branches follow the example's own values"
_DRAWN = "random numbers that decide sizes or branches are those of one draw"


@dataclass(frozen=True, slots=True)
class _Facts:
    """What the schema of an operator says.

    Attributes:
        name: without namespace and overload.
        pure: its results follow from its operands: one of torch's own.
        writes: arguments that it writes, by place and name.
        asks: it gives a Python number for a tensor's values.
        sizes: values decide the shapes of its results.
        moves: it changes where a tensor lies, and not what it holds.
        random: it draws.
        moot: nothing can be told of its results if no operand is known.
        direct: torch answers it before it looks at anything.
    """

    name: str
    pure: bool
    writes: tuple[tuple[int, str], ...]
    asks: bool
    sizes: bool
    moves: bool
    random: bool
    moot: bool
    direct: bool


@functools.cache
def _facts(func: OpOverload) -> _Facts:
    given, tags = func._schema.arguments, func.tags
    writes = tuple(
        (len(given) if argument.kwarg_only else at, argument.name)
        for at, argument in enumerate(given)
        if argument.alias_info is not None and argument.alias_info.is_write
    )
    name = func._schema.name.partition("::")[2]
    return _Facts(
        name,
        func.namespace in ("aten", "prims"),
        writes,
        torch.Tag.data_dependent_output in tags,
        torch.Tag.dynamic_output_shape in tags,
        torch.Tag.inplace_view in tags,
        torch.Tag.nondeterministic_seeded in tags,
        name not in _READLESS and not guessable(func) and func not in BY_SHAPES,
        func in _DISPATCH_META_HANDLERS or func in _DISPATCH_HANDLE_DIRECTLY,
    )


@dataclass(slots=True)
class _Call:
    """One operator with its operands, and what is known of them.

    Attributes:
        whole: the values of all operands are known, or not read.
        why: an assumption that they rest on.
    """

    values: Values
    func: OpOverload
    facts: _Facts
    args: Any
    kwargs: Any
    given: list[torch.Tensor]
    whole: bool
    why: str = ""

    def __post_init__(self) -> None:
        if not self.whole and self.facts.name in _READLESS:
            self._stand_in()
        if self.whole:
            why = [self.values.why.get(key_of(t) or 0, "") for t in self.given]
            self.why = next(filter(None, why), _DRAWN if self.facts.random else "")
            self.whole = self.facts.pure and all(_few_enough(t) for t in self.given)

    def _stand_in(self) -> None:
        """Values for an operand that is not read: any will do."""
        first, rest = self.given[0], self.given[1:]
        if all(key_of(t) in self.values for t in rest):
            self.whole = self.facts.name in _LIKE or self.values.room(first)

    def real(self) -> Any:
        """Run it on the values."""
        with plainly():
            return self.func(*mapped(self.args, self._valued), **mapped(self.kwargs, self._valued))

    def _valued(self, leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        real = self.values.of(leaf)
        if real is not None:
            return real
        if self.facts.name in _LIKE:
            return torch.empty_strided(tuple(leaf.shape), leaf.stride(), dtype=leaf.dtype)
        raise _Unknown

    def learn(self, out: Any) -> None:
        """Note what the results hold, or that what was written is unknown now."""
        made = tensors_in(out)
        written = self._written() if self.facts.writes and not self.facts.moves else []
        held = {key_of(t) for t in self.given}
        new = [t for t in made if key_of(t) is not None and key_of(t) not in held]
        if not self.given:
            for tensor in new:
                # What torch itself keeps of a number would be a second truth.
                tensor.constant = None  # type: ignore[attr-defined]
        small = all(few(t) and t.device == _CPU for t in made)
        moot = self.facts.moves or not (new or written)
        if self.whole and small and not moot and self._computed(made, new):
            for tensor in written:
                self.values.wrote(tensor, self.why)
            return
        for tensor in written:
            self.values.forget(tensor)
        if new and not self.whole and small and guessable(self.func):
            self._guess(made)

    def _computed(self, made: list[torch.Tensor], new: list[torch.Tensor]) -> bool:
        """Whether the real run gave results like the fake ones, which are known now."""
        try:
            real = tensors_in(self.real())
        except Exception:  # the kernel refuses these values, or has none for the type
            return False
        if [(t.shape, t.dtype) for t in real] != [(t.shape, t.dtype) for t in made]:
            return False
        shared = {self.values.twin(t) for t in self.given}
        for fake, true in zip(made, real, strict=True):
            if any(fake is tensor for tensor in new):
                own = true.untyped_storage()._cdata
                self.values.learn(fake, true, self.why, copied=own in shared)
                shared.add(own)
        return True

    def _guess(self, made: list[torch.Tensor]) -> None:
        with plainly():
            found = guessed(self.func, self.args, self.kwargs, made)
        if found is not None:
            at, real, why = found
            self.values.learn(made[at], real, why)

    def _written(self) -> list[torch.Tensor]:
        found: list[torch.Tensor] = []
        for at, name in self.facts.writes:
            found += tensors_in(self.args[at] if at < len(self.args) else self.kwargs.get(name))
        return found


def _open(args: Any) -> bool:
    """Whether a number among the arguments is one that torch does not know."""
    if isinstance(args, list | tuple):
        return any(_open(one) for one in args)
    return isinstance(args, torch.SymInt | torch.SymFloat | torch.SymBool)


def _may_be_a_size(dtype: torch.dtype) -> bool:
    return not dtype.is_floating_point and not dtype.is_complex and dtype is not torch.bool


class _Unknown(Exception):
    """A value that is needed is not known."""


def _few_enough(tensor: torch.Tensor) -> bool:
    count = tensor.numel()
    return type(count) is int and count <= INTEGERS


class FollowingMode(FakeTensorMode):  # type: ignore[no-untyped-call]
    """A fake mode that keeps the values of small tensors where they follow from known ones.

    Args:
        numbers: every size has to be a number: one that unknown values decide is refused.

    Attributes:
        values: what is known.
    """

    def __init__(self, *, numbers: bool = True) -> None:
        super().__init__(shape_env=ShapeEnv(), allow_non_fake_inputs=True)
        self.values = Values()
        self._numbers = numbers
        self._inside = False
        self._said: dict[str, str] = {}
        self._outside = WeakIdKeyDictionary()

    def notes(self) -> tuple[str, ...]:
        """What was assumed, and whether values of the example decide sizes, a line each."""
        return tuple(f"{what}: first at {where}" for what, where in self._said.items())

    def __deepcopy__(self, memo: dict[int, Any]) -> FollowingMode:
        return self  # whoever copies a tensor copies what it holds, and not the mode

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run one operator on fake tensors, and on their values where they are known."""
        if self._inside or not isinstance(func, OpOverload):
            return super().__torch_dispatch__(func, types, args, kwargs or {})
        self._inside = True
        try:
            return self._followed(func, types, args, kwargs or {})
        finally:
            self._inside = False

    def _followed(self, func: OpOverload, types: Any, args: Any, kwargs: Any) -> Any:
        given = tensors_in((args, kwargs))
        if any(type(t) in PLAIN for t in given):
            if func.is_view and len(given) == 1 and func is not _LIFT:
                with plainly():  # it stays what it was: a fake one beside it would count, too
                    return func(*args, **kwargs)
            if func is _LIFT and isinstance(
                fake := self._taken_in(args[0], lifted=True), FakeTensor
            ):
                return fake
            args, kwargs = mapped(args, self._taken_in), mapped(kwargs, self._taken_in)
            given = tensors_in((args, kwargs))
        facts, values = _facts(func), self.values
        known = values.known(given)
        if given and facts.moot and True not in known:
            return self._fake(func, types, args, kwargs)
        call = _Call(values, func, facts, args, kwargs, given, all(known) and not _open(args))
        masks = func is _aten.index.Tensor
        if (facts.asks or facts.sizes) and call.whole and given and not masks:
            self._say(call)
            made = call.real()
            return made if facts.asks else self._as_fake(made, known=call.why)
        ruled = not kwargs and (any(known) or func in BY_SHAPES)
        shapes = sized(func, args, values.of) if ruled else None
        if shapes is not None:
            if func not in BY_SHAPES:
                self._say(call)
            return self._as_fake(shapes, known=None)
        at = positions(args, values.of) if masks and any(known) else None
        if at is not None:
            self._say(call)
            args = mapped(at, self._taken_in)
        out = self._fake(func, types, args, kwargs)
        call.learn(out)
        return out

    def _fake(self, func: OpOverload, types: Any, args: Any, kwargs: Any) -> Any:
        if self.cache_enabled and not _facts(func).direct:
            out = self._cached_dispatch_impl(func, types, args, kwargs)  # `dispatch` also logs
        else:
            out = super().dispatch(func, types, args, kwargs)
        out = laid_out(func, args, out)
        made = (out,) if type(out) is FakeTensor else tensors_in(out)
        if self._numbers and any(t._has_symbolic_sizes_strides for t in made):
            raise DynamicOutputShapeException(func)
        return out

    def _taken_in(self, leaf: Any, *, lifted: bool = False) -> Any:
        """A real tensor that the step meets, as a fake one; what it holds now is known.

        Args:
            leaf: an argument of an operator.
            lifted: the step itself made it, of numbers or over an array whose memory it shares.
        """
        if type(leaf) not in PLAIN or leaf.device != _CPU or leaf.layout is not torch.strided:
            return leaf
        store = leaf.untyped_storage()
        with plainly():
            held = self._outside.get(store)  # type: ignore[no-untyped-call]
            if held is None:
                held = torch.empty(store.nbytes(), dtype=torch.uint8, device="meta")
                held = held.untyped_storage()
            if not lifted:  # it comes again, and has to be the same one then
                self._outside[store] = held
            bare = torch.empty(0, dtype=leaf.dtype, device="meta")
            bare.set_(held, leaf.storage_offset(), leaf.shape, leaf.stride())
        fake = FakeTensor(self, bare, _CPU)
        if key_of(fake) not in self.values.written:  # who holds it outside may have changed it
            self.values.take(fake, leaf, again=True, shared=lifted)
        return fake

    def _as_fake(self, made: Any, *, known: str | None) -> Any:
        """Results of a real run, or likenesses of them on `meta`, as fake tensors.

        Args:
            made: the results; a real one among likenesses stays as it is.
            known: what their values rest on; `None` if they have none.
        """
        if isinstance(made, tuple | list):
            return tuple(self._as_fake(one, known=known) for one in made)
        if not isinstance(made, torch.Tensor) or (known is None and made.device == _CPU):
            return made
        with plainly():
            bare = torch.empty_strided(made.shape, made.stride(), dtype=made.dtype, device="meta")
        fake = FakeTensor(self, bare, _CPU)
        nbytes = made.untyped_storage().nbytes()
        if nbytes > fake.untyped_storage().nbytes():  # a kernel kept the block that it began with
            fake.untyped_storage().resize_(nbytes)
        if known is not None:
            self.values.learn(fake, made, known)
        return fake

    def _say(self, call: _Call) -> None:
        """Note why a value that somebody asked for is what it is."""
        why = [call.why] if call.why else []
        if not call.facts.asks or _may_be_a_size(call.given[0].dtype):
            why.append(_OWN)
        for what in why:
            if what not in self._said:
                self._said[what] = line_now()
