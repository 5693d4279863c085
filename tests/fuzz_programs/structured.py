"""Statements that hold functions: branches, loops, helpers, submodules."""

from __future__ import annotations

from typing import Any

import torch

from tests.fuzz_programs.language import Block, Statement
from tests.fuzz_programs.writer import WEIGHTS, Refused, Scope, Writer, fits, shares_memory

# What the body of a function may hold, by how strict it is about writes.
PURE = {"elementwise": 8, "conversion": 2, "view": 5, "reduction": 4, "gather": 2}
WRITING = {**PURE, "write": 4, "state in place": 1, "effect": 0.5, "structured": 0.7}
KINDS = {
    "cond": 5, "torch.cond": 0.1, "map": 2, "while_loop": 2, "scan": 2, "helper": 3, "submodule": 4,
    "cond on a size": 1, "if": 1.5, "for": 0.8, "while": 0.5, "vmap": 1.5, "grad": 0.8, "jvp": 0.8, "checkpoint": 0.5,
    "autocast": 0.5,
}  # fmt: skip
TRANSFORMS = {
    "vmap": 'torch.vmap({function}, randomness="same")({operand})',
    "grad": "torch.func.grad({function})({operand})",
    "jvp": "torch.func.jvp({function}, ({operand},), ({operand}.cos(),))[1]",
    "checkpoint": "torch.utils.checkpoint.checkpoint({function}, {operand}, use_reentrant=False)",
    "autocast": "forms.in_bfloat16(lambda: {function}({operand}))",
}


def structured_statement(writer: Writer, scope: Scope, depth: int) -> Statement:
    """A statement with functions of its own."""
    if depth >= 2:
        raise Refused
    chance = writer.chance
    kind = chance.choices(list(KINDS), list(KINDS.values()))[0]
    if depth and kind in ("if", "while"):
        raise Refused  # what operators are given is captured natively
    if kind in TRANSFORMS:
        return _transformed(writer, scope, depth, kind)
    makers = {"map": _map, "while_loop": _while, "scan": _scan, "helper": _helper, "submodule": _submodule,
              "if": _if, "for": _python_loop, "while": _python_loop}  # fmt: skip
    maker = makers.get(kind)
    if maker is _python_loop:
        return _python_loop(writer, scope, depth, kind == "while")
    return maker(writer, scope, depth) if maker else _cond(writer, scope, depth, kind)


def _choose(writer: Writer, scope: Scope, kind: str = "f", rank: int = 0) -> str:
    found = [name for name in scope.names if fits(scope.value(name), kind, rank)]
    if not found:
        raise Refused
    return writer.chance.choice(found)


def _body(
    writer: Writer,
    scope: Scope,
    operands: dict[str, str],
    depth: int,
    families: dict[str, float],
    members: dict[str, str] | None = None,
    most: int = 3,
) -> tuple[tuple[Statement, ...], Scope]:
    """Statements over copies of the operands, which are the function's parameters (or expressions for them)."""
    namespaces: list[dict[str, Any]] = []
    for namespace in scope.namespaces:
        new = dict(namespace)
        for parameter, expression in operands.items():
            new[parameter] = eval(expression, namespace).detach().clone()
        if members is not None:
            new["self"] = torch.nn.Module()
        namespaces.append(new)
    outer = [] if members is not None else _outer_names(writer, scope, operands)
    inner = Scope(namespaces, [*outer, *operands], members if members is not None else scope.members)
    inner.outer = set(outer)
    inner.converted = scope.converted | {name for name, operand in operands.items() if operand in scope.converted}
    if members is not None and writer.chance.random() < 0.5:
        writer.add_state(inner, writer.chance.choice("pb"))
    statements = []
    for _ in range(writer.chance.randint(1, most)):
        statement = writer.statement(inner, families, depth + 1)
        if statement is not None:
            statements.append(statement)
    return tuple(statements), inner


def _outer_names(writer: Writer, scope: Scope, operands: dict[str, str]) -> list[str]:
    """Values from around a function that it uses: none shares memory with another or with an operand, since writes to
    such ones are refused (what a branch does to one of them would have to be seen in the other)."""
    tensors = [eval(expression, scope.namespaces[0]) for expression in operands.values()]
    names = []
    for name in scope.names:
        value = scope.value(name)
        if writer.chance.random() < 0.3 and not any(shares_memory(value, other) for other in tensors):
            names.append(name)
            tensors.append(value)
    return names


