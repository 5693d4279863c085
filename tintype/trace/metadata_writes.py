"""Operators that change a tensor's geometry in place: ``transpose_``, ``unsqueeze_``, ``resize_``, ``set_``, ...

Inside of a program such an operator is a view under the old name: the view is recorded, and the tensor that the
program holds is the view from then on. The caller's own tensors, parameters and buffers can't be changed so.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.fx import Graph, Node

from tintype.errors import MutationError
from tintype.fake.info import TensorInfo
from tintype.fake.tensor import FakeTensor, is_symbolic, make_fake
from tintype.ir.graph import location_of
from tintype.ir.operator_facts import facts_of
from tintype.symbolic.bridge import to_torch
from tintype.symbolic.location import user_location
from tintype.symbolic.sizes import is_zero, product
from tintype.trace.calls import NOT_HANDLED
from tintype.trace.conversions import one_by_layout, one_in_eager_mode
from tintype.trace.intercepts import intercept
from tintype.trace.recorder import Recorder

aten = torch.ops.aten

_VIEWS = {
    aten.transpose_.default: aten.transpose.int,
    aten.t_.default: aten.t.default,
    aten.squeeze_.default: aten.squeeze.default,
    aten.squeeze_.dim: aten.squeeze.dim,
    aten.squeeze_.dims: aten.squeeze.dims,
    aten.unsqueeze_.default: aten.unsqueeze.default,
    aten.as_strided_.default: aten.as_strided.default,
    aten.swapdims_.default: aten.transpose.int,
    aten.swapaxes_.default: aten.transpose.int,
}

_ORDER_KEPT = frozenset({aten.unsqueeze.default, aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims})


@intercept(*_VIEWS)
def _become_view(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    tensor = args[0]
    given = type(tensor) is not FakeTensor or _is_given(recorder, tensor)
    if given and not recorder.note_geometry_change(func, args, kwargs):
        raise MutationError(
            f"the program changes the size or strides of a tensor that it was given or that the model holds ({func})",
            location=user_location(),
            remedy="use the operator without the underscore, which makes a view",
        )
    for same in [tensor] if given else one_by_layout(recorder, tensor):
        with torch.set_grad_enabled(recorder.modes.grad):  # it is the same tensor, with the history that it has
            recorder.follow_modes()
            view = recorder.record(_VIEWS[func], same, *args[1:], **kwargs)
        recorder.follow_modes()
        recorder.note_became_view(same, view)
        _replace(recorder, same, view)
    return tensor


def refuse_earlier_views(graph: Graph, became_views: dict[Node, bool], outputs: list[Any]) -> None:
    """Refuse gradients of a view that was made before its base got another geometry. ``became_views`` are what such
    tensors became, and whether they are views with a history themselves.

    Of tensors without memory autograd makes the history of such a view anew by the operator that made it, of a base
    that has other sizes and strides by then: the gradient would go to other elements.
    """
    for changed in became_views:
        storage = changed.meta["val"].info.storage
        node, used = changed.next, [output.node for output in outputs if type(output) is FakeTensor]
        while node is not graph._root:
            used += node.all_input_nodes
            node = node.next
        for argument in used:
            value = argument.meta.get("val") if argument < changed else None
            if type(value) is not FakeTensor or value.info.storage is not storage:
                continue
            is_changed_view = became_views.get(argument, False)
            if is_changed_view and became_views[changed]:  # their base is what it was: the sizes are not the view's
                is_changed_view = _moves_elements(argument, became_views)
            if is_changed_view or (value._is_view() and value.requires_grad):
                raise earlier_view(changed)


def _moves_elements(node: Node | None, became_views: dict[Node, bool]) -> bool:
    """Whether the elements of a tensor that became what a node is are in another order than they were in before."""
    while node in became_views:
        if node.target not in _ORDER_KEPT:
            return True
        node = node.args[0]  # type: ignore[assignment]
    return False


def has_earlier_view(changed: Node, became_views: dict[Node, bool]) -> bool:
    """Whether there is a view of a tensor that was made before it became what a node is."""
    storage = changed.meta["val"].info.storage
    for node in changed.graph.nodes:
        value = node.meta.get("val") if node < changed else None
        if type(value) is FakeTensor and value.info.storage is storage:
            if value._is_view() or became_views.get(node, False):
                return True
    return False


def earlier_view(changed: Node) -> MutationError:
    """A view that was made before its base became what a node is can't be used."""
    return MutationError(
        "the program changes the size or strides of a tensor in place and uses a view afterwards that it made "
        "before, whose gradient can't be captured",
        location=location_of(changed),
        remedy="use the operator without the underscore, which makes a view",
    )


def changed_view(changed: Node) -> MutationError:
    """A view that became what a node is can't be written to."""
    return MutationError(
        "the program changes the size or strides of a view in place and writes to its memory afterwards, whose "
        "gradient can't be captured",
        location=location_of(changed),
        remedy="use the operator without the underscore, which makes a view",
    )


def _is_given(recorder: Recorder, tensor: FakeTensor) -> bool:
    """Whether a tensor is an input or part of the model, or one with another that the recording keeps apart."""
    same = one_by_layout(recorder, tensor) if recorder.below_autograd else [tensor]
    if tensor.info.storage.frozen or len(one_in_eager_mode(recorder, tensor)) > len(same):
        return True
    inputs = [node.meta.get("val") for node in recorder.graph.find_nodes(op="placeholder")]
    changed = [changed for changed, *_ in recorder.geometry_changes]  # no placeholder has it as its value any more
    return any(known is fake for known in (*inputs, *changed) for fake in same)


