"""Nothing with an effect disappears: operators stay, in their order, whether or not somebody uses their results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._library.effects import EffectType

import tintype
from tests.export.modes import capture, compare
from tintype.ir.operator_facts import facts_of

SEEN: list[Any] = []
_LIBRARY = torch.library.Library("tintype_effects", "DEF")


def _define(schema: str, kernel: Callable[..., Any], fake: Callable[..., Any] | None = None) -> None:
    name = schema.partition("(")[0]
    _LIBRARY.define(schema)
    _LIBRARY.impl(name, kernel, "CPU" if fake is not None else "CompositeExplicitAutograd")
    if fake is not None:
        _LIBRARY.impl(name, fake, "Meta")


_define("say(str text) -> ()", SEEN.append)
_define("log(Tensor value) -> ()", lambda value: SEEN.append(value.tolist()))
_define("doubled(Tensor value) -> Tensor", lambda v: (SEEN.append(v.tolist()), v * 2)[1], torch.empty_like)
_define("registered(Tensor value) -> Tensor", lambda v: (SEEN.append(v.tolist()), v * 2)[1], torch.empty_like)
_LIBRARY._register_effectful_op("tintype_effects::registered", EffectType.ORDERED)
effects = torch.ops.tintype_effects


@torch.library.custom_op("tintype_effects::write", mutates_args=("target",))
def write(value: torch.Tensor, target: torch.Tensor) -> None:
    SEEN.append(("write", value.tolist()))
    target.add_(value)


@torch.library.custom_op("tintype_effects::note", mutates_args=())
def note(value: torch.Tensor) -> None:
    SEEN.append(("note", value.tolist()))


@note.register_fake
def _(value: torch.Tensor) -> None:
    return None


def _in_branches(x: torch.Tensor) -> torch.Tensor:
    def first(v: torch.Tensor) -> torch.Tensor:
        effects.log(v)
        return v + 1

    def second(v: torch.Tensor) -> torch.Tensor:
        effects.log(v * 2)
        return v - 1

    tintype.cond(x.sum() > 0, first, second, (x,))
    return x * 2


def _in_branches_that_return_nothing(x: torch.Tensor) -> torch.Tensor:
    def first(v: torch.Tensor) -> tuple[()]:
        effects.log(v)
        return ()

    tintype.cond(x.sum() > 0, first, lambda v: (), (x,))
    return x * 2


def _in_map(x: torch.Tensor) -> torch.Tensor:
    def body(row: torch.Tensor) -> torch.Tensor:
        note(row)
        return row + 1

    tintype.map(body, x)
    return x * 2


def _in_loop(x: torch.Tensor) -> Any:
    def body(step: torch.Tensor, value: torch.Tensor) -> Any:
        effects.log(value)
        return step + 1, value * 2

    return tintype.while_loop(lambda step, _: step < 2, body, (torch.tensor(0), x))


def _in_condition_of_loop(x: torch.Tensor) -> Any:
    def condition(step: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        effects.log(step)
        return step < 2

    return tintype.while_loop(condition, lambda step, value: (step + 1, value * 2), (torch.tensor(0), x))


def _in_scan(x: torch.Tensor) -> torch.Tensor:
    def body(total: torch.Tensor, row: torch.Tensor) -> Any:
        effects.log(row)
        return total + row, total * row

    tintype.scan(body, torch.zeros(2), x)
    return x * 2


def _without_gradients(x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        effects.log(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        effects.log(x + 1)
    return x * 2


class Talking(torch.nn.Module):
    """A submodule with an effect, whose result may be unused."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        effects.log(x)
        return x + 1


