"""Shapes by torch's own meta kernels, for operators without a rule of ours."""

from __future__ import annotations

import re
from typing import Any

import torch

from tintype.fake.info import Storage, TensorInfo
from tintype.fake.rules.elementwise import common_device
from tintype.fake.rules.factories import target_device
from tintype.symbolic.bridge import from_torch, to_torch
from tintype.symbolic.expression import Expr
from tintype.symbolic.sizes import unguarded

_META = torch.device("meta")
_QUANTIZED = frozenset({torch.qint8, torch.quint8, torch.qint32, torch.quint4x2, torch.quint2x4})


class NoMetaKernel(Exception):
    """The operator's results can't be known from its arguments' descriptions."""


def freeze(value: Any) -> Any:
    """A hashable stand-in for an operator's argument; equal ones lead to equal results."""
    kind = type(value)
    if kind is TensorInfo:
        return value.key()
    if kind is list or kind is tuple:
        return tuple([freeze(v) for v in value])
    if kind is torch.SymFloat or kind is torch.SymBool:  # their hash would ask for the value
        raise TypeError(f"unhashable type: {kind.__name__}")
    return (kind, value)


def infer(func: Any, args: Any, kwargs: dict[str, Any], cache: dict[Any, Any]) -> Any:
    """The infos of an operator's results, by its meta kernel. Infos may alias arguments."""
    try:
        key = (func, freeze(args), tuple((k, freeze(v)) for k, v in kwargs.items()))
        found = cache.get(key)
    except TypeError:  # an argument that can't be hashed
        return _Inference().run(func, args, kwargs)
    if found is not None:
        inputs = _all_infos(args, kwargs)
        return _restore(found, inputs)
    inputs = _all_infos(args, kwargs)
    results = _Inference().run(func, args, kwargs)
    cache[key] = _portable(results, inputs)
    return results


def _all_infos(args: Any, kwargs: dict[str, Any]) -> list[TensorInfo]:
    found: list[TensorInfo] = []

    def visit(value: Any) -> None:
        if type(value) is TensorInfo:
            found.append(value)
        elif type(value) in (list, tuple):
            for item in value:
                visit(item)

    visit(list(args))
    visit(list(kwargs.values()))
    return found


def _portable(results: Any, inputs: list[TensorInfo]) -> Any:
    """Results with storages replaced by the position of the argument they alias."""
    if type(results) is TensorInfo:
        alias = next((i for i, info in enumerate(inputs) if info.storage is results.storage), None)
        return _Template(results, alias if results.storage is not None else None)
    if isinstance(results, (list, tuple)):
        return [_portable(r, inputs) for r in results]
    return results


def _restore(template: Any, inputs: list[TensorInfo]) -> Any:
    if type(template) is _Template:
        return template.make(inputs)
    if isinstance(template, list):
        return [_restore(t, inputs) for t in template]
    return template


class _Template:
    __slots__ = ("alias", "info")

    def __init__(self, info: TensorInfo, alias: int | None) -> None:
        self.info = info
        self.alias = alias

    def make(self, inputs: list[TensorInfo]) -> TensorInfo:
        old = self.info
        storage = None if self.alias is None else inputs[self.alias].storage
        return TensorInfo(
            old.sizes,
            old.strides,
            old.dtype,
            old.device,
            old.offset,
            storage,
            False,
            old.conjugate,
            old.negative,
        )


def _meta_tensor(info: TensorInfo) -> torch.Tensor:
    if info.dtype in _QUANTIZED:
        raise NoMetaKernel(f"there are no meta tensors of {info.dtype}")
    # what torch asks about sizes to find out how much memory there would be, the program never asked
    with unguarded((*info.sizes, *info.strides)):
        return torch.empty_strided(
            [to_torch(size) for size in info.sizes],
            [to_torch(stride) for stride in info.strides],
            dtype=info.dtype,
            device=_META,
        )


class _Inference:
    """One run of a meta kernel: arguments to meta tensors, results back to infos."""

    def __init__(self) -> None:
        self.storages: dict[int, Storage | None] = {}
        self.alive: list[torch.Tensor] = []
        self.infos: list[TensorInfo] = []

    def run(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        device = kwargs.get("device")
        # modes of the user around the capture (torch's own FakeTensorMode, say) must not see this
        with (
            torch._C._DisableTorchDispatch(),
            torch._C._AutoDispatchBelowADInplaceOrView(),
            torch._C._EnablePythonDispatcher(),  # without it some kernels refuse symbolic sizes
        ):
            meta_args = [self.to_meta(a) for a in args]
            meta_kwargs = {k: self.to_meta(v) for k, v in kwargs.items()}
            if "device" in meta_kwargs or not self.infos:
                if not any(argument.name == "device" for argument in func._schema.arguments):
                    raise NoMetaKernel("it takes neither tensors nor a device, so that it can only be run")
                meta_kwargs["device"] = _META
            try:
                results = func(*meta_args, **meta_kwargs)
            except (NotImplementedError, RecursionError, TypeError) as error:
                # torch recurses where a kernel that was not written for meta tensors asks for their data, and has
                # kernels for one overload that are registered for another, whose arguments are of other types
                raise NoMetaKernel(str(error)) from error
            except RuntimeError as error:
                # a kernel that was not written for meta tensors, or that wants their data
                if not re.search("INTERNAL ASSERT FAILED|meta tensor", str(error)):
                    raise
                raise NoMetaKernel(str(error).splitlines()[0]) from error
        if device is not None:
            self.device = target_device(device)
        else:
            self.device = common_device(self.infos) if self.infos else torch.get_default_device()
        return self.from_meta(results)

    def to_meta(self, value: Any) -> Any:
        kind = type(value)
        if kind is TensorInfo:
            self.infos.append(value)
            meta = _meta_tensor(value)
            if value.conjugate:
                torch._C._set_conj(meta, True)
            if value.negative:
                torch._C._set_neg(meta, True)
            self.alive.append(meta)
            self.storages[meta.untyped_storage()._cdata] = value.storage
            return meta
        if kind is list or kind is tuple:
            return [self.to_meta(v) for v in value]
        if isinstance(value, Expr):
            return to_torch(value)
        return value

    def from_meta(self, result: Any) -> Any:
        if isinstance(result, torch.Tensor):
            if result.layout is not torch.strided:
                raise NoMetaKernel(f"its result is a {result.layout} tensor, which can't be captured")
            storage = self.storages.get(result.untyped_storage()._cdata)
            base = next((i for i in self.infos if storage is not None and i.storage is storage), None)
            offset = from_torch(result.storage_offset())
            return TensorInfo(
                tuple([from_torch(s) for s in result.size()]),
                tuple([from_torch(s) for s in result.stride()]),
                result.dtype,
                self.device,
                offset if base is None else base.offset + offset,
                storage,
                False,
                result.is_conj(),
                result.is_neg(),
            )
        if isinstance(result, (list, tuple)):
            return [self.from_meta(r) for r in result]
        if isinstance(result, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            return from_torch(result)
        return result
