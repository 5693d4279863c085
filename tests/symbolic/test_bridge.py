"""torch's own kernels on our symbols: C++ and Python meta kernels, SymInt's operators, decisions."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch._meta_registrations
from torch.nn import functional

from tintype.symbolic import DataDependentError, Environment, Expr, Range, eq, ge, gt, layout
from tintype.symbolic.bridge import SymbolNode, from_torch, node_of, sym_ite, to_torch


@pytest.fixture
def environment() -> Environment:
    return Environment()


@pytest.fixture
def symbols(environment: Environment) -> tuple[Any, Any, Any]:
    return tuple(to_torch(environment.backed(hint)) for hint in (4, 6, 3))


@pytest.fixture
def python_kernels() -> Iterator[None]:
    """Python meta kernels before C++ ones, which often take only plain integers."""
    guard = torch._C._EnablePythonDispatcher()
    yield
    del guard


def meta(*shape: Any, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


def shape_of(tensor: torch.Tensor) -> list[str]:
    return [str(size) for size in tensor.shape]


# -- conversion


def test_conversion(environment: Environment) -> None:
    a, f, b = environment.backed(4), environment.unbacked_float(), environment.unbacked_bool()
    for value, kind in ((a, torch.SymInt), (f, torch.SymFloat), (b, torch.SymBool)):
        symbolic = to_torch(value)
        assert type(symbolic) is kind
        assert from_torch(symbolic) is value
    for plain in (3, 2.5, True):
        assert to_torch(plain) is plain
        assert from_torch(plain) is plain
    assert node_of(a) is node_of(a)


def test_constants_come_back_as_numbers(environment: Environment) -> None:
    node = node_of(environment.backed(4))
    assert from_torch(torch.SymInt(node.wrap_int(3))) == 3
    assert from_torch(torch.SymFloat(node.wrap_float(2.5))) == 2.5
    assert from_torch(torch.SymBool(node.wrap_bool(True))) is True


def test_foreign_symbols_are_refused() -> None:
    class ForeignNode:
        def __str__(self) -> str:
            return "k0"

    with pytest.raises(TypeError, match="the symbolic number k0 belongs to another tracer"):
        from_torch(torch.SymInt(ForeignNode()))
    with pytest.raises(TypeError, match="not str"):
        from_torch("3")


def test_copies(symbols: Any) -> None:
    assert from_torch(copy.deepcopy(symbols[0])) is from_torch(symbols[0])


# -- SymInt's operators


OPERATORS: list[tuple[Callable[[Any, Any], Any], str]] = [
    (lambda a, b: a + b, "s0 + s1"),
    (lambda a, b: 2 + a, "s0 + 2"),
    (lambda a, b: a - b, "s0 - s1"),
    (lambda a, b: 2 - a, "-s0 + 2"),
    (lambda a, b: a * b, "s0*s1"),
    (lambda a, b: 3 * a, "3*s0"),
    (lambda a, b: a // 2, "s0//2"),
    (lambda a, b: 7 // a, "7//s0"),
    (lambda a, b: a % 3, "Mod(s0, 3)"),
    (lambda a, b: a**2, "s0**2"),
    (lambda a, b: -a, "-s0"),
    (lambda a, b: +a, "s0"),
    (lambda a, b: abs(a - b), "Abs(s0 - s1)"),
    (lambda a, b: a / b, "s0/s1"),
    (lambda a, b: a / 2, "s0/2"),
    (lambda a, b: a * 0.3, "float(s0)*0.3"),
    (lambda a, b: a + 0.5, "float(s0) + 0.5"),
    (lambda a, b: math.floor(a / 2), "s0//2"),
    (lambda a, b: math.ceil(a / 2), "(s0 + 1)//2"),
    (lambda a, b: torch.sym_int(a / 2), "s0//2"),
    (lambda a, b: round(a * 0.3), "round(float(s0)*0.3)"),
    (lambda a, b: torch.sym_float(a), "float(s0)"),
    (lambda a, b: torch.sym_max(a, 1), "Max(1, s0)"),
    (lambda a, b: torch.sym_min(3, a), "Min(3, s0)"),
    (lambda a, b: torch.sym_max(a, 1.5), "Max(float(s0), 1.5)"),
    (lambda a, b: torch.sym_sqrt(a), "sqrt(float(s0))"),
    (lambda a, b: torch.sym_sum([a, b, 3]), "s0 + s1 + 3"),
    (lambda a, b: a & 3, "Mod(s0, 4)"),
    (lambda a, b: a | b, "BitOr(s0, s1)"),
    (lambda a, b: a ^ 1, "BitXor(s0, 1)"),
    (lambda a, b: a << 1, "2*s0"),
    (lambda a, b: a >> 1, "s0//2"),
    (lambda a, b: a == b, "Eq(s0, s1)"),
    (lambda a, b: a != b, "Ne(s0, s1)"),
    (lambda a, b: a < b, "s0 < s1"),
    (lambda a, b: a <= 3, "s0 <= 3"),
    (lambda a, b: a > b, "s1 < s0"),
    (lambda a, b: a >= 3, "s0 >= 3"),
    (lambda a, b: torch.sym_not(a == b), "Ne(s0, s1)"),
    (lambda a, b: (a == b) & (a > 3), "And(Eq(s0, s1), s0 >= 4)"),
    (lambda a, b: (a == b) | (a > 3), "Or(Eq(s0, s1), s0 >= 4)"),
    (lambda a, b: (a / 4).is_integer(), "Eq(Mod(s0, 4), 0)"),
    (lambda a, b: sym_ite(a == b, a, 3), "Where(Eq(s0, s1), s0, 3)"),
    (lambda a, b: a - a, "0"),
    (lambda a, b: a >= 0, "True"),
    (lambda a, b: (a * b) // b, "s0"),
]


@pytest.mark.parametrize(("operation", "expected"), OPERATORS, ids=[expected for _, expected in OPERATORS])
def test_operators(operation: Any, expected: str, environment: Environment, symbols: Any) -> None:
    assert str(operation(symbols[0], symbols[1])) == expected
    assert environment.guards == []


def test_constant_results_are_plain_numbers(symbols: Any) -> None:
    a, b, _ = symbols
    assert type(a - a) is int
    assert type(a * b // b // a) is int
    assert (a >= 0) is True


# -- decisions


def test_branching_guards(environment: Environment, symbols: Any) -> None:
    a, b, _ = symbols
    assert a < b
    assert a != 3
    assert [str(guard.condition) for guard in environment.guards] == ["s0 < s1", "Ne(s0, 3)"]
    location = environment.guards[0].location
    assert location is not None and location.filename == __file__


def test_numbers_specialise(environment: Environment, symbols: Any) -> None:
    a, b, _ = symbols
    assert int(a) == 4
    assert list(range(b)) == [0, 1, 2, 3, 4, 5]
    assert [(str(entry.expression), entry.value) for entry in environment.specializations] == [
        ("s0", 4),
        ("s1", 6),
    ]
    assert float(symbols[2] / 2) == 1.5


def test_checks_on_input_sizes(environment: Environment, symbols: Any) -> None:
    a, b, _ = symbols
    torch._check(a < b)
    assert [str(guard.condition) for guard in environment.guards] == ["s0 < s1"]
    with pytest.raises(IndexError, match="out of range"):
        torch._check_index(a > b, lambda: "out of range")


def test_checks_on_unknown_data(environment: Environment) -> None:
    u = to_torch(environment.unbacked_int())
    with pytest.raises(DataDependentError):
        bool(u > 3)
    torch._check(u > 3)
    assert u > 2
    assert environment.range(from_torch(u)) == Range(4, math.inf)
    (assertion,) = environment.assertions
    assert assertion.message == "Runtime assertion failed for expression u0 >= 4"


def test_library_questions(environment: Environment) -> None:
    from torch.fx.experimental.symbolic_shapes import (
        guard_or_false,
        guard_or_true,
        guard_size_oblivious,
        has_static_value,
        is_concrete_int,
        statically_known_true,
    )

    one, u = to_torch(environment.backed(1)), to_torch(environment.unbacked_int())
    assert guard_or_false(u == 1) is False
    assert guard_or_true(u != 1) is True
    assert guard_or_false(one == 1) is False
    assert statically_known_true(one >= 0)
    assert not statically_known_true(one == 1)
    assert not is_concrete_int(one)
    assert not has_static_value(one)
    with pytest.warns(FutureWarning):
        assert guard_size_oblivious(one == 1) is False
        assert guard_size_oblivious(one != 0) is True
    assert environment.guards == []


# -- meta kernels


def test_factories(environment: Environment, symbols: Any) -> None:
    a, b, _ = symbols
    tensor = meta(a, 4, b)
    assert shape_of(tensor) == ["s0", "4", "s1"]
    assert [str(stride) for stride in tensor.stride()] == ["4*s1", "s1", "1"]
    assert from_torch(tensor.shape[0]) is from_torch(a)
    assert str(tensor.numel()) == "4*s0*s1"
    assert tensor.is_contiguous()
    assert shape_of(torch.arange(a, device="meta")) == ["s0"]
    assert shape_of(torch.zeros(a + b, device="meta")) == ["s0 + s1"]
    assert environment.guards == []


def attention(tensor: torch.Tensor) -> torch.Tensor:
    return functional.scaled_dot_product_attention(tensor, tensor, tensor)


KERNELS: list[tuple[str, Callable[[Any, Any, Any], torch.Tensor], list[str]]] = [
    ("matmul", lambda a, b, c: meta(a, 4) @ meta(4, b), ["s0", "s1"]),
    ("bmm", lambda a, b, c: torch.bmm(meta(a, b, 5), meta(a, 5, c)), ["s0", "s1", "s2"]),
    ("linear", lambda a, b, c: functional.linear(meta(a, b, 8), meta(16, 8), meta(16)), ["s0", "s1", "16"]),
    ("cat", lambda a, b, c: torch.cat([meta(a, 4), meta(b, 4)]), ["s0 + s1", "4"]),
    ("stack", lambda a, b, c: torch.stack([meta(a, b), meta(a, b)]), ["2", "s0", "s1"]),
    ("view", lambda a, b, c: meta(a, 8).view(a, 2, 4), ["s0", "2", "4"]),
    ("reshape", lambda a, b, c: meta(a, b, 4).reshape(a, b * 4), ["s0", "4*s1"]),
    ("transpose", lambda a, b, c: meta(a, b).transpose(0, 1), ["s1", "s0"]),
    ("permute", lambda a, b, c: meta(a, b, 4).permute(2, 0, 1), ["4", "s0", "s1"]),
    ("expand", lambda a, b, c: meta(1, 4).expand(a, 4), ["s0", "4"]),
    ("unsqueeze", lambda a, b, c: meta(a, b).unsqueeze(1), ["s0", "1", "s1"]),
    ("select", lambda a, b, c: meta(8, a)[3], ["s0"]),
    ("slice", lambda a, b, c: meta(a, 8)[:, 2:5], ["s0", "3"]),
    ("add", lambda a, b, c: meta(a, b) + meta(a, b), ["s0", "s1"]),
    ("broadcast", lambda a, b, c: meta(a, b) * meta(1, b), ["s0", "s1"]),
    ("softmax", lambda a, b, c: meta(a, b).softmax(-1), ["s0", "s1"]),
    ("sum", lambda a, b, c: meta(a, b, c).sum(1), ["s0", "s2"]),
    ("mean", lambda a, b, c: meta(a, b, c).mean((0, 2), keepdim=True), ["1", "s1", "1"]),
    ("layer_norm", lambda a, b, c: functional.layer_norm(meta(a, b, 8), (8,)), ["s0", "s1", "8"]),
    (
        "embedding",
        lambda a, b, c: functional.embedding(meta(a, b, dtype=torch.long), meta(9, 5)),
        ["s0", "s1", "5"],
    ),
    (
        "conv2d",
        lambda a, b, c: functional.conv2d(meta(a, 3, b, b), meta(8, 3, 3, 3), stride=2, padding=1),
        ["s0", "8", "(s1 + 1)//2", "(s1 + 1)//2"],
    ),
    (
        "max_pool2d",
        lambda a, b, c: functional.max_pool2d(meta(a, 3, b + 2, b + 2), 2),
        ["s0", "3", "s1//2 + 1", "s1//2 + 1"],
    ),
    (
        "interpolate",
        lambda a, b, c: functional.interpolate(meta(a, 3, b), scale_factor=2.0),
        ["s0", "3", "2*s1"],
    ),
    ("pad", lambda a, b, c: functional.pad(meta(a, b), (1, 2)), ["s0", "s1 + 3"]),
    ("index_select", lambda a, b, c: meta(a, b).index_select(0, meta(c, dtype=torch.long)), ["s2", "s1"]),
    ("batch_norm", lambda a, b, c: functional.batch_norm(meta(a, 3, b), meta(3), meta(3)), ["s0", "3", "s1"]),
    ("group_norm", lambda a, b, c: functional.group_norm(meta(a, 8, b), 2), ["s0", "8", "s1"]),
    ("index", lambda a, b, c: meta(a, b, 5)[:, meta(c, dtype=torch.long)], ["s0", "s2", "5"]),
    ("gather", lambda a, b, c: meta(a, b).gather(1, meta(a, c, dtype=torch.long)), ["s0", "s2"]),
    ("where", lambda a, b, c: torch.where(meta(a, b, dtype=torch.bool), meta(a, b), meta(a, 1)), ["s0", "s1"]),
    ("repeat", lambda a, b, c: meta(a, b).repeat(2, c), ["2*s0", "s1*s2"]),
    ("flatten", lambda a, b, c: meta(a, b, c).flatten(), ["s0*s1*s2"]),
    ("reshape to -1", lambda a, b, c: meta(a, b, 8).reshape(-1, 8), ["s0*s1", "8"]),
    ("heads", lambda a, b, c: meta(a, b, 2, 4).transpose(1, 2).reshape(a, 2, b * 4), ["s0", "2", "4*s1"]),
    ("einsum", lambda a, b, c: torch.einsum("bij,bjk->bik", meta(a, b, 4), meta(a, 4, c)), ["s0", "s1", "s2"]),
    ("cumsum", lambda a, b, c: meta(a, b).cumsum(1), ["s0", "s1"]),
    ("sort", lambda a, b, c: meta(a, b).sort(-1)[0], ["s0", "s1"]),
    ("every second", lambda a, b, c: meta(a, b)[:, ::2], ["s0", "(s1 + 1)//2"]),
    ("neighbours", lambda a, b, c: meta(a, b)[:, 1:] - meta(a, b)[:, :-1], ["s0", "s1 - 1"]),
    (
        "attention",
        lambda a, b, c: attention(meta(a, 8, b, 16)),
        ["s0", "8", "s1", "16"],
    ),
]


@pytest.mark.usefixtures("python_kernels")
@pytest.mark.parametrize(("kernel", "expected"), [case[1:] for case in KERNELS], ids=[case[0] for case in KERNELS])
@pytest.mark.parametrize("hints", [(4, 6, 3), (1, 1, 1)], ids=str)
def test_meta_kernels(kernel: Any, expected: list[str], hints: tuple[int, ...]) -> None:
    """One result, and guards on emptiness at most, whatever sizes the example has."""
    environment = Environment()
    assert shape_of(kernel(*(to_torch(environment.backed(hint)) for hint in hints))) == expected
    assert environment.specializations == [], "a kernel fixed a size to the example's"
    for guard in environment.guards:
        assert environment.general_answer(guard.condition) is True, guard


@pytest.mark.usefixtures("python_kernels")
def test_slicing_with_a_symbol_guards(environment: Environment, symbols: Any) -> None:
    a, b, c = symbols
    assert shape_of(meta(a, b)[:, :c]) == ["s0", "s2"]
    assert [str(guard.condition) for guard in environment.guards] == ["s2 <= s1"]


@pytest.mark.usefixtures("python_kernels")
def test_mismatches_are_torchs_errors(symbols: Any) -> None:
    a, b, _ = symbols
    with pytest.raises(RuntimeError):
        meta(a, 4) @ meta(5, b)
    with pytest.raises(RuntimeError):
        meta(a, b) @ meta(a, b)


@pytest.mark.usefixtures("python_kernels")
@pytest.mark.parametrize("hint", [0, 1, 2])
def test_example_sizes_zero_and_one(hint: int) -> None:
    """The same program, without a guard, whatever the example's batch is."""
    environment = Environment()
    batch = to_torch(environment.backed(hint))
    hidden = functional.linear(meta(batch, 8), meta(16, 8), meta(16)).relu() + meta(16)
    assert shape_of(torch.cat([hidden, hidden], 1)) == ["s0", "32"]
    assert environment.guards == []


