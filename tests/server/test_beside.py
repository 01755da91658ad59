"""Resources and prompts of packs, over a real host: governed, recorded, and told of when they change."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import anyio
import pytest
from mcp import Client, MCPError
from mcp import types as t
from mcp.server import Server

from packhost.app.host import Host, open_host
from packhost.hookspecs import build_plugins
from packhost.kinds.providing import Changed
from packhost.workspace.root import Root
from packhost.workspace.workspace import Workspace

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning"),
]

MANIFEST = """\
packhost: 1
id: {id}
version: "1"
title: {id}
tools: []
"""

CODE = """\
from packhost.api import NotFound, Provider, hookimpl, obtain

READY = []

class Docs(Provider):
    untrusted = {untrusted}

    def __init__(self, announce):
        self.announce = announce
        self.heard = []
        READY.append(self)

    async def resources(self):
        return [
            {{"uri": "doc://{id}/one", "name": "one"}},
            {{"uri": "doc://shared", "name": "{id}'s"}},
            {{"name": "it has no address"}},
        ]

    async def templates(self):
        return [{{"uriTemplate": "doc://{id}/page/{{number}}", "name": "page"}}]

    def owns(self, uri):
        return uri == "doc://{id}/linked"

    async def read(self, uri, context):
        if uri == "doc://{id}/page/9":
            raise NotFound("there is no page 9")
        if uri == "doc://{id}/page/8":
            return {{"contents": "no list"}}
        return {{"contents": [{{"uri": uri, "text": "{id} has s3cr3t-value for " + context.client}}]}}

    async def subscribe(self, uri):
        self.heard.append(uri)

    async def unsubscribe(self, uri):
        self.heard.remove(uri)

    async def prompts(self):
        return [{{"name": "greet", "arguments": [{{"name": "who", "required": True}}]}}]

    async def prompt(self, name, arguments, context):
        who = arguments.get("who")
        if who is None:
            form = {{"type": "object", "properties": {{"whom": {{"type": "string"}}}}}}
            params = {{"message": "Whom?", "requestedSchema": form}}
            asked = {{"method": "elicitation/create", "params": params}}
            who = obtain(context, asked=asked)["asked"]["content"]["whom"]
        said = {{"type": "text", "text": "Greet " + who}}
        return {{"messages": [{{"role": "user", "content": said}}]}}

    async def complete(self, reference, argument, given, context):
        return {{"values": [argument["value"] + str(n) for n in range(150)]}}

@hookimpl
def packhost_provider(announce):
    return Docs(announce)
