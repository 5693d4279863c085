"""Where handlers are found by name.

A handler is a function of a frame and an operation's argument. It changes the frame and says where to go on: None,
the index of an operation, another frame, or a mark that ends the run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

Handler = Callable[..., Any]
F = TypeVar("F", bound=Handler)

HANDLERS: dict[str, Handler] = {}
# "on_branch": {"pop_jump_if_true": the handler that calls the hook, ...}
HOOKED: dict[str, dict[str, Handler]] = {}


def handler(function: F) -> F:
    """A handler by the name of the function."""
    assert function.__name__ not in HANDLERS, f"two handlers are called {function.__name__}"
    HANDLERS[function.__name__] = function
    return function


def hooked(hook: str, *names: str) -> Callable[[F], F]:
    """The handler that takes the place of others where a policy has a hook."""

    def register(function: F) -> F:
        for name in names:
            HOOKED.setdefault(hook, {})[name] = function
        return function

    return register
