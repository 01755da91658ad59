"""An authenticator made of software: makes passkeys and answers challenges as a browser hands them on."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
from typing import Any

import cbor2
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

PRESENT, VERIFIED, ATTESTED = 0x01, 0x04, 0x40


def base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


class Authenticator:
    """One passkey, for one name; `flags` are what it says of its user."""

    def __init__(self, rp_id: str, origin: str, flags: int = PRESENT | VERIFIED) -> None:
        self.rp_id = rp_id
        self.origin = origin
        self.flags = flags
        self.id = secrets.token_bytes(16)
        self._key = ec.generate_private_key(ec.SECP256R1())

    def created(self, challenge: str) -> dict[str, Any]:
        """What a browser gives for a new passkey."""
        numbers = self._key.public_key().public_numbers()
        x, y = (number.to_bytes(32, "big") for number in (numbers.x, numbers.y))
        key = cbor2.dumps({1: 2, 3: -7, -1: 1, -2: x, -3: y})
        attested = bytes(16) + len(self.id).to_bytes(2, "big") + self.id + key
        found = {"fmt": "none", "attStmt": {}, "authData": self._data(self.flags | ATTESTED) + attested}
        response = {
            "attestationObject": base64url(cbor2.dumps(found)),
            "clientDataJSON": base64url(self._client("webauthn.create", challenge)),
        }
        return {
            "id": base64url(self.id),
            "rawId": base64url(self.id),
            "type": "public-key",
            "response": response,
        }

    def answered(self, challenge: str) -> dict[str, Any]:
        """What the console's script hands on of an answer."""
        client, data = self._client("webauthn.get", challenge), self._data(self.flags)
        signed = self._key.sign(data + hashlib.sha256(client).digest(), ec.ECDSA(hashes.SHA256()))
        response = {
            "authenticatorData": base64url(data),
            "clientDataJSON": base64url(client),
            "signature": base64url(signed),
        }
        return {"id": base64url(self.id), "response": response}

    def answers(self, challenges: list[dict[str, Any]]) -> str:
        """The form's field for all that the console asked."""
        return json.dumps(
            [{"at": one["at"], "assertion": self.answered(one["challenge"])} for one in challenges]
        )

    def _data(self, flags: int) -> bytes:
        return hashlib.sha256(self.rp_id.encode()).digest() + bytes([flags]) + bytes(4)

    def _client(self, kind: str, challenge: str) -> bytes:
        return json.dumps({"type": kind, "challenge": challenge, "origin": self.origin}).encode()
