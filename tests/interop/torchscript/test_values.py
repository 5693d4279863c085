"""Values of every type of TorchScript: containers that are shared, objects, numbers, dtypes, texts."""

from __future__ import annotations

import math
from enum import Enum
from typing import Any, Dict, List, NamedTuple, Optional, Tuple, Union

import pytest
import torch

import tintype
from tests.interop.torchscript.comparing import Case, cases, compare, converted
from tintype import errors

ALL: list[Case] = []
case = cases(ALL)
X, Y = torch.arange(6.0).reshape(2, 3), torch.randn(2, 3)
ANY_ROWS = {"x": {0: tintype.Dim("rows")}}
SIZES = (torch.randn(3, 2), torch.randn(5, 2), torch.randn(1, 2))


class Point(NamedTuple):
    place: torch.Tensor
    weight: int


class Color(Enum):
    RED = 1
    BLUE = 2


# --- lists -----------------------------------------------------------------------------------------------


@case((X, [X, Y]), (Y, [Y, X]))
def list_argument_is_a_copy(x, items: List[torch.Tensor]):
    items.append(x)
    items[0] = x * 2
    return items, len(items)


@case(X)
def lists_share(x):
    a = [x]
    b = a
    b.append(x + 1)
    a[0] = x * 3
    return a, b, len(a)


@case(X)
def copies_do_not_share(x):
    a = [x]
    b = a.copy()
    c = list(a)
    d = a[:]
    b.append(x + 1)
    c.append(x + 2)
    d.clear()
    return a, b, c, d


@case(X)
def every_method_of_a_list(x):
    a = [3, 1, 2]
    a.append(7)
    a.extend([5, 5])
    a.insert(1, 9)
    last = a.pop()
    second = a.pop(1)
    a.remove(3)
    a.reverse()
    b = sorted(a)
    a.sort(reverse=True)
    del a[0]
    return x, a, b, last, second, a.index(2), a.count(5), 5 in a, max(a), min(b), sum(a)


@case(X)
def added_lists(x):
    a = [x]
    b = a + [x * 2]
    a += [x * 3]
    return a, b, a[-1], [0] * 3


@case(X)
def list_of_lists(x):
    rows: List[List[torch.Tensor]] = [[x], [x + 1, x + 2]]
    inner = rows[0]
    inner.append(x * 5)
    return rows, [len(row) for row in rows]


@case(X)
def loop_over_a_list(x):
    total = x
    for i, item in enumerate([x, x * 2, x * 3]):
        total = total + item * i
    for a, b in zip([1, 2], [x, x]):
        total = total + a * b
    return total


@case(X)
def comprehensions(x):
    return [x * i for i in range(3)], {i: x[0] * i for i in [1, 2]}


@case(X)
def unpacking(x):
    a, b = x.unbind(0)
    c, d = torch.split(x, [1, 2], dim=1)
    pieces = list(torch.chunk(x, 3, 1))
    pieces[0] = pieces[1] * 2
    return a - b, c, d, torch.cat(pieces, 1)


@case(X, Y)
def views_in_a_list_are_written_to(x):
    y = x.clone()
    rows = [y[0], y[1]]
    rows[0].add_(10)
    for row in rows:
        row.mul_(2)
    return y


@case(X)
def list_slices_and_negative_indices(x):
    a = [10, 20, 30, 40, 50]
    return x, a[-1], a[1:-1], a[::2], a[-3:], a[:0]


@case(X, Y)
def append_in_a_branch(x):
    items = [x]
    if x.sum() > 1:
        items.append(x * 2)
    else:
        items.append(x * 3)
    return items[1], len(items)


@case(X, Y)
def set_item_in_a_branch(x):
    items = [x, x + 1]
    other = items
    if x.sum() > 1:
        items[0] = x * 2
    return other[0], items[1]


@case(X, Y)
def list_of_unequal_length_after_a_branch(x):
    items = [x]
    if x.sum() > 1:
        items.append(x * 2)
    return torch.stack(items).sum(0)


