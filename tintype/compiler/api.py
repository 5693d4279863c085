"""``tintype.compile`` and what hangs on it."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping
from typing import Any

import torch

from tintype.compiler.backends import register_backend
from tintype.compiler.compiled import ENGINES, Engine, Options, is_capturing
from tintype.compiler.markers import allow_in_graph, disable, graph_break
from tintype.compiler.modules import CompiledModule, compile_module
from tintype.compiler.varying import mark_dynamic, mark_static, maybe_mark_dynamic
from tintype.errors import InvalidRequestError
from tintype.ir.process_switches import collector_paused


def compile(
    function: Any = None,
    *,
    backend: str | Callable[..., Any] = "eager",
    fullgraph: bool = False,
    options: Mapping[str, Any] | None = None,
    mode: str | None = None,
    dynamic: bool | None = None,
) -> Any:
    """A function, method or module that is captured when it is called, and repeated from then on.

    A call whose recorded run does for it, by what the run read, repeats the run's calls of torch's functions, its
    writes and its steps (``print``, ``item()``) in their order, without the Python code in between. Any other call
    runs as it is, and is captured meanwhile. What can't be captured runs eagerly; ``explain()`` says why.

    ``backend`` is "eager", "aot_eager" (forward and backward as graphs), another of
    :func:`tintype.list_backends`, or a function that takes a graph module and example inputs and returns what is
    called in its place; the first call is eager mode's own. ``options`` and ``mode`` are handed to the backend. With
    ``fullgraph``, a capture that has steps between functions of torch's, or that gave up, raises an error that names
    all of them. Numbers and sizes that the function asks for are parts of a run at first, and vary from the second
    capture on if they changed; with ``dynamic=True`` those of arguments vary at once, with ``dynamic=False`` none.

    >>> import torch, tintype
    >>> @tintype.compile
    ... def scaled(x, factor):
    ...     return (x * factor).relu()
    >>> scaled(torch.ones(2), 3)
    tensor([3., 3.])
    >>> scaled(torch.ones(3), 3)
    tensor([3., 3., 3.])
    >>> print(scaled.explain().splitlines()[0])
    scaled: 1 capture, 1 run known
    """
    if function is None:
        given: dict[str, Any] = {"backend": backend, "fullgraph": fullgraph, "options": options, "mode": mode}
        return functools.partial(compile, **given, dynamic=dynamic)
    chosen = Options(backend, fullgraph, options, mode, dynamic)
    if isinstance(function, CompiledModule):
        function = function.original
    if isinstance(function, torch.nn.Module):
        return compile_module(function, chosen)
    if isinstance(function, type) or not callable(function):
        raise InvalidRequestError(
            f"a {type(function).__name__} can't be compiled", remedy="give a function, a method or a module"
        )
    return compile_function(getattr(function, "original", function), chosen)


def compile_function(function: Callable[..., Any], options: Options) -> Callable[..., Any]:
    """A function whose calls are compiled."""
    engine = Engine(function, options)

    @functools.wraps(function)
    def compiled(*args: Any, **kwargs: Any) -> Any:
        return engine.run(args, kwargs)

    made: Any = compiled
    made.original = function
    made.engine = engine
    made.explain = engine.explain
    made.contract = engine.contract
    made.save = engine.save
    return compiled


def load(path: str | os.PathLike[str], function: Any, *, backend: str | Callable[..., Any] | None = None) -> Any:
    """A function or module that is compiled already: with the runs that ``save`` has written.

    Nothing is captured for calls that one of those runs fits. The code that a run went through has to be what it was;
    runs that rest on other code are left out, and a warning says what has changed. ``backend`` is that of the file,
    unless one is given; a backend that is a function has to be given. Graphs are made when they first run.

    >>> import tempfile, torch, tintype
    >>> model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.ReLU())
    >>> fast = tintype.compile(model)
    >>> y = fast(torch.ones(4, 3))
    >>> with tempfile.NamedTemporaryFile(suffix=".ttc") as file:
    ...     fast.save(file.name)
    ...     again = tintype.compile.load(file.name, model)
    >>> torch.equal(again(torch.ones(4, 3)), y)
    True
    >>> print(again.explain().splitlines()[0])
    Sequential: 0 captures, 1 run known
    """
    from tintype.compiler.saving import put_into, read

    saved = read(path)
    chosen = saved.backend if backend is None else backend
    if chosen is None:
        raise InvalidRequestError(
            f"{path} was compiled with a backend that is a function", remedy="give that function as backend="
        )
    given: dict[str, Any] = {"options": saved.options, "mode": saved.mode} if chosen == saved.backend else {}
    made = compile(function, backend=chosen, fullgraph=saved.fullgraph, dynamic=saved.dynamic, **given)
    with collector_paused():
        put_into(made._tintype_engine if isinstance(made, CompiledModule) else made.engine, saved)
    return made


def reset() -> None:
    """Forget what all compiled functions have recorded.

    >>> import tintype
    >>> tintype.compile.reset()
    """
    for engine in list(ENGINES):
        engine.reset()


compile.disable = disable  # type: ignore[attr-defined]
compile.allow_in_graph = allow_in_graph  # type: ignore[attr-defined]
compile.graph_break = graph_break  # type: ignore[attr-defined]
compile.is_compiling = is_capturing  # type: ignore[attr-defined]
compile.mark_dynamic = mark_dynamic  # type: ignore[attr-defined]
compile.mark_static = mark_static  # type: ignore[attr-defined]
compile.maybe_mark_dynamic = maybe_mark_dynamic  # type: ignore[attr-defined]
compile.reset = reset  # type: ignore[attr-defined]
compile.register_backend = register_backend  # type: ignore[attr-defined]
compile.load = load  # type: ignore[attr-defined]
