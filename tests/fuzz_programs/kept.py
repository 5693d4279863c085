"""Programs that were once wrong, as the fuzzer shrank them. Each must be right in every variant and at every size.

An entry is a name, what is said about sizes, the inputs (name, sizes, and what is special about them), the lines of
the model's constructor and those of its forward; the last one is what it returns.
"""

from __future__ import annotations

import dataclasses

from tests.fuzz_programs.language import Input, Program, Sizes, Statement


@dataclasses.dataclass(frozen=True)
class Kept:
    """A program that is kept."""

    name: str
    sizes: Sizes
    inputs: tuple[Input, ...]
    lines: str
    members: str = ""
    may_refuse: bool = False  # whether one of our errors at export is an answer, too

    def program(self) -> Program:
        """The program."""
        *body, result = [line for line in self.lines.split("\n") if line.strip()]
        indent = len(body[0] if body else result) - len((body[0] if body else result).lstrip())
        text = "\n".join(line[indent:] for line in body)
        members = dict(_member(line.strip()) for line in self.members.split("\n") if line.strip())
        statements = (Statement(text, "kept"),) if text else ()
        return Program(0, self.inputs, members, statements, result.strip(), self.sizes)


def _member(line: str) -> tuple[str, str]:
    name = line.split("self.")[1].split(" ")[0] if line.startswith("self.") and "=" in line else ""
    if not name or name.startswith("register_buffer"):
        name = line.split('"')[1]
    return name, line


def static() -> Sizes:
    """Sizes that don't vary."""
    return Sizes({})


def dim(**example: int) -> Sizes:
    """Sizes that vary, each by a Dim."""
    return Sizes(example, "dim")


def auto(**example: int) -> Sizes:
    """Sizes that vary as far as the program allows."""
    return Sizes(example, "auto")


def at_least(least: int, **example: int) -> Sizes:
    """Sizes that vary from a minimum on."""
    return Sizes(example, "dim", dict.fromkeys(example, least))


def x(name: str, *sizes: str, dtype: str = "float32", layout: str = "contiguous") -> Input:
    """An input."""
    return Input(name, sizes, dtype, layout)


N, N3 = x("x0", "n"), x("x0", "n", "3")

