"""Numbers and sizes that only the data decide: computed and asserted by the program, in every stage, once each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch

import tintype
from tintype import Dim
from tintype.errors import DataDependentError
from tintype.symbolic.bridge import from_torch

STAGES = ("training", "functional", "core", "captured again", "captured again, core")
pytestmark = pytest.mark.filterwarnings("ignore:_check_is_size will be removed")
T = torch.tensor
X = torch.arange(12.0).view(4, 3)


def program(stage: str, function: Any, args: tuple[Any, ...], shapes: Any = None) -> tintype.ExportedProgram:
    if stage == "training":
        return tintype.export_for_training(function, args, dynamic_shapes=shapes)
    exported = tintype.export(function, args, dynamic_shapes=shapes)
    if stage.startswith("captured again"):
        exported = tintype.export(exported.module(), args, dynamic_shapes=shapes)
    return exported.run_decompositions() if stage.endswith("core") else exported


def mask(*values: int) -> torch.Tensor:
    return T(values, dtype=torch.bool)


def checked(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
    count = n.item()
    torch._check(count >= 2)
    torch._check(count <= 9)
    return x.new_zeros(count) + count


def checked_size(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
    count = n.item()
    torch._check_is_size(count, max=x.shape[0])
    return x[:count]


def constrained(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
    count = n.item()
    torch.sym_constrain_range(count, min=2, max=9)
    return x.new_ones(count)


def constrained_for_size(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
    count = n.item()
    torch.sym_constrain_range_for_size(count, min=2, max=9)
    return x.new_ones(count)


def checked_with(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
    count = n.item()
    torch._check_value(count > 1, lambda: "too few")
    return x.new_ones(count)


def symbolic_functions(x: torch.Tensor, n: torch.Tensor) -> tuple[Any, ...]:
    count = n.item()
    torch._check(count >= 0)
    rows = x.shape[0]
    return (
        torch.sym_min(count, rows),
        torch.sym_max(count, rows),
        torch.sym_ite(count > rows, count, rows - 1),
        torch.sym_sum([count, rows, 1]),
        torch.sym_float(count) / 2,
        torch.sym_int(rows / 2),
        torch.sym_not(count == rows),
        torch._sym_sqrt(torch.sym_float(rows)),
        x.new_ones(torch.sym_max(count, rows)).sum(),
    )


# name: (function, example, other inputs)
PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...], list[tuple[Any, ...]]]] = {
    "item": (lambda x, n: x * n.item() + n.item(), (X, T(3)), [(X, T(-2))]),
    "float item": (lambda x, n: x * n.item(), (X, T(0.5)), [(X, T(-2.5))]),
    "item as a size": (lambda x, n: x.new_ones(n.item()), (X, T(3)), [(X, T(0)), (X, T(7))]),
    "tolist": (lambda x, n: x.new_ones(n.tolist()), (X, T([3, 2])), [(X, T([1, 0]))]),
    "tolist as sections": (lambda x, n: x.split(n.tolist()), (X, T([3, 1])), [(X, T([2, 2]))]),
    "nonzero": (lambda x, m: x.new_ones(m.nonzero().shape[0]), (X, mask(1, 0, 1)), [(X, mask(0, 0, 0))]),
    "mask": (lambda x, m: x[m] * 2, (X, mask(1, 0, 1, 0)), [(X, mask(1, 1, 1, 1)), (X, mask(0, 0, 0, 0))]),
    "masks of the same size": (lambda x, m: x[m] + x[~m], (X, mask(1, 0, 1, 0)), [(X, mask(0, 0, 1, 1))]),
    "mask, flattened": (lambda x, m: x[m].view(-1, 2), (X, mask(1, 0, 1, 0)), [(X, mask(1, 1, 1, 1))]),
    "masked_select": (lambda x, m: x.masked_select(m > 0), (X, X - 3), [(X, X - 20), (X, X + 1)]),
    "unique": (lambda x, n: torch.unique(n) + x.sum(), (X, T([1, 2, 1])), [(X, T([1, 2, 3]))]),
    "repeat_interleave": (lambda x, n: x.repeat_interleave(n, 0), (X, T([1, 2, 0, 1])), [(X, T([0, 0, 0, 3]))]),
    "checked": (checked, (X, T(3)), [(X, T(2)), (X, T(9))]),
    "checked size": (checked_size, (X, T(3)), [(X, T(0)), (X, T(4))]),
    "constrained": (constrained, (X, T(3)), [(X, T(2)), (X, T(9))]),
    "constrained for size": (constrained_for_size, (X, T(3)), [(X, T(2)), (X, T(9))]),
    "symbolic functions": (symbolic_functions, (X, T(3)), [(X, T(4)), (X, T(7))]),
}


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_matches_eager(name: str, stage: str) -> None:
    function, example, others = PROGRAMS[name]
    exported = program(stage, function, example)
    exported.validate()
    module = exported.module()
    for inputs in (example, *others):
        torch.testing.assert_close(module(*inputs), function(*inputs))


@pytest.mark.parametrize("stage", STAGES)
def test_with_input_sizes_that_vary(stage: str) -> None:
    example = (X, T(3))
    exported = program(stage, symbolic_functions, example, {"x": {0: Dim("rows", min=1)}, "n": None})
    for inputs in (example, (torch.randn(9, 3), T(3)), (torch.randn(1, 3), T(5))):
        torch.testing.assert_close(exported.module()(*inputs), symbolic_functions(*inputs))


def assertions(exported: tintype.ExportedProgram) -> Counter[str]:
    """The conditions that a program asserts, as text, and its range constraints."""
    found: Counter[str] = Counter()
    for node in exported.graph.nodes:
        if node.target is torch.ops.aten._assert_scalar.default:
            found[str(from_torch(node.args[0].meta["val"]))] += 1
        elif node.target is torch.ops.aten.sym_constrain_range.default:
            found[f"range {node.args[0].meta['val']} {dict(node.kwargs)}"] += 1
    return found


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("name", ["checked", "constrained", "constrained for size"])
def test_each_range_is_asserted_once(name: str, stage: str) -> None:
    function, example, _ = PROGRAMS[name]
    exported = program(stage, function, example)
    assert assertions(exported) == {"u0 >= 2": 1, "u0 <= 9": 1, "range u0 {'min': 2, 'max': 9}": 1}
    for value in (1, 10):
        with pytest.raises(RuntimeError, match=rf"Invalid value range for {value} between \[2, 9\]"):
            exported.module()(X, T(value))


@pytest.mark.parametrize("stage", STAGES)
def test_each_relation_is_asserted_once(stage: str) -> None:
    function, example, _ = PROGRAMS["masks of the same size"]
    exported = program(stage, function, example)
    assert {text: count for text, count in assertions(exported).items() if text.startswith("Eq")} == {"Eq(u0, u1)": 1}
    with pytest.raises(RuntimeError):
        exported.module()(X, mask(1, 1, 1, 0))


@pytest.mark.parametrize("stage", STAGES)
def test_a_divisor_is_asserted(stage: str) -> None:
    function, example, _ = PROGRAMS["mask, flattened"]
    three = (torch.arange(4.0).view(4, 1), mask(1, 1, 1, 0))
    exported = program(stage, function, (torch.arange(4.0).view(4, 1), example[1]))
    with pytest.raises(RuntimeError):
        exported.module()(*three)


@pytest.mark.parametrize("stage", STAGES)
def test_a_message_of_the_users_is_kept(stage: str) -> None:
    exported = program(stage, checked_with, (X, T(3)))
    assert exported.module()(X, T(2)).shape == (2,)
    with pytest.raises(RuntimeError):
        exported.module()(X, T(1))


def test_ranges_of_numbers_from_data() -> None:
    exported = tintype.export(checked, (X, T(3)))
    assert {str(symbol): str(bounds) for symbol, bounds in exported.range_constraints.items()} == {"u0": "[2, 9]"}


def test_a_branch_on_data_is_refused_with_the_line_and_ways_out() -> None:
    def branching(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
        count = n.item()
        if count > 3:
            return x
        return -x

    with pytest.raises(DataDependentError) as caught:
        tintype.export(branching, (X, T(3)), control_flow="refuse")
    assert caught.value.location.line == branching.__code__.co_firstlineno + 2
    assert "u0 >= 4" in str(caught.value) and "torch._check" in str(caught.value)


def test_a_promise_that_settles_the_branch_is_enough() -> None:
    def promised(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
        count = n.item()
        torch._check(count > 3)
        return x * count if count > 3 else -x

    exported = tintype.export(promised, (X, T(5)))
    assert torch.equal(exported.module()(X, T(7)), X * 7)
    with pytest.raises(RuntimeError):
        exported.module()(X, T(3))


# --- sizes of 1 ------------------------------------------------------------------------------------------------

ONE = T([1.0, -1.0])  # of which data select one element, or two, but not three
STRETCHED: dict[str, Callable[[torch.Tensor], Any]] = {
    "copied": lambda x: torch.zeros(3).copy_(x[x > 0]),
    "expanded": lambda x: x[x > 0].expand(3),
    "expanded as": lambda x: x[x > 0].expand_as(torch.zeros(2, 3)),
    "einsum": lambda x: torch.einsum("i,i->i", x[x > 0], torch.ones(3)),
    "tensordot": lambda x: torch.tensordot(x[x > 0], torch.ones(3), 1),
    "bias": lambda x: torch.addmm(x[x > 0], torch.ones(3, 3), torch.ones(3, 3)),
    "put": lambda x: torch.zeros(3).index_put((T([0, 1, 2]),), x[x > 0]),
    "assigned": lambda x: torch.zeros(3).index_fill(0, T([1]), 2).add_(x[x > 0]),
    "broadcast": lambda x: torch.broadcast_tensors(x[x > 0], torch.ones(2, 3)),
    "loss": lambda x: torch.nn.functional.l1_loss(x[x > 0], torch.ones(3)),
    "added": lambda x: x[x > 0] + torch.ones(3),
    "of data both": lambda x: x[x > 0] + x.repeat(2)[:3][x.repeat(2)[:3] > -9].new_ones(3),
}


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("name", STRETCHED)
def test_what_only_fits_if_it_is_one_is_one(name: str, stage: str) -> None:
    module = program(stage, STRETCHED[name], (ONE,)).module()
    for given in (ONE, T([-2.0, 3.0])):
        torch.testing.assert_close(module(given), STRETCHED[name](given))
    with pytest.raises(RuntimeError):
        module(T([1.0, 2.0]))


UNIQUE: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "unique": torch.unique,
    "unsorted": lambda x: torch.unique(x, sorted=False),
    "with counts": lambda x: torch.unique(x, return_counts=True)[0],
    "consecutive": torch.unique_consecutive,
    "rows": lambda x: torch.unique(x, dim=0),
    "consecutive rows": lambda x: torch.unique_consecutive(x, dim=0),
}


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("name", UNIQUE)
def test_among_some_elements_there_is_at_least_one(name: str, stage: str) -> None:
    def first(x: torch.Tensor) -> Any:
        found = UNIQUE[name](x)
        return found[0], found.amax(), found.squeeze(0) if x.shape[0] == 1 else found

    for example, others in ((T([3.0]), [T([-1.0])]), (T([1.0, 2.0, 1.0]), [T([4.0, 5.0, 6.0]), T([2.0, 2.0, 1.0])])):
        module = program(stage, first, (example,)).module()
        for given in (example, *others):
            torch.testing.assert_close(module(given), first(given))
    rows = tintype.export(first, (T([1.0, 2.0, 1.0]),), dynamic_shapes=({0: Dim("n", min=2)},)).module()
    torch.testing.assert_close(rows(T([5.0, 5.0])), first(T([5.0, 5.0])))


def needs_one(x: torch.Tensor) -> Any:
    y = x[x > 0]
    z = y.squeeze(-1)
    if z.dim():
        raise ValueError("one number is wanted")
    return z


def needs_one_after_squeeze(x: torch.Tensor) -> Any:
    y = x[x > 0]
    return y.squeeze(-1) * 1, y.reshape(())


def needs_one_after_sum(x: torch.Tensor) -> Any:
    y = x[x > 0]
    return y + torch.ones(3), y.reshape(())


def indexes_nothing(x: torch.Tensor) -> Any:
    y = x[:1][x[:1] > 0]
    return y.squeeze(-1) * 1, y[0]


@pytest.mark.parametrize("function", [needs_one, needs_one_after_squeeze, needs_one_after_sum, indexes_nothing])
def test_what_fails_by_what_was_presumed_is_refused_by_name(function: Any) -> None:
    """The example has one element, and eager mode answers; the program presumes that there is not one."""
    example = T([1.0, -1.0, -2.0, -3.0])
    function(example)
    with pytest.raises(DataDependentError, match="size of 1 would make another program") as caught:
        tintype.export(function, (example,))
    assert "torch._check" in str(caught.value) and "test_unbacked.py" in str(caught.value.location)


def test_what_fails_for_another_reason_stays_what_it_is() -> None:
    def fails(x: torch.Tensor) -> Any:
        y = x[x > 0]
        torch._check(y.shape[0] == 1)
        raise KeyError(y.squeeze(-1).dim())

    with pytest.raises(KeyError, match="0"):
        tintype.export(fails, (ONE,))


def test_a_presumption_of_a_branch_is_none_outside() -> None:
    def fails(x: torch.Tensor) -> Any:
        y = x[x > 0]
        z = tintype.cond(x.sum() > 0, lambda y: y.squeeze(-1).sum(), lambda y: y.sum(), (y,))
        raise KeyError(z.dim())

    with pytest.raises(KeyError, match="0"):
        tintype.export(fails, (ONE,))
