"""What torch's programs check of sizes is checked by the programs that are made of them."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest
import torch

import tintype
from tintype.interop.their_guards import TheirGuards

AUTO = torch.export.Dim.AUTO


class Model(torch.nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
        return self.function(x, y)


class Several(torch.nn.Module):
    def forward(self, *args: torch.Tensor) -> torch.Tensor:
        return args[0] * 2 if args[0].shape[0] % 2 == 0 else args[0]


CASES: dict[str, Callable[..., Any]] = {
    "even": lambda x, y: x * 2 if x.shape[0] % 2 == 0 else x,
    "ordered": lambda x, y: x.sum() if x.shape[0] <= y.shape[0] else y.sum(),
    "different": lambda x, y: x.sum() if x.shape[0] != y.shape[0] else y,
    "half": lambda x, y: x * 2 if x.shape[0] // 2 == 2 else x,
    "both": lambda x, y: x * 2 if x.shape[0] > 3 and y.shape[0] % 3 == 0 else x,
}


@pytest.mark.parametrize("saved", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_sizes_that_torch_refuses_are_refused(name: str, saved: bool) -> None:
    model = Model(CASES[name])
    example = (torch.randn(4), torch.randn(6))
    theirs = torch.export.export(model, example, dynamic_shapes=({0: AUTO}, {0: AUTO}))
    if saved:
        file = io.BytesIO()
        torch.export.save(theirs, file)
        file.seek(0)
        theirs = torch.export.load(file)
    module, reference = tintype.interop.from_torch(theirs).module(), theirs.module()
    torch.testing.assert_close(module(*example), model(*example))
    refused = 0
    for sizes in ((4, 6), (5, 6), (8, 6), (6, 6), (4, 9), (12, 9), (2, 7), (7, 7)):
        call = tuple(torch.randn(size) for size in sizes)
        try:
            wanted = reference(*call)
        except AssertionError:
            refused += 1
            with pytest.raises(RuntimeError):
                module(*call)
        else:
            torch.testing.assert_close(module(*call), wanted)
            torch.testing.assert_close(wanted, model(*call))
    assert refused


def test_guards_on_several_arguments_of_one_name() -> None:
    theirs = torch.export.export(
        Several(), (torch.randn(4), torch.randn(3)), dynamic_shapes=(({0: AUTO}, {0: AUTO}),)
    )
    module = tintype.interop.from_torch(theirs).module()
    torch.testing.assert_close(module(torch.ones(6), torch.ones(3)), 2 * torch.ones(6))
    with pytest.raises(RuntimeError):
        module(torch.ones(5), torch.ones(3))


def looks(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Asks for more than sizes."""
    if x.is_contiguous() and not y.requires_grad and torch.is_grad_enabled():
        return x * x.stride(0) + y
    return x


def test_questions_of_a_program_come_back_from_torch() -> None:
    x, y = torch.randn(3, 4), torch.randn(3, 4)
    there = tintype.export(looks, (x, y), dynamic_shapes=({0: tintype.Dim("n")}, {0: tintype.Dim("n")}))
    back = tintype.interop.from_torch(tintype.interop.to_torch(there))
    module = back.module()
    torch.testing.assert_close(module(x, y), looks(x, y))
    asked = {(seen.subject, seen.fact) for seen in there._observations}
    assert {(seen.subject, seen.fact) for seen in back._observations} == asked
    with pytest.raises(tintype.TintypeError, match="is_contiguous"):
        module(torch.randn(4, 3).T, y)
    with pytest.raises(tintype.TintypeError, match="requires_grad"):
        module(x, y.clone().requires_grad_())
    with torch.no_grad(), pytest.raises(tintype.TintypeError, match="is_grad_enabled"):
        module(x, y)


@pytest.mark.parametrize("text", ["__import__('os')", "L['x'].__class__", "(lambda: 1)()", "math.__loader__"])
def test_only_what_torch_writes_is_read(text: str) -> None:
    with pytest.raises(tintype.TintypeError, match="guard that can't be taken over"):
        TheirGuards([text])
