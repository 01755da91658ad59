"""What an end user answers: what a run of their own asks of them, this once and in that session."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from packhost.cli.run import run
from packhost.store.ops import approvals, calls

pytestmark = pytest.mark.anyio

AGENTS = """\
    reads:
      provider: scripted
      script:
        - tool_calls: [{id: r1, name: workspace_read_file, arguments: {path: src/a.txt}}]
        - text: Read.
    delegates:
      provider: scripted
      script:
        - tool_calls: [{id: d1, name: ask_shop, arguments: {task: Look.}}]
        - text: Delegated.
  agents:
    shop: {model: reads, approval: {require: ["workspace:read_file"], approver: end-user}}
    kept: {model: reads, approval: {require: ["workspace:read_file"]}}
    writes: {model: script, approval: {require: ["workspace:*"], approver: end-user}}
    head: {model: delegates}
"""
ASK = {"messages": [{"role": "user", "content": "Go."}], "loop": True}
CHILD = {
    "name": "ask_shop",
    "description": "Ask the shop.",
    "tool_type": "subagent",
    "parameters_schema": {"type": "object", "properties": {"task": {"type": "string"}}},
    "config": {"agent_id": "shop", "allowed_tools": ["workspace:*"]},
}
REJECT = "approvals: {unattended: reject}\n"


@pytest.fixture
def project(project: Path, request: pytest.FixtureRequest) -> Path:
    """The workspace with saved agents, and what the test adds to its file."""
    (project / "src" / "a.txt").write_text("an apple")
    file = project / "packhost.yaml"
    file.write_text(file.read_text() + AGENTS + getattr(request, "param", ""))
    assert run(["accept", "--yes"]) == 0
    return project


async def paused(client: Any, **more: Any) -> dict[str, Any]:
    """A run of the client's that waits for an approval; its envelope."""
    answer = await client.post("/v1/runs", json={**ASK, **more}, headers={"Prefer": "wait=20"})
    envelope: dict[str, Any] = answer.json()
    assert envelope["status"] == "paused", envelope
    return envelope


async def decide(client: Any, envelope: dict[str, Any], **more: Any) -> Any:
    body = {"decision": "approve", "session_id": envelope["sessionId"], **more}
    id = envelope["pausedReason"]["approvalId"]
    return await client.post(
        f"/v1/approvals/{id}/decide", json={name: value for name, value in body.items() if value is not None}
    )


async def refusals(client: Any, run_id: str) -> list[str]:
    """The codes by which calls of a run were refused."""
    path = f"/v1/runs/{run_id}/events?limit=1000"
    found = (await client.get(path, headers={"Accept": "application/json"})).json()["events"]
    return [one["data"]["code"] for one in found if one["type"] == "call.refused"]


async def test_an_end_user_approves_what_their_run_asks_and_it_goes_on(served) -> None:
    async with served.client("end-user", "ann") as ann:
        envelope = await paused(ann, agent="shop")
        why = envelope["pausedReason"]
        assert (why["approver"], why["parameters"]) == ("end-user", {"path": "src/a.txt"})
        answer = await decide(ann, envelope, executionId=envelope["agentExecutionId"])
        assert answer.status_code == 200
        (given,) = answer.json()["answers"]
        assert (given["by"], given["role"], answer.json()["status"]) == ("ann", "end-user", "approved")
        assert answer.json()["approvers_needed"] == 1
        path = f"/v1/runs/{envelope['agentExecutionId']}/result"
        done = (await ann.get(path, headers={"Prefer": "wait=20"})).json()
    assert (done["status"], done["result"], done["sessionId"]) == (
        "completed",
        "Read.",
        envelope["sessionId"],
    )


async def test_an_end_user_may_say_no_with_a_reason(served) -> None:
    async with served.client("end-user", "ann") as ann:
        envelope = await paused(ann, agent="shop")
        answer = await decide(ann, envelope, decision="deny", reason="not that file")
        assert (answer.status_code, answer.json()["status"]) == (200, "denied")
        path = f"/v1/runs/{envelope['agentExecutionId']}"
        await ann.get(f"{path}/result", headers={"Prefer": "wait=20"})
        assert await refusals(ann, envelope["agentExecutionId"]) == ["APPROVAL_DENIED"]


