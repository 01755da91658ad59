"""Operations on the store as a whole: what it holds, and pruning it."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread

from packhost.control.base import Parts, optional, text, whole
from packhost.control.operator import needed, signed_of
from packhost.errors import Conflict, InvalidInput
from packhost.gate.operators import Signed
from packhost.rules.statements import pruning_statement
from packhost.store.info import describe, sqlite_files
from packhost.store.ops import events, pruning, replicas
from packhost.store.ops.pruning import EventsPlan
from packhost.store.pruning import Cutoffs, Plan, plan, prune
from packhost.workspace.settings import SHORTEST_KEPT


async def info(parts: Parts, params: Mapping[str, Any]) -> Any:
    """What the store is and holds; never a password."""
    began = time.monotonic()
    await parts.store.flush()
    waited = time.monotonic() - began
    return {**await anyio.to_thread.run_sync(_info, parts), "commit_seconds": waited}


def _info(parts: Parts) -> dict[str, Any]:
    known = parts.store.info()
    found: dict[str, Any] = {"kind": known.kind, "place": known.place, "holder": os.getpid()}
    if known.kind == "sqlite":
        found |= sqlite_files(Path(known.place))
    else:
        found |= {"bytes": known.size, "engine": known.engine}
    with parts.store.snapshot() as view:
        begun = pruning.unfinished(view)
        hosts = [asdict(one) for one in replicas.listing(view)] if known.kind != "sqlite" else []
        left = begun.last - events.seam(view).id if begun is not None else 0
        return {**found, **({"replicas": hosts} if hosts else {}), "unfinished": left, **describe(view)}


async def kept(parts: Parts, params: Mapping[str, Any]) -> Any:
    """The first event that is kept; a pruning that goes on moves it."""
    return {"first": parts.store.read(events.seam).id + 1}


async def prune_old(parts: Parts, params: Mapping[str, Any]) -> Any:
    """Remove what is old; with `look` only say what that is.

    `events` and `runs` are ages in seconds. To remove events give `last`, the event that `look` ended with,
    and `exported`, the digest of the file that holds them, or `without_export`.
    """
    found = await plan(parts.store, _cutoffs(parts, params), parts.configuration().autonomy.default)
    if params.get("look") is True:
        return _plan_json(found)
    exported, signed = optional(params, "exported"), signed_of(params)
    if found.events is not None and found.events.count:
        if exported is None and params.get("without_export") is not True:
            raise InvalidInput(
                "what is pruned is gone for good, and there is no export of it",
                hint="name a file with `--export FILE`, or say `--without-export`",
            )
        last = whole(params, "last", 0, 2**53)
        if last > found.events.last:
            raise Conflict("less can be pruned than was looked at", hint="a run has gone on: look again")
        record = parts.store.read(events.by_id, last)
        if record is None or last < found.events.first:
            raise Conflict("the record was pruned meanwhile", hint="look again, then prune")
        found = replace(found, events=replace(found.events, last=last, last_hash=record.hash))
    if needed(parts):
        _check(parts, found.events, exported, signed)
    done = await prune(
        parts.store,
        found,
        by=parts.principal,
        reason=text(params, "reason", ""),
        exported=exported,
        signed=(signed.at, signed.signature) if signed is not None and needed(parts) else None,
    )
    if done.rows.get("sessions"):
        parts.gate.sessions.forget()
    return {"event": done.event, "events": done.events, "rows": done.rows}


def _check(parts: Parts, events: EventsPlan | None, exported: str | None, signed: Signed | None) -> None:
    """Where there is an operator nothing goes without their signature."""
    if signed is None:
        raise parts.gate.operators.missing("pruning needs an operator", "packhost store prune")
    going = events if events is not None else EventsPlan(0, 0)
    said = pruning_statement(
        workspace=parts.store.workspace,
        first=going.first,
        last=going.last,
        last_hash=going.last_hash,
        exported=exported,
        by=parts.principal,
        at=signed.at,
    )
    parts.gate.operators.check(said, signed, parts.store.now())


def _cutoffs(parts: Parts, params: Mapping[str, Any]) -> Cutoffs:
    now = parts.store.now()

    def before(name: str) -> float | None:
        age = params.get(name)
        if age is None:
            return None
        if not isinstance(age, int | float) or isinstance(age, bool) or age < SHORTEST_KEPT:
            raise InvalidInput("the record is kept for an hour at least", hint="name a longer time")
        return now - float(age)

    return Cutoffs(before("events"), before("runs"))


def _plan_json(found: Plan) -> dict[str, Any]:
    planned = found.events
    return {
        "empty": found.empty,
        "unfinished": found.unfinished,
        "events": None
        if planned is None
        else {
            "first": planned.first,
            "last": planned.last,
            "last_hash": planned.last_hash,
            "count": planned.count,
            "held_by": planned.held_by,
        },
        "rows": None if found.rows is None else found.rows.counts,
    }
