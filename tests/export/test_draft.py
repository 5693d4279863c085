"""Drafts: programs for models that an export refuses, with a report of what the example decided."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

import tintype
from tests.export.modes import assert_same

aten = torch.ops.aten


def kinds(program: tintype.ExportedProgram) -> list[str]:
    assert program.report is not None
    return [decision.kind for decision in program.report.decisions]


def refused(function: Any, *args: Any, **options: Any) -> None:
    with pytest.raises(tintype.TintypeError):
        tintype.export(function, args, **options)


def test_nothing_to_decide() -> None:
    value = torch.ones(4, 3)
    model = nn.Linear(3, 2)
    program = tintype.draft_export(model, (value,))
    assert kinds(program) == [] and not program.report
    assert "Nothing had to be decided" in str(program.report)
    assert_same(program.module()(value), model(value))


def by_number(x: torch.Tensor) -> torch.Tensor:
    return x.repeat(3)[: int(x.sum()) * 2].tolist()[0] + x


def by_array(x: torch.Tensor) -> torch.Tensor:
    return x * x.numpy().sum().item()


@pytest.mark.parametrize("function", [by_number, by_array])
def test_what_the_data_decide_is_asserted(function: Any) -> None:
    value = torch.ones(3)
    refused(function, value)
    program = tintype.draft_export(function, (value,))
    assert set(kinds(program)) == {"data-dependent"}
    assert program.report is not None
    (location,) = {decision.location for decision in program.report.decisions}
    assert location is not None and location.function == function.__name__
    assert all(decision.remedy for decision in program.report.decisions)
    for variant in (program, program.run_decompositions()):
        assert_same(variant.module()(value), function(value))
        with pytest.raises(RuntimeError, match="a draft rests on"):
            variant.module()(torch.tensor([0.0, 1.0, 0.0]))


@pytest.fixture
def unknown_operator() -> Iterator[Any]:
    with torch.library._scoped_library("tintype_draft", "FRAGMENT") as library:
        library.define("both(Tensor x, int count) -> (Tensor, Tensor)")
        library.impl("both", lambda x, count: (x[x > 0].repeat(count), x * count), "CPU")
        yield torch.ops.tintype_draft.both


def test_an_operator_without_a_fake_kernel_is_profiled(unknown_operator: Any) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        first, second = unknown_operator(x + 1, 2)
        return first[:2] + second.sum()

    value = torch.ones(3)
    refused(function, value)
    program = tintype.draft_export(function, (value,))
    assert kinds(program) == ["missing-fake-kernel"]
    assert "register_fake('tintype_draft::both'" in str(program.report)
    assert_same(program.module()(value), function(value))
    with pytest.raises(RuntimeError, match="sizes mismatch"):
        program.module()(torch.tensor([1.0, -3.0, 2.0]))  # another number of results than in the example


def test_promises_are_narrowed() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y[1:]

    first, second = tintype.dims("first", "second")
    shapes = {"x": {0: first}, "y": {0: second}}
    x, y = torch.ones(4), torch.ones(5)
    refused(function, x, y, dynamic_shapes=shapes)
    program = tintype.draft_export(function, (x, y), dynamic_shapes=shapes)
    assert kinds(program) == ["specialized"]
    assert "second = first + 1" in str(program.report)
    assert_same(program.module()(torch.ones(7), torch.ones(8)), torch.full((7,), 2.0))


def test_what_a_model_keeps_is_forgotten() -> None:
    class Remembering(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.last = torch.zeros(3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.last = self.last + x
            return x * self.last

    value = torch.full((3,), 2.0)
    refused(Remembering(), value)
    program = tintype.draft_export(Remembering(), (value,))
    assert set(kinds(program)) == {"state-changed", "lost-state"}
    for _ in range(2):
        assert_same(program.module()(value), Remembering()(value))


def test_what_no_example_decides_is_refused() -> None:
    with pytest.raises(tintype.TintypeError, match="is not something a captured program can take"):
        tintype.draft_export(lambda x: x, (object(),))


def test_the_models_own_errors_pass_through() -> None:
    def fails(x: torch.Tensor) -> torch.Tensor:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        tintype.draft_export(fails, (torch.ones(2),))


def test_the_model_is_left_as_it_was() -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(()))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.count.add_(x.sum())
            return (x * 0, x * 1)[int(self.count.item() > 1 and torch.equal(x, x.abs()))]

    model, value = Counting(), torch.ones(3)
    program = tintype.draft_export(model, (value,))
    assert model.count == 0 and kinds(program)
    assert_same(program.module()(value), Counting()(value))


def test_a_draft_leaves_random_numbers_as_they_were():
    before = torch.get_rng_state()
    tintype.draft_export(lambda x: x * (x + torch.rand(3)).numpy().sum().item(), (torch.ones(3),))
    assert torch.equal(torch.get_rng_state(), before)
