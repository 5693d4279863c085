"""Functions that want a number of elements as a plain integer, for sizes that vary."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributions as D
import torch.nn.functional as F

import tintype

FUNCTIONS: dict[str, Callable[[torch.Tensor], Any]] = {
    "hann": lambda x: torch.hann_window(x.shape[0]),
    "hann, symmetric": lambda x: torch.hann_window(x.shape[0], False, dtype=torch.float64),
    "hamming": lambda x: torch.hamming_window(x.shape[0]),
    "hamming with numbers": lambda x: torch.hamming_window(x.shape[0], True, 0.6, 0.3),
    "blackman": lambda x: torch.blackman_window(x.shape[0]),
    "bartlett": lambda x: torch.bartlett_window(x.shape[0], periodic=False),
    "kaiser": lambda x: torch.kaiser_window(x.shape[0]),
    "kaiser with a number": lambda x: torch.kaiser_window(x.shape[0], False, beta=5.0),
    "linspace": lambda x: torch.linspace(-1, 2, x.shape[0]),
    "logspace": lambda x: torch.logspace(0, 1, x.shape[0]),
    "logspace of 2": lambda x: torch.logspace(0, 1, x.shape[0], base=2),
    "logspace, double": lambda x: torch.logspace(0, 1, x.shape[0], dtype=torch.float64),
    "vander": lambda x: torch.vander(x[:, 0]),
    "vander, increasing": lambda x: torch.vander(x[:, 0], x.shape[0], increasing=True),
    "vander of integers": lambda x: torch.vander((x[:, 0] * 3).int()),
    "combinations": lambda x: torch.combinations(x[:, 0]),
    "combinations with themselves": lambda x: torch.combinations(x[:, 0], with_replacement=True),
    "combinations of three": lambda x: torch.combinations(x[:, 0], 3),
    "combinations of three with themselves": lambda x: torch.combinations(x[:, 0], 3, with_replacement=True),
    "tril_indices": lambda x: torch.tril_indices(x.shape[0], x.shape[0]),
    "triu_indices": lambda x: torch.triu_indices(x.shape[0], 4, 1, dtype=torch.int32),
    "affine_grid": lambda x: F.affine_grid(torch.eye(2, 3)[None], [1, 1, x.shape[0] + 1, 4], align_corners=False),
    "affine_grid for each": lambda x: F.affine_grid(x[:, None].expand(-1, 2, -1)[..., :3], [x.shape[0], 2, 4, 5]),
    "affine_grid of its own size": lambda x: F.affine_grid(
        torch.eye(3, 4).expand(x.shape[0], 3, 4), [x.shape[0], 2, 3, x.shape[0] + 1, 4], align_corners=True
    ),
    "istft": lambda x: torch.istft(
        torch.stft(x.repeat(1, 8).reshape(-1), 16, 4, window=torch.ones(16), return_complex=True), 16, 4,
        window=torch.ones(16),
    ),
    "as many as the largest": lambda x: torch.zeros(int((x * 3).abs().max()) + 1),
    "counted": lambda x: torch.zeros(int((x * 3).abs().max()) + 1).index_add(0, (x[:, 0] * 3).abs().long(), x[:, 1]),
    "the most frequent": lambda x: most_frequent((x * 3).long()),
    "distributed": lambda x: D.Normal(x, x.exp(), validate_args=True).entropy(),
    "distributed, drawn": lambda x: D.Bernoulli(x.sigmoid(), validate_args=True).log_prob(torch.ones(4)),
    "distributed, chosen": lambda x: D.Categorical(logits=x, validate_args=True).log_prob(torch.tensor(0)),
    "distributed, compared": lambda x: D.kl_divergence(D.Normal(x, 1.0), D.Normal(0.0, x.exp())),
    "equal": lambda x: x if torch.equal(x, x.round()) else x * 2,
    "equal, a method": lambda x: x.equal(x.clone()),
    "close": lambda x: x if x.allclose(x + 1, atol=2) else x * 2,
    "close, told": lambda x: torch.allclose(x, x + 1),
}  # fmt: skip


def most_frequent(x: torch.Tensor) -> torch.Tensor:
    values, counts = torch.unique(x, return_counts=True)
    return values[counts.argmax()]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_for_every_size(name: str) -> None:
    function = FUNCTIONS[name]
    program = tintype.export(function, (torch.randn(4, 4),), dynamic_shapes=({0: tintype.Dim("n", min=1)},))
    for form in (program, program.run_decompositions()):
        form.validate()
        module = form.module()
        for size in (1, 2, 3, 9):
            x = torch.randn(size, 4)
            torch.testing.assert_close(module(x), function(x), rtol=1e-5, atol=1e-6)


CALLS: dict[str, Callable[[torch.Tensor], Any]] = {
    "histogram": lambda x: torch.histogram(x, 5),
    "histogramdd": lambda x: torch.histogramdd(x[:, :2], [3, 4]),
    "histogram between edges": lambda x: torch.histogram(x, torch.linspace(-1, 1, 4)).hist,
    "geqrf": lambda x: torch.geqrf(x),
    "lstsq": lambda x: torch.linalg.lstsq(x, x[:, :1])[:1],
}


@pytest.mark.parametrize("name", CALLS)
def test_operators_that_torch_has_no_fake_kernels_for(name: str) -> None:
    function = CALLS[name]
    program = tintype.export(function, (torch.randn(4, 4),))
    for form in (program, program.run_decompositions()):
        x = torch.randn(4, 4)
        torch.testing.assert_close(list(form.module()(x)), list(function(x)))


@pytest.mark.parametrize("name", ["affine_grid for each", "affine_grid of its own size", "vander", "combinations"])
def test_sizes_that_are_found(name: str) -> None:
    """Those that can vary do, the others are fixed."""
    program = tintype.export(FUNCTIONS[name], (torch.randn(5, 4),), dynamic_shapes="auto")
    x = torch.randn(7, 4)
    torch.testing.assert_close(program.module()(x), FUNCTIONS[name](x), rtol=1e-5, atol=1e-6)


class Packed(torch.nn.Module):
    def __init__(self, kind: Any) -> None:
        super().__init__()
        self.layer = kind(4, 3, batch_first=True, bidirectional=True)

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> Any:
        packed = torch.nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        result, state = self.layer(packed)
        return torch.nn.utils.rnn.pad_packed_sequence(result, batch_first=True)[0], state


@pytest.mark.parametrize("kind", [torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN])
def test_packed_sequences(kind: Any) -> None:
    model, count = Packed(kind), tintype.Dim("count", min=1)
    example = torch.randn(2, 5, 4), torch.tensor([5, 3])
    varying = ({0: count, 1: tintype.Dim("length", min=2)}, {0: count})
    program = tintype.export(model, example, dynamic_shapes=varying)
    for form in (program, program.run_decompositions()):
        for lengths in ([5, 3], [2, 7, 4], [3]):
            x = torch.randn(len(lengths), max(lengths), 4), torch.tensor(lengths)
            torch.testing.assert_close(form.module()(*x), model(*x))


class Averaging(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(4, momentum=None)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x)


def test_a_cumulative_average_of_batches() -> None:
    module = tintype.export(
        Averaging(), (torch.randn(3, 4),), dynamic_shapes=({0: tintype.Dim("n", min=2)},)
    ).module()
    eager = Averaging()
    for size in (3, 5, 2):
        x = torch.randn(size, 4)
        torch.testing.assert_close(module(x), eager(x))
    torch.testing.assert_close(dict(module.state_dict()), dict(eager.state_dict()))


LOSSES: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], tuple[int, ...]]] = {
    "margins": (lambda x: F.multi_margin_loss(x, torch.tensor([1, 0, 2])), (3, 4)),
    "weighted margins": (lambda x: F.multi_margin_loss(x, torch.tensor([1, 0]), p=2, weight=torch.rand(4)), (2, 4)),
    "margins of several": (lambda x: F.multilabel_margin_loss(x, torch.tensor([[1, 0, -1, 2]])), (1, 4)),
    "fractional": (lambda x: F.fractional_max_pool2d(x, 2, output_ratio=(0.5, 0.5)).square().sum(), (1, 2, 6, 6)),
    "fractional in space": (
        lambda x: F.fractional_max_pool3d(x, 2, output_ratio=0.5).square().sum(),
        (1, 2, 6, 6, 6),
    ),
    "orthogonal": (lambda x: torch.linalg.qr(x)[0].square().sum(1).prod(), (4, 3)),
}


@pytest.mark.parametrize("name", LOSSES)
def test_gradients(name: str) -> None:
    loss, sizes = LOSSES[name]

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.tensor(1.5))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return loss(x * self.weight)

    x, model = torch.randn(sizes), Model()
    joint = tintype.export_joint(model, (x,))
    torch.manual_seed(0)
    found, gradients, *_ = joint.module()(x)
    torch.manual_seed(0)
    wanted = model(x)
    wanted.backward()
    torch.testing.assert_close((found, gradients["weight"]), (wanted.detach(), model.weight.grad))


library = torch.library.Library("tintype_lists", "DEF")
library.define("fill_all(Tensor(a!)[] tensors, float value) -> ()")


@torch.library.impl(library, "fill_all", "CompositeExplicitAutograd")
def fill_all(tensors: list[torch.Tensor], value: float) -> None:
    for tensor in tensors:
        tensor.fill_(value)


torch.library.register_fake("tintype_lists::fill_all", lambda tensors, value: None, lib=library)


def filled(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    own, row = x.clone(), y[0]
    torch.ops.tintype_lists.fill_all([own, row], 3.0)
    return own + y


def added(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    torch._foreach_add_([x, y], 1.0)
    return x + y


@pytest.mark.parametrize("function", [filled, added])
@pytest.mark.parametrize("export", [tintype.export, tintype.export_for_training])
def test_lists_that_are_written_to(function: Any, export: Any) -> None:
    program = export(function, (torch.randn(2, 3), torch.randn(2, 3)))
    for form in (program, program.run_decompositions()):
        given = [torch.randn(2, 3) for _ in range(2)]
        ours, theirs = [x.clone() for x in given], [x.clone() for x in given]
        torch.testing.assert_close(form.module()(*ours), function(*theirs))
        torch.testing.assert_close(ours, theirs)


@torch.library.custom_op("tintype_lists::count", mutates_args=())
def count(x: torch.Tensor) -> int:
    return int((x > 0).sum())


@count.register_fake
def _(x: torch.Tensor) -> int:
    return torch.library.get_ctx().new_dynamic_size()


@torch.library.custom_op("tintype_lists::mean", mutates_args=())
def mean(x: torch.Tensor) -> float:
    return float(x.mean())


@mean.register_fake
def _(x: torch.Tensor) -> float:
    return 0.0


def test_operators_that_return_numbers() -> None:
    def scaled(x: torch.Tensor) -> Any:
        number = count(x)
        return x * number, torch.zeros(number)

    program = tintype.export(scaled, (torch.randn(3),))
    for form in (program, program.run_decompositions()):
        for x in (torch.ones(3), -torch.ones(3), torch.tensor([1.0, -1.0, 2.0])):
            torch.testing.assert_close(form.module()(x), scaled(x))
    # of a float, the kernel without data can't say that nobody knows it
    with pytest.raises(tintype.TintypeError, match=r"mean.*returns a float, which is only known when it runs"):
        tintype.export(lambda x: x * mean(x), (torch.randn(3),))


def test_an_assertion_that_all_is_close() -> None:
    def checked(x: torch.Tensor) -> torch.Tensor:
        torch._assert(torch.allclose(x, x.round()), "no whole numbers")
        return x * 2

    module = tintype.export(checked, (torch.ones(3),)).module()
    assert torch.equal(module(torch.full((3,), 4.0)), torch.full((3,), 8.0))
    with pytest.raises(tintype.TintypeError, match="Runtime assertion failed"):
        module(torch.full((3,), 0.5))
