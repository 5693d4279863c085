"""What became of a compiled function, in words and as a page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tintype.compiler.history import line_of
from tintype.compiler.sources import Guard
from tintype.compiler.trace import QUIET_STEPS, Call, Eagerly, Return

if TYPE_CHECKING:
    from tintype.compiler.compiled import Engine


class Explanation(str):
    """The text of a report, which can also be had as a page.

    >>> import torch, tintype
    >>> twice = tintype.compile(lambda x: x * 2)
    >>> y = twice(torch.ones(2))
    >>> report = twice.explain()
    >>> print(report.splitlines()[0])
    <lambda>: 1 capture, 1 run known
    >>> report.html.startswith("<!DOCTYPE html>")
    True
    """

    __slots__ = ("html",)
    html: str

    def save(self, path: str) -> None:
        """Write the page into a file."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.html)

    def _repr_html_(self) -> str:
        return self.html


def explained(engine: Engine) -> Explanation:
    """Captures, runs, breaks and recompiles, each with its line."""
    from tintype.compiler.explaining_page import page_of

    text = Explanation("\n".join(lines_of(engine)))
    text.html = page_of(engine)
    return text


def lines_of(engine: Engine) -> list[str]:
    """The lines of the text."""
    history = engine.history
    items = [item for node in engine.program.nodes for item in node.items]
    runs = sum(isinstance(item, Return) for item in items)
    lines = [f"{engine.name}: {count(engine.captures, 'capture')}, {count(runs, 'run')} known"]
    if engine.is_eager:
        lines.append(f"  runs eagerly: {engine.why_eager}")
    calls = [item for item in items if isinstance(item, Call)]
    guards = sum(isinstance(item, Guard) for item in items)
    lines.append(f"  {count(sum(call.step is None for call in calls), 'operator')}, {count(guards, 'guard')}")
    lines += [
        f"  break: {call.step}{line_of(call.location)}"
        for call in calls
        if call.step and call.step not in QUIET_STEPS
    ]
    lines += [f"  eagerly: {item.reason}{line_of(item.location)}" for item in items if isinstance(item, Eagerly)]
    lines += [f"  captured again: {captured.reasons[0]}" for captured in history.captured if captured.reasons]
    if engine.captures:
        lines.append(f"  captures took {history.capture_seconds * 1000:.1f} ms")
    if history.not_captured:
        lines.append(f"  {count(history.not_captured, 'call')} ran eagerly: captures would take too much of its time")
    return lines


def count(number: int, what: str) -> str:
    """A number of things."""
    return f"{number} {what}{'' if number == 1 else 's'}"
