"""Regions without gradients and with autocast: wrapped in the training stage, gone in the functional one."""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.fx import GraphModule, Node

import tintype
from tests.export.modes import MODES, TRAINING_MODES, compare, targets
from tintype.errors import VerificationError
from tintype.ir.graph import meta_of

WITH_GRAD_MODE = torch.ops.higher_order.wrap_with_set_grad_enabled
WITH_AUTOCAST = torch.ops.higher_order.wrap_with_autocast


@pytest.fixture(params=[*MODES, *TRAINING_MODES])
def mode(request: pytest.FixtureRequest) -> str:
    torch.manual_seed(0)
    return request.param


def x(*sizes: int) -> torch.Tensor:
    return torch.randn(*(sizes or (3, 4)), requires_grad=True)


class Model(nn.Module):
    """A parameter, a buffer, a layer, and a function that gets them."""

    def __init__(self, function: Callable[[Model, torch.Tensor], Any]) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.weight = nn.Parameter(torch.randn(4, 4))
        self.register_buffer("seen", torch.zeros(3, 4))
        self.function = function

    def forward(self, value: torch.Tensor) -> Any:
        return self.function(self, value)


def calls(graph: Any, target: Any) -> list[Node]:
    return [node for node in graph.nodes if node.target is target]


def inner(module: GraphModule, name: str) -> GraphModule:
    found = getattr(module, name)
    assert isinstance(found, GraphModule)
    return found


# --- values and gradients ----------------------------------------------------------------------------------


def one_region(model: Model, value: torch.Tensor) -> Any:
    with torch.no_grad():
        hidden = model.layer(value)
    return value * hidden


def several_results(model: Model, value: torch.Tensor) -> Any:
    hidden = model.layer(value)
    with torch.no_grad():
        largest, where = hidden.max(dim=1)
        left, right = hidden.split(2, dim=1)
        size = hidden.shape[0]
    return largest * hidden.sum(), where, left + right * value[:, :2], size


def nested(model: Model, value: torch.Tensor) -> Any:
    with torch.no_grad():
        hidden = model.layer(value)
        with torch.enable_grad():
            inner = value.sin()
        hidden = hidden * inner
        with torch.set_grad_enabled(False):
            hidden = hidden + 1
    return hidden + inner


def autocast_inside_of_no_grad(model: Model, value: torch.Tensor) -> Any:
    with torch.no_grad():
        before = value * 2
        with torch.autocast("cpu", dtype=torch.bfloat16):
            hidden = model.layer(before)
        after = hidden.float() * before
    return after * value


def no_grad_inside_of_autocast(model: Model, value: torch.Tensor) -> Any:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        hidden = model.layer(value)
        with torch.no_grad():
            scale = model.layer(hidden).abs().max()
            with torch.autocast("cpu", enabled=False):
                exact = value @ value.t()
        result = hidden @ model.weight
    return result.float() / scale, exact, model.layer(value)


def a_parameter_is_written_to(model: Model, value: torch.Tensor) -> Any:
    with torch.no_grad():
        model.weight.mul_(0.9)
        model.weight.clamp_(-1, 1)
    return value @ model.weight


def a_parameter_is_written_to_from_itself(model: Model, value: torch.Tensor) -> Any:
    with torch.no_grad():
        model.weight.copy_(torch.renorm(model.weight, 2, 0, 0.5))
    return model.layer(value @ model.weight)


def a_parameter_is_written_to_in_part(model: Model, value: torch.Tensor) -> Any:
    with torch.no_grad():
        model.weight[1:3].zero_()
    return value @ model.weight + model.weight.sum()


def a_buffer_is_written_to(model: Model, value: torch.Tensor) -> Any:
    with torch.no_grad():
        model.seen.mul_(0.9).add_(model.layer(value), alpha=0.1)
    return value * model.seen


def only_a_buffer_is_written_to(model: Model, value: torch.Tensor) -> Any:
    with torch.no_grad():
        model.seen.add_(1)
    return value * 2


