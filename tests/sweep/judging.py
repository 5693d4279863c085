"""What becomes of one case: exported, run, decomposed, run again, compared with eager mode at each stage."""

from __future__ import annotations

import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

import tintype
from tests.sweep.programs import Case, seed
from tintype.errors import CaptureError, InvalidRequestError, TintypeError
from tintype.export.codegen import callable_for
from tintype.tree.sparse import SparseParts, is_sparse

CORRECT, REFUSED, ERROR, WRONG = "correct", "refused", "error", "wrong"
NOT_REACHED, EAGER_FAILS, ABSENT = "not reached", "eager-fails", "no such variant"
SEVERITY = (ABSENT, EAGER_FAILS, CORRECT, REFUSED, ERROR, WRONG)  # the last ones weigh most
EXPORT, DECOMPOSED, METADATA = "export", "decomposed", "metadata"
IN_PLACE = "in place"  # both stages of the variant that writes to its argument
LAYOUT = "layout"  # strides of results, and whether they share memory with inputs
STAGES = (EXPORT, DECOMPOSED, IN_PLACE, METADATA, LAYOUT)

# Their results are whatever lies in memory.
UNINITIALISED = frozenset(
    {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided", "resize_"}
)


@dataclass
class Outcome:
    """How one case went at one stage."""

    case: str
    stage: str
    verdict: str
    message: str = ""
    trace: str = ""


@dataclass
class Result:
    """What a call gave back and what it left in its inputs."""

    value: Any
    inputs: tuple[torch.Tensor, ...]


class Difference(Exception):
    """The program doesn't do what eager mode does."""


def judge(operator: Any, case: Case) -> Iterator[Outcome]:
    """The outcomes of a case, one per stage that it reaches."""
    try:
        expected = run(case.module, case)
    except Exception as error:
        yield Outcome(case.name, IN_PLACE if case.in_place else EXPORT, EAGER_FAILS, first_line(error))
        return
    judging = Judging(operator.name in UNINITIALISED, case, expected)
    exported, outcome = judging.attempt(IN_PLACE if case.in_place else EXPORT, judging.export)
    yield outcome
    if exported is None:
        return
    stage = IN_PLACE if case.in_place else DECOMPOSED
    yield judging.attempt(stage, lambda: judging.decompose(exported))[1]
    yield judging.attempt(METADATA, lambda: check_metadata(exported, case.fresh_inputs()))[1]
    yield judging.attempt(LAYOUT, lambda: compare_layouts(expected, run(exported.module(), case)))[1]


class Judging:
    """The stages of one case."""

    def __init__(self, uninitialised: bool, case: Case, expected: Result) -> None:
        self.case = case
        self.trials = [(case, expected), *other_trials(case)]
        self.values_defined = not uninitialised

    def attempt(self, stage: str, step: Callable[[], Any]) -> tuple[Any, Outcome]:
        """Carry out a step; its result where it went well, and its outcome."""
        try:
            return step(), Outcome(self.case.name, stage, CORRECT)
        except Difference as difference:
            return None, Outcome(self.case.name, stage, WRONG, str(difference))
        except (CaptureError, InvalidRequestError) as error:
            return None, Outcome(self.case.name, stage, REFUSED, f"[{error.id}] {error.fact}", trace_of(error))
        except Exception as error:
            return None, Outcome(self.case.name, stage, ERROR, first_line(error), trace_of(error))

    def export(self) -> Any:
        """Export the case and compare what the program does."""
        program = tintype.export(self.case.module, self.case.inputs)
        self.compare(program, 1.3e-6, 1e-5, self.values_defined)
        return program

    def decompose(self, program: Any) -> None:
        """Decompose the program and compare again."""
        decomposed = program.run_decompositions()
        # a decomposition draws its random numbers in another order
        self.compare(decomposed, 1e-4, 1e-4, self.values_defined and not self.is_random())

    def is_random(self) -> bool:
        """Whether eager mode gives something else with another state of the random numbers."""
        state = torch.get_rng_state()
        torch.manual_seed(7)
        inputs = self.case.fresh_inputs()
        other = Result(self.case.module(*inputs), inputs)
        torch.set_rng_state(state)
        try:
            compare_results(self.trials[0][1], other, 1.3e-6, 1e-5, True)
        except Difference:
            return True
        return False

    def compare(self, program: Any, rtol: float, atol: float, values: bool) -> None:
        """Run a program and compare with eager mode."""
        for case, expected in self.trials:
            try:
                actual = run(program.module(), case)
            except TintypeError as error:  # refusing is for export; an exported program runs
                raise AssertionError(f"the program was exported but does not run: {error}") from error
            compare_results(expected, actual, rtol, atol, values)


def other_trials(case: Case) -> Iterator[tuple[Case, Result]]:
    """The case with other values, where eager mode takes them."""
    try:
        other = case.with_other_values()
        yield other, run(case.module, other)
    except Exception:
        return


def run(function: Callable[..., Any], case: Case) -> Result:
    """Call something with fresh inputs and fresh random numbers."""
    inputs = case.fresh_inputs()
    seed()
    return Result(function(*inputs), inputs)


# --- comparing -------------------------------------------------------------------------------------------


def compare_results(expected: Result, actual: Result, rtol: float, atol: float, values: bool) -> None:
    """Raise a Difference where results or what was left in the inputs differ."""
    leaves, spec = pytree.tree_flatten(expected.value)
    other_leaves, other_spec = pytree.tree_flatten(actual.value)
    if spec != other_spec:
        raise Difference(f"structure: eager gives {spec}, the program {other_spec}")
    for place, (leaf, other) in enumerate(zip(leaves, other_leaves, strict=True)):
        compare_leaf(f"output {place}", leaf, other, rtol, atol, values)
    for place, (leaf, other) in enumerate(zip(expected.inputs, actual.inputs, strict=True)):
        compare_leaf(f"input {place} after the call", leaf, other, rtol, atol, values)


def compare_leaf(name: str, expected: Any, actual: Any, rtol: float, atol: float, values: bool) -> None:
    """Compare two results: exactly in kind, closely in value."""
    if type(expected) is not type(actual):
        raise Difference(f"{name}: eager gives a {type(expected).__name__}, the program a {type(actual).__name__}")
    if not isinstance(expected, torch.Tensor):
        same = expected == actual or (expected != expected and actual != actual)
        if values and not same and not numbers_close(expected, actual, rtol, atol):
            raise Difference(f"{name}: eager gives {expected!r}, the program {actual!r}")
        return
    for aspect in ("dtype", "shape", "layout", "device"):
        before, after = getattr(expected, aspect), getattr(actual, aspect)
        if before != after:
            raise Difference(f"{name}: {aspect} is {before} in eager mode, {after} in the program")
    if values:
        try:
            torch.testing.assert_close(actual, expected, rtol=rtol, atol=atol, equal_nan=True)
        except AssertionError as error:
            raise Difference(f"{name}: {' '.join(str(error).split())}") from None


def compare_layouts(expected: Result, actual: Result) -> None:
    """Raise a Difference where results lie otherwise in memory, or share memory with other inputs."""
    pairs = zip(pytree.tree_leaves(expected.value), pytree.tree_leaves(actual.value), strict=True)
    for place, (real, other) in enumerate(pairs):
        if not isinstance(real, torch.Tensor) or real.layout is not torch.strided:
            continue
        if not strides_mean_the_same(real, other):
            raise Difference(
                f"output {place}: stride is {real.stride()} in eager mode, {other.stride()} in the program"
            )
        before, after = sharing(real, expected.inputs), sharing(other, actual.inputs)
        if before != after:
            raise Difference(
                f"output {place}: shares memory with inputs {before} in eager mode, {after} in the program"
            )


def sharing(tensor: torch.Tensor, inputs: tuple[torch.Tensor, ...]) -> list[int]:
    """The numbers of the inputs that a tensor shares memory with."""
    memory = tensor.untyped_storage()._cdata
    return [
        place
        for place, other in enumerate(inputs)
        if other.layout is torch.strided and other.untyped_storage()._cdata == memory
    ]


def numbers_close(expected: Any, actual: Any, rtol: float, atol: float) -> bool:
    """Whether two numbers are close; anything else is not."""
    if not isinstance(expected, (int, float, complex)):
        return False
    return abs(expected - actual) <= atol + rtol * abs(expected)


# --- the descriptions in the graph -----------------------------------------------------------------------


def check_metadata(program: Any, inputs: tuple[torch.Tensor, ...]) -> None:
    """Run a graph node by node, and compare each value with what the node says about it."""
    signature = program.graph_signature
    state = {**program.state_dict, **program.constants}
    remaining = iter(pytree.tree_leaves([SparseParts.of(x).parts if is_sparse(x) else x for x in inputs]))
    seed()
    found: dict[Any, Any] = {}
    for node, spec in zip(program.graph.find_nodes(op="placeholder"), signature.input_specs, strict=True):
        found[node] = next(remaining) if spec.target is None else state[spec.target]
    for node in program.graph.nodes:
        if node.op == "call_function":
            args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), found.__getitem__)
            found[node] = callable_for(node.target)(*args, **kwargs)
            check_node(node, found[node])


