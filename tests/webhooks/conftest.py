"""A store, an endpoint that somebody runs, and webhooks that tell it."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
import pytest

from packhost.store.rows import NewApproval
from packhost.store.sqlite import SqliteStore
from packhost.webhooks import delivering
from packhost.webhooks.delivering import Webhooks
from packhost.workspace.hooks import WebhookSettings

SECRET = "whsec_" + base64.b64encode(b"k" * 32).decode()


@dataclass
class Endpoint:
    """Takes requests, answers in order, the last answer for ever."""

    url: str = ""
    answers: list[str] = field(default_factory=lambda: ["200 OK"])
    got: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    held: anyio.Event | None = None

    async def serve(self, stream: anyio.abc.SocketStream) -> None:
        async with stream:
            read = b""
            while b"\r\n\r\n" not in read:
                read += await stream.receive()
            head, _, body = read.partition(b"\r\n\r\n")
            lines = head.decode().split("\r\n")[1:]
            headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
            while len(body) < int(headers.get("content-length", "0")):
                body += await stream.receive()
            self.got.append((headers, body))
            if self.held is not None:
                await self.held.wait()
            answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
            await stream.send(f"HTTP/1.1 {answer}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())

    async def count(self, number: int) -> list[tuple[dict[str, str], bytes]]:
        """What came, once it is so many."""
        with anyio.fail_after(10):
            while len(self.got) < number:
                await anyio.sleep(0.01)
        return self.got


@pytest.fixture
async def store(tmp_path: Path, anyio_backend: str) -> AsyncIterator[SqliteStore]:
    opened = SqliteStore(tmp_path / "store.db", "ws")
    yield opened
    await opened.close()


@pytest.fixture
async def endpoints(anyio_backend: str) -> AsyncIterator[Callable[..., Any]]:
    """Makes endpoints on this machine."""
    listeners: list[Any] = []
    async with anyio.create_task_group() as tasks:

        async def make(*answers: str) -> Endpoint:
            made = Endpoint(answers=list(answers) or ["200 OK"])
            listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0)
            listeners.append(listener)
            port = listener.extra(anyio.abc.SocketAttribute.local_port)
            made.url = f"http://127.0.0.1:{port}/hook"
            tasks.start_soon(listener.serve, made.serve)
            return made

        yield make
        tasks.cancel_scope.cancel()
    for listener in listeners:
        await listener.aclose()


def hook(url: str, **more: Any) -> WebhookSettings:
    known = {
        "url": url,
        "events": ["approval.requested", "approval.decided"],
        "secret": "KEY",
        "private": True,
    }
    return WebhookSettings.model_validate({**known, **more})


@pytest.fixture
def hooks() -> Callable[..., WebhookSettings]:
    """Makes an endpoint's settings."""
    return hook


Telling = Callable[..., AbstractAsyncContextManager[Webhooks]]


@pytest.fixture
def telling(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> Telling:
    """Tells endpoints of what happens in the store, as a host does; tries again soon."""
    monkeypatch.setattr(delivering, "DELAYS", (0.05, 0.05, 0.05))
    monkeypatch.setattr(delivering, "LOOK", 0.05)

    @asynccontextmanager
    async def tell(
        found: dict[str, WebhookSettings], owner: str = "host_1", secrets: dict[str, str] | None = None
    ) -> AsyncIterator[Webhooks]:
        known = {"KEY": SECRET} if secrets is None else secrets
        made = Webhooks(
            store,
            owner,
            lambda: found,
            secret=lambda name: known[name],
            redact=lambda text: text.replace("hunter22", "[REDACTED]"),
            console=lambda: "http://127.0.0.1:8400",
            version="1",
        )
        await made.look(found)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(made.run)
            yield made
            tasks.cancel_scope.cancel()

    return tell


@pytest.fixture
def asked() -> Callable[..., NewApproval]:
    """A question about a call."""

    def make(id: str = "ap_1", **changes: Any) -> NewApproval:
        known: dict[str, Any] = {
            "id": id,
            "session_id": "s",
            "principal": "ann",
            "client": "code",
            "tool": "demo:write",
            "tool_version": "1",
            "binding": id,
            "names": (),
            "assurance": "client",
            "approvers_needed": 1,
            "prompt": "Allow demo:write path=a?\nWould do: +hunter22\nWhole: …",
            "args_json": "{}",
            "expires_at": 2e9,
        }
        return NewApproval(**{**known, **changes})

    return make
