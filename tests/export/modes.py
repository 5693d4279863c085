"""The ways from a model to a program that runs, and the comparison of such a program with eager mode.

A behaviour test takes the fixture ``mode`` (a row of every ``conftest.py`` beside it) and calls :func:`compare`:
structure, types, sizes, values, mutations and gradients must be those of eager mode, on the example inputs and
on other values, and the model must be what it was before.
"""

from __future__ import annotations

import copy
import io
import os
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.utils._pytree as pytree

import tintype

MODES: tuple[str, ...] = ("export", "decomposed", "retraced", "training", "unflattened", "saved")
# a program that was loaded from a file must be as good as the one that was saved in everything that comes after
SAVED_MODES = ("saved", "saved, training", "saved, decomposed", "saved, retraced")
if os.environ.get("TINTYPE_ALL_MODES"):  # make test-modes
    MODES = (*MODES, *SAVED_MODES[1:])
# what can be done with a program of the training stage, for tests of what only that stage has
TRAINING_MODES = ("training decomposed", "training retraced", "training exported", "training copied")
Inputs = tuple[tuple[Any, ...], dict[str, Any]]

torch.set_num_threads(1)


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest) -> str:
    """One way of capturing a program."""
    torch.manual_seed(0)
    return request.param


def capture(
    mode: str,
    model: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    *,
    control_flow: str = "auto",
) -> tintype.ExportedProgram:
    """A program of the given mode, checked by the verifier of its stage."""
    if mode.endswith("training") or mode in TRAINING_MODES:
        program = tintype.export_for_training(model, args, kwargs, control_flow=control_flow)
    else:
        program = tintype.export(model, args, kwargs, control_flow=control_flow)
    if mode in SAVED_MODES:
        program = saved_and_loaded(program)
    program.validate()
    if mode.endswith("decomposed"):
        program = program.run_decompositions()
    elif mode.endswith("retraced"):
        program = tintype.export(program.module(), args, kwargs)
    elif mode in TRAINING_MODES:
        program = _after_training(mode, program, args, kwargs)
    program.validate()
    return program


def keeps_tensors(mode: str) -> bool:
    """Whether a program of this mode holds the very tensors of the model, not copies from a file."""
    return mode not in SAVED_MODES


def saved_and_loaded(program: tintype.ExportedProgram) -> tintype.ExportedProgram:
    """A program as it comes back from a file; saved once more, it gives the same bytes."""
    file, again = io.BytesIO(), io.BytesIO()
    tintype.save(program, file)
    loaded = tintype.load(file)
    tintype.save(loaded, again)
    assert again.getvalue() == file.getvalue(), "a loaded program is saved as another file"
    return loaded


def _after_training(mode: str, program: tintype.ExportedProgram, args: Any, kwargs: Any) -> tintype.ExportedProgram:
    program.validate()
    if mode == "training decomposed":
        return program.run_decompositions()
    if mode == "training retraced":
        return tintype.export_for_training(program.module(), args, kwargs)
    if mode == "training exported":
        return tintype.export(program.module(), args, kwargs)
    return copy.deepcopy(program)


def targets(program: tintype.ExportedProgram) -> list[str]:
    """The operators that a program calls, in order."""
    return [str(node.target) for node in program.graph.nodes if node.op == "call_function"]


def copied(inputs: Any) -> Any:
    """Copies of inputs; what is the same tensor, or shares memory, stays so. Leaves of autograd stay leaves."""
    memory: dict[int, torch.UntypedStorage] = {}
    copies: dict[int, torch.Tensor] = {}

    def copy_leaf(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor) or leaf.device.type == "meta":
            return leaf
        if id(leaf) not in copies:
            storage = leaf.untyped_storage()
            if storage.data_ptr() not in memory:
                memory[storage.data_ptr()] = storage.clone()
            new = torch.empty(0, dtype=leaf.dtype)
            new.set_(memory[storage.data_ptr()], leaf.storage_offset(), leaf.size(), leaf.stride())
            if leaf.is_conj():
                new = new.conj()
            copies[id(leaf)] = new.requires_grad_(leaf.requires_grad)
        return copies[id(leaf)]

    return pytree.tree_map(copy_leaf, inputs)


def other_values(inputs: Any) -> Any:
    """The same inputs with other numbers: floating point numbers change, integers and booleans move."""

    def change(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor) or not leaf.numel():
            return leaf
        with torch.no_grad():
            if leaf.is_floating_point() or leaf.is_complex():
                leaf.copy_(leaf * -0.75 + 0.375)
            elif leaf.dim():
                leaf.copy_(leaf.flip(0))
        return leaf

    new = copied(inputs)
    seen: set[int] = set()
    for leaf in pytree.tree_leaves(new):
        if id(leaf) not in seen:
            seen.add(id(leaf))
            change(leaf)
    return new


