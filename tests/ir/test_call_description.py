"""Calls that somebody could tell apart have other keys, and the generated check tells them apart, too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tintype.ir.call_description import FACTS, fact_reader, key_of, modes, offsets_of, write_call_check
from tintype.ir.writing import Writer
from tintype.symbolic import Environment
from tintype.symbolic.ranges import Range

BASE = torch.arange(12.0)


def example() -> list[Any]:
    return [BASE[:6].view(2, 3).clone(), torch.ones(2, 3), 3, 0.5, "mean", None]


def check_for(leaves: list[Any], **options: Any) -> Callable[..., bool]:
    writer = Writer()
    names = [f"v{position}" for position in range(len(leaves))]
    write_call_check(writer, names, leaves, "return False", **options)
    writer.line("return True")
    return writer.build("check", f"({', '.join(names)})")


def with_attribute() -> torch.Tensor:
    tensor = torch.ones(2, 3)
    tensor.tag = "marked"  # type: ignore[attr-defined]
    return tensor


# by what they differ in from the example: the position, and what is there
OTHERS: dict[str, tuple[int, Callable[[], Any]]] = {
    "kind": (0, lambda: torch.nn.Parameter(torch.ones(2, 3), requires_grad=False)),
    "dtype": (0, lambda: torch.ones(2, 3, dtype=torch.float64)),
    "device": (0, lambda: torch.ones(2, 3, device="meta")),
    "sizes": (0, lambda: torch.ones(2, 4)),
    "dimensions": (0, lambda: torch.ones(2, 3, 1)),
    "strides": (0, lambda: torch.ones(3, 2).mT),
    "requires_grad": (0, lambda: torch.ones(2, 3, requires_grad=True)),
    "is_leaf": (0, lambda: torch.ones(2, 3, requires_grad=True) * 2),
    "is_neg": (0, lambda: torch.ones(2, 3, dtype=torch.complex64).conj().imag),
    "is_conj": (0, lambda: torch.ones(2, 3, dtype=torch.complex64).conj()),
    "attached": (0, with_attribute),
    "a number in place of a tensor": (0, lambda: 1.0),
    "a tensor in place of a number": (2, lambda: torch.tensor(3)),
    "an int": (2, lambda: 4),
    "a bool": (2, lambda: True),
    "a float in place of an int": (2, lambda: 3.0),
    "a float": (3, lambda: 0.25),
    "a text": (4, lambda: "sum"),
    "something in place of None": (5, lambda: 0),
}


@pytest.mark.parametrize("what", OTHERS)
def test_one_argument_is_another(what: str) -> None:
    leaves, check = example(), check_for(example())
    assert check(*leaves)
    position, other = OTHERS[what]
    leaves[position] = other()
    assert key_of(leaves) != key_of(example())
    assert not check(*leaves)


def test_every_fact_is_one_that_a_test_tells_apart() -> None:
    assert {*FACTS} - {"storage_offset"} <= {*OTHERS}
    assert offsets_of([BASE[2:4], 1]) == (2,) != offsets_of([BASE[:2], 1])


@pytest.mark.parametrize(("first", "second"), [(0.0, -0.0), (0j, -0j), (complex(0, 0.0), complex(0, -0.0))])
def test_zeros_have_a_sign(first: Any, second: Any) -> None:
    assert key_of([first]) != key_of([second])
    assert check_for([first])(first) and not check_for([first])(second) and not check_for([second])(first)


def test_any_nan_does_for_any_other() -> None:
    assert check_for([float("nan")])(-float("nan")) and not check_for([float("nan")])(0.0)


SHARED: dict[str, Callable[[], list[torch.Tensor]]] = {
    "none": lambda: [torch.ones(2), torch.ones(2), torch.ones(2)],
    "the same twice": lambda: [x := torch.ones(2), x, torch.ones(2)],
    "another one twice": lambda: [x := torch.ones(2), torch.ones(2), x],
    "the first two": lambda: [x := torch.ones(2), x.view(2), torch.ones(2)],
    "the first and the last": lambda: [x := torch.ones(2), torch.ones(2), x.view(2)],
    "the last two": lambda: [torch.ones(2), x := torch.ones(2), x.view(2)],
    "all": lambda: [x := torch.ones(2), x.view(2), x.view(2)],
    "parts": lambda: [BASE[:2], BASE[2:4], torch.ones(2)],
    "parts that overlap": lambda: [BASE[:2], BASE[1:3], torch.ones(2)],
}


@pytest.mark.parametrize("second", SHARED)
@pytest.mark.parametrize("first", SHARED)
def test_which_tensors_share_memory(first: str, second: str) -> None:
    one, other = SHARED[first](), SHARED[second]()
    assert (key_of(one) == key_of(other)) is (first == second)
    assert check_for(one)(*other) is (first == second)


MODES: dict[str, Callable[[], Any]] = {
    "gradients": torch.no_grad,
    "inference": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "device": lambda: torch.device("meta"),
}


@pytest.mark.parametrize("mode", MODES)
def test_the_modes_of_the_thread(mode: str) -> None:
    leaves = example()
    check, outside = check_for(leaves), modes()
    with MODES[mode]():
        assert modes() != outside
        assert not check(*leaves)
        assert check_for(leaves, with_modes=False)(*leaves)
    assert modes() == outside and check(*leaves)


def test_sizes_that_vary() -> None:
    environment = Environment()
    size, count = environment.backed(4), environment.backed(3)
    known: dict[Any, str] = {}
    check = check_for(
        [torch.ones(4, 3), torch.ones(8), 3],
        sizes={0: (size, 3), 1: (2 * size,), 2: (count,)},
        ranges={0: (Range(2, 9), None), 1: (None,), 2: (Range(1, 5),)},
        known=known,
    )
    assert set(known) == {size, count}
    assert check(torch.ones(4, 3), torch.ones(8), 3) and check(torch.ones(7, 3), torch.ones(14), 5)
    assert check(torch.ones(3, 7).mT, torch.ones(14), 1)
    assert not check(torch.ones(4, 3), torch.ones(9), 3)
    assert not check(torch.ones(1, 3), torch.ones(2), 3)
    assert not check(torch.ones(4, 2), torch.ones(8), 3)
    assert not check(torch.ones(4, 3), torch.ones(8), 6)
    assert not check(torch.ones(4, 3), torch.ones(8), True)


def test_a_description_without_data_does_not_know_everything() -> None:
    with pytest.raises(ValueError, match="does not know is_leaf"):
        fact_reader("sizes", "is_leaf", of_info=True)
