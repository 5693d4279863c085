"""``auto_functionalized``: a custom operator that writes to its arguments, as a function that returns new values.

``auto_functionalized(operator, **arguments)`` calls the operator on copies of the arguments it writes to, and
returns its results followed by those copies. An operator that returns nothing has None as its result.
"""

from __future__ import annotations

import functools
import operator as python_operator
from typing import Any

import torch
from torch.fx import Node

from tintype.errors import MutationError
from tintype.fake.info import TensorInfo, preserved_strides
from tintype.fake.tensor import FakeTensor, make_fake
from tintype.ir.graph import append_call, append_item, base_name, meta_of, set_meta
from tintype.ir.node_info import NodeMeta
from tintype.ir.operators import HigherOrderOperator, declare
from tintype.ops.subgraphs import captured
from tintype.trace.plan import captures
from tintype.trace.recorder import Recorder
from tintype.transforms.emit import info_of, location_of
from tintype.transforms.functionalize import WITHOUT_COUNTERPART, Functionalization
from tintype.transforms.handles import Handle

target = torch.ops.higher_order.auto_functionalized


def run(operator: torch._ops.OpOverload, /, **arguments: Any) -> tuple[Any, ...]:
    """Call an operator on copies of what it writes to; returns its results, then the copies.

    >>> import torch
    >>> x = torch.zeros(2)
    >>> run(torch.ops.aten.add_.Tensor, self=x, other=1)
    (tensor([1., 1.]), tensor([1., 1.]))
    >>> x
    tensor([0., 0.])
    """
    copies = {name: _copied(arguments.get(name)) for name in written_names(operator)}
    return (*_as_tuple(operator(**{**arguments, **copies})), *copies.values())


def _copied(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_copied(item) for item in value]
    return value.clone() if isinstance(value, torch.Tensor) else value


def auto_functionalized(operator: torch._ops.OpOverload, /, **arguments: Any) -> tuple[Any, ...]:
    """What programs of earlier versions call: without the None for an operator that returns nothing."""
    results = run(operator, **arguments)
    return results if operator._schema.returns else results[1:]


def written_names(operator: torch._ops.OpOverload) -> list[str]:
    """The names of the arguments that an operator writes to."""
    return [
        argument.name
        for argument in operator._schema.arguments
        if argument.alias_info is not None and argument.alias_info.is_write
    ]


# --- capture ---------------------------------------------------------------------------------------------


@captures(target)
def capture(recorder: Recorder, operator: torch._ops.OpOverload, **arguments: Any) -> tuple[Any, ...]:
    """A call in a program that was captured before."""
    examples, _ = recorder.unrecorded(lambda: run(operator, **arguments))
    _, nodes = recorder.convert(arguments.values())
    name = base_name(target)
    origin = recorder.origin_of(name)
    node = append_call(recorder.graph, target, (operator,), dict(zip(arguments, nodes, strict=True)), name)
    results = tuple(_described(recorder, example) for example in examples)
    set_meta(node, NodeMeta({"val": results}, origin))
    for index, result in enumerate(results):
        _add_items(recorder, node, index, result, origin)
    return results


def _described(recorder: Recorder, example: Any) -> Any:
    """A result like one that was worked out without a node."""
    if isinstance(example, (list, tuple)):
        return [_described(recorder, item) for item in example]
    return make_fake(example.info, recorder.context) if type(example) is FakeTensor else example


def _add_items(recorder: Recorder, node: Node, index: int, result: Any, origin: Any) -> None:
    """The nodes of a result; those of a list that was written to are items of an item."""
    if type(result) is not FakeTensor and not isinstance(result, list):
        return
    item = append_item(recorder.graph, node, index, NodeMeta({"val": result}, origin))
    if type(result) is FakeTensor:
        result.node = item
    else:
        for position, part in enumerate(result):
            _add_items(recorder, item, position, part, origin)


# --- functionalization -----------------------------------------------------------------------------------


