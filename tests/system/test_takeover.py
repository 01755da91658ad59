"""The host of a workspace dies, and its relays' clients go on: one answer each, and nothing done twice."""

from __future__ import annotations

import json
import random
import signal
import sqlite3
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

CONFIG = """
packhost: 1
packs: [agent-runtime, workspace, {path: ./counting}]
bound: [path read **, path write made/**, path write src/**, path write .agent-runtime/**]
enforcement: {require: advisory}
policy:
  - {match: {tool: "workspace:write_file"}, decide: ask, reason: look}
"""
MANIFEST = """
packhost: 1
id: counting
version: "1"
title: Counting
tools:
  - name: add
    description: Adds a line; twice is not the same as once.
    kind: python
    target: counting:add
    permission: write
    required_scopes: [path write made/**]
    input_schema: {type: object, properties: {id: {type: string}, wait: {type: boolean}}, required: [id]}
  - name: note
    description: Adds a line and may do so again.
    kind: python
    target: counting:add
    permission: write
    idempotent: true
    required_scopes: [path write made/**]
    input_schema: {type: object, properties: {id: {type: string}, wait: {type: boolean}}, required: [id]}
"""
SOURCE = """
import os, time

def add(context, arguments):
    with open("made/log", "a") as log:
        log.write(arguments["id"] + "\\n")
    while arguments.get("wait") and not os.path.exists("made/go"):
        time.sleep(0.01)
    return {"added": arguments["id"]}
"""
ELICITS = {"elicitation": {"form": {}}}


@pytest.fixture
def counting(world: Any) -> Any:
    """A workspace with tools that count how often they ran."""
    world.write("counting/pack.yaml", MANIFEST)
    world.write("counting/counting.py", SOURCE)
    world.write("made/log", "")
    world.write("src/a.txt", "hello")
    world.write("packhost.yaml", CONFIG)
    world.accept()
    return world


def log(world: Any) -> Counter[str]:
    return Counter((world.root / "made" / "log").read_text().split())


def until(check: Any, timeout: float = 20.0) -> Any:
    """Wait for what another process does."""
    end = time.monotonic() + timeout
    while not (found := check()):
        assert time.monotonic() < end
        time.sleep(0.005)
    return found


def refusal(answer: dict[str, Any]) -> dict[str, Any]:
    return dict(answer["result"]["_meta"]["packhost/refusal"])


def value(answer: dict[str, Any]) -> dict[str, Any]:
    assert answer["result"].get("isError") is not True, answer
    return dict(json.loads(answer["result"]["content"][0]["text"]))


def once(*clients: Any) -> None:
    """Every request that was answered was answered once."""
    for client in clients:
        assert {id: len(found) for id, found in client.answers.items() if len(found) != 1} == {}


def holder(world: Any) -> int:
    (path,) = (Path(world.env["XDG_STATE_HOME"]) / "packhost").glob("*/host.lock")
    return int(json.loads(path.read_text())["pid"])


def test_hosts_die_in_turn_and_the_last_client_is_served_throughout(world: Any, era: str) -> None:
    world.write("a.txt", "hello")
    clients = [world.raw(era).start() for _ in range(4)]
    for _ in range(3):
        pid = holder(world)
        first = next(client for client in clients if client.process.pid == pid)
        clients.remove(first)
        first.kill()
        ids = [(client, client.call("workspace_read_file", path="a.txt")) for client in clients]
        for client, id in ids:
            assert value(client.answer(id))["content"] == "hello"
    once(*clients)
    assert holder(world) == clients[0].process.pid
    assert sum("has taken" in error for error in clients[0].errors) == 1
    assert "list_changed" not in json.dumps(clients[0].told)


def test_the_next_call_is_answered_within_a_second_of_the_kill(world: Any, era: str) -> None:
    world.write("a.txt", "hello")
    clients = [world.raw(era).start() for _ in range(3)]
    time.sleep(5)  # a relay loads what a host needs once it has been there for a while
    took = []
    while len(clients) > 1 and (not took or took[-1] > 1):  # once more, should the machine have been busy
        clients.pop(0).kill()
        began = time.monotonic()
        value(clients[0].answer(clients[0].call("workspace_read_file", path="a.txt")))
        took.append(time.monotonic() - began)
    assert min(took) <= 1, took


