"""Shape rules on symbolic sizes give what they give on integers, at the example's sizes and at others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch

from tintype.fake.info import CHANNELS_LAST_ORDER, TensorInfo, strides_in_order
from tintype.fake.rules import RULES
from tintype.fake.rules.registry import overload
from tintype.symbolic import Environment, Expr, evaluate

CPU = torch.device("cpu")
EXAMPLE = {"b": 3, "c": 8, "n": 10, "m": 12, "d": 16, "h": 20, "w": 24}
OTHERS = (
    {"b": 5, "c": 12, "n": 7, "m": 12, "d": 6, "h": 32, "w": 18},
    {"b": 2, "c": 4, "n": 31, "m": 12, "d": 2, "h": 14, "w": 40},
)


def tensor(*sizes: Any, dtype: torch.dtype = torch.float32, order: Sequence[int] | None = None) -> TensorInfo:
    """A dense tensor; ``order`` is that of its dimensions in memory, outermost first."""
    return TensorInfo(sizes, strides_in_order(sizes, order or range(len(sizes))), dtype, CPU)


def image(*sizes: Any) -> TensorInfo:
    """A channels-last image."""
    return tensor(*sizes, order=CHANNELS_LAST_ORDER[len(sizes)])


def index(*sizes: Any) -> TensorInfo:
    return tensor(*sizes, dtype=torch.int64)


Builder = Callable[..., tuple[Any, ...]]


def _matrix_cases() -> Iterator[tuple[str, Builder]]:
    yield "linear", lambda b, n, d, **_: (tensor(b, n, d), tensor(7, d), tensor(7))
    yield "linear", lambda b, n, **_: (tensor(b, n, 5), tensor(7, 5))
    yield "mm", lambda n, m, d, **_: (tensor(n, d), tensor(d, m))
    yield "bmm", lambda b, n, m, d, **_: (tensor(b, n, d), tensor(b, d, m))
    yield "addmm", lambda n, m, d, **_: (tensor(m), tensor(n, d), tensor(d, m))
    yield "baddbmm", lambda b, n, m, d, **_: (tensor(b, 1, m), tensor(b, n, d), tensor(b, d, m))
    yield "matmul", lambda b, c, n, m, d, **_: (tensor(b, c, n, d), tensor(b, c, d, m))
    yield "matmul", lambda b, c, n, d, **_: (tensor(b, c, n, d), tensor(d, 5))
    yield "matmul", lambda n, d, **_: (tensor(n, d), tensor(d))
    yield "einsum", lambda b, c, n, m, d, **_: ("bhid,bhjd->bihj", [tensor(b, c, n, d), tensor(b, c, m, d)])
    yield "einsum", lambda b, n, d, **_: ("bn,d->bdn", [tensor(b, n), tensor(d)])
    yield "_linalg_svd", lambda b, n, d, **_: (tensor(b, n, d),)
    yield "linalg_eig", lambda b, n, **_: (tensor(b, n, n),)
    yield "_fft_r2c", lambda b, n, d, **_: (tensor(b, n, d), [1, 2], 0, True)
    yield "_fft_c2c", lambda b, n, d, **_: (tensor(b, n, d, dtype=torch.complex64), [0, 1], 0, True)
    yield "_fft_c2r", lambda b, n, d, **_: (tensor(b, n, d, dtype=torch.complex64), [0, 2], 0, d)
    yield "outer", lambda n, m, **_: (tensor(n), tensor(m))
    yield "kron", lambda n, m, d, **_: (tensor(n, d), tensor(n, m))
    yield "kron", lambda b, n, m, **_: (tensor(n, m), tensor(b))
    yield "fill.Tensor", lambda n, m, **_: (tensor(n, m), tensor())
    yield "zero", lambda n, m, **_: (tensor(n, m, order=(1, 0)),)
    yield "cdist", lambda b, n, m, **_: (tensor(b, n, 3), tensor(b, m, 3))


def _network_cases() -> Iterator[tuple[str, Builder]]:
    yield "conv2d", lambda b, h, w, **_: (tensor(b, 4, h, w), tensor(5, 4, 3, 3), None, [2, 2], [1, 1])
    yield "conv2d", lambda b, h, w, **_: (image(b, 4, h, w), tensor(5, 4, 3, 3), None, [1, 1], [1, 1])
    yield "conv1d", lambda b, n, **_: (tensor(b, 4, n), tensor(5, 4, 3), None, [1], [2], [2])
    yield "conv3d", lambda b, h, w, **_: (tensor(b, 4, 6, h, w), tensor(5, 4, 3, 3, 3))
    yield "conv2d.padding", lambda b, h, w, **_: (tensor(b, 4, h, w), tensor(5, 4, 3, 3), None, [1, 1], "same")
    yield "conv_transpose2d.input", lambda b, h, w, **_: (image(b, 4, h, w), tensor(4, 5, 3, 3), None, [2, 2])
    yield "layer_norm", lambda b, n, d, **_: (tensor(b, n, d), [d], tensor(d), tensor(d))
    yield "rms_norm", lambda b, n, **_: (tensor(b, n, 6), [6], tensor(6))
    yield "group_norm", lambda b, h, w, **_: (image(b, 8, h, w), 4, tensor(8), tensor(8))
    yield "batch_norm", lambda b, h, w, **_: (
        image(b, 8, h, w), None, None, tensor(8), tensor(8), False, 0.1, 1e-5, True,
    )  # fmt: skip
    yield "native_layer_norm", lambda b, n, **_: (tensor(b, n, 6), [6], None, None, 1e-5)
    yield "softmax.int", lambda b, n, **_: (tensor(b, n, n), -1)
    yield "scaled_dot_product_attention", lambda b, n, m, **_: (
        tensor(b, 4, n, 8, order=(0, 2, 1, 3)), tensor(b, 4, m, 8), tensor(b, 4, m, 8),
    )  # fmt: skip
    yield "scaled_dot_product_attention", lambda b, n, m, **_: (
        tensor(b, 4, n, 8), tensor(b, 4, m, 8), tensor(b, 4, m, 8), tensor(b, 1, n, m, dtype=torch.bool),
    )  # fmt: skip
    yield "max_pool2d", lambda b, h, w, **_: (image(b, 4, h, w), [3, 3], [2, 2], [1, 1])
    yield "max_pool2d_with_indices", lambda b, h, w, **_: (tensor(b, 4, h, w), [2, 2])
    yield "max_pool2d", lambda b, h, w, **_: (tensor(b, 4, h, w), [3, 3], [2, 2], [1, 1], [1, 1], True)
    yield "avg_pool2d", lambda b, h, w, **_: (tensor(b, 4, h, w), [2, 2], [2, 2])
    yield "adaptive_avg_pool2d", lambda b, h, w, **_: (tensor(b, 4, h, w), [3, 3])
    yield "upsample_bilinear2d.vec", lambda b, h, w, **_: (image(b, 4, h, w), None, False, [2.0, 0.5])
    yield "upsample_nearest2d.vec", lambda b, h, w, **_: (tensor(b, 4, h, w), [h * 2, w + 1], None)
    yield "pixel_shuffle", lambda b, h, w, **_: (tensor(b, 4, h, w), 2)
    yield "pad", lambda b, h, w, **_: (tensor(b, 4, h, w), [1, 2, 3, 4])
    yield "pad", lambda b, h, w, **_: (image(b, 4, h, w), [1, 1, 1, 1], "reflect")
    yield "lstm.input", lambda b, n, **_: (
        tensor(b, n, 4), [tensor(1, b, 5), tensor(1, b, 5)],
        [tensor(20, 4), tensor(20, 5), tensor(20), tensor(20)], True, 1, 0.0, False, False, True,
    )  # fmt: skip
    yield "gru_cell", lambda b, **_: (tensor(b, 4), tensor(b, 5), tensor(15, 4), tensor(15, 5))
    yield "im2col", lambda b, h, w, **_: (tensor(b, 4, h, w), [2, 2], [1, 1], [0, 0], [2, 2])


def _data_cases() -> Iterator[tuple[str, Builder]]:
    yield "add.Tensor", lambda b, n, d, **_: (tensor(b, n, d), tensor(d))
    yield "mul.Tensor", lambda b, n, m, **_: (tensor(b, 1, n), tensor(b, m, 1))
    yield "add.Tensor", lambda b, n, d, **_: (tensor(b, n, d, order=(1, 0, 2)), tensor(b, n, d))
    yield "where.self", lambda b, n, m, **_: (tensor(n, m, dtype=torch.bool), tensor(b, n, m), tensor())
    yield "masked_fill.Scalar", lambda b, n, m, **_: (tensor(b, n, m), tensor(n, m, dtype=torch.bool), 0.0)
    yield "sum.dim_IntList", lambda b, n, d, **_: (tensor(b, n, d), [1], True)
    yield "mean.dim", lambda b, h, w, **_: (tensor(b, 4, h, w), [2, 3])
    yield "var.correction", lambda b, n, **_: (tensor(b, n), [1])
    yield "max.dim", lambda b, n, **_: (tensor(b, n, 4), 1)
    yield "argmax", lambda b, n, **_: (tensor(b, n), -1)
    yield "cumsum", lambda b, n, **_: (index(b, n), 1)
    yield "index.Tensor", lambda b, n, m, d, **_: (tensor(n, d), [index(b, m)])
    yield "index.Tensor", lambda b, n, m, d, **_: (tensor(b, n, d), [index(m), None, index(m)])
    yield "index_put", lambda b, n, d, **_: (tensor(n, d), [index(b)], tensor(b, d))
    yield "gather", lambda b, n, **_: (tensor(b, 12), 1, index(b, n))
    yield "index_select", lambda n, m, d, **_: (tensor(n, d), 0, index(m))
    yield "embedding", lambda b, n, d, **_: (tensor(50, d), index(b, n))
    yield "one_hot", lambda b, n, **_: (index(b, n), 5)
    yield "scatter_add", lambda b, n, **_: (tensor(b, 9), 1, index(b, n), tensor(b, n))
    yield "topk", lambda b, n, **_: (tensor(b, n), 2)
    yield "sort", lambda b, n, **_: (tensor(b, n),)
    yield "flip", lambda b, n, **_: (tensor(b, n), [1])
    yield "roll", lambda b, h, w, **_: (tensor(b, h, w, 4), [1, 1], [1, 2])
    yield "cat", lambda b, n, m, d, **_: ([tensor(b, n, d), tensor(b, m, d)], 1)
    yield "cat", lambda b, h, w, **_: ([image(b, 4, h, w), image(b, 5, h, w)], 1)
    yield "stack", lambda b, n, **_: ([tensor(b, n), tensor(b, n)], 1)
    yield "repeat_interleave.self_int", lambda b, n, **_: (tensor(b, 4, n), 3, 1)
    yield "repeat", lambda b, n, **_: (tensor(n), [b, 2])
    yield "glu", lambda b, n, **_: (tensor(b, n * 2),)
    yield "cross_entropy_loss", lambda b, n, **_: (tensor(b, 9, n), index(b, n), None, 0)
    yield "mse_loss", lambda b, n, **_: (tensor(b, n), tensor(b, n))
    yield "embedding_dense_backward", lambda b, n, d, **_: (tensor(b, n, d), index(b, n), 50, -1, False)
    yield "convolution_backward", lambda b, h, w, **_: (
        tensor(b, 5, h, w), image(b, 4, h, w), tensor(5, 4, 3, 3), [5], [1, 1], [1, 1], [1, 1], False, [0, 0], 1,
        [True, True, True],
    )  # fmt: skip


def _view_cases() -> Iterator[tuple[str, Builder]]:
    yield "view", lambda b, n, d, **_: (tensor(b, n, d), [b * n, d])
    yield "view", lambda b, n, **_: (tensor(b, n, 12), [b, n, 4, 3])
    yield "view", lambda b, n, **_: (tensor(b, n, 12), [b, -1])
    yield "transpose.int", lambda b, n, d, **_: (tensor(b, n, d), 1, 2)
    yield "permute", lambda b, n, d, **_: (tensor(b, n, d), [2, 0, 1])
    yield "unsqueeze", lambda b, n, **_: (tensor(b, n), 1)
    yield "expand", lambda b, n, d, **_: (tensor(b, 1, d), [b, n, -1])
    yield "slice.Tensor", lambda b, n, **_: (tensor(b, n, 8), 2, 0, 4)
    yield "slice.Tensor", lambda b, n, **_: (tensor(b, n), 1, 1, 2**63 - 1)
    yield "select.int", lambda b, n, **_: (tensor(b, n, 8), 1, -1)
    yield "unfold", lambda b, n, **_: (tensor(b, n), 1, 3, 2)
    yield "split.Tensor", lambda b, **_: (tensor(b, 12), 5, 1)
    yield "clone", lambda b, h, w, **_: (image(b, 4, h, w),)
    yield "zeros", lambda b, n, **_: ([b, n],)
    yield "arange", lambda n, **_: (n,)
    yield "tril", lambda n, m, **_: (tensor(n, m),)


CASES = [*_matrix_cases(), *_network_cases(), *_data_cases(), *_view_cases()]


def _flat(result: Any) -> list[TensorInfo]:
    return [result] if type(result) is TensorInfo else [info for info in result if info is not None]


def _geometry(info: TensorInfo, values: dict[Any, int]) -> tuple[Any, ...]:
    sizes = [evaluate(size, values) for size in info.sizes]
    strides = [evaluate(stride, values) for stride in info.strides]
    return (
        sizes,
        [stride for size, stride in zip(sizes, strides, strict=True) if size != 1],
        evaluate(info.offset, values),
        info.dtype,
    )


@pytest.mark.parametrize("name, build", CASES, ids=[f"{i}-{name}" for i, (name, _) in enumerate(CASES)])
def test_a_rule_is_right_for_every_size(name: str, build: Builder) -> None:
    rule = RULES[overload(name)]
    environment = Environment()
    symbols = {key: environment.backed(hint, name=key, lower=1) for key, hint in EXAMPLE.items()}
    general = _flat(rule(*build(**symbols)))
    assert not environment.specializations, "a rule tied a size to the example"
    assert any(isinstance(size, Expr) for info in general for size in (*info.sizes, 0)) or not general[0].sizes
    for sizes in (EXAMPLE, *OTHERS):
        values = {symbols[key]: size for key, size in sizes.items()}
        held = [guard for guard in environment.guards if not evaluate(guard.condition, values)]
        assert not held, f"the rule rests on {held}, which does not hold for {sizes}"
        plain = _flat(rule(*build(**sizes)))
        assert [_geometry(info, values) for info in general] == [_geometry(info, {}) for info in plain]


@pytest.mark.parametrize("name, build", CASES, ids=[f"{i}-{name}" for i, (name, _) in enumerate(CASES)])
def test_a_rule_asks_nothing_of_sizes_that_depend_on_data(name: str, build: Builder) -> None:
    rule = RULES[overload(name)]
    environment = Environment()
    symbols = {
        key: environment.unbacked_int(lower=2) if key in ("b", "n") else environment.backed(hint, name=key, lower=1)
        for key, hint in EXAMPLE.items()
    }
    general = _flat(rule(*build(**symbols)))
    for sizes in (EXAMPLE, *OTHERS):
        values = {symbols[key]: size for key, size in sizes.items()}
        plain = _flat(rule(*build(**sizes)))
        assert [_geometry(info, values)[0] for info in general] == [_geometry(info, {})[0] for info in plain]


def test_sizes_that_do_not_fit_are_required_to() -> None:
    environment = Environment()
    n, m = environment.backed(5), environment.backed(5)
    RULES[overload("mm")](tensor(3, n), tensor(m, 4))
    assert len(environment.guards) == 1
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        RULES[overload("mm")](tensor(3, environment.backed(6)), tensor(m, 4))
