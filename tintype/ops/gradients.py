"""Gradients of operators that take graphs, in joint graphs.

When a program runs, its operators call their graphs on tensors, and autograd sees what the graphs compute. In a joint
graph the operator is one node, so its gradient is one too: autograd is given a function whose backward records it.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from tintype.errors import CaptureError, TintypeError
from tintype.fake.context import FakeContext
from tintype.fake.info import TensorInfo, fresh
from tintype.fake.tensor import FakeTensor
from tintype.ir.graph import (
    add_placeholder,
    copy_graph,
    eliminate_dead_code,
    graph_module,
    graphs_of,
    is_removable,
    output_node,
    placeholders,
    set_meta,
)
from tintype.ir.node_info import NodeMeta
from tintype.ir.operator_facts import facts_of
from tintype.ops.functional import functional_graph
from tintype.symbolic.location import user_location
from tintype.trace.inner import replay
from tintype.trace.metadata_writes import Geometry
from tintype.trace.recorder import Recorder, active_recorder
from tintype.trace.shared_memory import storages_of
from tintype.transforms.absent_tangents import leave_out
from tintype.transforms.emit import Emitter, info_of
from tintype.transforms.joint import JointRecorder, joint_of

aten = torch.ops.aten

# (tangents of the results that are differentiable, None of those that nobody uses; all recorded results) -> gradients
# of the operands that are
Tangents = Sequence[torch.Tensor | None]
Rule = Callable[[Tangents, list[Any]], Sequence[Any]]


def differentiable(recorder: Recorder, operands: Sequence[Any]) -> list[bool]:
    """Which operands gradients are recorded for; none of them outside of joint graphs."""
    if recorder.below_autograd or not torch.is_grad_enabled():
        return [False] * len(operands)
    return [type(value) is FakeTensor and recorder.source_of(value).requires_grad for value in operands]


LEFT_AS_IT_IS = "a loop below torch.no_grad() may make no step and leave a variable as it is"


def refuse_lost_histories(recorder: Recorder, values: Sequence[Any], what: str) -> None:
    """Refuse an operator below ``no_grad`` that may give back what it was given: in eager mode that has its gradient
    still, in a joint graph the result of an operator has none there. ``values`` are those that may be given back."""
    if recorder.below_autograd or torch.is_grad_enabled():
        return
    for value in values:
        if isinstance(value, torch.Tensor) and recorder.source_of(recorder.as_fake(value)).requires_grad:
            raise CaptureError(
                f"{what}, which has a gradient in eager mode and would have none here",
                location=user_location(),
                remedy="let it be a copy that is made there: x = x.clone()",
            )


def having_effect(wanted: Sequence[bool], modules: Sequence[GraphModule], first: int = 0) -> list[bool]:
    """Those of the wanted operands that have a part in what graphs return or write to: no gradient flows to others,
    and to ask for it might fail. Of those before ``first`` nothing is known."""
    used = [False] * len(wanted)
    for module in modules:
        needed: set[Node] = set()
        for node in reversed(module.graph.nodes):
            if _ends_history(node):
                continue
            if node in needed or node.op == "output" or (node.op == "call_function" and not is_removable(node)):
                needed.update(node.all_input_nodes)
        for position, node in enumerate(placeholders(module.graph)):
            used[position] |= node in needed
    return [is_wanted and (position < first or used[position]) for position, is_wanted in enumerate(wanted)]


def _ends_history(node: Node) -> bool:
    """Whether no gradient goes back through a node: it detaches, and nobody writes to its argument through it."""
    return node.target is aten.detach.default and not any(storage.written for storage in storages_of(node))


def results_with_history(module: GraphModule, wanted: Sequence[bool]) -> list[bool]:
    """Which results of a graph a gradient goes back from to one of the wanted inputs."""
    tracked = {node for node, is_wanted in zip(placeholders(module.graph), wanted, strict=True) if is_wanted}
    for node in module.graph.nodes:
        if node.op == "call_function" and node.target is not aten.detach.default:
            tracked.update([node] if not tracked.isdisjoint(node.all_input_nodes) else [])
    return [result in tracked for result in output_node(module.graph).args[0]]  # type: ignore[union-attr]


def histories_after_steps(module: GraphModule, wanted: Sequence[bool], carried: int) -> list[bool]:
    """The same of the graph of a loop, whose first so many results are the inputs of the next step."""
    tracked = list(wanted)
    while True:
        found = results_with_history(module, tracked)
        found[:carried] = [before or after for before, after in zip(tracked, found[:carried], strict=False)]
        if found[:carried] == tracked[:carried]:
            return found
        tracked[:carried] = found[:carried]


def is_real(value: Any) -> bool:
    """Whether a tensor, or the description of one, can have a gradient."""
    return isinstance(value, (torch.Tensor, TensorInfo)) and (value.dtype.is_floating_point or value.dtype.is_complex)


class _Recorded:
    """A recorded call: its results, how many of them the program sees, and the rule of its gradient."""

    def __init__(
        self,
        recorder: Recorder,
        values: list[Any],
        visible: int,
        rule: Rule,
        operands: Sequence[Any],
        histories: Sequence[bool] | None,
    ) -> None:
        self.recorder, self.values, self.visible, self.rule = recorder, values, visible, rule
        self.histories = [True] * visible if histories is None else histories
        self.last: Node = recorder.graph._root._prev
        self.geometry = Geometry(value for value in (*values, *operands) if type(value) is FakeTensor)

    def gradients(self, tangents: Tangents) -> Sequence[Any]:
        """Record the gradient. It computes with what the call was given and returned, whatever was written there and
        whatever geometry it got since."""
        graph = self.recorder.graph
        before = graph._root._prev
        with self.geometry.put_back():
            gradients = self.rule(tangents, self.values)
        emitter = Emitter(graph, self.recorder.context)
        emitter.at = self.last._next
        kept: dict[Node, Node] = {}
        node = before._next
        while node is not graph._root:
            for argument in node.all_input_nodes:
                given = self._before_writes(argument)
                if given <= self.last and any(storage.written for storage in storages_of(given)):
                    if given not in kept:
                        kept[given] = emitter.call(aten.clone.default, given)
                    node.replace_input_with(argument, kept[given])
            node = node._next
        return gradients

    def _before_writes(self, node: Node) -> Node:
        """The node that a tensor was when the call was recorded: a write returns it as another one, and a change of
        its geometry is a view of it."""
        changed = self.recorder.became_views if isinstance(self.recorder, JointRecorder) else ()
        while node > self.last and isinstance(node.target, torch._ops.OpOverload):
            if node not in changed and not facts_of(node.target).in_place:
                break
            node = node.args[0]  # type: ignore[assignment]
        return node


class _Call(torch.autograd.Function):
    """A recorded call, to autograd.

    The recorder keeps the call, and autograd a weak reference: what autograd holds is out of the garbage collector's
    sight, and the results hold what autograd holds.
    """

    none_is_zero = True  # it asks which gradients are there to compute less, not something else

    @staticmethod
    def forward(ctx: Any, call: weakref.ref[_Recorded], *operands: Any) -> Any:
        recorded = call()
        assert recorded is not None
        visible = zip(recorded.values[: recorded.visible], recorded.histories, strict=False)
        tensors = [(value, has_history) for value, has_history in visible if type(value) is FakeTensor]
        ctx.call = call
        ctx.real = [is_real(tensor) for tensor, _ in tensors]
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*(tensor for tensor, has in tensors if not has or not is_real(tensor)))
        return tuple(tensor for tensor, _ in tensors)

    @staticmethod
    def backward(ctx: Any, *tangents: Any) -> Any:
        # the graphs of gradients take contiguous tangents
        given = [tangent if tangent is None else tangent.contiguous() for tangent in chosen(tangents, ctx.real)]
        if all(tangent is None for tangent in given):
            return (None,) * len(ctx.needs_input_grad)
        return (None, *ctx.call().gradients(given))


def with_gradient(
    recorder: Recorder,
    values: list[Any],
    rule: Rule,
    operands: Sequence[Any],
    wanted: Sequence[bool],
    visible: int | None = None,
    histories: Sequence[bool] | None = None,
) -> list[Any]:
    """The results of a recorded call, to autograd the results of a function of the operands that gradients are wanted
    of.

    Results from ``visible`` on are for the rule alone. ``histories`` says which of the others depend on these
    operands; all, unless given."""
    visible = len(values) if visible is None else visible
    sources = [recorder.source_of(operand) for operand in chosen(operands, wanted)]
    recorded = _Recorded(recorder, values, visible, rule, operands, histories)
    recorder.kept.append(recorded)
    results = iter(_Call.apply(weakref.ref(recorded), *sources) or ())
    return [next(results) if type(value) is FakeTensor else value for value in values[:visible]]


# --- the gradient of a graph -----------------------------------------------------------------------------


class Backward:
    """The graph from the inputs of a graph and tangents of its results to the gradients of the inputs.

    It has an input per entry of ``tangents_for`` and a result per input that is ``wanted``, zero where none flows;
    tangents and results are contiguous.
    """

    def __init__(
        self, recorder: Recorder, module: GraphModule, wanted: Sequence[bool], tangents_for: Sequence[int]
    ) -> None:
        self._context = recorder.context
        self._sources = [position for position, is_wanted in enumerate(wanted) if is_wanted]
        self._count = len(tangents_for)
        self.graph, reached = _backward_graph(recorder, module, wanted, tangents_for)
        # by the tangents that are absent: the graph without them, and which of its results a gradient reaches
        self._partial: dict[tuple[int, ...], tuple[GraphModule, list[bool]]] = {(): (self.graph, reached)}

    def of(self, tangents: Tangents) -> GraphModule:
        """The graph for the tangents that are there."""
        return self.without([tangent is None for tangent in tangents])

    def without(self, absent: Sequence[bool]) -> GraphModule:
        """The graph where some tangents are absent."""
        return self._without(absent)[0]

    def reached(self, absent: Sequence[bool]) -> list[bool]:
        """Which results a gradient reaches where some tangents are absent; the others are zero."""
        return self._without(absent)[1]

    def _without(self, is_absent: Sequence[bool]) -> tuple[GraphModule, list[bool]]:
        absent = tuple(number for number, absent in enumerate(is_absent) if absent)
        if absent not in self._partial:
            graph = copy_graph(self.graph.graph)
            inputs = placeholders(graph)
            given = inputs[len(inputs) - self._count :]
            leave_out(graph, self._context, given, [given[number] for number in absent])
            results: Any = output_node(graph).args[0]
            reached = [before and result is not None for before, result in zip(self._partial[()][1], results)]
            self._return_zeros(graph)
            self._partial[absent] = graph_module(graph, "Subgraph"), reached
        return self._partial[absent]

    def _return_zeros(self, graph: Graph) -> None:
        """Where no gradient is left."""
        inputs, output = placeholders(graph), output_node(graph)
        emitter = Emitter(graph, self._context)
        emitter.at = output
        results: Any = output.args[0]
        output.args = (
            tuple(_contiguous(emitter, *pair) for pair in zip(results, map(inputs.__getitem__, self._sources))),
        )


def there(tangents: Tangents) -> list[torch.Tensor]:
    """The tangents that are not absent."""
    return [tangent for tangent in tangents if tangent is not None]


def _backward_graph(
    recorder: Recorder, module: GraphModule, wanted: Sequence[bool], tangents_for: Sequence[int]
) -> tuple[GraphModule, list[bool]]:
    """The graph of :class:`Backward`, and which of its results a gradient reaches."""
    _refuse_random(module)
    forward = graph_module(copy_graph(module.graph), "Subgraph")
    if functional_graph(recorder.context, forward).new_values:
        raise CaptureError(
            "a function that writes to tensors from around it has no gradient in a joint graph",
            location=user_location(),
            remedy="return the new value instead",
        )
    try:
        joint = joint_of(forward, recorder.context, list(wanted), tangents_for=list(tangents_for))
    except RuntimeError as error:
        if isinstance(error, TintypeError):
            raise
        # torch's own parts of an operator ask for sizes, of which only the function itself knows what it decided
        raise CaptureError(
            f"the gradient of a function that an operator takes can't be captured: {error}",
            location=user_location(),
            remedy="do this part outside of the function, or let the sizes be fixed",
        ) from error
    graph = joint.backward()
    _complete_tangents(recorder.context, forward, graph, list(tangents_for), joint.tangents)
    output = output_node(graph)
    emitter = Emitter(graph, recorder.context)
    emitter.at = output
    gradients = dict(zip(joint.gradients, output.args[0], strict=True))  # type: ignore[arg-type]
    inputs = placeholders(graph)
    positions = [position for position, is_wanted in enumerate(wanted) if is_wanted]
    output.args = (tuple(_contiguous(emitter, gradients.get(position), inputs[position]) for position in positions),)
    return graph_module(graph, "Subgraph"), [position in gradients for position in positions]


def gradient_of_call(
    operands: Sequence[Any], wanted: Sequence[bool], backward: Backward, call: Callable[..., Sequence[Any]]
) -> Rule:
    """The gradient of an operator that calls one graph once is another call of it: of the graph of gradients.

    ``call(graph, operands, results)`` records it."""
    gradients = [gradient_info(operand) for operand in chosen(operands, wanted)]

    def rule(tangents: Tangents, _: list[Any]) -> Any:
        return call(backward.of(tangents), [*operands, *there(tangents)], gradients)

    return rule


def real_results(results: Sequence[Any]) -> list[int]:
    """Which results have a gradient."""
    return [index for index, result in enumerate(results) if is_real(result)]


def _contiguous(emitter: Emitter, gradient: Any, source: Node) -> Node:
    if gradient is None:
        return emitter.call(aten.zeros_like.default, source, memory_format=torch.contiguous_format)
    info = info_of(gradient)
    assert info is not None
    if info.is_contiguous():
        return gradient
    return emitter.call(aten.clone.default, gradient, memory_format=torch.contiguous_format)


def _complete_tangents(
    context: FakeContext, forward: GraphModule, graph: Any, wanted: list[int], there: list[int]
) -> None:
    """Give a graph of gradients inputs for all tangents, also those that no gradient flows from."""
    results: Any = output_node(forward.graph).args[0]
    inputs = placeholders(graph)
    first = len(inputs) - len(there)
    last = inputs[first - 1] if first else graph._root
    known = dict(zip(there, inputs[first:], strict=True))
    for position in wanted:
        node = known.get(position)
        if node is None:
            info = info_of(results[position])
            assert info is not None
            node = add_placeholder(graph, graph._graph_namespace.create_name("tangents", None), after=last)
            fake = context.fake_from(fresh(info.sizes, info.dtype, info.device), node)
            set_meta(node, NodeMeta({"val": fake}))
        last = node


def _refuse_random(module: GraphModule) -> None:
    """The gradient of a graph computes the graph again, which would draw other random numbers."""
    for node in module.graph.nodes:
        target = node.target
        if isinstance(target, torch._ops.OpOverload) and torch.Tag.nondeterministic_seeded in target.tags:
            raise CaptureError(
                f"{target} draws random numbers inside of a branch or a loop, whose gradient would draw other ones",
                location=user_location(),
                remedy="draw the random numbers outside and pass them in",
            )
        for _, inner in graphs_of(node):
            _refuse_random(inner)


def without_results(module: GraphModule, count: int) -> GraphModule:
    """A copy of a graph that returns only its first results."""
    graph = copy_graph(module.graph)
    output = output_node(graph)
    results: Any = output.args[0]
    output.args = (tuple(results[:count]),)
    eliminate_dead_code(graph)
    return graph_module(graph, "Subgraph")


def chosen(values: Sequence[Any], wanted: Sequence[bool]) -> list[Any]:
    """The values that are wanted."""
    return [value for value, is_wanted in zip(values, wanted, strict=True) if is_wanted]


def call_graph(module: GraphModule, values: Sequence[Any]) -> tuple[Any, ...]:
    """Record what a graph computes as part of the function that is being recorded."""
    recorder = active_recorder()
    assert recorder is not None
    return replay(recorder, module, values)


def gradient_info(operand: FakeTensor) -> TensorInfo:
    """The gradient of an operand."""
    info = operand.info
    return fresh(info.sizes, info.dtype, info.device)
