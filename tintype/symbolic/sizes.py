"""What shape rules ask about sizes.

Called for every dimension of every operator, so integers come first in each
function.  Where a question about symbols has no certain answer, ``False``
means "not known to be so": a rule must be right on that path too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NoReturn, TypeAlias

from .expression import Expr, Size, Symbol
from .extrema import maximum, minimum
from .failures import RequirementError
from .location import user_location
from .relations import Condition, eq, ge, lt, not_
from .terms import add_all

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
    hint = size._hint  # type: ignore[union-attr]
    return not (type(hint) is int and hint != 1 and size.environment.hints_hold) and _is_certainly(size, 1)  # type: ignore[union-attr]


def is_zero(size: Size) -> bool:
    """Whether a size is certainly 0; a symbol is taken as general."""
    if type(size) is int:
        return size == 0
    hint = size._hint  # type: ignore[union-attr]
    return not (type(hint) is int and hint != 0 and size.environment.hints_hold) and _is_certainly(size, 0)  # type: ignore[union-attr]


def decided_one(size: Size, message: Message) -> bool:
    """Whether a size is 1, where the number of dimensions of a result depends on that: certainly, or by a guard
    either way. A size that only the data decide is asserted not to be 1."""
    if type(size) is int:
        return size == 1
    condition = eq(size, 1)
    if isinstance(condition, Expr):
        environment = condition.environment
        if environment.known(condition) is None and environment.hint(condition) is None:
            environment.presume(not_(condition), _written(message))
            return False
    return _decided(condition)


def decided_zero(size: Size) -> bool:
    """Whether a size is 0: certainly, or by a guard either way; False for unknown data."""
    return size == 0 if type(size) is int else _decided(eq(size, 0))


def decided_same(left: Sequence[Size], right: Sequence[Size]) -> bool:
    """Whether two tensors are of one size, where a program branches on that: certainly, or by a guard either way."""
    if len(left) != len(right):
        return False
    for one, other in zip(left, right, strict=True):
        condition = one is other or eq(one, other)
        if not (condition if isinstance(condition, bool) else condition.environment.guard(condition)):
            return False
    return True


def certainly_same(left: Size, right: Size) -> bool:
    """Whether two sizes are equal whatever they are; nothing is learned."""
    if type(left) is int and type(right) is int:
        return left == right
    return left is right or (not _differs(left, right) and _certainly(eq(left, right)))


def certainly_at_least(left: Size, right: Size) -> bool:
    """Whether ``left >= right`` whatever they are; nothing is learned."""
    if type(left) is int and type(right) is int:
        return left >= right
    return _certainly(ge(left, right))


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


def usually_at_least(left: Size, right: Size) -> bool:
    """Whether ``left >= right`` for sizes in general, or else in the example; never a guard."""
    if type(left) is int and type(right) is int:
        return left >= right
    condition = ge(left, right)
    if isinstance(condition, bool):
        return condition
    general = condition.environment.general_answer(condition)
    return bool(condition.environment.hint(condition) if general is None else general)


def usually_less(left: Size, right: Size) -> bool:
    """Whether ``left < right`` in general, or else in the example: for the layout of a result, which most programs
    never look at. Those that do rest on it then (``Environment.settle_assumptions``)."""
    if type(left) is int and type(right) is int:
        return left < right
    condition = lt(left, right)
    if isinstance(condition, bool):
        return condition
    environment = condition.environment
    answer = environment.known(condition)
    if answer is None:
        answer = environment.general_answer(condition)
    return environment.assume(condition) if answer is None else answer


def require_same(left: Size, right: Size, message: Message) -> None:
    """Fail with ``message`` unless two sizes are equal."""
    if left is right:
        return
    if type(left) is int and type(right) is int:
        if left != right:
            _fail(message)
        return
    require(eq(left, right), message)


def as_known(sizes: Iterable[Size]) -> tuple[Size, ...]:
    """Sizes in terms of what they are known to be equal to by now, where the example does not say otherwise."""
    return tuple([
        size.environment.facts.replace(size) if type(size) is not int and size.environment.hints_hold else size  # type: ignore[union-attr]
        for size in sizes
    ])  # fmt: skip


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


def require_equal_or_one(condition: Condition, message: Message) -> None:
    """Fail with ``message`` unless two sizes are equal, where eager mode would also take a size that is 1.

    A size that only the data decide is asserted not to be stretched, so that the result has the sizes that it has.
    """
    if isinstance(condition, Expr) and condition.has_unbacked and condition.environment.known(condition) is None:
        condition.environment.presume(condition, _written(message))
    else:
        require(condition, message)


def refuse_zero(sizes: Iterable[Size], message: Message, kind: type[Exception] = RuntimeError) -> None:
    """Fail if a size is 0, at least in the example. Other sizes are no concern: the operator itself fails on them."""
    for size in sizes:
        if isinstance(size, Expr):
            condition = eq(size, 0)
            empty = size.environment.known(condition)
            if empty is None and size.environment.hint(condition):
                size.environment.note_failure(condition)
                empty = True
        else:
            empty = size == 0
        if empty:
            raise kind(_written(message))


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
    if _is_one_of(left, right):
        return right
    if _is_one_of(right, left):
        return left
    condition = eq(left, right)
    stretched = _stretched_by_example(condition, left, right)
    if stretched is None:
        stretched = _stretched_by_data(left, right, describe)
    if stretched is not None:
        return stretched
    require_equal_or_one(condition, describe)
    return left if type(left) is int else right if type(right) is int else left


def _is_one_of(size: Size, whole: Size) -> bool:
    """Whether a size is that of one of so many, if there are any: ``x[-1:]`` of ``x``."""
    if not isinstance(size, Expr) or not isinstance(whole, Expr) or type(size) is Symbol:
        return False
    return size in (minimum(whole, 1), whole - maximum(whole - 1, 0))


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
    sizes = tuple(sizes)
    found = _PLAIN_STRIDES.get(sizes)
    if found is not None:
        return found
    known: dict[tuple[Size, ...], tuple[Size, ...]] = _PLAIN_STRIDES
    for size in sizes:
        if isinstance(size, Expr):
            known = size.environment.strides
            found = known.get(sizes)
            if found is not None:
                return found
            break
    if len(known) >= _MOST_STRIDES:
        known.clear()
    found = known[sizes] = _contiguous_strides(sizes)
    return found


# Tensors of a size are many, and each is asked whether it is contiguous. Those with symbols are their environment's.
_PLAIN_STRIDES: dict[tuple[Size, ...], tuple[Size, ...]] = {}
_MOST_STRIDES = 10_000


def _contiguous_strides(sizes: tuple[Size, ...]) -> tuple[Size, ...]:
    strides: list[Any] = [1] * len(sizes)
    step: Any = 1
    for dimension in range(len(sizes) - 1, 0, -1):  # the product of all sizes is no stride
        size = sizes[dimension]
        if type(size) is not int or size > 1:
            step = step * size
        strides[dimension - 1] = step
    return tuple(strides)


def unguarded(numbers: Iterable[Size]) -> AbstractContextManager[None]:
    """Within it questions about these numbers are answered by what is certain, and nothing is learned."""
    symbolic = next((number for number in numbers if isinstance(number, Expr)), None)
    return nullcontext() if symbolic is None else symbolic.environment.unguarded()


def _differs(left: Size, right: Size) -> bool:
    """Whether two numbers differ in the example, so that nobody needs to ask whether they are certainly the same."""
    environment = right.environment if type(left) is int else left.environment  # type: ignore[union-attr]
    if not environment.hints_hold:
        return False
    one = left if type(left) is int else left._hint  # type: ignore[union-attr]
    other = right if type(right) is int else right._hint  # type: ignore[union-attr]
    if type(one) is not int or type(other) is not int:
        one, other = environment.hint(left), environment.hint(right)
    return one is not None and other is not None and one != other


def _is_certainly(size: Any, number: int) -> bool:
    """Whether a size is certainly a number, which the example may show that it is not."""
    environment = size.environment
    if environment.hints_hold:
        hint = environment.hint(size)
        if hint is not None and hint != number:
            return False
    return _certainly(eq(size, number))


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
    if environment.hint(condition) is None or environment.asks_nothing:
        return False
    return environment.guard(condition)


def is_stretched(size: Size, wanted: Size) -> bool:
    """Whether a size is 1 and stands for another: certainly, or because only that lets the example through, which
    specialises it."""
    if is_one(size):
        return not is_one(wanted)
    if not isinstance(size, Expr):
        return False
    condition, environment = eq(size, wanted), size.environment
    if environment.known(condition) is True:
        return False
    if environment.hint(size) is None:
        return _must_be_one(size, wanted) and environment.expect(eq(size, 1))
    if environment.hint(condition) is not False:
        return False
    return environment.hint(size) == 1 and environment.guard(eq(size, 1))


def _stretched_by_example(condition: Condition, left: Size, right: Size) -> Size | None:
    """The broadcast size where it works only because the example has a size 1.

    Different sizes in the example leave no general program: one of them must
    be 1, which specialises it, and the environment lists that.
    """
    if isinstance(condition, Expr):
        environment = condition.environment
        if environment.known(condition) is True or environment.hint(condition) is not False:
            return None
    elif condition:
        return None
    for narrow, wide in ((left, right), (right, left)):
        if isinstance(narrow, Expr) and narrow.environment.hint(narrow) == 1:
            narrow.environment.guard(eq(narrow, 1))
            return wide
    return None


def _stretched_by_data(left: Size, right: Size, describe: Message) -> Size | None:
    """The broadcast size where data decide one that can't be what the other is in the example: so it must be 1."""
    for narrow, wide in ((left, right), (right, left)):
        if isinstance(narrow, Expr) and narrow.environment.hint(narrow) is None and _must_be_one(narrow, wide):
            require(eq(narrow, 1), describe)
            return wide
    return None


