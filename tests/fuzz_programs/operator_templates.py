"""Lines of random programs for operators that the other tables lack, by family.

Whole numbers that overflow, tensors without elements, complex numbers and their views, tensors without dimensions
among others of another dtype, ``out=``, padding and resizing in every mode, bags of embeddings, cells of recurrent
layers, functions with gradients of their own, weights that a call is given. The slots are those of
:mod:`tests.fuzz_programs.templates`.
"""

from __future__ import annotations

ELEMENTWISE = """
{i}.to(torch.int8) + 100
{i}.to(torch.uint8) - 3
{i}.to(torch.int32) * 1000000007
{i} * 2**40 * 2**30
-{i}.to(torch.uint8)
{i}.to(torch.int16) << 14
~{i}.to(torch.uint8)
{i}.int() // -2
{i}.to(torch.int8).abs().neg()
torch.bitwise_left_shift({i}, 62)
torch.bitwise_right_shift({i}.to(torch.int8), 1)
{i}.to(torch.int32).square()
({f} * 100).clamp(-100, 100).to(torch.int8) * 2
{i} * {i} - {i}
2 ** {i}.clamp(0, 5)
{i}.float().to(torch.int32)
torch.lcm({i}, {i_b})
torch.div({i}, 3, rounding_mode="trunc")
torch.div({i}, -2, rounding_mode="floor")
{i}.sum() + {f}
{i} * {f}.mean()
{i} + torch.tensor(1.5)
{k} * torch.tensor(2)
{k} + {k_b}
{i}.to(torch.int8) * torch.tensor(300)
{f}.half() * {f}.double().sum()
{f}.to(torch.bfloat16) + torch.tensor(1.0, dtype=torch.float64)
{f}.half() + 1e-5
{i}.to(torch.int8) * 2.5
{i} / {i}.sum()
torch.where({k}, {i}, 1.5)
torch.where({k}, 1, {f})
torch.where({k}, {i}, {f})
torch.where({k}, torch.tensor(1), torch.tensor(2.0))
torch.where({k}, {f}, torch.tensor(float("nan")))
torch.where({f} > 0, 1j, {f})
torch.add({i}, 1.5)
torch.maximum({i}, torch.tensor(0.5))
{c} + 1
{c} * {f}
{c}.conj() + {c}
{c}.conj().imag
{c}.conj().real
torch.view_as_real({c}.conj().resolve_conj())
{c}.sgn()
{c} ** 2
{c}.to(torch.complex128) / 2
torch.real({c} * 1j)
{c}.reciprocal().abs().clamp(max=4)
{c}.tanh().abs().clamp(max=4)
({c} == {c_b})
{c}.conj_physical()
torch.polar({f}.abs(), {f}).conj()
{c}.imag.abs()
{c}.isfinite()
torch.frexp({f})[0]
torch.nextafter({f}, {f_b})
torch.special.erfcx({f}.abs())
torch.special.ndtr({f})
torch.special.i0e({f})
torch.special.log_ndtr({f})
torch.erfinv({f}.tanh() * 0.9)
torch.lgamma({f}.abs() + 1)
torch.digamma({f}.abs() + 1)
torch.asinh({f})
torch.atanh({f}.tanh() * 0.5)
torch.cosh({f}.clamp(-3, 3))
torch.expm1({f}.clamp(max=2))
torch.log2({f}.abs() + 1)
{f}.rsqrt().nan_to_num(0, 2, 2)
{f}.trunc()
{f}.round(decimals=1)
{f}.ceil()
torch.nn.functional.hardsigmoid({f})
torch.nn.functional.selu({f})
torch.nn.functional.prelu({f}, torch.tensor(0.25, dtype={f}.dtype))
torch.nn.functional.gelu({f}, approximate="tanh")
torch.nn.functional.softshrink({f}, 0.3)
torch.bucketize({f}, torch.tensor([0.0, 0.5, 1.0]), right=True)
torch.bucketize({i}, torch.tensor([0, 2]), out_int32=True)
{f}.addcmul({f_b}, {f_c}, value=-0.5)
{f}.lerp({f_b}, {f_c}.sigmoid())
{f}.dist({f_b})
torch.equal({f}, {f}) * {f}
forms.Scaled.apply({f}, 2.0)
forms.Joined.apply({f}, {f_b})
forms.Overwritten.apply({f} * 1)
forms.Unused.apply({f}, {f_b})[0]
torch.clone({f}).copy_({i})
"""

