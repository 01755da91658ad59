"""A host that stops lets go of whoever follows, and whoever follows goes on with the next one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from packhost.cli.run import run
from packhost.client import Client, Event

pytestmark = pytest.mark.slow
LOOP = [{"role": "user", "content": "go"}]


def serve(address: str) -> tuple[subprocess.Popen[str], str]:
    process = subprocess.Popen(
        [sys.executable, "-m", "packhost", "serve", "--http", address],
        env=dict(os.environ),
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    line = process.stderr.readline()
    assert "listening on" in line, line + process.stderr.read()
    return process, line.split()[-1]


def test_a_follower_outlives_the_host_that_it_followed_and_misses_nothing(
    project: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    capfd.readouterr()
    assert run(["tokens", "new", "--role", "operator"]) == 0
    token = capfd.readouterr().out.strip()
    first, url = serve("127.0.0.1:0")
    second: subprocess.Popen[str] | None = None
    try:
        with Client(url, token) as client:
            begun = client.start(LOOP, loop=True, wait=20)
            seen: list[Any] = []
            follower = threading.Thread(target=lambda: seen.extend(client.follow(begun.run_id)))
            follower.start()
            first.send_signal(signal.SIGTERM)
            assert first.wait(20) == 0
            second, _ = serve(url.removeprefix("http://"))
            with Client(url, token) as person:
                (asked,) = person.approvals("pending")
                person.decide(asked.id, "approve")
                assert person.finish(begun.run_id).status == "completed"
                follower.join(20)
                every = [one.seq for one in person.follow(begun.run_id) if isinstance(one, Event)]
            assert not follower.is_alive()
            assert [one.seq for one in seen if isinstance(one, Event)] == every
            assert (project / "src" / "turn.txt").read_text() == "turned"
    finally:
        for process in filter(None, (first, second)):
            if process.poll() is None:
                process.terminate()
            process.communicate(timeout=20)
