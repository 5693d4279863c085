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
from collections.abc import Callable
from typing import Any

import torch
from torch.fx import Graph, Node

from tintype.errors import Location, MutationError, TintypeError, raise_all
from tintype.fake.context import FakeContext
from tintype.fake.info import Storage, TensorInfo
from tintype.fake.tensor import FakeTensor, make_fake
from tintype.ir.graph import eliminate_dead_code, meta_of, name_in_order, output_node
from tintype.ir.signature import InputKind, InputSpec, OutputKind, OutputSpec, TensorArgument
from tintype.trace.plan import functional_counterpart, plan_for
from tintype.transforms.emit import Emitter, evaluate, info_of
from tintype.transforms.views import SCATTER, SEVERAL, reshape, with_geometry

aten = torch.ops.aten

# Operators with a functional form of their own: (pass, node) -> None, having replaced or kept the node.
Rewrite = Callable[["Functionalization", Node], None]
REWRITES: dict[Any, Rewrite] = {}

# What to do with an operator that writes and has no functional counterpart; ops/ registers it.
WITHOUT_COUNTERPART: list[Rewrite] = []


class Handle:
    """One tensor of the program: the node that made it, what it is a view of, and its latest value."""

    __slots__ = ("parent", "source", "storage", "value", "version")

    def __init__(self, source: Node, storage: Storage, parent: Handle | None) -> None:
        self.source = source
        self.storage = storage
        self.parent = parent
        self.value = source
        self.version = 0


