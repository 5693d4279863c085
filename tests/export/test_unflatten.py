"""Programs as trees of modules. That they compute what eager mode does is tested by the mode "unflattened" of the
export tests; here is what the tree looks like and what can be done with it."""

from __future__ import annotations

import copy
import io
import time
import warnings
from typing import Any

import pytest
import torch
from torch import nn

import tintype
from tests.export.modes import assert_same

STAGES = ("training", "functional", "core")


def exported(stage: str, model, args, kwargs=None, **options):
    if stage == "training":
        return tintype.export_for_training(model, args, kwargs, **options)
    program = tintype.export(model, args, kwargs, **options)
    return program.run_decompositions() if stage == "core" else program


@pytest.fixture(params=STAGES)
def stage(request: pytest.FixtureRequest) -> str:
    torch.manual_seed(0)
    return request.param


def calls_of(module) -> list[str]:
    """The modules that a module's graph calls."""
    return [node.target for node in module.graph.nodes if node.op == "call_module"]


def operators_of(module) -> list[str]:
    return [str(node.target) for node in module.graph.nodes if node.op == "call_function"]


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.norm = nn.LayerNorm(4)
        self.register_buffer("scale", torch.full((4,), 2.0))
        self.register_buffer("shift", torch.ones(4), persistent=False)

    def forward(self, x):
        return torch.relu(self.norm(self.linear(x))) * self.scale + self.shift


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block(), Block()])
        self.dropout = nn.Dropout(0.5)
        self.head = nn.Linear(4, 2)

    def forward(self, x):
        for block in self.blocks:
            x = self.dropout(block(x)) + x
        return self.head(x)


X = torch.randn(3, 4)


# --- the tree ----------------------------------------------------------------------------------------------


@pytest.mark.direct("the program holds the model's own tensors")
def test_the_tree_is_that_of_the_model(stage):
    model = Model().eval()
    module = tintype.unflatten(exported(stage, model, (X,)))
    assert [name for name, _ in module.named_modules()] == [name for name, _ in model.named_modules()]
    assert list(module.state_dict()) == list(model.state_dict())
    assert [name for name, _ in module.named_buffers()] == [name for name, _ in model.named_buffers()]
    for name, tensor in model.state_dict(keep_vars=True).items():
        assert module.state_dict(keep_vars=True)[name] is tensor  # nothing is written to, so nothing is copied
    dropout = ["dropout"] if stage == "training" else []  # it does nothing, so functional programs do without
    assert calls_of(module) == ["blocks.0", *dropout, "blocks.1", *dropout, "head"]
    assert calls_of(module.blocks.get_submodule("0")) == ["linear", "norm"]
    assert_same(module(X), model(X))


def test_a_submodule_takes_and_returns_its_tensors():
    model = Model().eval()
    module = tintype.unflatten(tintype.export(model, (X,)))
    block = module.get_submodule("blocks.0")
    assert_same(block(X), model.blocks[0](X))
    assert_same(block.linear(X), model.blocks[0].linear(X))


def test_every_submodule_runs_in_the_interpreter(stage):
    model = Model().eval()
    module = tintype.unflatten(exported(stage, model, (X,)))
    assert_same(torch.fx.Interpreter(module).run(X), model(X))
    assert_same(torch.fx.Interpreter(module.get_submodule("blocks.1")).run(X), model.blocks[1](X))
    assert_same(torch.fx.Interpreter(module.head).run(X), model.head(X))


def test_inputs_are_checked():
    module = tintype.unflatten(tintype.export(Model().eval(), (X,)))
    with pytest.raises(tintype.TintypeError, match=r"\*args\[0\]\.shape\[0\] to be equal to 3, but got 5"):
        module(torch.randn(5, 4))
    with pytest.raises(tintype.TintypeError, match="tree spec"):
        module(X, X)


def test_only_programs_are_unflattened():
    with pytest.raises(tintype.TintypeError, match="unflatten takes an ExportedProgram, but got a Model"):
        tintype.unflatten(Model())


