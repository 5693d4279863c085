"""``unflatten``: a program as a tree of modules again, each with the part of the graph that was recorded in its call.

Every node knows the module calls around it. One pass over the flat graph, in its order, opens and closes calls as
the program did and copies each node into the graph of the innermost one. Values that cross the border of a call
become its arguments and results. Two things are not passed around: state, which a graph fetches where it uses it, and
arithmetic on sizes, which is computed again from the tensors at hand.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

import torch
from torch.fx import Graph, Node

from tintype import tree
from tintype.errors import InvalidRequestError
from tintype.export.flat_args import FlatArgsAdapter
from tintype.export.module_tree import ROOT, UnflattenedModule, build_tree, leaves_of, replace_buffer
from tintype.export.owned_state import replace_state
from tintype.export.program import ExportedProgram
from tintype.export.scopes import Scope, value_meta
from tintype.export.tree_builder import ModuleTree
from tintype.export.unlifting import unlift_values
from tintype.fake.info import Storage
from tintype.ir.graph import (
    NUMBER_FUNCTIONS,
    add_placeholder,
    append_call,
    meta_of,
    output_node,
    placeholders,
    set_meta,
)
from tintype.ir.names import free_name
from tintype.ir.node_info import ModuleCall, NodeMeta
from tintype.ir.process_switches import collector_paused
from tintype.ir.signature import ArgumentSpec, ConstantArgument
from tintype.symbolic.bridge import from_torch
from tintype.symbolic.expression import Expr
from tintype.trace.shared_memory import storages_of

aten = torch.ops.aten

_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)
_SIZES = frozenset({aten.sym_size.int, aten.sym_stride.int, aten.sym_numel.default, aten.sym_storage_offset.default})


def unflatten(program: ExportedProgram, flat_args_adapter: FlatArgsAdapter | None = None) -> UnflattenedModule:
    """The program as a module with the submodules of the original model, which can be replaced.

    Names and sharing of submodules and state are those of the original. A module that is called several times and
    does not do the same each time has a further module per way of calling it: ``block``, ``block@1``. Submodules take
    and return the tensors that cross their border, by position; those named in ``preserve_module_call_signature``
    when the model was exported are called as the original calls them. A ``flat_args_adapter`` is asked where
    arguments come in other containers than the program was exported with.

    >>> import torch, tintype
    >>> model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.ReLU())
    >>> module = tintype.unflatten(tintype.export(model, (torch.ones(4, 3),)))
    >>> [name for name, _ in module.named_children()]
    ['0', '1']
    >>> module.set_submodule("1", torch.nn.Sigmoid())
    >>> bool((module(torch.ones(4, 3)) > 0).all())
    True
    """
    if not isinstance(program, ExportedProgram):
        raise InvalidRequestError(
            f"unflatten takes an ExportedProgram, but got a {type(program).__name__}",
            remedy="export the model first: tintype.unflatten(tintype.export(model, args))",
        )
    with collector_paused():
        module = Unflattening(program).run()
    module.set_adapter(flat_args_adapter)
    return module


class Unflattening:
    """One run: the flat graph, and the scopes that it is divided into."""

    def __init__(self, program: ExportedProgram) -> None:
        self.program = program
        self.flat, values, self.writes = unlift_values(program)
        # the values of the flat graph by the names that the program has for them
        self.flat_names = {node.name: value for node, value in values.items()}
        self.root_name = free_name(ROOT, {part for path in _paths(program) for part in path.split(".")})
        self.root = Scope(None, "", "")
        # nodes that only do arithmetic on sizes: they belong to no call, every scope makes those that it needs
        self.derived = {node for node in self.flat.nodes if is_derived(node)}
        # for every other call the scope that runs it, in the order of the graph
        self.homes: dict[Node, Scope] = {}
        self.signatures = {entry.fqn: entry.signature for entry in program.module_call_graph}
        self._by_call: dict[ModuleCall, Scope] = {}
        self._by_name: dict[tuple[Scope, str], Scope] = {}
        self._scopes: list[Scope] = []  # in the order in which they are closed: what is inside comes first

    def run(self) -> UnflattenedModule:
        replaced = {str(node.args[0]) for node in self.flat.nodes if node.target is replace_state}
        use_what_is_written(self.flat)
        write_where_computed(self.flat, self.writes)
        self._assign()
        self._collect_inputs()
        self._build()
        return ModuleTree(self.program, self.root, self._scopes, self.root_name, replaced).build()

    # --- which call a node belongs to ----------------------------------------------------------------------

    def _scope_of(self, node: Node) -> Scope:
        """The call that a node was recorded in."""
        meta = meta_of(node)
        call = meta.origin.call if meta.origin is not None else None
        if call is not None:
            return self._scope_of_call(call)
        scope = self.root
        for name, (path, class_name) in (meta.get("nn_module_stack") or {}).items():
            if path:
                scope = self._named(scope, path, name)
                scope.class_name = class_name
        return scope

    def _scope_of_call(self, call: ModuleCall) -> Scope:
        scope = self._by_call.get(call)
        if scope is None:
            parent = self._scope_of_call(call.parent) if call.parent is not None else self.root
            scope = parent if not call.path else self._named(parent, call.path, call.name)
            scope.class_name = call.class_name
            self._by_call[call] = scope
        return scope

    def _named(self, parent: Scope, path: str, name: str) -> Scope:
        scope = self._by_name.get((parent, name))
        if scope is None:
            if "@" in path:
                raise InvalidRequestError(
                    f"the module {path!r} has an @ in its name, which tells calls of one module apart",
                    remedy="give the module another name, or use module() instead of unflatten",
                )
            scope = self._by_name[parent, name] = Scope(parent, path, name)
            scope.signature = self.signatures.get(name)
        return scope

    def _assign(self) -> None:
        """Give every node the call that runs it: its own, unless that has ended when its turn comes."""
        calls = [node for node in self.flat.nodes if node.op == "call_function" and node not in self.derived]
        wanted = [self._scope_of(node) for node in calls]
        for position, scope in enumerate(wanted):
            for step in scope.outermost_first():
                step.last = position
        running = [self.root]
        for position, (node, scope) in enumerate(zip(calls, wanted, strict=True)):
            chain = scope.outermost_first()
            common = 0
            while common < min(len(chain), len(running)) and chain[common] is running[common]:
                common += 1
            if any(step.closed for step in chain[common:]):
                # the call has ended: whoever is running and goes on does it
                while len(running) > 1 and running[-1].last <= position:
                    running.pop().closed = True
            else:
                for step in running[common:]:
                    step.closed = True
                running = chain
            self.homes[node] = running[-1]

    # --- what crosses borders ------------------------------------------------------------------------------

    def _home(self, value: Node) -> Scope:
        return self.homes.get(value, self.root)

    def _collect_inputs(self) -> None:
        """Note the tensors that each call takes from outside, in the order in which it uses them."""
        for node, scope in self.homes.items():
            for value in node.all_input_nodes:
                if value.op == "get_attr" or value in self.derived:
                    continue
                home = self._home(value)
                step = scope
                while not step.contains(home):
                    step.inputs.setdefault(value)
                    assert step.parent is not None
                    step = step.parent

    # --- building the graphs -------------------------------------------------------------------------------

    def _build(self) -> None:
        for node in placeholders(self.flat):
            self.root.add_input(node)
        running = [self.root]
        for node, home in self.homes.items():
            self._switch(running, home)
            self._copy(node, home)
        self._switch(running, self.root)
        output = output_node(self.flat)
        results = torch.fx.node.map_arg(output.args[0], lambda value: self.get(value, self.root))
        self.root.graph.output(results).meta = meta_of(output).copy()
        self._scopes.append(self.root)
        for scope in self._scopes:
            if scope is not self.root:
                self._finish(scope)

    def _switch(self, running: list[Scope], home: Scope) -> None:
        """End the calls that a node does not belong to and begin those that it does."""
        chain = home.outermost_first()
        while len(running) > len(chain) or running[-1] is not chain[len(running) - 1]:
            self._close(running.pop())
        for scope in chain[len(running) :]:
            self._open(scope)
            running.append(scope)

    def _open(self, scope: Scope) -> None:
        needed = list(scope.inputs)
        if scope.signature is not None:
            scope.inputs = {}
            for position, argument in enumerate(scope.signature.inputs):
                self._open_argument(scope, position, argument)
            missing = [value for value in needed if value not in scope.values]
            if missing:
                raise _not_an_argument(scope, missing[0])
            return
        for value in needed:
            scope.add_input(value)

    def _open_argument(self, scope: Scope, position: int, argument: ArgumentSpec) -> None:
        value = self._value_of(argument)
        if isinstance(value, Node) and value not in scope.values:
            scope.add_input(value)
            return
        # a value that the program was specialised on, one that is there already, or one that nobody needs
        name = scope.graph._graph_namespace.create_name(f"argument_{position}", None)
        meta = NodeMeta({"val": getattr(argument, "value", None)})
        scope.last_input = add_placeholder(scope.graph, name, meta, after=scope.last_input or scope.graph._root)

    def _copy(self, node: Node, scope: Scope) -> None:
        if node.target is replace_state:
            path: Any = node.args[0]
            value: Any = node.args[1]
            root = scope.graph.create_node("get_attr", self.root_name, name="root")
            new = scope.graph.create_node(
                "call_function", replace_buffer, (root, path, self.get(value, scope)), name="replace_buffer"
            )
            set_meta(new, meta_of(node).copy())
        else:
            args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), lambda value: self.get(value, scope))
            target: Any = node.target
            new = append_call(scope.graph, target, args, kwargs, node.name, meta_of(node).copy())
        scope.add(node, new)

    def _close(self, scope: Scope) -> None:
        """Insert the call into the graph around it. Which results it has is only known at the end."""
        assert scope.parent is not None
        self._scopes.append(scope)
        graph = scope.parent.graph
        name = scope.path.rpartition(".")[2]
        name = f"module_{name}" if name[:1].isdigit() else name
        args: tuple[Any, ...]
        kwargs: dict[str, Any] = {}
        if scope.signature is None:
            args = tuple(self.get(value, scope.parent) for value in scope.inputs)
        else:
            args, kwargs = self._arguments(scope)
        scope.call = graph.create_node("call_module", scope.name, args, kwargs, name=name)
        set_meta(scope.call, NodeMeta({"val": None}))
        if scope.signature is not None:
            self._results(scope, name)

    def _arguments(self, scope: Scope) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of a call as the original model has them."""
        assert scope.parent is not None and scope.signature is not None
        graph = scope.parent.graph
        leaves = []
        for argument in scope.signature.inputs:
            value = self._value_of(argument)
            leaves.append(self.get(value, scope.parent) if isinstance(value, Node) else value)
        positional, named = _per_child(scope.signature.in_spec, leaves)
        args = tuple(_argument(graph, *child) for child in _per_child(*positional))
        values = [_argument(graph, *child) for child in _per_child(*named)]
        return args, dict(zip(named[0].context, values, strict=True))

    def _value_of(self, argument: ArgumentSpec) -> Any:
        """The node of the flat graph that an argument or result of a call is, or the constant. What nobody needs may
        have been taken out of the graph (``program.graph.eliminate_dead_code()``): None stands for it."""
        if isinstance(argument, ConstantArgument):
            return argument.value
        return self.flat_names.get(argument.name)

    def _results(self, scope: Scope, name: str) -> None:
        """Take the result of a call apart as the original model returns it."""
        assert scope.parent is not None and scope.signature is not None and scope.call is not None
        results: dict[Node, int] = {}
        for position, argument in enumerate(scope.signature.outputs):
            value = self._value_of(argument)
            if isinstance(value, Node):
                self.get(value, scope)
                if self._lies_in(value, scope):
                    results.setdefault(value, position)
        if not results:
            return
        graph = scope.parent.graph
        arguments: Any = (scope.call, scope.signature.out_spec)
        leaves = graph.create_node("call_function", leaves_of, arguments, name=f"{name}_leaves")
        set_meta(leaves, NodeMeta({"val": None}))
        for value, position in results.items():
            scope.outputs[value] = self._item(graph, leaves, position, value)
            scope.parent.add(value, scope.outputs[value])

    def _lies_in(self, value: Node, scope: Scope) -> bool:
        return value.op == "call_function" and scope.contains(self._home(value))

    def _item(self, graph: Graph, source: Node, position: int, value: Node) -> Node:
        name = value.name if value.name not in graph._graph_namespace._used_names else f"{value.name}_out"
        node = graph.create_node("call_function", operator.getitem, (source, position), name=name)
        set_meta(node, value_meta(value))
        return node

    def get(self, value: Node, scope: Scope) -> Node:
        """The node of a scope's graph that has a value of the flat graph."""
        known = scope.values.get(value)
        if known is not None:
            return known
        if value.op == "get_attr":
            return scope.add_state(value)
        if value in self.derived:
            node = self._number(value, scope)
            scope.values[value] = node
            return node
        home = self._home(value)
        if scope.contains(home):
            return self._result_of(self._child_towards(scope, home), value, scope)
        if scope.signature is not None:
            raise _not_an_argument(scope, value)
        return scope.add_input(value)

    def _child_towards(self, scope: Scope, home: Scope) -> Scope:
        while home.parent is not scope:
            assert home.parent is not None
            home = home.parent
        return home

    def _result_of(self, child: Scope, value: Node, scope: Scope) -> Node:
        """A value that was computed inside of a call that has ended becomes a result of it."""
        if child.signature is not None:
            raise _not_a_result(child, value)
        self.get(value, child)
        assert child.call is not None
        place = next(reversed(child.outputs.values()), child.call)
        with scope.graph.inserting_after(place):
            node = self._item(scope.graph, child.call, len(child.outputs), value)
        child.outputs[value] = node
        scope.add(value, node)
        return node

    def _number(self, value: Node, scope: Scope) -> Node:
        """A number that is computed from sizes, from what this scope has."""
        number = from_torch(value.meta["val"])
        place = scope.sizes.get(number) if isinstance(number, Expr) else None
        if place is not None:
            return self._size(scope, value, place)
        if value.target not in _SIZES:
            return scope.graph.node_copy(value, lambda argument: self.get(argument, scope))
        (source,) = value.all_input_nodes
        if source in scope.values or source.op == "get_attr" or self._home(source) is scope:
            return scope.graph.node_copy(value, lambda argument: self.get(argument, scope))
        home = self._home(source)
        if scope.contains(home):
            return self._result_of(self._child_towards(scope, home), value, scope)
        if scope.signature is not None:
            raise _not_an_argument(scope, value)
        return scope.add_input(value)

    def _size(self, scope: Scope, value: Node, place: tuple[Node, int]) -> Node:
        node = scope.graph.create_node("call_function", aten.sym_size.int, place, name="sym_size_int")
        set_meta(node, meta_of(value).copy())
        return node

    def _finish(self, scope: Scope) -> None:
        """Give a graph its output, now that it is known which of its values are used outside."""
        graph = scope.graph
        if scope.signature is not None:
            outputs = [self._value_of(argument) for argument in scope.signature.outputs]
            results: Any = tuple(scope.values[value] if isinstance(value, Node) else value for value in outputs)
        elif len(scope.outputs) == 1:
            ((value, item),) = scope.outputs.items()
            results = scope.values[value]
            assert scope.call is not None
            item.replace_all_uses_with(scope.call)
            assert scope.parent is not None
            scope.parent.values[value] = scope.call
            set_meta(scope.call, meta_of(item))
            item.graph.erase_node(item)
        else:
            results = tuple(scope.values[value] for value in scope.outputs) or None
        graph.output(results).meta = NodeMeta()


