"""Whatever a client sends is answered by the protocol's own errors, and what follows as if nothing was."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any, TypeVar

import anyio
import httpx2
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

T = TypeVar("T")
MODERN = "2026-07-28"
LEGACY = "2025-11-25"
CODES = {-32700, -32600, -32601, -32602, -32010, -32002, -32020, -32021, -32022}
"""What may come of a request that is not in order; none says that the server met a fault of its own."""
TRACE = re.compile(r"line \d+, in \w+")
"""What a traceback looks like; no word that an example may hold by chance."""
METHODS = [
    "initialize",
    "ping",
    "server/discover",
    "tools/list",
    "tools/call",
    "resources/list",
    "resources/templates/list",
    "resources/read",
    "resources/subscribe",
    "resources/unsubscribe",
    "prompts/list",
    "prompts/get",
    "completion/complete",
    "logging/setLevel",
    "subscriptions/listen",
    "tasks/get",
    "tasks/cancel",
    "sampling/createMessage",
    "notifications/initialized",
    "notifications/cancelled",
    "notifications/progress",
    "notifications/nothing",
    "no/such/method",
    "",
]
NAMES = st.sampled_from(["demo_echo", "demo_add", "packhost_status", "packhost_explain", "demo_refuse", ""])
META = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientInfo": {"name": "fuzz", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
HELLO = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "fuzz", "version": "1"}}

leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20)
values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
)
ids = st.integers() | st.text(max_size=10) | st.floats(allow_nan=False) | st.none() | st.booleans() | values
members = st.fixed_dictionaries(
    {},
    optional={
        "name": NAMES | values,
        "arguments": values,
        "uri": st.sampled_from(["test://x", "file:///etc/passwd", "", "not a uri"]) | values,
        "cursor": values,
        "level": values,
        "ref": values,
        "argument": values,
        "requestId": ids,
        "progressToken": ids,
        "progress": values,
        "taskId": values,
        "notifications": values,
        "protocolVersion": values,
        "capabilities": values,
        "clientInfo": values,
        "inputResponses": values,
        "requestState": values,
        "_meta": st.just(META) | values | st.dictionaries(st.sampled_from([*META, "progressToken"]), values),
    },
)
well_formed = st.fixed_dictionaries(
    {"jsonrpc": st.just("2.0"), "method": st.sampled_from(METHODS)},
    optional={"id": st.integers(1, 3) | st.text(min_size=1, max_size=5), "params": members},
)
messages = (
    well_formed
    | st.fixed_dictionaries(
        {},
        optional={
            "jsonrpc": st.sampled_from(["2.0", "1.0", 2]),
            "method": st.sampled_from(METHODS) | values,
            "id": ids,
            "params": members | values,
            "result": values,
            "error": values,
        },
    )
    | values
    | st.lists(well_formed, max_size=3)
)
lines = messages.map(lambda one: json.dumps(one).encode()) | st.binary(max_size=60).map(
    lambda raw: raw.replace(b"\n", b" ")
)
DEEP = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"demo_echo","arguments":' + (
    b'{"a":' * 5_000 + b"1" + b"}" * 5_000 + b"}}"
)
GIANT = json.dumps(
    {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"cursor": "x" * 3_000_000}}
).encode()
TWICE = json.dumps({"jsonrpc": "2.0", "id": 7, "method": "ping"}).encode()
NUMBER = b'{"jsonrpc":"2.0","id":1e400,"method":"ping","params":{"a":NaN}}'


def _request(method: str, version: str = MODERN, **params: Any) -> bytes:
    meta = {**META, "io.modelcontextprotocol/protocolVersion": version}
    return json.dumps(
        {"jsonrpc": "2.0", "id": 7, "method": method, "params": {**params, "_meta": meta}}
    ).encode()


LIST = _request("tools/list")
OLDER = _request("tools/list", LEGACY)
FUTURE = _request("tools/list", "2099-01-01")
CALL = _request("tools/call", name="demo_echo", arguments={})
NOTHING = _request("no/such")
BARE = _request("tools/call")
BEFORE = json.dumps(
    {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 99}}
).encode()


class Loop:
    """An event loop of this thread that outlives each example: serving wants the main thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()

    def call(self, function: Callable[..., Awaitable[T]], *given: Any) -> T:
        """Run a function in it to its end."""
        return self._loop.run_until_complete(function(*given))

    @contextmanager
    def holding(self, context: AbstractAsyncContextManager[T]) -> Iterator[T]:
        """Keep a context entered; it goes on while something is called."""
        entered: asyncio.Future[T] = self._loop.create_future()
        leave = asyncio.Event()

        async def hold() -> None:
            async with context as value:
                entered.set_result(value)
                await leave.wait()

        task = self._loop.create_task(hold())
        yield self._loop.run_until_complete(entered)
        leave.set()
        self._loop.run_until_complete(task)
        self._loop.close()


@pytest.fixture(scope="module")
def loop() -> Loop:
    """The event loop of all examples."""
    return Loop()


@pytest.fixture(scope="module")
def everything(loop: Loop, serving_once: Callable[[str], Any]) -> Iterator[Any]:
    """One host, served over HTTP, for all examples."""
    with loop.holding(serving_once("http")) as served:
        yield served


@pytest.fixture
def no_faults(caplog: pytest.LogCaptureFixture) -> Callable[[], None]:
    """Asserts that nothing was logged as an error, and clears the log."""

    def check() -> None:
        wrong = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
        caplog.clear()
        assert wrong == []

    return check


def checked(answer: Any) -> None:
    """A message of the server's is one of JSON-RPC, and an error one of the protocol's."""
    assert answer["jsonrpc"] == "2.0"
    if "error" in answer:
        assert answer["error"]["code"] in CODES, answer
        assert TRACE.search(json.dumps(answer)) is None


