"""Regions in another of torch's modes (see :mod:`tintype.ir.regions`), in the two forms that programs have them in.

:func:`wrap_regions`, for the training stage: every region becomes a graph of its own, which an operator runs in that
mode. Regions inside of regions are wrapped likewise.

:func:`dissolve_regions`, for the functional stage: the operators are gone. What autocast does was recorded as casts
already. What a region without gradients does is to cut: what comes into it is detached. Whether the example had
gradients there says nothing: inputs, parameters and buffers may require them when the program is called.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node
from torch.fx.graph import _Namespace

from tintype.errors import raise_all
from tintype.fake.context import FakeContext
from tintype.fake.info import Storage
from tintype.fake.tensor import FakeTensor, make_fake
from tintype.ir.graph import (
    add_placeholder,
    append_call,
    append_graph,
    append_item,
    base_name,
    called_functions,
    calls_of,
    graph_module,
    graphs_of,
    meta_of,
    name_in_order,
    placeholders,
    refer_again,
    set_meta,
)
from tintype.ir.node_info import ModuleCall, NodeMeta, Origin
from tintype.ir.operator_facts import ITSELF_OR_A_COPY, facts_if_operator, may_write, starts_anew
from tintype.ir.operators import OPERATORS, declaration_of
from tintype.ir.regions import Region, Setting, is_without_gradients
from tintype.ir.signature import InputKind, InputSpec
from tintype.trace.shared_memory import storages_of
from tintype.transforms.doubts import Doubt, doubt_about, write_doubts
from tintype.transforms.histories import is_differentiable
from tintype.transforms.layouts import Layouts, is_copy
from tintype.transforms.memory import info_of, written_nodes

aten = torch.ops.aten

# The operator that runs a graph under a kind of setting; ops/ registers it.
WRAPPERS: dict[type[Setting], Any] = {}


# --- the training stage ----------------------------------------------------------------------------------


def wrap_regions(graph: Graph, taken: Collection[str] = ()) -> None:
    """Let operators run the regions of a graph, and of the graphs in it; ``taken`` are names that none may get."""
    for node in graph.nodes:
        for _, module in graphs_of(node):
            wrap_regions(module.graph)
            refer_again(module)
    targets = {str(node.target) for node in graph.find_nodes(op="get_attr")}
    _wrap_pieces(graph, {*taken, *targets}, _call_names(graph))


def _wrap_pieces(graph: Graph, taken: Collection[str], names: dict[Node, str]) -> None:
    number = 0
    for setting, nodes in _pieces(graph):
        if setting is not None:
            while f"submod_{number}" in taken:
                number += 1
            _wrap(graph, setting, nodes, f"submod_{number}", names)
        number += 1


def _pieces(graph: Graph) -> list[tuple[Setting | None, list[Node]]]:
    """What a graph falls into: runs of nodes with the same outermost setting. The first one has none."""
    pieces: list[tuple[Setting | None, list[Node]]] = [(None, [])]
    previous: Region = ()
    for node in graph.nodes:
        if node.op in ("placeholder", "output"):
            continue
        previous = region = _settled_region(node, previous)
        setting = region[0] if region else None
        if setting is not pieces[-1][0]:
            pieces.append((setting, []))
        pieces[-1][1].append(node)
    return pieces


def _settled_region(node: Node, previous: Region) -> Region:
    """The region of a node, given that of the node before: a graph goes with its user, the selection of a result with
    the call, a number or an assertion that was added later with the value that it is about."""
    meta = meta_of(node)
    if node.op == "get_attr":
        user = next(iter(node.users), None)
        meta.region = meta_of(user).region if user is not None else ()
    elif node.target is operator.getitem:
        meta.region = meta_of(node.args[0]).region  # type: ignore[arg-type]
    elif not meta.region and previous and not _has_tensors(meta.get("val")) and not may_write(node.target):
        if any(meta_of(argument).region == previous for argument in node.all_input_nodes):
            meta.region = previous
    return meta.region


def _has_tensors(value: Any) -> bool:
    return isinstance(value, (torch.Tensor, list, tuple))


def _call_names(graph: Graph) -> dict[Node, str]:
    """The names that calls have where inputs don't take any: a region's graph has inputs of its own."""
    namespace = _Namespace()
    calls = [node for node in graph.nodes if node.op == "call_function"]
    return {node: namespace.create_name(base_name(node.target), None) for node in calls}


def _wrap(graph: Graph, setting: Setting, nodes: Sequence[Node], name: str, names: dict[Node, str]) -> None:
    """Move nodes, which stand in a row, into a graph of their own that an operator runs."""
    inside = set(nodes)
    following = nodes[-1].next
    operands = dict.fromkeys(
        argument for node in nodes for argument in node.all_input_nodes if argument not in inside
    )
    results = [node for node in nodes if any(user not in inside for user in node.users)]
    inner = Graph()
    copies: dict[Node, Node] = {}
    for operand in operands:
        meta = NodeMeta({"val": operand.meta.get("val")}, consumer=meta_of(nodes[0]).origin)
        copies[operand] = add_placeholder(inner, operand.name, meta)
    for node in nodes:
        args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), copies.__getitem__)
        copies[node] = inner.create_node(node.op, node.target, args, kwargs, names.get(node, node.name))
        meta = meta_of(node).copy()
        meta.region = meta.region[1:]
        set_meta(copies[node], meta)
    inner.output(tuple(copies[result] for result in results)).meta = NodeMeta()
    _wrap_pieces(inner, (), {})
    wrapper = WRAPPERS[type(setting)]
    with graph.inserting_before(following):
        reference = append_graph(graph, name, graph_module(inner, "Subgraph"))
        call = append_call(
            graph, wrapper, (*setting.arguments, reference, *operands), {}, base_name(wrapper),
            NodeMeta({"val": tuple(result.meta.get("val") for result in results)}, _common_origin(nodes, wrapper)),
        )  # fmt: skip
        items = [append_item(graph, call, index, _outside(result)) for index, result in enumerate(results)]
    for result, item in zip(results, items, strict=True):
        result.replace_all_uses_with(item, delete_user_cb=lambda user: user not in inside)
    for node in reversed(nodes):
        graph.erase_node(node)
    for result, item in zip(results, items, strict=True):
        item.name = result.name


def _outside(result: Node) -> NodeMeta:
    meta = meta_of(result).copy()
    meta.region = ()
    return meta


def _common_origin(nodes: Sequence[Node], wrapper: Any) -> Origin:
    """Where a region is: in the innermost module call that all of it is in, at the line that its first node comes
    from."""
    origins = [origin for node in nodes if (origin := meta_of(node).origin) is not None]
    if not origins:
        return Origin(None, ())
    chains = [origin.call.outermost_first() if origin.call is not None else [] for origin in origins]
    depth = 0
    while all(len(chain) > depth and chain[depth] is chains[0][depth] for chain in chains):
        depth += 1
    call: ModuleCall | None = chains[0][depth - 1] if depth else None
    steps = origins[0].steps if len(chains[0]) == depth else chains[0][depth].steps
    return Origin(call, steps, base_name(wrapper))


# --- the functional stage --------------------------------------------------------------------------------


def dissolve_regions(graph: Graph, context: FakeContext, input_specs: Sequence[InputSpec] = ()) -> None:
    """Let a graph do without regions, and the graphs in it. Gradients stay what they were."""
    if not _has_regions(graph):
        return
    inputs = dict(zip(placeholders(graph), input_specs, strict=False))
    tracked = [
        node
        for node, spec in inputs.items()
        if spec.kind is not InputKind.CONSTANT_TENSOR and is_differentiable(node)
    ]
    cuts = _Cuts(graph, context, False, tracked)
    for node, spec in inputs.items():
        if spec.kind is InputKind.BUFFER:
            cuts.buffers.update(storages_of(node))
    cuts.run()
    name_in_order(graph)


def dissolve_regions_inside(graph: Graph, context: FakeContext) -> None:
    """The same for a graph that an operator takes, each of whose inputs may have a history."""
    if _has_regions(graph):
        _Cuts(graph, context, False, filter(is_differentiable, placeholders(graph))).run()


def _has_regions(graph: Graph) -> bool:
    metas = list(map(_meta_of, graph.nodes))
    if {NodeMeta}.issuperset(map(type, metas)):  # most graphs are large, have none, and were all made here
        has_some = any(map(_region_of, metas))
    else:
        has_some = any(_region(node) for node in graph.nodes if node.op == "call_function")
    if has_some:
        return True
    for function in _declared_functions(graph):
        declaration = OPERATORS.get(function)
        if declaration is not None and (
            declaration.setting is not None
            or any(_has_regions(module.graph) for node in calls_of(graph, function) for _, module in graphs_of(node))
        ):
            return True
    return False


_meta_of, _region_of = map(operator.attrgetter, ("meta", "region"))


def _inline(graph: Graph, node: Node) -> Node:
    """Put the graph that an operator runs in another mode in the operator's place, and return its first node."""
    declaration = OPERATORS[node.target]
    assert declaration.setting is not None
    ((position, module),) = graphs_of(node)
    region = (*meta_of(node).region, declaration.setting(node))
    operands = declaration.shared_with(node, position)
    values: dict[Node, Any] = dict(zip(placeholders(module.graph), operands, strict=True))
    before = node.prev
    results: Any = ()
    with graph.inserting_before(node):
        for inner in module.graph.nodes:
            if inner.op == "output":
                results = torch.fx.node.map_arg(inner.args[0], values.__getitem__)
            elif inner.op != "placeholder":
                values[inner] = graph.node_copy(inner, values.__getitem__)
                meta_of(values[inner]).region = region
    for item in list(node.users):
        item.replace_all_uses_with(results[item.args[1]])
        graph.erase_node(item)
    graph.erase_node(node)
    return before.next


