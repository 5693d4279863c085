"""Elementwise operators: broadcasting, type promotion and the memory order of the result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from tintype.fake.info import (
    CHANNELS_LAST_ORDER,
    TensorInfo,
    fresh,
    has_contiguous_strides,
    is_channels_last,
    preserved_strides,
    strides_by_operands,
    strides_in_order,
)
from tintype.fake.promotion import real_of, result_type, to_float
from tintype.fake.rules.registry import rule
from tintype.symbolic.expression import Size
from tintype.symbolic.sizes import broadcast_dim, contiguous_strides, is_one, is_zero, product


def broadcast(shapes: Sequence[tuple[Size, ...]]) -> tuple[Size, ...]:
    """The common size of operands of an elementwise operator."""
    first = shapes[0]
    if shapes.count(first) == len(shapes):
        return first
    result: list[Size] = [1] * max(len(shape) for shape in shapes)
    for shape in shapes:
        shift = len(result) - len(shape)
        for i, size in enumerate(shape):
            where = shift + i
            old = result[where]
            if old == size or (type(size) is int and size == 1):
                continue
            if type(old) is int and old == 1:
                result[where] = size
                continue

            def describe(a: Size = old, b: Size = size, where: int = where) -> str:
                return (
                    f"The size of tensor a ({a}) must match the size of tensor b ({b}) "
                    f"at non-singleton dimension {where}"
                )

            result[where] = broadcast_dim(old, size, describe)
    return tuple(result)


def result_strides(sizes: tuple[Size, ...], operands: Sequence[TensorInfo]) -> tuple[Size, ...]:
    """The strides that an elementwise kernel gives a fresh result."""
    contiguous = contiguous_strides(sizes)
    leading = operands[0]
    if 1 in sizes:
        return _strides_beside_ones(sizes, operands)
    if leading.sizes == sizes:
        strides = leading.strides
        if strides == contiguous:
            return strides
        if 0 not in strides and len(set(strides)) == len(strides):
            # the first operand tells all dimensions apart: the others are not asked
            return preserved_strides(sizes, strides)
    if all(operand.strides == contiguous_strides(operand.sizes) for operand in operands):
        return contiguous
    strides = leading.strides
    if all(operand.sizes == sizes and operand.strides == strides for operand in operands):
        return preserved_strides(sizes, strides)
    expanded = [_broadcast_strides(operand, sizes) for operand in operands if operand.sizes]
    if not expanded:
        return contiguous
    return strides_by_operands(sizes, expanded)


def _strides_beside_ones(sizes: tuple[Size, ...], operands: Sequence[TensorInfo]) -> tuple[Size, ...]:
    """The same where a size is one: operands whose stride there is any number count as contiguous all the same, and
    the result is."""
    strides = operands[0].strides
    if all(operand.sizes == sizes for operand in operands):
        if all(has_contiguous_strides(sizes, operand.strides) for operand in operands):
            return contiguous_strides(sizes)
        if len(sizes) == 4 and all(map(is_channels_last, operands)):
            return strides_in_order(sizes, CHANNELS_LAST_ORDER[4])
        if all(operand.strides == strides for operand in operands):
            return preserved_strides(sizes, strides)
    expanded = [_broadcast_strides(operand, sizes) for operand in operands if operand.sizes]
    return strides_by_operands(sizes, expanded)


def _strides_like(info: TensorInfo) -> tuple[Size, ...]:
    """The strides that an elementwise kernel of one tensor gives its result."""
    if 1 in info.sizes:
        return _strides_beside_ones(info.sizes, [info])
    return preserved_strides(info.sizes, info.strides)


def _strides_with_number(info: TensorInfo) -> tuple[Size, ...]:
    """The same where the other operand is a number, which is of another size to the kernel."""
    if 1 in info.sizes:
        return strides_by_operands(info.sizes, [info.strides])
    return preserved_strides(info.sizes, info.strides)


def _broadcast_strides(info: TensorInfo, sizes: tuple[Size, ...]) -> tuple[Size, ...]:
    shift = len(sizes) - len(info.sizes)
    own = tuple(
        0 if is_one(size) and not is_one(full) else stride
        for size, stride, full in zip(info.sizes, info.strides, sizes[shift:], strict=True)
    )
    return (0,) * shift + own


def common_device(operands: Sequence[TensorInfo]) -> torch.device:
    """The device of a result: that of the operands, of which zero-dimensional CPU tensors may be mixed in."""
    device = operands[0].device
    for operand in operands:
        if operand.device != device:
            if operand.sizes == () and operand.device.type == "cpu":
                continue
            if device.type != "cpu" or operands[0].sizes:
                raise RuntimeError(
                    f"Expected all tensors to be on the same device, but found at least two devices, "
                    f"{device} and {operand.device}!"
                )
            device = operand.device
    return device


def elementwise(operands: Sequence[TensorInfo], dtype: torch.dtype) -> TensorInfo:
    """The result of an elementwise kernel over these tensors."""
    first = operands[0]
    if len(operands) == 1:
        return TensorInfo(first.sizes, _strides_like(first), dtype, first.device)
    sizes = broadcast([operand.sizes for operand in operands])
    device = common_device(operands)
    return TensorInfo(sizes, result_strides(sizes, operands), dtype, device)


def tensors(*operands: Any) -> list[TensorInfo]:
    """The operands that are tensors."""
    return [operand for operand in operands if type(operand) is TensorInfo]


def _register(names: str, function: Callable[..., Any]) -> None:
    rule(*names.split())(function)


# --- one tensor ------------------------------------------------------------------------------------------


def _same(self: TensorInfo, *options: Any, **named: Any) -> TensorInfo:
    return TensorInfo(self.sizes, _strides_like(self), self.dtype, self.device)


def _copying(self: TensorInfo, *options: Any, **named: Any) -> TensorInfo:
    return TensorInfo(self.sizes, preserved_strides(self.sizes, self.strides), self.dtype, self.device)


def _float(self: TensorInfo, *options: Any, **named: Any) -> TensorInfo:
    return TensorInfo(self.sizes, _strides_like(self), to_float(self.dtype), self.device)


def _bool(self: TensorInfo, *options: Any, **named: Any) -> TensorInfo:
    return TensorInfo(self.sizes, _strides_like(self), torch.bool, self.device)


def _real(self: TensorInfo) -> TensorInfo:
    return TensorInfo(self.sizes, _strides_like(self), real_of(self.dtype), self.device)


_register(
    "neg relu silu gelu hardswish hardsigmoid leaky_relu elu softplus softshrink hardshrink mish "
    "sgn sign bitwise_not threshold round round.decimals floor ceil trunc frac "
    "selu celu",
    _same,
)
_register("hardtanh relu6 nan_to_num fill.Scalar", _copying)
_register(
    "sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh exp exp2 expm1 log log2 log10 log1p sqrt "
    "rsqrt reciprocal sigmoid erf erfc erfinv lgamma digamma i0 sinc logit deg2rad rad2deg "
    "special_entr special_erfcx special_i0e special_i1 special_i1e special_log_ndtr special_ndtri "
    "special_bessel_j0 special_bessel_j1 special_bessel_y0 special_bessel_y1 special_airy_ai",
    _float,
)
_register("isnan isinf isfinite logical_not isneginf isposinf signbit", _bool)
_register("abs", _real)


@rule("angle")
def angle(self: TensorInfo) -> TensorInfo:
    if self.dtype.is_complex:
        return self.fresh(dtype=self.dtype.to_real())
    return _float(self)


@rule("rrelu", "rrelu_with_noise")
def randomized_relu(self: TensorInfo, *options: Any, **named: Any) -> TensorInfo:
    """The kernel's result is contiguous, whatever its argument is; torch's meta function says otherwise."""
    return self.fresh()


@rule("mvlgamma")
def mvlgamma(self: TensorInfo, p: int) -> TensorInfo:
    return self.fresh(dtype=to_float(self.dtype))


@rule("polygamma")
def polygamma(n: int, self: TensorInfo) -> TensorInfo:
    return _float(self)


@rule("conj_physical")
def conj_physical(self: TensorInfo) -> TensorInfo:
    # of real numbers eager mode returns the argument itself
    return _same(self) if self.dtype.is_complex else self


@rule("log_sigmoid")
def log_sigmoid(self: TensorInfo) -> TensorInfo:
    return self.fresh()


@rule("square")
def square(self: TensorInfo) -> TensorInfo:
    dtype = torch.int64 if self.dtype is torch.bool else self.dtype
    return elementwise([self], dtype)


# --- two tensors or a tensor and a number ----------------------------------------------------------------


def _promoting(self: Any, other: Any, *options: Any, **named: Any) -> TensorInfo:
    if type(self) is not TensorInfo:  # a number may come first too: torch.sub(1, x)
        if type(other) is not TensorInfo:
            return fresh((), result_type(self, other), torch.device("cpu"))
        swapped: TensorInfo = _promoting(other, self)
        return swapped
    if type(other) is not TensorInfo:
        return TensorInfo(self.sizes, _strides_with_number(self), result_type(self, other), self.device)
    dtype = self.dtype if self.dtype is other.dtype else result_type(self, other)
    if self.sizes == other.sizes and self.strides == other.strides and self.device == other.device:
        return TensorInfo(self.sizes, _strides_like(self), dtype, self.device)
    return elementwise((self, other), dtype)


def _true_division(self: TensorInfo, other: Any) -> TensorInfo:
    info = _promoting(self, other)
    info.dtype = to_float(info.dtype)
    return info


def _comparison(self: Any, other: Any) -> TensorInfo:
    if type(self) is not TensorInfo:
        self, other = other, self
    result_type(self, other)
    if type(other) is not TensorInfo:
        return TensorInfo(self.sizes, _strides_with_number(self), torch.bool, self.device)
    return elementwise([self, other], torch.bool)


_register(
    "add.Tensor add.Scalar sub.Tensor sub.Scalar mul.Tensor mul.Scalar rsub.Scalar "
    "remainder.Tensor remainder.Scalar fmod.Tensor fmod.Scalar floor_divide maximum minimum fmax fmin "
    "bitwise_and.Tensor bitwise_and.Scalar bitwise_or.Tensor bitwise_or.Scalar bitwise_xor.Tensor "
    "bitwise_xor.Scalar pow.Tensor_Tensor hypot nextafter heaviside "
    "__and__.Tensor __or__.Tensor __xor__.Tensor min.other max.other",
    _promoting,
)
_register("div.Tensor div.Scalar", _true_division)


@rule("pow.Tensor_Scalar")
def power_by_number(self: TensorInfo, exponent: Any) -> TensorInfo:
    return TensorInfo(self.sizes, _strides_like(self), result_type(self, exponent), self.device)


_register(
    "eq.Tensor eq.Scalar ne.Tensor ne.Scalar lt.Tensor lt.Scalar le.Tensor le.Scalar gt.Tensor gt.Scalar "
    "ge.Tensor ge.Scalar logical_and logical_or logical_xor",
    _comparison,
)


@rule("__lshift__.Scalar", "__lshift__.Tensor", "__rshift__.Scalar", "__rshift__.Tensor")
def shift(self: TensorInfo, other: Any) -> TensorInfo:
    """torch's own kernel refuses flags, which eager mode takes for the integers that they become."""
    result = _promoting(self, other)
    if result.dtype.is_floating_point or result.dtype.is_complex or result.dtype is torch.bool:
        raise NotImplementedError
    return result


