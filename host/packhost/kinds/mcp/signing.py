"""Signing in to a server by OAuth: a person does it once, and what they get is kept in the state folder.

The file holds tokens as they are, readable by the user alone, as the host's own key is.
"""

from __future__ import annotations

import asyncio
import contextlib
import html
import json
import os
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import httpx2
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider, OAuthFlowError
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata, OAuthToken
from pydantic import ValidationError

from packhost.errors import ConfigInvalid, PackhostError, ToolFailed
from packhost.kinds.mcp.peer import Gone, Peer, RpcError
from packhost.kinds.mcp.remote import Remote
from packhost.kinds.mcp.session import Era, NotSpoken, greet
from packhost.manifest.upstream import UpstreamSpec, filled
from packhost.workspace.observed import FOLDER

PATIENCE: Final = 600.0
"""Seconds that a person has to sign in."""
_PATH: Final = "/callback"
_LONGEST: Final = 16 * 1024
_PAGE: Final = "<!doctype html><meta charset=utf-8><title>packhost</title><p>{}</p>"


class Kept:
    """What a person signed in for, of one pack's server."""

    def __init__(self, state: Path, pack: str, url: str) -> None:
        self._path = state / FOLDER / f"{pack}.oauth"
        self._url = url

    @property
    def there(self) -> bool:
        """Whether somebody has signed in to this very address."""
        return "tokens" in self._read()

    async def get_tokens(self) -> OAuthToken | None:
        """See `TokenStorage`."""
        found: OAuthToken | None = self._one("tokens", OAuthToken)
        return found

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """See `TokenStorage`."""
        self._write("tokens", tokens)

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """See `TokenStorage`."""
        found: OAuthClientInformationFull | None = self._one("client", OAuthClientInformationFull)
        return found

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """See `TokenStorage`."""
        self._write("client", client_info)

    def forget(self) -> None:
        """Sign out: nothing is kept any more."""
        with contextlib.suppress(OSError):
            self._path.unlink()

    def _read(self) -> dict[str, Any]:
        try:
            found = json.loads(self._path.read_bytes())
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) and found.get("url") == self._url else {}

    def _one(self, name: str, model: Any) -> Any:
        try:
            return model.model_validate(self._read()[name])
        except (KeyError, ValidationError):
            return None

    def _write(self, name: str, value: Any) -> None:
        data = {**self._read(), "url": self._url, name: value.model_dump(mode="json", exclude_none=True)}
        self._path.parent.mkdir(mode=0o700, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(prefix=".new-", dir=self._path.parent)
        with open(descriptor, "w") as file:
            json.dump(data, file)
        os.replace(temporary, self._path)


def signer(upstream: UpstreamSpec, kept: Kept, pack: str, secrets: Mapping[str, str]) -> httpx2.Auth:
    """Signs requests with what a person signed in for, renewed where that is possible.

    Raises `ToolFailed` where nobody has signed in.
    """
    if not kept.there:
        raise _not_signed_in(pack)

    async def nobody(*_: Any) -> Any:
        raise OAuthFlowError("nobody is there to sign in")

    return _provider(upstream, kept, secrets, "http://127.0.0.1/callback", nobody, nobody)


def _not_signed_in(pack: str) -> ToolFailed:
    return ToolFailed(
        f"nobody has signed in to the server of `{pack}`",
        hint=f"a person does it with `packhost upstream login {pack}`",
    )


def _provider(
    upstream: UpstreamSpec, kept: Kept, secrets: Mapping[str, str], redirect: str, show: Any, wait: Any
) -> OAuthClientProvider:
    oauth = upstream.oauth
    assert oauth is not None
    wanted = OAuthClientMetadata(
        client_name="packhost",
        redirect_uris=[redirect],  # type: ignore[list-item]
        grant_types=["authorization_code", "refresh_token"],
        response_types=["code"],
        token_endpoint_auth_method="client_secret_post" if oauth.client_secret else "none",
    )
    return OAuthClientProvider(upstream.url or "", wanted, kept, show, wait)


async def log_in(
    pack: str, upstream: UpstreamSpec, state: Path, resolve: Callable[[str], str], show: Callable[[str], None]
) -> str:
    """Have a person sign in to a pack's server; `show` gets the address to open. Gives the server's name.

    Raises `ToolFailed` when it comes to nothing, `ConfigInvalid` for a server that wants no such thing.
    """
    if upstream.url is None or upstream.oauth is None:
        raise ConfigInvalid(
            f"the server of `{pack}` is not one to sign in to", hint="write `auth: oauth` in its `upstream`"
        )
    secrets = {name: resolve(name) for name in upstream.secrets}
    kept = Kept(state, pack, upstream.url)
    kept.forget()
    async with _listening() as (redirect, answered):
        await _known_client(upstream, kept, secrets, redirect)

        async def open_(url: str) -> None:
            show(url)

        provider = _provider(upstream, kept, secrets, redirect, open_, lambda: answered)
        headers = filled(tuple(upstream.headers.items()), dict(secrets))
        try:
            async with asyncio.timeout(PATIENCE):
                name = await _greeted(upstream, provider, headers)
        except (Gone, RpcError, NotSpoken, OAuthFlowError, TimeoutError) as error:
            raise ToolFailed(
                f"signing in to the server of `{pack}` came to nothing: {error}", hint=""
            ) from None
    if not kept.there:
        raise ToolFailed(
            f"the server of `{pack}` let anybody in: nobody had to sign in", hint="take `auth` out"
        )
    return name


async def _known_client(
    upstream: UpstreamSpec, kept: Kept, secrets: Mapping[str, str], redirect: str
) -> None:
    """Use the id that the manifest names, where it names one."""
    oauth = upstream.oauth
    if oauth is None or oauth.client_id is None:
        return
    secret = filled((("", oauth.client_secret),), dict(secrets))[""] if oauth.client_secret else None
    known = OAuthClientInformationFull(
        client_id=oauth.client_id,
        client_secret=secret,
        redirect_uris=[redirect],  # type: ignore[list-item]
        token_endpoint_auth_method="client_secret_post" if secret else "none",
    )
    await kept.set_client_info(known)


class _Nobody:
    """Serves a server nothing: it is only greeted."""

    async def answer(self, method: str, params: Mapping[str, Any], peer: Peer) -> Mapping[str, Any]:
        raise RpcError(-32601, "not served")

    def told(self, method: str, params: Mapping[str, Any], peer: Peer) -> None:
        pass

    def lost(self, peer: Peer, reason: str) -> None:
        pass


async def _greeted(upstream: UpstreamSpec, auth: httpx2.Auth, headers: Mapping[str, str]) -> str:
    peer: Peer
    way = Remote(
        upstream.url or "",
        headers,
        auth,
        events=upstream.transport == "sse",
        peer=lambda: peer,
    )
    peer = Peer(way.post, _Nobody())
    try:
        # the handshake itself waits for the person: greeted in the era that has no limit of its own on it
        era: Era = "modern" if upstream.era == "modern" else "legacy"
        session = await greet(peer, era, asks=False, over_http=True)
        return str(session.server.get("name") or upstream.url)
    except Gone:
        if isinstance(way.error, OAuthFlowError | PackhostError):
            raise way.error from None
        raise
    finally:
        await way.close()


@asynccontextmanager
async def _listening() -> AsyncIterator[tuple[str, asyncio.Future[AuthorizationCodeResult]]]:
    """A port of this machine's own that the browser is sent back to, and what it brings."""
    answered: asyncio.Future[AuthorizationCodeResult] = asyncio.get_running_loop().create_future()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            line = (await asyncio.wait_for(reader.readline(), 10.0)).decode("latin-1")[:_LONGEST]
            target = urlsplit(line.split(" ")[1] if line.count(" ") == 2 else "")
            asked = {name: values[0] for name, values in parse_qs(target.query).items()}
            said, status = "There is nothing here.", "404 Not Found"
            if target.path == _PATH and ("code" in asked or "error" in asked):
                said, status = "You can close this page.", "200 OK"
                _settle(answered, asked)
            page = _PAGE.format(html.escape(said)).encode()
            head = f"HTTP/1.1 {status}\r\ncontent-type: text/html\r\ncontent-length: {len(page)}\r\n"
            writer.write(f"{head}connection: close\r\n\r\n".encode() + page)
            await writer.drain()
        except (OSError, TimeoutError, ValueError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}{_PATH}", answered
    finally:
        server.close()
        answered.cancel()


def _settle(answered: asyncio.Future[AuthorizationCodeResult], asked: Mapping[str, str]) -> None:
    if answered.done():
        return
    if "code" not in asked:
        answered.set_exception(OAuthFlowError(f"the server's authority says `{asked['error'][:100]}`"))
        return
    result = AuthorizationCodeResult(code=asked["code"], state=asked.get("state"), iss=asked.get("iss"))
    answered.set_result(result)
