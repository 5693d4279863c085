"""The data of parameters, buffers and constants, which are the model's own tensors while it is captured."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import tintype
from tests.export.modes import compare
from tintype.errors import CaptureError, InputMismatchError, MutationError

TABLE = torch.tensor([1.0, 2.0, 3.0])
X = torch.ones(3)


class Asking(nn.Module):
    """Asks its tensors for what it is told to."""

    def __init__(self, question: Callable[[Any, torch.Tensor], Any]) -> None:
        super().__init__()
        self.register_buffer("buffer", torch.tensor([1.0, 2.0, 3.0]))
        self.weight = nn.Parameter(torch.ones(3))
        self.constant = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
        self.question = question

    def forward(self, x: torch.Tensor) -> Any:
        return self.question(self, x)


KNOWN: dict[str, Callable[[Any, torch.Tensor], Any]] = {
    "numpy": lambda model, x: x * model.constant.numpy().sum(),
    "numpy(force)": lambda model, x: x * model.constant.numpy(force=True).sum(),
    "from_numpy": lambda model, x: x + torch.from_numpy(model.constant.numpy()),
    "asarray": lambda model, x: x * int(np.asarray(model.constant).max()),
    "unbound": lambda model, x: x * torch.Tensor.numpy(model.constant).sum(),
    "rows": lambda model, x: torch.stack([x * int(i) for i in model.constant.numpy()[0]]),
    "layout": lambda model, x: x.view(3, 1) + torch.from_numpy(model.constant.t().numpy()),
    "global": lambda model, x: x * TABLE.numpy().sum(),
    "used before": lambda model, x: (x + model.constant) * model.constant.numpy().sum(),
    "tolist": lambda model, x: x * sum(model.constant.tolist()[0]),
    "text": lambda model, x: x * len(f"{model.constant}"),
    "written copy": lambda model, x: x * _add_one(model.constant.numpy().copy()).sum(),
}


def _add_one(array: Any) -> Any:
    array += 1
    return array


@pytest.mark.parametrize("name", KNOWN)
def test_data_of_constants_are_what_they_are(mode: str, name: str) -> None:
    compare(mode, Asking(KNOWN[name]), (X,))


def test_compiled_functions_see_the_data_of_globals() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x * TABLE.numpy().sum()

    assert tintype.aot.function(function)(X).tolist() == [6, 6, 6]


UNKNOWN: dict[str, Callable[[Any, torch.Tensor], Any]] = {
    "numpy": lambda model, x: x * model.buffer.numpy().sum(),
    "asarray": lambda model, x: x * int(np.asarray(model.buffer).max()),
    "numpy of a parameter": lambda model, x: x * model.weight.detach().numpy().sum(),
    "text": lambda model, x: x * len(str(model.buffer)),
    "format": lambda model, x: x * float(f"{model.buffer[0]}"),
    "dlpack": lambda model, x: x * float(np.from_dlpack(model.buffer)[0]),
    "address": lambda model, x: x * (model.buffer.data_ptr() % 7),
    "memory": lambda model, x: x * model.buffer.untyped_storage()[3],
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_data_of_state_are_only_known_when_the_program_runs(name: str) -> None:
    with pytest.raises(CaptureError, match=r"the data of a tensor|memory|data pointer") as caught:
        tintype.export(Asking(UNKNOWN[name]), (X,))
    assert caught.value.location is not None and caught.value.location.filename == __file__


def test_lists_of_state_are_of_numbers_that_the_program_computes() -> None:
    def count(model: Any, x: torch.Tensor) -> torch.Tensor:
        model.buffer.add_(x)
        return x * model.buffer.tolist()[0]

    module = tintype.export(Asking(count), (X,)).module()
    assert [module(X)[0].item() for _ in range(3)] == [2, 3, 4]


def writes_to_array(model: Any, x: torch.Tensor) -> torch.Tensor:
    _add_one(model.constant.numpy())
    return x * model.constant


def writes_to_tensor_of_array(model: Any, x: torch.Tensor) -> torch.Tensor:
    torch.from_numpy(model.constant.numpy()).add_(1)
    return x * model.constant


def writes_to_tensor(model: Any, x: torch.Tensor) -> torch.Tensor:
    made = torch.tensor([1.0, 2.0, 3.0])
    array = made.numpy()
    made.add_(x)
    return x * torch.from_numpy(array)


@pytest.mark.parametrize("function", [writes_to_array, writes_to_tensor_of_array, writes_to_tensor])
def test_what_an_array_and_its_tensor_have_in_common_can_not_be_written_to(function: Any) -> None:
    model = Asking(function)
    with pytest.raises(MutationError, match="have in common") as caught:
        tintype.export(model, (X,))
    assert caught.value.location is not None and caught.value.location.function == function.__name__
    assert model.constant.tolist() == [[1, 2, 3], [4, 5, 6]]


def test_other_code_is_told_the_truth_meanwhile() -> None:
    model = Asking(lambda model, x: x * model.constant.numpy().sum())
    before = {name: getattr(torch.Tensor, name) for name in ("numpy", "tolist", "__repr__")}
    tintype.export(model, (X,))
    assert before == {name: getattr(torch.Tensor, name) for name in before}
    assert "numpy" not in vars(torch.Tensor)


# --- numbers in tensors as positions -----------------------------------------------------------------------


class Ring(nn.Module):
    def __init__(self, step: Callable[[Any, torch.Tensor], Any]) -> None:
        super().__init__()
        self.register_buffer("rows", torch.arange(12.0).reshape(4, 3))
        self.register_buffer("count", torch.zeros((), dtype=torch.long))
        self.step = step

    def forward(self, x: torch.Tensor) -> Any:
        result = self.step(self, x)
        self.count += 1
        return result


def _writes_a_row(model: Any, x: torch.Tensor) -> torch.Tensor:
    model.rows[model.count % 4] = x
    return model.rows.sum(0)


def _writes_rows(model: Any, x: torch.Tensor) -> torch.Tensor:
    model.rows[: model.count % 4 + 1] = x
    return model.rows.sum(0)


POSITIONS: dict[str, Callable[[Any, torch.Tensor], Any]] = {
    "row": lambda model, x: model.rows[model.count] + x,
    "rows": lambda model, x: model.rows[: model.count + 1].sum(0) + x,
    "element": lambda model, x: model.rows[model.count, 1] + x,
    "writes a row": _writes_a_row,
    "writes rows": _writes_rows,
}


@pytest.mark.parametrize("name", POSITIONS)
@pytest.mark.parametrize("export", [tintype.export, tintype.export_for_training])
def test_buffers_indexed_by_buffers(name: str, export: Any) -> None:
    model, module = Ring(POSITIONS[name]), export(Ring(POSITIONS[name]), (X,)).module()
    for call in range(4):
        torch.testing.assert_close(module(X * call), model(X * call))


@pytest.mark.parametrize("dynamic_shapes", [None, "auto", {"x": {0: tintype.Dim("n", max=9)}}])
def test_sizes_in_tensors_are_ends_of_slices(dynamic_shapes: Any) -> None:
    def function(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return w[: torch.tensor(x.size(0))] * 2

    w = torch.randn(20, 3)
    module = tintype.export(function, (torch.ones(4), w), dynamic_shapes=dynamic_shapes).module()
    for size in (4,) if dynamic_shapes is None else (4, 2, 7):
        torch.testing.assert_close(module(torch.ones(size), w), function(torch.ones(size), w))


def test_sizes_in_tensors_take_a_dimension_apart() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        rows = torch.div(x.size(1), 4, rounding_mode="trunc")
        return x.transpose(1, 2).reshape(x.size(0), x.size(2), x.size(1)).view(x.size(0), x.size(2), rows, 4)

    module = tintype.export(function, (torch.randn(2, 8, 3),), dynamic_shapes="auto").module()
    for value in (torch.randn(2, 8, 3), torch.randn(3, 12, 5)):
        torch.testing.assert_close(module(value), function(value))
        assert module(value).stride() == function(value).stride()
    with pytest.raises(RuntimeError, match="is invalid for input of size"):
        module(torch.randn(2, 10, 3))


@pytest.mark.parametrize(
    "make", [lambda n: np.array([n]), lambda n: np.array([[n, 1.5]]), lambda n: np.array([n]) // 2]
)
def test_arrays_of_sizes_that_vary(make: Any) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(make(x.shape[0])) * 2

    module = tintype.export(function, (torch.ones(3),), dynamic_shapes="auto").module()
    for size in (3, 5, 8):
        torch.testing.assert_close(module(torch.ones(size)), function(torch.ones(size)))


def test_assertions_of_tensors_by_torchs_function() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        torch._assert((x > -9).all(), "too small")
        return x * 2

    module = tintype.export(function, (X,)).module()
    torch.testing.assert_close(module(X), X * 2)
    with pytest.raises(RuntimeError, match="too small"):
        module(X - 10)


def test_a_conjugated_input_is_refused_where_its_parts_are_looked_at() -> None:
    module = tintype.export(lambda x: x.real + x.imag * 2, (torch.complex(X, X),)).module()
    torch.testing.assert_close(module(torch.complex(X, -X)), -X)
    with pytest.raises(InputMismatchError, match="is_conj"):
        module(torch.complex(X, X).conj())


MADE: dict[str, Callable[[Any], Any]] = {
    "as_tensor": lambda n: torch.as_tensor(n),
    "as_tensor with a dtype": lambda n: torch.as_tensor(n, dtype=torch.float32),
    "asarray": lambda n: torch.asarray(n),
    "asarray of a list": lambda n: torch.asarray([n, 1]),
    "new_tensor": lambda n: X.new_tensor(n),
    "new_tensor of a list": lambda n: X.new_tensor([n, 2.5]),
    "new_tensor with a dtype": lambda n: X.new_tensor([n], dtype=torch.int32),
}


@pytest.mark.parametrize("name", MADE)
def test_tensors_made_from_numbers_that_vary(name: str) -> None:
    def function(n: int) -> Any:
        return MADE[name](n)

    module = tintype.export(function, (3,), dynamic_shapes="auto").module()
    for number in (3, 5, 8):
        torch.testing.assert_close(module(number), function(number))


def test_a_size_that_a_function_of_python_fixes_is_explained() -> None:
    shapes = {"x": {0: tintype.Dim.AUTO}}
    program = tintype.export(lambda x: x * math.sqrt(x.shape[0]), (torch.ones(3),), dynamic_shapes=shapes)
    with pytest.raises(InputMismatchError, match=r"equal to 3, but got 5[\s\S]*contract\(\) names the line"):
        program.module()(torch.ones(5))
    assert "test_data_questions.py" in str(program.contract())
