"""What shape rules ask about sizes.

Called for every dimension of every operator, so integers come first in each
function.  Where a question about symbols has no certain answer, ``False``
means "not known to be so": a rule must be right on that path too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn, TypeAlias

from .expression import Expr, Size, add_all
from .failures import RequirementError
from .location import user_location
from .relations import Condition, eq, ge, lt

Message: TypeAlias = str | Callable[[], str]


def same(left: Size, right: Size) -> bool:
    """Whether two sizes are equal: certainly, or by a guard where the example says so."""
    if type(left) is int and type(right) is int:
        return left == right
    if left is right:
        return True
    condition = eq(left, right)
    if isinstance(condition, bool):
        return condition
    return condition.environment.guard_or(condition, False)


def is_one(size: Size) -> bool:
    """Whether a size is certainly 1; a symbol is taken as general."""
    if type(size) is int:
        return size == 1
    return _certainly(eq(size, 1))


def is_zero(size: Size) -> bool:
    """Whether a size is certainly 0; a symbol is taken as general."""
    if type(size) is int:
        return size == 0
    return _certainly(eq(size, 0))


def at_least(left: Size, right: Size) -> bool:
    """Whether ``left >= right``: certainly, or by a guard; False for unknown data."""
    if type(left) is int and type(right) is int:
        return left >= right
    return _decided(ge(left, right))


def less(left: Size, right: Size) -> bool:
    """Whether ``left < right``: certainly, or by a guard; False for unknown data."""
    if type(left) is int and type(right) is int:
        return left < right
    return _decided(lt(left, right))


def generally_at_least(left: Size, right: Size) -> bool:
    """Whether ``left >= right``, where it does not matter if a size is 0 or 1: those have no say in it.

    For questions of layout: the strides of a dimension of size 1, or of a tensor without elements, mean nothing.
    """
    if type(left) is int and type(right) is int:
        return left >= right
    condition = ge(left, right)
    if isinstance(condition, bool):
        return condition
    general = condition.environment.general_answer(condition)
    return _decided(condition) if general is None else general


def generally_less(left: Size, right: Size) -> bool:
    """Whether ``left < right``; see :func:`generally_at_least`."""
    return not generally_at_least(left, right)


def require_same(left: Size, right: Size, message: Message) -> None:
    """Fail with ``message`` unless two sizes are equal."""
    if left is right:
        return
    if type(left) is int and type(right) is int:
        if left != right:
            _fail(message)
        return
    require(eq(left, right), message)


def require(condition: Condition, message: Message) -> None:
    """Fail with ``message`` unless the condition holds.

    On input sizes it becomes a guard, on unknown data a runtime assertion.
    """
    if condition is True:
        return
    if not isinstance(condition, Expr):
        _fail(message)
    environment = condition.environment
    if environment.known(condition) is not True:
        environment.require(condition, _written(message))


def broadcast_dim(left: Size, right: Size, describe: Message) -> Size:
    """The size that two sizes broadcast to: equal sizes stay, 1 gives way."""
    if left is right:
        return left
    if type(left) is int and type(right) is int:
        if left == right or right == 1:
            return left
        if left == 1:
            return right
        _fail(describe)
    if is_one(left):
        return right
    if is_one(right):
        return left
    condition = eq(left, right)
    if isinstance(condition, Expr):
        stretched = _stretched_by_example(condition, left, right)
        if stretched is not None:
            return stretched
    require(condition, describe)
    return left if type(left) is int else right if type(right) is int else left


def product(sizes: Iterable[Size]) -> Size:
    """The number of elements of a tensor with these sizes."""
    result: Any = 1
    for size in sizes:
        result = result * size
    return result


def total(sizes: Iterable[Size]) -> Size:
    """The sum of sizes, as of concatenated tensors."""
    result: Size = add_all(sizes)
    return result


def contiguous_strides(sizes: Sequence[Size]) -> tuple[Size, ...]:
    """The strides of a contiguous tensor; a symbolic size counts as it is, never as Max(size, 1)."""
    strides: list[Any] = []
    step: Any = 1
    for size in reversed(sizes):
        strides.append(step)
        if type(size) is int:
            if size > 1:
                step = step * size
        else:
            step = step * size
    strides.reverse()
    return tuple(strides)


def _certainly(condition: Condition) -> bool:
    if isinstance(condition, bool):
        return condition
    return condition.environment.known(condition) is True


def _decided(condition: Condition) -> bool:
    """By a guard either way: a rule may act on the negative answer as well."""
    if isinstance(condition, bool):
        return condition
    environment = condition.environment
    answer = environment.known(condition)
    if answer is not None:
        return answer
    if environment.hint(condition) is None:
        return False
    return environment.guard(condition)


def _stretched_by_example(condition: Expr, left: Size, right: Size) -> Size | None:
    """The broadcast size where it works only because the example has a size 1.

    Different sizes in the example leave no general program: one of them must
    be 1, which specialises it, and the environment lists that.
    """
    environment = condition.environment
    if environment.known(condition) is True or environment.hint(condition) is not False:
        return None
    for narrow, wide in ((left, right), (right, left)):
        if isinstance(narrow, Expr) and environment.hint(narrow) == 1:
            environment.guard(eq(narrow, 1))
            return wide
    return None


def _written(message: Message) -> str:
    return message if isinstance(message, str) else message()


def _fail(message: Message) -> NoReturn:
    raise RequirementError(_written(message), location=user_location())