VIEWS = """
{f1}[:0]
{f1}[1:1]
{a2}[:, :0]
{f1}[:0].reshape(-1)
{a1}[:0].unsqueeze(1)
{a2}[:0].t()
{a1}.flatten()[:0].view(0, 1)
{c}.conj()
{c}.conj().imag[..., None]
{c}.conj().t()
{c}.mH[..., 0]
{c}.real.reshape(-1)
torch.view_as_real({c}).flatten()
{c}.conj().reshape(-1)
{c}.imag.unsqueeze(0)
torch.view_as_complex({f1}.reshape(-1)[: {f1}.numel() // 2 * 2].view(-1, 2))
{a1}.unfold(0, 2, 1)[..., 0]
{a2}.unfold(1, 2, 1).select(-1, 1)
{a2}.diagonal(-1)
{a3}.diagonal(0, 1, 2)
{a2}.diagonal().unsqueeze(0)
{a2}.chunk(2, 1)[1].t()
{a2}.split([1, {a2}.shape[1] - 1], 1)[1].flatten()
torch.select({a2}, 1, -1)[None]
{a1}.expand(2, *{a1}.shape).reshape(-1, *{a1}.shape[1:])
{a1}.expand(2, *{a1}.shape)[:, 0]
{a1}.view_as({a1}).narrow(0, 0, 1)
{a1}.tensor_split(3)[1]
torch.tensor_split({a1}, (1, 2))[1]
{a3}.flatten(0, 1).unflatten(0, ({a3}.shape[0], {a3}.shape[1]))
{a3}.unbind(1)[0].t()
{a2}.rot90().t()
torch.dsplit({a3}, [1])[0]
{a3}.permute(1, 2, 0).unsqueeze(0).squeeze(0)
torch.atleast_3d({a})
torch.swapaxes({a2}, 0, 1)[:1]
{a2}.mT[..., :1]
"""

