"""A copy of everything a workspace's state is, in one file: the store, and the small files beside it.

The file is a tar archive of mode 0600: a manifest with the digest of each part, the store, and the files of
the state folder. It holds the host's key, without which no approval in the store binds any more, and whatever
the record holds: it is as secret as the state folder.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import io
import json
import os
import shutil
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from packhost.errors import InvalidInput, StoreUnavailable
from packhost.store.audit import verify_chain
from packhost.store.base import Reading
from packhost.store.info import describe, looking, read_only
from packhost.store.ops import events
from packhost.store.rows import Head
from packhost.store.sqlite import STORE_NAME, SqliteReading
from packhost.workspace.files import sync_folder

FORMAT: Final = 1
MANIFEST: Final = "manifest.json"
DUMP_NAME: Final = "store.dump"
_STORE: Final = "store/"
_STATE: Final = "state/"
_PIECE: Final = 1 << 20
_NOT_STATE: Final = ("host.lock", "host.sock", "archive", "restore.json")
"""What of the state folder is of one process or one machine, or may be large and is kept by itself."""

Progress = Callable[[int, int], None]
"""Told how many bytes of about how many are written."""


@dataclass(frozen=True, slots=True)
class Part:
    """A file in a backup: its name there, size in bytes, SHA-256 and mode."""

    name: str
    size: int
    sha256: str
    mode: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a backup holds; `head` is the last event of the record in it, `fault` why that did not verify."""

    packhost_backup: int
    version: str
    workspace: str
    root: str
    kind: str
    made_at: float
    schema: int
    head_id: int
    head_hash: str
    fault: str
    parts: tuple[Part, ...]

    @property
    def store(self) -> Part:
        """The store's own file."""
        return next(part for part in self.parts if part.name.startswith(_STORE))

    @property
    def files(self) -> tuple[Part, ...]:
        """The files of the state folder."""
        return tuple(part for part in self.parts if part.name.startswith(_STATE))


def state_files(state: Path) -> list[Path]:
    """The small files of a state folder that belong into a backup."""
    found = []
    for entry in sorted(state.iterdir()):
        name = entry.name
        if name.startswith((".", STORE_NAME, "replaced-")) or name in _NOT_STATE or entry.is_symlink():
            continue
        if entry.is_file():
            found.append(entry)
        elif entry.is_dir():
            found += sorted(one for one in entry.rglob("*") if one.is_file() and not one.is_symlink())
    return found


def copy_sqlite(state: Path, target: Path, progress: Progress | None = None) -> None:
    """A compact, consistent copy of a SQLite store, by a connection that cannot write to it.

    It may be made while a host writes. Raises `StoreUnavailable`.
    """
    fd = os.open(target, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with looking(state) as view:
            view.execute("COMMIT")
            total = (state / STORE_NAME).stat().st_size
            if progress is not None:
                tell = progress
                view.connection.set_progress_handler(lambda: tell(os.fstat(fd).st_size, total), 200_000)
            view.execute("VACUUM INTO ?", (str(target),))
        os.fsync(fd)
    finally:
        os.close(fd)


def backup(
    target: Path,
    *,
    state: Path,
    workspace: str,
    root: str,
    version: str,
    kind: str,
    copy: Callable[[Path], None],
    look: Callable[[Path], tuple[int, Head, str]],
    progress: Progress | None = None,
) -> Manifest:
    """Write a backup to `target`, which must not exist; there is either a whole one or none.

    `workspace` is the name that the store goes by; `copy` writes it to a path; `look` gives that copy's
    schema and head, and why it does not verify.
    Raises `InvalidInput` for a target that exists or cannot be written, `StoreUnavailable` as `copy` does.
    """
    if target.exists() or target.is_symlink():
        raise InvalidInput(f"`{target}` exists already", hint="name a new file for the backup")
    try:
        with _beside(target) as folder:
            store = folder / (STORE_NAME if kind == "sqlite" else DUMP_NAME)
            copy(store)
            schema, head, fault = look(store)
            sources = [(f"{_STORE}{store.name}", store)]
            sources += list(_copies(state, folder))
            kept = [(name, path, _part(name, path)) for name, path in sources]
            parts = tuple(part for _, _, part in kept)
            manifest = Manifest(
                FORMAT, version, workspace, root, kind, time.time(), schema, head.id, head.hash, fault, parts
            )
            archive = folder / "backup.tar"
            _write(archive, manifest, [(part, path) for _, path, part in kept], progress)
            os.link(archive, target)
            sync_folder(target.parent)
    except FileExistsError:
        raise InvalidInput(f"`{target}` exists already", hint="name a new file for the backup") from None
    except OSError as error:
        raise StoreUnavailable(
            f"the backup `{target}` cannot be written: {error.strerror or error}",
            hint="check that the folder is there, writable and has room",
        ) from error
    return manifest


def _copies(state: Path, folder: Path) -> Iterator[tuple[str, Path]]:
    """Copies of the small files, since a host may write one while it is being packed."""
    for one in state_files(state):
        name = f"{_STATE}{one.relative_to(state)}"
        copy = folder / name
        copy.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):  # it was replaced since it was listed
            shutil.copy2(one, copy)
            yield name, copy


