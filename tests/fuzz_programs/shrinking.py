"""Makes a program that has a fault smaller while it keeps the fault."""

from __future__ import annotations

import dataclasses
import re
import time
from collections.abc import Iterator

from tests.fuzz_programs.inputs import Case, dimension_lines, dynamic_shapes, input_lines
from tests.fuzz_programs.judging import CHANGED, Remark, judge
from tests.fuzz_programs.language import Block, Input, Program, Statement, names_in, renamed
from tests.fuzz_programs.operators import repro_lines
from tests.fuzz_programs.running import Runnable, run
from tests.fuzz_programs.variants import JOINT, NAMES

# Numbers, names of values and the like, which differ between programs with one fault.
_PARTICULARS = re.compile(r"<random program[^>]*>:\d+|\d+(?:\.\d+)?|\bs\d+\b|'[^']*'|\[[^\]]*\]|\([^)]*\)")


def mechanism(remark: Remark) -> str:
    """What faults that are probably one have in common."""
    text = remark.text.split("\n")[0].split(" At: ")[0]
    if text.startswith(("result", "argument", "state", "gradient")):
        text = re.sub(r":.*values differ.*", ": values", text)
        text = re.sub(r"\[.*?\]", "", text)
    return f"{remark.verdict} {remark.variant}: {_PARTICULARS.sub('#', text)[:160]}"


@dataclasses.dataclass
class Found:
    """A program with a fault, and the call that shows it."""

    program: Program
    remark: Remark
    cases: list[Case]
    variants: list[str]


def still(program: Program, found: Found) -> Found | None:
    """The program as a finding, if it has the same fault."""
    try:
        judgement = judge(program, found.cases, found.variants, source=found.remark.verdict == CHANGED)
    except Exception:
        return None  # not a program any more
    wanted = mechanism(found.remark)
    for remark in judgement.remarks:
        same = mechanism(remark) == wanted
        if not same and remark.verdict == found.remark.verdict == "WRONG":
            place = found.remark.text.split()[0].split("[")[0]
            same = remark.variant == found.remark.variant and remark.text.startswith(place)
        if same:
            return Found(program, remark, found.cases, found.variants)
    return None


def shrink(found: Found, seconds: float = 20.0) -> Found:
    """A smaller program with the same fault."""
    end = time.monotonic() + seconds
    found = _fewer_variants_and_cases(found)
    improved = True
    while improved and time.monotonic() < end:
        improved = False
        for candidate in candidates(found.program):
            if time.monotonic() > end:
                break
            if (
                candidate.source() == found.program.source()
                and candidate.inputs == found.program.inputs
                and (
                    candidate.sizes == found.program.sizes and candidate.requires_grad == found.program.requires_grad
                )
            ):
                continue
            smaller = still(candidate, found)
            if smaller is not None and _answers(candidate, found):
                found, improved = smaller, True
                break
    return found


def _answers(program: Program, found: Found) -> bool:
    """Whether eager mode still runs the example, and the call that shows the fault."""
    runnable = Runnable(program)
    cases = [Case(program.sizes.example), *([found.remark.case] if found.remark.case else [])]
    return all(run(runnable.model(), runnable, case).error is None for case in cases)


def _fewer_variants_and_cases(found: Found) -> Found:
    remark = found.remark
    variants = [remark.variant] if remark.variant in NAMES else ["module"]
    if remark.verdict == CHANGED and remark.variant == "passes":
        options = [[name] for name in found.variants if name != JOINT]
    else:
        options = [variants]
    cases = [remark.case] if remark.case else [Case(found.program.sizes.example)]
    for chosen in options:
        smaller = still(found.program, Found(found.program, remark, cases, chosen))
        if smaller:
            return smaller
    return found


def candidates(program: Program) -> Iterator[Program]:
    """Programs that are a little smaller."""
    for statements in fewer(program.statements):
        yield dataclasses.replace(program, statements=statements)
    yield from _simpler_results(program)
    yield from _without_inputs(program)
    yield from _merged_inputs(program)
    yield from _simpler_inputs(program)
    if program.sizes.mode in ("auto", "all"):
        for mode in ("dim", "static"):
            yield dataclasses.replace(program, sizes=dataclasses.replace(program.sizes, mode=mode))
    elif program.sizes.mode == "dim":
        yield dataclasses.replace(program, sizes=dataclasses.replace(program.sizes, mode="static"))
    if program.requires_grad:
        yield dataclasses.replace(program, requires_grad=False)
    yield from _folded(program)


