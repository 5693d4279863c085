"""Containers that a program is given: changed and returned as eager mode does, or refused; one object or two."""

from __future__ import annotations

import collections
import dataclasses
import io
import warnings
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import transformers
from torch import nn
from transformers.utils import ModelOutput

import tintype
from tests.export.modes import capture, saved_and_loaded
from tests.generation.architectures import llama
from tintype.errors import InputMismatchError, InputStructureError


class Holder:
    """A container of its attributes."""

    def __init__(self, a: Any, **more: Any) -> None:
        self.a = a
        self.__dict__.update(more)


class ByFunctions:
    """A container that functions take apart."""

    def __init__(self, a: Any) -> None:
        self.a = a


@dataclasses.dataclass
class Fields:
    """A dataclass."""

    a: Any


@dataclasses.dataclass
class Output(ModelOutput):
    """An output of a model."""

    a: torch.Tensor | None = None


tintype.register_container(Holder)
tintype.register_container(
    ByFunctions, lambda value: ({"a": value.a}, None), lambda parts, _: ByFunctions(parts["a"])
)
tintype.register_dataclass(Fields)

WAYS = ["export", "training", "decomposed", "retraced", "unflattened", "saved"]


def captured(model: nn.Module, args: tuple[Any, ...], way: str) -> Callable[..., Any]:
    """What runs the program that a way leads to."""
    program = capture(way, model, args)
    return tintype.unflatten(program) if way == "unflattened" else program.module()


def ones() -> torch.Tensor:
    return torch.ones(2)


def contents(value: Any) -> Any:
    """A container as lists and dictionaries of numbers."""
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if isinstance(value, dict):
        return [(key, contents(item)) for key, item in value.items()]
    if isinstance(value, (list, tuple, collections.deque)):
        return [type(value).__name__, *map(contents, value)]
    return contents(vars(value)) if hasattr(value, "__dict__") else value


def append(values: Any) -> Any:
    values.append(values[0] + 1)
    return values


def add_key(table: Any) -> Any:
    table["new"] = table["a"] + 1
    return {"inside": table}


def move_key(table: Any) -> Any:
    table["a"] = table.pop("a") * 2
    return table


def change_inner(holder: Any) -> Any:
    holder.a[0] = holder.a[0] * 2
    return holder.a


def replace_inner(holder: Any) -> Any:
    holder.a = [*holder.a, holder.a[0] + 1]
    return holder


def reverse(values: Any) -> Any:
    values.reverse()
    values[0].a = values[0].a * 3
    return values


def swap(first: Any, second: Any) -> Any:
    first.a, second.a = second.a, first.a
    first.a.append(first.a[0] * 2)
    return second, first


CHANGES: dict[str, tuple[Callable[..., Any], Callable[[], tuple[Any, ...]]]] = {
    "list": (append, lambda: ([ones()],)),
    "deque": (append, lambda: (collections.deque([ones()]),)),
    "dict": (add_key, lambda: ({"a": ones()},)),
    "defaultdict": (add_key, lambda: (collections.defaultdict(list, a=ones()),)),
    "ordered": (move_key, lambda: (collections.OrderedDict(a=ones(), b=ones() * 2),)),
    "inner": (change_inner, lambda: (Holder([ones()]),)),
    "replaced": (replace_inner, lambda: (Holder([ones()]),)),
    "moved": (reverse, lambda: ([Holder(ones()), Holder(ones() * 5)],)),
    "swapped": (swap, lambda: (Holder([ones()]), Holder([ones() * 2]))),
}


def parts(value: Any) -> list[Any]:
    """All containers in a value."""
    if isinstance(value, torch.Tensor) or (not hasattr(value, "__dict__") and not hasattr(value, "__len__")):
        return []
    inner = (
        value.values() if isinstance(value, dict) else value if hasattr(value, "__len__") else vars(value).values()
    )
    return [value, *(found for item in inner for found in parts(item))]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", CHANGES)
