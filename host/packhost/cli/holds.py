"""Which of packhost's promises hold here: what `packhost doctor` says below its checks.

`docs/threat-model.md` has the whole of it; each line here is one of its conditions, looked at on this
machine. A `note` is a limit to know of, not a fault.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from packhost.cli.checks import Check
from packhost.errors import PackhostError
from packhost.kinds.forking import Zygote
from packhost.sandbox.probe import Proof
from packhost.workspace.operator import OperatorFile

_REMOTE: Final = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "glusterfs", "fuse.sshfs"}
)
"""File systems on which a lock or a write-ahead log cannot be relied on."""


def what_holds(root: Path, state: Path, *, on_disk: bool = True) -> Iterator[Check]:
    """What holds of packs, people, agents and the record, for the workspace at `root`.

    `on_disk`: the record lies in the state folder, not in a database of its own.
    """
    yield sandbox_check(_proof(root))
    yield operator_check(state)
    yield private_check(state)
    if on_disk:
        yield disk_check(state, _mounts())
    else:
        yield Check("the record", "ok", "lies in PostgreSQL, for hosts to share: one writer at a time")
    yield agent_check()
    yield Check(
        "the client's own tools",
        "note",
        "not governed: what a client's built-in shell or editor does never passes packhost; switch them off "
        "in the client where that matters",
    )


def _proof(root: Path) -> Proof:
    if sys.platform != "linux":
        return Proof("advisory", 0, False, f"there is no confinement on {sys.platform} yet")
    zygote = Zygote(root)
    try:
        return zygote.proof
    finally:
        zygote.close()


def sandbox_check(proof: Proof) -> Check:
    """How strongly handlers of packs from elsewhere are held to their scopes."""
    name = "packs from elsewhere"
    if proof.level == "kernel":
        text = f"level `kernel`, proved just now (Landlock ABI {proof.abi}): files, network and processes"
        return Check(name, "ok", text)
    if proof.level == "partial":
        return Check(name, "note", f"level `partial` (Landlock ABI {proof.abi}): {proof.detail}")
    return Check(
        name,
        "note",
        f"level `advisory`: {proof.detail}; their code is asked to keep to its scopes and nothing makes it. "
        "They run only where `enforcement.require: advisory` says so",
    )


def operator_check(state: Path) -> Check:
    """Whether a passphrase stands between an agent and what asks for an operator."""
    try:
        record = OperatorFile(state).read()
    except PackhostError as error:
        return Check("an operator", "broken", f"the record cannot be read, so that nothing counts: {error}")
    if record is not None:
        return Check("an operator", "ok", "is set: assurance `operator` needs the passphrase, whoever asks")
    return Check(
        "an operator",
        "note",
        "is not set: an approval is as sure as its channel, and a client can be set to answer by itself; "
        "`packhost operator set`",
    )


def private_check(state: Path) -> Check:
    """Whether other accounts are kept from the record and the keys."""
    open_to = [path.name for path in (state, *sorted(state.rglob("*"))) if _open_to_others(path)]
    if open_to:
        return Check("other accounts", "broken", f"may use {', '.join(open_to[:5])} in {state}: `chmod` it")
    return Check("other accounts", "ok", "cannot read or write the record, the keys or the accepted copies")


def _open_to_others(path: Path) -> bool:
    try:
        found = path.lstat()
    except OSError:
        return False
    # What lies in a private folder is reached by nobody else; the folder itself and what is beside it count.
    return bool(stat.S_IMODE(found.st_mode) & 0o077) and path.parent.lstat().st_mode & 0o077 != 0


def disk_check(state: Path, mounts: str) -> Check:
    """Whether the record lies where a lock and a commit mean what they say."""
    kind = filesystem(state, mounts)
    if kind in _REMOTE:
        return Check(
            "the record",
            "note",
            f"lies on `{kind}`: locks and commits are not to be relied on there, set XDG_STATE_HOME",
        )
    return Check(
        "the record", "ok", f"lies on a local disk{f' ({kind})' if kind else ''}, one writer, committed"
    )


def filesystem(path: Path, mounts: str) -> str:
    """The type of the file system of a path, by a list of mounts as Linux gives it; empty if unknown."""
    best, kind = "", ""
    for line in mounts.splitlines():
        parts = line.split()
        if len(parts) < 3:
            continue
        point = parts[1].replace("\\040", " ")
        inside = point == "/" or path == Path(point) or path.is_relative_to(point)
        if inside and len(point) >= len(best):
            best, kind = point, parts[2]
    return kind


def _mounts() -> str:
    try:
        return Path("/proc/self/mounts").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def agent_check() -> Check:
    """An agent's shell under the same account is held by nothing of ours."""
    account = "root" if os.geteuid() == 0 else "your account"
    return Check(
        "an agent's shell",
        "note",
        f"is not confined: as {account} it reads what you do, edits the record and answers for a client. "
        "Only an operator's signature is beyond it; run the agent in a container or under another account",
    )
