"""Messages that name what the user has and lead somewhere: each was once advice that could not be followed."""

from __future__ import annotations

import io
import warnings

import pytest
import torch

import tintype


def test_builtins_that_ask_for_the_truth_of_tensors_are_told_the_operators() -> None:
    with pytest.raises(tintype.DataDependentError) as raised:
        tintype.export(lambda x: sorted([x.sum(), x.mean()])[0], (torch.ones(3),))
    assert "torch.sort" in str(raised.value.remedy) and "or let control_flow" not in str(raised.value.remedy)


def test_rounding_to_digits_is_told_the_operator() -> None:
    shapes = {"x": None, "f": tintype.Dim.DYNAMIC}
    with pytest.raises(tintype.CaptureError) as raised:
        tintype.export(lambda x, f: x * round(f, 1), (torch.ones(3), 1.5), dynamic_shapes=shapes)
    assert "torch.round(torch.tensor(value), decimals=1)" in str(raised.value.remedy)


def test_a_loaded_program_says_what_its_symbols_are() -> None:
    program = tintype.export(
        lambda x, y: x + y if x.shape == y.shape else x.sum() + y.sum(),
        (torch.ones(2), torch.ones(3)),
        dynamic_shapes="auto",
    )
    file = io.BytesIO()
    tintype.save(program, file)
    file.seek(0)
    for known in (program, tintype.load(file)):
        with pytest.raises(tintype.RuntimeAssertionError, match=r"s0 is x.shape\[0\]"):
            known.module()(torch.ones(3), torch.ones(3))


def test_a_tensor_of_another_layout_is_told_more_than_the_call_that_was_made() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        given = torch.sparse_coo_tensor(torch.tensor([[0, 0], [1, 1]]), torch.ones(2), (2, 2))
    module = tintype.export(lambda a: a.to_dense(), (given,)).module()
    with pytest.raises(tintype.InputStructureError) as raised:
        module(given.coalesce())
    assert "export the program with an example of this one" in str(raised.value.remedy)


def test_a_branch_in_compiled_graphs_is_told_as_one_on_data() -> None:
    with pytest.raises(tintype.DataDependentError, match="because of the data of a tensor, which decide it"):
        tintype.aot.function(lambda x: x * 2 if x.sum() > 0 else x)(torch.ones(2))


class Halved(torch.nn.Module):
    """Three times down and up again, with what was on the way added."""

    def forward(self, x):  # type: ignore[no-untyped-def]
        kept = []
        for _ in range(3):
            kept.append(x)
            x = x[:, ::2]
        for _ in range(3):
            x = x.repeat_interleave(2, dim=1) + kept.pop()  # joins
        return x


def test_what_follows_from_a_multiple_is_neither_asserted_nor_listed_beside_it() -> None:
    program = tintype.export(Halved(), (torch.ones(2, 64),), dynamic_shapes={"x": {1: tintype.Dim.AUTO}})
    assert [line.text for line in program.contract()] == ["x.shape[1] >= 0", "x.shape[1] % 8 == 0"]
    assert [str(node.target) for node in program.graph.nodes].count("aten._assert_scalar.default") == 1
    file = io.BytesIO()
    tintype.save(program, file)
    for known in (program, tintype.load(file), program.run_decompositions()):
        for size in (0, 8, 72):
            assert torch.equal(known.module()(torch.ones(2, size)), Halved()(torch.ones(2, size)))
        for size in (4, 60, 62, 63):
            with pytest.raises(tintype.RuntimeAssertionError) as raised:
                known.module()(torch.ones(2, size))
            assert "x.shape[1] is a multiple of 8;" in str(raised.value.remedy)
            assert raised.value.location is not None and "# joins" in raised.value.location.source_line()
            assert "s0 is x.shape[1]\n" in str(raised.value) and "captured for sizes" not in str(raised.value)


def test_a_range_that_was_promised_and_one_that_is_needed_are_one_line() -> None:
    for size, text in (
        (tintype.Dim("time"), "time, time >= 1"),
        (4 * tintype.Dim("quarter"), "4*quarter, quarter >= 1"),
    ):
        program = tintype.export(lambda x: x[:, -1], (torch.ones(2, 8),), dynamic_shapes={"x": {1: size}})
        (line,) = program.contract()
        assert line.text == f"x.shape[1] = {text}" and line.condition is not None and line.location is not None
        with pytest.raises(tintype.RuntimeAssertionError) as raised:
            program.module()(torch.ones(2, 0))
        assert f"sizes for which {text.split(', ')[1]};" in str(raised.value.remedy)


def test_a_size_that_is_no_multiple_is_told_of_what() -> None:
    size = 8 * tintype.Dim("eighth")
    module = tintype.export(lambda x: x + 1, (torch.ones(16),), dynamic_shapes={"x": {0: size}}).module()
    with pytest.raises(tintype.InputMismatchError) as raised:
        module(torch.ones(12))
    assert raised.value.remedy == "pass a multiple of 8; s1 is eighth of dynamic_shapes"
