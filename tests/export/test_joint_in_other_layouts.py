"""Joint programs whose kernels read memory as if it were contiguous, called with inputs that lie in other ways."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional

import tintype


class _WithLoss(torch.nn.Module):
    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        result = self.model(x)
        return result.sum() + result.sin().sum(), result


class _Of(torch.nn.Module):
    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x)


def _bag(x: torch.Tensor) -> torch.Tensor:
    return functional.embedding_bag(torch.tensor([[0, 1], [2, 0]]), x, mode="sum")


MODELS = {
    "attention": (_Of(lambda x: functional.scaled_dot_product_attention(x, x * 2, x + 1)), (1, 2, 3, 4)),
    "group norm of rows": (torch.nn.GroupNorm(1, 3), (3, 3)),
    "group norm of images": (torch.nn.GroupNorm(2, 4), (2, 4, 3, 5)),
    "group norm of a convolution": (
        torch.nn.Sequential(torch.nn.Conv2d(4, 4, 1), torch.nn.GroupNorm(2, 4)),
        (2, 4, 3, 5),
    ),
    "distances": (_Of(functional.pdist), (4, 5)),
    "an embedding": (_Of(_bag), (3, 4)),
    "a determinant": (_Of(torch.linalg.det), (2, 3, 3)),
    "the logarithm of a determinant": (_Of(lambda x: torch.linalg.slogdet(x)[1]), (3, 3)),
    "a system of equations": (_Of(lambda x: torch.linalg.solve(x, x + 1)), (2, 3, 3)),
}


def _layouts(*sizes: int) -> dict[str, torch.Tensor]:
    *first, rows, columns = sizes
    found = {
        "contiguous": torch.randn(sizes),
        "transposed": torch.randn(*first, columns, rows).mT,
        "strided": torch.randn(*first, rows, 2 * columns)[..., ::2],
    }
    if len(sizes) == 4:
        found["channels last"] = torch.randn(sizes).to(memory_format=torch.channels_last)
    return found


@pytest.mark.parametrize("name", MODELS)
def test_kernels_that_need_contiguous_arguments(name: str) -> None:
    model, sizes = MODELS[name]
    model = _WithLoss(model)
    torch.manual_seed(0)
    for example in (torch.randn(sizes), torch.randn(*sizes[:-2], sizes[-1], sizes[-2]).mT):
        _check_gradients(model, example.requires_grad_(), sizes)


def _check_gradients(model: torch.nn.Module, x: torch.Tensor, sizes: tuple[int, ...]) -> None:
    """Gradients of joint programs with this example are those of eager mode, for inputs in any layout."""
    example = (x,)
    joint = tintype.export_joint(model, example)
    programs = {
        "joint": joint,
        "decomposed": joint.run_decompositions(),
        "decomposed twice": joint.run_decompositions().run_decompositions(),
        "without a table": joint.run_decompositions({}),
        "of a program": tintype.export_joint(tintype.export(model, example)),
    }
    modules = {kind: program.module() for kind, program in programs.items()}
    for layout, value in _layouts(*sizes).items():
        x = value.detach().requires_grad_()
        loss, expected = model(x)
        (gradient,) = torch.autograd.grad(loss, x)
        for kind, module in modules.items():
            (_, found), _, gradients = module(value.detach().requires_grad_())
            torch.testing.assert_close(found, expected, msg=lambda text, at=(kind, layout): f"{at}: {text}")
            torch.testing.assert_close(*gradients.values(), gradient, msg=f"the gradient of {kind}, {layout}")


@pytest.mark.parametrize("name", MODELS)
def test_gradients_that_a_program_computes_itself(name: str) -> None:
    model, sizes = MODELS[name]

    class Inside(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = x.detach().requires_grad_()
            return torch.autograd.grad(self.model(x).sin().sum(), x)[0]

    torch.manual_seed(0)
    module = tintype.export(Inside(), (torch.randn(sizes),)).module()
    for layout, value in _layouts(*sizes).items():
        torch.testing.assert_close(module(value), Inside()(value), msg=layout)


TRANSFORMED = {
    "grad": lambda f, x: torch.func.grad(lambda x: f(x).sin().sum())(x),
    "jvp": lambda f, x: torch.func.jvp(f, (x,), (x.cos(),))[1],
    "vmap": lambda f, x: torch.vmap(f)(torch.stack([x, x + 1])),
    "vmap of grad": lambda f, x: torch.vmap(torch.func.grad(lambda x: f(x).sin().sum()))(torch.stack([x, x * 2])),
}
TAKEN_APART = {
    **{name: model for name, model in MODELS.items() if name not in ("distances", "an embedding")},  # without rules
    "a reshape": (_Of(lambda x: x.reshape(-1).cumsum(0)), (3, 4)),
    "pooling": (_Of(lambda x: functional.max_pool2d(x, 2)), (2, 4, 4, 6)),
    "a norm of images": (_Of(functional.instance_norm), (2, 4, 3, 5)),
}


@pytest.mark.filterwarnings("ignore::tintype.errors.TrainingModeWarning", "ignore:There is a performance drop")
@pytest.mark.parametrize("name", TAKEN_APART)
@pytest.mark.parametrize("transform", TRANSFORMED)
def test_functions_that_torch_transforms(transform: str, name: str) -> None:
    model, sizes = TAKEN_APART[name]
    if transform == "jvp" and name == "attention":
        return  # which has no derivative forwards

    def transformed(x: torch.Tensor) -> torch.Tensor:
        return TRANSFORMED[transform](model, x)

    torch.manual_seed(0)
    for example in (torch.randn(sizes), torch.randn(*sizes[:-2], sizes[-1], sizes[-2]).mT):
        if _result(transformed, example) is None:
            continue
        program = tintype.export(transformed, (example,))
        programs = {
            "itself": program,
            "decomposed": program.run_decompositions(),
            "training": tintype.export_for_training(transformed, (example,)),
            "captured again": tintype.export(program.module(), (example,)),
        }
        for layout, value in _layouts(*sizes).items():
            expected = _result(transformed, value)
            for kind, each in programs.items():
                if expected is not None:
                    torch.testing.assert_close(each.module()(value), expected, msg=f"{kind}, {layout}")


def _result(function: Any, x: torch.Tensor) -> Any:
    """None where eager mode does not take this layout: some of torch's rules want views, or know one format."""
    try:
        return function(x)
    except RuntimeError as error:
        assert "view size is not compatible" in str(error) or "is_contiguous inside of vmap" in str(error)
        assert not x.is_contiguous()
        return None


