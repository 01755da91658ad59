"""Runs over the API of a real host: started through the gate, waited for, steered, followed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import httpx2
import pytest

from packhost.http.api import ENDPOINTS
from packhost.http.kit import CLIENT
from packhost.store.ops import approvals, calls, events, executions

pytestmark = pytest.mark.anyio
PATIENCE = 30
LOOP = {"messages": [{"role": "user", "content": "go"}], "loop": True}
SHORT = {"messages": [{"role": "user", "content": "hi"}], "model_profile": "short"}
WAIT = {"Prefer": "wait=20"}
REPLIES: dict[tuple[str, str], Any] = {
    (one.method, one.path): one.replies[min(one.replies)] for one in ENDPOINTS
}


def checked(method: str, path: str, answer: httpx2.Response) -> Any:
    """A good answer that is what the document says."""
    assert answer.status_code in (200, 202), answer.text
    value = answer.json()
    REPLIES[method, path].model_validate(value)
    return value


async def paused(client: Any) -> dict[str, Any]:
    """A run that waits for a person."""
    answer = await client.post("/v1/runs", json=LOOP, headers=WAIT)
    value: dict[str, Any] = checked("POST", "/runs", answer)
    assert value["status"] == "paused"
    return value


async def test_a_run_is_taken_at_once_and_can_be_waited_for(served) -> None:
    async with served.client() as client:
        answer = await client.post("/v1/runs", json=SHORT)
        assert answer.status_code == 202
        begun = checked("POST", "/runs", answer)
        assert (begun["status"], begun["stopReason"], begun["success"]) == ("running", None, True)
        where = answer.headers["location"]
        assert where == f"/v1/runs/{begun['agentExecutionId']}"
        done = await client.get(f"{where}/result", headers=WAIT)
        assert done.headers["preference-applied"] == "wait=20"
        value = checked("GET", "/runs/{id}/result", done)
        assert (value["status"], value["stopReason"], value["result"]) == ("completed", "completed", "Hello.")
        shown = checked("GET", "/runs/{id}", await client.get(where))
        assert (shown["principal"], shown["client"]) == ("ci", CLIENT)
        assert checked("GET", "/runs", await client.get("/v1/runs"))["runs"][0]["id"] == shown["id"]


async def test_a_wait_answers_with_the_end(served) -> None:
    async with served.client() as client:
        answer = await client.post("/v1/runs", json=SHORT, headers=WAIT)
    assert answer.status_code == 200
    assert answer.json()["value"]["text"] == "Hello."


async def test_a_paused_run_is_a_success_that_says_whom_it_waits_for(served) -> None:
    async with served.client() as client, served.client("operator", "ann") as operator:
        value = await paused(client)
        assert (value["success"], value["stopReason"], value["result"]) == (True, "paused", "")
        reason = value["pausedReason"]
        assert reason["awaitReason"] == "approval_required"
        assert reason["toolName"] == "write_file"
        assert reason["parameters"] == {"path": "src/turn.txt", "content": "turned"}
        told = [reason[name] for name in ("toolType", "iteration", "timeout")]
        assert (told, bool(reason["toolCallId"])) == (["python", 1, 600.0], True)
        where = f"/v1/approvals/{reason['approvalId']}"
        assert checked("GET", "/approvals/{id}", await client.get(where))["status"] == "pending"
        answer = await operator.post(f"{where}/decide", json={"decision": "approve", "reason": "fine"})
        decided = checked("POST", "/approvals/{id}/decide", answer)
        assert (decided["status"], decided["decided_by"], decided["decided_channel"]) == (
            "approved",
            "ann",
            "api",
        )
        done = await client.get(f"/v1/runs/{value['agentExecutionId']}/result", headers=WAIT)
        assert (done.json()["status"], done.json()["result"]) == ("completed", "Done.")
        late = await operator.post(f"{where}/decide", json={"decision": "deny"})
        assert late.status_code == 409


async def test_a_question_names_its_call_its_tools_kind_its_turn_and_its_time(served, read_frames) -> None:
    async with served.client() as client, served.client("operator", "ann") as operator:
        run = (await paused(client))["agentExecutionId"]
        shown = checked("GET", "/runs/{id}", await client.get(f"/v1/runs/{run}"))["approvals"][0]
        listed = checked("GET", "/approvals", await client.get("/v1/approvals"))["approvals"][0]
        page = await client.get(f"/v1/runs/{run}/events", headers={"Accept": "application/json"})
        (event,) = [one["data"] for one in page.json()["events"] if one["type"] == "approval.requested"]
        await operator.post(f"/v1/runs/{run}/abort", json={})
    named = ("tool_call_id", "tool_type", "iteration", "timeout", "started_at")
    for one in (shown, listed, event):
        assert {name: one[name] for name in named} == {
            "tool_call_id": event["tool_call_id"],
            "tool_type": "python",
            "iteration": 1,
            "timeout": 600.0,
            "started_at": shown["created_at"],
        }
    assert event["tool_call_id"]


async def test_a_resumed_stream_goes_on_to_another_pause_and_then_to_the_end(
    served, host, project, read_frames
) -> None:
    ask = "{{tool_calls: [{{id: {}, name: look, arguments: {{at: door}}}}]}}"
    script = f"{ask.format('a')}, {ask.format('b')}, {{text: Seen.}}"
    text = (project / "packhost.yaml").read_text()
    model = f"    again: {{provider: scripted, script: [{script}]}}\n    short: {{"
    (project / "packhost.yaml").write_text(text.replace("    short: {", model))
    found = await host.control.request("accept.changes", {})
    await host.control.request("accept.apply", {"digest": found["digest"]})
    async with served.client() as client:
        body = {**ASKS, "model_profile": "again"}
        value = checked("POST", "/runs", await client.post("/v1/runs", json=body, headers=WAIT))
        where = f"/v1/runs/{value['agentExecutionId']}"
        assert value["status"] == "paused"
        first = {"tool_outputs": {"a": {"result": "a cat"}}, "stream_response": True}
        seen: list[Any] = []
        with anyio.fail_after(PATIENCE):
            async with client.stream("POST", f"{where}/resume", json=first) as response:
                async for frame in read_frames(response):
                    seen.append(frame.event)
                    if frame.event == "run.paused" and seen.count("run.paused") == 2:
                        left = checked("GET", "/runs/{id}/result", await client.get(f"{where}/result"))
                        assert [one["tool_call_id"] for one in left["pausedReason"]["awaits"]] == ["b"]
                        second = {"tool_outputs": {"b": {"result": "a dog"}}}
                        await client.post(f"{where}/resume", json=second)
    assert [one for one in seen if one in ("run.paused", "run.completed")] == [
        "run.paused",
        "run.paused",
        "run.completed",
    ]
    assert seen[-1] == "run.completed"


async def test_a_run_is_started_by_the_tool_through_the_gate(served, host) -> None:
    async with served.client() as client:
        value = (await client.post("/v1/runs", json=SHORT, headers=WAIT)).json()
    run = host.store.read(executions.get, value["agentExecutionId"])
    (call,) = host.store.read(calls.of_execution, run.parent)
    assert (call.tool, call.status) == ("agent-runtime:execute-turn", "ok")


async def test_what_the_gate_refuses_is_refused_and_nothing_starts(served, host, project) -> None:
    text = (project / "packhost.yaml").read_text()
    rule = (
        "policy:\n  - match: {tool: 'agent-runtime:execute-turn'}\n    decide: deny\n    reason: not today\n"
    )
    (project / "packhost.yaml").write_text(text.replace("policy:\n", rule))
    async with served.client() as client:
        answer = await client.post("/v1/runs", json={**SHORT, "stream_response": True})
        assert (answer.status_code, answer.json()["code"]) == (403, "POLICY_DENIED")
        assert answer.headers["content-type"] == "application/problem+json"
        assert "packhost.yaml" in answer.json()["rule"]
        assert (await client.get("/v1/runs")).json()["runs"] == []


async def test_a_run_that_must_be_asked_for_starts_once_it_was_approved(served, project) -> None:
    text = (project / "packhost.yaml").read_text()
    rule = (
        "policy:\n  - match: {tool: 'agent-runtime:execute-turn'}\n    decide: ask\n    reason: first look\n"
    )
    (project / "packhost.yaml").write_text(text.replace("policy:\n", rule))
    async with served.client() as client, served.client("operator", "ann") as operator:
        asked = await client.post("/v1/runs", json=SHORT, headers=WAIT)
        assert (asked.status_code, asked.json()["code"]) == (409, "APPROVAL_REQUIRED")
        approval = asked.json()["approval_id"]
        await operator.post(f"/v1/approvals/{approval}/decide", json={"decision": "approve"})
        again = await client.post("/v1/runs", json=SHORT, headers=WAIT)
        assert (again.status_code, again.json()["result"]) == (200, "Hello.")
        third = await client.post("/v1/runs", json=SHORT)
        assert third.json()["code"] == "APPROVAL_REQUIRED"


SECRET_TOOL = {
    "name": "look-up",
    "description": "Looks something up.",
    "tool_type": "external",
    "parameters_schema": {"type": "object"},
    "config": {"url": "https://api.example/", "headers": {"Authorization": "Bearer {{secret:KEY}}"}},
}


@pytest.mark.parametrize(
    "body",
    [
        {**LOOP, "runtime_tools": [SECRET_TOOL]},
        {"workflow": {"nodes": [{"id": "a", "runtimeTools": [{"config": {"secrets": [{"name": "KEY"}]}}]}]}},
    ],
)
async def test_only_a_token_that_may_read_secrets_gives_them_to_tools_of_its_own(served, body) -> None:
    async with served.client() as client:
        answer = await client.post("/v1/runs", json=body)
        assert (answer.status_code, answer.json()["scope"]) == (403, "secrets:read")
    async with served.client(scopes=["runs:write", "secrets:read"]) as client:
        assert (await client.post("/v1/runs", json=body)).status_code != 403


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"messages": []}, 400, "INVALID_INPUT"),
        ({}, 400, "INVALID_INPUT"),
        ({**SHORT, "model_profile": "none"}, 409, "MODEL_NOT_CONFIGURED"),
        ({**SHORT, "session_id": "a b"}, 400, "INVALID_INPUT"),
        ({**SHORT, "background": False}, 400, "INVALID_INPUT"),
    ],
)
async def test_a_run_that_cannot_be_is_a_clear_problem(served, body, status, code) -> None:
    async with served.client() as client:
        answer = await client.post("/v1/runs", json=body)
    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text


async def test_a_key_starts_one_run_however_often_it_is_sent(served) -> None:
    headers = {"Idempotency-Key": "k-1"}
    async with served.client() as client:
        answers: list[Any] = []

        async def send() -> None:
            answers.append(await client.post("/v1/runs", json=SHORT, headers=headers))

        async with anyio.create_task_group() as tasks:
            for _ in range(6):
                tasks.start_soon(send)
        assert {answer.status_code for answer in answers} <= {200, 202}
        assert len({answer.json()["agentExecutionId"] for answer in answers}) == 1
        assert len((await client.get("/v1/runs")).json()["runs"]) == 1
        other = await client.post("/v1/runs", json=LOOP, headers=headers)
        assert (other.status_code, other.json()["code"]) == (422, "IDEMPOTENCY_CONFLICT")
        bad = await client.post("/v1/runs", json=SHORT, headers={"Idempotency-Key": "a b"})
        assert bad.status_code == 400
        async with served.client(principal="else") as another:
            theirs = await another.post("/v1/runs", json=SHORT, headers=headers)
            assert theirs.json()["agentExecutionId"] != answers[0].json()["agentExecutionId"]


async def test_a_stream_of_a_new_run_tells_it_from_its_beginning(served, read_frames) -> None:
    async with served.client() as client:
        body = {**SHORT, "stream_response": True}
        with anyio.fail_after(PATIENCE):
            async with client.stream("POST", "/v1/runs", json=body) as response:
                assert response.headers["content-type"].startswith("text/event-stream")
                assert response.headers["location"].startswith("/v1/runs/run_")
                seen = [frame.event async for frame in read_frames(response)]
    assert seen[1] == "run.queued"
    assert seen[-1] == "run.completed"


async def test_a_run_goes_on_when_its_stream_is_dropped(served, read_frames) -> None:
    async with served.client() as client:
        async with client.stream("POST", "/v1/runs", json={**SHORT, "stream_response": True}) as response:
            where = response.headers["location"]
        done = await client.get(f"{where}/result", headers=WAIT)
    assert done.json()["status"] == "completed"


async def test_others_see_nothing_of_a_run_and_steer_nothing(served) -> None:
    async with served.client() as client, served.client(principal="mallory") as other:
        value = await paused(client)
        run, approval = value["agentExecutionId"], value["pausedReason"]["approvalId"]
        for path in (f"/v1/runs/{run}", f"/v1/runs/{run}/result", f"/v1/approvals/{approval}"):
            assert (await other.get(path)).status_code == 404
        for deed in ("pause", "resume", "abort"):
            assert (await other.post(f"/v1/runs/{run}/{deed}")).status_code == 404
        assert (await other.get("/v1/approvals")).json()["approvals"] == []
        async with served.client("auditor", "eve") as auditor:
            assert (await auditor.get(f"/v1/runs/{run}")).status_code == 200
            assert (await auditor.post(f"/v1/runs/{run}/abort")).status_code == 403


async def test_a_program_steers_by_the_tools_and_so_by_their_approvals(served, host) -> None:
    async with served.client() as client:
        run = (await paused(client))["agentExecutionId"]
        answer = await client.post(f"/v1/runs/{run}/abort", json={"reason": "enough"})
        assert (answer.status_code, answer.json()["code"]) == (409, "APPROVAL_REQUIRED")
        row = host.store.read(approvals.get, answer.json()["approval_id"])
        assert row.tool == "agent-runtime:abort_turn"
        assert (await client.get(f"/v1/runs/{run}")).json()["status"] == "running"


@pytest.mark.parametrize(("role", "principal"), [("operator", "ann"), ("end-user", "ci")])
async def test_a_person_ends_a_run_by_their_own_act(served, role, principal) -> None:
    async with served.client() as client, served.client(role, principal) as person:
        value = await paused(client)
        run = value["agentExecutionId"]
        answer = await person.post(f"/v1/runs/{run}/abort", json={"reason": "enough"})
        ended = checked("POST", "/runs/{id}/abort", answer)
        assert (ended["status"], ended["success"], ended["stopReason"]) == ("aborted", False, "cancelled")
        gone = (await client.get(f"/v1/approvals/{value['pausedReason']['approvalId']}")).json()
        assert gone["status"] == "cancelled"
        again = await person.post(f"/v1/runs/{run}/abort")
        assert (again.status_code, again.json()["code"]) == (409, "RESUME_STATE_CHANGED")


async def test_resuming_tells_running_changed_and_ended_runs_apart(served) -> None:
    async with served.client() as client, served.client("operator", "ann") as operator:
        value = await paused(client)
        run = value["agentExecutionId"]
        busy = await operator.post(f"/v1/runs/{run}/resume", json={"stream_response": True})
        assert (busy.status_code, busy.json()["code"]) == (409, "CONTINUATION_IN_PROGRESS")
        pausing = await operator.post(f"/v1/runs/{run}/pause", json={"reason": "lunch"})
        assert pausing.status_code == 202
        decision = {"decision": "approve"}
        await operator.post(f"/v1/approvals/{value['pausedReason']['approvalId']}/decide", json=decision)
        with anyio.fail_after(PATIENCE):
            while (shown := (await client.get(f"/v1/runs/{run}")).json())["status"] != "paused":
                await anyio.sleep(0.02)
        assert shown["paused_by"] == "person:ann"
        held = (await client.get(f"/v1/runs/{run}/result")).json()
        assert (held["pausedReason"]["type"], held["pausedReason"]["executionId"]) == ("person", run)
        mine = await client.post(f"/v1/runs/{run}/resume")
        assert (mine.status_code, mine.json()["code"]) == (409, "APPROVAL_REQUIRED")
        answer = await operator.post(f"/v1/runs/{run}/resume", headers=WAIT)
        resumed = checked("POST", "/runs/{id}/resume", answer)
        assert (resumed["status"], resumed["result"]) == ("completed", "Done.")
        ended = await operator.post(f"/v1/runs/{run}/resume", json={"stream_response": True})
        assert (ended.status_code, ended.json()["code"]) == (404, "NOT_FOUND")


async def test_what_the_host_filled_in_is_redacted_in_envelope_question_and_events(
    served, host, project
) -> None:
    script = "{tool_calls: [{id: c1, name: look-up, arguments: {word: harbour}}]}, {text: Done.}"
    text = (project / "packhost.yaml").read_text()
    text = text.replace(
        "    short: {", f"    looks: {{provider: scripted, script: [{script}]}}\n    short: {{"
    )
    text = text.replace("bound:\n", "bound:\n  - network api.example\n")
    rule = "policy:\n  - match: {tool: 'inline:*'}\n    decide: ask\n    reason: look first\n"
    (project / "packhost.yaml").write_text(text.replace("policy:\n", rule))
    found = await host.control.request("accept.changes", {})
    await host.control.request("accept.apply", {"digest": found["digest"]})
    names = {"word": {"type": "string"}, "account": {"type": "string"}}
    tool = {
        **SECRET_TOOL,
        "parameters_schema": {"type": "object", "properties": names},
        "hidden_parameter_names": ["account"],
        "config": {"url": "https://api.example/{{word}}", "headers": {"X-Account": "{{account}}"}},
    }
    body = {**LOOP, "model_profile": "looks", "runtime_tools": [tool], "variables": {"account": "acct-4711"}}
    async with served.client() as client:
        value = checked("POST", "/runs", await client.post("/v1/runs", json=body, headers=WAIT))
        run, reason = value["agentExecutionId"], value["pausedReason"]
        assert reason["parameters"] == {"word": "harbour", "account": "[REDACTED]"}
        paths = ("", "/result", "/events")
        said = [
            (await client.get(f"/v1/runs/{run}{path}", headers={"Accept": "application/json"})).text
            for path in paths
        ]
        said.append((await client.get(f"/v1/approvals/{reason['approvalId']}")).text)
        parent = (await client.get(f"/v1/runs/{run}")).json()["parent"]
    (started,) = host.store.read(calls.of_execution, parent)
    said.append(started.args_json)
    assert all("[REDACTED]" in one for one in said)
    assert [one for one in said if "acct-4711" in one] == []


LOOK = {
    "name": "look",
    "description": "Looks.",
    "parameters_schema": {"type": "object", "properties": {"at": {"type": "string"}}},
    "origin": "sdk",
}
ASKS = {**LOOP, "model_profile": "asks", "client_tools": [LOOK]}


async def test_a_run_waits_for_calls_that_its_caller_makes_and_keeps_each_answer(served) -> None:
    async with served.client() as client, served.client(principal="mallory") as other:
        value = checked("POST", "/runs", await client.post("/v1/runs", json=ASKS, headers=WAIT))
        run, reason = value["agentExecutionId"], value["pausedReason"]
        assert (value["success"], value["status"], value["stopReason"]) == (True, "paused", "paused")
        assert (reason["type"], reason["toolName"], reason["parameters"]) == (
            "local_action",
            "look",
            {"at": "door"},
        )
        assert [one["tool_call_id"] for one in reason["awaits"]] == ["a", "b"]
        where = f"/v1/runs/{run}/resume"
        unknown = await client.post(where, json={"tool_outputs": {"c": {"result": 1}}})
        assert (unknown.status_code, unknown.json()["code"]) == (400, "INVALID_INPUT")
        stranger = await other.post(where, json={"tool_outputs": {"a": {"result": 1}}})
        assert stranger.status_code == 404
        some = await client.post(where, json={"toolOutputs": {"a": {"result": "a cat"}}})
        left = checked("POST", "/runs/{id}/resume", some)
        assert left["status"] == "paused"
        assert [one["tool_call_id"] for one in left["pausedReason"]["awaits"]] == ["b"]
        stale = {"tool_outputs": {"b": {"result": "x"}}, "checkpoint": "pause_gone"}
        changed = await client.post(where, json={**stale, "stream_response": True})
        assert (changed.status_code, changed.json()["code"]) == (409, "RESUME_STATE_CHANGED")
        rest = {"tool_outputs": {"b": {"result": {"dog": 1}}}, "checkpoint": reason["checkpoint"]}
        done = await client.post(where, json=rest, headers=WAIT)
        assert (done.status_code, done.json()["status"], done.json()["result"]) == (200, "completed", "Seen.")
        again = await client.post(where, json=rest)
        assert (again.status_code, again.json()["code"]) == (404, "NOT_FOUND")


async def test_one_of_many_resumptions_with_answers_wins(served) -> None:
    async with served.client() as client:
        value = (await client.post("/v1/runs", json=ASKS, headers=WAIT)).json()
        where, codes = f"/v1/runs/{value['agentExecutionId']}/resume", []
        outputs = {"a": {"result": "cat"}, "b": {"result": "dog"}}

        async def send(n: int) -> None:
            answer = await client.post(where, json={"tool_outputs": {**outputs, "b": {"result": n}}})
            codes.append(answer.status_code)

        async with anyio.create_task_group() as tasks:
            for n in range(8):
                tasks.start_soon(send, n)
        assert len([code for code in codes if code in (200, 202)]) == 1
        assert set(codes) <= {200, 202, 404, 409}


async def test_always_allow_gives_a_grant_that_can_be_taken_back(served) -> None:
    async with served.client() as client, served.client("operator", "ann") as operator:
        value = await paused(client)
        where = f"/v1/approvals/{value['pausedReason']['approvalId']}/decide"
        answer = await operator.post(where, json={"decision": "approve", "always": {"any": ["content"]}})
        grant = checked("POST", "/approvals/{id}/decide", answer)["grant"]
        listed = checked("GET", "/grants", await operator.get("/v1/grants"))["grants"]
        assert [(one["id"], one["created_by"]) for one in listed] == [(grant, "ann")]
        done = await client.get(f"/v1/runs/{value['agentExecutionId']}/result", headers=WAIT)
        assert done.json()["status"] == "completed"
        second = (await client.post("/v1/runs", json=LOOP, headers=WAIT)).json()
        assert second["status"] == "completed", "the grant covers the same call"
        gone = checked("POST", "/grants/{id}/revoke", await operator.post(f"/v1/grants/{grant}/revoke"))
        assert gone["state"] == "revoked"
        assert (await operator.get("/v1/grants")).json() == {"grants": [], "next": None}
        assert len((await operator.get("/v1/grants?all=true")).json()["grants"]) == 1
        assert (await operator.post(f"/v1/grants/{grant}/revoke")).status_code == 409


async def test_who_may_decide_and_give_no_grants_allows_nothing_for_good(served) -> None:
    scopes = ["approvals:read", "approvals:decide"]
    async with served.client() as client, served.client("operator", "ann", scopes=scopes) as operator:
        value = await paused(client)
        where = f"/v1/approvals/{value['pausedReason']['approvalId']}/decide"
        answer = await operator.post(where, json={"decision": "approve", "always": {"any": ["content"]}})
        assert (answer.status_code, answer.json()["scope"]) == (403, "grants:write")
        assert (await operator.post(where, json={"decision": "approve"})).status_code == 200


async def test_one_lowers_ones_own_session_and_only_an_operator_raises(served) -> None:
    body: Callable[[str], dict[str, str]] = lambda level: {"level": level}  # noqa: E731
    async with served.client() as client, served.client("operator", "ann") as operator:
        session = (await client.post("/v1/runs", json=SHORT, headers=WAIT)).json()["sessionId"]
        where = f"/v1/sessions/{session}/autonomy"
        lowered = checked("POST", "/sessions/{id}/autonomy", await client.post(where, json=body("observe")))
        assert (lowered["level"], lowered["principal"]) == ("observe", "ci")
        raised = await client.post(where, json=body("guarded"))
        assert (raised.status_code, raised.json()["scope"]) == (403, "approvals:decide")
        assert (await operator.post(where, json=body("guarded"))).json()["level"] == "guarded"
        async with served.client(principal="mallory") as other:
            assert (await other.post(where, json=body("observe"))).status_code == 404
        assert (await client.post(where, json=body("godlike"))).status_code == 400


async def test_what_there_is_can_be_looked_at(served) -> None:
    async with served.client() as client, served.client("auditor", "eve") as auditor:
        tools = checked("GET", "/tools", await client.get("/v1/tools"))
        names = [one["tool"] for one in tools["tools"]]
        assert "workspace:write_file" in names
        one = checked("GET", "/tools/{tool}", await client.get("/v1/tools/workspace:write_file"))
        assert one["enforcement"] == "host"
        missing = await client.get("/v1/tools/workspace:wriet_file")
        assert (missing.status_code, missing.json()["code"]) == (404, "TOOL_NOT_FOUND")
        packs = checked("GET", "/packs", await client.get("/v1/packs"))["packs"]
        assert {pack["id"] for pack in packs} == {"agent-runtime", "workspace"}
        status = checked("GET", "/status", await client.get("/v1/status"))
        assert status["identity"]["principal"] == "ci"
        head = checked("GET", "/audit/head", await auditor.get("/v1/audit/head"))
        assert head["count"] > 0
        arguments = {"path": "src/a", "content": "b"}
        question = {"tool": "workspace:write_file", "arguments": arguments}
        told = checked("POST", "/explain", await client.post("/v1/explain", json=question))
        assert told["verdict"] == "ask"
        outside = {**question, "arguments": {**arguments, "path": "etc/a"}}
        assert (await client.post("/v1/explain", json=outside)).json()["refusal"]["code"] == "SCOPE_DENIED"


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({}, "RUNTIME_AGENT_TRANSIENT_SECRETS_UNSUPPORTED"),
        ({"workflow": "any"}, "RUNTIME_FLOW_TRANSIENT_SECRETS_UNSUPPORTED"),
    ],
)
async def test_secrets_sent_with_a_request_are_refused_and_kept_nowhere(
    served, more: dict[str, str], code: str
) -> None:
    async with served.client() as client:
        answer = await client.post("/v1/runs", json={**SHORT, **more, "secrets": {"KEY": "hunter2222"}})
        assert (answer.status_code, answer.json()["code"]) == (400, code)
        assert "hunter2222" not in answer.text
        assert (await client.get("/v1/runs")).json()["runs"] == []


async def test_an_empty_map_of_secrets_is_ignored(served) -> None:
    async with served.client() as client:
        answer = await client.post("/v1/runs", json={**SHORT, "secrets": {}}, headers=WAIT)
    assert answer.status_code == 200


async def test_asking_what_would_happen_takes_no_session_and_shows_none_of_anothers(served, host) -> None:
    asked = {"tool": "workspace:read_file", "arguments": {"path": "packhost.yaml"}, "session_id": "wanted"}
    async with served.client("auditor", "eve") as eve, served.client("caller", "ci") as client:
        before = host.store.read(events.head)
        assert (await eve.post("/v1/explain", json=asked)).status_code == 200
        assert host.store.read(events.head) == before
        done = await client.post("/v1/runs", json={**SHORT, "session_id": "wanted"}, headers=WAIT)
        assert done.json()["sessionId"] == "wanted"
        assert (await eve.post("/v1/explain", json=asked)).status_code == 404
        assert (await client.post("/v1/explain", json=asked)).status_code == 200