def test_a_module_that_is_not_called_holds_its_state():
    class Unused(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used = nn.Linear(4, 4)
            self.unused = nn.Linear(4, 4)

        def forward(self, x):
            return self.used(x) @ self.unused.weight

    model = Unused()
    module = tintype.unflatten(tintype.export(model, (X,)))
    assert list(module.state_dict()) == list(model.state_dict())
    assert_same(module(X), model(X))
    assert calls_of(module) == ["used"]


def test_a_function_and_a_method():
    module = tintype.unflatten(tintype.export(lambda x, *, factor: x * factor, (X,), {"factor": 2}))
    assert_same(module(X, factor=2), X * 2)
    model = Model().eval()
    module = tintype.unflatten(tintype.export(model.forward, (X,)))
    assert_same(module(X), model(X))
    assert calls_of(module) == ["blocks.0", "blocks.1", "head"]


def test_containers_in_and_out():
    class Containers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, inputs, *, extra=None):
            return {"sum": self.linear(inputs["a"]) + inputs["b"][0], "same": (inputs["a"], 3, None), "extra": extra}

    model = Containers()
    args, kwargs = ({"a": X, "b": [X + 1]},), {"extra": 5}
    module = tintype.unflatten(tintype.export(model, args, kwargs))
    assert_same(module(*args, **kwargs), model(*args, **kwargs))
    assert_same(module({"b": [X + 1], "a": X}, extra=5), model(*args, **kwargs))


# --- swapping ----------------------------------------------------------------------------------------------


def test_a_submodule_can_be_replaced(stage):
    model = Model().eval()
    module = tintype.unflatten(exported(stage, model, (X,)))
    module(X)  # compiled before the replacement
    new = Block().eval()
    module.set_submodule("blocks.1", new)
    model.blocks[1] = new
    assert_same(module(X), model(X))
    module.head = nn.Linear(4, 7)
    assert module(X).shape == (3, 7)


def test_a_replacement_may_be_an_unflattened_module():
    model = Model().eval()
    module = tintype.unflatten(tintype.export(model, (X,)))
    other = tintype.unflatten(tintype.export(model.blocks[0], (X,)))
    module.set_submodule("blocks.1", other)
    model.blocks[1] = model.blocks[0]
    assert_same(module(X), model(X))


def test_a_graph_can_be_edited():
    module = tintype.unflatten(tintype.export(Model().eval(), (X,)))
    before = module(X)
    head = module.head
    (result,) = head.graph.find_nodes(op="output")
    with head.graph.inserting_before(result):
        result.args = (head.graph.call_function(torch.ops.aten.neg.default, result.args),)
    assert_same(module(X), before)
    head.recompile()
    assert_same(module(X), -before)


# --- several calls, several names --------------------------------------------------------------------------


class Repeated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.block = Block()

    def forward(self, x):
        return self.block(self.block(x)) + self.block(x[:2]).sum()


def test_calls_that_do_the_same_share_a_module(stage):
    model = nn.Sequential(Block(), Repeated()).eval()
    module = tintype.unflatten(exported(stage, model, (X,)))
    repeated = module.get_submodule("1")
    assert calls_of(repeated) == ["block", "block", "block"]
    assert list(module.state_dict()) == list(model.state_dict())
    assert_same(module(X), model(X))
    new = Block().eval()
    repeated.block = new
    model[1].block = new
    assert_same(module(X), model(X))


