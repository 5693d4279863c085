"""Recurrent layers in torch's programs: loops where the length of sequences varies, written out in core programs."""

from __future__ import annotations

import shutil

import pytest
import torch
from torch import nn

import tintype
from tests.interop.programs import STAGES, exported

Dim = tintype.Dim
CELLS = {
    "lstm": (nn.LSTM, {}),
    "projected": (nn.LSTM, {"proj_size": 3}),
    "gru": (nn.GRU, {}),
    "tanh": (nn.RNN, {}),
    "relu": (nn.RNN, {"nonlinearity": "relu"}),
}
FORMS = {
    "plain": {"batch_first": True},
    "both_ways": {"bidirectional": True, "num_layers": 2},
    "no_bias": {"bidirectional": True, "bias": False, "batch_first": True},
}


class Tagger(nn.Module):
    def __init__(self, kind: type[nn.RNNBase] = nn.LSTM, **options) -> None:
        super().__init__()
        self.layers = kind(5, 4, **options)

    def forward(self, x):
        results, state = self.layers(x)
        return results.relu(), state


def sequences(model: Tagger, length: int, batch: int = 2) -> torch.Tensor:
    return torch.randn(batch, length, 5) if model.layers.batch_first else torch.randn(length, batch, 5)


def lengths(model: Tagger) -> dict:
    time = 1 if model.layers.batch_first else 0
    return {"x": {time: Dim("time", min=1), 1 - time: Dim("batch")}}


def targets(program) -> set[str]:
    return {str(node.target) for node in program.graph.nodes if node.op == "call_function"}


def check(run, model: Tagger, *sizes: tuple[int, int]) -> None:
    with torch.no_grad():
        for length, batch in sizes:
            x = sequences(model, length, batch)
            torch.testing.assert_close(run(x), model(x))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("cell", CELLS)
def test_sequences_of_any_length(cell, form):
    kind, options = CELLS[cell]
    model = Tagger(kind, **options, **FORMS[form])
    program = tintype.export(model, (sequences(model, 6),), dynamic_shapes=lengths(model))
    theirs = tintype.interop.to_torch(program)
    assert "scan" in targets(theirs) and not any(".input" in target for target in targets(theirs))
    check(theirs.module(), model, (6, 2), (9, 3), (1, 1))


@pytest.mark.parametrize("stage", STAGES)
def test_decomposed_by_torch(stage):
    model = Tagger(num_layers=2)
    program = exported(stage, model, ((sequences(model, 5),), {}), dynamic_shapes=lengths(model))
    theirs = tintype.interop.to_torch(program)
    assert theirs.dialect == ("TRAINING" if stage == "training" else "ATEN")
    check(theirs.run_decompositions().module(), model, (9, 2))


def test_gradients():
    model = Tagger()
    program = tintype.export_for_training(model, (sequences(model, 5),), dynamic_shapes=lengths(model))
    run = tintype.interop.to_torch(program).module()
    x = sequences(model, 7)
    gradients = []
    for module in (run, model):
        results, _ = module(x)
        gradients.append(torch.autograd.grad(results.sum(), list(module.parameters())))
    torch.testing.assert_close(*gradients)


def test_dropout_between_layers():
    model = Tagger(num_layers=2, dropout=0.5)
    program = tintype.export_for_training(model, (sequences(model, 5),), dynamic_shapes=lengths(model))
    run = tintype.interop.to_torch(program).module()
    x = sequences(model, 7)
    results = []
    with torch.no_grad():
        for module in (run, model):
            torch.manual_seed(0)
            results.append(module(x))
    torch.testing.assert_close(*results)


@pytest.mark.parametrize("cell", CELLS)
def test_states_of_another_batch_size_are_no_silent_matter(cell):
    """A tool that gives a loop's states the largest batch size fails for smaller ones, it does not broadcast."""
    kind, options = CELLS[cell]
    model = Tagger(kind, **options)
    program = tintype.export(model, (sequences(model, 6),), dynamic_shapes=lengths(model))
    theirs = tintype.interop.to_torch(program)
    (loop,) = theirs.graph.find_nodes(op="call_function", target=torch.ops.higher_order.scan)
    body = getattr(theirs.graph_module, loop.args[0].target)
    state, row, *rest = (node.meta["val"] for node in body.graph.find_nodes(op="placeholder"))
    weights = [torch.randn(value.shape) for value in rest if isinstance(value, torch.Tensor)]
    sizes = [2 for value in rest if isinstance(value, torch.SymInt)]
    run = [torch.randn(2, state.shape[1]), torch.randn(2, row.shape[1]), *weights, *sizes]
    body(*run)
    with pytest.raises(RuntimeError, match="Sizes of tensors must match"):
        body(torch.randn(8, state.shape[1]), torch.randn(1, row.shape[1]), *run[2:])


def test_sequences_without_steps_are_refused():
    model = Tagger()
    program = tintype.export(model, (sequences(model, 5),), dynamic_shapes=({0: Dim("time")},))
    with pytest.raises(Exception, match=">= 1"):
        tintype.interop.to_torch(program).module()(sequences(model, 0))


def test_a_fixed_length_leaves_layers_whole():
    model = Tagger()
    program = tintype.export(model, (sequences(model, 5),), dynamic_shapes=({1: Dim("batch")},))
    theirs = tintype.interop.to_torch(program)
    assert "aten.lstm.input" in targets(theirs)
    core = tintype.interop.to_torch(program.run_decompositions())
    assert not targets(core) & {"aten.lstm.input", "scan"}
    check(core.module(), model, (5, 3))


def test_layers_in_a_branch():
    class Choice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.GRU(5, 4)

        def forward(self, x):
            return tintype.cond(x.sum() > 0, lambda x: self.layers(x)[0], lambda x: x[..., :4] * 2, (x,))

    model = Choice()
    program = tintype.export(model, (torch.ones(5, 2, 5),), dynamic_shapes=({0: Dim("time", min=1)},))
    run = tintype.interop.to_torch(program).module()
    with torch.no_grad():
        for x in (torch.rand(7, 2, 5), -torch.rand(3, 2, 5)):
            torch.testing.assert_close(run(x), model(x))


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler")
def test_compiled_ahead_of_time(tmp_path):
    model = Tagger(batch_first=True)
    program = tintype.export(model, (sequences(model, 5),), dynamic_shapes=lengths(model))
    with torch.no_grad():
        package = torch._inductor.aoti_compile_and_package(
            tintype.interop.to_torch(program),
            package_path=str(tmp_path / "model.pt2"),
            inductor_configs={"inplace_buffers": False},  # else torch writes C++ for loops that does not compile
        )
    check(torch._inductor.aoti_load_package(package), model, (9, 3), (5, 2))
