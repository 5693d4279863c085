"""Programs in files: a documented format (docs/format.md) without code, safe to load from anybody."""

from tintype.serde.files import load, save
from tintype.serde.objects import register_object

__all__ = ["load", "register_object", "save"]
