"""The store that a workspace's `store` setting names."""

from __future__ import annotations

from pathlib import Path

from packhost.errors import ConfigInvalid
from packhost.store.address import SCHEMES, Address, parse_address
from packhost.store.base import Store
from packhost.store.sqlite import STORE_NAME, SqliteStore
from packhost.workspace.secrets import SHORTEST, Secrets

SQLITE = "sqlite"


def open_store(setting: str, state: Path, workspace: str, secrets: Secrets) -> Store:
    """Open the store: `sqlite`, the address of a PostgreSQL database, or a reference to one.

    `state` is the workspace's state folder, `workspace` its name where the address has none. The
    address's password is kept out of whatever `secrets` redacts. Raises `ConfigInvalid` for an address
    that cannot be used, and as the stores do.
    """
    if setting == SQLITE:
        return SqliteStore(state / STORE_NAME, workspace)
    address = address_of(setting, workspace, secrets)
    from packhost.store.postgres import PostgresStore  # heavy, and an extra

    return PostgresStore(address, copies=state)


def address_of(setting: str, workspace: str, secrets: Secrets) -> Address:
    """The database that a setting other than `sqlite` names, which can be spoken to from here.

    Raises `ConfigInvalid` as `open_store`.
    """
    try:
        import psycopg  # noqa: F401  # heavy, and an extra
    except ImportError as error:
        raise ConfigInvalid(
            "a PostgreSQL store needs packhost's extra `postgres`",
            hint="install it: python3 -m pip install 'packhost[postgres]'",
        ) from error
    url = setting if setting.startswith(SCHEMES) else secrets.follow(setting, "the store's address")
    address = parse_address(url.strip(), workspace)
    for password in address.passwords:
        if len(password) >= SHORTEST:  # a shorter one would be found in every other word
            secrets.redactor.add(password)
    return address