KEPT = [
    # facts
    Kept("a write beyond an example", dim(n=3), (N,), "x0[4:] = 0\nx0"),
    Kept("a write beyond an empty example", dim(n=0), (N,), "x0[2:] = 1\nx0"),
    Kept("half of a size", dim(n=5), (N,), "v0 = x0[: x0.shape[0] // 2]\nv0"),
    Kept("a size is returned", dim(n=3), (N,), "v0 = x0 * 2\n(v0, v0.shape[0])"),
    Kept("a size is multiplied with", auto(n=2), (N3,), "v0 = x0 * max(x0.shape[0], 2)\nv0"),
    Kept("a derived size with a guard", dim(n=3), (x("x0", "2 * n", "3"),), "v0 = x0[:, : x0.shape[0] - 1]\nv0"),
    Kept("chunks of a size", auto(n=3), (x("x0", "3", "n"),), "v0 = x0.chunk(2, 1)[0]\nv0"),
    Kept("distances", auto(n=4), (x("x0", "n", "4"),), "v0 = torch.cdist(x0, self.b0)\nv0",
         'self.register_buffer("b0", torch.ones(3, 4))'),
    Kept("patches", at_least(2, n=6), (x("x0", "n", "n"),),
         "v0 = torch.nn.functional.unfold(x0[None, None], 2)\nv0"),
    Kept("an empty example that is transposed", dim(n=0), (x("x0", "n", "4", layout="transposed"),),
         "v0 = x0.reciprocal().clamp(-4, 4)\nv0"),
    Kept("an empty example and two operands", dim(n=0), (x("x0", "3", "n"),), "v0 = torch.hypot(x0, x0)\nv0"),
    Kept("trapezoids of nothing", dim(n=3), (N,), "v0 = torch.trapezoid(x0)\nv0"),
    Kept("attention over nothing", dim(n=3), (N3,),
         "v0 = torch.nn.functional.scaled_dot_product_attention(x0[None], x0[None], x0[None])\nv0"),
    Kept("a step of a scan learns a size", auto(n=3), (x("x0", "1", "3", "n"),),
         "def step(a0, a1):\n    v0 = x0.narrow(2, 0, 1)\n    return a0 * 2, a1 + v0.sum()\n"
         "v1 = tintype.scan(step, x0[0], x0)[1]\nv1"),
    Kept("the end of a matrix is filled", dim(n=2), (N3,), "x0[4:] = 0\nx0"),
    Kept("half of a matrix is filled", dim(n=3), (N3,), "x0[: x0.shape[0] // 2] = 7\nx0"),
    Kept("Kronecker products", dim(n=3), (N3,), "v0 = torch.kron(x0, x0[0])\nv0"),
    Kept("a batch without elements", dim(n=3), (N3,), "v0 = self.m0(x0)\nv0", "self.m0 = torch.nn.BatchNorm1d(3)"),
    Kept("an average of statistics and a batch without elements", dim(n=3), (N3,), "v0 = self.m0(x0)\nv0",
         "self.m0 = torch.nn.BatchNorm1d(3, momentum=None)"),
    Kept("Kronecker products of what was written to", static(), (x("x0", "3", "3"), x("x1", "3", "3")),
         "x0.copy_(x1.sum())\nv0 = torch.kron(x1.clone(), x0.clone())\nv0"),
    Kept("a norm of an image without elements", auto(n=3), (N3,), "v0 = self.m0(x0)\nv0",
         "self.m0 = torch.nn.InstanceNorm1d(3, affine=True)"),
    Kept("an empty diagonal is looked at in another shape", auto(n=1), (x("x0", "3", "n"),),
         "v0 = x0.diagonal(1).view(-1)\nv0 * 2"),
    Kept("an average of no channels", static(), (x("x0", "0", "3"),),
         "v0 = torch.nn.functional.adaptive_avg_pool1d(x0, 2)\nv0"),
    Kept("no channels and no maxima", static(), (x("x0", "0", "3", "4"),),
         "v0 = torch.nn.functional.adaptive_max_pool2d(x0, 2)\nv0"),
    # squeeze and broadcasting
    Kept("a size that data decide is stretched", auto(n=6), (N,), "v0 = torch.maximum(x0, torch.unique(self.b0))\nv0",
         'self.register_buffer("b0", torch.ones(4))', may_refuse=True),
    Kept("an example of one is stretched to a size made from it", auto(n=1), (N,),
         "v0 = torch.nn.functional.pad(x0, (1, 1))\nv1 = v0 * x0\ntorch.mul(v0, x0, out=v0)\n(v0, v1)"),
    Kept("a squeezed tensor is written to", auto(n=4), (N3,), "x0.squeeze().add_(1)\nx0"),
    Kept("a squeezed dimension is written to", auto(n=1), (x("x0", "3", "n"),), "x0.squeeze(-1).mul_(2)\nx0"),
    # pieces
    Kept("a piece is written to", dim(n=4), (N,), "x0.split([1, x0.shape[-1] - 1], -1)[1].add_(1)\nx0"),
    Kept("a chunk is written to", auto(n=4), (N,), "x0.chunk(2, 0)[-1].mul_(2)\nx0"),
    Kept("pieces of a varying size are written to", auto(n=3), (x("x0", "n", "n"),),
         "x0.split(x0.shape[0], 1)[0].zero_()\nx0"),
    Kept("pieces of half a size", auto(n=6), (N,), "v0 = x0.split(x0.shape[0] // 2, 0)[0]\nv0"),
    Kept("complex pieces are written to", static(), (x("x0", "4", dtype="complex64"),),
         "x0[:2] = 1\nx0[3].mul_(2)\nx0"),
    # layouts
    Kept("flattened", static(), (x("x0", "3", "3"),), "v0 = x0.flatten(-2)\nv0"),
    Kept("a flat view is written to", static(), (x("x0", "3", "3"),), "x0.reshape(-1).add_(1)\nx0", may_refuse=True),
    Kept("what may be contiguous is written to", static(), (x("x0", "4"),), "x0.contiguous().add_(1)\nx0",
         may_refuse=True),
    Kept("a source is written to after contiguous()", static(), (x("x0", "3", "4"),),
         "v0 = x0.transpose(0, 1).contiguous()\nx0.zero_()\nv0", may_refuse=True),
    Kept("out= is looked at in another shape", dim(n=3), (x("x0", "n", "4"), x("x1", "n", "4")),
         "torch.add(x1, 1, out=x0)\nx0.view(-1)"),
    Kept("what was written to is flattened in the end", static(), (x("x0", "3", "3", "2"),),
         "x0[0][None].narrow(2, 0, 1).zero_()\nx0[0].flatten(0)", may_refuse=True),
    Kept("a part of what was written to is flattened in the end", static(), (x("x0", "3", "3", "3", "2"),),
         "v0 = x0[0]\nv0[None].narrow(3, 0, 1).zero_()\nv0.flatten(1)", may_refuse=True),
    Kept("a copy of what was written to is written to through a view", static(), (x("x0", "3", "3"),),
         "x0.mT.tril_()\nv0 = x0.mT.contiguous()\nv0.reshape(-1).add_(1)\nv0", may_refuse=True),
    Kept("a layout without elements is relied on", dim(n=0), (x("x0", "3", "n"),), "x0.contiguous().add_(1)\nx0",
         may_refuse=True),
    Kept("a layout of one dimension without elements is relied on", dim(n=0), (N,), "x0.contiguous().add_(1)\nx0"),
    Kept("an input whose elements share memory is written to", static(), (x("x0", "3", "2"),),
         "x0.zero_()\nx0[-1:] += 1\nx0"),
    Kept("group norm of any layout", static(), (x("x0", "3", "3", "2"),), "v0 = self.m0(x0)\nv0",
         "self.m0 = torch.nn.GroupNorm(1, 3)"),
    Kept("sums by a table in any layout", static(), (x("x0", "3", "3"),), "v0 = x0.sum()\nv0"),
    Kept("memory is looked at", static(), (x("x0", "4"),), "x0[1:].as_strided((1,), (1,)).zero_()\nx0",
         may_refuse=True),
    Kept("a view that an example of one allows", auto(n=1), (x("x0", "3", "n", layout="transposed"),),
         "v0 = x0.view(-1)\nv0"),
    Kept("a view over a dimension of one", dim(n=3, m=1), (x("x0", "m", "n", "n", layout="strided"),),
         "v0 = x0.view(x0.shape[0], -1)\nv0"),
    Kept("a view inside of an expanded tensor", dim(n=1), (x("x0", "n", "n", "2 * n"),),
         "v0 = x0.expand(3, -1, -1, -1)\nv1 = v0.unflatten(2, (1, v0.shape[2]))\nv1 * 2"),
    Kept("a view that an example of one in the middle allows", auto(n=3, m=1),
         (x("x0", "n", "m", "n", layout="transposed"),), "v0 = x0.view(-1)\nv0"),
    Kept("a layout is looked at before its size is decided", auto(n=1), (x("x0", "3", "n"),),
         "v0 = x0 * (2 if x0.is_contiguous() else 3)\nv1 = v0 * int(f\"{x0.shape[1]}\")\nv1", may_refuse=True),
    Kept("a reshape that must be a copy", dim(n=4), (x("x0", "3", "n"),),
         "x0[:, :-1].reshape(-1).tanh_()\nx0", may_refuse=True),
    Kept("attention without features", static(), (x("x0", "2", "3", "0"),),
         "v0 = torch.nn.functional.scaled_dot_product_attention(x0, x0, x0)\nv0"),
    Kept("a stride of nothing is looked at", dim(n=0), (x("x0", "3", "n"),), "v0 = x0 * x0.stride(0)\nv0",
         may_refuse=True),
    Kept("an offset is looked at", auto(n=3), (x("x0", "2", "n"),), "v0 = x0.mT + x0.storage_offset()\nv0",
         may_refuse=True),
    Kept("a size of what is written to", auto(n=4), (x("x0", "n", "n"), x("x1")),
         "x0.unbind(-1)[0].mul_(3)\nv0 = x1 * x0.numel()\nv0"),
    Kept("a recurrent layer in any layout", static(), (x("x0", "3"),), "v0 = self.m0(x0[..., None])[0]\nv0",
         "self.m0 = torch.nn.LSTM(1, 2)"),
    Kept("an input that may overlap with one that is written to", static(), (x("x0"), x("x1", "2")),
         "v0 = x0.to(x0.dtype)\nx1[:1].add_(1)\nv0"),
    # gradients
    Kept("bits of a parameter in a region without gradients", static(), (x("x0", "3"),),
         "with torch.no_grad():\n    v0 = self.p0.view(torch.int32)\nx0 * v0",
         "self.p0 = torch.nn.Parameter(torch.randn(3))"),
    Kept("a region without gradients", dim(n=3), (N3,), "with torch.no_grad():\n    v0 = x0.relu()\n(v0, x0 * v0)"),
    Kept("a view in a region without gradients", static(), (x("x0", "3"),),
         "with torch.no_grad():\n    v0 = x0.unflatten(-1, (1, x0.shape[-1]))\nv0 * 2"),
    Kept("control flow in a region without gradients", static(), (x("x0", "3"),),
         "with torch.no_grad():\n    v0 = tintype.map(lambda a0: a0 * 2, x0)\n(x0 * 1, v0)"),
    Kept("what is contiguous already, in a region without gradients", static(), (x("x0", "3", "3"),),
         "with torch.no_grad():\n    v0 = x0.contiguous()\nv0 * 2"),
    Kept("a write in a region without gradients", static(), (x("x0", "3"),),
         "with torch.no_grad():\n    x0.clamp_(-1, 1)\nx0 * 2"),
    Kept("a write with a gradient", static(), (x("x0", "3"),), "x0.sin_()\nx0"),
    Kept("a write through detach()", static(), (x("x0", "3"),), "x0.detach().add_(1)\nx0"),
    Kept("a write through as_strided() with a gradient", static(), (x("x0", "2"),),
         "v0 = x0.repeat(2)\nv0.as_strided((1,), (1,)).add_(1)\nv0"),
    Kept("a loop that returns what it is given, without gradients", static(), (x("x0", "3"),),
         "with torch.no_grad():\n    v0 = tintype.while_loop(lambda i0, a0: i0 < 0, lambda i0, a0: (i0 + 1, a0 * 2), "
         "(torch.zeros((), dtype=torch.int64), x0))[1]\nx0 * v0"),
    Kept("a branch inside of a branch logs once", static(), (x("x0", "3"),),
         "def inner(a0):\n    torch.ops.fuzz_programs.log(a0, \"line\")\n    return a0 * 2\n"
         "def outer(a0):\n    return tintype.cond(a0.sum() > -9, inner, lambda a1: a1 * 3, (a0,)) + 1\n"
         "v0 = tintype.cond(x0.sum() > -99, outer, lambda a0: a0 - 1, (x0,))\nv0"),
    Kept("a list of which one has a gradient is written to", static(), (x("x0", "3"),),
         "torch._foreach_add_([self.b0, x0], 1.0)\nself.b0 + x0", 'self.register_buffer("b0", torch.ones(3))'),
    Kept("a list of tensors that have views is written to", static(), (x("x0", "3", "2"),),
         "v0 = x0 * 2\nv1 = v0[0]\nv2 = x0 * 3\ntorch._foreach_mul_([v0, v2[1]], [2.0, 3.0])\n(v1 * 1, v2 * 1)"),
    Kept("complex zeros with a gradient", static(), (x("x0", "3", dtype="complex64"),), "x0.zero_()\nx0 * 2"),
    Kept("a number with a gradient fills integers", static(), (x("x0", "3", dtype="int64"), x("x1")),
         "x0[0] = x1\nx1 * 2"),
    Kept("bits are written to", static(), (x("x0", "3"),), "x0.view(torch.int32).add_(2)\nx0"),
    Kept("a buffer with a history is written to without", static(), (x("x0", "3"),),
         "self.b0.add_(x0.sum())\nself.b0.detach().add_(1)\nself.b0 * 1",
         'self.register_buffer("b0", torch.ones(()))'),
    Kept("memory is written to without gradients", static(), (x("x0", "3"),),
         "with torch.no_grad():\n    x0.as_strided((1,), (1,)).add_(1)\nx0 * 2", may_refuse=True),
    Kept("memory of what was written to in part", static(), (x("x0", "3"),),
         "x0[::2] *= 2\nx0.as_strided((1,), (1,)).add_(1)\nx0", may_refuse=True),
    # compiled functions
    Kept("what a branch was given is written to", static(), (x("x0", "3"),),
         "v0 = x0 * 1\nv1 = tintype.cond(v0.sum() > 0, lambda a0: (1 - a0).abs(), lambda a0: a0 * 2, (v0,))\n"
         "v0[1:] += 1\n(v0, v1)"),
    Kept("a loop", static(), (x("x0", "3"),),
         "v0 = tintype.while_loop(lambda i0, a0: i0 < 2, lambda i0, a0: (i0 + 1, a0 * 2), "
         "(torch.zeros((), dtype=torch.int64), x0))[1]\nv0"),
    Kept("a parameter is written to", static(), (x("x0", "4"),),
         "with torch.no_grad():\n    self.p0.mul_(0.9)\nself.p0 * x0",
         "self.p0 = torch.nn.Parameter(torch.randn(4))"),
    Kept("numbers are drawn in place", static(), (x("x0", "4"),), "v0 = x0.clone().normal_()\nv0 + x0"),
    Kept("a function reads what is written to twice", static(), (x("x0", "3"),),
         "v0 = x0**2\nv0.tanh_()\nv0.tanh_()\n"
         "v1 = tintype.scan(lambda a0, a1: (a1 + v0.frac().sum(), a1 * 2), x0[0], x0)[0]\nv1"),
    Kept("a norm in a branch", static(), (x("x0", "3"),),
         "v0 = tintype.cond(x0.sum() > 0, lambda a0: a0.clone(), "
         "lambda a0: torch.nn.functional.rms_norm(a0, a0.shape[-1:]), (x0,))\nv0"),
    Kept("a buffer with a history", static(), (x("x0", "3"),), "self.b0.add_(self.p0.sum())\nself.b0 * x0",
         'self.p0 = torch.nn.Parameter(torch.randn(3))\nself.register_buffer("b0", torch.ones(3))'),
    Kept("a view of a buffer that is replaced", static(), (x("x0", "3"),),
         "v0 = self.b0.narrow(-1, 0, 1)\nself.b0 = self.b0 + 1\n(v0, x0 * 2)",
         'self.register_buffer("b0", torch.ones(3))'),
    Kept("no derivative in a loop", static(), (x("x0", "3"),),
         "v0 = tintype.scan(lambda a0, a1: (a1.clone(), torch.heaviside(a1, a1)), x0[0], x0)[0]\nv0"),
    Kept("a loop has no use for what has a gradient", static(), (x("x0", "3"),),
         "def step(a0, a1):\n    v0 = x0.amax(-1)\n    return a0.clone(), a1.clone()\n"
         "v1 = tintype.scan(step, self.b0[0], self.b0)[1]\nv1", 'self.register_buffer("b0", torch.ones(3, 4))'),
    Kept("a copy that is written to where gradients are off", static(), (x("x0", "3"),),
         "v0 = x0.to(torch.float32, copy=True)\nwith torch.no_grad():\n    v0.reshape(-1)[:1] = 4\nx0"),
    Kept("the size of a result without a gradient", static(), (),
         "v0 = torch.unique(self.p0)\nv1 = v0.quantile(0.5, 0)\nv0",
         "self.p0 = torch.nn.Parameter(torch.randn(3, 4))", may_refuse=True),
    Kept("a loop whose steps don't use what the last one made", static(), (x("x0", "3", "3"),),
         "def step(a0, a1):\n    return a1.sqrt().nan_to_num(), a1.clone()\n"
         "v0 = tintype.scan(step, x0[0], x0)[0]\nv0"),
    Kept("a loop that uses what was made two steps before", static(), (x("x0", "4", "3"),),
         "def step(a0, a1, a2):\n    return a1.clone(), a2.sqrt().nan_to_num(), a0 + a2\n"
         "v0 = tintype.scan(lambda c, a: ((r := step(*c, a))[:2], r[2]), (x0[0], x0[1]), x0)\n(v0[0][0], v0[1])"),
    Kept("gradients of what a function does not return", static(), (x("x0", "3"),),
         "v0 = torch.einsum(\"i,i->i\", x0, x0)\nx0[4:] = 0\ndef branch(a0):\n    v1 = v0.sin()\n    return a0 * 1\n"
         "v2 = tintype.cond(x0.sum() > 0, branch, lambda a0: a0.clone(), (x0,))\nv2"),
    Kept("a loop without a step fails in a step", static(), (x("x0", "3"),),
         "v0 = tintype.while_loop(lambda i0, a0: i0 < 0, lambda i0, a0: (i0 + 1, a0.hsplit(2)[0]), "
         "(torch.zeros((), dtype=torch.int64), x0))[1]\nv0", may_refuse=True),
    Kept("a branch that writes to one row is not taken", static(), (x("x0", "1", "3", layout="reversed"),),
         "def write(a0):\n    a0.tril_()\n    return a0.clone()\n"
         "v0 = tintype.cond((x0 < 99).any(), lambda a0: a0.clone(), write, (x0,))\nv0"),
    Kept("a branch that writes is not taken", static(), (x("x0", "3", "3"),),
         "def write(a0):\n    a0[0] = 4\n    return a0.clone()\n"
         "with torch.no_grad():\n    v0 = tintype.cond((x0 < 99).any(), lambda a0: a0.clone(), write, (x0,))\n"
         "torch.cdist(v0, x0)"),
    Kept("numbers are drawn for what a loop returns", static(), (x("x0", "4", "3"),),
         "v0 = x0.mT\nv1 = tintype.while_loop(lambda i0, a0: i0 < 1, lambda i0, a0: (i0 + 1, a0.clone()), "
         "(torch.zeros((), dtype=torch.int64), v0))[1]\n"
         "v2 = tintype.scan(lambda a0, a1: (a0.clone(), a1 + 1), v0, x0)[0]\n"
         "(torch.nn.functional.dropout(v1, 0.5), torch.nn.functional.dropout(v2, 0.5))"),
    Kept("a part of every second column is written to", dim(n=3), (x("x0", "3", "n", "3", "n"),),
         "v0 = x0[:, ::2]\nv1 = v0[..., :1]\nv1[0] = 1\nx0"),
    Kept("a product of transposed tensors at size 1", dim(n=1), (x("x0", "n", "3", layout="transposed"),),
         "torch.kron(x0, torch.stack([x0, x0], -1))"),
    Kept("a history is cut in place", dim(n=3), (N,),
         "v0 = x0 * 2\nv1 = v0 + 1\nv0.detach_()\nv0.add_(1)\n(v0 * x0, v1)"),
    Kept("a decomposition that lays its result out", static(), (x("x0", "3", "3", "3", "0", layout="channels_last"),),
         "v0 = self.m0(x0)\ntorch.lerp(v0, v0, 0.25)", "self.m0 = torch.nn.PReLU()"),
    Kept("who requires a gradient after a write", static(), (x("x0", "3"),),
         "self.b0.copy_(self.p0)\nv0 = torch.zeros(3)\nv0[1:] += self.p0\n"
         "v1 = x0 + 1 if self.b0.requires_grad else x0 - 1\nv2 = x0 + 1 if v0.requires_grad else x0 - 1\n(v1, v2)",
         'self.p0 = torch.nn.Parameter(torch.randn(()))\nself.register_buffer("b0", torch.ones(3))'),
    Kept("a loop does nothing with what has a gradient and is written to", static(), (x("x0", "3"),),
         "v0 = self.p0.logsumexp(0)\nv0.unsqueeze(-1).add_(1)\n"
         "def step(i0, a0):\n    v1 = v0.half()\n    return i0 + 1, a0 * 2\n"
         "v2 = tintype.while_loop(lambda i0, a0: i0 < 2, step, (torch.zeros((), dtype=torch.int64), x0))[1]\nv2",
         "self.p0 = torch.nn.Parameter(torch.randn(1))"),
    Kept("a parameter that is written to without gradients is a leaf", static(), (),
         "with torch.no_grad():\n    self.p0.add_(0.5)\nself.p0 * 1 if self.p0.is_leaf else self.p0 * 2",
         "self.p0 = torch.nn.Parameter(torch.randn(3))"),
    Kept("a geometry is changed where gradients are off", static(), (x("x0", "3"),),
         "v0 = x0 * 2\nwith torch.no_grad():\n    v0.squeeze_(0)\nv0"),
    Kept("a diagonal is filled in any layout", static(), (x("x0", "3", "4"),), "x0.fill_diagonal_(1)\nx0"),
    Kept("several tensors become zeros", static(), (x("x0", "3"),),
         "v0 = x0 * 2\nv1 = x0 * 3\ntorch._foreach_zero_([v0, v1])\n(v0, v1 + x0)"),
    Kept("integers are drawn for what has a gradient", static(), (x("x0", "3"),),
         "v0 = torch.randint_like(x0, 0, 5)\n(v0, v0 * x0)"),
    Kept("a number in a function that is mapped", static(), (x("x0", "3"),),
         "torch.func.vmap(lambda a0: a0.sin() * 2)(x0)"),
    Kept("a covariance in a loop", dim(n=5), (x("x0", "3"), x("x1", "n")),
         "def step(a0, a1):\n    v0 = torch.cov(a0)\n    return a0.clone(), a1 * v0\n"
         "v1 = tintype.scan(step, x1, x0)[1]\nv1"),
    Kept("a Kronecker product in the layout of a part", static(), (x("x0", "3", "3", "2"),),
         "v0 = torch.nn.functional.glu(x0[0, None], -1)\ntorch.kron(v0, x0)"),
    Kept("layers that have nothing to normalize", static(), (x("x0", "3", "0", "2"),),
         "v0 = self.m0(x0)\nv0",
         "self.m0 = torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.BatchNorm1d(4))"),
    Kept("a mask of one element chooses another dtype", auto(n=1), (N,),
         "v0 = torch.isclose(x0, x0)\nself.b0[v0] = v0\nx0 * self.b0",
         'self.register_buffer("b0", torch.ones(1))', may_refuse=True),
    Kept("an empty choice beside more dimensions", static(), (x("x0", "3"),),
         "v0 = x0[x0.isnan()]\ntorch.cat([v0, self.p0])", "self.p0 = torch.nn.Parameter(torch.randn(3, 1))"),
    Kept("a constant gets another geometry", static(), (x("x0", "3"),),
         "v0 = torch.tensor([1.0, 2.0])\nv0.unsqueeze_(0).add_(1)\n(x0 * 2, v0)"),
    Kept("an operand of the branch that is not taken has an infinite slope", static(), (x("x0"),),
         "v0 = x0.std()\nv1 = tintype.cond(x0 > 99, lambda a0: v0 * 1, lambda a0: a0.clone(), (x0,))\nv1"),
    Kept("a branch in another layout, filled at random", auto(n=1), (x("x0", "3", "2", "n", "n"),),
         "v0 = tintype.cond(x0.mean() < 0.1, lambda a0: a0.clone(), "
         "lambda a0: a0.contiguous(memory_format=torch.channels_last).clone(), (x0,))\nv0.clone().uniform_()"),
    Kept("a smoothed loss of no classes", auto(n=5), (x("x0", "n", "n"),),
         "v0 = torch.nn.functional.cross_entropy(x0, x0, label_smoothing=0.1)\nv0"),
    Kept("a branch that could not run, and is not taken", static(), (x("x0", "0"),),
         "v0 = sum(row.sum() for row in x0)\n"
         "v1 = tintype.cond(x0.shape[0] > 0, lambda a0: a0 + v0.detach(), lambda a0: a0 * 2, (x0,))\nv1"),
    Kept("a gradient that wants to know a number of the data", static(), (x("x0", "3"),),
         "v0 = torch.repeat_interleave(self.p0, torch.tensor([2, 2, 2]), 0)\nv1 = torch.sinc(v0)\n"
         "v0[0], v0[-1] = v0[-1].clone(), v0[0].clone()\nv1", "self.p0 = torch.nn.Parameter(torch.randn(3, 1))"),
    Kept("a write to several tensors after a region without gradients", static(), (x("x0", "3"),),
         "with torch.no_grad():\n    v0 = x0.new_zeros(x0.shape)\n"
         "v1 = x0 * 1\ntorch._foreach_mul_([v1, v0], [2.0, 3.0])\n(v1, v0)"),
    Kept("a diagonal of three dimensions", static(), (x("x1", "2"), x("x0", "2", "2", "2")),
         "x0.fill_diagonal_(1)\nx1.add_(1)\nx0"),
    Kept("a conversion of a parameter is a leaf", static(), (x("x0", "3"),),
         "v0 = self.p0.to(self.p0)\nv1 = x0 * self.p0\nv2 = v1.to(v1)\n"
         "(v0 * 1 if v0.is_leaf else v0 * 2, v2 * 1 if v2.is_leaf else v2 * 2)",
         "self.p0 = torch.nn.Parameter(torch.randn(3))"),
    # what the run with seed 109 found
    Kept("numbers drawn for what a write has laid out anew", static(), (x("x0", "3", "5"),),
         "v0 = x0.permute(1, 0)\nv0.tril_()\nv1 = v0.sin()\n"
         "(torch.rand_like(v0), torch.nn.functional.dropout(v1), v1.clone().normal_(), v0.clone().bernoulli_())"),
    Kept("a number of elements that data decide, of what was written to", static(),
         (x("x0", "3", layout="strided"),),
         "x0.unsqueeze(0).add_(1)\ntorch.repeat_interleave(x0, torch.tensor([2, 2, 2]), 0)"),
    Kept("one of several parts gets another geometry", static(), (x("x0", "3", "4", "3"),),
         "v0 = x0.unbind(-1)[0]\nv0.t_()\n(v0 * 2, x0)"),
    Kept("one of two results gets another geometry", static(), (x("x0", "4", "3"),),
         "v0 = torch.std_mean(x0, 1)[0]\nv0.unsqueeze_(0).add_(1)\nv0"),
    Kept("a diagonal of dimensions that may differ", auto(n=3), (x("x0", "3", "3", "n"),),
         "x0.fill_diagonal_(1)\nx0"),
    Kept("a diagonal that begins again", auto(n=5), (x("x0", "n", "3"),), "x0.fill_diagonal_(1, wrap=True)\nx0"),
    Kept("a part that data choose is written to", static(), (x("x0", "3"),),
         "v0 = x0[x0 > 0]\nv0[None][0] = 0\nv0"),
    Kept("an operand of a branch gets another geometry afterwards", static(), (x("x0", "3"),),
         "v0 = x0.detach() * 2\n"
         "v1 = tintype.cond((x0 > 0.5).any(), lambda a0: a0 * v0, lambda a0: a0 + v0, (x0 * self.p0,))\n"
         "v0.unsqueeze_(0).add_(1)\n(v0, v1)", "self.p0 = torch.nn.Parameter(torch.randn(3))"),
    Kept("what autograd keeps is detached", static(), (x("x0", "3"),),
         "v0 = self.p0.nansum(-1)\nv1 = v0.abs() * x0\nv0.detach_()\nv1",
         "self.p0 = torch.nn.Parameter(torch.randn(3, 4))"),
    Kept("nothing with a gradient is written to integers", static(), (x("x0"),), "self.b0[1:] = x0\nself.b0 * 2",
         'self.register_buffer("b0", torch.ones(1, dtype=torch.int64))'),
    Kept("bits of nothing are written to", dim(n=1), (x("x0", "3", "n", dtype="float64"),),
         "v0 = x0.sign().view(torch.int32)\nv0.reshape(-1).add_(1)\n(v0[1:, :-1], v0)"),
    Kept("a view of a row that is one by its example", auto(n=1), (x("x0", "3", "n", "3"),),
         "x0[:, 0, :].view(-1) * 2"),
    Kept("running statistics of an image in any layout", static(), (x("x0", "2", "3", "2"),), "self.m0(x0)",
         "self.m0 = torch.nn.InstanceNorm1d(3, affine=True, track_running_stats=True)"),
    Kept("steps to a number that varies", dim(n=3), (N,), "torch.linspace(-1, 1, x0.shape[0])"),
    Kept("a smoothed loss of classes that vary", dim(n=3, m=4), (x("x0", "n", "m"),),
         "torch.nn.functional.cross_entropy(x0, x0.softmax(1), label_smoothing=0.1)"),
    Kept("a norm of neighbours in a branch", dim(n=0), (x("x0", "3", "2", "n"),),
         "tintype.cond((x0 > 0.5).any(), lambda a0: torch.nn.functional.local_response_norm(a0, 2), "
         "lambda a0: a0.clone(), (x0,))"),
    Kept("memory is looked at through a diagonal without elements", at_least(1, n=1), (x("x0", "3", "n"),),
         "v0 = x0.diagonal(1)\nx0[1:][:, :1].add_(1)\nv0.as_strided((1,), (1,))", may_refuse=True),
    Kept("where a diagonal begins that may have no elements", dim(n=1), (x("x0", "3", "n"),),
         "v0 = x0.diagonal(1)\nx0 * (v0.storage_offset() + 1)", may_refuse=True),
    Kept("differences of nothing", auto(n=0, m=3), (x("x0", "n", "m"),), "x0.flatten().diff()"),
    Kept("bits that are no number are written to", static(), (x("x0", "3"),),
         "v0 = self.p0.view(torch.int32)\ntorch.mul(v0[:1], 2, out=v0[:1])\nx0 * 2",
         "self.p0 = torch.nn.Parameter(torch.tensor([1.5410]))"),
    Kept("products of nothing", auto(n=0), (N3,), "(x0.prod(), x0.prod(0), x0.cumprod(0), x0.cumprod(1))"),
    Kept("a convolution of no channels", static(), (x("x0", "3", "0", "3"),),
         "torch.nn.functional.conv1d(x0, torch.ones(2, 0, 1))"),
    Kept("a view of what gets another geometry", static(), (x("x0", "4", "4"),),
         "v0 = self.m0(x0)\nv1 = v0.broadcast_to(v0.shape)\nv0.transpose_(0, 1).add_(1)\nv1 // 2",
         "self.m0 = torch.nn.Linear(4, 3)"),
    Kept("a view of what gets another dimension", static(), (x("x0", "4"),),
         "v0 = x0 * self.p0\nv1 = v0.expand(*v0.shape)\nv0.unsqueeze_(0).add_(1)\nv1 * 2",
         "self.p0 = torch.nn.Parameter(torch.randn(4))"),
    Kept("a view of several dimensions gets another one and is written to", static(), (x("x0", "3", "2", "3"),),
         "v0 = self.m0(x0)\nv0.unsqueeze_(0).add_(1)\nv0.relu_()\nv0",
         "self.m0 = torch.nn.utils.parametrizations.spectral_norm(torch.nn.Linear(3, 2))"),
    Kept("a branch writes through a view of what has gaps and was written to", static(),
         (x("x0", "3", "4", layout="strided"),),
         "with torch.no_grad():\n    x0[:2] = 1\ndef f0(a0):\n    a0.flatten()[0] = 2\n    return a0.clone()\n"
         "v0 = tintype.cond((x0 > 0.5).any(), f0, lambda a0: a0.clone(), (x0,))\n(v0, x0)"),
    Kept("a branch writes through a view of what has gaps, and a weight is written to", static(),
         (x("x0", "3", "1", "3", layout="strided"), x("x1", "3", "1", "3")),
         "def f0(a0):\n    x0.flatten()[1:].mul_(2)\n    return x0.clone()\n"
         "v0 = tintype.cond(x1.sum() > 0, f0, lambda a0: a0.clone(), (x1,))\nself.p0.data.mul_(0.5)\nx0",
         "self.p0 = torch.nn.Parameter(torch.randn(3, 4))"),
    Kept("deviations of rows that vary, one after the other", dim(m=3), (x("x0", "3", "m"),),
         "tintype.scan(lambda a0, a1: (a1.std(0) * 1, a1.clone()), torch.ones(()), x0)[0]"),
    Kept("a convolution of channels that may be none", auto(n=3), (x("x0", "3", "n", "3"),),
         "v0 = torch.nn.functional.conv1d(x0, torch.ones(2, x0.shape[1], 1))\n(v0, torch.ones(v0.shape))"),
    Kept("a copy that is a view at another size", dim(n=3), (N3,),
         "v0 = x0 + 0\nv1 = v0.t().contiguous()\nv1.zero_()\n(v0, v1)"),
    Kept("what is a view in one layout is written to", static(), (x("x0", "2", "3"),),
         "v0 = x0 * 1\nv0.reshape(-1).mul_(2)\nv1 = x0 + 1\nv1.contiguous().mul_(2)\n"
         "v2 = x0 - 1\nv2.ravel().mul_(2)\n(v0, v1, v2)"),
    Kept("what is a copy in one layout is written to", static(), (x("x0", "2", "3", layout="transposed"),),
         "v0 = x0 * 1\nv0.flatten().mul_(2)\nv1 = x0 + 1\nv1.contiguous().mul_(2)\nv2 = x0 - 1\nv2.ravel().mul_(2)\n"
         "(v0, v1, v2)"),
    Kept("without gradients, a copy in one layout only", static(), (x("x0", "2", "3"),),
         "v0 = x0 * 1\nwith torch.no_grad():\n    v1 = v0.contiguous()\nv1 * x0"),
    Kept("a shuffle of one group, and its source is written to", static(), (x("x0", "3", "3", "4"),),
         "v0 = torch.channel_shuffle(x0, 1)\nx0.masked_fill_(x0 > 0, 0.5)\nv0"),
    Kept("a contiguous tensor gets another geometry", static(), (x("x0", "1"),),
         "v0 = x0 * int(x0.shape[0] ** 0.5)\nv1 = v0.contiguous()\nv1.squeeze_(0)\n(v0, v1)"),
    Kept("rows of a tensor that may have none", auto(n=1, m=3), (x("x0", "n", "m"),),
         "v0 = torch.special.entr(x0.abs())\nwith torch.no_grad():\n"
         "    v1 = tintype.map(lambda a0: torch.stack(tuple(a0)).clone(), v0)\n(v1, 7)"),
    Kept("what is made without gradients is written to and used without them", static(), (x("x0", "2", "4"),),
         "with torch.no_grad():\n    v0 = x0 * 2\nv0[0, ::2] = x0[1, :2]\n"
         "with torch.no_grad():\n    v1 = torch.sub(v0, v0, alpha=2)\nv1"),
    Kept("normal numbers are drawn into gaps", static(), (x("x0", "6", "8"),),
         "v0 = x0 * 2\nv0[:, ::2].normal_(1, 2)\nv0"),
    Kept("what can't be told from weights: a number", static(), (x("x0", "3", "2"),),
         "with torch.no_grad():\n    v0 = self.p0.argmin()\nv1 = x0 * 1\nv1[v0] = 1\nv1",
         "self.p0 = torch.nn.Parameter(torch.randn(3))"),
    Kept("what can't be told from weights: a size", static(), (x("x0", "3"),),
         "with torch.no_grad():\n    v0 = torch.block_diag(self.p0, self.p0)\ntorch.unique(v0) * x0.sum()",
         "self.p0 = torch.nn.Parameter(torch.randn(3))"),
    Kept("dropout of nothing gets another geometry", auto(n=1), (x("x0", "0", "n", "3"),),
         "v0 = x0 * 1\ntorch.nn.functional.dropout1d(v0, 0.5).swapaxes_(0, -1)\nv0"),
    Kept("dropout of what may be nothing gets another geometry", auto(n=1), (x("x0", "n", "3"),),
         "v0 = x0 * 1\ntorch.nn.functional.dropout(v0, 0.5).unsqueeze_(0)\nv0"),
    Kept("a conversion that changes nothing is detached", static(), (x("x0", "3"),),
         "v0 = x0.to(torch.float32)\nv0.detach_()\nx0"),
    Kept("a buffer is detached in place, and written to", static(), (x("x0", "3"),),
         "self.b0.detach_()\nself.b0[1:] = self.p0\nself.b0",
         'self.p0 = torch.nn.Parameter(torch.randn(()))\nself.register_buffer("b0", torch.ones(3))'),
    Kept("detached in place behind a view", static(), (x("x0", "3"),),
         "v0 = x0 * 2\nv1 = v0[1:]\nv0.detach_()\nv0.mul_(self.p0)\n(v1, v0)",
         "self.p0 = torch.nn.Parameter(torch.randn(()))"),
    Kept("detached in place after a write", static(), (x("x0", "3"),),
         'v0 = self.b0 * x0\nself.b0.copy_(v0)\nself.b0.detach_()\nv0 + self.b0',
         'self.register_buffer("b0", torch.ones(3))'),
    Kept("written to behind a gradient's back", static(), (x("x0", "3"),),
         "v0 = x0 * 2\nv1 = v0.detach()\nv1.mul_(self.p0)\nv0.add_(1)\nv1 * 1",
         "self.p0 = torch.nn.Parameter(torch.randn(()))"),
    Kept("the stride of one element", auto(n=1), (x("x0", "n", layout="strided"),),
         "v0 = x0.tanh()\nv0 * v0.stride(0)"),
    Kept("one of a row beside the row", dim(n=1), (x("x0", "3", "n"),),
         "tintype.map(lambda a0: torch.copysign(x0[:, -1:], a0), x0)"),
    Kept("running extrema of nothing in a dimension that is none", static(), (x("x0", "4", "0"),), "x0.cummax(2)[1]"),
    Kept("flags are shifted", auto(n=2), (x("x0", "n", dtype="bool"),), "(x0 << 1, x0 >> 1)"),
    Kept("more than a view, which may be empty", auto(n=1), (x("x0", "3", "n"),),
         "v0 = x0[:, :-1].reshape(-1)\nv0.as_strided((1,), (1,)).abs()"),
    Kept("whole numbers written without gradients", auto(n=3), (x("x0", "n"),),
         "v0 = x0.view(torch.int32)\nwith torch.no_grad():\n"
         "    v1 = tintype.cond((x0 > 0.5).any(), lambda a0: a0.clone(), lambda a0: a0 * 2, (x0,))\n"
         "v0.flatten()[1:].mul_(2)\nx0.clamp(-1, 1), v0, v1"),
    Kept("a norm of nothing gets another geometry", auto(n=3), (x("x0", "2", "1", "n"),),
         "v0 = self.m0(x0)\nv0.unsqueeze_(0).add_(1)\nx0.logsumexp(0)", "self.m0 = torch.nn.LocalResponseNorm(2)"),
    Kept("a view whose layout hangs on a write", static(), (x("x0", "1", "3", "3", "1"),),
         "x0.relu_()\nv0 = torch.constant_pad_nd(x0, (1, 0), 2)\nv0.view(-1)[1:].sub_(1)\nv0"),
    Kept("rows that get another geometry after a map", static(), (x("x0", "4", "3"),),
         "v0 = torch.nn.functional.celu(x0)\nv1 = tintype.map(lambda a0: a0.clone(), v0)\nv0.t_()\nv1"),
    # gradients in other layouts, and what torch's transforms take apart
    Kept("a determinant", static(), (x("x0", "3", "3"),), "torch.linalg.det(x0)"),
    Kept("the slope of a determinant", static(), (x("x0", "3", "3"),),
         "torch.func.jvp(torch.linalg.det, (x0,), (x0.cos(),))[1]"),
    Kept("attention of rows", static(), (x("x0", "2", "3", "4"),),
         "torch.vmap(lambda a0: torch.nn.functional.scaled_dot_product_attention(a0[None], a0[None], a0[None]))(x0)"),
    Kept("slopes of nothing", dim(n=0), (N3,), "torch.func.jvp(torch.sin, (x0,), (x0 * 2,))[1]"),
    Kept("slopes of a part of memory", static(), (x("x0", "3", layout="offset"),),
         "torch.func.jvp(lambda a0: a0[-2:] * 1, (x0,), (x0.cos(),))[1]"),
    Kept("slopes of a part of memory that varies", dim(n=3), (x("x0", "n", "3", layout="strided"),),
         "torch.func.jvp(lambda a0: a0[-2:] * 1, (x0,), (x0.cos(),))[1]"),
    Kept("whole numbers are written to in one branch, and kept for a gradient in the other", static(),
         (x("x0", "3"), x("x1", "3", dtype="int64")),
         "def f0(a0):\n    x1[::2] *= 2\n    return a0.clone()\n"
         "tintype.cond(x0.sum() > 99, f0, lambda a0: torch.maximum(a0, x1) * 1, (x0,))"),
    Kept("a function with a gradient of its own, and gradients are off", static(), (x("x0", "3"),),
         "with torch.no_grad():\n    v0 = forms.Squared.apply(x0)\n    v1 = forms.Halved.apply(x0)[0]\n"
         "(v0, v1, x0 * v0)"),
    Kept("a function with a gradient of its own, and gradients are on again", static(), (x("x0", "3"),),
         "with torch.no_grad():\n    v0 = x0 * 2\n    with torch.enable_grad():\n"
         "        v1 = forms.Squared.apply(x0)\n"
         "v2 = forms.Squared.apply(x0 + 1)\n(v0, v1, v2)"),
    Kept("slopes of nothing in a loop", dim(n=0), (x("x0", "3"), x("x1", "n")),
         "def step(a0, a1):\n    v0 = torch.func.jvp(torch.sin, (x1,), (x1,))[1]\n"
         "    return a0 + v0.sum(), a1.clone()\n"
         "tintype.scan(step, x0[0], x0)[0]"),
    Kept("a gradient that looks for zeros in the data", static(), (x("x0", "3", "4"),),
         "torch.func.grad(lambda a0: torch.scatter_reduce(a0, 0, torch.zeros_like(a0, dtype=torch.int64), a0 * 2, "
         "'prod').sin().sum())(x0)", may_refuse=True),
    Kept("a size of one is squeezed in a branch", dim(n=1), (N,),
         "def f0(a0):\n    v0 = a0.cummin(-1)[0]\n    v0.squeeze_(0)\n    return a0 * 2\n"
         "tintype.cond((x0 > 0.5).any(), f0, lambda a0: a0.clone(), (x0,))", may_refuse=True),
    Kept("a size of one is squeezed in a branch, with an example of two", dim(n=2), (N,),
         "def f0(a0):\n    v0 = a0 * 2\n    v0.squeeze_(0)\n    return a0 * 2\n"
         "tintype.cond((x0 > 0.5).any(), f0, lambda a0: a0.clone(), (x0,))"),
    Kept("what a loop makes without what has a gradient", static(), (x("x0", "4"),),
         "v0 = tintype.scan(lambda a0, a1: (a0.clone(), a1.clone()), self.p0, x0)[1]\n"
         "v0.split([1, 3], 0)[1].add_(1)\nv0", "self.p0 = torch.nn.Parameter(torch.randn(4))"),
    Kept("a product with a logarithm of nothing", dim(m=5), (x("x0", "m"),),
         "v0 = torch.xlogy(x0.abs(), torch.zeros(1))\n"
         "(v0.clamp(-5, 5), torch.special.xlog1py(x0.abs(), -1.0).clamp(-5, 5))"),
    Kept("asks for the gradient mode that is its own, in an arm", static(), (x("x0", "3"),),
         "with torch.no_grad():\n    v0 = forms.by_a_flag(x0, True) if x0.sum() > 0 else x0 * 1\nv0"),
    Kept("asks for the gradient mode that is its own, in a loop", static(), (x("x0", "3"),),
         "with torch.no_grad():\n    v0 = tintype.while_loop(lambda i0, a0: i0 < x0.shape[0], "
         "lambda i0, a0: (i0 + 1, forms.by_a_flag(a0, True) * 1), (torch.zeros((), dtype=torch.int64), x0))[1]\nv0"),
    Kept("a number beside rows without dimensions", static(), (x("x0", "3"),),
         "with torch.no_grad():\n    v0 = torch.vmap(lambda a0: (a0 - a0.mean()) / (a0.sum() + 1e-5) * 1)(x0)\nv0"),
    Kept("the slope of a softmax of nothing", Sizes({"n": 2, "m": 3}, "auto"), (x("x0", "n", "m"),),
         "torch.func.jvp(lambda value: value.softmax(-1), (x0,), (x0.cos(),))[1]"),
    Kept("cross entropy of no rows in several dimensions", Sizes({"n": 2, "m": 3}, "auto"), (x("x0", "n", "3", "m"),),
         "torch.nn.functional.cross_entropy(x0, x0.argmax(1))"),
    Kept("memory below a view of bits, after a write", dim(n=5), (N,),
         "x0[(slice(None, -1),)] -= 1\nv0 = x0.view(x0.dtype)\nv0.as_strided(v0.shape, v0.stride())"),
    Kept("a loop squeezes what is one element at a size", dim(n=5), (x("x0", "3", "n"),),
         "v0 = x0.narrow(-1, 1, x0.shape[-1] - 1)\n"
         "def f0(a0, a1):\n    v1 = v0.squeeze(1)\n    return a0 + 1, a1.clone()\n"
         "tintype.while_loop(lambda a0, a1: a0 < 3, f0, (torch.zeros((), dtype=torch.int64), x0))[1]"),
    Kept("a branch goes through rows of a size that another one equals", Sizes({"n": 2, "m": 2}, "auto"),
         (x("x0", "n", "m"), x("x1", "n", "m")),
         "torch._foreach_copy_([x1], [x0])\ndef f0(a0):\n    for row in a0: row.mul_(2)\n"
         "    v0 = a0.cummax(1)[0]\n    return v0.reshape(v0.shape[1], v0.shape[0]) * 1\n"
         "v1 = tintype.cond(x0.sum() > 0, f0, lambda a0: a0.clone(), (x1,))\nx1, v1"),
    Kept("a function with a gradient of its own writes to what was computed", static(), (x("x0", "3"),),
         "v0 = self.p0 * x0\nv1 = forms.Overwritten.apply(v0)\nv0, v1 * 2",
         "self.p0 = torch.nn.Parameter(torch.randn(3))"),
    Kept("a spectrum of a length that is said", Sizes({"n": 5}, "dim", {"n": 1}), (N,),
         "torch.fft.rfft(x0, n=4)"),
    Kept("the slope of a norm", dim(n=4), (N3,),
         "torch.func.jvp(lambda value: torch.nn.functional.layer_norm(value, value.shape[-1:]), (x0,), "
         "(x0.cos(),))[1]"),
    Kept("complex numbers of a copy that is a view of what was written to", static(), (x("x0", "3"),),
         "x0[...] = x0 * 1\nv0 = x0.ravel()\n"
         "torch.view_as_complex(v0.reshape(-1)[: v0.numel() // 2 * 2].view(-1, 2))"),
    Kept("halves of what data select, as often as they decide", static(), (x("x0", "3"),),
         "forms.added_in_pairs(torch.combinations(x0.reshape(-1)))", may_refuse=True),
    Kept("a loss of two dtypes", static(), (x("x0", "2", "3", dtype="bfloat16"),),
         "torch.nn.functional.cosine_embedding_loss(x0, x0.flip(0), torch.ones(2))"),
    # sizes that data decide
    Kept("a buffer takes what data select of fewer elements", static(), (x("x0", "1"),),
         "self.b0.copy_(x0[x0 > -9])\nself.b0 * 2", 'self.register_buffer("b0", torch.ones(3))'),
    Kept("the different ones of one element", static(), (x("x0"),),
         "v0 = torch.unique_consecutive(self.p0)\nv1 = v0.squeeze(-1)\n(v0[0] * x0, v1)",
         "self.p0 = torch.nn.Parameter(torch.randn(1))"),
    Kept("a loop stretches what it carries, in a branch that is not taken", Sizes({"n": 1}, "all"),
         (x("x0", "3", "n"),),
         "def f0(a0, a1):\n    v0 = a0 / (a1.abs() + 1)\n    return a0.narrow(1, 0, 1) * 1, a1.clone()\n"
         "def f1(a0):\n    v1 = tintype.scan(f0, a0, a0.t())[1]\n    return a0.clone()\n"
         "v2 = tintype.cond(x0.shape[-1] > 3, lambda a0: a0.clone(), f1, (x0,))\nx0.clamp(-1, 1)"),
    # effects and conversions
    Kept("a log", dim(n=3), (N,), 'torch.ops.fuzz_programs.log(x0, "line")\nx0 * 2'),
    Kept("a log of sizes that data decide, and that gradients have", static(), (x("x0"),),
         "v0 = torch.combinations(self.p0).mul_(2)\n"
         'torch.ops.fuzz_programs.log(v0[:-1].reshape(-1, 2), "line")\n'
         "torch.nn.functional.unfold(v0[None, None], 2)\nv0",
         "self.p0 = torch.nn.Parameter(torch.randn(4))"),
    Kept("conversions that change nothing", dim(n=3), (N,),
         "v0 = (x0 * 2).float()\nv0 += 1\nv1 = (x0 + 1).to(x0.dtype)\nv1.add_(1)\n(v0, x0, v1.type_as(v0))"),
    Kept("a conversion and a source that is written to", static(), (x("x0", "3"),),
         "v0 = x0.float()\nx0.relu_()\nv0"),
    Kept("a sum into integers", static(), (x("x0", "2", "2"), x("x1", "2", dtype="int64")),
         "torch.sum(x0, 0, out=x1)\nx1 * 2", may_refuse=True),
    Kept("a loss of two kinds", static(), (x("x0", "3"), x("x1", "3", dtype="float64")),
         "v0 = torch.nn.functional.huber_loss(x0, x1)\nv0"),
    Kept("a size as text", auto(n=3), (N,), 'v0 = x0 * int(f"{x0.shape[0]}")\nv0', may_refuse=True),
    Kept("out= of another size", static(), (x("x0", "3"), x("x1")), "torch.add(x0, 1, out=x1)\nx1", may_refuse=True),
]  # fmt: skip
