"""What a node knows besides its operator and arguments: its value, and where in the user's program it arose.

``node.meta`` of every node is a :class:`NodeMeta`. It looks like the plain dictionary that fx users expect
(``meta["val"]``, ``meta["stack_trace"]``, ``meta["nn_module_stack"]``), but holds the origin of the node as
the recorder saw it - code objects and instruction offsets - and formats it only when somebody reads it.
Formatting eagerly would cost more than the whole rest of a capture.
"""

from __future__ import annotations

import ast
import linecache
import os
import re
from collections.abc import Callable, Iterator
from types import CodeType
from typing import Any, NamedTuple

import torch

from tintype.ir.regions import Region
from tintype.ir.sources import Source
from tintype.symbolic.location import is_internal


class Frame(NamedTuple):
    """One step of a call stack as text: what a program that comes from a file has in place of code objects.

    ``called`` is what stands in the source at the call (see :func:`called_name`); ``internal`` says whether the
    file belongs to torch, tintype or Python itself.
    """

    filename: str
    line: int
    function: str
    source: str
    called: str | None
    internal: bool


# One step of a call stack: the code that ran and the instruction it was at, or the text of it.
Step = tuple[CodeType, int] | Frame


class ModuleCall:
    """One call of a module that is (or was) on the call stack, with the calls around it.

    ``path`` is the module's; ``name`` is that of the call: the path, ``path@1`` for the second call of the module and
    so on. ``steps`` are the frames between the call of the enclosing module and this one, innermost first.
    """

    __slots__ = ("_transformed", "class_name", "name", "parent", "path", "steps")

    def __init__(
        self, parent: ModuleCall | None, path: str, name: str, class_name: str, steps: tuple[Step, ...]
    ) -> None:
        self.parent = parent
        self.path = path
        self.name = name
        self.class_name = class_name
        self.steps = steps
        self._transformed: bool | None = None

    def is_of_a_transform(self) -> bool:
        """Whether this happened inside of a function that torch transforms: ``vmap``, ``grad``, ``jvp``."""
        if self._transformed is None:  # every node of a module's code asks
            outside = self.parent is not None and self.parent.is_of_a_transform()
            self._transformed = outside or any(map(_is_step_of_a_transform, self.steps))
        return self._transformed

    def outermost_first(self) -> list[ModuleCall]:
        """This call and those around it, from the root module inwards."""
        chain = []
        call: ModuleCall | None = self
        while call is not None:
            chain.append(call)
            call = call.parent
        chain.reverse()
        return chain


