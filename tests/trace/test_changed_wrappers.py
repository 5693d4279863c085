"""Tensors that consist of others and change: in buffers, among arguments, in branches and loops."""

from __future__ import annotations

import copy
import io
from typing import Any

import pytest
import torch
from torch import nn
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils._pytree import tree_map_only

import tintype
from tintype.errors import CaptureError, DataDependentError, StateChangedError

aten = torch.ops.aten


class Lazy(torch.Tensor):
    """Puts another tensor in the place of its own where it is written to."""

    @staticmethod
    def __new__(cls, data: torch.Tensor, count: int = 0) -> Any:
        return torch.Tensor._make_wrapper_subclass(cls, data.shape, dtype=data.dtype)

    def __init__(self, data: torch.Tensor, count: int = 0) -> None:
        self.data_, self.count = data, count

    def __tensor_flatten__(self) -> Any:
        return ["data_"], self.count

    @staticmethod
    def __tensor_unflatten__(inner: Any, context: Any, size: Any, stride: Any) -> Any:
        return Lazy(inner["data_"], context)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        inner = tree_map_only(Lazy, lambda t: t.data_, args)
        if func is aten.add_.Tensor:
            args[0].data_ = torch.add(*inner)
            return args[0]
        return tree_map_only(torch.Tensor, Lazy, func(*inner, **(kwargs or {})))


class Model(nn.Module):
    """A buffer, or a plain attribute, and what is done with it and the input."""

    def __init__(self, step: Any, value: Any, *, registered: bool = True) -> None:
        super().__init__()
        self.step = step
        if registered:
            self.register_buffer("state", value)
        else:
            self.state = value

    def forward(self, x: torch.Tensor) -> Any:
        return self.step(self, x)


def replaced(model: Any, x: torch.Tensor) -> torch.Tensor:
    model.state = model.state + x
    return plain(model.state) * 2


def written(model: Any, x: torch.Tensor) -> torch.Tensor:
    model.state.add_(x)
    return plain(model.state) * 2


def plain(value: Any) -> torch.Tensor:
    if isinstance(value, TwoTensor):
        return plain(value.a) + 2 * plain(value.b)
    if isinstance(value, Lazy):
        return value.data_
    if value.is_nested:
        return value.values()
    return value.to_dense()


def doubled(model: Any, x: torch.Tensor) -> torch.Tensor:
    model.state = model.state * 2
    return plain(model.state) * x


def pair(n: int = 3) -> Any:
    return TwoTensor(torch.arange(n) + 1.0, torch.arange(n) * 0.5)


def rows() -> Any:
    return torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)], layout=torch.jagged)


CHANGING: dict[str, tuple[Any, Any]] = {
    "another in its place": (replaced, pair),
    "of others": (replaced, lambda: TwoTensor(pair(), pair())),
    "its parts": (replaced, lambda: Lazy(torch.ones(3))),
    "parts that are replaced": (written, lambda: Lazy(torch.ones(3))),
    "parts of parts": (written, lambda: TwoTensor(Lazy(torch.ones(3)), Lazy(torch.zeros(3)))),
    "coordinates": (doubled, lambda: torch.eye(3).to_sparse()),
    "rows": (doubled, lambda: torch.eye(3).to_sparse_csr()),
    "nested": (doubled, rows),
}


@pytest.mark.parametrize("form", ["exported", "saved", "decomposed", "unflattened", "training"])
@pytest.mark.parametrize("name", CHANGING)
def test_buffers_that_change_are_what_calls_left(name: str, form: str) -> None:
    step, make = CHANGING[name]
    model = Model(step, make())
    before = plain(model.state).clone()
    export = tintype.export_for_training if form == "training" else tintype.export
    program = export(model, (torch.ones(3),))
    torch.testing.assert_close(plain(model.state), before)
    if form == "saved":
        tintype.save(program, file := io.BytesIO())
        program = tintype.load(file)
    elif form == "decomposed":
        program = program.run_decompositions()
    module = tintype.unflatten(program) if form == "unflattened" else program.module()
    for x in (torch.ones(3), torch.arange(3.0), -torch.ones(3)):
        torch.testing.assert_close(module(x), model(x))


@pytest.mark.parametrize(
    ("step", "value"),
    [(written, Lazy(torch.ones(3))), (replaced, pair()), (replaced, Lazy(torch.ones(3))), (doubled, rows())],
)
def test_what_is_no_buffer_is_refused(step: Any, value: Any) -> None:
    model, before = Model(step, value, registered=False), plain(value).clone()
    with pytest.raises(StateChangedError, match="can only change registered buffers, and it makes a difference"):
        tintype.export(model, (torch.ones(3),))
    assert model.state is value
    torch.testing.assert_close(plain(value), before)


def test_kept_in_an_attribute() -> None:
    def fill(model: Any, x: torch.Tensor) -> torch.Tensor:
        if model.state is None:
            model.state = Lazy(x)
        return plain(model.state) * x

    model = Model(fill, None, registered=False)
    with pytest.raises(StateChangedError, match="the attribute 'state' of a Model"):
        tintype.export(model, (torch.ones(3),))
    assert model.state is None


def test_parts_of_arguments_that_are_replaced_are_refused() -> None:
    with pytest.raises(StateChangedError, match=r"another tensor as 'data_' into an argument of the class .*Lazy"):
        tintype.export(lambda t: t.add_(1), (Lazy(torch.ones(3)),))

    def count(t: Any) -> torch.Tensor:
        t.count += 1
        return t.data_ * t.count

    with pytest.raises(StateChangedError, match=r"another value into an argument of the class .*Lazy"):
        tintype.export(count, (Lazy(torch.ones(3)),))


