"""Many clients, each a process of its own, answer the same pause: one of them wins, and its answer is kept."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

pytestmark = pytest.mark.slow

ROUNDS = 60
CLIENTS = 4
CONFIG = """
packhost: 1
packs: [agent-runtime]
agent_runtime:
  default_model: demo
  models:
    demo: {provider: scripted, script: SCRIPT}
"""
TOOL = {
    "name": "look_around",
    "description": "Looks around.",
    "origin": "sdk",
    "parameters_schema": {"type": "object"},
}


def result(answer: dict[str, Any]) -> dict[str, Any]:
    """What a call returned, or the refusal's code as `code`."""
    found = answer["result"]
    if found.get("isError"):
        return {"code": found["_meta"]["packhost/refusal"]["code"]}
    value: dict[str, Any] = found["structuredContent"]
    return value


def test_of_four_clients_that_answer_a_pause_at_once_one_wins_each_time(world: Any) -> None:
    turns = [{"tool_calls": [{"id": f"c{n}", "name": "look_around", "arguments": {}}]} for n in range(ROUNDS)]
    world.write("packhost.yaml", CONFIG.replace("SCRIPT", json.dumps([*turns, {"text": "done"}])))
    world.accept()
    clients = [world.raw("auto").start() for _ in range(CLIENTS)]
    arguments = {"messages": [{"role": "user", "content": "go"}], "loop": True, "client_tools": [TOOL]}
    started = clients[0].call("agent-runtime_execute-turn", **arguments, limits={"max_turns": ROUNDS + 1})
    standing = result(clients[0].answer(started))
    said: Counter[str] = Counter()
    winners: list[str] = []
    for number in range(ROUNDS):
        assert [call["tool_call_id"] for call in standing["awaits"]] == [f"c{number}"]
        asked = [
            client.call(
                "agent-runtime_resume_workflow",
                run_id=standing["run_id"],
                checkpoint=standing["checkpoint"],
                tool_outputs={f"c{number}": {"result": f"client {place}"}},
            )
            for place, client in enumerate(clients)
        ]
        answers = [result(client.answer(one)) for client, one in zip(clients, asked, strict=True)]
        won = [place for place, answer in enumerate(answers) if "code" not in answer]
        said.update(answer.get("code", "won") for answer in answers)
        assert len(won) == 1, answers
        winners.append(f"client {won[0]}")
        standing = answers[won[0]]
    assert standing["outcome"] == "completed"
    assert said.pop("won") == ROUNDS
    assert set(said) <= {"CONTINUATION_IN_PROGRESS", "RESUME_STATE_CHANGED", "NOT_FOUND"}
    trace = json.loads(world.run("runs", "export", standing["run_id"]).stdout)
    results = [
        block["content"]
        for message in trace["messages"]
        if message["role"] == "user" and isinstance(message["content"], list)
        for block in message["content"]
        if block["type"] == "tool_result"
    ]
    assert results == winners
    world.run("audit", "verify")
