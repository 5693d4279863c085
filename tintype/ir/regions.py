"""Regions of a program that run in another of torch's modes: without gradients, or with automatic casts.

While a program is recorded, and while it is on its way to the functional stage, nodes say in which region they are:
``meta.region`` has the settings that differ from the mode the graph as a whole is called in, outermost first. A
program of the training stage has operators instead that run a graph under a setting, one operator per kind of it.
"""

from __future__ import annotations

from typing import Any


class Setting:
    """One of torch's modes in a certain position; ``arguments`` says which, as its operator takes it."""

    __slots__ = ("arguments",)

    def __init__(self, *arguments: Any) -> None:
        self.arguments = arguments

    def __repr__(self) -> str:
        return f"{type(self).__name__}{self.arguments}"


class GradMode(Setting):
    """Whether autograd takes notice of what runs: ``GradMode(False)`` is ``torch.no_grad()``."""

    __slots__ = ()

    @property
    def enabled(self) -> bool:
        """Whether it does."""
        return bool(self.arguments[0])


class Autocast(Setting):
    """``torch.autocast``: device type, dtype, whether it is enabled, whether casts of parameters are kept."""

    __slots__ = ()


# The settings of a node, outermost first. Nodes belong to the same region if they have the same objects here: two
# autocast regions in a row are two.
Region = tuple[Setting, ...]

GRAD_MODES = {False: GradMode(False), True: GradMode(True)}


def is_without_gradients(region: Region, around: bool = False) -> bool:
    """Whether autograd takes no notice of a region; ``around``, whether it takes none of the graph as a whole."""
    for setting in reversed(region):
        if isinstance(setting, GradMode):
            return not setting.enabled
    return around
