"""What real models accept: ``python -m tests.sweep.model_shapes [--only bert,gpt2] [--markdown PAGE]``.

For every model of the corpus (see ``benchmarks/model_corpus.py``) that has a spec of dynamic shapes:

* ``dynamic_shapes="auto"`` must find at least the sizes of the spec, and the program must match eager on other sizes
* a program exported with the spec must be right on other sizes
* what the program checks must imply all that its capture relied on, proved by z3 (``tests/export/guard_proofs.py``)
* exported with a batch of one, the program must run at batches of 1, 2 and 64

The exit status is 1 when one of them fails that is not listed in ``KNOWN``.
"""

from __future__ import annotations

import argparse
import inspect
import math
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
import torch.utils._pytree as pytree

import tintype
from benchmarks.model_corpus import add_corpus_argument, corpus_folder, load_cases
from benchmarks.report import replace_section
from tests.export.guard_proofs import prove_guards
from tests.sweep.judging import quiet
from tintype.errors import TintypeError
from tintype.ir.graph import placeholders
from tintype.ir.signature import InputKind
from tintype.symbolic import Expr

HEAD = (
    "model",
    "sizes of the spec",
    "found by auto",
    "narrower than the spec",
    "spec",
    "guards proved",
    "batch of one",
)

# Where a model does not do what is asked, and why: not a defect of the capture.
KNOWN = {
    ("gpt2", "batch of one"): "the model branches on `batch_size != 1`",
    ("unet2d_cond", "batch of one"): "the model branches on `batch >= 64`",
}

Row = dict[str, str]


def problem(error: Exception) -> str:
    """An error in a few words."""
    return f"{type(error).__name__}: {str(error).strip().splitlines()[0][:120]}"


def difference(program: tintype.ExportedProgram, model: torch.nn.Module, inputs: Any) -> float:
    """The largest absolute difference from eager mode."""
    args, kwargs = inputs
    with torch.no_grad():
        torch.manual_seed(7)
        found = pytree.tree_leaves(program.module()(*args, **kwargs))
        torch.manual_seed(7)
        expected = pytree.tree_leaves(model(*args, **kwargs))
    if [value.shape for value in found] != [value.shape for value in expected]:
        return math.inf
    return max((float((a - b).abs().max()) for a, b in zip(found, expected, strict=True) if a.numel()), default=0.0)


def arguments_by_name(model: torch.nn.Module, args: Any, kwargs: Any) -> dict[str, Any]:
    return dict(inspect.signature(model.forward).bind(*args, **kwargs).arguments)


def input_sizes(program: tintype.ExportedProgram) -> dict[str, tuple[Any, ...]]:
    """The sizes of the inputs that are tensors, by name."""
    environment = program.context.environment
    inputs = zip(placeholders(program.graph), program.graph_signature.input_specs, strict=True)
    return {
        node.name: tuple(environment.simplify(size) for size in node.meta["val"].info.sizes)
        for node, spec in inputs
        if spec.kind is InputKind.USER_INPUT and isinstance(node.meta["val"], torch.Tensor)
    }


def compare_with_spec(program: tintype.ExportedProgram, spec: dict[str, dict[int, Any]]) -> tuple[str, str]:
    """Which sizes of a spec were not found, and which have a range that leaves out some of the spec's."""
    environment = program.context.environment
    sizes = input_sizes(program)
    fixed, narrower = [], []
    names: dict[Any, str] = {}
    for argument, dimensions in spec.items():
        for dimension, (name, low, high, *multiple) in dimensions.items():
            size, where = sizes[argument][dimension], f"{argument}.shape[{dimension}]"
            if not isinstance(size, Expr):
                fixed.append(f"{where} = {size}")
            elif names.setdefault(size, name) != name:
                fixed.append(f"{where}: {name} = {names[size]}")
            else:
                factor = multiple[0] if multiple else 1
                bounds = environment.range(size)
                if bounds.lower > factor * (low or 0) or (high is not None and bounds.upper < factor * high):
                    narrower.append(f"{where} in {bounds}")
    return ", ".join(dict.fromkeys(fixed)), ", ".join(dict.fromkeys(narrower))


def shapes_from_spec(spec: dict[str, dict[int, Any]], arguments: dict[str, Any]) -> dict[str, Any]:
    """A spec of the corpus as ``dynamic_shapes``."""

    def dim(name: str, low: int | None, high: int | None, factor: int = 1) -> tintype.Dim:
        return factor * tintype.Dim(name, min=low, max=high)

    entries = {name: {d: dim(*entry) for d, entry in dims.items()} for name, dims in spec.items()}
    return {name: entries.get(name) for name in arguments}


