"""Calls that the recorder gets without torch's dispatcher are those that the dispatcher would hand it."""

import pytest
import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import tintype
from tintype.trace import direct_calls
from tintype.trace.recorder import Recorder

CALLS = {
    **{
        name: (lambda x, y, i, w, name=name: (getattr(x, name)(), getattr(torch, name)(x)))
        for name in direct_calls._UNARY
        if name != "bitwise_not"
    },
    **{
        f"{name} {kind}": (lambda x, y, i, w, name=name, other=other: getattr(x, name)(y if other is None else other))
        for name in (*direct_calls._ARITHMETIC, *direct_calls._COMPARISONS)
        for kind, other in (("tensor", None), ("float", 2.5), ("int", 3), ("large", 2**62))
    },
    "operators": lambda x, y, i, w: (
        x + y, x - 2, 2 - x, x * 3.5, 3.5 * x, x / y, x / 2, x < y, x >= 1, x == y, x**2, x @ y.mT,
    ),
    "bits": lambda x, y, i, w: ((x > 0) & (y > 0), (x > 0) | (y > 0), (x > 0) ^ (y > 0), i & 3, i | i, ~i, ~(x > 0)),
    "truth values": lambda x, y, i, w: (x * True, x + False, x == True, i.mul(True)),  # noqa: E712
    "sizes as numbers": lambda x, y, i, w: (x * x.shape[0], x + x.shape[1], x.shape[0] - x),
    "alpha": lambda x, y, i, w: (x.add(y, alpha=2), torch.sub(x, y, alpha=3)),
    "power": lambda x, y, i, w: (x.pow(2), x.pow(0.5), x**-1, torch.pow(x, 3), x.pow(y), i**2),
    "mean": lambda x, y, i, w: (
        x.mean(-1), x.mean(0, keepdim=True), x.mean(1, False), x.mean(), x.mean((0, 1)), x.mean(dim=0),
        x.mean(0, keepdim=False),
    ),
    "dimensions": lambda x, y, i, w: (
        x.transpose(0, 1), x.transpose(-1, -2), torch.transpose(x, 0, 1), x.unsqueeze(1), torch.unsqueeze(x, -1),
        x.unsqueeze(dim=0).squeeze(0), x[None, :, 1:], x[..., :2], x[:, None], x[...], x[:],
    ),
    "views": lambda x, y, i, w: (
        x.view(-1), x.view(x.shape[1], x.shape[0]), x.view((1, *x.shape)), x.view(x.shape), x.reshape(-1, 1),
        x.reshape([x.shape[0] * x.shape[1]]), x.expand(3, *x.shape), x.unsqueeze(0).expand(2, -1, -1),
        x.view(torch.int32),
    ),
    "cat": lambda x, y, i, w: (
        torch.cat([x, y]), torch.cat((x, y), 1), torch.cat((x, y), dim=-1), torch.cat([x, i], dim=0), torch.cat([x])
    ),
    "linear": lambda x, y, i, w: (
        functional.linear(x, y), functional.linear(x, y, None), functional.linear(y.mT, w),
        functional.linear(y.mT, w, w[0]),
    ),
    "conversions": lambda x, y, i, w: (
        x.to(torch.float64), x.to(torch.float32), x.to(dtype=torch.int32), i.float(), x.float(), x.long(), x.bool(),
        x.to(torch.float16, copy=True), x.to("cpu"), x.to(i), x.to(torch.device("cpu"), torch.float64),
        w.float() * 2,
    ),
    "contiguous": lambda x, y, i, w: (
        x.mT.contiguous(), x.contiguous(), x.contiguous(memory_format=torch.contiguous_format),
    ),
    "matmul": lambda x, y, i, w: (torch.matmul(x, y.mT), x.mT.matmul(y), y.mT @ w),
    "activations": lambda x, y, i, w: (
        functional.silu(x), functional.gelu(x), functional.gelu(x, approximate="tanh"), functional.relu(x),
    ),
    "attention": lambda x, y, i, w: tuple(
        functional.scaled_dot_product_attention(x[None, None], y[None, None], y[None, None], **options)
        for options in (
            {}, {"scale": 0.5}, {"is_causal": True}, {"attn_mask": x @ y.mT > 0}, {"dropout_p": 0.0},
        )
    ),
    "state": lambda x, y, i, w: (x * w[0, 0], w * x.mean(), w + w, 1 - w, w > 0),
}  # fmt: skip


