"""Where consoles show this workspace."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from packhost.errors import InvalidInput

_URL: Final = re.compile(r"http://(?:127\.0\.0\.1|localhost|\[::1\]):[0-9]{1,5}")


class Consoles:
    """The addresses of consoles that run; a page's address is `URL/console/…`."""

    __slots__ = ("_urls",)

    def __init__(self) -> None:
        self._urls: dict[object, str] = {}

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


def checked_url(given: str) -> str:
    """An address that a console may have: this machine's own.

    :raises InvalidInput: it is another one, to which nobody is sent.
    """
    if _URL.fullmatch(given) is None:
        raise InvalidInput(f"`{given[:80]}` is no address of a console", hint="give http://127.0.0.1:PORT")
    return given