def assert_same(actual: Any, expected: Any, what: str = "result") -> None:
    """Two values are the same: structure, types, sizes, values."""
    leaves, spec = pytree.tree_flatten(actual)
    expected_leaves, expected_spec = pytree.tree_flatten(expected)
    assert spec == expected_spec, f"{what}: structure {spec}, not {expected_spec}"
    for position, (leaf, wanted) in enumerate(zip(leaves, expected_leaves, strict=True)):
        where = f"{what}, leaf {position}"
        if isinstance(wanted, torch.Tensor):
            assert isinstance(leaf, torch.Tensor), f"{where}: {leaf!r}, not a tensor"
            assert leaf.dtype is wanted.dtype, f"{where}: {leaf.dtype}, not {wanted.dtype}"
            assert leaf.shape == wanted.shape, f"{where}: {list(leaf.shape)}, not {list(wanted.shape)}"
            tolerance = 1e-5 if wanted.dtype not in (torch.bfloat16, torch.float16) else 2e-2
            torch.testing.assert_close(
                leaf.resolve_conj().detach(), wanted.resolve_conj().detach(), rtol=tolerance, atol=tolerance,
                equal_nan=True, check_stride=False, msg=lambda text, where=where: f"{where}: {text}",
            )  # fmt: skip
        else:
            assert type(leaf) is type(wanted), f"{where}: a {type(leaf).__name__}, not a {type(wanted).__name__}"
            assert leaf == wanted, f"{where}: {leaf!r}, not {wanted!r}"


class Run:
    """Everything that can be seen of one call of a module."""

    def __init__(self, module: Callable[..., Any], inputs: Inputs, seed: int) -> None:
        self.module = module
        self.args, self.kwargs = inputs
        torch.manual_seed(seed)
        self.result = module(*self.args, **self.kwargs)
        self.random_after = torch.rand(3)

    def gradients(self) -> tuple[dict[str, Any], list[Any]]:
        """The gradients of parameters and of inputs, for a fixed function of the results."""
        leaves = [
            leaf for leaf in pytree.tree_leaves(self.result) if isinstance(leaf, torch.Tensor) and leaf.requires_grad
        ]
        generator = torch.Generator().manual_seed(7)
        parameters = dict(self.module.named_parameters()) if isinstance(self.module, torch.nn.Module) else {}
        for parameter in parameters.values():
            parameter.grad = None
        for leaf in leaves:
            weight = torch.randn(leaf.shape, generator=generator, dtype=torch.float32)
            leaf.backward(weight.to(leaf.dtype), retain_graph=True)
        inputs = [
            leaf.grad
            for leaf in pytree.tree_leaves((self.args, self.kwargs))
            if isinstance(leaf, torch.Tensor) and leaf.is_leaf
        ]
        return {name: parameter.grad for name, parameter in parameters.items()}, inputs

    def buffers(self) -> dict[str, torch.Tensor]:
        return dict(self.module.named_buffers()) if isinstance(self.module, torch.nn.Module) else {}


def _unwrapped(model: Callable[..., Any]) -> torch.nn.Module | None:
    owner = getattr(model, "__self__", model)
    return owner if isinstance(owner, torch.nn.Module) else None


def _eager_copy(model: Callable[..., Any]) -> Callable[..., Any]:
    """A copy of the model for eager mode; programs own their state, the model's stays out of it."""
    return copy.deepcopy(model) if isinstance(model, torch.nn.Module) else model


def compare(
    mode: str,
    model: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    *,
    others: Sequence[Inputs] | None = None,
    gradients: bool = True,
) -> tintype.ExportedProgram:
    """Capture a model and compare the program with eager mode; returns the program."""
    example: Inputs = (args, kwargs or {})
    calls = [example, other_values(example), *(others or ())] if others is None else [example, *others]
    owner = _unwrapped(model)
    before = {} if owner is None else {k: (id(v), v.clone()) for k, v in owner.state_dict(keep_vars=True).items()}
    given = copied(example)
    eager = _eager_copy(model)
    program = capture(mode, model, args, kwargs)
    assert_same(example, given, "the example inputs after the capture")
    module = tintype.unflatten(program) if mode == "unflattened" else program.module()
    for number, inputs in enumerate(calls):
        for repetition in range(2):
            what = f"{mode}, inputs {number}, call {repetition}"
            wanted = Run(eager, copied(inputs), number)
            actual = Run(module, copied(inputs), number)
            _compare_runs(actual, wanted, what, gradients)
    if owner is not None:
        after = owner.state_dict(keep_vars=True)
        assert list(after) == list(before)
        for name, tensor in after.items():
            assert id(tensor) == before[name][0], f"the model's {name} is another tensor"
            assert_same(tensor, before[name][1], f"the model's {name}")
    return program


def _compare_runs(actual: Run, wanted: Run, what: str, gradients: bool) -> None:
    assert_same(actual.result, wanted.result, f"{what}: result")
    assert_same((actual.args, actual.kwargs), (wanted.args, wanted.kwargs), f"{what}: inputs afterwards")
    assert_same(actual.random_after, wanted.random_after, f"{what}: random numbers afterwards")
    if isinstance(wanted.module, torch.nn.Module):
        mine, theirs = actual.buffers(), wanted.buffers()
        shared = [name for name in theirs if name in mine]
        assert_same([mine[n] for n in shared], [theirs[n] for n in shared], f"{what}: buffers afterwards {shared}")
    if not gradients:
        return
    flags = [
        [leaf.requires_grad for leaf in pytree.tree_leaves(run.result) if isinstance(leaf, torch.Tensor)]
        for run in (actual, wanted)
    ]
    assert flags[0] == flags[1], f"{what}: results require gradients {flags[0]}, not {flags[1]}"
    (parameters, inputs), (wanted_parameters, wanted_inputs) = actual.gradients(), wanted.gradients()
    for name, gradient in wanted_parameters.items():
        assert_same(parameters.get(name), gradient, f"{what}: gradient of {name}")
    assert_same(inputs, wanted_inputs, f"{what}: gradients of inputs")
