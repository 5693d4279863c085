"""What became of a compiled function, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tintype.compiler.sources import Guard
from tintype.compiler.trace import Call, Eagerly, Return
from tintype.errors import Location

if TYPE_CHECKING:
    from tintype.compiler.compiled import Engine


def explained(engine: Engine) -> str:
    """Captures, runs, breaks and recompiles, each with its line."""
    name = getattr(engine.function, "__name__", type(engine.function).__name__)
    nodes = engine.program.nodes
    items = [item for node in nodes for item in node.items]
    runs = sum(isinstance(item, Return) for item in items)
    lines = [f"{name}: {_count(engine.captures, 'capture')}, {_count(runs, 'run')} known"]
    if engine.is_eager:
        lines.append(f"  runs eagerly: {engine.why_eager}")
    calls = [item for item in items if isinstance(item, Call)]
    guards = sum(isinstance(item, Guard) for item in items)
    lines.append(f"  {_count(sum(call.step is None for call in calls), 'operator')}, {_count(guards, 'guard')}")
    lines += [f"  break: {call.step}{_at(call.location)}" for call in calls if call.step]
    lines += [f"  eagerly: {item.reason}{_at(item.location)}" for item in items if isinstance(item, Eagerly)]
    lines += [f"  captured again: {reason}" for reason in engine.recompiles]
    if engine.captures:
        lines.append(f"  captures took {engine.capture_seconds * 1000:.1f} ms")
    return "\n".join(lines)


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _at(location: Location | None) -> str:
    return "" if location is None else f"\n    {location}\n      {location.source_line()}"
