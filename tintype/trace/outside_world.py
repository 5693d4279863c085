"""Native functions that read what another call would find changed, or of which somebody outside hears."""

from __future__ import annotations

import atexit
import contextvars
import datetime
import gc
import glob
import io
import locale
import logging
import os
import pathlib
import platform
import queue
import random
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import torch

# methods of containers that change them
WRITERS = frozenset(
    {
        "__delitem__", "__iadd__", "__setitem__", "add", "append", "appendleft", "clear", "difference_update",
        "discard", "extend", "extendleft", "insert", "intersection_update", "move_to_end", "pop", "popitem",
        "popleft", "remove", "reverse", "rotate", "setdefault", "sort", "symmetric_difference_update", "update",
    }
)  # fmt: skip

_CLOCKS = (
    time.time, time.time_ns, time.perf_counter, time.perf_counter_ns, time.monotonic, time.monotonic_ns,
    time.process_time, time.process_time_ns, time.localtime, time.gmtime, time.ctime, time.strftime, time.asctime,
)  # fmt: skip
_DRAWS = (
    os.urandom, uuid.uuid1, uuid.uuid4, secrets.token_bytes, secrets.token_hex, secrets.token_urlsafe,
    secrets.randbits, secrets.randbelow, secrets.choice,
)  # fmt: skip
_FILES = (
    open, os.open, os.listdir, os.scandir, os.stat, os.lstat, os.access, os.getcwd, os.walk, os.path.exists,
    os.path.lexists, os.path.isfile, os.path.isdir, os.path.islink, os.path.getsize, os.path.getmtime, glob.glob,
    glob.iglob, torch.load,
)  # fmt: skip
_OF_PROCESS = (
    os.getpid, os.getppid, os.cpu_count, os.times, gc.get_count, gc.get_objects, gc.isenabled, threading.active_count,
    threading.current_thread, threading.enumerate, threading.get_ident, threading.get_native_id, socket.gethostname,
    socket.getfqdn, platform.node, platform.uname, sys.getrecursionlimit, sys.gettrace, sys.getprofile,
)  # fmt: skip
# What only the object or the process decides, as most programs that ask know.
_OF_OBJECTS = (id, hash)
_CHANGING_PROCESS = (
    os.chdir, os.fork, os.kill, os.umask, os.nice, subprocess.run, subprocess.call, subprocess.check_call,
    subprocess.check_output, subprocess.Popen, signal.signal, signal.alarm, signal.raise_signal, atexit.register,
    atexit.unregister, sys.setrecursionlimit, sys.setswitchinterval, sys.settrace, sys.setprofile, gc.collect,
    gc.disable, gc.enable, gc.freeze, locale.setlocale, warnings.filterwarnings, warnings.simplefilter,
    warnings.resetwarnings, logging.basicConfig, logging.disable, socket.socket, threading.Thread.start,
    threading.Timer, torch.set_num_threads, torch.set_num_interop_threads, torch.set_printoptions,
    torch.set_float32_matmul_precision, torch.set_flush_denormal, torch.autograd.set_detect_anomaly,
)  # fmt: skip
_UNSEEN = (exec, eval)
_WRITING_FILES = (
    os.mkdir, os.makedirs, os.remove, os.unlink, os.rename, os.replace, os.rmdir, os.truncate, os.write, os.system,
    os.symlink, os.link, os.chmod, os.utime, shutil.copy, shutil.copy2, shutil.copyfile, shutil.copytree, shutil.move,
    shutil.rmtree, tempfile.mkstemp, tempfile.mkdtemp, tempfile.NamedTemporaryFile, tempfile.TemporaryDirectory,
    torch.save,
)  # fmt: skip
_WRITING_PATHS = frozenset({"mkdir", "rename", "replace", "rmdir", "touch", "unlink", "write_bytes", "write_text"})
_READING_PATHS = frozenset({"exists", "glob", "is_dir", "is_file", "iterdir", "read_bytes", "read_text", "stat"})
_WRITING_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_READS: dict[int, str] = {
    **{id(function): f"reads a clock ({function.__name__})" for function in _CLOCKS},
    **{id(function): f"draws a random number ({function.__name__})" for function in _DRAWS},
    **{id(function): f"looks at files ({function.__name__})" for function in _FILES},
    **{id(function): f"asks for something of the process ({function.__name__})" for function in _OF_PROCESS},
    id(os.getenv): "reads the environment (os.getenv)",
    id(input): "asks for input",
}
ENVIRONMENT = type(os.environ)
_LEVELS = {
    "debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR,
    "critical": logging.CRITICAL, "exception": logging.ERROR,
}  # fmt: skip
_ROOTS_LOGS = {id(getattr(logging, name)): name for name in _LEVELS}
_OF_ENVIRONMENT = frozenset({"__setitem__", "__delitem__", "clear", "pop", "popitem", "setdefault", "update"})