class Counting(nn.Module):
    """Does something else at each call."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x, sign):
        y = self.linear(x)
        return -y if sign else y


class CallsTwice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.counting = Counting()

    def forward(self, x):
        x = self.counting(x, False)
        x = self.counting(x, True)
        x = self.counting(x, False)
        return self.counting(x, True)


@pytest.mark.direct("the program holds the model's own tensors")
def test_calls_that_do_something_else_have_modules_of_their_own(stage):
    model = CallsTwice()
    module = tintype.unflatten(exported(stage, model, (X,)))
    assert calls_of(module) == ["counting", "counting@1", "counting", "counting@1"]
    assert list(module.state_dict()) == list(model.state_dict())
    assert_same(module(X), model(X))
    with torch.no_grad():
        module.counting.linear.weight.mul_(2)  # it is the model's, and that of both modules
    assert_same(module(X), model(X))
    assert_same(copy.deepcopy(module)(X), model(X))


def test_the_module_stack_names_repeated_calls():
    program = tintype.export(CallsTwice(), (X,))
    stacks = [list(node.meta["nn_module_stack"]) for node in program.graph.nodes if node.op == "call_function"]
    assert stacks[0] == ["", "counting", "counting.linear"]
    assert stacks[1] == ["", "counting@1", "counting.linear@1"]
    second = program.graph.find_nodes(op="call_function", target=torch.ops.aten.linear.default)[1]
    assert [path for path, _ in second.meta["nn_module_stack"].values()] == ["", "counting", "counting.linear"]


def test_a_tree_with_several_ways_of_calling_a_module_is_exported_again(stage):
    model = CallsTwice()
    module = tintype.unflatten(exported(stage, model, (X,)))
    again = exported(stage, module, (X,))
    stacks = [list(node.meta["nn_module_stack"]) for node in again.graph.nodes if node.op == "call_function"]
    assert ["", "counting@1", "counting.linear@1"] in stacks
    assert [entry.fqn for entry in again.module_call_graph] == ["", "counting", "counting.linear"]
    file = io.BytesIO()
    tintype.save(again, file)
    for program in (again, tintype.load(file)):
        made = tintype.unflatten(program)
        assert calls_of(made) == ["counting", "counting@1", "counting", "counting@1"]
        assert list(made.state_dict()) == list(model.state_dict())
        assert_same(made(X), model(X))


class Shared(nn.Module):
    """One module under two names, tied weights, and a module that lies elsewhere in the tree."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.ModuleDict({"embed": nn.Linear(4, 4), "block": Block()})
        self.decoder = nn.Module()
        self.decoder.embed = self.encoder["embed"]
        self.decoder.register_parameter("tied", self.encoder["block"].linear.weight)
        self.user = Outside([self.encoder["embed"]])

    def forward(self, x):
        x = self.encoder["block"](self.encoder["embed"](x))
        x = self.decoder.embed(x) @ self.decoder.tied
        return self.user(x)


class Outside(nn.Module):
    def __init__(self, others) -> None:
        super().__init__()
        self.others = others  # a list: not registered

    def forward(self, x):
        return self.others[0](x) + self.others[0].bias


def test_shared_modules_and_state(stage):
    model = Shared().eval()
    module = tintype.unflatten(exported(stage, model, (X,)))
    assert module.decoder.embed is module.encoder.embed
    assert module.decoder.tied is module.encoder.block.linear.weight
    assert list(module.state_dict()) == list(model.state_dict())
    assert [n for n, _ in module.named_parameters()] == [n for n, _ in model.named_parameters()]
    assert_same(module(X), model(X))
    copied = copy.deepcopy(module)
    assert copied.decoder.embed is copied.encoder.embed
    assert copied.decoder.tied is copied.encoder.block.linear.weight
    with torch.no_grad():
        copied.encoder.embed.weight.zero_()
    assert_same(module(X), model(X))
    assert not torch.equal(copied(X), model(X))


def test_a_replaced_module_is_seen_from_elsewhere_in_the_tree():
    model = Shared().eval()
    module = tintype.unflatten(tintype.export(model, (X,)))
    new = nn.Linear(4, 4)
    module.encoder.embed = new
    model.encoder["embed"] = model.decoder.embed = new  # the root calls it by its first name
    model.user.others[0] = new
    assert_same(module(X), model(X))


# --- state -------------------------------------------------------------------------------------------------


