"""A room imports only the rooms above it; `import tintype` itself loads next to nothing.

The scan sees absolute and relative imports and `import_module("tintype.x")`, at any depth of a file.
Imports under `if TYPE_CHECKING:` are exempt: they do not run.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.architecture.sources import PACKAGE, REPOSITORY, ROOMS, package_files, parse, relative

# Rooms that any other may import from inside a function, whatever their order: they bridge to torch's own
# tools, or show programs to people, and must stay unloaded until somebody needs them.
LOADED_ON_DEMAND = frozenset({"interop", "view"})

# Top-level files that are not rooms and see every room.
FRONT_DOORS = frozenset({"__init__", "__main__"})

# What `import tintype` must not bring in on top of `import torch`.
HEAVY_MODULES = (
    "torch.export",
    "torch._export",
    "torch._dynamo",
    "torch._functorch",
    "torch.func",
    "functorch",
    "torch.fx.experimental",
    "torch._subclasses",
    "torch._higher_order_ops",
    "torch._inductor",
    "torch.onnx",
    "torch.testing",
    "sympy",
    "numpy",
    "msgspec",
    "safetensors",
    "onnx",
    "onnxscript",
    "transformers",
)


@dataclass(frozen=True)
class RoomImport:
    """One import of a room; `target` is None for the package's front door (`import tintype`)."""

    line: int
    target: str | None
    inside_function: bool


def room_of(module: str) -> str | None:
    """The room that a dotted module name lies in.

    "tintype.ir.program" lies in "ir"; "tintype" itself lies in none.
    """
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else None


class ImportScan(ast.NodeVisitor):
    """Collects the imports of tintype's rooms in one file."""

    def __init__(self, package: str) -> None:
        self.package = package  # what a relative import starts from
        self.imports: list[RoomImport] = []
        self.function_depth = 0

    def add(self, node: ast.stmt | ast.expr, module: str) -> None:
        if module == "tintype" or module.startswith("tintype."):
            self.imports.append(RoomImport(node.lineno, room_of(module), self.function_depth > 0))

    def visit_If(self, node: ast.If) -> None:
        names = {n.id for n in ast.walk(node.test) if isinstance(n, ast.Name)}
        names |= {n.attr for n in ast.walk(node.test) if isinstance(n, ast.Attribute)}
        negated = isinstance(node.test, ast.UnaryOp)
        if "TYPE_CHECKING" not in names or negated:
            self.generic_visit(node)
            return
        for statement in node.orelse:
            self.visit(statement)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> None:
        self.function_depth += 1
        self.generic_visit(node)
        self.function_depth -= 1

    visit_AsyncFunctionDef = visit_FunctionDef
    visit_Lambda = visit_FunctionDef

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self.add(node, alias.name)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        module = node.module or ""
        if node.level:
            base = self.package.split(".")[: len(self.package.split(".")) - node.level + 1]
            module = ".".join([*base, module]) if module else ".".join(base)
        if module != "tintype":
            self.add(node, module)
            return
        for alias in node.names:
            self.add(node, f"tintype.{alias.name}" if alias.name in ROOMS else "tintype")

    def visit_Call(self, node: ast.Call) -> None:
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if called in ("import_module", "__import__") and node.args:
            name = node.args[0]
            if isinstance(name, ast.Constant) and isinstance(name.value, str):
                self.add(node, name.value)
        self.generic_visit(node)


def violations(tree: ast.Module, room: str, package: str) -> list[str]:
    """The imports of a file in `room` (and in the dotted `package`) that break the order."""
    scan = ImportScan(package)
    scan.visit(tree)
    found = []
    for seen in scan.imports:
        if seen.target == room:
            continue
        if seen.target is None:
            if room != "cli":  # the last room may use the package as its users do
                found.append(f"line {seen.line}: imports the package itself, which sees every room")
        elif seen.target in LOADED_ON_DEMAND:
            if not seen.inside_function and ROOMS.index(seen.target) > ROOMS.index(room):
                found.append(f"line {seen.line}: imports `{seen.target}` outside a function")
        elif seen.target not in ROOMS:
            found.append(f"line {seen.line}: imports `tintype.{seen.target}`, which is no room")
        elif ROOMS.index(seen.target) > ROOMS.index(room):
            found.append(f"line {seen.line}: `{room}` imports `{seen.target}`, which stands below it")
    return found


