"""Names that a program of torch's can have.

The module that torch makes of a program is an ``fx.GraphModule`` with the state as attributes and with generated code
in which the arguments have the names that they have in the model. Both leave names out: state can't be called like an
attribute of the module, an argument can't be called like what the code speaks of. torch.export has these limits too,
and finds them when the module is made or called; a translation refuses such state and keywords by name, and gives
other arguments and nodes names that are free.
"""

from __future__ import annotations

import keyword
import re
import unicodedata
from typing import Any

from torch.fx import Graph, GraphModule
from torch.fx.graph import _Namespace

from tintype.errors import InvalidRequestError
from tintype.export import ExportedProgram
from tintype.ir.graph import placeholders
from tintype.ir.names import free_name, names_in_code
from tintype.ir.signature import STATE_KINDS, InputKind

# what torch's module has besides what every GraphModule has
_OF_THE_MODULE = ("_guards_fn", "_in_spec", "_out_spec", "range_constraints", "validate_inputs")
UNWRITABLE = re.compile(r"""["\\\n\r]""")


def refuse_state_names(program: ExportedProgram) -> None:
    """Refuse state that torch's module can't hold under its name."""
    taken = {*dir(GraphModule({}, Graph())), *_OF_THE_MODULE}
    for spec in program.graph_signature.input_specs:
        if spec.kind not in STATE_KINDS or spec.target is None:
            continue
        first, *_ = parts = spec.target.split(".")
        if spec.target == "self":
            raise _refused(spec.target, "torch's code would fetch it into the variable of that name")
        if first in taken:
            raise _refused(spec.target, f"the modules that torch makes of programs have an attribute {first!r}")
        for part in parts:
            if keyword.iskeyword(part) or UNWRITABLE.search(part) or _is_changed_by_python(part):
                raise _refused(spec.target, f"torch writes {part!r} into code, where it can't stand")


def _is_changed_by_python(part: str) -> bool:
    """Whether Python takes another name for the same when it reads code (``ﬁ`` is ``fi``)."""
    return part.isidentifier() and unicodedata.normalize("NFKC", part) != part


def _refused(name: str, reason: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"a program of torch's can't have state called {name!r}: {reason}", remedy="give it another name in the model"
    )


def node_names(program: ExportedProgram) -> dict[str, str]:
    """New names for inputs that torch would not find again: it looks up what is written to by one name for state and
    inputs, in a copy of the graph for which fx renames what is called like a builtin function."""
    specs = program.graph_signature.input_specs
    written = set(program.graph_signature.user_inputs_to_mutate.values())
    targets = {spec.target for spec in specs if spec.kind in STATE_KINDS and spec.target is not None}
    taken = {*targets, *(node.name for node in program.graph.nodes)}
    renamed: dict[str, str] = {}
    for node, spec in zip(placeholders(program.graph), specs, strict=True):
        if spec.kind is not InputKind.USER_INPUT:
            continue
        copied = _Namespace().create_name(node.name, None)
        if node.name in targets or (node.name in written and copied != node.name):
            renamed[node.name] = free_name(copied, taken)
            taken.add(renamed[node.name])
    return renamed


def argument_names(program: ExportedProgram) -> list[str]:
    """The names of the arguments in the code of torch's module."""
    functions = {node.target for node in program.graph.nodes if node.op == "call_function"}
    names = list(program.argument_names)
    found = names_in_code(names, {_global_name(function) for function in functions})
    count = program.call_spec.in_spec.children()[0].num_children
    for name, written in zip(names[count:], found[count:], strict=True):
        if name != written or not name.isidentifier():
            raise InvalidRequestError(
                f"a program of torch's can't have a keyword argument called {name!r}: torch writes it into code",
                remedy="give the argument another name, or pass it by position",
            )
    return found


def refuse_keys(program: ExportedProgram) -> None:
    """Refuse inputs in containers whose place torch can't write into the checks of its module."""
    for expectation in program.input_checks().expectations:
        for key in expectation.path[1:]:
            if '"' in str(key) or "\\" in str(key):
                raise InvalidRequestError(
                    f"a program of torch's can't have the input {expectation.where()}: torch writes keys into code",
                    remedy="give the key of the container another name",
                )


def _global_name(function: Any) -> str:
    """How fx calls a function in its code."""
    module, name = getattr(function, "__module__", ""), getattr(function, "__qualname__", "")
    return re.sub(r"\W", "_", f"{module}.{name}")
