"""What a confined handler must not be able to do, and what it must: as root, as nobody, on older kernels."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from packhost.sandbox import landlock

SCRIPT = Path(__file__).with_name("escape_attempts.py")
NOBODY = 65534

_spec = importlib.util.spec_from_file_location("escape_attempts", SCRIPT)
assert _spec is not None
assert _spec.loader is not None
attempts = importlib.util.module_from_spec(_spec)
sys.modules["escape_attempts"] = attempts
_spec.loader.exec_module(attempts)


@dataclass(frozen=True)
class Who:
    """Under whose account the attempts are made, on a kernel with which Landlock ABI."""

    user: int
    abi: int | None
    level: str


SELF = os.getuid()
EVERYBODY = {
    "this user": Who(SELF, None, "kernel"),
    "nobody": Who(NOBODY, None, "kernel"),
    "Landlock ABI 5": Who(SELF, 5, "partial"),
    "Landlock ABI 3": Who(SELF, 3, "partial"),
    "Landlock ABI 1": Who(SELF, 1, "partial"),
}

# Where Python lies below a folder that is closed to others, a mount of its own opens that folder.
OPENED = """
set -e
mount --make-rprivate /
mkdir "$1/opened"
mount --bind "$2" "$1/opened"
mount -t tmpfs -o mode=755 tmpfs "$3"
mkdir -p "$2"
mount --move "$1/opened" "$2"
folder=$1
shift 3
exec setpriv --reuid 65534 --regid 65534 --clear-groups "$@"
"""


def closed_parent(path: Path) -> Path | None:
    """The topmost folder above `path` that nobody may enter."""
    closed = [parent for parent in path.parents if not parent.stat().st_mode & 0o001]
    return closed[-1] if closed else None


def command_of(who: Who, folder: Path) -> list[str]:
    command = [
        sys.executable,
        str(SCRIPT),
        str(folder / "base"),
        *([] if who.abi is None else [str(who.abi)]),
    ]
    if who.user == SELF:
        return command
    if SELF != 0:
        pytest.skip("only root can become somebody else")
    if closed_parent(Path(sys.base_prefix)) and subprocess.run(["unshare", "--mount", "true"]).returncode:
        pytest.skip("Python lies in a folder that others may not enter, and it cannot be opened to them here")
    base = Path(sys.base_prefix)
    closed = closed_parent(base)
    if closed is None:
        return ["setpriv", "--reuid", str(who.user), "--regid", str(who.user), "--clear-groups", *command]
    return ["unshare", "--mount", "bash", "-c", OPENED, "bash", str(folder), str(base), str(closed), *command]


@contextmanager
def attempted(who: Who) -> Iterator[dict[str, Any]]:
    folder = Path(tempfile.mkdtemp(prefix="packhost-escapes-"))
    try:
        folder.chmod(0o755)
        (folder / "base").mkdir()
        if who.user != SELF:
            os.chown(folder / "base", who.user, who.user)
        ran = subprocess.run(command_of(who, folder), capture_output=True, text=True, timeout=120, cwd="/")
        assert ran.returncode == 0, ran.stderr
        yield json.loads(ran.stdout)
    finally:
        shutil.rmtree(folder)


@pytest.fixture(scope="module", params=EVERYBODY.values(), ids=EVERYBODY)
def made(request: pytest.FixtureRequest) -> Iterator[tuple[Who, dict[str, Any]]]:
    """What came of every attempt."""
    if landlock.detect() < (request.param.abi or landlock.SCOPES):
        pytest.skip("this kernel's Landlock is older")
    with attempted(request.param) as found:
        yield request.param, found


@pytest.fixture(scope="module")
def unconfined() -> Iterator[dict[str, Any]]:
    """What comes of the harmless ones where nothing is enforced."""
    with attempted(Who(SELF, 0, "advisory")) as found:
        yield found


@pytest.mark.parametrize("name", attempts.REFUSED)
def test_an_attempt_to_escape_is_refused(made: tuple[Who, dict[str, Any]], name: str) -> None:
    outcome = made[1]["outcomes"][name]
    assert list(outcome) == ["refused"], outcome


@pytest.mark.parametrize("name", attempts.ALLOWED)
def test_what_a_handler_may_do_still_works(made: tuple[Who, dict[str, Any]], name: str) -> None:
    assert made[1]["outcomes"][name] == {"result": attempts.ALLOWED[name][1]}


def test_the_attempts_left_no_trace(made: tuple[Who, dict[str, Any]]) -> None:
    who, found = made
    assert found["left"] == {
        "user": who.user,
        "level": who.level,
        "victim killed": False,
        "heard": [],
        "outside": ["datagrams", "secret", "socket"],
        "secret": attempts.SECRET,
        "secret's state": [True] * 4,
        "source": "main",
        "in source": ["main.py"],
        "protected": [],
    }


@pytest.mark.parametrize("name", attempts.HARMLESS)
def test_the_same_attempt_goes_through_where_nothing_is_enforced(
    unconfined: dict[str, Any], name: str
) -> None:
    assert list(unconfined["outcomes"][name]) == ["went"], unconfined["outcomes"][name]


def test_every_listener_hears_what_is_not_refused(unconfined: dict[str, Any]) -> None:
    assert unconfined["left"]["level"] == "advisory"
    assert len(unconfined["left"]["heard"]) == 6
