"""What inputs a program accepts, and which line of the user's program made it so."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from tintype.errors import Location
from tintype.export.asserted import asserted_guards, congruence
from tintype.export.constraints import ContractLine, DynamicSize, SizeNames, range_text
from tintype.export.dimensions import Dim, DimHint
from tintype.export.strict_report import StrictReport
from tintype.ir.graph import location_of
from tintype.symbolic import Assertion, Condition, Environment, Expr, Guard, Range, Symbol, and_, ge, le
from tintype.symbolic.decide import decide
from tintype.symbolic.facts import Facts
from tintype.symbolic.ranges import INFINITY

# operators of which only a run decides what they run
_DECIDED = {
    "cond": "the data decide which way it goes",
    "while_loop": "the data decide how many steps it makes",
    "scan": "it makes as many steps as there are rows",
    "map_impl": "it makes as many steps as there are rows",
}


def control_flow_lines(module: torch.nn.Module) -> list[ContractLine]:
    """The lines of the user's program that became control flow, in the order of the program; each once."""
    found: dict[ContractLine, None] = {}
    for inner in module.modules():
        graph = getattr(inner, "graph", None)
        for node in graph.nodes if graph is not None else ():
            text = _DECIDED.get(getattr(node.target, "__name__", "")) if node.op == "call_function" else None
            if text is not None:
                found[ContractLine("control flow", f"{node.target.__name__}: {text}", location_of(node))] = None
    return list(found)


def left_out_lines(report: Any) -> list[ContractLine]:
    """What the model does and the program does not, where strict=True has looked."""
    if not isinstance(report, StrictReport):
        return []
    return [ContractLine("left out", f"left out: {found.text}", found.location) for found in report.findings]


def contract_lines(environment: Environment, sizes: Sequence[DynamicSize]) -> list[ContractLine]:
    """What the final program accepts: each size that was to vary, then the assertions that it makes."""
    names = SizeNames(sizes)
    lines: dict[ContractLine, None] = {}
    said = Facts()
    shown: set[Symbol] = set()
    ranges: dict[ContractLine, Symbol] = {}  # lines about sizes without a name
    for size in sizes:
        if size.expression.kind == "float":
            lines[ContractLine("size", f"{size.source} is any float", None)] = None
            continue
        final = environment.simplify(size.expression)
        if not isinstance(final, Expr):
            cause = _cause_of_value(environment, size)
            lines[ContractLine("specialization", f"{size.source} = {final}", cause)] = None
        elif (
            isinstance(size.dimension, DimHint)
            and isinstance(size.expression, Symbol)
            and final is not size.expression
        ):
            cause = _cause(environment, size.expression, ("eq",))
            lines[ContractLine("relation", f"{size.source} = {names.text(final)}", cause)] = None
            said.replacements[size.expression] = final
        else:
            said_of_it = list(_size_lines(environment, size, names, shown))
            if isinstance(size.dimension, DimHint) and isinstance(size.expression, Symbol):
                ranges.update(dict.fromkeys(said_of_it, size.expression))
            lines.update(dict.fromkeys(said_of_it))
    said.congruences.update({symbol: found for symbol, found in environment.congruences.items() if symbol in shown})
    for line in lines:
        if line.condition is not None:
            said.learn(line.condition)
    assertions: list[Guard | Assertion] = [*asserted_guards(environment, sizes), *environment.assertions]
    asserted = Facts()
    more: dict[ContractLine, None] = {}
    for found in assertions:
        if decide(found.condition, said) is not True:
            text = names.text(found.condition)
            more[ContractLine("assertion", text, found.location, found.condition)] = None
            asserted.learn(found.condition)
    return [line for line in lines if not _is_said_by(asserted, line, ranges.get(line))] + list(more)


def _is_said_by(asserted: Facts, line: ContractLine, of: Symbol | None) -> bool:
    """Whether a line about a size without a name says less than what the program asserts anyway."""
    if of is not None and isinstance(asserted.replacements.get(of), int):
        return True
    return line.kind == "size" and line.condition is not None and decide(line.condition, asserted) is True


