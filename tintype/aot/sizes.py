"""Sizes of inputs that vary from call to call: symbols while a function is recorded, conditions afterwards."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import torch

from tintype.symbolic import Environment, Size
from tintype.symbolic.evaluation import evaluate
from tintype.symbolic.expression import Symbol


class SizesThatVary:
    """Symbols for dimensions of inputs. ``dims`` has them by position of the input."""

    def __init__(self, dims: Mapping[int, Collection[int]]) -> None:
        self.environment = Environment()
        self.dims = dims
        self._symbols: dict[tuple[int, int], Symbol] = {}

    def sizes_of(self, position: int, tensor: torch.Tensor) -> tuple[Size, ...] | None:
        """The sizes of an input, numbers and symbols."""
        chosen = self.dims.get(position, ())
        if not chosen:
            return None
        sizes: list[Size] = list(tensor.shape)
        for dim in chosen:
            symbol = self.environment.backed(tensor.shape[dim])
            self._symbols[position, dim] = sizes[dim] = symbol
        return tuple(sizes)

    def finish(self) -> None:
        """The function is recorded: graphs lay results out in memory as they would lie for the example."""
        self.environment.settle_assumptions()

    def fit(self, inputs: Sequence[torch.Tensor]) -> bool:
        """Whether graphs that were recorded with these symbols are right for inputs with other sizes."""
        values = {symbol: inputs[position].shape[dim] for (position, dim), symbol in self._symbols.items()}
        return all(evaluate(guard.condition, values) for guard in self.environment.guards)
