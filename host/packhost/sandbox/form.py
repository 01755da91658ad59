"""The form of a path, before the disk is asked: one spelling for each path, and no other.

Nothing is normalised. A path that could be written in two ways (`./a`, `a//b`, `a/`) is refused with the
spelling to use, so that a rule which looks at an argument, the person who approves it and the broker which
opens it all see the same string. The root is `.`.
"""

from __future__ import annotations

import functools
import re

from packhost.errors import InvalidInput, PackhostError, ScopeDenied

ROOT = "."
LONGEST_NAME = 255
"""Bytes in one component."""
LONGEST_PATH = 4095
"""Bytes in a whole path."""

_DRIVE = re.compile(r"[A-Za-z]:")
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_RELATIVE_HINT = "give the path relative to the workspace's root, such as `src/main.py`; `.` is the root"


@functools.lru_cache(maxsize=4096)
def check_form(path: str) -> str:
    """`path` itself when its form is right.

    :raises ScopeDenied: for a form that could lead out of the root.
    :raises InvalidInput: for a form that is unclear, empty, not text or too long.
    """
    if path == ROOT:
        return path
    if not path:
        raise InvalidInput("an empty path names nothing", hint=_RELATIVE_HINT, path=path)
    _check_characters(path)
    components = path.split("/")
    if ".." in components:
        raise outside(path, "has `..` in it")
    if len(path.encode()) > LONGEST_PATH or any(len(part.encode()) > LONGEST_NAME for part in components):
        raise InvalidInput(
            f"a path of {len(path)} characters, starting `{path[:40]}`, is too long",
            hint=f"a name has at most {LONGEST_NAME} bytes, a path {LONGEST_PATH}",
            path=path[:LONGEST_NAME],
        )
    if "" in components or ROOT in components:
        plain = "/".join(part for part in components if part not in ("", ROOT)) or ROOT
        raise InvalidInput(
            f"`{path}` is not the plain spelling of its path", hint=f"write it as `{plain}`", path=path
        )
    return path


def _check_characters(path: str) -> None:
    if _CONTROL.search(path):
        raise outside(_CONTROL.sub("\N{REPLACEMENT CHARACTER}", path), "has a control character in it")
    if path.startswith("/"):
        raise outside(path, "is absolute")
    if "\\" in path or _DRIVE.match(path):
        raise outside(path, "has the form of a Windows path")
    if path == "~" or path.startswith("~/"):
        raise outside(path, "starts at a home folder")
    try:
        path.encode()
    except UnicodeEncodeError:
        raise InvalidInput(f"{path!a} is not valid text", hint="give the path in Unicode") from None


def outside(path: str, why: str, hint: str = _RELATIVE_HINT) -> ScopeDenied:
    """The refusal of a path for what it is, whatever the scopes say."""
    shown = path if len(path) <= LONGEST_NAME else f"{path[:LONGEST_NAME]}…"
    return ScopeDenied(f"`{shown}` {why}", hint=hint, layer="root", patterns=(), path=shown)


def problem(relative: str) -> PackhostError | None:
    """What is wrong with a name found on disk; `None` when it can be used."""
    try:
        check_form(relative)
    except PackhostError as error:
        return error
    return None
