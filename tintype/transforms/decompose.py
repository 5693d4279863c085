"""Decomposition: operators are replaced by what a table says, or what their composite kernel does.

One pass over the graph. Nodes that stay are copied as they are; a node that is decomposed is run on fakes with
a recorder that applies the table to whatever comes up. Layers repeat, so what a decomposition recorded is kept
as a template by operator and arguments, and written out again where both are the same.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from tintype.errors import DataDependentError, InvalidRequestError
from tintype.fake.context import FakeContext
from tintype.fake.info import Storage, TensorInfo, is_dense, memory_order
from tintype.fake.meta_kernels import freeze
from tintype.fake.tensor import FakeTensor, make_fake
from tintype.ir.graph import (
    add_placeholder,
    append_call,
    base_name,
    eliminate_dead_code,
    graph_module,
    meta_of,
    name_in_order,
    set_meta,
    subgraph_at,
)
from tintype.ir.node_info import NodeMeta
from tintype.ir.operators import OPERATORS
from tintype.ir.printing import describe_value
from tintype.symbolic import eq
from tintype.symbolic.bridge import from_torch
from tintype.symbolic.evaluation import Translation
from tintype.symbolic.expression import Expr, Symbol
from tintype.trace.shared_memory import storages_of
from tintype.transforms.attention import with_right_statistics
from tintype.transforms.checked_decompositions import Table, with_checks
from tintype.transforms.core_decompositions import core_table
from tintype.transforms.decompose_by_layout import exposed_nodes, told_apart
from tintype.transforms.decomposer import Decomposer
from tintype.transforms.layouts import as_reshape, may_need_copy, take_any_layout
from tintype.transforms.working_copy import translated

aten = torch.ops.aten

_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


class Decomposition:
    """One pass: an old graph, a new graph, and the fakes that stand for the old nodes in the new one."""

    def __init__(
        self,
        graph: Graph,
        context: FakeContext,
        table: Table,
        preserved: frozenset[Any],
        keep_core: bool,
        user_inputs: Sequence[str],
        *,
        of_user: frozenset[Any] | None = None,
        translation: Translation | None = None,
        inside: bool = False,
        taken: Collection[str] = (),
    ) -> None:
        self.old = graph
        # from the symbols of the old graph to those of the new one
        self.translation = translation
        self.user_inputs = frozenset(user_inputs)
        self.graph = Graph()
        self.context = context
        names = {*taken, *(str(node.target) for node in graph.find_nodes(op="get_attr"))}
        self.recorder = Decomposer(
            context,
            self.graph,
            table,
            preserved,
            keep_core,
            of_user,
            lift_constant=self._spell_constant if inside else self._lift_constant,
            is_taken=names.__contains__,
        )
        self.lifted: list[tuple[Node, torch.Tensor]] = []
        self.values: dict[Node, Any] = {}
        self.moved: set[Node] = set()
        self.storages: dict[Storage, Storage] = {}
        self.exposed = exposed_nodes(graph)
        self.told_apart = told_apart(graph)
        self.layouts = self.recorder.layouts
        # operators whose decomposition depends on what is certain about the layouts of their arguments
        self.by_layout: set[Any] = set()
        self.templates: dict[Any, Template] = {}
        self.subgraphs: dict[GraphModule, GraphModule] = {}
        self._first_user_input: Node | None = None

    def run(self) -> Graph:
        """Build the new graph."""
        session, self.context.session = self.context.session, self.recorder
        try:
            for node in self.old.nodes:
                self._visit(node)
        finally:
            self.recorder.stop_watching()  # a decomposition may have come upon a number from data
            self.context.session = session
        self._drop_unused_constants()
        if eliminate_dead_code(self.graph):
            name_in_order(self.graph)
        return self.graph

    def _drop_unused_constants(self) -> None:
        """Constants of decompositions that were taken back."""
        for node, _ in [entry for entry in self.lifted if not entry[0].users]:
            self.graph.erase_node(node)
        self.lifted = [entry for entry in self.lifted if entry[0].users]

    def _visit(self, node: Node) -> None:
        if node.op == "placeholder":
            self._copy_placeholder(node)
        elif node.op == "output":
            results = torch.fx.node.map_arg(node.args[0], self.node_for)
            self.graph.output(results).meta = meta_of(node).copy()
        elif node.op == "call_function":
            if node.target is aten.item.default:
                self._copy(node, aten._local_scalar_dense.default)  # the same number under its core name
            elif self.recorder.stays(node.target) or type(node.meta.get("val")) in _SYMBOLIC:
                self._copy(node)  # a number that varies is no more than the question for it
            elif self._is_seen_to_copy(node):
                self._copy(node)
            else:
                self._decompose(node)
        else:
            self._copy_other(node)

    def _is_seen_to_copy(self, node: Node) -> bool:
        """Whether the caller can tell if an operator copied or returned a view, which only the layout decides."""
        return node in self.told_apart and not self.layouts.is_certain(self.node_for(node.args[0]))  # type: ignore[arg-type]

    def node_for(self, node: Node) -> Node:
        """The node in the new graph that has an old node's value."""
        value = self.values[node]
        return value.node if type(value) is FakeTensor else value

    def _argument(self, value: Any) -> Any:
        """What stands in the new graph for an argument of an old node."""
        return self.node_for(value) if isinstance(value, Node) else value

    def _value(self, value: Any) -> Any:
        """What an argument of an old node is while operators run: a fake, or a number."""
        if not isinstance(value, Node):
            return value
        new = self.values[value]
        return new if type(new) is FakeTensor else new.meta["val"] if isinstance(new, Node) else new

    # --- nodes that stay -----------------------------------------------------------------------------------

    def _copy_placeholder(self, node: Node) -> None:
        new = add_placeholder(self.graph, node.name)
        if self._first_user_input is None and node.name in self.user_inputs:
            self._first_user_input = new
        value = node.meta.get("val")
        if type(value) is FakeTensor:
            value = make_fake(self._info(value), self.context, new)
            self.recorder.numbers.define_sizes(new, value.info.sizes)
        else:
            value = self._number(value)
            self._define_number(new, value)
        set_meta(new, meta_of(node).derived(val=value))
        self.values[node] = value if type(value) is FakeTensor else new

    def _copy_other(self, node: Node) -> None:
        new = self.graph.node_copy(node, self.node_for)
        subgraph = subgraph_at(node)
        if subgraph is not None:
            set_meta(new, meta_of(node).derived(val=self._decomposed_subgraph(subgraph)))
        self.values[node] = new

    def _decomposed_subgraph(self, subgraph: GraphModule) -> GraphModule:
        """A graph that an operator takes, decomposed likewise; one that is taken twice stays one."""
        known = self.subgraphs.get(subgraph)
        if known is None:
            chosen = self.recorder
            inner = Decomposition(
                subgraph.graph,
                self.context,
                chosen.table,
                chosen.preserved,
                chosen.keep_core,
                (),
                of_user=chosen.of_user,
                translation=self.translation,
                inside=True,
            )
            graph = inner.run()
            take_any_layout(graph)
            known = self.subgraphs[subgraph] = graph_module(graph, "Subgraph")
        return known

    def _with_strides(self, node: Node) -> None:
        """Give the operands of an operator that takes graphs the strides that the graphs were recorded with."""
        for operand in node.all_input_nodes:
            if operand in self.moved:
                self.recorder.replayed = meta_of(node)
                self.values[operand] = self._restrided(self.values[operand], self._info_of(operand))

    def _copy(self, node: Node, target: Any = None) -> None:
        target = target or node.target
        if target is operator.getitem:
            source = self.values[node.args[0]]  # type: ignore[index]
            if isinstance(source, (tuple, list)):  # the results of a decomposition are there one by one
                self.values[node] = source[node.args[1]]  # type: ignore[index]
                return
        if self.moved and target in OPERATORS:
            self._with_strides(node)
        value = node.meta.get("val")
        # a size is the same wherever the tensor lies
        if self.moved and isinstance(target, torch._ops.OpOverload) and type(value) not in _SYMBOLIC:
            if any(argument in self.moved for argument in node.all_input_nodes):
                self._run_again(node)
                return
        args, kwargs = _mapped(node.args, self._argument), _mapped(node.kwargs, self._argument)
        if type(value) is not FakeTensor:
            value = self._number(value)
            new = append_call(self.graph, target, args, kwargs, base_name(target), meta_of(node).derived(val=value))
            self.values[node] = new
            self._define_number(new, value)
            return
        fake = make_fake(self._stored(self._info(value)), self.context)
        new = append_call(self.graph, target, args, kwargs, base_name(target), meta_of(node).derived(val=fake))
        is_given = target is not aten.view.default or self.layouts.is_seen_through_views(node)
        if not is_given and may_need_copy(new, self.layouts):
            set_meta(new, as_reshape(meta_of(new)))
        fake.node = new
        self.values[node] = fake
        self.recorder.numbers.define_sizes(new, fake.info.sizes)

    def _stored(self, info: TensorInfo) -> TensorInfo:
        """A description in which the storage is that of the new graph, where a decomposition made another."""
        storage = self.storages.get(info.storage)
        if storage is None:
            return info
        return info.with_storage(storage)

    def _info(self, old: FakeTensor) -> TensorInfo:
        """The description of an old value in terms of the new graph's symbols."""
        return old.info if self.translation is None else old.info.translated(self.translation)

    def _replace(self, number: Any) -> Any:
        return self.context.environment.facts.replace(number)

    def _info_of(self, node: Node) -> TensorInfo | None:
        value = node.meta.get("val")
        return self._info(value) if type(value) is FakeTensor else None

    def _number(self, value: Any) -> Any:
        """The same for a value that is no single tensor."""
        return value if self.translation is None else translated(value, self.context, self.translation)

    def _define_number(self, node: Node, value: Any) -> None:
        """Let a symbol that an operator returned come from its copy."""
        if isinstance(value, _SYMBOLIC):
            number = from_torch(value)
            if isinstance(number, Symbol) or (node.op == "placeholder" and isinstance(number, Expr)):
                self.recorder.numbers.define_value(node, number)

    def _run_again(self, node: Node) -> None:
        """A node whose argument lies in memory otherwise than before: its own result may too, and a view of it
        may now need a copy."""
        self.recorder.replayed = as_reshape(meta_of(node))
        target: Any = aten.reshape.default if node.target is aten.view.default else node.target
        args, kwargs = _mapped(node.args, self._value), _mapped(node.kwargs, self._value)
        if target in (aten.as_strided.default, aten.as_strided_scatter.default):  # which count in memory
            args = (self._restrided(args[0], self._info_of(node.args[0])), *args[1:])  # type: ignore[arg-type]
        self._settle(node, self.recorder.inside(lambda: target(*args, **kwargs)))

    def _restrided(self, fake: FakeTensor, wanted: TensorInfo | None) -> FakeTensor:
        """A tensor laid out in memory as it was before decomposition."""
        if wanted is None or fake.info.lies_like(wanted, self._replace) or not is_dense(wanted.sizes, wanted.strides):
            return fake
        # a copy of the dimensions in the order in which they lie in memory, seen in their own order again
        order = memory_order(wanted.sizes, [wanted.strides])
        inverse = [order.index(dimension) for dimension in range(len(order))]

        def copy() -> FakeTensor:
            copied = aten.clone.default(aten.permute.default(fake, order), memory_format=torch.contiguous_format)
            return aten.permute.default(copied, inverse)

        if order == sorted(order):
            return self.recorder.inside(lambda: aten.clone.default(fake, memory_format=torch.contiguous_format))
        return self.recorder.inside(copy)

    # --- nodes that are decomposed -------------------------------------------------------------------------

    def _decompose(self, node: Node) -> None:
        fakes, options = _mapped(node.args, self._value), _mapped(node.kwargs, self._value)
        infos, option_infos = _mapped(fakes, _as_info), _mapped(options, _as_info)
        inputs = [*_flat_fakes(fakes), *_flat_fakes(list(options.values()))]
        key: Any
        try:
            given = tuple((name, freeze(v)) for name, v in option_infos.items())
            key = (node.target, freeze(infos), given, _sharing(inputs))
            if node.target in self.by_layout:
                key = (*key, self._certain(inputs))
            template = self.templates.get(key)
        except TypeError:
            key = template = None
        if template is not None:
            self._settle(node, template.write(self, inputs, as_reshape(meta_of(node))))
            return
        # a reshape in place of a view that the program called consists of a view that it did not call
        self.recorder.replayed = as_reshape(meta_of(node))
        self.recorder.asked_for_layout = False
        before = self.graph._root._prev
        result = self.recorder.decomposed(node.target, fakes, options)
        if result is NotImplemented:
            self._copy(node)
            return
        if self.recorder.asked_for_layout and key is not None and node.target not in self.by_layout:
            self.by_layout.add(node.target)
            key = (*key, self._certain(inputs))
        if key is not None and not _takes_graphs(before):
            self.templates[key] = Template(before, self.graph._root, inputs, result)
        self._settle(node, result)

    def _certain(self, inputs: list[FakeTensor]) -> tuple[bool, ...]:
        every = (self.recorder.layouts, self.recorder.kernel_layouts.images)
        return tuple(layouts.is_certain(fake.node) for layouts in every for fake in inputs)

    def _settle(self, node: Node, result: Any) -> None:
        """Let a result stand for an old node, and note whether its geometry is another than before."""
        if type(result) is not FakeTensor and isinstance(result, torch.Tensor):
            result = self.recorder.fake_of(result)
        if type(result) is FakeTensor:
            if node in self.exposed:
                result = self._as_seen(node, node, result)
            self.values[node] = self._settle_one(node, node, result)
        elif isinstance(result, (list, tuple)):
            items = list(self._items_with_strides(node, tuple(result)))
            for user in node.users:
                index: Any = user.args[1]
                items[index] = self._settle_one(node, user, items[index])
            self.values[node] = tuple(items)
        else:
            self.values[node] = result

    def _as_seen(self, node: Node, place: Node, result: FakeTensor) -> FakeTensor:
        """A result as the caller gets to see it: with the strides that it had, and in memory of its own where the
        operator has that and its decomposition returned a view."""
        given = [fake for fake in map(self._value, node.all_input_nodes) if type(fake) is FakeTensor]
        if any(fake.info.storage is result.info.storage for fake in given):
            had = [storage for argument in node.all_input_nodes for storage in storages_of(argument)]
            if not any(storage in had for storage in storages_of(place)):
                result = self.recorder.record(aten.clone.default, result)
        return self._restrided(result, self._info_of(place))

    def _settle_one(self, node: Node, place: Node, result: FakeTensor) -> FakeTensor:
        """One of the tensors that a node was decomposed to, in the place of an old node."""
        old = self._info_of(place)
        if old is None or type(result) is not FakeTensor:
            return result
        is_users = node.target in self.recorder.table and not self.recorder.keep_core
        if result.info.dtype is not old.dtype and not is_users:  # torch's own may promote dtypes otherwise
            result = self.recorder.inside(lambda: aten._to_copy.default(result, dtype=old.dtype))
        self._check_result(node, old, result)
        self.storages[old.storage] = result.info.storage
        alike = result.info.lies_like(old, self._replace)
        if not alike:
            self.moved.add(place)
        if old.sizes != result.info.sizes or (alike and old.strides != result.info.strides):
            # equal, but written otherwise: what follows was recorded with the old
            strides = old.strides if alike else result.info.strides
            result = make_fake(result.info.view(old.sizes, strides), self.context, result.node)
        return result

    def _check_result(self, node: Node, old: TensorInfo, new: FakeTensor) -> None:
        """A decomposition must return what the operator returns; sizes that are equal only for some inputs are a
        fact about these, which the new program asserts."""
        info = new.info
        fits = info.dtype is old.dtype and len(info.sizes) == len(old.sizes)
        if info.sizes != old.sizes:
            pairs = zip(info.sizes, old.sizes, strict=False)
            fits = fits and all(self.context.environment.expect(eq(size, wanted)) for size, wanted in pairs)
        if not fits:
            raise InvalidRequestError(
                f"the decomposition of {node.target} returns {describe_value(new)}, but the operator "
                f"{describe_value(make_fake(old, self.context))}",
                remedy="a decomposition must return what the operator it replaces returns",
            )

    def _items_with_strides(self, node: Node, results: tuple[Any, ...]) -> tuple[Any, ...]:
        """Several results, those that the caller gets to see with the strides they had."""
        items = list(results)
        for user in node.users:
            index: Any = user.args[1] if user.target is operator.getitem else None
            if user in self.exposed and type(items[index]) is FakeTensor:
                items[index] = self._as_seen(node, user, items[index])
        return tuple(items)

    def _lift_constant(self, value: torch.Tensor) -> FakeTensor:
        """A tensor that a decomposition makes from Python numbers becomes an input of the new graph."""
        place = self.recorder.graph.inserting_before(self._first_user_input or next(iter(self.graph.nodes)))
        with place:
            node = self.graph.placeholder(f"c_decomposed_tensor_{len(self.lifted)}")
        fake = self.context.fake_of(value, node)
        set_meta(node, NodeMeta({"val": fake}))
        self.lifted.append((node, value))
        return fake

    def _spell_constant(self, value: torch.Tensor) -> FakeTensor:
        """A tensor that a decomposition makes inside of a graph that an operator takes, which can't get further
        inputs."""
        if value.numel() != 1:
            raise DataDependentError(
                f"a decomposition uses a constant of size {list(value.shape)} inside of a branch"
            )
        with torch._C._DisableTorchDispatch():
            number = value.item()
        options = {"dtype": value.dtype, "device": value.device}
        return self.recorder.record(aten.full.default, list(value.shape), number, **options)


