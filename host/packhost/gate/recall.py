"""What came of a call that is made again under its own key, as the journal has it.

A client's connection may break between a call and its answer. Made again under the same key, a call that
ran is answered from its record; one that never began, or that may be repeated, runs.
"""

from __future__ import annotations

import json
from typing import Any, cast

from packhost.errors import Code
from packhost.gate.flights import Flights
from packhost.gate.output import UNTRUSTED
from packhost.gate.types import Completed, Outcome, Refusal
from packhost.sandbox.level import Enforcement
from packhost.store.base import Store
from packhost.store.ops import calls
from packhost.store.rows import CallRow


class Recall:
    """Looks calls up by their key."""

    def __init__(self, store: Store, flights: Flights) -> None:
        self._store = store
        self._flights = flights

    async def outcome(self, key: str | None) -> Outcome | None:
        """The outcome of the call of that key; `None` when the call may run: it did not yet, or may again."""
        row = self._store.read(calls.by_key, key) if key is not None else None
        if row is not None and row.status == "started":
            await self._flights.join(row.id)
            await self._store.flush()
            row = self._store.read(calls.by_id, row.id)
        if row is None or calls.repeatable(row):
            return None
        if row.status in ("started", "unknown"):
            return self._unknown(row)
        return _completed(row) if row.status == "ok" else _failed(row)

    def _unknown(self, row: CallRow) -> Refusal:
        left = self._store.read(calls.runs_of, row.execution_id)
        hint = "look at what it did before you call it again"
        if left:
            hint = f"its run {left[-1]} can be resumed: `packhost runs show {left[-1]}` says where it stands"
        return Refusal(
            "EFFECTS_UNKNOWN",
            f"the process that ran `{row.tool}` ended before the call did: whether it had effects is unknown",
            hint,
            call_id=row.id,
            run_id=left[-1] if left else row.execution_id,
        )


def _completed(row: CallRow) -> Outcome | None:
    text = row.result_json or "null"
    value = _value(text)
    if isinstance(value, dict) and value.keys() == {"truncated", "characters", "begins"}:
        if row.idempotent:
            return None  # what the record does not hold is read anew
        return Refusal(
            "OUTPUT_TOO_LARGE",
            f"`{row.tool}` ran, but its result of {value['characters']} characters was lost with the process "
            "that ran it: the record keeps only its beginning",
            "do not call it again for the result alone; read what it did in another way",
            call_id=row.id,
            run_id=row.execution_id,
            data={"begins": value["begins"]},
        )
    return Completed(value, text, row.id, row.execution_id, cast(Enforcement, row.enforcement or "advisory"))


def _value(text: str) -> Any:
    """A result as the record keeps it, taken out of the marks around untrusted output."""
    if text.startswith(f"<{UNTRUSTED} "):
        text = "\n".join(text.split("\n")[2:-1])
    return json.loads(text)


def _failed(row: CallRow) -> Refusal:
    said = json.loads(row.result_json) if row.result_json else {}
    return Refusal(
        cast(Code, row.code or "TOOL_FAILED"),
        said.get("message") or f"`{row.tool}` failed",
        "this is the recorded outcome of the call, which was not made again",
        call_id=row.id,
        run_id=row.execution_id,
    )
