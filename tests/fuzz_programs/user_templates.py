"""Still more lines of random programs, by family: what small programs of users consist of.

Functions and modules around operators (``forms``), functions that torch transforms, gradients of one's own, numbers
that are read off the data, decisions in Python's own words. The slots are those of
:mod:`tests.fuzz_programs.templates`.
"""

from __future__ import annotations

ELEMENTWISE = """
forms.Squared.apply({f})
forms.Halved.apply({f})[0]
forms.rounded({f})
forms.kept_small({f})
forms.partly_without_gradients({f})
forms.by_a_flag({f}, False)
forms.by_a_flag({f}, True)
forms.by_generator({f})
forms.chosen({f}, kind="double")
torch.where({f} > 0, {f}, {f} * 0.1)
{f} * {i}
{i} * 0.5
torch.tensor(2) * {f}
torch.tensor(2.0, dtype=torch.float64) * {f}
2.5 * {i}
1 - {a}
1 / ({f}.abs() + 1)
{f} % -0.7
{i} % -3
{f} // 0.3
{a}.square()
({f} > 0).float() - ({f} < 0).float()
({f} > 0) & ({f} < 1)
torch.stack([{f}, {f_b}]).max(0)[0]
{f}.detach() * {f}
{f} - {f}.mean(-1, keepdim=True)
{f} * {f}.abs().amax().clamp(min=1e-3).reciprocal()
{f} * {f}.sum().item()
{f} + float({f}.mean())
{f} * int({i}.sum())
torch.atan2({f}, {f_b} * 0)
{f}.clamp(min=0).sqrt()
{f}.abs().pow(0.5)
torch.nn.functional.hardshrink({f}) + {f}.new_tensor(1.0)
torch.special.xlog1py({f}, {f_b}.abs())
torch.logit({f}.sigmoid(), eps=1e-3)
"""

VIEWS = """
{a}.view({a}.dtype)
torch.view_as_complex(torch.stack([{f}, {f}], -1))
{a1}[{a1}.shape[0] // 2 :]
{a1}[..., ::2]
{a2}.flip(0).t()
{a2}[:, None, :].squeeze(1)
{a1}.unfold(-1, 2, 2).flatten(-2)
{a3}.permute(0, 2, 1).contiguous().view({a3}.shape[0], -1)
{a3}.transpose(1, 2).flatten(0, 1)
{a2}.reshape({a2}.shape[0], 1, -1).expand(-1, 2, -1).reshape(-1, {a2}[0].numel())
{a1}.view(*{a1}.shape[:-1], 1, {a1}.shape[-1])
{a}.as_strided({a}.shape, {a}.stride())
{a2}.t().contiguous().t()
{a1}.data[..., 0]
{f}.detach().requires_grad_(False)
torch.unbind({a2}, 1)[0]
torch.split({a1}, [1, {a1}.shape[0] - 1])[0]
{a1}[1:-1]
{a2}[1:, 0].unsqueeze(-1)
{a2}.mT.contiguous().mT[0]
{a2}.view(1, *{a2}.shape).transpose(0, 1)
torch.as_tensor({a})[None]
{a3}.movedim(1, 2).reshape({a3}.shape[0], -1)
{a3}.view({a3}.shape[0], -1).view({a3}.shape)
"""

GATHERS = """
torch.nn.functional.pad({f1}, (0, {z}))
torch.arange({a1}.shape[-1])[None] < {i}.reshape(-1, 1)
torch.cat([{a1}[..., {a1}.shape[-1] // 2 :], {a1}[..., : {a1}.shape[-1] // 2]], -1)
torch.cat([-{f1}[..., {f1}.shape[-1] // 2 :], {f1}[..., : {f1}.shape[-1] // 2]], -1)
{f1}.new_tensor([1.0, 2.0])
torch.zeros(4).index_add_(0, {i}.reshape(-1) % 4, torch.ones({i}.numel()))
torch.zeros_like({f1}).scatter_reduce(0, torch.zeros_like({f1}, dtype=torch.int64), {f1}, "mean")
torch.full_like({f}, float("-inf")).maximum({f})
torch.cat([torch.empty(0), {f}.reshape(-1)])
torch.tensor([{a1}.shape[0], 2])
torch.tensor([[{z}, 1], [2, 3]])
torch.nn.functional.embedding({i} % {f2}.shape[0], {f2})
{a2}[{i}.reshape(-1) % 1, :, None]
{a1}[{k}.nonzero()[:, 0]]
{a1}[: int(({a1} > 0).sum())]
{f1}.masked_scatter({f1} > 0, {f1}.abs())
torch.zeros({a1}.shape[0], 3, dtype={a1}.dtype)
torch.triu(torch.full(({z}, {z}), float("-inf")), 1)
torch.stack([{a}, {a_b}]).flatten(0, 1)
torch.roll({a2}, (1, -1), (0, 1))
torch.nn.functional.pad({f2}, (0, 0, 1, 0))
{f1}.sort(-1)[0].flip(-1)
torch.repeat_interleave({a1}, 2, 0)[::2]
torch.where({k}[..., None], {f1}, 0.0)
"""

