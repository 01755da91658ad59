"""Tools that read: a file's text in pages, a folder's entries."""

from __future__ import annotations

import codecs
from typing import Any

import anyio.to_thread

from packhost.api import CallContext, InvalidInput, ToolFailed
from packhost_packs.workspace.text import decode

LARGEST = 16 * 1024 * 1024
"""Bytes of a file that is read by lines; a longer one is read by bytes."""
PAGE = 256 * 1024
"""Bytes of text in one page."""
SHORT = 64 * 1024
"""Bytes of a file that is read at once, without a thread."""
LINES = 2_000
ENTRIES = 500


async def read_file(context: CallContext, arguments: dict[str, Any]) -> dict[str, Any]:
    """A page of a text file."""
    # A short file is read sooner than a thread is reached.
    if context.files.stat(arguments["path"]).size <= SHORT:
        return _read(context, arguments)
    return await anyio.to_thread.run_sync(_read, context, arguments, abandon_on_cancel=True)


def _read(context: CallContext, arguments: dict[str, Any]) -> dict[str, Any]:
    path, offset = arguments["path"], arguments.get("offset", 0)
    if arguments.get("unit", "lines") == "bytes":
        return _bytes_page(context, path, offset, min(arguments.get("limit", PAGE), PAGE))
    return _lines_page(context, path, offset, min(arguments.get("limit", LINES), LINES))


def _lines_page(context: CallContext, path: str, offset: int, limit: int) -> dict[str, Any]:
    data = context.files.read(path, limit=LARGEST + 1)
    if len(data) > LARGEST:
        raise ToolFailed(f"`{path}` is too long to be read by lines", hint='read it with `"unit": "bytes"`')
    lines = decode(path, data).split("\n")
    if lines[-1] == "":
        lines.pop()
    _inside(offset, len(lines), "lines")
    page: list[str] = []
    size = 0
    for line in lines[offset : offset + limit]:
        size += len(line.encode()) + 1
        if size > PAGE:
            break
        page.append(line)
    end = offset + len(page)
    if not page and offset < len(lines):
        raise ToolFailed(
            f"line {offset + 1} of `{path}` alone has more than {PAGE} bytes",
            hint='read the file with `"unit": "bytes"`',
        )
    ended = "\n" if page and (end < len(lines) or data.endswith(b"\n")) else ""
    return _page(path, "\n".join(page) + ended, "lines", offset, end, len(lines), len(data))


def _bytes_page(context: CallContext, path: str, offset: int, limit: int) -> dict[str, Any]:
    size = context.files.stat(path).size
    data = context.files.read(path, offset=offset, limit=max(limit, 4))
    _inside(offset, size, "bytes")
    if offset and data and data[0] & 0xC0 == 0x80:
        raise InvalidInput(
            f"`offset` {offset} lies inside a character of `{path}`", hint="use the `next_offset` of a page"
        )
    final = offset + len(data) >= size
    whole = data if final else data[: codecs.utf_8_decode(data, "replace", False)[1]]
    return _page(path, decode(path, whole), "bytes", offset, offset + len(whole), size, size)


def _inside(offset: int, total: int, unit: str) -> None:
    if offset > total:
        raise InvalidInput(
            f"`offset` {offset} is past the end: there are {total} {unit}", hint="count from 0"
        )


def _page(path: str, content: str, unit: str, offset: int, end: int, total: int, size: int) -> dict[str, Any]:
    return {
        "path": path,
        "content": content,
        "unit": unit,
        "offset": offset,
        "count": end - offset,
        "total": total,
        "size": size,
        "truncated": end < total,
        "next_offset": end if end < total else None,
    }


def list_directory(context: CallContext, arguments: dict[str, Any]) -> dict[str, Any]:
    """A page of a folder's entries."""
    path, offset = arguments.get("path", "."), arguments.get("offset", 0)
    entries = context.files.list(path)
    _inside(offset, len(entries), "entries")
    end = min(offset + arguments.get("limit", ENTRIES), len(entries))
    return {
        "path": path,
        "entries": [
            {
                "name": entry.path.rpartition("/")[2],
                "path": entry.path,
                "type": entry.type,
                "size": entry.size,
                "modified": entry.modified,
            }
            for entry in entries[offset:end]
        ],
        "total": len(entries),
        "truncated": end < len(entries),
        "next_offset": end if end < len(entries) else None,
    }
