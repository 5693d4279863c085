"""Programs of older operator sets, made to say the same in today's operators.

The operator set is numbered (:data:`schema.OPERATOR_SET`). When an operator that programs use changes its name, its
arguments or its meaning, the number grows, and an upgrader is added here that rewrites programs of the number before.
Upgraders work on the schema, before anything is looked up by name, and are never removed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tintype.errors import FileFormatError, FileVersionError
from tintype.serde import schema

Upgrader = Callable[[schema.Program], None]

# the number of an operator set -> what makes a program of it one of the next
UPGRADERS: dict[int, list[Upgrader]] = {}


def upgrade(program: schema.Program, operator_set: int) -> None:
    """Bring a program from the operator set that it was saved with to the current one."""
    current = schema.OPERATOR_SET
    if operator_set > current:
        raise FileVersionError(
            f"the program is written in operator set {operator_set}, and this tintype knows them up to {current}",
            remedy="load it with a newer version of tintype",
        )
    if operator_set < 1:
        raise FileFormatError(f"there is no operator set {operator_set}")
    for number in range(operator_set, current):
        for upgrader in UPGRADERS.get(number, ()):
            upgrader(program)


def rename_operator(program: schema.Program, old: str, new: str) -> None:
    """Let all calls of an operator be calls of another one with the same arguments."""
    program.functions = [new if name == old else name for name in program.functions]


def calls_of(program: schema.Program, name: str) -> Iterator[schema.Node]:
    """The nodes that call a function, in all graphs."""
    numbers = {number for number, function in enumerate(program.functions) if function == name}
    for graph in program.graphs:
        for node in graph.nodes:
            if node.operation == schema.CALL and node.target in numbers:
                yield node
