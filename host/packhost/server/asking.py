"""Ways to put a question to a person, by what the client can do."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import anyio
from mcp import MCPError, types
from mcp.server.context import ServerRequestContext
from pydantic import ValidationError

from packhost.gate.questions import PREFIX
from packhost.gate.types import Answer, Asker, Prompt
from packhost.server.callers import can_ask, can_link, is_modern
from packhost.server.channel import Channel

_log = logging.getLogger(__name__)

KEY: Final = "approve"
FORM: Final[types.ElicitRequestedSchema] = {"type": "object", "properties": {}}
"""No field at all: accepting the form alone approves."""
BEAT: Final = 3.0
"""Seconds between two reports to a client that is held."""
_ROUNDS: Final = 8
"""Questions put by `InputRequiredResult` in one call: clients stop at ten, and some may count otherwise."""
_YES: Final = frozenset({"true", "yes", "y", "1", "ok", "accept", "approve", "allow"})
_NO: Final = frozenset({"false", "no", "n", "0", "decline", "deny", "reject", "refuse", "cancel"})
UNANSWERED: Final = Answer("unanswered", channel="client")


@dataclass(frozen=True, slots=True)
class Round:
    """Where a call stands that the client makes again and again: the state that it carries, sealed."""

    number: int = 0
    subject: str | None = None
    """What was asked: an approval's id, or the digest of a change to accept."""
    flight: str | None = None
    """The call that goes on meanwhile."""
    nested: bool = False
    key: str | None = None
    """The relayed call's own, from its first round on: what ran in any of them runs in no later one."""

    @property
    def last(self) -> bool:
        """Whether the client may not come back once more."""
        return self.number >= _ROUNDS

    def next(self, subject: str, *, flight: str | None = None, nested: bool = False) -> Round:
        """The round after this one, which asks about `subject`."""
        return Round(self.number + 1, subject, flight, nested, self.key)

    def seal(self) -> str:
        """The state as text; the server's boundary encrypts it."""
        return json.dumps([self.number, self.subject, self.flight, self.nested, self.key])


def round_of(state: str | None) -> Round:
    """Read a state that this host wrote; it was verified before."""
    return Round(*json.loads(state)) if state else Round()


def put(
    text: str, round: Round, form: Mapping[str, Any] | None = None, url: str | None = None
) -> types.InputRequiredResult:
    """Have the client ask and make the same call again; `form` are fields to be filled in.

    With a `url` the client sends its person there.
    """
    schema = FORM if form is None else dict(form)
    params: types.ElicitRequestParams = types.ElicitRequestFormParams(message=text, requested_schema=schema)
    if url is not None:
        params = types.ElicitRequestURLParams(message=text, url=url)
    ask = types.ElicitRequest(params=params)
    return types.InputRequiredResult(input_requests={KEY: ask}, request_state=round.seal())


def answer_of(result: types.ElicitResult, prompt: Prompt, *, by: str) -> Answer:
    """What a client's reply to the dialog means.

    Of a form without fields `cancel` means that nobody answered, and the question stays open.
    """
    if prompt.form is not None:
        if result.action == "accept":
            return Answer("approve", by=by, channel="client", content=result.content or {})
        return Answer("deny", by=by, channel="client", reason=result.action)
    action = meaning(result)
    if action == "accept":
        return Answer("approve", by=by, channel="client")
    if action == "decline":
        return Answer("deny", by=by, channel="client")
    return Answer("unanswered", by=by, channel="client")


def meaning(result: types.ElicitResult) -> str:
    """What a reply to our form comes to: accept, decline or cancel.

    The form has no field. A client that accepts it and yet sends content says yes only where all of it
    does: a no in it is a no, and whatever else it holds is no answer.
    """
    if result.action != "accept" or not result.content:
        return result.action
    words = {str(value).strip().casefold() for value in result.content.values()}
    if words & _NO:
        return "decline"
    return "accept" if words <= _YES else "cancel"


def response(params: types.CallToolRequestParams) -> types.ElicitResult | None:
    """The reply to the dialog that a retried request brings along."""
    found = (params.input_responses or {}).get(KEY)
    return found if isinstance(found, types.ElicitResult) else None


def reply(params: types.CallToolRequestParams) -> str | None:
    """The action of that reply to a form without fields: accept, decline or cancel."""
    found = response(params)
    return None if found is None else meaning(found)


