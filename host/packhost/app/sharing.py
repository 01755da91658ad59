"""What hosts that share a store must have in common: the host's key, and what was accepted."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from packhost.errors import ConfigInvalid
from packhost.executions.membership import Membership, replica
from packhost.store.base import Store
from packhost.store.opening import SQLITE
from packhost.workspace.consent import seen_digest
from packhost.workspace.workspace import Workspace

KEY_NAME = "host.key"
KEY_VARIABLE = "PACKHOST_HOST_KEY_FILE"
_SHORTEST = 32


def host_key(state: Path, environ: Mapping[str, str]) -> bytes:
    """The host's own key, made at first use; it outlives the process so that questions do.

    The file that PACKHOST_HOST_KEY_FILE names goes before the one in the state folder. Raises
    `ConfigInvalid` when that cannot be read or is too short.
    """
    given = environ.get(KEY_VARIABLE)
    if given:
        return _given(Path(given))
    path = state / KEY_NAME
    with suppress(FileNotFoundError):
        key = path.read_bytes()
        if len(key) >= _SHORTEST:
            return key
    key = secrets.token_bytes(_SHORTEST)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    with open(descriptor, "wb") as file:
        file.write(key)
        file.flush()
        os.fsync(descriptor)
    return key


def _given(path: Path) -> bytes:
    try:
        key = path.read_bytes()
    except OSError as error:
        raise ConfigInvalid(
            f"the host's key `{path}` cannot be read: {(error.strerror or 'it failed').lower()}",
            hint=f"copy `{KEY_NAME}` from the state folder of another host, and name it by {KEY_VARIABLE}",
        ) from None
    if len(key) < _SHORTEST:
        raise ConfigInvalid(
            f"the host's key `{path}` has fewer than {_SHORTEST} bytes",
            hint=f"copy `{KEY_NAME}` from the state folder of another host",
        )
    return key


def key_sha(key: bytes) -> str:
    """What stands for a key in the store, from which nothing of it can be told."""
    return hmac.new(key, b"fingerprint", hashlib.sha256).hexdigest()


def settings_sha(workspace: Workspace) -> str:
    """What stands for the accepted configuration and packs; the same on every host that accepted the same."""
    consent = workspace.consent
    if consent is None:
        return seen_digest(None, {})
    return seen_digest(consent.source, {path: pack.sha256 for path, pack in consent.packs.items()})


def membership_of(
    id: str,
    store: Store,
    workspace: Workspace,
    key: bytes,
    version: str,
    lease: float | None,
    *,
    serving: bool,
) -> Membership:
    """This host among those that use its store; `lease` in seconds, left out the usual one."""
    return Membership(
        store,
        replica(id, version=version, key_sha=key_sha(key), serving=serving),
        shared=workspace.store != SQLITE,
        lease=lease,
        settings=lambda: settings_sha(workspace),
    )
