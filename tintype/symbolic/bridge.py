"""Our expressions as ``torch.SymInt``, ``torch.SymFloat`` and ``torch.SymBool``.

torch's symbolic numbers hold a node and send every operation to it; C++ and
the Python operator library take any node with the right methods.  Ours keeps
the expression, and asks its environment whenever torch wants a decision:

=====================================  =======================================
``guard_bool``, ``bool_``              the program branches: Environment.guard
``guard_int``, ``int_``                a number is needed: Environment.specialize
``expect_true``                        torch._check: Environment.expect
``guard_or_false``, ``guard_or_true``  a library operator: Environment.guard_or
=====================================  =======================================
"""

from __future__ import annotations

import builtins
import operator
import os
from collections.abc import Callable, Sequence
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any

import torch
from torch._prims_common import make_contiguous_strides_for

from tintype.errors import CaptureError

from . import extrema, floating, layout, relations
from .environment import Environment
from .expression import Expr
from .location import caller_of, native_caller, program_caller, user_location, users_caller, users_frame
from .messages import is_for_people
from .terms import add_all

if TYPE_CHECKING:
    from .torch_view import ShapeEnvironmentView


class UnhashableSizeError(CaptureError, TypeError):
    """A size that varies is used as a key. Programs catch the TypeError and do without a cache.

    >>> import torch, tintype
    >>> shapes = {"x": {0: tintype.Dim("size")}}
    >>> try:
    ...     tintype.export(lambda x: {x.shape[0]: x}[4], (torch.ones(4),), dynamic_shapes=shapes)
    ... except tintype.UnhashableSizeError as error:
    ...     print(error.id)
    unhashable-size
    """

    id = "unhashable-size"


def to_torch(value: Any) -> Any:
    """A size, float or truth value as torch takes it: symbolic only where an expression is."""
    if not isinstance(value, Expr):
        return value
    return _SYMBOLIC_TYPES[value.kind](node_of(value))


def from_torch(value: Any) -> Any:
    """The number or expression behind what torch hands out."""
    if type(value) is int:
        return value
    if isinstance(value, _SYMBOLIC):
        return _from_node(value.node)
    if isinstance(value, (bool, int, float)):
        return value
    raise TypeError(f"expected a number or a torch.SymInt, SymFloat or SymBool, not {type(value).__name__}")


def _from_node(node: Any) -> Any:
    if type(node) is SymbolNode:
        return node.value
    for constant in ("maybe_as_int", "maybe_as_float", "maybe_as_bool"):
        found = getattr(node, constant, lambda: None)()
        if found is not None:
            return found
    raise TypeError(
        f"the symbolic number {node} belongs to another tracer; tintype takes numbers and its own symbols"
    )


def node_of(expression: Expr) -> SymbolNode:
    """The node of an expression; one expression has one."""
    node: SymbolNode | None = expression._node
    if node is None:
        node = expression._node = SymbolNode(expression, expression.environment, expression.kind)
    return node


def sym_ite(condition: Any, chosen: Any, otherwise: Any) -> Any:
    """``torch.sym_ite`` for our symbols: torch's own insists on its own node class."""
    return to_torch(extrema.choose(*(from_torch(value) for value in (condition, chosen, otherwise))))


def _unary(function: Callable[[Any], Any]) -> Callable[[SymbolNode], SymbolNode]:
    def method(self: SymbolNode) -> SymbolNode:
        return self.wrap(function(self.value))

    return method


def _binary(function: Callable[[Any, Any], Any]) -> Callable[[SymbolNode, Any], SymbolNode]:
    def method(self: SymbolNode, other: Any) -> SymbolNode:
        if type(other) is not SymbolNode:
            other = self.wrap(_from_node(other))
        return self.wrap(function(self.value, other.value))

    return method


# Whether comparisons that a function's code makes are answered where they are made; None if those of no function are.
# Captures take turns, so there is one answer for all threads.
answers_at_once: Callable[[CodeType], bool] | None = None


