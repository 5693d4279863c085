"""TorchScript in: scripted and traced modules as programs.

A script's graph is interpreted inside of an ordinary capture, so that sizes that vary, control flow, decompositions,
files and gradients are those of every program. :mod:`.reading` makes plain objects of a graph, :mod:`.interpreter`
runs them, :mod:`.conversion` is where a user comes in.
"""
