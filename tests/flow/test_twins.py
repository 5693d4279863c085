"""Objects and containers that branches and loops make anew, and that somebody else may have, too."""

from __future__ import annotations

import heapq
import operator
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch

import tintype
from tests.flow.test_programs import outcome, same

VECTORS = [torch.tensor(values) for values in ([1.0, 2.0], [-1.0, -2.0], [-0.1, -0.2], [0.1, 0.2])]


@dataclass
class State:
    h: torch.Tensor
    n: int = 0


@dataclass(frozen=True)
class Frozen:
    h: torch.Tensor
    c: torch.Tensor


@dataclass(slots=True)
class Slotted:
    h: torch.Tensor
    n: int = 0


class Doubling:
    """Does something when it is assigned to."""

    def __init__(self, h):
        self._h = h

    @property
    def h(self):
        return self._h

    @h.setter
    def h(self, value):
        self._h = value * 2


def writes_to_its_own_list_after_a_loop(x):
    held = [x]
    while x.norm() > 1:
        x = x / 2
        held = [x]
    held.append(x + 1)
    held[0] = x * 3
    return torch.stack(held).sum(0)


def returns_a_list_that_it_was_given(x):
    def f(s):
        while s[0].norm() > 1:
            s = [s[0] / 2]
        return s

    return f([x])[0]


def writes_to_a_list_of_either(x):
    held = [x]
    t = held
    if x.sum() > 0:
        held = [x * 2]
    held[0] = x * 0
    return t[0]


def writes_to_the_other_name(x):
    held = [x]
    t = held
    if x.sum() > 0:
        held = [x * 2]
    t[0] = x * 0
    return held[0]


def asks_whether_it_is_the_other(x):
    held = [x]
    t = held
    if x.sum() > 0:
        held = [x * 2]
    return x if held is t else x + 1


def writes_to_what_a_tuple_has(x):
    i = [x]
    held = (i, 1)
    if x.sum() > 0:
        i = [x * 2]
    i[0] = x * 0
    return held[0][0]


def writes_to_one_of_two(x):
    a = [x]
    b = [x + 1]
    held = a if x.sum() > 0 else b
    held[0] = x * 0
    return a[0] + b[0]


def writes_to_its_own_list(x):
    held = [x]
    if x.sum() > 0:
        held = [x * 2]
    held[0] = held[0] * 0 + 1
    return held[0]


def writes_to_what_was_swapped(x):
    a = [x]
    b = [x + 1]
    if x.sum() > 0:
        a, b = b, a
    a[0] = x * 0
    return a[0], b[0]


def writes_after_a_loop(x):
    held = [x]
    t = held
    while x.norm() > 1:
        x = x / 2
        held = [x]
    held[0] = x * 0
    return t[0]


def writes_to_the_other_name_after_a_loop(x):
    held = [x]
    t = held
    while x.norm() > 1:
        x = x / 2
        held = [x]
    t[0] = x * 0
    return held[0]


def appends_after_a_loop(x):
    held = [x]
    t = held
    while x.norm() > 1:
        x = x / 2
        held = [x]
    held.append(x)
    return torch.stack(t).sum(0) + len(t)


def adds_in_place_after_a_loop(x):
    held = [x]
    t = held
    while x.norm() > 1:
        x = x / 2
        held = [x]
    held += [x]
    return torch.stack(t).sum(0) + len(t)


def writes_to_the_other_name_in_a_step(x):
    held = [x]
    t = held
    y = x
    while x.norm() > 1:
        t[0] = x + 7
        y = y + held[0]
        x = x / 2
        held = [x]
    return y, t[0]


def writes_in_a_step_to_what_another_has(x):
    held = [x]
    t = held
    y = x
    while x.norm() > 1:
        held[0] = x + 7
        y = y + t[0]
        x = x / 2
        held = [x]
    return y, t[0]


def asks_whether_it_is_the_other_after_a_loop(x):
    held = [x]
    t = held
    while x.norm() > 1:
        x = x / 2
        held = [x]
    return x + 1 if held is t else x


def writes_to_what_its_caller_has(x):
    def f(s):
        while s[0].norm() > 1:
            s = [s[0] / 2]
        s[0] = s[0] + 1
        return s[0]

    o = [x]
    y = f(o)
    return y + o[0]


