"""The operator sweep: ``python -m tests.sweep.opinfo``, for one operator ``--only linalg.svd --trace``.

Every entry of torch's operator database is exported with its sample inputs, run, decomposed, run again, and
compared with eager mode. An operator is *correct* if all its samples are, *refused* if tintype says why it
can't, *wrong* if it differs silently, and an *error* if tintype breaks.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch.testing._internal import common_methods_invocations as database

import tintype
from benchmarks.report import replace_section
from tests.sweep.judging import ERROR, EXPORT, Outcome, judge, quiet
from tests.sweep.processes import Finished, run_jobs
from tests.sweep.programs import cases_of, dtype_for
from tests.sweep.report import OperatorReport, SweepReport

GIGABYTE = 1 << 30
# Their kernels fail on a GPU where a kernel on the processor raises, and nothing runs on it afterwards.
SPOIL_A_DEVICE = ("_segment_reduce", "jiterator")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.sweep.opinfo", description=__doc__)
    parser.add_argument("--only", metavar="PATTERN", help="operators to take: names or patterns, comma-separated")
    parser.add_argument("--jobs", type=int, default=2, help="how many operators at a time")
    parser.add_argument("--json", type=Path, metavar="OUT", help="write everything that is not correct to a file")
    parser.add_argument("--markdown", type=Path, metavar="PAGE", help="write a page with the counts and refusals")
    parser.add_argument("--limit-samples", type=int, default=25, metavar="N", help="per operator; 0: all of them")
    parser.add_argument("--timeout", type=float, default=60.0, metavar="SECONDS", help="per operator")
    parser.add_argument("--memory", type=int, default=12, metavar="GB", help="per operator")
    parser.add_argument("--device", default="cpu", help="where the samples lie; other ones are swept in one process")
    parser.add_argument("--part", default="0/1", metavar="I/N", help="every Nth operator, from the Ith on")
    parser.add_argument("--trace", action="store_true", help="print the traceback of each kind of problem")
    return parser.parse_args()


def selected(pattern: str | None) -> list[Any]:
    """The entries of the database that a pattern names."""
    patterns = pattern.split(",") if pattern else ["*"]
    return [op for op in database.op_db if any(fnmatch.fnmatchcase(op.full_name, wanted) for wanted in patterns)]


def leave_the_seed_alone() -> None:
    """Let operators that draw random numbers draw them: the database seeds them inside of the call, which is
    Python's doing and no part of a captured program. The sweep seeds before each call instead."""
    database.wrapper_set_seed = lambda operator, *args, **kwargs: operator(*args, **kwargs)


def sweep(operators: list[Any], options: argparse.Namespace) -> Iterator[OperatorReport]:
    """Judge operators, each in a process of its own."""

    def work(number: int) -> Iterator[Outcome]:
        quiet()
        operator = operators[number]
        for case in cases_of(operator, options.limit_samples, options.device):
            yield from judge(operator, case)

    if options.device != "cpu":  # its driver does not survive a fork
        for number, operator in enumerate(operators):
            yield as_report(operator, in_this_process(number, work), options.device)
        return
    finished_jobs = run_jobs(
        range(len(operators)),
        work,
        workers=options.jobs,
        timeout=options.timeout,
        memory=options.memory * GIGABYTE,
    )
    for finished in finished_jobs:
        yield as_report(operators[finished.job], finished, options.device)


def in_this_process(number: int, work: Callable[[int], Iterator[Outcome]]) -> Finished:
    """Judge an operator here."""
    messages: list[Outcome] = []
    started = time.monotonic()
    try:
        messages.extend(work(number))
        failure = None
    except Exception:
        failure = traceback.format_exc(limit=-4)
    return Finished(number, messages, failure, time.monotonic() - started)


def as_report(operator: Any, finished: Finished, device: str) -> OperatorReport:
    """The report of an operator whose process has ended, maybe badly."""
    dtype = str(dtype_for(operator, device)).removeprefix("torch.")
    report = OperatorReport(operator.full_name, dtype, finished.seconds, finished.messages)
    if finished.failure is not None:
        last = f"after {report.outcomes[-1].case}" if report.outcomes else "at the start"
        lines = finished.failure.strip().splitlines()
        report.outcomes.append(Outcome(last, EXPORT, ERROR, lines[-1], finished.failure))
    return report


def print_traces(report: OperatorReport) -> None:
    """One traceback per message."""
    seen = set()
    for outcome in report.outcomes:
        if outcome.trace and outcome.message not in seen:
            seen.add(outcome.message)
            print(f"--- {report.name}, {outcome.stage}, {outcome.case}\n{outcome.trace}")


def main() -> int:
    """Run the sweep; 1 if something is wrong or too little is correct."""
    options = parse_arguments()
    torch.set_num_threads(1)
    leave_the_seed_alone()
    tintype.export(torch.nn.ReLU(), (torch.ones(2),)).run_decompositions()  # loaded once, for all processes
    part, parts = map(int, options.part.split("/"))
    operators = selected(options.only)
    if options.device != "cpu":
        operators = [operator for operator in operators if not operator.name.startswith(SPOIL_A_DEVICE)]
    operators = operators[part::parts]
    reports = []
    for count, report in enumerate(sweep(operators, options), 1):
        reports.append(report)
        if options.trace:
            print_traces(report)
        if sys.stderr.isatty():
            print(f"\r{count} of {len(operators)} ", end="", file=sys.stderr)
    outcome = SweepReport(reports)
    print(outcome.text())
    if options.json is not None:
        options.json.write_text(json.dumps([operator.as_json() for operator in outcome.operators], indent=1))
    if options.markdown is not None:
        replace_section(options.markdown, "operators", outcome.markdown("make sweep"))
    return 0 if outcome.good_enough() else 1


if __name__ == "__main__":
    sys.exit(main())
