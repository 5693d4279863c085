"""Builds the nodes of one ONNX graph.

``builder.Add(x, 1)`` makes a node of the operator that the target opset calls so. Python numbers and lists become
constants of the dtype that the operator wants there; what can be known already (casts of constants, shapes that are
fixed, the same call again) makes no node. Lowerings, torchlib's and ours, are written against it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tintype.onnx.computing import computed_in
from tintype.onnx.errors import LoweringError
from tintype.onnx.folding import folded
from tintype.onnx.libraries import ir
from tintype.onnx.rearranged import SHAPES
from tintype.onnx.schemas import Parameter, Schema, schema_of
from tintype.onnx.values import Value

DataType = ir.DataType
_INT64 = DataType.INT64

# Operators that give another answer each time.
_RANDOM = frozenset(
    {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli", "Multinomial", "Dropout"}
)
# Results that have the shape of the first input.
_SHAPE_OF_FIRST = frozenset(
    {
        "Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Cast", "CastLike", "Ceil", "Clip", "Cos", "Cosh",
        "CumSum", "Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish", "IsInf", "IsNaN",
        "LayerNormalization", "LeakyRelu", "Log", "LogSoftmax", "Mish", "Neg", "Not", "Reciprocal", "Relu", "Round",
        "Selu", "Sigmoid", "Sign", "Sin", "Sinh", "Softmax", "Softplus", "Softsign", "Sqrt", "Tan", "Tanh", "Trilu",
    }
)  # fmt: skip


# What is built for operators that take floating-point numbers only, where they are given integers.
_INTEGER_FORMS: dict[str, Callable[..., Any]] = {}


def integer_form(operation: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register what an ONNX operator is to be for integers: a function of a builder, inputs and attributes."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        _INTEGER_FORMS[operation] = function
        return function

    return register


# What is built for operators that ONNX Runtime computes otherwise than torch does, in some cases.
_FORMS: dict[str, Callable[..., Any]] = {}


def form_of(*operations: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register what ONNX operators are to be: a function of a builder, the name, inputs and attributes, which
    returns None where the operator is right as it is."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        _FORMS.update(dict.fromkeys(operations, function))
        return function

    return register


class Store:
    """What the graphs of one model share: constants, and the names that are taken."""

    def __init__(self) -> None:
        self.constants: dict[Any, Value] = {}
        self.taken: set[str] = set()
        self.counts: dict[str, int] = {}

    def free_name(self, stem: str) -> str:
        """A name that nothing has yet; it is taken from then on."""
        name = stem
        while name in self.taken:
            count = self.counts[stem] = self.counts.get(stem, 0) + 1
            name = f"{stem}_{count}"
        self.taken.add(name)
        return name

    def name_results(self, nodes: Sequence[ir.Node]) -> None:
        """Name what has no name yet before nodes become a graph, which would number its values by itself: names
        are unique in the whole model."""
        for node in nodes:
            for output in node.outputs:
                if output.name is None:
                    source = node.meta.get("node")
                    output.name = self.free_name(f"{'value' if source is None else source.name}_{node.op_type}")


class Builder:
    """The nodes of one graph, in order; graphs inside of it have builders of their own."""

    def __init__(self, opset: int, store: Store, outer: Builder | None = None) -> None:
        self.opset = opset
        self.store = store
        self.outer = outer
        self.nodes: list[ir.Node] = []
        self.node: Any = None  # the node of the program's graph that is being translated
        self.program: Any = None  # what the driver knows, for lowerings of operators with graphs
        self.scope: Any = None  # the module call that nodes are made in, where it must not share them with others
        self._made: dict[Any, Any] = {}
        # numbers as vectors of one element, which is how most operators take them
        self._vectors: dict[Value, Value] = {} if outer is None else dict(outer._vectors)

    def is_inside(self, other: Builder) -> bool:
        """Whether this graph is inside of another one, at any depth."""
        outer = self.outer
        while outer is not None and outer is not other:
            outer = outer.outer
        return outer is not None

    # --- making nodes ----------------------------------------------------------------------------------------

    def __getattr__(self, name: str) -> Any:
        if not name[:1].isupper():
            raise AttributeError(name)
        method = functools.partial(self.emit, name)
        setattr(self, name, method)
        return method

    def emit(self, operation: str, *args: Any, **kwargs: Any) -> Any:
        """A call of an ONNX operator: its result, or a tuple of them."""
        if operation == "Constant":
            return self._constant_operator(kwargs)
        if operation in ("Cast", "CastLike") and isinstance(args[0], (bool, int, float)):
            wanted = DataType(int(kwargs["to"])) if operation == "Cast" else getattr(args[1], "dtype", None)
            if wanted is not None:
                return self.constant(args[0], wanted)  # at once: what float32 has of a number is not all of it
        schema = schema_of(operation, self.opset)
        if schema is None:
            raise LoweringError(f"opset {self.opset} has no operator {operation}")
        inputs, attributes, count = _sorted_out(schema, args, kwargs)
        if operation in _CONVENTIONS:
            _CONVENTIONS[operation](self, inputs, attributes)
        values, bound = self._values(schema, inputs)
        main = schema.inputs[1 if operation == "Where" else 0] if schema.inputs else None
        variable = "" if main is None else main.variable
        form = _INTEGER_FORMS.get(operation)
        if form is not None and values[0] is not None and not values[0].dtype.is_floating_point():
            return form(self, values, attributes)
        if operation in _FORMS:
            made = _FORMS[operation](self, operation, values, attributes)
            if made is not None:
                return made
        instead = computed_in(operation, bound.get(variable), attributes)
        if instead is None and bound.get(variable) is DataType.BFLOAT16 and main and not main.takes_bfloat16:
            instead = DataType.FLOAT
        if instead is not None:
            return self._computed_in(instead, operation, schema, variable, values, attributes, count)
        result = folded(self, operation, values, attributes)
        if result is not None:
            return result
        key = self._key(operation, values, attributes, count)
        if key is not None:
            known = self._known(key)
            if known is not None:
                return known
        outputs = self._outputs(schema, operation, values, attributes, bound, count)
        self._append(operation, values, attributes, schema.attributes, outputs)
        made = outputs[0] if len(outputs) == 1 else tuple(outputs)
        if key is not None:
            self._made[key] = made
        return made

    def _computed_in(
        self,
        dtype: ir.DataType,
        operation: str,
        schema: Schema,
        variable: str,
        values: list[Any],
        attributes: dict[str, Any],
        count: int | None,
    ) -> Any:
        """A call whose operands are converted, and whose results are converted back."""
        last = len(schema.inputs) - 1
        original = next(
            value.dtype
            for place, value in enumerate(values)
            if value is not None and schema.inputs[min(place, last)].variable == variable
        )
        converted = [
            self.cast(value, dtype)
            if value is not None and schema.inputs[min(place, last)].variable == variable
            else value
            for place, value in enumerate(values)
        ]
        result = self.emit(operation, *converted, **attributes, _outputs=count)
        results = list(result) if isinstance(result, tuple) else [result]
        for place, value in enumerate(results):
            if schema.outputs[min(place, len(schema.outputs) - 1)].variable == variable:
                results[place] = self.cast(value, original)
        return tuple(results) if isinstance(result, tuple) else results[0]

    def call(
        self,
        domain: str,
        operation: str,
        args: Sequence[Any],
        attributes: dict[str, Any],
        outputs: int,
        version: int = 1,
    ) -> list[Value]:
        """A call of an operator that ONNX does not know: one of a domain of the user's, or a function."""
        values = [
            argument if argument is None or isinstance(argument, ir.Value) else self.constant(argument)
            for argument in args
        ]
        made = [Value(self) for _ in range(outputs)]
        converted = [
            ir.convenience.convert_attribute(name, value) for name, value in attributes.items() if value is not None
        ]
        self.nodes.append(ir.Node(domain, operation, values, converted, outputs=made, version=version))
        return made

    def _append(
        self, operation: str, values: Sequence[Any], attributes: dict[str, Any], types: Any, outputs: Sequence[Value]
    ) -> None:
        converted = [_attribute(name, types.get(name), value) for name, value in attributes.items()]
        self.nodes.append(ir.Node("", operation, values, converted, outputs=outputs))

    def _outputs(
        self,
        schema: Schema,
        operation: str,
        values: Sequence[Any],
        attributes: dict[str, Any],
        bound: dict[str, ir.DataType],
        count: int | None,
    ) -> list[Value]:
        number = count or _number_of_outputs(schema, operation, values, attributes)
        outputs = [Value(self) for _ in range(number)]
        described = schema.outputs
        for position, output in enumerate(outputs):
            parameter = described[min(position, len(described) - 1)]
            if not parameter.is_sequence:
                dtype = _output_dtype(operation, position, parameter, values, attributes, bound)
                if dtype is not None:
                    output.dtype = dtype
        if operation in _SHAPE_OF_FIRST and values and values[0] is not None and values[0].shape is not None:
            outputs[0].shape = values[0].shape
        elif operation in SHAPES and values[0].shape is not None:
            outputs[0].shape = SHAPES[operation](list(values[0].shape), values, attributes)
        elif operation == "Shape" and values[0].shape is not None:
            rank = len(values[0].shape)
            start, end, _ = slice(attributes.get("start", 0), attributes.get("end", rank)).indices(rank)
            outputs[0].shape = ir.Shape([max(end - start, 0)])
        return outputs

    def _key(self, operation: str, values: Sequence[Any], attributes: dict[str, Any], count: int | None) -> Any:
        if operation in _RANDOM:
            return None
        parts: list[Any] = [operation, count, self.scope]
        parts += [None if value is None else id(value) for value in values]
        for name, value in attributes.items():
            if isinstance(value, (list, tuple)):
                value = tuple(value)
            if not isinstance(value, (int, float, str, tuple)):
                return None
            parts.append((name, type(value), value))
        return tuple(parts)

    def _known(self, key: Any) -> Any:
        builder: Builder | None = self
        while builder is not None:
            made = builder._made.get(key)
            if made is not None:
                return made
            builder = builder.outer
        return None

    # --- arguments -------------------------------------------------------------------------------------------

    def _values(self, schema: Schema, inputs: list[Any]) -> tuple[list[Any], dict[str, ir.DataType]]:
        bound: dict[str, ir.DataType] = {}
        parameters = schema.inputs
        last = len(parameters) - 1
        pending = mixed = False
        for position, given in enumerate(inputs):
            if isinstance(given, ir.Value):
                dtype = given.dtype
                if dtype is not None:
                    variable = parameters[position if position < last else last].variable
                    mixed = bound.setdefault(variable, dtype) is not dtype or mixed
            elif given is not None:
                pending = True
        if mixed:
            inputs = self._in_one_dtype(schema, inputs, bound)
        if pending:
            inputs = [
                given
                if given is None or isinstance(given, ir.Value)
                else self._converted(parameters[position if position < last else last], given, bound)
                for position, given in enumerate(inputs)
            ]
        return inputs, bound

    def _in_one_dtype(self, schema: Schema, inputs: list[Any], bound: dict[str, ir.DataType]) -> list[Any]:
        """Numbers that vary, in the dtype of the tensors beside them."""
        last = len(schema.inputs) - 1
        variables = [schema.inputs[min(position, last)].variable for position in range(len(inputs))]
        for variable, given in zip(variables, inputs):
            if isinstance(given, ir.Value) and given.dtype is not None and not _is_number(given):
                if _is_number(next(each for name, each in zip(variables, inputs) if name == variable)):
                    bound[variable] = given.dtype
        made: list[Any] = []
        for variable, given in zip(variables, inputs):
            wanted = bound.get(variable)
            if isinstance(given, ir.Value) and wanted is not None and given.dtype not in (None, wanted):
                if not _is_number(given):
                    raise LoweringError(f"{schema.name} is given operands of {wanted.name} and {given.dtype.name}")
                given = self.emit("Cast", given, to=wanted)
            made.append(given)
        return made

    def _converted(self, parameter: Parameter, given: Any, bound: dict[str, ir.DataType]) -> Any:
        if parameter.is_sequence:
            return self.emit("SequenceConstruct", *given)
        if isinstance(given, (list, tuple)) and any(isinstance(item, ir.Value) for item in given):
            return self.vector(given)
        dtype = bound.get(parameter.variable) or parameter.only
        return self.constant(given, dtype)

    def constant(self, value: Any, dtype: ir.DataType | None = None) -> Value:
        """A constant: a number, a list of numbers, an array or a tensor, in this dtype or the one that it has."""
        if isinstance(value, ir.Attr):
            value = value.value
        if isinstance(value, ir.TensorProtocol):
            array = value.numpy()
            dtype = dtype or value.dtype
        else:
            if dtype is None:
                dtype = _natural_dtype(value)
            if isinstance(value, complex):
                value = [value.real, value.imag]
            array = np.asarray(value)
        numpy_dtype = dtype.numpy()
        if array.dtype != numpy_dtype:
            array = _as_torch_would(array, numpy_dtype)
        key = (array.tobytes(), array.shape, dtype)
        known = self.store.constants.get(key)
        if known is None:
            known = Value(self)
            known.dtype = dtype
            known.shape = ir.Shape(array.shape)
            known.const_value = ir.Tensor(array, dtype=dtype)
            if array.size <= 64:
                known.array = array
            self.store.constants[key] = known
        return known

    def _constant_operator(self, attributes: dict[str, Any]) -> Value:
        ((name, value),) = attributes.items()
        dtype = {
            "value_int": _INT64,
            "value_ints": _INT64,
            "value_float": DataType.FLOAT,
            "value_floats": DataType.FLOAT,
        }
        return self.constant(value, dtype.get(name))

    # --- numbers ---------------------------------------------------------------------------------------------

    def size(self, value: ir.Value, dimension: int) -> Any:
        """The size of a dimension: a number where it is fixed, else a value without dimensions."""
        shape = value.shape
        assert shape is not None
        dimension %= len(shape)
        fixed = shape[dimension]
        if isinstance(fixed, int):
            return fixed
        vector = self.emit("Shape", value, start=dimension, end=dimension + 1)
        number = self.emit("Squeeze", vector)
        number.dtype = _INT64
        number.shape = ir.Shape([])
        self._vectors[number] = vector
        return number

    def vector(self, items: Sequence[Any]) -> Value:
        """Numbers, some of which are values, as one vector of integers."""
        if not any(isinstance(item, ir.Value) for item in items):
            return self.constant(list(items), _INT64)
        parts: list[Any] = []
        run: list[int] = []
        for item in items:
            if not isinstance(item, ir.Value):
                run.append(int(item))
                continue
            array = getattr(item, "array", None)
            if array is not None and array.size == 1:
                run.append(int(array.reshape(())))
                continue
            if run:
                parts.append(self.constant(run, _INT64))
                run = []
            parts.append(self.as_vector(item))
        if run:
            parts.append(self.constant(run, _INT64))
        return parts[0] if len(parts) == 1 else self.emit("Concat", *parts, axis=0)

    def as_vector(self, number: Any) -> Value:
        """A number as a vector of one integer."""
        if not isinstance(number, ir.Value):
            return self.constant([int(number)], _INT64)
        assert isinstance(number, Value)
        known = self._vectors.get(number)
        if known is None:
            if number.dtype is not _INT64:
                number = self.emit("Cast", number, to=_INT64)
            known = (
                number if number.shape is not None and len(number.shape) == 1 else self.emit("Reshape", number, [1])
            )
            known.shape = ir.Shape([1])
            self._vectors[number] = known
        return known

    def vector_of(self, number: Any) -> Value | None:
        """The vector of a number, if there is one already."""
        return self._vectors.get(number)

    def like(self, value: Any, tensor: ir.Value) -> Any:
        """A number or value in the dtype of another value."""
        if isinstance(value, ir.Value):
            return value if value.dtype is tensor.dtype else self.emit("Cast", value, to=tensor.dtype)
        return self.constant(value, tensor.dtype)

    def cast(self, value: Any, dtype: ir.DataType) -> Any:
        """A number or value in a dtype."""
        if isinstance(value, ir.Value):
            return value if value.dtype is dtype else self.emit("Cast", value, to=dtype)
        return self.constant(value, dtype)


