"""Gradients of control-flow operators in joint graphs, against eager autograd."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tintype

X = torch.linspace(-1.0, 2.0, 6).reshape(3, 2)


class Model(torch.nn.Module):
    """A loss of what a function of an input and a parameter returns."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function
        self.weight = torch.nn.Parameter(torch.tensor([0.5, -0.3]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        results = torch.utils._pytree.tree_leaves(self.function(x, self.weight))
        return sum((result * result).sum() for result in results if result.dtype.is_floating_point)  # type: ignore[return-value]


def branches(x: torch.Tensor, w: torch.Tensor) -> Any:
    return tintype.cond(x.sum() > 0, lambda x: (x.sin() * w, x), lambda x: (x * x, x), (x,))


def nested_branches(x: torch.Tensor, w: torch.Tensor) -> Any:
    def outer() -> Any:
        return tintype.cond(x.sum() > 5, lambda: x * w, lambda: x * w * w)

    return tintype.cond(x.sum() > 0, outer, lambda: x / (1 + w * w))


def rows(x: torch.Tensor, w: torch.Tensor) -> Any:
    return tintype.map(lambda row: (row * w).tanh(), x)


def rows_without_closure(x: torch.Tensor, w: torch.Tensor) -> Any:
    return tintype.map(lambda row: row.exp(), x) * w


def steps(x: torch.Tensor, w: torch.Tensor) -> Any:
    def step(carry: torch.Tensor, row: torch.Tensor) -> Any:
        carry = (carry * w + row).tanh()
        return carry, carry * row

    return tintype.scan(step, x[0] * 2, x)


def steps_backwards(x: torch.Tensor, w: torch.Tensor) -> Any:
    return tintype.scan(lambda c, r: (c + r * w.sum(), c * w.prod()), torch.ones(3), x, dim=1, reverse=True)


def loop(x: torch.Tensor, w: torch.Tensor) -> Any:
    return tintype.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y * w + x), (torch.tensor(0), x))


def loop_without_steps(x: torch.Tensor, w: torch.Tensor) -> Any:
    return tintype.while_loop(lambda i, y: i < 0, lambda i, y: (i + 1, y * w), (torch.tensor(0), x))


def loop_as_data_say(x: torch.Tensor, w: torch.Tensor) -> Any:
    (y,) = tintype.while_loop(lambda y: y.abs().sum() < 100, lambda y: (y * 2 + w,), (x,))
    return y


def prefixes(x: torch.Tensor, w: torch.Tensor) -> Any:
    return tintype.associative_scan(lambda a, b: a * b + 0 * w, x * w, 0)


def everything(x: torch.Tensor, w: torch.Tensor) -> Any:
    def step(carry: torch.Tensor, row: torch.Tensor) -> Any:
        carry = tintype.cond(row.sum() > 0, lambda: carry * w + row, lambda: carry - row)
        (carry,) = tintype.while_loop(lambda c: c.abs().sum() > 2, lambda c: (c / 2,), (carry,))
        return carry, tintype.map(lambda e: e * carry.sum(), row)

    return tintype.scan(step, torch.ones(2), x)


def written_to_afterwards(x: torch.Tensor, w: torch.Tensor) -> Any:
    first, second = x * 1, w * 1
    chosen = tintype.cond(first.sum() > 0, lambda: (first - second).abs(), lambda: first * 2)
    mapped = tintype.map(lambda row: (row + second).abs(), first)
    carried, rows = tintype.scan(lambda c, r: ((c + r).abs(), (c - second).abs()), first[0], first)
    first[:, :1] -= 9
    second.neg_()
    return chosen, mapped, carried, rows, first * second


FUNCTIONS = [
    branches, nested_branches, rows, rows_without_closure, steps, steps_backwards, loop, loop_without_steps,
    loop_as_data_say, prefixes, everything, written_to_afterwards,
]  # fmt: skip


