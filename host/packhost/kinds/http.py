"""The kind `http`: a tool that is one HTTP request, put together from templates and sent by the host."""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.to_thread

from packhost.errors import ConfigInvalid, PackhostError
from packhost.kinds.assets import AssetService
from packhost.kinds.base import Tool
from packhost.kinds.context import CallContext
from packhost.kinds.conversation import Redacting
from packhost.kinds.egress import MAX_REDIRECTS, Limits, Outgoing, Resolve, exchange, system_resolve
from packhost.kinds.http_checks import http_problems
from packhost.kinds.http_config import Prepared, describe, prepare
from packhost.kinds.http_results import PASSING, content_type, failure_of, is_binary, retry_after, value_of
from packhost.kinds.identity import Claims, Identity
from packhost.kinds.reply import FetchReply
from packhost.kinds.templates import Values
from packhost.manifest.model import ToolSpec
from packhost.sandbox.level import Enforcement
from packhost.workspace.redaction import Redactor

FIRST_WAIT: Final = 0.2
"""Seconds before a call is made again where the server does not say; doubled each time."""
_UNKNOWN: Final = "whether it had effects is unknown: look before you call it again"
_KEPT: Final = 1024


class HttpKind:
    """Sends requests for tools of every pack; nothing of a pack's own runs."""

    name = "http"

    def __init__(
        self,
        *,
        tenant: Callable[[], str] = str,
        identity: Identity | None = None,
        resolve: Resolve = system_resolve,
        tls: ssl.SSLContext | None = None,
        pause: Callable[[float], Awaitable[None]] = anyio.sleep,
    ) -> None:
        """`tenant` says whom calls are made for, `identity` signs that; without it no tool can ask for it."""
        self._tenant = tenant
        self._identity = identity
        self._resolve = resolve
        self._tls = tls
        self._pause = pause
        self._prepared: dict[str, tuple[ToolSpec, Prepared]] = {}

    def check(self, spec: ToolSpec, folder: Path | None = None) -> list[str]:
        """What is wrong with a tool's `config` and scopes, a sentence each."""
        return list(http_problems(spec))

    def enforcement(self, tool: Tool) -> Enforcement:
        """`host`: it is packhost's own code that runs, for every pack."""
        return "host"

    def describe(self, spec: ToolSpec) -> str:
        """Method, URL as declared and secrets by name; see `Describing`."""
        return describe(spec)

    async def run(self, tool: Tool, arguments: dict[str, Any], context: CallContext) -> Any:
        """Send the request; the reply's JSON or text. See `Kind.run`.

        :raises PackhostError: `TOOL_FAILED` with the status for any but a 2xx, `EFFECTS_UNKNOWN` when a
            request that is not idempotent was sent and nobody knows what became of it.
        """
        ready = self._ready(tool)
        values, added = await self._values(ready, tool, arguments, context)
        filled = ready.fill(values)
        request = Outgoing(
            filled.target, ready.config.method, {"user-agent": "packhost", **filled.headers}, filled.body
        )
        host = filled.target.authority
        try:
            reply = await self._answered(request, ready, tool, context)
        except PackhostError as error:
            if error.data.get("sent") and not tool.spec.idempotent and error.code != "OUTPUT_TOO_LARGE":
                raise PackhostError(error.message, code="EFFECTS_UNKNOWN", hint=_UNKNOWN) from None
            raise

        def clean(text: str) -> str:
            return _cleaned(text, context, added)

        if 200 <= reply.status < 300:
            if context.host is not None and is_binary(reply, ready.config.response):
                return await _kept(reply, context.host.assets, context, clean)
            return value_of(reply, host, ready.config.response, clean)
        raise failure_of(
            reply, host, unsure=not tool.spec.idempotent, quote=not tool.spec.untrusted_output, clean=clean
        )

    async def preview(self, tool: Tool, arguments: dict[str, Any], context: CallContext) -> str:
        """The request as it would be sent, with secrets and what the host fills in by name."""
        hidden = dict.fromkeys(tool.spec.hidden_parameters, "[REDACTED]")
        try:
            return self._ready(tool).shown({**arguments, **hidden})
        except PackhostError as error:
            return f"it would not be sent: {error.message}"

    async def close(self) -> None:
        """Nothing is kept open between calls."""

    def _ready(self, tool: Tool) -> Prepared:
        kept = self._prepared.get(tool.id.canonical)
        if kept is None or kept[0] is not tool.spec:
            if len(self._prepared) >= _KEPT:
                self._prepared.clear()
            kept = self._prepared[tool.id.canonical] = (tool.spec, prepare(tool.spec))
        return kept[1]

    async def _values(
        self, ready: Prepared, tool: Tool, arguments: Mapping[str, Any], context: CallContext
    ) -> tuple[Values, tuple[str, ...]]:
        """What is put in, and what of it only this call knows and nobody may read."""
        # A secret's source may be a file or a command: it holds up neither other calls nor this one's end.
        secrets = {
            name: await anyio.to_thread.run_sync(context.secret, name, abandon_on_cancel=True)
            for name in ready.secrets
        }
        host = {"_tenant.id": context.tenant or self._tenant(), "_endUser.id": context.principal}
        given = ready.given(arguments)
        if not ready.needs_identity:
            return Values(given, secrets, host), ()
        if self._identity is None:
            raise ConfigInvalid(
                "this host signs no identity assertions", hint="call it through `packhost serve`"
            )
        origin = ready.target(Values(given, secrets, host))
        claims = Claims(
            audience=f"{'https' if origin.secure else 'http'}://{origin.authority}",
            subject=context.principal,
            tenant=host["_tenant.id"],
            tool=tool.id.canonical,
            call_id=context.call_id,
            session_id=context.session_id,
        )
        token = await anyio.to_thread.run_sync(self._identity.token, claims)
        return Values(given, secrets, {**host, "_identity.token": token}), (token,)

    async def _answered(
        self, request: Outgoing, ready: Prepared, tool: Tool, context: CallContext
    ) -> FetchReply:
        """The reply, after as many attempts as the tool allows and the time that is left holds."""
        wait = FIRST_WAIT
        for left in range(ready.retries, -1, -1):
            failed: PackhostError | None = None
            reply: FetchReply | None = None
            asked = None
            try:
                reply = await self._attempt(request, ready, tool, context)
                asked = retry_after(reply)
            except PackhostError as error:
                failed = error
            again = reply.status in PASSING if reply else failed is not None and failed.data.get("passing")
            pause = wait if asked is None else asked
            if not left or not again or anyio.current_time() + pause >= anyio.current_effective_deadline():
                break
            await self._pause(pause)
            wait *= 2
        if reply is None:
            assert failed is not None
            raise failed
        return reply

    async def _attempt(
        self, request: Outgoing, ready: Prepared, tool: Tool, context: CallContext
    ) -> FetchReply:
        config = ready.config
        patience = config.timeout or tool.spec.timeout
        limits = Limits(
            patience,
            config.max_response_bytes,
            MAX_REDIRECTS if config.follow_redirects else 0,
            inflate=True,
        )
        bounded: AbstractContextManager[object] = (
            nullcontext() if config.timeout is None else anyio.fail_after(config.timeout)
        )
        try:
            with bounded:
                return await exchange(request, context.layers, limits, resolve=self._resolve, tls=self._tls)
        except TimeoutError:
            raise PackhostError(
                f"`{request.target.authority}` did not answer within {patience:g} s",
                code="TOOL_TIMEOUT",
                hint="ask for less, or raise `config.timeout`",
                sent=True,
                passing=True,
            ) from None


def _cleaned(text: str, context: CallContext, added: tuple[str, ...]) -> str:
    """A whole text without any secret, nor what was made for this call alone."""
    if isinstance(context, Redacting):
        stream = context.redacting()
        text = stream.feed(text) + stream.finish()
    if added:
        own = Redactor()
        for value in added:
            own.add(value)
        text = own.redact(text)
    return text


async def _kept(
    reply: FetchReply, assets: AssetService, context: CallContext, clean: Callable[[str], str]
) -> dict[str, Any]:
    """A body that is neither JSON nor text, kept by the host: the handle, and what is behind it."""
    text = reply.body.decode("utf-8", "surrogateescape")
    cleaned = clean(text)
    data = reply.body if cleaned == text else cleaned.encode("utf-8", "surrogateescape")
    kept = await assets.keep(
        data, content_type(reply)[0], session_id=context.session_id, principal=context.principal
    )
    return {"asset": kept.handle, "media_type": kept.media_type, "size": kept.size}
