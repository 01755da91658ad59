"""Files changed on a person's behalf, each kept as it was, and put back byte for byte.

Before anything is written, a record with a copy of every file goes into the state folder (mode 0700): a
change that is cut short can be taken back as well. A file that somebody edited since is not touched
without being told to.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from packhost.clients.jsonc import Json
from packhost.errors import ConfigInvalid, PackhostError
from packhost.workspace.files import sync_folder

FOLDER: Final = "changes"
REWRITTEN: Final = frozenset({".claude.json"})
"""Names of files that their client writes by itself all the time."""
_RECORD: Final = "record.json"
_VERSION: Final = 1
_NEW_MODE: Final = 0o644


@dataclass(frozen=True, slots=True)
class FileChange:
    """A file as it is to be, `None` for one that is to go; `section` leads to the servers in it."""

    path: Path
    content: bytes | None
    section: tuple[str, ...] = ()
    ours: bool = False
    """Whether packhost itself writes it again later: what it holds then is kept, and holds nothing up."""


@dataclass(frozen=True, slots=True)
class Kept:
    """A file that was changed: digests of what it held and what it was made to hold, `None` for no file."""

    path: Path
    before: str | None
    after: str | None
    mode: int
    copy: str
    section: tuple[str, ...] = ()
    ours: bool = False


@dataclass(frozen=True, slots=True)
class Change:
    """One change of several files; `what` says which command it was made by, `folder` where copies are."""

    what: str
    at: float
    folder: Path
    files: tuple[Kept, ...]
    made: tuple[Path, ...] = ()
    """Folders that there were none of before, the outer ones first."""


@dataclass(frozen=True, slots=True)
class Undone:
    """What taking a change back did to one file."""

    path: Path
    did: str


def apply_changes(state: Path, what: str, files: Sequence[FileChange]) -> Change:
    """Keep every file as it is, then make each what it is to be; all of them or, where one fails, none.

    Raises `ConfigInvalid` when a file may not be written.
    """
    for one in files:
        refuse_read_only(one.path)
    change = _record(state, what, files)
    try:
        for one in files:
            _make(one.path, one.content, next(kept.mode for kept in change.files if kept.path == one.path))
    except OSError as error:
        undo(change, force=True)
        said = (error.strerror or "it failed").lower()
        raise ConfigInvalid(
            f"`{error.filename or files[0].path}` cannot be written: {said}", hint="nothing was changed"
        ) from None
    return change


def extend(change: Change, path: Path, before: bytes | None) -> Change:
    """Count a file that another part of packhost wrote meanwhile to the change; `before` is what it held."""
    name = str(len(change.files))
    if before is not None:
        (change.folder / name).write_bytes(before)
    kept = Kept(path, _digest(before), _digest(_content(path)), 0o600, name, ours=True)
    found = replace(change, files=(*change.files, kept))
    _save(found)
    return found


def latest(state: Path, what: str) -> Change | None:
    """The last change by a command that was not taken back."""
    changes = [change for change in _all(state) if change.what == what]
    return changes[-1] if changes else None


def undo(change: Change, *, force: bool = False, mending: Iterable[Path] = ()) -> list[Undone]:
    """Put every file back as it was.

    A file of `mending`, which its client keeps writing by itself, has only its section put back when the
    rest has changed; with `force` so has every file, and one that was changed in the section itself is kept
    beside the copies before it is put back.

    Raises `ConfigInvalid` for files that were edited since, and then does nothing.
    """
    edited = [one for one in change.files if _edited(one)]
    mended: dict[Path, bytes] = {}
    for one in edited:
        if (force or one.path in set(mending)) and (content := _mended(change, one)) is not None:
            mended[one.path] = content
    replaced = [one for one in edited if one.path not in mended]
    if stuck := [one for one in replaced if not (force or one.ours)]:
        names = ", ".join(f"`{one.path}`" for one in stuck)
        raise ConfigInvalid(
            f"edited since: {names}",
            hint="with `--force` it is put back all the same, and the edited file kept beside the copies; "
            f"the copies are in {change.folder}",
            files=[str(one.path) for one in stuck],
        )
    done = [_put_back(change, one, mended) for one in reversed(change.files)]
    for folder in reversed(change.made):
        with contextlib.suppress(OSError):
            folder.rmdir()
    _forget(change, keep=bool(replaced))
    return [one for one in done if one.did]


def refuse_read_only(path: Path) -> None:
    """Raise `ConfigInvalid` for a file that nobody may write, or whose folder takes no new file."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        if not os.stat(path).st_mode & 0o222 or not os.access(path, os.W_OK):
            raise ConfigInvalid(f"`{path}` is read-only", hint="make it writable, or name another file")
    folder = next(folder for folder in path.parents if folder.exists())
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ConfigInvalid(f"the folder `{folder}` is read-only", hint="make it writable")


# --- the record ----------------------------------------------------------------------------------------


