"""The machine against native Python: each function is called both ways."""

from __future__ import annotations

import contextlib
import functools
import gc
import sys
import traceback
import types
import warnings
import weakref

import pytest

from tintype.interpret import NULL, RETURNED, STOPPED, Machine, Policy
from tintype.interpret.flow import flow_of
from tintype.interpret.generators import frame_of, generator_of


class Seeing(Policy):
    """Notes which functions are interpreted."""

    def __init__(self) -> None:
        self.seen: set[str] = set()

    def interprets(self, function):
        self.seen.add(function.__name__)
        return super().interprets(function)


def outcome(call, function, *arguments, **keywords):
    try:
        return "returned", call(function, *arguments, **keywords)
    except BaseException as error:
        return type(error), str(error)


def check(function, *arguments, **keywords):
    natively = outcome(lambda f, *a, **k: f(*a, **k), function, *arguments, **keywords)
    policy = Seeing()
    assert outcome(Machine(policy).call, function, *arguments, **keywords) == natively
    assert function.__name__ in policy.seen
    return policy.seen


def all_kinds(a, b=2, /, c=3, *rest, d, e=5, **named):
    return a, b, c, rest, d, e, named


def few(a, b=1):
    return a, b


@pytest.mark.parametrize(
    ("function", "arguments", "keywords"),
    [
        (few, (1,), {}),
        (few, (), {"a": 1, "b": 2}),
        (few, (), {}),
        (few, (1, 2, 3), {}),
        (few, (1,), {"a": 2}),
        (few, (1,), {"c": 2}),
        (all_kinds, (1,), {"d": 4}),
        (all_kinds, (1, 2, 3, 4, 5), {"d": 4, "g": 6}),
        (all_kinds, (1,), {}),
        (all_kinds, (), {"a": 1, "d": 2}),
        (all_kinds, (1,), {"d": 4, "b": 6}),
    ],
)
def test_arguments_are_bound_as_python_does(function, arguments, keywords):
    check(function, *arguments, **keywords)


def test_keywords_that_are_no_names():
    def function():
        return few(**{"a": 1, 2: 3})

    check(function)


def test_arguments_that_are_given_twice_name_the_function():
    def function(first, second):
        return few(**first, **second)

    check(function, {"a": 1}, {"a": 2})


