"""Loops whose number of steps varies, at several sizes, against eager mode."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

import tintype
from tests.export.modes import saved_and_loaded
from tests.flow.row_programs import REFUSED, ROW_PROGRAMS
from tests.flow.test_programs import outcome, same

ROWS = {"x": {0: tintype.Dim("rows")}}
NEEDS_A_ROW = {"zips_what_is_shorter"}  # x[1:] of no rows asserts that there is one
MODES = ("export", "strict", "training", "decomposed", "saved", "retraced", "unflattened")


def captured(mode: str, function: Any, x: torch.Tensor) -> Any:
    if mode == "training":
        return tintype.export_for_training(function, (x,), dynamic_shapes=ROWS).module()
    program = tintype.export(function, (x,), dynamic_shapes=ROWS, strict=mode == "strict")
    if mode == "decomposed":
        program = program.run_decompositions()
    elif mode == "saved":
        program = saved_and_loaded(program)
    elif mode == "retraced":
        program = tintype.export(program.module(), (x,), dynamic_shapes=ROWS)
    program.validate()
    return tintype.unflatten(program) if mode == "unflattened" else program.module()


def matrices() -> list[torch.Tensor]:
    torch.manual_seed(0)
    return [torch.randn(rows, 3) * scale for rows in (3, 1, 2, 6) for scale in (0.3, 1.0, 3.0)]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ROW_PROGRAMS)
def test_a_loop_is_right_for_any_number_of_rows(name: str, mode: str) -> None:
    function, _ = ROW_PROGRAMS[name]
    module = captured(mode, function, matrices()[0])
    for x in matrices():
        assert same(outcome(function, (x,)), outcome(module, (x,))), x.shape


@pytest.mark.parametrize("name", ROW_PROGRAMS)
def test_without_rows_a_loop_makes_no_step(name: str) -> None:
    function, _ = ROW_PROGRAMS[name]
    module = captured("export", function, matrices()[0])
    try:
        expected = function(torch.zeros(0, 3))
    except (RuntimeError, NameError, IndexError):
        expected = None
    if isinstance(expected, torch.Tensor | tuple) and name not in NEEDS_A_ROW:
        assert same(expected, module(torch.zeros(0, 3)))
    else:  # it fails, or is no tensor then: an assertion says so
        with pytest.raises(RuntimeError):
            module(torch.zeros(0, 3))


@pytest.mark.parametrize("name", ROW_PROGRAMS)
def test_a_loop_becomes_an_operator(name: str) -> None:
    function, operators = ROW_PROGRAMS[name]
    contract = tintype.export(function, (matrices()[0],), dynamic_shapes=ROWS).contract()
    lines = [line.text.partition(":")[0] for line in contract if line.kind == "control flow"]
    assert set(operators) == set(lines)


@pytest.mark.parametrize("name", REFUSED)
def test_what_can_t_be_recorded_is_refused_with_the_reason(name: str) -> None:
    function, text = REFUSED[name]
    with pytest.raises(tintype.TintypeError) as caught:
        tintype.export(function, (matrices()[0],), dynamic_shapes=ROWS)
    assert text in "\n".join([str(caught.value), *getattr(caught.value, "__notes__", ())])
    # with a fixed number of rows they are unrolled
    x = torch.randn(3, 3)
    if name != "leaves_a_loop_that_collects":
        assert same(function(x), tintype.export(function, (x,)).module()(x))


def test_refuse_means_refused() -> None:
    function, _ = ROW_PROGRAMS["goes_through_rows"]
    with pytest.raises(tintype.errors.ConstraintViolationError, match=r"for row in x:") as caught:
        tintype.export(function, (matrices()[0],), dynamic_shapes=ROWS, control_flow="refuse")
    assert not any("recorded" in note for note in getattr(caught.value, "__notes__", ()))


class FirstPage(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = torch.nn.Linear(3, 3)
        self.down = torch.nn.Linear(3, 3)
        self.register_buffer("state", torch.zeros(3))

    def forward(self, x: torch.Tensor) -> Any:
        if x.sum() > 0:
            x = self.up(x)
        else:
            x = self.down(x)
        while x.norm() > 1:
            x = x / 2
        for row in x:
            self.state = 0.9 * self.state + row
        return x, self.state


@pytest.mark.parametrize("strict", [False, True])
def test_the_first_page(strict: bool) -> None:
    model = FirstPage()
    program = tintype.export(model, (matrices()[0],), dynamic_shapes=ROWS, strict=strict)
    module, eager = program.module(), copy.deepcopy(model)
    for x in matrices():
        for value in (x, -x):
            torch.testing.assert_close(module(value), eager(value))
    torch.testing.assert_close(module.state, eager.state)
    torch.testing.assert_close(model.state, torch.zeros(3))


class Recurrent(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = torch.nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state = torch.zeros(3)
        states = []
        for row in x:
            state = torch.tanh(self.cell(torch.cat([row, state])))
            states.append(state)
        return (torch.stack(states) ** 2).sum()


def test_a_joint_graph_has_the_gradients_of_every_step() -> None:
    model = Recurrent()
    joint = tintype.export_joint(model, (matrices()[0],), dynamic_shapes=ROWS)
    for x in matrices():
        model.zero_grad()
        loss = model(x)
        loss.backward()
        found = joint.module()(x)
        torch.testing.assert_close(found[0], loss)
        for name, parameter in model.named_parameters():
            torch.testing.assert_close(found[1][name], parameter.grad)


def mutates_after_a_loop(x):
    y = x
    while y.sum() < 3:
        y = y + 1
    y.add_(1)
    return y, x * 2


def test_a_write_to_what_a_loop_without_steps_leaves_is_refused() -> None:
    with pytest.raises(tintype.errors.MutationError):
        tintype.export(mutates_after_a_loop, (torch.ones(3),))


def filters(x):
    return torch.stack([value for value in (x, x + 1, x * 3) if value.sum() > 0])


def test_what_a_comprehension_leaves_out_is_not_in_its_list() -> None:
    module = tintype.export(filters, (torch.ones(2),)).module()
    for given in (torch.ones(2), torch.full((2,), -0.5), torch.tensor([-0.2, 0.1])):
        torch.testing.assert_close(module(given), filters(given))
    with pytest.raises(RuntimeError):  # there is nothing to be stacked
        module(torch.full((2,), -2.0))


class Keeping(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("state", torch.zeros(3))

    def forward(self, x: torch.Tensor) -> Any:
        if x.sum() > 0:
            self.state = self.state + 1
        return self.state, x + self.state


def test_a_buffer_that_an_arm_assigns_can_be_returned() -> None:
    module, eager = tintype.export(Keeping(), (torch.ones(3),)).module(), Keeping()
    for x in (torch.ones(3), -torch.ones(3), torch.ones(3)):
        torch.testing.assert_close(module(x), eager(x))


class MethodAndHead(torch.nn.Module):
    """Steps in a method, and modules that are called with what it returns."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.head = torch.nn.GRUCell(3, 3), torch.nn.Linear(3, 2)

    def steps(self, x: torch.Tensor) -> torch.Tensor:
        state, found = torch.zeros(3), []
        for i in range(x.shape[0]):
            state = self.cell(x[i], state)
            found.append(state)
        return torch.stack(found)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.steps(x)).relu()


