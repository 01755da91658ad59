"""Ways to put a question to a person, by what the client can do."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import anyio
from mcp import MCPError, types
from mcp.server.context import ServerRequestContext
from pydantic import ValidationError

from packhost.gate.questions import PREFIX
from packhost.gate.types import Answer, Prompt
from packhost.server.channel import Channel
from packhost.server.reaching import FORM, Ways, linked

_log = logging.getLogger(__name__)

KEY: Final = "approve"
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
    way: str = "form"
    """How it was put: by a `form`, by a `page` of the console; or that page is `opened` by now."""

    @property
    def last(self) -> bool:
        """Whether the client may not come back once more."""
        return self.number >= _ROUNDS

    def next(self, subject: str, *, flight: str | None = None, nested: bool = False) -> Round:
        """The round after this one, which asks about `subject`."""
        return Round(self.number + 1, subject, flight, nested, self.key)

    def seal(self) -> str:
        """The state as text; the server's boundary encrypts it."""
        return json.dumps([self.number, self.subject, self.flight, self.nested, self.key, self.way])


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


def put_question(
    prompt: Prompt, ways: Ways, after: Round, *, opened: bool = False
) -> types.InputRequiredResult:
    """Have the client put a question and make the same call again.

    Where the person has `opened` its page already, the client only comes back for what was decided.
    """
    request = None if opened else ways.request(prompt)
    if request is None:
        return types.InputRequiredResult(request_state=replace(after, way="opened").seal())
    way = "form" if ways.page(prompt) is None else "page"
    return types.InputRequiredResult(
        input_requests={KEY: request}, request_state=replace(after, way=way).seal()
    )


def came_back(
    params: types.CallToolRequestParams, round: Round
) -> tuple[types.ElicitResult | None, str | None]:
    """The reply to the question of the round before, or the id of the one whose page was opened."""
    result = response(params)
    if round.way == "opened" or (round.way == "page" and result is not None and result.action == "accept"):
        return None, round.subject
    if round.way == "page" and result is not None:
        return types.ElicitResult(action="cancel"), None  # a page that is not opened decides nothing
    return result, None


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

    def __init__(
        self,
        ctx: ServerRequestContext[Any, Any],
        by: str,
        ways: Ways,
        holding: HoldingAsker,
        follow: Callable[[Prompt], None],
    ) -> None:
        self._ctx = ctx
        self._by = by
        self._ways = ways
        self._holding = holding
        self._follow = follow
        self.opened: types.ElicitRequestURLParams | None = None
        """The page of the console that the person was sent to last."""

    async def ask(self, prompt: Prompt) -> Answer:
        """Show the dialog; a decision made elsewhere cancels it."""
        if self._ways.request(prompt) is None:
            return await self._holding.ask(prompt)
        left = prompt.expires_at - time.time()
        page = self._ways.page(prompt)
        if page is not None:
            return await self._open(prompt, page, left)
        if prompt.url is not None and self._ways.link:
            result = await _link(self._ctx, prompt.text, prompt.approval_id, prompt.url, left)
        else:
            result = await _dialog(self._ctx, prompt.text, prompt.form, left)
        return UNANSWERED if result is None else answer_of(result, prompt, by=self._by)

    async def _open(self, prompt: Prompt, page: str, left: float) -> Answer:
        """Send the person to the console, and wait for what is decided there."""
        text, id = linked(prompt), prompt.approval_id
        asks = self._ctx.session.can_send_request
        if asks:
            result = await _link(self._ctx, text, id, page, left)
            if result is None or result.action != "accept":
                return Answer("unanswered", channel="client", reason="its page was not opened")
        self.opened = types.ElicitRequestURLParams(message=text, url=page, elicitation_id=id)
        self._follow(prompt)
        return await self._holding.ask(prompt) if asks else UNANSWERED


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
    ctx: ServerRequestContext[Any, Any], text: str, id: str, url: str, timeout: float
) -> types.ElicitResult | None:
    """Have the client send its person to an address; that they go there is all that comes back."""
    with anyio.move_on_after(max(0.0, timeout)):
        try:
            return await ctx.session.elicit_url(text, url, id, ctx.request_id)
        except (MCPError, ValidationError) as error:
            _log.warning("the client's dialog failed: %s", str(error).splitlines()[0])
    return None


class InputRequiredAsker:
    """Has the client itself ask and make the same call again with the answer."""

    def __init__(
        self,
        round: Round,
        result: types.ElicitResult | None,
        opened: str | None,
        *,
        by: str,
        ways: Ways,
        holding: HoldingAsker,
    ) -> None:
        self._round = round
        self._result = result
        self._opened = opened
        self._by = by
        self._ways = ways
        self._holding = holding

    async def ask(self, prompt: Prompt) -> Answer:
        """The answer that came with the call if it is one to this very question, else `deferred`."""
        if prompt.nested:
            # The call that asks is not the client's own: making that one again would run it twice.
            return await self._holding.ask(prompt)
        if self._result is not None and self._round.subject == prompt.approval_id:
            return answer_of(self._result, prompt, by=self._by)
        if self._opened == prompt.approval_id:
            answer = await self._holding.ask(prompt)
            return answer if self._round.last else Answer("deferred", channel="client")
        if self._round.last or self._ways.request(prompt) is None:
            return await self._holding.ask(prompt)
        return Answer("deferred", channel="client")


def _nobody(_: Prompt) -> None:
    """For a call whose client is told of nothing afterwards."""


def choose(
    ctx: ServerRequestContext[Any, Any],
    channel: Channel,
    ways: Ways,
    round: Round,
    came: tuple[types.ElicitResult | None, str | None],
    *,
    by: str,
    hold: float,
    follow: Callable[[Prompt], None] = _nobody,
) -> ElicitAsker | HoldingAsker | InputRequiredAsker:
    """The way to ask this client; `came` is what this request brought back."""
    holding = HoldingAsker(channel, hold)
    if not ways.any:
        return holding
    if not ways.modern:
        return ElicitAsker(ctx, by, ways, holding, follow)
    return InputRequiredAsker(round, *came, by=by, ways=ways, holding=holding)
