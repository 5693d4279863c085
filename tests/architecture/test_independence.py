"""The independence rule: nothing in tintype/ uses torch's own capture stack, but for tintype/interop/.

The scan follows imports, names bound to torch's modules, dotted access through them, `getattr` with a
constant name, `vars(...)[...]` and `__dict__[...]`, and the functions that import a module by its name.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.architecture.sources import PACKAGE, package_files, parse, relative

FORBIDDEN = (
    "torch.export",
    "torch._export",
    "torch._dynamo",
    "torch._functorch",
    "torch.func",
    "functorch",
    "torch.compile",
    "torch.fx.experimental",
    "torch._subclasses",
    "torch._higher_order_ops",
    "torch._inductor",
    "torch.onnx",
)
ROOTS = ("torch", "functorch")
EXEMPT_ROOM = "interop"

# Functions that take the name of a module, or of something in one, as their first argument.
IMPORT_BY_NAME = frozenset({"import_module", "__import__", "find_spec", "resolve_name", "locate", "patch"})


def is_forbidden(dotted: str) -> bool:
    return any(dotted == name or dotted.startswith(name + ".") for name in FORBIDDEN)


def constant_string(node: ast.expr) -> str | None:
    """The value of a string that is written out, also in parts: "torch" + "._dynamo", f"torch._dynamo"."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = constant_string(node.left), constant_string(node.right)
        return left + right if left is not None and right is not None else None
    if isinstance(node, ast.JoinedStr):
        parts = [constant_string(v) for v in node.values]
        return "".join(p for p in parts if p is not None) if None not in parts else None
    return None


