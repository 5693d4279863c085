"""Statements of the wider random programs of ``tintype.compile``: functions, classes and containers.

In a statement ``{x}`` and ``{y}`` are tensors that are there, ``{t}`` is a new one, ``{k}`` a small number.
Statements are parted by empty lines.
"""

from __future__ import annotations


def statements(text: str) -> list[str]:
    """The statements of a text."""
    return text.strip("\n").split("\n\n")


FUNCTIONS = statements(
    """
{t} = mutable_default({x})

{t} = keyed_default({x})

{t} = COUNT({x}, {k})

{t} = AVERAGE({x})

{t} = decorated({x}, by={k})

{t} = {x} * table_of({k} + 2)[1]

{t} = {x} * mask_of(4)

{t} = {x} * (kind_of({k}) + kind_of('a') + kind_of({x}))

{t} = half({x})

{t} = scaled_by({x}) + functools.partial(plain, {y})(k={k})

{t} = {x} * factorial({k} + 1)

{t} = many({x}, {y}, {y}, key={k}, a=1, b=2)

{t} = many(*[{x}, {y}], **{{'key': {k}}})

counter = make_counter()
{t} = counter(counter({x}))

def local(v, k={k}, *, w=G):
    nonlocal_here = k + w
    return v * nonlocal_here
{t} = local({x})

total = 0
def add(v):
    nonlocal total
    total = total + v
for v in ({x}, {y}):
    add(v)
{t} = total

{t} = functools.reduce(lambda a, b: a * 0.5 + b, [{x}, {y}, {x}])

{t} = (lambda v, *, k=[1, {k}]: v * len(k))({x})

{t} = max([{x}, {y}], key=lambda v: v.dim()) + min({k}, 3)

{t} = list(map(lambda u, v: u + v, [{x}], [{y}]))[0]

{t} = sum(v for v in ({x}, {y}) if v.dim() >= 1)

{t} = {x} * getattr(CONF, 'missing', {k}) * hasattr(HEAT, 'degrees')

mutable_default.__defaults__ = ([1] * {k},)
{t} = mutable_default({x})

decorated.calls = {k}
{t} = decorated({x})

functions = [plain, half, decorated]
{t} = {x}
for f in functions[:{k}]:
    {t} = f({t})

{t} = operator.attrgetter('rate')(CONF) * {x}

{t} = operator.itemgetter('k')(TABLE) * {x}

{t} = operator.methodcaller('mul', {k})({x})

{t} = {x} * table_of.cache_info().currsize
"""
)