def _paths(program: ExportedProgram) -> Iterator[str]:
    """The paths of what a program's modules hold."""
    yield from program.state_dict
    yield from program.constants
    yield from (entry.fqn for entry in program.module_call_graph)
    yield from program.graph_module._modules


def is_derived(node: Node) -> bool:
    """Whether a node only does arithmetic on sizes."""
    if not isinstance(node.meta.get("val"), _SYMBOLIC) or node.op != "call_function":
        return False
    return node.target in _SIZES or (node.target in NUMBER_FUNCTIONS and node.target is not operator.getitem)


def _per_child(spec: tree.TreeSpec, leaves: list[Any]) -> Iterator[tuple[tree.TreeSpec, list[Any]]]:
    position = 0
    for child in spec.children():
        yield child, leaves[position : position + child.num_leaves]
        position += child.num_leaves


def _argument(graph: Graph, spec: tree.TreeSpec, leaves: list[Any]) -> Any:
    """One argument of a call: a leaf, or a container that is built when the graph runs."""
    if spec.is_leaf():
        return leaves[0]
    arguments: Any = (leaves, spec)
    node = graph.create_node("call_function", build_tree, arguments, name="container")
    set_meta(node, NodeMeta({"val": None}))
    return node


def _not_an_argument(scope: Scope, value: Node) -> InvalidRequestError:
    return InvalidRequestError(
        f"the signature of {scope.name!r} was preserved, but the module uses {value.name!r}, which is computed "
        "outside of it and is none of its arguments",
        remedy=f"pass the value to the module as an argument, or export without preserving {scope.path!r}; where it "
        "is the new value of a buffer, unflatten the program of export_for_training",
    )