"""


@dataclass
class Open:
    """A host with two packs, and a way to connect to it."""

    host: Host
    root: Path
    connect: Callable[..., Any]

    def provider(self, pack: str) -> Any:
        return sys.modules[f"{pack}_of_beside"].READY[-1]

    def client(self, era: str, **options: Any) -> Client:
        options.setdefault("client_info", t.Implementation(name="probe", version="1"))
        mode = "auto" if era == "modern" else "legacy"
        return Client(self.connect(self.host.server), mode=mode, **options)

    async def recorded(self) -> list[tuple[str, str]]:
        await self.host.store.flush()
        query = "SELECT tool, status FROM calls ORDER BY id"
        return [(row[0], row[1]) for row in self.host.store.read(lambda tx: tx.execute(query, ()).fetchall())]


Opens = Callable[..., AbstractAsyncContextManager[Open]]


@pytest.fixture
def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, connected: Callable[[Server[Any]], Any]) -> Opens:
    """Opens a host whose packs `docs` and `feed` have resources and prompts; the feed's are untrusted."""
    site, folder = tmp_path / "site", tmp_path / "work"
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("A_SECRET", "s3cr3t-value")
    folder.mkdir()
    for id in ("docs", "feed"):
        package = site / f"{id}_of_beside"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text(CODE.format(id=id, untrusted=id == "feed"))
        (package / "pack.yaml").write_text(MANIFEST.format(id=id))
        info = site / f"{id}_of_beside-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {id}-of-beside\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[packhost.packs]\n{id} = {package.name}\n")
        (info / "RECORD").write_text(f"{package.name}/__init__.py,,\n{package.name}/pack.yaml,,\n")
        monkeypatch.delitem(sys.modules, package.name, raising=False)
    monkeypatch.syspath_prepend(str(site))

    @asynccontextmanager
    async def open_it(rules: str = "") -> AsyncIterator[Open]:
        text = (
            "packhost: 1\npacks: [{id: docs, trust: true}, {id: feed, trust: true}]\n"
            f"secrets: {{KEY: env:A_SECRET}}\n{rules}"
        )
        (folder / "packhost.yaml").write_text(text)
        with Root(folder) as root:
            workspace = Workspace(root)
            workspace.accept(by="person", channel="test")
            async with open_host(root, serving=True) as host:
                host.workspace.secrets.resolve("KEY")
                yield Open(host, folder, connected)

    return open_it


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_what_packs_have_is_listed_once_and_read_by_whose_it_is(opened: Opens, era: str) -> None:
    async with opened() as world, world.client(era) as client:
        listed = await client.list_resources()
        assert [(str(one.uri), one.name) for one in listed.resources] == [
            ("doc://docs/one", "one"),
            ("doc://shared", "docs's"),
            ("doc://feed/one", "one"),
        ]
        templates = await client.list_resource_templates()
        assert [one.uri_template for one in templates.resource_templates] == [
            "doc://docs/page/{number}",
            "doc://feed/page/{number}",
        ]
        for uri in ("doc://docs/one", "doc://docs/page/7", "doc://docs/linked"):
            (content,) = (await client.read_resource(uri)).contents
            assert isinstance(content, t.TextResourceContents)
            assert content.text == "docs has [REDACTED] for probe"
        assert await world.recorded() == [("docs:resources.read", "ok")] * 3


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_what_nobody_vouches_for_is_marked(opened: Opens, era: str) -> None:
    async with opened() as world, world.client(era) as client:
        (content,) = (await client.read_resource("doc://feed/one")).contents
        assert isinstance(content, t.TextResourceContents)
        assert content.text.startswith("<UNTRUSTED_TOOL_OUTPUT ")
        (message,) = (await client.get_prompt("feed_greet", {"who": "Ann"})).messages
        assert isinstance(message.content, t.TextContent)
        assert "\nGreet Ann\n</UNTRUSTED_TOOL_OUTPUT " in message.content.text


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_prompts_are_named_after_their_pack_and_completed(opened: Opens, era: str) -> None:
    async with opened() as world, world.client(era) as client:
        assert [one.name for one in (await client.list_prompts()).prompts] == ["docs_greet", "feed_greet"]
        found = await client.get_prompt("docs_greet", {"who": "Ann"})
        assert found.messages[0].content == t.TextContent(type="text", text="Greet Ann")
        for ref in (
            t.PromptReference(type="ref/prompt", name="docs_greet"),
            t.ResourceTemplateReference(type="ref/resource", uri="doc://docs/page/{number}"),
        ):
            completion = (await client.complete(ref, {"name": "who", "value": "A"})).completion
            assert (len(completion.values), completion.values[1], completion.total) == (100, "A1", 150)
        tools = [tool for tool, _ in await world.recorded()]
        assert tools == ["docs:prompts.get", "docs:prompts.complete", "docs:resources.complete"]


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_workspace_can_deny_them(opened: Opens, era: str) -> None:
    rules = """\
policy:
  - {match: {kind: resource, arguments: {uri: "doc://docs/one"}}, decide: deny, reason: not that one}
  - {match: {kind: prompt, pack: feed}, decide: deny, reason: no prompts from there}
"""
    async with opened(rules) as world, world.client(era) as client:
        listed = [str(one.uri) for one in (await client.list_resources()).resources]
        assert listed == ["doc://shared", "doc://feed/one"]
        assert [one.name for one in (await client.list_prompts()).prompts] == ["docs_greet"]
        with pytest.raises(MCPError, match=r"POLICY_DENIED.*not that one") as caught:
            await client.read_resource("doc://docs/one")
        assert caught.value.error.code == -32010
        assert caught.value.error.data["packhost/refusal"]["code"] == "POLICY_DENIED"
        with pytest.raises(MCPError, match="no prompts from there"):
            await client.get_prompt("feed_greet", {"who": "Ann"})
        assert not world.host.configuration().warnings


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_person_may_be_asked_about_a_reading(opened: Opens, era: str) -> None:
    rules = "policy:\n  - {match: {kind: resource}, decide: ask, reason: look at it first}\n"
    shown: list[str] = []

    async def dialog(_: Any, params: Any) -> t.ElicitResult:
        shown.append(params.message)
        return t.ElicitResult(action="accept", content={})

    async with opened(rules) as world, world.client(era, elicitation_callback=dialog) as client:
        (content,) = (await client.read_resource("doc://docs/one")).contents
        assert isinstance(content, t.TextResourceContents)
        assert len(shown) == 1
        assert "docs:resources.read" in shown[0]
        assert "doc://docs/one" in shown[0]


