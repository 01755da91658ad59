"""The one way out to the network: exact hosts, checked addresses, nothing ambient.

A URL is taken apart once, and the request is put together from its parts. The host's name is looked up here,
every address that it has is judged, and the connection is made to one of those judged, so that a name that
answers differently the second time gains nothing. No proxy, cookie, key or redirect comes in by itself.
Certificates are checked for the name, against what `SSL_CERT_FILE` or else the system trusts.
"""

from __future__ import annotations

import functools
import ipaddress
import os
import re
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final
from urllib.parse import urljoin, urlsplit

import anyio
import anyio.to_thread

from packhost.errors import ConfigInvalid, InvalidInput, PackhostError, ScopeDenied, ToolFailed
from packhost.kinds.addresses import inner_address, reachable
from packhost.kinds.inflating import Inflater, UnknownEncoding
from packhost.kinds.reply import FetchReply
from packhost.rules.hosts import canonical_host
from packhost.rules.scopes import Layer, NetworkScope, network_use

if TYPE_CHECKING:
    import httpx2

LARGEST: Final = 8 * 1024 * 1024
"""Bytes of a body, sent or received, that nothing may pass."""
MAX_REDIRECTS: Final = 5
_TRIED: Final = 4
"""How many addresses of a name are tried before it counts as not reached."""
CONNECTING: Final = 10.0
"""Seconds after which a connection that did not come about is given up."""

_OURS: Final = frozenset(
    {"host", "content-length", "transfer-encoding", "connection", "upgrade", "te", "trailer", "expect"}
    | {"accept-encoding", "keep-alive", "proxy-authorization", "proxy-connection", "cookie2", "forwarded"}
)
_HARMLESS: Final = frozenset({"accept", "accept-language", "user-agent"})
"""What still goes along when a redirect leads to another origin: everything else may carry a secret."""
_OF_BODY: Final = ("content-type", "content-encoding", "content-language", "content-location")
_HEADER: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+\Z")
_PLAIN: Final = re.compile(r"[\x21-\x7e]+\Z")
FETCHED: Final = "packhost-fetch"
"""Header of a request to this machine that a host made for a tool. No host takes such a request: with its
own hands a pack would be a client, free of the pack's scopes."""

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
TRACING: Final[ContextVar[Callable[[], Mapping[str, str]] | None]] = ContextVar("tracing", default=None)
"""What names the trace of the call that is under way, in headers; nothing where nobody traces."""


