"""Joint graphs: a program and its gradients in one graph.

A program is recorded with autograd on. Its inputs and parameters require gradients, the C++ engine keeps its graph
over fakes as it does over tensors, and the recorder, which sits below autograd, sees the operators that formulas of
gradients exist for: composite operators arrive as what they consist of. Then ``torch.autograd.grad`` runs, and its
operators are recorded into the same graph. Nothing about gradients is known here: formulas, hooks, custom
``torch.autograd.Function`` classes, in-place rules and version counters are autograd's own.

Two ways lead to a joint graph. :class:`JointCapture` runs the user's program. :func:`joint_of` runs a functional
graph that is there already; control-flow operators use it for the gradients of their branches.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch
from torch.autograd.graph import increment_version
from torch.fx import Graph, GraphModule, Node

from tintype import tree
from tintype.errors import CaptureError, InvalidRequestError, MutationError, TintypeError, UnsupportedInputError
from tintype.fake.context import FakeContext
from tintype.fake.info import Storage, TensorInfo, preserved_strides
from tintype.fake.tensor import FakeTensor, make_fake
from tintype.ir.graph import (
    add_placeholder,
    called_functions,
    calls_of,
    calls_of_any,
    copy_graph,
    eliminate_dead_code,
    is_removable,
    output_node,
    placeholders,
    set_meta,
)
from tintype.ir.node_info import NodeMeta, Origin
from tintype.ir.operator_facts import PROMISES
from tintype.ir.process_switches import collector_paused, onednn_off
from tintype.ir.running import call_node
from tintype.ir.signature import InputKind, InputSpec, TensorArgument
from tintype.symbolic.bridge import from_torch
from tintype.symbolic.expression import Symbol
from tintype.trace.calls import Call
from tintype.trace.capture import Capture
from tintype.trace.capture_failures import explained
from tintype.trace.changed_state import ChangedAboveAutograd, backward_called
from tintype.trace.metadata_writes import changed_view, earlier_view, has_earlier_view, refuse_earlier_views
from tintype.trace.origin import OriginTracker
from tintype.trace.recorder import Recorder
from tintype.trace.recording import Recording
from tintype.trace.replaying import replay_graph
from tintype.trace.sparse.tensor import SparseTensor
from tintype.transforms.drawn_again import number_draws, reuse_draws
from tintype.transforms.functionalize import functionalize
from tintype.transforms.joint_layouts import settle_layouts
from tintype.transforms.real_tensors import RealTensor, hooks_on_saved_tensors_off
from tintype.tree.subclasses import is_wrapper

aten = torch.ops.aten

_running_step = torch._C._current_autograd_node
_next_sequence_number = torch.autograd._get_sequence_nr

# what autograd says where it has no derivative: of some operators; a complex one of a real number (``where`` with
# both); one of other sizes than the argument (``scatter_reduce`` of a part of its source)
_NO_DERIVATIVE = re.compile(
    r"derivative for \S+ is not implemented|Expected isFloatingType\(grad\.scalar_type|returned an invalid gradient"
)

# what it says where there are derivatives, of a program that it does not take once gradients are asked for
_REFUSED = re.compile(r"detached in-place|isDifferentiableType\(")


class NoDerivativeError(CaptureError):
    """Gradients flow through an operator that torch knows no derivative of.

    >>> import torch, tintype
    >>> class Zeta(torch.nn.Module):
    ...     def forward(self, x):
    ...         return torch.special.zeta(x, x).sum()
    >>> try:
    ...     tintype.export_joint(Zeta(), (torch.full((2,), 2.0, requires_grad=True),))
    ... except tintype.NoDerivativeError as error:
    ...     print(error.id)
    no-derivative
    """

    id = "no-derivative"


class JointRecorder(Recorder):
    """A recorder that autograd runs above: it sees the operators of both halves of a joint graph."""

    below_autograd = False
    keeps_conversions = False

    def __init__(self, context: FakeContext, graph: Graph, origins: OriginTracker, **options: Any) -> None:
        super().__init__(context, graph, origins, **options)
        self.in_backward = False
        # what tensors became that got another geometry in place, and whether they are views with a history
        self.became_views: dict[Node, bool] = {}
        # the memory of views that got one, and what they became
        self._changed_views: dict[Storage, Node] = {}
        self._forward_origins: dict[int, Origin] = {}
        self._backward_origins: dict[int, Origin] = {}
        self._real: dict[int, RealTensor] = {}

    # --- where a node comes from ---------------------------------------------------------------------------

    def _origin(self, function: str) -> Origin:
        step = _running_step()
        sequence = _next_sequence_number() - 1
        if step is not None:
            origin = self._backward_origin(step._sequence_nr())
        elif self.in_backward:  # gradients of several uses of a value are added up between two steps
            origin = self._backward_origin(sequence)
        else:
            origin = super()._origin(function)
            if self.replayed is not None:
                origin = origin.of_function(origin.function)
            origin.sequence = sequence
        # autograd numbers a step before its operator runs, so the first operator that is seen is the step's own
        self._forward_origins.setdefault(sequence, origin)
        return origin

    def _backward_origin(self, sequence: int) -> Origin:
        origin = self._backward_origins.get(sequence)
        if origin is None:
            forward = self._forward_origins.get(sequence) or Origin(None, ())
            origin = self._backward_origins[sequence] = forward.of_gradient(sequence)
        return origin

    # --- tensors of the model ------------------------------------------------------------------------------

    def bind(self, real: torch.Tensor, fake: FakeTensor) -> None:
        """Let a fake stand for a real tensor, which is put back as it is now when the capture ends."""
        super().bind(real, fake)
        fake.info.requires_grad = False
        if id(real) not in self._real:
            self._real[id(real)] = RealTensor(real)

    def _write(self, call: Call) -> Any:
        for where in call.plan.writes:
            value = call.argument(where)
            if isinstance(value, (list, tuple)):
                # autograd counts writes to one tensor itself, and leaves those to a list to the kernels that fakes
                # don't have; by the count, views find out that their history is another one
                increment_version(value)
            if isinstance(value, torch.Tensor) and type(value) is not FakeTensor and value._is_view():
                if any(isinstance(other, torch.Tensor) and other.requires_grad for other in call.args):
                    raise MutationError(
                        "the program writes a value with a gradient to a tensor of the model that is a view of "
                        "another one, which a joint graph can't capture",
                        remedy="register the whole tensor as the buffer and write to a slice of it",
                    )
            if self._changed_views:
                self._refuse_changed_views(value, call)
        return super()._write(call)

    def note_became_view(self, tensor: FakeTensor, view: FakeTensor) -> None:
        """A tensor of the program has become a view of what it was."""
        if self.is_recording:
            self.became_views[view.node] = tensor._is_view() and tensor.requires_grad
            if tensor._is_view():
                self._changed_views[view.info.storage] = view.node

    def _refuse_changed_views(self, written: Any, call: Call) -> None:
        """After a write to its memory, autograd makes the history of a view anew by the operator that made it: of one
        that got another geometry since then, gradients would go to other elements."""
        for tensor in written if isinstance(written, (list, tuple)) else (written,):
            changed = self._changed_views.get(tensor.info.storage) if type(tensor) is FakeTensor else None
            if changed is not None and any(
                isinstance(value, torch.Tensor) and value.requires_grad for value in (tensor, *call.args)
            ):
                raise changed_view(changed)

    def has_new_history(self, real: torch.Tensor) -> bool:
        """Whether autograd saw a write to a tensor of the model."""
        return real.grad_fn is not self._real[id(real)].grad_fn

    def start_of(self, real: torch.Tensor) -> torch.Tensor | None:
        """Where gradients that flow to a tensor of the model end; None if the program replaced what was there."""
        start = self._real[id(real)].start
        return None if start is real and self.has_new_history(real) else start

    def has_new_flag(self, real: torch.Tensor) -> bool:
        """Whether the program let a tensor of the model require a gradient, or no longer."""
        return real.is_leaf and real.requires_grad is not self._real[id(real)].requires_grad

    def put_back(self) -> bool:
        """Undo what autograd noted on the model's own tensors: versions, and the history of what was written there.

        Says whether the program called ``backward()``, which gave some of them a gradient."""
        accumulated = any(real.has_new_gradient() for real in self._real.values())
        for real in self._real.values():
            real.put_back()
        return accumulated

    # --- gradients -----------------------------------------------------------------------------------------

    def differentiate(
        self, outputs: Sequence[torch.Tensor], tangents: Sequence[torch.Tensor | None], inputs: Sequence[torch.Tensor]
    ) -> list[Any]:
        """Record the gradients of outputs with respect to inputs; None where there is none. That of a tensor that
        consists of others does so too."""
        if not outputs or not inputs:
            return [None] * len(inputs)
        self.in_backward = True
        self.context.environment.may_deny = _asks_for_any_gradient
        try:
            results = torch.autograd.grad(outputs, inputs, tangents, allow_unused=True)
        except RuntimeError as error:
            if _NO_DERIVATIVE.search(str(error)):
                raise NoDerivativeError(
                    f"{error}, and a joint graph needs it",
                    remedy="keep gradients away from the operator: detach() its argument, or torch.no_grad()",
                ) from error
            if _REFUSED.search(str(error)):
                raise CaptureError(
                    f"autograd can't compute the gradients of this program: {str(error).splitlines()[0]}",
                    remedy="use detach() in place of detach_(), and write no value with a gradient to integers",
                ) from error
            of_capture = explained(error)
            if of_capture is not None:
                raise of_capture from error
            if "use_reentrant=True" not in str(error):
                raise
            raise CaptureError(
                "the program uses torch.utils.checkpoint with use_reentrant=True, which calls backward() inside of "
                "backward() and can't be captured",
                remedy="use checkpoint(..., use_reentrant=False)",
            ) from error
        finally:
            self.in_backward = False
            self.context.environment.may_deny = None
        return [None if result is None else self._gradient(result) for result in results]

    def _gradient(self, gradient: torch.Tensor) -> Any:
        """A gradient as a result of the graph. A sparse one, that of an embedding, is put together there: nothing but
        the end of a graph has sparse values."""
        if not isinstance(gradient, SparseTensor):
            return gradient if is_wrapper(type(gradient)) else self.as_fake(gradient)
        parts = gradient.sparse_parts
        if parts.layout is not torch.sparse_coo:
            raise UnsupportedInputError(f"a gradient of layout {parts.layout} can't be part of a joint graph")
        dense_dim = len(parts.size) - parts.sparse_dim
        values = self.as_fake(parts.values)
        options = {"dtype": values.dtype, "layout": torch.sparse_coo, "device": values.device}
        return self.record_as(
            aten._sparse_coo_tensor_with_dims_and_tensors.default,
            (parts.sparse_dim, dense_dim, list(parts.size), *parts.indices, values),
            {**options, "is_coalesced": parts.coalesced},
            values.info.fresh([from_torch(size) for size in parts.size]),
        )


def _asks_for_any_gradient() -> bool:
    """Whether the formula of an embedding asks if all indices are the padding: else it gives the same gradient."""
    step = _running_step()
    return step is not None and step.name() == "EmbeddingBackward0"


class _Entry(torch.autograd.Function):
    """An input that is itself the result of something: a tensor that the program may write to, unlike a leaf."""

    @staticmethod
    def forward(ctx: Any, leaf: FakeTensor) -> FakeTensor:
        return make_fake(leaf.info, leaf.context, leaf.node)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return gradient


class JointCapture(Capture):
    """A capture of a program with gradients. What is differentiated is up to subclasses: :meth:`differentiate`."""

    recorder_class: type[JointRecorder] = JointRecorder
    recorder: JointRecorder

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.changed = ChangedAboveAutograd(self._code, self.modules)
        self._refuse_wrapped_state()
        # the user's inputs that gradients are wanted for: placeholder -> leaf of autograd's graph
        self.leaves: dict[Node, FakeTensor] = {}
        # the tensors that the program gets for the user's inputs, and those of its own that stand for other inputs
        self.entries: dict[Node, FakeTensor] = {}
        self.state_tensors: dict[Node, torch.Tensor] = {}
        self.with_gradients = True
        self.gradients: list[FakeTensor | None] = []

    def _refuse_wrapped_state(self) -> None:
        """Who runs in eager mode's place is given the model's state tensor by tensor."""
        for name, tensor in self.state.wrapped.items():
            if self.runs_in_eager_modes_place:
                kind = type(tensor)
                raise UnsupportedInputError(
                    f"{name!r} is a {kind.__module__}.{kind.__qualname__}, which consists of other tensors: it can't "
                    "be part of a graph with gradients",
                    remedy="use tintype.export or tintype.export_joint, or let its module make it from plain "
                    "parameters (torch.nn.utils.parametrize)",
                )

    def differentiate(self, outputs: Any) -> list[FakeTensor | None]:
        """Record gradients of what the program returned; the results become further outputs of the graph."""
        raise NotImplementedError

    def _tensor_input(self, node: Node, tensor: torch.Tensor, position: int) -> FakeTensor:
        fake = super()._tensor_input(node, tensor, position)
        fake.info.requires_grad = False  # to the recorder; autograd knows
        if fake.requires_grad:
            self.leaves[node] = fake
            if not tensor.is_leaf:
                with torch.enable_grad():
                    fake = _Entry.apply(fake)
        self.entries[node] = fake
        return fake

    def _add_state(self, kind: InputKind, target: str, value: Any, persistent: bool | None = None) -> Any:
        fake = super()._add_state(kind, target, value, persistent)
        if isinstance(value, torch.Tensor):
            self.state_tensors[fake.node] = value
            fake.info.requires_grad = False
        return fake

    def _run(self, after_inputs: Callable[[], None] | None) -> Any:
        try:
            with torch.set_grad_enabled(self.with_gradients), onednn_off(), hooks_on_saved_tensors_off():
                captured = super()._run(after_inputs)
        finally:
            accumulated = self.recorder.put_back() or any(leaf.grad is not None for leaf in self.leaves.values())
        if accumulated:
            raise backward_called()
        return captured

    def _call_root(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        try:
            outputs = super()._call_root(args, kwargs)
        except RuntimeError as error:
            changed = {} if isinstance(error, TintypeError) else self.recorder.became_views
            for node in (node for node in changed if has_earlier_view(node, changed)):
                raise earlier_view(node) from error  # whose history did not fit the new sizes
            raise
        if self.recorder.became_views:
            refuse_earlier_views(self.graph, self.recorder.became_views, tree.flatten(outputs)[0])
        self.gradients = self.differentiate(outputs)
        number_draws(self.graph, self.recorder.observer.generator_states)
        return outputs

    def _make_outputs(self, outputs: Any) -> Any:
        result = super()._make_outputs(outputs)
        output = output_node(self.graph)
        nodes = [gradient.node for gradient in self.gradients if gradient is not None]
        output.args = ((*output.args[0], *nodes),)  # type: ignore[misc]
        return result


# --- gradients of a graph ------------------------------------------------------------------------------------


@dataclasses.dataclass
class JointGraph:
    """A functional graph that computes values and gradients.

    Its inputs are those of the graph that it was made from, then one tangent per output in ``tangents`` (positions
    among the outputs). Its outputs are those of that graph, ``output_count`` of them, then one gradient per input
    in ``gradients`` (positions among the inputs). Outputs that no gradient flows through have no tangent, inputs that
    none reaches have no gradient.
    """

    graph: Graph
    input_count: int
    output_count: int
    tangents: list[int]
    gradients: list[int]

    def backward(self) -> Graph:
        """The graph from inputs and tangents to gradients alone, which computes what it needs of the forward half."""
        graph = copy_graph(self.graph)
        output = output_node(graph)
        results: Any = output.args[0]
        output.args = (tuple(results[self.output_count :]),)
        self._drop_forward_half(graph)
        return graph

    def _drop_forward_half(self, graph: Graph) -> None:
        """Remove what gradients don't need, effects of the forward half with it: they are had when that runs. The
        layouts that gradients rest on are checked here."""
        layouts = graph.find_nodes(op="call_function", target=aten._assert_tensor_metadata.default)
        later = {*placeholders(graph)[self.input_count :], *layouts}
        for node in graph.nodes:
            if not later.isdisjoint(node.all_input_nodes):
                later.add(node)
        for node in reversed(graph.nodes):
            if (
                node.op in ("call_function", "get_attr")
                and not node.users
                and (node not in later or is_removable(node))
            ):
                graph.erase_node(node)


def joint_of(
    graph: Graph | GraphModule,
    context: FakeContext,
    differentiable: Sequence[bool] | None = None,
    *,
    tangents_for: Sequence[int] | None = None,
    loss: int | None = None,
) -> JointGraph:
    """The joint graph of a functional graph: its values, and gradients from tangents.

    ``differentiable`` says for each input whether its gradient is wanted; by default it is for all tensors of a
    floating or complex dtype. ``tangents_for`` are the positions of the outputs that have tangents; by default all
    that gradients flow through. With ``loss``, the position of a scalar output, gradients are those of that output
    and there are no tangents. The graph that is given stays as it is, the result shares no node with it.

    >>> import torch, tintype
    >>> from tintype.transforms.working_copy import WorkingCopy
    >>> ep = tintype.export(lambda x, y: (x.sin() * y,), (torch.ones(3), torch.ones(3)))
    >>> joint = joint_of(ep.graph, WorkingCopy(ep.context).context, [True, False])
    >>> joint.tangents, joint.gradients
    ([0], [0])
    >>> [str(node.target) for node in joint.backward().nodes if node.op == "call_function"]
    ['aten.mul.Tensor', 'aten.cos.default', 'aten.mul.Tensor']
    """
    if isinstance(graph, GraphModule):
        graph = graph.graph
    with collector_paused():
        return _GraphDifferentiation(graph, context, differentiable, tangents_for, loss).run()


class _GraphDifferentiation:
    """One run of a functional graph with autograd on."""

    def __init__(
        self,
        graph: Graph,
        context: FakeContext,
        differentiable: Sequence[bool] | None,
        tangents_for: Sequence[int] | None,
        loss: int | None,
    ) -> None:
        self.old = graph
        self.context = context
        self.differentiable = differentiable
        self.tangents_for = tangents_for
        self.loss = loss
        self.graph = Graph()
        self.recorder = JointRecorder(context, self.graph, OriginTracker(()))
        self.inputs: list[Any] = []

    def run(self) -> JointGraph:
        recording = Recording(self.recorder)
        with torch.enable_grad(), onednn_off(), recording.answering():
            self._make_inputs()
            with recording:
                outputs = self._run_nodes()
                return self._differentiate(outputs)

    def _make_inputs(self) -> None:
        for position, node in enumerate(placeholders(self.old)):
            new = add_placeholder(self.graph, node.name)
            value = node.meta.get("val")
            if type(value) is FakeTensor:
                value = self._input(new, value.info, position)
            elif isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
                number = from_torch(value)
                if isinstance(number, Symbol):
                    self.recorder.numbers.define(number, new)
            set_meta(new, _with_value(node, value))
            self.inputs.append(value)

    def _input(self, node: Node, info: TensorInfo, position: int) -> FakeTensor:
        info = info.with_storage(None)  # a functional graph does not care which of its inputs share memory
        can = info.dtype.is_floating_point or info.dtype.is_complex
        info.requires_grad = can and (self.differentiable is None or bool(self.differentiable[position]))
        fake = make_fake(info, self.context, node)
        info.requires_grad = False
        self.recorder.numbers.define_sizes(node, info.sizes)
        return fake

    def _run_nodes(self) -> list[Any]:
        return list(replay_graph(self.recorder, self.old, self.inputs, self._run_node))

    def _run_node(self, node: Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if node.op != "call_function":
            raise CaptureError(f"a graph with {node.op} nodes ({node.name!r}) has no joint graph")
        if node.target in PROMISES:
            return self.recorder.record_as(node.target, args, kwargs, None)
        return call_node(node, args, kwargs)

    def _differentiate(self, outputs: list[Any]) -> JointGraph:
        self.recorder.replayed = None
        wanted = range(len(outputs)) if self.tangents_for is None else self.tangents_for
        positions = [i for i in wanted if isinstance(outputs[i], torch.Tensor) and outputs[i].requires_grad]
        started: list[Any]
        tangents: list[Any]
        if self.loss is not None:
            started, tangents, positions = [scalar_loss(outputs[self.loss])], [None], []
        else:
            started = [outputs[i] for i in positions]
            tangents = [self._tangent(output, number) for number, output in enumerate(started)]
        sources = [i for i, value in enumerate(self.inputs) if _wants_gradient(value)]
        gradients = self.recorder.differentiate(started, tangents, [self.inputs[i] for i in sources])
        found = [(i, gradient) for i, gradient in zip(sources, gradients, strict=True) if gradient is not None]
        nodes = [*map(self._node_of, outputs), *(gradient.node for _, gradient in found)]
        self.graph.output(tuple(nodes)).meta = NodeMeta()
        settle_joint_graph(self.graph, self.context)
        return JointGraph(self.graph, len(self.inputs), len(outputs), positions, [i for i, _ in found])

    def _tangent(self, output: torch.Tensor, number: int) -> FakeTensor:
        return add_tangent(self.recorder, output, f"tangents_{number + 1}")

    def _node_of(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return (self.recorder.as_fake(value)).node
        if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            number = from_torch(value)
            return self.recorder.number_node(number) if not isinstance(number, (int, float, bool)) else number
        return value


def scalar_loss(value: Any) -> torch.Tensor:
    """The output that gradients start from; refuses what they can't."""
    problem = None
    if not isinstance(value, torch.Tensor):
        problem = f"is a {type(value).__name__}"
    elif value.numel() != 1:
        problem = f"has the size {list(value.shape)}"
    elif not value.dtype.is_floating_point:
        problem = f"has the dtype {value.dtype}"
    elif not value.requires_grad:
        problem = "does not depend on any parameter or input that requires a gradient"
    if problem is not None:
        raise InvalidRequestError(
            f"the loss must be one floating-point number that gradients flow from, but this output {problem}",
            remedy="return the loss first, or name its position with loss_index",
        )
    return value


