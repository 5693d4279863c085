"""What is read behind a function that is called as it is: it may have written to what was read before."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import tintype

pytestmark = pytest.mark.direct(reason="compiled functions are not exported")


class Counter:
    def __init__(self) -> None:
        self.n = 1
        self.items = [1]
        self.table: dict[str, Any] = {"a": 1}
        self.mode = "slow"


class World:
    """What the functions below read and write, anew for each run."""

    def __init__(self) -> None:
        self.counter = Counter()
        self.layer = torch.nn.Dropout(0.5)
        self.parameter = torch.nn.Parameter(torch.ones(1))
        self.optimizer = torch.optim.SGD([self.parameter], lr=0.1)
        self.schedule = torch.optim.lr_scheduler.ExponentialLR(self.optimizer, 0.5)


total = 0


@tintype.compile.disable
def bump(world: World) -> None:
    global total
    total += 1
    counter = world.counter
    counter.n += 1
    counter.items.append(counter.n)
    counter.table["a"] += 1
    counter.table[f"new{counter.n}"] = 1
    counter.mode = "fast" if counter.mode == "slow" else "slow"


def number(x: torch.Tensor, world: World) -> torch.Tensor:
    before = world.counter.n
    bump(world)
    return x * world.counter.n + before * 100


def twice(x: torch.Tensor, world: World) -> torch.Tensor:
    y = x * world.counter.n
    bump(world)
    y = y + world.counter.n * 10
    bump(world)
    return y + world.counter.n * 100


def text(x: torch.Tensor, world: World) -> torch.Tensor:
    y = x * 2 if world.counter.mode == "slow" else x * 3
    bump(world)
    return y + (10 if world.counter.mode == "slow" else 20)


def containers(x: torch.Tensor, world: World) -> torch.Tensor:
    y = x * len(world.counter.items) + world.counter.table["a"]
    bump(world)
    return y + sum(world.counter.items) * 10 + world.counter.table["a"] * 100 + len(world.counter.table) * 1000


def written_before(x: torch.Tensor, world: World) -> torch.Tensor:
    world.counter.n = 5
    bump(world)
    return x * world.counter.n


def a_global(x: torch.Tensor, world: World) -> torch.Tensor:
    y = x * total
    bump(world)
    return y + total * 100


def taken_over(x: torch.Tensor, world: World) -> torch.Tensor:
    before, mode = world.counter.n, world.counter.mode
    bump(world)
    factor = 2 if float(x.sum()) > 0 else 3
    return x * factor + before * 100 + (1000 if mode == "slow" else 2000) + world.counter.n * 10000


def training(x: torch.Tensor, world: World) -> torch.Tensor:
    world.layer.train(not world.layer.training)
    y = x * (2 if world.layer.training else 3)
    world.layer.train(not world.layer.training)
    return y + (100 if world.layer.training else 200) * (1 if float(x.sum()) > 0 else 5)


def rates(x: torch.Tensor, world: World) -> torch.Tensor:
    before = world.optimizer.param_groups[0]["lr"]
    world.optimizer.step()
    world.schedule.step()
    return x * before + 100 * world.optimizer.param_groups[0]["lr"]


@tintype.compile.disable
def adds(world: World) -> None:
    world.counter.items.append(5)
    world.counter.table["b"] = 7


def written_and_taken_over(x: torch.Tensor, world: World) -> torch.Tensor:
    world.counter.n = 5
    bump(world)
    return x * (2 if float(x.sum()) > 0 else 3) + world.counter.n


def containers_taken_over(x: torch.Tensor, world: World) -> torch.Tensor:
    world.counter.items.append(1)
    world.counter.table["b"] = 1
    adds(world)
    return x * (2 if float(x.sum()) > 0 else 3) + len(world.counter.items) + world.counter.table["b"] * 100


def written_elsewhere(x: torch.Tensor, world: World) -> torch.Tensor:
    world.counter.n += 1
    adds(world)
    return x * (2 if float(x.sum()) > 0 else 3) + world.counter.n


def modes(x: torch.Tensor, world: World) -> torch.Tensor:
    with torch.no_grad():
        world.layer.eval()
        y = x * 2
    with torch.set_grad_enabled(world.counter.n != 1):
        bump(world)
        y = y + world.counter.n
    factor = 2 if float(x.sum()) > 0 else 3
    with torch.no_grad():
        return y * factor + torch.is_grad_enabled()


FUNCTIONS: list[Callable[[torch.Tensor, World], torch.Tensor]] = [
    *(number, twice, text, containers, written_before, a_global, taken_over, training, rates, modes),
    *(written_and_taken_over, containers_taken_over, written_elsewhere),
]


def outcomes(function: Any) -> list[torch.Tensor]:
    global total
    world, found, total = World(), [], 0
    for call in range(8):
        if call == 4:
            world.counter = Counter()
            world.counter.n = 7
            world.layer.eval()
        found.append(function(torch.tensor([1.0, -3.0 if call in (3, 6) else 2.0]), world))
        found.append(torch.tensor([torch.is_grad_enabled(), world.counter.n, len(world.counter.items)]))
        torch.set_grad_enabled(True)
    return found


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("dynamic", [None, True, False])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_what_is_read_behind_a_step_is_what_is_there_then(
    function: Callable[[torch.Tensor, World], torch.Tensor], dynamic: bool | None, backend: str
) -> None:
    expected = outcomes(function)
    found = outcomes(tintype.compile(function, backend=backend, dynamic=dynamic))
    for call, (one, other) in enumerate(zip(found, expected, strict=True)):
        assert torch.equal(one, other), call


def test_what_is_read_again_is_saved(tmp_path: Path) -> None:
    world, other = World(), World()
    compiled = tintype.compile(number)
    x = torch.ones(2)
    for _ in range(4):
        assert torch.equal(compiled(x, world), number(x, other))
    compiled.save(tmp_path / "number.ttc")
    loaded = tintype.compile.load(tmp_path / "number.ttc", number)
    for _ in range(3):
        assert torch.equal(loaded(x, world), number(x, other))
    assert loaded.engine.captures == 0
