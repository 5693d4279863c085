"""``save`` and ``load``: programs in files."""

from __future__ import annotations

import io
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, overload

import msgspec
import torch

from tintype.errors import FileFormatError, InvalidRequestError, TintypeError, UnsavableError
from tintype.export.module import ProgramModule
from tintype.export.program import ExportedProgram
from tintype.ir.observations import OF_CONTAINERS
from tintype.ir.process_switches import collector_paused
from tintype.serde import schema
from tintype.serde.archive import Archive, Entry, bytes_entry, write_archive
from tintype.serde.atomic import is_stream, replacing
from tintype.serde.decode import ProgramDecoder, SharedValues
from tintype.serde.description import MOST_PROGRAMS, FileDescription, is_name_of_program, read_description
from tintype.serde.encode import EncodedProgram, EncodedPrograms, encode_program, encode_programs
from tintype.serde.foreign import archive_of
from tintype.serde.mapping import map_file, opened

FileLike = str | bytes | os.PathLike[str] | IO[bytes]

_EXTRA = "extra/"
_LONGEST_NAME = 1000
_BIG = 1 << 30  # bytes from which a person would like to see progress


def save(
    program: ExportedProgram | Mapping[str, ExportedProgram],
    f: FileLike,
    *,
    extra_files: dict[str, str | bytes] | None = None,
    metadata: bool = True,
    progress: bool | None = None,
) -> None:
    """Write a program, or several by name, to a file: a path, or an object open for writing bytes.

    Several programs in one file share what they have in common: weights of one model are written once, and are one
    memory again when they are loaded.

    A path is replaced in one step when everything is written; until then, and if anything fails, what was there
    stays. ``extra_files`` are stored beside the program by name. Without ``metadata`` the file does not say which
    lines of which source files the program comes from. ``progress`` shows a bar; by default when much is written and
    somebody is watching.

    >>> import io, torch, tintype
    >>> ep = tintype.export(torch.nn.Linear(3, 2), (torch.ones(4, 3),))
    >>> file = io.BytesIO()
    >>> tintype.save(ep, file, extra_files={"labels.txt": "cat dog"})
    >>> tintype.load(file).module()(torch.ones(4, 3)).shape
    torch.Size([4, 2])
    >>> tintype.save({"forward": ep, "core": ep.run_decompositions()}, file := io.BytesIO())
    >>> tintype.load(file)["core"].module()(torch.ones(4, 3)).shape
    torch.Size([4, 2])
    """
    encoded: EncodedProgram | EncodedPrograms
    with collector_paused():
        if isinstance(program, Mapping):
            _check_programs(program)
            encoded = encode_programs(program, metadata=metadata)
        else:
            _check_program(program, "the program to be saved")
            encoded = encode_program(program, metadata=metadata)
        entries = archive_entries(encoded, extra_files or {})
    total = sum(entry.size for entry in entries)
    if progress is None:
        progress = total >= _BIG and sys.stderr.isatty()
    shown: Iterable[Entry] = _with_progress(entries, total) if progress else entries
    path = _path_of(f, "write")
    if path is None:
        _write_to_object(f, shown)  # type: ignore[arg-type]
    elif is_stream(path):
        with open(path, "wb") as stream:
            _write_to_object(stream, shown)
    else:
        with replacing(Path(path)) as file:
            write_archive(file, shown)


def _check_program(program: Any, what: str) -> None:
    if isinstance(program, ExportedProgram):
        return
    kind, remedy = type(program).__name__, "export the module first: tintype.save(tintype.export(module, args), path)"
    if isinstance(program, ProgramModule):
        kind, remedy = "the module of one", "save the program that it was made of: tintype.save(program, path)"
    elif isinstance(program, (str, os.PathLike)):
        remedy = "the program comes first: tintype.save(program, path)"
    raise InvalidRequestError(f"{what} must be an ExportedProgram, but got {kind}", remedy=remedy)


def _check_programs(programs: Mapping[Any, Any]) -> None:
    if not 1 <= len(programs) <= MOST_PROGRAMS:
        raise InvalidRequestError(
            f"a file holds 1 to {MOST_PROGRAMS} programs, but got {len(programs)}",
            remedy="tintype.save(program, path), or tintype.save({'prefill': one, 'decode': another}, path)",
        )
    for name, program in programs.items():
        if not is_name_of_program(name):
            raise InvalidRequestError(
                f"{name!r:.80} can't be the name of a program in a file",
                remedy='name it in words: "prefill", "decode"',
            )
        _check_program(program, f"what is to be saved as {name!r}")


