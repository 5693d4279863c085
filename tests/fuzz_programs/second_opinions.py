"""Other references than eager mode as it is, for answers that differ from it.

- Two ways to compute a number round it in two ways, and where terms cancel nothing else is left; numbers near the
  largest one overflow in one way and not in the other. Such a program is run again in double precision, eager mode
  and variant: a difference that comes from rounding is gone there.
- In a program, what a branch of ``cond`` or a loop returns is contiguous, and an operand of the branch that is not
  taken has a gradient of zeros, as with ``torch.cond``; in eager mode the branch is simply called. Where a program
  draws random numbers into such a result, or an operand has an infinite slope in front of the branch, that shows.
  Such a program is compared with eager mode that does both.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.utils._pytree as pytree

import tintype
from tests.fuzz_programs.comparing import difference
from tests.fuzz_programs.inputs import Case
from tests.fuzz_programs.language import Input, Program
from tests.fuzz_programs.running import Outcome, Runnable, run, run_as_differentiated
from tests.fuzz_programs.variants import JOINT, MAKERS, OTHER_KERNELS, Exported, joint_program, run_joint

# --- in double precision -----------------------------------------------------------------------------------------

_WIDE = {"float32": "float64", "float16": "float64", "bfloat16": "float64", "complex64": "complex128"}
_NARROW_TEXT = re.compile(r"(?<!== )torch\.(float32|float16|bfloat16|complex64)\b|\.(?:float|half|bfloat16)\(\)")
# what makes the largest number of infinity: that of single precision, of which there is room above
_LARGEST = re.compile(r"(nan_to_num\(([^()]*))\)")


# conversions from and to less than single precision, which single precision is not: copies
_CONVERSION = re.compile(r"\.to\(torch\.(?:float16|bfloat16|float64)\)|\.(?:half|bfloat16|double)\(\)")
# those to the dtype of another value, which may be one of them
_LIKE_ANOTHER = re.compile(r"\.(?:type_as|to)\((?:self\.)?[a-z]\d+(?:\.dtype)?\)")


def in_double_precision(program: Program, copies: bool = False) -> Program:
    """The same program with double precision wherever it has less; ``copies``: conversions copy all the same."""
    inputs = tuple(
        dataclasses.replace(item, dtype=_WIDE.get(item.dtype, item.dtype)) if isinstance(item, Input) else item
        for item in program.inputs
    )
    text = program.source()
    if copies:
        text = _CONVERSION.sub(".to(torch.float64, copy=True)", text)
        text = _LIKE_ANOTHER.sub(lambda found: f"{found[0]}.clone()", text)
    text = _NARROW_TEXT.sub(lambda found: f"torch.{_WIDE[found[1]]}" if found[1] else ".double()", text)
    text = _LARGEST.sub(lambda found: f"{found[1]}{', ' if found[2] else ''}posinf=3.4e38, neginf=-3.4e38)", text)
    return dataclasses.replace(program, inputs=inputs, text=text)


def is_rounding(program: Program, variant: str, case: Case, eager: Outcome, outcome: Outcome, most: float) -> bool:
    """Whether a variant differs from eager mode by no more than ``most``, and not at all in double precision."""
    shows_bits = "view(torch.int" in program.source()  # the last ones of a number are those of an integer then
    # what other kernels compute may differ in its last bit, and by any number where bits are looked at
    by_any_number = shows_bits and variant in OTHER_KERNELS
    if not by_any_number and difference(_finite(eager), _finite(outcome), state=variant != JOINT, tolerance=most):
        return False
    # what is no copy any more may be a leaf that is written to
    return any(_is_gone(in_double_precision(program, copies), variant, case) for copies in (False, True))


def _is_gone(program: Program, variant: str, case: Case) -> bool:
    with _default_dtype(torch.float64):
        runnable = Runnable(program)
        try:
            wanted = run(runnable.model(), runnable, case)
            found = _run_variant(runnable, variant, case)
        finally:
            runnable.close()
    if wanted.error or found is None or found.error:
        return False
    return difference(wanted, found, state=variant != JOINT, tolerance=1e-9) is None


def _finite(outcome: Outcome) -> Outcome:
    """What was seen of a run, with zeros for what is infinite or no number."""
    return _with_tensors(outcome, lambda value: torch.where(value.isfinite(), value, torch.zeros_like(value)))


def _with_tensors(outcome: Outcome, change: Callable[[torch.Tensor], torch.Tensor]) -> Outcome:
    seen = {field.name: getattr(outcome, field.name) for field in dataclasses.fields(outcome)}
    return Outcome(**pytree.tree_map_only(torch.Tensor, change, seen))


def _run_variant(runnable: Runnable, variant: str, case: Case) -> Outcome | None:
    """A variant of a program, exported and called anew; None if it is refused."""
    example_case = Case(runnable.program.sizes.example, gradients="leaf" if runnable.program.requires_grad else "")
    if run(runnable.model(), runnable, example_case).error:
        return None  # bits of wider numbers are viewed in other sizes
    try:
        if variant == JOINT:
            example, _ = runnable.arguments(Case(runnable.program.sizes.example, gradients="leaf"))
            return run_joint(joint_program(runnable, example).module(), runnable, case)
        example, _ = runnable.arguments(example_case)
        program = tintype.export(runnable.model(), example, dynamic_shapes=runnable.dynamic_shapes())
        example, _ = runnable.arguments(example_case)
        return run(MAKERS[variant](Exported(runnable, program, example)), runnable, case)
    except tintype.TintypeError:
        return None


@contextlib.contextmanager
def _default_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


# --- control flow as operators ---------------------------------------------------------------------------------


class _WithZeros(torch.autograd.Function):
    """A value, and a gradient of zeros for others."""

    @staticmethod
    def forward(ctx: Any, value: torch.Tensor, *others: torch.Tensor) -> torch.Tensor:
        ctx.others = [(other.shape, other.dtype) for other in others]
        return value.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return gradients[0], *(torch.zeros(shape, dtype=dtype) for shape, dtype in ctx.others)


class ControlFlow:
    """``tintype``, whose operators that take functions return what they do in a program."""

    def __getattr__(self, name: str) -> Any:
        function = getattr(tintype, name)
        if name not in ("cond", "while_loop", "scan", "map", "associative_scan"):
            return function

        def call(*arguments: Any, **options: Any) -> Any:
            given = list(_tensors((arguments, options)))
            result = function(*arguments, **options)
            others = [tensor for tensor in given if tensor.requires_grad]

            def as_result(value: torch.Tensor) -> torch.Tensor:
                value = value.contiguous()
                if not others or not torch.is_grad_enabled() or not (value.is_floating_point() or value.is_complex()):
                    return value
                return _WithZeros.apply(value, *others)

            return pytree.tree_map_only(torch.Tensor, as_result, result)

        return call


def _tensors(values: Any) -> Iterator[torch.Tensor]:
    """The tensors among values, and in the closures of functions."""
    seen: set[int] = set()
    pending = pytree.tree_leaves(values)
    while pending:
        value = pending.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, torch.nn.Module):
            yield from value.parameters()
        elif isinstance(value, (tuple, list, dict)):
            pending += pytree.tree_leaves(value)
        elif getattr(value, "__closure__", None):
            pending += [cell.cell_contents for cell in value.__closure__ if _is_filled(cell)]


def _is_filled(cell: Any) -> bool:
    try:
        cell.cell_contents
    except ValueError:
        return False
    return True


def with_control_flow(program: Program, case: Case, judged: Callable[[Outcome], Any]) -> bool:
    """Whether a variant does what eager mode does with results of control flow as they are in a program."""
    if "tintype." not in program.source():
        return False
    for way in (run, run_as_differentiated):
        runnable = Runnable(program)
        runnable.namespace["tintype"] = ControlFlow()
        try:
            wanted = way(runnable.model(), runnable, case)
        finally:
            runnable.close()
        if wanted.error is None and judged(wanted) is None:
            return True
    return False
