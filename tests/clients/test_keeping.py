"""Files changed on a person's behalf come back byte for byte, or the person is told why not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from packhost.clients.keeping import FileChange, apply_changes, extend, latest, undo
from packhost.errors import ConfigInvalid

ODD = b'\xef\xbb\xbf{\r\n\t"mcpServers": {"a": {}} // no newline at the end'


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A state folder."""
    (tmp_path / "state").mkdir(mode=0o700)
    return tmp_path / "state"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with one file in it."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / ".mcp.json").write_bytes(ODD)
    (folder / ".mcp.json").chmod(0o640)
    return folder


def change_both(state: Path, project: Path) -> None:
    files = [
        FileChange(project / ".mcp.json", b'{"mcpServers": {"packhost": {}}}', ("mcpServers",)),
        FileChange(project / ".packhost/a/pack.yaml", b"packhost: 1\n", ours=True),
    ]
    apply_changes(state, "adopt", files)


def test_what_was_changed_comes_back_and_what_was_made_goes(state: Path, project: Path) -> None:
    change_both(state, project)
    assert (project / ".mcp.json").read_bytes() != ODD
    kept = latest(state, "adopt")
    assert kept is not None
    undo(kept)
    assert (project / ".mcp.json").read_bytes() == ODD
    assert (project / ".mcp.json").stat().st_mode & 0o777 == 0o640
    assert sorted(os.listdir(project)) == [".mcp.json"]
    assert latest(state, "adopt") is None


def test_changes_are_taken_back_the_last_one_first(state: Path, project: Path) -> None:
    path = project / ".mcp.json"
    for content in (b"one", b"two"):
        apply_changes(state, "adopt", [FileChange(path, content)])
    for expected in (b"one", ODD):
        change = latest(state, "adopt")
        assert change is not None
        undo(change)
        assert path.read_bytes() == expected


def test_each_command_takes_back_its_own(state: Path, project: Path) -> None:
    apply_changes(state, "connect cursor", [FileChange(project / "a", b"x")])
    assert latest(state, "adopt") is None


def test_a_file_that_was_edited_since_is_not_touched(state: Path, project: Path) -> None:
    change_both(state, project)
    (project / ".mcp.json").write_bytes(b'{"mcpServers": {"mine": {}}}')
    kept = latest(state, "adopt")
    assert kept is not None
    with pytest.raises(ConfigInvalid, match="edited since") as caught:
        undo(kept)
    assert "--force" in caught.value.hint
    assert (project / ".packhost/a/pack.yaml").exists()


def test_told_to_it_puts_the_file_back_and_keeps_the_edited_one(state: Path, project: Path) -> None:
    change_both(state, project)
    (project / ".mcp.json").write_bytes(b"edited, and no JSON")
    kept = latest(state, "adopt")
    assert kept is not None
    did = {one.path.name: one.did for one in undo(kept, force=True)}
    assert (project / ".mcp.json").read_bytes() == ODD
    assert Path(did[".mcp.json"].rpartition(" ")[2]).read_bytes() == b"edited, and no JSON"


def test_in_a_file_that_its_client_rewrites_only_the_servers_come_back(state: Path, project: Path) -> None:
    path = project / ".claude.json"
    path.write_text('{"startups": 1, "mcpServers": {"a": {"command": "x"}}}')
    apply_changes(
        state,
        "adopt",
        [FileChange(path, b'{"startups": 1, "mcpServers": {"packhost": {}}}', ("mcpServers",))],
    )
    path.write_text('{"startups": 9, "mcpServers": {"packhost": {}}}')
    kept = latest(state, "adopt")
    assert kept is not None
    undo(kept, mending=[path])
    assert path.read_text() == '{"startups": 9, "mcpServers": {"a": {"command": "x"}}}'


def test_what_packhost_wrote_itself_since_holds_nothing_up(state: Path, project: Path) -> None:
    change_both(state, project)
    (project / ".packhost/a/pack.yaml").write_text("accepted since\n")
    kept = latest(state, "adopt")
    assert kept is not None
    did = {one.path.name: one.did for one in undo(kept)}
    assert Path(did["pack.yaml"].rpartition(" ")[2]).read_text() == "accepted since\n"
    assert not (project / ".packhost").exists()


def test_a_file_that_another_part_wrote_is_counted_to_the_change(state: Path, project: Path) -> None:
    change = apply_changes(state, "adopt", [FileChange(project / ".mcp.json", b"{}")])
    (project / "packhost.lock").write_text("packhost: 1\n")
    undo(extend(change, project / "packhost.lock", None))
    assert sorted(os.listdir(project)) == [".mcp.json"]


def test_a_change_that_was_cut_short_can_be_taken_back(state: Path, project: Path) -> None:
    change_both(state, project)
    (project / ".packhost/a/pack.yaml").unlink()
    kept = latest(state, "adopt")
    assert kept is not None
    undo(kept)
    assert (project / ".mcp.json").read_bytes() == ODD


def test_a_read_only_file_is_refused_before_anything_is_written(state: Path, project: Path) -> None:
    (project / ".mcp.json").chmod(0o444)
    with pytest.raises(ConfigInvalid, match="read-only"):
        change_both(state, project)
    assert sorted(os.listdir(project)) == [".mcp.json"]
    assert latest(state, "adopt") is None


def test_where_one_file_cannot_be_written_none_is(state: Path, project: Path) -> None:
    (project / "file").write_text("x")
    files = [FileChange(project / ".mcp.json", b"{}"), FileChange(project / "file/below", b"x")]
    with pytest.raises(ConfigInvalid):
        apply_changes(state, "adopt", files)
    assert (project / ".mcp.json").read_bytes() == ODD


def test_copies_are_for_their_owner_alone(state: Path, project: Path) -> None:
    change_both(state, project)
    folders = [path for path in (state / "changes").rglob("*") if path.is_dir()]
    assert [path.stat().st_mode & 0o077 for path in folders] == [0]
