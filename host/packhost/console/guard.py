"""What a request must be before anything is looked up for it, and what every answer says to the browser.

A console is reached on this machine alone, by names that a web page elsewhere cannot take (DNS rebinding).
A browser says of each POST where it comes from: forms of other origins are refused, whatever they bring.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import re
from collections.abc import Callable, Mapping
from typing import Final
from urllib.parse import unquote

from starlette.datastructures import Headers

from packhost.errors import PackhostError

COOKIE: Final = "__Host-packhost"
"""By this prefix a browser keeps the cookie to this very host name and to `Secure`, on loopback too."""
BODY: Final = 512 * 1024
"""Bytes of a form, at most."""
HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self';"
    " connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cache-Control": "no-store",
}
"""On every answer. No script or style stands in a page, so none that is smuggled into one runs."""
_NAMES: Final = frozenset({"127.0.0.1", "localhost", "[::1]"})
_HOST: Final = re.compile(r"(\[::1\]|[a-z0-9.-]{1,253})(?::[0-9]{1,5})?")
_FREE: Final = 5
"""Failures after which the next attempt must wait."""
_LONGEST: Final = 300.0
_FORGOTTEN: Final = 900.0


def host_name(headers: Headers, own: str) -> str | None:
    """The name by which the console was reached; `None` when it is none of its own."""
    given = headers.getlist("host")
    found = _HOST.fullmatch(given[0].lower()) if len(given) == 1 else None
    return found[1] if found is not None and found[1] in _NAMES | {own} else None


def same_origin(headers: Headers) -> bool:
    """Whether a page of this very origin sent it, as the browser says.

    Pages without a referrer send `Origin: null` along with `Sec-Fetch-Site`, which no script can set.
    """
    site, origins = headers.get("sec-fetch-site"), headers.getlist("origin")
    if site is not None and site != "same-origin":
        return False
    if origins == ["null"] or not origins:
        return site == "same-origin"
    return origins == [f"http://{headers.get('host', '').lower()}"]


def csrf_token(secret: str) -> str:
    """What every form of a session brings along; it can be worked out from the session's secret alone."""
    return hmac.new(secret.encode(), b"packhost csrf", hashlib.sha256).hexdigest()


def local_path(given: str, base: str) -> str | None:
    """A path of the console, so that nobody is led elsewhere; `None` when it is none."""
    plain = unquote(given)
    if not plain.isprintable() or "\\" in plain or "//" in plain or len(plain) > 2_000:
        return None
    return given if given == base or given.startswith((f"{base}/", f"{base}?")) else None


def cookie(value: str, lasts: float) -> str:
    """The `Set-Cookie` header of a session; an empty value takes it away."""
    age = 0 if not value else math.floor(lasts)
    return f"{COOKIE}={value}; Path=/; Max-Age={age}; Secure; HttpOnly; SameSite=Strict"


class Attempts:
    """Slows down who fails to sign in: the account's own processes for themselves, strangers for theirs."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._failed: dict[bool, tuple[int, float]] = {}

    def check(self, own: bool) -> None:
        """Raise `LIMIT_EXCEEDED`, with `data["retry_after"]`, when it is too early to try again."""
        failed, last = self._failed.get(own, (0, 0.0))
        left = last + self._pause(failed) - self._clock()
        if left > 0:
            raise PackhostError(
                f"too many attempts failed; the next one counts in {math.ceil(left)} s",
                code="LIMIT_EXCEEDED",
                hint="wait, then try once more",
                retry_after=math.ceil(left),
            )

    def failed(self, own: bool) -> None:
        """One attempt failed."""
        failed, last = self._failed.get(own, (0, 0.0))
        now = self._clock()
        self._failed[own] = (failed + 1 if now - last < _FORGOTTEN else 1, now)

    def succeeded(self, own: bool) -> None:
        """One attempt was right: the failures before it are forgotten."""
        self._failed.pop(own, None)

    @staticmethod
    def _pause(failed: int) -> float:
        return 0.0 if failed < _FREE else min(2.0 ** (failed - _FREE + 1), _LONGEST)