def test_classes_of_c_that_are_not_ready():
    """In a fresh process: the first who asks makes them so."""
    import subprocess

    program = """
import tintype.interpret
def function():
    return [line for _, _, line in function.__code__.co_lines()]
assert tintype.interpret.Machine().call(function) == function()
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_control_flow():
    def function(n):
        found = []
        for i in range(n):
            if i == 2:
                continue
            if i > 5:
                break
            while True:
                found.append(i)
                if len(found) % 2:
                    break
        else:
            found.append("else")
        return found, [x for x in found if x], {x: y for x, y in enumerate(found) if y}, {*found}

    check(function, 4)
    check(function, 9)


def test_return_in_finally_and_in_loops():
    def function(x):
        for i in range(3):
            try:
                if x == i:
                    return "early", i
                if x == 7:
                    raise KeyError(x)
            except KeyError as error:
                return "caught", error.args
            finally:
                if x == 1:
                    return "finally"  # noqa: B012
        return "late"

    for x in (0, 1, 5, 7):
        check(function, x)


def test_contexts_and_the_handled_exception():
    def function():
        try:
            try:
                raise ValueError(1)
            except ValueError as first:
                assert sys.exc_info()[1] is first
                try:
                    raise KeyError(2) from None
                except KeyError as second:
                    assert second.__context__ is first
                    assert sys.exception() is second
                    assert "KeyError: 2" in traceback.format_exc()
                assert sys.exception() is first
                {}["missing"]
        except KeyError as third:
            found = type(third.__context__)
        assert sys.exception() is None
        return found

    check(function)


def test_exception_groups():
    def function():
        caught = []
        try:
            raise ExceptionGroup("all", [ValueError(1), KeyError(2), TypeError(3)])
        except* ValueError as group:
            caught.append(group.exceptions[0].args)
        except* KeyError as group:
            caught.append(group.exceptions[0].args)
            raise RuntimeError("new") from None
        return caught

    kind, text = outcome(Machine().call, function)
    assert (kind, text) == outcome(lambda f: f(), function)


def test_with_and_context_managers():
    events = []

    @contextlib.contextmanager
    def noted(name, swallows=False):
        events.append(("enter", name))
        try:
            yield name
        except ValueError:
            events.append(("error", name))
            if not swallows:
                raise
        finally:
            events.append(("exit", name))

    def function(swallows):
        events.clear()
        with noted("a", swallows) as a, noted("b") as b:
            events.append((a, b))
            raise ValueError(a + b)
        return list(events)

    seen = check(function, True)
    assert {"noted", "__enter__", "__exit__"} <= seen
    check(function, False)


def test_classes_super_and_descriptors():
    class Twice:
        def __get__(self, instance, owner):
            return instance.x * 2

    def function():
        class Meta(type):
            def __new__(cls, name, bases, namespace, **named):
                made = super().__new__(cls, name, bases, namespace)
                made.named = named
                return made

        class Base(metaclass=Meta, flag=1):
            twice = Twice()

            def __init__(self, x):
                self.x = x

            @property
            def negative(self):
                return -self.x

            @negative.setter
            def negative(self, value):
                self.x = -value

            @classmethod
            def make(cls, x):
                return cls(x)

            def __getattr__(self, name):
                if name.startswith("n_"):
                    return name[2:]
                raise AttributeError(name)

            def __getitem__(self, key):
                return key, self.x

            def __call__(self, y):
                return self.x + y

        class Derived(Base):
            def __init__(self, x):
                super().__init__(x + 1)

        made = Derived.make(3)
        made.negative = 10
        return made.x, made.twice, made.negative, made.n_name, made[1:2], made(5), Derived.named, Base.named

    seen = check(function)
    assert {"__get__", "negative", "__getattr__", "__getitem__", "__call__", "make", "Base"} <= seen


def test_match():
    class Point:
        __match_args__ = ("x", "y")

        def __init__(self, x, y):
            self.x, self.y = x, y

    def function(value):
        match value:
            case Point(0, y):
                return "on y", y
            case Point(x=x) if x > 5:
                return "far", x
            case [first, *rest]:
                return first, rest
            case {"kind": kind, **others}:
                return kind, others
            case str() | bytes():
                return "text"
            case None:
                return "none"
            case _:
                return "other"

    for value in (
        Point(0, 3),
        Point(9, 1),
        Point(1, 1),
        [1, 2, 3],
        (),
        {"kind": 1, "b": 2},
        {"b": 1},
        "x",
        b"",
        None,
        7,
    ):
        check(function, value)


def test_generators_are_generators():
    def numbers(n):
        try:
            for i in range(n):
                got = yield i
                if got:
                    yield got
        finally:
            events.append("closed")
        return "result"

    def delegating(n):
        result = yield from numbers(n)
        yield result

    events: list[str] = []

    def function():
        events.clear()
        generator = delegating(3)
        found = [isinstance(generator, types.GeneratorType), generator.__name__]
        found += [next(generator), generator.send("sent")]
        found += [
            sum(x for x in numbers(4)),
            max(numbers(3)),
            [*zip(numbers(2), numbers(3))],
            dict(enumerate(numbers(2))),
        ]
        try:
            generator.throw(ValueError("thrown"))
        except ValueError as error:
            found.append(str(error))
        other = numbers(5)
        next(other)
        other.close()
        left = numbers(2)
        next(left)
        del left
        return found, events[:]

    check(function)


def test_a_generator_keeps_the_exception_that_it_handles():
    def inside():
        try:
            raise ValueError("inner")
        except ValueError:
            yield sys.exception()
            yield sys.exception()

    def function():
        generator = inside()
        first = next(generator)
        outside = sys.exception()
        try:
            raise KeyError
        except KeyError as error:
            second = next(generator)
            assert sys.exception() is error
        return first is second, outside

    check(function)


def test_closures_and_cells():
    def function(n):
        def counter():
            nonlocal n
            n += 1
            return n

        made = [lambda i=i: i * n for i in range(3)]  # noqa: F821
        counter()
        values = [one() for one in made]
        del n
        try:
            counter()
        except NameError as error:
            values.append(str(error))
        return values

    check(function, 4)


def test_functions_that_native_code_calls_are_interpreted():
    def double(x):
        return 2 * x

    def add(x, y):
        return x + y

    def function():
        found = [*map(double, [1, 2])], sorted([3, 1], key=double), functools.reduce(add, [1, 2, 3])
        return found, functools.partial(add, 5)(6), max([1, 2], key=double)

    assert {"double", "add"} <= check(function)


def test_exec_eval_and_locals():
    def function(a):
        b = 2
        found = eval("a + b"), sorted(locals()), sorted(vars()), dir() == sorted(locals())
        namespace = {"a": a}
        exec("def inner():\n    return a * 2\nc = inner()", namespace)
        return found[:2], namespace["c"], "function" in globals()

    check(function, 3)


def test_frames_that_a_program_asks_for():
    def function():
        def inner():
            frame = sys._getframe(1)
            return frame.f_code.co_name, frame.f_globals is globals(), frame.f_back.f_code.co_name is not None

        return inner()

    found = Machine().call(lambda: function())
    assert found == ("function", True, True)


def test_warnings_name_the_users_line():
    def warns():
        warnings.warn("here", stacklevel=2)

    def function():
        warns()

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        Machine().call(function)
    assert caught[0].filename == __file__
    assert caught[0].lineno == function.__code__.co_firstlineno + 1


def test_tracebacks_show_the_users_lines():
    def inner(values):
        return values["missing"]

    def outer():
        return [inner({}) for _ in range(1)]

    with pytest.raises(KeyError) as caught:
        Machine().call(outer)
    entries = traceback.extract_tb(caught.value.__traceback__)
    lines = [(entry.name, entry.line) for entry in entries if "tintype/interpret" not in entry.filename]
    assert lines[-1] == ("inner", 'return values["missing"]')
    assert ("outer", "return [inner({}) for _ in range(1)]") in lines
    last = entries.index(next(entry for entry in entries if entry.name == "outer"))
    assert not any("tintype/interpret" in entry.filename for entry in entries[last:])


def test_a_caught_exception_has_no_line_of_the_machine():
    def fails():
        return 1 / 0

    def function():
        try:
            sorted([2, 1], key=lambda x: fails())
        except ZeroDivisionError as error:
            return traceback.extract_tb(error.__traceback__)

    entries = Machine().call(function)
    assert [entry.name for entry in entries] == ["function", "<lambda>", "fails"]


def test_recursion_ends_with_a_recursion_error():
    def endless(n):
        return endless(n + 1)

    def function():
        try:
            endless(0)
        except RecursionError as error:
            return str(error)

    assert "maximum recursion depth exceeded" in Machine().call(function)

    def deep(n):
        return 0 if n == 0 else 1 + deep(n - 1)

    assert Machine().call(deep, sys.getrecursionlimit() - 100) == sys.getrecursionlimit() - 100


def test_nothing_is_kept_longer_than_natively():
    class Thing:
        pass

    def function():
        thing = Thing()
        watched = weakref.ref(thing)
        try:
            raise ValueError(thing)
        except ValueError:
            pass
        for _ in [thing]:
            pass
        del thing, _
        return watched()

    gc.disable()
    try:
        assert Machine().call(function) is None
    finally:
        gc.enable()


def test_code_objects_die():
    from tintype.interpret import decode

    before = len(decode._known)
    for number in range(20):
        namespace: dict = {}
        exec(f"def function():\n    return {number}", namespace)
        assert Machine().call(namespace["function"]) == number
        flow_of(namespace["function"].__code__).loops()
    gc.collect()
    assert len(decode._known) < before + 20


# Policies.


def test_a_policy_says_what_is_interpreted():
    class OnlyOuter(Seeing):
        def interprets(self, function):
            return super().interprets(function) and function.__name__ == "outer"

    def inner():
        return [frame.f_code.co_name for frame, _ in traceback.walk_stack(sys._getframe())]

    def outer():
        return inner()

    assert "outer" not in Machine(OnlyOuter()).call(outer)[:1]
    assert "run" in Machine(OnlyOuter()).call(outer)


def test_every_read_and_write_can_be_heard():
    class Listening(Policy):
        def __init__(self):
            self.heard = []

        def on_read_global(self, frame, name, value):
            self.heard.append(("read global", name))
            return value

        def on_write_global(self, frame, name, value):
            self.heard.append(("write global", name, value is NULL))

        def on_read_attribute(self, frame, owner, name, value):
            self.heard.append(("read attribute", name))
            return value

        def on_write_attribute(self, frame, owner, name, value):
            self.heard.append(("write attribute", name, value is NULL))

        def on_read_item(self, frame, owner, key, value):
            self.heard.append(("read item", key))
            return value

        def on_write_item(self, frame, owner, key, value):
            self.heard.append(("write item", key, value is NULL))

        def on_read_cell(self, frame, cell, name, value):
            self.heard.append(("read cell", name))
            return value

        def on_write_cell(self, frame, cell, name, value):
            self.heard.append(("write cell", name, value is NULL))

        def on_native_call(self, frame, callable, arguments, keywords):
            self.heard.append(("call", callable.__name__))
            return callable(*arguments, **keywords)

    shared = 1
    thing = types.SimpleNamespace(a=1)
    items = {"k": 1}

    def function(thing, items):
        global _written
        nonlocal shared
        _written = thing.a
        thing.a = items["k"]
        del thing.a
        items["l"] = shared
        del items["l"]
        shared = len(items)
        del _written

    policy = Listening()
    Machine(policy).call(function, thing, items)
    assert policy.heard == [
        ("read attribute", "a"),
        ("write global", "_written", False),
        ("read item", "k"),
        ("write attribute", "a", False),
        ("write attribute", "a", True),
        ("read cell", "shared"),
        ("write item", "l", False),
        ("write item", "l", True),
        ("read global", "len"),
        ("call", "len"),
        ("write cell", "shared", False),
        ("write global", "_written", True),
    ]


class BothArms(Policy):
    """Runs both arms of a branch on a Question up to their join and merges what is live, as tensors will need it."""

    def __init__(self):
        self.merged = []

    def on_branch(self, frame, value, if_true, if_false):
        if not isinstance(value, Question):
            return if_true if value else if_false
        machine, flow = frame.machine, flow_of(frame.code)
        join = flow.join_of(frame.pc)
        arms = []
        for start in (if_true, if_false):
            arm = frame.copy()
            arm.pc = start - 1
            ended = machine.run_until(arm, frozenset({join}) if join >= 0 else frozenset())
            arms.append((ended, arm))
        (first, true), (second, false) = arms
        if first is RETURNED:
            assert second is RETURNED
            return machine.leave(frame, ("either", true.result, false.result))
        assert first is second is STOPPED
        live = flow.live_names(join)
        self.merged.append(sorted(live))
        for slot, name in enumerate(frame.decoded.names):
            if name in live and true.locals[slot] != false.locals[slot]:
                frame.locals[slot] = ("either", true.locals[slot], false.locals[slot])
        frame.stack = [
            one if one == other else ("either", one, other)
            for one, other in zip(true.stack, false.stack, strict=True)
        ]
        return join

    def on_truth(self, frame, value):
        return value if isinstance(value, Question) else bool(value)


class Question:
    def __bool__(self):
        raise AssertionError("nobody may decide this")

    def __invert__(self):
        return self


def test_both_arms_of_a_branch_can_be_run_and_merged():
    def function(question, x):
        dead = 1
        if question:
            y = x + 1
            dead = 2  # noqa: F841
        else:
            y = x - 1
        z = "a" if question else "b"
        return y, z

    policy = BothArms()
    assert Machine(policy).call(function, Question(), 5) == (("either", 6, 4), ("either", "a", "b"))
    assert policy.merged[0] == ["question", "y"]


def test_arms_that_return_meet_at_the_end_of_their_function():
    def helper(question, x):
        if not question:
            return x
        return helper2(x)

    def helper2(x):
        return x * 2

    def function(question):
        return helper(question, 3), helper(question, 4)

    found = Machine(BothArms()).call(function, Question())
    assert found in (
        (("either", 6, 3), ("either", 8, 4)),
        (("either", 3, 6), ("either", 4, 8)),
    )


def test_branches_inside_of_arms():
    def function(question):
        x = 0
        if question:
            x = 1
            if question:
                x = 2
        return x

    assert Machine(BothArms()).call(function, Question()) == ("either", ("either", 2, 1), 0)


def test_a_frame_is_continued_where_it_was_left():
    class Stopping(Policy):
        kept = None

        def on_native_call(self, frame, callable, arguments, keywords):
            if callable is print:
                self.kept = [frame.copy(), frame.back.copy()]
                self.kept[0].stack.append("printed")
            return callable(*arguments, **keywords)

    def inner(x):
        y = [x]
        printed = print(end="")
        return y, printed

    def outer():
        return "outer", inner(5)

    policy = Stopping()
    machine = Machine(policy)
    assert machine.call(outer) == ("outer", ([5], None))
    inside, outside = policy.kept
    inside.back = outside
    for _ in range(2):  # as often as wanted
        first, second = inside.copy(), outside.copy()
        first.back, second.back = second, None
        second.is_entry = True
        assert machine.run(first) is RETURNED
        assert second.result == ("outer", ([5], "printed"))


def test_generators_can_be_copied():
    def numbers():
        yield 1
        got = yield 2
        yield got

    def function():
        made = numbers()
        next(made)
        return made

    generator = Machine().call(function)
    frame = frame_of(generator)
    copied = generator_of(frame.copy())
    assert next(generator) == 2
    assert generator.send("a") == "a"
    assert next(copied) == 2
    assert copied.send("b") == "b"
    assert frame_of(x for x in ()) is None


def test_loops_can_be_taken_over():
    class Doubling(Policy):
        def on_iterate(self, frame, value):
            return iter(value)

        def on_loop(self, frame, iterator, body, after):
            if not hasattr(iterator, "__length_hint__") or iterator.__length_hint__() != 3:
                return NotImplemented
            frame.stack.pop()
            return after

    def function():
        found = []
        for x in [1, 2, 3]:
            found += [x]
        for x in [1, 2, 3, 4]:
            found.append(x)
            if x == 1:
                break
        return found

    assert Machine(Doubling()).call(function) == [1]
