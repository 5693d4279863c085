"""More lines of random programs, by family: what models do with masks, odd dtypes, ``out=``, functions of functions.

The slots are those of :mod:`tests.fuzz_programs.templates`. Besides, ``{g}`` is a tensor that the program made
itself, and ``{h}`` a floating one: export refuses to change the geometry of what a program was given.
"""

from __future__ import annotations

ELEMENTWISE = """
torch.where({k}, {a}, {a_b})
torch.where({a} > 0, 1.0, {f})
torch.where({k}, 1, 0)
torch.where({k}, {r}, {f})
torch.where({f}.isnan(), 0.0, {f})
{f}.clamp({f_b}, {f_c})
torch.clamp({f}, max={f_b})
{f}.clip(0, 1)
{i}.clamp(0, 2)
torch.clamp({i}, max={i_b})
{a}.clamp_min(0)
{i} & 3
{i} | 1
{i} >> 1
{i}.bitwise_not()
torch.gcd({i}, {i_b})
{i} / 3
{i} ** 2
torch.div({a}, 2, rounding_mode="floor")
torch.div({f}, {f_b}.abs() + 1, rounding_mode="trunc")
torch.floor_divide({a}, 2)
torch.true_divide({a}, 2)
{a} // 2
{a} % 3
torch.fmod({f}, 1.5)
{k} ^ {k_b}
{k} | {k_b}
{k} * {a}
{k}.float() * {f}
{a} != {a_b}
torch.isin({i}, torch.tensor([0, 2]))
torch.isclose({f}, {f_b})
{c}.angle()
{c}.imag
{c}.exp()
{c} + {f}
{c} * 2j
{c}.conj() * {c}
torch.complex({f}, {f}).abs()
{f} * 1j
{f} + 0.5j
torch.sigmoid({i})
{f}.pow({i})
2 ** {f}
torch.float_power({f}, 2)
torch.nn.functional.softsign({f})
torch.nn.functional.celu({f})
torch.nn.functional.relu6({f})
torch.nn.functional.tanhshrink({f})
torch.nn.functional.hardshrink({f})
torch.sinc({f})
torch.special.entr({f}.abs())
torch.xlogy({f}.abs(), {f_b}.abs())
torch.logaddexp({f}, {f_b})
torch.ldexp({f}, {i})
torch.sub({a}, {a_b}, alpha=2)
torch.add({f}, {f_b}, alpha=0.5)
{f}.type(torch.float64).sin().to({f}.dtype)
torch.mul({f}, {k})
torch.minimum({i}, {i_b})
torch.signbit({f})
torch.deg2rad({f})
torch.nan_to_num({f} / 0.0, nan=1.0)
"""

VIEWS = """
{a2}[0, None]
{a2}[None, ..., 0]
{a2}[1:][:, :1]
{a2}[:, 1:][1:]
{a2}[..., None, :]
{a2}[-1, 1:]
{a1}[1:][1:]
{a1}[:-1][::2]
{a2}[0][0]
{a2}.unbind(-1)[0].unsqueeze(0)
{c}.mH
torch.view_as_real({c})[..., 0]
{a2}.transpose(-1, -2)[0]
torch.movedim({a2}, (0, 1), (1, 0))
{a2}.unflatten(0, (-1, 1)).squeeze(1)
torch.unsqueeze({a}, 0).expand(3, *([-1] * {a}.dim()))
{a1}.diagonal(0, 0, -1) if {a1}.dim() > 1 else {a1}
{a3}.permute(2, 0, 1)
{a3}.flatten(1).view({a3}.shape[0], -1)
{a3}.transpose(1, 2).reshape({a3}.shape[0], -1)
{a3}[:, 0, :]
{a3}[:, :, -1]
{a2}.tensor_split(3, -1)[1]
torch.narrow_copy({a1}, 0, 0, 1)
{a2}.vsplit([1])[0]
{f1}.view(torch.int32) if {f1}.dtype == torch.float32 else {f1}
"""

