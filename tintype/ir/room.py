"""Room for deep calls.

Python keeps the frames of a thread in pieces of memory of 16 KB. A loop that calls from close below the end of one
maps another piece at each call, and gives it back: all that it does takes a quarter longer. Whether that happens
hangs on how large the frames above are, which nobody can foresee. What calls a lot from deep below gets a piece of
its own, so that it does not happen.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

# In words of eight bytes: what is more than half of the next piece, and so never fits into what one of its kind has
# left. That is as much again, 64 KB.
_SLOTS = 8200


def _called(function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
    return function(*args, **kwargs)


# a function that says it needs so much that a new piece is made for it, and touches nothing of it
_with_room = FunctionType(_called.__code__.replace(co_stacksize=_SLOTS), globals(), "with_room")


def with_room(function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
    """Call a function with room for the frames of what it calls.

    >>> with_room(max, 1, 2)
    2
    """
    result: R = _with_room(function, *args, **kwargs)
    return result
