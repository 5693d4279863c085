"""Weights that are objects of a class of tensors, made of plain ones: as quantized weights are."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils._pytree import tree_map, tree_map_only

import tintype
from tintype.errors import UnsupportedInputError


class Quantized(torch.Tensor):
    """Whole numbers and a scale per row; a linear layer multiplies before it scales."""

    @staticmethod
    def __new__(cls, numbers: torch.Tensor, scale: torch.Tensor) -> Any:
        return torch.Tensor._make_wrapper_subclass(cls, numbers.shape, dtype=scale.dtype, device=scale.device)

    def __init__(self, numbers: torch.Tensor, scale: torch.Tensor) -> None:
        self.numbers, self.scale = numbers, scale

    def __tensor_flatten__(self) -> Any:
        return ["numbers", "scale"], None

    @classmethod
    def __tensor_unflatten__(cls, inner: Any, context: Any, size: Any = None, stride: Any = None) -> Any:
        return cls(inner["numbers"], inner["scale"])

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is nn.functional.linear:
            x, weight, bias = (*args, None)[:3]
            result = nn.functional.linear(x, weight.numbers.to(x.dtype)) * weight.scale
            return result if bias is None else result + bias
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.detach.default:
            return cls(args[0].numbers, args[0].scale)
        raise NotImplementedError(func)


class Together(nn.Module):
    """Makes the weight from the tensors that it consists of."""

    def forward(self, numbers: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        return Quantized(numbers, scale)

    def right_inverse(self, weight: Any) -> Any:
        return weight.numbers, weight.scale


def layer() -> nn.Linear:
    torch.manual_seed(0)
    linear = nn.Linear(3, 2)
    numbers = torch.randint(-8, 8, (2, 3), dtype=torch.int8)
    linear.weight = nn.Parameter(Quantized(numbers, torch.tensor([0.5, 0.25])), requires_grad=False)
    return linear


@pytest.mark.parametrize("stage", ["exported", "saved", "decomposed", "unflattened", "torch's", "captured again"])
def test_such_a_weight_is_the_tensors_it_consists_of(stage: str, tmp_path: Any) -> None:
    model, x = layer(), torch.randn(5, 3)
    program = tintype.export(model, (torch.ones(4, 3),), dynamic_shapes="auto")
    assert list(program.state_dict) == ["weight.numbers", "weight.scale", "bias"]
    assert program.state_dict["weight.numbers"] is model.weight.numbers
    torch.testing.assert_close(FORMS[stage](program, tmp_path)(x), model(x))


def saved(program: tintype.ExportedProgram, folder: Any) -> Any:
    tintype.save(program, folder / "program.tt")
    return tintype.load(folder / "program.tt").module()


FORMS: dict[str, Any] = {
    "exported": lambda program, folder: program.module(),
    "saved": saved,
    "decomposed": lambda program, folder: program.run_decompositions().module(),
    "unflattened": lambda program, folder: tintype.unflatten(program),
    "torch's": lambda program, folder: tintype.interop.to_torch(program).module(),
    "captured again": lambda program, folder: tintype.export(
        program.module(), (torch.ones(4, 3),), dynamic_shapes="auto"
    ).module(),
}


def test_other_weights_of_the_same_class() -> None:
    model, other, x = layer(), layer(), torch.randn(4, 3)
    other.weight = nn.Parameter(Quantized(torch.ones(2, 3, dtype=torch.int8), torch.ones(2)), requires_grad=False)
    program = tintype.export(model, (x,)).with_state(other.state_dict())
    torch.testing.assert_close(program.module()(x), other(x))


@pytest.mark.parametrize("stage", ["exported", "saved", "decomposed"])
def test_a_module_that_makes_its_weight_is_captured(stage: str, tmp_path: Any) -> None:
    model, x = layer(), torch.randn(5, 3)
    expected = model(x)
    parametrize.register_parametrization(model, "weight", Together())
    program = tintype.export(model, (torch.ones(4, 3),), dynamic_shapes="auto")
    assert {value.dtype for value in program.state_dict.values()} == {torch.int8, torch.float32}
    if stage == "saved":
        tintype.save(program, tmp_path / "program.tt")
        program = tintype.load(tmp_path / "program.tt")
    elif stage == "decomposed":
        program = program.run_decompositions()
    torch.testing.assert_close(program.module()(x), expected)


# --- a class that leaves everything to __torch_dispatch__ ---------------------------------------------------------


class Both(torch.Tensor):
    """Two tensors to which everything is done alike."""

    @staticmethod
    def __new__(cls, first: torch.Tensor, second: torch.Tensor) -> Any:
        return torch.Tensor._make_wrapper_subclass(
            cls, first.size(), strides=first.stride(), dtype=first.dtype, requires_grad=first.requires_grad
        )

    def __init__(self, first: torch.Tensor, second: torch.Tensor) -> None:
        self.first, self.second = first, second

    def __tensor_flatten__(self) -> Any:
        return ["first", "second"], None

    @staticmethod
    def __tensor_unflatten__(inner: Any, context: Any, size: Any, stride: Any) -> Any:
        return Both(inner["first"], inner["second"])

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        results = [
            func(*tree_map_only(Both, lambda t, n=name: getattr(t, n), args), **(kwargs or {}))
            for name in ("first", "second")
        ]
        return tree_map(lambda a, b: Both(a, b) if isinstance(a, torch.Tensor) else a, *results)


def both(*sizes: int) -> Both:
    return Both(torch.randn(*sizes), torch.randn(*sizes))


def plain(value: Any) -> Any:
    """What a result consists of, with its classes."""
    if isinstance(value, Both):
        return {"first of both": plain(value.first), "second": plain(value.second)}
    return [plain(item) for item in value] if isinstance(value, (list, tuple)) else value


class Keeping(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.weight = nn.Parameter(both(4, 4), requires_grad=False)
        self.register_buffer("sums", both(4))

    def forward(self, x: torch.Tensor) -> Any:
        y = nn.functional.linear(x, self.weight)
        self.sums.add_(y.sum(0))
        return y.first + self.sums.second


PROGRAMS: dict[str, tuple[Any, Any]] = {
    "weights": (Keeping, lambda: (torch.randn(3, 4),)),
    "input": (lambda: lambda t, x: (t * x).first + t.second, lambda: (both(3), torch.randn(3))),
    "result": (lambda: lambda x: [Both(x, x + 1).sin(), x], lambda: (torch.randn(3),)),
    "both": (lambda: lambda t: {"a": t.relu(), "b": (t, 3)}, lambda: (both(3, 2),)),
    "nested": (lambda: lambda t: t * 2, lambda: (Both(both(3), both(3)),)),
    "inside": (lambda: lambda x: torch.matmul(Both(x, -x), x.t()).second, lambda: (torch.randn(3, 4),)),
    "in place": (lambda: lambda t: t.mul_(2).first, lambda: (both(3),)),
}


@pytest.mark.parametrize("form", ["exported", "saved", "decomposed", "unflattened"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_classes_say_what_operators_do(name: str, form: str, tmp_path: Any) -> None:
    make, inputs = PROGRAMS[name]
    program = tintype.export(make(), inputs())
    program.validate()
    args = inputs()
    copies = copy.deepcopy(args)
    got, wanted = FORMS[form](program, tmp_path)(*args), make()(*copies)
    torch.testing.assert_close(tree_map(plain, got), tree_map(plain, wanted))
    torch.testing.assert_close(plain(args), plain(copies))  # what it wrote to its inputs


def test_the_model_keeps_its_own() -> None:
    model, x = Keeping(), torch.randn(3, 4)
    before = plain(copy.deepcopy(model.sums))
    module = tintype.export(model, (x,)).module()
    first, second = module(x), module(x)
    torch.testing.assert_close(plain(model.sums), before)
    torch.testing.assert_close([first, second], [model(x), model(x)])


def test_sizes_that_vary() -> None:
    program = tintype.export(lambda t: t * 2, (both(3),), dynamic_shapes=({0: tintype.Dim("n")},))
    value = both(7)
    torch.testing.assert_close(plain(program.module()(value)), plain(value * 2))
    with pytest.raises(tintype.InputMismatchError):
        tintype.export(lambda t: t * 2, (both(3),)).module()(value)


@pytest.mark.parametrize("value", [both(3), torch.eye(3).to_sparse()], ids=["of the user's", "sparse"])
@pytest.mark.parametrize("gradients", [True, False])
def test_sizes_among_results_stay_sizes(value: Any, gradients: bool) -> None:
    """Who is given one may ask it for more than a tuple: ``shape.numel()``."""
    with torch.set_grad_enabled(gradients):
        program = tintype.export(lambda t: (t * 2, t.shape, {"size": (t * 2).sum().shape}), (value,))
        modules = (program.module(), program.run_decompositions().module(), tintype.unflatten(program))
        results = [module(value) for module in modules]
    for _, shape, others in results:
        assert type(shape) is torch.Size and shape == value.shape
        assert type(others["size"]) is torch.Size and others["size"].numel() == 1


def test_calls_with_another_class_are_refused() -> None:
    program = tintype.export(lambda t: t * 2, (both(3),))
    with pytest.raises(tintype.InputStructureError):
        program.module()(torch.ones(3))
    assert isinstance(program.example_inputs[0][0], Both)


class Added(torch.autograd.Function):
    """The sum of the two, with gradients of a class that the caller says."""

    @staticmethod
    def forward(ctx: Any, value: Any, gradient_class: Any) -> Any:
        ctx.gradient_class = gradient_class
        return value.first + value.second

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return ctx.gradient_class(gradient, 3 * gradient), None


class Loss(nn.Module):
    def __init__(self, gradient_class: Any) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.weight = nn.Parameter(both(4, 4))
        self.bias = nn.Parameter(torch.randn(4))
        self.gradient_class = gradient_class

    def forward(self, x: torch.Tensor) -> Any:
        return (Added.apply(self.weight * 2, self.gradient_class) @ x.sum(0) + self.bias).relu().sum()


def test_gradients_of_such_tensors_are_those_of_their_parts() -> None:
    model, x = Loss(Both), torch.randn(3, 4)
    loss, gradients, _ = tintype.export_joint(model, (torch.ones(3, 4),)).module()(x)
    wanted = model(x)
    wanted.backward()
    torch.testing.assert_close(loss, wanted)
    weight: Any = model.weight.grad
    expected = {"weight.first": weight.first, "weight.second": weight.second, "bias": model.bias.grad}
    torch.testing.assert_close(gradients, expected)


def test_gradients_that_no_graph_has_a_place_for_are_refused() -> None:
    with pytest.raises(UnsupportedInputError, match=r"the gradient of 'weight' is a .*, but the parameter a .*Both"):
        tintype.export_joint(Loss(torch.add), (torch.ones(3, 4),))
    with pytest.raises(UnsupportedInputError, match="consists of other tensors"):
        tintype.aot.module(Keeping())(torch.ones(3, 4))


def test_gradients_that_an_exported_program_has_not_are_named() -> None:
    with pytest.warns(tintype.LostGradientWarning, match=r"1 parameters that consist of others \(Both\): 'weight'"):
        tintype.export(Loss(Both), (torch.ones(3, 4),))


@pytest.mark.parametrize("form", [tintype.ExportedProgram.module, tintype.unflatten])
def test_inputs_whose_gradients_a_program_does_not_have_are_refused(form: Any) -> None:
    """What the gradient of such a tensor is only its class can tell."""
    module = form(tintype.export(lambda v: (v * 2).sin(), (both(3),)))
    with pytest.raises(tintype.InputMismatchError, match=r"requires_grad to be False.*Both.*\n.*x\.detach"):
        module(both(3).requires_grad_())
    module(both(3).requires_grad_().detach())


class Mute(torch.Tensor):
    """Does not say what it consists of."""

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return NotImplemented


def test_a_class_that_does_not_say_what_it_consists_of_is_refused() -> None:
    value = torch.Tensor._make_subclass(Mute, torch.ones(3))
    with pytest.raises(UnsupportedInputError, match="Mute can't be captured: it does not say of which tensors"):
        tintype.export(lambda t: t * 2, (value,))


@pytest.mark.parametrize("way", ["module", "saved", "decomposed", "retraced", "unflattened"])
def test_a_result_that_consists_of_others_refuses_its_gradients(way: str, tmp_path: Any) -> None:
    def model(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return (x * w).sum(0)

    x, w = TwoTensor(torch.rand(2, 3), torch.rand(2, 3)), torch.rand(3, requires_grad=True)
    program = tintype.export(model, (x, w))
    if way == "saved":
        tintype.save(program, tmp_path / "program.tt")
        program = tintype.load(tmp_path / "program.tt")
    if way == "decomposed":
        program = program.run_decompositions()
    if way == "retraced":
        program = tintype.export(program.module(), (x, w))
    module = tintype.unflatten(program) if way == "unflattened" else program.module()
    found, expected = module(x, w), model(x, w)
    assert found.requires_grad and found.grad_fn is not None
    for part in ("a", "b"):
        torch.testing.assert_close(getattr(found, part), getattr(expected, part))
    with pytest.raises(tintype.BackwardRefusedError, match="consists of other tensors"):
        found.sum().backward()
    with torch.no_grad():
        assert not module(x, w).requires_grad
    assert not module(x, w.detach()).requires_grad
