"""Claude Code, the program, run by a test: headless, or at a terminal whose screen the test reads.

It has a home of its own, no way out but the Messages API that the test names, and nothing of the caller's
own settings.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

ROWS, COLUMNS = 50, 140

ENTER = "\r"
DOWN = "\x1b[B"


@dataclass(frozen=True, slots=True)
class Headless:
    """What `claude -p` left behind. `result` is the parsed JSON answer."""

    status: int
    result: dict[str, Any]
    stderr: str


class ClaudeCode:
    """Claude Code with a home of its own, in one project folder and with one set of MCP servers."""

    def __init__(
        self,
        parts: Path,
        home: Path,
        project: Path,
        api_url: str,
        servers: dict[str, Any],
        **variables: str,
    ) -> None:
        """`variables` are further ones of its environment."""
        self._claude = str(parts / "bin" / "claude")
        self._parts = parts
        self._home = home
        self._project = project.resolve()
        self._api_url = api_url
        self._variables = variables
        home.mkdir(parents=True, exist_ok=True)
        self._servers = home / "servers.json"
        self._servers.write_text(json.dumps({"mcpServers": servers}))

    def headless(self, prompt: str, *, allowed: str, seconds: float = 90.0) -> Headless:
        """Runs one prompt without a terminal.

        Raises `subprocess.TimeoutExpired` after `seconds`.
        """
        command = [self._claude, "-p", prompt, *self._flags(allowed), "--output-format", "json"]
        done = subprocess.run(
            command,
            cwd=self._project,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds,
        )
        result = json.loads(done.stdout) if done.stdout.startswith("{") else {"text": done.stdout}
        return Headless(done.returncode, result, done.stderr)

    def interactive(self, *, allowed: str) -> Terminal:
        """Starts the program at a terminal, past its first questions."""
        self._answer_first_questions()
        return Terminal([self._claude, *self._flags(allowed)], self._project, self._environment())

    def _flags(self, allowed: str) -> list[str]:
        servers = ["--mcp-config", str(self._servers), "--strict-mcp-config"]
        return [*servers, "--permission-mode", "default", "--allowedTools", allowed]

    def _answer_first_questions(self) -> None:
        settings = {
            "hasCompletedOnboarding": True,
            "theme": "dark",
            "customApiKeyResponses": {"approved": ["not-a-key"], "rejected": []},
            "projects": {str(self._project): {"hasTrustDialogAccepted": True}},
        }
        (self._home / ".claude.json").write_text(json.dumps(settings))

    def _environment(self) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("LANG", "TMPDIR") if name in os.environ}
        return kept | {
            "PATH": f"{self._parts / 'bin'}:{os.environ['PATH']}",
            "HOME": str(self._home),
            "TERM": "xterm-256color",
            "ANTHROPIC_API_KEY": "not-a-key",
            "ANTHROPIC_BASE_URL": self._api_url,
            "ENABLE_TOOL_SEARCH": "false",
            "DISABLE_AUTOUPDATER": "1",
            "DISABLE_TELEMETRY": "1",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            **self._variables,
        }


class Terminal:
    """A program at a terminal: keys go in, and the screen can be read as a person would see it."""

    def __init__(self, command: list[str], folder: Path, environment: dict[str, str]) -> None:
        # Optional, and this module is imported wherever tests are collected.
        import pexpect
        import pyte

        self._quiet, self._ended = pexpect.TIMEOUT, pexpect.EOF
        self._screen = pyte.Screen(COLUMNS, ROWS)
        self._stream = pyte.Stream(self._screen)
        self._child = pexpect.spawn(
            command[0],
            command[1:],
            cwd=str(folder),
            env=environment,
            dimensions=(ROWS, COLUMNS),
            encoding="utf-8",
            codec_errors="replace",
        )
        # On a busy machine even a process that was killed takes its time to be gone.
        self._child.ptyproc.delayafterterminate = 1.0

    def __enter__(self) -> Terminal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            error.add_note(f"the screen showed:\n{self.screen}")
        self._child.close(force=True)

    @property
    def screen(self) -> str:
        """The screen's lines that are not empty."""
        return "\n".join(line.rstrip() for line in self._screen.display if line.strip())

    def see(self, *texts: str, seconds: float = 45.0) -> str:
        """Waits until all the texts are on the screen and returns it.

        Raises `AssertionError` after `seconds` or when the program ends first.
        """
        return self._wait(lambda screen: all(text in screen for text in texts), texts, seconds)

    def see_or(self, text: str, other: str, *, seconds: float = 45.0) -> bool:
        """Waits until `text` is on the screen, or `other` once more than now; whether it was `text`."""
        before = self.screen.count(other)
        screen = self._wait(lambda s: text in s or s.count(other) > before, (text, other), seconds)
        return text in screen

    def press(self, keys: str) -> None:
        """Sends keys, once the program has drawn what it had to draw; something may go on moving."""
        until = time.monotonic() + 2
        while self._read(wait=0.4) == "more" and time.monotonic() < until:
            pass
        self._child.send(keys)

    def type(self, line: str) -> None:
        """Types a line and, when it stands on the screen, enters it."""
        self.press(line)
        self.see(line)
        self.press(ENTER)

    def _wait(self, shows: Callable[[str], bool], texts: tuple[str, ...], seconds: float) -> str:
        until = time.monotonic() + seconds
        while not shows(self.screen):
            assert time.monotonic() < until, f"after {seconds:g} s the screen does not show {texts}"
            assert self._read(), f"the program ended before its screen showed {texts}"
        return self.screen

    def _read(self, wait: float = 0.2) -> str:
        try:
            self._stream.feed(self._child.read_nonblocking(65536, wait))
        except self._quiet:
            return "quiet"
        except self._ended:
            return ""
        return "more"