class IndependenceScan:
    """Finds every use of a forbidden module in one syntax tree."""

    def __init__(self, tree: ast.Module) -> None:
        self.tree = tree
        self.names: dict[str, str] = {}  # a name or attribute, as written -> the torch name it holds
        self.importers = set(IMPORT_BY_NAME)  # with the other names that this file gives them
        self.found: set[tuple[int, str]] = set()

    def run(self) -> list[tuple[int, str]]:
        """(line, what) of every breach, in the order of lines."""
        for node in ast.walk(self.tree):
            self.bind_import(node)
        # t = torch; u = t.fx: in whatever order they are written, until nothing new is bound
        while self.bind_assignments():
            pass
        for node in ast.walk(self.tree):
            self.check_import(node)
            if isinstance(node, ast.expr):
                self.check_expression(node)
        return sorted(self.found)

    def bind_import(self, node: ast.AST) -> None:
        if isinstance(node, ast.Import):
            for alias in node.names:
                root = alias.name.split(".")[0]
                if root in ROOTS:
                    self.names[alias.asname or root] = alias.name if alias.asname else root
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            for alias in node.names:
                if node.module.split(".")[0] in ROOTS:
                    self.names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
                elif alias.name in IMPORT_BY_NAME:
                    self.importers.add(alias.asname or alias.name)

    def bind_assignments(self) -> bool:
        size = len(self.names)
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    self.bind(target, node.value)
            elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and node.value is not None:
                self.bind(node.target, node.value)
        return len(self.names) > size

    def bind(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            for one_target, one_value in zip(target.elts, value.elts):
                self.bind(one_target, one_value)
        elif isinstance(target, ast.Name | ast.Attribute) and (dotted := self.dotted(value)):
            self.names.setdefault(ast.unparse(target), dotted)

    def dotted(self, node: ast.expr) -> str | None:
        """The dotted torch name that an expression stands for; None when it is something else."""
        if isinstance(node, ast.NamedExpr):
            return self.dotted(node.value)
        if isinstance(node, ast.Name):
            return self.names.get(node.id)
        if isinstance(node, ast.Attribute):
            base = self.dotted(node.value)
            return f"{base}.{node.attr}" if base else self.names.get(ast.unparse(node))
        if isinstance(node, ast.Subscript):
            return self.dotted_subscript(node)
        if isinstance(node, ast.Call):
            return self.dotted_call(node)
        return None

    def dotted_subscript(self, node: ast.Subscript) -> str | None:
        """sys.modules["torch.x"], torch.__dict__["x"], vars(torch)["x"]"""
        key, holder = constant_string(node.slice), node.value
        if key is None:
            return None
        if isinstance(holder, ast.Attribute) and holder.attr == "modules":
            return key if key.split(".")[0] in ROOTS else None
        base = None
        if isinstance(holder, ast.Attribute) and holder.attr == "__dict__":
            base = self.dotted(holder.value)
        elif isinstance(holder, ast.Call) and getattr(holder.func, "id", "") == "vars" and holder.args:
            base = self.dotted(holder.args[0])
        return f"{base}.{key}" if base else None

    def dotted_call(self, node: ast.Call) -> str | None:
        """getattr(torch, "x"), import_module("torch.x") and (".x", "torch"), sys.modules.get("torch.x")"""
        function, strings = node.func, [constant_string(a) for a in node.args]
        called = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
        if called in ("getattr", "hasattr") and len(strings) > 1 and strings[1] is not None:
            base = self.dotted(node.args[0])
            return f"{base}.{strings[1]}" if base else None
        if not strings or strings[0] is None:
            return None
        name = strings[0].replace(":", ".")
        of_modules = isinstance(function, ast.Attribute) and getattr(function.value, "attr", "") == "modules"
        if called not in self.importers and not (called == "get" and of_modules):
            return None
        if name.startswith(".") and len(strings) > 1 and strings[1] is not None:
            name = strings[1] + name
        return name if name.split(".")[0] in ROOTS else None

    def check_import(self, node: ast.AST) -> None:
        if isinstance(node, ast.Import):
            for alias in node.names:
                if is_forbidden(alias.name):
                    self.found.add((node.lineno, f"import {alias.name}"))
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            for alias in node.names:
                if is_forbidden(f"{node.module}.{alias.name}"):
                    self.found.add((node.lineno, f"from {node.module} import {alias.name}"))

    def check_expression(self, node: ast.expr) -> None:
        # A bare name that an import bound was reported with its import.
        if not isinstance(node, ast.Name) and (dotted := self.dotted(node)) and is_forbidden(dotted):
            self.found.add((node.lineno, dotted))


def breaches(source: str) -> list[tuple[int, str]]:
    return IndependenceScan(ast.parse(source)).run()


def files_under_the_rule() -> list[Path]:
    return [p for p in package_files() if p.relative_to(PACKAGE).parts[0] != EXEMPT_ROOM]


@pytest.mark.parametrize("path", files_under_the_rule(), ids=relative)
def test_a_file_does_not_use_torchs_capture_stack(path: Path) -> None:
    found = IndependenceScan(parse(path)).run()
    assert not found, "\n".join(f"{relative(path)}:{line}: {what}" for line, what in found)


@pytest.mark.parametrize("name", FORBIDDEN)
def test_the_scan_catches_every_forbidden_module(name: str) -> None:
    parent, _, last = name.rpartition(".")
    assert breaches(f"import {name}")
    assert breaches(f"import {name} as other")
    assert breaches(f"import {name}.part")
    assert breaches(f"from {name} import thing")
    assert breaches(f"import importlib\nimportlib.import_module({name!r})")
    if parent:
        assert breaches(f"from {parent} import {last}")
        assert breaches(f"import torch\nuse = {name}.thing")
        assert breaches(f"import torch\nuse = getattr({parent}, {last!r})")


@pytest.mark.parametrize(
    "source",
    [
        "import torch as t\nt._dynamo.reset()",
        "from torch import fx\nfx.experimental.proxy_tensor",
        "import torch.fx as fx\nfx.experimental.symbolic_shapes.ShapeEnv",
        "from torch.fx import experimental",
        "import torch\nx = torch\nx.export",
        "import torch\nx: object = torch\nx.export",
        "import torch\ndef f():\n    b = a.fx\n    return b.experimental\na = torch",
        "import torch\nx, y = torch, 1\nx.onnx",
        "import torch\n(x := torch).onnx",
        "import torch\nclass A:\n    def f(self):\n        self.t = torch\n        self.t.compile(f)",
        "import torch\n@torch.compile\ndef f(): ...",
        "import torch\ngetattr(torch, '_dynamo').reset",
        "import torch\ngetattr(getattr(torch, 'fx'), 'experimental')",
        "import torch\ngetattr(torch, '_dy' + 'namo', None)",
        "import torch\ngetattr(torch, f'_dynamo')",
        "import torch\nhasattr(torch, '_dynamo')",
        "import torch\nvars(torch)['_dynamo']",
        "import torch\ntorch.__dict__['_dynamo']",
        "from importlib import import_module\nimport_module('torch._inductor.config')",
        "from importlib import import_module as load\nload('torch._inductor.config')",
        "import importlib\nimportlib.import_module('._dynamo', 'torch')",
        "import importlib\nimportlib.import_module('torch').export",
        "import importlib.util\nimportlib.util.find_spec('torch.onnx')",
        "__import__('torch._export')",
        "import pkgutil\npkgutil.resolve_name('torch.fx.experimental:proxy_tensor')",
        "import sys\nsys.modules['torch._dynamo']",
        "import sys\nsys.modules.get('torch._dynamo')",
        "import sys\nsys.modules['torch'].export",
        "def late():\n    from torch._subclasses.fake_tensor import FakeTensor",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from torch.export import ExportedProgram",
    ],
)
def test_the_scan_catches_a_way_around_the_rule(source: str) -> None:
    assert breaches(source)


@pytest.mark.parametrize(
    "source",
    [
        "import torch\ntorch.functional.einsum",
        "import torch\ntorch.compiler.is_compiling()",
        "import torch\ntorch.ops.higher_order.cond",
        "import torch\ntorch.fx.Graph()",
        "from torch.fx import GraphModule",
        "import torch.utils._pytree as pytree\npytree.tree_flatten",
        "from torch._decomp import core_aten_decompositions",
        "from tintype.export import export\nexport.onnx",
        "from .export import export",
        "import re\nre.compile('x')",
        "model.export()",
        "text = 'faster than torch.export'",
        "'''torch._dynamo in a docstring'''",
    ],
)
def test_the_scan_lets_lawful_code_pass(source: str) -> None:
    assert breaches(source) == []
