"""Products of matrices."""

from __future__ import annotations

from typing import Any

import torch

from tintype.onnx.builder import Builder
from tintype.onnx.libraries import ir
from tintype.onnx.lowerings.elementwise import is_float
from tintype.onnx.registry import lowering

aten = torch.ops.aten


def _scaled(op: Builder, value: Any, factor: Any) -> Any:
    return value if not isinstance(factor, ir.Value) and factor == 1 else op.Mul(value, op.like(factor, value))


def _added(op: Builder, tensor: Any, product: Any, beta: Any, alpha: Any) -> Any:
    """beta * tensor + alpha * product; nothing of the tensor, nan included, where beta is 0."""
    product = _scaled(op, product, alpha)
    if not isinstance(beta, ir.Value) and beta == 0:
        return product
    return op.Add(_scaled(op, tensor, beta), product)


def _added_multiple(name: str) -> None:
    """Of a number it is a number: torchlib would make one of float32 of it."""

    @lowering(getattr(aten, name).Tensor, getattr(aten, name).Scalar)
    def lower(op: Builder, tensor: Any, other: Any, alpha: Any = 1) -> Any:
        if type(other) in (int, float) and type(alpha) in (int, float):
            other, alpha = other * alpha, 1
        return op.program.call_operator(op.node.target, [tensor, other, alpha])


_added_multiple("add")
_added_multiple("sub")


@lowering(aten.addmm.default)
def addmm(op: Builder, tensor: Any, left: Any, right: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    plain = not isinstance(beta, ir.Value) and not isinstance(alpha, ir.Value)
    if left.dtype is ir.DataType.DOUBLE:  # Gemm has its factors in float32
        plain = plain and alpha == 1 and beta == 1
    inner = left.shape[1]  # of no elements, ONNX Runtime's Gemm is wrong
    if is_float(left) and plain and beta != 0 and len(tensor.shape) <= 2 and isinstance(inner, int) and inner > 0:
        return op.Gemm(left, right, tensor, alpha=float(alpha), beta=float(beta))
    return _added(op, tensor, op.MatMul(left, right), beta, alpha)


@lowering(aten.addmv.default, aten.baddbmm.default)
def addmv(op: Builder, tensor: Any, left: Any, right: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    return _added(op, tensor, op.MatMul(left, right), beta, alpha)


@lowering(aten.addbmm.default)
def addbmm(op: Builder, tensor: Any, left: Any, right: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    return _added(op, tensor, op.ReduceSum(op.MatMul(left, right), [0], keepdims=0), beta, alpha)


@lowering(aten.addr.default)
def addr(op: Builder, tensor: Any, left: Any, right: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    outer = op.Mul(op.Unsqueeze(left, [1]), op.Unsqueeze(right, [0]))
    return op.cast(_added(op, tensor, outer, beta, alpha), tensor.dtype)


@lowering(aten.einsum.default)
def einsum(op: Builder, equation: str, tensors: Any, *, path: Any = None) -> Any:
    """An ellipsis that stands for other dimensions in each operand is made the same for all, or summed over."""
    text = equation.replace(" ", "")
    example = op.node.meta["val"]
    if any(tensor.dtype is ir.DataType.BOOL for tensor in tensors) and example.dtype is not torch.bool:
        tensors = [op.cast(tensor, op.program.dtype_of(example)) for tensor in tensors]  # which are counted
    if "..." not in text:
        return op.Einsum(*tensors, equation=text)
    inputs, arrow, output = text.partition("->")
    terms = inputs.split(",")
    hidden = [len(tensor.shape) - len(term.replace("...", "")) if "..." in term else 0
              for term, tensor in zip(terms, tensors)]  # fmt: skip
    most = max(hidden)
    given = []
    for position, (tensor, count) in enumerate(zip(tensors, hidden)):
        if "..." in terms[position] and count < most:
            start = terms[position].index("...")
            tensor = op.Unsqueeze(tensor, list(range(start, start + most - count)))
        given.append(tensor)
    if not arrow:
        letters = sorted(letter for letter in set(inputs) if letter.isalpha() and inputs.count(letter) == 1)
        output = "..." + "".join(letters)
    if "..." in output:
        return op.Einsum(*given, equation=f"{','.join(terms)}->{output}")
    result = op.Einsum(*given, equation=f"{','.join(terms)}->...{output}")
    return op.ReduceSum(result, list(range(most)), keepdims=0) if most else result


@lowering(aten.linear.default)
def linear(op: Builder, tensor: Any, weight: Any, bias: Any = None) -> Any:
    inner = weight.shape[-1]
    is_plain = len(tensor.shape) == 2 and len(weight.shape) == 2 and (bias is None or len(bias.shape) == 1)
    if is_plain and is_float(tensor) and isinstance(inner, int) and inner > 0:
        return op.Gemm(tensor, weight, bias, transB=1)
    turned = op.Transpose(weight, perm=[1, 0]) if len(weight.shape) == 2 else weight
    product = op.MatMul(tensor, turned)
    return product if bias is None else op.Add(product, bias)