def writes_by_functions_of_others_after_a_loop(x):
    held = [x]
    other = held
    while x.norm() > 1:
        x = x / 2
        held = [x]
    operator.setitem(other, 0, x * 9)
    return held[0]


def pushes_on_a_heap_after_a_loop(x):
    held = [1]
    other = held
    while x.norm() > 1:
        x = x / 2
        held = [2]
    heapq.heappush(other, 0)
    return x * len(held)


def maps_a_method_after_a_loop(x):
    held = [x]
    other = held
    while x.norm() > 1:
        x = x / 2
        held = [x]
    list(map(other.append, [x, x]))
    return x * len(held)


def writes_to_a_dictionary_after_a_loop(x):
    held = {"a": x}
    t = held
    while x.norm() > 1:
        x = x / 2
        held = {"a": x}
    held["a"] = x * 0
    return t["a"]


def writes_to_a_list_in_a_tuple_after_a_loop(x):
    inner = [x]
    held = (inner, x)
    while x.norm() > 1:
        x = x / 2
        held = ([x], x)
    held[0][0] = x * 0
    return inner[0]


def writes_to_one_object(x):
    s = State(x)
    t = s
    while s.h.norm() > 1:
        s.h = s.h / 2
        s.n += 1
    return t.n, s.h


def makes_an_object_and_writes_to_it(x):
    s = State(x)
    while s.h.norm() > 1:
        s = State(s.h / 2, s.n)
        s.n += 1
    s.n += 10
    return s.n, s.h


def writes_to_an_object_and_makes_another(x):
    s = State(x)
    while s.h.norm() > 1:
        s.n += 1
        s = State(s.h / 2, s.n)
    return s.n, s.h


def has_slots(x):
    s = Slotted(x)
    while s.h.norm() > 1:
        s = Slotted(s.h / 2, s.n + 1)
    return s.h, s.n


def takes_one_of_two_objects(x):
    s = State(x) if x.sum() > 0 else State(-x, 3)
    s.n += 1
    return s.h * s.n


def writes_to_an_object_of_either(x):
    s = State(x)
    t = s
    if x.sum() > 0:
        s = State(x + 1, 2)
    s.n = 7
    return t.n, s.h


def asks_for_an_object_of_either(x):
    s = State(x)
    t = s
    if x.sum() > 0:
        s = State(x + 1, 2)
    return x if s is t else x + 1


def has_objects_in_objects(x):
    s = State(State(x), 1) if x.sum() > 0 else State(State(-x, 2), 3)
    return s.h.h * s.h.n + s.n


def has_a_property(x):
    p = Doubling(x)
    while p.h.norm() > 1:
        q = Doubling(p.h)
        q.h = q.h / 5
        p = q
    return p.h


def shares_an_object_with_a_closure(x):
    s = State(x)

    def f():
        nonlocal s
        s = State(s.h / 2, s.n + 1)

    while s.h.norm() > 1:
        f()
    return s.h, s.n


def has_objects_in_a_list(x):
    beams = [State(x), State(-x)]
    while beams[0].h.norm() > 1:
        beams = [State(b.h / 2, b.n + 1) for b in beams]
    return beams[0].h, beams[1].n


def has_objects_of_branches_in_a_list(x):
    beams = [State(x), State(-x)]
    for _ in range(2):
        beams = [State(b.h / 2, b.n + 1) if b.h.sum() > 0 else State(b.h + 1, b.n) for b in beams]
    return beams[0].h, beams[1].h, beams[0].n


def has_nothing_in_one_arm(x):
    s = State(x)
    if x.sum() > 0:
        s = State(x, None)
    return s.h if s.n is None else s.h * s.n


def writes_to_a_list_and_makes_another(x):
    held = [x, x]
    while held[0].norm() > 1:
        held[0] = held[0] / 2
        held = [held[0], held[1] + 1]
    return held[0], held[1]


def writes_to_an_object_after_a_loop(x):
    s = State(x)
    t = s
    while s.h.norm() > 1:
        s = State(s.h / 2, s.n + 1)
    s.n = 5
    return t.n, s.h


def asks_for_an_object_after_a_loop(x):
    s = State(x)
    t = s
    while s.h.norm() > 1:
        s = State(s.h / 2, s.n + 1)
    return x if s is t else x + 1


def writes_to_an_object_that_another_has(x):
    s = State(x)
    t = s
    while s.h.norm() > 1:
        s.n += 1
        s = State(s.h / 2, s.n)
    return s.n, s.h, t.n