# --- branches and loops ------------------------------------------------------------------------------------------


def either(x: torch.Tensor, t: Any) -> Any:
    y = t + 1 if x.sum() > 0 else t * 2
    return y, plain(y)


def one_arm(x: torch.Tensor, t: Any) -> Any:
    y = t
    if x.sum() > 0:
        y = t + x
    return [y, t]


def in_place(x: torch.Tensor, t: Any) -> Any:
    if x.sum() > 0:
        t.mul_(2)
    return t + 1


def until(x: torch.Tensor, t: Any) -> Any:
    while plain(t).sum() < 20:
        t = t + 1
    return t


def skipping(x: torch.Tensor, t: Any) -> Any:
    for i in range(3):
        if x.sum() > i:
            continue
        t = t * 2
    return t


def parts(value: Any) -> Any:
    return tree_map_only(TwoTensor, lambda t: {"a": parts(t.a), "b": parts(t.b)}, value)


@pytest.mark.parametrize("make", [pair, lambda: TwoTensor(pair(), pair())])
@pytest.mark.parametrize("function", [either, one_arm, in_place, until, skipping])
def test_the_data_decide_which_it_is(function: Any, make: Any) -> None:
    module = tintype.export(function, (torch.ones(3), make())).module()
    for x in (torch.ones(3), -torch.ones(3)):
        given, copied = make(), copy.deepcopy(make())
        torch.testing.assert_close(parts(module(x, given)), parts(function(x, copied)))
        torch.testing.assert_close(parts(given), parts(copied))


def test_the_data_decide_which_weight_it_is() -> None:
    def choose(model: Any, x: torch.Tensor) -> torch.Tensor:
        return plain((model.state if x.sum() > 0 else model.state * 2) * x)

    model = Model(choose, pair())
    module = tintype.export(model, (torch.ones(3),)).module()
    for x in (torch.ones(3), -torch.ones(3)):
        torch.testing.assert_close(module(x), model(x))


def test_the_data_decide_which_sparse_tensor_it_is() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return plain((x * 2).to_sparse() if x.sum() > 0 else x.to_sparse())

    module = tintype.export(function, (torch.ones(3, 2),)).module()
    for x in (torch.ones(3, 2), -torch.eye(3)[:, :2]):
        torch.testing.assert_close(module(x), function(x))


def test_tensors_of_other_kinds_in_either_arm_are_refused() -> None:
    def function(x: torch.Tensor, t: Any) -> Any:
        return t + 1 if x.sum() > 0 else t.a

    with pytest.raises(CaptureError, match="which has no common form"):
        tintype.export(function, (torch.ones(3), pair()))


@pytest.mark.parametrize("loops", [False, True])
def test_parts_that_an_arm_replaces_are_refused(loops: bool) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        lazy: Any = Lazy(x)
        if loops:
            while lazy.data_.sum() < 20:
                lazy.add_(1)
        elif x.sum() > 0:
            lazy.add_(1)
        return lazy.data_

    with pytest.raises(StateChangedError, match="from outside of a branch or a loop"):
        tintype.export(function, (torch.ones(3),))


def test_an_arm_that_can_not_be_captured_is_no_arm_that_raises() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x * x.numpy().sum() if x.sum() > 0 else x + 1

    with pytest.raises(DataDependentError, match="numpy"):
        tintype.export(function, (torch.ones(3),))


# --- classes -----------------------------------------------------------------------------------------------------


def scaling(factor: float) -> Any:
    class Scaling(Lazy):
        @staticmethod
        def __tensor_unflatten__(inner: Any, context: Any, size: Any, stride: Any) -> Any:
            return Scaling(inner["data_"], context)

        @classmethod
        def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            inner = tree_map_only(Scaling, lambda t: t.data_ * factor, args)
            return tree_map_only(torch.Tensor, Scaling, func(*inner, **(kwargs or {})))

    return Scaling


def test_classes_of_one_name_are_told_apart() -> None:
    first, second = scaling(1.0), scaling(2.0)
    programs = [tintype.export(lambda t: t + 1, (kind(torch.ones(3)),)).module() for kind in (first, second)]
    for kind, module in zip((first, second), programs, strict=True):
        found, wanted = module(kind(torch.ones(3))), kind(torch.ones(3)) + 1
        assert type(found) is kind
        torch.testing.assert_close(found.data_, wanted.data_)
    with pytest.raises(tintype.InputStructureError):
        programs[0](second(torch.ones(3)))


class Rounding(Lazy):
    """Rounds what it is multiplied with, which autograd does not know."""

    @staticmethod
    def __tensor_unflatten__(inner: Any, context: Any, size: Any, stride: Any) -> Any:
        return Rounding(inner["data_"], context)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is aten.detach.default:
            return Rounding(args[0].data_)
        return func(args[0].round(), args[1].data_)


def test_gradients_that_autograd_computes_without_the_class_are_named(recwarn: Any) -> None:
    class Multiplied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight: Any = nn.Parameter(Rounding(torch.rand(3, 2)), requires_grad=False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x @ self.weight

    tintype.export(Multiplied(), (torch.rand(4, 3),))
    assert not recwarn.list
    with pytest.warns(tintype.LostGradientWarning, match=r"operators on tensors of the class .*Rounding"):
        tintype.export(Multiplied(), (torch.rand(4, 3, requires_grad=True),))
