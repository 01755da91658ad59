"""A store of each kind and makers of what goes into it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from postgres_server import STORES

from packhost.names import new_id
from packhost.store.base import Store
from packhost.store.opening import open_store
from packhost.store.rows import DIRECT, NewApproval, NewCall, NewExecution
from packhost.store.sqlite import SqliteStore
from packhost.workspace.secrets import Secrets


@pytest.fixture(params=STORES)
def setting(request: pytest.FixtureRequest) -> str:
    """The `store` setting of a workspace that nothing was written to, of each kind."""
    return "sqlite" if request.param == "sqlite" else str(request.getfixturevalue("postgres_url"))


@pytest.fixture
async def reopen(anyio_backend: str, setting: str, tmp_path: Path) -> AsyncIterator[Callable[[], Store]]:
    """Opens the store under test, as often as wanted where several hosts may share it."""
    opened: list[Store] = []

    def open_another() -> Store:
        opened.append(open_store(setting, tmp_path, "ws", Secrets({}, base=tmp_path)))
        return opened[-1]

    yield open_another
    for store in opened:
        await store.close()


@pytest.fixture
async def store(anyio_backend: str, reopen: Callable[[], Store]) -> Store:
    """An empty store of each kind, which listens already where others could write to it."""
    opened = reopen()
    if not isinstance(opened, SqliteStore):
        with opened.watch("events") as watch, anyio.fail_after(10):
            await watch.changed()  # from here on it hears, and what came before may have been anything
    return opened


@pytest.fixture
def new_run() -> Callable[..., NewExecution]:
    def make(**changes: Any) -> NewExecution:
        known = {"id": new_id("run"), "kind": "turn", "session_id": "s", "principal": "me", "client": "code"}
        return NewExecution(**{**known, **changes})

    return make


@pytest.fixture
def new_call(new_run: Callable[..., NewExecution]) -> Callable[..., NewCall]:
    def make(**changes: Any) -> NewCall:
        run = changes.pop("execution_id", None)
        known: dict[str, Any] = {
            "id": new_id("call"),
            "owner": "host-1",
            "epoch": 1,
            "tool": "workspace:write_file",
            "tool_version": "1.0.0",
            "args_json": '{"path":"a.txt"}',
            "args_digest": "d" * 64,
            "idempotent": False,
            "actor": "me",
        }
        if run is None:
            direct = new_run(kind=DIRECT)
            known |= {"execution_id": direct.id, "execution": direct}
        else:
            known["execution_id"] = run
        return NewCall(**{**known, **changes})

    return make


@pytest.fixture
def new_approval() -> Callable[..., NewApproval]:
    def make(**changes: Any) -> NewApproval:
        known = {
            "id": new_id("apr"),
            "session_id": "s",
            "principal": "me",
            "client": "code",
            "tool": "workspace:write_file",
            "tool_version": "1.0.0",
            "binding": "b" * 64,
            "names": ("workspace:writes",),
            "assurance": "client",
            "approvers_needed": 1,
            "prompt": "write a.txt",
            "args_json": '{"path":"a.txt"}',
            "expires_at": 4e9,
        }
        return NewApproval(**{**known, **changes})

    return make