GATHERS = """
torch.empty(0, 3)
torch.cat([{a1}[:0], {a1}])
torch.cat([{a1}[:0], {a1}[:0]])
torch.stack([{f1}[:0], {f1}[:0]])
torch.zeros(0, {z})
torch.arange(0)
torch.nn.functional.pad({f1}[..., :0], (1, 0))
{a1}[:0].repeat(2, *([1] * ({a1}.dim() - 1)))
{a1}.repeat(0, *([1] * ({a1}.dim() - 1)))
{a1}[torch.empty(0, dtype=torch.int64)]
torch.cat([{i1}, {k1}])
torch.cat([{c1}, {c1}.real])
torch.stack([{f}, {i}])
torch.unique({i1}, dim=0)
torch.unique({i1}.reshape(-1), return_inverse=True, return_counts=True)[2]
torch.unique({a1}, sorted=True).shape[0] * {f}
{k}.nonzero(as_tuple=True)[0]
{k}.nonzero().shape[0] + {f}
{a1}[{a1} != 0].sum()
{f1}.reshape(-1)[{f1}.reshape(-1).nonzero()[:, 0]]
torch.count_nonzero({k}) * {f}
torch.unique_consecutive({i1}.reshape(-1), return_counts=True)[1]
{f1}.scatter_reduce(0, torch.zeros_like({f1}, dtype=torch.int64), {f1}, "amin", include_self=False)
{f1}.scatter_reduce(0, torch.zeros_like({f1}, dtype=torch.int64), {f1}, "mean", include_self=False)
{i1}.scatter_reduce(0, torch.zeros_like({i1}), {i1}, "prod")
{f1}.scatter({d}, torch.zeros_like({f1}, dtype=torch.int64), 2, reduce="multiply")
{f1}.index_reduce(0, torch.tensor([0, 0]), torch.cat([{f1}[:1], {f1}[:1]]), "mean")
{f2}.index_put(({i}.reshape(-1) % 1, torch.tensor(0)), torch.tensor(1.0, dtype={f2}.dtype), accumulate=True)
{f2}.index_put((torch.zeros_like({i}.reshape(-1)),), torch.ones((), dtype={f2}.dtype), accumulate=True)
{f1}.index_add(0, {i}.reshape(-1) % 1, {f1}[:1].expand({i}.numel(), *{f1}.shape[1:]), alpha=2)
torch.zeros(3, 2).index_copy(0, torch.tensor([2, 0]), torch.ones(2, 2)) * {f}.sum()
{f1}.masked_scatter({f1} > 0, {f1}.reshape(-1).flip(0))
{a2}.take_along_dim({a2}.argsort(dim=1, stable=True), 1)
torch.searchsorted({f1}.sort(-1)[0].contiguous(), {f1}.contiguous())
torch.searchsorted(torch.tensor([0.0, 1.0]), {f}, side="right")
torch.bincount({i}.reshape(-1) % 4, minlength=4)
torch.bincount({i}.reshape(-1) % 4, weights={i}.reshape(-1).double())
torch.nn.functional.pad({f3}, (1, 1, 1, 1), mode="reflect")
torch.nn.functional.pad({f3}, (1, 0, 2, 1), mode="replicate")
torch.nn.functional.pad({f3}, (1, 1, 0, 1), mode="circular")
torch.nn.functional.pad({f4}, (1, 0, 0, 1, 1, 0), mode="replicate")
torch.nn.functional.pad({f3}, (-1, 2, 0, -1), value=0.5)
torch.nn.functional.pad({i1}, (1, 2), value=7)
torch.nn.functional.pad({k1}, (0, 1), value=True)
torch.nn.functional.pad({c1}, (1, 1))
torch.nn.functional.interpolate({f2}[None, None], scale_factor=2, mode="bilinear")
torch.nn.functional.interpolate({f2}[None, None], size=(3, 5), mode="bilinear", align_corners=True)
torch.nn.functional.interpolate({f2}[None, None], scale_factor=1.5, mode="bicubic")
torch.nn.functional.interpolate({f2}[None, None], size=(2, 2), mode="area")
torch.nn.functional.interpolate({f2}[None, None], scale_factor=(2.0, 1.0), mode="nearest-exact")
torch.nn.functional.interpolate({f2}[None, None], scale_factor=0.5, mode="bilinear", antialias=True)
torch.nn.functional.interpolate({f3}[None, None], scale_factor=2, mode="trilinear")
torch.nn.functional.interpolate({f2}[None], size={z}, mode="nearest")
torch.nn.functional.interpolate({f3}, scale_factor=2.5, recompute_scale_factor=True)
forms.sampled({f2}, 0.7, mode="nearest", align_corners=True)
forms.sampled({f2}, 1.5, padding_mode="border", align_corners=False)
forms.sampled({f2}, 0.3, padding_mode="reflection", align_corners=False)
forms.sampled({f2}, 0.3, mode="bicubic", align_corners=False)
torch.nn.functional.affine_grid(torch.eye(2, 3)[None] * {f}.mean(), (1, 1, 2, 3), align_corners=False)
forms.bag({i}.reshape(-1), {f2}, torch.tensor([0]), mode="sum")
forms.bag({i2}, {f2}, mode="max")
forms.bag({i2}, {f2}, mode="sum", per_sample_weights=torch.full({i2}.shape, 0.5))
forms.bag({i1}.reshape(-1), {f2}, torch.tensor([0, {i1}.numel()]), include_last_offset=True)
forms.bag({i2}, {f2}, padding_idx=0)
torch.nn.functional.embedding({i} % 2, {f2}[:2], padding_idx=0)
torch.nn.functional.one_hot({i} % 3).sum()
torch.nn.functional.unfold({f2}[None, None], 2, padding=1, stride=2)
torch.nn.functional.pixel_unshuffle({f2}[None].expand(1, *{f2}.shape), 1)
torch.unravel_index({i}.reshape(-1) % 6, (2, 3))[1]
torch.triu_indices(3, {z})
torch.cartesian_prod(torch.arange(2), {i}.reshape(-1))
torch.meshgrid(torch.arange({z}), torch.arange(2), indexing="xy")[0]
torch.column_stack([{a1}, {a1}])
torch.fliplr({a2})
torch.diagflat({a1})
torch.diagonal_scatter({f2}, torch.zeros_like({f2}.diagonal()))
torch.diag_embed({f1}, 1)
torch.tensor([1, 2**40]) * {i}.sum()
torch.tensor([True, False])[None].expand(2, 2)
torch.tensor([1.5, 2]).to({f}.dtype) * {f}.sum()
torch.scalar_tensor(2.5) * {i}
torch.full_like({i}, 2.7)
torch.full((2,), True)
torch.full((), {z})
{f}.new_empty(2, 0)
"""

