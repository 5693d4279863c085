"""What a line of a random program can be, by family.

In a template ``{a}`` is any tensor, ``{f}`` a real floating one, ``{i}`` one of int64, ``{k}`` of bool, ``{c}`` a
complex one, ``{w}`` one to write to and ``{y}`` a floating one to write to; a digit says how many dimensions it has
at least, a letter after ``_`` makes it another one (``{a_b}``). ``{d}`` and ``{e}`` are dimensions of the first
tensor, ``{j}`` a small index, ``{q}`` an integer, ``{r}`` a float, ``{z}`` a size such as ``x0.shape[1] // 2``. A
template is tried in eager mode when it is filled in, so it may be one that fits seldom.
"""

from __future__ import annotations

from tests.fuzz_programs import more_templates, operator_templates, user_templates

ELEMENTWISE = """
{a} + {a_b}
{a} * {a_b}
{a} - {r}
{f} * {r}
{a} / 2
{f} / ({f_b}.abs() + 1)
{f}.sin()
{f}.tanh()
{f}.sigmoid()
{f}.exp().clamp(max=10)
{a}.abs()
-{a}
torch.maximum({a}, {a_b})
torch.where({a} > 0, {a}, {a_b})
torch.where({k}, {f}, {r})
{a} > {a_b}
{a} == {a_b}
{f} ** 2
{f}.relu()
torch.nn.functional.gelu({f})
torch.nn.functional.silu({f})
torch.nn.functional.leaky_relu({f}, 0.2)
torch.nn.functional.hardtanh({f})
torch.nn.functional.softplus({f})
torch.logical_and({a} > 0, {k})
~{k}
{k} & {k_b}
{k}.logical_not()
{f}.clamp(-1, 1)
{f}.clamp(min={f_b})
torch.lerp({f}, {f_b}, 0.25)
torch.addcmul({f}, {f_b}, {f_c}, value=0.5)
{i} % 2
{i} // 2
{i}.remainder(2)
torch.complex({f}, {f})
{c}.abs()
{c} * {c_b}
{c}.real
torch.view_as_real({c})
{c}.conj()
{f}.masked_fill({k}, {r})
torch.polar({f}.abs(), {f})
{a} * {a}.shape[{d}]
{f} / {z}
{f} * {z}
torch.erf({f})
torch.hypot({f}, {f_b})
{f}.round()
{f}.floor()
torch.nan_to_num({f})
{f}.frac()
torch.copysign({f}, {f_b})
torch.heaviside({f}, {f_b})
{f}.sign()
torch.rsub({f}, 1)
{f}.log1p().nan_to_num()
{f}.sqrt().nan_to_num()
torch.atan2({f}, {f_b})
{f}.reciprocal().clamp(-4, 4)
{i} ^ 1
{i} << 1
torch.isnan({f})
torch.nn.functional.elu({f})
torch.nn.functional.mish({f})
torch.nn.functional.hardswish({f})
torch.nn.functional.threshold({f}, 0.1, 0.5)
torch.nn.functional.logsigmoid({f})
torch.special.expit({f})
{f}.addcdiv({f_b}, {f_c}.abs() + 1)
"""

CONVERSIONS = """
{a}.float()
{a}.double()
{a}.to(torch.float32)
{a}.to({a}.dtype)
{a}.to({a_b}.dtype)
{a}.type_as({a_b})
{a}.to("cpu")
{a}.cpu()
{a}.long()
{a}.bool()
{a}.half()
{a}.to(torch.bfloat16)
{a}.contiguous()
{a}.clone()
{a}.detach()
{a}.detach().clone()
{a}.to({a_b})
{a}.to(torch.float32, copy=True)
{a}.int()
torch.as_tensor({a})
{a}.type(torch.float32)
{a}.view_as({a_b})
{a}.contiguous(memory_format=torch.channels_last)
{a}.clone(memory_format=torch.contiguous_format)
{a}.positive()
{a}.resolve_conj()
{a}.data
"""

