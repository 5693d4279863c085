"""The package as others get it: its names, what type checkers see of it, and the wheel."""

from __future__ import annotations

import ast
import builtins
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import tintype

REPOSITORY = Path(__file__).resolve().parents[1]


def run(*command: str, cwd: Path, path: Path) -> str:
    environment = {**os.environ, "PYTHONPATH": str(path)}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_everything_that_is_public_is_in_the_stub() -> None:
    stub = ast.parse((REPOSITORY / "tintype" / "__init__.pyi").read_text(encoding="utf-8"))
    found = {
        (alias.asname, node.module if node.module != "tintype" else f"tintype.{alias.name}")
        for node in stub.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert found == set(tintype._HOMES.items())  # type: ignore[attr-defined]


def test_everything_replaces_no_builtin() -> None:
    names: dict[str, object] = {}
    exec("from tintype import *", names)
    assert not [name for name in tintype.__all__ if hasattr(builtins, name)]
    assert {"export", "compare", "VerificationError"} <= names.keys()
    assert callable(tintype.compile) and callable(tintype.map) and "map" in dir(tintype)


def test_all_errors_are_at_the_top() -> None:
    from tintype import errors

    for name, value in vars(errors).items():
        if isinstance(value, type) and issubclass(value, (errors.TintypeError, Warning)):
            assert getattr(tintype, name) is value


def test_type_checkers_see_the_public_names(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    (tmp_path / "user.py").write_text(
        "import torch\nimport tintype\n"
        "program = tintype.export(torch.nn.ReLU(), (torch.ones(2),))\n"
        "reveal_type(program)\n"
        "reveal_type(tintype.compare(program, program))\n"
        "tintype.no_such_name\n"
    )
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--cache-dir",
        str(tmp_path / "cache"),
        "--follow-imports=silent",
        "user.py",
    ]
    environment = {**os.environ, "MYPYPATH": str(REPOSITORY)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600)
    assert '"tintype.export.program.ExportedProgram"' in done.stdout, done.stdout
    assert '"tintype.comparison.comparing.Comparison"' in done.stdout
    assert 'user.py:6: error: Module has no attribute "no_such_name"' in done.stdout
    assert "Found 1 error in 1 file" in done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel of what git knows of, as ``make dist`` builds it."""
    folder = tmp_path_factory.mktemp("dist")
    source = tmp_path_factory.mktemp("source")
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=REPOSITORY, capture_output=True, text=True, check=True
    ).stdout
    for name in filter(None, listed.split("\0")):
        if name.startswith("tintype/") or "/" not in name:
            target = source / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes((REPOSITORY / name).read_bytes())
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--quiet", "--disable-pip-version-check"]
    command = [sys.executable, "-m", "pip", "wheel", *options, "--wheel-dir", str(folder), "."]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = folder.glob("*.whl")
    return built


def test_the_wheel_has_all_that_is_needed_and_no_more(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {
        "tintype/py.typed",
        "tintype/__init__.pyi",
        "tintype/error_pages/data-dependent.md",
        "tintype/view/page/app.js",
    } <= names
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"tintype"}
    sources = {path.relative_to(REPOSITORY).as_posix() for path in (REPOSITORY / "tintype").rglob("*.py")}
    assert sources <= names


def test_the_wheel_runs_where_nothing_else_of_ours_is(wheel: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    options = ["--no-deps", "--no-index", "--quiet", "--disable-pip-version-check", "--target", str(site)]
    run(sys.executable, "-m", "pip", "install", *options, str(wheel), cwd=tmp_path, path=tmp_path)
    where = run(sys.executable, "-c", "import tintype; print(tintype.__file__)", cwd=tmp_path, path=site)
    assert Path(where.strip()).is_relative_to(site)
    for name in ("demo.py", "small_transformer.py"):
        (tmp_path / name).write_bytes((REPOSITORY / "examples" / name).read_bytes())
    run(sys.executable, "demo.py", cwd=tmp_path, path=site)
    shown = run(sys.executable, "-m", "tintype", "explain", "mutation", cwd=tmp_path, path=site)
    assert shown.startswith("# mutation: MutationError")
    assert (site / "bin" / "tintype").exists()
