"""Joins, loops and live locals of code objects."""

from __future__ import annotations

import contextlib

import pytest

from tintype.interpret import Machine, Policy
from tintype.interpret.flow import END, flow_of


def line_of(function, index: int | None) -> int | str | None:
    """The line of an operation, counted from the `def`."""
    if index is None or index == END:
        return "end" if index == END else None
    from tintype.interpret.decode import decode, line_at

    code = function.__code__
    return line_at(code, decode(code).offsets[index]) - code.co_firstlineno


def joins(function) -> list[tuple]:
    """(line of the branch, line of its join) of every branch."""
    flow = flow_of(function.__code__)
    return [(line_of(function, branch), line_of(function, flow.join_of(branch))) for branch in flow.branches]


def test_an_if_joins_behind_it():
    def function(x):
        if x:
            y = 1
        else:
            y = 2
        return y

    assert joins(function) == [(1, 5)]
    flow = flow_of(function.__code__)
    assert flow.live_names(flow.join_of(flow.branches[0])) == {"y"}


def test_early_returns_join_at_the_end():
    def function(x):
        if x:
            return 1
        return 2

    assert joins(function) == [(1, "end")]


def test_an_arm_that_raises_is_no_arm():
    def function(x, y):
        if x:
            raise ValueError(y)
        return y

    flow = flow_of(function.__code__)
    (branch,) = flow.branches
    assert joins(function) == [(1, 3)]
    raising = [target for target in flow.successors[branch] if flow.only_raises(target)]
    assert [line_of(function, index) for index in raising] == [2]


def test_an_assertion_is_a_branch_with_an_arm_that_raises():
    namespace: dict = {}
    exec("def function(x):\n    assert x, 'no'\n    return x", namespace)  # pytest rewrites its own assertions
    flow = flow_of(namespace["function"].__code__)
    (branch,) = flow.branches
    assert sum(flow.only_raises(target) for target in flow.successors[branch]) == 1


def test_a_ternary_joins_inside_of_its_expression():
    def function(x, a, b):
        return (a if x else b) + 1

    flow = flow_of(function.__code__)
    (branch,) = flow.branches
    join = flow.join_of(branch)
    assert flow.name_of(join) == "load_constant"
    assert flow.live_names(join) == set()


def test_nested_branches_join_inside_out():
    def function(x, y):
        z = 0
        if x:
            if y:
                z = 1
            z += 2
        return z

    assert joins(function) == [(2, 6), (3, 5)]


def test_a_loop_has_a_header_and_a_body():
    def function(items):
        total = 0
        for item in items:
            while total < item:
                total += 1
        return total

    flow = flow_of(function.__code__)
    outer, inner = flow.loops()
    assert inner.body < outer.body
    assert flow.name_of(outer.header) == "for_iterator"
    assert line_of(function, flow.join_of(outer.header)) == 5
    assert flow.loop_at(inner.header) == inner
    assert "total" in flow.live_names(outer.header)
    assert "item" not in flow.live_names(outer.header)


def test_an_endless_loop_joins_nowhere():
    def function(x):
        while True:
            x()

    flow = flow_of(function.__code__)
    assert flow.only_raises(0)
    assert len(flow.loops()) == 1


def test_what_a_handler_reads_is_live_in_what_it_protects():
    def function(x, y):
        z = y
        try:
            z = x()
        except ValueError:
            return z
        return y

    flow = flow_of(function.__code__)
    call = next(index for index, (name, _) in enumerate(flow.operations) if name.startswith("call"))
    assert {"z", "y"} <= flow.live_names(call)


def test_variables_that_functions_share_are_always_live():
    def function(x):
        def inner():
            return x

        return inner

    flow = flow_of(function.__code__)
    assert all("x" in flow.live_names(index) for index in range(len(flow.operations)))


def test_many_branches_are_found_in_little_time():
    lines = ["def function(x):", "    y = 0"]
    for number in range(800):
        lines += [f"    if x == {number}:", f"        y += {number}"]
    namespace: dict = {}
    exec("\n".join([*lines, "    return y"]), namespace)
    flow = flow_of(namespace["function"].__code__)
    assert len(flow.branches) == 800
    assert all(flow.join_of(branch) is not None for branch in flow.branches)
    assert flow.live_names(flow.join_of(flow.branches[5])) == {"x", "y"}


@pytest.mark.parametrize("word", ["and", "or"])
def test_a_condition_of_two_parts(word):
    namespace: dict = {}
    source = f"def function(x, y):\n    if x {word} y:\n        z = 1\n    else:\n        z = 2\n    return z"
    exec(source, namespace)
    function = namespace["function"]
    assert all(join[1] == 5 for join in joins(function)[-1:])


def busy(a):
    out = []
    for i in range(3):
        with contextlib.suppress(KeyError):
            out.append(a if i else a + 1)
            table = {key: value for key, value in zip("ab", (1, 2), strict=True)}  # noqa: C416
            if i == 1:
                continue
            make = lambda *given, **named: (given, named)  # noqa: E731
            make(*out, **table, z=1)
            make(1, 2, x=max(i, 3, key=abs))
            a, *rest = out
            table["a"] += len(rest)
            try:
                raise ValueError(i)
            except ValueError as error:
                out.append(str(error))
            finally:
                a = 1
            if 0 < a < 5 < i:
                return f"{a!r:>4}{i}"
        while a > 0:
            a -= 1
            if a == 3:
                break
    return out[1:2], {**table}, [*out], a if a else 3


def test_heights_are_those_of_the_machines_stack() -> None:
    wrong = []

    class Comparing(Policy):
        def operations(self, code, bound):
            flow = flow_of(code)

            def compared(index, handler):
                def compare(frame, argument):
                    height = flow.height_at([index])
                    if height is not None and height != len(frame.stack):
                        wrong.append((code.co_name, flow.name_of(index), height, len(frame.stack)))
                    return handler(frame, argument)

                return compare

            return [(compared(index, handler), argument) for index, (handler, argument) in enumerate(bound)]

    assert Machine(Comparing()).call(busy, 1) == busy(1)
    assert not wrong
