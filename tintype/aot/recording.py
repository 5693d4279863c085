"""From the capture of a function to what a runtime runs: a functional graph, and what became of the caller's
tensors."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from types import FunctionType
from typing import Any

import torch
from torch.fx import Graph, Node

from tintype.aot.arguments import Arguments, SharedMemoryError
from tintype.aot.function_capture import FunctionCapture, bases_of_view
from tintype.aot.recorded_function import GeometryChange, InputWrite, OutputPlan, RecordedFunction
from tintype.aot.sizes import SizesThatVary
from tintype.errors import CaptureError, MutationError
from tintype.fake.context import FakeContext
from tintype.fake.info import Storage
from tintype.fake.tensor import FakeTensor
from tintype.ir.graph import output_node, placeholders
from tintype.ir.signature import (
    InputKind,
    InputSpec,
    OutputSpec,
    StateWrite,
    TensorArgument,
    belongs_to_user_input,
    positions_of_inputs,
)
from tintype.trace.captured_graph import CapturedGraph
from tintype.trace.recording import one_at_a_time
from tintype.trace.shared_memory import storages_of
from tintype.transforms.assertions import AssertionWriter
from tintype.transforms.emit import Emitter, location_of
from tintype.transforms.functionalize import functionalize
from tintype.transforms.joint import (
    tidy_joint_graph,
)
from tintype.transforms.memory import written_storages
from tintype.transforms.views import base_of, laid_out

aten = torch.ops.aten


def record(
    root: torch.nn.Module,
    arguments: Arguments,
    *,
    with_gradients: bool,
    functions: Sequence[FunctionType],
    sizes: SizesThatVary | None = None,
) -> RecordedFunction:
    """Record a module that takes the inputs of ``arguments`` and may call the given functions of the user's."""
    given: dict[str, Any] = {"with_gradients": with_gradients, "arguments": arguments, "functions": functions}
    if sizes is not None:
        given.update(context=FakeContext(sizes.environment), sizes_of=sizes.sizes_of)
    with one_at_a_time:
        capture = FunctionCapture(root, tuple(arguments.inputs), {}, **given)
        captured = capture.run()
    inputs = placeholders(captured.graph)
    mutations = _make_functional(captured, inputs)
    values: Any = list(output_node(captured.graph).args[0])  # type: ignore[arg-type]
    index = {node: position for position, node in enumerate(inputs)}
    tracked = {index[node] for node in capture.tracked}
    writes = _input_writes(captured, mutations, values, tracked)
    _add_empty_writes(captured, writes, [inputs[position] for position in sorted(tracked)], index)
    values = values[len(mutations) :]
    _return_copies(capture, values, {write.value for write in writes})
    results = _own_results(captured, capture.results, values, {write.value for write in writes})
    views = values[len(capture.results) : len(capture.results) + len(capture.views)]
    found = [gradient is not None for gradient in capture.gradients]
    lenders = {plan.history for plan in capture.plans}
    return RecordedFunction(
        captured,
        [_state_source(capture, spec, node) for spec, node in _state(captured, inputs)],
        writes,
        _geometry_changes(capture),
        [index[node] for node in capture.tracked if node in capture.leaves and capture.histories[node] is None],
        [index[node] for node in capture.leaves if not capture.entries[node].requires_grad],
        [index[node] for node in capture.new_leaves],
        [capture.arguments.positions[id(fake)] for fake in capture.arguments.fakes if _keeps_gradient(fake)],
        results,
        [None if i in lenders else value for i, value in enumerate(values[: len(results)])],
        views,
        [_with_position(plan, index) for plan in capture.plans],
        _order_of_tangents(capture, writes) if any(found) or capture.backward_error is not None else [],
        [index[node] for (node, _), has in zip(capture.sources, found, strict=False) if has],
        values[len(capture.results) + len(capture.views) :],
        captured.out_spec,
        capture.grad_enabled_after,
        capture.recorder.observer.gradients_read,
        capture.backward_error,
    )


