"""Putting a backup in the place of a workspace's state, as a whole or not at all.

Everything is made ready beside the state first: unpacked, held to its digests, its record verified, what
was running interrupted. Then one small file says what goes where, and that is the moment of it: from then on
whoever opens the workspace next carries it to its end, however often it is broken off. What was there is
kept aside.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from packhost.errors import InvalidInput, PackhostError
from packhost.store.audit import verify_chain
from packhost.store.backup import Manifest, Progress, extract, read_manifest
from packhost.store.base import Reading, Tx
from packhost.store.info import applied, read_only
from packhost.store.marker import FOLDER, MARKER, finish
from packhost.store.migrations import migrate
from packhost.store.ops import events, executions
from packhost.store.rows import Head
from packhost.store.schema import MIGRATIONS
from packhost.store.seals import Anchor
from packhost.store.sqlite import STORE_NAME, SqliteReading, SqliteTx
from packhost.workspace.files import sync_folder

RESTORED_EVENT: Final = "store.restored"
_CONSENT: Final = ("accepted.json", "packs")
"""What is accepted now stays as it is: an older consent may have been wider."""
_TOKENS: Final = 5
"""The migration that brought tokens."""
_CONSOLES: Final = 9
"""The one that brought consoles and passkeys."""
_SIDES: Final = ("", "-wal", "-shm", "-journal")


@dataclass(frozen=True, slots=True)
class Restored:
    """What a restoration did; `aside` is where the former state lies."""

    manifest: Manifest
    aside: Path
    interrupted: tuple[str, ...]
    withdrawn: dict[str, int]
    unread: bool


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """What was taken back since the backup was made, so that no restoration gives it again.

    `passkeys` are those that are still there; `None` when that is not known.
    """

    grants: tuple[tuple[str, float], ...] = ()
    tokens: tuple[tuple[str, float], ...] = ()
    head: Head | None = None
    passkeys: frozenset[str] | None = None


def check(file: Path, workspace: str) -> Manifest:
    """What a backup holds, when it is one of the store of that name that this packhost can use.

    Raises `InvalidInput` for another workspace's, `PackhostError` with `STORE_NEWER` for a later packhost's.
    """
    manifest = read_manifest(file)
    if manifest.workspace != workspace:
        raise InvalidInput(
            f"`{file}` is a backup of another workspace, `{manifest.root}`",
            hint="restore it where that workspace lies: what is in it is bound to that",
        )
    known = MIGRATIONS[-1].version
    if manifest.schema > known:
        raise PackhostError(
            f"the backup has schema {manifest.schema}, this packhost knows up to {known}",
            code="STORE_NEWER",
            hint="use the packhost that wrote it, or a later one",
        )
    return manifest


def restore_sqlite(
    file: Path, state: Path, *, by: str, with_consent: bool = False, progress: Progress | None = None
) -> Restored:
    """Put a backup of a SQLite store in place; the caller holds the workspace's lock.

    Raises as `check` does, and `InvalidInput` for a backup whose record does not verify.
    """
    manifest = check(file, state.name)
    if manifest.kind != "sqlite":
        raise InvalidInput(f"`{file}` holds a {manifest.kind} store", hint="this workspace's is SQLite")
    present = _present(state)
    folder = Path(tempfile.mkdtemp(prefix=FOLDER, dir=state))
    try:
        extract(file, manifest, folder, progress)
        ready = folder / "new"
        ready.mkdir(mode=0o700)
        os.rename(folder / manifest.store.name, ready / STORE_NAME)
        interrupted, withdrawn = _make_ready(ready / STORE_NAME, state.name, manifest, by, present)
        names = list(_bring(folder / "state", ready, state, with_consent=with_consent))
        sync_folder(ready)
        aside = _aside(state)
        _commit(state, folder, aside, [STORE_NAME, *names])
    except BaseException:
        if not (state / MARKER).exists():
            shutil.rmtree(folder, ignore_errors=True)
        raise
    finish(state)
    return Restored(manifest, aside, interrupted, withdrawn, present is None)


def _make_ready(
    path: Path, workspace: str, manifest: Manifest, by: str, present: Withdrawn | None
) -> tuple[tuple[str, ...], dict[str, int]]:
    """Verify the record, bring the schema up, interrupt what ran; those runs, and what was withdrawn."""
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        verified(SqliteReading(connection, workspace), manifest)
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA foreign_keys=ON")
        copy = migrate(connection, path)
        if copy is not None:
            copy.unlink()
        tx = SqliteTx(connection, workspace)
        tx.begin()
        done = settle(tx, manifest, by, present)
        tx.commit()
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    except sqlite3.DatabaseError as error:
        raise InvalidInput(
            f"the store in the backup is damaged: {error}", hint="use another backup"
        ) from None
    finally:
        connection.close()
    for side in _SIDES[1:]:
        path.with_name(f"{path.name}{side}").unlink(missing_ok=True)
    with path.open("rb+") as file:
        os.fsync(file.fileno())
    return done


def verified(view: Reading, manifest: Manifest) -> None:
    """Raise `InvalidInput` unless the record holds and goes up to the head that the manifest names."""
    anchors = [Anchor(manifest.head_hash, manifest.head_id)] if manifest.head_id else []
    report = verify_chain(view, anchors)
    if report.broken is not None or report.missed:
        said = f"event {report.broken.id}: {report.broken.reason}" if report.broken else report.missed[0]
        raise InvalidInput(f"the record in the backup does not verify: {said}", hint="use another backup")


def settle(
    tx: Tx, manifest: Manifest, by: str, present: Withdrawn | None
) -> tuple[tuple[str, ...], dict[str, int]]:
    """What must not go on as if no time had passed, in one transaction and on record."""
    tx.execute("DELETE FROM replicas")
    interrupted = executions.interrupt_orphans(tx, "restore")
    open_ones = "status IN ('pending','approved') AND consumed_by IS NULL"
    closed = tx.execute(f"UPDATE approvals SET status='cancelled' WHERE {open_ones} RETURNING id").fetchall()  # noqa: S608
    unused = "status IN ('pending','accepted') AND consumed_by IS NULL"
    asked = tx.execute(f"UPDATE questions SET status='cancelled' WHERE {unused} RETURNING id").fetchall()  # noqa: S608
    counts = {"approvals": len(closed), "questions": len(asked), "grants": 0, "tokens": 0}
    for table in ("grants", "tokens"):
        for id, at in getattr(present, table, ()):
            sql = f"UPDATE {table} SET revoked_at=? WHERE id=? AND revoked_at IS NULL RETURNING id"  # noqa: S608
            counts[table] += tx.execute(sql, (at, id)).fetchone() is not None
    tx.execute("DELETE FROM console_sessions")
    for (id,) in tx.execute("SELECT id FROM passkeys").fetchall():
        if present is not None and present.passkeys is not None and id not in present.passkeys:
            tx.execute("DELETE FROM passkeys WHERE id=?", (id,))  # it was taken back since
    replaced = present.head if present is not None else None
    data: dict[str, Any] = {
        "made_at": manifest.made_at,
        "head": {"id": manifest.head_id, "hash": manifest.head_hash},
        "replaced": {"id": replaced.id, "hash": replaced.hash} if replaced is not None else None,
        "interrupted": list(interrupted),
        "withdrawn": counts,
    }
    tx.emit(RESTORED_EVENT, data, actor=by)
    return interrupted, counts


def withdrawn(view: Reading) -> Withdrawn:
    """What has been taken back in the store that is to be replaced."""
    tokens: tuple[tuple[str, float], ...] = ()
    if _TOKENS in applied(view):
        tokens = tuple(view.execute("SELECT id, revoked_at FROM tokens WHERE revoked_at IS NOT NULL"))
    grants = tuple(view.execute("SELECT id, revoked_at FROM grants WHERE revoked_at IS NOT NULL"))
    passkeys: frozenset[str] | None = None
    if _CONSOLES in applied(view):
        passkeys = frozenset(id for (id,) in view.execute("SELECT id FROM passkeys"))
    return Withdrawn(grants, tokens, events.head(view), passkeys)


def _present(state: Path) -> Withdrawn | None:
    path = state / STORE_NAME
    if not path.exists():
        return Withdrawn()
    connection: sqlite3.Connection | None = None
    try:
        connection = read_only(path)
        return withdrawn(SqliteReading(connection, state.name))
    except sqlite3.Error:  # damaged: that may be why there is a restoration
        return None
    finally:
        if connection is not None:
            connection.close()


def _bring(source: Path, ready: Path, state: Path, *, with_consent: bool) -> Iterable[str]:
    """Move the state's small files to what is ready; the names of those at its top."""
    for entry in sorted(source.iterdir()) if source.is_dir() else ():
        kept = entry.name in _CONSENT and not with_consent and (state / entry.name).exists()
        if not kept:
            os.rename(entry, ready / entry.name)
            yield entry.name


def put_files(state: Path, folder: Path, aside: Path, *, with_consent: bool) -> None:
    """Put the small files of an unpacked backup in place alone, where the store is a database of its own."""
    ready = folder / "new"
    ready.mkdir(mode=0o700)
    names = list(_bring(folder / "state", ready, state, with_consent=with_consent))
    sync_folder(ready)
    _commit(state, folder, aside, names)
    finish(state)


def _aside(state: Path) -> Path:
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    return next(
        path for count in range(1, 1_000) if not (path := state / f"replaced-{stamp}-{count}").exists()
    )


def _commit(state: Path, folder: Path, aside: Path, names: list[str]) -> None:
    stores = [f"{STORE_NAME}{side}" for side in _SIDES] if STORE_NAME in names else []
    old = [name for name in dict.fromkeys([*stores, *names]) if (state / name).exists()]
    text = json.dumps({"from": folder.name, "aside": aside.name, "old": old, "new": names})
    draft = folder / MARKER
    draft.write_text(text)
    with draft.open("rb+") as file:
        os.fsync(file.fileno())
    os.rename(draft, state / MARKER)
    sync_folder(state)
