"""Single opcodes as native functions.

Some opcodes do much and touch nothing of their frame: they match a class, split an exception group, make a type
variable. The interpreter in C does them best, with the messages of its version; here they are functions that consist
of that opcode.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from opcode import opmap
from types import CodeType, FunctionType
from typing import Any


def _template(first: Any, second: Any = None, third: Any = None) -> None: ...


def assembled(code: CodeType, *instructions: tuple[str, int], **replaced: Any) -> CodeType:
    """A code object that does these instructions instead of its own."""
    data = bytes(byte for name, argument in instructions for byte in (opmap[name], argument))
    return code.replace(co_code=data, co_exceptiontable=b"", **replaced)


@cache
def native_opcode(opcode: str, argument: int, operands: int, kept: int = 0, name: str = "") -> Callable[..., Any]:
    """A function of the opcode's operands; `kept` of them stay on the stack below the result."""
    discards = [("SWAP", 2), ("POP_TOP", 0)] * kept
    code = assembled(
        _template.__code__,
        ("RESUME", 0),
        *(("LOAD_FAST", index) for index in range(operands)),
        (opcode, argument),
        *discards,
        ("RETURN_VALUE", 0),
        co_stacksize=operands + 3,
        co_names=(name,),
        co_name=opcode.lower(),
    )
    return FunctionType(code, globals(), None, (None, None))


@cache
def native_unpack(before: int, after: int | None) -> Callable[[Any], tuple[Any, ...]]:
    """A function that unpacks into so many targets; `after` is None where none of them has a star."""
    targets = [f"a{index}" for index in range(before)]
    if after is not None:
        targets += ["*rest", *(f"b{index}" for index in range(after))]
    left = f"[{', '.join(targets)}]"
    right = "".join(f"{target.lstrip('*')}, " for target in targets)
    namespace: dict[str, Any] = {}
    source = f"def unpack(values):\n    {left} = values\n    return ({right})\n"
    exec(compile(source, __file__, "exec"), namespace)  # noqa: S102  (the source is made of numbers)
    return namespace["unpack"]


def _call(callable: Any, arguments: list[Any], keywords: dict[str, Any]) -> Any:
    return callable(*arguments, **keywords)


def call_among(namespace: dict[str, Any], callable: Any, arguments: list[Any], keywords: dict[str, Any]) -> Any:
    """Calls from a native frame with these globals: some classes note in which module their objects are made."""
    return FunctionType(_call.__code__, namespace)(callable, arguments, keywords)
