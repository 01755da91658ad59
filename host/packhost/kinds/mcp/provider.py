"""Resources and prompts of an upstream server, passed on where its manifest allows it.

Prompts and templates are listed as they were accepted, so that nothing is started for a list; resources
change with a server's data, and are those that it named when it was last asked.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

from packhost.characters import visible
from packhost.errors import NotFound, PackhostError, ToolFailed
from packhost.kinds.assets import SCHEME
from packhost.kinds.context import CallContext
from packhost.kinds.mcp.connecting import level_of
from packhost.kinds.mcp.peer import Gone, NoAnswer, RpcError
from packhost.kinds.mcp.upstream import Upstream
from packhost.kinds.providing import Part, Provider
from packhost.manifest.upstream import scope_of
from packhost.rules.scopes import Scope, parse_scope
from packhost.sandbox.level import Enforcement

_NOT_FOUND: Final = -32002


class UpstreamProvider(Provider):
    """What one pack's server has beside its tools."""

    untrusted = True

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream
        spec = upstream.spec
        parts: list[Part] = ["resources"]  # what packhost kept of a large result is always one
        if spec.prompts == "allow":
            parts.append("prompts")
        self.serves = frozenset(parts)
        self._open = spec.resources == "allow"

    @property
    def enforcement(self) -> Enforcement:
        """How strongly the server is held to what was granted."""
        return level_of(self._upstream.spec, self._upstream.proof)

    @property
    def scopes(self) -> tuple[Scope, ...]:
        """What reaching the server needs."""
        spec = self._upstream.spec
        lines = [f"secret {name}" for name in spec.secrets]
        if spec.url is not None:
            lines.append(scope_of(spec.url))
        return tuple(parse_scope(line) for line in lines)

    async def resources(self) -> Sequence[Mapping[str, Any]]:
        """Those that the server last named; asked for behind the scenes."""
        return self._upstream.named_resources() if self._open else ()

    async def templates(self) -> Sequence[Mapping[str, Any]]:
        """Those that were accepted, and that the server still defines so as far as is known."""
        return self._accepted("template") if self._open else ()

    async def prompts(self) -> Sequence[Mapping[str, Any]]:
        """The same for prompts."""
        return self._accepted("prompt") if "prompts" in self.serves else ()

    def owns(self, uri: str) -> bool:
        """What packhost kept of its results, and what its results linked to."""
        return uri.startswith(SCHEME) or (self._open and uri in self._upstream.linked)

    async def read(self, uri: str, context: CallContext) -> Mapping[str, Any]:
        """A resource, from the server, or what packhost kept."""
        if uri.startswith(SCHEME):
            return await _kept(uri, context)
        if not self._open:
            raise NotFound(f"there is no resource `{uri}`", hint="")
        return await self._asked("resources/read", {"uri": uri}, f"the resource `{visible(uri)[:200]}`")

    async def subscribe(self, uri: str) -> None:
        """Have the server tell when the resource changes; it hears of it once it runs."""
        try:
            await self._watch(uri, "resources/subscribe")
        finally:
            self._upstream.news.wanted.add(uri)

    async def unsubscribe(self, uri: str) -> None:
        """Nobody wants to know any more."""
        self._upstream.news.wanted.discard(uri)
        await self._watch(uri, "resources/unsubscribe")

    async def prompt(
        self, name: str, arguments: Mapping[str, str], context: CallContext
    ) -> Mapping[str, Any]:
        """A prompt from the server, filled in; one that is not what was accepted is `PACK_CHANGED`."""
        await self._upstream.ready()
        self._upstream.definitions.check_prompt(name)
        params = {"name": name, "arguments": dict(arguments)}
        return await self._asked("prompts/get", params, f"the prompt `{visible(name)[:200]}`")

    async def complete(
        self,
        reference: Mapping[str, Any],
        argument: Mapping[str, str],
        given: Mapping[str, str],
        context: CallContext,
    ) -> Mapping[str, Any]:
        """How the server would go on with an argument; nothing where it does not say."""
        session = await self._upstream.ready()
        if not session.offers("completions"):
            return {"values": []}
        params: dict[str, Any] = {"ref": dict(reference), "argument": dict(argument)}
        if given:
            params["context"] = {"arguments": dict(given)}
        result = await self._asked("completion/complete", params, "a completion")
        found = result.get("completion")
        values = found.get("values") if isinstance(found, Mapping) else None
        return {"values": [str(one) for one in values][:100] if isinstance(values, list) else []}

    def _accepted(self, group: str) -> list[Mapping[str, Any]]:
        return self._upstream.definitions.accepted_of(group)

    async def _asked(self, method: str, params: Mapping[str, Any], what: str) -> dict[str, Any]:
        try:
            result = await self._answered(method, params)
        except NoAnswer as error:
            raise ToolFailed(
                f"the server of `{self._upstream.pack.id}` did not answer: {error.message}",
                hint=self._upstream.hint,
            ) from None
        except RpcError as error:
            words = " ".join(visible(error.message[:2_000]).split())[:300]
            if error.code == _NOT_FOUND:
                raise NotFound(f"the server of `{self._upstream.pack.id}` has not {what}", hint="") from None
            raise ToolFailed(
                f"the server of `{self._upstream.pack.id}` refused {what}, in its own words: «{words}»"
            ) from None
        except Gone as gone:
            raise ToolFailed(f"the server of `{self._upstream.pack.id}` was lost: {gone.reason}") from None
        if result.get("resultType") == "input_required":
            raise ToolFailed(f"{what} wants a person's input first, which only a tool may")
        return {key: one for key, one in result.items() if key not in ("_meta", "resultType")}

    async def _answered(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        session = await self._upstream.ready()
        try:
            return await session.request(method, params)
        except NoAnswer as error:
            if not error.session_lost:
                raise
        await self._upstream.drop(session)
        return await (await self._upstream.ready()).request(method, params)

    async def _watch(self, uri: str, method: str) -> None:
        with contextlib.suppress(RpcError, Gone, PackhostError):
            async with asyncio.timeout(self.timeout):
                session = await self._upstream.ready()
                if session.modern:
                    (session.watched.add if method.endswith("/subscribe") else session.watched.discard)(uri)
                    session.listen()
                else:
                    await session.request(method, {"uri": uri})


async def _kept(uri: str, context: CallContext) -> Mapping[str, Any]:
    if context.host is None:
        raise NotFound(f"there is nothing behind `{uri[:80]}` here", hint="")
    asset = await context.host.assets.open(uri, session_id=context.session_id, principal=context.principal)
    held: dict[str, Any] = {"uri": uri, "mimeType": asset.media_type}
    if asset.media_type.startswith("text/") or asset.media_type == "application/json":
        held["text"] = base64.b64decode(asset.base64).decode("utf-8", "replace")
    else:
        held["blob"] = asset.base64
    return {"contents": [held]}
