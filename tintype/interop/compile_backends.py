"""Backends of ``tintype.compile`` that others make: torch's own, those that packages register with torch, and ONNX
Runtime.

Such a backend compiles a graph for tensors as it is shown them. So a graph is compiled when it first runs, on the
tensors of that call; it runs as it is then, and what it does is looked at: whether it writes to its inputs, draws
random numbers, or returns views. Inputs that no guard has described are part of the key under which compiled code is
kept.
"""

from __future__ import annotations

import copy
import operator
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch._guards import TracingContext, tracing
from torch._subclasses import FakeTensor, FakeTensorMode
from torch.fx import GraphModule
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.fx.node import map_arg

from tintype.compiler.sources import description
from tintype.errors import BackendError, InvalidRequestError, TintypeError
from tintype.ir.call_description import sharing_key
from tintype.ir.call_values import PLAIN, value_key


def names_of_torch() -> list[str]:
    """The backends that torch knows of, but for those that are for finding mistakes of torch's."""
    from torch._dynamo.backends.registry import list_backends

    return [str(name) for name in list_backends()]


def of_torch(
    name: str,
    graph_module: GraphModule,
    example_inputs: Sequence[Any],
    options: Mapping[str, Any] | None,
    mode: str | None,
) -> Callable[..., Any]:
    """A graph in the hands of one of torch's backends."""
    compiler = compiler_of_torch(name, options, mode)
    return of_tensors(graph_module, example_inputs, lambda module: CompiledGraph(name, module, compiler))


def compiler_of_torch(name: str, options: Mapping[str, Any] | None, mode: str | None) -> Any:
    """The function of torch's that a name stands for."""
    if name == "inductor":
        try:
            inductor = torch._TorchCompileInductorWrapper(mode, dict(options or {}), False)
        except (RuntimeError, AttributeError) as error:
            raise InvalidRequestError(f"inductor does not take its options: {error}") from error
        return lambda graph_module, inputs: as_dynamo_calls(inductor, with_state_marked(graph_module), inputs)
    from torch._dynamo.backends.registry import lookup_backend

    compiler = lookup_backend(name)
    given: dict[str, Any] = {}
    if mode not in (None, "default"):
        given["mode"] = mode
    if options:
        given["options"] = dict(options)
    return (lambda graph_module, inputs: compiler(graph_module, inputs, **given)) if given else compiler


def as_dynamo_calls(compiler: Any, graph_module: GraphModule, inputs: Sequence[Any]) -> Any:
    """What a backend of torch's makes of a graph where dynamo is what calls it: with fake tensors for inputs, in a
    context of theirs. In no other case does inductor look for a graph in its caches, or put one there."""
    if any(isinstance(tensor, FakeTensor) for tensor in inputs):  # they have a mode
        return compiler(graph_module, list(inputs))
    shapes = ShapeEnv(allow_scalar_outputs=False, allow_dynamic_output_shape_ops=False)
    mode = FakeTensorMode(shape_env=shapes, allow_non_fake_inputs=True)
    fakes = [mode.from_tensor(tensor, static_shapes=True) for tensor in inputs]
    with tracing(TracingContext(mode)):
        return compiler(graph_module, fakes)


def with_state_marked(graph_module: GraphModule) -> GraphModule:
    """A graph that says as dynamo's do which inputs lie where they lay at the call before: parameters and buffers.
    CUDA graphs of inductor's (``mode="reduce-overhead"``) copy all others, and it makes none where those are written
    to. Where one has moved, it records another CUDA graph."""
    state = frozenset(graph_module.meta.get("state_inputs", ()))
    graph_module.meta["dynamo_compile_id"] = None
    graph_module._param_name_to_source = {}  # type: ignore[assignment]  # no parameters beside the inputs
    for position, node in enumerate(graph_module.graph.find_nodes(op="placeholder")):
        node._dynamo_source = None
        node.meta["tensor_dict"] = {"_dynamo_static_input_type": "unguarded"} if position in state else {}
    return graph_module


def on_onnxruntime(
    graph_module: GraphModule, example_inputs: Sequence[Any], options: Mapping[str, Any] | None
) -> Callable[..., Any]:
    """A graph as an ONNX model. Options are those of :func:`tintype.onnx.export`, and ``providers``."""
    compiler = OnnxCompiler(dict(options or {}))
    return of_tensors(
        graph_module, example_inputs, lambda module: CompiledGraph("onnxruntime", module, compiler, is_pure=True)
    )


