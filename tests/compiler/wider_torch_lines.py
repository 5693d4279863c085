"""Statements of the wider random programs of ``tintype.compile``: control flow, tensors and modules.

In a statement ``{x}`` and ``{y}`` are tensors that are there, ``{t}`` is a new one, ``{k}`` a small number.
Statements are parted by empty lines.
"""

from __future__ import annotations

from tests.compiler.wider_lines import statements

FLOW = statements(
    """
{t} = {x}
for v in running([{x}, {y}]):
    {t} = {t} + v

made = running([{x}, {y}, {x}])
next(made)
{t} = made.send({k})

made = running([{x}])
{t} = next(made)
made.close()

{t} = {x} * next(TICKS)

{t} = {x} + next(STREAM)

with rate_of({k}) as rate:
    {t} = {x} * CONF.rate + rate

with rate_of({k}), torch.no_grad():
    {t} = {x} * CONF.rate

with Guarded(Wrong) as guard:
    {t} = {x}
    {t} = checked({x}, {k}) * 2

{t} = {x}
with contextlib.suppress(ValueError, KeyError):
    {t} = {x} * TABLE['none{k}']

with contextlib.ExitStack() as stack:
    stack.enter_context(rate_of({k}))
    stack.callback(LOG.append, 'left')
    {t} = {x} * CONF.rate

with contextlib.nullcontext({x}) as v:
    {t} = v + 1

try:
    {t} = checked({x}, {k})
except Wrong as error:
    {t} = {x} * error.code

try:
    try:
        {t} = checked({x}, {k})
    except Wrong as error:
        raise ValueError('outer') from error
except ValueError as error:
    LOG.append(repr(error.__cause__))
    {t} = {x} + 1

try:
    {t} = {x} @ torch.ones(7, {k})
except RuntimeError as error:
    LOG.append(type(error).__name__)
    {t} = {x}
finally:
    LOG.append('done')

try:
    {t} = {x} + 1
except Wrong:
    {t} = {x}
else:
    {t} = {t} * 2
finally:
    CONF.steps += 1

def inner():
    try:
        return {x} * 2
    finally:
        LOG.append('finally')
{t} = inner()

try:
    LOG.append(1)
    checked({x}, 0)
except Wrong:
    if {k} > 2:
        raise
{t} = {x}

try:
    raise Wrong('made', {k})
except (Wrong, ValueError) as error:
    {t} = {x} * error.code + len(error.args[0])

try:
    int('x')
except ValueError as error:
    LOG.append(str(error))
{t} = {x}

log.warning('shape %s', tuple({x}.shape))
{t} = {x}

log.info('value %d', {k})
{t} = {x} + log.isEnabledFor(20)

warnings.warn(f'careful {{G}}')
{t} = {x}

with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter('always')
    warnings.warn('inner')
{t} = {x} * len(caught)

print('p', {k}, {x}.dtype)
{t} = {x}

{t} = {x} * LOCAL.value
LOCAL.value += 1

token = VARIABLE.set({k})
{t} = {x} * VARIABLE.get()
VARIABLE.reset(token)

{t} = {x} * VARIABLE.get()

found = []
thread = threading.Thread(target=lambda: found.append({x}.detach() * 2))
thread.start()
thread.join()
{t} = found[0] + {y}

FLAG = not FLAG
{t} = {x} if FLAG else {x} * 2

G += {k}
{t} = {x} * G

if FLAG and {x}.sum() > 0 or not LOG:
    {t} = {x} * 3
else:
    {t} = {y} - 1

{t} = {x} * 2 if {x}.shape[0] > {k} else {x} - 2

while {x}.detach().abs().sum() > 1 + {k}:
    {x} = {x} * 0.25
{t} = {x}

tintype.compile.graph_break()
{t} = {x}

{t} = {x} * len(sys.argv[:0]) + math.prod([{k}, 2])

{t} = compiled_helper({x}, {k})

{t} = disabled_helper({x}, {k})
"""
)

