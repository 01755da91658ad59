"""How a turn can go wrong on the provider's side, as one typed error.

`issue` is a code of the trace validator's closed list: what rule was broken, for a program to read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from packhost.api import Code, PackhostError

FaultOutcome = Literal[
    "protocol_error", "provider_error", "unsupported", "limit_exceeded", "cancelled", "client_disconnect"
]


@dataclass(frozen=True, slots=True)
class BadCall:
    """A call that has an id and a name but an input that cannot be used; `raw` is the input as it came."""

    id: str
    name: str
    raw: str


class TurnFault(PackhostError):
    """A provider's reply cannot be used; nothing that it asked for was run.

    `outcome` is the word the run ends with; `issue` names the broken rule; `status` is the HTTP
    status when there was one; `retry_after` is in seconds, as the provider asked for it; `begun`
    says whether the provider may have spent tokens on the request, after which nothing repeats it;
    `call` is the call whose input was at fault, if one was.
    """

    code: Code = "TOOL_FAILED"

    def __init__(
        self,
        outcome: FaultOutcome,
        issue: str,
        message: str,
        *,
        status: int | None = None,
        retry_after: float | None = None,
        begun: bool = True,
        call: BadCall | None = None,
    ) -> None:
        super().__init__(message, outcome=outcome, issue=issue, status=status)
        self.outcome: FaultOutcome = outcome
        self.issue = issue
        self.status = status
        self.retry_after = retry_after
        self.begun = begun
        self.call = call


class ContractBroken(TurnFault):
    """`requested_tools` and the calls in `content_blocks` are not the same calls in the same order."""

    def __init__(self, issue: str, message: str) -> None:
        super().__init__("protocol_error", issue, message)


class ReaderLost(Exception):
    """Raised by `emit` when nobody reads any more: the turn ends as one `client_disconnect`."""