def a_value_is_written_to(model: Model, value: torch.Tensor) -> Any:
    hidden = model.layer(value)
    with torch.no_grad():
        hidden.mul_(3)
        scale = hidden + 1
    return hidden * hidden * scale, hidden


def a_value_is_written_to_through_a_view_from_outside(model: Model, value: torch.Tensor) -> Any:
    hidden = value * 2
    row = hidden[0]
    with torch.no_grad():
        row.mul_(3)
    return hidden * hidden, row * 2


def a_value_is_written_to_through_a_view_from_inside(model: Model, value: torch.Tensor) -> Any:
    hidden = value * 2
    with torch.no_grad():
        hidden[0].mul_(3)
        hidden.t()[1].zero_()
    return hidden * hidden


def a_view_of_what_is_written_to(model: Model, value: torch.Tensor) -> Any:
    hidden = value * 2
    row = hidden[0]
    with torch.no_grad():
        hidden.zero_()
    return row * value, hidden + value


def infinities_are_written_over(model: Model, value: torch.Tensor) -> Any:
    hidden = value / torch.tensor([1.0, 0.0, 1.0, 2.0])
    with torch.no_grad():
        hidden.masked_fill_(hidden.isinf(), 1.0)
    return hidden * value


def a_view_is_made_inside(model: Model, value: torch.Tensor) -> Any:
    with torch.no_grad():
        flat = value.view(-1)
    return flat.view(3, 4) * value


def something_new_is_written_to_inside(model: Model, value: torch.Tensor) -> Any:
    total = torch.zeros(3, 4)
    with torch.no_grad():
        total.add_(value)
        total.mul_(2)
    return total * value


def something_new_gets_a_history_first(model: Model, value: torch.Tensor) -> Any:
    total = torch.zeros(3, 4)
    total[0] = value[0]
    with torch.no_grad():
        double = total * 2
        total.add_(1)
    return double + total * total


def a_detached_value_is_written_to(model: Model, value: torch.Tensor) -> Any:
    hidden = value * 2
    hidden.detach().mul_(3)
    return hidden * hidden


def an_embedding_is_renormalized(model: Model, value: torch.Tensor) -> Any:
    rows = torch.nn.functional.embedding(torch.tensor([0, 2, 2]), model.weight, max_norm=0.5)
    return rows * value


def random_numbers(model: Model, value: torch.Tensor) -> Any:
    with torch.no_grad():
        noise = torch.randn_like(value)
        torch.rand(3)
    return value + noise + torch.rand(4)


def branches_inside(model: Model, value: torch.Tensor) -> Any:
    with torch.no_grad():
        scale = tintype.cond(value.sum() > 0, lambda v: model.layer(v), lambda v: v * 2, (value,))
    return scale * value