async def test_only_once_whoever_was_first(served) -> None:
    async with served.client("end-user", "ann") as ann, served.client("operator", "bob") as bob:
        envelope = await paused(ann, agent="shop")
        answers: list[int] = []

        async def one(client: Any, decision: str) -> None:
            answers.append((await decide(client, envelope, decision=decision)).status_code)

        async with anyio.create_task_group() as tasks:
            for client, decision in ((ann, "approve"), (ann, "deny"), (bob, "approve"), (ann, "approve")):
                tasks.start_soon(one, client, decision)
        again = await decide(ann, envelope)
    assert sorted(answers) == [200, 409, 409, 409]
    assert again.status_code == 409


@pytest.mark.parametrize(
    ("role", "principal", "more", "status"),
    [
        ("end-user", "eve", {}, 404),
        ("end-user", "ann", {"session_id": "another"}, 404),
        ("end-user", "ann", {"run_id": "run_another"}, 404),
        ("end-user", "ann", {"session_id": None}, 400),
        ("end-user", "ann", {"always": {}}, 403),
        ("end-user", "ann", {"signed": {"at": 1.0, "signature": "x"}}, 403),
        ("caller", "ann", {}, 403),
        ("auditor", "ann", {}, 403),
        ("operator", "bob", {"session_id": "another"}, 404),
    ],
)
async def test_nobody_else_and_in_no_other_way(served, role, principal, more, status) -> None:
    async with served.client("end-user", "ann") as ann, served.client(role, principal) as other:
        envelope = await paused(ann, agent="shop")
        assert (await decide(other, envelope, **more)).status_code == status
        shown = (await ann.get(f"/v1/approvals/{envelope['pausedReason']['approvalId']}")).json()
    assert (shown["status"], shown["answers"]) == ("pending", [])


@pytest.mark.parametrize(
    "more",
    [
        {"agent": "kept"},  # its agent asks its owner
        {"agent": "writes"},  # a rule of the workspace asks as well
        {"agent": "kept", "approval": {"require": ["*"]}},
        {"agent": "head", "runtime_tools": [CHILD]},  # a subagent asks, and not the agent that was started
        {
            "loop": None,
            "messages": None,
            "workflow": {"nodes": [{"id": "n", "agent": "shop", "loop": True, "messages": ASK["messages"]}]},
        },
    ],
    ids=["owner", "rule", "request", "subagent", "workflow"],
)
async def test_what_is_the_owners_to_answer_stays_so(served, more) -> None:
    async with served.client("end-user", "ann") as ann, served.client("operator", "bob") as bob:
        await ann.post("/v1/runs", json={k: v for k, v in {**ASK, **more}.items() if v is not None})
        with anyio.fail_after(20):
            while not (found := (await ann.get("/v1/approvals?status=pending")).json()["approvals"]):
                await anyio.sleep(0.01)
        (row,) = found
        assert row["approver"] == "owner"
        path = f"/v1/approvals/{row['id']}/decide"
        answer = await ann.post(path, json={"decision": "approve", "session_id": row["session_id"]})
        assert (answer.status_code, answer.json()["code"]) == (403, "POLICY_DENIED")
        assert (await bob.post(path, json={"decision": "approve"})).status_code == 200


async def test_a_request_cannot_say_who_approves(served) -> None:
    async with served.client("end-user", "ann") as ann:
        body = {**ASK, "model_profile": "reads", "approval": {"require": True, "approver": "end-user"}}
        answer = await ann.post("/v1/runs", json=body)
    assert (answer.status_code, answer.json()["code"]) == (400, "INVALID_INPUT")


async def test_a_program_that_starts_the_run_has_no_end_user(served) -> None:
    async with served.client("caller", "ann") as program, served.client("end-user", "ann") as ann:
        envelope = await paused(program, agent="shop")
        assert envelope["pausedReason"]["approver"] == "owner"
        assert (await decide(ann, envelope)).status_code == 403


