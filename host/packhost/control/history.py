"""Operations on recorded calls, for questions about what a policy would have done."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from packhost.control.base import Parts, text, whole
from packhost.errors import InvalidInput
from packhost.store.ops import executions
from packhost.store.ops.history import recorded_calls

PAGE = 1_000


async def calls_recorded(parts: Parts, params: Mapping[str, Any]) -> Any:
    """A page of recorded calls, first to last; `since` in seconds since the epoch, `run` of one run alone."""
    await parts.store.flush()
    since = params.get("since", 0.0)
    if not isinstance(since, int | float) or isinstance(since, bool):
        raise InvalidInput("`since` is not a number", hint="give seconds since the epoch")
    run = text(params, "run", "") or None
    if run is not None:
        run = parts.store.read(executions.get, run).id
    after, limit = whole(params, "after", 0, 2**53), whole(params, "limit", 500, PAGE)
    page = parts.store.read(recorded_calls, after, float(since), run, limit)
    return {"calls": [asdict(call) for call in page], "next": page[-1].event if page else None}