def test_what_is_changed_and_returned_is_the_callers(name: str, way: str) -> None:
    function, make = CHANGES[name]

    class Model(nn.Module):
        def forward(self, *args: Any) -> Any:
            return function(*args)

    module = captured(Model(), make(), way)
    eager_args, args = make(), make()
    eager_held, held = parts(list(eager_args)), parts(list(args))
    eager, result = function(*eager_args), module(*args)
    assert contents(list(args)) == contents(list(eager_args))
    assert contents(result) == contents(eager)
    # the containers that the caller holds, which may lie elsewhere now, or nowhere
    assert [contents(value) for value in held[1:]] == [contents(value) for value in eager_held[1:]]

    def places(found: list[Any], among: list[Any]) -> list[int | None]:
        return [next((n for n, other in enumerate(among) if other is value), None) for value in found]

    assert places(parts(result), held[1:]) == places(parts(eager), eager_held[1:])


def assign(value: Any) -> Any:
    value.a = value.a + 1
    return value.a * 2


def assign_and_return(value: Any) -> Any:
    value.a = value.a + 1
    return value


def add_attribute(value: Any) -> Any:
    value.b = value.a + 1
    return value


@pytest.mark.parametrize("function", [assign, assign_and_return, add_attribute])
@pytest.mark.parametrize(
    "make", [Fields, ByFunctions, lambda a: Output(a=a)], ids=["dataclass", "functions", "output"]
)
def test_changes_of_what_nobody_can_change_later_are_refused(make: Any, function: Any) -> None:
    with pytest.raises(tintype.TintypeError, match=r"changes the .* given as \*args\[0\]\.[ab].*") as refused:
        tintype.export(function, (make(ones()),))
    assert refused.value.location is not None and refused.value.location.function == function.__name__
    with pytest.raises(tintype.TintypeError, match="changes"):
        tintype.export(lambda values: function(values[0]), ([make(ones())],))


def test_a_deque_that_is_not_returned_is_refused() -> None:
    def function(values: Any) -> Any:
        values.append(values[0] + 1)
        return values[-1] * 2

    with pytest.raises(tintype.TintypeError, match=r"given as \*args\[0\], which"):
        tintype.export(function, (collections.deque([ones()]),))


def test_what_is_not_changed_may_be_any_container() -> None:
    def function(given: Any) -> Any:
        return given, given["d"].a * 2

    make = lambda: {"d": Fields(ones()), "f": ByFunctions([ones()]), "o": Output(a=ones())}  # noqa: E731
    module = tintype.export(function, (make(),)).module()
    given = make()
    result, doubled = module(given)
    assert result is given and doubled.tolist() == [2, 2]


# --- one object or two ---------------------------------------------------------------------------------------


def change_first(first: Any, second: Any) -> Any:
    first.a = first.a + 1
    return first, second.a * 1


def compare(first: Any, second: Any) -> Any:
    return first.a + 1 if first is second else first.a - 1


# a program that compares tensors is not captured again with one tensor that is given twice
@pytest.mark.parametrize(
    ("function", "way"),
    [*((change_first, way) for way in WAYS), *((compare, way) for way in WAYS if way != "retraced")],
)
def test_one_container_given_twice(function: Any, way: str) -> None:
    class Model(nn.Module):
        def forward(self, first: Any, second: Any) -> Any:
            return function(first, second)

    one, example = Holder(ones()), Holder(ones())
    of_one = captured(Model(), (example, example), way)
    of_two = captured(Model(), (Holder(ones()), Holder(ones())), way)
    assert contents(of_one(one, one)) == contents(function(*[Holder(ones())] * 2))
    two = (Holder(ones()), Holder(ones()))
    assert contents(of_two(*two)) == contents(function(Holder(ones()), Holder(ones())))
    tensors = [one.a] * 2  # which may be compared, too
    with pytest.raises(InputMismatchError, match=r"\*args\[0\] and \*args\[1\] to be one object, but got two"):
        of_one(*map(Holder, tensors))
    with pytest.raises(InputMismatchError, match=r"to be two objects, but got one|is the tensor at position"):
        of_two(one, one)