VIEWS = """
{a1}.view(-1)
{a1}.reshape(-1)
{a1}.flatten()
{a2}.flatten({j})
{a2}.flatten(0, 1)
{a}.t()
{a2}.transpose({d}, {e})
{a2}.mT
{a}.T
{a1}[0]
{a1}[-1]
{a1}[1:]
{a1}[:-1]
{a1}[::2]
{a1}[:2]
{a1}[2:]
{a1}[-2:]
{a2}[:, 0]
{a2}[:, 1:]
{a2}[:, ::2]
{a2}[:, -1:]
{a1}[..., 0]
{a1}[..., :1]
{a1}[None]
{a1}[..., None]
{a1}[: {z}]
{a1}[{z} :]
{a2}[:, : {z}]
{a}.unsqueeze({d})
{a}.unsqueeze(-1)
{a}.squeeze()
{a1}.squeeze({d})
{a1}.squeeze(0)
{a}.expand(2, *{a}.shape)
{a}.expand(*{a}.shape)
{a1}.expand(3, *([-1] * {a1}.dim()))
{a}.expand_as({a_b})
{a}.broadcast_to({a_b}.shape)
{a1}.narrow({d}, 0, 1)
{a1}.narrow({d}, 1, {a1}.shape[{d}] - 1)
{a1}.narrow(0, 0, {z})
{a1}.select({d}, {j})
{a1}.select(0, -1)
{a2}.diagonal()
{a2}.diagonal(1)
{a2}.permute(*reversed(range({a2}.dim())))
{a2}.movedim(0, -1)
{a2}.swapaxes(0, 1)
{a1}.unbind({d})[0]
{a1}.unbind({d})[-1]
{a1}.chunk(2, {d})[0]
{a1}.chunk(2, {d})[-1]
{a1}.split(2, {d})[0]
{a1}.split(1, {d})[-1]
{a1}.split({z}, {d})[0]
{a1}.split([1, {a1}.shape[{d}] - 1], {d})[1]
{a1}.tensor_split(2, {d})[0]
{a1}.tensor_split((1,), {d})[1]
{a1}.unfold({d}, 2, 1)
{a1}.view({a1}.shape)
{a1}.view(1, *{a1}.shape)
{a1}.view({a1}.shape[0], -1)
{a1}.reshape({a1}.shape[0], -1)
{a1}.reshape(-1, {a1}.shape[-1])
{a2}.reshape({a2}.shape[1], {a2}.shape[0], *{a2}.shape[2:])
{a2}.view(-1, *{a2}.shape[2:])
{a}.reshape({a_b}.shape)
{a1}.unflatten({d}, (-1, 1))
{a1}.unflatten({d}, (2, -1))
{a1}.unflatten({d}, (1, {a1}.shape[{d}]))
torch.atleast_2d({a})
{a1}.as_strided((1,), (1,))
{a2}.view_as({a2})
{f}.sign().view(torch.int32)
{a}.ravel()
torch.broadcast_tensors({a}, {a_b})[0]
torch.swapdims({a2}, 0, -1)
{a2}.adjoint()
torch.squeeze({a1}, ({d},))
{a2}.flatten(-2)
{a2}.flatten(-2, -1).unflatten(-1, ({a2}.shape[-2], {a2}.shape[-1]))
{a2}.transpose(0, 1).reshape(-1)
{a2}.transpose(0, 1).contiguous()
{a2}[0][None]
{a2}[1:, :-1]
{a2}[:-1].reshape(-1, {a2}.shape[-1])
{a2}[:, :-1].reshape(-1)
{a2}.unsqueeze(1).expand(-1, 2, *([-1] * ({a2}.dim() - 1)))
{a2}.hsplit(2)[1]
{a1}.repeat_interleave(2, {d})[..., :1]
"""

