"""Checks of the inputs that a program is called with.

A quick test, generated per program, says whether everything is as the program was exported for. Only when it fails is
the cause looked for, here, and put into words.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from types import FunctionType
from typing import Any

import torch

from tintype import tree
from tintype.errors import InputMismatchError, Location
from tintype.export.given import arranged
from tintype.export.key_order import check_order, is_of_keywords
from tintype.export.observed import StateOf, check_observed, write_observed
from tintype.export.refused_calls import AS_THE_EXAMPLE, Calling, refuse_call, untraced
from tintype.export.run_instead import lies_in_strides
from tintype.export.sharing import MemoryChecks
from tintype.export.traced_memory import memory_operator
from tintype.fake.info import TensorInfo
from tintype.ir.call_description import linear_in, write_number_check, write_tensor_check
from tintype.ir.call_values import is_like, unlike
from tintype.ir.observations import KEYS, OF_CONTAINERS, Observation
from tintype.ir.sources import Source, place_in_call, size_of
from tintype.ir.writing import Writer
from tintype.symbolic import Expr, Range, Size, evaluate, named_text
from tintype.symbolic.expression import Symbol
from tintype.symbolic.ranges import INFINITY
from tintype.trace.given_tensors import changes_operators
from tintype.trace.recorder import active_recorder
from tintype.tree.jagged import is_jagged
from tintype.tree.subclasses import is_wrapper, with_parts

_modes_active = torch._C._len_torch_dispatch_stack


class Expectation:
    """What one leaf of the inputs must be: a tensor like this, a number that varies, or a value equal to that one.

    ``sizes`` are those of the tensor, or the number itself; ``ranges`` the bounds of those that may vary (None for a
    fixed size). ``strides`` are there where the program rests on the layout of the tensor, ``because`` is the line
    that makes it so.
    """

    __slots__ = ("because", "dtype", "path", "ranges", "sizes", "strides", "value")

    def __init__(
        self, path: tree.KeyPath, value: Any, sizes: tuple[Size, ...] = (), ranges: Sequence[Range | None] = ()
    ) -> None:
        self.path = path
        self.value = value
        self.dtype: torch.dtype | None = value.dtype if isinstance(value, TensorInfo) else None
        self.sizes = sizes
        self.ranges = tuple(ranges)
        self.strides: tuple[Size, ...] | None = None
        self.because: Location | None = None

    def where(self) -> Source:
        """The place of this input in a call."""
        return place_in_call(self.path)

    def check(self, given: Any, symbols: dict[Symbol, int]) -> None:
        """Raise unless the given value is as expected; notes the values of symbols on the way."""
        if isinstance(self.value, Expr):
            self._check_number(given, symbols)
            return
        if self.dtype is None:
            self._check_value(given)
            return
        where = self.where()
        if not isinstance(given, torch.Tensor):
            raise InputMismatchError(
                f"Expected input at {where} to be a tensor, but got {type(given).__name__}",
                remedy=f"pass a tensor of size {_sizes_text(self.sizes)} and {self.dtype}",
            )
        if not means_what_it_says(given):
            kind = type(given)
            raise InputMismatchError(
                f"Expected input at {where} to be a plain tensor, but got a {kind.__module__}.{kind.__qualname__}, "
                "which changes what operators mean",
                remedy="pass the plain tensors it consists of, or convert it with as_subclass(torch.Tensor)",
            )
        if given.dim() != len(self.sizes):
            raise InputMismatchError(
                f"Expected input at {where} to have {len(self.sizes)} dimensions {_sizes_text(self.sizes)}, but got "
                f"{given.dim()}: {list(given.shape)}",
                remedy="pass a tensor of the size the program was exported with",
            )
        for dimension, (size, bounds, actual) in enumerate(zip(self.sizes, self.ranges, given.shape, strict=True)):
            _check_size(size_of(where, dimension), size, bounds, actual, symbols)
        if given.dtype is not self.dtype:
            raise InputMismatchError(
                f"Expected input at {where}.dtype to be {self.dtype}, but got {given.dtype}",
                remedy=f"convert the input with .to({self.dtype}), or export the program for {given.dtype}"
                + (f" (program.to({given.dtype}) makes another one)" if _is_float(given, self.dtype) else ""),
            )

    def check_strides(self, given: Any, symbols: dict[Symbol, int]) -> None:
        """Raise unless it lies in memory as expected; sizes of other inputs may have a part in that."""
        if self.strides is None:
            return
        expected = [evaluate(stride, symbols) if isinstance(stride, Expr) else stride for stride in self.strides]
        if not lies_in_strides(given, expected):
            raise InputMismatchError(
                f"Expected input at {self.where()} to have the strides {expected}, but got {list(given.stride())}: "
                "the program writes to memory, or looks at it (as_strided), and what is there depends on that",
                location=self.because,
                remedy="pass it in the layout of the example (x.contiguous() if that was contiguous), export with an "
                "example in this layout, or clone() before the write",
            )

    def _check_number(self, given: Any, symbols: dict[Symbol, int]) -> None:
        """A number that varies; in a capture it may be symbolic again."""
        kind = int if self.value.kind == "int" else float
        if type(given) not in (kind, torch.SymInt if kind is int else torch.SymFloat):
            raise InputMismatchError(
                f"Expected input at {self.where()} to be {_ARTICLES[kind]}, but got {given!r}",
                remedy=f"pass {_ARTICLES[kind]}: the program was exported with one that varies",
            )
        if kind is int:
            _check_size(self.where(), self.value, self.ranges[0], given, symbols)

    def _check_value(self, given: Any) -> None:
        if isinstance(self.value, ObjectOf) and not self.value.is_name_of(given):
            raise InputMismatchError(
                f"Expected input at {self.where()} to be {self.value}, but got {given!r:.80}",
                remedy="pass an object of this class: the program calls its methods",
            )
        if not _same_value(given, self.value):
            raise InputMismatchError(
                f"Expected input at {self.where()} to be equal to {_shown(self.value)}, but got {_shown(given)}",
                remedy="the program was exported for this value only; export it again for another one",
            )


def _shown(value: Any) -> str:
    return f"{value!s:.80}"


def call_in_parts(call: Any) -> Any:
    """A call with the tensors taken apart that consist of others. What such a tensor's gradient is only its class can
    tell, from the operators that the program has taken apart."""
    if torch.is_grad_enabled():
        for path, leaf in tree.flatten_with_paths(call)[0]:
            if not isinstance(leaf, torch.Tensor) or not leaf.requires_grad or not is_wrapper(type(leaf)):
                continue
            if is_jagged(leaf):  # whose values have the gradient
                continue
            kind = type(leaf)
            raise InputMismatchError(
                f"Expected input at {place_in_call(path)}.requires_grad to be False, but got True: the program "
                f"computes with the tensors that a {kind.__module__}.{kind.__qualname__} consists of",
                remedy="pass it detached (x.detach()); tintype.export_joint makes a program with gradients of such "
                "parameters",
            )
    return with_parts(call)


# Classes of torch's that stand for plain tensors: in its own captures, and on several devices.
_STAND_FOR_TENSORS = ("torch._subclasses.", "torch.distributed.", "tintype.")


def means_what_it_says(value: Any) -> bool:
    """Whether a value is a tensor that operators do to what they do to any."""
    return isinstance(value, torch.Tensor) and not _changes_operators(type(value))


@functools.cache
def _changes_operators(kind: type) -> bool:
    return not kind.__module__.startswith(_STAND_FOR_TENSORS) and changes_operators(kind)


_ARTICLES = {int: "an int", float: "a float"}


def _check_size(where: Source, size: Size, bounds: Range | None, actual: int, symbols: dict[Symbol, int]) -> None:
    if not isinstance(size, Expr):
        if size != actual:
            raise InputMismatchError(
                f"Expected input at {where} to be equal to {size}, but got {actual}",
                remedy="export with dynamic_shapes to accept other sizes; if that was done, contract() names the "
                "line that fixes this one",
            )
        return
    unknown = [symbol for symbol in size.symbols if symbol not in symbols]
    if not unknown:
        expected = evaluate(size, symbols)
        if expected != actual:
            raise InputMismatchError(
                f"Expected input at {where} to be equal to {expected}, but got {actual}",
                remedy=f"the sizes of the inputs are related: this one is {named_text(size)}",
            )
    if len(unknown) == 1 and linear_in(size, unknown[0]) is not None:
        value = solve_for(size, unknown[0], actual, symbols)
        if value is None:
            raise InputMismatchError(
                f"Expected input {where} = {actual} to be of the form {size}, where {unknown[0]} is an integer",
                remedy=_form_text(size, unknown[0]),
            )
        symbols[unknown[0]] = value
    if bounds is not None and actual < bounds.lower:
        raise _out_of_range(f"Expected input at {where} to be >= {bounds.lower}, but got {actual}", size, bounds)
    if bounds is not None and actual > bounds.upper:
        raise _out_of_range(f"Expected input at {where} to be <= {bounds.upper}, but got {actual}", size, bounds)


def _form_text(size: Expr, symbol: Symbol) -> str:
    """What to pass for a size that is a multiple of another one, plus a constant."""
    name = named_text(symbol)
    form = linear_in(size, symbol)
    is_multiple = form is not None and form[1] == 0
    asked = (
        f"a multiple of {form[0]}" if form is not None and is_multiple else f"a size of the form {named_text(size)}"
    )
    return f"pass {asked}" + (f"; {symbol} is {name} of dynamic_shapes" if name != str(symbol) else "")


def _out_of_range(fact: str, size: Expr, bounds: Range) -> InputMismatchError:
    """The error for a size outside of the range that was exported for."""
    name = named_text(size)
    sources = [str(symbol.source) for symbol in size.symbols if symbol.source is not None]
    where = f" ({sources[0]})" if isinstance(size, Symbol) and sources else ""
    accepted = f"{name} >= {bounds.lower}"
    if bounds.upper < INFINITY:
        accepted = f"{bounds.lower} <= {name} <= {bounds.upper}"
    return InputMismatchError(
        fact,
        remedy=f"the program was exported for {accepted}{where}: pass such a size, or "
        "export it with a Dim of another range (contract() names the line that needs this one)",
    )


def solve_for(size: Expr, symbol: Symbol, actual: int, symbols: dict[Symbol, int]) -> int | None:
    """The value of a symbol that gives a size, or None where no integer does."""
    form = linear_in(size, symbol)
    if form is None:
        return None
    factor, rest = form
    product = actual - evaluate(rest, symbols)
    return None if product % factor != 0 else product // factor


def _is_float(given: torch.Tensor, expected: torch.dtype) -> bool:
    return given.dtype.is_floating_point and expected.is_floating_point


def _sizes_text(sizes: Sequence[Size]) -> str:
    return f"[{', '.join(named_text(size) for size in sizes)}]"


class InputChecks:
    """All expectations of a program."""

    def __init__(
        self,
        expectations: Sequence[Expectation],
        in_spec: tree.TreeSpec,
        observations: Sequence[Observation] = (),
        memory: MemoryChecks | None = None,
        names: Sequence[str] = (),
        positional: Sequence[str] = (),
    ) -> None:
        self.names = list(names)
        self.expectations = list(expectations)
        self.in_spec = in_spec
        self.calling = Calling(tuple(positional), dict(_constants(self.expectations)))
        # the order of keys is seen when arguments are taken apart (flatten_call), which containers are one when
        # those are looked for (CallersContainers), all else afterwards
        self.ordered = [seen for seen in observations if seen.fact == KEYS]
        self.of_containers = [seen for seen in observations if seen.fact in OF_CONTAINERS]
        self.observations = [seen for seen in observations if seen.fact not in (KEYS, *OF_CONTAINERS)]
        self.memory = memory if memory is not None and memory.needed else None

    def check(self, leaves: Sequence[Any], state_of: StateOf) -> None:
        """Raise for the first input that is not as expected; ``state_of`` finds the program's state by name."""
        given = tree.unflatten(list(leaves), self.in_spec)
        if not tree.same_structure(tree.flatten(given)[1], self.in_spec):  # a container in the place of a value
            args, kwargs = given
            refuse_call(self.in_spec, self.names, args, kwargs, self.calling)
        symbols: dict[Symbol, int] = {}
        for expectation, leaf in zip(self.expectations, leaves, strict=True):
            expectation.check(leaf, symbols)
        for expectation, leaf in zip(self.expectations, leaves, strict=True):
            expectation.check_strides(leaf, symbols)
        if self.looks_further:
            names = [f"input at {expectation.where()}" for expectation in self.expectations]
            check_observed(self.observations, leaves, names, state_of, symbols)
            if self.memory is not None:
                self.memory.check(leaves, names, state_of)

    @property
    def looks_further(self) -> bool:
        """Whether more is checked than the sizes, dtypes and values of the inputs."""
        return bool(self.observations) or self.memory is not None

    def write(self, writer: Writer, variables: Sequence[str], state_of: str) -> None:
        """Generate the quick test over variables that hold the leaves; ``state_of`` is the expression of a function
        that finds the program's state by name."""
        leaves = "".join(f"{name}, " for name in variables)
        check = self.check
        if writer.is_traced:
            check = untraced(lambda leaves, state_of: self.check(leaves, state_of))
        report = f"{writer.bind(check)}(({leaves}), {state_of})"
        known: dict[Symbol, str] = {}
        for name, expectation in zip(variables, self.expectations, strict=True):
            if isinstance(expectation.value, Expr):
                bounds = expectation.ranges[0] if expectation.ranges else None
                write_number_check(writer, name, expectation.value, bounds, known, report)
            elif expectation.dtype is None:
                writer.line(f"if {_differs(writer, name, expectation.value)}: {report}")
            else:
                _write_tensor_check(writer, name, expectation, known, report)
        write_observed(writer, self.observations, variables, state_of, known, report)
        if self.memory is not None and writer.is_traced:
            self._write_traced_memory(writer, self.memory, variables, state_of)
        elif self.memory is not None:
            tensors = ", ".join(variables[position] for position in self.memory.inputs)
            may_overlap = writer.bind(_MemoryTest(self.memory).may_overlap)
            writer.line(f"if {may_overlap}({state_of}, {tensors}): {report}")

    def _write_traced_memory(
        self, writer: Writer, memory: MemoryChecks, variables: Sequence[str], state_of: str
    ) -> None:
        """The same by an operator, which a compiled program calls each time."""
        tensors = ", ".join(variables[position] for position in memory.inputs)
        names = [f"input at {self.expectations[position].where()}" for position in memory.inputs]
        written = [place for place, position in enumerate(memory.inputs) if position in memory.written]
        state = memory.state_that_matters
        values = ", ".join(f"{state_of}({name!r})" for name in state)
        written_state = [name for name in state if name in memory.written_state]
        arguments = f"[{tensors}], {names!r}, {written!r}, [{values}], {state!r}, {written_state!r}"
        writer.line(f"{writer.bind(memory_operator())}({arguments})")


