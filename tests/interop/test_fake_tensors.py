"""Models and inputs of torch's own fake mode."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

import tintype


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.register_buffer("count", torch.zeros(3))
        self.table = torch.ones(3)

    def forward(self, x):
        self.count.add_(1)
        return self.linear(x) + self.count * self.table


@pytest.fixture
def mode() -> FakeTensorMode:
    return FakeTensorMode()


def test_a_model_without_weights(mode):
    with mode:
        model = Model()
        x = torch.ones(2, 3)
    before = dict(model.state_dict(keep_vars=True))
    program = tintype.export(model, (x,))
    program.validate()
    for name, tensor in program.state_dict.items():
        assert tensor is before[name] and isinstance(tensor, FakeTensor)
    assert dict(model.state_dict(keep_vars=True)) == before
    assert program.graph_signature.parameters == ("linear.weight", "linear.bias")
    for module in (program.module(), program.run_decompositions().module(), tintype.unflatten(program)):
        result = module(x)
        assert isinstance(result, FakeTensor) and result.shape == (2, 3)


def test_weights_are_attached_later(mode):
    with mode:
        fake = Model()
    x = torch.ones(2, 3)
    program = tintype.export(fake, (x,))
    model = Model()
    program.state_dict.update(model.state_dict())
    program.constants.update(table=model.table)
    torch.testing.assert_close(program.module()(x), model(x))


def test_real_weights_and_fake_inputs(mode):
    model = nn.Linear(3, 2)
    program = tintype.export(model, (mode.from_tensor(torch.ones(4, 3)),))
    x = torch.randn(4, 3)
    torch.testing.assert_close(program.module()(x), model(x))


def test_varying_sizes(mode):
    with mode:
        model, x = Model(), torch.ones(2, 3)
    program = tintype.export(model, (x,), dynamic_shapes={"x": {0: tintype.Dim("batch")}})
    with mode:
        assert program.module()(torch.ones(7, 3)).shape == (7, 3)


def test_symbolic_sizes_of_the_users_mode_are_examples():
    mode = FakeTensorMode(shape_env=ShapeEnv())
    context = StatelessSymbolicContext([DimDynamic.DYNAMIC, DimDynamic.STATIC])
    x = mode.from_tensor(torch.ones(4, 3), symbolic_context=context, source=torch._dynamo.source.ConstantSource("x"))
    assert isinstance(x.shape[0], torch.SymInt)
    model = nn.Linear(3, 2)
    program = tintype.export(model, (x,))
    assert program.module()(torch.ones(4, 3)).shape == (4, 2)
    with pytest.raises(tintype.TintypeError, match="equal to 4"):
        program.module()(torch.ones(5, 3))
    program = tintype.export(model, (x,), dynamic_shapes={"input": {0: tintype.Dim("batch")}})
    assert program.module()(torch.ones(5, 3)).shape == (5, 2)


def test_sizes_without_an_example_are_refused():
    mode = FakeTensorMode(shape_env=ShapeEnv())
    with mode:
        x = torch.empty(mode.shape_env.create_unbacked_symint(), 3)
    with pytest.raises(tintype.TintypeError, match="size u0, of which no example is known"):
        tintype.export(nn.Linear(3, 2), (x,))


def test_nothing_of_torchs_stack_is_loaded_without_need():
    code = (
        "import sys, torch, tintype\n"
        "loaded = set(sys.modules)\n"
        "program = tintype.export(torch.nn.Linear(3, 2), (torch.ones(4, 3),))\n"
        "tintype.unflatten(program)(torch.ones(4, 3))\n"
        "heavy = ('torch.export', 'torch._dynamo', 'tintype.interop.fake')\n"
        "new = [name for name in sys.modules if name not in loaded and name.startswith(heavy)]\n"
        "assert not new, new\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_programs_without_weights_can_be_saved(mode, tmp_path):
    with mode:
        model, x = Model(), torch.ones(2, 3)
        model.tied = model.linear
    program = tintype.export(model, (x,))
    tintype.save(program, tmp_path / "program.tt")
    loaded = tintype.load(tmp_path / "program.tt")
    assert {value.device.type for value in loaded.state_dict.values()} == {"meta"}
    assert loaded.state_dict["linear.weight"] is loaded.state_dict["tied.weight"]
    assert isinstance(loaded.state_dict["linear.weight"], nn.Parameter)
    real = Model()
    real.tied = real.linear
    weights = {**real.state_dict(), "table": real.table}
    attached = tintype.attach_weights(loaded, weights)
    x = torch.randn(2, 3)
    torch.testing.assert_close(attached.module()(x), real(x))
