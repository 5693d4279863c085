"""Stances: what compiled functions do for the time being, as ``torch.compiler.set_stance`` has it for torch's."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

from tintype.compiler.backends import backend_of
from tintype.errors import InvalidRequestError

STANCES = (
    "default",
    "force_eager",
    "eager_on_recompile",
    "fail_on_recompile",
    "eager_then_compile",
    "aot_eager_then_compile",
)


class Stance(NamedTuple):
    """What compiled functions do where no run that they know fits; and a backend in place of their own."""

    name: str = "default"
    backend: Any = None


_current = Stance()
# called when the stance has changed
_followers: list[Callable[[], None]] = []


def current_stance() -> Stance:
    """The stance of the process."""
    return _current


def follow(follower: Callable[[], None]) -> None:
    """Have a function called after each change."""
    _followers.append(follower)


def _set(stance: Stance) -> Stance:
    global _current
    before, _current = _current, stance
    for follower in _followers:
        follower()
    return before


class set_stance:
    """What compiled functions do from now on, inside of a ``with`` statement, or while a decorated function runs.

    - "default": functions are captured where no run that is known fits;
    - "force_eager": they run as they are;
    - "eager_on_recompile": runs that are known are repeated, all other calls run as they are;
    - "fail_on_recompile": where a capture would be needed, an error names what was different;
    - "eager_then_compile": the first call of a function runs as it is, and those after it are compiled;
    - "aot_eager_then_compile": the same, with the backend "aot_eager" for the first call.

    ``force_backend`` takes the place of the backends that functions were compiled for, in the default stance.

    >>> import torch, tintype
    >>> @tintype.compile
    ... def twice(x, times):
    ...     return x * times
    >>> with tintype.set_stance("force_eager"):
    ...     twice(torch.ones(2), 2)
    tensor([2., 2.])
    >>> print(twice.explain().splitlines()[0])
    twice: 0 captures, 0 runs known
    >>> twice(torch.ones(2), 2)
    tensor([2., 2.])
    >>> with tintype.set_stance("fail_on_recompile"):
    ...     twice(torch.ones(2), 3)
    Traceback (most recent call last):
    tintype.errors.RecompileError: 'twice' would be captured again: argument 1 is 3, not 2
    ...
    """

    def __init__(
        self,
        stance: str = "default",
        *,
        skip_guard_eval_unsafe: bool = False,
        force_backend: str | Callable[..., Any] | None = None,
    ) -> None:
        if stance not in STANCES:
            raise InvalidRequestError(f"there is no stance {stance!r}", remedy=f"take one of {', '.join(STANCES)}")
        if force_backend is not None and stance != "default":
            raise InvalidRequestError("force_backend belongs to the stance 'default'")
        if force_backend is not None:
            backend_of(force_backend)  # before anything is set: it may be unknown
        if skip_guard_eval_unsafe:
            raise InvalidRequestError(
                "guards can't be skipped: a call that no run fits would give wrong results",
                remedy="leave skip_guard_eval_unsafe out",
            )
        self.stance = Stance(stance, force_backend)
        self.before = _set(self.stance)

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        _set(self.before)  # making the decorator has set it already
        stance = self.stance

        @functools.wraps(function)
        def decorated(*args: Any, **kwargs: Any) -> Any:
            with set_stance(stance.name, force_backend=stance.backend):
                return function(*args, **kwargs)

        return decorated

    def __enter__(self) -> None:
        _set(self.stance)

    def __exit__(self, *_: Any) -> None:
        _set(self.before)
