"""What `doctor` says of packhost's promises, as it is on this machine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from packhost.cli.holds import disk_check, filesystem, operator_check, private_check, sandbox_check
from packhost.sandbox.probe import Proof

MOUNTS = """\
/dev/vda / ext4 rw 0 0
server:/home /home nfs4 rw 0 0
/dev/vdb /home/ann/my\\040state ext4 rw 0 0
short
"""


def test_doctor_says_what_holds_here(workspace: Path, packhost: Callable[..., Any]) -> None:
    told = {one["check"]: one for one in packhost("doctor", "--json").json["holds"]}
    assert list(told) == [
        "packs from elsewhere",
        "an operator",
        "other accounts",
        "the record",
        "an agent's shell",
        "the client's own tools",
    ]
    assert told["an operator"]["state"] == "note"
    assert told["other accounts"]["state"] == "ok"
    assert "What holds here:" in packhost("doctor").out


@pytest.mark.parametrize(("level", "state"), [("kernel", "ok"), ("partial", "note"), ("advisory", "note")])
def test_the_level_that_was_proved_is_told(level: Any, state: str) -> None:
    check = sandbox_check(Proof(level, 7, True, "why"))
    assert (check.state, f"`{level}`" in check.text) == (state, True)


def test_a_folder_that_others_may_enter_is_told(tmp_path: Path) -> None:
    state = tmp_path / "outer" / "state"
    state.mkdir(parents=True)
    (tmp_path / "outer").chmod(0o755)
    state.chmod(0o755)
    assert private_check(state).state == "broken"
    state.chmod(0o700)
    assert private_check(state).state == "ok"


def test_an_operators_record_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    assert operator_check(tmp_path).state == "note"


@pytest.mark.parametrize(
    ("path", "kind"),
    [("/tmp/x", "ext4"), ("/home/ann/state", "nfs4"), ("/home/ann/my state/x", "ext4"), ("/homes", "ext4")],
)
def test_the_file_system_of_a_path_is_found(path: str, kind: str) -> None:
    assert filesystem(Path(path), MOUNTS) == kind


def test_a_record_on_a_remote_disk_is_told() -> None:
    assert disk_check(Path("/home/ann"), MOUNTS).state == "note"
    assert disk_check(Path("/var"), MOUNTS).state == "ok"
    assert disk_check(Path("/var"), "").state == "ok"
