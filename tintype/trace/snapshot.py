"""The Python state of a model, to be put back after a capture.

A program may assign to attributes while it runs: counters, caches, buffers. In eager mode that is its own
business; a capture runs the program on fakes and must leave the model as it was, also when it fails. Other threads
may use the model meanwhile: what they assign stays, so assignments to modules are watched while a snapshot is open.
"""

from __future__ import annotations

import collections
import contextlib
import itertools
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy as shallow_copy
from functools import partial
from operator import eq, is_, methodcaller, not_
from typing import Any, NamedTuple

import torch

from tintype.errors import TintypeError
from tintype.fake.tensor import FakeTensor
from tintype.symbolic.bridge import from_torch
from tintype.symbolic.evaluation import evaluate
from tintype.symbolic.expression import Expr
from tintype.trace.attributes_elsewhere import SavedClasses, is_plain_tensor, tables_of_tensors
from tintype.trace.hidden_state import Slots, parts_of, place_of_state, slots_of
from tintype.trace.iterators import Progress, is_iterator
from tintype.trace.other_assignments import OPEN, watching
from tintype.trace.places import MemoryPlace, Place, is_written_memory
from tintype.trace.users_code import CONTAINERS, MISSING, home_of
from tintype.trace.users_code import Place as PlaceOfUser
from tintype.tree.subclasses import is_wrapper, plain_parts


class Change(NamedTuple):
    """A value that the program replaced: where it lived, and what was and is there."""

    owner: Any
    name: Any
    before: Any
    after: Any


_LEAF_TYPES = frozenset(
    {
        int, float, bool, str, bytes, complex, type(None), torch.Tensor, torch.nn.Parameter, torch.dtype,
        torch.device, torch.Size, type, types.FunctionType, types.MethodType, types.BuiltinFunctionType,
        types.ModuleType,
    }
)  # fmt: skip

_TABLE_TYPES = frozenset({dict, collections.OrderedDict, list, set})
# functions and methods may hold what they change
_HOLDING_CODE = frozenset({types.FunctionType, types.MethodType})
_KNOWN_TYPES = dict.fromkeys((_LEAF_TYPES - _HOLDING_CODE) | _TABLE_TYPES, False)
_EXACT_TABLES = frozenset({dict, collections.OrderedDict})
_values = methodcaller("values")  # in the order of an OrderedDict


_TABLES = ("_parameters", "_buffers", "_modules")


_MOST_OUTSIDE = 10_000  # a vocabulary is not where tensors are put


def _nothing_stays(change: Change) -> bool:
    return False


