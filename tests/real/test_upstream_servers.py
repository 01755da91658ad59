"""The reference servers upstream: what they do through packhost, and what they are kept from."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from packhost.app.host import Host, open_host
from packhost.gate.types import Answer, Caller, CallRequest, Completed, Outcome, Prompt, Refusal
from packhost.sandbox.probe import prove
from packhost.workspace.root import Root
from packhost.workspace.workspace import Workspace

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.anyio]
ANY: dict[str, Any] = {"type": "object"}
SETTINGS = """\
packhost: 1
packs: [{path: ./up}]
bound: [path read **, path write **]
enforcement: {require: advisory}
"""


def pathed(*names: str, access: str = "read", **more: Any) -> dict[str, Any]:
    marked = {name: {"type": "string", "x-path": access} for name in names}
    return {"type": "object", "properties": {**marked, **more}}


class Person:
    """Fills in forms as told."""

    def __init__(self, content: Mapping[str, Any]) -> None:
        self.content = content
        self.shown: list[Prompt] = []

    async def ask(self, prompt: Prompt) -> Answer:
        self.shown.append(prompt)
        return Answer("approve", by="ann", channel="client", content=self.content)


class Governed:
    """A host with one server upstream."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.lines: list[Any] = []
        self.steps: list[float] = []

    async def call(self, name: str, arguments: Mapping[str, Any], asker: Any = None) -> Outcome:
        async def log(_: Any, data: Any, __: Any) -> None:
            self.lines.append(data)

        async def progress(value: float, *_: Any) -> None:
            self.steps.append(value)

        caller = Caller("ann", "test", "s-1")
        request = CallRequest(f"up:{name}", arguments, caller, progress, log=log)
        return await self.host.gate.call(request, asker)

    async def done(self, name: str, arguments: Mapping[str, Any], asker: Any = None) -> Completed:
        outcome = await self.call(name, arguments, asker)
        assert isinstance(outcome, Completed), outcome
        return outcome


@asynccontextmanager
async def governed(
    folder: Path, command: list[str], tools: Mapping[str, Mapping[str, Any]], **upstream: Any
) -> AsyncIterator[Governed]:
    """A workspace in `folder/work` whose one pack has this server."""
    work = folder / "work"
    pack = work / "up"
    pack.mkdir(parents=True, exist_ok=True)
    entries = [
        {"name": name.replace("-", "_"), "description": name, "kind": "mcp", "permission": "read"}
        | {"config": {"upstream_name": name}, "input_schema": ANY, **spec}
        for name, spec in tools.items()
    ]
    block = {"command": command, "pinned": False, **upstream}
    manifest = {"packhost": 1, "id": "up", "version": "1", "title": "Up", "upstream": block, "tools": entries}
    (pack / "pack.yaml").write_text(json.dumps(manifest))
    (work / "packhost.yaml").write_text(SETTINGS)
    with Root(work, {"XDG_STATE_HOME": str(folder / "state"), "HOME": str(folder)}) as root:
        Workspace(root).accept(by="test", channel="test", with_code=True)
        async with open_host(root) as host:
            assert not host.configuration().problems
            yield Governed(host)


def npm(parts: Path, name: str) -> list[str]:
    return [
        str(parts / "bin" / "node"),
        str(parts / f"npm/node_modules/@modelcontextprotocol/{name}/dist/index.js"),
    ]


async def test_the_filesystem_server_is_held_to_scopes_that_it_knows_nothing_of(
    parts: Path, tmp_path: Path
) -> None:
    work = tmp_path / "work"
    (work / "src").mkdir(parents=True)
    (work / "src-more").mkdir()
    (work / "src" / "a.txt").write_text("in src")
    (work / "src-more" / "b.txt").write_text("its name begins alike")
    (work / "secret.txt").write_text("outside")
    (work / "src" / "link.txt").symlink_to(work / "secret.txt")
    (work / "src" / "folder").symlink_to(work / "src-more")
    os.link(work / "secret.txt", work / "src" / "hard.txt")
    reads, writes = ["path read src/**"], ["path write src/**"]
    many = {
        "type": "object",
        "properties": {"paths": {"type": "array", "items": {"type": "string", "x-path": "read"}}},
    }
    tools = {
        "read_text_file": {"input_schema": pathed("path"), "required_scopes": reads},
        "read_multiple_files": {"input_schema": many, "required_scopes": reads},
        "write_file": {
            "input_schema": pathed("path", access="write", content={"type": "string"}),
            "required_scopes": writes,
            "permission": "write",
        },
    }
    command = [*npm(parts, "server-filesystem"), str(work)]
    async with governed(tmp_path, command, tools) as up:
        assert "in src" in (await up.done("read_text_file", {"path": "src/a.txt"})).text
        await up.done("write_file", {"path": "src/new.txt", "content": "new"})
        assert (work / "src" / "new.txt").read_text() == "new"
        outside = [
            "secret.txt", "src/../secret.txt", "src-more/b.txt", "src/link.txt", "src/folder/b.txt",
            "src/hard.txt", str(work / "secret.txt"), "./src/./../secret.txt", "src//../secret.txt",
            "/etc/passwd", "~/x",
        ]  # fmt: skip
        for path in outside:
            for name, more in (("read_text_file", {}), ("write_file", {"content": "x"})):
                refused = await up.call(name, {"path": path, **more})
                assert isinstance(refused, Refusal), (name, path, refused)
                assert refused.code in ("SCOPE_DENIED", "INVALID_INPUT"), (name, path, refused)
        several = await up.call("read_multiple_files", {"paths": ["src/a.txt", "secret.txt"]})
        assert isinstance(several, Refusal)
    assert (work / "secret.txt").read_text() == "outside"


