"""What happens when something dies, lies or never answers: a clear word, nothing lost, the server lives."""

from __future__ import annotations

import json
import os
import signal
import subprocess

import anyio
import pytest
from mcp import Client

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

ASKED = """
packhost: 1
bound: [path read **, path write src/**, path write .agent-runtime/**]
policy:
  - {match: {tool: "workspace:write_file"}, decide: ask, reason: look}
"""
SCRIPT = """
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
TURN = {"messages": [{"role": "user", "content": "go"}], "loop": True}


async def until(check):
    """Poll something that another process does; bounded by the caller."""
    while not (found := check()):
        await anyio.sleep(0.05)
    return found


async def test_two_hosts_on_one_workspace_share_one_gate_and_its_approvals(world, dialog):
    world.write("packhost.yaml", ASKED)
    world.accept()
    first, second = dialog("accept"), dialog("accept")
    async with world.client("auto", first) as one, world.client("legacy", second) as two:
        for client, name in ((one, "a"), (two, "b")):
            result = await client.call_tool("workspace_write_file", {"path": f"src/{name}", "content": name})
            assert not result.is_error
    assert len(first.shown) == len(second.shown) == 1
    assert {path.name for path in (world.root / "src").iterdir()} == {"a", "b"}


async def test_the_command_line_decides_what_a_client_without_dialogs_waits_for(world, era):
    world.write("packhost.yaml", ASKED)
    world.accept()
    async with world.client(era) as client:
        outcome = {}
        with anyio.fail_after(40):
            async with anyio.create_task_group() as group:

                async def call():
                    outcome["result"] = await client.call_tool(
                        "workspace_write_file", {"path": "src/a", "content": "x"}
                    )

                group.start_soon(call)

                def pending():
                    return world.json("approvals", "list")["approvals"]

                (asked,) = await until(lambda: pending())
                await anyio.to_thread.run_sync(lambda: world.run("approvals", "deny", asked["id"]))
    assert outcome["result"].meta["packhost/refusal"]["code"] == "APPROVAL_DENIED"


async def test_garbage_on_stdin_is_answered_and_the_server_lives(world):
    process = subprocess.Popen(
        [*world.command, "serve", "-w", str(world.root)],
        env=world.env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    hello = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "t", "version": "1"},
        },
    }
    lines = [
        b"not json",
        b"\xff\xfe\x00",
        b"[]",
        b'{"jsonrpc": "1.0"}',
        b"{" * 5000,
        json.dumps(hello).encode(),
    ]
    out, _ = process.communicate(b"\n".join(lines) + b"\n", timeout=30)
    replies = [json.loads(line) for line in out.splitlines()]
    assert any(reply.get("id") == 1 and "result" in reply for reply in replies)
    assert process.returncode == 0


async def test_a_client_killed_while_a_person_is_asked_leaves_the_question_open(world):
    world.write("packhost.yaml", ASKED)
    world.accept()
    url = world.serve_http()
    script = (
        "import anyio, sys\nfrom mcp import Client\n"
        "async def never(context, params):\n    print('asked', flush=True)\n    await anyio.sleep_forever()\n"
        "async def main():\n"
        "    async with Client(sys.argv[1], mode='legacy', elicitation_callback=never) as client:\n"
        "        await client.call_tool('workspace_write_file', {'path': 'src/a', 'content': 'x'})\n"
        "anyio.run(main)\n"
    )
    client = subprocess.Popen(
        [world.command[0], "-c", script, f"{url}/mcp"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert client.stdout is not None
    assert client.stdout.readline() == b"asked\n"
    client.send_signal(signal.SIGKILL)
    client.wait()
    client.stdout.close()
    assert [row["status"] for row in world.json("approvals", "list")["approvals"]] == ["pending"]
    async with Client(f"{url}/mcp") as other:
        assert (await other.call_tool("workspace_list_directory", {})).is_error is not True
    assert not (world.root / "src").exists()


async def test_a_run_whose_host_is_killed_is_interrupted_and_goes_on_with_the_next(world):
    world.write("packhost.yaml", ASKED + SCRIPT)
    world.accept()
    url = world.serve_http()
    async with Client(f"{url}/mcp") as client:
        started = await client.call_tool("agent-runtime_execute-turn", {**TURN, "background": True})
        run_id = started.structured_content["run_id"]
        with anyio.fail_after(20):
            await until(lambda: world.json("approvals", "list")["approvals"])
    world.kill_servers()
    assert world.json("audit", "verify")["ok"] is True
    shown = world.json("runs", "show", run_id)
    assert shown["status"] == "interrupted"
    world.serve_http()
    with anyio.fail_after(20):
        await until(lambda: world.json("runs", "show", run_id)["status"] == "running")
        await until(lambda: world.json("approvals", "list", "--status", "pending")["approvals"])
    world.run("runs", "abort", run_id)
    assert world.json("runs", "show", run_id)["status"] == "aborted"


async def test_a_turn_runs_governed_calls_and_asks_through_the_clients_dialog(world, dialog, connect):
    world.write("packhost.yaml", ASKED + SCRIPT)
    world.accept()
    asked = dialog("accept")
    async with connect(asked) as client:
        result = await client.call_tool("agent-runtime_execute-turn", TURN)
    assert result.structured_content["outcome"] == "completed"
    assert result.structured_content["text"] == "done"
    assert (world.root / "src" / "a.txt").read_text() == "hi"
    assert len(asked.shown) == 1


async def test_a_run_is_paused_resumed_and_aborted_from_the_command_line_while_it_goes_on(world):
    world.write("packhost.yaml", ASKED + SCRIPT)
    world.accept()
    async with world.client() as client:
        started = await client.call_tool("agent-runtime_execute-turn", {**TURN, "background": True})
        run_id = started.structured_content["run_id"]
        with anyio.fail_after(60):
            await until(lambda: world.json("approvals", "list")["approvals"])
            await anyio.to_thread.run_sync(lambda: world.run("runs", "pause", run_id, "--reason", "lunch"))
            (asked,) = world.json("approvals", "list", "--status", "pending")["approvals"]
            await anyio.to_thread.run_sync(lambda: world.run("approvals", "deny", asked["id"]))
            await until(lambda: world.json("runs", "show", run_id)["status"] == "paused")
            refused = await client.call_tool("agent-runtime_resume_workflow", {"run_id": run_id})
            assert refused.meta["packhost/refusal"]["code"] == "APPROVAL_REQUIRED"
            await anyio.to_thread.run_sync(lambda: world.run("runs", "resume", run_id))
            await until(lambda: world.json("runs", "show", run_id)["status"] == "completed")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
async def test_another_users_process_is_not_served_over_http(world):
    url = world.serve_http()
    script = (
        "import sys, urllib.request as u, urllib.error as e\n"
        "try: u.urlopen(sys.argv[1]); print(200)\n"
        "except e.HTTPError as x: print(x.code)"
    )

    def other() -> None:
        os.setgid(65534)
        os.setuid(65534)

    seen = subprocess.run(
        [
            "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else world.command[0],
            "-c",
            script,
            f"{url}/mcp",
        ],
        preexec_fn=other,
        capture_output=True,
        text=True,
        cwd="/",
        timeout=30,
    )
    assert seen.stdout.strip() == "401", seen.stderr
