"""The page of who is signed in: their session and others, the operator's key, passkeys."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import Any, Final

from packhost.console.holding import Keys
from packhost.console.kit import Action, Moved, Page, Shown, Visit
from packhost.console.proving import base64url
from packhost.control.base import Control
from packhost.errors import InvalidInput, PackhostError
from packhost.workspace.pen import Pen

_HERE: Final = "/account"


def account(control: Control, keys: Keys) -> tuple[tuple[Page, ...], tuple[Action, ...]]:
    """The page and its actions. Whoever is signed in may see it; the host refuses what is not theirs."""
    desk = _Desk(control, keys)
    return (
        (Page(_HERE, desk.show, "tools:read"),),
        (
            Action("/account/unlock", desk.unlock, "approvals:decide"),
            Action("/account/lock", desk.lock, "tools:read"),
            Action("/account/sessions/{id}/end", desk.end, "tools:read"),
            Action("/account/passkeys", desk.enrol, "approvals:decide"),
            Action("/account/passkeys/{id}/remove", desk.remove, "approvals:decide"),
        ),
    )


@dataclass(frozen=True, slots=True)
class _Desk:
    control: Control
    keys: Keys

    async def show(self, visit: Visit) -> Shown:
        given = {"session": visit.secret}
        sessions = await self.control.request("console.sessions", given)
        passkeys = await self.control.request("console.passkeys", given)
        values: dict[str, Any] = {**sessions, **passkeys, "creation": None}
        if self.keys.left(visit.viewer.session) is not None and visit.host.endswith(".localhost"):
            values["creation"] = _creation(visit, [one["credential"] for one in passkeys["passkeys"]])
        return Shown("account.html", values)

    async def unlock(self, visit: Visit) -> Moved:
        # the frame has taken the passphrase, as it does from every form
        if self.keys.left(visit.viewer.session) is None:
            raise InvalidInput("no passphrase was given", hint="type the operator's passphrase")
        return Moved(_HERE, "the operator's key is unlocked")

    async def lock(self, visit: Visit) -> Moved:
        self.keys.lock(visit.viewer.session)
        return Moved(_HERE, "the operator's key is locked")

    async def end(self, visit: Visit) -> Moved:
        given = {"session": visit.secret, "id": visit.path["id"]}
        left = await self.control.request("console.leave", given)
        self.keys.lock(left["id"])
        return Moved(_HERE, "that session is over")

    async def enrol(self, visit: Visit) -> Moved:
        """Take a new passkey: by the operator's own key, which the passphrase has unlocked."""
        signer = visit.proof.signer
        if signer is None:
            raise PackhostError(
                "a new passkey needs the operator's passphrase",
                code="APPROVAL_MODE_UNSUPPORTED",
                hint="unlock the operator's key first",
            )
        credential, public_key = _registered(visit)
        pen = Pen(signer, visit.proof.workspace, visit.viewer.principal)
        name = visit.form.get("name").strip() or "passkey"
        params = {
            "session": visit.secret,
            "credential": credential,
            "public_key": public_key,
            "rp_id": visit.host,
            "name": name,
            "signed": pen.passkey(credential, public_key, visit.host, name),
        }
        made = await self.control.request("console.passkeys.add", params)
        return Moved(_HERE, f"the passkey `{made['name']}` now speaks for the operator")

    async def remove(self, visit: Visit) -> Moved:
        given = {"session": visit.secret, "id": visit.path["id"]}
        gone = await self.control.request("console.passkeys.remove", given)
        return Moved(_HERE, f"the passkey `{gone['name']}` speaks for nobody any more")


def _challenge(visit: Visit) -> bytes:
    # it need not be fresh: what makes a passkey count is the operator's signature over it
    return visit.viewer.session.encode("ascii")


def _creation(visit: Visit, known: list[str]) -> dict[str, Any]:
    """What a browser is asked to make a passkey by."""
    return {
        "rp": {"id": visit.host, "name": "packhost"},
        "user": {
            "id": base64url(visit.proof.workspace.encode()[:64]),
            "name": f"operator of {visit.workspace}"[:64],
            "displayName": "packhost operator",
        },
        "challenge": base64url(_challenge(visit)),
        "pubKeyCredParams": [{"type": "public-key", "alg": alg} for alg in (-8, -7, -257)],
        "authenticatorSelection": {"residentKey": "preferred", "userVerification": "required"},
        "attestation": "none",
        "excludeCredentials": [{"type": "public-key", "id": id} for id in known],
    }


def _registered(visit: Visit) -> tuple[str, str]:
    """The new passkey's identifier and public key, base64url.

    :raises PackhostError: it is no passkey of this console, or the library for it is not installed.
    """
    try:
        from webauthn import verify_registration_response  # needed by whoever uses passkeys alone
    except ImportError:
        raise PackhostError(
            "passkeys need one more package",
            code="CONFIG_INVALID",
            hint="install it: `pip install 'packhost[console]'`",
        ) from None
    try:
        credential = json.loads(visit.form.get("credential"))
        origin = json.loads(_decoded(credential["response"]["clientDataJSON"]))["origin"]
        if origin.partition("://")[2].partition(":")[0] != visit.host:
            raise ValueError("made under another name")
        made = verify_registration_response(
            credential=credential,
            expected_challenge=_challenge(visit),
            expected_rp_id=visit.host,
            expected_origin=origin,
            require_user_verification=True,
        )
    except Exception as error:  # whatever the library says of what the browser gave
        raise InvalidInput("this is no passkey that can be used here", hint=str(error)[:200]) from error
    return base64url(made.credential_id), base64url(made.credential_public_key)


def _decoded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
