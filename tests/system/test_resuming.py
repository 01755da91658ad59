"""Clients, each a process of its own, answer a pause at once or die over it: one answer wins, and is kept."""

from __future__ import annotations

import json
import random
import threading
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


def results_of(world: Any, run_id: str) -> dict[str, str]:
    """What the model was told of each call, in order."""
    trace = json.loads(world.run("runs", "export", run_id).stdout)
    blocks = [
        block
        for message in trace["messages"]
        if message["role"] == "user" and isinstance(message["content"], list)
        for block in message["content"]
    ]
    return {block["tool_use_id"]: block["content"] for block in blocks if block["type"] == "tool_result"}


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
    assert list(results_of(world, standing["run_id"]).values()) == winners
    world.run("audit", "verify")


@pytest.mark.parametrize("seed", range(2))
def test_a_host_that_is_killed_while_it_takes_answers_keeps_those_that_it_acknowledged(
    world: Any, seed: int
) -> None:
    chance = random.Random(seed)
    ids = [f"c{n}" for n in range(4)]
    batch = {"tool_calls": [{"id": one, "name": "look_around", "arguments": {}} for one in ids]}
    script = [batch, {"tool_calls": [{"id": "d", "name": "look_around", "arguments": {}}]}, {"text": "done"}]
    world.write("packhost.yaml", CONFIG.replace("SCRIPT", json.dumps(script)))
    world.accept()
    arguments = {"messages": [{"role": "user", "content": "go"}], "loop": True, "client_tools": [TOOL]}
    client = world.raw("auto").start()
    standing = result(client.answer(client.call("agent-runtime_execute-turn", **arguments)))
    run_id, kept, number = standing["run_id"], {}, 0
    while standing["outcome"] != "completed":
        left = [call["tool_call_id"] for call in standing["awaits"]]
        assert not set(left) & set(kept), (left, kept)
        sent = {left[0]: {"result": f"answer {number}"}}
        number += 1
        asked = client.call("agent-runtime_resume_workflow", run_id=run_id, tool_outputs=sent)
        if number < 8:
            threading.Timer(chance.random() * 0.06, client.kill).start()
            client.process.wait(timeout=20)
        answers = client.answers.get(asked) if number < 8 else [client.answer(asked)]
        if answers and "code" not in (came := result(answers[0])):
            kept.update({one: said["result"] for one, said in sent.items()})
            standing = came
        client = world.raw("auto").start()
        looked = client.call("agent-runtime_resume_workflow", run_id=run_id)
        standing = result(client.answer(looked))
    told = results_of(world, run_id)
    assert list(told) == [*ids, "d"]
    assert {one: told[one] for one in kept} == kept
    world.run("audit", "verify")
