"""What a call costs, as formulas in the sizes: arithmetic operations, and bytes of results.

A multiplication with an addition is two operations, as everybody counts them. Matrix products, convolutions and
attention are exact. What goes through tensors element by element is one operation for each element of its result,
a reduction one for each element that it reads, softmax and normalizations as many for each element as they have
steps. Moving data (views, copies, lookups) is none. Of a branch on data it is the more expensive side, of a loop over
rows all of its steps. An operator that is not listed, and a loop whose number of steps the data decide, has no
formula: a page says how many of them there are rather than leaving them out.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable, Mapping
from math import prod
from typing import Any

import torch
from torch.fx import Node

from tintype.fake.tensor import FakeTensor
from tintype.ir.graph import NUMBER_FUNCTIONS, graphs_of
from tintype.symbolic import Size
from tintype.symbolic.bridge import from_torch
from tintype.symbolic.extrema import maximum

# operations for each element: the steps of the operator's definition
_SOFTMAX = 5  # maximum, difference, exp, sum, quotient
_NORM = 8  # two means, difference, square, square root and quotient, weight, bias

Arguments = Mapping[str, Any]
Rule = Callable[[Arguments, Any], Size | None]


def named_arguments(node: Node) -> dict[str, Any]:
    """The arguments of a call by the names that its operator has for them; those that were left out are not there."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload):
        return {**{str(position): value for position, value in enumerate(node.args)}, **node.kwargs}
    names = [argument.name for argument in target._schema.arguments]
    return {**dict(zip(names, node.args)), **node.kwargs}


def sizes_of(value: Any) -> tuple[Size, ...] | None:
    """The sizes of a tensor, or of what a node computes; None for anything else."""
    if isinstance(value, Node):
        value = value.meta.get("val")
    if type(value) is FakeTensor:
        return value.info.sizes
    if isinstance(value, torch.Tensor):
        return tuple(from_torch(size) for size in value.shape)
    return None


def elements_of(value: Any) -> Size | None:
    """How many numbers a tensor has."""
    sizes = sizes_of(value)
    return None if sizes is None else prod(sizes)


def bytes_of(value: Any) -> Size:
    """How many bytes the tensors of a value have."""
    if isinstance(value, (list, tuple)):
        return sum((bytes_of(item) for item in value), start=0)
    count = elements_of(value)
    return 0 if count is None else count * value.dtype.itemsize


def operations_of(node: Node) -> Size | None:
    """How many arithmetic operations a call makes, as a formula in sizes; None where there is no formula.

    >>> import torch, tintype
    >>> batch = tintype.Dim("batch")
    >>> ep = tintype.export(torch.nn.Linear(3, 2), (torch.ones(4, 3),), dynamic_shapes={"input": {0: batch}})
    >>> [operations_of(node) for node in ep.graph.nodes if node.op == "call_function"]
    [14*s0]
    """
    target = node.target
    if target is operator.getitem or target in NUMBER_FUNCTIONS:
        return 0
    if not isinstance(target, torch._ops.OpOverload):
        return _operations_inside(node)
    name = target._schema.name
    rule = _RULES.get(name) or _RULES.get(name.removesuffix("_"))
    value = node.meta.get("val")
    if rule is not None:
        return rule(named_arguments(node), value)
    if torch.Tag.pointwise in target.tags:
        return elements_of(value)
    if _is_about_numbers(value) or target.is_view:
        return 0
    return None


# operators that run the graph that they take, once
_RUN_ONCE = frozenset({"wrap_with_set_grad_enabled", "wrap_with_autocast", "invoke_subgraph"})
# those that run it once for each row, and which of their arguments has the rows
_RUN_FOR_ROWS = {"map_impl": 1, "scan": 2}


def _operations_inside(node: Node) -> Size | None:
    """Of a branch the more expensive side, of a loop over rows all steps; of other loops, the data decide how many
    steps there are."""
    name = getattr(node.target, "__name__", "")
    inside = _operations_of_graphs(node)
    if inside is None:
        return None
    if name in _RUN_ONCE:
        return sum(inside, start=0)
    if name == "cond":
        return functools.reduce(maximum, inside)
    if name in _RUN_FOR_ROWS:
        rows = node.args[_RUN_FOR_ROWS[name]]
        sizes = sizes_of(rows[0]) if isinstance(rows, (list, tuple)) and rows else None
        return sizes[0] * sum(inside, start=0) if sizes else None
    return None


