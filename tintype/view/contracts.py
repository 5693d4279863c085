"""What a program takes, as data that the page can check sizes against: the same checks that a call makes.

A call holds each size against its expression and bounds, which gives the symbols their values, and the graph asserts
the conditions that are left. ``page/contract.js`` does the same, in the same order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tintype.export.checks import Expectation
from tintype.ir.printing import describe_value
from tintype.ir.sources import named_input
from tintype.symbolic import Expr, Range, Size, named_text
from tintype.view.costs import sizes_of
from tintype.view.expressions import bounds_data, expression_data
from tintype.view.sources import Lines

if TYPE_CHECKING:
    from tintype.export.program import ExportedProgram


def contract_data(program: ExportedProgram, lines: Lines) -> tuple[dict[str, Any], set[Any]]:
    """The inputs with their sizes and the lines of the contract; and the symbols that these have."""
    symbols: set[Any] = set()
    checks = program.input_checks()
    inputs = [_input(expectation, checks.names, symbols) for expectation in checks.expectations]
    asked = []
    for line in program.contract():
        row: dict[str, Any] = {"kind": line.kind, "text": line.text}
        if line.condition is not None:
            symbols |= line.condition.symbols
            row["condition"] = expression_data(line.condition)
            row["symbols"] = sorted(symbol.name for symbol in line.condition.symbols)
        location = lines.location(line.location)
        if location is not None:
            row["line"] = location
        asked.append(row)
    return {"inputs": inputs, "lines": asked, "outputs": _outputs(program)}, symbols


def _input(expectation: Expectation, names: list[str], symbols: set[Any]) -> dict[str, Any]:
    row: dict[str, Any] = {"name": str(named_input(expectation.path, names))}
    if expectation.dtype is None and not isinstance(expectation.value, Expr):
        return {**row, "kind": "value", "value": _value_text(expectation.value)}
    if expectation.dtype is not None:
        row |= {"kind": "tensor", "dtype": str(expectation.dtype).removeprefix("torch.")}
        sizes = expectation.sizes
    else:
        row |= {"kind": "number", "dtype": expectation.value.kind}
        sizes = (expectation.value,) if expectation.value.kind == "int" else ()
    bounds = expectation.ranges or [None] * len(sizes)
    row["sizes"] = [_size(size, bound) for size, bound in zip(sizes, bounds)]  # a float has a range, but no sizes
    for size in sizes:
        if isinstance(size, Expr):
            symbols |= size.symbols
    return row


def _size(size: Size, bounds: Range | None) -> dict[str, Any]:
    if not isinstance(size, Expr):
        return {"text": str(size), "value": expression_data(size)}
    lower, upper = bounds_data(bounds)
    row: dict[str, Any] = {"text": named_text(size), "value": expression_data(size), "lower": lower, "upper": upper}
    row["linear"] = {symbol.name: size.terms[symbol] for symbol in size.symbols if _is_linear(size, symbol)}
    row["symbols"] = sorted(symbol.name for symbol in size.symbols)
    return row


def _is_linear(size: Expr, symbol: Any) -> bool:
    """Whether a size is a multiple of a symbol and something without it, from which a call computes the symbol."""
    return symbol in size.terms and all(symbol not in part.symbols for part in size.terms if part is not symbol)


def _value_text(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}…"


def _outputs(program: ExportedProgram) -> list[dict[str, Any]]:
    """The results by their place, and what a call writes to."""
    values = {node.name: node.meta.get("val") for node in program.graph.nodes}
    paths = iter(program.output_paths())
    rows: list[dict[str, Any]] = []
    for spec in program.graph_signature.output_specs:
        name = getattr(spec.arg, "name", "")
        is_result = spec.kind.name in ("USER_OUTPUT", "LOSS_OUTPUT")
        place = next(paths, "") if is_result else str(spec.target)
        described = describe_value(values[name]) if name in values else repr(getattr(spec.arg, "value", None))
        row: dict[str, Any] = {"name": name, "kind": spec.kind.name.lower(), "place": place, "type": described}
        sizes = sizes_of(values.get(name))
        if sizes is not None:
            row["sizes"] = [expression_data(size) for size in sizes]
        rows.append(row)
    return rows
