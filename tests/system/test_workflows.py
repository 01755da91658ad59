"""A workflow in a real host: started by a client, woken after a restart, and by no passing command."""

from __future__ import annotations

import json
from typing import Any

import anyio
import pytest
from mcp import Client

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

CONFIG = """
packhost: 1
agent_runtime:
  default_model: demo
  models:
    demo: {provider: scripted, script: [{text: done}]}
  flows:
    late:
      nodes:
        - {id: first, prompt: go}
        - {id: second, prompt: "{{first.text}}", depends_on: [first], wake_at: +500ms}
"""


async def result(client: Client, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
    called = await client.call_tool(f"agent-runtime_{tool}", arguments)
    assert not called.is_error, called.content
    return dict(json.loads(called.content[0].text))  # type: ignore[union-attr]


async def test_a_workflow_that_is_due_is_woken_by_the_next_host_and_by_no_single_command(world: Any) -> None:
    world.write("packhost.yaml", CONFIG)
    world.accept()
    url = world.serve_http()
    async with Client(f"{url}/mcp") as client:
        started = await result(client, "execute-turn", {"workflow": "late"})
        assert (started["outcome"], started["waiting_on"][:5]) == ("paused", "time:")
    world.kill_servers()
    run_id = started["run_id"]
    await anyio.sleep(0.6)
    assert world.json("runs", "show", run_id)["status"] == "paused"
    url = world.serve_http()
    async with Client(f"{url}/mcp") as client:
        with anyio.fail_after(20):
            while True:
                if world.json("runs", "show", run_id)["status"] == "completed":
                    break
        ended = await result(client, "resume_workflow", {"run_id": run_id, "export": True})
    assert (ended["outcome"], ended["turns"]) == ("completed", 2)
    assert json.loads((world.root / ended["exported"]).read_text())["text"] == "done"