@pytest.mark.parametrize(("era", "code"), [("legacy", -32002), ("modern", -32602)])
async def test_what_there_is_not_is_told_by_the_protocols_code(opened: Opens, era: str, code: int) -> None:
    async with opened() as world, world.client(era) as client:
        for uri in ("doc://nobody", "doc://docs/page/9"):
            with pytest.raises(MCPError, match="NOT_FOUND") as caught:
                await client.read_resource(uri)
            assert caught.value.error.code == code
        for name in ("docs_gone", "nobody_greet", "greet"):
            with pytest.raises(MCPError, match=f"there is no prompt `{name}`") as caught:
                await client.get_prompt(name, {})
            assert caught.value.error.code == -32602
        with pytest.raises(MCPError, match="the cursor leads nowhere"):
            await client.list_resources(cursor="zz")
        with pytest.raises(MCPError, match="OUTPUT_INVALID"):
            await client.read_resource("doc://docs/page/8")


async def test_a_session_hears_of_what_it_subscribed_to(opened: Opens) -> None:
    heard: list[str] = []
    news = anyio.Event()

    async def told(message: Any) -> None:
        nonlocal news
        heard.append(f"{message.method} {getattr(message.params, 'uri', '')}".strip())
        news.set()
        news = anyio.Event()

    async with opened() as world, world.client("legacy", message_handler=told) as client:
        docs = world.provider("docs")
        await client.subscribe_resource("doc://docs/one")
        assert docs.heard == ["doc://docs/one"]
        with anyio.fail_after(5):
            docs.announce(Changed("resource", "doc://docs/page/1"))
            docs.announce(Changed("resource", "doc://docs/one"))
            docs.announce(Changed("prompts"))
            docs.announce(Changed("resources"))
            while len(heard) < 3:
                await news.wait()
        assert sorted(heard) == [
            "notifications/prompts/list_changed",
            "notifications/resources/list_changed",
            "notifications/resources/updated doc://docs/one",
        ]
        await client.unsubscribe_resource("doc://docs/one")
        assert docs.heard == []
        with pytest.raises(MCPError, match="there is no resource"):
            await client.subscribe_resource("doc://nobody")


