"""Operations that are a person's own acts: approvals, sessions, acceptance."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from packhost.control.base import Parts, optional, text, whole
from packhost.control.grants import DAYS, granted, offered, proposal_json
from packhost.control.operator import needed, signed_of
from packhost.errors import InvalidInput
from packhost.names import nearest
from packhost.rules.approvals import ApprovalStatus
from packhost.rules.autonomy import LEVELS, Level, rank
from packhost.store.ops import approvals, sessions
from packhost.store.rows import ApprovalRow, SessionRow

_STATUSES = ("pending", "approved", "denied", "expired", "cancelled")


async def approvals_list(parts: Parts, params: Mapping[str, Any]) -> Any:
    """Approvals, newest first, older than `before`; of one `status` or `principal`, or all."""
    await _expired(parts)
    status = params.get("status")
    if status is not None and status not in _STATUSES:
        raise InvalidInput(
            f"`{status}` is no status of an approval", hint=f"use one of {', '.join(_STATUSES)}"
        )
    rows = parts.store.read(
        approvals.listing,
        cast("ApprovalStatus | None", status),
        whole(params, "limit", 100),
        optional(params, "before"),
        optional(params, "principal"),
    )
    return {"approvals": [approval_json(row) for row in rows]}


async def _expired(parts: Parts) -> None:
    """Have what is due expire before it is shown; nothing is written while nothing is."""
    if parts.store.read(approvals.due, parts.store.now()):
        await parts.store.write(approvals.expire_due)


async def approvals_show(parts: Parts, params: Mapping[str, Any]) -> Any:
    """One approval with the whole question, and a grant that the host proposes for such calls."""
    await _expired(parts)
    row = parts.store.read(approvals.get, text(params, "id"))
    proposal = parts.gate.granting.concerning(row, DAYS)
    return {**approval_json(row), "proposal": proposal_json(proposal) if proposal is not None else None}


async def approvals_decide(parts: Parts, params: Mapping[str, Any]) -> Any:
    """A person's answer; the first one wins. With `always` like calls are allowed from then on.

    Where there is an operator, approving in this way is theirs alone: it needs their signature.
    """
    verdict = text(params, "verdict")
    if verdict not in ("approve", "deny"):
        raise InvalidInput(f"`{verdict}` is no answer", hint="answer `approve` or `deny`")
    approval_id, signed, always = text(params, "id"), signed_of(params), params.get("always")
    if verdict == "approve" and signed is None and needed(parts):
        raise parts.gate.operators.missing(
            "approving needs an operator", f"packhost approvals approve {approval_id}"
        )
    if always is not None and (verdict != "approve" or not isinstance(always, Mapping)):
        raise InvalidInput("`always` goes with an approval alone", hint="leave it out")
    grant = None if always is None else granted(parts, always, offered(parts, always, approval_id))
    row = await parts.gate.decide(
        approval_id,
        "approve" if verdict == "approve" else "deny",
        by=parts.principal,
        channel=text(params, "channel", "cli"),
        reason=text(params, "reason", ""),
        signed=signed,
        grant=grant,
    )
    return {
        **approval_json(row),
        "grant": grant.id if grant is not None and row.status == "approved" else None,
    }


def approval_json(row: ApprovalRow) -> dict[str, Any]:
    """An approval as people's programs read it."""
    return {
        "id": row.id,
        "workspace": row.workspace,
        "binding": row.binding,
        "status": row.status,
        "tool": row.tool,
        "tool_version": row.tool_version,
        "arguments": row.arguments,
        "names": list(row.names),
        "prompt": row.prompt,
        "assurance": row.assurance,
        "approvers_needed": max(row.approvers_needed, 1),
        "answers": [
            {
                "by": each.by,
                "verdict": each.verdict,
                "channel": each.channel,
                "assurance": each.assurance,
                "role": each.role or None,
            }
            for each in row.answers
        ],
        "session_id": row.session_id,
        "run_id": row.run_id,
        "principal": row.principal,
        "client": row.client,
        **approvals.told(row),
        "created_at": row.created_at,
        "expires_at": row.expires_at,
        "decided_by": row.decided_by,
        "decided_channel": row.decided_channel,
        "decided_at": row.decided_at,
        "reason": row.reason,
        "consumed_by": row.consumed_by,
    }


async def sessions_list(parts: Parts, params: Mapping[str, Any]) -> Any:
    """Sessions, the last used first."""
    rows = parts.store.read(sessions.listing, whole(params, "limit", 100))
    return {"sessions": [_session_json(row, parts.gate.sessions.level(row.id)) for row in rows]}


async def sessions_show(parts: Parts, params: Mapping[str, Any]) -> Any:
    """One session and how many messages it holds."""
    row = parts.store.read(sessions.get, text(params, "id"))
    messages = parts.store.read(sessions.history, row.id)
    return {**_session_json(row, parts.gate.sessions.level(row.id)), "messages": len(messages)}


async def sessions_raise(parts: Parts, params: Mapping[str, Any]) -> Any:
    """A person gives a session more autonomy, for `expires_in` seconds or for good; asks nobody."""
    session_id, level = _wanted(params)
    present = parts.gate.sessions.view(session_id).level
    if rank(level) < rank(present):
        raise InvalidInput(
            f"`{level}` is below the present `{present}`", hint="use `packhost sessions lower`"
        )
    expires_in: Any = params.get("expires_in")
    if expires_in is not None and (not isinstance(expires_in, int | float) or expires_in <= 0):
        raise InvalidInput("`expires_in` is not a number of seconds", hint="give a positive number")
    return await change_level(parts, session_id, level, params, expires_in)


async def sessions_lower(parts: Parts, params: Mapping[str, Any]) -> Any:
    """A person takes autonomy back at once; asks nobody."""
    session_id, level = _wanted(params)
    present = parts.gate.sessions.view(session_id).level
    if rank(level) > rank(present):
        raise InvalidInput(
            f"`{level}` is above the present `{present}`", hint="use `packhost sessions raise`"
        )
    return await change_level(parts, session_id, level, params, None, no_higher=True)


def _wanted(params: Mapping[str, Any]) -> tuple[str, Level]:
    level = text(params, "level")
    if level not in LEVELS:
        near = nearest(level, LEVELS, 1)
        hint = f"did you mean `{near[0]}`?" if near else f"use one of {', '.join(LEVELS)}"
        raise InvalidInput(f"`{level}` is no level", hint=hint)
    return text(params, "id"), level


async def change_level(
    parts: Parts,
    session_id: str,
    level: Level,
    params: Mapping[str, Any],
    expires_in: float | None,
    *,
    no_higher: bool = False,
) -> Any:
    """Set a session's level; see `Sessions.change`. Whether it goes up or down was looked at before."""
    view = await parts.gate.sessions.change(
        session_id,
        level,
        by=parts.principal,
        reason=text(params, "reason", ""),
        expires_in=expires_in,
        no_higher=no_higher,
    )
    return _session_json(parts.gate.sessions.row(session_id), view.level)


def _session_json(row: SessionRow, level: Level) -> dict[str, Any]:
    return {
        "id": row.id,
        "level": level,
        "level_expires_at": row.level_expires_at,
        "principal": row.principal,
        "client": row.client,
        "parent": row.parent,
        "created_at": row.created_at,
        "updated_at": row.updated_at,
    }
