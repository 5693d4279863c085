"""Real models through other forms of their program and back: do they compute the same?

    python -m benchmarks.round_trips --task unflatten [--cases bert,gpt2] [--write]
    python -m benchmarks.round_trips --task interop [--cases bert,gpt2] [--write]
    python -m benchmarks.round_trips --task from_torch [--cases bert,gpt2] [--write]

`unflatten` holds `tintype.unflatten(ep)` against `ep.module()` for the programs of every stage, with fixed and with
varying sizes. `interop` takes each program to torch.export and back, and holds both against `ep.module()`.
`from_torch` takes the programs of torch.export itself in, as exported and as decomposed by torch. Results
must be equal bit for bit; the difference from eager mode is shown besides. A model runs in a process of its own.
"""

from __future__ import annotations

import argparse
import inspect
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.utils._pytree as pytree

import tintype
from benchmarks.apart import Result, add_model_arguments, chosen_models, run_apart
from benchmarks.report import REPOSITORY, machine, markdown_table, number, replace_section

PAGES = {
    "unflatten": REPOSITORY / "docs" / "unflatten.md",
    "interop": REPOSITORY / "docs" / "interop.md",
    "from_torch": REPOSITORY / "docs" / "interop.md",
}

Inputs = tuple[tuple[Any, ...], dict[str, Any]]


def dynamic_shapes(module: torch.nn.Module, args: Any, kwargs: Any, spec: dict[str, Any]) -> dict[str, Any]:
    """The corpus's plain description of varying sizes as `export` takes it."""
    dimensions: dict[str, Any] = {}

    def dimension(entry: Any) -> Any:
        name, low, high, *multiple = entry
        if name not in dimensions:
            dimensions[name] = tintype.Dim(name, min=low, max=high)
        return multiple[0] * dimensions[name] if multiple else dimensions[name]

    given = inspect.signature(module.forward).bind(*args, **kwargs).arguments
    return {
        name: {d: dimension(entry) for d, entry in spec[name].items()} if name in spec else None for name in given
    }


def run(module: Callable[..., Any], inputs: Inputs) -> list[Any]:
    """The leaves of what a module returns; random numbers start anew."""
    torch.manual_seed(0)
    with torch.no_grad():
        return pytree.tree_leaves(module(*inputs[0], **inputs[1]))


def copies(inputs: Inputs) -> Inputs:
    return pytree.tree_map(lambda leaf: leaf.clone() if isinstance(leaf, torch.Tensor) else leaf, inputs)


def same(first: list[Any], second: list[Any]) -> bool:
    """Whether two results are equal bit for bit."""
    return len(first) == len(second) and all(
        torch.equal(a.nan_to_num(), b.nan_to_num()) and torch.equal(a.isnan(), b.isnan()) and a.dtype == b.dtype
        if isinstance(a, torch.Tensor)
        else a == b
        for a, b in zip(first, second, strict=True)
    )


def difference(first: list[Any], second: list[Any]) -> float:
    """The largest absolute difference of two results."""
    pairs = [(a, b) for a, b in zip(first, second, strict=True) if isinstance(a, torch.Tensor) and a.numel()]
    return max((float((a.double() - b.double()).abs().nan_to_num().max()) for a, b in pairs), default=0.0)


def programs(case: Any) -> Iterator[tuple[str, tintype.ExportedProgram, list[Inputs]]]:
    """The programs of a model, each with the inputs to compare it on."""
    module, args, kwargs = case.build()
    example, other = (args, kwargs), case.second()
    yield "training", tintype.export_for_training(module, args, kwargs), [example]
    program = tintype.export(module, args, kwargs)
    yield "functional", program, [example]
    yield "core", program.run_decompositions(), [example]
    shapes = dynamic_shapes(module, args, kwargs, case.dynamic)
    try:
        program = tintype.export(module, args, kwargs, dynamic_shapes=shapes)
    except tintype.ConstraintViolationError as error:  # some model does not keep what the corpus promises of it
        shapes = tintype.suggest_dynamic_shapes(error)
        program = tintype.export(module, args, kwargs, dynamic_shapes=shapes)
        other = example
    yield "functional, dynamic", program, [example, other]
    yield "core, dynamic", program.run_decompositions(), [example, other]


