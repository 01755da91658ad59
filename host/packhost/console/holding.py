"""What a console keeps of sessions, in memory alone: unlocked keys, and notices to be shown once."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Final

import anyio
import anyio.to_thread

from packhost.console.kit import Mark
from packhost.errors import PackhostError
from packhost.workspace.operator import LOST, Signer, record_of, unseal

UNLOCKED: Final = 300.0
"""Seconds for which the key stays unlocked after it was last used."""
LONGEST: Final = 1_800.0
"""Seconds after which the passphrase is asked for again, however often it is used."""
_SESSIONS: Final = 1_000
_NOTICES: Final = 5


class Keys:
    """The operator's key while it is unlocked, for each session of its own; one guess at a time."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._open: OrderedDict[str, tuple[Signer, float, float]] = OrderedDict()
        self._one = anyio.CapacityLimiter(1)  # a guess takes 128 MiB

    async def unseal(self, operator: Mapping[str, Any], passphrase: str) -> Signer | None:
        """The key; `None` when that is not the passphrase. Raises `PackhostError` when there is no key."""
        if operator["state"] != "ready":
            raise PackhostError(
                f"no passphrase can be used: {operator['why'] or 'no operator is set up'}",
                code="APPROVAL_MODE_UNSUPPORTED",
                hint=LOST if operator["state"] == "lost" else "set one up: `packhost operator set`",
            )
        return await anyio.to_thread.run_sync(
            unseal, record_of(operator["record"]), passphrase, limiter=self._one
        )

    def keep(self, session: str, signer: Signer) -> None:
        """Let a session use the key from now on; every other whose time is over forgets it."""
        for other in list(self._open):
            self.left(other)
        now = self._clock()
        self._open[session] = (signer, now + LONGEST, now + UNLOCKED)
        while len(self._open) > _SESSIONS:
            self._open.popitem(last=False)

    def use(self, session: str) -> Signer | None:
        """The key, which stays unlocked for a while again; `None` when it is locked."""
        if self.left(session) is None:
            return None
        signer, end, _ = self._open[session]
        self._open[session] = (signer, end, self._clock() + UNLOCKED)
        return signer

    def left(self, session: str) -> float | None:
        """Seconds for which it stays unlocked; `None` when it is locked."""
        found = self._open.get(session)
        if found is None:
            return None
        left = min(found[1], found[2]) - self._clock()
        if left > 0:
            return left
        del self._open[session]
        return None

    def lock(self, session: str) -> None:
        """Forget the key."""
        self._open.pop(session, None)


class Notices:
    """Sentences that a session is shown once, on the next page."""

    def __init__(self) -> None:
        self._told: OrderedDict[str, list[tuple[Mark, str]]] = OrderedDict()

    def tell(self, session: str, mark: Mark, text: str) -> None:
        """Show a sentence on the session's next page."""
        self._told.setdefault(session, []).append((mark, text))
        del self._told[session][:-_NOTICES]
        while len(self._told) > _SESSIONS:
            self._told.popitem(last=False)

    def take(self, session: str) -> list[tuple[Mark, str]]:
        """What is to be shown now."""
        return self._told.pop(session, [])