CLASSES = statements(
    """
{t} = {x} * CONF.rate

CONF.rate = {k}
{t} = {x} * CONF.rate

Config.rate = Config.rate + 1
{t} = {x} * CONF.rate

CONF.steps += 1
{t} = {x} * CONF.steps

CONF.extra['n'] = CONF.extra.get('n', 0) + {k}
{t} = {x} + CONF.extra['n']

CONF.layers.append({k})
{t} = {x} * sum(CONF.layers)

CONF.seen = {x}.detach()
{t} = {y} + CONF.seen.sum()

if 'rate' in vars(CONF):
    del CONF.rate
{t} = {x} * CONF.rate

setattr(CONF, 'name{k}', {k})
{t} = {x} * len(vars(CONF))

{t} = {x} * HEAT.degrees
HEAT.degrees = {k}

{t} = {x} * HEAT.once

BOX.size = {k}
{t} = {x} * BOX.size * BOX.weight

try:
    BOX.size = {k} - 2
except ValueError as error:
    LOG.append(str(error))
{t} = {x} * BOX.size

point = Point({x}, {k})
point.tags.append('new')
{t} = point.moved({y}).x * point.scale

P.x = {x}.detach()
P.tags.append({k})
{t} = P.moved(1).x + {y}

{t} = {x} * (Key('a', {k}) == Key('a', 2)) + (Key('a') < Key('b'))

{t} = {x} * {{Key('a', {k}): 2, Key('b'): 3}}[Key('a', {k})]

{t} = {x} * sum(f.name != 'x' for f in dataclasses.fields(P))

{t} = dataclasses.asdict(Point({x}.detach(), {k}))['x'] + {y}

{t} = MODE({x}, {y})

{t} = Mode['MUL']({x}, {y}) if MODE is Mode.ADD else Mode(1)({x}, {y})

{t} = {x} * (Level.HIGH + {k}) * len(Mode)

{t} = {x} * bool(Access.READ & (Access.READ | Access.WRITE))

pair = Pair({x}, second={y})
{t} = pair.first + pair._replace(second={k}).second

first, second = Pair({x}, {y})
{t} = first - second

{t} = Triple({x}).total() + Triple(1, {k}).total()

SLOT.value += 1
{t} = {x} * SLOT.value

SLOT.other = {x}.detach()
{t} = {y} + SLOT.other.mean()
del SLOT.other

{t} = {x} * LAZY.anything + LAZY.asked

WATCHED.k = {k}
{t} = {x} * len(WATCHED.log)

{t} = (V + Vector({x}, {y}))[{k} % 2] * len(V)

{t} = (2 * Vector({x}, 1))[0]
V[0] = {k}

V += Vector({k})
{t} = {x} * sum(V)

{t} = {x} * ({y} in Vector({y}, {x})) * (V == Vector(1, 2)) * bool(V)

{t} = V({x}) + sum(v for v in V)

{t} = {x} * len({{V: 1, Vector(1, 2): 2, Vector(): 3}})

LOG.append(f'{{V}} {{V!r:>12}} {{len(V):03d}}')
{t} = {x} * len(LOG[-1])

class Inner(Registered):
    k = {k}
    def go(self, v):
        return v * self.k + type(self).width
{t} = Inner().go({x})

{t} = {x} * len(Registry.known) * Registered.width

{t} = Both.make({k}).apply({x}) + Plus.twice({y})

{t} = OBJECT.apply({x})
OBJECT.by += 1

OBJECT.__class__ = Both if type(OBJECT) is Plus else Plus
{t} = OBJECT.apply({x})

{t} = {x} * sum(ROOT.walk()) + isinstance(OBJECT, Base)

ROOT.children = (*ROOT.children, Tree({k}))
{t} = {x} * sum(node for node in ROOT.walk())

{t} = {x}
for i in Counter3({k}):
    {t} = {t} + i

made = type('Made', (Plus,), {{'k': {k}}})({k})
{t} = made.apply({x}) * made.k

Config.fresh = {k}
{t} = {x} * CONF.fresh
del Config.fresh

Plus.apply = (lambda self, x: x - self.by)
{t} = OBJECT.apply({x})

other = copy.deepcopy(CONF)
other.layers.append({k})
{t} = {x} * len(other.layers) + len(CONF.layers)

other = copy.copy(V)
other.items.append(1)
{t} = {x} * len(V)

{t} = {x} * len(weakref.WeakKeyDictionary({{OBJECT: 1}}))

ref = weakref.ref(OBJECT)
{t} = ref().apply({x})
"""
)

