"""Captures a function for a runtime that must behave as eager mode does.

Besides the joint graph, the runtime needs to know what became of the caller's tensors: which were written to, and
which outputs are, or share memory with, inputs, intermediates or each other. All of that is read off the fakes that
the function got and returned.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Sequence
from types import FunctionType
from typing import Any

import torch
from torch.fx import Graph, Node

from tintype import tree
from tintype.aot.arguments import Arguments
from tintype.aot.autograd_graph import refuse_own_zeros, refuse_results_within
from tintype.aot.hooks import KnownHooks, has_hooks, refuse_hooks_of_result
from tintype.aot.recorded_function import OutputPlan
from tintype.errors import CaptureError, MutationError, StateChangedError
from tintype.fake.info import Storage
from tintype.fake.tensor import FakeTensor
from tintype.ir.graph import placeholders
from tintype.ir.node_info import NodeMeta
from tintype.ir.operator_facts import facts_of
from tintype.ir.operators import declaration_of
from tintype.ir.signature import (
    InputKind,
    OutputKind,
    OutputSpec,
    TensorArgument,
)
from tintype.symbolic.bridge import from_torch
from tintype.symbolic.location import location_in
from tintype.trace.capture import CONSTANT_TYPES
from tintype.trace.changed_state import made_at
from tintype.trace.shared_memory import storages_of
from tintype.trace.snapshot import Change, holds_value_of_capture
from tintype.trace.users_code import UsersCode, users_code
from tintype.transforms.emit import location_of
from tintype.transforms.joint import (
    JointCapture,
    JointRecorder,
    NoDerivativeError,
    add_tangent,
)
from tintype.transforms.memory import written_nodes
from tintype.transforms.views import base_of

aten = torch.ops.aten


# what autograd says when a backward is asked for that a program has made impossible
_GRADIENT_MODES = re.compile("A view was created in no_grad mode|don't support automatic differentiation")
_BACKWARD_REFUSED = re.compile("modified by an inplace operation|modified inplace|through the graph a second time")

# what autograd says when it is asked about one of several views of what was written to since
_VIEW_INVALID = re.compile("another view of its base has been modified inplace")


class FunctionRecorder(JointRecorder):
    """Takes note of what happens to the geometry of inputs, too."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.makes_constant = False

    def constant(self, tensor: torch.Tensor) -> FakeTensor:
        """Unlike a tensor that the function found somewhere, one that it made has a value that never changes."""
        self.makes_constant = True
        try:
            return super().constant(tensor)
        finally:
            self.makes_constant = False

    def asks_for_gradients(self, tensors: Sequence[Any]) -> None:
        """The function computes gradients itself: hooks of what it was given would be called, and be part of it."""
        for tensor in () if self.in_backward else tensors:
            # what a transform of torch.func has made of a tensor has no hooks of its own
            if isinstance(tensor, torch.Tensor) and not torch._C._functorch.is_functorch_wrapped_tensor(tensor):
                self.observer.asked_for_hooks(self, tensor)

    def note_geometry_change(self, func: Any, args: Any, kwargs: dict[str, Any]) -> bool:
        """The caller's tensors may be changed so, the model's may not."""
        if type(args[0]) is not FakeTensor or args[0].info.storage.frozen or kwargs:
            return False
        self.geometry_changes.append((args[0], func, tuple(args[1:])))
        return True


