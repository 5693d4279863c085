"""Tensors with data: which memory they share, and that memory as safetensors.

Every piece of memory is written once, however many tensors lie in it, and only as much of it as they cover. Memory
that is exactly one dense tensor is written under that tensor's name, dtype and size, so that other tools can read the
weights from the file; anything else as bytes. A table in ``program.json`` says how tensors lie in memory.

Programs of one file that were made from one model hold the same memory, and so they do when they are loaded. Memories
of two programs that are not the same but have the same bytes are written once too; each becomes a memory of its own
again, since somebody may write to one of them.
"""

from __future__ import annotations

import ctypes
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec
import torch

from tintype.errors import FileFormatError, UnsavableError
from tintype.serde import schema
from tintype.serde.archive import Archive, Entry
from tintype.serde.values import device_named, dtype_named
from tintype.trace.given_tensors import changes_operators

# safetensors' own names; what is not here is written as bytes
_SAFETENSORS_NAMES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
    torch.uint64: "U64",
    torch.uint32: "U32",
    torch.uint16: "U16",
    torch.complex64: "C64",
}
SAFETENSORS_DTYPES = {
    **{name: dtype for dtype, name in _SAFETENSORS_NAMES.items()},
    "F8_E4M3FNUZ": torch.float8_e4m3fnuz,
    "F8_E5M2FNUZ": torch.float8_e5m2fnuz,
}
PARTS = ("weights", "constants", "examples")

_REQUIRES_GRAD, _CONJUGATED, _NEGATED, _PARAMETER = 1, 2, 4, 8
_PIECE = 1 << 24  # bytes that are written at a time
_MOST_HEADER = 100_000_000
_SAMPLE = 1 << 14  # bytes at both ends that are compared first
_MOST_DIMENSIONS = 64


# --- writing ------------------------------------------------------------------------------------------------------


@dataclass
class _Memory:
    """A piece of memory that tensors of the program lie in."""

    number: int
    part: str
    name: str  # of the first tensor in it
    storage: torch.UntypedStorage
    tensors: list[torch.Tensor] = field(default_factory=list)
    programs: set[int] = field(default_factory=set)  # that have a tensor in it

    @property
    def has_data(self) -> bool:
        return self.storage.device.type != "meta"


class TensorTable:
    """Collects the tensors of a program."""

    def __init__(self) -> None:
        self._memories: dict[int, _Memory] = {}
        self._tensors: list[torch.Tensor] = []
        self._numbers: dict[int, int] = {}
        self._fakes: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._program = 0

    def begin_program(self) -> None:
        """What is added from now on belongs to the next program of the file."""
        self._program += 1

    def add(self, part: str, name: str, tensor: torch.Tensor) -> int:
        """The number of a tensor; the same one for the same tensor."""
        tensor = self._without_data(tensor)
        _check_savable(name, tensor)
        storage = tensor.untyped_storage()
        memory = self._memories.get(storage._cdata)
        if memory is None:
            memory = _Memory(len(self._memories), part, name, storage)
            self._memories[storage._cdata] = memory
        memory.programs.add(self._program)
        number = self._numbers.get(id(tensor))
        if number is not None:
            return number
        memory.tensors.append(tensor)
        self._numbers[id(tensor)] = number = len(self._tensors)
        self._tensors.append(tensor)
        return number

    def _without_data(self, tensor: torch.Tensor) -> torch.Tensor:
        """One of torch's fake tensors as a tensor on the meta device: neither has data. Others are what they are."""
        if type(tensor).__module__ != "torch._subclasses.fake_tensor":
            return tensor
        if id(tensor) not in self._fakes:
            sizes, strides = _numbers(tensor.size()), _numbers(tensor.stride())
            if None in (*sizes, *strides):
                return tensor
            meta = torch.empty_strided(sizes, strides, dtype=tensor.dtype, device="meta")
            if isinstance(tensor, torch.nn.Parameter):
                meta = torch.nn.Parameter(meta, requires_grad=tensor.requires_grad)
            self._fakes[id(tensor)] = tensor, meta
        return self._fakes[id(tensor)][1]

    def finish(self) -> tuple[list[schema.Storage], list[schema.Tensor], list[Entry]]:
        """The table, and the entries that hold the data."""
        pieces = [_Piece(memory) for memory in self._memories.values()]
        starts = {id(tensor): piece for piece in pieces for tensor in piece.memory.tensors}
        if self._program > 1:
            _find_equal(pieces)
        entries = []
        for part in PARTS:
            mine = [
                piece
                for piece in pieces
                if piece.memory.part == part and piece.memory.has_data and not piece.equal_to
            ]
            if mine:
                _name_uniquely(mine)
                entries.append(_safetensors_entry(f"{part}.safetensors", mine))
        storages = [piece.described() for piece in pieces]
        tensors = [_described(tensor, starts[id(tensor)]) for tensor in self._tensors]
        return storages, tensors, entries


