"""Setters, iterators and compiled functions of the user's that a compiled function calls: what they write is seen."""

import copy

import pytest
import torch

import tintype

pytestmark = pytest.mark.direct(reason="compiled functions are not exported")
X = torch.ones(1)


class Stepping(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self._steps = 1

    @property
    def steps(self):
        return self._steps

    @steps.setter
    def steps(self, value):
        self._steps = value

    def forward(self, x):
        self.steps = self.steps + 1
        return x * self.steps


class ByName(Stepping):
    def forward(self, x):
        self.__setattr__("_steps", self._steps + 1)
        return x * self._steps


class ByBuiltin(Stepping):
    def forward(self, x):
        setattr(self, "steps", self.steps + 1)  # noqa: B010
        return x * self._steps


class Overriding(Stepping):
    written = 0

    def __setattr__(self, name, value):
        if name == "_steps":
            Overriding.written += 1
        super().__setattr__(name, value)


class Logging:
    def __init__(self):
        self.__dict__["log"] = []
        self._steps = 1

    def __setattr__(self, name, value):
        self.log.append(name)
        object.__setattr__(self, name, value)

    def forward(self, x):
        setattr(self, "_steps", self._steps + 1)  # noqa: B010
        self.other = x
        return x * self._steps + len(self.log)


class Deleting:
    def __init__(self):
        self._steps = 1

    @property
    def steps(self):
        return self._steps

    @steps.deleter
    def steps(self):
        self._steps = self._steps + 1

    def forward(self, x):
        delattr(self, "steps")
        return x * self.steps


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("kind", [Stepping, ByName, ByBuiltin, Overriding, Logging, Deleting])
def test_what_a_setter_writes_is_read_in_the_same_call(kind, backend):
    def run(compiler):
        Overriding.written = 0
        owner = kind()
        step = compiler(owner if isinstance(owner, torch.nn.Module) else owner.forward)
        results = [step(X).item() for _ in range(5)]
        owner._steps = 40
        return results, step(X).item(), owner._steps, getattr(owner, "log", None), Overriding.written

    assert run(lambda found: tintype.compile(found, backend=backend)) == run(lambda found: found)


class Down:
    def __init__(self, count):
        self.count = count

    def __iter__(self):
        return self

    def __next__(self):
        if self.count <= 0:
            raise StopIteration
        self.count -= 1
        return self.count


USES = {
    "next and a loop": lambda x, it: (next(it, None), next(it, None), [x * item for item in it]),
    "default": lambda x, it: (x, next(it, 5), next(it, 6), next(it, 7)),
    "list": lambda x, it: (x, list(it), it.count),
    "sum": lambda x, it: (x * sum(it), it.count),
    "tuple and zip": lambda x, it: (x, tuple(zip(it, [7, 8, 9, 10, 11, 12])), it.count),
    "map": lambda x, it: (x, list(map(abs, it))),
    "enumerate": lambda x, it: [x * item + at for at, item in enumerate(it, 3)],
    "any": lambda x, it: (x, any(item == 2 for item in it), list(it)),
    "max": lambda x, it: (x, max(it, default=-1)),
    "iter": lambda x, it: (x, iter(it) is it, next(iter(it), None)),
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("dynamic", [None, True])
def test_rounds_of_an_iterator_of_the_users(use, dynamic):
    function = USES[use]
    compiled = tintype.compile(function, dynamic=dynamic)
    for count in (3, 3, 5, 2, 0, 4, 6, 1):
        mine, theirs = Down(count), Down(count)
        assert str(compiled(X, mine)) == str(function(X, theirs)), count
        assert mine.count == theirs.count and type(mine.count) is int


def test_enumerate_from_a_number_that_varies():
    for function in (
        lambda x, start: (x, list(enumerate([7, 8], start))),
        lambda x, start: (x, list(enumerate([7, 8], start=start))),
        lambda x, start: [x * at for at, _ in enumerate((1, 2), start + 1)],
    ):
        compiled = tintype.compile(function)
        for start in (1, 2, 3, 4, 2):
            assert str(compiled(X, start)) == str(function(X, start))


def _nested_cell(compiler):
    counts = [0]
    total = 0

    @compiler
    def inner(x):
        nonlocal total
        counts[0] += 1
        total += 2
        return x * (counts[0] + total)

    outer = compiler(lambda x: inner(x) + 1)
    return [(called(X).item(), counts[0], total) for called in (outer, inner, outer, inner, outer, outer, inner)]


def _nested_module(compiler):
    class Counting(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.count = 0

        def forward(self, x):
            self.count += 1
            return x * self.count

    module = compiler(Counting())
    outer = compiler(lambda x: module(x) + 1)
    return [(called(X).item(), module.count) for called in (outer, module, outer, outer, module, outer)]


def _nested_replaced(compiler):
    functions = [compiler(lambda x: x + 1), compiler(lambda x: x + 2)]
    table = {"inner": functions[0]}
    outer = compiler(lambda x: table["inner"](x))
    results = [outer(X).item() for _ in range(2)]
    table["inner"] = functions[1]
    return [*results, outer(X).item(), outer(X).item()]


def _nested_method(compiler):
    class Holding:
        def __init__(self):
            self.count = 0

        def step(self, x):
            self.count += 1
            return x * self.count

    holding = Holding()
    inner = compiler(holding.step)
    outer = compiler(lambda x: inner(x) + holding.count)
    return [(called(X).item(), holding.count) for called in (outer, inner, outer, outer, inner, outer)]


@pytest.mark.parametrize("case", [_nested_cell, _nested_module, _nested_replaced, _nested_method])
def test_effects_of_a_compiled_function_in_a_compiled_function(case):
    assert case(tintype.compile) == case(lambda function: function)


def test_copies_of_compiled_modules_have_dictionaries_of_their_own():
    module = Stepping()
    compiled = tintype.compile(module)
    compiled(X), compiled(X)
    other = copy.copy(compiled)
    other._steps = 100
    assert (other._steps, compiled._steps, module._steps) == (100, 3, 3)
    assert other(X).item() == 101 and compiled(X).item() == 4
    assert copy.deepcopy(compiled)(X).item() == 5 and compiled._steps == 4
