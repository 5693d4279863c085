"""Questions that a program asks by operators, and by what returns its argument where there is nothing to do."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch

import tintype
from tests.export.test_observations import runnable
from tintype.errors import CaptureError, InputMismatchError

aten = torch.ops.aten
QUESTIONS: dict[str, Callable[[torch.Tensor], Any]] = {
    "contiguous": lambda x: aten.is_contiguous(x),
    "contiguous overload": lambda x: aten.is_contiguous.default(x),
    "contiguous in a format": lambda x: aten.is_contiguous.memory_format(x, memory_format=torch.channels_last),
    "like a format": lambda x: aten.is_strides_like_format(x, torch.channels_last),
    "dense": lambda x: aten.is_non_overlapping_and_dense(x),
    "overlapping": lambda x: torch._debug_has_internal_overlap(x),
    "strides": lambda x: aten.stride(x)[0],
    "one stride": lambda x: aten.stride.int(x, 1),
    "symbolic strides": lambda x: aten.sym_stride(x)[0],
    "offset": lambda x: aten.storage_offset(x),
    "symbolic offset": lambda x: aten.sym_storage_offset(x),
    "negated": lambda x: aten.is_neg(x),
}


def layouts(sizes: tuple[int, ...]) -> list[torch.Tensor]:
    """Tensors that differ in what nobody sees of their elements."""
    plain = torch.arange(120.0).reshape(2, 3, 4, 5)[: sizes[0]].contiguous()
    return [
        plain,
        plain.to(memory_format=torch.channels_last),
        plain.permute(3, 2, 1, 0).contiguous().permute(3, 2, 1, 0),
        plain[:1].expand(plain.shape),
        torch.cat([plain.reshape(-1), plain.reshape(-1)])[1 : 1 + plain.numel()].view(plain.shape),
        torch.stack([plain, plain], -1)[..., 0],
        torch._neg_view(-plain),
    ]


@pytest.mark.parametrize("varies", [False, True])
@pytest.mark.parametrize("name", QUESTIONS)
def test_what_operators_ask_is_asked(name: str, varies: bool) -> None:
    ask = QUESTIONS[name]

    def f(x: torch.Tensor) -> torch.Tensor:
        return x + float(ask(x))

    for how in ("module", "decomposed", "saved"):
        shapes = ({0: tintype.Dim("n")},) if varies else None
        program = runnable(how, f, (layouts((2,))[0],), dynamic_shapes=shapes)
        answered = 0
        for x in layouts((2,)):
            try:
                result = program(x)
            except InputMismatchError:
                continue
            answered += 1
            torch.testing.assert_close(result, f(x), rtol=0, atol=0)
        assert answered > 1


def test_operators_are_found_in_tables_while_something_is_captured() -> None:
    table = {aten.stride.int: 1, aten.is_contiguous: 2}
    found: list[Any] = []

    def f(x: torch.Tensor) -> torch.Tensor:
        found.extend((table[aten.stride.int], table[aten.is_contiguous]))
        return x + 1

    tintype.export(f, (torch.ones(2),))
    assert found == [1, 2]


CONVERSIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "float": lambda x: x.float(),
    "to dtype": lambda x: x.to(torch.float32),
    "to other": lambda x: x.to(x),
    "to format": lambda x: x.to(memory_format=torch.contiguous_format),
    "cpu": lambda x: x.cpu(),
    "type_as": lambda x: x.type_as(x),
    "as_tensor": torch.as_tensor,
    "contiguous": lambda x: x.contiguous(),
    "resolve_conj": lambda x: x.resolve_conj(),
    "half": lambda x: x.half(),
    "reshape": lambda x: x.reshape(x.shape),
}


@pytest.mark.parametrize("control_flow", ["auto", "refuse"])
@pytest.mark.parametrize("name", CONVERSIONS)
def test_which_object_a_conversion_returns(name: str, control_flow: str) -> None:
    convert = CONVERSIONS[name]

    def by_is(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        z, w = convert(x), convert(y)
        return y.sum() + (1 if z is x else 2) + (10 if w is y else 20)

    def by_id(x: torch.Tensor) -> torch.Tensor:
        return x.sum() + (1 if id(convert(x)) == id(x) else 2)

    class Held(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("held", torch.ones(2, 3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * (2 if convert(self.held) is self.held else 3)

    for f in (by_is, by_id, Held()):
        program = tintype.export(f, (torch.ones(2, 3),), control_flow=control_flow).module()
        for x in (torch.ones(2, 3), torch.ones(3, 2).t(), torch.ones(1, 3).expand(2, 3)):
            try:
                result = program(x)
            except InputMismatchError:
                assert not x.is_contiguous()
                continue
            torch.testing.assert_close(result, f(x), rtol=0, atol=0)


def test_a_copy_where_the_conversion_was_none() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        y = x.float()
        if y is x:
            y = y.clone()
        y += 1
        return y

    x = torch.ones(3)
    for how in ("module", "decomposed", "training", "retraced"):
        torch.testing.assert_close(runnable(how, f, (x,))(x), torch.full((3,), 2.0))
        assert x.tolist() == [1, 1, 1]


def test_who_compares_no_tensors_keeps_conversions() -> None:
    def f(x: torch.Tensor, mode: Any = torch.float32) -> torch.Tensor:
        return x.float() if type(x) is torch.Tensor and mode is torch.float32 else x

    program = tintype.export(f, (torch.ones(3),))
    assert any(node.target is aten._to_copy.default for node in program.graph.nodes)


def test_copies_of_what_is_marked_as_negated() -> None:
    def writes(x: torch.Tensor) -> torch.Tensor:
        x.resolve_conj().resolve_neg().add_(1)
        return x * 2

    program = tintype.export(writes, (torch.ones(3),)).module()
    torch.testing.assert_close(program(torch.ones(3)), torch.full((3,), 4.0))
    with pytest.raises(InputMismatchError, match="is_neg"):
        program(torch._neg_view(torch.ones(3)))

    def reads(x: torch.Tensor) -> torch.Tensor:
        return x.resolve_conj().resolve_neg() * 2

    program = tintype.export(reads, (torch.ones(3),)).module()
    torch.testing.assert_close(program(torch._neg_view(torch.ones(3))), torch.full((3,), -2.0))

    program = tintype.export(writes, (torch.ones(3, dtype=torch.complex64).conj(),)).module()
    with pytest.raises(InputMismatchError, match="is_conj"):
        program(torch.ones(3, dtype=torch.complex64))


def test_deep_copies_of_several_tensors() -> None:
    def of_views(x: torch.Tensor) -> torch.Tensor:
        y, row = copy.deepcopy([x, x[0]])
        y.add_(1)
        return row

    with pytest.raises(CaptureError, match="several tensors that share memory"):
        tintype.export(of_views, (torch.ones(2, 3),))

    def of_one(x: torch.Tensor) -> torch.Tensor:
        y, z = copy.deepcopy([x, x])
        y.add_(1)
        return z + copy.deepcopy(x)

    x = torch.ones(2, 3)
    torch.testing.assert_close(tintype.export(of_one, (x,)).module()(x), of_one(x))
