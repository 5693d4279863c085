"""A program checks what it is called with, and says what is wrong in terms of the call."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tintype
from tests.export.modes import capture
from tintype.errors import InputMismatchError, InputStructureError

X = torch.randn(3, 4)


def first(value: torch.Tensor, *rest: Any, **named: Any) -> torch.Tensor:
    return value + 1


@pytest.mark.parametrize(
    ("given", "other"),
    [
        (5, 6),
        (5, 5.0),
        (2.5, 3.5),
        (True, False),
        (True, 1),
        ("mean", "sum"),
        (torch.float32, torch.float64),
        (torch.device("cpu"), torch.device("meta")),
        (1 + 2j, 1 + 3j),
        (b"a", b"b"),
        (torch.channels_last, torch.contiguous_format),
        (float("inf"), 1.0),
    ],
    ids=str,
)
def test_python_values_are_specialised_and_checked(mode: str, given: Any, other: Any) -> None:
    module = capture(mode, first, (X, given)).module()
    torch.testing.assert_close(module(X, given), X + 1)
    with pytest.raises(InputMismatchError) as caught:
        module(X, other)
    assert caught.value.fact == f"Expected input at *args[1] to be equal to {given}, but got {other}"
    assert caught.value.id == "input-mismatch"
    assert isinstance(caught.value, RuntimeError)


def test_message_of_the_seeds(mode: str) -> None:
    module = capture(mode, first, (X, 5)).module()
    with pytest.raises(RuntimeError, match=r"Expected input at \*args\[1\] to be equal to 5, but got 6"):
        module(X, 6)


def test_not_a_number_is_equal_to_itself_here(mode: str) -> None:
    """The program was exported for nan; it must be possible to call it so."""
    module = capture(mode, first, (X, float("nan"))).module()
    torch.testing.assert_close(module(X, float("nan")), X + 1)


def test_values_in_keywords_and_containers(mode: str) -> None:
    module = capture(mode, first, (X, [1, {"a": 2}]), {"scale": 3.0}).module()
    module(X, [1, {"a": 2}], scale=3.0)
    with pytest.raises(
        InputMismatchError, match=r"Expected input at \*args\[1\]\[1\]\['a'\] to be equal to 2, but got 7"
    ):
        module(X, [1, {"a": 7}], scale=3.0)
    with pytest.raises(
        InputMismatchError, match=r"Expected input at \*\*kwargs\['scale'\] to be equal to 3.0, but got 4.0"
    ):
        module(X, [1, {"a": 2}], scale=4.0)


def test_none_is_checked(mode: str) -> None:
    module = capture(mode, first, (X, None)).module()
    torch.testing.assert_close(module(X, None), X + 1)
    with pytest.raises((InputMismatchError, InputStructureError)):
        module(X, 5)


def test_tensor_where_none_was(mode: str) -> None:
    module = capture(mode, first, (X, None)).module()
    with pytest.raises((InputMismatchError, InputStructureError)):
        module(X, X)


# --- tensors -------------------------------------------------------------------------------------------------


def refusal(mode: str, *given: Any, **named: Any) -> str:
    module = capture(mode, first, (X, X)).module()
    with pytest.raises(InputMismatchError) as caught:
        module(*given, **named)
    assert caught.value.remedy
    return str(caught.value)


def test_wrong_size(mode: str) -> None:
    message = refusal(mode, X, torch.randn(3, 5))
    assert "Expected input at *args[1].shape[1] to be equal to 4, but got 5" in message


def test_wrong_number_of_dimensions(mode: str) -> None:
    message = refusal(mode, X, torch.randn(3, 4, 1))
    assert "*args[1]" in message
    assert "2 dimensions" in message
    assert "[3, 4, 1]" in message


def test_wrong_dtype(mode: str) -> None:
    message = refusal(mode, X, X.double())
    assert "Expected input at *args[1].dtype to be torch.float32, but got torch.float64" in message


def test_not_a_tensor(mode: str) -> None:
    assert "Expected input at *args[1] to be a tensor, but got int" in refusal(mode, X, 5)
    assert "to be a tensor, but got str" in refusal(mode, "text", X)


def test_number_where_a_scalar_tensor_was(mode: str) -> None:
    module = capture(mode, lambda a: a + 1, (torch.tensor(2.0),)).module()
    with pytest.raises(InputMismatchError, match="to be a tensor, but got float"):
        module(2.0)


def test_wrong_tensor_given_by_name(mode: str) -> None:
    module = capture(mode, first, (X,), {"other": X}).module()
    with pytest.raises(InputMismatchError, match=r"\*\*kwargs\['other'\]\.shape\[0\] to be equal to 3, but got 2"):
        module(X, other=torch.randn(2, 4))


def test_first_problem_is_reported_and_nothing_runs(mode: str) -> None:
    def function(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a.add_(b)

    module = capture(mode, function, (torch.zeros(3), torch.ones(3))).module()
    value = torch.zeros(3)
    with pytest.raises(InputMismatchError):
        module(value, torch.ones(4))
    assert value.tolist() == [0, 0, 0]


def test_other_strides_are_taken(mode: str) -> None:
    """A program that does not depend on strides runs with others."""
    module = capture(mode, lambda value: (value * 2).sum(1), (X,)).module()
    other = torch.randn(4, 3).t()
    torch.testing.assert_close(module(other), (other * 2).sum(1))


def test_other_strides_before_a_view_are_not_silently_wrong(mode: str) -> None:
    module = capture(mode, lambda value: value.reshape(-1) * 2, (X,)).module()
    other = torch.randn(4, 3).t()
    try:
        result = module(other)
    except RuntimeError:
        return
    torch.testing.assert_close(result, other.reshape(-1) * 2)


def test_contiguous_of_other_strides(mode: str) -> None:
    module = capture(mode, lambda value: value.contiguous().view(-1) * 2, (X,)).module()
    other = torch.randn(4, 3).t()
    try:
        result = module(other)
    except RuntimeError:
        return
    torch.testing.assert_close(result, other.reshape(-1) * 2)


def test_subclass_of_tensor_that_means_the_same(mode: str) -> None:
    module = capture(mode, lambda value: value * 2, (X,)).module()
    parameter = torch.nn.Parameter(X.clone())
    torch.testing.assert_close(module(parameter), parameter * 2)


# --- structure -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        ((), {}),
        ((X,), {}),
        ((X, X, X), {}),
        ((X, X), {"unknown": X}),
        (((X,), X), {}),
        (([X], X), {}),
        (({"a": X}, X), {}),
        ((X,), {"wrong": X}),
    ],
    ids=["none", "too-few", "too-many", "unknown", "tuple", "list", "dict", "misnamed"],
)
def test_wrong_structure(mode: str, args: Any, kwargs: Any) -> None:
    def function(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a + b

    module = capture(mode, function, (X, X)).module()
    with pytest.raises(InputStructureError) as caught:
        module(*args, **kwargs)
    error = caught.value
    assert error.id == "input-structure"
    assert isinstance(error, ValueError)
    assert "exported input tree spec" in str(error)
    assert "TreeSpec" not in str(error)  # what is wrong is said in words
    assert "call it as program(a, b)" in str(error)


def test_argument_given_twice(mode: str) -> None:
    def function(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a - b

    module = capture(mode, function, (X, X)).module()
    with pytest.raises((ValueError, TypeError)):
        module(X, X, a=X)


def test_nested_wrong_structure(mode: str) -> None:
    module = capture(mode, lambda table: table["a"][0] + 1, ({"a": [X, X]},)).module()
    for wrong in ({"a": [X]}, {"b": [X, X]}, {"a": (X, X)}, [X, X], {"a": [X, X], "b": X}):
        with pytest.raises(InputStructureError):
            module(wrong)


def test_missing_keyword(mode: str) -> None:
    module = capture(mode, first, (X,), {"a": X, "b": X}).module()
    with pytest.raises(InputStructureError):
        module(X, a=X)
    with pytest.raises(InputStructureError):
        module(X, a=X, c=X)


# --- numbers in the program ------------------------------------------------------------------------------------


def test_a_number_that_is_computed_with(mode: str) -> None:
    def function(value: torch.Tensor, times: int, scale: float, flag: bool, how: str) -> torch.Tensor:
        for _ in range(times):
            value = value * scale
        return value.sum() if flag else getattr(value, how)()

    module = capture(mode, function, (X, 3, 0.5, False, "mean")).module()
    torch.testing.assert_close(module(X, 3, 0.5, False, "mean"), (X * 0.125).mean())
    for wrong in ((2, 0.5, False, "mean"), (3, 0.6, False, "mean"), (3, 0.5, True, "mean"), (3, 0.5, False, "sum")):
        with pytest.raises(InputMismatchError):
            module(X, *wrong)


def test_number_beside_the_limits_of_python_literals(mode: str) -> None:
    big = 2**80
    module = capture(mode, first, (X, big, -0.0, 1e-320)).module()
    torch.testing.assert_close(module(X, big, -0.0, 1e-320), X + 1)
    with pytest.raises(InputMismatchError):
        module(X, big + 1, -0.0, 1e-320)


def test_text_with_quotes(mode: str) -> None:
    text = 'it\'s "quoted"\n{x}'
    module = capture(mode, first, (X, text)).module()
    torch.testing.assert_close(module(X, text), X + 1)


class Doubling(torch.Tensor):
    """A tensor whose sums are twice what they are."""

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = super().__torch_function__(function, types, args, kwargs or {})
        return result * 2 if function is torch.Tensor.add else result


class Dispatching(torch.Tensor):
    """A tensor that has a word in every operator."""

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return function(*args, **(kwargs or {}))


class Named(torch.Tensor):
    """A tensor with a name, and else a tensor."""


@pytest.mark.parametrize("shapes", [None, {"x": {0: tintype.Dim("n")}}], ids=["static", "dynamic"])
@pytest.mark.parametrize("kind", [Doubling, Dispatching])
def test_classes_that_change_what_operators_mean_are_refused(kind: Any, shapes: Any) -> None:
    program = tintype.export(lambda x: x + 1, (torch.ones(3),), dynamic_shapes=shapes)
    given = torch.ones(3).as_subclass(kind)
    for module in (program.module(), program.run_decompositions().module(), tintype.unflatten(program)):
        with pytest.raises(tintype.TintypeError, match=f"{kind.__name__}, which changes what operators mean"):
            module(given)


@pytest.mark.parametrize("make", [lambda x: x.as_subclass(Named), torch.nn.Parameter, torch.nn.Buffer])
def test_other_classes_are_taken(make: Any) -> None:
    module = tintype.export(lambda x: x + 1, (torch.ones(3),)).module()
    assert torch.equal(module(make(torch.ones(3))), torch.full((3,), 2.0))


def test_strides_that_follow_from_the_size_of_another_input() -> None:
    """A write through a view rests on strides; sizes of later inputs have a part in them."""

    def written(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.flatten(0, 1)[0] = 4
        return y[torch.tensor([0]), 1:] / x.abs()

    sizes = ({2: tintype.Dim.AUTO}, {1: tintype.Dim.AUTO})
    for example in (0, 3):
        given = torch.ones(3, 2, example), torch.ones(3, example + 1 if example else 0)
        module = tintype.export(written, given, dynamic_shapes=sizes).module()
        for _ in range(2):
            copied = [tensor.clone() for tensor in given]
            torch.testing.assert_close(module(*given), written(*copied))
            torch.testing.assert_close(list(given), copied)
