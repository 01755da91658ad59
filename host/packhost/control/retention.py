"""How long the record is kept, as `retention` in packhost.yaml says; looked after by a host that serves."""

from __future__ import annotations

import logging
import os
import time
from pathlib import Path
from typing import Final

import anyio

from packhost.control.base import Parts
from packhost.errors import Conflict, PackhostError
from packhost.store.ops.pruning import EventsPlan
from packhost.store.pruning import Cutoffs, Pruned, export_part, finish, plan, prune

log = logging.getLogger("packhost.retention")
EVERY: Final = 3_600.0
"""Seconds between two looks at what is old."""
ARCHIVE: Final = "archive"
_JUMP: Final = 300.0


async def keep_retention(parts: Parts, every: float = EVERY) -> None:
    """Remove what is older than the accepted retention, for as long as the host serves.

    A clock that has jumped since the last look may be wrong: nothing is removed by it before the next one.
    """
    wall, steady = parts.store.now(), time.monotonic()
    while True:
        await anyio.sleep(every)
        passed = (parts.store.now() - wall) - (time.monotonic() - steady)
        wall, steady = parts.store.now(), time.monotonic()
        if abs(passed) > _JUMP:
            log.warning("the clock has jumped by %.0f s: nothing is pruned before the next look", passed)
            continue
        try:
            done = await apply_retention(parts)
        except Conflict as conflict:
            log.debug("another host prunes: %s", conflict)
        except PackhostError as error:
            log.warning("what is old could not be pruned: %s", error)
        else:
            if done.events or any(done.rows.values()):
                log.info("pruned %d events and %s", done.events, done.rows)


async def apply_retention(parts: Parts) -> Pruned:
    """Remove what is older than the accepted retention now.

    Raises `Conflict` when another host does the same, `StoreUnavailable` when an archive cannot be written;
    nothing has gone then.
    """
    wanted = parts.workspace.accepted.retention
    gone = await finish(parts.store)
    if wanted.events is None and wanted.runs is None:
        return Pruned(None, gone)
    now = parts.store.now()
    cutoffs = Cutoffs(
        None if wanted.events is None else now - wanted.events,
        None if wanted.runs is None else now - wanted.runs,
    )
    found = await plan(parts.store, cutoffs, parts.configuration().autonomy.default)
    file, exported = None, None
    if wanted.archive and found.events is not None and found.events.count:
        file = _part(parts.workspace.root.state, found.events)
        exported = await export_part(parts.store, found.events, file)
    try:
        done = await prune(parts.store, found, by="host", reason="retention", exported=exported, gently=True)
    except Conflict:
        if file is not None:
            file.unlink(missing_ok=True)  # the host that does it has a copy of its own
        raise
    if done.rows.get("sessions"):
        parts.gate.sessions.forget()
    return Pruned(done.event, gone + done.events, done.rows)


def _part(state: Path, events: EventsPlan) -> Path:
    """A new file for a part of the record; hosts that share a folder never take each other's."""
    folder = state / ARCHIVE
    folder.mkdir(mode=0o700, exist_ok=True)
    file = folder / f"events-{events.first:012}-{events.last:012}-{os.getpid()}.jsonl"
    file.unlink(missing_ok=True)  # of this very process, from a pruning that did not begin
    return file
