"""Operators without a lowering are taken apart into ones that have one; everything else stays whole."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import torch
from torch.fx import GraphModule

from tintype.export import Stage
from tintype.export.decompose import decompose_for
from tintype.export.program import ExportedProgram
from tintype.ir.graph import subgraphs
from tintype.onnx.registry import lowered_overloads
from tintype.ops import flex_attention

_MOST_ROUNDS = 4
# Operators that take functions, as what they do with them.
_WRITTEN_OUT: dict[Any, Callable[..., Any]] = {flex_attention.target: flex_attention.written_out}


def with_lowerings(
    program: ExportedProgram, opset: int, translations: Mapping[Any, Callable[..., Any]]
) -> ExportedProgram:
    """The program in terms of operators that have a lowering, as far as there are decompositions."""
    lowered = lowered_overloads(opset)
    kept = lowered | translations.keys()
    if any(node.target in _WRITTEN_OUT for each in subgraphs(program.graph_module) for node in each.graph.nodes):
        program = decompose_for(program, _WRITTEN_OUT, kept)
    missing = _missing(program.graph_module, kept)
    if not missing and program.stage is not Stage.TRAINING:
        return program
    program = decompose_for(program, None, kept)
    for _ in range(_MOST_ROUNDS):
        missing = _missing(program.graph_module, kept)
        table = _decompositions(missing)
        if not table:
            return program
        program = decompose_for(program, table, kept)
    return program


def _missing(module: GraphModule, kept: Collection[Any]) -> set[Any]:
    found: set[Any] = set()
    for each in subgraphs(module):
        for node in each.graph.nodes:
            if node.op == "call_function" and isinstance(node.target, torch._ops.OpOverload):
                if node.target not in kept:
                    found.add(node.target)
    return found


def _decompositions(operators: Iterable[Any]) -> dict[Any, Callable[..., Any]]:
    """torch's decompositions of operators that no core operators are made of."""
    known = torch._decomp.decomposition_table
    return {target: known[target] for target in operators if target in known}
