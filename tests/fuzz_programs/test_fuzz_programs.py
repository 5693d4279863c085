"""Random programs do in every variant what they do in eager mode; ``make fuzz-programs`` tries more of them."""

from __future__ import annotations

import os
import random
import warnings
from collections.abc import Callable

import pytest
import torch
import torch.utils._pytree as pytree

import tintype
from tests.fuzz_programs.__main__ import try_seed
from tests.fuzz_programs.inputs import Case, can_share, other_layouts
from tests.fuzz_programs.judging import FAULTS, VARIANT, WRONG, judge
from tests.fuzz_programs.kept import KEPT, Kept
from tests.fuzz_programs.language import Input, Program, Sizes, Statement, names_in
from tests.fuzz_programs.programs import write_program
from tests.fuzz_programs.shrinking import Found, script, shrink
from tests.fuzz_programs.variants import MAKERS, NAMES, Exported

PROGRAMS = int(os.environ.get("TINTYPE_RANDOM_PROGRAMS", "300"))
# What is left, by docs/reliability.md: mending it lowers these, and nothing may raise them.
MOST_FAULTS = 0 / 300
MOST_REFUSED = 3 / 300


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")


def every_case(program: Program) -> list[Case]:
    """Calls at the example and at other sizes, in other layouts, with shared memory and with gradients."""
    chance = random.Random(program.source())
    example = program.sizes.example
    cases = [Case(example, calls=2)]
    cases += [Case(example, gradients=gradients) for gradients in ("leaf", "result")]
    for value in range(7) if example else ():
        sizes = {name: max(value, program.sizes.minimum.get(name, 0)) for name in example}
        cases += [Case(sizes, seed=2), Case(sizes, gradients="leaf", seed=3)]
    cases += [Case(example, other_layouts(program, chance), seed=4) for _ in range(4)]
    cases += [Case(example, shared=shared, seed=5) for shared in can_share(program, example)]
    cases += [Case(example, other_layouts(program, chance), gradients="leaf", seed=6) for _ in range(2)]
    return cases


@pytest.mark.direct(reason="variants are made from what export returns")
@pytest.mark.parametrize("kept", KEPT, ids=lambda kept: kept.name)
def test_a_program_that_was_wrong_is_right(kept: Kept) -> None:
    program = kept.program()
    judgement = judge(program, every_case(program), NAMES)
    assert not judgement.skipped
    accepted = ("ok", "refused") if kept.may_refuse else ("ok",)
    assert judgement.verdict in accepted, judgement.worst or judgement.remarks


@pytest.mark.direct(reason="variants are made from what export returns")
def test_random_programs_are_right_or_refused() -> None:
    rows = [try_seed(seed, variants=3, shrink_seconds=0.0) for seed in range(PROGRAMS)]
    faults = [row for row in rows if row["verdict"] in FAULTS]
    refused = [row for row in rows if row["verdict"] == "refused"]
    for row in [*faults, *refused]:
        print(f"python -m tests.fuzz_programs --only {row['seed']}: {row['mechanism']}")
    assert len(faults) <= MOST_FAULTS * len(rows)
    assert len(refused) <= MOST_REFUSED * len(rows)


def test_a_seed_makes_the_same_program() -> None:
    assert [write_program(seed) for seed in range(20)] == [write_program(seed) for seed in range(20)]
    assert len({write_program(seed).source() for seed in range(20)}) == 20


class Doubling(torch.nn.Module):
    """A variant with a fault: it doubles what comes out."""

    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, *arguments: object) -> object:
        return pytree.tree_map_only(torch.Tensor, lambda value: value * 2, self.module(*arguments))


