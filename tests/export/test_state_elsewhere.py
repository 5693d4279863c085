"""State that calls change and that lies elsewhere than in a model's own attributes: on its tensors, in classes and
modules, in the environment, in context variables. A warning names it where the second call would be another
program."""

from __future__ import annotations

import collections
import contextvars
import copy
import os
import warnings

import pytest
import torch

import tintype
from tests.export import counting_elsewhere
from tintype import LostStateWarning

X = torch.ones(2)


class Settings:
    """An object that models hold, with state in its class."""

    count = 0
    seen: list[int] = []
    only = None

    def next(self):
        type(self).count += 1
        return self.count

    def note(self):
        self.seen.append(1)
        return len(self.seen)

    @classmethod
    def instance(cls):
        if cls.only is None:
            cls.only = cls()
        return cls.only

    @staticmethod
    def counted():
        Settings.seen.append(1)
        return len(Settings.seen)


class Model(torch.nn.Module):
    def __init__(self, number):
        super().__init__()
        self.number = number
        self.weight = torch.nn.Parameter(torch.ones(2))
        self.weight.table = {"n": 0}
        self.register_buffer("shift", torch.zeros(2))
        self.shift.count = 0
        self.settings = Settings()
        self.held = {"tensor": torch.ones(2)}

    def forward(self, x):
        return x * self.weight * self.number(self)


NAME = "TINTYPE_TESTS_COUNT"
VARIABLE: contextvars.ContextVar[int] = contextvars.ContextVar("variable", default=0)
UNSET: contextvars.ContextVar[int] = contextvars.ContextVar("unset")
COUNTER: collections.Counter[str] = collections.Counter()


def on_a_buffer(model):
    model.shift.count += 1
    return model.shift.count


def new_on_a_parameter(model):
    model.weight.calls = getattr(model.weight, "calls", 0) + 1
    return model.weight.calls


def in_a_table_on_a_parameter(model):
    model.weight.table["n"] += 1
    return model.weight.table["n"]


def on_a_tensor_in_a_table(model):
    model.held["tensor"].calls = getattr(model.held["tensor"], "calls", 0) + 1
    return model.held["tensor"].calls


def in_the_class_of_an_object(model):
    return model.settings.next()


def in_a_list_of_the_class_of_an_object(model):
    return model.settings.note()


def new_in_its_class(model):
    if hasattr(type(model), "was_called"):
        return 2
    type(model).was_called = True
    return 1


def in_an_only_instance(model):
    settings = Settings.instance()
    settings.calls = getattr(settings, "calls", 0) + 1
    return settings.calls


def by_a_static_method(model):
    return Settings.counted()


def in_a_module_function(model):
    return counting_elsewhere.count()


def in_a_list_of_a_module(model):
    counting_elsewhere.SEEN.append(1)
    return len(counting_elsewhere.SEEN)


def in_an_object_of_a_module(model):
    counting_elsewhere.OBJECT.count += 1
    return counting_elsewhere.OBJECT.count


def in_the_environment(model):
    os.environ[NAME] = str(int(os.environ.get(NAME, "0")) + 1)
    return int(os.environ[NAME])


def by_an_update_of_the_environment(model):
    found = int(os.getenv(NAME, "0")) + 1
    os.environ.update({NAME: str(found)})
    return found


def in_a_context_variable(model):
    VARIABLE.set(VARIABLE.get() + 1)
    return VARIABLE.get()


def in_a_counter(model):
    COUNTER["n"] += 1
    return COUNTER["n"]


COUNTS = {
    on_a_buffer: "'count' of a Tensor: 0 became 1",
    new_on_a_parameter: "'calls' of a Parameter: <nothing> became 1",
    in_a_table_on_a_parameter: "'n' of a dict: 0 became 1",
    on_a_tensor_in_a_table: "'calls' of a Tensor: <nothing> became 1",
    in_the_class_of_an_object: "'count' of Settings: 0 became 1",
    in_a_list_of_the_class_of_an_object: r"a list: \[\] became \[1\]",
    new_in_its_class: "'was_called' of Model: <nothing> became True",
    in_an_only_instance: "'calls' of a Settings: <nothing> became 1",
    by_a_static_method: r"a list: \[\] became \[1\]",
    in_a_module_function: "the global 'COUNT': 0 became 1",
    in_a_list_of_a_module: r"a list: \[\] became \[1\]",
    in_an_object_of_a_module: "'count' of a SimpleNamespace: 0 became 1",
    in_the_environment: rf"os.environ\['{NAME}'\]: None became '1'",
    by_an_update_of_the_environment: rf"os.environ\['{NAME}'\]: None became '1'",
    in_a_context_variable: "the context variable 'variable': .* became 1",
    in_a_counter: r"a Counter: Counter\(\) became Counter\({'n': 1}\)",
}


