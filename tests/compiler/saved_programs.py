"""Random programs (see :mod:`tests.compiler.programs`), saved and loaded between calls; random calls by threads.

python -m tests.compiler.saved_programs --count 200 [--backend aot_eager]
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
import threading
import warnings
from pathlib import Path
from typing import Any

import torch

import tintype
from tests.compiler.programs import HEAD, Writer, between, equal, module_of, outcome

_numbers = itertools.count()


def check_saved(seed: int, backend: Any = "eager") -> tuple[str | None, str]:
    """What differs where a program is saved after each call, and the loaded one makes the next; and how it went."""
    source = Writer(seed).write()
    eager, ours = module_of(source), module_of(source, f"saved_program_{next(_numbers)}")
    sys.modules[ours.__name__] = ours
    compiled = tintype.compile(ours.program, backend=backend)
    outcome_of_saving = "saved"
    try:
        with tempfile.TemporaryDirectory() as folder:
            for call in range(6):
                between(eager, call)
                between(ours, call)
                expected = outcome(eager, eager.program, seed, call)
                found = outcome(ours, compiled, seed, call)
                if not equal(expected, found):
                    parts = [i for i, pair in enumerate(zip(expected, found, strict=True)) if not equal(*pair)]
                    detail = "\n".join(f"  {i}: {expected[i]}\n     {found[i]}" for i in parts)
                    return f"call {call} differs\n{detail}\n{source[len(HEAD) :]}", outcome_of_saving
                try:
                    compiled.save(Path(folder) / "program.ttc")
                except tintype.UnsavableError as error:
                    outcome_of_saving = error.fact
                    continue
                with warnings.catch_warnings():
                    warnings.simplefilter("error")
                    try:
                        compiled = tintype.compile.load(Path(folder) / "program.ttc", ours.program)
                    except tintype.StaleRunsWarning as warning:
                        return f"call {call}: {warning}\n{source[len(HEAD) :]}", outcome_of_saving
    finally:
        del sys.modules[ours.__name__]
    return None, outcome_of_saving


def check_threads(seed: int, backend: Any = "eager") -> str | None:
    """What differs where a function is first-called by several threads at once, for changing numbers and data."""

    @tintype.compile(backend=backend)
    def mixed(x: torch.Tensor, times: int, log: list[float]) -> torch.Tensor:
        y = x
        for step in range(times):
            y = y * 2 if step % 2 else y + step
        log.append(float(y.sum()))
        return y + times if y.sum() > 20 else y - times

    problems: list[str] = []
    begin = threading.Barrier(3)

    def work(number: int) -> None:
        generator = torch.Generator().manual_seed(seed * 10 + number)
        begin.wait()
        for _ in range(12):
            x = torch.rand(2, generator=generator) * 8
            times = int(torch.randint(0, 4, (), generator=generator))
            mine: list[float] = []
            theirs: list[float] = []
            found, expected = mixed(x, times, mine), mixed.original(x, times, theirs)
            if not torch.equal(found, expected) or mine != theirs:
                problems.append(f"{x}, {times}: {found}, {mine}, not {expected}, {theirs}")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return problems[0] if problems else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--backend", default="eager")
    options = parser.parse_args()
    wrong, unsaved = 0, 0
    for seed in range(options.seed, options.seed + options.count):
        problem, how = check_saved(seed, options.backend)
        problem = problem or check_threads(seed, options.backend)
        unsaved += how != "saved"
        if problem is not None:
            wrong += 1
            print(f"seed {seed}: {problem}")
        elif how != "saved":
            print(f"seed {seed}: {how}")
    print(f"{options.count} programs, {wrong} wrong, {unsaved} not saved")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
