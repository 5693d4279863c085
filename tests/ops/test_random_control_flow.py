"""Random programs of nested control flow, with closures and writes, against eager mode.

TINTYPE_CONTROL_FLOW_PROGRAMS says how many; ``pytest -s`` prints what came out.
"""

from __future__ import annotations

import collections
import copy
import os
from typing import Any

import torch
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

import tintype
from tests.ops.programs import at_stage

PROGRAMS = int(os.environ.get("TINTYPE_CONTROL_FLOW_PROGRAMS", "40"))
SIZE = 3

# A block is a list of statements over the values so far; its result is the last one. A statement is its kind and
# what it is made of: positions of values (taken modulo their number), constants, blocks.
_position = st.integers(0, 7)
_constant = st.sampled_from([-1.5, -0.5, 0.5, 1.25])


def _leaf(writes: bool) -> st.SearchStrategy[Any]:
    kinds = [
        st.tuples(st.just("unary"), st.sampled_from(["sin", "cos", "tanh", "sigmoid"]), _position),
        st.tuples(st.just("scale"), _constant, _position),
        st.tuples(st.just("binary"), st.sampled_from(["add", "mul", "sub"]), _position, _position),
        st.tuples(st.just("in_place"), _constant, _position),
        st.tuples(st.just("view"), _position, _constant),
        st.tuples(st.just("outside"), _position),
    ]
    if writes:
        kinds.append(st.tuples(st.just("write"), _position))
    return st.one_of(kinds)


def _block(depth: int, writes: bool) -> st.SearchStrategy[Any]:
    leaf = _leaf(writes)
    if depth == 0:
        return st.lists(leaf, min_size=1, max_size=3)
    inner, pure = _block(depth - 1, writes), _block(depth - 1, False)
    nested = st.one_of(
        st.tuples(st.just("cond"), _position, _constant, inner, inner),
        st.tuples(st.just("map"), _position, _position, pure),
        st.tuples(st.just("while"), _position, st.integers(0, 3), inner),
        st.tuples(st.just("scan"), _position, _position, inner),
    )
    return st.lists(st.one_of(leaf, nested), min_size=1, max_size=3)


PROGRAM = st.builds(lambda body, last: [*body, last], _block(2, True), _block(3, True).map(lambda block: block[-1]))


class Interpreted(torch.nn.Module):
    """Runs a program by calling the operators."""

    def __init__(self, program: Any) -> None:
        super().__init__()
        self.program = program
        self.register_buffer("seen", torch.zeros(SIZE))
        self.weight = torch.nn.Parameter(torch.linspace(-1, 1, SIZE))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
        result = self._block(self.program, [x, y], [x, y, self.weight])
        return result, self.seen * 1

    def _block(self, block: Any, values: list[torch.Tensor], outside: list[torch.Tensor]) -> torch.Tensor:
        values = list(values)
        for statement in block:
            values.append(self._statement(statement, values, outside))
        return values[-1]

    def _statement(self, statement: Any, values: list[torch.Tensor], outside: list[torch.Tensor]) -> torch.Tensor:
        kind, *rest = statement

        def pick(position: int) -> torch.Tensor:
            return values[position % len(values)]

        if kind == "unary":
            return getattr(torch, rest[0])(pick(rest[1]))
        if kind == "scale":
            return pick(rest[1]) * rest[0]
        if kind == "binary":
            return getattr(torch, rest[0])(pick(rest[1]), pick(rest[2]))
        if kind == "in_place":
            value = pick(rest[1]) * 1
            value.add_(rest[0])
            return value
        if kind == "view":
            value = pick(rest[0]) * 1
            value[1:].mul_(rest[1])
            return value
        if kind == "outside":
            return outside[rest[0] % len(outside)] + values[-1]
        if kind == "write":
            self.seen.add_(pick(rest[0]).detach() * 0.1)
            return self.seen + values[-1]
        return getattr(self, f"_{kind}")(values, pick, *rest)

    def _cond(self, values: Any, pick: Any, position: int, constant: float, first: Any, second: Any) -> Any:
        chosen = pick(position)
        return tintype.cond(
            chosen.sum() > constant,
            lambda v: self._block(first, [v], values) * 1,
            lambda v: self._block(second, [v], values) * 1,
            (chosen,),
        )

    def _map(self, values: Any, pick: Any, first: int, second: int, block: Any) -> Any:
        rows = torch.stack([pick(first), pick(second)])
        return tintype.map(lambda row: self._block(block, [row], values), rows).sum(0)

    def _while(self, values: Any, pick: Any, position: int, count: int, block: Any) -> Any:
        _, result = tintype.while_loop(
            lambda i, v: i < count,
            lambda i, v: (i + 1, torch.tanh(self._block(block, [v], values))),
            (torch.zeros((), dtype=torch.int64), pick(position)),
        )
        return result

    def _scan(self, values: Any, pick: Any, first: int, second: int, block: Any) -> Any:
        def step(carry: torch.Tensor, row: torch.Tensor) -> Any:
            value = torch.tanh(self._block(block, [carry, row], values))
            return value, value * row

        carry, rows = tintype.scan(step, pick(first), torch.stack([pick(second), pick(first)]))
        return carry + rows.sum(0)