class Functionalization:
    """The state of one pass."""

    def __init__(self, graph: Graph, context: FakeContext, input_specs: list[InputSpec]) -> None:
        self.graph = graph
        self.context = context
        self.input_specs = input_specs
        self.emit = Emitter(graph, context)
        self.problems: list[TintypeError] = []
        self.written = written_storages(graph)
        self.handles: dict[Node, Handle] = {}
        self.versions: dict[Storage, int] = dict.fromkeys(self.written, 0)
        self.bases: dict[Storage, Handle] = {}
        # results of conversions that changed nothing, by their source; stale once the source is written to
        self.unchanged_copies: dict[Storage, list[Storage]] = {}
        self.stale_copies: set[Storage] = set()
        self.replaced: list[Node] = []
        self.changed: set[Node] = set()

    # --- the sweep -----------------------------------------------------------------------------------------

    def run(self) -> list[OutputSpec]:
        """Rewrite the graph; returns the specs of the outputs that carry new values of inputs."""
        for node in list(self.graph.nodes):
            if node.op == "output":
                self._read_arguments(node)
                continue
            if node.op == "placeholder":
                self._enter_placeholder(node)
                continue
            rewrite = REWRITES.get(node.target)
            if rewrite is not None:
                self.emit.at = node
                self._read_arguments(node)
                rewrite(self, node)
            elif self.written and node.op == "call_function":
                self._visit(node)
        raise_all(self.problems)
        specs = self._mutation_outputs()
        for node in reversed(self.replaced):
            self.graph.erase_node(node)
        eliminate_dead_code(self.graph)
        if self.replaced:
            name_in_order(self.graph)
            for spec, node in zip(specs, output_node(self.graph).args[0], strict=False):  # type: ignore[arg-type]
                spec.arg = TensorArgument(node.name)  # type: ignore[union-attr]
        return specs

    def _visit(self, node: Node) -> None:
        self.emit.at = node
        self._note_frozen(node)
        target = node.target
        if isinstance(target, torch._ops.OpOverload):
            plan = plan_for(target)
            if plan.writes:
                self._write(node, plan.writes)
                return
        parent = self._viewed(node)
        self._read_arguments(node)
        value = node.meta.get("val")
        if type(value) is FakeTensor and value.info.storage in self.versions:
            self._enter(node, value.info.storage, parent)

    def _enter_placeholder(self, node: Node) -> None:
        for storage in storages_of(node):
            if storage not in self.versions:
                continue
            if storage in self.bases:
                first = self.bases[storage].source
                self.problems.append(
                    MutationError(
                        f"the inputs {first.name!r} and {node.name!r} share memory and the program writes to it",
                        remedy="pass a copy of one of them (clone()), or write to neither",
                    )
                )
            self._enter(node, storage, None)

    def _enter(self, node: Node, storage: Storage, parent: Handle | None) -> Handle:
        handle = Handle(node, storage, parent)
        handle.version = self.versions[storage]
        self.handles[node] = handle
        if parent is None:
            self.bases.setdefault(storage, handle)
        return handle

    def _viewed(self, node: Node) -> Handle | None:
        """The handle that a node is a view of, if it is one over a storage that is written to."""
        value = node.meta.get("val")
        if type(value) is not FakeTensor or value.info.storage not in self.versions:
            return None
        source: Any = node.args[0] if node.target is operator.getitem else node
        for argument in source.all_input_nodes:
            handle = self.handles.get(argument)
            if handle is not None and handle.storage is value.info.storage:
                return handle
        return None

    # --- reading -------------------------------------------------------------------------------------------

    def read(self, handle: Handle) -> Node:
        """The node that holds a handle's current value."""
        if handle.version == self.versions[handle.storage] or handle.parent is None:
            return handle.value
        parent = self.read(handle.parent)
        self._give(handle, self._view_again(handle, parent))
        return handle.value

    def _give(self, handle: Handle, value: Node) -> None:
        handle.value, handle.version = value, self.versions[handle.storage]
        self.handles[value] = handle

    def _view_again(self, handle: Handle, base: Node) -> Node:
        source = handle.source
        if source.target is operator.getitem:
            several = source.args[0]
            index = source.args[1]
            views = self.emit.call(several.target, base, *several.args[1:], **several.kwargs)  # type: ignore[union-attr]
            return self.emit.item(views, index)  # type: ignore[arg-type]
        if source.target in (aten.view.default, aten._reshape_alias.default):
            info = info_of(source)
            assert info is not None
            return reshape(self.emit, base, info.sizes)
        if source.target is aten.as_strided.default:
            assert handle.parent is not None
            wanted = info_of(handle.parent.source)
            assert wanted is not None
            base = with_geometry(self.emit, base, wanted, handle.parent.source)
        return self.emit.call(source.target, base, *source.args[1:], **source.kwargs)

    def _current(self, node: Node) -> Node:
        handle = self.handles.get(node)
        for storage in storages_of(node):
            if storage in self.stale_copies:
                self.problems.append(_stale_copy(node))
        return node if handle is None else self.read(handle)

    def _read_arguments(self, node: Node) -> None:
        """Let a node use current values; work its own value out again where that changes the geometry."""
        moved = False

        def current(argument: Node) -> Node:
            nonlocal moved
            new = self._current(argument)
            if new is not argument or argument in self.changed:
                moved = moved or _differs(argument, new) or argument in self.changed
            return new

        if not self.handles and not self.stale_copies:
            return
        args = torch.fx.node.map_arg(node.args, current)
        kwargs = torch.fx.node.map_arg(node.kwargs, current)
        node.args, node.kwargs = args, kwargs
        if moved and node.op == "call_function":
            self._work_out_again(node)

    def _work_out_again(self, node: Node) -> None:
        old = info_of(node)
        if old is None or not isinstance(node.target, torch._ops.OpOverload):
            return
        if node.target is aten.view.default:
            self._reshape_in_place(node)
            return
        new = evaluate(self.context, node.target, node.args, node.kwargs)
        if type(new) is TensorInfo and new.key() != old.key():
            new.storage = old.storage  # a view of a new value is still the same handle to the program
            new.requires_grad = old.requires_grad
            node.meta = meta_of(node).derived(val=make_fake(new, self.context, node))
            self.changed.add(node)

    def _reshape_in_place(self, node: Node) -> None:
        """A view over a value whose memory is laid out otherwise than the program's: maybe only a copy fits."""
        info = info_of(node)
        assert info is not None
        base: Any = node.args[0]
        value = reshape(self.emit, base, info.sizes)
        if value.target is aten.view.default and value.args[0] is base:
            node.meta = meta_of(node).derived(val=_with_storage(value, info.storage, self.context))
            self.graph.erase_node(value)
        elif value is not base:
            contiguous = value.args[0]
            node.args = (contiguous, *node.args[1:])
            node.meta = meta_of(node).derived(val=_with_storage(value, info.storage, self.context))
            self.graph.erase_node(value)
        self.changed.add(node)

    # --- writing -------------------------------------------------------------------------------------------

    def write(self, handle: Handle, value: Node) -> None:
        """Give a handle a new value, and with it everything it is a view of."""
        storage = handle.storage
        chain: list[tuple[Handle, Node]] = []
        step = handle
        while step.parent is not None:
            chain.append((step, self.read(step.parent)))
            step = step.parent
        self.versions[storage] += 1
        self.stale_copies.update(self.unchanged_copies.get(storage, ()))
        value = self._fit(handle, value)
        self._give(handle, value)
        for view, base in chain:
            value = self._scatter(view, base, value)
            assert view.parent is not None
            self._give(view.parent, value)

    def _fit(self, handle: Handle, value: Node) -> Node:
        """A new value in the dtype of the tensor it is written to."""
        old, new = info_of(handle.source), info_of(value)
        assert old is not None and new is not None
        if new.dtype is not old.dtype:
            value = self.emit.call(aten._to_copy.default, value, dtype=old.dtype)
        if new.sizes != old.sizes:
            value = self.emit.call(aten.expand.default, value, list(old.sizes))
        return value

    def _scatter(self, view: Handle, base: Node, value: Node) -> Node:
        source = view.source
        if source.target is operator.getitem:
            several: Any = source.args[0]
            index: Any = source.args[1]
            return SEVERAL[several.target](self.emit, base, value, several.args[1:], index)
        if source.target in (aten.as_strided.default, aten.unfold.default):
            assert view.parent is not None
            wanted = info_of(view.parent.source)
            assert wanted is not None
            base = with_geometry(self.emit, base, wanted, view.parent.source)
        inverse = SCATTER.get(source.target)
        if inverse is None:
            self.problems.append(
                MutationError(
                    f"the program writes through a view made by {source.target}, which can't be captured",
                    location=location_of(source),
                    remedy="write to the tensor itself, or to a copy (clone()) of the view",
                )
            )
            return base
        if source.kwargs:
            return inverse(self.emit, base, value, (*source.args[1:], *source.kwargs.values()))
        return inverse(self.emit, base, value, source.args[1:])

    def _write(self, node: Node, writes: tuple[int | str, ...]) -> None:
        target: Any = node.target
        written = [node.args[w] if isinstance(w, int) else node.kwargs[w] for w in writes if self._is_given(node, w)]
        handles = [self.handles[n] for n in written if isinstance(n, Node)]
        if any(self._refuse_frozen(handle, node) for handle in handles):
            self._forward(node, handles)
            return
        self._read_arguments(node)
        counterpart = functional_counterpart(target)
        if counterpart is None:
            WITHOUT_COUNTERPART[0](self, node)
            return
        options = {name: value for name, value in node.kwargs.items() if name not in writes}
        value = self.emit.call(counterpart, *node.args, **options)
        values = [value] if len(handles) == 1 else [self.emit.item(value, i) for i in range(len(handles))]
        for handle, new in zip(handles, values, strict=True):
            self.write(handle, new)
        self._forward(node, handles)

    @staticmethod
    def _is_given(node: Node, where: int | str) -> bool:
        return where < len(node.args) if isinstance(where, int) else where in node.kwargs

    def _forward(self, node: Node, handles: list[Handle]) -> None:
        """Let a node that returned what it wrote to stand for the handle from here on."""
        if len(handles) == 1:
            self.handles[node] = handles[0]
        else:
            for user in node.users:
                if user.target is operator.getitem:
                    self.handles[user] = handles[user.args[1]]  # type: ignore[index]
                    self.replaced.append(user)
        self.replaced.append(node)

    def handle_of(self, value: Node) -> Handle:
        """The handle whose current value a node is."""
        return self.handles[value]

    def replace(self, node: Node, value: Node) -> None:
        """Let a new node take an old one's place for all users."""
        old = node.meta.get("val")
        if type(old) is FakeTensor:
            value.meta["val"] = _with_storage(value, old.info.storage, self.context)
            if old.info.storage in self.versions:
                self._enter(value, old.info.storage, None)
        node.replace_all_uses_with(value)
        self.graph.erase_node(node)

    # --- conversions that changed nothing ------------------------------------------------------------------

    def _refuse_frozen(self, handle: Handle, node: Node) -> bool:
        if not handle.storage.frozen:
            return False
        self.problems.append(
            MutationError(
                "cannot mutate tensors with frozen storage: the program writes to the result of a conversion "
                "(to(), float(), ...) that changed nothing, so eager mode would write to the source too",
                location=location_of(node),
                remedy="write to a copy: x.to(..., copy=True) or x.clone()",
            )
        )
        return True

    def _note_frozen(self, node: Node) -> None:
        for storage in storages_of(node):
            if storage.frozen and storage.source is not None:
                self.unchanged_copies.setdefault(storage.source, []).append(storage)

    # --- outputs -------------------------------------------------------------------------------------------

    def _mutation_outputs(self) -> list[OutputSpec]:
        specs: list[OutputSpec] = []
        values: list[Node] = []
        output = output_node(self.graph)
        self.emit.at = output
        by_name = {spec.arg.name: spec for spec in self.input_specs}
        for node in self.graph.find_nodes(op="placeholder"):
            handle = self.handles.get(node)
            if handle is None or self.versions[handle.storage] == 0:
                continue
            spec = by_name[node.name]
            value = self.read(handle)
            target = spec.arg.name if spec.kind is InputKind.USER_INPUT else spec.target
            if spec.kind not in _MUTATION_KINDS:
                self.problems.append(
                    MutationError(
                        f"the program writes to the constant {spec.target!r}",
                        remedy="register it as a buffer: self.register_buffer(name, tensor)",
                    )
                )
                continue
            specs.append(OutputSpec(_MUTATION_KINDS[spec.kind], TensorArgument(value.name), target))
            values.append(value)
        raise_all(self.problems)
        if values:
            output.args = ((*values, *output.args[0]),)  # type: ignore[misc]
        return specs


