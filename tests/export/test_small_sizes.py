"""Sizes of 0 and 1: like any other, and what a program decides about them is not forgotten."""

from __future__ import annotations

import pytest
import torch

import tintype
from tests.decomposition_tables import composites_only
from tintype import Dim


def branching(value: torch.Tensor) -> torch.Tensor:
    if value.shape[0] != 1:
        return value + 1
    return value - 1


@pytest.mark.parametrize("decompose", [False, True])
def test_a_branch_on_size_one_is_asserted(decompose: bool) -> None:
    batch = Dim("batch", min=1, max=16)
    program = tintype.export(branching, (torch.ones(4, 2),), dynamic_shapes={"value": {0: batch}})
    module = (program.run_decompositions() if decompose else program).module()
    assert torch.equal(module(torch.zeros(2, 2)), branching(torch.zeros(2, 2)))
    with pytest.raises(RuntimeError, match="s0 >= 2"):
        module(torch.zeros(1, 2))
    assert "value.shape[0] = batch, 2 <= batch <= 16" in str(program.contract())


@pytest.mark.parametrize("example", [1, 2, 5])
def test_an_example_of_any_size_gives_a_program_for_all(example: int) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.LayerNorm(4))
    shapes = {"input": {0: Dim("batch", min=1)}}
    module = tintype.export(model, (torch.randn(example, 3),), dynamic_shapes=shapes).module()
    for batch in (1, 2, 64):
        value = torch.randn(batch, 3)
        torch.testing.assert_close(module(value), model(value))


@pytest.mark.parametrize(
    "size, example",
    [(2 * Dim("n", max=64), 6), (2 * Dim("n", max=64) + 1, 7), (Dim("n", max=64) + 2, 5)],
    ids=["a multiple", "a multiple and one", "a sum"],
)
@pytest.mark.parametrize("decompose", [False, True])
def test_an_assertion_about_a_derived_size_comes_after_what_it_asserts(
    size: Dim, example: int, decompose: bool
) -> None:
    def cut(value: torch.Tensor) -> torch.Tensor:
        return value[:, : value.shape[0] - 1] * value.shape[0]

    program = tintype.export(cut, (torch.randn(example, 3),), dynamic_shapes={"value": {0: size}})
    program = program.run_decompositions() if decompose else program
    program.validate()
    for more in (2, 4, 10):
        value = torch.randn(example + more, 3)
        torch.testing.assert_close(program.module()(value), cut(value))


@pytest.mark.parametrize("table", [None, composites_only()], ids=["core", "composites"])
def test_attention_of_sequences_that_may_be_empty(table):
    """The fused kernel divides by the length, and a process that has none dies; the plain way takes any."""
    n = tintype.Dim("n")

    class Attention(torch.nn.Module):
        def forward(self, x):
            return torch.nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True)

    program = tintype.export(Attention(), (torch.randn(2, 3, 5, 4),), dynamic_shapes=({2: n},))
    decomposed = program.run_decompositions(*(() if table is None else (table,)))
    assert not any("attention" in str(node.target) for node in decomposed.graph.nodes)
    for length in (0, 1, 2, 7):
        x = torch.randn(2, 3, length, 4)
        torch.testing.assert_close(decomposed.module()(x), Attention()(x))


def test_fused_attention_is_refused_without_elements():
    x = torch.randn(1, 2, 0, 4)
    with pytest.raises(tintype.TintypeError, match="at least one"):
        tintype.export(lambda x: torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(x, x, x)[0], (x,))


def test_a_size_of_one_in_the_example_has_any_stride():
    """What has one element is contiguous, and the program is for calls that are."""
    x = torch.randn(2)[::2]

    def f(x):
        return x + 1 if x.is_contiguous() else x - 1

    program = tintype.export(f, (x,), dynamic_shapes=({0: tintype.Dim("n")},)).module()
    assert torch.equal(program(x), x + 1)
    assert torch.equal(program(torch.arange(3.0)), torch.arange(3.0) + 1)
    with pytest.raises(tintype.TintypeError, match="is_contiguous"):
        program(torch.arange(6.0)[::2])


@pytest.mark.parametrize("table", [None, composites_only()], ids=["core", "composites"])
@pytest.mark.parametrize("rank", [3, 4])
def test_attention_of_features_that_may_be_none(table, rank):
    """The scale is one over the root of their number."""

    class Attention(torch.nn.Module):
        def forward(self, x):
            return torch.nn.functional.scaled_dot_product_attention(x, x, x)

    sizes = [2, 3, 5][-rank + 1 :]
    program = tintype.export(Attention(), (torch.randn(*sizes, 4),), dynamic_shapes=({rank - 1: tintype.Dim("n")},))
    decomposed = program.run_decompositions(*(() if table is None else (table,))).module()
    for features in (0, 1, 2, 7):
        x = torch.randn(*sizes, features)
        torch.testing.assert_close(decomposed(x), Attention()(x))