class Modules(torch.nn.Module):
    """Effects in and between submodules."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Talking(), Talking()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        effects.say("begin")
        y = self.first(x)
        effects.say("middle")
        self.second(y)
        effects.say("end")
        return y


PROGRAMS: dict[str, Callable[[torch.Tensor], Any]] = {
    "no tensor": lambda x: (effects.say("hello"), x + 1)[1],
    "no result": lambda x: (effects.log(x), x + 1)[1],
    "custom operator": lambda x: (note(x), x + 1)[1],
    "unused result": lambda x: (effects.doubled(x), x + 1)[1],
    "registered": lambda x: (effects.registered(x), effects.registered(x), x + 1)[2],
    "between writes": lambda x: (note(x), x.add_(1), effects.log(x), x[0].mul_(3), note(x), x * 1)[-1],
    "of a view": lambda x: (lambda row: (x.add_(1), effects.log(row), x * 1)[2])(x[1]),
    "writes to what nobody reads": lambda x: (write(x, x * 2), x + 1)[1],
    "writes": lambda x: (lambda total: (write(x, total), note(total), total)[2])(x * 2),
    "modules": Modules(),
    "branches": _in_branches,
    "branches that return nothing": _in_branches_that_return_nothing,
    "map": _in_map,
    "loop": _in_loop,
    "condition of a loop": _in_condition_of_loop,
    "scan": _in_scan,
    "other modes": _without_gradients,
    "print": lambda x: (torch.ops.aten._print("hello"), x + 1)[1],
}


def values(offset: float = 0.0) -> torch.Tensor:
    return torch.arange(6.0).reshape(3, 2) + offset


def observed(function: Callable[..., Any], x: torch.Tensor) -> list[Any]:
    """The effects of a call, and what it returns and leaves in its argument."""
    SEEN.clear()
    result = function(x)
    return [list(SEEN), torch.utils._pytree.tree_map(torch.Tensor.tolist, result), x.tolist()]


@pytest.mark.parametrize("name", PROGRAMS)
def test_effects_in_every_mode(mode: str, name: str, capfd: pytest.CaptureFixture[str]) -> None:
    function = PROGRAMS[name]
    SEEN.clear()
    program = capture(mode, function, (values(),))
    assert not SEEN and not capfd.readouterr().out, "the effect was had while the program was captured"
    module = tintype.unflatten(program) if mode == "unflattened" else program.module()
    for offset in (0.0, 5.0, -9.0):
        wanted = observed(function, values(offset)), capfd.readouterr().out
        assert (observed(module, values(offset)), capfd.readouterr().out) == wanted


@pytest.mark.parametrize("name", PROGRAMS)
def test_effects_in_other_forms(name: str) -> None:
    function = PROGRAMS[name]
    program = tintype.export(function, (values(),))
    forms = [program.run_decompositions({}), program.run_decompositions({torch.ops.aten.mul.Tensor: _multiply})]
    for form in forms:
        form.validate()
    modules = [form.module() for form in forms] + [tintype.interop.to_torch(program).module()]
    if "loop" not in name:
        modules.append(tintype.aot.function(function))
    for module in modules:
        assert observed(module, values(1)) == observed(function, values(1))


def _multiply(a: torch.Tensor, b: Any) -> torch.Tensor:
    return torch.ops.aten.div.Tensor(a, 1 / b)


def test_an_effect_is_part_of_the_printed_program() -> None:
    program = tintype.export(PROGRAMS["between writes"], (values(),))
    text = program.code
    assert text.count("tintype_effects.note") == 2 and text.count("tintype_effects.log") == 1
    assert text.index("tintype_effects.note") < text.index("tintype_effects.log")


# --- assertions ------------------------------------------------------------------------------------------


def _check_in_branch(x: torch.Tensor) -> torch.Tensor:
    def checked(v: torch.Tensor) -> torch.Tensor:
        torch._check(v[0, 0].item() < 3)
        return v + 1

    return tintype.cond(x.sum() > 0, checked, lambda v: v * 1, (x,))


CHECKS: dict[str, Callable[[torch.Tensor], Any]] = {
    "a float": lambda x: (torch._check(x[0, 0].item() < 3), x + 1)[1],
    "an integer": lambda x: (torch._check(x[0, 0].int().item() < 3), x + 1)[1],
    "two integers": lambda x: (torch._check(x[0, 0].int().item() * 3 < x[2, 1].int().item()), x + 1)[1],
    "a truth value": lambda x: (torch._check((x < 9).all().item()), x + 1)[1],
    "all elements": lambda x: (torch._check_tensor_all(x < 9), x + 1)[1],
    "a range": lambda x: (torch.ops.aten.sym_constrain_range(x[0, 0].int().item(), min=-20, max=2), x + 1)[1],
    "a size": lambda x: (torch._check((x > 3).nonzero().shape[0] < 5), x + 1)[1],
    "a tensor": lambda x: (torch._assert_async((x < 9).all()), x + 1)[1],
    "a tensor, with text": lambda x: (torch._assert_async((x < 9).all(), "too large"), x + 1)[1],
    "with a token": lambda x: (
        torch.ops.aten._functional_assert_async.msg((x < 9).all(), "too large", torch.zeros(0)),
        x + 1,
    )[1],
    "in a branch": _check_in_branch,
}


@pytest.mark.parametrize("name", CHECKS)
def test_checks_of_numbers_that_nobody_uses(mode: str, name: str) -> None:
    function = CHECKS[name]
    program = capture(mode, function, (values(),))
    module = tintype.unflatten(program) if mode == "unflattened" else program.module()
    torch.testing.assert_close(module(values()), function(values()))
    for run in (function, module):
        with pytest.raises(RuntimeError):
            run(values(7))


@pytest.mark.parametrize("name", CHECKS)
def test_checks_in_compiled_functions_and_in_programs_of_torch(name: str) -> None:
    function = CHECKS[name]
    modules = [
        tintype.aot.function(function),
        tintype.interop.to_torch(tintype.export(function, (values(),))).module(),
    ]
    for module in modules:
        torch.testing.assert_close(module(values()), function(values()))
        with pytest.raises(RuntimeError):
            module(values(7))


# --- random numbers --------------------------------------------------------------------------------------

DRAWS: dict[str, Callable[[torch.Tensor], Any]] = {
    "rand": lambda x: torch.rand(3),
    "randn_like": torch.randn_like,
    "randint": lambda x: torch.randint(0, 5, (4,)),
    "randperm": lambda x: torch.randperm(5),
    "dropout": lambda x: torch.nn.functional.dropout(x, 0.3),
    "dropout of nothing": lambda x: torch.nn.functional.dropout(x, 0.0),
    "rrelu": lambda x: torch.nn.functional.rrelu(x, training=True),
    "multinomial": lambda x: torch.multinomial(x.abs() + 1, 1),
    "bernoulli": lambda x: torch.bernoulli(x.sigmoid()),
    "in place": lambda x: torch.empty(4).uniform_(),
    "in place on a view": lambda x: torch.empty(4, 3)[1:].normal_(),
    "poisson": lambda x: torch.poisson(x.abs()),
    "binomial": lambda x: torch.binomial(torch.full((3,), 10.0), torch.full((3,), 0.5)),
    "dirichlet": lambda x: torch.distributions.Dirichlet(torch.ones(3)).sample(),
}


@pytest.mark.parametrize("name", DRAWS)
def test_a_draw_that_nobody_uses_moves_the_generator(mode: str, name: str) -> None:
    draw = DRAWS[name]
    compare(mode, lambda x: (draw(x), torch.rand(3), x + torch.rand(2))[2], (values(),))


def test_a_branch_that_draws_for_nobody(mode: str) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        tintype.cond(x.sum() > 0, lambda v: torch.rand(3), lambda v: torch.rand(4)[:3], (x,))
        return x + torch.rand(2)

    compare(mode, function, (values(),), others=[((values(-9),), {})])


# --- gradients -------------------------------------------------------------------------------------------


def test_effects_of_both_halves_of_a_joint_graph() -> None:
    class Loud(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            note(x)
            return x * 2

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            note(gradient)
            return gradient * 2

    def function(x: torch.Tensor) -> torch.Tensor:
        return (Loud.apply(x) ** 2).sum()

    def run(function: Callable[..., Any]) -> Any:
        SEEN.clear()
        x = values().requires_grad_()
        function(x).backward()
        return list(SEEN), x.grad.tolist()  # type: ignore[union-attr]

    wanted = run(function)
    partitioners = (
        tintype.transforms.partition.partition_by_default,
        tintype.transforms.partition.partition_by_min_cut,
        lambda joint: tintype.transforms.partition.partition_by_min_cut(joint, 0.0),
    )
    for partitioner in partitioners:
        assert run(tintype.aot.function(function, partitioner=partitioner)) == wanted
    joint = tintype.export_joint(function, (values().requires_grad_(),))
    SEEN.clear()
    joint.module()(values())
    assert SEEN == wanted[0]


def test_an_effect_is_not_had_again_by_a_gradient() -> None:
    def branch(x: torch.Tensor) -> torch.Tensor:
        note(x)
        return x.sin()

    def function(x: torch.Tensor) -> torch.Tensor:
        note(x * 3)
        return tintype.cond(x.sum() > 0, branch, torch.cos, (x,)).sum()

    def run(function: Callable[..., Any]) -> Any:
        SEEN.clear()
        x = values().requires_grad_()
        function(x).backward()
        return list(SEEN), x.grad

    wanted = run(function)
    for partitioner in (None, lambda joint: tintype.transforms.partition.partition_by_min_cut(joint, 0.0)):
        options = {} if partitioner is None else {"partitioner": partitioner}
        seen, gradient = run(tintype.aot.function(function, **options))
        assert seen == wanted[0]
        torch.testing.assert_close(gradient, wanted[1])


# --- which operators have one ----------------------------------------------------------------------------


def test_what_counts_as_an_effect() -> None:
    aten = torch.ops.aten
    for operator in (aten.relu.default, aten.add_.Tensor, aten.index.Tensor, aten.item.default):
        assert not facts_of(operator).has_effect
    for operator in (aten.rand.default, aten._print.default, effects.doubled.default, note._opoverload):
        assert facts_of(operator).has_effect
    assert facts_of(effects.registered.default).declares_effect
    assert not facts_of(effects.doubled.default).declares_effect


def test_profiled_stretches_are_no_part_of_a_program(mode: str) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        with torch.profiler.record_function("stretch"):
            return x + 1

    compare(mode, function, (values(),))


def test_an_operator_that_can_not_run_without_data_is_refused_by_name() -> None:
    _define("looks(Tensor value) -> Tensor", lambda value: value * len(value.tolist()))
    with pytest.raises(tintype.errors.UnsupportedOperatorError, match="register_fake"):
        tintype.export(lambda x: effects.looks(x), (values(),))