def look_at_sqlite(path: Path) -> tuple[int, Head, str]:
    """A copy's schema and head, and the first thing that does not hold; empty when all does."""
    connection = read_only(path)
    try:
        return look_at(SqliteReading(connection, ""))
    finally:
        connection.close()


def look_at(view: Reading) -> tuple[int, Head, str]:
    """A store's schema and head, and the first thing that does not hold."""
    schema = int(describe(view)["schema"])
    report = verify_chain(view)
    broken = report.broken
    fault = f"event {broken.id}: {broken.reason}" if broken is not None else ""
    return schema, events.head(view), fault


@contextmanager
def _beside(target: Path) -> Iterator[Path]:
    """A private folder beside the target, gone afterwards; what a killed backup left there goes first."""
    for left in target.parent.glob(f".{target.name}.*.part"):
        with contextlib.suppress(OSError), _locked(left):
            shutil.rmtree(left)
    folder = Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=".part", dir=target.parent))
    with _locked(folder):
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def _part(name: str, path: Path) -> Part:
    with path.open("rb") as file:
        sha = hashlib.file_digest(file, "sha256").hexdigest()
    found = path.stat()
    return Part(name, found.st_size, sha, found.st_mode & 0o777)


def _write(
    archive: Path, manifest: Manifest, kept: Sequence[tuple[Part, Path]], progress: Progress | None
) -> None:
    text = json.dumps(asdict(manifest), indent=2).encode()
    total, done = sum(part.size for part, _ in kept), 0
    descriptor = os.open(archive, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(descriptor, "wb") as out, tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        tar.addfile(_entry(MANIFEST, len(text), 0o600, manifest.made_at), io.BytesIO(text))
        for part, path in kept:
            with path.open("rb") as file:
                tar.addfile(_entry(part.name, part.size, part.mode, manifest.made_at), file)
            done += part.size
            if progress is not None:
                progress(done, total)
        tar.close()
        out.flush()
        os.fsync(descriptor)


def _entry(name: str, size: int, mode: int, at: float) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode, entry.mtime = size, mode, int(at)
    return entry


def read_manifest(file: Path) -> Manifest:
    """What a backup says that it holds. Raises `InvalidInput` for a file that is no backup of ours."""
    try:
        with tarfile.open(file, "r:") as tar:
            entry = tar.next()
            opened = tar.extractfile(entry) if entry is not None and entry.name == MANIFEST else None
            if opened is None:
                raise ValueError("it has no manifest")
            data: dict[str, Any] = json.loads(opened.read(_PIECE * 8))
        parts = tuple(Part(**part) for part in data.pop("parts"))
        manifest = Manifest(**data, parts=parts)
        if manifest.packhost_backup != FORMAT:
            raise ValueError(f"its format is {manifest.packhost_backup}, this packhost knows {FORMAT}")
        _ = manifest.store
    except FileNotFoundError:
        raise InvalidInput(f"there is no file `{file}`", hint="`packhost store backup` writes one") from None
    except (OSError, tarfile.TarError, ValueError, TypeError, KeyError, StopIteration) as error:
        raise InvalidInput(
            f"`{file}` is no backup of packhost's: {error}", hint="`packhost store backup` writes one"
        ) from None
    return manifest


def extract(file: Path, manifest: Manifest, folder: Path, progress: Progress | None = None) -> None:
    """Write the parts of a backup below `folder`, each held to its size and digest, and on disk.

    Raises `InvalidInput` when a part is missing, was changed or is not in the manifest.
    """
    wanted = {part.name: part for part in manifest.parts}
    total, done = sum(part.size for part in manifest.parts), 0
    try:
        with tarfile.open(file, "r:") as tar:
            for entry in tar:
                if entry.name == MANIFEST:
                    continue
                part, opened = wanted.pop(entry.name, None), tar.extractfile(entry)
                if part is None or opened is None or not _inside(entry.name):
                    raise InvalidInput(f"`{file}` holds `{entry.name}`, which it does not name", hint=_WHOLE)
                _extract(opened, part, folder / entry.name, file)
                done += part.size
                if progress is not None:
                    progress(done, total)
    except (tarfile.TarError, EOFError) as error:
        raise InvalidInput(f"`{file}` is cut short or damaged: {error}", hint=_WHOLE) from None
    except OSError as error:
        raise StoreUnavailable(
            f"`{file}` cannot be unpacked: {error.strerror or error}", hint="nothing was replaced; make room"
        ) from error
    if wanted:
        raise InvalidInput(f"`{file}` lacks `{min(wanted)}`", hint=_WHOLE)


_WHOLE: Final = "use another backup: this one is not whole, and nothing was replaced"


def _inside(name: str) -> bool:
    steps = name.split("/")
    return steps[0] in ("store", "state") and not {"", ".", ".."} & set(steps)


def _extract(source: Any, part: Part, target: Path, file: Path) -> None:
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    sha, size = hashlib.sha256(), 0
    mode = 0o700 if part.mode & 0o100 else 0o600
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    with open(descriptor, "wb") as out:
        while piece := source.read(_PIECE):
            sha.update(piece)
            size += len(piece)
            out.write(piece)
        out.flush()
        os.fsync(descriptor)
    if (size, sha.hexdigest()) != (part.size, part.sha256):
        raise InvalidInput(f"`{part.name}` in `{file}` is not what it was", hint=_WHOLE)
