"""Names in generated code: which are free, and which the code needs for itself.

A program has names of several kinds that users chose: arguments, keys of containers, parameters, buffers, submodules.
Where such a name becomes one of a graph's nodes, or an argument of a generated function, it must not hide what the
code around it speaks of, and no two may become one.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Collection, Sequence

from torch.fx.graph import _custom_builtins

# What the text of a graph speaks of: ``self``, the names that fx puts into the namespace of its code, and the modules
# and builtin functions of operators and arguments.
RESERVED = frozenset(
    {"self", *_custom_builtins, "tintype", "operator", "math", "builtins", "float", "slice", "round", "int", "bool"}
)


def is_name(text: str) -> bool:
    """Whether a text can be written as the name of an argument."""
    return text.isidentifier() and not keyword.iskeyword(text)


def identifier(text: str) -> str:
    """A name that can stand in generated Python code.

    >>> identifier("layers.0.größe")
    'layers_0_gr__e'
    """
    if text.isascii() and text.isidentifier():
        return text
    name = re.sub(r"[^0-9a-zA-Z_]", "_", text) or "_"
    return f"_{name}" if name[:1].isdigit() else name


def free_name(candidate: str, taken: Collection[str]) -> str:
    """A name like the candidate that is not taken and hides nothing that generated code speaks of.

    >>> free_name("x", {"x", "x_1"}), free_name("torch", ()), free_name("class", ())
    ('x_2', 'torch_1', 'class_1')
    """
    name, count = candidate, 0
    while name in taken or name in RESERVED or keyword.iskeyword(name):
        count += 1
        name = f"{candidate}_{count}"
    return name


def names_in_code(names: Sequence[str], taken: Collection[str] = ()) -> list[str]:
    """Names for the arguments of a generated function: as they are where that is possible, and no two alike.

    >>> names_in_code(["x", "torch", "a-b", "x"])
    ['x', 'torch_1', 'argument_2', 'x_1']
    """
    found: list[str] = []
    for position, name in enumerate(names):
        # a name that has to change makes way for those that can stay
        rest = names[position + 1 :] if name in RESERVED or name in found or not is_name(name) else ()
        candidate = name if is_name(name) else f"argument_{position}"
        found.append(free_name(candidate, {*taken, *found, *rest}))
    return found
