"""A capture in one thread is nothing that another thread notices, and takes nothing back that another one wrote."""

from __future__ import annotations

import concurrent.futures
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch.compiler import is_compiling, is_exporting

import tintype
from tests.reliability.threads import stress
from tintype.errors import CaptureError


@contextmanager
def meanwhile(step: Callable[[], None]) -> Iterator[list[int]]:
    """Another thread takes a step again and again; it counts how many."""
    stop = threading.Event()
    count = [0]
    failures: list[BaseException] = []

    def repeat() -> None:
        try:
            while not stop.is_set():
                step()
                count[0] += 1
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        yield count
    finally:
        stop.set()
        thread.join()
    if failures:
        raise failures[0]


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(*[torch.nn.Linear(4, 4) for _ in range(40)])
        self.register_buffer("theirs", torch.zeros(()))
        self.register_buffer("ours", torch.zeros(()))
        self.count = self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        self.ours = self.ours + 1
        return self.layers(x) * (2 if is_compiling() and torch.compiler.is_exporting() else 3)


def test_other_threads_are_not_compiling() -> None:
    asked: list[bool] = []
    ways = (
        is_compiling,
        is_exporting,
        lambda: torch.compiler.is_compiling(),
        lambda: torch.compiler.is_exporting(),
        lambda: torch.compiler.is_dynamo_compiling(),
    )

    def ask() -> None:
        asked.extend(way() for way in ways)

    model, x = Model(), torch.randn(2, 4)
    with meanwhile(ask) as count:
        programs = [tintype.export(model, (x,)) for _ in range(5)]
    assert count[0] > 100
    assert set(asked) == {False}
    torch.testing.assert_close(programs[0].module()(x), model.layers(x) * 2)
    assert not is_compiling() and not torch.compiler.is_exporting() and not torch.compiler.is_dynamo_compiling()


def test_what_other_threads_assign_meanwhile_stays() -> None:
    model, x = Model(), torch.randn(2, 4)
    before = list(vars(model))

    def assign() -> None:
        model.theirs = model.theirs + 1
        model.count = model.count + 1
        model.fresh = model.count

    with meanwhile(assign) as count:
        programs = [tintype.export(model, (x,)) for _ in range(8)]
    assert count[0] > 100
    assert (float(model.theirs), model.count, model.fresh) == (count[0], count[0], count[0])
    assert (float(model.ours), model.calls) == (0, 0)
    assert list(vars(model)) == [*before, "fresh"]
    assert list(dict(model.named_buffers())) == ["theirs", "ours"]
    for program in programs:
        assert list(program.graph_signature.buffers_to_mutate.values()) == ["ours"]


def test_nested_regions_of_another_thread_are_its_own() -> None:
    @torch.compiler.nested_compile_region
    def double(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    x = torch.randn(2, 4)
    results: list[Any] = []
    with meanwhile(lambda: results.append(double(x))):
        tintype.export(Model(), (x,))
    assert results and all(type(result) is torch.Tensor for result in results)


def test_an_attribute_that_the_program_removes_comes_back_in_its_place() -> None:
    class Removes(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second, self.third = 1, 2, 3

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            del self.second
            self.fourth = 4
            return x + self.first

    model = Removes()
    before = dict(vars(model))
    tintype.export(model, (torch.ones(2),))
    assert list(vars(model).items()) == list(before.items())


@pytest.mark.parametrize("seed", range(2))
def test_a_little_stress(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # the checks around passes: a buffer that the program shares with the model changes meanwhile
    stress(rounds=6, seed=seed)


def in_a_thread(function: Callable[[], Any]) -> None:
    thread = threading.Thread(target=function)
    thread.start()
    thread.join()


@pytest.mark.filterwarnings("ignore:Exception in thread")
@pytest.mark.parametrize("strict", [False, True], ids=["native", "strict"])
def test_a_thread_of_the_model_that_computes_is_refused(strict: bool, capsys: pytest.CaptureFixture[str]) -> None:
    def doubled(x: torch.Tensor) -> torch.Tensor:
        result = [x]
        in_a_thread(lambda: result.__setitem__(0, x * 2))  # the line
        return result[0]

    with pytest.raises(tintype.TintypeError, match="outside of the capture") as caught:
        tintype.export(doubled, (torch.ones(3),), strict=strict)
    assert caught.value.location is not None and "thread" in str(caught.value.remedy)
    assert "# the line" in str(caught.value.location.source_line())


def test_a_thread_of_the_model_that_computes_nothing_is_fine() -> None:
    def scaled(x: torch.Tensor) -> torch.Tensor:
        result = [0.0]
        in_a_thread(lambda: result.__setitem__(0, 2.0))
        return x * result[0]

    x = torch.ones(3)
    assert torch.equal(tintype.export(scaled, (x,)).module()(x), x * 2)


def in_a_pool(function: Callable[[], Any]) -> Any:
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result()


def computes(model: torch.nn.Module) -> torch.Tensor:
    return model.weight * 2


def writes(model: torch.nn.Module) -> torch.Tensor:
    return model.held.add_(1)


def draws(model: torch.nn.Module) -> torch.Tensor:
    return torch.rand(3)


@pytest.mark.filterwarnings("ignore:Exception in thread")
@pytest.mark.parametrize("how", ["thread", "pool"])
@pytest.mark.parametrize("work", [computes, writes, draws])
def test_a_thread_of_the_model_may_not_use_its_state(work: Callable[..., torch.Tensor], how: str) -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(3))
            self.register_buffer("held", torch.zeros(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            found = [x]
            if how == "pool":
                found.append(in_a_pool(lambda: work(self)))
            else:
                in_a_thread(lambda: found.append(work(self)))
            return x + found[-1]

    model = Model()
    with pytest.raises(CaptureError, match="computes in a thread of its own") as caught:
        tintype.export(model, (torch.ones(3),))
    assert caught.value.location is not None
    assert model.held.tolist() == [0, 0, 0]
    assert torch.equal(model(torch.zeros(3)).detach() * 0, torch.zeros(3))  # as before, after the capture


def test_pools_and_threads_of_others_compute_while_something_is_captured() -> None:
    pool = concurrent.futures.ThreadPoolExecutor(1)
    found: list[torch.Tensor] = []

    def other() -> None:
        found.append(pool.submit(lambda: torch.ones(2) + 1).result())

    def model(x: torch.Tensor) -> torch.Tensor:
        result = x * pool.submit(lambda: 2).result()
        started.set()
        finished.wait(30)
        return result

    started, finished = threading.Event(), threading.Event()

    def elsewhere() -> None:
        started.wait(30)
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        finished.set()

    around = threading.Thread(target=elsewhere)
    around.start()
    program = tintype.export(model, (torch.ones(3),))
    around.join()
    assert torch.equal(program.module()(torch.ones(3)), torch.full((3,), 2.0))
    assert torch.equal(found[0], torch.full((2,), 2.0))
    assert torch.equal(pool.submit(lambda: torch.ones(2) * 3).result(), torch.full((2,), 3.0))
    pool.shutdown()