GATHERS = """
torch.cat([{a}, {a_b}])
torch.cat([{a1}, {a1}], {d})
torch.cat([{a2}, {a2_b}], 1)
torch.stack([{a}, {a_b}])
torch.stack([{a}, {a}], -1)
torch.hstack([{a1}, {a1_b}])
{a1}.repeat(2, *([1] * ({a1}.dim() - 1)))
{a1}.tile((2,))
{a1}.roll(1, {d})
{a1}.flip({d})
{a2}.rot90()
{a1}.index_select({d}, torch.tensor([0, 0]))
{a1}[torch.tensor([0, -1])]
{a1}[{i}]
{a1}[{k}]
{a2}[:, {i}]
{a1}.gather({d}, torch.zeros_like({a1}, dtype=torch.int64))
torch.take_along_dim({a1}, {a1}.argsort({d}), {d})
{a1}.masked_select({k})
{k}.nonzero()
{a1}.repeat_interleave(2, {d})
torch.nn.functional.pad({f1}, (1, 1))
torch.nn.functional.pad({a1}, (0, 2), value=1)
torch.nn.functional.pad({f2}, (-1, 1))
torch.nn.functional.pad({f2}, (1, 1), mode="reflect")
torch.nn.functional.pad({f2}, (1, 0), mode="replicate")
torch.nn.functional.pad({f2}, (1, 1), mode="circular")
torch.nn.functional.one_hot({i}, 4)
torch.nn.functional.embedding({i}, {f2})
{a1}.scatter({d}, torch.zeros_like({a1}, dtype=torch.int64), {r})
{f1}.scatter_add({d}, torch.zeros_like({f1}, dtype=torch.int64), {f1})
{f1}.index_add({d}, torch.zeros({f1}.shape[{d}], dtype=torch.int64), {f1})
{f1}.index_fill({d}, torch.tensor([0]), {r})
{f1}.index_copy({d}, torch.tensor([0]), {f1}.narrow({d}, 0, 1))
{a2}.triu()
{a2}.tril(-1)
torch.diag_embed({a1})
torch.arange({z})
torch.arange({z}) * 2 + 1
torch.arange({a1}.shape[0], dtype=torch.float32)
torch.zeros({z}, 2)
torch.full(({z},), {r})
torch.ones_like({a})
torch.zeros_like({a})
{a}.new_zeros({a}.shape)
{a1}.new_ones({a1}.shape[0], 2)
{a}.new_full((2,), 3)
torch.linspace(0, 1, 4)
torch.eye(3)
torch.tensor([1.0, 2.0])
torch.tensor({r})
torch.meshgrid({a1}.reshape(-1), {a1_b}.reshape(-1), indexing="ij")[0]
torch.searchsorted(torch.tensor([0.0, 1.0]), {f})
torch.bucketize({f}, torch.tensor([0.0, 1.0]))
torch.cartesian_prod({a1}.reshape(-1), {a1_b}.reshape(-1))
torch.block_diag({a}, {a_b})
{f1}.put(torch.tensor([0]), {f1}.reshape(-1)[:1])
torch.tril(torch.ones({z}, {z}))
{f1}.select_scatter({f1_b}, 0, 0)
{f1}.slice_scatter({f1}[1:] * 2, 0, 1)
torch.nn.functional.pixel_shuffle({f2}, 1)
torch.nn.functional.interpolate({f2}[None], scale_factor=2)
torch.nn.functional.interpolate({f2}[None], size=3, mode="linear")
torch.nn.functional.unfold({f2}[None, None], 2)
torch.constant_pad_nd({a1}, (1, 0), 2)
"""

REDUCTIONS = """
{a}.sum()
{a1}.sum({d})
{a1}.sum({d}, keepdim=True)
{f1}.mean({d})
{f}.mean()
{f1}.mean(-1, keepdim=True)
{a1}.amax({d})
{a1}.max({d})[0]
{a1}.max({d})[1]
{a}.max()
{a}.min()
{f1}.var({d})
{f}.std()
{a1}.prod({d})
{a1}.any({d})
{a1}.all()
{a1}.argmax({d})
{a1}.argmin()
{a1}.cumsum({d})
{f1}.cumprod({d})
{f1}.logsumexp({d})
{f1}.softmax({d})
{f1}.log_softmax({d})
{f1}.norm(dim={d})
{f1}.norm()
torch.linalg.vector_norm({f1}, dim={d})
{a1}.sort({d})[0]
{a1}.sort(dim={d}, stable=True)[1]
{f1}.topk(1, {d})[0]
{f1}.clone(memory_format=torch.contiguous_format).median({d})[0]
{a1}.count_nonzero({d})
torch.nn.functional.normalize({f1}, dim={d})
torch.nn.functional.layer_norm({f1}, {f1}.shape[-1:])
torch.nn.functional.rms_norm({f1}, {f1}.shape[-1:])
torch.nn.functional.mse_loss({f}, {f_b})
torch.nn.functional.cosine_similarity({f1}, {f1_b}, dim={d})
{f2} @ {f2}.mT
{f2} @ {f2_b}
{f1} @ {f1_b}
torch.einsum("...i,...i->...", {f1}, {f1_b})
torch.einsum("...ij->...ji", {f2})
torch.outer({f1}.reshape(-1), {f1_b}.reshape(-1))
torch.cdist({f2}, {f2_b})
torch.bmm({f2}[None], {f2}[None].mT)
torch.addmm({f1}, {f2}, {f2_b})
torch.nn.functional.linear({f1}, {f2})
torch.matmul({f2}, {f1})
{a1}.diff(dim={d})
torch.var_mean({f1}, {d})[1]
torch.aminmax({f1}, dim={d})[0]
torch.cummax({f1}, {d})[0]
torch.unique({a1})
torch.nn.functional.scaled_dot_product_attention({f2}[None], {f2}[None], {f2}[None])
torch.nn.functional.max_pool1d({f2}[None], 2)
torch.nn.functional.avg_pool1d({f2}[None], 2, stride=1)
torch.nn.functional.adaptive_avg_pool1d({f2}, 2)
torch.nn.functional.adaptive_max_pool1d({f2}, 1)
torch.nn.functional.cross_entropy({f2}, torch.zeros({f2}.shape[0], dtype=torch.int64))
torch.nn.functional.glu({f1}, {d})
torch.trapezoid({f1})
torch.kron({f2}, {f2_b})
torch.nn.functional.huber_loss({f}, {f_b})
torch.nn.functional.smooth_l1_loss({f}, {f_b})
torch.nn.functional.group_norm({f2}, 1)
torch.nn.functional.max_pool2d({f2}[None], 2, ceil_mode=True)
torch.nn.functional.avg_pool2d({f2}[None], 2, padding=1)
torch.histc({f}, 4, -2, 2)
torch.bincount({i}.reshape(-1))
{f1}.logcumsumexp({d})
{f1}.kthvalue(1, {d})[0]
{f1}.quantile(0.5, {d})
"""

