"""What a function reads besides its arguments: globals, closures, and attributes of what it finds there.

Graphs are recorded once and run often, so a number that the function took from its surroundings is part of them.
What its code can read is found by following names (:mod:`tintype.aot.walk`), and compared, by identity first, before
graphs are used again.
"""

from __future__ import annotations

import collections
import contextlib
import gc
import itertools
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from tintype.aot.walk import MISSING, Walk, content_of
from tintype.ir.call_values import same_value

_parts_of_function = operator.attrgetter("__code__", "__defaults__", "__kwdefaults__")
_joined = itertools.chain.from_iterable


class Reads:
    """The values that a function could read when it was captured.

    ``names`` are the attributes that its code names, ``functions`` those of the user's that it may call, and
    ``compares_objects`` says whether it may ask which object something is."""

    def __init__(self, function: Any, root: torch.nn.Module | None, objects: Sequence[Any] = ()) -> None:
        walk = Walk(root.modules() if root is not None else ())
        for value in (function, root, *objects):
            walk.visit(value)
        walk.follow()
        self.names = frozenset(walk.names)
        self.functions = walk.functions
        self.compares_objects = walk.compares_objects
        self._parts_of_functions = [*_joined(map(_parts_of_function, walk.functions))]
        # tables: what fetches names from them, and what that gave
        self._takes: list[Any] = []
        self._tables: list[Any] = []
        self._fetched: list[tuple[Any, ...]] = []
        self._absent: list[tuple[Any, str]] = []
        for table, read in walk.read.values():
            names = [name for name, value in read.items() if value is not MISSING]
            self._absent += [(table, name) for name, value in read.items() if value is MISSING]
            if names:
                # one name more, since for a single one it would not be a tuple that is fetched
                self._takes.append(operator.itemgetter(*names, names[0]))
                self._tables.append(table)
                self._fetched.append((*(read[name] for name in names), read[names[0]]))
        self._values = [*_joined(self._fetched)]
        self._cells = walk.cells
        self._empty = walk.empty
        self._contents = walk.contents
        self._plain = [entry for entry in walk.contents if _has_own_size(entry[0].args[0])]
        self._others = [entry for entry in walk.contents if not _has_own_size(entry[0].args[0])]
        self._reads = [read for read, _ in self._plain]
        self._items = [*_joined(items for _, items in self._plain)]
        self._sized = [*walk.sized.values(), *(read.args[0] for read in self._reads)]
        self._sizes = [*map(len, self._sized)]
        self._state = [(table, tuple(table)) for table in walk.tables_of_state]
        self._shared = [places for places in walk.shared_state.values() if len(places) > 1]
        self._slots = walk.slots
        self._probes = walk.probes
        self._caches = walk.caches

    def unchanged(self) -> bool:
        """Whether everything is what it was."""
        try:
            return (
                [*map(len, self._sized)] == self._sizes
                and not any(self._empty)
                and self._same_values()
                and all(map(operator.is_, _joined(map(_parts_of_function, self.functions)), self._parts_of_functions))
                and self._same_state()
                and self._same_objects()
            )
        except KeyError:
            return False

    def _same_values(self) -> bool:
        # all at once by identity, which costs least; values that are equal but not the same are rare
        now = _joined(map(operator.call, self._takes, self._tables))
        if not all(map(operator.is_, now, self._values)):
            for take, table, values in zip(self._takes, self._tables, self._fetched, strict=True):
                if not all(map(same_value, take(table), values)):
                    return False
        for cell, value in self._cells:
            if not same_value(content_of(cell), value):
                return False
        is_same = all(map(operator.is_, _joined(map(operator.call, self._reads)), self._items))
        for read, before in self._others if is_same else self._contents:
            contents = [*read()]
            if len(contents) != len(before) or not all(map(same_value, contents, before)):
                return False
        return not any(name in table for table, name in self._absent)

    def _same_state(self) -> bool:
        """Whether tensors that are looked up at every call have the names that they had, and as many."""
        for table, names in self._state:
            if len(table) != len(names) or not all(map(operator.is_, table, names)):
                return False
        for (first, name), *others in self._shared:
            tensor = first[name]
            if any(table[other] is not tensor for table, other in others):
                return False
        return True

    def _same_objects(self) -> bool:
        if not all(same_value(getattr(owner, name, MISSING), value) for owner, name, value in self._slots):
            return False
        return all(same_value(look(), value) for look, value in self._probes)

    @contextlib.contextmanager
    def caches_kept_clean(self, is_foreign: Callable[[Any], bool]) -> Iterator[None]:
        """Afterwards functions don't remember values that must not stay; what they made is made again then."""
        before = [cache.cache_info().misses for cache in self._caches]
        try:
            yield
        except BaseException:
            self.take_out(is_foreign)
            raise
        finally:
            for cache, misses in zip(self._caches, before, strict=True):
                if cache.cache_info().misses != misses and _remembers(cache, is_foreign):
                    cache.cache_clear()

    def take_out(self, is_foreign: Callable[[Any], bool]) -> list[str]:
        """Put back what was there before values that must not stay; returns the names of those."""
        found = self._take_out_of_containers(is_foreign)
        for take, table, values in zip(self._takes, self._tables, self._fetched, strict=True):
            names = take.__reduce__()[1]
            for name, before in zip(names, values, strict=True):
                if isinstance(table, dict) and is_foreign(table.get(name)):
                    table[name] = before
                    found.append(name)
        for table in {id(table): table for table in (*self._sized, *(t for t, _ in self._absent))}.values():
            if isinstance(table, dict):
                added = [name for name, value in table.items() if is_foreign(value)]
                for name in added:
                    del table[name]
                found += added
        for cell, before in self._cells:
            if is_foreign(content_of(cell)):
                if before is MISSING:
                    del cell.cell_contents
                else:
                    cell.cell_contents = before
                found.append("a variable of an enclosing function")
        return found

    def _take_out_of_containers(self, is_foreign: Callable[[Any], bool]) -> list[str]:
        found: list[str] = []
        keys = {id(read.args[0]): names for read, names in self._contents if read.func is dict.__iter__}
        contents = [(read.args[0], values) for read, values in self._contents if read.func is not dict.__iter__]
        for container, values in (*((container, ()) for container in self._empty), *contents):
            if isinstance(container, (dict, list)) and is_foreign(container):
                container.clear()
                if isinstance(container, dict):
                    container.update(zip(keys.get(id(container), ()), values, strict=True))
                else:
                    container.extend(values)
                found.append(f"in a {type(container).__name__}")
        return found


def _has_own_size(container: Any) -> bool:
    """Whether the length of a container is not the user's code."""
    return type(container) in (dict, list, set, frozenset, collections.OrderedDict, collections.deque)


def _remembers(cache: Any, is_foreign: Callable[[Any], bool]) -> bool:
    """Whether something of a kind is among what a cached function returned, which only the garbage collector knows:
    in a dictionary, or one by one where their number has a limit."""
    return any(map(is_foreign, gc.get_referents(cache)))
