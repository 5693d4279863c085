"""``int()`` of what the data decide: numbers and truth values stay numbers of the program."""

from __future__ import annotations

import pytest
import torch

import tintype


def _item(x):
    return x * int(x.sum().to(torch.int64).item())


def _in_a_branch(x):
    k = int(x.argmax().item())
    return x * 2 if k > 1 else x - 1


def _number_of_steps(x):
    total = x
    for i in range(int(x.max().to(torch.int64).item())):
        total = total + i * x
    return total


def _of_an_integer_again(x):
    n = int(int(x.argmax()))  # noqa: RUF046
    return x + int(n * 2) + n


def _truth(x):
    return x * int(x.sum() > 0)


def _truth_of_item(x):
    return x * (1 + int((x.sum() > 0).item()))


def _counted(x):
    n = int(x.sum() > 0) + int(x.max() > 5)
    if n == 0:
        return x
    return x * 2 if n == 1 else x * 3


def _matched(x):
    match int(x.sum() > 0):
        case 0:
            return x
        case _:
            return x * 3


def _any(x):
    n = int((x > 3).any())
    return x * 2 if n else x


def _size_that_data_decide(x):
    rows = int(x[x > 0].shape[0])
    return x * rows


def _returned(x):
    return int(x.argmax().item()), int(x.sum() > 0)


@pytest.mark.parametrize("strict", [False, True], ids=["native", "strict"])
@pytest.mark.parametrize(
    "model",
    [
        _item, _in_a_branch, _number_of_steps, _of_an_integer_again, _truth, _truth_of_item, _counted, _matched, _any,
        _size_that_data_decide, _returned,
    ],
)  # fmt: skip
def test_int_of_what_data_decide(model, strict):
    x = torch.tensor([1.0, 2.0, 6.0])
    module = tintype.export(model, (x,), strict=strict).module()
    for given in (x, -x, x.flip(0), x / 10, torch.zeros(3)):
        expected, found = model(given), module(given)
        if isinstance(expected, tuple):
            assert found == expected and [type(value) for value in found] == [type(value) for value in expected]
        else:
            torch.testing.assert_close(found, expected)


def test_int_of_a_size_fixes_it():
    with pytest.raises(tintype.ConstraintViolationError):
        tintype.export(
            lambda x: x * int(x.shape[0]), (torch.ones(3),), dynamic_shapes=({0: tintype.Dim("n")},), strict=False
        )
