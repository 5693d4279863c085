"""What a script can reach: all procedures that a method may run. Asked for what the script writes to, and for a
report of everything that can't be converted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tintype.errors import TintypeError
from tintype.interop.torchscript.interpreter import Interpreter
from tintype.interop.torchscript.mirror import Mirror
from tintype.interop.torchscript.operators import UnsupportedStatementError, is_supported
from tintype.interop.torchscript.reading import Procedure, Statement


def reachable(
    interpreter: Interpreter, start: Procedure, mirror: Mirror | None, *, functions: bool
) -> Iterator[tuple[Statement, Any]]:
    """Every statement that may run, with the module that it is about, where that is certain; without those of
    ``functions``, which take long to read and have no state, unless they are asked for."""
    seen: set[int] = set()
    work: list[tuple[Procedure, Mirror | None]] = [(start, mirror)]
    while work:
        procedure, owner = work.pop()
        if id(procedure) in seen:
            continue
        seen.add(id(procedure))
        modules: dict[int, Mirror] = {}
        if owner is not None:
            modules[procedure.block.inputs[0]] = owner
        for statement in procedure.statements():
            subject = modules.get(statement.inputs[0]) if statement.inputs else None
            if statement.kind == "prim::GetAttr" and subject is not None:
                child = subject._modules.get(statement.name)
                if isinstance(child, Mirror):
                    modules[statement.outputs[0]] = child
            yield statement, subject
            if statement.kind == "prim::CallFunction" and not functions:
                continue
            work += _called(interpreter, statement, subject)


def _called(
    interpreter: Interpreter, statement: Statement, subject: Mirror | None
) -> list[tuple[Procedure, Mirror | None]]:
    if statement.kind == "prim::CallFunction":
        return [(statement.procedure.called(statement), None)]
    if statement.kind == "prim::fork":
        return [(statement.procedure.forked(statement), None)]
    if statement.kind != "prim::CallMethod":
        return []
    # a module that is only known as an interface may be any that has the method
    owners = [subject] if subject is not None else list(interpreter.mirroring.mirrors.values())
    return [(owner.method(statement.name), owner) for owner in owners if owner.script._has_method(statement.name)]


def unsupported(interpreter: Interpreter, start: Procedure, mirror: Mirror | None) -> list[TintypeError]:
    """An error for every statement that nothing runs."""
    return [
        UnsupportedStatementError(statement)
        for statement, _ in reachable(interpreter, start, mirror, functions=True)
        if not is_supported(statement)
    ]