def add_tangent(recorder: JointRecorder, output: torch.Tensor, name: str) -> FakeTensor:
    """A further input of a graph that is being recorded: the gradient of what follows with respect to an output."""
    graph = recorder.graph
    last = placeholders(graph)[-1] if placeholders(graph) else graph._root
    node = add_placeholder(graph, graph._graph_namespace.create_name(name, None), after=last)
    known = output.info if type(output) is FakeTensor else recorder.fake_of(output).info
    strides = preserved_strides(known.sizes, known.strides)
    info = TensorInfo(known.sizes, strides, known.dtype, known.device)
    fake = make_fake(info, recorder.context, node)
    set_meta(node, NodeMeta({"val": fake, "tangent": True}))
    return fake


def settle_joint_graph(graph: Graph, context: FakeContext, input_specs: list[InputSpec] | None = None) -> list[Any]:
    """Make a recorded joint graph functional and tidy; returns the specs of outputs that were added for mutations."""
    if input_specs is None:
        input_specs = [
            InputSpec(InputKind.USER_INPUT, TensorArgument(node.name)) for node in graph.find_nodes(op="placeholder")
        ]
    mutations = functionalize(graph, context, input_specs)
    tidy_joint_graph(graph)
    settle_layouts(graph)
    eliminate_dead_code(graph)
    return mutations


def tidy_joint_graph(graph: Graph, keep: Collection[Node] = ()) -> None:
    """Remove ``detach``, since nothing is left that it could keep gradients from, and random numbers that are drawn
    twice, but for those to ``keep``; let every node remember its operator: what a decomposition makes of it will."""
    reuse_draws(graph)
    for node in calls_of_any(graph, (aten.detach.default,)):
        if node not in keep:
            node.replace_all_uses_with(node.args[0])  # type: ignore[arg-type]
            graph.erase_node(node)
    for function in called_functions(graph):
        if isinstance(function, torch._ops.OpOverload):
            for node in calls_of(graph, function):
                node.meta["original_aten"] = function


def _with_value(node: Node, value: Any) -> NodeMeta:
    meta = node.meta if isinstance(node.meta, NodeMeta) else NodeMeta(node.meta)
    return meta.derived(val=value)


def _wants_gradient(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad
