"""A tool that calls an API, through the real host: what arrives there, and what never leaves here."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

import anyio.abc
import anyio.to_thread
import httpx2
import jwt
import pytest
from https_server import CA, Asked, Server, in_json, reply, serving

from packhost.workspace.redaction import REDACTED, forms

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

CANARY = 'c4n4ry/key+of="the-api"&more'
HIDDEN = "hidden-canary-account"
CONFIG = """
packhost: 1
packs: [agent-runtime, {path: ./api}]
bound: [path read **, path write .agent-runtime/**, "network 127.0.0.1:PORT", secret API_KEY]
secrets: {API_KEY: env:API_KEY_VALUE}
variables: {account: hidden-canary-account}
approvals: {hold: 1s}
policy:
  - {match: {tool: "api:send"}, decide: ask, reason: it is sent for good}
agent_runtime:
  default_model: demo
  models:
    demo:
      provider: scripted
      script:
        - {tool_calls: [{id: a, name: api_look, arguments: {q: x}}, {id: b, name: api_broken, arguments: {}}]}
        - {text: done}
"""
MANIFEST = """
packhost: 1
id: api
version: "1"
title: An API
tools:
  - name: look
    description: Looks something up.
    kind: http
    permission: read
    required_scopes: ["network 127.0.0.1:PORT", secret API_KEY]
    hidden_parameters: [account]
    input_schema:
      type: object
      properties: {q: {type: string}, account: {type: string}}
      required: [q, account]
      additionalProperties: false
    config:
      url: "https://127.0.0.1:PORT/look?q={{q}}&key={{secret:API_KEY}}"
      method: GET
      headers:
        Authorization: "Bearer {{secret:API_KEY}}"
        X-Account: "{{account}}"
        X-Who: "{{_endUser.id}}"
        X-Assertion: "{{_identity.token}}"
  - name: send
    description: Sends something.
    kind: http
    permission: write
    required_scopes: ["network 127.0.0.1:PORT", secret API_KEY]
    input_schema: {type: object, properties: {text: {type: string}}, required: [text]}
    config:
      url: "https://127.0.0.1:PORT/send"
      headers: {X-Key: "{{secret:API_KEY}}"}
      body: {text: "{{text}}", key: "{{secret:API_KEY}}"}
  - name: broken
    description: Answers with an error that holds what it was sent.
    kind: http
    permission: read
    required_scopes: ["network 127.0.0.1:PORT", secret API_KEY]
    config:
      url: "https://127.0.0.1:PORT/broken/{{secret:API_KEY}}"
      method: GET
"""


def everything_seen(asked: Asked) -> dict[str, Any]:
    """What an API may send back of what it got, in many spellings."""
    data = CANARY.encode()
    assertion = asked.headers.get("x-assertion", "none")
    return {
        "path": asked.path,
        "authorization": asked.headers.get("authorization", ""),
        "body": asked.body.decode(),
        "assertion": [assertion, base64.b64encode(f"a:{assertion}".encode()).decode()],
        "spellings": [
            *(CANARY, quote(CANARY, safe=""), json.dumps(CANARY), data.hex(), f"prefix {CANARY} suffix"),
            *(base64.b64encode(b"x" * n + data + b"y").decode() for n in range(3)),
        ],
    }


async def tell(stream: anyio.abc.ByteStream, asked: Asked) -> None:
    await stream.send(in_json(everything_seen(asked)))


async def complain(stream: anyio.abc.ByteStream, asked: Asked) -> None:
    text = json.dumps({"pad": "." * 430, **everything_seen(asked)})
    await stream.send(reply(text.encode(), "422 Unprocessable Content", Content_Type="application/json"))


@pytest.fixture
async def server(anyio_backend: str):
    async with serving("127.0.0.1") as one:
        one.says("/look", tell)
        one.says("/send", tell)
        one.says(f"/broken/{quote(CANARY, safe='')}", complain)
        yield one


@pytest.fixture
def calling(world, server: Server, tmp_path: Path):
    """A workspace whose pack calls the server, accepted."""
    world.write("packhost.yaml", CONFIG.replace("PORT", str(server.port)))
    world.write("api/pack.yaml", MANIFEST.replace("PORT", str(server.port)))
    CA.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    world.env |= {"API_KEY_VALUE": CANARY, "SSL_CERT_FILE": str(tmp_path / "ca.pem")}
    world.accept()
    return world


async def test_no_byte_that_leaves_the_host_holds_a_secret_or_an_assertion(
    calling, server: Server, dialog, capfd
) -> None:
    asked = dialog("accept", "decline")
    seen: list[Any] = []
    async with calling.client("legacy", asked) as client:
        (look,) = [tool for tool in (await client.list_tools()).tools if tool.name == "api_look"]
        assert look.input_schema["properties"].keys() == {"q"}
        seen.append(look.model_dump_json())
        for name, arguments in (
            ("api_look", {"q": "first"}),
            ("api_look", {"q": CANARY}),
            ("api_look", {"q": "{{secret:API_KEY}}"}),
            ("api_broken", {}),
            ("api_send", {"text": CANARY}),
            ("api_send", {"text": "no"}),
            ("packhost_explain", {"tool": "api_send", "arguments": {"text": CANARY}}),
            ("packhost_status", {}),
            ("agent-runtime_execute-turn", {"messages": [{"role": "user", "content": CANARY}], "loop": True}),
        ):
            seen.append((await client.call_tool(name, arguments)).model_dump_json())
        seen += asked.shown
        for command in (("approvals", "list", "--status", "all"), ("runs", "list", "--all", "--json")):
            seen.append(calling.run(*command, code=None).stdout)
        seen.append(calling.run("audit", "export").stdout)
    written = capfd.readouterr()
    state = [path.read_bytes() for path in Path(calling.env["XDG_STATE_HOME"]).rglob("*") if path.is_file()]
    produced = [path.read_bytes() for path in calling.root.rglob(".agent-runtime/**/*") if path.is_file()]
    everything = json.dumps(seen, ensure_ascii=False) + written.out + written.err
    stored = b"\0".join([*state, *produced])

    assert [one.path.partition("?")[0] for one in server.asked if one.method == "POST"] == ["/send"]
    assert server.asked[0].headers["authorization"] == f"Bearer {CANARY}"
    assert server.asked[0].headers["x-account"] == HIDDEN
    assert json.loads(next(one.body for one in server.asked if one.method == "POST"))["key"] == CANARY
    assert "422 Unprocessable" in everything
    assert everything.count(REDACTED) > 20
    tokens = {one.headers["x-assertion"] for one in server.asked if "x-assertion" in one.headers}
    assert len(tokens) == 4, seen[9]
    for text in (*tokens, CANARY):
        assert [form for form in forms(text) if form in everything] == []
        assert [form for form in forms(text) if form.encode() in stored] == []
    assert HIDDEN not in everything
    assert HIDDEN.encode() not in b"\0".join(data for data in state if not data.startswith(b"{"))


async def test_what_is_sent_is_explained_and_written_into_the_reference(calling, server: Server) -> None:
    said = calling.run("explain", "api:look", '{"q": "x"}').stdout
    assert f"`GET https://127.0.0.1:{server.port}/look?q={{{{q}}}}&key={{{{secret:API_KEY}}}}`" in said
    assert "secrets `API_KEY`" in said
    assert "level host" in said
    calling.run("docs", "build", "--out", str(calling.root / "pages"))
    page = (calling.root / "pages" / "api.md").read_text()
    assert f"- Request: `POST https://127.0.0.1:{server.port}/send`; secrets `API_KEY`" in page
    assert server.asked == []


async def test_an_assertion_is_checked_by_the_key_that_the_host_publishes(calling, server: Server) -> None:
    url = calling.serve_http()
    with httpx2.Client() as client:
        published = client.get(f"{url}/.well-known/jwks.json").json()
    # the server answers in this very loop
    await anyio.to_thread.run_sync(calling.run, "call", "api:look", '{"q": "x"}')
    token = server.asked[0].headers["x-assertion"]
    key = jwt.PyJWKSet.from_dict(published).keys[0]
    claims = jwt.decode(token, key, ["ES256"], audience=f"https://127.0.0.1:{server.port}")
    assert claims["sub"] == server.asked[0].headers["x-who"]
    assert claims["iss"].startswith("urn:packhost:")
    assert claims["tool"] == "api:look"


async def test_a_mistake_in_a_tool_is_told_at_its_place(calling, server: Server) -> None:
    text = (calling.root / "api/pack.yaml").read_text().replace("?q={{q}}", "?q={{qq}}")
    calling.write("api/pack.yaml", text)
    calling.accept()
    said = calling.run("doctor", code=None)
    line = 1 + text.splitlines().index(next(one for one in text.splitlines() if "{{qq}}" in one))
    assert f"pack.yaml:{line}:" in said.stdout + said.stderr
    assert "did you mean `{{q}}`?" in said.stdout + said.stderr
