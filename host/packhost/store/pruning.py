"""A pruning from plan to end: looked for on a reading connection, done in small steps by the writer."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread

from packhost.errors import InvalidInput, StoreUnavailable
from packhost.rules.autonomy import Level
from packhost.store.base import Store
from packhost.store.ops import events, pruning
from packhost.store.ops.pruning import EventsPlan, RowsPlan
from packhost.store.seals import ExportSeal, export_line
from packhost.workspace.files import sync_folder

EVENTS_A_STEP: Final = 250
ROWS_A_STEP: Final = 50
"""So much is removed at once: between two steps whoever waits for the writer has its turn."""

Progress = Callable[[int, int], Awaitable[None]]
"""Told how many of how many steps are done."""


@dataclass(frozen=True, slots=True)
class Cutoffs:
    """What is old: events recorded, and runs ended, before these times (seconds since the epoch)."""

    events: float | None
    runs: float | None


@dataclass(frozen=True, slots=True)
class Plan:
    """What a pruning would remove; `unfinished` is how many events an earlier one still has to."""

    cutoffs: Cutoffs
    events: EventsPlan | None
    rows: RowsPlan | None
    unfinished: int = 0

    @property
    def empty(self) -> bool:
        """There is nothing to do."""
        nothing = self.rows is None or not any(self.rows.counts.values())
        return nothing and not self.unfinished and (self.events is None or not self.events.count)


@dataclass(frozen=True, slots=True)
class Pruned:
    """What was removed; `event` is the number of the event that tells of the events that went."""

    event: int | None
    events: int
    rows: dict[str, int] = field(default_factory=dict)


async def plan(store: Store, cutoffs: Cutoffs, opening: Level) -> Plan:
    """Look for what may go; `opening` is the level that a new session has."""
    return await anyio.to_thread.run_sync(_plan, store, cutoffs, opening)


def _plan(store: Store, cutoffs: Cutoffs, opening: Level) -> Plan:
    with store.snapshot() as view:
        begun = pruning.unfinished(view)
        return Plan(
            cutoffs,
            pruning.plan_events(view, cutoffs.events) if cutoffs.events is not None else None,
            pruning.plan_rows(view, cutoffs.runs, opening) if cutoffs.runs is not None else None,
            begun.last - events.seam(view).id if begun is not None else 0,
        )


class _Steps:
    """Writes step by step; `gently` it rests after each as long as that took."""

    def __init__(self, store: Store, gently: bool) -> None:
        self._store = store
        self._gently = gently

    async def write(self, op: Callable[..., int], *args: object) -> int:
        """One step; how much it removed."""
        began = anyio.current_time()
        done = await self._store.write(op, *args)
        if self._gently:
            await anyio.sleep(anyio.current_time() - began)
        return done


async def finish(store: Store, progress: Progress | None = None) -> int:
    """Remove what an earlier pruning announced and did not come to; how many events went."""
    return await _finished(_Steps(store, gently=False), store, progress)


async def _finished(writing: _Steps, store: Store, progress: Progress | None) -> int:
    begun = store.read(pruning.unfinished)
    if begun is None:
        return 0
    total = begun.last - store.read(events.seam).id
    return await _drop_events(writing, begun.id, total, progress)


async def prune(
    store: Store,
    wanted: Plan,
    *,
    by: str,
    reason: str,
    exported: str | None = None,
    progress: Progress | None = None,
    gently: bool = False,
    signed: tuple[float, str] | None = None,
) -> Pruned:
    """Remove what was planned; `exported` is the SHA-256 of a file that holds its events.

    `gently` half of the time is left to others; `signed` is when and how an operator signed.

    Raises `Conflict` when the record was pruned since the plan was made.
    """
    writing = _Steps(store, gently)
    gone = await _finished(writing, store, progress)
    event, removed = None, gone
    if wanted.events is not None and wanted.events.count:
        before = wanted.cutoffs.events or 0.0
        event = await store.write(pruning.announce, wanted.events, before, by, reason, exported, signed)
        removed += await _drop_events(writing, event, wanted.events.count, progress)
    rows: dict[str, int] = {}
    if wanted.rows is not None and any(wanted.rows.counts.values()):
        await store.write(pruning.announce_rows, wanted.rows, by, reason)
        rows = await _drop_rows(writing, wanted.rows, progress)
    return Pruned(event, removed, rows)


async def _drop_events(writing: _Steps, announced: int, total: int, progress: Progress | None) -> int:
    gone = 0
    while step := await writing.write(pruning.drop_events, announced, EVENTS_A_STEP):
        gone += step
        if progress is not None:
            await progress(gone, total)
    return gone


async def _drop_rows(writing: _Steps, wanted: RowsPlan, progress: Progress | None) -> dict[str, int]:
    """First what names other rows, then what is named."""
    before, newest = wanted.before, wanted.newest
    steps = (
        ("runs", wanted.runs, lambda tx, ids: pruning.drop_runs(tx, ids, before)),
        ("approvals", wanted.approvals, lambda tx, ids: pruning.drop_approvals(tx, ids, before)),
        ("grants", wanted.grants, lambda tx, ids: pruning.drop_grants(tx, ids, before)),
        ("questions", wanted.questions, lambda tx, ids: pruning.drop_questions(tx, ids, before)),
        ("sessions", wanted.sessions, lambda tx, ids: pruning.drop_sessions(tx, ids, before, newest)),
    )
    total, done = sum(len(ids) for _, ids, _ in steps), 0
    gone: dict[str, int] = {}
    for name, ids, drop in steps:
        gone[name] = 0
        for start in range(0, len(ids), ROWS_A_STEP):
            part = ids[start : start + ROWS_A_STEP]
            gone[name] += await writing.write(drop, part)
            done += len(part)
            if progress is not None:
                await progress(done, total)
    return gone


async def export_part(store: Store, wanted: EventsPlan, file: Path, key: bytes | None = None) -> str:
    """Write the events that are to go to a new file, mode 0600, and its SHA-256; on disk when this returns.

    Raises `InvalidInput` when the file exists or cannot be written.
    """
    return await anyio.to_thread.run_sync(_export_part, store, wanted, file, key)


def _export_part(store: Store, wanted: EventsPlan, file: Path, key: bytes | None) -> str:
    seal, sha = (ExportSeal(key) if key else None), hashlib.sha256()
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(descriptor, "wb") as opened, store.snapshot() as view:
            for record in events.export(view, wanted.last):
                line = export_line(record)
                if seal is not None:
                    seal.add(line)
                opened.write(_hashed(sha, line))
            if seal is not None:
                opened.write(_hashed(sha, seal.line()))
            opened.flush()
            os.fsync(opened.fileno())
        sync_folder(file.parent)
    except FileExistsError:
        raise InvalidInput(f"`{file}` exists already", hint="name a new file for the export") from None
    except OSError as error:
        raise StoreUnavailable(
            f"the export `{file}` cannot be written: {error.strerror or error}",
            hint="nothing was pruned; make room, or name another file",
        ) from error
    return sha.hexdigest()


def _hashed(sha: hashlib._Hash, line: str) -> bytes:
    data = f"{line}\n".encode()
    sha.update(data)
    return data