REDUCTIONS = """
{f1}[:0].sum()
{f1}[:0].mean()
{f1}[:0].prod(0)
{f1}[:0].any()
{f1}[:0].all(0)
{f1}[:0].cumsum(0)
{f1}[1:1].softmax(-1)
{f1}[:0].norm()
{f1}[:0].var()
{f1}[:0].logsumexp(0)
{f1}[:0].sort(0)[0]
{f2}[:, :0] @ {f2}[:, :0].mT
{f2}[:0] @ {f2}.mT
torch.nn.functional.layer_norm({f1}[..., :0], (0,)).sum()
torch.nn.functional.linear({f1}[:0], torch.ones(2, {f1}.shape[-1], dtype={f1}.dtype))
{i}.to(torch.int8).sum()
{i1}.to(torch.int8).cumsum({d})
{i1}.to(torch.int32).prod({d})
{i1}.to(torch.uint8).max()
{i1}.sum({d}, dtype=torch.int8)
{i}.to(torch.int8).float().mean()
{k1}.cumsum({d}, dtype=torch.float32)
{k1}.prod({d})
{f1}.cumsum({d}, dtype=torch.float64)
{f1}.cumsum({d}).flip({d})
{f1}.flip({d}).cumsum({d}).flip({d})
{c1}.cumsum({d})
{c1}.prod({d})
{i1}.cumprod({d})
{f1}.cummax({d})[0] - {f1}.cummin({d})[0]
{f1}.logcumsumexp({d}).exp()
{c1}.abs().softmax({d})
({c1} * {c1}.conj()).sum({d}).real
torch.vdot({c1}.reshape(-1), {c1}.reshape(-1))
torch.fft.irfft(torch.fft.rfft({f1}), n={f1}.shape[-1])
torch.fft.fft2({f2}).abs()
torch.fft.hfft({c1})
torch.fft.fftn({f2}, norm="ortho").real
torch.fft.rfft({f1}, n=4)
torch.fft.irfft({f1}, n=3)
torch.fft.fft({f1}, 5, {d}).abs()
torch.fft.ifftshift({a2}, dim=-1)
torch.einsum("ii", {f2})
torch.einsum("ij->", {f2})
torch.einsum("ij,k->ijk", {f2}, {f1})
torch.einsum("i,i->", {f1}, {f1_b})
torch.einsum("...d,...d->...", {f1}, {f1})
torch.einsum("bij,bjk,bkl->bil", {f3}, {f3}.mT, {f3})
torch.einsum("bhqd,bhkd->bhqk", {f4}, {f4})
torch.einsum("ij,ji->ij", {f2}, {f2}.mT)
torch.einsum("bi,oi->bo", {f2}, {f2_b})
torch.einsum("ij,ij,ij->j", {f2}, {f2}, {f2})
torch.addr({f2}, {f2}[:, 0], {f2}[0])
torch.addmv({f2}[:, 0], {f2}, {f2}[0], beta=0.5, alpha=2)
torch.addmm({f2} @ {f2}.mT, {f2}, {f2}.mT, beta=0, alpha=0.5)
torch.addbmm({f2} @ {f2}.mT, {f2}[None], {f2}.mT[None])
torch.linalg.multi_dot([{f2}, {f2}.mT, {f2}])
torch.linalg.vecdot({f1}, {f1_b})
torch.linalg.qr({f2} + 2 * torch.eye({f2}.shape[-2], {f2}.shape[-1], dtype={f2}.dtype))[1].abs()
torch.linalg.eigvalsh({f2} @ {f2}.mT)
torch.linalg.pinv({f2} + torch.eye({f2}.shape[-2], {f2}.shape[-1], dtype={f2}.dtype))
torch.linalg.solve_triangular({f2}.triu() + 3 * torch.eye({f2}.shape[-1], dtype={f2}.dtype), {f2}, upper=True)
torch.linalg.cross({f1}.reshape(-1)[:3], torch.tensor([1.0, 2.0, 3.0], dtype={f1}.dtype))
torch.linalg.vander({f1}.reshape(-1), N=3)
torch.nn.functional.pdist({f2}.reshape({f2}.shape[0], -1))
torch.nn.functional.multi_margin_loss({f2}, {f2}.argmax(1), reduction="none")
torch.nn.functional.margin_ranking_loss({f1}, {f1}.flip(0), torch.ones_like({f1}))
torch.nn.functional.hinge_embedding_loss({f}, torch.ones_like({f}))
torch.nn.functional.poisson_nll_loss({f}, {f_b}.abs())
torch.nn.functional.soft_margin_loss({f}, {f_b}.sign())
torch.nn.functional.cosine_embedding_loss({f2}, {f2}.flip(0), torch.ones({f2}.shape[0]))
torch.nn.functional.binary_cross_entropy({f}.sigmoid(), {f_b}.sigmoid())
torch.nn.functional.cross_entropy({f3}, {f3}.argmax(1))
torch.nn.functional.cross_entropy({f1}, {f1}.argmax())
torch.nn.functional.multilabel_soft_margin_loss({f2}, ({f2} > 0).to({f2}.dtype))
torch.nn.functional.max_unpool1d(*torch.nn.functional.max_pool1d({f2}[None], 2, return_indices=True), 2)
torch.nn.functional.avg_pool2d({f2}[None, None], 2, stride=1, padding=1, count_include_pad=False)
torch.nn.functional.max_pool2d({f2}[None, None], 2, stride=1, dilation=2, padding=1)
torch.nn.functional.adaptive_avg_pool2d({f3}, (2, 1))
torch.nn.functional.adaptive_max_pool2d({f3}, 2)
torch.nn.functional.conv2d({f3}[None], torch.ones(2, {f3}.shape[0], 2, 2, dtype={f3}.dtype), padding=1)
torch.nn.functional.conv_transpose1d({f3}, torch.ones({f3}.shape[1], 2, 2, dtype={f3}.dtype), stride=2)
torch.nn.functional.conv1d({f3}, torch.ones({f3}.shape[1], 1, 2, dtype={f3}.dtype), groups={f3}.shape[1])
torch.nn.functional.batch_norm({f2}, torch.zeros({f2}.shape[1]), torch.ones({f2}.shape[1]))
torch.nn.functional.scaled_dot_product_attention({f4}, {f4}, {f4}, scale=0.5)
torch.nn.functional.scaled_dot_product_attention({f3}, {f3_b}, {f3_b})
torch.nanquantile({f1}, 0.25, dim={d})
torch.quantile({f1}, torch.tensor([0.25, 0.75], dtype={f1}.dtype), dim={d})
{f1}.mode({d})[0]
torch.gradient({f1}, dim={d})[0]
torch.trapezoid({f1}, dx=0.5, dim={d})
torch.cross({f2}[..., :3], {f2}[..., :3], dim=-1)
torch.histc({f}, 3)
{f1}.unique_consecutive(dim=0)
{f1}.max({d}, keepdim=True).indices
{f1}.min({d}).values
forms.called_with_others({f1})
forms.of_several_models({f1})
torch.func.vmap(lambda row, index: row[index], in_dims=(0, None))({f2}, torch.tensor(0))
torch.func.vmap(lambda row: row.masked_fill(row > 0, 0.0))({f2})
torch.func.vmap(lambda row: row.index_put((torch.tensor([0]),), torch.zeros(1, dtype=row.dtype)))({f2})
torch.func.vmap(lambda row: row.sort()[0])({f2})
torch.func.vmap(lambda row: torch.nn.functional.pad(row, (1, 1)))({f2})
torch.func.vmap(lambda row: row.softmax(0) @ row)({f2})
torch.func.vmap(lambda row: torch.stack([row, row * 2]).sum(0))({f2})
torch.func.grad(lambda value: torch.where(value > 0, value, value.exp()).sum())({f})
torch.func.grad(lambda value: value.prod())({f1})
torch.func.grad(lambda value: value.std())({f1})
torch.func.jvp(lambda value: value.logsumexp(-1), ({f1},), ({f1}.sin(),))[1]
torch.func.jvp(lambda value: torch.nn.functional.layer_norm(value, value.shape[-1:]), ({f1},), ({f1}.cos(),))[1]
torch.func.jvp(lambda value: value.cumsum(0) * value.amax(), ({f1},), ({f1}.cos(),))[1]
torch.func.jvp(lambda value: torch.nn.functional.group_norm(value, 1), ({f2},), ({f2}.cos(),))[1]
"""

