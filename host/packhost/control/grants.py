"""Operations on grants: what would be granted, what is proposed, what holds. All are a person's own acts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from packhost.control.base import Parts, optional, text, whole
from packhost.control.operator import needed, signed_of
from packhost.errors import InvalidInput
from packhost.gate.granting import Also, Offer, terms_of
from packhost.rules.proposals import Proposal
from packhost.rules.statements import grant_statement
from packhost.store.ops import grants
from packhost.store.rows import GrantRow, NewGrant

DAYS = 30
"""So far back proposals look, unless told otherwise."""
_SHOWN = 20


async def offer(parts: Parts, params: Mapping[str, Any]) -> Any:
    """What `approvals approve --always` would grant for a question that waits."""
    return offered(parts, params, text(params, "id")).as_json()


def offered(parts: Parts, params: Mapping[str, Any], approval_id: str) -> Offer:
    """The offer for a question, widened and narrowed as `only` and `any` say."""
    return parts.gate.granting.offer(approval_id, _only(params), _names(params, "any"))


def granted(parts: Parts, params: Mapping[str, Any], offer: Offer) -> NewGrant:
    """The grant that an offer becomes; where there is an operator, by their signature alone."""
    now = parts.store.now()
    expires_in, uses = terms_of(params.get("expires_in"), params.get("uses"))
    signed = signed_of(params)
    if needed(parts):
        if signed is None:
            raise parts.gate.operators.missing("allowing calls for good needs an operator")
        parts.gate.operators.check(
            grant_statement(
                workspace=parts.store.workspace,
                principal=offer.principal,
                tool=offer.tool,
                tool_version=offer.tool_version,
                match=offer.pattern.as_json(),
                expires_in=expires_in,
                max_uses=uses,
                by=parts.principal,
                at=signed.at,
            ),
            signed,
            now,
        )
    return offer.grant(parts.principal, now, expires_in, uses)


async def listing(parts: Parts, params: Mapping[str, Any]) -> Any:
    """Grants, newest first, older than `before`; with `all` also those that cover nothing any more."""
    rows = parts.store.read(
        grants.listing, live=False, limit=whole(params, "limit", 100), before=optional(params, "before")
    )
    found = [_grant_json(parts, row) for row in rows]
    return {"grants": found if params.get("all") else [each for each in found if each["state"] == "live"]}


async def show(parts: Parts, params: Mapping[str, Any]) -> Any:
    """One grant."""
    return _grant_json(parts, parts.store.read(grants.get, text(params, "id")))


async def revoke(parts: Parts, params: Mapping[str, Any]) -> Any:
    """A person takes a grant back; asks nobody."""
    return _grant_json(parts, await parts.store.write(grants.revoke, text(params, "id"), parts.principal))


async def proposed(parts: Parts, params: Mapping[str, Any]) -> Any:
    """What would have spared a person the approvals of the last `days`, and what else it would allow."""
    found = parts.gate.granting.proposals(whole(params, "days", DAYS, 3_650))
    return {"proposals": [proposal_json(proposal, also) for proposal, also in found]}


async def accept(parts: Parts, params: Mapping[str, Any]) -> Any:
    """A person takes a proposal up; `only` narrows it. With `dry` it is only shown, for signing."""
    found = parts.gate.granting.accepted(
        text(params, "id"), whole(params, "days", DAYS, 3_650), _only(params)
    )
    if params.get("dry"):
        return found.as_json()
    row = await parts.store.write(grants.add, granted(parts, params, found))
    return _grant_json(parts, row)


def proposal_json(proposal: Proposal, also: tuple[Also, ...] = ()) -> dict[str, Any]:
    """A proposal for people's programs."""
    return {
        "id": proposal.id,
        "principal": proposal.principal,
        "tool": proposal.tool,
        "tool_version": proposal.tool_version,
        "match": proposal.pattern.as_json(),
        "words": proposal.pattern.words(),
        "approvals": proposal.covered,
        "also": {
            "count": len(also),
            "calls": [
                {
                    "id": call.call_id,
                    "arguments": call.arguments,
                    "status": call.status,
                    "started_at": call.started_at,
                }
                for call in also[:_SHOWN]
            ],
        },
    }


def _grant_json(parts: Parts, row: GrantRow) -> dict[str, Any]:
    state, why = parts.gate.granting.state_of(row)
    return {
        "id": row.id,
        "state": state,
        "why": why,
        "tool": row.tool,
        "tool_version": row.tool_version,
        "principal": row.principal,
        "match": row.match,
        "words": parts.gate.granting.words(row),
        "created_by": row.created_by,
        "created_at": row.created_at,
        "expires_at": row.expires_at,
        "revoked_at": row.revoked_at,
        "uses": row.uses,
        "max_uses": row.max_uses,
    }


def _only(params: Mapping[str, Any]) -> dict[str, str]:
    given = params.get("only", {})
    if not isinstance(given, Mapping) or not all(isinstance(glob, str) for glob in given.values()):
        raise InvalidInput("`only` is no object of patterns", hint='give {"path": "src/**"}')
    return dict(given)


def _names(params: Mapping[str, Any], name: str) -> list[str]:
    given = params.get(name, [])
    if not isinstance(given, list) or not all(isinstance(each, str) for each in given):
        raise InvalidInput(f"`{name}` is no list of names", hint="name arguments of the call")
    return given