def told_afar(id: str, result: types.ElicitResult) -> tuple[str, str, Mapping[str, Any] | None]:
    """A reply as another host takes it: what it means, and what was filled in where fields were asked for."""
    if id.startswith(f"{PREFIX}_"):
        return id, result.action, result.content if result.action == "accept" else None
    return id, meaning(result), None


class HoldingAsker:
    """For a client that cannot ask: holds the call a while and says how it can be decided elsewhere."""

    def __init__(self, channel: Channel, hold: float) -> None:
        self._channel = channel
        self._hold = hold

    async def ask(self, prompt: Prompt) -> Answer:
        """Hold until the record is decided, which cancels this, or the hold is over."""
        with anyio.move_on_after(min(self._hold, max(0.0, prompt.expires_at - time.time()))):
            while True:
                await self._channel.waiting(prompt.wish)
                await anyio.sleep(BEAT)
        return UNANSWERED


class ElicitAsker:
    """Asks the client while its request stays open."""

    def __init__(self, ctx: ServerRequestContext[Any, Any], by: str) -> None:
        self._ctx = ctx
        self._by = by

    async def ask(self, prompt: Prompt) -> Answer:
        """Show the dialog; a decision made elsewhere cancels it."""
        left = prompt.expires_at - time.time()
        if prompt.url is not None and can_link(self._ctx):
            result = await _link(self._ctx, prompt, prompt.url, left)
        else:
            result = await _dialog(self._ctx, prompt.text, prompt.form, left)
        return UNANSWERED if result is None else answer_of(result, prompt, by=self._by)


async def elicit(ctx: ServerRequestContext[Any, Any], text: str, timeout: float) -> str:
    """The dialog of the session-based eras; whatever goes wrong in it counts as `cancel`."""
    result = await _dialog(ctx, text, None, timeout)
    return "cancel" if result is None else meaning(result)


async def _dialog(
    ctx: ServerRequestContext[Any, Any], text: str, form: Mapping[str, Any] | None, timeout: float
) -> types.ElicitResult | None:
    schema = FORM if form is None else dict(form)
    with anyio.move_on_after(max(0.0, timeout)):
        try:
            return await ctx.session.elicit_form(text, schema, related_request_id=ctx.request_id)
        except (MCPError, ValidationError) as error:
            _log.warning("the client's dialog failed: %s", str(error).splitlines()[0])
    return None


async def _link(
    ctx: ServerRequestContext[Any, Any], prompt: Prompt, url: str, timeout: float
) -> types.ElicitResult | None:
    """Have the client send its person to an address; that they go there is all that comes back."""
    with anyio.move_on_after(max(0.0, timeout)):
        try:
            return await ctx.session.elicit_url(prompt.text, url, prompt.approval_id, ctx.request_id)
        except (MCPError, ValidationError) as error:
            _log.warning("the client's dialog failed: %s", str(error).splitlines()[0])
    return None


class InputRequiredAsker:
    """Has the client itself ask and make the same call again with the answer."""

    def __init__(
        self,
        asked: str | None,
        result: types.ElicitResult | None,
        by: str,
        *,
        last: bool,
        holding: HoldingAsker,
    ) -> None:
        self._asked = asked
        self._result = result
        self._by = by
        self._last = last
        self._holding = holding

    async def ask(self, prompt: Prompt) -> Answer:
        """The answer that came with the call if it is one to this very question, else `deferred`."""
        if prompt.nested:
            # The call that asks is not the client's own: making that one again would run it twice.
            return await self._holding.ask(prompt)
        if self._result is not None and self._asked == prompt.approval_id:
            return answer_of(self._result, prompt, by=self._by)
        if self._last:
            return await self._holding.ask(prompt)
        return Answer("deferred", channel="client")


def choose(
    ctx: ServerRequestContext[Any, Any],
    channel: Channel,
    round: Round,
    result: types.ElicitResult | None,
    *,
    by: str,
    hold: float,
) -> Asker:
    """The way to ask this client; `result` is the reply that this request brought."""
    holding = HoldingAsker(channel, hold)
    if not can_ask(ctx):
        return holding
    if not is_modern(ctx):
        return ElicitAsker(ctx, by)
    return InputRequiredAsker(round.subject, result, by, last=round.last, holding=holding)
