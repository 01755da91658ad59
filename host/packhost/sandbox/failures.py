"""The operating system's errors, turned into sentences once."""

from __future__ import annotations

import errno
import os

from packhost.errors import InvalidInput, NotFound, PackhostError, ScopeDenied, ToolFailed
from packhost.rules.scopes import Access, Uncovered
from packhost.sandbox.form import outside

LINK_HINT = (
    "symbolic links are never followed; name the file where it really lies, if that is in the workspace"
)
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def from_os_error(error: OSError, path: str) -> PackhostError:
    """What a caller is told when the system refuses `path`."""
    number = error.errno or 0
    if number == errno.ENOENT:
        return NotFound(f"`{path}` does not exist", hint="list the folder to see what is there", path=path)
    if number in (errno.ELOOP, errno.EXDEV):
        return outside(path, "is a symbolic link or passes through one", LINK_HINT)
    if number == errno.ENOTDIR:
        return ToolFailed(f"a part of `{path}` that must be a folder is a file", path=path)
    if number == errno.ENAMETOOLONG:
        return InvalidInput(f"`{path[:80]}` is longer than the file system takes", path=path)
    if number == errno.EISDIR:
        return is_folder(path)
    if number == errno.EEXIST:
        return exists(path)
    if number == errno.ENOTEMPTY:
        return ToolFailed(f"the folder `{path}` is not empty", hint="delete it with `recursive`", path=path)
    if number in (errno.EACCES, errno.EPERM, errno.EROFS):
        return ToolFailed(
            f"the operating system does not let the host use `{path}`: {_reason(number)}",
            hint="a person has to change the file's permissions or owner",
            path=path,
        )
    hint = "free some space, then call again" if number in _FULL else ""
    return ToolFailed(f"`{path}` could not be used: {_reason(number)}", hint=hint, path=path)


def denied(access: Access, relative: str, uncovered: Uncovered) -> ScopeDenied:
    """The refusal of a use that a layer does not cover."""
    if uncovered.layer == "protected":
        message = f"`{relative}` is never changed through a tool"
        hint = "it governs packhost or another program; a person changes it by hand"
    else:
        message = f"`{relative}` is outside what the {uncovered.layer} lets this call {access}"
        hint = f"it allows: {', '.join(f'`{pattern}`' for pattern in uncovered.patterns[:5]) or 'nothing'}"
    return ScopeDenied(
        message,
        hint=hint,
        place=uncovered.place,
        layer=uncovered.layer,
        patterns=uncovered.patterns,
        path=relative,
    )


def exists(path: str) -> ToolFailed:
    """The answer where something lies at a target already."""
    return ToolFailed(f"`{path}` exists already", hint="choose another target, or delete it first", path=path)


def changed(path: str) -> ToolFailed:
    """The answer where somebody else was faster."""
    return ToolFailed(
        f"`{path}` was changed by somebody else meanwhile",
        hint="read it again, then redo the change",
        path=path,
    )


def is_folder(path: str) -> ToolFailed:
    """The answer where a file is wanted and a folder lies."""
    return ToolFailed(
        f"`{path}` is a folder", hint="name a file in it; list the folder to see them", path=path
    )


def is_file(path: str) -> ToolFailed:
    """The answer where a folder is wanted and a file lies."""
    return ToolFailed(f"`{path}` is a file, not a folder", hint="read it, or name its folder", path=path)


def _reason(number: int) -> str:
    return os.strerror(number).lower() if number else "unknown error"
