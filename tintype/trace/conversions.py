"""Conversions that change nothing: ``x.float()`` of a float tensor, ``x.to(x.device)``, ``x.type_as(x)``.

In eager mode such a conversion returns its argument. While a program is recorded its result is another tensor over
the same memory, so that whatever the program sees of it, or writes to it, is what eager mode shows. The node is a
copy (``_to_copy``), which is right as long as nobody writes to that memory, and stays right when the program is moved
to another device. When everything is recorded it is known who writes: where somebody does, the conversion is its
argument.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import torch
from torch.fx import Node

from tintype.fake.info import Storage, preserved_strides
from tintype.fake.tensor import FakeTensor, make_fake
from tintype.ir.graph import append_call, calls_of_any
from tintype.ir.node_info import NodeMeta
from tintype.ir.operator_facts import DROPOUTS, VIEWS_OR_COPIES, facts_if_operator
from tintype.symbolic.sizes import decided_zero, product
from tintype.trace.recorder import Conversion, Recorder
from tintype.trace.shared_memory import may_share, storages_of

aten = torch.ops.aten


def unchanged(recorder: Recorder, tensor: Any, fake: FakeTensor, options: dict[str, Any]) -> Any:
    """The result of a conversion of a tensor (``fake`` stands for it) that changes nothing."""
    info = fake.info
    modes = recorder.modes
    if (
        not recorder.keeps_conversions
        # a copy would lie in memory otherwise
        or info.conjugate
        or info.negative
        or preserved_strides(info.sizes, info.strides) != info.strides
        # a copy would not have the gradient that the argument has
        or modes.gradients is not modes.grad
    ):
        return tensor
    result = make_fake(info.with_storage(info.storage), recorder.context)
    if recorder.is_recording:
        meta = NodeMeta({"val": result}, recorder.origin_of("_to_copy"))
        result.node = append_call(recorder.graph, aten._to_copy.default, (fake.node,), options, "_to_copy", meta)
        recorder.conversions.append(Conversion(result, fake, result.node, info.storage))
    return result


def one_in_eager_mode(recorder: Recorder, tensor: FakeTensor) -> list[FakeTensor]:
    """The tensors that are one object in eager mode: this one, and those that a conversion which changed nothing, a
    dropout that dropped nothing, ``contiguous()`` of what is so, or a norm of nothing made of it or made it of."""
    found = [tensor]
    for known in found:
        pairs = [(conversion.source, conversion.result) for conversion in recorder.conversions]
        pairs += [(known, other) for other in one_by_layout(recorder, known)]
        empty = [pair for pair in recorder.same_if_empty if any(known is one for one in pair)]
        pairs += empty if empty and decided_zero(product(known.info.sizes)) else []
        calls = () if known.node is None else (known.node, *known.node.users)
        pairs += [(node.args[0].meta["val"], node.meta["val"]) for node in calls if _drops_nothing(node)]
        for source, result in pairs:
            other = result if known is source else source if known is result else known
            if not any(other is one for one in found):
                found.append(other)
    return found


def one_by_layout(recorder: Recorder, tensor: FakeTensor) -> list[FakeTensor]:
    """The same for calls of ``contiguous()`` alone. Which of them return their argument is a question for the layout,
    which the program asks with this."""
    found = [tensor]
    for known in found:
        for call in recorder.made_contiguous:
            if known is call.source or known is call.result:
                recorder.asked(call.source, "is_contiguous", (call.memory_format,), call.is_one)
                other = call.result if known is call.source else call.source
                if call.is_one and not any(other is one for one in found):
                    found.append(other)
    return found


def _drops_nothing(node: Node) -> bool:
    """Whether a node is a dropout that returns its argument in eager mode: there is nothing to drop, or it is off."""
    if node.target not in DROPOUTS:
        return False
    arguments: list[Any] = [*node.args, *node.kwargs.values()]
    _, p, train = arguments
    return not train or p == 0 or decided_zero(product(node.meta["val"].info.sizes))


def settle_conversions(
    conversions: list[Conversion], given: Collection[Storage] = (), *, functional: bool = True
) -> bool:
    """Decide what conversions that changed nothing are: copies, or their arguments where that memory is written to.

    A functional program leaves a write to one of the ``given`` storages, those of the caller, through a conversion to
    be refused. One that writes where the model does may be called with tensors that overlap: a write to one of them
    may be one to any of them. Says whether some conversion is gone.
    """
    written = () if functional or not any(storage.written for storage in given) else given
    may_be_written = _may_be_written(conversions)
    gone: dict[Node, None] = {}
    # The last one first: what is a view of a later conversion has memory of its own by then, or goes with that one,
    # so that every tensor is looked at once, however many conversions there are in a row.
    for conversion in reversed(conversions):
        node = conversion.node
        if node._erased:
            continue
        views = _views(node, gone)
        if (
            conversion.storage.written
            or conversion.storage in written
            or conversion.storage in may_be_written
            or any(user in gone for view in views for user in view.users)
            or any(view.target is aten.as_strided.default for view in views)
        ):
            if functional and conversion.storage in given and any(_is_written(view) for view in views):
                _move(_views(node), Storage(frozen=True, source=conversion.storage))
                continue
            gone[node] = None
        else:
            _move(views, Storage())
    for node in reversed(gone):
        node.replace_all_uses_with(node.args[0])  # type: ignore[arg-type]
        node.graph.erase_node(node)
    return bool(gone)


def _may_be_written(conversions: Iterable[Conversion]) -> Collection[Storage]:
    """The storages that are in some layout the same as one that is written to."""
    found: set[Storage] = set()
    for graph in {conversion.node.graph for conversion in conversions if not conversion.node._erased}:
        calls: list[Any] = calls_of_any(graph, VIEWS_OR_COPIES)
        pairs = [(call.args[0], call) for call in calls]
        written = {storage for pair in pairs for node in pair for storage in storages_of(node) if storage.written}
        if written:
            found |= may_share(pairs, written)
    return found


def _views(node: Node, others: Collection[Node] = ()) -> dict[Node, None]:
    """A node and the views of its result, and of those; but not ``others`` and what is a view of them."""
    (storage,) = storages_of(node)
    found = {node: None}
    pending = [node]
    while pending:
        for user in pending.pop().users:
            if user in found or user in others:
                continue
            if user.args and user.args[0] in found and storage in storages_of(user):
                found[user] = None
                pending.append(user)
    return found


def _fakes(node: Node) -> list[FakeTensor]:
    value = node.meta.get("val")
    if type(value) is FakeTensor:
        return [value]
    values = value if isinstance(value, (list, tuple)) else (value,)
    return [item for item in values if type(item) is FakeTensor]


def _is_written(node: Node) -> bool:
    """Whether some operator writes to a tensor by this name."""
    for user in node.users:
        facts = facts_if_operator(user.target)
        for where in () if facts is None else (*facts.writes, *facts.hidden_writes):
            if _mentions(user.kwargs.get(where) if isinstance(where, str) else user.args[where : where + 1], node):
                return True
    return False


def _mentions(argument: Any, node: Node) -> bool:
    if isinstance(argument, (list, tuple)):
        return any(_mentions(item, node) for item in argument)
    return argument is node


def _move(views: dict[Node, None], storage: Storage) -> None:
    """Let tensors have memory of their own."""
    for view in views:
        for fake in _fakes(view):
            fake.info.storage = storage
