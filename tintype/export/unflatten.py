"""``unflatten``: a program as a tree of modules again, each with the part of the graph that was recorded in its call.

Every node knows the module calls around it. One pass over the flat graph, in its order, opens and closes calls as the
program did and copies each node into the graph of the innermost one. Values that cross the border of a call become its
arguments and results. Two things are not passed around: state, which a graph fetches where it uses it, and arithmetic
on sizes, which is computed again from the tensors at hand.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

import torch
from torch.fx import Graph, Node

from tintype import tree
from tintype.errors import InvalidRequestError
from tintype.export.module import attach_state
from tintype.export.module_tree import (
    ROOT,
    CallableModule,
    StructuredModule,
    UnflattenedModule,
    build_tree,
    leaves_of,
    replace_buffer,
)
from tintype.export.owned_state import replace_state, write_untracked
from tintype.export.program import ExportedProgram, ModuleCallSignature, unlift
from tintype.fake.info import Storage
from tintype.fake.tensor import FakeTensor
from tintype.ir.graph import NUMBER_FUNCTIONS, add_placeholder, meta_of, output_node, placeholders
from tintype.ir.node_info import ModuleCall, NodeMeta
from tintype.ir.process_switches import collector_paused
from tintype.ir.signature import ConstantArgument
from tintype.symbolic.bridge import from_torch
from tintype.symbolic.expression import Expr
from tintype.transforms.functionalize import storages_of

aten = torch.ops.aten

_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)
_SIZES = frozenset({aten.sym_size.int, aten.sym_stride.int, aten.sym_numel.default, aten.sym_storage_offset.default})


def unflatten(program: ExportedProgram) -> UnflattenedModule:
    """The program as a module with the submodules of the original model, which can be replaced.

    Names and sharing of submodules and state are those of the original. A module that is called several times and does
    not do the same each time has a further module per way of calling it: ``block``, ``block@1``. Submodules take and
    return the tensors that cross their border, by position; those named in ``preserve_module_call_signature`` when the
    model was exported are called as the original calls them.

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
        return Unflattening(program).run()


class Scope:
    """One call of a module: its graph, and where the program's values are in it."""

    __slots__ = (
        "call", "closed", "depth", "first_number", "graph", "inputs", "last", "last_input", "name", "outputs", "parent",
        "path", "signature", "sizes", "target", "values",
    )  # fmt: skip

    def __init__(self, parent: Scope | None, path: str, name: str) -> None:
        self.parent = parent
        self.path = path
        self.name = name
        self.depth: int = parent.depth + 1 if parent is not None else 0
        self.graph = Graph()
        self.signature: ModuleCallSignature | None = None
        # values of the flat graph that come from outside, in the order of the module's arguments
        self.inputs: dict[Node, None] = {}
        # values that go outside, with the node in the parent's graph that stands for each
        self.outputs: dict[Node, Node] = {}
        self.values: dict[Node, Node] = {}
        # which dimension of which of this graph's nodes has a symbolic size
        self.sizes: dict[Expr, tuple[Node, int]] = {}
        # the node in the parent's graph that calls this module, and the module's path in the tree
        self.call: Node | None = None
        self.target = ""
        self.last = -1
        self.last_input: Node | None = None
        self.closed = False

    def outermost_first(self) -> list[Scope]:
        """This call and those around it."""
        chain = [self]
        while chain[-1].parent is not None:
            chain.append(chain[-1].parent)
        chain.reverse()
        return chain

    def contains(self, other: Scope) -> bool:
        """Whether another call is this one or lies inside of it."""
        while other.depth > self.depth:
            assert other.parent is not None
            other = other.parent
        return other is self

    def add(self, value: Node, node: Node) -> None:
        """Let a node of this graph stand for a value of the flat graph."""
        self.values[value] = node
        fake = node.meta.get("val")
        if type(fake) is FakeTensor:
            for dimension, size in enumerate(fake.info.sizes):
                if isinstance(size, Expr):
                    self.sizes.setdefault(size, (node, dimension))

    def add_input(self, value: Node) -> Node:
        """Take a value from outside as a further argument."""
        name = value.name if value.name not in self.graph._graph_namespace._used_names else f"{value.name}_in"
        node = add_placeholder(self.graph, name, _value_meta(value), after=self.last_input or self.graph._root)
        self.last_input = node
        self.inputs[value] = None
        self.add(value, node)
        return node