def _relation(function: Callable[..., Any]) -> Callable[..., SymbolNode]:
    def method(self: SymbolNode, *others: Any) -> SymbolNode:
        value = function(self.value, *(_from_node(other) for other in others))
        if answers_at_once is not None and isinstance(value, Expr) and self.environment.has_running_program:
            return self.wrap(_answered(value, program_caller(1)))
        return self.wrap(value)

    return method


# The largest number that a size can be: torch slices up to there for ``x[:]``.
_MOST = (1 << 63) - 1


def _at_most(left: Any, right: Any) -> Any:
    is_any = type(right) is int and right >= _MOST and isinstance(left, Expr) and left.kind == "int"
    return True if is_any else relations.le(left, right)


def _answered(condition: Expr, frame: FrameType | None) -> Any:
    """A comparison, or the answer to it if it is to be answered and can be."""
    while frame is not None and frame.f_code.co_filename in OPERATIONS:
        frame = caller_of(frame)
    if frame is None or answers_at_once is None or not answers_at_once(frame.f_code):
        return condition
    environment = condition.environment
    return condition if environment.hint(condition) is None else environment.guard(condition)


def _division(function: Callable[[Any, Any], Any]) -> Callable[[SymbolNode, Any], SymbolNode]:
    divide = _binary(function)

    def method(self: SymbolNode, other: Any) -> SymbolNode:
        _refuse_zero(self.environment, _from_node(other), native_caller(1))
        return divide(self, other)

    return method


def _quotient(function: Callable[[Any, Any], Any]) -> Callable[[SymbolNode, Any], SymbolNode]:
    """True division, which notes who divides."""
    divide = _binary(function)

    def method(self: SymbolNode, other: Any) -> SymbolNode:
        caller = native_caller(1)
        _refuse_zero(self.environment, _from_node(other), caller)
        result = divide(self, other)
        if isinstance(result.value, Expr):
            quotients = self.environment.kernel_quotients
            (quotients.add if _is_kernels(caller) else quotients.discard)(result.value)
        return result

    return method


def _refuse_zero(environment: Environment, divisor: Any, frame: FrameType | None) -> None:
    if isinstance(divisor, Expr) and environment.hint(divisor) == 0 and _is_users(frame):
        environment.note_failure(relations.eq(divisor, 0))
        raise ZeroDivisionError("integer division or modulo by zero")


def _is_kernels(frame: FrameType | None) -> bool:
    """Whether a node's method was called by C++, or by a function that stands for a kernel."""
    if frame is None or frame.f_code.co_filename not in OPERATIONS:
        return True
    while frame is not None and frame.f_code.co_filename in OPERATIONS:
        frame = caller_of(frame)
    return frame is not None and frame.f_code.co_filename.startswith(_INSTEAD_OF_KERNELS)


def _is_users(frame: FrameType | None) -> bool:
    """Whether a node's method was called for an operation of the user's; torch's kernels also divide where the result
    does not matter, to compare strides."""
    if frame is None or frame.f_code.co_filename not in OPERATIONS:
        return False  # C++
    while frame is not None and frame.f_code.co_filename in OPERATIONS:
        frame = caller_of(frame)
    return users_frame(frame) is not None


def _layout(function: Callable[[Any, Any], bool]) -> Callable[..., SymbolNode]:
    def method(self: SymbolNode, sizes: Sequence[Any], strides: Sequence[Any]) -> SymbolNode:
        answer = function([_from_node(size) for size in sizes], [_from_node(step) for step in strides])
        return self.wrap_bool(answer)

    return method


def _function(name: str) -> Callable[[SymbolNode], SymbolNode]:
    return _unary(lambda value: floating.function(name, value))


def _float_power(base: Any, exponent: Any) -> Any:
    return floating.arithmetic("pow", floating.to_float(base), floating.to_float(exponent))


def _float_quotient(left: Any, right: Any) -> Any:
    return floating.arithmetic("truediv", floating.to_float(left), floating.to_float(right))