INPUTS = [
    (torch.tensor([0.3, -0.7, 1.1]), torch.tensor([-0.2, 0.5, 0.9])),
    (torch.tensor([-1.3, 0.4, -0.6]), torch.tensor([1.2, -0.8, 0.1])),
]


def _outcome(function: Any, inputs: Any) -> list[torch.Tensor]:
    """Results, gradients of inputs, and the buffer afterwards."""
    x, y = (value.clone().requires_grad_() for value in inputs)
    result, seen = function(x, y)
    gradients = torch.autograd.grad(result.sum(), (x, y), materialize_grads=True) if result.requires_grad else ()
    return [result.detach(), seen.detach(), *gradients]


def _compare(program: Any) -> None:
    """A program at every stage, on several inputs."""
    model = Interpreted(program)
    example = tuple(value.clone().requires_grad_() for value in INPUTS[0])
    for stage in ("export", "retraced", "decomposed", "training"):
        module = at_stage(stage, model, example).module()
        eager = copy.deepcopy(model)
        for inputs in INPUTS:
            torch.testing.assert_close(
                _outcome(module, inputs), _outcome(eager, inputs), msg=lambda text, stage=stage: f"{stage}: {text}"
            )
        torch.testing.assert_close(module.seen, eager.seen)


class Loss(Interpreted):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
        return super().forward(x, y)[0].sum()


def _joint_is_right(program: Any) -> bool:
    """Compare the joint graph's gradients; False where a write inside of a function keeps it from being made."""
    model = Loss(program)
    x, y = (value.clone().requires_grad_() for value in INPUTS[0])
    if not model(x, y).requires_grad:
        return False
    model = Loss(program)
    try:
        module = tintype.export_joint(model, (x, y)).module()
    except tintype.CaptureError as error:
        assert "writes to tensors from around it" in str(error), error
        return False
    for inputs in INPUTS:
        x, y = (value.clone().requires_grad_() for value in inputs)
        loss = model(x, y)
        expected = torch.autograd.grad(loss, (x, y, model.weight), materialize_grads=True)
        got, parameters, by_input = module(x, y)
        torch.testing.assert_close(got, loss)
        found = [by_input.get("x"), by_input.get("y"), parameters.get("weight")]
        zeros = [torch.zeros(SIZE) if value is None else value for value in found]
        torch.testing.assert_close(zeros, list(expected))
    return True


def test_programs_and_their_gradients() -> None:
    joint: collections.Counter[str] = collections.Counter()

    @seed(20)
    @settings(max_examples=PROGRAMS, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(PROGRAM)
    def run(program: Any) -> None:
        _compare(program)
        joint["compared" if _joint_is_right(program) else "refused"] += 1

    run()
    print(dict(joint))
    assert joint["compared"] >= joint["refused"] // 3, "most gradients were not compared"