@pytest.mark.parametrize("end", ["SIGTERM", "EOF"])
def test_a_host_that_ends_in_order_hands_its_clients_over_as_well(counting: Any, era: str, end: str) -> None:
    one, two = counting.raw(era).start(), counting.raw(era).start()
    id = two.call("counting_add", id="x", wait=True)
    until(lambda: log(counting)["x"])
    if end == "EOF":
        one.process.stdin.close()
    else:
        one.kill(signal.SIGTERM)
    assert refusal(two.answer(id))["code"] == "EFFECTS_UNKNOWN"
    assert one.process.wait(timeout=20) == 0
    assert value(two.answer(two.call("counting_add", id="y"))) == {"added": "y"}
    assert log(counting) == {"x": 1, "y": 1}
    once(two)


def test_a_call_under_way_is_said_to_be_unknown_unless_it_may_be_repeated(counting: Any, era: str) -> None:
    one, two = counting.raw(era).start(), counting.raw(era).start()
    done = two.call("counting_add", id="done")
    assert value(two.answer(done)) == {"added": "done"}
    unsure = two.call("counting_add", id="unsure", wait=True)
    again = two.call("counting_note", id="again", wait=True)
    until(lambda: log(counting)["unsure"] and log(counting)["again"])
    one.kill()
    lost = refusal(two.answer(unsure))
    assert lost["code"] == "EFFECTS_UNKNOWN"
    counting.write("made/go", "")
    assert value(two.answer(again)) == {"added": "again"}
    assert log(counting) == {"done": 1, "unsure": 1, "again": 2}
    events = counting.json("runs", "events", lost["run_id"])["events"]
    assert [event["type"] for event in events if event["type"].startswith("call.")] == ["call.started"]
    assert counting.json("audit", "verify")["ok"] is True
    once(two)


def test_a_question_is_withdrawn_asked_anew_and_its_late_answer_leads_nowhere(counting: Any) -> None:
    one = counting.raw("legacy").start(**ELICITS)
    two = counting.raw("legacy").start(**ELICITS)
    id = two.call("workspace_write_file", path="src/b.txt", content="b")
    (first,) = two.until(lambda: two.asked)
    one.kill()
    _, second = two.until(lambda: len(two.asked) == 2 and two.asked)
    cancelled = [note["params"] for note in two.told if note["method"] == "notifications/cancelled"]
    assert [params["requestId"] for params in cancelled] == [first["id"]]
    assert second["id"] != first["id"]
    two.send({"id": first["id"], "result": {"action": "accept", "content": {}}})
    two.answer(two.ask("ping"))
    assert id not in two.answers
    assert not (counting.root / "src/b.txt").exists()
    two.send({"id": second["id"], "result": {"action": "accept", "content": {}}})
    value(two.answer(id))
    assert (counting.root / "src/b.txt").read_text() == "b"
    records = counting.json("approvals", "list", "--all")["approvals"]
    assert [record["status"] for record in records] == ["approved"]
    once(two)


def test_an_answer_brought_to_another_host_than_the_one_that_asked_counts(counting: Any) -> None:
    one, two = counting.raw("auto").start(), counting.raw("auto").start()
    arguments = {"path": "src/b.txt", "content": "b"}
    asked = two.answer(two.call("workspace_write_file", **arguments))["result"]
    assert asked["resultType"] == "input_required"
    one.kill()
    answers = {"approve": {"action": "accept", "content": {}}}
    retry = two.ask(
        "tools/call",
        name="workspace_write_file",
        arguments=arguments,
        inputResponses=answers,
        requestState=asked["requestState"],
    )
    value(two.answer(retry))
    assert (counting.root / "src/b.txt").read_text() == "b"
    once(two)


