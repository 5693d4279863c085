"""Backends: who runs the graphs of compiled functions, by name.

A backend is a function of a graph module and example inputs that returns what is called in the graph's place, as
torch's backends are. Names of torch's own backends and of those that packages register with torch lead to
``tintype.interop``, which is loaded then.
"""

from __future__ import annotations

import functools
import importlib.metadata
from collections.abc import Callable, Mapping
from typing import Any

from torch.fx import GraphModule

from tintype.errors import InvalidRequestError

# (graph module, example inputs) -> what is called in its place
Backend = Callable[[GraphModule, list[Any]], Callable[..., Any]]

# where packages announce backends to torch
ENTRY_POINTS = "torch_dynamo_backends"


def aot_eager(graph_module: GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
    """Forward and backward as graphs, whose operators are called one after the other."""
    from tintype.aot.function import function

    return function(graph_module)


def cudagraphs(graph_module: GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
    """Forward and backward as graphs, which are recorded as CUDA graphs and replayed."""
    from tintype.compiler.cuda_graphs import with_cuda_graphs

    return with_cuda_graphs(graph_module)


def onnxruntime(
    graph_module: GraphModule, example_inputs: list[Any], options: Mapping[str, Any] | None = None
) -> Callable[..., Any]:
    """Graphs as ONNX models on ONNX Runtime; they have no gradients."""
    from tintype.interop.compile_backends import on_onnxruntime

    return on_onnxruntime(graph_module, example_inputs, options)


# "eager" needs no graphs
_REGISTERED: dict[str, Backend | None] = {
    "eager": None,
    "aot_eager": aot_eager,
    "cudagraphs": cudagraphs,
    "onnxruntime": onnxruntime,
}


def register_backend(backend: Any = None, *, name: str | None = None) -> Any:
    """Give a backend a name; as a function or as a decorator.

    >>> import torch, tintype
    >>> @tintype.compile.register_backend
    ... def printing(graph_module, example_inputs):
    ...     print([node.name for node in graph_module.graph.nodes])
    ...     return graph_module.forward
    >>> tintype.compile(lambda x: x.sin() + 1, backend="printing")(torch.zeros(2))
    ['input_0', 'sin', 'add', 'output']
    tensor([1., 1.])
    """
    if backend is None:
        return functools.partial(register_backend, name=name)
    if not callable(backend):
        raise InvalidRequestError(f"a backend is a function, not a {type(backend).__name__}")
    known = str(name or getattr(backend, "__name__", type(backend).__name__))
    if _REGISTERED.get(known, backend) is not backend:
        raise InvalidRequestError(f"there is a backend {known!r} already", remedy="give it another name=")
    _REGISTERED[known] = backend
    return backend


def list_backends() -> list[str]:
    """The names that ``tintype.compile(backend=...)`` takes: ours, and those that torch knows.

    >>> import tintype
    >>> {"aot_eager", "cudagraphs", "eager", "inductor", "onnxruntime"} <= set(tintype.list_backends())
    True
    """
    from tintype.interop.compile_backends import names_of_torch

    return sorted({*_REGISTERED, *names_of_torch()})


def backend_of(
    backend: str | Backend, options: Mapping[str, Any] | None = None, mode: str | None = None
) -> Backend | None:
    """The function that a name stands for, which hands on options and mode where some were given; None: no graphs."""
    if callable(backend):
        return _with_options(backend, options, mode)
    if not isinstance(backend, str):
        raise InvalidRequestError(f"a backend is a name or a function, not a {type(backend).__name__}")
    if backend in _REGISTERED:
        found = _REGISTERED[backend]
        if found is None or found in (aot_eager, cudagraphs):
            if options or mode not in (None, "default"):
                raise InvalidRequestError(
                    f"the backend {backend!r} has no options and no modes",
                    remedy='leave them out, or take backend="inductor", which has some',
                )
            return found
        return _with_options(found, options, mode)
    if backend != "inductor" and backend not in _announced():
        from tintype.interop.compile_backends import names_of_torch

        if backend not in names_of_torch():
            raise InvalidRequestError(
                f"there is no backend {backend!r}",
                remedy=f"take one of {', '.join(list_backends())}, or give a function",
            )
    return functools.partial(_of_torch, name=backend, options=options, mode=mode)


def _of_torch(
    graph_module: GraphModule,
    example_inputs: list[Any],
    *,
    name: str,
    options: Mapping[str, Any] | None,
    mode: str | None,
) -> Callable[..., Any]:
    from tintype.interop.compile_backends import of_torch

    return of_torch(name, graph_module, example_inputs, options, mode)


def _announced() -> set[str]:
    return {point.name for point in importlib.metadata.entry_points(group=ENTRY_POINTS)}


def _with_options(backend: Backend, options: Mapping[str, Any] | None, mode: str | None) -> Backend:
    given: dict[str, Any] = {}
    if options:
        given["options"] = dict(options)
    if mode not in (None, "default"):
        given["mode"] = mode
    return functools.partial(backend, **given) if given else backend
