"""How large programs become: branches one after the other, and returns from inside of branches, cost a line each."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tintype


def made(lines: list[str]) -> Any:
    names: dict[str, Any] = {"torch": torch}
    exec(compile("\n".join(lines), "<a program of some size>", "exec"), names)
    return names["function"]


def in_sequence(count: int) -> Any:
    lines = ["def function(x, c):"]
    for i in range(count):
        lines += [f"    if c[{i}] > 0:", f"        x = x + {i + 1}", "    else:", "        x = x * 2"]
    return made([*lines, "    return x - 1"])


def early_returns(count: int) -> Any:
    lines = ["def function(x, c):"]
    for i in range(count):
        lines += [f"    if c[{i}] > 0:", f"        return x * {i + 2}", f"    x = x + {i + 1}"]
    return made([*lines, "    return x - 1"])


def nested_early_returns(count: int) -> Any:
    lines = ["def function(x, c):"]
    for i in range(count):
        lines += [f"    if c[{i}] > 0:", f"        if x.sum() > {i}:", f"            return x * {i + 2}"]
        lines += [f"        x = x + {i + 1}"]
    return made([*lines, "    return x - 1"])


def returns_in_both_arms(count: int) -> Any:
    lines = ["def function(x, c):"]
    for i in range(count):
        lines += [f"    if c[{i}] > 0:", f"        if x.sum() > {i}:", f"            return x * {i + 2}"]
        lines += [f"        y = x + {i + 1}", "    else:", f"        if x.sum() < -{i}:", "            return -x"]
        lines += [f"        y = x - {i + 1}", "    x = y * 2"]
    return made([*lines, "    return x - 1"])


def returns_in_a_loop(count: int) -> Any:
    lines = ["def function(x, c):", f"    for i in range({count}):", "        if c[i] > 0:"]
    lines += ["            if x.sum() > i:", "                return x * (i + 2)", "            x = x + 1"]
    return made([*lines, "    return x - 1"])


def returns_three_deep(count: int) -> Any:
    lines = ["def function(x, c):"]
    for i in range(count):
        lines += [f"    if c[{i}] > 0:", f"        if x.sum() > {i}:", f"            if x.max() > {i + 1}:"]
        lines += [f"                return x * {i + 2}", "            x = x * 0.5", f"        x = x + {i + 1}"]
    return made([*lines, "    return x - 1"])


def leaving_loops(count: int) -> Any:
    lines = ["def function(x, c):"]
    for i in range(count):
        lines += ["    for _ in range(2):", f"        if c[{i}] > 0:", "            if x.max() > 1:"]
        lines += ["                break", "            if x.min() > 1:", "                continue"]
        lines += ["            if x.min() < -1:", "                return x", "            x = x + 1"]
    return made([*lines, "    return x - 1"])


PROGRAMS = (
    leaving_loops,
    in_sequence,
    early_returns,
    nested_early_returns,
    returns_in_both_arms,
    returns_in_a_loop,
    returns_three_deep,
)


def size_of(program: Any) -> int:
    return sum(len(module.graph.nodes) for module in program.graph_module.modules() if hasattr(module, "graph"))


@pytest.mark.parametrize("write", PROGRAMS)
def test_twice_as_many_branches_are_twice_as_many_nodes(write: Any) -> None:
    sizes = {}
    for count in (2, 4, 8):
        function = write(count)
        program = tintype.export(function, (torch.randn(3), torch.randn(count)))
        sizes[count] = size_of(program)
        module = program.module()
        generator = torch.Generator().manual_seed(count)
        for _ in range(12):
            x, c = torch.randn(3, generator=generator) * 3, torch.randn(count, generator=generator)
            assert torch.equal(module(x, c), function(x, c))
    assert sizes[8] - sizes[4] <= 2 * (sizes[4] - sizes[2]) * 1.1


@pytest.mark.parametrize("write", PROGRAMS)
def test_gradients_go_through(write: Any) -> None:
    function = write(3)
    module = tintype.export(function, (torch.randn(3, requires_grad=True), torch.randn(3))).module()
    generator = torch.Generator().manual_seed(0)
    for _ in range(8):
        x, c = torch.randn(3, generator=generator) * 3, torch.randn(3, generator=generator)
        found = []
        for called in (module, function):
            leaf = x.clone().requires_grad_()
            called(leaf, c).sum().backward()
            found.append(leaf.grad)
        assert torch.equal(*found)


def test_a_return_from_a_loop_that_the_data_decide() -> None:
    """Which of several places an arm ended at is known in the branch that asks for one of them."""

    def function(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        step = 0
        n = 1
        while step < 3 and not b.sum() > 1:
            step += 1
            b = b + 0.25
            if n > 2 or not b.sum() > 1:
                return a * 0.5
        return a + b

    module = tintype.export(function, (torch.ones(3), torch.zeros(3))).module()
    for b in (torch.zeros(3), torch.ones(3), torch.full((3,), 0.2), torch.full((3,), 0.1)):
        assert torch.equal(module(torch.ones(3), b), function(torch.ones(3), b))
