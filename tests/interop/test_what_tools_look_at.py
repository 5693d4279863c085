"""What tools look at in torch's programs besides operators and values: origins, metadata, dropout, stages."""

from __future__ import annotations

import copy
import operator

import pytest
import torch
from torch import nn
from torch.distributed.pipelining import pipe_split
from torch.distributed.pipelining._IR import Pipe
from torch.fx.passes.utils.source_matcher_utils import get_source_partitions

import tintype
from tests.export.modes import assert_same
from tests.interop.programs import STAGES, exported


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, 4, 3)
        self.dropout = nn.Dropout()
        self.linear = nn.Linear(4, 2)

    def forward(self, x):
        return self.linear(self.dropout(torch.relu(self.convolution(x)).mean((2, 3))))


def image() -> torch.Tensor:
    return torch.randn(2, 3, 8, 8)


def targets(program: torch.export.ExportedProgram) -> list[str]:
    return [str(node.target) for node in program.graph.nodes if node.op == "call_function"]


@pytest.mark.parametrize("stage", ["training", "functional"])
def test_quantizers_find_layers(stage):
    wanted = [nn.Linear, nn.Conv2d, torch.relu]
    theirs = tintype.interop.to_torch(exported(stage, Net().eval(), ((image(),), {})))
    reference = torch.export.export(Net().eval(), (image(),))
    found = get_source_partitions(theirs.graph, wanted)
    assert {kind: len(places) for kind, places in found.items()} == {
        kind: len(places) for kind, places in get_source_partitions(reference.graph, wanted).items()
    }
    assert {nn.Linear, nn.Conv2d} <= set(found)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("stage", STAGES)
def test_tensor_metadata(stage, dynamic):
    shapes = {"x": {0: tintype.Dim("batch")}} if dynamic else None
    theirs = tintype.interop.to_torch(exported(stage, Net().eval(), ((image(),), {}), dynamic_shapes=shapes))
    tensors = [node for node in theirs.graph.nodes if isinstance(node.meta.get("val"), torch.Tensor)]
    assert {node for node in theirs.graph.nodes if node.op == "placeholder"} < set(tensors)
    for node in tensors:
        described, value = node.meta["tensor_meta"], node.meta["val"]
        assert (described.shape, described.stride, described.dtype) == (value.shape, value.stride(), value.dtype)
    assert theirs.graph_signature.user_outputs == (tensors[-1].name,)


def test_dropout_can_be_switched_on():
    """A program of the training stage has dropout where the model has it, also if that drops nothing now."""
    model = Net().eval()
    program = tintype.export_for_training(model, (image(),))
    theirs = tintype.interop.to_torch(program)
    assert targets(theirs) == targets(torch.export.export(model, (image(),)))
    (dropout,) = theirs.graph.find_nodes(op="call_function", target=torch.ops.aten.dropout.default)
    assert dropout.args[1:] == (0.5, False)
    x = image()
    assert_same(theirs.module()(x), model(x))
    module = theirs.module()
    (node,) = module.graph.find_nodes(op="call_function", target=torch.ops.aten.dropout.default)
    node.update_arg(2, True)
    module.recompile()
    torch.manual_seed(0)
    got = module(x)
    torch.manual_seed(0)
    assert_same(got, copy.deepcopy(model).train()(x))


@pytest.mark.parametrize(
    "kind", [nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout]
)
def test_every_kind_of_dropout_is_kept(kind):
    model, x = kind().eval(), torch.randn(2, 3, 4, 4, 4)[(0, 0) if kind is nn.Dropout1d else (0,)]
    program = tintype.export_for_training(model, (x,))
    assert targets(tintype.interop.to_torch(program)) == targets(torch.export.export(model, (x,)))
    for run in (program.module(), program.run_decompositions({}).module(), program.run_decompositions().module()):
        assert_same(run(x), x)
    assert not any("dropout" in target for target in targets(program.run_decompositions({})))


def test_functional_programs_have_no_dropout_that_drops_nothing():
    model = Net().eval()
    training = tintype.export_for_training(model, (image(),))
    for program in (
        tintype.export(model, (image(),)),
        training.run_decompositions({}),
        tintype.export(training.module(), (image(),)),
    ):
        assert not any("dropout" in target for target in targets(program))
        x = image()
        assert_same(program.module()(x), model(x))


class Staged(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        x = self.first(x).relu()
        pipe_split()
        return self.second(x)


@pytest.mark.parametrize("stage", ["training", "functional"])
def test_pipelining_finds_its_stages(stage):
    model, x = Staged(), torch.randn(2, 4)
    pipe = Pipe._from_traced(model, tintype.interop.to_torch(exported(stage, model, ((x,), {}))))
    assert pipe.num_stages == 2
    (result,) = pipe(x)
    assert_same(result, model(x))


@pytest.mark.parametrize("stage", STAGES)
def test_what_is_made_anew_is_not_detached(stage):
    def function(x):
        return x + torch.arange(4.0) + torch.zeros(4) + torch.ones_like(x) + torch.full((4,), 2.0)

    theirs = tintype.interop.to_torch(exported(stage, function, ((torch.ones(4),), {})))
    assert not theirs.graph.find_nodes(op="call_function", target=torch.ops.aten.detach.default)
    assert_same(theirs.module()(torch.ones(4)), function(torch.ones(4)))


def test_bit_operations_on_sizes():
    def function(x):
        n = x.shape[0]
        return x.sum() + (n & 3) + (n | 8) + (n ^ 5) + (n << 1) + (n >> 1)

    program = tintype.export(function, (torch.ones(6),), dynamic_shapes={"x": {0: tintype.Dim.AUTO}})
    theirs = tintype.interop.to_torch(program)
    assert not theirs.graph.find_nodes(op="call_function", target=operator.xor)
    for run in (theirs.module(), theirs.run_decompositions().module(), tintype.interop.from_torch(theirs).module()):
        for n in (6, 15, 3):
            assert_same(run(torch.ones(n)), function(torch.ones(n)))


def test_what_torch_refuses_is_refused_by_us(monkeypatch):
    from torch._export.verifier import SpecViolationError

    import tintype.interop.into_torch as into_torch

    def refuse(**parts):
        raise SpecViolationError("Operator is not allowed\nand more")

    monkeypatch.setattr(into_torch.theirs, "ExportedProgram", refuse)
    with pytest.raises(tintype.TintypeError, match="whose verifier says: Operator is not allowed"):
        tintype.interop.to_torch(tintype.export(torch.cos, (torch.ones(2),)))


def test_what_users_note_on_nodes_goes_both_ways():
    class Annotated(torch.nn.Module):
        def forward(self, x):
            with torch.fx.traceback.annotate({"stage": 1}):
                y = x.relu()
            return y + 1

    def noted(program):
        nodes = program.graph.find_nodes(op="call_function", target=torch.ops.aten.relu.default)
        nodes += program.graph.find_nodes(op="call_function", target=torch.ops.aten.add.Tensor)
        return [(node.meta.get("custom") or {}).get("stage") for node in nodes]

    x = torch.ones(3)
    program = tintype.export(Annotated(), (x,))
    theirs = tintype.interop.to_torch(program)
    assert noted(program) == noted(theirs) == noted(tintype.interop.from_torch(theirs)) == [1, None]
    with torch.fx.traceback.preserve_node_meta():
        theirs = torch.export.export(Annotated(), (x,))
    assert noted(tintype.interop.from_torch(theirs)) == [1, None]
