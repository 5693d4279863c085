"""Building fx graphs quickly.

``torch.fx.Graph.create_node`` walks the arguments of every node several times. A capture makes thousands of
nodes whose arguments are known to be well formed, so it appends them directly.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Container, Iterator
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node
from torch.fx._lazy_graph_module import _LazyGraphModule as LazyGraphModule

# Generating and compiling the Python code of a graph costs more than capturing it, and most graphs are only
# passed on: fx's lazy variant does that when the code is first asked for.
from torch.fx.graph import _Namespace

from tintype.errors import Location
from tintype.ir.node_info import NodeMeta
from tintype.ir.operator_facts import checks_data, has_effect
from tintype.ir.operators import OPERATORS, Position, argument_at, declaration_of

__all__ = [
    "NUMBER_FUNCTIONS",
    "LazyGraphModule",
    "add_placeholder",
    "append_call",
    "append_graph",
    "append_item",
    "attached",
    "base_name",
    "called_functions",
    "calls_of",
    "calls_of_any",
    "copy_graph",
    "eliminate_dead_code",
    "graph_module",
    "graphs_of",
    "is_pure",
    "is_removable",
    "meta_of",
    "name_in_order",
    "output_node",
    "placeholders",
    "refer_again",
    "set_meta",
    "subgraph_at",
    "subgraphs",
    "take_arguments",
]


def append_call(
    graph: Graph,
    target: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    name: str,
    meta: NodeMeta | None = None,
    alike: dict[Node, None] | None = None,
) -> Node:
    """Append a call whose arguments are nodes and plain values; the node's name is made unique.

    ``alike`` are the calls of the same function (:func:`calls_of`), for whoever has looked them up."""
    namespace = graph._graph_namespace
    count = namespace._base_count.get(name)
    unique = f"{name}_{count + 1}" if count is not None else name
    if count is not None and unique not in namespace._used_names:  # as nearly always
        namespace._base_count[name] = count + 1
        namespace._used_names.add(unique)
    else:
        unique = _unique_name(namespace, name)
    # as Node() does it, without a look at whether the function is one
    node = _new_node(Node)
    _initialize(node, graph, unique, "call_function", target, None)
    node._update_args_kwargs(args, kwargs)
    if meta is not None:
        _set(node, "meta", meta)
    namespace._obj_to_name[node] = unique
    graph._insert(node)
    if alike is None:
        alike = calls_of(graph, target)
    alike[node] = None
    graph._len += 1
    return node


def calls_of(graph: Graph, target: Callable[..., Any]) -> dict[Node, None]:
    """fx's own table of the calls of a function. To look it up is to hash the function, in Python for operators."""
    return graph._find_nodes_lookup_table.table["call_function", target]


def called_functions(graph: Graph) -> list[Callable[..., Any]]:
    """The functions that a graph calls, each once."""
    table: dict[tuple[str, Any], Any] = graph._find_nodes_lookup_table.table
    return [target for (op, target), nodes in table.items() if op == "call_function" and nodes]


def calls_of_any(graph: Graph, functions: Container[Any]) -> list[Node]:
    """The calls of some functions, in order."""
    called = [function for function in called_functions(graph) if function in functions]
    return sorted(node for function in called for node in calls_of(graph, function))


def _unique_name(namespace: _Namespace, base: str) -> str:
    """As fx numbers names, without looking at how the name is spelt for every one of them."""
    count = namespace._base_count.get(base)
    if count is not None:
        name = f"{base}_{count + 1}"
        used = namespace._used_names
        if name not in used:
            namespace._base_count[base] = count + 1
            used.add(name)
            return name
    elif base not in namespace._used_names and _is_plain_name(base):
        namespace._base_count[base] = 0
        namespace._used_names.add(base)
        return base
    return namespace.create_name(base, None)


@functools.lru_cache(maxsize=4096)
def _is_plain_name(base: str) -> bool:
    """Whether fx takes a name that nothing has as it is, and as one without a number."""
    namespace = _Namespace()
    return namespace.create_name(base, None) == base and namespace._base_count == {base: 0}


def set_meta(node: Node, meta: NodeMeta) -> None:
    """Replace a node's meta. Plain assignment would take the node out of fx's tables and put it back."""
    _set(node, "meta", meta)