def _value_meta(node: Node) -> NodeMeta:
    """The meta of a node that stands for another one's value elsewhere."""
    return NodeMeta({"val": node.meta.get("val")})


class Unflattening:
    """One run: the flat graph, and the scopes that it is divided into."""

    def __init__(self, program: ExportedProgram) -> None:
        self.program = program
        self.flat = unlift(program)
        self.root = Scope(None, "", "")
        self.homes: dict[Node, Scope] = {}
        self.signatures = {entry.fqn: entry.signature for entry in program.module_call_graph}
        self._by_call: dict[ModuleCall, Scope] = {}
        self._by_name: dict[tuple[Scope, str], Scope] = {}
        self._scopes: list[Scope] = []  # in the order in which they are closed: what is inside comes first

    def run(self) -> UnflattenedModule:
        _use_what_is_written(self.flat)
        _write_where_computed(self.flat)
        self._assign()
        self._collect_inputs()
        self._build()
        return ModuleTree(self.program, self.root, self._scopes).build()

    # --- which call a node belongs to ----------------------------------------------------------------------

    def _scope_of(self, node: Node) -> Scope:
        """The call that a node was recorded in."""
        meta = meta_of(node)
        call = meta.origin.call if meta.origin is not None else None
        if call is not None:
            return self._scope_of_call(call)
        scope = self.root
        for name, (path, _) in (meta.get("nn_module_stack") or {}).items():
            if path:
                scope = self._named(scope, path, name)
        return scope

    def _scope_of_call(self, call: ModuleCall) -> Scope:
        scope = self._by_call.get(call)
        if scope is None:
            parent = self._scope_of_call(call.parent) if call.parent is not None else self.root
            scope = parent if not call.path else self._named(parent, call.path, call.name)
            self._by_call[call] = scope
        return scope

    def _named(self, parent: Scope, path: str, name: str) -> Scope:
        scope = self._by_name.get((parent, name))
        if scope is None:
            scope = self._by_name[parent, name] = Scope(parent, path, name)
            scope.signature = self.signatures.get(name)
        return scope

    def _assign(self) -> None:
        """Give every node the call that runs it: its own, unless that has ended when its turn comes."""
        calls = [node for node in self.flat.nodes if node.op == "call_function"]
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

    def _is_derived(self, node: Node) -> bool:
        """Whether a node only does arithmetic on sizes."""
        if not isinstance(node.meta.get("val"), _SYMBOLIC) or node.op != "call_function":
            return False
        return node.target in _SIZES or (node.target in NUMBER_FUNCTIONS and node.target is not operator.getitem)

    def _home(self, value: Node) -> Scope:
        return self.homes.get(value, self.root)

    def _collect_inputs(self) -> None:
        """Note the tensors that each call takes from outside, in the order in which it uses them."""
        for node, scope in self.homes.items():
            if self._is_derived(node):
                continue
            for value in node.all_input_nodes:
                if value.op == "get_attr" or self._is_derived(value):
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
            if not self._is_derived(node):
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
        if scope.signature is None:
            for value in list(scope.inputs):
                scope.add_input(value)
            return
        needed = list(scope.inputs)
        scope.inputs = {}
        by_name = self._flat_names()
        for position, argument in enumerate(scope.signature.inputs):
            value = None if isinstance(argument, ConstantArgument) else by_name[argument.name]
            if value is not None and value not in scope.values:
                scope.add_input(value)
            else:  # a value that the program was specialised on, or one that is there already
                name = scope.graph._graph_namespace.create_name(f"argument_{position}", None)
                meta = NodeMeta({"val": getattr(argument, "value", None)})
                scope.last_input = add_placeholder(
                    scope.graph, name, meta, after=scope.last_input or scope.graph._root
                )
        for value in needed:
            if value not in scope.values:
                raise _not_an_argument(scope, value)

    def _flat_names(self) -> dict[str, Node]:
        """The values of the flat graph by the names that the program has for them."""
        if not hasattr(self, "_names"):
            specs = self.program.graph_signature.input_specs
            targets = {spec.target: spec.arg.name for spec in specs if spec.target is not None}
            self._names = {
                (targets.get(str(node.target), node.name) if node.op == "get_attr" else node.name): node
                for node in self.flat.nodes
            }
        return self._names

    def _copy(self, node: Node, scope: Scope) -> None:
        if node.target is replace_state:
            path, value = node.args
            root = scope.graph.create_node("get_attr", ROOT, name="root")
            new = scope.graph.create_node(
                "call_function", replace_buffer, (root, path, self.get(value, scope)), name="replace_buffer"
            )
            new.meta = meta_of(node).copy()
        else:
            new = scope.graph.node_copy(node, lambda value: self.get(value, scope))
        scope.add(node, new)

    def _close(self, scope: Scope) -> None:
        """Insert the call into the graph around it. Which results it has is only known at the end."""
        assert scope.parent is not None
        self._scopes.append(scope)
        parent = scope.parent
        name = scope.path.rpartition(".")[2]
        name = f"module_{name}" if name[:1].isdigit() else name
        if scope.signature is None:
            arguments = tuple(self.get(value, parent) for value in scope.inputs)
            scope.call = parent.graph.create_node("call_module", scope.name, arguments, name=name)
            scope.call.meta = self._call_meta(scope)
            return
        by_name = self._flat_names()
        leaves = [
            argument.value if isinstance(argument, ConstantArgument) else self.get(by_name[argument.name], parent)
            for argument in scope.signature.inputs
        ]
        positional, named = _per_child(scope.signature.in_spec, leaves)
        args = tuple(_argument(parent.graph, *child) for child in _per_child(*positional))
        values = [_argument(parent.graph, *child) for child in _per_child(*named)]
        kwargs = dict(zip(named[0].context, values, strict=True))
        scope.call = parent.graph.create_node("call_module", scope.name, args, kwargs, name=name)
        scope.call.meta = self._call_meta(scope)
        results = [
            None if isinstance(argument, ConstantArgument) else by_name[argument.name]
            for argument in scope.signature.outputs
        ]
        for value in results:
            if value is not None:
                self.get(value, scope)
        if not any(value is not None and self._lies_in(value, scope) for value in results):
            return
        flat = parent.graph.create_node(
            "call_function", leaves_of, (scope.call, scope.signature.out_spec), name=f"{name}_leaves"
        )
        flat.meta = NodeMeta({"val": None})
        for position, value in enumerate(results):
            if value is not None and self._lies_in(value, scope) and value not in scope.outputs:
                scope.outputs[value] = self._item(parent.graph, flat, position, value)
                parent.add(value, scope.outputs[value])

    def _lies_in(self, value: Node, scope: Scope) -> bool:
        return value.op == "call_function" and scope.contains(self._home(value))

    def _call_meta(self, scope: Scope) -> NodeMeta:
        return NodeMeta({"val": None})

    def _item(self, graph: Graph, source: Node, position: int, value: Node) -> Node:
        name = value.name if value.name not in graph._graph_namespace._used_names else f"{value.name}_out"
        node = graph.create_node("call_function", operator.getitem, (source, position), name=name)
        node.meta = _value_meta(value)
        return node

    def get(self, value: Node, scope: Scope) -> Node:
        """The node of a scope's graph that has a value of the flat graph."""
        known = scope.values.get(value)
        if known is not None:
            return known
        if value.op == "get_attr":
            node = scope.graph.create_node("get_attr", str(value.target), name=value.name)
            node.meta = _value_meta(value)
            scope.add(value, node)
            return node
        if self._is_derived(value):
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
        node.meta = meta_of(value).copy()
        return node

    def _finish(self, scope: Scope) -> None:
        """Give a graph its output, now that it is known which of its values are used outside."""
        graph = scope.graph
        if scope.signature is not None:
            by_name = self._flat_names()
            results: Any = tuple(
                argument.value if isinstance(argument, ConstantArgument) else scope.values[by_name[argument.name]]
                for argument in scope.signature.outputs
            )
        elif len(scope.outputs) == 1:
            ((value, item),) = scope.outputs.items()
            results = scope.values[value]
            assert scope.call is not None
            item.replace_all_uses_with(scope.call)
            assert scope.parent is not None
            scope.parent.values[value] = scope.call
            scope.call.meta = item.meta
            item.graph.erase_node(item)
        else:
            results = tuple(scope.values[value] for value in scope.outputs) or None
        graph.output(results).meta = NodeMeta()


