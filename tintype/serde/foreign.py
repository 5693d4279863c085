"""Files of other programs: what somebody probably has who gives :func:`tintype.load` a file that it can't read.

Only names and first bytes are looked at, to find words for a message; nothing of such a file is taken in.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tintype.errors import FileFormatError
from tintype.serde.archive import Archive

_TAIL = 1 << 20  # where the names of a zip file's entries are: its directory is at the end
_LONGEST_HEADER = 1 << 32  # of a safetensors file, in bytes

_TORCH_EXPORT = (b"archive_format", b"serialized_exported_program.json")


def archive_of(buffer: Any, name: Any, again: Callable[[], Any] | None = None) -> Archive:
    """The entries of a file; one that another program wrote is called what it is."""
    try:
        archive = Archive(buffer, again)
        archive.place("format.json")
    except FileFormatError as error:
        foreign = foreign_file(memoryview(buffer), str(name))
        if foreign is None:
            error.fact = error.fact.replace("this is no tintype file", f"{name} is no tintype file")
            raise
        raise foreign from error
    return archive


def foreign_file(view: memoryview, name: str) -> FileFormatError | None:
    """The error for a file that another program wrote, with how to read it; None where it is not recognised."""
    found = _recognised(view, name)
    return None if found is None else FileFormatError(f"{name} is {found[0]}, no file of tintype's", remedy=found[1])


def no_weights(view: memoryview, name: str) -> FileFormatError | None:
    """The error for a file that was taken for safetensors and is of another kind; None where it is not recognised."""
    remedy = f"give its tensors: torch.load({name!r}, weights_only=True)"
    found = _recognised(view, name)
    kind = "" if found is None else found[0]
    if bytes(view[:4]) == b"PK\x03\x04" and not kind:
        tail = bytes(view[-_TAIL:])
        if b"PK\x05\x06" in tail and b"format.json" in tail:
            kind, remedy = "a program of tintype's", f"give its tensors: tintype.load({name!r}).state_dict"
    elif found is not None and "torch.save" not in kind and "pickle" not in kind:
        remedy = "load the model that it holds, and give model.state_dict()"
    return None if not kind else FileFormatError(f"{name} is {kind}, not a safetensors file", remedy=remedy)


def _recognised(view: memoryview, name: str) -> tuple[str, str] | None:
    begin = bytes(view[:16])
    if begin.startswith(b"PK\x03\x04"):
        return _recognised_zip(bytes(view[-_TAIL:]), name)
    if begin.startswith(b"\x80") and begin[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05"):
        return "a pickle", "load it with torch.load, build the model and export that: tintype.export(model, args)"
    if int.from_bytes(begin[:8], "little") < _LONGEST_HEADER and begin[8:9] == b"{":
        return (
            "a safetensors file: weights without a program",
            f"export the model, then tintype.attach_weights(program, {name!r})",
        )
    if name.endswith(".onnx"):
        return (
            "an ONNX model",
            "tintype writes ONNX (tintype.onnx.export) and does not read it; export the model again",
        )
    return None


def _recognised_zip(tail: bytes, name: str) -> tuple[str, str] | None:
    if b"PK\x05\x06" not in tail:
        return None  # the directory is missing: a part of a file, which nobody can read
    if b"format.json" in tail and b"program" in tail and b"archive_format" not in tail:
        return None  # one of ours, which is damaged
    if any(mark in tail for mark in _TORCH_EXPORT):
        return (
            "a program of torch.export",
            f"tintype.interop.from_torch(torch.export.load({name!r}))",
        )
    if b"/constants.pkl" in tail and b"/code/" in tail:
        return (
            "a TorchScript program",
            f"tintype.interop.from_torchscript(torch.jit.load({name!r}), args)",
        )
    if b"/data.pkl" in tail:
        remedy = f"torch.load({name!r}) reads it: export the model that it holds, or give its tensors to "
        return "a file of torch.save", remedy + "tintype.attach_weights"
    return None
