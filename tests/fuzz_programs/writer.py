"""Fills in templates: a statement is tried in eager mode, at several sizes at once, before it is kept."""

from __future__ import annotations

import os
import random
import re
from collections.abc import Callable
from typing import Any

import torch

import tintype
from tests.fuzz_programs.language import Statement, names_in
from tests.fuzz_programs.templates import FAMILIES, narrows

SLOT = re.compile(r"\{(?:([afghikcwy])(\d?)(_\w)?|([dejqrzpbDC]))\}")
WEIGHTS = {
    "elementwise": 8, "conversion": 5, "view": 15, "gather": 6, "reduction": 6, "write": 17, "state": 4,
    "random": 1.5, "effect": 2, "decision": 1.5, "module": 4, "structured": 6,
}  # fmt: skip


# operators that write their results while they still read arguments
_GATHERS = re.compile("matmul|addmm|gather|sort")
# Templates that this matches are not used: a way to look past what is known.
LEFT_OUT = os.environ.get("TINTYPE_FUZZ_WITHOUT", "")


class Refused(Exception):
    """A template does not fit here."""


def pick(chance: random.Random, weights: dict[str, float]) -> str:
    """A key, by weight."""
    return chance.choices(list(weights), list(weights.values()))[0]


class Scope:
    """Where statements are tried: the same names bound to tensors of other sizes, one namespace for each."""

    def __init__(self, namespaces: list[dict[str, Any]], names: list[str], members: dict[str, str]) -> None:
        self.namespaces = namespaces
        self.names = names  # of values that statements may use
        self.outer: set[str] = set()  # those of them that belong to a function around this one
        self.converted: set[str] = set()  # inputs behind a conversion that changed nothing: not to be written to
        self.members = members

    def value(self, name: str, at: int = 0) -> Any:
        """What a name stands for."""
        if name.startswith("self."):
            return getattr(self.namespaces[at]["self"], name[5:], None)
        return self.namespaces[at].get(name)

    def run(self, text: str, everywhere: bool) -> None:
        """Try source at the example's sizes, and at the others; raises what that raises."""
        code = compile(text, "<statement>", "exec")
        exec(code, self.namespaces[0])
        for namespace in self.namespaces[1:]:
            try:
                exec(code, namespace)
            except Exception:
                if everywhere:
                    raise


