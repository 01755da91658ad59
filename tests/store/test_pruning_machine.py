"""Whatever is emitted, redacted, anchored, exported and pruned: in any order the record stays provable."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from packhost.errors import Conflict
from packhost.journal import Record, canonical
from packhost.names import new_id
from packhost.store.audit import export_lines, join_fault, verify_chain
from packhost.store.migrations import migrate
from packhost.store.ops import calls, events, executions, pruning
from packhost.store.ops.redaction import redact
from packhost.store.rows import DIRECT, NewCall, NewExecution
from packhost.store.seals import Anchor, check_export, join_spans
from packhost.store.sqlite import SqliteTx

NUMBER = st.integers(0, 10_000)


class Ledger(RuleBasedStateMachine):
    """A store's transaction without its thread, and what somebody keeps elsewhere."""

    @initialize()
    def open(self) -> None:
        self.connection = sqlite3.connect(":memory:", isolation_level=None)
        self.connection.execute("PRAGMA foreign_keys=ON")
        migrate(self.connection, Path(":memory:"))
        self.tx = SqliteTx(self.connection, "ws")
        self.anchors: list[Anchor] = []
        self.exports: list[list[str]] = []
        self.parts: list[list[str]] = []
        self.live: list[str] = []
        self.announced: int | None = None

    def teardown(self) -> None:
        if hasattr(self, "connection"):
            self.connection.close()

    def kept(self, number: int) -> Record | None:
        seam, head = events.seam(self.tx).id, events.head(self.tx).id
        return events.by_id(self.tx, seam + 1 + number % (head - seam)) if head > seam else None

    @rule(text=st.text(max_size=8))
    def call(self, text: str) -> None:
        run = new_id("run")
        execution = NewExecution(run, DIRECT, "s", "me", "code")
        new = NewCall(
            new_id("call"), run, "host", 1, "pack:tool", "1", canonical({"text": text}), "d", False, "me",
            execution=execution,
        )  # fmt: skip
        calls.begin(self.tx, new)
        calls.end(self.tx, new.id, "ok", None, "1", finish_execution=True)

    @rule()
    def start(self) -> None:
        run = NewExecution(new_id("run"), "turn", "s", "me", "code")
        executions.create(self.tx, run)
        self.live.append(run.id)

    @precondition(lambda self: self.live)
    @rule(number=NUMBER)
    def end(self, number: int) -> None:
        executions.request_abort(self.tx, self.live.pop(number % len(self.live)), "me")

    @rule(number=NUMBER)
    def redact(self, number: int) -> None:
        record = self.kept(number)
        if record is not None and record.data is not None and record.type.startswith(("call.", "run.")):
            redact(self.tx, record.id, "ann", "why")

    @rule()
    def anchor(self) -> None:
        head = events.head(self.tx)
        if head.id:
            self.anchors.append(Anchor(head.hash, head.id))

    @rule()
    def export(self) -> None:
        self.exports.append(list(export_lines(self.tx)))

    @rule(number=NUMBER, step=st.integers(1, 9))
    def prune(self, number: int, step: int) -> None:
        """Announce, and remove a first step; what is left waits for `go_on`."""
        record = self.kept(number)
        if record is None or pruning.unfinished(self.tx) is not None:
            return
        plan = pruning.plan_events(self.tx, record.ts)
        if plan.count:
            self.parts.append(
                [line for line in export_lines(self.tx) if check_export([line], None).first <= plan.last]
            )
            self.announced = pruning.announce(self.tx, plan, record.ts, "ann", "old", None)
            pruning.drop_events(self.tx, self.announced, step)

    @precondition(lambda self: self.announced)
    @rule(step=st.integers(1, 9))
    def go_on(self, step: int) -> None:
        assert self.announced is not None
        pruning.drop_events(self.tx, self.announced, step)

    @rule(number=NUMBER)
    def lose_an_event(self, number: int) -> None:
        """Whatever is removed beyond that is found; then it is put back."""
        record = self.kept(number)
        if record is None:
            return
        self.connection.execute("BEGIN")
        begun = pruning.unfinished(self.tx)
        last = events.head(self.tx).id
        self.connection.execute("DELETE FROM events WHERE id<=?", (record.id,))
        allowed = begun is not None and record.id <= begun.last
        assert verify_chain(self.tx).ok == (allowed or record.id == last)
        self.connection.execute("ROLLBACK")

    @invariant()
    def it_is_proved(self) -> None:
        if not hasattr(self, "tx"):
            return
        report = verify_chain(self.tx, self.anchors)
        assert report.broken is None
        assert report.missed == ()
        assert len(report.unchecked) == sum(anchor.id < report.pruned for anchor in self.anchors)

    @invariant()
    def what_was_exported_still_fits(self) -> None:
        if not hasattr(self, "tx"):
            return
        seam = events.seam(self.tx).id
        for lines in (*self.exports, *self.parts):
            report = check_export(lines, None)
            assert report.broken == ""
            if report.span is not None:
                assert bool(join_fault(self.tx, report.span)) == (report.span.last < seam)
        spans = [span for lines in self.parts if (span := check_export(lines, None).span) is not None]
        whole, fault = join_spans(spans)
        assert fault == ""
        assert whole is None or (whole.first == 1 and join_fault(self.tx, whole) == "")

    @invariant()
    def no_live_run_has_lost_an_event(self) -> None:
        if not hasattr(self, "tx"):
            return
        for run in self.live:
            assert events.cursor_state(self.tx, 0, run) == "kept"
            assert events.page(self.tx, 0, run)[0].type == "run.queued"


TestRecord = pytest.mark.slow(Ledger.TestCase)
TestRecord.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


def test_a_second_pruning_waits_for_the_first() -> None:
    machine = Ledger()
    machine.open()
    for _ in range(4):
        machine.call("x")
    plan = pruning.plan_events(machine.tx, 4e9)
    pruning.announce(machine.tx, plan, 4e9, "ann", "old", None)
    with pytest.raises(Conflict):
        pruning.announce(machine.tx, plan, 4e9, "ann", "old", None)
    machine.teardown()
