"""Export, decomposition and joint graphs of real models: tintype against torch, in one run.

    python -m benchmarks.compare [--task export,decomp,joint,strict] [--dynamic] [--cases bert,gpt2] [--write]

With --dynamic both get the corpus's dynamic shapes, and what comes out is also run on inputs of other sizes. The
static export is then timed as well, by tintype alone, for what the symbols cost.

Runs the corpus's bench.py, which takes each model in a process of its own on one thread, torch and tintype
in turn. The times are the best warm call; the eager time is one forward.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.model_corpus import add_corpus_argument, corpus_folder
from benchmarks.report import (
    REPOSITORY,
    add_write_argument,
    geometric_mean,
    markdown_table,
    number,
    publish,
)

TASKS = ("export", "decomp", "joint", "strict")
# joint graphs are compared with those of AOTAutograd itself, which is faster than torch.export in front of it
OPPONENTS = {"export": "torch", "decomp": "torch", "joint": "torch-aot", "strict": "torch"}
DYNAMIC_HEAD = (
    "model",
    "torch s",
    "tintype s",
    "tintype static s",
    "torch / tintype",
    "dynamic / static",
    "max diff",
    "other sizes",
)
HEAD = (
    "model",
    "eager ms",
    "torch s",
    "tintype s",
    "torch / tintype",
    "tintype / eager",
    "nodes",
    "max diff",
)

Result = dict[str, Any]


def run_corpus(folder: Path, task: str, mode: list[str], results: Path, options: argparse.Namespace) -> None:
    """Run bench.py over the models and leave its JSON in `results`."""
    command = [sys.executable, str(folder / "bench.py"), *mode, "--task", task, "--json", str(results)]
    if "--compare" in mode:
        command += ["--against", OPPONENTS[task]]
    command += ["--split", options.split, "--repeat", str(options.repeat), "--timeout", str(options.timeout)]
    command += ["--quiet-wait", str(options.quiet_wait)]
    if options.cases:
        command += ["--cases", options.cases]
    search_path = [str(REPOSITORY), *filter(None, [os.environ.get("PYTHONPATH")])]
    subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(search_path)})


def seconds(result: Result) -> float | None:
    """The time of a case that came out right."""
    return result["warm_s"] or result["cold_s"] if result["status"] == "ok" else None


def processor_seconds(result: Result) -> float | None:
    """The processor time of a case that came out right: runs that are compared don't follow each other directly."""
    return result["warm_cpu_s"] or min(result["cpu_times"]) if result["status"] == "ok" else None


def eager_seconds(*results: Result) -> float | None:
    """One eager forward: each implementation's process measured it, the lesser is the less disturbed."""
    return min((r["eager_s"] for r in results if r.get("eager_s")), default=None)


def ratio(over: float | None, under: float | None) -> float | None:
    return over / under if over is not None and under else None


def row(name: str, theirs: Result, ours: Result) -> tuple[list[str], float | None, float | None]:
    """A model's line of the table, torch / tintype, and tintype / eager."""
    eager, their_time, our_time = eager_seconds(theirs, ours), seconds(theirs), seconds(ours)
    speedup, eager_forwards = ratio(their_time, our_time), ratio(our_time, eager)
    cells = [
        name,
        number(eager * 1e3 if eager else None),
        number(their_time, ".3f") if their_time else theirs["status"],
        number(our_time, ".4f") if our_time else ours["status"],
        number(speedup, ".1f"),
        number(eager_forwards, ".1f"),
        str(ours.get("nodes", "-")),
        number(ours.get("diff"), ".1e"),
    ]
    return cells, speedup, eager_forwards


def render(document: dict[str, Any], opponent: str = "torch") -> str:
    """bench.py's JSON as a Markdown table with its geometric means."""
    theirs, ours = document["results"][opponent], document["results"]["tintype"]
    names = [name for name in theirs if name in ours]
    lines = [row(name, theirs[name], ours[name]) for name in names]
    speedups = [speedup for _, speedup, _ in lines if speedup]
    eager_forwards = [forwards for _, _, forwards in lines if forwards]
    means = [number(geometric_mean(v), ".1f") for v in (speedups, eager_forwards)]
    last = ["**geometric mean**", "", "", "", f"**{means[0]}**", f"**{means[1]}**", "", ""]
    right = sum(ours[name]["status"] == "ok" for name in names)
    table = markdown_table(HEAD, [*(cells for cells, _, _ in lines), last])
    return (
        f"{table}\n\n{right} of {len(names)} models right; "
        f"torch / tintype over the {len(speedups)} that both get right."
    )


