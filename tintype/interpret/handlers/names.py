"""Globals, names of class bodies and modules, cells, imports."""

from __future__ import annotations

from types import CellType
from typing import Any

from tintype.interpret.frame import NULL, Frame
from tintype.interpret.handlers.registry import handler, hooked
from tintype.interpret.native import native_opcode


def not_defined(name: str) -> NameError:
    return NameError(f"name '{name}' is not defined", name=name)


def find_global(frame: Frame, name: str) -> Any:
    """A global or a builtin."""
    value = found_in(frame.globals, name)
    if value is NULL:
        value = found_in(frame.builtins, name)
        if value is NULL:
            raise not_defined(name)
    return value


def found_in(namespace: Any, name: str) -> Any:
    """An item of a mapping, which may be of any class; NULL: there is none."""
    if namespace.__class__ is dict:
        return namespace.get(name, NULL)
    try:
        return namespace[name]
    except KeyError:
        return NULL


@handler
def load_global(frame: Frame, name: str) -> None:
    value = frame.globals.get(name, NULL)
    frame.stack.append(find_global(frame, name) if value is NULL else value)


@handler
def null_and_load_global(frame: Frame, name: str) -> None:
    value = frame.globals.get(name, NULL)
    frame.stack += (NULL, find_global(frame, name) if value is NULL else value)


@hooked("on_read_global", "load_global")
def load_global_hooked(frame: Frame, name: str) -> None:
    try:
        value = find_global(frame, name)
    except NameError:
        frame.machine.policy.on_read_global(frame, name, NULL)
        raise
    frame.stack.append(frame.machine.policy.on_read_global(frame, name, value))


@hooked("on_read_global", "null_and_load_global")
def null_and_load_global_hooked(frame: Frame, name: str) -> None:
    frame.stack.append(NULL)
    load_global_hooked(frame, name)


@handler
def store_global(frame: Frame, name: str) -> None:
    frame.globals[name] = frame.stack.pop()


@hooked("on_write_global", "store_global")
def store_global_hooked(frame: Frame, name: str) -> None:
    frame.machine.policy.on_write_global(frame, name, frame.stack[-1])
    store_global(frame, name)


@handler
def delete_global(frame: Frame, name: str) -> None:
    if frame.globals.pop(name, NULL) is NULL:
        raise not_defined(name)


@hooked("on_write_global", "delete_global")
def delete_global_hooked(frame: Frame, name: str) -> None:
    frame.machine.policy.on_write_global(frame, name, NULL)
    delete_global(frame, name)


def namespace_of(frame: Frame) -> Any:
    if frame.names is None:
        raise SystemError("no locals")
    return frame.names


@handler
def load_name(frame: Frame, name: str) -> None:
    value = found_in(namespace_of(frame), name)
    frame.stack.append(find_global(frame, name) if value is NULL else value)


@hooked("on_read_global", "load_name")
def load_name_hooked(frame: Frame, name: str) -> None:
    value = NULL if frame.names is frame.globals else found_in(namespace_of(frame), name)
    if value is NULL:
        load_global_hooked(frame, name)
    else:
        frame.stack.append(value)


@handler
def store_name(frame: Frame, name: str) -> None:
    namespace_of(frame)[name] = frame.stack.pop()


@hooked("on_write_global", "store_name")
def store_name_hooked(frame: Frame, name: str) -> None:
    if frame.names is frame.globals:
        frame.machine.policy.on_write_global(frame, name, frame.stack[-1])
    store_name(frame, name)


@handler
def delete_name(frame: Frame, name: str) -> None:
    if not deleted_from(namespace_of(frame), name):
        raise not_defined(name)


def deleted_from(namespace: Any, name: str) -> bool:
    try:
        del namespace[name]
    except KeyError:
        return False
    return True


@hooked("on_write_global", "delete_name")
def delete_name_hooked(frame: Frame, name: str) -> None:
    if frame.names is frame.globals:
        frame.machine.policy.on_write_global(frame, name, NULL)
    delete_name(frame, name)


@handler
def load_locals(frame: Frame, _: None) -> None:
    frame.stack.append(namespace_of(frame))


@handler
def load_from_dict_or_globals(frame: Frame, name: str) -> None:
    value = found_in(frame.stack.pop(), name)
    frame.stack.append(find_global(frame, name) if value is NULL else value)


@handler
def setup_annotations(frame: Frame, _: None) -> None:
    if found_in(namespace_of(frame), "__annotations__") is NULL:
        namespace_of(frame)["__annotations__"] = {}


