"""Where two people have to agree: who counts as one, whatever their token and channel."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest
from projects import SETTINGS

from packhost.cli.run import run
from packhost.control.operations import LocalControl
from packhost.errors import PackhostError

pytestmark = pytest.mark.anyio
RUN = {"messages": [{"role": "user", "content": "go"}], "loop": True}
WAIT = {"Prefer": "wait=20"}


@pytest.fixture
def project(project: Path) -> Path:
    """The workspace, where two people agree to each write."""
    two = SETTINGS.replace("decide: ask\n", "decide: ask\n    approvers: 2\n")
    (project / "packhost.yaml").write_text(two)
    assert run(["accept", "--yes"]) == 0
    return project


async def waiting(client: Any) -> tuple[str, str]:
    """A run that waits for two people: where to answer, and where to read what came of it."""
    envelope = (await client.post("/v1/runs", json=RUN, headers=WAIT)).json()
    id, run_id = envelope["pausedReason"]["approvalId"], envelope["agentExecutionId"]
    return f"/v1/approvals/{id}", f"/v1/runs/{run_id}/result"


YES = {"decision": "approve"}


async def test_two_people_let_a_call_run_and_who_was_first_is_shown(served, project) -> None:
    async with served.client() as client, served.client("operator", "ann") as ann:
        where, result = await waiting(client)
        first = (await ann.post(f"{where}/decide", json=YES)).json()
        assert (first["status"], first["approvers_needed"]) == ("pending", 2)
        shown = (await client.get(where)).json()
        assert [(one["by"], one["verdict"], one["channel"]) for one in shown["answers"]] == [
            ("ann", "approve", "api")
        ]
        assert not (project / "src" / "turn.txt").exists()
        async with served.client("operator", "bob") as bob:
            second = (await bob.post(f"{where}/decide", json=YES)).json()
        done = (await client.get(result, headers=WAIT)).json()
    assert (second["status"], [one["by"] for one in second["answers"]]) == ("approved", ["ann", "bob"])
    assert (done["status"], (project / "src" / "turn.txt").read_text()) == ("completed", "turned")


@pytest.mark.parametrize("principal", ["ann", "ANN", " ann ", "\uff41nn"])
async def test_one_person_with_two_tokens_is_one_person(served, principal) -> None:
    async with served.client() as client, served.client("operator", "ann") as one:
        where, _ = await waiting(client)
        await one.post(f"{where}/decide", json=YES)
        async with served.client("operator", principal) as other:
            again = await other.post(f"{where}/decide", json=YES)
        shown = (await client.get(where)).json()
    assert (again.status_code, again.json()["code"]) == (409, "APPROVAL_REQUIRED")
    assert "already" in again.json()["detail"]
    assert (shown["status"], len(shown["answers"])) == ("pending", 1)


async def test_one_person_over_two_channels_is_one_person(served, host) -> None:
    terminal = LocalControl(host.parts)  # what the command line asks for once a person has answered there
    me = host.parts.principal
    async with served.client() as client, served.client("operator", me) as same:
        where, _ = await waiting(client)
        answer = {"id": where.rpartition("/")[2], "verdict": "approve", "channel": "cli"}
        first = await terminal.request("approvals.decide", answer)
        assert (first["status"], first["answers"][0]["channel"]) == ("pending", "cli")
        assert (await same.post(f"{where}/decide", json=YES)).status_code == 409
        with pytest.raises(PackhostError, match="already"):
            await terminal.request("approvals.decide", answer)
        async with served.client("operator", "ann") as ann:
            decided = (await ann.post(f"{where}/decide", json=YES)).json()
    assert decided["status"] == "approved"
    assert [one["channel"] for one in decided["answers"]] == ["cli", "api"]


async def test_many_answers_of_one_person_at_once_are_one(served) -> None:
    async with served.client() as client, served.client("operator", "ann") as ann:
        where, _ = await waiting(client)
        found: list[int] = []

        async def answer() -> None:
            found.append((await ann.post(f"{where}/decide", json=YES)).status_code)

        async with anyio.create_task_group() as tasks:
            for _ in range(12):
                tasks.start_soon(answer)
        shown = (await client.get(where)).json()
    assert sorted(found) == [200] + [409] * 11
    assert (shown["status"], len(shown["answers"])) == ("pending", 1)


async def test_one_no_is_enough(served) -> None:
    async with served.client() as client, served.client("operator", "ann") as ann:
        where, _ = await waiting(client)
        await ann.post(f"{where}/decide", json=YES)
        async with served.client("operator", "bob") as bob:
            denied = await bob.post(f"{where}/decide", json={"decision": "deny", "reason": "no"})
    assert (denied.status_code, denied.json()["status"]) == (200, "denied")
