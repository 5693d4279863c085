"""Which lowering an operator overload has: the user's own, ours, or torchlib's.

Ours are functions of a builder and the operator's arguments, registered with :func:`lowering` for an overload and the
first opset that they need; of several the newest that the target allows is taken.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from tintype.onnx.torchlib import known_overloads

Lowering = Callable[..., Any]

_OWN: dict[Any, list[tuple[int, Lowering]]] = {}
# Those for calls on complex numbers, where others are for real ones.
_COMPLEX: dict[Any, Lowering] = {}
# Those of operators from libraries that may not be loaded, by namespace and name, for all overloads.
_BY_NAME: dict[tuple[str, str], Lowering] = {}
# Operators of torchlib whose results are not torch's: decomposed, or refused.
_REFUSED: dict[Any, str] = {}


_FAMILIES = (
    "numbers", "normalization", "shapes", "attention", "control_flow", "indexing", "elementwise", "reductions",
    "linear_algebra", "pooling", "tensors", "special", "recurrent", "approximations", "polynomials", "gamma",
    "matrices", "singular_values", "scattering", "order", "bits", "integers", "windows", "complex_numbers",
    "random_numbers", "losses", "written", "extremes", "sampling",
    "convolutions", "runtime_forms", "quotients", "unfused", "resampling", "rolling", "activations",
    "quantization", "shifts", "complex_parts", "double_precision", "double_windows", "double_recurrence",
)  # fmt: skip


def lowering(*targets: Any, since: int = 18) -> Callable[[Lowering], Lowering]:
    """Register a function as the lowering of operators, from an opset on."""

    def register(function: Lowering) -> Lowering:
        for target in targets:
            choices = _OWN.setdefault(target, [])
            choices.append((since, function))
            choices.sort(key=lambda choice: -choice[0])
        return function

    return register


def lowering_by_name(namespace: str, name: str) -> Callable[[Lowering], Lowering]:
    """Register a function as the lowering of an operator's overloads, which need not exist yet."""

    def register(function: Lowering) -> Lowering:
        _BY_NAME[namespace, name] = function
        return function

    return register


def lowering_of_complex(*targets: Any) -> Callable[[Lowering], Lowering]:
    """Register a function as the lowering of operators where an operand is complex."""

    def register(function: Lowering) -> Lowering:
        _COMPLEX.update(dict.fromkeys(targets, function))
        return function

    return register


def complex_lowering(target: Any) -> Lowering | None:
    """Our lowering of an operator on complex numbers; None where there is none."""
    return _COMPLEX.get(target)


def refuse(*targets: Any, because: str) -> None:
    """Say that an operator has no right form in ONNX, whatever torchlib has for it."""
    for target in targets:
        _REFUSED[target] = because


@functools.cache
def load_lowerings() -> None:
    """Import the files that register ours."""
    import importlib

    for family in _FAMILIES:
        importlib.import_module(f"tintype.onnx.lowerings.{family}")


def own_lowering(target: Any, opset: int) -> Lowering | None:
    """Our lowering of an operator for a target; None where there is none."""
    for since, function in _OWN.get(target, ()):
        if opset >= since:
            return function
    if not isinstance(target, torch._ops.OpOverload) or target.namespace == "aten":
        return None
    return _BY_NAME.get((target.namespace, target._schema.name.partition("::")[2]))


def reason_against(target: Any) -> str | None:
    """Why an operator is refused, if it is."""
    return _REFUSED.get(target)


@functools.cache
def lowered_overloads(opset: int) -> frozenset[Any]:
    """All operators that have a lowering for a target."""
    load_lowerings()
    own = {target for target in _OWN if own_lowering(target, opset) is not None} | _COMPLEX.keys()
    return frozenset((own | known_overloads()) - _REFUSED.keys())