def _per_child(spec: tree.TreeSpec, leaves: list[Any]) -> Iterator[tuple[tree.TreeSpec, list[Any]]]:
    position = 0
    for child in spec.children():
        yield child, leaves[position : position + child.num_leaves]
        position += child.num_leaves


def _argument(graph: Graph, spec: tree.TreeSpec, leaves: list[Any]) -> Any:
    """One argument of a call: a leaf, or a container that is built when the graph runs."""
    if spec.is_leaf():
        return leaves[0]
    node = graph.create_node("call_function", build_tree, (leaves, spec), name="container")
    node.meta = NodeMeta({"val": None})
    return node


def _not_an_argument(scope: Scope, value: Node) -> InvalidRequestError:
    return InvalidRequestError(
        f"the signature of {scope.name!r} was preserved, but the module uses {value.name!r}, which is computed outside "
        "of it and is none of its arguments",
        remedy=f"pass the value to the module as an argument, or export without preserving {scope.path!r}; where it is the "
        "new value of a buffer, unflatten the program of export_for_training",
    )


def _not_a_result(scope: Scope, value: Node) -> InvalidRequestError:
    return InvalidRequestError(
        f"the signature of {scope.name!r} was preserved, but {value.name!r}, which is computed in it and is none of its "
        "results, is used outside",
        remedy=f"return the value from the module, or export without preserving {scope.path!r}; where the module writes "
        "to an argument, unflatten the program of export_for_training",
    )


