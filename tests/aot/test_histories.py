"""Gradients of compiled functions where autograd's graph is not what the memory suggests; and what is refused."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import tintype
from tests.aot.comparison import check
from tintype.errors import CaptureError, MutationError


class Reversal(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return -gradient


class ReversalOfView(Reversal):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.view_as(x)


class Transposition(Reversal):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.t()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient.t() * 3


class Row(Reversal):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x[0]

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return torch.stack([gradient * 5, gradient])


PROGRAMS: dict[str, Callable[[Any, torch.Tensor], Any]] = {
    "of an input": lambda f, x: f.apply(x),
    "of an intermediate": lambda f, x: f.apply(x * 2),
    "and more": lambda f, x: f.apply(x) * 2,
    "beside another": lambda f, x: (f.apply(x), x + 1),
    "twice": lambda f, x: (f.apply(x), f.apply(x)),
    "of a view": lambda f, x: f.apply(x.view(2, 3)),
    "and a view of it": lambda f, x: f.apply(x).flatten(),
    "beside its input": lambda f, x: (lambda y: (f.apply(y), y))(x * 2),
    "of itself": lambda f, x: f.apply(f.apply(x * 1).reshape(2, 3) * 1),
}


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("function", [Reversal, ReversalOfView, Transposition, Row])
@pytest.mark.parametrize("leaf", [True, False], ids=["leaf", "result"])
def test_functions_that_return_a_view_of_their_input(function: Any, program: str, leaf: bool) -> None:
    def call(x: torch.Tensor) -> Any:
        return PROGRAMS[program](function, x)

    if function is Row and program == "of itself":
        call = Row.apply  # a row has no rows

    given, wanted = (torch.arange(6.0).view(2, 3).requires_grad_() for _ in range(2))
    found, expected = tintype.aot.function(call)(given if leaf else given * 1), call(wanted if leaf else wanted * 1)
    found, expected = (value if isinstance(value, tuple) else (value,) for value in (found, expected))
    torch.testing.assert_close(found, expected)
    assert [value.requires_grad for value in found] == [value.requires_grad for value in expected]
    weights = [torch.randn_like(value) for value in expected]
    for outputs, leaf_tensor in ((found, given), (expected, wanted)):
        torch.autograd.backward(outputs, weights)
        assert leaf_tensor.grad is not None
    torch.testing.assert_close(given.grad, wanted.grad)


def test_such_a_view_shares_memory_and_its_input_is_not_written_to() -> None:
    x = torch.ones(3, requires_grad=True)
    version = x._version
    result = tintype.aot.function(Reversal.apply)(x)
    assert result.data_ptr() == x.data_ptr() and x._version == version


def in_enabled_region(x: torch.Tensor, w: torch.Tensor) -> Any:
    with torch.enable_grad():
        y = x * w
    return y, x + w


def in_disabled_region(x: torch.Tensor, w: torch.Tensor) -> Any:
    with torch.no_grad():
        y = x * w
        with torch.enable_grad():
            z = (y + w).sin()
    return y, z


def writes_in_enabled_region(x: torch.Tensor, w: torch.Tensor) -> Any:
    with torch.enable_grad():
        x.mul_(w)
    return x + 1


@pytest.mark.parametrize("function", [in_enabled_region, in_disabled_region, writes_in_enabled_region])
@pytest.mark.parametrize("outside", [torch.no_grad, torch.enable_grad])
def test_gradients_that_are_enabled_inside(function: Any, outside: Any) -> None:
    seen = []
    for call in (function, tintype.aot.function(function)):
        x, w = torch.arange(1.0, 4.0), torch.arange(2.0, 5.0).requires_grad_()
        with outside():
            results = call(x, w)
        results = results if isinstance(results, tuple) else (results,)
        flags = [value.requires_grad for value in (*results, x)]
        outputs = [value for value in (*results, x) if value.requires_grad]
        if outputs:
            torch.autograd.backward(outputs, [torch.ones_like(value) for value in outputs])
        seen.append((flags, [value.detach() for value in results], w.grad))
    assert seen[0][0] == seen[1][0]
    torch.testing.assert_close(seen[1][1:], seen[0][1:])


@pytest.mark.parametrize(
    "function",
    [
        lambda a, b: (a.t_(), b.t_(), a * 2)[2],
        lambda a, b: (a.t_(), b.mul_(2), a * b)[2],
        lambda a, b: (a.mul_(2), b.t_(), a + 0)[2],
        lambda a, b: (a.unsqueeze_(0), b.transpose_(1, 2), a.sum(0))[2],
        lambda a, b: (a.unsqueeze_(0), b.squeeze_(0), b + 1)[2],
        lambda a, b: (a.t_(), a.t_(), a.t_(), b.sum(0))[3],
    ],
)
@pytest.mark.parametrize("twice", [True, False])
def test_one_tensor_twice_with_another_geometry(function: Any, twice: bool) -> None:
    seen = []
    for call in (function, tintype.aot.function(function)):
        a = torch.arange(6.0).view(2, 3)
        b = a if twice else torch.arange(6.0).view(2, 3)
        try:
            result = call(a, b)
        except (RuntimeError, IndexError):  # of sizes that don't fit, where there are two tensors
            result = None
        seen.append((result, a, a.stride(), b, b.stride()))
    if seen[0][0] is not None:
        assert [value for value in seen[0] if isinstance(value, tuple)] == [
            value for value in seen[1] if isinstance(value, tuple)
        ]
        torch.testing.assert_close(seen[1], seen[0])


def test_parameters_made_inside() -> None:
    def function(x: torch.Tensor) -> Any:
        made = nn.Parameter(x * 2)
        return made, made.detach() * 3, nn.Parameter(x, requires_grad=False)

    for call in (function, tintype.aot.function(function)):
        made, used, frozen = call(torch.ones(2))
        assert type(made) is nn.Parameter and made.is_leaf and made.requires_grad and not used.requires_grad
        assert type(frozen) is nn.Parameter and not frozen.requires_grad
        assert made.tolist() == [2, 2] and used.tolist() == [6, 6]


def test_loops_and_their_gradients() -> None:
    def loop(x: torch.Tensor) -> torch.Tensor:
        start = torch.tensor(0)
        return tintype.while_loop(lambda i, v: i < 3, lambda i, v: (i + 1, v * x), (start, x.detach() * 1))[1]

    x, y = (torch.tensor([1.0, 2.0], requires_grad=True) for _ in range(2))
    for function in (loop, lambda x: loop(x.detach()) * x):
        found = tintype.aot.function(function)(x)
        expected = function(y)
        torch.testing.assert_close(found, expected)
        assert found.requires_grad is expected.requires_grad
        found.sum().backward()
        expected.sum().backward()
        torch.testing.assert_close(x.grad, y.grad)


# --- what is refused -----------------------------------------------------------------------------------------


class WritesWhenGoingBack(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, statistic: torch.Tensor) -> torch.Tensor:
        ctx.statistic = statistic
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        ctx.statistic.add_(gradient)
        return gradient * 2, None


def test_a_gradient_rule_that_writes_to_what_the_function_was_given() -> None:
    x, statistic = torch.ones(2, requires_grad=True), torch.zeros(2)
    with pytest.raises(MutationError, match="a gradient rule writes to a tensor that the function was given"):
        tintype.aot.function(WritesWhenGoingBack.apply)(x, statistic)
    with pytest.raises(MutationError, match="a gradient rule writes to a tensor"):
        tintype.aot.function(lambda x: WritesWhenGoingBack.apply(x, statistic[:]))(x)
    assert statistic.tolist() == [0, 0]


def test_a_gradient_rule_may_write_to_its_own_gradient() -> None:
    class Tripled(Reversal):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            return gradient.mul_(3)

    x = torch.ones(2, requires_grad=True)
    (tintype.aot.function(Tripled.apply)(x) * 1).sum().backward()
    assert x.grad.tolist() == [3, 3]


def test_checkpoints() -> None:
    layer = nn.Linear(2, 2)

    def function(x: torch.Tensor, reentrant: bool) -> torch.Tensor:
        return checkpoint(lambda y: layer(y).relu(), x, use_reentrant=reentrant).sum()

    with pytest.raises(CaptureError, match="use_reentrant=True"):
        tintype.aot.function(function)(torch.ones(1, 2, requires_grad=True), True)

    def arguments() -> Any:
        x = torch.ones(1, 2, requires_grad=True)
        return (x, False), (x,)

    check(function, arguments)


def test_other_memory_is_refused_by_name() -> None:
    def sets(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.set_(y)
        return x + 1

    def assigns(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.data = y
        return x + 1

    with pytest.raises(MutationError, match="gives a tensor other memory"):
        tintype.aot.function(sets)(torch.ones(2), torch.zeros(2))
    with pytest.raises(CaptureError, match=r"assigns to the \.data of a tensor"):
        tintype.aot.function(assigns)(torch.ones(2), torch.zeros(2))
    with pytest.raises(CaptureError, match=r"assigns to the \.data of a tensor"):
        tintype.export_joint(lambda x, y: assigns(x, y).sum(), (torch.ones(2, requires_grad=True), torch.zeros(2)))


@pytest.mark.parametrize("size", [None, 8])
def test_caches_keep_no_tensors_of_a_capture(size: int | None) -> None:
    @functools.lru_cache(maxsize=size)
    def mask(size: int) -> torch.Tensor:
        return torch.ones(size, size).tril()

    compiled = tintype.aot.function(lambda x: x @ mask(x.shape[1]))
    for rows in (4, 2, 4):
        torch.testing.assert_close(compiled(torch.ones(rows, 3)), torch.ones(rows, 3) @ mask(3))
        mask.cache_clear()
    kept = mask(3)
    torch.testing.assert_close(compiled(torch.ones(5, 3)), torch.ones(5, 3) @ kept)
    assert mask(3) is kept

    def fails(x: torch.Tensor) -> torch.Tensor:
        raise ValueError(mask(len(x)).shape)

    with pytest.raises(ValueError, match="2, 2"):
        tintype.aot.function(fails)(torch.ones(2))
    assert mask(2).tolist() == [[1, 0], [1, 1]]


def test_tensors_that_something_keeps_from_an_earlier_capture_are_refused() -> None:
    library: Any = math  # what is attached to a library's modules is not watched

    def function(x: torch.Tensor) -> torch.Tensor:
        if not hasattr(library, "kept_by_a_test"):
            library.kept_by_a_test = torch.ones(3, 3).tril()
        return x @ library.kept_by_a_test

    compiled = tintype.aot.function(function)
    try:
        compiled(torch.ones(4, 3))
        with pytest.raises(CaptureError, match="something keeps tensors from one call to the next"):
            compiled(torch.ones(2, 3))
    finally:
        del library.kept_by_a_test


class WritesToItsParameter(nn.Module):
    def __init__(self, view: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.arange(4.0))
        self.view = view

    def forward(self) -> torch.Tensor:
        with torch.no_grad():
            self.weight.mul_(0.5)
        return self.view(self.weight)


@pytest.mark.parametrize(
    "view",
    [lambda w: w.expand(3, 4), lambda w: w[1:], lambda w: w.view(2, 2).t(), lambda w: w * 3],
    ids=["expanded", "part", "transposed", "computed"],
)
def test_views_of_a_parameter_that_was_written_to_under_no_grad(view: Callable[[torch.Tensor], torch.Tensor]) -> None:
    eager, compiled = WritesToItsParameter(view), WritesToItsParameter(view)
    module = tintype.aot.module(compiled)
    for _ in range(2):
        for run in (eager, module):
            (run() * 2).sum().backward()
        torch.testing.assert_close(compiled.weight, eager.weight)
        torch.testing.assert_close(compiled.weight.grad, eager.weight.grad)


def test_inputs_that_the_function_lets_require_gradients() -> None:
    def function(x: torch.Tensor) -> Any:
        before = x * 3
        x.requires_grad_()
        return before, (x**2).sum()

    compiled = tintype.aot.function(function)
    for _ in range(2):
        x = torch.full((2,), 3.0)
        before, result = compiled(x)
        assert x.requires_grad and x.is_leaf and not before.requires_grad
        result.backward()
        assert x.grad is not None and x.grad.tolist() == [6, 6]
        with torch.no_grad():
            y = torch.ones(2)
            assert not compiled(y)[1].requires_grad and y.requires_grad


def test_flags_of_parameters_stay() -> None:
    class Freezing(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) if self.requires_grad_(False) else x

    model = Freezing(2, 2)
    with pytest.raises(MutationError, match="switches gradients on or off"):
        tintype.aot.module(model)(torch.ones(2))
    assert model.weight.requires_grad
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    torch.testing.assert_close(tintype.aot.module(model)(torch.ones(2)), model(torch.ones(2)))


def test_a_gradient_penalty() -> None:
    class Penalty(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(3, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = x.detach().requires_grad_(True)
            (gradient,) = torch.autograd.grad(self.linear(x).tanh().sum(), x, create_graph=True)
            return ((gradient.norm(dim=1) - 1) ** 2).mean()

    model, x = Penalty(), torch.randn(4, 3)
    expected = model(x)
    (wanted,) = torch.autograd.grad(expected, model.linear.weight)
    loss = tintype.aot.module(model)(x)
    torch.testing.assert_close((loss, torch.autograd.grad(loss, model.linear.weight)[0]), (expected, wanted))
    loss, gradients, _ = tintype.export_joint(model, (x,)).module()(x)
    torch.testing.assert_close((loss, gradients["linear.weight"]), (expected, wanted))


@pytest.mark.parametrize("function", [torch.sgn, lambda x: x**0, torch.angle, torch.round])
def test_gradients_that_are_zeros(function: Any) -> None:
    def arguments() -> Any:
        leaf = torch.ones(2, requires_grad=True)
        return (leaf,), (leaf,)

    check(lambda x: function(x), arguments)


def test_complex_numbers_of_pythons() -> None:
    def arguments() -> Any:
        leaf = torch.linspace(1, 2, 3, dtype=torch.float64).requires_grad_()
        return (leaf,), (leaf,)

    check(lambda x: (torch.complex(x, -x) * (0.1 + 1j)).imag * 2, arguments)
    check(lambda x: (torch.complex(x, -x).sum() / (0.1 + 1j)).abs(), arguments)


LABELS = torch.tensor([[1, 2], [1, 1]])
WITHOUT_META_KERNEL: dict[str, Any] = {
    "quantized": lambda x: torch.fake_quantize_per_tensor_affine(x, 0.1, 0, -10, 10),
    "quantized by channel": lambda x: torch.fake_quantize_per_channel_affine(
        x, torch.full((3,), 0.1), torch.zeros(3), 2, -10, 10
    ),
    "margins": lambda x: nn.functional.multi_margin_loss(x[0], LABELS[0], reduction="none"),
    "margins of several": lambda x: nn.functional.multilabel_margin_loss(x[:, 0], torch.tensor([[0, -1, 0]] * 4)),
    "alignments": lambda x: nn.functional.ctc_loss(x.log_softmax(2), LABELS, (4, 4), target_lengths=(2, 1)),
    "alignments by tensors": lambda x: torch.ctc_loss(
        x.log_softmax(2), LABELS, torch.tensor([4, 4]), torch.tensor([2, 1])
    ),
}


@pytest.mark.parametrize("name", WITHOUT_META_KERNEL)
def test_gradients_that_torch_has_no_meta_kernel_for(name: str) -> None:
    def arguments() -> Any:
        leaf = torch.linspace(-2, 2, 24).reshape(3, 2, 4).permute(2, 1, 0).requires_grad_()
        return (leaf,), (leaf,)

    check(WITHOUT_META_KERNEL[name], arguments)


def test_a_part_of_a_parameter_that_is_written_to() -> None:
    """Autograd refuses the gradient when somebody asks for it, and not before."""

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.arange(4.0))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            part = self.weight.split(2)[0]
            result = torch.nn.functional.layer_norm(part, (2,)) * x
            with torch.no_grad():
                self.weight.add_(0.5)
            return result

    model = Model()
    x = torch.ones(2)
    compiled = tintype.aot.module(Model())
    assert torch.equal(compiled(x), model(x))
    assert torch.equal(compiled.weight, model.weight)
    with pytest.raises(RuntimeError, match="modified inplace"):
        compiled(x).sum().backward()


class Remembers(torch.nn.Module):
    def __init__(self, detached: bool) -> None:
        super().__init__()
        self.register_buffer("kept", torch.ones(3))
        self.weight = torch.nn.Parameter(torch.tensor(2.0))
        self.detached = detached

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        value = self.kept * 0.5 + x * self.weight
        self.kept = value.detach() if self.detached else value
        return value.sum()


def test_a_buffer_with_a_history_is_refused() -> None:
    """In eager mode the gradients of the next call flow back into this one."""
    x = torch.arange(3.0)
    with pytest.raises(tintype.TintypeError, match=r"the buffer 'kept'.*\n.*test_histories.py:\d+"):
        tintype.aot.module(Remembers(False))(x)
    model, compiled = Remembers(True), tintype.aot.module(Remembers(True))
    for module in (model, compiled):
        module(x)
        module(x).backward()
    assert torch.equal(model.weight.grad, compiled.weight.grad)  # type: ignore[arg-type]
    with torch.no_grad():  # there is no history to be had
        assert torch.equal(tintype.aot.module(Remembers(False))(x), Remembers(False)(x))


def test_a_branch_without_gradients_that_returns_its_operand() -> None:
    """In eager mode it is the operand itself, gradient and all."""

    def function(x: torch.Tensor, is_copied: bool) -> torch.Tensor:
        with torch.no_grad():
            y = tintype.cond(x.sum() > 0, lambda x: x.clone() if is_copied else x, lambda x: x + 1, (x,))
        return y * x

    x = torch.arange(3.0, requires_grad=True)
    with pytest.raises(tintype.TintypeError, match=r"below torch.no_grad\(\) returns its operand"):
        tintype.aot.function(function)(x, False)
    tintype.aot.function(function)(x, True).sum().backward()
    assert torch.equal(x.grad, x.detach())  # type: ignore[arg-type]


def test_a_write_that_autograd_refuses_after_the_other_branch() -> None:
    """In eager mode the branch that is taken says whether there is a gradient; a compiled function has both."""

    def function(x: torch.Tensor) -> torch.Tensor:
        y = tintype.cond(x.sum() > 0, lambda x: x.detach() * 2, lambda x: x * 2, (x,))
        with torch.no_grad():
            part = y[1:]
        part += 1
        return y

    x = torch.ones(3, requires_grad=True)
    assert function(x).tolist() == [2, 3, 3]
    with pytest.raises(tintype.TintypeError, match=r"autograd refuses(.|\n)*test_histories.py:\d+"):
        tintype.aot.function(function)(x)


@pytest.mark.parametrize("change", [lambda x: x.transpose_(0, 1), lambda x: x.t_(), lambda x: x.swapaxes_(0, 1)])
@pytest.mark.parametrize("is_returned", [False, True])
def test_a_view_from_before_a_change_of_geometry_is_refused(change: Any, is_returned: bool) -> None:
    """Its gradient would go to the column that has taken the place of the row."""

    def function(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        row = y[0]
        change(y)
        return row if is_returned else (row * torch.arange(3.0)).sum()

    compiled = tintype.aot.function(function)
    with pytest.raises(MutationError, match="uses a view afterwards that it made before"):
        compiled(torch.ones(3, 3, requires_grad=True))
    assert torch.equal(compiled(torch.ones(3, 3)), function(torch.ones(3, 3)))


def test_a_view_from_before_a_change_of_geometry_that_nobody_uses_again() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        y[0].mul_(3)
        y.t_()
        return y[0] * torch.arange(2.0)

    def arguments() -> Any:
        leaf = torch.arange(6.0).reshape(2, 3).requires_grad_()
        return (leaf,), (leaf,)

    check(function, arguments)


@pytest.mark.parametrize("change", [lambda x: x.transpose_(0, 1), lambda x: x.unsqueeze_(0)])
@pytest.mark.parametrize("to_base", [False, True])
def test_a_view_with_a_new_geometry_is_not_written_to(change: Any, to_base: bool) -> None:
    """The gradient would go to the elements that it had before."""

    def function(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        part = y[:2]
        change(part)
        (y if to_base else part).mul_(torch.arange(2.0))
        return y.sum() * 2

    compiled = tintype.aot.function(function)
    with pytest.raises(MutationError, match="changes the size or strides of a view in place and writes"):
        compiled(torch.ones(3, 2, requires_grad=True))
    assert torch.equal(compiled(torch.ones(3, 2)), function(torch.ones(3, 2)))


def test_a_view_with_a_new_geometry_that_is_read() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        part = (x * 2)[:2]
        part.t_()
        return part * torch.arange(2.0)

    def arguments() -> Any:
        leaf = torch.arange(6.0).reshape(3, 2).requires_grad_()
        return (leaf,), (leaf,)

    check(function, arguments)


def changed_view_of_turned_base(x: torch.Tensor) -> Any:
    base = x * 2
    view = base.expand(2, *base.shape)
    view.unsqueeze_(0)
    base.t_()
    return view * 1


def squeezed_view_of_squeezed_base(x: torch.Tensor) -> Any:
    base = (x * 2)[None]
    base = base * 1
    view = base[0]
    view.transpose_(0, -1)
    base.squeeze_(0)
    return view * 1


def turned_view_beside_another(x: torch.Tensor) -> Any:
    base = x * 2
    view, other = base.expand(2, *base.shape), base[0]
    view.transpose_(0, -1)
    other.squeeze_(0)
    return view * 1


def turned_and_lifted_view_beside_another(x: torch.Tensor) -> Any:
    base = x * 2
    view, other = base[:2], base[1]
    view.t_()
    view.unsqueeze_(0)
    other.unsqueeze_(0)
    return view * 1


def lifted_views_beside_each_other(x: torch.Tensor) -> Any:
    base = x * 2
    first, second = base[0], base[1]
    first.unsqueeze_(0)
    second.unsqueeze_(0)
    return torch.cat([first, second])


CHANGED_VIEWS: list[Any] = [
    changed_view_of_turned_base, squeezed_view_of_squeezed_base, turned_view_beside_another,
    turned_and_lifted_view_beside_another, lifted_views_beside_each_other,
]  # fmt: skip


@pytest.mark.parametrize("function", CHANGED_VIEWS)
def test_views_that_got_another_geometry_before_their_base_or_another_view_did(function: Any) -> None:
    """Autograd makes their history anew, of the geometry that they had: gradients would go to other elements."""
    found = []
    for called in (function, tintype.aot.function(function)):
        x = torch.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
        try:
            result = called(x)
        except MutationError:
            assert function is not lifted_views_beside_each_other
            return
        weights = torch.arange(result.numel()).reshape(result.shape).cos()
        found.append((result.detach(), torch.autograd.grad((result * weights).sum(), x)[0]))
    torch.testing.assert_close(found[1], found[0])