WRITES = """
{w}.add_({r})
{w} += {a}
{w} *= 2
{w}.mul_({a})
{w}.copy_({a})
{w}.zero_()
{w}.fill_(1)
{y}.sin_()
{y}.tanh_()
{w}.neg_()
{y}.clamp_(-1, 1)
{y}.relu_()
{w1}[0] = {a}
{w1}[0] = 1
{w1}[-1] = 0
{w1}[1:] = {a}
{w1}[1:] = 0
{w1}[2:] = 1
{w1}[4:] = 0
{w1}[:2] = 1
{w1}[:2] += 1
{w1}[::2] *= 2
{w1}[-1:] += 1
{w1}[: {z}] = 1
{w1}[{z} :] = 0
{w2}[:, 0] = {a}
{w2}[:, 1:] += 1
{w2}[:, :1] = 2
{w1}[..., 0] = 3
{w1}[{k}] = 0
{w1}[{k}] += 1
{w1}[{w1} > 0] = 1
{w1}[torch.tensor([0])] = 2
{w1}[{i}] = 1
{w1}.select({d}, 0).add_(1)
{w1}.select(0, 0).copy_({a})
{w1}.narrow({d}, 0, 1).zero_()
{w1}.unbind({d})[0].mul_(3)
{w1}.chunk(2, {d})[0].add_(1)
{w1}.chunk(2, {d})[-1].mul_(2)
{w1}.split(2, {d})[0].add_(1)
{w1}.split({z}, {d})[0].zero_()
{w1}.split([1, {w1}.shape[{d}] - 1], {d})[1].add_(1)
{w2}.t().add_({a})
{w2}.transpose(0, 1)[0].mul_(2)
{w2}.diagonal().fill_(0)
{w1}.view(-1)[0] = 5
{w1}.view(-1).add_(1)
{w1}.reshape(-1).add_(1)
{w1}.flatten()[0] = 2
{w1}.contiguous().add_(1)
{w1}.squeeze().add_(1)
{w1}.squeeze({d}).mul_(2)
{w}.unsqueeze(0).add_(1)
{w}[None][0] = 0
{w}.expand(*{w}.shape).add_(1)
{w}.detach().add_(1)
{w}.data.mul_(2)
{y}.masked_fill_({k}, 0.5)
{y}.masked_fill_({y} > 0, 0.5)
{y1}.index_add_(0, torch.tensor([0]), {f1}[:1])
{w1}.index_fill_({d}, torch.tensor([0]), 1)
{w1}.index_copy_(0, torch.tensor([0]), {a1}[:1])
{w1}.scatter_({d}, torch.zeros_like({w1}, dtype=torch.int64), 1)
{y1}.scatter_add_({d}, torch.zeros_like({y1}, dtype=torch.int64), {f1})
{y}.addcmul_({f}, {f_b})
{y}.lerp_({f}, 0.5)
{y}.sub_({f}.detach())
torch.add({a}, 1, out={w})
torch.mul({a}, {a_b}, out={w})
torch.sin({f}, out={y})
torch.cat([{a1}[:1], {a1}[1:]], out={w1})
torch.sum({a1}, 0, out={w})
{w1}.cumsum_({d})
{w1}.copy_({w1}.flip(0))
({w} * 1).to({w}.dtype).add_(1)
{w1}.index_put_((torch.tensor([0]),), torch.tensor(1, dtype={w1}.dtype))
{w1}.index_put_((torch.tensor([0, 0]),), torch.ones((), dtype={w1}.dtype), accumulate=True)
{w2}.tril_()
{w1}.unfold(0, 1, 1).add_(1)
{w1}.as_strided((1,), (1,)).add_(1)
{k}.logical_not_()
{k}.logical_and_({k_b})
{k}.zero_()
{i}.add_(1)
torch.nn.functional.relu({y}, inplace=True)
{w1}[0], {w1}[-1] = {w1}[-1].clone(), {w1}[0].clone()
torch._foreach_add_([{y}, {y_b}], 1.0)
{w2}[0].add_({w2}[-1])
{w1}[...] = {a}
{w}.copy_({a}.sum())
{w1}[: {w1}.shape[0] // 2] = 7
{w1}[{w1}.shape[0] // 2 :] += 1
{w1}.movedim(0, -1).add_(1)
{w1}.masked_scatter_({k}.clone(), {a}.clone())
{w}.unsqueeze(-1).squeeze(-1).add_(1)
{w2}.flatten(0, 1)[0] = 4
{w2}.reshape(-1)[:1] = 4
"""

