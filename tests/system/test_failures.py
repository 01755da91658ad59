"""When the machine fails: what a caller sees, what is kept, and that it goes on (docs/failures.md)."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from packhost.workspace.root import Root

pytestmark = pytest.mark.slow
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount, or become another user")

CONFIG = """
packhost: 1
packs: [workspace, {path: ./counting}]
bound: [path read **, path write src/**, path write made/**]
enforcement: {require: advisory}
policy:
  - {match: {tool: "workspace:delete_path"}, decide: ask, reason: look}
"""
MANIFEST = """
packhost: 1
id: counting
version: "1"
title: Counting
tools:
  - name: add
    description: Adds a line and waits.
    kind: python
    target: counting:add
    permission: write
    required_scopes: [path write made/**]
"""
SOURCE = """
import os, time

def add(context, arguments):
    with open("made/log", "a") as log:
        log.write(f"{os.getpid()}\\n")
    while not os.path.exists("made/go"):
        time.sleep(0.01)
    return {"added": True}
"""


def settle(world: Any) -> Any:
    world.write("counting/pack.yaml", MANIFEST)
    world.write("counting/counting.py", SOURCE)
    world.write("made/log", "")
    world.write("a.txt", "hello")
    world.write("src/x", "x")
    world.write("packhost.yaml", CONFIG)
    world.accept()
    return world


@pytest.fixture
def settled(world: Any) -> Any:
    """A workspace with tools that read, write and wait."""
    return settle(world)


def state(world: Any) -> Path:
    (path,) = (Path(world.env["XDG_STATE_HOME"]) / "packhost").iterdir()
    return path


def value(answer: dict[str, Any]) -> dict[str, Any]:
    assert answer["result"].get("isError") is not True, answer
    return dict(json.loads(answer["result"]["content"][0]["text"]))


def refusal(answer: dict[str, Any]) -> dict[str, Any]:
    return dict(answer["result"]["_meta"]["packhost/refusal"])


def reads(client: Any) -> None:
    found = value(client.answer(client.call("workspace_read_file", path="a.txt")))
    assert found["content"] == "hello"


def write(world: Any, client: Any, name: str) -> dict[str, Any]:
    """A write's refusal, which left nothing; empty when it was done."""
    answer = client.answer(client.call("workspace_write_file", path=f"src/{name}", content="y" * 3000))
    done = not answer["result"].get("isError")
    assert (world.root / "src" / name).exists() is done
    return {} if done else refusal(answer)


def broken(world: Any, check: str) -> str:
    """What doctor says is broken, with its exit code."""
    found = world.json("doctor", code=1)["checks"]
    return " ".join(one["text"] for one in found if one["check"] == check and one["state"] == "broken")


def until(check: Any, timeout: float = 20.0) -> Any:
    end = time.monotonic() + timeout
    while not (found := check()):
        assert time.monotonic() < end
        time.sleep(0.01)
    return found


@pytest.fixture
def mounted(tmp_path: Path, world: Any, request: pytest.FixtureRequest) -> Iterator[Path]:
    """The state's folder, on a small file system of its own."""
    folder = Path(world.env["XDG_STATE_HOME"])
    folder.mkdir()
    image = tmp_path / "image"
    image.write_bytes(bytes(16 * 1024 * 1024))
    subprocess.run(["mkfs.ext4", "-q", str(image)], check=True)
    subprocess.run(["mount", "-o", "loop", str(image), str(folder)], check=True)
    try:
        shutil.rmtree(folder / "lost+found")
        yield folder
    finally:
        world.stop()
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder: Path) -> Path:
    file = folder / "packhost" / "fill"
    for size in (1 << 20, 1 << 12):
        try:
            with open(file, "ab", buffering=0) as out:
                while True:
                    out.write(bytes(size))
        except OSError:
            continue
    return file


@as_root
def test_on_a_full_disk_nothing_runs_unrecorded_reads_go_on_and_room_is_all_it_needs(
    world: Any, mounted: Path, era: str
) -> None:
    settle(world)
    client = world.raw(era).start()
    running = client.call("counting_add")
    until(lambda: (world.root / "made/log").read_text())
    filling = fill(mounted)
    refused = write(world, client, "one")
    assert refused["code"] == "TOOL_INTENT_NOT_COMMITTED"
    reads(client)
    newcomer = world.raw(era).start()
    reads(newcomer)
    assert write(world, newcomer, "two")["code"] == "TOOL_INTENT_NOT_COMMITTED"
    assert "disk is full; free space" in broken(world, "state")
    world.write("made/go", "")
    unrecorded = refusal(client.answer(running))
    assert (unrecorded["code"], "could not be written down" in unrecorded["message"]) == (
        "EFFECTS_UNKNOWN",
        True,
    )
    filling.unlink()
    assert write(world, client, "three") == {}
    assert world.json("audit", "verify")["ok"] is True


@as_root
def test_a_host_that_starts_on_a_full_disk_says_so_and_takes_no_harm(world: Any, mounted: Path) -> None:
    settle(world)
    filling = fill(mounted)
    done = world.run("call", "workspace:read_file", '{"path": "a.txt"}', code=2)
    assert "STORE_UNAVAILABLE" in done.stderr
    assert "full" in done.stderr or "No space left" in done.stderr
    assert "the disk is full" in broken(world, "state")
    filling.unlink()
    world.run("call", "workspace:read_file", '{"path": "a.txt"}')


@as_root
def test_on_a_disk_that_became_read_only_nothing_runs_unrecorded(world: Any, mounted: Path) -> None:
    settle(world)
    client = world.raw("legacy").start()
    assert write(world, client, "one") == {}
    subprocess.run(["mount", "-o", "remount,abort", str(mounted)], check=True)
    refused = write(world, client, "two")
    assert refused["code"] == "TOOL_INTENT_NOT_COMMITTED"
    assert "packhost doctor" in refused["message"] + refused["next"]
    reads(client)
    assert "the disk is read-only" in broken(world, "state")
    client.close()
    assert "Read-only" in world.run("tools", "list", code=2).stderr


def test_a_removed_state_folder_acknowledges_nothing_and_doctor_names_the_process(settled: Any) -> None:
    settled.write("packhost.yaml", CONFIG.replace("path write src/**", "path write .agent-runtime/**"))
    settled.accept()
    client = settled.raw("legacy").start()
    reads(client)
    shutil.rmtree(state(settled))
    answer = client.answer(client.call("workspace_write_file", path=".agent-runtime/x", content="x"))
    assert refusal(answer)["code"] in ("TOOL_INTENT_NOT_COMMITTED", "STORE_UNAVAILABLE")
    assert not (settled.root / ".agent-runtime/x").exists()
    text = broken(settled, "store")
    assert f"process {client.process.pid} serves a store that was removed" in text
    client.close()
    assert settled.json("audit", "verify")["ok"] is True


def test_removing_the_lock_file_does_not_make_two_hosts(settled: Any) -> None:
    one = settled.raw("legacy").start()
    (state(settled) / "host.lock").unlink()
    two = settled.raw("legacy").start()
    assert write(settled, two, "two") == {}
    assert write(settled, one, "one") == {}
    assert "taken" not in "".join(two.errors)
    assert settled.json("audit", "verify")["ok"] is True


@pytest.mark.parametrize("how", ["pages", "header"])
def test_a_corrupt_database_is_refused_named_and_replaced_by_a_backup(settled: Any, how: str) -> None:
    settled.run("call", "workspace:write_file", '{"path": "src/a", "content": "a"}')
    archive = settled.root.parent / "backup.tar"
    settled.run("store", "backup", str(archive))
    database = state(settled) / "store.db"
    raw = bytearray(database.read_bytes())
    for at in range(0 if how == "header" else 4096, len(raw), 4096):
        raw[at : at + 300] = os.urandom(300)
    database.write_bytes(raw)
    done = settled.run("tools", "list", code=2)
    assert "STORE_UNAVAILABLE" in done.stderr
    assert "backup" in done.stderr
    assert "backup" in broken(settled, "host")
    settled.run("store", "restore", str(archive), "--yes")
    assert settled.json("audit", "verify")["ok"] is True
    assert settled.run("call", "workspace:read_file", '{"path": "a.txt"}')


CLOCK = """
import sys, time
from pathlib import Path
real, real_ns, offset = time.time, time.time_ns, Path(sys.argv.pop(1))
time.time = lambda: real() + float(offset.read_text())
time.time_ns = lambda: real_ns() + int(float(offset.read_text()) * 1e9)
from packhost.cli import main
main()
"""


@pytest.fixture
def jump(settled: Any) -> Any:
    """Moves the clock of every process of this workspace, also of one that runs, by seconds."""
    offset = settled.root.parent / "offset"
    offset.write_text("0")
    settled.command = [sys.executable, "-c", CLOCK, str(offset)]

    def set_to(seconds: float) -> None:
        new = offset.with_suffix(".new")
        new.write_text(str(seconds))
        new.replace(offset)

    return set_to


DAY = 86_400.0


def test_when_the_clock_jumps_ahead_what_may_expire_has_expired(settled: Any, jump: Any) -> None:
    client = settled.raw("legacy").start()
    session = value(client.answer(client.call("packhost_status")))["session"]["id"]
    reads(client)
    settled.run("sessions", "lower", session, "supervised")
    settled.run("sessions", "raise", session, "autonomous", "--for", "1h", "--reason", "test", code=None)
    asked = settled.json("call", "workspace:delete_path", '{"path": "src/x"}', code=4)["refusal"]
    jump(DAY)
    shown = settled.json("approvals", "show", asked["approval_id"])
    assert shown["status"] == "expired"
    assert settled.json("sessions", "show", session)["level"] == "supervised"
    again = settled.json("call", "workspace:delete_path", '{"path": "src/x"}', code=4)["refusal"]
    assert again["approval_id"] != asked["approval_id"]
    assert (settled.root / "src/x").exists()
    reads(client)
    assert settled.json("audit", "verify")["ok"] is True


def test_when_the_clock_goes_back_calls_go_on_the_chain_holds_and_doctor_says_so(
    settled: Any, jump: Any
) -> None:
    client = settled.raw("legacy").start()
    for number, offset in enumerate((0.0, -DAY, 2 * DAY, -2 * DAY)):
        jump(offset)
        assert write(settled, client, f"n{number}") == {}
    asked = settled.json("call", "workspace:delete_path", '{"path": "src/x"}', code=4)["refusal"]
    jump(-3 * DAY)
    same = settled.json("call", "workspace:delete_path", '{"path": "src/x"}', code=4)["refusal"]
    assert same["approval_id"] == asked["approval_id"]
    settled.run("approvals", "deny", asked["approval_id"])
    assert settled.json("audit", "verify")["ok"] is True
    notes = [one for one in settled.json("doctor")["checks"] if one["check"] == "clock"]
    assert [one["state"] for one in notes] == ["note"]


def test_a_killed_worker_is_told_of_and_the_next_call_gets_another(settled: Any) -> None:
    client = settled.raw("legacy").start()
    id = client.call("counting_add")
    until(lambda: (settled.root / "made/log").read_text())
    for child in children(client.process.pid):
        if child != min(children(client.process.pid)):
            os.kill(child, signal.SIGKILL)
    lost = refusal(client.answer(id))
    assert lost["code"] == "EFFECTS_UNKNOWN"
    settled.write("made/go", "")
    assert value(client.answer(client.call("counting_add"))) == {"added": True}
    reads(client)


def children(pid: int) -> list[int]:
    """Every process that a process started, and those that these did."""
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in map(int, (task / "children").read_text().split()):
            found += [child, *children(child)]
    return found


def limited(kind: int, most: int) -> Any:
    return lambda: resource.setrlimit(kind, (most, most))


def test_out_of_file_descriptors_what_runs_goes_on_and_doctor_names_it(settled: Any) -> None:
    client = settled.raw("legacy", preexec_fn=limited(resource.RLIMIT_NOFILE, 40)).start()
    reads(client)
    held = []
    with Root(settled.root, environ=settled.env) as root:
        place = str(root.socket)
    try:
        for _ in range(50):
            held.append(socket.socket(socket.AF_UNIX))
            held[-1].connect(place)
        until(lambda: "no connection can be taken" in "".join(client.errors))
        refused = write(settled, client, "one")
        assert (refused["code"], "too many open files" in refused["message"]) == ("TOOL_FAILED", True)
        assert client.answer(client.ask("ping"))["result"] == {}
        assert "does not answer" in settled.run("tools", "list", code=2).stderr
        assert f"process {client.process.pid} has" in broken(settled, "files")
    finally:
        for one in held:
            one.close()
    until(lambda: write(settled, client, "two") == {})
    settled.run("tools", "list")
    assert sum("no connection can be taken" in line for line in client.errors) <= 3


def test_a_host_that_may_open_too_few_files_says_so(settled: Any) -> None:
    client = settled.raw("legacy", preexec_fn=limited(resource.RLIMIT_NOFILE, 12))
    assert client.process.wait(20) == 3
    until(lambda: "LIMIT_EXCEEDED: this process has too many files open" in "".join(client.errors))


@as_root
def test_a_host_that_may_start_no_thread_says_so(settled: Any) -> None:
    base = settled.root.parent
    subprocess.run(["chown", "-R", "65534", str(base)], check=True)
    for folder in (base, *base.parents[:3]):
        folder.chmod(0o755)
    settled.command = ["setpriv", "--reuid", "65534", "--clear-groups", *settled.command]
    client = settled.raw("legacy", preexec_fn=limited(resource.RLIMIT_NPROC, 1))
    assert client.process.wait(20) == 3
    until(lambda: "LIMIT_EXCEEDED: this user may start no further process" in "".join(client.errors))


def test_doctor_names_a_stopped_host_at_once(settled: Any) -> None:
    client = settled.raw("legacy").start()
    client.kill(signal.SIGSTOP)
    try:
        assert f"kill -CONT {client.process.pid}" in broken(settled, "host")
    finally:
        client.kill(signal.SIGCONT)
    reads(client)