def _size_lines(
    environment: Environment, size: DynamicSize, names: SizeNames, shown: set[Symbol]
) -> Iterator[ContractLine]:
    """A size that still varies: its name, and once for each symbol what is known of it."""
    text = ""
    if isinstance(size.dimension, Dim) and size.dimension.name != str(size.source):
        text = f"{size.source} = {size.dimension.name}"
    location = None
    asserted: Condition = True
    congruent: list[ContractLine] = []
    for symbol in sorted(size.expression.symbols - shown, key=lambda symbol: symbol.serial):
        shown.add(symbol)
        name = names.roots[symbol].name if symbol in names.roots else names.sources.get(symbol, str(symbol))
        bounds = environment.range(symbol)
        text += (", " if text else "") + range_text(name, bounds)
        if bounds != symbol.declared:
            location = _cause(environment, symbol, ("le", "ne", "and"), alone=True)
        if bounds != names.accepted(environment, symbol):  # the program asserts it: more was promised
            asserted = and_(asserted, *within(symbol, bounds))
        found = environment.congruences.get(symbol)
        if found is not None:
            cause = _cause(environment, symbol, ("eq", "ne"), alone=True)
            text_of_it = f"{name} % {found.modulus} == {found.remainder}"
            congruent.append(ContractLine("size", text_of_it, cause, congruence(environment, symbol)))
    if text:
        yield ContractLine("size", text, location, asserted if isinstance(asserted, Expr) else None)
    yield from congruent


def within(symbol: Symbol, bounds: Range) -> Iterator[Condition]:
    """That a symbol is in a range."""
    lower, upper = bounds
    if lower > -INFINITY:
        yield ge(symbol, int(lower))
    if upper < INFINITY:
        yield le(symbol, int(upper))


def _cause_of_value(environment: Environment, size: DynamicSize) -> Location | None:
    for found in environment.specializations:
        if isinstance(found.expression, Expr) and not found.expression.symbols.isdisjoint(size.expression.symbols):
            return found.location
    return None


def _cause(
    environment: Environment, symbol: Symbol, operations: tuple[str, ...], *, alone: bool = False
) -> Location | None:
    """The line of the first guard of such a form on the symbol, or the last one on it alone."""
    known = environment.replacements
    for guard in reversed(environment.guards) if alone else environment.guards:
        if guard.condition.operation not in operations:
            continue
        mentioned = guard.condition.symbols
        if not alone and symbol in mentioned:
            return guard.location
        values = [known.get(part, part) for part in mentioned]
        if alone and {part for value in values if isinstance(value, Expr) for part in value.symbols} == {symbol}:
            return guard.location
    return None


class Contract:
    """The sizes that a program accepts: ranges, relations, specialisations and runtime assertions; the lines where
    the data decide what runs; and what the model does and the program does not, if ``strict=True`` looked for it.

    >>> import torch, tintype
    >>> batch = tintype.Dim("batch", min=1, max=64)
    >>> ep = tintype.export(torch.nn.ReLU(), (torch.ones(4, 3),), dynamic_shapes={"input": {0: batch}})
    >>> print(ep.contract())
    input.shape[0] = batch, 1 <= batch <= 64
    """

    def __init__(self, lines: Sequence[ContractLine]) -> None:
        self.lines = tuple(lines)

    def __iter__(self) -> Iterator[ContractLine]:
        return iter(self.lines)

    def __len__(self) -> int:
        return len(self.lines)

    def __str__(self) -> str:
        lines = [_text(line) for line in self.lines]
        if all(line.kind in ("control flow", "left out") for line in self.lines):
            lines.insert(0, "all sizes are those of the example inputs")
        return "\n".join(lines)


def _text(line: ContractLine) -> str:
    if line.location is None:
        return line.brief_text()
    return f"{line.brief_text()}  # {line.location}: {line.location.source_line()}"
