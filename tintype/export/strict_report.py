"""What ``strict=True`` tells: what a model does in a call and its program does not."""

from __future__ import annotations

import dataclasses
import warnings

from tintype.errors import LostEffectWarning
from tintype.symbolic.location import levels_to_the_user
from tintype.trace.findings import Finding

# what makes no difference to anybody who calls the model
_NOTE = "note"


@dataclasses.dataclass
class StrictReport:
    """What the model does besides computing, as it was seen in one call. ``bool(report)`` says whether a program
    lacks something of it.

    >>> import warnings, torch, tintype
    >>> def noisy(x):
    ...     print("called")
    ...     return x + 1
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore")
    ...     program = tintype.export(noisy, (torch.ones(2),), strict=True)
    called
    >>> [finding.kind for finding in program.report.findings]
    ['output']
    """

    findings: list[Finding]
    # what makes no difference to who calls the model: attributes of its own that no later call reads, and functions
    # that were not interpreted, since native code called them, and that write to nothing
    notes: list[Finding] = dataclasses.field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.findings)

    def __str__(self) -> str:
        if not self.findings:
            return "Nothing that the model does is missing in the program."
        count = len(self.findings)
        head = f"the model does {count} thing{'s' if count > 1 else ''} that the program does not do:"
        return "\n".join([head, *(f"{n}. {finding}" for n, finding in enumerate(self.findings, 1))])

    def warn(self) -> None:
        """One warning for everything."""
        if self.findings:
            warnings.warn(f"[{LostEffectWarning.id}] {self}", LostEffectWarning, stacklevel=levels_to_the_user())


def lost_state(text: str) -> Finding:
    """What makes the model's second call another one than the first, from a warning's text."""
    fact, _, remedy = text.partition("\n  What to do: ")
    return Finding("state", fact, None, remedy)


def report_of(findings: list[Finding]) -> StrictReport:
    """The report on a capture."""
    return StrictReport(
        [finding for finding in findings if finding.kind != _NOTE],
        [finding for finding in findings if finding.kind == _NOTE],
    )