def _constants(expectations: Sequence[Expectation]) -> Iterator[tuple[int | str, Any]]:
    """The arguments that are one value each, which the program was exported for, by position or name."""
    for expectation in expectations:
        if expectation.dtype is None and not isinstance(expectation.value, Expr) and len(expectation.path) == 2:
            in_kwargs, place = expectation.path[0].idx, expectation.path[1]
            yield (place.key if in_kwargs else place.idx), expectation.value


class _MemoryTest:
    """The quick test of shared memory; it remembers where the state of the module lies that it was last run for."""

    def __init__(self, memory: MemoryChecks) -> None:
        self.memory = memory
        self.state_of: Any = None
        self.test: Any = None

    def may_overlap(self, state_of: StateOf, *tensors: torch.Tensor) -> bool:
        """Whether the inputs have to be looked at; while a program is captured, who captures does so."""
        if _modes_active() and active_recorder() is not None:
            return False
        if state_of != self.state_of:
            self.test = self.memory.quick_test(state_of)
            self.state_of = state_of
        return self.test(*tensors)


def _same_value(given: Any, expected: Any) -> bool:
    if isinstance(expected, (SavedFunction, ObjectOf)):
        return expected.is_name_of(given)
    if isinstance(given, torch.SymInt) and type(expected) is int:
        return bool(given == expected)  # a program that is captured again decides about the number what it did before
    return is_like(given, expected)