class Snapshot:
    """Every container and object reachable from a model, with its contents as they are now; and what is in places
    outside of the model that its functions may change."""

    def __init__(
        self, root: torch.nn.Module, places: Sequence[PlaceOfUser] = (), *, others_tell: bool = False
    ) -> None:
        self._places = places
        self._tables: list[tuple[Any, dict[Any, Any], dict[Any, Any]]] = []  # owner, container, copy
        self._saved: list[tuple[Any, Any, Any]] = []  # the same for what is no plain dictionary
        self._empty: list[Any] = []
        self._empty_tables: set[int] | None = None  # by identity, where somebody asks
        self._memories: list[tuple[Place, Any]] = []  # arrays and the like, with their contents
        self.iterators: list[Progress] = []
        self._seen: set[int] = set()
        self._kinds: set[type] = set()  # of what the model consists of
        self._noted: set[tuple[int, Any]] = set()  # changes outside that others have told of
        self._assigned_elsewhere: set[tuple[int, str]] = set()
        # to change a class that others derive from costs more than a small capture: only where others may assign
        self._watch = watching() if len(sys._current_frames()) > 1 else contextlib.nullcontext()
        self._watch.__enter__()
        OPEN.append(self._assigned_elsewhere)
        if home_of(type(root)).partition(".")[0] == "tintype":  # around a function: what that one has is outside
            self._seen.update(id(value) for value in vars(root).values() if type(value) in _HOLDING_CODE)
        self._save([root])
        self._bare = self._save_attributes_of_tensors()
        self._classes = SavedClasses(self._kinds)
        memories = {id(value): place_of_memory(value) for _, _, value in places if id(value) not in self._seen}
        if others_tell:  # of each call that draws from a generator
            memories = {key: place for key, place in memories.items() if type(place) is MemoryPlace}
        self._outside_memories = [(place, place.read()) for place in memories.values() if place is not None]
        self.iterators += [Progress(value) for _, _, value in places if is_iterator(value)]
        # Numbers and texts that were put there (a note, a count) are put back as well, and noted apart: where they
        # make no difference to later calls, who captures may make those changes again. Other things stay.
        self.outside_changes: list[Change] = []
        # tensors that were put outside of the model, where others than the model will look for them
        self.outside_tensors: list[Change] = []
        # numbers that only the data decide, likewise
        self.outside_numbers: list[Change] = []
        # what else was put there, and stays
        self.outside_others: list[Change] = []
        outside = {id(value): value for _, _, value in places if type(value) in CONTAINERS}
        outside.update((id(value), value) for value in self._classes.containers())
        of_model = {*(outside.keys() & self._seen), *(outside.keys() & set(map(id, self._empty)))} if outside else ()
        self._outside = [
            (value, value.copy())
            for key, value in outside.items()
            if len(value) <= _MOST_OUTSIDE and key not in of_model
        ]

    def _save(self, pending: list[Any]) -> None:
        """Save what is pending and what can be reached from there, all that is as far away at once: models have
        thousands of such things, modules have a dozen empty tables, and many numbers."""
        while pending:
            found = dict(zip(map(id, pending), pending, strict=True))
            new = list(itertools.compress(found.values(), map(not_, map(self._seen.__contains__, found))))
            self._seen.update(found)
            kinds = list(map(type, new))
            are_modules = {kind: issubclass(kind, torch.nn.Module) for kind in set(kinds)}
            modules = list(itertools.compress(new, map(are_modules.__getitem__, kinds)))
            tables = list(itertools.compress(new, map(_EXACT_TABLES.__contains__, kinds)))
            self._kinds.update(itertools.compress(kinds, map(are_modules.__getitem__, kinds)))
            containers = [*map(vars, modules), *tables]
            copies = list(map(dict, containers))
            self._tables += zip([*modules, *tables], containers, copies, strict=True)
            items = list(itertools.chain.from_iterable(map(dict.values, copies)))
            if len(copies) < len(new):
                for value, kind in zip(new, kinds, strict=True):
                    if kind not in _EXACT_TABLES and not are_modules[kind]:
                        items += self._save_one(value)
            kinds = list(map(type, items))
            inner = list(itertools.compress(items, map(_TABLE_TYPES.__contains__, kinds)))
            self._empty.extend(itertools.filterfalse(None, inner))
            pending = list(filter(None, inner))
            pending += itertools.compress(items, map(_KNOWN_TYPES.get, kinds, itertools.repeat(True)))

    def _save_one(self, value: Any) -> Iterable[Any]:
        """Save something that is neither a module nor a plain dictionary; returns what it holds."""
        container, copy = (value, dict(value)) if isinstance(value, dict) else self._copied(value)
        if copy is None:
            return ()
        if container is not None and copy is not value:
            self._saved.append((value, container, copy))
        held = copy.values() if isinstance(copy, dict) else copy
        if container is value and type(value) not in _TABLE_TYPES and _has_attributes(value):
            return (vars(value), *held)  # of a class of the user's
        return held

    def _save_attributes_of_tensors(self) -> list[tuple[torch.Tensor, dict[str, Any]]]:
        """Save what somebody has put on parameters, buffers and tensors in dictionaries; returns those without such
        attributes, with the tables in which they would be."""
        tables = [
            copy
            for owner, held, copy in itertools.chain(self._tables, self._saved)
            if owner is held and type(copy) is dict
        ]
        attributes = tables_of_tensors(tables)
        for tensor, table in attributes:
            if table:
                self._saved.append((tensor, table, table.copy()))
                self._save(list(table.values()))
        return [pair for pair in attributes if not pair[1]]

    def _copied(self, value: Any) -> tuple[Any, Any]:
        """What holds the contents of a value, and a copy of it; None and what it is made of for a value that never
        changes, None and None for one without contents."""
        if isinstance(value, (list, collections.deque)):
            return value, list(value)
        if isinstance(value, tuple):
            return value, value
        if type(value) is set:
            return value, set(value)
        if self._note_memory(value):
            return None, value.ravel().tolist() if getattr(
                getattr(value, "dtype", None), "hasobject", False
            ) else None
        parts = parts_of(value)
        if parts is not None:
            return None, parts
        container = _attributes(value)
        if container is not None:
            self._kinds.add(type(value))
            return container, container.copy()
        if is_iterator(value):
            self.iterators.append(Progress(value))
        return None, None

    def _note_memory(self, value: Any) -> bool:
        """Whether a value is memory, or an object that keeps its state to itself, which is read then."""
        place = place_of_memory(value)
        if place is not None:
            self._memories.append((place, place.read()))
        return place is not None

    def holds(self, value: Any) -> bool:
        """Whether a value is part of the model."""
        if id(value) in self._seen:
            return True
        if self._empty_tables is None:
            self._empty_tables = set(map(id, self._empty))
        return id(value) in self._empty_tables

    def note_outside(self, change: Change, stays: Callable[[Change], bool] | None = None) -> None:
        """A change outside of the model that somebody has seen; it is treated as those that are found here."""
        self._noted.add((id(change.owner), change.name))
        self._outside_change(change, stays or _nothing_stays)

    def restore(self, stays: Callable[[Change], bool] | None = None) -> list[Change]:
        """Put everything back that this thread changed, but for changes that stay; returns what that was."""
        try:
            return self._restore(stays or _nothing_stays)
        finally:  # not before: what others assign meanwhile must be told apart too
            OPEN[:] = [assigned for assigned in OPEN if assigned is not self._assigned_elsewhere]
            self._watch.__exit__(None, None, None)

    def judged(
        self, changes: Sequence[Change], judge: Callable[[Change], TintypeError | None] | None
    ) -> list[TintypeError]:
        """The errors for changes that can't be; what would stay outside of the model is put back then."""
        if judge is None:
            return []
        for change in filter(judge, self.outside_others):
            put_outside(change.owner, change.name, change.before)
        return [error for error in map(judge, [*changes, *self.outside_others]) if error is not None]

    def put_back_iterators(self) -> None:
        """Put iterators back to where they were, as far as that can be done."""
        for known in self.iterators:
            known.put_back()

    def _restore(self, stays: Callable[[Change], bool]) -> list[Change]:
        changes: list[Change] = []
        self._restore_outside(stays)
        for place, content in self._memories:
            change = Change(place.owner, None, content, place.read())
            if change.after != content and not stays(change):
                changes.append(change)
                place.write(content)
        for container in filter(None, self._empty):
            values = dict(container) if isinstance(container, dict) else dict(enumerate(container))
            found = [Change(container, key, MISSING, value) for key, value in values.items()]
            if isinstance(container, dict):
                changes += self._take_back(container, [change for change in found if not stays(change)])
            elif not all(map(stays, found)):
                changes += found
                container.clear()
        for tensor, table in self._bare:
            if table:
                found = [Change(tensor, key, MISSING, value) for key, value in table.items()]
                changes += self._take_back(table, [change for change in found if not stays(change)])
        for owner, container, copy in itertools.chain(self._changed_tables(), self._saved):
            if isinstance(container, (dict, Slots)):
                if (
                    len(container) == len(copy)
                    and all(map(is_, container.values(), copy.values()))
                    and all(map(is_, container, copy))
                ):
                    continue
                pairs = [
                    Change(owner, key, copy.get(key, MISSING), container.get(key, MISSING))
                    for key in [*copy, *(k for k in list(container) if k not in copy)]
                ]
                found = [pair for pair in pairs if pair.before is not pair.after and not stays(pair)]
                changes += self._take_back(container, found, copy) if found else []
                continue
            if isinstance(container, set):
                is_same = container == copy
            else:
                is_same = len(container) == len(copy) and all(map(is_, container, copy))
            if is_same:
                continue
            change = Change(owner, None, copy, type(copy)(container))
            if not stays(change):
                changes.append(change)
                container.clear()
                container.update(copy) if isinstance(container, set) else container.extend(copy)
        return changes

    def _changed_tables(self) -> list[tuple[Any, dict[Any, Any], dict[Any, Any]]]:
        """The dictionaries, none of them where nothing in any has changed, as nearly always: that is found out
        without a step of Python's for each."""
        containers = [container for _, container, _ in self._tables]
        copies = [copy for _, _, copy in self._tables]
        flat = itertools.chain.from_iterable
        is_same = (
            all(map(eq, map(len, containers), map(len, copies)))
            and all(map(is_, flat(map(_values, containers)), flat(map(_values, copies))))
            and all(map(is_, flat(containers), flat(copies)))
        )
        return [] if is_same else self._tables

    def _restore_outside(self, stays: Callable[[Change], bool]) -> None:
        for owner, name, before in self._places:
            after = contents(owner, name)
            if after is not before and (id(owner), name) not in self._noted:
                self._noted.add((id(owner), name))
                self._outside_change(Change(owner, name, before, after), stays)
        for found in list(self._classes.changes()):
            change = Change(*found)
            if (id(change.owner), change.name) not in self._noted:
                self._outside_change(change, stays)
        for container, copy in self._outside:
            if _has_new(container, copy) and (id(container), None) not in self._noted:
                self._outside_change(Change(container, None, copy, container.copy()), stays)
        for place, content in self._outside_memories:
            after = place.read()
            if after != content and (id(place.owner), None) not in self._noted:
                self._outside_change(Change(place.owner, None, content, after), stays)

    def _outside_change(self, change: Change, stays: Callable[[Change], bool]) -> None:
        change = with_plain_sizes(change)
        if holds_fake(getattr(change.after, "state", change.after)):
            self.outside_tensors.append(change)
        elif not stays(change) and any(map(is_of_data, contained(change.after))):
            self.outside_numbers.append(change)
        elif is_of_memory(change) and not stays(change):
            self.outside_changes.append(change)
        elif stays is _nothing_stays or not is_plain(change.after) or not is_plain(change.before) or stays(change):
            self.outside_others.append(change)
            return
        else:
            self.outside_changes.append(change)
        put_outside(change.owner, change.name, change.before)

    def _module_of(self, table: Any) -> int | None:
        """The module whose attributes a table holds, by its id."""
        for owner, attributes, _ in self._tables:
            if isinstance(owner, torch.nn.Module):
                if any(table is part for part in (attributes, *(attributes.get(name) for name in _TABLES))):
                    return id(owner)
        return None

    def _take_back(
        self, container: dict[Any, Any] | Slots, changes: list[Change], copy: dict[Any, Any] | None = None
    ) -> list[Change]:
        """Undo changes of a table, but for those of other threads; entries that stay are not touched."""
        if self._assigned_elsewhere:
            module = self._module_of(container)
            changes = [change for change in changes if (module, change.name) not in self._assigned_elsewhere]
        for change in changes:
            if change.before is MISSING:
                container.pop(change.name, None)
            elif change.after is not MISSING:
                container[change.name] = change.before
        if copy is not None and any(change.after is MISSING for change in changes):  # in its place again
            added = {key: value for key, value in list(container.items()) if key not in copy}
            kept = {key: container.get(key, value) for key, value in copy.items()}
            container.clear()
            container.update({**kept, **added})
        return changes