class OnnxCompiler:
    """Makes ONNX models of graphs."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.providers = options.pop("providers", None)
        self.options = {"verify": False, **options}

    def __call__(self, graph_module: GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        from tintype import onnx

        if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in inputs):
            raise BackendError(
                "ONNX Runtime computes no gradients, and an input of this graph requires some",
                remedy="call the compiled function under torch.no_grad()",
            )
        with torch.no_grad():
            program = onnx.export(graph_module, tuple(inputs), **self.options)
        if self.providers is not None:
            program.providers = self.providers
        return program


class Observed:
    """What a graph did when it ran as it is."""

    def __init__(self, graph_module: GraphModule, inputs: Sequence[Any]) -> None:
        before = [_state(tensor) for tensor in inputs]
        generators = _generators()
        self.result = graph_module(*inputs)
        self.writes = not all(map(_is_same, before, map(_state, inputs)))
        self.draws = not all(map(torch.equal, generators, _generators()))
        memories = {tensor.untyped_storage()._cdata for tensor in inputs}
        outputs = [value.untyped_storage()._cdata for value in self.result if isinstance(value, torch.Tensor)]
        self.returns_views = bool(memories.intersection(outputs)) or len(set(outputs)) != len(outputs)


class CompiledGraph:
    """A graph, and what a backend made of it for each kind of inputs.

    ``is_pure``: the backend knows nothing of writes, random numbers and views."""

    def __init__(self, name: str, graph_module: GraphModule, compiler: Any, is_pure: bool = False) -> None:
        self.name = name
        self.graph_module = graph_module
        self.compiler = compiler
        self.is_pure = is_pure
        self.lock = threading.Lock()
        self.unchecked: tuple[int, ...] = graph_module.meta.get("unchecked_inputs", ())
        self.writes: bool | None = None  # not known before it ran
        self.compiled: dict[Any, Callable[..., Any]] = {}

    def __call__(self, *inputs: Any) -> Any:
        key: Any = None
        if self.unchecked:
            key = tuple(description(inputs[position]) for position in self.unchecked)
        if self.writes:
            key = (key, sharing_key(*inputs))
        run = self.compiled.get(key)
        return self._first(key, inputs) if run is None else run(*inputs)

    def _first(self, key: Any, inputs: Sequence[Any]) -> Any:
        with self.lock:
            if self.writes:  # it is compiled for inputs as they are before it runs
                run = self.compiled[key] = self._made(inputs, key[1] or self.is_pure)
                return run(*inputs)
            seen = Observed(self.graph_module, inputs)
            self.writes = seen.writes
            if not seen.writes:
                self.compiled[key] = self._made(inputs, self.is_pure and (seen.draws or seen.returns_views))
            return seen.result

    def _made(self, inputs: Sequence[Any], as_it_is: bool) -> Callable[..., Any]:
        """What the backend makes of the graph. ``as_it_is``: nothing, as where a write shows in another input."""
        if as_it_is:
            return self.graph_module
        try:
            run: Callable[..., Any] = self.compiler(copy.deepcopy(self.graph_module), list(inputs))
        except TintypeError:
            raise
        except Exception as error:
            raise BackendError(
                f"the backend {self.name!r} failed on a graph: {type(error).__name__}: {error}",
                remedy="compile with backend='eager', or report it to whom the backend belongs",
            ) from error
        return run


Maker = Callable[[GraphModule], Callable[..., Any]]


def of_tensors(graph_module: GraphModule, example_inputs: Sequence[Any], make: Maker) -> Callable[..., Any]:
    """What backends take are graphs of tensors. Numbers, and tuples of such (the sizes of a ``LayerNorm``), become
    constants of the graph; one that is given anything else runs as it is."""
    others = [position for position, value in enumerate(example_inputs) if not isinstance(value, torch.Tensor)]
    if len(others) == len(example_inputs) or not all(_is_constant(example_inputs[position]) for position in others):
        return graph_module
    return ByConstants(graph_module, others, make) if others else make(graph_module)


class ByConstants:
    """A graph with inputs that are no tensors: one graph of tensors for all values that they have together."""

    def __init__(self, graph_module: GraphModule, positions: list[int], make: Maker) -> None:
        self.graph_module = graph_module
        self.positions = positions
        self.make = make
        self.graphs: dict[Any, Callable[..., Any]] = {}
        # the objects of the call before, which can't have changed if they are the same
        self.before: tuple[list[Any], Callable[..., Any]] = ([], graph_module)

    def __call__(self, *inputs: Any) -> Any:
        given = [inputs[position] for position in self.positions]
        before, run = self.before
        if len(before) != len(given) or not all(map(operator.is_, before, given)):
            run = self._graph(given)
        return run(*[value for position, value in enumerate(inputs) if position not in self.positions])

    def _graph(self, given: list[Any]) -> Callable[..., Any]:
        if not all(map(_is_constant, given)):
            raise BackendError("an input of a graph that was a number or a tuple is something else now")
        key = tuple(map(_constant_key, given))
        if key not in self.graphs:
            self.graphs[key] = self.make(with_constants(self.graph_module, self.positions, given))
        self.before = (given if not any(type(value) is list for value in given) else [], self.graphs[key])
        return self.graphs[key]


def with_constants(graph_module: GraphModule, positions: list[int], values: list[Any]) -> GraphModule:
    """A graph in which some inputs are constants."""
    made = copy.deepcopy(graph_module)
    inputs = [node for node in made.graph.nodes if node.op == "placeholder"]
    constants = {inputs[position]: value for position, value in zip(positions, values, strict=True)}
    for node in list(made.graph.nodes):
        if constants.keys() & set(node.all_input_nodes):
            node.args = map_arg(node.args, lambda used: constants.get(used, used))
            node.kwargs = map_arg(node.kwargs, lambda used: constants.get(used, used))
    for node in constants:
        made.graph.erase_node(node)
    made.recompile()
    kept = [position for position in range(len(inputs)) if position not in positions]
    for name in ("unchecked_inputs", "state_inputs"):
        positions_of = graph_module.meta.get(name, ())
        made.meta[name] = tuple(kept.index(position) for position in positions_of if position in kept)
    return made


def _is_constant(value: Any) -> bool:
    return type(value) in PLAIN or (type(value) in (tuple, list, torch.Size) and all(map(_is_constant, value)))


def _constant_key(value: Any) -> Any:
    if type(value) in (tuple, list, torch.Size):
        return (type(value), tuple(map(_constant_key, value)))
    return value_key(value)


def _state(tensor: torch.Tensor) -> Any:
    return tensor.detach().clone() if tensor.is_inference() else tensor._version


def _is_same(before: Any, after: Any) -> bool:
    return torch.equal(before, after) if isinstance(before, torch.Tensor) else bool(before == after)


def _generators() -> list[torch.Tensor]:
    states = [torch.get_rng_state()]
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        states.append(torch.cuda.get_rng_state())
    return states