def programs_of_torch(case: Any) -> Iterator[tuple[str, Any, list[Inputs]]]:
    """The same from torch.export, as far as it gets."""
    module, args, kwargs = case.build()
    program = torch.export.export(module, args, kwargs)
    yield "training", program, [(args, kwargs)]
    try:
        decomposed = program.run_decompositions()
    except Exception as error:
        print(f"torch's run_decompositions fails: {error}", file=sys.stderr)
        return
    yield "decomposed", decomposed, [(args, kwargs)]


def check(task: str, case: Any) -> Result:
    """Everything about one model."""
    eager = case.build()[0]
    seconds = 0.0
    forms: dict[str, str] = {}
    worst = 0.0
    nodes = 0
    for stage, program, calls in (programs_of_torch if task == "from_torch" else programs)(case):
        nodes = max(nodes, len(program.graph.nodes))
        try:
            start = time.perf_counter()
            converted = CONVERSIONS[task](program)
            seconds += time.perf_counter() - start
            for form, module in converted.items():
                flat = program.module()
                for inputs in calls:
                    wanted = run(flat, copies(inputs))
                    actual = run(module, copies(inputs))
                    worst = max(worst, difference(actual, run(eager, copies(inputs))))
                    equal = same(actual, wanted)
                    forms[f"{stage}: {form}"] = "equal" if equal else f"differs by {difference(actual, wanted):.2g}"
                    if not equal:
                        break
        except Exception as error:
            forms[stage] = f"{type(error).__name__}: {str(error).strip().splitlines()[0][:160] if str(error) else ''}"
    return {"forms": forms, "seconds": seconds, "difference": worst, "nodes": nodes}


def unflattened(program: tintype.ExportedProgram) -> dict[str, Any]:
    return {"unflattened": tintype.unflatten(program)}


def through_torch(program: tintype.ExportedProgram) -> dict[str, Any]:
    from tintype import interop

    theirs = interop.to_torch(program)
    ours = interop.from_torch(theirs)
    ours.validate()
    return {"torch": theirs.module(), "back": ours.module()}


def taken_in(theirs: Any) -> dict[str, Any]:
    ours = tintype.interop.from_torch(theirs)
    ours.validate()
    return {"taken in": ours.module(), "unflattened": tintype.unflatten(ours)}


CONVERSIONS: dict[str, Callable[[Any], dict[str, Any]]] = {
    "from_torch": taken_in,
    "unflatten": unflattened,
    "interop": through_torch,
}


def row(name: str, result: Result | str) -> list[str]:
    if isinstance(result, str):
        result = {"forms": {"export": result}, "seconds": 0.0, "difference": 0.0, "nodes": 0}
    wrong = {form: verdict for form, verdict in result["forms"].items() if verdict != "equal"}
    verdict = "; ".join(f"{form}: {text}" for form, text in wrong.items()) or "equal"
    total = len(result["forms"])
    return [
        name,
        str(result["nodes"]),
        f"{total - len(wrong)} of {total}",
        number(result["seconds"], ".2f"),
        number(result["difference"], ".1e"),
        verdict.replace("|", "/"),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", choices=sorted(CONVERSIONS), required=True)
    add_model_arguments(parser)
    options = parser.parse_args()
    folder, names = chosen_models(options, lambda case: check(options.task, case))
    rows = []
    for name in names:
        rows.append(row(name, run_apart(["benchmarks.round_trips", "--task", options.task], name, folder)))
        print("  ".join(rows[-1]), flush=True)
    head = ["model", "nodes", "programs equal", "seconds", "from eager", "verdict"]
    passed = sum(line[-1] == "equal" for line in rows)
    text = f"{markdown_table(head, rows)}\n\n{passed} of {len(rows)} models: all forms equal."
    print(text)
    if options.write:
        replace_section(PAGES[options.task], options.task, f"{text} {machine()}")
    if passed != len(rows):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