async def test_a_listener_hears_of_what_it_may_read(opened: Opens) -> None:
    rules = "policy:\n  - {match: {kind: resource, pack: feed}, decide: deny, reason: not those}\n"
    async with opened(rules) as world, world.client("modern") as client:
        docs = world.provider("docs")
        uris = ["doc://docs/one", "doc://feed/one"]
        async with client.listen(resource_subscriptions=uris) as events:
            assert (docs.heard, world.provider("feed").heard) == (["doc://docs/one"], [])
            docs.announce(Changed("resource", "doc://docs/one"))
            with anyio.fail_after(5):
                event = await anext(aiter(events))
            assert event.uri == "doc://docs/one"
        with anyio.fail_after(5):
            while docs.heard:
                await anyio.lowlevel.checkpoint()


async def test_a_list_that_takes_long_delays_no_other(opened: Opens, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("packhost.server.beside.LIST_TIMEOUT", 0.05)
    async with opened() as world, world.client("modern") as client:
        monkeypatch.setattr(world.provider("docs"), "resources", anyio.sleep_forever)
        assert [str(one.uri) for one in (await client.list_resources()).resources] == [
            "doc://feed/one",
            "doc://shared",
        ]


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_what_a_client_answered_is_on_record_without_secrets(opened: Opens, era: str) -> None:
    async def dialog(_: Any, params: Any) -> t.ElicitResult:
        return t.ElicitResult(action="accept", content={"whom": "s3cr3t-value"})

    async with opened() as world, world.client(era, elicitation_callback=dialog) as client:
        found = await client.get_prompt("docs_greet", {})
        assert found.messages[0].content == t.TextContent(type="text", text="Greet [REDACTED]")
        await world.host.store.flush()
        query = "SELECT data_json FROM events WHERE type = 'call.started' ORDER BY id"
        rows = world.host.store.read(lambda tx: tx.execute(query, ()).fetchall())
        first, second = (json.loads(row[0]) for row in rows)
        assert "inputs" not in first
        assert second["inputs"]["asked"] == {"action": "accept", "content": {"whom": "[REDACTED]"}}


async def test_a_pack_that_does_not_answer_holds_up_no_subscription(
    opened: Opens, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("packhost.server.resources._PATIENCE", 0.05)

    async def never(uri: str) -> None:
        await anyio.sleep_forever()

    async with opened() as world, world.client("legacy") as client:
        monkeypatch.setattr(world.provider("docs"), "subscribe", never)
        with anyio.fail_after(5):
            await client.subscribe_resource("doc://docs/one")
            await client.subscribe_resource("doc://feed/one")
        assert world.provider("feed").heard == ["doc://feed/one"]


async def test_a_change_of_the_workspace_holds_for_those_who_hear(opened: Opens) -> None:
    async with opened() as world, world.client("legacy") as client:
        await client.subscribe_resource("doc://docs/one")
        before = world.provider("docs")
        file = world.root / "packhost.yaml"
        file.write_text(
            file.read_text() + "policy:\n  - {match: {kind: prompt}, decide: deny, reason: none}\n"
        )
        with anyio.fail_after(5):
            while (await client.list_prompts()).prompts:
                await anyio.lowlevel.checkpoint()
            while world.provider("docs") is before or world.provider("docs").heard != ["doc://docs/one"]:
                await anyio.lowlevel.checkpoint()


async def test_the_pages_example_is_a_provider() -> None:
    page = (Path(__file__).parents[2] / "docs/serving.md").read_text()
    code = page.partition("```python\n")[2].partition("```")[0]
    module = ModuleType("notes_of_the_page")
    exec(compile(code, "docs/serving.md", "exec"), module.__dict__)
    told: list[Changed] = []
    (provider,) = [build_plugins([module]).hook.packhost_provider(announce=told.append)]
    context: Any = None
    assert (await provider.read("note://1", context))["contents"][0]["text"] == "water the plants"
    assert "water the plants" in str(await provider.prompt("tidy", {"id": "1"}, context))
    assert await provider.complete({}, {"name": "id", "value": ""}, {}, context) == {"values": ["1"]}
    provider.write("2", "sweep")
    assert told == [Changed("resource", "note://2")]
    assert [one["uri"] for one in await provider.resources()] == ["note://1", "note://2"]
