"""Weights for a program that was exported without them, from safetensors files.

A model that is too large to be built twice is exported on the meta device, where its parameters have no data. The
weights come from where they are: one safetensors file, or several with an index, as Hugging Face lays them out. They
are mapped into memory, not read.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch.fx import Graph

from tintype.errors import FileFormatError, InvalidRequestError
from tintype.export.other_state import replacement, report
from tintype.export.program import ExportedProgram, copy_program
from tintype.fake.info import TensorInfo
from tintype.fake.tensor import FakeTensor, make_fake
from tintype.ir.graph import copy_graph, graph_module, subgraph_at
from tintype.serde.foreign import no_weights
from tintype.serde.mapping import map_path
from tintype.serde.weights import SAFETENSORS_DTYPES, StoredTensor, read_safetensors, storage_at

WeightSource = str | os.PathLike[str] | Mapping[str, torch.Tensor]

_INDEX_SUFFIX = ".safetensors.index.json"


class _Index(msgspec.Struct):
    """``model.safetensors.index.json``: which file each tensor is in."""

    weight_map: dict[str, str]


_INDEX_DECODER = msgspec.json.Decoder(_Index)


class _Shard:
    """One safetensors file, in memory as far as it was used."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._buffer = map_path(path)
        view = memoryview(self._buffer)
        try:
            self.tensors = read_safetensors(view, 0, len(view), str(path))
        except FileFormatError as error:
            raise no_weights(view, str(path)) or error from None

    def tensor(self, name: str) -> torch.Tensor:
        stored = self.tensors[name]
        dtype = SAFETENSORS_DTYPES.get(stored.dtype)
        if dtype is None:
            raise FileFormatError(f"{name} in {self.path} is of the type {stored.dtype}, which torch does not have")
        _check_size(name, stored, dtype)
        tensor = torch.empty(0, dtype=dtype)
        strides = torch.empty(stored.sizes, dtype=dtype, device="meta").stride()
        return tensor.set_(storage_at(self._buffer, stored.begin, stored.size), 0, stored.sizes, strides)


def _check_size(name: str, stored: StoredTensor, dtype: torch.dtype) -> None:
    elements = 1
    for size in stored.sizes:
        if not 0 <= size < 1 << 62:
            raise FileFormatError(f"{name} has an absurd size")
        elements *= size
    if elements * dtype.itemsize != stored.size:
        raise FileFormatError(f"{name} has {stored.size} bytes, which are not {elements} elements of {dtype}")


def tensors_in(path: Path) -> dict[str, torch.Tensor]:
    """All tensors of a safetensors file by name."""
    shard = _Shard(path)
    return {name: shard.tensor(name) for name in shard.tensors}


class _Weights:
    """Tensors by name, from wherever they are."""

    def __init__(self, sources: Iterable[WeightSource]) -> None:
        self._given: dict[str, torch.Tensor] = {}
        self._shards: dict[str, _Shard] = {}
        for source in sources:
            if isinstance(source, Mapping):
                self._given.update(source)
            else:
                for path in _files(_path(source)):
                    shard = _Shard(path)
                    self._shards.update(dict.fromkeys(shard.tensors, shard))

    def names(self) -> set[str]:
        return {*self._given, *self._shards}

    def find(self, names: Iterable[str]) -> torch.Tensor | None:
        """The tensor under one of several names that are names of the same."""
        for name in names:
            if name in self._given:
                return self._given[name]
            if name in self._shards:
                return self._shards[name].tensor(name)
        return None


def _path(source: Any) -> Path:
    if not isinstance(source, (str, os.PathLike)):
        raise InvalidRequestError(
            f"weights are files, folders or dictionaries of tensors, but got {type(source).__name__}",
            remedy="model.state_dict() is such a dictionary" if isinstance(source, torch.nn.Module) else None,
        )
    return Path(source)


def _files(path: Path) -> Iterator[Path]:
    if path.is_dir():
        indices = sorted(path.glob(f"*{_INDEX_SUFFIX}"))
        shards = sorted(path.glob("*.safetensors"))
        if len(indices) > 1 or not (indices or shards):
            raise InvalidRequestError(
                f"{path} has no safetensors files, or several sets of them; name the one to use"
            )
        if indices:
            path = indices[0]
        else:
            yield from shards
            return
    if path.name.endswith(_INDEX_SUFFIX):
        yield from _indexed_files(path)
    else:
        yield path


