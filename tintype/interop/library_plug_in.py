"""What transformers and diffusers need: all that is known of these libraries stands here.

Which of their classes are containers, what stands for them where the libraries are not, and which functions are
captured in another form than they are written in (``FORMS``).

Classes are recognised by the names of their modules and bases; neither library is imported. Caches are containers of
their attributes, batches of what a tokenizer or processor made are dictionaries, and outputs of models register
themselves. A program that is loaded where the library is not has classes of the same names in their place, which are
made here: an object with the same attributes, or a dictionary whose entries are attributes, too.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable, Mapping
from typing import Any

import torch.utils._pytree as pytree

from tintype import tree
from tintype.interop.general_forms import Form

_CACHES = "transformers.cache_utils"
_CACHE_CLASSES = ("Cache", "CacheLayerMixin", "LinearAttentionCacheLayerMixin")
_BATCHES = ("BatchEncoding", "BatchFeature")
_OUTPUTS = ("ModelOutput", "BaseOutput")

# Numbers of caches that are a model's and not a call's.
_SETTINGS = frozenset(
    {
        "axis_key", "axis_value", "conv_kernel_size", "k_head_dim", "max_cache_len", "nbits", "num_heads",
        "number_of_states", "q_group_size", "residual_length", "sliding_window", "v_head_dim",
    }
)  # fmt: skip
# Where classes are found by name; these modules are loaded with their library, others are left alone.
_OWN_MODULES = (_CACHES, "transformers.modeling_outputs", "transformers.tokenization_utils_base")

# Functions whose own form decides more about sizes than it has to; see tintype.interop.general_forms.
FORMS = (
    # a window holds one token less than it is wide
    Form(
        "transformers.cache_utils",
        "DynamicSlidingWindowLayer.get_mask_sizes",
        "d8852834e5a31c9c",
        (
            ("max(self.cumulative_length", "torch.sym_max(self.cumulative_length"),
            ("if is_full:", "if True:"),
            (
                "kv_length = self.sliding_window - 1 + query_length",
                "kv_length = torch.sym_min(self.cumulative_length, self.sliding_window - 1) + query_length",
            ),
        ),
    ),
    # nothing that is computed of the mask is looked at where the program is captured
    Form(
        "transformers.masking_utils",
        "_ignore_causal_mask_sdpa",
        "f88392eb1a18586f",
        (
            (
                "padding_mask is not None and padding_mask.shape[-1] > kv_length:",
                "padding_mask is not None and not is_tracing(padding_mask) and padding_mask.shape[-1] > kv_length:",
            ),
        ),
    ),
    # with a mask, and where every token sees all others, it makes no difference whether there are several tokens
    Form(
        "transformers.integrations.sdpa_attention",
        "sdpa_attention_forward",
        "ff9990d5fb108636",
        (
            (
                "q_length > 1 and attention_mask is None and is_causal",
                "attention_mask is None and is_causal and q_length > 1",
            ),
        ),
    ),
    # positions of one row are those of all rows, and one row is, too
    Form(
        "transformers.masking_utils",
        "_preprocess_mask_arguments",
        "0dc9db47f338ad58",
        (("if batch_size != position_ids.shape[0]:", "if True:"),),
    ),
    # since 5.23, which packs the heads of one token only where nothing captures it
    Form(
        "transformers.integrations.sdpa_attention",
        "sdpa_attention_forward",
        "46b9cd9ef42e6920",
        (
            (
                "q_length > 1 and attention_mask is None and is_causal",
                "attention_mask is None and is_causal and q_length > 1",
            ),
            ("q_length == 1 and not is_torchdynamo_compiling()", "not is_torchdynamo_compiling() and q_length == 1"),
        ),
    ),
    # nothing is put before states that are long enough, and nothing is cut off what was not made longer
    Form(
        "transformers.cache_utils",
        "LinearAttentionLayer.update_conv_state",
        "096b1ec2877a105c",
        (
            (
                "if not self.record_past and full_conv_states.shape[-1] < self.conv_kernel_size[state_idx]:",
                "if not self.record_past:",
            ),
            (
                "self.conv_kernel_size[state_idx] - full_conv_states.shape[-1]",
                "torch.sym_max(self.conv_kernel_size[state_idx] - full_conv_states.shape[-1], 0)",
            ),
        ),
    ),
    # a counter that is where it is to be is itself, which is written to
    Form(
        "transformers.cache_utils",
        "StaticLayer.lazy_initialization",
        "29c77870e3e05ded",
        (
            (
                "self.cumulative_length.to(self.device)",
                "(lambda it: it if it.device == self.device else it.to(self.device))(self.cumulative_length)",
            ),
        ),
    ),
    Form(
        "transformers.models.mamba2.modeling_mamba2",
        "mamba2_chunk_scan",
        "6be21d0d221053d4",
        (("    if pad_size > 0:", "    if True:"),),
    ),
)


def register(cls: type) -> bool:
    """Register a class if its objects are containers; whether they are."""
    if _is_cache(cls):
        tree.register_attributes(cls, _SETTINGS, None, _attributes_of_cache, _UNTOLD)
        return True
    if _has_base(cls, _BATCHES):
        _register_batch(cls, None)
        return True
    return False


def _attributes_of_cache(cache: Any) -> Mapping[str, Any]:
    """Of which class further layers are is not asked of a cache that has layers: one for every layer of its model."""
    attributes = vars(cache)
    if attributes.get("layers") and _UNTOLD[0] in attributes:
        return {**attributes, _UNTOLD[0]: None}
    return attributes


_UNTOLD = ("layer_class_to_replicate",)


def _register_batch(cls: type, name: str | None) -> None:
    make: Any = cls
    tree.register_container(cls, lambda batch: (dict(batch), None), lambda entries, _: make(entries), name=name)


def _is_cache(cls: type) -> bool:
    """A cache, or a part of one; models have some that are not derived from the library's own."""
    return any(
        (base.__module__ == _CACHES and base.__name__ in _CACHE_CLASSES)
        or (base.__module__.startswith("transformers.models.") and base.__name__.endswith("Cache"))
        for base in cls.__mro__
    )