def place_of_memory(value: Any) -> Place | None:
    """What reads and writes all that is in memory, or the state that an object keeps to itself; else None."""
    if is_written_memory(value):
        return MemoryPlace(value, None, None)
    return place_of_state(value)


def is_of_memory(change: Change) -> bool:
    """Whether memory has changed, or the state that an object keeps to itself."""
    return change.name is None and isinstance(change.before, bytes)


def _has_attributes(value: Any) -> bool:
    """Whether a container may have attributes besides its contents."""
    return isinstance(value, _HOLDERS) and type(getattr(value, "__dict__", None)) is dict


def put_outside(owner: Any, name: str | None, value: Any) -> None:
    """Put a value into a place outside of a model, or values into a container without a name."""
    if name is None and (place := place_of_memory(owner)) is not None:
        place.write(value)
    elif name is None:
        values = dict(value) if isinstance(value, dict) else list(value)
        owner.clear()
        (owner.update if isinstance(owner, (dict, set)) else owner.extend)(values)
    elif isinstance(owner, dict):
        if value is MISSING:
            owner.pop(name, None)
        else:
            owner[name] = value
    elif value is MISSING:
        with contextlib.suppress(AttributeError, ValueError):  # what was not there before may be gone again
            (type.__delattr__ if isinstance(owner, type) else delattr)(owner, name)
    else:  # of a class, whatever its own class does when it is assigned to
        (type.__setattr__ if isinstance(owner, type) else setattr)(owner, name, value)


