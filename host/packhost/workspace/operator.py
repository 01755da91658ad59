"""An operator: a person who proves by a passphrase that an answer is theirs.

The record holds an Ed25519 public key and the private key sealed with the passphrase (scrypt, then
AES-256-GCM). Whoever decides unseals and signs in their own process; the host reads the public key alone.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import stat
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from packhost.errors import ConfigInvalid, PackhostError, Place
from packhost.rules.approvals import canonical_json
from packhost.workspace.files import sync_folder

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

OPERATOR_FILE: Final = "operator.json"
NEXT_FILE: Final = "operator.next.json"
"""The record that is about to take over; see `OperatorFile.current`."""
COST: Final = 2**17
"""The scrypt cost of a new record: with blocks of 8 it takes 128 MiB and about half a second a guess."""
SHORTEST: Final = 8
"""Characters of a passphrase, at least."""
_BLOCK, _LANES = 8, 1
_LEAST_COST, _MOST_COST = 2**12, 2**20
_VERSION: Final = 1
_LIMIT: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class OperatorRecord:
    """What is kept of an operator; everything but `sealed` is public. Bytes are hexadecimal."""

    public_key: str
    created_by: str
    created_at: float
    cost: int
    salt: str
    nonce: str
    sealed: str

    @property
    def fingerprint(self) -> str:
        """What people compare: the first 32 digits of the SHA-256 of the public key."""
        return hashlib.sha256(bytes.fromhex(self.public_key)).hexdigest()[:32]

    def as_json(self) -> dict[str, Any]:
        """The record as it is kept."""
        return {"version": _VERSION, **asdict(self)}

    def _context(self) -> bytes:
        return canonical_json(
            ["packhost operator", _VERSION, self.public_key, self.cost, self.salt, self.created_by]
        ).encode("ascii")


class Signer:
    """An unsealed private key; kept no longer than one command."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key

    def sign(self, statement: bytes) -> str:
        """The signature, hexadecimal."""
        return self._key.sign(statement).hex()


def record_of(value: object) -> OperatorRecord:
    """A record from its JSON.

    :raises ConfigInvalid: it is none.
    """
    try:
        if not isinstance(value, Mapping) or value["version"] != _VERSION:
            raise ValueError
        record = OperatorRecord(
            public_key=str(value["public_key"]),
            created_by=str(value["created_by"]),
            created_at=float(value["created_at"]),
            cost=int(value["cost"]),
            salt=str(value["salt"]),
            nonce=str(value["nonce"]),
            sealed=str(value["sealed"]),
        )
        sizes = [len(bytes.fromhex(part)) for part in (record.public_key, record.salt, record.nonce)]
        bytes.fromhex(record.sealed)
    except (ValueError, KeyError, TypeError, OverflowError):
        raise ConfigInvalid("the operator's record is damaged", hint=LOST) from None
    # a cost that was tampered with must not take all of the memory
    if sizes != [32, 16, 12] or not _LEAST_COST <= record.cost <= _MOST_COST:
        raise ConfigInvalid("the operator's record is damaged", hint=LOST)
    return record


LOST: Final = (
    "put `operator.json` back from a copy; without one, only a fresh state folder helps, "
    "and nothing counts as accepted then"
)


def make_record(
    passphrase: str, *, by: str, at: float, cost: int | None = None
) -> tuple[OperatorRecord, Signer]:
    """A new key pair, its private half sealed with the passphrase."""
    from cryptography.hazmat.primitives import serialization as form
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    cost = cost or COST
    key = Ed25519PrivateKey.generate()
    public = key.public_key().public_bytes(form.Encoding.Raw, form.PublicFormat.Raw)
    private = key.private_bytes(form.Encoding.Raw, form.PrivateFormat.Raw, form.NoEncryption())
    salt, nonce = secrets.token_bytes(16), secrets.token_bytes(12)
    blank = OperatorRecord(public.hex(), by, at, cost, salt.hex(), nonce.hex(), "")
    sealed = AESGCM(_stretched(passphrase, salt, cost)).encrypt(nonce, private, blank._context())
    return OperatorRecord(public.hex(), by, at, cost, salt.hex(), nonce.hex(), sealed.hex()), Signer(key)


