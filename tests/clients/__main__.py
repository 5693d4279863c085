"""What other tools make of our programs: ``python -m tests.clients [--tools ONNX,...] [--models ...] [--write]``.

Every tool gets each of six models as we give it to torch and as torch.export gives it: with fixed sizes, with sizes
that vary, and with sizes that vary and are 1 in the example (which torch.export does not take; its program for a
larger example is held beside). What runs is run on several sizes and held against the model; what is quantized must
have as many quantized nodes as torch's program, and the same results. Needs the packages of the extra ``clients``;
the Makefile has an environment of its own for them.

Exits with 1 where a tool does worse with our program than with torch's.
"""

from __future__ import annotations

import argparse
import copy
import json
import re
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

import tintype
from benchmarks.report import REPOSITORY, machine, replace_section
from tests.clients.models import CASES, Case
from tests.clients.tools import COUNTING, RUNNING

PAGE = REPOSITORY / "docs" / "interop.md"
# kind of sizes: batch and length of the example, and those that the program is then run at
KINDS = {
    "fixed": ((2, 6), [(2, 6)]),
    "varying": ((2, 6), [(2, 6), (5, 9), (1, 3), (8, 16)]),
    "from 1": ((1, 1), [(1, 1), (5, 9), (2, 6), (8, 16)]),
}
TORCH_EXAMPLE = (2, 6)


def ours(case: Case, model: torch.nn.Module, kind: str, export: Any = tintype.export) -> torch.export.ExportedProgram:
    shapes = None if kind == "fixed" else case.dynamic_shapes(tintype.Dim)
    return tintype.interop.to_torch(export(model, (case.input(*KINDS[kind][0]),), dynamic_shapes=shapes))


def torchs(case: Case, model: torch.nn.Module, kind: str) -> torch.export.ExportedProgram:
    shapes = None if kind == "fixed" else case.dynamic_shapes(torch.export.Dim)
    return torch.export.export(model, (case.input(*TORCH_EXAMPLE),), dynamic_shapes=shapes)


def verdict_of_run(tool: str, case: Case, kind: str, program: Callable[..., Any]) -> str:
    """Whether a tool computes what the model computes, at all sizes."""
    model = case.model().eval()
    try:
        run = RUNNING[tool](program(case, model, kind))
    except Exception as error:
        return f"refused ({type(error).__name__}: {str(error).strip().partition(chr(10))[0][:120]})"
    for sizes in KINDS[kind][1]:
        x = case.input(*sizes)
        with torch.no_grad():
            wanted = model(x)
        try:
            result = run(x)
        except Exception as error:
            return f"fails at {sizes} ({type(error).__name__}: {str(error).strip().partition(chr(10))[0][:120]})"
        if result.shape != wanted.shape:
            return f"wrong at {sizes}: {list(result.shape)} for {list(wanted.shape)}"
        if not torch.allclose(result, wanted, atol=1e-4, rtol=1e-4):
            return f"wrong at {sizes}: by {(result - wanted).abs().max():.1e}"
    return "right"


def counted(tool: str, case: Case, program: Callable[..., Any]) -> tuple[int, torch.Tensor]:
    torch.manual_seed(1)
    model = case.model().eval()
    x = case.input(*TORCH_EXAMPLE)
    count, result = COUNTING[tool](program(case, copy.deepcopy(model)).module(), x)
    return count, result.detach()


def verdict_of_count(tool: str, case: Case) -> tuple[str, str]:
    """The numbers of nodes with our program and with torch's; whether results are the same."""
    found = []
    programs = (
        (lambda case, model: ours(case, model, "fixed", tintype.export_for_training)),
        (lambda case, model: torchs(case, model, "fixed")),
    )
    for program in programs:
        try:
            found.append(counted(tool, case, program))
        except Exception as error:
            found.append((-1, torch.tensor([])))
            print(f"{tool}: {type(error).__name__}: {error}", file=sys.stderr)
    (count, result), (wanted_count, wanted) = found
    same = result.shape == wanted.shape and torch.allclose(result, wanted, atol=1e-5, equal_nan=True)
    return f"{count}{'' if same else ', other results'}", str(wanted_count)