def test_a_client_whose_handshake_the_host_did_not_live_to_answer_gets_it_from_the_next(world: Any) -> None:
    one = world.raw("legacy").start()
    two = world.raw("legacy")
    one.kill(signal.SIGSTOP)
    id = two.hello()
    with pytest.raises(AssertionError):
        two.answer(id, timeout=1)
    one.kill()
    answer = two.answer(id)["result"]
    assert (answer["protocolVersion"], answer["serverInfo"]["name"]) == ("2025-11-25", "packhost")
    two.send({"method": "notifications/initialized"})
    assert two.answer(two.ask("tools/list"))["result"]["tools"]
    once(two)


def test_a_client_hears_of_other_tools_at_the_new_host(world: Any, era: str) -> None:
    one, two = world.raw(era).start(), world.raw(era).start()
    two.answer(two.ask("tools/list"))
    if two.modern:
        two.ask("subscriptions/listen", notifications={"toolsListChanged": True})
        two.until(lambda: two.told)
    one.kill(signal.SIGSTOP)  # so that the old host itself cannot tell
    world.write("packhost.yaml", "packhost: 1\npacks: [workspace]\nbound: [path read src/**]\n")
    one.kill()
    told = two.until(lambda: [note for note in two.told if note["method"].endswith("tools/list_changed")])
    assert len(told) == 1
    names = {tool["name"] for tool in two.answer(two.ask("tools/list"))["result"]["tools"]}
    assert "workspace_write_file" not in names


def test_a_lowered_session_stays_lowered_over_two_hosts(world: Any, era: str) -> None:
    one, two = world.raw(era).start(), world.raw(era).start()
    session = value(two.answer(two.call("packhost_status")))["session"]["id"]
    two.answer(two.call("workspace_list_directory"))
    world.run("sessions", "lower", session, "observe")
    one.kill()
    assert value(two.answer(two.call("packhost_status")))["session"]["id"] == session
    write = {"path": ".agent-runtime/x", "content": "x"}
    assert refusal(two.answer(two.call("workspace_write_file", **write)))["code"] == "AUTONOMY_DENIED"


RUNS = """
packhost: 1
packs: [agent-runtime, workspace]
bound: [path read **, path write src/**, path write .agent-runtime/**]
policy:
  - {match: {tool: "workspace:write_file"}, decide: ask, reason: look}
agent_runtime:
  default_model: demo
  models:
    demo:
      provider: scripted
      script:
        - tool_calls: [{id: c1, name: workspace_write_file, arguments: {path: src/a.txt, content: hi}}]
          stop_reason: tool_use
        - text: done
          stop_reason: end_turn
"""


def test_a_turn_of_a_dead_host_goes_on_in_the_background_or_when_its_client_says_so(
    world: Any, era: str
) -> None:
    world.write("packhost.yaml", RUNS)
    world.accept()
    one, two = world.raw(era).start(), world.raw(era).start()
    turn = {"messages": [{"role": "user", "content": "go"}], "loop": True}
    if two.modern:
        turn["background"] = True
        run = value(two.answer(two.call("agent-runtime_execute-turn", **turn)))["run_id"]
    else:
        id = two.call("agent-runtime_execute-turn", **turn)
    until(lambda: world.json("approvals", "list")["approvals"])
    one.kill()
    if not two.modern:
        lost = refusal(two.answer(id))
        assert (lost["code"], "runs show" in lost["next"]) == ("EFFECTS_UNKNOWN", True)
        run = lost["run_id"]
        assert world.json("runs", "show", run)["status"] == "interrupted"
        resumed = two.call("agent-runtime_resume_workflow", run_id=run)
    until(lambda: world.json("runs", "show", run)["status"] == "running")
    (asked,) = world.json("approvals", "list", "--status", "pending")["approvals"]
    world.run("approvals", "deny", asked["id"])
    if not two.modern:
        assert value(two.answer(resumed))["run_id"] == run
    until(lambda: world.json("runs", "show", run)["status"] == "completed")
    assert not (world.root / "src/a.txt").exists()
    once(two)