def _takes_graphs(before: Node) -> bool:
    """Whether graphs for operators were recorded after a node: these have names, so they are written once each."""
    node = before._next
    while node.op != "root":
        if node.op == "get_attr":
            return True
        node = node._next
    return False


class Template:
    """What a decomposition recorded, in terms of its inputs, to be written out again elsewhere."""

    __slots__ = ("calls", "results")

    def __init__(self, before: Node, end: Node, inputs: list[FakeTensor], results: Any) -> None:
        places: dict[Node, int] = {}
        storages: dict[Storage, int] = {}
        for position, fake in enumerate(inputs):
            places.setdefault(fake.node, position)
            storages.setdefault(fake.info.storage, position)
        self.calls: list[Any] = []
        node = before._next
        count = len(inputs)
        while node is not end:
            value = node.meta.get("val")
            alias = None
            if type(value) is FakeTensor:
                alias = storages.get(value.info.storage)
                storages.setdefault(value.info.storage, count)
            args = _to_places(node.args, places)
            kwargs = {name: _to_places(v, places) for name, v in node.kwargs.items()}
            self.calls.append((node.target, args, kwargs, base_name(node.target), value, alias))
            places[node] = count
            count += 1
            node = node._next
        self.results = _to_places(_mapped(results, _as_node), places)

    def write(self, decomposition: Decomposition, inputs: list[FakeTensor], meta: NodeMeta) -> Any:
        """Append the calls to the new graph for other inputs; returns the results."""
        nodes: list[Node] = [fake.node for fake in inputs]
        values: list[Any] = list(inputs)
        graph, context = decomposition.graph, decomposition.context
        for target, args, kwargs, name, value, alias in self.calls:
            new_kwargs = {k: _from_places(v, nodes) for k, v in kwargs.items()} if kwargs else kwargs
            if type(value) is FakeTensor:
                storage = None if alias is None else values[alias].info.storage
                value = make_fake(value.info.with_storage(storage), context)
            new_meta = meta.derived(val=value)
            node = append_call(graph, target, _from_places(args, nodes), new_kwargs, name, new_meta)
            if type(value) is FakeTensor:
                value.node = node
            nodes.append(node)
            values.append(value)
        return _from_places(self.results, values)


