"""Graphs are only used again where a call needs the same ones, and only so many are kept."""

from __future__ import annotations

import dataclasses
import functools
import types
from typing import Any

import numpy
import pytest
import torch
from torch import nn

import tintype
from tintype.errors import DataDependentError, MutationError, UnsupportedInputError

# --- arguments -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "second"),
    [(0.0, -0.0), (1, True), (1, 1.0), (0, False), (0j, -0j), (complex(0, 0.0), complex(0, -0.0)), ("1", 1), (2, 3)],
    ids=str,
)
def test_values_count_bit_for_bit(first: Any, second: Any) -> None:
    def function(x: torch.Tensor, value: Any) -> Any:
        return x * value if not isinstance(value, str) else x, repr(value)

    compiled = tintype.aot.function(function)
    x = torch.arange(3)
    for value in (first, second, first):
        (found, text), (expected, expected_text) = compiled(x, value), function(x, value)
        assert str(found) == str(expected) and text == expected_text


@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["first", "second"])
def test_it_matters_which_tensors_share_memory(order: tuple[int, int]) -> None:
    def function(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        x.mul_(2)
        return 10 * y + z

    compiled = tintype.aot.function(function)
    for shared in order:
        base = torch.ones(4)
        others = [base[:2] if position == shared else torch.ones(4)[:2] for position in range(2)]
        assert compiled(base[:2], *others).tolist() == [21.0 if shared == 0 else 12.0] * 2


def test_every_nan_is_one() -> None:
    compiled = tintype.aot.function(lambda x, value: x + value)
    for _ in range(3):
        compiled(torch.ones(2), float("nan"))
    assert len(compiled._order) == 1


def test_negated_and_conjugated_tensors_are_other_tensors() -> None:
    def function(x: torch.Tensor) -> Any:
        return x * 2, x.is_neg(), x.is_conj()

    compiled = tintype.aot.function(function)
    z = torch.randn(3, dtype=torch.complex64)
    for x in (z.imag, torch.conj(z).imag, z.imag, z, torch.conj(z), z.resolve_conj()):
        torch.testing.assert_close(compiled(x), function(x))


def test_a_write_to_a_negated_tensor() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x.add_(1)

    compiled = tintype.aot.function(function)
    for view in (lambda z: z.imag, lambda z: torch.conj(z).imag):
        given = torch.randn(3, dtype=torch.complex64)
        wanted = given.clone()
        torch.testing.assert_close(compiled(view(given)), function(view(wanted)))
        torch.testing.assert_close(given, wanted)


def test_overlapping_views_at_other_places() -> None:
    def function(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        a.add_(1)
        return b * 2

    compiled = tintype.aot.function(function)
    for size in (8, 20):
        for first, second in [(0, 1), (1, 0), (2, 0), (1, 3), (3, 4), (0, 4), (0, 0)]:
            given = torch.arange(float(size))
            wanted = given.clone()
            found = compiled(given[first : first + 4], given[second : second + 4])
            torch.testing.assert_close(found, function(wanted[first : first + 4], wanted[second : second + 4]))
            torch.testing.assert_close(given, wanted)


def test_where_a_tensor_begins_counts_if_somebody_looks() -> None:
    looking = tintype.aot.function(lambda x: x * x.storage_offset())
    plain = tintype.aot.function(lambda x: x * 2)
    memory = torch.ones(8)
    for start in (1, 3, 5):
        assert looking(memory[start : start + 2]).tolist() == [start, start]
        assert plain(memory[start : start + 2]).tolist() == [2, 2]
    assert len(looking._order) == 3 and len(plain._order) == 1


def test_memory_that_tensors_share_without_a_storage() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return y * 2

    compiled = tintype.aot.function(function)
    compiled(torch.zeros(4), torch.zeros(4))
    memory = numpy.arange(8, dtype=numpy.float32)
    with pytest.raises(MutationError, match="lie in the same memory"):
        compiled(torch.from_numpy(memory[:4]), torch.from_numpy(memory[2:6]))
    compiled(torch.from_numpy(memory[:4]), torch.from_numpy(memory[4:]))
    assert memory.tolist() == [1, 2, 3, 4, 4, 5, 6, 7]


class Counter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count.add_(1)
        return x * 2 + self.count


def test_an_argument_that_is_state_as_well() -> None:
    model = Counter()
    compiled = tintype.aot.module(model)
    assert compiled(torch.ones(2)).tolist() == [3, 3]
    for argument in (model.count, model.count[:], model.count.view(2)):
        with pytest.raises(MutationError, match="shares memory with state"):
            compiled(argument)
    assert compiled(torch.ones(2)).tolist() == [4, 4]


def test_modes_of_the_thread() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x + torch.tensor([1.5])

    compiled = tintype.aot.function(function)
    x = torch.ones(2, dtype=torch.int32)
    assert compiled(x).dtype is torch.float32
    torch.set_default_dtype(torch.float64)
    try:
        assert compiled(x).dtype is torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
    with torch.inference_mode():
        assert compiled(x).is_inference()


def test_the_dtype_of_a_model_changes() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    compiled = tintype.aot.module(model)
    compiled(torch.randn(3, 2))
    model.double()
    x = torch.randn(3, 2, dtype=torch.float64)
    torch.testing.assert_close(compiled.eval()(x), model.eval()(x))
    model[0].weight.requires_grad_(False)
    compiled(x).sum().backward()
    assert model[0].weight.grad is None and model[0].bias.grad is not None


def test_symbolic_fakes_are_refused() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

    sizes = StatelessSymbolicContext(dynamic_sizes=[DimDynamic.DYNAMIC])
    fake = FakeTensorMode(shape_env=ShapeEnv()).from_tensor(torch.ones(3), symbolic_context=sizes)
    with pytest.raises(UnsupportedInputError, match="symbolic sizes can't be given to a compiled function"):
        tintype.aot.function(lambda x: x * 2)(fake)


def test_arguments_that_can_not_be_compared() -> None:
    with pytest.raises(UnsupportedInputError, match="is not something a compiled function can take"):
        tintype.aot.function(lambda x, y: x)(torch.ones(2), numpy.ones(2))


@dataclasses.dataclass(frozen=True)
class Frozen:
    factor: float


@dataclasses.dataclass
class Changing:
    factor: float


class Equal:
    """Equal to all others, whatever they hold."""

    def __init__(self, factor: float) -> None:
        self.factor = factor

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 1


@pytest.mark.parametrize("kind", [Frozen, Changing, Equal])
def test_objects_of_the_users(kind: Any) -> None:
    compiled = tintype.aot.function(lambda x, settings: x * settings.factor)
    kept = kind(4.0)
    for settings in (kind(2.0), kind(3.0), kept, kept, kind(0.0), kind(-0.0), kind(2.0)):
        assert str(compiled(torch.ones(1), settings)) == str(torch.ones(1) * settings.factor)
    if kind is Frozen:
        assert len(compiled._order) == 5
        return
    kept.factor = 7.0
    assert compiled(torch.ones(1), kept).item() == 7


@pytest.mark.parametrize(
    ("function", "values"),
    [
        (lambda x, part: x[part], [slice(0, 2), slice(1, 3), slice(0, 2, 2), slice(None)]),
        (lambda x, values: x * sum(values), [{1, 2}, {1, 3}, {1.0, 2}, frozenset({1, 2})]),
        (lambda x, value: x * value, [numpy.float64(0.0), numpy.float64(-0.0), numpy.float32(2), numpy.int64(2)]),
    ],
    ids=["slices", "sets", "numbers"],
)
def test_further_values(function: Any, values: list[Any]) -> None:
    compiled = tintype.aot.function(function)
    for value in (*values, *values):
        assert str(compiled(torch.ones(4), value)) == str(function(torch.ones(4), value))
    assert len(compiled._order) == len(values)


# --- what a function reads -----------------------------------------------------------------------------------

SCALE = 2.0
WEIGHT = torch.ones(1)
TABLE = {"scale": 2.0, "nested": [1.0, {"deep": 1.0}]}
CONFIG = types.SimpleNamespace(scale=2.0)


def scale() -> float:
    return SCALE


class Settings:
    scale = 2.0
    __slots__ = ("other",)

    def __init__(self) -> None:
        self.other = 1.0

    @property
    def both(self) -> float:
        return self.scale * self.other


SETTINGS = Settings()


class Scaled(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * SCALE


class Scales:
    def __getitem__(self, index: int) -> float:
        return SCALE


SCALED, SCALES = Scaled(), Scales()


def set_global(name: str, value: Any) -> None:
    globals()[name] = value


READERS: dict[str, tuple[Any, Any, Any]] = {
    "a global": (lambda x: x * SCALE, lambda: set_global("SCALE", 3.0), lambda: set_global("SCALE", 2.0)),
    "a function's global": (
        lambda x: x * scale(),
        lambda: set_global("SCALE", 3.0),
        lambda: set_global("SCALE", 2.0),
    ),
    "a function": (
        lambda x: x * scale(),
        lambda: set_global("scale", lambda: 5.0),
        lambda: set_global("scale", SCALE_OF),
    ),
    "a tensor": (
        lambda x: x * WEIGHT,
        lambda: set_global("WEIGHT", torch.full((1,), 4.0)),
        lambda: set_global("WEIGHT", torch.ones(1)),
    ),
    "a dictionary": (lambda x: x * TABLE["scale"], lambda: TABLE.update(scale=3.0), lambda: TABLE.update(scale=2.0)),
    "a nested container": (
        lambda x: x * TABLE["nested"][1]["deep"],
        lambda: TABLE["nested"][1].update(deep=3.0),
        lambda: TABLE["nested"][1].update(deep=1.0),
    ),
    "an attribute": (
        lambda x: x * CONFIG.scale,
        lambda: setattr(CONFIG, "scale", -0.0),
        lambda: setattr(CONFIG, "scale", 0.0),
    ),
    "getattr": (
        lambda x: x * getattr(CONFIG, "scale"),  # noqa: B009  (that is what is tested)
        lambda: setattr(CONFIG, "scale", 3.0),
        lambda: setattr(CONFIG, "scale", 2.0),
    ),
    "a property and a slot": (
        lambda x: x * SETTINGS.both,
        lambda: setattr(SETTINGS, "other", 7.0),
        lambda: setattr(SETTINGS, "other", 1.0),
    ),
    "an attribute of a class": (
        lambda x: x * SETTINGS.both,
        lambda: setattr(Settings, "scale", 7.0),
        lambda: setattr(Settings, "scale", 2.0),
    ),
    "a global of a model": (SCALED, lambda: set_global("SCALE", 3.0), lambda: set_global("SCALE", 2.0)),
    "a global of a model in a function": (
        lambda x: SCALED(x) + 1,
        lambda: set_global("SCALE", 3.0),
        lambda: set_global("SCALE", 2.0),
    ),
    "a global of a method that nobody names": (
        lambda x: x * SCALES[0],
        lambda: set_global("SCALE", 3.0),
        lambda: set_global("SCALE", 2.0),
    ),
    "a partial function": (
        functools.partial(lambda table, x: x * table["scale"], TABLE),
        lambda: TABLE.update(scale=3.0),
        lambda: TABLE.update(scale=2.0),
    ),
}
SCALE_OF = scale


@pytest.mark.parametrize("name", READERS)
def test_what_a_function_reads_may_change(name: str) -> None:
    function, change, put_back = READERS[name]
    compiled = tintype.aot.function(function)
    x = torch.ones(1)
    put_back()
    try:
        for act in (lambda: None, change, change, put_back):
            act()
            assert str(compiled(x)) == str(function(x))
            torch.testing.assert_close(compiled(x), function(x))
    finally:
        put_back()
    assert len(compiled._order) <= 4


def test_closures_may_change() -> None:
    factor = 2.0
    weight = torch.ones(1)
    layer = nn.Dropout(0.0)

    def function(x: torch.Tensor) -> torch.Tensor:
        return layer(x * factor * weight)

    compiled = tintype.aot.function(function)
    x = torch.ones(64)
    assert compiled(x)[0] == 2
    factor = 3.0
    assert compiled(x)[0] == 3
    weight = torch.full((1,), 2.0)
    assert compiled(x)[0] == 6
    layer.p = 1.0
    assert compiled(x)[0] == 0
    layer.eval()
    assert compiled(x)[0] == 6


def test_attributes_of_a_model_may_change() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = 1.0
            self.steps = [nn.Linear(1, 1, bias=False)]
            self.layer = nn.Linear(1, 1, bias=False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for step in self.steps:
                x = step(x)
            return self.layer(x) * self.scale

    model = Model()
    compiled = tintype.aot.module(model)
    x = torch.ones(1, 1)

    def check() -> None:
        torch.testing.assert_close(compiled(x), model(x))

    check()
    model.scale = 3.0
    check()
    model.steps.append(nn.Linear(1, 1))
    check()
    model.steps[0].weight = nn.Parameter(torch.full((1, 1), 5.0))
    check()
    model.layer = nn.Linear(1, 1)
    check()
    model.layer.weight = nn.Parameter(torch.full((1, 1), 7.0))
    check()
    model.layer.register_forward_hook(lambda module, args, output: output * 2)
    check()


def test_a_replaced_buffer_is_no_change() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mean", torch.zeros(2))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.mean = self.mean * 0.5 + x
            return x - self.mean

    model, eager = Model(), Model()
    compiled = tintype.aot.module(model)
    for _ in range(4):
        torch.testing.assert_close(compiled(torch.ones(2)), eager(torch.ones(2)))
    assert len(compiled._compiled._order) == 1


# --- the cache -----------------------------------------------------------------------------------------------


def test_so_many_graphs_are_kept() -> None:
    compiled = tintype.aot.function(lambda x, factor: x * factor, cache_size=3)
    x = torch.ones(1, requires_grad=True)
    for factor in (1, 2, 3, 1, 4, 5, 1):
        assert compiled(x, factor).item() == factor
    assert len(compiled._order) == len(compiled._compiled) == len(compiled.partitions) == 3
    kept = [entry.key for entry in compiled._order]
    compiled(x, 4)
    compiled(x, 5)
    assert {str(entry.key) for entry in compiled._order} == {str(key) for key in kept}
    module = tintype.aot.module(nn.ReLU(), cache_size=1)
    for size in (1, 2, 3):
        module(torch.ones(size))
    assert len(module._compiled._order) == 1


def test_keys_of_calls_whose_places_count_are_not_kept_for_ever() -> None:
    compiled = tintype.aot.function(lambda x: x + x.storage_offset(), cache_size=2)
    for size in (1, 2, 3, 4, 1):
        for start in (0, 1, 2):
            assert compiled(torch.zeros(8)[start : start + size]).tolist() == [start] * size
    assert len(compiled._with_offsets) <= 2 and len(compiled._order) == 2


# --- what a function looks at, or does to its arguments ------------------------------------------------------


@pytest.mark.parametrize(
    ("look", "change", "put_back"),
    [
        (torch.get_num_threads, lambda: torch.set_num_threads(2), lambda: torch.set_num_threads(1)),
        (
            torch.are_deterministic_algorithms_enabled,
            lambda: torch.use_deterministic_algorithms(True),
            lambda: torch.use_deterministic_algorithms(False),
        ),
    ],
    ids=["threads", "determinism"],
)
def test_what_a_function_asks_of_torch(look: Any, change: Any, put_back: Any) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x * int(getattr(torch, look.__name__)())

    compiled = tintype.aot.function(function)
    x = torch.ones(2)
    put_back()
    try:
        for act in (lambda: None, change, put_back):
            act()
            torch.testing.assert_close(compiled(x), function(x))
        assert len(compiled._order) == 2
    finally:
        put_back()


def test_memory_that_processes_share() -> None:
    compiled = tintype.aot.function(lambda x: x * (2 if x.is_shared() else 3))
    x = torch.ones(2)
    assert [compiled(x)[0].item(), compiled(torch.ones(2).share_memory_())[0].item()] == [3, 2]


def test_attributes_of_arguments() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x * getattr(x, "factor", 1.0) if not isinstance(x, nn.Buffer) else x * 5

    compiled = tintype.aot.function(function)
    tagged: Any = torch.ones(2)
    for factor in (2.0, 3.0, [4.0][0]):
        tagged.factor = factor
        torch.testing.assert_close(compiled(tagged), function(tagged))
    for x in (torch.ones(2), nn.Buffer(torch.ones(2))):
        torch.testing.assert_close(compiled(x), function(x))
    tagged.info = 1
    with pytest.raises(UnsupportedInputError, match="'info'"):
        compiled(tagged)


@pytest.mark.parametrize(
    "change",
    [
        lambda values, table: values.append(values[0] * 2),
        lambda values, table: table.update(new=values[0]),
        lambda values, table: table.pop("old"),
        lambda values, table: values.reverse(),
        lambda values, table: values.__setitem__(1, 3.0),
        lambda values, table: table["deep"][0].append(values[0].sin()),
        lambda values, table: table.update(deep=values),
    ],
)
@pytest.mark.parametrize("requires_grad", [False, True])
def test_containers_are_changed(change: Any, requires_grad: bool) -> None:
    def function(values: Any, table: Any) -> Any:
        result = values[0] * 3
        change(values, table)
        return result

    compiled = tintype.aot.function(function)
    for _ in range(2):
        given: list[Any] = []
        for call in (function, compiled):
            x = torch.ones(2, requires_grad=requires_grad)
            inner: list[Any] = [x]
            values, table = [x, 1.0], {"old": x, "deep": (inner, 2)}
            before = table["deep"]
            torch.testing.assert_close(call(values, table), x * 3)
            given.append((values, table, inner, table["deep"] is before))
        torch.testing.assert_close(given[0], given[1])


def test_what_can_not_be_changed_so_is_refused() -> None:
    def function(point: Any) -> Any:
        point.x = point.x * 2
        return point.y

    with pytest.raises(MutationError, match="there is a Point"):
        tintype.aot.function(function)(Point(torch.ones(2), torch.ones(2)))

    def attach(x: Any) -> Any:
        x.seen = True
        return x * 2

    with pytest.raises(MutationError, match="sets an attribute of a tensor"):
        tintype.aot.function(attach)(torch.ones(2))


@dataclasses.dataclass
class Point:
    x: torch.Tensor
    y: torch.Tensor


tintype.register_dataclass(Point)


def test_a_tensor_from_elsewhere_is_returned_as_it_is() -> None:
    found = torch.ones(3)
    compiled = tintype.aot.function(lambda x: (found, x * 2))
    for x in (torch.ones(2), torch.ones(2, requires_grad=True)):
        assert compiled(x)[0] is found


def test_sizes_stay_sizes() -> None:
    def function(x: torch.Tensor, size: torch.Size) -> Any:
        return x.sum() * size.numel(), x.shape, {"a": (x.t().shape, size)}

    compiled = tintype.aot.function(function)
    found, expected = compiled(torch.ones(2, 3), torch.Size([4, 5])), function(torch.ones(2, 3), torch.Size([4, 5]))
    assert found == expected
    assert [type(size) for size in (found[1], *found[2]["a"])] == [torch.Size] * 3


def test_classes_that_do_not_exist_are_refused() -> None:
    compiled = tintype.aot.function(lambda x: nn.functional.one_hot(x, 5).float().mean(0))
    assert compiled(torch.tensor([4, 0])).tolist() == [0.5, 0, 0, 0, 0.5]
    with pytest.raises(RuntimeError, match="smaller than num_classes"):
        compiled(torch.tensor([5, 0]))


def test_lengths_of_packed_sequences() -> None:
    def function(x: torch.Tensor, lengths: torch.Tensor) -> Any:
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True)
        return nn.utils.rnn.pad_packed_sequence(packed, batch_first=True)[0]

    with pytest.raises(DataDependentError, match="wants to know a number") as caught:
        tintype.aot.function(function)(torch.ones(2, 3, 1), torch.tensor([3, 2]))
    assert "test_calls.py" in str(caught.value)


def test_gradients_of_functions_by_what_the_model_holds() -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("held", torch.arange(3.0))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.func.grad(lambda value: (value**2).sum())(self.held) + x

    x = torch.ones(3, requires_grad=True)
    torch.testing.assert_close(tintype.aot.module(Model())(x), Model()(x))
