"""Attributes and globals that a run did not find, or found in a class, and that are there at the next call."""

import builtins
import collections
import dataclasses
import functools
import itertools
import types

import pytest
import torch

import tintype

pytestmark = pytest.mark.direct(reason="compiled functions are not exported")

nn = torch.nn
X = torch.ones(2)


def _caught(owner, x):
    try:
        return x + owner.b
    except AttributeError:
        return x


READS = {
    "hasattr": lambda owner, x: x + owner.b if hasattr(owner, "b") else x,
    "getattr": lambda owner, x: x + getattr(owner, "b", 0),
    "getattr of getattr": lambda owner, x: x * getattr(getattr(owner, "inner", owner), "b", 4),
    "caught": _caught,
    "dictionary": lambda owner, x: x if "b" not in owner.__dict__ else x * 3,
    "get of dictionary": lambda owner, x: x * owner.__dict__.get("b", 2),
}


class Falling:
    def __getattr__(self, name):
        if name == "b":
            return 12.0
        raise AttributeError(name)


class FallingModule(nn.Module):
    def __getattr__(self, name):
        return 11.0 if name == "b" else super().__getattr__(name)


class Refusing:
    @property
    def b(self):
        if "b" in self.__dict__:
            return self.__dict__["b"]
        raise AttributeError("b")

    def __getattr__(self, name):
        return self.__dict__.get("zz", 21.0)


class Described:
    class Descriptor:
        def __get__(self, owner, kind):
            return 31.0

    b = Descriptor()


def _function():
    def function():
        pass

    return function


OWNERS = {
    "module": lambda: type("M", (nn.Module,), {})(),
    "module with a class attribute": lambda: type("M", (nn.Module,), {"b": 2.0})(),
    "module with __getattr__": lambda: type("M", (FallingModule,), {})(),
    "layer": lambda: type("L", (nn.Linear,), {})(2, 2),
    "object": lambda: type("K", (), {})(),
    "object with a class attribute": lambda: type("K", (), {"b": 2.0})(),
    "object with an attribute of a base": lambda: type("K", (type("B", (), {"b": 3.0}),), {})(),
    "object with __getattr__": lambda: type("K", (Falling,), {})(),
    "property that fails": lambda: type("K", (Refusing,), {})(),
    "descriptor": lambda: type("K", (Described,), {})(),
    "slot": lambda: type("K", (), {"__slots__": ("b",)})(),
    "slots and a dictionary": lambda: type("K", (), {"__slots__": ("c", "__dict__")})(),
    "data class": lambda: dataclasses.make_dataclass("D", [("a", int, 1)])(),
    "namespace": types.SimpleNamespace,
    "list": lambda: type("L", (list,), {})(),
    "dict": lambda: type("D", (dict,), {})(),
    "exception": lambda: ValueError(1),
    "class": lambda: type("K", (), {}),
    "class of a metaclass": lambda: type("Meta", (type,), {})("K", (), {}),
    "Python module": lambda: types.ModuleType("somebodys"),
    "function": _function,
}
WRITES = {
    "set": lambda owner: setattr(owner, "b", 5.0),
    "put into the dictionary": lambda owner: owner.__dict__.__setitem__("b", 6.0),
    "set natively": lambda owner: object.__setattr__(owner, "b", 4.0),
    "set on the class": lambda owner: setattr(type(owner), "b", 8.0),
    "a buffer": lambda owner: owner.register_buffer("b", X * 5),
    "a parameter": lambda owner: setattr(owner, "b", nn.Parameter(X * 7)),
    "put into the buffers": lambda owner: owner._buffers.__setitem__("b", X * 3),
}


def _done(change, owner):
    """Whether a change was made: not everything can be done to every object."""
    try:
        change(owner)
    except (AttributeError, TypeError, KeyError):
        return False
    return True


@pytest.mark.parametrize("kind", OWNERS)
def test_attributes_that_appear_later_are_found(kind):
    for read, name in itertools.product(READS, WRITES):
        owner, write = OWNERS[kind](), WRITES[name]
        if "dictionary" in read and not hasattr(owner, "__dict__"):
            continue
        take = functools.partial(READS[read], owner)
        compiled = tintype.compile(take)
        for change in (None, write, lambda owner: delattr(owner, "b"), write):
            if change is not None and not _done(change, owner):
                break
            assert torch.equal(compiled(X), take(X)), (kind, read, name)


class Lazy(nn.Module):
    def forward(self, x):
        if not hasattr(self, "n"):
            self.register_buffer("n", torch.zeros(()))
        self.n.add_(1)
        return x + self.n


class LazyObject:
    def forward(self, x):
        if getattr(self, "n", None) is None:
            self.n = torch.zeros(())
        try:
            self.steps += 1
        except AttributeError:
            self.steps = 1
        self.n.add_(1)
        return x + self.n + self.steps


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_state_that_the_program_makes_in_its_first_call_is_kept(backend):
    compiled = tintype.compile(Lazy(), backend=backend)
    assert [compiled(torch.zeros(1)).item() for _ in range(4)] == [1, 2, 3, 4]
    compiled = tintype.compile(LazyObject().forward, backend=backend)
    assert [compiled(torch.zeros(1)).item() for _ in range(4)] == [2, 4, 6, 8]


