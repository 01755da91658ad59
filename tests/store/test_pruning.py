"""A record whose beginning was pruned: what it still proves, and what stays."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tampering import tamper

from packhost.errors import Conflict, InvalidInput, NotFound
from packhost.journal import BrokenLink, canonical
from packhost.names import new_id
from packhost.rules.autonomy import Level
from packhost.store.audit import join_fault, verify_chain
from packhost.store.base import Store
from packhost.store.ops import approvals, calls, events, executions, grants, pruning, sessions
from packhost.store.ops.redaction import redact
from packhost.store.pruning import Cutoffs, Plan, Pruned, export_part, finish, plan, prune
from packhost.store.rows import ApprovalAnswer, NewGrant
from packhost.store.seals import Anchor, check_export, join_spans
from packhost.store.sqlite import SqliteStore

pytestmark = pytest.mark.anyio
Make = Callable[..., Any]
LATER = 4e9
"""A time when everything is old."""


async def fill(store: Store, new_call: Make, count: int = 5) -> None:
    for number in range(count):
        call = new_call(args_json=canonical({"path": f"{number}.txt"}))
        await store.write(calls.begin, call)
        await store.write(calls.end, call.id, "ok", None, "1", finish_execution=True)


async def planned(
    store: Store, before: float | None, runs: float | None = None, level: Level = "guarded"
) -> Plan:
    return await plan(store, Cutoffs(before, runs), level)


async def pruned_to(store: Store, last: int) -> Pruned:
    """Prune up to an event, as if everything up to it were old."""
    after = store.read(events.by_id, last + 1)
    before = after.ts if after is not None else LATER
    return await prune(store, await planned(store, before), by="ann", reason="old")


async def test_a_pruned_chain_is_proved_from_what_was_pruned_on_record(store: Store, new_call: Make) -> None:
    await fill(store, new_call)
    fourth = store.read(events.by_id, 4)
    assert fourth is not None
    done = await pruned_to(store, 4)
    assert (done.event, done.events) == (11, 4)
    report = store.read(verify_chain)
    assert (report.ok, report.count, report.pruned, report.unfinished) == (True, 7, 4, 0)
    (said,) = report.prunings
    assert (said.first, said.last, said.last_hash, said.by, said.reason) == (1, 4, fourth.hash, "ann", "old")


async def test_a_second_pruning_explains_the_whole_beginning(store: Store, new_call: Make) -> None:
    await fill(store, new_call)
    await pruned_to(store, 3)
    await fill(store, new_call, 1)
    await pruned_to(store, 12)  # the event that told of the first pruning goes along
    report = store.read(verify_chain)
    assert (report.ok, report.pruned) == (True, 12)
    assert [(one.first, one.last) for one in report.prunings] == [(4, 12)]


async def test_nothing_younger_than_the_cutoff_goes(store: Store, new_call: Make) -> None:
    await fill(store, new_call)
    third = store.read(events.by_id, 3)
    assert third is not None
    found = await planned(store, third.ts)
    assert found.events is not None
    assert found.events.last == 2


async def test_an_event_dated_in_the_future_holds_nothing_back(store: Store, new_call: Make) -> None:
    await fill(store, new_call)
    tamper(store, "UPDATE events SET ts=ts+9e8 WHERE id=2")
    fifth = store.read(events.by_id, 5)
    assert fifth is not None
    found = await planned(store, fifth.ts)
    assert found.events is not None
    assert found.events.last == 4


async def test_the_events_of_a_run_that_goes_on_stay_and_all_after_them(
    store: Store, new_call: Make, new_run: Make
) -> None:
    await fill(store, new_call, 1)
    run = new_run()
    await store.write(executions.create, run)
    await fill(store, new_call, 1)
    found = await planned(store, LATER)
    assert found.events is not None
    assert (found.events.last, found.events.held_by) == (2, f"run `{run.id}` has not ended")
    await store.write(executions.request_abort, run.id, "me")
    found = await planned(store, LATER)
    assert found.events is not None
    assert (found.events.last, found.events.held_by) == (6, "")


@pytest.mark.parametrize(
    ("statements", "said"),
    [
        (["DELETE FROM events WHERE id=5"], BrokenLink(5, "it is missing and no pruning of it is on record")),
        (["DELETE FROM events WHERE id<9"], BrokenLink(5, "it is missing and no pruning of it is on record")),
        (["DELETE FROM events WHERE id=7"], BrokenLink(8, "record 7 is missing")),
        (["UPDATE events SET data_json=NULL WHERE id=11"], BrokenLink(11, "it does not say what was pruned")),
        (
            ["UPDATE events SET data_json=replace(data_json, '\"last\":4', '\"last\":5') WHERE id=11"],
            BrokenLink(11, "its data was changed"),
        ),
        (["UPDATE events SET prev=hash WHERE id=5"], BrokenLink(5, "its fields do not match its hash")),
    ],
)
async def test_what_goes_beyond_the_pruning_on_record_is_found(
    store: Store, new_call: Make, statements: list[str], said: BrokenLink
) -> None:
    await fill(store, new_call)
    await pruned_to(store, 4)
    assert store.read(verify_chain).ok
    tamper(store, *statements)
    assert store.read(verify_chain).broken == said


async def test_a_beginning_that_was_cut_off_without_a_pruning_is_found(store: Store, new_call: Make) -> None:
    await fill(store, new_call)
    tamper(store, "DELETE FROM events WHERE id<4")
    assert store.read(verify_chain).broken == BrokenLink(4, "record 1 is missing")


@pytest.mark.parametrize(
    "changes", [{"last": 3}, {"last": 9}, {"last_hash": "f" * 64}, {"last": 90}, {"first": 0}, {"last": "x"}]
)
async def test_a_forged_pruning_that_does_not_fit_is_found(
    store: Store, new_call: Make, changes: dict[str, Any]
) -> None:
    await fill(store, new_call)
    fourth = store.read(events.by_id, 4)
    assert fourth is not None
    said = {"first": 1, "last": 4, "last_hash": fourth.hash, **changes}
    await store.write(lambda tx: tx.emit(pruning.PRUNED_EVENT, said, actor="mallory"))
    tamper(store, "DELETE FROM events WHERE id<5")
    assert not store.read(verify_chain).ok


async def test_a_forged_pruning_that_fits_shows_in_the_report(store: Store, new_call: Make) -> None:
    await fill(store, new_call)
    fourth = store.read(events.by_id, 4)
    assert fourth is not None
    said = {"first": 1, "last": 4, "last_hash": fourth.hash}
    await store.write(lambda tx: tx.emit(pruning.PRUNED_EVENT, said, actor="mallory"))
    tamper(store, "DELETE FROM events WHERE id<5")
    report = store.read(verify_chain, [Anchor(fourth.hash, 2)])
    assert report.ok  # a chain cannot show who wrote it: what it says is shown, and what cannot be checked
    assert [one.by for one in report.prunings] == ["mallory"]
    assert len(report.unchecked) == 1


async def test_an_anchor_at_the_seam_is_held_to_and_an_earlier_one_cannot_be(
    store: Store, new_call: Make
) -> None:
    await fill(store, new_call)
    every = {record.id: record.hash for record in store.read(events.page)}
    await pruned_to(store, 4)
    report = store.read(verify_chain, [Anchor(every[4], 4), Anchor(every[9], 9), Anchor(every[4])])
    assert (report.ok, report.unchecked) == (True, ())
    report = store.read(verify_chain, [Anchor(every[2], 2)])
    assert (report.ok, len(report.unchecked), report.missed) == (True, 1, ())
    assert not store.read(verify_chain, [Anchor(every[5], 4)]).ok
    assert not store.read(verify_chain, [Anchor(every[2])]).ok


async def test_exports_of_what_was_pruned_join_on_to_what_is_kept(
    store: Store, new_call: Make, tmp_path: Path
) -> None:
    await fill(store, new_call)
    spans = []
    for number, last in enumerate((4, 8)):
        after = store.read(events.by_id, last + 1)
        assert after is not None
        found = await planned(store, after.ts)
        assert found.events is not None
        file = tmp_path / f"{number}.jsonl"
        sha = await export_part(store, found.events, file, b"k" * 32)
        done = await prune(store, found, by="ann", reason="old", exported=sha)
        assert done.event is not None
        said = store.read(events.by_id, done.event)
        assert said is not None
        assert json.loads(said.data or "")["export_sha256"] == sha
        report = check_export(file.read_text().splitlines(), b"k" * 32)
        assert (report.broken, report.signed) == ("", True)
        spans.append(report.span)
    whole, fault = join_spans([span for span in reversed(spans) if span is not None])
    assert (fault, whole is not None and (whole.first, whole.last)) == ("", (1, 8))
    assert whole is not None
    assert store.read(join_fault, whole) == ""
    assert spans[0] is not None
    assert "begins after event 8" in store.read(join_fault, spans[0])


async def test_an_export_from_before_the_pruning_still_overlaps_the_record(
    store: Store, new_call: Make, tmp_path: Path
) -> None:
    await fill(store, new_call)
    found = await planned(store, LATER)
    assert found.events is not None
    await export_part(store, found.events, tmp_path / "all.jsonl")
    lines = (tmp_path / "all.jsonl").read_text().splitlines()
    await pruned_to(store, 4)
    whole = check_export(lines, None).span
    assert whole is not None
    assert store.read(join_fault, whole) == ""
    forged = check_export(lines[:5], None).span
    assert forged is not None
    tamper(store, "UPDATE events SET hash=replace(hash, 'a', 'b')")
    assert "written anew" in store.read(join_fault, forged)


async def test_an_export_never_overwrites_a_file(store: Store, new_call: Make, tmp_path: Path) -> None:
    await fill(store, new_call)
    found = await planned(store, LATER)
    assert found.events is not None
    file = tmp_path / "there.jsonl"
    file.write_text("mine")
    with pytest.raises(InvalidInput):
        await export_part(store, found.events, file)
    assert file.read_text() == "mine"


async def test_a_pruning_that_broke_off_is_valid_and_is_ended_by_the_next(
    store: Store, new_call: Make
) -> None:
    await fill(store, new_call)
    found = await planned(store, LATER)
    assert found.events is not None
    event = await store.write(pruning.announce, found.events, LATER, "ann", "old", None)
    assert (store.read(verify_chain).ok, store.read(verify_chain).unfinished) == (True, 10)
    assert await store.write(pruning.drop_events, event, 3) == 3
    report = store.read(verify_chain)
    assert (report.ok, report.pruned, report.unfinished) == (True, 3, 7)
    again = await planned(store, LATER)
    assert again.unfinished == 7
    assert again.events is not None
    with pytest.raises(Conflict):
        await store.write(pruning.announce, again.events, LATER, "ann", "old", None)
    assert await finish(store) == 7
    report = store.read(verify_chain)
    assert (report.ok, report.pruned, report.unfinished) == (True, 10, 0)


async def test_a_cursor_is_pruned_exactly_when_an_event_after_it_is_gone(
    store: Store, new_call: Make, new_run: Make
) -> None:
    first, second = new_run(), new_run()
    for run in (first, second, first):  # 1, 2, then what ends them
        if run is not first or store.read(events.head).id == 0:
            await store.write(executions.create, run)
    await store.write(executions.request_abort, first.id, "me")
    await store.write(executions.request_abort, second.id, "me")
    assert [record.execution_id for record in store.read(events.page)] == [first.id, second.id] * 2
    await pruned_to(store, 3)
    state = lambda after, run=None: store.read(events.cursor_state, after, run)  # noqa: E731
    assert [state(n, first.id) for n in (0, 1, 2, 3, 5)] == ["pruned", "pruned", "pruned", "kept", "kept"]
    assert [state(n, second.id) for n in (0, 1, 2, 4)] == ["pruned", "pruned", "kept", "kept"]
    assert [state(n) for n in (0, 2, 3, 5, 6)] == ["pruned", "pruned", "kept", "kept", "ahead"]
    with pytest.raises(NotFound):
        state(0, "run_none")


async def test_a_pruning_on_record_cannot_be_redacted(store: Store, new_call: Make) -> None:
    await fill(store, new_call)
    done = await pruned_to(store, 4)
    assert done.event is not None
    with pytest.raises(Conflict):
        await store.write(redact, done.event, "ann", "why")


def rows(tx: Any) -> dict[str, int]:
    tables = ("executions", "calls", "approvals", "grants", "sessions", "session_messages")
    return {name: tx.execute(f"SELECT COUNT(*) FROM {name}").fetchone()[0] for name in tables}


async def used_up(tx_store: Store, new_approval: Make, new_call: Make) -> None:
    """One approved call, one call by a grant, both ended."""
    asked = new_approval()
    await tx_store.write(approvals.request, asked)
    await tx_store.write(approvals.answer, asked.id, ApprovalAnswer("approve", "ann", "cli"))
    call = new_call(approval_id=asked.id, binding=asked.binding)
    await tx_store.write(calls.begin, call)
    await tx_store.write(calls.end, call.id, "ok", None, "1", finish_execution=True)
    given = NewGrant(new_id("grant"), "workspace:write_file", "1.0.0", "{}", "ann", max_uses=1)
    await tx_store.write(grants.add, given)
    call = new_call(grant_id=given.id)
    await tx_store.write(calls.begin, call)
    await tx_store.write(calls.end, call.id, "ok", None, "1", finish_execution=True)


async def test_rows_of_ended_runs_go_with_what_only_they_need(
    store: Store, new_call: Make, new_approval: Make
) -> None:
    await store.write(sessions.open, "s", "me", "code", "guarded")
    await store.write(sessions.append_messages, "s", None, ['{"role":"user"}'])
    await used_up(store, new_approval, new_call)
    found = await planned(store, None, LATER)
    assert found.rows is not None
    expected = {
        "runs": 2,
        "calls": 2,
        "approvals": 1,
        "grants": 1,
        "sessions": 1,
        "messages": 1,
        "questions": 0,
    }
    assert found.rows.counts == expected
    done = await prune(store, found, by="ann", reason="old")
    assert done.rows == {"runs": 2, "approvals": 1, "grants": 1, "questions": 0, "sessions": 1}
    assert set(store.read(rows).values()) == {0}
    last = store.read(events.by_id, store.read(events.head).id)
    assert last is not None
    assert (last.type, json.loads(last.data or "")["runs"]) == ("store.pruned", 2)
    assert store.read(verify_chain).ok


async def test_rows_that_are_still_needed_stay(
    store: Store, new_call: Make, new_run: Make, new_approval: Make
) -> None:
    parent = new_run(session_id="busy")
    child = new_run(parent=parent.id, session_id="child")
    for name, opener in (("busy", None), ("branch", "busy"), ("low", None), ("idle", None)):
        level: Level = "observe" if name == "low" else "guarded"
        await store.write(sessions.open, name, "me", "code", level, opener)
    for run in (parent, child):
        await store.write(executions.create, run)
    await store.write(executions.request_abort, parent.id, "me")
    waiting = new_approval(id="apr_waiting")
    await store.write(approvals.request, waiting)
    live = NewGrant("grant_live", "workspace:write_file", "1.0.0", "{}", "ann")
    await store.write(grants.add, live)
    found = await planned(store, None, LATER)
    assert found.rows is not None
    assert (found.rows.runs, found.rows.approvals, found.rows.grants) == ((), (), ())
    assert found.rows.sessions == ("idle",)
    await store.write(executions.request_abort, child.id, "me")
    found = await planned(store, None, LATER)
    assert found.rows is not None
    assert set(found.rows.runs) == {parent.id, child.id}


async def test_a_session_that_was_used_after_the_look_stays(
    store: Store, new_call: Make, new_run: Make
) -> None:
    await store.write(sessions.open, "s", "me", "code", "guarded")
    found = await planned(store, None, LATER)
    await store.write(executions.create, new_run(session_id="s"))
    done = await prune(store, found, by="ann", reason="old")
    assert done.rows["sessions"] == 0
    assert store.read(sessions.find, "s") is not None


async def test_an_approval_that_can_still_be_used_stays(store: Store, new_approval: Make) -> None:
    asked = new_approval()
    await store.write(approvals.request, asked)
    await store.write(approvals.answer, asked.id, ApprovalAnswer("approve", "ann", "cli"))
    found = await planned(store, None, LATER)
    assert found.rows is not None
    assert found.rows.approvals == ()


async def test_questions_whose_time_is_over_go_however_they_ended(store: Store) -> None:
    await store.write(questions)
    found = await planned(store, None, LATER)
    assert found.rows is not None
    assert found.rows.questions == ("q_old",)
    done = await prune(store, found, by="ann", reason="old")
    assert done.rows["questions"] == 1
    assert store.read(lambda tx: tx.execute("SELECT id FROM questions").fetchall()) == [("q_open",)]


def questions(tx: Any) -> None:
    """One that nobody answered in time, and one that is open for years."""
    for id, until in (("q_old", 1.0), ("q_open", 4e9)):
        tx.execute(
            "INSERT INTO questions(id, workspace, session_id, principal, client, tool, tool_version, binding,"
            " prompt, message, schema_json, told_json, status, created_at, expires_at)"
            " VALUES(?,'ws','s','me','code','pack:tool','1','b','p','m','{}','{}','pending',0,?)",
            (id, until),
        )


async def test_foreign_keys_hold_after_a_pruning(store: Store, new_call: Make, new_approval: Make) -> None:
    await used_up(store, new_approval, new_call)
    await prune(store, await planned(store, LATER, LATER), by="ann", reason="old")
    if isinstance(store, SqliteStore):  # the other checks them at every statement
        assert tamper(store, "PRAGMA foreign_key_check") == []
    assert store.read(verify_chain).ok


async def test_whoever_waits_for_the_writer_has_its_turn_between_the_steps(
    store: Store, new_call: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(store, new_call, 20)
    monkeypatch.setattr("packhost.store.pruning.EVENTS_A_STEP", 4)
    seen: list[tuple[int, int]] = []

    async def progress(done: int, total: int) -> None:
        seen.append((done, total))
        await store.write(lambda tx: tx.emit("test.between", {}))

    await prune(store, await planned(store, LATER), by="ann", reason="old", progress=progress)
    assert seen == [(n, 40) for n in range(4, 41, 4)]
    assert store.read(verify_chain).ok


async def test_an_event_that_announces_nothing_removes_nothing(store: Store, new_call: Make) -> None:
    await fill(store, new_call)
    for event in (1, 99):
        with pytest.raises(Conflict):
            await store.write(pruning.drop_events, event, 10)
