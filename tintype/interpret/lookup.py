"""Looking things up as the interpreter in C does, without running code."""

from __future__ import annotations

from types import FunctionType
from typing import TYPE_CHECKING, Any

from tintype.interpret.frame import NULL

if TYPE_CHECKING:
    from tintype.interpret.machine import Machine


# As they are, whatever a metaclass says.
bases_of: Any = type.__dict__["__mro__"].__get__
namespace_of: Any = type.__dict__["__dict__"].__get__


def find_in_class(owner: type, name: str) -> Any:
    """What a class or a base has under a name, as it stands in the class; NULL if there is nothing."""
    for base in bases_of(owner) or ():  # a class of C's that nobody has asked for anything yet has none
        found = namespace_of(base).get(name, NULL)
        if found is not NULL:
            return found
    return NULL


class SpecialMethods(dict[type, bool]):
    """Whether a class has a special method that is interpreted; a class is looked at when it is first seen.

    A class that gets such a method later has it called natively, which is right too.
    """

    def __init__(self, name: str, machine: Machine) -> None:
        super().__init__()
        self.name = name
        self.machine = machine

    def __missing__(self, owner: type) -> bool:
        answer = self[owner] = self.machine.interprets(find_in_class(owner, self.name))
        return answer

    def of(self, owner: Any) -> FunctionType | None:
        """The method of an object as it is now; None if it is to be called natively."""
        found = find_in_class(type(owner), self.name)
        return found if self.machine.interprets(found) else None