# --- dictionaries ----------------------------------------------------------------------------------------


@case((X, {"a": X, "b": Y}))
def dict_argument(x, items: Dict[str, torch.Tensor]):
    items["c"] = items["a"] + x
    return items, "a" in items, "z" in items, len(items)


@case(X)
def every_method_of_a_dict(x):
    d: Dict[str, int] = {"b": 1, "a": 2}
    d["c"] = 3
    e = d
    e.update({"d": 4, "a": 5})
    popped = d.pop("b")
    other = d.pop("q", 8)
    got = d.get("nothing", 9)
    default = d.setdefault("x", 10)
    copied = d.copy()
    copied.clear()
    del d["c"]
    keys = list(d.keys())
    total = 0
    for key, value in d.items():
        total += value * len(key)
    return x, d, keys, list(d.values()), popped, other, got, default, copied, total, d.get("nothing")


@case(X, Y)
def dict_changed_in_a_branch(x):
    d = {"a": x}
    if x.sum() > 1:
        d["a"] = x * 2
        d["b"] = x
    else:
        d["a"] = x * 3
        d["b"] = x + 1
    return d


@case(X)
def dict_with_integer_keys(x):
    d = {1: x, 2: x * 2}
    d[3] = d[1] + d[2]
    return [d[i] for i in range(1, 4)]


# --- tuples, named tuples, optionals, unions -------------------------------------------------------------


@case(X)
def tuples(x):
    pair: Tuple[torch.Tensor, int] = (x, 3)
    nested = (pair, (x * 2, "text"))
    (a, n), (b, text) = nested
    return a + b * n, text, nested[0][1:]


@case((X, Point(X, 2)), (Y, Point(Y, 2)))
def named_tuple(x, point: Point):
    moved = Point(point.place + x, point.weight * 2)
    return moved, moved.weight, moved[0]


@case((X, None), (Y, None))
def optional_that_is_none(x, other: Optional[torch.Tensor] = None):
    if other is None:
        other = x * 2
    return x + other


@case((X, Y), (Y, X))
def optional_that_is_there(x, other: Optional[torch.Tensor] = None):
    if other is not None:
        return x + other
    return x


@case((X, 3))
def union(x, other: Union[int, torch.Tensor]):
    if isinstance(other, int):
        return x * other
    return x + other


@case((X, Color.RED))
def enum_argument(x, color: Color):
    if color == Color.RED:
        return x + 1, color.value, color.name
    return x - 1, color.value, color.name


@case((X, "twice"))
def string_argument(x, how: str):
    if how == "twice":
        return x * 2, how + "!", how.upper(), how[1:3], len(how), "{} {}".format(how, 3)
    return x, how, how, how, 0, how


@case((X, 2))
def float_argument_given_an_integer(x, factor: float):
    return x * factor, factor


@case((X, torch.float64, torch.device("cpu")))
def dtype_and_device_arguments(x, dtype: torch.dtype, device: torch.device):
    y = x.to(dtype).to(device)
    return y, y.dtype == dtype, y.device == device, y.dtype, y.device.type


# --- numbers ---------------------------------------------------------------------------------------------


@case((X, 7, -2), (X, 7, -2))
def integer_arithmetic(x, a: int, b: int):
    return x, a // b, a % b, -a // b, a / b, a * b, a**2, a**-1, abs(b), -a % 3, divmod(a, 3), a & 3, a | 8, a << 2


@case((X, 7.5, -2.0))
def float_arithmetic(x, a: float, b: float):
    return x, a // b, a % b, a / b, a**b, int(a), int(b), round(a), abs(b), float(3), min(a, b), max(a, b)


@case(X)
def numbers_of_tensors(x):
    n = int(x[0, 1])
    f = float(x.sum())
    b = bool(x[0, 2] > 1)
    return x * n + f, n, f, b, x.max().item()


