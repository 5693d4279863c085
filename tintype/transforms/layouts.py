"""Which tensors of a program lie in memory as the example says, whatever the layouts of its inputs.

A program takes inputs in any layout (transposed, channels-last, sliced), and elementwise operators pass that on. So
the strides that a graph knows for a tensor are either *certain*, since an operator on the way lays its result out in
one way only, or those of the example. Where they are the example's, nothing may rest on them: a ``view`` must be a
``reshape``, and whether ``contiguous()`` copies is not known.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch.fx import Graph, Node

from tintype.fake.tensor import FakeTensor
from tintype.ir.graph import meta_of
from tintype.ir.node_info import NodeMeta
from tintype.ir.operator_facts import VIEWS_OR_COPIES, facts_of
from tintype.ir.operators import OPERATORS
from tintype.ir.signature import OutputKind, OutputSpec
from tintype.symbolic.sizes import is_one, only_splits
from tintype.transforms.memory import info_of, written_nodes

aten = torch.ops.aten


def _overloads(*names: str) -> Iterator[Any]:
    for name in names:
        packet = getattr(aten, name)
        yield from (getattr(packet, overload) for overload in packet.overloads())


# Results that lie in one way whatever the arguments look like.
_ONE_WAY_ONLY = frozenset(
    _overloads(
        "mm", "addmm", "bmm", "baddbmm", "linear", "embedding", "layer_norm", "native_layer_norm",
        "contiguous", "ravel", "new_empty", "new_zeros", "new_ones", "new_full", "new_empty_strided",
    )
)  # fmt: skip

# Results that are contiguous or in channels-last order.
CONVOLUTIONS = frozenset(
    _overloads(
        "convolution", "conv1d", "conv2d", "conv3d",
        "conv_transpose1d", "conv_transpose2d", "conv_transpose3d",
    )
)  # fmt: skip

# Results that lie as the device's kernel likes.
_UP_TO_THE_KERNEL = CONVOLUTIONS | frozenset(
    _overloads(
        "matmul", "einsum", "scaled_dot_product_attention", "_scaled_dot_product_flash_attention_for_cpu",
        "_scaled_dot_product_flash_attention", "_scaled_dot_product_efficient_attention",
        "_scaled_dot_product_cudnn_attention", "lstm", "gru", "rnn_tanh", "rnn_relu",
        "_fft_r2c", "_fft_c2r", "_fft_c2c",
    )
)  # fmt: skip

# Kernels that read memory as if it were contiguous: the operators that they are part of see to that, silently where
# the example is contiguous. With the positions of those arguments; None for all.
NEED_CONTIGUOUS: dict[Any, tuple[int, ...] | None] = dict.fromkeys(
    _overloads(
        "_embedding_bag", "_embedding_bag_forward_only", "_pdist_forward",
        "_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_flash_attention",
        "_scaled_dot_product_efficient_attention", "_scaled_dot_product_cudnn_attention",
        "_scaled_dot_product_fused_attention_overrideable",
    )
)  # fmt: skip
NEED_CONTIGUOUS[aten.view_as_complex.default] = (0,)
NEED_CONTIGUOUS[aten.native_group_norm.default] = (0,)
NEED_CONTIGUOUS[aten.native_group_norm_backward.default] = (0, 1)
NEED_CONTIGUOUS[aten._pdist_backward.default] = (1,)
NEED_CONTIGUOUS[aten.nll_loss2d_forward.default] = (0,)  # whose gradient is laid out like it
NEED_CONTIGUOUS[aten.nll_loss2d_backward.default] = (1,)
NEED_CONTIGUOUS[aten.mkldnn_rnn_layer.default] = (0, 5, 6)  # what goes in, and the two states
NEED_CONTIGUOUS.update(
    dict.fromkeys(
        _overloads(
            "_scaled_dot_product_flash_attention_for_cpu_backward", "_scaled_dot_product_flash_attention_backward",
            "_scaled_dot_product_efficient_attention_backward", "_scaled_dot_product_cudnn_attention_backward",
            "_scaled_dot_product_fused_attention_overrideable_backward",
        ),
        (1, 2, 3),  # query, key and value; the gradient may come as it likes
    )
)  # fmt: skip

# Determinants are computed from a factorization of the transposed matrix where that saves a copy, so where the matrix
# is contiguous. Autograd's formulas take the factors for what they are in the example.
FACTORIZED_AS_THEY_LIE = frozenset(_overloads("_linalg_det", "_linalg_slogdet"))

_ONE_LAYOUT = frozenset({torch.contiguous_format, torch.channels_last, torch.channels_last_3d})


_AS_THE_KERNEL_LIKES, _IN_ONE_WAY, _AS_ARGUMENTS_LIE = range(3)
_laid_out: dict[int, tuple[Any, int]] = {}  # of operators of the dispatcher: to hash one is a call of Python code


def _is_laid_out(target: Any) -> int:
    """How what a node calls lays out its results."""
    known = _laid_out.get(id(target))
    if known is not None:
        return known[1]
    if target in OPERATORS or target in _UP_TO_THE_KERNEL:
        found = _AS_THE_KERNEL_LIKES
    else:
        found = _IN_ONE_WAY if target in _ONE_WAY_ONLY else _AS_ARGUMENTS_LIE
    if isinstance(target, torch._ops.OpOverload):
        _laid_out[id(target)] = target, found  # what is held keeps its address to itself
    return found


class Layouts:
    """What is certain about the layouts of one graph's tensors; asked for node by node, and remembered.

    ``trusted`` are operators whose results are good in any layout that they come in.
    """

    def __init__(self, trusted: frozenset[Any] = frozenset()) -> None:
        self._trusted = trusted
        self._certain: dict[Node, bool] = {}
        self._seen_through: dict[Node, bool] = {}

    def is_seen_through_views(self, node: Node) -> bool:
        """Whether a node is an input, or a view of one that is a view in every layout."""
        known, path = self._seen_through, []
        while node.op == "call_function" and node not in known:
            path.append(node)
            if not _is_always_view(node):
                known[node] = False
                break
            node = node.args[0]  # type: ignore[assignment]
        answer = known.get(node, True)
        known.update(dict.fromkeys(path, answer))
        return answer

    def is_certain(self, node: Node) -> bool:
        """Whether a node's value has the strides that the graph says in every call."""
        known = self._certain.get(node)
        if known is not None:
            return known
        pending = [node]
        while pending:
            found = self._look_at(pending[-1])
            if isinstance(found, bool):
                self._certain[pending.pop()] = found
            else:
                pending += found
        return self._certain[node]

    def _look_at(self, node: Node) -> bool | list[Node]:
        """Whether a node's layout is certain, or the arguments that must be looked at before that is known."""
        if node.op != "call_function":
            return not _has_layout(node)
        if self._trusted and node.target in self._trusted:
            return True
        if _is_laid_out(node.target) is _AS_THE_KERNEL_LIKES:
            return not _has_layout(node) or _is_matrix_product(node)
        arguments = _deciding(node)
        certain = [self._certain.get(argument) for argument in arguments]
        if None not in certain or False in certain:
            return all(certain)
        return [argument for argument, known in zip(arguments, certain, strict=True) if known is None]

    def sources(self, node: Node) -> list[Node]:
        """The inputs whose layouts decide how a node's value lies in memory, as far as that is known: the values of
        operators that lay their results out as they like are among them."""
        found: dict[Node, None] = {}
        pending, seen = [node], {node}
        while pending:
            current = pending.pop()
            if self.is_certain(current):
                continue
            arguments = _deciding(current)
            if not arguments or _is_laid_out(current.target) is _AS_THE_KERNEL_LIKES:
                found[current] = None
                continue
            pending += [argument for argument in arguments if argument not in seen]
            seen.update(arguments)
        return list(found)