def gives_a_list_two_names(x):
    held = [x]
    m = [x]
    while x.norm() > 1:
        x = x / 2
        held = [x]
        m = held
    m[0] = x + 5
    return held[0], m[0]


def takes_a_list_from_before(x):
    t = [x + 1]
    held = [x]
    while x.norm() > 1:
        x = x / 2
        held = t
    held[0] = x * 9
    return t[0]


RIGHT = [
    writes_to_its_own_list_after_a_loop, returns_a_list_that_it_was_given, writes_to_a_list_of_either,
    writes_to_the_other_name, asks_whether_it_is_the_other, writes_to_what_a_tuple_has, writes_to_one_of_two,
    writes_to_its_own_list, writes_to_what_was_swapped, writes_to_one_object,
    makes_an_object_and_writes_to_it, writes_to_an_object_and_makes_another, has_slots,
    takes_one_of_two_objects, writes_to_an_object_of_either, asks_for_an_object_of_either,
    has_objects_in_objects, has_a_property, shares_an_object_with_a_closure, has_objects_in_a_list,
    has_objects_of_branches_in_a_list, has_nothing_in_one_arm, writes_to_a_list_and_makes_another,
]  # fmt: skip
REFUSED = [
    writes_by_functions_of_others_after_a_loop, pushes_on_a_heap_after_a_loop, maps_a_method_after_a_loop,
    writes_after_a_loop, writes_to_the_other_name_after_a_loop, appends_after_a_loop,
    adds_in_place_after_a_loop, writes_to_the_other_name_in_a_step, writes_in_a_step_to_what_another_has,
    asks_whether_it_is_the_other_after_a_loop, writes_to_what_its_caller_has,
    writes_to_a_dictionary_after_a_loop, writes_to_a_list_in_a_tuple_after_a_loop,
    writes_to_an_object_after_a_loop, asks_for_an_object_after_a_loop, writes_to_an_object_that_another_has,
    gives_a_list_two_names, takes_a_list_from_before,
]  # fmt: skip


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("function", RIGHT, ids=lambda function: function.__name__)
def test_a_program_is_right_on_every_way(function: Any, strict: bool) -> None:
    module = tintype.export(function, (VECTORS[0],), strict=strict).module()
    for given in VECTORS:
        assert same(outcome(function, [given]), outcome(module, [given])), given


@pytest.mark.parametrize("function", REFUSED, ids=lambda function: function.__name__)
def test_what_may_be_somebody_elses_after_a_loop_is_refused(function: Any) -> None:
    with pytest.raises(
        tintype.CaptureError, match="of which only the data decide whether somebody else has it"
    ) as caught:
        tintype.export(function, (VECTORS[0],))
    assert caught.value.location is not None and caught.value.location.filename == __file__


def carries_a_frozen_one(x):
    state = Frozen(torch.zeros(2), torch.zeros(2))
    for row in x:
        state = Frozen(torch.tanh(row + state.h), state.c + state.h)
    return state.h, state.c


def replaces_attributes(x):
    state = State(torch.zeros(2))
    for row in x:
        state = replace(state, h=state.h + row, n=state.n + 1)
    return state.h, state.n


@pytest.mark.parametrize("function", [carries_a_frozen_one, replaces_attributes])
def test_loops_whose_number_of_steps_varies_carry_objects(function: Any) -> None:
    x = torch.randn(3, 2)
    program = tintype.export(function, (x,), dynamic_shapes={"x": {0: tintype.Dim("rows")}})
    assert any(node.target is torch.ops.higher_order.scan for node in program.graph.nodes)
    for given in (x, x[:1], x[:0], torch.randn(7, 2)):
        assert same(outcome(function, [given]), outcome(program.module(), [given])), given


def test_objects_of_arms_are_merged_where_nobody_else_has_them() -> None:
    program = tintype.export(takes_one_of_two_objects, (VECTORS[0],))
    assert [node.target for node in program.graph.nodes].count(torch.ops.aten.add.Tensor) == 0
    graphs = [module.graph for module in program.graph_module.modules() if hasattr(module, "graph")]
    multiplied = [node for graph in graphs for node in graph.nodes if node.target is torch.ops.aten.mul.Tensor]
    assert len(multiplied) == 1  # once, after the branch
