"""Statements that an operator signs: one spelling for each, so that a signature is for exactly one thing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from packhost.rules.approvals import canonical_json

_FORM = "packhost statement 1"


def _statement(kind: str, *facts: object) -> bytes:
    return canonical_json([_FORM, kind, *facts]).encode("ascii")


def decision_statement(
    *,
    workspace: str,
    approval_id: str,
    binding: str,
    verdict: str,
    reason: str,
    by: str,
    at: float,
    expires_at: float,
) -> bytes:
    """An answer to one question; `binding` stands for exactly what was asked, times are in seconds."""
    return _statement(
        "decision", workspace, approval_id, binding, verdict, reason, by, float(at), float(expires_at)
    )


def grant_statement(
    *,
    workspace: str,
    principal: str,
    tool: str,
    tool_version: str,
    match: Mapping[str, object],
    expires_in: float | None,
    max_uses: int | None,
    by: str,
    at: float,
) -> bytes:
    """A standing permission; `match` is its pattern as stored, `expires_in` seconds from `at`."""
    span = None if expires_in is None else float(expires_in)
    return _statement(
        "grant", workspace, principal, tool, tool_version, dict(match), span, max_uses, by, float(at)
    )


def consent_statement(*, workspace: str, seen: str, by: str, at: float) -> bytes:
    """An acceptance of `packhost.yaml`; `seen` stands for exactly the file and the sources shown."""
    return _statement("consent", workspace, seen, by, float(at))


def succession_statement(*, workspace: str, present: str, next: str | None, by: str, at: float) -> bytes:
    """The present operator gives way to another, or to none; both by fingerprint."""
    return _statement("operator", workspace, present, next, by, float(at))


def token_statement(
    *,
    workspace: str,
    name: str,
    role: str,
    principal: str,
    scopes: Sequence[str],
    expires_in: float | None,
    by: str,
    at: float,
) -> bytes:
    """A new bearer token; `expires_in` is in seconds from `at`, `None` for one that does not expire."""
    span = None if expires_in is None else float(expires_in)
    return _statement("token", workspace, name, role, principal, sorted(scopes), span, by, float(at))


def pruning_statement(
    *, workspace: str, first: int, last: int, last_hash: str, exported: str | None, by: str, at: float
) -> bytes:
    """Events from `first` to `last` go; `last_hash` stands for exactly them, `exported` for a copy."""
    return _statement("pruning", workspace, first, last, last_hash, exported, by, float(at))


def entry_statement(*, workspace: str, nonce: str, by: str, at: float) -> bytes:
    """Signing in to a console; the host gives each `nonce` out once."""
    return _statement("entry", workspace, nonce, by, float(at))


def passkey_statement(
    *, workspace: str, credential: str, public_key: str, rp_id: str, name: str, by: str, at: float
) -> bytes:
    """A passkey that is to speak for the operator; its parts are base64url."""
    return _statement("passkey", workspace, credential, public_key, rp_id, name, by, float(at))
