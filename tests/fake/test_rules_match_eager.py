"""Every shape rule against eager mode: sizes, strides, dtype, offset, and what it aliases."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from tests.fake.bad_calls import bad_calls
from tests.fake.eager_comparison import Arguments, Comparison, below_autograd, report
from tests.fake.operators import OPERATORS, REACHED_THROUGH, RULES_OF, drive
from tintype.fake.info import TensorInfo
from tintype.fake.rules import RULES
from tintype.fake.rules.registry import overload

aten = torch.ops.aten

# Promised never to be written to, so that programs may take its result for a tensor of its own.
ALIASES_ON_PURPOSE = "aten._unsafe_view."


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Small kernels on several threads mostly wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def failures(comparison: Comparison) -> list[str]:
    return [
        failure
        for failure in comparison.failures.values()
        if not (failure.startswith(ALIASES_ON_PURPOSE) and failure.endswith("it aliases an argument"))
    ]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", OPERATORS)
def test_the_rules_of_an_operator_agree_with_eager_mode(name: str) -> None:
    """Its own calls are compared, with whatever they call; and each of its rules was compared at least once."""
    driven = drive(REACHED_THROUGH.get(name, name))
    assert not driven.refused, report(driven.refused)
    assert not failures(driven.comparison), report(failures(driven.comparison))
    compared = driven.comparison.compared
    undriven = [str(operator) for operator in RULES_OF.get(name, []) if operator not in compared]
    assert not undriven, f"nothing drives the rules of {undriven}: direct_calls.py or operators.py should"
    assert compared, f"no sample of {name} calls an operator with a rule: it belongs to samples.WITHOUT_RULES"


def test_only_operators_with_rules_are_reached_through_others() -> None:
    assert not set(REACHED_THROUGH) - set(RULES_OF)
    assert not set(REACHED_THROUGH.values()) - set(OPERATORS)


def test_an_operator_that_writes_to_its_statistics_has_no_rule() -> None:
    assert aten.batch_norm.default in RULES  # whose writes the recorder knows
    assert aten.instance_norm.default not in RULES  # its parts are recorded


def test_every_rule_takes_what_its_operator_takes() -> None:
    """By position or by name: the recorder passes arguments on as they come."""
    import inspect

    wrong = []
    for operator, rule in RULES.items():
        parameters = inspect.signature(rule).parameters.values()
        if any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters):
            continue
        wanted = operator._schema.arguments
        if len([a for a in wanted if not a.kwarg_only]) > len(
            [p for p in parameters if p.kind is not p.KEYWORD_ONLY]
        ):
            wrong.append(f"{operator} has more arguments than its rule")
        names = {p.name for p in parameters}
        wrong += [f"{operator}: no {a.name}" for a in wanted if a.kwarg_only and a.name not in names]
    assert not wrong, report(wrong)


# --- refusals --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name, args, kwargs", list(bad_calls()))
def test_a_rule_refuses_what_eager_mode_refuses(name: str, args: Any, kwargs: Any) -> None:
    with pytest.raises((RuntimeError, IndexError, ValueError)) as eager, below_autograd():
        overload(name)(*args, **kwargs)
    arguments = Arguments()
    infos = arguments.convert(args)
    with pytest.raises((RuntimeError, IndexError, ValueError)) as ours:
        RULES[overload(name)](*infos, **kwargs)
    assert not isinstance(ours.value, NotImplementedError)
    assert isinstance(ours.value, eager.type)


# --- the comparison itself -------------------------------------------------------------------------------


def wrong_size(self: TensorInfo, other: Any) -> TensorInfo:
    return self.fresh((*self.sizes, 1))


def wrong_strides(self: TensorInfo, other: Any) -> TensorInfo:
    return TensorInfo(self.sizes, self.strides[::-1], self.dtype, self.device)


def wrong_dtype(self: TensorInfo, other: Any) -> TensorInfo:
    return self.fresh(dtype=torch.float64)


def wrong_alias(self: TensorInfo, other: Any) -> TensorInfo:
    return self.view(self.sizes, self.strides)


def wrong_offset(self: TensorInfo, other: Any) -> TensorInfo:
    return TensorInfo(self.sizes, self.strides, self.dtype, self.device, 1)


def wrong_count(self: TensorInfo, other: Any) -> list[TensorInfo]:
    return [self.fresh(), self.fresh()]


def refuses(self: TensorInfo, other: Any) -> TensorInfo:
    raise RuntimeError("no")


@pytest.mark.parametrize(
    "rule", [wrong_size, wrong_strides, wrong_dtype, wrong_alias, wrong_offset, wrong_count, refuses]
)
def test_a_wrong_rule_is_found_out(rule: Any) -> None:
    comparison = Comparison({aten.add.Tensor: rule})
    with below_autograd(), comparison:
        torch.rand(3, 4) + torch.rand(3, 4)
    assert comparison.failures


def test_a_view_that_is_taken_for_a_copy_is_found_out() -> None:
    def copying(self: TensorInfo, dim0: int, dim1: int) -> TensorInfo:
        return TensorInfo(self.sizes[::-1], self.strides[::-1], self.dtype, self.device)

    comparison = Comparison({aten.transpose.int: copying})
    with below_autograd(), comparison:
        torch.rand(3, 4).transpose(0, 1)
    assert comparison.failures