def unseal(record: OperatorRecord, passphrase: str) -> Signer | None:
    """The private key; `None` when the passphrase is wrong or the record was tampered with."""
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives import serialization as form
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    stretched = _stretched(passphrase, bytes.fromhex(record.salt), record.cost)
    try:
        private = AESGCM(stretched).decrypt(
            bytes.fromhex(record.nonce), bytes.fromhex(record.sealed), record._context()
        )
    except InvalidTag:
        return None
    key = Ed25519PrivateKey.from_private_bytes(private)
    public = key.public_key().public_bytes(form.Encoding.Raw, form.PublicFormat.Raw)
    return Signer(key) if public.hex() == record.public_key else None


def _stretched(passphrase: str, salt: bytes, cost: int) -> bytes:
    from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

    return Scrypt(salt=salt, length=32, n=cost, r=_BLOCK, p=_LANES).derive(
        passphrase.encode("utf-8", "surrogatepass")
    )


def signed_by(public_key: str, statement: bytes, signature: str) -> bool:
    """Whether the signature is the key's and for exactly this statement; never raises."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(public_key)).verify(
            bytes.fromhex(signature), statement
        )
    except (InvalidSignature, ValueError):
        return False
    return True


class OperatorFile:
    """The operator's record in the state folder, mode 0600."""

    def __init__(self, state: Path) -> None:
        self._path = state / OPERATOR_FILE
        self._next = state / NEXT_FILE

    def read(self) -> OperatorRecord | None:
        """The record; `None` when there is none. Raises `ConfigInvalid` when it is damaged or not private."""
        return _read(self._path)

    def current(self, fingerprint: str | None) -> OperatorRecord | None:
        """As `read`; a record that was about to take over does so when `fingerprint` is its own.

        Replacing an operator writes the new record beside the old one before the store names it, so that
        a crash in between loses neither.
        """
        found: OperatorRecord | None = None
        try:
            found = self.read()
        except ConfigInvalid:
            if fingerprint is None:
                raise
        if fingerprint is None or (found is not None and found.fingerprint == fingerprint):
            return found
        coming = _read(self._next)
        if coming is not None and coming.fingerprint == fingerprint:
            self.promote()
            return coming
        return self.read()

    def prepare(self, record: OperatorRecord) -> None:
        """Write the record that is to take over, durably."""
        descriptor, name = tempfile.mkstemp(prefix=".operator-", dir=self._next.parent)
        try:
            with open(descriptor, "w", encoding="utf-8") as file:
                json.dump(record.as_json(), file, indent=1)
                file.flush()
                os.fsync(file.fileno())
            os.replace(name, self._next)
        except BaseException:
            os.unlink(name)
            raise
        sync_folder(self._next.parent)

    def promote(self) -> None:
        """Let the prepared record take over."""
        os.replace(self._next, self._path)
        sync_folder(self._path.parent)

    def remove(self) -> None:
        """Forget the operator."""
        self._next.unlink(missing_ok=True)
        self._path.unlink(missing_ok=True)
        sync_folder(self._path.parent)


def _read(path: Path) -> OperatorRecord | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    except OSError:
        raise ConfigInvalid("the operator's record cannot be read", hint=LOST, place=_at(path)) from None
    with open(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
            raise ConfigInvalid(
                "the operator's record is not private to you",
                hint="find out who changed it; `chmod 600` it if it was you",
                place=_at(path),
            )
        source = file.read(_LIMIT)
    try:
        return record_of(json.loads(source))
    except (ValueError, PackhostError):
        raise ConfigInvalid("the operator's record is damaged", hint=LOST, place=_at(path)) from None


def _at(path: Path) -> Place:
    return Place(str(path))