@case(torch.tensor([[7, -7], [3, 2]]), torch.tensor([[5, -3], [1, 2]]))
def division_of_integer_tensors(x):
    return x // 2, x / 2, torch.div(x, 2, rounding_mode="trunc"), x % 3, torch.fmod(x, 3), x.sum() // 4


@case(torch.tensor([1, 2], dtype=torch.int8))
def promotion(x):
    return x + 1, x + 1.5, x * True, x / 2, x.float() + x.double(), 2**x, 1 - x, torch.tensor(3) * x


@case(torch.tensor([1.0, 2.0], dtype=torch.float16), torch.tensor([3.0, 4.0], dtype=torch.float16))
def half_precision(x):
    return x + 1, x * 0.1, x.sum(), x / 3, x + torch.tensor(1.5), x.to(torch.bfloat16)


@case(X)
def made_tensors(x):
    return (
        torch.tensor([1, 2]),
        torch.tensor([1.0, 2.0]),
        torch.tensor(True),
        torch.tensor([[1], [2]], dtype=torch.float64),
        torch.zeros(2),
        torch.zeros([2], dtype=torch.int32),
        torch.arange(3),
        torch.full([2], 3),
        torch.ones_like(x, dtype=torch.int64),
        torch.as_tensor(3.5),
        torch.linspace(0.0, 1.0, 3),
    )


@case(*SIZES, dynamic=ANY_ROWS)
def arithmetic_on_sizes(x):
    n = x.size(0)
    m = n * 2 + 1
    half = m // 2
    return x.sum(0) * (n / 3), m, half, n % 2 == 0, max(n, 4), min(n, 2), float(n) * 0.5, -n, (n + 1) // 2


@case(*SIZES, dynamic=ANY_ROWS)
def shapes_as_lists(x):
    shape = list(x.shape)
    shape[0] = shape[0] * 2
    y = torch.cat([x, x])
    return y.reshape(shape), x.new_zeros(x.size()), x.shape[0], len(x), x.numel(), x.dim(), x.size()


@case(*SIZES, dynamic=ANY_ROWS)
def tensor_made_of_sizes(x):
    return torch.tensor([x.size(0), x.size(1)]), x * torch.tensor(x.size(0)), torch.arange(x.size(0))


@case(X)
def overflow_wraps(x):
    big = 9223372036854775807
    return x, big + 1, big * 2


@case(X)
def math_functions(x):
    return x * math.sqrt(2.0), math.floor(2.7), math.ceil(2.1), math.log(3.0), math.pi, math.exp(1), float("inf")


@case(X)
def text_methods(x):
    s = "  a,b,c "
    return (
        x,
        s.strip().split(","),
        s.replace("a", "x"),
        s.find("b"),
        "-".join(["p", "q"]),
        s.startswith(" "),
        ord("a"),
    )


@case(X)
def to_list(x):
    y = torch.tensor([1, 2, 3])
    items: List[int] = y.tolist()
    return x, items, sum(items)


@case(X, Y)
def to_list_of_data(x):
    items: List[float] = x[0].tolist()
    return items[0] + items[1]


# --- objects ---------------------------------------------------------------------------------------------


@torch.jit.script
class Gathering:
    def __init__(self, x: torch.Tensor, limit: int = 3):
        self.total = x
        self.limit = limit
        self.items: List[torch.Tensor] = []

    def add(self, x: torch.Tensor) -> "Gathering":
        self.total = self.total + x
        self.items.append(x)
        self.limit -= 1
        return self


@case(X, Y)
def objects(x):
    g = Gathering(x)
    other = g
    g.add(x * 2).add(x * 3)
    return other.total, other.limit, len(other.items), other.items[1]


@case(X, Y)
def object_changed_in_a_branch(x):
    g = Gathering(x, 5)
    other = g
    if x.sum() > 1:
        g.total = x * 7
        g.limit = 1
    return other.total, other.limit