# --- writes to state -------------------------------------------------------------------------------------


def _use_what_is_written(graph: Graph) -> None:
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


def _write_where_computed(graph: Graph) -> None:
    """Move the writes to state and inputs from the end of a graph to where their value is computed.

    So they belong to the module that makes them. A write stays at the end if what it overwrites is still read
    in between, or if its value may itself be overwritten.
    """
    order = {node: position for position, node in enumerate(graph.nodes)}
    given: set[Storage] = set()
    for node in graph.nodes:
        if node.op in ("placeholder", "get_attr"):
            given.update(storages_of(node))
    writes = list(_final_writes(graph))
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


def _final_writes(graph: Graph) -> Iterator[tuple[list[Node], Node, Node]]:
    """The writes at the end of a graph: their nodes, what is written to, and its new value."""
    states = {str(node.target): node for node in graph.find_nodes(op="get_attr")}
    node = output_node(graph).prev
    while node.op == "call_function":
        arguments: Any = node.args
        if node.target is replace_state:
            path, value = arguments
            if path in states:
                yield [node], states[path], value
        elif node.target in (aten.copy_.default, write_untracked) and node.name.startswith("copy_"):
            target, value = arguments[:2]
            if target.op in ("get_attr", "placeholder"):
                yield [node], target, value
            elif target.target is aten.detach.default and target.args[0].op == "get_attr":
                yield [target, node], target.args[0], value
        elif node.target is not aten.detach.default and storages_of(node):
            return
        node = node.prev


# --- the tree --------------------------------------------------------------------------------------------


