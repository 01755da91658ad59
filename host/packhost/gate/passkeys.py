"""Passkeys that speak for the operator: an assertion in the place of the operator's signature.

The challenge of an assertion is the SHA-256 of the very statement that is signed, so it is for exactly one
thing, as a signature is. It is kept as text, and whoever checks a signature later checks it in the same way.
A passkey counts as long as the present operator's signature over its enrolment does.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any, Final

from packhost.errors import PackhostError
from packhost.rules.statements import passkey_statement
from packhost.store.ops.consoles import PasskeyRow
from packhost.workspace.operator import signed_by

_PREFIX: Final = "passkey:"
_ORIGIN: Final = re.compile(r"http://([a-z0-9-]{1,63}\.localhost)(?::[0-9]{1,5})?")
"""Where a console is: under a name of its own, for any page on `localhost` could use a passkey of that."""
_LONGEST: Final = 16_384
_PARTS: Final = ("id", "authenticatorData", "clientDataJSON", "signature")


def is_assertion(signature: str) -> bool:
    """Whether a signature is a passkey's."""
    return signature.startswith(_PREFIX)


def challenge_of(statement: bytes) -> bytes:
    """What an authenticator is asked to sign for a statement."""
    return hashlib.sha256(statement).digest()


def signature_of(assertion: Mapping[str, Any]) -> str:
    """What is kept of a browser's assertion, in the place of a signature.

    :raises PackhostError: it is no assertion.
    """
    response = assertion.get("response")
    given = {**(response if isinstance(response, Mapping) else {}), "id": assertion.get("id")}
    kept = {name: given.get(name) for name in _PARTS}
    text = json.dumps(kept, separators=(",", ":"), sort_keys=True)
    if not all(isinstance(value, str) for value in kept.values()) or len(text) > _LONGEST:
        raise PackhostError("this is no passkey's answer", code="INVALID_INPUT", hint="try again")
    return _PREFIX + text


def enrolled(row: PasskeyRow, workspace: str, public_key: str) -> bool:
    """Whether the operator with this key signed that the passkey speaks for them."""
    said = passkey_statement(
        workspace=workspace,
        credential=row.credential,
        public_key=row.public_key,
        rp_id=row.rp_id,
        name=row.name,
        by=row.added_by,
        at=row.added_at,
    )
    return signed_by(public_key, said, row.signature)


def asserted(statement: bytes, signature: str, rows: tuple[PasskeyRow, ...]) -> bool:
    """Whether one of these passkeys, its user verified, answered for exactly this statement; never raises."""
    try:
        kept = json.loads(signature.removeprefix(_PREFIX)[: _LONGEST + 1])
        row = next((row for row in rows if row.credential == kept["id"]), None)
        if row is None or not all(isinstance(kept.get(name), str) for name in _PARTS):
            return False
        origin = json.loads(_bytes(kept["clientDataJSON"]))["origin"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return False
    found = _ORIGIN.fullmatch(origin) if isinstance(origin, str) else None
    if found is None or found[1] != row.rp_id:
        return False
    return _verified(statement, kept, row, origin)


def _verified(statement: bytes, kept: Mapping[str, str], row: PasskeyRow, origin: str) -> bool:
    try:
        from webauthn import verify_authentication_response  # a host without passkeys need not have it
    except ImportError:
        return False
    credential = {
        "id": kept["id"],
        "rawId": kept["id"],
        "type": "public-key",
        "response": {name: kept[name] for name in _PARTS if name != "id"},
    }
    try:
        verify_authentication_response(
            credential=credential,
            expected_challenge=challenge_of(statement),
            expected_rp_id=row.rp_id,
            expected_origin=origin,
            credential_public_key=_bytes(row.public_key),
            credential_current_sign_count=0,  # an answer is for one statement: nothing is gained by a second
            require_user_verification=True,
        )
    except Exception:  # whatever the library says of what it was given: it is no proof
        return False
    return True


def _bytes(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