GATHERS = """
{a1}[[0, -1]]
{a1}[{a1} > 0]
{f1}[{f1}.isnan()]
{a2}[:, torch.tensor([0, -1])]
{a2}[:, [0, 0]]
{a2}[[0], :]
{a2}[torch.tensor([0]), torch.tensor([-1])]
{a2}[torch.tensor([[0], [0]]), torch.tensor([0, -1])]
{a2}[torch.arange({a2}.shape[0]), 0]
{a2}[torch.tensor([0]), 1:]
{a2}[:, {i}[..., 0] % 1]
{a2}[{k}, 0]
{a1}[{i} % 2]
{a1}[torch.tensor(0)]
{a1}[True]
{a1}[None, torch.tensor([0])]
{a3}[:, [0], [0]]
{a3}[[0], :, [0]]
torch.where({k})[0]
torch.argwhere({k})
torch.take({a1}, torch.tensor([0, -1]))
{a1}.masked_fill({a1} > 0, {r})
{a1}.index_put((torch.tensor([0]),), torch.zeros((), dtype={a1}.dtype))
{f1}.index_put((torch.tensor([0, 0]),), torch.ones(()).to({f1}.dtype), accumulate=True)
torch.stack({a1}.unbind({d}), {d})
torch.stack(tuple({a1}))
torch.cat({a1}.split(1, {d}), {d})
torch.cat({a1}.chunk(2, {d})[::-1], {d})
torch.stack([part + i for i, part in enumerate({a1}.unbind(0))])
torch.cat([{a1}[:1], {a1}, {a1}[-1:]])
torch.cat((torch.zeros_like({f1}[:1]), {f1}.cumsum(0)))
torch.dstack([{a}, {a_b}])
torch.concat([{a1}, {a1_b}], -1)
torch.cat([{f1}, {i1}])
torch.stack([{a}, {a_b}, {a}], 0).transpose(0, -1)
torch.unique({i1}, return_inverse=True)[1]
torch.unique({i1}, return_counts=True)[1]
torch.unique_consecutive({a1})
torch.nn.functional.one_hot({i} % 3, 3).float()
torch.nn.functional.pad({a1}, (1, 0), value={r})
torch.nn.functional.pad({f3}, (1, 1, 0, 1))
torch.tril_indices({z}, 3)
torch.arange(1, {z} + 1).to({f}.dtype)
torch.arange(0, 3, 0.5)
torch.arange({z}, device={a}.device)[:, None] < torch.arange(3)
torch.ones({a2}.shape[0], {a2}.shape[1], dtype=torch.bool).tril()
torch.full_like({a}, 2)
torch.empty_like({a}).fill_(3)
torch.zeros({a}.shape, dtype=torch.int64)
torch.tensor([[1, 2], [3, 4]])[:, :1]
torch.logspace(0, 1, {z})
torch.linspace(-1, 1.3, {z})
torch.repeat_interleave({a1}, torch.tensor([2] * {a1}.shape[0]), 0)
torch.scatter({f1}, {d}, {f1}.argsort({d}), {f1})
torch.scatter_reduce({f1}, 0, torch.zeros_like({f1}, dtype=torch.int64), {f1}, "amax")
torch.diag({a1})
torch.vander({f1}.reshape(-1))
torch.combinations({a1}.reshape(-1))
torch.nn.functional.grid_sample({f2}[None, None], torch.zeros(1, 2, 2, 2, dtype={f2}.dtype), align_corners=False)
torch.nn.functional.fold(torch.ones(1, 4, 4), (3, 3), 2) * {f}.sum()
torch.nn.functional.embedding_bag({i2}, {f2})
torch.nn.functional.upsample({f3}, scale_factor=2, mode="nearest")
"""

