"""flex_attention: captured programs, at every stage, against torch's own eager implementation."""

from __future__ import annotations

import gc
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
import torch
import torch.nn.attention.flex_attention as torch_flex
from torch.nn.attention.flex_attention import AuxRequest, and_masks, create_block_mask, flex_attention, or_masks

import tintype
from tests.ops.programs import STAGES, assert_like_eager, at_stage
from tintype import Dim
from tintype.ops.flex_attention import flex_attention as own_flex_attention
from tintype.ops.flex_attention import run

BATCH, HEADS, LENGTH, FEATURES = 2, 4, 6, 8


@pytest.fixture(autouse=True)
def _uncompiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch's eager mode compiles each function it meets; the operator below computes the same at once."""
    monkeypatch.setattr(torch_flex, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True)


def inputs(dtype: torch.dtype = torch.float32, *, heads: int = HEADS, key_heads: int = HEADS) -> Any:
    generator = torch.Generator().manual_seed(1)
    query = torch.randn(BATCH, heads, LENGTH, FEATURES, generator=generator)
    key = torch.randn(BATCH, key_heads, LENGTH, FEATURES, generator=generator)
    value = torch.randn(BATCH, key_heads, LENGTH, 5, generator=generator)
    return query.to(dtype), key.to(dtype), value.to(dtype)


TABLE = torch.linspace(-1, 1, HEADS * LENGTH * LENGTH).reshape(HEADS, LENGTH, LENGTH)
SLOPES = torch.linspace(0.1, 1, HEADS)
RELATIVE = torch.linspace(-2, 2, 2 * LENGTH)
ROWS = torch.linspace(-1, 1, LENGTH * 3).reshape(LENGTH, 3)
DOCUMENTS = torch.tensor([[0, 0, 0, 1, 1, 2], [0, 1, 1, 1, 1, 1]])

SCORES: dict[str, Callable[..., torch.Tensor]] = {
    "position": lambda s, b, h, q, k: s + (q - k) * 0.1 + b,
    "choice": lambda s, b, h, q, k: torch.where(q >= k, s, -float("inf")),
    "cap": lambda s, b, h, q, k: 2.0 * torch.tanh(s / 2.0),
    "table": lambda s, b, h, q, k: s + TABLE[h, q, k],
    "chain of lookups": lambda s, b, h, q, k: s + TABLE[h][q][k],
    "lookup in the middle": lambda s, b, h, q, k: s + TABLE[:, q][h][k],
    "lookup apart": lambda s, b, h, q, k: s + TABLE[h, :, k][q],
    "lookup with a number": lambda s, b, h, q, k: s + TABLE[1, q, k] + TABLE[h, 2][-1],
    "relative": lambda s, b, h, q, k: s + RELATIVE[q - k + LENGTH],
    "slope": lambda s, b, h, q, k: s - SLOPES[h] * (q - k).abs(),
    "rows": lambda s, b, h, q, k: s + (ROWS[q] * ROWS[k] * ROWS[q, None][0]).sum(-1),
    "softmax of a row": lambda s, b, h, q, k: s + torch.softmax(ROWS[q], 0)[k % 3],
    "matrix product": lambda s, b, h, q, k: s + torch.mv(TABLE[h], ROWS[:, 1])[q],
    "no score": lambda s, b, h, q, k: TABLE[h, q, k],
    "constant": lambda s, b, h, q, k: SLOPES[0] * 2,
    "mixed dtypes": lambda s, b, h, q, k: s + TABLE.half()[h, q, k] * SLOPES.double()[h],
    "in place": lambda s, b, h, q, k: s.clone().mul_(2).add_(h),
    "bits": lambda s, b, h, q, k: s + (((q ^ k) & 3) << 1),
}

MASKS: dict[str, Callable[..., torch.Tensor]] = {
    "causal": lambda b, h, q, k: q >= k,
    "documents": lambda b, h, q, k: DOCUMENTS[b, q] == DOCUMENTS[b, k],
    "window": and_masks(lambda b, h, q, k: q >= k, lambda b, h, q, k: q - k <= 2),
    "either": or_masks(lambda b, h, q, k: q >= k, lambda b, h, q, k: k < 2),
    "hidden rows": lambda b, h, q, k: (q > 2) & (k >= h),
    "everything": lambda b, h, q, k: q.new_zeros((), dtype=torch.bool),
}


