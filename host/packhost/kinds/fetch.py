"""Fetches for handlers, made by the host: exact hosts, checked addresses, nothing ambient.

A URL is taken apart once, and the request is put together from its parts. The host's name is looked up here,
every address that it has is judged, and the connection is made to one of those judged, so that a name that
answers differently the second time gains nothing. No proxy, cookie, key or redirect comes in by itself.
"""

from __future__ import annotations

import functools
import ipaddress
import re
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from urllib.parse import urljoin, urlsplit

import anyio
import anyio.to_thread

from packhost.errors import ConfigInvalid, InvalidInput, PackhostError, ScopeDenied, ToolFailed
from packhost.kinds.reply import FetchReply
from packhost.rules.hosts import canonical_host
from packhost.rules.scopes import Layer, NetworkScope, network_use

if TYPE_CHECKING:
    import httpx2

LARGEST: Final = 8 * 1024 * 1024
"""Bytes of a body, sent or received."""
LONGEST: Final = 60.0
"""Seconds that a fetch takes at most, redirects included."""
MAX_REDIRECTS: Final = 5

_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_OURS: Final = frozenset(
    {"host", "content-length", "transfer-encoding", "connection", "upgrade", "te", "trailer", "expect"}
    | {"accept-encoding", "keep-alive", "proxy-authorization", "proxy-connection", "cookie2", "forwarded"}
)
_HARMLESS: Final = frozenset({"accept", "accept-language", "user-agent"})
"""What still goes along when a redirect leads to another origin: everything else may carry a secret."""
_HEADER: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+\Z")
_PLAIN: Final = re.compile(r"[\x21-\x7e]+\Z")
_METADATA: Final = (ipaddress.ip_network("169.254.0.0/16"), ipaddress.ip_network("fd00:ec2::/32"))
_NAT64: Final = ipaddress.ip_network("64:ff9b::/96")
_GLOBAL6: Final = ipaddress.ip_network("2000::/3")
"""All IPv6 addresses that are given out for the public; what lies outside may be a network's own."""

FETCHED: Final = "packhost-fetch"
"""Header of a request to this machine that a host made for a handler. No host takes such a request: with its
own hands a pack would be a client, free of the pack's scopes."""

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Resolve = Callable[[str, int], Awaitable[Sequence[str]]]


@dataclass(frozen=True, slots=True)
class _Target:
    """A URL, taken apart."""

    secure: bool
    host: str
    port: int
    path: str

    @property
    def origin(self) -> tuple[bool, str, int]:
        return (self.secure, self.host, self.port)

    @property
    def authority(self) -> str:
        shown = f"[{self.host}]" if ":" in self.host else self.host
        return shown if self.port == (443 if self.secure else 80) else f"{shown}:{self.port}"

    @property
    def url(self) -> str:
        return f"{'https' if self.secure else 'http'}://{self.authority}{self.path}"


@dataclass(frozen=True, slots=True)
class FetchRequest:
    """What a handler asks for; checked when it is fetched."""

    url: str
    method: str = "GET"
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


async def system_resolve(host: str, port: int) -> Sequence[str]:
    """The addresses of a name, as the operating system gives them."""
    found = await anyio.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(address[0]) for _, _, _, _, address in found]


async def fetch(
    request: FetchRequest,
    layers: Sequence[Layer],
    *,
    resolve: Resolve = system_resolve,
    tls: ssl.SSLContext | None = None,
) -> FetchReply:
    """Make one request within the layers' `network` scopes, following redirects within them.

    :raises ScopeDenied: for a host, port, scheme or address that a layer does not cover.
    :raises InvalidInput: for a request that is not one.
    :raises ToolFailed: when it cannot be sent, breaks off, takes too long or brings too much.
    """
    headers = _checked(request)
    method, target, body = request.method, _taken_apart(request.url), request.body
    try:
        with anyio.fail_after(LONGEST):
            for _ in range(MAX_REDIRECTS + 1):
                address = await _allowed_address(target, layers, resolve)
                reply, location = await _send(target, address, method, headers, body, tls)
                if location is None or (reply.status in (307, 308) and body):
                    return reply
                following = _taken_apart(urljoin(target.url, location))
                if following.origin != target.origin:
                    headers = {name: value for name, value in headers.items() if name in _HARMLESS}
                if reply.status not in (307, 308) and method not in ("GET", "HEAD"):
                    method, body = "GET", b""
                target = following
    except TimeoutError:
        raise ToolFailed(f"`{target.authority}` did not answer within {LONGEST:g} s") from None
    raise ToolFailed(f"`{request.url[:200]}` redirects more than {MAX_REDIRECTS} times")


def _checked(request: FetchRequest) -> dict[str, str]:
    """The headers, by lower-case name."""
    if request.method not in _METHODS:
        raise InvalidInput(
            f"`{request.method[:20]}` is not a method", hint=f"use one of {', '.join(sorted(_METHODS))}"
        )
    if len(request.body) > LARGEST:
        raise InvalidInput(f"a body has at most {LARGEST} bytes", hint="send less at once")
    headers = {name.lower(): value for name, value in request.headers.items()}
    for name, value in headers.items():
        if not _HEADER.match(name) or name in _OURS or not (value.isascii() and value.isprintable()):
            raise InvalidInput(f"the header `{name[:40]}` cannot be sent", hint="leave it out")
    return headers


