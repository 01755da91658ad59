"""Questions, grants and autonomy over the API: a person's own acts, by the rules of the command line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, Literal

from pydantic import AliasChoices, Field

from packhost.control import grants, people
from packhost.errors import PackhostError
from packhost.http.auth import demand
from packhost.http.kit import Call, Model, Reply
from packhost.http.problems import Problem, of_error
from packhost.http.runs import SESSION
from packhost.rules.approvals import Approver
from packhost.rules.autonomy import Level, rank
from packhost.store.ops import approvals
from packhost.store.rows import ApprovalRow

_LIST: Final = "list them with `GET /v1/approvals`"


class Signed(Model):
    """An operator's signature over the statement of the act, and the time that it names."""

    at: float
    signature: str = Field(max_length=256)


class Always(Model):
    """What is allowed from then on, beside the very call that was asked for."""

    only: dict[str, str] = Field(default_factory=dict, description="Patterns of paths, by argument.")
    any: list[str] = Field(default_factory=list, description="Arguments that may have any value.")
    expires_in: float | None = Field(None, gt=0, description="Seconds; without an end if left out.")
    uses: int | None = Field(None, ge=1, description="For so many calls; any number if left out.")
    signed: Signed | None = None


class Decision(Model):
    """A person's answer."""

    decision: Literal["approve", "deny"]
    reason: str = Field("", max_length=1_000)
    session_id: str | None = Field(
        None,
        pattern=SESSION,
        validation_alias=AliasChoices("session_id", "sessionId"),
        description="The session whose run asks: an end user has to name it, and answers for it alone.",
    )
    run_id: str | None = Field(
        None,
        max_length=128,
        validation_alias=AliasChoices("run_id", "executionId"),
        description="The run that asks; 404 where it is another.",
    )
    always: Always | None = Field(
        None, description="Not for an end user; a token needs `grants:write` beside."
    )
    signed: Signed | None = Field(None, description="Needed to approve where an operator is set up.")


class ApprovalsQuery(Model):
    """Which questions, and how many."""

    status: Literal["pending", "approved", "denied", "expired", "cancelled"] | None = None
    cursor: str | None = Field(None, description="`next` of the page before.")
    limit: int = Field(50, ge=1, le=500)


class Answered(Model):
    """One person's answer."""

    by: str
    verdict: Literal["approve", "deny"]
    channel: str
    assurance: Literal["client", "operator"]
    role: Literal["end-user"] | None = Field(description="`end-user` where one answered for themselves.")


class Approval(Model):
    """A question and how it was answered; times in seconds since the epoch."""

    id: str
    workspace: str
    binding: str = Field(description="A keyed digest of exactly what is asked for.")
    status: Literal["pending", "approved", "denied", "expired", "cancelled"]
    tool: str
    tool_version: str
    arguments: Any = Field(description="Hidden values show as `[REDACTED]`.")
    names: list[str]
    prompt: str = Field(description="The whole question, as every channel shows it.")
    assurance: Literal["client", "operator"]
    approver: Approver = Field(
        description="Who may answer: whoever answers for the workspace, or also the end user of the run."
    )
    approvers_needed: int = Field(description="So many different people have to agree.")
    answers: list[Answered] = Field(description="Who has answered so far, first to last.")
    session_id: str
    run_id: str | None
    principal: str
    client: str
    tool_call_id: str | None = Field(description="The call as the run's model named it.")
    tool_type: str | None = Field(description="The tool's kind.")
    iteration: int | None = Field(description="The run's turn, from 1; `null` outside of turns.")
    timeout: float = Field(description="Seconds that a person has.")
    started_at: float
    created_at: float
    expires_at: float
    decided_by: str | None
    decided_channel: str | None
    decided_at: float | None
    reason: str | None
    consumed_by: str | None


class ApprovalDetail(Approval):
    """A question with a grant that would spare a person such ones."""

    proposal: dict[str, Any] | None


class Decided(Approval):
    """A question as it stands after the answer, and the grant that came with it."""

    grant: str | None


class Approvals(Model):
    """A page of questions, newest first; `next` is `null` on the last one."""

    approvals: list[Approval]
    next: str | None


class GrantsQuery(Model):
    """Which grants, and how many."""

    all: bool = Field(False, description="Also those that cover nothing any more.")
    cursor: str | None = Field(None, description="`next` of the page before.")
    limit: int = Field(50, ge=1, le=500, description="Grants looked at; fewer may be live.")


class Grant(Model):
    """What is always allowed; times in seconds since the epoch."""

    id: str
    state: str
    why: str
    tool: str
    tool_version: str
    principal: str | None
    match: Any
    words: list[str]
    created_by: str
    created_at: float
    expires_at: float | None
    revoked_at: float | None
    uses: int
    max_uses: int | None


class Grants(Model):
    """A page of grants, newest first; `next` is `null` on the last one."""

    grants: list[Grant]
    next: str | None


class Autonomy(Model):
    """How much a session may do by itself."""

    level: Level
    reason: str = Field("", max_length=1_000)
    expires_in: float | None = Field(None, gt=0, description="Seconds that a raise holds.")


class Session(Model):
    """A session; times in seconds since the epoch."""

    id: str
    level: Level
    level_expires_at: float | None
    principal: str
    client: str
    parent: str | None
    created_at: float
    updated_at: float