def test_unknown_sizes(environment: Environment) -> None:
    u = to_torch(environment.unbacked_int(lower=0))
    assert shape_of(meta(u, 4) @ meta(4, 8)) == ["u0", "8"]
    assert shape_of(torch.cat([meta(u, 4), meta(3, 4)])) == ["u0 + 3", "4"]
    assert shape_of(meta(u, 4) + meta(u, 4)) == ["u0", "4"]
    assert environment.guards == []


def test_wrapper_subclasses(environment: Environment, symbols: Any) -> None:
    a, b, _ = symbols

    class Wrapper(torch.Tensor):
        @staticmethod
        def __new__(cls, sizes: Any, strides: Any) -> Any:
            return torch.Tensor._make_wrapper_subclass(cls, sizes, strides=strides, device=torch.device("cpu"))

        @classmethod
        def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
            sizes = args[0].shape
            return cls(sizes, args[0].stride())

    tensor = Wrapper((a, b, 4), (4 * b, 4, 1))
    assert shape_of(tensor) == ["s0", "s1", "4"]
    assert str(tensor.numel()) == "4*s0*s1"
    assert tensor.is_contiguous()
    assert not Wrapper((a, b), (1, a)).is_contiguous()
    assert shape_of(tensor.relu()) == ["s0", "s1", "4"]
    assert environment.guards == []


