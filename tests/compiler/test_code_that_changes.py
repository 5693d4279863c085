"""Functions and methods whose code, defaults and attributes change between calls while they stay the same objects:
notebooks do that when a file is loaded again."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

import pytest
import torch
from torch import nn

import tintype

pytestmark = pytest.mark.direct(reason="compiled functions are not exported")


class Scaled:
    def method(self, x: Any, n: int = 1) -> Any:
        return x * n

    @staticmethod
    def static(x: Any, n: int = 1) -> Any:
        return x * n

    @classmethod
    def of_class(cls, x: Any, n: int = 1) -> Any:
        return x * n

    @property
    def scale(self) -> int:
        return 1

    def __add__(self, x: Any, n: int = 1) -> Any:
        return x * n

    def __call__(self, x: Any, n: int = 1) -> Any:
        return x * n


class Layer(nn.Module):
    def forward(self, x: Any, n: int = 1) -> Any:
        return self.helper(x) * n

    def helper(self, x: Any, n: int = 1) -> Any:
        return x * n


def helper(x: Any, n: int = 1) -> Any:
    return x * n


SCALED, LAYER = Scaled(), Layer()
CASES: dict[str, tuple[Callable[[Any], Any], FunctionType]] = {
    "function": (lambda x: helper(x), helper),
    "method": (lambda x: SCALED.method(x), Scaled.method),
    "static": (lambda x: Scaled.static(x), Scaled.__dict__["static"].__func__),
    "of a class": (lambda x: SCALED.of_class(x), Scaled.__dict__["of_class"].__func__),
    "property": (lambda x: x * SCALED.scale, Scaled.__dict__["scale"].fget),
    "operator": (lambda x: SCALED + x, Scaled.__add__),
    "call": (lambda x: SCALED(x), Scaled.__call__),
    "forward": (lambda x: LAYER(x), Layer.forward),
    "method of a layer": (lambda x: LAYER(x), Layer.helper),
}


def _twice(*arguments: Any) -> Any:
    return arguments[-1] * 2 if isinstance(arguments[-1], torch.Tensor) else 2


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("name", list(CASES))
def test_code_that_is_replaced(name: str, backend: str) -> None:
    function, changed = CASES[name]
    compiled = tintype.compile(function, backend=backend)
    x = torch.ones(2)
    was = changed.__code__
    for _ in range(2):
        assert torch.equal(compiled(x), x)
    changed.__code__ = _twice.__code__
    try:
        for _ in range(2):
            assert torch.equal(compiled(x), x * 2)
    finally:
        changed.__code__ = was
    captures = compiled.engine.captures
    assert torch.equal(compiled(x), x)
    assert compiled.engine.captures == captures  # the first run fits again


@pytest.mark.parametrize("name", [name for name, (_, changed) in CASES.items() if changed.__defaults__])
def test_defaults_that_are_replaced(name: str) -> None:
    function, changed = CASES[name]
    compiled = tintype.compile(function)
    x = torch.ones(2)
    for _ in range(2):
        assert torch.equal(compiled(x), x)
    changed.__defaults__ = (5,)
    try:
        for _ in range(2):
            assert torch.equal(compiled(x), x * 5)
    finally:
        changed.__defaults__ = (1,)


def test_defaults_of_keywords_that_are_written_to() -> None:
    def scaled(x: Any, *, factor: Any = 3, more: Any = None) -> Any:
        return x * factor if more is None else x + more

    class Holder:
        def scaled(self, x: Any, *, factor: Any = 3) -> Any:
            return x * factor

    holder = Holder()
    compiled = tintype.compile(lambda x: (scaled(x), holder.scaled(x)))
    x = torch.ones(2)

    def check() -> None:
        for _ in range(2):
            for found, expected in zip(compiled(x), (scaled(x), holder.scaled(x)), strict=True):
                assert torch.equal(found, expected)

    check()
    keywords: Any = scaled.__kwdefaults__
    keywords["factor"] = 4
    check()
    keywords["more"] = torch.zeros(2)
    check()
    keywords["more"] = torch.ones(2)
    check()
    methods: Any = Holder.scaled.__kwdefaults__
    methods["factor"] = 7
    check()
    scaled.__kwdefaults__ = {"factor": 1, "more": None}
    check()
