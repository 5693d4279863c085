"""``tintype diff``: what is different in two programs, without running them."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from tintype.comparison.measuring import measure
from tintype.export.program import ExportedProgram
from tintype.ir.printing import describe_value, spell_target

_SOURCE_LINE = re.compile(r"^\s*# \S+:\d+ in ")


@dataclass(frozen=True)
class ProgramDiff:
    """What is different, as lines of text: ``-`` is of the first program only, ``+`` of the second one."""

    operators: list[str]
    weights: list[str]
    contract: list[str]
    text: list[str]

    @property
    def same(self) -> bool:
        """Whether nothing is."""
        return not (self.operators or self.weights or self.contract or self.text)

    def __str__(self) -> str:
        if self.same:
            return "the programs are the same"
        lines: list[str] = []
        parts = {"operators": self.operators, "weights": self.weights, "contract": self.contract, "text": self.text}
        for title, found in parts.items():
            lines += [f"{title}:", *(f"  {line}" for line in found)] if found else [f"{title}: the same"]
        return "\n".join(lines)


def diff_programs(one: ExportedProgram, other: ExportedProgram) -> ProgramDiff:
    """What is different in two programs. Where operators come from in the source is not looked at.

    >>> import torch, tintype
    >>> ep = tintype.export(torch.nn.Linear(3, 2), (torch.ones(4, 3),))
    >>> diff_programs(ep, ep.run_decompositions()).operators
    ['- aten.linear.default', '+ aten.addmm.default', '+ aten.permute.default']
    """
    return ProgramDiff(
        list(_operators(one, other)),
        list(_weights(one, other)),
        _changed(str(one.contract()).splitlines(), str(other.contract()).splitlines(), context=0),
        _changed(_text(one), _text(other), context=1),
    )


def _operators(one: ExportedProgram, other: ExportedProgram) -> Iterator[str]:
    before, after = (_operator_counts(program) for program in (one, other))
    for name in sorted(before | after, key=lambda name: (name not in before, name)):
        if before[name] and after[name] and before[name] != after[name]:
            yield f"  {name}: {before[name]} became {after[name]}"
        elif before[name] != after[name]:
            count = before[name] + after[name]
            yield ("- " if before[name] else "+ ") + name + (f" ({count} times)" if count > 1 else "")


def _operator_counts(program: ExportedProgram) -> Counter[str]:
    calls = [node.target for node in program.graph.nodes if node.op == "call_function"]
    return Counter(spell_target(target).removeprefix("torch.ops.") for target in calls)


def _weights(one: ExportedProgram, other: ExportedProgram) -> Iterator[str]:
    before, after = ({**program.state_dict, **program.constants} for program in (one, other))
    for name in [*before, *(name for name in after if name not in before)]:
        if name not in after:
            yield f"- {name}: {_described(before[name])}"
        elif name not in before:
            yield f"+ {name}: {_described(after[name])}"
        elif _described(before[name]) != _described(after[name]):
            yield f"  {name}: {_described(before[name])} became {_described(after[name])}"
        elif isinstance(before[name], torch.Tensor) and not _same_values(before[name], after[name]):
            found = measure(name, before[name], after[name], 0.0)
            yield f"  {name}: other values, {found.numbers()} apart"


def _described(value: Any) -> str:
    return describe_value(value)


def _same_values(one: torch.Tensor, other: torch.Tensor) -> bool:
    if one.is_meta or other.is_meta:
        return one.is_meta == other.is_meta
    one, other = one.detach().cpu(), other.detach().cpu()
    return one is other or bool(((one == other) | (one.isnan() & other.isnan())).all())


def _text(program: ExportedProgram) -> list[str]:
    return [line for line in program.code.splitlines() if not _SOURCE_LINE.match(line)]


def _changed(before: list[str], after: list[str], context: int) -> list[str]:
    lines = difflib.unified_diff(before, after, n=context, lineterm="")
    return [line for line in lines if not line.startswith(("---", "+++"))]
