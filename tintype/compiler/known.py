"""What is known of functions of Python's and torch's: which only look, which write, which ask for metadata."""

from __future__ import annotations

import builtins
import collections
import functools
import inspect
import itertools
import math
import operator
import os
import types
import typing
from typing import Any

import torch

from tintype.ir.call_values import is_library

# Builtins that look at nothing but the values that they are given, and change nothing.
PURE_BUILTINS: frozenset[int] = frozenset(
    id(getattr(builtins, name))
    for name in [
        "abs",
        "all",
        "any",
        "ascii",
        "bin",
        "bool",
        "bytes",
        "callable",
        "chr",
        "complex",
        "dict",
        "divmod",
        "enumerate",
        "filter",
        "float",
        "format",
        "frozenset",
        "hex",
        "int",
        "isinstance",
        "issubclass",
        "iter",
        "len",
        "list",
        "map",
        "max",
        "min",
        "next",
        "oct",
        "ord",
        "pow",
        "range",
        "repr",
        "reversed",
        "round",
        "set",
        "slice",
        "sorted",
        "str",
        "sum",
        "tuple",
        "type",
        "zip",
        "object",
        "super",
        "property",
        "staticmethod",
        "classmethod",
    ]
)
_PURE_MODULES = (math, operator, itertools)
PURE: frozenset[int] = PURE_BUILTINS | frozenset(
    id(value)
    for module in _PURE_MODULES
    for name, value in vars(module).items()
    if callable(value) and name not in ("attrgetter", "itemgetter", "methodcaller", "call")
)
PURE |= frozenset(
    map(
        id,
        (
            collections.OrderedDict,
            collections.deque,
            collections.defaultdict,
            collections.Counter,
            functools.partial,
            functools.reduce,
            types.MethodType,
            types.SimpleNamespace,
            types.MappingProxyType,
            torch.Size,
            torch.device,
            torch.finfo,
            torch.iinfo,
            torch.is_tensor,
            torch.is_storage,
            torch.jit.is_scripting,
            torch.jit.is_tracing,
            torch.promote_types,
            torch.result_type,
            torch.can_cast,
            typing.cast,
            inspect.signature,
            inspect.isfunction,
            inspect.ismethod,
            inspect.isclass,
        ),
    )
)

# Types whose methods are pure but for those named below.
_PLAIN_OF_TORCH = (torch.Size, torch.dtype)
PLAIN_OWNERS = (
    *(str, bytes, int, float, bool, complex, tuple, frozenset, range, slice, types.MappingProxyType),
    *_PLAIN_OF_TORCH,
)
CONTAINERS = (list, dict, set, tuple, collections.deque, frozenset)
MUTATING = frozenset(
    [
        "append",
        "extend",
        "insert",
        "clear",
        "add",
        "update",
        "appendleft",
        "extendleft",
        "pop",
        "popitem",
        "popleft",
        "remove",
        "discard",
        "sort",
        "reverse",
        "setdefault",
        "move_to_end",
        "rotate",
        "difference_update",
        "intersection_update",
        "symmetric_difference_update",
        "__setitem__",
        "__delitem__",
        "__iadd__",
        "__imul__",
        "__ior__",
        "__iand__",
        "__isub__",
        "__ixor__",
    ]
)
# methods that change a container without having looked into it
BLIND = frozenset({"append", "extend", "insert", "clear", "add", "update", "appendleft", "extendleft"})

