"""Operators that take programs or operators as arguments: one file each, with all their rules."""
