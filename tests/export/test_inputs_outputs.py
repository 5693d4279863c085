"""Any pytree goes in and comes out; how a program may be called."""

from __future__ import annotations

import collections
import dataclasses
from collections import OrderedDict, defaultdict, namedtuple
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn

import tintype
from tests.export.modes import assert_same, capture, compare
from tintype.errors import InvalidRequestError


def x(*sizes: int) -> torch.Tensor:
    return torch.randn(*(sizes or (3, 4)), requires_grad=True)


Pair = namedtuple("Pair", ["first", "second"])


class Typed(NamedTuple):
    values: torch.Tensor
    scale: float = 2.0


for named_tuple in (Pair, Typed):  # files refer to it by name
    tintype.register_namedtuple(named_tuple)


@dataclasses.dataclass
class Point:
    left: torch.Tensor
    right: torch.Tensor | None = None
    scale: float = 1.0


@dataclasses.dataclass
class Outer:
    point: Point
    items: list[torch.Tensor]


tintype.register_dataclass(Point)
tintype.register_dataclass(Outer)

# --- containers --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "make"),
    [
        (lambda pair: pair[0] + pair[1], lambda: (x(), x())),
        (lambda items: sum(items), lambda: [x(), x(), x()]),
        (lambda table: table["a"] * table["b"], lambda: {"b": x(), "a": x()}),
        (lambda pair: pair.first - pair.second, lambda: Pair(x(), x())),
        (lambda typed: typed.values * typed.scale, lambda: Typed(x(), 3.0)),
        (lambda table: table["z"] - table["a"], lambda: OrderedDict(z=x(), a=x())),
        (lambda table: table["k"][0] - table["missing"][0], lambda: defaultdict(list, k=[x()], missing=[x()])),
        (lambda items: items[0] + items[-1], lambda: collections.deque([x(), x()])),
        (lambda tree: tree["a"][0]["b"][1] * 2, lambda: {"a": [{"b": (x(), x())}, None], "c": 3}),
        (lambda point: point.left * point.scale, lambda: Point(x())),
        (lambda point: point.left + point.right, lambda: Point(x(), x(), 2.0)),
        (lambda outer: outer.point.left + outer.items[1], lambda: Outer(Point(x()), [x(), x()])),
        (lambda table: table[1] + table["1"], lambda: {1: x(), "1": x()}),
        (lambda nothing: torch.ones(2), lambda: ()),
        (lambda nothing: torch.ones(2), dict),
        (lambda nothing: torch.ones(2), lambda: None),
    ],
    ids=[
        "tuple", "list", "dict", "namedtuple", "typed-namedtuple", "ordered", "defaultdict", "deque", "nested",
        "dataclass", "dataclass-full", "dataclass-nested", "mixed-keys", "empty-tuple", "empty-dict", "none",
    ],
)  # fmt: skip
def test_containers_as_inputs(mode: str, function: Any, make: Any) -> None:
    compare(mode, function, (make(),))


@pytest.mark.parametrize(
    "function",
    [
        lambda v: (v + 1,),
        lambda v: [v + 1, v + 2],
        lambda v: {"b": v + 1, "a": v * 2},
        lambda v: Pair(v + 1, v * 2),
        lambda v: Typed(v + 1, 5.0),
        lambda v: OrderedDict(z=v + 1, a=v * 2),
        lambda v: defaultdict(list, k=[v + 1]),
        lambda v: collections.deque([v + 1, v]),
        lambda v: {"deep": [(v + 1, {"more": [v * 2]}), None], "number": 5},
        lambda v: Point(v + 1, None, 4.0),
        lambda v: Outer(Point(v + 1, v), [v * 2]),
        lambda v: None,
        lambda v: (),
        lambda v: [],
        lambda v: {},
        lambda v: (v + 1, None, 3, 2.5, True, "text", torch.float32, torch.device("cpu")),
        lambda v: 7,
        lambda v: "text",
        lambda v: tuple(v.shape),
        lambda v: (v.shape[0], v.size(-1), v.dtype, v.device),
        lambda v: (v.sum(), [[], ()], {"nothing": None}),
        lambda v: torch.sort(v),
        lambda v: v.max(1),
        lambda v: v.split(1),
    ],
    ids=[
        "tuple", "list", "dict", "namedtuple", "typed-namedtuple", "ordered", "defaultdict", "deque", "nested",
        "dataclass", "dataclass-nested", "none", "empty-tuple", "empty-list", "empty-dict", "constants", "number",
        "text", "shape", "metadata", "empty-nested", "sort", "max", "split",
    ],
)  # fmt: skip
def test_containers_as_outputs(mode: str, function: Any) -> None:
    compare(mode, function, (x(),))


