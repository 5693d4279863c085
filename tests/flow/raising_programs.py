"""Programs that raise where the data say so, within something that catches it."""

# ruff: noqa: RET504 - what stands in the blocks is the point

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch


class StopError(Exception):
    """An exception of the program's own."""


class Swallows:
    """Swallows exceptions of some classes."""

    def __init__(self, *kinds: type[BaseException]) -> None:
        self.kinds = kinds

    def __enter__(self) -> Swallows:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> bool:
        return kind is not None and (not self.kinds or issubclass(kind, self.kinds))


class PassesOn:
    """Swallows nothing, which its code does not say."""

    def __enter__(self) -> PassesOn:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> bool:
        return bool(kind is int)


@contextlib.contextmanager
def tolerant(*kinds: type[BaseException]) -> Iterator[None]:
    try:
        yield
    except kinds:
        return


# --- right -------------------------------------------------------------------------------------------------


def in_while(x):
    try:
        while x.norm() > 1:
            x = x / 2
            if x.max() > 3:
                raise ValueError
    except ValueError:
        x = x * 0
    return x


def in_while_with_else(x):
    try:
        while x.norm() > 1:
            x = x / 2
            if x.max() > 3:
                raise StopError
            if x.min() < -3:
                break
        else:
            x = x + 7
    except StopError:
        x = x * 0
    else:
        x = x - 5
    finally:
        x = x + 0.25
    return x


def in_while_two_kinds(x):
    try:
        while x.norm() > 1:
            x = x / 2
            if x.max() > 3:
                raise ValueError
            if x.min() < -3:
                raise KeyError
    except ValueError:
        x = x * 0
    except KeyError:
        x = x * 0 + 1
    return x + 1


def in_every_step(x):
    n = 0
    for _ in range(3):
        try:
            if x.sum() > 4:
                raise RuntimeError
            n += 1
        except RuntimeError:
            x = x / 3
            continue
        finally:
            x = x + 0.25
        x = x * 0.9
    return x * n


def in_while_with_value(x):
    try:
        while x.norm() > 1:
            x = x / 2
            if x.max() > 3:
                raise ValueError(x * 10)
    except ValueError as error:
        x = error.args[0] + 1
    return x


def in_nested_whiles(x):
    try:
        while x.norm() > 1:
            y = x
            while y.norm() > 2:
                y = y / 3
                if y.max() > 5:
                    raise StopError
            x = x / 2 + y * 0.01
    except StopError:
        x = x * 0
    return x


def caught_in_the_loop(x):
    while x.norm() > 1:
        try:
            x = x / 2
            if x.max() > 3:
                raise ValueError
            x = x - 0.01
        except ValueError:
            x = x / 4
    return x


def breaks_when_caught(x):
    while x.norm() > 1:
        try:
            x = x / 2
            if x.max() > 3:
                raise StopError
        except StopError:
            break
    return x


def ranged(x):
    try:
        for i in range(int(x.sum().abs()) % 4):
            if i == 2:
                raise ValueError
            x = x + 1
    except ValueError:
        x = x * 0
    return x


def with_swallowing(x):
    with Swallows(ValueError):
        if x.sum() > 2:
            raise ValueError("q")
        x = x + 0.5
    return x


def with_swallowing_loop(x):
    with Swallows():
        for _ in range(3):
            if x.sum() > 2:
                raise ValueError("q")
            x = x + 0.5
    return x * 2


def with_swallowing_while(x):
    with Swallows(StopError):
        while x.norm() > 1:
            x = x / 2
            if x.max() > 3:
                raise StopError
    return x + 1


def suppressed(x):
    with contextlib.suppress(ValueError):
        if x.sum() > 2:
            raise ValueError("q")
        x = x + 0.5
    return x


def two_managers(x):
    with Swallows(ValueError), PassesOn():
        if x.sum() > 2:
            raise ValueError("q")
        x = x + 0.5
    return x


def below_no_grad(x):
    try:
        with torch.no_grad():
            if x.sum() > 0:
                raise ValueError
            x = x + 1
    except ValueError:
        pass
    return x * 2


def below_autocast(x):
    try:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            if x.sum() > 0:
                raise ValueError
            x = x + 1
    except ValueError:
        x = x * 3
    return x


def through_finally(x):
    y = x * 0
    try:
        try:
            if x.sum() > 0:
                raise StopError
            y = x + 1
        finally:
            y = y + 2
    except StopError:
        y = y * 3
    return y


def finally_returns(x):
    try:
        if x.sum() > 0:
            raise StopError
        x = x * 2
    finally:
        return x + 1  # noqa: B012 - that is the point


def not_its_class(x):
    try:
        if x.sum() > 1000:
            raise KeyError
        if x.sum() > 0:
            raise StopError
        x = x * 2
    except KeyError:
        x = x * 3
    except StopError:
        x = x - 1
    return x


RIGHT = [
    in_while, in_while_with_else, in_while_two_kinds, in_while_with_value, in_nested_whiles, caught_in_the_loop,
    in_every_step, breaks_when_caught, ranged, with_swallowing, with_swallowing_loop, with_swallowing_while,
    suppressed, two_managers, below_no_grad, below_autocast, through_finally, finally_returns, not_its_class,
]  # fmt: skip


# --- right, and raising where eager mode does --------------------------------------------------------------


def passes_on(x):
    with PassesOn():
        if x.sum() > 2:
            raise ValueError("q")
        x = x + 0.5
    return x


def asserts_below_no_grad(x):
    with torch.no_grad():
        assert x.sum() <= 2
        return x + 1


def another_class(x):
    try:
        if x.sum() > 2:
            raise StopError
        x = x + 1
    except KeyError:
        x = x * 3
    return x