def test_a_size_of_one_is_assigned_to_an_element():
    def f(x):
        x = x.clone()
        x[0] = x
        return x

    program = tintype.export(f, (torch.ones(1),), dynamic_shapes=({0: tintype.Dim.AUTO},)).module()
    assert torch.equal(program(torch.ones(1)), torch.ones(1))
    with pytest.raises(tintype.TintypeError, match="to be equal to 1"):
        program(torch.ones(2))


@pytest.mark.parametrize(
    ("spec", "example", "wanted"), [(lambda n: 2 * n, 8, "min=2"), (lambda n: n + 1, 8, "min=3")]
)
def test_what_rules_out_more_than_0_and_1_of_a_derived_size_breaks_its_promise(spec, example, wanted):
    n = tintype.Dim("n", max=64)
    with pytest.raises(tintype.ConstraintViolationError, match=wanted):
        tintype.export(lambda x: x[4:] * 2, (torch.ones(example),), dynamic_shapes=({0: spec(n)},))


def test_whether_a_part_is_contiguous_depends_on_its_size():
    """What has one element is contiguous, whatever its strides are: the program is not for such sizes."""

    def f(x):
        return x + 1 if x.real.is_contiguous() else x - 1

    x = torch.randn(3, dtype=torch.complex64)
    program = tintype.export(f, (x,), dynamic_shapes=({0: tintype.Dim("n")},)).module()
    assert torch.equal(program(x), f(x))
    with pytest.raises(RuntimeError, match="assertion"):
        program(x[:1])
    ones = tintype.export(f, (x[:1],), dynamic_shapes=({0: tintype.Dim.AUTO},)).module()
    assert torch.equal(ones(x[:1]), f(x[:1]))
    with pytest.raises(tintype.TintypeError, match="equal to 1"):
        ones(x)


def test_strides_of_what_has_no_elements_are_those_of_the_example():
    x = torch.randn(0, 4)[:, ::2]
    auto = ({1: tintype.Dim.AUTO},)
    program = tintype.export(lambda x: x.sum() + x.stride(0), (x,), dynamic_shapes=auto).module()
    assert program(x) == 4
    with pytest.raises(tintype.TintypeError, match="example that has elements"):
        tintype.export(lambda x: x.sum() + x[:, ::2].stride(0), (x,), dynamic_shapes=auto)


def test_recurrent_layers_of_empty_batches_decomposed():
    layer = torch.nn.LSTM(4, 2).eval()
    program = tintype.export(layer, (torch.randn(3, 4, 4),), dynamic_shapes=({1: tintype.Dim("n")},))
    decomposed = program.run_decompositions({}).module()
    for batch in (0, 1, 5):
        x = torch.randn(3, batch, 4)
        torch.testing.assert_close(decomposed(x), layer(x))


def test_strides_of_what_is_a_view_at_size_one_alone():
    def f(x):
        rows = x[:, :-1].reshape(-1)
        return rows * rows.stride(0)

    x = torch.randn(3, 3)
    with pytest.raises(tintype.ConstraintViolationError, match=r"rows\.stride"):
        tintype.export(f, (x,), dynamic_shapes=({1: tintype.Dim("n")},))
    program = tintype.export(f, (x,), dynamic_shapes=({1: tintype.Dim("n", min=3)},)).module()
    for size in (3, 4, 7):
        x = torch.randn(3, size)
        assert torch.equal(program(x), f(x))


def test_a_product_of_two_dtypes_where_nothing_is_contracted() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.einsum("...i,...i->...", x.double(), x)

    x = torch.randn(1)
    module = tintype.export(function, (x,), dynamic_shapes="auto").module()
    torch.testing.assert_close(module(x), function(x))


DISTRIBUTIONS = {
    "normal": lambda mean, spread, x: torch.distributions.Normal(mean, spread.exp()).log_prob(x).sum(-1),
    "categorical": lambda mean, spread, x: torch.distributions.Categorical(logits=mean).log_prob(x.argmax(-1)),
    "beta": lambda mean, spread, x: torch.distributions.Beta(mean.exp(), spread.exp()).log_prob(x.sigmoid()),
    "squashed": lambda mean, spread, x: torch.distributions.TransformedDistribution(
        torch.distributions.Normal(mean, spread.exp()), [torch.distributions.TanhTransform()]
    ).log_prob(x.tanh()),
}


@pytest.mark.parametrize("name", DISTRIBUTIONS)
@pytest.mark.parametrize("strict", [False, True])
def test_a_policy_that_was_exported_for_several_scores_one(name: str, strict: bool) -> None:
    function, batch = DISTRIBUTIONS[name], {0: Dim("batch")}
    example = tuple(torch.randn(3, 4) for _ in range(3))
    module = tintype.export(function, example, dynamic_shapes=(batch, batch, batch), strict=strict).module()
    for rows in (1, 2, 5):
        given = tuple(torch.randn(rows, 4) for _ in range(3))
        torch.testing.assert_close(module(*given), function(*given))
