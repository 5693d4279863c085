"""Every opcode of every version is handled, or refused by name."""

from __future__ import annotations

import ast
import dis
import sys

import pytest

from tests.architecture.sources import PACKAGE, package_files, parse, relative
from tests.interpret.opcodes_of_versions import OPCODES
from tintype.interpret import Machine, NotInterpretedError
from tintype.interpret.handlers import HANDLERS, HOOKED
from tintype.interpret.policy import HOOKS
from tintype.interpret.versions import RUNNING, VERSIONS

# Operations that decoding itself takes care of.
DECODED_AWAY = {"keyword_names", "refused"}


@pytest.mark.parametrize("name", VERSIONS)
def test_every_opcode_is_handled_or_refused(name: str) -> None:
    version = VERSIONS[name]
    known = {*version.opcodes, *version.refused, *version.internal}
    assert known == set(OPCODES[name])
    assert not set(version.opcodes) & set(version.refused)
    assert not version.internal & (set(version.opcodes) | set(version.refused))


def test_the_running_version_has_the_opcodes_that_are_written_down() -> None:
    assert RUNNING is not None
    specialised = getattr(dis, "_specialized_opmap", {})
    assert {opcode for opcode, number in dis.opmap.items() if number < 256 and opcode not in specialised} == set(
        OPCODES[RUNNING.name]
    )


@pytest.mark.parametrize("name", VERSIONS)
def test_every_operation_has_a_handler(name: str) -> None:
    code = compile("a.b; c.d\nx = 1", "<test>", "exec").replace(co_names=("a",) * 200, co_consts=(None,) * 200)
    operations = set()
    for decoder in VERSIONS[name].opcodes.values():
        for argument in range(6):
            operations |= {operation for operation, _ in decoder(code, argument, 0)}
    assert operations <= set(HANDLERS) | DECODED_AWAY


def test_every_handler_is_used_by_some_version() -> None:
    code = compile("a.b; c.d\nx = 1", "<test>", "exec").replace(co_names=("a",) * 200, co_consts=(None,) * 200)
    used = set()
    for version in VERSIONS.values():
        for decoder in version.opcodes.values():
            for argument in range(6):
                used |= {operation for operation, _ in decoder(code, argument, 0)}
    assert set(HANDLERS) - {"call_with_keywords"} <= used  # made of `call` and the names before it


def test_every_hook_has_handlers() -> None:
    assert set(HOOKED) | {"on_native_call", "on_operands"} == HOOKS
    for handlers in HOOKED.values():
        assert set(handlers) <= set(HANDLERS)


def test_async_code_is_refused_by_name() -> None:
    async def fetch() -> None: ...

    with pytest.raises(NotInterpretedError, match=r"async def is not interpreted: .*fetch") as caught:
        Machine().call(fetch)
    assert caught.value.location is not None
    assert caught.value.location.line == fetch.__code__.co_firstlineno


def interpret_files() -> list:
    return [path for path in package_files() if path.is_relative_to(PACKAGE / "interpret")]


@pytest.mark.parametrize("path", interpret_files(), ids=relative)
def test_the_machine_imports_no_torch_and_asks_for_the_version_once(path) -> None:
    asks = path == PACKAGE / "interpret" / "versions" / "__init__.py"
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.Import):
            assert not any(alias.name.split(".")[0] == "torch" for alias in node.names)
        if isinstance(node, ast.ImportFrom):
            assert (node.module or "").split(".")[0] != "torch"
        if isinstance(node, ast.Attribute) and node.attr in ("version_info", "hexversion"):
            assert asks


def test_importing_the_machine_loads_no_torch() -> None:
    import subprocess

    program = "import sys, tintype.interpret; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], cwd=PACKAGE.parent).returncode == 0
