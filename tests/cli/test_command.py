"""The command as people and clients start it: processes, a real terminal, shells."""

from __future__ import annotations

import json
import os
import pty
import select
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

PATIENCE = 60.0


@pytest.fixture
def command() -> list[str]:
    """The command of this installation."""
    return [sys.executable, "-P", "-m", "packhost"]


def test_the_demo_holds(command: list[str], empty: Path) -> None:
    done = subprocess.run([*command, "demo"], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("✓") == 6
    assert "\x1b" not in done.stdout
    assert done.stderr == ""


def test_a_call_at_a_real_terminal_is_answered_there_and_not_by_its_input(
    command: list[str], workspace: Path
) -> None:
    master, slave = pty.openpty()
    # The first terminal that the leader of a new session opens is its `/dev/tty`.
    starter = ["sh", "-c", f'exec "$@" 3<>{os.ttyname(slave)}', "sh"]
    words = ["call", "workspace:write_file", '{"path": "src/a.txt", "content": "hello"}', "--json"]
    caller = subprocess.Popen(
        [*starter, *command, *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    assert caller.stdin is not None
    caller.stdin.write(b"no\n")
    caller.stdin.flush()
    seen = b""
    while b"Approve?" not in seen:
        assert select.select([master], [], [], PATIENCE)[0], "nothing was asked"
        seen += os.read(master, 4096)
    os.write(master, b"yes\n")
    out, err = caller.communicate(timeout=PATIENCE)
    os.close(slave)
    os.close(master)
    assert caller.returncode == 0, err.decode()
    assert json.loads(out)["status"] == "completed"
    assert (workspace / "src/a.txt").read_text() == "hello"


def test_a_command_asks_the_host_that_holds_the_workspace(
    command: list[str], workspace: Path, packhost: Callable[..., Any]
) -> None:
    host = subprocess.Popen(
        [*command, "serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert host.stdin is not None
    assert host.stdout is not None
    try:
        greeting = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "initialize",
            "params": {
                "protocolVersion": "2025-11-25",
                "capabilities": {},
                "clientInfo": {"name": "a-test", "version": "1"},
            },
        }
        host.stdin.write(json.dumps(greeting).encode() + b"\n")
        host.stdin.flush()
        assert b"serverInfo" in host.stdout.readline()
        checks = {check["check"]: check["text"] for check in packhost("doctor", "--json").json["checks"]}
        assert f"process {host.pid} " in checks["host"]
        ran = packhost("call", "workspace:read_file", '{"path": "README.md"}', "--json")
        assert ran.json["value"]["content"] == "# A project\n"
        ran = packhost("call", "workspace:write_file", '{"path": "docs/a", "content": ""}', "--json")
        assert (ran.status, ran.json["refusal"]["code"]) == (3, "SCOPE_DENIED")
        ran = packhost("approvals", "show", "ap_none", "--json")
        assert (ran.status, ran.json["error"]["code"]) == (2, "NOT_FOUND")
    finally:
        host.stdin.close()
        host.wait(PATIENCE)
        host.stdout.close()
    assert host.returncode == 0


def test_a_reader_that_goes_away_is_told_nothing(
    command: list[str], workspace: Path, packhost: Callable[..., Any]
) -> None:
    packhost("call", "workspace:read_file", '{"path": "README.md"}')
    export = f"{shlex.join(command)} audit export | true"
    done = subprocess.run(["bash", "-c", export], capture_output=True, text=True, timeout=PATIENCE)
    assert (done.stdout, done.stderr) == ("", "")


@pytest.mark.parametrize(
    ("shell", "mark"),
    [
        ("bash", "complete -o"),
        ("zsh", "#compdef packhost"),
        ("fish", "complete --no-files --command packhost"),
    ],
)
def test_a_shell_gets_its_completion(shell: str, mark: str, packhost: Callable[..., Any]) -> None:
    ran = packhost("completion", shell)
    assert ran.status == 0
    assert mark in ran.out
    assert "_PACKHOST_COMPLETE" in ran.out


def test_a_shell_completes_commands_without_starting_a_host(command: list[str], empty: Path) -> None:
    environment = {
        **os.environ,
        "_PACKHOST_COMPLETE": "bash_complete",
        "COMP_WORDS": "packhost ap",
        "COMP_CWORD": "1",
    }
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE)
    assert done.stdout == "plain,approvals\n"
