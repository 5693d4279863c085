"""cond, map, while_loop, scan and associative_scan: captured programs against eager mode."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tintype
from tests.ops.programs import STAGES, assert_like_eager, at_stage
from tintype import Dim

X = torch.linspace(-1.0, 2.0, 6).reshape(3, 2).requires_grad_()


class Branches(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(2, 2)
        self.register_buffer("calls", torch.zeros(2))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
        def positive(x: torch.Tensor) -> Any:
            self.calls.add_(1)
            z = x.cos()
            z.mul_(2)
            return {"a": self.layer(z) + y, "b": x}

        def negative(x: torch.Tensor) -> Any:
            return {"a": x.sin() + self.calls, "b": x}

        result = tintype.cond(x.sum() > 0, positive, negative, (x,))
        return result, self.calls + 1


def test_branches_with_state_and_closures() -> None:
    assert_like_eager(Branches(), [(X, torch.ones(2)), (-X, torch.ones(2)), (X, torch.zeros(2))])


class Normalizing(torch.nn.Module):
    """Running statistics that are written to behind autograd's back, inside of a branch."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        def large(x: torch.Tensor) -> torch.Tensor:
            return tintype.cond(x.sum() > 5, lambda: x * 2, lambda: self.norm(x) * x)

        return tintype.cond(x.sum() > 0, large, self.norm, (x,))


def test_branches_that_normalize_batches() -> None:
    assert_like_eager(Normalizing(), [(X,), (-X,), (X * 9,), (X,)])


def test_a_branch_that_writes_to_an_input() -> None:
    def f(x: torch.Tensor, flag: torch.Tensor) -> torch.Tensor:
        def write(x: torch.Tensor) -> torch.Tensor:
            x.add_(1)
            return x * 2

        return tintype.cond(flag, write, lambda x: x * 3, (x,)) + x

    x = X.detach()
    assert_like_eager(f, [(x, torch.tensor(True)), (x, torch.tensor(False))])


def write_in_a_branch(x: torch.Tensor) -> torch.Tensor:
    def write(row: torch.Tensor) -> torch.Tensor:
        row.mul_(3)
        return row + 1

    x.logical_not_()
    return tintype.cond(x.sum() > 0, write, lambda row: row - 1, (x[:, 0],))


def write_in_a_step(x: torch.Tensor) -> torch.Tensor:
    x.logical_not_()
    row = x[:, 0]

    def step(carry: torch.Tensor, value: torch.Tensor) -> Any:
        row.add_(value)
        return carry + row, value * 2

    return tintype.scan(step, torch.zeros(3), torch.ones(2, 3))[0]


def write_in_a_loop(x: torch.Tensor) -> torch.Tensor:
    x.logical_not_()
    row = x.t()[0]

    def body(value: torch.Tensor) -> Any:
        row.add_(1)
        return (value + row.sum(),)

    return tintype.while_loop(lambda value: value < 9, body, (torch.zeros(()),))[0]


@pytest.mark.parametrize("f", [write_in_a_branch, write_in_a_step, write_in_a_loop])
@pytest.mark.parametrize("stage", STAGES)
def test_a_function_writes_to_a_part_of_an_input_that_is_not_contiguous(f: Any, stage: str) -> None:
    module = at_stage(stage, f, (torch.zeros(3, 8)[:, ::2],)).module()
    for value in (0.0, 1.0):
        given, wanted = (torch.full((3, 8), value)[:, ::2] for _ in range(2))
        torch.testing.assert_close(module(given), f(wanted))
        torch.testing.assert_close(given, wanted)


def test_nested_branches() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        def outer(x: torch.Tensor) -> torch.Tensor:
            return tintype.cond(x.sum() > 1, lambda: x * y, lambda: x + y)

        return tintype.cond(x.sum() > 0, outer, lambda x: x - y, (x,))

    assert_like_eager(f, [(X, X), (X / 10, X), (-X, X)])


AROUND = {
    "cond": lambda x, flag: tintype.cond(flag, lambda: x * 2, lambda: x + 1),
    "map": lambda x, flag: tintype.map(lambda row: row * 2, x),
    "scan": lambda x, flag: tintype.scan(lambda total, row: (total + row, total * 2), x[0], x)[1],
    "while_loop": lambda x, flag: tintype.while_loop(lambda v: v.sum() < 9, lambda v: (v + 1,), (x,))[0],
    "associative_scan": lambda x, flag: tintype.associative_scan(torch.add, x, 0),
    "twice": lambda x, flag: tintype.cond(flag, lambda: tintype.cond(flag, lambda: x, lambda: x * 3), lambda: x * 5),
}


