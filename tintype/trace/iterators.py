"""Iterators that a program takes elements from and that are not its own.

Each call in eager mode takes the next elements; a captured program would take the same ones for ever. So how far
iterators have come is compared before and after a capture.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import GeneratorType
from typing import Any

from tintype.errors import StateChangedError


def is_iterator(value: Any) -> bool:
    """Whether a value gives elements one by one, and is none of the user's own class, which has attributes."""
    return hasattr(type(value), "__next__") and not hasattr(value, "__dict__")


class Progress:
    """How far an iterator has come."""

    def __init__(self, iterator: Any) -> None:
        self.iterator = iterator
        self._before = _progress(iterator)

    def put_back(self) -> bool:
        """Whether the iterator has been advanced; it is where it was, if it can be told."""
        if _progress(self.iterator) == self._before:
            return False
        if hasattr(self.iterator, "__setstate__") and len(self._before) > 2 and type(self._before[2]) is int:
            self.iterator.__setstate__(self._before[2])
        return True


def _progress(value: Any) -> Any:
    """Something that is another when an iterator has been advanced."""
    if isinstance(value, GeneratorType):
        frame = value.gi_frame
        if frame is None:
            return ("finished",)
        return frame.f_lasti, tuple(map(id, frame.f_locals.values())), _progress(value.gi_yieldfrom)
    if is_iterator(value):
        try:
            return tuple(map(_progress, value.__reduce__()))
        except TypeError:  # of one that can't tell: a file
            return ()
    if isinstance(value, tuple):
        return tuple(map(_progress, value))
    if isinstance(value, list):
        return id(value), len(value)
    return value if isinstance(value, (int, float, str)) else id(value)


def refuse_advanced(iterators: Iterable[Progress]) -> None:
    """Raise if a program that has run took elements from one of the iterators."""
    advanced = [known.iterator for known in iterators if known.put_back()]
    if advanced:
        raise StateChangedError(
            f"the program takes elements from a {type(advanced[0]).__name__} that is not its own, which a captured "
            "program can't: it would take the same ones in every call",
            remedy="make the iterator in the program, or keep a position in a registered buffer",
        )
