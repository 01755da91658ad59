"""Cursors: where a reader was. They say nothing to whoever holds them, and none can be made up.

A cursor of events holds an event's number and is bound to its run; one of a list holds the last id and is
bound to the list and to whose it is. Both end in a keyed digest, so that any other is told apart.
"""

from __future__ import annotations

import hashlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error, b2a_base64
from collections.abc import Callable
from typing import Final

from packhost.http.problems import Problem

_URL_SAFE: Final = bytes.maketrans(b"+/", b"-_")
_SEAL: Final = 10
_NUMBER: Final = 8
_LONGEST: Final = 512


class Cursors:
    """Makes and reads cursors with one key of 32 bytes, the same for every replica of a workspace."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def of_run(self, run_id: str) -> EventCursors:
        """The cursors of one run's events."""
        return EventCursors(self._derived("events", run_id))

    def seal(self, about: str, id: str) -> str:
        """A cursor of the list `about`, after the entry `id`."""
        data = id.encode()
        return _text(_digest(self._derived(about), data) + data)

    def read(self, about: str, cursor: str | None) -> str | None:
        """The id in a cursor of that list; `None` for none.

        :raises Problem: 400 when it is not one.
        """
        if not cursor:
            return None
        raw = _raw(cursor)
        if _digest(self._derived(about), raw[_SEAL:]) != raw[:_SEAL]:
            raise _foreign()
        return raw[_SEAL:].decode()

    def session(self, principal: str) -> str:
        """The session of what a principal asks for by itself.

        Nobody can name it before: a session belongs to whoever mentions it first.
        """
        return f"api-{self._derived('session', principal).hex()[:20]}"

    def _derived(self, *about: str) -> bytes:
        return hashlib.blake2b("\0".join(about).encode("utf-8", "replace"), key=self._key).digest()


class EventCursors:
    """The cursors of one run's events."""

    def __init__(self, key: bytes) -> None:
        self._base = hashlib.blake2b(digest_size=_SEAL, key=key)

    def maker(self) -> Callable[[int], str]:
        """What makes cursors of events' numbers; replay asks it tens of thousands of times a second."""
        base = self._base

        def make(number: int) -> str:
            data = number.to_bytes(_NUMBER, "big")
            hash = base.copy()
            hash.update(data)
            return b2a_base64(data + hash.digest(), newline=False).translate(_URL_SAFE).decode()

        return make

    def seal(self, number: int) -> str:
        """The cursor of one event."""
        return self.maker()(number)

    def read(self, cursor: str | None) -> int:
        """The number of the event after which to go on; 0 for none.

        :raises Problem: 400 when it is not a cursor of this run's events.
        """
        if not cursor:
            return 0
        raw = _raw(cursor)
        number = int.from_bytes(raw[:_NUMBER], "big")
        if len(raw) != _NUMBER + _SEAL or self.seal(number) != cursor:
            raise _foreign()
        return number


def _digest(key: bytes, data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=_SEAL, key=key).digest()


def _text(raw: bytes) -> str:
    return urlsafe_b64encode(raw).decode().rstrip("=")


def _raw(cursor: str) -> bytes:
    if len(cursor) > _LONGEST or not cursor.isascii():
        raise _foreign()
    try:
        return urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
    except Error:
        raise _foreign() from None


def _foreign() -> Problem:
    return Problem(
        400,
        "INVALID_INPUT",
        "the cursor is not one that was given out here",
        hint="take it from the last reply of this very list or run, or leave it out to begin at the start",
    )