REDUCTIONS = """
{k}.sum({d})
{k}.float().mean()
{k}.cumsum({d})
{k}.any({d}, keepdim=True)
{c}.sum()
{c1}.mean({d})
{i}.sum().float()
{i1}.sum({d}, dtype=torch.float32)
{a1}.sum((0, -1)) if {a1}.dim() > 1 else {a1}.sum()
{f2}.mean((0, 1))
{f2}.amin((-2, -1), keepdim=True)
{f1}.std({d}, correction=0)
{f1}.var({d}, unbiased=False, keepdim=True)
{f1}.softmax({d}, dtype=torch.float64)
{a1}.cummin({d})[0]
{a1}.cummax({d})[1]
torch.cumulative_trapezoid({f1})
torch.diff({a1}, prepend={a1}[:1])
({f1} * 0).argsort(dim={d}, stable=True)
{i1}.sort(dim={d}, stable=True)[0]
{i1}.sort(dim={d}, descending=True, stable=True)[1]
{f1}.sort({d}, descending=True)[0]
{f1}.topk(1, {d}, largest=False)[0]
torch.msort({a1})
{i1}.mode({d})[0]
{f1}.nansum({d})
{f1}.nanmean({d})
{f1}.clone(memory_format=torch.contiguous_format).nanmedian({d})[0]
{f1}.argmin({d}, keepdim=True)
torch.einsum("ij,jk->ik", {f2}, {f2_b})
torch.einsum("ij,ij->i", {f2}, {f2_b})
torch.einsum("...ij,...kj->...ik", {f2}, {f2})
torch.einsum("ii->i", {f2})
torch.einsum("i,j->ij", {f1}, {f1_b})
torch.einsum("b...,b...->b", {f1}, {f1})
torch.tensordot({f2}, {f2}.mT, 1)
torch.inner({f1}, {f1})
torch.mv({f2}, {f1})
torch.dot({f1}, {f1_b})
torch.baddbmm({f3}, {f3}, {f3}.mT @ {f3})
torch.linalg.norm({f1})
torch.linalg.matrix_norm({f2})
{f1}.norm(p=1, dim={d}, keepdim=True)
torch.nn.functional.pairwise_distance({f2}, {f2_b})
torch.nn.functional.l1_loss({f}, {f_b}, reduction="none")
torch.nn.functional.kl_div({f1}.log_softmax(-1), {f1}.softmax(-1), reduction="sum")
torch.nn.functional.binary_cross_entropy_with_logits({f}, {f_b}.sigmoid())
torch.nn.functional.cross_entropy({f2}, {f2}.softmax(1), label_smoothing=0.1)
torch.nn.functional.nll_loss({f2}.log_softmax(1), torch.zeros({f2}.shape[0], dtype=torch.int64))
torch.nn.functional.softmin({f1}, {d})
torch.nn.functional.lp_pool1d({f2}, 2, 2)
torch.nn.functional.batch_norm({f2}, None, None, training=True)
torch.nn.functional.instance_norm({f3})
torch.nn.functional.local_response_norm({f3}, 2)
torch.nn.functional.conv1d({f3}, torch.ones(2, {f3}.shape[1], 1, dtype={f3}.dtype))
torch.nn.functional.scaled_dot_product_attention({f3}, {f3}, {f3}, is_causal=True)
torch.nn.functional.max_pool1d({f2}[None], 2, return_indices=True)[1]
torch.fft.fft({f1})
torch.fft.rfft({f1}, dim={d})
torch.fft.ifft(torch.fft.fft({f1})).real
torch.fft.fftshift({f1})
torch.std_mean({f1}, {d})[0]
torch.renorm({f2}, 2, 0, 1.0)
torch.cov({f2})
torch.logdet({f2} @ {f2}.mT + torch.eye({f2}.shape[0], dtype={f2}.dtype))
torch.linalg.det({f2})
torch.linalg.solve(torch.eye({f2}.shape[0], dtype={f2}.dtype) * 2, {f2})
torch.vmap(torch.dot)({f2}, {f2})
torch.func.vmap(lambda row: row.sin() * 2)({f1})
torch.func.vmap(lambda row: row - row.mean(), in_dims=1)({f2})
torch.func.grad(lambda value: (value ** 2).sum())({f})
torch.func.jvp(torch.sin, ({f},), ({f},))[1]
torch.func.vjp(torch.tanh, {f})[0]
"""

