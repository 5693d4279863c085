"""``auto_functionalized``: a custom operator that writes to its arguments, as a function that returns new values.

``auto_functionalized(operator, **arguments)`` calls the operator on copies of the arguments it writes to, and
returns its results followed by those copies.
"""

from __future__ import annotations

import operator as python_operator
from typing import Any

import torch
from torch.fx import Node

from tintype.errors import MutationError
from tintype.fake.info import TensorInfo
from tintype.fake.tensor import FakeTensor, make_fake
from tintype.ir.graph import append_call, meta_of
from tintype.transforms.emit import info_of
from tintype.transforms.functionalize import WITHOUT_COUNTERPART, Functionalization, location_of


def auto_functionalized(operator: torch._ops.OpOverload, /, **arguments: Any) -> tuple[Any, ...]:
    """Call an operator on copies of what it writes to; returns its results, then the copies.

    >>> import torch
    >>> x = torch.zeros(2)
    >>> auto_functionalized(torch.ops.aten.add_.Tensor, self=x, other=1)
    (tensor([1., 1.]), tensor([1., 1.]))
    >>> x
    tensor([0., 0.])
    """
    copies = {
        name: arguments[name].clone() if isinstance(arguments.get(name), torch.Tensor) else arguments.get(name)
        for name in written_names(operator)
    }
    results = operator(**{**arguments, **copies})
    if results is None:
        results = ()
    elif not isinstance(results, (list, tuple)):
        results = (results,)
    return (*results, *copies.values())


auto_functionalized.is_pure = True  # type: ignore[attr-defined]


def written_names(operator: torch._ops.OpOverload) -> list[str]:
    """The names of the arguments that an operator writes to."""
    return [
        argument.name
        for argument in operator._schema.arguments
        if argument.alias_info is not None and argument.alias_info.is_write
    ]


def _functionalize(functional: Functionalization, node: Node) -> None:
    """Replace a writing operator's node, whose arguments are current values already."""
    operator: Any = node.target
    names = [argument.name for argument in operator._schema.arguments]
    arguments = {**dict(zip(names, node.args, strict=False)), **node.kwargs}
    written = [name for name in written_names(operator) if isinstance(arguments.get(name), Node)]
    if any(isinstance(arguments.get(name), (list, tuple)) for name in written_names(operator)):
        functional.problems.append(
            MutationError(
                f"{operator} writes to a list of tensors, which can't be captured",
                location=location_of(node),
                remedy="give the operator one argument per tensor",
            )
        )
        return
    handles = [functional.handle_of(arguments[name]) for name in written]
    results = _as_tuple(node.meta.get("val"))
    new = append_before(functional, node, (operator,), arguments)
    copies = []
    for name in written_names(operator):
        value = arguments.get(name)
        copies.append(_like(functional, info_of(value)) if isinstance(value, Node) else None)
    new.meta = meta_of(node).derived(val=(*results, *copies))
    for handle, name in zip(handles, written, strict=True):
        index = len(results) + written_names(operator).index(name)
        functional.write(handle, functional.emit.item(new, index))
    for user in list(node.users):
        if user.target is python_operator.getitem:
            functional.replace(user, functional.emit.item(new, user.args[1]))  # type: ignore[arg-type]
    if node.users:
        functional.replace(node, functional.emit.item(new, 0))
    else:
        functional.graph.erase_node(node)


def append_before(functional: Functionalization, node: Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Node:
    """Insert a call of auto_functionalized where a node is."""
    with functional.graph.inserting_before(node):
        return append_call(functional.graph, auto_functionalized, args, kwargs, "auto_functionalized")


def _as_tuple(value: Any) -> tuple[Any, ...]:
    if value is None:
        return ()
    return tuple(value) if isinstance(value, (list, tuple)) else (value,)


def _like(functional: Functionalization, info: TensorInfo | None) -> FakeTensor:
    assert info is not None
    return make_fake(info.fresh(), functional.context)


WITHOUT_COUNTERPART.append(_functionalize)
