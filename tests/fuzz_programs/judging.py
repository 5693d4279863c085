"""Compares a program's variants with eager mode and says what is wrong."""

from __future__ import annotations

import collections
import dataclasses
import io
import random
import re
import traceback
import warnings
from typing import Any

import torch

import tintype
from tests.fuzz_programs.comparing import compare, difference, gradient_difference
from tests.fuzz_programs.inputs import Case, can_share, evaluated, other_layouts, shape
from tests.fuzz_programs.language import Input, Program
from tests.fuzz_programs.programs import OTHERS
from tests.fuzz_programs.running import Outcome, Runnable, State, copied, run, run_as_differentiated
from tests.fuzz_programs.second_opinions import is_rounding, with_control_flow
from tests.fuzz_programs.variants import (
    ANY_SIZES,
    BY_TABLE,
    JOINT,
    MAKERS,
    MAY_REFUSE,
    NAMES,
    Exported,
    joint_program,
    run_joint,
)

# Verdicts, the worst first. The last ones are no faults.
WRONG, FOREIGN, VARIANT, PROMISE, CHANGED = "WRONG", "FOREIGN", "VARIANT", "PROMISE", "CHANGED"
FAULTS = [WRONG, FOREIGN, VARIANT, PROMISE, CHANGED]
REFUSED, ACCEPTS, SHARES, NARROW, VARIANT_REFUSED = "refused", "accepts", "shares", "narrow", "variant refused"
# differences that are no faults: see second_opinions.py
ROUNDING, OF_BRANCHES = "rounding", "of branches"


_DRAWS = (
    "dropout|Dropout|rand|normal|uniform_|bernoulli|multinomial|rrelu|RReLU|Fractional|gumbel|exponential_|poisson"
)
# control flow on data, in operators or in Python's words
_FLOW = re.compile(r"tintype\.|arm_f\d|while ")
# What assertions that are part of a program say.
ASSERTIONS = re.compile("untime assertion failed|Tensor strides mismatch|at other sizes")
# A size that only data decide is asserted to be what operators need, and not to be 1, which broadcasting would take
# for any other: the example's data may be refused.
OF_DATA = re.compile(r"\bu\d+\b|keeps the dimensions whose size is not 1")


@dataclasses.dataclass
class Remark:
    """Something that was found about a program."""

    verdict: str
    variant: str
    text: str
    case: Case | None = None
    trace: str = ""

    @property
    def is_fault(self) -> bool:
        """Whether this must not be."""
        return self.verdict in FAULTS


@dataclasses.dataclass
class Judgement:
    """All that was found about a program."""

    remarks: list[Remark] = dataclasses.field(default_factory=list)
    calls: int = 0
    skipped: str = ""

    @property
    def worst(self) -> Remark | None:
        """The fault to show."""
        faults = [remark for remark in self.remarks if remark.is_fault]
        return min(faults, key=lambda remark: FAULTS.index(remark.verdict)) if faults else None

    @property
    def verdict(self) -> str:
        """One word for the program."""
        if self.skipped:
            return "skipped"
        if self.worst:
            return self.worst.verdict
        return REFUSED if any(remark.verdict == REFUSED for remark in self.remarks) else "ok"


def message(error: BaseException) -> str:
    """An exception in a few lines."""
    return f"{type(error).__name__}: {error}"[:600]


def is_ours(error: BaseException) -> bool:
    """Whether an exception is one that a user is meant to see: ours, or an assertion of the program."""
    return isinstance(error, tintype.TintypeError) or bool(ASSERTIONS.search(str(error)))


# --- which sizes, and which calls ----------------------------------------------------------------------------


