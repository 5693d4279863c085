"""Programs of ours as programs of torch.export: held against eager mode, through torch's own tools."""

from __future__ import annotations

import copy
import dataclasses
import io
import shutil

import pytest
import torch
from torch import nn

import tintype
from tests.export.modes import assert_same
from tests.interop.programs import CASES, STAGES, exported

SIZES = pytest.mark.parametrize("dynamic", [False, True], ids=["fixed", "varying"])


def check(run, eager, case, dynamic) -> None:
    """A module does what eager mode does, call after call: results, written inputs, state."""
    for rows in (3, 3, 5) if dynamic else (3, 3):
        given, wanted = case.inputs(rows), case.inputs(rows)
        assert_same(run(*given[0], **given[1]), eager(*wanted[0], **wanted[1]))
        assert_same(given, wanted)


@SIZES
@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("name", CASES)
def test_module(name, stage, dynamic):
    case = CASES[name]
    model = case.model()
    program = exported(stage, model, case.inputs(3), dynamic_shapes=case.shapes if dynamic else None)
    before = {key: value.clone() for key, value in program.state_dict.items()}
    theirs = tintype.interop.to_torch(program)
    assert type(theirs) is torch.export.ExportedProgram
    assert theirs.dialect == ("TRAINING" if stage == "training" else "ATEN")
    check(theirs.module(), copy.deepcopy(model), case, dynamic)
    assert_same(dict(program.state_dict), before)


@SIZES
@pytest.mark.parametrize("name", CASES)
def test_saved_and_loaded_by_torch(name, dynamic):
    case = CASES[name]
    model = case.model()
    program = tintype.export(model, *case.inputs(3), dynamic_shapes=case.shapes if dynamic else None)
    file = io.BytesIO()
    torch.export.save(tintype.interop.to_torch(program), file)
    file.seek(0)
    check(torch.export.load(file).module(), copy.deepcopy(model), case, dynamic)


@SIZES
@pytest.mark.parametrize("stage", ["training", "functional"])
@pytest.mark.parametrize("name", CASES)
def test_decomposed_by_torch(name, stage, dynamic):
    case = CASES[name]
    model = case.model()
    program = exported(stage, model, case.inputs(3), dynamic_shapes=case.shapes if dynamic else None)
    theirs = tintype.interop.to_torch(program).run_decompositions()
    check(theirs.module(), copy.deepcopy(model), case, dynamic)


@pytest.mark.parametrize("name", ["plain", "state"])
def test_unflattened_by_torch(name):
    case = CASES[name]
    model = case.model()
    theirs = tintype.interop.to_torch(tintype.export_for_training(model, *case.inputs(3)))
    check(torch.export.unflatten(theirs), copy.deepcopy(model), case, False)


def test_names_signature_and_origins():
    case = CASES["state"]
    program = tintype.export(case.model(), *case.inputs(3))
    theirs = tintype.interop.to_torch(program)
    assert [node.name for node in theirs.graph.nodes] == [node.name for node in program.graph.nodes]
    assert [node.target for node in theirs.graph.nodes] == [node.target for node in program.graph.nodes]
    assert str(theirs.graph_signature).split() == str(program.graph_signature).split()
    assert dict(theirs.graph_signature.buffers_to_mutate) == dict(program.graph_signature.buffers_to_mutate)
    linear = next(node for node in theirs.graph.nodes if node.name == "linear")
    assert [path for path, _ in linear.meta["nn_module_stack"].values()] == ["", "linear"]
    assert "self.linear(x)" in linear.meta["stack_trace"]
    assert [entry.fqn for entry in theirs.module_call_graph] == ["", "linear", "tied", "norm"]


def test_sizes_are_those_of_the_program():
    batch = tintype.Dim("batch", min=3, max=9)
    x, y = torch.ones(4, 4), torch.ones(9, 4)
    program = tintype.export(
        lambda x, y: x.reshape(-1) + y[1::2].reshape(-1),
        (x, y),
        dynamic_shapes={"x": {0: batch}, "y": {0: 2 * batch + 1}},
    )
    theirs = tintype.interop.to_torch(program)
    first, second = (node.meta["val"] for node in theirs.graph.find_nodes(op="placeholder"))
    assert str(second.shape[0]) == f"2*{first.shape[0]} + 1"
    (limits,) = [limits for symbol, limits in theirs.range_constraints.items() if symbol.is_Symbol]
    assert (limits.lower, limits.upper) == (3, 9)
    run = theirs.module()
    assert_same(run(torch.ones(5, 4), torch.ones(11, 4)), torch.full((20,), 2.0))
    for rows, others in ((5, 12), (10, 21), (2, 5)):
        with pytest.raises(AssertionError, match="Guard failed"):
            run(torch.ones(rows, 4), torch.ones(others, 4))


def test_assertions_stay():
    case = CASES["data"]
    theirs = tintype.interop.to_torch(tintype.export(case.model(), *case.inputs(3)))
    with pytest.raises(RuntimeError, match="range for 12000"):
        theirs.module()(torch.ones(3, 4), torch.full((3, 4), 1000.0))


