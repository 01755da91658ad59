"""Operations for a console: signing in to it, its sessions, its passkeys.

A console shows the host's operations to a browser. The host, and no console, says who is signed in and what
they may do: `console.act` does an operation for a session, and looks the session up again each time.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from packhost.control.base import Operation, Parts, optional, text
from packhost.control.operator import needed, signed_of
from packhost.errors import InvalidInput, PackhostError
from packhost.gate.operators import Signed
from packhost.gate.passkeys import is_assertion
from packhost.journal import digest
from packhost.names import new_id
from packhost.rules.identities import MOST, Identity, Right, Role, usual
from packhost.rules.statements import entry_statement, passkey_statement
from packhost.store.ops import consoles, events, tokens
from packhost.store.ops.consoles import ConsoleRow, PasskeyRow, Way

NOTED_EVERY: Final = 60.0
"""Seconds between two notes that something was done in a session."""
ROLES: Final[frozenset[Role]] = frozenset({"operator", "auditor"})
"""Whose tokens open a console."""
_TEXT: Final = re.compile(r"[A-Za-z0-9_-]{1,4096}")
_NAME: Final = 64

RIGHTS: Final[Mapping[str, Right]] = {
    **dict.fromkeys(("status", "explain", "tools.list", "tools.show", "packs.list"), "tools:read"),
    **dict.fromkeys(("approvals.list", "approvals.show", "grants.offer"), "approvals:read"),
    **dict.fromkeys(("accept.changes",), "tools:read"),
    **dict.fromkeys(("approvals.preview",), "approvals:read"),
    **dict.fromkeys(("questions.list", "questions.show"), "approvals:read"),
    **dict.fromkeys(("approvals.decide", "questions.answer"), "approvals:decide"),
    **dict.fromkeys(("grants.list", "grants.show", "grants.propose"), "grants:read"),
    **dict.fromkeys(("grants.revoke", "grants.accept"), "grants:write"),
    **dict.fromkeys(("runs.list", "runs.show", "runs.events", "runs.trace"), "runs:read"),
    **dict.fromkeys(("sessions.list", "sessions.show", "calls.recorded"), "runs:read"),
    **dict.fromkeys(("runs.pause", "runs.resume", "runs.abort"), "runs:write"),
    **dict.fromkeys(("sessions.raise", "sessions.lower"), "sessions:write"),
    **dict.fromkeys(("audit.head", "audit.verify", "audit.search", "audit.export"), "audit:read"),
    **dict.fromkeys(("audit.event", "store.info"), "audit:read"),
    **dict.fromkeys(("changes.wait",), "tools:read"),
}
"""The operations that a console may ask for, and what a session must be allowed for each."""


def rights_of(op: str, given: Mapping[str, Any]) -> tuple[Right, ...]:
    """What a session must be allowed for an operation; nothing where no console may ask for it."""
    right = RIGHTS.get(op)
    if right is None:
        return ()
    if op == "approvals.decide" and given.get("always") is not None:
        return (right, "grants:write")  # a grant is given along
    # more autonomy is an answer to whatever will be asked
    return (right, "approvals:decide") if op == "sessions.raise" else (right,)


async def nonce(parts: Parts, params: Mapping[str, Any]) -> Any:
    """What an operator signs to sign in; good once, for two minutes."""
    return {
        "nonce": parts.consoles.give_out("nonce", parts.store.now()),
        "workspace": parts.store.workspace,
        "by": parts.principal,
    }


async def ticket(parts: Parts, params: Mapping[str, Any]) -> Any:
    """A secret that opens one session, within two minutes; where there is an operator, they sign for it."""
    if needed(parts):
        _prove(parts, params, "opening a console needs an operator")
    return {"ticket": parts.consoles.give_out("ticket", parts.store.now())}


async def login(parts: Parts, params: Mapping[str, Any]) -> Any:
    """Open a session by a `ticket`, a `token`, or an operator's signature over a `nonce`; gives its secret.

    A token may come from another account's process, which is `foreign`: only such a session serves these.

    :raises PackhostError: `POLICY_DENIED` when it is not known, was used, or is no operator's or auditor's.
    """
    if params.get("ticket") is not None:
        if not parts.consoles.take_back("ticket", text(params, "ticket"), parts.store.now()):
            raise _refused(
                "the ticket is not known, was used or is too old", "open a new one: `packhost console`"
            )
        return await _enter(parts, "ticket", parts.principal)
    if params.get("token") is not None:
        row = parts.store.read(tokens.by_digest, digest(text(params, "token").strip()))
        if row is None:
            raise _refused(
                "the token is not known, has expired or was revoked", "make one: `packhost tokens new`"
            )
        if row.role not in ROLES:
            raise _refused(
                f"a token of the role `{row.role}` opens no console", "use an operator's or an auditor's"
            )
        parts.store.post(tokens.used, row.id)
        way: Way = "foreign-token" if params.get("foreign") is True else "token"
        return await _enter(parts, way, row.principal, row.role, row.scopes, row.id)
    signed = _prove(parts, params, "signing in needs an operator")
    return await _enter(parts, "passkey" if is_assertion(signed.signature) else "passphrase", parts.principal)


def _prove(parts: Parts, params: Mapping[str, Any], what: str) -> Signed:
    """An operator's signature over a nonce that was given out and not used yet."""
    signed = signed_of(params)
    if signed is None:
        raise parts.gate.operators.missing(what, "packhost console")
    given = text(params, "nonce")
    if not parts.consoles.take_back("nonce", given, parts.store.now()):
        raise _refused("the signature is for a nonce that is not known or too old", "try again")
    said = entry_statement(workspace=parts.store.workspace, nonce=given, by=parts.principal, at=signed.at)
    parts.gate.operators.check(said, signed, parts.store.now())
    return signed


