"""Many MCP sessions of one principal at once, in both eras: each call is answered, in bounded memory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parents[1] / "benchmarks" / "sessions.py"
MOST = 1_024
"""KiB of the host for one session."""


@pytest.mark.slow
def test_sessions_hold_at_once_with_little_memory_for_each() -> None:
    command = [sys.executable, str(BENCHMARK), "--sessions", "30", "--rounds", "1", "--json"]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
    found = json.loads(done.stdout)
    assert set(found) == {"sessions", "stateless"}
    for values in found.values():
        assert values["failed"] == 0
        assert values["memory each after all at once KiB"] < MOST