def check_auto(case: Any, row: Row) -> None:
    model, args, kwargs = case.build()
    program = tintype.export(model, args, kwargs, dynamic_shapes="auto")
    fixed, narrower = compare_with_spec(program, case.dynamic)
    asserted = [f"`{line.text}`" for line in program.contract() if line.kind == "assertion" and "*" not in line.text]
    row["narrower than the spec"] = ", ".join(filter(None, [narrower, *asserted[:1]]))
    worst = difference(program, model, case.second())
    row["found by auto"] = "all" if not fixed and worst <= case.tol else f"FAIL: {fixed or f'differs by {worst:.1e}'}"


def check_spec(case: Any, row: Row) -> None:
    model, args, kwargs = case.build()
    shapes = shapes_from_spec(case.dynamic, arguments_by_name(model, args, kwargs))
    program = tintype.export(model, args, kwargs, dynamic_shapes=shapes)
    worst = difference(program, model, case.second())
    row["spec"] = "right" if worst <= case.tol else f"FAIL: differs by {worst:.1e}"
    proofs = prove_guards(program)
    counts = f"{len(proofs.proved)} of {len(proofs.proved) + len(proofs.undecided) + len(proofs.refuted)}"
    row["guards proved"] = f"FAIL: {proofs.refuted[0]}" if proofs.refuted else counts


def check_batch_of_one(case: Any, row: Row) -> None:
    names = {entry[0] for dims in case.dynamic.values() for entry in dims.values()}
    if "batch" not in names or "batch" not in case.sizes:
        row["batch of one"] = "-"
        return
    model = case.build()[0]
    args, kwargs = case._inputs({**case.sizes, "batch": 1}, 1)
    batch = tintype.Dim("batch")
    shapes = {
        name: {d: batch for d, entry in case.dynamic.get(name, {}).items() if entry[0] == "batch"} or None
        for name in arguments_by_name(model, args, kwargs)
    }
    program = tintype.export(model, args, kwargs, dynamic_shapes=shapes)
    worst = max(difference(program, model, case._inputs({**case.sizes, "batch": n}, 1)) for n in (1, 2, 64))
    row["batch of one"] = "1, 2, 64" if worst <= case.tol else f"FAIL: differs by {worst:.1e}"


CHECKS = {"found by auto": check_auto, "spec": check_spec, "batch of one": check_batch_of_one}


def check_model(case: Any) -> Row:
    """All that is asked of one model."""
    names = dict.fromkeys(entry[0] for dims in case.dynamic.values() for entry in dims.values())
    row = {**dict.fromkeys(HEAD, ""), "model": case.name, "sizes of the spec": ", ".join(names)}
    for column, check in CHECKS.items():
        try:
            check(case, row)
        except (TintypeError, RuntimeError) as error:
            row[column] = f"FAIL: {problem(error)}"
        if row[column].startswith("FAIL") and (case.name, column) in KNOWN:
            row[column] = f"no: {KNOWN[case.name, column]}"
    return row


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_corpus_argument(parser)
    parser.add_argument("--only", help="models, with commas")
    parser.add_argument("--markdown", type=Path, help="page to put the table into")
    options = parser.parse_args()
    folder = corpus_folder(options.corpus)
    if folder is None:
        print("The model corpus is not on this machine (see --corpus).", file=sys.stderr)
        return 1
    warnings.filterwarnings("ignore")
    quiet()
    torch.set_num_threads(1)
    wanted = options.only.split(",") if options.only else None
    rows = []
    for name, case in load_cases(folder).items():
        if case.dynamic and (name in wanted if wanted else case.split == "open"):
            rows.append(check_model(case))
            print(" | ".join(rows[-1].values()), flush=True)
    lines = ["| " + " | ".join(HEAD) + " |", "|" + "---|" * len(HEAD)]
    lines += ["| " + " | ".join(row.values()) + " |" for row in rows]
    failed = [row["model"] for row in rows if any(cell.startswith("FAIL") for cell in row.values())]
    if options.markdown:
        replace_section(options.markdown, "models", "\n".join(lines))
    print(f"{len(rows) - len(failed)} of {len(rows)} models: all as asked" + (f"; not {failed}" if failed else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
