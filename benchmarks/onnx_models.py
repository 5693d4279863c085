"""ONNX models of the corpus beside torch.onnx's: time to export, nodes, and time on ONNX Runtime.

    python -m benchmarks.onnx_models [--cases bert,gpt2] [--write]

Processor time, one thread. Exporting is from the module to the ONNX program, without verification, at fixed sizes;
the quickest export after the first is counted. ONNX Runtime runs both models in turn, round after round, and the
median
of the ratios of a round is told: below 1 ours is quicker. torch.onnx's model runs twice in each round: how far it is
from itself is in brackets, which is what the machine makes of equal things.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import time
from typing import Any

from benchmarks.model_corpus import add_corpus_argument, corpus_folder, load_cases
from benchmarks.report import REPOSITORY, add_write_argument, markdown_table, publish

ROUNDS, RUNS = 24, 20
HEADER = (
    "model", "eager ms", "torch.onnx s", "tintype s", "torch / tintype", "tintype / eager", "nodes, torch.onnx",
    "nodes, tintype (full)", "ONNX Runtime, tintype / torch.onnx (itself)", "most off",
)  # fmt: skip


def processor_seconds(function: Any) -> tuple[float, Any]:
    start = time.process_time()
    result = function()
    return time.process_time() - start, result


def sessions(*protos: Any) -> list[Any]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    return [
        onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
        for proto in protos
    ]


def feeds(session: Any, tensors: list[Any]) -> dict[str, Any]:
    names = [each.name for each in session.get_inputs()]
    return dict(zip(names, (tensor.numpy() for tensor in tensors)))


def in_turn(running: list[Any], tensors: list[Any]) -> list[float]:
    """The medians of the ratios of the processor times of all sessions to that of the second."""
    ratios: list[list[float]] = [[] for _ in running]
    orders = itertools.cycle(itertools.permutations(range(len(running))))  # none is always behind another
    for order in itertools.islice(orders, ROUNDS):
        taken = [0.0] * len(running)
        for each in order:
            given, session = feeds(running[each], tensors), running[each]
            taken[each] = min(processor_seconds(lambda: session.run(None, given))[0] for _ in range(RUNS))  # noqa: B023
        for each, time_of in enumerate(taken):
            ratios[each].append(time_of / max(taken[1], 1e-6))
    return [statistics.median(each) for each in ratios]


def measure(case: Any) -> dict[str, Any]:
    """One model, in a process of its own."""
    import torch

    import tintype

    torch.set_num_threads(1)
    module, args, kwargs = case.build()
    with torch.no_grad():
        module(*args, **kwargs)
        eager = min(processor_seconds(lambda: module(*args, **kwargs))[0] for _ in range(20))
        expected = module(*args, **kwargs)

    def ours() -> Any:
        return tintype.onnx.export(module, args, kwargs, verify=False)

    program = ours()
    seconds = min(processor_seconds(ours)[0] for _ in range(3))
    full = tintype.onnx.export(module, args, kwargs, verify=False, optimize="full")
    result: dict[str, Any] = {"eager": eager, "ours": seconds, "nodes": len(program.model.graph)}
    result["full"] = len(full.model.graph)
    leaves = [leaf for leaf in torch.utils._pytree.tree_leaves(expected) if isinstance(leaf, torch.Tensor)]
    got = [
        leaf for leaf in torch.utils._pytree.tree_leaves(program(*args, **kwargs)) if isinstance(leaf, torch.Tensor)
    ]
    result["off"] = max(float((left.double() - right.double()).abs().max()) for left, right in zip(leaves, got))
    try:
        theirs = lambda: torch.onnx.export(module, args, kwargs=kwargs, dynamo=True, verbose=False)  # noqa: E731
        theirs()
        result["theirs"], other = processor_seconds(theirs)
        assert other is not None
        result["their nodes"] = len(other.model.graph)
        inputs = [leaf for leaf in torch.utils._pytree.tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        running = sessions(program.model_proto, other.model_proto, other.model_proto)
        if len({len(each.get_inputs()) for each in running}) == 1:
            result["ratio"], _, result["itself"] = in_turn(running, inputs)
    except Exception as error:  # it raises all kinds of them
        result["refused"] = f"{type(error).__name__}"
    return result


def row(name: str, found: dict[str, Any]) -> list[str]:
    theirs = found.get("theirs")
    return [
        name,
        f"{found['eager'] * 1e3:.1f}",
        f"{theirs:.2f}" if theirs is not None else f"refused ({found.get('refused')})",
        f"{found['ours']:.3f}",
        f"{theirs / found['ours']:.0f}" if theirs is not None else "",
        f"{found['ours'] / found['eager']:.1f}",
        str(found.get("their nodes", "")),
        f"{found['nodes']} ({found['full']})",
        f"{found['ratio']:.2f} ({found['itself']:.2f})" if "ratio" in found else "",
        f"{found['off']:.1e}",
    ]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_write_argument(parser)
    add_corpus_argument(parser)
    parser.add_argument("--cases")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    folder = corpus_folder(options.corpus)
    if folder is None:
        raise SystemExit("the corpus of models is not on this machine")
    cases = load_cases(folder)
    if options.one:
        print(json.dumps(measure(cases[options.one])))
        return 0
    names = options.cases.split(",") if options.cases else [name for name, case in cases.items() if case.onnx]
    rows = []
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(REPOSITORY)}
    for name in names:
        command = [sys.executable, "-m", "benchmarks.onnx_models", "--one", name, "--corpus", str(folder)]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=REPOSITORY)
        if done.returncode:
            rows.append([name, done.stderr.strip().splitlines()[-1][:80], *[""] * (len(HEADER) - 2)])
        else:
            rows.append(row(name, json.loads(done.stdout.splitlines()[-1])))
        print(" | ".join(rows[-1]), file=sys.stderr, flush=True)
    publish("onnx models", markdown_table(HEADER, rows), options.write)
    return 0


if __name__ == "__main__":
    sys.exit(main())