def _make_functional(captured: CapturedGraph, inputs: list[Node]) -> list[OutputSpec]:
    """Let the graph write to nothing; the specs of the new values that it returns first."""
    graph = captured.graph
    _refuse_foreign_tensors(graph)
    environment = captured.context.environment
    if environment.symbols:
        AssertionWriter(graph, environment).write([(fact.condition, fact.message) for fact in environment.assertions])
    count = len(captured.input_specs)
    _check_shared_memory(captured, inputs[:count])
    specs = [
        *captured.input_specs,
        *(InputSpec(InputKind.USER_INPUT, TensorArgument(node.name)) for node in inputs[count:]),
    ]
    mutations = functionalize(graph, captured.context, specs, captured.state_writes, differentiated=False)
    tidy_joint_graph(graph)
    return mutations


def _input_writes(
    captured: CapturedGraph, mutations: list[OutputSpec], values: list[Any], tracked: set[int]
) -> list[InputWrite]:
    """The inputs that get new values, with what those are."""
    positions = positions_of_inputs(captured.input_specs)
    return [
        InputWrite(position, position in tracked, spec.write, value)
        for spec, value in zip(mutations, values, strict=False)
        # tangents that a backward wrote to are nobody's business
        if (position := positions.get((belongs_to_user_input(spec), str(spec.target)))) is not None
    ]


def _order_of_tangents(capture: FunctionCapture, writes: list[InputWrite]) -> list[int]:
    """What the tangents belong to, by position: new values of inputs first, then results."""
    order = [position for position, write in enumerate(writes) if write.tracked]
    return order + [len(writes) + position for position in sorted(capture.differentiable)]


def _refuse_foreign_tensors(graph: Graph) -> None:
    """Refuse a function that was handed a tensor of an earlier capture: a cache kept it."""
    for node in graph.nodes:
        if any(argument.graph is not graph for argument in node.all_input_nodes):
            raise CaptureError(
                "the function uses a tensor that it made when it was captured before: something keeps tensors from "
                "one call to the next (functools.lru_cache, a global)",
                location=location_of(node),
                remedy="make the tensor outside of the function, or where it is used, without the cache",
            )


def _add_empty_writes(
    captured: CapturedGraph, writes: list[InputWrite], tracked: list[Node], index: dict[Node, int]
) -> None:
    """An input of which the function wrote to no element (``x[5:5].add_(1)``) has its old value and a new history."""
    emit = Emitter(captured.graph, captured.context)
    emit.at = output_node(captured.graph)
    written = {write.position for write in writes}
    for node in tracked:
        if index[node] not in written:
            value = emit.call(aten.clone.default, node)
            writes.append(InputWrite(index[node], True, StateWrite.IN_PLACE, value))
    writes.sort(key=lambda write: write.position)


def _check_shared_memory(captured: CapturedGraph, inputs: list[Node]) -> None:
    written = written_storages(captured.graph)
    if not written:
        return
    user = {spec.arg.name for spec in captured.input_specs if spec.kind is InputKind.USER_INPUT}
    first = len(inputs) - len(user)
    groups: dict[Storage, list[int]] = {}
    for position, node in enumerate(inputs):
        for storage in storages_of(node):
            if storage in written:
                groups.setdefault(storage, []).append(position - first)
    shared = [group for group in groups.values() if len(group) > 1 and min(group) >= 0]
    if shared:
        raise SharedMemoryError(shared)