class ModuleTree:
    """Makes the modules for finished graphs and puts them in their places."""

    def __init__(self, program: ExportedProgram, root: Scope, scopes: list[Scope]) -> None:
        self.program = program
        self.root_scope = root
        self.scopes = scopes
        modules = [entry for entry in program.module_call_graph if "@" not in entry.fqn]
        self.canonical = {entry.fqn: entry.same_as or entry.fqn for entry in modules}
        self.aliases: dict[str, list[str]] = {}
        for entry in modules:
            if entry.same_as is not None:
                self.aliases.setdefault(entry.same_as, []).append(entry.fqn)
        self.modules: dict[str, torch.nn.Module] = {}

    def build(self) -> UnflattenedModule:
        state = self.program._module_state()
        constants = [name for name, (_, kind) in state.items() if kind == "constant"]
        spec = self.program.call_spec
        root = UnflattenedModule(
            spec.in_spec, spec.out_spec, self.program._argument_names, self.program._input_checks(), constants
        )
        self.modules[""] = root
        kept = self._choose_targets()
        for scope in kept:
            self.modules[scope.target] = root if scope is self.root_scope else _module_for(scope)
        self._place(root)
        attach_state(root, state)
        for name, child in self.program.graph_module._modules.items():  # the graphs of control flow
            root._modules[name] = child
        for scope in kept:
            self._adopt(scope, root)
        return root

    def _choose_targets(self) -> list[Scope]:
        """Give each call the module that it calls; calls of a module that do the same share one."""
        counts: dict[str, int] = {}
        for scope in self.scopes:
            counts[scope.path] = counts.get(scope.path, 0) + 1
        order = {scope: position for position, scope in enumerate(self.scopes)}
        known: dict[Any, Scope] = {}
        kept: list[Scope] = []
        # the first call of a module has its name; calls inside of others were closed before them, so those are settled
        for scope in sorted(self.scopes, key=lambda scope: (-scope.depth, order[scope])):
            if counts[scope.path] > 1:
                key = (scope.path, _graph_key(scope))
                same = known.setdefault(key, scope)
                if same is not scope:
                    self._call(scope, same.target)
                    continue
            kept.append(scope)
            self._call(scope, scope.name)
        return kept

    def _call(self, scope: Scope, target: str) -> None:
        scope.target = target
        if scope.call is not None:
            scope.call.target = target

    def _place(self, root: torch.nn.Module) -> None:
        """Hang every module into the tree, in the order of the original."""
        for path, canonical in self.canonical.items():
            if path:
                self._hang(root, path, self._module_at(canonical))
        for path, module in self.modules.items():
            if path and path not in self.canonical:
                self._hang(root, path, module)

    def _module_at(self, path: str) -> torch.nn.Module:
        module = self.modules.get(path)
        if module is None:
            module = self.modules[path] = torch.nn.Module()
        return module

    def _hang(self, root: torch.nn.Module, path: str, module: torch.nn.Module) -> None:
        owner = root
        *parents, name = path.split(".")
        for depth, part in enumerate(parents, 1):
            child = owner._modules.get(part)
            if child is None:
                child = owner._modules[part] = self._module_at(".".join(parents[:depth]))
            owner = child
        owner._modules[name] = module

    def _adopt(self, scope: Scope, root: UnflattenedModule) -> None:
        """Give a module its graph, whose names are from there on relative to it."""
        module = self.modules[scope.target]
        for node in scope.graph.nodes:
            if node.op in ("get_attr", "call_module"):
                target = str(node.target)
                node.target = target if target == ROOT else self._relative(scope, target, node.op == "call_module")
                if str(node.target).partition(".")[0] == ROOT:
                    module.__dict__[ROOT] = root
        if isinstance(module, StructuredModule):
            module.adopt(scope.graph)
        else:
            module.__dict__["graph"] = scope.graph

    def _relative(self, scope: Scope, path: str, is_module: bool) -> str:
        """How a module's graph names what lies at a path of the tree."""
        if not scope.target:
            return path
        if "@" not in scope.target:  # a further way of calling a module has no state or submodules of its own
            for own in (scope.target, *self.aliases.get(scope.target, ())):
                for name in self._names(path, is_module):
                    if name.startswith(f"{own}."):
                        return name[len(own) + 1 :]
        return f"{ROOT}.{path}"

    def _names(self, path: str, is_module: bool) -> list[str]:
        """A path under all names of the module there, or of the module that holds what is there."""
        owner, _, name = path.rpartition(".")
        if is_module:
            return [path, *self.aliases.get(path, ())]
        return [path, *(f"{alias}.{name}" for alias in self.aliases.get(owner, ()))]


def _module_for(scope: Scope) -> CallableModule:
    signature = scope.signature
    if signature is None:
        return CallableModule()
    args, kwargs = signature.in_spec.children()
    names = [f"args_{position}" for position in range(args.num_children)]
    return StructuredModule(signature.in_spec, signature.out_spec, [*names, *kwargs.context])


def _graph_key(scope: Scope) -> Any:
    """What a graph does, apart from the names of its values: graphs with equal keys compute the same."""
    positions: dict[Node, int] = {}
    nodes = []
    for position, node in enumerate(scope.graph.nodes):
        target = None if node.op == "placeholder" else node.target
        nodes.append((node.op, target, _value_key(node.args, positions), _value_key(node.kwargs, positions)))
        positions[node] = position
    signature = scope.signature
    specs = None if signature is None else (str(signature.in_spec), str(signature.out_spec))
    return (tuple(nodes), specs)


def _value_key(value: Any, positions: dict[Node, int]) -> Any:
    if isinstance(value, Node):
        return ("node", positions[value])
    if isinstance(value, (list, tuple)):
        return (type(value).__name__, *(_value_key(item, positions) for item in value))
    if isinstance(value, dict):
        return ("dict", *((name, _value_key(item, positions)) for name, item in value.items()))
    if isinstance(value, slice):
        return ("slice", *(_value_key(part, positions) for part in (value.start, value.stop, value.step)))
    return (type(value).__name__, repr(value))


__all__ = ["unflatten"]
