"""The sources of a pack by path: hashed as a whole, copied by hash into the host's state.

What a person accepts is the copy; what happens to the folder afterwards changes nothing that runs.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from packhost.errors import ConfigInvalid, Place

MANIFEST_FILE = "pack.yaml"
MAX_FILES = 2000
MAX_BYTES = 32 * 1024 * 1024
_SKIPPED_FOLDERS = frozenset(
    {"__pycache__", ".git", ".hg", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".venv"}
)
_SKIPPED_SUFFIXES = (".pyc", ".pyo", ".swp", "~")

Sources = dict[str, bytes]
"""The files of a pack by relative path with `/`."""


def read_sources(folder: Path) -> Sources:
    """The files of a pack in a folder; caches and compiled files are left out.

    Raises `ConfigInvalid` as `gather_sources` does, and for a folder without pack.yaml.
    """
    found = gather_sources(folder)
    if MANIFEST_FILE not in found:
        raise ConfigInvalid(
            f"the folder `{folder}` holds no {MANIFEST_FILE}", hint="name the folder that holds the manifest"
        )
    return found


def gather_sources(folder: Path) -> Sources:
    """Every file below a folder but caches and compiled ones.

    Raises `ConfigInvalid` for links and special files, and beyond 2000 files or 32 MiB.
    """
    found: Sources = {}
    total = 0
    try:
        for name, path in files_below(folder):
            found[name] = _read(path)
            total += len(found[name])
            if len(found) > MAX_FILES or total > MAX_BYTES:
                raise ConfigInvalid(
                    f"the pack in `{folder}` is larger than {MAX_FILES} files or {MAX_BYTES // 1024**2} MiB",
                    hint="name the pack's own folder, without data or environments",
                )
    except OSError as error:
        said = (error.strerror or "it failed").lower()
        raise ConfigInvalid(f"the pack in `{folder}` cannot be read: {said}", hint="check its path") from None
    return found


def files_below(folder: Path) -> Iterator[tuple[str, Path]]:
    """Every file below a folder by relative path, caches and compiled ones left out.

    Raises `ConfigInvalid` for a link and `OSError`.
    """
    pending = [""]
    while pending:
        prefix = pending.pop()
        with os.scandir(folder / prefix) as entries:
            for entry in sorted(entries, key=lambda one: one.name):
                name = prefix + entry.name
                if entry.is_symlink():
                    raise ConfigInvalid(
                        f"the pack holds a symbolic link, `{name}`",
                        hint="put the file itself there",
                        place=Place(str(folder / name)),
                    )
                if entry.is_dir():
                    pending += [] if entry.name in _SKIPPED_FOLDERS else [f"{name}/"]
                elif not entry.name.endswith(_SKIPPED_SUFFIXES):
                    yield name, folder / name


def _read(path: Path) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ConfigInvalid(f"the pack holds a special file, `{path.name}`", place=Place(str(path)))
        return file.read(MAX_BYTES + 1)


def digest_of(sources: Sources) -> str:
    """SHA-256 over every path, length and content."""
    whole = hashlib.sha256()
    for name in sorted(sources):
        content = sources[name]
        encoded = os.fsencode(name)
        whole.update(len(encoded).to_bytes(8, "big") + encoded + len(content).to_bytes(8, "big") + content)
    return whole.hexdigest()


def keep_sources(sources: Sources, packs: Path) -> Path:
    """The folder `packs/<sha256>` with these files; made whole or not at all."""
    target = packs / digest_of(sources)
    if target.is_dir() and digest_of(read_sources(target)) == target.name:
        return target
    packs.mkdir(mode=0o700, exist_ok=True)
    new = Path(tempfile.mkdtemp(prefix=".new-", dir=packs))
    try:
        for name, content in sources.items():
            path = new / name
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.write_bytes(content)
        if target.exists():
            shutil.rmtree(target)
        new.rename(target)
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)
        raise
    return target