WRITES = """
{w2}[1:][:, :1].add_(1)
{w2}[0][1:] = 3
{w2}[:, 0][::2] *= 2
{w2}[1:].t()[0].zero_()
{w2}[::2][1:] += 1
{w1}[1:][1:] = 0
{w1}[:-1][-1:] -= 1
{w2}[1:, 1:].fill_(2)
{w2}[0][0] = 1
{w2}[-1, -1] = 2
{w2}[0, ::2] = {a}
{w2}[torch.tensor([0]), 0] = 1
{w2}[torch.tensor([0]), torch.tensor([-1])] = 2
{w2}[{w2} > 0] *= 2
{w1}[{w1} < 0] = 0
{w2}[:, [0]] = 1
{w2}[{k}, 0] = 1
{w1}[{k}] = {a}
{w1}[{i} % 2] += 1
{w1}[[0, -1]] = 3
{w1}[None, 1:].add_(1)
{w1}[..., None].add_({a})
{w2}.flatten()[1:].mul_(2)
{w1}.view(-1)[1:].sub_(1)
{w3}[:, 0, 1:] = 1
{w3}[0].t().mul_(2)
{w3}.permute(2, 0, 1)[0].add_(1)
for row in {w1}: row.mul_(2)
for row in {w1}.unbind(0): row.add_(1)
torch.clamp({a}, -1, 1, out={w})
torch.where({k}, {a}, {a_b}, out={w})
torch.cumsum({a1}, {d}, out={w1})
torch.amax({a1}, 0, out={w})
torch.matmul({f2}, {f2_b}, out={y2})
torch.stack([{a}, {a}], out={w1})
torch.neg({w1}[0], out={w1}[0])
torch.mul({w1}[:1], 2, out={w1}[:1])
torch.index_select({a1}, 0, torch.arange({a1}.shape[0]), out={w1})
torch.neg({a}, out={w})
{y}.clamp_(min={f})
{y}.clamp_({f}, {f_b})
{y}.nan_to_num_()
{y}.exp_().clamp_(max=2)
{y}.div_(2).add_(1)
{w}.floor_divide_(2)
{w}.remainder_(2)
{w}.eq_({a})
{w}.gt_(0)
{y1}.softmax({d}).add_(1)
{y1}.index_reduce_(0, torch.tensor([0]), {f1}[:1], "amax")
{y1}.scatter_reduce_({d}, torch.zeros_like({y1}, dtype=torch.int64), {f1}, "sum")
{w1}.put_(torch.tensor([0]), torch.ones(1, dtype={w1}.dtype))
{w1}.scatter_({d}, torch.zeros_like({w1}, dtype=torch.int64), {a1})
{w2}.fill_diagonal_(1)
{w2}.triu_().mul_(2)
{g2}.transpose_(0, 1).add_(1)
{g1}.squeeze_(0)
{g1}.unsqueeze_(0).add_(1)
{g2}.t_()
{g1}.swapaxes_(0, -1)
{i}.bitwise_and_(1)
{i} //= 2
{i}[{i} > 1] = 0
{k} |= {k_b}
{k} &= {k_b}
{w} -= {a}
{y} /= 2
{y} **= 2
{y}.mul_({k})
{w}.copy_({k})
{w1}[0] += {w1}[-1].clone()
{w1}[1:] = {w1}[:-1].clone()
{w1}[:] = {w1}.flip(0)
{h}.detach_()
torch._foreach_mul_([{y}, {y_b}], [2.0, 3.0])
torch._foreach_zero_([{y}])
{w1}.swapdims(0, -1).select(0, 0).fill_(1)
{w2}.narrow(0, 0, 1).narrow(1, 0, 1).zero_()
{w2}.chunk(2)[0].t().add_(1)
{w2}.split(1)[0][0].add_(1)
{w2}.unflatten(1, (-1, 1))[0].add_(1)
torch.view_as_real({c})[..., 0].add_(1)
{c}.real.mul_(2)
{c}.imag.zero_()
{c} += {f}
"""

STATE = """
self.{b}[:1] = {a}
self.{b}.zero_()
self.{b}.data.add_(1)
self.{b}.detach_()
self.{b} = torch.where({k}, self.{b}, {a})
self.{b} = self.{b}.roll(1, 0)
self.{b} -= {a}.detach()
self.{b}.mul_(self.{p})
self.{b}.copy_(torch.ones_like(self.{b}) * {z})
self.{p}.data.mul_(0.5)
self.{b}.masked_fill_(self.{b} > 0, 0)
self.{b}.index_add_(0, torch.tensor([0]), self.{b}[:1].clone())
"""

RANDOM = """
torch.nn.functional.dropout({f}.clone(), 0.5, inplace=True)
torch.nn.functional.dropout1d({f2}, 0.5)
torch.nn.functional.feature_alpha_dropout({f2}, 0.5, training=True)
torch.nn.functional.rrelu({f}, training=True)
torch.normal({f}, 1.0)
{f}.clone().bernoulli_(0.5)
{f}.clone().exponential_()
torch.randint_like({f}, 0, 5)
torch.rand({z}, 2) > 0.5
torch.empty_like({f}).uniform_(-1, 1)
torch.nn.functional.gumbel_softmax({f1})
torch.poisson({f}.abs())
"""

