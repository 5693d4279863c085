"""``tintype tree`` and ``tintype show``: the modules of a program with what they cost, and its code in part."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path

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
from tintype.view.modules import ModuleEntry, folded, module_tree


def print_tree(path: Path, *, entry: str | None, depth: int | None) -> None:
    """Print the modules that a program came from, with their parameters and operators; alike neighbours once."""
    tree = module_tree(load_one(path, entry))
    root = Tree(plain(f"{path.name}: {_costs(tree)}"))
    _add_children(root, tree, depth)
    Console().print(root, soft_wrap=True)


def _costs(module: ModuleEntry) -> str:
    return f"{module.calls} operators, {module.parameters:,} parameters and buffers"


def _add_children(branch: Tree, module: ModuleEntry, depth: int | None) -> None:
    if depth == 0:
        return
    for alike in folded(module.children):
        several = f" ({len(alike.entries)} alike, each)" if len(alike.entries) > 1 else ""
        child = branch.add(plain(f"{alike.label}{several}: {_costs(alike.first)}"))
        _add_children(child, alike.first, None if depth is None else depth - 1)


def _calls(program: ExportedProgram) -> list[Node]:
    return [node for node in program.graph.nodes if node.op == "call_function"]


def print_part(path: Path, *, entry: str | None, module: str | None, operator: str | None) -> None:
    """Print a program as code, or those of its lines that belong to a module or call an operator."""
    program = load_one(path, entry)
    console = Console()
    if module is None and operator is None:
        console.print(plain(program.code, keep_lines=True), soft_wrap=True)
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