@pytest.mark.parametrize("transform", [name for name in TRANSFORMED if "vmap" not in name])
def test_transforms_of_what_looks_at_memory_are_right_or_refused(transform: str) -> None:
    def transformed(x: torch.Tensor) -> torch.Tensor:
        return TRANSFORMED[transform](lambda x: x.as_strided((2,), (1,)).square(), x)

    x = torch.randn(3, 4)
    module = tintype.export(transformed, (x,)).module()
    torch.testing.assert_close(module(x), transformed(x))
    with pytest.raises(tintype.InputMismatchError, match="strides"):
        module(torch.randn(4, 3).t())


def test_a_program_decomposed_twice_takes_other_layouts() -> None:
    program = tintype.export(torch.nn.GroupNorm(1, 3), (torch.randn(3, 3),))
    twice = program.run_decompositions().run_decompositions().module()
    value = torch.randn(3, 3).t()
    torch.testing.assert_close(twice(value), program.module()(value))


def _first(x: torch.Tensor) -> torch.Tensor:
    return x.as_strided((2,), (1,)) * 1


AS_STRIDED = {
    "an input": _first,
    "in a branch": lambda x: tintype.cond(x.sum() > 0, _first, lambda x: _first(x) * 2, (x,)),
    "a copy": lambda x: _first(x.clone(memory_format=torch.contiguous_format)),
    "without gradients": lambda x: _first(x.detach()) + x[:2],
}


@pytest.mark.parametrize("name", AS_STRIDED)
def test_gradients_of_as_strided_are_right_or_refused(name: str) -> None:
    model = _WithLoss(_Of(AS_STRIDED[name]))
    torch.manual_seed(0)
    example = (torch.randn(4, requires_grad=True),)
    for joint in (tintype.export_joint(model, example), tintype.export_joint(tintype.export(model, example))):
        for module in (joint.module(), joint.run_decompositions().module()):
            for value in (torch.randn(4), torch.randn(8)[::2], torch.randn(8).as_strided((4,), (0,))):
                if value.stride() != (1,) and name in ("an input", "in a branch"):
                    with pytest.raises((tintype.InputMismatchError, tintype.RuntimeAssertionError), match="strides"):
                        module(value.requires_grad_())
                    continue
                x = value.detach().requires_grad_()
                loss, expected = model(x)
                (gradient,) = torch.autograd.grad(loss, x)
                (_, found), _, gradients = module(value.detach().requires_grad_())
                torch.testing.assert_close((found, *gradients.values()), (expected, gradient))


