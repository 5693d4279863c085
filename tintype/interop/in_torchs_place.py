"""tintype in the place of ``torch.export.export``: the same arguments, and torch's own kind of program."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch.export

from tintype import tree
from tintype.export import export_for_training
from tintype.interop.into_torch import to_torch


def torch_export(
    mod: torch.nn.Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    strict: bool = False,
    preserve_module_call_signature: Sequence[str] = (),
    prefer_deferred_runtime_asserts_over_guards: bool = False,
) -> torch.export.ExportedProgram:
    """Capture a model with tintype, and give it as what ``torch.export.export`` gives: a program of its training
    dialect.

    As torch.export does, it forgets tensors that the model keeps in attributes which are no buffers: every call is
    like the first one. A ``LostStateWarning`` names them.

    >>> import torch, tintype
    >>> program = tintype.interop.torch_export(torch.nn.Linear(3, 2), (torch.ones(4, 3),))
    >>> type(program) is torch.export.ExportedProgram
    True
    >>> program.module()(torch.ones(4, 3)).shape
    torch.Size([4, 2])
    """
    return to_torch(
        export_for_training(
            mod,
            args,
            None if kwargs is None else dict(kwargs),
            dynamic_shapes=dynamic_shapes,
            strict=strict,
            preserve_module_call_signature=preserve_module_call_signature,
            prefer_deferred_runtime_asserts_over_guards=prefer_deferred_runtime_asserts_over_guards,
            forgets_assignments=True,
        )
    )


@contextlib.contextmanager
def in_place_of_torch() -> Iterator[None]:
    """Within it, ``torch.export.export`` is :func:`torch_export`: for libraries that export models by themselves.

    It holds for the whole process, and for modules that have torch's function under a name of their own
    (``from torch.export import export``).

    >>> import torch, tintype
    >>> with tintype.interop.in_place_of_torch():
    ...     program = torch.export.export(torch.nn.ReLU(), (torch.ones(2),))
    >>> program.module()(torch.tensor([-1.0, 1.0]))
    tensor([0., 1.])
    """
    _register_caches()
    theirs = torch.export.export
    ours = functools.wraps(theirs)(torch_export)
    places = [
        (namespace, name)
        for module in list(sys.modules.values())
        if isinstance(namespace := getattr(module, "__dict__", None), dict)
        for name, value in list(namespace.items())
        if value is theirs
    ]
    try:
        for namespace, name in places:
            namespace[name] = ours
        yield
    finally:
        for namespace, name in places:
            if namespace.get(name) is ours:
                namespace[name] = theirs


def _register_caches() -> None:
    """Let transformers' cache be a container as we know it, before a recipe makes it one whose functions compute."""
    caches = sys.modules.get("transformers.cache_utils")
    if caches is not None:
        tree.register_known(caches.DynamicCache)