class KernelLayouts:
    """Which arguments of kernels must be made contiguous, since only the example's are known to be."""

    def __init__(self, layouts: Layouts) -> None:
        self.layouts = layouts
        # a group norm takes images as convolutions leave them
        self.images = Layouts(CONVOLUTIONS)

    def uncertain(self, target: Any, nodes: Sequence[Node | None]) -> Sequence[int]:
        """The positions of those; ``nodes`` are the arguments that are tensors, None stands for others."""
        known = self.images if target is aten.native_group_norm.default else self.layouts
        positions = NEED_CONTIGUOUS[target]
        found = [
            position
            for position, node in enumerate(nodes)
            if node is not None and (positions is None or position in positions) and not known.is_certain(node)
        ]
        # its gradient must lie as the image does
        return (0, 1) if found and target is aten.native_group_norm_backward.default else found


def is_for_kernel(node: Node) -> bool:
    """Whether a node lays a tensor out for a kernel, or for formulas that go with one."""

    def is_factorized(user: Node) -> bool:
        return user.target in FACTORIZED_AS_THEY_LIE

    return any(
        user.target in NEED_CONTIGUOUS
        or is_factorized(user)
        or (user.target in (aten.transpose.int, aten.permute.default) and any(map(is_factorized, user.users)))
        for user in node.users
    )


