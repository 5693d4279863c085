"""An operator that looks at where tensors lie, for ``torch.compile``, which can't follow a look at an address.

It runs when the compiled program does, and raises as the check of a program itself.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import torch

from tintype.export.sharing import MemoryChecks


@functools.cache
def memory_operator() -> Callable[..., None]:
    """The check of a program's memory as a call that is kept by whoever compiles it."""
    library = torch.library.Library("tintype", "FRAGMENT")
    library.define(
        "memory_is_apart(Tensor[] inputs, str[] names, int[] written, Tensor[] state, str[] state_names, "
        "str[] written_state) -> Tensor"
    )
    library.impl("memory_is_apart", _memory_is_apart, "CompositeExplicitAutograd")
    _libraries.append(library)
    operator = torch.ops.tintype.memory_is_apart.default
    torch.library.register_fake("tintype::memory_is_apart", _yes, lib=library)

    def check(*arguments: object) -> None:
        # a result that nothing rests on would be left out of a compiled graph, an assertion is not
        torch.ops.aten._assert_async.msg(operator(*arguments), "tensors that a program writes to share memory")

    return check


# what is defined lasts as long as these
_libraries: list[torch.library.Library] = []


def _memory_is_apart(
    inputs: Sequence[torch.Tensor],
    names: Sequence[str],
    written: Sequence[int],
    state: Sequence[torch.Tensor],
    state_names: Sequence[str],
    written_state: Sequence[str],
) -> torch.Tensor:
    checks = MemoryChecks.of(range(len(inputs)), written, state_names, written_state)
    checks.check(inputs, names, dict(zip(state_names, state, strict=True)).__getitem__)
    return torch.ones((), dtype=torch.bool)


def _yes(*_: object) -> torch.Tensor:
    return torch.empty((), dtype=torch.bool)
