"""Inputs of other sizes than the example's, within what the program promises to take."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from tintype.errors import TintypeError
from tintype.export.checks import InputChecks
from tintype.symbolic import Expr, evaluate
from tintype.symbolic.expression import Symbol

# How sizes are changed, all of them in the same way: the first change that the program takes is used.
_CHANGES = (
    lambda size, position: size + 1 + position,
    lambda size, position: size * 2,
    lambda size, position: size * 3,
    lambda size, position: size + 8,
    lambda size, position: size - 1,
    lambda size, position: max(size // 2, 1),
    lambda size, position: size + 1,
)  # fmt: skip


def symbols_of(checks: InputChecks) -> list[Symbol]:
    """The numbers that sizes of inputs are computed from."""
    found: dict[Symbol, None] = {}
    for expectation in checks.expectations:
        for size in (*expectation.sizes, expectation.value):
            if isinstance(size, Expr):
                found.update(dict.fromkeys(sorted(size.symbols, key=str)))
    return list(found)


def other_inputs(checks: InputChecks, leaves: Sequence[Any], state_of: Any) -> Iterator[list[Any]]:
    """Inputs like the example's in other sizes; none for a program whose sizes are all fixed."""
    symbols = symbols_of(checks)
    known = {symbol: symbol.hint for symbol in symbols if symbol.hint is not None}
    if not symbols or len(known) < len(symbols):
        return
    for change in _CHANGES:
        values = {symbol: change(int(known[symbol]), position) for position, symbol in enumerate(symbols)}
        yield from _valid(checks, leaves, values, state_of)
    for moving in symbols:  # where sizes bound each other, one may move alone
        values = {symbol: int(hint) + (symbol is moving) for symbol, hint in known.items()}
        yield from _valid(checks, leaves, values, state_of)


def _valid(
    checks: InputChecks, leaves: Sequence[Any], values: dict[Symbol, int], state_of: Any
) -> Iterator[list[Any]]:
    try:
        made = [_resized(leaf, expectation, values) for leaf, expectation in zip(leaves, checks.expectations)]
        checks.check(made, state_of)
    except (TintypeError, ValueError, ZeroDivisionError, OverflowError):
        return
    yield made


def _resized(leaf: Any, expectation: Any, values: dict[Symbol, int]) -> Any:
    if isinstance(expectation.value, Expr):
        return evaluate(expectation.value, values)
    if not isinstance(leaf, torch.Tensor):
        return leaf
    for dimension, size in enumerate(expectation.sizes):
        if isinstance(size, Expr):
            wanted = int(evaluate(size, values))
            if wanted < 0:
                raise ValueError("a size below 0")
            if leaf.shape[dimension] == 0:
                sizes = list(leaf.shape)
                sizes[dimension] = wanted
                leaf = leaf.new_zeros(sizes)
            elif wanted != leaf.shape[dimension]:
                leaf = leaf.index_select(dimension, _places(leaf, dimension, wanted))
    return leaf


def _places(leaf: torch.Tensor, dimension: int, wanted: int) -> torch.Tensor:
    """Which elements of the example are there again: they are in whatever range the model expects, and in order where
    they are in the example (offsets of bags, places to search in)."""
    count, places = leaf.shape[dimension], torch.arange(wanted, device=leaf.device)
    is_ordered = not leaf.dtype.is_complex and bool(
        (leaf.narrow(dimension, 0, count - 1) <= leaf.narrow(dimension, 1, count - 1)).all()
    )
    return places.clamp(max=count - 1) if is_ordered else places % count
