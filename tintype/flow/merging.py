"""One value out of two: what a variable is after a branch, given what it is at the end of either arm."""

from __future__ import annotations

import gc
import math
from collections import deque
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

import torch

from tintype.fake.tensor import FakeTensor
from tintype.flow.plain_objects import attributes_of, fill_object, is_plain_object
from tintype.flow.references import has_unknown_holder
from tintype.interpret.frame import Mark
from tintype.ir.printing import describe_value
from tintype.symbolic.bridge import from_torch
from tintype.symbolic.expression import Expr
from tintype.symbolic.interruptions import Word
from tintype.symbolic.location import is_internal
from tintype.trace.reachable import namespace_of
from tintype.trace.users_code import MISSING
from tintype.tree.sparse import SparseParts
from tintype.tree.subclasses import SubclassParts, as_parts, is_whole

SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)
KINDS: dict[type, str] = {
    bool: "bool", int: "int", float: "float", torch.SymBool: "bool", torch.SymInt: "int", torch.SymFloat: "float",
}  # fmt: skip
# Values that are as good as any other that is equal to them.
CONSTANTS = (str, bytes, complex, torch.dtype, torch.device, torch.layout, torch.memory_format, type(...))

# What an arm has where nobody will look.
ABSENT: Any = Mark("absent")

# Makes a value, given the results of the operator.
Builder = Callable[[Sequence[Any]], Any]


class NotMergedError(Word):
    """Two values that have nothing in common; ``first`` and ``second`` in words."""

    def __init__(self, first: Any, second: Any, remedy: str | None = None) -> None:
        super().__init__()
        self.first = in_words(first)
        self.second = in_words(second)
        self.remedy = remedy


# What stands for a tensor that consists of others: its parts, and what makes a tensor of them again.
PARTS = (SubclassParts, SparseParts)


def like(value: Any) -> Any:
    """Something of the same kind: a number, or a function that makes a tensor."""
    if not isinstance(value, torch.Tensor):
        return {"bool": False, "int": 0, "float": 0.0}[KINDS[type(value)]]
    # a size that only a run tells may be known to nobody but the other arm
    sizes = [size if type(size) is int or is_decidable(size) else 0 for size in value.shape]
    dtype, device = value.dtype, value.device
    return lambda: torch.zeros(sizes, dtype=dtype, device=device)


def is_decidable(number: Any) -> bool:
    """Whether a symbolic number has a value in the example, or is known."""
    expression = from_torch(number)
    return not isinstance(expression, Expr) or expression.environment.hint(expression) is not None


def in_words(value: Any) -> str:
    """A value for a message."""
    if value is MISSING:
        return "nothing"
    if isinstance(value, torch.Tensor):
        return describe_value(value) if type(value) is FakeTensor else "a tensor of the model"
    if value is None or isinstance(value, (bool, int, float, str)):
        return repr(value)
    if isinstance(value, (list, tuple, dict, set, deque)):
        return f"a {type(value).__name__} of {len(value)}"
    if isinstance(value, SYMBOLIC):
        return f"{KINDS[type(value)]} {value}"
    if type(value).__module__.startswith("tintype."):  # what stands for Python's own
        return "an iterator" if hasattr(value, "__next__") else "a sequence"
    return f"a {type(value).__name__}"


