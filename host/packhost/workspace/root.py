"""The root of a workspace, opened once, and the private folder where the host keeps its state.

State lies outside every workspace, in `$XDG_STATE_HOME/packhost/<hash of the root's real path>/`, so
that no scope of a pack reaches it.
"""

from __future__ import annotations

import hashlib
import os
import stat
import sys
from collections.abc import Mapping
from pathlib import Path

from packhost.errors import ConfigInvalid, Place

CONFIG_FILE = "packhost.yaml"
SOCKET_LIMIT = 100
"""Bytes that a socket's path may have; the kernel allows a few more."""
_SOCKET = "host.sock"
_SHORT = 16
_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


def find_root(start: Path) -> Path:
    """The nearest folder from `start` upward that holds packhost.yaml, else `start` itself; a real path.

    Raises `ConfigInvalid` when `start` is not a folder.
    """
    real = _real(start)
    for folder in (real, *real.parents):
        if os.path.isfile(folder / CONFIG_FILE):
            return folder
    return real


def _real(path: Path) -> Path:
    try:
        real = path.expanduser().resolve(strict=True)
    except (OSError, RuntimeError, ValueError):
        raise ConfigInvalid(f"there is no folder `{path}`", hint="name a folder that exists") from None
    if not real.is_dir():
        raise ConfigInvalid(f"`{path}` is not a folder", hint="name the folder of the workspace")
    return real


def state_base(environ: Mapping[str, str]) -> Path:
    """Where the states of all workspaces lie: `$XDG_STATE_HOME/packhost`, else below `~/.local/state`."""
    configured = environ.get("XDG_STATE_HOME", "")
    base = Path(configured) if os.path.isabs(configured) else _home(environ) / ".local" / "state"
    return base / "packhost"


def _home(environ: Mapping[str, str]) -> Path:
    home = environ.get("HOME", "")
    return Path(home) if os.path.isabs(home) else Path.home()


class Root:
    """A workspace's root: its real path, an open descriptor, and its private state folder (mode 0700).

    Every path of the workspace resolves from `descriptor`, so that a root that is renamed or replaced
    later changes nothing. Close it, or use it as a context manager.

    Raises `ConfigInvalid` for `$HOME`, `/`, a root that holds the state folder or lies in it, and for
    a state folder that is not private.
    """

    def __init__(self, path: Path, environ: Mapping[str, str] | None = None) -> None:
        self._environ = os.environ if environ is None else environ
        if sys.platform == "win32":
            raise ConfigInvalid("packhost does not run on Windows yet", hint="use Linux, macOS or WSL")
        self.path = _real(path)
        self.hash = hashlib.sha256(os.fsencode(self.path)).hexdigest()[:32]
        base = Path(os.path.realpath(state_base(self._environ)))
        self._refuse_wide(base)
        self.state = base / self.hash
        try:
            self.descriptor = os.open(self.path, _OPEN)
        except OSError as error:
            raise ConfigInvalid(f"the root `{self.path}` cannot be opened: {_why(error)}") from None
        try:
            _private(self.state)
        except BaseException:
            os.close(self.descriptor)
            raise

    def _refuse_wide(self, base: Path) -> None:
        hint = "name a folder of its own for the workspace with `-w`"
        if self.path == Path(self.path.anchor):
            raise ConfigInvalid("`/` cannot be a workspace", hint=hint)
        if self.path == Path(os.path.realpath(_home(self._environ))):
            raise ConfigInvalid("your home folder cannot be a workspace", hint=hint)
        if base.is_relative_to(self.path):
            raise ConfigInvalid(f"`{self.path}` holds packhost's own state, `{base}`", hint=hint)
        if self.path.is_relative_to(base):
            raise ConfigInvalid(f"`{self.path}` lies in packhost's own state", hint=hint)

    @property
    def socket(self) -> Path:
        """Where the host listens: in the state folder, or in a private runtime folder if that is too long.

        Raises `ConfigInvalid` when no private folder with a path short enough can be had.
        """
        inside = self.state / _SOCKET
        if len(os.fsencode(inside)) < SOCKET_LIMIT:
            return inside
        for folder in self._runtime_folders():
            path = folder / f"{self.hash[:_SHORT]}.sock"
            if len(os.fsencode(path)) < SOCKET_LIMIT:
                _private(folder)
                return path
        raise ConfigInvalid(
            "no path for the host's socket is short enough",
            hint="set XDG_STATE_HOME or XDG_RUNTIME_DIR to a short path",
        )

    @property
    def moved(self) -> bool:
        """Whether another folder, or none, now lies at the path that was opened."""
        opened = os.fstat(self.descriptor)
        try:
            found = os.stat(self.path)
        except OSError:
            return True
        return (found.st_dev, found.st_ino) != (opened.st_dev, opened.st_ino)

    def _runtime_folders(self) -> list[Path]:
        configured = self._environ.get("XDG_RUNTIME_DIR", "")
        found = [Path(configured) / "packhost"] if os.path.isdir(configured) else []
        return [*found, Path("/tmp") / f"packhost-{os.getuid()}"]  # noqa: S108 - made private, owner checked

    def close(self) -> None:
        """Close the descriptor; twice does no harm."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def __enter__(self) -> Root:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Root({str(self.path)!r})"


def _private(folder: Path) -> None:
    """Make `folder` and check that it is the user's own and nobody else's to enter."""
    try:
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
        if stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and found.st_mode & 0o077:
            folder.chmod(0o700)
            found = folder.lstat()
    except OSError as error:
        raise ConfigInvalid(
            f"the folder `{folder}` cannot be made: {_why(error)}",
            hint="set XDG_STATE_HOME to a folder that you may write",
        ) from None
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise ConfigInvalid(
            f"the folder `{folder}` is not private to you",
            hint="remove it, or set XDG_STATE_HOME to another folder",
            place=Place(str(folder)),
        )


def _why(error: OSError) -> str:
    return (error.strerror or "it failed").lower()