def _last(era: str) -> bytes:
    params = {"_meta": META} if era == "modern" else {}
    return json.dumps({"jsonrpc": "2.0", "id": "last", "method": "tools/list", "params": params}).encode()


async def over_lines(served: Any, connect: Any, era: str, sent: list[bytes]) -> list[Any]:
    """All that the server says on a connection of its own, to its answer to a last request in order."""
    heard = []
    first = [] if era == "modern" else [{"id": "hello", "method": "initialize", "params": HELLO}]
    ready = [] if era == "modern" else [{"method": "notifications/initialized"}]
    opening = [json.dumps({"jsonrpc": "2.0", **one}).encode() for one in (*first, *ready)]
    opening = opening or [_last(era).replace(b'"last"', b'"first"')]
    async with connect(served.server) as (source, sink):
        with anyio.fail_after(20):
            for line in [*opening, *sent, _last(era)]:
                await sink.send(line)
            while not heard or heard[-1].get("id") != "last":
                line = await source.next()
                assert line is not None, "the server hung up"
                heard.append(json.loads(line))
    return heard


@pytest.mark.slow
@pytest.mark.parametrize("era", ["legacy", "modern"])
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sent=st.lists(lines, min_size=1, max_size=5))
@example(sent=[DEEP])
@example(sent=[GIANT])
@example(sent=[NUMBER])
@example(sent=[TWICE, TWICE])
@example(sent=[BEFORE, b"[]", b"{}", b"null", b""])
def test_lines_of_any_kind_are_survived(
    loop: Loop,
    everything: Any,
    raw_lines: Callable[[Any], AbstractAsyncContextManager[Any]],
    no_faults: Callable[[], None],
    era: str,
    sent: list[bytes],
) -> None:
    heard = loop.call(over_lines, everything, raw_lines, era, sent)
    for answer in heard:
        checked(answer)
    assert "tools" in heard[-1]["result"]
    no_faults()


def headers_for(era: str, method: Any, name: Any) -> dict[str, str]:
    """The headers of a request in order, as far as its members can be said in headers."""
    plain = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
    if era == "legacy":
        return plain
    out = {**plain, "mcp-protocol-version": MODERN}
    for key, value in (("mcp-method", method), ("mcp-name", name)):
        if isinstance(value, str) and value.isascii() and value.isprintable() and value.strip() == value:
            out[key] = value
    return out


async def post(url: str, body: bytes, headers: dict[str, str]) -> tuple[int, str]:
    """A status, and the beginning of what came with it."""
    async with (
        httpx2.AsyncClient(timeout=20, verify=False) as client,
        client.stream("POST", url, content=body, headers=headers) as answer,
    ):
        if not answer.headers.get("content-type", "").startswith("text/event-stream"):
            return answer.status_code, (await answer.aread()).decode()
        async for line in answer.aiter_lines():
            if line.startswith("data:") and line[5:].strip():
                return answer.status_code, line[5:]
        return answer.status_code, ""


@pytest.mark.slow
@pytest.mark.parametrize("era", ["legacy", "modern"])
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(message=messages, agree=st.booleans(), wrong=st.sampled_from(["", "tools/list", "x" * 5000]))
def test_bodies_and_headers_of_any_kind_are_survived(
    loop: Loop,
    everything: Any,
    no_faults: Callable[[], None],
    era: str,
    message: Any,
    agree: bool,
    wrong: str,
) -> None:
    whole = message if isinstance(message, dict) else {}
    params = whole.get("params")
    name = params.get("name") or params.get("uri") if isinstance(params, dict) else None
    headers = headers_for(era, whole.get("method"), name)
    if not agree:
        headers |= {"mcp-method": wrong, "mcp-protocol-version": wrong[:20]}
    body = json.dumps(message).encode()
    status, text = loop.call(post, f"{everything.url}/mcp", body, headers)
    assert status < 500, (status, text)
    assert TRACE.search(text) is None
    if text.startswith("{"):
        answer = json.loads(text)
        if "jsonrpc" in answer:
            checked(answer)
    no_faults()


@pytest.mark.parametrize(
    ("body", "headers", "status", "code"),
    [
        pytest.param(b"{", {}, 400, -32700, id="not JSON"),
        pytest.param(b"[]", {}, 400, -32600, id="an empty batch"),
        pytest.param(LIST, {"mcp-method": "tools/call"}, 400, -32020, id="another method in the header"),
        pytest.param(LIST, {"mcp-method": ""}, 400, -32020, id="no method in the header"),
        pytest.param(OLDER, {}, 400, -32020, id="another version in the header"),
        pytest.param(FUTURE, {"mcp-protocol-version": "2099-01-01"}, 400, -32022, id="an unknown version"),
        pytest.param(CALL, {"mcp-method": "tools/call"}, 400, -32020, id="no name in the header"),
        pytest.param(NOTHING, {"mcp-method": "no/such"}, 404, -32601, id="an unknown method"),
        pytest.param(BARE, {"mcp-method": "tools/call", "mcp-name": "x"}, 400, -32602, id="no parameters"),
        pytest.param(TWICE, {"content-type": "text/plain"}, 400, None, id="another kind of body"),
        pytest.param(TWICE, {"accept": "text/html"}, 406, None, id="another kind of answer"),
    ],
)
def test_a_request_out_of_order_gets_the_protocols_error(
    loop: Loop, everything: Any, body: bytes, headers: dict[str, str], status: int, code: int | None
) -> None:
    own = {**headers_for("modern", "tools/list", None), **headers}
    found, text = loop.call(post, f"{everything.url}/mcp", body, own)
    assert found == status, text
    if code is not None:
        assert json.loads(text)["error"]["code"] == code
