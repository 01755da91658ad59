"""The examples of the page on policy do what it says."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from packhost.cli.root import COMMANDS
from packhost.cli.run import run

PAGE = (Path(__file__).parents[2] / "docs" / "policy.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"<!-- example: (\S+) -->\n```\w+\n(.*?)```", PAGE, re.S)


@pytest.fixture
def packhost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Callable[..., str]:
    """Runs a command line in a folder with the page's files; what it printed."""
    folder = tmp_path / "work"
    (folder / "src").mkdir(parents=True)
    (folder / "docs" / "legal").mkdir(parents=True)
    (folder / "build").mkdir()
    (folder / "README.md").write_text("hello\n")
    for name, text in EXAMPLES:
        if name != "console":
            (folder / name).write_text(text)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("CLAUDECODE", "CURSOR_AGENT"):
        monkeypatch.delenv(name, raising=False)

    def command(line: str) -> str:
        capfd.readouterr()
        assert run(line.split()) == 0
        return capfd.readouterr().out

    return command


@pytest.mark.parametrize("text", [text for name, text in EXAMPLES if name == "console"])
def test_a_command_prints_what_the_page_says(text: str, packhost: Callable[..., str]) -> None:
    line, _, expected = text.partition("\n")
    assert packhost(line.removeprefix("$ packhost ")) == expected


@pytest.mark.parametrize(
    "line", sorted({line.split("  #")[0].strip() for line in re.findall(r"^packhost (.+)$", PAGE, re.M)})
)
def test_a_command_of_the_page_can_be_run(line: str, packhost: Callable[..., str], tmp_path: Path) -> None:
    (tmp_path / "work" / "new.yaml").write_text("packhost: 1\n")
    for one in line.split(" && "):
        words = one.removeprefix("packhost ")
        assert words.split()[0] in COMMANDS
        packhost(words)
