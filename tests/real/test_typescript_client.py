"""The TypeScript client checks structured content even on errors: a refusal must get past it whole."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.real


def call(parts: Path, server: dict[str, Any], tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """One call by the TypeScript client: what it delivered, or the error that it raised instead."""
    job = json.dumps({"server": server, "tool": tool, "arguments": arguments})
    script = Path(__file__).parent / "refused_call.mjs"
    done = subprocess.run(
        [parts / "bin/node", script, parts / "npm", job],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    delivered: dict[str, Any] = json.loads(done.stdout)
    return delivered


@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_a_refused_call_reaches_the_typescript_client_as_an_error_result(
    parts: Path, workspace: Any, transport: str
) -> None:
    outside = {"path": "elsewhere/out.txt", "content": "no"}
    with workspace.over(transport) as server:
        delivered = call(parts, server, "workspace_write_file", outside)

    assert delivered["declared"], "without an output schema the client has nothing to check"
    assert "error" not in delivered
    result = delivered["result"]
    assert result["isError"] is True
    assert "structuredContent" not in result
    text = "\n".join(block["text"] for block in result["content"])
    sentence, _, last = text.rpartition("\n")
    refusal = json.loads(last)
    assert sentence.strip()
    assert refusal["code"] == "SCOPE_DENIED"
    assert result["_meta"]["packhost/refusal"]["code"] == "SCOPE_DENIED"
    assert not (workspace.root / "elsewhere").exists()
