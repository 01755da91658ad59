"""Tasks of a real host: they outlive it, and run what was approved once."""

from __future__ import annotations

import json
from typing import Any

import pytest

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
KNOWS = {
    "io.modelcontextprotocol/clientCapabilities": {
        "elicitation": {"form": {}},
        "extensions": {"io.modelcontextprotocol/tasks": {}},
    }
}
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


def test_a_task_is_approved_at_the_command_line_too(asking: Any) -> None:
    client = asking.raw("auto").start()
    made = ask(client, "tools/call", name="workspace_write_file", arguments=WRITE)
    assert (made["resultType"], made["status"]) == ("task", "input_required")
    (key,) = ask(client, "tasks/get", taskId=made["taskId"])["inputRequests"]
    asking.run("approvals", "deny", key, "--reason", "not now")
    ended = until(client, made["taskId"], "completed")
    assert ended["result"]["isError"] is True
    assert "not now" in json.dumps(ended["result"])
    assert not (asking.root / "src/a.txt").exists()


def test_a_task_outlives_the_host_that_had_it(asking: Any) -> None:
    first = asking.raw("auto").start()
    client = asking.raw("auto").start()
    made = ask(client, "tools/call", name="workspace_write_file", arguments=WRITE)
    (before,) = ask(client, "tasks/get", taskId=made["taskId"])["inputRequests"]
    first.kill()
    (after,) = until(client, made["taskId"], "input_required")["inputRequests"]
    assert after == before
    answers = {after: {"action": "accept"}}
    ask(client, "tasks/update", taskId=made["taskId"], inputResponses=answers)
    ended = until(client, made["taskId"], "completed")
    assert not ended["result"].get("isError"), ended
    assert (asking.root / "src/a.txt").read_text() == "hello\n"
    asked = asking.json("approvals", "list", "--all")["approvals"]
    assert [(one["id"], one["status"], one["decided_channel"]) for one in asked] == [
        (before, "approved", "client")
    ]


def test_what_came_of_a_task_is_told_by_the_next_host(asking: Any) -> None:
    first = asking.raw("auto").start()
    client = asking.raw("auto").start()
    made = ask(client, "tools/call", name="workspace_write_file", arguments=WRITE)
    (key,) = ask(client, "tasks/get", taskId=made["taskId"])["inputRequests"]
    ask(client, "tasks/update", taskId=made["taskId"], inputResponses={key: {"action": "accept"}})
    told = until(client, made["taskId"], "completed")
    first.kill()
    again = ask(client, "tasks/get", taskId=made["taskId"])
    assert again["result"]["content"] == told["result"]["content"]