def _computes_strides(frame: FrameType) -> bool:
    """Whether a node's method was called to compute strides, as far as its caller tells.

    C++ calls the node for nothing else with a maximum; Python comes by SymInt's operator.
    """
    if frame.f_code is not _SYMINT_MAXIMUM:
        return True
    operator = caller_of(frame)
    function = None if operator is None else caller_of(operator)
    return function is not None and function.f_code.co_filename == _STRIDES_IN_PYTHON


class SymbolNode:
    """What a torch.SymInt, SymFloat or SymBool of ours holds: a value and its environment.

    ``value`` is an Expr, or a plain number where torch wants a node for one.
    """

    __slots__ = ("__weakref__", "environment", "kind", "value")

    def __init__(self, value: Any, environment: Environment, kind: str) -> None:
        self.value = value
        self.environment = environment
        self.kind = kind

    def wrap(self, value: Any) -> SymbolNode:
        """A node for ``value`` in the same environment."""
        if isinstance(value, Expr):
            return node_of(value)
        kind = type(value).__name__
        nodes = self.environment.constant_nodes
        # repr tells 0.0 from -0.0, which are one dictionary key.
        key = repr(value) if kind == "float" else (kind, value)
        node: SymbolNode | None = nodes.get(key)
        if node is None:
            node = nodes[key] = SymbolNode(value, self.environment, kind)
        return node

    wrap_int = wrap
    wrap_float = wrap
    wrap_bool = wrap

    def current(self) -> Any:
        """The value, as far as it has been worked out since the node was made."""
        value = self.value
        if isinstance(value, Expr):
            return self.environment.facts.replace(value)
        return value

    # -- what it is

    def is_int(self) -> bool:
        return self.kind == "int"

    def is_float(self) -> bool:
        return self.kind == "float"

    def is_bool(self) -> bool:
        return self.kind == "bool"

    def is_nested_int(self) -> bool:
        if self.environment.has_running_program and native_caller(1).f_code is _SYMINT_HASH:
            raise UnhashableSizeError(
                f"the program uses the size {self} as a key of a dictionary, set or cache, which only a plain number "
                "can be",
                location=user_location(),
                remedy="fix the size with int(size), or compare sizes with ==",
            )
        return False

    def nested_int(self) -> None:
        return None

    def nested_int_coeff(self) -> None:
        return None

    def is_symbolic(self) -> bool:
        return True

    def is_constant(self) -> bool:
        # torch unwraps constants with guard_int and guard_bool, and has no way to for floats.
        return not isinstance(self.value, Expr) and self.kind != "float"

    def maybe_as_int(self) -> int | None:
        value = self.current()
        return value if type(value) is int else None

    def maybe_as_float(self) -> float | None:
        value = self.current()
        return value if type(value) is float else None

    def maybe_as_bool(self) -> bool | None:
        value = self.current()
        return value if type(value) is bool else None

    constant_int = maybe_as_int
    constant_bool = maybe_as_bool

    @property
    def constant(self) -> Any:
        return None if isinstance(self.value, Expr) else self.value

    @property
    def pytype(self) -> type:
        return {"int": int, "float": float, "bool": bool}[self.kind]

    @property
    def hint(self) -> Any:
        return self.environment.hint(self.value)

    _hint = hint

    def has_hint(self) -> bool:
        # torch guards on 0 and 1 by the example wherever it hears of one; without, its kernels
        # take the path that is right for every size, and our environment knows the hint itself.
        return not isinstance(self.current(), Expr)

    def require_hint(self, fallback: Any = None) -> Any:
        hint = self.hint
        return fallback if hint is None else hint

    @property
    def expr(self) -> Any:
        """The value as a sympy expression, for the parts of torch that look inside."""
        from .torch_view import sympy_expression

        return sympy_expression(self.current())

    _expr = expr

    @property
    def shape_env(self) -> ShapeEnvironmentView:
        """What torch's operator library asks of its own shape environment, answered by ours."""
        from .torch_view import ShapeEnvironmentView

        return ShapeEnvironmentView(self.environment)

    fx_node = None

    def clone(self) -> SymbolNode:
        return self

    def __deepcopy__(self, memo: Any) -> SymbolNode:
        return self

    def str(self) -> builtins.str:
        return builtins.str(self.current())

    __repr__ = str

    def _graph_repr(self) -> builtins.str:
        """The text of a SymInt, SymFloat or SymBool: that of a plain number where the program may look at it."""
        if self.environment.has_running_program and isinstance(self.current(), Expr):
            frame = users_caller(2)
            if frame is not None and not is_for_people(frame):
                return builtins.str(self.environment.specialize(self.value))
        return self.str()

    # -- decisions.  C++ passes its own file and line; the user's are found on the stack.

    def evaluate(self, size_oblivious: bool = False) -> Any:
        if self.kind == "bool":
            return self.guard_size_oblivious() if size_oblivious else self.guard_bool()
        return self.environment.specialize(self.value)

    def guard_bool(self, file: builtins.str = "", line: int = 0) -> bool:
        value = self.value
        if file and self.environment.denied_next is not None and isinstance(value, Expr):
            denied, self.environment.denied_next = self.environment.denied_next, None
            if value == denied and self.environment.known(value) is None:
                return False
        if file and isinstance(value, Expr) and value.operation in ("and", "or"):
            # C++ joins conditions only to ask for a memory layout or whether a tensor is empty.
            # That is answered for sizes in general, as in the layout module.
            answer = self.environment.known(value)
            if answer is None:
                answer = self.environment.general_answer(value)
                self.environment.said_full = answer is True and value.operation == "and"
            if answer is not None:
                return answer
        return self.environment.guard(value)

    def bool_(self) -> bool:
        if self.kind == "bool":
            return self.environment.guard(self.value)
        return self.environment.guard(relations.ne(self.value, 0))

    def guard_int(self, file: builtins.str = "", line: int = 0) -> int:
        return self.int_()

    def int_(self) -> int:
        if self.environment.before_plain is not None and isinstance(self.current(), Expr):
            self.environment.before_plain(native_caller(1))
        return int(self.environment.specialize(self.value))

    def guard_float(self, file: builtins.str = "", line: int = 0) -> float:
        return float(self.environment.specialize(self.value))

    def guard_or_false(self, file: builtins.str = "", line: int = 0) -> bool:
        return self.environment.guard_or(self.value, False)

    def guard_or_true(self, file: builtins.str = "", line: int = 0) -> bool:
        return self.environment.guard_or(self.value, True)

    def statically_known_true(self, file: builtins.str = "", line: int = 0) -> bool:
        return self.environment.known(self.value) is True

    def guard_size_oblivious(self, file: builtins.str = "", line: int = 0) -> bool:
        answer = self.environment.known(self.value)
        if answer is None and not self.environment.follows_hints:
            answer = self.environment.general_answer(self.value)
        return self.environment.guard_or(self.value, False) if answer is None else answer

    def expect_true(self, file: builtins.str = "", line: int = 0) -> bool:
        return self.environment.expect(self.value)

    def expect_size(self, file: builtins.str = "", line: int = 0) -> bool:
        return self.environment.expect(relations.ge(self.value, 0))

    # -- arithmetic

    add = _binary(operator.add)
    sub = _binary(operator.sub)
    mul = _binary(operator.mul)
    mod = _division(operator.mod)
    floordiv = _division(operator.floordiv)
    int_floordiv = _division(operator.floordiv)
    truediv = _quotient(operator.truediv)
    int_truediv = _quotient(operator.truediv)
    float_truediv = _quotient(_float_quotient)
    pow = _binary(operator.pow)
    pow_by_natural = _binary(extrema.power)
    float_pow = _binary(_float_power)
    lshift = _binary(operator.lshift)
    rshift = _binary(operator.rshift)
    bitwise_and = _binary(operator.and_)
    bitwise_or = _binary(operator.or_)
    bitwise_xor = _binary(operator.xor)
    sym_min = _binary(extrema.minimum)
    neg = _unary(operator.neg)
    pos = _unary(lambda value: value)
    abs = _unary(extrema.absolute)

    def sym_max(self, other: Any) -> SymbolNode:
        value, limit = self.value, _from_node(other)
        if type(limit) is int and limit == 1 and isinstance(value, Expr) and value.kind == "int":
            # The strides of a contiguous tensor: Max(size, 1) differs from the size only for a
            # tensor without elements, whose strides mean nothing.
            if self.environment.range(value).lower >= 0 and _computes_strides(native_caller(1)):
                return self
        return self.wrap(extrema.maximum(value, limit))

    def sym_sum(self, arguments: Sequence[SymbolNode]) -> SymbolNode:
        return self.wrap(add_all(_from_node(argument) for argument in arguments))

    def sym_ite(self, chosen: SymbolNode, otherwise: SymbolNode) -> SymbolNode:
        return self.wrap(extrema.choose(self.value, chosen.value, otherwise.value))

    # -- comparisons and logic

    eq = _relation(relations.eq)
    ne = _relation(relations.ne)
    lt = _relation(relations.lt)
    le = _relation(_at_most)
    gt = _relation(relations.gt)
    ge = _relation(relations.ge)
    and_ = _relation(relations.and_)
    or_ = _relation(relations.or_)
    sym_and = and_
    sym_or = or_
    sym_not = _relation(relations.not_)

    # -- between integers and floats

    sym_float = _unary(floating.to_float)
    sym_int = _unary(floating.trunc)
    floor = _unary(floating.floor)
    ceil = _unary(floating.ceil)
    trunc = _unary(floating.trunc)
    is_integer = _unary(floating.is_integer)
    sym_sqrt = _function("sqrt")
    sym_cos = _function("cos")
    sym_cosh = _function("cosh")
    sym_sin = _function("sin")
    sym_sinh = _function("sinh")
    sym_tan = _function("tan")
    sym_tanh = _function("tanh")
    sym_asin = _function("asin")
    sym_acos = _function("acos")
    sym_atan = _function("atan")
    sym_log2 = _function("log2")
    sym_exp = _function("exp")
    sym_log = _function("log")

    def round(self, digits: int | None = None) -> SymbolNode:
        if digits is None:
            return self.wrap(floating.round_to_integer(self.value))
        return self.wrap(floating.round_to_digits(self.value, digits))

    # -- memory layout; ``self`` only says which environment

    is_contiguous = _layout(layout.is_contiguous)
    is_channels_last_contiguous_2d = _layout(layout.is_channels_last_contiguous_2d)
    is_channels_last_contiguous_3d = _layout(layout.is_channels_last_contiguous_3d)
    is_channels_last_strides_2d = _layout(layout.is_channels_last_strides_2d)
    is_channels_last_strides_3d = _layout(layout.is_channels_last_strides_3d)
    is_non_overlapping_and_dense = _layout(layout.is_non_overlapping_and_dense)

    def is_non_overlapping_and_dense_indicator(self, sizes: Sequence[Any], strides: Sequence[Any]) -> SymbolNode:
        return self.wrap(int(self.is_non_overlapping_and_dense(sizes, strides).value))


_SYMINT_HASH: CodeType = torch.SymInt.__hash__.__code__
_SYMINT_MAXIMUM: CodeType = getattr(torch.SymInt, "__sym_max__").__code__  # noqa: B009 - absent from stubs
# In this file of torch's every maximum with 1 is a stride.
_STRIDES_IN_PYTHON = make_contiguous_strides_for.__code__.co_filename
# The files in which the operations of symbolic numbers are written down.
OPERATIONS = {_SYMINT_MAXIMUM.co_filename, torch.SymInt.__floordiv__.__code__.co_filename}
# Where functions are that are run in place of kernels: torch's decompositions, and ours.
_INSTEAD_OF_KERNELS = (
    *(os.path.join(os.path.dirname(torch.__file__), name) for name in ("_decomp", "_refs", "_prims")),
    os.path.join(os.path.dirname(os.path.dirname(__file__)), "transforms"),
)
_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)
_SYMBOLIC_TYPES: dict[str, Any] = {
    "int": torch.SymInt,
    "float": torch.SymFloat,
    "bool": torch.SymBool,
}
