"""Plain Python programs on inputs that take every way through them."""

from __future__ import annotations

import types
from typing import Any

import pytest
import torch
import torch.utils._pytree as pytree

import tintype
import tintype.flow.policy
from tests.export.modes import MODES, capture
from tests.flow.programs import PROGRAMS
from tintype.interpret.flow import Flow


def outcome(function: Any, inputs: Any) -> Any:
    """What a call gives, with the gradients of its inputs; an exception is one outcome, whatever its class."""
    values = [value.clone().requires_grad_() if isinstance(value, torch.Tensor) else value for value in inputs]
    try:
        results = pytree.tree_leaves(function(*values))
    except (RuntimeError, ValueError, AssertionError):
        return "raised"
    losses = [result.sum() for result in results if isinstance(result, torch.Tensor) and result.requires_grad]
    if losses:
        sum(losses).backward()
    return results, [value.grad for value in values if isinstance(value, torch.Tensor)]


def same(one: Any, other: Any) -> bool:
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(same(a, b) for a, b in zip(one, other, strict=True))
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return one.dtype == other.dtype and one.shape == other.shape and torch.allclose(one, other, equal_nan=True)
    if one is None or other is None:  # no gradient, or one of zeros
        tensor = other if one is None else one
        return tensor is None or not tensor.any()
    return type(one) is type(other) and one == other


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_is_right_on_every_way(name: str, mode: str) -> None:
    function, inputs = PROGRAMS[name]
    module = capture(mode, function, inputs[0])
    if mode == "unflattened":
        module = tintype.unflatten(module)
    else:
        module = module.module()
    for given in inputs:
        assert same(outcome(function, given), outcome(module, given)), given


def test_refuse_is_the_error_of_old() -> None:
    with pytest.raises(tintype.errors.DataDependentError):
        tintype.export(PROGRAMS["has_no_else"][0], (torch.ones(3),), control_flow="refuse")
    with pytest.raises(tintype.errors.InvalidRequestError, match="control_flow"):
        tintype.export(PROGRAMS["has_no_else"][0], (torch.ones(3),), control_flow="other")


class Counting(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.sum() > 0:
            self.count = self.count + 1
        return x * self.count


def test_a_number_that_the_model_would_keep_is_refused() -> None:
    with pytest.raises(tintype.CaptureError, match="which the next call would find"):
        tintype.export(Counting(), (torch.ones(3),))


def differs(x):
    y = None
    if x.sum() > 0:
        y = x
    return y


def test_values_without_a_common_form_are_named_with_both_lines() -> None:
    with pytest.raises(tintype.CaptureError, match="None at line") as caught:
        tintype.export(differs, (torch.ones(3),))
    assert "f32[3]" in str(caught.value) and caught.value.remedy is not None


@pytest.mark.parametrize("returns", [False, True])
def test_branches_in_sequence_cost_as_many_nodes(returns: bool) -> None:
    def nodes(count: int) -> int:
        arm = "return x * 2" if returns else "x = x + 1"
        body = "".join(f"    if x.sum() > {i}:\n        {arm}\n" for i in range(count))
        names: dict[str, Any] = {}
        exec(f"def function(x):\n{body}    return x\n", names)
        program = tintype.export(names["function"], (torch.ones(3),))
        graphs = [module for module in program.graph_module.modules() if hasattr(module, "graph")]
        return sum(len(graph.graph.nodes) for graph in graphs)

    assert nodes(24) < 2.2 * nodes(12)


class Keeping(torch.nn.Module):
    """Keeps a number that the data decide somewhere."""

    def __init__(self, where: str) -> None:
        super().__init__()
        self.where = where
        self.history: list[Any] = []
        self.table: dict[str, Any] = {"k": 0}
        self.last = 0
        self.note = types.SimpleNamespace(deep=[[0]])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n = 1
        if x.sum() > 0:
            n = 2
            if self.where == "arm":
                self.table["k"] = n
        if self.where == "list":
            self.history.append(n)
        elif self.where == "dictionary":
            self.table["k"] = n
        elif self.where == "attribute":
            self.last = n
        elif self.where == "object":
            self.note.deep[0][0] = n
        elif self.where == "global":
            OUTSIDE.append(n)
        return x * n


OUTSIDE: list[Any] = []


@pytest.mark.parametrize("where", ["arm", "list", "dictionary", "attribute", "object", "global"])
def test_a_number_is_refused_wherever_the_next_call_would_find_it(where: str) -> None:
    with pytest.raises(tintype.CaptureError, match="which the next call would find") as caught:
        tintype.export(Keeping(where), (torch.ones(3),))
    assert caught.value.location is not None and caught.value.location.filename == __file__
    assert not OUTSIDE
    tintype.export(Keeping("nowhere"), (torch.ones(3),))


def returning_from_inside(count: int) -> Any:
    statement = "    if x.sum() > {0}:\n        if x.max() > {0}:\n            return x * {0}\n"
    body = "".join(statement.format(i) for i in range(count))
    names: dict[str, Any] = {}
    exec(f"def function(x):\n{body}    return x\n", names)
    return names["function"]


def test_what_follows_is_not_captured_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where arms are not found to meet anywhere, each has what follows, up to a limit."""
    monkeypatch.setattr(Flow, "meeting_of", lambda *_: None)
    module = tintype.export(returning_from_inside(3), (torch.ones(3),)).module()
    for x in (torch.ones(3), -torch.ones(3), torch.tensor([5.0, -4.0, 0.0]), torch.tensor([0.7, 0.2, 0.2])):
        torch.testing.assert_close(module(x), returning_from_inside(3)(x))
    with pytest.raises(tintype.CaptureError, match="captured for each way") as caught:
        tintype.export(returning_from_inside(40), (torch.ones(3),))
    assert caught.value.location is not None and "return it at the end" in str(caught.value.remedy)


def test_calls_of_a_helper_don_t_add_up_to_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Flow, "meeting_of", lambda *_: None)
    monkeypatch.setattr(tintype.flow.policy, "_MOST_TWICE", 10)
    helper = returning_from_inside(1)

    def function(x: torch.Tensor) -> torch.Tensor:
        for _ in range(12):
            x = helper(x)
        return x

    tintype.export(function, (torch.ones(3),))


def decides_twice(x):
    if x.sum() > 0:
        while x.sum() < 20:
            x = x * 2
    return x


def test_the_contract_and_the_text_say_which_lines_became_control_flow(tmp_path: Any) -> None:
    program = tintype.export(decides_twice, (torch.ones(3),))
    first = decides_twice.__code__.co_firstlineno
    tintype.save(program, tmp_path / "program.pt2")
    for known in (program, tintype.load(tmp_path / "program.pt2")):
        lines = [line for line in known.contract() if line.kind == "control flow"]
        found = [(line.text.partition(":")[0], line.location and line.location.line) for line in lines]
        assert found == [("cond", first + 1), ("while_loop", first + 2)]
    assert "if x.sum() > 0:" in program.code and "while x.sum() < 20:" in program.code
    assert "all sizes are those of the example inputs\ncond: the data decide" in str(program.contract())
