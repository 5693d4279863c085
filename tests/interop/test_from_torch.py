"""Programs of torch.export as programs of ours, and programs of ours to torch and back."""

from __future__ import annotations

import copy
import io

import pytest
import torch
from torch import nn

import tintype
from tests.export.modes import assert_same
from tests.interop.programs import CASES, STAGES, exported
from tests.interop.test_to_torch import SIZES, check

BY_TORCH = [name for name in CASES if name not in ("while_loop", "map", "scan")]  # those call tintype's operators


def their_shapes(shapes):
    batch = torch.export.Dim("batch", min=3, max=50)
    if isinstance(shapes, dict) and 0 in shapes:
        return {0: batch}
    if isinstance(shapes, dict):
        return {name: their_shapes(shape) for name, shape in shapes.items()}
    return [their_shapes(shape) for shape in shapes] if isinstance(shapes, list) else None


@SIZES
@pytest.mark.parametrize("decomposed", [False, True], ids=["training", "decomposed"])
@pytest.mark.parametrize("name", BY_TORCH)
def test_a_program_of_torch(name, decomposed, dynamic):
    case = CASES[name]
    model = case.model()
    args, kwargs = case.inputs(3)
    theirs = torch.export.export(
        copy.deepcopy(model), args, kwargs, dynamic_shapes=their_shapes(case.shapes) if dynamic else None
    )
    if decomposed:
        theirs = theirs.run_decompositions()
    program = tintype.interop.from_torch(theirs)
    program.validate()
    assert program.stage is (tintype.Stage.CORE if decomposed else tintype.Stage.TRAINING)
    assert list(program.state_dict) == list(theirs.state_dict)
    assert program.graph_signature.user_inputs == theirs.graph_signature.user_inputs
    check(program.module(), copy.deepcopy(model), case, dynamic)
    check(tintype.unflatten(program), copy.deepcopy(model), case, dynamic)


@SIZES
@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("name", CASES)
def test_there_and_back(name, stage, dynamic):
    case = CASES[name]
    model = case.model()
    program = exported(stage, model, case.inputs(3), dynamic_shapes=case.shapes if dynamic else None)
    back = tintype.interop.from_torch(tintype.interop.to_torch(program))
    back.validate()
    assert back.stage in (program.stage, tintype.Stage.CORE)  # torch does not tell core programs from functional ones
    assert back.graph_signature.input_specs == program.graph_signature.input_specs
    outputs, wanted = (
        [(spec.kind, type(spec.arg), spec.target, spec.write) for spec in p.graph_signature.output_specs]
        for p in (back, program)
    )
    assert outputs == wanted
    assert {str(k): str(v) for k, v in back.range_constraints.items()} == {
        str(k): str(v) for k, v in program.range_constraints.items()
    }
    check(back.module(), copy.deepcopy(model), case, dynamic)


def test_origins_come_along():
    case = CASES["plain"]
    program = tintype.export(case.model(), *case.inputs(3))
    back = tintype.interop.from_torch(tintype.interop.to_torch(program))
    old, new = (
        {node.name: node.meta for node in p.graph.nodes if node.op == "call_function"} for p in (program, back)
    )
    assert list(old) == list(new)
    for name, meta in old.items():
        assert new[name]["nn_module_stack"] == meta["nn_module_stack"], name
        assert new[name]["stack_trace"] == meta["stack_trace"], name
    assert [entry.fqn for entry in back.module_call_graph] == [entry.fqn for entry in program.module_call_graph]
    assert back.code == program.code


def test_modules_of_torchs_program_are_called_again():
    case = CASES["plain"]
    theirs = torch.export.export(case.model(), *case.inputs(3), preserve_module_call_signature=("first",))
    program = tintype.interop.from_torch(theirs)
    module = tintype.unflatten(program)
    calls = [node.target for node in module.graph.nodes if node.op == "call_module"]
    assert calls == ["first", "first", "second"]
    assert [node.target for node in module.first.graph.nodes if node.op == "call_module"] == ["linear", "norm"]
    signatures = {entry.fqn: entry.signature for entry in program.module_call_graph}
    assert signatures["first"] is not None and signatures["first@1"] is not None


def test_a_program_that_torch_loaded_from_a_file():
    case = CASES["state"]
    model = case.model()
    file = io.BytesIO()
    torch.export.save(torch.export.export(copy.deepcopy(model), *case.inputs(3)), file)
    file.seek(0)
    program = tintype.interop.from_torch(torch.export.load(file))
    check(program.module(), model, case, False)


def test_without_example_inputs():
    case = CASES["plain"]
    model = case.model()
    theirs = torch.export.export(model, *case.inputs(3), dynamic_shapes=their_shapes(case.shapes))
    theirs.example_inputs = None
    program = tintype.interop.from_torch(theirs)
    assert program.example_inputs is None
    check(program.module(), model, case, True)


def test_related_sizes_and_bounds():
    batch = torch.export.Dim("batch", min=3, max=9)

    class Adds(nn.Module):
        def forward(self, x, y):
            return x + y[1:]

    theirs = torch.export.export(
        Adds(), (torch.ones(4), torch.ones(5)), dynamic_shapes={"x": {0: batch}, "y": {0: batch + 1}}
    )
    program = tintype.interop.from_torch(theirs)
    run = program.module()
    assert_same(run(torch.ones(9), torch.ones(10)), torch.full((9,), 2.0))
    with pytest.raises(tintype.TintypeError, match="<= 9, but got 10"):
        run(torch.ones(10), torch.ones(11))
    with pytest.raises(tintype.TintypeError, match="to be equal to 6, but got 7"):
        run(torch.ones(5), torch.ones(7))


def test_numbers_among_the_inputs():
    class Cuts(nn.Module):
        def forward(self, x, n):
            return x[:n] * n, n * 2

    theirs = torch.export.export(
        Cuts(), (torch.ones(5, 3), 3), dynamic_shapes={"x": {0: torch.export.Dim("b")}, "n": torch.export.Dim.DYNAMIC}
    )
    program = tintype.interop.from_torch(theirs)
    assert_same(program.module()(torch.ones(4, 3), 2), (torch.full((2, 3), 2.0), 4))


def test_only_programs_of_torch_are_taken():
    with pytest.raises(
        tintype.TintypeError, match=r"from_torch takes a torch\.export.ExportedProgram, but got a Linear"
    ):
        tintype.interop.from_torch(nn.Linear(3, 2))


def test_a_program_that_holds_a_call_which_fails_is_refused():
    class Tries(nn.Module):
        def forward(self, x):
            try:
                return x.view(7, 7)
            except RuntimeError:
                return x * 2

    theirs = torch.export.export(Tries(), (torch.ones(3),))
    with pytest.raises(RuntimeError):
        theirs.module()(torch.ones(3))
    with pytest.raises(tintype.TintypeError, match=r"torch's program can't run: shape \[7, 7\] is invalid"):
        tintype.interop.from_torch(theirs)
