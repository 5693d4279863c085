"""Guards about one object, written once for all objects that are asked the same.

Most guards of a model ask its modules: what class each is of, that nothing listens to it, what its parameters and
numbers are. The layers of a model are asked the same, so the code that asks is a function that is written and
compiled once, and called for each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

from tintype.compiler.sources import Guard, Source

# what a guard of these kinds asks hangs on one source and on constants
_ABOUT_ONE = frozenset(
    {"type", "is", "value", "length", "keys", "code", "absent", "members", "hooks", "printed", "tensor", "answer"}
)


def roots_among(guards: Iterable[Guard]) -> set[Any]:
    """The paths of the objects whose attributes guards ask for."""
    found: set[Any] = set()
    seen: set[Any] = set()
    for guard in guards:
        step: Source | None = guard.source
        while step is not None and step.parent is not None and step.path not in seen:
            seen.add(step.path)
            if step.kind == "attribute" and step.key == "__dict__":
                found.add(step.parent.path)
            step = step.parent
    return found


def root_of(guard: Guard, roots: Collection[Any]) -> Source | None:
    """The innermost object of ``roots`` that a guard asks about; None: it asks about others, too."""
    if guard.kind not in _ABOUT_ONE or guard.source.root.kind == "value":
        return None
    step: Source | None = guard.source
    while step is not None and step.path not in roots:
        step = step.parent
    return step


class Group:
    """Guards about one object that stand together, and the variables that their code has.

    ``outside`` are variables that are there before, in the order in which they are used; ``outputs`` are those that
    something behind the guards uses."""

    def __init__(self, root: Source) -> None:
        self.root = root
        self.guards: list[Guard] = []
        self.steps: list[tuple[Source | Guard, str, str]] = []
        self.own: dict[str, None] = {}
        self.outside: dict[str, None] = {}
        self.outputs: set[str] = set()

    def lines(self, names: Callable[[str], str], bind: Callable[[Any], str]) -> list[str]:
        """The code of the guards with these names for variables."""
        return [
            f"{names(name)} = {what.code(names(parent), bind)}"
            if isinstance(what, Source)
            else f"if not ({what.condition([names(name)], bind)}): raise _Missed"
            for what, name, parent in self.steps
        ]

    def inline(self, bind: Callable[[Any], str]) -> list[str]:
        """The code to stand where it is used."""
        return self.lines(str, bind)

    def body(self, bind: Callable[[Any], str]) -> str:
        """The code as a function that any object can be given to, but for its name."""
        named = {name: f"p{number}" for number, name in enumerate(self.outside)}
        named |= {name: f"a{number}" for number, name in enumerate(self.own)}
        lines = self.lines(named.__getitem__, bind)
        if self.outputs:
            lines.append(f"return {', '.join(named[name] for name in self.own if name in self.outputs)}")
        parameters = ", ".join(named[name] for name in self.outside)
        return "\n    ".join([f"({parameters}):", *lines])

    def call(self, function: str) -> str:
        """The line that calls this function."""
        outputs = [name for name in self.own if name in self.outputs]
        call = f"{function}({', '.join(self.outside)})"
        return f"{', '.join(outputs)} = {call}" if outputs else call
