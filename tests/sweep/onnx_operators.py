"""The operator sweep of ONNX: ``python -m tests.sweep.onnx_operators``, one operator with ``--only roll --trace``.

Every entry of torch's operator database is exported with sample inputs in float32, float16, int64 and bool (another
dtype where it has none of these), run on ONNX Runtime and compared with eager mode, on the sample and on other
values. An operator is *right* if all its samples are, *refused* if some are refused by name and no others are wrong,
*caught* if only the verification that exports make by default would have stopped a wrong program, and *wrong* if that
would not.
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

import tintype
from benchmarks.report import replace_section
from tests.sweep.judging import UNINITIALISED, Difference, Result, compare_results, first_line, quiet, run
from tests.sweep.opinfo import GIGABYTE, leave_the_seed_alone, selected
from tests.sweep.processes import run_jobs
from tests.sweep.programs import DTYPES, Case, make_case, seed, spread
from tintype.errors import TintypeError
from tintype.onnx.verification import check_model

WANTED = (torch.float32, torch.float16, torch.int64, torch.bool)
RIGHT, REFUSED, CAUGHT, WRONG, SKIPPED = "right", "refused", "caught", "wrong", "eager fails"
SEVERITY = (SKIPPED, RIGHT, REFUSED, CAUGHT, WRONG)
# They search tensors that have to be sorted, which other values are not.
SEARCHES = frozenset({"bucketize", "searchsorted"})


def dtypes_of(operator: Any) -> list[torch.dtype]:
    """The dtypes to ask for samples in."""
    found = [dtype for dtype in WANTED if operator.supports_dtype(dtype, "cpu")]
    return found or [dtype for dtype in DTYPES if operator.supports_dtype(dtype, "cpu")][:1]


def cases_of(operator: Any, limit: int) -> Iterator[tuple[torch.dtype, Case]]:
    """The programs of an operator, at most ``limit`` of them in each dtype."""
    for dtype in dtypes_of(operator):
        seed()
        samples = list(operator.sample_inputs(device="cpu", dtype=dtype, requires_grad=False))
        for number in spread(len(samples), limit):
            sample = samples[number]
            yield dtype, make_case(f"sample {number}", operator.op, ((sample.input, *sample.args), sample.kwargs))


def judge(operator: Any, dtype: torch.dtype, case: Case) -> tuple[str, str]:
    """A verdict and what there is to say."""
    try:
        expected = run(case.module, case)
    except Exception as error:
        return SKIPPED, first_line(error)
    try:
        program = tintype.onnx.export(case.module, case.inputs, verify=False)
        check_model(program.model)
        is_random = _is_random(case)
        largest = max((float(leaf.abs().max()) for leaf in _halves(expected.value)), default=0.0)
        tolerance = 1e-4 if dtype is not torch.float16 else 2e-2 * max(1.0, min(largest, 10.0))
        values = operator.name not in UNINITIALISED and not is_random
        trials = [(case, expected)]
        if operator.name not in SEARCHES:  # whose other values would not be sorted
            try:
                other = case.with_other_values()
                trials.append((other, run(case.module, other)))
            except Exception as error:  # eager mode does not take them
                print(f"{case.name}: {first_line(error)}", file=sys.stderr)
        for each, wanted in trials:
            inputs = each.fresh_inputs()
            seed()
            compare_results(wanted, Result(program(*inputs), inputs), tolerance, tolerance, values)
    except Difference as difference:
        if dtype is torch.float32 and _is_nearer(case, program, expected):
            return RIGHT, ""
        return _whether_caught(case, str(difference))
    except TintypeError as error:
        return REFUSED, str(error)
    return RIGHT, ""


def judge_torch(operator: Any, dtype: torch.dtype, case: Case) -> tuple[str, str]:
    """The same of torch's own exporter, whose programs nobody verifies before the user gets them."""
    try:
        expected = run(case.module, case)
    except Exception as error:
        return SKIPPED, first_line(error)
    try:
        program = torch.onnx.export(case.module, case.fresh_inputs(), dynamo=True, verbose=False)
        assert program is not None
        seed()
        got = program(*case.fresh_inputs())
    except Exception as error:  # it raises all kinds of them
        return REFUSED, first_line(error)
    leaves = [leaf for leaf in torch.utils._pytree.tree_leaves(expected.value) if isinstance(leaf, torch.Tensor)]
    largest = max((float(leaf.abs().max()) for leaf in _halves(expected.value)), default=0.0)
    tolerance = 1e-4 if dtype is not torch.float16 else 2e-2 * max(1.0, min(largest, 10.0))
    values = operator.name not in UNINITIALISED and not _is_random(case)
    inputs = case.fresh_inputs()
    try:  # its results are a flat list of tensors
        compare_results(
            Result(leaves, inputs), Result(list(got)[: len(leaves)], inputs), tolerance, tolerance, values
        )
    except Difference as difference:
        return WRONG, str(difference)
    return RIGHT, ""


def _is_random(case: Case) -> bool:
    return any(
        isinstance(node.target, torch._ops.OpOverload) and torch.Tag.nondeterministic_seeded in node.target.tags
        for node in tintype.export(case.module, case.inputs).graph.nodes
    )


