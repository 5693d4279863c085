"""What a program does besides computing, seen while it is interpreted: what strict capture has to tell.

A captured program computes tensors and writes to buffers. Whatever else its model does in a call happened once, when
it was captured: writes to what outlives the call, reads of what is another thing in the next call (a clock, random
numbers, files), what was printed. Code of the user's that native code calls is not interpreted, so nobody sees what
it does; it is named, too.
"""

from __future__ import annotations

import collections
import dis
import gc
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any, NamedTuple

import torch

from tintype.errors import Location
from tintype.fake.tensor import FakeTensor
from tintype.interpret import NULL, Frame
from tintype.interpret.lookup import find_in_class
from tintype.interpret.tracebacks import original_code
from tintype.symbolic.location import is_internal
from tintype.trace.changed_state import in_words
from tintype.trace.findings import Finding
from tintype.trace.outside_world import (
    WRITERS,
    is_question_to_an_object,
    output_of,
    reading_of,
    writes_to_environment,
)
from tintype.trace.places import (
    CONTAINERS,
    AttributePlace,
    CellPlace,
    ContentPlace,
    GlobalPlace,
    MemoryPlace,
    Place,
    attribute_set_by,
    is_written_memory,
)
from tintype.trace.reachable import PLAIN, found_from, held_by_function, namespace_of
from tintype.trace.snapshot import Change
from tintype.trace.tensor_rows import TensorRows
from tintype.trace.users_code import MISSING, names_in

_MOST_COPIED = 10_000  # items of a container; a vocabulary is not what a call writes to
_AROUND = "do it around the call of the program"
_RETURN = "return it and let the caller keep it, or keep it in a registered buffer"
_STORES = frozenset({"STORE_GLOBAL", "STORE_ATTR", "STORE_SUBSCR", "STORE_SLICE"}) | {
    f"DELETE_{kind}" for kind in ("GLOBAL", "ATTR", "SUBSCR")
}


_ASSIGNING = frozenset({"__setattr__", "__delattr__", "__setitem__", "__delitem__"})