def inside_of_branches(model: Model, value: torch.Tensor) -> Any:
    def first(v: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            scale = model.layer(v)
        return scale * v

    def second(v: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return model.layer(v).float() + v

    return tintype.cond(value.sum() > 0, first, second, (value,))


def both_around_and_inside_of_branches(model: Model, value: torch.Tensor) -> Any:
    def first(v: torch.Tensor) -> torch.Tensor:
        with torch.enable_grad():
            kept = v.sin()
        return kept + v.detach()

    with torch.no_grad():
        result = tintype.cond(value.sum() > 0, first, lambda v: v.cos() * 1, (value,))
        result = result * 2
    return result * value


def loops_that_return_what_they_are_given(model: Model, value: torch.Tensor) -> Any:
    with torch.no_grad():
        _, last = tintype.while_loop(
            lambda i, carried: i < 0, lambda i, carried: (i + 1, carried * 2), (torch.tensor(0), model.weight)
        )
        first, before = tintype.scan(lambda carried, row: (carried + row, carried * 1), value[0], value)
        rows = tintype.map(lambda row: model.weight[0], value)
    return last * value[0], first * value, before * value, rows * value


def what_is_contiguous_already(model: Model, value: torch.Tensor) -> Any:
    hidden, image = model.layer(value), value[None, None]
    with torch.no_grad():
        same = hidden.contiguous().contiguous()
        image = image.contiguous(memory_format=torch.channels_last)
        weight = model.weight.to(memory_format=torch.contiguous_format)
        written = (value * 2).contiguous().add_(1)
    return same * value, image * 2, weight @ value.t(), written


def what_gets_contiguous(model: Model, value: torch.Tensor) -> Any:
    with torch.no_grad():
        copy = value.t().contiguous()
        image = value[None].expand(2, 3, 4).contiguous()
    return copy * value.t(), image * value


def inside_of_a_loop_body(model: Model, value: torch.Tensor) -> Any:
    def body(row: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            scale = row.exp().sum()
        return row * scale

    return tintype.map(body, value)


def a_function_with_its_own_gradient(model: Model, value: torch.Tensor) -> Any:
    return Double.apply(model.layer(value)) * value


def a_function_with_its_own_gradient_inside(model: Model, value: torch.Tensor) -> Any:
    with torch.no_grad():
        hidden = Double.apply(value)
    return hidden * value


def the_result_of_a_function_comes_in(model: Model, value: torch.Tensor) -> Any:
    hidden = Double.apply(value)
    with torch.no_grad():
        scale = hidden * 3
    return scale * value


def decorated(model: Model, value: torch.Tensor) -> Any:
    @torch.no_grad()
    def scale(tensor: torch.Tensor) -> torch.Tensor:
        return model.layer(tensor).abs().max()

    return model.layer(value) / scale(value)


def the_operator_itself(model: Model, value: torch.Tensor) -> Any:
    (hidden,) = WITH_GRAD_MODE(False, lambda v: (model.layer(v),), value)
    (cast,) = WITH_AUTOCAST("cpu", torch.bfloat16, True, None, lambda v: (model.layer(v),), value)
    return hidden * value, cast


def operators_that_autocast_knows_in_part(model: Model, value: torch.Tensor) -> Any:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        hidden = model.layer(value)
        product = torch.einsum("ij,jk->ik", hidden, model.weight)
        attention = nn.functional.scaled_dot_product_attention(value[None], value[None], value[None])
        joined = torch.cat([hidden, value])
        loss = nn.functional.cross_entropy(product, torch.tensor([0, 1, 2]))
        return product, attention, joined, loss, nn.functional.layer_norm(hidden, (4,))


def an_input_is_written_to(model: Model, value: torch.Tensor) -> Any:
    with torch.no_grad():
        value.mul_(0.5)
    return value @ model.weight, value * 1


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: torch.Tensor) -> torch.Tensor:
        return value * 2

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient * 2


@pytest.mark.parametrize(
    "function",
    [
        one_region,
        several_results,
        nested,
        autocast_inside_of_no_grad,
        no_grad_inside_of_autocast,
        a_parameter_is_written_to,
        a_parameter_is_written_to_from_itself,
        a_parameter_is_written_to_in_part,
        a_buffer_is_written_to,
        only_a_buffer_is_written_to,
        a_value_is_written_to,
        a_value_is_written_to_through_a_view_from_outside,
        a_value_is_written_to_through_a_view_from_inside,
        a_view_of_what_is_written_to,
        a_view_is_made_inside,
        something_new_is_written_to_inside,
        something_new_gets_a_history_first,
        a_detached_value_is_written_to,
        an_embedding_is_renormalized,
        random_numbers,
        branches_inside,
        inside_of_branches,
        both_around_and_inside_of_branches,
        loops_that_return_what_they_are_given,
        what_is_contiguous_already,
        what_gets_contiguous,
        inside_of_a_loop_body,
        a_function_with_its_own_gradient,
        a_function_with_its_own_gradient_inside,
        the_result_of_a_function_comes_in,
        decorated,
        the_operator_itself,
        operators_that_autocast_knows_in_part,
        an_input_is_written_to,
    ],
)
def test_like_eager(mode: str, function: Any) -> None:
    program = compare(mode, Model(function), (x(),))
    has_regions = any("wrap_with" in target for target in targets(program))
    assert not has_regions or program.stage.name == "TRAINING"


def test_values_where_infinities_are_written_over(mode: str) -> None:
    """Gradients there are not eager's: an element that was infinite before gets none."""
    compare(mode, Model(infinities_are_written_over), (x(),), gradients=False)


def test_a_layout_that_decides_whether_there_is_a_gradient() -> None:
    """contiguous() without gradients: the tensor itself, with its history, or a copy, which has none."""

    def function(value: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            same = value.contiguous()
        return same * 2

    straight, turned = x(3, 4), x(4, 3).t()
    for example, other in ((straight, turned), (turned, straight)):
        module = tintype.export(function, (example,)).module()
        assert module(example).requires_grad is function(example).requires_grad is (example is straight)
        with pytest.raises(RuntimeError, match="stride"):
            module(other)

    def unseen(value: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            scale = value.contiguous().sum()
        return value * scale

    module = tintype.export(unseen, (straight,)).module()
    torch.testing.assert_close(module(turned), unseen(turned))


def test_sizes_that_vary() -> None:
    def function(value: torch.Tensor, count: torch.Tensor) -> Any:
        hidden = value * 2
        with torch.no_grad():
            number = count.item()
            torch._check(number > 2)
            torch._check(number < 6)
            scale = torch.ones(number, value.shape[0]).sum() * hidden.reshape(-1).shape[0]
        return hidden * scale + value.shape[0]

    sizes = {"value": {0: tintype.Dim("rows", min=2)}, "count": None}
    example = (x(3, 4), torch.tensor(4))
    training = tintype.export_for_training(function, example, dynamic_shapes=sizes)
    programs = [
        training,
        training.run_decompositions(),
        tintype.export(training.module(), example, dynamic_shapes=sizes),
        tintype.export(function, example, dynamic_shapes=sizes),
    ]
    for program in programs:
        program.validate()
        for rows, count in ((3, 4), (5, 3)):
            value = x(rows, 4)
            actual, expected = program.module()(value, torch.tensor(count)), function(value, torch.tensor(count))
            torch.testing.assert_close(actual, expected)
            gradients = [torch.autograd.grad(result.sum(), value)[0] for result in (actual, expected)]
            torch.testing.assert_close(*gradients)
        with pytest.raises(RuntimeError):
            program.module()(x(3, 4), torch.tensor(7))


# --- the form of the training stage ------------------------------------------------------------------------


def test_regions_are_numbered_among_the_pieces_of_the_graph() -> None:
    def function(value: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            value = value + 1
        value = value * 2
        with torch.no_grad():
            return value - 1

    program = tintype.export_for_training(function, (x(),))
    assert [node.target for node in program.graph.nodes if node.op == "get_attr"] == ["submod_1", "submod_3"]
    (first, second) = calls(program.graph, WITH_GRAD_MODE)
    assert first.args[0] is False
    assert [node.name for node in inner(program.graph_module, "submod_3").graph.nodes] == ["mul", "sub", "output"]
    # the results keep their names
    assert program.graph_signature.user_outputs == ("sub",)
    assert [user.target for user in second.users] == [operator.getitem]


def test_a_capture_without_gradients_wraps_regions_with_and_without_gradients() -> None:
    def function(value: torch.Tensor) -> torch.Tensor:
        with torch.enable_grad():
            value = value * 2
        with torch.no_grad():
            apart = value + 1
        return apart * value

    with torch.no_grad():
        program = tintype.export_for_training(function, (x(),))
    assert [call.args[0] for call in calls(program.graph, WITH_GRAD_MODE)] == [True, False]
    # what comes into the region without gradients is cut off, whatever mode is around the program
    functional = program.run_decompositions()
    assert targets(functional) == ["aten.mul.Tensor", "aten.detach.default", "aten.add.Tensor", "aten.mul.Tensor"]
    value = x()
    for module in (program.module(), functional.module()):
        with torch.no_grad():
            assert not module(value).requires_grad
        (found,) = torch.autograd.grad(module(value).sum(), value)
        (expected,) = torch.autograd.grad(function(value).sum(), value)
        torch.testing.assert_close(found, expected)


def test_settings_are_nested_as_in_the_program() -> None:
    program = tintype.export_for_training(Model(no_grad_inside_of_autocast), (x(),))
    (outer,) = calls(program.graph, WITH_AUTOCAST)
    assert outer.args[:4] == ("cpu", torch.bfloat16, True, None)
    with_autocast = inner(program.graph_module, "submod_1")
    (without_grad,) = calls(with_autocast.graph, WITH_GRAD_MODE)
    assert without_grad.args[0] is False
    (disabled,) = calls(inner(with_autocast, "submod_1").graph, WITH_AUTOCAST)
    assert disabled.args[2] is False
    assert targets(program)[-1] == "aten.linear.default"

    program = tintype.export_for_training(Model(autocast_inside_of_no_grad), (x(),))
    (outer,) = calls(program.graph, WITH_GRAD_MODE)
    assert len(calls(inner(program.graph_module, "submod_1").graph, WITH_AUTOCAST)) == 1


def test_statements_in_a_row_are_regions_of_their_own() -> None:
    def function(value: torch.Tensor) -> torch.Tensor:
        for _ in range(2):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                value = value @ value.t()
        return value

    program = tintype.export_for_training(function, (x(4, 4),))
    assert len(calls(program.graph, WITH_AUTOCAST)) == 2


def test_calls_inside_are_named_as_if_inputs_had_no_names() -> None:
    def function(value: torch.Tensor, mul: torch.Tensor) -> torch.Tensor:
        value = value * mul
        with torch.no_grad():
            return value * mul

    program = tintype.export_for_training(function, (x(), x()))
    names = [node.name for node in inner(program.graph_module, "submod_1").graph.nodes]
    assert names == ["mul_1", "mul", "mul_2", "output"]  # two inputs, and the call makes way for the first of them
    assert program.graph_signature.user_outputs == ("mul_2",)


def test_names_of_the_model_are_left_to_it(mode: str) -> None:
    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.submod_1 = nn.Linear(4, 4)
            self.submod_2 = nn.Linear(4, 4)

        def forward(self, value: torch.Tensor) -> torch.Tensor:
            with torch.no_grad():
                hidden = self.submod_1(value)
            return self.submod_2(value) * hidden

    compare(mode, Named(), (x(),))


def test_what_stays_of_modules() -> None:
    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(4, 4)
            self.second = nn.Linear(4, 4)

        def forward(self, value: torch.Tensor) -> torch.Tensor:
            with torch.no_grad():
                hidden = self.second(self.first(value))
            return hidden * value

    program = tintype.export_for_training(nn.Sequential(Outer()), (x(),))
    (call,) = calls(program.graph, WITH_GRAD_MODE)
    assert [path for path, _ in call.meta["nn_module_stack"].values()] == ["", "0"]
    assert "self.second(self.first(value))" in call.meta["stack_trace"]
    linear = calls(inner(program.graph_module, "submod_1").graph, torch.ops.aten.linear.default)
    assert [list(node.meta["nn_module_stack"].values())[-1][0] for node in linear] == ["0.first", "0.second"]


def test_the_same_again() -> None:
    for function in (nested, no_grad_inside_of_autocast, branches_inside, a_value_is_written_to):
        program = tintype.export_for_training(Model(function), (x(),))
        again = tintype.export_for_training(program.module(), (x(),))
        assert again.same_structure(program)
        assert again.graph_module.print_readable(False) == program.graph_module.print_readable(False)


def test_a_mode_that_changes_nothing_is_no_region() -> None:
    def function(value: torch.Tensor) -> torch.Tensor:
        with torch.enable_grad():
            value = value * 2
        with torch.set_grad_enabled(True):
            return value + 1

    assert targets(tintype.export_for_training(function, (x(),))) == ["aten.mul.Tensor", "aten.add.Tensor"]


def test_inference_mode_is_a_region_without_gradients() -> None:
    def function(value: torch.Tensor) -> torch.Tensor:
        with torch.inference_mode():
            return value * 2

    (call,) = calls(tintype.export_for_training(function, (x(),)).graph, WITH_GRAD_MODE)
    assert call.args[0] is False


def test_no_region_is_left_in_a_functional_program() -> None:
    program = tintype.export_for_training(Model(one_region), (x(),))
    program._stage = tintype.export(Model(one_region), (x(),)).stage
    with pytest.raises(VerificationError, match="runs a region in another mode"):
        program.validate()


def test_nodes_of_finished_programs_are_in_no_region() -> None:
    for function in (nested, no_grad_inside_of_autocast, inside_of_branches):
        training = tintype.export_for_training(Model(function), (x(),))
        for program in (training, training.run_decompositions(), tintype.export(Model(function), (x(),))):
            for module in program.graph_module.modules():
                if isinstance(module, GraphModule):
                    assert not any(meta_of(node).region for node in module.graph.nodes)


# --- nothing is left behind --------------------------------------------------------------------------------


def test_autocast_is_as_it_was_after_a_capture() -> None:
    methods = torch.autocast.__enter__, torch.autocast.__exit__

    def function(value: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        tintype.export(function, (x(),))
    tintype.export(Model(autocast_inside_of_no_grad), (x(),))
    assert (torch.autocast.__enter__, torch.autocast.__exit__) == methods
    assert torch.is_grad_enabled() and not torch.is_autocast_enabled("cpu")


def test_autocast_in_another_thread_is_not_the_program_s() -> None:
    inside, done = threading.Event(), threading.Event()

    def elsewhere() -> None:
        inside.wait(10)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            done.set()
            finished.wait(10)

    finished = threading.Event()
    thread = threading.Thread(target=elsewhere)
    thread.start()

    def function(value: torch.Tensor) -> torch.Tensor:
        inside.set()
        done.wait(10)
        return value @ value.t()

    program = tintype.export_for_training(function, (x(),))
    finished.set()
    thread.join()
    assert "torch.ops.higher_order" not in program.code
    assert program.module()(x()).dtype is torch.float32


def _rows(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    def step(carry: torch.Tensor, row: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.no_grad():
            apart = row * 2 + carry
        return carry * 0.5 + row * apart * weight, row * weight

    return tintype.scan(step, torch.zeros(4), x)[0]


def _mapped(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    def function(row: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            apart = row.exp()
        return row * apart * weight

    return tintype.map(function, x)


def _while(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    def body(count: torch.Tensor, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.no_grad():
            apart = value * 2 + 1
        return count + 1, value * weight + apart

    return tintype.while_loop(lambda count, value: count < 3, body, (torch.zeros(()), x.detach() * 1))[1]


def _in_python(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    carry = torch.zeros(4)
    for row in x:
        with torch.no_grad():
            apart = row * 2 + carry
        carry = carry * 0.5 + row * apart * weight
    return carry


@pytest.mark.parametrize("model", [_rows, _mapped, _while, _in_python])
def test_regions_in_steps_cut_rows_and_what_steps_return(model: Any) -> None:
    sizes = {"x": {0: tintype.Dim("n", min=1)}, "weight": None}
    program = tintype.export(model, (torch.rand(3, 4), torch.rand(4)), dynamic_shapes=sizes)
    for module in (program.module(), program.run_decompositions().module()):
        x, weight = torch.rand(5, 4, requires_grad=True), torch.rand(4, requires_grad=True)
        found = torch.autograd.grad(module(x, weight).sum(), (x, weight), allow_unused=True)
        expected = torch.autograd.grad(model(x, weight).sum(), (x, weight), allow_unused=True)
        for one, other in zip(found, expected):
            assert (one is None) == (other is None)
            if one is not None:
                torch.testing.assert_close(one, other)