def check_node(node: Any, value: Any) -> None:
    """Compare a node's value with its description, tensor by tensor."""
    described = node.meta.get("val")
    pairs = [(described, value)]
    if isinstance(value, (list, tuple)):
        if not isinstance(described, (list, tuple)) or len(described) != len(value):
            raise Difference(f"{node.target}: gives {len(value)} results, described as {described!r}")
        pairs = list(zip(described, value, strict=True))
    for place, (description, real) in enumerate(pairs):
        if not isinstance(real, torch.Tensor):
            continue
        name = f"{node.target} result {place}"
        if not isinstance(description, torch.Tensor):
            raise Difference(f"{name}: a tensor, described as {description!r}")
        for aspect in ("dtype", "shape", "device"):
            before, after = getattr(real, aspect), getattr(description, aspect)
            if not same(before, after):
                raise Difference(f"{name}: {aspect} is {before}, described as {after}")
        if not same(real.stride(), description.stride()) and not strides_mean_the_same(real, description):
            raise Difference(
                f"{name}: stride of {real.shape} is {real.stride()}, described as {description.stride()}"
            )


def strides_mean_the_same(real: torch.Tensor, description: torch.Tensor) -> bool:
    """Strides along sizes of 1 say nothing, nor do those of empty tensors."""
    if real.numel() == 0:
        return True
    pairs = zip(real.shape, real.stride(), description.stride(), strict=True)
    return all(size == 1 or same(a, b) for size, a, b in pairs)


def same(real: Any, described: Any) -> bool:
    """Equality in which a symbolic size stands for any number."""
    if isinstance(real, (tuple, torch.Size)):
        return len(real) == len(described) and all(map(same, real, described))
    return isinstance(described, (torch.SymInt, torch.SymFloat)) or real == described


# --- errors ----------------------------------------------------------------------------------------------


def first_line(error: BaseException) -> str:
    """An error in one line."""
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0][:300]}"


def trace_of(error: BaseException) -> str:
    """The end of a traceback: where it was raised."""
    return "".join(traceback.format_exception(error)[-8:])


def quiet() -> None:
    """No warnings: the database's samples cause many on purpose."""
    warnings.simplefilter("ignore")