class SavedFunction:
    """A function among the inputs of a program that comes from a file: what it does is part of the graph, and what is
    left of it is its name."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def is_name_of(self, given: Any) -> bool:
        """Whether a value is that function, as far as a name can tell."""
        return (given.name if isinstance(given, SavedFunction) else name_of_function(given)) == self.name

    def __repr__(self) -> str:
        return f"<function {self.name}>"


class ObjectOf:
    """A custom object among the inputs of a program: any one of its class will do."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def is_name_of(self, given: Any) -> bool:
        """Whether a value is an object of the class."""
        return isinstance(given, torch.ScriptObject) and given._type().qualified_name() == self.name

    def __repr__(self) -> str:
        return f"an object of {self.name}"


def name_of_function(value: Any) -> str | None:
    """The full name of a function, with its line where it has no name of its own; None for what is no function."""
    if not isinstance(value, FunctionType):
        return None
    name = f"{value.__module__}.{value.__qualname__}"
    return f"{name}:{value.__code__.co_firstlineno}" if value.__name__ == "<lambda>" else name


def _differs(writer: Writer, name: str, expected: Any) -> str:
    if isinstance(expected, (SavedFunction, ObjectOf)):
        return f"not {writer.bind(expected.is_name_of)}({name})"
    return unlike(writer, name, expected)


