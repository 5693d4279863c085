"""What a builder knows without making a node: results of small constants, shapes that are fixed, no-ops."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tintype.onnx.libraries import ir

if TYPE_CHECKING:
    from tintype.onnx.builder import Builder

_INT64 = ir.DataType.INT64


def folded(builder: Builder, operation: str, values: list[Any], attributes: dict[str, Any]) -> Any:
    """The result of a call that needs no node; None for one that does."""
    rule = _RULES.get(operation)
    if rule is not None:
        result = rule(builder, values, attributes)
        if result is not None:
            return result
    compute = _COMPUTED.get(operation)
    if compute is None or not values:
        return None
    arrays = []
    for value in values:
        array = None if value is None else getattr(value, "array", None)
        if array is None:
            return None
        arrays.append(array)
    result = compute(arrays, attributes)
    if result is None or result.size > 64:
        return None
    return builder.constant(result, values[0].dtype)


def _identity(builder: Builder, values: list[Any], attributes: dict[str, Any]) -> Any:
    return values[0]


def _cast(builder: Builder, values: list[Any], attributes: dict[str, Any]) -> Any:
    to = ir.DataType(int(attributes["to"]))
    return _in_dtype(builder, values[0], to)


def _cast_like(builder: Builder, values: list[Any], attributes: dict[str, Any]) -> Any:
    dtype = values[1].dtype
    if dtype is None:
        return None
    found = _in_dtype(builder, values[0], dtype)
    return builder.emit("Cast", values[0], to=dtype) if found is None else found


def _in_dtype(builder: Builder, value: Any, dtype: ir.DataType) -> Any:
    if value.dtype is dtype:
        return value
    array = getattr(value, "array", None)
    if array is None:
        return None
    if array.dtype.kind == "f" and not np.isfinite(array).all() and not dtype.is_floating_point():
        return None  # what these become as integers is nothing to rely on
    return builder.constant(array, dtype)


def _shape(builder: Builder, values: list[Any], attributes: dict[str, Any]) -> Any:
    shape = values[0].shape
    if shape is None:
        return None
    sizes = list(shape)[_bounds(len(shape), attributes)]
    if all(isinstance(size, int) for size in sizes):
        return builder.constant(sizes, _INT64)
    return None


def _bounds(rank: int, attributes: dict[str, Any]) -> slice:
    return slice(attributes.get("start", 0), attributes.get("end", rank))


def _size(builder: Builder, values: list[Any], attributes: dict[str, Any]) -> Any:
    shape = values[0].shape
    if shape is None or not all(isinstance(size, int) for size in shape):
        return None
    return builder.constant(int(np.prod(list(shape), dtype=np.int64)), _INT64)


def _reshape(builder: Builder, values: list[Any], attributes: dict[str, Any]) -> Any:
    """A number as a vector of one element, which the builder may have already."""
    target = getattr(values[1], "array", None)
    if target is not None and target.shape == (1,) and target[0] in (1, -1):
        return builder.vector_of(values[0])
    return None


def _transpose(builder: Builder, values: list[Any], attributes: dict[str, Any]) -> Any:
    order = attributes.get("perm")
    return values[0] if order is not None and list(order) == list(range(len(order))) else None


def _concat(builder: Builder, values: list[Any], attributes: dict[str, Any]) -> Any:
    return values[0] if len(values) == 1 else None


def _reduce(builder: Builder, values: list[Any], attributes: dict[str, Any]) -> Any:
    shape = values[0].shape
    return values[0] if shape is not None and len(shape) == 0 and len(values) == 1 else None


def _never(builder: Builder, values: list[Any], attributes: dict[str, Any]) -> Any:
    """Integers and truth values are neither nan nor infinite."""
    dtype = values[0].dtype
    if dtype is None or dtype.is_floating_point():
        return None
    return builder.emit("Expand", builder.constant(False), builder.emit("Shape", values[0]))


def _reduction(builder: Builder, values: list[Any], attributes: dict[str, Any]) -> Any:
    """Without dimensions there are no axes to name."""
    shape = values[0].shape
    if shape is not None and len(shape) == 0 and len(values) > 1 and values[1] is not None:
        values[1:] = []
    return None


_REDUCTIONS = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")

_RULES: dict[str, Any] = {
    "IsNaN": _never,
    "IsInf": _never,
    **{f"Reduce{name}": _reduction for name in _REDUCTIONS},
    "Identity": _identity,
    "Cast": _cast,
    "CastLike": _cast_like,
    "Shape": _shape,
    "Size": _size,
    "Reshape": _reshape,
    "Transpose": _transpose,
    "Concat": _concat,
}


# --- computed with numpy ---------------------------------------------------------------------------------------


def _unsqueeze(arrays: list[Any], attributes: dict[str, Any]) -> Any:
    data, axes = arrays
    rank = data.ndim + axes.size
    new = {int(axis) % rank for axis in axes.reshape(-1)}
    sizes = iter(data.shape)
    return data.reshape([1 if dimension in new else next(sizes) for dimension in range(rank)])


def _squeeze(arrays: list[Any], attributes: dict[str, Any]) -> Any:
    if len(arrays) == 1:
        return arrays[0].squeeze()
    return arrays[0].squeeze(tuple(int(axis) for axis in arrays[1].reshape(-1)))


def _reshaped(arrays: list[Any], attributes: dict[str, Any]) -> Any:
    target = arrays[1].tolist()
    return None if 0 in target else arrays[0].reshape(target)


def _gather(arrays: list[Any], attributes: dict[str, Any]) -> Any:
    return np.take(arrays[0], arrays[1], axis=attributes.get("axis", 0))


def _slice(arrays: list[Any], attributes: dict[str, Any]) -> Any:
    if len(arrays) < 4:
        return None
    data, starts, ends, axes = arrays[:4]
    steps = arrays[4] if len(arrays) > 4 else np.ones_like(axes)
    if (steps < 1).any():
        return None
    index = [slice(None)] * data.ndim
    for start, end, axis, step in zip(starts, ends, axes, steps):
        index[int(axis)] = slice(int(start), int(end), int(step))
    return data[tuple(index)]


def _quotient(arrays: list[Any], attributes: dict[str, Any]) -> Any:
    left, right = arrays
    if left.dtype.kind != "f" or not np.all(right):
        return None
    return left / right


def _arithmetic(function: Any) -> Any:
    def compute(arrays: list[Any], attributes: dict[str, Any]) -> Any:
        if any(array.dtype.kind not in "fi" for array in arrays):
            return None
        with np.errstate(all="ignore"):
            result = np.asarray(function(*arrays))
        return result if result.dtype == arrays[0].dtype else None

    return compute


_COMPUTED: dict[str, Any] = {
    "Unsqueeze": _unsqueeze,
    "Squeeze": _squeeze,
    "Reshape": _reshaped,
    "Gather": _gather,
    "Slice": _slice,
    "Concat": lambda arrays, attributes: np.concatenate(arrays, axis=attributes["axis"]),
    "Div": _quotient,
    "Add": _arithmetic(np.add),
    "Sub": _arithmetic(np.subtract),
    "Mul": _arithmetic(np.multiply),
    "Neg": _arithmetic(np.negative),
    "Sqrt": _arithmetic(np.sqrt),
}