async def approvals_list(call: Call) -> Reply:
    """`GET /v1/approvals`: what was asked for the caller's principal, newest first; all for who sees all."""
    query, about = call.query, f"approvals {call.identity.principal}"
    params: dict[str, Any] = {"limit": query.limit, "before": call.shared.cursors.read(about, query.cursor)}
    if query.status is not None:
        params["status"] = query.status
    if not call.identity.sees_all:
        params["principal"] = call.identity.principal
    found = (await people.approvals_list(call.parts, params))["approvals"]
    last = found[-1]["id"] if len(found) == query.limit else None
    return Reply({"approvals": found, "next": _sealed(call, about, last)})


async def approvals_show(call: Call) -> Reply:
    """`GET /v1/approvals/{id}`."""
    _asked(call)
    return Reply(await people.approvals_show(call.parts, {"id": call.path["id"]}))


async def approvals_decide(call: Call) -> Reply:
    """`POST /v1/approvals/{id}/decide`: an operator's answer, or the end user's; the first one wins."""
    row, body = _asked(call), call.body
    if body.session_id not in (None, row.session_id) or body.run_id not in (None, row.run_id):
        raise _no_approval(row.id)
    if call.identity.role != "operator":
        return await _own_decision(call, body)
    params: dict[str, Any] = {
        "id": call.path["id"],
        "verdict": body.decision,
        "reason": body.reason,
        "channel": "api",
        "signed": body.signed.model_dump() if body.signed else None,
    }
    if body.always is not None:
        call.demand("grants:write")
        params["always"] = body.always.model_dump(exclude_none=True)
    with _told():
        return Reply(await people.approvals_decide(call.parts, params))


async def _own_decision(call: Call, body: Decision) -> Reply:
    """The answer of an end user to what a run of theirs asks them: this once, and in this session alone."""
    if call.identity.role != "end-user":
        raise Problem(
            403, "FORBIDDEN", "a program answers nothing", hint="a person answers, by their own token"
        )
    if body.always is not None or body.signed is not None:
        raise Problem(
            403, "FORBIDDEN", "an end user allows a call this once", hint="leave out `always` and `signed`"
        )
    if body.session_id is None:
        raise Problem(
            400,
            "INVALID_INPUT",
            "`session_id` is missing",
            hint="name the session whose run asks",
            path="/session_id",
        )
    who, session = call.identity.principal, body.session_id
    with _told():
        row = await call.parts.gate.decide(
            call.path["id"], body.decision, by=who, channel="api", reason=body.reason, session=session
        )
    return Reply({**people.approval_json(row), "grant": None})


@contextmanager
def _told() -> Iterator[None]:
    """What stands in the way of an answer, as a problem: a missing signature, or an answer given before."""
    try:
        yield
    except PackhostError as error:
        if error.code not in ("APPROVAL_MODE_UNSUPPORTED", "APPROVAL_DENIED"):
            raise
        problem = of_error(error)
        problem.status = 403 if error.code == "APPROVAL_MODE_UNSUPPORTED" else 409
        raise problem from None


async def grants_list(call: Call) -> Reply:
    """`GET /v1/grants`."""
    query, about = call.query, f"grants {call.identity.principal}"
    before = call.shared.cursors.read(about, query.cursor)
    params = {"limit": query.limit, "all": True, "before": before}
    found = (await grants.listing(call.parts, params))["grants"]
    last = found[-1]["id"] if len(found) == query.limit else None
    shown = [one for one in found if query.all or one["state"] == "live"]
    return Reply({"grants": shown, "next": _sealed(call, about, last)})


async def grants_revoke(call: Call) -> Reply:
    """`POST /v1/grants/{id}/revoke`."""
    return Reply(await grants.revoke(call.parts, {"id": call.path["id"]}))


async def autonomy(call: Call) -> Reply:
    """`POST /v1/sessions/{id}/autonomy`: anyone lowers their own session, an operator also raises any."""
    session_id, body = call.path["id"], call.body
    row = call.parts.gate.sessions.known(session_id)
    if row is None or not (call.identity.owns(row.principal)):
        raise Problem(
            404, "NOT_FOUND", f"there is no session `{session_id[:80]}`", hint="use one that a run was in"
        )
    present = call.parts.gate.sessions.level(session_id)
    params = {"reason": body.reason}
    if rank(body.level) > rank(present):
        demand(call.identity, "approvals:decide")
        if call.identity.role != "operator":
            raise Problem(
                403,
                "FORBIDDEN",
                "more autonomy is an operator's to give",
                hint="ask one, or use another token",
            )
        return Reply(await people.change_level(call.parts, session_id, body.level, params, body.expires_in))
    return Reply(await people.change_level(call.parts, session_id, body.level, params, None, no_higher=True))


def _asked(call: Call) -> ApprovalRow:
    """The question, where the caller may see it; 404 for another's."""
    row: ApprovalRow = call.owned(approvals.get, call.path["id"], "approval", _LIST)
    return row


def _no_approval(id: str) -> Problem:
    return Problem(404, "NOT_FOUND", f"there is no approval `{id}` of that session and run", hint=_LIST)


def _sealed(call: Call, about: str, last: str | None) -> str | None:
    return None if last is None else call.shared.cursors.seal(about, last)
