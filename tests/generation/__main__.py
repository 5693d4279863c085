"""``python -m tests.generation [--write] [name ...]``: a table of architectures, and where their programs are right.

Programs of a prefill and of a decode step, exported once, are compared with the model at other batches and lengths,
and generate tokens beside ``generate()``; as exported, after a file, and after decomposition. Figures say how long a
token and an export take beside eager mode. ``--write`` puts the table into docs/generation.md.
"""

from __future__ import annotations

import argparse
import sys
import traceback
import warnings
from collections.abc import Callable, Iterable

import torch

import tintype
from benchmarks.report import REPOSITORY, geometric_mean, machine, markdown_table, number, replace_section
from tests.generation.architectures import ARCHITECTURES, Architecture
from tests.generation.figures import export_forwards, file_ratio, token_ratio
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
        self.per_token: float | None = None

    def add(self, what: str, count: int, find: Callable[[], Iterable[str]]) -> None:
        """How many of so many cases are right."""
        try:
            found = list(find())
        except Exception as error:  # everything is reported
            self.cells.append(self.fail(what, error))
            return
        self.is_wrong |= any("refused" not in line for line in found)
        self.cells.append(f"{count - len(found)} of {count}")
        self.notes += [f"{what}: {line}" for line in found]

    def fail(self, what: str, error: Exception) -> str:
        """An error of ours is an answer, any other a mistake."""
        self.notes.append(f"{what}: {type(error).__name__}: {str(error)[:600]}")
        if isinstance(error, tintype.TintypeError):
            return "refused"
        self.is_wrong = True
        traceback.print_exc()
        return "fails"


def report_of(architecture: Architecture) -> Report:
    """All that is tried of one architecture."""
    report = Report(architecture.name)
    programs: dict[str, tintype.ExportedProgram] = {}
    refusals: dict[str, str] = {}
    for step in STEPS:
        try:
            programs[step] = export(architecture, step)
        except Exception as error:
            refusals[step] = report.fail(f"export of {step}", error)
    for stage, change in STAGES.items():
        changed = {step: change(program) for step, program in programs.items()}
        for step in STEPS:
            if step in changed:
                find = lambda: differences(changed[step], architecture, step, SIZES)  # noqa: B023, E731 - called at once
                report.add(f"{step}, {stage}", len(SIZES), find)
            else:
                report.cells.append(refusals[step])
        if refusals:
            report.cells.append("-")
        else:
            find_tokens = lambda: wrong_batches(architecture, changed["prefill"], changed["decode"])  # noqa: B023, E731
            report.add(f"tokens, {stage}", len(BATCHES), find_tokens)
    if "decode" in programs:
        report.per_token = token_ratio(architecture, programs["decode"])
    report.cells += [number(report.per_token), "-" if refusals else number(export_forwards(architecture), ".0f")]
    return report


def main(arguments: list[str] | None = None) -> int:
    """Print what is found; the exit status says whether everything is right or refused."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="architectures; all of them by default")
    parser.add_argument("--write", action="store_true", help="put the table into docs/generation.md")
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    head = ["model", *(f"{what}, {stage}" for stage in STAGES for what in (*STEPS, "tokens")), "per token", "export"]
    reports = []
    for name in options.names or ARCHITECTURES:
        report = report_of(ARCHITECTURES[name]())
        reports.append(report)
        print(" | ".join(report.cells), flush=True)
        for note in report.notes:
            print(f"  {note}", file=sys.stderr)
    mean = geometric_mean(report.per_token for report in reports if report.per_token is not None)
    text = markdown_table(head, [report.cells for report in reports])
    text += f"\n\nGeometric mean per token {number(mean)}. The file of prefill and decode of a Llama of 40 MB is "
    text += f"{file_ratio():.3f} times as large as that of decode alone. {machine()}"
    print(text)
    if options.write:
        replace_section(REPOSITORY / "docs" / "generation.md", "generation", text)
    return any(report.is_wrong for report in reports)


if __name__ == "__main__":
    sys.exit(main())