def reading_of(callable: Any, owner: Any, name: str) -> str | None:
    """What a call reads that is another one in the next call; None if it reads no such thing. ``owner`` is what it is
    a method of."""
    found = _READS.get(id(callable))
    if found is not None or owner is None:
        return found
    if issubclass(type(owner), (random.Random, *_numpys_generators())):
        return f"draws a random number ({name})"
    if issubclass(type(owner), ENVIRONMENT):
        return "reads the environment (os.environ)"
    if issubclass(type(owner), type) and issubclass(owner, datetime.date) and name in ("now", "today", "utcnow"):
        return f"reads a clock ({name})"
    if issubclass(type(owner), pathlib.Path) and name in _READING_PATHS:
        return f"looks at files ({name})"
    return None


def is_question_to_an_object(callable: Any) -> bool:
    """Whether a call asks for what an object is in this process: ``id``, ``hash``."""
    return callable in _OF_OBJECTS


def is_of_outside_world(kind: type) -> bool:
    """Whether methods of a class may read or write something outside of the program."""
    return issubclass(
        kind,
        (
            random.Random,
            ENVIRONMENT,
            io.IOBase,
            logging.Logger,
            pathlib.Path,
            queue.SimpleQueue,
            contextvars.ContextVar,
            subprocess.Popen,
            *_numpys_generators(),
        ),
    )


def _numpys_generators() -> tuple[Any, ...]:
    numpy = sys.modules.get("numpy")
    return () if numpy is None else (numpy.random.RandomState, numpy.random.Generator)


def writes_to_environment(callable: Any, owner: Any, name: str) -> bool:
    """Whether a call changes the environment."""
    return callable in (os.putenv, os.unsetenv) or (issubclass(type(owner), ENVIRONMENT) and name in _OF_ENVIRONMENT)


def opens_to_write(callable: Any, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> bool:
    """Whether a call opens a file that may be written to."""
    if callable is not open and callable is not os.open:
        return False
    name = "mode" if callable is open else "flags"
    mode = arguments[1] if len(arguments) > 1 else keywords.get(name, "r")
    return bool(mode & _WRITING_FLAGS) if isinstance(mode, int) else not set("wax+").isdisjoint(mode)


def output_of(
    callable: Any, owner: Any, name: str, arguments: Sequence[Any], keywords: Mapping[str, Any]
) -> str | None:
    """What a call does that somebody outside of the program hears of; None if nobody does."""
    if callable is print:
        return "prints"
    if callable is warnings.warn or callable is warnings.warn_explicit:
        return "warns"
    if callable in _CHANGING_PROCESS:
        return f"changes something of the process ({name})"
    if callable in _UNSEEN:
        return f"runs code that is made while it runs ({name}), which may write to what nobody looks at"
    if issubclass(type(owner), contextvars.ContextVar) and name in ("set", "reset"):
        return f"sets a context variable ({name})"
    if callable in _WRITING_FILES or opens_to_write(callable, arguments, keywords):
        return f"writes to files ({name})"
    if id(callable) in _ROOTS_LOGS and logging.getLogger().isEnabledFor(_LEVELS[name]):
        return f"writes to a log ({name})"
    if issubclass(type(owner), pathlib.Path) and name in _WRITING_PATHS:
        return f"writes to files ({name})"
    if issubclass(type(owner), queue.SimpleQueue) and name.startswith(("put", "get")):
        return f"changes a queue ({name})"
    if issubclass(type(owner), io.IOBase) and name.startswith("write"):
        return "writes to a file"
    if issubclass(type(owner), logging.Logger) and owner.isEnabledFor(_LEVELS.get(name, logging.CRITICAL + 1)):
        return f"writes to a log ({name})"
    return None
