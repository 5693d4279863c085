"""What operations do, by family. Importing the room fills the table."""

from __future__ import annotations

from tintype.interpret.handlers import (
    attributes,
    containers,
    exceptions,
    functions,
    loops,
    names,
    operands,
    operators,
    stack,
)
from tintype.interpret.handlers.registry import HANDLERS, HOOKED

__all__ = [
    "HANDLERS",
    "HOOKED",
    "attributes",
    "containers",
    "exceptions",
    "functions",
    "loops",
    "names",
    "operands",
    "operators",
    "stack",
]