WRITES = """
{w1}[:0] += 1
{w1}[:0].fill_(3)
{w1}[1:1] = 2
{w1}[torch.empty(0, dtype=torch.int64)] = 1
{w2}[:, :0].add_(1)
{i}.mul_(2**40)
{i}.add_(2**62)
{i}.bitwise_not_()
{i}.floor_divide_(-2)
{i}.pow_(2)
{i}.clamp_(0, 2)
{i} <<= 2
{i} ^= 3
{c}.conj().mul_(2)
{c}.conj().imag.add_(1)
{c}.conj_physical_()
{c}.imag.neg_()
{c}.conj()[..., :1].zero_()
torch.view_as_real({c}).select(-1, 1).mul_(-1)
{c}.copy_({f})
{c}.mul_(1j)
{w1}.chunk(2)[1].chunk(2)[0].zero_()
{w1}.split(1)[0].copy_({w1}[-1:].clone())
{w2}.split(1, 1)[0].add_({w2}[:, -1:].clone())
{w2}.chunk(2, 1)[0].t().mul_(2)
for i, part in enumerate({w1}.unbind(0)): part.mul_(i)
left, right = {w1}.tensor_split(2); left.add_(1); right.mul_(2)
first, second = {w1}.split([1, {w1}.shape[0] - 1]); second.add_(1); first.zero_()
{w1}.masked_scatter_({w1} > 0, {w1}.reshape(-1).flip(0))
{y1}.masked_scatter_({k}.clone(), torch.arange(99.0).to({y1}.dtype))
{y1}.index_put_((torch.zeros_like({i}.reshape(-1)),), torch.ones((), dtype={y1}.dtype), accumulate=True)
{y2}.index_put_((torch.tensor([0, 0]), torch.tensor([0, 0])), torch.ones(2, dtype={y2}.dtype), accumulate=True)
{w2}.index_put_((torch.tensor([[0], [0]]), torch.tensor([0])), torch.tensor(2, dtype={w2}.dtype))
{y1}.index_add_(0, torch.tensor([0, 0]), torch.cat([{f1}[:1], {f1}[:1]]), alpha=-1)
{y1}.scatter_add_(0, torch.zeros_like({y1}, dtype=torch.int64), {y1}.clone())
{y1}.scatter_reduce_(0, torch.zeros_like({y1}, dtype=torch.int64), {f1}, "amin", include_self=False)
{y1}.scatter_(0, torch.zeros_like({y1}[:1], dtype=torch.int64), {f1}[:1], reduce="add")
{w1}.index_copy_(0, torch.tensor([-1 % {w1}.shape[0]]), {w1}[:1].clone())
{w1}.put_(torch.tensor([0, -1]), torch.ones(2, dtype={w1}.dtype), accumulate=True)
{w2}[..., 0].copy_({w2}[..., -1].clone())
{w2}[[0]] += {w2}[-1]
{w2}[[0], [-1]] *= 3
{w2}[{i}.reshape(-1) % 1, 0] += 1
{w1}.view(-1)[{w1}.numel() - 1] = 4
{w1}.flatten()[-1:] = 2
{w1}.unflatten(0, (-1, 1))[:, 0].add_(1)
{w1}.unsqueeze(1).expand(-1, 1, *{w1}.shape[1:]).add_(1)
{w2}.diagonal(1).sub_(1)
{w2}.diagonal()[:1] = 5
{w2}.mT[0] = 3
{w2}.swapaxes(0, 1)[-1].zero_()
{w3}.flatten(1)[0].add_(1)
{w3}.unbind(2)[0].mul_(2)
{w3}.diagonal(0, 1, 2).fill_(1)
{w3}[..., 1:, :1] = 0
{w3}[0, ..., 0] = {w3}[-1, ..., -1].clone()
{w1}.narrow(0, 0, 1).squeeze(0).add_(2)
{w1}.select(0, -1)[None].sub_(1)
{y}.cumprod_(-1)
{y}.erf_().add_(1)
{y}.lerp_({f}, {f_b}.sigmoid())
{y}.addcmul_({f}, {f_b}, value=-1)
{y}.copysign_({f})
{y}.fmod_(0.7)
{y}.logit_(0.1).clamp_(-2, 2)
{y}.sub_({i})
{y}.masked_fill_({k}, float("-inf")).clamp_(min=-9)
{y}.masked_fill_({k}, {f}.mean().detach())
{y}.fill_({f}.sum().detach())
{y1}.renorm_(2, 0, 1.0)
{w}.add_(torch.tensor(2))
{y}.mul_(torch.tensor(2.0, dtype=torch.float64))
{w1}[0] = torch.tensor(3)
{w1}[0] = {f}.sum().detach()
{k}[0] = {f}.sum() > 0
{k}.fill_(True)
{k1}[..., 0] = False
{i1}[..., 0] = {f}.detach().sum()
torch.max({f1}, {d}, out=({y}, {i}))
torch.topk({y1}.clone(), 1, out=({y1}, {i1}))
torch.addmm({f2}, {f2} @ {f2}.mT, {f2}, out={y2})
torch.gather({a1}, 0, torch.zeros_like({a1}, dtype=torch.int64), out={w1})
torch.eq({a}, {a_b}, out={k})
torch.logical_or({k}, {k_b}, out={k_c})
torch.mean({f1}, 0, out={y})
torch.prod({f1}, 0, out={y})
torch.full({y}.shape, 2.0, out={y})
torch.zeros({y}.shape, out={y})
torch.pow({f}, 2, out={y})
torch.div({f}, 2, out={y})
torch.lerp({f}, {f_b}, 0.5, out={y})
torch.tril({a2}, out={w2})
torch.linalg.vector_norm({f1}, dim=0, out={y})
torch.nn.functional.elu({y}, inplace=True)
torch.nn.functional.hardswish({y}, inplace=True)
torch.nn.functional.leaky_relu({y}, 0.1, inplace=True)
torch._foreach_copy_([{y}], [{f}])
torch._foreach_addcmul_([{y}], [{f}], [{f_b}], value=0.5)
torch._foreach_lerp_([{y}], [{f}], 0.3)
torch._foreach_clamp_min_([{y}], 0.0)
torch._foreach_neg_([{y}, {y_b}])
{g2}.swapdims_(0, 1).mul_(2)
{g1}.unsqueeze_(-1).squeeze_(-1)
"""

