"""Raising an exception that was raised before."""

from __future__ import annotations

import sys
from typing import NoReturn


def raise_unchanged(error: BaseException) -> NoReturn:
    """Raises an exception whose contexts are what they shall be.

    `raise` makes the exception that is being handled the context of the new one, and cuts a circle that this would
    close.
    """
    context = error.__context__
    before = last_before(error)
    try:
        raise error
    finally:
        error.__context__ = context
        if before is not None:
            before.__context__ = error


def last_before(error: BaseException) -> BaseException | None:
    """What has the exception as its context, among those that are being handled."""
    seen = set()
    handled = sys.exception()
    while handled is not None and id(handled) not in seen:
        if handled is not error and handled.__context__ is error:
            return handled
        seen.add(id(handled))
        handled = handled.__context__
    return None
