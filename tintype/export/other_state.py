"""``program.with_state``: the same program with other parameters and buffers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from tintype.errors import InvalidRequestError
from tintype.export.program import ExportedProgram, verified_copy
from tintype.tree.sparse import SparseParts, is_sparse
from tintype.tree.subclasses import is_wrapper, plain_parts


def program_with_state(program: ExportedProgram, state: Mapping[str, torch.Tensor], strict: bool) -> ExportedProgram:
    """See :meth:`tintype.ExportedProgram.with_state`."""
    if not isinstance(state, Mapping):
        raise InvalidRequestError(
            f"state is a dictionary of tensors by name, but got {type(state).__name__}",
            remedy="tintype.attach_weights takes files",
        )
    state = _with_parts(state)
    values: dict[str, Any] = {**program.state_dict, **program.constants}
    names: dict[int, list[str]] = {}  # tied ones are one tensor under several names
    for name, value in values.items():
        names.setdefault(id(value), []).append(name)
    replaced: dict[str, Any] = {}
    missing = []
    for same in names.values():
        given = [name for name in same if name in state]
        if given:
            new = replacement(same[0], values[same[0]], state[given[0]])
            replaced.update(dict.fromkeys(same, new))
        elif same[0] in program.state_dict:
            missing.append(same[0])
    unused = sorted(set(state) - set(values))
    if strict and (missing or unused):
        raise InvalidRequestError(
            report(missing, unused), remedy="give all of them and no others, or strict=False to keep the program's"
        )
    return verified_copy(
        program,
        program.graph_module,
        state_dict={name: replaced.get(name, value) for name, value in program.state_dict.items()},
        constants={name: replaced.get(name, value) for name, value in program.constants.items()},
    )


def replacement(name: str, old: Any, new: torch.Tensor, device: torch.device | None = None) -> torch.Tensor:
    """A tensor that takes the place of another one; raises where it can't."""
    if (new.shape, new.dtype) != (old.shape, old.dtype):
        raise InvalidRequestError(
            f"the program needs {name} as {old.dtype} {list(old.shape)}, but the weights have {new.dtype} "
            f"{list(new.shape)}",
            remedy=_unlike_remedy(old, new),
        )
    if new.is_meta and not old.is_meta:
        raise InvalidRequestError(f"the tensor given for {name} is on the meta device and has no data")
    new = new.to(old.device if device is None else device)
    return torch.nn.Parameter(new, old.requires_grad) if isinstance(old, torch.nn.Parameter) else new


def _unlike_remedy(old: torch.Tensor, new: torch.Tensor) -> str:
    if old.shape != new.shape:
        return "these are the weights of another model, or of another configuration of it: export that one"
    wanted = f"{{name: weight.to({old.dtype}) for name, weight in weights.items()}}"
    return f"convert the weights, {wanted}, or export the model as they are: model.to({new.dtype})"


def report(missing: Sequence[str], unused: Sequence[str]) -> str:
    """What is missing and what is too much, in words."""
    lines = []
    if missing:
        lines.append(f"there are no weights for {len(missing)} parameters or buffers: {_few(missing)}")
    if unused:
        lines.append(f"the program has no place for {len(unused)} tensors: {_few(unused)}")
    return "; ".join(lines)


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")


def _with_parts(state: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """A dictionary with the parts of tensors that consist of others, by the names that programs have for them."""
    found: dict[str, torch.Tensor] = {}
    for name, value in state.items():
        if is_wrapper(type(value)):
            found.update({f"{name}.{place}": part for place, part in plain_parts(value)})
        elif isinstance(value, torch.Tensor) and is_sparse(value):
            parts = SparseParts.of(value.detach()).tensors()
            found.update({f"{name}.{place}": part for place, part in parts.items()})
        else:
            found[name] = value
    return found
