"""Files of torch.export's programs (``.pt2``)."""

from __future__ import annotations

import warnings
from pathlib import Path
from pickle import UnpicklingError
from zipfile import BadZipFile

import torch.export

from tintype.errors import FileFormatError, TintypeError
from tintype.export.program import ExportedProgram
from tintype.interop.into_torch import to_torch
from tintype.interop.out_of_torch import from_torch
from tintype.serde.atomic import is_stream, replacing
from tintype.serde.foreign import foreign_file


def read_torch_file(path: Path) -> ExportedProgram:
    """The program of a file that ``torch.export.save`` wrote. torch reads it, with pickle: who made the file can run
    code here."""
    try:
        theirs = torch.export.load(path)
    except TintypeError:
        raise
    except (
        RuntimeError,
        ValueError,
        TypeError,
        KeyError,
        AttributeError,
        EOFError,
        UnpicklingError,
        BadZipFile,
    ) as error:
        known = foreign_file(memoryview(path.read_bytes()), path.name)
        if known is not None and "torch.export" not in str(known):
            raise known from error
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise FileFormatError(
            f"torch.export.load can't read {path.name}: {first}",
            remedy="give a file that torch.export.save wrote, with a version of torch that can read it",
        ) from error
    return from_torch(theirs)


def write_torch_file(program: ExportedProgram, path: Path) -> None:
    """Write a program so that ``torch.export.load`` reads it; the file is there as a whole or not at all."""
    theirs = to_torch(program)
    is_stream(path)  # refuses what is no file
    with warnings.catch_warnings(), replacing(path) as file:
        warnings.filterwarnings("ignore", message=".*archive format.*")
        torch.export.save(theirs, file)
