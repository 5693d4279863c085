"""What a compiled function accepts without another capture, in words: the guards of the runs that it knows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tintype.compiler.expressions import Expression
from tintype.compiler.sources import Guard, Source, said
from tintype.compiler.trace import Eagerly, Item
from tintype.compiler.tree_of_runs import Node
from tintype.compiler.writing import INFIX
from tintype.ir.call_values import is_library

if TYPE_CHECKING:
    from tintype.compiler.compiled import Engine

_ARGUMENTS = ("argument", "keyword")
# what a run rests on beside its arguments is listed up to this many lines
MOST_LINES = 12


def contract_of(engine: Engine) -> str:
    """The runs that are known, each with what it asks of a call."""
    ends = [node for node in engine.program.nodes if not node.children and node.items]
    if engine.is_eager:
        return f"{engine.name} takes any call, and runs eagerly: {engine.why_eager}"
    if not ends:
        return f"{engine.name} has not been called: its first call is captured"
    lines = [f"{engine.name} takes any call; these need no other capture:"]
    for number, node in enumerate(ends):
        lines += _lines_of_run(number + 1, _path_to(node))
    return "\n".join(lines)


def _path_to(node: Node) -> list[Item]:
    path: list[Item] = []
    step: Node | None = node
    while step is not None:
        path = [*step.items, *path]
        step = step.parent
    return path


def _lines_of_run(number: int, items: list[Item]) -> list[str]:
    guards = [item for item in items if isinstance(item, Guard) and item.kind not in ("assumed", "returned")]
    of_arguments: dict[str, list[str]] = {}
    around: dict[str, None] = {}
    later = of_libraries = 0
    for guard in guards:
        if is_about_library(guard):
            of_libraries += 1
        elif guard.inline and guard.source.root.kind == "value":
            later += 1
        elif guard.source.root.kind in _ARGUMENTS:
            of_arguments.setdefault(said(guard.source.root), []).append(words_of(guard))
        elif guard.kind != "arguments":
            around[words_of(guard)] = None
    end = items[-1]
    lines = [f"  run {number}" + (f", eagerly: {end.reason}" if isinstance(end, Eagerly) else "")]
    lines += [f"    {words_of(guard)}" for guard in guards if guard.kind == "arguments"]
    lines += [f"    {name}: {'; '.join(dict.fromkeys(words))}" for name, words in of_arguments.items()]
    shown = list(around)[:MOST_LINES]
    lines += [f"    rests on: {words}" for words in shown]
    if len(around) > len(shown):
        lines.append(f"    rests on {len(around) - len(shown)} more attributes, globals and modes")
    if of_libraries:
        lines.append(f"    rests on {of_libraries} function{'' if of_libraries == 1 else 's'} of libraries")
    if later:
        lines.append(f"    rests on {later} answer{'' if later == 1 else 's'} to questions about what it computes")
    return lines


def is_about_library(guard: Guard) -> bool:
    """Whether a guard asks that a function of torch's, numpy's or Python's modules is what it was."""
    owner = guard.source.root.key
    name = owner.get("__name__") if isinstance(owner, dict) else getattr(owner, "__module__", None)
    return guard.kind == "is" and guard.source.root.kind == "constant" and is_library(name)


def words_of(guard: Guard) -> str:
    """What a guard asks for."""
    place = "" if guard.source.parent is None and guard.source.kind in _ARGUMENTS else f"{said(guard.source)} is "
    expected = guard.expected
    match guard.kind:
        case "arguments":
            count, names = expected
            named = f" and {', '.join(names)}" if names else ""
            return f"{count} positional argument{'' if count == 1 else 's'}{named}"
        case "type" if _is_size(guard.source):
            return f"{_size(guard.source)} varies"
        case "type" if expected in (int, float) and place == "":
            return f"any {expected.__name__}"
        case "type":
            return f"{place}a {expected.__name__}"
        case "value" if _is_size(guard.source):
            return f"{_size(guard.source)} is {expected}"
        case "value":
            return f"{place}{expected!r}"
        case "length" if guard.source.kind == "attribute" and guard.source.key == "shape":
            return f"{expected} dimension{'' if expected == 1 else 's'}{_of_tensor(guard.source)}"
        case "length":
            return f"{place}of length {expected}"
        case "keys":
            return f"{place}a dictionary with the keys {', '.join(map(repr, expected))}"
        case "printed":
            return f"{place}{expected[1]}"
        case "relation":
            function, operands, answer = guard.expected
            text = _computation(function, operands)
            return text if answer else f"not ({text})"
        case _:
            return _other_words(guard)


def _other_words(guard: Guard) -> str:
    name, expected = said(guard.source), guard.expected
    match guard.kind:
        case "same":
            return f"{name} is {said(expected)}"
        case "apart":
            return f"{name} is another object than {' and '.join(map(said, expected))}"
        case "absent":
            return f"{name} has no {expected!r}"
        case "answer":
            read, arguments, answer = expected
            called = f".{read}({', '.join(map(repr, arguments))})" if not read.startswith(".") else read
            return f"{called[1:] if guard.source.root.kind in _ARGUMENTS else name + called} is {answer}"
        case "tensor":
            return _tensor_words(name if guard.source.root.kind not in _ARGUMENTS else "", expected)
        case "state":
            return f"{getattr(expected[0], '__name__', 'a mode')} of the thread is what it was"
        case "members":
            return f"{name.removesuffix('.__dict__')} has the attributes that it had"
        case "hooks":
            return f"{name.removesuffix('.__dict__')} has no hooks"
        case "code":
            return f"{name} is a function with the code of {expected[0].co_qualname}"
        case _:
            return f"{name} is what it was"


def _tensor_words(name: str, expected: tuple[Any, ...]) -> str:
    kind, dtype, shape, strides, requires_grad, device, *_ = expected
    words = f"a {kind.__name__} of {dtype} {tuple(shape)} with strides {tuple(strides)} on {device}"
    words += ", requires_grad" if requires_grad else ""
    return f"{name} is {words}" if name else words


def _size(source: Source) -> str:
    assert source.parent is not None
    return f"size {source.key}{_of_tensor(source.parent)}"


def _of_tensor(shape: Source) -> str:
    """Whose sizes they are, where it is no argument itself."""
    tensor = shape.parent
    return "" if tensor is None or tensor.parent is None else f" of {said(tensor)}"


def _is_size(source: Source) -> bool:
    parent = source.parent
    return source.kind == "item" and parent is not None and (parent.kind, parent.key) == ("attribute", "shape")


def _computation(function: Any, operands: tuple[Expression, ...]) -> str:
    parts = [_expression(operand) for operand in operands]
    sign = INFIX.get(function)
    if sign is not None and len(parts) == 2:
        return f"{parts[0]} {sign} {parts[1]}"
    return f"{getattr(function, '__name__', function)}({', '.join(parts)})"


def _expression(expression: Expression) -> str:
    match expression[0]:
        case "constant":
            return repr(expression[1])
        case "source":
            return _size(expression[1]) if _is_size(expression[1]) else said(expression[1])
        case "number":
            return _expression(expression[1])
        case "operator":
            return f"({_computation(expression[1], expression[2])})"
    return f"result {expression[1]}"