def judge(tool: str, models: Sequence[str]) -> Iterator[dict[str, Any]]:
    """All verdicts on one tool."""
    for name in models:
        case = CASES[name]
        started = time.perf_counter()
        if tool in COUNTING:
            mine, reference = verdict_of_count(tool, case)
            yield {"model": name, "kind": "fixed", "ours": mine, "torch": reference}
        for kind in KINDS if tool in RUNNING else ():
            mine = verdict_of_run(tool, case, kind, ours)
            # torch takes no example of size 1: there its program for the larger example has been judged already
            reference = reference if kind == "from 1" else verdict_of_run(tool, case, kind, torchs)
            yield {"model": name, "kind": kind, "ours": mine, "torch": reference}
        print(f"{tool}, {name}: {time.perf_counter() - started:.0f} s", file=sys.stderr)


def is_worse(row: dict[str, Any]) -> bool:
    """Whether a tool does better with torch's program than with ours: a refusal is none where torch's is no better,
    a wrong result always."""
    mine, reference = row["ours"], row["torch"]
    if mine in ("right", reference):
        return False
    return reference == "right" or not mine.startswith(("refused", "fails"))


def judged_apart(tool: str, models: Sequence[str], seconds: float) -> list[dict[str, Any]]:
    """The same in a process of its own: tools change torch's registers, and may crash."""
    command = [sys.executable, "-W", "ignore", "-m", "tests.clients", "--judge", tool, "--models", ",".join(models)]
    done = subprocess.run(command, stdout=subprocess.PIPE, cwd=REPOSITORY, timeout=seconds)
    rows = [json.loads(line) for line in done.stdout.decode().splitlines() if line.startswith('{"model"')]
    if done.returncode:
        rows.append({"model": "all", "kind": "all", "ours": f"crashed (exit status {done.returncode})", "torch": ""})
    return rows


def table(rows: dict[str, list[dict[str, Any]]]) -> str:
    """A row per model and kind of sizes, a column per tool; torch's own in brackets where it is another, a line where
    a tool is not asked (quantizers count nodes of programs with fixed sizes)."""
    places = dict.fromkeys((row["model"], row["kind"]) for found in rows.values() for row in found)
    lines = [["model", "sizes", *rows], ["---"] * (len(rows) + 2)]
    for model, kind in places:
        line = [model, kind]
        for found in rows.values():
            row = next((row for row in found if (row["model"], row["kind"]) == (model, kind)), None)
            line.append("-" if row is None else _cell(row))
        lines.append(line)
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _cell(row: dict[str, Any]) -> str:
    mine, reference = (re.split(r" at \(| \(|:", row[who])[0] for who in ("ours", "torch"))
    return mine if mine == reference else f"{mine} [{reference}]"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tools", default=",".join([*RUNNING, *COUNTING]))
    parser.add_argument("--models", default=",".join(CASES))
    parser.add_argument("--judge", help=argparse.SUPPRESS)
    parser.add_argument("--write", action="store_true", help="also put the table into docs/interop.md")
    options = parser.parse_args()
    models = options.models.split(",")
    if options.judge:
        warnings.simplefilter("ignore")
        for row in judge(options.judge, models):
            print(json.dumps(row), flush=True)
        return 0
    rows = {tool: judged_apart(tool, models, 3600) for tool in options.tools.split(",")}
    text = table(rows)
    print(text)
    worse = [(tool, row) for tool, found in rows.items() for row in found if is_worse(row)]
    for tool, row in worse:
        print(f"{tool}, {row['model']}, {row['kind']}: {row['ours']}; with torch's program: {row['torch']}")
    if options.write:
        replace_section(Path(PAGE), "clients", f"{text}\n\n{versions()} {machine()}")
    return 1 if worse else 0


def versions() -> str:
    from importlib.metadata import version

    names = ("openvino", "executorch", "torchao", "onnx", "onnxscript", "onnxruntime")
    return ", ".join(f"{name} {version(name)}" for name in names) + "."


if __name__ == "__main__":
    sys.exit(main())