class Effects:
    """What is noted while one program runs."""

    def __init__(self) -> None:
        self.functions: list[FunctionType] = []  # that are interpreted
        self.changes: list[Change] = []  # of what is neither the program's nor the model's
        self._made: dict[int, Any] = {}  # what the call itself has made: writes to it are nobody else's affair
        self._written: dict[Any, tuple[Place, Any]] = {}
        self._on_tensors: dict[Any, tuple[Any, str, Finding]] = {}
        self._told: dict[Any, Finding] = {}
        self._natively: dict[CodeType, bool] = {}

    # --- writes ----------------------------------------------------------------------------------------------

    def note_made(self, value: Any) -> None:
        if type(value) is not TensorRows:  # they are always of the call, and must not live longer than it
            self._made[id(value)] = value
        if type(value) is FunctionType:  # functools.wraps writes to its dictionary
            self._made[id(vars(value))] = vars(value)

    def holders(self) -> list[Any]:
        """Who holds values only to know them."""
        return [self._made, *(holder for noted in self._written.values() for holder in (noted, *noted))]

    def is_made(self, value: Any) -> bool:
        return id(value) in self._made

    def note(self, kind: type[Place], owner: Any, name: Any, frame: Frame) -> None:
        """Something is about to be written."""
        if id(owner) in self._made or type(owner) is TensorRows:
            return
        if kind is ContentPlace and _length(owner) > _MOST_COPIED:
            return
        place = kind(owner, name, location_in(frame))
        if place.key not in self._written:
            self._written[place.key] = (place, held_in(place))

    def note_content(self, frame: Frame, owner: Any) -> None:
        if issubclass(type(owner), CONTAINERS):
            self.note(ContentPlace, owner, None, frame)
        elif is_written_memory(owner):
            self.note(MemoryPlace, owner, None, frame)

    def note_object(self, frame: Frame, owner: Any) -> None:
        """A method that is not interpreted may write to its object."""
        for name, value in list(namespace_of(owner).items()):
            self.note(AttributePlace, owner, name, frame)
            self.note_content(frame, value)

    def note_attribute(self, frame: Frame, owner: Any, name: str) -> None:
        if not issubclass(type(owner), torch.Tensor):
            self.note(AttributePlace, owner, name, frame)
        # else it is torch's: the recorder hears of it. What an earlier capture heard of stands in the fakes' class.
        elif find_in_class(torch.Tensor if type(owner) is FakeTensor else type(owner), name) is NULL:
            text = f"the program sets the attribute {name!r} of a tensor"
            self._on_tensors[id(owner), name] = owner, name, Finding("write", text, location_in(frame), _RETURN)

    def lines(self) -> dict[tuple[int, Any], Location]:
        """The lines that wrote, by owner and name."""
        found = {}
        for place, _ in self._written.values():
            found[id(place.owner), _name_in(place)] = place.location
        return {key: line for key, line in found.items() if line is not None}

    def find_changes(self, is_known: Callable[[Any], bool], *, has_run: bool) -> None:
        """Look, when the program has run, what has changed outside of the model and the arguments (``is_known``)."""
        self._made.clear()
        changed = [
            Written(place, before, held_in(place))
            for place, before in self._written.values()
            if not is_known(place.owner)
        ]
        changed = [written for written in changed if _differ(written.before, written.after)]
        lasting = outliving(changed) if has_run else set()
        outside = found_from(self._roots(), lasting) if lasting else set()
        if outside is None:  # there is too much to look at; what the call has made may hold itself
            gc.collect()
            outside = outliving(changed)
        self.changes = [
            Change(place.owner, _name_in(place), before, after)
            for place, before, after in changed
            if _is_outside(place) or id(place.owner) in outside
        ]

    def _roots(self) -> Iterator[Any]:
        """What the interpreted functions find outside of their calls."""
        for function in self.functions:
            yield function
            yield from held_by_function(function)
            names = names_in(function.__code__)
            for module in held_by_function(function):
                if isinstance(module, ModuleType) and not is_internal(getattr(module, "__file__", None) or ""):
                    yield from (vars(module)[name] for name in names if name in vars(module))

    # --- calls -----------------------------------------------------------------------------------------------

    def note_call(
        self, frame: Frame, callable: Any, owner: Any, arguments: Sequence[Any], keywords: Mapping[str, Any]
    ) -> bool:
        """A native call is about to be done, of a function or of a method of ``owner``; says whether it may read or
        write what is not the program's."""
        name = callable.__name__
        attribute = attribute_set_by(callable, arguments)
        if attribute is not None:
            self.note_attribute(frame, *attribute)
            return True
        if id(owner) in self._made:
            return False
        if writes_to_environment(callable, owner, name):
            self.note_environment(frame)
            return True
        written = output_of(callable, owner, name, arguments, keywords)
        if written is not None:
            self._tell("output", f"{written}, which a captured program does not", frame, _AROUND)
            return True
        if is_question_to_an_object(callable):
            self._tell(
                "note", f"asks for the {name}() of an object, which is another one in every process", frame, ""
            )
            return True
        read = reading_of(callable, owner, name)
        if read is not None:
            self._tell("read", f"{read}, which is another one in every call", frame, "pass it as an argument")
        return read is not None

    def note_environment(self, frame: Frame) -> None:
        text = "writes to the environment (os.environ), which a captured program does not"
        self._tell("write", text, frame, _AROUND)

    def note_read(self, frame: Frame, what: str) -> None:
        self._tell("read", f"{what}, which may be another one in a later call", frame, "pass it as an argument")

    def _tell(self, kind: str, text: str, frame: Frame, remedy: str) -> None:
        finding = Finding(kind, f"the program {text}", location_in(frame), remedy)
        self._told.setdefault((kind, finding.text, finding.location), finding)

    # --- code that is not interpreted ------------------------------------------------------------------------

    @contextmanager
    def listening(self, frame: Frame) -> Iterator[None]:
        """Within it, native code runs that may call functions of the user's: those are named."""
        if sys.getprofile() is not None:  # we listen already; or somebody else does, who must not be disturbed
            yield
            return

        def listen(called: FrameType, event: str, argument: Any) -> None:
            if event == "call":
                self.note_native_code(frame, called.f_code)

        sys.setprofile(listen)
        try:
            yield
        finally:
            sys.setprofile(None)

    def note_native_code(self, frame: Frame, code: CodeType) -> None:
        """Code is called by native code, or will be."""
        if code not in self._natively:
            self._natively[code] = is_users = not is_internal(code.co_filename) and original_code(code) is code
            if is_users:
                self._tell_of_code(frame, code)

    def _tell_of_code(self, frame: Frame, code: CodeType) -> None:
        place = Location(code.co_filename, code.co_firstlineno, code.co_qualname)
        kind = "native" if may_write(code) else "note"
        text = "" if kind == "note" else " and what it writes is not seen"
        self._tell(
            kind,
            f"runs {place}, which native code calls: it is not interpreted{text}",
            frame,
            "let such code (special methods, functions given to torch's) change nothing but its own variables",
        )

    # --- afterwards ------------------------------------------------------------------------------------------

    def findings(self, of_model: Sequence[Change]) -> list[Finding]:
        """Everything that there is to tell; ``of_model`` are changes of the model's attributes."""
        lines = self.lines()

        def told(kind: str, change: Change) -> Finding:
            line = lines.get((id(change.owner), change.name)) or lines.get((id(change.owner), None))
            return Finding(kind, in_words(change), line, _RETURN)

        writes = [told("write", change) for change in self.changes]
        own = [told("note", change) for change in of_model]
        on_tensors = [told for tensor, _, told in self._on_tensors.values() if _is_seen_outside(tensor)]
        return [*writes, *own, *on_tensors, *self._told.values()]