@rule("rsub.Tensor")
def reversed_subtraction(self: TensorInfo, other: TensorInfo, *, alpha: Any = 1) -> TensorInfo:
    return _promoting(other, self)


@rule("div.Tensor_mode", "div.Scalar_mode")
def divide_rounding(self: TensorInfo, other: Any, *, rounding_mode: str | None) -> TensorInfo:
    return _true_division(self, other) if rounding_mode is None else _promoting(self, other)


_register(
    "atan2 xlogy.Tensor xlogy.Scalar_Other special_xlog1py special_zeta true_divide.Tensor "
    "true_divide.Scalar divide.Tensor divide.Scalar copysign.Tensor copysign.Scalar",
    _true_division,
)
_register(
    "logaddexp logaddexp2 igamma igammac multiply.Tensor multiply.Scalar subtract.Tensor subtract.Scalar "
    "bitwise_left_shift.Tensor bitwise_left_shift.Tensor_Scalar bitwise_right_shift.Tensor "
    "bitwise_right_shift.Tensor_Scalar __and__.Scalar __or__.Scalar __xor__.Scalar gcd lcm",
    _promoting,
)


@rule("complex")
def complex_of_parts(real: TensorInfo, imag: TensorInfo) -> TensorInfo:
    if real.dtype is not imag.dtype:
        raise RuntimeError(f"Expected object of scalar type {real.dtype} but got scalar type {imag.dtype}")
    return elementwise([real, imag], real.dtype.to_complex())


