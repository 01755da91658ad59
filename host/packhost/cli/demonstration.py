"""The story that `packhost demo` tells, each of its steps checked."""

from __future__ import annotations

import json
import os
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import anyio
import click
from mcp import Client, StdioServerParameters, types
from mcp.client import ClientRequestContext, Transport
from mcp.client.stdio import stdio_client

from packhost.cli.run import innermost
from packhost.workspace.root import CONFIG_FILE, Root
from packhost.workspace.workspace import Workspace

_SETTINGS: Final = """\
packhost: 1
packs: [agent-runtime, workspace]
bound:
  - path read **
  - path write src/**
  - path write .agent-runtime/**
policy:
  - match: {pack: workspace, permission: write}
    decide: ask
    reason: writes are looked at first
agent_runtime:
  default_model: script
  models:
    script:
      provider: scripted
      script:
        - text: I read what there is first.
          tool_calls: [{id: c1, name: workspace_read_file, arguments: {path: src/greeting.txt}}]
        - text: Now I add a line.
          tool_calls:
            - id: c2
              name: workspace_write_file
              arguments: {path: src/greeting.txt, content: "Good morning.\\nHow are you?\\n"}
        - text: The greeting asks how you are now.
"""
_README: Final = "# A small project\n"
_BEFORE: Final = "Hello.\n"
_APPROVED: Final = "Good morning.\n"
_AFTER_TURN: Final = "Good morning.\nHow are you?\n"
_WRITE: Final = "workspace_write_file"
_FORGETTABLE: Final = ("CLAUDECODE", "CURSOR_AGENT", "PYTHONPATH")
"""Variables of the caller's that have no meaning for the host of the demonstration."""


class DemoFailed(Exception):
    """A step did not come out as it must."""


