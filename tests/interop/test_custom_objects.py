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


# --- methods ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def classes(make_object):
    library = torch.classes._TorchScriptTesting

    class Foo:
        def __init__(self, x: int, y: int) -> None:
            self.x, self.y = x, y

        @classmethod
        def __obj_unflatten__(cls, state):
            return cls(**dict(state))

        def add_tensor(self, z):
            return (self.x + self.y) * z

    class Queue:
        def __init__(self, queue) -> None:
            self.queue = queue

        @classmethod
        def __obj_unflatten__(cls, state):
            return cls(**dict(state))

        def push(self, x):
            self.queue.append(x)

        def pop(self):
            return self.queue.pop(0)

        def size(self):
            return len(self.queue)

    torch._library.register_fake_class("_TorchScriptTesting::_Foo", Foo)
    torch._library.register_fake_class("_TorchScriptTesting::_TensorQueue", Queue)
    tintype.register_object(
        "__torch__.torch.classes._TorchScriptTesting._Foo",
        name="tests.Foo",
        save=lambda value: ",".join(str(number) for _, number in value.__obj_flatten__()).encode(),
        load=lambda content: library._Foo(*map(int, content.decode().split(","))),
    )
    yield library
    for name in ("_Foo", "_TensorQueue"):
        torch._library.fake_class_registry.deregister_fake_class(f"_TorchScriptTesting::{name}")


class Adding(nn.Module):
    def __init__(self, foo) -> None:
        super().__init__()
        self.foo = foo

    def forward(self, x):
        return self.foo.add_tensor(x) + x


class AddingGiven(nn.Module):
    def forward(self, foo, x):
        return foo.add_tensor(x.sin()) + x


class Queueing(nn.Module):
    def __init__(self, queue) -> None:
        super().__init__()
        self.queue = queue

    def forward(self, x):
        self.queue.push(x.sin())
        self.queue.push(x)
        return self.queue.pop() + 1, self.queue.size()


class Popping(Queueing):
    def forward(self, x):
        return super().forward(x)[0]


def saved(program: tintype.ExportedProgram, folder: Path):
    tintype.save(program, folder / "program.tt")
    return tintype.load(folder / "program.tt")


def test_a_method_is_an_operator(classes, tmp_path):
    x = torch.randn(2, 3)
    model = Adding(classes._Foo(10, 20))
    program = tintype.export(model, (x,), dynamic_shapes="auto")
    program.validate()
    (call,) = [node for node in program.graph.nodes if "call_torchbind" in str(node.target)]
    assert call.args[1] == "add_tensor"
    theirs = torch.export.export(model, (x,), strict=False)
    forms = {
        "exported": program.module(),
        "training": tintype.export_for_training(model, (x,)).module(),
        "strict": tintype.export(model, (x,), strict=True).module(),
        "decomposed": program.run_decompositions().module(),
        "unflattened": tintype.unflatten(program),
        "saved": saved(program, tmp_path).module(),
        "captured again": tintype.export(program.module(), (x,)).module(),
        "torch's": tintype.interop.to_torch(program).module(),
        "from torch's": tintype.interop.from_torch(theirs).module(),
        "torch.export's": theirs.module(),
    }
    for module in forms.values():
        assert_same(module(x), model(x))
    for size in ((5, 3), (1, 3), (0, 3)):
        assert_same(program.module()(torch.ones(size)), model(torch.ones(size)))


def test_an_object_is_an_input(classes, tmp_path):
    x, model = torch.randn(2, 3), AddingGiven()
    program = tintype.export(model, (classes._Foo(1, 2), x))
    for each in (program, saved(program, tmp_path), program.run_decompositions()):
        assert_same(each.module()(classes._Foo(3, 4), x), model(classes._Foo(3, 4), x))
        with pytest.raises(tintype.InputMismatchError, match=r"to be an object of .*_Foo, but got"):
            each.module()(classes._TensorQueue(x), x)
        with pytest.raises(tintype.InputMismatchError, match=r"to be an object of .*_Foo, but got tensor"):
            each.module()(x, x)


def test_calls_keep_their_order_and_change_the_object_of_the_module_alone(classes):
    x = torch.randn(2, 3)
    model, eager = Queueing(classes._TensorQueue(torch.zeros(1))), Queueing(classes._TensorQueue(torch.zeros(1)))
    program = tintype.export(model, (x,))
    assert model.queue.size() == 0
    module = program.module()
    for _ in range(3):
        assert_same(module(x), eager(x))
    assert model.queue.size() == 0
    assert_same(program.run_decompositions().module()(x), (x.sin() + 1, 1))


def test_gradients_pass_through_methods_of_programs_and_not_of_joint_ones(classes):
    model = Adding(classes._Foo(10, 20))
    x = torch.ones(2, requires_grad=True)
    tintype.export(model, (x,)).module()(x).sum().backward()
    assert x.grad.tolist() == [31, 31]
    with pytest.raises(tintype.UnsupportedOperatorError, match=r"gradients flow through add_tensor\(\)"):
        tintype.export_joint(lambda x: model(x).sum(), (x,))


def test_methods_that_nobody_described_are_refused(classes):
    words = classes._StackString(["a"])

    def pushes(x):
        words.push("b")
        return x

    with pytest.raises(tintype.UnsupportedOperatorError, match="_TorchScriptTesting::_StackString") as caught:
        tintype.export(pushes, (torch.ones(2),))
    assert "register_fake_class" in str(caught.value)
    foo = classes._Foo(1, 2)
    with pytest.raises(tintype.UnsupportedOperatorError, match=r"has no method info\(\)"):
        tintype.export(lambda x: x * foo.info(), (torch.ones(2),))


def test_compiled_functions_call_objects(classes):
    """Methods change the object itself, as in eager mode; another object in its place is seen."""
    x = torch.randn(2, 3)
    model, eager = Popping(classes._TensorQueue(torch.zeros(1))), Popping(classes._TensorQueue(torch.zeros(1)))
    compiled = tintype.aot.module(model)
    for _ in range(3):
        assert_same(compiled(x), eager(x))
    assert model.queue.size() == eager.queue.size() == 3
    model.queue = classes._TensorQueue(torch.zeros(1))
    assert_same(compiled(x), x.sin() + 1)
    given = tintype.aot.module(AddingGiven())
    for numbers in ((1, 2), (3, 4)):
        foo = classes._Foo(*numbers)
        assert_same(given(foo, x), AddingGiven()(foo, x))


def test_compiled_functions_of_packed_weights():
    layers = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 2))
    model = torch.ao.quantization.quantize_dynamic(layers, {nn.Linear}, dtype=torch.qint8)
    compiled = tintype.aot.module(model)
    for x in (torch.randn(3, 4), torch.randn(3, 4), torch.randn(1, 4)):
        assert_same(compiled(x), model(x))
    model[0].set_weight_bias(torch.quantize_per_tensor(torch.ones(5, 4), 0.1, 0, torch.qint8), torch.zeros(5))
    x = torch.randn(3, 4)
    assert_same(compiled(x), model(x))
