"""Backup, restoration and pruning of a real workspace: beside a host that runs, and killed in the middle."""

from __future__ import annotations

import json
import os
import random
import sqlite3
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from postgres_server import STORES

from packhost.journal import canonical
from packhost.names import new_id
from packhost.store.backup import extract, read_manifest
from packhost.store.ops import calls
from packhost.store.rows import DIRECT, NewCall, NewExecution
from packhost.store.sqlite import SqliteTx

pytestmark = pytest.mark.slow
ROUNDS = int(os.environ.get("PACKHOST_KILL_ROUNDS", "3"))
DAY = 86_400.0


@pytest.fixture
def used(world: Any) -> Path:
    """A workspace with a call on record; its state folder."""
    world.write("README.md", "hello")
    world.write("packhost.yaml", "packhost: 1\nbound: [path read **, path write src/**]\n")
    world.accept()
    world.run("call", "workspace:read_file", '{"path": "README.md"}')
    return state_of(world)


def state_of(world: Any) -> Path:
    (state,) = (Path(world.env["XDG_STATE_HOME"]) / "packhost").iterdir()
    return state


def aged(state: Path, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put calls of three days ago on record, before all others."""
    connection = sqlite3.connect(state / "store.db", isolation_level=None)
    connection.execute("PRAGMA foreign_keys=ON")
    for table in ("calls", "events", "executions"):
        connection.execute(f"DELETE FROM {table}")
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() - 3 * DAY)
    tx = SqliteTx(connection, state.name)
    tx.begin()
    for number in range(count):
        run = new_id("run")
        text = canonical({"n": number, "pad": "x" * 200})
        execution = NewExecution(run, DIRECT, "s", "me", "code")
        tool = ("workspace:read_file", "1")
        new = NewCall(new_id("call"), run, "host", 1, *tool, text, "d", True, "me", execution=execution)
        calls.begin(tx, new)
        calls.end(tx, new.id, "ok", None, canonical({"n": number}), finish_execution=True)
    tx.commit()
    monkeypatch.undo()
    connection.close()


def started(world: Any, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*world.command, *words, "-w", str(world.root)],
        env=world.env,
        cwd=world.root,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def killed(world: Any, seed: int, whole: float, *words: str) -> None:
    """Start a command and kill it at some instant of its work."""
    process = started(world, *words)
    try:
        process.wait(random.Random(seed).uniform(0.35 * whole, whole))
    except subprocess.TimeoutExpired:
        process.kill()
    process.wait()


def took(work: Callable[[], Any]) -> float:
    began = time.monotonic()
    work()
    return time.monotonic() - began


def test_a_backup_is_made_beside_a_host_that_writes(world: Any, used: Path, tmp_path: Path) -> None:
    client = world.raw("auto").start()
    asked = [client.call("workspace_read_file", path="README.md") for _ in range(50)]
    made = world.json("store", "backup", str(tmp_path / "b"))
    more = [client.call("workspace_read_file", path="README.md") for _ in range(50)]
    assert all("result" in client.answer(id) for id in (*asked, *more))
    info = world.json("store", "info")
    assert (info["holder"], made["fault"]) == (client.process.pid, None)
    assert made["head"]["id"] <= info["record"]["last"]
    assert world.run("audit", "verify", "--head", made["head"]["hash"]).returncode == 0
    refused = world.run("store", "restore", str(tmp_path / "b"), "--yes", code=None)
    assert (refused.returncode, "is its host" in refused.stderr) == (2, True)
    pruned = world.run("store", "prune", "--older-than", "1d", "--without-export", "--yes")
    assert "nothing is older" in pruned.stdout
    client.close()
    world.run("store", "restore", str(tmp_path / "b"), "--yes")
    assert world.json("audit", "head")["id"] == made["head"]["id"] + 1


def test_a_run_that_was_running_when_the_backup_was_made_is_interrupted(world: Any, tmp_path: Path) -> None:
    world.write(
        "packhost.yaml",
        """
packhost: 1
agent_runtime:
  default_model: demo
  models: {demo: {provider: scripted, script: [{text: done}]}}
  flows:
    late:
      nodes: [{id: first, prompt: go}, {id: second, prompt: go on, depends_on: [first], wake_at: +1h}]
""",
    )
    world.accept()
    client = world.raw("auto").start()
    answer = client.answer(client.call("agent-runtime_execute-turn", workflow="late"))
    run = json.loads(answer["result"]["content"][0]["text"])["run_id"]
    client.close()
    state = state_of(world)
    connection = sqlite3.connect(state / "store.db", isolation_level=None)
    connection.execute(
        "UPDATE executions SET status='running', owner='host_gone', lease_until=4e9 WHERE id=?", (run,)
    )
    connection.close()
    world.run("store", "backup", str(tmp_path / "b"))
    done = world.json("store", "restore", str(tmp_path / "b"), "--yes")
    assert done["interrupted"] == [run]
    assert world.json("runs", "show", run)["status"] == "interrupted"


def test_a_killed_backup_leaves_a_whole_file_or_none(
    world: Any, used: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    aged(used, 4_000, monkeypatch)
    whole = took(lambda: world.run("store", "backup", str(tmp_path / "whole")))
    for number in range(ROUNDS):
        file = tmp_path / f"b{number}"
        killed(world, number, whole, "store", "backup", str(file))
        if file.exists():
            extract(file, read_manifest(file), tmp_path / f"out{number}")
        assert world.run("audit", "verify").returncode == 0
        if not file.exists():
            world.run("store", "backup", str(file))
        assert [path for path in tmp_path.iterdir() if path.name.startswith(f".b{number}.")] == []


def test_a_killed_restoration_leaves_the_one_state_or_the_other(
    world: Any, used: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    aged(used, 4_000, monkeypatch)
    file = tmp_path / "b"
    world.run("store", "backup", str(file))
    world.run("call", "workspace:read_file", '{"path": "README.md"}')
    whole = took(lambda: world.run("store", "restore", str(file), "--yes"))
    for number in range(ROUNDS):
        world.run("call", "workspace:read_file", '{"path": "README.md"}')
        before = world.json("audit", "head")
        killed(world, number, whole, "store", "restore", str(file), "--yes")
        after = world.json("audit", "head")
        assert world.run("audit", "verify").returncode == 0
        last = json.loads(world.run("audit", "export", "--after", str(after["id"] - 1)).stdout)
        assert after == before or last["type"] == "store.restored"
        assert not (used / "restore.json").exists()
        world.run("call", "workspace:read_file", '{"path": "README.md"}')
    world.run("store", "restore", str(file), "--yes")
    assert [path for path in used.iterdir() if path.name.startswith(".restore")] == []


def test_a_killed_pruning_is_valid_and_goes_on(
    world: Any, used: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("store", "prune", "--older-than", "1d", "--yes")
    aged(used, 3_000, monkeypatch)
    whole = took(lambda: world.run(*words, "--export", str(tmp_path / "whole.jsonl")))
    for number in range(ROUNDS):
        aged(used, 3_000, monkeypatch)
        file = tmp_path / f"{number}.jsonl"
        killed(world, number, whole, *words, "--export", str(file))
        assert world.run("audit", "verify").returncode == 0
        world.run(*words, "--without-export")
        found = world.json("audit", "verify")
        assert (found["ok"], found["unfinished"], found["pruned"]) == (True, 0, 6_000)
        if found["prunings"][-1]["exported"] is not None:
            assert world.run("audit", "verify", "--export", str(file), "--join").returncode == 0


@pytest.mark.parametrize("kind", [one for one in STORES if one != "sqlite"])
def test_a_workspace_in_postgresql_is_backed_up_pruned_and_restored(
    kind: str, world: Any, postgres_url: str, tmp_path: Path
) -> None:
    world.write("README.md", "hello")
    world.env["STORE"] = postgres_url
    world.write("packhost.yaml", "packhost: 1\nbound: [path read **]\nstore: env:STORE\n")
    world.accept()
    world.run("call", "workspace:read_file", '{"path": "README.md"}')
    info = world.json("store", "info")
    assert (info["kind"], info["replicas"], info["rows"]["calls"]) == ("postgresql", [], 1)
    password = postgres_url.split(":")[2].split("@")[0]
    assert password not in world.run("store", "info").stdout
    file = tmp_path / "b"
    made = world.json("store", "backup", str(file))
    assert (made["kind"], made["parts"][0], made["fault"]) == ("postgresql", "store/store.dump", None)
    world.run("call", "workspace:read_file", '{"path": "README.md"}')
    later = world.json("audit", "head")
    done = world.json("store", "restore", str(file), "--yes")
    assert (Path(done["aside"]) / "store.dump").stat().st_size > 0
    record = [json.loads(line) for line in world.run("audit", "export").stdout.splitlines()]
    (restored,) = [line["data"] for line in record if line["type"] == "store.restored"]
    assert restored["replaced"]["id"] >= later["id"]
    assert world.run("audit", "verify", "--head", made["head"]["hash"]).returncode == 0
    assert world.run("store", "migrate").stdout.startswith("schema")
    assert (
        "nothing is older"
        in world.run("store", "prune", "--older-than", "1h", "--without-export", "--yes").stdout
    )
    lines = world.run("doctor", code=None).stdout.splitlines()
    told = [line.split()[1] for line in lines if "PostgreSQL" in line]
    assert told == ["store", "the"], "the store's own line, and the one that says where the record lies"


@pytest.mark.parametrize("kind", [one for one in STORES if one != "sqlite"])
def test_a_store_that_a_host_uses_is_not_restored(
    kind: str, world: Any, postgres_url: str, tmp_path: Path
) -> None:
    world.write("README.md", "hello")
    world.env["STORE"] = postgres_url
    world.write("packhost.yaml", "packhost: 1\nbound: [path read **]\nstore: env:STORE\n")
    world.accept()
    client = world.raw("auto").start()
    world.run("store", "backup", str(tmp_path / "b"))
    assert [one["pid"] for one in world.json("store", "info")["replicas"]] == [client.process.pid]
    refused = world.run("store", "restore", str(tmp_path / "b"), "--yes", code=None)
    assert (refused.returncode, "host" in refused.stderr) == (2, True)
