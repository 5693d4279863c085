"""Facts about sizes belong to one program, and none is learned unchecked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import tintype
from tests.sources_stay import description
from tintype import Dim
from tintype.errors import InputMismatchError, InvalidRequestError

aten = torch.ops.aten

TABLES: dict[str, dict[Any, Any] | None] = {
    "default": None,
    "empty": {},
    "user": {aten.relu.default: lambda x: x.clamp(min=0)},
}


def sizes(*shapes: tuple[int, ...]) -> list[tuple[torch.Tensor, ...]]:
    """One tensor of each shape, each a call."""
    return [(torch.randn(shape),) for shape in shapes]


# name: (function, arguments, other arguments that it must take too)
GENERAL: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...], list[tuple[torch.Tensor, ...]]]] = {
    "max_pool1d": (lambda x: F.max_pool1d(x[None], 3), (torch.randn(7),), sizes((12,), (5,), (3,))),
    "half": (lambda x: x[: x.shape[0] // 2], (torch.randn(5),), sizes((10,), (1,), (0,))),
    "rms_norm": (torch.nn.RMSNorm(4), (torch.randn(2, 3, 4),), sizes((5, 6, 4), (1, 1, 4))),
    "stack beside a fixed size": (lambda x: torch.stack([x, torch.ones(3)]), (torch.randn(3),), []),
    "unfold": (lambda x: F.unfold(x, 2), (torch.randn(1, 2, 4, 5),), sizes((2, 2, 6, 7), (1, 2, 2, 2))),
    "arange at 1": (lambda x: torch.arange(x.shape[0]) + x, (torch.randn(1),), sizes((3,), (0,))),
    "roll": (lambda x: x.roll(1, 0), (torch.randn(3, 2),), sizes((5, 2), (1, 2), (0, 2))),
    "roll all": (lambda x: x.roll(2), (torch.randn(3, 2),), sizes((5, 2), (1, 2), (0, 2))),
    "pixel_shuffle": (lambda x: F.pixel_shuffle(x, 2), (torch.randn(1, 8, 3, 4),), sizes((2, 4, 5, 6), (2, 4, 1, 1))),
    "pixel_unshuffle": (lambda x: F.pixel_unshuffle(x, 2), (torch.randn(1, 1, 4, 4),), sizes((2, 4, 8, 6))),
    "cdist": (lambda x: torch.cdist(x, x), (torch.randn(2, 5, 8),), sizes((3, 30, 8), (1, 1, 8))),
    "matmul": (lambda x: x @ x.transpose(-1, -2), (torch.randn(2, 3, 4, 5),), sizes((1, 1, 7, 2), (4, 2, 1, 1))),
    "matmul of one": (lambda x: x @ x.transpose(-1, -2), (torch.randn(1, 3, 4, 5),), sizes((3, 2, 7, 2))),
    "matmul and vector": (lambda x: x @ x[0, 0], (torch.randn(2, 3, 4),), sizes((5, 1, 2), (1, 1, 1))),
    "tensordot": (lambda x: torch.tensordot(x, x, 2), (torch.randn(2, 2, 2),), sizes((3, 3, 3), (1, 1, 1))),
    "einsum at 1": (
        lambda x: torch.einsum("bij,bkj->bik", x, x),
        (torch.randn(1, 2, 3),),
        sizes((4, 2, 3), (2, 1, 7)),
    ),
    "cosine_similarity": (
        lambda x: F.cosine_similarity(x[:, None], x[None], dim=-1),
        (torch.randn(1, 3),),
        sizes((4, 3), (2, 5)),
    ),
    "same padding": (
        torch.nn.Conv1d(2, 3, 4, padding="same"),
        (torch.randn(2, 2, 6),),
        sizes((1, 2, 9), (3, 2, 1)),
    ),
    "adaptive_avg_pool": (
        lambda x: F.adaptive_avg_pool2d(x, (1, 2)),
        (torch.randn(2, 3, 4, 4),),
        sizes((1, 3, 7, 5), (1, 1, 1, 2)),
    ),
    "adaptive_max_pool": (
        lambda x: F.adaptive_max_pool1d(x, 2),
        (torch.randn(2, 3, 4),),
        sizes((1, 1, 7), (2, 3, 2)),
    ),
    "interpolate": (
        lambda x: F.interpolate(x, scale_factor=1.7, mode="linear"),
        (torch.randn(2, 3, 4),),
        sizes((1, 3, 7), (2, 1, 2)),
    ),
    "encoder layer": (
        torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval(),
        (torch.randn(2, 5, 8),),
        sizes((3, 7, 8), (1, 1, 8)),
    ),
}


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("name", GENERAL)
def test_decompositions_rule_no_size_out(name: str, table: str) -> None:
    function, example, others = GENERAL[name]
    program = tintype.export(function, example, dynamic_shapes="auto")
    decomposed = program.run_decompositions(TABLES[table])
    sizes = [[line.text for line in made.contract() if line.kind != "observation"] for made in (program, decomposed)]
    assert sizes[0] == sizes[1]
    for module in (program.module(), decomposed.module()):
        for call in (example, *others):
            torch.testing.assert_close(module(*call), function(*call))


@pytest.mark.parametrize("name", ["matmul", "cosine_similarity", "tensordot", "cdist", "same padding", "max_pool1d"])
def test_gradients_of_general_decompositions(name: str) -> None:
    function, example, others = GENERAL[name]
    module = tintype.export(function, example, dynamic_shapes="auto").run_decompositions().module()
    for (call,) in (example, *others):
        inputs = [call.clone().requires_grad_() for _ in range(2)]
        for run, value in zip((function, module), inputs, strict=True):
            run(value).square().sum().backward()
        torch.testing.assert_close(inputs[1].grad, inputs[0].grad, rtol=1e-4, atol=1e-4)


def test_what_a_table_decides_about_sizes_is_asserted_in_its_program_alone() -> None:
    x = torch.randn(7)
    program = tintype.export(lambda x: x.relu(), (x,), dynamic_shapes=({0: Dim("n")},))
    before = description(program)
    table = {aten.relu.default: lambda x: x.clamp(min=0) if x.shape[0] > 5 else x * 100}
    decomposed = program.run_decompositions(table)
    assert description(program) == before
    torch.testing.assert_close(decomposed.module()(torch.ones(9)), torch.ones(9))
    with pytest.raises(RuntimeError, match="s0 >= 6"):
        decomposed.module()(torch.ones(3))
    torch.testing.assert_close(program.module()(-torch.ones(3)), torch.zeros(3))
    assert "x.shape[0] = n, n >= 6" in str(decomposed.contract())


def test_a_table_narrows_sizes_without_names_in_the_checks_of_its_program() -> None:
    program = tintype.export(lambda x: x.relu(), (torch.randn(7),), dynamic_shapes="auto")
    table = {aten.relu.default: lambda x: x.clamp(min=0) if x.shape[0] > 5 else x * 100}
    with pytest.raises(InputMismatchError, match=">= 6"):
        program.run_decompositions(table).module()(torch.ones(3))


def test_a_finished_program_learns_nothing() -> None:
    program = tintype.export(lambda x: x.relu(), (torch.randn(7),), dynamic_shapes="auto")
    before = description(program)
    (node,) = program.graph.find_nodes(op="placeholder")
    size = node.meta["val"].shape[0]
    assert bool(size >= 0)
    with pytest.raises(tintype.TintypeError, match=r"s0.* is not decided by the program's contract"):
        bool(size > 5)
    with pytest.raises(tintype.TintypeError, match="learns nothing more"):
        int(size)
    assert description(program) == before


def test_additional_inputs_that_the_program_refuses() -> None:
    examples = tintype.AdditionalInputs()
    examples.add((torch.randn(5),))
    with pytest.raises(InvalidRequestError, match="does not take additional inputs number 1"):
        tintype.export(lambda x: x * 2 if x.shape[0] != 5 else x, (torch.randn(4),), dynamic_shapes=examples)


def test_additional_inputs_are_not_written_to() -> None:
    x, other, state = torch.zeros(4), torch.zeros(5), torch.get_rng_state()
    examples = tintype.AdditionalInputs()
    examples.add((other,))
    tintype.export(lambda x: x.add_(torch.rand(x.shape)), (x,), dynamic_shapes=examples)
    assert not other.any()
    assert torch.equal(torch.get_rng_state(), state)


def test_joint_programs_of_programs_with_sizes_that_vary() -> None:
    linear = torch.nn.Linear(3, 1)
    program = tintype.export(
        lambda x: linear(x).square().mean(), (torch.randn(4, 3),), dynamic_shapes=({0: Dim("n")},)
    )
    before = description(program)
    joint = tintype.export_joint(tintype.export(_Loss(linear), (torch.randn(4, 3),), dynamic_shapes=({0: Dim("n")},)))
    assert description(program) == before
    for rows in (4, 9, 1):
        x = torch.randn(rows, 3)
        loss, gradients, _ = joint.module()(x)
        linear.zero_grad()
        expected = _Loss(linear)(x)
        expected.backward()
        torch.testing.assert_close(loss, expected.detach())
        torch.testing.assert_close(gradients["linear.weight"], linear.weight.grad)


class _Loss(torch.nn.Module):
    def __init__(self, linear: torch.nn.Linear) -> None:
        super().__init__()
        self.linear = linear

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x).square().mean()


@pytest.mark.parametrize("example", [torch.randn(4, 0).T, torch.randn(0, 4), torch.randn(0, 4, 0).permute(2, 0, 1)])
def test_the_strides_of_an_example_without_elements_say_nothing_about_sizes(example: torch.Tensor) -> None:
    program = tintype.export(lambda x: x.reciprocal().clamp(-4, 4), (example,), dynamic_shapes=({0: Dim("n")},))
    other = torch.randn(7, *example.shape[1:])
    torch.testing.assert_close(program.module()(other), other.reciprocal().clamp(-4, 4))
    assert str(program.contract()) == "x.shape[0] = n, n >= 0"


def test_what_was_looked_at_is_checked_in_terms_of_the_new_programs_sizes() -> None:
    x = torch.randn(2, 3)
    program = tintype.export(lambda x: x.mT + x.mT.storage_offset(), (x,), dynamic_shapes=({1: Dim("n")},))
    for made in (program, program.run_decompositions(), program.run_decompositions({})):
        module = made.module()
        other = torch.randn(2, 7)
        torch.testing.assert_close(module(other), other.mT)
        with pytest.raises(InputMismatchError, match="storage_offset"):
            module(torch.randn(9, 7)[3:5])


@pytest.mark.parametrize(
    "function",
    [lambda x: x << 1, lambda x: x.add_(1), lambda x: torch.bitwise_left_shift(x, x)],
    ids=["shift", "write", "two arguments"],
)
@pytest.mark.parametrize(
    "example", [torch.zeros(0, 1, dtype=torch.int64), torch.zeros(3, 0, dtype=torch.int64)[..., ::2]]
)
def test_examples_without_elements_in_any_layout(function: Callable[..., Any], example: torch.Tensor) -> None:
    columns = example.shape[1]
    shapes = {0: Dim("n"), 1: Dim("n") + 1} if columns else {1: Dim("n")}
    module = tintype.export(
        function, (example.clone(memory_format=torch.preserve_format),), dynamic_shapes=(shapes,)
    ).module()
    other = torch.ones((4, 5) if columns else (3, 4), dtype=torch.int64)
    torch.testing.assert_close(module(other.clone()), function(other.clone()))


def test_sizes_that_are_known_to_be_equal_are_written_alike() -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.cat([y, x], 1).relu().sum(1)

    exported = tintype.export(program, (torch.randn(3, 4, 8), torch.randn(3, 5, 8)), dynamic_shapes="auto")
    first, second = (node.meta["val"].info.sizes for node in exported.graph.nodes if node.op == "placeholder")
    results = {node.name: node.meta["val"].info.sizes for node in exported.graph.nodes if node.op == "call_function"}
    assert results["relu"] == (first[0], first[1] + second[1], first[2])
    assert results["sum_1"] == (first[0], first[2])


def test_decompositions_copy_nothing_because_equal_sizes_are_written_in_two_ways() -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        h = torch.softmax(F.layer_norm(y, [8]).transpose(1, 2), -1)
        h = h.unsqueeze(0).view(1, *h.shape)
        return h[0].transpose(1, 2) + x, h  # here the sizes of both turn out to be equal

    exported = tintype.export(program, (torch.randn(3, 5, 8), torch.randn(3, 5, 8)), dynamic_shapes="auto")
    decomposed = exported.run_decompositions()
    assert aten.clone.default not in {node.target for node in decomposed.graph.nodes}
    for batch, length in ((3, 5), (1, 1), (4, 9)):
        given = torch.randn(batch, length, 8), torch.randn(batch, length, 8)
        for result, expected in zip(decomposed.module()(*given), program(*given), strict=True):
            torch.testing.assert_close(result, expected)
            assert result.stride() == expected.stride()
