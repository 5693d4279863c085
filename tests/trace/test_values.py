"""Tensors of all kinds, and the tensors that a program makes or finds by itself."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import tintype
from tests.export.modes import capture, compare, keeps_tensors, targets


def x(*sizes: int) -> torch.Tensor:
    return torch.randn(*(sizes or (3, 4)), requires_grad=True)


# --- factories ---------------------------------------------------------------------------------------------


def factories(value: torch.Tensor) -> Any:
    return [
        torch.zeros(2, 3),
        torch.ones(value.shape[0]),
        torch.full((2,), math.pi),
        torch.full((2,), 7),
        torch.arange(5),
        torch.arange(1, 2, 0.25),
        torch.arange(value.size(-1), device=value.device),
        torch.linspace(0, 1, 5),
        torch.logspace(0, 1, 3),
        torch.eye(3),
        torch.zeros_like(value),
        torch.ones_like(value, dtype=torch.int32),
        torch.full_like(value, 2),
        value.new_zeros(2, 2),
        value.new_ones(3, dtype=torch.bool),
        value.new_full((2,), 4.0),
        value.new_tensor([1, 2, 3]),
        torch.tril_indices(3, 3),
        torch.tril(torch.ones(3, 3)),
        torch.scalar_tensor(3.0),
        torch.empty(0),
        torch.hann_window(4),
        torch.complex(torch.ones(2), torch.zeros(2)),
        torch.meshgrid(torch.arange(2), torch.arange(3), indexing="ij"),
        torch.cartesian_prod(torch.arange(2), torch.arange(2)),
        torch.nn.functional.one_hot(torch.arange(3), 4),
        torch.asarray([1.0, 2.0]),
        torch.as_tensor([3, 4]),
    ]


def test_factories(mode: str) -> None:
    compare(mode, factories, (x(),))


def test_default_dtype_of_factories(mode: str) -> None:
    torch.set_default_dtype(torch.float64)
    try:
        compare(mode, lambda value: value + torch.ones(4) * torch.tensor(0.1), (torch.randn(3, 4),))
    finally:
        torch.set_default_dtype(torch.float32)


def test_default_device_context(mode: str) -> None:
    def function(value: torch.Tensor) -> torch.Tensor:
        with torch.device("cpu"):
            return value + torch.ones(4)

    compare(mode, function, (x(),))


# --- literals ----------------------------------------------------------------------------------------------


def literals(value: torch.Tensor) -> Any:
    numbers = torch.tensor([[1, 2], [3, 4]])
    weights = torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64)
    flag = torch.tensor(True)
    nested = torch.tensor([value.shape[0], value.shape[1]])
    return value * weights, numbers, flag, nested, torch.tensor(5), torch.tensor([]), torch.tensor(1 + 2j)


def test_tensor_literals(mode: str) -> None:
    compare(mode, literals, (x(),))


def test_literal_is_fresh_in_every_call(mode: str) -> None:
    def function(value: torch.Tensor) -> torch.Tensor:
        counter = torch.tensor([0.0])
        counter += value.sum()
        return counter

    compare(mode, function, (torch.randn(3, 4),))


def test_literal_as_an_index(mode: str) -> None:
    def function(value: torch.Tensor) -> Any:
        rows = torch.tensor([2, 0])
        return value[rows], value[:, rows], value[torch.tensor(1)], value[[0, 2]], value[[True, False, True]]

    compare(mode, function, (x(),))


def test_values_of_literals_are_known(mode: str) -> None:
    def function(value: torch.Tensor) -> torch.Tensor:
        offsets = torch.tensor([1, 2, 3]) * 2
        if offsets.sum() > 3:
            value = value + offsets[1].item()
        for offset in offsets.tolist():
            value = value * offset
        return value + int(offsets.max()) + float(offsets.float().mean()) + len(offsets)

    compare(mode, function, (x(),))


def test_numpy_of_constants(mode: str) -> None:
    def function(value: torch.Tensor) -> torch.Tensor:
        table = torch.arange(4).numpy() * 2
        scale = np.sqrt(np.array([1.0, 4.0, 9.0, 16.0], dtype=np.float32))
        return value + torch.from_numpy(table) + torch.tensor(scale) + np.float32(2.5) * int(table[-1])

    compare(mode, function, (x(),))


def test_numpy_numbers_in_operators(mode: str) -> None:
    def function(value: torch.Tensor) -> torch.Tensor:
        value = value.reshape(np.int64(4), np.int64(3)) * np.float64(0.5)
        return value.sum(dim=int(np.int32(1))).view(np.prod([2, 2]).item())

    compare(mode, function, (x(),))


def test_shape_computations(mode: str) -> None:
    def function(value: torch.Tensor) -> torch.Tensor:
        batch, width = value.shape
        head = int(math.sqrt(width))
        value = value.view(batch, head, -1).transpose(1, 2)
        return value.reshape(batch, -1) / math.sqrt(value.size(-1)) + np.prod(value.shape)

    compare(mode, function, (x(),))


# --- tensors from outside ----------------------------------------------------------------------------------

GLOBAL = torch.tensor([1.0, 2.0, 3.0, 4.0])


def from_default(value: torch.Tensor, offset: torch.Tensor = GLOBAL) -> torch.Tensor:
    return value + offset


@pytest.mark.direct("the program holds the model's own tensors")
def test_global_tensor_becomes_a_constant(mode: str) -> None:
    program = compare(mode, lambda value: value * GLOBAL, (x(),))
    assert len(program.graph_signature.lifted_tensor_constants) == 1
    if keeps_tensors(mode):
        assert any(constant is GLOBAL for constant in program.constants.values())


def test_closure_tensor_becomes_a_constant(mode: str) -> None:
    inner = torch.randn(4)
    program = compare(mode, lambda value: value * inner + inner, (x(),))
    assert len(program.graph_signature.lifted_tensor_constants) == 1


def test_default_argument_becomes_a_constant(mode: str) -> None:
    compare(mode, from_default, (x(),))


@pytest.mark.direct("the program holds the model's own tensors")
def test_closure_that_requires_gradients(mode: str) -> None:
    weight = torch.randn(4, requires_grad=True)
    program = capture(mode, lambda value: value * weight, (x(),))
    program.module()(torch.ones(3, 4)).sum().backward()
    (constant,) = program.constants.values()
    assert not keeps_tensors(mode) or constant is weight
    torch.testing.assert_close(constant.grad, torch.full((4,), 3.0))


class PlainAttribute(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = torch.randn(4)
        self.tables = [torch.randn(4), {"deep": torch.randn(4)}]

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        return value * self.table + self.tables[0] - self.tables[1]["deep"]  # type: ignore[index]


def test_plain_attributes_become_constants(mode: str) -> None:
    program = compare(mode, PlainAttribute(), (x(),))
    assert "table" in program.constants
    assert len(program.graph_signature.lifted_tensor_constants) == 3
    assert not program.state_dict


def test_two_names_of_one_constant_are_lifted_once() -> None:
    first = torch.randn(4)
    second = first
    program = tintype.export(lambda value: value * first + second, (x(),))
    assert len(program.graph_signature.lifted_tensor_constants) == 1


def test_views_of_one_constant(mode: str) -> None:
    base = torch.randn(2, 4)
    first, second = base[0], base[1]
    compare(mode, lambda value: value * first + second - base.sum(), (x(),))


def test_numpy_array_from_outside(mode: str) -> None:
    table = np.arange(4, dtype=np.float32)
    compare(mode, lambda value: value + torch.from_numpy(table), (x(),))


def test_constant_keeps_its_values_when_the_original_is_rebound(mode: str) -> None:
    holder = {"table": torch.ones(4)}
    program = capture(mode, lambda value: value + holder["table"], (x(),))
    holder["table"] = torch.zeros(4)
    value = x()
    torch.testing.assert_close(program.module()(value), value + 1)


# --- kinds of tensors --------------------------------------------------------------------------------------


def arithmetic(value: torch.Tensor) -> Any:
    return value + value, value * 2, value - 1, value == value, value.sum(), value.max(), value.reshape(-1)[:2]


@pytest.mark.parametrize(
    "dtype",
    [
        torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.int32, torch.int16,
        torch.int8, torch.uint8,
    ],
    ids=str,
)  # fmt: skip
def test_dtypes(mode: str, dtype: torch.dtype) -> None:
    value = (torch.randn(3, 4) * 3).to(dtype).requires_grad_(dtype.is_floating_point)
    compare(mode, arithmetic, (value,))


def test_booleans(mode: str) -> None:
    def function(mask: torch.Tensor, value: torch.Tensor) -> Any:
        return (
            mask & ~mask,
            mask | mask,
            mask ^ (value > 0),
            mask.any(),
            mask.all(dim=1),
            mask.sum(),
            mask.float() * value,
            value.masked_fill(mask, -1.0),
            torch.where(mask, value, 0.0),
            mask.logical_not(),
            mask + mask,
        )

    compare(mode, function, (torch.rand(3, 4) > 0.5, x()))


def test_mixed_dtypes(mode: str) -> None:
    def function(value: torch.Tensor, number: torch.Tensor, half: torch.Tensor) -> Any:
        return (
            value + number,
            number / 2,
            number // 2,
            number * 1.5,
            half * value,
            half + 1,
            half.float() @ value.t(),
            number + torch.tensor(2.5),
            number + torch.tensor(2, dtype=torch.int8),
            torch.cat([value, half.float()]),
            value.to(torch.float64) + half,
        )

    compare(mode, function, (x(), torch.arange(12).view(3, 4), torch.randn(3, 4).bfloat16()))


def test_complex(mode: str) -> None:
    def function(value: torch.Tensor) -> Any:
        rotated = value * torch.exp(torch.tensor(1j))
        spectrum = torch.fft.fft(value)
        return (
            rotated,
            value.conj() * 2,
            value.conj(),
            value.real,
            value.imag + 1,
            value.abs(),
            value.angle(),
            torch.view_as_real(value),
            torch.view_as_complex(torch.view_as_real(spectrum)),
            torch.polar(value.abs(), value.angle()),
            torch.fft.ifft(spectrum),
            value.conj().t() @ value,
        )

    compare(mode, function, (torch.randn(3, 4, dtype=torch.complex64),))


def test_conjugated_input(mode: str) -> None:
    value = torch.randn(3, 4, dtype=torch.complex64).conj()
    compare(mode, lambda v: (v * 2, v.imag, v.resolve_conj()), (value,), others=[])


def test_fft_of_real_numbers(mode: str) -> None:
    def function(value: torch.Tensor) -> Any:
        spectrum = torch.fft.rfft(value, dim=-1)
        return torch.fft.irfft(spectrum * 2, n=4), torch.fft.rfft2(value).abs(), torch.fft.fftshift(value)

    compare(mode, function, (x(),))


def test_zero_dimensional_tensors(mode: str) -> None:
    def function(value: torch.Tensor, integer: torch.Tensor) -> Any:
        return value + 1, value * integer, value.expand(3), value[None], value.sum(), torch.stack([value, value])

    compare(mode, function, (torch.tensor(2.0, requires_grad=True), torch.tensor(3)))


def test_empty_tensors(mode: str) -> None:
    def function(value: torch.Tensor, other: torch.Tensor) -> Any:
        return value + 1, value.sum(), torch.cat([value, other]), value @ other.t(), value.view(4, 0), value.mean(1)

    compare(mode, function, (torch.randn(0, 4, requires_grad=True), x()))


@pytest.mark.parametrize(
    "value",
    [
        torch.randn(4, 3).t(),
        torch.randn(1, 4).expand(3, 4),
        torch.randn(6, 8)[::2, 1::2],
        torch.randn(24)[5:17].view(3, 4),
        torch.randn(3, 4, 2)[..., 1],
        torch.randn(()).expand(3, 4),
    ],
    ids=["transposed", "expanded", "strided", "offset", "selected", "scalar"],
)
def test_layouts_of_inputs(mode: str, value: torch.Tensor) -> None:
    def function(value: torch.Tensor) -> Any:
        return value + 1, value.t().reshape(-1), value.contiguous().view(-1), value.clone(), value.sum(0), value.t()

    compare(mode, function, (value,), others=[])


def test_channels_last(mode: str) -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2)).eval()
    model = model.to(memory_format=torch.channels_last)
    value = torch.randn(2, 3, 8, 8).to(memory_format=torch.channels_last)
    program = compare(mode, model, (value,))
    expected = model(value)
    assert program.module()(value).stride() == expected.stride()


def test_memory_formats(mode: str) -> None:
    def function(value: torch.Tensor) -> Any:
        last = value.to(memory_format=torch.channels_last)
        return last, last.contiguous(), last + 1, torch.empty_like(last).fill_(2), last.permute(0, 2, 3, 1) * 2

    value = torch.randn(2, 3, 4, 5)
    program = compare(mode, function, (value,))
    for actual, expected in zip(program.module()(value), function(value), strict=True):
        assert actual.stride() == expected.stride()


# --- operators with a character of their own -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("ij,jk->ik", [(2, 3), (3, 4)]),
        ("bij,bjk->bik", [(2, 3, 4), (2, 4, 5)]),
        ("ij->ji", [(2, 3)]),
        ("ii->i", [(3, 3)]),
        ("ii", [(3, 3)]),
        ("ij->", [(2, 3)]),
        ("...ij,...jk->...ik", [(2, 2, 3, 4), (4, 5)]),
        ("i,j->ij", [(2,), (3,)]),
        ("bhqd,bhkd->bhqk", [(1, 2, 3, 4), (1, 2, 5, 4)]),
        ("ij,jk,kl->il", [(2, 3), (3, 4), (4, 2)]),
        ("ijbn->bnij", [(2, 3, 2, 2)]),
        ("ij,ij->i", [(2, 3), (2, 3)]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_einsum(mode: str, equation: str, shapes: list[tuple[int, ...]]) -> None:
    operands = tuple(torch.randn(shape, requires_grad=True) for shape in shapes)
    compare(mode, lambda *tensors: torch.einsum(equation, *tensors), operands)


def test_operators_on_two_numbers(mode: str) -> None:
    def function(value: torch.Tensor) -> torch.Tensor:
        chunks = torch.div(12, 4, rounding_mode="trunc")
        return value * chunks + torch.add(1, 2) - torch.mul(2.0, 3)

    compare(mode, function, (x(),))


def test_in_place_and_out_variants(mode: str) -> None:
    def function(value: torch.Tensor) -> Any:
        result = torch.empty(3, 4)
        torch.add(value, 1, out=result)
        result.mul_(2)[0].zero_()
        result[1] = 7.0
        result[:, 2] += value[:, 0]
        result.masked_fill_(value > 1, -1)
        return result, torch.relu_(value * 2)

    compare(mode, function, (torch.randn(3, 4),))


def test_python_protocols_of_tensors(mode: str) -> None:
    def function(value: torch.Tensor) -> Any:
        rows = list(value)
        first, second, third = value
        stacked = torch.stack([row * index for index, row in enumerate(rows)])
        return (
            -value, abs(value), value ** 2, 2 ** value, 1 / value.exp(), 1 - value, value @ value.T, +value,
            value % 3, divmod(5, 3), round(3.7), max(first.shape), stacked, second + third, value[..., None],
            value[None, :, -1], value[1:, ::2], reversed(value), value.unbind(1)[0], value.T, value.mT,
        )  # fmt: skip

    compare(mode, function, (x(),))


def test_unused_inputs_and_dead_code(mode: str) -> None:
    def function(value: torch.Tensor, unused: torch.Tensor) -> torch.Tensor:
        value.sin().cos()
        return value + 1

    program = compare(mode, function, (x(), x(2, 2)))
    assert targets(program) == ["aten.add.Tensor"]
    assert program.graph_signature.user_inputs == ("value", "unused")


def test_assertions_on_shapes_cost_nothing(mode: str) -> None:
    def function(value: torch.Tensor) -> torch.Tensor:
        torch._check(value.shape[0] == 3)
        assert value.shape[1] % 2 == 0
        return value * 2

    assert targets(compare(mode, function, (x(),))) == ["aten.mul.Tensor"]


def test_data_dependent_sizes(mode: str) -> None:
    def function(value: torch.Tensor) -> Any:
        return value[value > 0], torch.nonzero(value > 0), torch.masked_select(value, value < 0), value.unique()

    compare(mode, function, (torch.randn(3, 4),))


def test_writes_to_parts_of_tensors_of_data_dependent_size(mode: str) -> None:
    """A column of a tensor with an unknown number of rows has no elements that share memory."""

    def function(value: torch.Tensor) -> torch.Tensor:
        rows = value[value > 0][:, None] * torch.ones(5)
        rows[..., 0] = 3.0
        rows[..., -1] += 0.5
        rows[:, 1:3].mul_(2)
        return rows

    compare(mode, function, (torch.randn(3, 4),))


def test_numbers_from_data(mode: str) -> None:
    def function(value: torch.Tensor, count: torch.Tensor) -> Any:
        number = count.item()
        return value + number, number, torch.full((2,), number * 2)

    compare(mode, function, (torch.randn(3, 4), torch.tensor(3)), gradients=False)


# --- layers ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "sizes"),
    [
        (lambda: nn.Conv1d(4, 4, 3, padding="same"), (2, 4, 8)),
        (lambda: nn.Conv2d(4, 6, 3, groups=2, dilation=2, padding_mode="circular", padding=1), (1, 4, 8, 8)),
        (lambda: nn.ConvTranspose2d(4, 2, 3, stride=2, output_padding=1), (1, 4, 5, 5)),
        (lambda: nn.LSTM(4, 5, 2, bidirectional=True, batch_first=True), (2, 3, 4)),
        (lambda: nn.GRU(4, 5), (3, 2, 4)),
        (lambda: nn.LSTMCell(4, 5), (2, 4)),
        (lambda: nn.MultiheadAttention(4, 2, batch_first=True), None),
        (lambda: nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), (2, 3, 4)),
        (lambda: nn.TransformerEncoderLayer(4, 2, 8, batch_first=True).eval(), (2, 3, 4)),
        (lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0), 2).eval(), (2, 3, 4)),
        (lambda: nn.GroupNorm(2, 4), (2, 4, 3)),
        (lambda: nn.InstanceNorm1d(4, affine=True, track_running_stats=True), (2, 4, 6)),
        (lambda: nn.RMSNorm(4), (2, 4)),
        (lambda: nn.AdaptiveAvgPool2d((3, 2)), (1, 2, 7, 5)),
        (lambda: nn.MaxPool2d(2, return_indices=True), (1, 2, 6, 6)),
        (lambda: nn.Upsample(scale_factor=2, mode="bilinear"), (1, 2, 3, 3)),
        (lambda: nn.PixelShuffle(2), (1, 4, 2, 2)),
        (lambda: nn.Unfold(2), (1, 2, 4, 4)),
        (lambda: nn.PReLU(), (2, 4)),
        (lambda: nn.Softmax(dim=-1), (2, 4)),
        (lambda: nn.Bilinear(4, 4, 3), None),
        (lambda: nn.CosineSimilarity(), None),
    ],
    ids=lambda value: type(value()).__name__ if callable(value) else "",
)
def test_layers(mode: str, make: Any, sizes: tuple[int, ...] | None) -> None:
    model = make()
    inputs = (x(*sizes),) if sizes is not None else {"MultiheadAttention": (x(2, 3, 4),) * 3}.get(
        type(model).__name__, (x(2, 4), x(2, 4))
    )  # fmt: skip
    compare(mode, model, inputs)


def test_embeddings(mode: str) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens = nn.Embedding(10, 4, padding_idx=0)
            self.bag = nn.EmbeddingBag(10, 4, mode="mean")

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return self.tokens(ids).sum(1) + self.bag(ids)

    compare(mode, Model(), (torch.randint(0, 10, (2, 5)),))


@pytest.mark.parametrize(
    "loss",
    [
        nn.CrossEntropyLoss(label_smoothing=0.1),
        nn.CrossEntropyLoss(ignore_index=1, reduction="none"),
        nn.NLLLoss(weight=torch.rand(4)),
        nn.MultiMarginLoss(),
    ],
    ids=["cross-entropy", "ignoring", "nll", "margin"],
)
def test_losses(mode: str, loss: nn.Module) -> None:
    compare(mode, loss, (x(), torch.tensor([0, 1, 3])))


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("masked", [True, False])
def test_attention(mode: str, causal: bool, masked: bool) -> None:
    def function(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: Any = None) -> torch.Tensor:
        return nn.functional.scaled_dot_product_attention(query, key, value, mask, is_causal=causal)

    if causal and masked:
        return
    mask = torch.rand(3, 3).tril() > 0.01 if masked else None
    compare(
        mode, function, (x(1, 2, 3, 4), x(1, 2, 3, 4), x(1, 2, 3, 4)), {"mask": mask} if masked else {}, others=[]
    )


# --- masks without dimensions ------------------------------------------------------------------------------


def assigned_where_true(value: torch.Tensor, flag: torch.Tensor, other: torch.Tensor) -> Any:
    number, tensor = value.clone(), value.clone()
    number[flag] = 2.0
    tensor[flag] = other
    return number, tensor


@pytest.mark.parametrize("flag", [True, False])
def test_a_single_flag_selects_all_or_nothing(mode: str, flag: bool) -> None:
    compare(mode, assigned_where_true, (x(), torch.tensor(flag), x(4)))
    module = tintype.export(assigned_where_true, (x(), torch.tensor(not flag), x(4))).module()
    arguments = (x(), torch.tensor(flag), x(4))
    assert all(map(torch.equal, module(*arguments), assigned_where_true(*arguments)))


def test_indexing_with_a_single_flag() -> None:
    module = tintype.export(lambda value, flag: value[flag], (torch.ones(3), torch.tensor(True))).module()
    for flag in (True, False):
        value = torch.randn(3)
        assert torch.equal(module(value, torch.tensor(flag)), value[torch.tensor(flag)])


def test_an_assertion_is_computed_from_what_is_there_already() -> None:
    """The sum of the parts' sizes is asserted before the parts are put together again into a tensor of that size."""

    def experts(x: torch.Tensor, choice: torch.Tensor) -> torch.Tensor:
        sizes = torch.stack([(choice == number).sum() for number in range(2)]).tolist()
        for _ in range(2):
            x = torch.cat([part * (number + 1) for number, part in enumerate(x.split(sizes))])
        return x

    x, choice = torch.randn(6, 3), torch.tensor([0, 1, 1, 0, 1, 1])
    program = tintype.export(experts, (x, choice))
    program.validate()
    other = torch.tensor([0, 0, 0, 0, 1, 0])
    for module in (program.module(), program.run_decompositions().module()):
        assert torch.equal(module(x, other), experts(x, other))


