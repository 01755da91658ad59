"""The database file: created, migrated, refused, full, broken."""

from __future__ import annotations

import sqlite3
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from packhost.errors import PackhostError, StoreUnavailable
from packhost.store.audit import verify_chain
from packhost.store.base import Tx
from packhost.store.ops import events
from packhost.store.schema import MIGRATIONS, Migration
from packhost.store.sqlite import SqliteStore

pytestmark = pytest.mark.anyio
NEXT = Migration(MIGRATIONS[-1].version + 1, "colours", ("ALTER TABLE sessions ADD COLUMN colour TEXT",))
BROKEN = Migration(
    MIGRATIONS[-1].version + 1, "broken", ("CREATE TABLE fine(id TEXT)", "CREATE TABLE broken(")
)


@pytest.fixture
async def store(anyio_backend: str, tmp_path: Path) -> AsyncIterator[SqliteStore]:
    opened = SqliteStore(tmp_path / "store.db", "ws")
    yield opened
    await opened.close()


def note(tx: Tx, text: str) -> int:
    return tx.emit("note", {"text": text})


async def test_every_file_is_its_owners_alone(store: SqliteStore) -> None:
    await store.write(note, "a")
    found = {path.name: stat.S_IMODE(path.stat().st_mode) for path in store.path.parent.iterdir()}
    assert found == {"store.db": 0o600, "store.db-wal": 0o600, "store.db-shm": 0o600}


async def test_the_writer_syncs_each_commit_to_a_write_ahead_log(store: SqliteStore) -> None:
    def pragmas(tx: Tx) -> list[object]:
        names = ("journal_mode", "synchronous", "foreign_keys")
        return [tx.execute(f"PRAGMA {name}").fetchone()[0] for name in names]

    assert await store.write(pragmas) == ["wal", 2, 1]


async def test_a_database_opens_again_as_it_was(anyio_backend: str, tmp_path: Path) -> None:
    first = SqliteStore(tmp_path / "store.db", "ws")
    await first.write(note, "a")
    head = first.read(events.head)
    await first.close()
    second = SqliteStore(tmp_path / "store.db", "ws")
    assert second.read(events.head) == head
    assert second.backup is None
    assert await second.write(note, "b") == 2
    assert second.read(verify_chain).ok
    await second.close()


def test_a_store_that_was_only_read_closes_without_a_loop(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db", "ws")
    assert store.read(events.head).id == 0
    store.close_now()
    store.close_now()


async def test_a_newer_schema_is_refused_and_left_alone(anyio_backend: str, tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    newer = SqliteStore(path, "ws", migrations=(*MIGRATIONS, NEXT))
    await newer.close()
    before = path.read_bytes()
    with pytest.raises(PackhostError) as caught:
        SqliteStore(path, "ws")
    assert caught.value.code == "STORE_NEWER"
    assert caught.value.data == {"found": NEXT.version, "known": MIGRATIONS[-1].version}
    assert caught.value.hint
    assert path.read_bytes() == before


async def test_an_older_schema_is_copied_and_then_migrated(anyio_backend: str, tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    older = SqliteStore(path, "ws")
    await older.write(note, "before")
    head = older.read(events.head)
    await older.close()

    store = SqliteStore(path, "ws", migrations=(*MIGRATIONS, NEXT))

    assert store.read(lambda tx: tx.execute("SELECT colour FROM sessions").fetchall()) == []
    assert store.read(events.head) == head
    await store.close()
    assert store.backup is not None
    assert stat.S_IMODE(store.backup.stat().st_mode) == 0o600
    copy = SqliteStore(store.backup, "ws")
    assert copy.read(events.head) == head
    await copy.close()


async def test_a_migration_that_fails_changes_nothing(anyio_backend: str, tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    older = SqliteStore(path, "ws")
    await older.write(note, "before")
    await older.close()
    with pytest.raises(StoreUnavailable):
        SqliteStore(path, "ws", migrations=(*MIGRATIONS, BROKEN))
    store = SqliteStore(path, "ws")
    tables = store.read(lambda tx: tx.execute("SELECT name FROM sqlite_schema").fetchall())
    assert ("fine",) not in tables
    assert store.read(events.head).id == 1
    await store.close()


async def test_a_schema_that_was_never_released_is_refused(anyio_backend: str, tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    await SqliteStore(path, "ws").close()
    changed = Migration(1, "first", (*MIGRATIONS[0].sqlite, "CREATE TABLE more(id TEXT)"))
    with pytest.raises(StoreUnavailable) as caught:
        SqliteStore(path, "ws", migrations=(changed, *MIGRATIONS[1:]))
    assert str(path) in caught.value.hint


@pytest.mark.parametrize("content", [b"garbage" * 2000, b"SQLite format 3\x00" + b"\xff" * 8000])
def test_a_garbage_file_is_refused_with_a_way_out(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "store.db"
    path.write_bytes(content)
    with pytest.raises(StoreUnavailable) as caught:
        SqliteStore(path, "ws")
    assert caught.value.code == "STORE_UNAVAILABLE"
    assert str(path) in caught.value.message
    assert "move the file aside" in caught.value.hint
    assert path.read_bytes() == content


def test_a_folder_a_link_or_no_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    for path in (tmp_path / "folder", tmp_path / "link", tmp_path / "none" / "store.db"):
        with pytest.raises(StoreUnavailable) as caught:
            SqliteStore(path, "ws")
        assert caught.value.hint
    assert not (tmp_path / "elsewhere").exists()


async def test_a_full_disk_fails_the_write_and_the_store_lives_on(store: SqliteStore) -> None:
    def allow(tx: Tx, pages: int) -> None:
        tx.execute(f"PRAGMA max_page_count={pages}")

    await store.write(note, "small")
    await store.write(allow, 1)  # SQLite raises it to the size that the file has
    with pytest.raises(StoreUnavailable) as caught:
        await store.write(note, "x" * 1_000_000)
    assert "free space" in caught.value.hint
    await store.write(allow, 1_000_000)
    assert await store.write(note, "fits again") == 2
    assert store.read(verify_chain).ok


async def test_a_database_that_another_process_writes_to_is_unavailable(store: SqliteStore) -> None:
    await store.write(lambda tx: tx.execute("PRAGMA busy_timeout=10").fetchone())
    other = sqlite3.connect(store.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable) as caught:
        await store.write(note, "a")
    assert "another process" in caught.value.hint
    other.execute("ROLLBACK")
    other.close()
    assert await store.write(note, "a") == 1