@rule("polar")
def complex_of_angle(abs: TensorInfo, angle: TensorInfo) -> TensorInfo:
    return complex_of_parts(abs, angle)


@rule("isclose")
def isclose(self: TensorInfo, other: TensorInfo, *options: Any, **named: Any) -> TensorInfo:
    if self.dtype is not other.dtype:
        raise RuntimeError(f"{self.dtype} did not match {other.dtype}")
    return elementwise([self, other], torch.bool)


@rule("_prelu_kernel")
def prelu_kernel(self: TensorInfo, weight: TensorInfo) -> TensorInfo:
    return elementwise([self, weight], self.dtype)


@rule("prelu")
def prelu(self: TensorInfo, weight: TensorInfo) -> TensorInfo:
    return _same(self)


@rule("float_power.Tensor_Tensor", "float_power.Tensor_Scalar")
def float_power(self: TensorInfo, exponent: Any) -> TensorInfo:
    complex_result = result_type(self, exponent).is_complex
    return elementwise(tensors(self, exponent), torch.complex128 if complex_result else torch.float64)


@rule("log_sigmoid_forward")
def log_sigmoid_forward(self: TensorInfo) -> tuple[TensorInfo, TensorInfo]:
    return self.fresh(), self.fresh()


@rule("native_dropout")
def native_dropout(input: TensorInfo, p: float, train: bool | None) -> tuple[TensorInfo, TensorInfo]:
    return _same(input), _bool(input)