async def test_the_filesystem_server_runs_in_the_kernels_sandbox(parts: Path, tmp_path: Path) -> None:
    if prove((os.path.dirname(os.__file__),)).level == "advisory":
        pytest.skip("the kernel enforces nothing here")
    allowed = tmp_path / "allowed"
    allowed.mkdir()
    (allowed / "a.txt").write_text("inside")
    other = tmp_path / "other"
    other.mkdir()
    (other / "secret.txt").write_text("outside")
    node = os.path.realpath(parts / "bin" / "node")
    tools = {"read_text_file": {}, "write_file": {"permission": "write"}}
    granted = {"sandbox": "kernel", "readable": [node, str(parts / "npm")], "writable": [str(allowed)]}
    # the server itself is told that it may go to both: the kernel knows better
    command = [*npm(parts, "server-filesystem"), str(allowed), str(other)]
    async with governed(tmp_path, command, tools, cwd=str(allowed), **granted) as up:
        read = await up.done("read_text_file", {"path": str(allowed / "a.txt")})
        assert "inside" in read.text
        assert read.enforcement in ("kernel", "partial")
        await up.done("write_file", {"path": str(allowed / "b.txt"), "content": "new"})
        refused = await up.call("read_text_file", {"path": str(other / "secret.txt")})
        assert isinstance(refused, Refusal)
        assert "EACCES" in refused.message
        refused = await up.call("write_file", {"path": str(other / "c.txt"), "content": "x"})
        assert isinstance(refused, Refusal)
    assert (allowed / "b.txt").read_text() == "new"
    assert not (other / "c.txt").exists()


async def test_the_memory_server_remembers(parts: Path, tmp_path: Path) -> None:
    tools = {"create_entities": {"permission": "write"}, "read_graph": {}}
    env = {"MEMORY_FILE_PATH": str(tmp_path / "memory.jsonl")}
    async with governed(tmp_path, npm(parts, "server-memory"), tools, env=env) as up:
        entity = {"name": "packhost", "entityType": "program", "observations": ["governs"]}
        await up.done("create_entities", {"entities": [entity]})
        graph = (await up.done("read_graph", {})).value
        assert graph["entities"][0]["name"] == "packhost"


async def test_the_sequential_thinking_server_thinks(parts: Path, tmp_path: Path) -> None:
    tools = {"sequentialthinking": {}}
    async with governed(tmp_path, npm(parts, "server-sequential-thinking"), tools) as up:
        thought = {"thought": "one", "nextThoughtNeeded": False, "thoughtNumber": 1, "totalThoughts": 1}
        assert (await up.done("sequentialthinking", thought)).value["thoughtNumber"] == 1


EVERYTHING = {
    "echo": {},
    "get-structured-content": {},
    "get-tiny-image": {},
    "get-resource-links": {},
    "trigger-long-running-operation": {},
    "trigger-elicitation-request": {"permission": "write"},
    "get-env": {},
}


async def test_the_everything_server_does_everything(
    parts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROVIDER_KEY", "not for servers")
    command = [*npm(parts, "server-everything"), "stdio"]
    async with governed(tmp_path, command, EVERYTHING, resources="allow", prompts="allow") as up:
        assert (await up.done("echo", {"message": "hello"})).text == "Echo: hello"
        weather = await up.done("get_structured_content", {"location": "New York"})
        assert isinstance(weather.value["temperature"], int | float)
        image = await up.done("get_tiny_image", {})
        assert "image" in [block["type"] for block in image.blocks]
        links = await up.done("get_resource_links", {"count": 2})
        assert [block["type"] for block in links.blocks].count("resource_link") == 2
        await up.done("trigger_long_running_operation", {"duration": 0.5, "steps": 3})
        assert up.steps == [1, 2, 3]
        assert "PROVIDER_KEY" not in (await up.done("get_env", {})).text
        person = Person({"name": "Ann"})
        asked = await up.done("trigger_elicitation_request", {}, person)
        assert person.shown[0].form is not None
        assert "Ann" in asked.text
        provision = up.host.provisions["up"].provider
        with anyio.fail_after(20):
            while not await provision.resources():
                await anyio.sleep(0.05)
        assert await provision.prompts()
        (first, *_) = await provision.resources()
        caller = Caller("ann", "test", "s-1")
        read = await up.host.gate.call(CallRequest("up:resources.read", {"uri": first["uri"]}, caller))
        assert isinstance(read, Completed | Refusal)


async def test_the_git_server_reads_a_repository(parts: Path, tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null"}
    for words in (
        ["init", "-q"],
        ["-c", "user.name=a", "-c", "user.email=a@b.c", "commit", "-qm", "x", "--allow-empty"],
    ):
        subprocess.run(["git", *words], cwd=work, check=True, env=environment)
    command = [str(parts / "servers/bin/mcp-server-git"), "--repository", str(work)]
    tools = {"git_log": {}, "git_status": {}}
    async with governed(tmp_path, command, tools, start_timeout="60s") as up:
        assert "Commit" in (await up.done("git_log", {"repo_path": str(work)})).text
        wrong = await up.call("git_log", {"repo_path": "/nonexistent"})
        assert isinstance(wrong, Refusal)
        assert wrong.code == "TOOL_FAILED"
        assert "in its own words" in wrong.message


async def test_the_fetch_server_says_what_it_cannot_fetch(parts: Path, tmp_path: Path) -> None:
    command = [str(parts / "servers/bin/mcp-server-fetch"), "--ignore-robots-txt"]
    async with governed(tmp_path, command, {"fetch": {"untrusted_output": True}}, start_timeout="60s") as up:
        refused = await up.call("fetch", {"url": "http://127.0.0.1:9/"})
        assert isinstance(refused, Refusal)
        assert refused.code == "TOOL_FAILED"
