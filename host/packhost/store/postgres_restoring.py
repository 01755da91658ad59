"""Putting a backup in the place of a workspace's PostgreSQL schema.

The database takes a dump as a whole or not at all; what does not verify afterwards is put back. No host may
take part meanwhile, on any machine.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path

import anyio

from packhost.errors import InvalidInput, StoreUnavailable
from packhost.store import restoring
from packhost.store.address import Address
from packhost.store.backup import DUMP_NAME, Manifest, Progress, extract
from packhost.store.marker import MARKER
from packhost.store.postgres import PostgresStore
from packhost.store.postgres_dump import dump, restore
from packhost.store.postgres_looking import applied_in, live_replicas, view_of
from packhost.store.restoring import Restored, Withdrawn


def restore_postgres(
    file: Path,
    state: Path,
    address: Address,
    *,
    by: str,
    with_consent: bool = False,
    progress: Progress | None = None,
) -> Restored:
    """Restore a backup; the caller holds the workspace's lock on this machine.

    Raises `StoreUnavailable` while a host takes part anywhere, and as `restoring.restore_sqlite`.
    """
    manifest = restoring.check(file, address.workspace)
    if manifest.kind != "postgresql":
        raise InvalidInput(f"`{file}` holds a {manifest.kind} store", hint="this workspace's is PostgreSQL")
    present = _present(address)
    folder = Path(tempfile.mkdtemp(prefix=".restore-", dir=state))
    aside = state / f"replaced-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{folder.name[-8:]}"
    try:
        extract(file, manifest, folder, progress)
        aside.mkdir(mode=0o700)
        former = aside / DUMP_NAME if present is not None else None
        if former is not None:
            dump(address, former)
        restore(address, folder / manifest.store.name)
        try:
            with view_of(address) as view:
                restoring.verified(view, manifest)
        except InvalidInput:
            if former is not None:
                restore(address, former)
            raise
        interrupted, withdrawn = anyio.run(_settled, address, manifest, by, present)
        restoring.put_files(state, folder, aside, with_consent=with_consent)
    finally:
        if not (state / MARKER).exists():
            shutil.rmtree(folder, ignore_errors=True)
    return Restored(manifest, aside, interrupted, withdrawn, unread=False)


def _present(address: Address) -> Withdrawn | None:
    """What was taken back in the present store; `None` where there is none."""
    if not applied_in(address):
        return None
    with view_of(address) as view:
        hosts = live_replicas(view)
        if hosts:
            names = ", ".join(f"process {one['pid']} on {one['host']}" for one in hosts)
            raise StoreUnavailable(
                f"restoring needs the store for itself, and {names} uses it",
                hint="stop every `packhost serve` of this workspace, on every machine, and wait a minute",
            )
        return restoring.withdrawn(view)


async def _settled(
    address: Address, manifest: Manifest, by: str, present: Withdrawn | None
) -> tuple[tuple[str, ...], dict[str, int]]:
    store = PostgresStore(address)
    try:
        return await store.write(restoring.settle, manifest, by, present)
    finally:
        await store.close()
