"""Custom operators whose fake kernels say something else than the operators do: programs that run warn of them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

import tintype
from tests import own_exceptions, sources_stay


def operator(name: str, compute: Callable[..., Any], fake: Callable[..., Any], returns: str = "Tensor") -> Any:
    torch.library.define(f"wrong_fakes::{name}", f"(Tensor x) -> {returns}")
    torch.library.impl(f"wrong_fakes::{name}", "CompositeExplicitAutograd")(compute)
    torch.library.register_fake(f"wrong_fakes::{name}")(fake)
    return getattr(torch.ops.wrong_fakes, name).default


HALVES = operator("halves", lambda x: x[::2].clone(), torch.empty_like)
WIDER = operator("wider", lambda x: x.double(), torch.empty_like)
FLAT = operator("flat", lambda x: x.reshape(-1).clone(), torch.empty_like)
PAIR = operator(
    "pair",
    lambda x: (x + 1, x[:1].clone()),
    lambda x: (torch.empty_like(x), torch.empty_like(x)),
    "(Tensor, Tensor)",
)
RIGHT = operator("right", lambda x: x + 1, torch.empty_like)
FAKES = {
    "size": (HALVES, "wrong_fakes.halves.default gives f32[2, 3], but its fake kernel says f32[4, 3]"),
    "dtype": (WIDER, "gives f64[4, 3], but its fake kernel says f32[4, 3]"),
    "dimensions": (FLAT, "gives f32[12], but its fake kernel says f32[4, 3]"),
    "one of two": (PAIR, "gives (f32[4, 3], f32[1, 3]), but its fake kernel says (f32[4, 3], f32[4, 3])"),
}


def warned(call: Callable[[], Any]) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    ours = [warning for warning in caught if warning.category is tintype.WrongFakeWarning]
    assert all(warning.filename in {__file__, own_exceptions.__file__, sources_stay.__file__} for warning in ours)
    return [str(warning.message) for warning in ours]


@pytest.mark.parametrize("name", FAKES)
def test_a_fake_kernel_that_disagrees(name: str) -> None:
    target, message = FAKES[name]
    x = torch.randn(4, 3)
    program = tintype.export(lambda x: target(x), (x,))
    for stage in (program, program.run_decompositions()):
        module = stage.module()
        (text,) = warned(lambda module=module: module(x))
        assert message in text and "test_wrong_fakes.py" in text and "register_fake" in text
        assert warned(lambda module=module: module(x)) == []  # once is enough


def test_fake_kernels_that_agree() -> None:
    shapes = {"x": {0: tintype.Dim("n")}}
    module = tintype.export(lambda x: RIGHT(x) * 2, (torch.randn(4, 3),), dynamic_shapes=shapes).module()
    for size in (0, 1, 4, 7):
        x = torch.randn(size, 3)
        assert warned(lambda x=x: torch.testing.assert_close(module(x), (x + 1) * 2)) == []


def test_inside_of_a_branch() -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        return tintype.cond(x.sum() > 0, lambda x: WIDER(x).float(), lambda x: x + 1, (x,))

    module = tintype.export(model, (torch.ones(4, 3),)).module()
    assert len(warned(lambda: module(torch.ones(4, 3)))) == 1
