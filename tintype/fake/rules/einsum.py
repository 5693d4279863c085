"""``einsum`` of two tensors: one batched matrix product, the result turned into the order asked for."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

from tintype.fake.info import TensorInfo
from tintype.fake.promotion import result_type
from tintype.fake.rules.elementwise import common_device, elementwise
from tintype.fake.rules.registry import rule
from tintype.symbolic import Size, eq
from tintype.symbolic.sizes import (
    broadcast_dim,
    contiguous_strides,
    decided_same,
    is_one,
    is_stretched,
    require_equal_or_one,
)

# Labels of the dimensions that an ellipsis stands for: their number from the end, as a string.
_Label = str


@dataclass(frozen=True, slots=True)
class _Plan:
    """The labels of both operands' dimensions, and of the result's: kept ones first, summed ones last."""

    operands: tuple[tuple[_Label, ...], ...]
    kept: tuple[_Label, ...]
    summed: tuple[_Label, ...]


@functools.lru_cache(maxsize=1024)
def _parse(equation: str, dims: tuple[int, ...]) -> _Plan:
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(dims):
        raise RuntimeError(f"einsum(): the equation has {len(terms)} operands, but {len(dims)} were given")
    operands = tuple(_labels(term, count) for term, count in zip(terms, dims, strict=True))
    hidden = max((labels for labels in map(_ellipsis, operands)), key=len)
    named = [label for labels in operands for label in labels if label.isalpha()]
    if arrow:
        before, dots, after = right.partition("...")
        kept = (*before, *(hidden if dots else ()), *after)
    else:
        kept = (*hidden, *sorted({label for label in named if named.count(label) == 1}))
    everything = dict.fromkeys(label for labels in operands for label in labels)
    missing = [label for label in kept if label not in everything]
    if missing or len(set(kept)) != len(kept):
        raise RuntimeError(f"einsum(): output subscripts of {equation!r} must appear once and in an operand")
    summed = tuple(sorted(label for label in everything if label not in kept))
    return _Plan(operands, kept, summed)


def _labels(term: str, count: int) -> tuple[_Label, ...]:
    before, dots, after = term.partition("...")
    spare = count - len(before) - len(after)
    if spare < 0 or (spare and not dots):
        raise RuntimeError(
            f"einsum(): the number of subscripts in the equation ({len(term)}) does not match the number of "
            f"dimensions ({count}) for an operand"
        )
    return (*before, *(str(i) for i in range(spare, 0, -1)), *after)


def _ellipsis(labels: tuple[_Label, ...]) -> tuple[_Label, ...]:
    return tuple(label for label in labels if not label.isalpha())


@rule("einsum")
def einsum(equation: str, tensors: Sequence[TensorInfo], *, path: Sequence[int] | None = None) -> TensorInfo:
    if len(tensors) != 2:
        raise NotImplementedError("one operand makes a view, several are contracted in some order")
    plan = _parse(equation, (len(tensors[0].sizes), len(tensors[1].sizes)))
    if any(len(set(labels)) != len(labels) for labels in plan.operands):
        raise NotImplementedError("a repeated label takes a diagonal")
    first, second = (
        dict(zip(labels, zip(info.sizes, info.strides, strict=True), strict=True))
        for labels, info in zip(plan.operands, tensors, strict=True)
    )
    contracted: list[_Label] = []
    alike = tensors[0].dtype is tensors[1].dtype
    for label in plan.summed:
        one, two = first.get(label), second.get(label)
        if one is None or two is None:
            continue
        if not alike and decided_same((one[0], two[0]), (1, 1)):
            continue  # nothing is contracted, so that dtypes may differ
        if not _gives_way(one[0], two[0]) and not _gives_way(two[0], one[0]):
            _require_same(one[0], two[0], label)
            contracted.append(label)
    if contracted:
        return _matrix_product(plan, first, second, tensors)
    return _elementwise_product(plan, first, second, tensors)


def _gives_way(size: Size, other: Size) -> bool:
    return is_one(size) or is_stretched(size, other)


def _require_same(one: Size, two: Size, label: _Label) -> None:
    if one is not two:
        require_equal_or_one(
            eq(one, two),
            lambda: (
                f"einsum(): subscript {label} has size {two} for operand 1 which does not broadcast with "
                f"previously seen size {one}"
            ),
        )


_Dimensions = dict[_Label, tuple[Size, Size]]


def _matrix_product(
    plan: _Plan, first: _Dimensions, second: _Dimensions, tensors: Sequence[TensorInfo]
) -> TensorInfo:
    if tensors[0].dtype is not tensors[1].dtype:
        raise RuntimeError(
            f"expected scalar type {tensors[0].dtype} but found {tensors[1].dtype} (einsum's operands)"
        )
    sizes: list[Size] = []
    both: list[int] = []
    only_first: list[int] = []
    only_second: list[int] = []
    trivial = (1, 1)
    for position, label in enumerate(plan.kept):
        one, two = first.get(label, trivial)[0], second.get(label, trivial)[0]
        if _gives_way(one, two):
            only_second.append(position)
            sizes.append(two)
        elif _gives_way(two, one):
            only_first.append(position)
            sizes.append(one)
        else:
            _require_same(one, two, label)
            both.append(position)
            sizes.append(one)
    order = [*both, *only_first, *only_second]
    if only_first and only_second and max(only_second) < min(only_first):
        order = [*both, *only_second, *only_first]  # the operands change places
    dense = contiguous_strides([sizes[position] for position in order])
    strides: list[Size] = [1] * len(sizes)
    for position, stride in zip(order, dense, strict=True):
        strides[position] = stride
    return TensorInfo(tuple(sizes), tuple(strides), tensors[0].dtype, common_device(tensors))


def _elementwise_product(
    plan: _Plan, first: _Dimensions, second: _Dimensions, tensors: Sequence[TensorInfo]
) -> TensorInfo:
    views = []
    for own, info in zip((first, second), tensors, strict=True):
        sizes = tuple(own[label][0] if label in own else 1 for label in plan.kept)
        if any(label in own and not is_one(own[label][0]) for label in plan.summed):
            strides = contiguous_strides(sizes)  # summed on its own first, which makes a new tensor
        else:
            strides = tuple(own[label][1] if label in own else 1 for label in plan.kept)
        views.append(TensorInfo(sizes, strides, info.dtype, info.device))
    for label, one, two in zip(plan.kept, views[0].sizes, views[1].sizes, strict=True):
        if one is not two:
            broadcast_dim(one, two, lambda label=label: f"einsum(): subscript {label} does not broadcast")  # type: ignore[misc]
    return elementwise(views, result_type(*tensors))