# Writes below no_grad to what may require a gradient, and the state of the model.
STATE = """
self.{p}.add_(0.5)
self.{p}.mul_(0.9)
self.{b}.add_({a}.sum())
self.{b}.copy_({a})
self.{b}.mul_(0.5)
self.{b}.fill_({z})
self.{b}[0] = 1
self.{b} += 1
self.{b} = self.{b} + 1
self.{b} = self.{b} * 0.5 + {a}.detach().sum()
self.{b} = {a}.detach().clone()
self.{b}.lerp_({f}.detach().mean(), 0.1)
"""

RANDOM = """
torch.rand_like({f})
torch.randn({a1}.shape[0])
torch.nn.functional.dropout({f}, 0.5)
{f} + torch.randn_like({f})
torch.bernoulli({f}.sigmoid())
torch.randint(0, 3, ({z},))
torch.randperm({z})
{f}.clone().uniform_()
{f}.clone().normal_()
torch.nn.functional.alpha_dropout({f}, 0.5, training=True)
torch.multinomial({f1}.softmax(-1), 1)
"""

EFFECTS = """
torch._check({a1}.shape[0] >= 0)
torch._check({a1}.shape[{d}] > 0)
torch._check({z} >= 0, lambda: "told")
torch._check({i}.max().item() < 100)
torch._check({a}.sum().item() < 1e9)
torch._assert({a1}.shape[0] < 1000, "large")
assert {a1}.shape[0] < 1000
torch.ops.fuzz_programs.log({a}, "line")
torch.ops.fuzz_programs.log({a}.detach(), "line")
torch.ops.fuzz_programs.count_({y})
"""

# What is decided in Python about sizes, layouts and flags: right, checked at a call, or refused.
DECISIONS = """
{f}.sin() if {a1}.shape[0] > 2 else {f}.cos()
{f} * 2 if {a1}.shape[{d}] == 1 else {f} + 1
{f} * ({a1}.shape[0] % 2)
{f} * (1 if {z} > 3 else 3)
sum(row.sum() for row in {a1})
torch.stack([row * 2 for row in {a1}.unbind(0)])
torch.cat([{a1}[i : i + 1] for i in range({a1}.shape[0])])
{f} * len({a1})
{f} * max({z}, 2)
{f} * min({a1}.shape[0], {z})
{f} * int({a1}.shape[0] ** 0.5)
{f} * ({z} or 5)
{f} * bool({z})
{f} + ({a}.numel() > 6)
{f} * {a}.numel()
{f} + 1 if {a}.numel() == 0 else {f}
{f} + {a}.dim()
{f} + 1 if {a}.is_contiguous() else {f} - 1
{f} * {a1}.stride(0)
{f} + 1 if {f}.requires_grad else {f} - 1
{f} + 1 if torch.is_grad_enabled() else {f} - 1
{f} + 1 if {a}.is_floating_point() else {f} - 1
{f} + {a}.storage_offset()
{f} + float({z})
{f} * int(f"{{z}}")
"""