@dataclass(frozen=True, slots=True)
class Target:
    """A URL, taken apart; `path` holds the query too."""

    secure: bool
    host: str
    port: int
    path: str

    @property
    def origin(self) -> tuple[bool, str, int]:
        """What two URLs share when credentials for one are meant for the other."""
        return (self.secure, self.host, self.port)

    @property
    def authority(self) -> str:
        """Host and port as people read them: all of a target that messages may show."""
        shown = f"[{self.host}]" if ":" in self.host else self.host
        return shown if self.port == (443 if self.secure else 80) else f"{shown}:{self.port}"

    @property
    def url(self) -> str:
        """The URL, put together again."""
        return f"{'https' if self.secure else 'http'}://{self.authority}{self.path}"


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A request, ready to be sent: header names in lower case, none of them one that is set here."""

    target: Target
    method: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Limits:
    """What an exchange may take: seconds for each wait, bytes of the body, and how often it is sent on.

    With `inflate` a compressed body is asked for and unpacked; `largest` then counts what comes out.
    """

    patience: float
    largest: int = LARGEST
    redirects: int = MAX_REDIRECTS
    inflate: bool = False


async def system_resolve(host: str, port: int) -> Sequence[str]:
    """The addresses of a name, as the operating system gives them."""
    found = await anyio.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(address[0]) for _, _, _, _, address in found]


async def exchange(
    request: Outgoing,
    layers: Sequence[Layer],
    limits: Limits,
    *,
    resolve: Resolve = system_resolve,
    tls: ssl.SSLContext | None = None,
) -> FetchReply:
    """Send a request within the layers' `network` scopes, following redirects within them.

    A redirect that would send a body again, or turn anything but a POST into a GET where the server did not
    say so, is not followed: it is the reply. Every error raised here says in `data["sent"]` whether a server
    may have got the request.

    :raises ScopeDenied: for a host, port, scheme or address that a layer does not cover.
    :raises InvalidInput: for a redirect to what is no URL.
    :raises ToolFailed: when it cannot be sent, breaks off or is sent on too often.
    :raises PackhostError: `OUTPUT_TOO_LARGE`.
    """
    sent, tracing = False, TRACING.get()
    if tracing is not None:
        request = replace(request, headers={**tracing(), **request.headers})
    try:
        for _ in range(limits.redirects + 1):
            addresses = await allowed_addresses(request.target, layers, resolve)
            reply = await _reached(request, addresses, limits, tls)
            sent = True
            following = redirected(request, reply) if limits.redirects else None
            if following is None:
                return reply
            request = following
    except PackhostError as error:
        error.data["sent"] = sent or error.data.get("sent", False)
        raise
    raise ToolFailed(
        f"`{request.target.authority}` redirects more than {limits.redirects} times",
        hint="check the URL",
        sent=True,
    )


def redirected(request: Outgoing, reply: FetchReply) -> Outgoing | None:
    """What a reply asks to be sent next; `None` when it is the end.

    To another origin go neither the body nor any header that could carry a secret.

    :raises ScopeDenied: when it leads from https to http.
    :raises InvalidInput: when it leads to what is no URL.
    """
    location = reply.headers.get("location")
    if location is None or reply.status not in (301, 302, 303, 307, 308):
        return None
    method, body, headers = request.method, request.body, dict(request.headers)
    if reply.status in (307, 308):
        if body:
            return None
    elif method not in ("GET", "HEAD"):
        if method != "POST" and reply.status != 303:
            return None
        method, body = "GET", b""
        headers = {name: value for name, value in headers.items() if name not in _OF_BODY}
    target = taken_apart(urljoin(request.target.url, location))
    if request.target.secure and not target.secure:
        raise _denied(target, "is where a redirect leads, and it is not encrypted", "call it there")
    if target.origin != request.target.origin:
        headers = {name: value for name, value in headers.items() if name in _HARMLESS}
    return Outgoing(target, method, headers, body)


def header_fault(name: str, value: str) -> str | None:
    """Why a header cannot be sent; `None` when it can. `name` in lower case."""
    if not _HEADER.match(name):
        return "is no header's name"
    if name in _OURS:
        return "is set by the host"
    if not (value.isascii() and value.isprintable()):
        return "holds a line break or another character that is not printable ASCII"
    return None


def taken_apart(url: str) -> Target:
    """A URL's parts.

    :raises InvalidInput: for what is no http or https URL, or one that two programs could read differently.
    """
    hint = "write `https://HOST[:PORT]/PATH`, without a user"
    if not _PLAIN.match(url) or "\\" in url:
        raise InvalidInput(
            "the URL has a space, a backslash or another character that is not plain", hint=hint
        )
    try:
        parts = urlsplit(url)
        port, host = parts.port, parts.hostname
    except ValueError:
        raise InvalidInput("the URL is not one", hint=hint) from None
    if parts.scheme not in ("http", "https") or not host or "@" in parts.netloc:
        raise InvalidInput("the URL is not one that can be fetched", hint=hint)
    try:
        name = canonical_host(host)
    except ConfigInvalid as error:
        raise InvalidInput(error.message, hint=error.hint) from None
    secure = parts.scheme == "https"
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Target(secure, name, port or (443 if secure else 80), path)


def check_scopes(target: Target, layers: Sequence[Layer]) -> bool:
    """Whether every layer names exactly this host and port, once they all cover it.

    :raises ScopeDenied: when one does not, and for plain http that no scope names.
    """
    uncovered = network_use(target.host, target.port, layers)
    if uncovered is not None:
        raise ScopeDenied(
            f"the {uncovered.layer} does not cover `{uncovered.needed}`",
            hint=f"it allows: {', '.join(f'`{one}`' for one in uncovered.patterns[:5]) or 'nothing'}",
            layer=uncovered.layer,
            patterns=uncovered.patterns,
            place=uncovered.place,
        )
    named = NetworkScope(target.host, target.port)
    exact = all(named in layer.scopes for layer in layers)
    if not target.secure and not exact:
        raise _denied(target, "is not encrypted", "use https, or name host and port in the scope")
    return exact


async def allowed_addresses(target: Target, layers: Sequence[Layer], resolve: Resolve) -> Sequence[str]:
    """The target's addresses, to be tried in order; none is used unless all of them are allowed.

    :raises ScopeDenied: for a host, port, scheme or address that a layer does not cover.
    :raises ToolFailed: when the name leads nowhere.
    """
    exact = check_scopes(target, layers)
    try:
        found = await resolve(target.host, target.port)
        for text in found:
            if not reachable(text, target.host, exact):
                raise _denied(
                    target,
                    f"leads to `{text[:64]}`, which is not public",
                    "name its host and port in the scope",
                )
    except (OSError, UnicodeError):
        raise ToolFailed(
            f"the name `{target.host}` cannot be looked up", hint="check it", passing=True
        ) from None
    if not found:
        raise ToolFailed(f"the name `{target.host}` has no address", hint="check it")
    return [text.partition("%")[0] for text in found[:_TRIED]]


def _denied(target: Target, why: str, hint: str) -> ScopeDenied:
    return ScopeDenied(f"`{target.authority}` {why}", hint=hint, layer="network", patterns=())


@functools.lru_cache(maxsize=4)
def _authorities(file: str, folder: str) -> ssl.SSLContext:
    """Whom to trust; asked anew when the variables change, which are all that it reads."""
    import httpx2  # ~100 ms, and only requests need it

    try:
        return httpx2.create_ssl_context()
    except OSError as error:
        raise ConfigInvalid(
            "the certificates that `SSL_CERT_FILE` or `SSL_CERT_DIR` names cannot be read",
            hint=f"set it to a file of PEM certificates ({error.strerror or type(error).__name__})",
        ) from None


async def _trusted() -> ssl.SSLContext:
    names = (os.environ.get("SSL_CERT_FILE", ""), os.environ.get("SSL_CERT_DIR", ""))
    return await anyio.to_thread.run_sync(_authorities, *names)


async def _reached(
    request: Outgoing, addresses: Sequence[str], limits: Limits, tls: ssl.SSLContext | None
) -> FetchReply:
    """The reply from the first address that takes the connection."""
    for address in addresses[:-1]:
        try:
            return await _send(request, address, limits, tls)
        except ToolFailed as error:
            if error.data.get("sent", True):
                raise
    return await _send(request, addresses[-1], limits, tls)


async def _send(request: Outgoing, address: str, limits: Limits, tls: ssl.SSLContext | None) -> FetchReply:
    target = request.target
    async with _open(request, address, limits, tls) as response:
        found = {name.lower(): value for name, value in response.headers.items()}
        found.pop("set-cookie", None)
        content = await _body(response, target, limits)
    return FetchReply(response.status_code, found, content, target.url)


@asynccontextmanager
async def _open(
    request: Outgoing, address: str, limits: Limits, tls: ssl.SSLContext | None
) -> AsyncIterator[httpx2.Response]:
    """The response to one request, its body unread; what breaks is a `ToolFailed`."""
    import httpx2  # ~100 ms, and only requests need it

    target, verify = request.target, tls if tls is not None else False
    if target.secure and tls is None:
        verify = await _trusted()
    numeric = f"[{address}]" if ":" in address else address
    url = f"{'https' if target.secure else 'http'}://{numeric}:{target.port}/"
    encoding = "gzip, deflate" if limits.inflate else "identity"
    headers = {**request.headers, "host": target.authority, "accept-encoding": encoding}
    if inner_address(ipaddress.ip_address(address)).is_loopback:
        headers[FETCHED] = "1"
    # The path goes out as it is: the client would spell some of it anew.
    asked = {"sni_hostname": target.host, "target": target.path.encode("ascii")}
    patience = httpx2.Timeout(limits.patience, connect=min(limits.patience, CONNECTING))
    try:
        async with httpx2.AsyncClient(
            follow_redirects=False, trust_env=False, timeout=patience, verify=verify
        ) as client:
            built = client.build_request(
                request.method, url, content=request.body or None, headers=headers, extensions=asked
            )
            response = await client.send(built, stream=True)
            try:
                yield response
            finally:
                await response.aclose()
    except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError, ValueError, OSError) as error:
        sent = not isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout)
        said = "broke off" if sent else "cannot be reached"
        raise ToolFailed(
            f"`{target.authority}` {said} ({type(error).__name__})",
            hint="check the address",
            sent=sent,
            passing=True,
        ) from None


async def _body(response: httpx2.Response, target: Target, limits: Limits) -> bytes:
    encoding = response.headers.get("content-encoding", "") if limits.inflate else ""
    try:
        inflater = Inflater(encoding, limits.largest)
        arrived = 0
        async for chunk in response.aiter_raw():
            arrived += len(chunk)
            # What is packed counts as well: a stream can go on for ever without anything coming out.
            if not inflater.feed(chunk) or arrived > limits.largest:
                raise PackhostError(
                    f"`{target.authority}` sent more than {limits.largest} bytes",
                    code="OUTPUT_TOO_LARGE",
                    hint="ask for less",
                    sent=True,
                )
        return inflater.finish()
    except UnknownEncoding as error:
        raise ToolFailed(
            f"`{target.authority}` sent a body {error}", hint="tell its operator", sent=True
        ) from None
