"""What users say about functions and tensors: not to be compiled, to be called as a whole, sizes that vary."""

from __future__ import annotations

from typing import Any

_DISABLED = "_tintype_disabled"
_ALLOWED = "_tintype_allowed"


def is_disabled(function: Any) -> bool:
    """Whether calls of a function are not captured, by our mark or torch's."""
    marks = getattr(function, "__dict__", {})
    return _DISABLED in marks or bool(marks.get("_torchdynamo_disable"))


def disable(function: Any) -> Any:
    """Let calls of a function run as they are, each time, when a compiled function calls it.

    >>> import tintype
    >>> @tintype.compile.disable
    ... def report(x):
    ...     print(float(x.sum()))
    """
    function.__dict__[_DISABLED] = True
    return function


def allow_in_graph(function: Any) -> Any:
    """Let calls of a function be part of graphs as they are: what it does inside is not looked at.

    >>> import tintype
    >>> @tintype.compile.allow_in_graph
    ... def twice(x):
    ...     return x + x
    """
    function.__dict__[_ALLOWED] = True
    return function


def is_allowed(function: Any) -> bool:
    """Whether calls of a function go into graphs as they are."""
    return _ALLOWED in getattr(function, "__dict__", {})


def graph_break() -> None:
    """End the graph here: what follows is part of another one.

    Outside of a compiled function it does nothing.
    """


def is_graph_break(function: Any) -> bool:
    """Whether a function is ours or torch's mark for the end of a graph."""
    if function is graph_break:
        return True
    return getattr(function, "__name__", None) == "graph_break" and str(
        getattr(function, "__module__", "")
    ).startswith("torch._dynamo")


def original_of(compiled: Any) -> Any:
    """What a compiled function or module was made of."""
    return compiled.original
