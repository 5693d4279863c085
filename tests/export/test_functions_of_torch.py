"""Functions of torch's that ask about sizes or gradients on their way, with sizes that vary."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import tintype

TRANSFORMED: dict[str, Callable[..., Any]] = {
    "grad": lambda x: torch.func.grad(lambda z: (z**2).sum())(x),
    "jvp": lambda x: torch.func.jvp(torch.sin, (x,), (x,))[1],
    "jacrev": lambda x: torch.func.jacrev(lambda z: z**2)(x),
    "vmap of grad": lambda x: torch.func.vmap(torch.func.grad(lambda z: (z**2).sum()))(x),
}


@pytest.mark.parametrize("shapes", [None, "auto"])
@pytest.mark.parametrize("name", TRANSFORMED)
def test_gradients_by_transforms(name: str, shapes: Any) -> None:
    function = TRANSFORMED[name]
    module = tintype.export(function, (torch.randn(3, 2),), dynamic_shapes=shapes).module()
    for size in (3,) if shapes is None else (3, 2, 5):
        x = torch.randn(size, 2)
        torch.testing.assert_close(module(x), function(x))


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_cross_entropy_with_probabilities(reduction: str) -> None:
    def function(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(x, target, reduction=reduction)

    example = (torch.randn(2, 3), torch.rand(2, 3))
    module = tintype.export(function, example, dynamic_shapes="auto").module()
    for samples, classes in ((2, 3), (4, 3), (5, 7)):
        args = (torch.randn(samples, classes), torch.rand(samples, classes))
        torch.testing.assert_close(module(*args), function(*args))


ROWS_WITHOUT_DIMENSIONS: dict[str, Callable[..., Any]] = {
    "a float": lambda row: (row - row.mean()) / (row.std() + 1e-5),
    "a product": lambda row: row * 2.5,
    "an int": lambda row: 2 - row,
}


@pytest.mark.parametrize("enabled", [True, False])
@pytest.mark.parametrize("name", ROWS_WITHOUT_DIMENSIONS)
def test_numbers_beside_rows_without_dimensions(name: str, enabled: bool) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        with torch.set_grad_enabled(enabled):
            return torch.vmap(ROWS_WITHOUT_DIMENSIONS[name])(x)

    x = torch.randn(3)
    module = tintype.export(function, (x,)).module()
    torch.testing.assert_close(module(x), function(x), equal_nan=True)


TANGENTS: dict[str, Callable[..., Any]] = {
    "softmax": lambda x: torch.func.jvp(lambda z: z.softmax(-1), (x,), (x.cos(),))[1],
    "log_softmax": lambda x: torch.func.jvp(lambda z: z.log_softmax(0), (x,), (x.cos(),))[1],
    "logsumexp": lambda x: torch.func.jvp(lambda z: z.logsumexp((0, 1)), (x,), (x.cos(),))[1],
    "jacfwd": lambda x: torch.func.jacfwd(lambda z: z.softmax(-1))(x),
}
SIZES = [(0, 0), (0, 3), (3, 0), (1, 1), (4, 5)]


@pytest.mark.parametrize("decomposed", [False, True])
@pytest.mark.parametrize("name", TANGENTS)
def test_tangents_that_subtract_the_largest_element_of_nothing(name: str, decomposed: bool) -> None:
    function = TANGENTS[name]
    shapes = ({0: tintype.Dim("n"), 1: tintype.Dim("m")},)
    program = tintype.export(function, (torch.randn(2, 3),), dynamic_shapes=shapes)
    module = (program.run_decompositions() if decomposed else program).module()
    for sizes in SIZES:
        x = torch.randn(sizes)
        torch.testing.assert_close(module(x), function(x), equal_nan=True)


def test_the_largest_element_of_nothing_that_a_program_asks_for_is_none() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.func.jvp(lambda z: z.softmax(-1) + z.amax(-1, keepdim=True), (x,), (x.cos(),))[1]

    shapes = ({0: tintype.Dim("n"), 1: tintype.Dim("m")},)
    module = tintype.export(function, (torch.randn(2, 3),), dynamic_shapes=shapes).module()
    for run in (function, module):
        with pytest.raises(IndexError, match="non-zero size"):
            run(torch.randn(3, 0))


LOSSES: dict[str, Callable[..., Any]] = {
    "cross entropy": lambda x, **options: F.cross_entropy(x, x.detach().argmax(1), **options),
    "weighted": lambda x, **options: F.cross_entropy(
        x, x.detach().argmax(1), weight=torch.arange(3.0), ignore_index=1, **options
    ),
    "smoothed": lambda x, **options: F.cross_entropy(x, x.detach().argmax(1), label_smoothing=0.1, **options),
    "nll": lambda x, **options: F.nll_loss(x, x.detach().argmax(1), **options),
}


@pytest.mark.parametrize("behind", [(), (2, 2)], ids=["one dimension", "three"])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("name", LOSSES)
def test_losses_for_classes_of_no_rows(name: str, reduction: str, behind: tuple[int, ...]) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return LOSSES[name](x, reduction=reduction)

    shapes = ({0: tintype.Dim("n"), 2: tintype.Dim("m")},)
    example = torch.randn(2, 3, 4, *behind)
    program = tintype.export(function, (example,), dynamic_shapes=shapes)
    decomposed = program.run_decompositions().module()
    joint = tintype.export_joint(
        lambda x: (function(x).sum(), ()), (example.requires_grad_(),), dynamic_shapes=shapes
    ).module()
    for n, m in SIZES:
        x = torch.randn(n, 3, m, *behind, requires_grad=True)
        wanted = function(x)
        torch.testing.assert_close(program.module()(x), wanted, equal_nan=True)
        torch.testing.assert_close(decomposed(x), wanted, equal_nan=True)
        (loss, _), _, gradients = joint(x)
        torch.testing.assert_close(loss, wanted.sum(), equal_nan=True)
        (gradient,) = gradients.values()
        torch.testing.assert_close(gradient, torch.autograd.grad(wanted.sum(), x)[0], equal_nan=True)


def test_gradients_of_a_cross_entropy_below_jvp_in_another_layout() -> None:
    """Its kernel wants contiguous arguments for the gradient; torch sees to that before anything is recorded."""

    def function(x: torch.Tensor) -> torch.Tensor:
        def loss(x: torch.Tensor) -> torch.Tensor:
            return F.cross_entropy(x, x.argmax(1), reduction="none")

        return torch.func.jvp(loss, (x,), (x.cos(),))[1]

    module = tintype.export(function, (torch.randn(3, 3, 3),)).module()
    gradients = []
    for run in (function, module):
        torch.manual_seed(0)
        leaf = torch.randn(3, 3, 3).permute(2, 1, 0).requires_grad_()
        run(leaf).sum().backward()
        gradients.append(leaf.grad)
    torch.testing.assert_close(*gradients)


def test_a_reshape_below_vmap_that_copies_at_other_sizes_is_no_copy_for_a_write() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        flat = torch.func.vmap(lambda row: row.reshape(-1))(x)
        flat.narrow(0, 0, 1).zero_()
        return x

    def example() -> torch.Tensor:
        return torch.randn(3, 1, 3, 3).to(memory_format=torch.channels_last)

    with pytest.raises(tintype.MutationError, match="reshape"):
        tintype.export(function, (example(),), dynamic_shapes=({1: tintype.Dim("channels", max=64)},))
    x = example()
    torch.testing.assert_close(tintype.export(function, (example(),)).module()(x.clone()), function(x))


@pytest.mark.parametrize("shapes", [((4, 0), (3, 0, 4)), ((0, 1), (3, 1, 1)), ((3, 0, 2), (3, 2, 4))])
def test_products_of_nothing_look_at_no_dtypes(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    first, second = torch.randn(shapes[0]), torch.randn(shapes[1], dtype=torch.float64)
    module = tintype.export(lambda x, y: x @ y, (first, second)).module()
    torch.testing.assert_close(module(first, second), first @ second)


NORMALIZED: dict[str, Callable[..., Any]] = {
    "layer_norm": lambda z: F.layer_norm(z, z.shape[-1:]),
    "layer_norm of several, scaled": lambda z: F.layer_norm(
        z, z.shape[-2:], torch.arange(1.0, 13.0).reshape(3, 4), torch.ones(3, 4), 1e-3
    ),
    "group_norm": lambda z: F.group_norm(z, 3, torch.arange(3.0), torch.ones(3)),
    "batch_norm": lambda z: F.batch_norm(z, None, None, torch.arange(3.0), training=True),
    "batch_norm of what was seen": lambda z: F.batch_norm(z, torch.arange(3.0), torch.ones(3) * 2),
    "instance_norm": lambda z: F.instance_norm(z, weight=torch.arange(3.0), bias=torch.ones(3)),
    "glu": lambda z: F.glu(z, -1),
    "half precision": lambda z: F.layer_norm(z.bfloat16(), z.shape[-1:]).float(),
}


@pytest.mark.parametrize("name", NORMALIZED)
def test_tangents_of_normalizations_of_sizes_that_vary(name: str) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        value, tangent = torch.func.jvp(NORMALIZED[name], (x,), (x.cos(),))
        return torch.stack([value, tangent])

    program = tintype.export(function, (torch.randn(2, 3, 4),), dynamic_shapes=({0: tintype.Dim("n")},))
    for batch in (2, 5, 1):
        x = torch.randn(batch, 3, 4)
        tolerance = {"atol": 0.05, "rtol": 0.05} if name == "half precision" else {}
        for module in (program.module(), program.run_decompositions().module()):
            torch.testing.assert_close(module(x), function(x), **tolerance)


@pytest.mark.parametrize("place", [0, 1], ids=["first", "last"])
@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft"])
def test_spectra_of_one_length_of_signals_that_vary(name: str, place: int) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return getattr(torch.fft, name)(x, n=4, dim=place, norm="ortho")

    def signal(length: int) -> torch.Tensor:
        x = torch.randn(3, length) if place else torch.randn(length, 3)
        return x + 1j * torch.randn(x.shape) if name in ("irfft", "hfft") else x

    shapes = ({place: tintype.Dim("length", min=1)},)
    program = tintype.export(function, (signal(6),), dynamic_shapes=shapes)
    for length in (1, 3, 4, 5, 9):
        x = signal(length)
        for module in (program.module(), program.run_decompositions().module()):
            torch.testing.assert_close(module(x), function(x))


def test_the_gradient_of_a_spectrum_of_one_length() -> None:
    def model(x: torch.Tensor) -> Any:
        return torch.fft.rfft(x, n=4).abs().sum(), ()

    shapes = ({0: tintype.Dim("length", min=1)},)
    joint = tintype.export_joint(model, (torch.randn(6, requires_grad=True),), dynamic_shapes=shapes).module()
    for length in (1, 3, 4, 7):
        x = torch.randn(length, requires_grad=True)
        (gradient,) = joint(x)[2].values()
        torch.testing.assert_close(gradient, torch.autograd.grad(model(x)[0], x)[0])