TENSORS = statements(
    """
{t} = {x} + {y}

{t} = {x}.t() if {x}.dim() == 2 else {x}

{t} = {x}.reshape(-1)[:4]

{t} = {x}[..., ::2].contiguous()

{t} = {x}[0]

{t} = {x}.unsqueeze(0).expand(2, *{x}.shape)[1]

{t} = {x}.to(torch.float64)

{t} = {x}.float()

{t} = {x}.detach().clone().requires_grad_()

{t} = {x}.clone()
{t}.add_({k})

{t} = {x}.clone()
{t}[..., 0] = {k}
{t}[{t} > 1] = 0

{t} = {x}.clone()
{t} += {y}.detach().mean()

{t} = {x}.detach()
{t}.requires_grad = True

{t} = {x}.numpy(force=True)
{t} = torch.from_numpy({t} * 2)

{t} = torch.tensor({x}.tolist())

{t} = {x} * torch.as_tensor(ARRAY).sum()

{t} = {x} * float(np.mean(ARRAY) + {k})

ARRAY[0] += 1
{t} = {x} * torch.from_numpy(ARRAY.copy())[0]

{t} = {x} * np.sqrt(ARRAY.sum())

{t} = {x} * random.random() + random.choice([1, 2, {k}])

{t} = {x} * torch.rand({k}).sum() + torch.randn_like({x})

{t} = {x} + torch.rand(4, generator=GENERATOR).sum()

{t} = {x} * float(np.random.rand()) + float(DRAWS.standard_normal())

torch.manual_seed({k})
{t} = {x} + torch.rand(1)

state = torch.get_rng_state()
first = torch.rand(1)
torch.set_rng_state(state)
{t} = {x} + first - torch.rand(1)

with torch.random.fork_rng(devices=[]):
    torch.manual_seed({k})
    noise = torch.rand(1)
{t} = {x} + noise

{t} = F.dropout({x}, 0.3, training=FLAG)

{t} = {x} * {x}.sum().item()

{t} = {x} * int({x}.detach().abs().sum() * 0 + {k}) + bool({x}.detach().max() > 0)

{t} = {x} * len(f'{{float({x}.detach().abs().max()) > 1}}')

n.add_({k})
{t} = {x} + n.sum()

n[0] = {k}
{t} = {x} * n[0]

n.copy_({x}.detach().reshape(-1)[:3])
{t} = {x} + n.mean()

n.data = n.data + 1
{t} = {x} + n.sum()

n.unsqueeze_(0)
{t} = {x} * n.dim()

n.set_(torch.ones(3))
{t} = {x} + n.sum()

n.resize_(5)
n.fill_({k})
{t} = {x} * n.shape[0]

{t} = n[1:]
{t}.mul_(2)

{t} = {x}.view(-1)

b.detach().add_({k})
{t} = {x} * 1

with torch.no_grad():
    b.mul_(0.5)
{t} = b + {x}

torch.add({y}, {k}, out=n) if n.shape == {y}.shape and not {y}.requires_grad else None
{t} = {x}

with torch.no_grad():
    {t} = {x} * 2

with torch.inference_mode():
    {t} = ({x} * 2).detach()
{t} = {t}.clone()

with torch.enable_grad():
    {t} = {x} * 2 + torch.is_grad_enabled()

with torch.set_grad_enabled(FLAG):
    {t} = {x} * 2

with torch.autocast('cpu', dtype=torch.bfloat16, enabled=FLAG):
    {t} = ({x}.reshape(-1, 4)[:, :4] @ torch.ones(4, 4)).float()

with torch.autocast('cpu'):
    {t} = SEQ({x}).float()

torch.set_default_dtype(torch.float64)
{t} = {x} + torch.ones(4).dtype.itemsize
torch.set_default_dtype(torch.float32)

{t} = {x} + torch.get_default_dtype().itemsize * torch.is_grad_enabled()

torch.set_grad_enabled(False)
{t} = {x} * 2
torch.set_grad_enabled(True)

leaf = {x}.detach().requires_grad_()
(grad,) = torch.autograd.grad((leaf ** 3).sum(), leaf)
{t} = {x} + grad

leaf = {x}.detach().requires_grad_()
(grad,) = torch.autograd.grad((leaf ** 3).sum(), leaf, create_graph=True)
(second,) = torch.autograd.grad(grad.sum(), leaf)
{t} = second + {y}

leaf = {x}.detach().requires_grad_()
(leaf * WEIGHT).sum().backward()
{t} = leaf.grad + {x}

{t} = Cube.apply({x}, {k})

{t}, mask = Clamp.apply({x})
{t} = {t} * mask

{t} = {x}.as_subclass(Tagged) * 2
{t} = {t}.as_subclass(torch.Tensor)

{t} = {x}.as_subclass(Quiet).twice()

{t} = {x} * 1
if {t}.requires_grad:
    {t}.register_hook(lambda g: g * {k})

{t} = {x} * 1
if {t}.requires_grad:
    {t}.retain_grad()
    LOG.append({t})

{t} = {x} * ({x}.is_leaf + {x}.requires_grad) + ({x}.grad_fn is None)

{t} = {x} * ({x} is a) + ({y} is b)

{t} = {x} + ({x}.data_ptr() == a.data_ptr())

{t} = {x} * {x}.stride()[-1] + {x}.is_contiguous() + {x}.storage_offset()

{t} = {x} * ({x}._version if not {x}.is_inference() else 0)

{t} = torch.vmap(lambda v: v * {k})({x})

{t} = torch.func.grad(lambda v: (v ** 2).sum())({x}.detach())

{t} = torch.utils.checkpoint.checkpoint(lambda v: (v * 2).sin(), {x}, use_reentrant=False)

{t} = torch.einsum('...i,i->...', {x}, WEIGHT)

{t} = F.layer_norm({x}, ({x}.shape[-1],))

{t} = F.pad({x}, (1, 1))[..., 1:-1]

{t} = torch.where({x} > 0, {x}, {k})

values, places = {x}.sort()
{t} = values * places.float()

{t} = {x}.chunk(2, -1)[0]

low, high = {x}.aminmax()
{t} = ({x} - low) / (high - low + 1)

{t} = {x}[torch.nonzero({x}.reshape(-1)[:1] > 0).reshape(-1)].sum() + {y}

{t} = torch.cat([{x}.reshape(-1), {y}.reshape(-1)])

{t} = {x}.new_zeros({k} + 1).sum() + {x}.new_tensor([1.0, {k}]).sum() + {x}

{t} = torch.arange({x}.shape[-1], dtype={x}.dtype) + {x}

{t} = torch.ones({x}.shape, device='meta').shape[0] * {x}

{t} = copy.deepcopy({x}.detach()) + 1

{t} = {x} if {x} is {y} else {x} * {y}.sum()

{t} = {x} + (1 if {x}.dtype == torch.float64 else 2) + {x}.element_size()

{t} = {x} * {x}.size(-1) + {x}.dim() + len({x})

{t} = {x} / sum({x}.shape)

for row in {x}:
    {t} = row * 2

{t} = sum({x}.unbind(-1))

{t}, *_ = {x}.split(2, -1)

{t} = {x}.mul({k}).add_(1).relu_()
"""
)

