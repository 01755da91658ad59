"""How whoever is signed in proves that the operator acts: by the unlocked key, or by a passkey.

With a passkey a form is sent twice. First it asks: what would be signed becomes challenges, and nothing is
done. Then it brings the authenticator's answers, in the same order.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from packhost.errors import InvalidInput, PackhostError
from packhost.gate.passkeys import challenge_of, signature_of
from packhost.rules.statements import decision_statement, entry_statement, grant_statement
from packhost.workspace.operator import Signer

_MOST: Final = 4
"""Answers that one form brings."""


class ChallengesWanted(Exception):
    """The form only asked what a passkey has to sign."""

    def __init__(self, challenges: list[dict[str, Any]]) -> None:
        super().__init__()
        self.challenges = challenges


@dataclass(slots=True)
class Proof:
    """What proves one request's acts: an unlocked `signer`, a passkey's `answers`, or nothing.

    `asks` is set for a form that asks for challenges.
    """

    workspace: str
    signer: Signer | None = None
    answers: list[tuple[float, str]] = field(default_factory=list)
    asks: bool = False
    _challenges: list[dict[str, Any]] = field(default_factory=list)

    async def decision(
        self, approval: Mapping[str, Any], verdict: str, reason: str, by: str
    ) -> dict[str, Any]:
        """The signature of an answer to an approval."""
        return self._signed(
            lambda at: decision_statement(
                workspace=approval["workspace"],
                approval_id=approval["id"],
                binding=approval["binding"],
                verdict=verdict,
                reason=reason,
                by=by,
                at=at,
                expires_at=approval["expires_at"],
            )
        )

    async def grant(
        self, offer: Mapping[str, Any], expires_in: float | None, uses: int | None, by: str
    ) -> dict[str, Any]:
        """The signature of a grant as it was offered."""
        return self._signed(
            lambda at: grant_statement(
                workspace=self.workspace,
                principal=offer["principal"],
                tool=offer["tool"],
                tool_version=offer["tool_version"],
                match=offer["match"],
                expires_in=expires_in,
                max_uses=uses,
                by=by,
                at=at,
            )
        )

    def entry(self, nonce: str, by: str) -> dict[str, Any]:
        """The signature of signing in."""
        return self._signed(lambda at: entry_statement(workspace=self.workspace, nonce=nonce, by=by, at=at))

    def collected(self) -> None:
        """End a form that only asks; nothing happens in one that does not.

        :raises ChallengesWanted: with what a passkey has to sign.
        """
        if self.asks:
            raise ChallengesWanted(self._challenges)

    def _signed(self, statement: Callable[[float], bytes]) -> dict[str, Any]:
        if self.asks:
            at = round(time.time(), 3)
            self._challenges.append({"at": at, "challenge": base64url(challenge_of(statement(at)))})
            return {"at": at, "signature": ""}
        if self.answers:
            at, signature = self.answers.pop(0)
            return {"at": at, "signature": signature}
        if self.signer is None:
            raise PackhostError(
                "this needs the operator: their passphrase, or a passkey of theirs",
                code="APPROVAL_MODE_UNSUPPORTED",
                hint="type the passphrase beside the answer",
            )
        at = time.time()
        return {"at": at, "signature": self.signer.sign(statement(at))}


def answers_of(text: str) -> list[tuple[float, str]]:
    """What a browser's authenticator answered: times and signatures.

    :raises InvalidInput: it is something else.
    """
    if not text:
        return []
    try:
        given = json.loads(text)
        found = [(float(one["at"]), signature_of(one["assertion"])) for one in given[: _MOST + 1]]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        found = []
    if not 0 < len(found) <= _MOST:
        raise InvalidInput("this is no passkey's answer", hint="try again")
    return found


def base64url(data: bytes) -> str:
    """Bytes as browsers write them."""
    return base64.urlsafe_b64encode(data).decode("ascii").rstrip("=")
