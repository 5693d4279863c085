"""The module of a program: it owns its state and behaves like a module."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize, prune

import tintype
from tests.export.modes import assert_same, capture
from tintype.export.module import ProgramModule


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.register_buffer("count", torch.zeros(()))
        self.register_buffer("unsaved", torch.ones(4), persistent=False)
        self.table = torch.arange(4.0)

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        self.count += 1
        self.unsaved.mul_(2)
        return self.layer(value) * self.count + self.unsaved + self.table + torch.tensor([1.0])


def x() -> torch.Tensor:
    return torch.randn(3, 4)


def test_module_is_a_module(mode: str) -> None:
    module = capture(mode, Model(), (x(),)).module()
    assert isinstance(module, nn.Module)
    assert isinstance(module, torch.fx.GraphModule)
    assert set(dict(module.named_parameters())) == {"layer.weight", "layer.bias"}
    assert set(dict(module.named_buffers())) == {"count", "unsaved"}


def test_calls_change_neither_model_nor_program(mode: str) -> None:
    model = Model()
    program = capture(mode, model, (x(),))
    module = program.module()
    for _ in range(3):
        module(x())
    assert module.count == 3
    assert model.count == 0
    assert torch.equal(model.unsaved, torch.ones(4))
    assert program.state_dict["count"] == 0
    assert torch.equal(program.constants["unsaved"], torch.ones(4))


def test_modules_do_not_share_what_they_write(mode: str) -> None:
    program = capture(mode, Model(), (x(),))
    first, second = program.module(), program.module()
    first(x())
    first(x())
    second(x())
    assert (first.count.item(), second.count.item()) == (2, 1)


def test_state_dict(mode: str) -> None:
    model = Model()
    module = capture(mode, model, (x(),)).module()
    assert list(module.state_dict()) == list(model.state_dict())
    assert_same(dict(module.state_dict()), dict(model.state_dict()))


def test_load_state_dict(mode: str) -> None:
    other = Model()
    with torch.no_grad():
        other.count.fill_(5)
    module = capture(mode, Model(), (x(),)).module()
    assert str(module.load_state_dict(other.state_dict())) == "<All keys matched successfully>"
    value = x()
    torch.testing.assert_close(module(value), other(value))
    with pytest.raises(RuntimeError, match="Missing key"):
        module.load_state_dict({"count": torch.tensor(1.0)})


def test_load_state_dict_by_assignment(mode: str) -> None:
    other = Model()
    module = capture(mode, Model(), (x(),)).module()
    module(x())
    module.load_state_dict({name: tensor.clone() for name, tensor in other.state_dict().items()}, assign=True)
    module.unsaved.fill_(1)
    value = x()
    torch.testing.assert_close(module(value), other(value))


def test_deepcopy(mode: str) -> None:
    module = capture(mode, Model(), (x(),)).module()
    module(x())
    copied = copy.deepcopy(module)
    assert isinstance(copied, ProgramModule)
    assert copied.count == 1
    assert copied.layer.weight is not module.layer.weight
    value = x()
    torch.testing.assert_close(copied(value), module(value))
    copied(x())
    assert (copied.count.item(), module.count.item()) == (3, 2)
    with torch.no_grad():
        copied.layer.weight.zero_()
    assert module.layer.weight.abs().sum() > 0


def test_deepcopy_keeps_tied_parameters(mode: str) -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one = nn.Linear(4, 4)
            self.two = nn.Linear(4, 4)
            self.two.weight = self.one.weight

        def forward(self, value: torch.Tensor) -> torch.Tensor:
            return self.two(self.one(value))

    copied = copy.deepcopy(capture(mode, Tied(), (x(),)).module())
    assert copied.one.weight is copied.two.weight


def test_shallow_copy(mode: str) -> None:
    module = capture(mode, Model(), (x(),)).module()
    copied = copy.copy(module)
    value = x()
    assert copied(value).shape == (3, 4)


def test_train_and_eval_are_not_supported(mode: str) -> None:
    module = capture(mode, Model(), (x(),)).module()
    with pytest.raises(NotImplementedError, match=r"Calling train\(\) is not supported yet."):
        module.train()
    with pytest.raises(NotImplementedError, match=r"Calling train\(\) is not supported yet."):
        module.train(False)
    with pytest.raises(NotImplementedError, match=r"Calling eval\(\) is not supported yet.") as caught:
        module.eval()
    assert isinstance(caught.value, tintype.TintypeError) and "export again" in str(caught.value.remedy)


def test_to_the_meta_device(mode: str) -> None:
    module = capture(mode, Model(), (x(),)).module().to("meta")
    assert {tensor.device.type for tensor in module.state_dict().values()} == {"meta"}
    assert module(x().to("meta")).device.type == "meta"


def test_to_another_dtype(mode: str) -> None:
    """State is converted; inputs are checked against what the program was exported with."""
    module = capture(mode, Model(), (x(),)).module().to(torch.float64)
    assert module.layer.weight.dtype is torch.float64
    with pytest.raises(RuntimeError, match="dtype"):
        module(x().double())


def test_to_the_same_device_keeps_running(mode: str) -> None:
    module = capture(mode, Model(), (x(),)).module()
    value = x()
    expected = copy.deepcopy(module)(value)
    torch.testing.assert_close(module.to("cpu")(value), expected)
    torch.testing.assert_close(module.float()(value).shape, expected.shape)


# --- training ------------------------------------------------------------------------------------------------


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 2))
        self.scale = nn.Parameter(torch.ones(2))

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        return self.layers(value) * self.scale


@pytest.mark.parametrize(
    "make",
    [lambda p: torch.optim.SGD(p, 0.1, momentum=0.9), lambda p: torch.optim.Adam(p, 0.05)],
    ids=["sgd", "adam"],
)
def test_training_steps_equal_eagers(mode: str, make: Any) -> None:
    model = Network()
    eager = copy.deepcopy(model)
    module = copy.deepcopy(capture(mode, model, (x(),)).module())
    optimizers = [make(eager.parameters()), make(module.parameters())]
    for _ in range(5):
        value, goal = x(), torch.randn(3, 2)
        for trained, optimizer in zip((eager, module), optimizers, strict=True):
            optimizer.zero_grad()
            nn.functional.mse_loss(trained(value), goal).backward()
            optimizer.step()
    assert_same(dict(module.state_dict()), dict(eager.state_dict()))


def test_training_with_batch_norm_and_dropout(mode: str) -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.ReLU(), nn.Linear(8, 2))
    eager = copy.deepcopy(model)
    module = copy.deepcopy(capture(mode, model, (x(),)).module())
    for step in range(3):
        value = x()
        for trained in (eager, module):
            torch.manual_seed(step)
            optimizer = torch.optim.SGD(trained.parameters(), 0.1)
            optimizer.zero_grad()
            trained(value).pow(2).sum().backward()
            optimizer.step()
    assert_same(dict(module.state_dict()), dict(eager.state_dict()))


def test_parameters_can_be_frozen_afterwards(mode: str) -> None:
    module = capture(mode, Network(), (x(),)).module()
    module.requires_grad_(False)
    assert not module(x()).requires_grad
    module.scale.requires_grad_()
    module(x()).sum().backward()
    assert module.scale.grad is not None


def test_parameters_replaced_afterwards(mode: str) -> None:
    model = nn.Linear(4, 4)
    module = capture(mode, model, (x(),)).module()
    module.weight = nn.Parameter(torch.zeros(4, 4))
    value = x()
    torch.testing.assert_close(module(value), model.bias.expand(3, 4))


def test_buffer_replaced_afterwards(mode: str) -> None:
    module = capture(mode, Model(), (x(),)).module()
    module(x())
    module.count = torch.tensor(10.0)
    module(x())
    assert module.count == 11


def test_under_no_grad_and_inference_mode(mode: str) -> None:
    module = capture(mode, Network(), (x(),)).module()
    with torch.no_grad():
        assert not module(x()).requires_grad
    with torch.inference_mode():
        assert module(x()).is_inference()
    assert module(x()).requires_grad


def test_hooks_on_the_module(mode: str) -> None:
    module = capture(mode, nn.Linear(4, 4), (x(),)).module()
    seen = []
    module.register_forward_hook(lambda owner, args, result: seen.append(result.shape))
    module(x())
    assert seen == [(3, 4)]


def test_module_inside_of_another_model(mode: str) -> None:
    inner = nn.Linear(4, 4)
    module = capture(mode, inner, (x(),)).module()

    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.program = module

        def forward(self, value: torch.Tensor) -> torch.Tensor:
            return self.program(value).relu() + 1

    model = Outer()
    value = x()
    program = tintype.export(model, (value,))
    torch.testing.assert_close(program.module()(value), inner(value).relu() + 1)
    assert program.graph_signature.parameters == ("program.weight", "program.bias")


def test_two_programs_in_one_model(mode: str) -> None:
    first = capture(mode, nn.Linear(4, 4), (x(),)).module()
    second = capture(mode, nn.BatchNorm1d(4), (x(),)).module()
    value = x()
    expected = copy.deepcopy(second)(first(value))
    program = tintype.export(nn.Sequential(first, second), (value,))
    assert set(program.state_dict) >= {"0.weight", "1.running_mean"}
    torch.testing.assert_close(program.module()(value), expected)


def test_module_under_autocast(mode: str) -> None:
    module = capture(mode, nn.Linear(4, 4), (x(),)).module()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        result = module(x())
    assert result.dtype in (torch.bfloat16, torch.float32)


def test_module_with_gradients_of_gradients(mode: str) -> None:
    module = capture(mode, nn.Sequential(nn.Linear(4, 4), nn.Tanh()), (x(),)).module()
    value = x().requires_grad_()
    (first,) = torch.autograd.grad(module(value).sum(), value, create_graph=True)
    (second,) = torch.autograd.grad(first.pow(2).sum(), value)
    assert second.shape == (3, 4)


def test_module_in_several_threads(mode: str) -> None:
    from concurrent.futures import ThreadPoolExecutor

    module = capture(mode, nn.Sequential(nn.Linear(4, 4), nn.Tanh()), (x(),)).module()
    values = [x() for _ in range(16)]
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(module, values))
    for value, result in zip(values, results, strict=True):
        torch.testing.assert_close(result, module(value))


def test_printing_the_module(mode: str) -> None:
    module = capture(mode, Network(), (x(),)).module()
    assert "ProgramModule" in repr(module)
    assert "takes value" in str(module) and "def forward(self, value" in module.code
    assert "aten" in module.print_readable(print_output=False)


# --- what belongs to whom ----------------------------------------------------------------------------------


def test_conversions_leave_the_program_and_the_model_alone() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    model[1].weight = model[0].weight
    program = tintype.export(model, (x(),))
    module = program.module()
    module.double()
    assert module.get_parameter("0.weight").dtype is torch.float64
    assert module.get_parameter("0.weight") is module.get_parameter("1.weight")
    assert model[0].weight.dtype is torch.float32 and program.state_dict["0.weight"].dtype is torch.float32
    value = x().detach()
    assert torch.equal(program.module()(value), model(value))


@pytest.mark.parametrize("part", ["program", "module"])
def test_pickling_is_refused_by_name(part: str) -> None:
    program = tintype.export(nn.Linear(4, 4), (x(),))
    with pytest.raises(tintype.errors.InvalidRequestError, match=r"can't be pickled[\s\S]*tintype\.save"):
        pickle.dumps(program if part == "program" else program.module())
    assert copy.copy(program).graph is program.graph


class Doubled(nn.Module):
    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        return weight * 2


def _parametrize(layer: nn.Module) -> Any:
    parametrize.register_parametrization(layer, "weight", Doubled())
    return layer.parametrizations["weight"].original, lambda original: original * 2


def _prune(layer: nn.Module) -> Any:
    prune.l1_unstructured(layer, "weight", amount=0.5)
    return layer.weight_orig, lambda original: original * layer.weight_mask


def _normalize(layer: nn.Module) -> Any:
    nn.utils.weight_norm(layer, "weight")
    return layer.weight_v, lambda v: v * (layer.weight_g / v.norm(dim=1, keepdim=True))


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("called", [False, True], ids=["fresh", "called"])
@pytest.mark.parametrize("root", [False, True], ids=["inside", "root"])
@pytest.mark.parametrize("change", [_parametrize, _prune, _normalize])
def test_state_that_a_tool_computes(change: Any, root: bool, called: bool) -> None:
    """Parametrizations, pruning and weight norm: what computes a weight is asked whenever the program runs."""
    layer = nn.Linear(4, 4)
    module = tintype.export(layer if root else nn.Sequential(layer), (x(),)).module()
    value = x()
    if called:
        assert_same(module(value), layer(value))
    original, compute = change(module if root else module.get_submodule("0"))
    module(value).sum().backward()
    assert original.grad is not None
    with torch.no_grad():
        original.mul_(torch.rand(4, 4) + 1)
    assert_same(module(value), nn.functional.linear(value, compute(original), layer.bias))


def test_state_that_is_computed_and_then_not_any_more() -> None:
    module = tintype.export(nn.Sequential(nn.Linear(4, 4)), (x(),)).module()
    layer, value = module.get_submodule("0"), x()
    for change, undo in ((_parametrize, parametrize.remove_parametrizations), (_prune, prune.remove)):
        change(layer)
        before = module(value)
        undo(layer, "weight")
        assert_same(module(value), before)


def test_state_that_was_taken_away() -> None:
    module = tintype.export(nn.Linear(4, 4), (x(),)).module()
    module(x())
    del module.weight
    with pytest.raises(tintype.TintypeError, match="the module has no 'weight' any more"):
        module(x())


def test_a_module_made_and_called_in_inference_mode() -> None:
    """It is a module like any other afterwards."""
    model, x = nn.BatchNorm1d(3), torch.randn(4, 3)
    program = tintype.export(model, (x,))
    with torch.inference_mode():
        module = program.module()
        first = module(x)
        torch.testing.assert_close(tintype.export(model, (x,)).module()(x), first)
    torch.testing.assert_close(module(x), first.clone())
    assert int(module.num_batches_tracked) == 2
    with torch.inference_mode():
        kept = nn.BatchNorm1d(3)
        torch.testing.assert_close(tintype.export(kept, (x,)).module()(x), kept(x))


def test_a_conversion_leaves_the_gradients_of_the_model_alone() -> None:
    model, value = nn.Linear(2, 2), torch.ones(1, 2)
    program = tintype.export(model, (value,))
    model(value).sum().backward()
    module = program.module()
    module.double()
    assert model.weight.grad is not None and model.weight.grad.dtype is torch.float32
    converted = dict(module.named_parameters())["weight"].grad
    assert converted is not None and converted.dtype is torch.float64
    nn.ModuleDict(tintype.modules({"a": program, "b": program})).to(torch.float16)
    assert model.weight.grad.dtype is torch.float32
