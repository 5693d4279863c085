"""Inputs that share memory when a program is called, one of which the program writes to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import tintype
from tests.export.modes import assert_same
from tests.export.test_observations import runnable
from tintype.errors import InputMismatchError

Pair = tuple[torch.Tensor, torch.Tensor]


def apart() -> Pair:
    return torch.arange(3.0), torch.arange(3.0) + 5


def same() -> Pair:
    value = torch.arange(3.0)
    return value, value


def alias() -> Pair:
    value = torch.arange(3.0)
    return value, value[:]


def overlapping() -> Pair:
    value = torch.arange(4.0)
    return value[:3], value[1:]


def crossing() -> Pair:
    value = torch.arange(9.0).reshape(3, 3)
    return value[1], value[:, 1]


def of_numpy() -> Pair:
    value = np.arange(4, dtype=np.float32)
    return torch.from_numpy(value[1:]), torch.from_numpy(value[:3])


def halves() -> Pair:
    value = torch.arange(6.0)
    return value[:3], value[3:]


def columns() -> Pair:
    value = torch.arange(6.0).reshape(3, 2)
    return value[:, 0], value[:, 1]


def interleaved() -> Pair:
    value = torch.arange(6.0)
    return value[::2], value[1::2]


def write_first(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x.add_(1)
    return y * 2


def write_second(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    y.mul_(3)
    return x * 2


def write_a_part(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x[1:].zero_()
    return y * 2


HOW = ("module", "decomposed", "saved", "unflattened", "training", "retraced", "retraced unflattened")


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("model", [write_first, write_second, write_a_part])
@pytest.mark.parametrize("make", [same, alias, overlapping, crossing, of_numpy])
def test_inputs_that_overlap_are_refused_or_right(model: Any, make: Callable[[], Pair], how: str) -> None:
    module = runnable(how, model, apart())
    given, wanted = make(), make()
    expected = model(*wanted)
    if how == "training":  # it writes where the model writes
        assert_same(module(*given), expected)
        assert_same(given, wanted)
        return
    with pytest.raises(InputMismatchError, match=r"\*args\[0\] and input at \*args\[1\] to have memory of their own"):
        module(*given)
    assert_same(given, make())  # and nothing was written


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("model", [write_first, write_second, write_a_part])
@pytest.mark.parametrize("make", [apart, halves, columns, interleaved])
def test_parts_of_one_memory_that_do_not_overlap_are_taken(model: Any, make: Callable[[], Pair], how: str) -> None:
    module = runnable(how, model, apart())
    given, wanted = make(), make()
    assert_same(module(*given), model(*wanted))
    assert_same(given, wanted)


def expanded() -> torch.Tensor:
    return torch.arange(3.0)[:1].expand(3)


def stepping_back() -> torch.Tensor:
    return torch.arange(6.0).as_strided((3,), (0,), 2)


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("make", [expanded, stepping_back])
def test_an_input_whose_elements_share_memory_is_refused_or_right(make: Callable[[], torch.Tensor], how: str) -> None:
    def zero(x: torch.Tensor) -> torch.Tensor:
        return x.zero_() + 1

    module = runnable(how, zero, (torch.arange(3.0),))
    given = make()
    if how == "training":
        assert_same(module(given), torch.ones(3))
        assert_same(given, torch.zeros(3))
        return
    with pytest.raises(InputMismatchError, match=r"\*args\[0\] to have memory for each of its elements"):
        module(given)
    assert_same(given, make())


def test_windows_that_overlap_are_refused_and_other_strides_taken() -> None:
    module = tintype.export(lambda x: x.add_(1) * 2, (torch.ones(3, 2),)).module()
    value = torch.arange(12.0)
    with pytest.raises(InputMismatchError, match="memory for each of its elements"):
        module(value.as_strided((3, 2), (1, 1)))
    for make in (
        lambda v: v.as_strided((3, 2), (1, 3)),
        lambda v: v.as_strided((3, 2), (3, 2)),
        lambda v: v[:6].view(2, 3).t(),
    ):
        given, wanted = make(value.clone()), make(value.clone())
        assert_same(module(given), wanted.add_(1) * 2)
        assert_same(given, wanted)


def test_sizes_that_vary() -> None:
    shapes = {"x": {0: tintype.Dim("n")}, "y": {0: tintype.Dim("m")}}
    module = tintype.export(write_first, (torch.ones(3), torch.ones(4)), dynamic_shapes=shapes).module()
    value = torch.arange(9.0)
    assert_same(module(value[:5], value[5:]), torch.arange(5.0, 9.0) * 2)
    with pytest.raises(InputMismatchError, match="overlap"):
        module(value[:6], value[5:])


def test_a_program_that_writes_to_none_takes_the_same_tensor_twice() -> None:
    module = tintype.export(lambda x, y: x * 2 + y, apart()).module()
    value = torch.arange(3.0)
    assert_same(module(value, value), value * 3)


def test_others_may_share_memory_among_themselves() -> None:
    def model(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        return x.add_(y) * z

    module = tintype.export(model, (torch.ones(3), torch.ones(3), torch.ones(3))).module()
    value = torch.arange(3.0)
    assert_same(module(torch.ones(3), value, value), (1 + value) * value)


class Counting(torch.nn.Module):
    """Writes to a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(3))
        self.scale = torch.nn.Parameter(torch.ones(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count.add_(1)
        return x * 2 * self.scale


class Writing(Counting):
    """Writes to its input."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return x * self.scale + self.count


@pytest.mark.parametrize("how", ["module", "decomposed", "saved", "unflattened", "retraced"])
def test_an_input_in_the_programs_own_state(how: str) -> None:
    counting: Any = runnable(how, Counting(), (torch.ones(3),))
    writing: Any = runnable(how, Writing(), (torch.ones(3),))
    with torch.no_grad():
        assert_same(counting(counting.scale), torch.full((3,), 2.0))  # read by both
        for module, state in ((counting, counting.count), (writing, writing.scale), (writing, writing.count)):
            for value in (state, state.detach()[:]):
                with pytest.raises(InputMismatchError, match=r"overlaps with '(count|scale)' of the program"):
                    module(value)
        moved: Any = writing.double()
        tensor = torch.ones(3, dtype=torch.float64)
        with pytest.raises(InputMismatchError, match="dtype"):
            moved(tensor)


def test_state_that_has_moved() -> None:
    module: Any = tintype.export(Counting(), (torch.ones(3),)).module()
    module(torch.ones(3))
    module.load_state_dict({"count": torch.zeros(3), "scale": torch.ones(3)})
    module.to("cpu")
    module._apply(lambda tensor: tensor.clone())
    with pytest.raises(InputMismatchError, match="overlaps with 'count'"), torch.no_grad():
        module(module.count)
