"""``export_joint``: loss, outputs and gradients are those of eager mode, and the model is as it was."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import torch.utils._pytree as pytree
from torch import nn

import tintype
from tintype.errors import CaptureError, InvalidRequestError
from tintype.ir.signature import OutputKind


class Model(nn.Module):
    """A model whose forward is given as a function of itself and its inputs."""

    def __init__(self, forward: Callable[..., Any], **members: Any) -> None:
        super().__init__()
        for name, member in members.items():
            if isinstance(member, torch.Tensor) and not isinstance(member, nn.Parameter):
                self.register_buffer(name, member)
            else:
                setattr(self, name, member)
        self.function = forward

    def forward(self, *args: Any) -> Any:
        return self.function(self, *args)


def eager(model: nn.Module, args: tuple[Any, ...], loss_index: int) -> tuple[Any, dict[str, Any], dict[int, Any]]:
    """Outputs, gradients of parameters by name, gradients of inputs by position."""
    torch.manual_seed(5)
    inputs = [copied(leaf) for leaf in args]
    outputs = model(*inputs)
    loss = pytree.tree_leaves(outputs)[loss_index]
    parameters = {name: value for name, value in model.named_parameters() if value.requires_grad}
    leaves = {i: x for i, x in enumerate(inputs) if isinstance(x, torch.Tensor) and x.requires_grad}
    found = torch.autograd.grad(loss, [*parameters.values(), *leaves.values()], allow_unused=True)
    by_name = dict(zip(parameters, found, strict=False))
    by_position = dict(zip(leaves, found[len(parameters) :], strict=True))
    return outputs, {k: v for k, v in by_name.items() if v is not None}, by_position


def copied(leaf: Any) -> Any:
    if not isinstance(leaf, torch.Tensor):
        return leaf
    return leaf.detach().clone().requires_grad_(leaf.requires_grad)


def detached(values: Any) -> Any:
    return pytree.tree_map_only(torch.Tensor, torch.detach, values)


def check(model: nn.Module, args: tuple[Any, ...], *, loss_index: int = 0, **options: Any) -> tintype.ExportedProgram:
    """Export jointly, from the model and from its program, and compare with eager mode."""
    reference = copy.deepcopy(model)
    versions = {name: value._version for name, value in model.state_dict(keep_vars=True).items()}
    joint = tintype.export_joint(model, args, loss_index=loss_index, **options)
    assert versions == {name: value._version for name, value in model.state_dict(keep_vars=True).items()}
    assert all(p.grad is None and p.grad_fn is None for p in model.parameters())
    assert all(b.grad_fn is None and not b.requires_grad for b in model.buffers())
    for value, other in zip(model.state_dict().values(), reference.state_dict().values(), strict=True):
        assert torch.equal(value, other)
    compare(joint, reference, args, loss_index)
    return joint


def compare(joint: tintype.ExportedProgram, model: nn.Module, args: tuple[Any, ...], loss_index: int = 0) -> None:
    joint.validate()
    model = copy.deepcopy(model)
    outputs, parameters, inputs = eager(model, args, loss_index)
    torch.manual_seed(5)
    module = joint.module()
    with torch.no_grad():
        got, got_parameters, got_inputs = module(*map(copied, args))
    torch.testing.assert_close(
        pytree.tree_map_only(torch.Tensor, torch.detach, got),
        pytree.tree_map_only(torch.Tensor, torch.detach, outputs),
    )
    assert pytree.tree_structure(got) == pytree.tree_structure(outputs)
    torch.testing.assert_close(got_parameters, parameters)
    assert [g.shape for g in got_inputs.values()] == [g.shape for g in inputs.values() if g is not None]
    torch.testing.assert_close(list(got_inputs.values()), [g for g in inputs.values() if g is not None])
    for name, buffer in model.named_buffers():
        torch.testing.assert_close(module.get_buffer(name), buffer)


X = torch.linspace(-1, 1, 12).reshape(3, 4)


def linear() -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(4, 4)


def test_the_signature_names_loss_outputs_and_gradients() -> None:
    model = Model(lambda m, x: (m.fc(x).sum(), x * 2), fc=linear())
    joint = check(model, (X.clone().requires_grad_(),))
    kinds = [(spec.kind.name, spec.target) for spec in joint.graph_signature.output_specs]
    assert kinds == [
        ("LOSS_OUTPUT", None),
        ("USER_OUTPUT", None),
        ("GRADIENT_TO_PARAMETER", "fc.weight"),
        ("GRADIENT_TO_PARAMETER", "fc.bias"),
        ("GRADIENT_TO_USER_INPUT", "args_0"),
    ]
    backward = joint.graph_signature.backward_signature
    assert backward is not None
    assert backward.loss_output == joint.graph_signature.output_specs[0].arg.name
    assert list(backward.gradients_to_parameters.values()) == ["fc.weight", "fc.bias"]
    assert list(backward.gradients_to_user_inputs.values()) == ["args_0"]


def test_tied_weights_have_one_gradient() -> None:
    first, second = linear(), linear()
    second.weight = first.weight
    joint = check(Model(lambda m, x: m.second(m.first(x).tanh()).square().sum(), first=first, second=second), (X,))
    names = [s.target for s in joint.graph_signature.output_specs if s.kind is OutputKind.GRADIENT_TO_PARAMETER]
    assert names == ["first.weight", "first.bias", "second.bias"]


def test_parameters_without_a_gradient_have_none() -> None:
    used, unused, frozen = linear(), linear(), linear()
    frozen.requires_grad_(False)
    model = Model(lambda m, x: (m.frozen(m.used(x)).sum(), m.unused(x)), used=used, unused=unused, frozen=frozen)
    joint = check(model, (X,))
    targets = [s.target for s in joint.graph_signature.output_specs if s.kind is OutputKind.GRADIENT_TO_PARAMETER]
    assert targets == ["used.weight", "used.bias"]


def test_outputs_that_are_no_tensors_or_have_no_gradient() -> None:
    model = Model(lambda m, x: {"i": m.fc(x).argmax(-1), "n": 3, "none": None, "loss": m.fc(x).mean()}, fc=linear())
    check(model, (X,), loss_index=3)


class Scaled(torch.autograd.Function):
    """Multiplies by three, and says that its gradient is seven times what comes in."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x, weight)
        return x * weight * 3

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        x, weight = ctx.saved_tensors
        return gradient * weight * 7, (gradient * x).sum(0) * 7