def fewer(statements: tuple[Statement, ...]) -> Iterator[tuple[Statement, ...]]:
    """The statements with one left out or made simpler. What used its value uses what it was made from."""
    for i in reversed(range(len(statements))):
        statement = statements[i]
        before, after = statements[:i], statements[i + 1 :]
        defined = statement.defines
        if defined is None or not any(defined in names_in("\n".join(later.lines())) for later in after):
            yield (*before, *after)
        if defined is not None:
            for name in statement.reads:
                yield (*before, *(later.renamed(defined, name) for later in after))
        if statement.without_gradients:
            yield (*before, dataclasses.replace(statement, without_gradients=False), *after)
        for j, block in enumerate(statement.blocks):
            for smaller in _smaller_blocks(block):
                blocks = (*statement.blocks[:j], smaller, *statement.blocks[j + 1 :])
                yield (*before, dataclasses.replace(statement, blocks=blocks), *after)
        yield from _inlined(statements, i)


def _smaller_blocks(block: Block) -> Iterator[Block]:
    for statements in fewer(block.statements):
        result = block.result
        left = {statement.defines for statement in statements}
        for statement in block.statements:
            if statement.defines and statement.defines not in left and statement.reads:
                result = renamed(result, statement.defines, statement.reads[0])
        yield dataclasses.replace(block, statements=statements, result=result)


def _inlined(statements: tuple[Statement, ...], i: int) -> Iterator[tuple[Statement, ...]]:
    """A helper's statements in place of its call."""
    statement = statements[i]
    if statement.kind != "helper" or not statement.defines:
        return
    (block,) = statement.blocks
    arguments = re.search(r"\((.*)\)$", statement.text)
    assert arguments
    body = list(block.statements)
    result = block.result
    for parameter, argument in zip(block.parameters, arguments.group(1).split(", "), strict=True):
        body = [inner.renamed(parameter, argument) for inner in body]
        result = renamed(result, parameter, argument)
    later = [other.renamed(statement.defines, result) for other in statements[i + 1 :]]
    yield (*statements[:i], *body, *later)


def _simpler_results(program: Program) -> Iterator[Program]:
    names = names_in(program.result)
    for name in names:
        if program.result != name:
            yield dataclasses.replace(program, result=name)
    for name in names:
        for statement in program.statements:
            if statement.defines == name:
                for read in statement.reads:
                    yield dataclasses.replace(program, result=renamed(program.result, name, read))
    if len(names) > 2:
        for left_out in names:
            yield dataclasses.replace(program, result=f"({', '.join(name for name in names if name != left_out)},)")
    if "{" in program.result or "[" in program.result:
        yield dataclasses.replace(program, result=f"({', '.join(names)},)")


def _without_inputs(program: Program) -> Iterator[Program]:
    forward = program.source().rpartition("def forward(")[2]
    used = set(names_in(forward.partition(":")[2]))
    for argument in program.inputs:
        if argument.name not in used and len(program.inputs) > 1:
            yield dataclasses.replace(program, inputs=tuple(item for item in program.inputs if item is not argument))


def _merged_inputs(program: Program) -> Iterator[Program]:
    """One input in place of two that are alike."""
    for i, one in enumerate(program.inputs):
        for other in program.inputs[i + 1 :]:
            if isinstance(one, Input) and isinstance(other, Input) and one.dtype == other.dtype:
                statements = tuple(statement.renamed(other.name, one.name) for statement in program.statements)
                inputs = tuple(item for item in program.inputs if item is not other)
                result = renamed(program.result, other.name, one.name)
                yield dataclasses.replace(program, statements=statements, inputs=inputs, result=result)


def _simpler_inputs(program: Program) -> Iterator[Program]:
    for i, argument in enumerate(program.inputs):
        if not isinstance(argument, Input):
            continue
        options = []
        if argument.layout != "contiguous":
            options.append(dataclasses.replace(argument, layout="contiguous"))
        if argument.dtype != "float32":
            options.append(dataclasses.replace(argument, dtype="float32"))
        for j, size in enumerate(argument.sizes):
            rest = argument.sizes[:j], argument.sizes[j + 1 :]
            options.append(dataclasses.replace(argument, sizes=(*rest[0], *rest[1])))
            if not size.isdigit() and size != "n":
                options.append(dataclasses.replace(argument, sizes=(*rest[0], "n", *rest[1])))
            if size in ("n", "m", "n + 1", "2 * n"):
                options.append(dataclasses.replace(argument, sizes=(*rest[0], "3", *rest[1])))
        for option in options:
            yield dataclasses.replace(program, inputs=(*program.inputs[:i], option, *program.inputs[i + 1 :]))