# -- layout


def brute_force_strides(shape: tuple[int, ...], order: tuple[int, ...]) -> tuple[int, ...]:
    strides = [0] * len(shape)
    step = 1
    for dimension in order:
        strides[dimension] = step
        step *= max(shape[dimension], 1)
    return tuple(strides)


@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (2, 1, 4, 5), (1, 3, 1, 1), (2, 3, 0, 5), (1, 1, 1, 1)])
@pytest.mark.parametrize("order", [(3, 2, 1, 0), (1, 3, 2, 0), (0, 1, 2, 3), (2, 0, 3, 1)])
def test_layout_of_plain_sizes_is_torchs(shape: tuple[int, ...], order: tuple[int, ...]) -> None:
    strides = brute_force_strides(shape, order)
    tensor = torch.empty_strided(shape, strides)
    assert layout.is_contiguous(shape, strides) == tensor.is_contiguous()
    channels_last = tensor.is_contiguous(memory_format=torch.channels_last)
    assert layout.is_channels_last_contiguous_2d(shape, strides) == channels_last
    assert layout.is_non_overlapping_and_dense(shape, strides)


def test_layout_of_symbolic_sizes(environment: Environment) -> None:
    n, h, w = (environment.backed(hint) for hint in (2, 8, 8))
    shape = (n, 3, h, w)
    contiguous: Any = (3 * h * w, h * w, w, 1)
    channels_last: Any = (3 * h * w, 1, 3 * w, 3)
    assert layout.is_contiguous(shape, contiguous)
    assert not layout.is_contiguous(shape, channels_last)
    assert layout.is_channels_last_contiguous_2d(shape, channels_last)
    assert layout.is_channels_last_strides_2d(shape, channels_last)
    assert not layout.is_channels_last_strides_2d(shape, contiguous)
    assert layout.is_non_overlapping_and_dense(shape, channels_last)
    assert not layout.is_non_overlapping_and_dense(shape, (6 * h * w, 2 * h * w, w, 1))
    assert environment.guards == []


# -- the protocol


def test_every_method_that_torch_calls_exists() -> None:
    """SymNodeImpl's methods in C++ and those of torch's own Python node."""
    from torch.fx.experimental.sym_node import SymNode

    public = {name for name in dir(SymNode) if not name.startswith("_")}
    missing = {name for name in public if not hasattr(SymbolNode, name)}
    assert missing == {"with_shape_env"}  # moves a node to another of torch's environments


def test_promises_through_torchs_own_names(environment: Environment) -> None:
    from torch.fx.experimental.symbolic_shapes import constrain_range

    u = to_torch(environment.unbacked_int())
    constrain_range(u, min=2, max=5)
    assert environment.range(from_torch(u)) == Range(2, 5)
    view = u.node.shape_env
    assert view.bound_sympy(u.node.expr).upper == 5
    assert view._maybe_evaluate_static(u.node.expr) is None
    assert view._maybe_evaluate_static((u >= 2).node.expr if isinstance(u >= 2, torch.SymBool) else True) is True
    assert isinstance(from_torch(u), Expr)
    assert environment.known(gt(from_torch(u), 1)) is True
    assert environment.known(ge(from_torch(u), 3)) is None
    assert environment.known(eq(from_torch(u), 9)) is False