def test_a_tensor_that_the_program_detaches_itself() -> None:
    """Only what torch's own functions detach goes without saying: here the detached tensor has no gradient."""

    def function(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        made = torch.zeros(3)
        detached = made.detach()
        made += x
        return made, detached * x

    program = tintype.export_for_training(function, (torch.ones(3),))
    targets = [node.target for node in program.graph.nodes if node.op == "call_function"]
    assert targets.count(torch.ops.aten.detach.default) == 1
    for run in (function, program.module(), tintype.export(function, (torch.ones(3),)).module()):
        x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
        run(x)[1].sum().backward()
        assert x.grad is not None and x.grad.tolist() == [1.0, 2.0, 3.0]


def test_a_dimension_taken_apart_is_written_to(mode: str) -> None:
    def function(value: torch.Tensor) -> Any:
        memory = value.detach().clone()
        parts = memory.unflatten(1, (2, -1))
        parts.add_(1)
        turned = parts.transpose(1, 2)
        memory.mul_(2)
        return parts + 1, turned.unflatten(-1, [2, 1]), memory

    compare(mode, function, (x(3, 6),))


def test_a_dimension_taken_apart_stays_whole() -> None:
    program = tintype.export_for_training(lambda value: value.unflatten(1, (2, 3)) * 2, (x(3, 6),))
    assert "aten.unflatten.int" in targets(program)
    assert "aten.unflatten.int" not in targets(program.run_decompositions())
    with pytest.raises(RuntimeError, match="don't multiply up to the size of dim 1"):
        tintype.export(lambda value: value.unflatten(1, (4, 2)), (x(3, 6),))


class Tables(nn.Module):
    """Has tensors under all kinds of names, and hands them to a function."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function
        self.register_buffer("buffer", torch.tensor([1, 2, 3]))
        self.weight = nn.Parameter(torch.ones(3))
        self.plain = torch.tensor([1.0, 2.0, 3.0])

    def forward(self, value: torch.Tensor) -> Any:
        return self.function(self, value)


TABLE = torch.tensor([1.0, 2.0, 3.0])


@pytest.mark.parametrize(
    "function",
    [
        lambda tables, value: value * tables.buffer.numpy().sum(),
        lambda tables, value: value + torch.from_numpy(tables.plain.numpy()),
        lambda tables, value: value * int(np.asarray(tables.buffer).max()),
        lambda tables, value: torch.stack([value * int(i) for i in tables.buffer.numpy()]),
        lambda tables, value: value + tables.weight.detach().numpy()[0],
        lambda tables, value: value + TABLE.numpy().sum(),
    ],
)
def test_arrays_of_the_models_tensors_hold_their_data_or_are_refused(function: Any) -> None:
    model, value = Tables(function), torch.ones(3)
    expected = model(value)
    runs = [lambda: tintype.export(model, (value,)).module(), lambda: tintype.aot.module(model)]
    for make in runs:
        try:
            result = make()(value)
        except tintype.TintypeError as refused:
            assert "data of a tensor" in str(refused)
        else:
            torch.testing.assert_close(result, expected)
    assert TABLE.numpy().sum() == 6


OF_CONSTANTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "mask": lambda index: index[index != 4],
    "nonzero": lambda index: torch.nonzero(index % 2)[:, 0],
    "masked_select": lambda index: torch.masked_select(index, index > 2),
    "repeat_interleave": lambda index: torch.repeat_interleave(index.flatten() % 3),
    "bincount": lambda index: torch.bincount(index.flatten() % 3),
    "unique": lambda index: torch.unique(index % 4),
    "unique_consecutive": lambda index: torch.unique_consecutive(index // 2),
    "unique rows": lambda index: torch.unique(index % 2, dim=0)[:, 0],
}


@pytest.mark.parametrize("name", OF_CONSTANTS)
def test_sizes_that_follow_from_constants_are_known(name: str) -> None:
    def program(x: torch.Tensor) -> Any:
        found = OF_CONSTANTS[name](torch.arange(6).reshape(2, 3))
        return [x[index] for index in found.tolist()], x[: found.shape[0]], torch.eye(6)[found] @ x

    x = torch.randn(6, 2)
    exported = tintype.export(program, (x,))
    assert not exported.range_constraints
    retraced = tintype.export(exported.module(), (x,))
    for captured in (exported, retraced, exported.run_decompositions(), retraced.run_decompositions()):
        torch.testing.assert_close(captured.module()(x), program(x))


def test_sizes_that_follow_from_buffers_are_not_known() -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mask", torch.tensor([True, False, True]))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x[self.mask].sum(0)

    model, x = Model(), torch.randn(3, 2)
    exported = tintype.export(model, (x,))
    exported.state_dict["mask"].fill_(True)
    torch.testing.assert_close(exported.module()(x), x.sum(0))