class FunctionCapture(JointCapture):
    """Runs a function and differentiates everything that gradients can flow back from."""

    recorder_class: type[FunctionRecorder] = FunctionRecorder
    recorder: FunctionRecorder
    runs_in_eager_modes_place = True

    def __init__(
        self,
        *args: Any,
        with_gradients: bool,
        arguments: Arguments,
        functions: Sequence[FunctionType],
        **options: Any,
    ) -> None:
        self._given_functions = functions
        super().__init__(*args, **options)
        self.with_gradients = with_gradients
        self.arguments = arguments
        self.histories: dict[Node, Any] = {}
        self.hooks = KnownHooks()
        self.found_elsewhere: dict[str, torch.Tensor] = {}
        self.plans: list[OutputPlan] = []
        # what the graph computes for the caller: results of the function, and what outputs are views of
        self.results: list[FakeTensor] = []
        # outputs whose gradients somebody waits for: leaves, and those of which the function asks that they be kept
        self.awaiting: list[FakeTensor] = []
        # positions of the results that gradients flow back from, through some output
        self.differentiable: set[int] = set()
        self.views: list[FakeTensor] = []
        self.sources: list[tuple[Node, torch.Tensor]] = []
        self.started: list[torch.Tensor] = []
        self.tracked: list[Node] = []
        self.new_leaves: list[Node] = []
        self.grad_enabled_after = True
        self.backward_error: str | None = None

    def _run(self, after_inputs: Callable[[], None] | None) -> Any:
        try:
            return super()._run(after_inputs)
        except Exception:
            self.hooks.take_away_others()
            raise

    def _add_state(self, kind: InputKind, target: str, value: Any, persistent: bool | None = None) -> Any:
        fake = super()._add_state(kind, target, value, persistent)
        if isinstance(value, torch.Tensor):
            self.hooks.note(value)
        return fake

    def _users_code(self) -> UsersCode:
        code = users_code((module for _, module in self.modules), self._given_functions)
        return dataclasses.replace(code, places=[])  # what is read is watched, and so are tensors put there

    def _call_root(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        try:
            return super()._call_root(args, kwargs)
        except RuntimeError as error:
            # a result that requires a gradient by one branch may require none in eager mode, by the other one
            if not _GRADIENT_MODES.search(str(error)) or not any(map(declaration_of, self.graph.nodes)):
                raise
            raise CaptureError(
                f"autograd refuses what the function does with the result of a branch or a loop: {error}",
                location=location_in(error),
                remedy="write to a copy: clone()",
            ) from error

    def _can_assign(self, buffer: torch.Tensor, value: FakeTensor) -> bool:
        """Refuse a buffer with a history: the next call's gradients would flow back into this call; and one that was
        written to before, which its owner may still have."""
        if self.recorder.fake_of(buffer).info.storage.written:
            name = self.state.by_id[id(buffer)].target
            self.recorder.problems.append(
                StateChangedError(
                    f"the function writes to the buffer {name!r} and then assigns another tensor to it, which a "
                    "compiled function can't do both",
                    location=self._code.assignment_to(name.rpartition(".")[2]) or made_at(value),
                    remedy=f"write the new value too: self.{name}.copy_(value)",
                )
            )
            return False
        if value.requires_grad and self.with_gradients and not value.is_leaf:
            name = self.state.by_id[id(buffer)].target
            self.recorder.problems.append(
                StateChangedError(
                    f"the function assigns a tensor with a history to the buffer {name!r}, so that gradients would "
                    "flow from one call back into the one before, which a compiled function can't",
                    location=made_at(value),
                    remedy=f"assign it without its history: self.{name} = value.detach()",
                )
            )
            return False
        return super()._can_assign(buffer, value)

    def _stays(self, change: Change) -> bool:
        """The function runs in eager mode's place: what it assigns is assigned, but for tensors, which are fakes."""
        return id(change.before) not in self.state.by_id and not holds_value_of_capture(change.after)

    def _tensor_input(self, node: Node, tensor: torch.Tensor, position: int) -> FakeTensor:
        fake = super()._tensor_input(node, tensor, position)
        self.histories[node] = fake.grad_fn
        return fake

    def lift_constant(self, value: Any) -> Any:
        """A tensor that the function finds somewhere (in a closure, a module) is state, which it may write to."""
        if self.recorder.makes_constant or not isinstance(value, torch.Tensor):
            return super().lift_constant(value)
        target = self._new_constant_name()
        self.constants[target] = self.found_elsewhere[target] = value
        return self._add_state(InputKind.BUFFER, target, value, False)

    # --- gradients -----------------------------------------------------------------------------------------

    def differentiate(self, outputs: Any) -> list[FakeTensor | None]:
        """Record the gradients of written inputs and of results, from one tangent each."""
        self.grad_enabled_after = torch.is_grad_enabled()
        self.hooks.refuse_others(self.arguments.fakes)
        try:
            self._plan_outputs(outputs)
        except RuntimeError as error:
            if not _VIEW_INVALID.search(str(error)):
                raise
            raise MutationError(
                f"the function returns a tensor of which autograd says: {error}",
                remedy="return a copy (clone()) that is made before the write",
            ) from error
        self._note_new_leaves()
        written = self._written_with_history()
        self.tracked = [node for node, _ in written]
        if not self.with_gradients and not written and not self.differentiable:
            return []
        self.started = [value for _, value in written]
        self.started += [self.results[position] for position in sorted(self.differentiable)]
        refuse_results_within(self.awaiting, self.started)
        refuse_own_zeros(self.started)
        self.sources = [
            (node, start)
            for node, real in self.state_tensors.items()
            if (start := self.recorder.start_of(real)) is not None and start.requires_grad
        ]
        self.sources += [(node, leaf) for node, leaf in self.leaves.items() if leaf.requires_grad]
        self.sources += [(node, self.entries[node]) for node in self.new_leaves]
        given = {storage for node in placeholders(self.graph) for storage in storages_of(node)}
        tangents = [add_tangent(self.recorder, value, f"tangents_{i}") for i, value in enumerate(self.started, 1)]
        before = last_node(self.graph)
        try:
            with torch.enable_grad(), self.hooks.silent():
                gradients = self.recorder.differentiate(
                    self.started, tangents, [source for _, source in self.sources]
                )
                self._refuse_late_writes(before, given)
                return gradients
        except RuntimeError as error:
            # of several results, some may have a derivative
            missing = isinstance(error, NoDerivativeError) and len(self.started) == 1
            if not missing and not _BACKWARD_REFUSED.search(str(error)):
                raise
            # to the function itself there is nothing wrong: eager mode raises this when somebody calls backward()
            self.backward_error = str(error.__cause__ if missing else error)
            return []

    def _refuse_late_writes(self, before: Node, given: set[Storage]) -> None:
        """Refuse gradient rules that write to what the function was given: that happens when backward() is called,
        and graphs write to nothing."""
        node = before.next
        while node.op != "root":
            if node.op == "call_function" and isinstance(node.target, torch._ops.OpOverload):
                for argument in written_nodes(node, facts_of(node.target).writes):
                    if not given.isdisjoint(storages_of(argument)):
                        raise MutationError(
                            f"a gradient rule writes to a tensor that the function was given or that the model holds "
                            f"({node.target}), when backward() is called",
                            location=location_of(node),
                            remedy="return the value as a gradient, or collect it in a hook outside of the function",
                        )
            node = node.next

    def _note_new_leaves(self) -> None:
        """Note the inputs that the function made leaves of autograd's graph: ``x.requires_grad_()``."""
        self.new_leaves = [
            node
            for node, fake in self.entries.items()
            if node not in self.leaves and fake.is_leaf and fake.requires_grad
        ]
        views = [
            fake for fake in self.arguments.fakes if id(fake) not in {id(entry) for entry in self.entries.values()}
        ]
        states = [real for real in self.state_tensors.values() if self.recorder.has_new_flag(real)]
        if states or any(view.is_leaf and view.requires_grad for view in views):
            raise MutationError(
                "the function switches gradients on or off (requires_grad_()) for a tensor of the model, or for one "
                "that shares memory with another input",
                remedy="do that outside of the function",
            )

    def _written_with_history(self) -> list[tuple[Node, torch.Tensor]]:
        """The inputs, in order, whose new value gradients flow back from."""
        found: list[tuple[Node, torch.Tensor]] = []
        changed = {id(fake) for fake, _, _ in self.recorder.geometry_changes}
        for node in placeholders(self.graph):
            real = self.state_tensors.get(node)
            fake = self.entries.get(node)
            if fake is not None and id(fake) in changed:
                if fake.requires_grad and fake.info.storage.written:
                    raise _geometry_and_value(node)
            elif real is not None and real.requires_grad and self.recorder.has_new_history(real):
                found.append((node, real))
            elif fake is not None and fake.requires_grad and fake.grad_fn is not self.histories[node]:
                found.append((node, fake))
        return found

    # --- outputs -------------------------------------------------------------------------------------------

    def _plan_outputs(self, outputs: Any) -> None:
        leaves, self.out_tree = tree.flatten(outputs)
        self.alive = leaves  # their identities count
        for leaf in leaves:
            if isinstance(leaf, torch.Tensor) and type(leaf) is not FakeTensor:
                self.recorder.fake_of(leaf)  # one that the function found somewhere is state
        roots = self._roots()
        state = {id(value): node for node, value in self.state_tensors.items()}
        bases: dict[int, int] = {}
        seen: dict[int, int] = {}
        for position, leaf in enumerate(leaves):
            if not isinstance(leaf, torch.Tensor):
                self.plans.append(OutputPlan("constant", _checked_constant(leaf)))
            elif id(leaf) in seen:
                self.plans.append(OutputPlan("same", seen[id(leaf)]))
            elif id(leaf) in self.arguments.positions:
                self.plans.append(OutputPlan("argument", self.arguments.positions[id(leaf)]))
            elif id(leaf) in state:
                self.plans.append(OutputPlan("state", state[id(leaf)]))
            else:
                self.plans.append(self._plan(leaf, roots, bases))
            seen.setdefault(id(leaf), position)

    def _roots(self) -> dict[Storage, tuple[Node, FakeTensor]]:
        """For each piece of memory the tensor that it was made for, with the node that made it."""
        roots: dict[Storage, tuple[Node, FakeTensor]] = {}
        for node in self.graph.nodes:
            value = node.meta.get("val")
            for item in value if isinstance(value, tuple) else (value,):
                if type(item) is FakeTensor:
                    roots.setdefault(item.info.storage, (node, item))
        return roots

    def _plan(self, leaf: torch.Tensor, roots: dict[Storage, Any], bases: dict[int, int]) -> OutputPlan:
        fake = self.recorder.as_fake(leaf)
        source, root = roots.get(fake.info.storage) or (fake.node, fake)
        start = _start_of(fake.node)
        if start.op == "placeholder":  # one of several inputs that may share this memory
            source, root = start, start.meta["val"]
        plan = OutputPlan("view", requires_grad=leaf.requires_grad, is_leaf=leaf.is_leaf)
        plan.is_parameter = isinstance(leaf, torch.nn.Parameter)
        plan.keeps_gradient = fake.keeps_gradient and not leaf.is_leaf
        if plan.keeps_gradient or (plan.is_leaf and plan.requires_grad):
            self.awaiting.append(fake)
            refuse_hooks_of_result(fake)
        from_input = source.op == "placeholder"
        if root is not fake and not from_input and fake.requires_grad and not root.requires_grad:
            # the history begins later than the memory: with what autograd takes for the base
            base = fake._base
            root = base if type(base) is FakeTensor and base.info.storage is fake.info.storage else fake
        if not from_input and id(root) not in bases:
            bases[id(root)] = len(self.results)
            self.results.append(root)
        if root is fake:
            plan.kind, plan.value = "result", bases[id(root)]
            if fake.requires_grad:
                self.differentiable.add(plan.value)
        else:
            plan.value = len(self.views)
            plan.is_cut_off = self._is_cut_off(fake)
            self.views.append(fake)
            has_history = fake.requires_grad and not fake.is_leaf and not plan.is_cut_off
            if has_history and not self._has_history_of(fake, source, root):
                plan.history = len(self.results)
                self.results.append(fake)
                self.differentiable.add(plan.history)
            elif has_history and not from_input:
                self.differentiable.add(bases[id(root)])
        return plan

    def _has_history_of(self, view: FakeTensor, source: Node, root: FakeTensor) -> bool:
        """Whether autograd, too, takes a tensor for a view of what it shares memory with."""
        owner: Any = self.entries.get(source)
        if owner is None:
            owner = self.state_tensors.get(source, root)
        if any(map(has_hooks, _views_on_the_way(view, root))):
            return False
        # along the chain of views, as autograd has it; the one of a view that was written to is another
        origin = owner.grad_fn
        step: Any = view.grad_fn
        while step is not None:
            if step is origin or getattr(step, "variable", None) is owner:
                return True
            # a torch.autograd.Function may return a view of its input and still have a gradient of its own
            if len(step.next_functions) != 1 or isinstance(step, torch._C._FunctionBase):
                return False
            step = step.next_functions[0][0]
        return False

    def _is_cut_off(self, fake: FakeTensor) -> bool:
        """Whether a tensor is a view of a leaf of autograd's graph that is no leaf of the caller's."""
        if not fake.requires_grad or fake.is_leaf:
            return False
        inputs = {id(entry) for entry in self.entries.values()}
        # a node that writes to the state has its fake as its value too
        inputs |= {id(node.meta.get("val")) for node in self.graph.find_nodes(op="placeholder")}
        step = base_of(fake.node)
        while step is not None and step.op != "placeholder":
            value = step.meta.get("val")
            if type(value) is FakeTensor and value.requires_grad and value.is_leaf and id(value) not in inputs:
                return True
            step = base_of(step)
        return False

    def _make_outputs(self, outputs: Any) -> Any:
        gradients = [gradient for gradient in self.gradients if gradient is not None]
        nodes = [fake.node for fake in (*self.results, *self.views, *gradients)]
        self.graph.output(tuple(nodes)).meta = NodeMeta()
        specs = [OutputSpec(OutputKind.USER_OUTPUT, TensorArgument(node.name)) for node in nodes]
        return specs, self.out_tree


def last_node(graph: Graph) -> Node:
    """The last node that there is."""
    return graph._root.prev


def _geometry_and_value(node: Node) -> MutationError:
    return MutationError(
        f"the function gives the input {node.name!r}, which requires a gradient, another geometry and another value",
        remedy="use the operator without the underscore for the geometry (x = x.t())",
    )


def _checked_constant(leaf: Any) -> Any:
    """An output that is no tensor; refuses what is not the same in every call."""
    if leaf is None or isinstance(leaf, CONSTANT_TYPES):
        return leaf
    number = from_torch(leaf) if isinstance(leaf, (torch.SymInt, torch.SymFloat, torch.SymBool)) else None
    if isinstance(number, (int, float, bool)):
        return number
    what = "a number that depends on data" if number is not None else f"a {type(leaf).__name__}"
    raise CaptureError(
        f"the function returns {what}, which a compiled function can't",
        remedy="return tensors, numbers that are the same in every call, strings, None, or containers of them",
    )


def _views_on_the_way(view: FakeTensor, root: FakeTensor) -> list[FakeTensor]:
    """A view and what it is a view of, up to a tensor that is not among them."""
    values = (node.meta.get("val") for node in bases_of_view(view.node) if node is not root.node)
    return [view, *(value for value in values if type(value) is FakeTensor)]


def _start_of(node: Node) -> Node:
    """What a chain of views begins with."""
    *_, start = bases_of_view(node)
    return start


def bases_of_view(node: Node) -> Iterator[Node]:
    """What a node is a view of, and what that is one of, and so on; the node itself first."""
    step: Node | None = node
    while step is not None:
        yield step
        step = base_of(step)