def test_size_as_output(mode: str) -> None:
    """torch's pytree makes a tuple of a torch.Size, which is equal to it."""
    assert capture(mode, lambda v: (v.shape, v.size()), (x(),)).module()(x()) == ((3, 4), (3, 4))


def test_results_of_operators_come_as_in_eager(mode: str) -> None:
    """torch.sort returns a named structure; its fields can be asked for while tracing."""

    def function(value: torch.Tensor) -> Any:
        ordered = torch.sort(value)
        return ordered.values, ordered.indices, value.max(1).values, torch.topk(value, 2).indices

    compare(mode, function, (x(),))


def test_dictionaries_keep_their_order(mode: str) -> None:
    program = capture(mode, lambda v: {"z": v + 1, "a": v + 2, "m": v + 3}, (x(),))
    assert list(program.module()(x())) == ["z", "a", "m"]


def test_dictionary_input_in_another_order(mode: str) -> None:
    def function(table: dict[str, torch.Tensor]) -> torch.Tensor:
        return table["a"] - table["b"]

    program = capture(mode, function, ({"a": x(), "b": x()},))
    other = {"b": x(), "a": x()}
    assert_same(program.module()(other), function(other))


def test_sizes_stay_sizes(mode: str) -> None:
    def function(value: torch.Tensor, size: torch.Size) -> Any:
        return value.expand(size), {"shape": value.shape}

    args = (x()[:1], torch.Size([5, *x().shape[1:]]))
    module = capture(mode, function, args).module()
    expected, found = function(*args), module(*args)
    assert_same(found[0], expected[0])
    assert type(found[1]["shape"]) is torch.Size and found[1] == expected[1]


# --- dataclasses -----------------------------------------------------------------------------------------------


def test_dataclass_with_chosen_fields(mode: str) -> None:
    @dataclasses.dataclass
    class Chosen:
        kept: torch.Tensor
        dropped: str | None = None

    tintype.register_dataclass(Chosen, drop_field_names=["dropped"])
    program = capture(mode, lambda item: item.kept * 2, (Chosen(x(), "text"),))
    value = x()
    torch.testing.assert_close(program.module()(Chosen(value, "other")), value * 2)


def test_dataclass_none_fields_as_leaves(mode: str) -> None:
    @dataclasses.dataclass
    class WithNone:
        one: torch.Tensor | None
        two: torch.Tensor | None

    tintype.register_dataclass(WithNone, return_none_fields=True)
    program = compare(mode, lambda item: WithNone(item.one * 2, item.two), (WithNone(x(), None),))
    assert program.module()(WithNone(x(), None)).two is None


def test_registering_what_is_no_dataclass() -> None:
    with pytest.raises(InvalidRequestError, match="dataclass"):
        tintype.register_dataclass(int)


def test_registering_unknown_fields() -> None:
    @dataclasses.dataclass
    class Small:
        only: int

    with pytest.raises(InvalidRequestError, match="nothing"):
        tintype.register_dataclass(Small, field_names=["nothing"])


def test_unregistered_dataclass_is_refused_by_name() -> None:
    @dataclasses.dataclass
    class Unknown:
        value: torch.Tensor

    with pytest.raises(tintype.CaptureError, match="Unknown") as caught:
        tintype.export(lambda item: item.value, (Unknown(x()),))
    assert "register_dataclass" in str(caught.value)


# --- arguments ---------------------------------------------------------------------------------------------------


class Arguments(nn.Module):
    def forward(
        self,
        a: torch.Tensor,
        b: torch.Tensor,
        c: torch.Tensor | None = None,
        *,
        scale: float = 2.0,
        flag: bool = False,
    ) -> torch.Tensor:
        result = a * scale - b
        if c is not None:
            result = result + c
        return -result if flag else result


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        ("ab", ""), ("abc", ""), ("ab", "c"), ("a", "b"), ("a", "bc"), ("", "ab"), ("", "ba"), ("", "cba"),
    ],
)  # fmt: skip
def test_positions_and_keywords(mode: str, args: str, kwargs: str) -> None:
    values = {name: x() for name in "abc"}
    compare(mode, Arguments(), tuple(values[n] for n in args), {n: values[n] for n in kwargs})


