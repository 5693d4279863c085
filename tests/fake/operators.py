"""Which calls drive the rules of an operator: those of its name, or those of another operator that calls it."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch

from tests.fake import direct_calls
from tests.fake.eager_comparison import Comparison
from tests.fake.samples import run_below_autograd, run_with_gradients, sampled, seed
from tintype.fake.rules import RULES, quantized

# The gradient of an operator is called when the operator is differentiated.
DIFFERENTIATED = (
    "adaptive_max_pool2d",
    "adaptive_max_pool3d",
    "avg_pool2d",
    "avg_pool3d",
    "binary_cross_entropy",
    "diagonal",
    "elu",
    "glu",
    "huber_loss",
    "mse_loss",
    "multi_margin_loss",
    "multilabel_margin_loss",
    "native_batch_norm",
    "native_layer_norm",
    "nll_loss",
    "select",
    "smooth_l1_loss",
    "soft_margin_loss",
    "unfold",
)

# Operators that have no calls of their own, and whose calls reach them.
REACHED_THROUGH = {
    **{f"{name}_backward": name for name in DIFFERENTIATED},
    "_adaptive_avg_pool2d": "adaptive_avg_pool2d",
    "_adaptive_avg_pool2d_backward": "adaptive_avg_pool2d",
    "_adaptive_avg_pool3d": "adaptive_avg_pool3d",
    "_adaptive_avg_pool3d_backward": "adaptive_avg_pool3d",
    "_cdist_forward": "cdist",
    "_ctc_loss_backward": "ctc_loss",
    "_log_softmax": "log_softmax",
    "_log_softmax_backward_data": "log_softmax",
    "_prelu_kernel": "prelu",
    "_softmax": "softmax",
    "col2im": "unfold",
    "cross_entropy_loss": "cross_entropy",
    "embedding_dense_backward": "embedding",
    "feature_dropout": "dropout2d",
    "grid_sampler": "grid_sample",
    "im2col": "unfold",
    "linalg_cross": "cross",
    "linalg_vector_norm": "cosine_similarity",
    "log_sigmoid": "logsigmoid",
    "log_sigmoid_forward": "logsigmoid",
    "max_pool1d_with_indices": "max_pool1d",
    "max_pool2d_with_indices": "max_pool2d",
    "max_pool2d_with_indices_backward": "max_pool2d",
    "max_pool3d_with_indices": "max_pool3d",
    "max_pool3d_with_indices_backward": "max_pool3d",
    "native_group_norm_backward": "group_norm",
    "nll_loss_forward": "nll_loss",
    "nll_loss_nd": "nll_loss",
    "reflection_pad1d_backward": "pad",
    "replication_pad1d_backward": "pad",
    "replication_pad2d_backward": "pad",
    "rrelu_with_noise": "rrelu",
    "slice_backward": "narrow",
    "upsample_bicubic2d_backward": "interpolate",
    "upsample_linear1d": "interpolate",
    "upsample_linear1d_backward": "interpolate",
    "upsample_trilinear3d": "interpolate",
}


def _rules_by_operator() -> dict[str, list[torch._ops.OpOverload]]:
    found: dict[str, list[torch._ops.OpOverload]] = {}
    for operator in RULES:
        if operator not in QUANTIZED:
            found.setdefault(operator._opname, []).append(operator)
    return found


# driven by test_quantized_rules.py: what they take is made apart
QUANTIZED = [operator for operator, rule in RULES.items() if rule.__module__ == quantized.__name__]
RULES_OF = _rules_by_operator()
SAMPLED = sampled()

# Every operator that has a rule, and every other one whose samples call such an operator.
OPERATORS = sorted({*RULES_OF, *SAMPLED})


@dataclass
class Driven:
    """What came of the calls of one operator."""

    comparison: Comparison
    refused: list[str]


@functools.cache
def _direct_calls() -> dict[str, list[direct_calls.Call]]:
    seed()
    return direct_calls.calls_by_operator()


@functools.cache
def drive(name: str) -> Driven:
    """Make the calls that have an operator's name; they are made once, for all the operators that they reach."""
    comparison = Comparison()
    seed()
    refused = direct_calls.run(comparison, _direct_calls().get(name, []))
    for entry in SAMPLED.get(name, []):
        run_below_autograd(comparison, entry)
        run_with_gradients(comparison, entry)
    return Driven(comparison, refused)
