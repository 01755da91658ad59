"""Signing at the terminal: the passphrase is read from `/dev/tty` and unseals the key in this process."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from packhost.cli.terminal import Terminal
from packhost.errors import InvalidInput, PackhostError
from packhost.rules.statements import (
    consent_statement,
    decision_statement,
    grant_statement,
    pruning_statement,
    succession_statement,
    token_statement,
)
from packhost.workspace.operator import LOST, SHORTEST, Signer, record_of, unseal

TRIES: Final = 3


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

    def _signed(self, at: float, statement: bytes) -> dict[str, Any]:
        return {"at": at, "signature": self.signer.sign(statement)}


def take_pen(
    terminal: Terminal, operator: Mapping[str, Any], what: str = "The operator's passphrase"
) -> Pen | None:
    """Ask for the passphrase; `None` when no operator is set up.

    :raises PackhostError: the operator is lost, or no right passphrase came.
    """
    if operator["state"] == "none":
        return None
    if operator["record"] is None:
        raise PackhostError(
            f"an operator is needed: {operator['why']}", code="APPROVAL_MODE_UNSUPPORTED", hint=LOST
        )
    record = record_of(operator["record"])
    for left in range(TRIES - 1, -1, -1):
        passphrase = terminal.secret(f"{what}: ")
        if not passphrase:
            break
        signer = unseal(record, passphrase)
        if signer is not None:
            return Pen(signer, operator["workspace"], operator["by"])
        terminal.write("That is not it.\n" if left else "That is not it either.\n")
    raise PackhostError(
        "no right passphrase was given, so nothing was done",
        code="APPROVAL_MODE_UNSUPPORTED",
        hint="only whoever knows the operator's passphrase can do this",
    )


def new_passphrase(terminal: Terminal) -> str:
    """A passphrase, asked twice.

    :raises InvalidInput: it is too short, or the two differ.
    """
    first = terminal.secret(f"A passphrase for the operator, {SHORTEST} characters or more: ")
    if first is None or len(first) < SHORTEST:
        raise InvalidInput("the passphrase is too short", hint=f"use {SHORTEST} characters or more")
    if terminal.secret("The same once more: ") != first:
        raise InvalidInput("the two passphrases differ", hint="nothing was set; start again")
    return first
