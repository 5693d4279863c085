"""Programs whose helpers return what can't be merged: what follows in their callers is captured with each arm."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

VECTORS = [
    (torch.tensor(values),)
    for values in ([1.0, 2.0, 3.0], [-1.0, -2.0, -3.0], [5.0, -9.0, 1.0], [5.0, 1.0, 1.0], [0.1, 0.1, 0.1])
]
PROGRAMS: dict[str, tuple[Callable[..., Any], list[tuple[Any, ...]]]] = {}


def program(function: Any) -> Any:
    PROGRAMS[function.__name__] = (function, VECTORS)
    return function


def maybe(x):
    if x.sum() > 0:
        return x * 2
    return None


@program
def asks_whether_there_is_something(x):
    y = maybe(x)
    if y is None:
        return x - 1
    return y + 1


@program
def asks_many_times_one_after_the_other(x):
    for k in range(9):  # 512 ways, if they did not meet again
        y = maybe(x - k * 0.3)
        if y is None:
            y = x + 0.1
        x = y * 0.5
    return x


@program
def has_a_variable_for_what_may_be_many_times(x):
    for k in range(9):
        y = None
        if x.sum() > k * 0.1:
            y = x * 2
        if y is None:
            y = x + 0.1
        x = y * 0.5
    return x


@program
def keeps_those_that_are_something(x):
    found = [maybe(x), maybe(-x), maybe(x - 2)]
    return sum(v for v in found if v is not None) + torch.zeros(3)


def either(x):
    y = x
    if x.sum() > 0:
        y = y + 1
        if x.max() > 3:
            return x, None
    z = y * 2
    return z, x


@program
def calls_what_returns_early(x):
    a, b = either(x)
    if b is None:
        return a * 5
    return a + b


@program
def calls_below_no_grad(x):
    with torch.no_grad():
        y = maybe(x)
        z = x if y is None else y
    return z * x


@program
def calls_in_a_with_block_that_is_left(x):
    with torch.autocast("cpu", enabled=False):
        y = maybe(x)
        if y is not None:
            return y + 1
    return x * 3


@program
def calls_in_a_try(x):
    log = []
    try:
        y = maybe(x)
        if y is None:
            return x
    finally:
        log.append(x)
    return y + log[0]


@program
def catches_what_none_can_not_do(x):
    try:
        return maybe(x) + 1
    except TypeError:
        return x - 1


@program
def calls_in_the_condition_of_a_loop(x):
    count = 0
    while maybe(x) is None:
        x = x + 1
        count += 1
    return x, count


def smaller(x):
    if x.norm() < 1:
        return None
    return x / 2


@program
def assigns_in_the_condition_of_a_loop(x):
    while (following := smaller(x)) is not None:
        x = following
    return x


@program
def calls_in_a_step(x):
    count = 0
    while x.norm() > 1:
        y = maybe(x)
        x = -x / 2 if y is None else y / 8
        count += 1
    return x, count


def found_by_itself(x, depth):
    if depth == 0:
        return None
    if x.sum() > depth:
        return x * depth
    return found_by_itself(x + 0.5, depth - 1)


@program
def calls_a_function_that_calls_itself(x):
    found = found_by_itself(x, 3)
    return x if found is None else found


@program
def calls_in_an_arm(x):
    y = None
    if x.max() > 2:
        y = maybe(x)
    if y is None:
        y = x * 7
    return y


def maybe_in_an_arm(x):
    if x.max() > 2:
        return maybe(x)
    return x


@program
def calls_what_passes_it_on(x):
    y = maybe_in_an_arm(x)
    return x.sum() if y is None else y.sum()


class Holder:
    def __init__(self, x):
        self.x = x
        self.calls = 0

    def get(self, x):
        self.calls += 1
        if x.sum() > 0:
            return self.x
        return None


@program
def calls_methods_that_write(x):
    holder = Holder(x * 2)
    y = holder.get(x)
    z = holder.get(-x)
    found = y if y is not None else z
    return x if found is None else found * holder.calls


@program
def calls_a_closure_that_writes(x):
    count = 0

    def get(v):
        nonlocal count
        count += 1
        if v.sum() > 0:
            count += 10
            return v
        return None

    y = get(x)
    return (x if y is None else y) * count


@program
def calls_a_closure_that_appends(x):
    found = []

    def add(v):
        if v.sum() > 0:
            found.append(v)
            return True
        return None

    add(x)
    add(-x)
    add(x - 1)
    return sum(found) + torch.zeros(3)


def append_if_positive(found, x):
    if x.sum() > 0:
        found.append(x)
    return found[0]


@program
def looks_into_a_list_that_it_gave(x):
    found = [x]
    return append_if_positive(found, x) + len(found)


@program
def calls_a_partial(x):
    y = functools.partial(maybe, x)()
    return x if y is None else y


def number_for(x):
    if x.sum() > 0:
        return 1
    return 0.5


@program
def multiplies_by_a_number_of_either_kind(x):
    return x * number_for(x)


def function_for(x):
    if x.sum() > 0:
        return torch.sin
    return torch.cos


@program
def calls_what_was_chosen(x):
    return function_for(x)(x)


def kind_of(x):
    return "up" if x.sum() > 0 else "down"


@program
def dispatches_by_a_text(x):
    return {"up": torch.sin, "down": torch.cos}[kind_of(x)](x)


def described(x):
    found = {"x": x}
    if x.sum() > 0:
        found["extra"] = x * 2
    return found


@program
def asks_for_a_key(x):
    found = described(x)
    return found["x"] + found.get("extra", 0)


def masked(x, mask=None):
    return x if mask is None else x * mask


@program
def passes_it_on_as_an_argument(x):
    return masked(x, mask=(x > 0).float() if x.sum() > 0 else None)


def of_other_dimensions(x):
    if x.sum() > 0:
        return x
    return x.reshape(1, 3)


@program
def asks_for_the_number_of_dimensions(x):
    y = of_other_dimensions(x)
    if y.dim() == 1:
        y = y.unsqueeze(0)
    return y


@program
def has_a_condition_in_a_comprehension(x):
    kept = [value * 2 for value in (x, x - 1, x + 1) if value.sum() > 0]
    return sum(kept) + torch.zeros(3), len(kept)


@dataclass
class Found:
    value: torch.Tensor
    weight: float


def found_for(x):
    if x.sum() > 0:
        return Found(x, 2.0)
    return Found(-x, 3.0)


@program
def calls_what_makes_an_object(x):
    found = found_for(x)
    return found.value * found.weight


def one_or_none(x):
    if x.max() > 4:
        return None
    return x * 2


def none_or_what_a_helper_finds(x):
    if x.sum() > 5:
        return None
    return one_or_none(x)


def passes_on_what_may_be_none(x):
    return none_or_what_a_helper_finds(x)


@program
def has_helpers_that_pass_on_what_a_branch_and_its_helper_return(x):
    y = passes_on_what_may_be_none(x)
    if y is None:
        return x - 1
    return y + 1


@program
def calls_such_helpers_in_a_branch(x):
    total = torch.zeros(3)
    if x.min() > -5:
        y = passes_on_what_may_be_none(x)
        z = passes_on_what_may_be_none(-x)
        total = total + (1 if y is None else y) + (3 if z is None else z)
    return total


def numbers_of_a_dtype(x):
    if x.sum() > 5:
        return torch.tensor([1]), x
    return numbers_of_another(x)


def numbers_of_another(x):
    if x.max() > 4:
        return torch.tensor([2]), x - 1
    return x.sum().to(torch.int32).reshape(1), x + 1


def passes_on_numbers(x):
    return numbers_of_a_dtype(x)


@program
def copies_numbers_of_some_dtype(x):
    kept = torch.zeros(1, dtype=torch.int32)
    if x.min() > -5:
        number, x = passes_on_numbers(x)
        kept.copy_(number)
    return kept, x