def test_a_stopped_host_is_answered_for_in_bounded_time_and_goes_on_when_it_is_woken(
    counting: Any, era: str
) -> None:
    one, two = counting.raw(era).start(), counting.raw(era).start()
    value(two.answer(two.call("counting_add", id="before")))
    one.kill(signal.SIGSTOP)
    began = time.monotonic()
    id = two.call("counting_add", id="while")
    done = counting.run("tools", "list", code=2)
    assert f"kill -CONT {one.process.pid}" in done.stderr
    lost = refusal(two.answer(id))
    assert time.monotonic() - began < 30
    assert (lost["code"], str(one.process.pid) in lost["message"]) == ("EFFECTS_UNKNOWN", True)
    one.kill(signal.SIGCONT)
    assert value(two.answer(two.call("counting_add", id="after"))) == {"added": "after"}
    counts = log(counting)
    assert (counts["before"], counts["after"]) == (1, 1)
    assert counts["while"] <= 1
    once(one, two)


class Crowd:
    """Clients on one workspace, of which the one that holds it is killed again and again."""

    def __init__(self, world: Any, seed: int) -> None:
        self.world = world
        self.chance = random.Random(seed)
        self.clients = [self.join() for _ in range(3)]
        self.asked: dict[str, tuple[Any, int]] = {}
        self.number = 0

    def join(self) -> Any:
        return self.world.raw(self.chance.choice(("auto", "legacy"))).start()

    def ask(self) -> None:
        for client in self.clients:
            for _ in range(self.chance.randrange(4)):
                self.number += 1
                name = self.chance.choice(("add", "note"))
                identity = f"{name}{self.number}"
                self.asked[identity] = (client, client.call(f"counting_{name}", id=identity))

    def kill(self) -> None:
        pid = holder(self.world)
        for client in self.clients:
            if client.process.pid == pid:
                time.sleep(self.chance.uniform(0.0, 0.15))
                client.kill()
                self.clients.remove(client)
                self.clients.append(self.join())
                return

    def check(self) -> None:
        """Each surviving client was answered once, and each answer fits how often the tool ran."""
        for client, id in self.asked.values():
            if client in self.clients:
                client.answer(id, timeout=60)
        once(*self.clients)
        counts = log(self.world)
        for identity, (client, id) in self.asked.items():
            times, repeatable = counts[identity], identity.startswith("note")
            assert repeatable or times <= 1, identity
            if client not in self.clients:
                continue
            answer = client.answers[id][0]
            if answer["result"].get("isError"):
                assert refusal(answer)["code"] == "EFFECTS_UNKNOWN", answer
                assert not repeatable
            else:
                assert times >= 1, (identity, answer)


def rounds(world: Any, seed: int, count: int) -> None:
    crowd = Crowd(world, seed)
    for _ in range(count):
        crowd.ask()
        crowd.kill()
    crowd.check()
    assert world.json("audit", "verify")["ok"] is True
    (path,) = (Path(world.env["XDG_STATE_HOME"]) / "packhost").glob("*/store.db")
    db = sqlite3.connect(path)
    try:
        rows = db.execute("SELECT args_json, status FROM calls WHERE tool LIKE 'counting:%'").fetchall()
    finally:
        db.close()
    journal: dict[str, list[str]] = {}
    for arguments, status in rows:
        journal.setdefault(json.loads(arguments)["id"], []).append(status)
    counts = log(world)
    assert counts.keys() <= journal.keys()  # no effect without an intent before it
    for identity, found in journal.items():
        assert "started" not in found
        if identity.startswith("add"):
            assert found.count("ok") + found.count("unknown") <= 1, (identity, found)
            assert counts[identity] == 1 or "ok" not in found
            assert counts[identity] == 0 or {"ok", "unknown"} & set(found), (identity, found)


def test_hosts_are_killed_at_any_instant_and_every_client_is_answered_once(counting: Any) -> None:
    rounds(counting, 3, 6)


@pytest.mark.real
@pytest.mark.parametrize("seed", range(5))
def test_clients_survive_many_killed_hosts(counting: Any, seed: int) -> None:
    rounds(counting, 100 + seed, 20)