@pytest.mark.parametrize("way", ["model", "program", "decomposed", "retraced"])
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_gradients(function: Any, way: str) -> None:
    model = Model(function)
    x = X.clone().requires_grad_()
    if way == "program":
        joint = tintype.export_joint(tintype.export(model, (x,)))
    else:
        joint = tintype.export_joint(model, (x,))
    if way == "decomposed":
        joint = joint.run_decompositions()
    joint.validate()
    module = joint.module()
    for example in (X, -X, X * 3):
        x = example.clone().requires_grad_()
        expected = model(x)
        by_input, by_weight = torch.autograd.grad(expected, (x, model.weight), materialize_grads=True)
        if way == "retraced":
            module = tintype.export(joint.module(), (x,)).module()
        loss, parameters, inputs = module(x)
        torch.testing.assert_close(loss, expected)
        torch.testing.assert_close(parameters["weight"], by_weight)
        torch.testing.assert_close(inputs["x"], by_input)


def test_gradients_with_varying_sizes() -> None:
    model = Model(steps)
    shapes = {"x": {0: tintype.Dim("n")}}
    module = tintype.export_joint(model, (X.clone().requires_grad_(),), dynamic_shapes=shapes).module()
    for example in (X, torch.ones(5, 2), torch.ones(1, 2)):
        x = example.clone().requires_grad_()
        expected = torch.autograd.grad(model(x), (x, model.weight))
        _, parameters, inputs = module(x)
        torch.testing.assert_close((inputs["x"], parameters["weight"]), expected)


def test_random_numbers_in_a_branch_have_no_gradient() -> None:
    model = Model(lambda x, w: tintype.cond(x.sum() > 0, lambda: torch.rand_like(x) * w, lambda: x * w))
    with pytest.raises(tintype.CaptureError, match="random"):
        tintype.export_joint(model, (X,))


def test_a_number_carried_by_a_loop_has_no_gradient() -> None:
    model = Model(lambda x, w: tintype.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y * w), (0, x))[1])
    with pytest.raises(tintype.CaptureError, match="carries a number"):
        tintype.export_joint(model, (X,))


@pytest.mark.parametrize("function", [rows, lambda x, w: tintype.scan(lambda c, r: (c + r * w, c * w), X[0], x)])
def test_of_no_rows_nothing_has_a_gradient(function: Any) -> None:
    compiled = tintype.aot.function(function)
    for count in (0, 3):
        x, w = torch.ones(count, 2, requires_grad=True), torch.ones(2, requires_grad=True)
        got, expected = (torch.utils._pytree.tree_leaves(called(x, w)) for called in (compiled, function))
        assert [value.requires_grad for value in got] == [value.requires_grad for value in expected]
        torch.testing.assert_close(got, expected)


def test_an_associative_scan_of_nothing_has_gradients() -> None:
    x = torch.ones(0, 3, requires_grad=True)
    result = tintype.aot.function(lambda x: tintype.associative_scan(torch.add, x * 2, 0))(x)
    assert result.shape == (0, 3)
    result.sum().backward()
    assert x.grad is not None and x.grad.shape == (0, 3)


def test_a_gradient_that_rests_on_what_a_branch_decided_is_refused_by_name() -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        product = lambda x: torch.einsum("ij,jk->ik", x, x) * 1  # noqa: E731
        return tintype.cond(x.sum() < 9, product, lambda x: x.clone(), (x,)).sum() + x.sum()

    with pytest.raises(tintype.TintypeError, match=r"the gradient of a function .* einsum"):
        tintype.export_joint(model, (torch.randn(1, 0, requires_grad=True),), dynamic_shapes="auto")


# --- geometry that changes afterwards ----------------------------------------------------------------------


def turned_rows(x: torch.Tensor, w: torch.Tensor) -> Any:
    y = x * w
    result = tintype.map(lambda row: row.exp(), y)
    y.t_()
    return result


def turned_result(x: torch.Tensor, w: torch.Tensor) -> Any:
    result = tintype.map(lambda row: (row * w).sin(), x)
    result.t_()
    return result * 2


def turned_steps(x: torch.Tensor, w: torch.Tensor) -> Any:
    y = x * w
    begin = y[0] * 3
    last, rows = tintype.scan(lambda carry, row: (carry + row, (carry + row).exp()), begin, y)
    y.t_()
    begin.unsqueeze_(0)
    rows.t_()
    last.unsqueeze_(1)
    return last, rows


def turned_operand_of_a_branch(x: torch.Tensor, w: torch.Tensor) -> Any:
    y = x * w
    result = tintype.cond(x.sum() > -100, lambda y: y.exp() + y, lambda y: y.cos(), (y,))
    y.t_()
    result.unsqueeze_(0)
    return result, y


