"""Running compiled graphs so that nobody can tell them from eager mode.

The forward graph computes new values; it writes to nothing and returns no views. An ``autograd.Function`` runs it and
the backward graph. What eager mode would have done to the caller's tensors happens around it, with autograd watching:
new values are copied into inputs, and outputs that share memory are made as views of what they share it with.
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from tintype import tree
from tintype.aot.recorded_function import OutputPlan, RecordedFunction
from tintype.errors import BackwardRefusedError, CaptureError
from tintype.export.owned_state import as_replacement, write_untracked
from tintype.fake.info import TensorInfo, preserved_strides
from tintype.fake.tensor import FakeTensor, describe, is_symbolic
from tintype.ir.graph import (
    LazyGraphModule,
    add_placeholder,
    append_call,
    copy_graph,
    forward_of,
    graph_module,
    meta_of,
    output_node,
    placeholders,
)
from tintype.ir.node_info import NodeMeta
from tintype.ir.operators import declaration_of
from tintype.ir.signature import StateWrite
from tintype.transforms.absent_tangents import leave_out
from tintype.transforms.partition import Partition
from tintype.transforms.rebasing import chain_of_views, make_again

aten = torch.ops.aten


def compile_module(graph: Graph, compiler: Callable[[GraphModule, list[Any]], Any]) -> Callable[..., Any]:
    """What a compiler makes of a graph."""
    examples = [node.meta.get("val") for node in placeholders(graph)]
    module = graph_module(graph, "CompiledGraph")
    run: Callable[..., Any] = compiler(module, examples)
    return forward_of(module) if run is module else run


class CompiledGraphs:
    """What one recording was compiled into: a forward, and a backward where gradients are wanted."""

    def __init__(
        self,
        recording: RecordedFunction,
        partition: Partition | None,
        forward: Callable[..., Any],
        compile_backward: Callable[[Graph], Callable[..., Any]],
        epilogue: Epilogue,
    ) -> None:
        self.recording = recording
        self.partition = partition
        self.forward = forward
        self.saved_tensors = 0 if partition is None else partition.saved_tensors
        self.backward: Callable[..., Any] | None = None
        if partition is not None:
            # a compiler may change the graph that it gets
            self._backward_graph = copy_graph(partition.backward) if len(recording.tangents) > 1 else None
            self.backward = compile_backward(partition.backward)
        self._compile_backward = compile_backward
        # backwards without the tangents of results that a caller had no use for
        self._partial: dict[frozenset[int], Callable[..., Any]] = {}
        self.epilogue = epilogue
        # whether what is returned is the function's result and what became of its arguments
        self.changes_arguments = False
        # containers of the caller's in that, by their places
        self.returned: dict[tree.Path, int] = {}
        self.unflatten = tree.unflattener(recording.out_spec)
        self.value_count = len(recording.writes) + len(recording.results) + epilogue.number_count
        self.has_gradients = self.backward is not None or recording.backward_error is not None
        differentiable = set(recording.tangents)
        self.constant_values = [i for i in range(self.value_count) if i not in differentiable]
        values = [*(write.value for write in recording.writes), *recording.results]
        self.tangent_infos = [_tangent_info(values[position]) for position in recording.tangents]
        self.sizes_from_data = any(map(is_symbolic, self.tangent_infos))

    def run(
        self,
        inputs: Sequence[torch.Tensor],
        arguments: Sequence[Any],
        state: StateAccess,
        unaware: Sequence[torch.Tensor] = (),
    ) -> Any:
        """The function's outputs, for the inputs of the graph and the caller's own arguments.

        ``unaware`` are arguments that are written to behind autograd's back."""
        if self.has_gradients and not torch.is_grad_enabled():
            # parts of the function ran with gradients enabled, whatever the mode around it
            with torch.enable_grad():
                outputs = self._run(inputs, arguments, state, unaware)
        else:
            outputs = self._run(inputs, arguments, state, unaware)
        if torch.is_grad_enabled() != self.recording.grad_enabled_after:
            torch.set_grad_enabled(self.recording.grad_enabled_after)
        return self.unflatten(outputs)

    def backward_without(self, absent: frozenset[int]) -> Callable[..., Any]:
        """The backward if some tangents are not there; compiled when it is first needed."""
        if not absent:
            assert self.backward is not None
            return self.backward
        if absent not in self._partial:
            assert self._backward_graph is not None
            graph = copy_graph(self._backward_graph)
            tangents = placeholders(graph)[-len(self.recording.tangents) :]
            leave_out(graph, self.recording.captured.context, tangents, [tangents[number] for number in absent])
            self._partial[absent] = self._compile_backward(graph)
        return self._partial[absent]

    def _run(
        self, inputs: Sequence[torch.Tensor], arguments: Sequence[Any], state: StateAccess, unaware: Sequence[Any]
    ) -> list[Any]:
        for position in self.recording.new_leaves:
            inputs[position].requires_grad_()
        for position in self.recording.kept_gradients:
            arguments[position].retain_grad()
        with _autocast_off():
            if self.backward is not None:
                values = CompiledFunctionNode.apply(self, *inputs)
            elif self.recording.backward_error is not None:
                values = _NodeWithoutBackward.apply(self, *inputs)
            else:
                with torch.no_grad():
                    values = tuple(self.forward(*inputs))
        for position in self.recording.detached_first:
            inputs[position].detach_()
        views = self.epilogue.run(inputs, values, state)
        for position in self.recording.detached:
            inputs[position].detach_()
        for tensor in unaware:
            torch.autograd.graph.increment_version(tensor)
        outputs = self._outputs(inputs, arguments, values[len(self.recording.writes) :], views)
        for change in self.recording.geometry_changes:
            change.operator(arguments[change.position], *change.arguments)
        return outputs

    def _outputs(self, inputs: Any, arguments: Any, results: Any, views: Any) -> list[Any]:
        outputs: list[Any] = []
        sources = {"argument": arguments, "state": inputs, "result": results, "view": views, "same": outputs}
        for plan in self.recording.plans:
            if plan.kind == "constant":
                outputs.append(plan.value)
                continue
            value = sources[plan.kind][plan.value]
            if plan.history is not None:
                value = _ViewWithHistory.apply(value, results[plan.history])
            elif plan.kind in ("view", "result"):
                value = _with_history(value, plan)
            if plan.keeps_gradient and value.requires_grad:
                value.retain_grad()
            if plan.is_parameter:
                value = torch.nn.Parameter(value.detach(), plan.requires_grad)
            outputs.append(value)
        return outputs


