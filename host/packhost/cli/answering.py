"""A person's answers from the inbox: allow once, always in a narrowed form, or deny with a reason."""

from __future__ import annotations

from typing import Any

import anyio.to_thread

from packhost.cli.grants import offer_lines, only_of
from packhost.cli.signing import take_pen
from packhost.cli.terminal import Terminal, agents_shell
from packhost.cli.times import DurationType
from packhost.control.base import Control
from packhost.errors import PackhostError

_LEFT_OPEN = "it was left open"


class Answering:
    """Records answers at a host."""

    def __init__(self, control: Control) -> None:
        self._control = control

    def refused(self) -> str | None:
        """Why nobody may answer here; `None` where somebody may."""
        found = agents_shell()
        if found is None:
            return None
        return f"approving is a person's own act and does not happen in an agent's shell ({found} is set)"

    async def needs_passphrase(self) -> bool:
        """Whether approving takes the operator's passphrase."""
        operator = await self._control.request("operator.show", {})
        return bool(operator["state"] != "none")

    async def allow(self, row: dict[str, Any], **more: Any) -> str:
        """Allow that call once; what came of it, in a line."""
        return await self._decide(row, "approve", **more)

    async def ask(self, row: dict[str, Any], what: str) -> str:
        """Have the person type what an answer takes, at the terminal; what came of it, in a line."""
        operator = await self._control.request("operator.show", {})
        with Terminal("approving") as terminal:
            if what == "deny":
                terminal.write(f"Deny {row['tool']}, {row['id']}.\n")
                reason = await terminal.line_async("Why? The agent reads it; Ctrl-D leaves it open: ")
                return _LEFT_OPEN if reason is None else await self._decide(row, "deny", reason=reason)
            more: dict[str, Any] = {}
            offer: dict[str, Any] | None = None
            if what == "always":
                found = await self._narrowed(terminal, row)
                if found is None:
                    return _LEFT_OPEN
                offer, more["always"] = found
            # typed slowly and stretched slowly: what is shown elsewhere must not stand still meanwhile
            pen = await anyio.to_thread.run_sync(take_pen, terminal, operator)
        if pen is not None:
            more["signed"] = pen.decision(row, "approve", "")
            if offer is not None:
                always = more["always"]
                always["signed"] = pen.grant(offer, always["expires_in"], always["uses"])
        return await self.allow(row, **more)

    async def _narrowed(
        self, terminal: Terminal, row: dict[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """What is to be allowed for good, as the person widens it; `None` when they would rather not."""
        terminal.write(f"Always allow calls like {row['id']}. Empty lines leave it at exactly this call.\n")
        only = await terminal.line_async("Paths, such as path=src/**, with spaces between: ")
        anything = await terminal.line_async("Arguments that may have any value: ")
        until = await terminal.line_async("For how long, such as 30d; empty until it is revoked: ")
        if only is None or anything is None or until is None:
            return None
        expires_in = DurationType().convert(until, None, None) if until else None
        pattern = {"only": only_of(tuple(only.split())), "any": anything.split()}
        offer = await self._control.request("grants.offer", {"id": row["id"], **pattern})
        terminal.write("\n".join(offer_lines(offer, expires_in, None)) + "\n")
        sure = await terminal.line_async("Always allow this? [y/N] ")
        if (sure or "").lower() not in ("y", "yes"):
            return None
        return offer, {**pattern, "expires_in": expires_in, "uses": None}

    async def _decide(self, row: dict[str, Any], verdict: str, **more: Any) -> str:
        given = {"id": row["id"], "verdict": verdict, "channel": "cli", **more}
        try:
            decided = await self._control.request("approvals.decide", given)
        except PackhostError as error:
            if error.code not in ("APPROVAL_DENIED", "APPROVAL_EXPIRED"):
                raise
            decided = await self._control.request("approvals.show", {"id": row["id"]})
        if decided["status"] == "pending":
            return f"{row['id']} waits for another person as well"
        grant = f"; such calls are allowed from now on: {decided['grant']}" if decided.get("grant") else ""
        return f"{row['id']} is {decided['status']} by {decided['decided_by']}{grant}"