def _taken_apart(url: str) -> _Target:
    hint = "write `https://HOST[:PORT]/PATH`, without a user"
    if not _PLAIN.match(url) or "\\" in url:
        raise InvalidInput(
            "the URL has a space, a backslash or another character that is not plain", hint=hint
        )
    try:
        parts = urlsplit(url)
        port, host = parts.port, parts.hostname
    except ValueError:
        raise InvalidInput(f"`{url[:200]}` is not a URL", hint=hint) from None
    if parts.scheme not in ("http", "https") or not host or "@" in parts.netloc:
        raise InvalidInput(f"`{url[:200]}` is not a URL that can be fetched", hint=hint)
    try:
        name = canonical_host(host)
    except ConfigInvalid as error:
        raise InvalidInput(error.message, hint=error.hint) from None
    secure = parts.scheme == "https"
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return _Target(secure, name, port or (443 if secure else 80), path)


async def _allowed_address(target: _Target, layers: Sequence[Layer], resolve: Resolve) -> str:
    """An address of the target's to connect to; none is used unless all of them are allowed."""
    uncovered = network_use(target.host, target.port, layers)
    if uncovered is not None:
        raise ScopeDenied(
            f"the {uncovered.layer} does not cover `{uncovered.needed}`",
            hint=f"it allows: {', '.join(f'`{one}`' for one in uncovered.patterns[:5]) or 'nothing'}",
            layer=uncovered.layer,
            patterns=uncovered.patterns,
            place=uncovered.place,
        )
    exact = all(NetworkScope(target.host, target.port) in layer.scopes for layer in layers)
    if not target.secure and not exact:
        raise _denied(target, "is not encrypted", "use https, or name host and port in the scope")
    try:
        found = [
            ipaddress.ip_address(text.partition("%")[0]) for text in await resolve(target.host, target.port)
        ]
    except (OSError, UnicodeError):
        raise ToolFailed(f"the name `{target.host}` cannot be looked up", hint="check it") from None
    if not found:
        raise ToolFailed(f"the name `{target.host}` has no address", hint="check it")
    for address in found:
        if not _may_reach(address, target, exact):
            raise _denied(
                target, f"leads to `{address}`, which is not public", "name its host and port in the scope"
            )
    return str(found[0])


def _may_reach(address: Address, target: _Target, exact: bool) -> bool:
    """Public addresses always; private ones where host and port are named; this machine by its own names."""
    plain = _plain(address)
    if plain.is_global and not plain.is_multicast and (plain.version == 4 or plain in _GLOBAL6):
        return True
    literal = _literal(target.host)
    if not exact or plain.is_multicast or plain.is_unspecified:
        return False
    if literal is not None:
        return literal == address
    if any(plain in network for network in _METADATA) or plain.is_link_local:
        return False
    return not plain.is_loopback or target.host == "localhost" or target.host.endswith(".localhost")


def _literal(host: str) -> Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _plain(address: Address) -> Address:
    """The IPv4 address inside an IPv6 one that carries one."""
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour or (address.teredo or (None, None))[1]
        if inner is None and address in _NAT64:
            inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        return inner or address
    return address


def _denied(target: _Target, why: str, hint: str) -> ScopeDenied:
    return ScopeDenied(f"`{target.authority}` {why}", hint=hint, layer="network", patterns=())


@functools.cache
def _public_authorities() -> ssl.SSLContext:
    import httpx2  # ~100 ms, and only fetches need it

    return httpx2.create_ssl_context(trust_env=False)


async def _send(
    target: _Target,
    address: str,
    method: str,
    headers: Mapping[str, str],
    body: bytes,
    tls: ssl.SSLContext | None,
) -> tuple[FetchReply, str | None]:
    """The reply, and where it redirects to."""
    import httpx2  # ~100 ms, and only fetches need it

    verify: ssl.SSLContext | bool = False
    if target.secure:
        verify = tls if tls is not None else await anyio.to_thread.run_sync(_public_authorities)
    numeric = f"[{address}]" if ":" in address else address
    url = f"{'https' if target.secure else 'http'}://{numeric}:{target.port}{target.path}"
    sent = {**headers, "host": target.authority, "accept-encoding": "identity"}
    if _plain(ipaddress.ip_address(address)).is_loopback:
        sent[FETCHED] = "1"
    async with httpx2.AsyncClient(
        follow_redirects=False, trust_env=False, timeout=LONGEST, verify=verify
    ) as client:
        try:
            request = client.build_request(
                method, url, content=body or None, headers=sent, extensions={"sni_hostname": target.host}
            )
            response = await client.send(request, stream=True)
            try:
                content = await _body(response, target)
            finally:
                await response.aclose()
        except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError, ValueError, OSError) as error:
            raise ToolFailed(
                f"`{target.authority}` cannot be reached ({type(error).__name__})", hint="check the address"
            ) from None
    found = {name.lower(): value for name, value in response.headers.items() if name.lower() != "set-cookie"}
    location = found.get("location") if response.status_code in (301, 302, 303, 307, 308) else None
    return FetchReply(response.status_code, found, content, target.url), location


async def _body(response: httpx2.Response, target: _Target) -> bytes:
    content = bytearray()
    async for chunk in response.aiter_raw():
        content += chunk
        if len(content) > LARGEST:
            raise PackhostError(
                f"`{target.authority}` sent more than {LARGEST} bytes",
                code="OUTPUT_TOO_LARGE",
                hint="ask for less",
            )
    return bytes(content)