def _is_number(value: Any) -> bool:
    """Whether a value has no dimensions."""
    return isinstance(value, ir.Value) and value.shape is not None and not len(value.shape)


def _sorted_out(
    schema: Schema, args: Sequence[Any], kwargs: dict[str, Any]
) -> tuple[list[Any], dict[str, Any], int | None]:
    """Inputs in order, attributes by name, and the number of results if it was given."""
    inputs = list(args)
    if not schema.inputs or not schema.inputs[-1].variadic:
        if len(inputs) > len(schema.inputs):
            raise LoweringError(f"{schema.name} takes {len(schema.inputs)} inputs, not {len(inputs)}")
    attributes: dict[str, Any] = {}
    count = None
    for name, value in kwargs.items():
        if name == "_outputs":
            count = value
        elif name in schema.attributes:
            if isinstance(value, ir.Attr):
                value = value.value
            if value is not None:
                attributes[name] = value
        elif name in schema.positions:
            position = schema.positions[name]
            inputs += [None] * (position + 1 - len(inputs))
            inputs[position] = value
        elif value is not None:
            raise LoweringError(f"{schema.name} has no attribute {name} in this opset")
    while inputs and inputs[-1] is None:
        inputs.pop()
    return inputs, attributes, count


def _attribute(name: str, kind: Any, value: Any) -> ir.Attr:
    kinds = ir.AttributeType
    if kind is kinds.INT:
        value = int(value)
    elif kind is kinds.FLOAT:
        value = float(value)
    elif kind is kinds.INTS:
        value = [int(item) for item in value]
    elif kind is kinds.FLOATS:
        value = [float(item) for item in value]
    return ir.Attr(name, kind, value)


