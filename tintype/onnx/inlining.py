"""Functions of a model, written out where they are called."""

from __future__ import annotations

from onnx_ir.passes.common import InlinePass

from tintype.onnx.libraries import ir


def inlined(model: ir.Model) -> ir.Model:
    """A model without functions; it may be changed for that. The sizes inside of a function are those of one call of
    it, which others need not have."""
    if not model.functions:
        return model
    for function in model.functions.values():
        for node in ir.traversal.RecursiveGraphIterator(function):
            for value in node.outputs:
                value.shape = None
    return InlinePass()(model).model
