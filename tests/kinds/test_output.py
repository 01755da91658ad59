"""What a handler's process prints: in the log line by line, and without a secret however it is cut."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from packhost.kinds.conversation import LOGGED, OutputLog
from packhost.workspace.redaction import REDACTED, Redactor, StreamRedactor

SECRET = "c4n4ry-sëcret\nand more"


def printed(parts: list[bytes], caplog: pytest.LogCaptureFixture, *, knowing: bool = True) -> list[str]:
    """The lines that are logged."""
    redactor = Redactor()
    redactor.add(SECRET)
    context: Any = (
        SimpleNamespace(redacting=lambda: StreamRedactor(redactor)) if knowing else SimpleNamespace()
    )
    tool: Any = SimpleNamespace(id="p:t")
    caplog.set_level(logging.INFO)
    output = OutputLog(tool, context)
    for part in parts:
        output.feed(part)
    output.end()
    return [message.removeprefix("p:t: ") for message in caplog.messages]


@pytest.mark.parametrize("cut", range(1, len(SECRET.encode())))
def test_a_secret_that_is_printed_in_two_parts_is_not_logged(
    cut: int, caplog: pytest.LogCaptureFixture
) -> None:
    data = f"key {SECRET}!\nnext".encode()
    assert printed([data[: 4 + cut], data[4 + cut :]], caplog) == [f"key {REDACTED}!", "next"]


def test_lines_are_logged_whole_and_control_characters_spelled_out(caplog: pytest.LogCaptureFixture) -> None:
    lines = printed(
        [b"one\ntw", b"o\x1b[31m\n", "drei ü".encode()[:-1], b"\xbc\n\xff"], caplog, knowing=False
    )
    assert lines == ["one", "two\\x1b[31m", "drei \\xfc", "\\\\xff"]


def test_what_is_too_much_is_dropped(caplog: pytest.LogCaptureFixture) -> None:
    lines = printed([b"x" * LOGGED, b"y" * 10], caplog)
    assert lines == ["x" * LOGGED]
