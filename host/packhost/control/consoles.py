"""Where consoles show this workspace, and what the host gives out once for signing in to one."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Literal

from packhost.errors import InvalidInput
from packhost.journal import digest

_URL: Final = re.compile(r"http://(?:127\.0\.0\.1|(?:[a-z0-9-]{1,63}\.)?localhost|\[::1\]):[0-9]{1,5}")
_MOST: Final = 256
"""Tickets, and nonces, that are out at once; the oldest gives way."""
Kind = Literal["ticket", "nonce"]
LASTS: Final = 120.0
"""Seconds for which a ticket or a nonce can be used."""


class Consoles:
    """The addresses of consoles that run; a page's address is `URL/console/…`.

    Tickets and nonces are kept by their digests, in this process alone: they end with it.
    """

    __slots__ = ("_out", "_urls")

    def __init__(self) -> None:
        self._urls: dict[object, str] = {}
        self._out: dict[Kind, dict[str, float]] = {"ticket": {}, "nonce": {}}

    @property
    def url(self) -> str | None:
        """The one that was opened last; `None` while none runs."""
        return next(reversed(self._urls.values()), None)

    @contextmanager
    def shown_at(self, url: str) -> Iterator[None]:
        """Know of a console while the block runs."""
        key = object()
        self._urls[key] = url
        try:
            yield
        finally:
            del self._urls[key]

    def give_out(self, kind: Kind, now: float) -> str:
        """A secret that is good once, for `LASTS` seconds."""
        out = {key: until for key, until in self._out[kind].items() if until > now}
        while len(out) >= _MOST:
            del out[next(iter(out))]
        made = secrets.token_urlsafe(32)
        self._out[kind] = {**out, digest(made): now + LASTS}
        return made

    def take_back(self, kind: Kind, given: str, now: float) -> bool:
        """Whether it was given out and not used yet; from now on it is used."""
        return self._out[kind].pop(digest(given), 0.0) > now


def checked_url(given: str) -> str:
    """An address that a console may have: this machine's own.

    :raises InvalidInput: it is another one, to which nobody is sent.
    """
    if _URL.fullmatch(given) is None:
        raise InvalidInput(f"`{given[:80]}` is no address of a console", hint="give http://127.0.0.1:PORT")
    return given
