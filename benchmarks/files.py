"""Saving and loading real models: tintype.save and load against torch.export's, in one run.

    python -m benchmarks.files [--cases bert,llama] [--repeat 3] [--resume] [--write]

Each model is taken in a process of its own, on one thread: exported with both, then saved and loaded in turns, torch
and tintype; the times are the best of the turns. The loaded program's results are compared with eager mode's.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.model_corpus import add_corpus_argument, corpus_folder, load_cases
from benchmarks.report import REPOSITORY, add_write_argument, geometric_mean, markdown_table, number, publish

HEAD = (
    "model", "nodes", "weights kB", "torch save ms", "tintype save ms", "ratio", "torch load ms", "tintype load ms",
    "ratio", "torch kB", "tintype kB", "max diff",
)  # fmt: skip

Result = dict[str, Any]


def milliseconds(function: Callable[[], Any]) -> float:
    gc.collect()
    start = time.perf_counter()
    function()
    return (time.perf_counter() - start) * 1e3


def measure(name: str, folder: Path, repeat: int) -> Result:
    """Export, save and load one model with both, in turns."""
    import torch
    import torch.utils._pytree as pytree

    import tintype

    torch.set_num_threads(1)
    module, args, kwargs = load_cases(folder)[name].build()
    with torch.no_grad():
        program = tintype.export(module, args, kwargs)
        try:
            theirs = torch.export.export(module, args, kwargs, strict=False)
        except Exception as error:
            return {"name": name, "status": f"torch can't export it: {type(error).__name__}"}
    with tempfile.TemporaryDirectory() as scratch:
        our_path, their_path = Path(scratch) / "model.tt", Path(scratch) / "model.pt2"
        turns: dict[str, Callable[[], Any]] = {
            "torch_save": lambda: torch.export.save(theirs, their_path),
            "save": lambda: tintype.save(program, our_path),
            "torch_load": lambda: torch.export.load(their_path),
            "load": lambda: tintype.load(our_path),
        }
        best = dict.fromkeys(turns, float("inf"))
        _warm_up(Path(scratch) / "warm")
        try:
            for _ in range(repeat):
                for turn, function in turns.items():
                    best[turn] = min(best[turn], milliseconds(function))
        except Exception as error:
            return {"name": name, "status": f"{turn}: {type(error).__name__}: {error}"[:200]}
        with torch.no_grad():
            torch.manual_seed(0)  # some models draw random numbers
            expected = pytree.tree_leaves(module(*args, **kwargs))
            torch.manual_seed(0)
            results = pytree.tree_leaves(tintype.load(our_path).module()(*args, **kwargs))
        return {
            "name": name,
            "status": "ok",
            **best,
            "nodes": len(program.graph.nodes),
            "weights": sum({t.untyped_storage()._cdata: t.nbytes for t in program.state_dict.values()}.values()),
            "torch_size": their_path.stat().st_size,
            "size": our_path.stat().st_size,
            "difference": max(
                (float((a - b).abs().max()) for a, b in zip(results, expected, strict=True)
                 if isinstance(a, torch.Tensor) and a.is_floating_point() and a.numel()), default=0.0
            ),
        }  # fmt: skip


def _warm_up(path: Path) -> None:
    """Both import what they need when they are first called."""
    import torch

    import tintype

    tintype.save(tintype.export(torch.nn.ReLU(), (torch.ones(2),)), path)
    tintype.load(path)
    torch.export.save(torch.export.export(torch.nn.ReLU(), (torch.ones(2),)), path)
    torch.export.load(path)


def run_case(name: str, folder: Path, options: argparse.Namespace) -> Result:
    """One model in a process of its own."""
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.files", "--child", name]
    command += ["--corpus", str(folder), "--repeat", str(options.repeat)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    try:
        done = subprocess.run(
            command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=options.timeout
        )
    except subprocess.TimeoutExpired:
        return {"name": name, "status": "timeout"}
    if done.returncode != 0:
        return {"name": name, "status": done.stderr.strip().splitlines()[-1][:200] if done.stderr else "crash"}
    result: Result = json.loads(done.stdout.splitlines()[-1])
    return result


def render(results: list[Result]) -> str:
    """The table, with the geometric means and the least of the ratios."""
    rows = []
    saves, loads, sizes = [], [], []
    for result in results:
        if result["status"] != "ok":
            rows.append([result["name"], *["-"] * (len(HEAD) - 2), result["status"]])
            continue
        saves.append(result["torch_save"] / result["save"])
        loads.append(result["torch_load"] / result["load"])
        sizes.append(result["torch_size"] / result["size"])
        rows.append(
            [
                result["name"], str(result["nodes"]), number(result["weights"] / 1e3, ".0f"),
                number(result["torch_save"], ".0f"), number(result["save"], ".1f"), number(saves[-1], ".1f"),
                number(result["torch_load"], ".0f"), number(result["load"], ".1f"), number(loads[-1], ".1f"),
                number(result["torch_size"] / 1e3, ".0f"), number(result["size"] / 1e3, ".0f"),
                number(result["difference"], ".0e"),
            ]
        )  # fmt: skip
    if not saves:
        return markdown_table(HEAD, rows)
    summary = (
        f"{len(saves)} of {len(results)} models saved and loaded by both. Geometric means: save "
        f"{number(geometric_mean(saves), '.1f')} times faster (least {min(saves):.1f}), load "
        f"{number(geometric_mean(loads), '.1f')} times faster (least {min(loads):.1f}), file "
        f"{number(geometric_mean(sizes), '.2f')} times smaller (least {min(sizes):.2f})."
    )
    return f"{markdown_table(HEAD, rows)}\n\n{summary}"


def read_results(path: Path) -> dict[str, Result]:
    """The results of an earlier run, by model."""
    if not path.exists():
        return {}
    lines = path.read_text(encoding="utf-8").splitlines()
    return {result["name"]: result for result in map(json.loads, lines)}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_corpus_argument(parser)
    add_write_argument(parser)
    parser.add_argument("--cases", help="models, with commas (default: all open ones)")
    parser.add_argument("--repeat", type=int, default=3, help="turns per model")
    parser.add_argument("--timeout", type=float, default=300, help="seconds per model")
    parser.add_argument(
        "--results",
        type=Path,
        default=REPOSITORY / "build" / "benchmarks" / "files.jsonl",
        help="raw results",
    )
    parser.add_argument("--resume", action="store_true", help="keep the results that are there, measure the others")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    folder = corpus_folder(options.corpus)
    if folder is None:
        print("The model corpus is not on this machine (see --corpus): nothing to compare.", file=sys.stderr)
        return 1
    if options.child is not None:
        print(json.dumps(measure(options.child, folder, options.repeat)))
        return 0
    cases = load_cases(folder)
    open_cases = [name for name, case in cases.items() if case.split == "open"]
    names = options.cases.split(",") if options.cases else open_cases
    results = read_results(options.results) if options.resume else {}
    options.results.parent.mkdir(parents=True, exist_ok=True)
    for name in names:
        if name not in results:
            results[name] = run_case(name, folder, options)
            print(json.dumps(results[name]), file=sys.stderr, flush=True)
            lines = [json.dumps(result) + "\n" for result in results.values()]
            options.results.write_text("".join(lines), encoding="utf-8")
    publish("files", render([results[name] for name in names]), options.write)
    return 0


if __name__ == "__main__":
    sys.exit(main())