def _numbers(numbers: Any) -> list[Any]:
    """Sizes of a fake tensor, those that vary as in its example; None for one that has none."""
    return [number if type(number) is int else number.node.hint for number in numbers]


def _check_savable(name: str, tensor: torch.Tensor) -> None:
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter) and changes_operators(type(tensor)):
        raise UnsavableError(
            f"{name} is a {type(tensor).__qualname__}, and a file holds plain tensors only",
            remedy="replace it with a plain tensor before the export",
        )
    if tensor.layout is not torch.strided or tensor.is_quantized:
        kind = "quantized" if tensor.is_quantized else str(tensor.layout)
        raise UnsavableError(
            f"{name} is a {kind} tensor, and a file holds dense ones only",
            remedy="convert it with dequantize() or to_dense() before the export",
        )


class _Piece:
    """As much of a memory as its tensors cover, and how it is called in the safetensors entry."""

    def __init__(self, memory: _Memory) -> None:
        self.memory = memory
        self.name = memory.name
        self.equal_to: _Piece | None = None  # whose bytes are written in place of these
        begins, ends = zip(*map(_covered_bytes, memory.tensors), strict=True)
        self.alignment = max(tensor.dtype.itemsize for tensor in memory.tensors)
        # every tensor must begin at a whole number of its elements, also in what is cut out
        self.begin = min(begins) // self.alignment * self.alignment
        end = max(ends)
        self.size = end - self.begin if end > self.begin else 0
        first = memory.tensors[0]
        is_whole = first.is_contiguous() and first.numel() * first.dtype.itemsize == self.size
        if is_whole and first.dtype in _SAFETENSORS_NAMES and not (first.is_conj() or first.is_neg()):
            self.dtype, self.sizes = _SAFETENSORS_NAMES[first.dtype], list(first.shape)
        else:
            self.dtype, self.sizes = "U8", [self.size]

    def described(self) -> schema.Storage:
        device = str(self.memory.storage.device)
        if not self.memory.has_data:
            return schema.Storage("", "", self.size, device)
        written = self.equal_to or self
        return schema.Storage(written.memory.part, written.name, self.size, device)

    def as_tensor(self) -> torch.Tensor:
        """The bytes, where they are."""
        storage = self.memory.storage
        return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage, self.begin, [self.size], [1])

    def bytes(self) -> Iterator[Any]:
        """The memory in pieces; a copy exists only of what lies on another device."""
        storage = self.memory.storage
        if self.size == 0:
            return
        if storage.device.type != "cpu":
            storage = storage.cpu()
        content = (ctypes.c_ubyte * self.size).from_address(storage.data_ptr() + self.begin)
        view = memoryview(content).cast("B")
        for position in range(0, self.size, _PIECE):
            yield view[position : position + _PIECE]
        del storage  # alive until here: the view does not keep it


def _find_equal(pieces: list[_Piece]) -> None:
    """Let memories of different programs that have the same bytes be written once. Within a program they stay apart:
    the bytes of a file of one program are the same in a file of several."""
    found: dict[Any, list[tuple[_Piece, set[int]]]] = {}
    for piece in pieces:
        if piece.size == 0 or not piece.memory.has_data:
            continue
        content = piece.as_tensor()
        sample = zlib.crc32(torch.cat([content[:_SAMPLE], content[-_SAMPLE:]]).cpu().numpy().tobytes())
        alike = found.setdefault((piece.size, piece.alignment, content.device, sample), [])
        for first, programs in alike:
            if programs.isdisjoint(piece.memory.programs) and torch.equal(first.as_tensor(), content):
                piece.equal_to = first
                programs |= piece.memory.programs
                break
        else:
            alike.append((piece, set(piece.memory.programs)))


def _covered_bytes(tensor: torch.Tensor) -> tuple[int, int]:
    begin = int(tensor.storage_offset())
    if tensor.numel() == 0:
        return begin * tensor.dtype.itemsize, begin * tensor.dtype.itemsize
    last = begin + sum((size - 1) * stride for size, stride in zip(tensor.size(), tensor.stride(), strict=True))
    return begin * tensor.dtype.itemsize, (last + 1) * tensor.dtype.itemsize


