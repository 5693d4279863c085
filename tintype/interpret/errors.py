"""What the machine says about code that it can't interpret."""

from __future__ import annotations

from types import CodeType

from tintype.errors import CaptureError, Location


class NotInterpretedError(CaptureError):
    """A piece of code that the machine does not interpret, by name.

    >>> import tintype.interpret
    >>> async def fetch(): ...
    >>> tintype.interpret.Machine().call(fetch)
    Traceback (most recent call last):
      ...
    tintype.interpret.errors.NotInterpretedError: async def is not interpreted: fetch
      At: ...
    """

    id = "not-interpreted"


def not_interpreted(what: str, code: CodeType) -> NotInterpretedError:
    location = Location(code.co_filename, code.co_firstlineno, code.co_name)
    return NotInterpretedError(f"{what} is not interpreted: {code.co_qualname}", location=location)
