"""So many runs of one principal go on at once, and another's are not held up by them."""

from __future__ import annotations

from pathlib import Path

import pytest

from packhost.cli.run import run

pytestmark = pytest.mark.anyio
WAITS = {"messages": [{"role": "user", "content": "go"}], "loop": True}
WAIT = {"Prefer": "wait=20"}


@pytest.fixture
def project(project: Path) -> Path:
    """The workspace, where two runs of a principal may go on at once."""
    file = project / "packhost.yaml"
    file.write_text(file.read_text() + "limits: {runs_at_once: 2}\n")
    assert run(["accept", "--yes"]) == 0
    return project


async def test_a_run_that_is_too_many_does_not_start_and_says_when_to_come_back(served) -> None:
    async with served.client() as client, served.client("caller", "other") as other:
        first, second = [(await client.post("/v1/runs", json=WAITS, headers=WAIT)).json() for _ in range(2)]
        assert (first["status"], second["status"]) == ("paused", "paused")  # each waits for a person
        third = await client.post("/v1/runs", json=WAITS)
        assert (third.status_code, third.json()["code"]) == (429, "LIMIT_EXCEEDED")
        assert third.headers["retry-after"] == "5"
        assert len((await client.get("/v1/runs")).json()["runs"]) == 2
        assert (await other.post("/v1/runs", json=WAITS)).status_code == 202
        async with served.client("operator", "ann") as ann:
            await ann.post(f"/v1/runs/{first['agentExecutionId']}/abort", json={})
        assert (await client.post("/v1/runs", json=WAITS)).status_code == 202
