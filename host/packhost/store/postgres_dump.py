"""Copies of a workspace's PostgreSQL schema by the database's own `pg_dump` and `pg_restore`."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

from psycopg.conninfo import conninfo_to_dict, make_conninfo

from packhost.errors import StoreUnavailable
from packhost.store.address import Address

WITHIN = 3600.0
"""Seconds for a copy."""
_SECRETS = {"password": "PGPASSWORD", "sslpassword": "PGSSLPASSWORD"}


def dump(address: Address, target: Path) -> None:
    """Write the workspace's schema to `target`, which must not exist, in `pg_dump`'s custom format.

    Raises `StoreUnavailable` when there is no `pg_dump` or it fails; `target` is then not there.
    """
    fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        options = ["--format=custom", "--no-owner", "--no-privileges", f'--schema="{address.schema}"']
        _run(address, "pg_dump", *options, output=fd)
        os.fsync(fd)
    except BaseException:
        target.unlink(missing_ok=True)
        raise
    finally:
        os.close(fd)


def restore(address: Address, source: Path) -> None:
    """Put what `dump` wrote in the place of the workspace's schema, as a whole or not at all.

    Raises `StoreUnavailable` when there is no `pg_restore` or it fails.
    """
    options = ["--single-transaction", "--clean", "--if-exists", "--exit-on-error", "--no-owner"]
    _run(address, "pg_restore", *options, "--no-privileges", str(source.absolute()))


def _run(address: Address, program: str, *arguments: str, output: int = subprocess.DEVNULL) -> None:
    path = shutil.which(program)
    if path is None:
        raise StoreUnavailable(
            f"`{program}` was not found",
            hint="install PostgreSQL's client programs, of the server's version or later",
        )
    given: dict[str, Any] = dict(conninfo_to_dict(address.url))
    # by the environment, since every user of the machine can read a command line
    secret = {name: str(given.pop(key)) for key, name in _SECRETS.items() if key in given}
    try:
        done = subprocess.run(  # noqa: S603  # the database's own program, with no shell
            [path, "--no-password", f"--dbname={make_conninfo(**given)}", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.PIPE,
            env={**os.environ, **secret},
            timeout=WITHIN,
            text=True,
            errors="replace",
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise StoreUnavailable(f"`{program}` failed: {error}", hint="try again") from None
    if done.returncode != 0:
        said = address.clean(
            done.stderr.strip().splitlines()[0] if done.stderr.strip() else "no reason given"
        )
        raise StoreUnavailable(
            f"`{program}` failed: {said}",
            hint="it must be of the server's version or later, and its user must own the schema",
        )
