"""What the wider random programs of ``tintype.compile`` are made of: the classes and functions that they use."""

from __future__ import annotations

HEAD = """
import abc, bisect, collections, contextlib, copy, dataclasses, enum, functools, heapq, itertools, logging, math
import operator, random, string, sys, threading, types, typing, warnings, weakref
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

G = 2
NAMES = ["one", "two"]
TABLE = {"k": 3, "w": torch.ones(4)}
LOG = []
FLAG = True
WEIGHT = torch.linspace(-1, 1, 4)
log = logging.getLogger(__name__)

def plain(x, k=1):
    return x * k + 1

# --- functions: defaults, closures, decorators, caches

def mutable_default(x, seen=[]):
    seen.append(x.shape[0])
    return x * len(seen)

def keyed_default(x, cache={}):
    key = tuple(x.shape)
    if key not in cache:
        cache[key] = len(cache) + 1
    return x + cache[key]

def make_counter():
    n = 0
    def count(x, by=1):
        nonlocal n
        n += by
        return x * n
    return count

def make_average():
    total, calls = None, 0
    def average(x):
        nonlocal total, calls
        calls += 1
        total = x.detach().sum() if total is None else total * 0.5 + x.detach().sum()
        return x + total / calls
    return average

COUNT, AVERAGE = make_counter(), make_average()

def traced(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        wrapper.calls += 1
        LOG.append(function.__name__)
        return function(*args, **kwargs)
    wrapper.calls = 0
    return wrapper

@traced
def decorated(x, *, by=2):
    return x * by

@functools.lru_cache(maxsize=None)
def table_of(n):
    return [math.sin(i) for i in range(n)]

@functools.lru_cache
def mask_of(n):
    return torch.ones(n).cumsum(0)

@functools.singledispatch
def kind_of(value):
    return 1

@kind_of.register
def _(value: int):
    return 2

@kind_of.register(str)
def _(value):
    return 3

half = functools.partial(torch.mul, other=0.5)
scaled_by = functools.partial(plain, k=3)

def factorial(n):
    return 1 if n <= 1 else n * factorial(n - 1)

def many(x, *rest, key=None, **named):
    for other in rest:
        x = x + other
    return x if key is None else x * key + len(named)

# --- classes

class Config:
    rate = 0.5
    layers = [1, 2]
    def __init__(self):
        self.steps = 0
        self.extra = {}

class Small(Config):
    pass

CONF = Small()

class Celsius:
    def __init__(self):
        self._degrees = 1.0
    @property
    def degrees(self):
        return self._degrees * 2
    @degrees.setter
    def degrees(self, value):
        self._degrees = value
    @functools.cached_property
    def once(self):
        LOG.append("once")
        return len(LOG)

class Positive:
    def __set_name__(self, owner, name):
        self.name = "_" + name
    def __get__(self, instance, owner=None):
        return self if instance is None else getattr(instance, self.name, 1)
    def __set__(self, instance, value):
        if value < 0:
            raise ValueError(f"{self.name[1:]} is negative")
        setattr(instance, self.name, value)

class Measured:
    size = Positive()
    weight = Positive()

HEAT, BOX = Celsius(), Measured()

@dataclasses.dataclass
class Point:
    x: typing.Any
    scale: float = 1.5
    tags: list = dataclasses.field(default_factory=list)
    def moved(self, by):
        return dataclasses.replace(self, x=self.x + by)

@dataclasses.dataclass(frozen=True, order=True)
class Key:
    name: str
    number: int = 0

P = Point(torch.ones(4))

class Mode(enum.Enum):
    ADD = 1
    MUL = "mul"
    def __call__(self, x, y):
        return x + y if self is Mode.ADD else x * y

class Level(enum.IntEnum):
    LOW = 1
    HIGH = 3

class Access(enum.Flag):
    READ = enum.auto()
    WRITE = enum.auto()

MODE = Mode.ADD
Pair = collections.namedtuple("Pair", ["first", "second"])

class Triple(typing.NamedTuple):
    a: typing.Any
    b: typing.Any = 2
    def total(self):
        return self.a * self.b

class Slotted:
    __slots__ = ("value", "other")
    def __init__(self, value):
        self.value = value

SLOT = Slotted(3)

class Lazy:
    def __init__(self):
        self.asked = 0
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        self.__dict__["asked"] += 1
        return len(name)

class Watched:
    def __init__(self):
        object.__setattr__(self, "log", [])
    def __setattr__(self, name, value):
        self.log.append(name)
        object.__setattr__(self, name, value)

LAZY, WATCHED = Lazy(), Watched()

class Vector:
    def __init__(self, *items):
        self.items = list(items)
    def __add__(self, other):
        return Vector(*(a + b for a, b in zip(self.items, other.items)))
    def __mul__(self, k):
        return Vector(*(a * k for a in self.items))
    __rmul__ = __mul__
    def __iadd__(self, other):
        self.items.extend(other.items)
        return self
    def __len__(self):
        return len(self.items)
    def __getitem__(self, i):
        return self.items[i]
    def __setitem__(self, i, value):
        self.items[i] = value
    def __iter__(self):
        return iter(self.items)
    def __contains__(self, value):
        return any(value is item for item in self.items)
    def __eq__(self, other):
        return isinstance(other, Vector) and len(self) == len(other)
    def __hash__(self):
        return len(self.items)
    def __bool__(self):
        return len(self.items) > 1
    def __repr__(self):
        return f"Vector({len(self)})"
    def __call__(self, x):
        return x * len(self)

V = Vector(1.0, 2.0)

class Registry(type):
    known = []
    def __new__(meta, name, bases, space):
        made = super().__new__(meta, name, bases, space)
        meta.known.append(name)
        return made
    @property
    def width(cls):
        return len(cls.__name__)

class Registered(metaclass=Registry):
    pass

class Base(abc.ABC):
    @abc.abstractmethod
    def apply(self, x): ...
    @classmethod
    def make(cls, *args):
        return cls(*args)
    @staticmethod
    def twice(x):
        return x * 2

class Plus(Base):
    def __init__(self, by=1):
        self.by = by
    def apply(self, x):
        return x + self.by

class Mixin:
    def apply(self, x):
        return super().apply(x) * 2

class Both(Mixin, Plus):
    pass

OBJECT = Plus(2)

class Tree:
    def __init__(self, value, *children):
        self.value, self.children = value, children
    def walk(self):
        yield self.value
        for child in self.children:
            yield from child.walk()

ROOT = Tree(1, Tree(2), Tree(3, Tree(4)))

class Counter3:
    def __init__(self, n):
        self.n = n
    def __iter__(self):
        self.i = 0
        return self
    def __next__(self):
        if self.i >= self.n:
            raise StopIteration
        self.i += 1
        return self.i

# --- generators, contexts, exceptions

def running(xs):
    total = 0
    for x in xs:
        total = total + x
        got = yield total
        if got is not None:
            total = total * got

def endless():
    i = 0
    while True:
        yield i
        i += 1

TICKS, STREAM = itertools.count(), endless()

@contextlib.contextmanager
def rate_of(value):
    before = CONF.rate
    CONF.rate = value
    try:
        yield value
    finally:
        CONF.rate = before

class Guarded:
    def __init__(self, *kinds):
        self.kinds = kinds
    def __enter__(self):
        LOG.append("enter")
        return self
    def __exit__(self, kind, error, trace):
        LOG.append("exit" if kind is None else kind.__name__)
        return kind is not None and issubclass(kind, self.kinds)

class Wrong(Exception):
    def __init__(self, text, code=0):
        super().__init__(text)
        self.code = code

def checked(x, limit):
    if x.shape[-1] > limit:
        raise Wrong(f"{x.shape[-1]} is above {limit}", code=limit)
    return x

LOCAL = threading.local()
LOCAL.value = 2
VARIABLE = __import__("contextvars").ContextVar("variable", default=3)

# --- torch: functions, subclasses, modules, optimizers

class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, k):
        ctx.save_for_backward(x)
        ctx.k = k
        return x ** 3 * k
    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return 3 * x ** 2 * grad * ctx.k, None

class Clamp(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return x.clamp(-1, 1), x > 0
    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.mark_non_differentiable(output[1])
    @staticmethod
    def backward(ctx, grad, _):
        return grad * 2

class Tagged(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        LOG.append(getattr(func, "__name__", "?"))
        return super().__torch_function__(func, types, args, kwargs or {})

class Quiet(torch.Tensor):
    def twice(self):
        return self * 2

class Layer(nn.Module):
    def __init__(self, n=4):
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(-1, 1, n))
        self.register_buffer("count", torch.zeros(()))
        self.scale = 2.0
        self.last = None
        self.drop = nn.Dropout(0.5)
    def forward(self, x, k=1):
        self.count += 1
        if self.training:
            x = self.drop(x)
        self.last = x.shape
        return x * self.weight * self.scale * k

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])
        self.norm = nn.LayerNorm(4)
        self.by_name = nn.ModuleDict({"act": nn.GELU(), "lin": nn.Linear(4, 4, bias=False)})
        self.gains = nn.ParameterList([nn.Parameter(torch.ones(4)), nn.Parameter(torch.zeros(4))])
        self.batch = nn.BatchNorm1d(4)
        self.register_buffer("average", torch.zeros(4), persistent=False)
    def forward(self, x):
        for i, layer in enumerate(self.layers):
            x = x + layer(x) * self.gains[i]
        x = self.by_name["act"](self.norm(x))
        with torch.no_grad():
            self.average.mul_(0.9).add_(x.reshape(-1, 4).mean(0), alpha=0.1)
        return self.by_name["lin"](x) + self.average

torch.manual_seed(5)
L, NET = Layer(), Net()
SEQ = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
CELL, HEADS = nn.GRU(4, 4), nn.MultiheadAttention(4, 2)
EMBED = nn.Embedding(10, 4)
SGD = torch.optim.SGD(SEQ.parameters(), lr=0.1, momentum=0.9)
ADAM = torch.optim.AdamW(L.parameters(), lr=0.01)
SCHEDULE = torch.optim.lr_scheduler.StepLR(SGD, 2)
EMA = [p.detach().clone() for p in SEQ.parameters()]
DRAWS = np.random.default_rng(3)
GENERATOR = torch.Generator().manual_seed(4)
ARRAY = np.arange(4, dtype=np.float32)

def hook_forward(module, args, result):
    LOG.append("hook")
    return result * 2

def hook_before(module, args):
    return (args[0] + 1, *args[1:])
"""