def test_containers_that_are_only_read_may_be_one_or_two() -> None:
    function = lambda first, second, third: (first[0] + second[0], append(third))  # noqa: E731
    module = tintype.export(function, ([ones()], [ones()], [ones()])).module()
    one = [ones()]
    assert module(one, one, [ones()])[0].tolist() == [2, 2]
    with pytest.raises(InputMismatchError, match="two objects"):
        module(one, [ones()], one)


def test_one_container_inside_of_others() -> None:
    def function(table: Any) -> Any:
        table["x"].append(table["x"][0] * 2)
        return table, len(table["y"].a)

    inner = [ones()]
    with_one = tintype.export(function, ({"x": inner, "y": Holder(inner)},)).module()
    given = [ones()]
    table, count = with_one({"x": given, "y": Holder(given)})
    assert count == 2 and len(given) == 2 and table["x"] is given and table["y"].a is given


def test_one_cache_given_twice() -> None:
    model = llama().model
    config = model.config

    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, tokens: Any, first: Any, second: Any) -> Any:
            one, other = (self.model(tokens, past_key_values=cache).logits for cache in (first, second))
            return one - other, first, second

    def cache() -> Any:
        made = transformers.DynamicCache(config=config)
        model(torch.tensor([[3, 4]]), past_key_values=made)
        return made

    tokens = torch.tensor([[5]])
    with torch.no_grad():
        module = tintype.export(Two(), (tokens, cache(), cache()), dynamic_shapes="auto").module()
        first, second = cache(), cache()
        difference, *returned = module(tokens, first, second)
        assert difference.abs().max() == 0 and returned[0] is first and first.get_seq_length() == 3
        with pytest.raises(InputMismatchError, match="two objects"):
            module(tokens, first, first)


def test_a_cache_keeps_what_it_makes_further_layers_of() -> None:
    model = llama().model
    tokens = torch.tensor([[3, 4]])
    with torch.no_grad():
        module = tintype.export(model, (tokens,), {"past_key_values": transformers.DynamicCache()}).module()
        eager, cache = transformers.DynamicCache(), transformers.DynamicCache()
        model(tokens, past_key_values=eager)
        module(tokens, past_key_values=cache)
    assert cache.layer_class_to_replicate is eager.layer_class_to_replicate is not None


# --- other ways to a program ---------------------------------------------------------------------------------


def test_a_joint_program_changes_the_callers() -> None:
    def function(holder: Any) -> Any:
        holder.a = holder.a * 2
        return holder.a.sum(), holder

    make = lambda: Holder(torch.ones(2, requires_grad=True))  # noqa: E731
    joints = [tintype.export_joint(function, (make(),)), tintype.export_joint(tintype.export(function, (make(),)))]
    for joint in joints:
        given = make()
        (_, holder), *_ = joint.module()(given)
        assert holder is given and given.a.tolist() == [2, 2]


def test_a_preserved_signature_changes_the_callers() -> None:
    class Inner(nn.Module):
        def forward(self, holder: Any, x: Any) -> Any:
            holder.a = holder.a + x
            return holder

    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Inner()

        def forward(self, holder: Any, x: Any) -> Any:
            return self.inner(holder, x * 2)

    program = tintype.export(Outer(), (Holder(ones()), ones()), preserve_module_call_signature=("inner",))
    buffer = io.BytesIO()
    tintype.save(program, buffer)
    buffer.seek(0)
    for made in (program, program.run_decompositions(), tintype.load(buffer)):
        module: Any = tintype.unflatten(made)
        given = Holder(ones())
        assert module.inner(given, ones()) is given and given.a.tolist() == [2, 2]
        given = Holder(ones())
        assert module(given, ones()) is given and given.a.tolist() == [3, 3]


