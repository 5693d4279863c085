"""Methods of TorchBind objects: while a program is captured, a call of one is an operator of the program."""

from __future__ import annotations

from typing import Any

import torch

from tintype.ir.operators import callable_of
from tintype.ir.process_switches import CountedSwitch
from tintype.trace.recorder import active_recorder

_method = torch.ScriptMethod
# what torch itself calls of an object
_NOT_CAPTURED = frozenset({"__obj_flatten__", "__getstate__", "__setstate__"})


def _take_over() -> Any:
    call = _method.__call__

    def called(self: Any, *args: Any, **kwargs: Any) -> Any:
        owner = self.raw_owner
        # a recorder that handles an operator asks objects among its arguments itself, such as reductions
        is_program = active_recorder() is not None
        if not is_program or self.name in _NOT_CAPTURED or type(owner) is not torch.ScriptObject:
            return call(self, *args, **kwargs)
        return callable_of(torch.ops.higher_order.call_torchbind)(owner, self.name, *args, **kwargs)

    _method.__call__ = called  # type: ignore[method-assign]
    return call


def _give_back(call: Any) -> None:
    _method.__call__ = call  # type: ignore[method-assign]


script_methods = CountedSwitch(_take_over, _give_back)
