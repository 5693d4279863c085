"""Runs a program, in eager mode or as a variant of it, and notes everything that can be seen of the run."""

from __future__ import annotations

import dataclasses
import functools
import linecache
from collections.abc import Callable
from typing import Any

import torch
import torch.overrides
import torch.utils._pytree as pytree

import tintype
from tests.fuzz_programs import forms, operators
from tests.fuzz_programs.inputs import Case, dimension_lines, dynamic_shapes, input_lines
from tests.fuzz_programs.language import Program


@dataclasses.dataclass
class Outcome:
    """What was seen of a run."""

    error: BaseException | None = None
    results: list[Any] = dataclasses.field(default_factory=list)  # of each call
    arguments: list[Any] = dataclasses.field(default_factory=list)
    state: dict[str, Any] = dataclasses.field(default_factory=dict)
    changed: set[str] = dataclasses.field(default_factory=set)  # names of what is another state than before
    log: list[Any] = dataclasses.field(default_factory=list)
    gradients: list[Any] | None = None
    parameter_gradients: dict[str, Any] = dataclasses.field(default_factory=dict)
    shares: list[Any] = dataclasses.field(default_factory=list)


def seed(number: int) -> None:
    """Seed the CPU's generator; torch.manual_seed tells all other devices, too, which takes milliseconds."""
    torch.default_generator.manual_seed(number)


class Runnable:
    """A program as Python objects."""

    def __init__(self, program: Program) -> None:
        operators.register()
        self.program = program
        source = program.source()
        file = f"<random program {program.seed}: {id(self)}>"
        linecache.cache[file] = (len(source), None, source.splitlines(True), file)
        self._file = file
        self.namespace: dict[str, Any] = {
            "torch": torch, "tintype": tintype, "forms": forms, "__name__": "random_program",
        }  # fmt: skip
        exec(compile(source, file, "exec"), self.namespace)

    def close(self) -> None:
        """Forget the source."""
        linecache.cache.pop(self._file, None)

    def model(self) -> torch.nn.Module:
        """A fresh model, always with the same values."""
        seed(0)
        model = self.namespace["Model"]()
        return model if self.program.training else model.eval()

    def arguments(self, case: Case) -> tuple[tuple[Any, ...], list[torch.Tensor]]:
        """Fresh arguments of a call, and the leaves that gradients are wanted for."""
        namespace: dict[str, Any] = {"torch": torch}
        first, *rest = input_lines(self.program, case)
        assert first.startswith("torch.manual_seed")
        seed(case.seed)
        exec(_compiled("\n".join(rest)), namespace)
        arguments = tuple(namespace[argument.name] for argument in self.program.inputs)
        return arguments, namespace.get("leaves", [])

    def dynamic_shapes(self) -> Any:
        """What export is told about sizes."""
        source = dynamic_shapes(self.program)
        if source is None:
            return None
        namespace: dict[str, Any] = {"tintype": tintype}
        exec("\n".join(dimension_lines(self.program)), namespace)
        return eval(source, namespace)


@functools.lru_cache(64)
def _compiled(source: str) -> Any:
    return compile(source, "<arguments>", "exec")


def run_as_differentiated(model: Callable[..., Any], runnable: Runnable, case: Case) -> Outcome:
    """The same with gradients of the values that operators had.

    Eager mode computes some gradients from values that were overwritten meanwhile: autograd does not notice writes to
    ``x.data``, nor those to arguments of ``kron``, which looks at them through ``_unsafe_view``. It does not see that
    a tensor got another geometry in a region without gradients, and takes the elements of its gradient for others.
    What a tensor was before it is filled gets a gradient of zeros, which an infinite slope in front of it makes nan.
    """
    mode = _AsWritten()
    if "torch.func." in runnable.program.source():  # which takes no hooks
        with mode:
            return run(model, runnable, case)
    with torch.autograd.graph.saved_tensors_hooks(mode.pack, lambda kept: kept[0]), mode:
        return run(model, runnable, case)


