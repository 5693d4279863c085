"""What a program looks at and its sizes don't tell is checked when it is called: the answer is the one that it was
captured with, or the call is refused with the line that asked."""

from __future__ import annotations

import contextlib
import functools
import io
import random
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from torch import is_grad_enabled

import tintype
from tests.export.modes import assert_same, capture
from tests.serde.programs import edited_json, entries_of, loaded, saved_bytes
from tintype.errors import CaptureError, FileFormatError, InputMismatchError, TintypeError
from tintype.fake.observed import ObservedTensor
from tintype.fake.tensor import FakeTensor
from tintype.ir.observations import FACTS
from tintype.trace import observing

ALL = (
    "module", "decomposed", "saved", "saved decomposed", "unflattened", "training", "retraced",
    "retraced unflattened", "called by another",
)  # fmt: skip


class Around(torch.nn.Module):
    """A model that calls a captured program on what it computes."""

    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, *args: Any) -> Any:
        return self.module(*args)


def runnable(how: str, model: Callable[..., Any], args: tuple[Any, ...], **options: Any) -> Callable[..., Any]:
    """A captured program in one of the forms that it can be run in."""
    if how == "training":
        return tintype.export_for_training(model, args, **options).module()
    program = tintype.export(model, args, **options)
    if how.startswith("saved"):
        file = io.BytesIO()
        tintype.save(program, file)
        program = tintype.load(file)
    if how.endswith("decomposed"):
        return program.run_decompositions().module()
    if how == "unflattened":
        return tintype.unflatten(program)
    if how == "retraced":
        return tintype.export(program.module(), args, **options).module()
    if how == "retraced unflattened":
        return tintype.export(tintype.unflatten(program), args, **options).module()
    if how == "called by another":
        if "dynamic_shapes" in options:
            options["dynamic_shapes"] = {"args": tuple(options["dynamic_shapes"].values())}
        return tintype.export(Around(program.module()), args, **options).module()
    return program.module()


def assert_right_or_refused(module: Callable[..., Any], model: Callable[..., Any], make: Callable[[], Any]) -> bool:
    """Call both on equal inputs; whether the program took them."""
    expected = model(*make())
    try:
        result = module(*make())
    except InputMismatchError as error:
        assert error.location is not None and error.remedy is not None
        assert __file__.endswith(error.location.filename.rpartition("/")[2])
        return False
    assert_same(result, expected)
    return True


def plain() -> tuple[torch.Tensor]:
    return (torch.arange(12, dtype=torch.float32).reshape(3, 4),)


def transposed() -> tuple[torch.Tensor]:
    return (torch.arange(12.0).reshape(4, 3).t(),)


def of_a_batch() -> tuple[torch.Tensor]:
    return (torch.arange(24.0).reshape(6, 4)[2:5],)


def trained() -> tuple[torch.Tensor]:
    return (torch.arange(12.0).reshape(3, 4).requires_grad_(),)


def with_history() -> tuple[torch.Tensor]:
    return (torch.arange(12.0).reshape(3, 4).requires_grad_() * 1,)


def parameter() -> tuple[torch.Tensor]:
    return (torch.nn.Parameter(torch.arange(12.0).reshape(3, 4)),)


def with_gradient() -> tuple[torch.Tensor]:
    (value,) = trained()
    value.sum().backward()
    return (value,)


def in_shared_memory() -> tuple[torch.Tensor]:
    return (plain()[0].share_memory_(),)


def made_for_inference() -> tuple[torch.Tensor]:
    with torch.inference_mode():
        return plain()


def with_attribute() -> tuple[torch.Tensor]:
    (value,) = plain()
    value.foo = 2  # type: ignore[attr-defined]
    return (value,)


def buffer() -> tuple[torch.Tensor]:
    return (torch.nn.Buffer(plain()[0]),)


def with_hook() -> tuple[torch.Tensor]:
    (value,) = trained()
    value.register_hook(lambda gradient: gradient)
    return (value,)


def with_kept_gradient() -> tuple[torch.Tensor]:
    (value,) = with_history()
    value.retain_grad()
    return (value,)


def second_of_two() -> tuple[torch.Tensor]:
    return (torch.arange(24.0).reshape(2, 3, 4).requires_grad_().unbind(0)[1],)


def conjugated() -> tuple[torch.Tensor]:
    return (torch.ones(3, 4, dtype=torch.complex64).conj(),)


def complex_numbers() -> tuple[torch.Tensor]:
    return (torch.ones(3, 4, dtype=torch.complex64),)


def has_attribute(value: Any) -> bool:
    try:
        return bool(value.foo)
    except AttributeError:
        return False


@functools.singledispatch
def is_no_parameter(value: Any) -> bool:
    return True


@is_no_parameter.register
def _(value: torch.nn.Parameter) -> bool:
    return False


def is_plain(value: Any) -> bool:
    return type(value) is torch.Tensor