def raises_again(x):
    try:
        if x.sum() > 2:
            raise KeyError
        x = x + 1
    except KeyError as error:
        raise StopError from error
    return x


def not_swallowed(x):
    with Swallows(KeyError):
        if x.sum() > 2:
            raise StopError
        x = x + 1
    return x


def in_a_loop(x):
    with PassesOn():
        while x.sum().abs() > 1:
            x = x / 2
            if x.sum() > 2:
                raise StopError
    return x


def kept_by_helper(x):
    def check(value):
        with PassesOn():
            if value.sum() > 2:
                raise StopError
            return value + 1

    return check(x) * 2


RAISING = [passes_on, asserts_below_no_grad, another_class, raises_again, not_swallowed, in_a_loop, kept_by_helper]


# --- refused -----------------------------------------------------------------------------------------------


def caught_by_caller(x):
    def check(value):
        for _ in range(3):
            if value.sum() > 0:
                raise StopError
            value = value + 1
        return value

    try:
        return check(x)
    except StopError:
        return x * 0


def only_checks(x):
    def check(value):
        if value.sum() > 0:
            raise ValueError
        return value

    try:
        y = check(x)
    except ValueError:
        y = -x
    return y


def caught_around_an_arm(x):
    def check(value):
        if value.sum() > 3:
            raise StopError
        return value * 2

    try:
        if x.max() > 0:
            x = check(x)
    except StopError:
        x = x * 0
    return x


def caught_around_a_loop(x):
    def check(value):
        if value.max() > 3:
            raise StopError
        return value / 2

    try:
        while x.norm() > 1:
            x = check(x)
    except StopError:
        x = x * 0
    return x


def swallowed_by_caller(x):
    def check(value):
        if value.sum() > 2:
            raise ValueError
        return value + 1

    with Swallows():
        x = check(x)
    return x


def below_a_generators_manager(x):
    with tolerant(ValueError):
        if x.sum() > 2:
            raise ValueError
        x = x + 0.5
    return x


def stop_iteration(x):
    def check(value):
        for i in range(3):
            if value.sum() > 0:
                raise StopIteration(i)
            value = value + 1
        return value

    try:
        y = check(x)
    except StopIteration as error:
        y = x * 0 + error.value
    return y


class Halves:
    """Goes on until a value is small."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __iter__(self) -> Halves:
        return self

    def __next__(self) -> Any:
        if self.value.norm() < 1:
            raise StopIteration
        self.value = self.value / 2
        return self.value


def iterator_of_its_own(x):
    total = x * 0
    for value in Halves(x):
        total = total + value
    return total


def next_with_default(x):
    return next(Halves(x), x * 0)


class Asks:
    """Has an attribute for some data alone."""

    def __init__(self, value: Any) -> None:
        self.value = value

    @property
    def large(self) -> Any:
        if self.value.sum() < 0:
            raise AttributeError("large")
        return self.value * 2


def asks_for_attribute(x):
    return getattr(Asks(x), "large", x * 0)


def has_attribute(x):
    return x * 2 if hasattr(Asks(x), "large") else x * 3


REFUSED = [
    caught_by_caller, only_checks, caught_around_an_arm, caught_around_a_loop, swallowed_by_caller,
    below_a_generators_manager, stop_iteration, iterator_of_its_own, next_with_default, asks_for_attribute,
    has_attribute,
]  # fmt: skip


# --- catching what tintype raises --------------------------------------------------------------------------


def _body(x):
    if x.sum() > 2:
        return x * 2
    return x + 0.5


def all_by_class(x):
    with Swallows():
        x = _body(x)
    return x


def all_by_generator(x):
    with tolerant(BaseException):
        x = _body(x)
    return x


def all_by_suppress(x):
    with contextlib.suppress(BaseException):
        x = _body(x)
    return x


def all_by_stack(x):
    with contextlib.ExitStack() as stack:
        stack.enter_context(Swallows())
        x = _body(x)
    return x


def all_by_except(x):
    try:
        x = _body(x)
    except:  # noqa: E722 - that is the point
        x = x - 1
    return x


def all_by_base(x):
    try:
        x = _body(x)
    except BaseException as error:
        raise ValueError("no") from error
    return x


def all_by_finally(x):
    try:
        x = _body(x)
    finally:
        return x  # noqa: B012 - that is the point


def all_by_finally_in_loop(x):
    for _ in range(2):
        try:
            x = _body(x)
        finally:
            continue  # noqa: B012 - that is the point
    return x


def all_in_while(x):
    with Swallows():
        while x.sum().abs() > 2:
            x = x / 2
    return x


def all_in_helper(x):
    def tried(function, value):
        try:
            return function(value)
        except:  # noqa: E722 - that is the point
            return value * 0

    return tried(_body, x) + tried(lambda value: value * 2 if value.sum() > 1 else value, x)


def all_in_while_left(x):
    with Swallows():
        while x.sum().abs() > 2:
            x = x / 2
            if x.max() > 3:
                break
        else:
            x = x + 1
    return x


ALL = [
    all_by_class, all_by_generator, all_by_suppress, all_by_stack, all_by_except, all_by_base, all_by_finally,
    all_by_finally_in_loop, all_in_while, all_in_helper, all_in_while_left,
]  # fmt: skip


def data_of_tensor(x):
    try:
        return x * float(x.numpy().sum())
    except Exception:
        return x * 0


def data_in_list(x):
    try:
        values = x.detach().cpu().numpy().tolist()
    except (RuntimeError, TypeError):
        values = [0.0]
    return x + values[0]


def refused_kind(x):
    y = x
    with contextlib.suppress(RuntimeError):
        if x.sum() > 0:
            y = None
        y = y + 1
    return y


REFUSALS_CAUGHT = [data_of_tensor, data_in_list, refused_kind]