class Origin:
    """Where a node arose: the module call it was made in and the frames inside of that call.

    ``function`` is the operator that was called, for the ``serial``-th time in this program. Where there are no
    frames to look at, because the program comes from elsewhere, ``text`` is the stack as it was written down there.
    In a joint graph, ``sequence`` is the number of the step of autograd's graph that the node belongs to: a node of
    the backward half has the number, the call and the frames of the forward step whose gradient it computes.
    """

    __slots__ = ("__dict__", "call", "function", "serial", "steps")

    # what few origins have: every operator gets one, so those are not assigned
    text: str | None = None
    sequence: int | None = None
    backward = False
    # what the user's program says of this part of it (torch.fx.traceback.annotate)
    annotations: dict[str, Any] | None = None

    def __init__(
        self,
        call: ModuleCall | None,
        steps: tuple[Step, ...],
        function: str | None = None,
        serial: int = 1,
        text: str | None = None,
    ) -> None:
        self.call = call
        self.steps = steps
        self.function = function
        self.serial = serial
        if text is not None:
            self.text = text

    def of_function(self, function: str | None) -> Origin:
        """The same place, as that of another function."""
        origin = Origin(self.call, self.steps, function, self.serial, self.text)
        origin.sequence, origin.backward = self.sequence, self.backward
        origin.annotations = self.annotations
        return origin

    def of_gradient(self, sequence: int) -> Origin:
        """The origin of what computes the gradient of this step."""
        origin = Origin(self.call, self.steps, text=self.text)
        origin.sequence = sequence
        origin.backward = True
        origin.annotations = self.annotations
        return origin

    def stack(self) -> Iterator[Step]:
        """All frames, outermost first."""
        if self.call is not None:
            for call in self.call.outermost_first():
                yield from reversed(call.steps)
        yield from reversed(self.steps)

    def is_of_a_transform(self) -> bool:
        """Whether this happened inside of a function that torch transforms: ``vmap``, ``grad``, ``jvp``."""
        if self.call is not None and self.call.is_of_a_transform():
            return True
        return any(map(_is_step_of_a_transform, self.steps))

    def user_line(self) -> tuple[str, int, str] | None:
        """File, line and function of the innermost frame that is neither torch's nor tintype's."""
        if self.text is not None:
            written = [(name, int(line), code) for name, line, code in _WRITTEN_STEP.findall(self.text)]
            return next((step for step in reversed(written) if not is_internal(step[0])), None)
        frame = self.user_frame()
        return None if frame is None else (frame.filename, frame.line, frame.function)

    def user_frame(self) -> Frame | None:
        """The innermost frame that is neither torch's nor tintype's."""
        steps = [step for step in self.stack() if not _is_internal_step(step)]
        return frame_of(steps[-1]) if steps else None


_WRITTEN_STEP = re.compile(r'File "(.+?)", line (\d+), in (\S+)')
_TINTYPE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_TRANSFORMS = os.path.join(os.path.dirname(torch.__file__), "_functorch") + os.sep
_INTERNAL_FUNCTIONS = frozenset({"_call_impl", "_wrapped_call_impl", "call_wrapped", "__torch_dispatch__"})


def line_number(code: CodeType, offset: int) -> int:
    """The source line of an instruction."""
    for start, end, line in code.co_lines():
        if start <= offset < end and line is not None:
            return line
    return code.co_firstlineno


def _is_step_of_a_transform(step: Step) -> bool:
    return (step.filename if isinstance(step, Frame) else step[0].co_filename).startswith(_TRANSFORMS)


def _is_internal_step(step: Step) -> bool:
    return step.internal if isinstance(step, Frame) else is_internal(step[0].co_filename)


def is_shown(step: Step) -> bool:
    """Whether a step is part of the stacks that people read: not the machinery of modules, nor tintype itself."""
    if isinstance(step, Frame):
        return True
    code = step[0]
    return code.co_name not in _INTERNAL_FUNCTIONS and not code.co_filename.startswith(_TINTYPE)


def frame_of(step: Step) -> Frame:
    """A step as text, but for what it called, which takes longer to find out."""
    if isinstance(step, Frame):
        return step
    code, offset = step
    number = line_number(code, offset)
    source = linecache.getline(code.co_filename, number).strip()
    return Frame(code.co_filename, number, code.co_name, source, None, is_internal(code.co_filename))


def format_stack(origin: Origin) -> str:
    """The call stack in the form of a Python traceback, without the machinery of modules."""
    if origin.text is not None:
        return origin.text
    lines = []
    for step in origin.stack():
        if not is_shown(step):
            continue
        frame = frame_of(step)
        lines.append(f'  File "{frame.filename}", line {frame.line}, in {frame.function}')
        if frame.source:
            lines.append(f"    {frame.source}")
    return "\n".join(lines) + "\n" if lines else ""


def module_stack(origin: Origin) -> dict[str, tuple[str, str]] | None:
    """The modules around a node, root first: {key: (path, class)}."""
    if origin.call is None:
        return None
    return {call.name: (call.path, call.class_name) for call in origin.call.outermost_first()}


def module_names(meta: NodeMeta) -> list[str]:
    """The module calls around a node by name, the outermost first, without the root's."""
    call = meta.origin.call if meta.origin is not None else None
    if call is not None:
        return [step.name for step in call.outermost_first() if step.path]
    return [name for name, (path, _) in (meta.get("nn_module_stack") or {}).items() if path]


