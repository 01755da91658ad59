"""A host that is killed at any instant, and a run that is ended in the middle of a real tool."""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import subprocess
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client

pytestmark = pytest.mark.slow

CONFIG = """
packhost: 1
packs: [agent-runtime, {path: ./counting}]
bound: [path read **, path write made/**, path write .agent-runtime/**]
enforcement: {require: advisory}
agent_runtime:
  default_model: demo
  models:
    demo: {provider: scripted, script: SCRIPT}
    other: {provider: scripted, script: OTHER}
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
    input_schema: {type: object, properties: {id: {type: string}}, required: [id]}
  - name: look
    description: Looks.
    kind: python
    target: counting:look
    permission: read
  - name: hang
    description: Takes its time.
    kind: python
    target: counting:hang
    permission: write
    required_scopes: [path write made/**]
"""
SOURCE = """
import os, time

def add(context, arguments):
    with open("made/log", "a") as log:
        log.write(arguments["id"] + "\\n")
    time.sleep(0.01)
    return {"added": arguments["id"]}

def look(context, arguments):
    time.sleep(0.005)
    return {"seen": True}

def hang(context, arguments):
    with open("made/pid", "w") as file:
        file.write(str(os.getpid()))
    time.sleep(60)
"""
TURNS = 8


def ask(identity: str, tool: str) -> dict[str, Any]:
    return {
        "id": identity,
        "name": f"counting_{tool}",
        "arguments": {"id": identity} if tool == "add" else {},
    }


def script(prefix: str) -> list[dict[str, Any]]:
    turns = [
        {
            "tool_calls": [
                ask(f"{prefix}{n}r", "look"),
                ask(f"{prefix}{n}s", "look"),
                ask(f"{prefix}{n}w", "add"),
            ]
        }
        for n in range(TURNS)
    ]
    return [*turns, {"text": "done"}]


def settle(world: Any, replies: list[Any], other: list[Any]) -> None:
    """The workspace with the pack, and two models that replay these replies."""
    world.write("counting/pack.yaml", MANIFEST)
    world.write("counting/counting.py", SOURCE)
    world.write("made/log", "")
    models = CONFIG.replace("SCRIPT", json.dumps(replies)).replace("OTHER", json.dumps(other))
    world.write("packhost.yaml", models)
    world.accept()


def store(world: Any) -> sqlite3.Connection:
    (path,) = (Path(world.env["XDG_STATE_HOME"]) / "packhost").glob("*/store.db")
    return sqlite3.connect(path)


def conversation(world: Any, session: str) -> list[Any]:
    db = store(world)
    try:
        query = "SELECT message_json FROM session_messages WHERE session_id=? ORDER BY seq"
        return [json.loads(row[0]) for row in db.execute(query, (session,))]
    finally:
        db.close()


HOST = """
import json, sys
from pathlib import Path
import anyio
from packhost.app.host import open_host
from packhost.gate import Caller, CallRequest
from packhost.store.ops import executions
from packhost.workspace.root import Root

def say(**what):
    print(json.dumps(what), flush=True)

async def main():
    async with open_host(Root(Path(sys.argv[1]))) as host:
        say(ready=True)
        for row in host.store.read(executions.listing, 1, direct=False):
            if not row.ended:
                await host.runs.resume_by_person(row.id, by="ann")
                with host.store.watch(f"run:{row.id}") as watch:
                    while not host.store.read(executions.get, row.id).ended:
                        await watch.changed()
            whole = host.store.read(executions.get, row.id)
            say(run=row.id, session=row.session_id, outcome=whole.outcome)
        session, arguments = json.loads(await anyio.to_thread.run_sync(sys.stdin.readline))
        await host.gate.sessions.enter(session, "ann", "test")
        caller = Caller("ann", "test", session)
        await host.gate.call(CallRequest("agent-runtime:execute-turn", arguments, caller))
        say(started=True)
        await anyio.sleep_forever()

anyio.run(main)
"""