def file_violations(path: Path) -> list[str]:
    inside = path.relative_to(PACKAGE).with_suffix("").parts
    if inside[0] in FRONT_DOORS:
        return []
    package = ".".join(("tintype", *inside[:-1]))
    return violations(parse(path), inside[0], package)


@pytest.mark.parametrize("path", package_files(), ids=relative)
def test_a_room_imports_only_rooms_above_it(path: Path) -> None:
    assert not file_violations(path), relative(path)


def test_every_top_level_file_and_folder_is_a_room() -> None:
    entries = {p.relative_to(PACKAGE).with_suffix("").parts[0] for p in package_files()}
    assert entries <= set(ROOMS) | FRONT_DOORS


def test_the_readme_lists_the_rooms_in_this_order() -> None:
    readme = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| `(\w+)/?` \|", readme, flags=re.MULTILINE)
    assert tuple(listed) == ROOMS


@pytest.mark.parametrize(
    "source",
    [
        "import tintype.trace",
        "import tintype.trace.recorder as recorder",
        "from tintype.trace import Recorder",
        "from tintype import trace",
        "from tintype import export",
        "from ..trace import Recorder",
        "from ..trace.recorder import Recorder",
        "from .. import trace",
        "import tintype",
        "from tintype import Dim",
        "from tintype.unheard_of import x",
        "from tintype.interop import convert",
        "def late():\n    from tintype.trace import Recorder",
        "import importlib\nimportlib.import_module('tintype.trace')",
        "from typing import TYPE_CHECKING\nif not TYPE_CHECKING:\n    import tintype.trace",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    pass\nelse:\n    import tintype.trace",
    ],
)
def test_the_scan_catches_a_breach(source: str) -> None:
    assert violations(ast.parse(source), room="ir", package="tintype.ir")


@pytest.mark.parametrize(
    "source",
    [
        "import torch, tintype.errors",
        "from tintype.symbolic.expression import Expression",
        "from tintype import tree",
        "from .. import errors",
        "from ..errors import CaptureError",
        "from .program import Program",
        "from . import program",
        "import tintype.ir.program",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from tintype.trace import Recorder",
        "def late():\n    from tintype.interop import convert",
    ],
)
def test_the_scan_lets_a_lawful_import_pass(source: str) -> None:
    assert violations(ast.parse(source), room="ir", package="tintype.ir") == []