class Running(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(2, 2, 1)
        self.norm = nn.BatchNorm1d(2)
        self.register_buffer("replaced", torch.zeros(2))

    def forward(self, x):
        self.replaced = self.replaced + 1
        return self.norm(self.conv(x)) + self.replaced.sum()


def test_a_module_writes_its_own_state(stage):
    model = nn.Sequential(Running()).train()
    x = torch.randn(3, 2, 5)
    program = exported(stage, model, (x,))
    module = tintype.unflatten(program)
    eager = copy.deepcopy(model)
    for _ in range(3):
        assert_same(module(x), eager(x))
    assert_same(dict(module.named_buffers()), dict(eager.named_buffers()))
    assert model[0].norm.num_batches_tracked == 0
    running = module.get_submodule("0")
    assert [n.op for n in running.norm.graph.nodes].count("output") == 1
    (output,) = running.norm.graph.find_nodes(op="output")
    assert isinstance(output.args[0], torch.fx.Node)  # statistics don't leave the module
    running.norm = nn.Identity()
    model[0].norm = nn.Identity()
    model[0].replaced.fill_(3)
    assert_same(module(x), model(x))


def test_a_write_that_comes_after_a_read_stays_at_the_end():
    class Reader(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("state", torch.zeros(4))

        def forward(self, x):
            old = self.state.clone()
            self.state.copy_(x.sum(0))
            return x + old

    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = Reader(), nn.Linear(4, 4)

        def forward(self, x):
            before = self.first.state * 1
            x = self.first(x)
            return self.second(x) + before + self.first.state

    model = Outer()
    module, eager = tintype.unflatten(tintype.export(model, (X,))), copy.deepcopy(model)
    for _ in range(3):
        assert_same(module(X), eager(X))
        assert_same(module.first.state, eager.first.state)


def test_written_inputs(stage):
    class Writes(nn.Module):
        def forward(self, x):
            x.mul_(2)
            return x[0]

    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.writes = Writes()

        def forward(self, x):
            row = self.writes(x)
            return row + 1, x

    module = tintype.unflatten(exported(stage, Outer(), (X.clone(),)))
    given, wanted = X.clone(), X.clone()
    result, eager = module(given), Outer()(wanted)
    assert_same(result, eager)
    assert_same(given, wanted)
    assert result[1] is given


def test_constants_and_objects_of_other_modules():
    class Constant(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = torch.arange(4.0)

        def forward(self, x):
            return x + self.table + torch.tensor([1.0, 2.0, 3.0, 4.0])

    model = nn.Sequential(Constant(), Constant())
    module = tintype.unflatten(tintype.export(model, (X,)))
    assert module.state_dict() == {}
    assert_same(module(X), model(X))
    assert module.double().get_submodule("0").table.dtype is torch.float64  # constants move with the module


def test_moved_to_another_device():
    model = Shared().eval()
    module = tintype.unflatten(tintype.export(model, (X,))).to("meta")
    assert module(X.to("meta")).device.type == "meta"


def test_copies():
    model = Model().eval()
    module = tintype.unflatten(tintype.export(model, (X,)))
    wanted = module(X)
    copied = copy.deepcopy(module)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.zero_()
    assert_same(copied(X), wanted)
    assert_same(module(X), torch.zeros(3, 2))


def test_state_is_loaded_by_the_models_names():
    model, other = Model().eval(), Model().eval()
    module = tintype.unflatten(tintype.export(copy.deepcopy(model), (X,)))
    module.load_state_dict(other.state_dict())
    assert_same(module(X), other(X))


# --- sizes and numbers -------------------------------------------------------------------------------------


class Sizes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Flattens()
        self.linear = nn.Linear(4, 4)

    def forward(self, x, y):
        n = x.shape[0] * 2
        a = self.inner(self.linear(x), n)
        return a + y.reshape(-1)[: a.shape[0]], n


class Flattens(nn.Module):
    def forward(self, x, n):
        return x.reshape(-1)[:n] + n


def test_sizes_are_computed_from_the_tensors_at_hand(stage):
    batch = tintype.Dim("batch", min=2)
    model = Sizes()
    shapes = {"x": {0: batch}, "y": {0: batch}}
    program = exported(stage, model, (X, X), dynamic_shapes=shapes)
    module = tintype.unflatten(program)
    for rows in (3, 2, 7):
        given = torch.randn(rows, 4), torch.randn(rows, 4)
        assert_same(module(*given), model(*given))
    inner = module.inner
    assert len(inner.graph.find_nodes(op="placeholder")) == 1  # the number is twice the size of its one tensor
    assert_same(inner(torch.ones(5, 4)), Flattens()(torch.ones(5, 4), 10))
    with pytest.raises(tintype.TintypeError, match="to be equal to 3"):
        module(torch.randn(3, 4), torch.randn(4, 4))


class FromData(nn.Module):
    """A number from one module's data, used in another."""

    def __init__(self) -> None:
        super().__init__()
        self.read, self.cut = Reads(), Cuts()

    def forward(self, x, n):
        count = self.read(n)
        return self.cut(x, count), count


class Reads(nn.Module):
    def forward(self, n):
        count = n.item()
        torch._check(count >= 0)
        torch._check(count <= 3)
        return count


class Cuts(nn.Module):
    def forward(self, x, count):
        return x[:count] * 2


def test_numbers_from_data_cross_borders_and_assertions_stay(stage):
    module = tintype.unflatten(exported(stage, FromData(), (X, torch.tensor(2))))
    for number in (0, 1, 3):
        assert_same(module(X, torch.tensor(number)), FromData()(X, torch.tensor(number)))
    assert any("_assert_scalar" in name for name in operators_of(module.read))
    with pytest.raises(RuntimeError, match="range for 4 between \\[0, 3\\]"):
        module(X, torch.tensor(4))


# --- preserved signatures ----------------------------------------------------------------------------------


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, query, others, *, mask=None, scale=1):
        result = self.linear(query) * scale + others["value"]
        return {"result": result, "others": [others["key"], result.shape[0]], "nothing": None}


class Preserved(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = Attention()

    def forward(self, x, y):
        first = self.attention(x, {"value": y, "key": x}, scale=2)
        second = self.attention(first["result"], {"value": x, "key": y}, mask=None, scale=2)
        return first["others"][0] + second["result"], second["others"][1]


def test_a_preserved_signature_is_that_of_the_model(stage):
    model = Preserved()
    program = exported(stage, model, (X, X + 1), preserve_module_call_signature=("attention",))
    program.validate()
    entries = {entry.fqn: entry.signature for entry in program.module_call_graph}
    assert list(entries) == ["", "attention", "attention@1", "attention.linear"]
    first = entries["attention"]
    assert [a.name for a in first.inputs] == ["x", "y", "x", ""]
    assert first.in_spec.num_leaves == 4 and entries["attention.linear"] is None
    names = {node.name for node in program.graph.nodes}
    for signature in (first, entries["attention@1"]):
        assert all(a.name in names for a in (*signature.inputs, *signature.outputs) if a.name)
    module = tintype.unflatten(program)
    assert_same(module(X, X + 1), model(X, X + 1))
    given = (X, {"value": X, "key": X})
    assert_same(module.attention(*given, scale=2), model.attention(*given, scale=2))
    assert_same(torch.fx.Interpreter(module).run(X, X + 1), model(X, X + 1))

    class Another(nn.Module):
        def forward(self, query, others, *, mask=None, scale):
            return {"nothing": None, "result": query + scale, "others": [others["key"], 9]}

    for name in ("attention", "attention@1"):
        module.set_submodule(name, Another())
    model.attention = Another()
    assert_same(module(X, X + 1)[0], model(X, X + 1)[0])


def test_signatures_of_all_ways_of_calling_a_module_are_preserved_again(stage):
    model = Preserved()
    wanted = {"preserve_module_call_signature": ("attention",)}
    first = exported(stage, model, (X, X + 1), **wanted)
    module = tintype.unflatten(first)
    assert hasattr(module, "attention@1")
    again = exported(stage, module, (X, X + 1), **wanted)
    entries = {entry.fqn: entry.signature for entry in again.module_call_graph}
    assert list(entries) == ["", "attention", "attention@1", "attention.linear"]
    for entry in first.module_call_graph[1:3]:
        assert str(entries[entry.fqn].in_spec) == str(entry.signature.in_spec)
    made = tintype.unflatten(again)
    assert_same(made(X, X + 1), model(X, X + 1))
    given = (X, {"value": X, "key": X})
    assert_same(getattr(made, "attention@1")(*given, mask=None, scale=2), model.attention(*given, scale=2))


def test_a_replacement_must_return_what_the_module_returned():
    program = tintype.export(Preserved(), (X, X), preserve_module_call_signature=["attention"])
    module = tintype.unflatten(program)

    class Wrong(nn.Module):
        def forward(self, *args, **kwargs):
            return args[0]

    module.attention = Wrong()
    with pytest.raises(tintype.TintypeError, match="where the original module returned"):
        module(X, X)


def test_a_module_that_computes_nothing_is_there_but_not_called(stage):
    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.identity = nn.Identity()

        def forward(self, x):
            return self.identity(x) + 1

    module = tintype.unflatten(exported(stage, Outer(), (X,), preserve_module_call_signature=("identity",)))
    assert hasattr(module, "identity") and calls_of(module) == []
    assert_same(module(X), X + 1)


def test_preserved_with_varying_sizes(stage):
    batch = tintype.Dim("batch", min=2)
    shapes = {"x": {0: batch}, "y": {0: batch}}
    program = exported(
        stage, Sizes(), (X, X), dynamic_shapes=shapes, preserve_module_call_signature=("inner", "linear")
    )
    module = tintype.unflatten(program)
    for rows in (3, 7):
        given = torch.randn(rows, 4), torch.randn(rows, 4)
        copied = copy.deepcopy(module)
        eager = Sizes()
        eager.linear = copied.linear
        assert_same(copied(*given), eager(*given))
        assert_same(module.inner(given[0], 2 * rows), Flattens()(given[0], 2 * rows))


def test_the_model_keeps_its_hooks_and_no_others():
    model = Preserved()
    seen = []
    model.attention.register_forward_hook(lambda *given: seen.append("user"))
    before = (dict(model.attention._forward_hooks), dict(model.attention._forward_pre_hooks))
    tintype.export(model, (X, X), preserve_module_call_signature=("attention",))
    assert (dict(model.attention._forward_hooks), dict(model.attention._forward_pre_hooks)) == before
    assert not model.attention._forward_pre_hooks_with_kwargs

    class Fails(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, x):
            self.linear(x)
            raise ValueError("mine")

    failing = Fails()
    with pytest.raises(ValueError, match="mine"):
        tintype.export(failing, (X,), preserve_module_call_signature=("linear",))
    assert not failing.linear._forward_pre_hooks and not failing.linear._forward_hooks


def test_what_can_not_be_preserved_is_said():
    with pytest.raises(tintype.TintypeError, match="names 'missing', but the model has no such module"):
        tintype.export(Preserved(), (X, X), preserve_module_call_signature=("missing",))
    with pytest.raises(tintype.TintypeError, match="sequence of paths of modules, but got the string"):
        tintype.export(Preserved(), (X, X), preserve_module_call_signature="attention")

    class Config:
        pass

    class TakesObject(nn.Module):
        def forward(self, x, config):
            return x + 1

    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = TakesObject()

        def forward(self, x):
            return self.inner(x, Config())

    with pytest.raises(tintype.TintypeError, match="an argument of TakesObject is a Config"):
        tintype.export(Outer(), (X,), preserve_module_call_signature=("inner",))


def test_a_value_behind_a_signatures_back_is_refused():
    class Keeps(nn.Module):
        def forward(self, x, store):
            store.append(x * 2)
            return x + 1

    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.keeps = Keeps()

        def forward(self, x):
            store = []
            self.store = None
            y = self.keeps(x, store)
            return y + store[0]

    program = tintype.export(Outer(), (X,), preserve_module_call_signature=("keeps",))
    with pytest.raises(tintype.TintypeError, match="'mul', which is computed in it and is none of its results"):
        tintype.unflatten(program)
    plain = tintype.unflatten(tintype.export(Outer(), (X,)))
    assert_same(plain(X), Outer()(X))


# --- other uses --------------------------------------------------------------------------------------------


def test_an_unflattened_program_is_exported_again():
    model = Shared().eval()
    module = tintype.unflatten(tintype.export(model, (X,)))
    program = tintype.export(module, (X,))
    assert_same(program.module()(X), model(X))
    assert sorted(program.state_dict) == sorted(model.state_dict())
    assert program.graph_signature.user_inputs == ("x",)
    assert_same(tintype.unflatten(program)(X), model(X))


def test_gradients_flow_through_it():
    model = Model().eval()
    module = tintype.unflatten(tintype.export(copy.deepcopy(model), (X,)))
    module(X).sum().backward()
    model(X).sum().backward()
    for name, parameter in model.named_parameters():
        assert_same(module.get_parameter(name).grad, parameter.grad)


def test_branches_inside_of_branches_run_once_where_gradients_are_wanted():
    calls = []
    with torch.library._scoped_library("tintype_unflatten", "DEF") as library:
        library.define("note(Tensor x) -> ()")
        library.impl("note", lambda x: calls.append(x), "CPU")
        library.impl("note", lambda x: None, "Meta")

        def noting(x):
            torch.ops.tintype_unflatten.note(x)
            return x * 2

        def outer(x):
            return tintype.cond(x.sum() > 1, noting, lambda x: x * 3, (x,)) + 1

        def model(x):
            return tintype.cond(x.sum() > 0, outer, lambda x: x - 1, (x,))

        module = tintype.unflatten(tintype.export(model, (torch.ones(3),)))
        x = torch.ones(3, requires_grad=True)
        module(x).sum().backward()
        assert len(calls) == 1 and x.grad.tolist() == [2, 2, 2]

        branch = module.true_graph_0.true_graph_0  # what is edited is seen
        (product,) = branch.graph.find_nodes(op="call_function", target=torch.ops.aten.mul.Tensor)
        product.args = (product.args[0], 5)
        branch.recompile()
        module.true_graph_0.recompile()
        assert module(x).tolist() == [6, 6, 6]


def test_code_and_text():
    module = tintype.unflatten(tintype.export(Model().eval(), (X,)))
    assert "self.head" in module.code
    text = module.print_readable(print_output=False)
    assert "# blocks.0.linear" in text and "torch.ops.aten.linear.default" in text


def test_state_called_like_an_attribute():
    class Names(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.graph = nn.Linear(4, 4)
            self.code = nn.Linear(4, 4)

        def forward(self, x):
            return self.code(self.graph(x))

    model = Names()
    module = tintype.unflatten(tintype.export(model, (X,)))
    assert_same(module(X), model(X))
    assert list(module.state_dict()) == list(model.state_dict())


def test_a_lost_buffer_is_reported():
    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.holder = nn.Module()
            self.holder.register_buffer("count", torch.zeros(()))

        def forward(self, x):
            self.holder.count = self.holder.count + 1
            return x * 2

    module = tintype.unflatten(tintype.export(Outer(), (X,)))
    module(X)
    assert module.holder.count == 1


def test_the_time_grows_with_the_graph():
    def seconds(layers: int) -> float:
        model = nn.Sequential(*(nn.Sequential(nn.Linear(4, 4), nn.ReLU()) for _ in range(layers)))
        program = tintype.export(model, (X,))
        best = float("inf")
        for _ in range(3):
            start = time.process_time()
            tintype.unflatten(program)
            best = min(best, time.process_time() - start)
        return best

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert seconds(400) < 20 * seconds(50)  # 8 times would be linear, 64 times quadratic


def _branch(x: torch.Tensor) -> torch.Tensor:
    return x * 2 if x.sum() > 0 else x - 1


def _loop(x: torch.Tensor) -> torch.Tensor:
    while x.norm() > 3:
        x = x / 2
    return x


def _rows(x: torch.Tensor) -> torch.Tensor:
    return tintype.scan(lambda carry, row: (carry + row, carry * row), torch.zeros(4), x)[1]


def _nested(x: torch.Tensor) -> torch.Tensor:
    if x.sum() > 0:
        return _loop(x) if x.max() > 2 else x.sin()
    return tintype.map(lambda row: row.cumsum(0), x)


class _Chosen(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return tintype.cond(x.sum() > 0, self.up, self.down, (x,))


@pytest.mark.parametrize("copied", [False, True], ids=["as made", "copied"])
@pytest.mark.parametrize("strict", [False, True], ids=["native", "strict"])
@pytest.mark.parametrize("model", [_branch, _loop, _rows, _nested, _Chosen()])
def test_a_tree_with_control_flow_is_exported_again(model: Any, strict: bool, copied: bool) -> None:
    x = torch.randn(3, 4)
    program = tintype.export(model, (x,))
    tree = tintype.unflatten(program)
    again = tintype.export(copy.deepcopy(tree) if copied else tree, (x,), strict=strict)
    targets = [str(node.target) for node in program.graph.nodes if node.op == "call_function"]
    assert [str(node.target) for node in again.graph.nodes if node.op == "call_function"] == targets
    for given in (x, x.abs() * 5, -x.abs(), x / 10):
        expected = model(given)
        torch.testing.assert_close(again.module()(given), expected)
        torch.testing.assert_close(tree(given), expected)
        torch.testing.assert_close(tintype.unflatten(again)(given), expected)


class Splitting(nn.Module):
    """Takes and returns more than is needed."""

    def forward(self, x: torch.Tensor, values: torch.Tensor, indices: torch.Tensor) -> Any:
        first, second = (x + values).topk(2)
        return first, (indices, second)


class Wasteful(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Splitting()

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return self.inner(x, *y.topk(3))[0]


@pytest.mark.parametrize("decomposed", [False, True])
def test_dead_code_is_taken_out_before(decomposed: bool) -> None:
    """A module with a preserved signature gets, and gives, None where the graph has a value no more."""
    args = (torch.randn(3), torch.randn(5))
    program = tintype.export(Wasteful(), args, preserve_module_call_signature=("inner",))
    if decomposed:
        program = program.run_decompositions()
    program.graph.eliminate_dead_code()
    module = tintype.unflatten(program)
    torch.testing.assert_close(module(*args), Wasteful()(*args))
    first, (indices, second) = module.inner(args[0], torch.ones(3), None)
    assert indices is None and second is None
    torch.testing.assert_close(first, (args[0] + 1).topk(2).values)
    module.inner = Splitting()
    torch.testing.assert_close(module(*args), Wasteful()(*args))


class Stepping(nn.Module):
    """A keyword argument, a container and a written buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Scaling(), Scaling()
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> Any:
        self.count += 1
        return {"result": self.second(self.first(x, by={"scale": 2.0})[0], by={"scale": self.count})}


class Scaling(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x: torch.Tensor, *, by: Any) -> Any:
        return [self.layer(x) * by["scale"]]


@pytest.mark.parametrize("preserved", [(), ("first", "second")])
@pytest.mark.parametrize("export", [tintype.export, tintype.export_for_training])
def test_fx_traces_a_tree(export: Any, preserved: tuple[str, ...]) -> None:
    """Nothing is asked of values that are not there yet; what is computed from parameters follows them."""
    torch.manual_seed(0)
    model, x = Stepping(), torch.randn(2, 3)
    module = tintype.unflatten(export(copy.deepcopy(model), (x,), preserve_module_call_signature=preserved))
    with pytest.raises(tintype.InvalidRequestError, match="no form for calls that write to state"):
        torch.fx.symbolic_trace(module, concrete_args=(torch.fx.PH,))
    assert module.count == 0
    layers = nn.utils.parametrizations.weight_norm(nn.Linear(3, 3))
    model = nn.Sequential(layers, nn.ReLU())
    module = tintype.unflatten(export(model, (x,), preserve_module_call_signature=("0",) if preserved else ()))
    traced = torch.fx.symbolic_trace(module, concrete_args=(torch.fx.PH,))
    assert not any(node.op == "call_module" for node in traced.graph.nodes)
    for parameter in (*model.parameters(), *traced.parameters()):
        parameter.data.mul_(2)
    torch.testing.assert_close(traced(x), model(x))


@pytest.mark.parametrize("preserved", [(), ("first", "second")])
@pytest.mark.parametrize("export", [tintype.export, tintype.export_for_training])
def test_torch_compiles_a_tree_in_one_graph(export: Any, preserved: tuple[str, ...]) -> None:
    torch.manual_seed(0)
    torch._dynamo.reset()
    model, sizes = Stepping(), {"x": {0: tintype.Dim("rows")}}
    program = export(
        copy.deepcopy(model), (torch.randn(2, 3),), dynamic_shapes=sizes, preserve_module_call_signature=preserved
    )
    module = tintype.unflatten(program)
    module.first.compile(backend="eager", fullgraph=True)
    for rows in (2, 5):
        x = torch.randn(rows, 3)
        torch.testing.assert_close(module(x), model(x))
    module = torch.compile(tintype.unflatten(program), backend="eager", fullgraph=True)
    model.count.zero_()
    for rows in (2, 5, 1):
        x = torch.randn(rows, 3)
        torch.testing.assert_close(module(x), model(x))