class Writer:
    """Makes the decisions that a program consists of."""

    def __init__(self, seed: int, structured: Callable[[Writer, Scope, int], Statement]) -> None:
        self.seed = seed
        self._structured = structured  # makes the statements that hold functions
        self.chance = random.Random(seed)
        self.counter = 0
        self.everywhere = self.chance.random() < 0.85

    def name(self, letter: str) -> str:
        """A new name."""
        self.counter += 1
        return f"{letter}{self.counter - 1}"

    # --- statements ------------------------------------------------------------------------------------------

    def statement(self, scope: Scope, families: dict[str, float] | None = None, depth: int = 0) -> Statement | None:
        """A statement that runs, or None."""
        family = pick(self.chance, families or WEIGHTS)
        try:
            if family == "structured":
                statement = self._structured(self, scope, depth)
            elif family == "module":
                statement = self._module(scope)
            else:
                statement = self._filled(scope, family)
            if depth == 0 and self.chance.random() < 0.06 and not (LEFT_OUT and re.search(LEFT_OUT, "no_grad")):
                statement = Statement(statement.text, statement.kind, statement.blocks, True, statement.narrows)
            text = "\n".join(statement.lines())
            before = self._written_shape(scope, statement)
            scope.run(text, self.everywhere)
            if self._written_shape(scope, statement) != before:
                # PyTorch warns that it won't resize ``out`` for much longer; a buffer keeps its size
                raise Refused
        except Refused:
            return None
        except (RuntimeError, IndexError, ValueError, TypeError, NotImplementedError, AttributeError, AssertionError,
                ZeroDivisionError, NameError, tintype.TintypeError):  # fmt: skip
            return None
        name = statement.defines
        if name is not None:
            if not self._usable(scope, name):
                return None
            scope.names.append(name)
            self._note_conversion(scope, name, statement)
        return statement

    def _note_conversion(self, scope: Scope, name: str, statement: Statement) -> None:
        """Export refuses writes to inputs through ``x.float()`` and the like, which it keeps as conversions."""
        value = scope.value(name)
        through = statement.kind in FAMILIES["conversion"] or not scope.converted.isdisjoint(statement.reads)
        if through and any(
            shares_memory(value, scope.value(other)) for other in scope.names if other[0] in "xa" and other != name
        ):
            scope.converted.add(name)

    def _written_shape(self, scope: Scope, statement: Statement) -> Any:
        target = re.search(r"out=\(?([\w.]+)(?:, ([\w.]+)\))?", statement.text)
        target = target or re.match(r"(self\.b\d+) = ", statement.text)
        values = [scope.value(name) for name in target.groups() if name] if target else []
        return [(value.shape, value.dtype) for value in values if isinstance(value, torch.Tensor)]

    def _usable(self, scope: Scope, name: str) -> bool:
        for namespace in scope.namespaces:
            value = namespace.get(name)
            if isinstance(value, torch.Tensor) and value.numel() > 4000:
                return False
        return isinstance(scope.value(name), torch.Tensor)

    def _filled(self, scope: Scope, family: str) -> Statement:
        template = self.chance.choice(FAMILIES[family])
        if LEFT_OUT and re.search(LEFT_OUT, template):
            raise Refused
        text = self.fill(scope, template, family)
        assigned = re.match(r"(\w+) (?:[-+*/|&]|//|\*\*)= ", text)
        if assigned and assigned.group(1) in scope.outer:
            raise Refused  # Python takes it for a local name, also in a branch that is not taken when it is tried
        if family in ("write", "state", "state in place", "effect"):
            text = text.replace("self.self.", "self.")
        else:
            text = f"{self.name('v')} = {text}"
        without = family.startswith("state") and "{p}" in template
        decides = narrows(template) or cuts_by_another(text) or squeezes_what_varies(scope, text)
        return Statement(text, template, (), without, decides)

    def fill(self, scope: Scope, template: str, family: str = "") -> str:
        """A template with names and numbers in place of its slots."""
        chosen: dict[str, str] = {}
        first: list[str] = []

        def slot(match: re.Match[str]) -> str:
            whole = match.group()
            if whole not in chosen:
                kind, rank, _, other = match.groups()
                if kind:
                    chosen[whole] = self._tensor(scope, kind, int(rank or 0))
                    first.append(chosen[whole])
                else:
                    chosen[whole] = self._other(scope, other, first)
            return chosen[whole]

        text = SLOT.sub(slot, template)
        if family == "write" or "out=" in template:
            self._refuse_overlaps(scope, chosen, gathers=bool(_GATHERS.search(template)))
        return text

    def _refuse_overlaps(self, scope: Scope, chosen: dict[str, str], gathers: bool) -> None:
        """What is read while other parts of the same memory are written comes in an order that nobody promises; so
        does what a product is computed from, if it is put there."""
        for target_slot, target in chosen.items():
            if target_slot[1] not in "wyg":
                continue
            for at in range(len(scope.namespaces)):
                written = scope.value(target, at)
                if not isinstance(written, torch.Tensor):
                    continue
                if target in scope.converted:
                    raise Refused
                if any(size > 1 and stride == 0 for size, stride in zip(written.shape, written.stride())):
                    raise Refused
                for slot, name in chosen.items():
                    read = scope.value(name, at)
                    same = slot == target_slot or (name == target and slot[1] not in "wy" and not gathers)
                    if not same and isinstance(read, torch.Tensor) and shares_memory(written, read):
                        raise Refused

    def _tensor(self, scope: Scope, kind: str, rank: int) -> str:
        found = [name for name in scope.names if fits(scope.value(name), kind, rank)]
        if kind in "gh":
            found = [name for name in found if self._is_own(scope, name)]
        if not found:
            raise Refused
        return self.chance.choice([*found, *found[-2:]])  # later values are more interesting

    def _is_own(self, scope: Scope, name: str) -> bool:
        """Whether a tensor is neither given to the program nor state of it, nor a conversion that changed nothing."""
        if name[0] != "v" or name in scope.outer or name in scope.converted:
            return False
        given = [scope.value(other) for other in scope.names if other[0] in "xa" or other.startswith("self.")]
        value = scope.value(name)
        return not any(value is other or shares_memory(value, other) for other in given)

    def _other(self, scope: Scope, kind: str, first: list[str]) -> str:
        chance = self.chance
        if kind in "de":
            rank = scope.value(first[0]).dim() if first else 1
            return str(chance.randrange(-1, max(rank, 1)))
        if kind == "j":
            return str(chance.choice([0, 0, 1, 2]))
        if kind == "q":
            return str(chance.randint(-2, 3))
        if kind == "r":
            return chance.choice(["0.5", "1.5", "-0.25", "2", "0.0"])
        if kind == "z":
            return self.size(scope)
        if kind in "DC":
            value = scope.value(first[0])
            at = -1 if kind == "D" else 1
            sizes = {scope.value(first[0], i).shape[at] for i in range(len(scope.namespaces))}
            if (value.dim() < 2 and kind == "C") or len(sizes) != 1 or 0 in sizes:
                raise Refused
            return str(sizes.pop())
        return self._member(scope, kind)

    def size(self, scope: Scope) -> str:
        """An expression for a size."""
        numbers = [name for name in scope.namespaces[0] if re.fullmatch(r"k\d+", name)]
        if numbers and self.chance.random() < 0.4:
            return self.chance.choice(numbers)
        name = self._tensor(scope, "a", 1)
        at = self.chance.randrange(-1, scope.value(name).dim())
        size = f"{name}.shape[{at}]"
        return self.chance.choice([size, size, f"({size} // 2)", f"({size} - 1)", f"({size} + 1)", "2", "1"])

    def _member(self, scope: Scope, kind: str) -> str:
        """A parameter (p) or a buffer (b), there already or new."""
        there = [name for name in scope.members if name[0] == kind]
        if there and self.chance.random() < 0.6:
            return self.chance.choice(there)
        self.add_state(scope, kind)
        return list(scope.members)[-1]

    def add_state(self, scope: Scope, kind: str) -> None:
        """A new parameter or buffer."""
        name = self.name(kind)
        sizes = self.chance.choice(["", "", "3", "4", "1", "3, 1", "3, 4"])
        odd = [] if kind == "p" else ["int64", "bool", "float16", "complex64"]
        dtype = self.chance.choice([""] * 12 + [f", dtype=torch.{name}" for name in ("float64", *odd)])
        if kind == "p":
            line = f"self.{name} = torch.nn.Parameter(torch.randn({sizes or '()'}{dtype}))"
        elif self.chance.random() < 0.85:
            line = f'self.register_buffer("{name}", torch.ones({sizes or "()"}{dtype}))'
        else:
            line = f'self.register_buffer("{name}", torch.ones({sizes or "()"}{dtype}), persistent=False)'
        self.add_member(scope, name, line)
        scope.names.append(f"self.{name}")

    def add_member(self, scope: Scope, name: str, line: str) -> None:
        """A line of the model's constructor."""
        code = compile(line, "<member>", "exec")
        for namespace in scope.namespaces:
            exec(code, namespace)
        scope.members[name] = line

    def _module(self, scope: Scope) -> Statement:
        template = self.chance.choice(FAMILIES["module"])
        make, arguments, *rest = [part.strip() for part in template.split("|")]
        # the arguments decide about the sizes in the constructor
        filled = self.fill(scope, f"{arguments} | {make}")
        arguments, make = filled.split(" | ")
        name = self.name("m")
        self.add_member(scope, name, f"self.{name} = {make}")
        text = f"{self.name('v')} = self.{name}({arguments}){rest[0] if rest else ''}"
        return Statement(text, template, (), False, narrows(template))


