"""Functions that programs call in place of operators: each calls that operator, with all of its arguments."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import tintype
from tintype.export.direct_calls import DIRECT_CALLS

aten = torch.ops.aten


class Calls(TorchDispatchMode):
    """The operators that reach a kernel, with their arguments."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[Any] = []

    def __torch_dispatch__(self, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named = {name: value for name, value in (kwargs or {}).items() if (name, value) != ("pin_memory", False)}
        described = [_described(argument) for argument in (*args, *named.items())]
        self.found.append((operator, described))
        return operator(*args, **(kwargs or {}))


def _described(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.shape, value.dtype, value.stride()
    return list(map(_described, value)) if isinstance(value, (list, tuple)) else value


def _of(*sizes: int) -> torch.Tensor:
    return torch.arange(1.0, 1 + torch.Size(sizes).numel()).reshape(sizes)


FLAGS = torch.tensor([[True, False, True], [False, True, True]])
PAIR = [(_of(2, 3), _of(2, 3)), (_of(2, 3), _of(3)), (_of(2, 3), 2.5), (_of(2, 3), 3), (_of(2, 3).long(), 2.5),
        (_of(2, 3).half(), _of(1)), (_of(2, 3), torch.tensor(2.0, dtype=torch.float64)), (FLAGS, 1),
        (_of(2, 3), True)]  # fmt: skip
ONE = [(_of(2, 3),), (_of(2, 3).t(),), (_of(2, 3).double(),), (_of(0, 3),)]
TENSORS = [pair for pair in PAIR if isinstance(pair[1], torch.Tensor)]
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
SAMPLES: dict[Any, list[tuple[Any, ...]]] = {
    aten.__and__.Tensor: [(FLAGS, FLAGS), (_of(3).long(), _of(3).int())],
    aten.__or__.Tensor: [(FLAGS, FLAGS), (_of(3).long(), _of(3).int())],
    aten._softmax.default: [(_of(2, 3), -1, False)],
    aten.flatten.using_ints: [(_of(2, 3, 1),), (_of(2, 3, 1), 1), (_of(2, 3).t(),)],
    aten.gather.default: [(_of(2, 3), 1, torch.tensor([[0], [2]]))],
    aten.index_copy.default: [(_of(3, 2), 0, torch.tensor([2, 0]), _of(2, 2))],
    aten.index_select.default: [(_of(3, 2), 0, torch.tensor([2, 0]))],
    aten.repeat.default: [(_of(2), [3]), (_of(2), [2, 2])],
    aten.stack.default: [([_of(2), _of(2)],), ([_of(2), _of(2)], -1)],
    aten.sym_size.int: [(_of(2, 3), 1), (_of(2, 3).t(), -1)],
    aten.sym_stride.int: [(_of(2, 3), 1), (_of(2, 3).t(), -1)],
    aten.t.default: [(_of(2, 3),), (_of(3),)],
    **{getattr(aten, name).Tensor: TENSORS for name in COMPARISONS},
    **{getattr(aten, name).Scalar: [(_of(2, 3), 2), (_of(3).long(), 2.5), (FLAGS, True)] for name in COMPARISONS},
    aten.add.Tensor: PAIR,
    aten.addmm.default: [(_of(4), _of(2, 3), _of(3, 4))],
    aten.amax.default: [(_of(2, 3), [1]), (_of(2, 3),), (_of(2, 3), [-1, 0], True)],
    aten.amin.default: [(_of(2, 3), [1]), (_of(2, 3),), (_of(2, 3), [-1, 0], True)],
    aten.bitwise_and.Tensor: [(FLAGS, FLAGS), (_of(3).long(), _of(3).int())],
    aten.bitwise_or.Tensor: [(FLAGS, FLAGS), (_of(3).long(), _of(3).int())],
    aten.bmm.default: [(_of(2, 2, 3), _of(2, 3, 2))],
    aten.cat.default: [([_of(1, 2), _of(1, 2)], -1), ([_of(1, 2)],), ([_of(1, 2), _of(0)], 0)],
    aten.cumsum.default: [(_of(2, 3), 1), (FLAGS, -1)],
    aten.div.Tensor: PAIR,
    aten.embedding.default: [(_of(4, 3), torch.tensor([[1, 2]])), (_of(4, 3), torch.tensor([1]), 0, False, False)],
    aten.expand.default: [(_of(1, 3), [2, 3]), (_of(3), [2, -1])],
    aten.layer_norm.default: [(_of(2, 3), [3], _of(3), _of(3), 1e-6), (_of(2, 3), [2, 3])],
    aten.linear.default: [(_of(2, 1, 3), _of(4, 3)), (_of(3), _of(4, 3), _of(4))],
    aten.logical_and.default: TENSORS,
    aten.masked_fill.Scalar: [(_of(2, 3), FLAGS, 1.5), (_of(3).long(), FLAGS[0], 2)],
    aten.matmul.default: [(_of(2, 3), _of(3)), (_of(2, 2, 3), _of(3, 2))],
    aten.maximum.default: TENSORS,
    aten.minimum.default: TENSORS,
    aten.mean.dim: [(_of(2, 3), [-1], True), (_of(2, 3), [0, 1]), (_of(2, 3), None)],
    aten.mm.default: [(_of(2, 3), _of(3, 2))],
    aten.mul.Tensor: PAIR,
    aten.new_full.default: [(_of(2), [3], 2.5), (_of(2).long(), [], 1)],
    aten.new_ones.default: [(_of(2), [3]), (FLAGS, [])],
    aten.new_zeros.default: [(_of(2), [3]), (FLAGS, [])],
    aten.permute.default: [(_of(2, 3, 1), [2, 0, 1])],
    aten.pow.Tensor_Scalar: [(_of(2, 3), 2), (_of(2, 3), 0.5), (_of(3).long(), 2)],
    aten.reshape.default: [(_of(2, 3), [3, -1]), (_of(2, 3).t(), [6]), (_of(1), [])],
    aten.scaled_dot_product_attention.default: [
        (_of(1, 2, 3, 4), _of(1, 2, 5, 4), _of(1, 2, 5, 4)),
        (_of(1, 2, 2, 4), _of(1, 2, 3, 4), _of(1, 2, 3, 4), FLAGS, 0.0, False),
        (_of(1, 2, 3, 4), _of(1, 2, 3, 4), _of(1, 2, 3, 4), None, 0.0, True),
    ],
    aten.select.int: [(_of(2, 3), 1, -1)],
    aten.softmax.int: [(_of(2, 3), -1), (_of(2, 3), 0, torch.float64)],
    aten.softplus.default: [(_of(2, 3),), (_of(2, 3), 2, 10)],
    aten.squeeze.dim: [(_of(1, 3), 0), (_of(2, 3), 0)],
    aten.sub.Tensor: [pair for pair in PAIR if pair[0].dtype is not torch.bool and pair[1] is not True],
    aten.sum.dim_IntList: [(_of(2, 3), [-1], True), (_of(2, 3), []), (FLAGS, [0]), (_of(2, 3), None)],
    aten.transpose.int: [(_of(2, 3), 0, 1), (_of(2, 3), -1, -2)],
    aten.unsqueeze.default: [(_of(2, 3), 1), (_of(2, 3), -1)],
    aten.view.default: [(_of(2, 3), [3, 2]), (_of(2, 3), [-1]), (_of(1), [])],
    aten.where.self: [(FLAGS, _of(2, 3), _of(3)), (FLAGS, _of(2, 3).long(), torch.tensor(1.5))],
}


def _calls(operator: Any) -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    """Calls with the arguments that are needed, and with all of them."""
    arguments = operator._schema.arguments
    keywords = {argument.name: argument.default_value for argument in arguments if argument.kwarg_only}
    if isinstance(keywords.get("memory_format"), int):
        keywords["memory_format"] = torch.contiguous_format  # which is 0 in a schema
    for sample in SAMPLES.get(operator, ONE):
        yield sample, {}
        positional = [argument for argument in arguments if not argument.kwarg_only]
        yield (*sample, *(argument.default_value for argument in positional[len(sample) :])), keywords


@pytest.mark.parametrize("operator", DIRECT_CALLS, ids=str)
def test_a_function_calls_its_operator(operator: Any) -> None:
    for args, kwargs in _calls(operator):
        found = []
        for function in (operator._op, DIRECT_CALLS[operator]):
            with Calls() as calls:
                result = function(*args, **kwargs)
            found.append((calls.found, _described(result), result))
        assert repr(found[0]) == repr(found[1]), (args, kwargs)


def test_what_makes_tensors_is_no_function() -> None:
    """Such functions ask for the context of a device; operators were captured with theirs."""
    for operator in DIRECT_CALLS:
        assert "Tensor" in str(operator._schema.arguments[0].type), operator


SLICES = [
    (0, 0, 2),
    (1, 1, 3),
    (-1, -2, (1 << 63) - 1),
    (2, None, 2),
    (1, 0, 5, 2),
    (2, 0, 4),
    (0, 1, None),
    (1, 3, 1),
]
MADE: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = [
    *((aten.slice.Tensor, entry, {}) for entry in SLICES),
    *((aten._to_copy.default, (), {"dtype": dtype}) for dtype in (torch.float32, torch.float64, torch.bool)),
    (aten._to_copy.default, (), {"dtype": torch.float16, "device": torch.device("cpu")}),
    (aten._to_copy.default, (), {}),
]


@pytest.mark.parametrize("stage", [tintype.export, tintype.export_for_training])
@pytest.mark.parametrize(("operator", "args", "kwargs"), MADE, ids=str)
def test_expressions_in_place_of_operators(operator: Any, args: Any, kwargs: Any, stage: Any) -> None:
    function = lambda x: operator(x, *args, **kwargs)  # noqa: E731
    module = stage(function, (_of(3, 3, 4),)).module()
    for x in (_of(3, 3, 4), _of(4, 3, 3).permute(1, 2, 0).contiguous().mT.contiguous().mT):
        found, expected = module(x), function(x)
        assert repr(_described(found)) == repr(_described(expected)) and torch.equal(found, expected)
        shares = [
            result.untyped_storage().data_ptr() == x.untyped_storage().data_ptr() for result in (found, expected)
        ]
        assert shares[0] is shares[1] and found is not x


@pytest.mark.parametrize(
    "call",
    [lambda n, d: torch.arange(n, device=d), lambda n, d: torch.arange(1, n, device=d),
     lambda n, d: torch.arange(0, n, 2, dtype=torch.float32, device=d), lambda n, d: torch.full((n,), 2, device=d),
     lambda n, d: torch.zeros(n, 2, dtype=torch.int32, device=d), lambda n, d: torch.ones(n, device=d)],
)  # fmt: skip
@pytest.mark.parametrize("device", [None, "cpu"])
def test_tensors_are_made_where_the_program_made_them(call: Any, device: str | None) -> None:
    module = tintype.export(
        lambda x: call(x.shape[0], device) + x[:1], (torch.ones(3, 1),), dynamic_shapes="auto"
    ).module()
    with torch.device("meta"):  # where the caller makes tensors says nothing about the program's
        result = module(torch.ones(5, 1, device="cpu"))
    expected = call(5, device) + torch.ones(1, 1)
    assert result.device.type == "cpu" and result.dtype is expected.dtype and torch.equal(result, expected)


def test_assertions_are_made_without_a_call() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        count = x.sum().item()
        torch._check(count % 3 == 0, lambda: "too few")
        return x * count

    module = tintype.export(function, (torch.ones(3, dtype=torch.int64),)).module()
    with Calls() as calls:
        assert torch.equal(module(torch.ones(3, dtype=torch.int64)), torch.full((3,), 3))
    assert aten._assert_scalar.default not in [operator for operator, _ in calls.found]
    with pytest.raises(RuntimeError, match="Runtime assertion failed"):
        module(torch.tensor([1, 0, 1]))
