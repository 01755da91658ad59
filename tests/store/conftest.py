"""A store on disk and makers of what goes into it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from packhost.names import new_id
from packhost.store.rows import DIRECT, NewApproval, NewCall, NewExecution
from packhost.store.sqlite import SqliteStore


@pytest.fixture
async def store(anyio_backend: str, tmp_path: Path) -> AsyncIterator[SqliteStore]:
    opened = SqliteStore(tmp_path / "store.db", "ws")
    yield opened
    await opened.close()


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
