"""Tensors of several processes (``torch.distributed.tensor.DTensor``) in plain words, as programs have them.

Such a tensor consists of the part that this process has. The rest of it is what the processes agree on: a mesh of
them, and how the tensor is divided over each dimension of that mesh. A mesh is known by its process groups, and these
by their names, which every process that runs a program must have.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from tintype.errors import FileFormatError, UnsupportedInputError

CLASS_NAME = "torch.distributed.tensor.DTensor"

# How a tensor can be divided, with the attributes that say how exactly. A file can name nothing else.
_PLACEMENTS: dict[str, tuple[str, ...]] = {
    "Shard": ("dim",),
    "Replicate": (),
    "Partial": ("reduce_op",),
    "_StridedShard": ("dim", "split_factor"),
}


def is_distributed(kind: Any) -> bool:
    """Whether a class is that of tensors of several processes."""
    return (
        kind.__module__.startswith("torch.distributed.tensor") and f"{kind.__module__}.{kind.__name__}" == CLASS_NAME
    )


def description(tensor: Any) -> tuple[Any, ...]:
    """What makes a tensor of several processes of its part: the mesh, and how the tensor is divided over it."""
    return describe_mesh(tensor.device_mesh), tuple(map(_describe_placement, tensor.placements))


def describe_mesh(mesh: Any) -> tuple[Any, ...]:
    """A mesh of processes: the kind of device, shape, processes, names of dimensions and of their groups."""
    with _disable_current_modes():
        processes = tuple(mesh.mesh.flatten().tolist())
    names = None if mesh.mesh_dim_names is None else tuple(mesh.mesh_dim_names)
    try:
        groups = tuple(mesh.get_group(dimension).group_name for dimension in range(mesh.ndim))
    except (RuntimeError, ValueError) as error:
        raise UnsupportedInputError(
            f"the process groups of a tensor's mesh are not there: {error}",
            remedy="make them first (torch.distributed.init_process_group), then the mesh and the tensor",
        ) from error
    return mesh.device_type, tuple(mesh.shape), processes, names, groups


def _describe_placement(placement: Any) -> tuple[Any, ...]:
    name = type(placement).__name__
    if name not in _PLACEMENTS:
        raise UnsupportedInputError(
            f"a tensor that is placed as {placement} on its mesh can't be an input or a result of a program",
            remedy="redistribute it first: tensor.redistribute(placements=[Replicate()])",
        )
    return name, *(getattr(placement, attribute) for attribute in _PLACEMENTS[name])


def whole_geometry(local: torch.Tensor, mesh: Any, placements: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Sizes and strides of a tensor whose parts are all as large as this one."""
    from torch.distributed.tensor._utils import compute_global_tensor_info

    sizes, strides = compute_global_tensor_info(local, mesh, placements)
    return tuple(sizes), tuple(strides)


def geometry(tensor: Any) -> Any:
    """Sizes and strides of a tensor; None where they follow from those of its part, which may vary."""
    sizes, strides = tuple(tensor.shape), tuple(tensor.stride())
    even = whole_geometry(tensor._local_tensor, tensor.device_mesh, tensor.placements) == (sizes, strides)
    return None if even else (sizes, strides)


def tensor_of(local: torch.Tensor, described: Any, given_geometry: Any) -> Any:
    """The tensor that a part and a description make."""
    from torch.distributed.tensor import DTensor
    from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta

    mesh, placements = _mesh(described[0]), tuple(map(_placement, described[1]))
    sizes, strides = given_geometry or whole_geometry(local, mesh, placements)
    spec = DTensorSpec(mesh, placements, tensor_meta=TensorMeta(torch.Size(sizes), tuple(strides), local.dtype))
    return DTensor(local, spec, requires_grad=local.requires_grad)


def _placement(described: Any) -> Any:
    from torch.distributed.tensor import placement_types

    name, *arguments = described
    if name not in _PLACEMENTS or len(arguments) != len(_PLACEMENTS[name]):
        raise FileFormatError(f"there is no way to place a tensor called {name!r:.80}")
    return getattr(placement_types, name)(**dict(zip(_PLACEMENTS[name], arguments, strict=True)))


def group_called(name: str) -> Any:
    """The process group of a name; None where this process has none."""
    if not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return None
    try:
        return torch.distributed.distributed_c10d._resolve_process_group(name)  # type: ignore[arg-type]
    except RuntimeError:
        return None


def _mesh(described: Any) -> Any:
    """The mesh of a description, made of the process groups that are there: none are made."""
    from torch.distributed.device_mesh import DeviceMesh

    device, shape, processes, names, group_names = described
    groups = [group_called(name) for name in group_names]
    if None in groups:
        raise FileFormatError(
            f"the program needs the process group {group_names[groups.index(None)]!r}, which is not there",
            remedy="make the same process groups, in the same order, as where the program was captured "
            "(torch.distributed.init_process_group, init_device_mesh) before it is called",
        )
    known = _meshes.get(described)
    if known is None or [known.get_group(dimension) for dimension in range(known.ndim)] != groups:
        with _disable_current_modes():
            table = torch.tensor(processes, dtype=torch.int).reshape(shape)
            known = DeviceMesh.from_group(
                groups if len(groups) > 1 else groups[0],
                device,
                mesh=table if len(groups) > 1 else None,
                mesh_dim_names=names,
            )
        _meshes[described] = known
    return known


_meshes: dict[Any, Any] = {}
