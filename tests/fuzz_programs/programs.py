"""Writes random programs: inputs, members, statements, and what is returned."""

from __future__ import annotations

import warnings
from typing import Any

import torch

import tintype
from tests.fuzz_programs import forms, operators
from tests.fuzz_programs.inputs import Case, input_lines
from tests.fuzz_programs.language import Input, Number, Program, Sizes, Statement, names_in
from tests.fuzz_programs.structured import structured_statement
from tests.fuzz_programs.writer import Scope, Writer, fits, pick

DTYPES = {"float32": 60, "float64": 8, "float16": 3, "bfloat16": 3, "int64": 10, "bool": 4, "complex64": 3}
SIZE_EXPRESSIONS = {"n": 45, "m": 15, "n + 1": 6, "2 * n": 5, "1": 6, "2": 7, "3": 14, "4": 10, "0": 0.5}
EXAMPLES = [0, 1, 1, 2, 2, 3, 3, 3, 4, 4, 5, 6]
OTHERS = [0, 1, 2, 3, 4, 5, 6, 7, 8]


def write_program(seed: int, most_statements: int = 10) -> Program:
    """The program of a seed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _write(Writer(seed, structured_statement), most_statements)


def _write(writer: Writer, most_statements: int) -> Program:
    chance = writer.chance
    inputs = write_inputs(writer)
    example = {"n": chance.choice(EXAMPLES), "m": chance.choice(EXAMPLES)}
    others = [{"n": chance.choice(OTHERS), "m": chance.choice(OTHERS)} for _ in range(2)]
    program = Program(writer.seed, inputs, {}, (), "", Sizes(example), chance.random() < 0.8)
    namespaces = [starting_namespace(program, sizes) for sizes in [example, *others]]
    scope = Scope(namespaces, [argument.name for argument in inputs if isinstance(argument, Input)], {})
    for _ in range(chance.choice([0, 0, 1, 1, 2])):
        writer.add_state(scope, chance.choice("pb"))
    statements: list[Statement] = []
    wanted = chance.randint(1, most_statements)
    for _ in range(wanted * 3):
        statement = writer.statement(scope)
        if statement is not None:
            statements.append(statement)
        elif chance.random() < 0.01:
            early = early_return(writer, scope)
            if early is not None:
                statements.append(early)
        if len(statements) >= wanted:
            break
    result = write_result(writer, scope, statements)
    requires = chance.random() < 0.12
    return Program(
        writer.seed, inputs, scope.members, tuple(statements), result, Sizes(example), program.training, requires
    )


def starting_namespace(program: Program, sizes: dict[str, int]) -> dict[str, Any]:
    """Names that a program starts with, at some sizes."""
    namespace: dict[str, Any] = {"torch": torch, "tintype": tintype, "forms": forms, "self": torch.nn.Module()}
    operators.register()
    torch.default_generator.manual_seed(1)
    exec("\n".join(input_lines(program, Case(sizes))[1:]), namespace)
    return namespace


def write_inputs(writer: Writer) -> tuple[Input | Number, ...]:
    """One to three tensors, and sometimes a number."""
    chance = writer.chance
    inputs: list[Input | Number] = []
    for _ in range(chance.choice([1, 1, 2, 2, 2, 3])):
        rank = chance.choice([0, 1, 1, 2, 2, 2, 3, 3, 4])
        sizes = tuple(pick(chance, SIZE_EXPRESSIONS) for _ in range(rank))
        earlier = [item for item in inputs if isinstance(item, Input)]
        if earlier and chance.random() < 0.4:
            sizes = chance.choice(earlier).sizes
        layouts = ["contiguous"] * 12 + ["transposed", "strided", "offset", "channels_last"]
        inputs.append(Input(writer.name("x"), sizes, pick(chance, DTYPES), chance.choice(layouts)))
    if chance.random() < 0.08:
        inputs.append(Number(writer.name("k"), chance.choice(["n", "n", "2", "3"])))
    return tuple(inputs)


def early_return(writer: Writer, scope: Scope) -> Statement | None:
    """A return that depends on a size."""
    found = [name for name in scope.names if fits(scope.value(name), "a", 1)]
    if not found:
        return None
    name, size = writer.chance.choice(found), writer.chance.randint(0, 5)
    return Statement(f"if {name}.shape[0] > {size}:\n    return {name} * 2", "early return", (), False, True)


def write_result(writer: Writer, scope: Scope, statements: list[Statement]) -> str:
    """What the program returns."""
    chance = writer.chance
    recent = scope.names[-4:]
    chosen = [chance.choice([*recent, *scope.names]) for _ in range(chance.randint(0, 2))]
    # what nobody uses is only seen if it is returned
    read = {
        name
        for statement in statements
        for line in statement.lines()
        for name in names_in(line.partition(" = ")[2] or line)
    }
    unread = [name for name in scope.names if name.startswith("v") and name not in read]
    chosen = [*unread[: chance.randint(1, 4)], *chosen] or [scope.names[-1]]
    if chance.random() < 0.1 and fits(scope.value(chosen[0]), "a", 1):
        chosen.append(f"{chosen[0]}.shape[0]")
    if chance.random() < 0.03:
        chosen.append(chance.choice(["None", "7", "'text'", "2.5"]))
    form = chance.random()
    if form < 0.2:
        return chosen[0]
    if form < 0.23:
        return f"forms.Pair({chosen[0]}, {chosen[-1]})"
    if form < 0.7:
        return f"({', '.join(chosen)},)"
    if form < 0.8:
        return f"[{', '.join(chosen)}]"
    if form < 0.9:
        return "{" + ", ".join(f'"r{i}_": {name}' for i, name in enumerate(chosen)) + "}"
    return f"({chosen[0]}, [{', '.join(chosen[1:])}])"
