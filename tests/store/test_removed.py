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
async def test_nothing_more_is_acknowledged(tmp_path: Path, how: str) -> None:
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
    finally:
        await store.close()
