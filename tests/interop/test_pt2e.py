"""torchao's quantization of exported programs (pt2e): prepared, calibrated or trained, converted, and taken back."""

from __future__ import annotations

import copy
import io
from typing import Any

import pytest
import torch
from torch import nn
from torchao.quantization.pt2e import move_exported_model_to_eval
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e, prepare_qat_pt2e
from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86

import tintype


class Images(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)
        self.drop, self.head = nn.Dropout(0.3), nn.Linear(144, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.drop(torch.relu(self.norm(self.conv(x)))).flatten(1))


class Pictures(nn.Module):
    """Without batch norm, which torchao needs half a minute for in training."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.head = nn.Linear(192, 16), nn.Linear(16, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.relu(self.first(x.flatten(1))))


def batches() -> list[torch.Tensor]:
    torch.manual_seed(1)
    return [torch.randn(2, 3, 8, 8) * scale for scale in (1, 3, 1)]


def model(training: bool) -> nn.Module:
    torch.manual_seed(0)
    return (Pictures() if training else Images()).train(training)


def by_torch(training: bool) -> Any:
    batch = torch.export.Dim("batch", min=2)
    return torch.export.export(model(training), (batches()[0],), dynamic_shapes=({0: batch},)).module()


def by_tintype(training: bool) -> Any:
    batch = tintype.Dim("batch", min=2)
    program = tintype.export_for_training(model(training), (batches()[0],), dynamic_shapes=({0: batch},))
    return tintype.interop.to_torch(program).module()


def prepared(module: Any, training: bool) -> Any:
    quantizer = x86.X86InductorQuantizer()
    quantizer.set_global(x86.get_default_x86_inductor_quantization_config(is_qat=training))
    return (prepare_qat_pt2e if training else prepare_pt2e)(module, quantizer)


def run(module: Any, training: bool) -> None:
    """Calibrate, or train for a few steps."""
    optimizer = torch.optim.SGD(module.parameters(), lr=0.01)
    for x in batches():
        torch.manual_seed(3)
        result = module(x)
        if training:
            result.square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()


def converted(module: Any, training: bool) -> Any:
    run(module, training)
    if training:
        move_exported_model_to_eval(module)
    return convert_pt2e(module)


def operators(graph: torch.fx.Graph) -> list[str]:
    return [str(node.target) for node in graph.nodes if str(node.target).startswith("quantized_decomposed")]


@pytest.mark.parametrize("training", [False, True])
def test_both_ways_give_the_same_quantized_model(training: bool) -> None:
    theirs = converted(prepared(by_torch(training), training), training)
    ours = converted(prepared(by_tintype(training), training), training)
    assert operators(ours.graph) == operators(theirs.graph) != []
    for x in (*batches(), torch.cat(batches())):
        torch.testing.assert_close(ours(x), theirs(x))


def saved(program: tintype.ExportedProgram) -> tintype.ExportedProgram:
    file = io.BytesIO()
    tintype.save(program, file)
    return tintype.load(file)


WAYS_BACK = {
    "exported": lambda module, x: tintype.export(module, (x,)),
    "training": lambda module, x: tintype.export_for_training(module, (x,)),
    "from torch": lambda module, x: tintype.interop.from_torch(torch.export.export(module, (x,))),
}


@pytest.mark.parametrize("way", WAYS_BACK)
@pytest.mark.parametrize("training", [False, True])
def test_a_converted_model_comes_back(training: bool, way: str) -> None:
    """Its quantized operators stay whole, in files and decomposed too."""
    module = converted(prepared(by_tintype(training), training), training)
    program = WAYS_BACK[way](module, batches()[0])
    core = program.run_decompositions()
    assert operators(core.graph) == operators(program.graph) == operators(module.graph)
    forms = [program.module(), saved(program).module(), core.module(), tintype.unflatten(program)]
    for form in (*forms, tintype.interop.to_torch(program).module()):
        for x in batches():
            torch.testing.assert_close(form(x), module(x))


@pytest.mark.parametrize("training", [False, True])
def test_a_prepared_model_is_exported_with_its_observers(training: bool) -> None:
    """What it observes is its state."""
    module = prepared(by_tintype(training), training)
    run(module, training)
    eager = copy.deepcopy(module)
    captured = tintype.export_for_training(module, (batches()[0],)).module()
    for x in batches():
        torch.manual_seed(5)
        wanted = eager(x)
        torch.manual_seed(5)
        torch.testing.assert_close(captured(x), wanted)
    found = captured.state_dict()
    for name, value in eager.state_dict().items():
        if name in found:
            torch.testing.assert_close(found[name], value)
