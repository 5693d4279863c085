"""Real models on ONNX Runtime: ``python -m tests.sweep.onnx_models [--only bert,gpt2] [--write]``.

Every open model of the corpus (see ``benchmarks/model_corpus.py``) is exported to ONNX with the corpus's dynamic
sizes, without verification, and compared with eager mode on the example and on inputs of other sizes; then it is
exported with the newest opset, with modules as functions and with ``optimize="full"``, and asked the same. Each
model has a process of its own. The exit status is 1 when one of them is wrong or refused that is not listed in
``KNOWN``.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import os
import subprocess
import sys
import warnings
from typing import Any

import torch
import torch.utils._pytree as pytree

import tintype
from benchmarks.model_corpus import add_corpus_argument, corpus_folder, load_cases
from benchmarks.report import REPOSITORY, replace_section
from tests.sweep.judging import quiet
from tests.sweep.model_shapes import arguments_by_name, problem, shapes_from_spec
from tintype.errors import TintypeError

PAGE = REPOSITORY / "docs" / "onnx.md"
WAYS: dict[str, dict[str, Any]] = {
    "opset 20": {},
    "opset 24": {"opset": 24},
    "functions": {"functions": True},
    "full": {"optimize": "full"},
}
HEAD = ("model", "dynamic sizes", *WAYS)
# Models that can't be compared, and why: not a defect of the translation.
KNOWN = {"vae": "it draws random numbers, for which ONNX Runtime has a generator of its own, and none after opset 21"}
TOLERANCE = 1e-4
PER_MODEL = 600  # seconds


def difference(program: Any, model: torch.nn.Module, inputs: Any) -> float:
    """How far it is from eager mode, in parts of the largest number of an output.

    It is infinite where structure, sizes or dtypes are others.
    """
    args, kwargs = inputs
    program.reset()
    found, structure = pytree.tree_flatten(program(*copy.deepcopy(args), **copy.deepcopy(kwargs)))
    with torch.no_grad():
        expected, other = pytree.tree_flatten(copy.deepcopy(model)(*copy.deepcopy(args), **copy.deepcopy(kwargs)))
    if structure != other or [(v.shape, v.dtype) for v in found] != [(v.shape, v.dtype) for v in expected]:
        return math.inf
    pairs = [(a.double(), b.double()) for a, b in zip(found, expected, strict=True) if a.numel()]
    parts = [(a - b).abs().nan_to_num(math.inf).max() / b.abs().max().clamp(min=1e-30) for a, b in pairs]
    return max(map(float, parts), default=0.0)


def judge(case: Any) -> dict[str, str]:
    """What came of one model, by the way it was exported."""
    model, args, kwargs = case.build()
    shapes = shapes_from_spec(case.dynamic, arguments_by_name(model, args, kwargs)) if case.dynamic else None
    names = dict.fromkeys(entry[0] for dims in (case.dynamic or {}).values() for entry in dims.values())
    row = {"model": case.name, "dynamic sizes": ", ".join(names) or "none"}
    inputs = [(args, kwargs), *([case.second()] if case.dynamic else [])]
    try:
        captured = tintype.export(copy.deepcopy(model), args, kwargs, dynamic_shapes=shapes)
    except TintypeError as error:
        return {**row, **dict.fromkeys(WAYS, f"FAIL: not captured, {problem(error)}")}
    for way, options in WAYS.items():
        try:
            program = tintype.onnx.export(captured, verify=False, **options)
            worst = [difference(program, model, each) for each in inputs]
        except Exception as error:  # one that is none of ours is a finding as well
            row[way] = f"FAIL: {problem(error)}"
            continue
        told = ", ".join(f"{each:.0e}" for each in worst)
        row[way] = told if max(worst) <= TOLERANCE else f"FAIL: differs by {told}"
    return row


def judge_in_process(name: str, folder: Any) -> dict[str, str]:
    command = [sys.executable, "-m", "tests.sweep.onnx_models", "--one", name, "--corpus", str(folder)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(REPOSITORY)}
    row = {"model": name, "dynamic sizes": ""}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, env=environment, cwd=REPOSITORY, timeout=PER_MODEL
        )
    except subprocess.TimeoutExpired:
        return {**row, **dict.fromkeys(WAYS, f"FAIL: takes more than {PER_MODEL} s")}
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"ended with {done.returncode}"])[-1][:120]
        return {**row, **dict.fromkeys(WAYS, f"FAIL: {last}")}
    found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return found


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_corpus_argument(parser)
    parser.add_argument("--only", help="models, with commas")
    parser.add_argument("--write", action="store_true", help="put the table into docs/onnx.md")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    folder = corpus_folder(options.corpus)
    if folder is None:
        print("The model corpus is not on this machine (see --corpus).", file=sys.stderr)
        return 1
    warnings.filterwarnings("ignore")
    cases = load_cases(folder)
    if options.one:
        quiet()
        torch.set_num_threads(1)
        print(json.dumps(judge(cases[options.one])))
        return 0
    names = options.only.split(",") if options.only else [n for n, case in cases.items() if case.split == "open"]
    rows = []
    for name in names:
        rows.append(judge_in_process(name, folder))
        print(" | ".join(rows[-1][column] for column in HEAD), flush=True)
    failed = [row["model"] for row in rows if any(cell.startswith("FAIL") for cell in row.values())]
    known = [name for name in failed if name in KNOWN]
    summary = f"{len(rows)} models: {len(rows) - len(failed)} right in all ways."
    lines = ["| " + " | ".join(HEAD) + " |", "|" + "---|" * len(HEAD)]
    lines += ["| " + " | ".join(row[column] for column in HEAD) + " |" for row in rows]
    lines += [""] * bool(known) + [f"`{name}`: {KNOWN[name]}." for name in known]
    if options.write:
        replace_section(PAGE, "models", summary + "\n\n" + "\n".join(lines))
    print(summary + (f" Not: {', '.join(failed)}" if failed else ""))
    return 1 if {*failed} - {*KNOWN} else 0


if __name__ == "__main__":
    sys.exit(main())
