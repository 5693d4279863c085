"""An interpreter of Python's bytecode on plain objects.

It knows nothing of torch: what is interpreted and who is told of what happens is said by a :class:`Policy`.
docs/interpreting.md says how it works.
"""

from __future__ import annotations

from tintype.interpret.errors import NotInterpretedError
from tintype.interpret.frame import NULL, RETURNED, STOPPED, YIELDED, Frame
from tintype.interpret.machine import Machine
from tintype.interpret.policy import Policy

__all__ = ["NULL", "RETURNED", "STOPPED", "YIELDED", "Frame", "Machine", "NotInterpretedError", "Policy"]