# question, and inputs that answer it in different ways
QUESTIONS: dict[str, tuple[Callable[[torch.Tensor], Any], Callable[[], Any], Callable[[], Any]]] = {
    "is_contiguous": (lambda x: x.is_contiguous(), plain, transposed),
    "channels_last": (
        lambda x: x.reshape(1, 2, 2, 3).is_contiguous(memory_format=torch.channels_last),
        plain,
        transposed,
    ),
    "is_contiguous, from the other side": (lambda x: x.is_contiguous(), transposed, plain),
    "contiguous transpose": (lambda x: x.t().is_contiguous(), plain, transposed),
    "contiguous result": (lambda x: (x * 2).is_contiguous(), plain, transposed),
    "stride": (lambda x: x.stride()[0] == 4, plain, transposed),
    "stride of a dimension": (lambda x: x.stride(-1) == 1, plain, transposed),
    "stride of a view": (lambda x: x[1:].unsqueeze(0).stride(1) == 4, plain, transposed),
    "storage_offset": (lambda x: x.storage_offset() == 0, plain, of_a_batch),
    "storage_offset of a view": (lambda x: x[1:].storage_offset() == 4, plain, of_a_batch),
    "requires_grad": (lambda x: x.requires_grad, plain, trained),
    "requires_grad, from the other side": (lambda x: x.requires_grad, trained, plain),
    "requires_grad of a result": (lambda x: (x * 2).sum().requires_grad, plain, trained),
    "is_leaf": (lambda x: x.is_leaf, plain, with_history),
    "is_leaf, from the other side": (lambda x: x.is_leaf, with_history, plain),
    "is_leaf of a result": (lambda x: (x * 2).is_leaf, trained, plain),
    "grad_fn": (lambda x: x.grad_fn is None, plain, with_history),
    "grad": (lambda x: x.grad is None, plain, with_gradient),
    "is_inference": (lambda x: x.is_inference(), plain, made_for_inference),
    "Parameter": (lambda x: isinstance(x, torch.nn.Parameter), plain, parameter),
    "Parameter, from the other side": (lambda x: isinstance(x, torch.nn.Parameter), parameter, plain),
    "is_shared": (lambda x: x.is_shared(), plain, in_shared_memory),
    "type": (lambda x: type(x) is torch.Tensor, plain, parameter),
    "type, from the other side": (lambda x: type(x) is torch.nn.Parameter, parameter, plain),
    "name of the type": (lambda x: type(x).__name__ == "Tensor", plain, parameter),
    "type, asked by a function": (lambda x: is_plain(x), plain, parameter),
    "type, asked by a function inside": (lambda x: all(type(y) is torch.Tensor for y in [x]), plain, parameter),
    "__class__": (lambda x: x.__class__ is torch.Tensor, plain, parameter),
    "singledispatch": (is_no_parameter, plain, parameter),
    "singledispatch, from the other side": (is_no_parameter, parameter, plain),
    "Buffer": (lambda x: isinstance(x, torch.nn.Buffer), plain, buffer),
    "Buffer, from the other side": (lambda x: isinstance(x, torch.nn.Buffer), buffer, plain),
    "dim_order": (lambda x: x.dim_order() == (0, 1), plain, transposed),
    "unbound stride": (lambda x: torch.Tensor.stride(x) == (4, 1), plain, transposed),
    "unbound is_contiguous": (lambda x: torch.Tensor.is_contiguous(x), plain, transposed),
    "memory format": (
        lambda x: torch._prims_common.suggest_memory_format(x.reshape(1, 2, 2, 3)) is torch.contiguous_format,
        plain,
        transposed,
    ),
    "torch.is_conj": (lambda x: torch.is_conj(x), complex_numbers, conjugated),
    "a function of torch's": (torch.is_conj, complex_numbers, conjugated),
    "hasattr": (lambda x: hasattr(x, "foo"), plain, with_attribute),
    "hasattr, from the other side": (lambda x: hasattr(x, "foo"), with_attribute, plain),
    "hasattr of what only we have": (lambda x: hasattr(x, "node"), plain, lambda: _with(plain, node=1)),
    "getattr": (lambda x: getattr(x, "foo", 0), plain, with_attribute),
    "getattr, from the other side": (lambda x: getattr(x, "foo", 0) == 2, with_attribute, plain),
    "another attribute": (lambda x: getattr(x, "foo", 0) == 2, with_attribute, lambda: _with(plain, foo=3)),
    "an attribute": (has_attribute, with_attribute, plain),
    "retains_grad": (lambda x: x.retains_grad, plain, with_kept_gradient),
    "output_nr": (lambda x: x.output_nr == 0, plain, second_of_two),
    "output_nr of a result": (lambda x: (x * 2).output_nr == 0, plain, trained),
    "_backward_hooks": (lambda x: x._backward_hooks is None, plain, with_hook),
}


def _with(make: Callable[[], tuple[torch.Tensor]], **attributes: Any) -> tuple[torch.Tensor]:
    (value,) = make()
    vars(value).update(attributes)
    return (value,)


@pytest.mark.parametrize("how", ALL)
@pytest.mark.parametrize("name", QUESTIONS)
def test_a_branch_on_what_an_input_is_like(name: str, how: str) -> None:
    question, example, other = QUESTIONS[name]

    def model(x: torch.Tensor) -> torch.Tensor:
        return x.detach() * 2 if question(x) else x.detach() * 3

    module = runnable(how, model, example())
    assert assert_right_or_refused(module, model, example), "what the program was captured with is taken"
    assert not assert_right_or_refused(module, model, other)


@pytest.mark.parametrize("how", ALL)
@pytest.mark.parametrize("others", [[(7, 4), (1, 4)], [(3, 4)]], ids=["other sizes", "same size"])
def test_strides_of_sizes_that_vary(how: str, others: Any) -> None:
    def model(x: torch.Tensor) -> Any:
        return x * x.stride(1) + x.stride(0)

    shapes = {"x": {0: tintype.Dim("n"), 1: tintype.Dim("m")}}
    module = runnable(how, model, plain(), dynamic_shapes=shapes)
    for size in others:
        assert assert_right_or_refused(module, model, lambda size=size: (torch.ones(size),))
    assert not assert_right_or_refused(module, model, lambda: (torch.ones(4, 5).t(),))
    assert not assert_right_or_refused(module, model, lambda: (torch.ones(3, 8)[:, ::2],))