def make_again(change: Change) -> None:
    """Change a model's attribute or container as a program did that was captured."""
    owner, name, _, after = change
    if name is None and (place := place_of_memory(owner)) is not None:
        place.write(after)
        return
    if isinstance(owner, (list, set, collections.deque)):
        if name is None:
            owner.clear()
        values = after if name is None else [after]
        owner.update(values) if isinstance(owner, set) else owner.extend(values)
        return
    table: Any = owner if isinstance(owner, dict) else vars(owner) if is_plain_tensor(owner) else _attributes(owner)
    if after is MISSING:
        table.pop(name, None)
    else:
        table[name] = after


_PLAIN_TYPES = frozenset(
    {int, float, bool, str, bytes, complex, type(None), torch.dtype, torch.device, type(MISSING)}
)


def is_plain(value: Any) -> bool:
    """Whether a value is a number, a text or the like, or a container of such."""
    return all(type(item) in _PLAIN_TYPES for item in contained(value))


def is_code(value: Any) -> bool:
    """Whether a value is something that a model runs: a hook, a forward of its own, a module."""
    return isinstance(value, (types.FunctionType, types.MethodType, partial, torch.nn.Module))


def holds_fake(value: Any) -> bool:
    """Whether a value is a tensor of a capture, or holds one; a module that the program made does."""
    return any(
        any(type(tensor) is FakeTensor for tensor in itertools.chain(item.parameters(), item.buffers()))
        if isinstance(item, torch.nn.Module)
        else type(item) is FakeTensor
        for item in contained(value)
    )