def cuts_by_another(text: str) -> bool:
    """Whether a slice ends where another tensor or dimension does, so that capture must know which one is longer."""
    found = re.search(r"(\w+)\[(:, )?(?:: )?\(?([\w.]+)\.shape\[(-?\d)\]|\[(?::, )?: k\d|narrow\(0, 0, ", text)
    if found is None:
        return False
    tensor, second, other, dimension = found.group(1), found.group(2), found.group(3), found.group(4)
    return tensor != other or dimension != ("1" if second else "0")


def squeezes_what_varies(scope: Scope, text: str) -> bool:
    """Whether a dimension is squeezed that is one element long at some of the sizes: then capture must know."""
    if not re.search(r"\bsqueeze_?\(", text):
        return False
    for name in names_in(text):
        values = [scope.value(name, at) for at in range(len(scope.namespaces))]
        ones = {tuple(size == 1 for size in value.shape) for value in values if isinstance(value, torch.Tensor)}
        if len(ones) > 1:
            return True
    return False


def shares_memory(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors are parts of one memory."""
    return one.untyped_storage()._cdata == other.untyped_storage()._cdata


def fits(value: Any, kind: str, rank: int) -> bool:
    """Whether a value can take the place of a slot."""
    if not isinstance(value, torch.Tensor) or value.dim() < rank:
        return False
    if kind in "fhy":
        return value.is_floating_point()
    if kind == "i":
        return value.dtype == torch.int64
    if kind == "k":
        return value.dtype == torch.bool
    if kind == "c":
        return value.is_complex()
    return True