def _path_of(f: FileLike, method: str) -> str | None:
    """The path that is meant; None for an open file, which must have a method of this name."""
    if isinstance(f, (str, bytes, os.PathLike)):
        path = os.fsdecode(f)
        if isinstance(f, bytes) and f.startswith(b"PK\x03\x04"):
            raise InvalidRequestError(
                f"a file is a path or an object that can {method} bytes, but got the content of one",
                remedy="tintype.load(io.BytesIO(content))",
            )
        if not path or "\0" in path:
            raise InvalidRequestError(f"{path!r} is no name of a file", remedy="name a file: model.tt")
        return path
    if not hasattr(f, method) or isinstance(f, io.TextIOBase):
        text = " for text" if isinstance(f, io.TextIOBase) else ""
        raise InvalidRequestError(
            f"a file is a path or an object that can {method} bytes, but got {type(f).__name__}{text}",
            remedy=f'open(path, "{method[0]}b")',
        )
    return None


def archive_entries(encoded: EncodedProgram | EncodedPrograms, extra_files: dict[str, str | bytes]) -> list[Entry]:
    """What a file of programs consists of, in order."""
    described: dict[str, schema.Program | schema.Programs] = {}
    if isinstance(encoded, EncodedProgram):
        # a reader that leaves out what a program looked at would run it on inputs that it was not captured for
        oldest = schema.ONE_PROGRAM if encoded.program.observations else (schema.FORMAT_MAJOR, 0)
        info = _format_info(schema.ONE_PROGRAM, oldest)
        if (needed := _needed_by([encoded.program])) is not None:
            info = _format_info(needed, needed)
        described["program.json"] = encoded.program
    else:
        version = _needed_by(encoded.programs) or schema.SEVERAL_PROGRAMS
        info = _format_info(version, version)
        described["programs.json"] = encoded.shared
        described.update((f"programs/{number}.json", program) for number, program in enumerate(encoded.programs))
    try:
        descriptions = {name: msgspec.json.encode(described) for name, described in described.items()}
    except UnicodeEncodeError as error:
        raise UnsavableError(f"the program has text in it that is no Unicode: {error.object!r:.80}") from error
    return [
        bytes_entry("format.json", msgspec.json.encode(info)),
        *[bytes_entry(name, description) for name, description in descriptions.items()],
        *encoded.entries,
        *_extra_entries(extra_files),
    ]


def _needed_by(programs: Sequence[schema.Program]) -> tuple[int, int] | None:
    """The version whose readers understand what is in some programs, if it is a later one."""
    if any(output.write == "detached" for program in programs for output in program.outputs):
        return schema.DETACHED_IN_PLACE
    return schema.RETURNED_CONTAINERS if any(map(_has_containers, programs)) else None


def _has_containers(program: schema.Program) -> bool:
    """Whether a reader must know of containers: one that leaves out what a program returns of its caller's would not
    bring those up to date."""
    of_objects = any(seen.fact in OF_CONTAINERS for seen in program.observations)
    return bool(program.returned or program.returned_by_modules or of_objects)


def _format_info(version: tuple[int, int], oldest: tuple[int, int]) -> schema.FormatInfo:
    producer = f"tintype {sys.modules['tintype'].__version__}"
    return schema.FormatInfo(version, oldest, schema.OPERATOR_SET, producer, str(torch.__version__))


def _extra_entries(files: dict[str, str | bytes]) -> Iterator[Entry]:
    for name, content in files.items():
        if not isinstance(name, str) or not name or not isinstance(content, (str, bytes)):
            raise UnsavableError(
                f"extra_files holds text or bytes by name, but got {name!r}: {type(content).__qualname__}"
            )
        if "\0" in name or len(name) > _LONGEST_NAME or not _is_unicode(name):
            raise UnsavableError(f"{name!r:.80} can't be the name of an extra file")
        yield bytes_entry(_EXTRA + name, content.encode() if isinstance(content, str) else content)


def _is_unicode(name: str) -> bool:
    return not any(0xD800 <= ord(character) <= 0xDFFF for character in name)