def operations_of_a_step(node: Node) -> Size | None:
    """How many arithmetic operations a step of ``while_loop`` makes, with its condition; None for other calls."""
    if getattr(node.target, "__name__", "") != "while_loop":
        return None
    inside = _operations_of_graphs(node)
    return None if inside is None else sum(inside, start=0)


def _operations_of_graphs(node: Node) -> list[Size] | None:
    """What running each of the graphs that a call takes costs, once."""
    totals: list[Size] = []
    for _, subgraph in graphs_of(node):
        found = [operations_of(inner) for inner in subgraph.graph.nodes if inner.op == "call_function"]
        if any(each is None for each in found):
            return None
        totals.append(sum((each for each in found if each is not None), start=0))
    return totals


def _is_about_numbers(value: Any) -> bool:
    """Whether a call computes no tensors: sizes, assertions."""
    return value is None or isinstance(value, (int, float, bool, torch.SymInt, torch.SymFloat, torch.SymBool))


# --- rules: from arguments and result to the number of operations; None where a size is not known ----------------


def _nothing(arguments: Arguments, value: Any) -> Size:
    return 0


def _per_element(count: int) -> Rule:
    def rule(arguments: Arguments, value: Any) -> Size | None:
        first = value[0] if isinstance(value, (list, tuple)) and value else value
        elements = elements_of(first)
        return None if elements is None else count * elements

    return rule


def _per_element_read(arguments: Arguments, value: Any) -> Size | None:
    return elements_of(next(iter(arguments.values()), None))


def _product(left: str, right: str) -> Rule:
    """A product of (batches of) matrices: two operations for each element of the result and inner index."""

    def rule(arguments: Arguments, value: Any) -> Size | None:
        inner, result = sizes_of(arguments.get(left)), elements_of(value)
        return None if not inner or result is None else 2 * result * inner[-1]

    return rule


def _linear(arguments: Arguments, value: Any) -> Size | None:
    weight, result = sizes_of(arguments["weight"]), elements_of(value)
    if not weight or result is None:
        return None
    return 2 * result * weight[-1] + (result if arguments.get("bias") is not None else 0)


def _product_and_sum(left: str, right: str) -> Rule:
    product = _product(left, right)

    def rule(arguments: Arguments, value: Any) -> Size | None:
        found, result = product(arguments, value), elements_of(value)
        return None if found is None or result is None else found + result

    return rule


def _convolution(arguments: Arguments, value: Any) -> Size | None:
    weight, result = sizes_of(arguments["weight"]), elements_of(value)
    moved = elements_of(arguments["input"]) if arguments.get("transposed") else result
    return _convolved(arguments, weight, moved, result)


def _transposed_convolution(arguments: Arguments, value: Any) -> Size | None:
    return _convolved(arguments, sizes_of(arguments["weight"]), elements_of(arguments["input"]), elements_of(value))


def _convolved(
    arguments: Arguments, weight: tuple[Size, ...] | None, moved: Size | None, result: Size | None
) -> Size | None:
    if weight is None or moved is None or result is None:
        return None
    return 2 * moved * prod(weight[1:]) + (result if arguments.get("bias") is not None else 0)


def _convolution_backward(arguments: Arguments, value: Any) -> Size | None:
    weight, gradient = sizes_of(arguments["weight"]), elements_of(arguments["grad_output"])
    if arguments["transposed"]:
        gradient = elements_of(arguments["input"])
    if weight is None or gradient is None:
        return None
    products = sum(map(bool, arguments["output_mask"][:2]))
    bias = elements_of(arguments["grad_output"]) if arguments["output_mask"][2] else 0
    return None if bias is None else products * 2 * gradient * prod(weight[1:]) + bias


def _attention(arguments: Arguments, value: Any) -> Size | None:
    query, key, values = (sizes_of(arguments[name]) for name in ("query", "key", "value"))
    if query is None or key is None or values is None:
        return None
    scores = prod(query[:-1]) * key[-2]
    return 2 * scores * query[-1] + _SOFTMAX * scores + 2 * scores * values[-1]


def _names(text: str) -> list[str]:
    return text.split()


def _rules(rule: Rule, names: Iterable[str]) -> dict[str, Rule]:
    return {f"aten::{name}": rule for name in names}