def _has_base(cls: type, names: tuple[str, ...]) -> bool:
    return any(base.__name__ in names for base in cls.__mro__)


def type_named(name: str) -> type | None:
    """The class that a file means: the library's own where it is loaded, otherwise a stand-in."""
    module, _, class_name = name.rpartition(".")
    loaded = sys.modules.get(module)
    if loaded is None and module in _OWN_MODULES and sys.modules.get(module.partition(".")[0]) is not None:
        loaded = importlib.import_module(module)
    if loaded is None:
        return _stand_in(module, class_name)
    cls = vars(loaded).get(class_name)
    if not isinstance(cls, type) or not (_is_cache(cls) or _has_base(cls, (*_BATCHES, *_OUTPUTS))):
        return None
    tree.register_known(cls)
    return cls


# --- stand-ins -------------------------------------------------------------------------------------------


class AttributesOf:
    """An object with the attributes that a cache has."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={_shown(item)}' for name, item in vars(self).items())})"


class EntriesOf(dict[str, Any]):
    """A dictionary whose entries are attributes, and which has them by position, as the outputs of models do."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"{type(self).__name__} has {', '.join(self)}, but no {name}") from None

    def __getitem__(self, key: Any) -> Any:
        return super().__getitem__(key) if isinstance(key, str) else self.to_tuple()[key]

    def to_tuple(self) -> tuple[Any, ...]:
        """All entries in their order."""
        return tuple(self.values())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={_shown(item)}' for name, item in self.items())})"


def _shown(item: Any) -> str:
    if hasattr(item, "shape"):
        return f"tensor{list(item.shape)}"
    if isinstance(item, (list, tuple)):
        return f"[{', '.join(map(_shown, item))}]"
    return item.__name__ if isinstance(item, type) else repr(item)


_stand_ins: dict[str, type] = {}


def _stand_in(module: str, class_name: str) -> type | None:
    if not class_name.isidentifier() or not all(part.isidentifier() for part in module.split(".")):
        return None
    name = f"{module}.{class_name}"
    if name not in _stand_ins:
        if len(_stand_ins) >= _MOST_STAND_INS:
            return None
        holds_attributes = module == _CACHES or class_name.endswith("Cache")
        cls = type(class_name, (AttributesOf if holds_attributes else EntriesOf,), {"__module__": module})
        if holds_attributes:
            tree.register_attributes(cls, _SETTINGS, name, _attributes_of_cache, _UNTOLD)
        elif class_name in _BATCHES:
            _register_batch(cls, name)
        else:
            _register_entries(cls, name)
        _stand_ins[name] = cls
    return _stand_ins[name]


# Files can't fill a process with classes.
_MOST_STAND_INS = 1000


def _register_entries(cls: Any, name: str) -> None:
    """As the libraries register the outputs of models: the structure is the names of the entries."""

    def rebuild(values: Iterable[Any], names: Any) -> Any:
        return cls(zip(names, values, strict=True))

    pytree.register_pytree_node(
        cls,
        lambda value: (list(value.values()), list(value)),
        rebuild,
        serialized_type_name=name,
        flatten_with_keys_fn=lambda value: (
            [(pytree.MappingKey(key), item) for key, item in value.items()],
            list(value),
        ),
    )
