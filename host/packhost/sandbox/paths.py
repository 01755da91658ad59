"""The file broker: every use of a file, by descriptor, held to every layer of scopes.

A path has one spelling (`form`), is opened below the root's descriptor without following any link
(`openat2`), and since no link is followed, the string that was checked is the path that is used. Each layer
is matched by itself, and no write reaches what `protected` names. A regular file with a second
name is refused, since that name may lie outside; so are pipes, sockets and devices.

Reading a folder means passing through it: it is allowed where every layer covers it or something that may
lie below, and only entries that are themselves visible are told. Removing a tree takes links and second
names inside it away as names, without following them.
"""

from __future__ import annotations

import builtins
import errno
import functools
import os
import re
import stat
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager

from packhost.errors import ConfigInvalid, InvalidInput, NotFound, ToolFailed
from packhost.names import nearest
from packhost.rules.globs import Glob, compile_glob
from packhost.rules.scopes import Access, Layer, path_use
from packhost.sandbox import changes
from packhost.sandbox.entries import FileStat, Walk, entry_type, file_stat
from packhost.sandbox.failures import changed, denied, exists, from_os_error, is_file, is_folder
from packhost.sandbox.form import ROOT, check_form, outside, problem
from packhost.sandbox.openat2 import Opener, best_opener, rename_without_replacing
from packhost.sandbox.tree import Descent, entries, join, parent

MAX_READ = 64 * 1024 * 1024
"""Bytes that one read returns at most."""
MAX_TREE = 100_000
"""Entries that one move or removal takes at most."""

_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY
MAX_SEEN = 500_000
"""Entries that one walk looks at; one that ends there is not complete."""
_UNSPEAKABLE = re.compile(r"[*?\[\]{}\\~:]")
_READ_HINT = f"read it in parts of at most {MAX_READ} bytes, with `offset` and `limit`"


@functools.cache
def system_opener() -> Opener:
    """The best opener of this system, found out once."""
    return best_opener()


