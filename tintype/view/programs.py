"""All that a page knows of a program, as plain data."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from tintype.view.contracts import contract_data
from tintype.view.expressions import bounds_data
from tintype.view.modules import ModuleEntry, module_tree
from tintype.view.nodes import GraphData
from tintype.view.problems import decision_data
from tintype.view.sources import Lines
from tintype.view.weights import weights_data

if TYPE_CHECKING:
    from tintype.export.program import ExportedProgram


def program_data(name: str, program: ExportedProgram, lines: Lines, *, statistics: bool = False) -> dict[str, Any]:
    """What a page shows of a program: contract, modules, nodes, weights. ``lines`` is shared by all of a page.

    >>> import torch, tintype
    >>> ep = tintype.export(torch.nn.Linear(3, 2), (torch.ones(4, 3),))
    >>> data = program_data("linear", ep, Lines(source=False))
    >>> [node["name"] for node in data["nodes"]]
    ['p_weight', 'p_bias', 'input', 'linear', 'output']
    """
    root = module_tree(program)
    graph = GraphData(program, root, lines)
    contract, symbols = contract_data(program, lines)
    modules = _modules_data(root, graph)
    return {
        "name": name,
        "stage": program.stage.value,
        "contract": contract,
        "modules": modules,
        "nodes": graph.nodes,
        "types": graph.types.rows,
        "formulas": graph.formulas.rows,
        "symbols": _symbols_data(symbols | graph.symbols),
        "weights": weights_data(program, statistics=statistics),
        "decisions": [decision_data(each, lines) for each in program.report.findings] if program.report else [],
    }


def _modules_data(root: ModuleEntry, graph: GraphData) -> list[dict[str, Any]]:
    """The modules in the order of the tree; a parent is a number in the list."""
    entries = list(root.descendants())
    numbers = {id(entry): number for number, entry in enumerate(entries)}
    rows = []
    for entry in entries:
        row: dict[str, Any] = {"name": entry.name, "label": entry.label, "class": entry.class_name}
        row["parent"] = numbers[id(entry.parent)] if entry.parent is not None else None
        row |= {"like": entry.likeness, "calls": entry.calls, "operations": graph.formula(entry.operations)}
        row |= {"parameters": entry.parameters, "bytes": entry.bytes}
        if entry.without_formula:
            row["without_formula"] = entry.without_formula
        if entry.state:
            row["weights"] = list(entry.state)
        rows.append(row)
    return [*rows, *graph.inner_graphs]


def _symbols_data(symbols: Iterable[Any]) -> list[dict[str, Any]]:
    """Every size that varies: what users call it, its bounds, where it is, and its value in the example."""
    rows = []
    for symbol in sorted(symbols, key=lambda symbol: symbol.serial):
        environment = symbol.environment
        lower, upper = bounds_data(environment.range(symbol)) if symbol.kind == "int" else (None, None)
        row: dict[str, Any] = {"symbol": symbol.name, "name": environment.names.get(symbol.name, symbol.name)}
        row |= {"kind": symbol.kind, "lower": lower, "upper": upper, "example": symbol.hint}
        if symbol.source is not None:
            row["source"] = str(symbol.source)
        rows.append(row)
    return rows
