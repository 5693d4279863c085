"""Globals, cells, items and attributes that a program reads and writes while it is captured."""

from __future__ import annotations

import builtins
import types
from types import CellType, FunctionType, MethodType, ModuleType
from typing import Any

import torch

from tintype.compiler import known
from tintype.compiler.known import CONTAINERS
from tintype.compiler.looking import Looking, callable_or_class
from tintype.compiler.plain_again import PlainAgain, fixed
from tintype.compiler.sources import Source, item_of
from tintype.interpret import Frame
from tintype.interpret.frame import NULL
from tintype.interpret.handlers.attributes import find_setter, instance_dictionary, setter_in_class
from tintype.interpret.lookup import find_in_class
from tintype.ir.call_values import PLAIN, is_library

# what switches of libraries are set to
_SWITCHES = (bool, int, float, str)
_OWN_MODULE_TABLES = ("_parameters", "_buffers", "_modules")


class Accesses(Looking):
    """Notes what the program reads, and writes to what was there before."""

    def on_read_global(self, frame: Frame, name: str, value: Any) -> Any:
        capture, namespace = self.capture, frame.globals
        if capture.reason is not None or (id(namespace), name) in capture.written:
            return self._shadow(namespace, name, value)
        if value is not NULL and capture.known_reads.get((id(namespace), name), NULL) is value:
            return value
        if is_library(namespace.get("__name__")) and (callable(value) or issubclass(type(value), ModuleType)):
            if not _is_users_function(value):
                return value
        if known.is_of_namedtuples(namespace):
            return value
        source = Source("constant", namespace)
        if name in namespace:
            if issubclass(type(value), ModuleType) and is_library(value.__name__):
                return value
            self._know(namespace, name, value)
            return capture.read_number(Source("item", name, source), value)
        capture.guard("absent", source, name)
        builtin = Source("constant", frame.builtins)
        if value is NULL:
            capture.guard("absent", builtin, name)
        elif isinstance(value, types.BuiltinFunctionType) and value.__self__ is builtins:
            capture.guard("is", Source("item", name, builtin), value)
            self._know(namespace, name, value)
        elif not isinstance(value, type):  # somebody has put it there
            return capture.read_number(Source("item", name, builtin), value)
        return value

    def _know(self, owner: Any, name: str, value: Any) -> None:
        """From now on, reading this value there is nothing new."""
        if type(value) not in (int, float) and not self.capture.again.given:  # else it is asked for each read
            self.capture.known_reads[id(owner), name] = value
            self.capture.kept.append(owner)

    def on_read_cell(self, frame: Frame, cell: CellType, name: str, value: Any) -> Any:
        capture = self.capture
        source = capture.sources.get(id(cell))
        if source is None and frame.function is not None and name in frame.code.co_freevars and frame.locals:
            first = type(frame.locals[0])
            if find_in_class(first, frame.code.co_name) is frame.function:  # a special method, which nobody read
                capture.register_parts(Source("constant", frame.function), frame.function)
                source = capture.sources.get(id(cell))
        if source is not None and (id(cell), None) not in capture.written:
            return capture.read_number(Source("cell", None, source), value)
        return self._shadow(cell, None, value)

    def _shadow(self, owner: Any, name: Any, value: Any) -> Any:
        """What the program stored there, where that is or holds a number that varies."""
        stored, found = self.capture.shadows.get((id(owner), name), (NULL, value))
        return found if stored is value or (type(value) in (int, float) and stored == value) else value

    def _store(self, owner: Any, name: Any, value: Any) -> Any:
        """What stands for a value in what was there before: numbers are plain ones there."""
        capture = self.capture
        if capture.has_numbers:
            if capture.reason is not None:
                return PlainAgain(capture.sources).value(value)
            stored = fixed(value)
            if stored is not value:
                capture.shadows[(id(owner), name)] = (stored, value)
                return stored
        capture.shadows.pop((id(owner), name), None)
        return value

    def on_read_item(self, frame: Frame | None, owner: Any, key: Any, value: Any) -> Any:
        capture = self.capture
        source = capture.sources.get(id(owner))
        if capture.reason is not None or source is None or isinstance(owner, torch.Tensor):
            return value
        if (id(owner), _key(key)) in capture.written:
            return self._shadow(owner, _key(key), value)
        if not isinstance(owner, CONTAINERS):
            if callable_or_class(owner):
                return value
            capture.give_up(f"an item of a {type(owner).__name__} is read")
        elif id(owner) in capture.originals or type(key) not in PLAIN:
            capture.look_into(owner)
        elif value is NULL:
            if isinstance(owner, dict):
                capture.guard("absent", source, key)
            else:
                capture.look_into(owner)
        else:
            return capture.read_number(item_of(owner, key, source), value)
        return value

    def on_read_attribute(self, frame: Frame, owner: Any, name: str, value: Any) -> Any:
        capture = self.capture
        if capture.reason is not None:
            return value
        if value is not NULL and capture.known_reads.get((id(owner), name), NULL) is value:
            return value
        kind = type(owner)
        match self.kinds[kind]:
            case "tensor":
                self._read_of_tensor(owner, name, value)
            case "module":
                self._read_of_python_module(owner, name, value)
            case "class":
                self._read_of_class_itself(owner, kind, name, value)
            case "super":
                self._read_of_super(owner, name)
            case "number":
                if type(value) is MethodType:  # whoever calls it gets the number as it is
                    return getattr(owner.settle(), name)
            case "instance" | "container":
                if (id(owner), name) not in capture.written:
                    if value is not NULL and id(owner) in capture.sources:
                        self._know(owner, name, value)
                    return self._read_of_instance(frame, owner, kind, name, value)
                return self._shadow(owner, name, value)
        return value

    def computes_attribute(self, frame: Frame, owner: Any, name: str) -> None:
        capture, kind = self.capture, type(owner)
        if capture.reason is not None:
            return
        for method in ("__getattribute__", "__getattr__", name):
            self.read_of_class(kind, method)
        found = find_in_class(kind, name)
        if found is NULL or not _is_data_descriptor(found):  # else what the object itself has would come first
            if name not in instance_dictionary(owner):
                self._guard_not_own(owner, capture.sources.get(id(owner)), name)
        if found is not NULL and known.is_users_class(type(found)):
            capture.note_class(type(found))
            self.read_of_class(type(found), "__get__")

    def _guard_not_own(self, owner: Any, source: Source | None, name: str) -> None:
        """An object has no attribute of that name of its own; one that it gets later would come first."""
        if source is not None and type(owner).__dictoffset__ and not self._is_written(owner, name):
            self.capture.guard("absent", Source("attribute", "__dict__", source), name)

    def _is_written(self, owner: Any, name: str) -> bool:
        written = self.capture.written
        return (id(owner), name) in written or (id(instance_dictionary(owner)), name) in written

    def _guard_missing(self, owner: Any, source: Source | None, name: str) -> None:
        """Nobody has an attribute of that name: neither an object nor, of a module, its parameters and the like."""
        self._guard_not_own(owner, source, name)
        if source is not None and issubclass(type(owner), torch.nn.Module):
            own, table = instance_dictionary(owner), Source("attribute", "__dict__", source)
            for part in _OWN_MODULE_TABLES:
                if part in own and (id(own[part]), name) not in self.capture.written:
                    self.capture.guard("absent", Source("item", part, table), name)

    def _read_of_tensor(self, owner: Any, name: str, value: Any) -> None:
        """Attributes that somebody attached, or might have attached, to a tensor that was there before."""
        source = self.capture.sources.get(id(owner))
        if source is None:
            return
        table = source.table
        if value is NULL:
            self.capture.guard("absent", table, name)
        elif name in owner.__dict__:
            self.capture.read(Source("item", name, table), value)

    def _read_of_python_module(self, owner: ModuleType, name: str, value: Any) -> None:
        capture = self.capture
        is_trusted = callable(value) or isinstance(value, ModuleType) or type(value) in PLAIN
        if is_library(owner.__name__) and is_trusted and not _is_users_function(value):
            if type(value) is MethodType and id(value.__self__) not in capture.sources:
                method = Source("item", name, Source("constant", owner.__dict__))
                capture.register(Source("attribute", "__self__", method), value.__self__)
            if isinstance(value, types.BuiltinFunctionType) and id(value) not in capture.sources:
                capture.register(Source("item", name, Source("constant", owner.__dict__)), value)
            if callable(value) and not isinstance(value, type) and name in owner.__dict__:
                # somebody may put another function there: tests, and those who know a quicker attention
                capture.guard("is", Source("item", name, Source("constant", owner.__dict__)), value)
                self._know(owner, name, value)
            elif type(value) in _SWITCHES and name not in owner.__dict__:  # such as torch.backends.mkldnn.enabled
                capture.guard("value", Source("attribute", name, Source("constant", owner)), value)
            elif type(value) is bool:
                capture.guard("value", Source("item", name, Source("constant", owner.__dict__)), value)
            return
        source = Source("constant", owner.__dict__)
        if (id(owner), name) in capture.written or (id(owner.__dict__), name) in capture.written:
            return
        if name == "__dict__":
            capture.register(source, value)
        elif value is NULL:
            capture.guard("absent", source, name)
        elif name in owner.__dict__:
            capture.read(Source("item", name, source), value)
        elif find_in_class(type(owner), name) is NULL:
            capture.give_up(f"{owner.__name__}.{name} is computed by the module's __getattr__, which runs natively")

    def _read_of_class_itself(self, owner: type, metaclass: type, name: str, value: Any) -> None:
        """An attribute of a class, which its metaclass may have or compute."""
        if known.is_users_class(metaclass):
            of_metaclass, found = find_in_class(metaclass, name), find_in_class(owner, name)
            self.read_of_class(metaclass, name)
            if found is NULL or _is_data_descriptor(of_metaclass):
                is_computed = hasattr(type(of_metaclass), "__get__") and type(of_metaclass) is not FunctionType
                if is_computed or (of_metaclass is NULL and value is not NULL):
                    self.capture.give_up(f"{owner.__name__}.{name} is computed by its metaclass natively")
        self.read_of_class(owner, name)

    def read_of_class(self, owner: type, name: str) -> None:
        """An attribute that a class has, or one of its bases."""
        capture = self.capture
        if capture.known_reads.get((id(owner), name), NULL) is owner:
            return
        capture.known_reads[id(owner), name] = owner
        capture.kept.append(owner)
        capture.note_class(owner)
        for base in owner.__mro__:
            found = base.__dict__.get(name, NULL)
            if found is NULL:
                continue
            is_layer = issubclass(base, torch.nn.Module) and base is not torch.nn.Module
            if (is_layer or not is_library(base.__module__)) and (id(base), name) not in capture.written:
                table = Source("constant", base).table
                if isinstance(found, FunctionType):
                    capture.guard("is", Source("item", name, table), found)
                    capture.rest_on_code(Source("item", name, table), found)
                else:
                    capture.read(Source("item", name, table), found)
            return

    def _read_of_super(self, owner: Any, name: str) -> None:
        proxy: Any = owner
        mro = proxy.__self_class__.__mro__
        for base in mro[mro.index(proxy.__thisclass__) + 1 :]:
            if name in base.__dict__:
                self.read_of_class(base, name)
                return

    def _read_of_instance(self, frame: Frame, owner: Any, kind: type, name: str, value: Any) -> Any:
        capture = self.capture
        source = capture.sources.get(id(owner))
        own = instance_dictionary(owner)
        in_class = find_in_class(kind, name)
        if (id(own), name) in capture.written:
            return self._shadow(own, name, value)
        table = None if source is None else source.table
        if name in own and not hasattr(type(in_class), "__set__"):
            return value if table is None else capture.read_number(Source("item", name, table), value)
        if in_class is NULL and value is not NULL and issubclass(kind, torch.nn.Module):
            for part in _OWN_MODULE_TABLES:
                if name in own.get(part, ()):
                    if (id(own[part]), name) not in capture.written and table is not None:
                        # what is put past __setattr__ into the dictionary of a module, and hides it, is not noticed
                        capture.read(Source("item", name, Source("item", part, table)), value)
                    return value
        if in_class is NULL:
            if value is NULL:
                self._guard_missing(owner, source, name)
            elif source is not None:
                capture.read(Source("attribute", name, source), value)
            return value
        if hasattr(type(in_class), "__set__") or isinstance(in_class, property):
            if (source is not None and name != "__dict__") or isinstance(in_class, property):
                self._read_of_descriptor(frame, source, kind, name, value)
            elif source is not None:
                capture.read(Source("attribute", name, source), value)
            return value
        self.read_of_class(kind, name)
        self._guard_not_own(owner, source, name)
        return value

    def _read_of_descriptor(self, frame: Frame, source: Source | None, kind: type, name: str, value: Any) -> None:
        capture = self.capture
        found = find_in_class(kind, name)
        if isinstance(found, property) and isinstance(found.fget, FunctionType):
            if type(found) is property and frame.machine.interprets(found.fget):
                self.read_of_class(kind, name)
                return  # what it read was noted
            if known.is_users_class(kind):
                capture.give_up(f"the property {kind.__name__}.{name} runs natively")
                return
        if source is not None and value is NULL:
            capture.give_up(f"{kind.__name__}.{name} is looked for, and is not set")
        elif source is not None:
            capture.read(Source("attribute", name, source), value)

    # --- writes ----------------------------------------------------------------------------------------------------

    def on_write_global(self, frame: Frame, name: str, value: Any) -> None:
        if value is not NULL:
            frame.stack[-1] = self._store(frame.globals, name, value)
        elif name in frame.globals and (id(frame.globals), name) not in self.capture.written:
            self.capture.guard("answer", Source("constant", frame.globals), ("__contains__", (name,), True))
        self._write_item(frame.globals, name, value, Source("constant", frame.globals))

    def on_write_cell(self, frame: Frame, cell: CellType, name: str, value: Any) -> None:
        capture = self.capture
        if id(cell) in capture.sources:
            if value is not NULL:
                frame.stack[-1] = self._store(cell, None, value)
            capture.effect("cell", cell, None, () if value is NULL else (value,), value is NULL)
            capture.written.add((id(cell), None))

    def on_write_item(self, frame: Frame, owner: Any, key: Any, value: Any) -> None:
        capture = self.capture
        if isinstance(owner, torch.Tensor) or id(owner) not in capture.sources:
            return
        if capture.reason is not None:
            if value is not NULL:
                frame.stack[-3] = self._store(owner, _key(key), value)
            return
        methods = frame.machine.setitem if value is not NULL else frame.machine.delitem
        if methods[type(owner)]:
            return  # what it writes is noted
        if value is NULL and isinstance(owner, dict) and key not in owner:
            self.on_read_item(frame, owner, key, NULL)
            return
        if not isinstance(owner, CONTAINERS):
            capture.give_up(f"an item of a {type(owner).__name__} is written")
            return
        stored = self.put_item(owner, key, value)
        if stored is not value:
            frame.stack[-3] = stored

    def put_item(self, owner: Any, key: Any, value: Any) -> Any:
        """An item is about to be put into a container; gives what is to be stored there."""
        if id(owner) not in self.capture.sources:
            return value
        self.capture.keep_original(owner)
        self._write_item(owner, key, value, None)
        return self._store(owner, _key(key), value)

    def _write_item(self, owner: Any, key: Any, value: Any, source: Source | None) -> None:
        capture = self.capture
        if source is not None and id(owner) not in capture.sources:
            capture.register(source, owner)
        capture.effect("item", owner, key, () if value is NULL else (value,), value is NULL)
        capture.written.add((id(owner), _key(key)))

    def on_write_attribute(self, frame: Frame, owner: Any, name: str, value: Any) -> None:
        stored = self.put_attribute(frame, owner, name, value)
        if stored is not value:
            frame.stack[-2] = stored

    def put_attribute(self, frame: Frame, owner: Any, name: str, value: Any) -> Any:
        """An attribute is about to be set, or deleted; gives what is to be stored there."""
        is_stored = self.capture.reason is not None or self._note_attribute(frame, owner, name, value)
        if is_stored and value is not NULL and self.capture.has_numbers:
            self._store(instance_dictionary(owner), name, value)
            return self._store(owner, name, value)
        return value

    def _note_attribute(self, frame: Frame, owner: Any, name: str, value: Any) -> bool:
        """Note that an attribute is written; says whether it is one of what was there before."""
        capture = self.capture
        if isinstance(owner, torch.Tensor):
            if not hasattr(find_in_class(type(owner), name), "__set__"):
                capture.give_up(f"an attribute {name!r} is attached to a tensor")
            return False
        source = capture.source_of(owner)
        if source is None:
            return False
        method, accessor = ("__delattr__", "fdel") if value is NULL else ("__setattr__", "fset")
        if find_setter(frame, owner, name, method, accessor) is not None:
            self.read_setter(owner, name, method)
            return False
        found = find_in_class(type(owner), name)
        is_computed = isinstance(found, property) or _sets_in_python(found)
        if is_computed or isinstance(find_in_class(type(owner), "__setattr__"), FunctionType):
            if is_computed or not self._sets_as_modules_do(owner):
                capture.give_up(f"{type(owner).__name__}.{name} is written by code that runs natively")
        if name in ("__dict__", "__class__"):
            capture.give_up(f"{name} of a {type(owner).__name__} is replaced")
        if value is NULL:
            self._guard_there(owner, source, name)
        capture.effect("attribute", owner, name, () if value is NULL else (value,), value is NULL)
        self.note_written(owner, name)
        return True

    def _guard_there(self, owner: Any, source: Source, name: str) -> None:
        """What is deleted has to be there: Python would raise an exception, which the program may catch."""
        own, place = instance_dictionary(owner), source.table
        parts = _OWN_MODULE_TABLES if isinstance(owner, torch.nn.Module) else ()
        for table, found in ((place, own), *((Source("item", part, place), own.get(part, {})) for part in parts)):
            if name in found and (id(found), name) not in self.capture.written:
                self.capture.guard("answer", table, ("__contains__", (name,), True))
                return
        if isinstance(find_in_class(type(owner), name), types.MemberDescriptorType):  # a slot
            if hasattr(owner, name) and (id(owner), name) not in self.capture.written:
                self.capture.read(Source("attribute", name, source), getattr(owner, name))

    def read_setter(self, owner: Any, name: str, method: str) -> None:
        """What decides who sets an attribute, where code of the user's does."""
        for attribute in (method, name):
            self.read_of_class(type(owner), attribute)
        found = find_in_class(type(owner), name)
        if found is not NULL and known.is_users_class(type(found)):
            self.read_of_class(type(found), "__set__" if method == "__setattr__" else "__delete__")

    def note_written(self, owner: Any, name: str) -> None:
        """An attribute is the program's own from now on, wherever it is read."""
        capture, own = self.capture, instance_dictionary(owner)
        capture.written.update(((id(owner), name), (id(own), name)))
        if isinstance(owner, torch.nn.Module):
            capture.written.update((id(own[part]), name) for part in _OWN_MODULE_TABLES if part in own)

    @staticmethod
    def _sets_as_modules_do(owner: Any) -> bool:
        return find_in_class(type(owner), "__setattr__") is vars(torch.nn.Module)["__setattr__"]

    def setter_of_module(self, frame: Frame, owner: Any, name: str, value: Any) -> tuple[Any, list[Any]] | None:
        """The interpreted setter that ``Module.__setattr__`` calls for an attribute, and its arguments."""
        if not isinstance(owner, torch.nn.Module) or not self._sets_as_modules_do(owner):
            return None
        if isinstance(value, (torch.nn.Parameter, torch.nn.Module)):
            return None
        found = setter_in_class(frame, owner, name, "fset")
        if found is not None:
            self.read_setter(owner, name, "__setattr__")
        return found


def _is_data_descriptor(found: Any) -> bool:
    """Whether an attribute of a class comes before one of the object itself."""
    return hasattr(type(found), "__set__") or hasattr(type(found), "__delete__")


def _sets_in_python(found: Any) -> bool:
    """Whether what a class has under a name is a descriptor that is written in Python."""
    methods = [find_in_class(type(found), method) for method in ("__set__", "__delete__")]
    return any(isinstance(method, FunctionType) for method in methods)


def _key(key: Any) -> Any:
    return key if type(key) in PLAIN else id(key)


def _is_users_function(value: Any) -> bool:
    """Whether it is a function that somebody has put in the place of a library's."""
    return type(value) is FunctionType and not is_library(value.__module__)
