"""Compiled functions in files: their runs (guards, calls, effects), without pickle.

A file holds names and plain values. When it is loaded, the code that each run went through is compared by hashes, and
every name is looked up in the process as it is; a run of which something is not there any more is left out, and a
warning says what has changed. Graphs of backends are made again when they first run.
"""

from __future__ import annotations

import dataclasses
import os
import secrets
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import torch

from tintype.compiler.code_hashes import LiveCode, code_hash
from tintype.compiler.decoding import Decoder
from tintype.compiler.encoding import Encoder
from tintype.compiler.graphs import make_graphs, of_free_sizes, run_of
from tintype.compiler.named_objects import NotNamedError
from tintype.compiler.trace import Eagerly, Item, Return
from tintype.compiler.tree_of_runs import DivergedError, Node
from tintype.errors import FileFormatError, FileVersionError, StaleRunsWarning, UnsavableError
from tintype.symbolic.location import is_internal, levels_to_the_user

if TYPE_CHECKING:
    from tintype.compiler.compiled import Engine

FORMAT = "tintype compiled function"
VERSION = 1


class Run(msgspec.Struct, forbid_unknown_fields=True):
    """One run: its items, and the code that it went through, by number."""

    items: list[list[Any]]
    codes: list[int]


class Saved(msgspec.Struct, forbid_unknown_fields=True):
    """The content of a file."""

    format: str
    version: int
    made_by: dict[str, str]
    function: str
    backend: str | None
    fullgraph: bool
    dynamic: bool | None
    mode: str | None
    options: dict[str, bool | int | float | str | None] | None
    # module, name in it, hash
    codes: list[tuple[str, str, str]]
    objects: list[list[Any]]
    sources: list[list[Any]]
    runs: list[Run]
    # sources of numbers and sizes that were seen to vary, and whether sizes of results do
    varying: list[int]
    has_sizes: bool


def made_by() -> dict[str, str]:
    """What runs depend on besides the user's code."""
    own = sys.modules["tintype"].__version__
    return {"python": sys.version.split()[0], "torch": str(torch.__version__), "tintype": own}


# --- writing ---------------------------------------------------------------------------------------------------


def save(engine: Engine, path: str | os.PathLike[str]) -> None:
    """Write the runs of a compiled function into a file. One that can't be written is named in an error."""
    encoder = Encoder(engine.function)
    codes: dict[tuple[str, str, str], int] = {}
    runs: list[Run] = []
    for items in paths_of(engine.program.root):
        found = [
            (module, code.co_qualname, code_hash(code))
            for module, code in engine.codes.get(items[-1], ())
            if not is_internal(code.co_filename)
        ]
        try:
            encoded = [encoder.item(item) for item in items]
        except NotNamedError as error:
            raise UnsavableError(
                f"a run of {engine.name!r} can't be saved: {error}",
                remedy="what a run rests on has to be found by a name in a module: define it there",
            ) from error
        runs.append(Run(encoded, [codes.setdefault(key, len(codes)) for key in dict.fromkeys(found)]))
    backend = engine.options.backend
    saved = Saved(
        FORMAT,
        VERSION,
        made_by(),
        engine.name,
        backend if isinstance(backend, str) else None,
        engine.options.fullgraph,
        engine.options.dynamic,
        engine.options.mode,
        _plain_options(engine),
        list(codes),
        encoder.objects,
        encoder.sources,
        runs,
        [encoder.known[path] for path in engine.varying.paths if path in encoder.known],
        engine.varying.has_sizes,
    )
    _write(Path(path), msgspec.json.encode(saved))


def _plain_options(engine: Engine) -> Any:
    options = engine.options.of_backend
    if options is None or not isinstance(engine.options.backend, str):
        return None  # a backend that is a function is given again, and so are its options
    for name, value in options.items():
        if not isinstance(value, (bool, int, float, str, type(None))):
            raise UnsavableError(f"the option {name!r} of the backend is a {type(value).__name__}, which has no text")
    return dict(options)


def paths_of(root: Node) -> list[list[Item]]:
    """The runs that a tree has, in the order in which they were captured."""
    ends = [node for node in root.walk() if node.items and isinstance(node.items[-1], (Return, Eagerly))]
    paths = []
    for end in sorted(ends, key=lambda node: node.number):
        nodes: list[Node] = [end]
        while nodes[-1].parent is not None:
            nodes.append(nodes[-1].parent)
        paths.append([item for node in reversed(nodes) for item in node.items])
    return paths