# question about the surroundings, and surroundings with another answer
SURROUNDINGS: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "is_grad_enabled": (lambda: torch.is_grad_enabled(), torch.no_grad),
    "is_autocast_enabled": (lambda: torch.is_autocast_enabled("cpu"), lambda: torch.autocast("cpu")),
    "is_inference_mode_enabled": (lambda: torch.is_inference_mode_enabled(), torch.inference_mode),
    "are_deterministic_algorithms_enabled": (
        lambda: torch.are_deterministic_algorithms_enabled(),
        lambda: _changed(torch.use_deterministic_algorithms, True, False),
    ),
    "get_default_dtype": (
        lambda: torch.get_default_dtype() is torch.float32,
        lambda: _changed(torch.set_default_dtype, torch.float64, torch.float32),
    ),
    "is_grad_enabled, by its other name": (lambda: torch._C.is_grad_enabled(), torch.no_grad),
    "is_grad_enabled, held by the user": (lambda: is_grad_enabled(), torch.no_grad),
    "get_default_device": (
        lambda: torch.get_default_device().type == "cpu",
        lambda: _changed(torch.set_default_device, "meta", None),
    ),
    "flash_sdp_enabled": (
        lambda: torch.backends.cuda.flash_sdp_enabled(),
        lambda: _changed(torch.backends.cuda.enable_flash_sdp, False, True),
    ),
    "mkldnn.enabled": (
        lambda: torch.backends.mkldnn.enabled,
        lambda: torch.backends.mkldnn.flags(enabled=False),
    ),
    "cudnn.benchmark": (
        lambda: torch.backends.cudnn.benchmark,
        lambda: torch.backends.cudnn.flags(benchmark=True),
    ),
    "matmul.allow_tf32": (
        lambda: torch.backends.cuda.matmul.allow_tf32,
        lambda: _changed(functools.partial(setattr, torch.backends.cuda.matmul, "allow_tf32"), True, False),
    ),
    "fastpath": (
        lambda: torch.backends.mha.get_fastpath_enabled(),
        lambda: _changed(torch.backends.mha.set_fastpath_enabled, False, True),
    ),
    "initial_seed": (lambda: torch.initial_seed() == 0, lambda: _changed(torch.manual_seed, 5, 0)),
}


@contextlib.contextmanager
def _changed(change: Callable[[Any], Any], value: Any, before: Any) -> Any:
    change(value)
    try:
        yield
    finally:
        change(before)


@pytest.mark.parametrize("how", ALL)
@pytest.mark.parametrize("name", SURROUNDINGS)
def test_a_branch_on_what_is_around_the_program(name: str, how: str) -> None:
    question, elsewhere = SURROUNDINGS[name]
    torch.manual_seed(0)

    def model(x: torch.Tensor) -> torch.Tensor:
        return x * 2 if question() else x * 3

    module = runnable(how, model, plain())
    assert assert_right_or_refused(module, model, plain)
    with elsewhere():
        assert not assert_right_or_refused(module, model, plain)


@pytest.mark.parametrize("how", ["module", "saved decomposed", "retraced"])
def test_floats_that_become_tensors_are_of_the_default_dtype(how: str) -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        return x + torch.tensor([1.5, 2.5, 3.5, 4.5])

    module = runnable(how, model, plain())
    assert assert_right_or_refused(module, model, plain)
    with _changed(torch.set_default_dtype, torch.float64, torch.float32):
        assert not assert_right_or_refused(module, model, lambda: (plain()[0].float(),))


def test_tensors_that_say_their_dtype_ask_for_no_default() -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        return x + torch.tensor([1.5], dtype=torch.float32) + torch.tensor([2]) + x.new_tensor([1.5])

    assert not tintype.export(model, plain())._observations


def test_what_the_program_itself_switches_is_no_question_to_its_surroundings(mode: str) -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            first = x * 2 if torch.is_grad_enabled() else x * 3
        with torch.autocast("cpu"):
            second = x * 2 if torch.is_autocast_enabled("cpu") else x * 3
        return first + second

    program = capture(mode, model, plain())
    assert not program.observations
    with torch.no_grad():
        assert_same(program.module()(*plain()), model(*plain()))


def asks_for_gradients(x: torch.Tensor) -> torch.Tensor:
    return x * 2 if torch.is_grad_enabled() else x * 3


def asks_for_autocast(x: torch.Tensor) -> torch.Tensor:
    return x * 2 if torch.is_autocast_enabled("cpu") else x * 3


