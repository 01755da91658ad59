"""Where a PostgreSQL store lies: the address as it is written, taken apart. The password stays inside.

    postgresql://USER@HOST:PORT/DATABASE?workspace=NAME

`workspace` is ours: it names the PostgreSQL schema that holds the workspace, so that hosts on several
machines that name the same share it. Left out, it is the hash of the workspace's own path.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from hashlib import sha256
from urllib.parse import unquote

from packhost.errors import ConfigInvalid

SCHEMES = ("postgresql://", "postgres://")
_SECRET = ("password=", "sslpassword=")
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,47}\Z")
_SHAPE = "write `postgresql://USER@HOST:PORT/DATABASE?workspace=NAME`, special characters as %XX"


@dataclass(frozen=True, slots=True)
class Address:
    """A database and the workspace in it; `url` is libpq's and may hold the password."""

    url: str = field(repr=False)
    workspace: str
    shown: str
    passwords: tuple[str, ...] = field(repr=False)

    @property
    def schema(self) -> str:
        """The PostgreSQL schema that holds the workspace, and the channel that tells of its commits."""
        return f"packhost_{self.workspace}"

    @property
    def lock(self) -> int:
        """The key of the advisory lock that lets one writer in at a time."""
        return self._key("writer")

    @property
    def migration_lock(self) -> int:
        """The key of the advisory lock of whoever brings the schema up to date."""
        return self._key("migration")

    def _key(self, purpose: str) -> int:
        return int.from_bytes(sha256(f"{self.schema}\0{purpose}".encode()).digest()[:8], "big", signed=True)

    def clean(self, text: str) -> str:
        """A text of the database's, on one line and without the password."""
        for password in self.passwords:
            text = text.replace(password, "…")
        return " ".join(text.split())


def parse_address(url: str, workspace: str) -> Address:
    """Take an address apart; `workspace` is the name where the address has none.

    Raises `ConfigInvalid`; the error never holds the address, since that may hold a password.
    """
    if not url.startswith(SCHEMES):
        raise ConfigInvalid("the store is no address of a PostgreSQL database", hint=_SHAPE)
    if "#" in url:
        raise ConfigInvalid("the address of the store has a `#` that is not written as %23", hint=_SHAPE)
    base, _, query = url.partition("?")
    options = [option for option in query.split("&") if option]
    named = [option.partition("=")[2] for option in options if option.startswith("workspace=")]
    if len(named) > 1 or not all(_NAME.match(name) for name in named):
        raise ConfigInvalid(
            "the workspace's name in the address of the store cannot be used",
            hint="write `workspace=` once, with a-z, 0-9, `-` and `_`, at most 48 of them",
        )
    rest = [option for option in options if not option.startswith("workspace=")]
    scheme, _, place = base.partition("://")
    user, _, server = place.rpartition("@")
    name, _, password = user.partition(":")
    secret = [option.partition("=")[2] for option in rest if option.startswith(_SECRET)] + [password]
    known = {form for value in secret if value for form in (value, unquote(value))}
    return Address(
        url="?".join(filter(None, (base, "&".join(rest)))),
        workspace=named[0] if named else workspace,
        shown=f"{scheme}://{name + '@' if name else ''}{server}",
        passwords=tuple(sorted(known, key=len, reverse=True)),
    )