@pytest.fixture(autouse=True)
def nothing_counted():
    """Every test begins and ends without counts."""

    def clear():
        counting_elsewhere.COUNT, counting_elsewhere.OBJECT.count = 0, 0
        counting_elsewhere.SEEN.clear()
        Settings.count, Settings.only = 0, Settings()
        Settings.seen.clear()
        COUNTER.clear()
        os.environ.pop(NAME, None)
        if "was_called" in vars(Model):
            del Model.was_called

    clear()
    yield
    clear()


def state_of(model):
    """Everything that the functions count in."""
    return copy.deepcopy(
        (
            vars(model.weight),
            vars(model.shift),
            vars(model.held["tensor"]),
            {name: value for name, value in vars(Settings).items() if name in ("count", "seen")},
            vars(Settings.only),
            "was_called" in vars(Model),
            (counting_elsewhere.COUNT, counting_elsewhere.SEEN, vars(counting_elsewhere.OBJECT)),
            os.environ.get(NAME),
            VARIABLE.get(),
            COUNTER,
        )
    )


@pytest.mark.parametrize("number", COUNTS, ids=lambda number: number.__name__)
@pytest.mark.parametrize("export", [tintype.export, tintype.export_for_training])
def test_counts_are_told_and_put_back(number, export):
    model = Model(number)
    before = state_of(model)
    with pytest.warns(LostStateWarning, match=f"second call(.|\n)*{COUNTS[number]}"):
        program = export(model, (X,))
    assert state_of(model) == before
    module = program.module()
    assert [module(X).tolist() for _ in range(2)] == [[1.0, 1.0], [1.0, 1.0]]
    context = contextvars.copy_context()
    assert [context.run(model, X).tolist() for _ in range(2)] == [[1.0, 1.0], [2.0, 2.0]]


def notes_on_a_parameter(model):
    model.weight.was_used = True
    return 2


def notes_in_a_class(model):
    Settings.count += 1
    return 2


def notes_in_the_environment(model):
    os.environ[NAME] = "used"
    return 2


def sets_for_the_time_of_a_call(model):
    token = VARIABLE.set(2)
    try:
        return VARIABLE.get()
    finally:
        VARIABLE.reset(token)


def reads_the_environment(model):
    return 2 if os.environ.get(NAME) is None else 3


NOTES = [
    notes_on_a_parameter, notes_in_a_class, notes_in_the_environment, sets_for_the_time_of_a_call,
    reads_the_environment,
]  # fmt: skip


@pytest.mark.parametrize("number", NOTES, ids=lambda number: number.__name__)
def test_what_makes_no_difference_is_not_told(number):
    model = Model(number)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        program = tintype.export(model, (X,))
    assert torch.equal(program.module()(X), model(X))
    assert not hasattr(Model(number).weight, "was_used")


class KeepsTensors(torch.nn.Module):
    """Puts tensors on its own tensors."""

    def __init__(self, reads=False):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(2))
        self.register_buffer("shift", torch.zeros(2))
        self.shift.kept = {}
        self.reads = reads

    def forward(self, x):
        before = getattr(self.weight, "cache", None) if self.reads else None
        self.weight.cache = x * 2
        self.shift.kept["last"] = x
        return x * self.weight if before is None else x * before


class Guarded(type):
    """A class of classes that counts what is assigned to them."""

    assigned: list[str] = []

    def __setattr__(cls, name, value):
        Guarded.assigned.append(name)
        super().__setattr__(name, value)


class Watched(metaclass=Guarded):
    count = 0

    def next(self):
        type.__setattr__(Watched, "count", self.count + 1)
        type.__setattr__(Watched, "seen", True)
        return self.count


def test_what_is_put_back_into_a_class_is_no_assignment_to_its_class():
    model = Model(lambda model: model.settings.next())
    model.settings = Watched()
    with pytest.warns(LostStateWarning, match="'count' of Watched: 0 became 1"):
        tintype.export(model, (X,))
    assert Watched.count == 0 and not hasattr(Watched, "seen") and Guarded.assigned == []


def test_no_tensor_of_a_capture_stays_on_a_parameter():
    model = KeepsTensors()
    with pytest.warns(LostStateWarning, match="'cache' of a Parameter"):
        program = tintype.export(model, (X,))
    assert not hasattr(model.weight, "cache") and model.shift.kept == {}
    assert torch.equal(program.module()(X), model(X))


def test_a_tensor_on_a_parameter_that_the_next_call_reads_is_refused():
    model = KeepsTensors(reads=True)
    with pytest.raises(tintype.StateChangedError, match="attribute 'cache' of a Parameter"):
        tintype.export(model, (X,))
    assert not hasattr(model.weight, "cache") and model.shift.kept == {}


def test_a_tensor_in_a_context_variable_is_refused():
    def keeps(x):
        UNSET.set(x * 2)
        return x

    with pytest.raises(tintype.StateChangedError, match="ContextVar"):
        contextvars.copy_context().run(tintype.export, keeps, (X,))


def test_attributes_of_tensors_count_for_real_in_compiled_functions():
    model = Model(on_a_buffer)
    compiled = tintype.aot.module(model)
    assert [compiled(X).tolist() for _ in range(3)] == [[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]]
