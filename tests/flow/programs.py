"""Programs in plain Python whose control flow the data decide, each with inputs that take every way through it.

No test file, so that pytest leaves ``assert`` as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

PROGRAMS: dict[str, tuple[Callable[..., Any], list[tuple[Any, ...]]]] = {}

X = torch.tensor([1.0, 2.0, 3.0])
VECTORS = [(X,), (-X,), (X * 0,), (X * 10,), (X * -0.1,)]


def program(*inputs: tuple[Any, ...]) -> Callable[[Any], Any]:
    def register(function: Any) -> Any:
        PROGRAMS[function.__name__] = (function, list(inputs) or VECTORS)
        return function

    return register


def asserted_on_several_lines(x: Any) -> Any:
    # fmt: off
    assert x.sum() > 0, (
        "must be positive")
    # fmt: on
    return x * 2


# --- branches ----------------------------------------------------------------------------------------------------


@program()
def assigns_a_local(x):
    if x.sum() > 0:
        y = x.sin()
    else:
        y = x.cos()
    return y + 1


@program()
def has_no_else(x):
    if x.sum() > 0:
        x = x * 2
    return x + 1


@program()
def has_elif(x):
    if x.sum() > 10:
        y = x.sin()
    elif x.sum() < -3:
        y = x.cos()
    else:
        y = x
    return y + 1


@program()
def returns_early(x):
    if x.mean() > 5:
        return x * 2
    if x.mean() > 0:
        return x + 1
    return x - 1


@program()
def is_a_ternary(x):
    return (x if x.sum() > 0 else -x) * (2 if x.max() > 5 else 3)


@program()
def is_nested(x):
    if x.sum() > 0:
        x = x + 1
        if x.max() > 5:
            x = x * 2
        else:
            x = x / 2
    return x


@program()
def returns_from_a_nested_branch(x):
    if x.sum() >= 0:
        if x.max() > 5:
            return x * 100
        x = x + 1
    return x - 1


def helper(x):
    if x.sum() > 0:
        return x + 1
    return x - 1


@program()
def calls_a_helper_twice(x):
    return helper(helper(x) * 2)


@program()
def uses_and_and_or(x):
    if (x.sum() > 0 and x.max() < 5) or x.min() < -2:
        return x + 1
    return x - 1


@program()
def uses_not(x):
    if not x.sum() > 0:
        return x + 1
    return x - 1


@program()
def negates_a_value(x):
    flag = not x.sum() > 0
    return x + 1 if flag else x - 1


@program()
def chains_comparisons(x):
    if 0 < x.sum() < 10:
        return x + 1
    return x - 1


@program()
def leaves_a_variable_unbound(x):
    if x.sum() > 0:
        unused = x * 2
        x = unused + 1
    return x


@program()
def counts_in_arms(x):
    count = 0
    if x.sum() > 0:
        count += 1
    if x.max() > 5:
        count += 2
    return x * count, count


@program()
def numbers_decide_later(x):
    scale = 0.5 if x.sum() > 0 else 2.0
    if scale > 1:
        return x * scale
    return x / scale


@program()
def merges_tuples(x):
    pair = (x, x + 1) if x.sum() > 0 else (x * 2, x - 1)
    return pair[0] * pair[1]


@program()
def merges_dictionaries(x):
    if x.sum() > 0:
        found = {"a": x, "b": [x + 1]}
    else:
        found = {"a": x * 2, "b": [x]}
    return found["a"] + found["b"][0]


@program()
def appends_in_both_arms(x):
    found = []
    if x.sum() > 0:
        found.append(x)
        found.append(x * 2)
    else:
        found.append(x - 1)
        found.append(x)
    return torch.stack(found)


@program()
def writes_items(x):
    found = {"y": x}
    rows = [x, x]
    if x.sum() > 0:
        found["y"] = x + 1
        rows[1] = x * 3
    return found["y"] + rows[1]


@program()
def writes_in_place(x):
    y = x.clone()
    if x.sum() > 0:
        y.add_(1)
        y[0] = 7.0
    return y


@program()
def writes_a_closure(x):
    total = x

    def add(value):
        nonlocal total
        if value.sum() > 0:
            total = total + value

    add(x)
    add(-x)
    return total


@program()
def asserts(x):
    assert x.sum() > -3, "too small"
    return x + 1


@program()
def raises(x):
    if x.sum() < -3:
        raise ValueError("too small")
    if x.max() > 5:
        return x * 2
    return x


@program()
def asks_for_an_item(x):
    n = int(x.sum().item())
    if n > 3:
        return x * n
    return x - n


@program()
def branches_in_a_fixed_loop(x):
    for i in range(3):
        if x.sum() > i:
            x = x - 1
        else:
            x = x + 2
    return x


@program()
def breaks_out_of_a_fixed_loop(x):
    for i in range(4):
        x = x + i
        if x.sum() > 6:
            break
    else:
        x = x * 10
    return x


@program()
def matches(x):
    match x.sum() > 0:
        case flag if flag:
            return x + 1
        case _:
            return x - 1


@program()
def has_a_region_without_gradients(x):
    with torch.no_grad():
        if x.sum() > 0:
            scale = x.max()
        else:
            scale = x.min()
    return x * scale


@program()
def makes_lists_in_arms(x):
    if x.sum() > 0:
        found = [x]
        found.append(x + 1)
    else:
        found = [x, x * 3]
    return torch.stack(found)


@program()
def makes_a_list_in_one_arm(x):
    if x.sum() > 0:
        found = []
        found.append(x + 1)
        found += [value * 2 for value in (x, x - 1)]
        x = torch.stack(found).sum(0)
    return x


@program()
def makes_dictionaries_in_arms(x):
    if x.sum() > 0:
        found = {"a": x}
        found["a"] = x + 5
        found["b"] = x
    else:
        found = dict(zip(("a",), (x * 2,), strict=True))
        found["b"] = x + 7
    return found["a"] * found["b"]


class Pair:
    def __init__(self, first):
        self.first = first
        self.second = first


@program()
def makes_objects_in_arms(x):
    if x.sum() > 0:
        pair = Pair(x)
        pair.second = pair.second + 1
        x = pair.first * pair.second
    return x


@program()
def has_a_closure_in_an_arm(x):
    def doubled(value):
        count = 0

        def add():
            nonlocal count
            count += 1
            return value * count

        return add() + add()

    if x.sum() > 0:
        x = doubled(x)
    return x


@program()
def swaps_in_an_arm(x):
    rows = [x, x + 1]
    if x.sum() > 0:
        rows[0], rows[1] = rows[1], rows[0]
    return rows[0] - rows[1] * 2


@program()
def deletes_in_both_arms(x):
    found = {"a": x, "b": x + 1}
    if x.sum() > 0:
        y = found.pop("a")
    else:
        y = found.pop("a") * 2
    return y, found["b"], len(found)


@program()
def tries(x):
    try:
        if x.sum() > 0:
            x = x + 1
        else:
            x = x - 1
    finally:
        x = x * 2
    return x


@program()
def branches_on_an_element(x):
    if x[0] > x[1]:
        return x.flip(0)
    return x


@program()
def chooses_a_function(x):
    y = torch.sin(x) if x.max() > 1 else torch.cos(x)
    return y * (x.sum() if x.sum() > y.sum() else y.sum())


# --- while -------------------------------------------------------------------------------------------------------


@program()
def doubles(x):
    while x.sum() < 20:
        x = x * 2 + 9
    return x


@program()
def counts_steps(x):
    i = 0
    while x.sum() < 20:
        x = x * 2 + 9
        i += 1
    return x, i


@program()
def breaks(x):
    while x.sum() < 20:
        x = x + 1
        if x.max() > 5:
            break
    return x


@program()
def returns_from_a_loop(x):
    while x.sum() < 20:
        x = x + 1
        if x.max() > 5:
            return x * 100
    return x


@program()
def loops_for_ever(x):
    while True:
        x = x + 1
        if x.sum() > 10:
            break
    return x


@program()
def continues(x):
    n = 0
    while x.sum() < 20:
        x = x + 1
        if x.max() > 4:
            continue
        n = n + 2
    else:
        x = x + 100
    return x, n


@program()
def has_a_loop_with_else(x):
    while x.sum() < 20:
        x = x + 1
        if x.max() > 4:
            y = x * 3
            break
    else:
        y = x - 7
    return y


@program()
def loops_in_place(x):
    x = x.clone()
    while x.sum() < 20:
        x += 1
    return x


@program()
def loops_on_both(x):
    i = 0
    while i < 10 and x.sum() < 20:
        x = x + i
        i += 1
    return x, i


@program()
def loops_in_a_loop(x):
    while x.sum() < 20:
        while x.max() < 5:
            x = x + 1
        x = x * 2 + 3
    return x


@program()
def branches_in_a_loop(x):
    while x.sum() < 20:
        if x.max() > 3:
            x = x + 3
        else:
            x = x + 1
    return x


@program()
def carries_a_tuple(x):
    pair = (x, x.sum())
    while pair[1] < 20:
        pair = (pair[0] + 1, pair[1] + pair[0].max().abs() + 1)
    return pair


@program()
def loops_in_an_arm(x):
    if x.sum() > 0:
        while x.sum() < 20:
            x = x * 2
    return x


@program()
def swaps(x):
    a, b = x, x + 1
    while a.sum() < 20:
        a, b = b, a + 2
    return a, b


@program()
def chains_comparisons_in_a_loop(x):
    i = 0
    while i < 30 and -20 < x.sum() < 20:
        x = x * 2 + 1
        i += 1
    return x, i


@program()
def returns_from_a_for_in_a_while(x):
    n = 0
    while n < 3 and x.sum() < 20:
        n += 1
        for i in range(3):
            if x.max() > 4:
                return x.sin() + i, n
            x = x + 1
    return x, n


@program()
def breaks_out_of_a_for_and_a_while(x):
    while x.sum() < 20:
        for i in range(2):
            if x.max() > 4:
                x = x * 2 + i
                break
            x = x + 1
        else:
            continue
        break
    return x


@program((X, X + 3), (X * 0, X + 3), (-X, X))
def has_a_condition_on_what_no_step_reads(x, y):
    while x.sum() > 1:
        y = y - 1
        x = y * 2
    x = y + 1
    return x * 2


@program((X, X + 3), (X * 0, X + 3), (-X, X))
def has_an_or_in_a_condition(x, y):
    i = 0
    while i < 3 and (x.sum() > 1 or x.mean() > y.mean()):
        i += 1
        y = y + 1.5
        x = y * 2
    x = y + i
    return x, y


@program()
def continues_in_vain(x):
    n = 1
    i = 0
    while i < 3 and x.max() < 0:
        i += 1
        x = x + 1
        if n > 2:
            continue
    return x


@program()
def makes_containers_in_a_loop(x):
    while x.sum() < 20:
        found = [x]
        found.append(x + 1)
        table = {"sum": torch.stack(found).sum(0)}
        table["sum"] = table["sum"] + 1
        x = table["sum"]
    return x


@program()
def collects_into_a_tensor(x):
    found = torch.zeros(8)
    i = 0
    while x.sum() < 20 and i < 8:
        found[i] = x.sum()
        x = x + 1
        i += 1
    return found, i
