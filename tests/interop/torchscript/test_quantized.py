"""Quantized models: the operators on packed weights stay what they are, so results are equal bit for bit."""

import subprocess
import sys
import warnings

import pytest
import torch
import torch.ao.nn.quantized as nnq
import torch.ao.quantization as quantization
from torch import nn

import tintype
from tests.interop.torchscript.comparing import converted, from_file

BATCH = {"x": {0: tintype.Dim("batch")}}


class Perceptron(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))

    def forward(self, x):
        return self.layers(x)


class Convolutions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.quantize = quantization.QuantStub()
        self.first = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU())
        self.second = nn.Conv2d(4, 4, 3, stride=2, padding=1, groups=2)
        self.linear = nn.Sequential(nn.Linear(4, 5), nn.ReLU())
        self.dequantize = quantization.DeQuantStub()
        self.added = nnq.FloatFunctional()

    def forward(self, x):
        x = self.first(self.quantize(x))
        x = self.added.add(x, x)
        x = torch.max_pool2d(self.second(x), 2)
        x = x.mean([2, 3])
        return self.dequantize(self.linear(x))


@pytest.fixture(autouse=True)
def quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def of_every_kind(model, x):
    """Scripted and traced, as made and as loaded."""
    scripts = [torch.jit.script(model), torch.jit.trace(model, (x,), check_trace=False)]
    return [*scripts, *map(from_file, scripts)]


def quantized(model, *examples):
    model.qconfig = quantization.get_default_qconfig(torch.backends.quantized.engine)
    prepared = quantization.prepare(quantization.fuse_modules(model, [["first.0", "first.1", "first.2"]]))
    for example in examples:
        prepared(example)
    return quantization.convert(prepared)


def test_dynamic_quantization() -> None:
    torch.manual_seed(0)
    model = quantization.quantize_dynamic(Perceptron().eval(), {nn.Linear}, torch.qint8)
    for script in of_every_kind(model, torch.randn(2, 4)):
        program = converted(script, (torch.randn(2, 4),), BATCH).module()
        for rows in (1, 2, 7):
            x = torch.randn(rows, 4)
            assert torch.equal(program(x), script(x))


def test_static_quantization() -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 3, 8, 8)
    model = quantized(Convolutions().eval(), x, torch.randn(4, 3, 8, 8))
    for script in of_every_kind(model, x):
        program = converted(script, (x,), BATCH)
        assert any("quantized.conv2d" in str(node.target) for node in program.graph.nodes)
        for rows in (1, 2, 5):
            other = torch.randn(rows, 3, 8, 8)
            assert torch.equal(program.module()(other), script(other))


def test_quantized_tensors_are_known_as_such() -> None:
    def function(x):
        q = torch.quantize_per_tensor(x, 0.1, 3, torch.quint8)
        return q.int_repr(), q.is_quantized, q.dtype, q.dequantize().dtype

    script = torch.jit.script(function)
    x = torch.randn(3)
    expected, given = script(x), converted(script, (x,)).module()(x)
    assert torch.equal(given[0], expected[0]) and given[0].dtype is torch.uint8
    assert given[1:] == expected[1:]


def test_rules_are_there_without_torchscript() -> None:
    code = (
        "import torch, tintype, sys\n"
        "f = lambda x: torch.quantize_per_tensor(x, 0.1, 10, torch.quint8)\n"
        "program = tintype.export(f, (torch.ones(3),))\n"
        "assert 'tintype.interop.torchscript.conversion' not in sys.modules\n"
        "assert program.module()(torch.ones(3)).dtype is torch.quint8\n"
        "output = list(program.graph.nodes)[-1].args[0][0]\n"
        "assert output.meta['val'].dtype is torch.quint8\n"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True)


def test_how_a_tensor_is_quantized_is_not_asked() -> None:
    with pytest.raises(tintype.CaptureError, match="asks how a tensor is quantized"):
        tintype.export(lambda x: torch.quantize_per_tensor(x, 0.1, 10, torch.quint8).q_scale(), (torch.ones(3),))
