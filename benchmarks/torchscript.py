"""Real models as TorchScript files, converted: how many, how fast beside torch's own converter, and are they right?

    python -m benchmarks.torchscript [--cases bert,gpt2] [--write]

Each model is traced, and scripted where `torch.jit.script` takes it, saved, loaded and converted by tintype and by
torch's TS2EPConverter in the same process. A converted program is held against the eager model on the example, and
with the sizes of the corpus varying, where tracing kept them, on other sizes. A model runs in a process of its own.
"""

from __future__ import annotations

import argparse
import inspect
import io
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.utils._pytree as pytree

import tintype
from benchmarks.apart import Result, add_model_arguments, chosen_models, run_apart
from benchmarks.report import (
    REPOSITORY,
    geometric_mean,
    machine,
    markdown_table,
    number,
    replace_section,
)
from benchmarks.round_trips import difference, dynamic_shapes

PAGE = REPOSITORY / "docs" / "torchscript.md"


class Flat(torch.nn.Module):
    """A model that takes tensors by position and returns a tuple of tensors, as tracing wants it."""

    def __init__(self, model: torch.nn.Module, arguments: dict[str, Any]) -> None:
        super().__init__()
        self.model = model
        self.names = [name for name, value in arguments.items() if isinstance(value, torch.Tensor)]
        self.constants = {name: value for name, value in arguments.items() if not isinstance(value, torch.Tensor)}

    def call(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        result = self.model(**dict(zip(self.names, tensors, strict=True)), **self.constants)
        return tuple(leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor))


def with_names(flat: Flat) -> torch.nn.Module:
    """The model with a forward whose arguments have the names that they have in the model."""
    arguments = ", ".join(flat.names)
    space: dict[str, Any] = {}
    exec(f"def forward(self, {arguments}):\n    return self.call({arguments})\n", space)  # noqa: S102
    kind = type("Flat", (Flat,), {"forward": space["forward"]})
    flat.__class__ = kind
    return flat


def loaded(script: Any) -> Any:
    """A script as it comes from a file."""
    file = io.BytesIO()
    torch.jit.save(script, file)
    file.seek(0)
    return torch.jit.load(file)


def timed(function: Callable[[], Any]) -> tuple[Any, float, str]:
    """What a function returns, how long it takes, and what it raises."""
    start = time.perf_counter()
    try:
        result = function()
    except Exception as error:
        lines = [line for line in str(error).strip().splitlines() if line.strip()] or [""]
        return None, time.perf_counter() - start, f"{type(error).__name__}: {lines[0][:60]}"
    return result, time.perf_counter() - start, ""


def their_converter(script: Any, args: tuple[Any, ...]) -> Any:
    from torch._export.converter import TS2EPConverter

    return TS2EPConverter(script, args, {}).convert()


def leaves_of(module: Any, args: tuple[Any, ...]) -> list[Any]:
    torch.manual_seed(0)  # some models draw
    with torch.no_grad():
        result = module(*[value.clone() if isinstance(value, torch.Tensor) else value for value in args])
    return [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor)]


def examined(script: Any, eager: torch.nn.Module, case: Any, args: Any, other: Any, shapes: Any) -> Result:
    """A script from a file: converted, compared, timed."""
    program, seconds, problem = timed(lambda: tintype.interop.from_torchscript(script, args))
    result: Result = {"seconds": seconds, "problem": problem, "varying": ""}
    if program is not None:
        wanted = leaves_of(eager, args)
        result["difference"] = difference(leaves_of(program.module(), args), wanted)
        result["nodes"] = len(program.graph.nodes)
        result["varying"] = varying(script, eager, case, args, other, shapes)
    if program is not None and result["difference"] > case.tol:
        result["problem"] = f"differs from eager mode by {result['difference']:.2g}"
    theirs, result["their seconds"], result["their problem"] = timed(lambda: their_converter(script, args))
    if theirs is not None:
        _, _, wrong = timed(lambda: leaves_of(theirs.module(), args))
        result["their problem"] = wrong
    return result