def _write(path: Path, content: bytes) -> None:
    """Write a file so that it is there as a whole or not at all."""
    temporary = path.with_name(f".{path.name}-{secrets.token_hex(8)}.tmp")
    try:
        temporary.write_bytes(content)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


# --- reading ---------------------------------------------------------------------------------------------------


def read(path: str | os.PathLike[str]) -> Saved:
    """The content of a file, whose structure is checked."""
    try:
        content = Path(path).read_bytes()
        head = msgspec.json.decode(content, type=dict[str, Any])
    except msgspec.MsgspecError as error:
        raise FileFormatError(f"{path} is no compiled function of tintype's: {error}") from error
    if head.get("format") != FORMAT:
        raise FileFormatError(
            f"{path} is no compiled function of tintype's", remedy="programs are loaded with tintype.load"
        )
    if not isinstance(head.get("version"), int) or head["version"] > VERSION:
        raise FileVersionError(f"{path} was written by a newer tintype", remedy="install that one, or capture again")
    try:
        return msgspec.json.decode(content, type=Saved)
    except msgspec.MsgspecError as error:
        raise FileFormatError(f"{path} is damaged: {error}") from error


def put_into(engine: Engine, saved: Saved) -> None:
    """Give an engine the runs of a file, but for those that rest on what has changed."""
    problems: dict[str, None] = {}
    for what, version in made_by().items():
        if saved.made_by.get(what) != version:
            problems[f"{what} was {saved.made_by.get(what)} and is {version}"] = None
    if not problems:
        live = LiveCode()
        decoder = Decoder(engine.function, live, saved.objects, saved.sources)
        found = [live.find(*key) for key in saved.codes]
        for code, _ in found:
            if code is not None:
                decoder.callables.add(code)
        for run in saved.runs:
            missing = _missing(run, found)
            problems |= dict.fromkeys(missing)
            if not missing:
                problem = _add(engine, run, saved, decoder)
                problems |= dict.fromkeys([problem] if problem else [])
        _put_varying(engine, saved, decoder)
    engine.entry = engine.program.compiled()
    engine.choose()
    if problems:
        kept = engine.program.count
        lines = "\n".join(f"  {problem}" for problem in problems)
        warnings.warn(
            f"{kept} of the {len(saved.runs)} saved runs of {saved.function!r} are used; of the others:\n{lines}",
            StaleRunsWarning,
            stacklevel=levels_to_the_user(),
        )


def _put_varying(engine: Engine, saved: Saved, decoder: Decoder) -> None:
    """What was seen to vary is a symbol in the next capture at once."""
    engine.varying.has_sizes = engine.varying.has_sizes or saved.has_sizes
    for number in saved.varying:
        try:
            engine.varying.paths.add(decoder.source(number).path)
        except NotNamedError:
            continue  # it hangs on an object that is not there any more


def _missing(run: Run, found: list[tuple[Any, str]]) -> list[str]:
    if not all(0 <= number < len(found) for number in run.codes):
        raise FileFormatError("a run in the file names code that is not in it")
    return [found[number][1] for number in run.codes if found[number][0] is None]


def _add(engine: Engine, run: Run, saved: Saved, decoder: Decoder) -> str | None:
    """Add one run; what stands in the way of it."""
    try:
        items = [decoder.item(item) for item in run.items]
    except NotNamedError as error:
        return str(error)
    if not items or not isinstance(items[-1], (Return, Eagerly)):
        raise FileFormatError("a run in the file has no end")
    try:
        new = engine.program.insert(items)
    except DivergedError as error:
        raise FileFormatError(f"the runs in the file contradict each other: {error}") from error
    codes = [(saved.codes[number][0], decoder.live_code(saved.codes[number])) for number in run.codes]
    engine.codes[items[-1]] = [(module, code) for module, code in codes if code is not None]
    if engine.options.make is not None:
        make_graphs(new.items, deferred(engine.options.make), lambda expression: None, of_free_sizes(items))
    return None


def deferred(backend: Callable[..., Any]) -> Callable[..., Any]:
    """A backend that is called when a graph first runs, with the inputs of that run as examples."""

    def made_later(graph_module: Any, example_inputs: Any) -> Any:
        return MadeLater(backend, graph_module)

    return made_later


@dataclasses.dataclass
class MadeLater:
    """A graph that a backend gets when it first runs."""

    backend: Callable[..., Any]
    graph_module: Any
    run: Callable[..., Any] | None = None

    def __call__(self, *inputs: Any) -> Any:
        if self.run is None:
            self.run = run_of(self.backend, self.graph_module, list(inputs))
        return self.run(*inputs)
