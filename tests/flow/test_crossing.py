"""What a function returns need not be merged: what follows in its caller is captured with each arm."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

import tintype
from tests.export.modes import MODES, capture
from tests.flow.crossing_programs import PROGRAMS, VECTORS, maybe
from tests.flow.test_programs import outcome, same


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_is_right_on_every_way(name: str, mode: str) -> None:
    function, inputs = PROGRAMS[name]
    program = capture(mode, function, inputs[0])
    module = tintype.unflatten(program) if mode == "unflattened" else program.module()
    for given in inputs:
        assert same(outcome(function, given), outcome(module, given)), given


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_is_right_where_every_line_is_interpreted(name: str) -> None:
    function, inputs = PROGRAMS[name]
    module = tintype.export(function, inputs[0], strict=True).module()
    for given in inputs:
        assert same(outcome(function, given), outcome(module, given)), given


class Part(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(3))
        self.layer = torch.nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> Any:
        self.seen += 1
        if x.sum() > 0:
            self.seen.mul_(2)
            return self.layer(x), None
        self.seen.sub_(0.5)
        return None, x


class Whole(torch.nn.Module):
    """Calls modules that return what can't be merged, one of them with a hook, and writes to buffers between."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Part(), Part()
        self.second.register_forward_hook(lambda module, arguments, output: output)
        self.register_buffer("total", torch.zeros(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a, b = self.first(x)
        self.total += 1
        c = a if a is not None else b * 2
        self.total += c
        d, e = self.second(c - 1)
        if d is None:
            return e + self.total + self.first.seen
        return d * c + self.second.seen


@pytest.mark.parametrize("strict", [False, True])
def test_modules_that_write_to_buffers(strict: bool) -> None:
    model = Whole()
    module = tintype.export(copy.deepcopy(model), VECTORS[0], strict=strict).module()
    for given in VECTORS:
        torch.testing.assert_close(module(*given), model(*given))
        for name, buffer in model.named_buffers():
            torch.testing.assert_close(module.get_buffer(name), buffer, msg=name)


class Loss(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        penalty = maybe(self.layer(x))
        loss = self.layer(x).square().sum()
        return loss if penalty is None else loss + penalty.sum()


def test_joint_programs() -> None:
    model = Loss()
    joint = tintype.export_joint(model, VECTORS[0]).module()
    for given in VECTORS:
        model.zero_grad()
        loss = model(*given)
        loss.backward()
        found = joint(*given)
        torch.testing.assert_close(found[0], loss)
        for name, parameter in model.named_parameters():
            torch.testing.assert_close(found[1][name], parameter.grad)


def sums_rows(x):
    total = torch.zeros(2)
    for row in x:
        found = maybe(row)
        if found is None:
            continue
        total = total + found
    return total


def sums_rows_up_to_one(x):
    total = torch.zeros(2)
    for row in x:
        found = maybe(row)
        if found is None:
            break
        total = total + found
    return total


@pytest.mark.parametrize("function", [sums_rows, sums_rows_up_to_one])
def test_steps_whose_number_varies(function: Any) -> None:
    x = torch.tensor([[1.0, 2.0], [-3.0, 1.0], [2.0, 2.0]])
    module = tintype.export(function, (x,), dynamic_shapes={"x": {0: tintype.Dim("rows")}}).module()
    for given in (x, -x, x[:1], x[:0], torch.cat([x, x])):
        torch.testing.assert_close(module(given), function(given))


def test_what_follows_once_they_can_be_merged_is_captured_once() -> None:
    def nodes(count: int) -> int:
        lines = "".join("    y = maybe(x)\n    x = x + 1 if y is None else y\n" for _ in range(count))
        names: dict[str, Any] = {"maybe": maybe}
        exec(f"def function(x):\n{lines}    return x\n", names)
        program = tintype.export(names["function"], VECTORS[0])
        graphs = [module for module in program.graph_module.modules() if hasattr(module, "graph")]
        return sum(len(graph.graph.nodes) for graph in graphs)

    assert nodes(12) < 2.2 * nodes(6)


def test_what_leaves_the_program_is_refused_with_both_lines() -> None:
    with pytest.raises(tintype.CaptureError, match=r"f32\[3\] at line .*\n  None at line"):
        tintype.export(maybe, VECTORS[0])


def test_what_somebody_holds_who_goes_on_is_refused() -> None:
    def appends(kept: list[torch.Tensor], x: torch.Tensor) -> Any:
        if x.sum() > 0:
            kept.append(x)
            return True
        return None

    def function(x: torch.Tensor, kept: list[torch.Tensor]) -> torch.Tensor:
        return x if appends(kept, x) else -x

    with pytest.raises(tintype.CaptureError, match="True at line"):
        tintype.export(function, (torch.ones(3), [torch.ones(3)]))


def grown(x: torch.Tensor) -> list[torch.Tensor]:
    found = [x]
    if x.sum() > 0:
        found.append(x)
    return found


def grown_in_either_arm(x: torch.Tensor) -> list[torch.Tensor]:
    found = [x]
    if x.sum() > 0:
        if x.max() > 2:
            found.append(x)
            return found
        found += [x, x]
    return found


def counts_what_grew(x: torch.Tensor) -> torch.Tensor:
    found = grown(x)
    found.append(x)
    return sum(found) + len(grown_in_either_arm(x))


def test_a_list_that_a_function_returns_is_not_over_with_it() -> None:
    module = tintype.export(counts_what_grew, VECTORS[0]).module()
    for given in VECTORS:
        torch.testing.assert_close(module(*given), counts_what_grew(*given))
    with pytest.raises(tintype.CaptureError, match="the content of a list becomes something else"):
        tintype.export(grown, VECTORS[0])