def test_a_fault_is_found_and_shrunk_to_the_line_that_makes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def module(exported: Exported) -> torch.nn.Module:
        right = exported.program.module()
        return Doubling(right) if ".sin()" in exported.runnable.program.source() else right

    monkeypatch.setitem(MAKERS, "module", module)
    lines = ["v0 = x0 * 2", "v1 = v0.relu()", "v2 = v1.sin() + x1", "v3 = torch.cat([v2, x1])", "v4 = v3.sum()"]
    program = Program(
        0,
        (Input("x0", ("n", "3")), Input("x1", ("n", "3"), layout="transposed")),
        {},
        tuple(Statement(line, line) for line in lines),
        "(v4, v3, v0)",
        Sizes({"n": 2}, "dim"),
    )
    cases = every_case(program)
    judgement = judge(program, cases, ["module", "decomposed"])
    assert judgement.worst is not None and judgement.worst.verdict == WRONG and judgement.worst.variant == "module"
    found = shrink(Found(program, judgement.worst, cases, ["module", "decomposed"]))
    assert [statement.text for statement in found.program.statements] == ["v2 = x0.sin() + x0"]
    assert found.program.inputs == (Input("x0", ()),) and len(names_in(found.program.result)) == 1
    namespace: dict[str, object] = {}
    exec(script(found), namespace)  # a script that runs, with the program of the faulty line
    assert isinstance(namespace["program"], tintype.ExportedProgram)


@pytest.mark.parametrize(
    "maker, verdict",
    [
        (lambda exported: 1 / 0, VARIANT),
        (lambda exported: exported.program.module().double(), WRONG),
        (lambda exported: exported.program.graph_module, VARIANT),
    ],
)
def test_faults_have_their_verdicts(
    maker: Callable[[Exported], object], verdict: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(MAKERS, "saved", maker)
    members = {"p0": "self.p0 = torch.nn.Parameter(torch.randn(3))"}
    program = Program(0, (Input("x0", ("3",)),), members, (), "x0 * self.p0", Sizes({}))
    judgement = judge(program, every_case(program), ["module", "saved"])
    assert [(remark.verdict, remark.variant) for remark in judgement.remarks] == [(verdict, "saved")]


class Changed(torch.nn.Module):
    """A variant whose result is changed by a function."""

    def __init__(self, module: torch.nn.Module, change: Callable[..., object]) -> None:
        super().__init__()
        self.module = module
        self.change = change

    def forward(self, *arguments: object) -> object:
        return self.change(self.module(*arguments), *arguments)


@pytest.mark.parametrize(
    "lines, change, text",
    [
        ("x0.detach() * 2", lambda result, x: result + (x - x.detach()), "gradient 0: there only otherwise"),
        ("torch.cat([x0 * 1e6, x0])", lambda result, x: result + torch.eye(6)[5], "values differ"),
        ("(x0.half() * 2).float()", lambda result, x: result * 1.01, "values differ"),
        ("torch.rand_like(x0)", lambda result, x: result[: x.stride(0) + 1], "(3,) in eager mode, (2,) otherwise"),
    ],
    ids=["gradient", "one element", "half precision", "sizes of what is drawn"],
)
def test_small_faults_are_found(
    lines: str, change: Callable[..., object], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(MAKERS, "saved", lambda exported: Changed(exported.program.module(), change))
    program = Kept("", Sizes({}), (Input("x0", ("3",), layout="strided"),), lines).program()
    judgement = judge(program, every_case(program), ["saved"])
    assert judgement.worst is not None and judgement.worst.verdict == WRONG
    assert text in judgement.worst.text


@pytest.mark.direct(reason="variants are made from what export returns")
@pytest.mark.parametrize(
    "lines",
    [
        "v0 = x0.abs().sqrt() * 2\nwith torch.no_grad():\n    v0.transpose_(0, 1).add_(1)\nv0",
        "v0 = (x0 * 0).sqrt()\nx0.eq_(v0)\nx0",
        "v0 = (x0 * 0).sqrt()\nv0.zero_()\nv0",
        "v0 = torch.nn.functional.rrelu(x0.square(), training=True)\nx0.data.mul_(2)\nv0",
    ],
    ids=["geometry without gradients", "compared in place", "filled", "noise is filled"],
)
def test_gradients_that_autograd_gets_wrong_are_no_faults(lines: str) -> None:
    program = Kept("", Sizes({}), (Input("x0", ("2", "2")),), lines).program()
    judgement = judge(program, every_case(program), ["module", "saved"])
    assert judgement.verdict == "ok", judgement.worst
