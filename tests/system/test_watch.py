"""`packhost approvals watch`: a person at a terminal, and scripts."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from screens import DOWN, Screen

pytestmark = pytest.mark.slow
SETTINGS = """\
packhost: 1
packs: [agent-runtime, workspace]
bound: [path read **, path write src/**, path write .agent-runtime/**]
policy:
  - match: {tool: "workspace:write_file"}
    decide: ask
    reason: a person looks at what is written
approvals: {hold: 20s}
"""


def write(client: Any, name: str, content: str = "hello\n") -> int:
    return int(client.call("workspace_write_file", path=f"src/{name}", content=content))


@pytest.fixture
def client(world: Any) -> Any:
    """A client without a dialog, whose writes wait for a person elsewhere."""
    world.write("packhost.yaml", SETTINGS)
    world.accept()
    return world.raw("legacy").start()


@pytest.fixture
def watching(world: Any, client: Any) -> Iterator[Screen]:
    """The inbox at a terminal."""
    command = [*world.command, "approvals", "watch", "-w", str(world.root)]
    with Screen(command, world.root, world.env) as screen:
        screen.see("nothing waits for a person")
        yield screen


def refused(answer: Any) -> str:
    return str(answer["result"]["_meta"]["packhost/refusal"]["code"])


def test_what_comes_is_shown_with_its_diff_and_allowed_once(
    world: Any, client: Any, watching: Screen
) -> None:
    asked = write(client, "a.txt")
    watching.see("1 waits for a person", "▶ workspace:write_file", "Allow workspace:write_file", "| +hello")
    assert "\a" in watching.heard
    watching.press("a")
    watching.see("Allow exactly this call, once?")
    assert not (world.root / "src/a.txt").exists()
    watching.press("y")
    watching.see("is approved by", "nothing waits for a person")
    assert "result" in client.answer(asked)
    assert (world.root / "src/a.txt").read_text() == "hello\n"
    watching.press("q")
    assert watching.end() == 0


def test_a_person_denies_with_a_reason_that_the_agent_reads(
    world: Any, client: Any, watching: Screen
) -> None:
    asked = write(client, "a.txt")
    watching.see("▶ workspace:write_file")
    watching.press("d")
    watching.see("Why?")
    watching.press("not on a Friday\r")
    watching.see("is denied by")
    answer = client.answer(asked)
    assert refused(answer) == "APPROVAL_DENIED"
    assert "not on a Friday" in json.dumps(answer)


def test_always_is_narrowed_by_the_person_and_covers_the_next_call(
    world: Any, client: Any, watching: Screen
) -> None:
    asked = write(client, "a.txt")
    watching.see("▶ workspace:write_file")
    watching.press("A")
    watching.see("Paths, such as")
    watching.press("path=src/**\r")
    watching.see("any value")
    watching.press("content\r")
    watching.see("For how long")
    watching.press("30d\r")
    watching.see("Always allow this?", "30 days")
    watching.press("y\r")
    watching.see("allowed from now on")
    assert "isError" not in client.answer(asked)["result"] or not client.answer(asked)["result"]["isError"]
    assert not client.answer(write(client, "b.txt", "another"))["result"].get("isError")


def test_what_is_selected_stays_so_while_others_come_and_go(
    world: Any, client: Any, watching: Screen
) -> None:
    write(client, "a.txt", "first\n")
    watching.see("1 waits for a person")
    write(client, "b.txt", "second\n")
    watching.see("2 wait for a person", "| +first")
    watching.press(DOWN)
    watching.see("| +second")
    first = world.json("approvals", "list")["approvals"][-1]["id"]
    world.run("approvals", "deny", first)
    watching.see("1 waits for a person", "| +second")
    watching.press("?")
    watching.see("page the text")
    watching.resize(20, 60)
    watching.press("?")
    watching.see("1 waits for a person")
    watching.press("\x03")
    assert watching.end() == 130
    assert watching.heard.rstrip().endswith("\x1b[?25h\x1b[?1049l"), "the cursor and the screen are back"
    assert world.json("approvals", "list")["approvals"][0]["status"] == "pending"


def test_what_is_decided_elsewhere_takes_the_question_away(world: Any, client: Any, watching: Screen) -> None:
    write(client, "a.txt")
    watching.see("▶ workspace:write_file")
    watching.press("a")
    watching.see("Allow exactly this call, once?")
    world.run("approvals", "deny", world.json("approvals", "list")["approvals"][0]["id"])
    watching.see("nothing waits for a person", "decided elsewhere")
    watching.press("y")
    watching.press("q")
    assert watching.end() == 0
    assert not (world.root / "src/a.txt").exists()


def test_an_operator_is_asked_for_the_passphrase(world: Any, client: Any) -> None:
    with Screen([*world.command, "operator", "set", "-w", str(world.root)], world.root, world.env) as setting:
        for question in ("A passphrase for the operator", "once more"):
            setting.see(question)
            setting.press("correct horse\r")
        assert setting.end() == 0
    asked = write(client, "a.txt")
    command = [*world.command, "approvals", "watch", "-w", str(world.root)]
    with Screen(command, world.root, world.env) as watching:
        watching.see("▶ workspace:write_file")
        watching.press("a")
        watching.see("Allow exactly this call, once?")
        watching.press("y")
        watching.see("The operator's passphrase")
        watching.press("correct horse\r")
        watching.see("is approved by")
    assert not client.answer(asked)["result"].get("isError")
    (answer,) = world.json("approvals", "list", "--all")["approvals"][0]["answers"]
    assert answer["assurance"] == "operator"


def test_an_agents_shell_sees_and_decides_nothing(world: Any, client: Any) -> None:
    write(client, "a.txt")
    command = [*world.command, "approvals", "watch", "-w", str(world.root)]
    with Screen(command, world.root, {**world.env, "CLAUDECODE": "1"}) as watching:
        watching.see("▶ workspace:write_file")
        for key in "aAd":
            watching.press(key)
            watching.see("an agent's shell")
        watching.press("q")
        assert watching.end() == 0
    assert world.json("approvals", "list")["approvals"][0]["status"] == "pending"


def test_where_nobody_looks_each_approval_is_a_line(world: Any, client: Any) -> None:
    process = subprocess.Popen(
        [*world.command, "approvals", "watch", "--json", "-w", str(world.root)],
        env=world.env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    ending = threading.Timer(30, process.kill)
    ending.start()
    try:
        assert process.stdout is not None
        write(client, "a.txt")
        came = json.loads(process.stdout.readline())
        assert (came["status"], came["tool"]) == ("pending", "workspace:write_file")
        world.run("approvals", "deny", came["id"])
        gone = json.loads(process.stdout.readline())
        assert (gone["id"], gone["status"]) == (came["id"], "denied")
    finally:
        ending.cancel()
        process.terminate()
        process.wait(10)
        if process.stdout is not None:
            process.stdout.close()


def test_once_shows_what_waits_and_ends(world: Any, client: Any) -> None:
    assert world.run("approvals", "watch", "--once").stdout == "nothing waits for a person\n"
    assert world.run("approvals", "watch", "--once", "--json").stdout == ""
    write(client, "a.txt")
    client.until(lambda: world.json("approvals", "list")["approvals"])
    assert "Allow workspace:write_file" in world.run("approvals", "watch", "--once").stdout
    (line,) = world.run("approvals", "watch", "--once", "--json").stdout.splitlines()
    assert json.loads(line)["status"] == "pending"
