"""The page on the API says what is so: its commands are run, in order, against a real host."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from packhost.http.api import ENDPOINTS
from packhost.http.events import LEASE, LONGEST_LEASE, PAGE, SHORTEST_LEASE
from packhost.http.limits import Allowance
from packhost.http.runs import LONGEST_WAIT
from packhost.rules.identities import MOST, RIGHTS, ROLES

PAGE_PATH = Path(__file__).parents[2] / "docs" / "http-api.md"
TEXT = PAGE_PATH.read_text()
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", TEXT, re.DOTALL)
MARK = "----- packhost -----"


def steps() -> Iterator[tuple[str, str]]:
    """Each command of the page and what the page says that it prints."""
    for kind, block in BLOCKS:
        if kind != "console":
            continue
        for step in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = step.partition("\n")
            yield command, output


def expected(output: str) -> re.Pattern[str]:
    """The output of the page, in which `…` stands for anything."""
    words = [re.escape(" ".join(piece.split())) for piece in output.split("…")]
    return re.compile(r".*?".join(words))


@pytest.mark.slow
def test_every_command_of_the_page_does_what_the_page_says(project: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    lines = ["trap 'kill %1' EXIT"]
    for command, _ in steps():
        lines += [command.replace("8321", port), f"echo '{MARK}'"]
        if command.startswith("packhost serve"):
            lines.append(
                f"for _ in $(seq 300); do curl -s -o /dev/null http://127.0.0.1:{port}/healthz && break; "
                "sleep 0.1; done"
            )
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-c", "\n".join(lines)],
        env=environment,
        cwd=project,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    printed = done.stdout.split(MARK)
    for (command, output), found in zip(steps(), printed, strict=False):
        assert expected(output).search(" ".join(found.split())), f"{command}\n{found}\n{done.stderr}"
    assert (project / "src" / "turn.txt").read_text() == "turned"


@pytest.mark.anyio
async def test_the_python_of_the_page_runs(served) -> None:
    (code,) = [block for kind, block in BLOCKS if kind == "python"]
    token = await served.token("caller", "nightly")
    code = code.replace("http://127.0.0.1:8321", served.url)
    done = await anyio.run_process([sys.executable, "-c", f"token = {token!r}\n{code}"])
    lines = done.stdout.decode().splitlines()
    assert lines[0] == "run.queued"
    assert lines[-2:] == ["run.completed", "Hello."]


def test_every_path_of_the_api_is_named() -> None:
    for endpoint in ENDPOINTS:
        last = endpoint.path.rpartition("/")[2]
        assert f"/v1{endpoint.path}" in TEXT or f"`/{last}`" in TEXT, endpoint.path


def test_the_scopes_of_the_page_are_those_of_the_roles() -> None:
    said: dict[str, set[str]] = {}
    for rights, roles in re.findall(r"^\| (`[a-z:]+`(?:, `[a-z:]+`)*) \| ([a-z, -]+)", TEXT, re.MULTILINE):
        found = set(ROLES) if roles.strip().startswith("all") else set(ROLES) & set(re.split(r"[, ]+", roles))
        said.update(dict.fromkeys(set(re.findall(r"`([a-z:]+)`", rights)) & set(RIGHTS), found))
    assert said == {right: {role for role in ROLES if right in MOST[role]} for right in RIGHTS}


def test_the_numbers_of_the_page_are_those_of_the_host() -> None:
    usual = Allowance()
    plain = TEXT.replace("\n", " ").replace("  ", " ")
    assert f"({SHORTEST_LEASE:.0f} to {LONGEST_LEASE:.0f}; {LEASE:.0f} unless" in plain
    assert f"at most {PAGE:,} events" in plain
    assert f"{LONGEST_WAIT:.0f} seconds at the most" in plain
    assert f"{usual.rate:.0f} requests a second ({usual.burst:.0f} at once" in plain
    assert f"{usual.at_once} of them under way and {usual.streams:,} streams" in plain