def _not_a_result(scope: Scope, value: Node) -> InvalidRequestError:
    return InvalidRequestError(
        f"the signature of {scope.name!r} was preserved, but {value.name!r}, which is computed in it and is none of "
        "its results, is used outside",
        remedy=f"return the value from the module, or export without preserving {scope.path!r}; where the module "
        "writes to an argument, unflatten the program of export_for_training",
    )


# --- writes to state -------------------------------------------------------------------------------------


def use_what_is_written(graph: Graph) -> None:
    """Let the users of an in-place operator use the tensor that it writes to and returns.

    It is the same tensor, and state can be fetched anywhere, while a result has to be passed around.
    """
    for node in graph.nodes:
        if not isinstance(node.target, torch._ops.OpOverload) or not node.args or not isinstance(node.args[0], Node):
            continue
        schema = node.target._schema
        if len(schema.returns) != 1 or schema.returns[0].alias_info is None:
            continue
        written = schema.arguments[0].alias_info
        if written is not None and written.is_write and schema.returns[0].alias_info.before_set == written.before_set:
            node.replace_all_uses_with(node.args[0])


def write_where_computed(graph: Graph, added: set[Node]) -> None:
    """Move the writes to state and inputs that were ``added`` to a program from the end of the graph to where their
    value is computed.

    So they belong to the module that makes them. A write stays at the end if what it overwrites is still read
    in between, or if its value may itself be overwritten.
    """
    order = {node: position for position, node in enumerate(graph.nodes)}
    given: set[Storage] = set()
    for node in graph.nodes:
        if node.op in ("placeholder", "get_attr"):
            given.update(storages_of(node))
    writes = list(_final_writes(graph, added))
    moving = {node for write in writes for node in write[0]}
    read: dict[Storage, int] = {}
    for node in graph.nodes:
        if node not in moving and node.op != "output":
            for argument in node.all_input_nodes:
                for storage in storages_of(argument):
                    read[storage] = order[node]
    for nodes, target, value in writes:
        if value.op != "call_function" or any(storage in given for storage in storages_of(value)):
            continue
        if any(read.get(storage, -1) > order[value] for storage in storages_of(target)):
            continue
        place = _after_items(value)
        for node in nodes:
            place.append(node)
            place = node
        nodes[-1].replace_all_uses_with(target)


def _after_items(node: Node) -> Node:
    """The last of the nodes right after this one that only select from what it selects from."""
    while node.next.target is operator.getitem:
        node = node.next
    return node


def _final_writes(graph: Graph, added: set[Node]) -> Iterator[tuple[list[Node], Node, Node]]:
    """The writes at the end of a graph: their nodes, what is written to, and its new value."""
    states = {str(node.target): node for node in graph.find_nodes(op="get_attr")}
    node = output_node(graph).prev
    while node.op == "call_function":
        arguments: Any = node.args
        if node.target is replace_state:
            path, value = arguments
            if path in states:
                yield [node], states[path], value
        elif node in added:
            target, value = arguments[:2]
            if target.op in ("get_attr", "placeholder"):
                yield [node], target, value
            elif target.target is aten.detach.default and target.args[0].op == "get_attr":
                yield [target, node], target.args[0], value
        elif node.target is not aten.detach.default and storages_of(node):
            return
        node = node.prev


__all__ = ["unflatten"]
