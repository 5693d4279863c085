"""Symbols for the sizes of inputs, and for numbers among them, that may vary."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import torch

from tintype.errors import ConstraintViolationError
from tintype.export.constraints import DynamicSize
from tintype.export.dimensions import DerivedDim, Dim, DimHint
from tintype.export.spec_matching import Entry
from tintype.ir.sources import Source, size_of
from tintype.symbolic import Environment, Expr, Size
from tintype.symbolic.expression import Symbol
from tintype.symbolic.ranges import INFINITY


class InputSizes:
    """Gives every input its sizes: numbers, or symbols where the spec says so."""

    def __init__(
        self, environment: Environment, entries: Sequence[list[Entry] | None], sources: Sequence[Source]
    ) -> None:
        self.environment = environment
        self.entries = entries
        self.sources = sources
        self.dynamic: list[DynamicSize] = []
        self.problems: list[str] = []
        self._roots: dict[str, Symbol] = {}
        # for names in derived sizes: from where on all of these sizes are at least 2
        self._general: dict[str, int] = {}
        for entry in (entry for leaf in entries for entry in leaf or ()):
            if isinstance(entry, Dim):
                least = -((entry.offset - 2) // entry.scale)
                self._general[entry.root.name] = max(least, self._general.get(entry.root.name, least))
        self._count = 0

    def sizes_of(self, leaf: int, tensor: torch.Tensor) -> tuple[Size, ...]:
        """The sizes of one input."""
        entries = self.entries[leaf]
        if entries is None:
            return tuple(tensor.shape)
        sizes: list[Size] = []
        for dimension, (entry, size) in enumerate(zip(entries, tensor.shape, strict=True)):
            if entry is None or isinstance(entry, int):
                sizes.append(size if entry is None else entry)
                continue
            source = size_of(self.sources[leaf], dimension)
            expression = self._expression(entry, size, source)
            if isinstance(expression, Expr):
                self.dynamic.append(DynamicSize(entry, expression, source))
            sizes.append(expression)
        return tuple(sizes)

    def number_of(self, leaf: int, value: int | float) -> Any:
        """One input that is a number: itself, or a symbol."""
        entries = self.entries[leaf]
        if entries is None:
            return value
        (entry,) = entries
        if not isinstance(entry, (Dim, DimHint)):
            return value if entry is None else entry
        source = self.sources[leaf]
        if isinstance(value, float):
            symbol = self.environment.unbacked_float(source=source)
            self.dynamic.append(DynamicSize(entry, symbol, source))
            return symbol
        expression = self._expression(entry, value, source, is_size=False)
        if isinstance(expression, Expr):
            self.dynamic.append(DynamicSize(entry, expression, source))
        return expression

    def in_order(self, leaves: Sequence[Any]) -> list[Any]:
        """The sizes of all inputs that are tensors, and the numbers, in the order of the example call."""
        return [
            self.sizes_of(position, leaf)
            if isinstance(leaf, torch.Tensor)
            else self.number_of(position, leaf)
            if type(leaf) in (int, float)
            else None
            for position, leaf in enumerate(leaves)
        ]

    def finish(self) -> None:
        """Raise what was found wrong with the example's sizes."""
        if self.problems:
            raise ConstraintViolationError(
                "\n".join(self.problems),
                remedy="the example has other sizes than dynamic_shapes says: give an example that fits, or Dims "
                "that fit the example; inputs that share a Dim have the same size there",
            )

    def _expression(self, entry: Dim | DimHint, size: int, source: Source, *, is_size: bool = True) -> Size:
        if isinstance(entry, DimHint):
            low = entry.min if is_size or entry.lower is not None else -INFINITY
            if not low <= size <= entry.max:
                self._problem(f"{size} not in range [{low}, {entry.max}] of {entry!r}, for {source}")
                return size
            return self._symbol(source, size, low, entry.max)
        if not isinstance(entry, DerivedDim):
            return self._root(entry, size, source)
        return self._derived(entry, size, source)

    def _derived(self, entry: DerivedDim, size: int, source: Source) -> Size:
        root = self._roots.get(entry.root.name)
        if root is None:
            value, rest = divmod(size - entry.offset, entry.scale)
            if rest:
                dimension = str(source).rpartition(".")[2]
                self._problem(
                    f"Expected {dimension} = {size} of input Tensor to be of the form {entry.name}, where "
                    f"{entry.root.name} is an integer, for {source}"
                )
                return size
            self._count += 1  # a size of its own comes before the root that it is derived from
            made = self._root(entry.root, value, source, f", with {entry.root.name} = {value}")
            if not isinstance(made, Symbol):
                return size
            made.source = None  # no input is of this size itself
            root = made
        expected = entry.scale * _hint(root) + entry.offset
        if expected != size:
            self._problem(
                f"Expected input {source} size to be equal to {entry.name}, where {entry.root.name} = "
                f"{_hint(root)}, but got {size}"
            )
            return size
        return entry.scale * root + entry.offset

    def _root(self, dim: Dim, size: int, source: Source, note: str = "") -> Size:
        known = self._roots.get(dim.name)
        if known is not None:
            if _hint(known) != size:
                self._problem(
                    f"Expected input {source}{note} size to be equal to {dim.name}, where {dim.name} = "
                    f"{_hint(known)}, but got {size}"
                )
            return known
        if not dim.min <= size <= dim.max:
            self._problem(f"{size} not in range [{dim.min}, {dim.max}] of {dim!r}, for {source}{note}")
            return size
        symbol = self._roots[dim.name] = self._symbol(source, size, dim.min, dim.max, self._general[dim.name])
        name_symbol(symbol, dim.name)
        return symbol

    def _symbol(self, source: Source, size: int, low: Any, high: Any, general: int = 2) -> Symbol:
        name = f"s{self._count}"
        self._count += 1
        lower = int(low) if low != -INFINITY else None
        upper = int(high) if high != INFINITY else None
        return self.environment.backed(size, name=name, lower=lower, upper=upper, general=general, source=source)

    def _problem(self, fact: str) -> None:
        self.problems.append(fact)


def name_symbol(symbol: Symbol, name: str) -> None:
    """Let people read a size by the name of its Dim, unless that is what another symbol may be called."""
    if _OF_SYMBOLS.fullmatch(name) is None:
        symbol.environment.names[symbol.name] = name


_OF_SYMBOLS = re.compile(r"(s|u|zuf)\d+")


def _hint(symbol: Symbol) -> int:
    assert symbol.hint is not None
    return symbol.hint