def _record(state: Path, what: str, files: Sequence[FileChange]) -> Change:
    base = state / FOLDER
    base.mkdir(mode=0o700, exist_ok=True)
    numbers = [int(one.name) for one in base.iterdir() if one.name.isdigit()]
    folder = base / f"{max(numbers, default=0) + 1:06d}"
    folder.mkdir(mode=0o700)
    kept = []
    for number, one in enumerate(files):
        before = _content(one.path)
        if before is not None:
            descriptor = os.open(folder / str(number), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with open(descriptor, "wb") as file:
                file.write(before)
        mode = stat.S_IMODE(one.path.stat().st_mode) if before is not None else _NEW_MODE
        kept.append(
            Kept(one.path, _digest(before), _digest(one.content), mode, str(number), one.section, one.ours)
        )
    made = dict.fromkeys(
        missing for one in files for missing in reversed(one.path.parents) if not missing.exists()
    )
    change = Change(what, time.time(), folder, tuple(kept), tuple(made))
    _save(change)
    return change


def _save(change: Change) -> None:
    record = {
        "version": _VERSION,
        "what": change.what,
        "at": change.at,
        "made": [os.fspath(folder) for folder in change.made],
        "files": [
            {
                "path": os.fspath(one.path),
                "before": one.before,
                "after": one.after,
                "mode": one.mode,
                "copy": one.copy,
                "section": list(one.section),
                "ours": one.ours,
            }
            for one in change.files
        ],
    }
    new = change.folder / f".{_RECORD}"
    with new.open("w", encoding="utf-8", errors="surrogateescape") as file:
        json.dump(record, file, ensure_ascii=False, indent=1)
        file.flush()
        os.fsync(file.fileno())
    new.replace(change.folder / _RECORD)
    sync_folder(change.folder)


def _all(state: Path) -> list[Change]:
    base = state / FOLDER
    found = []
    for folder in sorted(base.iterdir()) if base.is_dir() else ():
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            found.append(_read(folder))
    return found


def _read(folder: Path) -> Change:
    text = (folder / _RECORD).read_text(encoding="utf-8", errors="surrogateescape")
    record: Mapping[str, Any] = json.loads(text)
    if record["version"] != _VERSION:
        raise ValueError(record["version"])
    files = tuple(
        Kept(
            Path(one["path"]),
            one["before"],
            one["after"],
            int(one["mode"]),
            one["copy"],
            tuple(one["section"]),
            one["ours"],
        )
        for one in record["files"]
    )
    made = tuple(map(Path, record["made"]))
    return Change(str(record["what"]), float(record["at"]), folder, files, made)


def _forget(change: Change, *, keep: bool) -> None:
    if keep:
        (change.folder / _RECORD).rename(change.folder / f"undone-{_RECORD}")
    else:
        shutil.rmtree(change.folder)


# --- files ---------------------------------------------------------------------------------------------


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        said = (error.strerror or "it failed").lower()
        raise ConfigInvalid(f"`{path}` cannot be read: {said}") from None


def _digest(content: bytes | None) -> str | None:
    return None if content is None else hashlib.sha256(content).hexdigest()


def _make(path: Path, content: bytes | None, mode: int) -> None:
    if content is None:
        path.unlink(missing_ok=True)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with open(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, mode)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def _edited(one: Kept) -> bool:
    return _digest(_content(one.path)) not in (one.before, one.after)


def _copy(change: Change, one: Kept) -> bytes | None:
    return None if one.before is None else (change.folder / one.copy).read_bytes()


def _mended(change: Change, one: Kept) -> bytes | None:
    """The file as it is now with its section as it was; `None` where that cannot be told."""
    now, before = _content(one.path), _copy(change, one)
    if not one.section or now is None or before is None:
        return None
    try:
        document = Json(now.decode("utf-8"), str(one.path))
        old = Json(before.decode("utf-8"), str(one.path))
        if document.get((*one.section, "packhost")) is None:
            return None
        wanted, text = old.get(one.section), old.source(one.section)
        if text is not None and list(document.get(one.section)) == ["packhost"]:
            document.put_source(one.section, text)
        document.drop((*one.section, "packhost"))
        for name, server in (wanted or {}).items():
            if name not in document.get(one.section):
                document.put((*one.section, name), server)
    except (PackhostError, UnicodeDecodeError, AttributeError, TypeError):
        return None
    return document.text.encode("utf-8")


def _put_back(change: Change, one: Kept, mended: Mapping[Path, bytes]) -> Undone:
    now, before = _content(one.path), _copy(change, one)
    if one.path in mended:
        _make(one.path, mended[one.path], one.mode)
        return Undone(one.path, "its servers put back; what else was changed in it stays")
    if now == before:
        return Undone(one.path, "")
    did = "removed" if before is None else "put back as it was"
    if _edited(one) and now is not None:
        kept = change.folder / f"edited-{one.copy}"
        kept.write_bytes(now)
        did = f"{did}; what it held last is in {kept}"
    _make(one.path, before, one.mode)
    return Undone(one.path, did)
