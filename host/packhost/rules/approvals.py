"""Approvals: what one is bound to, when it may be used, when its call may ask again, how answers count.

An approval runs from `pending` to exactly one of `approved`, `denied`, `expired` and `cancelled`. An
approved one that nobody has used may still expire or be cancelled; it is used once. That nobody answered
changes nothing: the record stays pending.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from packhost.errors import InvalidInput

ApprovalStatus = Literal["pending", "approved", "denied", "expired", "cancelled"]
Approver = Literal["owner", "end-user"]
"""Who may answer: `end-user` the one for whom the run goes, and its owner as well; else the owner alone."""
Assurance = Literal["client", "operator"]
"""How sure it is that a person answered: `client` any channel; `operator` one behind a passphrase."""

ASKS_WITHIN_TIMEOUT = 3
"""So many rejections of one call within the time-out of an approval end the asking."""

_SHORTEST_KEY = 16
_NEXT: dict[ApprovalStatus, frozenset[ApprovalStatus]] = {
    "pending": frozenset({"approved", "denied", "expired", "cancelled"}),
    "approved": frozenset({"expired", "cancelled"}),
    "denied": frozenset(),
    "expired": frozenset(),
    "cancelled": frozenset(),
}


class Approval(Protocol):
    """What `usable` reads of an approval's record; times are seconds of one clock."""

    @property
    def status(self) -> ApprovalStatus: ...
    @property
    def binding(self) -> str: ...
    @property
    def expires_at(self) -> float: ...
    @property
    def consumed_by(self) -> str | None: ...


@dataclass(frozen=True, slots=True)
class Vote:
    """One person's answer; `by` names the person, not the channel."""

    by: str
    approve: bool
    assurance: Assurance = "client"


def person(by: str) -> str:
    """One spelling for each person's name: case, outer blanks and forms of letters make no new person."""
    return unicodedata.normalize("NFKC", by).strip().casefold()


def canonical_json(value: object) -> str:
    """One spelling for each JSON value: keys sorted, no blanks, ASCII.

    Values that a handler can tell apart are spelled apart: 1 from 1.0, 0.0 from -0.0, `true` from 1.

    :raises InvalidInput: it is no JSON (NaN, infinity, a key that is no text, another type, too deep).
    """
    try:
        _check_keys(value)
        return json.dumps(value, sort_keys=True, allow_nan=False, ensure_ascii=True, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError):
        raise InvalidInput(
            "the arguments are not plain JSON",
            hint="send texts, finite numbers, booleans, null, lists and objects",
        ) from None


def _check_keys(value: object) -> None:
    # The encoder would spell the key 1 as "1" and so take two objects for one.
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise TypeError
            _check_keys(item)
    elif isinstance(value, list | tuple):
        for item in value:
            _check_keys(item)


def binding(
    key: bytes,
    *,
    workspace: str,
    principal: str,
    client: str,
    run_id: str | None,
    tool: str,
    tool_version: str,
    arguments: Mapping[str, object],
) -> str:
    """The keyed digest (HMAC-SHA256, hexadecimal) of everything that an approval is for.

    `arguments` are all of them, hidden ones too; `run_id` is `None` for a call that no run made. Without
    the key nobody can tell from the digest which secret a hidden argument held.

    :raises InvalidInput: the arguments are no JSON.
    :raises ValueError: the key is shorter than 16 bytes.
    """
    if len(key) < _SHORTEST_KEY:
        raise ValueError(f"the key of approvals must have at least {_SHORTEST_KEY} bytes")
    fields = [
        "packhost approval 1",
        workspace,
        principal,
        client,
        run_id,
        tool,
        tool_version,
        dict(arguments),
    ]
    return hmac.new(key, canonical_json(fields).encode("ascii"), hashlib.sha256).hexdigest()


def usable(approval: Approval, *, binding: str, now: float) -> bool:
    """Whether the approval lets this very call run: approved, for it, in time, and not yet used."""
    return (
        approval.status == "approved"
        and approval.consumed_by is None
        and now < approval.expires_at
        and hmac.compare_digest(approval.binding.encode(), binding.encode())
    )


def may_become(current: ApprovalStatus, wanted: ApprovalStatus) -> bool:
    """Whether a record that no call has used may go from one status to the other."""
    return wanted in _NEXT[current]


def standing(status: ApprovalStatus, expires_at: float, now: float) -> ApprovalStatus:
    """The status that an unused record has now, whether or not its expiry was written down."""
    return "expired" if now >= expires_at and may_become(status, "expired") else status


def may_ask_again(denied: Sequence[float], *, now: float, timeout: float) -> bool:
    """Whether a call that was rejected at these times may be put to a person once more.

    All are seconds. A rejection that seems to lie in the future counts: a clock set back opens nothing.
    """
    return sum(now - at < timeout for at in denied) < ASKS_WITHIN_TIMEOUT


def tally(votes: Sequence[Vote], needed: int, assurance: Assurance = "client") -> ApprovalStatus:
    """What answers, in the order in which they came, make of a pending record.

    The first rejection denies, whoever gives it, unless enough had approved before. `needed` counts
    different people (at least one; see `person`); approvals of a lower assurance than asked for, or by
    nobody, do not count.
    """
    people: set[str] = set()
    for vote in votes:
        if not vote.approve:
            return "denied"
        who = person(vote.by)
        if who and (assurance == "client" or vote.assurance == "operator"):
            people.add(who)
        if len(people) >= max(needed, 1):
            return "approved"
    return "pending"
