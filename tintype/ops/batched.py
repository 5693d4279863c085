"""Running a graph that was recorded on single numbers on whole tensors of them at once.

The functions that attention takes are written for one score and one position. Their graph is run once with
*batches*: tensors whose first dimensions go over all scores, each of size 1 where a value does not depend on it,
followed by the dimensions that the value has in the graph. Operators on single elements broadcast over batches by
themselves; for indexing and for operators with a ``dim`` argument there is a rule each; any other operator is called
once per element.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Node

from tintype.ir.running import run_graph

aten = torch.ops.aten


class Batch:
    """The values that a node of the graph has for all scores."""

    __slots__ = ("tensor",)

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor


class BatchedGraph:
    """A graph as a function of batches with a number of dimensions of their own.

    >>> import torch, tintype
    >>> graph = tintype.export(lambda x, y: x * y, (torch.ones(()), torch.ones(()))).graph_module
    >>> doubled = BatchedGraph(graph, dimensions=1)
    >>> doubled(Batch(torch.ones(3)), torch.tensor(2.0))[0].tensor
    tensor([2., 2., 2.])
    """

    def __init__(self, module: GraphModule, dimensions: int) -> None:
        self.dimensions = dimensions
        self.graph = module.graph

    def __call__(self, *values: Any) -> list[Any]:
        """The graph's results: batches, or values that are the same for all scores."""
        return list(run_graph(self.graph, values, self._call))

    def _call(self, node: Node, args: Any, kwargs: Any) -> Any:
        target: Any = node.target
        if target is operator.getitem or not any(isinstance(value, Batch) for value in _flat((args, kwargs))):
            return target(*args, **kwargs)
        if target in _INDEPENDENT:  # takes no more than dtype and device from its argument
            return target(args[0].tensor, *args[1:], **kwargs)
        if target in _ELEMENTWISE or torch.Tag.pointwise in target.tags:
            result = self._elementwise(target, args, kwargs)
        elif target in _INDEXING:
            result = self._index(*_INDEXING[target](args))
        elif target in _DIMENSION_ARGUMENT:
            result = self._with_dimension(target, args, kwargs)
        else:
            return self._one_by_one(target, args, kwargs)
        return result if not isinstance(result, torch.Tensor) else Batch(_as_recorded(result, node))

    # --- rules ---------------------------------------------------------------------------------------------

    def _rank(self, value: Any) -> int:
        """The number of dimensions that a value has in the graph."""
        return value.tensor.dim() - self.dimensions if isinstance(value, Batch) else value.dim()

    def _aligned(self, value: Any, rank: int) -> torch.Tensor:
        """A value as a batch, with further dimensions of size 1 up to a rank."""
        own = self._rank(value)
        tensor = value.tensor if isinstance(value, Batch) else value[(None,) * self.dimensions]
        missing = (1,) * (rank - own)
        return tensor.reshape(*tensor.shape[: self.dimensions], *missing, *tensor.shape[self.dimensions :])

    def _elementwise(self, target: Any, args: Any, kwargs: Any) -> Any:
        rank = max(self._rank(value) for value in _flat((args, kwargs)) if isinstance(value, (Batch, torch.Tensor)))
        args, kwargs = _mapped((args, kwargs), lambda value: self._aligned(value, rank))
        return target(*args, **kwargs)

    def _index(self, base: Any, indices: Sequence[Any]) -> torch.Tensor:
        positions = [position for position, index in enumerate(indices) if index is not None]
        rank = max(self._rank(indices[position]) for position in positions)
        aligned = [self._aligned(indices[position], rank) for position in positions]
        tensor, first = base, 0
        if isinstance(base, Batch):
            tensor, first = base.tensor, self.dimensions
        # what is indexed comes first: the batch's own dimensions by their positions, then those of the graph
        own = [self._along(tensor, dimension, rank) for dimension in range(first)]
        indexed = [*range(first), *(first + position for position in positions)]
        rest = [dimension for dimension in range(tensor.dim()) if dimension not in indexed]
        result = aten.index.Tensor(tensor.permute(*indexed, *rest), [*own, *aligned])
        if rank and positions == list(range(positions[0], positions[-1] + 1)):
            # dimensions of adjacent indices stand where those were
            start = self.dimensions
            moved = [start + dimension for dimension in range(rank)]
            result = result.movedim(moved, [dimension + positions[0] for dimension in moved])
        return result

    def _along(self, tensor: torch.Tensor, dimension: int, rank: int) -> torch.Tensor:
        """The positions along one dimension of a batch, as a batch."""
        shape = [1] * (self.dimensions + rank)
        shape[dimension] = -1
        return torch.arange(tensor.shape[dimension], device=tensor.device).view(shape)

    def _with_dimension(self, target: Any, args: Any, kwargs: Any) -> Any:
        position = _DIMENSION_ARGUMENT[target]
        args = list(_mapped(args, lambda value: value.tensor if isinstance(value, Batch) else value))
        if len(args) > position:
            args[position] = self._shifted(args[position])
        elif target in _FIRST_BY_DEFAULT:
            args.append(self.dimensions)
        return target(*args, **kwargs)

    def _shifted(self, dimension: Any) -> Any:
        if isinstance(dimension, (list, tuple)):
            return [self._shifted(item) for item in dimension]
        return dimension if dimension < 0 else dimension + self.dimensions

    def _one_by_one(self, target: Any, args: Any, kwargs: Any) -> Any:
        """Call an operator for every element of its batches, and stack what it returns."""
        batches = [value.tensor for value in _flat((args, kwargs)) if isinstance(value, Batch)]
        shape = torch.broadcast_shapes(*(tensor.shape[: self.dimensions] for tensor in batches))
        if 0 in shape:
            raise RuntimeError(f"{target} can't be called on no elements at all")
        results = []
        for position in itertools.product(*(range(size) for size in shape)):

            def element(value: Any, position: Any = position) -> Any:
                if not isinstance(value, Batch):
                    return value
                sizes = value.tensor.shape[: self.dimensions]
                return value.tensor[tuple(p if size > 1 else 0 for p, size in zip(position, sizes, strict=True))]

            own_args, own_kwargs = _mapped((args, kwargs), element)
            results.append(target(*own_args, **own_kwargs))
        assert len(results) == math.prod(shape)
        return _stacked(results, shape)


