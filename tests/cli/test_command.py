"""The command as people and clients start it: processes, a real terminal, shells."""

from __future__ import annotations

import json
import os
import pty
import select
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

PATIENCE = 60.0
GREETING = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "a-test", "version": "1"},
    },
}
BACKGROUND = (
    "call",
    "agent-runtime:execute-turn",
    '{"messages": [{"role": "user", "content": "go"}], "loop": true, "background": true}',
)


@pytest.fixture
def command() -> list[str]:
    """The command of this installation."""
    return [sys.executable, "-P", "-m", "packhost"]


@pytest.mark.slow  # .ci/run plays it as well, as a reader would
def test_the_demo_holds(command: list[str], empty: Path) -> None:
    done = subprocess.run([*command, "demo"], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("✓") == 6
    assert "\x1b" not in done.stdout
    assert done.stderr == ""


@pytest.mark.slow
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


@pytest.fixture
def host(command: list[str], workspace: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A host of the workspace that a client has started over stdio."""
    with subprocess.Popen(
        [*command, "serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as running:
        assert running.stdin is not None
        assert running.stdout is not None
        running.stdin.write(json.dumps(GREETING).encode() + b"\n")
        running.stdin.flush()
        assert b"serverInfo" in running.stdout.readline()
        yield running
        running.stdin.close()
        running.wait(PATIENCE)


@pytest.mark.slow
def test_a_command_asks_the_host_that_holds_the_workspace(
    host: subprocess.Popen[bytes], packhost: Callable[..., Any]
) -> None:
    checks = {check["check"]: check["text"] for check in packhost("doctor", "--json").json["checks"]}
    assert f"process {host.pid} " in checks["host"]
    ran = packhost("call", "workspace:read_file", '{"path": "README.md"}', "--json")
    assert ran.json["value"]["content"] == "# A project\n"
    ran = packhost("call", "workspace:write_file", '{"path": "docs/a", "content": ""}', "--json")
    assert (ran.status, ran.json["refusal"]["code"]) == (3, "SCOPE_DENIED")
    ran = packhost("approvals", "show", "ap_none", "--json")
    assert (ran.status, ran.json["error"]["code"]) == (2, "NOT_FOUND")


@pytest.mark.slow
def test_a_run_is_steered_in_its_host_and_goes_on_here_when_that_is_gone(
    host: subprocess.Popen[bytes], workspace: Path, packhost: Callable[..., Any], person: Callable[..., Any]
) -> None:
    run = packhost(*BACKGROUND, "--json").json["value"]["run_id"]
    assert [one["id"] for one in packhost("runs", "list", "--json").json["runs"]] == [run]
    assert packhost("runs", "pause", run, "--reason", "let me look", "--json").json["pause_requested"] is True
    host.kill()
    host.wait(PATIENCE)
    assert packhost("runs", "show", run, "--json").json["status"] == "interrupted"
    person(("Approve?", "yes\n"))
    ran = packhost("runs", "resume", run, "--json")
    assert (ran.status, ran.json["status"], ran.json["outcome"]) == (0, "completed", "completed")
    assert (workspace / "src/turn.txt").read_text() == "turned"


@pytest.mark.slow
def test_a_run_is_ended_in_its_host(host: subprocess.Popen[bytes], packhost: Callable[..., Any]) -> None:
    run = packhost(*BACKGROUND, "--json").json["value"]["run_id"]
    packhost("runs", "abort", run, "--reason", "wrong branch")
    shown = packhost("runs", "show", run, "--json").json
    assert (shown["status"], shown["reason"]) == ("aborted", "wrong branch")


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


def test_as_a_module_it_runs_no_library_of_the_folder_that_it_is_started_in(tmp_path: Path) -> None:
    (tmp_path / "click.py").write_text("raise SystemExit('the module of the workspace ran')")
    command = [sys.executable, "-m", "packhost", "--version"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_an_error_of_usage_is_one_line(packhost: Callable[..., Any]) -> None:
    ran = packhost("completion")
    assert ran.status == 2
    assert "bash, zsh, fish" in ran.err.splitlines()[0]