class FileBroker:
    """The files below `root`, a folder's descriptor that the caller keeps open, within `layers`."""

    def __init__(self, root: int, layers: Sequence[Layer], *, opener: Opener | None = None) -> None:
        self._root = root
        self._layers = layers
        self._opener = opener or system_opener()

    def resolve(self, path: str, access: Access) -> str:
        """The path as it lies on disk, or would, once `access` to it has been checked.

        :raises ScopeDenied: when it lies outside a layer, or is or passes through something refused.
        :raises InvalidInput: when it is not a plain relative path.
        """
        relative = check_form(path)
        try:
            self._look(relative, access)
        except OSError as error:
            raise from_os_error(error, relative) from None
        return relative

    def stat(self, path: str) -> FileStat:
        """What lies at `path`."""
        relative = check_form(path)
        with self._finding(relative):
            return file_stat(relative, self._existing(relative, "read"))

    def read(self, path: str, *, offset: int = 0, limit: int | None = None) -> bytes:
        """At most `limit` bytes from `offset`; without a limit the whole rest, up to `MAX_READ`.

        :raises ToolFailed: when more than `MAX_READ` bytes would be needed.
        """
        if offset < 0 or (limit is not None and limit < 0):
            raise InvalidInput("`offset` and `limit` cannot be negative", hint="count from 0")
        relative = check_form(path)
        with self._finding(relative), self._opened(relative) as (descriptor, _):
            data = _read(descriptor, offset, MAX_READ + 1 if limit is None else min(limit, MAX_READ))
        if len(data) > MAX_READ:
            raise ToolFailed(f"`{relative}` is longer than one read returns", hint=_READ_HINT, path=relative)
        return data

    def list(self, path: str) -> builtins.list[FileStat]:
        """The visible entries of a folder, by name."""
        relative = check_form(path)
        with self._finding(relative):
            if not stat.S_ISDIR(self._existing(relative, "read").st_mode):
                raise is_file(relative)
            return self._visible(relative)

    def walk(
        self, path: str, *, glob: str = "**", limit: int = 100_000, skip_folders: Collection[str] = ()
    ) -> Walk:
        """Every readable file below a folder (or the file itself) but in folders named in `skip_folders`.

        `glob` picks files by their path below the folder. `skipped` counts by reason: `scope`, `symlink`,
        `hardlink`, `other` (pipes, devices), `name` (one that cannot be written as a path), `folder` (left
        out), `unreadable`.

        :raises InvalidInput: for a glob that is not one.
        """
        relative, wanted = check_form(path), _wanted(glob)
        with self._finding(relative):
            start = self._existing(relative, "read")
        if not stat.S_ISDIR(start.st_mode):
            return Walk((file_stat(relative, start),))
        files: builtins.list[FileStat] = []
        skipped: Counter[str] = Counter()
        descent = Descent(self._opener, self._root, relative)
        for seen, (name, state) in enumerate(descent):
            if seen == MAX_SEEN:
                return Walk(tuple(files), dict(skipped), complete=False)
            reason = self._skip(name, state, skip_folders)
            if reason:
                skipped[reason] += 1
            elif stat.S_ISDIR(state.st_mode):
                descent.enter(name)
            elif not wanted.matches(name if relative == ROOT else name[len(relative) + 1 :]):
                continue
            elif len(files) == limit:
                return Walk(tuple(files), dict(skipped), complete=False)
            else:
                files.append(file_stat(name, state))
        skipped["unreadable"] += len(descent.unopened)
        return Walk(tuple(files), {reason: count for reason, count in skipped.items() if count})

    def write(self, path: str, data: bytes, *, create_parents: bool = True) -> None:
        """Replace or create a file as one step, flushed to disk; the mode of an old file is kept."""
        relative = check_form(path)
        with _translated(relative):
            found = self._look(relative, "write")
            if found is not None and stat.S_ISDIR(found.st_mode):
                raise is_folder(relative)
            with self._folder_of(relative, create=create_parents) as (folder, _):
                changes.put(folder, relative, data, found)

    def replace_if_unchanged(self, path: str, old: bytes, new: bytes) -> None:
        """Replace a file whose content is still `old`.

        :raises ToolFailed: when it is not, or another edit of it is under way.
        """
        relative = check_form(path)
        with self._finding(relative):
            self._existing(relative, "write")
            with self._opened(relative) as (original, found):
                changes.claim(original, relative)
                if found.st_size != len(old) or _read(original, 0, len(old) + 1) != old:
                    raise changed(relative)
                with self._folder_of(relative, create=False) as (folder, _):
                    changes.put(folder, relative, new, found, original=original)

    def move(self, source: str, target: str) -> None:
        """Rename a file or folder, making the folders that the target needs; never over something.

        It needs reading at the source too, since the content may be readable at the target. Everything in
        a folder has to be covered at both ends.
        """
        old, new = check_form(source), check_form(target)
        with self._finding(old):
            self._existing(old, "read")
            found = self._existing(old, "write")
        with _translated(new):
            if self._look(new, "write") is not None:
                raise exists(new)
            if new.startswith(f"{old}/"):
                raise ToolFailed(f"`{old}` cannot be moved into itself", hint="choose a target outside it")
            if stat.S_ISDIR(found.st_mode):
                for name, _ in self._tree(old):
                    self._cover_read(name)
                    self._cover_write(name)
                    self._cover_write(new + name[len(old) :])
            self._rename(old, new)

    def delete(self, path: str, *, recursive: bool = False) -> None:
        """Remove a file or an empty folder; a filled one only with `recursive`, whole or not at all."""
        relative = check_form(path)
        with self._finding(relative):
            found = self._existing(relative, "write")
            doomed = [(relative, stat.S_ISDIR(found.st_mode))]
            if recursive and stat.S_ISDIR(found.st_mode):
                for name, state in self._tree(relative):
                    self._cover_write(name)
                    if state.st_dev != found.st_dev:
                        raise ToolFailed(f"`{name}` lies on another file system", hint="unmount it first")
                    doomed.append((name, stat.S_ISDIR(state.st_mode)))
            changes.remove(self._opener, self._root, doomed)

    def make_directory(self, path: str) -> None:
        """Make a folder and the parents that it lacks; a folder that exists is left as it is."""
        relative = check_form(path)
        with _translated(relative):
            found = self._look(relative, "write")
            if found is not None and not stat.S_ISDIR(found.st_mode):
                raise exists(relative)
            os.close(changes.open_folder(self._opener, self._root, relative, create=True))

    def _look(self, relative: str, access: Access) -> os.stat_result | None:
        """The state of a path that `access` is allowed to; `None` when nothing lies there."""
        passing = False
        if access == "write":
            self._cover_write(relative)
        else:
            passing = self._cover_read(relative, passing=True)
        try:
            found = self._opener.probe(self._root, relative)
        except FileNotFoundError:
            if passing:
                self._cover_read(relative)
            return None
        if passing and not stat.S_ISDIR(found.st_mode):
            self._cover_read(relative)
        _usable(relative, found)
        return found

    def _existing(self, relative: str, access: Access) -> os.stat_result:
        found = self._look(relative, access)
        if found is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), relative)
        return found

    def _cover_read(self, relative: str, *, passing: bool = False) -> bool:
        """Checks the scopes of a read; with `passing`, true says that a folder may only be passed through."""
        uncovered = path_use("read", relative, self._layers)
        if uncovered is None:
            return False
        if passing and _may_hold(relative, self._layers):
            return True
        raise denied("read", relative, uncovered)

    def _cover_write(self, relative: str) -> None:
        if relative == ROOT:
            raise outside(relative, "is the workspace itself, which is never replaced, moved or deleted")
        uncovered = path_use("write", relative, self._layers)
        if uncovered is not None:
            raise denied("write", relative, uncovered)

    def _seen(self, relative: str, state: os.stat_result) -> bool:
        if path_use("read", relative, self._layers) is None:
            return True
        return stat.S_ISDIR(state.st_mode) and _may_hold(relative, self._layers)

    def _skip(self, relative: str, state: os.stat_result, skip_folders: Collection[str]) -> str | None:
        if problem(relative):
            return "name"
        if not self._seen(relative, state):
            return "scope"
        kind = entry_type(state)
        if kind == "directory":
            return "folder" if parent(relative)[1] in skip_folders else None
        return None if kind == "file" else kind

    def _tree(self, folder: str) -> Iterator[tuple[str, os.stat_result]]:
        descent = Descent(self._opener, self._root, folder)
        for count, (name, state) in enumerate(descent):
            if count == MAX_TREE:
                raise ToolFailed(f"`{folder}` holds more than {MAX_TREE} entries", hint="take it in parts")
            yield name, state
            if stat.S_ISDIR(state.st_mode):
                descent.enter(name)
        if descent.unopened:
            name, error = descent.unopened[0]
            raise from_os_error(error, name) from None

    def _rename(self, old: str, new: str) -> None:
        with (
            self._folder_of(old, create=False) as (source, name),
            self._folder_of(new, create=True) as (target, wanted),
        ):
            try:
                rename_without_replacing(source, name, target, wanted)
            except OSError as error:
                if error.errno != errno.EXDEV:
                    raise
                raise ToolFailed(f"`{old}` and `{new}` lie on different file systems") from None
            os.fsync(target)
            os.fsync(source)

    @contextmanager
    def _opened(self, relative: str) -> Iterator[tuple[int, os.stat_result]]:
        """A regular file open for reading, and its state as the descriptor tells it."""
        if stat.S_ISDIR(self._existing(relative, "read").st_mode):
            raise is_folder(relative)
        descriptor = self._opener.open(self._root, relative, _READ)
        try:
            found = os.fstat(descriptor)
            _usable(relative, found)
            yield descriptor, found
        finally:
            os.close(descriptor)

    @contextmanager
    def _folder_of(self, relative: str, *, create: bool) -> Iterator[tuple[int, str]]:
        folder, name = parent(relative)
        descriptor = changes.open_folder(self._opener, self._root, folder, create=create)
        try:
            yield descriptor, name
        finally:
            os.close(descriptor)

    @contextmanager
    def _finding(self, relative: str) -> Iterator[None]:
        """Translates the system's errors; a missing path names its nearest visible neighbours."""
        try:
            with _translated(relative):
                yield
        except NotFound as error:
            near = self._neighbours(relative)
            if near:
                error.hint = f"did you mean {' or '.join(f'`{name}`' for name in near)}?"
            raise

    def _neighbours(self, relative: str) -> builtins.list[str]:
        folder, name = parent(relative)
        try:
            usable = [entry for entry in self._visible(folder) if entry.type in ("file", "directory")]
        except OSError:
            return []
        return [join(folder, near) for near in nearest(name, [parent(entry.path)[1] for entry in usable], 2)]

    def _visible(self, folder: str) -> builtins.list[FileStat]:
        return [
            file_stat(name, state)
            for name, state in entries(self._opener, self._root, folder)
            if not problem(name) and self._seen(name, state)
        ]