_GEOMETRY = {
    getattr(torch.Tensor, f"{name}_") for name in ("transpose", "t", "swapaxes", "swapdims", "unsqueeze", "squeeze")
}
_FILLED = {getattr(torch.Tensor, f"{name}_") for name in (
    "zero", "eq", "ne", "lt", "le", "gt", "ge", "logical_not", "logical_and", "logical_or", "logical_xor",
    "normal", "uniform", "exponential", "bernoulli", "random", "cauchy", "log_normal", "geometric",
)}  # fmt: skip


# Those whose new value may have a history.
_COPIED = {torch.Tensor.fill_, torch.Tensor.copy_}


class _Forget(torch.autograd.Function):
    """A tensor without the history that it had."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor) -> torch.Tensor:
        ctx.mark_dirty(tensor)
        return tensor

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return None


# Those whose decomposition passes nothing on where there was no number: autograd multiplies by 0 there.
_REPLACES = {torch.nan_to_num, torch.Tensor.nan_to_num}
# Those for which autograd keeps a tensor that they fill afterwards: the noise.
_FILLS_WHAT_IS_KEPT = {torch.rrelu, torch.nn.functional.rrelu}


def _layer_norm(tensor: Any, sizes: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Any:
    """Its tangent by torch's formula has a gradient in which the mean and the deviation are constants."""
    dims = list(range(tensor.dim() - len(sizes), tensor.dim()))
    centered = tensor - tensor.mean(dims, keepdim=True)
    result = centered * (centered.square().mean(dims, keepdim=True) + eps).rsqrt()
    result = result if weight is None else result * weight
    return result if bias is None else result + bias


