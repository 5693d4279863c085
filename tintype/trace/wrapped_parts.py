"""What tensors consist of, before and after something was done with them."""

from __future__ import annotations

from typing import Any

from tintype import tree
from tintype.errors import StateChangedError
from tintype.fake.tensor import FakeTensor
from tintype.trace.changed_state import made_at
from tintype.tree.subclasses import is_whole, wrappers


def given_parts(given: Any) -> list[tuple[Any, dict[str, Any], Any]]:
    """The tensors among values that consist of others, each with its parts and what it says of them."""
    # sparse and nested tensors have their parts for good; the latter note more of them when they are asked
    whole = [leaf for leaf in tree.leaves(given) if is_whole(leaf) and not hasattr(leaf, "sparse_parts")]
    return [(part, *_contents(part)) for leaf in whole for _, part in wrappers(leaf, "")]


def _contents(tensor: Any) -> tuple[dict[str, Any], Any]:
    names, context = tensor.__tensor_flatten__()
    return {name: getattr(tensor, name) for name in names}, context


_ARGUMENT = "an argument of the class {}, where the caller would not see it"


def refuse_other_parts(before: list[tuple[Any, dict[str, Any], Any]], where: str = _ARGUMENT) -> None:
    """Raise if the program put other tensors or numbers into tensors that are not its own: it has the parts that they
    consist of, and can only write to these."""
    for tensor, parts, context in before:
        now, context_now = _contents(tensor)
        changed = [name for name, part in parts.items() if name not in now or not _is_memory_of(now[name], part)]
        if changed or context_now != context:
            kind = type(tensor)
            what = f"another tensor as {changed[0]!r}" if changed else "another value"
            raise StateChangedError(
                f"the program puts {what} into {where.format(f'{kind.__module__}.{kind.__qualname__}')}",
                location=made_at(now.get(changed[0])) if changed else None,
                remedy="let the class write to its tensors (copy_), or return a new tensor",
            )


def _is_memory_of(now: Any, before: Any) -> bool:
    if type(now) is not FakeTensor or type(before) is not FakeTensor:
        return now is before
    return now.info.storage is before.info.storage