_MUTATION_KINDS = {
    InputKind.USER_INPUT: OutputKind.USER_INPUT_MUTATION,
    InputKind.BUFFER: OutputKind.BUFFER_MUTATION,
    InputKind.PARAMETER: OutputKind.PARAMETER_MUTATION,
}


def functionalize(graph: Graph, context: FakeContext, input_specs: list[InputSpec]) -> list[OutputSpec]:
    """Rewrite a recorded graph, in place, into one without mutation.

    Returns the specs of the outputs that were added in front of the program's own: new values of buffers and
    inputs that the program wrote to.
    """
    return Functionalization(graph, context, input_specs).run()


def written_storages(graph: Graph) -> set[Storage]:
    """The storages that some node of a graph writes to."""
    written: set[Storage] = set()
    for node in graph.nodes:
        if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
            continue
        plan = plan_for(node.target)
        for where in plan.writes:
            argument = (
                node.args[where] if isinstance(where, int) and where < len(node.args) else node.kwargs.get(str(where))
            )
            if isinstance(argument, Node):
                written.update(storages_of(argument))
        if plan.hidden_writes and node.args[5]:
            for position in plan.hidden_writes:
                argument = node.args[position]
                if isinstance(argument, Node):
                    written.update(storages_of(argument))
    return written