class Merger:
    """Finds the pairs of tensors and numbers in which two states differ; these are the results of the operator."""

    def __init__(self) -> None:
        self.pairs: list[tuple[Any, Any]] = []
        self._places: dict[tuple[int, int], int] = {}
        # containers that can change, of either arm: with which one of the other they were merged, and into what
        self._partners: tuple[dict[int, int], dict[int, int]] = ({}, {})
        self._made: dict[tuple[int, int], list[Any]] = {}
        self.mutable: list[Any] = []  # they must belong to nobody else
        self._same: list[Any] = []  # those that both arms have
        self.unchanged: list[Any] = []  # what variables hold, in both arms
        self.tuples: list[tuple[Any, Any, Any]] = []  # that were made, of which two

    def merge(self, first: Any, second: Any) -> Builder:
        """How to make the merged value; raises :class:`NotMergedError`."""
        if first is second:
            if type(first) in (list, dict) or is_plain_object(first):
                self._same.append(first)
            return lambda results: first
        if first is ABSENT or second is ABSENT:
            return self._one_sided(first, second)
        if is_whole(first) or is_whole(second):
            return self._whole(first, second)
        if isinstance(first, torch.Tensor) and isinstance(second, torch.Tensor):
            return self.leaf(first, second)
        if type(first) in KINDS and type(second) in KINDS:
            return self._number(first, second)
        if type(first) is not type(second):
            raise NotMergedError(first, second, _remedy(first, second))
        if isinstance(first, CONSTANTS) and first == second:
            return lambda results: first
        if isinstance(first, tuple):
            return self._tuple(first, second)
        if type(first) is slice:
            parts = [self.merge(getattr(first, n), getattr(second, n)) for n in ("start", "stop", "step")]
            return lambda results: slice(*(part(results) for part in parts))
        if type(first) in (list, dict) or (is_plain_object(first) and is_plain_object(second)):
            return self._container(first, second)
        raise NotMergedError(first, second)

    def _whole(self, first: Any, second: Any) -> Builder:
        """A tensor that consists of others, of the same kind in both arms: another one, of parts that are merged."""
        if type(first) is not type(second):
            raise NotMergedError(first, second, "let both be tensors of one class")
        made = self._made.setdefault((id(first), id(second)), [])
        parts = self._parts(as_parts(first), as_parts(second))

        def build(results: Sequence[Any]) -> Any:
            if not made:
                made.append(parts(results).tensor())
            return made[0]

        return build

    def _parts(self, first: Any, second: Any) -> Builder:
        if first.structure != second.structure or list(first.parts) != list(second.parts):
            raise NotMergedError(first, second, "let both be tensors of one class, with the same metadata")
        both = [(name, part, second.parts[name]) for name, part in first.parts.items()]
        merged = {
            name: self._parts(one, other) if isinstance(one, PARTS) else self.merge(one, other)
            for name, one, other in both
        }
        kind, structure = type(first), first.structure
        return lambda results: kind({name: part(results) for name, part in merged.items()}, structure)

    def _one_sided(self, first: Any, second: Any) -> Builder:
        """A value that one arm has and that nobody will look at after the other."""
        value = second if first is ABSENT else first
        if is_whole(value):
            return self._one_sided_whole(as_parts(value), is_second=first is ABSENT)
        if isinstance(value, torch.Tensor) or type(value) in KINDS:
            return self.leaf(first, second)
        if isinstance(value, tuple):
            parts = [self._one_sided(ABSENT, v) if first is ABSENT else self._one_sided(v, ABSENT) for v in value]
            make: Any = getattr(type(value), "_make", type(value))
            return lambda results: make([part(results) for part in parts])
        if type(value) in (list, dict):
            nothing: Any = [ABSENT] * len(value) if type(value) is list else dict.fromkeys(value, ABSENT)
            return self._container(nothing, value) if first is ABSENT else self._container(value, nothing)
        return lambda results: value

    def _one_sided_whole(self, parts: Any, *, is_second: bool) -> Builder:
        def side(part: Any) -> Builder:
            if isinstance(part, PARTS):
                return self._one_sided_whole(part, is_second=is_second)
            return self._one_sided(ABSENT, part) if is_second else self._one_sided(part, ABSENT)

        sides = {name: side(part) for name, part in parts.parts.items()}
        kind, structure = type(parts), parts.structure
        return lambda results: kind({name: part(results) for name, part in sides.items()}, structure).tensor()

    def made(self, first: Any, second: Any) -> Builder:
        """A result that either arm has, or makes when both have run."""
        self.pairs.append((first, second))
        place = len(self.pairs) - 1
        return lambda results: results[place]

    def pairs_to_make(self) -> list[tuple[Any, Any]]:
        """The pairs; for an absent value, a function that makes one like the other."""
        return [
            (like(second) if first is ABSENT else first, like(first) if second is ABSENT else second)
            for first, second in self.pairs
        ]

    def leaf(self, first: Any, second: Any) -> Builder:
        """A tensor or a number of either arm, or an absent one."""
        key = (id(first), id(second))
        if key not in self._places:
            self._places[key] = len(self.pairs)
            self.pairs.append((first, second))
        place = self._places[key]
        return lambda results: results[place]

    def _number(self, first: Any, second: Any) -> Builder:
        if KINDS[type(first)] != KINDS[type(second)]:
            remedy = "let both be of one kind: 1.0 in place of 1, or a tensor"
            raise NotMergedError(first, second, remedy)
        plain = type(first) in (bool, int, float) and type(second) in (bool, int, float)
        if plain and first == second and math.copysign(1, first) == math.copysign(1, second):
            return lambda results: first
        return self.leaf(first, second)

    def _tuple(self, first: Any, second: Any) -> Builder:
        if len(first) != len(second):
            raise NotMergedError(first, second, "let both have equally many elements")
        parts = [self.merge(one, other) for one, other in zip(first, second, strict=True)]
        kind = type(first)
        make: Any = getattr(kind, "_make", kind)

        def build(results: Sequence[Any]) -> Any:
            made = make([part(results) for part in parts])
            self.tuples.append((made, first, second))
            return made

        return build

    def _container(self, first: Any, second: Any) -> Builder:
        """A list or dictionary of its own in either arm: a new one takes the place of both."""
        for partners, one, other in ((self._partners[0], first, second), (self._partners[1], second, first)):
            if partners.setdefault(id(one), id(other)) != id(other):
                raise NotMergedError(first, second, "make a container of its own for every variable in both arms")
        key = (id(first), id(second))
        made = self._made.get(key)
        if made is None:
            made = self._made[key] = []
            self.mutable += (first, second)
            kind = type(first)
            if kind not in (list, dict):
                return self._object(first, second, made)
            fill = self.content(first, second)

            def build(results: Sequence[Any]) -> Any:
                if not made:
                    made.append(kind())
                    made[0].extend(fill(results)) if kind is list else made[0].update(fill(results))
                return made[0]

            return build
        return lambda results: made[0]

    def _object(self, first: Any, second: Any, made: list[Any]) -> Builder:
        """An object of its own in either arm that is nothing but its attributes."""
        one, other = attributes_of(first), attributes_of(second)
        if one.keys() != other.keys():
            raise NotMergedError(first, second, "let both have the same attributes")
        self.mutable += (held for held in (namespace_of(first), namespace_of(second)) if type(held) is dict)
        parts = {name: self.merge(value, other[name]) for name, value in one.items()}
        kind = type(first)

        def build(results: Sequence[Any]) -> Any:
            if not made:
                made.append(object.__new__(kind))
                fill_object(made[0], {name: part(results) for name, part in parts.items()})
            return made[0]

        return build

    def content(self, first: Any, second: Any) -> Builder:
        """What a container holds, as a new one."""
        if isinstance(first, dict):
            if list(first) != list(second):
                remedy = "let both have the same keys in the same order"
                raise NotMergedError(first, second, remedy)
            parts = {key: self.merge(first[key], second[key]) for key in first}
            return lambda results: {key: part(results) for key, part in parts.items()}
        if not isinstance(first, (list, deque)):
            if first == second:
                return lambda results: first
            raise NotMergedError(first, second)
        if len(first) != len(second):
            remedy = "append in both arms, or collect into a tensor"
            raise NotMergedError(first, second, remedy)
        items = [self.merge(one, other) for one, other in zip(first, second, strict=True)]
        return lambda results: [part(results) for part in items]

    def twins(self) -> list[Any]:
        """Containers that a variable holds which both arms have, and the new ones that took their place elsewhere."""
        if not self._made:
            return []
        held = {id(value): value for value in self.unchanged}
        pairs = [(pair, made) for pair, made in self._made.items() if pair[0] in held or pair[1] in held]
        return [value for pair, made in pairs for value in (*(held[i] for i in pair if i in held), *made)]

    def held_elsewhere(self, known: Sequence[Any]) -> Any:
        """A container that somebody else holds too, who would see what the program writes to it later; None if there
        is none. ``known`` are those that may hold them."""
        if not self.mutable:
            return None
        mine = {id(container) for container in self.mutable}
        shared = next((container for container in self._same if id(container) in mine), None)
        if shared is not None:
            return shared
        if not has_unknown_holder(self.mutable, known):
            return None
        allowed = {id(holder) for holder in (*known, *self.mutable, self.mutable)}
        for holder in gc.get_referrers(*self.mutable):
            if id(holder) in allowed or (isinstance(holder, FrameType) and is_internal(holder.f_code.co_filename)):
                continue
            for held in gc.get_referents(holder):
                if id(held) in mine:
                    return held
        return None


def _remedy(first: Any, second: Any) -> str | None:
    if (first is None) != (second is None):
        return "give the variable a value of the same kind in both arms, such as torch.zeros(...) in place of None"
    tensors = isinstance(first, torch.Tensor), isinstance(second, torch.Tensor)
    if any(tensors) and (type(first) in KINDS or type(second) in KINDS):
        return "make a tensor of the number: torch.tensor(number)"
    return None