MODULES = """
torch.nn.Linear({D}, 3) | {f1}
torch.nn.Linear({D}, 2, bias=False) | {f1}
torch.nn.LayerNorm({D}) | {f1}
torch.nn.RMSNorm({D}) | {f1}
torch.nn.BatchNorm1d({C}) | {f2}
torch.nn.BatchNorm1d({C}, track_running_stats=False) | {f2}
torch.nn.InstanceNorm1d({C}) | {f3}
torch.nn.GroupNorm(1, {C}) | {f2}
torch.nn.Conv1d({C}, 2, 2) | {f3}
torch.nn.Conv1d({C}, 2, 3, padding=1) | {f3}
torch.nn.Conv2d({C}, 2, 2) | {f4}
torch.nn.ConvTranspose1d({C}, 2, 2) | {f3}
torch.nn.MaxPool1d(2) | {f2}
torch.nn.AvgPool1d(2) | {f2}
torch.nn.MaxPool2d(2, ceil_mode=True) | {f3}
torch.nn.AdaptiveAvgPool1d(1) | {f2}
torch.nn.AdaptiveAvgPool1d(2) | {f2}
torch.nn.Dropout(0.5) | {f}
torch.nn.ReLU(inplace=True) | {f}
torch.nn.Flatten() | {a1}
torch.nn.Softmax(-1) | {f1}
torch.nn.PReLU() | {f}
torch.nn.GRU({D}, 2, batch_first=True) | {f3} | [0]
torch.nn.LSTM({D}, 2) | {f3} | [0]
torch.nn.Embedding(4, 3) | {i}
torch.nn.Sequential(torch.nn.Linear({D}, 4), torch.nn.GELU(), torch.nn.Linear(4, {D})) | {f1}
torch.nn.Bilinear({D}, {D}, 2) | {f1}, {f1}
torch.nn.Upsample(scale_factor=2) | {f3}
torch.nn.ZeroPad1d(1) | {f2}
torch.nn.MultiheadAttention({D}, 1, batch_first=True) | {f3}, {f3}, {f3} | [0]
torch.nn.TransformerEncoderLayer({D}, 1, 4, dropout=0.0, batch_first=True) | {f3}
"""


def lines(table: str) -> list[str]:
    """The templates of a table."""
    return [line.strip() for line in table.split("\n") if line.strip()]


_TABLES = {
    "elementwise": ELEMENTWISE,
    "conversion": CONVERSIONS,
    "view": VIEWS,
    "gather": GATHERS,
    "reduction": REDUCTIONS,
    "write": WRITES,
    "state": STATE,
    "random": RANDOM,
    "effect": EFFECTS,
    "decision": DECISIONS,
    "module": MODULES,
}

_MORE = (more_templates.TABLES, user_templates.TABLES, operator_templates.TABLES)
FAMILIES = {
    family: [line for each in (table, *(more.get(family, "") for more in _MORE)) for line in lines(each)]
    for family, table in _TABLES.items()
}
FAMILIES["state in place"] = [line for line in FAMILIES["state"] if not line.startswith("self.{b} = ")]

# Capture has to decide about sizes in these, by what they are.
NARROWING = (
    " if ", " for ", "assert ", "chunk(", "unbind(", "split(", "range(", "max({z}", "min({a1}", "or 5", "bool({z}",
    "torch._check(", "stride(", "storage_offset(", "int(", ".numel() >", "hsplit(", "len(", "trapezoid(",
    "for row", "vsplit(", "sum({a}.shape)", "in (1, 2)", ".count(3)", "zip(", "stack(tuple(", "torch.diff(",
    "] * {a1}.shape", "forms.padded_to_even(", "forms.added_in_pairs(", "forms.accumulated(",
    "forms.triangle(", ".shape[0] & 3", ".shape[0] << 1", "divmod(", "(2 ** ", "{w1}.unbind(0)); ", "*others",
    "% 3 + 1", "forms.Unrolled(",
)  # fmt: skip


def narrows(template: str) -> bool:
    """Whether a template makes capture decide about sizes that vary."""
    return any(part in template for part in NARROWING)
