"""The command starts fast, its help is whole, and each command is where the help says."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click
import pytest

from packhost.app.configuring import present
from packhost.cli.root import COMMANDS
from packhost.cli.root import packhost as root

HEAVY = ("anyio", "mcp", "pydantic", "rich", "yaml", "asyncio", "packhost.app", "importlib.metadata")


def runnable(
    command: click.Command, path: tuple[str, ...] = ()
) -> list[tuple[tuple[str, ...], click.Command]]:
    if not isinstance(command, click.Group):
        return [(path, command)]
    context = click.Context(command)
    found = [(name, command.get_command(context, name)) for name in command.list_commands(context)]
    return [one for name, inner in found if inner for one in runnable(inner, (*path, name))]


EVERY = runnable(root)


def test_the_help_is_shown_without_importing_anything_heavy() -> None:
    program = (
        "import sys; from packhost.cli.run import run; status = run(['--help']);"
        f"print(status, [name for name in {HEAVY!r} if name in sys.modules])"
    )
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert shown.splitlines()[-1] == "0 []"


def test_serve_imports_nothing_that_only_people_or_http_need() -> None:
    program = (
        "import sys, packhost.cli.serve;"
        "print([name for name in ('rich', 'packhost.transports.http') if name in sys.modules])"
    )
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert shown == "[]\n"


def test_the_version_is_that_of_the_distribution(packhost: Callable[..., Any]) -> None:
    assert packhost("--version").out == f"packhost {version('packhost')}\n"


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_says_the_same_in_the_list_and_in_its_own_help(name: str) -> None:
    command = root.get_command(click.Context(root), name)
    assert command is not None
    assert command.name == name
    assert command.short_help == COMMANDS[name][1]


@pytest.mark.parametrize(("path", "command"), EVERY, ids=[" ".join(path) for path, _ in EVERY])
def test_every_command_has_help_with_examples_of_itself(
    path: tuple[str, ...], command: click.Command
) -> None:
    assert command.help
    assert f"packhost {' '.join(path)}" in (command.epilog or "")


@pytest.mark.parametrize(("path", "command"), EVERY, ids=[" ".join(path) for path, _ in EVERY])
def test_every_option_says_what_it_does(path: tuple[str, ...], command: click.Command) -> None:
    assert [
        option.name for option in command.params if isinstance(option, click.Option) and not option.help
    ] == []


def test_an_unknown_command_names_the_nearest(packhost: Callable[..., Any]) -> None:
    ran = packhost("tolls")
    assert ran.status == 2
    assert "tools" in ran.err


@pytest.mark.parametrize(("where", "told"), [("src/.venv", True), ("docs/.venv", False)])
def test_an_installation_that_tools_may_write_is_warned_of(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, where: str, told: bool
) -> None:
    monkeypatch.setattr(sys, "prefix", str(workspace / where))
    with present(workspace) as found:
        assert any("runs unbound" in warning for warning in found.configuration.warnings) is told
