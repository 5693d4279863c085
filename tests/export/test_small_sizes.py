"""Sizes of 0 and 1: like any other, and what a program decides about them is not forgotten."""

from __future__ import annotations

import pytest
import torch

import tintype
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
    assert "value.shape[0] >= 2" in str(program.contract())


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
