"""stdin and stdout: whatever is put in, only protocol comes out, and the server lives."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys

import pytest
from mcp import Client, StdioServerParameters

MODERN = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "raw", "version": "1"},
}


@pytest.mark.anyio
@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_the_sdk_client_is_served_by_a_process_of_its_own(mode, request) -> None:
    main = str(request.path.with_name("fake_main.py"))
    parameters = StdioServerParameters(command=sys.executable, args=[main, "stdio"])
    async with Client(parameters, mode=mode) as client:
        result = await client.call_tool("demo_echo", {"a": "ü"})
    assert result.structured_content == {"a": "ü"}


def test_what_a_handler_prints_does_not_reach_stdout(start) -> None:
    host = start("stdio")
    host.initialize()
    answer = host.request(2, "tools/call", name="packhost_status", arguments={})
    code, stderr = host.end()
    assert answer["result"]["structuredContent"]["version"] == "1.2.3"
    assert "to stdout, from a handler" in stderr
    assert code == 0


@pytest.mark.parametrize(
    ("garbage", "code", "id"),
    [
        (b"garbage", -32700, None),
        (b"\xff\xfe\x00", -32700, None),
        (b'{"jsonrpc":"2.0","id":7', -32700, None),
        (b"[" * 100_000, -32700, None),
        (b'{"jsonrpc":"2.0","id":7,"method":"tools/list","params":{"x":NaN}}', -32700, None),
        (b'"text"', -32600, None),
        (b"[]", -32600, None),
        (b'{"id":7,"method":"tools/list"}', -32600, 7),
        (b'{"jsonrpc":"2.0","id":true,"method":"tools/list"}', -32600, None),
        (b'{"jsonrpc":"2.0","id":7,"method":"tools/list","params":[1]}', -32600, 7),
        (b'{"jsonrpc":"2.0","id":"a"}', -32600, "a"),
    ],
)
def test_garbage_is_answered_and_survived(stdio_host, garbage, code, id) -> None:
    stdio_host.send(garbage)
    answer = stdio_host.receive()
    alive = stdio_host.request(9, "tools/call", name="demo_echo", arguments={"a": 1})
    assert (answer["error"]["code"], answer["id"]) == (code, id)
    assert alive["result"]["structuredContent"] == {"a": 1}


def test_a_line_without_end_is_refused_and_its_successor_served(stdio_host) -> None:
    stdio_host.send(b'{"x":"' + b"x" * (17 * 1024 * 1024) + b'"}')
    answer = stdio_host.receive()
    alive = stdio_host.request(9, "tools/call", name="demo_echo", arguments={"a": 1})
    assert "longer than" in answer["error"]["message"]
    assert alive["result"]["structuredContent"] == {"a": 1}


def test_arguments_of_many_megabytes_pass(stdio_host) -> None:
    answer = stdio_host.request(9, "tools/call", name="demo_echo", arguments={"a": "x" * 5_000_000})
    assert len(answer["result"]["structuredContent"]["a"]) == 5_000_000


def test_blank_lines_and_lone_surrogates_do_no_harm(stdio_host) -> None:
    stdio_host.send(b"", b"\r")
    answer = stdio_host.request(9, "tools/call", name="demo_echo\ud800", arguments={})
    alive = stdio_host.request(10, "tools/call", name="demo_echo", arguments={"a": 1})
    assert answer["error"]["code"] == -32700
    assert alive["result"]["structuredContent"] == {"a": 1}


@pytest.fixture(scope="module")
def stdio_host(process_type):
    """One host for every test of this file that it should survive."""
    host = process_type("stdio")
    host.initialize()
    yield host
    host.close()


def lines() -> bytes:
    call = {"name": "demo_echo", "arguments": {"a": 1}, "_meta": MODERN}
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}).encode() + b"\n"


def test_an_empty_stdin_ends_the_server_cleanly(start) -> None:
    host = start("stdio", stdin=subprocess.DEVNULL)
    assert host.end()[0] == 0


def test_stdin_and_stdout_may_be_files(start, tmp_path) -> None:
    source = tmp_path / "in"
    source.write_bytes(b"garbage\n")
    with source.open("rb") as stdin, (tmp_path / "out").open("wb") as stdout:
        host = start("stdio", stdin=stdin, stdout=stdout)
        assert host.end()[0] == 0
    assert json.loads((tmp_path / "out").read_bytes())["error"]["code"] == -32700


def test_stdin_may_be_a_terminal(start) -> None:
    controller, terminal = pty.openpty()
    host = start("stdio", stdin=terminal)
    os.close(terminal)
    os.write(controller, lines())
    answer = host.receive()
    os.write(controller, b"\x04")
    code, _ = host.end()
    os.close(controller)
    assert answer["result"]["structuredContent"] == {"a": 1}
    assert code == 0


def test_a_client_that_is_killed_ends_the_server(start) -> None:
    host = start("stdio")
    host.initialize()
    host.send(b'{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"demo_slow"}}')
    host.process.stdout.close()
    host.process.stdout = None
    assert host.end()[0] == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_the_server_cleanly(start, number) -> None:
    host = start("stdio")
    host.initialize()
    host.process.send_signal(number)
    assert host.process.wait(timeout=10) == 0
