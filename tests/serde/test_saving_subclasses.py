"""Parameters of classes that add nothing but attributes are saved as plain ones."""

from __future__ import annotations

import torch

import tintype


class Loaded(torch.nn.Parameter):
    """What libraries that load weights make of them."""

    def load(self, other):
        self.data.copy_(other)


class Model(torch.nn.Module):
    def __init__(self, weight, buffer):
        super().__init__()
        self.weight = weight
        self.register_buffer("scale", buffer)

    def forward(self, x):
        return x * self.weight + self.scale


def test_classes_that_add_attributes_are_saved(tmp_path):
    model = Model(Loaded(torch.rand(3)), torch.ones(3))
    x = torch.rand(3)
    program = tintype.export(model, (x,))
    tintype.save(program, tmp_path / "model.tt")
    loaded = tintype.load(tmp_path / "model.tt")
    torch.testing.assert_close(loaded.module()(x), model(x))
    assert type(loaded.state_dict["weight"]) is torch.nn.Parameter
    assert type(model.weight) is Loaded
