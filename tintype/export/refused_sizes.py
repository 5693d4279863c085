"""Sizes that a program refuses by itself.

A range that was promised, ``Dim("length", min=2)``, is not broken by sizes for which the model itself fails: there
is nothing that the captured program could do otherwise. Where guards leave out a few sizes of a promised range, the
model is captured again with each of them. If it fails at all of them, whatever the other sizes are, the captured
program is as general as the model; it asserts what it needs, and its contract says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.fx import Node

from tintype.errors import TintypeError
from tintype.export.dimensions import Dim
from tintype.export.solution import is_implied
from tintype.export.spec_matching import Entry
from tintype.ir.graph import is_pure, placeholders
from tintype.ir.signature import InputKind
from tintype.symbolic import Environment, Expr
from tintype.trace.captured_graph import CapturedGraph
from tintype.trace.python_sequences import watch_plain_numbers

# How many sizes of a range are tried; each costs a capture.
_MOST_SIZES = 8

# A capture with other entries for the inputs, in a fresh environment that is filled even when it fails
CaptureWith = Callable[[Sequence[list[Entry] | None], Environment], CapturedGraph]


def refuses_what_is_left_out(
    entries: Sequence[list[Entry] | None], fixes: Mapping[str, Dim | int], capture_with: CaptureWith
) -> bool:
    """Whether a program fails at all sizes that the fixes leave out of what was promised."""
    roots = {part.root.name: part.root for leaf in entries for part in leaf or () if isinstance(part, Dim)}
    for name, fix in fixes.items():
        root = roots.get(name)
        if root is None or not isinstance(fix, Dim) or fix.name != name:
            return False
        left_out = _left_out(root, fix)
        if left_out is None or not all(_refuses(entries, name, size, capture_with) for size in left_out):
            return False
    return bool(fixes)


def _left_out(promised: Dim, kept: Dim) -> list[int] | None:
    """The sizes that are promised but not kept; None if they are too many to try."""
    below, above = kept.min - promised.min, promised.max - kept.max if promised.max != kept.max else 0
    if below < 0 or above < 0 or below + above > _MOST_SIZES:
        return None
    lower, upper = int(promised.min), int(kept.min)
    return [*range(lower, upper), *(range(int(kept.max) + 1, int(promised.max) + 1) if above else ())]


def _refuses(entries: Sequence[list[Entry] | None], name: str, size: int, capture_with: CaptureWith) -> bool:
    """Whether a program fails where a named dimension has this size, for all values of the others."""
    fixed = [None if leaf is None else [_with_size(part, name, size) for part in leaf] for leaf in entries]
    environment = Environment(before_plain=watch_plain_numbers)
    try:
        captured = capture_with(fixed, environment)
    except TintypeError:
        return False  # it could not be captured, which says nothing about the program
    except Exception as error:
        depends = isinstance(getattr(error, "condition", None), Expr)
        return not depends and all(is_implied(guard.condition) for guard in environment.guards)
    return not _constants_can_be_computed(captured)


def _with_size(part: Entry, name: str, size: int) -> Entry:
    if isinstance(part, Dim) and part.root.name == name:
        return part.scale * size + part.offset
    return part


def _constants_can_be_computed(captured: CapturedGraph) -> bool:
    """Whether the part of a program that depends on constants alone runs: positions out of range show only then."""
    values: dict[Node, Any] = {
        node: captured.constants[str(spec.target)]
        for node, spec in zip(placeholders(captured.graph), captured.input_specs, strict=True)
        if spec.kind is InputKind.CONSTANT_TENSOR
    }
    with torch.no_grad():
        for node in captured.graph.nodes:
            if node.op != "call_function" or not is_pure(node):
                continue
            if any(argument not in values for argument in node.all_input_nodes):
                continue
            args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), values.__getitem__)
            try:
                values[node] = node.target(*args, **kwargs)
            except (RuntimeError, IndexError):
                return False
    return True
