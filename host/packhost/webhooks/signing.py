"""Signatures of deliveries, as Standard Webhooks has them; pure."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from typing import Final

from packhost.errors import ConfigInvalid

PREFIX: Final = "whsec_"
SHORTEST: Final = 24
"""Bytes of a key."""


def key_of(secret: str) -> bytes:
    """The key in a secret's value.

    :raises ConfigInvalid: it is no base64, or too short.
    """
    try:
        key = base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if len(key) < SHORTEST:
        raise ConfigInvalid(
            f"the secret is no key of {SHORTEST} bytes or more in base64",
            hint=f"make one: echo {PREFIX}$(head -c 32 /dev/urandom | base64)",
        )
    return key


def headers_of(id: str, at: float, body: bytes, key: bytes) -> dict[str, str]:
    """The headers by which a receiver knows whose a delivery is, which it is, and of when."""
    moment = str(int(at))
    said = f"{id}.{moment}.".encode() + body
    signature = base64.b64encode(hmac.new(key, said, hashlib.sha256).digest()).decode()
    return {"webhook-id": id, "webhook-timestamp": moment, "webhook-signature": f"v1,{signature}"}
