"""The container: a zip file whose entries are stored as they are, at known places.

Entries begin at multiples of 64 bytes, so that what is in them can be memory-mapped. The reader takes the files
that the writer makes and nothing else of what the zip format allows: no compression, no encryption, no comments, no
entries that overlap or come twice. It looks at sizes before it reads, and never writes anywhere.
"""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import IO, Any

from tintype.errors import FileFormatError

ALIGNMENT = 64
MOST_ENTRIES = 65_536
_FIXED_DATE = (1980, 1, 1, 0, 0, 0)  # the same program gives the same bytes, whenever it is saved
_ZIP64_FROM = 1 << 30
_PIECE = 1 << 24  # bytes that are read at a time

_END = struct.Struct("<4s4H2LH")
_END_64 = struct.Struct("<4sQ2H2L4Q")
_LOCATOR_64 = struct.Struct("<4sLQL")
_CENTRAL = struct.Struct("<4s6H3L5H2L")
_LOCAL = struct.Struct("<4s5H3L2H")
_UTF8 = 0x800


@dataclass(frozen=True)
class Entry:
    """Something to be written: its name, its size, and its bytes in pieces."""

    name: str
    size: int
    pieces: Callable[[], Iterable[Any]]


def bytes_entry(name: str, content: bytes) -> Entry:
    """An entry whose bytes are at hand."""
    return Entry(name, len(content), lambda: (content,))


def write_archive(file: IO[bytes], entries: Iterable[Entry]) -> None:
    """Write entries to a file that can seek, in order."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for entry in entries:
            _write_entry(archive, entry)


def _write_entry(archive: zipfile.ZipFile, entry: Entry) -> None:
    info = zipfile.ZipInfo(entry.name, _FIXED_DATE)
    info.create_system = 3  # the same bytes on every system
    info.external_attr = 0o644 << 16
    info.file_size = entry.size
    large = entry.size >= _ZIP64_FROM
    file: Any = archive.fp
    before = file.tell() + _LOCAL.size + len(entry.name.encode()) + (20 if large else 0)
    info.extra = _padding(-before % ALIGNMENT)
    with archive.open(info, "w", force_zip64=large) as stream:
        for piece in entry.pieces():
            stream.write(piece)


def _padding(length: int) -> bytes:
    """A field of the zip format that means nothing, to move what comes after it."""
    if length == 0:
        return b""
    if length < 4:
        length += ALIGNMENT
    return struct.pack("<2H", 0x5454, length - 4) + bytes(length - 4)


def _damaged(fact: str) -> FileFormatError:
    return FileFormatError(fact, remedy="the file is damaged or is no program of tintype's; save the program again")


@dataclass(frozen=True)
class Place:
    """Where an entry's bytes lie in the file."""

    begin: int
    size: int
    checksum: int


class Archive:
    """The entries of a file that is in memory, or mapped into it; ``again`` gives the same bytes in other memory."""

    def __init__(self, buffer: Any, again: Callable[[], Any] | None = None) -> None:
        self.buffer = buffer
        self.view = memoryview(buffer).cast("B")
        self.places = _read_directory(self.view)
        self._again = again
        self._buffers = [buffer]

    def memory(self, begin: int, size: int, use: int) -> tuple[Any, int]:
        """A buffer that has a range of the file, and where in it; what is written there is not seen by other uses of
        that range, which have other numbers from 0 on."""
        if use and self._again is None:
            return bytearray(self.view[begin : begin + size]), 0
        while len(self._buffers) <= use:
            assert self._again is not None
            buffer = self._again()
            if len(buffer) != len(self.view):
                raise _damaged("the file was changed while it was read")
            self._buffers.append(buffer)
        return self._buffers[use], begin

    def __contains__(self, name: str) -> bool:
        return name in self.places

    def names(self) -> Iterator[str]:
        """The names of all entries."""
        return iter(self.places)

    def place(self, name: str) -> Place:
        """Where an entry lies."""
        place = self.places.get(name)
        if place is None:
            raise _damaged(f"the file has no entry {name!r}")
        return place

    def content(self, name: str) -> memoryview:
        """The bytes of an entry, checked."""
        place = self.place(name)
        self._check(name, place)
        return self.view[place.begin : place.begin + place.size]

    def verify(self, progress: Callable[[int], None] = lambda count: None) -> None:
        """Read every byte of every entry and compare its checksum; ``progress`` hears how many bytes were read."""
        for name, place in self.places.items():
            self._check(name, place, progress)

    def _check(self, name: str, place: Place, progress: Callable[[int], None] = lambda count: None) -> None:
        checksum = 0
        for begin in range(place.begin, place.begin + place.size, _PIECE):
            piece = self.view[begin : min(begin + _PIECE, place.begin + place.size)]
            checksum = zlib.crc32(piece, checksum)
            progress(len(piece))
        if checksum != place.checksum:
            raise _damaged(f"the bytes of {name!r} are not those that were written (their checksum differs)")


