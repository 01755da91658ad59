"""One host a workspace."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from packhost.errors import StoreUnavailable
from packhost.store.lock import LOCK_NAME, HostLock

HOLD = """
import sys
from pathlib import Path
from packhost.store.lock import HostLock
lock = HostLock(Path(sys.argv[1]))
print(lock.acquire(), flush=True)
sys.stdin.read()
"""


def test_the_second_one_is_told_who_holds_it(tmp_path: Path) -> None:
    first, second = HostLock(tmp_path), HostLock(tmp_path)
    before = time.time()
    assert first.acquire()
    assert first.acquire()
    assert not second.acquire()
    assert (first.held, second.held) == (True, False)
    holder = second.holder()
    assert holder is not None
    assert holder.pid == os.getpid()
    assert before <= holder.since <= time.time()
    first.release()
    first.release()
    assert second.holder() is None
    assert second.acquire()
    second.release()


def test_nobody_holds_a_lock_that_was_never_taken(tmp_path: Path) -> None:
    assert HostLock(tmp_path).holder() is None
    (tmp_path / LOCK_NAME).write_text("garbage")
    assert HostLock(tmp_path).holder() is None
    with HostLock(tmp_path) as lock:
        assert lock.acquire()
    assert HostLock(tmp_path).holder() is None


def test_the_lock_file_is_its_owners_alone(tmp_path: Path) -> None:
    with HostLock(tmp_path) as lock:
        assert lock.acquire()
        assert stat.S_IMODE(lock.path.stat().st_mode) == 0o600


def test_a_killed_holder_leaves_the_lock_free(tmp_path: Path) -> None:
    lock = HostLock(tmp_path)
    child = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with child:
        assert child.stdout is not None
        assert child.stdout.readline() == "True\n"
        assert not lock.acquire()
        holder = lock.holder()
        assert holder is not None
        assert holder.pid == child.pid
        child.kill()
        child.wait(10)
    assert lock.holder() is None
    assert lock.acquire()
    lock.release()


def test_a_lock_that_cannot_be_made_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable) as caught:
        HostLock(tmp_path / "none").acquire()
    assert caught.value.hint
    (tmp_path / LOCK_NAME).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StoreUnavailable):
        HostLock(tmp_path).acquire()


def test_removing_its_file_frees_no_lock(tmp_path: Path) -> None:
    with HostLock(tmp_path) as first, HostLock(tmp_path) as second:
        assert first.acquire()
        first.path.unlink()
        assert not second.acquire()
        holder = second.holder()
        assert holder is not None
        assert holder.pid == 0
