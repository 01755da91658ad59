"""Uses of the file broker that a handler's process asks for, checked as what comes from a stranger."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from packhost.kinds.files import Files
from packhost.kinds.frames import PART


class BrokenFrame(Exception):
    """A process sent what is no frame, or a frame that nobody may send."""


def use_files(files: Files, method: str, arguments: dict[str, Any]) -> Any:
    """What one use of the broker returns, as JSON.

    :raises BrokenFrame: when the frame asks for no such use, or with arguments of the wrong kind.
    :raises PackhostError: the broker's own refusals.
    """
    use = _USES.get(method)
    if use is None:
        raise BrokenFrame("a use of files that does not exist")
    try:
        return use(files, **arguments)
    except (TypeError, ValueError):
        raise BrokenFrame("a use of files with wrong arguments") from None


def _read(files: Files, *, path: Any, offset: Any, limit: Any) -> Any:
    return encoded(files.read(_str(path), offset=_int(offset), limit=min(_int(limit), PART)))


def _stat(files: Files, *, path: Any) -> Any:
    return asdict(files.stat(_str(path)))


def _list(files: Files, *, path: Any) -> Any:
    return [asdict(entry) for entry in files.list(_str(path))]


def _walk(files: Files, *, path: Any, glob: Any, limit: Any, skip_folders: Any) -> Any:
    folders = [_str(name) for name in skip_folders]
    found = files.walk(_str(path), glob=_str(glob), limit=_int(limit), skip_folders=folders)
    return {
        "files": [asdict(file) for file in found.files],
        "skipped": dict(found.skipped),
        "complete": found.complete,
    }


def _write(files: Files, *, path: Any, data: Any, create_parents: Any) -> Any:
    files.write(_str(path), decoded(data), create_parents=bool(create_parents))


def _replace(files: Files, *, path: Any, old: Any, new: Any) -> Any:
    files.replace_if_unchanged(_str(path), decoded(old), decoded(new))


def _move(files: Files, *, source: Any, target: Any) -> Any:
    files.move(_str(source), _str(target))


def _delete(files: Files, *, path: Any, recursive: Any) -> Any:
    files.delete(_str(path), recursive=recursive is True)


def _make_directory(files: Files, *, path: Any) -> Any:
    files.make_directory(_str(path))


_USES: Mapping[str, Callable[..., Any]] = {
    "read": _read,
    "stat": _stat,
    "list": _list,
    "walk": _walk,
    "write": _write,
    "replace_if_unchanged": _replace,
    "move": _move,
    "delete": _delete,
    "make_directory": _make_directory,
}


def _str(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("not text")
    return value


def _int(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError("not a number")
    return value


def encoded(data: bytes) -> str:
    """Bytes as they travel in a frame."""
    return base64.b64encode(data).decode("ascii")


def decoded(text: Any) -> bytes:
    """Bytes that travelled in a frame.

    :raises BrokenFrame: when they did not.
    """
    try:
        return base64.b64decode(_str(text), validate=True)
    except (TypeError, ValueError):
        raise BrokenFrame("bytes that are not base64") from None