class InPlace(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient * 5


def with_hook(m: Any, x: torch.Tensor) -> torch.Tensor:
    y = m.fc(x)
    y.register_hook(lambda gradient: gradient * 10)
    return y.square().sum()


def gradient_penalty(m: Any, x: torch.Tensor) -> torch.Tensor:
    y = m.fc(x).tanh().sum()
    (gradient,) = torch.autograd.grad(y, m.fc.weight, create_graph=True)
    return y + gradient.square().sum()


def first_order_gradient(m: Any, x: torch.Tensor) -> torch.Tensor:
    y = m.fc(x).tanh().sum()
    (gradient,) = torch.autograd.grad(y, m.fc.weight, retain_graph=True)
    return y * gradient.sum()


def region_without_gradients(m: Any, x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        scale = m.fc(x).norm()
    return (m.fc(x) / scale).sum()


def in_place(m: Any, x: torch.Tensor) -> torch.Tensor:
    y = m.fc(x)
    y[:, 0] *= 2
    y.relu_()
    z = y * 3
    z[1].add_(y[0] * x[2])
    z.view(-1)[::3].mul_(y[0, 0])
    y = z.sin_()
    return y.square().sum()


def complex_numbers(m: Any, x: torch.Tensor) -> torch.Tensor:
    spectrum = torch.fft.rfft(m.fc(x))
    return torch.view_as_real(spectrum * spectrum.conj()).square().sum() + spectrum.abs().sum()


def batch_norm_twice(m: Any, x: torch.Tensor) -> torch.Tensor:
    return m.norm(m.norm(m.fc(x)) * 2).square().sum()


def written_buffer(m: Any, x: torch.Tensor) -> torch.Tensor:
    y = m.fc(x)
    m.state.copy_(y.detach())
    m.state[0].add_(1)
    return (y * m.state).sum()


def buffer_with_history(m: Any, x: torch.Tensor) -> torch.Tensor:
    m.state.copy_(m.fc(x))
    return (m.state * x).sum()


def recurrent(m: Any, x: torch.Tensor) -> torch.Tensor:
    out, (hidden, _) = m.lstm(x[None])
    return out.square().sum() + hidden.sum() + m.gru(x[None])[0].sum()


PROGRAMS: dict[str, tuple[Callable[..., Any], Callable[[], dict[str, Any]]]] = {
    "custom function": (lambda m, x: Scaled.apply(m.fc(x), m.fc.bias).sum(), lambda: {"fc": linear()}),
    "custom function in place": (lambda m, x: InPlace.apply(m.fc(x)).sum(), lambda: {"fc": linear()}),
    "hook": (with_hook, lambda: {"fc": linear()}),
    "gradient penalty": (gradient_penalty, lambda: {"fc": linear()}),
    "gradient inside": (first_order_gradient, lambda: {"fc": linear()}),
    "no_grad": (region_without_gradients, lambda: {"fc": linear()}),
    "in place": (in_place, lambda: {"fc": linear()}),
    "dropout": (lambda m, x: F.dropout(m.fc(x), 0.5).square().sum(), lambda: {"fc": linear()}),
    "complex": (complex_numbers, lambda: {"fc": linear()}),
    "batch norm": (batch_norm_twice, lambda: {"fc": linear(), "norm": nn.BatchNorm1d(4)}),
    "written buffer": (written_buffer, lambda: {"fc": linear(), "state": torch.zeros(3, 4)}),
    "buffer with history": (buffer_with_history, lambda: {"fc": linear(), "state": torch.zeros(3, 4)}),
    "convolution": (
        lambda m, x: m.conv(x[None, None]).relu().sum(),
        lambda: {"conv": nn.Conv2d(1, 2, 3, padding=1, bias=True)},
    ),
    "embedding": (
        lambda m, x: m.table(torch.tensor([1, 0, 1])).mul(x).sum(),
        lambda: {"table": nn.Embedding(3, 4)},
    ),
    "recurrent": (
        recurrent,
        lambda: {"lstm": nn.LSTM(4, 3, 2, bidirectional=True, batch_first=True), "gru": nn.GRU(4, 2)},
    ),
    "attention": (
        lambda m, x: m.layer(x[None]).square().sum(),
        lambda: {"layer": nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True)},
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients_equal_eager(name: str) -> None:
    function, members = PROGRAMS[name]
    torch.manual_seed(0)
    check(Model(function, **members()), (X,))


# what a model does about gradients by itself is not part of a program that was exported below autograd
_OF_THE_MODEL = ("custom function", "custom function in place", "hook", "gradient penalty", "gradient inside")


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name not in _OF_THE_MODEL])
@pytest.mark.parametrize("stage", ["functional", "training", "core"])
def test_a_program_has_a_joint_program(name: str, stage: str) -> None:
    function, members = PROGRAMS[name]
    torch.manual_seed(0)
    model = Model(function, **members())
    program = tintype.export_for_training(model, (X,)) if stage == "training" else tintype.export(model, (X,))
    if stage == "core":
        program = program.run_decompositions()
    text = program.code
    compare(tintype.export_joint(program), model, (X,))
    assert program.code == text


@pytest.mark.parametrize("name", PROGRAMS)
def test_decomposed_joint_programs_have_the_same_gradients(name: str) -> None:
    function, members = PROGRAMS[name]
    torch.manual_seed(0)
    model = Model(function, **members())
    compare(tintype.export_joint(model, (X,)).run_decompositions(), model, (X,))


@pytest.mark.parametrize("from_program", [False, True])
def test_sizes_may_vary(from_program: bool) -> None:
    model = Model(lambda m, x: F.layer_norm(m.fc(x).reshape(-1), (x.shape[0] * 4,)).square().mean(), fc=linear())
    shapes = (({0: tintype.Dim("rows", min=2)},),)
    if from_program:
        joint = tintype.export_joint(tintype.export(model, (X,), dynamic_shapes=shapes))
    else:
        joint = tintype.export_joint(model, (X,), dynamic_shapes=shapes)
    for rows in (3, 2, 7):
        compare(joint, model, (torch.randn(rows, 4),))


def test_an_input_that_is_written_to() -> None:
    def function(m: Any, x: torch.Tensor) -> torch.Tensor:
        x.mul_(2)
        return m.fc(x).sum()

    model = Model(function, fc=linear())
    joint = tintype.export_joint(model, (X.clone(),))
    x = X.clone()
    _loss, gradients, _ = joint.module()(x)
    torch.testing.assert_close(x, X * 2)
    torch.testing.assert_close(gradients["fc.weight"], (X * 2).sum(0).expand(4, 4))


class MovingMean(nn.Module):
    """A codebook's habit: what no gradient goes through, written to by way of ``.data``."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.register_buffer("mean", torch.zeros(3))

    def forward(self, x: Any) -> Any:
        x = self.linear(x)
        with torch.no_grad():
            self.mean.data.mul_(0.9).add_(x.sum(0), alpha=0.1)
        return (x - self.mean).square().sum()


def test_a_buffer_that_is_written_to_by_way_of_its_data() -> None:
    model, x = MovingMean(), torch.randn(2, 3)
    program = tintype.export_joint(model, (x,))
    program.validate()
    module = program.module()
    loss, gradients, _ = module(x)
    expected = model(x)
    expected.backward()
    assert torch.allclose(loss, expected) and torch.allclose(module.mean, model.mean)
    assert torch.allclose(gradients["linear.weight"], model.linear.weight.grad)


def test_an_input_that_is_a_result_may_be_written_to() -> None:
    """Eager mode forbids it for leaves only."""
    source = X.clone().requires_grad_()
    model = Model(lambda m, x: x.mul_(3).square().sum(), fc=linear())
    joint = tintype.export_joint(model, (source * 1,))
    _, _, inputs = joint.module()(X.clone())
    torch.testing.assert_close(inputs["args_0"], 18 * X)
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad is being used in an in-place"):
        tintype.export_joint(model, (source,))


class Reversed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return -gradient


def straight_through(m: Any, x: torch.Tensor) -> Any:
    y = m.fc(x)
    return (y + (y.round() - y).detach()).square().sum(), y, y[0]


def statistics(m: Any, x: torch.Tensor) -> Any:
    m.state.add_(m.fc(x).detach().mean(0))
    m.other = m.fc(x).detach().sum(0)
    return (m.fc(x) * m.state).sum(), m.state


@pytest.mark.parametrize("of_program", [False, True])
@pytest.mark.parametrize(
    "function",
    [straight_through, statistics, lambda m, x: Reversed.apply(m.fc(x)).sum(), lambda m, x: (m.fc(x).sum(), x)],
    ids=["straight through", "statistics", "gradient rule", "inputs"],
)
def test_what_a_joint_program_returns_and_writes_is_not_differentiated_again(function: Any, of_program: bool) -> None:
    """Autograd would see the operators alone: not what the model kept gradients from, nor rules of its own."""
    model = Model(function, fc=linear(), state=torch.zeros(4), other=torch.zeros(4))
    x = X.clone().requires_grad_()
    joint = tintype.export_joint(tintype.export(model, (x,))) if of_program else tintype.export_joint(model, (x,))
    for module in (joint.module(), joint.run_decompositions().module(), tintype.unflatten(joint)):
        for _ in range(2):
            results = [leaf for leaf in pytree.tree_leaves(module(x)) if leaf is not x]
            assert not any(leaf.requires_grad for leaf in results)
            assert not any(buffer.requires_grad for buffer in module.buffers())
        with pytest.raises(RuntimeError, match="does not require grad"):
            results[0].backward()


def test_gradients_know_where_they_come_from() -> None:
    model = Model(lambda m, x: m.fc(x).tanh().sum(), fc=linear())
    joint = tintype.export_joint(model, (X,))
    by_target = {str(node.target): node for node in joint.graph.nodes if node.op == "call_function"}
    forward, backward = by_target["aten.tanh.default"], by_target["aten.tanh_backward.default"]
    assert backward.meta["seq_nr"] == forward.meta["seq_nr"]
    assert backward.meta["stack_trace"] == forward.meta["stack_trace"]
    assert "m.fc(x).tanh().sum()" in backward.meta["stack_trace"]
    assert backward.meta["partitioner_tag"] == "is_backward" and "partitioner_tag" not in forward.meta
    multiplied = by_target["aten.mm.default"]
    assert multiplied.meta["seq_nr"] == by_target["aten.addmm.default"].meta["seq_nr"]
    assert [path for path, _ in multiplied.meta["nn_module_stack"].values()] == ["", "fc"]


@pytest.mark.parametrize(
    ("function", "options", "fact"),
    [
        (lambda m, x: m.fc(x), {}, r"has the size \[3, 4\]"),
        (lambda m, x: x.sum(), {}, "does not depend on any parameter"),
        (lambda m, x: m.fc(x).argmax(), {}, "has the dtype torch.int64"),
        (lambda m, x: 3, {}, "is a int"),
        (lambda m, x: m.fc(x).sum(), {"loss_index": 1}, "loss_index is 1, but the program has 1 outputs"),
    ],
)
@pytest.mark.parametrize("from_program", [False, True])
def test_what_is_no_loss_is_refused(
    function: Callable[..., Any], options: dict[str, Any], fact: str, from_program: bool
) -> None:
    model = Model(function, fc=linear())
    with pytest.raises(InvalidRequestError, match=fact):
        if from_program:
            tintype.export_joint(tintype.export(model, (X,)), **options)
        else:
            tintype.export_joint(model, (X,), **options)


def test_a_joint_program_is_not_differentiated_again() -> None:
    joint = tintype.export_joint(Model(lambda m, x: m.fc(x).sum(), fc=linear()), (X,))
    with pytest.raises(InvalidRequestError, match="joint program already"):
        tintype.export_joint(joint)


def test_backward_inside_of_a_program_leaves_no_gradients_behind() -> None:
    def function(m: Any, x: torch.Tensor) -> torch.Tensor:
        m.fc(x).sum().backward()
        return m.fc(x).sum()

    model = Model(function, fc=linear())
    with pytest.raises(CaptureError, match=r"backward\(\)"):
        tintype.export_joint(model, (X,))
    assert all(p.grad is None for p in model.parameters())


def test_the_model_is_as_it_was_after_a_failure() -> None:
    def function(m: Any, x: torch.Tensor) -> torch.Tensor:
        m.state.copy_(m.fc(x))
        raise KeyError("the program's own error")

    model = Model(function, fc=linear(), state=torch.zeros(3, 4))
    with pytest.raises(KeyError):
        tintype.export_joint(model, (X,))
    assert model.state.grad_fn is None and model.state._version == 0 and not model.state.requires_grad


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: F.cosine_similarity(x, y, dim=-1),
        lambda x, y: torch.einsum("...i,...i->...", x, y),
        lambda x, y: F.smooth_l1_loss(x, y, reduction="none"),
    ],
    ids=["cosine_similarity", "einsum", "smooth_l1_loss"],
)
def test_a_size_of_one_that_only_the_example_has_is_stretched(function: Any) -> None:
    """Kernels that consist of others see a size that varies, and fail before anything is recorded."""
    x = torch.randn(2, 3, 1, 1, requires_grad=True)
    model = Model(lambda m, x: function(x, m.kept).sum(), kept=torch.randn(3, 4))
    auto = {2: tintype.Dim.AUTO, 3: tintype.Dim.AUTO}
    joint = tintype.export_joint(model, (x,), dynamic_shapes=((auto,),))
    loss, *_ = pytree.tree_leaves(joint.module()(x))
    torch.testing.assert_close(loss, model(x))


def test_a_view_at_size_one_that_is_written_to() -> None:
    """The kernel of reshape decides by itself in a joint graph: it is told what the example has."""

    def function(m: Any, x: torch.Tensor) -> torch.Tensor:
        x.reshape(-1)[:1] = 4
        x.contiguous()[:, 1:2] = 5
        return m.weight.sum()

    model = Model(function, weight=nn.Parameter(torch.ones(3)))
    example = torch.zeros(4, 1).transpose(0, 1)
    joint = tintype.export_joint(model, (example,), dynamic_shapes=(({0: tintype.Dim.AUTO},),)).module()
    x = torch.zeros(4, 1).transpose(0, 1)
    joint(x)
    assert x.tolist() == [[4, 5, 0, 0]]


def test_the_gradient_of_a_batch_norm_without_elements_is_no_crash() -> None:
    """torch's kernel divides by how many there are, and takes the process with it."""
    model = Model(lambda m, x: m.norm(x).sum(), norm=nn.BatchNorm1d(3))
    joint = tintype.export_joint(model, (torch.randn(4, 3),), dynamic_shapes=(({0: tintype.Dim("n")},),)).module()
    joint(torch.randn(5, 3))
    with pytest.raises(RuntimeError, match=r"n >= |s0 >= |assertion"):
        joint(torch.randn(0, 3))


def test_the_gradient_of_an_evaluated_batch_norm_without_elements_is_no_crash() -> None:
    norm = nn.BatchNorm1d(3).eval()
    program = tintype.export(norm, (torch.randn(4, 3),), dynamic_shapes=({0: tintype.Dim("n")},))
    for module in (norm, program.module(), program.run_decompositions().module(), tintype.unflatten(program)):
        x = torch.randn(0, 3, requires_grad=True)
        result = module(x)
        gradients = torch.autograd.grad(result.sum(), [x, *module.parameters()])
        assert [tuple(gradient.shape) for gradient in gradients] == [(0, 3), (3,), (3,)]
        assert not any(gradient.any() for gradient in gradients)
    model = Model(lambda m, x: m.norm(x).sum(), norm=norm).eval()
    joint = tintype.export_joint(model, (torch.randn(4, 3),), dynamic_shapes="auto").module()
    assert [gradient.tolist() for gradient in joint(torch.randn(0, 3))[1].values()] == [[0, 0, 0], [0, 0, 0]]


VARIANCES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "method": lambda x: x.var(),
    "deviation": lambda x: x.std(),
    "without correction": lambda x: torch.var(x, correction=0),
    "biased": lambda x: torch.std(x, False),
    "beside a mean": lambda x: torch.var_mean(x)[0],
}