def test_gradients_of_as_strided_of_what_lies_as_a_kernel_likes_are_refused() -> None:
    def of_attention(x: torch.Tensor) -> torch.Tensor:
        return _first(functional.scaled_dot_product_attention(x, x, x))

    with pytest.raises(tintype.MutationError, match=r"what as_strided\(\) looks at"):
        tintype.export_joint(_WithLoss(_Of(of_attention)), (torch.randn(1, 2, 3, 4, requires_grad=True),))


def test_weights_of_a_group_norm_lie_as_they_like() -> None:
    def model(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        result = functional.group_norm(x, 1, weight, bias)
        return result.sin().sum(), result

    torch.manual_seed(0)
    example = tuple(torch.randn(sizes, requires_grad=True) for sizes in ((3, 3, 2), (3,), (3,)))
    program, joint = tintype.export(model, example), tintype.export_joint(model, example)
    given = [torch.randn(3, 3, 2), torch.randn(6)[::2], torch.randn(1).expand(3)]
    given = [value.requires_grad_() for value in given]
    expected = model(*given)
    gradients = torch.autograd.grad(expected[0], given)
    for module in (program.module(), program.run_decompositions().module()):
        found = module(*given)
        torch.testing.assert_close((found, torch.autograd.grad(found[0], given)), (expected, gradients))
    for module in (joint.module(), joint.run_decompositions().module()):
        found, _, of_inputs = module(*given)
        torch.testing.assert_close((found, tuple(of_inputs.values())), (expected, gradients))


def test_calls_inside_of_a_loop_on_what_requires_gradients() -> None:
    def step(i: torch.Tensor, a: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return i + 1, a.contiguous() * 1

    def model(x: torch.Tensor) -> torch.Tensor:
        tintype.while_loop(lambda i, a: i < 0, step, (torch.zeros((), dtype=torch.int64), x))
        return x.sin().sum()

    joint = tintype.export_joint(model, (torch.randn(2, 3, requires_grad=True),))
    for x in (torch.randn(2, 3), torch.randn(3, 2).t()):
        found, _, gradients = joint.module()(x.requires_grad_())
        torch.testing.assert_close((found, *gradients.values()), (x.sin().sum(), x.detach().cos()))


class Normalized(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.GroupNorm(2, 8)

    def forward(self, image: Any) -> Any:
        return (self.norm(image) * torch.linspace(0, 1, image.shape[-1])).square().sum()


def test_one_image_of_a_layout_that_no_kernel_knows() -> None:
    model, batch = Normalized(), {"image": {0: tintype.Dim("batch")}}
    example = torch.randn(2, 8, 4, 8).to(memory_format=torch.channels_last)
    image = torch.randn(1, 4, 8, 8).permute(0, 3, 1, 2).as_strided((1, 8, 4, 8), (8, 1, 64, 8))
    expected = model(image)
    gradients = torch.autograd.grad(expected, [model.norm.weight, model.norm.bias])
    decomposed = tintype.export(model, (example,), dynamic_shapes=batch).run_decompositions()
    assert torch.allclose(decomposed.module()(image), expected)
    loss, found, _ = tintype.export_joint(model, (example,), dynamic_shapes=batch).module()(image)
    assert torch.allclose(loss, expected)
    for name, gradient in zip(("norm.weight", "norm.bias"), gradients, strict=True):
        assert torch.allclose(found[name], gradient, rtol=1e-4)


def _as_complex(x: torch.Tensor) -> torch.Tensor:
    return torch.view_as_complex(x.ravel().reshape(-1)[:2].view(-1, 2))


@pytest.mark.parametrize("writes", [False, True])
def test_complex_numbers_of_elements_that_do_not_lie_beside_each_other(writes: bool) -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        if writes:
            x[...] = x * 2
        return _as_complex(x)

    def loss(x: torch.Tensor) -> Any:
        result = _as_complex(x)
        return torch.view_as_real(result).sum(), result

    program = tintype.export(model, (torch.arange(3.0),))
    for each in (program, program.run_decompositions(), program.run_decompositions({})):
        mine, theirs = torch.arange(6.0)[::2], torch.arange(6.0)[::2]
        torch.testing.assert_close(each.module()(mine), model(theirs))
        torch.testing.assert_close(mine, theirs)
    if not writes:
        joint = tintype.export_joint(loss, (torch.arange(3.0).requires_grad_(),)).module()
        x = torch.arange(6.0)[::2].requires_grad_()
        torch.testing.assert_close(joint(x)[0][1], loss(x)[1])
