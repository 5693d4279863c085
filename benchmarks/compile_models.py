"""What ``tintype.compile`` makes of real models: captured or not, breaks, captures, equal or not.

    python -m benchmarks.compile_models [--backend eager] [--cases bert,gpt2] [--gradients] [--explain]

Each model is called twice with its inputs, twice with inputs of other sizes, and once more with the first ones;
results, buffers (and gradients) are held against those of a copy that runs eagerly. "captures" counts all five calls.
"""

from __future__ import annotations

import argparse
import copy
import time
from typing import Any

import torch

import tintype
from benchmarks.model_corpus import add_corpus_argument, corpus_folder, load_cases
from tintype.compiler.trace import SETS_MODE, Call


def tensors_in(value: Any) -> list[torch.Tensor]:
    """The tensors of a result."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        return [tensor for item in value.values() for tensor in tensors_in(item)]
    return [tensor for item in value for tensor in tensors_in(item)] if isinstance(value, (list, tuple)) else []


def state_of(model: torch.nn.Module, result: Any, gradients: bool) -> list[torch.Tensor]:
    """All that a call leaves: results, buffers, gradients."""
    found = tensors_in(result)
    state = [tensor.detach().clone() for tensor in (*found, *model.buffers())]
    if gradients:
        sum(tensor.float().sum() for tensor in found if tensor.requires_grad).backward()  # type: ignore[union-attr]
        state += [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]
        model.zero_grad()
    return state


def seconds_of(call: Any) -> float:
    """The best of a few calls."""
    times = []
    for _ in range(3):
        started = time.perf_counter()
        call()
        times.append(time.perf_counter() - started)
    return min(times)


def has_run(engine: Any, args: Any, kwargs: Any) -> bool:
    """Whether a call of these arguments is repeated from a recorded run now."""
    captures, eagerly = engine.captures, engine.program.namespace["_eagerly"]
    seen = []

    def noted(*args: Any, **kwargs: Any) -> Any:
        seen.append(True)
        return eagerly(*args, **kwargs)

    engine.program.namespace["_eagerly"] = noted
    engine.run(args, kwargs)
    engine.program.namespace["_eagerly"] = eagerly
    return engine.captures == captures and not seen


def measure(case: Any, backend: str, gradients: bool, explain: bool) -> dict[str, Any]:
    """One model's line of the table."""
    model, args, kwargs = case.build()
    eager = copy.deepcopy(model)
    compiled = tintype.compile(model, backend=backend)
    calls = [(args, kwargs), (args, kwargs), case.second(), case.second(), (args, kwargs)]
    largest, firsts = 0.0, []
    with torch.set_grad_enabled(gradients):
        for arguments, named in calls:
            torch.manual_seed(0)
            expected = state_of(eager, eager(*arguments, **named), gradients)
            torch.manual_seed(0)
            started = time.perf_counter()
            result = compiled(*arguments, **named)
            firsts.append(time.perf_counter() - started)
            found = state_of(compiled, result, gradients)
            if len(found) != len(expected):
                largest = float("inf")
            for one, other in zip(found, expected):
                difference = (one.double() - other.double()).abs().max() if one.numel() else torch.zeros(())
                largest = max(largest, float(difference))
        engine = compiled._tintype_engine
        steps = [item.step for node in engine.program.nodes for item in node.items if isinstance(item, Call)]
        row = {
            "model": case.name,
            "captured": "no" if engine.is_eager or (engine.given_up and not has_run(engine, args, kwargs)) else "yes",
            "breaks": len({step for step in steps if step and step != SETS_MODE}),
            "captures": engine.captures,
            "difference": largest,
            "first / eager": firsts[0] / seconds_of(lambda: eager(*args, **kwargs)),
            "later / eager": seconds_of(lambda: compiled(*args, **kwargs))
            / seconds_of(lambda: eager(*args, **kwargs)),
        }
    if explain:
        print(compiled.explain())
    row["why"] = engine.given_up[0] if engine.given_up else engine.why_eager
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_corpus_argument(parser)
    parser.add_argument("--backend", default="eager")
    parser.add_argument("--cases", default="")
    parser.add_argument("--gradients", action="store_true")
    parser.add_argument("--explain", action="store_true")
    options = parser.parse_args()
    folder = corpus_folder(options.corpus)
    if folder is None:
        raise SystemExit("the model corpus is not on this machine")
    cases = load_cases(folder)
    names = options.cases.split(",") if options.cases else list(cases)
    rows = []
    for name in names:
        row = measure(cases[name], options.backend, options.gradients, options.explain)
        rows.append(row)
        print(
            "  ".join(f"{value:.3g}" if isinstance(value, float) else str(value) for value in row.values()),
            flush=True,
        )
    captured = sum(row["captured"] == "yes" for row in rows)
    equal = sum(row["difference"] == 0 for row in rows)
    print(
        f"{captured} of {len(rows)} captured, {equal} equal to the last bit, "
        f"{sum(row['breaks'] == 0 for row in rows if row['captured'] == 'yes')} of them without a break"
    )


if __name__ == "__main__":
    main()
