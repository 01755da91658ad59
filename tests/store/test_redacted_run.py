"""Taking a text out of a whole run."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from packhost.errors import Conflict, InvalidInput
from packhost.journal import canonical
from packhost.store.audit import verify_chain
from packhost.store.base import Store
from packhost.store.ops import calls, events, executions, sessions
from packhost.store.ops.redaction import redact
from packhost.store.ops.traces import cleaned

pytestmark = pytest.mark.anyio
Make = Callable[..., Any]
SECRET = 'canary "quoted"\nand cut'


async def held_everywhere(store: Store, new_run: Make, new_call: Make, *, end: bool = True) -> Any:
    """A run that holds a text in every place; its id."""
    run = new_run(spec_json=canonical({"messages": [SECRET], "limits": {"max_turns": 3}}))
    await store.write(sessions.open, "s", "me", "code", "guarded")
    await store.write(sessions.open, f"{run.id}.left", "me", "code", "guarded", "s")
    await store.write(executions.create, run)
    await store.write(executions.claim, run.id, "host-1", 60, 0)
    call = new_call(execution_id=run.id, args_json=canonical({"content": SECRET}))
    await store.write(calls.begin, call)
    await store.write(calls.end, call.id, "ok", None, canonical({"echo": f"<{SECRET}>"}))
    other = new_call(execution_id=run.id, args_json='{"path":"a.txt"}', idem_key="k")
    await store.write(calls.begin, other)
    await store.write(calls.end, other.id, "ok", None, "plain")
    wrapped = canonical({"role": "assistant", "arguments": json.dumps({"content": SECRET})})
    await store.write(sessions.append_messages, "s", run.id, ['{"role":"user"}', wrapped])
    await store.write(sessions.append_messages, f"{run.id}.left", run.id, [canonical({"t": SECRET})])
    await store.write(lambda tx: question(tx, run.id))
    said = {"turn": 1, "message": f"it said {SECRET}"}
    await store.write(lambda tx: tx.emit("turn.failed", said, execution_id=run.id))
    await store.write(executions.save_state, run.id, "host-1", 1, canonical({"text": SECRET, "turns": 2}))
    if end:
        result = canonical({"text": SECRET})
        await store.write(executions.finish, run.id, "host-1", 1, "completed", "completed", result)
    return run.id


def question(tx: Any, run: str) -> None:
    tx.execute(
        "INSERT INTO questions(id, workspace, run_id, session_id, principal, client, tool, tool_version,"
        " binding, prompt, message, schema_json, told_json, status, content_json, created_at, expires_at)"
        " VALUES('q','ws',?,'s','me','code','pack:tool','1','b',?,?,'{}','{}','accepted',?,0,1)",
        (run, SECRET, SECRET, canonical({"answer": SECRET})),
    )


def everything(store: Store) -> str:
    tables = ("executions", "calls", "approvals", "events", "session_messages", "questions")
    return repr([store.read(lambda tx, t=t: tx.execute(f"SELECT * FROM {t}").fetchall()) for t in tables])


def started(store: Store) -> int:
    return next(one.id for one in store.read(events.page) if one.type == "call.started")


async def test_a_text_goes_from_the_whole_run_and_the_rest_stays(
    store: Store, new_run: Make, new_call: Make
) -> None:
    run = await held_everywhere(store, new_run, new_call)
    assert everything(store).count("canary") > 6
    await store.write(redact, started(store), "ann", "a key was in it", run=True)
    assert "canary" not in everything(store)
    row = store.read(executions.get, run)
    assert json.loads(row.spec_json) == {"messages": ["[REDACTED]"], "limits": {"max_turns": 3}}
    assert json.loads(row.state_json or "") == {"text": "[REDACTED]", "turns": 2}
    assert [call.args_json for call in store.read(calls.of_execution, run)][1] == '{"path":"a.txt"}'
    assert store.read(sessions.history, "s")[0].message == {"role": "user"}


async def test_what_was_taken_out_of_a_run_is_on_record(store: Store, new_run: Make, new_call: Make) -> None:
    run = await held_everywhere(store, new_run, new_call)
    await store.write(redact, started(store), "ann", "a key was in it", run=True)
    assert store.read(verify_chain).ok
    said = json.loads(store.read(events.page, 0, None, 100)[-1].data or "")
    assert said["parts"] == [f"{run}:spec", f"{run}:state", f"{run}:result"]
    assert said["messages"] == [f"{run}.left:1", "s:2"]
    assert (said["runs"], len(said["calls"]), len(said["events"])) == ([run], 1, 3)


async def test_without_being_asked_for_the_run_stays_as_it_was(
    store: Store, new_run: Make, new_call: Make
) -> None:
    run = await held_everywhere(store, new_run, new_call)
    await store.write(redact, started(store), "ann", "a key was in it")
    assert "canary" in store.read(executions.get, run).spec_json


async def test_a_part_of_a_text_is_found_when_it_is_named(
    store: Store, new_run: Make, new_call: Make
) -> None:
    await held_everywhere(store, new_run, new_call)
    await store.write(
        lambda tx: tx.execute("UPDATE session_messages SET message_json=? WHERE seq=1", ('{"x":"canary"}',))
    )
    await store.write(redact, started(store), "ann", "why", run=True, texts=["canary"])
    assert "canary" not in everything(store)


async def test_a_running_run_is_not_redacted(store: Store, new_run: Make, new_call: Make) -> None:
    await held_everywhere(store, new_run, new_call, end=False)
    with pytest.raises(Conflict, match="is running"):
        await store.write(redact, started(store), "ann", "why", run=True)
    assert store.read(verify_chain).redacted == 0


async def test_a_text_too_short_to_look_for_is_refused(store: Store, new_run: Make, new_call: Make) -> None:
    call = new_call(args_json='{"a":"x"}')
    await store.write(calls.begin, call)
    await store.write(calls.end, call.id, "ok", None, "1", finish_execution=True)
    for texts in ((), ("short",)):
        with pytest.raises(InvalidInput):
            await store.write(redact, 1, "ann", "why", run=True, texts=texts)


@given(st.text(min_size=6), st.text(), st.text())
def test_a_text_is_found_as_it_is_and_inside_json_inside_a_text(secret: str, before: str, after: str) -> None:
    forms = (secret, json.dumps(secret)[1:-1])
    for held in (before + secret + after, json.dumps({"a": [secret]})):
        clean = cleaned(canonical({"k": [held]}), sorted(forms, key=len, reverse=True))
        assert clean is not None
        (left,) = json.loads(clean)["k"]
        assert "[REDACTED]" in left