def location_in(frame: Frame) -> Location:
    """The line that a frame stands at, or the nearest one around it that is the user's and assigns by itself."""
    inner: Frame | None = frame
    while inner is not None and (is_internal(inner.code.co_filename) or inner.code.co_name in _ASSIGNING):
        inner = inner.back
    inner = frame if inner is None else inner
    return Location(inner.code.co_filename, inner.line, inner.code.co_name)


def held_in(place: Place) -> Any:
    """What is in a place; an attribute of an object is not one of its class."""
    kind = type(place.owner)
    if not isinstance(place, AttributePlace) or issubclass(kind, torch.nn.Module):
        return place.read()
    if hasattr(type(find_in_class(kind, place.name)), "__set__"):  # a slot or a property
        return place.read()
    return namespace_of(place.owner).get(place.name, MISSING)


def _length(container: Any) -> int:
    """How much a container holds, whatever its class says."""
    kind: Any = next(kind for kind in CONTAINERS if issubclass(type(container), kind))
    return int(kind.__len__(container))


def _differ(before: Any, after: Any) -> bool:
    if before is after:
        return False
    if issubclass(type(before), bytes):
        return bool(before != after)
    if type(before) is not type(after) or not issubclass(type(before), CONTAINERS):
        return not (type(before) in PLAIN and type(before) is type(after) and before == after)
    if issubclass(type(before), set):
        return before != after
    pairs = zip(before.items(), after.items()) if issubclass(type(before), dict) else zip(before, after)
    return len(before) != len(after) or any(
        one is not other and not (isinstance(one, tuple) and all(a is b for a, b in zip(one, other)))
        for one, other in pairs
    )


def _is_seen_outside(tensor: torch.Tensor) -> bool:
    """Whether who calls the model may see what is written on a tensor: it is an argument, a result or the model's."""
    node = tensor.node if type(tensor) is FakeTensor else None
    return node is None or node.op == "placeholder" or any(user.op == "output" for user in node.users)


class Written(NamedTuple):
    """A place, what was there before the program ran, and what is there now."""

    place: Place
    before: Any
    after: Any


def outliving(changed: Sequence[Written]) -> set[int]:
    """The ids of owners that somebody holds, besides who knows of the change: the program has run, so it is no
    variable of its."""
    known: collections.Counter[int] = collections.Counter()
    owners: dict[int, Any] = {}
    for place, before, after in changed:
        if not _is_outside(place):
            owners[id(place.owner)] = place.owner
        known[id(place.owner)] += 1
        for value in (before, after):
            known[id(value)] += 1
            if issubclass(type(value), CONTAINERS):
                known.update(map(id, value.values() if issubclass(type(value), dict) else value))
    # besides: the table of owners, the variable, the argument
    return {key for key, owner in owners.items() if sys.getrefcount(owner) > known[key] + 3}


def _is_outside(place: Place) -> bool:
    """Whether a place is outside of the call by what it is."""
    return isinstance(place, (GlobalPlace, CellPlace)) or issubclass(type(place.owner), (type, ModuleType))


def _name_in(place: Place) -> Any:
    """The name of a place as a :class:`Change` has it."""
    return "cell_contents" if isinstance(place, CellPlace) else place.name


def may_write(code: CodeType) -> bool:
    """Whether a function may change something that is not its own, by its operations."""
    owner = ""
    for step in dis.get_instructions(code):
        if step.opname in _STORES or (step.opname == "STORE_DEREF" and step.argval in code.co_freevars):
            # an object that is being made is nobody else's yet
            if not (step.opname == "STORE_ATTR" and code.co_name == "__init__" and owner == code.co_varnames[0]):
                return True
        owner = step.argval if step.opname == "LOAD_FAST" else ""
    if not WRITERS.isdisjoint(code.co_names):
        return True
    return any(may_write(inner) for inner in code.co_consts if isinstance(inner, CodeType))
