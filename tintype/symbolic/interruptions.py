"""Exceptions that are no errors: a capture, or a part of it, ends for tintype itself to go on in another way."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tintype.errors import note, noting


class Interruption(BaseException):
    """Ends a capture, or a part of it.

    No Exception: a program that catches those must not catch this. What catches everything is found out when the
    program has come to its end (:func:`noting_raised`).
    """

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        note(self)


class Word(Exception):
    """What tintype says to itself through code that a capture runs: meant for who has called for it, and no failure
    of that code."""


@contextmanager
def noting_raised() -> Iterator[list[BaseException]]:
    """Within it the exceptions of tintype's own that this thread makes are collected: a program that is captured may
    catch them (``except:``, ``finally: return``, a ``with`` that swallows), though it can't go on with them."""
    errors: list[BaseException] = []
    before = noting(errors)
    try:
        yield errors
    finally:
        noting(before)
