"""What packs have beside their tools: whose it is, what of it may be shown, and its way through the gate."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import anyio
from mcp import MCPError, types
from mcp.server.context import ServerRequestContext
from pydantic import BaseModel, ValidationError

from packhost.errors import PackhostError
from packhost.gate.types import Caller, CallRequest, Completed, Deferred, Refusal
from packhost.kinds.base import Tool
from packhost.kinds.providing import Part, Provider, Provision
from packhost.kinds.untrusted import envelope
from packhost.server.admission import Admission
from packhost.server.asking import came_back, choose, put_question, round_of
from packhost.server.callers import identify, is_modern
from packhost.server.channel import Channel
from packhost.server.demands import raised
from packhost.server.host import ServerHost
from packhost.server.inputs import CODE, Inputs, inputs_of
from packhost.server.paging import page
from packhost.server.reaching import ways_of
from packhost.server.wire import call_meta, refusal_of

_log = logging.getLogger(__name__)

REFUSED: Final = -32010
"""The JSON-RPC error of a call that was refused; its data has the refusal."""
LEGACY_MISSING: Final = -32002
"""What 2025-11-25 and before say of a resource that there is not."""
LIST_TIMEOUT: Final = 5.0
"""Seconds that one pack's list may take; until it comes, its last one stands."""
MAX_LISTED: Final = 10_000
"""Entries of one pack's list that are shown."""
_ENTRY_LIMIT: Final = 65_536
_WARNINGS: Final = 1000

Context = ServerRequestContext[Any, Any]
Model = TypeVar("Model", bound=BaseModel)
_LISTS: Final[dict[str, Part]] = {"resources": "resources", "templates": "resources", "prompts": "prompts"}
_NAMED: Final = {"resources": "uri", "templates": "uriTemplate", "prompts": "name"}
_MODELS: Final[dict[str, type[BaseModel]]] = {
    "resources": types.Resource,
    "templates": types.ResourceTemplate,
    "prompts": types.Prompt,
}
Outcome = Completed | Refusal | types.InputRequiredResult
Entries = tuple[tuple[str, dict[str, Any]], ...]


@dataclass(frozen=True, slots=True)
class Offered:
    """An entry of a list, checked, and whose it is."""

    of: Provision
    key: str
    """Its URI, its template or its name."""
    data: dict[str, Any]