def _indexed_files(path: Path) -> Iterator[Path]:
    try:
        index = _INDEX_DECODER.decode(path.read_bytes())
    except msgspec.MsgspecError as error:
        raise FileFormatError(f"{path} is no index of safetensors files: {error}") from error
    for name in sorted(set(index.weight_map.values())):
        if Path(name).name != name or name in ("", ".", ".."):  # the files beside the index, and no others
            raise FileFormatError(f"{path} names the file {name!r:.80}, which is not beside it")
        yield path.with_name(name)


def attach_weights(
    program: ExportedProgram,
    weights: WeightSource | list[WeightSource],
    *,
    device: str | torch.device = "cpu",
    strict: bool = True,
) -> ExportedProgram:
    """A program like one that was exported on the meta device, or with other weights, with these.

    ``weights`` is a folder with safetensors files, one such file, the index of several
    (``model.safetensors.index.json``), a dictionary of tensors, or a list of these. Every parameter and buffer
    without data gets the tensor of its name; of tied ones, the first that is found. With ``strict`` all of them must
    be found, and all tensors of the files must be used. Those that have data are replaced where there is a tensor of
    their name, on the device where they are (:meth:`ExportedProgram.with_state <tintype.ExportedProgram.with_state>`
    wants all of them).

    >>> import torch, tintype
    >>> with torch.device("meta"):
    ...     model = torch.nn.Linear(3, 2)
    >>> ep = tintype.export(model, (torch.ones(4, 3, device="meta"),))
    >>> ep = tintype.attach_weights(ep, {"weight": torch.ones(2, 3), "bias": torch.zeros(2)})
    >>> ep.module()(torch.ones(4, 3))[0]
    tensor([3., 3.], grad_fn=<SelectBackward0>)
    """
    if not isinstance(program, ExportedProgram):
        raise InvalidRequestError(
            f"attach_weights takes a program first, but got {type(program).__name__}",
            remedy="tintype.attach_weights(program, weights)",
        )
    sources = weights if isinstance(weights, list) else [weights]
    device = torch.device(device)
    found = _Weights(sources)
    values: dict[str, Any] = {**program.state_dict, **program.constants}
    replaced, missing = _replacements(values, found, device)
    unused = sorted(found.names() - set(values))
    if strict and (missing or unused):
        raise InvalidRequestError(
            report(missing, unused), remedy="name what is missing in a dictionary, or strict=False"
        )
    moved = _moved(program, device)
    return copy_program(
        moved,
        moved.graph_module,
        state_dict={name: replaced.get(name, value) for name, value in program.state_dict.items()},
        constants={name: replaced.get(name, value) for name, value in program.constants.items()},
    )


def _replacements(
    values: dict[str, Any], weights: _Weights, device: torch.device
) -> tuple[dict[str, torch.Tensor], list[str]]:
    """What every value without data is replaced by, and the names of those that nothing was found for."""
    names: dict[int, list[str]] = {}
    for name, value in values.items():
        if isinstance(value, torch.Tensor):
            names.setdefault(id(value), []).append(name)
    replaced: dict[str, torch.Tensor] = {}
    missing = []
    for same in names.values():
        old, new = values[same[0]], weights.find(same)
        if new is None:
            if old.device.type == "meta":
                missing.append(same[0])
            continue
        new = replacement(same[0], old, new, device if old.device.type == "meta" else None)
        replaced.update(dict.fromkeys(same, new))
    return replaced, missing


# --- from the meta device to another one --------------------------------------------------------------------------


def _moved(program: ExportedProgram, device: torch.device) -> ExportedProgram:
    """The program on another device than meta."""
    graph = copy_graph(program.graph)  # with the graphs inside of it
    _move(graph, device)
    return copy_program(program, graph_module(graph, "Program"), example_inputs=None)


def _move(graph: Graph, device: torch.device) -> None:
    def moved(value: Any) -> Any:
        if isinstance(value, torch.device):
            return device if value.type == "meta" else value
        if isinstance(value, (list, tuple)):
            return type(value)([moved(item) for item in value])
        if isinstance(value, dict):
            return {key: moved(item) for key, item in value.items()}
        if type(value) is FakeTensor and value.info.device.type == "meta":
            return _fake_on(value, device)
        return value

    for node in graph.nodes:
        subgraph = subgraph_at(node) if node.op == "get_attr" else None
        if subgraph is not None:
            _move(subgraph.graph, device)
        elif "val" in node.meta:
            node.meta["val"] = moved(node.meta["val"])
        node.args, node.kwargs = moved(node.args), moved(node.kwargs)


def _fake_on(fake: FakeTensor, device: torch.device) -> FakeTensor:
    info = fake.info
    moved = TensorInfo(
        info.sizes, info.strides, info.dtype, device, info.offset, info.storage, info.requires_grad, info.conjugate,
        info.negative,
    )  # fmt: skip
    return make_fake(moved, fake.context, fake.node)
