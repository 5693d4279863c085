"""The ONNX program: a model that can be called like the program it comes from."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tintype import tree
from tintype.errors import InputMismatchError, RuntimeAssertionError
from tintype.export.checks import flatten_call
from tintype.export.given import CallersContainers
from tintype.export.program import ExportedProgram
from tintype.onnx import contract
from tintype.onnx.emptiness import may_be_empty_inside, with_choices
from tintype.onnx.errors import OnnxRequestError
from tintype.onnx.interface import InputLeaf, Interface, OutputLeaf
from tintype.onnx.libraries import ir, onnx
from tintype.onnx.report import Report
from tintype.onnx.runtime import LARGEST_MESSAGE, Session, weight_bytes
from tintype.onnx.weights import check_data, replace_weights
from tintype.onnx.widening import has_bfloat16

_ALIGNMENT = 65536  # so that weights can be mapped into memory from where they lie


class AssertionFailedError(RuntimeAssertionError, InputMismatchError):
    """Something that the program asserts of its inputs or data does not hold."""

    id = "onnx-assertion"


class ONNXProgram:
    """A program as an ONNX model. Calling it runs the model on ONNX Runtime.

    ``model`` is the model as onnx-ir has it, ``model_proto`` as onnx has it. State that calls change is carried from
    call to call; ``reset()`` puts it back.

    >>> import torch, tintype
    >>> program = tintype.onnx.export(torch.nn.ReLU(), (torch.ones(2),))
    >>> program(torch.tensor([-1.0, 1.0]))
    tensor([0., 1.])
    """

    def __init__(
        self,
        model: ir.Model | None,
        interface: Interface,
        *,
        program: ExportedProgram | None = None,
        path: str | None = None,
        report: Report | None = None,
    ) -> None:
        self._model = model
        self._path = path
        self.interface = interface
        # the program that it comes from; files of before do not have it
        self._program = program
        self._checks = None if program is None else contract.input_checks(program)
        state = {} if program is None else {**program.state_dict, **program.constants}
        self._state_of: Callable[[str], Any] = state.__getitem__
        self._returned = () if program is None else program.call_spec.returned
        self.report = report if report is not None else Report(0, 0, 0)
        self.providers: Sequence[Any] | None = None
        self._session: Session | None = None
        self._session_for_nothing: Session | None = None  # where inputs have no elements
        self._options: Any = None
        # calls that change state come one after the other, and no two of them load the model
        self._lock = threading.RLock()
        self._stamp = None if path is None else _stamp(path)
        self._state: dict[str, torch.Tensor] = {}

    # --- the model -------------------------------------------------------------------------------------------

    @property
    def model(self) -> ir.Model:
        """The model, as onnx-ir has it."""
        if self._model is None:
            assert self._path is not None
            self._model = ir.load(self._path)
        return self._model

    @property
    def model_proto(self) -> onnx.ModelProto:
        """The model, as onnx has it."""
        check_data(self.model)
        if weight_bytes(self.model) >= LARGEST_MESSAGE:
            raise OnnxRequestError(
                "the weights of this model are too large for one message", remedy="save() it, with external data"
            )
        return ir.to_proto(self.model)

    @property
    def input_names(self) -> list[str]:
        """The names of the model's inputs, without state."""
        return [leaf.name for leaf in self.interface.inputs if leaf.name is not None]

    @property
    def output_names(self) -> list[str]:
        """The names of the model's outputs: results, new values of state, checks."""
        return [value.name or "" for value in self.model.graph.outputs]

    def save(
        self,
        path: str | os.PathLike[str],
        *,
        external_data: bool | None = None,
        max_shard_bytes: int | None = None,
        progress: Callable[[str], Any] | None = None,
    ) -> None:
        """Write the model to a file. Weights go to a file beside it (``model.onnx.data``) where they are too large
        for one, or where ``external_data`` says so; ``max_shard_bytes`` divides them, and ``progress`` is called with
        what is being written then.

        >>> import tempfile, pathlib, torch, tintype
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "relu.onnx"
        >>> tintype.onnx.export(torch.nn.ReLU(), (torch.ones(2),)).save(path)
        >>> tintype.onnx.load(path)(torch.tensor([-1.0, 1.0]))
        tensor([0., 1.])
        """
        path = Path(path)
        if max_shard_bytes is not None and (type(max_shard_bytes) is not int or max_shard_bytes <= 0):
            raise OnnxRequestError(f"max_shard_bytes={max_shard_bytes!r} is no number of bytes above 0")
        check_data(self.model)
        if self._program is not None:
            self.model.metadata_props[contract.METADATA_KEY] = contract.to_text(self._program)
        if external_data is None:
            external_data = max_shard_bytes is not None or weight_bytes(self.model) >= LARGEST_MESSAGE
        if not external_data:
            ir.save(self.model, path)
            return
        options: dict[str, Any] = {} if max_shard_bytes is None else {"max_shard_size_bytes": max_shard_bytes}
        if progress is not None:
            options["callback"] = lambda tensor, at: progress(f"writing {tensor.name}, {at.index + 1} of {at.total}")
        if max_shard_bytes is not None:  # onnx-ir does not write over parts of an earlier file
            _remove_parts(path)
        ir.save(self.model, path, external_data=f"{path.name}.data", alignment=_ALIGNMENT, max_workers=1, **options)

    def apply_weights(self, weights: Mapping[str, torch.Tensor]) -> None:
        """Give the model other weights by their names, as for a model that was exported on the meta device.

        >>> import torch, tintype
        >>> with torch.device("meta"):
        ...     program = tintype.onnx.export(torch.nn.Linear(2, 1), (torch.ones(1, 2),))
        >>> program.apply_weights({"weight": torch.ones(1, 2), "bias": torch.zeros(1)})
        >>> program(torch.ones(1, 2))
        tensor([[2.]])
        """
        replace_weights(self.model, weights)
        self._path, self._session, self._session_for_nothing = None, None, None

    # --- running ---------------------------------------------------------------------------------------------

    def initialize(self, *, providers: Sequence[Any] | None = None, session_options: Any = None) -> ONNXProgram:
        """Load the model into ONNX Runtime, with providers of one's choice; otherwise the first call does."""
        self.providers = providers
        if self._path is not None and _stamp(self._path) != self._stamp:
            raise OnnxRequestError(
                f"{Path(self._path).name} was changed after it was loaded", remedy="tintype.onnx.load() it again"
            )
        self._options = session_options
        # a file with bfloat16 does not run as it is where there are no kernels for that
        source = self.model if self._path is None or has_bfloat16(self.model) else self._path
        self._session_for_nothing = None
        if may_be_empty_inside(self.model):
            chosen = with_choices(self.model)
            source = source if chosen is self.model else chosen
        self._session = Session(source, providers, session_options)
        return self

    def _session_for(self, feeds: Mapping[str, torch.Tensor]) -> Session:
        """The session that runs these inputs: where one has no elements, that of a model which takes such."""
        with self._lock:
            if self._session is None:
                self.initialize(providers=self.providers)
            assert self._session is not None
            if all(tensor.numel() for tensor in feeds.values()):
                return self._session
            if self._session_for_nothing is None:
                careful = with_choices(self.model)
                is_same = careful is self.model
                self._session_for_nothing = (
                    self._session if is_same else Session(careful, self.providers, self._options)
                )
            return self._session_for_nothing

    def state(self) -> dict[str, torch.Tensor]:
        """What calls change, by name."""
        names = [value.state for value in self.interface.new_values if value.state is not None]
        return {name: self._state[name] if name in self._state else self._initial(name) for name in names}

    def reset(self) -> None:
        """Put state back to what it was."""
        self._state.clear()

    def _initial(self, name: str) -> torch.Tensor:
        tensor = self.model.graph.initializers[name].const_value
        assert tensor is not None
        raw = getattr(tensor, "raw", None)
        return raw.clone() if isinstance(raw, torch.Tensor) else torch.from_numpy(tensor.numpy().copy())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the model; results have the structure that the model's own have."""
        return self._call(args, kwargs, {})

    def write_into(self, outputs: Mapping[str, torch.Tensor], *args: Any, **kwargs: Any) -> Any:
        """Run the model, and let ONNX Runtime write outputs, by their names, to memory of one's own: to contiguous
        tensors of the right dtype and sizes, which are the results then.

        >>> import torch, tintype
        >>> program = tintype.onnx.export(torch.nn.ReLU(), (torch.ones(2),))
        >>> memory = torch.empty(2)
        >>> program.write_into({"result": memory}, torch.tensor([-1.0, 1.0])) is memory
        True
        >>> memory
        tensor([0., 1.])
        """
        places = [leaf for leaf in self.interface.outputs if leaf.name is not None]
        check_outputs(places, outputs, tree.flatten((args, kwargs))[0])
        return self._call(args, kwargs, outputs)

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any], into: Mapping[str, torch.Tensor]) -> Any:
        interface, names = self.interface, self.interface.argument_names
        leaves = self.checked(args, kwargs)
        calling = interface.calling() if self._checks is None else self._checks.calling
        same_objects = () if self._checks is None else self._checks.of_containers
        callers = CallersContainers(interface.in_spec, names, self._returned, same_objects, calling)
        containers = callers.of_call(args, kwargs) if callers.is_needed else []
        feeds = {
            leaf.name: _as_tensor(leaf, given)
            for leaf, given in zip(interface.inputs, leaves)
            if leaf.name is not None
        }
        with self._lock if interface.new_values else nullcontext():
            return self._called(feeds, leaves, callers, containers, into)

    def checked(self, args: Any, kwargs: Any) -> Sequence[Any]:
        """The leaves of arguments; raises where the program does not take them."""
        interface = self.interface
        ordered = () if self._checks is None else self._checks.ordered
        calling = interface.calling() if self._checks is None else self._checks.calling
        leaves = flatten_call(args, kwargs, interface.in_spec, interface.argument_names, ordered, calling=calling)
        leaves = [_array_as_tensor(leaf) if isinstance(leaf, np.ndarray) else leaf for leaf in leaves]
        if self._checks is not None:
            self._checks.check(leaves, self._state_of)
        else:
            check_leaves(interface.inputs, leaves)
        return leaves

    def _called(
        self,
        feeds: dict[str, torch.Tensor],
        leaves: Sequence[Any],
        callers: CallersContainers,
        containers: list[Any],
        into: Mapping[str, torch.Tensor],
    ) -> Any:
        interface = self.interface
        feeds.update(self._state)
        outputs = self._run(feeds, into)
        for check in interface.checks:
            if not bool(outputs[check.output]):
                at = "" if check.at is None else f"\n  At: {check.at}"
                raise AssertionFailedError(f"{check.message}{at}")
        results = [_result(leaf, outputs) for leaf in interface.outputs]
        self._write_back(leaves, outputs)
        result = tree.unflatten(results, interface.out_spec)
        return callers.put_into(containers, result)

    def _run(self, feeds: dict[str, torch.Tensor], into: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        interface = self.interface
        if not interface.new_values and not interface.checks and all(leaf.name is None for leaf in interface.outputs):
            return {}  # nothing is computed, and ONNX Runtime takes no model without outputs
        return self._session_for(feeds).run(feeds, into)

    def _write_back(self, leaves: Sequence[Any], outputs: Mapping[str, torch.Tensor]) -> None:
        for new in self.interface.new_values:
            value = outputs[new.output]
            if new.state is not None:
                self._state[new.state] = value
            else:
                assert new.leaf is not None
                target = leaves[new.leaf]
                with torch.no_grad():
                    target.copy_(as_complex(value) if target.dtype.is_complex else value)

    def __repr__(self) -> str:
        count = len(self.model.graph)
        return (
            f"<ONNXProgram: {len(self.input_names)} inputs, {count} nodes, opset {self.model.opset_imports.get('')}>"
        )


_NUMBER_DTYPES = {"int": torch.int64, "float": torch.float64, "bool": torch.bool}


def _remove_parts(path: Path) -> None:
    """Remove what an earlier model of the same name was divided into."""
    suffixes = "".join(path.suffixes)
    stem = re.escape(path.name.removesuffix(suffixes))
    name = re.compile(rf"{stem}-\d{{5}}-of-\d{{5}}{re.escape(suffixes)}\.data")
    for old in path.parent.iterdir():
        if name.fullmatch(old.name):
            old.unlink()


def _stamp(path: str) -> tuple[int, ...] | None:
    """What tells whether a file is still the one that was loaded."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def _array_as_tensor(array: np.ndarray[Any, Any]) -> Any:
    """An array of NumPy's as a tensor with the same memory, or one of its own if that can't be."""
    if not array.flags.writeable or any(stride < 0 for stride in array.strides):
        array = array.copy()
    try:
        return torch.from_numpy(array)
    except TypeError:
        return array  # which is refused by its kind


def check_outputs(places: Sequence[OutputLeaf], outputs: Mapping[str, torch.Tensor], inputs: Sequence[Any]) -> None:
    """Whether outputs can be written to tensors of the caller's."""
    kinds = {place.name: place for place in places}
    taken = {tensor.untyped_storage().data_ptr() for tensor in inputs if isinstance(tensor, torch.Tensor)}
    for name, tensor in outputs.items():
        place = kinds.get(name)
        if place is None or place.kind != "tensor" or (place.dtype or "").startswith("complex"):
            raise OnnxRequestError(
                f"the model has no result {name} that can be written to memory", remedy=f"there are {list(kinds)}"
            )
        reason = None
        if not isinstance(tensor, torch.Tensor) or str(tensor.dtype) != f"torch.{place.dtype}":
            reason = f"no tensor of torch.{place.dtype}"
        elif tensor.device.type != "cpu" or tensor.layout is not torch.strided or not tensor.is_contiguous():
            reason = "no contiguous tensor in main memory"
        elif tensor.requires_grad or (tensor.numel() and tensor.untyped_storage().data_ptr() in taken):
            reason = "memory of an input, or a tensor with a gradient"
        if reason is not None:
            raise OnnxRequestError(f"what {name} is to be written to is {reason}")
        taken.add(tensor.untyped_storage().data_ptr())


def _as_tensor(leaf: InputLeaf, given: Any) -> torch.Tensor:
    if isinstance(given, torch.Tensor):
        if given.is_meta or given.is_nested or given.layout is not torch.strided:
            kind = "on the meta device" if given.is_meta else "nested" if given.is_nested else str(given.layout)
            raise InputMismatchError(
                f"Expected input {leaf.name} to be a dense tensor with data, but it is {kind}",
                remedy="ONNX Runtime takes dense tensors only",
            )
        return given
    return torch.tensor(given, dtype=_NUMBER_DTYPES[leaf.kind])


def _result(leaf: Any, outputs: Mapping[str, torch.Tensor]) -> Any:
    if leaf.name is None:
        return leaf.value
    value = outputs[leaf.name]
    if leaf.kind in _NUMBER_DTYPES:
        return value.item()
    if leaf.dtype is not None and leaf.dtype.startswith("complex"):
        return as_complex(value)
    return value


def as_complex(pairs: torch.Tensor) -> torch.Tensor:
    """Complex numbers from pairs of real ones, which may be none: then an array has no strides to speak of."""
    return torch.view_as_complex(pairs.clone(memory_format=torch.contiguous_format))


def check_leaves(expected: Sequence[InputLeaf], given: Sequence[Any]) -> None:
    """The checks of a model that was loaded: what its metadata say of its inputs."""
    sizes: dict[str, int] = {}
    for position, (leaf, value) in enumerate(zip(expected, given)):
        where = f"input {leaf.name or position}"
        if leaf.kind == "constant":
            if value != leaf.value and not isinstance(leaf.value, dict):
                raise InputMismatchError(
                    f"Expected {where} to be equal to {leaf.value}, but got {value}",
                    remedy="the program was exported for this value only; export it again for another one",
                )
            continue
        if leaf.kind != "tensor":
            if type(value).__name__ != leaf.kind:
                raise InputMismatchError(f"Expected {where} to be {leaf.kind}, but got {value!r}")
            continue
        if not isinstance(value, torch.Tensor) or str(value.dtype) != f"torch.{leaf.dtype}":
            kind = value.dtype if isinstance(value, torch.Tensor) else type(value).__name__
            raise InputMismatchError(f"Expected {where} to be a tensor of torch.{leaf.dtype}, but got {kind}")
        wanted = leaf.sizes or []
        fits = value.dim() == len(wanted)
        for size, actual in zip(wanted, value.shape):
            if isinstance(size, int):
                fits = fits and size == actual
            elif size.isidentifier():
                fits = fits and sizes.setdefault(size, actual) == actual
        if not fits:
            raise InputMismatchError(
                f"Expected {where} to have the sizes [{', '.join(map(str, wanted))}], but got {list(value.shape)}"
            )