class Demonstration:
    """A workspace below `folder` with a state of its own, and the steps in it."""

    def __init__(self, folder: Path) -> None:
        self._project = folder / "project"
        self._log = folder / "host.log"
        self._environment = {
            **{name: value for name, value in os.environ.items() if name not in _FORGETTABLE},
            "XDG_STATE_HOME": str(folder / "state"),
        }
        self._answers = 0

    async def play(self) -> None:
        """Tell the whole story; raises `DemoFailed` at the first step that does not hold."""
        self._prepare()
        click.echo(f"A workspace in {self._project}, whose packhost.yaml says:")
        click.echo("  read anything · write below src/ only, each write asked first\n")
        try:
            with self._log.open("w", encoding="utf-8") as log:
                await self._steps(stdio_client(self._parameters(), errlog=log))
        except Exception as error:
            found = innermost(error)
            if isinstance(found, DemoFailed):
                raise found from None
            raise DemoFailed(f"the connection broke: {found}\nThe host said:\n{self._said()}") from None
        click.echo("\nEvery step held. `packhost init` sets up a workspace of your own.")

    async def _steps(self, transport: Transport) -> None:
        me = types.Implementation(name="packhost-demo", version=version("packhost"))
        async with Client(transport, client_info=me, elicitation_callback=self._answer) as client:
            await self._listing(client)
            await self._allowed(client)
            await self._refused(client)
            await self._approved(client)
            await self._turn(client)
            await self._record()

    def _said(self) -> str:
        return "\n".join(self._log.read_text(encoding="utf-8", errors="replace").splitlines()[-10:])

    def _prepare(self) -> None:
        (self._project / "src").mkdir(parents=True)
        (self._project / "README.md").write_text(_README, encoding="utf-8")
        (self._project / "src/greeting.txt").write_text(_BEFORE, encoding="utf-8")
        (self._project / CONFIG_FILE).write_text(_SETTINGS, encoding="utf-8")
        with Root(self._project, self._environment) as root:
            Workspace(root).accept(by="demo", channel="init")

    def _command(self, *words: str) -> list[str]:
        # -P: what lies in the working directory is no module of ours.
        return [sys.executable, "-P", "-m", "packhost", *words, "-w", str(self._project)]

    def _parameters(self) -> StdioServerParameters:
        command, *arguments = self._command("serve")
        return StdioServerParameters(
            command=command, args=arguments, env=self._environment, cwd=self._project
        )

    async def _answer(
        self, context: ClientRequestContext, params: types.ElicitRequestParams
    ) -> types.ElicitResult:
        """A person at the client's dialog, who reads it and agrees."""
        self._answers += 1
        click.echo(click.style("  ┌ the person is asked", fg="cyan"))
        for line in params.message.splitlines():
            click.echo(f"{click.style('  │', fg='cyan')} {line}")
        click.echo(click.style("  └ and accepts", fg="cyan"))
        return types.ElicitResult(action="accept", content={})

    async def _listing(self, client: Client) -> None:
        names = [tool.name for tool in (await client.list_tools()).tools]
        _hold(_WRITE in names and "agent-runtime_execute-turn" in names, f"tools are missing: {names}")
        _done(f"A client connected over stdio and sees {len(names)} governed tools.")

    async def _allowed(self, client: Client) -> None:
        result = await client.call_tool("workspace_read_file", {"path": "README.md"})
        content = (result.structured_content or {}).get("content")
        _hold(not result.is_error and content == _README, f"the read failed: {_text(result)}")
        _done("An allowed call: it read README.md, nobody was asked.")

    async def _refused(self, client: Client) -> None:
        result = await client.call_tool(_WRITE, {"path": "deploy/run.sh", "content": "rm -rf /\n"})
        refusal = (result.meta or {}).get("packhost/refusal", {})
        _hold(
            bool(result.is_error) and refusal.get("code") == "SCOPE_DENIED", f"not refused: {_text(result)}"
        )
        _hold(not (self._project / "deploy").exists(), "a refused call left something behind")
        _done("A refused call: it tried to write deploy/run.sh, and was told why:")
        click.echo(f"    {refusal['code']}: {refusal['message']}")
        click.echo(f"    next: {refusal['next']}")

    async def _approved(self, client: Client) -> None:
        asked = self._answers
        click.echo("  … the agent wants to write src/greeting.txt")
        result = await client.call_tool(_WRITE, {"path": "src/greeting.txt", "content": _APPROVED})
        _hold(not result.is_error, f"the approved call failed: {_text(result)}")
        _hold(self._answers == asked + 1, f"the person was asked {self._answers - asked} times, not once")
        self._hold_greeting(_APPROVED)
        _done("An approved call: the person saw the diff, agreed, and it ran once.")

    async def _turn(self, client: Client) -> None:
        asked = self._answers
        click.echo("  … the agent runs a whole turn: a scripted model asks for two governed tools")
        message = {"role": "user", "content": "Let the greeting ask how people are."}
        arguments = {"messages": [message], "loop": True}
        result = await client.call_tool("agent-runtime_execute-turn", arguments)
        turn = result.structured_content or {}
        _hold(not result.is_error and turn.get("outcome") == "completed", f"the turn failed: {_text(result)}")
        _hold(self._answers == asked + 1, f"the person was asked {self._answers - asked} times, not once")
        self._hold_greeting(_AFTER_TURN)
        run = await self._ask_host("runs", "show", turn["run_id"])
        calls = [(call["tool"], call["status"]) for call in run["calls"]]
        wanted = [("workspace:read_file", "ok"), ("workspace:write_file", "ok")]
        _hold(calls == wanted, f"the turn made other calls: {calls}")
        _done("An agent turn: it read, asked the person before it wrote, and said:")
        click.echo(f"    {turn['text']}")

    async def _record(self) -> None:
        found = await self._ask_host("audit", "verify")
        _hold(found["ok"] and found["events"] > 0, f"the audit chain does not hold: {found}")
        _done(f"The record: {found['events']} events, each bound to the one before by its hash; all hold.")

    def _hold_greeting(self, wanted: str) -> None:
        found = (self._project / "src/greeting.txt").read_text(encoding="utf-8")
        _hold(found == wanted, f"src/greeting.txt holds {found!r}, not {wanted!r}")

    async def _ask_host(self, *words: str) -> Any:
        """What another `packhost` process answers, which asks the running host through its socket."""
        done = await anyio.run_process(
            self._command(*words, "--json"), env=self._environment, cwd=self._project, check=False
        )
        _hold(done.returncode == 0, f"`packhost {' '.join(words)}` failed: {done.stderr.decode()}")
        return json.loads(done.stdout)


def _hold(held: bool, otherwise: str) -> None:
    if not held:
        raise DemoFailed(otherwise)


def _done(sentence: str) -> None:
    click.echo(f"{click.style('✓', fg='green', bold=True)} {sentence}")


def _text(result: types.CallToolResult) -> str:
    return " ".join(block.text for block in result.content if isinstance(block, types.TextContent))[:500]