@pytest.mark.parametrize("strict", [False, True])
def test_modules_that_are_called_behind_a_loop_keep_no_list_of_its_alive(strict: bool) -> None:
    model = MethodAndHead()
    module = tintype.export(model, (torch.randn(4, 3),), dynamic_shapes=ROWS, strict=strict).module()
    for rows in (1, 3, 6):
        x = torch.randn(rows, 3)
        assert torch.allclose(module(x), model(x), atol=1e-6)


class Cells(torch.nn.Module):
    """Its steps call modules of torch's, and append to a list."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = torch.nn.LSTMCell(3, 3)
        self.gru = torch.nn.GRUCell(3, 3)

    def forward(self, x: torch.Tensor) -> Any:
        hidden = torch.zeros(1, 3)
        state, outputs, others = (torch.zeros(1, 3), torch.zeros(1, 3)), [], []
        for row in x:
            state = self.lstm(row[None], state)
            if state[0].sum() > 0:
                hidden = self.gru(row[None], hidden)
            outputs.append(state[0])
            others.append(hidden)
        return torch.cat(outputs), torch.cat(others), state


@pytest.mark.parametrize("strict", [False, True])
def test_a_list_grows_in_steps_that_call_modules(strict: bool) -> None:
    model = Cells()
    sizes = {"x": {0: tintype.Dim("rows", min=1)}}
    module = tintype.export(model, (torch.randn(3, 3),), dynamic_shapes=sizes, strict=strict).module()
    for rows in (1, 2, 7):
        x = torch.randn(rows, 3)
        torch.testing.assert_close(module(x), model(x))


def best_path(x: torch.Tensor) -> torch.Tensor:
    """Viterbi's algorithm: the way back goes through what the way there noted."""
    score, noted = x[0], []
    for i in range(1, x.shape[0]):
        score, places = (score.unsqueeze(1) + torch.arange(9.0).reshape(3, 3).sin() + x[i]).max(0)
        noted.append(places)
    best = score.argmax(-1)
    path = [best]
    for places in reversed(noted):
        best = places[best]
        path.append(best)
    return torch.stack(path[::-1])


