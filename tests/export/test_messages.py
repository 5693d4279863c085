"""Messages that name what the user has and lead somewhere: each was once advice that could not be followed."""

from __future__ import annotations

import io
import warnings

import pytest
import torch

import tintype


def test_builtins_that_ask_for_the_truth_of_tensors_are_told_the_operators() -> None:
    with pytest.raises(tintype.DataDependentError) as raised:
        tintype.export(lambda x: max(x.sum(), x.mean()), (torch.ones(3),))
    assert "torch.maximum" in str(raised.value.remedy) and "or let control_flow" not in str(raised.value.remedy)


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