def _described(tensor: torch.Tensor, piece: _Piece) -> schema.Tensor:
    flags = (
        _REQUIRES_GRAD * tensor.requires_grad
        | _CONJUGATED * tensor.is_conj()
        | _NEGATED * tensor.is_neg()
        | _PARAMETER * isinstance(tensor, torch.nn.Parameter)
    )
    offset = tensor.storage_offset() - piece.begin // tensor.dtype.itemsize
    name = str(tensor.dtype).removeprefix("torch.")
    return schema.Tensor(piece.memory.number, name, list(tensor.shape), list(tensor.stride()), offset, flags)


def _name_uniquely(pieces: list[_Piece]) -> None:
    used: set[str] = set()
    for piece in pieces:
        name, count = piece.name, 0
        while name in used or name == "__metadata__":
            count += 1
            name = f"{piece.name}#{count}"
        piece.name = name
        used.add(name)


def _safetensors_entry(name: str, pieces: list[_Piece]) -> Entry:
    # widest elements first: without gaps between them, all tensors begin where their elements may
    ordered = sorted(pieces, key=lambda piece: -(piece.alignment if piece.size % piece.alignment == 0 else 1))
    position = 0
    described: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    for piece in ordered:
        end = position + piece.size
        described[piece.name] = {"dtype": piece.dtype, "shape": piece.sizes, "data_offsets": [position, end]}
        position = end
    header = msgspec.json.encode(described)
    header += b" " * (-(len(header) + 8) % 64)

    def content() -> Iterator[Any]:
        yield len(header).to_bytes(8, "little") + header
        for piece in ordered:
            yield from piece.bytes()

    return Entry(name, 8 + len(header) + position, content)


# --- reading ------------------------------------------------------------------------------------------------------


class _TensorHeader(msgspec.Struct, forbid_unknown_fields=True):
    dtype: str
    shape: list[int]
    data_offsets: tuple[int, int]


_HEADER_DECODER = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ENTRY_DECODER = msgspec.json.Decoder(_TensorHeader)


@dataclass(frozen=True)
class StoredTensor:
    """A tensor of a safetensors entry: what it is, and where its bytes lie in the file."""

    dtype: str
    sizes: tuple[int, ...]
    begin: int
    size: int


def read_safetensors(view: memoryview, begin: int, size: int, what: str) -> dict[str, StoredTensor]:
    """The tensors of a safetensors entry. They fill it from beginning to end, one after the other."""
    if size < 8:
        raise FileFormatError(f"{what} is too short to be a safetensors file")
    length = int.from_bytes(view[begin : begin + 8], "little")
    if length > min(size - 8, _MOST_HEADER):
        raise FileFormatError(f"the header of {what} claims {length} bytes, more than there are")
    try:
        header = _HEADER_DECODER.decode(view[begin + 8 : begin + 8 + length])
        entries = {name: _ENTRY_DECODER.decode(raw) for name, raw in header.items() if name != "__metadata__"}
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise FileFormatError(f"the header of {what} can't be read: {error}") from error
    data_begin = begin + 8 + length
    found: dict[str, StoredTensor] = {}
    for name, entry in entries.items():
        start, end = entry.data_offsets
        if not 0 <= start <= end <= size - 8 - length:
            raise FileFormatError(f"the tensor {name!r:.80} of {what} lies outside of the file")
        found[name] = StoredTensor(entry.dtype, tuple(entry.shape), data_begin + start, end - start)
    position = data_begin
    for name, tensor in sorted(found.items(), key=lambda item: (item[1].begin, item[1].size)):
        if tensor.begin != position:
            raise FileFormatError(f"the tensor {name!r:.80} of {what} lies over another one, or leaves a gap")
        position += tensor.size
    if position != begin + size:
        raise FileFormatError(f"{what} has bytes that belong to no tensor")
    return found


def storage_at(buffer: Any, begin: int, size: int) -> torch.UntypedStorage:
    """Memory that is a range of a buffer; it keeps the buffer alive."""
    if size == 0:
        return torch.empty(0, dtype=torch.uint8).untyped_storage()
    return torch.frombuffer(buffer, dtype=torch.uint8, count=size, offset=begin).untyped_storage()