def varying(script: Any, eager: Any, case: Any, args: Any, other: Any, shapes: Any) -> str:
    """Whether the sizes of the corpus may vary in the converted program, and is it right at other ones."""
    program, _, problem = timed(lambda: tintype.interop.from_torchscript(script, args, dynamic_shapes=shapes))
    if program is None:
        return "fixed by tracing" if problem.startswith("ConstraintViolation") else problem
    actual, _, problem = timed(lambda: leaves_of(program.module(), other))
    if actual is None:
        return f"refused: {problem}"
    gap = difference(actual, leaves_of(eager, other))
    if gap <= case.tol:
        return "yes"
    traced, _, _ = timed(lambda: leaves_of(script, other))
    same = traced is not None and difference(actual, traced) <= case.tol
    return "as traced, not as eager" if same else f"differs by {gap:.2g}"


def check(case: Any) -> Result:
    """Everything about one model."""
    small = torch.jit.trace(torch.nn.Linear(2, 2), (torch.ones(1, 2),))
    for convert in (tintype.interop.from_torchscript, their_converter):  # what is loaded when it is first used
        convert(small, (torch.ones(1, 2),))
    module, args, kwargs = case.build()
    signature = inspect.signature(module.forward)
    arguments = dict(signature.bind(*args, **kwargs).arguments)
    flat = Flat(module, arguments)
    tensors = tuple(arguments[name] for name in flat.names)
    second = dict(signature.bind(*case.second()[0], **case.second()[1]).arguments)
    other = tuple(second[name] for name in flat.names)
    spec = dynamic_shapes(module, args, kwargs, case.dynamic or {})
    shapes = {name: spec.get(name) for name in flat.names}
    results: Result = {}
    eager = with_names(flat)
    traced, seconds, problem = timed(lambda: loaded(torch.jit.trace(eager, tensors, check_trace=False, strict=False)))
    results["traced"] = {"made": problem or "yes", "making": seconds}
    if traced is not None:
        results["traced"] |= examined(traced, eager, case, tensors, other, shapes)
    scripted, seconds, problem = timed(lambda: loaded(torch.jit.script(module)))
    results["scripted"] = {"made": problem or "yes", "making": seconds}
    if scripted is not None:
        full = tuple(arguments.values())
        results["scripted"] |= examined(scripted, module, case, full, tuple(second.values()), spec)
    return results


def rows_of(name: str, result: Result | str) -> list[list[str]]:
    if isinstance(result, str):
        result = {"traced": {"made": result}}
    rows = []
    for kind, found in result.items():
        if found["made"] != "yes":
            if kind == "traced":
                rows.append([name, kind, "-", "torch can't trace and save it", "-", "-", "-", "-"])
            continue
        ours = found["problem"] or "equal"
        theirs = found["their problem"] or "converted"
        ratio = found["their seconds"] / found["seconds"]
        rows.append(
            [
                name,
                kind,
                str(found.get("nodes", "-")),
                ours.replace("|", "/"),
                found["varying"].replace("|", "/") or "-",
                number(found["seconds"], ".2f"),
                number(found["their seconds"], ".2f") if not found["their problem"] else "-",
                f"{ratio:.0f}x" if not found["their problem"] else theirs.replace("|", "/"),
            ]
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_model_arguments(parser)
    options = parser.parse_args()
    folder, names = chosen_models(options, check)
    rows: list[list[str]] = []
    for name in names:
        for line in rows_of(name, run_apart(["benchmarks.torchscript"], name, folder)):
            rows.append(line)
            print("  ".join(line), flush=True)
    head = ["model", "from", "nodes", "converted", "sizes vary", "seconds", "torch's", "torch's converter"]
    made = [line for line in rows if line[2] != "-" or not line[3].startswith("torch can't")]
    equal = sum(line[3] == "equal" for line in made)
    ratios = [float(line[7][:-1]) for line in rows if line[7].endswith("x") and line[7][:-1].isdigit()]
    text = (
        f"{markdown_table(head, rows)}\n\n{equal} of {len(made)} scripts are converted and equal to eager mode; "
        f"torch's converter takes {len(ratios)} of them, in {number(geometric_mean(ratios), '.0f')} times the time."
    )
    print(text)
    if options.write:
        replace_section(PAGE, "torchscript", f"{text} {machine()}")
    if equal != len(made):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
