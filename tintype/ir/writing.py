"""Python code that is written to be run: lines, and the objects that they refer to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.fx import Node


class Writer:
    """Collects lines of code and the objects they refer to.

    No two names of the code can meet: that of a variable that holds a node's value is ``v_`` and the node's name,
    which is unique in its graph, and every other name begins with an underscore and is handed out here.

    >>> import torch
    >>> writer = Writer()
    >>> writer.line(f"return x is {writer.bind(torch.float32)}")
    >>> writer.build("check", "(x)")(torch.float32)
    True
    """

    is_traced = False  # whether torch.compile is to look into the code

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.bound: dict[str, Any] = {}
        self._names: dict[int, str] = {}
        self._variables = 0

    def line(self, text: str) -> None:
        self.lines.append(text)

    def bind(self, value: Any, prefix: str = "_k") -> str:
        """A name for an object that code can't spell."""
        name = self._names.get(id(value))
        if name is None:
            name = f"{prefix}{len(self.bound)}"
            self.bound[name] = value
            self._names[id(value)] = name
        return name

    def fresh(self, stem: str) -> str:
        """A name for a further variable."""
        self._variables += 1
        return f"_{stem}{self._variables}"

    def build(self, name: str, header: str) -> Callable[..., Any]:
        """Compile the lines into a function."""
        source = "\n    ".join([f"def {name}{header}:", *(self.lines or ["pass"])]) + "\n"
        namespace: dict[str, Any] = dict(self.bound)
        exec(compile(source, "<tintype program>", "exec"), namespace)  # noqa: S102  (our own text)
        return namespace[name]


_SPELLABLE = (int, bool, str, type(None))


def spell(writer: Writer, value: Any) -> str:
    """A value as an expression: that of a node is in its variable, what code can't say is bound."""
    if isinstance(value, Node):
        return variable(value)
    kind = type(value)
    if kind in _SPELLABLE:
        return repr(value)
    if kind is float and value == value and abs(value) != float("inf"):
        return repr(value)
    if isinstance(value, (list, tuple)):
        inner = ", ".join(spell(writer, item) for item in value)
        if not isinstance(value, tuple):
            return f"[{inner}]"
        return f"({inner},)" if value else "()"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key!r}: {spell(writer, item)}" for key, item in value.items()) + "}"
    if isinstance(value, slice):
        return f"slice({spell(writer, value.start)}, {spell(writer, value.stop)}, {spell(writer, value.step)})"
    return writer.bind(value)


def variable(node: Node) -> str:
    """The name of the variable that holds a node's value."""
    return f"v_{node.name}"
