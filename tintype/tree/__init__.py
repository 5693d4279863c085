"""Pytrees: flattening the inputs and outputs of a program, and naming their leaves.

Users register their own container types with ``torch.utils._pytree`` or with the functions here, so that registry is
the one used. Containers of libraries that we know are registered when one turns up.
"""

from torch.utils._pytree import TreeSpec

from tintype.tree.flattening import (
    KeyPath,
    flatten,
    flatten_with_paths,
    leaves,
    map_leaves,
    path_name,
    path_text,
    unflatten,
    unflattener,
    with_classes,
)
from tintype.tree.registration import (
    holds_attributes,
    register_attributes,
    register_container,
    register_dataclass,
    register_known,
    register_namedtuple,
    type_named,
)
from tintype.tree.taking_apart import TakingApart
from tintype.tree.updating import update

__all__ = [
    "KeyPath",
    "TakingApart",
    "TreeSpec",
    "flatten",
    "flatten_with_paths",
    "holds_attributes",
    "leaves",
    "map_leaves",
    "path_name",
    "path_text",
    "register_attributes",
    "register_container",
    "register_dataclass",
    "register_known",
    "register_namedtuple",
    "type_named",
    "unflatten",
    "unflattener",
    "update",
    "with_classes",
]
