"""What a file says of itself, read without torch: its versions, and its program as the schema has it."""

from __future__ import annotations

import warnings

import msgspec

from tintype.errors import FileFormatError, FileVersionError
from tintype.serde import schema
from tintype.serde.archive import Archive
from tintype.serde.upgrade import upgrade

_INFO_DECODER = msgspec.json.Decoder(schema.FormatInfo)
_PROGRAM_DECODER = msgspec.json.Decoder(schema.Program)


def read_description(archive: Archive) -> tuple[schema.FormatInfo, schema.Program]:
    """What a file says of itself: its versions, and its program, upgraded to the operators of today."""
    try:
        info = _INFO_DECODER.decode(archive.content("format.json"))
        _check_version(info)
        program = _PROGRAM_DECODER.decode(archive.content("program.json"))
        upgrade(program, info.operator_set)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise FileFormatError(
            f"the file's description can't be read: {error}", remedy="the file is damaged; save the program again"
        ) from error
    return info, program


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
            stacklevel=5,
        )
