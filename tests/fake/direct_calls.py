"""Calls of operators that torch's samples don't reach, or reach in one layout only."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

from tests.fake.layouts import LAYOUTS
from tintype.fake.rules.registry import overload

Call = tuple[str, tuple[Any, ...], dict[str, Any]]


def call(name: str, *args: Any, **kwargs: Any) -> Call:
    """An operator with its arguments."""
    return name, args, kwargs


def real(*sizes: int) -> torch.Tensor:
    """Positive numbers below one: every function is defined on them."""
    return torch.rand(sizes) * 0.9 + 0.05


def whole(*sizes: int, high: int = 3) -> torch.Tensor:
    """Indices."""
    return torch.randint(high, sizes)


def truth(*sizes: int) -> torch.Tensor:
    """A mask."""
    return torch.rand(sizes) < 0.5


IMAGE, VOLUME = (2, 4, 6, 5), (2, 4, 3, 5, 6)


def arithmetic() -> Iterator[Call]:
    """Elementwise operators with tensors, numbers, broadcasting and mixed dtypes."""
    for name in ("__and__", "__or__", "__xor__", "bitwise_and", "bitwise_or", "bitwise_xor"):
        yield call(f"{name}.Tensor", whole(3, 4), whole(4))
        yield call(f"{name}.Scalar", whole(3, 4), 2)
        yield call(f"{name}.Scalar", truth(3, 4), 2)
    for name in ("bitwise_left_shift", "bitwise_right_shift"):
        yield call(f"{name}.Tensor_Scalar", whole(3, 4), 2)
        yield call(f"{name}.Tensor", whole(3, 1), whole(3, 4))
    for name in ("__lshift__", "__rshift__"):
        yield call(f"{name}.Scalar", truth(3, 4), 2)
        yield call(f"{name}.Scalar", whole(3, 4), 2)
        yield call(f"{name}.Tensor", truth(3, 1), whole(3, 4))
    for name in ("add", "sub", "mul", "div", "remainder", "fmod", "multiply", "subtract", "divide", "true_divide"):
        yield call(f"{name}.Scalar", real(3, 4), 2)
        yield call(f"{name}.Scalar", whole(3, 4), 2.5)
        yield call(f"{name}.Tensor", whole(3, 4), real(3, 1) + 1)
        yield call(f"{name}.Tensor", real(2, 3, 4), real(4) + 1)
        yield call(f"{name}.Tensor", real(4, 1), real(2, 1, 5) + 1)
        yield call(f"{name}.Tensor", real(4).bfloat16(), real() + 1)
        yield call(f"{name}.Tensor", real(), whole(4) + 1)
    for mode in (None, "floor", "trunc"):
        yield call("div.Scalar_mode", whole(3, 4), 2, rounding_mode=mode)
        yield call("div.Tensor_mode", whole(3, 4), real(4) + 1, rounding_mode=mode)
    for name in ("eq", "ne", "lt", "le", "gt", "ge"):
        yield call(f"{name}.Scalar", whole(3, 4), 2.5)
        yield call(f"{name}.Tensor", whole(3, 4), real(3, 1))
    yield call("clamp_max", whole(3, 4), 1.5)
    yield call("clamp_min", whole(3, 4), 1.5)
    yield call("clamp", whole(3, 4), 0, 1.5)
    yield call("float_power.Tensor_Scalar", whole(3, 4), 2)
    yield call("xlogy.Scalar_Other", real(3, 4), 2)
    yield call("copysign.Scalar", whole(3, 4), 2)
    yield call("pow.Scalar", 2.0, whole(3, 4))
    yield call("pow.Tensor_Scalar", whole(3, 4), 0.5)
    yield call("rsub.Scalar", whole(3, 4), 0.5)
    yield call("where.ScalarOther", truth(3, 4), real(3, 1), 0.0)
    yield call("where.ScalarOther", truth(3, 4), whole(3, 1), 0.5)
    yield call("where.ScalarSelf", truth(3, 4), 1.0, whole(3, 4))
    yield call("where.self", truth(3, 1), real(3, 4), real(2, 1, 4))
    yield call("copy", real(3, 4), whole(4))
    yield call("lerp.Scalar", real(3, 4), real(3, 4), 0.5)
    yield call("addcmul", real(3, 4), real(4), real(3, 1))
    for name in (
        "airy_ai",
        "bessel_j0",
        "bessel_j1",
        "bessel_y0",
        "bessel_y1",
        "entr",
        "erfcx",
        "i0e",
        "i1",
        "i1e",
        "log_ndtr",
        "ndtri",
    ):
        yield call(f"special_{name}", real(3, 4))
        yield call(f"special_{name}", whole(3, 4))
    for name in ("special_xlog1py", "special_zeta"):
        yield call(name, real(3, 4) + 1, real(3, 1) + 1)


def factories() -> Iterator[Call]:
    """Operators that make tensors from numbers."""
    generator = torch.Generator()
    yield call("_new_zeros_with_same_feature_meta", real(3, 4), real(4, 4).t()[1:])
    for name in ("rand", "randn"):
        yield call(f"{name}.generator", [3, 4], generator=generator)
        yield call(name, [3, 4], dtype=torch.float64)
    yield call("randint.generator", 5, [3, 4], generator=generator)
    yield call("randint.low_generator", 1, 5, [3, 4], generator=generator)
    yield call("randint", 5, [3, 4], dtype=torch.int32)
    yield call("randperm", 5)
    yield call("empty_permuted", [2, 3, 4], [2, 0, 1])
    yield call("empty.memory_format", list(IMAGE), memory_format=torch.channels_last)
    yield call("arange", 5)
    yield call("arange.start", 1, 5.5)
    yield call("arange.start_step", 5, 0, -2)
    yield call("full", [2, 3], 1)
    yield call("full", [2, 3], 1.5)
    yield call("full", [2, 3], True)
    yield call("scalar_tensor", 1)
    yield call("eye.m", 3, 4)
    yield call("tril_indices", 3, 4, 1)
    yield call("triu_indices", 3, 4, -1)


def images() -> Iterator[Call]:
    """Convolutions, normalizations, pools and resizing."""
    one, two, three = real(5, 4, 3), real(5, 4, 3, 3), real(5, 4, 3, 3, 3)
    for weight, space in ((one, 1), (two, 2), (three, 3)):
        image = real(2, 4, *(6, 7, 5)[:space])
        steps = ([1] * space, [1] * space, [1] * space)
        for name, extra in (
            ("convolution", ()),
            ("_convolution", (False, False, True, True)),
            ("_convolution.deprecated", (False, False, True)),
        ):
            yield call(name, image, weight, real(5), *steps, False, [0] * space, 1, *extra)
            yield call(name, real(2, 5, *(6, 7, 5)[:space]), weight, None, *steps, True, [0] * space, 1, *extra)
        yield call(f"conv{space}d", image, weight, real(5), [2] * space, [1] * space, [1] * space)
        yield call(f"conv{space}d", image[0], weight)
        yield call(f"conv{space}d.padding", image, weight, None, [1] * space, "same")
        yield call("_convolution_mode", image, weight, None, [1] * space, "valid", [1] * space, 1)
    yield call("conv2d", real(2, 4, 6, 7), real(4, 1, 3, 3), None, [1, 1], [0, 0], [1, 1], 4)
    yield call("conv2d", real(1, 1, 6, 7), real(1, 1, 1, 1))
    yield call("conv2d", real(2, 4, 1, 1), real(3, 4, 1, 1))
    yield call("conv_transpose3d.input", real(1, 4, 3, 3, 3), real(4, 2, 3, 3, 3))
    yield call("conv_transpose3d.input", real(2, 4, 3, 3, 3).double(), real(4, 2, 3, 3, 3).double())
    for dtype, batch in product((torch.float32, torch.float64), (1, 2)):
        volume, weight = real(batch, 4, 5, 5, 5).to(dtype), real(5, 4, 3, 3, 3).to(dtype)
        steps = ([1] * 3, [0] * 3, [1] * 3, False, [0] * 3, 1)
        yield call("conv3d", volume, weight)
        gradient = real(batch, 5, 3, 3, 3).to(dtype)
        yield call("convolution_backward", gradient, volume, weight, [5], *steps, [True, True, True])
    yield call("glu_jvp", real(2, 2), real(2, 4), real(2, 4), 1)
    yield call("conv_tbc", real(6, 2, 4), real(3, 4, 5), real(5), 1)
    running = (torch.zeros(4), torch.ones(4))
    for sizes in ((2, 4), (2, 4, 6), IMAGE, VOLUME):
        for training in (False, True):
            yield call("batch_norm", real(*sizes), None, None, *running, training, 0.1, 1e-5, True)
            yield call("native_batch_norm", real(*sizes), *running, *running, training, 0.1, 1e-5)
            yield call("_native_batch_norm_legit.no_stats", real(*sizes), None, None, True, 0.1, 1e-5)
        yield call("_native_batch_norm_legit_functional", real(*sizes), *running, *running, True, 0.1, 1e-5)
        yield call("_native_batch_norm_legit_no_training", real(*sizes), *running, *running, 0.1, 1e-5)
        yield call("native_batch_norm", real(*sizes).bfloat16(), *running, *running, True, 0.1, 1e-5)
        for dtype in (torch.float32, torch.float16):  # the statistics have that of the weight
            kept = [each.to(dtype) for each in (*running, *running)]
            for training in (False, True):
                yield call("_native_batch_norm_legit", real(*sizes).half(), *kept, training, 0.1, 1e-5)
            yield call("_batch_norm_with_update", real(*sizes).half(), *kept, 0.1, 1e-5)
            yield call("_batch_norm_with_update_functional", real(*sizes).half(), *kept, 0.1, 1e-5)
    for space, sizes in ((1, (2, 4, 6)), (2, IMAGE), (3, VOLUME)):
        padding = [1, 2] * space
        yield call(f"reflection_pad{space}d", real(*sizes), padding)
        yield call(f"replication_pad{space}d", real(*sizes), padding)
        yield call(f"reflection_pad{space}d", real(*sizes[1:]), padding)
        yield call("pad", real(*sizes), padding, "reflect")
        yield call("pad", real(*sizes), padding, "circular")
        yield call("pad", real(*sizes), [-1, 0] * space)
        yield call("pad", real(*sizes), [1, -1] * space)
        yield call("pad", real(*sizes), [0, 0] * space)
        doubled = [size * 2 for size in sizes[2:]]
        for name in (f"upsample_nearest{space}d", f"_upsample_nearest_exact{space}d"):
            yield call(name, real(*sizes), doubled)
            yield call(f"{name}.vec", real(*sizes), None, [1.5] * space)
        yield call(f"upsample_nearest{space}d_backward", real(*sizes[:2], *doubled), doubled, list(sizes))
    yield call("upsample_trilinear3d_backward", real(2, 4, 6, 10, 12), [6, 10, 12], list(VOLUME), False)
    yield call("upsample_bilinear2d_backward", real(2, 4, 12, 10), [12, 10], list(IMAGE), False)
    for name in ("_upsample_bicubic2d_aa", "_upsample_bilinear2d_aa", "upsample_bilinear2d", "upsample_bicubic2d"):
        yield call(name, real(*IMAGE), [9, 9], False)
        yield call(f"{name}.vec", real(*IMAGE), None, False, [0.5, 2.0])
    yield call("grid_sampler_3d", real(*VOLUME), real(2, 3, 3, 3, 3), 0, 0, False)
    yield call("native_channel_shuffle", real(*IMAGE), 2)
    for axis in (0, 1):
        yield call("_weight_norm", real(5, 4, 3), real(*((5, 1, 1) if axis == 0 else (1, 4, 1))), axis)
    yield call("_weight_norm_interface", real(5, 4, 3), real(5, 1, 1), 0)
    yield call("adaptive_avg_pool3d", real(*VOLUME), [1, 1, 1])
    yield call("adaptive_avg_pool2d", real(4, 6, 6), [3, 2])


def sequences() -> Iterator[Call]:
    """Recurrent networks and attention."""
    for layers, both, first in ((1, False, False), (2, True, True), (1, False, True)):
        directions = 2 if both else 1
        hidden = real(layers * directions, 2 if first else 3, 5)
        for name, gates in (("lstm", 4), ("gru", 3), ("rnn_tanh", 1), ("rnn_relu", 1)):
            parameters = []
            for layer in range(layers):
                for _ in range(directions):
                    width = 4 if layer == 0 else 5 * directions
                    parameters += [real(gates * 5, width), real(gates * 5, 5), real(gates * 5), real(gates * 5)]
            state = [hidden, hidden.clone()] if name == "lstm" else hidden
            yield call(f"{name}.input", real(2, 3, 4), state, parameters, True, layers, 0.0, False, both, first)
    sizes = torch.tensor([3, 2, 1])  # packed: three sequences of three, two and one steps
    for (name, gates), directions in product((("lstm", 4), ("gru", 3), ("rnn_tanh", 1), ("rnn_relu", 1)), (1, 2)):
        weights = [real(*shape) for _ in range(directions) for shape in ((gates * 5, 4), (gates * 5, 5))]
        hidden = real(directions, 3, 5)
        state = [hidden, hidden.clone()] if name == "lstm" else hidden
        yield call(f"{name}.data", real(6, 4), sizes, state, weights, False, 1, 0.0, False, directions == 2)
    for name, gates in (("lstm_cell", 4), ("gru_cell", 3), ("rnn_tanh_cell", 1), ("rnn_relu_cell", 1)):
        state = [real(2, 5), real(2, 5)] if name == "lstm_cell" else real(2, 5)
        yield call(name, real(2, 4), state, real(gates * 5, 4), real(gates * 5, 5), real(gates * 5), real(gates * 5))
    query, key = real(2, 3, 5, 8), real(2, 3, 6, 8)
    yield call("_scaled_dot_product_flash_attention_for_cpu", query, key, key)
    yield call("_scaled_dot_product_flash_attention_for_cpu", *(t.bfloat16() for t in (query, key, key)))
    gradient, lengths = real(2, 3, 5, 8), real(2, 3, 5)
    yield call(
        "_scaled_dot_product_flash_attention_for_cpu_backward",
        gradient, query, key, key, query, lengths, 0.0, False,
    )  # fmt: skip
    yield call("_weight_norm_interface_backward", real(5, 4), real(5, 4), real(5, 1), real(5, 1), 0)
    attention = "scaled_dot_product_attention"
    yield call(attention, query, key, key)
    yield call(attention, query, key, key, None, 0.5)
    yield call(attention, query, key, key, None, 0.0, True)
    yield call(attention, query, key, real(2, 3, 6, 4))
    yield call(attention, query[0], key[0], key[0])
    yield call(attention, query, key[:, :1], key[:, :1])
    yield call(attention, real(2, 6, 5, 8), key, key, enable_gqa=True)
    for mask in (real(5, 6), truth(5, 6), real(2, 1, 1, 6), real(2, 3, 5, 6), real(3, 5, 6), real(5, 1)):
        yield call(attention, query, key, key, mask)
    yield call(attention, query[:, :, :0], key, key)
    yield call(attention, query, key[:, :, :0], key[:, :, :0])


def selections() -> Iterator[Call]:
    """Indexing, copies of views, and what is left."""
    source = real(3, 4, 5, 6)
    rows, columns = whole(2, 3), whole(3)
    for indices in (
        [rows],
        [None, rows],
        [rows, columns],
        [None, rows, columns],
        [rows, None, columns],
        [None, rows, None, columns],
        [rows, columns, rows, columns],
        [whole()],
        [None, None, whole(0)],
        [whole(2, 1), whole(1, 3)],
        [None, whole(2, 1), None, whole(3)],
    ):
        yield call("index.Tensor", source, indices)
        yield call("_unsafe_index.Tensor", source, indices)
        yield call("index_put", source, indices, real())
        yield call("_unsafe_index_put", source, indices, real())
    for name, mode, last in product(("_embedding_bag", "_embedding_bag_forward_only"), range(3), (False, True)):
        bags = (whole(6), torch.tensor([0, 2, 4]))
        yield call(name, real(5, 4), *bags, False, mode, False, None, last)
        yield call(name, real(5, 4).double(), *bags, False, mode, False, None, last)
        yield call(name, real(5, 4), *bags, False, mode, False, None, last, 1)
    yield call("embedding_bag", real(5, 4), whole(6), torch.tensor([0, 2, 4]))
    yield call("scatter.value_reduce", source, 0, whole(2, 2, 2, 2), 2.0, reduce="add")
    yield call("searchsorted.Scalar", torch.arange(5.0), 2.0)
    yield call("bucketize.Scalar", 2.0, torch.arange(5.0), out_int32=True)
    yield call("isin.Tensor_Scalar", whole(3, 4), 2)
    yield call("select_copy.int", source, 1, 2)
    yield call("slice_copy.Tensor", source, 1, 1, 3)
    yield call("split_copy.Tensor", source, 2, 1)
    yield call("unsafe_split.Tensor", source, 2, 1)
    yield call("unsafe_split_with_sizes", source, [1, 3], 1)
    yield call("squeeze_copy.dims", real(3, 1, 4), [1])
    yield call("lift_fresh_copy", source)
    for name in ("lift_fresh", "alias", "detach", "empty_like", "_to_copy"):
        yield call(name, source)
    yield call("_to_copy", source, dtype=torch.float64)
    formats = (torch.contiguous_format, torch.channels_last)
    for memory_format, sizes in product(formats, ((3, 4, 5, 6), (2, 1, 4, 4), (2, 4, 1, 1), (1, 1, 1, 1))):
        yield call("to.dtype", real(*sizes), torch.float32, memory_format=memory_format)
    yield call("_conj", torch.complex(source, source))
    yield call("_unsafe_view", source, [12, 30])
    yield call("view.dtype", source, torch.int32)
    yield call("view.dtype", source, torch.int16)
    yield call("_reshape_alias", real(3, 4), [12], [1])
    yield call("_neg_view", source)
    yield call("bernoulli.p", source, 0.5)
    yield call("bernoulli.Tensor", source, real(3, 4, 5, 6))
    yield call("poisson", source)
    yield call("binomial", source, real(4, 5, 6))
    yield call("binomial", source, real(4, 3, 6, 5).permute(1, 0, 3, 2)[:, :1])
    yield call("_sample_dirichlet", source)
    yield call("rand_like", source)
    yield call("native_dropout", source, 0.5, True)
    for sizes in ((2, 3), (2, 3, 4), (2, 3, 4, 5)):
        yield call("cat", [real(*sizes), real(*sizes)], 1)
        yield call("cat", [real(*sizes), real(0)], 0)
        yield call("cat", [real(*sizes), whole(*sizes)], -1)
        for where in range(len(sizes) + 1):
            yield call("stack", [real(*sizes), real(*sizes)], where)
    for name in ("concat", "concatenate"):
        yield call(name, [real(2, 3), real(2, 3)], 1)
    yield call("norm.Scalar", source)
    yield call("norm.ScalarOpt_dim", source, 2, [1], True)
    yield call("norm.ScalarOpt_dtype", source, 2, dtype=torch.float64)
    yield call("norm.ScalarOpt_dim_dtype", source, 2, [1], False, dtype=torch.float64)
    yield call("special_logsumexp", source, [1])
    for mode in (0, 1):
        yield call("nll_loss2d", real(2, 3, 4, 4), whole(2, 4, 4), None, mode)
        yield call("nll_loss2d_forward", real(2, 3, 4, 4), whole(2, 4, 4), None, mode, -100)
    yield call("nll_loss", real(2, 3), whole(2), None, 0)
    yield call("multi_margin_loss", real(5), torch.tensor(2), 1, 1, None, 0)
    yield call("multilabel_margin_loss_forward", real(5), torch.tensor([0, 1, -1, 0, 0]), 0)
    yield call("poisson_nll_loss", real(2, 3), real(2, 3), True, False, 1e-8, 1)
    yield call("ctc_loss.IntList", real(5, 2, 4).log(), whole(2, 3) + 1, [5, 5], [2, 2])
    yield call("repeat_interleave.self_int", source, 3, 1)
    yield call("repeat_interleave.self_Tensor", source, torch.tensor([1, 2, 0]), 0, output_size=3)
    for dtype in (torch.float16, torch.float64):
        yield call("rms_norm", real(2, 3).to(dtype), [3], real(3))
    for tensor in (source, source.mT, real(4, 6)[:, ::2], real(3)):
        yield call("fill.Scalar", tensor, 2)
        yield call("fill.Tensor", tensor, real())
        yield call("zero", tensor)
    yield call("_assert_tensor_metadata", source, None, None, torch.float32)


def products() -> Iterator[Call]:
    """Matrix products, and the gradients that two tensors decide."""
    yield call("chain_matmul", [real(2, 3), real(3, 4), real(4, 5)])
    yield call("linalg_multi_dot", [real(2, 3), real(3, 4), real(4, 5)])
    yield call("ger", real(3), real(4))
    for left, right in product([(3,), (2, 3), (0, 3), (2, 1, 3)], [(), (4,), (1, 4), (2, 3, 4)]):
        yield call("kron", real(*left), real(*right))
    yield call("kron", real(2, 3).mT, real(4, 5).mT)
    yield call("kron", whole(2, 3), real(4, 5).double())
    shapes = [(4,), (3, 4), (2, 3, 4), (5, 1, 3, 4), (1, 2, 3, 4)]
    for left, right in product(shapes, shapes):
        other = real(*right)
        yield call("matmul", real(*left), other if len(right) == 1 else other.mT.contiguous())
    yield call("matmul", real(5, 4).requires_grad_(), real(2, 4, 3))
    for sizes in ((4,), (3, 4), (2, 3, 4), (2, 2, 3, 4), (0, 4)):
        yield call("linear", real(*sizes), real(5, 4), real(5))
        yield call("linear", real(*sizes), real(5, 4))
    sizes = {"b": 2, "h": 3, "i": 4, "j": 5, "d": 6, "k": 7, "z": 1}
    for equation in (
        "bij,bjk->bik",
        "bij,bjk->bki",
        "bhid,bhjd->bhij",
        "bhij,bhjd->bihd",
        "jihd,jk->kihd",
        "jihd,jk->ikhd",
        "jiz,jk->kzi",
        "jiz,jk->kiz",
        "bi,bj->bij",
        "bij,k->ik",
        "ij,jk",
        "bi,bi->",
        "biz,zk->bik",
    ):
        terms = equation.split("->")[0].split(",")
        operands = [real(*(sizes[label] for label in term)) for term in terms]
        yield call("einsum", equation, operands)
    yield call("einsum", "...ij,jk", [real(2, 3, 4, 5), real(5, 6)])
    yield call("einsum", "b...i,b...k->b...ik", [real(2, 3, 4), real(2, 3, 5)])
    for name in ["gelu", "silu", "mish", "hardswish", "hardsigmoid", "tanh", "sigmoid", "logit"]:
        yield call(f"{name}_backward", real(2, 3, 4), real(2, 3, 4))
    for name, extra in (
        ("threshold", (0.5,)),
        ("hardtanh", (0.0, 1.0)),
        ("hardshrink", (0.5,)),
        ("softshrink", (0.5,)),
        ("softplus", (1, 20)),
        ("leaky_relu", (0.1, False)),
    ):
        yield call(f"{name}_backward", real(2, 3, 4), real(2, 3, 4), *extra)
    yield call("reflection_pad2d_backward", real(2, 4, 9, 8), real(*IMAGE), [1, 2, 1, 2])
    yield call("nll_loss2d_backward", real(), real(2, 3, 4, 4), whole(2, 4, 4), None, 1, -100, torch.tensor(32.0))


def spectra() -> Iterator[Call]:
    """Singular values, eigenvalues and Fourier transforms, of several dimensions in several orders."""
    for sizes in ((4, 3), (3, 4), (2, 3, 3), (2, 0, 3)):
        for full, vectors in product((True, False), repeat=2):
            yield call("_linalg_svd", real(*sizes), full, vectors)
            yield call("_linalg_svd", torch.complex(real(*sizes), real(*sizes)), full, vectors)
    for sizes in ((3, 3), (2, 4, 4)):
        yield call("linalg_eig", real(*sizes))
        yield call("linalg_eig", torch.complex(real(*sizes), real(*sizes)))
    for dimensions in ([2], [0], [0, 2], [2, 0], [1, 2, 0]):
        numbers = torch.complex(real(3, 4, 5), real(3, 4, 5))
        yield call("_fft_c2c", numbers, dimensions, 0, True)
        yield call("_fft_c2r", numbers, dimensions, 0, 2 * numbers.shape[dimensions[-1]] - 1)
        for onesided in (True, False):
            yield call("_fft_r2c", real(3, 4, 5), dimensions, 1, onesided)
            yield call("_fft_r2c", real(3, 4, 5).double(), dimensions, 0, onesided)
    yield call("_fft_c2c", numbers, [], 0, True)


def quantized() -> Iterator[Call]:
    """Rounding as to quantized numbers, with one scale for all or one for each channel."""
    zero = torch.tensor(0, dtype=torch.int32)
    for sizes in ((3, 4), (2, 4, 6, 5)):
        yield call("fake_quantize_per_tensor_affine_cachemask", real(*sizes), 0.1, 0, 0, 255)
        yield call(
            "fake_quantize_per_channel_affine_cachemask", real(*sizes), torch.ones(4), zero.repeat(4),
            sizes.index(4), 0, 255,
        )  # fmt: skip
        yield call(
            "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams", real(*sizes), torch.tensor(0.1), zero,
            torch.tensor(1), 0, 255,
        )  # fmt: skip


def histograms() -> Iterator[Call]:
    """Elements counted between edges."""
    yield call("histogram.bin_ct", real(10), 4)
    yield call("histogram.bin_ct", real(3, 4), 7, range=[-1.0, 1.0], density=True)
    yield call("histogram.bins_tensor", real(10), torch.linspace(-1, 1, 5), weight=real(10))
    yield call("_histogramdd_bin_edges", real(10, 2), [3, 4])
    yield call("_histogramdd_from_bin_cts", real(10, 2), [3, 4])
    yield call("_histogramdd_from_bin_tensors", real(5, 2, 2), [torch.linspace(-1, 1, 3), torch.linspace(-1, 1, 6)])


def solved() -> Iterator[Call]:
    """Decompositions, and the equations that they solve."""
    for sizes in ((4, 3), (3, 4), (2, 5, 3), (0, 2, 3)):
        yield call("geqrf", real(*sizes))
    for driver in (None, "gelsy", "gels"):
        for left, right in (((5, 3), (5, 2)), ((3, 5), (3, 2)), ((2, 5, 3), (2, 5, 4)), ((1, 4, 4), (2, 4, 1))):
            yield call("linalg_lstsq", real(*left), real(*right), driver=driver)
    yield call("linalg_lstsq", real(2, 5, 3), real(2, 5))
    places = torch.zeros(1, 1, 2, 2, 2, dtype=torch.int64)
    yield call("fractional_max_pool3d_backward", real(1, 1, 2, 2, 2), real(1, 1, 4, 4, 4), [2] * 3, [2] * 3, places)
    yield call("affine_grid_generator", real(2, 2, 3), [2, 3, 4, 5], False)
    yield call("affine_grid_generator", real(2, 3, 4), [2, 1, 3, 4, 5], True)


FAMILIES = (histograms, solved, quantized, spectra, arithmetic, factories, images, sequences, selections, products)


def in_layouts(arguments: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    """Arguments with all tensors, only the first, or all but the first in another layout."""
    leaves, structure = tree_flatten(arguments)
    places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
    yield arguments
    seen = []
    for layout in LAYOUTS[1:]:
        for chosen in (places, places[:1], places[1:]):
            changed = [
                layout(leaf.detach()).requires_grad_(leaf.requires_grad) if i in chosen else leaf
                for i, leaf in enumerate(leaves)
            ]
            geometry = [changed[i].stride() for i in places]
            if geometry not in seen:
                seen.append(geometry)
                yield tree_unflatten(changed, structure)


def calls_by_operator() -> dict[str, list[Call]]:
    """The calls of all families, by the name of the operator without its overload."""
    found: dict[str, list[Call]] = {}
    for family in FAMILIES:
        for made in family():
            found.setdefault(made[0].partition(".")[0], []).append(made)
    return found


def run(comparison: Any, calls: list[Call]) -> list[str]:
    """Make calls; returns what eager mode refused in the plain layout, which is a fault of the list."""
    refused = []
    for name, arguments, options in calls:
        for number, variant in enumerate(in_layouts(arguments)):
            try:
                with torch._C._AutoDispatchBelowADInplaceOrView(), comparison:
                    overload(name)(*variant, **options)
            except (RuntimeError, IndexError) as error:
                if number == 0:
                    refused.append(f"{name}: {error}")
    return refused
