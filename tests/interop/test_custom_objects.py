"""Custom objects (TorchBind classes) through every form of a program."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import tintype
from tests.export.modes import assert_same

LIBRARY = Path(torch.__file__).parent / "lib" / "libtorchbind_test.so"
pytestmark = pytest.mark.skipif(not LIBRARY.exists(), reason="this torch has no classes to test with")


@pytest.fixture(scope="module")
def make_object():
    torch.ops.load_library(str(LIBRARY))
    library = torch.library.Library("tintype_objects", "FRAGMENT")
    library.define("add_length(__torch__.torch.classes._TorchScriptTesting._PickleTester o, Tensor x) -> Tensor")
    library.impl("add_length", lambda o, x: x + len(o.__getstate__()), "CompositeExplicitAutograd")
    torch.library.register_fake("tintype_objects::add_length", lambda o, x: torch.empty_like(x), lib=library)
    yield torch.classes._TorchScriptTesting._PickleTester
    library._destroy()


class Inner(nn.Module):
    def __init__(self, made) -> None:
        super().__init__()
        self.made = made

    def forward(self, x):
        x = torch.ops.tintype_objects.add_length(self.made, x)
        return torch.ops.tintype_objects.add_length(self.made, x)


class Outer(nn.Module):
    def __init__(self, made) -> None:
        super().__init__()
        self.inner = Inner(made)

    def forward(self, x):
        return self.inner(x) * 2


def test_an_object_is_one_constant_under_its_name(make_object):
    x = torch.randn(2, 3)
    model = Outer(make_object([3, 4]))
    program = tintype.export(model, (x,))
    program.validate()
    assert list(program.constants) == ["inner.made"]
    assert program.graph_signature.lifted_custom_objs == ["inner.made"]
    theirs = tintype.interop.to_torch(program)
    back = tintype.interop.from_torch(theirs)
    assert back.graph_signature.lifted_custom_objs == ["inner.made"]
    for module in (program.module(), tintype.unflatten(program), theirs.module(), back.module()):
        assert_same(module(x), model(x))