DECISIONS = """
{f} * 2 if {k}.shape == {f}.shape else {f}
{f} + 1 if {a}.dtype == torch.float32 else {f}
{f} * (2 if {a}.ndim == 2 else 3)
torch.cat([{a1}[i].reshape(1, *{a1}.shape[1:]) for i in reversed(range({a1}.shape[0]))])
torch.stack([x + y for x, y in zip({f1}, {f1})])
{f} * sum({a}.shape)
{f} * sum(s for s in {a}.shape if s > 1)
{f} * list({a}.shape).count(3)
{f} + [1.0, 2.0, 3.0][min({a}.dim(), 2)]
{f} * {"a": 2, "b": 3}["a"]
{f} + 1 if {a1}.size(0) in (1, 2) else {f} - 1
{f} if {f}.is_leaf else {f} * 2
{f} + 1 if torch.is_tensor({a}) and {a}.is_complex() else {f}
{f} * torch.finfo({f}.dtype).eps
{f} * {a}.shape.numel()
{f} / ({a1}.shape[-1] + 1) ** 0.5
{f}.view(*{f}.size()[:-1], -1) if {f}.dim() > 1 else {f}
{f} + {a}.element_size()
"""

MODULES = """
torch.nn.Dropout1d(0.5) | {f2}
torch.nn.AlphaDropout(0.5) | {f}
torch.nn.Dropout(0.5, inplace=True) | {f}
torch.nn.BatchNorm1d({C}, momentum=None) | {f2}
torch.nn.BatchNorm1d({C}, affine=False) | {f2}
torch.nn.BatchNorm2d({C}) | {f4}
torch.nn.InstanceNorm1d({C}, affine=True, track_running_stats=True) | {f3}
torch.nn.Conv1d({C}, {C}, 2, groups={C}) | {f3}
torch.nn.Conv1d({C}, 2, 3, padding=1, padding_mode="circular") | {f3}
torch.nn.Conv1d({C}, 2, 2, stride=2, dilation=1, bias=False) | {f3}
torch.nn.Conv2d({C}, 2, 3, padding="same") | {f4}
torch.nn.ConvTranspose2d({C}, 2, 2, stride=2) | {f4}
torch.nn.LSTM({D}, 2, num_layers=2, dropout=0.5, batch_first=True) | {f3} | [0]
torch.nn.LSTM({D}, 2, bidirectional=True) | {f3} | [1][0]
torch.nn.GRU({D}, 2) | {f3} | [1]
torch.nn.RNN({D}, 2, nonlinearity="relu") | {f3} | [0]
torch.nn.LSTMCell({D}, 2) | {f2} | [0]
torch.nn.GRUCell({D}, 2) | {f2}
torch.nn.EmbeddingBag(4, 3, mode="max") | {i2}
torch.nn.Embedding(4, 3, padding_idx=0) | {i}
torch.nn.Unfold(2) | {f4}
torch.nn.AdaptiveMaxPool1d(2) | {f2}
torch.nn.LPPool1d(2, 2) | {f2}
torch.nn.MaxPool1d(2, return_indices=True) | {f2} | [1]
torch.nn.Softplus() | {f}
torch.nn.GLU(-1) | {f1}
torch.nn.Threshold(0.1, 20, inplace=True) | {f}
torch.nn.RReLU() | {f}
torch.nn.SiLU(inplace=True) | {f}
torch.nn.LogSoftmax(-1) | {f1}
torch.nn.CosineSimilarity(-1) | {f1}, {f1}
torch.nn.PairwiseDistance() | {f2}, {f2}
torch.nn.CrossEntropyLoss(label_smoothing=0.1) | {f2}, {f2}
torch.nn.SmoothL1Loss() | {f}, {f}
torch.nn.BCEWithLogitsLoss() | {f}, {f}
torch.nn.ReflectionPad1d(1) | {f2}
torch.nn.ConstantPad1d(1, 2.0) | {f2}
torch.nn.ChannelShuffle(1) | {f3}
torch.nn.Unflatten(-1, (-1, 1)) | {f1}
torch.nn.LocalResponseNorm(2) | {f3}
torch.nn.Upsample(scale_factor=1.5, mode="linear") | {f3}
torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear({D}, 2)) | {f1}
torch.nn.utils.parametrizations.spectral_norm(torch.nn.Linear({D}, 2)) | {f1}
torch.nn.Sequential(torch.nn.Linear({D}, 4), torch.nn.Dropout(0.5), torch.nn.BatchNorm1d(4)) | {f2}
torch.nn.ModuleList([torch.nn.Linear({D}, {D}), torch.nn.ReLU()])[0] | {f1}
torch.nn.MultiheadAttention({D}, 1, batch_first=True, dropout=0.5) | {f3}, {f3}, {f3} | [0]
torch.nn.MultiheadAttention({D}, 1) | {f3}, {f3}, {f3} | [1]
torch.nn.TransformerDecoderLayer({D}, 1, 4, dropout=0.0, batch_first=True) | {f3}, {f3}
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
