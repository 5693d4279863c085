"""Integer expressions for tensor sizes, in one normal form.

Every integer expression is a linear form over monomials::

    constant + coefficient * monomial + ...        2*s0*s1 + 3*(s0//2) + 1

A monomial is a product of atoms; an atom is a symbol or an operation that does
not distribute (floor division, modulus, minimum, power, ...).  Products are
multiplied out, so equal polynomials are one object: expressions are interned
in their environment, ``==`` and ``hash`` are those of identity, and tuples of
sizes compare like tuples of integers.

Whatever comes out constant is a plain ``int``, never an Expr.  Nothing here
consults what a program has *learned* about its sizes; that is ``decide``'s work.
Only a symbol's declared range, which never changes, takes part in rewriting.

The operators are the hot path of a tracer: each looks its operands up in the
environment's memo before it does anything else.
"""

from __future__ import annotations

import numbers
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    from .environment import Environment
    from .ranges import Range

Kind: TypeAlias = Literal["int", "float", "bool"]

# A sum that would grow past this many terms stays a product of its factors:
# less canonical, but no program can make an expression explode.
MOST_TERMS = 400
# Powers of sums up to this one are multiplied out, and powers of monomials up to this degree
# are repeated factors; higher ones are atoms.
HIGHEST_POWER = 16
HIGHEST_DEGREE = 1024


