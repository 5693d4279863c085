"""A program takes inputs in any layout, as the model does; where a layout decides who shares memory, it checks."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import tintype
from tests.export.modes import copied, saved_and_loaded, targets
from tintype.errors import InputMismatchError, MutationError

Build = Callable[[Callable[..., Any], tuple[Any, ...]], Callable[..., Any]]


def _core(model: Any, args: Any) -> tintype.ExportedProgram:
    return tintype.export(model, args).run_decompositions()


# The ways from a model to something that runs.
BUILDS: dict[str, Build] = {
    "export": lambda model, args: tintype.export(model, args).module(),
    "training": lambda model, args: tintype.export_for_training(model, args).module(),
    "decomposed": lambda model, args: _core(model, args).module(),
    "empty table": lambda model, args: tintype.export(model, args).run_decompositions({}).module(),
    "saved": lambda model, args: saved_and_loaded(tintype.export(model, args)).module(),
    "saved, decomposed": lambda model, args: saved_and_loaded(_core(model, args)).module(),
    "unflattened": lambda model, args: tintype.unflatten(tintype.export(model, args)),
    "unflattened, decomposed": lambda model, args: tintype.unflatten(_core(model, args)),
    "retraced": lambda model, args: tintype.export(tintype.export(model, args).module(), args).module(),
    "decomposed, retraced": lambda model, args: tintype.export(_core(model, args).module(), args).module(),
    "torch": lambda model, args: tintype.interop.to_torch(tintype.export(model, args)).module(),
    "torch, decomposed": lambda model, args: tintype.interop.to_torch(_core(model, args)).module(),
}


def layouts(*sizes: int) -> dict[str, torch.Tensor]:
    """The same numbers in memory in several ways."""
    value = torch.randn(*sizes)
    order = list(reversed(range(len(sizes))))
    found = {
        "contiguous": value,
        "reversed": value.permute(order).contiguous().permute(order),
        "with gaps": torch.stack([value, value], dim=-1)[..., 0],
    }
    if len(sizes) == 4:
        found["channels last"] = value.to(memory_format=torch.channels_last)
    if len(sizes) > 1:
        found["first two swapped"] = value.transpose(0, 1).contiguous().transpose(0, 1)
    return found


def assert_like_eager(model: Any, module: Any, given: torch.Tensor) -> None:
    """Values, what is in the input afterwards, and gradients are those of eager mode."""
    mine, theirs = copied(given), copied(given)
    expected, got = model(mine), module(theirs)
    torch.testing.assert_close(got, expected)
    torch.testing.assert_close(theirs, mine)


def linear_over_convolution(x: torch.Tensor) -> torch.Tensor:
    return F.linear(F.conv2d(x, torch.ones(4, 3, 1, 1)), torch.ones(5, 6))


RECURRENT = nn.LSTM(4, 5)

MODELS: dict[str, tuple[Any, tuple[int, ...]]] = {
    "reshape": (lambda x: x.reshape(-1) * 2, (3, 4)),
    "flatten": (lambda x: x.flatten(1).sum(0), (2, 3, 4)),
    "ravel": (lambda x: torch.ravel(x) * 2, (3, 4)),
    "reshape_as": (lambda x: x.reshape_as(torch.ones(4, 3)) + 1, (3, 4)),
    "contiguous and view": (lambda x: x.contiguous().view(-1) * 2, (3, 4)),
    "contiguous in channels last": (lambda x: x.contiguous(memory_format=torch.channels_last) * 2, (2, 3, 4, 5)),
    "to channels last": (lambda x: x.to(memory_format=torch.channels_last) * 2, (2, 3, 4, 5)),
    "to contiguous": (lambda x: x.to(memory_format=torch.contiguous_format).flatten() * 2, (2, 3, 4, 5)),
    "of an intermediate value": (lambda x: (x.sin() * 2).flatten() + 1, (3, 4)),
    "permute and reshape": (lambda x: x.permute(0, 2, 3, 1).reshape(-1, 3), (2, 3, 4, 5)),
    "unflatten and back": (lambda x: x.unflatten(0, (2, 2)).flatten(0, 1) + 1, (4, 3)),
    "chunk": (lambda x: torch.cat([part.reshape(-1) for part in x.chunk(2, 1)]), (3, 4)),
    "matmul": (lambda x: x @ torch.ones(2, 1, 4, 5), (3, 6, 4)),
    "einsum": (lambda x: torch.einsum("bhwc,cd->bdhw", x, torch.ones(4, 5)), (2, 3, 6, 4)),
    "linear": (linear_over_convolution, (2, 3, 6, 6)),
    "written before": (lambda x: (x * 2).add_(1).flatten() + 1, (3, 4)),
    "written and nobody looks": (lambda x: (x * 2).reshape(-1).add_(1), (3, 4)),
    "a product is written to": (lambda x: (x @ torch.ones(4, 5)).flatten().mul_(2), (3, 4)),
    "returned": (lambda x: (x.contiguous(), x.reshape(-1), x.flatten(), x.ravel()), (3, 4)),
    "branch": (
        lambda x: torch.cond(x.sum() > 0, lambda x: x.flatten() + 1, lambda x: x.flatten() - 1, (x,)),
        (3, 4),
    ),
    "cnn": (
        nn.Sequential(
            nn.Conv2d(3, 4, 3), nn.ReLU(inplace=True), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(64, 5)
        ).eval(),
        (2, 3, 6, 6),
    ),
    "group norm": (lambda x: F.group_norm(x * 2, 2) + 1, (2, 8, 3, 3)),
    "embedding_bag": (lambda x: F.embedding_bag(torch.tensor([[1, 0], [2, 2]]), x * 2), (3, 4)),
    "recurrent": (lambda x: RECURRENT(x, (x[:1, :, :1] * torch.ones(5),) * 2)[0], (3, 2, 4)),
    "pdist": (lambda x: F.pdist(x * 2), (3, 4)),
    "pixel_shuffle": (lambda x: F.pixel_shuffle(x, 2) + 1, (2, 8, 3, 3)),
    "attention": (
        lambda x: F.scaled_dot_product_attention(x, x, x).transpose(1, 2).reshape(2, 5, 16),
        (2, 2, 5, 8),
    ),
}


@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("name", MODELS)
def test_layouts_other_than_the_example(name: str, build: str) -> None:
    torch.manual_seed(0)
    model, sizes = MODELS[name]
    module = BUILDS[build](model, (torch.randn(*sizes),))
    for given in layouts(*sizes).values():
        assert_like_eager(model, module, given)


@pytest.mark.parametrize("build", ["export", "decomposed", "empty table", "saved, decomposed", "unflattened"])
@pytest.mark.parametrize("name", ["reshape", "flatten", "contiguous and view", "permute and reshape", "returned"])
def test_examples_in_other_layouts(name: str, build: str) -> None:
    torch.manual_seed(0)
    model, sizes = MODELS[name]
    for example in layouts(*sizes).values():
        module = BUILDS[build](model, (example,))
        for given in layouts(*sizes).values():
            assert_like_eager(model, module, given)


DRAWS: dict[str, Any] = {
    "bernoulli_": lambda x: x.clone().bernoulli_(0.4),
    "bernoulli_ of integers": lambda x: (x > 0).long().bernoulli_(0.4),
    "bernoulli_ of flags": lambda x: (x > 0).bernoulli_(0.4),
    "dropout in place": lambda x: F.dropout(x.clone(), 0.5, inplace=True),
    "alpha_dropout": lambda x: F.alpha_dropout(x, 0.5, training=True),
    "dropout": lambda x: F.dropout(x, 0.5),
    "rrelu": lambda x: F.rrelu(x, training=True),
    "memory of its own": lambda x: torch.empty_like(x).uniform_(),
    "normal_": lambda x: x.clone().normal_(),
}


@pytest.mark.parametrize("build", ["export", "decomposed", "empty table", "saved, decomposed"])
@pytest.mark.parametrize("name", DRAWS)
def test_random_numbers_are_drawn_in_the_order_of_a_call(name: str, build: str) -> None:
    torch.manual_seed(0)
    model = DRAWS[name]
    for example in layouts(2, 3, 4, 5).values():
        module = BUILDS[build](model, (example,))
        for given in layouts(2, 3, 4, 5).values():
            torch.manual_seed(1)
            expected = model(given)
            torch.manual_seed(1)
            torch.testing.assert_close(module(given), expected)


@pytest.mark.parametrize("training", [True, False])
def test_randomized_relus_are_contiguous_whatever_their_arguments_are(training: bool) -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        result = F.rrelu(x, training=training)
        result.view(-1)[0] = 5
        return result

    given = torch.randn(4, 3).t()
    for module in (tintype.export(model, (given,)).module(), tintype.aot.function(model)):
        torch.manual_seed(1)
        expected = model(given)
        torch.manual_seed(1)
        found = module(given)
        assert found.stride() == expected.stride() == (4, 1)
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("build", BUILDS)
def test_gradients_in_other_layouts(build: str) -> None:
    model = MODELS["cnn"][0]
    module = BUILDS[build](model, (torch.randn(2, 3, 6, 6),))
    for given in layouts(2, 3, 6, 6).values():
        first, second = given.detach().requires_grad_(), given.detach().requires_grad_()
        model(first).square().sum().backward()
        module(second).square().sum().backward()
        torch.testing.assert_close(second.grad, first.grad)


def test_joint_programs_take_any_layout() -> None:
    class Loss(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cnn = copy.deepcopy(MODELS["cnn"][0])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.cnn(x).square().sum()

    model = Loss()
    joint = tintype.export_joint(model, (torch.randn(2, 3, 6, 6),))
    for program in (joint, joint.run_decompositions()):
        for given in layouts(2, 3, 6, 6).values():
            model.zero_grad()
            loss = model(given)
            loss.backward()
            outputs, gradients, _ = program.module()(given)
            torch.testing.assert_close(outputs, loss)
            for name, parameter in model.named_parameters():
                torch.testing.assert_close(gradients[name], parameter.grad)


def test_weights_in_channels_last() -> None:
    model = copy.deepcopy(MODELS["cnn"][0])
    image = torch.randn(2, 3, 6, 6)
    for program in (tintype.export(model, (image,)), _core(model, (image,))):
        module = program.module().to(memory_format=torch.channels_last)
        torch.testing.assert_close(module(image), model(image))


def test_results_share_memory_as_in_eager_mode() -> None:
    model, sizes = MODELS["returned"]
    for example in layouts(*sizes).values():
        for build in ("export", "decomposed", "saved, decomposed", "unflattened"):
            module = BUILDS[build](model, (example,))
            for given in layouts(*sizes).values():
                expected = [_shares(result, given) for result in model(given)]
                assert [_shares(result, given) for result in module(given)] == expected


def _shares(first: torch.Tensor, second: torch.Tensor) -> bool:
    return first.untyped_storage().data_ptr() == second.untyped_storage().data_ptr()


def test_what_the_model_said_stays_whole() -> None:
    def model(x: torch.Tensor) -> Any:
        return x.reshape(-1) + 1, x.flatten() + 1, x.contiguous() + 1, x.t().contiguous() + 1

    for export in (tintype.export, tintype.export_for_training):
        found = targets(export(model, (torch.randn(3, 4),)))
        assert "aten.reshape.default" in found
        assert "aten.flatten.using_ints" in found
        assert found.count("aten.contiguous.default") == 2


def test_decomposed_programs_consist_of_views_and_copies() -> None:
    core = _core(lambda x: (x * 2).flatten() + 1, (torch.randn(3, 4),))
    assert targets(core) == ["aten.mul.Tensor", "aten.view.default", "aten.add.Tensor"]
    linear = _core(nn.Sequential(nn.Linear(4, 4), nn.Flatten(0)), (torch.randn(3, 4),)).module()
    assert "aten.reshape.default" not in {str(node.target) for node in linear.graph.nodes}


@pytest.mark.parametrize("build", BUILDS)
def test_views_are_refused_where_eager_mode_refuses_them(build: str) -> None:
    module = BUILDS[build](lambda x: x.view(-1) * 2, (torch.randn(3, 4),))
    with pytest.raises(RuntimeError, match="view size is not compatible"):
        module(torch.randn(4, 3).t())


def padded_view_written(x: torch.Tensor) -> Any:
    x.relu_()
    y = F.pad(x, (1, 0), value=2.0)
    y.view(-1)[1:].sub_(1)
    return y


def padded_view_of_part(x: torch.Tensor) -> Any:
    x[0].mul_(2)
    return F.pad(x, (1, 0)).view(-1) * 2


def padded_view_in_branch(x: torch.Tensor) -> Any:
    x.sin_()
    return tintype.cond(
        x.sum() > 0, lambda x: F.pad(x, (1, 0)).view(-1) + 1, lambda x: F.pad(x, (1, 0)).view(-1) * 1, (x,)
    )


@pytest.mark.parametrize("build", ["export", "decomposed", "saved", "unflattened", "retraced", "torch"])
@pytest.mark.parametrize("model", [padded_view_written, padded_view_of_part, padded_view_in_branch])
def test_a_view_is_answered_where_eager_mode_answers_after_a_write(model: Any, build: str) -> None:
    """Eager mode writes to the tensor as it lies; the new value lies as its operator likes, which a pad passes on."""
    module = BUILDS[build](model, (torch.randn(1, 3, 3, 1),))
    for order in ((0, 1, 2, 3), (3, 2, 1, 0)):
        value = torch.randn(1, 3, 3, 1)
        written, also_written = (value.clone().permute(order) for _ in range(2))
        assert torch.equal(module(written), model(also_written)) and torch.equal(written, also_written)


# --- where it matters who shares memory --------------------------------------------------------------------


def contiguous_written(x: torch.Tensor) -> Any:
    y = x.contiguous()
    y.add_(1)
    return x, y


def element_written(x: torch.Tensor) -> Any:
    x.reshape(-1)[0] = 5
    return x * 1


def intermediate_written(x: torch.Tensor) -> Any:
    y = x * 2
    y.flatten().mul_(2)
    return y


def source_written_later(x: torch.Tensor) -> Any:
    y = x.reshape(-1)
    x.add_(1)
    return y * 2


def copy_of_copy(x: torch.Tensor) -> Any:
    y = x.reshape(-1).reshape(4, 3)
    x.add_(1)
    return y.ravel()


def view_of_it_written(x: torch.Tensor) -> Any:
    x.contiguous()[1:].mul_(2)
    return x + 1


def buffer_like(x: torch.Tensor) -> Any:
    y = x.clone()
    z = y.contiguous()
    y.mul_(3)
    return z + 1


def memory_looked_at(x: torch.Tensor) -> Any:
    y = x * 2
    z = y.as_strided((2, 2), (1, 2))
    y.add_(1)
    return z + 1


def format_written(x: torch.Tensor) -> Any:
    y = x.to(memory_format=torch.channels_last)
    y.add_(1)
    return x * 1


@pytest.mark.parametrize("build", ["export", "training", "decomposed", "saved"])
def test_a_conversion_of_the_memory_format_is_written_to(build: str) -> None:
    for example in layouts(2, 3, 4, 5).values():
        module = BUILDS[build](format_written, (copied(example),))
        assert_like_eager(format_written, module, example)
        for given in layouts(2, 3, 4, 5).values():
            try:
                assert_like_eager(format_written, module, given)
            except InputMismatchError:
                assert build != "training"


@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize(
    "model",
    [
        contiguous_written,
        element_written,
        intermediate_written,
        source_written_later,
        copy_of_copy,
        view_of_it_written,
        buffer_like,
        memory_looked_at,
    ],
)
def test_memory_is_shared_as_in_eager_mode_or_the_call_is_refused(model: Any, build: str) -> None:
    torch.manual_seed(0)
    answered = 0
    for example in layouts(3, 4).values():
        module = BUILDS[build](model, (copied(example),))
        assert_like_eager(model, module, example)
        for given in layouts(3, 4).values():
            try:
                assert_like_eager(model, module, given)
                answered += 1
            except InputMismatchError as error:
                assert build != "training"
                assert "strides" in str(error) and "test_layouts.py" in str(error)
            except RuntimeError as error:
                assert build.startswith("torch") and "strides mismatch" in str(error)
    assert answered >= len(layouts(3, 4))


def test_a_written_value_of_a_certain_layout_needs_no_check() -> None:
    def model(x: torch.Tensor) -> Any:
        y = x @ torch.ones(4, 5)
        z = y.flatten()
        z.mul_(2)
        return y, z

    program = tintype.export(model, (torch.randn(3, 4),))
    assert "aten._assert_tensor_metadata.default" not in targets(program)
    for given in layouts(3, 4).values():
        assert_like_eager(model, program.module(), given)


# --- sizes that vary ---------------------------------------------------------------------------------------


def rows_written(x: torch.Tensor) -> Any:
    y = x[:, :4].reshape(-1)  # a view of one row, a copy of more
    y.add_(1)
    return x * 1


def rows_read(x: torch.Tensor) -> Any:
    return x[:, :4].reshape(-1) + 1


def test_a_copy_that_is_a_view_at_size_one() -> None:
    program = tintype.export(rows_written, (torch.randn(3, 6),), dynamic_shapes=({0: tintype.Dim("n")},))
    for variant in (program, program.run_decompositions(), saved_and_loaded(program)):
        module = variant.module()
        for count in (0, 2, 3, 7):
            assert_like_eager(rows_written, module, torch.randn(count, 6))
        with pytest.raises(RuntimeError, match="returns a view instead of a copy"):
            module(torch.randn(1, 6))


def test_a_copy_that_is_a_view_in_the_example() -> None:
    with pytest.raises(MutationError, match="depends on sizes that may vary"):
        tintype.export(rows_written, (torch.randn(1, 6),), dynamic_shapes=({0: tintype.Dim("n")},))


@pytest.mark.parametrize("example", [1, 3])
def test_a_copy_that_nobody_writes_to_is_right_at_every_size(example: int) -> None:
    program = tintype.export(rows_read, (torch.randn(example, 6),), dynamic_shapes=({0: tintype.Dim("n")},))
    for variant in (program, program.run_decompositions()):
        for count in (0, 1, 2, 3, 7):
            assert_like_eager(rows_read, variant.module(), torch.randn(count, 6))


def test_a_layout_that_nobody_observes_is_no_guard() -> None:
    def loss(logits: torch.Tensor) -> torch.Tensor:
        return logits[:, :-1].reshape(-1, 5).sum(0)

    program = tintype.export(loss, (torch.randn(2, 4, 5),), dynamic_shapes=({1: tintype.Dim("s", min=2)},))
    for length in (2, 3, 7):
        assert_like_eager(loss, program.module(), torch.randn(2, length, 5))


@pytest.mark.parametrize("example", ["contiguous", "with gaps"])
def test_normal_numbers_are_drawn_into_an_input_as_in_eager_mode_or_not_at_all(example: str) -> None:
    """The kernel draws in one way or another, by whether there are gaps, from 16 elements on."""

    def draw(x: torch.Tensor) -> torch.Tensor:
        x.normal_()
        return x * 2

    for sizes in ((4, 8), (3, 5)):
        module = tintype.export(draw, (layouts(*sizes)[example],)).module()
        for name, value in layouts(*sizes).items():
            mine, theirs = copied(value), copied(value)
            torch.manual_seed(0)
            expected = draw(theirs)
            torch.manual_seed(0)
            if sizes == (4, 8) and name != example:
                with pytest.raises(InputMismatchError, match="strides"):
                    module(mine)
            elif name in ("contiguous", "with gaps"):
                torch.testing.assert_close((module(mine), mine), (expected, theirs))


def test_normal_numbers_are_drawn_into_copies_in_any_layout() -> None:
    module = tintype.export(lambda x: x.clone().normal_() + x, (torch.zeros(4, 8),)).module()
    for value in layouts(4, 8).values():
        assert module(value).shape == (4, 8)
