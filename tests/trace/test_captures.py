"""Streams that real servers sent hold every rule that the validator knows of streams."""

from __future__ import annotations

from pathlib import Path

import pytest

from packhost.trace import check

CAPTURES = Path(__file__).parents[1] / "packs_shipped/agent_runtime/captures"


@pytest.mark.parametrize("file", sorted(CAPTURES.glob("*.sse")), ids=lambda file: file.stem)
def test_a_captured_stream_is_clean(file: Path) -> None:
    protocol = "messages" if file.stem.startswith("messages") else "chat_completions"
    lines = file.read_bytes().decode("utf-8", "surrogateescape").split("\n")
    report = check({"protocol": protocol, "messages": [], "stream": lines})
    assert [issue.as_json() for issue in report.issues] == []
