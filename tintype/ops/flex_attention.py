"""``flex_attention``: attention whose scores a function changes and whose mask is a function.

``flex_attention(query, key, value, score_graph, block_mask, scale, kernel_options, score_mod_other_buffers,
mask_mod_other_buffers)``, where the last entry of ``block_mask`` is the graph of the mask. Both graphs are for one
score: they take the score (the mask's does not), the positions of batch, head, query and key, and then the tensors
that the functions use from around them.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node
from torch.overrides import TorchFunctionMode

from tintype.errors import CaptureError, InvalidRequestError, MutationError, UnsupportedOperatorError
from tintype.fake.context import FakeContext
from tintype.fake.info import TensorInfo, fresh, memory_order, strides_in_order
from tintype.fake.tensor import FakeTensor
from tintype.ir.graph import add_placeholder
from tintype.ir.operators import OPERATORS, HigherOrderOperator, Position, declare
from tintype.ir.printing import describe_value
from tintype.ops.batched import Batch, BatchedGraph
from tintype.ops.functional import functional_graphs, functionalizes
from tintype.ops.gradients import Rule, Tangents, chosen, differentiable, with_gradient
from tintype.ops.subgraphs import Body, captured, graph_node, operand_nodes, record_call
from tintype.symbolic.location import user_location
from tintype.trace.function_mode import apply_simple_indices
from tintype.trace.origin import OriginTracker
from tintype.trace.plan import captures
from tintype.trace.recorder import Recorder
from tintype.transforms.functionalize import Functionalization

target = torch.ops.higher_order.flex_attention

# Scores have a batch, a head, a query and a key.
DIMENSIONS = 4
POSITIONS = ("b", "h", "q_idx", "kv_idx")
_LARGEST_BLOCK = 1 << 30


def flex_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    score_mod: Callable[..., Any] | None = None,
    block_mask: Any = None,
    scale: float | None = None,
    enable_gqa: bool = False,
    return_lse: bool = False,
    kernel_options: dict[str, Any] | None = None,
    *,
    return_aux: Any = None,
) -> Any:
    """What ``torch.nn.attention.flex_attention.flex_attention`` computes, without compiling anything.

    >>> import torch
    >>> x = torch.ones(1, 2, 3, 4)
    >>> causal = flex_attention(x, x, x, lambda score, b, h, q, k: torch.where(q >= k, score, -float("inf")))
    >>> bool(torch.allclose(causal, torch.nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True)))
    True
    """
    _check_request(query, key, value, block_mask, enable_gqa, return_lse, return_aux)
    mask = _whole_mask(query) if block_mask is None else block_mask.as_tuple()
    factor = 1.0 / math.sqrt(query.size(-1)) if scale is None else scale
    arguments = (query, key, value, score_mod or _unchanged, mask, factor, dict(kernel_options or {}))
    out, logsumexp, largest = captured(capture, run, *arguments)
    if return_aux is not None:
        from torch.nn.attention.flex_attention import AuxOutput

        return out, AuxOutput(
            lse=logsumexp * math.log(2.0) if return_aux.lse else None,
            max_scores=largest * math.log(2.0) if return_aux.max_scores else None,
        )
    return (out, logsumexp * math.log(2.0)) if return_lse else out


def _check_request(
    query: Any, key: Any, value: Any, block_mask: Any, enable_gqa: bool, return_lse: bool, return_aux: Any
) -> None:
    for name, tensor in (("query", query), ("key", key), ("value", value)):
        if not isinstance(tensor, torch.Tensor) or tensor.dim() != DIMENSIONS:
            raise InvalidRequestError(
                f"flex_attention expects {name} to be a tensor of size [batch, heads, length, features], but got "
                f"{describe_value(tensor)}",
                location=user_location(),
            )
    heads, key_heads = query.size(1), key.size(1)
    if heads != key_heads and (not enable_gqa or heads % key_heads):
        raise InvalidRequestError(
            f"flex_attention got {heads} query heads and {key_heads} key heads",
            location=user_location(),
            remedy="pass as many of both, or a multiple of the key heads with enable_gqa=True",
        )
    if return_lse and return_aux is not None:
        raise InvalidRequestError(
            "flex_attention got both return_lse and return_aux",
            location=user_location(),
            remedy="pass return_aux=AuxRequest(lse=True) alone",
        )
    _check_block_mask(query, key, block_mask)


def _check_block_mask(query: torch.Tensor, key: torch.Tensor, block_mask: Any) -> None:
    if block_mask is None or block_mask.BLOCK_SIZE[0] == _LARGEST_BLOCK:
        return
    lengths, expected = (query.size(-2), key.size(-2)), tuple(block_mask.shape[-2:])
    if lengths != expected:
        raise InvalidRequestError(
            f"block_mask was created for block_mask.shape={tuple(block_mask.shape)} but got q_len={lengths[0]} and "
            f"kv_len={lengths[1]}",
            location=user_location(),
            remedy="create a block mask for these lengths",
        )


def _unchanged(score: Any, b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
    return score


def _unmasked(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
    return b.new_ones((), dtype=torch.bool)


def _whole_mask(query: torch.Tensor) -> tuple[Any, ...]:
    """The description of a mask that hides nothing: a single block."""
    count = torch.ones([1, 1, 1], dtype=torch.int32, device=query.device)
    indices = torch.zeros([1, 1, 1, 1], dtype=torch.int32, device=query.device)
    both = (count, indices, None, None)
    return (1, 1, *both, *both, None, None, None, None, _LARGEST_BLOCK, _LARGEST_BLOCK, _unmasked)


# --- execution -------------------------------------------------------------------------------------------


def run(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    score_mod: Any,
    block_mask: Sequence[Any],
    scale: float,
    kernel_options: dict[str, Any],
    score_mod_other_buffers: Sequence[Any] = (),
    mask_mod_other_buffers: Sequence[Any] = (),
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The operator on tensors with data: the result, and logarithms to base 2 of sums and the largest scores."""
    device = query.device.type
    if torch.is_autocast_enabled(device):
        query, key, value = (_lowered(tensor, torch.get_autocast_dtype(device)) for tensor in (query, key, value))
    with torch.autocast(device, enabled=False):
        scores = _scores(
            query, key, score_mod, block_mask[-1], scale, score_mod_other_buffers, mask_mod_other_buffers
        )
        return _attended(query, scores, _for_heads(value, query))


