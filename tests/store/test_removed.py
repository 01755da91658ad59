"""A database that is removed or replaced while it is in use."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from packhost.errors import StoreUnavailable
from packhost.store.base import Tx
from packhost.store.sqlite import SqliteStore

pytestmark = pytest.mark.anyio


def note(tx: Tx) -> int:
    return tx.emit("test.note", {})


@pytest.mark.parametrize("how", ["removed", "replaced", "folder"])
async def test_nothing_more_is_acknowledged_and_what_is_there_is_still_read(tmp_path: Path, how: str) -> None:
    folder = tmp_path / "state"
    folder.mkdir()
    store = SqliteStore(folder / "store.db", "w")
    try:
        assert await store.write(note) == 1
        if how == "folder":
            shutil.rmtree(folder)
        else:
            store.path.unlink()
        if how == "replaced":
            store.path.touch()
        with pytest.raises(StoreUnavailable, match="removed or replaced"):
            await store.write(note)
        assert store.read(lambda tx: tx.execute("SELECT count(*) FROM events").fetchone()) == (1,)
    finally:
        await store.close()