STATE = """
self.{b}.view(-1)[:1] += 1
self.{b}.flatten()[1:].zero_()
self.{b}[0].mul_(2)
self.{b}.t()[0] = 1
self.{b}.select(0, 0).add_({f}.detach().mean())
self.{b}.diagonal().add_(1)
self.{b}.chunk(2)[0].zero_()
self.{b}.unbind(0)[-1].copy_({f}.detach().sum())
self.{b}.split(1)[0].add_(1)
self.{b}.narrow(0, 0, 1).mul_(-1)
self.{b}[..., :1] *= 2
self.{b}[..., -1].copy_(self.{b}[..., 0].clone())
self.{b}.masked_scatter_(self.{b} > 0, self.{b}.clone())
self.{b}.index_put_((torch.tensor([0, 0]),), torch.ones((), dtype=self.{b}.dtype), accumulate=True)
self.{b}.scatter_(0, torch.zeros_like(self.{b}, dtype=torch.int64), 1)
self.{b}.expand(*self.{b}.shape).add_(1)
torch.add(self.{b}, 1, out=self.{b})
torch.mul(self.{b}, {f}.detach().sum(), out=self.{b})
self.{b}.logical_not_()
self.{b}.clamp_(-3, 3).floor_()
self.{b}[{k}.reshape(-1)[:1].expand(self.{b}.shape[0])] = 2
self.{b}.data[0] = 1
self.{b}.unsqueeze(0).squeeze(0).add_(1)
self.{b}.mT.mul_(2)
self.{b} = self.{b}.to(self.{b}.dtype) + 1
self.{b} = torch.cat([self.{b}[1:], self.{b}[:1]])
self.{b} = self.{b}.index_fill(0, torch.tensor([0]), 1)
self.{b} = torch.stack([self.{b}[0]] * self.{b}.shape[0])
self.{b} = self.{b}.detach().lerp({f}.detach().mean().to(self.{b}.dtype), 0.2)
torch._foreach_add_([self.{b}], 1)
self.{p}.data[:1] = 0
self.{p}.data.copy_(self.{p} * 0.5)
"""