@rule("pow.Scalar")
def power_of_number(self: Any, exponent: TensorInfo) -> TensorInfo:
    return exponent.fresh(dtype=result_type(self, exponent))


# --- three and more --------------------------------------------------------------------------------------


@rule("where.self")
def where(condition: TensorInfo, self: TensorInfo, other: TensorInfo) -> TensorInfo:
    if condition.dtype not in (torch.bool, torch.uint8):
        raise RuntimeError(
            f"where expected condition to be a boolean tensor, but got a tensor with dtype {condition.dtype}"
        )
    return elementwise([condition, self, other], result_type(self, other))


@rule("where.ScalarSelf")
def where_number_first(condition: TensorInfo, self: Any, other: TensorInfo) -> TensorInfo:
    return elementwise([condition, other], result_type(self, other))


@rule("where.ScalarOther")
def where_number_second(condition: TensorInfo, self: TensorInfo, other: Any) -> TensorInfo:
    return elementwise([condition, self], result_type(self, other))


@rule("masked_fill.Scalar", "masked_fill.Tensor")
def masked_fill(self: TensorInfo, mask: TensorInfo, value: Any) -> TensorInfo:
    if mask.dtype is not torch.bool:
        raise RuntimeError(f"masked_fill_ only supports boolean masks, but got mask with dtype {mask.dtype}")
    sizes = broadcast([self.sizes, mask.sizes])
    return TensorInfo(sizes, contiguous_strides(sizes), self.dtype, self.device)


@rule("clamp", "clamp_min", "clamp_max")
def clamp(self: TensorInfo, min: Any = None, max: Any = None) -> TensorInfo:
    return elementwise([self], result_type(self, min, max))


@rule("clamp.Tensor", "clamp_min.Tensor", "clamp_max.Tensor")
def clamp_by_tensors(self: TensorInfo, min: Any = None, max: Any = None) -> TensorInfo:
    return elementwise(tensors(self, min, max), result_type(self, min, max))


@rule("addcmul", "addcdiv")
def add_product(self: TensorInfo, tensor1: TensorInfo, tensor2: TensorInfo, *, value: Any = 1) -> TensorInfo:
    return elementwise([self, tensor1, tensor2], result_type(self, tensor1, tensor2))


@rule("lerp.Scalar", "lerp.Tensor")
def lerp(self: TensorInfo, end: TensorInfo, weight: Any) -> TensorInfo:
    return elementwise(tensors(self, end, weight), self.dtype)


@rule("dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout")
def dropout(input: TensorInfo, p: float, train: bool) -> TensorInfo:
    # where there is nothing to drop, or without training, eager mode returns the input itself
    if not train or p == 0 or is_zero(product(input.sizes)):
        return input
    return elementwise([input], input.dtype)
