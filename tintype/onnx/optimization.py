"""``optimize="full"``: onnxscript's optimizer, held to what must not change."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tintype.onnx.libraries import ir

# A weight that is stored in few bits stays so: who folds its DequantizeLinear stores it in full.
_KEPT_WHOLE = frozenset({"DequantizeLinear", "QuantizeLinear", "DynamicQuantizeLinear"})
_LARGEST_FOLDED = 8 * 1024
_ROUNDS = 2  # as onnxscript makes of its own

# onnxscript's rules but for those about 0 and 1, to which a small number is 0: `x / (y + 1e-9)` would divide by 0.
_RULES = (
    "dropout_zero_rule", "dropout_inference_rule",
    "two_reshapes_matmul_reshape_rule", "one_reshape_matmul_reshape_rule",
    "cast_constant_of_shape_rule", "cast_constant_of_shape_without_value_rule",
    "collapse_slice_rule", "collapse_slice2_rule", "materialize_reshape_shape_rule",
    "min_min_rule", "max_max_rule", "min_max_rule", "max_min_rule",
    "successive_clip_relu_rule", "successive_relu_clip_rule", "successive_relu_rule", "successive_clip_rule",
    "cast_cast_rule", "no_op_cast_rule", "no_op_expand_rule", "flatten_to_reshape_rule", "reshape_reshape_rule",
    "slice_split_rule", "no_op_transpose_rule", "transpose_transpose_rule", "unsqueeze_unsqueeze_rule",
    "squeeze_reshape_1d_rule", "no_op_dynamic_scatter_nd_rule", "no_op_static_scatter_nd_rule",
    "normalize_pad_format_conv_rule", "normalize_pad_format_conv_integer_rule",
    "fuse_pad_into_conv_rule", "fuse_pad_into_conv_integer_rule",
    "fuse_batchnorm_into_conv_rule", "fuse_batchnorm_into_conv_transpose_rule", "fuse_batchnorm_into_gemm_rule",
    "remove_optional_bias_from_conv_rule", "remove_optional_bias_from_conv_transpose_rule",
    "remove_optional_bias_from_qlinear_conv_rule", "remove_optional_bias_from_gemm_rule",
)  # fmt: skip


def optimize_fully(model: ir.Model, *, inline: bool = True) -> None:
    """Fold constants and rewrite patterns with onnxscript's optimizer, in place; names of inputs and outputs stay."""
    names = [[value.name for value in values] for values in (model.graph.inputs, model.graph.outputs)]
    with _state_unknown(model.graph):
        for each in _passes(inline):
            each(model)
        _keep_constants(model.graph)
    for values, kept in zip((model.graph.inputs, model.graph.outputs), names):
        for value, name in zip(values, kept):
            value.name = name


def _passes(inline: bool) -> list[Any]:
    """What onnxscript's ``optimize`` consists of."""
    from onnx_ir.passes import common
    from onnxscript import optimizer, rewriter

    def fold(model: ir.Model) -> None:
        optimizer.fold_constants(
            model, onnx_shape_inference=True, should_fold=_should_fold, input_size_limit=_LARGEST_FOLDED
        )

    rewrite = rewriter.RewritePass(_rules())
    unused = (common.RemoveUnusedNodesPass(), common.RemoveUnusedFunctionsPass(), common.RemoveUnusedOpsetsPass())
    return [
        *([common.InlinePass()] if inline else []),
        *(fold, rewrite, *unused) * _ROUNDS,
        common.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0),
        common.LiftSubgraphInitializersToMainGraphPass(),
        common.DeduplicateInitializersPass(),
        common.CommonSubexpressionEliminationPass(),
        common.OutputFixPass(),
        common.NameFixPass(),
    ]


def _rules() -> list[Any]:
    from onnxscript.rewriter import RewriteRule
    from onnxscript.rewriter.rules import common

    def is_one(context: Any, one: ir.Value, **others: Any) -> bool:
        known = one.const_value
        return known is not None and known.size == 1 and not len(known.shape) and known.numpy().item() == 1

    def itself(op: Any, x: Any, **others: Any) -> Any:
        return op.Identity(x)

    times_one = RewriteRule(lambda op, x, one: x * one, itself, is_one)
    by_one = RewriteRule(lambda op, x, one: x / one, itself, is_one)
    return [*times_one.commute(), by_one, *(getattr(common, name) for name in _RULES)]


def _keep_constants(graph: ir.Graph) -> None:
    """Give constants back to the graph that others of the same name have taken the place of: rewrites name theirs by
    what they are compared with, which may be the same twice."""
    given = {*graph.inputs}
    for node in ir.traversal.RecursiveGraphIterator(graph):
        for value in node.inputs:
            if value is None or value.const_value is None or value.producer() is not None or value in given:
                continue
            if value.graph is None and graph.initializers.get(value.name or "") is not value:
                while value.name in graph.initializers:
                    value.name = f"{value.name}_other"
                graph.initializers.add(value)


@contextmanager
def _state_unknown(graph: ir.Graph) -> Iterator[None]:
    """Inputs with a default are what calls change: nothing may be computed from the default."""
    defaults = {value: value.const_value for value in graph.inputs if value.name in graph.initializers}
    for value in defaults:
        value.const_value = None
        graph.initializers.pop(value.name or "")
    try:
        yield
    finally:
        for value, default in defaults.items():
            value.const_value = default
            graph.initializers.add(value)


def _should_fold(node: Any) -> bool | None:
    return False if node.op_type in _KEPT_WHOLE else None
