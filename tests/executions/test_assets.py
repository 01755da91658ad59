"""Binary results: kept by the host, handed on by a handle, resolved where a parameter takes bytes."""

from __future__ import annotations

import base64
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from packhost.errors import NotFound, PackhostError
from packhost.gate import Completed
from packhost.kinds.assets import LARGEST, LIFETIME, SCHEME
from packhost.kinds.base import PackFacts, Tool
from packhost.kinds.handles import binary_parameters
from packhost.kinds.http import HttpKind
from packhost.manifest.model import ToolSpec
from packhost.names import ToolId
from packhost.rules.scopes import Layer, parse_scope
from packhost.store.ops import assets

pytestmark = pytest.mark.anyio

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256))
TAKES = {"type": "object", "properties": {"file": {"type": "string", "contentEncoding": "base64"}}}
PLAIN = {"type": "object", "properties": {"file": {"type": "string"}}}


def shot(lab: Any, code: str = repr(PNG)) -> None:
    lab.pack_tool("shot", "code", {"code": code}, {}, permission="read")


async def made(lab: Any, **caller: Any) -> str:
    outcome = await lab.call("mine:shot", **caller)
    assert isinstance(outcome, Completed), outcome
    return str(outcome.value)


async def test_bytes_in_a_result_become_a_handle(lab: Any) -> None:
    shot(lab)
    handle = await made(lab)
    assert handle.startswith(f"{SCHEME}asset_")
    kept = await lab.assets.open(handle, session_id="s-editor", principal="ann")
    assert (base64.b64decode(kept.base64), kept.media_type, kept.size) == (PNG, "image/png", len(PNG))


async def test_bytes_anywhere_in_a_result_do(lab: Any) -> None:
    shot(lab, "{'page': 1, 'images': [b'one', b'two'], 'text': 'as it is'}")
    outcome = await lab.call("mine:shot")
    assert (outcome.value["page"], outcome.value["text"]) == (1, "as it is")
    contents = [
        await lab.assets.open(one, session_id="s-editor", principal="ann") for one in outcome.value["images"]
    ]
    assert [base64.b64decode(one.base64) for one in contents] == [b"one", b"two"]


async def test_a_parameter_that_takes_bytes_gets_them(lab: Any) -> None:
    shot(lab)
    lab.tool("send", input_schema=TAKES)
    outcome = await lab.call("lab:send", {"file": await made(lab)})
    assert outcome.value == {"echo": {"file": base64.b64encode(PNG).decode()}}


async def test_any_other_parameter_gets_the_handle_as_it_is(lab: Any) -> None:
    shot(lab)
    lab.tool("send", input_schema=PLAIN)
    handle = await made(lab)
    outcome = await lab.call("lab:send", {"file": handle})
    assert outcome.value == {"echo": {"file": handle}}


async def test_text_that_is_no_handle_stays_what_it_is(lab: Any) -> None:
    lab.tool("send", input_schema=TAKES)
    outcome = await lab.call("lab:send", {"file": "aGVsbG8="})
    assert outcome.value == {"echo": {"file": "aGVsbG8="}}


async def test_the_record_and_the_question_hold_the_handle(lab: Any, person: Any) -> None:
    ann = person()
    shot(lab)
    lab.tool("send", input_schema=TAKES)
    lab.rule("ask", "lab:send")
    handle = await made(lab)
    outcome = await lab.call("lab:send", {"file": handle}, asker=ann)
    (call,) = lab.calls(outcome.run_id)
    assert json.loads(call.args_json) == {"file": handle}
    assert handle in ann.shown[0].text.replace("\n  | ", "")


async def test_a_model_passes_the_handle_on(lab: Any) -> None:
    shot(lab)
    lab.tool("send", input_schema=TAKES)
    handle = await made(lab)
    send = {"tool_calls": [{"id": "c1", "name": "lab_send", "arguments": {"file": handle}}]}
    lab.script(send, {"text": "sent"})
    outcome = await lab.turn(loop=True)
    (call,) = lab.calls(outcome.value["run_id"])
    assert json.loads(call.result_json)["echo"]["file"] == base64.b64encode(PNG).decode()


@pytest.mark.parametrize(
    "handle",
    [
        f"{SCHEME}asset_{'0' * 26}",
        f"{SCHEME}nothing",
        f"{SCHEME}",
        f"{SCHEME}asset_{'0' * 26}/../x",
    ],
)
async def test_a_handle_without_anything_behind_it_fails_that_call(lab: Any, handle: str) -> None:
    ran: list[Any] = []

    async def send(context: Any, arguments: Any) -> Any:
        ran.append(arguments)

    lab.tool("send", send, input_schema=TAKES)
    outcome = await lab.call("lab:send", {"file": handle})
    assert (outcome.code, ran) == ("NOT_FOUND", [])


async def test_the_run_goes_on_after_such_a_call(lab: Any) -> None:
    lab.tool("send", input_schema=TAKES)
    send = {"tool_calls": [{"id": "c1", "name": "lab_send", "arguments": {"file": f"{SCHEME}x"}}]}
    lab.script(send, {"text": "sorry"})
    outcome = await lab.turn(loop=True)
    assert outcome.value["outcome"] == "completed"


async def test_an_expired_handle_leads_nowhere(lab: Any) -> None:
    shot(lab)
    handle = await made(lab)
    await lab.store.write(lambda tx: tx.execute("UPDATE assets SET expires_at=?", (tx.now(),)))
    with pytest.raises(NotFound):
        await lab.assets.open(handle, session_id="s-editor", principal="ann")


