"""Says how two runs differ."""

from __future__ import annotations

from typing import Any

import torch

from tests.fuzz_programs.running import Outcome

TOLERANCES = {
    torch.float64: (1e-6, 1e-7), torch.complex128: (1e-6, 1e-7), torch.float32: (2e-4, 2e-5),
    torch.complex64: (2e-4, 2e-5), torch.float16: (2e-2, 2e-2), torch.bfloat16: (8e-2, 8e-2),
    torch.complex32: (2e-2, 2e-2),
}  # fmt: skip


def difference(eager: Outcome, other: Outcome, state: bool = True, tolerance: float = 0.0) -> str | None:
    """What another run of a program does differently; None if nothing. ``tolerance`` is how exact a program is that
    computes in less precision than its results have."""
    found = compare(eager.results, other.results, "result", tolerance)
    if not found:
        found = compare(eager.arguments, other.arguments, "argument after the call", tolerance)
    if not found and state:
        for name, value in eager.state.items():
            if name in other.state:
                found = found or compare(value, other.state[name], f"state {name} after the call", tolerance)
            elif name in eager.changed:
                found = found or f"state {name}: changed in eager mode, not there otherwise"
    if not found and len(eager.log) != len(other.log):
        found = f"log: {len(eager.log)} entries in eager mode, {len(other.log)} otherwise"
    if not found:
        found = compare([list(entry) for entry in eager.log], [list(entry) for entry in other.log], "log", tolerance)
    return found or gradient_difference(eager, other, tolerance)


def gradient_difference(eager: Outcome, other: Outcome, tolerance: float) -> str | None:
    """How the gradients differ; one that is missing is one of zeros."""
    expected = dict(enumerate(eager.gradients or [])) | eager.parameter_gradients
    got = dict(enumerate(other.gradients or [])) | other.parameter_gradients
    for name in {**expected, **got}:
        value, mine = expected.get(name), got.get(name)
        if value is None and mine is None:
            continue
        if value is None or mine is None:
            there = mine if value is None else value
            if there.numel() and bool((there != 0).any()):
                which = "only otherwise" if value is None else "in eager mode only"
                return f"gradient {name}: there {which}"
            continue
        found = compare(value, mine, f"gradient {name}", tolerance)
        if found:
            return found
    return None


def compare(eager: Any, other: Any, where: str, tolerance: float = 0.0) -> str | None:
    """How two values differ."""
    if type(eager) is not type(other) and not (isinstance(eager, torch.Tensor) and isinstance(other, torch.Tensor)):
        return f"{where}: {type(eager).__name__} in eager mode, {type(other).__name__} otherwise"
    if isinstance(eager, torch.Tensor):
        return compare_tensors(eager, other, where, tolerance)
    if isinstance(eager, (list, tuple)):
        if len(eager) != len(other):
            return f"{where}: {len(eager)} in eager mode, {len(other)} otherwise"
        for i, (one, two) in enumerate(zip(eager, other, strict=True)):
            found = compare(one, two, f"{where}[{i}]", tolerance)
            if found:
                return found
        return None
    if isinstance(eager, dict):
        if list(eager) != list(other):
            return f"{where}: keys {list(eager)} in eager mode, {list(other)} otherwise"
        for key, value in eager.items():
            found = compare(value, other[key], f"{where}[{key!r}]", tolerance)
            if found:
                return found
        return None
    if isinstance(eager, float):
        same = eager == other or abs(eager - other) <= (tolerance or 1e-4) * max(1, abs(eager))
        same = same or (eager != eager and other != other)
    else:
        same = eager == other
    return None if same else f"{where}: {eager!r} in eager mode, {other!r} otherwise"


def compare_tensors(eager: torch.Tensor, other: torch.Tensor, where: str, tolerance: float) -> str | None:
    """How two tensors differ: dtype, sizes, values."""
    if eager.dtype != other.dtype:
        return f"{where}: {eager.dtype} in eager mode, {other.dtype} otherwise"
    if eager.shape != other.shape:
        return f"{where}: {tuple(eager.shape)} in eager mode, {tuple(other.shape)} otherwise"
    if eager.dtype not in TOLERANCES:
        return (
            None
            if torch.equal(eager, other)
            else f"{where}: values differ: {_brief(eager)} in eager mode, {_brief(other)} otherwise"
        )
    relative, absolute = TOLERANCES[eager.dtype]
    wide = torch.complex128 if eager.is_complex() else torch.float64
    one, two = eager.to(wide), other.to(wide)
    # with a tolerance, sums of large numbers that cancel are as exact as their parts
    scale = one.abs().nan_to_num(0, 0, 0).max().item() if one.numel() and tolerance else 0.0
    if torch.allclose(
        one, two, rtol=max(relative, tolerance), atol=max(absolute, tolerance) * max(1.0, scale), equal_nan=True
    ):
        return None
    return f"{where}: values differ: {_brief(eager)} in eager mode, {_brief(other)} otherwise"


def _brief(value: torch.Tensor) -> str:
    text = ", ".join(
        f"{item:.4g}" if not isinstance(item, (bool, complex)) else str(item) for item in value.flatten()[:6].tolist()
    )
    return f"[{text}{', ...' if value.numel() > 6 else ''}]"
