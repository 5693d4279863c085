"""Pytrees: flattening the inputs and outputs of a program, and naming their leaves.

Users register their own container types with ``torch.utils._pytree`` or with the functions here, so that registry is
the one used. Containers of libraries that we know are registered when one turns up.
"""

from torch.utils._pytree import TreeSpec

from tintype.tree.containers import (
    Containers,
    Path,
    call_labels,
    can_be_updated,
    child_names,
    is_changeable,
    labels,
    leaf_paths,
    order_attributes,
    place_name,
    put,
    put_into,
    unflatten_call,
)
from tintype.tree.flattening import (
    KeyPath,
    check_round_trip,
    containers_of_users,
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
from tintype.tree.plain import PlainContainer, plain_context
from tintype.tree.registration import (
    holds_attributes,
    is_of_library,
    loaded_plug_ins,
    register_attributes,
    register_container,
    register_dataclass,
    register_known,
    register_namedtuple,
    type_named,
)
from tintype.tree.structure import same_structure, same_value, structure_key
from tintype.tree.taking_apart import TakingApart

__all__ = [
    "Containers",
    "KeyPath",
    "Path",
    "PlainContainer",
    "TakingApart",
    "TreeSpec",
    "call_labels",
    "can_be_updated",
    "check_round_trip",
    "child_names",
    "containers_of_users",
    "flatten",
    "flatten_with_paths",
    "holds_attributes",
    "is_changeable",
    "is_of_library",
    "labels",
    "leaf_paths",
    "leaves",
    "loaded_plug_ins",
    "map_leaves",
    "order_attributes",
    "path_name",
    "path_text",
    "place_name",
    "plain_context",
    "put",
    "put_into",
    "register_attributes",
    "register_container",
    "register_dataclass",
    "register_known",
    "register_namedtuple",
    "same_structure",
    "same_value",
    "structure_key",
    "type_named",
    "unflatten",
    "unflatten_call",
    "unflattener",
    "with_classes",
]