# Cells.


@handler
def make_cell(frame: Frame, index: int) -> None:
    value = frame.locals[index]
    frame.locals[index] = CellType() if value is NULL else CellType(value)


@hooked("on_create", "make_cell")
def make_cell_hooked(frame: Frame, index: int) -> None:
    make_cell(frame, index)
    frame.machine.policy.on_create(frame, frame.locals[index])


@handler
def copy_free_variables(frame: Frame, count: int) -> None:
    assert frame.function is not None and frame.function.__closure__ is not None
    frame.locals[-count:] = frame.function.__closure__


def unbound_cell(frame: Frame, index: int) -> NameError:
    name = frame.decoded.names[index]
    if name in frame.code.co_freevars:
        fact = f"cannot access free variable '{name}' where it is not associated with a value in enclosing scope"
        return NameError(fact, name=name)
    return UnboundLocalError(f"cannot access local variable '{name}' where it is not associated with a value")


@handler
def load_cell(frame: Frame, index: int) -> None:
    value = content_of(frame.locals[index])
    if value is NULL:
        raise unbound_cell(frame, index)
    frame.stack.append(value)


def content_of(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return NULL


@hooked("on_read_cell", "load_cell")
def load_cell_hooked(frame: Frame, index: int) -> None:
    load_cell(frame, index)
    cell, name = frame.locals[index], frame.decoded.names[index]
    frame.stack[-1] = frame.machine.policy.on_read_cell(frame, cell, name, frame.stack[-1])


@handler
def store_cell(frame: Frame, index: int) -> None:
    frame.locals[index].cell_contents = frame.stack.pop()


@hooked("on_write_cell", "store_cell")
def store_cell_hooked(frame: Frame, index: int) -> None:
    cell, name = frame.locals[index], frame.decoded.names[index]
    frame.machine.policy.on_write_cell(frame, cell, name, frame.stack[-1])
    store_cell(frame, index)


@handler
def delete_cell(frame: Frame, index: int) -> None:
    if content_of(frame.locals[index]) is NULL:
        raise unbound_cell(frame, index)
    del frame.locals[index].cell_contents


@hooked("on_write_cell", "delete_cell")
def delete_cell_hooked(frame: Frame, index: int) -> None:
    frame.machine.policy.on_write_cell(frame, frame.locals[index], frame.decoded.names[index], NULL)
    delete_cell(frame, index)


@handler
def load_class_cell(frame: Frame, index: int) -> None:
    frame.stack.append(namespace_of(frame))
    load_from_dict_or_cell(frame, index)


@handler
def load_from_dict_or_cell(frame: Frame, index: int) -> None:
    value = found_in(frame.stack.pop(), frame.decoded.names[index])
    if value is NULL:
        load_cell(frame, index)
    else:
        frame.stack.append(value)


# Imports.


@handler
def import_name(frame: Frame, name: str) -> None:
    from_list = frame.stack.pop()
    level = frame.stack.pop()
    import_it = found_in(frame.builtins, "__import__")
    if import_it is NULL:
        raise ImportError("__import__ not found")
    frame.stack.append(import_it(name, frame.globals, frame.names, from_list, level))


@handler
def import_from(frame: Frame, name: str) -> None:
    frame.stack.append(native_opcode("IMPORT_FROM", 0, operands=1, kept=1, name=name)(frame.stack[-1]))


@hooked("on_read_attribute", "import_from")
def import_from_hooked(frame: Frame, name: str) -> None:
    module = frame.stack[-1]
    import_from(frame, name)
    frame.stack[-1] = frame.machine.policy.on_read_attribute(frame, module, name, frame.stack[-1])


@handler
def import_star(frame: Frame, _: None) -> None:
    module = frame.stack.pop()
    namespace = namespace_of(frame)
    names = getattr(module, "__all__", None)
    skips_private = names is None
    if names is None:
        names = list(module.__dict__)
    for name in names:
        if not isinstance(name, str):
            kind, place = ("Key", "__dict__") if skips_private else ("Item", "__all__")
            owner = module.__name__
            raise TypeError(f"{kind} in {owner}.{place} must be str, not {type(name).__name__}")
        if not (skips_private and name.startswith("_")):
            namespace[name] = getattr(module, name)


@handler
def import_star_of_one(frame: Frame, _: None) -> None:
    import_star(frame, None)
    frame.stack.append(None)
