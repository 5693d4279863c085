"""Type promotion: ONNX's operators take operands of one dtype, torch's promote them.

Operators that work element by element compute in the dtype of their result; those whose result is a truth value in
the dtype that torch promotes their operands to. Sums and products of integers and truth values convert them first.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch.fx import Node

from tintype.fake.tensor import FakeTensor

aten = torch.ops.aten

# Operators whose operands keep their dtypes, though they work element by element.
_KEPT = frozenset(
    {
        "aten::copy", "aten::clone", "aten::to", "aten::_to_copy", "aten::masked_fill", "aten::fill",
        "aten::lift_fresh_copy",
        "aten::bernoulli", "aten::polygamma", "aten::native_dropout", "aten::dropout", "aten::frexp", "aten::complex",
        "aten::polar", "aten::isreal", "aten::real", "aten::imag", "aten::view_as_real", "aten::view_as_complex",
        "aten::conj", "aten::angle", "aten::cumsum", "aten::normal_functional", "aten::special_polygamma",
    }
)  # fmt: skip
# Operators that convert their first operand to the dtype of the result before they reduce it.
_CONVERTED_FIRST = frozenset(
    {"aten::sum", "aten::prod", "aten::mean", "aten::cumsum", "aten::cumprod", "aten::nansum", "aten::nanmean",
     "aten::logsumexp", "aten::logcumsumexp", "aten::softmax", "aten::log_softmax", "aten::norm",
     "aten::linalg_vector_norm", "aten::trace", "aten::special_softmax", "aten::special_log_softmax"}
)  # fmt: skip
_CONVERTED_LISTS = frozenset(
    {
        "aten::cat",
        "aten::stack",
        "aten::concat",
        "aten::concatenate",
        "aten::hstack",
        "aten::vstack",
        "aten::dstack",
        "aten::column_stack",
    }
)
# Other names of operators that work element by element, which torch does not mark as such.
_OTHER_NAMES = frozenset(
    {
        "aten::absolute", "aten::arccos", "aten::arccosh", "aten::arcsin", "aten::arcsinh", "aten::arctan",
        "aten::arctan2", "aten::arctanh", "aten::clip", "aten::divide", "aten::fix", "aten::float_power",
        "aten::greater", "aten::greater_equal", "aten::isclose", "aten::less", "aten::less_equal", "aten::ldexp",
        "aten::multiply", "aten::negative", "aten::not_equal", "aten::special_digamma", "aten::special_erf",
        "aten::special_erfc", "aten::special_erfinv", "aten::special_exp2", "aten::special_expit",
        "aten::special_expm1", "aten::special_gammaln", "aten::special_i0", "aten::special_log1p",
        "aten::special_logit", "aten::special_psi", "aten::special_round", "aten::special_sinc",
        "aten::special_xlogy", "aten::square", "aten::subtract", "aten::true_divide", "aten::where",
        "aten::floor_divide", "aten::div", "aten::fmod", "aten::remainder",
    }
)  # fmt: skip
_CONDITIONS = frozenset({"condition", "mask"})


@functools.cache
def _kind(target: Any) -> tuple[str, frozenset[int]] | None:
    """How an operator promotes, and the positions of its conditions."""
    if not isinstance(target, torch._ops.OpOverload):
        return None
    name = target._schema.name
    if name in _CONVERTED_FIRST:
        return "first", frozenset()
    if name in _CONVERTED_LISTS:
        return "list", frozenset()
    if (torch.Tag.pointwise in target.tags or name in _OTHER_NAMES) and name not in _KEPT:
        skipped = {
            position for position, argument in enumerate(target._schema.arguments) if argument.name in _CONDITIONS
        }
        return "pointwise", frozenset(skipped)
    return None


def operand_dtypes(node: Node) -> dict[int, torch.dtype] | None:
    """The dtypes that operands have to be converted to, by position; None where all stay as they are."""
    kind = _kind(node.target)
    if kind is None:
        return None
    how, skipped = kind
    result = node.meta.get("val")
    if isinstance(result, (tuple, list)):
        result = result[0]
    if type(result) is not FakeTensor:
        return None
    if how == "first":
        first = _dtype_of(node.args[0]) if node.args else None
        wanted = result.info.dtype
        return {0: wanted} if first is not None and first is not wanted and not wanted.is_complex else None
    if how == "list":
        return {0: result.info.dtype}
    wanted = result.info.dtype
    if wanted is torch.bool:
        common = _common(node, skipped)
        if common is None:
            return None
        wanted = common
    return {position: wanted for position in range(len(node.args)) if position not in skipped}


def _dtype_of(argument: Any) -> torch.dtype | None:
    if isinstance(argument, Node):
        value = argument.meta.get("val")
        if type(value) is FakeTensor:
            return value.info.dtype
    return None


def _common(node: Node, skipped: frozenset[int]) -> torch.dtype | None:
    """The dtype that torch promotes operands to: tensors with dimensions first, then those without, then numbers."""
    ranked: dict[int, list[torch.dtype]] = {0: [], 1: [], 2: []}
    for position, argument in enumerate(node.args):
        if position in skipped:
            continue
        if isinstance(argument, Node):
            value = argument.meta.get("val")
            if type(value) is FakeTensor:
                ranked[0 if value.info.sizes else 1].append(value.info.dtype)
            elif isinstance(value, torch.SymInt):
                ranked[2].append(torch.int64)
            elif isinstance(value, torch.SymFloat):
                ranked[2].append(torch.get_default_dtype())
        elif isinstance(argument, bool):
            ranked[2].append(torch.bool)
        elif isinstance(argument, int):
            ranked[2].append(torch.int64)
        elif isinstance(argument, float):
            ranked[2].append(torch.get_default_dtype())
        elif isinstance(argument, complex):
            ranked[2].append(torch.complex64)
    if not ranked[0] and not ranked[1]:
        return None
    result: torch.dtype | None = None
    for rank in (0, 1, 2):
        for dtype in ranked[rank]:
            if result is None:
                result = dtype
            elif rank == 0 or _category(dtype) > _category(result) or (rank == 1 and not ranked[0]):
                result = torch.promote_types(result, dtype)
    return result


def _category(dtype: torch.dtype) -> int:
    if dtype.is_complex:
        return 3
    if dtype.is_floating_point:
        return 2
    return 0 if dtype is torch.bool else 1
