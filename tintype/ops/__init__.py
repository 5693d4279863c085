"""Operators that take programs or operators as arguments: one file each, with all their rules."""

from tintype.ops import associative_scan, auto_functionalized, cond, map, scan, while_loop

__all__ = ["associative_scan", "auto_functionalized", "cond", "map", "scan", "while_loop"]