def test_a_method_that_an_attribute_of_the_module_hides():
    class Layered(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(2, 2)
            self.register_buffer("b", torch.ones(2))

        def helper(self, x):
            return x + 1

        def forward(self, x):
            return self.helper(self.inner(x) * self.b)

    module = Layered()
    compiled = tintype.compile(module)
    compiled(X), compiled(X)
    module.helper = lambda x: x * 5
    assert torch.equal(compiled(X), module(X))
    module.b = torch.zeros(2)
    assert torch.equal(compiled(X), module(X))


def test_what_is_computed_by_a_metaclass_or_a_module_is_asked_again(monkeypatch):
    class Meta(type):
        @property
        def scale(cls):
            return cls._scale

        def __getattr__(cls, name):
            return cls._scale * 10

    class Scaled(metaclass=Meta):
        _scale = 2

    scales = types.ModuleType("scales")
    scales.found = {"factor": 3}
    scales.__getattr__ = lambda name: scales.found[name]
    for read in (lambda x: x * Scaled.scale, lambda x: x * Scaled.other, lambda x: x * scales.factor):
        compiled = tintype.compile(read)
        for scale in (2, 2, 5, 7):
            Scaled._scale = scales.found["factor"] = scale
            assert torch.equal(compiled(X), read(X))


def test_bases_that_are_replaced():
    class One:
        def take(self, x):
            return x + 1

    class Two:
        def take(self, x):
            return x - 100

    class Taking(One):
        def forward(self, x):
            return self.take(x) * 2

    taking = Taking()
    compiled = tintype.compile(taking.forward)
    compiled(X), compiled(X)
    Taking.__bases__ = (Two,)
    assert torch.equal(compiled(X), taking.forward(X))


# --- globals -------------------------------------------------------------------------------------------------


def _caught_global(x):
    try:
        return x * somewhere
    except NameError:
        return x


def _of_class_body(x):
    class Holder:
        try:
            factor = somewhere
        except NameError:
            factor = 4

    return x * Holder.factor


GLOBALS = {
    "caught": _caught_global,
    "get": lambda x: x * globals().get("somewhere", 1),
    "contains": lambda x: x * 5 if "somewhere" in globals() else x,
    "item": lambda x: x * globals()["somewhere"] if "somewhere" in globals() else x,
    "class body": _of_class_body,
    "hasattr of the module": lambda x: x * 3 if hasattr(_here, "somewhere") else x,
    "dictionary of the module": lambda x: x * _here.__dict__.get("somewhere", 7),
}


_here = types.ModuleType("here")


@pytest.mark.parametrize("read", GLOBALS)
@pytest.mark.parametrize("place", ["globals", "builtins", "module"])
def test_globals_that_appear_later_are_found(read, place):
    function = GLOBALS[read]
    tables = {"globals": globals(), "builtins": vars(builtins), "module": vars(_here)}
    compiled, table = tintype.compile(function), tables[place]
    try:
        for value in (None, None, 3, 3, 4, None, 5):
            table.pop("somewhere", None)
            if value is not None:
                table["somewhere"] = value
            assert torch.equal(compiled(X), function(X)), (read, place, value)
    finally:
        table.pop("somewhere", None)


def test_globals_that_the_program_writes_through_their_dictionary():
    def count(x):
        globals()["counted"] = globals().get("counted", 0) + 1
        return x * counted  # noqa: F821

    compiled = tintype.compile(count)
    try:
        assert [compiled(X)[0].item() for _ in range(5)] == [1, 2, 3, 4, 5]
    finally:
        globals().pop("counted", None)


# --- guards look, and nothing else -----------------------------------------------------------------------------


class Loud(dict):
    calls = 0

    def __missing__(self, key):
        Loud.calls += 1
        return 7


DICTIONARIES = {
    "defaultdict": lambda: collections.defaultdict(int, a=3),
    "__missing__": lambda: Loud(a=3),
    "Counter": lambda: collections.Counter(a=3),
    "OrderedDict": lambda: collections.OrderedDict(a=3),
    "mapping": lambda: types.MappingProxyType({"a": 3}),
}


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("kind", DICTIONARIES)
def test_guards_put_nothing_into_dictionaries_and_call_no_method_of_theirs(kind, backend):
    def items(x, given):
        return {key: x * value for key, value in given.items()}

    def single(x, given):
        return [x * given["a"], x * given["b"] if "b" in given else x]

    for function in (items, single):
        compiled = tintype.compile(function, backend=backend)
        for given in ({"a": 1, "b": 2}, {"a": 1, "b": 2}, None, None, {"a": 1}, None):
            given = DICTIONARIES[kind]() if given is None else given
            before, Loud.calls = dict(given), 0
            result = compiled(X, given)
            assert dict(given) == before and Loud.calls == 0
            assert str(result) == str(function(X, given))


def test_guards_call_no_property_of_another_class():
    class Slotted:
        __slots__ = ("size",)

    class Asked:
        asked = 0

        @property
        def size(self):
            Asked.asked += 1
            return 2

        def __len__(self):
            Asked.asked += 1
            return 1

    slotted = Slotted()
    slotted.size = 3
    compiled = tintype.compile(lambda x, given: x * given.size if type(given) is Slotted else x)
    for given in (slotted, slotted, Asked(), [1, 2], Asked()):
        compiled(X, given)
    assert Asked.asked == 0


@pytest.mark.parametrize("make", [lambda: collections.defaultdict(int), lambda: Loud(), collections.Counter])
def test_items_that_a_dictionary_makes(make):
    def run(compiler):
        known = make()
        Loud.calls = 0

        def count(x):
            first = known["b"]
            known["b"] += 1
            return x * known["b"] + first + known["zz"], len(known), Loud.calls

        counted, results = compiler(count), []
        for change in (None, None, None, lambda: known.update(zz=4), None, known.clear, None):
            if change is not None:
                change()
            results.append((str(counted(X)), dict(known), Loud.calls))
        return results

    assert run(tintype.compile) == run(lambda function: function)
