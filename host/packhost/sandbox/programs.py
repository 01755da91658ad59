"""The files that the kernel has to execute for a program to start."""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Iterator

_DEEPEST = 4
_HEAD = 256
_PT_INTERP = 3


def closure(program: str) -> list[str]:
    """The real paths of a program, of the interpreter that its first line names, and of its loader."""
    return list(dict.fromkeys(_closure(program, _DEEPEST)))


def _closure(program: str, depth: int) -> Iterator[str]:
    yield os.path.realpath(program)
    try:
        with open(program, "rb") as file:
            head = file.read(_HEAD)
            loader = _loader(file.fileno(), head) if head.startswith(b"\x7fELF") else None
    except (OSError, OverflowError, struct.error):
        return
    if loader:
        yield os.path.realpath(loader)
    if head.startswith(b"#!") and depth:
        words = os.fsdecode(head[2:].split(b"\n", 1)[0]).split()
        for word in words[:1]:
            yield from _closure(word, depth - 1)
        if len(words) > 1 and os.path.basename(words[0]) == "env" and (found := shutil.which(words[1])):
            yield from _closure(found, depth - 1)


def _loader(descriptor: int, head: bytes) -> str | None:
    """The path in an ELF file's `PT_INTERP`; only 64-bit files have one that runs here."""
    if head[4:5] != b"\x02":
        return None
    offset, size, count = *struct.unpack_from("=Q", head, 32), *struct.unpack_from("=HH", head, 54)
    for index in range(min(count, 64)):
        entry = os.pread(descriptor, size, offset + index * size)
        (kind,) = struct.unpack_from("=I", entry)
        if kind == _PT_INTERP:
            (at,), (length,) = struct.unpack_from("=Q", entry, 8), struct.unpack_from("=Q", entry, 32)
            return os.fsdecode(os.pread(descriptor, min(length, 4096), at).rstrip(b"\0"))
    return None