def settle_sizes(program: Program, chance: random.Random) -> Program | None:
    """The program with a promise about sizes that eager mode keeps; None if it does not run the same way twice."""
    runnable = Runnable(program)
    example = program.sizes.example
    first, second = (run(runnable.model(), runnable, Case(example, calls=2)) for _ in range(2))
    if first.error or second.error or difference(first, second):
        return None
    if program.requires_grad and run(runnable.model(), runnable, Case(example, gradients="leaf")).error:
        program = dataclasses.replace(program, requires_grad=False)
    texts = " ".join(" ".join(item.sizes) if isinstance(item, Input) else item.value for item in program.inputs)
    used = {name for name in example if name in texts}
    sizes = {name: example[name] for name in example if name in used}
    mode = chance.choices(["dim", "auto", "all", "static"], [55, 25, 10, 10])[0]
    if not sizes:
        mode = "static"
    elif mode == "dim" and program.narrows:
        mode = "auto"
    minimum: dict[str, int] = {}
    if mode == "dim":
        found = least_sizes(program, runnable, sizes)
        mode, minimum = ("auto", {}) if found is None else ("dim", found)
    runnable.close()
    return dataclasses.replace(
        program, sizes=dataclasses.replace(program.sizes, example=sizes, mode=mode, minimum=minimum)
    )


def least_sizes(program: Program, runnable: Runnable, sizes: dict[str, int]) -> dict[str, int] | None:
    """From which sizes on eager mode runs the program, if it does for all of them."""
    minimum = dict.fromkeys(sizes, 0)
    for name in sizes:
        for value in range(9):
            here = {**{other: max(sizes[other], 2) for other in sizes}, name: value}
            if run(runnable.model(), runnable, Case(here)).error:
                minimum[name] = value + 1
    if any(minimum[name] > sizes[name] for name in sizes):
        return None
    chance = random.Random(program.seed)
    for _ in range(3):
        here = {name: chance.randint(minimum[name], 8) for name in sizes}
        if run(runnable.model(), runnable, Case(here)).error:
            return None
    return minimum


def cases_of(program: Program, chance: random.Random) -> list[Case]:
    """Calls to compare: the example first, then other sizes, layouts, shared memory and gradients."""
    example = program.sizes.example
    cases = [Case(example, calls=2), Case(example, gradients="leaf"), Case(example, gradients="result")]
    cases.append(Case(example, layouts=other_layouts(program, chance), seed=2))
    for _ in range(4 if example else 0):
        low = {name: program.sizes.minimum.get(name, 0) if chance.random() < 0.9 else 0 for name in example}
        sizes = {name: chance.choice([value for value in OTHERS if value >= low[name]]) for name in example}
        if chance.random() < 0.3:
            name = chance.choice(list(example))
            sizes = {**example, name: sizes[name]}
        layouts = other_layouts(program, chance) if chance.random() < 0.3 else ()
        cases.append(Case(sizes, layouts, seed=3))
    if example:
        cases.append(Case(cases[-1].sizes, gradients=chance.choice(["leaf", "result"]), seed=4))
    ways = can_share(program, example)
    if ways:
        cases.append(Case(example, shared=chance.choice(ways), seed=5))
    cases.append(Case(example, layouts=other_layouts(program, chance), gradients="leaf", seed=6))
    return cases


def is_promised(program: Program, case: Case) -> bool:
    """Whether the program was told to take these sizes."""
    sizes = program.sizes
    if case.sizes == sizes.example:
        return True
    return sizes.mode == "dim" and all(value >= sizes.minimum.get(name, 0) for name, value in case.sizes.items())


def has_small_size(program: Program, case: Case) -> bool:
    """Whether a size, or a number that may be one, is 0 or 1, which a program may rule out by an assertion."""
    return any(
        min(shape(item, case.sizes), default=2) < 2
        if isinstance(item, Input)
        else evaluated(item.value, case.sizes) < 2
        for item in program.inputs
    )


# --- judging -------------------------------------------------------------------------------------------------


