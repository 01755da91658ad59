"""What came of a call that is made again under its own key, as the journal has it.

A client's connection may break between a call and its answer. Made again under the same key, a call that
ran is answered from its record, one that still runs is joined where it runs here, and one that never began
runs. One that was cut off runs again where it may be repeated: where its tool said so when it started, and
still does. A key stands for one call: the same tool and the same arguments.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from typing import Any, Final, cast

from packhost.errors import Code, InvalidInput
from packhost.gate.configuration import Configuration
from packhost.gate.display import as_text
from packhost.gate.evaluate import admit
from packhost.gate.flights import Flights
from packhost.gate.output import UNTRUSTED
from packhost.gate.types import Caller, CallRequest, Completed, Outcome, Refusal
from packhost.journal import canonical, digest
from packhost.sandbox.level import Enforcement
from packhost.store.base import Store
from packhost.store.ops import calls, executions
from packhost.store.rows import CallRow

_KEY: Final = re.compile(r"[\x21-\x7e]{1,255}\Z")


def args_digest(key: bytes, arguments_json: str) -> str:
    """A keyed digest of all arguments, hidden ones included."""
    return hmac.new(key, arguments_json.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()


def key_of(key: object, caller: Caller, path: str) -> str:
    """A caller's key as the journal has it: nobody else's, whatever they call theirs.

    Raises `InvalidInput` for one that cannot be used.
    """
    if not isinstance(key, str) or not _KEY.match(key):
        raise InvalidInput(
            "the idempotency key cannot be used",
            path=path,
            hint="use 1 to 255 visible ASCII characters, new for each call",
        )
    return "own:" + digest(canonical([caller.principal, caller.client, key]))


class Recall:
    """Looks calls up by their key."""

    def __init__(self, store: Store, flights: Flights, key: bytes, owner: str) -> None:
        self._store = store
        self._flights = flights
        self._key = key
        self._owner = owner

    async def outcome(self, request: CallRequest, configuration: Configuration) -> Outcome | None:
        """The outcome of the call of that key; `None` when the call may run: it did not yet, or may again."""
        row = self._store.read(calls.by_key, request.idem_key or "")
        if row is None:
            return None
        idempotent, same = self._compared(row, request, configuration)
        if not same:
            return Refusal(
                "INVALID_INPUT",
                f"the idempotency key was used for another call, of `{row.tool}`",
                "use a new key for each call; the same key is for the very same arguments alone",
                call_id=row.id,
            )
        if row.status == "started":
            await self._flights.join(row.id)
            await self._store.flush()
            row = self._store.read(calls.by_id, row.id)
        if row.status == "started" and self._elsewhere(row):
            return Refusal(
                "CONTINUATION_IN_PROGRESS",
                f"the call of `{row.tool}` under this key still runs at another host",
                "wait, then make the same call under the same key: it is answered from its record",
                call_id=row.id,
                run_id=row.execution_id,
            )
        if calls.repeatable(row):
            return self._unknown(row) if row.idempotent and not idempotent else None
        if row.status in ("started", "unknown"):
            return self._unknown(row)
        return _completed(row) if row.status == "ok" else _failed(row)

    def _compared(
        self, row: CallRow, request: CallRequest, configuration: Configuration
    ) -> tuple[bool, bool]:
        """Whether the tool may be repeated as it is now, and whether the call is the one of the row."""
        catalog = configuration.catalog
        if request.inline is None:
            entry = catalog.find(request.tool, inside=request.caller.run_id is not None)
        else:
            entry = catalog.inline(request.inline)
        if entry is None:
            return False, as_text(dict(request.arguments)) == row.args_json
        admitted = admit(entry, request.arguments, configuration, request.caller)
        text = as_text(dict(request.arguments)) if isinstance(admitted, Refusal) else admitted[1]
        same = args_digest(self._key, text) == row.args_digest
        # what the host fills in may be another value by now, and what a person gave is not sent again
        added = entry.hidden if entry.form is None else entry.hidden | entry.form.names
        if not same and added:
            same = _without(added, row.args_json) == _without(added, configuration.redact(text))
        return entry.tool.spec.idempotent, row.tool == entry.tool.id.canonical and same

    def _elsewhere(self, row: CallRow) -> bool:
        """Whether another host, as far as is known, is at it."""
        run = self._store.read(executions.get, row.execution_id)
        return run.status == "running" and run.owner != self._owner

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


def _without(hidden: frozenset[str], arguments_json: str) -> dict[str, Any]:
    return {name: value for name, value in json.loads(arguments_json).items() if name not in hidden}


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