class Expr:
    """An immutable, interned expression: two are equal when they are one object.

    ``kind`` is "int", "float" or "bool"; ``environment`` is where its symbols
    live; ``operation`` and ``arguments`` say how it is made.  Integer
    expressions also have ``terms`` (monomial -> coefficient) and ``constant``.
    """

    __slots__ = (
        "__weakref__",
        "_declared",
        "_hint",
        "_node",
        "_order",
        "_symbols",
        "_sympy",
        "_text",
        "_unbacked",
        "arguments",
        "constant",
        "environment",
        "factors",
        "kind",
        "operation",
        "serial",
        "terms",
    )

    kind: Kind
    terms: dict[Expr, int]
    factors: tuple[Expr, ...]
    _declared: Range | None

    def __init__(
        self,
        environment: Environment,
        kind: Kind,
        operation: str,
        arguments: tuple[Any, ...] = (),
        *,
        terms: dict[Expr, int] | None = None,
        constant: int = 0,
        factors: tuple[Expr, ...] | None = None,
    ) -> None:
        self.environment = environment
        self.kind = kind
        self.operation = operation
        self.arguments = arguments
        self.terms = {self: 1} if terms is None else terms
        self.constant = constant
        self.factors = (self,) if factors is None else factors
        environment.serial += 1
        self.serial = environment.serial
        self._symbols: frozenset[Symbol] | None = None
        self._unbacked: bool | None = None
        self._order: Any = None
        self._text: str | None = None
        self._declared = None
        self._hint: Any = UNSET
        self._node: Any = None
        self._sympy: Any = None

    # -- what it is made of

    @property
    def symbols(self) -> frozenset[Symbol]:
        """The symbols that occur in it."""
        found = self._symbols
        if found is None:
            found = self._symbols = frozenset().union(*[part.symbols for part in self.parts()])
        return found

    @property
    def has_unbacked(self) -> bool:
        """Whether a symbol without a hint occurs in it."""
        found = self._unbacked
        if found is None:
            found = any(symbol.hint is None for symbol in self.symbols)
            self._unbacked = found
        return found

    def parts(self) -> Iterable[Expr]:
        """The expressions directly below this one."""
        if self.operation == "sum":
            return self.terms
        if self.operation == "product":
            return self.factors
        return [argument for argument in self.arguments if isinstance(argument, Expr)]

    @property
    def order(self) -> Any:
        """Sort key of a monomial: lexicographic, higher powers first (s0**2, s0*s1, s0, s1)."""
        found = self._order
        if found is None:
            found = self._order = _monomial_order(self)
        return found

    # -- arithmetic

    def __add__(self, other: Any) -> Any:
        if type(other) is int or isinstance(other, Expr):
            found = self.environment.sums.get((self, other))
            return _add(self, other) if found is None else found
        return _with_operand(self, "__add__", other)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        if type(other) is int or isinstance(other, Expr):
            found = self.environment.differences.get((self, other))
            return _subtract(self, other) if found is None else found
        return _with_operand(self, "__sub__", other)

    def __rsub__(self, other: Any) -> Any:
        if type(other) is int:
            return -self + other if self.kind == "int" else _floating("sub", other, self)
        return _with_operand(self, "__rsub__", other)

    def __mul__(self, other: Any) -> Any:
        if type(other) is int or isinstance(other, Expr):
            found = self.environment.products.get((self, other))
            return _multiply(self, other) if found is None else found
        return _with_operand(self, "__mul__", other)

    __rmul__ = __mul__

    def __neg__(self) -> Any:
        if self.kind == "float":
            from .floating import negate

            return negate(self)
        return self * -1

    def __pos__(self) -> Expr:
        return self

    def __floordiv__(self, other: Any) -> Any:
        if type(other) is int or isinstance(other, Expr):
            found = self.environment.quotients.get((self, other))
            return _floor_divide(self, other) if found is None else found
        return _with_operand(self, "__floordiv__", other)

    def __rfloordiv__(self, other: Any) -> Any:
        if type(other) is int:
            return _floor_divide(other, self)
        return _with_operand(self, "__rfloordiv__", other)

    def __mod__(self, other: Any) -> Any:
        if type(other) is int or isinstance(other, Expr):
            found = self.environment.remainders.get((self, other))
            return _modulo(self, other) if found is None else found
        return _with_operand(self, "__mod__", other)

    def __rmod__(self, other: Any) -> Any:
        if type(other) is int:
            return _modulo(other, self)
        return _with_operand(self, "__rmod__", other)

    def __truediv__(self, other: Any) -> Any:
        return _true_divide(self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return _true_divide(other, self)

    def __pow__(self, other: Any) -> Any:
        return _power(self, other)

    def __rpow__(self, other: Any) -> Any:
        return _power(other, self)

    def __abs__(self) -> Any:
        from .extrema import absolute

        return absolute(self)

    def __and__(self, other: Any) -> Any:
        from .bits import bitwise

        return bitwise("and", self, other)

    __rand__ = __and__

    def __or__(self, other: Any) -> Any:
        from .bits import bitwise

        return bitwise("or", self, other)

    __ror__ = __or__

    def __xor__(self, other: Any) -> Any:
        from .bits import bitwise

        return bitwise("xor", self, other)

    __rxor__ = __xor__

    def __lshift__(self, other: Any) -> Any:
        from .bits import shift_left

        return shift_left(self, other)

    def __rlshift__(self, other: Any) -> Any:
        from .bits import shift_left

        return shift_left(other, self)

    def __rshift__(self, other: Any) -> Any:
        from .bits import shift_right

        return shift_right(self, other)

    def __rrshift__(self, other: Any) -> Any:
        from .bits import shift_right

        return shift_right(other, self)

    # -- Python protocols

    def __bool__(self) -> bool:
        raise TypeError(
            f"the truth of {self} is not known while the program is captured; "
            "ask its environment (known, guard, guard_or)"
        )

    def __repr__(self) -> str:
        found = self._text
        if found is None:
            from .text import own_text

            found = self._text = own_text(self)
        return found

    def __copy__(self) -> Expr:
        return self

    def __deepcopy__(self, memo: Any) -> Expr:
        return self

    def __reduce__(self) -> Any:
        raise TypeError(f"{self} belongs to its environment and can't be pickled; save its text")


class Symbol(Expr):
    """A variable: a size that an input has (backed, with a hint) or that data decide (unbacked).

    ``declared`` is the range promised at creation.  It never changes, so
    rewriting may use it; what is learned later is the environment's.
    """

    __slots__ = ("declared", "hint", "name", "source")

    def __init__(
        self,
        environment: Environment,
        kind: Kind,
        name: str,
        *,
        hint: int | None,
        declared: Range,
        source: object = None,
    ) -> None:
        super().__init__(environment, kind, "symbol", (name,))
        self.name = name
        self.hint = hint
        self.declared = declared
        self.source = source
        self._symbols, self._declared = frozenset((self,)), declared
        self._hint = UNSET if hint is None else hint


class _Unset:
    """Marks a cached value that was not computed yet (None is a value)."""


UNSET = _Unset()
Size: TypeAlias = int | Expr


# -- construction; every Expr but a symbol is made here


def linear(environment: Environment, terms: dict[Expr, int], constant: int) -> Size:
    """The interned linear form; ``terms`` holds no zero and is not changed afterwards."""
    if not terms:
        return constant
    if constant == 0 and len(terms) == 1:
        ((monomial, coefficient),) = terms.items()
        if coefficient == 1:
            return monomial
    key = (constant, frozenset(terms.items()))
    found = environment.interned.get(key)
    if found is None:
        found = Expr(environment, "int", "sum", terms=terms, constant=constant)
        environment.interned[key] = found
    return found


def product_of(environment: Environment, factors: tuple[Expr, ...]) -> Expr:
    """The interned monomial with these atoms (in serial order, repeated for powers)."""
    if len(factors) == 1:
        return factors[0]
    found = environment.interned.get(factors)
    if found is None:
        found = Expr(environment, "int", "product", factors=factors)
        environment.interned[factors] = found
    return found


def atom(environment: Environment, kind: Kind, operation: str, *arguments: Any) -> Expr:
    """The interned expression ``operation(*arguments)``, taken as it is."""
    # 1 == 1.0 == True and 0.0 == -0.0 as dictionary keys: floats are keyed by their text.
    key = (
        operation,
        *(repr(argument) if type(argument) is float else argument for argument in arguments),
    )
    found = environment.interned.get(key)
    if found is None:
        found = Expr(environment, kind, operation, arguments)
        environment.interned[key] = found
    return found


def environment_of(*values: Any) -> Environment:
    """The one environment of the expressions among ``values``."""
    found = None
    for value in values:
        if isinstance(value, Expr) and value.environment is not found:
            if found is not None:
                raise ValueError(f"{value} belongs to another environment than its operand")
            found = value.environment
    if found is None:
        raise ValueError("no expression among the operands")
    return found


def is_int(value: Any) -> bool:
    """Whether a value is an integer, symbolic or not."""
    return type(value) is int or (isinstance(value, Expr) and value.kind == "int")


def is_float(value: Any) -> bool:
    """Whether a value is a float, symbolic or not."""
    return type(value) is float or (isinstance(value, Expr) and value.kind == "float")


def is_bool(value: Any) -> bool:
    """Whether a value is a truth value, symbolic or not."""
    return type(value) is bool or (isinstance(value, Expr) and value.kind == "bool")


def as_int(value: Any) -> Any:
    """A boolean expression as the integer 0 or 1; anything else unchanged."""
    if isinstance(value, Expr) and value.kind == "bool":
        from .extrema import choose

        return choose(value, 1, 0)
    return value


# -- the operators' slow paths: first time that two operands meet


def _add(left: Expr, right: Size) -> Any:
    if left.kind != "int" or (type(right) is not int and right.kind != "int"):  # type: ignore[union-attr]
        return _floating("add", left, right)
    environment = left.environment
    if isinstance(right, Expr):
        if right.environment is not environment:
            environment_of(left, right)
        terms = left.terms.copy()
        for monomial, coefficient in right.terms.items():
            coefficient += terms.get(monomial, 0)
            if coefficient:
                terms[monomial] = coefficient
            else:
                del terms[monomial]
        result = linear(environment, terms, left.constant + right.constant)
    else:
        result = linear(environment, left.terms, left.constant + right)
    environment.sums[left, right] = result
    return result


def _subtract(left: Expr, right: Size) -> Any:
    if left.kind != "int" or (type(right) is not int and right.kind != "int"):  # type: ignore[union-attr]
        return _floating("sub", left, right)
    environment = left.environment
    if isinstance(right, Expr):
        if right.environment is not environment:
            environment_of(left, right)
        terms = left.terms.copy()
        for monomial, coefficient in right.terms.items():
            coefficient = terms.get(monomial, 0) - coefficient
            if coefficient:
                terms[monomial] = coefficient
            else:
                del terms[monomial]
        result = linear(environment, terms, left.constant - right.constant)
    else:
        result = linear(environment, left.terms, left.constant - right)
    environment.differences[left, right] = result
    return result


def _multiply(left: Expr, right: Size) -> Any:
    if left.kind != "int" or (type(right) is not int and right.kind != "int"):  # type: ignore[union-attr]
        return _floating("mul", left, right)
    environment = left.environment
    if isinstance(right, Expr):
        environment_of(left, right)
        result = _multiply_out(left, right)
    elif right == 0:
        result = 0
    else:
        terms = {monomial: coefficient * right for monomial, coefficient in left.terms.items()}
        result = linear(environment, terms, left.constant * right)
    environment.products[left, right] = result
    return result


def _multiply_out(left: Expr, right: Expr) -> Size:
    environment = left.environment
    if len(left.terms) * len(right.terms) > MOST_TERMS:
        first, second = (left, right) if left.serial <= right.serial else (right, left)
        return atom(environment, "int", "times", first, second)
    terms: dict[Expr, int] = {}
    for one, scale in left.terms.items():
        for other, coefficient in right.terms.items():
            monomial = _multiply_monomials(one, other)
            terms[monomial] = terms.get(monomial, 0) + scale * coefficient
        if right.constant:
            terms[one] = terms.get(one, 0) + scale * right.constant
    if left.constant:
        for other, coefficient in right.terms.items():
            terms[other] = terms.get(other, 0) + left.constant * coefficient
    terms = {monomial: coefficient for monomial, coefficient in terms.items() if coefficient}
    return linear(environment, terms, left.constant * right.constant)


def _serial(expression: Expr) -> int:
    return expression.serial


def _multiply_monomials(left: Expr, right: Expr) -> Expr:
    factors = sorted(left.factors + right.factors, key=_serial)
    return product_of(left.environment, tuple(factors))


def _floor_divide(left: Size, right: Size) -> Any:
    if is_float(left) or is_float(right):
        return _floating("floordiv", left, right)
    from .division import floor_div

    left, right = as_int(left), as_int(right)
    result = floor_div(left, right)
    environment_of(left, right).quotients[left, right] = result
    return result


def _modulo(left: Size, right: Size) -> Any:
    if is_float(left) or is_float(right):
        return _floating("mod", left, right)
    from .division import mod

    left, right = as_int(left), as_int(right)
    result = mod(left, right)
    environment_of(left, right).remainders[left, right] = result
    return result


def _true_divide(left: Any, right: Any) -> Any:
    left, right = _operand(left), _operand(right)
    if left is NotImplemented or right is NotImplemented:
        return NotImplemented
    return _floating("truediv", left, right)


def _power(base: Any, exponent: Any) -> Any:
    base, exponent = _operand(base), _operand(exponent)
    if base is NotImplemented or exponent is NotImplemented:
        return NotImplemented
    if is_float(base) or is_float(exponent):
        return _floating("pow", base, exponent)
    from .extrema import power

    return power(as_int(base), as_int(exponent))


def _floating(operation: str, left: Any, right: Any) -> Any:
    """Arithmetic that is not between integers: floats, or booleans taken as integers."""
    if operation != "truediv" and not (is_float(left) or is_float(right)):
        return _integer_again(operation, as_int(left), as_int(right))
    from .floating import arithmetic

    return arithmetic(operation, as_int(left), as_int(right))


def _integer_again(operation: str, left: Any, right: Any) -> Any:
    if operation == "add":
        return left + right
    if operation == "sub":
        return left - right
    return left * right


def _operand(value: Any) -> Any:
    """A Python number or Expr as an operand; NotImplemented for anything else."""
    if isinstance(value, Expr) or type(value) in (int, float):
        return value
    # numpy's integers register here; torch.SymInt does not, and must not:
    # turning one into an int would specialise it.
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, float):
        return float(value)
    return NotImplemented


