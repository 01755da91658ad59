"""Looking after a workspace's store from outside: what it is, migrations, backups, restorations.

Nothing here starts a host. Where one runs it is asked, or its store is copied by a connection that only
reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import anyio

from packhost.app.entry import RemoteControl, workspace_root
from packhost.app.host import user_name
from packhost.errors import StoreUnavailable
from packhost.packs.discover import EntryPoints
from packhost.store import restoring
from packhost.store.address import Address
from packhost.store.backup import Manifest, Progress, backup, copy_sqlite, look_at, look_at_sqlite
from packhost.store.base import Store
from packhost.store.info import applied, describe, looking, sqlite_files
from packhost.store.lock import HostLock
from packhost.store.marker import finish, sweep
from packhost.store.migrations import due
from packhost.store.opening import SQLITE, address_of, open_store
from packhost.store.restoring import Restored
from packhost.store.rows import Head
from packhost.store.schema import MIGRATIONS, Dialect, Migration
from packhost.store.sqlite import STORE_NAME
from packhost.workspace.root import Root
from packhost.workspace.workspace import Workspace


class Keeper:
    """A workspace's store as somebody finds it who is not its host; made by `keeping`."""

    def __init__(self, root: Root, lock: HostLock) -> None:
        self.root = root
        self.state = root.state
        self._lock = lock
        self._workspace = Workspace(root, installed=EntryPoints())
        self.sqlite = self._workspace.store == SQLITE

    def _take(self, doing: str) -> None:
        """Become the one that may write; raises `StoreUnavailable` where another is."""
        if not self._lock.acquire():
            holder = self._lock.holder()
            raise StoreUnavailable(
                f"{doing} needs the workspace for itself, and "
                f"{f'process {holder.pid}' if holder and holder.pid else 'another process'} is its host",
                hint="end it first: close its client, or stop `packhost serve`",
            )
        finish(self.state)
        sweep(self.state)

    def _ended(self) -> bool:
        """End a restoration that was decided; whether there is no host, which would have done so.

        The lock is let go again at once: a host may come while the store is looked at or copied.
        """
        if not self._lock.acquire():
            return False
        finish(self.state)
        self._lock.release()
        return True

    def _address(self) -> Address:
        return address_of(self._workspace.store, self.root.hash, self._workspace.secrets)

    def _name(self) -> str:
        """What the store calls the workspace: hosts on several machines may share it by a name."""
        return self.root.hash if self.sqlite else self._address().workspace

    def _open(self) -> Store:
        return open_store(self._workspace.store, self.state, self.root.hash, self._workspace.secrets)

    def info(self) -> dict[str, Any]:
        """What the store is and holds. Raises `StoreUnavailable` when there is none yet."""
        if not self.sqlite:
            return anyio.run(self._shared_info)
        if not self._ended():
            found: dict[str, Any] = anyio.run(RemoteControl(self.root.socket).request, "store.info", {})
            return found
        with looking(self.state) as view:
            place = self.state / STORE_NAME
            return {"kind": "sqlite", "holder": None, **sqlite_files(place), **describe(view)}

    async def _shared_info(self) -> dict[str, Any]:
        """Of a database of its own, by a connection that only reads; its schema is left as it is."""
        from packhost.store.postgres_looking import look_inside  # heavy, and an extra

        return await anyio.to_thread.run_sync(look_inside, self._address())

    def due(self) -> tuple[int, tuple[Migration, ...]]:
        """The schema as it is, and the migrations that are still to be applied."""
        if self.sqlite and not (self.state / STORE_NAME).exists():
            return 0, MIGRATIONS
        if self.sqlite:
            with looking(self.state) as view:
                return self._due(applied(view), "sqlite")
        from packhost.store.postgres_looking import applied_in  # heavy, and an extra

        return self._due(applied_in(self._address()), "postgres")

    def _due(self, found: dict[int, str], dialect: Dialect) -> tuple[int, tuple[Migration, ...]]:
        return max(found, default=0), due(found, MIGRATIONS, dialect, "the store")

    def migrate(self) -> Path | None:
        """Bring the store to the last migration; where its copy lies, if one was made."""
        if self.sqlite:
            self._take("migrating")
        return anyio.run(self._migrated)

    async def _migrated(self) -> Path | None:
        store = self._open()
        try:
            copy: Path | None = getattr(store, "backup", None)
            return copy
        finally:
            await store.close()

    def backup(self, target: Path, progress: Progress | None = None) -> Manifest:
        """Write a backup to `target`; a host may go on meanwhile."""
        state, target = self.state, target.absolute()
        copy: Callable[[Path], None]
        look: Callable[[Path], tuple[int, Head, str]]
        if self.sqlite:
            self._ended()
            copy, look = (lambda path: copy_sqlite(state, path, progress)), look_at_sqlite
        else:
            from packhost.store.postgres_dump import dump  # heavy, and an extra

            # looked at first: a dump cannot be opened, and holds at least what was there before it
            address, seen = self._address(), self._look()
            copy, look = (lambda path: dump(address, path)), (lambda path: seen)
        return backup(
            target,
            state=state,
            workspace=self._name(),
            root=str(self.root.path),
            version=version("packhost"),
            kind="sqlite" if self.sqlite else "postgresql",
            copy=copy,
            look=look,
            progress=progress,
        )

    def _look(self) -> tuple[int, Head, str]:
        from packhost.store.postgres_looking import view_of  # heavy, and an extra

        with view_of(self._address()) as view:
            return look_at(view)

    def check(self, file: Path) -> Manifest:
        """What a backup holds, when it can be restored here."""
        return restoring.check(file, self._name())

    def restore(self, file: Path, *, with_consent: bool, progress: Progress | None = None) -> Restored:
        """Put a backup in the place of the present state, which is kept aside."""
        self._take("restoring")
        if self.sqlite:
            return restoring.restore_sqlite(
                file, self.state, by=user_name(), with_consent=with_consent, progress=progress
            )
        from packhost.store.postgres_restoring import restore_postgres  # heavy, and an extra

        return restore_postgres(
            file, self.state, self._address(), by=user_name(), with_consent=with_consent, progress=progress
        )


@contextmanager
def keeping(start: Path | None) -> Iterator[Keeper]:
    """The store of a workspace, for somebody who is not its host."""
    with workspace_root(start) as root, HostLock(root.state) as lock:
        yield Keeper(root, lock)
