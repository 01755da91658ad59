"""Both TypeScript clients and the Inspector's command line, in the eras that each knows."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import free_port, stop, wait_for_http

pytestmark = pytest.mark.real

CLIENTS = [("sdk", "legacy"), ("client", "legacy"), ("client", "modern")]
SERVE = Path(__file__).parents[1] / "conformance/serve"


def run(parts: Path, script: str, job: dict[str, Any]) -> dict[str, Any]:
    """What a script of Node's printed of its job."""
    done = subprocess.run(
        [parts / "bin/node", Path(__file__).parent / script, parts / "npm", json.dumps(job)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A host over HTTP with the conformance pack; its URL."""
    port = free_port()
    with (tmp_path_factory.mktemp("host") / "serve.log").open("w") as log:
        server = subprocess.Popen(
            [sys.executable, SERVE, str(port)], stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
    try:
        wait_for_http(f"http://127.0.0.1:{port}/healthz", server, seconds=60)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        stop(server)


def entry(transport: str, url: str) -> dict[str, Any]:
    """A client's entry for the host, or for one of its own over stdio."""
    if transport == "http":
        return {"type": "http", "url": url}
    return {"type": "stdio", "command": sys.executable, "args": [str(SERVE), "stdio"]}


@pytest.mark.parametrize(
    ("transport", "client", "era"), [("http", *CLIENTS[0]), *(("stdio", *one) for one in CLIENTS)]
)
def test_a_refused_call_reaches_a_typescript_client_as_an_error_result(
    parts: Path, workspace: Any, transport: str, client: str, era: str
) -> None:
    outside = {"path": "elsewhere/out.txt", "content": "no"}
    with workspace.over(transport) as server:
        job = {"server": server, "client": client, "era": era, "tool": "workspace_write_file"}
        delivered = run(parts, "refused_call.mjs", {**job, "arguments": outside})

    assert delivered["declared"], "without an output schema the client has nothing to check"
    assert "error" not in delivered
    result = delivered["result"]
    assert result["isError"] is True
    assert "structuredContent" not in result
    text = "\n".join(block["text"] for block in result["content"])
    sentence, _, last = text.rpartition("\n")
    refusal = json.loads(last)
    assert sentence.strip()
    assert refusal["code"] == "SCOPE_DENIED"
    assert result["_meta"]["packhost/refusal"]["code"] == "SCOPE_DENIED"
    assert not (workspace.root / "elsewhere").exists()


@pytest.mark.parametrize(("client", "era"), CLIENTS)
@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_all_that_a_host_serves_reaches_a_typescript_client(
    parts: Path, host: str, transport: str, client: str, era: str
) -> None:
    seen = run(parts, "typescript_tour.mjs", {"server": entry(transport, host), "client": client, "era": era})

    assert seen.get("error") is None
    assert {"test_simple_text", "slow_compute", "packhost_explain"} <= set(seen["tools"])
    assert seen["text"] == seen["afterwards"] == "This is a simple text response for testing."
    assert seen["image"] == "image/png"
    assert seen["structured"] == {"sum": 3}
    assert seen["refused"]["isError"] is True
    assert seen["refused"]["structured"] is False
    assert "This tool intentionally returns an error for testing" in seen["refused"]["text"]
    assert seen["progress"] == [0, 50, 100]
    assert seen["cancelled"] is not None
    assert seen["wanted"] == "Hello, Ann!"
    assert '"username": "ann"' in seen["elicited"]
    assert seen["sampled"] == "LLM response: Paris"
    assert seen["roots"] == "file:///somewhere"
    assert len(seen["questions"]) == 2
    assert all("it approves nothing" in question for question in seen["questions"])
    assert seen["heard"] == [
        "tools/list_changed",
        "prompts/list_changed",
        "resources/updated test://watched-resource",
    ]
    assert "test://static-text" in seen["resources"]
    assert seen["templates"] == ["test://template/{id}/data"]
    assert json.loads(seen["read"])["id"] == "7"
    assert "NOT_FOUND" in seen["missing"]["message"]
    assert "test_simple_prompt" in seen["prompts"]
    assert seen["prompt"] == "Prompt with arguments: arg1='a', arg2='b'"
    assert seen["completed"] == ["paris", "park", "party"]


def inspect(parts: Path, target: list[str], *arguments: str) -> tuple[int, Any]:
    """What the Inspector's command line ended with, and the JSON that it printed."""
    program = parts / "npm/node_modules/.bin/mcp-inspector"
    done = subprocess.run(
        [parts / "bin/node", program, "--cli", *target, *arguments, "--format", "json"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    try:
        return done.returncode, json.loads(done.stdout)
    except ValueError:
        return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(("transport", "era"), [("stdio", "modern"), ("http", "legacy"), ("http", "modern")])
def test_the_inspector_sees_and_calls_all_of_it(parts: Path, host: str, transport: str, era: str) -> None:
    over = [host] if transport == "http" else [sys.executable, str(SERVE), "stdio"]

    def ask(*arguments: str) -> tuple[int, Any]:
        return inspect(parts, over, "--protocol-era", era, *arguments)

    ended, listed = ask("--method", "tools/list")
    assert ended == 0, listed
    assert {"test_simple_text", "packhost_status"} <= {tool["name"] for tool in listed["result"]["tools"]}
    ended, called = ask("--method", "tools/call", "--tool-name", "test_structured", "--tool-args-json", "{}")
    assert ended == 0, called
    assert called["result"]["structuredContent"] == {"sum": 3}
    ended, refused = ask("--method", "tools/call", "--tool-name", "test_error_handling")
    assert ended == 5, refused
    if transport == "http":
        ended, read = ask("--method", "resources/read", "--uri", "test://static-text")
        assert ended == 0, read
        assert read["result"]["contents"][0]["mimeType"] == "text/plain"
        ended, prompts = ask("--method", "prompts/list")
        assert ended == 0, prompts
        assert "test_simple_prompt" in {one["name"] for one in prompts["result"]["prompts"]}
