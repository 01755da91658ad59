"""The holder's socket, its two modes and who may use it."""

from __future__ import annotations

import os
import stat

import anyio
import pytest

from packhost.errors import NotFound, PackhostError, StoreUnavailable
from packhost.transports import socket as server_side
from packhost.transports.holder import Peer, call_control, connect, peer_of
from packhost.transports.jsonrpc import to_json
from packhost.transports.socket import socket_server

pytestmark = pytest.mark.anyio


async def test_the_socket_is_the_users_own_and_gone_afterwards(hold, tmp_path) -> None:
    path = tmp_path / "s"
    async with hold(path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert not path.exists()


async def test_a_dead_hosts_socket_is_replaced(hold, tmp_path) -> None:
    path = tmp_path / "s"
    path.write_bytes(b"")
    async with hold(path):
        assert (await call_control(path, "echo", {"a": 1}))["a"] == 1


async def test_control_answers_with_a_result_and_knows_its_peer(hold, tmp_path) -> None:
    async with hold(tmp_path / "s"):
        assert await call_control(tmp_path / "s", "echo", {"a": 1}) == {"a": 1, "pid": os.getpid()}


async def test_control_raises_what_the_host_raised(hold, tmp_path) -> None:
    async with hold(tmp_path / "s"):
        with pytest.raises(PackhostError, match="no operation `fly`") as caught:
            await call_control(tmp_path / "s", "fly")
    assert (caught.value.code, caught.value.hint) == (NotFound.code, "`echo` is all there is")
    assert caught.value.data == {"known": ["echo"]}


@pytest.mark.parametrize(
    "greeting", [{"packhost": 2, "mode": "mcp"}, {"packhost": 1, "mode": "fly"}, {"packhost": 1}, ["x"]]
)
async def test_a_wrong_greeting_is_refused_in_a_sentence(hold, tmp_path, greeting) -> None:
    async with hold(tmp_path / "s"):
        reading, writing = await raw(tmp_path / "s")
        await writing(to_json(greeting))
        answer = await reading()
    assert "error" in answer


async def raw(path):
    stream = await anyio.connect_unix(path)

    async def send(line: bytes) -> None:
        await stream.send(line + b"\n")

    async def receive() -> str:
        async with stream:
            return (await stream.receive()).decode()

    return receive, send


async def test_nobody_at_the_socket_is_a_clear_error(tmp_path) -> None:
    with pytest.raises(StoreUnavailable, match="does not answer"):
        await connect(tmp_path / "s", "control")


async def test_another_users_process_is_refused(hold, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(server_side, "peer_of", lambda _: Peer(1, os.getuid() + 1))
    async with hold(tmp_path / "s"):
        with pytest.raises(StoreUnavailable, match="same user"):
            await connect(tmp_path / "s", "control")


async def test_a_path_too_long_for_a_socket_is_said_so(tmp_path) -> None:
    serving = socket_server(tmp_path / ("x" * 120), None, None)
    with pytest.raises(PackhostError, match="longer than 100 bytes"):
        await serving.__aenter__()


def test_a_peer_is_this_very_process(pair) -> None:
    peer = peer_of(pair[0])
    assert (peer.pid, peer.uid) == (os.getpid(), os.getuid())