@case(X, Y)
def objects_in_a_loop(x):
    g = Gathering(x)
    for i in range(4):
        g.add(x * i)
    return g.total, torch.stack(g.items).sum(0), g.limit


@case(X, Y)
def object_in_a_recorded_loop(x):
    g = Gathering(x)
    while bool(g.total.sum() < 50):
        g.total = g.total.abs() * 2 + 1
    return g.total


# --- futures, contexts -----------------------------------------------------------------------------------


def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@case(X, Y)
def futures(x):
    future = torch.jit.fork(doubled, x)
    y = x + 1
    return torch.jit.wait(future) + y


@case(X, Y)
def list_of_futures(x):
    futures: List[torch.jit.Future[torch.Tensor]] = []
    for i in range(3):
        futures.append(torch.jit.fork(doubled, x * i))
    return torch.stack([torch.jit.wait(future) for future in futures])


@case(X, Y)
def without_gradients(x):
    with torch.no_grad():
        y = x * 2
    return y + x


@case(X, Y)
def profiled(x):
    with torch.profiler.record_function("named"):
        y = x * 2
    return y


@case(X)
def prints_and_warns(x):
    print("hello", x.size(0))
    return x + 1


# --- indexing and writes -----------------------------------------------------------------------------------


@case(X, Y)
def indexing(x):
    y = x.clone()
    y[0] = 5
    y[:, 1] = x[:, 0]
    y[y > 3] = -1.0
    y[0, 2] += 4
    return y, x[..., 0], x[None], x[:, [0, 2]], x[torch.tensor([1, 0])], x[1:, ::2]


@case(X, Y)
def writes_are_seen_through_views(x):
    y = x.clone()
    flat = y.view(-1)
    column = y[:, 0]
    flat[0] = 100
    column.add_(1)
    y.t()[2] = 0
    return y, flat.sum(), column


@case(X, Y)
def argument_is_written_to(x):
    x.mul_(2)
    x[0] = 1
    return x.sum()


@case(X, Y)
def random_numbers(x):
    return x + torch.rand([2, 3]), torch.nn.functional.dropout(x, 0.5, True), torch.randn_like(x)


@pytest.mark.parametrize("case", ALL, ids=lambda case: case.name)
def test_does_what_the_script_does(case: Case) -> None:
    case.run()


def test_default_dtype_is_that_of_the_conversion() -> None:
    def function(x):
        return torch.zeros([2]) + x, torch.tensor(1.5)

    torch.set_default_dtype(torch.float64)
    try:
        compare(function, (torch.ones(2),))
    finally:
        torch.set_default_dtype(torch.float32)


def test_what_a_script_does_not_take() -> None:
    def function(x, n: int, items: List[torch.Tensor]):
        return x * n + items[0]

    script = torch.jit.script(function)
    for args in [(X, 1.5, [X]), (X, 2, X), (X, 2, [3]), (X, "a", [X]), (1, 2, [X]), (None, 2, [X])]:
        with pytest.raises(errors.InvalidRequestError):
            converted(script, args)
    with pytest.raises(errors.InvalidRequestError):
        converted(script, (X,))


def test_keywords_and_defaults() -> None:
    def function(x, factor: float = 2.0, shift: Optional[torch.Tensor] = None):
        return x * factor if shift is None else x * factor + shift

    script = torch.jit.script(function)
    program = tintype.interop.from_torchscript(script, (X,), {"shift": Y})
    torch.testing.assert_close(program.module()(X, shift=Y), script(X, shift=Y))
    torch.testing.assert_close(converted(script, (X,)).module()(X), script(X))


def test_numbers_that_vary() -> None:
    def function(x, n: int):
        y = x
        for i in range(n):
            y = y + i
        return y * n

    script = torch.jit.script(function)
    shapes: Any = {"x": None, "n": tintype.Dim.DYNAMIC}
    program = converted(script, (X, 3), shapes).module()
    for n in (0, 1, 3, 10):
        torch.testing.assert_close(program(X, n), script(X, n))
