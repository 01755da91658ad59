"""An operator's key at work: it signs what was shown, in the process of whoever decides."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from packhost.rules.statements import (
    consent_statement,
    decision_statement,
    entry_statement,
    grant_statement,
    passkey_statement,
    pruning_statement,
    succession_statement,
    token_statement,
)
from packhost.workspace.operator import Signer


@dataclass(frozen=True, slots=True)
class Pen:
    """An unsealed key with what every statement names; `by` is the name that the host records."""

    signer: Signer
    workspace: str
    by: str

    def decision(self, approval: Mapping[str, Any], verdict: str, reason: str) -> dict[str, Any]:
        """The signature of an answer to the question that was shown."""
        at = time.time()
        return self._signed(
            at,
            decision_statement(
                workspace=approval["workspace"],
                approval_id=approval["id"],
                binding=approval["binding"],
                verdict=verdict,
                reason=reason,
                by=self.by,
                at=at,
                expires_at=approval["expires_at"],
            ),
        )

    def grant(self, offer: Mapping[str, Any], expires_in: float | None, uses: int | None) -> dict[str, Any]:
        """The signature of a grant as it was shown."""
        at = time.time()
        return self._signed(
            at,
            grant_statement(
                workspace=self.workspace,
                principal=offer["principal"],
                tool=offer["tool"],
                tool_version=offer["tool_version"],
                match=offer["match"],
                expires_in=expires_in,
                max_uses=uses,
                by=self.by,
                at=at,
            ),
        )

    def consent(self, seen: str) -> dict[str, Any]:
        """The signature of an acceptance of what was shown."""
        at = time.time()
        return self._signed(at, consent_statement(workspace=self.workspace, seen=seen, by=self.by, at=at))

    def token(self, plan: Mapping[str, Any]) -> dict[str, Any]:
        """The signature of a new bearer token as it was shown."""
        at = time.time()
        return self._signed(
            at,
            token_statement(
                workspace=self.workspace,
                name=plan["name"],
                role=plan["role"],
                principal=plan["principal"],
                scopes=plan["scopes"],
                expires_in=plan["expires_in"],
                by=self.by,
                at=at,
            ),
        )

    def pruning(self, events: Mapping[str, Any], exported: str | None) -> dict[str, Any]:
        """The signature of a pruning of events as it was shown."""
        at = time.time()
        span = {name: events[name] for name in ("first", "last", "last_hash")}
        said = pruning_statement(workspace=self.workspace, exported=exported, by=self.by, at=at, **span)
        return self._signed(at, said)

    def succession(self, present: str, next: str | None) -> dict[str, Any]:
        """The signature by which the present operator gives way."""
        at = time.time()
        return self._signed(
            at,
            succession_statement(workspace=self.workspace, present=present, next=next, by=self.by, at=at),
        )

    def entry(self, nonce: str) -> dict[str, Any]:
        """The signature by which the operator signs in to a console."""
        at = time.time()
        return self._signed(at, entry_statement(workspace=self.workspace, nonce=nonce, by=self.by, at=at))

    def passkey(self, credential: str, public_key: str, rp_id: str, name: str) -> dict[str, Any]:
        """The signature by which a passkey comes to speak for the operator."""
        at = time.time()
        said = passkey_statement(
            workspace=self.workspace,
            credential=credential,
            public_key=public_key,
            rp_id=rp_id,
            name=name,
            by=self.by,
            at=at,
        )
        return self._signed(at, said)

    def _signed(self, at: float, statement: bytes) -> dict[str, Any]:
        return {"at": at, "signature": self.signer.sign(statement)}
