"""The code that asks guards and does calls: what is written once, and what is noticed all the same."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import tintype
from tintype.compiler.trace import Call


class Layer(nn.Module):
    def __init__(self, number: int) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.scale = 2.0
        self.number = number

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x) * self.scale
        return y.relu() if self.training else y


def layers(count: int = 4) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*(Layer(number) for number in range(count)))


def scale(model: Any) -> None:
    model[2].scale = 3.0


def other_parameter(model: Any) -> None:
    model[2].linear.weight = nn.Parameter(torch.ones(3, 3))


def other_module(model: Any) -> None:
    model[2].linear = nn.Sequential(nn.Linear(3, 3), nn.Tanh())


def hook(model: Any) -> None:
    model[2].linear.register_forward_hook(lambda module, args, result: result + 1)


def mode(model: Any) -> None:
    model[2].eval()


def removal(model: Any) -> None:
    del model[2].linear
    model[2].linear = torch.tanh


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("change", [scale, other_parameter, other_module, hook, mode, removal])
def test_what_is_asked_of_all_layers_is_written_once_and_asked_of_each(change: Any, backend: str) -> None:
    model = layers()
    compiled = tintype.compile(lambda x: model(x), backend=backend)
    x = torch.randn(2, 3)
    for _ in range(2):
        assert torch.equal(compiled(x), model(x))
    assert compiled.engine.captures == 1
    assert compiled.engine.program.functions, "no guards of the layers are written once"
    change(model)
    for _ in range(2):
        assert torch.equal(compiled(x), model(x))
    assert compiled.engine.captures == (1 if change is other_parameter else 2)


def test_the_code_of_many_layers_grows_by_their_calls_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    from tintype.compiler import program

    lengths = []
    real = compile

    def measured(source: str, *args: Any) -> Any:
        lengths.append(len(source))
        return real(source, *args)

    monkeypatch.setattr(program, "compile", measured, raising=False)
    x = torch.randn(2, 3)
    for count in (8, 16):
        compiled = tintype.compile(layers(count))
        for _ in range(2):  # it is written when it is called again
            compiled(x)
    few, many = lengths[0] + lengths[1], lengths[2] + lengths[3]
    assert (many - few) / 8 < 700, (few, many)


def fails_late(x: torch.Tensor, rows: int) -> torch.Tensor:
    try:
        y = (x + 1).sin() * 2
        z = y.view(rows, -1)
    except RuntimeError:
        return x - 1
    return z.cos()


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_call_among_others_that_raises_what_the_program_catches(backend: str) -> None:
    compiled = tintype.compile(lambda x: fails_late(x, 4), backend=backend)
    fits, fits_not = torch.randn(2, 4), torch.randn(3, 3)
    for x in (fits, fits, fits_not, fits_not, fits):
        assert torch.equal(compiled(x), fails_late(x, 4))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_call_among_others_that_raises_what_nobody_catches(backend: str) -> None:
    def taken(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        try:
            return (x * 2).sin().index_select(0, index + 1) + 1
        finally:
            done.append(1)

    done: list[int] = []
    compiled = tintype.compile(taken, backend=backend)
    x, good, bad = torch.randn(3), torch.tensor([0, 1]), torch.tensor([7])
    for _ in range(2):
        assert torch.equal(compiled(x, good), taken(x, good))
    for _ in range(3):
        with pytest.raises(IndexError):
            compiled(x, bad)
        compiled(x, good)
    assert len(done) == 4 + 6


class FailsAtFirst:
    """A backend whose graphs fail once they are used, but for the first time."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, graph_module: Any, example_inputs: Any) -> Any:
        def run(*inputs: Any) -> Any:
            self.calls += 1
            raise RuntimeError("no memory for the graph")

        return run


def test_a_graph_of_a_backend_that_fails_is_done_call_by_call() -> None:
    backend = FailsAtFirst()
    names = [f"t{number}" for number in range(12)]

    def total(**tensors: torch.Tensor) -> torch.Tensor:
        result = tensors["t0"] * 2
        for name in names[1:]:
            result = result + tensors[name].sin()
        return result * 2

    compiled = tintype.compile(total, backend=backend)
    tensors = {name: torch.randn(3) for name in names}
    for _ in range(3):
        assert torch.equal(compiled(**tensors), total(**tensors))
    assert backend.calls == 2 and compiled.engine.captures == 1