RANDOM = """
torch.nn.functional.dropout2d({f3}[None], 0.5)
torch.rand({z}, dtype=torch.float64)
torch.normal(0.0, 1.0, {a}.shape)
torch.randn({a1}.shape[0], 1).expand(-1, 2).contiguous()
{f}.clone().random_(0, 3)
{f}.clone().log_normal_()
torch.rand_like({f}, dtype=torch.float64)
torch.bernoulli({f}.sigmoid()) > 0
{f1}[torch.randperm({f1}.shape[0])]
torch.nn.functional.dropout({f}, 0.0)
torch.nn.functional.dropout({f}, 0.5, training=False)
torch.rand_like({f}[..., None]).squeeze(-1)
"""

DECISIONS = """
{f} * (0 if {a1}.shape[0] == 0 else 1)
{f} + {a1}.shape[0] ** 2
{f} * ({a1}.shape[-1] > 1 and {a1}.shape[0] > 1)
{f1}[: max({f1}.shape[0] - 1, 0)]
{f1}[-min({f1}.shape[0], 2) :]
{f1}.view(-1, 2) if {f1}.numel() % 2 == 0 else {f1}.view(-1, 1)
torch.zeros({a1}.shape[0] + {a1}.shape[-1])
{f} * (-1) ** {a1}.shape[0]
torch.cat([{f1}] * ({f1}.shape[0] % 3 + 1))
forms.watched({f}, {f}.requires_grad)
{f} * round({a1}.shape[0] / 2)
{f} * abs({a1}.shape[0] - 3)
{f} + torch.tensor({a}.shape).sum()
{f}.reshape([s for s in {f}.shape if s != 1])
{f} if {k}.any() else {f} + 1
{f}.sum() if {f}.numel() and {f}.abs().max() > 1 else {f}.sum() * 0
{f1}.topk(min(2, {f1}.shape[-1]))[0]
{f1}[int({i}.reshape(-1)[0]) % 1]
{f} * {i}.reshape(-1).tolist()[0]
{f} + ({a}.dtype.is_floating_point + {a}.dtype.itemsize)
{f} * torch.broadcast_shapes({f}.shape, {a}.shape)[-1]
{f} / {f}.shape[-1] if {f}.dim() else {f}
"""

