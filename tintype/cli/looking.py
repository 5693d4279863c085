"""``tintype tree`` and ``tintype show``: the modules of a program with what they cost, and its code in part."""

from __future__ import annotations

from collections import Counter
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.tree import Tree
from torch.fx import Node

from tintype.cli.info import plain
from tintype.cli.inputs import load_one
from tintype.errors import InvalidRequestError
from tintype.export.program import ExportedProgram
from tintype.ir.graph import meta_of
from tintype.ir.node_info import module_names
from tintype.ir.printing import describe_value, source_comment, spell_call, spell_target


def print_tree(path: Path, *, entry: str | None, depth: int | None) -> None:
    """Print the modules that a program came from, with their parameters and operators; alike neighbours once."""
    program = load_one(path, entry)
    modules = _modules(program)
    root = Tree(plain(f"{path.name}: {_costs(modules, '', program)}"))
    _add_children(root, modules, "", program, depth)
    Console().print(root, soft_wrap=True)


def _modules(program: ExportedProgram) -> dict[str, Counter[str]]:
    """The operators of each module, those of the modules inside of it included; the model's own is ''."""
    found: dict[str, Counter[str]] = {"": Counter()}
    for name in (*program.state_dict, *program.constants):
        for path in _paths_of(name.rpartition(".")[0]):
            found.setdefault(path, Counter())
    for node in _calls(program):
        places = {""}
        for name in module_names(meta_of(node)):
            places.update(_paths_of(name.partition("@")[0]))
        for place in places:
            found.setdefault(place, Counter())[spell_target(node.target).removeprefix("torch.ops.")] += 1
    return found


def _paths_of(path: str) -> list[str]:
    """A module's path and those of the modules around it."""
    parts = path.split(".") if path else []
    return [".".join(parts[: count + 1]) for count in range(len(parts))]


def _calls(program: ExportedProgram) -> list[Node]:
    return [node for node in program.graph.nodes if node.op == "call_function"]


def _costs(modules: dict[str, Counter[str]], path: str, program: ExportedProgram) -> str:
    weights = [
        value for name, value in program.state_dict.items() if not path or name == path or name.startswith(f"{path}.")
    ]
    count = sum(value.numel() for value in weights)
    return f"{sum(modules[path].values())} operators, {count:,} parameters and buffers"


def _add_children(branch: Tree, modules: dict[str, Counter[str]], path: str, program: Any, depth: int | None) -> None:
    if depth == 0:
        return
    prefix = f"{path}." if path else ""
    names = [name for name in modules if name.startswith(prefix) and name != path]
    children = [name for name in names if "." not in name[len(prefix) :]]
    shown: list[list[str]] = []
    for name in children:  # neighbours that do the same are shown once
        alike = bool(shown) and _shape(modules, shown[-1][0]) == _shape(modules, name)
        if alike and name[len(prefix) :].isdigit():
            shown[-1].append(name)
        else:
            shown.append([name])
    for group in shown:
        first, label = group[0], group[0][len(prefix) :]
        if len(group) > 1:
            label = f"{label} .. {group[-1][len(prefix) :]} ({len(group)} alike, each)"
        child = branch.add(plain(f"{label}: {_costs(modules, first, program)}"))
        _add_children(child, modules, first, program, None if depth is None else depth - 1)


def _shape(modules: dict[str, Counter[str]], path: str) -> Any:
    inside = {name[len(path) :]: counts for name, counts in modules.items() if name.startswith(f"{path}.")}
    return modules[path], inside


def print_part(path: Path, *, entry: str | None, module: str | None, operator: str | None) -> None:
    """Print a program as code, or those of its lines that belong to a module or call an operator."""
    program = load_one(path, entry)
    console = Console()
    if module is None and operator is None:
        console.print(plain(str(program), keep_lines=True), soft_wrap=True)
        return
    nodes = [node for node in _calls(program) if _is_in(node, module) and _calls_operator(node, operator)]
    if not nodes:
        raise InvalidRequestError(
            "no operator of the program is there", remedy="tintype tree lists modules, tintype info operators"
        )
    last = None
    for node in nodes:
        place = ".".join(module_names(meta_of(node))[-1:]) or "(model)"
        comment = f"# {place}  {source_comment(meta_of(node)) or ''}".rstrip()
        if comment != last:
            console.print(plain(comment), soft_wrap=True)
            last = comment
        text = f'{node.name}: "{describe_value(node.meta.get("val"))}" = {spell_call(node)}'
        console.print(plain(text), soft_wrap=True)


def _is_in(node: Node, module: str | None) -> bool:
    names = [name.partition("@")[0] for name in module_names(meta_of(node))]
    return module is None or any(fnmatchcase(name, module) for name in names)


def _calls_operator(node: Node, operator: str | None) -> bool:
    if operator is None:
        return True
    name = spell_target(node.target).removeprefix("torch.ops.")
    parts = name.split(".")
    return fnmatchcase(name, operator) or fnmatchcase(parts[1] if len(parts) > 1 else name, operator)