def run_in_a_fresh_process(program: str) -> Any:
    """What the program prints last, read as JSON."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_importing_tintype_is_light() -> None:
    loaded = run_in_a_fresh_process(
        "import sys, json, torch; before = set(sys.modules); import tintype; "
        "print(json.dumps(sorted(set(sys.modules) - before)))"
    )
    assert "tintype" in loaded
    heavy = [m for m in loaded if any(m == h or m.startswith(h + ".") for h in HEAVY_MODULES)]
    assert not heavy, f"`import tintype` loads {heavy}"
    rooms = sorted({room for m in loaded if m.startswith("tintype.") and (room := room_of(m))})
    eager = [room for room in rooms if room not in ("errors", "tree")]
    assert not eager, f"`import tintype` loads the rooms {eager} before they are asked for"


def test_an_export_loads_the_rooms_that_it_needs_and_looks_for_no_garbage_meanwhile() -> None:
    rooms, full_collections, collects = run_in_a_fresh_process(
        "import gc, sys, json, torch; gc.collect(); before = gc.get_stats()[2]['collections']; import tintype; "
        "tintype.export; full = gc.get_stats()[2]['collections'] - before; "
        "tintype.export(torch.nn.Linear(3, 2), (torch.ones(4, 3),)); "
        "rooms = sorted({name.split('.')[1] for name in sys.modules if name.startswith('tintype.')}); "
        "print(json.dumps([rooms, full, gc.isenabled()]))"
    )
    assert {"interpret", "aot", "serde", "onnx"}.isdisjoint(rooms)
    assert full_collections == 0
    assert collects


def test_a_function_named_like_a_room_survives_the_import_of_the_room() -> None:
    """Importing `tintype.export.x` binds the room to `tintype.export`, where users expect the function."""
    ask = (
        "import json, tintype\n"
        f"names = sorted(set(tintype.__all__) & set({ROOMS!r}))\n"
        "print(json.dumps({name: callable(getattr(tintype, name)) for name in names}))"
    )
    present = [r for r in ROOMS if (PACKAGE / r / "__init__.py").exists() or (PACKAGE / f"{r}.py").exists()]
    import_every_room = "".join(f"import tintype.{room}\n" for room in present)
    assert run_in_a_fresh_process(import_every_room + ask) == run_in_a_fresh_process(ask)


# --- imports inside of functions -----------------------------------------------------------------------------

# (module, what it imports inside of a function and which imports it in turn): why that is so.
# Everything else is imported where a reader looks for imports.
HIDDEN_CYCLES: dict[tuple[str, str], str] = {
    (
        "symbolic.expression",
        "symbolic.bits",
    ): "operators are methods of expressions, their rules have files",
    ("symbolic.expression", "symbolic.division"): "the same",
    ("symbolic.expression", "symbolic.extrema"): "the same",
    ("symbolic.expression", "symbolic.floating"): "the same",
    ("symbolic.expression", "symbolic.text"): "the text of an expression is made of expressions",
    ("symbolic.floating", "symbolic.relations"): "comparisons of floats are relations",
    ("trace.recorder", "trace.metadata_writes"): "which registers itself with the recorder",
    ("transforms.partition", "transforms.min_cut"): "which makes partitions; loaded when somebody wants one",
    ("ops.flex_attention", "ops.flex_attention_backward"): "loaded when somebody differentiates",
    ("export.program", "export.decompose"): "a method of programs that makes another program",
    ("export.program", "export.other_state"): "the same",
    ("export.program", "export.rewriting"): "the same",
}


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(path: Path, known: frozenset[str]) -> tuple[set[str], set[str]]:
    """The modules of the package that a file imports at its top, and inside of functions."""
    top: set[str] = set()
    inside: set[str] = set()
    package = ("tintype", *path.relative_to(PACKAGE).parts[:-1])

    def visit(node: ast.AST, found: set[str]) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
                continue
            if isinstance(child, ast.ImportFrom):
                base = ".".join((*package[: len(package) - child.level + 1], *filter(None, [child.module])))
                base = base if child.level else child.module or ""
                for alias in child.names:
                    full = f"{base}.{alias.name}".removeprefix("tintype.")
                    found.add(full if full in known else base.removeprefix("tintype."))
            is_function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            visit(child, inside if is_function else found)

    visit(parse(path), top)
    return top & known, inside & known


def hidden_cycles() -> set[tuple[str, str]]:
    """Imports inside of functions of a module that imports, directly or not, the module of the function."""
    known = frozenset(map(module_name, package_files()))
    imports = {module_name(path): imports_of(path, known) for path in package_files()}

    def reaches(start: str, goal: str) -> bool:
        seen, pending = {start}, [start]
        while pending:
            step = pending.pop()
            if step == goal:
                return True
            new = imports[step][0] - seen
            seen |= new
            pending += new
        return False

    return {(module, late) for module, (_, inside) in imports.items() for late in inside if reaches(late, module)}


def test_imports_inside_of_functions_hide_no_cycle() -> None:
    """But for those that are named. Imports from one room into another are judged by the order of rooms."""
    found = {pair for pair in hidden_cycles() if pair[0].partition(".")[0] == pair[1].partition(".")[0]}
    found = {pair for pair in found if pair[0].partition(".")[0] not in LOADED_ON_DEMAND}
    assert found - {*HIDDEN_CYCLES} == set()
    assert {*HIDDEN_CYCLES} - found == set(), "these are none any more"
