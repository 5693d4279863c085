"""Classes, hooks and objects that change between calls of a compiled function."""

from __future__ import annotations

import abc
import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn.modules.module import register_module_forward_hook

import tintype

pytestmark = pytest.mark.direct(reason="compiled functions are not exported")

Case = tuple[Callable[[Any], Any], list[Callable[[], Any]]]


def shadowed() -> Case:
    class Base:
        k = 2

        def method(self) -> int:
            return 1

    class Derived(Base):
        pass

    a: Any = Derived()
    kind: Any = Derived

    def change_back() -> None:
        del a.k, kind.k
        Base.k = 7

    return lambda x: (x * a.k, a.method()), [
        lambda: setattr(Derived, "k", 3),
        lambda: setattr(a, "k", 4),
        change_back,
        lambda: setattr(Derived, "method", lambda self: 5),
        lambda: setattr(a, "method", lambda: 6),
        lambda: setattr(a, "__class__", Base),
    ]


def properties() -> Case:
    class A:
        @property
        def p(self) -> int:
            return 1

    a = A()
    return lambda x: x * a.p, [lambda: setattr(A, "p", property(lambda self: 5))]


def looked_up() -> Case:
    class A:
        def __getattr__(self, name: str) -> int:
            return 3

    a: Any = A()
    return lambda x: x * a.q, [
        lambda: setattr(a, "q", 9),
        lambda: delattr(a, "q"),
        lambda: setattr(A, "__getattr__", lambda self, name: 11),
        lambda: setattr(A, "__getattribute__", lambda self, name: 13),
    ]


def gains(name: str, method: Any, program: Callable[[Any, Any, Any], Any]) -> Callable[[], Case]:
    """A class that had no special method gets one."""

    def case() -> Case:
        class A:
            x = 1

        kind: Any = A
        a, b = A(), A()

        def change() -> None:
            kind.__hash__ = lambda self: 1
            setattr(A, name, method)

        return lambda x: program(a, b, kind), [change, lambda: delattr(A, name)]

    case.__name__ = name
    return case


def assigned(a: Any, b: Any, kind: Any) -> Any:
    a.x = 5
    return a.x


def in_place(a: Any, b: Any, kind: Any) -> Any:
    value = 1
    value += a if hasattr(kind, "__radd__") else 0
    return value


def hooks_of_all_modules() -> Case:
    model = torch.nn.Linear(2, 2, bias=False)
    torch.nn.init.ones_(model.weight)
    handles: list[Any] = []
    return lambda x: model(x), [
        lambda: handles.append(register_module_forward_hook(lambda module, inputs, output: output * 3)),
        lambda: handles.pop().remove(),
    ]


def registered() -> Case:
    class Abstract(abc.ABC):  # noqa: B024
        pass

    class Other:
        pass

    other = Other()
    return lambda x: isinstance(other, Abstract), [lambda: Abstract.register(Other)]


def slots() -> Case:
    class A:
        __slots__ = ("v", "w")

    a: Any = A()
    a.v = 1
    return lambda x: (x * a.v, hasattr(a, "w")), [lambda: setattr(a, "v", 4), lambda: setattr(a, "w", 4)]


def collected() -> Case:
    class A:
        pass

    held = [A()]
    reference = weakref.ref(held[0])
    return lambda x: reference() is None, [held.clear]


CASES = [
    *(shadowed, properties, looked_up, hooks_of_all_modules, registered, slots, collected),
    gains("__bool__", lambda self: False, lambda a, b, kind: 1 if a else 2),
    gains("__len__", lambda self: 0, lambda a, b, kind: 1 if a else 2),
    gains("__eq__", lambda self, other: True, lambda a, b, kind: (a == b, a != b)),
    gains("__setattr__", lambda self, name, value: object.__setattr__(self, name, value + 1), assigned),
    gains("__init__", lambda self: object.__setattr__(self, "z", 4), lambda a, b, kind: getattr(kind(), "z", 0)),
    gains("__radd__", lambda self, other: 40, in_place),
    gains("__getattribute__", lambda self, name: 9, lambda a, b, kind: a.x),
]


def shown(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(shown, value))
    return value.tolist() if isinstance(value, torch.Tensor) else value


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_what_changes_is_noticed(case: Callable[[], Case], backend: str) -> None:
    (function, changes), (again, same_changes) = case(), case()
    compiled = tintype.compile(again, backend=backend)
    x = torch.tensor([1.0, 2.0])
    for change, same_change in zip([lambda: None, *changes], [lambda: None, *same_changes], strict=True):
        change()
        expected = [shown(function(x)) for _ in range(2)]
        if case is hooks_of_all_modules and change in changes:  # the hook is everybody's: once is enough
            assert [shown(compiled(x)) for _ in range(2)] == expected
            continue
        same_change()
        assert [shown(compiled(x)) for _ in range(2)] == expected


def test_nothing_that_a_capture_saw_is_kept_alive() -> None:
    class Held:
        pass

    compiled = tintype.compile(lambda held, x: x * 2)
    held = Held()
    reference = weakref.ref(held)
    gc.disable()
    try:
        compiled(held, torch.ones(2))
        del held
        assert reference() is None
    finally:
        gc.enable()