async def _enter(
    parts: Parts,
    way: Way,
    principal: str,
    role: Role = "operator",
    scopes: tuple[Right, ...] | None = None,
    token_id: str | None = None,
) -> dict[str, Any]:
    secret = secrets.token_urlsafe(32)
    row = await parts.store.write(
        consoles.enter,
        new_id("cs"),
        digest(secret),
        principal=principal,
        role=role,
        scopes=sorted(usual(role)) if scopes is None else scopes,
        way=way,
        token_id=token_id,
    )
    return {"secret": secret, **session_json(row)}


def session_of(parts: Parts, params: Mapping[str, Any]) -> ConsoleRow:
    """The session whose secret came along.

    :raises PackhostError: `POLICY_DENIED`, with `data["signed_out"]`, when it is over or never was.
    """
    row = parts.store.read(consoles.by_digest, digest(text(params, "session")))
    if row is None:
        raise _refused("nobody is signed in by that", "sign in again", signed_out=True)
    return row


def identity_of(row: ConsoleRow) -> Identity:
    """Who acts in a session."""
    return Identity(row.principal, row.role, frozenset(row.scopes) & MOST[row.role], row.token_id or row.id)


async def enter(parts: Parts, params: Mapping[str, Any]) -> Any:
    """Whose session it is, how many questions wait, the record's end; unless `idle`, it counts as used."""
    row = session_of(parts, params)
    if params.get("idle") is not True and parts.store.now() - row.seen_at >= NOTED_EVERY:
        parts.store.post(consoles.seen, row.id)
    return {
        **session_json(row),
        "operator": parts.gate.operators.standing().state,
        "waiting": parts.store.read(consoles.waiting),
        "head": parts.store.read(events.head).id,
        "workspace": str(parts.workspace.root.path),
        "store": parts.store.workspace,
        "passkeys": _usable(parts),
    }


async def door(parts: Parts, params: Mapping[str, Any]) -> Any:
    """What somebody who is not signed in yet must know: whether there is an operator, and which passkeys."""
    return {
        "operator": parts.gate.operators.standing().state,
        "passkeys": _usable(parts),
        "workspace": str(parts.workspace.root.path),
    }


def _usable(parts: Parts) -> list[dict[str, str]]:
    return [{"credential": one.credential, "rp_id": one.rp_id} for one in parts.gate.operators.passkeys()]


async def leave(parts: Parts, params: Mapping[str, Any]) -> Any:
    """Sign out; with `id` end another session of one's own, or anybody's for an operator."""
    row = session_of(parts, params)
    id = optional(params, "id") or row.id
    if id != row.id and not identity_of(row).may("sessions:write"):
        other = parts.store.read(consoles.get, id)
        if other.principal != row.principal:
            raise _forbidden(row, "sessions:write")
    await parts.store.write(consoles.leave, id, row.principal)
    return {"id": id}


