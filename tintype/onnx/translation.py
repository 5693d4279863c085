"""The driver: from a program's graph to an ONNX graph, node by node.

Each node's operator is looked up (the user's translation, our lowering, torchlib's), its operands are promoted as
torch does, and its results get the dtype, shape and name that the program has for them. What has no lowering is noted
and passed over, so that one report names everything that is missing.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from tintype.errors import Location
from tintype.fake.tensor import FakeTensor
from tintype.ir.graph import is_pure, location_of, output_node, placeholders, subgraph_at
from tintype.ir.node_info import module_names
from tintype.onnx import dtypes
from tintype.onnx.builder import Builder, Store
from tintype.onnx.custom import call_translation
from tintype.onnx.errors import LoweringError
from tintype.onnx.libraries import ir
from tintype.onnx.patterns import replaced
from tintype.onnx.promotion import operand_dtypes
from tintype.onnx.registry import complex_lowering, load_lowerings, own_lowering, reason_against
from tintype.onnx.torchlib import Torchlib, accepted
from tintype.onnx.values import Value
from tintype.onnx.varying_numbers import reason_of, reduced
from tintype.symbolic import Expr, python_source
from tintype.symbolic.expression import Symbol

_FIRST_WITH_FLOAT8 = 19
_DROPPED = (torch.device, torch.layout, torch.memory_format)
_COMPLEX = (ir.DataType.COMPLEX64, ir.DataType.COMPLEX128)
_SYMBOLIC = {torch.SymInt: ir.DataType.INT64, torch.SymFloat: ir.DataType.DOUBLE, torch.SymBool: ir.DataType.BOOL}


@dataclasses.dataclass(frozen=True)
class Failure:
    """One call of an operator that has no form in ONNX."""

    operator: str
    reason: str
    location: Location | None


@dataclasses.dataclass
class Assertion:
    """Something that the program asserts when it runs: a truth value, and what to say where it is false."""

    value: Value
    message: str
    at: str | None  # the line of the model


class Translator:
    """What the graphs of one program share while they are translated."""

    def __init__(
        self, opset: int, translations: Mapping[Any, Callable[..., Any]], names: Mapping[Symbol, str]
    ) -> None:
        load_lowerings()
        self.opset = opset
        self.translations = translations
        self.names = names
        self.store = Store()
        self.failures: list[Failure] = []
        self.assertions: list[Assertion] = []
        self.notes: list[str] = []
        self.with_modules = False  # whether calls of modules will be functions
        self.functions: dict[Any, Any] = {}
        self._shapes: dict[Any, str] = {}

    def dimension(self, size: Any) -> int | str:
        """A size as ONNX writes it: a number, or an expression in the names of dimensions."""
        if not isinstance(size, Expr):
            return int(size)
        text = self._shapes.get(size)
        if text is None:
            text = self._shapes[size] = python_source(size, self.names)
        return text

    def shape_of(self, fake: FakeTensor) -> ir.Shape:
        """The shape of the value that holds a tensor."""
        sizes = [self.dimension(size) for size in fake.info.sizes]
        if fake.info.dtype.is_complex:
            sizes.append(2)
        return ir.Shape(sizes)

    def describe(self, value: Value, example: Any) -> None:
        """Give a value the dtype and shape of a value of the program."""
        if type(example) is FakeTensor:
            dtype = dtypes.stored_as(example.info.dtype)
            if dtype is None:
                raise LoweringError(f"ONNX has no dtype {example.info.dtype}")
            if dtype.name.startswith("FLOAT8") and self.opset < _FIRST_WITH_FLOAT8:
                raise LoweringError(f"opset {self.opset} has no {example.info.dtype}; {_FIRST_WITH_FLOAT8} has")
            value.dtype = dtype
            value.shape = self.shape_of(example)
        else:
            value.dtype = _SYMBOLIC.get(type(example)) or _number_dtype(example)
            value.shape = ir.Shape([])


def _number_dtype(example: Any) -> ir.DataType:
    if isinstance(example, bool):
        return ir.DataType.BOOL
    if isinstance(example, int):
        return ir.DataType.INT64
    if isinstance(example, float):
        return ir.DataType.DOUBLE
    raise LoweringError(f"a {type(example).__name__} is no value of ONNX")


def _is_empty(example: Any) -> bool:
    """Whether a result is known to have no elements, whatever the inputs are."""
    if isinstance(example, (tuple, list)):
        return bool(example) and all(_is_empty(item) for item in example)
    if type(example) is not FakeTensor:
        return False
    sizes = example.info.sizes
    return 0 in sizes and all(isinstance(size, int) for size in sizes)


class GraphTranslator:
    """Translates one graph: that of the program, or one inside of it."""

    def __init__(self, shared: Translator, outer: GraphTranslator | None = None) -> None:
        self.shared = shared
        self.outer = outer
        self.builder: Builder = Builder(shared.opset, shared.store, None if outer is None else outer.builder)
        self.builder.program = self
        self.torchlib = Torchlib(self.builder)
        self.values: dict[Node, Any] = {}
        # those of a graph inside are handed out by the node that it belongs to
        self.asserted: list[Assertion] = shared.assertions if outer is None else []

    def translate(self, graph: Graph, inputs: Sequence[Any]) -> list[Any]:
        """Translate a graph on values for its inputs; returns its results: values, numbers or None."""
        for node, value in zip(placeholders(graph), inputs, strict=True):
            self.values[node] = value
        for node in graph.nodes:
            if node.op == "call_function":
                self._call(node)
            elif node.op == "get_attr":
                self.values[node] = subgraph_at(node)
        results = output_node(graph).args[0]
        assert isinstance(results, (list, tuple))
        return [self._argument(result) for result in results]

    def scope(self) -> GraphTranslator:
        """A translator for a graph inside of this one, which sees the values of this one."""
        return GraphTranslator(self.shared, self)

    def inline(self, module: GraphModule, inputs: Sequence[Any]) -> list[Any]:
        """Translate a graph in place, as if its nodes stood here."""
        values, node = self.values, self.builder.node
        self.values = {}
        try:
            return self.translate(module.graph, inputs)
        finally:
            self.values, self.builder.node = values, node

    def call_operator(self, target: Any, args: Sequence[Any]) -> Any:
        """What torchlib makes of an operator, for a lowering that is told which one to use."""
        function = self.torchlib.function(target, False)
        if function is None:
            raise LoweringError(f"there is no ONNX form of {target}")
        return function(*args)

    def dtype_of(self, example: Any) -> ir.DataType:
        """The dtype of the value that holds a tensor of the program."""
        dtype = dtypes.stored_as(example.dtype)
        if dtype is None:
            raise LoweringError(f"ONNX has no dtype {example.dtype}")
        return dtype

    def assert_that(self, truth: Value, message: str, at: str | None = None) -> None:
        """Keep an assertion for the program that runs to look at."""
        truth.shape = ir.Shape([])
        if at is None:
            location = location_of(self.builder.node)
            at = None if location is None else str(location)
        self.asserted.append(Assertion(truth, message, at))

    # --- one node --------------------------------------------------------------------------------------------

    def _call(self, node: Node) -> None:
        target = node.target
        if target is operator.getitem and isinstance(self.values.get(node.args[0]), (list, tuple)):  # type: ignore[arg-type]
            self.values[node] = self.values[node.args[0]][node.args[1]]  # type: ignore[index]
            return
        builder = self.builder
        builder.node = node
        if self.shared.with_modules:
            builder.scope = tuple(module_names(node.meta))  # type: ignore[arg-type]
        first = len(builder.nodes)
        try:
            result = self._lowered(node)
            self.values[node] = self._settled(node, result)
        except LoweringError as error:
            self._fail(node, str(error))
        except Exception as error:
            # functions that others wrote fail in all ways; each is one reason why there is no program
            failed = f"{self._whose(node)} failed: {type(error).__name__}: {error}"
            own = node.target not in self.shared.translations
            self._fail(node, (reason_of(node, error) if own else None) or failed)
        for made in builder.nodes[first:]:
            made.meta["node"] = node

    def _whose(self, node: Node) -> str:
        """Who wrote the translation of a node, to tell what ONNX can't say from what somebody got wrong."""
        if node.target in self.shared.translations:
            return "the translation that was given for it"
        if own_lowering(node.target, self.shared.opset) is not None or complex_lowering(node.target) is not None:
            return "this is a bug of tintype's, please report it: its translation"
        return "onnxscript's translation of it"

    def _lowered(self, node: Node) -> Any:
        target = node.target
        args = [self._argument(argument) for argument in node.args]
        kwargs = {name: self._argument(value) for name, value in node.kwargs.items()}
        custom = self.shared.translations.get(target)
        if custom is None and _is_empty(node.meta.get("val")) and is_pure(node):
            return self._empty(node.meta["val"])
        if custom is not None:
            result = call_translation(custom, self.builder, args, kwargs)
            made = result if isinstance(result, (tuple, list)) else [result]
            if node.users and not all(isinstance(each, ir.Value) for each in made):
                raise LoweringError(f"the translation that was given for it returned {result!r}, no value of ONNX's")
            return result
        whole = replaced(self.builder, node, self._argument, self.shared.translations)
        if whole is not None:
            return whole
        whole = reduced(self.builder, node, args[0] if args else None)
        if whole is not None:
            return whole
        wanted = operand_dtypes(node)
        is_complex = isinstance(target, torch._ops.OpOverload) and (
            any(
                isinstance(source.meta.get("val"), torch.Tensor) and source.meta["val"].dtype.is_complex
                for source in node.all_input_nodes
            )
            or any(isinstance(argument, complex) for argument in node.args)
        )
        if wanted is not None and not is_complex:
            for position, dtype in wanted.items():
                args[position] = self._promoted(args[position], dtype)
        makes_complex = is_complex or getattr(node.meta.get("val"), "dtype", torch.float32).is_complex
        own = complex_lowering(target) if makes_complex else None
        if own is not None:
            return own(self.builder, *args, **kwargs)
        own = own_lowering(target, self.shared.opset)
        if own is not None and (not is_complex or getattr(own, "takes_complex", False)):
            return own(self.builder, *args, **kwargs)
        if not isinstance(target, torch._ops.OpOverload):
            raise LoweringError("there is no ONNX form of it")
        reason = reason_against(target)
        if reason is not None:
            raise LoweringError(reason)
        function = self.torchlib.function(target, is_complex)
        if function is None:
            raise LoweringError("there is no ONNX form of it" + (" for complex numbers" if is_complex else ""))
        if "dtype" in kwargs and kwargs["dtype"] is None:
            kwargs["dtype"] = -1
        return function(*args, **accepted(function, kwargs))

    def _empty(self, example: Any) -> Any:
        """A tensor without elements, which ONNX Runtime's kernels don't always know how to make."""
        if isinstance(example, (tuple, list)):
            return [self._empty(item) for item in example]
        dtype = dtypes.stored_as(example.info.dtype)
        if dtype is None:
            raise LoweringError(f"ONNX has no dtype {example.info.dtype}")
        sizes = [*example.info.sizes, *([2] if example.info.dtype.is_complex else [])]
        return self.builder.emit("Expand", self.builder.constant(0, dtype), sizes)

    def _argument(self, argument: Any) -> Any:
        if isinstance(argument, Node):
            return self.values[argument]
        if isinstance(argument, (list, tuple)):
            return [self._argument(item) for item in argument]
        if isinstance(argument, torch.dtype):
            dtype = dtypes.to_onnx(argument) or dtypes.stored_as(argument)
            if dtype is None:
                raise LoweringError(f"ONNX has no dtype {argument}")
            return int(dtype)
        if isinstance(argument, _DROPPED):
            return None
        return argument

    def _promoted(self, argument: Any, dtype: torch.dtype) -> Any:
        """An operand in the dtype that the operator computes in."""
        if isinstance(argument, list):
            return [self._promoted(item, dtype) for item in argument]
        if isinstance(argument, ir.Value) and not dtype.is_complex:
            wanted = dtypes.to_onnx(dtype)
            return argument if argument.dtype is wanted else self.builder.emit("Cast", argument, to=wanted)
        if type(argument) is int and dtype.is_floating_point:
            return float(argument)
        return argument

    def _settled(self, node: Node, result: Any) -> Any:
        """What a lowering returned, with the dtypes, shapes and name that the program has for it."""
        example = node.meta.get("val")
        if isinstance(example, (tuple, list)):
            if not isinstance(result, (tuple, list)):
                result = (result,)
            if len(result) < len(example):
                raise LoweringError(f"its translation gives {len(result)} results where torch gives {len(example)}")
            name = node.name
            return [
                self._fitted(value, each, f"{name}_{position}")
                for position, (value, each) in enumerate(zip(result, example))
            ]
        if isinstance(result, (tuple, list)):
            result = result[0]
        return self._fitted(result, example, node.name)

    def _fitted(self, value: Any, example: Any, name: str) -> Any:
        if example is None or value is None:
            return value
        if not isinstance(value, ir.Value):
            if type(example) is FakeTensor:
                value = self.builder.constant(value, dtypes.stored_as(example.info.dtype))
            else:
                return value
        wanted = Value(self.builder)
        self.shared.describe(wanted, example)
        if value.dtype in _COMPLEX:  # which are pairs of real numbers here
            raise LoweringError("there is no ONNX form of it for complex numbers")
        if value.dtype is None:
            value.dtype = wanted.dtype
        elif value.dtype is not wanted.dtype:
            value = self.builder.emit("Cast", value, to=wanted.dtype)
        if value.shape is None or (value.producer() is not None and value.name is None):
            value.shape = wanted.shape
        if value.name is None and value.producer() is not None:
            value.name = self.shared.store.free_name(name)
        return value

    def _fail(self, node: Node, reason: str) -> None:
        """Note that a node has no form, and go on with values that look like its results."""
        name = (
            str(node.target)
            if isinstance(node.target, torch._ops.OpOverload)
            else getattr(node.target, "__name__", str(node.target))
        )
        self.shared.failures.append(Failure(name, reason, location_of(node)))
        self.values[node] = self._stand_in(node.meta.get("val"))

    def _stand_in(self, example: Any) -> Any:
        if isinstance(example, (tuple, list)):
            return [self._stand_in(item) for item in example]
        if example is None:
            return None
        value = Value(self.builder)
        try:
            self.shared.describe(value, example)
        except LoweringError:
            return None
        return value