def judge(program: Program, cases: list[Case], variants: list[str], source: bool = True) -> Judgement:
    """Export a program and compare variants of it with eager mode; ``source``: see whether passes changed it, too."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        runnable = Runnable(program)
        try:
            return _judge(runnable, cases, variants, source)
        finally:
            runnable.close()


def _judge(runnable: Runnable, cases: list[Case], variants: list[str], source: bool) -> Judgement:
    judgement = Judgement()
    eager = {i: run(runnable.model(), runnable, case) for i, case in enumerate(cases)}
    if cases and cases[0].sizes == runnable.program.sizes.example and eager[0].error and len(cases) > 1:
        judgement.skipped = message(eager[0].error)
        return judgement
    exported = _export(runnable, judgement)
    if exported is not None:
        before = _description(exported.program) if source else {}
        for variant in variants:
            if variant != JOINT:
                _judge_variant(exported, variant, cases, eager, judgement)
        if source:
            _judge_source(exported, before, judgement)
    if JOINT in variants:
        _judge_joint(runnable, cases, eager, judgement)
    return judgement


def example_case(program: Program) -> Case:
    """The call that a program is exported with."""
    return Case(program.sizes.example, gradients="leaf" if program.requires_grad else "")


def _export(runnable: Runnable, judgement: Judgement) -> Exported | None:
    model = runnable.model()
    example, _ = runnable.arguments(example_case(runnable.program))
    before = _surroundings(model, example)
    try:
        program = tintype.export(model, example, dynamic_shapes=runnable.dynamic_shapes())
    except tintype.TintypeError as error:
        judgement.remarks.append(Remark(REFUSED, "export", message(error)))
        return None
    except NameError as error:  # in a branch that eager mode never takes
        judgement.skipped = message(error)
        return None
    except Exception as error:
        trace = traceback.format_exc()[-3000:]
        judgement.remarks.append(Remark(FOREIGN, "export", message(error), None, trace))
        return None
    finally:
        found = _changes(before, _surroundings(model, example))
        if found:
            judgement.remarks.append(Remark(CHANGED, "export", found))
    example, _ = runnable.arguments(example_case(runnable.program))
    return Exported(runnable, program, example)


def _surroundings(model: torch.nn.Module, example: tuple[Any, ...]) -> dict[str, Any]:
    tensors = dict(model.state_dict(keep_vars=True))
    return {
        "arguments": copied(list(example)),
        "versions of arguments": [value._version for value in example if isinstance(value, torch.Tensor)],
        "state": {name: value.detach().clone() for name, value in tensors.items()},
        "versions of state": {name: value._version for name, value in tensors.items()},
        "identity of state": {name: id(value) for name, value in tensors.items()},
        "flags": {name: (value.requires_grad, value.grad_fn is None) for name, value in tensors.items()},
        "attributes": {name: sorted(vars(module)) for name, module in model.named_modules()},
        "random state": torch.get_rng_state(),
        "modes": [torch.is_grad_enabled(), str(torch.get_default_dtype()), torch.is_autocast_enabled("cpu")],
    }


def _changes(before: dict[str, Any], after: dict[str, Any]) -> str | None:
    for name, value in before.items():
        found = compare(value, after[name], name)
        if found:
            return found.replace("in eager mode", "before").replace("otherwise", "after")
    return None


def _description(program: tintype.ExportedProgram) -> dict[str, Any]:
    """Text, contract and bytes."""
    file = io.BytesIO()
    try:
        tintype.save(program, file, metadata=False)
    except tintype.UnsavableError:
        file = io.BytesIO()
    return {"text": program.code, "contract": str(program.contract()), "bytes": file.getvalue()}


def _judge_source(exported: Exported, before: dict[str, Any], judgement: Judgement) -> None:
    """A pass leaves the program it works on as it was."""
    after = _description(exported.program)
    for name, value in before.items():
        if after[name] != value:
            text = f"{name} of the program changed"
            if name != "bytes":
                text += ": " + " / ".join(sorted(set(after[name].splitlines()) ^ set(value.splitlines()))[:4])
            judgement.remarks.append(Remark(CHANGED, "passes", text[:600]))
            return


def _judge_variant(
    exported: Exported, variant: str, cases: list[Case], eager: dict[int, Outcome], judgement: Judgement
) -> None:
    remarks = judgement.remarks
    try:
        module = MAKERS[variant](exported)
    except Exception as error:
        # a table that branches on sizes can't do so where only data decide about them
        of_data = variant == BY_TABLE and isinstance(error, tintype.errors.DataDependentError)
        if of_data or (isinstance(error, tintype.TintypeError) and variant in MAY_REFUSE):
            remarks.append(Remark(VARIANT_REFUSED, variant, message(error)))
        elif not isinstance(error, tintype.UnsavableError):
            remarks.append(
                Remark(VARIANT, variant, f"can't be made: {message(error)}", None, traceback.format_exc()[-3000:])
            )
        return
    state = State(module)
    for i, case in enumerate(cases):
        state.put_back()
        judgement.calls += 1
        outcome = run(module, exported.runnable, case)
        remark = _judge_again(exported.runnable, variant, case, eager[i], outcome)
        if remark is not None:
            remarks.append(remark)
            if remark.is_fault:
                return


def _judge_again(runnable: Runnable, variant: str, case: Case, eager: Outcome, outcome: Outcome) -> Remark | None:
    """What is to be said about one call, with other references where eager mode as it is differs."""
    program = runnable.program

    def judged(reference: Outcome) -> Remark | None:
        outcome.shares = reference.shares if variant == JOINT else outcome.shares
        return judge_call(program, variant, case, reference, outcome)

    remark = judged(eager)
    found = [(eager, remark)]
    if remark is not None and _is_about_gradients(remark):
        differentiated = run_as_differentiated(runnable.model(), runnable, case)
        if differentiated.error is None:
            remark = judged(differentiated)
            found.append((differentiated, remark))
    if remark is None or remark.verdict != WRONG:
        return remark
    most = 0.5 if computes_roughly(program) else 1e-2
    for reference, difference_to_it in found:
        text = difference_to_it.text if difference_to_it is not None else ""
        if "values differ" in text and is_rounding(program, variant, case, reference, outcome, most):
            return Remark(ROUNDING, variant, text, case)
    if with_control_flow(program, case, lambda wanted: _fault(judged(wanted))):
        return Remark(OF_BRANCHES, variant, remark.text, case)
    return remark


def _fault(remark: Remark | None) -> Remark | None:
    return remark if remark is not None and remark.is_fault else None


def _is_about_gradients(remark: Remark) -> bool:
    return remark.verdict == WRONG and remark.text.startswith("gradient")


def judge_call(program: Program, variant: str, case: Case, eager: Outcome, outcome: Outcome) -> Remark | None:
    """What is to be said about one call."""
    if eager.error is not None:
        # autograd's own rules about views and leaves are not a program's to enforce
        quiet = outcome.error is not None or case.gradients
        return None if quiet else Remark(ACCEPTS, variant, message(eager.error), case)
    if outcome.error is not None:
        return _judge_refused_call(program, variant, case, outcome.error)
    found = difference(eager, outcome, state=variant != JOINT)
    if found and case.gradients and _is_computed_again(program):
        return Remark(NARROW, variant, found, case)
    if found and "values differ" in found and draws(program) and _lies_otherwise(program, case):
        return None  # the same numbers are drawn, in the order in which elements lie in memory
    if found:
        return Remark(WRONG, variant, found, case)
    if eager.shares != outcome.shares:
        return Remark(SHARES, variant, f"{eager.shares} in eager mode, {outcome.shares} otherwise", case)
    return None


def _judge_refused_call(program: Program, variant: str, case: Case, error: BaseException) -> Remark:
    text = f"eager mode answers: {message(error)}"
    if _is_autograds(program, case, text):
        return Remark(NARROW, variant, text, case)
    usual = all(item.layout == "contiguous" for item in program.inputs if isinstance(item, Input))
    if "size -1 can be any value and is ambiguous" in text and (case.layouts or not usual):
        return Remark(NARROW, variant, text, case)  # which eager mode says of nothing that is contiguous
    if "dimension with size 0" in text:
        return Remark(NARROW, variant, text, case)  # an index into nothing, which eager mode does not look at
    if OF_DATA.search(text):
        return Remark(NARROW, variant, text, case)
    if "setStorage" in text and case.layouts:
        return Remark(NARROW, variant, text, case)  # memory that lies beyond the elements, which no copy has
    if not is_ours(error):
        return Remark(VARIANT, variant, text, case)
    if _is_decided_inside(program, text):
        return Remark(NARROW, variant, text, case)
    if variant == BY_TABLE and case.sizes != program.sizes.example:
        return Remark(NARROW, variant, text, case)  # the table branches on sizes, and the program asserts what holds
    if variant in ANY_SIZES:
        return Remark(VARIANT_REFUSED, variant, text, case)
    if case.shared or looks_at_gradients(program):
        return Remark(NARROW, variant, text, case)
    # other sizes, and a history (x * 1), mean other layouts, too
    usual = case.sizes == program.sizes.example and not case.layouts and not case.gradients
    if looks_at_layouts(program) and not usual:
        return Remark(NARROW, variant, text, case)
    if re.search("have the strides|strides mismatch", text) and writes_to_memory(program) and not usual:
        return Remark(NARROW, variant, text, case)
    if "expanded" in case.layouts and writes(program):
        return Remark(NARROW, variant, text, case)  # what is written to must have memory for each element
    if is_promised(program, case) and (case.sizes == program.sizes.example or not has_small_size(program, case)):
        return Remark(PROMISE, variant, text, case)
    return Remark(NARROW, variant, text, case)


def _is_autograds(program: Program, case: Case, text: str) -> bool:
    """Whether autograd refuses what it refuses in eager mode, too, as soon as somebody uses the tensor (an integer
    that something with a gradient was written to) or it has elements (a leaf that is written to, a tensor that is
    written to after it was saved), or notices a write that it does not notice there."""
    # a checkpoint below vmap can't be computed again in eager mode either
    if re.search(
        "Autograd not support dtype|a leaf Variable that requires grad|escaped from inside a function", text
    ):
        return True
    if re.search(r"modified by an inplace operation: \[torch\.\w+ \[(\d+, )*0[],]", text):
        return True
    if "derivative for aten::" in text and case.sizes != program.sizes.example:
        return True  # of one element, vander has no history, and autograd asks for no derivative of what follows
    if "more than one element of the written-to tensor" in text and "expanded" in case.layouts:
        return writes(program)  # eager mode does not look where out= of a product goes, and leaves it open
    if "output of a function that returns multiple views" in text and _FLOW.search(program.source()):
        return True  # what a branch or a loop returns has a gradient if some arm, or what no step changed, has one
    modified = bool(re.search("modified by an inplace operation|modified inplace", text))
    return modified and (hides_writes(program) or _is_computed_again(program))


def _lies_otherwise(program: Program, case: Case) -> bool:
    """Whether inputs may lie in memory in another order than the example's. Where that has sizes of 1, strides don't
    tell the order that a layout means at other sizes."""
    usual = all(item.layout == "contiguous" for item in program.inputs if isinstance(item, Input))
    # what a loop or a branch of a program returns is contiguous
    moved = case.sizes != program.sizes.example or bool(_FLOW.search(program.source()))
    return bool(case.layouts) or (moved and not usual)


def _is_computed_again(program: Program) -> bool:
    """Whether eager mode does something once more for gradients that can be told from doing it once: under a
    checkpoint it writes, logs, or reads what was written to since. Programs compute it once."""
    source = program.source()
    return "checkpoint_f" in source and (
        writes(program) or bool(re.search(r"fuzz_programs\.|copy_\(|print\(", source))
    )


def computes_roughly(program: Program) -> bool:
    """Whether a program computes in half precision, whatever its results are of."""
    dtypes = [item.dtype for item in program.inputs if isinstance(item, Input)]
    return bool(re.search(r"float16|half\(", f"{program.source()} {dtypes}"))


def draws(program: Program) -> bool:
    """Whether a program draws random numbers."""
    return bool(re.search(_DRAWS, program.source()))


def looks_at_layouts(program: Program) -> bool:
    """Whether what a program does depends on the layout of its inputs, so that it may refuse another one."""
    source = program.source()
    if re.search(r"as_strided|stride\(|is_contiguous|storage_offset|viewed_if_possible", source):
        return True
    # the tensor itself, with its history, in one layout, and a copy without one in another
    if "no_grad" in source and re.search(r"contiguous|memory_format", source):
        return True
    # what is a view in one layout and a copy in another, if something is written
    return bool(re.search(r"contiguous|reshape|[fF]latten|ravel", source)) and writes(program)


def hides_writes(program: Program) -> bool:
    """Whether a program may write to what has a gradient without autograd's knowledge: by ``.data``, or in the branch
    that was not taken, which eager mode refuses in the one that is."""
    source = program.source()
    # autograd does not notice that arguments of kron were overwritten
    return (
        ".data" in source
        or "kron" in source
        or ("Parameter(" in source and bool(_FLOW.search(source)) and writes(program))
    )


def writes(program: Program) -> bool:
    """Whether a program writes in place."""
    return bool(re.search(r"_\(|\] [-+*]?= |[-+*/|&]= |out=|inplace=True", program.source()))


def writes_to_memory(program: Program) -> bool:
    """Whether a program may write to a part of a view in which elements share memory with each other: that is a write
    to memory, which has to lie as in the example."""
    return bool(re.search(r"expand|broadcast_to|unfold", program.source())) and writes(program)


def _is_decided_inside(program: Program, text: str) -> bool:
    """Whether a branch or a loop refuses a size at which a dimension that it squeezes, or a part that it cuts again,
    is one element long: what it decides about that is asserted there, and no matter for the program's promise."""
    source = program.source()
    squeezes = re.search(r"expression Ne\(", text) and re.search(r"\bsqueeze_?\(", source)
    cuts = re.search(r"failed for expression [^\n]*//", text) and re.search(r"//|chunk|split", source)
    return bool((squeezes or cuts) and _FLOW.search(source))