async def sessions(parts: Parts, params: Mapping[str, Any]) -> Any:
    """Who is signed in: oneself, and for an operator everybody."""
    row = session_of(parts, params)
    rows = parts.store.read(consoles.live)
    return {
        "sessions": [
            session_json(one) for one in rows if row.role == "operator" or one.principal == row.principal
        ]
    }


async def passkeys(parts: Parts, params: Mapping[str, Any]) -> Any:
    """The passkeys that count; `others` are rows that the present operator did not sign."""
    rows = parts.store.read(consoles.passkeys)
    good = {one.id for one in parts.gate.operators.passkeys()}
    return {
        "passkeys": [passkey_json(one) for one in rows if one.id in good],
        "others": [passkey_json(one) for one in rows if one.id not in good],
    }


async def passkeys_add(parts: Parts, params: Mapping[str, Any]) -> Any:
    """Let a passkey speak for the operator: by the operator's own signature, never by another passkey's."""
    row, signed = session_of(parts, params), signed_of(params)
    if signed is None or is_assertion(signed.signature):
        raise parts.gate.operators.missing(
            "a new passkey needs the operator's passphrase", "packhost console"
        )
    name = text(params, "name")
    if not 0 < len(name) <= _NAME or not name.isprintable():
        raise InvalidInput("`name` cannot be used as a name", hint=f"use 1 to {_NAME} characters")
    facts = {each: _base64(params, each) for each in ("credential", "public_key")}
    rp_id, by = text(params, "rp_id"), row.principal
    said = passkey_statement(
        workspace=parts.store.workspace, **facts, rp_id=rp_id, name=name, by=by, at=signed.at
    )
    parts.gate.operators.check(said, signed, parts.store.now())
    new = PasskeyRow(
        new_id("pk"),
        **facts,
        rp_id=rp_id,
        name=name,
        added_by=by,
        added_at=signed.at,
        signature=signed.signature,
    )
    return passkey_json(await parts.store.write(consoles.add_passkey, new))


async def passkeys_remove(parts: Parts, params: Mapping[str, Any]) -> Any:
    """A person takes a passkey back; asks nobody."""
    row = session_of(parts, params)
    if not identity_of(row).may("approvals:decide"):
        raise _forbidden(row, "approvals:decide")
    return passkey_json(await parts.store.write(consoles.remove_passkey, text(params, "id"), row.principal))


async def act(parts: Parts, params: Mapping[str, Any], operations: Mapping[str, Operation]) -> Any:
    """One operation for whoever is signed in, as far as they may.

    :raises PackhostError: `POLICY_DENIED` when they may not.
    """
    row, op = session_of(parts, params), text(params, "op")
    given = params.get("params", {})
    if not isinstance(given, dict):
        raise InvalidInput("`params` is no object", hint="give an object")
    rights, who = rights_of(op, given), identity_of(row)
    if (lacking := next((right for right in rights if not who.may(right)), None)) or not rights:
        raise _forbidden(row, lacking or op)
    return await operations[op](replace(parts, principal=row.principal), given)


def session_json(row: ConsoleRow) -> dict[str, Any]:
    """A session for the console, without what makes it one."""
    return {
        "id": row.id,
        "principal": row.principal,
        "role": row.role,
        "scopes": sorted(identity_of(row).scopes),
        "way": row.way,
        "created_at": row.created_at,
        "seen_at": row.seen_at,
        "expires_at": row.expires_at,
    }


def passkey_json(row: PasskeyRow) -> dict[str, Any]:
    """A passkey for the console."""
    names = ("id", "name", "credential", "rp_id", "added_by", "added_at")
    return {name: getattr(row, name) for name in names}


def _base64(params: Mapping[str, Any], name: str) -> str:
    given = text(params, name)
    if _TEXT.fullmatch(given) is None:
        raise InvalidInput(f"`{name}` is not base64url", hint="give it as the browser did")
    return given


def _refused(what: str, hint: str, **data: Any) -> PackhostError:
    return PackhostError(what, code="POLICY_DENIED", hint=hint, **data)


def _forbidden(row: ConsoleRow, what: str) -> PackhostError:
    hint = "use a token with that scope" if row.role == "operator" else "sign in as an operator"
    return _refused(f"who is signed in as {row.role} may not do this (`{what}`)", hint)