class _AsWritten(torch.overrides.TorchFunctionMode):
    """Autograd sees changes of geometry wherever they are, and nothing behind a tensor that is filled; what it keeps
    is copied."""

    def __init__(self) -> None:
        super().__init__()
        self._kept: list[list[torch.Tensor]] | None = None

    def pack(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        """What autograd keeps for a tensor."""
        if self._kept is None:
            return [tensor.clone()]
        self._kept.append([tensor])
        return self._kept[-1]

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _FILLS_WHAT_IS_KEPT and not (kwargs or {}).get("inplace"):
            self._kept = []
            try:
                return func(*args, **(kwargs or {}))
            finally:
                for kept in self._kept:
                    kept[0] = kept[0].clone()
                self._kept = None
        tensor = args[0] if args else None
        if func is torch.nn.functional.layer_norm and torch.autograd.forward_ad._current_level >= 0:
            return _layer_norm(*args, **(kwargs or {}))
        if func is torch.kron:
            args = tuple(argument.clone() for argument in args)
        if func in _REPLACES:
            replaced = func(tensor.detach(), *args[1:], **(kwargs or {}))
            return torch.where(tensor.isfinite(), tensor, replaced) if tensor.requires_grad else replaced
        if func in _GEOMETRY and tensor.requires_grad:
            with torch.enable_grad():
                return func(*args, **(kwargs or {}))
        is_whole = func is torch.Tensor.__setitem__ and (args[1] is ... or args[1] == slice(None))
        is_filled = func in _FILLED or func in _COPIED or is_whole
        if is_filled and tensor.requires_grad and not tensor.is_leaf and torch.is_grad_enabled():
            _Forget.apply(tensor)
            if func in _FILLED:
                args = (tensor, *pytree.tree_map_only(torch.Tensor, torch.Tensor.detach, args[1:]))
        return func(*args, **(kwargs or {}))


def run(function: Callable[..., Any], runnable: Runnable, case: Case) -> Outcome:
    """Call a function as a case says. What it raises is part of the outcome."""
    outcome = Outcome()
    arguments, leaves = runnable.arguments(case)
    log_before = len(operators.LOG)
    state = function if isinstance(function, torch.nn.Module) else None
    before = state_of(state)
    grad_mode, threads = torch.is_grad_enabled(), torch.get_default_dtype()
    try:
        for _ in range(case.calls):
            seed(5)
            result = function(*arguments)
            outcome.results.append(copied(result))
        if (torch.is_grad_enabled(), torch.get_default_dtype()) != (grad_mode, threads):
            raise AssertionError("the call changed the mode of gradients or the default dtype")
        outcome.shares = shares(result, arguments)
        if case.gradients:
            outcome.gradients, outcome.parameter_gradients = gradients(result, leaves, state)
    except Exception as error:
        outcome.error = error
        error.__traceback__ = None
    outcome.arguments = copied(list(arguments))
    outcome.state = state_of(state)
    outcome.changed = {name for name, value in before.items() if not _is_same(value, outcome.state.get(name))}
    outcome.log = operators.LOG[log_before:]
    del operators.LOG[log_before:]
    return outcome


def state_of(module: torch.nn.Module | None) -> dict[str, torch.Tensor]:
    """Copies of a module's buffers and parameters."""
    if module is None:
        return {}
    return {name: value.detach().clone() for name, value in [*module.named_buffers(), *module.named_parameters()]}


def _is_same(one: torch.Tensor, other: torch.Tensor | None) -> bool:
    if other is None or (one.dtype, one.shape) != (other.dtype, other.shape):
        return False
    return bool(((one == other) | ((one != one) & (other != other))).all())


def copied(values: Any) -> Any:
    """Values whose tensors nobody writes to any more."""
    return pytree.tree_map_only(torch.Tensor, lambda value: value.detach().clone(), values)


def gradients(
    result: Any, leaves: list[torch.Tensor], model: torch.nn.Module | None
) -> tuple[list[Any] | None, dict[str, Any]]:
    """Gradients of a weighted sum of the results, of leaves and of parameters; None if nothing has a history."""
    total = total_of(result)
    if total is None:
        return None, {}
    parameters = dict(model.named_parameters()) if model is not None else {}
    wanted = [*leaves, *(value for value in parameters.values() if value.requires_grad)]
    names = [name for name, value in parameters.items() if value.requires_grad]
    if not wanted:
        return None, {}
    found = torch.autograd.grad(total, wanted, allow_unused=True)
    return list(found[: len(leaves)]), dict(zip(names, found[len(leaves) :], strict=True))


def total_of(result: Any) -> Any:
    """A scalar that depends on every floating result in a way of its own."""
    total: Any = None
    for i, value in enumerate(pytree.tree_leaves(result)):
        if isinstance(value, torch.Tensor) and value.requires_grad:
            real = torch.view_as_real(value.resolve_conj()) if value.is_complex() else value
            part = ((real.double() + 0.3) ** 2 * _weights(real)).sum() * (i + 1)
            total = part if total is None else total + part
    return total


def _weights(value: torch.Tensor) -> Any:
    """A factor for each element. With one for all of them, the gradient of what a normalization returns would be zero
    but for rounding."""
    if not value.dim():
        return 1.5
    last = torch.arange(value.shape[-1], dtype=torch.float64).cos() + 1.5
    if value.dim() == 1:
        return last
    first = torch.arange(value.shape[0], dtype=torch.float64).sin() + 1.5
    return first[(..., *[None] * (value.dim() - 1))] * last


def shares(result: Any, arguments: tuple[Any, ...]) -> list[Any]:
    """For each tensor of the result, which argument or earlier result it shares memory with."""
    seen: list[int] = []
    pattern = []
    for value in [*arguments, *pytree.tree_leaves(result)]:
        if not isinstance(value, torch.Tensor) or value.numel() == 0:
            pattern.append(None)
            seen.append(-1)
            continue
        memory = value.untyped_storage()._cdata
        pattern.append(seen.index(memory) if memory in seen else None)
        seen.append(memory)
    return pattern[len(arguments) :]


class State:
    """The state of a module, to be put back before each case."""

    def __init__(self, module: torch.nn.Module) -> None:
        self._module = module
        self._values = {
            name: (value, value.detach().clone())
            for name, value in [*module.named_buffers(remove_duplicate=False), *module.named_parameters()]
        }

    def put_back(self) -> None:
        """Make the state what it was."""
        copies: dict[int, torch.Tensor] = {}  # a tensor may have several names
        for name, (tensor, value) in self._values.items():
            path, _, leaf = name.rpartition(".")
            owner = self._module.get_submodule(path) if path else self._module
            with torch.no_grad():
                if isinstance(tensor, torch.nn.Parameter):
                    tensor.data.copy_(value)
                elif leaf in owner._buffers:
                    if id(tensor) not in copies:
                        copies[id(tensor)] = value.clone()
                    owner._buffers[leaf] = copies[id(tensor)]
                else:
                    getattr(owner, leaf).data.copy_(value)
