"""The code of guards: what is asked of many objects or layers alike is written once.

The guards between two calls are a block. The layers of a model are asked the same, so most blocks are there once for
each layer, or are divided into pieces that are: such a piece is a function that is written and compiled once.
"""

from __future__ import annotations

import collections
import itertools
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from tintype.compiler.guard_groups import Block, Group, Step, Unit, shape_of
from tintype.compiler.sources import Guard, Source

# what is less than this is written where it is asked: a call takes longer
FEW_STEPS = 4
# what is asked about one object is a function of its own where it would stand in so many places: fewer are faster
MANY_PLACES = 4
# guards repeat themselves where the same is asked so often, at least so far apart
LEAST_LAYERS, LEAST_DISTANCE = 3, 8
Bind = Callable[[Any], str]


class Piece:
    """A part of a block, which needs the variables ``inputs`` and leaves the variables ``outputs`` behind. ``key`` is
    what it does, whatever its variables are called."""

    def __init__(self, block: Block, units: list[Unit]) -> None:
        self.block = block
        self.units = units
        self._numbers: dict[str, int] = {}
        self._targets: dict[str, None] = {}
        self.can_be_shared = True
        key: list[Any] = []
        count = 0
        for unit in units:
            if isinstance(unit, str):
                self.can_be_shared = False
                continue
            steps = unit.steps if isinstance(unit, Group) else (unit,)
            count += len(steps)
            if not _add_keys(key, steps, self._numbers, self._targets):
                self.can_be_shared = False
        self.can_be_shared = self.can_be_shared and count >= FEW_STEPS
        self.key: Any = tuple(key)
        self.inputs = [name for name in self._numbers if name and name not in self._targets]
        self.outputs: list[str] = []

    def hand_on(self, needed: Collection[str]) -> None:
        """Let it leave behind what of these variables it has."""
        self.outputs = [name for name in self._targets if name in needed]
        self.key = (self.key, tuple([self._numbers[name] for name in self.outputs]))


def _add_keys(key: list[Any], steps: Iterable[Step], numbers: dict[str, int], targets: dict[str, None]) -> bool:
    """What steps do, with numbers for variables; gives whether they could do it in a function of their own."""
    is_free = True
    for what, names, target in steps:
        if target:  # a source has one parent
            targets[target] = None
            step = what.path.step  # type: ignore[union-attr]
            key += (step, numbers.setdefault(names[0], len(numbers)), numbers.setdefault(target, len(numbers)))
            if step[0] == "argument" or step[0] == "keyword":
                is_free = False  # they are not handed on
        else:
            key.append(shape_of(what))
            key += [numbers.setdefault(name, len(numbers)) for name in names]
    return is_free


def _key_of_group(group: Group) -> Any:
    key: list[Any] = []
    numbers: dict[str, int] = {}
    _add_keys(key, group.steps, numbers, {})
    return (tuple(key), tuple([numbers[name] for name in group.given_back()]))


def written(blocks: Sequence[Block], functions: dict[Any, str], bind: Bind) -> tuple[str, list[list[str]]]:
    """Functions that several pieces share and that were not there before, and the lines of each block.

    ``functions`` are the names of those that are known, by what they do."""
    pieces = [_pieces(block) for block in blocks]
    keys = {piece: piece.key for some in pieces for piece in some if piece.can_be_shared}
    counts = collections.Counter(keys.values())
    shared: dict[Any, Piece] = {}
    alone: list[Piece] = []
    for some in pieces:
        for piece in some:
            key = keys.get(piece)
            if key is None or (counts[key] == 1 and key not in functions):
                alone.append(piece)
            elif key not in functions:
                shared.setdefault(key, piece)
    text, of_groups = _functions_of_groups([*shared.values(), *alone], functions, bind)
    for key, piece in shared.items():
        name = functions[key] = f"g{len(functions)}"
        text += _function(name, piece.units, piece.inputs, piece.outputs, bind, of_groups)
    lines: list[list[str]] = []
    for some in pieces:
        lines.append([])
        for piece in some:
            found = functions.get(keys.get(piece))
            if found is None:
                code = _Code(piece.units, str, piece.outputs, bind, piece.block.missed, of_groups)
                lines[-1] += code.lines
            else:
                lines[-1].append(_call(found, piece.inputs, piece.outputs))
    return text, lines


def _functions_of_groups(
    pieces: Iterable[Piece], functions: dict[Any, str], bind: Bind
) -> tuple[str, dict[Group, str]]:
    """Functions for what is asked about one object in many places, and which groups call them."""
    found: dict[Any, list[Group]] = {}
    for piece in pieces:
        for group in piece.units:
            if isinstance(group, Group) and len(group.steps) >= FEW_STEPS:
                found.setdefault(_key_of_group(group), []).append(group)
    text, of_groups = "", {}
    for key, groups in found.items():
        if key not in functions and len(groups) >= MANY_PLACES:
            group = groups[0]
            name = functions[key] = f"g{len(functions)}"
            text += _function(name, group.steps, [*group.outside], group.given_back(), bind, {})
        if key in functions:
            of_groups.update(dict.fromkeys(groups, functions[key]))
    return text, of_groups