async def test_a_handle_is_good_for_seven_days(lab: Any) -> None:
    shot(lab)
    await made(lab)
    begun, over = lab.store.read(
        lambda tx: tx.execute("SELECT created_at, expires_at FROM assets").fetchone()
    )
    assert (over - begun, LIFETIME) == (7 * 86_400, 7 * 86_400)


@pytest.mark.parametrize("caller", [{"client": "other"}, {"principal": "bob", "client": "bobs"}])
async def test_a_handle_of_another_leads_nowhere(lab: Any, caller: Any) -> None:
    shot(lab)
    lab.tool("send", input_schema=TAKES)
    handle = await made(lab)
    outcome = await lab.call("lab:send", {"file": handle}, **caller)
    assert outcome.code == "NOT_FOUND"


async def test_a_subagents_handle_is_its_callers_too(lab: Any) -> None:
    shot(lab)
    lab.section["models"] = {
        "child": {
            "provider": "scripted",
            "script": [{"tool_calls": [{"id": "s", "name": "mine_shot", "arguments": {}}]}, {"text": "made"}],
        }
    }
    agent = {"agent": {"model": "child"}, "allowed_tools": ["mine:shot"]}
    lab.pack_tool("helper", "subagent", agent, {"task": {"type": "string"}})
    await lab.call("mine:helper", {"task": "t"})
    row = lab.store.read(lambda tx: tx.execute("SELECT id FROM assets").fetchone())
    kept = await lab.assets.open(f"{SCHEME}{row[0]}", session_id="s-editor", principal="ann")
    assert kept.size == len(PNG)


async def test_what_is_over_goes_when_something_new_is_kept(lab: Any) -> None:
    shot(lab)
    await made(lab)
    await lab.store.write(lambda tx: tx.execute("UPDATE assets SET expires_at=0"))
    await made(lab)
    assert lab.store.read(lambda tx: tx.execute("SELECT count(*) FROM assets").fetchone())[0] == 1


async def test_one_that_is_too_large_is_refused(lab: Any) -> None:
    with pytest.raises(PackhostError) as caught:
        await lab.assets.keep(bytes(LARGEST + 1), "a/b", session_id="s", principal="ann")
    assert caught.value.code == "OUTPUT_TOO_LARGE"


async def test_too_many_bytes_in_all_are_refused(lab: Any) -> None:
    await lab.store.write(assets.keep, "asset_1", "s", "ann", "a/b", "", 60, "0", LIFETIME, 100)
    await lab.store.write(assets.keep, "asset_2", "s", "bob", "a/b", "", 60, "0", LIFETIME, 100)
    with pytest.raises(PackhostError) as caught:
        await lab.store.write(assets.keep, "asset_3", "s", "ann", "a/b", "", 60, "0", LIFETIME, 100)
    assert caught.value.code == "LIMIT_EXCEEDED"


@pytest.mark.parametrize(
    ("schema", "places"),
    [
        (TAKES, [("file",)]),
        (PLAIN, []),
        ({"properties": {"a": {"properties": {"b": {"contentEncoding": "base64"}}}}}, [("a", "b")]),
        ({"properties": {"l": {"items": {"contentEncoding": "base64"}}}}, [("l", "*")]),
        ({"properties": {"f": {"contentEncoding": "quoted-printable"}}}, []),
    ],
)
def test_parameters_that_take_bytes_are_found_in_the_schema(schema: Any, places: Any) -> None:
    assert list(binary_parameters(schema)) == places


async def test_bytes_in_lists_and_objects_are_put_in_their_places(lab: Any) -> None:
    shot(lab, "b'x'")
    files = {
        "type": "array",
        "items": {"type": "object", "properties": {"content": TAKES["properties"]["file"]}},
    }
    lab.tool("send", input_schema={"type": "object", "properties": {"files": files}})
    handle = await made(lab)
    outcome = await lab.call("lab:send", {"files": [{"content": handle, "name": "a"}, {"content": "eA=="}]})
    assert outcome.value["echo"]["files"] == [{"content": "eA==", "name": "a"}, {"content": "eA=="}]


class Image(BaseHTTPRequestHandler):
    """Answers with an image."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "image/png")
        self.send_header("content-length", str(len(PNG)))
        self.end_headers()
        self.wfile.write(PNG)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing is printed."""


async def test_an_http_tools_binary_reply_is_kept_with_its_type(lab: Any) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Image)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    host = f"127.0.0.1:{server.server_address[1]}"
    scopes = (parse_scope(f"network {host}"),)
    spec = ToolSpec(
        name="shot",
        description="A screenshot.",
        kind="http",
        permission="read",
        required_scopes=(f"network {host}",),
        config={"url": f"http://{host}/", "method": "GET"},
    )
    pack = PackFacts("mine", "1", "Mine", "d", None, False, False, None)
    tool = Tool(ToolId("mine", "shot"), spec, pack, scopes, "1")

    class Context:
        session_id, principal, tenant = "s-editor", "ann", None
        layers, host = (Layer("bound", scopes),), lab.services

        def secret(self, name: str) -> str:
            raise AssertionError(name)

    try:
        found = await HttpKind().run(tool, {}, Context())  # type: ignore[arg-type]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert (found["media_type"], found["size"]) == ("image/png", len(PNG))
    kept = await lab.assets.open(found["asset"], session_id="s-editor", principal="ann")
    assert base64.b64decode(kept.base64) == PNG
