"""Tasks of a real host: they outlive it, and run what was approved once."""

from __future__ import annotations

import json
from typing import Any

import pytest
from screens import Screen

pytestmark = pytest.mark.slow
SETTINGS = """\
packhost: 1
packs: [agent-runtime, workspace]
bound: [path read **, path write src/**, path write .agent-runtime/**]
policy:
  - match: {tool: "workspace:write_file"}
    decide: ask
    reason: a person looks at what is written
"""
KNOWS = {"io.modelcontextprotocol/clientCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}}}
WRITE = {"path": "src/a.txt", "content": "hello\n"}


def ask(client: Any, method: str, **params: Any) -> Any:
    found = client.answer(client.ask(method, _meta=KNOWS, **params))
    return found.get("result", found.get("error"))


def until(client: Any, id: str, *statuses: str) -> Any:
    for _ in range(600):
        found = ask(client, "tasks/get", taskId=id)
        if found["status"] in statuses:
            return found
        client.process.poll()
    raise AssertionError(found)


@pytest.fixture
def asking(world: Any) -> Any:
    """A workspace in which each write asks."""
    world.write("packhost.yaml", SETTINGS)
    world.accept()
    return world


def begun(asking: Any, client: Any) -> tuple[str, str]:
    """The task of a write that waits for a person elsewhere, and the approval's id."""
    made = ask(client, "tools/call", name="workspace_write_file", arguments=WRITE)
    assert (made["resultType"], made["status"]) == ("task", "working")
    (waiting,) = asking.json("approvals", "list")["approvals"]
    assert waiting["id"] in made["statusMessage"]
    return made["taskId"], waiting["id"]


def approve(asking: Any, id: str) -> None:
    """What a person does at a terminal of their own."""
    command = [*asking.command, "approvals", "approve", id, "-w", str(asking.root)]
    with Screen(command, asking.root, asking.env) as terminal:
        terminal.see("Approve?")
        terminal.press("yes\r")
        terminal.see("is approved")
        assert terminal.end() == 0


def test_a_task_hears_what_was_decided_elsewhere(asking: Any) -> None:
    client = asking.raw("auto").start()
    task, approval = begun(asking, client)
    asking.run("approvals", "deny", approval, "--reason", "not now")
    ended = until(client, task, "completed")
    assert ended["result"]["isError"] is True
    assert "not now" in json.dumps(ended["result"])
    assert not (asking.root / "src/a.txt").exists()


def test_a_task_outlives_the_host_that_had_it(asking: Any) -> None:
    first = asking.raw("auto").start()
    client = asking.raw("auto").start()
    task, approval = begun(asking, client)
    first.kill()
    assert until(client, task, "working")["taskId"] == task
    approve(asking, approval)
    ended = until(client, task, "completed")
    assert not ended["result"].get("isError"), ended
    assert (asking.root / "src/a.txt").read_text() == "hello\n"
    asked = asking.json("approvals", "list", "--all")["approvals"]
    assert [(one["id"], one["status"]) for one in asked] == [(approval, "approved")]


def test_what_came_of_a_task_is_told_by_the_next_host(asking: Any) -> None:
    first = asking.raw("auto").start()
    client = asking.raw("auto").start()
    task, approval = begun(asking, client)
    approve(asking, approval)
    told = until(client, task, "completed")
    first.kill()
    again = ask(client, "tasks/get", taskId=task)
    assert again["result"]["content"] == told["result"]["content"]
