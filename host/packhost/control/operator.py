"""Operations on the operator: how things stand, and who takes over. Nothing here ever sees a passphrase."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from packhost.control.base import Parts, text
from packhost.errors import InvalidInput, PackhostError
from packhost.gate.operators import Signed
from packhost.workspace.consent import countersign
from packhost.workspace.operator import OperatorRecord, record_of, signed_by


def signed_of(params: Mapping[str, Any], name: str = "signed") -> Signed | None:
    """A signature that came along, as `{at, signature}`.

    :raises InvalidInput: it is something else.
    """
    given = params.get(name)
    if given is None:
        return None
    match given:
        case {"at": int() | float() as at, "signature": str(signature)} if not isinstance(at, bool):
            return Signed(float(at), signature)
    raise InvalidInput(f"`{name}` is no signature", hint="give `at` and `signature`")


def needed(parts: Parts) -> bool:
    """Whether a person's acts need the operator's signature."""
    return parts.gate.operators.standing().state != "none"


async def show(parts: Parts, params: Mapping[str, Any]) -> Any:
    """How things stand, with what whoever signs needs: the sealed record, the workspace, the name."""
    consent = parts.workspace.consent
    return {
        **parts.gate.operators.as_json(),
        "workspace": parts.store.workspace,
        "by": parts.principal,
        "consent": None if consent is None else consent.statement(parts.store.workspace).decode("ascii"),
    }


async def replace(parts: Parts, params: Mapping[str, Any]) -> Any:
    """Set the operator up, or replace it, with the present one's signature.

    `consent` is the new operator's signature over what was accepted before, which else no longer counts.
    """
    record = record_of(params.get("record"))
    consent = text(params, "consent", "")
    _check_consent(parts, record, consent)
    await parts.gate.operators.succeed(record, signed_of(params), parts.principal)
    await _countersigned(parts, consent)
    return await show(parts, {})


async def remove(parts: Parts, params: Mapping[str, Any]) -> Any:
    """Remove the operator, with its own signature."""
    if parts.gate.operators.standing().state == "none":
        raise PackhostError("no operator is set up", code="NOT_FOUND", hint="nothing is left to do")
    await parts.gate.operators.succeed(None, signed_of(params), parts.principal)
    await _countersigned(parts, "")
    return await show(parts, {})


def _check_consent(parts: Parts, record: OperatorRecord, signature: str) -> None:
    accepted = parts.workspace.consent
    if accepted is not None and not signed_by(
        record.public_key, accepted.statement(parts.store.workspace), signature
    ):
        raise InvalidInput(
            "what was accepted is not signed along", hint="it may have changed meanwhile: do it again"
        )


async def _countersigned(parts: Parts, signature: str) -> None:
    countersign(parts.workspace.root.state, parts.workspace.consent, signature)
    parts.workspace.reload()
    await parts.changed()
