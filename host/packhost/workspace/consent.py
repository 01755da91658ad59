"""What a person last accepted: the copy of `packhost.yaml` and the packs' sources, kept in the state folder.

A record that cannot be read counts as none, so that a lost or damaged one allows nothing; the same goes
for one that the operator did not sign, where there is an operator.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from packhost.errors import ConfigInvalid, Place
from packhost.rules.statements import consent_statement
from packhost.workspace.files import sync_folder
from packhost.workspace.operator import OperatorFile, signed_by

ACCEPTED_FILE = "accepted.json"
PACKS_FOLDER = "packs"
_VERSION = 1


@dataclass(frozen=True, slots=True)
class PinnedPack:
    """A pack by path as it was accepted; `sha256` names the copy of its sources."""

    id: str
    version: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Accepted:
    """One act of consent. `source` is the file's content, `None` where there was no file; `at` in seconds."""

    source: bytes | None
    at: float
    by: str
    channel: str
    packs: Mapping[str, PinnedPack] = field(default_factory=dict)
    """By the path that the file gives."""
    signature: str = ""
    """An operator's, over `statement`."""

    def statement(self, workspace: str) -> bytes:
        """What an operator signs to give this consent."""
        seen = seen_digest(self.source, {path: pack.sha256 for path, pack in self.packs.items()})
        return consent_statement(workspace=workspace, seen=seen, by=self.by, at=self.at)


def seen_digest(source: bytes | None, packs: Mapping[str, str]) -> str:
    """What stands for exactly this file and these sources (path to SHA-256), as a person was shown them."""
    whole = hashlib.sha256(b"none" if source is None else b"file" + hashlib.sha256(source).digest())
    for path in sorted(packs):
        whole.update(json.dumps([path, packs[path]]).encode())
    return whole.hexdigest()


def load_accepted(state: Path) -> Accepted | None:
    """What was accepted, or `None` when nothing was yet.

    Raises `ConfigInvalid` when the record cannot be read.
    """
    path = state / ACCEPTED_FILE
    try:
        record = json.loads(path.read_bytes())
        accepted = _from_record(record)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise ConfigInvalid(
            "the record of what was accepted cannot be read, so nothing counts as accepted",
            hint="accept again with `packhost accept`",
            place=Place(str(path)),
        ) from None

    operator = OperatorFile(state).read()
    if operator is not None and not signed_by(
        operator.public_key, accepted.statement(state.name), accepted.signature
    ):
        raise ConfigInvalid(
            "the record of what was accepted is not signed by the operator, so nothing counts as accepted",
            hint="accept again with `packhost accept`",
            place=Place(str(path)),
        )
    return accepted


def countersign(state: Path, accepted: Accepted | None, signature: str) -> None:
    """Put another operator's signature, or none, on what was accepted."""
    if accepted is not None:
        save_accepted(state, replace(accepted, signature=signature))


def _from_record(record: dict[str, Any]) -> Accepted:
    if record["version"] != _VERSION:
        raise ValueError(record["version"])
    text = record["file"]
    source = None if text is None else str(text).encode("utf-8")
    if source is not None and hashlib.sha256(source).hexdigest() != record["sha256"]:
        raise ValueError("sha256")
    packs = {
        str(path): PinnedPack(str(pack["id"]), str(pack["version"]), str(pack["sha256"]))
        for path, pack in record["packs"].items()
    }
    by, channel, signature = (str(record.get(name, "")) for name in ("by", "channel", "signature"))
    return Accepted(source, float(record["at"]), by, channel, packs, signature)


def save_accepted(state: Path, accepted: Accepted) -> None:
    """Write the record atomically and durably."""
    source = accepted.source
    record = {
        "version": _VERSION,
        "at": accepted.at,
        "by": accepted.by,
        "channel": accepted.channel,
        "signature": accepted.signature,
        "sha256": None if source is None else hashlib.sha256(source).hexdigest(),
        "file": None if source is None else source.decode("utf-8"),
        "packs": {
            path: {"id": pack.id, "version": pack.version, "sha256": pack.sha256}
            for path, pack in sorted(accepted.packs.items())
        },
    }
    descriptor, name = tempfile.mkstemp(prefix=".accepted-", dir=state)
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            json.dump(record, file, ensure_ascii=False, indent=1)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, state / ACCEPTED_FILE)
    except BaseException:
        os.unlink(name)
        raise
    sync_folder(state)
