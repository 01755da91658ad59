"""`fetch` as a tool's code has it: within the scopes and `network_access`, secrets put in at the last moment.

The code holds placeholders. A placeholder becomes its secret in one header of a request to the place that it
was declared for, judged anew at every redirect, and nowhere else; what comes back is redacted before the code
sees it.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

import anyio
import anyio.to_thread

from packhost.errors import InvalidInput, PackhostError, ScopeDenied, ToolFailed
from packhost.kinds.code_config import CodeConfig, CodeSecret
from packhost.kinds.context import CallContext
from packhost.kinds.egress import MAX_REDIRECTS, Limits, Outgoing, exchange, redirected
from packhost.kinds.fetch import LONGEST, FetchRequest, outgoing
from packhost.kinds.reply import FetchReply
from packhost.workspace.redaction import Redactor

MOST: Final = 100
"""Requests that one call may make."""
_ONE_WAY: Final = Limits(LONGEST, redirects=0)

Found = tuple[int, dict[str, str], bytes, str]
"""Status, headers, body and URL of a reply, as they enter the interpreter."""


class CodeEgress:
    """The requests of one call."""

    def __init__(self, config: CodeConfig, context: CallContext) -> None:
        self._config = config
        self._context = context
        own = config.network_layer
        self._layers = context.layers if own is None else (*context.layers, own)
        self.placeholders = {one.name: f"secret-{secrets.token_hex(16)}" for one in config.secrets}
        self._values: dict[str, str] = {}
        self._redactor = Redactor()
        self._made = 0
        self._going: set[anyio.CancelScope] = set()
        self.refused: PackhostError | None = None
        """The last request's refusal, which the code may have let pass."""

    async def fetch(self, url: Any, method: Any, headers: Any, body: Any) -> Found:
        """One request; what stands against it is told to the code as an exception.

        :raises RuntimeError: with the reason, safe to show.
        """
        try:
            with anyio.CancelScope() as scope:
                self._going.add(scope)
                return await self._fetch(_request(url, method, headers, body))
        except PackhostError as error:
            self.refused = error
            raise RuntimeError(error.message) from None
        finally:
            self._going.discard(scope)
        raise RuntimeError("the call is over")

    def end(self) -> None:
        """End what the code did not wait for."""
        for scope in self._going:
            scope.cancel()

    def redact(self, text: str) -> str:
        """A text without the secrets that were sent."""
        return self._redactor.redact(text)

    async def _fetch(self, asked: FetchRequest) -> Found:
        if not self._config.network:
            raise ScopeDenied(
                "this code has no network", hint="declare `config.network_access`", layer="network_access"
            )
        self._made += 1
        if self._made > MOST:
            raise PackhostError(
                f"one call makes at most {MOST} requests", code="LIMIT_EXCEEDED", hint="ask for less"
            )
        request = outgoing(asked)
        with anyio.move_on_after(LONGEST):
            for _ in range(MAX_REDIRECTS + 1):
                reply = await exchange(await self._filled(request), self._layers, _ONE_WAY)
                following = redirected(request, reply)
                if following is None:
                    return self._cleaned(reply)
                request = following
            raise ToolFailed(f"`{request.target.authority}` redirects more than {MAX_REDIRECTS} times")
        raise ToolFailed(f"`{request.target.authority}` did not answer within {LONGEST:g} s")

    async def _filled(self, request: Outgoing) -> Outgoing:
        """The request with those secrets in it that are meant for its target."""
        target, headers = request.target, dict(request.headers)
        path = urlsplit(target.path).path
        for secret in self._config.secrets:
            token = self.placeholders[secret.name]
            held = headers.get(secret.header, "")
            if token in held and secret.goes_to(target.host, target.port, path, secure=target.secure):
                headers[secret.header] = held.replace(token, await self._value(secret))
        return Outgoing(target, request.method, headers, request.body)

    async def _value(self, secret: CodeSecret) -> str:
        value = self._values.get(secret.name)
        if value is None:
            # where it comes from may be a program or a keyring, which takes its time
            value = await anyio.to_thread.run_sync(self._context.secret, secret.name)
            if not value or not (value.isascii() and value.isprintable()):
                raise ToolFailed(
                    f"the secret `{secret.name}` cannot stand in a header", hint="look at its value"
                )
            self._redactor.add(value)
            self._values[secret.name] = value
        return value

    def _cleaned(self, reply: FetchReply) -> Found:
        """The reply without the secrets that were sent, however the server sends them back."""
        if not self._redactor.active:
            return reply.status, dict(reply.headers), reply.body, reply.url
        headers = {self.redact(name): self.redact(value) for name, value in reply.headers.items()}
        text = reply.body.decode("utf-8", "surrogateescape")
        clean = self.redact(text)
        body = reply.body if clean is text else clean.encode("utf-8", "surrogateescape")
        return reply.status, headers, body, self.redact(reply.url)


def _request(url: Any, method: Any, headers: Any, body: Any) -> FetchRequest:
    """What the code asked for, which may be of any type.

    :raises InvalidInput: for what is no request.
    """
    hint = "write `await fetch(url, method='GET', headers={}, body=None, json=None)`"
    if not isinstance(url, str) or not isinstance(method, str):
        raise InvalidInput("the URL and the method of a request are texts", hint=hint)
    if not isinstance(headers, Mapping) or not all(
        isinstance(name, str) and isinstance(value, str) for name, value in headers.items()
    ):
        raise InvalidInput("the headers of a request are texts by name", hint=hint)
    if body is None or isinstance(body, bytes):
        return FetchRequest(url, method, headers, body or b"")
    if isinstance(body, str):
        return FetchRequest(url, method, headers, body.encode("utf-8", "surrogatepass"))
    raise InvalidInput("the body of a request is text or bytes", hint=hint)