def _with_progress(entries: list[Entry], total: int) -> Iterator[Entry]:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress("saving", *columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("saving", total=total)
        for entry in entries:

            def pieces(entry: Entry = entry) -> Iterator[Any]:
                for piece in entry.pieces():
                    yield piece
                    bar.advance(task, len(piece))

            yield Entry(entry.name, entry.size, pieces)


def _write_to_object(f: IO[bytes], entries: Iterable[Entry]) -> None:
    """Write to somebody else's file, which may not be able to go back."""
    with tempfile.SpooledTemporaryFile(max_size=1 << 26) as file:
        write_archive(file, entries)
        file.seek(0)
        while piece := file.read(1 << 22):
            _write_all(f, piece)


def _write_all(f: IO[bytes], piece: bytes) -> None:
    """Write to a file that may take a part at a time, as files without a buffer do."""
    rest = memoryview(piece)
    while rest:
        count = f.write(rest)
        if count is None and isinstance(f, io.RawIOBase):
            raise BlockingIOError("the file to save to takes nothing at the moment: it does not wait for its reader")
        if not isinstance(count, int):  # somebody's own file, which does not say: it took everything
            return
        if count <= 0:
            raise OSError(f"the file to save to took {count} of {len(rest)} bytes")
        rest = rest[count:]


# --- loading ------------------------------------------------------------------------------------------------------


@overload
def load(
    f: FileLike,
    *,
    entry: str,
    extra_files: dict[str, Any] | None = ...,
    mmap: bool = ...,
    verify: bool = ...,
    containers: str = ...,
) -> ExportedProgram: ...


@overload
def load(
    f: FileLike,
    *,
    entry: None = ...,
    extra_files: dict[str, Any] | None = ...,
    mmap: bool = ...,
    verify: bool = ...,
    containers: str = ...,
) -> Any: ...


def load(
    f: FileLike,
    *,
    entry: str | None = None,
    extra_files: dict[str, Any] | None = None,
    mmap: bool = True,
    verify: bool = False,
    containers: str = "strict",
) -> Any:
    """Read what was saved to a file: a path, or an object open for reading bytes.

    The result is an :class:`ExportedProgram`, or a dictionary of them by name where a mapping was saved. Programs of
    one file share the memory that they shared when they were saved. ``entry`` reads the program of that name only.

    Nothing in a file is run, and nothing but the file is read. The weights of a file with a path are mapped into
    memory, not read: they come in when they are used, and processes share them; ``mmap=False`` reads them at once.
    What is written to them stays in this process. ``verify`` reads every byte first and compares checksums; without
    it those of the weights are not looked at. Objects among arguments and results are of the classes that the program
    was exported with, which have to be registered here; with ``containers="plain"``, those that are not are plain
    objects with the same attributes, and named tuples are tuples. ``extra_files`` gets the files that were saved
    beside the program, as text where they are text: those that it names, or all of them if it is empty.

    >>> import io, torch, tintype
    >>> file = io.BytesIO()
    >>> tintype.save(tintype.export(torch.nn.ReLU(), (torch.ones(2),)), file, extra_files={"note": "hello"})
    >>> extra = {}
    >>> ep = tintype.load(file, extra_files=extra)
    >>> extra
    {'note': 'hello'}
    """
    if containers not in ("strict", "plain"):
        raise InvalidRequestError(
            f"containers is 'strict' or 'plain', but got {containers!r:.80}",
            remedy="'plain' gives plain objects where a class is not installed, 'strict' refuses such a file",
        )
    # what is read is state that can be trained, wherever it is loaded
    with collector_paused(), torch.inference_mode(False), _opened(f, mmap) as archive:
        if verify:
            archive.verify()
        result: Any = _read_programs(
            archive, read_description(archive, entry), plain_containers=containers == "plain"
        )
        if extra_files is not None:
            _read_extra_files(archive, extra_files)
    return result if entry is None else result[entry]


@contextmanager
def _opened(f: FileLike, mapped: bool) -> Iterator[Archive]:
    path = _path_of(f, "read")
    if path is None:
        yield archive_of(_content_of(f), getattr(f, "name", "the file"))  # type: ignore[arg-type]
    elif mapped:
        with opened(path) as file:
            yield archive_of(map_file(file), path, again=lambda: map_file(file))
    else:
        with opened(path) as file:
            content = bytearray(file.read())
        yield archive_of(content, path)


def _content_of(f: IO[bytes]) -> bytearray:
    if isinstance(f, io.BytesIO) and f.tell() == f.getbuffer().nbytes:
        f.seek(0)  # just written
    content = f.read()
    if not isinstance(content, bytes):
        raise InvalidRequestError("the file to load from must be open for reading bytes", remedy='open(path, "rb")')
    return bytearray(content)


def _read_programs(
    archive: Archive, description: FileDescription, *, plain_containers: bool = False
) -> ExportedProgram | dict[str, ExportedProgram]:
    try:
        if description.program is not None:
            one = SharedValues(archive, description.program)
            return ProgramDecoder(description.program, one, plain_containers=plain_containers).decode()
        assert description.shared is not None
        shared = SharedValues(archive, description.shared)
        return {
            name: ProgramDecoder(program, shared, plain_containers=plain_containers).decode()
            for name, program in description.programs.items()
        }
    except TintypeError:
        raise
    except Exception as error:
        # A file may be anything. What the checks have no words for is the file's fault too, and never half a program.
        raise FileFormatError(f"the file does not describe a program: {type(error).__name__}: {error}") from error


def _read_extra_files(archive: Archive, files: dict[str, Any]) -> None:
    present = [name.removeprefix(_EXTRA) for name in archive.names() if name.startswith(_EXTRA)]
    wanted = list(files) or present
    for name in wanted:
        if name not in present:
            raise InvalidRequestError(
                f"the file has no extra file {name!r}; it has {', '.join(map(repr, present)) or 'none'}"
            )
        content = bytes(archive.content(_EXTRA + name))
        try:
            files[name] = content.decode()
        except UnicodeDecodeError:
            files[name] = content
