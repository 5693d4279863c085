"""What inputs a program accepts, and which line of the user's program made it so."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from tintype.export.constraints import ContractLine
from tintype.export.strict_report import StrictReport
from tintype.ir.graph import location_of

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
        return line.text
    return f"{line.text}  # {line.location}: {line.location.source_line()}"
