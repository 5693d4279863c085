"""Random damage to files: to their bytes, and to what they say, with everything else made right again."""

from __future__ import annotations

import random
import struct
import zlib
from typing import Any

import msgspec

from tests.serde.golden.make import GOLDEN
from tests.serde.programs import entries_of, safetensors

NUMBERS = (
    0, 1, -1, 2, 3, 7, 19, 20, 21, 63, 64, 65, 127, 255, 1000, 65535, 1 << 31, (1 << 31) - 1, 1 << 32, (1 << 62) - 1,
    1 << 62, (1 << 63) - 1, 1 << 63, -(1 << 63), 1 << 64, 1 << 200, 0.5, 1e308, -0.0,
)  # fmt: skip
TEXTS = (
    "", "s0", "u0", "s0*s0", "s0**1024", "(s0+1)**16", "9**1024**2", "s0//0", "Mod(s0, 0)", "Max(s0, -1)", "1/0",
    "-s0", "os.system", "__import__('os')", "torch.ops.aten.add.Tensor", "torch.ops.aten.empty.memory_format",
    "float32", "complex128", "quint8", "bits16", "cuda:7", "meta", "cpu", "xla", "\x00", "\n", "a.b.c", "..",
    "x" * 5000, "(" * 500, "weights", "weight", "tuple", "dict", "namedtuple", "registered:builtins.dict", "DIM",
    "AUTO", "nan", "\ud7ff",
)  # fmt: skip


def base_files() -> dict[str, dict[str, bytes]]:
    """The entries of the files that are damaged: the golden ones, which are small and have everything."""
    return {path.stem: entries_of(path.read_bytes()) for path in sorted(GOLDEN.glob("*.tt"))}


def archive(entries: dict[str, bytes]) -> bytes:
    """A file of these entries, with the right checksums; what zipfile would write, in a tenth of the time."""
    parts: list[bytes] = []
    directory: list[bytes] = []
    position = 0
    for name, content in entries.items():
        raw, checksum = name.encode(), zlib.crc32(content)
        sizes = (checksum, len(content), len(content), len(raw))
        local = struct.pack("<4s5H3L2H", b"PK\x03\x04", 20, 0, 0, 0, 33, *sizes, 0) + raw
        directory.append(
            struct.pack("<4s6H3L5H2L", b"PK\x01\x02", 20, 20, 0, 0, 0, 33, *sizes, 0, 0, 0, 0, 0, position) + raw
        )
        parts += [local, content]
        position += len(local) + len(content)
    listed = b"".join(directory)
    end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, len(entries), len(entries), len(listed), position, 0)
    return b"".join([*parts, listed, end])


def damaged_bytes(content: bytes, chance: random.Random) -> bytes:
    """Some bytes changed, put in, left out, or moved."""
    changed = bytearray(content)
    for _ in range(chance.choice((1, 1, 2, 4, 16))):
        if not changed:
            break
        place = chance.randrange(len(changed))
        kind = chance.randrange(6)
        if kind == 0:
            changed[place] ^= 1 << chance.randrange(8)
        elif kind == 1:
            changed[place] = chance.choice((0, 1, 127, 128, 255, chance.randrange(256)))
        elif kind == 2:
            del changed[place : place + chance.choice((1, 4, 100, len(changed)))]
        elif kind == 3:
            changed[place:place] = bytes(chance.randrange(256) for _ in range(chance.choice((1, 4, 64))))
        elif kind == 4:
            source, length = chance.randrange(len(changed)), chance.choice((4, 30, 200))
            changed[place : place + length] = changed[source : source + length]
        else:
            number = chance.choice([n for n in NUMBERS if isinstance(n, int) and 0 <= n < 1 << 64])
            width = chance.choice((2, 4, 8))
            changed[place : place + width] = (number % (1 << 8 * width)).to_bytes(width, "little")
    return bytes(changed)


def damage_value(root: Any, chance: random.Random) -> None:
    """Change one thing somewhere in a tree of JSON."""
    parent, key = _random_place(root, chance)
    if parent is None:
        return
    old = parent[key]
    kind = chance.randrange(8)
    if kind == 0 and isinstance(old, (int, float)):
        parent[key] = old + chance.choice((-1, 1, 2, -2))
    elif kind <= 1:
        parent[key] = chance.choice(NUMBERS)
    elif kind == 2:
        parent[key] = chance.choice(TEXTS)
    elif kind == 3:
        parent[key] = chance.choice((None, True, [], {}, [[]], [1, 0], [2, []], [15, 0, 0], [14, "s0"], [18, 0]))
    elif kind == 4:
        other_parent, other_key = _random_place(root, chance)
        if other_parent is not None:
            parent[key] = other_parent[other_key]
    elif kind == 5:
        del parent[key]
    elif isinstance(parent, list):
        parent.insert(key, old if kind == 6 else chance.choice(NUMBERS))
    elif isinstance(old, str) and old:
        place = chance.randrange(len(old))
        parent[key] = old[:place] + chance.choice(("", "(", ")", "+", "9", ".", "s0", "-")) + old[place + 1 :]


def _random_place(root: Any, chance: random.Random) -> tuple[Any, Any]:
    """Somewhere in a tree, deep or not."""
    parent, key, value = None, None, root
    while isinstance(value, (list, dict)) and value:
        if parent is not None and chance.random() < 0.1:
            break
        parent, key = value, chance.randrange(len(value)) if isinstance(value, list) else chance.choice(list(value))
        value = parent[key]
    return parent, key


def damaged_json(content: bytes, chance: random.Random) -> bytes:
    value = msgspec.json.decode(content)
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        damage_value(value, chance)
    try:
        return msgspec.json.encode(value)
    except (RecursionError, ValueError):  # a value was put into itself
        return content[: chance.randrange(len(content))]


def mutated(entries: dict[str, bytes], whole: bytes, chance: random.Random) -> bytes:
    """One damaged file."""
    kind = chance.randrange(10)
    if kind == 0:
        return damaged_bytes(whole, chance)
    changed = dict(entries)
    description = chance.choice([name for name in entries if name.startswith("program")])
    if kind <= 6:
        changed[description] = damaged_json(entries[description], chance)
    elif kind == 7:
        changed[description] = damaged_bytes(entries[description], chance)
    elif kind == 8:
        name = chance.choice([name for name in entries if name.endswith(".safetensors")])
        length = struct.unpack_from("<Q", entries[name])[0]
        header = damaged_json(entries[name][8 : 8 + length].rstrip(), chance)
        changed[name] = safetensors(header, entries[name][8 + length :])
    else:
        name = chance.choice(list(entries))
        if chance.random() < 0.5:
            changed[name] = damaged_bytes(entries[name], chance)
        else:
            del changed[name]
    return archive(changed)
