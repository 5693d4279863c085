"""Views that a program tries, where it catches the error that says that the layout does not allow them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import tintype
from tests.export.modes import capture


def _viewed(x: torch.Tensor) -> torch.Tensor:
    return x.view(2, -1)


class _Own(Exception):
    pass


class Tried(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        try:
            return _viewed(x) + 1
        except RuntimeError:
            return x * 2


class OneOfSeveral(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        try:
            return (x * 3).view(-1) + 1
        except TypeError:
            raise
        except (ValueError, Exception):
            return x * 2


class InAManager(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        import contextlib

        with contextlib.suppress(RuntimeError):
            x = x.view(2, -1) + 1
        return x * 2


@pytest.mark.parametrize("model", [Tried(), OneOfSeveral(), InAManager()], ids=lambda model: type(model).__name__)
@pytest.mark.parametrize("is_transposed", [False, True])
@pytest.mark.parametrize("strict", [False, True])
def test_another_layout_is_refused(model: torch.nn.Module, is_transposed: bool, strict: bool) -> None:
    straight, transposed = torch.randn(4, 6), torch.randn(6, 4).t()
    example, other = (transposed, straight) if is_transposed else (straight, transposed)
    module = tintype.export(model, (example,), strict=strict).module()
    for given in (example, example + 0):
        torch.testing.assert_close(module(given), model(given))
    assert model(other).shape != model(example).shape
    with pytest.raises(tintype.InputMismatchError, match="stride"):
        module(other)


def _another_error(x: torch.Tensor) -> torch.Tensor:
    try:
        return x.transpose(0, 1).contiguous().view(-1) + x.reshape(-1)
    except (TypeError, _Own):
        return x


def _parts_of_dimensions(x: torch.Tensor) -> torch.Tensor:
    try:
        return x.view(2, 2, 6) * 2
    except RuntimeError:
        return x


def _behind(x: torch.Tensor) -> torch.Tensor:
    try:
        y = x * 2
    except RuntimeError:
        y = x
    return y.reshape(-1)


@pytest.mark.parametrize("function", [_another_error, _parts_of_dimensions, _behind], ids=lambda f: f.__name__)
def test_any_layout_is_taken_where_nothing_rests_on_it(function: Callable[..., torch.Tensor], mode: str) -> None:
    straight, transposed = torch.randn(4, 6), torch.randn(6, 4).t()
    for example in (straight, transposed):
        module = capture(mode, function, (example,)).module()
        for given in (straight, transposed):
            torch.testing.assert_close(module(given), function(given))