def written_out(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    score_mod: Any,
    block_mask: Sequence[Any],
    scale: float,
    kernel_options: dict[str, Any],
    score_mod_other_buffers: Sequence[Any] = (),
    mask_mod_other_buffers: Sequence[Any] = (),
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The operator as plain operators on whole tensors, for a decomposition: of captured functions, without a
    question about sizes that vary, in whatever layout."""
    scores = _scores(query, key, score_mod, block_mask[-1], scale, score_mod_other_buffers, mask_mod_other_buffers)
    weights, sums, largest = _weighted(scores)
    return weights.to(query.dtype) @ _for_heads(value, query).to(query.dtype), sums, largest


def _lowered(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    eligible = tensor.is_floating_point() and tensor.dtype is not torch.float64
    return tensor.to(dtype) if eligible else tensor


def working_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype that scores are computed in."""
    return torch.float64 if dtype is torch.float64 else torch.float32


def _for_heads(tensor: torch.Tensor, query: torch.Tensor) -> torch.Tensor:
    """Keys or values for every batch and every head of the query."""
    batch, heads = query.shape[:2]
    if type(batch) is int and tensor.size(0) not in (1, batch):
        raise RuntimeError(f"Bq and Bkv must broadcast. Got Bq={batch} and Bkv={tensor.size(0)}")
    if tensor.size(1) != heads:
        tensor = tensor.repeat_interleave(heads // tensor.size(1), dim=1)
    return tensor.expand(batch, *tensor.shape[1:])


def _scores(
    query: torch.Tensor,
    key: torch.Tensor,
    score_mod: Any,
    mask_mod: Any,
    scale: float,
    score_buffers: Sequence[Any],
    mask_buffers: Sequence[Any],
) -> torch.Tensor:
    """All scores as the functions leave them, minus infinity where masked."""
    dtype = working_dtype(query.dtype)
    scores = query.to(dtype) @ _for_heads(key, query).to(dtype).transpose(-2, -1) * scale
    positions = [Batch(_positions(scores, dimension)) for dimension in range(DIMENSIONS)]
    mask_graph, used = _graph_behind(mask_mod, "mask_mod", (), query.device, mask_buffers)
    (mask,) = mask_graph(*positions, *used)
    visible = mask.tensor if isinstance(mask, Batch) else mask
    # a masked score gets no gradient, whatever the function makes of it
    seen = torch.where(visible, scores, scores.detach()) if scores.requires_grad else scores
    score_graph, used = _graph_behind(score_mod, "score_mod", (("score", dtype),), query.device, score_buffers)
    (changed,) = score_graph(Batch(seen), *positions, *used)
    changed = changed.tensor if isinstance(changed, Batch) else changed
    return torch.where(visible, changed.to(dtype), -float("inf")).expand(scores.shape)


def _positions(scores: torch.Tensor, dimension: int) -> torch.Tensor:
    shape = [1] * DIMENSIONS
    shape[dimension] = -1
    return torch.arange(scores.size(dimension), dtype=torch.int32, device=scores.device).view(shape)


def _attended(
    query: torch.Tensor, scores: torch.Tensor, value: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    if scores.size(-1) == 0:
        raise RuntimeError("flex_attention needs at least one key")
    weights, sums, largest = _weighted(scores)
    return laid_out_like(weights.to(query.dtype) @ value.to(query.dtype), query), sums, largest


def _weighted(scores: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """How much each key counts, and the statistics."""
    largest = scores.detach().amax(-1)
    masked = largest == -float("inf")
    # a row of which nothing is visible: its sum is 0, and no gradient may come out of it
    sums = torch.where(masked, -float("inf"), scores.masked_fill(masked.unsqueeze(-1), 0.0).logsumexp(-1))
    return torch._safe_softmax(scores, -1), sums / math.log(2.0), largest / math.log(2.0)


def laid_out_like(tensor: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """A tensor whose dimensions lie in memory in the same order as those of another one; the last one is the
    innermost."""
    order = memory_order_of_attention(other.shape, other.stride())
    back = [order.index(dimension) for dimension in range(len(order))]
    return tensor.permute(order).contiguous().permute(back)


def memory_order_of_attention(sizes: Sequence[Any], strides: Sequence[Any]) -> list[int]:
    """The dimensions, outermost first, of a result that lies in memory like an argument."""
    last = len(sizes) - 1
    return [*(dimension for dimension in memory_order(sizes, [strides]) if dimension != last), last]


def _graph_behind(
    function: Any,
    title: str,
    first: Sequence[tuple[str, torch.dtype]],
    device: torch.device,
    buffers: Sequence[Any],
) -> tuple[BatchedGraph, Sequence[Any]]:
    """What runs a score or mask function on all positions, and the values from around it that it takes.

    A captured program's functions are graphs, which take all they use. Any other function is recorded first.
    """
    known = getattr(function, "batched", None)
    if known is not None:
        return known, buffers
    module = function if isinstance(function, GraphModule) else getattr(function, "graph_module", None)
    if module is None:
        module, buffers = _recorded(function, title, first, device, buffers)
    graph = BatchedGraph(module, DIMENSIONS)
    if hasattr(function, "graph_module"):  # a function of a program's, which is called again
        function.batched = graph
    return graph, buffers


def _recorded(
    function: Any,
    title: str,
    first: Sequence[tuple[str, torch.dtype]],
    device: torch.device,
    buffers: Sequence[Any],
) -> tuple[GraphModule, list[Any]]:
    """Record a function outside of any capture."""
    context = FakeContext()
    graph = Graph()
    found: dict[Node, Any] = {}

    def lift(value: Any) -> Any:
        node = add_placeholder(graph, f"buffer_{len(found)}")
        found[node] = value
        return context.fake_of(value, node)

    recorder = Recorder(context, graph, OriginTracker(()), lift_constant=lift)
    body = record_function(recorder, title, function, first, device, buffers)
    operands = body.inner.operands[len(first) + DIMENSIONS :]
    return body.finish(), [found[operand.node] for operand in operands]


# --- capture ---------------------------------------------------------------------------------------------


@captures(target)
def capture(
    recorder: Recorder,
    query: Any,
    key: Any,
    value: Any,
    score_mod: Any,
    block_mask: Sequence[Any],
    scale: Any,
    kernel_options: dict[str, Any],
    score_mod_other_buffers: Sequence[Any] = (),
    mask_mod_other_buffers: Sequence[Any] = (),
) -> Any:
    infos = [info_of_tensor(recorder, tensor) for tensor in (query, key, value)]
    dtype, device = working_dtype(infos[0].dtype), infos[0].device
    score = record_function(recorder, "score_mod", score_mod, (("score", dtype),), device, score_mod_other_buffers)
    mask = record_function(recorder, "mask_mod", block_mask[-1], (), device, mask_mod_other_buffers)
    score_operands = score.inner.operands[DIMENSIONS + 1 :]
    mask_operands = mask.inner.operands[DIMENSIONS:]
    modules = score.finish(), mask.finish()
    graphs = (
        graph_node(recorder, "sdpa_score", modules[0], ""),
        graph_node(recorder, "sdpa_mask", modules[1], ""),
    )
    tensors = operand_nodes(recorder, (query, key, value))
    blocks = (*operand_nodes(recorder, block_mask[:-1]), graphs[1])
    (factor,) = operand_nodes(recorder, (scale,))
    buffers = operand_nodes(recorder, score_operands), operand_nodes(recorder, mask_operands)
    arguments = (*tensors, graphs[0], blocks, factor, dict(kernel_options), *buffers)
    gradient = torch.is_grad_enabled() and any(
        info_of_tensor(recorder, tensor).requires_grad
        for tensor in (query, key, value, *score_operands)
        if isinstance(tensor, torch.Tensor)
    )
    values = record_call(recorder, target, arguments, _results(infos[0], infos[2], gradient))
    operands = [*(as_fake(recorder, tensor) for tensor in (query, key, value)), *score_operands]
    wanted = differentiable(recorder, operands)
    if any(wanted):
        rule = _gradient(recorder, operands, wanted, modules, arguments)
        values = with_gradient(recorder, values, rule, operands, wanted)
    return tuple(values)


def _gradient(
    recorder: Recorder, operands: Sequence[Any], wanted: Sequence[bool], modules: Any, arguments: tuple[Any, ...]
) -> Rule:
    """The gradient is an operator of its own, which takes the same graphs."""
    from tintype.ops.flex_attention_backward import record_backward

    blocks, factor, options, buffers, mask_buffers = arguments[4:]

    def rule(tangents: Tangents, values: list[Any]) -> Any:
        tangents = [
            torch.zeros_like(value) if tangent is None else tangent
            for tangent, value in zip(tangents, values, strict=False)
        ]
        graphs = (
            graph_node(recorder, "fw_graph", modules[0], ""),
            None,
            (*blocks[:-1], graph_node(recorder, "mask_graph", modules[1], "")),
        )
        given = operand_nodes(recorder, [*operands[:3], *values[:2], *tangents[:2]])
        rest = (*graphs, factor, options, buffers, mask_buffers)
        grads, of_buffers = record_backward(recorder, (*given, *rest), operands, wanted)
        return chosen([*grads, *of_buffers], wanted)

    return rule


def _results(query: TensorInfo, value: TensorInfo, gradient: bool) -> list[TensorInfo]:
    sizes = (*query.sizes[:-1], value.sizes[-1])
    out = fresh(sizes, query.dtype, query.device)
    out.strides = strides_in_order(sizes, memory_order_of_attention(query.sizes, query.strides))
    statistics = [fresh(query.sizes[:-1], working_dtype(query.dtype), query.device) for _ in range(2)]
    out.requires_grad = statistics[0].requires_grad = gradient
    return [out, *statistics]


def as_fake(recorder: Recorder, tensor: Any) -> FakeTensor:
    """What stands for a tensor in the graph that is being recorded."""
    return recorder.as_fake(tensor)


def info_of_tensor(recorder: Recorder, tensor: Any) -> TensorInfo:
    """What is known of a tensor."""
    return as_fake(recorder, tensor).info


def record_function(
    recorder: Recorder,
    title: str,
    function: Any,
    first: Sequence[tuple[str, torch.dtype]],
    device: torch.device,
    buffers: Sequence[Any],
) -> Body:
    """Record a function of single numbers: ``first``, the four positions, what it is given besides."""
    body = Body(recorder, title)
    inputs = [*first, *((name, torch.int32) for name in POSITIONS)]
    values = [body.inner.add_tensor(fresh((), dtype, device), name) for name, dtype in inputs]
    values += [body.operand(value) for value in buffers]
    with PositionIndexing():
        body.run(function, values)
    _check_body(body, title)
    return body


def _check_body(body: Body, title: str) -> None:
    _check_result(body, title)
    for node in body.inner.graph.nodes:
        if node.op != "call_function":
            continue
        if node.target in OPERATORS:
            raise UnsupportedOperatorError(
                f"{title} calls {node.target}, which takes functions itself",
                location=user_location(),
                remedy="choose between values with torch.where",
            )
        if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
            raise UnsupportedOperatorError(
                f"{title} draws random numbers ({node.target}), which it can't do once per score",
                location=user_location(),
                remedy="draw them outside, and look them up by position",
            )
    if any(storage.written for storage in body.inner.storages.values()):
        raise MutationError(
            f"Mutations detected in {title}: it writes to a tensor from outside of it",
            location=user_location(),
            remedy="compute a new tensor instead",
        )


def _check_result(body: Body, title: str) -> None:
    leaf = body.leaves[0] if len(body.leaves) == 1 else None
    number = "truth value" if title == "mask_mod" else "number"
    if type(leaf) is not FakeTensor or leaf.info.dim:
        given = ", ".join(describe_value(leaf) for leaf in body.leaves) or "nothing"
        raise CaptureError(
            f"{title} must return one {number} per score, a tensor without dimensions, but returns {given}",
            location=user_location(),
        )
    if title == "mask_mod" and leaf.info.dtype is not torch.bool:
        raise CaptureError(
            f"mask_mod must return truth values, but returns {leaf.info.dtype}",
            location=user_location(),
            remedy="compare: return mask != 0",
        )


class PositionIndexing(TorchFunctionMode):
    """Indexing with a tensor without dimensions would ask for its value; a function of positions means a lookup."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.__getitem__ and _has_position(args[1]):
            tensor, remaining = apply_simple_indices(*args)
            indices = [None if isinstance(entry, slice) else entry for entry in remaining]
            return torch.ops.aten.index.Tensor(tensor, indices)
        return func(*args, **(kwargs or {}))


def _has_position(index: Any) -> bool:
    entries = index if isinstance(index, tuple) else (index,)
    return any(
        isinstance(entry, torch.Tensor) and entry.dim() == 0 and entry.dtype is not torch.bool for entry in entries
    )


# --- functionalization -----------------------------------------------------------------------------------


@functionalizes(target)
def functionalize_functions(functional: Functionalization, node: Node) -> None:
    """The functions write to nothing from outside; within them everything is possible."""
    for graph in functional_graphs(functional, node):
        assert not graph.new_values
        graph.module.recompile()


def shared_buffers(node: Node, position: int, own: int) -> list[Any]:
    """What the inputs of a function's graph share memory with: nothing for scores and positions."""
    buffers: Any = node.args[position]
    return [*([None] * own), *buffers]


def _shared(node: Node) -> dict[Position, list[Any]]:
    return {3: shared_buffers(node, 7, DIMENSIONS + 1), (4, -1): shared_buffers(node, 8, DIMENSIONS)}


declare(
    HigherOrderOperator(
        target, {3: "sdpa_score", (4, -1): "sdpa_mask"}, _shared, run, functools.partial(captured, capture, run)
    )
)
