"""How a turn can go wrong on the provider's side, as one typed error.

`issue` is a code of the trace validator's closed list: what rule was broken, for a program to read.
"""

from __future__ import annotations

from typing import Literal

from packhost.api import Code, PackhostError

FaultOutcome = Literal["protocol_error", "provider_error", "unsupported", "limit_exceeded"]


class TurnFault(PackhostError):
    """A provider's reply cannot be used; nothing that it asked for was run.

    `outcome` is the word the run ends with; `issue` names the broken rule; `status` is the HTTP
    status when there was one.
    """

    code: Code = "TOOL_FAILED"

    def __init__(self, outcome: FaultOutcome, issue: str, message: str, *, status: int | None = None) -> None:
        super().__init__(message, outcome=outcome, issue=issue, status=status)
        self.outcome: FaultOutcome = outcome
        self.issue = issue
        self.status = status


class ContractBroken(TurnFault):
    """`requested_tools` and the calls in `content_blocks` are not the same calls in the same order."""

    def __init__(self, issue: str, message: str) -> None:
        super().__init__("protocol_error", issue, message)
