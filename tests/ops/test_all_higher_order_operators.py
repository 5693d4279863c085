"""Every operator under torch.ops.higher_order is captured, or refused by name."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
import torch

import tintype
from tintype import errors, ops
from tintype.ir.operators import OPERATORS
from tintype.trace.plan import REFUSALS, is_captured

# Some operators are only there once the module that defines them is loaded.
for module in (
    "torch._dynamo._trace_wrapped_higher_order_op",
    "torch._higher_order_ops.register_hook",
    "torch._higher_order_ops.triton_kernel_wrap",
    "torch._inductor.fx_passes.control_dependencies",
):
    importlib.import_module(module)

NAMES = sorted(torch._ops._higher_order_ops)
HANDLED = [name for name in NAMES if is_captured(torch._ops._higher_order_ops[name])]
REFUSED = [name for name in NAMES if name not in HANDLED]


def test_the_operators_that_are_captured() -> None:
    expected = {
        "associative_scan",
        "auto_functionalized",
        "cond",
        "flex_attention",
        "flex_attention_backward",
        "invoke_subgraph",
        "map_impl",
        "out_dtype",
        "scan",
        "strict_mode",
        "while_loop",
    }
    assert expected <= set(HANDLED)


@pytest.mark.parametrize("name", NAMES)
def test_an_operator_is_captured_or_refused(name: str) -> None:
    operator = torch._ops._higher_order_ops[name]
    assert (name in HANDLED) != (name in REFUSALS), f"{name} needs a file in tintype/ops, or a line in refused.py"
    if name in HANDLED:
        assert operator in OPERATORS, f"{name} is captured, but not declared"


def test_no_refusal_is_out_of_date() -> None:
    assert set(REFUSALS) <= set(NAMES)


@pytest.mark.parametrize("name", REFUSED)
def test_a_refused_operator_in_a_model(name: str) -> None:
    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            # as the operators' own functions do once they have checked their arguments
            return torch._ops.HigherOrderOperator.__call__(torch._ops._higher_order_ops[name], x)

    with pytest.raises(errors.UnsupportedOperatorError) as caught:
        tintype.export(Model(), (torch.ones(2),))
    reason, remedy = REFUSALS[name]
    text = str(caught.value)
    assert f"the operator {name} can't be captured: {reason}" in text
    assert remedy in text
    assert "test_all_higher_order_operators.py" in text


def test_operators_have_a_file_each() -> None:
    files = {name.removesuffix("_impl") for name in HANDLED}
    assert files <= set(ops.__all__)


def test_an_operator_that_nobody_knows() -> None:
    class Unknown(torch._ops.HigherOrderOperator):
        def __init__(self) -> None:
            super().__init__("tests_unknown")

        def __call__(self, x: torch.Tensor) -> Any:
            return super().__call__(x)

    unknown = Unknown()
    try:
        with pytest.raises(
            errors.UnsupportedOperatorError, match="tests_unknown can't be captured: tintype does not"
        ):
            tintype.export(lambda x: unknown(x), (torch.ones(2),))
    finally:
        del torch._ops._higher_order_ops["tests_unknown"]
