"""What tools ask of people, over the API: seen, answered, and told by a paused run."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = pytest.mark.anyio
WAIT = {"Prefer": "wait=20"}
SCHEMA = {
    "type": "object",
    "additionalProperties": False,
    "required": ["at", "who"],
    "properties": {"at": {"type": "string"}, "who": {"type": "string", "maxLength": 20}},
}
FORM = {
    "type": "object",
    "additionalProperties": False,
    "required": ["who"],
    "properties": {"who": {"type": "string", "maxLength": 20}},
}
LOOK = {
    "name": "look",
    "description": "Look.",
    "tool_type": "custom",
    "parameters_schema": SCHEMA,
    "config": {
        "code": "at + ' for ' + who",
        "elicit": {"message": "Who looks?", "requested_schema": FORM, "merge": "parameters"},
    },
}
RUN = {
    "messages": [{"role": "user", "content": "go"}],
    "loop": True,
    "model_profile": "asks",
    "runtime_tools": [LOOK],
}


async def asked(client: Any, **more: Any) -> dict[str, Any]:
    """Why the run pauses that calls `look`."""
    value = (await client.post("/v1/runs", json={**RUN, **more}, headers=WAIT)).json()
    assert value["status"] == "paused", value
    reason: dict[str, Any] = value["pausedReason"]
    return reason


async def test_a_run_pauses_with_the_form_and_goes_on_with_what_is_given(served) -> None:
    async with served.client() as client, served.client("operator", "ann") as operator:
        reason = await asked(client)
        assert (reason["type"], reason["awaitReason"]) == ("elicitation", "tool_elicitation")
        assert (reason["toolName"], reason["toolCallId"]) == ("look", "a")
        assert reason["elicitation"]["message"] == "Who looks?"
        assert "parameters" not in reason
        where = f"/v1/questions/{reason['questionId']}"
        assert (await client.get(where)).json()["requested_schema"]["properties"] == FORM["properties"]
        bad = await operator.post(f"{where}/answer", json={"action": "accept", "content": {"who": 1}})
        assert (bad.status_code, bad.json()["code"]) == (400, "INVALID_INPUT")
        good = {"action": "accept", "content": {"who": "ann"}}
        answered = await operator.post(f"{where}/answer", json=good)
        assert (answered.json()["status"], answered.json()["answered_by"]) == ("accepted", "ann")
        assert "who" not in answered.json()
        late = await operator.post(f"{where}/answer", json=good)
        assert late.status_code == 409
        run = f"/v1/runs/{reason['executionId']}"
        second = (await client.get(f"{run}/result", headers=WAIT)).json()["pausedReason"]
        decline = {"action": "decline"}
        await operator.post(f"/v1/questions/{second['questionId']}/answer", json=decline)
        done = (await client.get(f"{run}/result", headers=WAIT)).json()
        assert (done["status"], done["result"]) == ("completed", "Seen.")


async def test_arguments_are_told_where_the_request_says_so(served) -> None:
    async with served.client() as client:
        reason = await asked(client, disclose_tool_arguments={"tools": ["look"]})
    assert reason["parameters"] == {"at": "door"}


async def test_only_who_may_decide_answers_and_only_what_is_theirs_is_seen(served) -> None:
    async with served.client() as client, served.client("caller", "other") as other:
        reason = await asked(client)
        where = f"/v1/questions/{reason['questionId']}"
        listed = (await client.get("/v1/questions", params={"status": "pending"})).json()["questions"]
        assert reason["questionId"] in [one["id"] for one in listed]
        assert (await other.get("/v1/questions")).json()["questions"] == []
        assert (await other.get(where)).status_code == 404
        own = await client.post(f"{where}/answer", json={"action": "accept", "content": {"who": "me"}})
        assert own.status_code == 403


async def test_the_end_user_whose_run_it_is_fills_the_form_in_and_no_other(served) -> None:
    async with served.client("end-user", "ann") as ann, served.client("end-user", "eve") as eve:
        reason = await asked(ann)
        where = f"/v1/questions/{reason['questionId']}/answer"
        good = {"action": "accept", "content": {"who": "ann"}}
        assert (await eve.post(where, json=good)).status_code == 404
        answered = (await ann.post(where, json=good)).json()
    assert (answered["status"], answered["answered_by"]) == ("accepted", "ann")


async def test_questions_come_in_pages_each_once_and_only_ones_own(served) -> None:
    async with served.client() as client, served.client("caller", "other") as other:
        for one in (client, client, other):
            await asked(one)
        whole = (await client.get("/v1/questions")).json()
        found, cursor = list[str](), None
        while not found or cursor is not None:
            more = {} if cursor is None else {"cursor": cursor}
            page = (await client.get("/v1/questions", params={"limit": 1, **more})).json()
            found += [one["id"] for one in page["questions"]]
            assert len(page["questions"]) == 1 or page["next"] is None
            last, cursor = cursor, page["next"]
        strange = await other.get("/v1/questions", params={"cursor": last})
    assert (found, whole["next"]) == ([one["id"] for one in whole["questions"]], None)
    assert {one["principal"] for one in whole["questions"]} == {"ci"}
    assert strange.status_code == 400