def is_of_data(value: Any) -> bool:
    """Whether a value is a number that only the data of a call decide."""
    if not isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return False
    number = from_torch(value)
    return isinstance(number, Expr) and number.has_unbacked


def holds_value_of_capture(value: Any) -> bool:
    """Whether a value is or holds what means nothing outside of a capture: a tensor without data, or a number that
    only the data decide."""
    return holds_fake(value) or any(map(is_of_data, contained(value)))


def with_plain_sizes(change: Change) -> Change:
    """A change with sizes that vary as the call of the example leaves them: as plain numbers.

    They are those of another call where the example's would change nothing, since that is chance."""
    if not any(map(_is_size, contained(change.after))):
        return change
    plain = change._replace(after=_plain_sizes(change.after, 0, {}))
    if repr(plain.after) == repr(change.before):
        plain = change._replace(after=_plain_sizes(change.after, 1, {}))
    return plain


def _is_size(value: Any) -> bool:
    """Whether a value is a number that the sizes of a call decide."""
    return isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)) and not is_of_data(value)


def _plain_sizes(value: Any, more: int, made: dict[int, Any]) -> Any:
    """A value, or the contents of containers and objects, for sizes that are larger than the example's by so much."""
    if _is_size(value):
        return _number_for(from_torch(value), more)
    attributes = object_attributes(value)
    if (attributes is None and not isinstance(value, _HOLDERS)) or isinstance(value, torch.Tensor):
        return value
    if isinstance(value, tuple):
        items = [_plain_sizes(item, more, made) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    if id(value) not in made:  # one that holds itself
        made[id(value)] = plain = shallow_copy(value)
        if attributes is not None:
            table = _attributes(plain)
            table.update({name: _plain_sizes(item, more, made) for name, item in attributes.items()})
        if not isinstance(value, _HOLDERS):
            return plain
        plain.clear()
        if isinstance(value, dict):
            plain.update((key, _plain_sizes(item, more, made)) for key, item in value.items())
        else:
            items = [_plain_sizes(item, more, made) for item in value]
            plain.update(items) if isinstance(value, set) else plain.extend(items)
    return made[id(value)]


def _number_for(number: Any, more: int) -> Any:
    if not isinstance(number, Expr):
        return number
    example = {symbol: symbol.hint or 0 for symbol in number.symbols}
    try:
        return evaluate(number, {symbol: hint + more for symbol, hint in example.items()})
    except ZeroDivisionError:  # it has no value there, but it has one in the example
        return evaluate(number, example)


def contained(value: Any) -> Iterator[Any]:
    """A value, or what the containers and the user's objects in it hold; one that holds itself is looked at once."""
    if type(value) in _LEAF_TYPES:
        yield value
        return
    seen: set[int] = set()
    pending = [value]
    while pending:
        value = pending.pop()
        attributes = object_attributes(value)
        if attributes is None and not isinstance(value, _HOLDERS):
            yield value
        elif id(value) not in seen:
            seen.add(id(value))
            pending.extend((attributes or {}).values())
            if isinstance(value, _HOLDERS):
                pending.extend(value.values() if isinstance(value, dict) else value)


def object_attributes(value: Any) -> Any:
    """The attributes of an object of the user's that has some and is no module; else None."""
    if type(value) in _LEAF_TYPES or isinstance(value, torch.nn.Module):
        return None
    if isinstance(value, torch.Tensor) and is_wrapper(type(value)) and value.is_nested:
        return dict(plain_parts(value))
    return _attributes(value) or None


_HOLDERS = (dict, list, tuple, set, collections.deque)


def _has_new(container: Any, copy: Any) -> bool:
    """Whether something was put into a container outside of the model."""
    if isinstance(container, set):
        return container != copy
    one, other = (container.values(), copy.values()) if isinstance(container, dict) else (container, copy)
    return len(container) != len(copy) or not all(map(is_, one, other))


def contents(owner: Any, name: Any) -> Any:
    """What is in a place now."""
    if isinstance(owner, types.CellType):
        try:
            return owner.cell_contents
        except ValueError:
            return MISSING
    table = owner if isinstance(owner, dict) else _attributes(owner)
    return (vars(owner) if table is None else table).get(name, MISSING)


def _attributes(value: Any) -> Any:
    """The attributes of a user's object, or None for things that are not one."""
    if isinstance(value, torch.Tensor):  # one that consists of others has them as attributes
        # what a nested one notes of itself when it is asked is no change
        return value.__dict__ if is_wrapper(type(value)) and not value.is_nested else None
    if isinstance(value, (type, types.FunctionType, types.ModuleType)):
        return None
    if not isinstance(value, torch.nn.Module) and home_of(type(value)).partition(".")[0] in ("torch", "numpy"):
        return None
    attributes = getattr(value, "__dict__", None)
    return attributes if type(attributes) is dict else slots_of(value)
