"""``flex_attention_backward``: the gradients of ``flex_attention``.

``flex_attention_backward(query, key, value, out, logsumexp, grad_out, grad_logsumexp, fw_graph, joint_graph,
block_mask, scale, kernel_options, score_mod_other_buffers, mask_mod_other_buffers)`` returns the gradients of query,
key and value and a tuple of those of the buffers, None for those that need none. ``joint_graph`` is the derivative of
one score, for compilers that make a kernel of it; it may be None. Executed here, the operator differentiates
``fw_graph`` itself.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import Node

from tintype.errors import InvalidRequestError
from tintype.fake.info import TensorInfo, fresh, strides_in_order
from tintype.fake.tensor import make_fake
from tintype.ir.graph import append_item, meta_of, set_meta
from tintype.ir.node_info import NodeMeta
from tintype.ir.operators import HigherOrderOperator, Position, declare
from tintype.ops import flex_attention as forward
from tintype.ops.flex_attention import (
    DIMENSIONS,
    POSITIONS,
    PositionIndexing,
    functionalize_functions,
    info_of_tensor,
    laid_out_like,
    memory_order_of_attention,
    record_function,
    shared_buffers,
    working_dtype,
)
from tintype.ops.functional import functionalizes
from tintype.ops.gradients import is_real
from tintype.ops.subgraphs import Body, captured, graph_node, operand_nodes, record_call
from tintype.symbolic.location import user_location
from tintype.trace.plan import captures
from tintype.trace.recorder import Recorder

target = torch.ops.higher_order.flex_attention_backward


def flex_attention_backward(*args: Any) -> Any:
    """Call the operator: captured where a program is being captured, else run. Buffers that require no gradient have
    none."""
    *grads, of_buffers = captured(capture, run, *args)
    buffers = args[12] if len(args) > 12 else ()
    return (
        *grads,
        tuple(
            grad if isinstance(buffer, torch.Tensor) and buffer.requires_grad else None
            for grad, buffer in zip(of_buffers, buffers, strict=False)
        ),
    )


def run(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    out: torch.Tensor,
    logsumexp: torch.Tensor,
    grad_out: torch.Tensor | None,
    grad_logsumexp: torch.Tensor | None,
    fw_graph: Any,
    joint_graph: Any,
    block_mask: Sequence[Any],
    scale: float,
    kernel_options: dict[str, Any],
    score_mod_other_buffers: Sequence[Any] = (),
    mask_mod_other_buffers: Sequence[Any] = (),
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, tuple[torch.Tensor | None, ...]]:
    """The operator on tensors with data; all buffers of real numbers get a gradient, whether they require it or not:
    what a program needs was decided when it was captured."""
    _check_dtypes(query.dtype, key.dtype, value.dtype)
    q, k, v = inputs = [tensor.detach().requires_grad_() for tensor in (query, key, value)]
    buffers = [buffer.detach().requires_grad_() if is_real(buffer) else buffer for buffer in score_mod_other_buffers]
    with torch.enable_grad():
        results = forward.run(q, k, v, fw_graph, block_mask, scale, {}, buffers, mask_mod_other_buffers)
        pairs = [(result, grad) for result, grad in zip(results, (grad_out, grad_logsumexp)) if grad is not None]
    wanted = [*inputs, *(buffer for buffer in buffers if is_real(buffer))]
    found = _gradients(pairs, wanted)
    given = [query, key, value]
    grads = [laid_out_like(grad, tensor) for grad, tensor in zip(found, given, strict=False)]
    rest = iter(found[len(given) :])
    of_buffers = tuple(next(rest).contiguous() if is_real(buffer) else None for buffer in buffers)
    return grads[0], grads[1], grads[2], of_buffers


def _gradients(pairs: Sequence[tuple[torch.Tensor, torch.Tensor]], wanted: Sequence[torch.Tensor]) -> Any:
    if not pairs:
        return [torch.zeros_like(tensor) for tensor in wanted]
    results, grads = zip(*pairs, strict=True)
    return torch.autograd.grad(results, wanted, grads, allow_unused=True, materialize_grads=True)


def _check_dtypes(*dtypes: torch.dtype) -> None:
    if len(set(dtypes)) > 1:
        raise InvalidRequestError(
            "flex_attention_backward needs query, key and value in one dtype, but got "
            + ", ".join(str(dtype) for dtype in dtypes),
            location=user_location(),
        )


# --- capture ---------------------------------------------------------------------------------------------


@captures(target)
def capture(
    recorder: Recorder,
    query: Any,
    key: Any,
    value: Any,
    out: Any,
    logsumexp: Any,
    grad_out: Any,
    grad_logsumexp: Any,
    fw_graph: Any,
    joint_graph: Any,
    block_mask: Sequence[Any],
    scale: Any,
    kernel_options: dict[str, Any],
    score_mod_other_buffers: Sequence[Any] = (),
    mask_mod_other_buffers: Sequence[Any] = (),
) -> Any:
    infos = [info_of_tensor(recorder, tensor) for tensor in (query, key, value)]
    _check_dtypes(*(info.dtype for info in infos))
    device = infos[0].device
    score = ("score", working_dtype(infos[0].dtype))
    forward_body = record_function(recorder, "score_mod", fw_graph, (score,), device, score_mod_other_buffers)
    mask_body = record_function(recorder, "mask_mod", block_mask[-1], (), device, mask_mod_other_buffers)
    score_buffers = forward_body.inner.operands[DIMENSIONS + 1 :]
    graphs = (
        graph_node(recorder, "fw_graph", forward_body.finish(), ""),
        None if joint_graph is None else _joint_node(recorder, joint_graph, score, device, score_buffers),
    )
    mask_graph = graph_node(recorder, "mask_graph", mask_body.finish(), "")
    tensors = operand_nodes(recorder, (query, key, value, out, logsumexp, grad_out, grad_logsumexp))
    blocks = (*operand_nodes(recorder, block_mask[:-1]), mask_graph)
    (factor,) = operand_nodes(recorder, (scale,))
    buffers = operand_nodes(recorder, score_buffers), operand_nodes(recorder, mask_body.inner.operands[DIMENSIONS:])
    arguments = (*tensors, *graphs, blocks, factor, dict(kernel_options), *buffers)
    operands = [query, key, value, *score_buffers]
    wanted = [isinstance(value, torch.Tensor) and value.requires_grad for value in operands]
    grads, of_buffers = record_backward(recorder, arguments, operands, wanted)
    return (*grads, tuple(of_buffers))


def record_backward(
    recorder: Recorder, arguments: tuple[Any, ...], operands: Sequence[Any], wanted: Sequence[bool]
) -> tuple[list[Any], list[Any]]:
    """Record a call; returns the gradients of query, key and value, and those of the buffers that are wanted."""
    infos = [info_of_tensor(recorder, tensor) for tensor in operands[:3]]
    grads = record_call(recorder, target, arguments, [_gradient_of(info) for info in infos])
    return grads, _buffer_gradients(recorder, grads[0].node.args[0], operands[3:], wanted[3:])


def _joint_node(
    recorder: Recorder, function: Any, score: tuple[str, torch.dtype], device: torch.device, buffers: Sequence[Any]
) -> Node:
    body = Body(recorder, "joint_graph")
    inputs = [score, *((name, torch.int32) for name in POSITIONS), ("grad_score", score[1])]
    values = [body.inner.add_tensor(fresh((), dtype, device), name) for name, dtype in inputs]
    values += [body.operand(buffer) for buffer in buffers]
    with PositionIndexing():
        body.run(function, values)
    return graph_node(recorder, "joint_graph", body.finish(), "")


def _gradient_of(info: TensorInfo) -> TensorInfo:
    gradient = fresh(info.sizes, info.dtype, info.device)
    gradient.strides = strides_in_order(info.sizes, memory_order_of_attention(info.sizes, info.strides))
    return gradient


def _buffer_gradients(recorder: Recorder, call: Node, buffers: Sequence[Any], wanted: Sequence[bool]) -> list[Any]:
    """The gradients of buffers: results that stand in a tuple of their own."""
    origin = meta_of(call).origin
    several = append_item(recorder.graph, call, 3)
    found: list[Any] = []
    for position, (buffer, is_wanted) in enumerate(zip(buffers, wanted, strict=True)):
        if not is_wanted:
            found.append(None)
            continue
        info = info_of_tensor(recorder, buffer)
        gradient = make_fake(fresh(info.sizes, info.dtype, info.device), recorder.context)
        gradient.node = append_item(recorder.graph, several, position, NodeMeta({"val": gradient}, origin))
        found.append(gradient)
    set_meta(several, NodeMeta({"val": tuple(found)}, origin))
    set_meta(call, meta_of(call).derived(val=(*call.meta["val"], tuple(found))))
    return found


# --- functionalization -----------------------------------------------------------------------------------

functionalizes(target)(functionalize_functions)


def _shared(node: Node) -> dict[Position, list[Any]]:
    return {
        7: shared_buffers(node, 12, DIMENSIONS + 1),
        8: shared_buffers(node, 12, DIMENSIONS + 2),
        (9, -1): shared_buffers(node, 13, DIMENSIONS),
    }


declare(
    HigherOrderOperator(
        target,
        {7: "fw_graph", 8: "joint_graph", (9, -1): "mask_graph"},
        _shared,
        run,
        functools.partial(captured, capture, run),
    )
)
