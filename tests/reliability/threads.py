"""Four threads that export, train, ask and write, all at once: each must see what it would see alone.

python -m tests.reliability.threads --rounds 1000
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

import tintype


class Shared(torch.nn.Module):
    """A model that is exported while another thread writes to its buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.body = torch.nn.Sequential(torch.nn.Linear(6, 6), torch.nn.BatchNorm1d(6), torch.nn.ReLU())
        self.register_buffer("written", torch.zeros(()))
        self.register_buffer("counted", torch.zeros((), dtype=torch.int64))
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        with torch.no_grad():
            scale = torch.ones(())
        return self.body(x) * scale if torch.compiler.is_compiling() else self.body(x) * 1


def _exports(model: Shared, generator: torch.Generator) -> None:
    """Exporting gives the program that it gives alone."""
    x = torch.randn(4, 6, generator=generator)
    program = tintype.export(model, (x,), dynamic_shapes=({0: tintype.Dim("n", min=2)},))
    core = program.run_decompositions()
    assert model.calls == 0, "the capture's own assignment is still there"
    for rows in (4, 7):
        x = torch.randn(rows, 6, generator=generator)
        wanted = torch.relu(torch.nn.functional.batch_norm(model.body[0](x), None, None, training=True))
        for made in (program, core):
            torch.testing.assert_close(made.module()(x), wanted, rtol=1e-4, atol=1e-4)


def _trains(generator: torch.Generator) -> None:
    """Training in eager mode goes as it goes alone, with autocast, backward and random numbers of its own."""
    weights = [torch.randn(5, 3, generator=generator) for _ in range(2)]
    results = []
    for _ in range(2):
        layer = torch.nn.Linear(3, 5)
        with torch.no_grad():
            layer.weight.copy_(weights[0])
            layer.bias.zero_()
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                out = layer(weights[1][:, :3])
            assert out.dtype is torch.bfloat16
            out.float().square().mean().backward()
            optimizer.step()
        results.append(layer.weight.detach().clone())
    assert torch.equal(*results)


def _asks() -> None:
    """Eager code is in no capture."""
    for _ in range(200):
        assert not torch.compiler.is_compiling()
        assert not torch.compiler.is_exporting()
        assert not torch.compiler.is_dynamo_compiling()


class _Writer:
    """Every value that is written to a model stays written."""

    def __init__(self, model: Shared) -> None:
        self.model = model
        self.count = 0

    def __call__(self) -> None:
        for _ in range(200):
            self.count += 1
            self.model.written = torch.tensor(float(self.count))
            self.model.note = self.count
            self.model.counted.add_(1)
            setattr(self.model, f"note_{self.count % 7}", self.count)  # tables of the model grow and shrink
            if hasattr(self.model, f"note_{(self.count + 3) % 7}"):
                delattr(self.model, f"note_{(self.count + 3) % 7}")
            assert float(self.model.written) == self.count == self.model.note, "a write was taken back"


@contextmanager
def _switching_often() -> Iterator[None]:
    """Threads take turns every 0.1 ms instead of every 5: more of them meet in the middle of something, and one that
    lets go of the interpreter in each of its operators is not kept waiting for all others each time."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


@_switching_often()
def stress(rounds: int, seed: int = 0) -> None:
    """Run the four threads until the one that exports has done so many rounds; raises what any of them finds."""
    torch.set_num_threads(1)
    model = Shared()
    generators = [torch.Generator().manual_seed(seed + i) for i in range(2)]
    writer = _Writer(model)
    done = threading.Event()
    failures: list[BaseException] = []

    def repeat(step: Callable[[], None], times: int | None) -> None:
        try:
            count = 0
            while count < times if times is not None else not done.is_set():
                step()
                count += 1
        except BaseException as error:
            failures.append(error)
        finally:
            if times is not None:
                done.set()

    steps: list[tuple[Callable[[], None], int | None]] = [
        (lambda: _exports(model, generators[0]), rounds),
        (lambda: _trains(generators[1]), None),
        (_asks, None),
        (writer, None),
    ]
    threads = [threading.Thread(target=repeat, args=step) for step in steps]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    assert float(model.written) == int(model.counted) == writer.count
    assert model.calls == 0


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=1000)
    options = parser.parse_args()
    begin = time.perf_counter()
    stress(options.rounds)
    print(f"{options.rounds} rounds in {time.perf_counter() - begin:.0f} s: nothing differed, nothing was lost")


if __name__ == "__main__":
    main()
