"""Functional forms of operators whose schema does not tell the whole truth, or that only make sense in eager mode."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Node

from tintype.ir.signature import StateWrite
from tintype.symbolic import Expr
from tintype.symbolic.sizes import decided_zero, is_zero
from tintype.trace.shared_memory import storages_of
from tintype.transforms.emit import info_of
from tintype.transforms.functionalize import REWRITES, Functionalization, Rewrite

aten = torch.ops.aten


def rewrite(*operators: Any) -> Any:
    """Register the functional form of operators."""

    def register(function: Rewrite) -> Rewrite:
        for operator in operators:
            REWRITES[operator] = function
        return function

    return register


@rewrite(aten.batch_norm.default)
def _batch_norm(functional: Functionalization, node: Node) -> None:
    """Batch norm updates its running statistics when training, without saying so in its schema."""
    tensor, weight, bias, mean, variance, training, momentum, epsilon = node.args[:8]
    if _is_empty(tensor):
        functional.replace(node, _of_nothing(functional, tensor, weight, bias))
        return
    result = _normalized(functional, tensor, weight, bias, mean, variance, training, momentum, epsilon)
    functional.replace(node, functional.emit.item(result, 0))


def _is_empty(node: Any) -> bool:
    info = info_of(node)
    return info is not None and any(_is_zero_in_example(size) for size in info.sizes)


def _is_zero_in_example(size: Any) -> bool:
    """By a guard where the example has the size 0; the operators below refuse it for all others."""
    if isinstance(size, Expr) and size.environment.hint(size) == 0:
        return decided_zero(size)
    return is_zero(size)


def _of_nothing(functional: Functionalization, tensor: Any, weight: Any, bias: Any) -> Node:
    """Batch norm of a tensor without elements: the operators below it refuse that, and no statistics change."""
    emit = functional.emit
    result = emit.call(aten.clone.default, tensor)
    if weight is not None:
        result = emit.call(aten.mul.Tensor, result, emit.call(aten.select.int, weight, 0, 0))
    if bias is not None:
        result = emit.call(aten.add.Tensor, result, emit.call(aten.select.int, bias, 0, 0))
    return result


@rewrite(aten.native_batch_norm.default)
def _native_batch_norm(functional: Functionalization, node: Node) -> None:
    arguments = _positional(node)
    result = _normalized(functional, *arguments[:8])
    for user in list(node.users):
        item = functional.emit.item(result, user.args[1])  # type: ignore[arg-type]
        functional.replace(user, item)
    functional.graph.erase_node(node)


def _positional(node: Node) -> tuple[Any, ...]:
    names = [argument.name for argument in node.target._schema.arguments]  # type: ignore[union-attr]
    return (*node.args, *(node.kwargs[name] for name in names[len(node.args) :] if name in node.kwargs))


def _normalized(
    functional: Functionalization,
    tensor: Any,
    weight: Any,
    bias: Any,
    mean: Any,
    variance: Any,
    training: Any,
    momentum: Any,
    epsilon: Any,
) -> Node:
    emit = functional.emit
    if not training:
        return emit.call(
            aten._native_batch_norm_legit_no_training.default,
            tensor, weight, bias, mean, variance, momentum, epsilon,
        )  # fmt: skip
    if mean is None:
        return emit.call(aten._native_batch_norm_legit.no_stats, tensor, weight, bias, True, momentum, epsilon)
    handles = [functional.handle_of(statistic) for statistic in (mean, variance)]
    result = emit.call(
        aten._native_batch_norm_legit_functional.default,
        tensor, weight, bias, mean, variance, True, momentum, epsilon,
    )  # fmt: skip
    for handle, index in zip(handles, (3, 4), strict=True):
        functional.write(handle, emit.item(result, index))
        functional.state_writes.setdefault(handle.source.name, StateWrite.UNTRACKED)
    return result


@rewrite(aten.lift_fresh_copy.default)
def _lift_fresh_copy(functional: Functionalization, node: Node) -> None:
    """The copy of a constant that eager mode makes is only needed if somebody writes to it."""
    (constant,) = node.args
    assert isinstance(constant, Node)
    if constant in functional.constants and not any(storage in functional.versions for storage in storages_of(node)):
        node.replace_all_uses_with(constant)
        functional.graph.erase_node(node)
        return
    functional.replace(node, functional.emit.call(aten.clone.default, constant))
