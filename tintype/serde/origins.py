"""Where nodes come from - call stacks, module calls, notes - to and from the schema."""

from __future__ import annotations

from typing import Any

from tintype.errors import FileFormatError
from tintype.ir import node_info
from tintype.ir.node_info import (
    LAZY_ENTRIES,
    Frame,
    ModuleCall,
    NodeMeta,
    Origin,
    Step,
    called_name,
    frame_of,
    is_shown,
)
from tintype.serde import schema
from tintype.serde.symbols import check_one_line
from tintype.serde.values import ValueDecoder, ValueEncoder, is_path


class SourceTable:
    """Source files and their lines, and stacks as text; the programs of a file have one."""

    def __init__(self) -> None:
        self.files: list[str] = []
        self.texts: list[str] = []
        self.frames: list[schema.Frame] = []
        self._file_numbers: dict[str, int] = {}
        self._text_numbers: dict[str, int] = {}
        self._steps: dict[tuple[int, int], int] = {}
        self._frame_numbers: dict[Frame, int] = {}
        self._alive: list[Any] = []  # what the numbers above were given to by address

    def frame(self, step: Step) -> int:
        """The number of a line."""
        if isinstance(step, Frame):
            return self._line(step)
        key = (id(step[0]), step[1])  # a code object's own hash goes through all of it
        number = self._steps.get(key)
        if number is None:
            self._alive.append(step)
            number = self._steps[key] = self._line(frame_of(step)._replace(called=called_name(step)))
        return number

    def text(self, text: str) -> int:
        """The number of a stack that somebody wrote down."""
        return _number(self._text_numbers, self.texts, text)

    def _line(self, frame: Frame) -> int:
        """Several steps may be the same text: calls on one line."""
        number = self._frame_numbers.get(frame)
        if number is None:
            file = _number(self._file_numbers, self.files, frame.filename)
            number = self._frame_numbers[frame] = len(self.frames)
            self.frames.append(schema.Frame(file, *frame[1:]))
        return number


class OriginWriter:
    """Collects the origins of nodes; what nodes share is written once."""

    def __init__(self, encoder: ValueEncoder, sources: SourceTable) -> None:
        self.metadata = schema.Metadata(sources.files, sources.texts, sources.frames)
        self._encoder = encoder
        self._sources = sources
        self._calls: dict[int, int] = {}
        self._origins: dict[int, int] = {}
        self._notes: dict[Any, int] = {}
        self._alive: list[Any] = []  # what the numbers above were given to by address

    def origin(self, origin: Origin | None) -> int:
        """The number of an origin; -1 for none."""
        if origin is None:
            return -1
        number = self._origins.get(id(origin))
        if number is None:
            call = -1 if origin.call is None else self._call(origin.call)
            frames = self._frames_of(origin.steps)
            entry = schema.Origin(
                call,
                frames,
                origin.function,
                origin.serial,
                origin.sequence,
                origin.backward,
                -1 if origin.text is None else self._sources.text(origin.text),
            )
            number = self._origins[id(origin)] = len(self.metadata.origins)
            self._alive.append(origin)
            self.metadata.origins.append(entry)
        return number

    def _call(self, call: ModuleCall) -> int:
        number = -1
        for part in call.outermost_first():
            parent, number = number, self._calls.get(id(part), -1)
            if number < 0:
                entry = schema.ModuleCall(parent, part.path, part.name, part.class_name, self._frames_of(part.steps))
                number = self._calls[id(part)] = len(self.metadata.calls)
                self._alive.append(part)
                self.metadata.calls.append(entry)
        return number

    def _frames_of(self, steps: tuple[Step, ...]) -> list[int]:
        return [self._sources.frame(step) for step in steps if is_shown(step)]

    def notes(self, meta: NodeMeta) -> int:
        """The number of what somebody gave a node in place of what its origin says, or besides it; -1 for nothing."""
        given = meta.given()
        if not given:
            return -1
        encoded = {key: self._encoder.encode(value) for key, value in sorted(given.items())}
        key = repr(encoded)
        number = self._notes.get(key)
        if number is None:
            number = self._notes[key] = len(self.metadata.notes)
            self.metadata.notes.append(encoded)
        return number


def _number(numbers: dict[str, int], items: list[str], item: str) -> int:
    """The number of a text in a table that grows."""
    number = numbers.get(item)
    if number is None:
        number = numbers[item] = len(items)
        items.append(item)
    return number


class OriginReader:
    """The origins of a file. They are made when a node asks for them."""

    def __init__(self, metadata: schema.Metadata, decoder: ValueDecoder) -> None:
        self._metadata = metadata
        self._decoder = decoder
        self._frames = [self._read_frame(frame) for frame in metadata.frames]
        self._calls: list[ModuleCall] = []
        for call in metadata.calls:
            self._calls.append(self._read_call(call))
        self._origins = [self._read_origin(origin) for origin in metadata.origins]

    def _read_frame(self, frame: schema.Frame) -> Frame:
        filename = _item(self._metadata.files, frame.file)
        check_one_line(filename, frame.function, frame.source)
        return Frame(filename, frame.line, frame.function, frame.source, frame.called, frame.internal)

    def _read_call(self, call: schema.ModuleCall) -> ModuleCall:
        if not all(name == "" or is_path(name) for name in (call.path, call.name, call.class_name)):
            raise FileFormatError(f"{call.name!r:.80} can't be the name of a module")
        parent = None if call.parent == -1 else _item(self._calls, call.parent)
        return ModuleCall(parent, call.path, call.name, call.class_name, self._steps(call.frames))

    def _read_origin(self, origin: schema.Origin) -> Origin:
        call = None if origin.call == -1 else _item(self._calls, origin.call)
        text = None if origin.text == -1 else _item(self._metadata.texts, origin.text)
        read = Origin(call, self._steps(origin.frames), origin.function, origin.serial, text)
        read.sequence, read.backward = origin.sequence, origin.backward
        return read

    def _steps(self, numbers: list[int]) -> tuple[Frame, ...]:
        return tuple([_item(self._frames, number) for number in numbers])

    def origin(self, number: int) -> Origin | None:
        """An origin by its number."""
        return None if number == -1 else _item(self._origins, number)

    def notes(self, number: int) -> dict[str, Any]:
        """What somebody gave a node, by name."""
        if number == -1:
            return {}
        notes = _item(self._metadata.notes, number)
        unknown = [key for key in notes if key not in (*LAZY_ENTRIES, node_info.CUSTOM)]
        if unknown:
            raise FileFormatError(f"a node has a note {unknown[0]!r:.80}, which no node can have")
        return {key: self._decoder.decode(value) for key, value in notes.items()}


def _item(items: list[Any], number: int) -> Any:
    if not 0 <= number < len(items):
        raise FileFormatError(f"the file's metadata has no entry {number} where one is used")
    return items[number]