@pytest.mark.parametrize("name", AROUND)
def test_an_operator_in_a_branch_takes_what_is_around_the_branch(name: str) -> None:
    def f(x: torch.Tensor, flag: torch.Tensor) -> torch.Tensor:
        return tintype.cond(x.sum() > 0, lambda: AROUND[name](x, flag), lambda: x.exp())

    yes, no = torch.tensor(True), torch.tensor(False)
    assert_like_eager(f, [(X, yes), (X, no), (-X, yes)])
    torch.testing.assert_close(tintype.aot.function(f)(X.detach(), no), f(X.detach(), no))


def test_branches_that_differ_in_size() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        y = tintype.cond(x.sum() > 0, lambda x: x[1:], lambda x: x * 1, (x,))
        return y + 1

    assert_like_eager(f, [(X,), (-X,)])


def test_branches_that_differ_in_strides() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        y = tintype.cond(x.sum() > 0, lambda x: (x * 2).t().clone().t(), lambda x: x * 3, (x,))
        return y.view(-1)

    assert_like_eager(f, [(X,), (-X,)], stages=("export", "training", "decomposed"))


def test_numbers_as_results() -> None:
    def f(x: torch.Tensor) -> Any:
        n = tintype.cond(x.sum() > 0, lambda: 2, lambda: 1)
        return x * n

    assert_like_eager(f, [(X,), (-X,)])


def test_a_predicate_on_sizes() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return tintype.cond(x.shape[0] > 3, lambda x: x * x.shape[0], lambda x: x.sin(), (x,))

    examples = [(X,), (torch.ones(5, 2),), (torch.ones(1, 2),)]
    assert_like_eager(f, examples, dynamic_shapes={"x": {0: Dim("n")}})
    assert_like_eager(f, [(X,)])
    program = tintype.export(f, (X,))
    assert {"true_graph_0", "false_graph_0"} <= {name for name, _ in program.graph_module.named_children()}


def test_guards_of_a_branch_stay_there() -> None:
    def f(x: torch.Tensor, flag: torch.Tensor) -> torch.Tensor:
        def halves(x: torch.Tensor) -> torch.Tensor:
            return x.reshape(2, -1).sum(0).sum() + x

        return tintype.cond(flag, halves, lambda x: x + 1, (x,))

    program = tintype.export(
        f, (torch.ones(4), torch.tensor(True)), dynamic_shapes={"x": {0: Dim("n")}, "flag": None}
    )
    module = program.module()
    x = torch.ones(5)
    torch.testing.assert_close(module(x, torch.tensor(False)), x + 1)
    torch.testing.assert_close(module(torch.ones(6), torch.tensor(True)), torch.ones(6) + 6)
    with pytest.raises(RuntimeError):
        module(x, torch.tensor(True))


def test_torch_cond_is_taken_in() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda x: x.cos(), lambda x: x.sin(), (x,))

    module = tintype.export(f, (X,)).module()
    torch.testing.assert_close(module(X), X.cos())
    torch.testing.assert_close(module(-X), (-X).sin())


@pytest.mark.parametrize("other", [lambda x: (x, x), lambda x: x.int(), lambda x: x.sum(), lambda x: None])
def test_branches_that_do_not_agree(other: Any) -> None:
    with pytest.raises(tintype.errors.BranchMismatchError, match="true_fn"):
        tintype.export(lambda x: tintype.cond(x.sum() > 0, lambda x: x * 2, other, (x,)), (X,))


def test_a_branch_that_fails_is_named() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return tintype.cond(x.sum() > 0, lambda x: x * 2, lambda x: x.mT.view(-1), (x,))

    with pytest.raises(tintype.CaptureError, match="false_fn fails: RuntimeError: view size"):
        tintype.export(f, (torch.ones(2, 3),))
    with pytest.raises(tintype.CaptureError, match="false_fn"):
        tintype.aot.function(f)(torch.ones(2, 3))


