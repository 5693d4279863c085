"""What a compiled function deletes has to be there in a later call: else Python raises what the program may catch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import tintype

pytestmark = pytest.mark.direct(reason="compiled functions are not exported")


class Plain:
    pass


class Slots:
    __slots__ = ("scale",)


class Deletes:
    def __delete__(self, owner: Any) -> None:
        delattr(owner, "_scale")

    def __set__(self, owner: Any, value: Any) -> None:
        owner._scale = value


class Described:
    scale = Deletes()


def delete_statement(owner: Any) -> None:
    del owner.scale


def delete_call(owner: Any) -> None:
    delattr(owner, "scale")


def delete_global(owner: Any) -> None:
    global scale
    del scale


def set_it(owner: Any) -> None:
    if owner is None:
        globals()["scale"] = 1
    else:
        owner.scale = nn.Parameter(torch.ones(1)) if isinstance(owner, nn.Linear) else 1


CASES: dict[str, tuple[Callable[[], Any], Callable[[Any], None]]] = {
    "statement": (Plain, delete_statement),
    "call": (Plain, delete_call),
    "slot": (Slots, delete_statement),
    "descriptor": (Described, delete_statement),
    "module": (nn.Module, delete_statement),
    "parameter": (lambda: nn.Linear(1, 1), delete_call),
    "global": (lambda: None, delete_global),
}


@pytest.mark.parametrize("catches", [False, True])
@pytest.mark.parametrize("name", list(CASES))
def test_what_is_deleted_may_be_gone(name: str, catches: bool) -> None:
    make, delete = CASES[name]
    owner = make()

    def function(x: torch.Tensor) -> Any:
        if not catches:
            delete(owner)
            return x
        try:
            delete(owner)
        except (AttributeError, NameError) as error:
            return x * 2, str(error)
        return x

    def outcome(called: Callable[..., Any]) -> str:
        try:
            return repr(called(torch.ones(2)))
        except (AttributeError, NameError) as error:
            return repr(error)

    compiled = tintype.compile(function)
    for is_there in (True, True, False, True, False, False, True):
        outcomes = []
        for called in (function, compiled):
            if is_there:
                set_it(owner)
            outcomes.append(outcome(called))
        assert outcomes[0] == outcomes[1]