class Beside:
    """The lists of every pack, kept while nothing has changed; the way of a reading through the gate."""

    def __init__(self, host: ServerHost, admission: Admission) -> None:
        self._host = host
        self._admission = admission
        self._inputs = Inputs(host)
        self._warned: set[str] = set()
        self._last: dict[tuple[str, str], tuple[Provider, Entries]] = {}

    @property
    def any(self) -> bool:
        """Whether a pack has any."""
        return bool(self._host.provisions)

    def provision(self, pack: str, part: Part) -> Provision | None:
        """What a pack provides of that part."""
        found = self._host.provisions.get(pack)
        return found if found is not None and found.offers(part) else None

    async def listed(self, what: str) -> list[Offered]:
        """Every pack's `resources`, `templates` or `prompts`, asked for anew."""
        async with anyio.create_task_group() as tasks:
            for one in self._host.provisions.values():
                if one.offers(_LISTS[what]):
                    tasks.start_soon(self._fetch, one, what)
        return self._standing(what)

    def _standing(self, what: str) -> list[Offered]:
        """The lists as they last were; of a URI that two packs name, the first's."""
        taken: set[str] = set()
        out = []
        for one in self._host.provisions.values():
            provider, entries = self._last.get((one.pack.id, what), (None, ()))
            for key, data in entries if provider is one.provider and one.offers(_LISTS[what]) else ():
                if what == "prompts" or key not in taken:
                    taken.add(key)
                    out.append(Offered(one, key, data))
                else:
                    self._warn(f"`{one.pack.id}` names `{key}`, which is another pack's")
        return out

    async def _fetch(self, one: Provision, what: str) -> None:
        try:
            with anyio.fail_after(LIST_TIMEOUT):
                given = await getattr(one.provider, what)()
        except Exception as error:  # a pack's own code or an upstream: the others' lists go on
            self._warn(f"the {what} of `{one.pack.id}` are not to be had: {_line(error) or 'no answer'}")
            return
        self._last[one.pack.id, what] = (one.provider, tuple(self._checked(one, what, given)))

    def _checked(
        self, one: Provision, what: str, given: Sequence[Mapping[str, Any]]
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        for data in list(given)[:MAX_LISTED]:
            try:
                text = self._host.redact(json.dumps(data))
                if len(text) > _ENTRY_LIMIT:
                    raise ValueError("it is too long")
                entry = _MODELS[what].model_validate_json(text)
            except (ValueError, TypeError) as error:
                self._warn(f"one of the {what} of `{one.pack.id}` is left out: {_line(error)}")
                continue
            clean = entry.model_dump(by_alias=True, mode="json", exclude_none=True)
            yield clean[_NAMED[what]], clean

    def _warn(self, text: str) -> None:
        """Log it once: lists are asked for often."""
        if text not in self._warned and len(self._warned) < _WARNINGS:
            self._warned.add(text)
            _log.warning("%s", text)

    async def owner(self, uri: str) -> Provision | None:
        """Whose a URI is: by its list, then by a template, then by the packs' own word."""
        for listed in (self._standing("resources"), None):
            entries = await self.listed("resources") if listed is None else listed
            if found := next((one.of for one in entries if one.key == uri), None):
                return found
        for one in await self.listed("templates"):
            if matches(one.key, uri):
                return one.of
        every = self._host.provisions.values()
        return next((p for p in every if p.offers("resources") and p.provider.owns(uri)), None)

    def may(self, caller: Caller, tool: Tool, arguments: Mapping[str, Any]) -> bool:
        """Whether such a call would be let through, perhaps by a person."""
        request = CallRequest(tool.id.canonical, arguments, caller, inline=tool)
        return self._host.gate.explain(request).verdict != "refuse"

    def caller(self, ctx: Context) -> Caller:
        """Who asks."""
        return identify(ctx, self._host.principal)

    async def call(
        self, ctx: Context, params: Any, tool: Tool, arguments: Mapping[str, Any]
    ) -> Completed | types.InputRequiredResult:
        """A governed call; raises `MCPError` with the refusal."""
        try:
            if not self._admission.open:
                raise refused(self._admission.refusal(), ctx)
            with self._admission:
                outcome = await self._asking(ctx, params, tool, arguments)
        except PackhostError as error:
            raise refused(refusal_of(error), ctx, uri=arguments.get("uri")) from None
        if isinstance(outcome, Refusal):
            raise refused(outcome, ctx, uri=arguments.get("uri"))
        return outcome

    async def _asking(self, ctx: Context, params: Any, tool: Tool, arguments: Mapping[str, Any]) -> Outcome:
        async def make(ctx: Context, params: Any) -> Outcome:
            return await self._governed(ctx, params, tool, arguments)

        if not hasattr(params, "request_state"):  # a completion has no way to carry a question
            return await make(ctx, params)
        return await self._inputs.serve(
            ctx, params, tool.id.canonical, make, _wanted, lambda refusal: refusal
        )

    async def _governed(self, ctx: Context, params: Any, tool: Tool, arguments: Mapping[str, Any]) -> Outcome:
        caller = raised(ctx, self.caller(ctx))
        channel = Channel(ctx)
        carries = hasattr(params, "request_state")
        round = round_of(params.request_state if carries else None)
        came = came_back(params, round) if carries else (None, None)
        ways = ways_of(ctx, lambda: self._host.console)
        asker = choose(ctx, channel, ways, round, came, by=caller.principal, hold=self._host.hold)
        progress = channel.report if channel.wanted else None
        inputs = inputs_of(params)
        request = CallRequest(tool.id.canonical, arguments, caller, progress, inline=tool, inputs=inputs)
        outcome = await self._host.gate.call(request, asker if carries else None)
        if isinstance(outcome, Deferred):
            prompt = outcome.prompt
            after = round.next(prompt.approval_id, nested=prompt.nested)
            return put_question(prompt, ways, after, opened=came[1] == prompt.approval_id)
        if (
            isinstance(outcome, Completed)
            and channel.limit is not None
            and len(json.dumps(outcome.value)) > channel.limit
        ):
            return Refusal(
                "OUTPUT_TOO_LARGE",
                f"the answer is more than the {channel.limit} bytes that an event of this connection carries",
                "connect over stdio, which has no such limit",
                call_id=outcome.call_id,
            )
        return outcome


def _wanted(outcome: Outcome) -> Refusal | None:
    return outcome if isinstance(outcome, Refusal) and outcome.code == CODE else None


def answer(outcome: Completed, model: type[Model], ctx: Context) -> Model:
    """What came of a call, as MCP says it; raises `MCPError` for what does not have that shape."""
    try:
        found = model.model_validate({**outcome.value, "_meta": None})
    except (ValidationError, TypeError) as error:
        raise refused(
            Refusal(
                "OUTPUT_INVALID",
                f"the answer does not have the protocol's shape: {_line(error)}",
                "tell the pack's author",
                call_id=outcome.call_id,
            ),
            ctx,
        ) from None
    return found.model_copy(update={"meta": {**(outcome.value.get("_meta") or {}), **call_meta(outcome)}})


def refused(refusal: Refusal, ctx: Context, *, uri: str | None = None) -> MCPError:
    """A refusal as the JSON-RPC error that a client reads, with the whole of it as data."""
    code = REFUSED
    if refusal.code in ("INVALID_INPUT", "NOT_FOUND"):
        old = refusal.code == "NOT_FOUND" and uri is not None and not is_modern(ctx)
        code = LEGACY_MISSING if old else types.INVALID_PARAMS
    data = {"packhost/refusal": refusal.as_json()}
    return MCPError(code=code, message=refusal.text, data=data if uri is None else {**data, "uri": uri})


def missing(what: str, name: str, ctx: Context) -> MCPError:
    """There is no such thing, or nobody may know of it."""
    refusal = Refusal("NOT_FOUND", f"there is no {what} `{name[:200]}`", "list them to see what there is")
    return refused(refusal, ctx, uri=name if what == "resource" else None)


def page_of(entries: Sequence[Offered], cursor: str | None) -> tuple[Sequence[Offered], str | None]:
    """A page of a list, and the cursor of the next one."""
    return page(entries, cursor, lambda one: f"{one.of.pack.id} {one.key}")


def marked(text: str, of: Provision) -> str:
    """A text, between marks where nobody vouches for it."""
    return envelope(text) if of.provider.untrusted else text


def matches(template: str, uri: str) -> bool:
    """Whether a URI is one of a template's."""
    from mcp.shared.uri_template import InvalidUriTemplate, UriTemplate  # not before the first reading

    try:
        return UriTemplate.parse(template).match(uri) is not None
    except (InvalidUriTemplate, ValueError):
        return False


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]
