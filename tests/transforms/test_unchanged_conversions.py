"""Conversions that change nothing (float(), to(), type_as(), as_tensor()) alias their argument in eager mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import tintype
from tests.transforms.comparison import compare
from tests.transforms.mutation_programs import Values
from tests.transforms.test_functionalize import Holder, check, matrix, refused, row, targets

CONVERSIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "float": lambda t: t.float(),
    "to dtype": lambda t: t.to(torch.float32),
    "to device": lambda t: t.to("cpu"),
    "to device and dtype": lambda t: t.to(torch.device("cpu"), torch.float32),
    "to another tensor": lambda t: t.to(torch.ones(1)),
    "to its own dtype": lambda t: t.to(t.dtype),
    "to a memory format": lambda t: t.to(memory_format=torch.preserve_format),
    "cpu": lambda t: t.cpu(),
    "type": lambda t: t.type(torch.float32),
    "type_as": lambda t: t.type_as(torch.ones(1)),
    "as_tensor": lambda t: torch.as_tensor(t),
    "as_tensor dtype": lambda t: torch.as_tensor(t, dtype=torch.float32, device="cpu"),
    "asarray": lambda t: torch.asarray(t, dtype=torch.float32),
    "one after the other": lambda t: t.float().cpu().to(t.dtype),
    "data": lambda t: t.data.float(),
    "detached": lambda t: t.float().detach(),
    # neighbours that are copies
    "copy": lambda t: t.to(torch.float32, copy=True),
    "there and back": lambda t: t.double().float(),
}

# (conversion, buffer, input) -> result; the value is an intermediate one, a view with gaps, or a buffer
WRITES: dict[str, Callable[[Any, torch.Tensor, torch.Tensor], Any]] = {
    "to the result": lambda c, b, x: (lambda v: (lambda y: (y.add_(1), v * 1, y * 2))(c(v)))(x * 2),
    "to the argument": lambda c, b, x: (lambda v: (lambda y: (v.mul_(3), y * 1))(c(v)))(x * 2),
    "to a view of the result": lambda c, b, x: (lambda v: (lambda y: (y[1].add_(1), v))(c(v)))(x * 2),
    "to a view of the argument": lambda c, b, x: (lambda v: (lambda y: (v[:, 2:].zero_(), y.t() * 1))(c(v)))(x * 2),
    "with gaps": lambda c, b, x: (lambda v: (lambda y: (y.add_(1), v * 1))(c(v[:, ::2])))(x * 2),
    "transposed": lambda c, b, x: (lambda v: (lambda y: (y[0].add_(1), v * 1))(c(v.t())))(x * 2),
    "several": lambda c, b, x: (lambda v: (lambda y, z: (y.add_(1), z.mul_(2), v * 1))(c(v), c(v)))(x * 2),
    "out": lambda c, b, x: (lambda v: (torch.add(x, 1, out=c(v)), v * 1))(x * 2),
    "to the buffer": lambda c, b, x: (c(b).add_(1), x + b),
    "to the buffer, read converted": lambda c, b, x: (lambda y: (b.add_(1), x + y))(c(b)),
    "to the input, read converted": lambda c, b, x: (lambda y: (x.add_(1), y * 2))(c(x)),
    "to nothing": lambda c, b, x: (lambda v: (c(v) + c(b), v * 1))(x * 2),
}


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("conversion", CONVERSIONS)
def test_writes_show_where_eager_mode_shows_them(conversion: str, write: str) -> None:
    convert, function = CONVERSIONS[conversion], WRITES[write]

    def with_copies(tensor: torch.Tensor) -> torch.Tensor:
        return convert(tensor).clone()

    compare(
        lambda: Holder(lambda self, x: function(convert, self.state, x)),
        lambda make: (matrix(make),),
        lambda: Holder(lambda self, x: function(with_copies, self.state, x)),
    )


def test_in_the_training_stage_a_write_goes_through_to_an_input() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        y = x.to(torch.float32)
        y.add_(1)
        return y * x

    exported = tintype.export_for_training(program, (torch.ones(3),))
    assert targets(exported) == ["aten.add_.Tensor", "aten.mul.Tensor"]
    for module in (exported.module(), exported.run_decompositions().module()):
        x = torch.full((3,), 2.0)
        assert module(x).tolist() == [9, 9, 9] and x.tolist() == [3, 3, 3]


def test_in_the_training_stage_a_write_shows_in_the_conversion_of_an_input_that_overlaps() -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        same = x.float()
        y[0].add_(1)
        return same

    module = tintype.export_for_training(program, (torch.zeros(3), torch.zeros(3))).module()
    memory = torch.zeros(4)
    assert module(memory[:3], memory[1:]).tolist() == [0, 1, 0]


def test_in_the_training_stage_a_conversion_of_what_nobody_writes_to_stays() -> None:
    exported = tintype.export_for_training(lambda x, y: x.float() + y.add(1), (torch.zeros(3), torch.zeros(3)))
    assert targets(exported) == ["aten._to_copy.default", "aten.add.Tensor", "aten.add.Tensor"]


def test_a_write_to_an_input_through_a_conversion_is_refused() -> None:
    message = refused(lambda x: x.to(torch.float32).add_(1), torch.ones(2))
    assert "cannot mutate tensors with frozen storage" in message and "test_unchanged_conversions.py" in message
    assert "x.clone()" in message


def test_statistics_of_a_batch_in_a_conversion() -> None:
    def program(self: Any, x: torch.Tensor) -> Any:
        mean = self.state * 2
        return F.batch_norm(x, mean.float(), torch.ones(6), training=True), mean

    check(program, matrix)

    def given(x: torch.Tensor, mean: torch.Tensor) -> torch.Tensor:
        return F.batch_norm(x, mean.float(), torch.ones(3), training=True)

    assert "frozen storage" in refused(given, torch.ones(2, 3), torch.ones(3))


def test_memory_looked_at_through_a_conversion() -> None:
    check(lambda self, x: (x * 2)[1:].float().as_strided((2, 2), (6, 1), 3), matrix)
    check(lambda self, x: (x * 2).float()[1].as_strided((3,), (2,)), matrix)


def test_the_layout_is_that_of_the_argument() -> None:
    def program(self: Any, x: torch.Tensor) -> torch.Tensor:
        part = (x * 2)[:, 1:3].float()
        return part * 2 if part.is_contiguous() else part * float(part.stride(0))

    check(program, matrix)


def test_a_buffer_that_is_replaced_after_its_conversion() -> None:
    def program(self: Any, x: torch.Tensor) -> Any:
        old = self.state.float()
        self.state = self.state + x
        return old * 2, self.state * 3

    compare(lambda: Holder(program), lambda make: (row(make),), shares=False)


def test_inside_of_branches() -> None:
    def writes(x: torch.Tensor) -> torch.Tensor:
        x.float().add_(1)
        return x * 2

    def program(self: Any, x: torch.Tensor) -> Any:
        value = x * 2
        seen = value.cpu()
        return tintype.cond(x.sum() > 0, writes, lambda v: v * 3, (value,)), seen * 1

    compare(lambda: Holder(program), lambda make: (matrix(make),), seeds=(0, 1, 2))


def test_a_gradient_goes_through_a_conversion_under_no_grad() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            same = x.float()
        return (same * 2).sum()

    x = torch.ones(3, requires_grad=True)
    for exported in (
        tintype.export(program, (x,)),
        tintype.export_for_training(program, (x,)),
        tintype.export(program, (x,)).run_decompositions(),
    ):
        (gradient,) = torch.autograd.grad(exported.module()(x), x)
        assert gradient.tolist() == [2, 2, 2]


def test_geometry_changed_in_place_is_refused() -> None:
    def through_result(x: torch.Tensor) -> Any:
        value = x * 2
        value.float().t_()
        return value

    def through_argument(x: torch.Tensor) -> Any:
        value = x * 2
        same = value.float()
        value.t_()
        return same

    for program in (through_result, through_argument):
        assert "changes the size or strides" in refused(program, torch.ones(2, 3))


def test_nobody_writes_and_a_copy_stays() -> None:
    program = tintype.export(lambda x: x.to("cpu") + x.float(), (torch.ones(3),))
    assert targets(program) == ["aten._to_copy.default", "aten._to_copy.default", "aten.add.Tensor"]
    device = program.graph.find_nodes(op="call_function", target=torch.ops.aten._to_copy.default)[0]
    assert device.kwargs["device"] == torch.device("cpu")


def test_a_compiled_function_aliases_as_eager_mode_does() -> None:
    def program(x: torch.Tensor) -> Any:
        value = x * 2
        same = value.float()
        same.add_(1)
        return value, same

    value, same = tintype.aot.function(program)(torch.ones(3))
    assert value.tolist() == same.tolist() == [3, 3, 3]
    assert value.data_ptr() == same.data_ptr()


def test_other_sizes() -> None:
    def program(x: torch.Tensor) -> Any:
        value = x * 2
        same = value[1:].float()
        same += 1
        return value

    exported = tintype.export(program, (torch.ones(3, 2),), dynamic_shapes=({0: tintype.Dim("n")},))
    for size in (1, 2, 5):
        x = Values(size).floats(size, 2)
        torch.testing.assert_close(exported.module()(x), program(x))


# --- branches that return what they were given ---------------------------------------------------------------


def _chosen(x: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    return tintype.cond(x.sum() > 0, lambda v: v, lambda v: v + 1, (value,))


def test_a_branch_that_returns_an_operand_that_nobody_sees_afterwards() -> None:
    def program(self: Any, x: torch.Tensor) -> torch.Tensor:
        result = _chosen(x, x * 2)
        result += 1
        result[0].mul_(3)
        return result

    compare(lambda: Holder(program), lambda make: (matrix(make),), seeds=(0, 1, 2, 3))


@pytest.mark.parametrize("seen", ["the operand", "a view of it", "another result", "an input"])
def test_a_branch_that_returns_an_operand_that_somebody_sees_afterwards(seen: str) -> None:
    def program(x: torch.Tensor) -> Any:
        value = x * 2
        row = value[0]
        result = _chosen(x, x if seen == "an input" else value)
        other = _chosen(x, value)
        result.add_(1)
        return {"the operand": value, "a view of it": row * 2, "another result": other, "an input": result}[seen]

    assert "frozen storage" in refused(program, torch.ones(2, 3))
    training = tintype.export_for_training(program, (torch.ones(2, 3),)).module()
    for sign in (1, -1):
        x, y = torch.full((2, 3), sign * 1.5), torch.full((2, 3), sign * 1.5)
        torch.testing.assert_close(training(x), program(y))
        torch.testing.assert_close(x, y)


def test_a_conversion_of_what_another_layout_makes_a_view_of() -> None:
    """Where contiguous() returns its argument, so does the conversion, and the write is seen in it."""

    def f(x: torch.Tensor) -> torch.Tensor:
        y = x.contiguous().to(x.dtype)
        x.zero_()
        return y

    example = torch.randn(6, 3).t()
    program = tintype.export(f, (example,), dynamic_shapes=({1: tintype.Dim("n")},)).module()
    x = torch.randn(4, 3).t()
    assert torch.equal(program(x.clone()), f(x.clone()))
    for other in (torch.randn(1, 3).t(), torch.randn(3, 4)):
        with pytest.raises(RuntimeError, match=r"strides|returns a view instead of a copy"):
            program(other)