async def test_other_arguments_are_asked_for_anew(served, host) -> None:
    async with served.client("end-user", "ann") as ann:
        first = await paused(ann, agent="shop")
        assert (await decide(ann, first)).status_code == 200
        second = await paused(ann, agent="shop", session_id=None)
    ids = {one["pausedReason"]["approvalId"] for one in (first, second)}
    rows = [host.store.read(approvals.get, id) for id in ids]
    assert len({row.binding for row in rows}) == 2


async def test_an_answer_counts_no_more_once_the_agent_asks_its_owner(served, host, project) -> None:
    """Whatever the record says: what is decided when the call is made is what counts."""
    async with served.client("end-user", "ann") as ann:
        envelope = await paused(ann, agent="kept")
        id = envelope["pausedReason"]["approvalId"]

        def forged(tx: Any) -> None:
            row = approvals.get(tx, id)
            answers = row.answers_json.replace(
                "[]",
                '[{"verdict":"approve","by":"ann","channel":"api",'
                '"reason":"","assurance":"client","at":1.0,"signature":"",'
                '"role":"end-user"}]',
            )
            tx.execute(
                "UPDATE approvals SET status='approved', answers_json=?, told_json=? WHERE id=?",
                (answers, '{"approver":"end-user"}', id),
            )
            tx.touch(f"approval:{id}")

        await host.store.write(forged)
        run_id = envelope["agentExecutionId"]
        await ann.get(f"/v1/runs/{run_id}/result", headers={"Prefer": "wait=20"})
        rows = host.store.read(calls.of_execution, run_id)
    assert [row for row in rows if row.status == "ok"] == []


@pytest.mark.parametrize("project", [REJECT], indirect=True)
async def test_where_nobody_is_there_to_ask_an_end_user_is(served) -> None:
    async with served.client("end-user", "ann") as ann:
        envelope = await paused(ann, agent="shop")
        assert envelope["pausedReason"]["approver"] == "end-user"
        path = "/v1/runs"
        refused = (await ann.post(path, json={**ASK, "agent": "kept"}, headers={"Prefer": "wait=20"})).json()
        assert await refusals(ann, refused["agentExecutionId"]) == ["APPROVAL_MODE_UNSUPPORTED"]


async def test_an_end_user_raises_no_level(served) -> None:
    async with served.client("end-user", "ann") as ann:
        envelope = await paused(ann, agent="shop")
        path = f"/v1/sessions/{envelope['sessionId']}/autonomy"
        answer = await ann.post(path, json={"level": "autonomous"})
    assert (answer.status_code, answer.json()["code"]) == (403, "FORBIDDEN")


async def test_an_end_user_takes_no_operators_pause_over_by_pausing_as_well(served) -> None:
    async with served.client("end-user", "ann") as ann, served.client("operator", "bob") as bob:
        envelope = await paused(ann, agent="shop")
        path = f"/v1/runs/{envelope['agentExecutionId']}"
        await bob.post(f"{path}/pause", json={"reason": "wait"})
        await ann.post(f"{path}/pause", json={})
        assert (await ann.post(f"{path}/resume", json={})).status_code == 403
        assert (await bob.post(f"{path}/resume", json={})).status_code in (200, 202)


async def test_a_run_that_an_operator_paused_is_not_an_end_users_to_resume(served) -> None:
    async with served.client("end-user", "ann") as ann, served.client("operator", "bob") as bob:
        envelope = await paused(ann, agent="shop")
        path = f"/v1/runs/{envelope['agentExecutionId']}"
        await bob.post(f"{path}/pause", json={"reason": "wait"})
        assert (await ann.post(f"{path}/resume", json={})).status_code == 403
        assert (await bob.post(f"{path}/resume", json={})).status_code in (200, 202)
        await ann.post(f"{path}/pause", json={})
        assert (await ann.post(f"{path}/resume", json={})).status_code in (200, 202)