@pytest.mark.parametrize(
    ("f", "size", "other"),
    [
        (lambda x: tintype.cond(x.shape[0] > 2, lambda: x[2], lambda: x[0]), 2, 3),
        (lambda x: tintype.cond(x.shape[0] % 2 == 0, lambda: x.view(2, -1).sum(), lambda: x.sum() * 3), 3, 4),
        (
            lambda x: tintype.cond(
                x.shape[0] > 2, lambda: tintype.cond(x.sum() > 0, lambda: x[0], lambda: x[2]), lambda: x[1]
            ),
            2,
            3,
        ),
        (lambda x: tintype.cond(x.shape[0] <= 2, lambda x: x.exp(), lambda x: x[2:] * x[2], (x,)), 2, 3),
    ],
)
def test_a_branch_that_does_not_fit_the_size_of_the_example(f: Any, size: int, other: int) -> None:
    """As for an ``if``, the program is for sizes at which the other branch is taken."""
    x, y = torch.arange(1.0, size + 1), torch.arange(1.0, other + 1)
    for options in ({}, {"dynamic_shapes": "auto"}):
        assert_like_eager(f, [(x,)], **options)
        with pytest.raises(RuntimeError):
            tintype.export(f, (x,), **options).module()(y)
    compiled = tintype.aot.function(f)
    for value in (x, y, x + 1):
        torch.testing.assert_close(compiled(value), f(value))


def test_a_tensor_that_escapes_from_a_branch() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        kept = []

        def branch(x: torch.Tensor) -> torch.Tensor:
            kept.append(x * 2)
            return x + 1

        y = tintype.cond(x.sum() > 0, branch, lambda x: x, (x,))
        return y + kept[0]

    with pytest.raises(tintype.CaptureError, match="inside of a branch"):
        tintype.export(f, (X,))


# --- map -------------------------------------------------------------------------------------------------


def test_map_over_a_container() -> None:
    def f(xs: Any, y: torch.Tensor) -> Any:
        return tintype.map(lambda row, y: {"s": row[0] + y, "p": (row[1] * y).sum()}, (xs, xs * 2), y)

    assert_like_eager(f, [(X, torch.ones(2)), (-X, torch.ones(2))])


def test_map_with_a_varying_number_of_rows() -> None:
    def f(xs: torch.Tensor) -> torch.Tensor:
        return tintype.map(lambda x: x.cumsum(0) * xs.shape[0], xs)

    examples = [(X,), (torch.ones(5, 2),), (torch.ones(1, 2),)]
    assert_like_eager(f, examples, dynamic_shapes={"xs": {0: Dim("n")}})


def test_map_without_rows() -> None:
    def f(xs: torch.Tensor) -> torch.Tensor:
        return tintype.map(lambda x: x.sum(), xs)

    program = tintype.export(f, (X,), dynamic_shapes={"xs": {0: Dim("n")}}).module()
    assert program(torch.ones(0, 2)).shape == (0,)