REDUCTIONS = """
forms.attention({f2}, {f2})
forms.attention({f2}, {f2_b})
forms.rotated({f2})
forms.in_bfloat16(lambda: {f2} @ {f2_b})
forms.in_bfloat16(lambda: {f2}.softmax(-1) @ {f2}.mT)
forms.in_bfloat16(lambda: torch.nn.functional.linear({f1}, {f2}).sum())
torch.linalg.slogdet({f2} + 3 * torch.eye({f2}.shape[-1], dtype={f2}.dtype))[1]
torch.linalg.det({f2} @ {f2}.mT + torch.eye({f2}.shape[-2], dtype={f2}.dtype))
torch.linalg.inv({f2} + 3 * torch.eye({f2}.shape[-1], dtype={f2}.dtype))
torch.linalg.cholesky({f2} @ {f2}.mT + torch.eye({f2}.shape[-2], dtype={f2}.dtype))
torch.linalg.matrix_power({f2}, 2)
torch.linalg.svdvals({f2})
torch.trace({f2})
torch.einsum("bij,bjk->bik", {f3}, {f3}.mT)
torch.einsum("bid,bjd->bij", {f3}, {f3_b})
torch.einsum("i,ij->j", {f1}, {f2})
{f1}.var(-1, correction=0).sqrt()
({f1} - {f1}.mean()) / ({f1}.std() + 1e-5)
{f2}.logsumexp((0, 1))
{f1}.softmax(-1).log()
torch.corrcoef({f2})
torch.nn.functional.normalize({f1}, p=1, dim={d})
torch.nn.functional.triplet_margin_loss({f2}, {f2_b}, {f2}.flip(0))
torch.nn.functional.gaussian_nll_loss({f}, {f_b}, {f}.abs() + 0.1)
torch.nn.functional.cross_entropy({f2}, {f2}.argmax(1))
torch.nn.functional.cross_entropy({f2}, {f2}.argmax(1), ignore_index=0, reduction="none")
torch.nn.functional.scaled_dot_product_attention({f3}, {f3}, {f3}, attn_mask={f3} @ {f3}.mT > 0)
torch.func.vmap(torch.func.grad(lambda row: (row * row.sin()).sum()))({f1})
torch.func.jacrev(lambda value: value.sin())({f1}.reshape(-1)[:2])
torch.func.jacfwd(lambda value: value * value.sum())({f1}.reshape(-1)[:2])
torch.func.hessian(lambda value: (value**3).sum())({f1}.reshape(-1)[:2])
torch.func.grad(lambda value: value.reshape(-1).cumsum(0).sin().sum())({f})
torch.func.grad(lambda value: torch.nn.functional.group_norm(value, 1).sin().sum())({f2})
torch.func.grad(lambda value: (value[1:] * value[:-1]).sum())({f1})
torch.func.grad_and_value(lambda value: (value**2).sum())({f})[1]
torch.func.vjp(lambda value: value.t() @ value, {f2})[1](({f2}.t() @ {f2}).cos())[0]
torch.func.vmap(lambda row, other: row * other, in_dims=(0, None))({f1}, {f})
torch.func.vmap(lambda row: row.cumsum(0), in_dims=1, out_dims=1)({f2})
torch.func.vmap(lambda row: torch.nn.functional.layer_norm(row, row.shape))({f2})
torch.func.vmap(lambda row: row.reshape(-1))({f2})
torch.func.vmap(lambda row: row.t().reshape(-1))({f3})
torch.func.vmap(torch.func.vmap(torch.sin))({f2})
torch.func.vmap(lambda row: row[0] + row.shape[0])({f2})
torch.func.vmap(lambda row: torch.where(row > 0, row, row.mean()))({f2})
torch.func.jvp(lambda value: value.softmax(-1), ({f1},), ({f1}.cos(),))[1]
torch.func.jvp(lambda value: torch.nn.functional.rms_norm(value, value.shape[-1:]), ({f1},), ({f1},))[1]
torch.func.jvp(lambda value: value.t().reshape(-1), ({f2},), ({f2}.sin(),))[1]
torch.func.functional_call(torch.nn.Linear(3, 2), {"weight": torch.ones(2, 3), "bias": torch.ones(2)}, ({f1},))
"""

