"""Programs of the kind that people write, beside eager mode: sizes, layouts, dtypes, containers, state."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._higher_order_ops.scan import scan

import tintype
from tests.onnx.comparing import assert_same

F = torch.nn.functional
D = tintype.Dim
x = torch.randn
b, n = D("b", max=64), D("n", max=64)
CASES: dict[str, tuple[Any, ...]] = {}


def t(
    name: str, model: Callable[..., Any], args: tuple[Any, ...], others: Any = (), kwargs: Any = None, **options: Any
) -> None:
    CASES[name] = (model, args, others, kwargs, options)


class Buf(torch.nn.Module):
    c: torch.Tensor
    h: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("c", torch.zeros(2))
        self.register_buffer("h", torch.zeros(3, 2), persistent=False)

    def forward(self, x: torch.Tensor) -> Any:
        self.c.add_(x.sum(0))
        self.h[1] = x[0]
        return x + self.c, self.h.clone()


class Tied(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.e = torch.nn.Embedding(7, 4)
        self.o = torch.nn.Linear(4, 7, bias=False)
        self.o.weight = self.e.weight

    def forward(self, i: torch.Tensor) -> Any:
        return self.o(self.e(i))


def mut(x: torch.Tensor, y: torch.Tensor) -> Any:
    x.mul_(2)
    y[0] = x[1]
    return x.sum()


def view_mut(x: torch.Tensor) -> Any:
    y = x.clone()
    v = y[1:]
    v.add_(1)
    w = y.view(-1)
    w[0] = 7
    return y, v


torch.manual_seed(0)
t("zero batch", torch.nn.Linear(3, 2), (x(2, 3),), [(x(0, 3),), (x(1, 3),)], dynamic_shapes=({0: b},))
t("example 1", torch.nn.Linear(3, 2), (x(1, 3),), [(x(0, 3),), (x(5, 3),)], dynamic_shapes=({0: b},))
t("example 0", lambda x: (x * 2).sum(0), (x(0, 3),), [(x(4, 3),)], dynamic_shapes=({0: b},))
t("transposed in", lambda x: x @ x.T, (x(3, 4).T,), [(x(4, 3),)])
t("strided in", lambda x: x.relu(), (x(8, 8)[::2, ::3],))
t("expanded in", lambda x: x + 1, (x(1, 3).expand(4, 3),))
t("dup out", lambda x: (x + 1,) * 1 + ((lambda y: (y, y))(x * 2)), (x(3),))
t("in is out", lambda x: (x, x + 1, x), (x(3),))
t("const out", lambda x: (x, torch.ones(2), 3, None, "s", 2.5, True), (x(3),))
t("dict", lambda d: {"a": d["x"] + d["y"][0], "b": [d["y"][1]]}, ({"x": x(3), "y": [x(3), x(2)]},))
t("kw", lambda a, *, k=None, s=2: a * s + (0 if k is None else k), (x(3),), kwargs={"k": x(3), "s": 3})
t("none", lambda a, m=None: a if m is None else a * m, (x(3), None))
t("bool in", lambda m, x: torch.where(m, x, -x), (x(3) > 0, x(3)))
t("f64", lambda a: (a @ a).softmax(-1), (x(3, 3).double(),))
t("f16", lambda a: F.gelu(a @ a), (x(3, 3).half(),))
t("uint8", lambda a: (a // 2, a.float() / 255, a + 200), (torch.randint(0, 255, (3, 3), dtype=torch.uint8),))
t("int8", lambda a: (a + a, a * 3, a > 0, a.sum()), (torch.randint(-100, 100, (3, 3), dtype=torch.int8),))
t("int16", lambda a: (a + a, a.max(), a % 3, -a), (torch.randint(-100, 100, (3, 3), dtype=torch.int16),))
t(
    "int32",
    lambda a: (a // -3, a % -3, a << 1, a & 7, ~a, a.float().mean()),
    (torch.randint(-100, 100, (3, 3), dtype=torch.int32),),
)
t("complex in", lambda a: (a * a.conj()).real, (torch.randn(3, dtype=torch.complex64),))
t("buffers", Buf(), (x(4, 2),))
t("mutated in", mut, (x(3, 2), x(2, 2)))
t("tied", Tied(), (torch.randint(0, 7, (2, 3)),))
t("nonzero", lambda x: (x > 0).nonzero(), (x(5),), [(x(9),)], dynamic_shapes=({0: n},))
t("mask", lambda x: x[x > 0] * 2, (x(5),), [(-torch.ones(5),)])
t("unique", lambda x: torch.unique(x, return_counts=True), (torch.tensor([3, 1, 3, 2]),))
t("int arg", lambda x, k: x * k, (x(3), 4))
t("float arg", lambda x, k: x * k, (x(3), 0.5))
t("rel", lambda x, y: x + y, (x(4), x(4)), [(x(6), x(6))], dynamic_shapes=({0: n}, {0: n}))
t("twice", lambda x, y: x.repeat(2) + y, (x(3), x(6)), [(x(5), x(10))], dynamic_shapes=({0: n}, {0: 2 * n}))
t(
    "cat dyn",
    lambda x, y: torch.cat([x, y]),
    (x(3, 2), x(4, 2)),
    [(x(1, 2), x(0, 2))],
    dynamic_shapes=({0: n}, {0: b}),
)
t("index neg", lambda x, i: x[i], (x(5, 2), torch.tensor([-1, 0, 2])))
t("index put", lambda x, i: x.index_put((i,), torch.tensor(9.0)), (x(5, 2), torch.tensor([-1, 0])))
t("roll", lambda x: (x.roll(1, 0), x.roll((1, 2), (0, 1)), x.roll(3)), (x(3, 4),))
t("unfold", lambda x: (x.unfold(1, 3, 2), F.unfold(x[None, None], (2, 2))), (x(4, 7),))
t("fold", lambda x: F.fold(x, (4, 4), 2, stride=2), (x(1, 4, 4),))
t(
    "pads",
    lambda x: (F.pad(x, (1, 1), mode="reflect"), F.pad(x, (-1, 2)), F.pad(x, (1, 1, 2, 0), value=3.0)),
    (x(1, 3, 4),),
)
t(
    "aa",
    lambda x: F.interpolate(x, size=(3, 5), mode="bilinear", antialias=True, align_corners=False),
    (x(1, 2, 8, 9),),
)
t(
    "bce",
    lambda x, y: (
        F.binary_cross_entropy_with_logits(x, y),
        F.cross_entropy(x, y.long()[:, 0]),
        F.kl_div(x, y),
        F.nll_loss(x.log_softmax(1), y.long()[:, 0]),
    ),
    (x(3, 2), torch.ones(3, 2)),
)
t(
    "scatter",
    lambda x, i: (x.scatter(1, i, 9.0), x.gather(1, i), x.scatter_add(1, i, x)),
    (x(3, 4), torch.randint(0, 4, (3, 4))),
)
t("cumsum", lambda x: (x.cumsum(0), x.flip(0).cumprod(1), x.logcumsumexp(1), x.diff()), (x(3, 4),))
t(
    "sdpa",
    lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True),
    (x(1, 2, 5, 4),),
    [(x(1, 2, 9, 4),)],
    dynamic_shapes=({2: n},),
)
t("mha", torch.nn.MultiheadAttention(8, 2, batch_first=True).eval(), (x(2, 5, 8),) * 3)
t(
    "tenc",
    torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2).eval(),
    (x(2, 5, 8),),
)
t("lstm eval", torch.nn.LSTM(3, 4, 2).eval(), (x(5, 2, 3), (x(2, 2, 4), x(2, 2, 4))))
t("grucell", torch.nn.GRUCell(3, 4), (x(2, 3), x(2, 4)))
t("bag", torch.nn.EmbeddingBag(9, 3, mode="mean"), (torch.tensor([1, 2, 3, 4]), torch.tensor([0, 2])))
t("stft", lambda x: torch.stft(x, 8, return_complex=True).abs(), (x(40),))
t("fft", lambda x: torch.fft.rfft(x).abs(), (x(10),))
t(
    "cond",
    lambda x: torch.cond(x.sum() > 0, lambda a: a + 1, lambda a: a - 1, (x,)),
    (x(3),),
    [(-torch.ones(3),), (torch.ones(3),)],
)
t("out of python float", lambda x: float(x.shape[0]) / 2 + x, (x(4),), [(x(6),)], dynamic_shapes=({0: n},))
t("0d ops", lambda x: (x.sum(), x.max(), x.softmax(0), x.reshape(1, 1), x.argmax()), (torch.tensor(3.0),))
t("empty ops", lambda x: (x.sum(), x.prod(), x.reshape(0, 4), x.T, x.mean()), (x(4, 0),))
t(
    "bn eval",
    torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.BatchNorm2d(2), torch.nn.ReLU()).eval(),
    (x(2, 1, 5, 5),),
)
t("bn train", torch.nn.BatchNorm2d(2), (x(2, 2, 5, 5),))
t(
    "div modes",
    lambda x: (x // 3, torch.div(x, 3, rounding_mode="trunc"), x % 3, torch.fmod(x, 3), x / 3),
    (torch.tensor([-7, 7, 0]),),
)
t("float div", lambda x: (x // 0.7, x % 0.7, torch.remainder(x, -0.7)), (x(5),))
t("shift", lambda x: (x >> 1, x << 3, x ^ 5), (torch.tensor([-7, 7, 0]),))
t(
    "inf",
    lambda x: (x.isinf(), x.nan_to_num(), x.clamp(-1, 1), x.sign(), x.round()),
    (torch.tensor([float("inf"), float("nan"), -2.5, 0.5, 1.5]),),
)
t("f8", lambda x: x.to(torch.float8_e4m3fn).float(), (x(3),), opset=21)
t("sign nan", lambda x: (x.sign(), torch.sgn(x)), (torch.tensor([float("nan"), -2.0, 0.0]),))
t(
    "while",
    lambda x: torch._higher_order_ops.while_loop(
        lambda i, y: i < 3, lambda i, y: (i + 1, y * 2), (torch.tensor(0), x)
    ),
    (x(3),),
)
t(
    "nested cond",
    lambda x: torch.cond(
        x.sum() > 0, lambda a: torch.cond(a.max() > 1, lambda q: q * 2, lambda q: q * 3, (a,)), lambda a: a - 1, (x,)
    ),
    (x(3),),
    [(torch.ones(3) * 2,), (torch.ones(3) * 0.1,), (-torch.ones(3),)],
)
t("scan", lambda x: scan(lambda c, r: (c + r, c * r), torch.zeros(2), x), (x(4, 2),))
t(
    "map",
    lambda x: torch._higher_order_ops.map(lambda r: r * 2 + r.sum(), x),
    (x(4, 2),),
    [(x(1, 2),)],
    dynamic_shapes=({0: n},),
)
t("views", view_mut, (x(3, 2),))
t("chunk odd", lambda x: x.chunk(3, 1), (x(2, 7),))
t("split dyn", lambda x: x.split(2), (x(6, 2),), [(x(6, 2),)])
t("stack", lambda *a: torch.stack(a), (x(3), x(3)))
t(
    "einsum",
    lambda a, c: torch.einsum("bij,bjk->bik", a, c),
    (x(2, 3, 4), x(2, 4, 5)),
    [(x(3, 3, 4), x(3, 4, 5))],
    dynamic_shapes=({0: b}, {0: b}),
)
t("tril", lambda x: (x.tril(), x.triu(1), torch.tril_indices(3, 3)), (x(3, 3),))
t(
    "tril dyn",
    lambda x: torch.ones(x.shape[0], x.shape[0], dtype=torch.bool).tril(),
    (x(3),),
    [(x(5),)],
    dynamic_shapes=({0: n},),
)
t(
    "arange dyn",
    lambda x: torch.arange(x.shape[0]) * 2 + x.shape[0],
    (x(3),),
    [(x(0),), (x(7),)],
    dynamic_shapes=({0: n},),
)
t("linspace", lambda x: torch.linspace(0, 1, 5) + x, (x(1),))
t(
    "full dyn",
    lambda x: torch.full((x.shape[0], 2), 3.5) + x.new_zeros(x.shape[0], 1),
    (x(3),),
    [(x(6),)],
    dynamic_shapes=({0: n},),
)
t("one_hot", lambda i: F.one_hot(i, 5), (torch.tensor([0, 4]),))
t("embedding pad", torch.nn.Embedding(5, 3, padding_idx=1), (torch.tensor([0, 1, 4]),))
t("bilinear", torch.nn.Bilinear(2, 3, 4), (x(5, 2), x(5, 3)))
t("prelu", torch.nn.PReLU(3), (x(2, 3),))
t("pixel", torch.nn.PixelShuffle(2), (x(1, 4, 3, 3),))
t("convT", torch.nn.ConvTranspose2d(2, 3, 3, stride=2, padding=1, output_padding=1), (x(1, 2, 4, 4),))
t(
    "conv same",
    torch.nn.Conv2d(2, 3, 3, padding="same", groups=1),
    (x(2, 2, 5, 6),),
    [(x(2, 2, 8, 9),)],
    dynamic_shapes=({2: D("h", min=4, max=64), 3: D("w", min=4, max=64)},),
)
t("conv circ", torch.nn.Conv2d(2, 3, 3, padding=1, padding_mode="circular"), (x(2, 2, 5, 6),))
t("maxpool idx", torch.nn.MaxPool2d(2, return_indices=True), (x(1, 2, 4, 6),))
t("maxpool ceil", torch.nn.MaxPool2d(3, 2, 1, ceil_mode=True), (x(1, 2, 6, 7),))
t("avgpool", torch.nn.AvgPool2d(3, 2, 1, ceil_mode=True, count_include_pad=False), (x(1, 2, 6, 7),))
t(
    "adapt dyn",
    torch.nn.AdaptiveAvgPool2d(1),
    (x(1, 2, 6, 7),),
    [(x(1, 2, 9, 4),)],
    dynamic_shapes=({2: D("h", max=64), 3: D("w", max=64)},),
)
t("lrn", torch.nn.LocalResponseNorm(2), (x(1, 4, 3, 3),))
t("inorm", torch.nn.InstanceNorm2d(3, affine=True), (x(2, 3, 4, 4),))
t("gnorm", torch.nn.GroupNorm(2, 4), (x(2, 4, 3),), [(x(5, 4, 3),)], dynamic_shapes=({0: b},))
t(
    "softplus",
    lambda x: (
        F.softplus(x),
        F.mish(x),
        F.hardswish(x),
        F.celu(x),
        F.glu(x),
        F.logsigmoid(x),
        F.hardtanh(x),
        F.softsign(x),
    ),
    (x(3, 4) * 30,),
)
t(
    "cossim",
    lambda a, c: (F.cosine_similarity(a, c), torch.cdist(a, c), F.normalize(a), a.norm(), torch.dist(a, c)),
    (x(3, 4), x(3, 4)),
)
t("std", lambda a: (a.std(0), a.var(), torch.std_mean(a, 1), a.median(1), a.quantile(0.3)), (x(3, 4),))
t("sort", lambda a: (a.sort(0, descending=True), a.argsort(), a.topk(2), a.kthvalue(2)), (x(5, 4),))
t("bucket", lambda a: (torch.bucketize(a, torch.tensor([0.0, 1.0])), torch.histc(a, 4, -2, 2)), (x(9),))
t("where1", lambda a: torch.where(a > 0), (x(3, 3),))
t("repeat_int", lambda a: (a.repeat_interleave(2, 0), a.repeat_interleave(torch.tensor([1, 2, 0]), 0)), (x(3, 2),))
t("meshgrid", lambda a, c: torch.meshgrid(a, c, indexing="ij"), (x(3), x(2)))
t("diag", lambda a: (a.diag(), a.diagonal(1), torch.diag_embed(a), a.trace()), (x(3, 3),))
t("kron", lambda a: (torch.kron(a, a), torch.outer(a[0], a[1]), torch.block_diag(a, a)), (x(2, 2),))
t("gather0", lambda a, i: a.index_select(0, i), (x(3, 2), torch.tensor([], dtype=torch.int64)))
t("masked", lambda a, m: (a.masked_fill(m, -1e9).softmax(-1), a.masked_select(m)), (x(3, 3), x(3, 3) > 0))
t("bool red", lambda a: ((a > 0).any(), (a > 0).all(1), (a > 0).sum(), (a > 0).float().mean()), (x(3, 3),))
t("inplace", lambda a: a.clone().add_(1).mul_(2).clamp_(0).sqrt_(), (x(3, 3),))
t(
    "setitem dyn",
    lambda a: (lambda y: (y.__setitem__((slice(None), 0), 1), y)[1])(a.clone()),
    (x(3, 3),),
    [(x(5, 3),)],
    dynamic_shapes=({0: n},),
)
t("shape out", lambda a: (a.shape[0], a.shape[0] * 2, a.numel()), (x(3, 3),), [(x(5, 3),)], dynamic_shapes=({0: n},))
t("float out", lambda a: a.shape[0] / 2, (x(3, 3),), [(x(5, 3),)], dynamic_shapes=({0: n},))
t("if shape", lambda a: a + 1 if a.shape[0] > 2 else a - 1, (x(3),))
t("same tensor twice", lambda a, c: a + c, (lambda v: (v, v))(x(3)))
t("list out", lambda a: [a, [a + 1, (a + 2,)], {"k": a * 3}], (x(3),))
t("namedtuple", lambda a: torch.max(a, 1), (x(3, 3),))
t("rand", lambda a: a + torch.rand_like(a) * 0, (x(3),))
t("dropout train", torch.nn.Dropout(0.0), (x(3),))
t("no args", lambda: torch.ones(3) * 2, ())
t("detach", lambda a: a.detach().requires_grad_(False) + 1, (x(3).requires_grad_(),))
for _mode in ("nearest", "bilinear", "bicubic", "area", "nearest-exact"):
    t(
        f"interpolate {_mode}",
        lambda x, m=_mode: (F.interpolate(x, scale_factor=2.0, mode=m), F.interpolate(x, size=(3, 5), mode=m)),
        (x(1, 2, 4, 6),),
    )
for _opset in range(18, 25):
    t(
        f"opset {_opset}",
        torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.GELU(), torch.nn.LayerNorm(4), torch.nn.RMSNorm(4)),
        (x(2, 4),),
        opset=_opset,
    )
    t(
        f"attention, opset {_opset}",
        lambda q: (
            F.scaled_dot_product_attention(q, q, q),
            F.grid_sample(q, q[..., :2], align_corners=True),
            F.group_norm(q, 2),
        ),
        (x(1, 2, 5, 4),),
        opset=_opset,
    )


@pytest.mark.parametrize("name", CASES)
def test_program(name: str) -> None:
    model, args, others, kwargs, options = CASES[name]
    is_module = isinstance(model, torch.nn.Module)
    program = tintype.onnx.export(copy.deepcopy(model) if is_module else model, args, kwargs, **options)
    for each in (args, *others):
        given, eager = copy.deepcopy(each), copy.deepcopy(each)
        with torch.no_grad():
            expected = (copy.deepcopy(model) if is_module else model)(*eager, **(kwargs or {}))
        assert_same(program(*given, **(kwargs or {})), expected, 1e-3)
        assert_same(given, eager)  # what was left in the arguments
        program.reset()


BAD_INPUTS: list[tuple[Any, ...]] = [(x(4),), (x(3).double(),), (3,), (), (x(3), x(3)), (None,), (x(3, 3),)]


@pytest.mark.parametrize("given", BAD_INPUTS, ids=str)
def test_bad_inputs(given: tuple[Any, ...], tmp_path: Any) -> None:
    program = tintype.onnx.export(lambda x: x + 1, (x(3),))
    program.save(tmp_path / "model.onnx")
    for each in (program, tintype.onnx.load(tmp_path / "model.onnx")):
        with pytest.raises(tintype.TintypeError):
            each(*given)


def test_bad_requests(tmp_path: Any) -> None:
    model = torch.nn.Linear(3, 2)
    (tmp_path / "text.onnx").write_text("this is no model")
    program = tintype.onnx.export(model, (x(4, 3),))
    requests: list[Callable[[], Any]] = [
        lambda: tintype.onnx.export(model, (x(4, 3),), opset=17),
        lambda: tintype.onnx.export(3, ()),
        lambda: tintype.onnx.export(model, (x(4, 3),), optimize="x"),
        lambda: tintype.onnx.export(model, x(4, 3)),
        lambda: program.initialize(providers=["NoSuchProvider"]),
        lambda: tintype.onnx.load(tmp_path / "text.onnx"),
    ]
    for request in requests:
        with pytest.raises(tintype.TintypeError):
            request()


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8])
def test_quantization_stays(dtype: torch.dtype) -> None:
    import torch.ao.quantization.fx._decomposed

    ops = torch.ops.quantized_decomposed
    low, high = (-128, 127) if dtype is torch.int8 else (0, 255)

    def model(x: torch.Tensor) -> torch.Tensor:
        stored = ops.quantize_per_tensor(x, 0.05, 3, low, high, dtype)
        return ops.dequantize_per_tensor(stored, 0.05, 3, low, high, dtype)

    example = x(3, 4)
    program = tintype.onnx.export(model, (example,), optimize="full")
    assert [node.op_type for node in program.model.graph] == ["QuantizeLinear", "DequantizeLinear"]
    assert_same(program(example), model(example))