def _deciding(node: Node) -> list[Node]:
    """The arguments on whose layouts that of a node's value depends."""
    target = node.target
    if node.op != "call_function" or _is_laid_out(target) is _IN_ONE_WAY or not _has_layout(node):
        return []
    if target is operator.getitem:
        return [node.args[0]]  # type: ignore[list-item]
    if node.kwargs.get("memory_format") in _ONE_LAYOUT:
        return []
    if not isinstance(target, torch._ops.OpOverload):
        return node.all_input_nodes
    facts = facts_of(target)
    if facts.in_place or (facts.aliases and not facts.writes):
        return [node.args[0]] if isinstance(node.args[0], Node) else node.all_input_nodes
    if facts.aliases:  # what it was told to write to (out=) comes back
        return written_nodes(node, facts.writes)
    if facts.pointwise:
        return [argument for argument in node.all_input_nodes if _has_order(argument)]
    return node.all_input_nodes


def _is_matrix_product(node: Node) -> bool:
    """Whether a node multiplies two matrices, or vectors; other products are folded into one as the kernel likes."""
    if node.target is not aten.matmul.default:
        return False
    infos = [info_of(argument) for argument in node.all_input_nodes]
    return all(info is not None and info.dim <= 2 for info in infos)


def _has_layout(node: Node) -> bool:
    """Whether a node's value can lie in memory in more than one way."""
    value = node.meta.get("val")
    if type(value) is FakeTensor:
        return bool(value.info.sizes)
    return isinstance(value, (list, tuple))


def _has_order(node: Node) -> bool:
    """Whether a tensor's strides say something about the order of dimensions: with one dimension they don't."""
    info = info_of(node)
    if info is None or len(info.sizes) < 2:
        return False
    long = (size for size in info.sizes if not is_one(size))
    return next(long, None) is not None and next(long, None) is not None


def views_by_layout(graph: Graph, output_specs: Iterable[OutputSpec]) -> Iterator[Node]:
    """The views of a functional graph that rest on a layout which is not certain: to run for every layout, they have
    to be reshapes.

    A functional graph says ``view`` where elements are to be seen in another shape, for the layout that they have in
    the example. Where the program itself called ``view``, it is one: eager mode refuses other layouts there too. In a
    joint graph, which autograd's own steps were recorded into, there is no telling who called it.
    """
    layouts = Layouts()
    is_joint = any(spec.kind in _OF_JOINT_GRAPHS for spec in output_specs)
    for node in graph.find_nodes(op="call_function", target=aten.view.default):
        if (is_joint or not said_view(node)) and may_need_copy(node, layouts):
            yield node


_OF_JOINT_GRAPHS = frozenset(
    {OutputKind.LOSS_OUTPUT, OutputKind.GRADIENT_TO_PARAMETER, OutputKind.GRADIENT_TO_USER_INPUT}
)


def take_any_layout(graph: Graph, output_specs: Iterable[OutputSpec] = ()) -> None:
    """Let the views of a graph that rest on a layout be reshapes."""
    for node in list(views_by_layout(graph, output_specs)):
        node.target = aten.reshape.default


def may_need_copy(node: Node, layouts: Layouts) -> bool:
    """Whether a view of a new shape is only one in the layout of the example."""
    base: Any = node.args[0]
    before, after = info_of(base), info_of(node)
    if before is None or after is None or only_splits(before.sizes, after.sizes):
        return False
    return not layouts.is_certain(base)


def said_view(node: Node) -> bool:
    """Whether a node is a ``view`` that the program called, not one that another function of torch's became."""
    origin = meta_of(node).origin
    return origin is not None and origin.function == "view"


def is_copy(node: Node) -> bool:
    """Whether an operator that is a view or a copy is a copy in the example."""
    if node.target not in VIEWS_OR_COPIES:
        return False
    before, after = info_of(node.args[0]), info_of(node)  # type: ignore[arg-type]
    return before is not None and after is not None and before.storage is not after.storage


def as_reshape(meta: NodeMeta) -> NodeMeta:
    """Where a ``view`` that the program called came from, for one that need not refuse what eager mode does."""
    origin = meta.origin
    if origin is None or origin.function != "view":
        return meta
    meta = meta.copy()
    meta.origin = origin.of_function("reshape")
    return meta


def _is_always_view(node: Node) -> bool:
    """Whether a call gives a view of a tensor in every layout."""
    if node.target in VIEWS_OR_COPIES or not isinstance(node.target, torch._ops.OpOverload):
        return False
    facts = facts_of(node.target)
    return not facts.writes and bool(facts.aliases) and isinstance(node.args[0], Node)