CONTAINERS = statements(
    """
{t} = {{n: v for n, v in zip(NAMES, [{x}, {y}])}}['one']

{t} = {x} * len({{v.dim() for v in [{x}, {y}]}} | {{{k}}})

{t} = torch.stack([v * i for i, v in enumerate([{x}, {y}]) if v.shape == {x}.shape]).sum(0)

TABLE.setdefault('new{k}', []).append({k})
{t} = {x} * len(TABLE)

{t} = {x} * TABLE.pop('new{k}', {k} * [1]).__len__()

TABLE['w'] = TABLE['w'] * 0.5 + {x}.detach().sum()
{t} = {y} + TABLE['w'].sum()

{t} = {x} * sum(v for v in TABLE.values() if isinstance(v, int))

NAMES.append('n' + str(len(NAMES)))
{t} = {x} * len(NAMES)

NAMES[:] = sorted(NAMES, reverse={k} % 2 == 0)
{t} = {x} * NAMES.index('one')

NAMES.reverse()
{t} = {x} + (NAMES[0] == 'one')

LOG.extend([{k}, {x}.shape])
{t} = {x} + 1

LOG.append({x})
{t} = {y} + 1

LOG.append({{'x': [{x}.detach(), {k}]}})
{t} = {x}

queue = collections.deque([{x}, {y}], maxlen=2)
queue.append({x} + 1)
{t} = queue.popleft() + queue[-1]

{t} = {x} * collections.Counter('abca')['a']

groups = collections.defaultdict(list)
for v in ({x}, {y}):
    groups[v.dim()].append(v)
{t} = groups[{x}.dim()][0]

ordered = collections.OrderedDict(a={x}, b={y})
ordered.move_to_end('a')
{t} = next(iter(ordered.values()))

{t} = collections.ChainMap({{'a': {x}}}, TABLE)['a'] * collections.ChainMap({{}}, TABLE)['k']

heap = [3, 1, {k}]
heapq.heapify(heap)
{t} = {x} * heapq.heappop(heap) + bisect.bisect([1, 2, 5], {k})

head, *tail = [{x}, {y}, {x}]
{t} = head + sum(tail)

{t} = [*({x}, {y}), {x}][-1] + {{**TABLE, 'k': {k}}}['k']

if (size := {x}.numel()) > 3:
    {t} = {x} * size
else:
    {t} = {x}

match {k}:
    case 1 | 2:
        {t} = {x} * 2
    case n if n > 2:
        {t} = {x} - n
    case _:
        {t} = {x}

match Pair({k}, {x}):
    case Pair(first=1, second=v):
        {t} = v
    case Pair(first=f):
        {t} = {x} * f

match Point({x}, {k}):
    case Point(scale=2, x=v):
        {t} = v + 1
    case Point(x=v):
        {t} = v * 3

match TABLE:
    case {{'k': 3, **rest}}:
        {t} = {x} * len(rest)
    case _:
        {t} = {x} + 7

{t} = {x}
for i in range(10):
    if i == {k}:
        break
    {t} = {t} + i
else:
    {t} = {t} * 0

i = 0
{t} = {x}
while i < {k}:
    i += 1
    if i == 2:
        continue
    {t} = {t} * 1.5

{t} = {x} * len('{{:>{k}}}'.format('a')) + 'abc'.find('c')

{t} = {x} * len(string.Template('$a').substitute(a={k}))

{t} = {x} * (1 < {k} <= 3) + ({k} if G else 0)

pairs = sorted([(3, 'c'), ({k}, 'a')])
{t} = {x} * pairs[0][0]

{t} = {x} * len(list(itertools.chain([1], itertools.accumulate(range({k})))))

for (i, v), w in zip(enumerate([{x}, {y}]), itertools.cycle([1, 2])):
    {t} = v * w + i

{t} = {x} * len(list(itertools.groupby([1, 1, {k}]))) + len(list(itertools.product('ab', repeat=2)))

TABLE = {{**TABLE, 'k': TABLE['k'] + 1}}
{t} = {x} * TABLE['k']

TABLE |= {{'z': {k}}}
{t} = {x} * len(TABLE)

del LOG[:{k}]
{t} = {x} * len(LOG)

if LOG:
    LOG.pop()
{t} = {x} * (1 + len(LOG))

LOG.insert(0, {k})
{t} = {x} * LOG.count({k})

keep = {{NAMES[0], 'z'}}
keep.discard('z')
keep.add({k})
{t} = {x} * len(keep & {{{k}, 2}})

assert {k} < 10, 'too many'
{t} = {x}
"""
)