def _write_tensor_check(
    writer: Writer, name: str, expectation: Expectation, known: dict[Symbol, str], report: str
) -> None:
    # most are plain tensors, which is quicker to see than that one is a parameter or of a harmless class
    is_tensor = f"(type({name}) is {writer.bind(torch.Tensor)} or {writer.bind(means_what_it_says)}({name}))"
    answers = {"sizes": expectation.sizes, "dtype": expectation.dtype}
    write_tensor_check(writer, name, answers, known, report, expectation.ranges, is_tensor)
    if expectation.strides is not None:
        varies = any(isinstance(size, Expr) for size in expectation.sizes)
        writer.line(report if varies else f"if {name}.stride() != {expectation.strides!r}: {report}")


def flatten_call(
    args: Sequence[Any],
    kwargs: dict[str, Any],
    in_spec: tree.TreeSpec,
    names: Sequence[str],
    ordered: Sequence[Observation] = (),
    quick: tree.TakingApart | None = None,
    calling: Calling = AS_THE_EXAMPLE,
) -> list[Any]:
    """The leaves of a call's arguments, in the order of the program's inputs.

    Arguments may be given by position or by name, keywords in any order; so may the keys of dictionaries, unless the
    program goes by their order. Those that the program has one value for only may be left out.
    """
    given = arranged(args, kwargs, in_spec, names, calling)
    known = quick.leaves(given) if quick is not None else None
    if known is not None:  # then dictionaries have their keys in the order of the example, keywords maybe not
        ordered = [seen for seen in ordered if is_of_keywords(seen)] if ordered else ()
    leaves, spec = (known, in_spec) if known is not None else tree.flatten(given)
    if not tree.same_structure(spec, in_spec):
        try:
            given = tree.with_classes(given, in_spec)  # namespaces may stand for objects
            spec = tree.flatten(given)[1]
            leaves = in_spec.flatten_up_to(given)  # dictionaries may have their keys in another order
        except ValueError:
            refuse_call(in_spec, names, args, kwargs, calling)
        if not tree.same_structure(spec, in_spec, any_order=True):
            refuse_call(in_spec, names, args, kwargs, calling)
    if ordered:
        check_order(ordered, in_spec, spec, kwargs)
    return leaves
