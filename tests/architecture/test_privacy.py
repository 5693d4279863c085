"""What other rooms need of an object is public: its private attributes are read in its own room only."""

from __future__ import annotations

import ast
import dis
import functools
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.architecture.sources import PACKAGE, package_files, parse, relative


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__")


def names_in_torch() -> set[str]:
    """Private names that objects of torch and of Python have: reading those is reading theirs."""
    module, graph = torch.nn.LSTM(1, 1), torch.fx.Graph()
    theirs = (
        torch, torch._C, torch.Tensor, torch.UntypedStorage, torch.SymInt, torch.ScriptObject, torch.jit.ScriptModule,
        torch.autograd.Function, torch.autograd, torch.nn.functional, torch.utils,
        torch.fx.GraphModule(module, graph), torch.fx.Node, graph, graph._graph_namespace,
        torch.ops.aten.add.Tensor, torch.ops.aten.add, torch.overrides, torch.export.AdditionalInputs(), torch._C._nn,
        torch._C._autograd, torch.nn.modules.module, torch.nn.modules.batchnorm, torch.jit.script(torch.nn.ReLU()),
        torch.nested.nested_tensor([torch.ones(1)], layout=torch.jagged), module, functools, random, dis,
    )  # fmt: skip
    operators = {name.split("::")[1].split(".")[0] for name in torch._C._dispatch_get_all_op_names()}
    return operators.union(*(dir(thing) for thing in theirs)) | {"_replace", "_fields", "_make"}


def own_names(path: Path) -> Iterator[str]:
    """The private names that a file gives to something."""
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and _is_self(node.value):
            yield node.attr


def _is_self(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def room(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0]


@functools.cache
def owners() -> dict[str, set[str]]:
    """The rooms that have something of a private name, for names that are nobody else's."""
    theirs, found = names_in_torch(), dict[str, set[str]]()
    for path in package_files():
        for name in own_names(path):
            if is_private(name) and name not in theirs:
                found.setdefault(name, set()).add(room(path))
    return found


def reads_of_others(tree: ast.Module, here: str) -> list[str]:
    """The private names of other rooms that a file of a room reads."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and not _is_self(node.value):
            if here not in owners().get(node.attr, {here}):
                found.append(f"line {node.lineno}: {ast.unparse(node)}")
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tintype."):
            home = str(node.module).split(".")[1]
            found += [
                f"line {node.lineno}: {a.name} of {home}" for a in node.names if is_private(a.name) and home != here
            ]
    return found


def test_rooms_keep_something_private() -> None:
    assert owners()["_module_state"] == {"export"}
    assert len({name for name, rooms in owners().items() if len(rooms) == 1}) > 1000


@pytest.mark.parametrize("path", package_files(), ids=relative)
def test_no_room_reads_what_is_private_to_another(path: Path) -> None:
    assert not reads_of_others(parse(path), room(path))


@pytest.mark.parametrize("source", ["program._module_state", "from tintype.export.program import _x"])
def test_the_scan_catches_a_read(source: str) -> None:
    assert len(reads_of_others(ast.parse(source), "serde")) == 1
    assert not reads_of_others(ast.parse(source), "export")
