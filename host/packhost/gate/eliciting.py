"""Questions to a person from the middle of a call: put by any channel, checked, handed back to whoever asked.

What asks is a tool, or a server that a tool speaks to. Its words are shown and decide nothing; what a person
enters is held to the form as it was asked, and approves nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Literal
from urllib.parse import urlsplit

import anyio

from packhost.errors import Conflict, InvalidInput, PackhostError
from packhost.gate.approve import unattended
from packhost.gate.configuration import Terms
from packhost.gate.context import GateContext
from packhost.gate.display import as_text, label, one_line, quoted, shorten
from packhost.gate.questions import PREFIX, Questions
from packhost.gate.types import Asker, Prompt
from packhost.kinds.eliciting import Elicitation, Elicited
from packhost.manifest.schemas import schema_fault
from packhost.names import new_id
from packhost.store.base import Store
from packhost.store.ops import questions
from packhost.store.ops.questions import NewQuestion, QuestionRow
from packhost.workspace.redaction import redact_json

REASON: Final = "mcp_elicitation"
"""Why a run that waits for such an answer waits."""
PAUSES: Final = 3
"""Questions of one call without getting on; one more fails it."""
MOST_FIELDS: Final = 50
LONGEST: Final = 8_000
"""Characters of a message."""
_TRIES: Final = 3
"""How often a client is asked again whose answer does not fit the form."""
_LINK: Final[Mapping[str, Any]] = {"type": "object", "properties": {}}
_LINKS: Final = re.compile(r"[\x21-\x5b\x5d-\x7e]+")
_HOST: Final = re.compile(r"[a-z0-9._-]+|[0-9a-f:.]+")
"""What every browser takes for the same host as whoever reads it; another name is written as `xn--`."""
_TOP: Final = frozenset({"$schema", "type", "properties", "required", "title", "description"})
_ANY: Final = frozenset({"type", "title", "description", "default"})
_WORDS: Final[Mapping[str, frozenset[str]]] = {
    "string": frozenset({"enum", "enumNames", "oneOf", "minLength", "maxLength", "pattern", "format"}),
    "number": frozenset({"minimum", "maximum"}),
    "integer": frozenset({"minimum", "maximum"}),
    "boolean": frozenset(),
    "array": frozenset({"items", "minItems", "maxItems", "uniqueItems"}),
}
_ITEMS: Final = frozenset({"type", "enum", "anyOf", "oneOf"})


class Eliciting:
    """Puts the questions of calls that are under way."""

    def __init__(self, store: Store, terms: Callable[[], Terms], asked: Questions) -> None:
        self._store = store
        self._terms = terms
        self._questions = asked

    async def ask(self, context: GateContext, wanted: Elicitation) -> Elicited:
        """What a person answers; `cancel` where nobody can be asked or nobody answered.

        Raises `InvalidInput` for a question that cannot be put, and `PackhostError` (`LIMIT_EXCEEDED`) after
        `PAUSES` questions in which the call did not get on.
        """
        if (fault := next(_faults(wanted), None)) is not None:
            asks = wanted.asks or context.tool
            raise InvalidInput(f"`{asks}` asks what cannot be put to a person: {fault}", hint="")
        if context.pauses >= PAUSES:
            raise PackhostError(
                f"`{context.tool}` asked a person {PAUSES} times and did not get on",
                code="LIMIT_EXCEEDED",
                hint="have the person finish it with the server itself, then make the call again",
            )
        context.pauses += 1
        number = context.asked = context.asked + 1
        caller, terms = context.caller, self._terms()
        alone = terms.unattended == "reject" and unattended(context.asker, caller)
        if alone or caller.subagent is not None:
            return Elicited("cancel")
        row = await self._store.write(questions.ask, self._new(context, wanted, terms))
        try:
            return await self._wait(context, row, wanted.url, number)
        except anyio.get_cancelled_exc_class():
            self._store.post(questions.withdraw, row.id, "host")
            raise

    def _new(self, context: GateContext, wanted: Elicitation, terms: Terms) -> NewQuestion:
        caller, tool, id = context.caller, context.subject, new_id(PREFIX)
        form = dict(wanted.schema or _LINK)
        message = shorten(wanted.message, LONGEST)
        asked: dict[str, Any] = {"message": message, "server_name": wanted.asks or tool.id.pack}
        if wanted.url is None:
            asked |= {"mode": "form", "requested_schema": form}
        else:
            asked |= {"mode": "url", "url": wanted.url}
        told = {
            "tool": tool.id.canonical,
            "tool_call_id": context.tool_use_id,
            "await_reason": REASON,
            "elicitation": asked,
            "pause_count": context.pauses,
        }
        return NewQuestion(
            id=id,
            session_id=caller.session_id,
            principal=caller.principal,
            client=caller.client,
            tool=tool.id.canonical,
            tool_version=tool.version,
            binding=f"{context.call_id}:{id}",
            prompt=context.redact("\n".join(_lines(context, wanted, message, id))),
            message=context.redact(message),
            schema_json=as_text(redact_json(form, context.redact)),
            expires_at=self._store.now() + terms.timeout,
            told=redact_json(told, context.redact),
            run_id=caller.run_id if not context.direct else None,
            tool_use_id=context.tool_use_id,
        )

    async def _wait(self, context: GateContext, row: QuestionRow, url: str | None, number: int) -> Elicited:
        """Ask through the caller's own channel and follow the record: whichever ends first."""
        found: list[Elicited] = []
        async with anyio.create_task_group() as group:

            async def follow() -> None:
                found.append(await self._follow(context, row.id, number))
                group.cancel_scope.cancel()

            async def ask(by: Asker) -> None:
                if await self._put(by, row, url, runs=not context.direct):
                    await self._close(row.id, "cancel", None, "", "")

            group.start_soon(follow)
            if context.asker is not None:
                group.start_soon(ask, context.asker)
            elif context.direct:
                await self._close(row.id, "cancel", None, "", "")
        return found[0]

    async def _follow(self, context: GateContext, id: str, number: int) -> Elicited:
        with self._store.watch(f"question:{id}") as watch:
            while True:
                row = self._store.read(questions.get, id)
                if row.status == "accepted":
                    by = context.call_id if number == 1 else f"{context.call_id}.{number}"
                    await self._store.write(questions.use, id, row.binding, by)
                    return Elicited("accept", row.content)
                if row.status != "pending":
                    return Elicited("decline" if row.status == "declined" else "cancel")
                left = row.expires_at - self._store.now()
                if left <= 0:
                    await self._store.write(questions.expire_due)
                    continue
                with anyio.move_on_after(left):
                    await watch.changed()

    async def _put(self, asker: Asker, row: QuestionRow, url: str | None, *, runs: bool) -> bool:
        """Put the question; whether it is over without an answer. A run's stays open for other channels."""
        prompt = Prompt(row.id, row.tool, row.prompt, row.expires_at, True, row.schema, url)
        for _ in range(_TRIES):
            answer = await asker.ask(prompt)
            if answer.verdict in ("deferred", "unanswered"):
                return not runs
            action: Any = "accept" if answer.verdict == "approve" else answer.reason or "decline"
            content = None if url is not None else answer.content
            if await self._close(row.id, action, content, answer.by, answer.channel):
                return False
        return not runs

    async def _close(
        self,
        id: str,
        action: Literal["accept", "decline", "cancel"],
        content: Mapping[str, Any] | None,
        by: str,
        channel: str,
    ) -> bool:
        """Record an answer; `False` for one that does not fit the form."""
        try:
            await self._questions.answer(id, action, content, by=by or "host", channel=channel or "host")
        except InvalidInput:
            return False
        except Conflict:
            return True  # answered elsewhere first
        return True


