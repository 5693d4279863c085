"""Kills saves at random moments: ``make killtest``, or ``python -m tests.reliability.kill --count 200``.

A child process saves programs to one path again and again; it is killed (SIGKILL) after a random time. The file at
the path must then be one of the programs, whole, every time. What a killed save leaves behind is its temporary file.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

import torch

import tintype

WEIGHTS = 2_000_000  # elements: a save takes some milliseconds, most of them writing


class Filled(torch.nn.Module):
    def __init__(self, value: float) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.full((WEIGHTS,), value))

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        return self.weight * value


def program_of(value: float) -> tintype.ExportedProgram:
    """A program all of whose weights are one number, so that a mixture of two files shows."""
    return tintype.export(Filled(value), (torch.ones(1),))


def save_for_ever(path: Path, programs: list[tintype.ExportedProgram]) -> None:
    while True:
        for program in programs:
            tintype.save(program, path)


def kill_once(path: Path, seconds: float, programs: list[tintype.ExportedProgram]) -> int:
    """Save in a child process, kill it after some time, look at what is there; returns what it left behind."""
    child = os.fork()
    if child == 0:
        try:
            save_for_ever(path, programs)
        finally:
            os._exit(1)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if not os.WIFSIGNALED(status):
        raise AssertionError("the child process ended by itself")
    weight = tintype.load(path).state_dict["weight"]
    value = weight[0].item()
    if value not in (0.0, 1.0) or not bool((weight == value).all()):
        raise AssertionError(f"the file is neither the old nor the new program after {seconds:.4f} s")
    left = [entry for entry in path.parent.iterdir() if entry != path]
    for entry in left:
        entry.unlink()
    return len(left)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    chance = random.Random(options.seed)
    torch.set_num_threads(1)
    programs = [program_of(0.0), program_of(1.0)]
    left = 0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.tt"
        tintype.save(programs[0], path)
        for _ in range(options.count):
            left += kill_once(path, chance.uniform(0.0, 0.2), programs) > 0
    print(f"{options.count} saves killed: the file was whole each time; {left} were in the middle of writing")
    return 0


if __name__ == "__main__":
    sys.exit(main())