class _ViewWithHistory(torch.autograd.Function):
    """A view with the history of a value that is the same, but was computed: by a ``torch.autograd.Function`` that
    returns a view of its input, or by a write to what had been detached."""

    @staticmethod
    def forward(ctx: Any, view: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        return view.detach()

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return None, gradient


def _with_history(value: torch.Tensor, plan: OutputPlan) -> torch.Tensor:
    """A tensor that autograd knows of, or does not know of, as eager mode has it."""
    if value.requires_grad and not plan.requires_grad:
        return value.detach()
    if not plan.requires_grad or not torch.is_grad_enabled():
        return value
    if value.requires_grad and not plan.is_cut_off and not (plan.is_leaf and value.grad_fn is not None):
        return value
    # gradients flow to this tensor, and end there
    leaf = value
    if value.requires_grad:
        with torch.no_grad():
            leaf = value.view_as(value)
    if leaf is value or not leaf.requires_grad:  # a view of a view has no history of its own
        leaf = value.detach().requires_grad_()
    return leaf if plan.is_leaf else leaf.view_as(leaf)


def _tangent_info(node: Node) -> TensorInfo:
    value = node.meta["val"]
    assert type(value) is FakeTensor
    return _layout_of_gradient(value.info)


def _layout_of_gradient(info: TensorInfo) -> TensorInfo:
    return TensorInfo(info.sizes, preserved_strides(info.sizes, info.strides), info.dtype, info.device)


class CompiledFunctionNode(torch.autograd.Function):
    """The forward and the backward graph as one step of autograd's graph."""

    @staticmethod
    def forward(ctx: Any, compiled: CompiledGraphs, *inputs: torch.Tensor) -> Any:
        """Run the forward graph and keep what the backward graph needs."""
        values = list(compiled.forward(*inputs))
        count = compiled.value_count
        saved = values[count : count + compiled.saved_tensors]
        ctx.compiled = compiled
        ctx.numbers = values[count + compiled.saved_tensors :]
        ctx.tangent_infos = compiled.tangent_infos
        if compiled.sizes_from_data:
            ctx.tangent_infos = [_layout_of_gradient(describe(values[i])) for i in compiled.recording.tangents]
        ctx.save_for_backward(*saved)
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(
            *(values[i] for i in compiled.constant_values if isinstance(values[i], torch.Tensor))
        )
        return tuple(values[:count])

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """Run the backward graph."""
        compiled: CompiledGraphs = ctx.compiled
        recording = compiled.recording
        incoming = [gradients[position] for position in recording.tangents]
        results: list[Any] = [None] * (recording.input_count + 1)
        if all(gradient is None for gradient in incoming):
            return tuple(results)
        absent = frozenset(number for number, gradient in enumerate(incoming) if gradient is None)
        tangents = [
            _as_expected(gradient, info)
            for gradient, info in zip(incoming, ctx.tangent_infos, strict=True)
            if gradient is not None
        ]
        values = (*ctx.saved_tensors, *ctx.numbers, *tangents)
        if torch.is_grad_enabled() and any(isinstance(v, torch.Tensor) and v.requires_grad for v in values):
            found = _BackwardNode.apply(compiled, absent, *values)
        else:
            found = run_backward(compiled, absent, values)
        for position, gradient in zip(recording.gradient_inputs, found, strict=True):
            results[position + 1] = gradient
        return tuple(results)


def run_backward(compiled: CompiledGraphs, absent: frozenset[int], values: Sequence[Any]) -> tuple[Any, ...]:
    """The gradients, from saved values and the tangents that are there."""
    with torch.no_grad(), _autocast_off():
        return tuple(compiled.backward_without(absent)(*values))


class _NodeWithoutBackward(torch.autograd.Function):
    """A forward graph whose backward eager mode would refuse."""

    @staticmethod
    def forward(ctx: Any, compiled: CompiledGraphs, *inputs: torch.Tensor) -> Any:
        ctx.message = compiled.recording.backward_error
        values = tuple(compiled.forward(*inputs))
        ctx.mark_non_differentiable(
            *(values[i] for i in compiled.constant_values if isinstance(values[i], torch.Tensor))
        )
        return values

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        raise BackwardRefusedError(
            ctx.message,
            remedy="write to a copy (clone()) of what gradients are computed from: the backward of a compiled "
            "function is that of all its results and of all branches",
        )


class _BackwardNode(torch.autograd.Function):
    """A backward of which somebody wants the gradient (``create_graph=True``): it runs, but has none itself."""

    @staticmethod
    def forward(ctx: Any, compiled: CompiledGraphs, absent: frozenset[int], *values: Any) -> Any:
        return run_backward(compiled, absent, values)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        raise CaptureError(
            "the second derivative of a compiled function was asked for, whose backward graph has no gradient (torch "
            "says of its own that torch.compile with aot_autograd does not currently support double backward)",
            remedy="take both derivatives inside of the compiled function, with torch.autograd.grad(..., "
            "create_graph=True), or call the function itself where the second one is needed",
        )


def _as_expected(gradient: torch.Tensor, info: TensorInfo) -> torch.Tensor:
    """A gradient from outside laid out in memory as the backward graph expects it."""
    sizes: Any = info.sizes
    strides: Any = info.strides
    if gradient.stride() == strides and not gradient.is_conj() and not gradient.is_neg():
        return gradient
    return torch.empty_strided(sizes, strides, dtype=info.dtype, device=info.device).copy_(gradient)


def _autocast_off() -> contextlib.AbstractContextManager[Any]:
    """Conversions by autocast are part of the graphs: it must not convert again when they run."""
    return torch._C._DisableAutocast()


# --- around the graphs ---------------------------------------------------------------------------------------


class StateAccess:
    """The tensors of a module by path, to be read and replaced."""

    def __init__(self, root: torch.nn.Module | None) -> None:
        self._root = root

    def table(self, path: str) -> tuple[dict[str, Any], str]:
        """The table of a module that holds a tensor, and its name there."""
        assert self._root is not None
        owner, _, name = path.rpartition(".")
        module = self._root.get_submodule(owner) if owner else self._root
        return (module._parameters if name in module._parameters else module._buffers), name

    def get(self, path: str) -> torch.Tensor:
        """The tensor at a path."""
        table, name = self.table(path)
        return table[name]

    def replace(self, path: str, value: torch.Tensor) -> None:
        """Give a module another tensor at a path."""
        table, name = self.table(path)
        table[name] = as_replacement(table[name], value)


class Epilogue:
    """What happens to the caller's tensors after the forward graph ran: writes, and the views that are outputs.

    It is a graph, from the inputs and the values that the forward graph returned to the views, which runs with
    autograd on. ``numbers`` are nodes of the joint graph that the forward graph has to return as well.
    """

    def __init__(self, recording: RecordedFunction) -> None:
        self.recording = recording
        self.graph = Graph()
        self.numbers: list[Node] = []
        self._values: dict[Node, Node] = {}
        # what stands for a value, and how much further from the start of its memory it begins, in bytes
        self._bases: dict[Node, tuple[Node, int]] = {}
        self._input_nodes: list[Node] = []
        self._replaced: list[tuple[str, int]] = []
        self._build()
        self._module = LazyGraphModule({}, self.graph, "Epilogue")
        self._forward: Callable[..., Any] | None = None

    @property
    def number_count(self) -> int:
        """How many numbers the forward graph returns for this."""
        return len(self.numbers)

    def run(self, inputs: Sequence[torch.Tensor], values: Sequence[Any], state: StateAccess) -> Sequence[Any]:
        """Write to the inputs; returns the views."""
        if not self.recording.writes and not self.recording.views:
            return ()
        if self._forward is None:
            self._forward = forward_of(self._module)
        views = self._forward(*inputs, *values)
        for path, position in self._replaced:
            state.replace(path, values[position])
        return views

    def _build(self) -> None:
        recording = self.recording
        graph = recording.captured.graph
        inputs = list(graph.find_nodes(op="placeholder"))[: recording.input_count]
        for node in inputs:
            self._values[node] = add_placeholder(self.graph, node.name, meta_of(node).copy())
            self._bases[node] = (self._values[node], 0)
        self._add_values([write.value for write in recording.writes], "new_value")
        self._add_values(recording.results, "result")
        for original, result in zip(recording.originals, recording.results, strict=True):
            if original is not None:
                self._bases.setdefault(original, self._bases[result])
        for view in recording.views:
            self._need_numbers(view)
        for number, node in enumerate(self.numbers):
            self._values[node] = add_placeholder(self.graph, f"number_{number}", meta_of(node).copy())
        for position, write in enumerate(recording.writes):
            self._write(inputs[write.position], position)
        views = [self._view(node) for node in recording.views]
        self.graph.output(tuple(views)).meta = NodeMeta()

    def _add_values(self, nodes: list[Node], name: str) -> None:
        for number, node in enumerate(nodes):
            new = add_placeholder(self.graph, f"{name}_{number}", meta_of(node).copy())
            self._input_nodes.append(new)
            self._values.setdefault(node, new)
            self._bases.setdefault(node, (new, 0))

    def _write(self, target: Node, position: int) -> None:
        write = self.recording.writes[position]
        value = self._input_nodes[position]
        destination = self._values[target]
        if write.how is StateWrite.REPLACED:
            source = self.recording.state[write.position]
            assert isinstance(source, str)
            self._replaced.append((source, position))
            return
        if write.how is StateWrite.UNTRACKED:
            self._call(write_untracked, destination, value)
        else:
            # a write that autograd did not see in the program (no_grad) must not be seen here
            place = destination if write.tracked else self._call(aten.detach.default, destination)
            if _is_returned_by_graph(write.value):
                value = self._call(aten.clone.default, value)
            self._call(aten.copy_.default, place, value)
        new, old = write.value.meta["val"].info, target.meta["val"].info
        self._bases[write.value] = (destination, (old.offset - new.offset) * old.dtype.itemsize)

    def _call(self, target: Any, *arguments: Any) -> Node:
        return append_call(self.graph, target, arguments, {}, "write", NodeMeta({"val": None}))

    def _need_numbers(self, view: Node) -> None:
        for step in self._chain(view)[0]:
            for argument in step.all_input_nodes:
                is_number = not isinstance(argument.meta.get("val"), (torch.Tensor, tuple, list))
                if is_number and argument not in self._values and argument not in self.numbers:
                    self.numbers.append(argument)

    def _chain(self, view: Node) -> tuple[list[Node], Node]:
        """The operators that lead to a view, last one first, and what they start from."""
        chain, base = chain_of_views(view, self._bases)
        if base is None:
            raise AssertionError(f"the output {view.name!r} is no view of an input or a result")
        return chain, base

    def _view(self, view: Node) -> Node:
        chain, base = self._chain(view)
        if not chain:  # another tensor that is the same view of the memory
            # where nothing has a history, it is what detach() gives: no view, to autograd
            same = aten.alias.default if view.meta["val"].requires_grad else aten.detach.default
            return append_call(self.graph, same, (self._bases[base][0],), {}, "alias", NodeMeta())
        moved, distance = self._bases[base]
        made: dict[Node, Node] = {base: moved}

        def move(step: Node, new: Node) -> None:
            if distance:
                sizes, strides, offset = step.args[1:]
                new.args = (new.args[0], sizes, strides, offset + distance // step.meta["val"].info.dtype.itemsize)

        make_again(self.graph, chain, made, self._values, move)
        return made[view]


def _is_returned_by_graph(node: Node) -> bool:
    """Whether a branch or a loop returned a value: that may be what it was given, the memory that is written to."""
    call = node.args[0] if node.target is operator.getitem else None
    return isinstance(call, Node) and declaration_of(call) is not None


def set_outputs(recording: RecordedFunction, numbers: Sequence[Node]) -> int:
    """Let the joint graph return new values of inputs, results and numbers, then gradients; returns how many
    values."""
    values = [*(write.value for write in recording.writes), *recording.results, *numbers]
    output_node(recording.captured.graph).args = ((*values, *recording.gradients),)
    return len(values)
