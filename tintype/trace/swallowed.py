"""What tintype itself can't capture can't be caught.

A program may catch everything (``except:``, ``finally: return``, a ``with`` block whose ``__exit__`` returns True),
exceptions of tintype's own, too: it goes on then as it never would in eager mode. Where an exception was caught is
told by its traceback, which begins with the frame that it came to.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tintype.errors import CaptureError, TintypeError
from tintype.symbolic.interruptions import Interruption, noting_raised
from tintype.symbolic.location import is_internal


@contextmanager
def nothing_swallowed() -> Iterator[None]:
    """Runs a program; what it has caught of tintype's exceptions is raised when it has come to its end."""
    with noting_raised() as raised:
        escaping: BaseException | None = None
        try:
            yield
        except BaseException as error:
            escaping = error
            raise
        finally:
            caught = _caught(raised, escaping)
            raised.clear()  # they hold the program's frames
            if caught is not None:
                raise caught


def _caught(raised: list[BaseException], escaping: BaseException | None) -> BaseException | None:
    """What the program has caught that it must not go on with, whatever it has raised since then."""
    if isinstance(escaping, Interruption):
        return None
    caught = [error for error in raised if isinstance(error, (Interruption, CaptureError)) and _by_program(error)]
    interruption = next((error for error in caught if isinstance(error, Interruption)), None)
    if interruption is not None or isinstance(escaping, TintypeError):
        return interruption
    return next(iter(caught), None)


def _by_program(error: BaseException) -> bool:
    """Whether an exception has come to rest in the user's code."""
    trace = error.__traceback__
    return trace is not None and not is_internal(trace.tb_frame.f_code.co_filename)
