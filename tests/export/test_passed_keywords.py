"""Keyword arguments that are only passed on: the program is captured once, and takes them in any order; those that
somebody looks at on the way are found."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch

import tintype
from tintype.errors import InputMismatchError
from tintype.export.passed_keywords import looked_at


class Named(torch.nn.Module):
    def forward(self, first: torch.Tensor, second: torch.Tensor, third: float = 1.0) -> torch.Tensor:
        return first * 2 - second * third


class Rest(torch.nn.Module):
    """Goes by the order of what it has no name for."""

    def forward(self, first: torch.Tensor, **rest: torch.Tensor) -> torch.Tensor:
        return first + torch.cat([value.sum()[None] for value in rest.values()])[0]


class Wrapper(torch.nn.Module):
    def __init__(self, model: torch.nn.Module | None = None) -> None:
        super().__init__()
        self.model = Named() if model is None else model
        self.other = Named()
        self.scale = 3.0


class PassesOn(Wrapper):
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.model(*args, **kwargs) + 1


class AfterOthers(Wrapper):
    def forward(self, **kwargs: Any) -> Any:
        scaled = self.model(third=self.scale, **kwargs)
        return scaled * self.other(**kwargs)


class ByMethods(Wrapper):
    def forward(self, **kwargs: Any) -> Any:
        return self.helper(**kwargs)

    def helper(self, **kwargs: Any) -> Any:
        return self.model.forward(**kwargs)


class Twice(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.ModuleDict({"wrapper": PassesOn()})

    def forward(self, **kwargs: Any) -> Any:
        return self.inner.wrapper(**kwargs)


class Merged(Wrapper):
    def forward(self, **kwargs: Any) -> Any:
        merged = {**kwargs}
        return self.model(**merged)


class Items(Wrapper):
    def forward(self, **kwargs: Any) -> Any:
        return self.model(**kwargs) + next(iter(kwargs.values()))


class Closure(Wrapper):
    def forward(self, **kwargs: Any) -> Any:
        def first() -> torch.Tensor:
            return next(iter(kwargs.values()))

        return self.model(**kwargs) * first()


class Locals(Wrapper):
    def forward(self, **kwargs: Any) -> Any:
        return self.model(**kwargs) * next(iter(locals()["kwargs"].values()))


class Swapped(Wrapper):
    def forward(self, **kwargs: Any) -> Any:
        self.model = Rest()
        return self.model(**kwargs)


class AnotherSelf(Wrapper):
    def forward(self, **kwargs: Any) -> Any:
        self = self.model
        return self.model(**kwargs)


class Global(Wrapper):
    def forward(self, **kwargs: Any) -> Any:
        return _first(**kwargs)


def _first(**kwargs: torch.Tensor) -> torch.Tensor:
    return next(iter(kwargs.values())) * 2


NAMES = ("first", "second")
UNSEEN = [PassesOn(), AfterOthers(), ByMethods(), Twice(), PassesOn(Twice())]
SEEN = [Merged(), Items(), Closure(), Locals(), Swapped(), AnotherSelf(Wrapper()), Global()]


@pytest.mark.parametrize("model", UNSEEN, ids=lambda model: type(model).__name__)
def test_what_is_passed_on_by_name_is_not_looked_at(model: torch.nn.Module) -> None:
    assert looked_at(model.forward, NAMES) == []
    given = {"first": torch.randn(3), "second": torch.randn(3)}
    program = tintype.export(model, (), given)
    for kwargs in (given, dict(reversed(given.items()))):
        torch.testing.assert_close(program.module()(**kwargs), model(**kwargs))


@pytest.mark.parametrize("model", SEEN, ids=lambda model: type(model).__name__)
def test_what_may_be_looked_at_is_found(model: torch.nn.Module) -> None:
    assert looked_at(model.forward, NAMES) == [*NAMES]


def _hooked() -> torch.nn.Module:
    model = PassesOn()

    def see(module: torch.nn.Module, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        return args, {**kwargs, "third": float(list(kwargs).index("second"))}

    model.model.register_forward_pre_hook(see, with_kwargs=True)
    return model


class _Calls(Named):
    def __call__(self, **kwargs: Any) -> Any:
        return super().__call__(**kwargs) + float(next(iter(kwargs)) == "first")


@pytest.mark.parametrize("model", [_hooked(), PassesOn(_Calls()), Items(), PassesOn(Items())])
def test_who_looks_at_the_order_on_the_way_is_asked(model: torch.nn.Module) -> None:
    given = {"first": torch.randn(3), "second": torch.randn(3)}
    module = tintype.export(model, (), given).module()
    torch.testing.assert_close(module(**given), model(**given))
    with pytest.raises(InputMismatchError, match="order"):
        module(**dict(reversed(given.items())))


def test_only_what_has_no_name_has_an_order() -> None:
    assert looked_at(Rest().forward, ("first", "a")) == []
    assert looked_at(PassesOn(Rest()).forward, ("first", "a", "b")) == ["a", "b"]


class SignedOtherwise(torch.nn.Module):
    """Says that its keyword arguments have another name than they have."""

    def forward(self, *values: torch.Tensor, **kwargs: torch.Tensor) -> torch.Tensor:
        return sum(values) + kwargs["b"] * 2 + kwargs["a"]  # type: ignore[return-value]

    forward.__signature__ = inspect.signature(lambda self, *values, **more: None)  # type: ignore[attr-defined]


def test_signatures_that_are_not_those_of_the_code() -> None:
    model = SignedOtherwise()
    given, more = (torch.ones(2), torch.ones(2)), {"b": torch.randn(2), "a": torch.randn(2)}
    program = tintype.export(model, given, more)
    torch.testing.assert_close(program.module()(*given, **more), model(*given, **more))
