"""Servers by URL that do what they are asked and then answer by HTTP alone, or with too much."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import time
import zlib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from packhost.errors import PackhostError, ToolFailed
from packhost.kinds.mcp import responses
from packhost.kinds.mcp.pins import live_pins
from packhost.manifest.upstream import UpstreamSpec

pytestmark = pytest.mark.anyio
PAY = {"name": "pay", "inputSchema": {"type": "object"}}
_JSON = "application/json"


class _Answering(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Till

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        if not self.server.flood:
            self.respond(405, "text/plain", b"")
            return
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        with contextlib.suppress(OSError):
            while True:
                self.wfile.write(self.server.flood)

    def do_DELETE(self) -> None:
        self.respond(405, "text/plain", b"")

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        results = {
            "initialize": {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {}, "resources": {}},
                "serverInfo": {"name": "till", "version": "1"},
            },
            "tools/list": {"tools": [PAY]},
            "resources/templates/list": {"resourceTemplates": []},
            "tools/call": {"content": [{"type": "text", "text": "paid"}]},
            "resources/read": {"contents": [{"uri": "test://one", "text": "read"}]},
        }
        if "id" not in message:
            self.respond(202, "text/plain", b"")
        elif self.server.odd and message["method"] in ("tools/call", "resources/read"):
            self.server.payments += 1
            self.respond(*self.server.odd.pop(0))
        else:
            self.server.payments += message["method"] == "tools/call"
            answer = {"jsonrpc": "2.0", "id": message["id"], "result": results[message["method"]]}
            self.respond(200, _JSON, json.dumps(answer).encode(), {"mcp-session-id": "a session"})

    def respond(self, status: int, kind: str, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        given = {"content-type": kind, "content-length": str(len(body)), **(headers or {})}
        for name, value in given.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


class Till(ThreadingHTTPServer):
    """Takes payments, and answers each of the first oddly."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answering)
        self.payments = 0
        self.odd: list[tuple[Any, ...]] = []
        self.flood = b""


@pytest.fixture
def till() -> Iterator[Till]:
    with Till() as found:
        thread = threading.Thread(target=found.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield found
        finally:
            found.shutdown()
            thread.join()


def pack(world: Any, till: Till, **spec: Any) -> Any:
    url = f"http://127.0.0.1:{till.server_address[1]}/mcp"
    return world.pack(UpstreamSpec(url=url, era="legacy", **spec), live_pins(tools=[PAY]))


@pytest.mark.parametrize(
    ("odd", "said"),
    [
        ((202, "text/plain", b""), "it answered with status 202"),
        ((200, "text/html", b"<html>"), "it answered with something else than a message"),
        ((502, "text/html", b"<html>"), "it answered with status 502"),
        ((504, _JSON, b"{}"), "it answered with status 504"),
        ((200, _JSON, b"{"), "its answer cannot be read"),
        ((200, "text/event-stream", b": nothing\n\n"), "it broke its answer off"),
    ],
)
async def test_a_call_that_may_have_run_is_not_made_again_and_its_effects_are_unknown(
    world: Any, till: Till, odd: tuple[Any, ...], said: str
) -> None:
    till.odd.append(odd)
    with pytest.raises(PackhostError, match=said) as caught:
        await world.call(pack(world, till), "pay")
    assert (caught.value.code, till.payments) == ("EFFECTS_UNKNOWN", 1)


@pytest.mark.parametrize(
    ("odd", "said"),
    [
        ((401, "text/plain", b"no"), "did not answer the call: it answered with status 401"),
        ((302, "text/plain", b"", {"location": "http://example.org/"}), "with status 302"),
        (
            (400, _JSON, b'{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"a bad one"}}'),
            "in its own words: «a bad one»",
        ),
    ],
)
async def test_a_call_that_was_turned_away_failed_once(
    world: Any, till: Till, odd: tuple[Any, ...], said: str
) -> None:
    till.odd.append(odd)
    with pytest.raises(ToolFailed, match=said):
        await world.call(pack(world, till), "pay")
    assert till.payments == 1


@pytest.mark.parametrize(
    "body", [b"no", b'{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"Session not found"}}']
)
async def test_a_lost_session_is_opened_anew_whatever_the_server_says_of_it(
    world: Any, said: Any, till: Till, body: bytes
) -> None:
    till.odd.append((404, _JSON, body))
    assert said(await world.call(pack(world, till), "pay")) == "paid"


async def test_a_resource_is_read_in_a_new_session_where_the_old_one_is_lost(world: Any, till: Till) -> None:
    till.odd.append((404, _JSON, b"no"))
    provider = world.kind.servers.provider(pack(world, till, resources="allow"), lambda change: None)
    assert (await provider.read("test://one", None))["contents"][0]["text"] == "read"


async def test_an_answer_is_read_up_to_a_limit_and_not_unpacked(
    world: Any, till: Till, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(responses, "LONGEST", 100_000)
    up = pack(world, till)
    bomb = zlib.compressobj(9, wbits=31)
    packed = bomb.compress(b" " * 1_000_000) + bomb.flush()
    till.odd.append((200, _JSON, packed, {"content-encoding": "gzip"}))
    with pytest.raises(PackhostError, match="it answered in a compressed form"):
        await world.call(up, "pay")
    till.odd.append((200, _JSON, b" " * 1_000_000))
    with pytest.raises(PackhostError, match="its answer cannot be read"):
        await world.call(up, "pay")


@pytest.mark.slow
async def test_a_flood_of_large_events_leaves_the_loop_to_others(world: Any, till: Till) -> None:
    message = {"jsonrpc": "2.0", "method": "notifications/unheard-of", "params": {"of": [{}] * 1_000_000}}
    till.flood = b"event: message\ndata: " + json.dumps(message).encode() + b"\n\n"
    well = world.server(pack="well")
    await world.call(well, "pid")
    await world.call(pack(world, till), "pay")
    begun = time.monotonic()
    for _ in range(20):
        await world.call(well, "echo", {"text": "a"})
        await asyncio.sleep(0.01)
    assert time.monotonic() - begun < 3
