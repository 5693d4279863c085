"""``python -m tests.generation [name ...]``: a table of architectures, and where their programs are right.

Programs of a prefill and of a decode step, exported once, are compared with the model at other batches and lengths,
and generate tokens beside ``generate()``; as exported, after a file, and after decomposition.
"""

from __future__ import annotations

import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterable

import tintype
from tests.generation.architectures import ARCHITECTURES, Architecture
from tests.generation.judging import STAGES, differences, export
from tests.generation.tokens import BATCHES, wrong_batches

# batches and lengths of prompts; windows are 16 wide
SIZES = [(1, 3), (2, 6), (3, 4), (1, 9), (4, 5), (2, 11), (5, 2), (1, 1), (3, 17), (2, 33)]
STEPS = ("prefill", "decode")


class Report:
    """A row of the table, and what is to be said below it."""

    def __init__(self, name: str) -> None:
        self.cells = [name]
        self.notes: list[str] = []
        self.is_wrong = False

    def add(self, what: str, count: int, find: Callable[[], Iterable[str]]) -> None:
        """How many of so many cases are right."""
        try:
            found = list(find())
        except Exception as error:  # everything is reported
            self.fail(what, error)
            return
        self.is_wrong |= any("refused" not in line for line in found)
        self.cells.append(f"{count - len(found)} of {count}")
        self.notes += [f"{what}: {line}" for line in found]

    def fail(self, what: str, error: Exception) -> None:
        """An error of ours is an answer, any other a mistake."""
        self.cells.append("refused" if isinstance(error, tintype.TintypeError) else "fails")
        self.notes.append(f"{what}: {type(error).__name__}: {str(error)[:600]}")
        if not isinstance(error, tintype.TintypeError):
            self.is_wrong = True
            traceback.print_exc()


def report_of(architecture: Architecture) -> Report:
    """All that is tried of one architecture."""
    report = Report(architecture.name)
    programs: dict[str, tintype.ExportedProgram] = {}
    start = time.perf_counter()
    for step in STEPS:
        try:
            programs[step] = export(architecture, step)
        except Exception as error:
            report.fail(f"export of {step}", error)
    report.cells.insert(1, f"{time.perf_counter() - start:.2f} s")
    for stage, change in STAGES.items():
        changed = {step: change(program) for step, program in programs.items()}
        for step, program in changed.items():
            find = lambda: differences(program, architecture, step, SIZES)  # noqa: B023, E731 - called at once
            report.add(f"{step}, {stage}", len(SIZES), find)
        if len(changed) == len(STEPS):
            find_tokens = lambda: wrong_batches(architecture, changed["prefill"], changed["decode"])  # noqa: B023, E731
            report.add(f"tokens, {stage}", len(BATCHES), find_tokens)
    return report


def main(names: list[str]) -> int:
    """Print what is found; the exit status says whether everything is right or refused."""
    warnings.simplefilter("ignore")
    columns = ["model", "export", *(f"{what}, {stage}" for stage in STAGES for what in (*STEPS, "tokens"))]
    print(f"| {' | '.join(columns)} |\n{'|---' * len(columns)}|")
    is_wrong = False
    for name in names or ARCHITECTURES:
        report = report_of(ARCHITECTURES[name]())
        print(f"| {' | '.join(report.cells)} |", flush=True)
        for note in report.notes:
            print(f"  {note}", file=sys.stderr)
        is_wrong |= report.is_wrong
    return is_wrong


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
