"""The modules that a program came from, as a tree, with what each holds and costs; those that are alike are marked.

A module that is called several times has an entry for each call (``block``, ``block@1``); a container that is never
called itself (a ``ModuleList``) has one because of what is inside of it. The page, ``print(program)`` and
``tintype tree`` all fold by :attr:`ModuleEntry.likeness`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Node

from tintype.ir.graph import meta_of
from tintype.ir.node_info import ModuleCall, NodeMeta
from tintype.ir.printing import describe_value, spell_target
from tintype.symbolic import Size
from tintype.symbolic.terms import add_all
from tintype.view.costs import operations_of

if TYPE_CHECKING:
    from tintype.export.program import ExportedProgram


@dataclass(eq=False)
class ModuleEntry:
    """One module, or one more call of it. ``name`` is that of the call; ``label`` what it is called in its parent."""

    name: str
    path: str
    label: str
    class_name: str
    parent: ModuleEntry | None
    children: list[ModuleEntry] = field(default_factory=list)
    # what it does itself, the modules inside of it left out
    nodes: list[Node] = field(default_factory=list)
    # its own parameters, buffers and constants by their names in the model
    state: dict[str, torch.Tensor] = field(default_factory=dict)
    # the same for modules that do the same with weights of the same shapes; set when the tree is complete
    likeness: int = -1
    # all that it does, with the modules inside of it
    calls: int = 0
    parameters: int = 0
    bytes: int = 0
    operations: Size = 0
    without_formula: int = 0

    def descendants(self) -> Iterator[ModuleEntry]:
        """This entry and those inside of it, outermost first."""
        yield self
        for child in self.children:
            yield from child.descendants()


def module_tree(program: ExportedProgram) -> ModuleEntry:
    """The tree of a program's modules; the model itself is the root.

    >>> import torch, tintype
    >>> model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 3), torch.nn.ReLU())
    >>> root = module_tree(tintype.export(model, (torch.ones(1, 3),)))
    >>> [(child.label, child.class_name, child.parameters, child.operations) for child in root.children]
    [('0', 'Linear', 12, 21), ('1', 'Linear', 12, 21), ('2', 'ReLU', 0, 3)]
    >>> root.children[0].likeness == root.children[1].likeness
    True
    """
    builder = _Builder()
    for node in program.graph.nodes:
        if node.op == "call_function":
            builder.entry_of(meta_of(node)).nodes.append(node)
    builder.add_state(program)
    _Sums(program, builder.root)
    return builder.root


class _Builder:
    """Finds or makes the entry of each module call."""

    def __init__(self) -> None:
        self.root = ModuleEntry("", "", "", "", None)
        self.entries: dict[str, ModuleEntry] = {"": self.root}
        self._of_call: dict[int, ModuleEntry] = {}

    def entry_of(self, meta: NodeMeta) -> ModuleEntry:
        """The entry that a node belongs to: that of the innermost call."""
        call = meta.origin.call if meta.origin is not None else None
        if call is not None:
            return self._of_module_call(call)
        entry = self.root
        for name, (path, class_name) in (meta.get("nn_module_stack") or {}).items():
            entry = self._entry(name, path, class_name, entry)
        return entry

    def _of_module_call(self, call: ModuleCall) -> ModuleEntry:
        found = self._of_call.get(id(call))
        if found is None:
            around = self.root if call.parent is None else self._of_module_call(call.parent)
            found = self._of_call[id(call)] = self._entry(call.name, call.path, call.class_name, around)
        return found

    def _entry(self, name: str, path: str, class_name: str, around: ModuleEntry) -> ModuleEntry:
        if not path:
            self.root.class_name = self.root.class_name or short_class(class_name)
            return self.root
        found = self.entries.get(name)
        if found is None:
            # inside of the call that it was made from, if that is of a module around it
            inside = not around.path or path.startswith(f"{around.path}.")
            parent = self._container(path.rpartition(".")[0], around if inside else self.root)
            label = path[len(parent.path) :].lstrip(".") + name[len(path) :]
            found = ModuleEntry(name, path, label, short_class(class_name), parent)
            self.entries[name] = found
            parent.children.append(found)
        elif not found.class_name:
            found.class_name = short_class(class_name)
        return found

    def _container(self, path: str, around: ModuleEntry) -> ModuleEntry:
        """The entry of a module that holds others, below ``around``."""
        if path == around.path or not path:
            return around
        name = path + around.name[len(around.path) :]  # what a second call is inside of is of that call too
        found = self.entries.get(name)
        if found is None:
            parent = self._container(path.rpartition(".")[0], around)
            found = ModuleEntry(name, path, path[len(parent.path) :].lstrip("."), "", parent)
            self.entries[name] = found
            parent.children.append(found)
        return found

    def add_state(self, program: ExportedProgram) -> None:
        """Give each module its own weights; tied ones belong to the first name."""
        seen: set[int] = set()
        for name, value in {**program.state_dict, **program.constants}.items():
            if not isinstance(value, torch.Tensor) or id(value) in seen:
                continue
            seen.add(id(value))
            self._container(name.rpartition(".")[0], self.root).state[name] = value


def short_class(class_name: str) -> str:
    """A class without its module."""
    return class_name.rpartition(".")[2]


class _Sums:
    """Fills in what entries do in total, and what they are like."""

    def __init__(self, program: ExportedProgram, root: ModuleEntry) -> None:
        self._places = {
            node: (entry, number) for entry in root.descendants() for number, node in enumerate(entry.nodes)
        }
        specs = program.graph_signature.input_specs
        self._state = {spec.arg.name: spec.target for spec in specs if spec.target is not None}
        self._known: dict[Hashable, int] = {}
        self.fill(root)

    def fill(self, entry: ModuleEntry) -> dict[Node, None]:
        """Fill in an entry and those inside of it; returns what they are given from outside, in the order of use."""
        given: dict[Node, None] = {}
        outside: dict[Node, int] = {}
        inside: list[Hashable] = []
        operations: list[Size] = []
        for node in entry.nodes:
            found = operations_of(node)
            entry.without_formula += found is None
            operations.append(0 if found is None else found)
            given.update(dict.fromkeys(node.all_input_nodes))
        entry.calls = len(entry.nodes)
        for value in entry.state.values():
            entry.parameters += value.numel()
            entry.bytes += value.numel() * value.element_size()
        for child in entry.children:
            from_outside = self.fill(child)
            given.update(from_outside)
            names = tuple(self._name(node, entry, outside) for node in from_outside)
            inside.append((child.label.partition("@")[0], child.likeness, names))
            operations.append(child.operations)
            entry.calls += child.calls
            entry.parameters += child.parameters
            entry.bytes += child.bytes
            entry.without_formula += child.without_formula
        entry.operations = add_all(operations)
        entry.likeness = self._known.setdefault((self._signature(entry, outside), *inside), len(self._known))
        return {node: None for node in given if not self._is_inside(node, entry)}

    def _signature(self, entry: ModuleEntry, outside: dict[Node, int]) -> Hashable:
        """What two modules share if they do the same by themselves: calls with all that they are given and give, and
        shapes of weights. ``outside`` numbers what comes from elsewhere."""
        calls = tuple(
            (spell_target(node.target), describe_value(node.meta.get("val")), self._arguments(node, entry, outside))
            for node in entry.nodes
        )
        state = tuple((name.rpartition(".")[2], describe_value(value)) for name, value in entry.state.items())
        return entry.class_name, calls, state

    def _arguments(self, node: Node, entry: ModuleEntry, outside: dict[Node, int]) -> str:
        return repr(torch.fx.node.map_arg((node.args, node.kwargs), lambda each: self._name(each, entry, outside)))

    def _name(self, node: Node, entry: ModuleEntry, outside: dict[Node, int]) -> Any:
        """What a value is to a module: the result of one of its calls, one of its weights, or what it is given."""
        if node in self._places:
            owner, number = self._places[node]
            if self._is_inside(node, entry):
                return owner.path[len(entry.path) :], number
        target = self._state.get(node.name) if node.op == "placeholder" else None
        around = f"{entry.path}." if entry.path else ""
        if target is not None and target.startswith(around):
            return target[len(around) :]
        return outside.setdefault(node, len(outside)), describe_value(node.meta.get("val"))

    def _is_inside(self, node: Node, entry: ModuleEntry) -> bool:
        if node not in self._places:
            return False
        owner: ModuleEntry | None = self._places[node][0]
        while owner is not None and owner is not entry:
            owner = owner.parent
        return owner is entry


@dataclass(frozen=True)
class Alike:
    """Neighbours in a tree that do the same: the first of them, and all."""

    first: ModuleEntry
    entries: tuple[ModuleEntry, ...]

    @property
    def label(self) -> str:
        """``0`` for one, ``0 .. 11`` for several."""
        last = self.entries[-1]
        return self.first.label if len(self.entries) == 1 else f"{self.first.label} .. {last.label}"


def folded(entries: Iterable[ModuleEntry]) -> list[Alike]:
    """Entries with numbered neighbours that are alike put together."""
    groups: list[list[ModuleEntry]] = []
    for entry in entries:
        if groups and entry.label.isdecimal() and groups[-1][-1].label.isdecimal():
            if groups[-1][0].likeness == entry.likeness:
                groups[-1].append(entry)
                continue
        groups.append([entry])
    return [Alike(group[0], tuple(group)) for group in groups]
