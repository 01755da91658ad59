"""Codex, the real program, governed: its servers adopted, its shell switched off, all of it taken back."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from fake_responses_api import FakeResponsesApi, NamespacedCall

pytestmark = pytest.mark.real

OURS = "mcp__packhost"
CONFIG = """\
model = "scripted"   # by the test
model_provider = "fake"

[model_providers.fake]
name = "fake"
base_url = "URL"
wire_api = "responses"
env_key = "FAKE_KEY"

[mcp_servers.memory]
command = "BIN/mcp-server-memory"

[mcp_servers.memory.env]
MEMORY_FILE_PATH = "FOLDER/memory.json"
"""


class Person:
    """Somebody with Codex, a project and one server."""

    def __init__(self, parts: Path, folder: Path) -> None:
        self.root, self.home = folder / "project", folder / "home"
        self.root.mkdir()
        self.config = self.home / ".codex/config.toml"
        self.config.parent.mkdir(parents=True)
        (self.root / "hello.txt").write_text("the harbour opens at nine\n")
        self._codex = parts / "npm/node_modules/.bin/codex"
        self._environment = {
            "PATH": f"{parts / 'bin'}:{os.environ['PATH']}",
            "HOME": str(self.home),
            "FAKE_KEY": "not-a-key",
        }

    def configure(self, parts: Path, api: FakeResponsesApi) -> None:
        text = CONFIG.replace("URL", api.url).replace("BIN", str(parts / "npm/node_modules/.bin"))
        self.config.write_text(text.replace("FOLDER", str(self.root.parent)))

    def run(self, *command: str | Path, seconds: float = 90) -> str:
        """Runs a command here to its end; asserts that it succeeded."""
        done = subprocess.run(
            command,
            cwd=self.root,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds,
        )
        assert done.returncode == 0, f"{command} gave {done.returncode}: {done.stdout}{done.stderr}"
        return done.stdout

    def packhost(self, *words: str) -> str:
        return self.run(Path(sys.executable).parent / "packhost", *words)

    def codex(self) -> str:
        return self.run(self._codex, "exec", "--skip-git-repo-check", "go on")


def test_codex_is_governed_and_given_back(parts: Path, tmp_path: Path) -> None:
    person = Person(parts, tmp_path)
    calls = [
        NamespacedCall(OURS, "memory_read_graph"),
        NamespacedCall(OURS, "workspace_read_file", {"path": "hello.txt"}),
        NamespacedCall(OURS, "workspace_read_file", {"path": "../home/.codex/config.toml"}),
    ]
    with FakeResponsesApi(calls) as api:
        person.configure(parts, api)
        before = person.config.read_bytes()
        person.packhost("adopt", "--yes", str(person.config))
        person.packhost("connect", "codex", "--write", "--exclusive")
        person.codex()
        offered = api.offered
        person.packhost("connect", "codex", "--undo")
        person.packhost("adopt", "--undo")
    assert {"memory_read_graph", "workspace_read_file"} <= set(offered[OURS])
    assert not {"shell", "exec_command", "apply_patch", "mcp__memory"} & offered.keys()
    first, second, third = api.outputs
    assert "entities" in first
    assert "the harbour opens at nine" in second
    assert "SCOPE_DENIED" in third
    assert person.config.read_bytes() == before
