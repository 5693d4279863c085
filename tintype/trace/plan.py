"""How the recorder treats an operator, worked out once per operator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tintype.errors import UnsupportedOperatorError
from tintype.fake.rules import RULES
from tintype.symbolic.location import user_location

_DISPATCH_COMPOSITE = "CompositeImplicitAutograd"

# Operators that write to arguments without saying so in their schema, where training is on.
_HIDDEN_WRITES = {
    "aten::batch_norm": (3, 4),
    "aten::native_batch_norm": (3, 4),
    "aten::instance_norm": (3, 4),
    "aten::_batch_norm_impl_index": (3, 4),
    "aten::cudnn_batch_norm": (3, 4),
    "aten::miopen_batch_norm": (3, 4),
}


class Plan:
    """What is known of an operator before it is called."""

    __slots__ = (
        "aliases",
        "composite",
        "hidden_writes",
        "in_place",
        "intercept",
        "is_plain",
        "name",
        "returns_nothing",
        "rule",
        "writes",
    )

    def __init__(self, operator: Any) -> None:
        schema = operator._schema
        self.name: str = operator.overloadpacket.__name__
        self.rule = RULES.get(operator)
        # a function that handles the operator by itself, or declines; see tintype.trace.intercepts
        self.intercept: Callable[..., Any] | None = None
        # positions (or names, for keyword-only arguments) of the arguments that are written to
        self.writes: tuple[int | str, ...] = tuple(
            argument.name if argument.kwarg_only else position
            for position, argument in enumerate(schema.arguments)
            if argument.alias_info is not None and argument.alias_info.is_write
        )
        self.hidden_writes = _HIDDEN_WRITES.get(schema.name, ())
        self.aliases = any(result.alias_info is not None for result in schema.returns)
        self.in_place = self.writes == (0,) and len(schema.returns) == 1
        # called for its effect alone, which its kernel must not have while a program is captured
        self.returns_nothing = not schema.returns
        self.composite = is_composite(operator)
        # nothing but to work it out by its rule and record it, where autocast is off; an intercept changes that
        self.is_plain = self.rule is not None


def is_composite(operator: Any) -> bool:
    """Whether an operator is defined by a kernel that calls other operators, gradients included."""
    name = operator.name()
    # some operators exist for TorchScript only; the dispatcher does not know them
    return torch._C._dispatch_has_kernel(name) and torch._C._dispatch_has_kernel_for_dispatch_key(
        name, _DISPATCH_COMPOSITE
    )


def may_stay_composite(operator: Any) -> bool:
    """Whether a composite operator is known to return new tensors and to write to nothing, whatever its arguments
    are: a functional program can have it whole."""
    plan = plan_for(operator)
    return (
        plan.composite
        and not plan.aliases
        and not plan.writes
        and not plan.hidden_writes
        and not plan.returns_nothing
        and torch.Tag.maybe_aliasing_or_mutating not in operator.tags
    )


class HigherOrderPlan:
    """The plan of an operator that takes functions: a function of its own captures it."""

    __slots__ = ("intercept",)
    is_plain = False

    def __init__(self, capture: Callable[..., Any]) -> None:
        self.intercept = lambda recorder, operator, args, kwargs: capture(recorder, *args, **kwargs)


def captures(operator: Any) -> Callable[[Any], Any]:
    """Register the function ``(recorder, *arguments) -> results`` that captures an operator which takes functions."""

    def register(function: Any) -> Any:
        _PLANS[operator] = _BY_ID[id(operator)] = HigherOrderPlan(function)
        return function

    return register


def handle_by(operator: Any, function: Callable[..., Any]) -> None:
    """Let a function handle an operator, or decline; see :mod:`tintype.trace.intercepts`."""
    plan = plan_for(operator)
    plan.intercept, plan.is_plain = function, False


_PLANS: dict[Any, Any] = {}
_BY_ID: dict[int, Any] = {}  # the same: to hash an operator is a call of a Python function

# Operators that take functions and can't be captured, by name: what they are, and what to do instead.
REFUSALS: dict[str, tuple[str, str]] = {}


def is_captured(operator: Any) -> bool:
    """Whether there is a function that captures an operator which takes functions."""
    return operator in _PLANS


def plan_for(operator: Any) -> Plan:
    """The plan of an operator."""
    plan = _BY_ID.get(id(operator))
    return _new_plan(operator) if plan is None else plan


def _new_plan(operator: Any) -> Plan:
    if not isinstance(operator, torch._ops.OpOverload):
        raise _refusal(operator)
    prepare = ON_FIRST_USE.get(operator.namespace)
    if prepare is not None:
        prepare()
    plan = _PLANS.get(operator) or Plan(operator)
    _PLANS[operator] = _BY_ID[id(operator)] = plan
    return plan


# What to do when an operator of a namespace is met that has no plan yet; it takes itself out of the table when done.
ON_FIRST_USE: dict[str, Callable[[], None]] = {}


def _refusal(operator: Any) -> UnsupportedOperatorError:
    name = operator.name() if isinstance(operator, torch._ops.HigherOrderOperator) else str(operator)
    reason, remedy = REFUSALS.get(name, ("tintype does not know it", "call it outside of the program"))
    return UnsupportedOperatorError(
        f"the operator {name} can't be captured: {reason}", location=user_location(), remedy=remedy
    )


def functional_counterpart(operator: Any) -> Any | None:
    """The operator that computes what an in-place or ``out=`` operator writes, or None."""
    if operator not in _COUNTERPARTS:
        _COUNTERPARTS[operator] = _find_counterpart(operator)
    return _COUNTERPARTS[operator]


_COUNTERPARTS: dict[Any, Any | None] = {}

# Where the functional operator has another name than the rule "drop the underscore" gives.
_RENAMED = {
    "bernoulli_.float": "bernoulli.p",
    "bernoulli_.Tensor": "bernoulli.Tensor",
    "normal_.default": "normal_functional.default",
}


def _find_counterpart(operator: Any) -> Any | None:
    namespace, name = operator._schema.name.split("::")
    packets = getattr(torch.ops, namespace)
    renamed = _RENAMED.get(f"{name}.{operator._overloadname}")
    if renamed is not None:
        packet_name, _, variant = renamed.partition(".")
        return getattr(getattr(packets, packet_name), variant)
    wanted = [
        (argument.name, str(argument.type))
        for argument in operator._schema.arguments
        if not (argument.kwarg_only and argument.alias_info is not None and argument.alias_info.is_write)
    ]
    if name.startswith("__i") and name.endswith("__"):  # x &= y
        name = f"__{name.removeprefix('__i')}"
    packet = getattr(packets, name[:-1] if name.endswith("_") and not name.endswith("__") else name, None)
    for variant in packet.overloads() if packet is not None else ():
        found = getattr(packet, variant)
        if found._schema.is_mutable or found is operator:
            continue
        if [(a.name, str(a.type)) for a in found._schema.arguments] == wanted:
            return found
    return None
