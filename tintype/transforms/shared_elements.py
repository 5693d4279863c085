"""Whether an operator that writes to a tensor reads elements of it through another view.

What is left then depends on the order in which a kernel goes through the elements: eager mode refuses it where it
notices, and gives whatever comes out where it does not.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from torch.fx import Node
from torch.fx.node import map_arg

from tintype.fake.info import TensorInfo, is_dense
from tintype.symbolic import Environment, Expr, evaluate

# Sizes at which views of varying size are looked at, besides those of the example.
_SAMPLES = (3, 5, 8)
# More elements than these are not looked at one by one.
_MOST_ELEMENTS = 4096

# sizes, strides and offset as numbers
_Geometry = tuple[tuple[int, ...], tuple[int, ...], int]


def is_given_again(node: Node, argument: Node) -> bool:
    """Whether a node has another one several times among its arguments."""
    given: list[Node] = []
    map_arg((node.args, node.kwargs), given.append)
    return given.count(argument) > 1


def share_elements(first: TensorInfo, second: TensorInfo, *, or_same: bool = False) -> bool:
    """Whether two views of one memory have elements in common without being the same elements in the same places;
    with ``or_same`` also if they are."""
    if first.sizes == second.sizes and first.strides == second.strides and first.offset == second.offset:
        return or_same and 0 not in first.sizes
    if first.dtype.itemsize != second.dtype.itemsize:
        return False
    return any(_meet(one, other) for one, other in _geometries(first, second))


def _geometries(first: TensorInfo, second: TensorInfo) -> Iterator[tuple[_Geometry, _Geometry]]:
    numbers = [*first.sizes, *first.strides, first.offset, *second.sizes, *second.strides, second.offset]
    symbols = {symbol for number in numbers if isinstance(number, Expr) for symbol in number.symbols}
    if not symbols:
        yield _geometry(first, {}), _geometry(second, {})
        return
    environment = next(iter(symbols)).environment
    samples: list[dict[Any, int]] = [dict.fromkeys(environment.symbols.values(), size) for size in _SAMPLES]
    if all(symbol.hint is not None for symbol in symbols):
        samples.append({symbol: symbol.hint for symbol in environment.symbols.values() if symbol.hint is not None})
    for sample in samples:
        if _is_possible(environment, sample):
            yield _geometry(first, sample), _geometry(second, sample)


def _is_possible(environment: Environment, sample: dict[Any, int]) -> bool:
    """Whether sizes are such as the program may have; sums and quotients of others may not."""
    conditions = [guard.condition for guard in environment.guards]
    conditions += [assertion.condition for assertion in environment.assertions]
    try:
        return all(evaluate(condition, sample) for condition in conditions if condition.symbols <= sample.keys())
    except ZeroDivisionError:
        return False


def _geometry(info: TensorInfo, sample: dict[Any, int]) -> _Geometry:
    return (
        tuple(evaluate(size, sample) for size in info.sizes),
        tuple(evaluate(stride, sample) for stride in info.strides),
        evaluate(info.offset, sample),
    )


def _meet(first: _Geometry, second: _Geometry) -> bool:
    if first == second or 0 in first[0] or 0 in second[0]:
        return False
    if first[2] > _last(second) or second[2] > _last(first):
        return False
    if _count(first) <= _MOST_ELEMENTS and _count(second) <= _MOST_ELEMENTS:
        return not _positions(first).isdisjoint(_positions(second))
    return is_dense(*first[:2]) and is_dense(*second[:2])


def _last(geometry: _Geometry) -> int:
    sizes, strides, offset = geometry
    return offset + sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))


def _count(geometry: _Geometry) -> int:
    count = 1
    for size in geometry[0]:
        count *= size
    return count


def _positions(geometry: _Geometry) -> set[int]:
    sizes, strides, offset = geometry
    steps = ([i * stride for i in range(size)] for size, stride in zip(sizes, strides, strict=True))
    return {offset + sum(parts) for parts in itertools.product(*steps)}
