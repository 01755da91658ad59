"""What holds of an access token: a JWT (RFC 7519, RFC 9068) that its issuer signed for this very resource.

In this order: its form and size, who issued it, how it is signed, by which key, when and for whom it counts.
Where a key may be is never read from the token (`jku`, `jwk`, `x5u`, `x5c` mean nothing here), and a token
that asks for understanding of anything more (`crit`) is refused.
"""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from packhost.errors import InvalidInput

LONGEST: Final = 16_384
"""Characters of a token."""
LEEWAY: Final = 30
"""Seconds by which clocks may differ."""
_TYPES: Final = frozenset({"at+jwt", "application/at+jwt", "jwt", "application/jwt"})
_OTHERS: Final = frozenset({"id", "refresh", "logout"})
"""What some servers write into `typ` among the claims of what is no access token."""
_TIMES: Final = ("exp", "nbf", "iat")
_FOREVER: Final = 1e12


class TokenInvalid(InvalidInput):
    """An access token that does not count; its message may be shown to whoever sent it."""


@dataclass(frozen=True, slots=True)
class Said:
    """What a token says of itself, before anything of it was checked."""

    issuer: str
    algorithm: str
    kid: str | None


def is_jwt(token: str) -> bool:
    """Whether a bearer token has the form of a signed JWT; none that is made here has."""
    return token.count(".") == 2


def read(token: str) -> Said:
    """What a token says of itself; raises `TokenInvalid` for what is no access token in the first place."""
    if len(token) > LONGEST or not token.isascii():
        raise TokenInvalid(f"the token is longer than {LONGEST} characters, or none")
    head, body, _ = token.split(".")
    header, claims = _object(head), _object(body)
    algorithm, kid, issuer = header.get("alg"), header.get("kid"), claims.get("iss")
    kind = header.get("typ", "jwt")
    if not isinstance(kind, str) or kind.lower() not in _TYPES:
        raise TokenInvalid("the token is no access token: its `typ` is another")
    if "crit" in header or "b64" in header:
        raise TokenInvalid("the token asks for more than is understood here (`crit`)")
    if not isinstance(algorithm, str) or not isinstance(issuer, str):
        raise TokenInvalid("the token does not say who issued it and how it is signed")
    if kid is not None and not isinstance(kid, str):
        raise TokenInvalid("the token names its key by what is no text")
    return Said(issuer, algorithm, kid)


def _object(part: str) -> Mapping[str, Any]:
    try:
        value = json.loads(urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise TokenInvalid("the token cannot be read")
    return value


def verify(
    token: str, keys: Sequence[Any], algorithm: str, issuer: str, audiences: Collection[str]
) -> Mapping[str, Any]:
    """The claims of a token that one of the keys signed, where it counts now and here.

    :raises TokenInvalid: saying what is wrong with it.
    """
    import jwt  # brings `cryptography`, and only access tokens need it

    options: Any = {"require": ["exp", "iss", "aud"], "verify_sub": False, "verify_jti": False}
    for key in keys:
        try:
            claims = jwt.decode(
                token,
                key,
                algorithms=[algorithm],
                issuer=issuer,
                audience=list(audiences),
                leeway=LEEWAY,
                options=options,
            )
        except jwt.InvalidSignatureError:
            continue
        except jwt.PyJWTError as error:
            raise TokenInvalid(_said(error)) from None
        except (ValueError, TypeError, OverflowError, RecursionError):
            raise TokenInvalid("the token cannot be read") from None
        _check(claims)
        return claims
    raise TokenInvalid("the token is not signed by a key of its issuer")


def _check(claims: Mapping[str, Any]) -> None:
    for name in _TIMES:
        at = claims.get(name)
        if at is None and name != "exp" and name not in claims:
            continue
        # within what every clock can tell, since whoever counts on would else meet a number without end
        if isinstance(at, bool) or not isinstance(at, int | float) or not abs(at) < _FOREVER:
            raise TokenInvalid(f"`{name}` of the token is no time")
    kind = claims.get("typ")
    if isinstance(kind, str) and kind.lower() in _OTHERS:
        raise TokenInvalid("the token is no access token: its `typ` is another")
    if "cnf" in claims:  # whoever takes it without the proof gives away what binding it was for
        raise TokenInvalid("the token is bound to a key of its client, which is not looked at here")


def _said(error: Exception) -> str:
    """What is wrong, in words of ours: the library's may repeat what was sent."""
    import jwt  # as above

    known: tuple[tuple[type[Exception], str], ...] = (
        (jwt.ExpiredSignatureError, "the token has expired"),
        (jwt.ImmatureSignatureError, "the token does not count yet"),
        (jwt.InvalidAudienceError, "the token is for another resource"),
        (jwt.InvalidIssuerError, "the token is of another issuer"),
        (jwt.MissingRequiredClaimError, "the token lacks `exp`, `iss` or `aud`"),
    )
    return next((text for kind, text in known if isinstance(error, kind)), "the token cannot be used")
