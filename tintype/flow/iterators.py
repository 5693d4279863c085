"""Iterators of loops around a branch: each arm has its own, where one can be copied.

From one that can't, a generator say, or that a variable holds, elements may be taken in one arm only, and by nobody
afterwards: how far it has come is then known to the data alone.
"""

from __future__ import annotations

import itertools
import warnings
from collections import deque
from collections.abc import Iterator
from contextlib import _GeneratorContextManager
from types import CellType, FunctionType, GeneratorType, MethodType
from typing import TYPE_CHECKING, Any

from tintype.flow.ends import Refused, location_of, refuse
from tintype.flow.sequences import VaryingIterator
from tintype.interpret import NULL, Frame
from tintype.interpret.generators import frame_of
from tintype.symbolic.interruptions import Word
from tintype.symbolic.location import is_internal

if TYPE_CHECKING:
    from tintype.flow.journal import Journal

_SEQUENCES: tuple[Any, ...] = ((), [], {}, {}.values(), {}.items(), range(0), "", b"", set(), reversed([]), deque())
_ADAPTERS = (
    zip, enumerate, map, filter, itertools.accumulate, itertools.chain, itertools.combinations, itertools.compress,
    itertools.count, itertools.cycle, itertools.dropwhile, itertools.filterfalse, itertools.islice,
    itertools.permutations, itertools.product, itertools.repeat, itertools.starmap, itertools.takewhile,
    itertools.zip_longest,
)  # fmt: skip
_COPYABLE = (*_ADAPTERS, *(type(iter(values)) for values in _SEQUENCES))


class NotCopiedError(Word):
    """An iterator that can't be gone through twice."""


class LostIterator:
    """Stands for two iterators of which only the data decide which one it is: whoever wants an element is refused."""

    __slots__ = ("refused",)

    def __init__(self, refused: Refused) -> None:
        self.refused = refused

    def __iter__(self) -> LostIterator:
        return self

    def __next__(self) -> Any:
        raise self.refused


def _reduced(iterator: Any) -> tuple[Any, ...]:
    """What makes an iterator again: a function, its arguments, a state."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # which later Pythons no longer tell of itertools
        return tuple(iterator.__reduce__())


def copied_iterator(iterator: Any) -> Any:
    """An iterator that goes on where another one stands, which stays there."""
    if type(iterator) not in _COPYABLE:
        raise NotCopiedError
    make, arguments, *state = _reduced(iterator)
    copied = make(*map(_copied_part, arguments))
    if state:
        copied.__setstate__(_copied_part(state[0]))
    return copied


def _copied_part(part: Any) -> Any:
    if type(part) is tuple:
        return tuple(map(_copied_part, part))
    return copied_iterator(part) if isinstance(part, Iterator) else part


def progress_of(iterator: Any) -> Any:
    """How far an iterator has come; None where it can't be told."""
    if type(iterator) in _COPYABLE:
        return _progress_of_part(_reduced(iterator))
    if isinstance(iterator, GeneratorType):
        frame = frame_of(iterator)
        return (id(iterator), None if frame is None else frame.pc, iterator.gi_frame and iterator.gi_frame.f_lasti)
    return None


def _progress_of_part(part: Any) -> Any:
    if type(part) is tuple:
        return tuple(map(_progress_of_part, part))
    if isinstance(part, Iterator):
        return progress_of(part)
    if isinstance(part, list):  # may be made to be asked for
        return len(part)
    return part if isinstance(part, (range, int)) else id(part)


def take_from(journal: Journal, frame: Frame, iterator: Any) -> None:
    """Elements are taken from an iterator: refused where only the data decide which comes next."""
    if not journal and not journal.taken:
        return
    kind = type(iterator)
    is_users = type(getattr(kind, "__next__", take_from)) is FunctionType  # whose attributes change, if it is one
    if is_users and kind is not VaryingIterator:
        return
    if kind in _ADAPTERS:  # which takes from others in its turn
        for part in _inner_iterators(_reduced(iterator)):
            take_from(journal, frame, part)
    existed = [notes for notes in journal.open if _is_held_by(notes.frame, iterator)]
    if id(iterator) in journal.taken or any(notes.repeats for notes in existed):
        raise refuse(
            f"elements are taken from {_in_words(kind)} in an arm of a branch or a step of a loop, so that only the "
            "data decide which one comes next",
            location_of(frame),
            "go through a list: items = list(...) before the branch, for item in items",
        )
    for notes in existed:
        notes.taken[id(iterator)] = iterator


def _inner_iterators(part: Any) -> Iterator[Any]:
    """The iterators that one is made of, by what makes it again."""
    for item in part:
        if type(item) is tuple:
            yield from _inner_iterators(item)
        elif isinstance(item, Iterator):
            yield item


def _in_words(kind: type) -> str:
    return "an iterator" if kind is VaryingIterator else f"a {kind.__name__}"


def _is_held_by(frame: Frame | None, iterator: Any) -> bool:
    """Whether a variable of a frame, or of one that called it, is an iterator, or a loop of theirs is over it."""
    while frame is not None:
        for value in (*frame.locals, *frame.stack):
            if value is iterator or (type(value) is CellType and _content(value) is iterator):
                return True
            if type(value) is MethodType and _generator_of(value.__self__) is iterator:
                return True  # of a `with` block
        frame = frame.back
    return False


def refuse_throwing(journal: Journal, frame: Frame, generator: Any) -> None:
    """An exception goes into the generator of a `with` block: it is over then, for the other arm, too."""
    if type(generator) is GeneratorType and any(_is_held_by(notes.frame, generator) for notes in journal.open):
        user = frame
        while user.back is not None and is_internal(user.code.co_filename):
            user = user.back
        raise refuse(
            "a with block that a generator makes (contextlib.contextmanager) is left by an exception where only the "
            "data decide whether it is",
            location_of(user),
            "write the context manager as a class with __enter__ and __exit__",
        )


def _generator_of(manager: Any) -> Any:
    return manager.gen if isinstance(manager, _GeneratorContextManager) else NULL


def _content(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # a variable without a value
        return None