def _sharing(inputs: list[FakeTensor]) -> tuple[int, ...]:
    """Which of the inputs are the same tensor, and which share memory: what is recorded for ``f(x, x)`` is not what
    ``f(x, y)`` needs."""
    first: dict[Any, int] = {}
    return tuple(
        first.setdefault(key, position)
        for position, fake in enumerate(inputs)
        for key in (fake.node, fake.info.storage)
    )


class _Place:
    """A reference to an input or an earlier call of a template."""

    __slots__ = ("index",)

    def __init__(self, index: int) -> None:
        self.index = index


def _to_places(value: Any, places: dict[Node, int]) -> Any:
    if isinstance(value, Node):
        # a node from elsewhere computes a number or is a constant: it stays the same wherever this is written
        return _Place(places[value]) if value in places else value
    if isinstance(value, tuple):
        return tuple([_to_places(v, places) for v in value])
    if isinstance(value, list):
        return [_to_places(v, places) for v in value]
    return value


def _from_places(value: Any, found: list[Any]) -> Any:
    kind = type(value)
    if kind is _Place:
        return found[value.index]
    if kind is tuple:
        return tuple([_from_places(v, found) for v in value])
    if kind is list:
        return [_from_places(v, found) for v in value]
    return value


_LEAVES = frozenset({FakeTensor, Node, int, float, bool, type(None), torch.dtype})


