"""Approvals between real processes: an agent's client, the host, and a person at another terminal."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import termios
import threading
from typing import Any

import anyio
import pytest

pytestmark = [pytest.mark.anyio, pytest.mark.slow]
PASSPHRASE = "correct horse"
WRITE: tuple[str, dict[str, Any]] = ("workspace_write_file", {"path": "src/a.txt", "content": "hello\n"})
SETTINGS = """\
packhost: 1
packs: [agent-runtime, workspace]
bound: [path read **, path write src/**, path write .agent-runtime/**]
policy:
  - match: {tool: "workspace:write_file"}
    decide: ask
    reason: writes are the operator's
    assurance: operator
approvals: {hold: 1s}
"""


def code_of(result: Any) -> str:
    assert result.is_error
    return str(result.meta["packhost/refusal"]["code"])


def at_a_terminal(world: Any, arguments: tuple[str, ...], answers: list[tuple[str, str]]) -> int:
    """Run a command whose controlling terminal is a person's, who answers what is asked; its exit code."""
    master, slave = pty.openpty()
    attributes = termios.tcgetattr(slave)
    attributes[3] &= ~termios.ECHO
    termios.tcsetattr(slave, termios.TCSANOW, attributes)
    process = subprocess.Popen(
        [*world.command, *arguments, "-w", str(world.root)],
        env=world.env,
        cwd=world.root,
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
        preexec_fn=lambda: __import__("fcntl").ioctl(0, termios.TIOCSCTTY, 0),
    )
    os.close(slave)
    left, seen = list(answers), ""

    def sit() -> None:
        nonlocal seen
        while process.poll() is None:
            if not select.select([master], [], [], 0.05)[0]:
                continue
            try:
                seen += os.read(master, 4096).decode("utf-8", "replace")
            except OSError:
                return
            while left and left[0][0] in seen:
                expected, answer = left.pop(0)
                seen = seen.split(expected, 1)[1]
                os.write(master, answer.encode())

    thread = threading.Thread(target=sit, daemon=True)
    thread.start()
    status = process.wait(timeout=40)
    thread.join(5)
    os.close(master)
    assert not left, seen
    return status


@pytest.fixture
def ready(world: Any) -> Any:
    """A workspace whose writes need the operator, who is set up."""
    (world.root / "src").mkdir()
    world.write("packhost.yaml", SETTINGS)
    world.accept()
    answers = [("A passphrase", f"{PASSPHRASE}\n"), ("once more", f"{PASSPHRASE}\n")]
    assert at_a_terminal(world, ("operator", "set"), answers) == 0
    return world


async def approve(world: Any, approval: str, passphrase: str = PASSPHRASE) -> int:
    answers = [("Approve?", "yes\n"), ("passphrase", f"{passphrase}\n")]
    return await anyio.to_thread.run_sync(at_a_terminal, world, ("approvals", "approve", approval), answers)


@pytest.mark.parametrize("era", ["auto", "legacy"])
async def test_a_dialog_points_to_the_terminal_and_the_passphrase_there_lets_the_call_run(
    ready: Any, dialog: Any, era: str
) -> None:
    person = dialog("accept")
    async with ready.client(era, person) as client:
        result = await client.call_tool(*WRITE)
        assert code_of(result) == "APPROVAL_REQUIRED"
        assert "No dialog can give that" in person.shown[0]
        approval = result.meta["packhost/refusal"]["approval_id"]
        assert not (ready.root / "src/a.txt").exists()
        assert await approve(ready, approval) == 0
        result = await client.call_tool(*WRITE)
        assert not result.is_error
    assert (ready.root / "src/a.txt").read_text() == "hello\n"
    assert ready.json("audit", "verify")["ok"] is True


async def test_what_an_agent_can_reach_gives_it_no_approval(ready: Any, dialog: Any) -> None:
    """Each way that leads from the agent's side to an answer, tried with a dialog that always accepts."""
    person = dialog(*["accept"] * 12)
    async with ready.client("auto", person) as client:
        approval = (await client.call_tool(*WRITE)).meta["packhost/refusal"]["approval_id"]
        inflight = {"approval_id": approval, "decision": "approve", "reason": "it is fine"}
        assert (
            code_of(await client.call_tool("agent-runtime_approve_inflight", inflight)) == "APPROVAL_REQUIRED"
        )
        raised = await client.call_tool(
            "agent-runtime_elevate_autonomy", {"level": "autonomous", "reason": "it is quicker"}
        )
        assert not raised.is_error
        assert code_of(await client.call_tool(*WRITE)) == "APPROVAL_REQUIRED"
        async with ready.client("legacy", dialog(*["accept"] * 4)) as other:
            assert code_of(await other.call_tool(*WRITE)) == "APPROVAL_REQUIRED"
    # a shell of the agent's, with no person at a terminal
    for command in (("approvals", "approve", approval), ("grants", "accept", "gp_x"), ("operator", "remove")):
        assert ready.run(*command, code=None).returncode != 0
    assert not (ready.root / "src/a.txt").exists()
    assert ready.json("approvals", "show", approval)["status"] == "pending"
    assert ready.json("grants", "list", "--all")["grants"] == []


async def test_a_process_that_speaks_to_the_host_itself_approves_nothing_without_the_key(ready: Any) -> None:
    script = (
        "import anyio, sys\n"
        "from pathlib import Path\n"
        "from packhost.app import open_control\n"
        "from packhost.errors import PackhostError\n"
        "async def main():\n"
        "    async with open_control(Path(sys.argv[1])) as control:\n"
        "        for params in ({}, {'signed': {'at': 1.0, 'signature': '00'}}, {'channel': 'client'}):\n"
        "            try:\n"
        "                await control.request('approvals.decide',"
        " {'id': sys.argv[2], 'verdict': 'approve', **params})\n"
        "            except PackhostError as error:\n"
        "                print(error.code)\n"
        "anyio.run(main)\n"
    )
    async with ready.client() as client:
        approval = (await client.call_tool(*WRITE)).meta["packhost/refusal"]["approval_id"]
        done = await anyio.run_process(
            [ready.command[0], "-c", script, str(ready.root), approval], env=ready.env, check=True
        )
    assert done.stdout.split() == [b"APPROVAL_MODE_UNSUPPORTED"] * 3
