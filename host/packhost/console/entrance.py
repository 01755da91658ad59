"""Signing in: by a ticket, a token, the operator's passphrase or a passkey of theirs."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import anyio

from packhost.console.guard import Attempts
from packhost.console.holding import Keys
from packhost.console.kit import Form
from packhost.console.proving import Proof, answers_of, base64url
from packhost.control.base import Control
from packhost.errors import InvalidInput, PackhostError
from packhost.gate.passkeys import challenge_of
from packhost.rules.statements import entry_statement
from packhost.workspace.operator import Signer


@dataclass(frozen=True, slots=True)
class Entered:
    """A session that was opened: its secret, for the cookie alone, and the seconds that it lasts at most."""

    secret: str
    lasts: float


class Entrance:
    """Lets people in, and slows down who guesses."""

    def __init__(self, control: Control, keys: Keys, attempts: Attempts) -> None:
        self._control = control
        self._keys = keys
        self._attempts = attempts
        self._turn = anyio.Lock()  # else many guesses at once would all be in time

    async def shown(self, host: str, own: bool, where: str) -> dict[str, Any]:
        """What the page for signing in is filled with; strangers learn of tokens alone."""
        door = await self._control.request("console.door", {})
        here = [one["credential"] for one in door["passkeys"] if one["rp_id"] == host]
        return {
            "own": own,
            "passphrase": own and door["operator"] == "ready",
            "passkeys": own and bool(here),
            "next": where,
        }

    async def challenge(self, host: str, own: bool) -> dict[str, Any]:
        """What a passkey is to sign to let somebody in."""
        _only(own)
        asked = await self._control.request("console.nonce", {})
        door = await self._control.request("console.door", {})
        at = round(time.time(), 3)
        said = entry_statement(workspace=asked["workspace"], nonce=asked["nonce"], by=asked["by"], at=at)
        return {
            "nonce": asked["nonce"],
            "challenges": [{"at": at, "challenge": base64url(challenge_of(said))}],
            "rp_id": host,
            "allow": [one["credential"] for one in door["passkeys"] if one["rp_id"] == host],
        }

    async def enter(self, form: Form, own: bool) -> Entered:
        """Open a session by what the form brings.

        :raises PackhostError: it opens none, or it is too early to try again.
        """
        async with self._turn:
            return await self._enter(form, own)

    async def _enter(self, form: Form, own: bool) -> Entered:
        self._attempts.check(own)
        signer: Signer | None = None
        try:
            if form.get("passphrase"):
                _only(own)
                signer = await self._unsealed(form.get("passphrase"))
            opened = await self._control.request("console.login", await self._params(form, own, signer))
        except PackhostError as error:
            if error.code != "STORE_UNAVAILABLE":
                self._attempts.failed(own)
            raise
        self._attempts.succeeded(own)
        if signer is not None:
            self._keys.keep(opened["id"], signer)
        return Entered(opened["secret"], opened["expires_at"] - opened["created_at"])

    async def _params(self, form: Form, own: bool, signer: Signer | None) -> dict[str, Any]:
        if signer is not None:
            asked = await self._control.request("console.nonce", {})
            proof = Proof(asked["workspace"], signer)
            return {"nonce": asked["nonce"], "signed": proof.entry(asked["nonce"], asked["by"])}
        if form.get("passkey"):
            _only(own)
            at, signature = answers_of(form.get("passkey"))[0]
            return {"nonce": form.get("nonce"), "signed": {"at": at, "signature": signature}}
        if form.get("ticket").strip():
            _only(own)
            return {"ticket": form.get("ticket").strip()}
        if form.get("token").strip():
            return {"token": form.get("token").strip(), "foreign": not own}
        raise InvalidInput("nothing was given to sign in with", hint="run `packhost console`")

    async def unsealed(self, passphrase: str, own: bool) -> Signer:
        """The operator's key.

        :raises PackhostError: that is not the passphrase, or it is too early to try again.
        """
        async with self._turn:
            self._attempts.check(own)
            try:
                signer = await self._unsealed(passphrase)
            except PackhostError:
                self._attempts.failed(own)
                raise
            self._attempts.succeeded(own)
            return signer

    async def _unsealed(self, passphrase: str) -> Signer:
        operator: Mapping[str, Any] = await self._control.request("operator.show", {})
        signer = await self._keys.unseal(operator, passphrase)
        if signer is None:
            raise PackhostError(
                "that is not the operator's passphrase",
                code="POLICY_DENIED",
                hint="it is the one given to `packhost operator set`",
            )
        return signer


def _only(own: bool) -> None:
    if not own:
        raise PackhostError(
            "another account's process can sign in by a token alone",
            code="POLICY_DENIED",
            hint="make one with `packhost tokens new`",
        )