def test_compiled_functions_tell_one_container_from_two() -> None:
    for function in (compare, change_first, swap):
        compiled = tintype.aot.function(function)
        for _ in range(2):
            one, eager_one = Holder([ones()]), Holder([ones()])
            if function is not swap:
                one, eager_one = Holder(ones()), Holder(ones())
            make = lambda: Holder([ones() * 3] if function is swap else ones() * 3)  # noqa: B023, E731
            assert contents(compiled(one, make())) == contents(function(eager_one, make()))
            assert contents(one) == contents(eager_one)
            assert contents(compiled(one, one)) == contents(function(eager_one, eager_one))
            assert contents(one) == contents(eager_one)


def test_compiled_functions_return_the_callers_list() -> None:
    given = [ones()]
    assert tintype.aot.function(append)(given) is given and len(given) == 2


# --- dataclasses that compute --------------------------------------------------------------------------------


@dataclasses.dataclass
class Doubled:
    """A dataclass that computes when it is made."""

    a: Any
    b: Any = dataclasses.field(init=False, default=None)

    def __post_init__(self) -> None:
        self.a = self.a * 2
        self.b = self.a + 1
        self.c = self.a + 2


@dataclasses.dataclass
class PartlyDropped:
    """Has a field that is no part of programs, and computes another one."""

    a: Any
    note: str = "none"

    def __post_init__(self) -> None:
        self.a = self.a * 2


tintype.register_dataclass(Doubled)
tintype.register_dataclass(PartlyDropped, drop_field_names=["note"])


@pytest.mark.parametrize("way", WAYS)
def test_post_init_is_run_once(way: str) -> None:
    class Model(nn.Module):
        def forward(self, given: Any) -> Any:
            return Doubled(given.a + given.b + given.c)

    result = captured(Model(), (Doubled(ones()),), way)(Doubled(ones()))
    assert contents(result) == contents(Model()(Doubled(ones())))


def test_post_init_that_can_not_be_left_out_is_refused() -> None:
    for function, example in ((lambda x: PartlyDropped(x), ones()), (lambda d: d.a, PartlyDropped(ones()))):
        with pytest.raises(tintype.TintypeError, match="is not the same again"):
            tintype.export(function, (example,))


def test_functions_that_compute_are_refused() -> None:
    class Computes:
        """Computes when it is taken apart."""

        def __init__(self, a: Any) -> None:
            self.a = a

    class Forgets(Computes):
        """Becomes nothing."""

    class HasTensor(Computes):
        """Has a tensor in its structure."""

    tintype.register_container(Computes, lambda v: ({"a": v.a * 2}, None), lambda parts, _: Computes(parts["a"]))
    tintype.register_container(Forgets, lambda v: ({"a": v.a}, None), lambda parts, _: None)
    tintype.register_container(HasTensor, lambda v: ({"a": 1}, v.a), lambda parts, tensor: HasTensor(tensor))
    for kind, fact in (
        (Computes, "not the same again"),
        (Forgets, "not the same again"),
        (HasTensor, "a tensor in its"),
    ):
        for function, example in ((lambda v: ones(), kind(ones())), (lambda x, kind=kind: kind(x), ones())):
            with pytest.raises(tintype.TintypeError, match=fact):
                tintype.export(function, (example,))


# --- the same structure, not an equal one --------------------------------------------------------------------


class WithSetting:
    """A container with a number that is a setting."""

    def __init__(self, x: Any, n: Any) -> None:
        self.x, self.n = x, n


class Structured(WithSetting):
    """The same with functions."""


tintype.register_container(WithSetting, settings=("n",))
tintype.register_container(Structured, lambda v: ({"x": v.x}, v.n), lambda parts, n: Structured(parts["x"], n))


