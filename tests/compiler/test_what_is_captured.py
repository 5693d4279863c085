"""Code that libraries are made of is captured: operators of classes, context variables, remembered results."""

from __future__ import annotations

import collections
import functools
import os
import subprocess
import sys
from collections.abc import Iterator, MutableMapping
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest
import torch

import tintype
from tests.compiler.test_compile import captures

pytestmark = pytest.mark.direct(reason="compiled functions are not exported")


class Scaled:
    """A number with operators of its own."""

    def __init__(self, factor: float) -> None:
        self.factor = factor

    def __mul__(self, other: Any) -> Any:
        return other * self.factor

    def __rmul__(self, other: Any) -> Any:
        return other * self.factor

    def __imul__(self, other: float) -> Scaled:
        self.factor *= other
        return self

    def __neg__(self) -> Scaled:
        return Scaled(-self.factor)

    def __lt__(self, other: Any) -> bool:
        return bool(self.factor < other)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Scaled) and other.factor == self.factor

    def __bool__(self) -> bool:
        return self.factor != 0

    def __contains__(self, value: float) -> bool:
        return value == self.factor


def test_operators_of_the_users_classes_are_captured() -> None:
    def use(x: torch.Tensor, scaled: Scaled) -> torch.Tensor:
        if not scaled or scaled == Scaled(7) or 9 in scaled:
            return x
        if scaled < 3:
            return scaled * x + 1
        return x * -scaled + 3 * scaled

    compiled = tintype.compile(use)
    x = torch.arange(3.0)
    for factor in (2, 5, 0, 7, 9, 2, 5, 0):
        assert torch.equal(compiled(x, Scaled(factor)), use(x, Scaled(factor)))
    assert captures(compiled) <= 6


def test_an_operator_that_changes_its_left_side_changes_it_each_time() -> None:
    def grow(x: torch.Tensor, scaled: Scaled) -> torch.Tensor:
        scaled *= 2
        return x * scaled

    compiled, mine, other = tintype.compile(grow), Scaled(1), Scaled(1)
    for _ in range(4):
        assert torch.equal(compiled(torch.ones(2), mine), grow(torch.ones(2), other)) and mine == other