def looks_at_gradients(program: Program) -> bool:
    """Whether what a program does depends on which of its inputs require gradients."""
    return bool(re.search("requires_grad|is_grad_enabled|is_leaf", program.source()))


def _judge_joint(runnable: Runnable, cases: list[Case], eager: dict[int, Outcome], judgement: Judgement) -> None:
    """Gradients as part of a program."""
    wanted = [i for i, case in enumerate(cases) if case.gradients == "leaf" and not case.shared]
    example = Case(runnable.program.sizes.example, gradients="leaf")
    expected = run(runnable.model(), runnable, example)
    if expected.error or expected.gradients is None or not wanted:
        return
    arguments, _ = runnable.arguments(example)
    try:
        program = joint_program(runnable, arguments)
        program.validate()
        module = program.module()
    except tintype.TintypeError as error:
        judgement.remarks.append(Remark(VARIANT_REFUSED, JOINT, message(error)))
        return
    except Exception as error:
        trace = traceback.format_exc()[-3000:]
        verdict = VARIANT_REFUSED if _is_autograds(runnable.program, example, message(error)) else VARIANT
        judgement.remarks.append(Remark(verdict, JOINT, f"can't be made: {message(error)}", None, trace))
        return
    state = State(module)
    for i in wanted:
        state.put_back()
        judgement.calls += 1
        outcome = run_joint(module, runnable, cases[i])
        remark = _judge_again(runnable, JOINT, cases[i], eager[i], outcome)
        if remark is not None and remark.verdict != PROMISE:
            judgement.remarks.append(remark)
            if remark.is_fault:
                return


def choose_variants(chance: random.Random, count: int) -> list[str]:
    """The program itself and some other variants, all of them if ``count`` is large."""
    others = [name for name in NAMES if name != "module"]
    chosen = set(others if count >= len(others) else chance.sample(others, count))
    return ["module", *(name for name in others if name in chosen)]


def tally(judgements: list[Judgement]) -> collections.Counter[str]:
    """How often each verdict came out."""
    return collections.Counter(judgement.verdict for judgement in judgements)


__all__ = [
    "Judgement",
    "Remark",
    "cases_of",
    "choose_variants",
    "gradient_difference",
    "judge",
    "settle_sizes",
    "tally",
]