def branch_without_gradients(x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return tintype.cond(x.sum() > 0, asks_for_gradients, lambda y: y * 1, (x,))


def arm_without_gradients(x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return asks_for_gradients(x) if x.sum() > 0 else x * 1


def loop_without_gradients(x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return tintype.while_loop(lambda y: y.abs().sum() < 99, lambda y: (asks_for_gradients(y),), (x,))[0]


def branch_with_autocast(x: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu"):
        return tintype.cond(x.sum() > 0, asks_for_autocast, lambda y: y * 1, (x,))


def with_gradients(x: torch.Tensor) -> torch.Tensor:
    with torch.enable_grad():
        return asks_for_gradients(x)


def without_gradients(x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return asks_for_gradients(x)


@pytest.mark.parametrize("exported_with_gradients", [True, False])
@pytest.mark.parametrize(
    "model",
    [
        branch_without_gradients, arm_without_gradients, loop_without_gradients, branch_with_autocast, with_gradients,
        without_gradients,
    ],
)  # fmt: skip
def test_what_the_program_switches_around_a_question_is_its_own(
    model: Callable[..., Any], exported_with_gradients: bool
) -> None:
    with torch.set_grad_enabled(exported_with_gradients):
        program = tintype.export(model, plain())
    assert not program.observations
    for enabled in (True, False):
        with torch.set_grad_enabled(enabled):
            assert_same(program.module()(*plain()), model(*plain()))


def test_a_question_in_a_branch_for_what_nobody_switched() -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        return tintype.cond(x.sum() > 0, asks_for_gradients, lambda y: y * 1, (x,))

    module = tintype.export(model, plain()).module()
    with torch.no_grad(), pytest.raises(InputMismatchError, match="is_grad_enabled"):
        module(*plain())


class Frozen(torch.nn.Module):
    """Asks whether a result requires a gradient, which depends on a parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result = self.layer(x)
        return result * 2 if result.requires_grad else result * 3


class Asking(torch.nn.Module):
    """Asks its own parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(3, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2 if self.weight.requires_grad and self.weight.is_contiguous() else x * 3


@pytest.mark.parametrize("how", ["module", "decomposed", "saved", "unflattened", "training", "retraced"])
def test_questions_about_parameters(how: str) -> None:
    model = Asking()
    module: Any = runnable(how, model, plain())
    assert_same(module(*plain()), model(*plain()))
    assert "requires_grad" not in vars(torch.Tensor) and "is_contiguous" not in vars(torch.Tensor)
    module.weight.requires_grad_(False)
    with pytest.raises(InputMismatchError, match=r"Expected 'weight'\.requires_grad to be True, but got False"):
        module(*plain())
    module.weight.requires_grad_(True)
    module.weight.data = torch.ones(4, 3).t()
    with pytest.raises(InputMismatchError, match=r"Expected 'weight'\.is_contiguous\(\) to be True, but got False"):
        module(*plain())


@pytest.mark.parametrize("how", ["module", "decomposed", "saved", "unflattened", "training", "retraced"])
def test_flags_of_parameters(how: str) -> None:
    model = Frozen()
    module: Any = runnable(how, model, plain())
    assert_same(module(*plain()), model(*plain()))
    for frozen in (model, module):
        for parameter in frozen.parameters():
            parameter.requires_grad_(False)
    with pytest.raises(
        InputMismatchError, match=r"Expected 'layer\.weight'\.requires_grad to be True, but got False"
    ):
        module(*plain())


def test_what_torch_asks_on_its_way_is_no_question_of_the_program(mode: str) -> None:
    """Layers look at strides and gradient flags to choose between kernels: that is no matter of the program's."""

    def model(x: torch.Tensor) -> torch.Tensor:
        x = x.reshape(2, 6).flatten().view(3, 4).contiguous()
        return torch.nn.functional.scaled_dot_product_attention(x[None], x[None], x[None])

    program = capture(mode, model, plain())
    assert not program.observations
    encoder = torch.nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True).eval()
    assert not capture(mode, encoder, (torch.ones(2, 3, 4),))._observations


def test_layouts_that_can_not_matter_are_not_asked_for() -> None:
    layer = torch.nn.Linear(4, 2)

    def model(x: torch.Tensor) -> torch.Tensor:
        result = layer(x)
        return result * 2 if result.is_contiguous() else result * 3

    program = tintype.export(model, plain())
    assert_same(program.module()(*transposed()), model(*transposed()))


def test_only_inputs_that_the_answer_depends_on_are_held_to_it() -> None:
    def model(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y if (x * 2).is_contiguous() else x - y

    module = tintype.export(model, (*plain(), *plain())).module()
    assert_same(module(*plain(), *transposed()), model(*plain(), *transposed()))
    with pytest.raises(InputMismatchError, match=r"\*args\[0\]\.stride\(\) to be \(4, 1\), but got \(1, 3\)"):
        module(*transposed(), *plain())


def test_a_question_inside_of_a_branch() -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        def inside(y: torch.Tensor) -> torch.Tensor:
            return y * 2 if y.is_contiguous() else y * 3

        return tintype.cond(x.sum() > 0, inside, lambda y: y * 1, (x,))

    module = tintype.export(model, plain()).module()
    assert_same(module(*plain()), plain()[0] * 2)
    with pytest.raises(InputMismatchError, match="stride"):
        module(*transposed())


def test_the_contract_lists_what_was_looked_at() -> None:
    def model(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        if x.is_contiguous() and not y.requires_grad and torch.is_grad_enabled():
            return x + y.stride(0)
        return x

    program = tintype.export(model, (*plain(), *plain()))
    texts = [line.text for line in program.contract() if line.kind == "observation"]
    assert texts == [
        "x.is_contiguous() = True",
        "y.requires_grad = False",
        "torch.is_grad_enabled() = True",
        "y.stride(0) = 4",
    ]
    assert all(line.location is not None for line in program.contract())
    assert "test_observations.py" in str(program.contract())


# --- objects ---------------------------------------------------------------------------------------------


def twice() -> tuple[torch.Tensor, torch.Tensor]:
    (value,) = plain()
    return value, value


def apart() -> tuple[torch.Tensor, torch.Tensor]:
    return plain()[0], plain()[0]


IDENTITIES: dict[str, Callable[[torch.Tensor, torch.Tensor], bool]] = {
    "is": lambda x, y: x is y,
    "is not": lambda x, y: x is not y,
    "is, in a loop": lambda x, y: any(x is other for other in [y]),
    "id": lambda x, y: id(x) == id(y),
}


@pytest.mark.parametrize("how", ALL)
@pytest.mark.parametrize("name", IDENTITIES)
def test_a_branch_on_what_object_an_input_is(name: str, how: str) -> None:
    question = IDENTITIES[name]

    def model(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x * 2 if question(x, y) else x * 3 + y

    module = runnable(how, model, apart())
    assert assert_right_or_refused(module, model, apart)
    assert not assert_right_or_refused(module, model, twice)


def tied(question: Callable[[Any, torch.Tensor], bool]) -> torch.nn.Module:
    """A model that asks something of its state and its input."""

    class Tied(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(3, 4))
            self.register_buffer("mean", torch.ones(3, 4))
            self.other = torch.nn.Linear(4, 5)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2 if question(self, x) else x * 3

    return Tied()


TIED: dict[str, Callable[[Any, torch.Tensor], bool]] = {
    "attributes": lambda self, x: x is self.weight or self.mean is x,
    "variables": lambda self, x: any(x is value for value in (self.weight, self.mean)),
}


@pytest.mark.parametrize("how", ["module", "decomposed", "saved", "unflattened", "training", "retraced"])
@pytest.mark.parametrize("name", TIED)
def test_a_branch_on_being_a_parameter(name: str, how: str) -> None:
    model = tied(TIED[name])
    module: Any = runnable(how, model, plain())
    assert_same(module(*plain()), model(*plain()))
    for own in ("weight", "mean"):
        with pytest.raises(InputMismatchError, match=rf"Expected \(input at \*args\[0\] is '{own}'\) to be False"):
            module(getattr(module, own))


@pytest.mark.parametrize("name", TIED)
def test_an_example_that_is_a_parameter_is_refused_where_that_counts(name: str) -> None:
    model: Any = tied(TIED[name])
    for own in (model.weight, model.mean):
        with pytest.raises(CaptureError, match="of the model itself") as caught:
            tintype.export(model, (own,))
        assert caught.value.location is not None and caught.value.location.filename == __file__


def test_only_state_that_may_be_meant_is_compared() -> None:
    model = tied(TIED["attributes"])
    lines = tintype.export(model, plain()).contract()
    assert [line.text for line in lines if line.kind == "observation"] == [
        "(x is 'weight') = False",
        "(x is 'mean') = False",
    ]
    assert not tintype.export(model, (torch.ones(2, 4),))._observations, "no tensor of that size is a parameter"
    assert not tintype.export(tied(lambda self, x: x.dtype is self.mean.dtype), plain())._observations


def test_one_tensor_given_twice_is_one() -> None:
    def model(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x * 2 if x is y else x * 3 + y

    for export in (tintype.export, tintype.export_for_training):
        module = export(model, twice()).module()
        assert assert_right_or_refused(module, model, twice)
        assert not assert_right_or_refused(module, model, apart)


def test_who_does_not_ask_takes_the_same_tensor_twice(mode: str) -> None:
    def model(x: torch.Tensor, y: torch.Tensor | None) -> torch.Tensor:
        return x if y is None else x + y

    for example in (apart, twice):
        module = capture(mode, model, example()).module()
        for make in (apart, twice):
            assert_same(module(*make()), model(*make()))


def test_functions_have_their_own_code_again() -> None:
    code = is_plain.__code__

    def model(x: torch.Tensor) -> torch.Tensor:
        assert is_plain.__code__ is not code, "which makes this test one"
        return x * 2 if is_plain(x) and type(x.shape) is torch.Size and type("A", (), {"a": 1}).a == 1 else x * 3

    assert_same(tintype.export(model, plain()).module()(*plain()), plain()[0] * 2)
    assert is_plain.__code__ is code
    with pytest.raises(ZeroDivisionError):
        tintype.export(lambda x: x * (1 / 0) if is_plain(x) else x, plain())
    assert is_plain.__code__ is code


def test_a_function_of_many_names_and_constants() -> None:
    """Fetching the builtin takes a larger instruction there."""
    body = "\n".join(f"    v{i} = n{i}; w = {i + 1000}.5" for i in range(300))
    source = f"def model(x):\n    first = type(x)\n{body}\n    return x * 2 if type(x) is first is Tensor else x * 3"
    names: dict[str, Any] = {f"n{i}": i for i in range(300)} | {"Tensor": torch.Tensor}
    exec(source, names)
    assert_same(tintype.export(names["model"], plain()).module()(*plain()), plain()[0] * 2)


# --- refused ---------------------------------------------------------------------------------------------


def _left_without_gradients(x: torch.Tensor) -> torch.Tensor:
    torch.set_grad_enabled(False)
    return x * 2


REFUSED: dict[str, tuple[Callable[[torch.Tensor], Any], str]] = {
    "manual_seed": (lambda x: (torch.manual_seed(3), torch.rand(4) + x)[1], "calls torch.manual_seed"),
    "seed": (lambda x: x + torch.seed(), "calls torch.seed"),
    "get_rng_state": (lambda x: (torch.get_rng_state(), x * 1)[1], "calls torch.get_rng_state"),
    "fork_rng": (lambda x: (torch.random.fork_rng(), x * 1)[1], "calls torch.random.fork_rng"),
    "generator": (lambda x: (torch.default_generator.manual_seed(7), torch.rand(4) + x)[1], "sets the seed"),
    "set_default_dtype": (lambda x: (torch.set_default_dtype(torch.float64), x * 1)[1], "torch.set_default_dtype"),
    "set_autocast_enabled": (
        lambda x: (torch.set_autocast_enabled("cpu", True), x @ x.t())[1],
        "set_autocast_enabled",
    ),
    "set_grad_enabled": (_left_without_gradients, "switches gradients on or off"),
    "data_ptr": (lambda x: x * (2 if x.data_ptr() % 64 else 3), "data pointer"),
    "untyped_storage": (lambda x: x * x.untyped_storage().nbytes(), r"untyped_storage\(\)"),
    "storage": (lambda x: x * x.storage().size(), r"storage\(\)"),
    "_version": (lambda x: x * x._version, "_version"),
    "_base": (lambda x: x * 2 if x._base is None else x * 3, "_base"),
    "_is_view": (lambda x: x * 2 if x._is_view() else x * 3, "_is_view"),
    "is_set_to": (lambda x: x * 2 if x.is_set_to(x) else x * 3, "is_set_to"),
    "share_memory_": (lambda x: (x * 2).share_memory_() + 1, "share_memory_"),
    "dlpack": (lambda x: torch.from_dlpack(x * 2), "__dlpack__"),
    "random": (lambda x: x * random.random(), "calls random.random"),
    "shuffle": (lambda x: (random.shuffle([1, 2]), x)[1], "calls random.shuffle"),
    "numpy.random": (lambda x: x * float(np.random.rand()), "calls numpy.random.rand"),
    "as_subclass": (lambda x: x.as_subclass(torch.nn.Parameter) * 2, "as_subclass"),
    "grad": (lambda x: (setattr(x, "grad", x * 2), x * 2)[1], "gradient of a tensor"),
    "grad_dtype": (lambda x: x.to(x.grad_dtype), "grad_dtype"),
    "_cdata": (lambda x: x * x._cdata, "_cdata"),
    "_use_count": (lambda x: x * x._use_count(), "_use_count"),
    "apply_": (lambda x: x.apply_(lambda value: value + 1), "apply_"),
    "map_": (lambda x: x.map_(x, lambda first, second: first + second), "map_"),
    "map2_": (lambda x: x.map2_(x, x, lambda first, second, third: first), "map2_"),
    "storage_type": (lambda x: (x.storage_type(), x)[1], "storage_type"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_program_can_know_or_do_is_refused_with_the_line(name: str) -> None:
    model, text = REFUSED[name]
    torch.manual_seed(0)
    state = torch.get_rng_state()
    for export in (tintype.export, tintype.export_for_training):
        with pytest.raises(CaptureError, match=text) as caught:
            export(model, plain())
        assert caught.value.remedy is not None
        if name != "generator":  # nobody sees it but by its effect
            assert caught.value.location is not None and caught.value.location.filename == __file__
    assert torch.is_grad_enabled() and torch.get_default_dtype() is torch.float32
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.manual_seed.__module__ == "torch.random", "torch's functions are its own again"


def test_an_attribute_that_is_no_plain_value_is_refused() -> None:
    given = _with(plain, foo=torch.ones(4))
    with pytest.raises(CaptureError, match="asks for the attribute 'foo' of an input, which is a Tensor"):
        tintype.export(lambda x: x * x.foo, given)


def test_attributes_that_the_program_itself_sets(mode: str) -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        y.foo = 3  # type: ignore[attr-defined]
        return y * y.foo if hasattr(y, "foo") and not hasattr(x, "bar") else y  # type: ignore[attr-defined]

    hook = capture(mode, model, with_attribute())
    assert_same(hook.module()(*with_attribute()), model(*with_attribute()))


def test_the_history_of_a_tensor() -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        return x * 2 if (x * 2).grad_fn is None else x * 3

    assert_same(tintype.export(model, plain()).module()(*plain()), model(*plain()))
    with pytest.raises(CaptureError, match="grad_fn"):
        tintype.export(model, trained())


def test_a_parameter_that_the_program_makes_is_one(mode: str) -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        own = torch.nn.Parameter(torch.ones(4))
        return x * own if isinstance(own, torch.nn.Parameter) else x * 3

    assert_same(capture(mode, model, plain()).module()(*plain()), model(*plain()))


# --- nothing is forgotten ----------------------------------------------------------------------------------


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# What torch.Tensor has besides operators and what tensors without data answer in their own way: it follows from
# sizes, dtype and device (all tensors that a program takes are strided and neither quantized nor nested), ...
OF_THE_CONTRACT = _words("""
    __dlpack_device__ __len__ _dimI _dimV _is_zerotensor _nnz dense_dim device dim dtype element_size get_device
    is_coalesced is_complex is_cpu is_cuda is_distributed is_floating_point is_ipu is_maia is_meta is_mps is_mtia
    is_nested is_quantized is_same_size is_signed is_vulkan is_xla is_xpu itemsize name nbytes ndim ndimension
    nelement numel q_per_channel_axis q_scale q_zero_point qscheme shape size sparse_dim type volatile
""")
# ... is made of operators or asks for data, ...
COMPUTED = _words("""
    H T __array_wrap__ __bool__ __contains__ __delitem__ __float__ __floordiv__ __iadd__ __idiv__ __ifloordiv__
    __imod__ __imul__ __int__ __invert__ __ipow__ __isub__ __iter__ __itruediv__ __long__ __mod__ __pos__ __radd__
    __rdiv__ __reversed__ __rfloordiv__ __rlshift__ __rmatmul__ __rmod__ __rmul__ __ror__ __rpow__ __rrshift__
    __rtruediv__ __rxor__ __truediv__ allclose backward bfloat16 bool byte cdouble cfloat char double eig equal float
    half int ipu is_nonzero item long lstsq lu mtia new new_tensor record_stream reinforce short solve symeig
    to_sparse_coo unique xpu
""")
# ... asks what our tensors hear, or is nothing that a model calls.
ASKS_OTHERS = frozenset({"dim_order"})
INTERNAL = _words("""
    __array_priority__ __dlpack_c_exchange_api__ __setstate__ __weakref__ _clear_non_serializable_cached_data
    _dtensor__new__ _fix_weakref _has_symbolic_sizes_strides _make_subclass _make_wrapper_subclass _python_dispatch
    _reduce_ex_internal _rev_view_func_unsafe _view_func _view_func_unsafe module_load
""")


def test_every_question_that_tensors_answer_is_known() -> None:
    schemas = torch._C._jit_get_all_schemas()
    operators = {
        schema.name.partition("::")[2]
        for schema in schemas
        if schema.name.startswith("aten::") and any("Tensor" in str(result.type) for result in schema.returns)
    }
    heard = {*vars(FakeTensor), *vars(ObservedTensor)}
    known = OF_THE_CONTRACT | COMPUTED | ASKS_OTHERS | INTERNAL | heard | set(dir(object))
    unknown = {
        name
        for name in dir(torch.Tensor)
        if name not in known | {"__slotnames__"}  # Python notes it there when a tensor is first copied
        and operators.isdisjoint({name, name.strip("_"), name.rstrip("_")})
    }
    assert not unknown, "decide what they answer while a program is captured"
    facts = set(FACTS) - {"is", "is_plain", "tensor_class", "hasattr", "getattr"}
    assert facts <= heard, "each is asked of a tensor without data by its name"
    unanswered = set(FACTS) - {"is", "grad", *observing._FOLLOWS_FROM, *observing._DONE_TO_IT}
    assert not unanswered, "say in trace/observing.py what they follow from where the program computed the tensor"


@pytest.mark.parametrize("how", ["retraced", "retraced unflattened", "called by another"])
def test_a_program_that_is_captured_again_names_the_line_that_asked_first(how: str) -> None:
    module = runnable(how, lambda x: x * 2 if x.is_contiguous() else x * 3, plain())
    with pytest.raises(InputMismatchError) as caught:
        module(torch.ones(4, 3).t())
    assert caught.value.location is not None and caught.value.location.function == "<lambda>"


# --- files -----------------------------------------------------------------------------------------------


def _asking() -> tintype.ExportedProgram:
    return tintype.export(lambda x: x * 2 if x.is_contiguous() else x * 3, plain())


def test_a_file_with_questions_needs_a_reader_that_asks_them() -> None:
    info = msgspec.json.decode(entries_of(saved_bytes(_asking()))["format.json"])
    assert info["minimum_reader"] == [1, 1]
    quiet = tintype.export(lambda x: x * 2, plain())
    assert msgspec.json.decode(entries_of(saved_bytes(quiet))["format.json"])["minimum_reader"] == [1, 0]


@pytest.mark.parametrize(
    "entry",
    [
        [0, "data_ptr", [], 3],
        [0, "__class__", [], True],
        [1, "is_contiguous", [], True],
        [-1, "is_contiguous", [], True],
        ["weight", "is_contiguous", [], True],
        [None, "manual_seed", [], 3],
        [None, "is_contiguous", [], True],
        [0, "stride", [], [4, ["a"], [1]]],
        [0, "stride", [], [17, 0]],
        [0, "is", ["weight"], False],
        [0, "is", [1], False],
        [0, "getattr", [], True],
        [0, "hasattr", [3], True],
    ],
    ids=str,
)
def test_questions_that_nobody_can_have_asked(entry: Any) -> None:
    content = edited_json(
        saved_bytes(_asking()), "program.json", lambda program: {**program, "observations": [entry]}
    )
    with pytest.raises(FileFormatError):
        loaded(content)


def test_errors_are_tintypes_own() -> None:
    assert issubclass(InputMismatchError, TintypeError)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x + torch.zeros(3),
        lambda x: torch.eye(3).sum() * x,
        lambda x: torch.where(x > 0, 1.0, 2.0),
        lambda x: torch.polar(torch.ones(3), torch.ones(3)).real * x,
    ],
)
def test_a_decomposed_program_is_for_one_default_dtype(function: Callable[..., Any]) -> None:
    program = tintype.export(function, (torch.ones(3),))
    decomposed = program.run_decompositions()
    assert "default_dtype" not in str(program.contract())
    assert_same(decomposed.module()(torch.ones(3)), function(torch.ones(3)))
    before = torch.get_default_dtype()
    x = torch.ones(3)
    torch.set_default_dtype(torch.float64)
    try:
        assert_same(program.module()(x), function(x))
        with pytest.raises(InputMismatchError, match="get_default_dtype") as caught:
            decomposed.module()(x)
    finally:
        torch.set_default_dtype(before)
    assert caught.value.location is not None
    assert "default_dtype" not in str(tintype.export(lambda x: x.relu() / 2, (x,)).run_decompositions().contract())


class Flagged(torch.nn.Module):
    """Asks for the gradient mode as models of libraries do."""

    never = False

    def __init__(self, asks):
        super().__init__()
        self.checkpointing = False
        self.asks = asks

    def forward(self, x):
        return self.asks(self, x)


def _beside_a_flag(self, x):
    if torch.is_grad_enabled() and self.checkpointing:
        return x * 2
    return x * 3


def _or_a_flag(self, x):
    return x * 2 if torch.is_grad_enabled() or not self.checkpointing else x * 3


def _beside_a_flag_of_the_class(self, x):
    while is_grad_enabled() and self.never and self.checkpointing:
        x = x * 2
    return x * 3


def _kept_in_a_variable(self, x):
    enabled = torch.is_grad_enabled()
    return x * 2 if enabled and self.checkpointing else x * 3


def _same_arms(self, x):
    if torch.is_grad_enabled():
        y = torch.sin(x)
    else:
        y = x.sin()
    return y * 2


def _region(self, x):
    with torch.set_grad_enabled(torch.is_grad_enabled() and not self.training):
        return x * 2


def _other_arms(self, x):
    return x * 2 if torch.is_grad_enabled() else x * 3


def _returned(self, x):
    return x * 2, torch.is_grad_enabled()


def _raises(self, x):
    assert torch.is_grad_enabled() or self.checkpointing
    return x * 2


def _asks_the_result(self, x):
    enabled, y = torch.is_grad_enabled(), x * 2
    return y * 2 if y.requires_grad or (enabled and self.checkpointing) else y * 3


@pytest.mark.parametrize("strict", [False, True], ids=["native", "strict"])
@pytest.mark.parametrize("captured_with", [False, True], ids=["without", "with"])
@pytest.mark.parametrize(
    ("asks", "matters"),
    [
        (_beside_a_flag, False),
        (_or_a_flag, False),
        (_beside_a_flag_of_the_class, False),
        (_kept_in_a_variable, False),
        (_same_arms, False),
        (_region, False),
        (_other_arms, True),
        (_returned, True),
        (_raises, True),
        (_asks_the_result, True),
    ],
)
def test_the_gradient_mode_is_asked_for_only_where_it_makes_a_difference(asks, matters, captured_with, strict):
    model = Flagged(asks)
    x = torch.randn(3, requires_grad=True)
    with torch.set_grad_enabled(captured_with):
        if asks is _raises and not captured_with:
            with pytest.raises(AssertionError):
                tintype.export(model, (x,), strict=strict)
            return
        program = tintype.export(model, (x,), strict=strict)
    module = program.module()
    for enabled in (True, False):
        with torch.set_grad_enabled(enabled):
            if matters and enabled is not captured_with:
                with pytest.raises(tintype.InputMismatchError, match="is_grad_enabled"):
                    module(x)
                continue
            expected, found = model(x), module(x)
        torch.testing.assert_close(found, expected)
        result, wanted = (found[0], expected[0]) if asks is _returned else (found, expected)
        assert result.requires_grad is wanted.requires_grad


def _mean_apart(x, w):
    with torch.no_grad():
        mean = (x * w).mean()
    return x * w * mean


@torch.no_grad()
def _scale(x):
    return x.abs().max()


def _scaled_by_helper(x, w):
    return x * w / _scale(x * w)


def _attached_again(x, w):
    with torch.no_grad():
        y = x * w
        with torch.enable_grad():
            z = y * w
        y = y + 1
    return y * w + z


def _switched(x, w):
    with torch.set_grad_enabled(False):
        y = x * w
    return y * w


def _in_a_branch(x, w):
    def double(x):
        with torch.no_grad():
            y = x * 2
        return x * y

    return tintype.cond(x.sum() > 0, double, torch.sin, (x,)) * w


def _nothing_attached(x, w):
    with torch.inference_mode(False), torch.no_grad():
        return x * w


@pytest.mark.parametrize("strict", [False, True], ids=["native", "strict"])
@pytest.mark.parametrize("export", [tintype.export, tintype.export_for_training])
@pytest.mark.parametrize(
    "model", [_mean_apart, _scaled_by_helper, _attached_again, _switched, _in_a_branch, _nothing_attached]
)
def test_regions_without_gradients_are_kept_where_all_is_captured_without(model, export, strict):
    x, w = torch.rand(3, requires_grad=True), torch.rand(3, requires_grad=True)
    with torch.no_grad():
        program = export(model, (x, w), strict=strict)
    variants = [program.module(), program.run_decompositions().module()]
    variants.append(tintype.export(variants[0], (x, w)).module())
    expected = model(x, w)
    for module in variants:
        found = module(x, w)
        torch.testing.assert_close(found, expected)
        assert found.requires_grad is expected.requires_grad
        if expected.requires_grad:
            wanted = torch.autograd.grad(expected.sum(), (x, w), retain_graph=True, allow_unused=True)
            given = torch.autograd.grad(found.sum(), (x, w), allow_unused=True)
            for one, other in zip(given, wanted):
                torch.testing.assert_close(one, other)
        with torch.no_grad():
            torch.testing.assert_close(module(x, w), model(x, w))
