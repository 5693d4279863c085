"""What can't be captured is refused by name: an id, the line of the user's program, a remedy."""

from __future__ import annotations

import copy
import inspect
import re
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.attention.bias import causal_lower_right

import tintype
from tests.export.modes import MODES, capture
from tintype import errors

X = torch.randn(3, 4)


def refused(kind: type[Exception], function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Export a program that is refused; returns the error."""
    with pytest.raises(kind) as caught:
        tintype.export(function, args or (X,), kwargs, control_flow="refuse")
    return caught.value


def line_of(function: Callable[..., Any], text: str) -> int:
    """The line of this file where a function has a text."""
    lines, start = inspect.getsourcelines(function)
    return start + next(number for number, line in enumerate(lines) if text in line)


def assert_located(error: Any, function: Callable[..., Any], text: str) -> None:
    assert error.location is not None
    assert error.location.filename == __file__
    assert error.location.line == line_of(function, text)
    assert f"{__file__}:{error.location.line}" in str(error)


# --- branches on data ----------------------------------------------------------------------------------------


def branch(value: torch.Tensor) -> torch.Tensor:
    if value.sum() > 0:  # the branch
        return value + 1
    return value - 1


def loop(value: torch.Tensor) -> torch.Tensor:
    while value.sum() < 10:  # the loop
        value = value * 2
    return value


def assertion(value: torch.Tensor) -> torch.Tensor:
    assert (value > 0).all()  # the assertion
    return value


def conversion(value: torch.Tensor) -> torch.Tensor:
    return value * bool(value.max())  # the conversion


def comparison(value: torch.Tensor) -> torch.Tensor:
    return value if torch.equal(value, value * 2) else -value  # the comparison


def closeness(value: torch.Tensor) -> torch.Tensor:
    return value if torch.allclose(value, value * 2) else -value  # the comparison


def range_of_data(value: torch.Tensor) -> torch.Tensor:
    for _ in range(int(value.abs().sum())):  # the range
        value = value + 1
    return value


def as_numpy(value: torch.Tensor) -> torch.Tensor:
    return value + float(value.numpy().sum())  # the data


def as_list(value: torch.Tensor) -> torch.Tensor:
    return value if value.tolist()[0][0] > 0 else -value  # the data


def pointer(value: torch.Tensor) -> torch.Tensor:
    return value + value.data_ptr() % 2  # the data


def contained(value: torch.Tensor) -> torch.Tensor:
    return value + 1 if 3.0 in value else value  # the data


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (branch, "# the branch"),
        (loop, "# the loop"),
        (assertion, "# the assertion"),
        (conversion, "# the conversion"),
        (comparison, "# the comparison"),
        (closeness, "# the comparison"),
        (range_of_data, "# the range"),
        (as_numpy, "# the data"),
        (as_list, "# the data"),
        (contained, "# the data"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
@pytest.mark.parametrize("mode", ["export", "training"])
def test_data_dependent_programs(mode: str, function: Any, text: str) -> None:
    with pytest.raises(errors.DataDependentError) as caught:
        capture(mode, function, (X,), control_flow="refuse")
    error = caught.value
    assert error.id == "data-dependent"
    assert re.search("known (when|while)", error.fact)
    assert error.remedy
    assert f"What to do: {error.remedy}" in str(error)
    assert_located(error, function, text)


def test_data_pointer_is_refused_with_a_location() -> None:
    error = refused(tintype.CaptureError, pointer)
    assert "data pointer" in str(error)
    assert "custom_op" in str(error)
    assert_located(error, pointer, "# the data")


def test_branch_in_a_layer_is_located_in_the_layer() -> None:
    class Inner(nn.Module):
        def forward(self, value: torch.Tensor) -> torch.Tensor:
            return value if value.mean() > 0 else -value  # inner

    error = refused(errors.DataDependentError, nn.Sequential(nn.Linear(4, 4), Inner()))
    assert_located(error, Inner.forward, "# inner")


def test_branch_on_parameters_is_refused() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gate = nn.Parameter(torch.ones(()))

        def forward(self, value: torch.Tensor) -> torch.Tensor:
            return value if self.gate > 0 else -value  # gate

    assert_located(refused(errors.DataDependentError, Model()), Model.forward, "# gate")


# --- several problems -----------------------------------------------------------------------------------------


def several(value: torch.Tensor) -> torch.Tensor:
    if value.sum() > 0:  # first
        value = value + 1
    if value.mean() > 0:  # second
        value = value * 2
    assert (value != 0).any()  # third
    return value


def test_several_problems_are_reported_together() -> None:
    report = refused(errors.CaptureReport, several)
    assert report.id == "report"
    assert [problem.id for problem in report.problems] == ["data-dependent"] * 3
    for problem, text in zip(report.problems, ("# first", "# second", "# third"), strict=True):
        assert_located(problem, several, text)
    message = str(report)
    assert message.startswith("3 problems stand in the way")
    assert "1. [data-dependent]" in message
    assert "3. [data-dependent]" in message


def test_a_number_that_decides_hides_no_branch_before_it() -> None:
    def model(value: torch.Tensor) -> torch.Tensor:
        if value.sum() > 0:  # first
            value = value + 1
        if value.max().item() > 3:  # second
            value = value * 2
        return value

    report = refused(errors.DataDependentError, model)  # of the kind of its problems, however many
    assert isinstance(report, errors.CaptureReport) and report.id == "report"
    for problem, text in zip(report.problems, ("# first", "# second"), strict=True):
        assert_located(problem, model, text)
    assert "tintype.cond" in str(report) and "control_flow='auto'" in str(report)


def test_errors_call_sizes_what_the_user_called_them() -> None:
    shapes = {"x": {0: tintype.Dim("batch", max=64)}}
    for function, message in (
        (lambda x: x + torch.ones(5, 6), r"The size of tensor a \(batch\) must match the size of tensor b \(5\)"),
        (lambda x: x.T @ torch.ones(3, 6), r"\[6, batch\] and \[3, 6\]"),
        (lambda x: {x.shape[0]: x}[4], "the program uses the size batch as a key"),
    ):
        with pytest.raises((RuntimeError, TypeError), match=message):
            tintype.export(function, (torch.ones(4, 6),), dynamic_shapes=shapes)


def test_problems_of_several_kinds_are_reported_together() -> None:
    class Model(nn.Module):
        def forward(self, value: torch.Tensor) -> torch.Tensor:
            if value.sum() > 0:
                value = value + 1
            self.last = value
            return value

    report = refused(errors.CaptureReport, Model())
    assert {problem.id for problem in report.problems} == {"data-dependent", "state-changed"}


def test_several_bad_inputs_are_reported_together() -> None:
    class Foreign:
        pass

    report = refused(errors.CaptureReport, lambda a, b, c: b, Foreign(), X, Foreign())
    assert len(report.problems) == 2
    assert "*args[0]" in str(report)
    assert "*args[2]" in str(report)


def test_error_after_a_wrong_guess_is_not_shown() -> None:
    """The program goes on after a branch on data; what it runs into then is no news."""

    def fail() -> None:
        raise ValueError("the values must not be positive")

    def function(value: torch.Tensor) -> torch.Tensor:
        if value.sum() > 0:
            fail()
        return value

    error = refused(tintype.CaptureError, function)
    assert error.id == "data-dependent"


# --- the user's own exceptions -----------------------------------------------------------------------------


class TheirError(Exception):
    pass


@pytest.mark.parametrize(
    "exception",
    [
        TheirError("mine", 5), ValueError("bad value"), KeyError("k"), AssertionError("no"), RuntimeError("r"),
        NotImplementedError("later"), StopIteration(1), ZeroDivisionError("z"), TypeError("t"), OSError(2, "no file"),
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_the_users_exception_passes_unchanged(exception: Exception) -> None:
    def function(value: torch.Tensor) -> torch.Tensor:
        value.sin()
        raise exception

    with pytest.raises(type(exception)) as caught:
        tintype.export(function, (X,))
    assert caught.value is exception
    assert any(entry.name == "function" for entry in caught.traceback)


def test_the_users_exception_keeps_its_cause() -> None:
    def function(value: torch.Tensor) -> torch.Tensor:
        try:
            return {}["missing"]
        except KeyError as error:
            raise TheirError("mine") from error

    with pytest.raises(TheirError) as caught:
        tintype.export(function, (X,))
    assert isinstance(caught.value.__cause__, KeyError)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda value: value @ torch.ones(5, 5), "cannot be multiplied"),
        (lambda value: value + torch.ones(7), "must match the size of tensor"),
        (lambda value: value.view(5, 5), "invalid for input of size"),
        (lambda value: torch.cat([value, torch.ones(2)]), "same number of dimensions"),
        (lambda value: value[5], "out of bounds"),
        (lambda value: value.sum(4), "Dimension out of range"),
        (lambda value: value.missing(), "has no attribute 'missing'"),
        (lambda value: nn.functional.linear(value, torch.ones(3, 7)), "cannot be multiplied"),
        (lambda value: value.expand(5, 4), "expanded size"),
        (lambda value: nn.functional.embedding(value, torch.ones(3, 3)), "Expected tensor for argument"),
    ],
    ids=["matmul", "add", "view", "cat", "index", "sum", "attribute", "linear", "expand", "embedding"],
)
def test_eager_errors_have_eagers_type_and_message(function: Any, message: str) -> None:
    with pytest.raises(Exception) as eager:
        function(X)
    with pytest.raises(type(eager.value)) as caught:
        tintype.export(function, (X,))
    assert message in str(eager.value)
    assert message in str(caught.value)
    assert not isinstance(caught.value, tintype.CaptureError)


def test_a_caught_exception_is_the_programs_own_business() -> None:
    def function(value: torch.Tensor) -> torch.Tensor:
        try:
            return value.view(5, 5)
        except RuntimeError:
            return value * 3

    torch.testing.assert_close(tintype.export(function, (X,)).module()(X), X * 3)


def test_a_missing_argument_is_named() -> None:
    with pytest.raises(TypeError, match="missing a required argument: 'b'") as caught:
        tintype.export(lambda a, b: a, (X,))
    assert isinstance(caught.value, tintype.InvalidRequestError)


def test_a_type_error_of_the_models_own_stays_what_it_is() -> None:
    def inner(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a + b

    with pytest.raises(TypeError, match="missing 1 required positional argument") as caught:
        tintype.export(lambda a: inner(a), (X,))  # type: ignore[call-arg]
    assert not isinstance(caught.value, tintype.TintypeError)


# --- mutations that have no functional form ------------------------------------------------------------------


def assigns_data(value: torch.Tensor) -> torch.Tensor:
    value = value * 2
    value.data = torch.zeros(3, 4)  # data
    return value


def sets(value: torch.Tensor) -> torch.Tensor:
    return (value * 2).set_(torch.zeros(3, 4))  # set


def resizes(value: torch.Tensor) -> torch.Tensor:
    return (value * 2).resize_(2, 2)  # resize


def reshapes_input(value: torch.Tensor) -> torch.Tensor:
    return value.unsqueeze_(0)  # unsqueeze


@pytest.mark.parametrize(
    ("function", "text"),
    [(assigns_data, "# data"), (sets, "# set"), (resizes, "# resize"), (reshapes_input, "# unsqueeze")],
    ids=lambda value: getattr(value, "__name__", ""),
)
@pytest.mark.parametrize("mode", ["export", "training"])
def test_mutations_of_geometry_are_refused(mode: str, function: Any, text: str) -> None:
    value = X.clone()
    with pytest.raises(tintype.CaptureError) as caught:
        capture(mode, function, (value,))
    assert caught.value.remedy
    assert_located(caught.value, function, text)
    assert value.shape == (3, 4)


def test_data_of_a_parameter_is_refused_or_captured() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(4))

        def forward(self, value: torch.Tensor) -> torch.Tensor:
            self.weight.data = self.weight.data * 0.9
            return value * self.weight

    model = Model()
    data = model.weight.data_ptr()
    try:
        program = tintype.export(model, (X,))
    except tintype.CaptureError as error:
        assert ".data" in str(error)
    else:
        torch.testing.assert_close(program.module()(X), X * 0.9)
    assert model.weight.data_ptr() == data
    assert type(model.weight) is nn.Parameter


def test_in_place_through_data_is_captured() -> None:
    def function(value: torch.Tensor) -> torch.Tensor:
        value.data.mul_(2)
        return value + 1

    value = X.clone()
    result = tintype.export(function, (X.clone(),)).module()(value)
    torch.testing.assert_close(result, X * 2 + 1)
    torch.testing.assert_close(value, X * 2)


def test_written_constant_is_located() -> None:
    table = torch.zeros(4)

    def function(value: torch.Tensor) -> torch.Tensor:
        table.add_(value.sum(0))  # written
        return value + table

    error = refused(errors.MutationError, function)
    assert "register_buffer" in str(error)
    assert_located(error, function, "# written")
    assert not table.any()


def test_attribute_that_is_no_buffer() -> None:
    class Model(nn.Module):
        def forward(self, value: torch.Tensor) -> torch.Tensor:
            result = value + getattr(self, "last", 0)
            self.last = value * 2
            return result

    error = refused(errors.StateChangedError, Model())
    assert error.id == "state-changed"
    assert "'last'" in str(error)
    assert "register_buffer" in str(error)
    assert error.location is None or error.location.filename == __file__


def test_attribute_of_an_object_that_is_no_module() -> None:
    """Nothing can be registered there; and the line is that which made the tensor, where a library assigns it."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.kept = types.SimpleNamespace(last=None)

        def forward(self, value: torch.Tensor) -> torch.Tensor:
            result = value if self.kept.last is None else value + self.kept.last
            setattr(self.kept, "last", value * 2)  # noqa: B010, made: as a library would assign it
            return result

    error = refused(errors.StateChangedError, Model())
    assert "make the SimpleNamespace anew in every call of forward" in str(error)
    assert "self.register_buffer" not in str(error)
    assert_located(error, Model.forward, "made:")


def test_buffer_of_another_size() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("cache", torch.zeros(2))

        def forward(self, value: torch.Tensor) -> torch.Tensor:
            self.cache = value
            return value

    error = refused(errors.StateChangedError, Model())
    assert "'cache'" in str(error)
    assert "[3, 4]" in str(error)
    assert "[2]" in str(error)


def test_list_of_tensors_kept_by_the_model() -> None:
    """A tensor put into a container of the model is state that a program can't have: refused, not forgotten."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.history: list[Any] = [1]
            self.table: dict[str, Any] = {"a": 1}

        def forward(self, value: torch.Tensor, where: str) -> torch.Tensor:
            if where == "list":
                self.history.append(value)
            elif where == "dict":
                self.table["new"] = self.table.get("new", 1) * value
            else:
                self.history[0] = [value, self.history[0]]
            return value + 1

    for where in ("dict", "list", "nested"):
        refused(errors.StateChangedError, Model(), X, where)


# --- inputs ------------------------------------------------------------------------------------------------


class Tagged(torch.Tensor):
    """A subclass that changes what operators mean."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return super().__torch_function__(func, types, args, kwargs or {})


class Wrapped(torch.Tensor):
    """A subclass with tensors inside of it."""

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> Any:
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

    def __init__(self, inner: torch.Tensor) -> None:
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise NotImplementedError


def bad_inputs() -> dict[str, tuple[Any, str]]:
    return {
        "function-subclass": (X.as_subclass(Tagged), "Tagged"),
        "dispatch-subclass": (Wrapped(X), "Wrapped"),
        "quantized": (torch.quantize_per_tensor(X, 0.1, 0, torch.qint8), "quantized"),
        "nested": (torch.nested.nested_tensor([X[0], X[1]]), "nested"),
        "object": (object(), "object"),
        "function": (len, "builtin_function_or_method"),
        "generator": (torch.Generator(), "Generator"),
    }


@pytest.mark.parametrize("name", list(bad_inputs()))
def test_inputs_of_a_kind_that_can_not_be_captured(name: str) -> None:
    value, text = bad_inputs()[name]
    error = refused(errors.UnsupportedInputError, lambda a, b: a + 1, X, value)
    assert error.id == "unsupported-input"
    assert "*args[1]" in str(error)
    assert text in str(error)
    assert error.remedy


def attends_with_a_bias_of_torchs(value: torch.Tensor) -> torch.Tensor:
    query = value[None, None]
    bias = causal_lower_right(query.shape[2], query.shape[2])  # the line
    return torch.nn.functional.scaled_dot_product_attention(query, query, query, attn_mask=bias)


def test_a_tensor_of_a_class_that_the_program_makes() -> None:
    error = refused(errors.CaptureError, attends_with_a_bias_of_torchs, X)
    assert_located(error, attends_with_a_bias_of_torchs, "# the line")
    assert "tensor of a subclass" in str(error) and "is_causal" in error.remedy


def makes_one_of_a_list(value: torch.Tensor) -> torch.Tensor:
    return torch.nested.as_nested_tensor([value, value]).to_padded_tensor(0.0)  # the tensor


def test_nested_tensors_that_are_not_jagged() -> None:
    assert_located(refused(errors.CaptureError, makes_one_of_a_list), makes_one_of_a_list, "# the tensor")


def test_nested_bad_input_is_named_by_its_path() -> None:
    quantized = bad_inputs()["quantized"][0]
    error = refused(errors.UnsupportedInputError, lambda a, **k: a, X, options={"deep": [1, quantized]})
    assert "**kwargs['options']['deep'][1]" in str(error)


@pytest.mark.parametrize("name", ["quantized", "dispatch-subclass"])
def test_constants_of_a_kind_that_can_not_be_captured(name: str) -> None:
    value, text = bad_inputs()[name]
    error = refused(errors.UnsupportedInputError, lambda a: torch.add(a, value))
    assert text in str(error)


def test_parameter_of_a_kind_that_can_not_be_captured() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("weight", bad_inputs()["quantized"][0])

        def forward(self, value: torch.Tensor) -> torch.Tensor:
            return value @ self.weight.t()

    error = refused(errors.UnsupportedInputError, Model())
    assert "weight" in str(error)
    assert "quantized" in str(error)


def test_generator_in_an_operator_is_refused() -> None:
    generator = torch.Generator()

    def function(value: torch.Tensor) -> torch.Tensor:
        return value + torch.rand(4, generator=generator)  # generator

    error = refused(errors.UnsupportedInputError, function)
    assert "Generator" in str(error)
    assert_located(error, function, "# generator")


def test_output_of_a_kind_that_can_not_be_returned() -> None:
    error = refused(tintype.CaptureError, lambda value: {"a": value, "b": object()})
    assert "object" in str(error)
    assert "register" in str(error)


# --- requests ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("function", [tintype.export, tintype.export_for_training])
def test_requests_that_can_not_be_carried_out(function: Any) -> None:
    linear = nn.Linear(4, 4)
    with pytest.raises(errors.InvalidRequestError, match="tuple of the positional arguments, but got Tensor"):
        function(linear, X)
    with pytest.raises(errors.InvalidRequestError, match="but got list"):
        function(linear, [X])
    with pytest.raises(errors.InvalidRequestError, match="dictionary of the keyword arguments, but got tuple"):
        function(linear, (X,), (X,))
    with pytest.raises(errors.InvalidRequestError, match=r"torch\.nn\.Module"):
        function(5, (X,))
    with pytest.raises(errors.InvalidRequestError, match=r"torch\.nn\.Module"):
        function(nn.Linear, (X,))


def test_invalid_requests_are_value_errors() -> None:
    assert issubclass(errors.InvalidRequestError, ValueError)
    assert issubclass(errors.CaptureError, RuntimeError)
    assert issubclass(errors.InputStructureError, ValueError)
    assert errors.InvalidRequestError.id == "invalid-request"


def test_every_error_has_an_id_of_its_own() -> None:
    kinds = [
        kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.TintypeError)
    ]
    assert len({kind.id for kind in kinds}) == len(kinds)
    assert all(kind.__doc__ for kind in kinds)