def storages_of(node: Node) -> list[Storage]:
    """The storages of the tensors that a node's value consists of."""
    value = node.meta.get("val")
    if type(value) is FakeTensor:
        return [value.info.storage]  # type: ignore[list-item]
    if isinstance(value, (list, tuple)):
        return [item.info.storage for item in value if type(item) is FakeTensor]  # type: ignore[misc]
    return []


def location_of(node: Node) -> Location | None:
    """The line of the user's program that a node comes from."""
    origin = meta_of(node).origin
    line = origin.user_line() if origin is not None else None
    return Location(*line) if line is not None else None


def _differs(old: Node, new: Node) -> bool:
    a, b = info_of(old), info_of(new)
    return a is not None and b is not None and a.key() != b.key()


def _with_storage(node: Node, storage: Storage | None, context: FakeContext) -> FakeTensor:
    info = info_of(node)
    assert info is not None
    copy = info.view(info.sizes, info.strides)
    copy.storage = storage
    return make_fake(copy, context)


def _stale_copy(node: Node) -> MutationError:
    return MutationError(
        f"{node.name!r} is the result of a conversion (to(), float(), ...) that changed nothing; the program "
        "writes to its source afterwards, which eager mode would show in it",
        location=location_of(node),
        remedy="convert after the write, or make a copy: x.to(..., copy=True)",
    )
