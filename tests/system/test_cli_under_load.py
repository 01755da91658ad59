"""Decisions from the command line while a host is busy, over each kind of store."""

from __future__ import annotations

import json
import time
from collections import Counter
from typing import Any

import anyio
import pytest
from mcp import Client
from postgres_server import STORES

pytestmark = [pytest.mark.anyio, pytest.mark.slow]
SETTINGS = """\
packhost: 1
packs: [agent-runtime, workspace]
store: STORE
bound: [path read **, path write src/**, path write .agent-runtime/**]
policy:
  - match: {tool: "workspace:write_file"}
    decide: ask
approvals: {hold: 1s}
"""
QUESTIONS = 3
WITHIN = 20.0


@pytest.mark.parametrize("kind", STORES)
async def test_each_decision_is_made_once_and_in_time(
    world: Any, kind: str, request: pytest.FixtureRequest
) -> None:
    store = "sqlite" if kind == "sqlite" else str(request.getfixturevalue("postgres_url"))
    world.write("packhost.yaml", SETTINGS.replace("STORE", json.dumps(store)))
    world.write("src/a.txt", "a")
    world.accept()
    url = world.serve_http()
    codes: Counter[int] = Counter()
    took: list[float] = []
    calls, ended = [0], anyio.Event()

    async def load() -> None:
        async with Client(f"{url}/mcp") as client:
            while not ended.is_set():
                done = await client.call_tool("workspace_read_file", {"path": "src/a.txt"})
                assert not done.is_error
                calls[0] += 1

    async def ask(number: int) -> str:
        async with Client(f"{url}/mcp") as client:
            arguments = {"path": f"src/{number}.txt", "content": "x"}
            refused = await client.call_tool("workspace_write_file", arguments)
            return str(refused.meta["packhost/refusal"]["approval_id"])

    async def decide(approval: str) -> None:
        began = time.monotonic()
        done = await anyio.to_thread.run_sync(lambda: world.run("approvals", "deny", approval, code=None))
        codes[done.returncode] += 1
        took.append(time.monotonic() - began)

    async with anyio.create_task_group() as loads:
        for _ in range(2):
            loads.start_soon(load)
        asked = [await ask(number) for number in range(QUESTIONS)]
        async with anyio.create_task_group() as tasks:
            for approval in asked:
                for _ in range(2):
                    tasks.start_soon(decide, approval)
        ended.set()
    assert codes[0] == QUESTIONS
    assert sum(codes.values()) == 2 * QUESTIONS
    assert max(took) < WITHIN
    assert calls[0] > 20
    stand = {row["id"]: row["status"] for row in world.json("approvals", "list", "--all")["approvals"]}
    assert {stand[id] for id in asked} == {"denied"}
    world.run("audit", "verify")
