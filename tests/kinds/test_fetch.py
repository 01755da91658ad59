"""What a handler may fetch, from where, and what goes along."""

from __future__ import annotations

import ipaddress
import ssl
import subprocess
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import anyio.streams.tls
import pytest
from anyio.abc import SocketStream
from hypothesis import given
from hypothesis import strategies as st

from packhost.errors import InvalidInput, PackhostError, ScopeDenied, ToolFailed
from packhost.kinds import addresses, egress
from packhost.kinds import fetch as module
from packhost.kinds.fetch import FetchRequest, fetch
from packhost.kinds.python import PythonKind
from packhost.kinds.reply import FetchReply
from packhost.rules.scopes import Layer, parse_scope

pytestmark = pytest.mark.anyio


class Server:
    """A server that remembers what it was sent and answers by path."""

    def __init__(self) -> None:
        self.port = 0
        self.seen: list[tuple[str, dict[str, str], bytes]] = []
        self.answers: dict[str, bytes] = {}

    def says(self, path: str, body: bytes = b"", status: str = "200 OK", **headers: str) -> None:
        lines = {"Content-Length": str(len(body)), **{k.replace("_", "-"): v for k, v in headers.items()}}
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        self.answers[path] = f"HTTP/1.1 {status}\r\n{head}\r\n".encode() + body

    async def handle(self, stream: SocketStream) -> None:
        async with stream:
            data = b""
            try:
                while b"\r\n\r\n" not in data:
                    data += await stream.receive()
                head, _, body = data.partition(b"\r\n\r\n")
                first, *lines = head.decode().split("\r\n")
                headers = {k.lower(): v for k, v in (line.split(": ", 1) for line in lines)}
                while len(body) < int(headers.get("content-length", 0)):
                    body += await stream.receive()
            except (anyio.EndOfStream, anyio.BrokenResourceError):
                return
            path = first.split()[1]
            self.seen.append((first, headers, body))
            answer = self.answers.get(path)
            if answer is None:
                await anyio.sleep_forever()
            else:
                await stream.send(answer)


@asynccontextmanager
async def serving(tls: ssl.SSLContext | None = None) -> AsyncIterator[Server]:
    server = Server()
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    server.port = listener.extra(anyio.abc.SocketAttribute.local_port)
    if tls is not None:
        listener = anyio.streams.tls.TLSListener(listener, tls, standard_compatible=False)  # type: ignore[assignment]
    async with listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, server.handle)
        yield server
        group.cancel_scope.cancel()


@pytest.fixture
async def server(anyio_backend: str) -> AsyncIterator[Server]:
    async with serving() as one:
        yield one


def layers(*lines: str) -> tuple[Layer, ...]:
    return (Layer("bound", tuple(parse_scope(line) for line in lines)),)


async def get(url: str, scopes: Sequence[Layer], **more: Any) -> FetchReply:
    request = {name: more.pop(name) for name in ("method", "headers", "body") if name in more}
    with anyio.fail_after(20):
        return await fetch(FetchRequest(url, **request), scopes, **more)


def resolving(*addresses: str) -> tuple[Callable[[str, int], Any], list[str]]:
    asked: list[str] = []

    async def resolve(host: str, port: int) -> Sequence[str]:
        asked.append(host)
        return addresses if len(asked) == 1 else ("127.0.0.1",)

    return resolve, asked


