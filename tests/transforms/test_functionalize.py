"""Functionalization case by case: what a program writes, what its outputs alias, and what is refused."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import torch.utils._pytree as tree

import tintype
from tests.transforms.comparison import compare
from tests.transforms.mutation_programs import Values
from tintype.errors import CaptureError, CaptureReport, MutationError
from tintype.ir.signature import OutputKind


class Holder(torch.nn.Module):
    """A module with a buffer that may be written to and a function of it and the inputs as forward."""

    def __init__(self, function: Callable[..., Any], buffer: torch.Tensor | None = None) -> None:
        super().__init__()
        self.function = function
        self.register_buffer("state", Values(3).floats(6) if buffer is None else buffer)

    def forward(self, *args: Any) -> Any:
        return self.function(self, *args)


def check(
    function: Callable[..., Any],
    *inputs: Callable[[Values], torch.Tensor],
    buffer: Callable[[], torch.Tensor] | None = None,
) -> None:
    """Compare ``function(module, *inputs)`` in eager mode with all ways of capturing it."""
    compare(
        lambda: Holder(function, None if buffer is None else buffer()),
        lambda make: tuple(make_input(make) for make_input in inputs),
    )


def matrix(make: Values) -> torch.Tensor:
    return make.floats(4, 6)


def row(make: Values) -> torch.Tensor:
    return make.floats(6)


def targets(program: tintype.ExportedProgram) -> list[str]:
    return [str(node.target) for node in program.graph.nodes if node.op == "call_function"]


def mutations(program: tintype.ExportedProgram) -> list[tuple[OutputKind, str | None]]:
    return [
        (spec.kind, spec.target)
        for spec in program.graph_signature.output_specs
        if spec.kind is not OutputKind.USER_OUTPUT
    ]


# --- writes ----------------------------------------------------------------------------------------------


def test_a_written_input_is_an_output_of_the_program() -> None:
    program = tintype.export(lambda x: x.add_(1) * 2, (torch.ones(3),))
    assert targets(program) == ["aten.add.Tensor", "aten.mul.Tensor"]
    assert mutations(program) == [(OutputKind.USER_INPUT_MUTATION, "x")]
    x = torch.ones(3)
    assert program.module()(x).tolist() == [4, 4, 4] and x.tolist() == [2, 2, 2]


def test_a_written_buffer_is_an_output_of_the_program() -> None:
    program = tintype.export(Holder(lambda self, x: x + self.state.mul_(2)), (torch.ones(6),))
    assert mutations(program) == [(OutputKind.BUFFER_MUTATION, "state")]
    program.validate()


def test_a_written_parameter_is_an_output_of_the_program() -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.no_grad():
                self.weight.add_(1)
            return x * self.weight

    model = Model()
    program = tintype.export(model, (torch.ones(3),))
    assert mutations(program) == [(OutputKind.PARAMETER_MUTATION, "weight")]
    module = program.module()
    assert module(torch.ones(3)).tolist() == [2, 2, 2]
    assert module(torch.ones(3)).tolist() == [3, 3, 3]
    assert module.weight.requires_grad and model.weight.tolist() == [1, 1, 1]


def test_writes_through_views_reach_the_base() -> None:
    def program(self: Holder, x: torch.Tensor) -> Any:
        x[1].add_(1)
        x.t()[2:4].mul_(2)
        x.view(2, 2, 6)[0, :, ::2].zero_()
        x.diagonal().fill_(7)
        return x.sum()

    check(program, matrix)


def test_writes_to_the_base_reach_views_and_views_of_views() -> None:
    def program(self: Holder, x: torch.Tensor) -> Any:
        first = x[1:]
        second = first.t()
        third = second.unsqueeze(0).squeeze(0)
        x.add_(1)
        second.mul_(2)
        first[0].sub_(3)
        return first + 1, second + 1, third + 1

    check(program, matrix)


@pytest.mark.parametrize(
    "assign",
    [
        lambda x, y: x.__setitem__(0, y),
        lambda x, y: x.__setitem__((slice(None), slice(1, 5, 2)), 3),
        lambda x, y: x.__setitem__((Ellipsis, -1), 2.5),
        lambda x, y: x.__setitem__((slice(0, 2), None), y),
        lambda x, y: x.__setitem__(torch.tensor([2, 0]), y),
        lambda x, y: x.__setitem__((slice(None), torch.tensor([1, 3])), 0),
        lambda x, y: x.__setitem__(x > 0, -1),
        lambda x, y: x.__setitem__(torch.tensor([True, False, True, False]), y),
    ],
)
def test_assignment_to_a_subscript(assign: Callable[[torch.Tensor, torch.Tensor], None]) -> None:
    def program(self: Holder, x: torch.Tensor, y: torch.Tensor) -> Any:
        fresh = x.clone()
        assign(x, y)
        assign(fresh.detach(), y)
        assign(x[:, :].data, y)
        return x, fresh

    check(program, matrix, row)


def test_out_arguments() -> None:
    def program(self: Holder, x: torch.Tensor, y: torch.Tensor) -> Any:
        torch.add(x[0], y, alpha=2, out=self.state)
        torch.mul(y, 2, out=x[1])
        values, indices = torch.zeros(6), torch.zeros(6, dtype=torch.int64)
        torch.sort(y, out=(values, indices))
        return values, indices, self.state

    check(program, matrix, row)


def test_detach_and_data_are_the_same_memory() -> None:
    def program(self: Holder, x: torch.Tensor) -> Any:
        x.detach().add_(1)
        x.data[0].mul_(2)
        self.state.data.copy_(x[0])
        return x.detach(), self.state.data

    check(program, matrix)


def test_a_number_copied_into_a_tensor() -> None:
    check(lambda self, x: (x[0].copy_(2), self.state.copy_(0.5)), matrix)


def test_writes_to_lists_of_tensors() -> None:
    def program(self: Holder, x: torch.Tensor, y: torch.Tensor) -> Any:
        torch._foreach_add_([x[0], y, self.state], 1)
        torch._foreach_mul_([y], [2.0])
        return x, y

    check(program, matrix, row)


def test_write_to_one_copy_of_an_expanded_element() -> None:
    def program(self: Holder, x: torch.Tensor) -> Any:
        copies = x[:, None].expand(4, 3, 6)
        copies[:, 2, ::2].fill_(5)
        copies[0].zero_()
        return x + 1, copies + 1

    check(program, matrix)


def test_write_through_windows_that_overlap() -> None:
    check(lambda self, x: (x.unfold(1, 3, 2).fill_(4), x), matrix)


def test_write_through_windows() -> None:
    check(lambda self, x: (x.unfold(1, 2, 3).mul_(2), x), matrix)
    check(lambda self, x: x.t().unfold(0, 2, 3).add_(1).sum(), matrix)


@pytest.mark.parametrize("offset", [None, 8])
def test_as_strided_looks_at_memory(offset: int | None) -> None:
    def program(self: Holder, x: torch.Tensor) -> Any:
        part = x[1:].t()
        strided = torch.as_strided(part, [2, 3], [6, 2], offset)
        x.add_(1)
        strided.mul_(2)
        part.sub_(1)
        return strided, part

    check(program, matrix)
    check(program, lambda make: make.floats(6, 4).t())
    check(program, lambda make: make.floats(5, 6)[1:])


def test_writes_to_other_views_of_the_same_bits() -> None:
    def program(self: Holder, x: torch.Tensor, z: torch.Tensor) -> Any:
        x.t().view(torch.int32)[0].zero_()
        torch.view_as_real(z)[:, 1].add_(1)
        z.conj().imag.mul_(2)
        z.real[1:].copy_(z.imag[1:])
        return x, z, z.real, x[0].view(torch.int32)

    check(program, matrix, lambda make: make.complexes(6))


def test_writes_to_nothing() -> None:
    def program(self: Holder, x: torch.Tensor) -> Any:
        x[:, 4:4].view(torch.int16).add_(1)
        x[:0].expand(2, 0, 6).fill_(3)
        x[:, 0].expand(1, 4)[:0].mul_(3)
        self.state[6:].unfold(0, 0, 1).zero_()
        return x.mul_(2)

    check(program, matrix)


def test_a_view_of_all_elements_is_another_tensor_than_its_base() -> None:
    def program(self: Holder, x: torch.Tensor) -> Any:
        same, alike = x.view_as(x), self.state.detach()
        same[2:2] = 1
        same.add_(1)
        alike.mul_(2)
        return same, alike

    check(program, matrix)


def test_batch_norm_in_training_writes_its_statistics() -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = torch.nn.BatchNorm2d(3)
            self.instances = torch.nn.InstanceNorm2d(3, track_running_stats=True)

        def forward(self, x: torch.Tensor) -> Any:
            return self.instances(self.norm(x)), self.norm.running_mean

    compare(Model, lambda make: (make.floats(2, 3, 4, 4),))
    program = tintype.export(Model(), (torch.rand(2, 3, 4, 4),))
    assert {target for _, target in mutations(program)} == {
        "norm.num_batches_tracked",
        *(f"{layer}.{name}" for layer in ("norm", "instances") for name in ("running_mean", "running_var")),
    }
    program.validate()


def test_batch_norm_of_nothing_keeps_its_statistics() -> None:
    def program(self: Holder, x: torch.Tensor, weight: torch.Tensor) -> Any:
        return F.batch_norm(x, self.state, torch.ones(6), weight, weight, training=True), self.state

    check(program, lambda make: make.floats(0, 6), row)


def test_statistics_may_be_views() -> None:
    def program(self: Holder, x: torch.Tensor) -> Any:
        mean, variance = self.state.unbind(0)
        return F.batch_norm(x, mean, variance, training=True), variance

    check(program, matrix, buffer=lambda: torch.ones(2, 6))


# --- outputs ---------------------------------------------------------------------------------------------


def test_outputs_that_are_inputs_or_buffers() -> None:
    check(lambda self, x, y: (x, x, y.add_(1), y, self.state, self.state.add_(1)), matrix, row)


def test_outputs_that_are_views_of_written_inputs() -> None:
    def program(self: Holder, x: torch.Tensor) -> Any:
        before = x[1]
        items = x.unbind(1)
        before.add_(1)
        halves = x.split(2)
        return before, items[2], halves[1], x.view(-1), x.view(4, 6), x.t()[0], (before, before)

    check(program, matrix)
    check(program, lambda make: make.floats(8, 6)[::2][:, :].clone(memory_format=torch.contiguous_format))


def test_outputs_that_are_views_of_inputs_with_another_layout() -> None:
    def program(self: Holder, x: torch.Tensor) -> Any:
        view = x.permute(2, 0, 1).view(4, 6)
        x.copy_(x.contiguous() + 1)
        view.mul_(2)
        return view, x[0], view.view(-1)

    check(program, lambda make: make.floats(4, 2, 3).permute(1, 2, 0))


def test_outputs_that_are_views_of_inputs_with_gaps() -> None:
    def program(self: Holder, x: torch.Tensor) -> Any:
        x.add_(1)
        return x[0], x.view(2, 2, 6), x.t()

    check(program, lambda make: make.floats(4, 9)[:, 1:7])


def test_outputs_that_are_other_views_of_the_bits_of_inputs_with_gaps() -> None:
    def program(self: Holder, x: torch.Tensor) -> Any:
        column = x[:, 2].view(torch.int32)
        pairs = x.view(torch.float64)
        x.add_(1)
        return column, pairs, torch.view_as_complex(x.view(4, 3, 2))

    check(program, lambda make: make.floats(4, 10)[:, 2:8])


def test_outputs_that_share_memory_with_each_other() -> None:
    def program(self: Holder, x: torch.Tensor) -> Any:
        fresh = (x + 1).t()
        part = fresh[1]
        part.add_(1)
        flat = fresh.t().view(-1)
        flat[3:].mul_(2)
        part.sub_(1)
        return fresh, part, flat

    check(program, matrix)


def test_one_written_view_alone_is_no_view() -> None:
    program = tintype.export(lambda x: (x + 1)[0].mul_(2), (torch.ones(2, 3),))
    assert targets(program) == ["aten.add.Tensor", "aten.select.int", "aten.mul.Tensor"]


def test_a_buffer_whose_old_value_nobody_reads() -> None:
    check(lambda self, x: self.state.copy_(x).view(2, 3), row)


def test_geometry_in_place() -> None:
    def program(self: Holder, x: torch.Tensor) -> Any:
        fresh = x + 1
        other = fresh[1:]
        fresh.add_(1)
        fresh.t_().unsqueeze_(0)
        fresh[0, 1].mul_(2)
        return fresh, other, x.reshape(fresh.shape[2], -1)

    check(program, matrix)


# --- assigned buffers ------------------------------------------------------------------------------------


def _returns_the_old_one(self: Any, x: torch.Tensor) -> Any:
    old = self.state
    self.state = old * 2 + x
    old.add_(1)
    return old, self.state[1:]


def _exchanges_buffers(self: Any, x: torch.Tensor) -> Any:
    self.state, self.other = self.other, self.state
    self.state.add_(1)
    return x + self.state


def _writes_after_assigning(self: Any, x: torch.Tensor) -> Any:
    self.state = x.clone()
    view = self.state[2:]
    self.state.mul_(3)
    view.zero_()
    return view + 1


@pytest.mark.parametrize("program", [_returns_the_old_one, _exchanges_buffers, _writes_after_assigning])
def test_assigned_buffers(program: Callable[..., Any]) -> None:
    def model() -> Holder:
        holder = Holder(program)
        holder.register_buffer("other", torch.ones(6))
        return holder

    compare(model, lambda make: (make.floats(6),), shares=False)


def test_results_lie_in_memory_as_the_tensor_that_was_written_to() -> None:
    def state(x: torch.Tensor) -> torch.Tensor:
        kept = torch.zeros(2, 4, 3)
        kept.copy_(x.transpose(1, 2))
        return kept

    x = torch.randn(2, 3, 4)
    program = tintype.export(state, (x,))
    for module in (program.module(), program.run_decompositions().module()):
        assert torch.equal(module(x), state(x)) and module(x).stride() == state(x).stride()


# --- custom operators ------------------------------------------------------------------------------------


@torch.library.custom_op("tintype_functionalize::scale_", mutates_args=("x",))
def scale_(x: torch.Tensor, factor: float) -> None:
    x.mul_(factor)


@torch.library.custom_op("tintype_functionalize::count_", mutates_args=("x", "counter"))
def count_(x: torch.Tensor, y: torch.Tensor, counter: torch.Tensor | None = None) -> torch.Tensor:
    x.add_(y)
    if counter is not None:
        counter.add_(1)
    return x * 2


@count_.register_fake
def _(x: torch.Tensor, y: torch.Tensor, counter: torch.Tensor | None = None) -> torch.Tensor:
    return torch.empty_like(x)


def test_custom_operators_that_write() -> None:
    def program(self: Holder, x: torch.Tensor, y: torch.Tensor) -> Any:
        scale_(x[1], 3.0)
        scale_(x.t()[2:], 2.0)
        first = count_(y, x[0], self.state)
        second = count_(x[2], y)
        return first, second, x, self.state

    check(program, matrix, row)


def test_operators_without_a_functional_form_return_what_they_wrote_to() -> None:
    def program(self: Holder, x: torch.Tensor, y: torch.Tensor) -> Any:
        first = x.t()[1:].abs_().add_(1).polygamma_(1).add_(2)  # polygamma_ has its arguments in another order
        self.state.abs_().add_(1).polygamma_(2)
        return first, y.add_(1).polygamma_(1), self.state

    check(program, matrix, row)


WRITES_TO_PARTS = {
    "strided, one element": (4, lambda y, x: y.as_strided((1,), (1,)).add_(1)),
    "strided, some": (4, lambda y, x: y.as_strided((2, 1), (2, 2), 1).mul_(x[:2, None])),
    "strided, all": (4, lambda y, x: y.as_strided((2, 2), (1, 2)).copy_(x[None, :2])),
    "a slice": (4, lambda y, x: y[::2].mul_(x[:2])),
    "a slice of the last dimension": (4, lambda y, x: y.view(2, 2)[..., -1:].add_(x[0])),
    "an element": (4, lambda y, x: y[3].mul_(x[1])),
    "the diagonal": (4, lambda y, x: y.view(2, 2).diagonal().mul_(x[:2])),
    "a diagonal from the end": (4, lambda y, x: y.view(2, 2).diagonal(1, -1, -2).mul_(x[:1])),
    "windows": (4, lambda y, x: y.unfold(0, 2, 2).mul_(x[:2])),
    "a conjugate": (4, lambda y, x: y.conj()[1:].mul_(x[:3].conj())),
}


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
@pytest.mark.parametrize("size, write", WRITES_TO_PARTS.values(), ids=WRITES_TO_PARTS)
@pytest.mark.parametrize("decompose", [False, True])
def test_writes_to_parts_have_gradients(size: int, write: Any, dtype: torch.dtype, decompose: bool) -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        y = x[:size] * 3
        write(y, x)
        return y * x[:size]

    x = (torch.arange(1, 5) + (1j if dtype.is_complex else 0)).to(dtype).requires_grad_()
    program = tintype.export(model, (x.detach(),))
    module = (program.run_decompositions() if decompose else program).module()
    outcomes = []
    for function in (model, module):
        result = function(x)
        weights = torch.arange(1, result.numel() + 1).to(dtype)
        outcomes.append([result.detach(), *torch.autograd.grad((result * weights).sum().abs(), x)])
    torch.testing.assert_close(outcomes[1], outcomes[0])


DRAWS = {
    "normal": lambda x: x.normal_(1, 2),
    "bernoulli": lambda x: x.bernoulli_(0.5),
    "bernoulli by a tensor": lambda x: x.bernoulli_(torch.full((4,), 0.5)),
    "a transposed tensor": lambda x: x.reshape(2, 2).t().bernoulli_(0.5).reshape(4),
    "uniform": lambda x: x.uniform_(),
    "exponential": lambda x: x.exponential_(),
}


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
@pytest.mark.parametrize("decompose", [False, True])
def test_random_numbers_written_in_place_have_a_gradient_of_zero(draw: Any, decompose: bool) -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        y = x * 3
        return draw(y) * x + y

    program = tintype.export(model, (torch.ones(4),))
    module = (program.run_decompositions() if decompose else program).module()
    outcomes = []
    for function in (model, module):
        torch.manual_seed(3)
        x = torch.arange(4.0).requires_grad_()
        result = function(x)
        outcomes.append([result.detach(), *torch.autograd.grad(result.sum(), x)])
    torch.testing.assert_close(outcomes[1], outcomes[0])


def test_random_numbers_written_in_place() -> None:
    def program(x: torch.Tensor) -> Any:
        return x.normal_().add_(1), x[1:].normal_(2.0, 3.0)

    for module in (program, tintype.export(program, (torch.ones(4),)).module()):
        x = torch.zeros(4)
        torch.manual_seed(0)
        first, second = module(x)
        if module is program:
            expected = x.clone()
        assert torch.equal(x, expected) and torch.equal(first, x) and torch.equal(second, x[1:])
        assert first.data_ptr() == x.data_ptr() and second.data_ptr() == x[1:].data_ptr()


def drawn_into_slices(x: torch.Tensor) -> Any:
    y = x * 2
    y[:, ::2].normal_(1.0, 3.0)
    y[:, 1].normal_()
    return y


def drawn_into_a_turned_slice(x: torch.Tensor) -> Any:
    y = torch.zeros(6, 10, 4)
    y.permute(2, 0, 1)[1:3, :, ::3].normal_(std=0.5, mean=-1)
    return y + x.sum()


def drawn_into_few(x: torch.Tensor) -> Any:
    y = x * 2
    y[:3, ::2].normal_()
    return y


def drawn_into_a_diagonal(x: torch.Tensor) -> Any:
    y = x @ x.t()
    return y.diagonal().normal_() * 2, y


def drawn_into_no_gaps(x: torch.Tensor) -> Any:
    y = x * 2
    y[3:].normal_()
    y[:9].t().normal_()
    return y


def drawn_with_a_gradient(x: torch.Tensor) -> Any:
    y = x * 2
    z = y[:, :3]
    z.normal_()
    return y * x


GAPS = [
    drawn_into_slices, drawn_into_a_turned_slice, drawn_into_few, drawn_into_a_diagonal, drawn_into_no_gaps,
    drawn_with_a_gradient,
]  # fmt: skip


@pytest.mark.parametrize("function", GAPS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("sizes", [None, ({0: tintype.Dim.AUTO},), ({0: tintype.Dim.AUTO, 1: tintype.Dim.AUTO},)])
def test_normal_numbers_are_drawn_into_gaps_as_in_eager_mode(function: Any, dtype: torch.dtype, sizes: Any) -> None:
    """Which draws them one by one there, and several at once where 16 elements and more are contiguous."""
    program = tintype.export(function, (torch.ones(20, 6, dtype=dtype),), dynamic_shapes=sizes)
    for module in (program.module(), program.run_decompositions().module()):
        for rows in (20,) if sizes is None else (20, 17, 40):
            outcomes = []
            for called in (function, module):
                torch.manual_seed(5)
                x = torch.linspace(-1, 1, rows * 6, dtype=dtype).reshape(rows, 6).requires_grad_()
                results = tree.tree_leaves(called(x))
                total = sum((result * result).sum() for result in results)
                gradient = torch.autograd.grad(total, x, allow_unused=True) if total.requires_grad else ()
                outcomes.append([*results, *gradient, torch.rand(1)])
            torch.testing.assert_close(outcomes[1], outcomes[0])


def test_copies_that_a_custom_operator_writes_to_keep_their_layout() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        y = x.t() + 1
        scale_(y, 3.0)
        return y.view(-1) if y.is_contiguous() else y.t().view(-1)

    module = tintype.export(program, (torch.ones(2, 3),)).module()
    x = torch.randn(2, 3)
    assert torch.equal(module(x), program(x))


def test_custom_operators_become_auto_functionalized() -> None:
    program = tintype.export(lambda x: scale_(x[0], 3.0), (torch.ones(2, 3),))
    assert any("auto_functionalized" in target for target in targets(program))
    assert mutations(program) == [(OutputKind.USER_INPUT_MUTATION, "x")]
    program.validate()


# --- what is refused -------------------------------------------------------------------------------------


def refused(function: Callable[..., Any], *inputs: torch.Tensor) -> str:
    """The message of the error that exporting a function raises."""
    with pytest.raises(CaptureError) as caught:
        tintype.export(function, inputs)
    return str(caught.value)


def test_inputs_that_share_memory_are_refused_if_written() -> None:
    x = torch.ones(2, 3)
    assert "share memory" in refused(lambda a, b: a.add_(1) + b, x, x[0])
    tintype.export(lambda a, b: a + b, (x, x[0]))


def test_an_input_whose_elements_share_memory_is_refused_if_written() -> None:
    assert "share memory with each other" in refused(lambda x: x.zero_(), torch.ones(1, 3).expand(2, 3))


def test_overlapping_writes_are_refused() -> None:
    assert "share memory with each other" in refused(lambda x: x.unfold(0, 2, 1).add_(1), torch.ones(4))
    assert "several tensors that share memory" in refused(
        lambda x: torch._foreach_add_([x, x[0]], 1), torch.ones(2, 3)
    )


UNSAFE_PARTS: dict[str, Callable[[torch.Tensor], Any]] = {
    "chunk": lambda x: torch.unsafe_chunk(x, 2),
    "split": lambda x: torch.unsafe_split(x, 2),
    "split_with_sizes": lambda x: torch.unsafe_split_with_sizes(x, [2, 2]),
}


@pytest.mark.parametrize("name", UNSAFE_PARTS)
def test_a_broken_promise_not_to_write_to_unsafe_parts_is_refused(name: str) -> None:
    """They are views in eager mode and tensors of their own in a program."""
    parts = UNSAFE_PARTS[name]

    def part_is_written(x: torch.Tensor) -> torch.Tensor:
        x = x * 2
        parts(x)[0].add_(1)
        return x

    def whole_is_written(x: torch.Tensor) -> torch.Tensor:
        x = x * 2
        part = parts(x)[0]
        x.add_(1)
        return part

    assert "frozen storage" in refused(part_is_written, torch.ones(4))
    assert "frozen storage" in refused(lambda x: parts(x)[0].add_(1), torch.ones(4))
    assert "writes to its source afterwards" in refused(whole_is_written, torch.ones(4))


@pytest.mark.parametrize("name", UNSAFE_PARTS)
def test_a_write_to_unsafe_parts_that_nobody_sees(name: str) -> None:
    check(lambda self, x: UNSAFE_PARTS[name](x * 2)[0].add_(1), lambda make: make.floats(4))


def test_writes_after_a_refused_one_are_looked_at_too() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        windows = x.unfold(0, 2, 1)
        windows.add_(1).mul_(2)
        return windows

    message = refused(program, torch.ones(4))
    assert "aten.add_" in message and "aten.mul_" in message


def test_as_strided_beyond_a_written_tensor_is_refused() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return x.as_strided([2], [1], 3)

    assert "as_strided()" in refused(program, torch.ones(8)[:4:2])


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("resize_", lambda x: x.resize_(7)),
        ("set_", lambda x: x.set_(torch.ones(3))),
        ("t_", lambda x: x.t_()),
        ("t_", lambda x: x.add_(1).t_()),
        ("transpose_", lambda x: x.to(x.dtype).transpose_(0, 1)),
    ],
)
def test_changes_of_what_a_tensor_is_are_refused_by_name(name: str, change: Callable[[Any], Any]) -> None:
    message = refused(change, torch.ones(2, 3))
    assert f"aten.{name}" in message and "What to do" in message and "test_functionalize.py" in message


def test_a_resize_that_changes_nothing() -> None:
    check(lambda self, x: x.resize_(4, 6).add_(1), matrix)


def test_several_problems_are_reported_together() -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.to(torch.float32).add_(1)
        y.unfold(0, 2, 1).mul_(2)
        return x + y

    with pytest.raises(CaptureReport) as caught:
        tintype.export(program, (torch.ones(4), torch.ones(4)))
    assert [type(problem) for problem in caught.value.problems] == [MutationError, MutationError]
    assert "1. [mutation] cannot mutate" in str(caught.value) and "2. [mutation] aten.mul_" in str(caught.value)


def test_a_model_is_as_it_was_after_a_refusal() -> None:
    model = Holder(lambda self, x: self.state.add_(1).unfold(0, 2, 1).add_(x))
    before = model.state.clone()
    with pytest.raises(MutationError):
        tintype.export(model, (torch.ones(2),))
    assert torch.equal(model.state, before)


# --- growth ----------------------------------------------------------------------------------------------


def _in_place(count: int) -> Callable[[torch.Tensor], torch.Tensor]:
    def program(x: torch.Tensor) -> torch.Tensor:
        for _ in range(count):
            x.add_(1)
        return x

    return program


def _through_views(count: int) -> Callable[[torch.Tensor], torch.Tensor]:
    def program(x: torch.Tensor) -> torch.Tensor:
        views = [x[i % 4] for i in range(count)]
        for view in views:
            view.add_(1)
        return x + views[0]

    return program


@pytest.mark.parametrize("program", [_in_place, _through_views])
def test_time_grows_with_the_number_of_writes(program: Callable[[int], Any]) -> None:
    def seconds(count: int) -> float:
        function, best = program(count), float("inf")
        for _ in range(3):
            captured = tintype.export_for_training(function, (torch.ones(4, 6),))
            start = time.perf_counter()
            captured.run_decompositions({})
            best = min(best, time.perf_counter() - start)
        return best

    seconds(10)
    assert seconds(1600) < 16 * seconds(200)  # eight times, and room for a busy machine


def test_long_chains_of_views() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        view = x
        for _ in range(600):
            view = view.t()
        x.add_(1)
        view.mul_(2)
        return view

    x = torch.ones(2, 3)
    assert tintype.export(program, (x,)).module()(x).data_ptr() == x.data_ptr()
    assert x.tolist() == [[4, 4, 4], [4, 4, 4]]


def test_an_input_is_no_constant_whatever_its_name() -> None:
    """The copy of a constant is dropped where nobody writes to it; that of an input is the caller's."""

    def copied(c_x: torch.Tensor) -> torch.Tensor:
        return torch.ops.aten.lift_fresh_copy(c_x)

    x = torch.ones(3)
    result = tintype.export(copied, (x,)).module()(x)
    assert result.data_ptr() != x.data_ptr()


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.cpu().reshape(-1).detach().add_(1),
        lambda x: (y := x * 2, y.cpu().reshape(-1).add_(1), y * 1)[-1],
        lambda x: (x.float().contiguous().view(-1).add_(1), x * 1)[-1],
    ],
)
def test_a_conversion_in_front_of_what_may_be_a_view_is_its_argument(function: Any) -> None:
    """Where the example's layout makes a copy and another one a view, the program is for the example's."""
    program = tintype.export(function, (torch.randn(3, 4).t(),))
    given, same = (torch.randn(3, 4).t().clone(memory_format=torch.preserve_format) for _ in range(2))
    same.copy_(given)
    torch.testing.assert_close(program.module()(given), function(same))
    torch.testing.assert_close(given, same)
    with pytest.raises(tintype.TintypeError, match="strides"):
        program.module()(torch.randn(4, 3))