class TensorReader:
    """The tensors of a file."""

    def __init__(
        self, archive: Archive, storages: list[schema.Storage], tensors: list[schema.Tensor], programs: int = 1
    ) -> None:
        self._archive = archive
        self._storages = storages
        self._described = tensors
        self._programs = programs
        self._uses: dict[tuple[str, str], int] = {}
        self._headers: dict[str, dict[str, StoredTensor]] = {}
        self._memories: dict[int, torch.UntypedStorage] = {}
        self._tensors: dict[int, torch.Tensor] = {}

    def tensor(self, number: int) -> torch.Tensor:
        """A tensor of the table; the same one for the same number."""
        found = self._tensors.get(number)
        if found is None:
            if not 0 <= number < len(self._described):
                raise FileFormatError(f"there is no tensor {number}")
            found = self._tensors[number] = self._make(self._described[number])
        return found

    def _make(self, described: schema.Tensor) -> torch.Tensor:
        if not 0 <= described.storage < len(self._storages):
            raise FileFormatError(f"there is no storage {described.storage}")
        storage = self._storages[described.storage]
        dtype = dtype_named(described.dtype)
        check_geometry(described, dtype.itemsize, storage.size)
        device = device_named(storage.device)
        if device.type == "meta":
            tensor = torch.empty_strided(described.sizes, described.strides, dtype=dtype, device="meta")
        else:
            memory = self._memory(described.storage, storage, device)
            tensor = torch.empty(0, dtype=dtype, device=device)
            tensor.set_(memory, described.offset, described.sizes, described.strides)
        return _with_flags(tensor, described.flags)

    def _memory(self, number: int, storage: schema.Storage, device: torch.device) -> torch.UntypedStorage:
        memory = self._memories.get(number)
        if memory is None:
            place = self._header(storage.part).get(storage.name)
            if place is None or place.size != storage.size:
                raise FileFormatError(f"the data of {storage.name!r:.80} is not there, or of another size")
            # bytes that several memories have are in the file once; nobody else's writes may be seen in a memory
            use = self._uses.get((storage.part, storage.name), 0)
            if use >= self._programs:
                raise FileFormatError(f"more memories have the data of {storage.name!r:.80} than there are programs")
            self._uses[storage.part, storage.name] = use + 1
            memory = storage_at(*self._archive.memory(place.begin, place.size, use), place.size)
            if device.type != "cpu":
                memory = _moved(memory, device)
            self._memories[number] = memory
        return memory

    def _header(self, part: str) -> dict[str, StoredTensor]:
        header = self._headers.get(part)
        if header is None:
            if part not in PARTS:
                raise FileFormatError(f"there is no part {part!r:.80}")
            name = f"{part}.safetensors"
            place = self._archive.place(name)
            header = self._headers[part] = read_safetensors(self._archive.view, place.begin, place.size, name)
        return header


def _moved(memory: torch.UntypedStorage, device: torch.device) -> torch.UntypedStorage:
    try:
        return memory.to(device=device)
    except (RuntimeError, AssertionError) as error:
        raise FileFormatError(
            f"the program's weights belong on {device}, which this machine does not have",
            remedy="load the file on a machine with such a device, or save the program from the CPU",
        ) from error


def check_geometry(tensor: schema.Tensor, itemsize: int, available: int) -> None:
    """Raise unless a tensor lies within its memory."""
    sizes, strides = tensor.sizes, tensor.strides
    if len(sizes) != len(strides) or len(sizes) > _MOST_DIMENSIONS or min([tensor.offset, *sizes, *strides]) < 0:
        raise FileFormatError("a tensor's sizes, strides and offset do not fit together")
    if max([tensor.offset, *sizes, *strides]) >= 1 << 62:
        raise FileFormatError("a tensor's sizes are absurd")
    if 0 in sizes:
        return
    elements, last = 1, tensor.offset
    for size, stride in zip(sizes, strides, strict=True):
        elements *= size
        last += (size - 1) * stride
    if (last + 1) * itemsize > available or elements >= 1 << 62:
        raise FileFormatError("a tensor reaches beyond the end of its memory")


def _with_flags(tensor: torch.Tensor, flags: int) -> torch.Tensor:
    if flags & _CONJUGATED:
        tensor = tensor.conj()
    if flags & _NEGATED:
        tensor = torch._neg_view(tensor)
    requires_grad = bool(flags & _REQUIRES_GRAD)
    if flags & _PARAMETER:
        return torch.nn.Parameter(tensor, requires_grad)
    return tensor.requires_grad_() if requires_grad else tensor
