"""When a request that the provider did not take is sent again, and after how long.

Only what spent nothing is repeated: no connection, or a status of 429, 529 or 5xx in the place of a
reply. What has begun to be answered never is.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from packhost_packs.agent_runtime.faults import TurnFault

FIRST_DELAY = 0.5
"""Seconds before the first repetition; each further one waits twice as long."""
LONGEST_DELAY = 30.0
LONGEST_ASKED = 300.0
"""Seconds; a provider that asks for more ends the run."""


def may_repeat(fault: TurnFault) -> bool:
    """Whether the request spent nothing and may be taken the next time."""
    if fault.begun or fault.outcome != "provider_error":
        return False
    status = fault.status
    return status is None or status in (429, 529) or 500 <= status < 600


def delay(fault: TurnFault, repeated: int, chance: Callable[[], float] = random.random) -> float | None:
    """Seconds before the next try, after `repeated` ones of this request; `None`: too long to wait.

    What the provider asks for is kept, with up to a tenth on top; else the time doubles up to
    `LONGEST_DELAY`, and half of it is chance, so that many clients do not come back at once.
    """
    if fault.retry_after is not None:
        if fault.retry_after > LONGEST_ASKED:
            return None
        return max(fault.retry_after, 0.0) * (1 + chance() / 10)
    whole = min(LONGEST_DELAY, FIRST_DELAY * 2.0 ** min(repeated, 16))
    return float(whole * (0.5 + chance() / 2))