def _natural_dtype(value: Any) -> ir.DataType:
    if isinstance(value, (list, tuple)):
        if any(isinstance(item, (float, complex)) for item in value):
            return DataType.FLOAT
        return DataType.BOOL if value and all(isinstance(item, bool) for item in value) else _INT64
    if isinstance(value, bool):
        return DataType.BOOL
    if isinstance(value, int):
        return _INT64
    if isinstance(value, (float, complex)):
        return DataType.FLOAT
    if isinstance(value, np.ndarray | np.generic):
        return DataType.from_numpy(value.dtype)
    raise LoweringError(f"a {type(value).__name__} is no constant of ONNX")


def _as_torch_would(array: Any, dtype: Any) -> Any:
    """A number in another dtype; infinities of float32 where a number is too large, as torch has it."""
    with np.errstate(all="ignore"):
        return array.astype(dtype)


def _number_of_outputs(schema: Schema, operation: str, values: Sequence[Any], attributes: dict[str, Any]) -> int:
    if operation == "BatchNormalization" and not attributes.get("training_mode"):
        return 1
    if operation == "Split":
        number = attributes.get("num_outputs")
        if number is None:
            raise LoweringError("a Split into an unknown number of parts")
        return int(number)
    return len(schema.outputs)


def _output_dtype(
    operation: str,
    position: int,
    parameter: Parameter,
    values: Sequence[Any],
    attributes: dict[str, Any],
    bound: dict[str, ir.DataType],
) -> ir.DataType | None:
    if operation == "Cast":
        return ir.DataType(int(attributes["to"]))
    if operation in ("ConstantOfShape",):
        value = attributes.get("value")
        return DataType.FLOAT if value is None else value.dtype
    if operation == "LayerNormalization" and position > 0:
        return DataType.FLOAT  # statistics are kept in the dtype that they were computed in
    known = bound.get(parameter.variable)
    if known is None:
        known = parameter.only
    if known is None and "dtype" in attributes:
        return ir.DataType(int(attributes["dtype"]))
    if known is None and operation == "Unsqueeze" and values:
        return values[0].dtype
    return known


# --- operators that changed how they are called after opset 18, whose conventions torchlib follows ---------------


def _grid_sample(builder: Builder, inputs: list[Any], attributes: dict[str, Any]) -> None:
    if builder.opset >= 20:
        names = {"bilinear": "linear", "bicubic": "cubic"}
        attributes["mode"] = names.get(attributes.get("mode", "linear"), attributes.get("mode", "linear"))
    if isinstance(inputs[1], ir.Value) and inputs[1].dtype is DataType.BFLOAT16:  # places are wider than images
        inputs[1] = builder.cast(inputs[1], DataType.FLOAT)


def _wide_places(builder: Builder, inputs: list[Any], attributes: dict[str, Any]) -> None:
    """Places are given in 64 bits, where other indices may have 32."""
    if isinstance(inputs[1], ir.Value):
        inputs[1] = builder.cast(inputs[1], _INT64)


_CONVENTIONS: dict[str, Any] = {"GridSample": _grid_sample, "ScatterND": _wide_places, "GatherND": _wide_places}
