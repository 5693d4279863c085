"""Every flag and number that torch's functions take, as something that depends on a size.

torch's samples of its functions are gone through; each True, False, integer and float among the arguments is replaced
in turn by an expression of a size that has its value for the example. Such a call is exported, and either the program
is right, or what is raised is one of our errors; ``python -m tests.trace.symbolic_arguments`` tries all of them.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch.testing._internal.common_methods_invocations import op_db

import tintype
from tests.fake.samples import SLOW, samples

SIZE = 4
# what they return is whatever was in memory, or torch's samples of them set the seed, which no program does
UNDEFINED = frozenset(
    {
        "new_empty", "new_empty_strided", "empty_permuted", "empty_strided", "multinomial", "randint_like",
        "nn.functional.rrelu", "nn.functional.fractional_max_pool2d", "nn.functional.fractional_max_pool3d",
    }
)  # fmt: skip


def symbolic(value: Any, size: Any) -> Any:
    """A number that is ``value`` for the example's size, and depends on the size."""
    if type(value) is bool:
        return size > SIZE - 1 if value else size > SIZE
    if type(value) is int:
        return size + (value - SIZE)
    return size * 1.0 + (value - SIZE)


Call = tuple[str, Callable[..., Any], list[Any], pytree.TreeSpec, list[int]]


def calls(most: int, every: int = 1) -> Iterator[Call]:
    """Some functions with the leaves of their arguments, and the positions of numbers among those."""
    for operator in op_db[::every]:
        if operator.name in SLOW | UNDEFINED or torch.float32 not in operator.supported_dtypes("cpu"):
            continue
        for sample in samples(operator, torch.float32, most):
            leaves, spec = pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
            numbers = [i for i, leaf in enumerate(leaves) if type(leaf) in (bool, int, float)]
            if numbers:
                yield operator.name, operator.op, leaves, spec, numbers


def program(function: Callable[..., Any], leaves: list[Any], spec: pytree.TreeSpec, position: int) -> Any:
    """A function of tensors, the first of which only lends its size to one argument of a call."""

    def run(lender: torch.Tensor, *tensors: torch.Tensor) -> Any:
        given = iter(tensors)
        filled = [next(given) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        filled[position] = symbolic(leaves[position], lender.shape[0])
        value, args, kwargs = pytree.tree_unflatten(filled, spec)
        return function(value, *args, **kwargs)

    return run


def key_of(name: str, leaves: list[Any], spec: pytree.TreeSpec, position: int) -> Any:
    """Which argument of which function it is."""
    paths = pytree.tree_flatten_with_path(pytree.tree_unflatten(leaves, spec))[0]
    return name, pytree.keystr(paths[position][0]), type(leaves[position])


def failure(function: Callable[..., Any], leaves: list[Any], spec: pytree.TreeSpec, position: int) -> str | None:
    """What is wrong with a call of which one number is symbolic; None if nothing is."""
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    run = program(function, leaves, spec, position)
    dynamic = {"lender": {0: tintype.Dim.AUTO}, "tensors": tuple(None for _ in tensors)}
    try:
        torch.manual_seed(0)
        expected = run(torch.ones(SIZE), *tensors)
    except Exception:  # no call that works
        return None
    try:
        module = tintype.export(run, (torch.ones(SIZE), *tensors), dynamic_shapes=dynamic).module()
    except tintype.TintypeError:
        return None
    except Exception as error:
        return f"{type(error).__name__}: {error}".split("\n")[0]
    try:
        torch.manual_seed(0)
        result = module(torch.ones(SIZE), *tensors)
    except Exception as error:
        return f"when it runs, {type(error).__name__}: {error}".split("\n")[0]
    mine, theirs = pytree.tree_leaves(result), pytree.tree_leaves(expected)
    same = all(
        torch.allclose(a, b, equal_nan=True) if isinstance(a, torch.Tensor) else a == b
        for a, b in zip(mine, theirs, strict=True)
        if not isinstance(a, torch.Tensor) or a.dtype == b.dtype
    )
    return None if same else "another result"


def main(most: int) -> int:
    """Print what is wrong."""
    warnings.simplefilter("ignore")
    seen, wrong = set(), 0
    for name, function, leaves, spec, numbers in calls(most):
        for position in numbers:
            key = key_of(name, leaves, spec, position)
            if key not in seen:
                seen.add(key)
                found = failure(function, leaves, spec, position)
                if found is not None:
                    wrong += 1
                    print(*key, leaves[position], found, flush=True)
    print(f"{len(seen)} arguments, {wrong} wrong")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 3))