# Reads of a tensor that ask for nothing in its memory: attributes, and methods.
METADATA_ATTRIBUTES = frozenset(
    [
        "shape",
        "dtype",
        "device",
        "layout",
        "ndim",
        "requires_grad",
        "is_leaf",
        "is_cuda",
        "is_cpu",
        "is_sparse",
        "is_quantized",
        "is_meta",
        "is_nested",
        "is_mkldnn",
        "is_mps",
        "is_xpu",
        "is_sparse_csr",
        "itemsize",
        "nbytes",
        "names",
        "retains_grad",
    ]
)
METADATA_METHODS = frozenset(
    [
        "size",
        "dim",
        "ndimension",
        "numel",
        "nelement",
        "stride",
        "is_contiguous",
        "is_floating_point",
        "is_complex",
        "is_signed",
        "element_size",
        "storage_offset",
        "get_device",
        "is_conj",
        "is_neg",
        "is_inference",
        "__len__",
        "is_shared",
        "is_pinned",
        "dense_dim",
        "sparse_dim",
        "is_same_size",
    ]
)
# metadata that the guards of graphs for backends tell nothing of (see sources.description)
NOT_DESCRIBED = frozenset(
    ["is_leaf", "is_nested", "names", "retains_grad", "storage_offset", "is_inference", "is_shared", "is_pinned"]
)
# functions that give a tuple of so many tensors, whatever the sizes
FIXED_COUNT = frozenset(
    map(
        id,
        (
            *(torch.lstm, torch.gru, torch.rnn_tanh, torch.rnn_relu, torch.lstm_cell, torch.std_mean, torch.var_mean),
            *(torch.native_layer_norm, torch.native_batch_norm, torch.native_group_norm, torch.native_dropout),
            *(torch._C._nn.max_pool2d_with_indices, torch._C._nn.max_pool3d_with_indices),
        ),
    )
)
# metadata that follow from sizes
BY_SIZES = frozenset(["stride", "nbytes", "is_contiguous"])
# metadata that a write to another tensor may change
HISTORY = frozenset({"requires_grad", "is_leaf", "retains_grad", "grad_fn"})

# Functions that ask for the state of the thread or the process.
STATE_READS = frozenset(
    map(
        id,
        (
            torch.is_grad_enabled,
            torch.is_inference_mode_enabled,
            torch.get_default_dtype,
            torch.is_autocast_enabled,
            torch.get_autocast_dtype,
            torch.is_autocast_cache_enabled,
            torch.is_anomaly_enabled,
            torch.are_deterministic_algorithms_enabled,
            torch.get_float32_matmul_precision,
            torch.backends.mha.get_fastpath_enabled,
            torch.cuda.is_available,
            torch._C._get_tracing_state,
            torch._C._get_cudnn_enabled,
            torch._C._is_any_autocast_enabled,
            torch._C._is_autocast_available,
            torch._C._get_privateuse1_backend_name,
            torch.compiler.is_exporting,
            torch.cuda.is_current_stream_capturing,
            torch.xpu.is_current_stream_capturing,
            torch.get_deterministic_debug_mode,
            torch.distributed.is_available,
            torch.distributed.is_initialized,
        ),
    )
)
# Functions that ask whether the code is being compiled: it is, where it is interpreted.
ASKS_WHETHER_COMPILING = frozenset(map(id, (torch.compiler.is_compiling, torch.compiler.is_dynamo_compiling)))
# Functions that set it; they are called each time.
STATE_WRITES = frozenset(
    map(
        id,
        (
            torch.set_autocast_enabled,
            torch.set_autocast_dtype,
            torch.set_autocast_cache_enabled,
            torch.autocast_increment_nesting,
            torch.autocast_decrement_nesting,
            torch.clear_autocast_cache,
            torch.set_default_dtype,
            torch._C._set_grad_enabled,
        ),
    )
)

# by the name of a function that sets a mode, the name of the one that tells
READ_BY = {
    "_set_grad_enabled": "is_grad_enabled",
    "set_autocast_enabled": "is_autocast_enabled",
    "set_autocast_dtype": "get_autocast_dtype",
    "set_autocast_cache_enabled": "is_autocast_cache_enabled",
    "set_default_dtype": "get_default_dtype",
}

