"""Modules: state and its names, attributes that are written to, methods, interfaces, hierarchy, origins; and what
``torch.jit.trace`` and ``torch.jit.freeze`` make of them."""

import copy
import io
from typing import Any, Dict, List, Optional

import pytest
import torch
from torch import nn

import tintype
from tests.interop.torchscript.comparing import compare, converted, from_file
from tintype import errors

X, Y = torch.randn(4, 3), torch.randn(4, 3)
BATCH = {"x": {0: tintype.Dim("batch")}}


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.norm = nn.BatchNorm1d(3)
        self.scale = nn.Parameter(torch.tensor(2.0))
        self.register_buffer("shift", torch.ones(3))

    def forward(self, x):
        return self.norm(self.linear(x)).relu() * self.scale + self.shift


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block(), Block()])
        self.head = nn.Sequential(nn.Linear(3, 2), nn.Tanh())

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


@pytest.mark.parametrize("training", [False, True])
def test_a_model_at_several_sizes(training: bool) -> None:
    model = Model().train(training)
    program = compare(model, (X,), (torch.randn(7, 3),), (torch.randn(2, 3),), dynamic_shapes=BATCH)
    assert set(program.state_dict) == set(model.state_dict())
    assert set(program.graph_signature.parameters) == {name for name, _ in model.named_parameters()}


def test_modules_and_lines() -> None:
    program = converted(from_file(torch.jit.script(Model().eval())), (X,))
    linears = [node for node in program.graph.nodes if node.target is torch.ops.aten.linear.default]
    stacks = [[path for path, _ in node.meta["nn_module_stack"].values()] for node in linears]
    assert stacks == [
        ["", "blocks.0", "blocks.0.linear"],
        ["", "blocks.1", "blocks.1.linear"],
        ["", "head", "head.0"],
    ]
    multiplied = next(node for node in program.graph.nodes if node.target is torch.ops.aten.mul.Tensor)
    assert "return self.norm(self.linear(x)).relu() * self.scale" in multiplied.meta["stack_trace"]
    assert __file__ in multiplied.meta["stack_trace"]


def test_unflatten() -> None:
    model = Model().eval()
    tree = tintype.unflatten(converted(torch.jit.script(model), (X,), BATCH))
    assert isinstance(tree.get_submodule("blocks.1.linear"), nn.Module)
    torch.testing.assert_close(tree(Y), model(Y))


def test_a_converted_program_goes_every_way() -> None:
    model = Model().eval()
    program = converted(torch.jit.script(model), (X,), BATCH)
    file = io.BytesIO()
    tintype.save(program, file)
    for other in (tintype.load(file), program.run_decompositions(), tintype.export(program.module(), (X,))):
        torch.testing.assert_close(other.module()(X), model(X))
    joint = tintype.export_for_training(torch.jit.script(model), (X,))
    torch.testing.assert_close(joint.module()(X), model(X))


def test_gradients_are_those_of_the_script() -> None:
    model = Model()
    script = torch.jit.script(copy.deepcopy(model))
    module = converted(torch.jit.script(model), (X,)).module()
    script(X).sum().backward()
    module(X).sum().backward()
    own = dict(module.named_parameters())
    for name, parameter in script.named_parameters():
        torch.testing.assert_close(own[name].grad, parameter.grad)


def test_tied_weights_stay_tied() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Linear(3, 3)
            self.b = nn.Linear(3, 3)
            self.b.weight = self.a.weight

        def forward(self, x):
            return self.b(self.a(x))

    compare(Tied(), (X,), (Y,))
    program = converted(from_file(torch.jit.script(Tied())), (X,))
    module = program.module()
    assert module.get_parameter("a.weight").data_ptr() == module.get_parameter("b.weight").data_ptr()


# --- attributes ------------------------------------------------------------------------------------------


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.factor = 1.0
        self.flag = False
        self.register_buffer("total", torch.zeros(3))

    def forward(self, x):
        self.calls += 1
        self.factor = self.factor * 0.5
        self.flag = not self.flag
        self.total = self.total + x.sum(0)
        if self.flag:
            x = x + 1
        if self.calls > 2:
            return x * self.factor, self.calls
        return x + self.total, self.calls


