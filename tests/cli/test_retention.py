"""`retention` in packhost.yaml, as a host that serves applies it; and what `doctor` says of the store."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from packhost.app.host import Host, open_host
from packhost.cli.storing import store_checks
from packhost.control import retention
from packhost.control.retention import apply_retention, keep_retention
from packhost.errors import Conflict
from packhost.store.audit import join_fault, verify_chain
from packhost.store.base import Store
from packhost.store.ops import events
from packhost.store.ops.pruning import EventsPlan
from packhost.store.seals import check_export
from packhost.workspace.root import Root


def hosted(project: Path, work: Callable[[Host], Awaitable[None]]) -> None:
    """Runs `work` with a host of the workspace in this process."""

    async def inside() -> None:
        with Root(project) as root:
            async with open_host(root) as host:
                await work(host)

    anyio.run(inside)


@pytest.fixture
def keep(aged: Path, packhost: Callable[..., Any]) -> Callable[[str], None]:
    """Accepts a retention in the workspace that has events of three days ago."""

    def accept(line: str) -> None:
        file = aged / "packhost.yaml"
        file.write_text(f"{file.read_text()}retention: {line}\n")
        assert packhost("accept", "--yes").status == 0

    return accept


def test_what_is_old_is_archived_then_removed(aged: Path, keep: Callable[[str], None]) -> None:
    keep("{events: 1d, runs: 2d}")

    async def work(host: Host) -> None:
        old = [one for one in host.store.read(events.page) if one.ts < time.time() - 86_400]
        done = await apply_retention(host.parts)
        assert (done.events, done.rows["runs"]) == (len(old), 2)
        report = host.store.read(verify_chain)
        assert (report.ok, report.prunings[0].by, report.prunings[0].reason) == (True, "host", "retention")
        (file,) = (host.root.state / "archive").iterdir()
        assert file.stat().st_mode & 0o777 == 0o600
        span = check_export(file.read_text().splitlines(), None).span
        assert span is not None
        assert host.store.read(join_fault, span) == ""
        again = await apply_retention(host.parts)
        assert (again.event, again.events) == (None, 0)

    hosted(aged, work)


def test_nothing_goes_where_no_retention_was_accepted(aged: Path) -> None:
    (aged / "packhost.yaml").write_text(f"{(aged / 'packhost.yaml').read_text()}retention: {{events: 1d}}\n")

    async def work(host: Host) -> None:
        done = await apply_retention(host.parts)
        assert (done.events, host.store.read(events.seam).id) == (0, 0)

    hosted(aged, work)


def test_without_an_archive_no_copy_is_left(aged: Path, keep: Callable[[str], None]) -> None:
    keep("{events: 1d, archive: false}")

    async def work(host: Host) -> None:
        done = await apply_retention(host.parts)
        assert done.events > 0
        assert not (host.root.state / "archive").exists()
        said = host.store.read(events.by_id, done.event or 0)
        assert said is not None
        assert json.loads(said.data or "")["export_sha256"] is None

    hosted(aged, work)


def test_a_host_that_serves_looks_again_and_again(aged: Path, keep: Callable[[str], None]) -> None:
    keep("{events: 1d}")

    async def work(host: Host) -> None:
        with anyio.fail_after(20), host.store.watch("events") as watch:
            host.tasks.start_soon(keep_retention, host.parts, 0.02)
            while host.store.read(events.seam).id == 0:
                await watch.changed()

    hosted(aged, work)


def test_of_two_hosts_that_prune_at_once_one_does_and_one_leaves_no_copy(
    aged: Path, keep: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    keep("{events: 1d}")

    async def work(host: Host) -> None:
        real = retention.export_part

        async def overtaken(store: Store, events: EventsPlan, file: Path) -> str:
            sha = await real(store, events, file)
            other = file.with_name("of-another-host.jsonl")
            file.rename(other)
            monkeypatch.setattr(retention, "export_part", real)
            await apply_retention(host.parts)  # another host's
            file.rename(file.with_name("of-the-one-that-did.jsonl"))
            other.rename(file)
            return sha

        monkeypatch.setattr(retention, "export_part", overtaken)
        with pytest.raises(Conflict):
            await apply_retention(host.parts)
        report = host.store.read(verify_chain)
        assert (report.ok, len(report.prunings)) == (True, 1)
        assert [one.name for one in (host.root.state / "archive").iterdir()] == ["of-the-one-that-did.jsonl"]

    hosted(aged, work)


class Heard(logging.Handler):
    """Says when something was logged."""

    def __init__(self) -> None:
        super().__init__()
        self.said = ""
        self.event = anyio.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.said = record.getMessage()
        self.event.set()


def test_by_a_clock_that_has_jumped_nothing_goes(
    aged: Path, keep: Callable[[str], None], clock: Callable[[float], None]
) -> None:
    keep("{events: 30d}")

    async def work(host: Host) -> None:
        heard, log = Heard(), logging.getLogger("packhost.retention")
        log.addHandler(heard)
        try:
            host.tasks.start_soon(keep_retention, host.parts, 0.2)
            await anyio.lowlevel.checkpoint()
            clock(-90 * 86_400)
            with anyio.fail_after(10):
                await heard.event.wait()
        finally:
            log.removeHandler(heard)
        assert "has jumped" in heard.said
        assert host.store.read(events.seam).id == 0

    hosted(aged, work)


@pytest.mark.parametrize("line", ["{events: 30m}", "{events: soon}", "{logs: 1d}"])
def test_a_retention_that_cannot_be_is_refused_with_its_place(
    line: str, empty: Path, packhost: Callable[..., Any]
) -> None:
    (empty / "packhost.yaml").write_text(f"packhost: 1\nretention: {line}\n")
    ran = packhost("accept", "--yes")
    assert (ran.status, "packhost.yaml:2" in ran.err) == (2, True)


def facts(**changes: Any) -> dict[str, Any]:
    known: dict[str, Any] = {
        "kind": "sqlite",
        "sqlite": "3.51.3",
        "schema": 5,
        "bytes": 1_000,
        "wal_bytes": 0,
        "free_bytes": 10**12,
        "commit_seconds": 0.001,
        "unfinished": 0,
        "record": {"first": 1, "last": 9},
    }
    return {**known, **changes}


HOST = {"pid": 1, "host": "a", "settings_sha": "x", "version": "1"}


@pytest.mark.parametrize(
    ("changes", "name", "state", "said"),
    [
        ({}, "store", "ok", "events 1 to 9"),
        ({}, "disk", "ok", "free where"),
        ({"free_bytes": 10**6}, "disk", "broken", "make room"),
        ({"free_bytes": 10**9, "bytes": 10**9}, "disk", "note", "too little for a backup"),
        ({"wal_bytes": 10**9}, "write-ahead log", "note", "a long read"),
        ({"commit_seconds": 1.0}, "commits", "note", "1000 ms"),
        ({"unfinished": 3}, "pruning", "note", "3 events"),
        ({"replicas": [HOST, {**HOST, "pid": 2}]}, "hosts", "ok", "2 share the store"),
        ({"replicas": [HOST, {**HOST, "settings_sha": "y"}]}, "hosts", "note", "different configurations"),
        ({"replicas": [HOST, {**HOST, "version": "2"}]}, "hosts", "note", "different versions"),
    ],
)
def test_doctor_says_of_the_store_what_is_worth_knowing(
    changes: dict[str, Any], name: str, state: str, said: str
) -> None:
    found = [check for check in store_checks(facts(**changes)) if (check.name, check.state) == (name, state)]
    assert [said in check.text for check in found] == [True]


def test_doctor_has_a_line_for_the_store(aged: Path, packhost: Callable[..., Any]) -> None:
    checks = {check["check"]: check for check in packhost("doctor", "--json").json["checks"]}
    assert "events 1 to" in checks["store"]["text"]
    assert "free where" in checks["disk"]["text"]