def _must_be_one(narrow: Expr, wide: Size) -> bool:
    """Whether a size that data decide fits another only by being 1: it can't be what the other one is in the example,
    or, where data decide that one, too, what it can be at all."""
    environment = narrow.environment
    example = environment.hint(wide)
    if example is not None:
        return example not in environment.range(narrow)
    can_be_one = (environment.known(eq(size, 1)) is not False for size in (narrow, wide))
    return environment.known(eq(narrow, wide)) is False and tuple(can_be_one) == (True, False)


def _written(message: Message) -> str:
    return message if isinstance(message, str) else message()


def _fail(message: Message) -> NoReturn:
    raise RequirementError(_written(message), location=user_location())


def only_splits(sizes: Sequence[Size], shape: Sequence[Size]) -> bool:
    """Whether a shape differs from sizes by dimensions that were split, and by such of size 1: then a tensor of any
    layout has a view of that shape."""
    if any(is_zero(size) for size in sizes):
        return True
    rest: Iterator[Size] = (size for size in shape if not is_one(size))
    for size in sizes:
        if is_one(size):
            continue
        taken: Any = next(rest, None)
        while taken is not None and not certainly_same(taken, size):
            following = next(rest, None)
            if following is None or (type(taken) is int and type(size) is int and taken > size):
                return False
            taken = taken * following
        if taken is None:
            return False
    return next(rest, None) is None