def _stacked(results: list[Any], shape: torch.Size) -> Any:
    first = results[0]
    if isinstance(first, (list, tuple)):
        return tuple(_stacked(list(items), shape) for items in zip(*results, strict=True))
    if not isinstance(first, torch.Tensor):
        raise RuntimeError(f"a {type(first).__name__} can't differ from score to score")
    return Batch(torch.stack(results).view(*shape, *first.shape))


def _as_recorded(tensor: torch.Tensor, node: Node) -> torch.Tensor:
    """A result in the dtype that it has in the graph: tensors without dimensions, such as there, give way to others
    when dtypes are mixed."""
    recorded = node.meta.get("val")
    if isinstance(recorded, torch.Tensor) and recorded.dtype is not tensor.dtype:
        return tensor.to(recorded.dtype)
    return tensor


def _flat(value: Any) -> list[Any]:
    if isinstance(value, (list, tuple)):
        return [leaf for item in value for leaf in _flat(item)]
    if isinstance(value, dict):
        return _flat(list(value.values()))
    return [value]


def _mapped(value: Any, function: Callable[[Any], Any]) -> Any:
    """Arguments with a function applied to the batches and tensors among them."""
    if isinstance(value, (list, tuple)):
        return tuple(_mapped(item, function) for item in value)
    if isinstance(value, dict):
        return {name: _mapped(item, function) for name, item in value.items()}
    return function(value) if isinstance(value, (Batch, torch.Tensor)) else value


def _overloads(*names: str) -> frozenset[Any]:
    packets = [getattr(aten, name) for name in names]
    return frozenset(getattr(packet, name) for packet in packets for name in packet.overloads())


# Operators on single elements that are not tagged as such.
_ELEMENTWISE = _overloads(
    "_to_copy", "alias", "detach", "lift_fresh_copy", "full_like", "zeros_like", "ones_like", "floor_divide",
    "__and__", "__or__", "__xor__", "__lshift__", "__rshift__", "greater", "greater_equal", "less", "less_equal",
    "not_equal", "masked_fill", "true_divide", "divide", "multiply", "subtract", "negative", "absolute", "where",
    "div", "fmod", "remainder", "ldexp", "fix", "isclose", "arctan", "arctan2", "special_expm1", "special_log1p",
    "special_expit", "special_erf", "special_exp2",
)  # fmt: skip

_INDEPENDENT = _overloads("new_zeros", "new_ones", "new_full", "new_empty")

# (arguments) -> what is indexed, and with what, per dimension
_INDEXING: dict[Any, Callable[[Any], tuple[Any, Sequence[Any]]]] = {
    aten.index.Tensor: lambda args: (args[0], args[1]),
    aten.embedding.default: lambda args: (args[0], [args[1]]),
}

# Operators whose other dimensions are left alone, with the position of the argument that names one or several.
_DIMENSION_ARGUMENT: dict[Any, int] = {
    aten.select.int: 1,
    aten.slice.Tensor: 1,
    aten.unsqueeze.default: 1,
    aten.squeeze.dim: 1,
    aten.sum.dim_IntList: 1,
    aten.mean.dim: 1,
    aten.amax.default: 1,
    aten.amin.default: 1,
    aten.any.dim: 1,
    aten.all.dim: 1,
    aten.cumsum.default: 1,
    aten.softmax.int: 1,
    aten._softmax.default: 1,
    aten.sym_size.int: 1,
}
_FIRST_BY_DEFAULT = frozenset({aten.slice.Tensor})