@pytest.mark.parametrize("mode", MODES)
def test_a_script_function_inside_of_a_program(mode: str) -> None:
    """A scripted function is run as it is: what it calls is recorded, or it is refused; never silently wrong."""

    @torch.jit.script
    def scripted(value: torch.Tensor) -> torch.Tensor:
        return value.sin() * 2

    try:
        program = capture(mode, lambda value: scripted(value) + 1, (X,))
    except tintype.CaptureError:
        return
    torch.testing.assert_close(program.module()(X), scripted(X) + 1)
    torch.testing.assert_close(program.module()(X * 2), scripted(X * 2) + 1)


class WithScript(torch.nn.Module):
    def __init__(self, calls: bool = False) -> None:
        super().__init__()
        self.inner = torch.nn.Sequential(torch.jit.script(torch.nn.Linear(4, 4)))
        self.layer = torch.nn.Linear(4, 4)
        self.calls = calls

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        self.eval()
        return self.inner(value) if self.calls else self.layer(value)


@pytest.mark.parametrize("calls", [False, True])
def test_a_script_inside_of_a_model_is_not_compiled_before_anything_is_touched(calls: bool) -> None:
    model = WithScript(calls)
    with pytest.raises(errors.UnsupportedInputError, match=r"module ('inner.0'|Linear) of the model is TorchScript"):
        tintype.aot.module(model)(X)
    assert all(module.training for module in model.modules())
    assert not any(type(value).__name__ == "FakeTensor" for value in model.state_dict().values())


