"""From the graphs of module calls to a tree of modules: see :mod:`tintype.export.unflatten`."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
from torch.fx import Node

from tintype.export.module import attach_state
from tintype.export.module_tree import CallableModule, StructuredModule, UnflattenedModule
from tintype.export.owned_state import OwnedState
from tintype.export.program import ExportedProgram
from tintype.export.scopes import Scope
from tintype.ir.names import free_name
from tintype.trace.state import FURTHER_CALL


class ModuleTree:
    """Makes the modules for finished graphs and puts them in their places."""

    def __init__(
        self, program: ExportedProgram, root: Scope, scopes: list[Scope], root_name: str, replaced: Collection[str]
    ) -> None:
        self.program = program
        self.replaced = replaced  # the buffers in whose place calls put new ones
        self.root_name = root_name
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
        owned = OwnedState(self.program.written_tensors())
        state = self.program._module_state(owned)
        constants = [name for name, (_, kind) in state.items() if kind == "constant"]
        spec = self.program.call_spec
        root = UnflattenedModule(
            spec.in_spec,
            spec.out_spec,
            self.program.argument_names,
            self.program.input_checks(),
            constants,
            self.root_name,
            returned=spec.returned,
        )
        self.modules[""] = root
        kept = self._choose_targets()
        for scope in kept:
            module = self.modules[scope.target] = root if scope is self.root_scope else self._module_for(scope)
            module._class_name = scope.class_name
            if "@" in scope.target:
                vars(module)[FURTHER_CALL] = True
        self._place(root)
        attach_state(root, state)
        held = {**self.program.state_dict, **self.program.constants}
        root.keep_initial({name: state[name][0] for name in state if owned.changes(held[name])}, self.replaced)
        for name, child in self.program.graph_module._modules.items():  # the graphs of control flow
            root._modules[name] = child
        for scope in kept:
            self._adopt(scope, root)
        return root

    def _module_for(self, scope: Scope) -> CallableModule:
        signature = scope.signature
        if signature is None:
            return CallableModule(self.root_name)
        args, kwargs = signature.in_spec.children()
        names = [free_name(f"args_{position}", kwargs.context) for position in range(args.num_children)]
        return StructuredModule(
            signature.in_spec,
            signature.out_spec,
            [*names, *kwargs.context],
            self.root_name,
            returned=signature.returned,
        )

    def _choose_targets(self) -> list[Scope]:
        """Give each call the module that it calls; calls of a module that do the same share one.

        Inner calls come first: whether two calls do the same depends on which modules they call.
        """
        by_path: dict[str, list[Scope]] = {}
        for scope in self.scopes:
            by_path.setdefault(scope.path, []).append(scope)
        alike: dict[Any, list[Scope]] = {}
        for scope in sorted(self.scopes, key=lambda scope: -scope.depth):
            key: Any = scope.path
            if len(by_path[scope.path]) > 1:
                key = (scope.path, _graph_key(scope))
            group = alike.setdefault(key, [])
            group.append(scope)
            if scope.call is not None:
                scope.call.target = group[0].name  # stands for the group while others are compared
        kept = []
        for group in alike.values():
            first = min(group, key=_call_number)
            is_first = _call_number(first) == min(_call_number(scope) for scope in by_path[first.path])
            kept.append(first)
            for scope in group:
                scope.target = first.path if is_first else first.name
                if scope.call is not None:
                    scope.call.target = scope.target
        return kept

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
                if target != self.root_name:
                    node.target = self._relative(scope, target, node.op == "call_module")
                if str(node.target).partition(".")[0] == self.root_name:
                    module.__dict__[self.root_name] = root
        if isinstance(module, StructuredModule):
            module.adopt(scope.graph)
        elif isinstance(module, CallableModule):
            module.graph = scope.graph

    def _relative(self, scope: Scope, path: str, is_module: bool) -> str:
        """How a module's graph names what lies at a path of the tree."""
        if not scope.target:
            return path
        if "@" not in scope.target:  # a further way of calling a module has no state or submodules of its own
            for own in (scope.target, *self.aliases.get(scope.target, ())):
                for name in self._names(path, is_module):
                    if name.startswith(f"{own}."):
                        return name[len(own) + 1 :]
        return f"{self.root_name}.{path}"

    def _names(self, path: str, is_module: bool) -> list[str]:
        """A path under all names of the module there, or of the module that holds what is there."""
        owner, _, name = path.rpartition(".")
        if is_module:
            return [path, *self.aliases.get(path, ())]
        return [path, *(f"{alias}.{name}" for alias in self.aliases.get(owner, ()))]


def _call_number(scope: Scope) -> int:
    return int(scope.name.partition("@")[2] or 0)


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
