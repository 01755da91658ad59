"""What a person sees before agreeing to a change: what would become of the files."""

from __future__ import annotations

from typing import Any

from packhost.api import CallContext, FileStat, NotFound, PackhostError, ScopeDenied
from packhost_packs.workspace.text import decode, diff, visible
from packhost_packs.workspace.writing import edited

_COMPARED = 4 * 1024 * 1024
_COUNTED = 10_000


def write_file(context: CallContext, arguments: dict[str, Any]) -> str:
    """The change as a diff; in words where there is no text to compare with."""
    path, content = arguments["path"], arguments["content"]
    name = visible(path)
    try:
        present = context.files.read(path, limit=_COMPARED + 1)
    except NotFound:
        return f"new file `{name}`\n{diff(name, '', content)}".rstrip("\n")
    except ScopeDenied:
        return f"`{name}` would be written; its present content is not shown, since this call may not read it"
    if len(present) > _COMPARED:
        return f"`{name}` is too long to compare; it would be replaced by {_size(content)}"
    try:
        old = decode(path, present)
    except PackhostError:
        return f"`{name}` is not text ({len(present)} bytes); it would be replaced by {_size(content)}"
    return diff(name, old, content) or f"`{name}` would stay as it is"


def edit_file(context: CallContext, arguments: dict[str, Any]) -> str:
    """The change as a diff, or why the edit would fail."""
    path = arguments["path"]
    name = visible(path)
    try:
        old = decode(path, context.files.read(path))
        new, _ = edited(path, old, arguments["edits"])
    except ScopeDenied:
        return f"`{name}` would be edited; its content is not shown, since this call may not read it"
    except PackhostError as error:
        return f"the edit would fail: {visible(error.message)}"
    return diff(name, old, new) or f"`{name}` would stay as it is"


def move_path(context: CallContext, arguments: dict[str, Any]) -> str:
    """What moves where."""
    return f"{_what(context, arguments['path'])} would become `{visible(arguments['target'])}`"


def delete_path(context: CallContext, arguments: dict[str, Any]) -> str:
    """What would be gone."""
    tail = " with everything in it" if arguments.get("recursive", False) else ""
    return f"{_what(context, arguments['path'])} would be deleted{tail}"


def _what(context: CallContext, path: str) -> str:
    name = visible(path)
    try:
        found = context.files.stat(path)
        return (
            f"the folder `{name}` ({_held(context, path)})"
            if found.type == "directory"
            else _file(name, found)
        )
    except NotFound:
        return f"`{name}` (nothing is there now)"
    except PackhostError:
        return f"`{name}`"


def _file(name: str, found: FileStat) -> str:
    return f"the file `{name}` ({found.size} bytes)"


def _held(context: CallContext, path: str) -> str:
    walk = context.files.walk(path, limit=_COUNTED)
    count = f"{len(walk.files)} files" if walk.complete else f"more than {_COUNTED} files"
    others = sum(walk.skipped.values())
    return f"{count}, {others} other entries" if others else count


def _size(content: str) -> str:
    return f"{len(content.encode('utf-8', 'surrogatepass'))} bytes of text"
