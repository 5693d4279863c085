"""Functions of torch that call an operator sooner than the operator itself does.

An operator that is called as ``torch.ops.aten.mul.Tensor`` matches its arguments against its schema one by one, which
takes longer than many a kernel on a small tensor. torch's own functions are parsed by generated code and then call
the same operator. A function stands here if every call with arguments of the operator's types is a call of that
operator: a test goes through them. Functions that make tensors from nothing ask in which device's context they are
called, unless they are told a device.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node

from tintype.fake.tensor import FakeTensor
from tintype.ir.runtime_assertions import RuntimeAssertion

aten = torch.ops.aten
nn = torch._C._nn

DIRECT_CALLS: dict[Any, Callable[..., Any]] = {
    aten.__and__.Tensor: torch.bitwise_and,
    aten.__or__.Tensor: torch.bitwise_or,
    aten._softmax.default: torch._softmax,
    aten.abs.default: torch.abs,
    aten.add.Tensor: torch.add,
    aten.addmm.default: torch.addmm,
    aten.amax.default: torch.amax,
    aten.amin.default: torch.amin,
    aten.bitwise_and.Tensor: torch.bitwise_and,
    aten.bitwise_or.Tensor: torch.bitwise_or,
    aten.bmm.default: torch.bmm,
    aten.cat.default: torch.cat,
    aten.clone.default: torch.clone,
    aten.contiguous.default: Tensor.contiguous,
    aten.cos.default: torch.cos,
    aten.cumsum.default: torch.cumsum,
    aten.detach.default: torch.detach,
    aten.div.Tensor: torch.div,
    aten.embedding.default: torch.embedding,
    aten.eq.Scalar: torch.eq,
    aten.eq.Tensor: torch.eq,
    aten.exp.default: torch.exp,
    aten.expand.default: Tensor.expand,
    aten.flatten.using_ints: torch.flatten,
    aten.gather.default: torch.gather,
    aten.ge.Scalar: torch.ge,
    aten.ge.Tensor: torch.ge,
    aten.gelu.default: nn.gelu,
    aten.gt.Scalar: torch.gt,
    aten.gt.Tensor: torch.gt,
    aten.index_copy.default: torch.index_copy,
    aten.index_select.default: torch.index_select,
    aten.layer_norm.default: torch.layer_norm,
    aten.le.Scalar: torch.le,
    aten.le.Tensor: torch.le,
    aten.linear.default: nn.linear,
    aten.log.default: torch.log,
    aten.logical_and.default: torch.logical_and,
    aten.logical_not.default: torch.logical_not,
    aten.lt.Scalar: torch.lt,
    aten.lt.Tensor: torch.lt,
    aten.masked_fill.Scalar: torch.masked_fill,
    aten.matmul.default: torch.matmul,
    aten.maximum.default: torch.maximum,
    aten.mean.dim: torch.mean,
    aten.minimum.default: torch.minimum,
    aten.mm.default: torch.mm,
    aten.mul.Tensor: torch.mul,
    aten.ne.Scalar: torch.ne,
    aten.ne.Tensor: torch.ne,
    aten.neg.default: torch.neg,
    aten.new_full.default: Tensor.new_full,
    aten.new_ones.default: Tensor.new_ones,
    aten.new_zeros.default: Tensor.new_zeros,
    aten.permute.default: torch.permute,
    aten.pow.Tensor_Scalar: torch.pow,
    aten.reciprocal.default: torch.reciprocal,
    aten.relu.default: torch.relu,
    aten.repeat.default: Tensor.repeat,
    aten.reshape.default: torch.reshape,
    aten.rsqrt.default: torch.rsqrt,
    aten.scaled_dot_product_attention.default: nn.scaled_dot_product_attention,
    aten.select.int: torch.select,
    aten.sigmoid.default: torch.sigmoid,
    aten.silu.default: nn.silu,
    aten.sin.default: torch.sin,
    aten.softmax.int: torch.softmax,
    aten.softplus.default: nn.softplus,
    aten.sqrt.default: torch.sqrt,
    aten.squeeze.dim: torch.squeeze,
    aten.stack.default: torch.stack,
    aten.sub.Tensor: torch.sub,
    aten.sum.dim_IntList: torch.sum,
    aten.sym_numel.default: Tensor.numel,
    aten.sym_size.int: Tensor.size,
    aten.sym_stride.int: Tensor.stride,
    aten.t.default: torch.t,
    aten.tanh.default: torch.tanh,
    aten.transpose.int: torch.transpose,
    aten.unsqueeze.default: torch.unsqueeze,
    aten.view.default: Tensor.view,
    aten.where.self: torch.where,
}

# Calls that name a device are calls of these.
WITH_DEVICE: dict[Any, Callable[..., Any]] = {
    aten.arange.default: torch.arange,
    aten.arange.start: torch.arange,
    aten.arange.start_step: torch.arange,
    aten.full.default: torch.full,
    aten.ones.default: torch.ones,
    aten.zeros.default: torch.zeros,
}


def spelled(node: Node, spell: Callable[[Any], str], bind: Callable[[Any], str]) -> str | None:
    """An expression that does what a node does sooner than a call of its operator; None if there is none."""
    target = node.target
    if target is aten.slice.Tensor:
        return _spelled_slice(node, spell)
    if target is aten._assert_scalar.default and isinstance(node.args[0], Node):
        failing = f"{bind(RuntimeAssertion(node))}({', '.join(map(spell, node.args))})"
        return f"None if {spell(node.args[0])} is True else {failing}"
    if target is aten.sym_constrain_range.default and isinstance(node.args[0], Node):
        limits = "".join(f", {name}={spell(value)}" for name, value in node.kwargs.items())
        return f"{bind(RuntimeAssertion(node).check_range)}({spell(node.args[0])}{limits})"
    if target is aten._to_copy.default and set(node.kwargs) <= {"dtype", "device"}:
        options = "".join(f"{name}={spell(value)}, " for name, value in node.kwargs.items())
        return f"{bind(Tensor.to)}({spell(node.args[0])}, {options}copy=True)"
    if target in WITH_DEVICE and node.kwargs.get("device") is not None:
        options = "".join(f", {name}={spell(value)}" for name, value in node.kwargs.items())
        return f"{bind(WITH_DEVICE[target])}({', '.join(map(spell, node.args))}{options})"
    return None


def _spelled_slice(node: Node, spell: Callable[[Any], str]) -> str | None:
    """``x[..., 2:5, :]``, from whichever side is nearer."""
    given = node.args[0].meta.get("val") if isinstance(node.args[0], Node) else None
    if type(given) is not FakeTensor or node.kwargs or len(node.args) < 4 or type(node.args[1]) is not int:
        return None
    rank = given.info.dim
    before = node.args[1] % rank
    after = rank - 1 - before
    index = ":".join(map(spell, node.args[2:]))
    if after < before:
        return f"{spell(node.args[0])}[..., {index}{', :' * after}]"
    return f"{spell(node.args[0])}[{':, ' * before}{index}]"