def fault_of(wanted: Elicitation) -> str | None:
    """Why a question cannot be put; `None` for one that can."""
    return next(_faults(wanted), None)


def _faults(wanted: Elicitation) -> Iterator[str]:
    """Why a question cannot be put."""
    if (wanted.schema is None) == (wanted.url is None):
        yield "it has to have either a form or a link"
    elif wanted.url is not None:
        yield from _link_faults(wanted.url)
    elif wanted.schema is not None:
        yield from _form_faults(wanted.schema)


def _link_faults(url: str) -> Iterator[str]:
    try:
        parts = urlsplit(url)
        host = parts.hostname
    except ValueError:
        host = None
    plain = host is not None and _LINKS.fullmatch(url) and _HOST.fullmatch(host)
    if not plain or parts.scheme not in ("https", "http") or len(url) > LONGEST:
        yield "its link is no address of the web"
    elif parts.scheme == "http" and host not in ("127.0.0.1", "localhost", "::1"):
        yield "its link is not encrypted"
    elif parts.username is not None:
        yield "its link hides where it leads behind a name"


def _form_faults(schema: Mapping[str, Any]) -> Iterator[str]:
    fields, required = schema.get("properties"), schema.get("required", [])
    unknown = next((word for word in schema if word not in _TOP), None)
    if schema.get("type") != "object" or not isinstance(fields, Mapping):
        yield "its form is not an object with `properties`"
    elif len(fields) > MOST_FIELDS:
        yield f"its form has more than {MOST_FIELDS} fields"
    elif unknown is not None:
        yield f"its form has `{unknown[:40]}`, which nothing here shows"
    elif not isinstance(required, list) or not all(one in fields for one in required):
        yield "its form requires what is no field"
    else:
        for name, field in fields.items():
            yield from _field_faults(str(name)[:64], field)
        if (said := schema_fault(dict(schema))) is not None:
            yield f"its form is no schema: {said}"


def _field_faults(name: str, field: Any) -> Iterator[str]:
    words = _WORDS.get(str(field.get("type"))) if isinstance(field, Mapping) else None
    if words is None:
        yield f"the field `{name}` has no simple type"
        return
    for word, value in field.items():
        if word not in words and word not in _ANY:
            yield f"the field `{name}` has `{str(word)[:40]}`, which nothing here checks"
        elif word == "items" and not (isinstance(value, Mapping) and value.keys() <= _ITEMS):
            yield f"the field `{name}` is a list of something else than choices"


def _lines(context: GateContext, wanted: Elicitation, message: str, id: str) -> list[str]:
    tool, caller = context.subject.id.canonical, context.caller
    who = f"The server {as_text(label(wanted.asks))}" if wanted.asks else label(tool)
    run = f", in run {caller.run_id}" if caller.run_id and not context.direct else ""
    lines = [
        f"{who} asks for your input while {label(tool)} runs, in its own words:",
        *quoted(message),
    ]
    if wanted.url is not None:
        host = urlsplit(wanted.url).hostname or ""
        lines += [f"It asks you to open this address, of the host {one_line(host)}:", *quoted(wanted.url)]
    lines += [
        f"Called by a client that calls itself {as_text(label(caller.client))} (its own label, no proof), "
        f"for {one_line(caller.principal)}{run}.",
        f"Question {id}: what you enter goes there and to its record; it approves nothing. "
        "Decline to give nothing.",
    ]
    return lines
