"""Operators that take programs or operators as arguments: one file each, with all their rules."""

from tintype.ops import auto_functionalized, cond

__all__ = ["auto_functionalized", "cond"]
