"""Programs written with operators and the same ones in plain Python are the same graphs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

import tintype
from tests.flow.test_programs import outcome, same

ROWS = {"x": {0: tintype.Dim("rows", min=1)}}  # torch.stack of no rows is an error, so a list has one
PAGE = Path(__file__).parents[2] / "docs" / "control_flow.md"


def model_of_the_page() -> Any:
    """The model of the page's first block."""
    names: dict[str, Any] = {}
    block = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)[0]
    exec(block.split("model, x =")[0], names)
    return names["Model"]()


class PlainModel(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> Any:
        state, rows = torch.zeros(4), []
        for row in x:
            self.calls.add_(1)
            if row.sum() > 0:
                state = self.layer(state + row)
            else:
                state = state - row
            rows.append(state.relu())
        while state.abs().sum() > 1:
            state = state / 2
        return state, torch.stack(rows), torch.stack([row.softmax(0) for row in x])


def cond_by_hand(x):
    return tintype.cond(x.sum() > 0, lambda: x.sin(), lambda: x.cos()) + 1


def cond_plain(x):
    if x.sum() > 0:
        y = x.sin()
    else:
        y = x.cos()
    return y + 1


def cond_in_cond_by_hand(x):
    return tintype.cond(
        x.sum() > 0, lambda: tintype.cond(x.sum() > 2, lambda: x * 2, lambda: x * 3), lambda: x.relu() + x.sum()
    )


def cond_in_cond_plain(x):
    if x.sum() > 0:
        return x * 2 if x.sum() > 2 else x * 3
    return x.relu() + x.sum()


def while_loop_by_hand(x):
    x, steps = tintype.while_loop(lambda x, n: x.norm() > 1, lambda x, n: (x / 2, n + 1), (x, torch.zeros(())))
    return x, steps


def while_loop_plain(x):
    steps = torch.zeros(())
    while x.norm() > 1:
        x = x / 2
        steps = steps + 1
    return x, steps


def scan_by_hand(x):
    total, rows = tintype.scan(lambda total, row: (total + row, total * row), torch.zeros(4), x)
    return total, rows


def scan_plain(x):
    total, rows = torch.zeros(4), []
    for row in x:
        total, following = total + row, total * row
        rows.append(following)
    return total, torch.stack(rows)


def map_by_hand(x):
    return tintype.map(lambda row: row.exp() - row.max(), x)


def map_plain(x):
    return torch.stack([row.exp() - row.max() for row in x])


PAIRS: dict[str, tuple[Any, Any]] = {
    "page": (model_of_the_page, PlainModel),
    "cond": (lambda: cond_by_hand, lambda: cond_plain),
    "while_loop": (lambda: while_loop_by_hand, lambda: while_loop_plain),
    "scan": (lambda: scan_by_hand, lambda: scan_plain),
    "map": (lambda: map_by_hand, lambda: map_plain),
    "cond_in_cond": (lambda: cond_in_cond_by_hand, lambda: cond_in_cond_plain),
}


def text_of(program: Any) -> str:
    """All graphs, without lines of the source."""
    return "\n".join(line for line in program.code.splitlines() if not line.strip().startswith("#"))


@pytest.mark.parametrize("exporting", [tintype.export, tintype.export_for_training])
@pytest.mark.parametrize("name", PAIRS)
def test_plain_python_is_the_graph_that_is_written_by_hand(name: str, exporting: Any) -> None:
    x = torch.randn(3, 4)
    hand, plain = (make() for make in PAIRS[name])
    programs = [exporting(model, (x,), dynamic_shapes=ROWS) for model in (hand, plain)]
    assert text_of(programs[0]) == text_of(programs[1])
    assert "higher_order" in text_of(programs[1])
    assert programs[0].graph_signature == programs[1].graph_signature
    decomposed = [program.run_decompositions() for program in programs]
    assert text_of(decomposed[0]) == text_of(decomposed[1])


# --- stacked rows are copies in eager mode --------------------------------------------------------------------------


def writes_to_the_stacked(x):
    rows = [row * 2 for row in x]
    stacked = torch.stack(rows)
    stacked.add_(1)
    return stacked, rows[0], torch.stack(rows)


def writes_to_an_item(x):
    rows = [row * 2 for row in x]
    stacked = torch.stack(rows)
    rows[-1].mul_(3)
    return stacked, torch.stack(rows)


def stacks_twice(x):
    rows = [row * 2 for row in x]
    one, other = torch.stack(rows), torch.cat(rows)
    return one, other, torch.stack(rows, 1)


def stacks_without_gradients(x):
    rows = [row * 2 for row in x]
    with torch.no_grad():
        stacked = torch.stack(rows)
    return stacked * x


def collects_without_gradients(x):
    with torch.no_grad():
        rows = [row * 2 for row in x]
    return torch.stack(rows) * x


def stacks_what_it_was_given(x):
    stacked = torch.stack(list(x))
    stacked.add_(1)
    return stacked, x


def stacks_in_a_branch(x):
    rows = [row * 2 for row in x]
    if x.sum() > 0:
        return torch.stack(rows)
    return torch.stack(rows) + 1


COPIES = (
    writes_to_the_stacked,
    writes_to_an_item,
    stacks_twice,
    stacks_without_gradients,
    collects_without_gradients,
    stacks_what_it_was_given,
    stacks_in_a_branch,
)


@pytest.mark.parametrize("exporting", [tintype.export, tintype.export_for_training])
@pytest.mark.parametrize("function", COPIES)
def test_stacked_rows_are_no_alias(function: Any, exporting: Any) -> None:
    program = exporting(function, (torch.randn(3, 4),), dynamic_shapes=ROWS)
    for module in (program.module(), program.run_decompositions().module()):
        for x in (torch.randn(3, 4), -torch.ones(1, 4), torch.ones(5, 4)):
            assert same(outcome(function, (x,)), outcome(module, (x,)))


@pytest.mark.parametrize("function", COPIES)
def test_results_share_no_memory(function: Any) -> None:
    x = torch.randn(3, 4)
    results = tintype.export(function, (x,), dynamic_shapes=ROWS).module()(x)
    expected = function(x)
    if isinstance(results, tuple):
        shared = [[a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr() for a in given for b in given]
                  for given in (results, expected)]  # fmt: skip
        assert shared[0] == shared[1]