_TORCH = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
# Files whose functions torch's modes hear as one call.
OVERRIDABLE = tuple(
    os.path.join(_TORCH, *parts) for parts in (("nn", "functional.py"), ("functional.py",), ("_tensor.py",))
)
# of which some functions hand on to nobody that they were called
_FUNCTIONS_OF_LAYERS = OVERRIDABLE[0]
# Files of torch's that are interpreted: what stands between the user's code and functions.
INTERPRETED = (
    os.path.join(_TORCH, "nn", "modules", ""),
    os.path.join(_TORCH, "autograd", "grad_mode.py"),
    os.path.join(_TORCH, "amp", "autocast_mode.py"),
    os.path.join(_TORCH, "utils", "_contextlib.py"),
    os.path.join(_TORCH, "_jit_internal.py"),
    os.path.join(_TORCH, "nn", "utils", "parametrize.py"),
    os.path.join(_TORCH, "nn", "utils", "parametrizations.py"),
)
NATIVE_OF_MODULES = frozenset(
    getattr(torch.nn.Module, name).__code__
    for name in [
        "__getattr__",
        "__setattr__",
        "__delattr__",
        "register_buffer",
        "register_parameter",
        "register_module",
        "add_module",
        "register_forward_hook",
        "register_forward_pre_hook",
        "register_full_backward_hook",
        "__init__",
        "state_dict",
        "load_state_dict",
        "_apply",
        "apply",
        "to",
        "cuda",
        "cpu",
        "half",
        "float",
        "double",
        "train",
        "eval",
        "requires_grad_",
        "zero_grad",
    ]
    if isinstance(getattr(torch.nn.Module, name, None), types.FunctionType)
)


# those that change what modules are made of, which was read before and is not put back where a run is taken over
_REBUILDS_MODULES = frozenset(
    [
        *("register_buffer", "register_parameter", "register_module", "add_module", "register_forward_hook"),
        *("register_forward_pre_hook", "register_full_backward_hook", "register_full_backward_pre_hook"),
        *("register_backward_hook", "register_state_dict_post_hook", "register_state_dict_pre_hook"),
        *("register_load_state_dict_post_hook", "register_load_state_dict_pre_hook"),
    ]
)
_OF_HANDLES = ("RemovableHandle.remove", "RemovableHandle.__exit__")


def rebuilds_modules(function: Any) -> bool:
    """Whether a method of torch's changes what modules consist of: hooks, parameters, submodules."""
    plain = getattr(function, "__func__", function)
    if not isinstance(plain, types.FunctionType) or not plain.__code__.co_filename.startswith(_TORCH):
        return False
    return plain.__qualname__ in _OF_HANDLES or plain.__qualname__.removeprefix("Module.") in _REBUILDS_MODULES


def is_pythons_of_torch(function: types.FunctionType) -> bool:
    """Whether a function of torch's is written in Python, as an optimizer's ``step`` is, which writes to objects."""
    return function.__code__.co_filename.startswith(_TORCH)


def is_native_of_modules(function: types.FunctionType) -> bool:
    """Whether it is a method of torch's modules that is called as it is. torch's own compiler replaces their
    ``__init__`` by one of its own when it is first used."""
    if function.__code__ in NATIVE_OF_MODULES:
        return True
    return function is vars(torch.nn.Module)["__init__"] and function.__code__.co_filename.startswith(_TORCH)


def is_helper_of_torch(code: types.CodeType) -> bool:
    """Whether modes hear nothing of a function of torch's that layers call: what it calls is heard."""
    return code.co_filename == _FUNCTIONS_OF_LAYERS and "handle_torch_function" not in code.co_names


def is_of_namedtuples(namespace: dict[str, Any]) -> bool:
    """Whether a namespace is that of the ``__new__`` which a namedtuple gets: nobody else sees it."""
    return namespace.get("_tuple_new") is tuple.__new__ and str(namespace.get("__name__")).startswith("namedtuple_")


def is_of_layers(code: types.CodeType) -> bool:
    """Whether code is that of torch's own layers: some compute something else where they are compiled, to spare
    torch's own compiler what we have no trouble with."""
    return code.co_filename.startswith(INTERPRETED)


# what `with` does to modes of the thread
MODES = (torch.no_grad, torch.enable_grad, torch.set_grad_enabled, torch.inference_mode, torch.autocast)

# Modules whose functions change nothing that Python code reads: called each time, and trusted with that.
_TRUSTED = ("numpy", "time", "random", "datetime", "logging", "warnings", "torch", "_io", "io", "math", "secrets")


def is_trusted(function: Any) -> bool:
    """Whether a function that has to be called each time leaves alone what was read before."""
    module = getattr(function, "__module__", None)
    owner = getattr(function, "__self__", None)
    if not isinstance(module, str) or module == "builtins":
        module = type(owner).__module__ if owner is not None else module
    if not isinstance(module, str):
        module = type(function).__module__
    return function is print or module.partition(".")[0] in _TRUSTED


