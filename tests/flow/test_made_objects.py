"""Objects that an arm or a step makes."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tintype


class Updating:
    def __init__(self, **values: Any) -> None:
        self.__dict__.update(values)


class UpdatingVariables:
    def __init__(self, **values: Any) -> None:
        vars(self).update(values)
        vars(self)["more"] = 1


@pytest.mark.parametrize("kind", [Updating, UpdatingVariables])
def test_they_write_their_attributes_as_they_like(kind: Any) -> None:
    def made(x: Any) -> Any:
        if x.sum() > 0:
            state = kind(factor=x)
            result = state.factor * 2
        else:
            result = x
        return result

    module = tintype.export(made, (torch.ones(3),)).module()
    for x in (torch.ones(3), -torch.ones(3)):
        assert torch.equal(module(x), made(x))


def test_attributes_of_others_are_not_theirs() -> None:
    class Other:
        count = 0

    other = Other()
    other.count = 0

    def written(x: Any) -> Any:
        if x.sum() > 0:
            vars(other)["count"] = x
        return x * 1

    with pytest.raises(tintype.TintypeError):
        tintype.export(written, (torch.ones(3),))