def test_tracing_inside_of_a_program_is_refused() -> None:
    def traces(value: torch.Tensor) -> torch.Tensor:
        return torch.jit.trace(lambda z: z * 2, (torch.ones(1),))(value)  # the trace

    error = refused(errors.CaptureError, traces, X)
    assert "torch.jit.trace" in error.fact and error.location is not None


# --- writes that are found after the program ran ---------------------------------------------------------------


def writes_first(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    one.add_(1)  # the write
    return other * 2


def test_inputs_that_share_written_memory() -> None:
    error = refused(errors.MutationError, writes_first, X, X)
    assert "share memory" in error.fact
    assert_located(error, writes_first, "# the write")


def test_buffers_that_share_written_memory() -> None:
    class Holds(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            memory = torch.zeros(6)
            self.register_buffer("whole", memory)
            self.register_buffer("part", memory[2:5])

        def forward(self, value: torch.Tensor) -> torch.Tensor:
            self.whole.add_(value)  # the write
            return self.part * 2

    assert_located(refused(errors.MutationError, Holds(), torch.ones(6)), Holds.forward, "# the write")


def test_a_written_input_whose_elements_share_memory() -> None:
    error = refused(errors.MutationError, writes_first, X[:, :1].clone().expand(3, 4), X)
    assert_located(error, writes_first, "# the write")


SEEN: list[torch.Tensor] = []


class Remembers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.history: list[torch.Tensor] = []
        self.table: dict[str, torch.Tensor] = {}
        self.nested = {"history": [torch.ones(1)]}

    def in_a_list(self, value: torch.Tensor) -> torch.Tensor:
        value = torch.add(value, 1)
        self.history.append(value)  # the change
        return value

    def in_a_table(self, value: torch.Tensor) -> torch.Tensor:
        self.table["last"] = value * self.table.get("last", 1)  # the change
        return value

    def nested_deeper(self, value: torch.Tensor) -> torch.Tensor:
        self.nested["history"].append(value)  # the change
        return value

    def in_a_global(self, value: torch.Tensor) -> torch.Tensor:
        SEEN.append(value)  # the change
        return value


@pytest.mark.parametrize("kind", ["in_a_list", "in_a_table", "nested_deeper", "in_a_global"])
def test_containers_that_a_tensor_is_put_into(kind: str) -> None:
    class Model(Remembers):
        forward = getattr(Remembers, kind)

    error = refused(errors.StateChangedError, Model())
    assert_located(error, getattr(Remembers, kind), "# the change")


def test_a_variable_of_a_closure_that_a_tensor_is_put_into() -> None:
    last = None

    def remembers(value: torch.Tensor) -> torch.Tensor:
        nonlocal last
        last = value + 1  # the change
        return last

    assert_located(refused(errors.StateChangedError, remembers), remembers, "# the change")


class Observed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layer = nn.Sequential(nn.Linear(4, 3), nn.ReLU())
        layer.qconfig = torch.ao.quantization.get_default_qat_qconfig("x86")
        self.layer = torch.ao.quantization.prepare_qat(layer.train())

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        return self.layer(value)  # the call


@pytest.mark.filterwarnings("ignore")
def test_a_model_prepared_for_quantization_that_has_seen_nothing() -> None:
    model = Observed()
    error = refused(errors.MutationError, model)
    assert_located(error, Observed.forward, "# the call")
    assert "call the model once" in error.remedy
    model(X)
    model(X)
    wanted = copy.deepcopy(model)(X)
    torch.testing.assert_close(tintype.export(model, (X,)).module()(X), wanted)


def of_a_class(value: torch.Tensor) -> torch.Tensor:
    return torch.FloatTensor([value[0, 0], value[0, 1]])  # the list


def of_a_tensor(value: torch.Tensor) -> torch.Tensor:
    return value.new_tensor([value[0, 0], 2.0])  # the list


@pytest.mark.parametrize(("function", "shapes"), [(of_a_class, None), (of_a_class, "auto"), (of_a_tensor, None)])
def test_constructors_that_take_the_data_of_tensors_in_lists(function: Callable[..., Any], shapes: Any) -> None:
    with pytest.raises(errors.CaptureError, match="makes a tensor from tensors in a list") as caught:
        tintype.export(function, (X,), dynamic_shapes=shapes)
    assert_located(caught.value, function, "# the list")


def test_the_length_of_a_tensor_without_dimensions_is_the_programs_own_error() -> None:
    with pytest.raises(TypeError, match="0-d tensor") as caught:
        tintype.export(lambda value: value * len(value.sum()), (X,))
    assert not isinstance(caught.value, errors.TintypeError)


def test_torchs_own_parts_that_want_plain_numbers() -> None:
    def of_data(x: torch.Tensor) -> torch.Tensor:
        return torch.tensor_split(x, (x > 0).sum())[0]

    error = refused(errors.DataDependentError, of_data)
    assert_located(error, of_data, "torch.tensor_split")

    def of_sizes(x: torch.Tensor) -> torch.Tensor:
        size = (x.shape[2] - 1,)
        return nn.functional.interpolate(x, size=size, mode="linear", align_corners=True).sum()

    x = torch.randn(1, 2, 4, requires_grad=True)
    with pytest.raises(errors.DataDependentError, match="wants to know a number that varies"):
        tintype.export_joint(of_sizes, (x,), dynamic_shapes=({2: tintype.Dim("n", min=2)},))


def test_torchs_own_parts_that_read_data() -> None:
    """In a graph with gradients the operator is taken apart; an exported program has it whole."""

    def cut(x: torch.Tensor, where: torch.Tensor) -> torch.Tensor:
        return torch.tensor_split(x, where)[0].sum()

    args = (torch.ones(6, requires_grad=True), torch.tensor([2, 4]))
    for way in (tintype.export_joint, lambda function, args: tintype.aot.function(function)(*args)):
        with pytest.raises(errors.DataDependentError, match="reads the data of a tensor") as caught:
            way(cut, args)
        assert_located(caught.value, cut, "torch.tensor_split")
    assert tintype.export(cut, args).module()(*args) == 2


def test_a_branch_on_a_number_names_the_line_that_asked_for_it() -> None:
    def function(value: torch.Tensor) -> torch.Tensor:
        count = int(value.sum())
        return value if count > 3 else value * 2

    with pytest.raises(tintype.DataDependentError) as caught:
        tintype.export(function, (X,), control_flow="refuse")
    assert "in function: count = int(value.sum()))" in str(caught.value)
    assert caught.value.location is not None and caught.value.location.source_line().startswith("return value if")
