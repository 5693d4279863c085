"""``invoke_subgraph``: a function that a program calls again and again, recorded once.

``invoke_subgraph(subgraph, identifier, *operands)`` calls the graph on the operands. Functions that are marked with
``torch.compiler.nested_compile_region`` are recorded when they are first called. A later call with alike arguments is
one node more, for the same graph: other tensors of the same sizes, and modules of the same class whose attributes are
the same but for their tensors, such as the layers of a transformer. What else a function reads (global variables) is
taken to be as it was.
"""

from __future__ import annotations

import functools
import types
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Node

from tintype import tree
from tintype.fake.info import Storage, TensorInfo
from tintype.fake.tensor import FakeTensor, describe
from tintype.ir.call_description import attached_key, fact_reader, modes
from tintype.ir.call_values import PLAIN, value_key
from tintype.ir.graph import append_graph
from tintype.ir.operators import HigherOrderOperator, declare
from tintype.ops.functional import add_new_values, functional_graphs, functionalizes
from tintype.ops.gradients import (
    Backward,
    differentiable,
    gradient_of_call,
    real_results,
    with_gradient,
)
from tintype.ops.subgraphs import (
    SYMBOLIC,
    Body,
    captured,
    mark_writes,
    operand_nodes,
    record_call,
    results_of,
    set_aside,
)
from tintype.symbolic.bridge import from_torch
from tintype.trace.inner import InnerRecorder
from tintype.trace.plan import captures
from tintype.trace.recorder import Recorder, active_recorder
from tintype.transforms.functionalize import Functionalization

target = torch.ops.higher_order.invoke_subgraph


def run(subgraph: Callable[..., Any], identifier: str | None, *operands: Any) -> Any:
    """The operator on tensors with data."""
    return subgraph(*operands)