def is_of_torch(function: Any) -> bool:
    """Whether a callable is one of torch's that is written in C, or an operator."""
    if isinstance(function, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
        return True
    owner = getattr(function, "__self__", None)
    if issubclass(type(owner), torch.Tensor):  # an object may have a __class__ of its own, which runs code
        return True
    if isinstance(function, types.BuiltinFunctionType):
        if owner is torch._C._VariableFunctions:
            return True
        module = getattr(function, "__module__", None) or getattr(owner, "__name__", "")
        return isinstance(module, str) and module.startswith("torch")
    objclass = getattr(function, "__objclass__", None)
    if objclass is torch._C.TensorBase:
        return True
    if isinstance(function, types.FunctionType):
        return function.__code__.co_filename in OVERRIDABLE
    return False


def is_users_class(kind: type) -> bool:
    """Whether a class is written in Python, by somebody who isn't torch or Python."""
    is_theirs = (
        not is_library(kind.__module__) or kind.__module__ == "types"
    )  # make_dataclass() and new_class() say that
    return bool(kind.__flags__ & (1 << 9)) and is_theirs


# operators and attributes of tensors that write to them
_WRITING_METHODS = frozenset(
    [
        *("__set__", "__delete__", "__setitem__", "backward"),
        *(f"__i{name}__" for name in ("add", "sub", "mul", "truediv", "floordiv", "div", "mod", "pow", "matmul")),
        *(f"__i{name}__" for name in ("and", "or", "xor", "lshift", "rshift")),
    ]
)
# those of them that end with "_" and belong to Python alone, and change no sizes
_KEEPS_SIZES = frozenset({"requires_grad_", "share_memory_", "rename_", "backward"})


def writes(function: Any) -> bool:
    """Whether a function of torch's writes to a tensor that it is given."""
    name = str(getattr(function, "__name__", ""))
    return name in _WRITING_METHODS or (name.endswith("_") and not name.endswith("__"))


@functools.cache
def _keeps_sizes(name: str) -> bool:
    packet = getattr(torch.ops.aten, name, None)
    if packet is None:
        return name in _KEEPS_SIZES
    return not any(torch.Tag.inplace_view in getattr(packet, overload).tags for overload in packet.overloads())


def reshapes(function: Any) -> bool:
    """Whether a function that writes may give a tensor other sizes, strides or another dtype."""
    name = str(getattr(function, "__name__", ""))
    if name in ("__set__", "__delete__"):
        return getattr(function.__self__, "__name__", "") not in ("grad", "requires_grad")
    return not (name in _WRITING_METHODS or _keeps_sizes(name))


def gives_back(function: Any, arguments: Any, keywords: dict[str, Any]) -> bool:
    """Whether the result of a function of torch's is always the tensor that it writes to."""
    name = str(getattr(function, "__name__", ""))
    return "out" in keywords or (writes(function) and (not name.startswith("__") or name.startswith("__i")))


# Functions whose results have sizes that hang on data.
_SIZES_OF_DATA = frozenset(
    [
        *("nonzero", "argwhere", "masked_select", "unique", "unique_consecutive", "unique_dim", "_unique2"),
        *("bincount", "repeat_interleave", "combinations", "cartesian_prod", "where", "to_sparse", "coalesce"),
        *("tensor_split", "set_", "resize_", "resize_as_", "set_data", "__set__"),
    ]
)


def gives_sizes_by_sizes(function: Any, arguments: Any) -> bool:
    """Whether the metadata of a function's result follow from the metadata of what it is given."""
    name = getattr(function, "__name__", "")
    if name == "where" and len(arguments) == 3:
        return True
    if name in ("__getitem__", "index"):
        keys = arguments[1] if isinstance(arguments[1], (tuple, list)) else arguments[1:2]
        return not any(isinstance(key, list) or _is_mask(key) for key in keys)
    return name not in _SIZES_OF_DATA and is_of_torch(function)


def _is_mask(key: Any) -> bool:
    return isinstance(key, torch.Tensor) and key.dtype in (torch.bool, torch.uint8)