WRITES = """
{w}[...] += 1
{w1}[1:-1] = 0
{w1}.view(-1)[::2] = 0
{w2}.diagonal()[1:] = 2
{w2}.diagonal().add_(1)
{w2}.unbind(1)[-1].zero_()
{w2}[:, -1:].copy_({w2}[:, :1].clone())
{w1}[{k}] *= 2
{w1}[{k}].zero_()
{w}.add_({a}, alpha=2)
{y}.mul_({f}).add_({f_b})
{y}.addcdiv_({f}, {f_b}.abs() + 1)
{w1}.copy_({w1}.roll(1, 0))
{w1}.index_put_(({i} % 1,), torch.zeros((), dtype={w1}.dtype))
torch.nn.init.zeros_({y})
torch.nn.init.constant_({y}, 0.5)
forms.plus_one_({w})
forms.plus_one_({w1}[0])
forms.halved_([{y}, {y_b}])
for i in range({w1}.shape[0]): {w1}[i] += i
for i, part in enumerate({w1}.chunk(2)): part.mul_(i + 1)
for part in {w1}.split(2): part[0] = 1
parts = list({w1}.unbind(0)); parts[0].add_(1); parts[-1].mul_(2)
view = {w1}[1:]; view += 1; view[:1] *= 2
rows = {w2}.t(); rows[0] = rows[-1].clone()
first, *others = {w2}; first.add_(1)
{w1}[0], {w1}[-1] = 1, 2
{w1}[{w1}.shape[0] // 2 :].fill_(0.5)
{w1}[(slice(None, -1),)] -= 1
{w}.masked_fill_({w} == {w}.max(), 0)
{y}.clamp_min_(0).sqrt_()
torch.add({a}, {a_b}, out={w}).mul_(2)
"""

STATE = """
self.{b}.mul_(0.9).add_({a}.detach().sum(), alpha=0.1)
self.{b}[...] = self.{b} * 2
self.{b}.copy_(self.{b}.flip(0))
self.{b} = self.{b}.clone().add_(1)
self.{b} = self.{b}.detach() * 0.9 + {f}.detach().mean() * 0.1
self.{b}.add_(self.{p}.detach())
self.{b} *= self.{p}
self.{b}.clamp_(max=2)
"""

RANDOM = """
torch.bernoulli(torch.full_like({f}, 0.5)) * {f}
torch.rand({a1}.shape[0], 1) * {f}
torch.randn({a}.shape)
{f} + torch.empty_like({f}).normal_()
torch.randn_like({f}).mul_({f})
torch.nn.functional.dropout({f1}[1:], 0.5)
torch.nn.functional.dropout(torch.nn.functional.dropout({f}, 0.3), 0.3)
torch.randint(0, 4, {a}.shape)
"""

DECISIONS = """
forms.padded_to_even({f1})
forms.added_in_pairs({f1})
forms.accumulated({f1})
forms.viewed_if_possible({f})
{f2} * forms.triangle(int({f2}.shape[-1]))
{f} * len(str({a1}.shape[0]))
{f} + ({a1}.shape[0] & 3)
{f} + ({a1}.shape[0] << 1)
{f} + divmod({a1}.shape[0], 4)[1]
{f} + -{a1}.shape[0] // 4
{f} * (2 ** {a1}.shape[0])
{f} * (1 if {a1}.shape[0] == {a_b}.numel() else 2)
{f} + sum(i * s for i, s in enumerate({a}.shape))
{f} if all(s > 1 for s in {a}.shape) else -{f}
torch.stack([{f1}[i] for i in range(min({f1}.shape[0], 3))]).sum(0)
torch.cat([{a1}[i : i + 2] for i in range(0, {a1}.shape[0], 2)])
torch.stack([{f1}[..., i] * i for i in range({f1}.shape[-1])], -1)
{f} / torch.sym_max({z}, 2)
{f} * ({z} if {z} > 2 else 2)
{f} * 2 if {f}.sum() > 0 else {f} * 3
{f}.sin() if ({f} > 0.5).any() else {f}.cos()
{f}.relu() if {i}.sum() > 2 else -{f}
{f} / max(float({f}.abs().max()), 0.5)
"""

MODULES = """
forms.Tied({D}) | {f1}
forms.OfOneMemory() | {f}
forms.Hooked({D}) | {f1}
forms.Average({D}) | {f1}
forms.Cache({D}) | {f1}
forms.Stack({D}) | {f1} | ["last"]
forms.Stack({D}) | {f1} | ["states"][1]
forms.Frozen({D}) | {f1}
forms.Attention({D}) | {f3}
torch.nn.Sequential(torch.nn.Linear({D}, {D}), torch.nn.ReLU(inplace=True)) | {f1}
torch.nn.Sequential(torch.nn.Conv1d({C}, {C}, 1), torch.nn.BatchNorm1d({C}), torch.nn.ReLU(inplace=True)) | {f3}
torch.nn.GRU({D}, {D}, num_layers=2, batch_first=True) | {f3} | [1]
torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer({D}, 1, 4, 0.0, batch_first=True), 2) | {f3}
torch.nn.Embedding.from_pretrained(torch.eye(4)) | {i}
torch.nn.Linear({D}, 3, dtype=torch.float64) | {f1}.double()
"""

TABLES = {
    "elementwise": ELEMENTWISE,
    "view": VIEWS,
    "gather": GATHERS,
    "reduction": REDUCTIONS,
    "write": WRITES,
    "state": STATE,
    "random": RANDOM,
    "decision": DECISIONS,
    "module": MODULES,
}
