"""HTTP: addresses, hosts, origins, strangers, and stopping."""

from __future__ import annotations

import contextlib
import re
import signal
import socket
import subprocess
import sys
import time

import httpx2
import pytest
from starlette.testclient import TestClient

from packhost.errors import ConfigInvalid
from packhost.kinds.fetch import FetchRequest, fetch
from packhost.rules.scopes import Layer, parse_scope
from packhost.transports.http import build_app, parse_address
from packhost.transports.peers import NOBODY, owners


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:0", ("127.0.0.1", 0)),
        ("localhost:8321", ("localhost", 8321)),
        ("[::1]:80", ("::1", 80)),
        ("127.9.9.9:80", ("127.9.9.9", 80)),
    ],
)
def test_a_loopback_address_is_taken(text, address) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize(
    "text", ["0.0.0.0:80", "192.168.1.2:80", "[::]:80", "example.org:80", ":80", "80", "127.0.0.1:x",
             "127.0.0.1:99999", "127.0.0.1:²"]
)  # fmt: skip
def test_any_other_address_is_refused(text) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        parse_address(text)
    assert caught.value.hint


@pytest.fixture(scope="module")
def url(process_type):
    """One host for every test of this file that it should survive."""
    process = process_type("http", "127.0.0.1:0")
    line = process.stderr_line()
    found = re.fullmatch(r"packhost: listening on (http://127\.0\.0\.1:\d+)\n", line)
    assert found, line
    yield found[1]
    process.close()


def test_health_is_told_and_foreign_hosts_and_origins_are_refused(url) -> None:
    with httpx2.Client(base_url=url) as client:
        healthy = client.get("/healthz")
        assert healthy.json() == {"ok": True, "version": "1.2.3"}
        for path in ("/mcp", "/sse", "/healthz"):
            assert client.get(path, headers={"host": "evil.example"}).status_code == 421
            assert client.get(path, headers={"origin": "http://evil.example"}).status_code == 403
        assert client.get("/sse", headers={"origin": "http://localhost.evil.example"}).status_code == 403
        assert client.post("/sse").status_code == 405
        assert client.get("/nothing").status_code == 404


def test_small_replies_on_a_kept_connection_are_not_held_back(url) -> None:
    with httpx2.Client(base_url=url) as client:
        client.get("/healthz")
        began = time.perf_counter()
        for _ in range(20):
            client.get("/healthz")
        took = time.perf_counter() - began
    assert took < 20 * 0.035, "each reply waits for the client's acknowledgement"


@pytest.mark.parametrize("body", [b"garbage", b"[]", b"{}", b"\xff", b"[" * 100_000])
@pytest.mark.parametrize("version", ["2026-07-28", "2025-11-25"])
def test_garbage_is_answered_and_survived(url, body, version) -> None:
    headers = {
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": version,
    }
    with httpx2.Client(base_url=url, headers=headers) as client:
        answer = client.post("/mcp", content=body)
        assert answer.status_code == 400
        assert client.get("/healthz").status_code == 200


@pytest.mark.parametrize("path", ["/mcp", "/sse", "/messages/"])
def test_who_cannot_be_told_is_refused_with_a_reason(path) -> None:
    with TestClient(build_app(_Unused(), "1"), base_url="http://127.0.0.1:80") as client:
        answer = client.get(path)
    assert answer.status_code == 401
    assert "without a token" in answer.json()["message"]


@pytest.mark.anyio
@pytest.mark.parametrize("path", ["/mcp", "/sse", "/messages/"])
async def test_what_a_handler_fetches_from_a_host_is_refused(url, path) -> None:
    scope = Layer("bound", (parse_scope(f"network 127.0.0.1:{url.rsplit(':', 1)[1]}"),))
    reply = await fetch(FetchRequest(f"{url}{path}", "POST", {"Packhost-Fetch": "0"}), (scope,))
    assert (reply.status, b"no client" in reply.body) == (403, True)


class _Unused:
    """Stands where a server is never reached."""

    def lifespan(self, _: object):
        return contextlib.nullcontext({})


def test_a_port_that_is_taken_is_a_clear_error(start) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        code, stderr = start("http", f"127.0.0.1:{taken.getsockname()[1]}").end()
    assert code == 2
    assert stderr.startswith("CONFIG_INVALID")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.slow
def test_a_signal_stops_the_server_although_a_stream_is_open(start, number) -> None:
    process = start("http", "127.0.0.1:0")
    url = process.stderr_line().split()[-1]
    with httpx2.Client(base_url=url) as client, client.stream("GET", "/sse") as stream:
        assert stream.status_code == 200
        process.process.send_signal(number)
        code, stderr = process.end()
    assert code == 0
    assert "Traceback" not in stderr


TABLE = """  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1 0 100 0
   1: 0100007F:C001 0100007F:1F90 01 00000000:00000000 00:00000000 00000000  1000        0 2 1 0 100 0
   2: 0100007F:1F90 0100007F:C001 01 00000000:00000000 00:00000000 00000000     7        0 3 1 0 100 0
   3: 0100007F:C002 0100007F:1F90 06 00000000:00000000 00:00000000 00000000     0        0 0 1 0 100 0
   4: 0100007F:C003 0100007F:1F90 01 00000000:00000000 00:00000000 00000000  1000        0 4 1 0 100 0
   5: 0200007F:C003 0100007F:1F90 01 00000000:00000000 00:00000000 00000000  1001        0 5 1 0 100 0
   6: 0100007F:C004 0100007F:1F90 05 00000000:00000000 00:00000000 00000000     0        0 0 1 0 100 0
   7: 0100007F:C005 0100007F:1F90 01 00000000:00000000 00:00000000 00000000  1000        0 6 1 0 100 0
   8: 0200007F:C005 0100007F:1F90 04 00000000:00000000 00:00000000 00000000  1000        0 0 1 0 100 0
"""


@pytest.mark.parametrize(
    ("port", "uids"),
    [
        (0xC001, {1000}),
        (0xC002, set()),
        (0xC003, {1000, 1001}),
        (0xC004, {NOBODY}),
        (0xC005, {1000, NOBODY}),
        (0xC009, set()),
    ],
)
def test_a_connections_owner_is_found_by_both_ports(tmp_path, port, uids) -> None:
    table = tmp_path / "tcp"
    table.write_text(TABLE)
    assert owners(port, 8080, (table, tmp_path / "missing")) == uids


@pytest.mark.slow
def test_an_http_client_that_is_killed_leaves_the_server_alive(url) -> None:
    code = (
        "import anyio, sys\nfrom mcp import Client\n"
        "async def main():\n"
        "    async with Client(sys.argv[1], mode='legacy') as c:\n"
        "        print('in', flush=True)\n"
        "        await c.call_tool('demo_slow', {})\n"
        "anyio.run(main)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code, f"{url}/mcp"], stdout=subprocess.PIPE) as client:
        assert client.stdout.readline() == b"in\n"
        client.kill()
    with httpx2.Client(base_url=url) as again:
        assert again.get("/healthz").status_code == 200
