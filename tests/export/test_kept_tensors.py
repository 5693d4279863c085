"""Tensors that a model keeps in attributes: a program does without where that makes no difference."""

from __future__ import annotations

import copy
import warnings

import pytest
import torch
from torch import nn

import tintype


class Keeping(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cache = None
        self.seen: list[torch.Tensor] = []
        self.layer = nn.Linear(3, 3)
        self.register_buffer("count", torch.zeros(3))


class Mask(Keeping):
    def forward(self, x):
        if self.cache is None or self.cache.shape != x.shape:
            self.cache = torch.ones_like(x) * 2
        return x + self.cache


class Positions(Keeping):
    def forward(self, x):
        if self.cache is None:
            self.cache = torch.arange(x.shape[1]) * self.layer.weight.sum()
        return x + self.cache


class LastResult(Keeping):
    def forward(self, x):
        self.cache = self.layer(x)
        return self.cache * 2


class OfABuffer(Keeping):
    def forward(self, x):
        self.count.add_(1)
        self.cache = self.count * 2
        return x + self.cache


class Hooked(Keeping):
    def __init__(self) -> None:
        super().__init__()
        self.layer.register_forward_hook(lambda module, args, result: setattr(module, "result", result))

    def forward(self, x):
        self.layer(x)
        return self.layer.result * 2


class Written(Keeping):
    def forward(self, x):
        self.cache = torch.zeros(3)
        self.cache.add_(x[0])
        return x + self.cache


class FromTheInput(Keeping):
    def forward(self, x):
        if self.cache is None:
            self.cache = x.mean()
        return x + self.cache


class WrittenFromTheInput(Keeping):
    def forward(self, x):
        if self.cache is None:
            cache = torch.zeros(3)
            cache.add_(x[0])
            self.cache = cache * 1
        return x + self.cache


class Growing(Keeping):
    def forward(self, x):
        self.seen.append(x * 2)
        return x + len(self.seen)


class Noise(Keeping):
    def forward(self, x):
        if self.cache is None:
            self.cache = torch.rand(3)
        return x + self.cache


class Changing(Keeping):
    def forward(self, x):
        self.cache = torch.arange(3.0) if self.cache is None else self.cache + 1
        return x + self.cache


class FromAWrittenBuffer(Keeping):
    def forward(self, x):
        if self.cache is None:
            self.cache = self.count * 2 + 1
        self.count.add_(1)
        return x + self.cache


class WrittenLater(Keeping):
    def forward(self, x):
        if self.cache is None:
            self.cache = torch.zeros(3)
        result = x + self.cache
        self.cache.add_(1)
        return result


class NumberOfBefore(Keeping):
    number = 0.0

    def forward(self, x):
        result = x + self.number
        self.number = x.sum().item()
        return result


class FirstNumber(Keeping):
    number = None

    def forward(self, x):
        if self.number is None:
            self.number = x.sum().item()
        return x * self.number


class Holder:
    def __init__(self, value) -> None:
        self.value = value


class LastInAnObject(Keeping):
    def forward(self, x):
        self.cache = Holder(self.layer(x))
        return self.cache.value * 2


class FirstInAnObject(Keeping):
    def forward(self, x):
        if self.cache is None:
            self.cache = Holder([x.mean()])
        return x + self.cache.value[0]


class Raising(Keeping):
    def forward(self, x):
        if self.cache is not None:
            raise RuntimeError("called before")
        self.cache = x * 2
        return x


def exported(model, x, **options):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        program = tintype.export(model, (x,), **options)
    return program, [
        str(warning.message)
        for warning in caught
        if warning.category in (tintype.LostStateWarning, tintype.LostEffectWarning)
    ]


@pytest.mark.parametrize("kind", [Mask, Positions, LastResult, OfABuffer, Hooked, Written, LastInAnObject])
def test_what_makes_no_difference_is_computed_anew_and_told(kind):
    model = kind()
    program, told = exported(model, torch.randn(2, 3))
    assert model.cache is None and not hasattr(model.layer, "result") and not model.count.any()
    assert (
        len(told) == 1
        and ("'cache' of a" in told[0] or "'result' of a Linear" in told[0])
        and "test_kept_tensors.py" in told[0]
    )
    eager, module = copy.deepcopy(model), program.module()
    for _ in range(3):
        x = torch.randn(2, 3)
        torch.testing.assert_close(module(x), eager(x))
    torch.testing.assert_close(module.count, eager.count)


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (FromTheInput, "from its inputs"),
        (WrittenFromTheInput, "from its inputs"),
        (Growing, "does something else"),
        (Noise, "does something else"),
        (Changing, "does something else"),
        (FromAWrittenBuffer, "from a buffer that is written to"),
        (WrittenLater, "does something else"),
        (NumberOfBefore, "does something else"),
        (FirstNumber, "from its inputs"),
        (FirstInAnObject, "from its inputs"),
        (Raising, "raises RuntimeError: called before"),
    ],
)
def test_what_makes_a_difference_is_refused_with_its_reason(kind, reason):
    model = kind()
    with pytest.raises(tintype.TintypeError, match=reason) as caught:
        tintype.export(model, (torch.randn(2, 3),))
    assert "forgets_assignments=True" in str(caught.value) and "test_kept_tensors.py" in str(caught.value)
    assert model.cache is None and not model.seen and not model.count.any()


def test_sizes_that_vary_make_a_difference_to_what_was_made_for_them():
    with pytest.raises(tintype.TintypeError, match="made for its sizes, which vary"):
        tintype.export(Mask(), (torch.randn(2, 3),), dynamic_shapes={"x": {0: tintype.Dim("n")}})
    program, _ = exported(LastResult(), torch.randn(2, 3), dynamic_shapes={"x": {0: tintype.Dim("n")}})
    assert program.module()(torch.randn(5, 3)).shape == (5, 3)


class FirstSize(Keeping):
    size = None

    def forward(self, x):
        if self.size is None:
            self.size = x.shape[0]
        self.cache = x * 2
        return self.cache + self.size


class SizeAndTensor(Keeping):
    def forward(self, x):
        if self.cache is None:
            self.cache = (x.shape[0], torch.ones(3))
        return x * self.cache[0] * self.cache[1]


@pytest.mark.parametrize("kind", [FirstSize, SizeAndTensor])
def test_sizes_that_vary_and_are_kept_beside_tensors(kind):
    with pytest.raises(tintype.TintypeError, match="a second call, with the same inputs, does something else"):
        tintype.export(kind(), (torch.randn(2, 3),), dynamic_shapes={"x": {0: tintype.Dim("n")}})


def test_a_number_of_the_data_that_no_later_call_looks_at():
    class Noting(Keeping):
        def forward(self, x):
            self.number = x.sum().item()
            return x * self.number

    program, told = exported(Noting(), torch.ones(2, 3))
    torch.testing.assert_close(program.module()(torch.ones(2, 3) * 2), Noting()(torch.ones(2, 3) * 2))
    assert told == []


def test_every_call_is_like_the_first_one_where_that_is_wanted():
    program, told = exported(FromTheInput(), torch.randn(2, 3), forgets_assignments=True)
    for _ in range(2):
        x = torch.randn(2, 3)
        torch.testing.assert_close(program.module()(x), FromTheInput()(x))
    assert len(told) == 1 and "'cache' of a FromTheInput" in told[0]