class Calls(torch.nn.Module):
    def __init__(self, name):
        super().__init__()
        self.name = name
        self.weight = torch.nn.Parameter(torch.ones(4, 4))

    def forward(self, x, y, i):
        return CALLS[self.name](x, y, i, self.weight)


def calls_of(name):
    x, y, i = torch.rand(4, 3) + 0.5, torch.rand(4, 3) + 0.5, torch.arange(12).reshape(4, 3)
    sizes = {name: {0: tintype.Dim("rows"), 1: tintype.Dim("columns")} for name in ("x", "y", "i")}
    if name in ("linear", "matmul", "operators", "attention", "views", "state", "dimensions"):
        sizes = "auto"
    program = tintype.export_for_training(Calls(name), (x, y, i), dynamic_shapes=sizes)
    return program, [
        (node.name, str(node.target), str(node.args), str(node.kwargs), str(node.meta["val"]), node.meta["torch_fn"])
        for node in program.graph.nodes
        if node.op == "call_function"
    ]


@pytest.mark.parametrize("name", CALLS)
def test_the_same_is_recorded(name, monkeypatch):
    seen = []
    dispatched = Recorder.__torch_dispatch__

    def listen(self, func, types, args=(), kwargs=None):
        seen.append(
            (str(func), [type(a) for a in args], [a for a in args if not isinstance(a, torch.Tensor)], kwargs or {})
        )
        return dispatched(self, func, types, args, kwargs)

    monkeypatch.setattr(Recorder, "__torch_dispatch__", listen)
    program, directly = calls_of(name)
    heard, seen = seen, []
    monkeypatch.setattr(direct_calls, "DIRECT", {})
    monkeypatch.setattr("tintype.trace.function_mode.DIRECT", {})
    monkeypatch.setattr(direct_calls, "is_direct", lambda recorder: False)
    _, the_long_way = calls_of(name)
    questions = ("aten.sym_size", "aten.dim", "aten.sym_numel", "aten.is_contiguous", "aten.sym_stride")
    heard, seen = ([str(call) for call in calls if not call[0].startswith(questions)] for calls in (heard, seen))
    assert heard == seen
    assert directly == the_long_way
    x, y, i = torch.rand(6, 3), torch.rand(6, 3), torch.arange(18).reshape(6, 3)
    if name not in ("linear", "matmul", "state"):
        torch.testing.assert_close(program.module()(x, y, i), Calls(name)(x, y, i))


def test_modes_of_the_program_see_its_calls():
    seen = []

    class Functions(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            seen.append(func)
            return func(*args, **(kwargs or {}))

    class Operators(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(func)
            return func(*args, **(kwargs or {}))

    def program(x):
        with Functions():
            x = x * x
        with Operators():
            x = x.cos()
        return torch.vmap(lambda row: row + row)(x)

    x = torch.rand(3, 2)
    sizes = {"x": {0: tintype.Dim("rows")}}
    with Functions():  # around the capture
        exported = tintype.export(program, (x,), dynamic_shapes=sizes)
    assert torch.Tensor.mul in seen
    assert torch.ops.aten.cos.default in seen
    torch.testing.assert_close(exported.module()(x), program(x))


def test_autocast_casts():
    def program(x, y):
        with torch.autocast("cpu", torch.bfloat16):
            return x @ y, torch.nn.functional.linear(x, y)

    x, y = torch.rand(3, 3), torch.rand(3, 3)
    exported = tintype.export(program, (x, y), dynamic_shapes="auto")
    assert [found.dtype for found in exported.module()(x, y)] == [torch.bfloat16, torch.bfloat16]
