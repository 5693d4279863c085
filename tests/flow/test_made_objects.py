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


class Scaled(torch.nn.Module):
    """A method that makes a container and calls a layer last."""

    def __init__(self, kind: Any) -> None:
        super().__init__()
        self.kind = kind
        self.layer = torch.nn.Linear(3, 3)

    def scaled(self, x: Any) -> Any:
        if self.kind is list:
            made: Any = [x]
            made.append(self.layer(x))
        else:
            made = {0: x}
            made[1] = self.layer(x)
        return made

    def forward(self, x: Any) -> Any:
        if x.sum() > 0:
            made = self.scaled(x)
        else:
            made = [x, -x] if self.kind is list else {0: x, 1: -x}
        made[0] = made[0] + 1
        return made


@pytest.mark.parametrize("kind", [list, dict])
def test_containers_of_a_method_that_called_a_module_are_known_to_nobody_else(kind: Any) -> None:
    model = Scaled(kind)
    module = tintype.export(model, (torch.ones(3),)).module()
    for x in (torch.ones(3), -torch.ones(3)):
        expected, found = model(x), module(x)
        assert type(found) is kind and len(found) == 2
        assert all(torch.allclose(found[place], expected[place]) for place in (0, 1))