def _result(writer: Writer, inner: Scope, like: str) -> str:
    """A value of the function that looks like one of its parameters at all sizes; a new one, as loops want it."""
    found = []
    for name in inner.names:
        pairs = [(inner.value(name, at), inner.value(like, at)) for at in range(len(inner.namespaces))]
        if all(
            isinstance(one, torch.Tensor) and one.shape == two.shape and one.dtype == two.dtype for one, two in pairs
        ):
            found.append(name)
    name = writer.chance.choice([*found[-3:], found[-1], found[-1]])
    return f"{name}.clone()" if not name.startswith("v") or writer.chance.random() < 0.7 else f"{name} * 1"


def _predicate(writer: Writer, scope: Scope, kind: str) -> str:
    if kind == "cond on a size":
        return f"{writer.size(scope)} > {writer.chance.randint(0, 4)}"
    name = _choose(writer, scope, "f")
    return writer.chance.choice([f"{name}.sum() > 0", f"({name} > 0.5).any()", f"{name}.mean() < 0.1"])


def _cond(writer: Writer, scope: Scope, depth: int, kind: str) -> Statement:
    operand = _choose(writer, scope)
    blocks = []
    parameter = writer.name("a")
    operands = {parameter: operand}
    for _ in range(2):
        statements, inner = _body(writer, scope, operands, depth, WRITING)
        blocks.append(
            Block(f"branch_{writer.name('f')}", (parameter,), statements, _result(writer, inner, parameter))
        )
    first, second = (block.name for block in blocks)
    call = "torch.cond" if kind == "torch.cond" else "tintype.cond"
    predicate = _predicate(writer, scope, kind)
    text = f"{writer.name('v')} = {call}({predicate}, {first}, {second}, ({operand},))"
    return Statement(text, kind, tuple(blocks))


def _map(writer: Writer, scope: Scope, depth: int) -> Statement:
    rows = _choose(writer, scope, "f", 1)
    if any(scope.value(rows, at).shape[0] == 0 for at in range(len(scope.namespaces))):
        raise Refused
    parameter = writer.name("a")
    statements, inner = _body(writer, scope, {parameter: f"{rows}[0]"}, depth, PURE)
    block = Block(f"row_{writer.name('f')}", (parameter,), statements, _result(writer, inner, parameter))
    return Statement(f"{writer.name('v')} = tintype.map({block.name}, {rows})", "map", (block,))


def _while(writer: Writer, scope: Scope, depth: int) -> Statement:
    operand = _choose(writer, scope)
    counter, parameter = writer.name("i"), writer.name("a")
    statements, inner = _body(writer, scope, {parameter: operand}, depth, PURE)
    result = _result(writer, inner, parameter)
    count = writer.chance.choice(["0", "1", "2", "3", f"{_choose(writer, scope, 'a', 1)}.shape[0]"])
    more = Block(f"more_{writer.name('f')}", (counter, parameter), (), f"{counter} < {count}")
    step = Block(f"step_{writer.name('f')}", (counter, parameter), statements, f"({counter} + 1, {result})")
    zero = "torch.zeros((), dtype=torch.int64)"
    text = f"{writer.name('v')} = tintype.while_loop({more.name}, {step.name}, ({zero}, {operand}))[1]"
    return Statement(text, "while_loop", (more, step))


def _scan(writer: Writer, scope: Scope, depth: int) -> Statement:
    rows = _choose(writer, scope, "f", 1)
    if any(scope.value(rows, at).shape[0] == 0 for at in range(len(scope.namespaces))):
        raise Refused
    carried = writer.chance.choice([f"{rows}[0]", _choose(writer, scope)])
    carry, row = writer.name("a"), writer.name("a")
    statements, inner = _body(writer, scope, {carry: carried, row: f"{rows}[0]"}, depth, PURE)
    results = f"({_result(writer, inner, carry)}, {_result(writer, inner, row)})"
    block = Block(f"step_{writer.name('f')}", (carry, row), statements, results)
    which = writer.chance.choice([0, 1])
    text = f"{writer.name('v')} = tintype.scan({block.name}, {carried}, {rows})[{which}]"
    return Statement(text, "scan", (block,))


