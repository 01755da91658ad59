"""What `packhost doctor` looks at: each check is a value, and none keeps the others from being made."""

from __future__ import annotations

import os
import platform
import sqlite3
import stat
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

from packhost.clients import claude_code, cursor
from packhost.kinds.forking import Zygote
from packhost.sandbox.openat2 import Openat2, best_opener
from packhost.store.info import wal_reset_bug
from packhost.store.lock import LOCK_NAME, Holder, HostLock
from packhost.transports.holder import stopped
from packhost.workspace.paths import RUNS_ON
from packhost.workspace.root import CONFIG_FILE, Root

State = Literal["ok", "note", "broken"]


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at; `broken` needs doing, `note` is worth knowing."""

    name: str
    state: State
    text: str

    def as_json(self) -> dict[str, str]:
        """The check as a program reads it."""
        return {"check": self.name, "state": self.state, "text": self.text}


def installation() -> Iterator[Check]:
    """Python, packhost, its libraries and SQLite."""
    yield Check("packhost", "ok", version("packhost"))
    yield Check("python", "ok", f"{platform.python_version()} ({sys.executable})")
    yield Check("mcp", "ok", version("mcp"))
    yield sqlite_check(sqlite3.sqlite_version_info)


def sqlite_check(found: tuple[int, int, int]) -> Check:
    """SQLite's version, and whether it has the WAL-reset bug that packhost's single writer keeps away."""
    shown = ".".join(map(str, found))
    if not wal_reset_bug(found):
        return Check("sqlite", "ok", f"{shown}, with the fix of the WAL-reset bug")
    return Check(
        "sqlite",
        "note",
        f"{shown} has the WAL-reset bug (fixed in 3.51.3); packhost is safe from it, since one process alone "
        "writes: open the store with nothing else",
    )


def machine() -> Iterator[Check]:
    """What the kernel offers to hold scopes."""
    if isinstance(best_opener(), Openat2):
        yield Check("openat2", "ok", "available: paths are resolved by the kernel, below the root")
    else:
        yield Check("openat2", "note", "not available: paths are walked a component at a time")
    yield enforcement()


def enforcement() -> Check:
    """At which level packs from elsewhere run here, proved by trying."""
    if sys.platform != "linux":
        return Check("enforcement", "note", "advisory: this system offers nothing to confine a process by")
    zygote = Zygote(Path.cwd())
    try:
        proof = zygote.proof
    finally:
        zygote.close()
    text = f"{proof.level}: {proof.detail}"
    if not proof.supervised and proof.level != "advisory":
        text += "; plain `open` in the workspace is refused, `context.files` works"
    return Check("enforcement", "ok" if proof.level == "kernel" else "note", text)


def state_folder(root: Root) -> Iterator[Check]:
    """Where state lies, whether it is private, and who holds the workspace."""
    yield Check("workspace", "ok", str(root.path))
    open_ones = [path.name for path in _inside(root.state) if _mode(path) & 0o077]
    mode = _mode(root.state)
    if mode & 0o077 or open_ones:
        others = f"; others may use {', '.join(open_ones)}" if open_ones else ""
        yield Check("state", "broken", f"{root.state}, mode {mode:04o}: not private{others}: `chmod` it")
    else:
        yield Check("state", "ok", f"{root.state}, mode {mode:04o}")
    holder = HostLock(root.state).holder()
    if holder is None:
        yield Check("host", "ok", "none is running; a command or a client starts one")
    else:
        yield _running(holder)


def _running(holder: Holder) -> Check:
    if not holder.pid:
        return Check(
            "host", "note", f"one is running, and its `{LOCK_NAME}` was removed: leave that file alone"
        )
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(holder.since))
    if stopped(holder.pid):
        return Check(
            "host",
            "broken",
            f"process {holder.pid} is stopped and answers nobody: let it go on with "
            f"`kill -CONT {holder.pid}`, or end it with `kill -9 {holder.pid}`",
        )
    return Check("host", "ok", f"process {holder.pid} since {since}")


def _inside(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_file() and not path.is_symlink())


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def configuration(status: Mapping[str, Any]) -> Iterator[Check]:
    """Consent, problems, tools and withheld ones, from a host's `status`."""
    if status.get("broken"):
        yield Check("packhost.yaml", "broken", str(status["broken"]))
    pending = status["pending"]
    if pending:
        texts = "; ".join(change["text"] for change in pending)
        yield Check("consent", "note", f"a change waits for `packhost accept`: {texts}")
    elif status["accepted"] and any(text.startswith(f"{CONFIG_FILE}:") for text in status["problems"]):
        yield Check("consent", "note", "packhost.yaml is broken; what held before still holds")
    elif status["accepted"]:
        yield Check("consent", "ok", "packhost.yaml is as it was accepted, or narrower")
    else:
        yield Check("consent", "ok", "nothing was accepted yet: the defaults hold")
    for problem in status["problems"]:
        if problem != status.get("broken"):
            yield Check("problem", "note" if RUNS_ON in problem else "broken", problem)
    for warning in status.get("warnings", ()):
        yield Check("warning", "note", warning)
    yield Check("tools", "ok" if status["tools"] else "broken", f"{len(status['tools'])} on offer")
    for held in status["withheld"]:
        yield Check("withheld", "note", f"{held['tool']} by {held['layer']}: {held['reason']}")
    beside = len(status.get("replicas", ()))
    if beside > 1:
        yield Check("replicas", "ok", f"{beside} hosts share the store")
    operator = status["operator"]
    if operator["state"] == "lost":
        yield Check("operator", "broken", f"{operator['why']}: whatever needs an operator is refused")
    elif operator["state"] == "ready":
        yield Check("operator", "ok", "set up: approving and accepting at a terminal take the passphrase")
    if status.get("console"):
        yield Check("console", "ok", f"open at {status['console']}/console/")
    waiting = status["approvals_pending"]
    if waiting:
        yield Check("approvals", "note", f"{waiting} wait for a person: `packhost approvals list`")


def authorization(auth: Mapping[str, Any]) -> Iterator[Check]:
    """Whose access tokens are taken over HTTP, and whether they can be checked now."""
    for issuer in auth["issuers"]:
        if issuer["problem"]:
            text = f"{issuer['issuer']}: none of its tokens can be checked: {issuer['problem']}"
            yield Check("auth", "broken", text)
        else:
            some = "1 key" if issuer["keys"] == 1 else f"{issuer['keys']} keys"
            yield Check("auth", "ok" if issuer["keys"] else "broken", f"{issuer['issuer']}: {some}")
    if auth["required"]:
        where = f", reached at {auth['resource']}" if auth["resource"] else ""
        yield Check("auth", "ok", f"`/mcp` and `/sse` want a token of everybody{where}")


def clients(root: Path, home: Path) -> Iterator[Check]:
    """Whether clients know of packhost here."""
    yield _client("claude code", claude_code.configured(root, home), "claude-code")
    yield _client("cursor", cursor.configured(root, home), "cursor")


def _client(name: str, files: Iterable[Path], word: str) -> Check:
    found = ", ".join(map(str, files))
    if found:
        return Check(name, "ok", f"connected by {found}")
    return Check(name, "note", f"not connected: `packhost connect {word} --print`")


def home_folder() -> Path:
    """The user's own folder, where clients keep their settings."""
    return Path(os.environ.get("HOME") or Path.home())