def turned_loop(x: torch.Tensor, w: torch.Tensor) -> Any:
    y = x * w
    _, result = tintype.while_loop(lambda i, y: i < 2, lambda i, y: (i + 1, (y + 1).sin()), (torch.tensor(0), y))
    y.t_()
    result.t_()
    return result, y


def turned_operands_of_a_combination(x: torch.Tensor, w: torch.Tensor) -> Any:
    y = x * w
    result = tintype.associative_scan(lambda a, b: a + b, y, 0)
    y.t_()
    return result


def turned_between_two_calls(x: torch.Tensor, w: torch.Tensor) -> Any:
    y = x * w
    first = tintype.map(lambda row: row.exp(), y)
    y.t_()
    second = tintype.map(lambda row: row.clone(), y)
    y.t_()
    y.unsqueeze_(0)
    return first, second


TURNED = [
    turned_rows, turned_result, turned_steps, turned_operand_of_a_branch, turned_loop,
    turned_operands_of_a_combination, turned_between_two_calls,
]  # fmt: skip


@pytest.mark.parametrize("sizes", [(3, 2), (2, 2)])
@pytest.mark.parametrize("function", TURNED)
def test_a_gradient_goes_back_through_what_had_another_geometry(function: Any, sizes: tuple[int, int]) -> None:
    """What a call was given, or returned, may get other sizes and strides later on, each time it is used anew."""
    x = torch.randn(sizes)
    for shapes in (None, ({0: tintype.Dim.AUTO},)):
        joint = tintype.export_joint(Model(function), (x,), dynamic_shapes=shapes).module()
        eager, given = Model(function), x.clone().requires_grad_()
        loss = eager(given)
        loss.backward()
        result, parameters, inputs = tintype.export_joint(
            Model(function), (x.clone().requires_grad_(),), dynamic_shapes=shapes
        ).module()(x)
        torch.testing.assert_close(result, loss.detach())
        torch.testing.assert_close(parameters["weight"], eager.weight.grad)
        torch.testing.assert_close(inputs["x"], given.grad)
        torch.testing.assert_close(joint(x)[1]["weight"], eager.weight.grad)


class _Apart(torch.nn.Module):
    """Regions without gradients inside of functions that operators take."""

    def __init__(self, kind):
        super().__init__()
        self.kind = kind
        self.a, self.b = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)

    def forward(self, x):
        return getattr(self, self.kind)(self.a(x)).pow(2).mean()

    def arm(self, h):
        def apart(h):
            with torch.no_grad():
                weight = self.b(h)
            return h * weight

        return self.a(tintype.cond(h.sum() > 0, apart, self.b, (h,)))

    def whole_arm(self, h):
        @torch.no_grad()
        def apart(h):
            return self.b(h)

        return self.a(tintype.cond(h.sum() > 0, apart, self.b, (h,))) + h

    def rows(self, h):
        def step(carry, row):
            with torch.no_grad():
                gate = self.b(row)
            return carry * 0.5 + self.a(row) * gate, carry * 1.0

        return tintype.scan(step, torch.zeros(4), h)[0]

    def loop(self, h):
        def body(h):
            with torch.no_grad():
                scale = h.abs().max()
            return (h / (scale + 1),)

        return self.b(tintype.while_loop(lambda h: h.norm() > 1, body, (h,))[0])


@pytest.mark.parametrize("kind", ["arm", "whole_arm", "rows", "loop"])
def test_regions_without_gradients_inside_of_functions_are_kept(kind):
    torch.manual_seed(0)
    model, x = _Apart(kind), torch.randn(3, 4)
    joint = tintype.export_joint(model, (x,)).module()
    for given in (x, -x, x * 9):
        model.zero_grad()
        model(given).backward()
        gradients = joint(given)[1]
        for name, parameter in model.named_parameters():
            expected = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            found = gradients.get(name)
            torch.testing.assert_close(torch.zeros_like(parameter) if found is None else found, expected)


class _Asking(torch.nn.Module):
    """A loss that asks which of its parts have a history."""

    def forward(self, x):
        result = tintype.cond((x > 0.5).any(), torch.clone, torch.clone, (x,))
        return sum(part.sum() for part in (result, x) if part.requires_grad)


