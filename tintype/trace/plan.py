"""How the recorder treats an operator, worked out once per operator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tintype.errors import UnsupportedOperatorError
from tintype.fake.rules import RULES
from tintype.ir.operator_facts import OperatorFacts
from tintype.symbolic.location import user_location


class Plan(OperatorFacts):
    """What is known of an operator before it is called, and how it is worked out."""

    def __init__(self, operator: torch._ops.OpOverload) -> None:
        super().__init__(operator)
        self.rule = RULES.get(operator)
        # a function that handles the operator by itself, or declines; see tintype.trace.intercepts
        self.intercept: Callable[..., Any] | None = None
        # nothing but to work it out by its rule and record it, where autocast is off; an intercept changes that
        self.is_plain = self.rule is not None


class HigherOrderPlan:
    """The plan of an operator that takes functions: a function of its own captures it."""

    __slots__ = ("intercept",)
    is_plain = False

    def __init__(self, capture: Callable[..., Any]) -> None:
        self.intercept = lambda recorder, operator, args, kwargs: capture(recorder, *args, **kwargs)


# The operators that take functions, by the functions that capture them.
OPERATOR_OF: dict[Callable[..., Any], Any] = {}


def captures(operator: Any) -> Callable[[Any], Any]:
    """Register the function ``(recorder, *arguments) -> results`` that captures an operator which takes functions."""

    def register(function: Any) -> Any:
        OPERATOR_OF[function] = operator
        _PLANS[operator] = PLANS[id(operator)] = HigherOrderPlan(function)
        return function

    return register


def handle_by(operator: Any, function: Callable[..., Any]) -> None:
    """Let a function handle an operator, or decline; see :mod:`tintype.trace.intercepts`."""
    plan = plan_for(operator)
    plan.intercept, plan.is_plain = function, False


_PLANS: dict[Any, Any] = {}
PLANS: dict[int, Any] = {}  # the same: to hash an operator is a call of a Python function

# Operators that take functions and can't be captured, by name: what they are, and what to do instead.
REFUSALS: dict[str, tuple[str, str]] = {}


def is_captured(operator: Any) -> bool:
    """Whether there is a function that captures an operator which takes functions."""
    return operator in _PLANS


def plan_for(operator: Any) -> Plan:
    """The plan of an operator."""
    plan = PLANS.get(id(operator))
    return _new_plan(operator) if plan is None else plan


def _new_plan(operator: Any) -> Plan:
    if not isinstance(operator, torch._ops.OpOverload):
        raise _refusal(operator)
    prepare = ON_FIRST_USE.get(operator.namespace)
    if prepare is not None:
        prepare()
    plan = _PLANS.get(operator) or Plan(operator)
    _PLANS[operator] = PLANS[id(operator)] = plan
    return plan


# What to do when an operator of a namespace is met that has no plan yet; it takes itself out of the table when done.
ON_FIRST_USE: dict[str, Callable[[], None]] = {}


def _refusal(operator: Any) -> UnsupportedOperatorError:
    name = operator.name() if isinstance(operator, torch._ops.HigherOrderOperator) else str(operator)
    reason, remedy = REFUSALS.get(name, ("tintype does not know it", "call it outside of the program"))
    return UnsupportedOperatorError(
        f"the operator {name} can't be captured: {reason}", location=user_location(), remedy=remedy
    )