def _is_nearer(case: Case, program: Any, expected: Result) -> bool:
    """Whether a result is at least as near to the one in double precision as that of eager mode is."""
    wide = [leaf.double() if leaf.dtype is torch.float32 else leaf for leaf in case.fresh_inputs()]
    try:
        exact = torch.utils._pytree.tree_leaves(case.module(*wide))
    except RuntimeError:
        return False  # it takes no double precision
    eager, got = (torch.utils._pytree.tree_leaves(each) for each in (expected.value, program(*case.fresh_inputs())))
    return len(exact) == len(got) and all(
        left.shape == right.shape
        and float((right.double() - best).abs().max()) <= float((left.double() - best).abs().max())
        for best, left, right in zip(exact, eager, got)
        if isinstance(best, torch.Tensor) and best.is_floating_point() and best.numel()
    )


def _halves(value: Any) -> list[torch.Tensor]:
    leaves = torch.utils._pytree.tree_leaves(value)
    return [
        leaf[leaf.isfinite()]
        for leaf in leaves
        if isinstance(leaf, torch.Tensor) and leaf.dtype is torch.float16 and bool(leaf.isfinite().any())
    ]


def _whether_caught(case: Case, message: str) -> tuple[str, str]:
    try:
        tintype.onnx.export(case.module, case.inputs)
    except TintypeError:
        return CAUGHT, message
    return WRONG, message


def sweep(operators: list[Any], options: argparse.Namespace) -> Iterator[tuple[Any, list[Any]]]:
    """Judge operators, each in a process of its own."""

    def work(number: int) -> Iterator[Any]:
        quiet()
        for dtype, case in cases_of(operators[number], options.limit_samples):
            verdict, message = (judge_torch if options.torch else judge)(operators[number], dtype, case)
            yield str(dtype).removeprefix("torch."), case.name, verdict, message

    end = time.monotonic() + 60 * options.minutes
    numbers = itertools.takewhile(lambda number: time.monotonic() < end, range(len(operators)))
    jobs = run_jobs(numbers, work, workers=options.jobs, timeout=options.timeout, memory=16 * GIGABYTE)
    for finished in jobs:
        outcomes = list(finished.messages)
        if finished.failure is not None:
            outcomes.append(("", "", CAUGHT, finished.failure.strip().splitlines()[-1]))
        yield operators[finished.job], outcomes


def verdict_of(outcomes: list[Any]) -> str:
    """The worst that happened to an operator."""
    return max((outcome[2] for outcome in outcomes), key=SEVERITY.index, default=SKIPPED)


def page(found: dict[str, list[Any]]) -> str:
    """The table for the documentation."""
    counts = Counter(map(verdict_of, found.values()))
    running = sum(counts.values()) - counts[SKIPPED]
    share = 100 * counts[RIGHT] / max(running, 1)
    summary = (
        f"{len(found)} operators: {counts[RIGHT]} right ({share:.1f} %), "
        f"{counts[REFUSED]} refused by name, {counts[CAUGHT]} stopped by verification, {counts[WRONG]} wrong."
    )
    lines = [
        summary,
        "",
        "| operator | verdict | samples right | why |",
        "|---|---|---|---|",
    ]
    for name, outcomes in sorted(found.items()):
        verdict = verdict_of(outcomes)
        if verdict == RIGHT:
            continue
        bad = next((outcome for outcome in outcomes if outcome[2] == verdict), ("", "", "", ""))
        good = sum(outcome[2] == RIGHT for outcome in outcomes)
        reason = " ".join(bad[3].replace("|", "\\|").split())
        why = re.split(r" at /| At: /| What to do:", reason)[0][:160]
        lines.append(f"| `{name}` | {verdict} | {good} of {len(outcomes)} | {bad[0]}: {why} |")
    right = ", ".join(f"`{name}`" for name, outcomes in sorted(found.items()) if verdict_of(outcomes) == RIGHT)
    return "\n".join([*lines, "", f"Right: {right}."])


def main() -> int:
    """Run the sweep; 1 if something is wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.sweep.onnx_operators", description=__doc__)
    parser.add_argument("--only", metavar="PATTERN")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--limit-samples", type=int, default=6, metavar="N", help="per operator and dtype")
    parser.add_argument("--timeout", type=float, default=120.0)
    parser.add_argument("--json", type=Path, help="a file of outcomes; what it has is not run again")
    parser.add_argument("--minutes", type=float, default=1e9, help="begin no operator after this time")
    parser.add_argument("--write", action="store_true", help="write docs/onnx_operators.md")
    parser.add_argument("--torch", action="store_true", help="judge torch.onnx instead")
    parser.add_argument("--trace", action="store_true", help="print every sample that is not right")
    options = parser.parse_args()
    torch.set_num_threads(1)
    leave_the_seed_alone()
    tintype.onnx.export(torch.nn.ReLU(), (torch.ones(2),))  # loaded once, for all processes
    has_some = options.json is not None and options.json.exists()
    found: dict[str, list[Any]] = json.loads(options.json.read_text()) if has_some else {}
    missing = [operator for operator in selected(options.only) if operator.full_name not in found]
    for operator, outcomes in sweep(missing, options):
        found[operator.full_name] = outcomes
        if options.trace:
            for outcome in outcomes:
                if outcome[2] not in (RIGHT, SKIPPED):
                    print(operator.full_name, *outcome)
        if options.json is not None:
            options.json.write_text(json.dumps(found, indent=1))
    text = page(found)
    print(text)
    if options.write:
        replace_section(Path("docs/onnx_operators.md"), "operators", text)
    return 1 if any(verdict_of(outcomes) == WRONG for outcomes in found.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