MODULES = statements(
    """
{t} = L({x})

{t} = L({x}, k={k})

{t} = NET({x})

{t} = SEQ({x})

{t} = SEQ[{k} % 2]({x})

L.train(FLAG)
{t} = L({x})

NET.eval()
{t} = NET({x}) * NET.training

L.scale += 0.5
{t} = L({x})

L.count.zero_()
{t} = {x} + L.count

L.count = L.count + {k}
{t} = {x} + L.count

{t} = {x} * sum(p.numel() for p in NET.parameters())

{t} = {x}
for name, module in NET.named_children():
    LOG.append(name)

{t} = {x} * len(L.state_dict())

SEQ.load_state_dict({{name: value * 0.5 for name, value in SEQ.state_dict().items()}})
{t} = SEQ({x})

for p in SEQ.parameters():
    p.data.mul_(0.9)
{t} = SEQ({x})

with torch.no_grad():
    for average, p in zip(EMA, SEQ.parameters()):
        average.lerp_(p, 0.1)
{t} = {x} + EMA[0].sum()

SGD.zero_grad()
SEQ({x}.detach()).square().mean().backward()
SGD.step()
{t} = SEQ({x})

ADAM.zero_grad(set_to_none=True)
L({x}.detach()).square().mean().backward()
torch.nn.utils.clip_grad_norm_(L.parameters(), 1.0)
ADAM.step()
{t} = {x} + L.weight

SCHEDULE.step()
{t} = {x} * SGD.param_groups[0]['lr']

SGD.param_groups[0]['lr'] = 0.05 * {k}
{t} = {x} * SGD.param_groups[0]['lr']

{t} = {x} * (L.weight.grad is None)

L.weight.grad = None
{t} = {x} + L.weight

L.weight.requires_grad_(FLAG)
{t} = L({x})

L.weight = nn.Parameter(L.weight.detach() + 1)
{t} = L({x})

SEQ[1] = nn.Tanh() if FLAG else nn.ReLU()
{t} = SEQ({x})

other = copy.deepcopy(L)
{t} = other({x}) + L({y})

fresh = Layer()
{t} = fresh({x})

fresh = nn.Linear(4, 3)
{t} = fresh({x}).sum() + {y}

handle = L.register_forward_hook(hook_forward)
{t} = L({x})
handle.remove()

handle = SEQ.register_forward_pre_hook(hook_before)
{t} = SEQ({x})
handle.remove()

{t} = EMBED(torch.arange({k})).sum(0) + {x}

out, state = CELL({x}.detach().reshape(-1, 1, 4))
{t} = out.sum() + {x}

q = {x}.reshape(-1, 1, 4)
{t} = HEADS(q, q, q, need_weights=FLAG)[0].sum() + {x}

{t} = F.scaled_dot_product_attention({x}.reshape(1, -1, 4), {x}.reshape(1, -1, 4), {x}.reshape(1, -1, 4)).sum() + {y}

L.double()
{t} = L({x})

L.float()
{t} = L({x})

{t} = NET.batch(torch.cat([{x}.reshape(-1, 4), torch.ones(2, 4)]))

{t} = {x} * (L.last[0] if L.last is not None else 1)

L.last = {k} * [1]
{t} = {x} * len(L.last)

{t} = {x} * isinstance(SEQ[0], nn.Linear) + len(SEQ)

{t} = torch.func.functional_call(L, {{'weight': L.weight * 2}}, ({x},))

{t} = {x} + getattr(NET, 'average').sum() + NET.get_parameter('norm.weight').sum()

NET.layers.append(nn.Identity()) if len(NET.layers) < 2 else None
{t} = NET({x})

L.extra = {x}.detach()
{t} = L.extra + {y}

nn.init.constant_(L.weight, {k})
{t} = L({x})
"""
)