_MOVES = _names("""
    alias arange as_strided broadcast_to cat chunk clone concat constant_pad_nd contiguous copy detach diagonal
    dropout embedding empty empty_like empty_permuted expand expand_as eye feature_dropout fill flatten flip
    full full_like gather index index_put index_select lift_fresh_copy masked_fill masked_scatter masked_select
    movedim narrow native_dropout new_empty new_empty_strided new_full new_ones new_zeros nonzero one_hot ones
    ones_like pad permute pixel_shuffle pixel_unshuffle rand rand_like randint randn randn_like ravel repeat
    repeat_interleave reshape resolve_conj resolve_neg roll scalar_tensor scatter select select_scatter slice
    slice_scatter split split_with_sizes squeeze stack sym_numel sym_size sym_stride sym_storage_offset t
    tensor_split tile to _to_copy transpose tril triu type_as unbind unflatten unfold unsafe_split unsqueeze
    view view_as where zero zeros zeros_like _assert_tensor_metadata _assert_scalar _assert_async item
    _local_scalar_dense reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d replication_pad2d
    replication_pad3d bernoulli tril_indices triu_indices upsample_nearest1d upsample_nearest2d
    upsample_nearest3d _unsafe_index im2col col2im channel_shuffle _unsafe_view
""")  # fmt: skip
_REDUCTIONS = _names("""
    all amax amin any argmax argmin count_nonzero cummax cummin cumprod cumsum logsumexp max mean median min
    nansum norm linalg_vector_norm prod std std_mean sum var var_mean avg_pool1d avg_pool2d avg_pool3d
    max_pool1d max_pool2d max_pool3d max_pool2d_with_indices max_pool3d_with_indices adaptive_avg_pool1d
    adaptive_avg_pool2d adaptive_avg_pool3d _adaptive_avg_pool2d _adaptive_avg_pool3d adaptive_max_pool1d
    adaptive_max_pool2d
""")  # fmt: skip
_POINTWISE = _names("""
    gelu silu mish softplus hardswish hardsigmoid hardtanh leaky_relu elu selu celu relu6 glu prelu log_sigmoid
    threshold gelu_backward silu_backward threshold_backward tanh_backward sigmoid_backward
    native_dropout_backward mse_loss l1_loss smooth_l1_loss huber_loss binary_cross_entropy_with_logits square
    __and__ __or__ __xor__ rsub lerp addcmul addcdiv hardshrink softshrink rrelu upsample_bilinear2d
    upsample_bicubic2d upsample_linear1d upsample_trilinear3d
""")  # fmt: skip

_RULES: dict[str, Rule] = {
    **_rules(_nothing, _MOVES),
    **_rules(_per_element_read, _REDUCTIONS),
    **_rules(_per_element(1), _POINTWISE),
    **_rules(_per_element(_SOFTMAX), ("softmax", "_softmax", "log_softmax", "_log_softmax", "_safe_softmax",
                                      "_softmax_backward_data", "_log_softmax_backward_data")),
    **_rules(_per_element(_NORM), ("layer_norm", "native_layer_norm", "group_norm", "native_group_norm",
                                   "instance_norm", "rms_norm", "_fused_rms_norm", "native_layer_norm_backward",
                                   "native_group_norm_backward")),
    **_rules(_per_element(4), ("batch_norm", "native_batch_norm", "_native_batch_norm_legit",
                               "_native_batch_norm_legit_no_training", "_native_batch_norm_legit_functional",
                               "native_batch_norm_backward")),
    "aten::mm": _product("self", "mat2"),
    "aten::bmm": _product("self", "mat2"),
    "aten::matmul": _product("self", "other"),
    "aten::mv": _product("self", "vec"),
    "aten::dot": _product("self", "tensor"),
    "aten::vdot": _product("self", "other"),
    "aten::addmm": _product_and_sum("mat1", "mat2"),
    "aten::baddbmm": _product_and_sum("batch1", "batch2"),
    "aten::addmv": _product_and_sum("mat", "vec"),
    "aten::linear": _linear,
    **_rules(_convolution, ("convolution", "_convolution", "conv1d", "conv2d", "conv3d")),
    **_rules(_transposed_convolution, ("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")),
    "aten::convolution_backward": _convolution_backward,
    **_rules(_attention, ("scaled_dot_product_attention", "_scaled_dot_product_flash_attention",
                          "_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_efficient_attention",
                          "_scaled_dot_product_cudnn_attention", "_scaled_dot_product_attention_math")),
}  # fmt: skip
