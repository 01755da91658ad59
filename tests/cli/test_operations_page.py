"""The page on looking after a host: each of its commands is run, and what it says of names is so."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from packhost.workspace.settings import RetentionSettings, TelemetrySettings

PAGE = (Path(__file__).parents[2] / "docs/operations.md").read_text(encoding="utf-8")
TELEMETRY = Path(__file__).parents[2] / "host/packhost/telemetry"
COMMANDS = [
    line.removeprefix("$ ")
    for block in re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)
    for line in block.splitlines()
    if line.startswith("$ ")
]


def test_the_page_has_commands() -> None:
    assert len(COMMANDS) > 12
    assert all(command.startswith("packhost ") for command in COMMANDS)


def test_each_command_of_the_page_runs(
    aged: Path, packhost: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUDIT_KEY", "0123456789abcdef0123456789abcdef")
    (aged / "backups").mkdir()
    for command in COMMANDS:
        _, *words = shlex.split(command)
        # the record of this test is three days old, that of the page a quarter
        ran = (
            packhost(*(word.replace("90d", "1d") for word in words)) if words[0] != "serve" else served(words)
        )
        expected = {0, 1} if words[0] == "doctor" else {0}
        assert ran.status in expected, (command, ran.out, ran.err)


def served(words: list[str]) -> Any:
    """A host whose client goes at once."""
    done = subprocess.run(
        [sys.executable, "-m", "packhost", *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )

    class Ran:
        status, out, err = done.returncode, done.stdout, done.stderr

    return Ran


@pytest.mark.parametrize(
    ("key", "model"), [("retention", RetentionSettings), ("telemetry", TelemetrySettings)]
)
def test_the_settings_of_the_page_are_ones_that_there_are(key: str, model: Any) -> None:
    block = re.search(rf"```yaml\n(?:.*\n)*?{key}:\n((?:  .*\n)+)```", PAGE)
    assert block is not None
    named = re.findall(r"^  (\w+):", block[1], re.MULTILINE)
    assert set(named) <= set(model.model_fields)
    assert len(named) > 1


def test_every_metric_of_the_page_is_one_that_is_sent_and_none_is_missing() -> None:
    source = (TELEMETRY / "metrics.py").read_text(encoding="utf-8")
    made = set(re.findall(r'\(\s*"((?:packhost|gen_ai)\.[a-z._]+)",', source))
    table = PAGE.partition("| Metric |")[2].partition("\n\n")[0]
    assert set(re.findall(r"`((?:packhost|gen_ai)\.[a-z._]+)`", table)) == made