MODULES = """
torch.nn.RNNCell({D}, 2) | {f2}
torch.nn.GRUCell({D}, {D}) | {f2}, {f2}
torch.nn.LSTMCell({D}, 2, bias=False) | {f2} | [1]
torch.nn.LSTM({D}, 3, proj_size=2) | {f3} | [0]
torch.nn.RNN({D}, 2, bidirectional=True, batch_first=True) | {f3} | [1]
torch.nn.GRU({D}, 2, bias=False) | {f2} | [0]
forms.Unrolled({D}) | {f2}
forms.Watched({D}) | {f1}
forms.Counting({D}) | {f1}
forms.Codebook({D}) | {f1}
forms.Masked({D}) | {f1}
forms.Recalled({D}) | {f1}
torch.nn.Embedding(4, 3, max_norm=1.0) | {i}
torch.nn.Embedding(4, 3, scale_grad_by_freq=True) | {i}
torch.nn.EmbeddingBag(4, 3, mode="sum") | {i2}
torch.nn.EmbeddingBag(4, 3, padding_idx=1) | {i2}
torch.nn.ReflectionPad2d(1) | {f3}
torch.nn.ReplicationPad1d((1, 2)) | {f2}
torch.nn.CircularPad1d(1) | {f2}
torch.nn.Conv1d({C}, 2, 3, padding=1, padding_mode="reflect") | {f3}
torch.nn.Conv2d({C}, 2, 2, stride=2, padding=1, padding_mode="replicate") | {f4}
torch.nn.Conv3d(1, 2, 1) | {f3}[None]
torch.nn.ConvTranspose1d({C}, 2, 3, stride=2, padding=1, output_padding=1) | {f3}
torch.nn.FractionalMaxPool2d(2, output_size=1) | {f3}
torch.nn.MaxPool2d(2, stride=1, padding=1) | {f3}
torch.nn.AvgPool2d(2, ceil_mode=True, count_include_pad=False) | {f3}
torch.nn.AdaptiveAvgPool2d((1, None)) | {f3}
torch.nn.Upsample(size=(2, 3), mode="bilinear", align_corners=True) | {f4}
torch.nn.PixelShuffle(1) | {f3}
torch.nn.LayerNorm({D}, elementwise_affine=False) | {f1}
torch.nn.LayerNorm({D}, bias=False) | {f1}
torch.nn.BatchNorm1d({C}, momentum=0.5, eps=1e-3) | {f3}
torch.nn.SyncBatchNorm({C}) | {f2}
torch.nn.CELU(inplace=True) | {f}
torch.nn.Hardtanh(inplace=True) | {f}
torch.nn.ELU(inplace=True) | {f}
torch.nn.Softmax2d() | {f3}
torch.nn.Tanhshrink() | {f}
torch.nn.NLLLoss() | {f2}, {f2}.argmax(1)
torch.nn.KLDivLoss(reduction="batchmean") | {f2}, {f2}.softmax(-1)
torch.nn.TripletMarginLoss() | {f2}, {f2}, {f2}.flip(0)
torch.nn.utils.parametrizations.orthogonal(torch.nn.Linear({D}, {D})) | {f1}
torch.nn.Transformer({D}, 1, 1, 1, 4, 0.0, batch_first=True) | {f3}, {f3}
torch.nn.Fold((3, 3), 2) | torch.ones(1, 4, 4) * {f}.mean()
torch.nn.Identity() | {a}
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