def test_a_loss_asks_whether_a_result_of_a_branch_has_a_history_whatever_its_layout():
    x = torch.randn(3, 3, 3, 3).to(memory_format=torch.channels_last).requires_grad_()
    (expected,) = torch.autograd.grad(_Asking()(x), (x,))
    (found,) = tintype.export_joint(_Asking(), (x,)).module()(x)[2].values()
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("reshaped", [lambda x: x.flatten(0), lambda x: x.reshape(-1), lambda x: x.contiguous()])
def test_branches_reshape_and_write_to_what_is_around_them(reshaped):
    """It has no elements, so that nothing is written, and the branch has a node of its own for it."""

    def function(x, y):
        def written(y):
            reshaped(x)
            x.expand(*x.shape).add_(1)
            return y * 3

        x = x * 1
        return tintype.cond(y > 0.5, torch.sin, written, (y,))

    joint = tintype.export_joint(function, (torch.ones(0), torch.tensor(0.0, requires_grad=True))).module()
    for value in (0.0, 1.0):
        y = torch.tensor(value, requires_grad=True)
        expected = function(torch.ones(0), y)
        result, *_, gradient = torch.utils._pytree.tree_leaves(joint(torch.ones(0), y))
        assert result.item() == expected.item()
        torch.testing.assert_close(gradient, torch.autograd.grad(expected, y)[0])


class Seeing(torch.nn.Module):
    """A loss of a function of a product, the model and whether the data say so, which may write to a buffer."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function
        self.weight = torch.nn.Parameter(torch.ones(3))
        self.register_buffer("seen", torch.zeros(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x * self.weight
        return self.function(self, y, x.sum() > 0)


def notes_what_is_detached(model: Any, y: torch.Tensor, holds: torch.Tensor) -> torch.Tensor:
    if holds:
        model.seen.copy_(y.detach() * 2)
    return (y * model.seen).sum()


def notes_it_in_a_branch_of_a_branch(model: Any, y: torch.Tensor, holds: torch.Tensor) -> torch.Tensor:
    if holds:
        least = y.detach().min()
        if least > 1:
            model.seen.add_(least)
        else:
            model.seen.sub_(1)
    return (y * (model.seen + 1)).sum()


@pytest.mark.parametrize("function", [notes_what_is_detached, notes_it_in_a_branch_of_a_branch])
def test_branches_note_what_has_no_history(function: Any) -> None:
    """Observers do: what goes into the buffer has no gradient, and nobody asks the branch for one."""
    for x in (torch.tensor([1.0, 2.0, 3.0]), torch.tensor([2.0, 3.0, 4.0]), torch.tensor([-1.0, -2.0, -3.0])):
        model = Seeing(function)
        module = tintype.export_joint(Seeing(function), (torch.tensor([1.0, 2.0, 3.0]),)).module()
        loss, gradients, *_ = module(x)
        expected = model(x)
        expected.backward()
        torch.testing.assert_close(loss, expected)
        torch.testing.assert_close(gradients["weight"], model.weight.grad)
        torch.testing.assert_close(module.seen, model.seen)


def writes_through_detach(model: Any, y: torch.Tensor, holds: torch.Tensor) -> torch.Tensor:
    if holds:
        y.detach().mul_(3)
    return (y * 2).sum()


def writes_through_a_view_of_it(model: Any, y: torch.Tensor, holds: torch.Tensor) -> torch.Tensor:
    z = y * 1
    if holds:
        z.detach().view(3).copy_(y.detach())
    return (z * z).sum()


def notes_what_has_a_history(model: Any, y: torch.Tensor, holds: torch.Tensor) -> torch.Tensor:
    if holds:
        model.seen.copy_(y)
    return (y * model.seen.detach()).sum()


@pytest.mark.parametrize("function", [writes_through_detach, writes_through_a_view_of_it, notes_what_has_a_history])
def test_branches_that_write_where_a_gradient_goes_are_refused(function: Any) -> None:
    with pytest.raises(tintype.CaptureError, match="has no gradient in a joint graph"):
        tintype.export_joint(Seeing(function), (torch.tensor([1.0, 2.0, 3.0]),))