_FLOATING_METHODS = {
    "__add__": "add",
    "__sub__": "sub",
    "__mul__": "mul",
    "__floordiv__": "floordiv",
    "__mod__": "mod",
}


def _with_operand(left: Expr, method: str, other: Any) -> Any:
    """The operator's uncommon operands: floats, booleans, numpy integers."""
    operand = _operand(other)
    if operand is NotImplemented:
        return NotImplemented
    if type(operand) is float:
        reflected = method.startswith("__r")
        name = _FLOATING_METHODS["__" + method[3:] if reflected else method]
        return _floating(name, operand, left) if reflected else _floating(name, left, operand)
    return getattr(left, method)(operand)


# -- order

_END = ((2, "", 0), 0)


def _monomial_order(expression: Expr) -> Any:
    counts: dict[Expr, int] = {}
    for factor in expression.factors:
        counts[factor] = counts.get(factor, 0) + 1
    keys = sorted((_atom_order(factor), -count) for factor, count in counts.items())
    return (*keys, _END)


def _atom_order(expression: Expr) -> tuple[int, str, int]:
    if isinstance(expression, Symbol):
        stem = expression.name.rstrip("0123456789")
        digits = expression.name[len(stem) :]
        return (0, stem, int(digits) if digits else -1)
    return (1, repr(expression), 0)