def render_dynamic(document: dict[str, Any], alone: dict[str, Result], static: dict[str, Result]) -> str:
    """The table of exports with dynamic shapes: against torch's, and against tintype's own static one.

    What the symbols cost is measured in runs of tintype alone, which follow each other directly."""
    theirs, ours = document["results"]["torch"], document["results"]["tintype"]
    names = [name for name in theirs if name in ours]
    rows, speedups, costs = [], [], []
    for name in names:
        results = theirs[name], ours[name], alone[name], static[name]
        their_time, our_time, time_alone, static_time = map(processor_seconds, results)
        speedup, cost = ratio(their_time, our_time), ratio(time_alone, static_time)
        speedups += [speedup] if speedup else []
        costs += [cost] if cost else []
        rows.append([
            name,
            number(their_time, ".3f") if their_time else theirs[name]["status"],
            number(our_time, ".4f") if our_time else ours[name]["status"],
            number(static_time, ".4f") if static_time else static[name]["status"],
            number(speedup, ".1f"),
            number(cost, ".2f"),
            number(ours[name].get("diff"), ".1e"),
            number(ours[name].get("diff2"), ".1e"),
        ])  # fmt: skip
    means = number(geometric_mean(speedups), ".1f"), number(geometric_mean(costs), ".2f")
    rows.append(["**geometric mean**", "", "", "", f"**{means[0]}**", f"**{means[1]}**", "", ""])
    right, torch_right = (sum(r[name]["status"] == "ok" for name in names) for r in (ours, theirs))
    return (
        f"{markdown_table(DYNAMIC_HEAD, rows)}\n\n{right} of {len(names)} models right, on inputs of other sizes too "
        f"(torch: {torch_right}); torch / tintype over the {len(speedups)} that both get right. Processor time."
    )


def parse_options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_corpus_argument(parser)
    add_write_argument(parser)
    parser.add_argument("--task", default=",".join(TASKS), help="some of them, with commas")
    parser.add_argument("--dynamic", action="store_true", help="with the corpus's dynamic shapes (export only)")
    parser.add_argument("--cases", help="models, with commas (default: all of the split)")
    parser.add_argument("--split", default="open", choices=["open", "all"])
    parser.add_argument("--repeat", type=int, default=2, help="warm calls per model")
    parser.add_argument("--timeout", type=float, default=300, help="seconds per model")
    parser.add_argument("--quiet-wait", type=float, default=0, help="seconds to wait for a quiet machine")
    parser.add_argument(
        "--results", type=Path, default=REPOSITORY / "build" / "benchmarks", help="folder for the raw JSON"
    )
    parser.add_argument("--render-only", action="store_true", help="make the tables from an earlier run's JSON")
    options = parser.parse_args(arguments)
    options.tasks = options.task.split(",")
    if unknown := set(options.tasks) - set(TASKS):
        parser.error(f"unknown task: {', '.join(sorted(unknown))}")
    return options


def main(arguments: list[str] | None = None) -> int:
    options = parse_options(arguments)
    folder = corpus_folder(options.corpus)
    if folder is None and not options.render_only:
        print("The model corpus is not on this machine (see --corpus): nothing to compare.", file=sys.stderr)
        return 1
    options.results.mkdir(parents=True, exist_ok=True)
    if options.dynamic:
        names = ("dynamic.json", "dynamic-alone.json", "dynamic-static.json")
        results, alone, static = (options.results / name for name in names)
        if folder is not None and not options.render_only:
            run_corpus(folder, "export", ["--impl", "tintype"], static, options)
            run_corpus(folder, "export", ["--impl", "tintype", "--dynamic"], alone, options)
            run_corpus(folder, "export", ["--compare", "--dynamic"], results, options)
        table = render_dynamic(read(results), by_case(read(alone)), by_case(read(static)))
        publish("compare dynamic", table, options.write)
        return 0
    for task in options.tasks:
        results = options.results / f"{task}.json"
        if folder is not None and not options.render_only:
            run_corpus(folder, task, ["--compare"], results, options)
        publish(f"compare {task}", render(read(results), OPPONENTS[task]), options.write)
    return 0


def read(results: Path) -> Any:
    """What a run of bench.py left."""
    return json.loads(results.read_text(encoding="utf-8"))


def by_case(document: dict[str, Any]) -> dict[str, Result]:
    """The results of a run with one implementation."""
    found: dict[str, Result] = document["results"]["tintype"]
    return found


if __name__ == "__main__":
    sys.exit(main())
