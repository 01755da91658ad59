"""The API as a tool that nobody here wrote sees it, from nothing but its OpenAPI document."""

from __future__ import annotations

import json
import os
import subprocess
import urllib.request
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.real
SETTINGS = """\
packhost: 1
packs: [agent-runtime, workspace]
bound:
  - path read **
  - path write notes/**
  - path write .agent-runtime/**
policy:
  - match: {tool: "workspace:write_file"}
    decide: ask
agent_runtime:
  default_model: main
  models:
    main: {provider: scripted, script: [{text: Hello.}]}
"""


@pytest.fixture(scope="session")
def judges() -> Path:
    """The folder of programs that judge an API; without it a test fails in CI, else is skipped."""
    folder = Path(os.environ.get("PACKHOST_REAL", "~/.cache/packhost-real")).expanduser() / "api" / "bin"
    if not (folder / "schemathesis").exists():
        say = pytest.fail if os.environ.get("PACKHOST_REQUIRE_REAL") == "1" else pytest.skip
        say(f"{folder} lacks schemathesis: run tests/real/install.sh")
    return folder


def test_the_document_is_valid_openapi(workspace: Any, judges: Path, tmp_path: Path) -> None:
    with workspace.http() as entry:
        url = entry["url"].replace("/mcp", "/v1/openapi.json")
        with urllib.request.urlopen(url, timeout=10) as answer:
            path = tmp_path / "openapi.json"
            path.write_bytes(answer.read())
    done = subprocess.run(
        [judges / "openapi-spec-validator", "--errors", "all", path],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("role", ["operator", "caller"])
def test_generated_requests_find_no_answer_that_the_document_does_not_know(
    workspace: Any, judges: Path, tmp_path: Path, role: str
) -> None:
    workspace.accept(SETTINGS)
    token = json.loads(workspace.run("tokens", "new", "--role", role, "--json"))["token"]
    with workspace.http() as entry:
        base = entry["url"].removesuffix("/mcp")
        done = subprocess.run(
            [
                judges / "schemathesis",
                "run",
                f"{base}/v1/openapi.json",
                *("--url", base, "-H", f"Authorization: Bearer {token}"),
                *("--max-examples", "10", "--seed", "1", "--no-color"),
                # cursors are opaque, and what a run may be is the tool's own schema to say
                *("--exclude-checks", "positive_data_acceptance"),
            ],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=600,
        )
    assert done.returncode == 0, done.stdout[-6_000:] + done.stderr[-2_000:]