def _mapped(value: Any, function: Callable[[Any], Any]) -> Any:
    """Arguments with everything that is no container replaced; containers become plain ones."""
    if type(value) in _LEAVES:  # asking whether it is a container would ask a tensor for its class
        return function(value)
    if isinstance(value, tuple):
        return tuple([_mapped(item, function) for item in value])
    if isinstance(value, list):
        return [_mapped(item, function) for item in value]
    if isinstance(value, dict):
        return {name: _mapped(item, function) for name, item in value.items()}
    return function(value)


def _as_node(value: Any) -> Any:
    return value.node if type(value) is FakeTensor else value


def _as_info(value: Any) -> Any:
    return value.info if type(value) is FakeTensor else value


def _flat_fakes(value: Any) -> list[FakeTensor]:
    if type(value) is FakeTensor:
        return [value]
    if isinstance(value, (list, tuple)):
        return [fake for item in value for fake in _flat_fakes(item)]
    return []


def decompose_graph(
    graph: Graph,
    context: FakeContext,
    table: Table | None,
    preserve: frozenset[Any],
    user_inputs: Sequence[str],
    translation: Translation | None = None,
    taken: Collection[str] = (),
    of_user: frozenset[Any] | None = None,
) -> tuple[Graph, list[tuple[Node, torch.Tensor]]]:
    """A new graph in terms of simpler operators: core ATen for no table, else what the table leaves.

    Composite operators that are not in a table are decomposed, unless ``of_user`` says which of its decompositions
    are the user's own: then it is a table of all that he wants decomposed.

    Its values are those of ``context``; ``translation`` leads there where the graph's own are of another one.
    Returns it with the inputs that were added for constants of decompositions, which stand in front of the
    user's inputs. Graphs inside of it that are new have none of the ``taken`` names.
    """
    keep_core = table is None
    chosen = core_table() if table is None else with_checks(with_right_statistics(table))
    decomposition = Decomposition(
        graph,
        context,
        chosen,
        preserve,
        keep_core,
        user_inputs,
        of_user=of_user,
        translation=translation,
        taken=taken,
    )
    return decomposition.run(), decomposition.lifted
