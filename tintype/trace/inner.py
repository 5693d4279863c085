"""Recording the functions that an operator takes (branches, loop bodies) as graphs inside of the program's graph.

Such a function is called on fakes of its own. Whatever it uses of its surroundings - tensors and sizes of the program
around it, parameters, constants - becomes an input of its graph, and an operand of the operator.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from tintype import tree
from tintype.errors import CaptureError
from tintype.fake.info import Storage, TensorInfo
from tintype.fake.tensor import FakeTensor, make_fake
from tintype.ir.graph import add_placeholder, set_meta
from tintype.ir.node_info import NodeMeta
from tintype.symbolic.bridge import from_torch, to_torch
from tintype.symbolic.expression import Expr, Symbol
from tintype.symbolic.location import user_location
from tintype.trace.calls import NOT_HANDLED
from tintype.trace.known_values import known_value
from tintype.trace.recorder import Recorder
from tintype.trace.replaying import replay_graph
from tintype.trace.tensor_rows import without_rows

_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


class InnerRecorder(Recorder):
    """Records a function into a graph of its own.

    ``operands`` are the values of the graph around it that its inputs stand for, one per input; None for an input
    that stands for none of them.
    """

    is_inside = True
    # a symbol of the surroundings would have to be handed in
    uses_equalities = False

    def __init__(self, parent: Recorder) -> None:
        super().__init__(
            parent.context,
            Graph(),
            parent.origins,
            lift_constant=self._lift,
            is_for_training=parent.is_for_training,
        )
        self.parent = parent
        self.problems = parent.problems
        self.replayed = parent.replayed
        self.stops_at_branches = parent.stops_at_branches
        self.modes = parent.modes.inside()
        self.observer = parent.observer
        self.state_writes = parent.state_writes
        self.keeps_conversions = parent.keeps_conversions
        self.compares_tensors = parent.compares_tensors
        self.numbers.fetch = self._fetch
        self.function_mode = parent.function_mode
        self.operands: list[Any] = []
        # fakes of this graph by those of the graph around it that they stand for, which are kept alive
        self._locals: dict[int, tuple[Any, FakeTensor]] = {}
        self._last_input: Node | None = None
        self.storages: dict[Storage, Storage] = {}
        self._outer_values: dict[Node, FakeTensor] = {}

    @property
    def outermost(self) -> Recorder:
        """The recorder of the program."""
        return self.parent.outermost if isinstance(self.parent, InnerRecorder) else self.parent

    # --- inputs --------------------------------------------------------------------------------------------

    def add_operand(self, value: Any) -> Any:
        """An input that stands for a tensor or a symbolic number of the graph around; the value to compute with."""
        if isinstance(value, torch.Tensor):
            return self._local(self.parent.as_fake(value))
        if isinstance(value, Node):  # an object
            return self._add_object(value)
        assert isinstance(value, _SYMBOLIC)
        self._add_number(from_torch(value))
        return value

    def add_tensor(self, info: TensorInfo, name: str) -> FakeTensor:
        """An input with memory of its own."""
        node = self._placeholder(name, None)
        fake = make_fake(info, self.context, node)
        set_meta(node, NodeMeta({"val": fake}))
        self.numbers.define_sizes(node, info.sizes)
        return fake

    def add_number(self, number: Expr, name: str) -> Any:
        """An input that is a number of its own."""
        node = self._placeholder(name, None)
        set_meta(node, NodeMeta({"val": to_torch(number)}))
        self.numbers.define_number(number, node)
        return to_torch(number)

    def _placeholder(self, name: str, operand: Any) -> Node:
        unique, count = name, 0
        while unique in self.graph._graph_namespace._used_names:
            count += 1
            unique = f"{name}_{count}"
        node = add_placeholder(self.graph, unique, after=self._last_input or self.graph._root)
        self._last_input = node
        self.operands.append(operand)
        return node

    def _local(self, outer: FakeTensor) -> FakeTensor:
        """The fake that stands for one of the graphs around."""
        known = self._locals.get(id(outer))
        if known is None:
            value = self._of_parent(outer)
            # one that the graph around stands for may be known by that already
            known = (outer, self._locals[id(value)][1] if id(value) in self._locals else self._enter(value))
            self._locals[id(outer)] = known
            self._locals.setdefault(id(value), (value, known[1]))
        return known[1]

    def _of_parent(self, outer: FakeTensor) -> FakeTensor:
        """What stands for a fake in the graph around."""
        if outer.node is None or outer.node.graph is self.parent.graph:
            return outer
        if not isinstance(self.parent, InnerRecorder):
            raise _escaped()
        return self.parent._local(outer)

    def _enter(self, value: FakeTensor) -> FakeTensor:
        node = self._placeholder("arg" if value.node is None else value.node.name, value)
        info = value.info
        fake = make_fake(info.with_storage(self._own_storage(info.storage)), self.context, node)
        set_meta(node, NodeMeta({"val": fake}))
        self._outer_values[node] = value
        self.numbers.define_sizes(node, info.sizes)
        return fake

    def _own_storage(self, outer: Storage) -> Storage:
        """The memory that stands for one outside, for this function alone; what is known of writes outside stays
        outside. What may be an alias of something outside may be one of what stands for that."""
        if outer not in self.storages:
            sources = [self._own_storage(source) for source in outer.sources]
            self.storages[outer] = Storage(
                frozen=outer.frozen, source=sources[0] if sources else None, others=tuple(sources[1:])
            )
        return self.storages[outer]

    def _add_number(self, number: Expr) -> Node:
        outer = self.parent.number_node(number)
        node = self._placeholder("number" if outer is None else outer.name, to_torch(number))
        set_meta(node, NodeMeta({"val": to_torch(number)}))
        self.numbers.define_number(number, node)
        return node

    def _fetch(self, symbol: Symbol) -> Node:
        return self._add_number(symbol)

    def _lift(self, value: Any) -> Any:
        """A tensor or object that is none of the program's values: the program around takes it in first."""
        if isinstance(value, torch.Tensor):
            return self._local(self.parent.fake_of(value))
        return self._add_object(self.parent.lift_constant(value))

    def _add_object(self, outer: Node) -> Node:
        node = self._placeholder(outer.name, outer)
        set_meta(node, NodeMeta({"val": outer.meta["val"]}))
        return node

    # --- using what belongs to the graph around --------------------------------------------------------------

    def localize(self, value: Any) -> Any:
        """Arguments in which tensors of the graphs around are replaced by what stands for them here."""
        kind = type(value)
        if kind is FakeTensor:
            return value if value.node is None or value.node.graph is self.graph else self._local(value)
        if kind is list or kind is tuple:
            return kind([self.localize(item) for item in value])
        return value

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = {name: self.localize(value) for name, value in kwargs.items()} if kwargs else {}
        return super().__torch_dispatch__(func, types, self.localize(args), kwargs)

    def known_value(self, fake: FakeTensor, purpose: str) -> torch.Tensor:
        return super().known_value(self.localize(fake), purpose)

    def values_of(self, fake: FakeTensor) -> Any:
        return super().values_of(self.localize(fake))

    def copy_of(self, fake: FakeTensor) -> FakeTensor:
        return super().copy_of(self.localize(fake))

    def alias_of(self, fake: FakeTensor) -> FakeTensor:
        return super().alias_of(self.localize(fake))

    def outer_value(self, node: Node) -> FakeTensor | None:
        """The tensor of the graph around that an input stands for."""
        return self._outer_values.get(node)

    def constant_of(self, node: Node) -> torch.Tensor | None:
        outer = self._outer_values.get(node)
        return None if outer is None else known_value(self.parent.constant_of, outer)

    # --- the run -------------------------------------------------------------------------------------------

    def call_function(self, function: Any, args: Sequence[Any]) -> tuple[list[Any], tree.TreeSpec]:
        """Call the function on fakes; returns the leaves of its result, tensors as fakes of this graph."""
        session, self.context.session = self.context.session, self
        watching = self.function_mode
        try:
            if self.context.environment.symbols:  # a loop over numbers has some, whatever the program around it
                self.watch_functions()
            results = self.inside(lambda: without_rows(self, call_or_replay(self, function, args), only_outputs=True))
            leaves, spec = tree.flatten(results)
            leaves = [self.own(leaf) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
            self.modes.label(self.graph)
            return leaves, spec
        finally:
            self.context.session = session
            if self.function_mode is not watching:
                self.stop_watching()

    def own(self, tensor: torch.Tensor) -> FakeTensor:
        """A tensor as a fake of this graph."""
        return self.localize(tensor) if type(tensor) is FakeTensor else self.fake_of(tensor)

    def result_node(self, leaf: Any) -> Any:
        """A result as the graph returns it."""
        if type(leaf) is FakeTensor:
            return leaf.node
        number = from_torch(leaf) if isinstance(leaf, _SYMBOLIC) else leaf
        return self.number_node(number) if isinstance(number, Expr) else number

    def shared_with(self, fake: FakeTensor) -> tuple[Storage, ...]:
        """The memory of the graph around that a tensor of this graph lies in, or may lie in."""
        outside = {inner: outer for outer, inner in self.storages.items()}
        found: dict[Storage, None] = {}
        pending = [fake.info.storage]
        while pending:
            storage = pending.pop()
            if storage in outside:
                found[outside[storage]] = None
            else:
                pending += storage.sources
        return tuple(found)


def call_or_replay(recorder: Recorder, function: Any, args: Sequence[Any]) -> Any:
    """Call a function that an operator takes, with the recorder on."""
    replayed = replay(recorder, function, args)
    return function(*args) if replayed is NOT_HANDLED else replayed


def replay(recorder: Recorder, function: Any, args: Sequence[Any]) -> Any:
    """Run a graph that was captured before node by node, so that what is recorded keeps its origins; NOT_HANDLED
    for any other function."""
    if not isinstance(function, GraphModule) or any(not isinstance(n.meta, NodeMeta) for n in function.graph.nodes):
        return NOT_HANDLED
    return replay_graph(recorder, function.graph, args, fetch=lambda node: getattr(function, str(node.target)))


def refuse_escaped_tensors(graph: Graph) -> None:
    """Raise for a graph that uses a tensor which was made inside of a branch or a loop body."""
    for node in graph.nodes:
        if any(argument.graph is not graph for argument in node.all_input_nodes):
            raise _escaped()


def _escaped() -> CaptureError:
    return CaptureError(
        "a tensor that was made inside of a branch or a loop body is used outside of it",
        location=user_location(),
        remedy="return the tensor from the function that the operator takes",
    )