class Asked:
    """Counts who asks for its attributes."""

    def __init__(self) -> None:
        self.values = {"scale": 2.0, "shift": 1.0}
        self.asked: list[str] = []

    def __getattribute__(self, name: str) -> Any:
        if name not in ("asked", "values", "__dict__"):
            object.__getattribute__(self, "asked").append(name)
        return object.__getattribute__(self, name)

    def scaled(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.values["scale"] + self.values["shift"]


def test_who_watches_asks_objects_for_nothing() -> None:
    def applied(x: torch.Tensor) -> torch.Tensor:
        return asked.scaled(x) + getattr(asked, "missing", 1)

    asked = Asked()
    applied(torch.ones(2))
    by_eager = asked.asked.copy()
    asked.asked.clear()
    tintype.compile(applied)(torch.ones(2))
    assert "__class__" not in asked.asked
    assert asked.asked == by_eager


class Counter:
    total = 0

    def __init__(self) -> None:
        self.count = 1
        self.names = ["a"]


TOTALS: dict[str, Any] = {"name": "first"}
WORD = "first"


def writes_between_reads(x: torch.Tensor, counter: Counter) -> Any:
    global WORD
    seen = [WORD, WORD, counter.names, counter.count, Counter.total]
    WORD = "second"
    seen += [WORD, WORD]
    counter.names = ["b"]
    seen += [counter.names, counter.names]
    object.__setattr__(counter, "names", ["c"])
    seen += [counter.names[0], counter.names[0]]
    counter.__dict__["names"] = ["d"]
    seen += [counter.names[0], counter.names]
    Counter.total = "many"
    seen += [Counter.total, counter.total]
    TOTALS["name"] = "other"
    seen += [TOTALS["name"], TOTALS["name"]]
    WORD = "first"
    return [str(item) for item in seen], x + len(seen)


def test_what_is_read_again_after_a_write_is_what_was_written() -> None:
    def run(function: Any) -> Any:
        counter = Counter()
        Counter.total, TOTALS["name"] = 0, "first"
        words, result = function(torch.ones(2), counter)
        return words, result.tolist(), counter.names, Counter.total, TOTALS

    expected = run(writes_between_reads)
    compiled = tintype.compile(writes_between_reads)
    for _ in range(3):
        assert run(compiled) == expected


def test_results_that_are_views_need_no_search_for_their_graph() -> None:
    def first_rows(x: torch.Tensor, weight: torch.Tensor) -> Any:
        y = (x @ weight).sin()
        return y, y[:1], x[:1], x

    compiled = tintype.compile(first_rows, backend="aot_eager")
    weight = torch.randn(3, 3)
    for needs in (False, True):
        for _ in range(3):
            x = torch.randn(2, 3, requires_grad=needs)
            expected, found = first_rows(x, weight), compiled(x, weight)
            assert all(torch.equal(one, other) for one, other in zip(expected, found, strict=True))
            assert found[1]._base is found[0] or found[1].data_ptr() == found[0].data_ptr()
            assert found[2].data_ptr() == x.data_ptr() and found[3] is x
            assert [tensor.requires_grad for tensor in found] == [tensor.requires_grad for tensor in expected]
            if needs:
                (one,) = torch.autograd.grad(sum(tensor.sum() for tensor in expected), x)
                (other,) = torch.autograd.grad(sum(tensor.sum() for tensor in found), x)
                assert torch.allclose(one, other)
    runs = [graph.run for graph in graphs_of(compiled)]
    assert runs
    for run in runs:
        assert run.why_slow is None, run.why_slow


def graphs_of(compiled: Any) -> list[Any]:
    items = [item for node in compiled.engine.program.nodes for item in node.items]
    return [item.graph for item in items if isinstance(item, Call) and item.graph is not None]


def test_a_graph_in_training_returns_what_the_program_returns() -> None:
    model = layers()

    def states(x: torch.Tensor) -> Any:
        kept = {}
        for number, layer in enumerate(model):
            x = layer(x)
            kept[f"{number}"] = x
        if kept["0"] is kept["3"]:  # tells two results apart, after all calls
            return x
        return kept["3"] if model.training else kept

    compiled = tintype.compile(states, backend="aot_eager")
    x = torch.randn(2, 3)
    for _ in range(3):
        expected, found = states(x), compiled(x)
        assert torch.equal(expected, found)
        expected.sum().backward()
        gradients = [parameter.grad.clone() for parameter in model.parameters()]
        model.zero_grad()
        found.sum().backward()
        assert all(map(torch.allclose, gradients, [parameter.grad for parameter in model.parameters()]))
        model.zero_grad()
    (graph,) = graphs_of(compiled)
    assert len(graph.outputs) == 1


def test_a_result_that_is_what_went_in_is_told_apart_by_calls() -> None:
    def same_or_not(x: torch.Tensor, dtype: torch.dtype) -> Any:
        y = x.to(dtype)
        z = x.contiguous()
        return (y is x, z is x, y is z), y + z

    compiled = tintype.compile(same_or_not, backend="aot_eager")
    turned = torch.randn(2, 3).t()
    for x in (torch.randn(2, 3), turned, torch.randn(3, 2, dtype=torch.float64), turned):
        for dtype in (torch.float32, torch.float64):
            expected, found = same_or_not(x, dtype), compiled(x, dtype)
            assert expected[0] == found[0] and torch.equal(expected[1], found[1])


class Nested(nn.Module):
    """What the layers of a layer are asked stands in the middle of what it is asked itself."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = Layer(0), Layer(1)
        self.width = width
        self.norm = nn.LayerNorm(3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(self.first(x))
        return self.second(y) + x if self.width > 2 else y


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("layer", [0, 5, 7])
@pytest.mark.parametrize("change", ["width", "scale", "weight", "hook", "type"])
def test_a_change_in_any_of_many_layers_that_are_asked_alike_is_noticed(
    change: str, layer: int, backend: str
) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(*(Nested(3) for _ in range(8)))
    compiled = tintype.compile(lambda x: model(x), backend=backend)
    x = torch.randn(2, 3)
    for _ in range(2):
        assert torch.equal(compiled(x), model(x))
    one: Any = model[layer]
    if change == "width":
        one.width = 1
    elif change == "scale":
        one.second.scale = 7
    elif change == "weight":
        one.second.linear.weight.data = one.second.linear.weight.data.t()
    elif change == "hook":
        one.norm.register_forward_hook(lambda module, args, result: result * 2)
    else:
        one.first = nn.Tanh()
    for _ in range(2):
        assert torch.equal(compiled(x), model(x))
    assert compiled.engine.captures == (1 if change == "weight" and backend == "eager" else 2)


def test_the_code_of_guards_grows_by_the_kinds_of_layers_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    from tintype.compiler import program

    lengths: dict[int, int] = {}
    real = compile
    x = torch.randn(2, 3)
    for count in (8, 16):

        def measured(source: str, *args: Any, count: int = count) -> Any:
            lengths[count] = lengths.get(count, 0) + len(source)
            return real(source, *args)

        monkeypatch.setattr(program, "compile", measured, raising=False)
        compiled = tintype.compile(nn.Sequential(*(Nested(3) for _ in range(count))), backend="aot_eager")
        for _ in range(2):  # it is written when it is called again
            compiled(x)
    assert (lengths[16] - lengths[8]) / 8 < 400, lengths


def test_what_is_fetched_once_is_there_whoever_uses_it_first() -> None:
    from tintype.compiler import guard_code
    from tintype.compiler.guard_groups import Block
    from tintype.compiler.sources import Guard, Source

    base = Source("constant", {"inner": {"a": 1, "b": 2}})
    inner = Source("item", "inner", base)
    a, b = Source("item", "a", inner), Source("item", "b", inner)
    namespace: dict[str, Any] = {"base": base.key, "_Missed": AssertionError}
    block = Block("raise _Missed")
    block.units += [(inner, ("base",), "i"), (a, ("i",), "x"), (b, ("i",), "y")]
    block.units += [(Guard("value", b, 2), ("y",), ""), (Guard("value", a, 1), ("x",), "")]

    def bind(value: Any) -> str:
        namespace[f"k{len(namespace)}"] = value
        return f"k{len(namespace) - 1}"

    shared, (lines,) = guard_code.written([block], {}, bind)
    exec(shared + "\n".join(lines), namespace)
    base.key["inner"]["b"] = 3
    with pytest.raises(AssertionError):
        exec("\n".join(lines), namespace)


def test_paths_that_nobody_has_any_more_are_let_go_of() -> None:
    from tintype.compiler.sources import Source

    argument = Source("argument", 0)
    kept = Source("item", "kept", argument)
    for number in range(1000):
        Source("item", f"passing {number}", argument)
    assert Source("item", "kept", argument).path is kept.path
    assert len(argument.path._longer or {}) < 200
