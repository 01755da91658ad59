"""A host-owned connection to a model provider: one base URL, one key that no pack ever sees.

No redirects, no retries, no proxy or key from the environment, no compression: what arrives is what
the provider sent, once.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import anyio.to_thread

from packhost.errors import ConfigInvalid, PackhostError, ToolFailed

if TYPE_CHECKING:
    import httpx2

CONNECT_TIMEOUT = 15.0
WRITE_TIMEOUT = 60.0
READ_TIMEOUT = 900.0
"""Longest silence in seconds while a reply is awaited; the pack's own deadline is the shorter one."""


def named_together(section: Any, base_url: str, secret: str | None) -> bool:
    """Whether one mapping of a configuration section names this base URL and this key, or no key at all."""
    if isinstance(section, Mapping):
        if section.get("base_url") == base_url and section.get("api_key") == secret:
            return True
        return any(named_together(value, base_url, secret) for value in section.values())
    if isinstance(section, list | tuple):
        return any(named_together(value, base_url, secret) for value in section)
    return False


def _anytime() -> None:
    """What a connection that always may be used has to check."""


class Received:
    """An HTTP reply whose body is read in pieces."""

    def __init__(self, response: httpx2.Response) -> None:
        self._response = response

    @property
    def status(self) -> int:
        """The status code."""
        return self._response.status_code

    @property
    def headers(self) -> Mapping[str, str]:
        """Header names in lower case."""
        return {name.lower(): value for name, value in self._response.headers.items()}

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body as it arrives, undecoded; raises `ToolFailed` when it breaks off."""
        import httpx2  # ~100 ms, and only runs of turns need it

        try:
            async for chunk in self._response.aiter_raw():
                yield chunk
        except (httpx2.HTTPError, httpx2.StreamError) as error:
            raise ToolFailed(f"the provider's reply broke off ({type(error).__name__})") from None


class HostConnection:
    """Implements `Connection`; `key` gives the secret's value at the last moment."""

    def __init__(
        self,
        base_url: str,
        key: Callable[[], str] | None,
        header: str,
        scheme: str = "",
        *,
        check: Callable[[], None] = _anytime,
    ) -> None:
        parts = urlsplit(base_url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.query:
            raise ConfigInvalid(
                f"`{base_url}` is not a base URL",
                hint="write `https://HOST[:PORT][/PATH]`, without a user and a query",
            )
        self._base = base_url.rstrip("/")
        self._key = key
        self._header = header
        self._scheme = scheme
        self._check = check
        self._secure = parts.scheme == "https"
        self._tls: ssl.SSLContext | None = None

    @asynccontextmanager
    async def post(self, path: str, body: bytes, headers: Mapping[str, str]) -> AsyncIterator[Received]:
        """Send one request.

        Raises `ConfigInvalid` when the key cannot be had, `ToolFailed` when the request cannot be sent;
        its `data["sent"]` is false where no connection was made, so that no token was used. Neither
        names the key. Raises what `check` raises, which is asked before anything is sent.
        """
        self._check()
        import httpx2  # ~100 ms, and only runs of turns need it

        sent = {**headers, "accept-encoding": "identity", **self._authorisation()}
        timeout = httpx2.Timeout(READ_TIMEOUT, connect=CONNECT_TIMEOUT, write=WRITE_TIMEOUT)
        async with httpx2.AsyncClient(
            follow_redirects=False, trust_env=False, timeout=timeout, verify=await self._context()
        ) as client:
            request = client.build_request("POST", f"{self._base}{path}", content=body, headers=sent)
            try:
                response = await client.send(request, stream=True)
            except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError, ValueError) as error:
                said = type(error).__name__
                raise ToolFailed(
                    f"the provider at `{self._base}` cannot be reached ({said})",
                    hint="check `base_url` and that the provider is up",
                    sent=not isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout),
                ) from None
            try:
                yield Received(response)
            finally:
                await response.aclose()

    async def _context(self) -> ssl.SSLContext:
        """Loading the certificates takes 100 ms: once a connection, in a thread, and only for `https`."""
        import httpx2  # ~100 ms, and only runs of turns need it

        if self._tls is None:
            if self._secure:
                self._tls = await anyio.to_thread.run_sync(lambda: httpx2.create_ssl_context(trust_env=False))
            else:
                self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # trusts nobody
        return self._tls

    def _authorisation(self) -> dict[str, str]:
        if self._key is None:
            return {}
        value = self._key()
        if not value or not value.isascii() or not value.isprintable():
            raise PackhostError(
                "the provider's key is empty or holds what a header cannot",
                code="CONFIG_INVALID",
                hint="look at the secret that the profile's `api_key` names",
            )
        return {self._header: f"{self._scheme} {value}" if self._scheme else value}