def test_what_is_counted_lasts_from_call_to_call() -> None:
    program = compare(Counting(), (X,), (Y,), (X,), (Y,))
    assert {"calls", "factor", "flag", "total"} <= set(program.state_dict)


class CountingInBranches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.positive = 0
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x):
        if x.sum() > 0:
            self.positive += 1
            self.seen = self.seen + 2
        return x * self.positive + self.seen


def test_attributes_written_in_branches() -> None:
    compare(CountingInBranches(), (torch.ones(2),), (-torch.ones(2),), (torch.ones(2),), (-torch.ones(2),))


class WritesAfterAnEarlyReturn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x):
        if x.sum() > 0:
            return x * self.calls
        self.calls += 1
        return x - self.calls


def test_attributes_written_after_an_early_return() -> None:
    up, down = torch.ones(2), -torch.ones(2)
    compare(WritesAfterAnEarlyReturn(), (up,), (down,), (up,), (down,), (up,))


class CountingInALoop(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.steps = 0

    def forward(self, x):
        while bool(x.sum() < 20):
            x = x + 1
            self.steps += 1
        return x, self.steps


def test_attributes_written_in_a_recorded_loop() -> None:
    compare(CountingInALoop(), (torch.ones(3),), (torch.zeros(3),), (torch.ones(3) * 10,))


class Attributes(nn.Module):
    names: List[str]
    table: Dict[str, float]
    maybe: Optional[torch.Tensor]
    nothing: Optional[torch.Tensor]

    def __init__(self) -> None:
        super().__init__()
        self.names = ["a", "b"]
        self.table = {"a": 1.5, "b": 2.5}
        self.maybe = torch.ones(3)
        self.nothing = None
        self.pieces = [torch.ones(3), torch.zeros(3)]
        self.pair = (3, "text")
        self.dtype = torch.float64
        self.written = torch.jit.Attribute(0, int)

    def forward(self, x):
        for name in self.names:
            x = x * self.table[name]
        maybe = self.maybe
        if maybe is not None:
            x = x + maybe
        if self.nothing is not None:
            x = x * 0
        return x + self.pieces[0] * self.pair[0], self.pair[1], x.to(self.dtype)


def test_attributes_of_every_kind() -> None:
    compare(Attributes(), (X,), (Y,))


class Remembering(nn.Module):
    cache: List[torch.Tensor]

    def __init__(self) -> None:
        super().__init__()
        self.cache = [torch.zeros(3)]

    def forward(self, x):
        self.cache.append(x)
        return x + self.cache[0]


class RememberingOptionally(nn.Module):
    last: Optional[torch.Tensor]

    def __init__(self) -> None:
        super().__init__()
        self.last = None

    def forward(self, x):
        last = self.last
        if last is not None:
            x = x + last
        self.last = x
        return x


@pytest.mark.parametrize("model", [Remembering, RememberingOptionally])
def test_memory_that_a_program_does_not_have_is_refused(model: Any) -> None:
    with pytest.raises(errors.StateChangedError):
        converted(torch.jit.script(model()), (torch.ones(3),))


class WritingBeforeReading(nn.Module):
    last: List[torch.Tensor]

    def __init__(self) -> None:
        super().__init__()
        self.last = []

    def forward(self, x):
        self.last = [x, x * 2]
        return self.last[1] + x


def test_what_is_written_before_it_is_read_is_no_memory() -> None:
    compare(WritingBeforeReading(), (X,), (Y,))


class WritingToState(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("state", torch.zeros(3))
        self.weight = nn.Parameter(torch.ones(3))

    def forward(self, x):
        self.state.mul_(0.5).add_(x.sum(0))
        view = self.state[:2]
        view.add_(1)
        return self.state * self.weight


def test_buffers_written_in_place() -> None:
    compare(WritingToState(), (X,), (Y,), (X,))


# --- methods, interfaces, hooks --------------------------------------------------------------------------


class WithMethods(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x):
        return self.decode(self.encode(x))

    @torch.jit.export
    def encode(self, x):
        return self.linear(x)

    @torch.jit.export
    def decode(self, x):
        return x * 2

    @torch.jit.export
    def both(self, x):
        return self.forward(x) + self.encode(x)


def test_methods() -> None:
    script = torch.jit.script(WithMethods())
    for name in ("encode", "decode", "both", "forward"):
        method = getattr(script, name)
        program = tintype.export(method, (X,), dynamic_shapes=BATCH)
        torch.testing.assert_close(program.module()(Y[:2]), method(Y[:2]))
    assert set(tintype.export(script.encode, (X,)).state_dict) == {"linear.weight", "linear.bias"}


def test_submodules() -> None:
    script = torch.jit.script(Model().eval())
    program = tintype.export(script.blocks[0], (X,))
    torch.testing.assert_close(program.module()(Y), script.blocks[0](Y))


@torch.jit.interface
class Step(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pass


class Doubled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return x * 2 * self.calls


class UsingAnInterface(nn.Module):
    step: Step

    def __init__(self) -> None:
        super().__init__()
        self.step = Doubled()

    def forward(self, x):
        return self.step.forward(x) + 1


def test_interfaces() -> None:
    compare(UsingAnInterface(), (X,), (Y,), (X,))


class Indexing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.steps = nn.ModuleList([Doubled(), Doubled()])
        self.named = nn.ModuleDict({"first": nn.Linear(3, 3), "second": nn.Linear(3, 3)})

    def forward(self, x):
        for i, step in enumerate(self.steps):
            x = step(x) + i
        for name, step in self.named.items():
            x = step(x) + len(name)
        return self.named["first"](x)


def test_module_lists_and_dictionaries() -> None:
    compare(Indexing(), (X,), (Y,))


class UsingDropout(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.dropout = nn.Dropout(0.5)

    def forward(self, x):
        return self.dropout(x) * 2 + torch.rand_like(x)


@pytest.mark.parametrize("training", [False, True])
def test_the_training_flag_and_random_numbers(training: bool) -> None:
    compare(UsingDropout().train(training), (X,), (Y,))


def test_custom_operators() -> None:
    library = torch.library.Library("tintype_scripts", "FRAGMENT")
    library.define("tripled(Tensor x) -> Tensor")
    library.impl("tripled", lambda x: x * 3, "CompositeExplicitAutograd")
    torch.library.register_fake("tintype_scripts::tripled", lambda x: torch.empty_like(x), lib=library)

    def function(x):
        return torch.ops.tintype_scripts.tripled(x) + 1

    program = compare(function, (X,), (Y,))
    assert any("tripled" in str(node.target) for node in program.graph.nodes)
    library._destroy()


@pytest.mark.parametrize(
    "model, args",
    [
        (nn.TransformerEncoderLayer(8, 2, 16).eval(), (torch.randn(5, 2, 8),)),
        (nn.MultiheadAttention(8, 2).eval(), (torch.randn(5, 2, 8),) * 3),
        (nn.GRUCell(3, 4), (X,)),
        (nn.Conv2d(3, 4, 3, padding=1), (torch.randn(2, 3, 8, 8),)),
        (nn.Upsample(scale_factor=2.0, mode="bilinear"), (torch.randn(2, 3, 4, 4),)),
        (nn.GroupNorm(2, 4), (torch.randn(2, 4, 5),)),
        (nn.AdaptiveAvgPool2d((2, 2)), (torch.randn(2, 3, 8, 8),)),
        (nn.Embedding(10, 3), (torch.tensor([1, 2]),)),
        (nn.CrossEntropyLoss(), (torch.randn(3, 4), torch.tensor([1, 2, 3]))),
    ],
    ids=lambda value: type(value).__name__,
)
def test_modules_of_torch(model: nn.Module, args: Any) -> None:
    compare(model, args)


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(3, 4, num_layers=2, batch_first=True)

    def forward(self, x):
        output, (hidden, _) = self.lstm(x)
        return output, hidden


def test_recurrent_layers() -> None:
    shapes = {"x": {0: tintype.Dim("batch")}}
    compare(Recurrent(), (torch.randn(2, 5, 3),), (torch.randn(3, 5, 3),), dynamic_shapes=shapes)


# --- traced and frozen ------------------------------------------------------------------------------------


class Reshaping(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 2)

    def forward(self, x):
        y = x.reshape(x.size(0), -1)
        half = y.size(1) // 2
        return self.linear(y)[:, :1] + y[:, :half].sum(1, keepdim=True) * x.size(0)


def test_traced_with_a_batch_that_varies() -> None:
    model = Reshaping()
    traced = torch.jit.trace(model, (torch.randn(4, 2, 3),))
    for script in (traced, from_file(traced)):
        program = converted(script, (torch.randn(4, 2, 3),), BATCH).module()
        for rows in (1, 2, 4, 9):
            x = torch.randn(rows, 2, 3)
            torch.testing.assert_close(program(x), model(x))


def test_traced_modules_keep_their_modules() -> None:
    traced = torch.jit.trace(Model().eval(), (X,))
    program = converted(traced, (X,))
    assert {"blocks.0.linear", "head.0"} <= {entry.fqn for entry in program.module_call_graph}
    scaled = next(node for node in converted(from_file(traced), (X,)).graph.nodes if node.name == "mul")
    line = Block.forward.__code__.co_firstlineno + 1
    assert f'File "{__file__}", line {line}, in forward' in scaled.meta["stack_trace"]
    assert "_trace.py" not in scaled.meta["stack_trace"]
    torch.testing.assert_close(program.module()(Y), traced(Y))


def test_a_size_that_tracing_made_a_number_is_told() -> None:
    class Fixing(nn.Module):
        def forward(self, x):
            return x.reshape(int(x.size(0)) * 3)

    with pytest.warns(torch.jit.TracerWarning):
        traced = torch.jit.trace(Fixing(), (X,))
    torch.testing.assert_close(converted(traced, (X,)).module()(Y), Y.reshape(12))
    with pytest.raises(tintype.ConstraintViolationError):
        converted(traced, (X,), BATCH)


def test_traced_functions_and_frozen_modules() -> None:
    traced = torch.jit.trace(lambda x: x.cos() + x.t().sin().t(), (X,))
    torch.testing.assert_close(converted(traced, (X,)).module()(Y), traced(Y))
    model = Model().eval()
    frozen = torch.jit.freeze(torch.jit.script(model))
    program = converted(frozen, (X,), BATCH)
    torch.testing.assert_close(program.module()(Y[:2]), model(Y[:2]))
    optimized = torch.jit.optimize_for_inference(torch.jit.script(model))
    torch.testing.assert_close(converted(optimized, (X,)).module()(Y), model(Y))


def test_traced_dropout_is_what_it_was_when_traced() -> None:
    traced = torch.jit.trace(UsingDropout().train(), (X,), check_trace=False)
    compare(traced, (X,), (Y,))


# --- what can't be converted -------------------------------------------------------------------------------


class Ignoring(nn.Module):
    @torch.jit.ignore
    def first(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1

    @torch.jit.ignore
    def second(self, x: torch.Tensor) -> torch.Tensor:
        return x + 2

    def forward(self, x):
        y = self.first(x)
        return self.second(y)


def test_one_report_of_everything() -> None:
    with pytest.raises(errors.CaptureReport) as caught:
        converted(torch.jit.script(Ignoring()), (X,))
    assert len(caught.value.problems) == 2
    lines = [problem.location.line for problem in caught.value.problems]
    assert lines == sorted(lines) and all(problem.location.filename == __file__ for problem in caught.value.problems)


def test_what_is_no_script() -> None:
    with pytest.raises(errors.InvalidRequestError, match="scripted or traced"):
        tintype.interop.from_torchscript(nn.Linear(2, 2), (X,))


def test_a_failing_conversion_leaves_the_script_as_it_was() -> None:
    script = torch.jit.script(Counting())
    before = {name: value.clone() for name, value in script.state_dict().items()}
    converted(script, (X,))
    assert script.calls == 0
    for name, value in script.state_dict().items():
        torch.testing.assert_close(value, before[name])
