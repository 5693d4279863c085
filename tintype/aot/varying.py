"""Graphs of a compiled function for inputs of several sizes: recorded once, with symbols in place of sizes.

What the function decided by sizes while it was recorded are conditions on them. Graphs are for calls that fulfil
these and are like the recorded one in everything else; who asks for the graphs sees to that.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import torch

from tintype import tree
from tintype.aot.arguments import SharedMemoryError
from tintype.aot.function import CachedGraphs, CompiledFunction, depends_on_offsets
from tintype.aot.reads import Reads
from tintype.aot.sizes import SizesThatVary


def graphs_for_sizes(
    function: CompiledFunction, inputs: Sequence[torch.Tensor], dims: Mapping[int, Collection[int]]
) -> tuple[CachedGraphs, SizesThatVary] | None:
    """Graphs for tensors of which some dimensions vary, each tensor another input; None where they depend on more."""
    leaves, spec = tree.flatten((tuple(inputs), {}))
    reads = Reads(function._function, function._root, [])
    sizes = SizesThatVary(dims)
    try:
        compiled, _ = function._compile(leaves, spec, None, reads, sizes)
    except SharedMemoryError:
        return None
    sizes.finish()
    if compiled.recording.state or compiled.recording.writes or depends_on_offsets(compiled, reads):
        return None
    return CachedGraphs((None,), compiled, [], reads, []), sizes