async def test_a_named_host_and_port_are_reached_with_nothing_ambient(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    server.says("/a?b=c", b"hello", Set_Cookie="s=1", X_More="more")
    url = f"http://127.0.0.1:{server.port}/a?b=c#d"
    scopes = layers(f"network 127.0.0.1:{server.port}")
    for _ in range(2):
        reply = await get(url, scopes, method="POST", headers={"X-Key": "k"}, body=b"sent")
    assert (reply.status, reply.body, reply.headers["x-more"]) == (200, b"hello", "more")
    assert "set-cookie" not in reply.headers
    first, headers, body = server.seen[1]
    assert (first, body) == ("POST /a?b=c HTTP/1.1", b"sent")
    assert headers["host"] == f"127.0.0.1:{server.port}"
    assert headers.keys() & {"cookie", "authorization", "proxy-authorization"} == set()
    assert (headers["x-key"], headers["accept-encoding"]) == ("k", "identity")
    assert headers["packhost-fetch"] == "1"


@pytest.mark.parametrize(
    ("url", "scopes"),
    [
        ("https://other.example/", ["network example.com"]),
        ("https://example.com:444/", ["network example.com:443"]),
        ("https://example.com.evil.example/", ["network example.com"]),
        ("https://sub.example.com/", ["network example.com"]),
        ("http://example.com/", ["network example.com"]),
        ("http://example.com/", ["network example.com:443"]),
        ("https://example.com/", []),
        ("https://example.com/", ["path read **"]),
    ],
)
async def test_what_no_scope_covers_is_refused_before_a_name_is_looked_up(
    url: str, scopes: list[str]
) -> None:
    resolve, asked = resolving("93.184.216.34")
    with pytest.raises(ScopeDenied):
        await get(url, layers(*scopes), resolve=resolve)
    assert asked == []


async def test_every_layer_has_to_cover_it(server: Server) -> None:
    one, other = layers(f"network 127.0.0.1:{server.port}"), layers("network 127.0.0.1")
    with pytest.raises(ScopeDenied):
        await get(f"http://127.0.0.1:{server.port}/", (*one, *other))
    with pytest.raises(ScopeDenied):
        await get(f"http://127.0.0.1:{server.port}/", (*one, *layers("network example.com")))
    assert server.seen == []


@pytest.mark.parametrize(
    "url",
    [
        *(
            "",
            "example.com",
            "//example.com/",
            "file:///etc/passwd",
            "ftp://example.com/",
            "gopher://example.com/",
        ),
        *("https://user@example.com/", "https://user:pass@example.com/", "https://example.com@evil.example/"),
        *(
            "https://example.com\\@evil.example/",
            "https://example.com\\.evil.example/",
            "https://exa mple.com/",
        ),
        *(
            "https://example.com/\r\nX: y",
            "https://example.com:99999/",
            "https://example.com:x/",
            "https://[::1/",
        ),
        *(
            "https://0x7f000001/",
            "https://2130706433/",
            "https://127.1/",
            "https://0177.0.0.1/",
            "https:///a",
        ),
        *(
            "https://*.example.com/",
            "https://example.com./",
            "https://ex\u00e4mple.com/",
            "https://[fe80::1%25lo]/",
        ),
    ],
)
async def test_a_url_with_two_readings_is_refused(url: str) -> None:
    resolve, asked = resolving("93.184.216.34")
    scopes = layers(
        "network example.com:443", "network example.com", "network evil.example", "network 127.0.0.1:443"
    )
    with pytest.raises(InvalidInput):
        await get(url, scopes, resolve=resolve)
    assert asked == []


@pytest.mark.parametrize(
    "more",
    [
        {"method": "CONNECT"},
        {"method": "get"},
        {"headers": {"Host": "evil.example"}},
        {"headers": {"X-A": "b\r\nHost: evil.example"}},
        {"headers": {"X A": "b"}},
        {"headers": {"Transfer-Encoding": "chunked"}},
        {"headers": {"Proxy-Authorization": "x"}},
        {"body": b"x" * (egress.LARGEST + 1)},
    ],
)
async def test_a_request_that_could_say_something_else_is_refused(
    server: Server, more: dict[str, Any]
) -> None:
    with pytest.raises(InvalidInput):
        await get(f"http://127.0.0.1:{server.port}/", layers(f"network 127.0.0.1:{server.port}"), **more)
    assert server.seen == []


PRIVATE = [
    *(
        "127.0.0.1",
        "127.9.9.9",
        "10.0.0.1",
        "172.16.0.1",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.0.1",
        "0.0.0.0",
    ),
    *("224.0.0.1", "255.255.255.255", "::1", "::", "fe80::1", "fc00::1", "fd00:ec2::254", "ff02::1"),
    *("::ffff:127.0.0.1", "::ffff:10.0.0.1", "2002:7f00:1::", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe"),
    *("fec0::1", "64:ff9b:1::a00:1", "::127.0.0.1", "::ffff:0:7f00:1", "200::1"),
]


@pytest.mark.parametrize("address", PRIVATE)
async def test_a_name_that_leads_to_an_address_that_is_not_public_is_refused(address: str) -> None:
    resolve, _ = resolving("93.184.216.34", address)
    with pytest.raises(ScopeDenied, match="not public"):
        await get("https://example.com/", layers("network example.com"), resolve=resolve)


@pytest.mark.parametrize(
    ("host", "address", "reached"),
    [
        ("example.com", "93.184.216.34", True),
        ("intranet.example", "10.0.0.1", True),
        ("intranet.example", "fc00::1", True),
        ("intranet.example", "127.0.0.1", False),
        ("intranet.example", "169.254.169.254", False),
        ("intranet.example", "fd00:ec2::254", False),
        ("intranet.example", "::ffff:127.0.0.1", False),
        ("intranet.example", "224.0.0.1", False),
        ("intranet.example", "0.0.0.0", False),
        ("localhost", "127.0.0.1", True),
        ("dev.localhost", "::1", True),
        ("localhost", "169.254.169.254", False),
        ("169.254.169.254", "169.254.169.254", True),
        ("intranet.example", "100.100.100.200", False),
        ("intranet.example", "168.63.129.16", False),
        ("intranet.example", "192.0.0.192", False),
        ("168.63.129.16", "168.63.129.16", True),
        ("127.0.0.1", "127.0.0.1", True),
        ("127.0.0.1", "127.0.0.2", False),
    ],
)
def test_named_hosts_and_ports_reach_private_addresses_but_this_machine_only_by_its_names(
    host: str, address: str, reached: bool
) -> None:
    assert addresses.may_reach(ipaddress.ip_address(address), host, exact=True) is reached


@given(st.ip_addresses())
def test_without_a_named_port_only_public_addresses_are_reached(address: Any) -> None:
    if addresses.may_reach(address, "example.com", exact=False):
        assert address.is_global or addresses.inner_address(address).is_global
        assert not address.is_loopback
        assert not address.is_link_local
        assert not address.is_multicast


async def test_a_name_is_looked_up_once_and_the_answer_that_was_judged_is_used(server: Server) -> None:
    server.says("/", b"here")
    resolve, asked = resolving("127.0.0.1")
    scopes = layers(f"network localhost:{server.port}")
    assert (await get(f"http://localhost:{server.port}/", scopes, resolve=resolve)).body == b"here"
    assert asked == ["localhost"]
    assert server.seen[0][1]["host"] == f"localhost:{server.port}"


async def test_redirects_are_followed_within_the_scopes_and_leave_secrets_behind(server: Server) -> None:
    async with serving() as second:
        server.says("/a", status="302 Found", Location="b")
        server.says("/b", status="302 Found", Location=f"http://127.0.0.1:{second.port}/c")
        second.says("/c", b"end")
        scopes = layers(f"network 127.0.0.1:{server.port}", f"network 127.0.0.1:{second.port}")
        headers = {"Authorization": "secret", "X-Key": "secret", "Accept": "text/plain"}
        url = f"http://127.0.0.1:{server.port}/a"
        reply = await get(url, scopes, method="POST", headers=headers, body=b"secret")
    assert (reply.body, reply.url) == (b"end", f"http://127.0.0.1:{second.port}/c")
    assert [seen[0].split()[0] for seen in server.seen] == ["POST", "GET"]
    assert server.seen[1][1]["authorization"] == "secret"
    _, sent, body = second.seen[0]
    assert "secret" not in str(sent)
    assert (body, sent["accept"]) == (b"", "text/plain")


@pytest.mark.parametrize(
    "location",
    [
        "http://127.0.0.1:1/",
        "https://example.com/",
        "http://[::1]:PORT/",
        "http://169.254.169.254/",
        "//localhost:PORT/",
    ],
)
async def test_a_redirect_out_of_the_scopes_is_refused(server: Server, location: str) -> None:
    server.says("/", status="302 Found", Location=location.replace("PORT", str(server.port)))
    with pytest.raises(ScopeDenied):
        await get(f"http://127.0.0.1:{server.port}/", layers(f"network 127.0.0.1:{server.port}"))
    assert len(server.seen) == 1


@pytest.mark.parametrize(
    "location", ["file:///etc/passwd", "javascript:alert(1)", "http://u@127.0.0.1/", "http://a b/"]
)
async def test_a_redirect_to_what_is_no_url_is_refused(server: Server, location: str) -> None:
    server.says("/", status="302 Found", Location=location)
    with pytest.raises(InvalidInput):
        await get(f"http://127.0.0.1:{server.port}/", layers(f"network 127.0.0.1:{server.port}"))


async def test_redirects_without_end_end(server: Server) -> None:
    server.says("/", status="302 Found", Location="/")
    with pytest.raises(ToolFailed, match="redirects more than"):
        await get(f"http://127.0.0.1:{server.port}/", layers(f"network 127.0.0.1:{server.port}"))
    assert len(server.seen) == egress.MAX_REDIRECTS + 1


async def test_a_body_is_not_sent_on_by_a_redirect_that_would_repeat_it(server: Server) -> None:
    server.says("/", status="307 Temporary Redirect", Location="/other")
    scopes = layers(f"network 127.0.0.1:{server.port}")
    reply = await get(f"http://127.0.0.1:{server.port}/", scopes, method="POST", body=b"secret")
    assert (reply.status, len(server.seen)) == (307, 1)


async def test_too_much_and_too_slow_are_errors(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    scopes = layers(f"network 127.0.0.1:{server.port}")
    server.says("/large", b"x" * (egress.LARGEST + 1))
    with pytest.raises(PackhostError) as caught:
        await get(f"http://127.0.0.1:{server.port}/large", scopes)
    assert caught.value.code == "OUTPUT_TOO_LARGE"
    monkeypatch.setattr(module, "LONGEST", 0.2)
    with pytest.raises(ToolFailed):
        await get(f"http://127.0.0.1:{server.port}/never", scopes)


async def test_what_cannot_be_reached_is_a_clear_error() -> None:
    with pytest.raises(ToolFailed, match="cannot be reached"):
        await get("http://127.0.0.1:1/", layers("network 127.0.0.1:1"))


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A certificate for `localhost` alone, with its key."""
    made = tmp_path / "certificate.pem"
    arguments = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost"
    arguments += " -addext subjectAltName=DNS:localhost"
    subprocess.run(
        [*arguments.split(), "-keyout", made, "-out", tmp_path / "cert"], check=True, capture_output=True
    )
    made.write_text(made.read_text() + (tmp_path / "cert").read_text())
    return made


async def test_the_certificate_has_to_be_for_the_name_and_not_the_address(certificate: Path) -> None:
    theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    theirs.load_cert_chain(certificate)
    ours = ssl.create_default_context(cafile=str(certificate))
    async with serving(theirs) as server:
        server.says("/", b"safe")
        resolve, _ = resolving("127.0.0.1")
        scopes = layers(f"network localhost:{server.port}", f"network 127.0.0.1:{server.port}")
        reply = await get(f"https://localhost:{server.port}/", scopes, resolve=resolve, tls=ours)
        assert reply.body == b"safe"
        with pytest.raises(ToolFailed):
            await get(f"https://127.0.0.1:{server.port}/", scopes, tls=ours)
        with pytest.raises(ToolFailed):
            await get(f"https://localhost:{server.port}/", scopes)


async def test_a_confined_handler_fetches_through_the_host(
    kind: PythonKind, make_tool: Any, context: Any, server: Server
) -> None:
    server.says("/", bytes(range(256)), X_More="more")
    tool = make_tool(
        """
        from packhost.errors import ScopeDenied
        async def handle(context, arguments):
            reply = await context.fetch(arguments["url"], method="PUT", headers={"X-A": "b"}, body=b"sent")
            try: await context.fetch("https://example.com/")
            except ScopeDenied: refused = True
            return [reply.status, list(reply.body) == list(range(256)), reply.headers["x-more"], refused]
        """
    )
    scopes = layers(f"network 127.0.0.1:{server.port}")
    with anyio.fail_after(20):
        found = await kind.run(
            tool, {"url": f"http://127.0.0.1:{server.port}/"}, replace(context, layers=scopes)
        )
    assert found == [200, True, "more", True]
    assert server.seen[0][2] == b"sent"