def _folded(program: Program) -> Iterator[Program]:
    """Templates with a size expression of their own, made plain."""
    for i, statement in enumerate(program.statements):
        for old, new in ((r"\((\S+) [-+/]+ \d\)", r"\1"), (r"[a-z]\d+\.shape\[-?\d\]", "2")):
            text = re.sub(old, new, statement.text, count=1)
            if text != statement.text:
                changed = dataclasses.replace(statement, text=text)
                yield dataclasses.replace(
                    program, statements=(*program.statements[:i], changed, *program.statements[i + 1 :])
                )


# --- as a script -----------------------------------------------------------------------------------------------

_MAKE = {
    "module": "variant = program.module()",
    "decomposed": "variant = program.run_decompositions().module()",
    "decomposed by an empty table": "variant = program.run_decompositions({}).module()",
    "decomposed by a table": "from tests.fuzz_programs.variants import USER_TABLE\n"
    "variant = program.run_decompositions(USER_TABLE).module()",
    "saved": "import io; file = io.BytesIO(); tintype.save(program, file); file.seek(0)\n"
    "variant = tintype.load(file).module()",
    "decomposed and saved": "import io; file = io.BytesIO(); tintype.save(program.run_decompositions(), file)\n"
    "file.seek(0); variant = tintype.load(file).module()",
    "unflattened": "variant = tintype.unflatten(program)",
    "retraced": "variant = tintype.export(program.module(), example, dynamic_shapes=dynamic_shapes).module()",
    "training": "variant = tintype.export_for_training(model, example, dynamic_shapes=dynamic_shapes).module()",
    "training and saved": "import io; file = io.BytesIO()\n"
    "tintype.save(tintype.export_for_training(model, example, dynamic_shapes=dynamic_shapes), file)\n"
    "file.seek(0); variant = tintype.load(file).module()",
    "aot": "variant = tintype.aot.module(Model())",
    "joint": "from tests.fuzz_programs.variants import WithLoss  # returns (loss, results)\n"
    "dynamic_shapes = dynamic_shapes and (dynamic_shapes,)\n"
    "variant = tintype.export_joint(WithLoss(model), example, dynamic_shapes=dynamic_shapes).module()",
}


def script(found: Found) -> str:
    """A script that shows the fault."""
    program, remark = found.program, found.remark
    case = remark.case or Case(program.sizes.example)
    source = program.source()
    names = ", ".join(argument.name for argument in program.inputs)
    names = f"{names}," if names else ""
    gradients = "leaf" if remark.variant == JOINT or program.requires_grad else ""
    example = Case(program.sizes.example, gradients=gradients)
    make = _MAKE.get(remark.variant, _MAKE.get(found.variants[0], "")) if remark.variant != "export" else ""
    lines = [
        f"# seed {program.seed}; {remark.verdict}; {remark.variant}; {case.name}",
        *(f"# {line}" for line in remark.text.splitlines()[:6]),
        "import torch, tintype\nfrom tests.fuzz_programs import forms",
        *(repro_lines() if "fuzz_programs." in source else []),
        "",
        source.rstrip(),
        "",
        "torch.manual_seed(0)",
        f"model = Model(){'' if program.training else '.eval()'}",
        *input_lines(program, example),
        f"example = ({names})",
        *dimension_lines(program),
        f"dynamic_shapes = {dynamic_shapes(program)}",
        "program = tintype.export(model, example, dynamic_shapes=dynamic_shapes)",
        *make.splitlines(),
        "for function in (Model(), variant):" if make else "",
    ]
    if make:
        call = [*(line for text in input_lines(program, case) for line in text.split("\n")), "torch.manual_seed(5)"]
        call += [f"result = function({names.rstrip(',')})"] * case.calls
        call += ["print(result)", f"print('arguments after:', {names})"]
        if "self.b" in source:
            call.append("print('buffers after:', dict(function.named_buffers()))")
        if "fuzz_programs.log" in source:
            call.append("print('log:', LOG); LOG.clear()")
        if case.gradients and remark.variant != JOINT:
            call += [
                "from tests.fuzz_programs.running import gradients",
                "print('gradients:', gradients(result, leaves, function))",
            ]
        lines += [f"    {line}" for line in call]
    return "\n".join(line for line in lines if line is not None) + "\n"