@contextmanager
def _translated(relative: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise from_os_error(error, relative) from None


def _usable(relative: str, found: os.stat_result) -> None:
    kind = entry_type(found)
    if kind == "hardlink":
        raise outside(
            relative,
            "is a file with a second name, which may lie outside the workspace",
            "a person can replace it by a copy of itself",
        )
    if kind in ("symlink", "other"):
        raise outside(relative, "is not a regular file or folder", "pipes, sockets and devices are not used")


def _wanted(glob: str) -> Glob:
    try:
        return compile_glob(glob)
    except ConfigInvalid as error:
        raise InvalidInput(error.message, hint=error.hint) from None


def _may_hold(relative: str, layers: Sequence[Layer]) -> bool:
    try:
        below = compile_glob(_below(relative))
    except ConfigInvalid:
        return False
    return all(any(glob.overlaps(below) for glob in layer.globs("read")) for layer in layers)


@functools.lru_cache(maxsize=4096)
def _below(relative: str) -> str:
    """A glob of what lies below a folder; a name that a glob cannot spell is widened to `*`."""
    names = () if relative == ROOT else relative.split("/")
    return "/".join((*("*" if _UNSPEAKABLE.search(name) else name for name in names), "**"))


def _read(descriptor: int, offset: int, limit: int) -> bytes:
    parts = []
    while limit > 0 and (part := os.pread(descriptor, min(limit, 1 << 20), offset)):
        parts.append(part)
        offset += len(part)
        limit -= len(part)
    return b"".join(parts)