def test_keyword_only_and_defaults(mode: str) -> None:
    compare(mode, Arguments(), (x(), x()), {"scale": 3.0})
    compare(mode, Arguments(), (x(), x()), {"flag": True, "scale": 0.5})


def test_keywords_in_any_order(mode: str) -> None:
    model = Arguments()
    a, b, c = x(), x(), x()
    module = capture(mode, model, (a,), {"b": b, "c": c, "scale": 3.0}).module()
    expected = model(a, b, c, scale=3.0)
    torch.testing.assert_close(module(a, c=c, scale=3.0, b=b), expected)
    torch.testing.assert_close(module(a, scale=3.0, b=b, c=c), expected)


def test_positional_arguments_given_by_name(mode: str) -> None:
    model = Arguments()
    a, b, c = x(), x(), x()
    module = capture(mode, model, (a, b, c)).module()
    expected = model(a, b, c)
    torch.testing.assert_close(module(a, b, c=c), expected)
    torch.testing.assert_close(module(a=a, b=b, c=c), expected)
    torch.testing.assert_close(module(c=c, b=b, a=a), expected)
    torch.testing.assert_close(module(a, c=c, b=b), expected)


def test_keyword_arguments_given_by_position(mode: str) -> None:
    model = Arguments()
    a, b, c = x(), x(), x()
    module = capture(mode, model, (a,), {"b": b, "c": c}).module()
    torch.testing.assert_close(module(a, b, c), model(a, b, c))
    torch.testing.assert_close(module(a, b, c=c), model(a, b, c))


def test_star_arguments(mode: str) -> None:
    def function(first: torch.Tensor, *rest: torch.Tensor, **named: torch.Tensor) -> torch.Tensor:
        return first + sum(rest) + named["one"] * named["two"]

    program = compare(mode, function, (x(), x(), x()), {"two": x(), "one": x()})
    assert program.graph_signature.user_inputs == ("first", "rest_0", "rest_1", "two", "one")


def test_only_star_arguments(mode: str) -> None:
    class Model(nn.Module):
        def forward(self, *args: torch.Tensor, **kwargs: torch.Tensor) -> torch.Tensor:
            return args[0] * kwargs["y"]

    program = compare(mode, Model(), (x(),), {"y": x()})
    assert program.graph_signature.user_inputs == ("args_0", "y")


def test_names_of_nested_inputs(mode: str) -> None:
    def function(table: dict[str, Any], *, more: Any) -> torch.Tensor:
        return table["a"][0] + table["a"][1] + more.first

    program = compare(mode, function, ({"a": (x(), x())},), {"more": Pair(x(), 3)})
    assert program.graph_signature.user_inputs[:2] == ("table_a_0", "table_a_1")
    assert program.graph_signature.user_inputs[2] in ("more_0", "more_first")
    assert program.graph_signature.user_inputs[3] == 3


def test_argument_called_like_a_python_name(mode: str) -> None:
    compare(mode, lambda **named: named["lambda"] + named["with space"], (), {"lambda": x(), "with space": x()})


def test_argument_names_that_collide_with_the_machinery(mode: str) -> None:
    def function(_args: torch.Tensor, _kwargs: torch.Tensor, recorder: torch.Tensor, self: torch.Tensor) -> Any:
        return _args + _kwargs - recorder * self

    compare(mode, function, (x(), x(), x(), x()))


def test_no_inputs(mode: str) -> None:
    compare(mode, lambda: torch.arange(3) * 2, ())


def test_many_inputs(mode: str) -> None:
    compare(mode, lambda *values: sum(values), tuple(x(2) for _ in range(40)))


def test_positional_only(mode: str) -> None:
    def function(a: torch.Tensor, /, b: torch.Tensor) -> torch.Tensor:
        return a - b

    compare(mode, function, (x(), x()))


def test_default_that_is_not_given_stays_open_to_nobody(mode: str) -> None:
    """An argument that was left out at export can't be given afterwards."""
    model = Arguments()
    module = capture(mode, model, (x(), x())).module()
    with pytest.raises(ValueError, match="tree"):
        module(x(), x(), x())


# --- aliasing of inputs and outputs ----------------------------------------------------------------------------


def test_the_same_tensor_twice(mode: str) -> None:
    value = x()
    compare(mode, lambda a, b: a * b + a, (value, value))