class Process:
    """A host in a process of its own; each line that it prints is one JSON object."""

    def __init__(self, world: Any) -> None:
        self._process = subprocess.Popen(
            [world.command[0], "-c", HOST, str(world.root)],
            env=world.env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def heard(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        return dict(json.loads(self._process.stdout.readline()))

    def start(self, session: str, arguments: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{json.dumps([session, arguments])}\n")
        self._process.stdin.flush()
        assert self.heard() == {"started": True}

    def kill(self, after: float) -> None:
        time.sleep(after)
        self._process.send_signal(signal.SIGKILL)
        self._process.communicate()


def check(world: Any, ended: dict[str, Any], branches: Sequence[str]) -> None:
    """Every call that a model made has its one result, and no write happened twice."""
    assert ended["outcome"] == "completed", ended
    lines = Counter((world.root / "made" / "log").read_text().split())
    for session in [f"{ended['run']}.{name}" for name in branches] or [ended["session"]]:
        messages = conversation(world, session)
        answered = 0
        for one, after in zip(messages, [*messages[1:], {"content": []}], strict=True):
            ids = [block["id"] for block in one["content"] if block["type"] == "tool_call"]
            results = {block["tool_use_id"]: block for block in after["content"]} if ids else {}
            assert list(results) == ids
            answered += len(ids)
            for identity in ids:
                check_result(identity, results[identity], lines[identity])
        assert answered == 3 * TURNS
    (world.root / "made" / "log").write_text("")


def check_result(identity: str, result: dict[str, Any], times: int) -> None:
    """What the model was told of a call fits how often it was made."""
    said = result["content"]
    if not identity.endswith("w"):
        assert said == '{"seen":true}'
    elif result["is_error"]:
        assert said.partition(":")[0] in ("EFFECTS_UNKNOWN", "NOT_EXECUTED")
        assert times <= (1 if said.startswith("EFFECTS") else 0)
    else:
        assert (json.loads(said), times) == ({"added": identity}, 1)


TURN: dict[str, Any] = {"messages": [{"role": "user", "content": "go"}], "loop": True, "background": True}
NODES = [{"id": "a", "prompt": "go"}, {"id": "b", "prompt": "go", "model_profile": "other"}]
WORKFLOW: dict[str, Any] = {"workflow": {"nodes": NODES}, "background": True}


def rounds(world: Any, seed: int, count: int) -> None:
    """Kill host after host, also while it resumes what the former one left, and check what comes of it."""
    settle(world, script("t"), script("u"))
    chance = random.Random(seed)
    left: Sequence[str] | None = None
    for number in range(count + 1):
        process = Process(world)
        assert process.heard() == {"ready": True}
        if left is not None and number < count and chance.random() < 0.3:
            process.kill(chance.uniform(0.0, 0.1))
            continue
        if left is not None:
            check(world, process.heard(), left)
        left = ("a", "b") if number % 2 else ()
        if number < count:
            process.start(f"round-{number}", WORKFLOW if left else TURN)
        process.kill(chance.uniform(0.0, 0.35) if number < count else 0.0)


def test_a_run_whose_host_is_killed_at_any_instant_goes_on_and_repeats_no_write(world: Any) -> None:
    rounds(world, 7, 8)


@pytest.mark.real
@pytest.mark.parametrize("seed", range(10))
def test_a_run_survives_many_kills(world: Any, seed: int) -> None:
    rounds(world, 1000 + seed, 20)


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


async def end_in_a_tool(world: Any, client: Client, session: str) -> float:
    """Start a run, end it while its tool works in another process; seconds from the decision to its end."""
    file = world.write("made/pid", "")
    arguments = {"messages": [{"role": "user", "content": "go"}], "loop": True, "background": True}
    started = await client.call_tool("agent-runtime_execute-turn", {**arguments, "session_id": session})
    run_id = started.structured_content["run_id"]
    with anyio.fail_after(20):
        while not file.read_text():
            await anyio.sleep(0.01)
    await anyio.to_thread.run_sync(lambda: world.run("runs", "abort", run_id, "--reason", "enough"))
    at = {event["type"]: event["ts"] for event in world.json("runs", "events", run_id)["events"]}
    pid = int(file.read_text())
    assert pid == os.getpid() or gone(pid)
    results = conversation(world, session)[-1]["content"]
    assert [block["content"].partition(":")[0] for block in results] == ["EFFECTS_UNKNOWN", "NOT_EXECUTED"]
    return float(at["run.aborted"] - at["run.abort_requested"])


@pytest.mark.anyio
async def test_a_run_is_ended_within_100_ms_in_the_middle_of_a_tool_in_another_process(world: Any) -> None:
    settle(world, [{"tool_calls": [ask("c1", "hang"), ask("c2", "add")]}], script("u"))
    url = world.serve_http()
    async with Client(f"{url}/mcp") as client:
        took = await end_in_a_tool(world, client, "one")
        if took >= 0.1:  # once more, should the machine have been busy
            took = await end_in_a_tool(world, client, "two")
    assert 0 <= took < 0.1