def take_arguments(node: Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Give a node other arguments, as plain assignment of both would, which is likewise not free."""
    node._update_args_kwargs(args, kwargs)


_set = object.__setattr__
_new_node = Node.__new__
_initialize = torch._C._NodeBase.__init__


def add_placeholder(graph: Graph, name: str, meta: NodeMeta | None = None, *, after: Node | None = None) -> Node:
    """Add an input with exactly this name, which must be free.

    fx itself renames inputs that are called like a builtin function (``input``), which is only confusing.
    """
    node = _new_node(Node)
    _initialize(node, graph, name, "placeholder", name, None)
    node._update_args_kwargs((), {})
    if meta is not None:
        set_meta(node, meta)
    namespace = graph._graph_namespace
    namespace._used_names.add(name)
    namespace._obj_to_name[node] = name
    if after is None:
        graph._insert(node)
    else:
        after.append(node)
    graph._find_nodes_lookup_table.table["placeholder", None][node] = None
    graph._len += 1
    return node


def append_item(graph: Graph, node: Node, index: int, meta: NodeMeta | None = None) -> Node:
    """Append the selection of one of several results."""
    return append_call(graph, operator.getitem, (node, index), {}, "getitem", meta)


def placeholders(graph: Graph) -> list[Node]:
    """The graph's inputs, in order."""
    return list(graph.find_nodes(op="placeholder"))


def output_node(graph: Graph) -> Node:
    """The graph's one output node."""
    return next(iter(graph.find_nodes(op="output")))


def is_pure(node: Node) -> bool:
    """Whether a call has no effect besides its results: it writes, draws and asserts nothing."""
    target = node.target
    if node.op != "call_function":
        return node.op == "get_attr"
    if isinstance(target, torch._ops.OpOverload):
        return not target._schema.is_mutable and not has_effect(target)
    if target in OPERATORS:
        if OPERATORS[target].has_effect or any(map(has_effect, node.args)):
            return False
        return all(_is_pure_graph(subgraph.graph) for _, subgraph in graphs_of(node))
    return getattr(target, "is_pure", False) or target in NUMBER_FUNCTIONS


# Functions of numbers: what a graph computes sizes with.
NUMBER_FUNCTIONS = frozenset(
    {
        *(getattr(operator, name) for name in operator.__all__),
        *(getattr(torch, name) for name in dir(torch) if name.startswith(("sym_", "_sym_"))),
        math.floor,
        math.ceil,
        math.trunc,
        round,
    }
)


def is_removable(node: Node) -> bool:
    """Whether nobody would notice if a call whose results nobody uses were not there."""
    return is_pure(node) and not checks_data(node.target)


def eliminate_dead_code(graph: Graph) -> int:
    """Remove calls that nobody would miss, and say how many. One sweep from the end, so it is linear."""
    count = 0
    for node in reversed(graph.nodes):
        if node.users or node.op in ("placeholder", "output"):
            continue
        if is_removable(node) and not _is_asserted(node):
            graph.erase_node(node)
            count += 1
    return count


def _is_asserted(node: Node) -> bool:
    """Whether something is to be asserted of a node's value, so that it will have a user."""
    return isinstance(node.meta, NodeMeta) and node.meta.asserted


def base_name(target: Any) -> str:
    """The name that a call's result starts with."""
    if isinstance(target, torch._ops.OpOverload):
        return target.overloadpacket.__name__
    if isinstance(target, torch._ops.HigherOrderOperator):
        return target.name()
    return getattr(target, "__name__", "value")


def name_in_order(graph: Graph) -> None:
    """Number the results of calls in the order in which they stand, after nodes were inserted and removed."""
    namespace = graph._graph_namespace = _Namespace()
    nodes = list(graph.nodes)
    names = namespace._obj_to_name
    bases: dict[int, str] = {}  # by the ids of functions: to hash an operator is a call of a Python function
    for node in nodes:
        if node.op != "call_function":
            namespace._used_names.add(node.name)
    for node in nodes:
        if node.op != "call_function":
            names[node] = node.name
            continue
        target = node.target
        base = bases.get(id(target))
        if base is None:
            base = bases[id(target)] = base_name(target)
        name = names[node] = _unique_name(namespace, base)
        if name != node.name:
            _set(node, "name", name)  # as in set_meta: no table of fx has the name


def copy_graph(graph: Graph, value_of: Callable[[Any], Any] | None = None) -> Graph:
    """A copy of a graph and of the graphs in it. Origins are shared, since they never change; so are values, unless
    ``value_of`` says what stands for each in the copy."""
    new = Graph()
    copies: dict[Node, Node] = {}
    inner: dict[GraphModule, GraphModule] = {}
    for node in graph.nodes:
        if node.op == "placeholder":
            copies[node] = add_placeholder(new, node.name, meta_of(node).copy())
        else:
            copies[node] = new.node_copy(node, copies.__getitem__)
        subgraph = subgraph_at(node) if node.op == "get_attr" else None
        if subgraph is not None:
            if subgraph not in inner:
                inner[subgraph] = graph_module(copy_graph(subgraph.graph, value_of), type(subgraph).__name__)
            set_meta(copies[node], meta_of(node).derived(val=inner[subgraph]))
        elif value_of is not None and "val" in node.meta:
            copies[node].meta["val"] = value_of(node.meta["val"])
    return new


# --- graphs in graphs ------------------------------------------------------------------------------------


def graph_module(graph: Graph, name: str) -> GraphModule:
    """A graph as a module, with the graphs that it refers to as its submodules."""
    return LazyGraphModule(attached(graph), graph, name)


def forward_of(module: GraphModule) -> Callable[..., Any]:
    """What runs a graph without a call of its module, which hooks on all modules would hear: those are for the
    user's."""
    if isinstance(module, LazyGraphModule):
        module.real_recompile()  # its first call is one of the module otherwise
    forward: Callable[..., Any] = module.forward
    return forward


def attached(graph: Graph) -> dict[str, GraphModule]:
    """The graphs that a graph refers to, by the names it has for them."""
    found = {}
    for node in graph.find_nodes(op="get_attr"):
        subgraph = subgraph_at(node)
        if subgraph is not None:
            found[str(node.target)] = subgraph
    return found


def refer_again(module: GraphModule) -> None:
    """Let a graph module hold the graphs that its graph refers to after it was changed."""
    module._modules.update(attached(module.graph))
    module.recompile()


def append_graph(graph: Graph, name: str, subgraph: GraphModule) -> Node:
    """Append a reference to a graph that is to be called ``name``, for an operator that takes it."""
    node = graph.create_node("get_attr", name)
    set_meta(node, NodeMeta({"val": subgraph}))
    return node


def subgraph_at(node: Node) -> GraphModule | None:
    """The graph that a node refers to; None for a node that refers to something else.

    It is the node's value. A node that somebody else made has none; then the module that owns the graph has it.
    """
    value = node.meta.get("val")
    if isinstance(value, GraphModule):
        return value
    owner = node.graph.owning_module
    if value is None and owner is not None:
        value = getattr(owner, str(node.target), None)
    return value if isinstance(value, GraphModule) else None


def graphs_of(node: Node) -> list[tuple[Position, GraphModule]]:
    """The graphs that a call of an operator takes, each with the position of the argument."""
    declaration = declaration_of(node)
    found: list[tuple[Position, GraphModule]] = []
    for position in declaration.graphs if declaration is not None else ():
        argument = argument_at(node, position)
        subgraph = subgraph_at(argument) if isinstance(argument, Node) else None
        if subgraph is not None:
            found.append((position, subgraph))
    return found


def _is_pure_graph(graph: Graph) -> bool:
    return all(is_pure(node) for node in graph.nodes if node.op == "call_function")


def subgraphs(module: GraphModule) -> Iterator[GraphModule]:
    """The graph modules that a graph module holds, itself first."""
    for child in module.modules():
        if isinstance(child, GraphModule):
            yield child


def meta_of(node: Node) -> NodeMeta:
    """A node's meta as our own type, also for nodes that somebody else made."""
    meta = node.meta
    if not isinstance(meta, NodeMeta):
        meta = NodeMeta(meta)
        node.meta = meta
    return meta


def location_of(node: Node) -> Location | None:
    """The line of the user's program that a node comes from."""
    origin = meta_of(node).origin
    line = origin.user_line() if origin is not None else None
    return Location(*line) if line is not None else None
