"""Views of conjugated tensors are views, and what is computed during a capture resolves conjugates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import tintype

VIEWS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "conj": lambda x: x.conj(),
    "expand": lambda x: x.conj().expand(2, 3),
    "broadcast_tensors": lambda x: torch.broadcast_tensors(x.conj(), x)[0],
    "broadcast_tensors of negated ones": lambda x: torch.broadcast_tensors(x.conj().imag, x.real)[0],
    "atleast_1d": lambda x: torch.atleast_1d(x.conj(), x)[0],
    "atleast_2d": lambda x: torch.atleast_2d(x.conj()),
    "atleast_3d": lambda x: torch.atleast_3d(x.conj().imag),
    "meshgrid": lambda x: torch.meshgrid(x.conj(), x, indexing="ij")[0],
    "movedim": lambda x: x.conj()[None].movedim(0, 1),
    "tensor_split": lambda x: x.conj().tensor_split(2)[1],
}


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_of_a_conjugate_sees_what_is_written(name: str) -> None:
    def model(x: torch.Tensor) -> Any:
        view = VIEWS[name](x)
        x[1:] += 1
        return view, view + 0

    x = torch.randn(3, dtype=torch.complex64)
    program = tintype.export(model, (x.clone(),))
    for variant in (program.module(), program.run_decompositions().module()):
        for result, expected in zip(variant(x.clone()), model(x.clone()), strict=True):
            assert torch.equal(result, expected)
            assert result.is_conj() == expected.is_conj() and result.is_neg() == expected.is_neg()


def written(*writes: Callable[[torch.Tensor], Any]) -> Callable[[torch.Tensor], Any]:
    """A model that writes to a copy of its input, and gives it and its parts back."""

    def model(x: torch.Tensor) -> Any:
        x = x.clone()
        for write in writes:
            write(x)
        return x, torch.view_as_real(x), x.conj()

    return model


WRITES = {
    "conj": written(lambda x: x.conj().mul_(2j)),
    "part": written(lambda x: x.conj()[:2].mul_(2j), lambda x: x.real.add_(1)),
    "negated": written(lambda x: x.conj().imag.add_(1)),
    "twice": written(lambda x: x.conj().mul_(2j), lambda x: x.conj().imag.add_(1)),
    "composite": written(
        lambda x: torch.atleast_2d(x.conj()).mul_(2j),
        lambda x: torch.broadcast_tensors(x.conj().imag, x.real)[0].add_(1),
    ),
}


@pytest.mark.parametrize("name", WRITES)
def test_a_write_through_a_view_of_a_conjugate(name: str) -> None:
    x = torch.randn(3, dtype=torch.complex64)
    program = tintype.export(WRITES[name], (x,))
    for variant in (program.module(), program.run_decompositions().module()):
        for result, expected in zip(variant(x), WRITES[name](x), strict=True):
            assert torch.allclose(result, expected) and result.is_conj() == expected.is_conj()


def test_numbers_that_follow_from_conjugates() -> None:
    def model(x: torch.Tensor) -> Any:
        constant = torch.tensor([1 + 2j, 3 - 1j]).conj()
        numbers = constant.tolist()
        return x * numbers[0], x * int((constant * 1).imag.sum().item()), x * constant.imag[0].item()

    x = torch.ones(2, dtype=torch.complex64)
    for result, expected in zip(tintype.export(model, (x,)).module()(x), model(x), strict=True):
        assert torch.equal(result, expected)