def with_score(score: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    return lambda q, k, v: flex_attention(q, k, v, score_mod=score)


def with_mask(mask: Callable[..., torch.Tensor]) -> Callable[..., Any]:
    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Any:
        block_mask = create_block_mask(mask, BATCH, HEADS, LENGTH, LENGTH, device="cpu")
        return flex_attention(q, k, v, block_mask=block_mask, return_aux=AuxRequest(lse=True))

    return attend


@pytest.mark.parametrize("name", SCORES)
def test_scores(name: str) -> None:
    assert_like_eager(with_score(SCORES[name]), [inputs()], stages=("export", "retraced"))


@pytest.mark.parametrize("name", MASKS)
def test_masks(name: str) -> None:
    assert_like_eager(with_mask(MASKS[name]), [inputs()], stages=("export", "decomposed"))


@pytest.mark.parametrize("name", SCORES)
def test_scores_outside_of_programs(name: str) -> None:
    q, k, v = inputs()
    torch.testing.assert_close(own_flex_attention(q, k, v, SCORES[name]), flex_attention(q, k, v, SCORES[name]))


_UNARY = (torch.tanh, torch.sigmoid, torch.neg, torch.abs, lambda x: x.clamp(-1, 1), lambda x: x.double().sin())
_BINARY = (torch.add, torch.mul, torch.maximum, torch.atan2, lambda x, y: torch.where(x > y, x * 0.5, y))


def random_score(random: Random) -> Callable[..., torch.Tensor]:
    """A function of a score and its position: operators on numbers, lookups by position, rows and their sums."""

    def number(depth: int) -> Callable[..., torch.Tensor]:
        choice = random.randrange(7 if depth else 3)
        if choice == 0:
            return lambda s, *p: s
        if choice == 1:
            position = random.randrange(4)
            return lambda s, *p: p[position] * 0.25
        if choice == 2:
            return lambda s, b, h, q, k: TABLE[h, q, k]
        if choice == 3:
            function, value = random.choice(_UNARY), number(depth - 1)
            return lambda *p: function(value(*p))
        if choice == 4:
            vector = row(depth - 1)
            return lambda *p: vector(*p).sum(-1)
        if choice == 5:
            vector, position = row(depth - 1), random.randrange(4)
            return lambda *p: vector(*p)[p[1 + position] % 3]
        function, first, second = random.choice(_BINARY), number(depth - 1), number(depth - 1)
        return lambda *p: function(first(*p).float(), second(*p).float())

    def row(depth: int) -> Callable[..., torch.Tensor]:
        choice = random.randrange(3 if depth > 0 else 1)
        if choice == 0:
            position = random.randrange(2)
            return lambda s, b, h, q, k: ROWS[(q, k)[position]]
        if choice == 1:
            vector, factor = row(depth - 1), number(depth - 1)
            return lambda *p: vector(*p) * factor(*p)
        first, second = row(depth - 1), row(depth - 1)
        return lambda *p: torch.softmax(first(*p).float() + second(*p)[None].float()[0], -1)

    value = number(4)
    return lambda s, *p: s + value(s, *p).float()


@pytest.mark.parametrize("seed", range(40))
def test_random_scores(seed: int) -> None:
    q, k, v = inputs()
    score = random_score(Random(seed))
    program = tintype.export(with_score(score), (q, k, v)).module()
    torch.testing.assert_close(program(q, k, v), flex_attention(q, k, v, score))


def test_buffers_outside_of_programs() -> None:
    arguments = (*inputs(), lambda s, b, h, q, k, slopes: s * slopes[h] + TABLE[h, q, k], own_mask(MASKS["causal"]))
    buffers = (SLOPES.clone().requires_grad_(),), ()
    expected = torch.ops.higher_order.flex_attention(*arguments[:4], arguments[4].as_tuple(), 0.3, {}, *buffers)
    ours = run(*arguments[:4], arguments[4].as_tuple(), 0.3, {}, *buffers)
    torch.testing.assert_close(ours, expected)
    for result, other in zip(ours[:2], expected[:2], strict=True):
        found = [torch.autograd.grad(value.sum(), buffers[0], retain_graph=True) for value in (result, other)]
        torch.testing.assert_close(*found)


def test_no_memory_is_kept() -> None:
    def graphs() -> int:
        gc.collect()
        return sum(issubclass(type(thing), torch.fx.GraphModule) for thing in gc.get_objects())

    q, k, v = inputs()
    own_flex_attention(q, k, v, SCORES["slope"])
    before = graphs()
    for _ in range(3):
        own_flex_attention(q, k, v, SCORES["slope"])
        tintype.export(with_score(SCORES["slope"]), (q, k, v)).module()(q, k, v)
    assert graphs() <= before


class Attention(torch.nn.Module):
    """Functions that use parameters, buffers, constants, inputs and what was computed before."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = torch.nn.Parameter(TABLE.clone())
        self.register_buffer("slopes", SLOPES)
        self.documents = DOCUMENTS

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, factor: torch.Tensor) -> Any:
        squared = factor * factor

        def score(s: Any, b: Any, h: Any, m: Any, n: Any) -> Any:
            return s * squared[b] + self.bias[h, m, n] * self.slopes[h]

        def mask(b: Any, h: Any, m: Any, n: Any) -> Any:
            return (m >= n) & (self.documents[b, m] == self.documents[b, n])

        block_mask = create_block_mask(mask, BATCH, None, LENGTH, LENGTH, device="cpu")
        return flex_attention(q, k, v, score, block_mask, scale=0.3) + q[..., :5]


def test_what_functions_use_becomes_operands() -> None:
    model = Attention()
    example = (*inputs(), torch.tensor([0.5, 2.0], requires_grad=True))
    with torch.no_grad():
        assert_like_eager(model, [example], gradients=False)
    program = tintype.export(model, example)
    (call,) = [n for n in program.graph.nodes if n.target is torch.ops.higher_order.flex_attention]
    assert [n.name for n in call.args[7]] == ["mul", "p_bias", "b_slopes"]
    assert [n.name for n in call.args[8]] == ["c_documents"]
    assert {"sdpa_score0", "sdpa_mask0"} <= {name for name, _ in program.graph_module.named_children()}
    score, mask = program.graph_module.sdpa_score0.graph, program.graph_module.sdpa_mask0.graph
    assert [n.name for n in score.nodes if n.op == "placeholder"][:5] == ["score", "b", "h", "q_idx", "kv_idx"]
    assert [n.name for n in mask.nodes if n.op == "placeholder"][:4] == ["b", "h", "q_idx", "kv_idx"]


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("masked", ["causal", "hidden rows"])
def test_gradients(stage: str, masked: str) -> None:
    """Against the derivative that torch has for the operator, which is made for one score and batched."""
    mask = MASKS[masked]

    def score(s: Any, b: Any, h: Any, q: Any, k: Any, table: Any, slopes: Any) -> Any:
        return torch.tanh(s) * slopes[h] + table[h, q, k] * table[0, q, 0]

    def attend(q: Any, k: Any, v: Any, table: Any, slopes: Any) -> Any:
        block_mask = create_block_mask(mask, None, None, LENGTH, LENGTH, device="cpu").as_tuple()
        operator = torch.ops.higher_order.flex_attention
        out, logsumexp, _ = operator(q, k, v, score, block_mask, 0.4, {}, (table, slopes), ())
        return out, logsumexp.masked_fill(logsumexp == -float("inf"), 0.0)

    example = tuple(t.double().requires_grad_() for t in (*inputs(), TABLE, SLOPES))
    assert_like_eager(attend, [example], stages=(stage,))


def test_a_masked_score_has_no_gradient() -> None:
    def attend(q: Any, k: Any, v: Any) -> Any:
        return own_flex_attention(
            q, k, v, lambda s, b, h, m, n: torch.where(m >= n, (n - m + 0.0).sqrt() * s, s).nan_to_num(0.0) + s,
            block_mask=create_block_mask(lambda b, h, m, n: m < n, None, None, LENGTH, LENGTH, device="cpu"),
        )  # fmt: skip

    q, k, v = (t.requires_grad_() for t in inputs())
    for grad in torch.autograd.grad(tintype.export(attend, (q, k, v)).module()(q, k, v).sum(), (q, k, v)):
        assert grad.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_dtypes(dtype: torch.dtype) -> None:
    assert_like_eager(with_score(SCORES["slope"]), [inputs(dtype)])
    assert_like_eager(with_mask(MASKS["causal"]), [inputs(dtype)], stages=("export",))


def test_grouped_queries() -> None:
    def attend(q: Any, k: Any, v: Any) -> Any:
        return flex_attention(q, k, v, score_mod=SCORES["table"], enable_gqa=True)

    assert_like_eager(attend, [inputs(key_heads=2), inputs(key_heads=2)])


def test_keys_for_all_batches() -> None:
    def attend(q: Any, k: Any, v: Any) -> Any:
        block_mask = create_block_mask(MASKS["documents"], BATCH, None, LENGTH, LENGTH, device="cpu")
        return flex_attention(q, k, v, block_mask=block_mask)

    q, k, v = inputs()
    assert_like_eager(attend, [(q, k[:1], v[:1])])


def test_memory_order_is_that_of_the_query() -> None:
    def attend(q: Any, k: Any, v: Any) -> Any:
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        return flex_attention(q, k, v).transpose(1, 2).view(BATCH, LENGTH, -1)

    q, k, v = (t.transpose(1, 2).contiguous() for t in inputs())
    assert_like_eager(attend, [(q, k, v)])


def test_sizes_that_vary() -> None:
    def attend(q: Any, k: Any, v: Any) -> Any:
        n = q.shape[2]
        return flex_attention(q, k, v, lambda s, b, h, m, n_: s + (m - n_) * 0.1 + n) * n

    def sized(batch: int, length: int) -> Any:
        return tuple(torch.randn(batch, HEADS, length, FEATURES) for _ in range(3))

    batch, length = Dim("batch"), Dim("length")
    shapes = {name: {0: batch, 2: length} for name in "qkv"}
    assert_like_eager(attend, [sized(2, 6), sized(3, 9), sized(1, 1)], dynamic_shapes=shapes)


def test_masks_of_sizes_that_vary() -> None:
    def attend(q: Any, k: Any, v: Any) -> Any:
        block_mask = create_block_mask(MASKS["causal"], None, None, q.shape[2], k.shape[2], device="cpu")
        return flex_attention(q, k, v, block_mask=block_mask)

    def sized(length: int) -> Any:
        return tuple(torch.randn(BATCH, HEADS, length, FEATURES) for _ in range(3))

    # torch builds a block mask otherwise when there is a single block, so the number of blocks of 128 is fixed
    shapes = {name: {2: Dim("length", min=1, max=128)} for name in "qkv"}
    assert_like_eager(attend, [sized(6), sized(9), sized(128), sized(1)], dynamic_shapes=shapes)


def test_results_without_gradients() -> None:
    def attend(q: Any, k: Any, v: Any) -> Any:
        with torch.no_grad():
            return own_flex_attention(q, k, v, SCORES["slope"])

    q, k, v = (t.requires_grad_() for t in inputs())
    assert not tintype.export(attend, (q, k, v)).module()(q, k, v).requires_grad


def test_autocast() -> None:
    def attend(q: Any, k: Any, v: Any) -> Any:
        return flex_attention(q, k, v)

    q, k, v = inputs()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        expected = attend(q, k, v)
        assert expected.dtype is torch.bfloat16
        torch.testing.assert_close(own_flex_attention(q, k, v), expected)
        program = tintype.export(attend, (q, k, v)).module()
    torch.testing.assert_close(program(q, k, v), expected)


# --- the derivative as an operator -------------------------------------------------------------------------


@pytest.mark.parametrize("stage", STAGES)
def test_backward(stage: str) -> None:
    """The operator gives what autograd finds for the forward operator of torch."""

    def score(s: Any, b: Any, h: Any, q: Any, k: Any, slopes: Any) -> Any:
        return s * slopes[h]

    block_mask = create_block_mask(MASKS["causal"], None, None, LENGTH, LENGTH, device="cpu").as_tuple()

    def differentiate(q: Any, k: Any, v: Any, out: Any, lse: Any, grad: Any, lse_grad: Any, slopes: Any) -> Any:
        operator = torch.ops.higher_order.flex_attention_backward
        return operator(q, k, v, out, lse, grad, lse_grad, score, None, block_mask, 0.5, {}, (slopes,), ())

    leaves = [t.clone().requires_grad_() for t in (*inputs(), SLOPES)]
    out, lse, _ = torch.ops.higher_order.flex_attention(*leaves[:3], score, block_mask, 0.5, {}, (leaves[3],), ())
    grads = torch.randn_like(out), torch.randn_like(lse)
    expected = torch.autograd.grad((out, lse), leaves, grads)
    example = (*(t.detach() for t in (*leaves[:3], out, lse)), *grads, leaves[3])
    program = at_stage(stage, differentiate, example).module()
    *of_inputs, (of_slopes,) = program(*example)
    torch.testing.assert_close([*of_inputs, of_slopes], list(expected))


def test_backward_with_a_graph_of_the_derivative() -> None:
    block_mask = create_block_mask(MASKS["causal"], None, None, LENGTH, LENGTH, device="cpu").as_tuple()

    def differentiate(q: Any, k: Any, v: Any, grad: Any) -> Any:
        out, lse, _ = torch.ops.higher_order.flex_attention(q, k, v, lambda s, *_: s * 3, block_mask, 0.5, {})
        joint = lambda s, b, h, q, k, grad: (grad * 3, None, None, None, None)  # noqa: E731
        operator = torch.ops.higher_order.flex_attention_backward
        arguments = (out, lse, grad, None, lambda s, *_: s * 3, joint, block_mask, 0.5, {})
        return operator(q, k, v, *arguments)

    q, k, v = (t.requires_grad_() for t in inputs())
    out, *_ = torch.ops.higher_order.flex_attention(q, k, v, lambda s, *_: s * 3, block_mask, 0.5, {})
    grad = torch.randn_like(out)
    example = (q.detach(), k.detach(), v.detach(), grad)
    program = at_stage("retraced", differentiate, example)
    assert {"fw_graph0", "joint_graph0", "mask_graph0"} <= {name for name, _ in program.graph_module.named_children()}
    torch.testing.assert_close(program.module()(*example)[:3], torch.autograd.grad(out, (q, k, v), grad))


# --- inputs of programs ------------------------------------------------------------------------------------


def test_a_function_as_an_input() -> None:
    def attend(q: Any, k: Any, v: Any, score: Any) -> Any:
        return flex_attention(q, k, v, score)

    program = tintype.export(attend, (*inputs(), SCORES["slope"])).module()
    torch.testing.assert_close(program(*inputs(), SCORES["slope"]), attend(*inputs(), SCORES["slope"]))
    with pytest.raises(RuntimeError, match="to be equal to <function"):
        program(*inputs(), SCORES["table"])


@pytest.mark.direct("a mask that comes in holds a Python function, which a file can't")
def test_a_block_mask_as_an_input() -> None:
    """Its tensors are inputs, those that its function holds too; its function is part of the program."""
    tintype.register_block_mask()
    tintype.register_block_mask()

    def mask_of(documents: torch.Tensor, window: int) -> Any:
        def near(b: Any, h: Any, q: Any, k: Any) -> Any:
            return q - k < window

        def same(b: Any, h: Any, q: Any, k: Any) -> Any:
            return documents[b, q] == documents[b, k]

        return create_block_mask(and_masks(near, same), BATCH, None, LENGTH, LENGTH, device="cpu")

    class Model(torch.nn.Module):
        def forward(self, q: Any, k: Any, v: Any, mask: Any) -> Any:
            return flex_attention(q, k, v, block_mask=mask) + flex_attention(k, q, v, block_mask=mask)

    example, others = mask_of(DOCUMENTS, 3), mask_of(DOCUMENTS.flip(0), 3)
    program = tintype.export(Model(), (*inputs(), example))
    again = tintype.export(program.module(), (*inputs(), example))
    for module in (program.module(), again.module(), program.run_decompositions().module()):
        for mask in (example, others):
            torch.testing.assert_close(module(*inputs(), mask), Model()(*inputs(), mask))
        with pytest.raises(ValueError, match="tree spec"):
            module(*inputs(), mask_of(DOCUMENTS, 2))


# --- what is refused -----------------------------------------------------------------------------------------


def refused(score: Any = None, mask: Any = None) -> str:
    def attend(q: Any, k: Any, v: Any) -> Any:
        arguments = own_mask(mask) if mask is not None else None
        return own_flex_attention(q, k, v, score, arguments)

    with pytest.raises(tintype.CaptureError) as caught:
        tintype.export(attend, inputs())
    return str(caught.value)


def own_mask(mask: Any) -> Any:
    whole = create_block_mask(MASKS["causal"], None, None, LENGTH, LENGTH, device="cpu")
    whole.mask_mod = mask
    return whole


def test_functions_that_are_refused() -> None:
    assert "one number per score" in refused(lambda s, b, h, q, k: TABLE[h])
    assert "Mutations detected in score_mod" in refused(lambda s, b, h, q, k: s + TABLE.add_(1)[h, q, k])
    assert "random numbers" in refused(lambda s, b, h, q, k: s + torch.rand(()))
    assert "one truth value per score" in refused(mask=lambda b, h, q, k: TABLE[h] > 0)
    assert "mask_mod must return truth values" in refused(mask=lambda b, h, q, k: q)
    assert "takes functions itself" in refused(
        lambda s, b, h, q, k: tintype.cond(s > 0, lambda s: s * 2, lambda s: s + 1, (s,))
    )


def test_requests_that_are_refused() -> None:
    q, k, v = inputs()
    with pytest.raises(ValueError, match="query to be a tensor of size"):
        own_flex_attention(q[0], k, v)
    with pytest.raises(ValueError, match="4 query heads and 2 key heads"):
        own_flex_attention(q, k[:, :2], v[:, :2])
    with pytest.raises(ValueError, match="block_mask was created for"):
        own_flex_attention(q[:, :, :3], k, v, block_mask=own_mask(MASKS["causal"]))


def test_the_program_is_the_same_each_time() -> None:
    program = at_stage("export", Attention(), (*inputs(), torch.ones(2)))
    assert program.same_structure(at_stage("export", Attention(), (*inputs(), torch.ones(2))))
