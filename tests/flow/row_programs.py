"""Programs in plain Python that loop over rows and sizes that vary; each takes a matrix of any number of rows.

No test file, so that pytest leaves ``assert`` as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

# a function, and the operators that its loops become
ROW_PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[str, ...]]] = {}
# a function, and what its error says
REFUSED: dict[str, tuple[Callable[..., Any], str]] = {}


def becomes(*operators: str) -> Callable[[Any], Any]:
    def register(function: Any) -> Any:
        ROW_PROGRAMS[function.__name__] = (function, operators)
        return function

    return register


def refused(text: str) -> Callable[[Any], Any]:
    def register(function: Any) -> Any:
        REFUSED[function.__name__] = (function, text)
        return function

    return register


@becomes("scan")
def goes_through_rows(x):
    state = torch.zeros(3)
    for row in x:
        state = 0.9 * state + row
    return state


@becomes("scan")
def goes_through_a_range(x):
    state = torch.zeros(3)
    for i in range(x.shape[0]):
        state = 0.9 * state + x[i]
    return state


@becomes("scan")
def goes_through_a_range_backwards(x):
    state = torch.zeros(3)
    for i in range(len(x) - 1, -1, -1):
        state = 0.9 * state + x[i] * i
    return state


@becomes("scan")
def enumerates(x):
    state = torch.zeros(3)
    for i, row in enumerate(x, 1):
        state = state + row * i
    return state


@becomes("scan")
def zips(x):
    state = torch.ones(3)
    for a, (i, b) in zip(x, enumerate(x * 2)):
        state = state * a.sin() + b * i
    return state


@becomes("scan")
def zips_what_is_shorter(x):
    state = torch.ones(3)
    for a, b in zip(x[1:], x):
        state = state * 0.5 + a - b
    return state


@becomes("scan")
def reverses_a_range(x):
    state = torch.zeros(3)
    for i in reversed(range(x.size(0))):
        state = state * 0.5 + x[i]
    return state


@becomes("scan")
def reverses_rows(x):
    state = torch.zeros(3)
    for row in reversed(x):
        state = state * 0.5 + row
    return state


@becomes("map_impl")
def is_a_comprehension(x):
    return torch.stack([row.softmax(0) for row in x])


@becomes("map_impl")
def subtracts_neighbours(x):
    found = [x[0]]
    for i in range(1, x.shape[0]):
        found.append(x[i] - x[i - 1])  # noqa: PERF401
    return torch.stack(found)


@becomes("scan")
def collects_states(x):
    states = []
    state = torch.zeros(3)
    for row in x:
        state = torch.tanh(state + row)
        states.append(state)
    return torch.stack(states), torch.cat(states), state


@becomes("map_impl")
def collects_several(x):
    found = [torch.zeros(3)]
    for i, row in enumerate(x):
        found.append(row * i)
        found += [row + 1]
    return torch.cat(found), torch.stack(found, 1), found[-1], len(found)


@becomes("map_impl", "cond")
def collects_in_both_arms(x):
    found = []
    for row in x:
        if row.sum() > 0:
            found.append(row)
        else:
            found.append(-row * 2)
    return torch.stack(found)


def fill(x, found):
    for row in x:
        found.append(row * 2)


@becomes("map_impl", "scan")
def collects_in_a_helper(x):
    found = []
    fill(x, found)
    total = torch.zeros(3)
    for row in found:
        total = total * 0.5 + row
    return total


@becomes("while_loop", "cond", "cond")
def breaks(x):
    total = torch.zeros(3)
    for row in x:
        if row.sum() > 1:
            total = total - 100
            break
        total = total + row
    else:
        total = total * 2
    return total


@becomes("while_loop", "cond", "cond")
def finds(x):
    for row in x:
        if row.sum() > 0:
            best = row
            break
    else:
        best = torch.zeros(3)
    return best * 2


@becomes("while_loop", "cond", "cond")
def returns(x):
    total = torch.zeros(3)
    for i, row in enumerate(x):
        if row.sum() > 1:
            return total + row * i
        total = total + row
    return total * 3


@becomes("scan", "cond")
def continues(x):
    total = torch.zeros(3)
    n = 0
    for i in range(x.shape[0]):
        if x[i].sum() > 0:
            continue
        total = total + x[i]
        n += 1
    return total, n


@becomes("scan")
def writes_rows(x):
    y = torch.zeros_like(x)
    for i in range(x.shape[0]):
        y[i] = x[i] * 2 + i
    return y


@becomes("scan")
def nests_loops(x):
    total = torch.zeros(())
    for row in x:
        for other in x:
            total = total * 0.5 + (row * other).sum().tanh()
    return total


@becomes("scan")
def is_as_long_as_the_data_say(x):
    total = torch.zeros(3)
    for i in range(int(x.abs().sum())):
        total = total + i
    return total


@becomes("scan")
def goes_through_chosen_rows(x):
    total = torch.zeros(3)
    for row in x[x.sum(1) > 0]:
        total = total * 0.5 + row
    return total


@becomes("scan")
def keeps_the_last(x):
    for row in x:
        y = row * 2
    return y + row


@becomes("scan")
def begins_with_a_number(x):
    total = 0
    for row in x:
        total = total + row.exp()
    return total


@becomes("scan")
def begins_with_none(x):
    state = None
    for row in x:
        state = row if state is None else state * 0.5 + row
    return state


@becomes("cond", "scan")
def loops_in_an_arm(x):
    total = torch.zeros(3)
    if x.sum() > 0:
        for row in x:
            total = total * 0.5 + row
    return total


@becomes("scan", "cond")
def counts(x):
    n = 0
    for row in x:
        if row.sum() > 0:
            n += 1
    return x * n, n


@becomes("scan")
def carries_a_dictionary(x):
    state = {"sum": torch.zeros(3), "count": 0}
    for row in x:
        state["sum"] = state["sum"] * 0.5 + row
        state["count"] += 1
    return state["sum"], state["count"]


@becomes("map_impl", "while_loop")
def has_a_while_in_a_for(x):
    found = []
    for row in x:
        while row.abs().sum() > 1:
            row = row / 2
        found.append(row)
    return torch.stack(found)


@becomes("while_loop", "scan")
def has_a_for_in_a_while(x):
    total = torch.zeros(())
    while total < 3:
        for row in x:
            total = total + row.abs().sum() + 0.1
        total = total + 1
    return total


# --- refused -----------------------------------------------------------------------------------------------------


@refused("written to in place: all items are that one tensor")
def appends_one_tensor_again_and_again(x):
    total = torch.zeros(3)
    found = []
    for row in x:
        total += row
        found.append(total)
    return torch.stack(found)


@refused("writes to its source afterwards")
def writes_to_what_a_list_holds(x):
    found = []
    y = x.clone()
    for row in y:
        found.append(row)  # noqa: PERF402
    y.add_(1)
    return torch.stack(found)


@refused("cannot mutate tensors with frozen storage")
def writes_to_the_last_item(x):
    found = []
    state = torch.zeros(3)
    for row in x:
        state = state + row
        found.append(state)
    state.add_(100)
    return torch.stack(found)


@refused("looks into a list that grows")
def asks_for_the_length_of_a_growing_list(x):
    found = []
    for row in x:
        found.append(row)
        if len(found) > 2:
            found.append(row)
    return torch.stack(found)


@refused("a list grows in a loop that the data may leave")
def leaves_a_loop_that_collects(x):
    found = []
    for row in x:
        if row.sum() > 0:
            break
        found.append(row)
    return torch.stack(found)


@refused("a generator yields")
def asks_a_generator(x):
    return x if any(row.sum() > 0 for row in x) else -x
