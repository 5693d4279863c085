"""Numbers and sizes that vary do not make a new run each."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch

import tintype
from tests.compiler.test_compile import captures

pytestmark = pytest.mark.direct(reason="compiled functions are not exported")


class Counter:
    def __init__(self) -> None:
        self.n = 0
        self.seen: dict[str, Any] = {}


def test_a_counter_is_one_run() -> None:
    mine, other = Counter(), Counter()

    def count(x: torch.Tensor, counter: Counter) -> torch.Tensor:
        counter.n += 1
        counter.seen["last"] = counter.n * 2
        return x * counter.n + counter.seen["last"]

    compiled = tintype.compile(count)
    for _ in range(12):
        assert torch.equal(compiled(torch.ones(2), mine), count(torch.ones(2), other))
        assert (mine.n, mine.seen) == (other.n, other.seen)
        assert type(mine.n) is int and type(mine.seen["last"]) is int
    assert captures(compiled) <= 3


def test_numbers_of_the_data_are_one_run() -> None:
    def scaled(x: torch.Tensor) -> Any:
        total = x.sum().item()
        return x * total, total + 1, float(x.max()) / 2, {"list": [int(x[0])]}

    compiled = tintype.compile(scaled)
    for seed in range(8):
        x = torch.randn(4, generator=torch.Generator().manual_seed(seed)) * 10
        found, expected = compiled(x), scaled(x)
        assert torch.equal(found[0], expected[0]) and found[1:] == expected[1:]
        assert type(found[1]) is float and type(found[2]) is float and type(found[3]["list"][0]) is int
    assert captures(compiled) == 1


def test_random_numbers_are_one_run() -> None:
    compiled = tintype.compile(lambda x: x * random.random() + random.randint(0, 9))
    for seed in range(6):
        random.seed(seed)
        found = compiled(torch.ones(2))
        random.seed(seed)
        assert torch.equal(found, torch.ones(2) * random.random() + random.randint(0, 9))
    assert captures(compiled) == 1


def test_sizes_are_static_first_and_then_vary() -> None:
    def rows(x: torch.Tensor) -> torch.Tensor:
        rows, columns = x.shape
        y = x.reshape(rows * columns)
        return (y / y.shape[0] + columns).view(x.size(0), -1)[: rows - 1]

    compiled = tintype.compile(rows)
    for size in ((3, 4), (5, 4), (2, 6), (7, 4), (1, 9), (0, 4), (6, 2)):
        x = torch.randn(size)
        if x.numel():
            assert torch.equal(compiled(x), rows(x))
    assert captures(compiled) <= 3


def test_comparisons_of_sizes_are_guards() -> None:
    def use(x: torch.Tensor) -> torch.Tensor:
        if x.shape[0] > 4 and x.shape[0] % 2 == 0:
            return x * 2
        return x + x.shape[0]

    compiled = tintype.compile(use, dynamic=True)
    for size in (3, 5, 6, 2, 8, 9, 4, 100):
        assert torch.equal(compiled(torch.ones(size)), use(torch.ones(size)))
    assert captures(compiled) <= 3


@pytest.mark.parametrize(("dynamic", "most"), [(True, 1), (False, 6), (None, 2)])
def test_the_option_dynamic(dynamic: bool | None, most: int) -> None:
    compiled = tintype.compile(lambda x, n: x[:n] * n + x.shape[0], dynamic=dynamic)
    for n in range(1, 7):
        x = torch.arange(10.0)
        assert torch.equal(compiled(x, n), x[:n] * n + 10)
    assert captures(compiled) == most


def test_marks_of_sizes() -> None:
    x = torch.ones(3, 4)
    tintype.compile.mark_dynamic(x, 0)
    compiled = tintype.compile(lambda x: x * x.shape[0] + x.shape[1])
    for size in ((3, 4), (5, 4), (9, 4)):
        y = x if size == (3, 4) else torch.ones(size)
        assert torch.equal(compiled(y), torch.ones(size) * size[0] + size[1])
    assert captures(compiled) == 1
    compiled(torch.ones(3, 5))
    assert captures(compiled) == 2

    compiled = tintype.compile(lambda x: x * x.shape[0])
    for size in (3, 4, 5, 6):
        x = torch.ones(size)
        tintype.compile.mark_static(x, 0)
        compiled(x)
    assert captures(compiled) == 4


USES: list[Callable[[Any, torch.Tensor], Any]] = [
    lambda n, x: x * (1.5 + n),
    lambda n, x: x * (True + n),
    lambda n, x: x * sum([1.5, n]),
    lambda n, x: x * max(2.5, n),
    lambda n, x: x * max([n, 3, 2]),
    lambda n, x: x * min(n, 4),
    lambda n, x: x * sum([n, n, 1]),
    lambda n, x: x if 2.5 < n else -x,
    lambda n, x: x if n in (1, 3, 5) else -x,
    lambda n, x: x if n in [2.0, 4.0] else -x,
    lambda n, x: x if (n, 2) == (3, 2.0) else -x,
    lambda n, x: x if (2.0, n) < (n, 4) else -x,
    lambda n, x: x if n in {1, 4} else -x,
    lambda n, x: x if n in range(2, 5) else -x,
    lambda n, x: x * {1: 5, 2: 6, 3: 7}.get(n, 0),
    lambda n, x: x * [5, 6, 7, 8, 9, 10, 11, 12, 13, 14][n],
    lambda n, x: x[:n],
    lambda n, x: x[n],
    lambda n, x: x[..., n:],
    lambda n, x: x * len([0] * n),
    lambda n, x: x * len(n * [0]),
    lambda n, x: x * len("a" * n),
    lambda n, x: x * float("%d.5" % n),  # noqa: UP031
    lambda n, x: x * float(f"{n}.5"),
    lambda n, x: x * float(str(n)),
    lambda n, x: x * int(format(n)),
    lambda n, x: x * len(list(range(n))),
    lambda n, x: sum((x * i for i in range(n)), x),
    lambda n, x: x * (n // 2) + n % 3,
    lambda n, x: x * (n / 3),
    lambda n, x: x * (2**n),
    lambda n, x: x * (n**2),
    lambda n, x: x * (n**-1),
    lambda n, x: x * (1 << n),
    lambda n, x: x * (n & 3),
    lambda n, x: x * ~n,
    lambda n, x: x * -n + abs(-n),
    lambda n, x: x * divmod(n, 2)[0],
    lambda n, x: x * pow(n, 2),
    lambda n, x: x * round(n / 3, 1),
    lambda n, x: x * math.sqrt(n),
    lambda n, x: x * math.floor(n / 3),
    lambda n, x: x * math.factorial(n),
    lambda n, x: x * n.bit_length(),
    lambda n, x: x * n.real,
    lambda n, x: x * (1 + 2j) * n,
    lambda n, x: x * (n is 3 or 2),  # noqa: F632
    lambda n, x: x * (n if type(n) is int else 100),
    lambda n, x: x * (n if isinstance(n, int) and not isinstance(n, bool) else 100),
    lambda n, x: x * (n or 7),
    lambda n, x: x * (3 if not n - 3 else 2),
    lambda n, x: x.repeat(n),
    lambda n, x: torch.full((n,), n),
    lambda n, x: torch.tensor([n, n + 1]),
    lambda n, x: torch.zeros(torch.Size([n, 2])).shape[0] + n,
    lambda n, x: torch.Size([n, 2]).numel(),
    lambda n, x: [n, (n, {"n": n}), [n + 1]],
    lambda n, x: sorted([n, 3, 1]),
    lambda n, x: list(map(lambda v, w=n: v + w, [1, 2])),
    lambda n, x: [i * n for i in range(3)],
    lambda n, x: dict({"a": n}, b=[n]),
    lambda n, x: str([n]) + repr((n,)),
    lambda n, x: f"{n} {n:>3}",
    lambda n, x: hash(n) + hash((n, 1)),
    lambda n, x: [*range(5)][-n:],
    lambda n, x: slice(n).stop,
    lambda n, x: n.__class__ is int,
    lambda n, x: float(n) * 2,
    lambda n, x: complex(n).real,
    lambda n, x: bytes([n]),
    lambda n, x: x.view(2, -1).sum(n % 2),
    lambda n, x: torch.arange(n) + x.sum().item() * n,
]


@pytest.mark.parametrize("position", range(len(USES)))
@pytest.mark.filterwarnings("ignore")
def test_what_is_done_with_a_number_that_varies(position: int) -> None:
    use = USES[position]
    compiled = tintype.compile(use, dynamic=True)
    sized = tintype.compile(lambda t, x: use(t.shape[0], x), dynamic=True)
    for n in (1, 2, 5, 3, 4, 2, 8):
        for found in (compiled(n, torch.arange(1.0, 11)), sized(torch.ones(n), torch.arange(1.0, 11))):
            expected = use(n, torch.arange(1.0, 11))
            if isinstance(expected, torch.Tensor):
                assert torch.equal(found, expected) and found.dtype == expected.dtype
            else:
                assert found == expected and type(found) is type(expected) and repr(found) == repr(expected)
    assert not compiled.engine.is_eager or "captured" in compiled.engine.why_eager


def test_divisions_by_numbers_that_vary_raise() -> None:
    def use(x: torch.Tensor, n: int) -> torch.Tensor:
        try:
            return x * (6 // n)
        except ZeroDivisionError:
            return -x

    compiled = tintype.compile(use, dynamic=True)
    for n in (2, 3, 0, 2, 0, 6):
        assert torch.equal(compiled(torch.ones(2), n), use(torch.ones(2), n))


def test_numbers_and_gradients() -> None:
    compiled = tintype.compile(lambda x: (x * x.shape[0]).sum() / x.numel())
    for size in (2, 3, 4, 5):
        x = torch.randn(size, requires_grad=True)
        y = x.detach().clone().requires_grad_()
        compiled(x).backward()
        ((y * size).sum() / size).backward()
        assert x.grad is not None and y.grad is not None and torch.equal(x.grad, y.grad)
    assert captures(compiled) == 2


GLOBAL = 1


def test_globals_and_cells_that_vary() -> None:
    global GLOBAL
    inner = 0

    def use(x: torch.Tensor) -> torch.Tensor:
        global GLOBAL
        nonlocal inner
        GLOBAL = GLOBAL * 2
        inner += GLOBAL
        return x * inner + GLOBAL

    compiled = tintype.compile(use)
    expected_global, expected_inner = 1, 0
    for _ in range(8):
        expected_global *= 2
        expected_inner += expected_global
        found = compiled(torch.ones(1))
        assert (GLOBAL, inner) == (expected_global, expected_inner) and type(GLOBAL) is int and type(inner) is int
        assert found == expected_inner + expected_global
    assert captures(compiled) <= 4
    GLOBAL = 1


def test_a_miss_in_the_middle_knows_the_sizes_of_what_is_gone() -> None:
    def use(x: torch.Tensor) -> torch.Tensor:
        n = (x * 2).shape[0]
        sign = 1 if x.sum() > 0 else -1
        return x * n * sign

    compiled = tintype.compile(use)
    for size, value in ((2, 1.0), (3, 1.0), (3, -1.0), (4, -1.0), (5, 1.0), (6, -1.0)):
        x = torch.full((size,), value)
        assert torch.equal(compiled(x), use(x))
    assert captures(compiled) <= 4


def test_a_container_that_was_written_to_is_looked_at_as_it_is_by_then() -> None:
    items: list[Any] = []

    def use(x: torch.Tensor, items: list[Any]) -> Any:
        items.append(x.sum())
        x = x * random.random()
        items.append(1)
        return x * len(items) * random.random()

    compiled = tintype.compile(use)
    others: list[Any] = []
    for seed in range(6):
        random.seed(seed)
        found = compiled(torch.ones(2), items)
        random.seed(seed)
        assert torch.equal(found, use(torch.ones(2), others)) and len(items) == len(others)
        if seed % 2:
            items.clear(), others.clear()


def test_sizes_that_were_static_stay_so_in_the_part_that_was_done() -> None:
    class State:
        total = 0

    def use(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        State.total = y.shape[0]
        y = y + y
        z = x * x.sum().item()
        return z * z.shape[0]

    compiled = tintype.compile(use)
    for size in (4, 4, 5, 5, 6, 7, 4):
        x = torch.ones(size)
        assert torch.equal(compiled(x), x * size * size) and State.total == size


@pytest.mark.parametrize(
    "make", [lambda n: {n}, lambda n: {n: 1}, lambda n: frozenset([n]), lambda n: {(n, 1): n}, lambda n: [{n, 9}]]
)
def test_keys_that_vary_are_plain_numbers_for_the_caller(make: Any) -> None:
    compiled = tintype.compile(lambda x, n: (x, make(n)))
    for n in (1, 2, 3, 4):
        found = compiled(torch.ones(1), n)[1]
        stack: list[Any] = [found]
        seen: list[type] = []
        while stack:
            item = stack.pop()
            if isinstance(item, (set, frozenset, tuple, list, dict)):
                stack.extend(item)
            else:
                seen.append(type(item))
        assert found == make(n) and set(seen) == {int}
