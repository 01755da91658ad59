"""Tools that change files."""

from __future__ import annotations

from typing import Any

from packhost.api import CallContext, InvalidInput, NotFound, PackhostError, ToolFailed
from packhost_packs.workspace.text import decode, diff


def write_file(context: CallContext, arguments: dict[str, Any]) -> dict[str, Any]:
    """Create a file or replace its whole content."""
    path, data = arguments["path"], _encode(arguments["content"], "/content")
    created = _missing(context, path)
    context.files.write(path, data)
    return {"path": path, "bytes": len(data), "created": created}


def edit_file(context: CallContext, arguments: dict[str, Any]) -> dict[str, Any]:
    """Replace passages of a file, all or none."""
    path = arguments["path"]
    before = context.files.read(path)
    old = decode(path, before)
    new, replaced = edited(path, old, arguments["edits"])
    after = _encode(new, "/edits")
    context.files.replace_if_unchanged(path, before, after)
    return {"path": path, "bytes": len(after), "replacements": replaced, "diff": diff(path, old, new)}


def edited(path: str, text: str, edits: list[dict[str, Any]]) -> tuple[str, int]:
    """The text after all edits, one after the other, and how many passages were replaced.

    :raises InvalidInput: for an edit that changes nothing.
    :raises ToolFailed: for one whose `old` is not found, or more than once without `all`.
    """
    replaced = 0
    for number, edit in enumerate(edits):
        old, new = edit["old"], edit["new"]
        if old == new:
            raise InvalidInput(
                f"edit {number + 1} changes nothing", hint="leave it out", path=f"/edits/{number}"
            )
        count = text.count(old)
        if count == 0:
            raise ToolFailed(f"`old` of edit {number + 1} is not in `{path}`", hint=_why_missing(text, old))
        if count > 1 and not edit.get("all", False):
            raise ToolFailed(
                f"`old` of edit {number + 1} is in `{path}` {count} times",
                hint="give more of the text around it so that it is there once, or set `all`",
            )
        text = text.replace(old, new)
        replaced += count
    return text, replaced


def _why_missing(text: str, old: str) -> str:
    if "\r\n" in text and old.replace("\n", "\r\n") in text:
        return "the file's lines end in `\\r\\n`: write them so in `old` and `new`"
    if old.strip() and old.strip() in text:
        return "it is there with other white space around it: give exactly what the file has"
    return "read the file again; `old` has to be exactly what it has, white space included"


def move_path(context: CallContext, arguments: dict[str, Any]) -> dict[str, Any]:
    """Rename a file or folder, never over something."""
    context.files.move(arguments["path"], arguments["target"])
    return {"path": arguments["path"], "target": arguments["target"]}


def delete_path(context: CallContext, arguments: dict[str, Any]) -> dict[str, Any]:
    """Remove a file or folder."""
    path = arguments["path"]
    context.files.delete(path, recursive=arguments.get("recursive", False))
    return {"path": path, "deleted": True}


def _missing(context: CallContext, path: str) -> bool | None:
    """Whether nothing lies there; `None` when this call may not look."""
    try:
        context.files.stat(path)
    except NotFound:
        return True
    except PackhostError:
        return None
    return False


def _encode(text: str, place: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidInput(
            f"the text has half a surrogate pair at {error.start}", hint="send valid Unicode", path=place
        ) from None