def nested_region(function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Call a marked function: as a region of the program that is being captured, if one is."""
    recorder = active_recorder()
    if recorder is None:
        return function(*args, **kwargs)
    recorder.follow_modes()
    with set_aside(recorder):
        return _call_region(recorder, function, tuple(args), kwargs)


@captures(target)
def capture(recorder: Recorder, subgraph: Any, identifier: str | None, *operands: Any) -> Any:
    return _call_region(recorder, subgraph, operands, {})


# --- regions ---------------------------------------------------------------------------------------------


class Region:
    """A recorded function, and how to call it again.

    ``places`` says for each input of the graph which tensor among the arguments it stands for; where there is none,
    ``operands`` has the value, which is the same for all calls.
    """

    def __init__(self, name: str, body: Body, results: Sequence[Any], arguments: Arguments) -> None:
        self.name = name
        self.operands = list(body.inner.operands)
        places = arguments.places()
        self.places = [places.get(id(operand)) for operand in self.operands]
        storages = [operand.info.storage if type(operand) is FakeTensor else None for operand in self.operands]
        self.written = [storage is not None and body.inner.storages[storage].written for storage in storages]
        self.results = list(results)
        # results whose memory is that of an operand, which is another one in the next call
        self.sources = [
            storages.index(result.storage.source)
            if isinstance(result, TensorInfo) and result.storage is not None and result.storage.source in storages
            else None
            for result in results
        ]
        self.spec = body.spec
        self.module: GraphModule = body.finish()
        self.kept_alive = arguments.objects
        # of joint graphs: the graph of the gradients, and the names of those that were called
        self._backward: Backward | None = None
        self._names: dict[GraphModule, str] = {}

    def call(self, recorder: Recorder, arguments: Arguments) -> Any:
        """Record a call with other arguments."""
        operands = [
            operand if place is None else arguments.fake_at(place)
            for operand, place in zip(self.operands, self.places, strict=True)
        ]
        recorder.mark_written(
            [operand.info.storage for operand, written in zip(operands, self.written, strict=True) if written]
        )
        results = []
        for result, source in zip(self.results, self.sources, strict=True):
            if isinstance(result, TensorInfo):
                storage = None if source is None else Storage(frozen=True, source=operands[source].info.storage)
                if storage is None and result.storage is not None and result.storage.frozen:
                    storage = Storage(frozen=True)
                result = result.with_storage(storage)
            results.append(result)
        return self.record(recorder, operands, results)

    def record(self, recorder: Recorder, operands: Sequence[Any], results: Sequence[Any]) -> Any:
        """Append the call to the program."""
        values = _record(recorder, self.name, self.module, operands, results)
        wanted = differentiable(recorder, operands)
        if any(wanted):
            if self._backward is None:
                self._backward = Backward(recorder, self.module, wanted, real_results(results))
            rule = gradient_of_call(operands, wanted, self._backward, functools.partial(self._record_again, recorder))
            values = with_gradient(recorder, values, rule, operands, wanted)
        return tree.unflatten(values, self.spec)

    def _record_again(self, recorder: Recorder, graph: GraphModule, operands: Any, results: Any) -> list[Any]:
        """Append a call of a graph of gradients, which has one name however often it is called."""
        if graph not in self._names:
            self._names[graph] = recorder.graph_name(_STEM, "")
        return _record(recorder, self._names[graph], graph, operands, results)


_STEM = "repeated_subgraph"


def _record(
    recorder: Recorder, name: str, module: GraphModule, operands: Sequence[Any], results: Sequence[Any]
) -> list[Any]:
    graph = append_graph(recorder.graph, name, module)
    identifier = f"subgraph_{name.removeprefix(_STEM)}"
    return record_call(recorder, target, (graph, identifier, *operand_nodes(recorder, operands)), results)


def _call_region(recorder: Recorder, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    known: dict[Any, Region] = recorder.regions
    arguments = Arguments(recorder, (function, args, kwargs))
    region = known.get(arguments.key)
    if region is not None:
        return region.call(recorder, arguments)
    leaves, spec = tree.flatten((args, kwargs))
    body = Body(recorder, "a nested region")
    symbols = len(body.environment.symbols)

    def flat(*values: Any) -> Any:
        own_args, own_kwargs = tree.unflatten(list(values), spec)
        return function(*own_args, **own_kwargs)

    given = [body.operand(leaf) for leaf in leaves]
    body.run(function if isinstance(function, GraphModule) else flat, given, always=True)
    if any(differentiable(recorder, body.inner.operands)):
        body.lay_out_all()
    results = results_of(body)
    mark_writes(recorder, [body])
    region = Region(recorder.graph_name(_STEM, ""), body, results, arguments)
    # numbers that only the data decide are others in every call, and a function that changes what it is called with
    # may do something else the next time
    again = Arguments(recorder, (function, args, kwargs))
    if len(body.environment.symbols) == symbols and again.key == arguments.key:
        known[arguments.key] = region
    return region.record(recorder, region.operands, results)


# --- what calls have in common ---------------------------------------------------------------------------


class Arguments:
    """The function and the arguments of a call, taken apart: tensors, and a key of everything else.

    Two calls with the same key do the same to their tensors, in the same modes. Objects whose insides are not known
    count as the same only if they are one object.
    """

    def __init__(self, recorder: Recorder, values: Any) -> None:
        self.recorder = recorder
        self.tensors: list[torch.Tensor] = []
        self.objects: list[Any] = []  # keeps what the key has the address of
        self._seen: dict[int, int] = {}
        self._storages: dict[Storage, tuple[int, Any]] = {}
        autocast = tuple(entered.setting.arguments for entered in recorder.modes.entered)
        self.key = (self._key(values), modes(), autocast)

    def places(self) -> dict[int, int]:
        """Which tensor it is that a fake stands for, of those that the graph uses; by the address of the fake."""
        used = [
            (place, tensor)
            for place, tensor in enumerate(self.tensors)
            if type(tensor) is FakeTensor or self.recorder.is_lifted(tensor)
        ]
        return {id(self.fake_at(place)): place for place, _ in used}

    def fake_at(self, place: int) -> FakeTensor:
        """What stands for a tensor in the graph that is being recorded."""
        tensor = self.tensors[place]
        if type(tensor) is not FakeTensor:
            return self.recorder.fake_of(tensor)
        return self.recorder.localize(tensor) if isinstance(self.recorder, InnerRecorder) else tensor

    def _key(self, value: Any) -> Any:
        kind = type(value)
        if kind in PLAIN:
            return value_key(value)
        if kind is type:
            return kind, value
        if kind in _CONTAINERS and not value:  # modules have a dozen empty tables each
            return kind
        if isinstance(value, SYMBOLIC):
            return kind, from_torch(value)
        if id(value) in self._seen:
            return "seen", self._seen[id(value)]
        self._seen[id(value)] = len(self._seen)
        self.objects.append(value)
        if isinstance(value, torch.Tensor):
            return self._tensor_key(value)
        if isinstance(value, (list, tuple)):
            return (kind, *[self._key(item) for item in value])
        if isinstance(value, (set, frozenset)):
            return kind, frozenset([self._key(item) for item in value])
        if isinstance(value, dict):
            names = tuple(name if type(name) is str else self._key(name) for name in value)
            return (kind, names, *[self._key(item) for item in value.values()])
        if isinstance(value, torch.nn.Module) and not isinstance(value, GraphModule):
            return kind, self._key(vars(value))
        if isinstance(value, types.MethodType):
            return "method", self._key(value.__func__), self._key(value.__self__)
        if isinstance(value, functools.partial):
            return "partial", self._key((value.func, value.args, value.keywords))
        if isinstance(value, types.FunctionType):
            cells = [_contents(cell) for cell in value.__closure__ or ()]
            return "function", value.__code__, self._key([cells, value.__defaults__, value.__kwdefaults__])
        return kind, id(value)

    def _tensor_key(self, tensor: torch.Tensor) -> Any:
        if type(tensor) is FakeTensor:
            info, storage = tensor.info, tensor.info.storage
        else:
            info, storage = describe(tensor), self.recorder.context.storage_of(tensor)
        self.tensors.append(tensor)
        memory, start = self._storages.setdefault(storage, (len(self._storages), info.offset))
        own = (type(tensor), tensor.requires_grad, attached_key(tensor))
        return ("tensor", memory, info.offset - start, storage.frozen, own, _facts_of(info))


_facts_of = fact_reader("sizes", "strides", "dtype", "device", "is_conj", "is_neg", of_info=True)
_CONTAINERS = frozenset({dict, list, set, tuple, OrderedDict})


def _contents(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return None  # a variable that has no value yet


# --- functionalization -----------------------------------------------------------------------------------


@functionalizes(target)
def _functionalize(functional: Functionalization, node: Node) -> None:
    """What the graph writes to becomes a result of it, in all of its calls."""
    (graph,) = functional_graphs(functional, node)
    written = sorted(graph.new_values)
    if not graph.returned:
        graph.return_values(written)
    add_new_values(functional, node, [_shared(node)[position] for position in written])


def _shared(node: Node) -> list[Any]:
    return list(node.args[2:])


declare(HigherOrderOperator(target, {0: _STEM}, _shared, run, functools.partial(captured, capture, run)))
