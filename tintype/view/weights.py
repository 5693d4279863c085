"""The weights of a program as data: names, shapes, bytes; numbers about their values only where somebody asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from tintype.ir.printing import describe_value

if TYPE_CHECKING:
    from tintype.export.program import ExportedProgram

_BINS = 24


def weights_data(program: ExportedProgram, *, statistics: bool) -> dict[str, dict[str, Any]]:
    """Every parameter, buffer and constant by name; tied ones say under which name they were first."""
    first: dict[int, str] = {}
    rows: dict[str, dict[str, Any]] = {}
    for name, value in {**program.state_dict, **program.constants}.items():
        if not isinstance(value, torch.Tensor):
            rows[name] = {"type": type(value).__name__, "bytes": 0}
            continue
        rows[name] = {"type": describe_value(value), "bytes": value.numel() * value.element_size()}
        if id(value) in first:
            rows[name]["same_as"] = first[id(value)]
            continue
        first[id(value)] = name
        if statistics:
            rows[name]["statistics"] = statistics_of(value)
    return rows


def statistics_of(value: torch.Tensor) -> dict[str, Any]:
    """What the numbers of a tensor are like; empty where there are none to look at.

    >>> found = statistics_of(torch.tensor([0.0, 1.0, 2.0, float("nan")]))
    >>> found["min"], found["max"], found["mean"], found["zeros"], found["not_finite"]
    (0.0, 2.0, 1.0, 1, 1)
    """
    if value.is_meta or value.numel() == 0 or value.is_complex() or value.layout is not torch.strided:
        return {}
    with torch.no_grad():
        numbers = value.detach().to("cpu", torch.float64).flatten()
        finite = numbers[numbers.isfinite()]
        found: dict[str, Any] = {
            "zeros": int((numbers == 0).sum()),
            "not_finite": numbers.numel() - finite.numel(),
            "count": numbers.numel(),
        }
        if finite.numel() == 0:
            return found
        lowest, highest = float(finite.min()), float(finite.max())
        found |= {"min": lowest, "max": highest}
        found |= {"mean": _finite(finite.mean()), "std": _finite(finite.std(correction=0))}
        if lowest < highest:
            found["histogram"] = torch.histc(finite, _BINS, lowest, highest).to(torch.int64).tolist()
    return found


def _finite(value: torch.Tensor) -> float | None:
    """A number that JSON has; None where a sum went beyond all of them."""
    return float(value) if value.isfinite() else None