@pytest.mark.parametrize(
    "name", ["__mul__", "__getitem__", "__call__", "__init__", "__len__", "__iter__", "__enter__"]
)
def test_special_methods_that_are_replaced_are_noticed(name: str) -> None:
    class Odd:
        def __init__(self) -> None:
            self.base = 1.0

        def __mul__(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2

        def __getitem__(self, key: int) -> float:
            return 3.0

        def __call__(self, x: torch.Tensor) -> torch.Tensor:
            return x + 4

        def __len__(self) -> int:
            return 5

        def __iter__(self) -> Iterator[float]:
            yield 6.0

        def __enter__(self) -> float:
            return 7.0

        def __exit__(self, *error: object) -> None:
            pass

    def use(x: torch.Tensor) -> torch.Tensor:
        odd = Odd()
        with odd as seven:
            x = x + seven
        return odd(odd * x) + odd[0] + len(odd) + odd.base + next(iter(odd))

    def initialize(self: Any) -> None:
        self.base = 10.0

    replacements: dict[str, Any] = {
        "__mul__": lambda self, x: x * 20,
        "__getitem__": lambda self, key: 30.0,
        "__call__": lambda self, x: x + 40,
        "__init__": initialize,
        "__len__": lambda self: 50,
        "__iter__": lambda self: iter([60.0]),
        "__enter__": lambda self: 70.0,
    }
    compiled, x = tintype.compile(use), torch.ones(2)
    assert torch.equal(compiled(x), use(x)) and torch.equal(compiled(x), use(x)) and captures(compiled) == 1
    setattr(Odd, name, replacements[name])
    assert torch.equal(compiled(x), use(x)) and torch.equal(compiled(x), use(x))


class Registry(MutableMapping[str, Any]):
    """A mapping as libraries have it."""

    def __init__(self, **items: Any) -> None:
        self.items_of_mine = items

    def __getitem__(self, key: str) -> Any:
        return self.items_of_mine[key]

    def __setitem__(self, key: str, value: Any) -> None:
        self.items_of_mine[key] = value

    def __delitem__(self, key: str) -> None:
        del self.items_of_mine[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.items_of_mine)

    def __len__(self) -> int:
        return len(self.items_of_mine)


def test_mappings_of_the_users_own_are_captured() -> None:
    registry = Registry(relu=torch.relu, scale=2.0)

    def use(x: torch.Tensor) -> torch.Tensor:
        return registry["relu"](x) * registry["scale"] if "relu" in registry else x * registry.get("scale", 1.0)

    compiled, x = tintype.compile(use), torch.randn(3)
    assert torch.equal(compiled(x), use(x)) and torch.equal(compiled(x), use(x)) and captures(compiled) == 1
    registry["scale"] = 3.0
    assert torch.equal(compiled(x), use(x)) and captures(compiled) == 2
    del registry["relu"]
    assert torch.equal(compiled(x), use(x))


class Makes(collections.OrderedDict[str, Any]):
    """A dictionary that gives something else than it holds."""

    def __getitem__(self, key: str) -> Any:
        return super().__getitem__(key)()


def test_dictionaries_that_give_what_they_do_not_hold() -> None:
    made = Makes(relu=torch.nn.ReLU, sigmoid=torch.nn.Sigmoid)
    compiled = tintype.compile(lambda x: made["relu"](x) - made["sigmoid"](x))
    x = torch.randn(3)
    for _ in range(3):
        assert torch.equal(compiled(x), x.relu() - x.sigmoid())
    assert captures(compiled) == 1


def test_modules_that_a_function_makes_after_torchs_compiler_was_used(tmp_path: Path) -> None:
    """It replaces what makes modules, for good: in a process of its own."""
    script = tmp_path / "model.py"
    script.write_text(
        "import torch, tintype\n"
        "from torch._dynamo.mutation_guard import install_generation_tagging_init\n"
        "compiled = tintype.compile(lambda x: torch.nn.ReLU()(x) - 1)\n"
        "x = torch.randn(3)\n"
        "compiled(x)\n"
        "install_generation_tagging_init()\n"
        "tintype.compile.reset()\n"
        "assert torch.equal(compiled(x), x.relu() - 1) and torch.equal(compiled(x), x.relu() - 1)\n"
        "assert 'eagerly' not in str(compiled.explain()), compiled.explain()\n",
        encoding="utf-8",
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(tintype.__file__).parents[1])}
    command = [sys.executable, str(script)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


ACTIVE: ContextVar[Any] = ContextVar("active", default=None)


def test_context_variables_are_set_read_and_set_back() -> None:
    def inner(x: torch.Tensor) -> torch.Tensor:
        found = ACTIVE.get()
        return x if found is None else x * found["factor"]

    def use(x: torch.Tensor, raises: bool = False) -> torch.Tensor:
        before = inner(x)
        token = ACTIVE.set({"factor": 3})
        try:
            if raises:
                raise KeyError
            return inner(x) + before
        finally:
            ACTIVE.reset(token)

    compiled, x = tintype.compile(use), torch.ones(2)
    assert [float(compiled(x)[0]) for _ in range(3)] == [4, 4, 4] and ACTIVE.get() is None and captures(compiled) == 1
    token = ACTIVE.set({"factor": 10})
    assert [float(compiled(x)[0]) for _ in range(2)] == [13, 13] and ACTIVE.get() == {"factor": 10}
    ACTIVE.reset(token)
    for _ in range(2):
        with pytest.raises(KeyError):
            compiled(x, True)
        assert ACTIVE.get() is None


def test_a_context_variable_is_set_back_before_a_run_is_captured_anew() -> None:
    def use(x: torch.Tensor) -> torch.Tensor:
        before = ACTIVE.get()
        token = ACTIVE.set(5)
        sign = 1 if x.sum() > 0 else -1
        ACTIVE.reset(token)
        return x * sign + (0 if before is None else before)

    compiled = tintype.compile(use)
    for value in (1.0, -1.0, 1.0, -1.0):
        assert torch.equal(compiled(torch.full((2,), value)), torch.ones(2)) and ACTIVE.get() is None
    assert captures(compiled) == 2


def test_functions_that_remember_their_results() -> None:
    calls = []

    @functools.lru_cache(None)
    def table(size: int) -> torch.Tensor:
        calls.append(size)
        return torch.arange(float(size))

    compiled = tintype.compile(lambda x: x + table(x.shape[0]))
    for size in (3, 3, 4, 3, 4):
        assert torch.equal(compiled(torch.ones(size)), torch.ones(size) + torch.arange(float(size)))
    assert calls == [3, 4]
    table.cache_clear()
    assert torch.equal(compiled(torch.ones(3)), torch.ones(3) + torch.arange(3.0)) and calls == [3, 4, 3]


def test_compiled_code_is_told_that_it_is_compiled() -> None:
    def use(x: torch.Tensor) -> torch.Tensor:
        return x + 1 if torch.compiler.is_compiling() else x

    compiled = tintype.compile(use)
    assert compiled(torch.zeros(1)) == 1 and compiled(torch.zeros(1)) == 1 and not torch.compiler.is_compiling()


def test_an_attribute_that_a_tensor_may_have() -> None:
    compiled = tintype.compile(lambda x: x * x.scale if hasattr(x, "scale") else x)
    x = torch.ones(2)
    assert compiled(x)[0] == 1 and compiled(x)[0] == 1
    x.scale = 3  # type: ignore[attr-defined]
    assert compiled(x)[0] == 3 and compiled(torch.ones(2))[0] == 1 and captures(compiled) == 2


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads[0] * 5


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_autograd_functions_are_no_break(backend: str) -> None:
    compiled = tintype.compile(lambda x: Doubled.apply(x.sin()).cos(), backend=backend, fullgraph=True)
    for _ in range(3):
        x = torch.ones(2, requires_grad=True)
        y = torch.ones(2, requires_grad=True)
        compiled(x).sum().backward()
        Doubled.apply(y.sin()).cos().sum().backward()
        assert x.grad is not None and y.grad is not None and torch.equal(x.grad, y.grad)


def test_parameters_and_parametrizations_are_walked_through() -> None:
    linear = torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(3, 3))
    model = torch.nn.Sequential(linear, torch.nn.ReLU())
    compiled = tintype.compile(lambda x: model(x) * len(list(model.parameters())) + next(model.parameters()).sum())
    x = torch.randn(2, 3)
    for _ in range(3):
        assert torch.equal(compiled(x), model(x) * 3 + next(model.parameters()).sum())
    assert captures(compiled) == 1


def test_numpy_computes_each_time() -> None:
    numpy = pytest.importorskip("numpy")

    def use(x: torch.Tensor, table: Any) -> Any:
        array = x.numpy() * 2 + table
        array[0] = -array[1]
        array += 1
        if array[1] > 3 and not (array < -100).any():
            array = -array
        return torch.from_numpy(array) * float(array.sum()), array.shape, numpy.exp(array)

    compiled = tintype.compile(use)
    for seed in range(8):
        generator = numpy.random.default_rng(seed)
        x, table = torch.from_numpy(generator.normal(size=4)), generator.normal(size=4) * 3
        found, expected = compiled(x, table), use(x, table)
        assert torch.equal(found[0], expected[0]) and found[1] == expected[1] and (found[2] == expected[2]).all()
    assert captures(compiled) <= 2