def _operands(writer: Writer, scope: Scope) -> dict[str, str]:
    return {writer.name("a"): _choose(writer, scope, "a") for _ in range(writer.chance.choice([1, 1, 2]))}


def _helper(writer: Writer, scope: Scope, depth: int) -> Statement:
    operands = _operands(writer, scope)
    statements, inner = _body(writer, scope, operands, depth, WEIGHTS, most=4)
    result = writer.chance.choice(inner.names[-3:])
    block = Block(f"helper_{writer.name('f')}", tuple(operands), statements, result)
    return Statement(f"{writer.name('v')} = {block.name}({', '.join(operands.values())})", "helper", (block,))


def _submodule(writer: Writer, scope: Scope, depth: int) -> Statement:
    operands = _operands(writer, scope)
    members: dict[str, str] = {}
    statements, inner = _body(writer, scope, operands, depth, WEIGHTS, members, most=4)
    result = writer.chance.choice(inner.names[-3:])
    block = Block(f"Part{writer.name('f')}", tuple(operands), statements, result, members)
    for namespace in scope.namespaces:
        from tests.fuzz_programs.language import submodules

        for inner_block in [*submodules(statements), block]:
            exec("\n".join(inner_block.class_lines()), namespace)
    name = writer.name("m")
    writer.add_member(scope, name, f"self.{name} = {block.name}()")
    twice = writer.chance.random() < 0.15
    call = f"self.{name}({', '.join(operands.values())})"
    text = f"{call}\n" if twice else ""
    return Statement(f"{text}{writer.name('v')} = {call}", "submodule", (block,))


def _transformed(writer: Writer, scope: Scope, depth: int, kind: str) -> Statement:
    """A function that one of torch's gets."""
    operand = _choose(writer, scope, "f", 1 if kind == "vmap" else 0)
    if kind == "vmap" and any(scope.value(operand, at).shape[0] == 0 for at in range(len(scope.namespaces))):
        raise Refused
    parameter = writer.name("a")
    given = f"{operand}[0]" if kind == "vmap" else operand
    families = WRITING if kind in ("checkpoint", "autocast") else PURE
    statements, inner = _body(writer, scope, {parameter: given}, depth, families)
    result = f"{inner.names[-1]}.sum()" if kind == "grad" else f"{inner.names[-1]} * 1"
    block = Block(f"{kind}_{writer.name('f')}", (parameter,), statements, result)
    call = TRANSFORMS[kind].format(function=block.name, operand=operand)
    return Statement(f"{writer.name('v')} = {call}", kind, (block,))


def _if(writer: Writer, scope: Scope, depth: int) -> Statement:
    """Python's own branch on data."""
    operand = _choose(writer, scope)
    parameter = writer.name("a")
    blocks = []
    for _ in range(2):
        statements, inner = _body(writer, scope, {parameter: operand}, depth, WRITING)
        result = _result(writer, inner, parameter)
        blocks.append(Block(f"arm_{writer.name('f')}", (parameter,), statements, result))
    first, second = (f"{block.name}({operand})" for block in blocks)
    text = f"{writer.name('v')} = {first} if {_predicate(writer, scope, 'if')} else {second}"
    return Statement(text, "if", tuple(blocks))


def _python_loop(writer: Writer, scope: Scope, depth: int, on_data: bool) -> Statement:
    """Python's own loop, a few times or as the data decide."""
    operand, parameter, value = _choose(writer, scope), writer.name("a"), writer.name("v")
    statements, inner = _body(writer, scope, {parameter: operand}, depth, PURE)
    block = Block(f"step_{writer.name('f')}", (parameter,), statements, _result(writer, inner, parameter))
    if not on_data:
        count = writer.chance.choice(["1", "2", "3"])
        return Statement(
            f"{value} = {operand}\nfor _ in range({count}):\n    {value} = {block.name}({value})", "for", (block,)
        )
    counter = writer.name("i")
    condition = f"{counter} < 3 and {value}.abs().sum() < 20"
    step = f"    {value} = {block.name}({value})\n    {counter} += 1"
    return Statement(f"{value} = {operand} * 1\n{counter} = 0\nwhile {condition}:\n{step}", "while", (block,))