def _source_functions(origin: Origin) -> list[tuple[str, str]] | None:
    """The operators and modules that a node comes from, outermost first."""
    if origin.function is None:
        return None
    calls = origin.call.outermost_first()[1:] if origin.call is not None else []
    return [(call.name, call.class_name) for call in calls] + [(origin.function, origin.function)]


def _torch_function(origin: Origin) -> tuple[str, str] | None:
    """The function that the user called, and how: as a method of a tensor or as a function of torch."""
    if origin.function is None:
        return None
    place = next((step for step in origin.steps if is_shown(step)), None)
    called = (None if place is None else called_name(place)) or origin.function
    kind = "builtin_function_or_method" if "." in called else "method_descriptor"
    return f"{origin.function}_{origin.serial}", f"{kind}.{called.rpartition('.')[2]}"


_MODULE_NAMES = frozenset({"torch", "F", "functional"})


def called_name(step: Step) -> str | None:
    """What stands in the source at a call: ``cos`` for ``x.cos()``, ``torch.cos`` for ``torch.cos(x)``."""
    if isinstance(step, Frame):
        return step.called
    code, offset = step
    line, end_line, column, end_column = next(
        (p for i, p in enumerate(code.co_positions()) if i == offset // 2), (None, None, None, None)
    )
    if line is None or line != end_line:
        return None
    source = linecache.getline(code.co_filename, line).encode()[column:end_column].decode()
    try:
        call = ast.parse(source.strip(), mode="eval").body
    except SyntaxError:
        return None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
        return None
    owner = call.func.value
    is_module = isinstance(owner, ast.Attribute) or (isinstance(owner, ast.Name) and owner.id in _MODULE_NAMES)
    return f"torch.{call.func.attr}" if is_module else call.func.attr


class NodeSource(NamedTuple):
    """A node of the program that a pass made this one of: what ``node.meta["from_node"]`` is a list of.

    ``from_node`` are the nodes that it was made of itself, by an earlier pass.
    """

    name: str
    target: str
    pass_name: str
    from_node: tuple[NodeSource, ...] = ()


# what a node's meta says of its origin, computed when it is read
_LAZY: dict[str, Callable[[Origin], Any]] = {
    "seq_nr": lambda origin: origin.sequence,
    "partitioner_tag": lambda origin: "is_backward" if origin.backward else None,
    "original_aten": lambda origin: None,  # only where it was set: the operator that a node was decomposed from
    "stack_trace": format_stack,
    "nn_module_stack": module_stack,
    "source_fn_stack": _source_functions,
    "torch_fn": _torch_function,
}

LAZY_ENTRIES = tuple(_LAZY)
# what users add to a node's meta, or annotate their program with: plain values by name, which copies and files keep
CUSTOM = "custom"
_LAZY[CUSTOM] = lambda origin: dict(origin.annotations) if origin.annotations else None
# the nodes that a pass made a node of: known in this process, not in files
FROM_NODE = "from_node"
_COMPUTED = frozenset({*_LAZY, FROM_NODE})


class NodeMeta(dict[str, Any]):
    """The ``meta`` of a node: a dictionary whose origin entries are computed when they are read."""

    __slots__ = ("__dict__", "origin")

    # what few nodes have is not assigned: thousands of these are made
    # inputs have no origin in the program, but users ask what a parameter is there for: its first use
    consumer: Origin | None = None
    # of a constant that is no attribute of the model: the variable that it was found in, if it was in one
    source: Source | None = None
    # the nodes of an earlier program that a pass made this one of
    sources: tuple[NodeSource, ...] = ()
    # while a program is recorded: in which of torch's modes the node runs (see tintype.ir.regions)
    region: Region = ()
    # while a program is recorded: whether something is to be asserted of the node's value
    asserted = False

    def __init__(
        self,
        values: dict[str, Any] | None = None,
        origin: Origin | None = None,
        consumer: Origin | None = None,
    ) -> None:
        if values is not None:
            self.update(values)
        self.origin = origin
        if consumer is not None:
            self.consumer = consumer

    def annotated_origin(self) -> Origin | None:
        """The origin, with what somebody noted on this node (``meta["custom"]``)."""
        origin = self.origin
        if origin is None or not dict.__contains__(self, CUSTOM) or self[CUSTOM] == origin.annotations:
            return origin
        origin = origin.of_function(origin.function)
        origin.annotations = self[CUSTOM]
        return origin

    def _materialize(self, key: str) -> Any:
        if key == FROM_NODE and self.sources:
            self[key] = list(self.sources)
            return self[key]
        origin = self.origin
        if origin is None and key == "source_fn_stack":
            origin = self.consumer
        if key not in _LAZY or origin is None:
            return None
        value = _LAZY[key](origin)
        if value is not None:
            self[key] = value
        return value

    def __missing__(self, key: str) -> Any:
        value = self._materialize(key)
        if value is None:
            raise KeyError(key)
        return value

    def get(self, key: str, default: Any = None) -> Any:
        """As for a dictionary."""
        if key in _COMPUTED and not dict.__contains__(self, key):
            value = self._materialize(key)
            return default if value is None else value
        return dict.get(self, key, default)

    def __contains__(self, key: object) -> bool:
        if dict.__contains__(self, key):
            return True
        return key in _COMPUTED and self._materialize(str(key)) is not None

    def _complete(self) -> None:
        """Make all entries real, for somebody who goes through them."""
        for key in _COMPUTED:
            if not dict.__contains__(self, key):
                self._materialize(key)

    def __iter__(self) -> Iterator[str]:
        self._complete()
        return dict.__iter__(self)

    def __len__(self) -> int:
        self._complete()
        return dict.__len__(self)

    def keys(self) -> Any:
        """As for a dictionary."""
        self._complete()
        return dict.keys(self)

    def values(self) -> Any:
        """As for a dictionary."""
        self._complete()
        return dict.values(self)

    def items(self) -> Any:
        """As for a dictionary."""
        self._complete()
        return dict.items(self)

    def copy(self) -> NodeMeta:
        """A copy that shares the origin."""
        meta = NodeMeta(dict(dict.items(self)), self.origin, self.consumer)
        if self.region:
            meta.region = self.region
        if self.source is not None:
            meta.source = self.source
        if self.sources:
            meta.sources = self.sources
        return meta

    __copy__ = copy

    def derived(self, **values: Any) -> NodeMeta:
        """The meta of a node that replaces this one: the same origin, other values."""
        meta = NodeMeta(values, self.origin, self.consumer)
        if self.region:
            meta.region = self.region
        if self.sources:
            meta.sources = self.sources
        if dict.__len__(self) > dict.__contains__(self, "val"):
            for key in _LAZY:  # what was given explicitly rather than derived from the origin
                if dict.__contains__(self, key):
                    meta[key] = dict.__getitem__(self, key)
        return meta

    def given(self) -> dict[str, Any]:
        """What somebody gave the node that does not follow from its origin, without its value."""
        found = {}
        for key in LAZY_ENTRIES:
            if dict.__contains__(self, key):
                value = dict.__getitem__(self, key)
                derived = _LAZY[key](self.origin) if self.origin is not None else None
                if value != derived:
                    found[key] = value
        custom = self.get(CUSTOM)
        return found if custom is None else {**found, CUSTOM: custom}

    def __reduce__(self) -> Any:
        return NodeMeta, (dict(self.items()),)

    def __deepcopy__(self, memo: dict[int, Any]) -> NodeMeta:
        # values are immutable descriptions: sharing them is what a copy of a graph wants
        return self.copy()
