"""A captured program must do what eager mode does: results, writes, and which tensors share memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.utils._pytree as pytree

import tintype
from tests.transforms.mutation_programs import Values

MakeInputs = Callable[[Values], tuple[torch.Tensor, ...]]


class Difference(AssertionError):
    """Eager mode and a captured program disagree."""


class EagerRefused(Exception):
    """The program does not run in eager mode, or computes numbers that can't be compared."""


def inputs_of(make_inputs: MakeInputs, seed: int) -> tuple[torch.Tensor, ...]:
    """The same inputs for the same seed."""
    return make_inputs(Values(seed))


class Observation:
    """What can be seen of one call: results, inputs and buffers afterwards, and how they share memory."""

    def __init__(self, module: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
        self.result = module(*inputs)
        leaves, self.structure = pytree.tree_flatten(self.result)
        self.tensors = {f"result {i}": leaf for i, leaf in enumerate(leaves)}
        self.tensors |= {f"input {i}": tensor for i, tensor in enumerate(inputs)}
        self.tensors |= {f"buffer {name}": tensor for name, tensor in module.named_buffers()}
        self.values = {name: tensor.detach().clone() for name, tensor in self.tensors.items()}
        self.poked: dict[str, torch.Tensor] | None = None
        self.shared = self._sharing()
        self.places = self._geometry()

    def poke(self) -> None:
        """Write another number to every tensor in turn: where they share memory, it shows in the others."""
        for number, name in enumerate(sorted(self.tensors)):
            self.tensors[name].fill_(number)
        self.poked = {name: tensor.clone() for name, tensor in self.tensors.items()}

    def _sharing(self) -> set[tuple[str, str, bool]]:
        """Pairs of names with the same memory, and whether they are the same object."""
        names = [name for name, tensor in self.tensors.items() if tensor.numel()]
        return {
            (a, b, self.tensors[a] is self.tensors[b])
            for i, a in enumerate(names)
            for b in names[i + 1 :]
            if memory(self.tensors[a]) == memory(self.tensors[b])
        }

    def _geometry(self) -> dict[str, Any]:
        """Where results lie that share memory with an input or a buffer."""
        outside = {memory(t) for name, t in self.tensors.items() if not name.startswith("result")}
        return {
            name: (tuple(tensor.stride()), tensor.storage_offset())
            for name, tensor in self.tensors.items()
            if name.startswith("result") and tensor.numel() and memory(tensor) in outside
        }


def memory(tensor: torch.Tensor) -> int:
    """The identity of the memory behind a tensor."""
    return tensor.untyped_storage().data_ptr()


def compare_observations(expected: Observation, actual: Observation, what: str) -> None:
    """Raise a Difference where a captured program did something else than eager mode."""
    if expected.structure != actual.structure:
        raise Difference(f"{what}: structure {actual.structure}, not {expected.structure}")
    if expected.values.keys() != actual.values.keys():
        raise Difference(f"{what}: {list(actual.values)}, not {list(expected.values)}")
    for name, value in expected.values.items():
        other = actual.values[name]
        if value.dtype is not other.dtype or value.shape != other.shape:
            raise Difference(
                f"{what}: {name} is {other.dtype} {list(other.shape)}, not {value.dtype} {list(value.shape)}"
            )
        if not torch.allclose(value, other, rtol=1e-4, atol=1e-4, equal_nan=True):
            raise Difference(f"{what}: {name} is\n{other}\nnot\n{value}")


def compare_sharing(expected: Observation, actual: Observation, what: str) -> None:
    """Raise a Difference where results share memory otherwise."""
    missing, surplus = expected.shared - actual.shared, actual.shared - expected.shared
    if missing or surplus:
        raise Difference(f"{what}: memory is shared otherwise: missing {missing}, surplus {surplus}")
    if expected.places != actual.places:
        raise Difference(f"{what}: results lie otherwise: {actual.places}, not {expected.places}")

    if expected.poked is not None:
        for name, value in expected.poked.items():
            if not torch.equal(value.nan_to_num(7), actual.poked[name].nan_to_num(7)):  # type: ignore[index]
                raise Difference(f"{what}: writing to everything in turn leaves another {name}")


def compare_sharing_between(least: Observation, most: Observation, actual: Observation, what: str) -> None:
    """Raise a Difference where results share more or less memory than they may."""
    missing, surplus = least.shared - actual.shared, actual.shared - most.shared
    if missing or surplus:
        raise Difference(f"{what}: memory is shared otherwise: missing {missing}, surplus {surplus}")


def eager_observations(
    make_model: Callable[[], torch.nn.Module], make_inputs: MakeInputs, seeds: tuple[int, ...]
) -> list[Observation]:
    """Eager mode's behaviour: for each seed a call, and a second one on the same inputs."""
    module = make_model()
    try:
        observations = observe(module, make_inputs, seeds)
    except (RuntimeError, IndexError, TypeError, ValueError) as error:
        raise EagerRefused(str(error)) from error
    for observation in observations:
        for value in observation.values.values():
            inexact = value.is_floating_point() or value.is_complex()
            if inexact and (torch.isfinite(value) & (value.abs() > 1e6)).any():
                raise EagerRefused("numbers too large to be compared")
    return observations


def observe(module: torch.nn.Module, make_inputs: MakeInputs, seeds: tuple[int, ...]) -> list[Observation]:
    """Call a module twice on the inputs of each seed; after the last call, write to everything in turn."""
    observations = []
    for seed in seeds:
        inputs = inputs_of(make_inputs, seed)
        observations += [Observation(module, inputs) for _ in range(2)]
    observations[-1].poke()
    return observations


def _module(program: tintype.ExportedProgram) -> torch.nn.Module:
    program.validate()
    return program.module()


def _exported(model: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> torch.nn.Module:
    return _module(tintype.export(model, inputs))


def _decomposed(model: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> torch.nn.Module:
    return _module(tintype.export(model, inputs).run_decompositions())


def _for_training(model: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> torch.nn.Module:
    return _module(tintype.export_for_training(model, inputs))


def _retraced(model: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> torch.nn.Module:
    return _module(tintype.export(tintype.export(model, inputs).module(), inputs))


# The ways from a model to a program that runs.
WAYS = {"export": _exported, "decomposed": _decomposed, "training": _for_training, "retraced": _retraced}


def compare(
    make_model: Callable[[], torch.nn.Module],
    make_inputs: MakeInputs,
    make_sharing_model: Callable[[], torch.nn.Module] | None = None,
    *,
    shares: bool = True,
    seeds: tuple[int, ...] = (0, 1),
) -> None:
    """Compare eager mode with every way of capturing a model, on the example's values and on others.

    ``make_sharing_model``: a model whose results share the memory that they must share; for programs with conversions
    that change nothing, which are aliases in eager mode and copies in programs where nobody writes to that memory.
    ``shares=False`` leaves memory out: after ``self.buffer = tensor`` the module holds that very tensor in eager mode
    only.
    """
    expected = eager_observations(make_model, make_inputs, seeds)
    least = None
    if make_sharing_model is not None:
        least = eager_observations(make_sharing_model, make_inputs, seeds)
    for what, capture in WAYS.items():
        model = make_model()
        state = {name: buffer.clone() for name, buffer in model.named_buffers()}
        example = inputs_of(make_inputs, seeds[0])
        before = [tensor.clone() for tensor in example]
        module = capture(model, example)
        for tensor, old in [*zip(example, before, strict=True), *((b, state[n]) for n, b in model.named_buffers())]:
            if not torch.equal(tensor.nan_to_num(7), old.nan_to_num(7)):
                raise Difference(f"{what}: capturing the model changed it or the example inputs")
        for position, observation in enumerate(observe(module, make_inputs, seeds)):
            place = f"{what}, inputs {seeds[position // 2]}, call {position % 2}"
            compare_observations(expected[position], observation, place)
            if shares and least is not None:
                compare_sharing_between(least[position], expected[position], observation, place)
            elif shares:
                compare_sharing(expected[position], observation, place)


__all__ = ["Difference", "EagerRefused", "compare"]
