"""Functionalization: a program that writes to tensors becomes one that only computes new ones.

A pass over the recorded graph, in its order. Every tensor of the program is a *handle*: a node and those that
return the same tensor after writing to it. Handles over one storage form a tree: a base (an input, or a fresh
result) and views of it, views of those, and so on. For every storage that is written to, the pass knows its
version and the value that each handle last had:

* reading a handle gives its value; one that is out of date is made anew from its base by the same views;
* writing to a handle computes its new value, then the new value of what it is a view of, up to the base.

Only nodes over written storages are touched, and each is visited once.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Mapping
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from tintype.errors import MutationError, TintypeError, raise_all
from tintype.fake.context import FakeContext
from tintype.fake.info import Storage, TensorInfo
from tintype.fake.tensor import FakeTensor
from tintype.ir.graph import (
    base_name,
    calls_of_any,
    eliminate_dead_code,
    name_in_order,
    output_node,
    placeholders,
    take_arguments,
)
from tintype.ir.operator_facts import facts_of
from tintype.ir.process_switches import collector_paused
from tintype.ir.signature import InputKind, InputSpec, OutputSpec, StateWrite, TensorArgument
from tintype.symbolic.sizes import is_zero
from tintype.trace.shared_memory import storages_of
from tintype.transforms import moved_values, refused_writes
from tintype.transforms.doubts import Doubt, Doubts
from tintype.transforms.drawn_again import draws
from tintype.transforms.drawn_in_order import drawn_as_it_lies
from tintype.transforms.drawn_into_gaps import has_gaps, may_have_gaps, normal_with_gaps
from tintype.transforms.emit import Emitter, info_of, location_of
from tintype.transforms.functional_outputs import expose, mutation_outputs
from tintype.transforms.handles import Handle, differs, is_cut_between, memory_of, with_storage
from tintype.transforms.histories import Histories
from tintype.transforms.idle_dropouts import drop_idle_dropouts
from tintype.transforms.layouts import Layouts
from tintype.transforms.memory import written_nodes, written_storages
from tintype.transforms.regions import dissolve_regions
from tintype.transforms.seen_later import is_seen_later
from tintype.transforms.shared_elements import is_given_again, share_elements
from tintype.transforms.views import (
    is_view_of_several,
    lies_within,
    overlaps,
    scatter_strided,
    with_history,
)

aten = torch.ops.aten

# Operators with a functional form of their own: (pass, node) -> None, having replaced or kept the node.
Rewrite = Callable[["Functionalization", Node], None]
REWRITES: dict[Any, Rewrite] = {}

# What to do with an operator that writes and has no functional counterpart; ops/ registers it.
WITHOUT_COUNTERPART: list[Rewrite] = []

# Writes that leave the same in every element, so that elements may share memory.
_SAME_EVERYWHERE = frozenset({aten.fill_.Scalar, aten.fill_.Tensor, aten.zero_.default})

# Operators that compute in the dtype of the tensor that they write to.
_COMPUTED_AS_WRITTEN = frozenset({aten.sum, aten.nansum, aten.mean, aten.prod, aten.cumsum, aten.cumprod})

# Operators that draw random numbers in a tensor's place and have no derivative; those that draw into it have one.
_DRAWN_ANEW = frozenset({aten.bernoulli.p, aten.normal_functional.default})

_FILLED = frozenset({aten.zero.default, aten.fill.Tensor})


class Functionalization:
    """The state of one pass."""

    def __init__(
        self,
        graph: Graph,
        context: FakeContext,
        input_specs: list[InputSpec],
        state_writes: Mapping[str, StateWrite] | None = None,
        constants: Collection[Node] = (),
        shared: Collection[Node] = (),
        *,
        seen_as_bits: bool = False,
        differentiated: bool = True,
    ) -> None:
        self.graph = graph
        self.context = context
        self.input_specs = input_specs
        # inputs that are constants of the program
        names = {spec.arg.name for spec in input_specs if spec.kind is InputKind.CONSTANT_TENSOR}
        self.constants = {*constants, *(node for node in placeholders(graph) if node.name in names)}
        self.emit = Emitter(graph, context, seen_as_bits)
        self.problems: list[TintypeError] = []
        self.is_body = False  # of a function that an operator is given
        self.differentiated = differentiated  # whether autograd sees the results, else whoever runs the graph
        # inputs that get their new value in another way than by a write that autograd sees
        self.state_writes: dict[str, StateWrite] = dict(state_writes or {})
        drop_idle_dropouts(graph)
        self.written = written_storages(graph)
        self.doubts = Doubts(graph, self.written, shared)
        self.layouts = Layouts()
        self.histories = Histories(graph, input_specs)
        self.handles: dict[Node, Handle] = {}
        self.versions: dict[Storage, int] = dict.fromkeys(self.written, 0)
        self.bases: dict[Storage, Handle] = {}
        # results of conversions that changed nothing, by their source; stale once the source is written to
        self.unchanged_copies: dict[Storage, list[Storage]] = {}
        self.stale_copies: set[Storage] = set()
        self.replaced: list[Node] = []
        # nodes whose value lies in memory otherwise than in the program, and, where something rests on it, those that
        # may in another layout
        self.moved: set[Node] = set()
        self.may_move: set[Node] = set()
        self.rests_on_layouts = bool(self.written) and moved_values.rests_on_layouts(graph)
        # how the program had them, and those of them that are views of what nobody writes to
        self.originals: dict[Node, TensorInfo] = {}
        self.geometry: dict[Node, TensorInfo] = {}
        # the graphs that operators take, as they were rewritten
        self.finished: dict[GraphModule, Any] = {}

    # --- the sweep -----------------------------------------------------------------------------------------

    def run(self) -> list[OutputSpec]:
        """Rewrite the graph; returns the specs of the outputs that carry new values of inputs."""
        # where nothing is written to, only calls with a form of their own may have to be rewritten
        concerned = [*calls_of_any(self.graph, REWRITES), output_node(self.graph)]
        for node in list(self.graph.nodes) if self.written else concerned:
            if node._erased:  # the operator that it was a result of was rewritten
                continue
            self.emit.at = node
            if node.op == "output":
                expose(self, node)
                self._read_arguments(node)
                continue
            if node.op == "placeholder":
                self._enter_placeholder(node)
                continue
            rewrite = REWRITES.get(node.target)
            if rewrite is not None:
                self._read_arguments(node)
                rewrite(self, node)
            elif self.written and node.op == "call_function":
                self._visit(node)
        raise_all(self.problems)
        specs = mutation_outputs(self)
        raise_all(self.doubts.write(self.context.environment))
        for node in reversed(self.replaced):
            self.graph.erase_node(node)
        eliminate_dead_code(self.graph)
        moved_values.let_graphs_take_layouts(self)
        if self.replaced:
            name_in_order(self.graph)
            for spec, node in zip(specs, output_node(self.graph).args[0], strict=False):  # type: ignore[arg-type]
                spec.arg = TensorArgument(node.name)
        return specs

    def _visit(self, node: Node) -> None:
        if node in self.handles:  # one of the results of an operator that returns what it wrote to
            return
        self.note_frozen(node)
        target = node.target
        if node in self.doubts.of_call:
            self.doubts.note_copy(node)
        if isinstance(target, torch._ops.OpOverload):
            writes = facts_of(target).writes
            if target is aten.detach_.default:
                self._detach(node)
                return
            if writes:
                self._write(node, writes)
                return
            if is_view_of_several(target) and self._enter_several(node):
                return
        value = node.meta.get("val")
        if type(value) is not FakeTensor or value.info.storage not in self.versions:
            self._read_arguments(node)
            return
        parent = self._viewed(node, value.info.storage)
        if parent is not None:
            self._enter_view(node, parent)
            return
        handle = self._enter(node, value.info, None)
        self._read_arguments(node)
        self.give(handle, node)

    def _enter_placeholder(self, node: Node) -> None:
        value = node.meta.get("val")
        if type(value) is not FakeTensor or value.info.storage not in self.versions:
            return
        first = self.bases.get(value.info.storage)
        if first is not None:
            write = self.written[value.info.storage]
            specs = None if self.is_body else self.input_specs
            self.problems.append(refused_writes.shared_inputs(first.source, node, write, specs))
        self._enter(node, value.info, None)

    def _enter(self, node: Node, info: TensorInfo, parent: Handle | None) -> Handle:
        storage = info.storage
        handle = Handle(node, info, storage, parent)
        handle.version = self.versions[storage]
        self.handles[node] = handle
        if parent is None:
            self.bases.setdefault(storage, handle)
        return handle

    def _viewed(self, node: Node, storage: Storage) -> Handle | None:
        """The handle that a node over a storage is a view of, if it is a view."""
        source: Any = node.args[0] if node.target is operator.getitem else node
        for argument in source.all_input_nodes:
            handle = self.handles.get(argument)
            if handle is not None and handle.storage is storage:
                return handle
        return None

    def _enter_view(self, node: Node, parent: Handle) -> None:
        """A view: kept if its base still has the value it had, made again otherwise."""
        info = info_of(node)
        assert info is not None
        call: Any = node.args[0] if node.target is operator.getitem else node
        base = self.read(parent)
        unchanged = call.args[0] is base and base not in self.moved
        called_on = parent
        if node.target is aten.as_strided.default:
            if self._is_empty(parent.info) and not self._is_empty(info):
                self.problems.append(refused_writes.beyond_base(node))
            parent = memory_of(parent, info)
            base = self.read(parent)
            self.rely_on_layout(parent.source, node)
        handle = self._enter(node, info, parent)
        if called_on is not parent:
            handle.view.is_cut = is_cut_between(called_on, parent)
        handle.doubt = self.doubts.of_call.get(node)
        handle.doubts = dict(parent.doubts)
        if unchanged:
            moved_values.note_layout(self, node)
            handle.viewed = base
            return
        self.make_view(handle, base, is_new=True)
        self.replaced.append(node)

    def _is_empty(self, info: TensorInfo) -> bool:
        """Whether a tensor has no elements in the example."""
        return any(self.context.environment.hint(size) == 0 for size in info.sizes)

    def _enter_several(self, node: Node) -> bool:
        """Several views at once over a storage that is written to: gone if they have to be made again."""
        base: Any = node.args[0]
        handle = self.handles.get(base)
        if handle is None:
            return False
        if self.read(handle) is not base or base in self.moved:
            self.replaced.append(node)
        return True

    # --- reading -------------------------------------------------------------------------------------------

    def read(self, handle: Handle) -> Node:
        """The node that holds a handle's current value."""
        stale: list[Handle] = []
        version = self.versions[handle.storage]
        step = handle
        while step.parent is not None and step.version != version:
            stale.append(step)
            step = step.parent
        for step in reversed(stale):
            assert step.parent is not None
            self.make_view(step, step.parent.value)
            self.inherit_doubts(step)
        return handle.value

    def inherit_doubts(self, handle: Handle) -> None:
        """A handle got what was written to its base: it rests on being a view of it."""
        assert handle.parent is not None
        handle.doubts.update(handle.parent.doubts)
        if handle.doubt is not None:
            handle.doubts[handle.doubt] = None

    def make_view(self, handle: Handle, base: Node, is_new: bool = False) -> None:
        """Give a handle the value that its base's value has for it; ``is_new``: nobody has seen it yet."""
        view = handle.view
        if view.target is aten.as_strided.default and not lies_within(view.info, view.base):
            self.problems.append(refused_writes.beyond_base(handle.source))
            self.give(handle, handle.source)
            return
        before, new = handle.value, view.again(self.emit, base)
        if self.differentiated and view.is_cut and handle.version and not is_new and self.histories.may_exist(before):
            new = with_history(self.emit, before, new)  # its own, by an earlier write
        self.give(handle, new)
        handle.viewed = base

    def give(self, handle: Handle, value: Node) -> None:
        handle.value, handle.version = value, self.versions[handle.storage]
        handle.viewed = None
        if self.rests_on_layouts and handle.version and not self.layouts.is_certain(handle.source):
            self.may_move.add(value)
        # a view of all elements in the same size may have its value in common with its parent
        self.handles.setdefault(value, handle)

    def _current(self, node: Node) -> Node:
        handle = self.handles.get(node)
        if self.stale_copies and any(storage in self.stale_copies for storage in storages_of(node)):
            self.problems.append(refused_writes.stale_copy(node))
        self.doubts.note_read(node)
        if handle is None:
            return node
        value = self.read(handle)
        self.doubts.relied_on.update(handle.doubts)
        return value

    def rely_on_layout(self, tensor: Node, reader: Node) -> None:
        """The program looks at memory as it lies there: it has to lie as in the example. ``reader`` may be a node of
        a graph inside of this one."""
        sources = self.layouts.sources(tensor)
        if sources:
            self.doubts.relied_on[Doubt(reader, sources, [])] = None

    def _read_arguments(self, node: Node) -> None:
        """Let a node use current values; work its own value out again where one has another layout."""
        if not self.handles and not self.stale_copies:
            self.doubts.note_reads(node)
            return
        new = {argument: self._current(argument) for argument in node.all_input_nodes}
        if any(value is not argument for argument, value in new.items()):
            take_arguments(node, *torch.fx.node.map_arg((node.args, node.kwargs), new.__getitem__))
        moved_values.note_layout(self, node)
        moved = any(
            value in self.moved or (value is not argument and differs(argument, value))
            for argument, value in new.items()
        )
        if moved and node.op == "call_function":
            if draws(node):
                moved_values.lay_as_in_program(self, node, new)
            moved_values.work_out_again(self, node)

    # --- writing -------------------------------------------------------------------------------------------

    def write(self, handle: Handle, value: Node) -> None:
        """Give a handle a new value, and with it everything it is a view of."""
        storage = handle.storage
        if storage.frozen and is_seen_later(self, storage):
            self.problems.append(refused_writes.frozen(self.emit.at))
            return
        if handle.parent is not None and any(is_zero(size) for size in handle.info.sizes):
            return  # there is nothing to write to
        if handle.parent is not None and handle.parent.overlapping:
            self._write_to_memory(handle, value)
            return
        chain: list[tuple[Handle, Node]] = []
        step = handle
        while step.parent is not None:
            chain.append((step, self.read(step.parent)))
            step = step.parent
        self.versions[storage] += 1
        self._invalidate_copies(storage)
        self.doubts.note_write(storage)
        value = self._fit(handle, value)
        self.give(handle, value)
        crossed: dict[Doubt, None] = {}
        for view, base in chain:
            assert view.parent is not None
            value = self._scatter(view, base, value)
            self.give(view.parent, value)
            if view.doubt is not None:
                crossed[view.doubt] = None
            view.parent.doubts.update(crossed)

    def _write_to_memory(self, handle: Handle, value: Node) -> None:
        """A write to a view of something expanded: the other copies of its elements must change with it."""
        memory = memory_of(handle, handle.info)
        assert self.emit.at is not None
        self.rely_on_layout(memory.source, self.emit.at)
        value = self._fit(handle, value)
        new = None
        if memory is not handle:
            base = self.read(memory)
            new = scatter_strided(self.emit, base, value, handle.info, memory.info)
            if new is not None and is_cut_between(handle, memory) and self.histories.may_exist(base):
                new = with_history(self.emit, base, new)
        if new is None:
            self.problems.append(refused_writes.written_overlap(self.emit.at))
            return
        self.write(memory, new)
        self.give(handle, value)

    def _fit(self, handle: Handle, value: Node) -> Node:
        """A new value in the dtype of the tensor it is written to."""
        new = info_of(value)
        assert new is not None
        if new.dtype is not handle.info.dtype:
            value = self.emit.call(aten._to_copy.default, value, dtype=handle.info.dtype)
        if new.sizes != handle.info.sizes:
            value = self.emit.call(aten.expand.default, value, list(handle.info.sizes))
        return value

    def _scatter(self, handle: Handle, base: Node, value: Node) -> Node:
        view = handle.view
        if view.is_cut and handle.parent is not None:
            view.has_history |= self.histories.may_exist(handle.parent.source) or self.histories.may_exist(base)
        new = view.scatter(self.emit, base, value)
        if new is not None:
            lost = view.is_cut and not view.has_history and self.histories.may_exist(value)
            return self.emit.call(aten.detach.default, new) if lost else new
        self.problems.append(
            MutationError(
                f"the program writes through a view made by {view.target}, which can't be captured",
                location=location_of(handle.source),
                remedy="write to the tensor itself, or to a copy (clone()) of the view",
            )
        )
        return base

    def _write(self, node: Node, writes: tuple[int | str, ...]) -> None:
        target: Any = node.target
        handles = [self.handles[written] for written in written_nodes(node, writes)]
        problem = self._problem_of(node, handles)
        counterpart = facts_of(target).functional
        if problem is not None:  # go on, to find the other problems
            self.problems.append(problem)
            if counterpart is not None:
                self._forward(node, handles)
                return
        self._read_arguments(node)
        if counterpart is None:
            WITHOUT_COUNTERPART[0](self, node)
            return
        options = {name: value for name, value in node.kwargs.items() if name not in writes}
        if counterpart.overloadpacket in _COMPUTED_AS_WRITTEN and options.get("dtype") is None:
            options["dtype"] = handles[0].info.dtype
        for handle, new in zip(handles, self._new_values(node, counterpart, handles, options), strict=True):
            self.write(handle, new)
        self._forward(node, handles)

    def _detach(self, node: Node) -> None:
        """A tensor loses its history: it has another value from here on, and its views keep theirs until somebody
        writes to it."""
        handle = self.handles[node.args[0]]  # type: ignore[index]
        self.give(handle, self.emit.call(aten.detach.default, self.read(handle)))
        if handle.source.op == "placeholder":
            self.state_writes[handle.source.name] = StateWrite.DETACHED
        self._forward(node, [handle])

    def _new_values(self, node: Node, counterpart: Any, handles: list[Handle], options: dict[str, Any]) -> list[Node]:
        """What a write leaves in the tensors it writes to."""
        if counterpart is aten.copy.default:
            return [self._copied(handles[0], node)]
        if counterpart is aten.normal_functional.default and may_have_gaps(handles[0]):
            self.rely_on_layout(handles[0].source, node)
        if counterpart is aten.normal_functional.default and has_gaps(handles[0].info):
            return [normal_with_gaps(self.emit, handles[0].info, *node.args[1:], **options)]
        if counterpart in _DRAWN_ANEW:
            # what was there has no part in what is drawn; the operators of the same name know no derivative
            tensor = self.emit.call(aten.detach.default, node.args[0])
            if counterpart is aten.bernoulli.p:
                return [drawn_as_it_lies(self.emit, self.layouts, tensor, *node.args[1:], **options)]
            return [self.emit.call(counterpart, tensor, *node.args[1:], **options)]
        if counterpart in _FILLED:
            return [self._filled(counterpart, handles[0].info.dtype, *node.args)]
        if counterpart is aten._foreach_zero.default:  # which has no derivative
            return [self._filled(aten.zero.default, handle.info.dtype, self.read(handle)) for handle in handles]
        if base_name(counterpart).startswith("_foreach_") and any(
            map(self.histories.may_exist, node.all_input_nodes)
        ):
            # one by one: together, all results have a history if one argument has one, which in place they don't
            apart = [[value] * len(handles) if not isinstance(value, (list, tuple)) else
                     [[item] for item in value] for value in node.args]  # fmt: skip
            return [self.emit.item(self.emit.call(counterpart, *one), 0) for one in zip(*apart, strict=True)]
        value = self.emit.call(counterpart, *node.args, **options)
        several = isinstance(value.meta["val"], (list, tuple))
        return [self.emit.item(value, i) for i in range(len(handles))] if several else [value]

    def _problem_of(self, node: Node, handles: list[Handle]) -> MutationError | None:
        """Why a write can't be captured: what it leaves depends on the order in which it writes to elements."""
        if len({handle.storage for handle in handles}) < len(handles):
            return refused_writes.several_writes(node)
        if node.target not in _SAME_EVERYWHERE:
            if any(handle.overlapping and overlaps(handle.info) for handle in handles):
                return refused_writes.written_overlap(node)
        # torch's own operators read an element before they write to it; of others nobody knows
        is_known = facts_of(node.target).only_computes  # type: ignore[arg-type]
        for argument in node.all_input_nodes:
            read = self.handles.get(argument)
            if read is None or (read in handles and (is_known or not is_given_again(node, argument))):
                continue
            for handle in handles:
                if handle.storage is read.storage and share_elements(handle.info, read.info, or_same=not is_known):
                    return refused_writes.read_while_written(node)
        return None

    def _copied(self, handle: Handle, node: Node) -> Node:
        """What ``copy_`` leaves in a tensor: ``aten.copy`` would do, but gradients don't flow through it."""
        source: Any = node.args[1]
        if not isinstance(source, Node):  # a number where the schema says tensor
            return self.emit.call(aten.fill.Scalar, *node.args[:2])
        info = info_of(source)
        assert info is not None
        target = handle.info
        options: dict[str, Any] = {}
        if info.dtype is not target.dtype:
            options["dtype"] = target.dtype
        if info.device != target.device:
            options["device"] = target.device
        value = self.emit.call(aten._to_copy.default, source, **options) if options else source
        if info.sizes != target.sizes:
            value = self.emit.call(aten.expand.default, value, list(target.sizes))
            return self.emit.call(aten.clone.default, value, memory_format=torch.contiguous_format)
        return value if options else self.emit.call(aten.clone.default, value)

    def _filled(self, counterpart: Any, dtype: torch.dtype, tensor: Any, *number: Any) -> Node:
        """One number everywhere, where autograd does not take the operator that has the name of the one in place."""
        if counterpart is aten.zero.default:
            return (
                self.emit.call(aten.fill.Scalar, tensor, 0)
                if dtype.is_complex
                else self.emit.call(counterpart, tensor)
            )
        if not (dtype.is_floating_point or dtype.is_complex):
            number = (self.emit.call(aten._to_copy.default, *number, dtype=dtype),)
        return self.emit.call(counterpart, tensor, *number)

    def _forward(self, node: Node, handles: list[Handle]) -> None:
        """Let a node that returned what it wrote to stand for the handle from here on."""
        self.replaced.append(node)
        if type(node.meta.get("val")) is FakeTensor:
            self.handles[node] = handles[0]
            return
        for user in node.users:
            if user.target is operator.getitem:
                self.handles[user] = handles[user.args[1]]  # type: ignore[index]
                self.replaced.append(user)

    def handle_of(self, value: Node) -> Handle:
        """The handle whose current value a node is."""
        return self.handles[value]

    def stand_for(self, copy: Node, value: Node) -> None:
        """Note that a node has the current value of what another one is, laid out in another way."""
        if value in self.handles:
            self.handles[copy] = self.handles[value]

    def replace(self, node: Node, value: Node) -> None:
        """Let a new node take an old one's place for all users."""
        old = node.meta.get("val")
        if type(old) is FakeTensor:
            value.meta["val"] = with_storage(value, old.info.storage, self.context)
            if differs(node, value):
                self.moved.add(value)
            if old.info.storage in self.versions:
                self._enter(value, old.info, None)
        node.replace_all_uses_with(value)
        self.graph.erase_node(node)

    # --- conversions that changed nothing ------------------------------------------------------------------

    def note_frozen(self, node: Node) -> None:
        """Remember the results of a node that are stale once their source is written to."""
        for storage in storages_of(node):
            if storage.frozen:
                for source in storage.sources:
                    self.unchanged_copies.setdefault(source, []).append(storage)

    def _invalidate_copies(self, storage: Storage) -> None:
        """A write to the source of conversions that changed nothing: eager mode would show it in their results."""
        pending = [storage]
        while pending:
            copies = self.unchanged_copies.pop(pending.pop(), ())
            pending += [copy for copy in copies if copy not in self.stale_copies]
            self.stale_copies.update(copies)


def functionalize(
    graph: Graph,
    context: FakeContext,
    input_specs: list[InputSpec],
    state_writes: Mapping[str, StateWrite] | None = None,
    *,
    differentiated: bool = True,
) -> list[OutputSpec]:
    """Rewrite a recorded graph, in place, into one without mutation and without regions in other modes.

    Returns the specs of the outputs that were added in front of the program's own: new values of buffers and
    inputs that the program wrote to.
    """
    with collector_paused():
        dissolve_regions(graph, context, input_specs)
        return Functionalization(graph, context, input_specs, state_writes, differentiated=differentiated).run()