@pytest.mark.direct(reason="joint programs are made of a model and of its program")
@pytest.mark.parametrize("of_program", [False, True])
@pytest.mark.parametrize("of_rows", [False, True])  # as many elements as there are, or three times that number
@pytest.mark.parametrize("name", VARIANCES)
def test_a_variance_of_all_elements_takes_every_size(name: str, of_rows: bool, of_program: bool) -> None:
    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return VARIANCES[name](x)

    example = (torch.randn(5, 3, requires_grad=True) if of_rows else torch.randn(5, requires_grad=True),)
    shapes = ({0: tintype.Dim("n")},)
    if of_program:
        joint = tintype.export_joint(tintype.export(Model(), example, dynamic_shapes=shapes)).module()
    else:
        joint = tintype.export_joint(Model(), example, dynamic_shapes=shapes).module()
    for size in (0, 1, 2, 7):
        x = torch.randn(size, 3, requires_grad=True) if of_rows else torch.randn(size, requires_grad=True)
        expected = Model()(x)
        expected.backward()
        result, _, gradients = joint(x)
        torch.testing.assert_close(result, expected.detach(), equal_nan=True)
        torch.testing.assert_close(gradients["x"], x.grad, equal_nan=True)


def _weighed(y: torch.Tensor) -> torch.Tensor:
    return (y * (torch.arange(y.numel(), device=y.device).reshape(y.shape).cos() + 2)).sum()


PRODUCTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "all": lambda x: x.prod(),
    "rows": lambda x: torch.prod(x, 1).sum(),
    "kept": lambda x: x.prod(-1, keepdim=True).sum(),
    "columns": lambda x: _weighed(x.prod(0)),
    "of another kind": lambda x: _weighed(x.prod(-1, dtype=torch.float64)).float(),
    "up to each": lambda x: _weighed(x.cumprod(-1)),
    "up to each of a column": lambda x: _weighed(torch.cumprod(x, 0)),
    "up to each, of another kind": lambda x: _weighed(torch.cumprod(x, dim=1, dtype=torch.float64)).float(),
    "complex": lambda x: _weighed(torch.view_as_real(torch.complex(x, x + 1).cumprod(-1))),
    "complex rows": lambda x: _weighed(torch.view_as_real(torch.complex(x, x + 1).prod(-1))),
}


@pytest.mark.direct(reason="joint programs are made of a model and of its program")
@pytest.mark.parametrize("of_program", [False, True])
@pytest.mark.parametrize("count", [0, 1, 3])
@pytest.mark.parametrize("name", PRODUCTS)
def test_a_product_of_any_number_of_elements_has_a_gradient(name: str, count: int, of_program: bool) -> None:
    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return PRODUCTS[name](x)

    example = (torch.randn(3, count, requires_grad=True),)
    shapes = ({0: tintype.Dim("n"), 1: tintype.Dim("m")},)
    source = tintype.export(Model(), example, dynamic_shapes=shapes) if of_program else None
    joint = tintype.export_joint(source) if source else tintype.export_joint(Model(), example, dynamic_shapes=shapes)
    for sizes in ((3, 0), (0, 2), (3, 4), (2, 1), (1, 5)):
        for zeros in (0, 1, 2):
            value = torch.randn(sizes)
            value.view(-1)[:zeros] = 0
            x = value.requires_grad_()
            expected = Model()(x)
            expected.backward()
            result, _, gradients = joint.module()(x)
            torch.testing.assert_close(result, expected.detach())
            torch.testing.assert_close(gradients["x"], x.grad)
