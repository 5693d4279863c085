"""Runs programs for real and holds every operator they call against its shape rule.

A :class:`Comparison` is a dispatch mode. Below autograd it sees composite operators whole; with ``inside``
it also runs their kernels step by step, so that the operators they consist of are compared as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tintype.fake.info import Storage, TensorInfo
from tintype.fake.rules import RULES
from tintype.fake.tensor import describe


class Unsuitable(Exception):
    """A call that rules are never asked about: sparse or quantized tensors, say."""


def _memory(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata


class Arguments:
    """The arguments of one call as a rule takes them, and which of them a result turns out to be."""

    def __init__(self) -> None:
        self.storages: dict[int, Storage] = {}
        self.infos: list[tuple[torch.Tensor, TensorInfo]] = []

    def convert(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return self._info(value)
        if isinstance(value, (list, tuple)):
            return [self.convert(item) for item in value]
        return value

    def _info(self, tensor: torch.Tensor) -> TensorInfo:
        if (
            tensor.layout is not torch.strided
            or tensor.is_quantized
            or type(tensor)
            not in (
                torch.Tensor,
                torch.nn.Parameter,
            )
        ):
            raise Unsuitable
        for known, info in self.infos:
            if known is tensor:
                return info
        info = describe(tensor, self.storages.setdefault(_memory(tensor), Storage()))
        self.infos.append((tensor, info))
        return info


def differences(arguments: Arguments, predicted: Any, actual: Any) -> Iterator[str]:
    """What a rule got wrong, in words."""
    if isinstance(actual, torch.Tensor):
        if type(predicted) is not TensorInfo:
            yield f"a tensor was expected, got {predicted}"
            return
        yield from _tensor_differences(arguments, predicted, actual)
    elif isinstance(actual, (list, tuple)):
        if not isinstance(predicted, (list, tuple)) or len(predicted) != len(actual):
            yield f"{len(actual)} results were expected, got {predicted}"
            return
        for position, (one, other) in enumerate(zip(predicted, actual, strict=True)):
            for difference in differences(arguments, one, other):
                yield f"result {position}: {difference}"
    elif actual != predicted:
        yield f"{actual} was expected, got {predicted}"


def _tensor_differences(arguments: Arguments, predicted: TensorInfo, actual: torch.Tensor) -> Iterator[str]:
    if predicted.sizes != tuple(actual.shape):
        yield f"size {list(predicted.sizes)} instead of {list(actual.shape)}"
        return
    if any(type(number) is not int for number in (*predicted.sizes, *predicted.strides)):
        yield f"sizes or strides that are no integers: {predicted}"
    if predicted.dtype is not actual.dtype:
        yield f"{predicted.dtype} instead of {actual.dtype}"
    if predicted.device != actual.device:
        yield f"device {predicted.device} instead of {actual.device}"
    if len(predicted.strides) != actual.dim():
        yield f"{len(predicted.strides)} strides for {actual.dim()} dimensions"
    elif actual.numel() > 0 and any(
        stride != real
        for size, stride, real in zip(actual.shape, predicted.strides, actual.stride(), strict=True)
        if size != 1
    ):
        yield f"strides {list(predicted.strides)} instead of {list(actual.stride())} of {list(actual.shape)}"
    if predicted.conjugate != actual.is_conj() or predicted.negative != actual.is_neg():
        yield "a lazy conjugation or negation is lost"
    shared = arguments.storages.get(_memory(actual))
    storage = predicted.storage
    may_alias = storage is not None and storage.frozen and storage.source is shared  # in eager mode, it does
    if storage is not shared and not may_alias:
        yield "it aliases an argument" if predicted.storage is None else "it doesn't alias that argument"
    if predicted.offset != actual.storage_offset():
        yield f"offset {predicted.offset} instead of {actual.storage_offset()}"


class Comparison(TorchDispatchMode):
    """Compares every operator call with its shape rule and collects what doesn't agree."""

    def __init__(self, rules: dict[Any, Any] | None = None, *, inside: bool = False) -> None:
        super().__init__()
        self.rules = RULES if rules is None else rules
        self.inside = inside
        self.compared: dict[Any, int] = {}
        self.declined: dict[Any, int] = {}
        self.seen: set[Any] = set()
        self.failures: dict[str, str] = {}

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        self.seen.add(func)
        rule = self.rules.get(func)
        if rule is None:
            if self.inside:
                return self._step(func, args, kwargs)
            return func(*args, **kwargs)
        arguments = Arguments()
        try:
            infos = arguments.convert(args)
            options = {name: arguments.convert(value) for name, value in kwargs.items()}
        except Unsuitable:
            return func(*args, **kwargs)
        # the rule first: operators without a mark in their schema may still write to their arguments
        try:
            predicted, error = rule(*infos, **options), None
        except NotImplementedError:
            self.declined[func] = self.declined.get(func, 0) + 1
            return func(*args, **kwargs)
        except Exception as raised:
            predicted, error = None, raised
        actual = func(*args, **kwargs)
        self.compared[func] = self.compared.get(func, 0) + 1
        if error is not None:
            self._fail(func, infos, options, f"the rule raised {type(error).__name__}: {error}")
        else:
            for difference in differences(arguments, predicted, actual):
                self._fail(func, infos, options, difference)
        if self.inside:
            self._step(func, args, kwargs)
        return actual

    def _step(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Run a composite operator's kernel with the operators it calls compared, too."""
        if func._can_decompose() and torch._C._dispatch_has_kernel_for_dispatch_key(
            func.name(), "CompositeImplicitAutograd"
        ):
            with self:
                return func.decompose(*args, **kwargs)
        return func(*args, **kwargs)

    def _fail(self, func: Any, infos: Any, options: Any, difference: str) -> None:
        # one line per operator and kind of difference is enough to start from
        kind = "".join(character for character in difference if not character.isdigit())
        self.failures.setdefault(f"{func}: {kind[:40]}", f"{func}({infos}, {options}): {difference}")


def below_autograd() -> Any:
    """Where captured programs run: composite operators arrive whole."""
    return torch._C._AutoDispatchBelowADInplaceOrView()


def report(failures: Iterable[str]) -> str:
    """Failures, one per line."""
    return "\n".join(failures)