def there_and_back(x: torch.Tensor) -> list[torch.Tensor]:
    state, states = x.new_zeros(x.shape[1]), []
    for row in x:
        state = torch.tanh(state + row)
        states.append(state)
    backwards = []
    for made in states[::-1]:
        state = made * 2 + state
        backwards.append(state)
    back = backwards[::-1]
    return [
        torch.stack(back) + torch.stack(states),
        torch.stack(states[1:]) - torch.stack(states[:-1]),
        torch.cat(states[::2]),
        states[::-1][0] * len(states[1:]) + back[0] + back[-1],
    ]


def written_backwards(x: torch.Tensor) -> torch.Tensor:
    rows = [row * 2 for row in x]
    rows[::-1][0].add_(1)
    return torch.stack(rows)


@pytest.mark.parametrize("function", [best_path, there_and_back, written_backwards])
@pytest.mark.parametrize("mode", ["export", "strict", "training", "decomposed", "saved"])
def test_parts_of_lists_that_grew(function: Any, mode: str) -> None:
    sizes = {"x": {0: tintype.Dim("rows", min=2)}}
    x = torch.randn(5, 3)
    if mode == "training":
        module = tintype.export_for_training(function, (x,), dynamic_shapes=sizes).module()
    else:
        program = tintype.export(function, (x,), dynamic_shapes=sizes, strict=mode == "strict")
        program = program.run_decompositions() if mode == "decomposed" else program
        program = saved_and_loaded(program) if mode == "saved" else program
        module = program.module()
    for rows in (2, 3, 5, 8):
        x = torch.randn(rows, 3)
        for expected, found in zip(function(x), module(x), strict=True):
            torch.testing.assert_close(found, expected)


def test_gradients_of_parts_of_lists_that_grew() -> None:
    sizes, x = {"x": {0: tintype.Dim("rows", min=2)}}, torch.randn(7, 3, requires_grad=True)
    module = tintype.export(there_and_back, (torch.randn(5, 3, requires_grad=True),), dynamic_shapes=sizes).module()
    losses = [sum(part.square().sum() for part in call(x)) for call in (there_and_back, module)]
    expected, found = (torch.autograd.grad(loss, x)[0] for loss in losses)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("strict", [False, True])
def test_an_iterator_that_a_loop_has_gone_through_has_nothing_left(strict: bool) -> None:
    def twice(x: torch.Tensor) -> torch.Tensor:
        numbered, total = enumerate(x), torch.zeros(3)
        for i, row in numbered:
            total = total + row * i
        for _ in numbered:
            total = total + 1
        return total

    module = tintype.export(twice, (torch.randn(4, 3),), dynamic_shapes=ROWS, strict=strict).module()
    for rows in (1, 4, 6):
        x = torch.randn(rows, 3)
        torch.testing.assert_close(module(x), twice(x))


def left_in_between(x: torch.Tensor) -> torch.Tensor:
    numbered, total = enumerate(x), torch.zeros(3)
    for _, row in numbered:
        total = total + row
        if total.sum() > 4:
            break
    for _ in numbered:
        total = total + 1
    return total


def gone_through_in_one_arm(x: torch.Tensor) -> torch.Tensor:
    numbered, total = enumerate(x), torch.zeros(3)
    if x.sum() > 0:
        for _, row in numbered:
            total = total + row
    for _ in numbered:
        total = total + 1
    return total


@pytest.mark.parametrize("function", [left_in_between, gone_through_in_one_arm])
def test_an_iterator_of_which_the_data_decide_what_is_left_is_refused(function: Any) -> None:
    with pytest.raises(tintype.TintypeError, match=r"only (they|the data) decide which"):
        tintype.export(function, (torch.randn(4, 3),), dynamic_shapes={"x": {0: tintype.Dim.AUTO}})
