"""What a file says of itself, read without torch: its versions, and its programs as the schema has them."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Any

import msgspec

from tintype.errors import FileFormatError, FileVersionError, InvalidRequestError
from tintype.serde import schema
from tintype.serde.archive import Archive
from tintype.serde.upgrade import upgrade

# Where a file is not mapped, bytes that memories of several programs have in common are copied, once per program.
MOST_PROGRAMS = 256
_LONGEST_NAME = 1000

_INFO_DECODER = msgspec.json.Decoder(schema.FormatInfo)
_PROGRAM_DECODER = msgspec.json.Decoder(schema.Program)
_PROGRAMS_DECODER = msgspec.json.Decoder(schema.Programs)


@dataclass
class FileDescription:
    """A file's versions, and its program; or several programs by name, with what they share."""

    info: schema.FormatInfo
    program: schema.Program | None = None
    shared: schema.Programs | None = None
    programs: dict[str, schema.Program] = field(default_factory=dict)


def is_name_of_program(name: Any) -> bool:
    """Whether a program in a file may be called so: in any language, on one line."""
    return isinstance(name, str) and 0 < len(name) <= _LONGEST_NAME and name.isprintable()


def read_description(archive: Archive, entry: str | None = None) -> FileDescription:
    """What a file says of itself, with its programs upgraded to the operators of today; or that of one name."""
    try:
        info = _INFO_DECODER.decode(archive.content("format.json"))
        _check_version(info)
        if "programs.json" in archive:
            return _read_several(archive, info, entry)
        if entry is not None:
            raise InvalidRequestError(
                f"the file holds one program, which has no name, and not {entry!r:.80}",
                remedy="load it without entry",
            )
        return FileDescription(info, _read_program(archive, "program.json", info))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise FileFormatError(
            f"the file's description can't be read: {error}", remedy="the file is damaged; save the program again"
        ) from error


def _read_program(archive: Archive, name: str, info: schema.FormatInfo) -> schema.Program:
    program = _PROGRAM_DECODER.decode(archive.content(name))
    upgrade(program, info.operator_set)
    return program


def _read_several(archive: Archive, info: schema.FormatInfo, entry: str | None) -> FileDescription:
    if info.minimum_reader < schema.SEVERAL_PROGRAMS or "program.json" in archive:
        raise FileFormatError("the file has several programs, and says that it has one")
    shared = _PROGRAMS_DECODER.decode(archive.content("programs.json"))
    names = shared.names
    if (
        not 1 <= len(names) <= MOST_PROGRAMS
        or len(set(names)) != len(names)
        or not all(map(is_name_of_program, names))
    ):
        raise FileFormatError(f"the file's programs have no names, or not one each: {names!r:.200}")
    if entry is not None and entry not in names:
        raise InvalidRequestError(f"the file has no program {entry!r:.80}; it has {', '.join(map(repr, names)):.500}")
    found = FileDescription(info, shared=shared)
    for number, name in enumerate(names):
        if entry is None or name == entry:
            program = _read_program(archive, f"programs/{number}.json", info)
            if program.storages or program.tensors or program.objects:
                raise FileFormatError(f"the program {name!r:.80} has tensors or objects that are not the file's")
            _share(program, shared)
            found.programs[name] = program
    return found


def _share(program: schema.Program, shared: schema.Programs) -> None:
    program.storages, program.tensors, program.objects = shared.storages, shared.tensors, shared.objects
    metadata = program.metadata
    metadata.files, metadata.texts, metadata.frames = shared.files, shared.texts, shared.frames


def _check_version(info: schema.FormatInfo) -> None:
    current = (schema.FORMAT_MAJOR, schema.FORMAT_MINOR)
    written = f"{info.producer or 'a newer tintype'} wrote this file in format {info.format[0]}.{info.format[1]}"
    if info.format[0] > current[0] or info.minimum_reader > current:
        raise FileVersionError(
            f"{written}, and this tintype reads up to {current[0]}.{current[1]}",
            remedy="load it with a newer version of tintype",
        )
    if min(info.format) < 0 or info.format[0] < 1:
        raise FileFormatError(f"there is no format {info.format[0]}.{info.format[1]}")
    if info.format > current:
        warnings.warn(
            f"{written}, newer than this tintype's {current[0]}.{current[1]}; what it does not know is left out",
            stacklevel=4,
        )