def _forget_regions(graph: Graph) -> None:
    for node in graph.nodes:
        if _region(node):
            node.meta.region = ()


def _declared_functions(graph: Graph) -> list[Any]:
    """The functions that a graph calls, without the operators of torch's dispatcher, none of which is declared."""
    return [function for function in called_functions(graph) if type(function) is not torch._ops.OpOverload]


def _region(node: Node) -> Region:
    """The region of a node, which one that somebody else made has none of."""
    meta = node.meta
    return meta.region if type(meta) is NodeMeta else ()


class _Cuts:
    """One pass that takes the regions out of a graph. It follows which tensors have a history in autograd's eyes, and
    detaches those that come into a region without gradients."""

    def __init__(self, graph: Graph, context: FakeContext, off: bool, tracked: Iterable[Node]) -> None:
        self.graph = graph
        self.context = context
        self.off = off
        self.tracked = set(tracked)
        # memory that something with a history was written to; and by memory tensors that had none all the same since
        self.tracked_storages: set[Storage] = set()
        self.untracked: dict[Storage, set[Node]] = {}
        # memory of buffers: they may have a history, but a write to one need not be prepared for that
        self.buffers: set[Storage] = set()
        self.cuts: dict[Node, Node] = {}
        # copies that are none in another layout, where that makes a difference
        self.layouts = Layouts()
        self.doubts: list[Doubt] = []
        # nodes in regions without gradients from which a gradient could come out
        self.leaking: set[Node] = set()

    def run(self) -> None:
        """Visit every node once, after the graphs of regions were put in their place."""
        node = self.graph._root.next if self._runs_regions() else self.graph._root
        while node is not self.graph._root:
            declaration = declaration_of(node)
            inlined = declaration is not None and declaration.setting is not None
            node = _inline(self.graph, node) if inlined else node.next
        last = self._find_leaks()
        node = self.graph._root.next
        while last is not None and node is not self.graph._root:
            following = node.next
            if node.op == "placeholder":
                info = info_of(node)
                if info is not None and info.requires_grad:
                    self.tracked.add(node)
            elif node.op == "call_function":
                self._visit(node)
            if node is last:
                break
            node = following
        _forget_regions(self.graph)
        if self.doubts:
            raise_all(write_doubts(self.graph, self.doubts, self.context.environment))

    def _runs_regions(self) -> bool:
        """Whether some operator of the graph runs a region."""
        declared = map(OPERATORS.get, _declared_functions(self.graph))
        return any(declaration is not None and declaration.setting is not None for declaration in declared)

    def _find_leaks(self) -> Node | None:
        """Masks, indices and what is not used outside carry no gradient out of a region: nothing has to be cut for
        them. Returns the last node that must be visited."""
        last = None
        for node in reversed(self.graph.nodes):
            if node.op == "call_function":
                if self._is_off(node) and self._leaks(node):
                    self.leaking.add(node)
                    last = last or node
                elif last is None and declaration_of(node) is not None:
                    last = node
        return last

    def _leaks(self, node: Node) -> bool:
        if declaration_of(node) is not None or any(user in self.leaking for user in node.users):
            return True
        return may_write(node.target) or (
            is_differentiable(node) and any(not self._is_off(user) for user in node.users)
        )

    def _is_off(self, node: Node) -> bool:
        region = _region(node)
        return node.op != "output" and (is_without_gradients(region, self.off) if region else self.off)

    def _visit(self, node: Node) -> None:
        off = is_without_gradients(_region(node), self.off)
        if node.target is aten.detach_.default:
            for tensor in (node, *node.all_input_nodes):
                self.tracked.discard(tensor)
                self._untrack(tensor)
            return
        if off and node not in self.leaking:
            return
        declaration = declaration_of(node)
        if declaration is not None:
            shared: list[Node] = []
            repeats = declaration.repeats is not None
            for position, module in graphs_of(node):
                operands = declaration.shared_with(node, position)
                # rows have the history of what they are rows of; what a step returns the next one is given
                others = any(map(self._is_tracked, node.all_input_nodes))
                self._visit_graph(module, off, [others] * len(operands) if repeats else operands, others)
                shared += [operand for operand in operands if isinstance(operand, Node)]
            if off:  # what the graphs get they cut themselves
                self._detach_arguments(node, shared)
            self._note_result(node, False)  # a graph may return what it was given
            if off and declaration.copies and self._is_tracked(node):
                self._detach_results(node, declaration.carried_by(node))
            return
        facts = facts_if_operator(node.target)
        writes = () if facts is None else facts.writes
        written = written_nodes(node, writes)
        if off and node.target in ITSELF_OR_A_COPY and self._settle_copy(node):
            return
        if off:
            cut = [argument for argument in written if self._is_tracked(argument) and not self._is_buffer(argument)]
            for argument in cut:
                self._flag(argument)
            self._detach_arguments(node, [argument for argument in written if argument not in cut])
            self._pass_on(node, written, cut)
        elif any(self._is_tracked(argument) for argument in node.all_input_nodes):
            for storage in (storage for argument in written for storage in storages_of(argument)):
                self.tracked_storages.add(storage)
                self.untracked.pop(storage, None)  # what was made without a history has it by the write
        self._note_result(node, off)

    def _visit_graph(self, module: GraphModule, off: bool, shared: Sequence[Any], others: bool) -> None:
        """Visit a graph that an operator takes; ``others`` says whether inputs that are no values of this graph may
        have a history."""
        pairs = zip(placeholders(module.graph), shared, strict=False)
        tracked = [
            inner
            for inner, value in pairs
            if (self._is_tracked(value) if isinstance(value, Node) else others and is_differentiable(inner))
        ]
        _Cuts(module.graph, self.context, off, tracked).run()
        refer_again(module)

    # --- histories -----------------------------------------------------------------------------------------

    def _is_tracked(self, node: Node) -> bool:
        if node in self.tracked:
            return True
        if not self.tracked_storages:
            return False
        return not self._is_untracked(node) and not self.tracked_storages.isdisjoint(storages_of(node))

    def _is_untracked(self, node: Node) -> bool:
        return any(node in self.untracked.get(storage, ()) for storage in storages_of(node))

    def _untrack(self, node: Node) -> None:
        for storage in storages_of(node):
            self.untracked.setdefault(storage, set()).add(node)

    def _is_buffer(self, node: Node) -> bool:
        """Whether a tensor is a buffer, or part of one, that got no history by a write."""
        storages = storages_of(node)
        if self.buffers.isdisjoint(storages) or not self.tracked_storages.isdisjoint(storages):
            return False
        info = info_of(node)
        return info is None or not info.requires_grad

    def _note_result(self, node: Node, off: bool) -> None:
        if starts_anew(node.target):
            return
        arguments = node.all_input_nodes
        tracked = any(self._is_tracked(argument) for argument in arguments)
        if tracked and node.target is not aten.detach.default:
            self.tracked.add(node)
        elif tracked or (off and any(map(self._is_untracked, arguments))):
            self._untrack(node)

    def _may_keep_history(self, user: Node) -> bool:
        """Whether it matters to a user which history its arguments have: others in a region begin a new one."""
        whole = user.target in ITSELF_OR_A_COPY or user.target in OPERATORS
        return whole or may_write(user.target) or not self._is_off(user)

    def _settle_copy(self, node: Node) -> bool:
        """Whether a call returns its argument as it is, with its history: then that takes its place."""
        source: Any = node.args[0]
        if not self._is_tracked(source) or not any(self._may_keep_history(user) for user in node.users):
            return False
        doubt = doubt_about(node, self.layouts, "what is returned without gradients is a copy only")
        if doubt is not None:
            self.doubts.append(doubt)
        if is_copy(node):
            return False
        node.replace_all_uses_with(source)
        self.graph.erase_node(node)
        return True

    # --- cuts ----------------------------------------------------------------------------------------------

    def _detach_arguments(self, node: Node, kept: Collection[Node] = ()) -> None:
        if starts_anew(node.target):
            return
        for argument in node.all_input_nodes:
            if argument not in kept and self._is_tracked(argument) and is_differentiable(argument):
                node.replace_input_with(argument, self._detached(argument, node))

    def _detach_results(self, node: Node, first: int) -> None:
        """Copies of what graphs return, which were made without gradients; those before the first are what the graphs
        return, which have cut what they computed."""
        for item in list(node.users):
            if is_differentiable(item) and item.args[1] >= first:  # type: ignore[operator]
                cut = self._detached(item, item.next, node)
                item.replace_all_uses_with(cut, delete_user_cb=lambda user, cut=cut: user is not cut)  # type: ignore[misc]

    def _detached(self, source: Node, at: Node, reason: Node | None = None) -> Node:
        known = self.cuts.get(source)
        if known is None:
            value = source.meta["val"]
            info = value.info.with_storage(value.info.storage)
            info.requires_grad = False
            meta = meta_of(reason or at).derived(val=make_fake(info, self.context))
            meta.region = ()
            with self.graph.inserting_before(at):
                known = append_call(self.graph, aten.detach.default, (source,), {}, "detach", meta)
            self.cuts[source] = known
            self._untrack(known)
        return known

    def _flag(self, node: Node) -> None:
        """Let a tensor that has a history say so: writes to it must keep it."""
        value = node.meta.get("val")
        if type(value) is not FakeTensor or value.info.requires_grad:
            return
        if value.info.dtype.is_floating_point or value.info.dtype.is_complex:
            info = value.info.with_storage(value.info.storage)
            info.requires_grad = True
            region = meta_of(node).region
            set_meta(node, meta_of(node).derived(val=make_fake(info, self.context)))
            meta_of(node).region = region

    def _pass_on(self, node: Node, written: list[Node], cut: list[Node]) -> None:
        """What a write returns is the tensor that it was given, with its history, not the detached one."""
        if not cut or len(node.target._schema.returns) != len(written):  # type: ignore[union-attr]
            return
        if len(written) == 1:
            node.replace_all_uses_with(written[0])
            return
        for item in list(node.users):
            if item.target is operator.getitem:
                item.replace_all_uses_with(written[item.args[1]])  # type: ignore[index]