def test_map_inside_of_map() -> None:
    def f(xs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return tintype.map(lambda row: tintype.map(lambda x: x * y, row), xs)

    assert_like_eager(f, [(X, torch.tensor(3.0, requires_grad=True))])


def test_map_refuses_writes_to_shared_tensors() -> None:
    def f(xs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return tintype.map(lambda x: x + y.add_(1), xs)

    with pytest.raises(tintype.errors.MutationError, match="writes to 'y'"):
        tintype.export(f, (torch.ones(2, 2), torch.ones(2)))


@pytest.mark.parametrize("xs", [3, (torch.ones(2), torch.ones(3)), torch.tensor(1.0)])
def test_map_over_what_has_no_rows(xs: Any) -> None:
    with pytest.raises(tintype.errors.InvalidRequestError):
        tintype.map(lambda x: x, xs)


# --- while_loop ------------------------------------------------------------------------------------------


class Loop(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(2, 2)
        self.register_buffer("steps", torch.zeros(()))

    def forward(self, n: torch.Tensor, x: torch.Tensor) -> Any:
        def body(i: torch.Tensor, state: dict[str, torch.Tensor]) -> Any:
            self.steps.add_(1)
            return i + 1, {"x": self.layer(state["x"]).tanh()}

        i, state = tintype.while_loop(lambda i, state: i < n, body, (torch.zeros((), dtype=torch.int64), {"x": x}))
        return i, state["x"], self.steps * 1


def test_a_loop_with_state() -> None:
    examples = [(torch.tensor(n), X) for n in (3, 0, 5)]
    assert_like_eager(Loop(), examples)


def test_a_loop_that_counts_with_a_number() -> None:
    def f(x: torch.Tensor) -> Any:
        return tintype.while_loop(lambda i, x: i < 4, lambda i, x: (i + 1, x * 2 + i), (0, x))

    assert_like_eager(f, [(X,), (-X,)])


def test_a_loop_that_counts_rows_with_a_number() -> None:
    def f(x: torch.Tensor) -> Any:
        return tintype.while_loop(
            lambda i, total: i < x.shape[0], lambda i, total: (i + 1, total + x[i]), (0, torch.zeros(2))
        )

    assert_like_eager(f, [(X,)])
    assert_like_eager(f, [(X,), (torch.ones(2, 2),), (torch.ones(0, 2),)], dynamic_shapes="auto", gradients=False)
    for rows in (0, 1, 3):
        x = torch.ones(rows, 2)
        torch.testing.assert_close(tintype.aot.function(lambda x: f(x)[1])(x), f(x)[1])
        assert_like_eager(f, [(x,)], gradients=False)


def test_a_loop_that_grows_a_tensor() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        (y,) = tintype.while_loop(lambda y: y.sum() < 20, lambda y: (torch.cat([y, y]),), (x,))
        return y * 2

    assert_like_eager(f, [(torch.ones(3),), (torch.full((3,), 30.0),)])


def test_a_loop_over_a_transposed_tensor() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        (y,) = tintype.while_loop(lambda y: y.sum() < 20, lambda y: ((y * 2).t().clone().t(),), (x.t(),))
        return y.reshape(-1)

    assert_like_eager(f, [(torch.ones(3, 2),)])


def test_a_loop_returns_tensors_of_its_own() -> None:
    x = torch.ones(2)
    (y,) = tintype.while_loop(lambda y: y.sum() < 0, lambda y: (y + 1,), (x,))
    y.add_(1)
    torch.testing.assert_close(x, torch.ones(2))


def test_torch_while_loop_is_taken_in() -> None:
    from torch._higher_order_ops import while_loop

    def f(x: torch.Tensor) -> Any:
        return while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * 2), (torch.tensor(0), x))

    torch.testing.assert_close(tintype.export(f, (X,)).module()(X), (torch.tensor(3), X * 8))


@pytest.mark.parametrize(
    ("body", "carry"),
    [
        (lambda x: (x.int(),), (torch.ones(2),)),
        (lambda x: (x.sum(),), (torch.ones(2),)),
        (lambda x: (x, x), (torch.ones(2),)),
        (lambda x: (x / 2,), (1,)),
    ],
)
def test_a_loop_that_does_not_return_what_it_takes(body: Any, carry: Any) -> None:
    with pytest.raises(tintype.errors.BranchMismatchError):
        tintype.export(lambda: tintype.while_loop(lambda x: torch.ones(()) > 0, body, carry), ())


def test_a_condition_that_is_none() -> None:
    with pytest.raises(tintype.errors.InvalidRequestError, match="boolean"):
        tintype.export(lambda x: tintype.while_loop(lambda x: x, lambda x: (x,), (x,)), (X,))
    with pytest.raises(tintype.errors.InvalidRequestError, match="boolean"):
        tintype.while_loop(lambda x: x, lambda x: (x,), (X,))


# --- scan ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("dim", [0, 1])
def test_scan(dim: int, reverse: bool) -> None:
    def f(x: torch.Tensor, w: torch.Tensor) -> Any:
        def step(carry: Any, row: torch.Tensor) -> Any:
            total = carry["t"] * w + row
            return {"t": total}, (total.sin(), total.sum())

        start = {"t": torch.zeros(x.shape[1 - dim])}
        return tintype.scan(step, start, x, dim=dim, reverse=reverse)

    weight = torch.tensor(0.5, requires_grad=True)
    assert_like_eager(f, [(X, weight), (-X, weight)])


def test_scan_with_a_varying_number_of_rows() -> None:
    def f(x: torch.Tensor) -> Any:
        return tintype.scan(lambda c, r: (c + r, c * r), torch.zeros(2), x)

    assert_like_eager(f, [(X,), (torch.ones(7, 2),), (torch.ones(1, 2),)], dynamic_shapes={"x": {0: Dim("n")}})


def test_scan_that_writes_to_a_buffer() -> None:
    class Counting(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("seen", torch.zeros(2))

        def forward(self, x: torch.Tensor) -> Any:
            def step(carry: torch.Tensor, row: torch.Tensor) -> Any:
                self.seen.add_(row)
                return carry + self.seen, row * carry

            return tintype.scan(step, torch.zeros(2), x), self.seen * 1

    assert_like_eager(Counting(), [(X.detach(),), (-X.detach(),)])


class Recurrent(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = torch.nn.GRUCell(2, 3)

    def forward(self, x: torch.Tensor) -> Any:
        def step(hidden: torch.Tensor, row: torch.Tensor) -> Any:
            hidden = self.cell(row, hidden)
            return hidden, hidden * 2

        return tintype.scan(step, torch.zeros(3), x)


def test_scan_over_a_recurrent_cell() -> None:
    assert_like_eager(Recurrent(), [(X,), (-X,)])


def test_torch_scan_is_taken_in() -> None:
    from torch._higher_order_ops.scan import scan

    def f(x: torch.Tensor) -> Any:
        return scan(lambda c, r: (c + r, c * 2), torch.zeros(2), x)

    carry, rows = tintype.export(f, (X,)).module()(X)
    torch.testing.assert_close(carry, X.sum(0))
    assert rows.shape == (3, 2)


def test_torch_scan_returns_what_its_function_does() -> None:
    from torch._higher_order_ops.scan import scan

    def step(carry: Any, row: torch.Tensor) -> Any:
        return {"sum": carry["sum"] + row}, (row * 2, [carry["sum"] * 3])

    def f(x: torch.Tensor) -> Any:
        return scan(step, {"sum": torch.zeros(2)}, x, reverse=True)

    def only_carried(x: torch.Tensor) -> Any:
        return scan(lambda c, row: ((c[0] + row, c[1] * 2), []), (torch.zeros(2), torch.ones(2)), x)

    carry, (doubled, [sums]) = tintype.export(f, (X,)).module()(X)
    expected_carry, (expected_doubled, [expected_sums]) = tintype.scan(step, {"sum": torch.zeros(2)}, X, reverse=True)
    torch.testing.assert_close((carry, doubled, sums), (expected_carry, expected_doubled, expected_sums))
    program = tintype.export(only_carried, (X,)).module()
    torch.testing.assert_close(program(X), ((X.sum(0), torch.full((2,), 8.0)), []))


@pytest.mark.parametrize("reverse", [False, True])
def test_associative_scan(reverse: bool) -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> Any:
        def combine(a: Any, b: Any) -> Any:
            return a[0] * b[0], b[0] * a[1] + b[1]

        return tintype.associative_scan(combine, (x, y), 0, reverse)

    assert_like_eager(f, [(X, X + 1), (-X, X)])


@pytest.mark.parametrize("stage", STAGES)
def test_everything_at_once(stage: str) -> None:
    def f(x: torch.Tensor) -> Any:
        def step(carry: torch.Tensor, row: torch.Tensor) -> Any:
            carry = tintype.cond(row.sum() > 0, lambda: carry + row, lambda: carry - row)
            (carry,) = tintype.while_loop(lambda c: c.sum() > 4, lambda c: (c / 2,), (carry,))
            return carry, tintype.map(lambda e: e * carry.sum(), row)

        return tintype.scan(step, torch.zeros(2), x)

    assert_like_eager(f, [(X,), (-X,), (X * 10,)], stages=(stage,))


def test_names_of_graphs_make_way_for_state() -> None:
    class Taken(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.true_graph_0 = torch.nn.Parameter(torch.ones(2))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return tintype.cond(x.sum() > 0, lambda: x * self.true_graph_0, lambda: x)

    assert_like_eager(Taken(), [(X,), (-X,)])
    program = at_stage("export", Taken(), (X,))
    assert [node.target for node in program.graph.nodes if node.op == "get_attr"] == ["true_graph_1", "false_graph_0"]


def test_a_write_to_what_a_branch_returned_of_its_operands() -> None:
    """In eager mode it would be a write to the operand, if that branch was taken."""

    def f(x: torch.Tensor) -> torch.Tensor:
        y = tintype.cond(x.sum() > 0, lambda x: x, lambda x: x + 1, (x,))
        return y.add_(1)

    with pytest.raises(tintype.errors.MutationError, match="a branch that returned its operand"):
        tintype.export(f, (torch.ones(2),))


def test_the_gradient_of_a_buffer_that_the_other_branch_writes_to() -> None:
    """Nothing was overwritten, so autograd has nothing to refuse."""

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("kept", torch.ones(4))

        def forward(self, x: torch.Tensor, is_new: torch.Tensor) -> torch.Tensor:
            tintype.cond(is_new, lambda: self.kept.mul_(2).clone(), lambda: self.kept.clone())
            return torch.nn.functional.smooth_l1_loss(x, self.kept)

    for is_new in (torch.tensor(False), torch.tensor(True)):
        program = tintype.export(Model(), (torch.zeros(4), is_new)).module()
        x, y = torch.zeros(4, requires_grad=True), torch.zeros(4, requires_grad=True)
        program(x, is_new).backward()
        Model()(y, is_new).backward()
        assert torch.equal(x.grad, y.grad)  # type: ignore[arg-type]


def test_a_number_from_around_that_a_branch_only_returns() -> None:
    def function(x: torch.Tensor) -> Any:
        count = int((x > 0).sum())
        return x * tintype.cond(x.sum() > 3, lambda: count, lambda: 7)

    program = tintype.export(function, (torch.ones(4),)).module()
    for x in (torch.ones(4), torch.zeros(4), torch.tensor([9.0, -1.0, -1.0, -1.0])):
        torch.testing.assert_close(program(x), x * (int((x > 0).sum()) if x.sum() > 3 else 7))


def test_results_of_branches_that_share_memory_with_each_other_or_with_one_of_two_tensors() -> None:
    def views(x: torch.Tensor) -> Any:
        def both() -> Any:
            y = x * 2
            return y, y.view(-1)

        a, b = tintype.cond(x.sum() > 0, both, lambda: (x + 1, (x + 2).view(-1)))
        a.add_(1)
        return a, b

    def one_of_two(x: torch.Tensor) -> Any:
        a, b = x * 2, x * 3
        chosen = tintype.cond(x.sum() > 0, lambda: a, lambda: b)
        b.add_(1)
        return chosen, b

    def written(x: torch.Tensor) -> Any:
        a, b = x * 2, x * 3
        chosen = tintype.cond(x.sum() > 0, lambda: a, lambda: b)
        chosen.add_(1)
        return chosen, b

    def nested(x: torch.Tensor) -> Any:
        a, b = x * 2, x * 3
        inner = lambda: tintype.cond(x.max() > 1, lambda: b, lambda: x + 1)  # noqa: E731
        chosen = tintype.cond(x.sum() > 0, inner, lambda: x - 1)
        b.add_(1)
        return chosen, a, b

    for function in (views, one_of_two, written, nested):
        with pytest.raises(tintype.CaptureError):
            tintype.export(function, (torch.ones(2),))


def test_numbers_that_python_takes_for_equal_are_results_of_their_own() -> None:
    def f(x: torch.Tensor) -> Any:
        return tintype.cond(x.sum() > 0, lambda: (False, 0, 0.0, -0.0, 2.0), lambda: (True, 1, 1.0, 1.0, 2.0))

    module = tintype.export(f, (X,)).module()
    for x in (X, -X):
        assert [(type(value), str(value)) for value in module(x)] == [(type(value), str(value)) for value in f(x)]


def test_a_branch_that_is_decided_against_may_fail_in_any_way() -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        total = sum(row.sum() for row in x)  # a plain 0 where there are no rows
        return tintype.cond(x.shape[0] > 0, lambda x: x + total.detach(), lambda x: x * 2, (x,))

    assert tintype.export(model, (torch.ones(0),)).module()(torch.ones(0)).shape == (0,)
    with pytest.raises(tintype.TintypeError, match="AttributeError: 'int' object"):
        tintype.export(
            lambda x: tintype.cond(x.sum() > 0, lambda x: (3).detach(), lambda x: x, (x,)), (torch.ones(2),)
        )
