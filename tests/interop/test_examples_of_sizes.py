"""Sizes that are 0 or 1 in the example and vary: torch's tools would take them for fixed."""

from __future__ import annotations

import shutil

import pytest
import torch
from torch import nn

import tintype
from tests.export.modes import assert_same
from tintype.interop.hints import examples
from tintype.symbolic import Environment, eq, floor_div, ge, le, mod, ne

Dim = tintype.Dim


def hints(program: torch.export.ExportedProgram) -> dict[str, list[int]]:
    """The examples that torch has for the sizes of tensors that vary."""
    found = {}
    for node in program.graph.nodes:
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor):
            found[node.name] = [size.node.hint for size in value.shape if isinstance(size, torch.SymInt)]
    return found


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(30, 16)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)

    def forward(self, ids):
        return self.layer(self.embedding(ids))


@pytest.mark.parametrize("shape", [(1, 4), (1, 1), (0, 3)])
def test_no_example_is_0_or_1(shape):
    model = Encoder().eval()
    ids = torch.randint(0, 30, shape)
    program = tintype.export(model, (ids,), dynamic_shapes=({0: Dim("batch"), 1: Dim("length", max=64)},))
    theirs = tintype.interop.to_torch(program)
    assert all(size >= 2 for sizes in hints(theirs).values() for size in sizes)
    decomposed = theirs.run_decompositions()
    for other in ((5, 9), (2, 3), (1, 4)):
        given = torch.randint(0, 30, other)
        assert_same(theirs.module()(given), model(given))
        torch.testing.assert_close(decomposed.module()(given), model(given))


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler")
@pytest.mark.parametrize("shape", [(1, 4), (0, 3)])
def test_compiled_ahead_of_time(shape, tmp_path):
    model = Encoder().eval()
    shapes = ({0: Dim("batch"), 1: Dim("length", max=64)},)
    program = tintype.export(model, (torch.randint(0, 30, shape),), dynamic_shapes=shapes)
    with torch.no_grad():
        package = torch._inductor.aoti_compile_and_package(
            tintype.interop.to_torch(program), package_path=str(tmp_path / "model.pt2")
        )
    run = torch._inductor.aoti_load_package(package)
    for other in ((5, 9), (1, 4)):
        given = torch.randint(0, 30, other)
        torch.testing.assert_close(run(given), model(given), atol=1e-5, rtol=1e-5)


def test_sizes_that_follow_are_no_0_or_1_either():
    program = tintype.export(
        lambda x: x[:, 1:-1] * 2, (torch.ones(3, 3),), dynamic_shapes=({0: Dim("n"), 1: Dim("m", min=2)},)
    )
    theirs = hints(tintype.interop.to_torch(program))
    assert theirs["x"][0] == 3  # which was well
    assert theirs["mul"][1] == theirs["x"][1] - 2 >= 2


def test_relations_between_sizes_hold_for_the_examples():
    batch = Dim("batch", min=1)
    x, y = torch.ones(1, 4), torch.ones(3, 4)
    program = tintype.export(
        lambda x, y: x + y[:-1:2], (x, y), dynamic_shapes={"x": {0: batch}, "y": {0: 2 * batch + 1}}
    )
    theirs = hints(tintype.interop.to_torch(program))
    assert theirs["x"][0] >= 2
    assert theirs["y"][0] == 2 * theirs["x"][0] + 1


def test_numbers_among_the_inputs():
    shapes = {"x": {0: Dim("n")}, "k": Dim.DYNAMIC}
    program = tintype.export(lambda x, k: x[:k] * k, (torch.ones(1, 3), 1), dynamic_shapes=shapes)
    run = tintype.interop.to_torch(program).run_decompositions().module()
    assert_same(run(torch.ones(5, 3), 4), torch.full((4, 3), 4.0))


@pytest.mark.parametrize("size", [0, 1])
def test_a_size_that_can_only_be_0_or_1_is_1(size):
    program = tintype.export(lambda x: x + 1, (torch.ones(size, 3),), dynamic_shapes=({0: Dim("n", max=1)},))
    theirs = tintype.interop.to_torch(program)
    assert hints(theirs)["x"] == [1]
    for run in (theirs.module(), theirs.run_decompositions().module()):
        for other in (0, 1):
            assert_same(run(torch.ones(other, 3)), torch.ones(other, 3) + 1)


@pytest.mark.parametrize("size", [3, 4])
def test_a_remainder_is_not_empty_in_the_example(size):
    """torch's compiler leaves out what is empty in the example."""
    program = tintype.export(
        lambda x: torch.cat([x[: x.shape[0] % 2], x]), (torch.ones(size, 3),), dynamic_shapes=({0: Dim("n")},)
    )
    theirs = hints(tintype.interop.to_torch(program))
    assert 1 in theirs["slice_1"]
    assert theirs["x"][0] % 2 == 1


def test_remainders_that_exclude_each_other():
    program = tintype.export(
        lambda x: torch.cat([x[: x.shape[0] % 2], x[: (x.shape[0] + 1) % 2]]),
        (torch.ones(1, 3),),
        dynamic_shapes=({0: Dim("n")},),
    )
    theirs = tintype.interop.to_torch(program)
    assert hints(theirs)["x"][0] >= 2
    assert_same(theirs.module()(torch.ones(6, 3)), torch.ones(1, 3))


def test_ranges_are_those_that_were_promised():
    """What torch asks while tensors are made is no fact about the program."""
    shapes = ({0: Dim("n", max=64)},)

    def function(x):
        rest = x[: x.shape[0] % 2]
        return rest.expand(rest.shape[0], 3) * 2, rest.sum(0)

    theirs = tintype.interop.to_torch(tintype.export(function, (torch.ones(3, 1),), dynamic_shapes=shapes))
    (bounds,) = theirs.range_constraints.values()
    assert (bounds.lower, bounds.upper) == (0, 64)
    assert not theirs.graph_module.graph.find_nodes(op="placeholder")[0].meta["val"].fake_mode.shape_env.guards


RELATIONS = [
    lambda s, t: [eq(mod(s, 8), 1)],
    lambda s, t: [ne(s, t), le(s, t)],
    lambda s, t: [eq(t, 3 * s + 1)],
    lambda s, t: [ge(s + t, 40), le(t, 4)],
    lambda s, t: [eq(floor_div(t, 4), floor_div(s, 2))],
    lambda s, t: [le(s * t, 16), ne(mod(s, 3), 2)],
]
STARTS = [(1, 4), (1, 1), (0, 1), (9, 1), (38, 2)]
RELATED = [(relation, start) for relation in RELATIONS for start in STARTS if all(relation(*start))]


def test_every_relation_has_an_example():
    assert {id(relation) for relation, _ in RELATED} == {id(relation) for relation in RELATIONS}


@pytest.mark.parametrize(("relation", "start"), RELATED)
def test_what_is_known_of_sizes_holds(relation, start):
    environment = Environment()
    symbols = [environment.backed(value) for value in start]
    conditions = relation(*symbols)
    for condition in conditions:
        environment.require(condition, "needed")
    found = examples(environment, symbols)
    assert all(found[symbol] >= 2 for symbol in symbols)
    for condition in conditions:
        assert tintype.symbolic.evaluate(condition, found)