def _replace(recorder: Recorder, tensor: FakeTensor, view: FakeTensor) -> None:
    """Let a tensor that the program holds be another one from now on."""
    old_info, node = tensor.info, tensor.node
    while node is not None:  # the node that made it, those that wrote to it, and one that cut its history
        if node.meta.get("val") is tensor:
            node.meta["val"] = make_fake(old_info, recorder.context, node)
            if node.target is operator.getitem:
                _replace_in_several(node.args[0], tensor, node.meta["val"])
        node = next((n for n in node.all_input_nodes if n.meta.get("val") is tensor), None)
    _become(tensor, view.info, view.node)


def _become(tensor: FakeTensor, info: TensorInfo, node: Node | None) -> None:
    if not is_symbolic(tensor.info):  # else torch asks the info
        with torch._C._DisableTorchDispatch(), torch._C._AutoDispatchBelowADInplaceOrView():
            aten.as_strided_.default(
                tensor,
                [to_torch(size) for size in info.sizes],
                [to_torch(stride) for stride in info.strides],
                to_torch(info.offset),
            )
    tensor.info = info
    tensor.node = node


class Geometry:
    """What tensors are at one time, whatever geometry they get afterwards."""

    def __init__(self, tensors: Iterable[FakeTensor]) -> None:
        self._tensors = [(tensor, tensor.info, tensor.node) for tensor in tensors]

    @contextmanager
    def put_back(self) -> Iterator[None]:
        """Within it they are what they were."""
        changed = [given for given in self._tensors if given[0].info is not given[1]]
        now = [(tensor, tensor.info, tensor.node) for tensor, *_ in changed]
        for given in changed:
            _become(*given)
        try:
            yield
        finally:
            for given in now:
                _become(*given)


def _replace_in_several(node: Any, tensor: FakeTensor, other: FakeTensor) -> None:
    """The same for a tensor that is one of several results."""
    several = node.meta.get("val")
    if isinstance(several, (list, tuple)):
        node.meta["val"] = type(several)(other if value is tensor else value for value in several)


@intercept(aten.resize_.default, aten.resize_as_.default)
def _resize(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    infos, _ = recorder.convert(args)
    wanted = infos[1].sizes if func is aten.resize_as_.default else tuple(infos[1])
    if infos[0].sizes == wanted:
        return args[0]
    raise MutationError(
        f"the program resizes a tensor in place from {list(infos[0].sizes)} to {list(wanted)} ({func}), which can't "
        "be captured",
        location=user_location(),
        remedy="make a new tensor of the size you need (new_empty, narrow, pad)",
    )


@intercept(aten.fused_moving_avg_obs_fake_quant.default, aten._fused_moving_avg_obs_fq_helper.default)
def _observe(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    """An observer that has seen nothing yet gets one element per channel when it does."""
    names = [argument.name for argument in func._schema.arguments]
    given = {**dict(zip(names, args)), **kwargs}
    if given.get("per_row_fake_quant", False):
        observed, *state = recorder.convert(given[name] for name in (names[0], *names[3:7]))[0]
        channels = observed.sizes[given["ch_axis"]]
        if any(info.sizes != (channels,) for info in state):
            raise MutationError(
                f"the program gives the state of an observer {channels} channels ({func}), which can't be captured",
                location=user_location(),
                remedy="call the model once before it is exported, so that its observers have their size",
            )
    return NOT_HANDLED


@intercept(
    aten.set_.source_Tensor,
    aten.set_.source_Storage,
    aten.set_.source_Storage_storage_offset,
    aten.set_.source_Tensor_storage_offset,
    aten.set_.default,
)
def _set(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    raise MutationError(
        f"the program gives a tensor other memory ({func}), which can't be captured",
        location=user_location(),
        remedy="copy the values instead: tensor.copy_(source)",
    )


def write_resized(recorder: Recorder, func: Any, args: Any, kwargs: dict[str, Any], targets: list[Any]) -> Any:
    """An operator that is told to put its result (``out=``) into a tensor of another size, which eager mode resizes.

    Into one without elements nothing was written yet and nobody has a view of any: it becomes the result.
    """
    names = facts_of(func).writes
    options = {name: value for name, value in kwargs.items() if name not in names}
    counterpart: Any = facts_of(func).functional
    results = recorder.record(counterpart, *args, **options)
    for tensor, result in zip(targets, results if isinstance(results, (list, tuple)) else (results,), strict=True):
        known = type(tensor) is FakeTensor and not _is_given(recorder, tensor)
        if not known or tensor.dtype is not result.dtype or not _can_become(tensor, result):
            raise MutationError(
                f"{func} is told to put a result of size {list(result.info.sizes)} into a tensor of size "
                f"{list(recorder.convert([tensor])[0][0].sizes)}, which can't be captured",
                location=user_location(),
                remedy="let the operator make the tensor itself, without out=",
            )
        if not is_symbolic(tensor.info):  # give it room, or torch would miss the memory for the new size
            with torch._C._DisableTorchDispatch(), torch._C._AutoDispatchBelowADInplaceOrView():
                aten.set_.source_Tensor(tensor, result)
        _replace(recorder, tensor, result)
    return targets[0] if len(targets) == 1 else tuple(targets)


def _can_become(tensor: FakeTensor, result: FakeTensor) -> bool:
    """Whether a tensor can be another from now on: it holds nothing, and torch asks for the sizes of both alike."""
    old, new = tensor.info, result.info
    return is_zero(product(old.sizes)) and is_symbolic(old) == is_symbolic(new) and old.device == new.device
