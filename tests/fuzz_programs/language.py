"""The language that random programs are written in: statements with names, and how they become Python source.

A program is data: the inputs, the members of the model, a list of statements and what is returned. It can be printed
as a module class that runs, and taken apart again, which is what shrinking does.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator

# Names of values: inputs x0, numbers k0, results v0, parameters of inner functions a0, state self.b0
NAME = re.compile(r"\b(?:self\.)?[a-z]\d+\b")


def names_in(text: str) -> tuple[str, ...]:
    """The names of values that a text mentions, in order, each once."""
    return tuple(dict.fromkeys(NAME.findall(text)))


def renamed(text: str, old: str, new: str) -> str:
    """The text with one name in place of another."""
    return NAME.sub(lambda match: new if match.group() == old else match.group(), text)


def indented(lines: list[str]) -> list[str]:
    """The lines one level further in."""
    return [f"    {line}" for line in lines]


@dataclasses.dataclass(frozen=True)
class Block:
    """A function inside of a program: a branch, the body of a loop, a helper, the forward of a submodule."""

    name: str
    parameters: tuple[str, ...]
    statements: tuple[Statement, ...]
    result: str
    # init lines by name, for a submodule; its class is called like the block
    members: dict[str, str] | None = None

    def lines(self) -> list[str]:
        """The definition of the function."""
        body = [line for statement in self.statements for line in statement.lines()]
        own = ["self"] if self.members is not None else []
        name = "forward" if self.members is not None else self.name
        return [f"def {name}({', '.join([*own, *self.parameters])}):", *indented([*body, f"return {self.result}"])]

    def class_lines(self) -> list[str]:
        """The class of a submodule."""
        assert self.members is not None
        return class_lines(self.name, self.members, self.lines())


@dataclasses.dataclass(frozen=True)
class Statement:
    """One step of a program: its source, the kind it is of, and the functions that it defines on the way."""

    text: str
    kind: str
    blocks: tuple[Block, ...] = ()
    without_gradients: bool = False
    # whether capture has to decide about sizes here, so that a promise about them can't be kept
    narrows: bool = False

    def lines(self) -> list[str]:
        """Source, with the definitions of its functions first."""
        definitions = [line for block in self.blocks if block.members is None for line in block.lines()]
        lines = [*definitions, *self.text.split("\n")]
        return ["with torch.no_grad():", *indented(lines)] if self.without_gradients else lines

    @property
    def defines(self) -> str | None:
        """The name that the statement gives a value to."""
        match = re.match(r"([a-z]\d+) = ", self.text)
        return match.group(1) if match else None

    @property
    def reads(self) -> tuple[str, ...]:
        """The names that the statement mentions and does not define, outside of its functions."""
        return tuple(name for name in names_in(self.text) if name != self.defines)

    def renamed(self, old: str, new: str) -> Statement:
        """The statement with one name in place of another, also in its functions."""
        blocks = tuple(_renamed_block(block, old, new) for block in self.blocks)
        return dataclasses.replace(self, text=renamed(self.text, old, new), blocks=blocks)


def _renamed_block(block: Block, old: str, new: str) -> Block:
    if old in block.parameters or block.members is not None:
        return block
    statements = tuple(statement.renamed(old, new) for statement in block.statements)
    return dataclasses.replace(block, statements=statements, result=renamed(block.result, old, new))


@dataclasses.dataclass(frozen=True)
class Input:
    """A tensor argument: sizes as expressions over the names n and m, and how the example is laid out."""

    name: str
    sizes: tuple[str, ...]
    dtype: str = "float32"
    layout: str = "contiguous"


@dataclasses.dataclass(frozen=True)
class Number:
    """An integer argument, as an expression over n and m."""

    name: str
    value: str


@dataclasses.dataclass(frozen=True)
class Sizes:
    """What is said about sizes: the example's, and which may vary.

    ``mode`` is static, dim (a Dim each, with its minimum), auto (Dim.AUTO each) or all ("auto" as a whole).
    """

    example: dict[str, int]
    mode: str = "static"
    minimum: dict[str, int] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Program:
    """A whole program."""

    seed: int
    inputs: tuple[Input | Number, ...]
    members: dict[str, str]
    statements: tuple[Statement, ...]
    result: str
    sizes: Sizes
    training: bool = True
    requires_grad: bool = False  # whether the example's tensors do
    text: str = ""  # of a program that is kept as source

    def source(self) -> str:
        """The class ``Model``, and those of its submodules."""
        if self.text:
            return self.text
        classes = [block.class_lines() for block in submodules(self.statements)]
        arguments = ", ".join(["self", *(argument.name for argument in self.inputs)])
        body = [line for statement in self.statements for line in statement.lines()]
        forward = [f"def forward({arguments}):", *indented([*body, f"return {self.result}"])]
        classes.append(class_lines("Model", self.members, forward))
        return "\n\n\n".join("\n".join(lines) for lines in classes) + "\n"

    def every_statement(self) -> Iterator[Statement]:
        """All statements, those of inner functions included."""
        yield from every_statement(self.statements)

    @property
    def narrows(self) -> bool:
        """Whether some statement keeps a size from varying freely."""
        return any(statement.narrows for statement in self.every_statement())


def every_statement(statements: tuple[Statement, ...]) -> Iterator[Statement]:
    """Statements, and those of their functions."""
    for statement in statements:
        yield statement
        for block in statement.blocks:
            yield from every_statement(block.statements)


def submodules(statements: tuple[Statement, ...]) -> list[Block]:
    """The blocks that are classes of their own, inner ones first."""
    found: list[Block] = []
    for statement in statements:
        for block in statement.blocks:
            found += submodules(block.statements)
            if block.members is not None:
                found.append(block)
    return found


def class_lines(name: str, members: dict[str, str], forward: list[str]) -> list[str]:
    """A module class with those of its members that its forward mentions."""
    used = set(NAME.findall("\n".join(forward)))
    lines = [line for member, line in members.items() if f"self.{member}" in used]
    init = ["def __init__(self):", *indented(["super().__init__()", *lines]), ""] if lines else []
    return [f"class {name}(torch.nn.Module):", *indented([*init, *forward])]
