"""The page on adopting says what is so: its commands can be given, its manifest is what adopting writes."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest

from packhost.cli.root import packhost as root
from packhost.manifest.load import parse_manifest

PAGE = Path(__file__).parents[2] / "docs" / "adopt.md"
TEXT = PAGE.read_text()
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", TEXT, re.DOTALL)
COMMANDS = [line[2:] for kind, block in BLOCKS if kind == "console" for line in block.splitlines()]
SERVER = str(Path(__file__).parent.parent / "support" / "plain_server.py")
PATHS = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
TOOLS = [
    {"name": "read_note", "description": "Reads a note.", "inputSchema": PATHS},
    {"name": "writeNote", "description": "Writes a note.", "inputSchema": PATHS},
    {"name": "delete_all", "description": "Deletes every note.", "inputSchema": {"type": "object"}},
]


@pytest.mark.parametrize("line", COMMANDS)
def test_every_command_of_the_page_can_be_given(line: str) -> None:
    words = shlex.split(line)
    assert words.pop(0) == "packhost"
    command: click.Command = root
    context = click.Context(root, info_name="packhost")
    while isinstance(command, click.Group):
        found = command.get_command(context, words.pop(0))
        assert found is not None, line
        command = found
    assert command.make_context(line, words, parent=context).args == []


def test_the_manifest_of_the_page_is_sound() -> None:
    (block,) = [block for kind, block in BLOCKS if kind == "yaml"]
    loaded = parse_manifest(block.encode(), "page")
    assert [tool.permission for tool in loaded.manifest.tools] == ["read", "write", "admin"]


@pytest.mark.slow
def test_what_the_page_shows_is_what_adopting_says_and_writes(
    empty: Path, tmp_path: Path, packhost: Callable[..., Any]
) -> None:
    (tmp_path / "tools.json").write_text(json.dumps(TOOLS))
    entry = {"command": sys.executable, "args": [SERVER, str(tmp_path / "tools.json")]}
    (empty / ".mcp.json").write_text(json.dumps({"mcpServers": {"notes": entry}}))
    ran = packhost("adopt", "--yes")
    (said,) = [block for kind, block in BLOCKS if kind == "text"]
    assert said in ran.out
    (shown,) = [block for kind, block in BLOCKS if kind == "yaml"]
    written = (empty / ".packhost/notes/pack.yaml").read_text()
    ours = re.sub(r"upstream:.*?tools:", "tools:", written, flags=re.DOTALL)
    assert ours == re.sub(r"upstream:.*?tools:", "tools:", shown, flags=re.DOTALL)