def _read_directory(view: memoryview) -> dict[str, Place]:
    try:
        return _Directory(view).places()
    except (struct.error, UnicodeDecodeError) as error:
        raise _damaged("the file's directory can't be read") from error


class _Directory:
    """The zip directory at the end of a file."""

    def __init__(self, view: memoryview) -> None:
        self.view = view
        end = len(view) - _END.size
        if end < 0 or bytes(view[end : end + 4]) != b"PK\x05\x06":
            raise _damaged("this is no tintype file: it does not end with a zip directory")
        _, disk, first_disk, here, count, size, begin, comment = _END.unpack_from(view, end)
        if count == 0xFFFF or size == 0xFFFFFFFF or begin == 0xFFFFFFFF:
            end, disk, first_disk, here, count, size, begin = self._large_end(end)
        if disk or first_disk or here != count or comment:
            raise _damaged("the file's directory has parts that tintype does not write")
        if begin + size != end or count > MOST_ENTRIES or count * _CENTRAL.size > size:
            raise _damaged(f"the file's directory claims {count} entries in {size} bytes at {begin}, which can't be")
        self.begin, self.end, self.count = begin, end, count

    def _large_end(self, end: int) -> tuple[int, ...]:
        locator = end - _LOCATOR_64.size
        if locator < 0:
            raise _damaged("the file's directory can't be read")
        signature, _, begin, _ = _LOCATOR_64.unpack_from(self.view, locator)
        if signature != b"PK\x06\x07" or begin + _END_64.size != locator:
            raise _damaged("the file's directory can't be read")
        fields = _END_64.unpack_from(self.view, begin)
        if fields[0] != b"PK\x06\x06":
            raise _damaged("the file's directory can't be read")
        disk, first_disk, here, count, size, start = fields[4:]
        return begin, disk, first_disk, here, count, size, start

    def places(self) -> dict[str, Place]:
        """All entries; none twice, none over another, none outside of the file."""
        places: dict[str, Place] = {}
        position = self.begin
        free_from = 0  # entries lie in the order of the directory
        for _ in range(self.count):
            name, place, header, position = self._entry(position)
            if name in places:
                raise _damaged(f"the file has two entries {name!r}")
            if header < free_from or place.begin + place.size > self.begin:
                raise _damaged(f"the entry {name!r} lies over another one or outside of the file")
            free_from = place.begin + place.size
            places[name] = place
        if position != self.end:
            raise _damaged("the file's directory does not end where it should")
        return places

    def _entry(self, position: int) -> tuple[str, Place, int, int]:
        (
            signature, _, _, flags, method, _, _, checksum, packed, size, name_length, extra_length, comment, disk,
            _, _, header,
        ) = _CENTRAL.unpack_from(self.view, position)  # fmt: skip
        after = position + _CENTRAL.size
        end = after + name_length + extra_length
        if signature != b"PK\x01\x02" or end > self.end or comment or disk:
            raise _damaged("the file's directory can't be read")
        raw_name = bytes(self.view[after : after + name_length])
        name = raw_name.decode()
        if flags & ~_UTF8 or method:
            raise _damaged(f"the entry {name!r} is compressed or encrypted, which tintype's are not")
        size, packed, header = self._large_sizes(after + name_length, end, size, packed, header)
        if size != packed:
            raise _damaged(f"the entry {name!r} has two different sizes")
        return name, Place(self._data_begin(header, raw_name, flags), size, checksum), header, end

    def _large_sizes(self, begin: int, end: int, *numbers: int) -> tuple[int, int, int]:
        """The numbers that did not fit into their fields, from the extra field for them."""
        missing = [index for index, number in enumerate(numbers) if number == 0xFFFFFFFF]
        result = list(numbers)
        while missing and begin + 4 <= end:
            kind, length = struct.unpack_from("<2H", self.view, begin)
            if kind == 1 and length >= 8 * len(missing) and begin + 4 + length <= end:
                large = struct.unpack_from(f"<{len(missing)}Q", self.view, begin + 4)
                for index, number in zip(missing, large, strict=True):
                    result[index] = number
                break
            begin += 4 + length
        return result[0], result[1], result[2]

    def _data_begin(self, header: int, name: bytes, flags: int) -> int:
        if header + _LOCAL.size > self.begin:
            raise _damaged("an entry lies outside of the file")
        signature, _, own_flags, method, _, _, _, _, _, length, extra = _LOCAL.unpack_from(self.view, header)
        begin = header + _LOCAL.size
        if signature != b"PK\x03\x04" or method or own_flags != flags:
            raise _damaged("an entry does not begin where the directory says")
        if bytes(self.view[begin : begin + length]) != name:
            raise _damaged(f"an entry is called {name.decode()!r} by the directory only")
        return begin + length + extra