def refuse_shared_memory(
    recording: RecordedFunction, state: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor]
) -> None:
    """Refuse a call in which memory that is written to is also that of another tensor, in a way that graphs don't
    know: an argument that is state of the module as well, or two tensors over the same memory of somebody else's."""
    count = len(state)
    written = {write.position for write in recording.writes}
    held = {tensor.untyped_storage()._cdata: position for position, tensor in enumerate(state)}
    spans: list[tuple[int, int, int]] = []
    for position, tensor in enumerate(inputs, count):
        storage = tensor.untyped_storage()
        other = held.get(storage._cdata)
        if other is not None and (position in written or other in written):
            raise MutationError(
                "an argument shares memory with state that the function uses, and the function writes to it",
                remedy="pass a copy (clone())",
            )
        if storage.nbytes() and type(tensor) in (torch.Tensor, torch.nn.Parameter) and not tensor.is_meta:
            spans.append((storage.data_ptr(), storage.data_ptr() + storage.nbytes(), position))
    spans.sort()
    end, last = 0, 0
    for start, stop, position in spans:
        if start < end and (position in written or last in written):
            if inputs[position - count].untyped_storage()._cdata != inputs[last - count].untyped_storage()._cdata:
                raise MutationError(
                    "two arguments lie in the same memory without sharing a storage, and the function writes to it",
                    remedy="pass copies (clone()), or views of one tensor",
                )
        if stop > end:
            end, last = stop, position


def _return_copies(capture: FunctionCapture, values: list[Node], new_values: set[Node]) -> None:
    """Let views of a buffer to which the function assigned another tensor be results: they are copies by now."""
    count = len(capture.results)
    known = {*values[:count], *placeholders(capture.graph), *new_values}
    views = values[count : count + len(capture.views)]
    copies = {i for i, view in enumerate(views) if known.isdisjoint(bases_of_view(view))}
    if not copies:
        return
    fakes = list(capture.views)
    kept = [i for i in range(len(views)) if i not in copies]
    for plan in capture.plans:
        if plan.kind != "view":
            continue
        if plan.value in copies:
            if plan.requires_grad:
                raise CaptureError(
                    "the function returns a view of a buffer that has a history, and assigns another tensor to the "
                    "buffer",
                    remedy="return a copy: clone()",
                )
            capture.results.append(fakes[plan.value])
            values.insert(len(capture.results) - 1, views[plan.value])
            plan.kind, plan.value = "result", len(capture.results) - 1
        else:
            plan.value = kept.index(plan.value)
    capture.views = [fakes[i] for i in kept]
    first = len(capture.results)
    values[first : first + len(views)] = [views[i] for i in kept]


def _state(captured: CapturedGraph, inputs: list[Node]) -> list[tuple[InputSpec, Node]]:
    pairs = zip(captured.input_specs, inputs, strict=False)
    return [(spec, node) for spec, node in pairs if spec.kind is not InputKind.USER_INPUT]


def _state_source(capture: FunctionCapture, spec: InputSpec, node: Node) -> str | torch.Tensor | torch.ScriptObject:
    if spec.kind is InputKind.CUSTOM_OBJ:
        return capture.constants[str(spec.target)]
    is_state = spec.kind in (InputKind.PARAMETER, InputKind.BUFFER) and spec.target not in capture.found_elsewhere
    return str(spec.target) if is_state else capture.state_tensors[node]


def _own_results(
    captured: CapturedGraph, fakes: list[FakeTensor], values: list[Node], new_values: set[Node]
) -> list[Node]:
    """Results that are tensors of their own, laid out in memory as in the program: a constant, a view, or what is
    another result or the new value of an input too, is copied."""
    emit = Emitter(captured.graph, captured.context)
    emit.at = output_node(captured.graph)
    own: list[Node] = []
    taken = set(new_values)
    for fake, value in zip(fakes, values, strict=False):
        node = laid_out(emit, value, fake.info)
        if node.op == "placeholder" or node in taken or base_of(node) is not None:
            node = emit.call(aten.clone.default, node)
        own.append(node)
        taken.add(node)
    return own


def _keeps_gradient(fake: FakeTensor) -> bool:
    return fake.keeps_gradient and not fake.is_leaf


def _geometry_changes(capture: FunctionCapture) -> list[GeometryChange]:
    changes = []
    for fake, func, rest in capture.recorder.geometry_changes:
        changes.append(GeometryChange(capture.arguments.positions[id(fake)], func, rest))
    return changes


def _with_position(plan: OutputPlan, index: dict[Node, int]) -> OutputPlan:
    return dataclasses.replace(plan, value=index[plan.value]) if plan.kind == "state" else plan
