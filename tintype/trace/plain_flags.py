"""Flags that are questions about sizes: ``is_causal=length > 1``.

torch's functions look at flags in C++, before anybody hears of the call, and take nothing but True and False: with a
symbolic one they raise a TypeError. Then the capture starts again, and comparisons in the function that made the call
are answered where they are made, as if the program had asked with ``if``: by what is known, otherwise by a guard. If
the flag was made elsewhere, all comparisons of the program are. Those of numbers that nobody knows before the program
runs stay what they are; as flags they are refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType

from tintype.errors import DataDependentError
from tintype.symbolic import bridge
from tintype.symbolic.interruptions import Interruption
from tintype.symbolic.location import is_internal, location_in, program_code


class NeedsPlainFlags(Interruption):
    """A function of torch's was given a symbolic flag: capture again, with answers in place of such flags."""

    def __init__(self, code: CodeType, error: Exception) -> None:
        super().__init__(code.co_qualname)
        self.code = code
        self.error = error


def look_for_flags(error: Exception) -> None:
    """Ask for another capture if an error that the program was left with is about a symbolic flag."""
    if not isinstance(error, (TypeError, IndexError)) or "SymBool" not in str(error):
        # of functions with a flag or a list in one place, torch takes the flag for a list and is surprised
        if "python_arg_parser" not in str(error):
            return
    code, step = None, error.__traceback__
    while step is not None:
        if not is_internal(step.tb_frame.f_code.co_filename):
            code = program_code(step.tb_frame.f_code)
        step = step.tb_next
    if code is not None:
        raise NeedsPlainFlags(code, error) from error


class PlainFlags:
    """Whose comparisons are answered at once, in the captures of one program."""

    def __init__(self) -> None:
        self._codes: set[CodeType] = set()
        self._everywhere = False

    def add(self, need: NeedsPlainFlags) -> None:
        """Answer more comparisons; raises if all are answered already."""
        if self._everywhere:
            raise DataDependentError(
                "the program gives a function of torch's a flag that is only known when the program runs: "
                f"{need.error}",
                location=location_in(need.error),
                remedy="compute with both values of the flag and choose between the results with torch.where",
            ) from need.error
        self._everywhere = need.code in self._codes
        self._codes.add(need.code)

    @contextmanager
    def answered(self) -> Iterator[None]:
        """Within it they are."""
        before = bridge.answers_at_once
        if self._everywhere:
            bridge.answers_at_once = lambda code: not is_internal(code.co_filename)
        elif self._codes:
            bridge.answers_at_once = self._codes.__contains__
        try:
            yield
        finally:
            bridge.answers_at_once = before
