"""What a running call or run must ask a person is asked at the terminal while it goes on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import anyio

from packhost.cli.signing import take_pen
from packhost.cli.terminal import Terminal, Verdict
from packhost.control.base import Control
from packhost.errors import PackhostError

LOOK_EVERY = 0.3
"""Seconds between two looks at what waits or runs."""
_SETTLED: Final = ("APPROVAL_DENIED", "APPROVAL_EXPIRED", "RESUME_STATE_CHANGED")
"""What a host says of an answer that comes too late."""


def signature(
    terminal: Terminal, operator: dict[str, Any], approval: dict[str, Any], verdict: Verdict | None
) -> dict[str, Any] | None:
    """The operator's signature of an approval just given, after the passphrase; `None`: none is needed."""
    pen = take_pen(terminal, operator) if verdict == "approve" else None
    return pen.decision(approval, "approve", "") if pen is not None else None


async def decide(
    control: Control, approval: str, verdict: Verdict, signed: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Record the answer; the approval as it then stands: an answer given elsewhere meanwhile holds."""
    params: dict[str, Any] = {"id": approval, "verdict": verdict, "channel": "cli"}
    if signed is not None:
        params["signed"] = signed
    try:
        decided: dict[str, Any] = await control.request("approvals.decide", params)
    except PackhostError as error:
        if error.code not in _SETTLED:
            raise
        decided = await control.request("approvals.show", {"id": approval})
    return decided


async def answer_nested(control: Control, ours: Callable[[dict[str, Any]], bool]) -> None:
    """Ask what waits inside runs, one question after the other, until it is cancelled."""
    left_open: set[str] = set()
    while True:
        await anyio.sleep(LOOK_EVERY)
        found = await control.request("approvals.list", {"status": "pending", "limit": 100})
        for approval in reversed(found["approvals"]):
            if approval["run_id"] is None or approval["id"] in left_open or not ours(approval):
                continue
            with Terminal() as terminal:
                verdict = await terminal.decide_async(approval["prompt"])
                operator = await control.request("operator.show", {})
                # the passphrase is typed slowly and stretched slowly: neither may stop the host meanwhile
                signed = await anyio.to_thread.run_sync(signature, terminal, operator, approval, verdict)
            if verdict is None:
                left_open.add(approval["id"])
                continue
            decided = await decide(control, approval["id"], verdict, signed)
            if decided["status"] == "pending":
                left_open.add(approval["id"])  # another person must agree