def _functionalize(functional: Functionalization, node: Node) -> None:
    """Replace a writing operator's node, whose arguments are current values already."""
    operator: Any = node.target
    names = [argument.name for argument in operator._schema.arguments]
    arguments = {**dict(zip(names, node.args, strict=False)), **node.kwargs}
    written = [name for name in written_names(operator) if isinstance(arguments.get(name), Node)]
    lists = [name for name in written_names(operator) if isinstance(arguments.get(name), (list, tuple))]
    if _refused_lists(functional, node, [arguments[name] for name in (*written, *lists)]):
        return
    handles = {name: functional.handle_of(arguments[name]) for name in written}
    of_lists = {name: [_handle(functional, item) for item in arguments[name]] for name in lists}
    results = _as_tuple(node.meta.get("val"))
    new = append_before(functional, node, (operator,), arguments)
    copies = [_new_value(functional, arguments.get(name)) for name in written_names(operator)]
    new.meta = meta_of(node).derived(val=(*results, *copies))
    for name in (*handles, *of_lists):
        item = functional.emit.item(new, len(results) + written_names(operator).index(name))
        if name in handles:
            functional.write(handles[name], item)
        else:
            for position, handle in enumerate(of_lists[name]):
                if handle is not None:
                    functional.write(handle, functional.emit.item(item, position))
    returned = {position: handles[name] for position, name in _returned_names(operator) if name in handles}
    several = [user for user in node.users if user.target is python_operator.getitem]
    for user in several:
        _settle(functional, user, new, user.args[1], returned)
    if several or not node.users:
        functional.replaced.append(node)
    else:
        _settle(functional, node, new, 0, returned)


def _handle(functional: Functionalization, value: Any) -> Handle | None:
    return functional.handle_of(value) if isinstance(value, Node) else None


def _refused_lists(functional: Functionalization, node: Node, written: list[Any]) -> bool:
    """Whether an operator writes to one memory through several tensors, of which copies would know nothing."""
    tensors = [part for value in written for part in (value if isinstance(value, (list, tuple)) else [value])]
    infos = [info_of(tensor) for tensor in tensors if isinstance(tensor, Node)]
    memories = [info.storage for info in infos if info is not None]
    is_list = any(isinstance(value, (list, tuple)) for value in written)
    if not is_list or len(set(memories)) == len(memories):
        return False
    functional.problems.append(
        MutationError(
            f"{node.target} writes to tensors of a list that share memory, which can't be captured",
            location=location_of(node),
            remedy="give the operator tensors with memory of their own",
        )
    )
    return True


def _new_value(functional: Functionalization, value: Any) -> Any:
    """What an argument is after an operator wrote to it."""
    if isinstance(value, (list, tuple)):
        return [_new_value(functional, item) for item in value]
    return _like(functional, info_of(value)) if isinstance(value, Node) else None


def _settle(
    functional: Functionalization, node: Node, call: Node, position: Any, returned: dict[int, Handle]
) -> None:
    """A result: what the operator wrote to, where it returns that, or a new value."""
    if position in returned:
        functional.handles[node] = returned[position]
        functional.replaced.append(node)
    else:
        functional.replace(node, functional.emit.item(call, position))


def _returned_names(operator: torch._ops.OpOverload) -> list[tuple[int, str]]:
    """The results that are arguments which the operator wrote to: position and name of the argument."""
    written = {
        argument.name: argument.alias_info.before_set
        for argument in operator._schema.arguments
        if argument.alias_info is not None and argument.alias_info.is_write
    }
    return [
        (position, name)
        for position, result in enumerate(operator._schema.returns)
        for name, memory in written.items()
        if result.alias_info is not None and result.alias_info.before_set & memory
    ]


def append_before(functional: Functionalization, node: Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Node:
    """Insert a call of auto_functionalized where a node is."""
    with functional.graph.inserting_before(node):
        return append_call(functional.graph, target, args, kwargs, base_name(target))


def _as_tuple(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, (list, tuple)) else (value,)


def _like(functional: Functionalization, info: TensorInfo | None) -> FakeTensor:
    assert info is not None
    strides = preserved_strides(info.sizes, info.strides)
    return make_fake(TensorInfo(info.sizes, strides, info.dtype, info.device), functional.context)


WITHOUT_COUNTERPART.append(_functionalize)
declare(HigherOrderOperator(target, {}, lambda node: [], run, functools.partial(captured, capture, run)))