def test_numbers_among_the_inputs():
    dim = tintype.Dim
    program = tintype.export(
        lambda x, n, f: (x[:n] * n + f, n * 2),
        (torch.ones(5, 3), 3, 0.5),
        dynamic_shapes={"x": {0: dim("batch")}, "n": dim.DYNAMIC, "f": dim.DYNAMIC},
    )
    run = tintype.interop.to_torch(program).module()
    assert_same(run(torch.ones(4, 3), 2, 1.5), (torch.full((2, 3), 3.5), 4))


def test_preserved_signatures_come_along():
    case = CASES["plain"]
    program = tintype.export(case.model(), *case.inputs(3), preserve_module_call_signature=("first",))
    theirs = tintype.interop.to_torch(program)
    signatures = {entry.fqn: entry.signature for entry in theirs.module_call_graph}
    assert [argument.name for argument in signatures["first"].inputs] == ["x"]
    assert signatures["first@1"] is not None and signatures["second"] is None


def test_weights_without_data():
    with torch.device("meta"):
        model = nn.Linear(3, 2)
    theirs = tintype.interop.to_torch(tintype.export(model, (torch.empty(4, 3, device="meta"),)))
    assert theirs.module()(torch.empty(4, 3, device="meta")).shape == (4, 2)


def test_only_programs_are_taken():
    with pytest.raises(tintype.TintypeError, match=r"to_torch takes a tintype\.ExportedProgram, but got a Linear"):
        tintype.interop.to_torch(nn.Linear(3, 2))


class Compiled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("count", torch.zeros(4))
        self.table = torch.arange(4.0)

    def forward(self, x, y):
        self.count.add_(1)
        return torch.relu(self.linear(x) + self.count) * self.table + y[:, :1], x.reshape(-1) * x.shape[0]


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler")
def test_compiled_ahead_of_time(tmp_path):
    case = dataclasses.replace(CASES["plain"], model=Compiled)
    model = Compiled()
    program = tintype.export(model, *case.inputs(3), dynamic_shapes=case.shapes)
    package = torch._inductor.aoti_compile_and_package(
        tintype.interop.to_torch(program), package_path=str(tmp_path / "model.pt2")
    )
    with torch.no_grad():
        check(torch._inductor.aoti_load_package(package), copy.deepcopy(model), case, True)


def test_a_loop_that_may_have_no_step_says_so() -> None:
    def largest(x: torch.Tensor) -> torch.Tensor:
        found = x[0]
        for row in x[1:]:
            if row.sum() > found.sum():
                found = row
        return found

    rows = {"x": {0: tintype.Dim("n", min=1)}}
    program = tintype.export(largest, (torch.randn(3, 2),), dynamic_shapes=rows)
    theirs = tintype.interop.to_torch(program).module()
    x = torch.randn(5, 2)
    assert torch.equal(theirs(x), largest(x))
    assert torch.equal(program.module()(x[:1]), x[0])
    with pytest.raises(RuntimeError, match="a loop of the program has no step for these sizes"):
        theirs(x[:1])


def test_functions_of_attention_return_their_results_themselves() -> None:
    """Torch's own attention takes what they return for a tensor."""
    from torch.nn.attention.flex_attention import flex_attention

    def attention(query: torch.Tensor) -> torch.Tensor:
        return flex_attention(query, query, query, score_mod=lambda score, b, h, i, j: score + (i - j))

    query = torch.randn(1, 2, 16, 8)
    program = tintype.export(attention, (query,))
    theirs = tintype.interop.to_torch(program)
    for other in (theirs, tintype.interop.to_torch(tintype.interop.from_torch(theirs))):
        torch.testing.assert_close(other.module()(query), program.module()(query))


def takes_a_number_into_a_branch(x: torch.Tensor) -> torch.Tensor:
    total = x.sum().item()
    if x[0] > 0:
        return x * total
    return x - total


def takes_a_tensor_into_a_branch(x: torch.Tensor) -> torch.Tensor:
    total, count = x.sum(), int((x > 0).sum())
    if x[0] > 0:
        return x * total + count
    return x - total


def test_floats_that_go_into_branches_are_refused() -> None:
    """torch's program would fail in every call."""
    with pytest.raises(tintype.InvalidRequestError, match="that is no whole one") as caught:
        tintype.interop.to_torch(tintype.export(takes_a_number_into_a_branch, (torch.ones(3),)))
    assert caught.value.location is not None and "a tensor in the place of the number" in caught.value.remedy
    theirs = tintype.interop.to_torch(tintype.export(takes_a_tensor_into_a_branch, (torch.ones(3),)))
    for x in (torch.ones(3), torch.tensor([-1.0, 2.0, 3.0])):
        torch.testing.assert_close(theirs.module()(x), takes_a_tensor_into_a_branch(x))


def test_quantized_tensors_are_refused() -> None:
    def rounded(x: torch.Tensor) -> torch.Tensor:
        return torch.quantize_per_tensor(x, 0.1, 0, torch.qint8).dequantize()

    program = tintype.export(rounded, (torch.ones(3),))
    with pytest.raises(tintype.InvalidRequestError, match=r"torch\.qint8, which torch's programs can't") as caught:
        tintype.interop.to_torch(program)
    assert caught.value.location is not None and caught.value.remedy
