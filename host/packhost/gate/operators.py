"""Whose signatures count here: the operator, as the host sees them.

The store names a key and the state folder holds its record. Where the two do not tell of the same key, or
either is gone, or the key is another than this host has seen, the operator is lost: nothing that needs one
is approved until a person has put it right.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from packhost.errors import PackhostError
from packhost.gate.passkeys import asserted, enrolled, is_assertion
from packhost.rules.statements import succession_statement
from packhost.store.base import Store
from packhost.store.ops import consoles, operators
from packhost.store.ops.consoles import PasskeyRow
from packhost.workspace.operator import LOST, OperatorFile, OperatorRecord, signed_by

SKEW = 60.0
"""Seconds by which a signature's time may differ from the store's clock."""


@dataclass(frozen=True, slots=True)
class Signed:
    """A signature that came with an act, and the time that it names."""

    at: float
    signature: str


@dataclass(frozen=True, slots=True)
class Standing:
    """`none`: no operator was ever set up; `ready`; `lost`: one was, and `why` says what is wrong."""

    state: Literal["none", "ready", "lost"]
    record: OperatorRecord | None = None
    why: str = ""

    @property
    def fingerprint(self) -> str | None:
        """Of the key that counts."""
        return self.record.fingerprint if self.record is not None and self.state == "ready" else None


class Operators:
    """The operator of one workspace; `file` is `None` where there can be none."""

    def __init__(self, store: Store, file: OperatorFile | None) -> None:
        self._store = store
        self._file = file
        self._seen: str | None = None

    def standing(self) -> Standing:
        """How things stand now; reads the row and the record each time."""
        if self._file is None:
            return Standing("none")
        row = self._store.read(operators.current)
        try:
            record = self._file.current(row.fingerprint if row is not None else None)
        except PackhostError as error:
            return Standing("lost", None, error.message)
        if row is None and record is None and self._seen is None:
            return Standing("none")
        if row is None or record is None:
            gone = "record" if record is None else "row in the store"
            return Standing("lost", record, f"the operator's {gone} is gone")
        if (row.fingerprint, row.public_key) != (record.fingerprint, record.public_key):
            return Standing("lost", record, "the operator's record and the store name different keys")
        if self._seen not in (None, record.fingerprint):
            return Standing("lost", record, "the operator's key was exchanged while the host ran")
        self._seen = record.fingerprint
        return Standing("ready", record)

    def signed(self, statement: bytes, signature: str) -> bool:
        """Whether the present operator signed exactly this, or a passkey of theirs answered for it."""
        found = self.standing()
        if found.state != "ready" or found.record is None:
            return False
        if is_assertion(signature):
            return asserted(statement, signature, self.passkeys())
        return signed_by(found.record.public_key, statement, signature)

    def passkeys(self) -> tuple[PasskeyRow, ...]:
        """The passkeys that speak for the present operator: those whose enrolment they signed."""
        found = self.standing()
        if found.state != "ready" or found.record is None:
            return ()
        key, workspace = found.record.public_key, self._store.workspace
        return tuple(row for row in self._store.read(consoles.passkeys) if enrolled(row, workspace, key))

    def check(self, statement: bytes, signed: Signed, now: float) -> None:
        """Hold a fresh signature to its statement and to the clock.

        :raises PackhostError: `APPROVAL_MODE_UNSUPPORTED` when it is not the operator's, or too old.
        """
        if not self.signed(statement, signed.signature):
            raise self.missing("the signature is not the operator's for exactly this") from None
        if abs(signed.at - now) > SKEW:
            raise PackhostError(
                "the signature was made at another time",
                code="APPROVAL_MODE_UNSUPPORTED",
                hint="give the answer again; see that the clocks agree",
            )

    def missing(self, what: str, how: str = "packhost approvals approve") -> PackhostError:
        """What to say where an operator's signature is needed and there is none that counts."""
        found = self.standing()
        if found.state == "none":
            what, hint = f"{what}, and no operator is set up", "a person sets one up: `packhost operator set`"
        elif found.state == "lost":
            what, hint = f"{what}, and {found.why}", LOST
        else:
            hint = f"a person gives the passphrase in a terminal of their own: `{how}`"
        return PackhostError(what, code="APPROVAL_MODE_UNSUPPORTED", hint=hint)

    async def succeed(self, record: OperatorRecord | None, signed: Signed | None, by: str) -> Standing:
        """Set the operator up, replace or (with `None`) remove it; the present one must have signed that.

        :raises PackhostError: `APPROVAL_MODE_UNSUPPORTED` without that signature, or when it is lost.
        """
        assert self._file is not None, "a host without a state folder has no operator"
        found = self.standing()
        row = self._store.read(operators.current)
        present = found.record
        if present is not None and row is not None and row.fingerprint != present.fingerprint:
            present = None
        if present is None and (row is not None or found.state == "lost"):
            raise PackhostError(
                f"the operator cannot be replaced: {found.why}", code="APPROVAL_MODE_UNSUPPORTED", hint=LOST
            )
        if present is not None:
            self._check_succession(present, record, signed, by)
        if record is not None:
            self._file.prepare(record)
        await self._store.write(
            operators.succeed,
            row.fingerprint if row is not None else None,
            record.fingerprint if record is not None else None,
            record.public_key if record is not None else "",
            by,
            signed.signature if signed is not None else "",
        )
        if record is not None:
            self._file.promote()
        else:
            self._file.remove()
        self._seen = record.fingerprint if record is not None else None
        return self.standing()

    def _check_succession(
        self, present: OperatorRecord, record: OperatorRecord | None, signed: Signed | None, by: str
    ) -> None:
        coming = record.fingerprint if record is not None else None
        proved = signed is not None and signed_by(
            present.public_key,
            succession_statement(
                workspace=self._store.workspace,
                present=present.fingerprint,
                next=coming,
                by=by,
                at=signed.at,
            ),
            signed.signature,
        )
        now = self._store.now()
        if not proved or signed is None or abs(signed.at - now) > SKEW:
            raise PackhostError(
                "replacing or removing the operator needs the present passphrase",
                code="APPROVAL_MODE_UNSUPPORTED",
                hint="run `packhost operator set` or `packhost operator remove` in a terminal of your own",
            )

    def as_json(self) -> dict[str, Any]:
        """How things stand, for people's programs; `record` is what whoever signs unseals."""
        found = self.standing()
        record = found.record
        return {
            "state": found.state,
            "why": found.why,
            "fingerprint": record.fingerprint if record is not None else None,
            "created_by": record.created_by if record is not None else None,
            "created_at": record.created_at if record is not None else None,
            "record": record.as_json() if record is not None else None,
        }
