"""Operations on the audit chain: prove it, print it, take a payload out of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import anyio
import anyio.to_thread

from packhost.control.base import Parts, text, whole
from packhost.control.records import PAGE, record_json
from packhost.errors import InvalidInput
from packhost.rules.statements import pruning_statement
from packhost.store.audit import ChainReport, join_fault, verify_chain
from packhost.store.base import Store
from packhost.store.ops import events
from packhost.store.ops.pruning import Pruning
from packhost.store.ops.redaction import payloads_of, redact
from packhost.store.ops.traces import traces_of
from packhost.store.seals import Anchor, Span, export_line

_LAST = 2**53


async def head(parts: Parts, params: Mapping[str, Any]) -> Any:
    """The end of the chain: what to keep elsewhere, to prove later that nothing was cut off."""
    await parts.store.flush()
    found = parts.store.read(events.head)
    last = parts.store.read(events.by_id, found.id)
    return {"id": found.id, "hash": found.hash, "time": last.ts if last else None, "count": found.id}


async def verify(parts: Parts, params: Mapping[str, Any]) -> Any:
    """Walk the whole chain; names the first link that does not hold, and the `anchors` that it misses."""
    await parts.store.flush()
    given = params.get("anchors", [])
    if not isinstance(given, list) or not all(isinstance(one, dict) for one in given):
        raise InvalidInput("`anchors` is no list of objects", hint="give `hash` and `id` of each")
    anchors = [Anchor(text(one, "hash"), whole(one, "id", 0, _LAST)) for one in given]
    report = await anyio.to_thread.run_sync(_verify, parts.store, anchors)
    return {
        "ok": report.ok,
        "events": report.count,
        "head": report.head_hash,
        "redacted": report.redacted,
        "anchors": len(anchors),
        "missed": list(report.missed),
        "unchecked": list(report.unchecked),
        "pruned": report.pruned,
        "prunings": [{**asdict(one), "signed": _signed(parts, one)} for one in report.prunings],
        "unfinished": report.unfinished,
        "first_bad": report.broken.id if report.broken else None,
        "reason": report.broken.reason if report.broken else None,
    }


def _signed(parts: Parts, pruning: Pruning) -> bool | None:
    """Whether the present operator signed a pruning; `None` where there is no operator."""
    operators = parts.gate.operators
    if operators.standing().state == "none":
        return None
    said = pruning_statement(
        workspace=parts.store.workspace,
        first=pruning.first,
        last=pruning.last,
        last_hash=pruning.last_hash,
        exported=pruning.exported,
        by=pruning.by,
        at=pruning.signed_at,
    )
    return operators.signed(said, pruning.signature)


def _verify(store: Store, anchors: Sequence[Anchor]) -> ChainReport:
    with store.snapshot() as view:
        return verify_chain(view, anchors)


async def join(parts: Parts, params: Mapping[str, Any]) -> Any:
    """Whether an export of earlier events and the record are one chain; `fault` says why they are not."""
    await parts.store.flush()
    span = Span(
        whole(params, "first", 0, _LAST),
        whole(params, "last", 0, _LAST),
        text(params, "prev"),
        text(params, "head"),
    )
    return {"fault": parts.store.read(join_fault, span), "pruned": parts.store.read(events.seam).id}


async def export(parts: Parts, params: Mapping[str, Any]) -> Any:
    """A page of the chain, in order; `next` is the cursor of the page after it.

    With `raw` each line is text, in which `data` stands as it was hashed.
    """
    await parts.store.flush()
    after = whole(params, "after", 0, _LAST)
    page = parts.store.read(events.page, after, None, whole(params, "limit", 500, PAGE))
    form = export_line if params.get("raw") is True else record_json
    return {"lines": [form(record) for record in page], "next": page[-1].id if page else None}


async def redact_event(parts: Parts, params: Mapping[str, Any]) -> Any:
    """Remove the payload of an event, and of those that hold the same; with `look` only name them.

    With `run` also from the whole run what holds the same texts, or one of `texts`.
    """
    event = whole(params, "event", 0, _LAST)
    run, texts = params.get("run") is True, params.get("texts", [])
    if not isinstance(texts, list) or not all(isinstance(one, str) for one in texts):
        raise InvalidInput("`texts` is no list of texts", hint="give each text to look for")
    await parts.store.flush()
    if params.get("look") is True:
        found = parts.store.read(payloads_of, event)
        shown = [{"id": one.id, "type": one.type, "data": one.data} for one in found.events]
        traces = parts.store.read(traces_of, found, texts) if run else None
        return {"events": shown, "traces": _counts(traces) if traces is not None else None}
    reason = text(params, "reason").strip()
    if not reason:
        raise InvalidInput("a redaction needs a reason", hint="say why the payload is removed")
    redacted = await parts.store.write(redact, event, parts.principal, reason, run=run, texts=texts)
    return {"events": list(redacted), "reason": reason}


def _counts(traces: Any) -> dict[str, Any]:
    return {
        "runs": list(traces.runs),
        "parts": [f"{run}:{column.removesuffix('_json')}" for run, column, _ in traces.parts],
        "messages": len(traces.messages),
        "events": len(traces.events),
        "calls": len(traces.calls),
        "approvals": len(traces.approvals),
        "questions": len(traces.questions),
    }
