"""Gradients through decomposed programs are those of eager mode, also at corners and far out, in any precision."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import tintype
from tests.decomposition_tables import composites_only

aten = torch.ops.aten
INFINITY = float("inf")
POINTS = [0.0, 0.5, -0.5, 1.0, -1.0, 3.0, -3.0, 20.0, -20.0, 200.0, -200.0, 1e4]
WEIGHTS = torch.tensor([1.0, 0.5, 2.0])
MARGINS = [[1.0, 2.0, 0.0], [0.5, 0.5, 1.5]]
SCORES = [[1.0, -INFINITY], [-INFINITY, -INFINITY]]

FUNCTIONS: dict[str, tuple[Callable[..., torch.Tensor], list[Any]]] = {
    "hardswish": (F.hardswish, POINTS),
    "hardsigmoid": (F.hardsigmoid, POINTS),
    "celu": (lambda x: F.celu(x, 2.0), POINTS),
    "softplus": (lambda x: F.softplus(x, 2.0, 10.0), [*POINTS, INFINITY]),
    "mish": (F.mish, POINTS),
    "sinc": (torch.sinc, POINTS),
    "xlogy": (lambda x: torch.xlogy(x, torch.tensor([[0.0], [0.5], [-1.0], [2.0]])), [0.0, 1.0]),
    "xlogy where nothing comes back": (lambda x: torch.xlogy(x, torch.zeros(3)).sigmoid(), [0.0, 1.0, 2.0]),
    "xlog1py where nothing comes back": (
        lambda x: torch.special.xlog1py(x, -torch.ones(3)).clamp(-5, 5), [0.0, 1.0, 2.0]
    ),
    "xlogy of the argument": (lambda x: torch.xlogy(torch.tensor([[0.0], [1.0]]), x), [0.0, 1.0]),
    "xlogy by a number": (lambda x: torch.xlogy(x, 2.0), [0.0, 1.0]),
    "xlogy by nothing": (lambda x: torch.xlogy(x, 0.0).sigmoid(), [0.0, 1.0]),
    "xlogy of a number": (lambda x: torch.xlogy(2.0, x), [0.5, 1.0]),
    "xlog1py": (lambda x: torch.special.xlog1py(x, torch.tensor([[-1.0], [-0.5], [-2.0], [2.0]])), [0.0, 1.0]),
    "xlog1py of a number": (lambda x: torch.special.xlog1py(x, 2.0), [0.0, 1.0]),
    "entr": (torch.special.entr, [0.0, 0.5, 1.0]),
    "log_ndtr": (torch.special.log_ndtr, POINTS),
    "logit": (torch.logit, [0.0, 0.25, 1.0, 1.5]),
    "logit with eps": (lambda x: torch.logit(x, 0.25), [0.0, 0.25, 0.5, 1.0, 1.5]),
    "std": (lambda x: x.std(1), [[1.0, 1.0], [1.0, 2.0]]),
    "std of everything": (lambda x: x.std(), [2.0, 2.0, 2.0]),
    "std_mean": (lambda x: torch.std_mean(x, 1, correction=0, keepdim=True)[0], [[1.0, 1.0], [1.0, 2.0]]),
    "safe softmax": (lambda x: aten._safe_softmax.default(x, -1).square(), SCORES),
    "renorm": (lambda x: x.renorm(2, -2, 0.5), [[0.0, 0.0], [0.1, 0.2], [3.0, 4.0]]),
    "index_fill": (lambda x: x.index_fill(-1, torch.tensor([-1, 0, 0]), 5), [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]),
    "index_fill of a number": (lambda x: x.index_fill(0, torch.tensor([-1]), 5), 2.0),
    "index_fill with a tensor": (
        lambda x: torch.arange(4.0).to(x.dtype).index_fill(0, torch.tensor([1, 0, 0]), x), 2.0
    ),
    "multi_margin_loss": (lambda x: F.multi_margin_loss(x, torch.tensor([0, 1])), MARGINS),
    "multi_margin_loss of squares": (
        lambda x: F.multi_margin_loss(x, torch.tensor([0, 1]), p=2, weight=WEIGHTS.to(x.dtype), reduction="none"),
        MARGINS,
    ),
    "multi_margin_loss of one": (
        lambda x: F.multi_margin_loss(x, torch.tensor(1), margin=0.5, reduction="none"), MARGINS[1]
    ),
    "multilabel_margin_loss": (
        lambda x: F.multilabel_margin_loss(x, torch.tensor([[0, -1, 0], [1, 2, -1]])), MARGINS
    ),
    "multilabel_margin_loss of all": (
        lambda x: F.multilabel_margin_loss(x, torch.tensor([[2, 1, 0], [-1, 2, 1]]), reduction="sum"), MARGINS
    ),
    "multilabel_margin_loss of one": (
        lambda x: F.multilabel_margin_loss(x, torch.tensor([2, -1, 1]), reduction="none"), MARGINS[1]
    ),
}  # fmt: skip


def result_and_gradient(function: Callable[..., Any], value: torch.Tensor) -> list[torch.Tensor]:
    leaf = value.clone().requires_grad_()
    result = function(leaf)
    (gradient,) = torch.autograd.grad(result.sum(), leaf)
    return [result.detach(), gradient]


# eager mode has no kernel for these in bfloat16
ONLY_DOUBLE = {"log_ndtr", *(name for name in FUNCTIONS if "margin" in name)}
DTYPES = [
    (name, dtype)
    for name in FUNCTIONS
    for dtype in (torch.float64, torch.bfloat16)
    if name not in ONLY_DOUBLE or dtype is torch.float64
]


@pytest.mark.parametrize(("name", "dtype"), DTYPES)
def test_gradients_are_eagers(name: str, dtype: torch.dtype) -> None:
    function, points = FUNCTIONS[name]
    value = torch.tensor(points, dtype=dtype)
    expected = result_and_gradient(function, value)
    program = tintype.export(lambda x: function(x), (value,))
    tolerance = 1e-7 if dtype is torch.float64 else 2e-2
    for table in (None, torch._decomp.core_aten_decompositions()):
        decomposed = program.run_decompositions(table)
        targets = {node.target for node in decomposed.graph.nodes if node.op == "call_function"}
        assert {target.namespace for target in targets - {operator.getitem}} == {"aten"}
        result = result_and_gradient(decomposed.module(), value)
        torch.testing.assert_close(result, expected, equal_nan=True, rtol=tolerance, atol=tolerance)


def test_indices_to_fill_at_whatever_the_size() -> None:
    program = tintype.export(
        lambda x, i: x.index_fill(0, i, 1.0), (torch.zeros(3), torch.tensor([0, 1])), dynamic_shapes="auto"
    )
    decomposed = program.run_decompositions().module()
    assert decomposed(torch.zeros(4), torch.tensor([-1])).tolist() == [0, 0, 0, 1]
    with pytest.raises(IndexError):
        decomposed(torch.zeros(4), torch.tensor([4]))


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("padding", [None, -1])
@pytest.mark.parametrize("table", [None, composites_only()], ids=["core", "composites"])
def test_bags_of_embeddings_can_be_trained(mode: str, padding: int | None, table: Any) -> None:
    """The example's weight requires no gradient; the program's may."""
    indices = torch.tensor([[0, 1], [2, 3]])

    def look_up(weight: torch.Tensor) -> torch.Tensor:
        return F.embedding_bag(indices, weight, mode=mode, padding_idx=padding)

    weight = torch.arange(12.0).reshape(4, 3)
    program = tintype.export(look_up, (weight,)).run_decompositions(table)
    assert aten._embedding_bag.default in {node.target for node in program.graph.nodes}
    torch.testing.assert_close(result_and_gradient(program.module(), weight), result_and_gradient(look_up, weight))


@pytest.mark.parametrize("table", [None, {}])
def test_dropout_of_everything_draws_no_numbers(table: Any) -> None:
    program = tintype.export(lambda x: F.dropout(x, 1.0), (torch.ones(4),)).run_decompositions(table).module()
    before = torch.get_rng_state()
    assert program(torch.ones(4)).tolist() == [0, 0, 0, 0]
    assert torch.equal(torch.get_rng_state(), before)
