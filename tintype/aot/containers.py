"""Containers that a function was given and changed: a list that it appended to, a cache that it brought up to date.

Graphs know of tensors alone. So a function that changes such containers returns what became of its arguments, too,
and the caller's own are changed to that when the graphs have run.
"""

from __future__ import annotations

from tintype import tree
from tintype.errors import MutationError
from tintype.trace.given_containers import GivenContainers


def are_changed(given: GivenContainers) -> bool:
    """Whether containers hold something else than they did; refuses those that can't be changed in the same way
    afterwards."""
    changed = given.changed()
    others = [kind for number in changed if not tree.can_be_updated(kind := type(given.objects[number]))]
    if others:
        raise MutationError(
            f"the function changes what it was given, in which there is a {others[0].__name__}: a compiled function "
            "changes lists, dictionaries, caches of transformers and containers of attributes alone",
            remedy="return what is new instead",
        )
    return bool(changed)