def _function(
    name: str,
    units: Sequence[Unit],
    inputs: Sequence[str],
    outputs: Sequence[str],
    bind: Bind,
    of_groups: dict[Group, str],
) -> str:
    named = {variable: f"p{number}" for number, variable in enumerate(inputs)}

    def name_of(variable: str) -> str:
        return named.get(variable) or named.setdefault(variable, f"a{len(named)}")

    lines = _Code(units, name_of, outputs, bind, "raise _Missed", of_groups).lines
    if outputs:
        lines.append(f"return {', '.join(map(name_of, outputs))}")
    parameters = ", ".join(map(name_of, inputs))
    return "\n    ".join([f"def {name}({parameters}):", *lines]) + "\n"


def _call(function: str, inputs: Iterable[str], outputs: Iterable[str]) -> str:
    results = ", ".join(outputs)
    call = f"{function}({', '.join(inputs)})"
    return f"{results} = {call}" if results else call


# --- pieces ------------------------------------------------------------------------------------------------------


def _pieces(block: Block) -> list[Piece]:
    found = [Piece(block, units) for units in _divided(block.units)]
    needed = set(block.outputs)
    for piece in reversed(found):
        piece.hand_on(needed)
        needed.update(piece.inputs)
    return found


def _divided(units: list[Unit]) -> list[list[Unit]]:
    """Units in pieces that repeat themselves: they begin where the same is asked again and again, as far apart and
    as often as there is anything of that kind."""
    if len(units) < LEAST_LAYERS * LEAST_DISTANCE:
        return [units]
    places: dict[Any, list[int]] = {}
    for position, unit in enumerate(units):
        if not isinstance(unit, str):
            key = shape_of(unit[0]) if isinstance(unit, tuple) else _key_of_group(unit)
            places.setdefault(key, []).append(position)
    starts: list[int] = []
    best = 0
    for found in places.values():
        if len(found) >= LEAST_LAYERS:
            nearest = min(second - first for first, second in itertools.pairwise(found))
            if nearest >= LEAST_DISTANCE and nearest * (len(found) - 1) > best:
                starts, best = found, nearest * (len(found) - 1)
    if not starts:
        return [units]
    end = min(starts[-1] + starts[-1] - starts[-2], len(units))
    layers = [units[first:second] for first, second in zip(starts, [*starts[1:], end])]
    before, behind = units[: starts[0]], units[end:]
    return [*(_divided(before) if before else []), *layers, *(_divided(behind) if behind else [])]


# --- lines -------------------------------------------------------------------------------------------------------


class _Code:
    """The lines of guards: conditions that stand next to each other are one statement, and what is fetched for one
    condition alone stands in it."""

    def __init__(
        self,
        units: Sequence[Unit],
        name_of: Callable[[str], str],
        kept: Collection[str],
        bind: Bind,
        missed: str,
        of_groups: dict[Group, str],
    ) -> None:
        self.lines: list[str] = []
        self._name_of, self._bind, self._kept, self._missed = name_of, bind, set(kept), missed
        self._conditions: list[str] = []
        self._waiting: dict[str, str] = {}  # what was fetched and not used yet
        self._within: dict[str, str] = {}  # in whose code a variable is assigned
        flat: list[Unit] = []
        for unit in units:
            if isinstance(unit, Group) and unit not in of_groups:
                flat += unit.steps
                self._kept |= unit.outputs
            else:
                flat.append(unit)
        used = [unit[1] if isinstance(unit, tuple) else unit.outside for unit in flat if not isinstance(unit, str)]
        self._uses = collections.Counter(itertools.chain.from_iterable(used))
        for unit in flat:
            if isinstance(unit, tuple):
                self._step(*unit)
            elif isinstance(unit, Group):
                self._end_condition()
                inputs = [self._used(name, 1) for name in unit.outside]
                self.lines.append(_call(of_groups[unit], inputs, map(name_of, unit.given_back())))
            else:
                self._end_all()
                self._conditions.append(unit)
        self._end_all()

    def _step(self, what: Source | Guard, names: Sequence[str], target: str) -> None:
        if isinstance(what, Source):
            (parent,) = names
            was_waiting = parent in self._waiting
            self._waiting[target] = what.code(self._used(parent, 1), self._bind)
            if was_waiting:
                self._within[parent] = target
            return
        marks = [f"\0{number}\0" for number in range(len(names))]  # until it is known what is written there
        text = what.condition(marks or [""], self._bind)
        for mark, name in zip(marks, names):
            count = text.count(mark)
            text = text.replace(mark, self._used(name, count), 1)
            if count > 1:
                text = text.replace(mark, self._name_of(name))
        self._conditions.append(text)

    def _used(self, name: str, count: int) -> str:
        """What to write where a variable is used first."""
        text = self._waiting.pop(name, None)
        if text is None:
            holder = name
            while holder in self._within:
                holder = self._within[holder]
            if holder in self._waiting:  # which would be assigned behind this
                self._end_condition()
                self.lines.append(f"{self._name_of(holder)} = {self._waiting.pop(holder)}")
            return self._name_of(name) if name else ""
        if count == 1 and self._uses[name] == 1 and name not in self._kept:
            return text
        return f"({self._name_of(name)} := {text})"

    def _end_condition(self) -> None:
        if self._conditions:
            self.lines.append(f"if not ({' and '.join(self._conditions)}): {self._missed}")
            self._conditions = []

    def _end_all(self) -> None:
        self._end_condition()
        self.lines += [f"{self._name_of(name)} = {text}" for name, text in self._waiting.items()]
        self._waiting = {}
