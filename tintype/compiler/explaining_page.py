"""The report of a compiled function as one HTML page that needs nothing else."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from tintype.compiler.expressions import Expression
from tintype.compiler.history import LARGEST_SHARE, LEAST_CAPTURES, line_of
from tintype.compiler.sources import Guard
from tintype.compiler.trace import QUIET_STEPS, Call, Eagerly, Effect, Return
from tintype.compiler.tree_of_runs import Node

if TYPE_CHECKING:
    from tintype.compiler.compiled import Engine

_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2em auto; max-width: 72em; padding: 0 1em; color: #222 }
table { border-collapse: collapse } td, th { text-align: left; padding: .15em .9em .15em 0; vertical-align: top }
code, pre { font: 13px/1.4 ui-monospace, monospace } pre { margin: 0; white-space: pre-wrap }
.node { border-left: 2px solid #bbb; margin: .4em 0 .4em .3em; padding-left: 1em }
.break { background: #fff3cd } .eagerly { background: #f8d7da } .guard { color: #567 } .failed { color: #a00 }
summary { cursor: pointer }
"""


def page_of(engine: Engine) -> str:
    """The page."""
    name = escape(engine.name)
    parts = [
        f"<h1>{name}</h1>",
        _summary(engine),
        "<h2>Captures</h2>",
        _captures(engine),
        "<h2>Runs</h2>",
        "<p>Guards are asked from the top; what is indented is one way to go on.</p>",
        _node(engine.program.root),
    ]
    body = "\n".join(parts)
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{name}</title>'
        f"<style>{_STYLE}</style></head><body>\n{body}\n</body></html>\n"
    )


def _summary(engine: Engine) -> str:
    items = [item for node in engine.program.nodes for item in node.items]
    history = engine.history
    calls = [item for item in items if isinstance(item, Call)]
    backend = engine.options.backend
    rows = {
        "backend": backend if isinstance(backend, str) else repr(backend),
        "captures": f"{engine.captures} in {history.capture_seconds * 1000:.1f} ms",
        "runs known": sum(isinstance(item, Return) for item in items),
        "operators": sum(call.step is None for call in calls),
        "breaks": sum(bool(call.step) and call.step not in QUIET_STEPS for call in calls),
        "guards": sum(isinstance(item, Guard) for item in items),
    }
    if history.not_captured:
        rows["ran eagerly"] = (
            f"{history.not_captured} calls that no run fits: beyond {LEAST_CAPTURES}, captures may take "
            f"{LARGEST_SHARE:.0%} of the time in the function"
        )
    if engine.is_eager:
        rows["runs eagerly"] = engine.why_eager
    cells = [f"<tr><th>{escape(key)}</th><td>{escape(str(value))}</td></tr>" for key, value in rows.items()]
    return f"<table>{''.join(cells)}</table>"


def _captures(engine: Engine) -> str:
    rows = []
    for number, captured in enumerate(engine.history.captured, 1):
        reasons = "<br>".join(f'<span class="failed">{escape(reason)}</span>' for reason in captured.reasons)
        rows.append(
            f"<tr><td>{number}</td><td>{captured.seconds * 1000:.2f} ms</td>"
            f"<td>{reasons or 'the first call'}</td><td>{escape(captured.outcome)}</td></tr>"
        )
    head = "<tr><th></th><th>took</th><th>guards that failed</th><th>outcome</th></tr>"
    return f"<table>{head}{''.join(rows)}</table>" if rows else "<p>None yet.</p>"


def _node(node: Node) -> str:
    """A node with those below it. Guards that follow each other are one list, and so are operators."""
    lines: list[str] = []
    position = 0
    while position < len(node.items):
        end = position
        while end < len(node.items) and _kind(node.items[end]) == _kind(node.items[position]):
            end += 1
        lines.append(_group(node.items[position:end]))
        position = end
    lines += [f'<div class="node">{_node(child)}</div>' for child in node.children]
    return "\n".join(lines)


def _kind(item: Any) -> str:
    if isinstance(item, Call) and item.step and item.step not in QUIET_STEPS:
        return "break"
    return type(item).__name__


def _group(items: list[Any]) -> str:
    first = items[0]
    if isinstance(first, Guard):
        text = "\n".join(escape(str(guard)) for guard in items)
        head = f"{len(items)} guard{'s' if len(items) > 1 else ''}"
        return f'<details class="guard"><summary>{head}</summary><pre>{text}</pre></details>'
    if _kind(first) == "break":
        return "".join(f'<pre class="break">break: {escape(f"{i.step}{line_of(i.location)}")}</pre>' for i in items)
    if isinstance(first, Call):
        text = "\n".join(escape(_call(call)) for call in items)
        head = f"{len(items)} operator{'s' if len(items) > 1 else ''}"
        return f"<details open><summary>{head}</summary><pre>{text}</pre></details>"
    if isinstance(first, Effect):
        text = "\n".join(escape(_effect(effect)) for effect in items)
        return f"<pre>{text}</pre>"
    if isinstance(first, Eagerly):
        return f'<pre class="eagerly">runs eagerly: {escape(first.reason + line_of(first.location))}</pre>'
    return f"<pre>return {escape(_said(first.value))}</pre>"


def _call(call: Call) -> str:
    arguments = [_said(argument) for argument in call.arguments]
    arguments += [f"{name}={_said(value)}" for name, value in call.keywords.items()]
    at = "" if call.location is None else f"    # {call.location}"
    return f"v{call.number} = {_said(call.function)}({', '.join(arguments)}){at}"


def _effect(effect: Effect) -> str:
    values = ", ".join(_said(value) for value in effect.values)
    name = _said(effect.name) if effect.kind == "item" else effect.name
    return f"{'delete' if effect.deletes else 'write'} {effect.kind} {_said(effect.owner)} {name}: {values}"


def _said(expression: Expression) -> str:
    match expression[0]:
        case "constant":
            value = expression[1]
            return str(getattr(value, "__qualname__", None) or getattr(value, "__name__", None) or repr(value))
        case "value":
            return f"v{expression[1]}"
        case "part":
            return f"{_said(expression[1])}[{expression[2]}]"
        case "source":
            return str(expression[1])
        case "method":
            return f"{_said(expression[1])}.{expression[2]}"
        case "number":
            return _said(expression[1])
    how = expression[1] if isinstance(expression[1], str) else getattr(expression[1], "__name__", "new")
    return f"{how}({', '.join(map(_said, expression[2]))})"
