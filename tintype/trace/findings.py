"""Things to tell of a program that was captured all the same: what, where, and what to do about it."""

from __future__ import annotations

import dataclasses

from tintype.errors import Location


@dataclasses.dataclass(frozen=True)
class Finding:
    """Something that the user should know: what it is about, the line, and what to do.

    >>> print(Finding("write", "the global 'calls' is assigned", None, "return it"))
    [write] the global 'calls' is assigned
      What to do: return it
    """

    kind: str
    text: str
    location: Location | None
    remedy: str

    def __str__(self) -> str:
        lines = [f"[{self.kind}] {self.text}"]
        if self.location is not None:
            code = self.location.source_line()
            lines.append(f"  At: {self.location}" + (f": {code}" if code else ""))
        lines.append(f"  What to do: {self.remedy}")
        return "\n".join(lines)