@pytest.mark.parametrize("kind", [WithSetting, Structured])
@pytest.mark.parametrize(("example", "given"), [(2, 2.0), (1, True), (0.0, -0.0), ([1, 2], [1, 2.0])])
def test_settings_that_are_merely_equal(kind: Any, example: Any, given: Any) -> None:
    function = lambda value: value.x * (value.n[1] if isinstance(value.n, list) else value.n)  # noqa: E731
    module = tintype.export(function, (kind(torch.arange(3), example),)).module()
    module(kind(torch.arange(3), example))
    with pytest.raises(InputStructureError):
        module(kind(torch.arange(3), given))
    compiled = tintype.aot.function(function)
    if not isinstance(example, list) or kind is WithSetting:
        for n in (example, given):
            assert compiled(kind(torch.arange(3), n)).dtype is function(kind(torch.arange(3), n)).dtype


def test_nan_is_the_same_setting() -> None:
    module = tintype.export(lambda value: value.x + value.n, (WithSetting(ones(), float("nan")),)).module()
    assert module(WithSetting(ones(), float("nan"))).isnan().all()


def test_keys_that_are_merely_equal() -> None:
    module = tintype.export(lambda d: d[1] + d[2] * 2, ({1: ones(), 2: ones()},)).module()
    assert module({2: ones(), 1: ones()}).tolist() == [3, 3]
    for key in (1.0, True):
        with pytest.raises(InputStructureError):
            module({key: ones(), 2: ones()})
        with pytest.raises(InputStructureError):
            module({2: ones(), key: ones()})


def test_a_namespace_that_stands_for_an_object_is_brought_up_to_date() -> None:
    def function(holder: Any) -> Any:
        holder.a = holder.a + 1
        return holder

    given = SimpleNamespace(a=ones())
    result = tintype.export(function, (Holder(ones()),)).module()(given)
    assert result is given and given.a.tolist() == [2, 2]


def test_what_programs_of_torchs_leave_out_is_said() -> None:
    def change(holder: Any) -> Any:
        holder.a = holder.a + 1
        return holder

    with pytest.warns(UserWarning, match="a Holder that the program is given, changes and returns"):
        tintype.interop.to_torch(tintype.export(change, (Holder(ones()),)))
    with pytest.warns(UserWarning, match="order of the keys"):
        tintype.interop.to_torch(tintype.export(lambda **d: torch.cat([*d.values()]), (), {"a": ones(), "b": ones()}))
    with pytest.warns(UserWarning, match="must be b'abc'"):
        tintype.interop.to_torch(tintype.export(lambda n, x: x * len(n), (b"abc", ones())))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        program = tintype.export(lambda first, second: (first, second.a * 2), (Holder(ones()), Holder(ones())))
        tintype.interop.to_torch(program)


def test_the_order_of_attributes() -> None:
    def function(holder: Any) -> Any:
        return torch.cat([value for value in vars(holder).values() if isinstance(value, torch.Tensor)])

    make = lambda: Holder(None, flag=True, z=ones() * 2, y=ones())  # noqa: E731
    program = tintype.export(function, (make(),))
    for made in (program, saved_and_loaded(program), tintype.export(program.module(), (make(),))):
        assert made.module()(make()).tolist() == function(make()).tolist() == [2, 2, 1, 1]
        with pytest.raises(InputMismatchError, match=r"attributes of \*args\[0\] in the order a, flag, z, y"):
            made.module()(Holder(None, flag=True, y=ones(), z=ones()))
    named = tintype.export(lambda holder: holder.z - holder.y, (make(),)).module()
    assert named(Holder(None, flag=True, y=ones(), z=ones() * 2)).tolist() == [1, 1]


def test_gradients_that_torchs_scan_has_wrong_are_told_of() -> None:
    def function(x: torch.Tensor) -> Any:
        combine = lambda a, b: (a[0] * b[0], a[1] * b[0] + b[1])  # noqa: E731
        return tintype.associative_scan(combine, (x, x * 2), 0)

    with pytest.warns(UserWarning, match="associative_scan has wrong gradients"):
        tintype.interop.to_torch(tintype.export(function, (torch.ones(2, 1, requires_grad=True),)))