def test_the_same_tensor_twice_then_two_tensors(mode: str) -> None:
    value = torch.randn(3, 4)
    program = capture(mode, lambda a, b: a * 2 - b, (value, value))
    a, b = x(), x()
    torch.testing.assert_close(program.module()(a, b), a * 2 - b)


def test_inputs_that_share_memory(mode: str) -> None:
    base = torch.randn(6, 4)
    compare(mode, lambda a, b: a @ b.t(), (base[:3], base[2:]), others=[])


def test_output_is_an_input(mode: str) -> None:
    program = compare(mode, lambda value, other: (value, value + 1, other), (x(), x()))
    module = program.module()
    value, other = x(), x()
    first, _, third = module(value, other)
    assert first is value
    assert third is other


def test_output_is_the_models_state(mode: str) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(4))
            self.register_buffer("table", torch.randn(4))
            self.constant = torch.randn(4)

        def forward(self, value: torch.Tensor) -> Any:
            return self.weight, self.table, self.constant, value * self.weight

    compare(mode, Model(), (x(),))


def test_output_is_a_view_of_an_input(mode: str) -> None:
    program = capture(mode, lambda value: (value.t(), value[0], value.view(-1)), (torch.randn(3, 4),))
    value = torch.randn(3, 4)
    for result in program.module()(value):
        assert result.data_ptr() == value.data_ptr()
        assert result.untyped_storage().data_ptr() == value.untyped_storage().data_ptr()


def test_duplicate_outputs(mode: str) -> None:
    def function(value: torch.Tensor) -> Any:
        doubled = value * 2
        return doubled, {"again": doubled, "other": [doubled, value]}

    program = compare(mode, function, (x(),))
    first, table = program.module()(x())
    assert first is table["again"] is table["other"][0]


def test_input_mutations(mode: str) -> None:
    def function(table: dict[str, torch.Tensor], value: torch.Tensor) -> torch.Tensor:
        table["a"].add_(value)
        table["b"][0] = 7
        return table["a"] * 2

    program = compare(mode, function, ({"a": torch.randn(3, 4), "b": torch.randn(3, 4)}, torch.randn(3, 4)))
    if not mode.endswith("training"):
        assert set(program.graph_signature.user_inputs_to_mutate.values()) == {"table_a", "table_b"}


def test_mutated_input_is_returned(mode: str) -> None:
    program = compare(mode, lambda value: value.mul_(2), (torch.randn(3, 4),))
    value = torch.randn(3, 4)
    assert program.module()(value) is value


def test_container_given_back(mode: str) -> None:
    def function(table: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        table["sum"] = table["a"] + table["b"]
        return table

    program = capture(mode, function, ({"a": x(), "b": x()},))
    given = {"a": x(), "b": x()}
    result = program.module()(given)
    assert list(result) == ["a", "b", "sum"]
    torch.testing.assert_close(result["sum"], given["a"] + given["b"])


def test_inputs_that_require_gradients_and_not(mode: str) -> None:
    compare(mode, lambda a, b: a * b, (x(), torch.randn(3, 4)))


def test_exported_without_gradients_called_with(mode: str) -> None:
    program = capture(mode, lambda value: value.sin() * 2, (torch.randn(3, 4),))
    value = x()
    program.module()(value).sum().backward()
    torch.testing.assert_close(value.grad, value.detach().cos() * 2)


def test_outputs_detached_from_the_inputs(mode: str) -> None:
    compare(mode, lambda value: (value.argmax(), value > 0, value.detach(), value.long()), (x(),))


def test_a_named_tuple_as_the_arguments() -> None:
    pair = collections.namedtuple("pair", ["first", "second"])
    example = pair(torch.ones(3), torch.ones(3))
    program = tintype.export(lambda a, b: a - b * 2, example, dynamic_shapes="auto")
    assert_same(program.module()(torch.ones(5), torch.ones(5)), -torch.ones(5))
    assert_same(program.module()(*example), -torch.ones(3))


def test_keyword_arguments_without_names() -> None:
    with pytest.raises(tintype.TintypeError, match="kwargs must have names as its keys"):
        tintype.export(lambda x, **options: x, (torch.ones(2),), {1: torch.ones(2)})


def test_a_function_that_says_it_wraps_itself() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    function.__wrapped__ = function  # type: ignore[attr-defined]
    program = tintype.export(function, (torch.ones(3),), dynamic_shapes={"x": {0: tintype.Dim("n")}})
    torch.testing.assert_close(program.module()(torch.ones(5)), torch.full((5,), 2.0))
