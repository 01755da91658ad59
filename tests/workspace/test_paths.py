"""Packs by path: what runs is the accepted copy, and whatever was touched is noticed and shown."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from packhost.errors import PackhostError
from packhost.workspace import paths
from packhost.workspace.paths import DIFF_LINES, source_changes
from packhost.workspace.root import Root
from packhost.workspace.workspace import Workspace


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of packs are looked at each time, not once a second."""
    monkeypatch.setattr(paths, "LOOK_EVERY", 0.0)


@pytest.fixture
def accepted(opened: Callable[[], Workspace], write: Callable[[str], None], pack: Path) -> Workspace:
    """A workspace whose pack by path was accepted."""
    write("packs: [workspace, {path: ./mine}]\n")
    workspace = opened()
    workspace.accept(by="ann", channel="cli")
    return workspace


def copy_of(workspace: Workspace) -> Path:
    """The accepted copy of the pack."""
    (found,) = [one.path for one in workspace.enabled() if one.id == "mine"]
    assert found is not None
    return found


def codes(workspace: Workspace) -> list[str]:
    return [problem.code for problem in workspace.problems]


@pytest.mark.usefixtures("at_once")
def test_an_edit_of_the_source_is_noticed_without_a_touch_of_the_file(
    accepted: Workspace, pack: Path
) -> None:
    assert (accepted.refresh(), codes(accepted)) == (False, [])
    (pack / "mine.py").write_text("def do_it(context, arguments):\n    return {'a': 1}\n")
    assert (accepted.refresh(), codes(accepted)) == (True, ["PACK_CHANGED"])
    assert "'a'" not in (copy_of(accepted) / "mine.py").read_text()


def test_files_of_packs_are_looked_at_once_a_second(accepted: Workspace, pack: Path) -> None:
    accepted.refresh()
    (pack / "mine.py").write_text("changed")
    began = time.monotonic()
    assert not accepted.refresh()
    while not accepted.refresh():
        assert time.monotonic() - began < 3
    assert codes(accepted) == ["PACK_CHANGED"]


@pytest.mark.usefixtures("at_once")
def test_a_look_at_a_pack_of_a_hundred_files_takes_less_than_ten_milliseconds(
    accepted: Workspace, pack: Path
) -> None:
    for number in range(100):
        (pack / f"m{number}.py").write_text("x = 1\n")
    accepted.refresh()
    best = float("inf")
    for _ in range(5):
        began = time.perf_counter()
        accepted.refresh()
        best = min(best, time.perf_counter() - began)
    assert best < 0.010


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("name", ["mine.py", "pack.yaml", "extra.py"])
def test_a_replaced_file_in_the_accepted_copy_takes_the_pack_out(accepted: Workspace, name: str) -> None:
    copy = copy_of(accepted)
    before = (copy / "mine.py").stat()
    (copy / name).write_text("def do_it(context, arguments):\n    return 'evil'\n")
    os.utime(copy / name, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert accepted.refresh()
    assert [one.id for one in accepted.enabled()] == ["workspace"]
    assert "gone or damaged" in str(accepted.problems[-1])


@pytest.mark.usefixtures("at_once")
def test_a_folder_swapped_for_a_link_changes_nothing_that_runs(
    accepted: Workspace, pack: Path, tmp_path: Path
) -> None:
    copy = copy_of(accepted)
    other = tmp_path / "other"
    pack.rename(other)
    (other / "mine.py").write_text("def do_it(context, arguments):\n    return 'evil'\n")
    pack.symlink_to(other)
    assert (accepted.refresh(), codes(accepted)) == (True, ["PACK_CHANGED"])
    assert copy_of(accepted) == copy


def test_compiled_files_are_neither_copied_nor_hashed(accepted: Workspace, pack: Path) -> None:
    (pack / "__pycache__").mkdir()
    (pack / "__pycache__" / "mine.cpython-311.pyc").write_bytes(b"poison")
    (pack / "mine.pyc").write_bytes(b"poison")
    accepted.reload()
    assert (accepted.pending, codes(accepted)) == (False, [])
    accepted.accept(by="ann", channel="cli")
    assert sorted(path.name for path in copy_of(accepted).iterdir()) == ["mine.py", "pack.yaml"]


@pytest.mark.usefixtures("at_once")
def test_a_root_with_another_folder_in_its_place_is_noticed_and_nothing_is_accepted_there(
    accepted: Workspace, folder: Path, tmp_path: Path
) -> None:
    folder.rename(tmp_path / "away")
    folder.mkdir()
    (folder / "packhost.yaml").write_text("packhost: 1\nbound: [path read **, path write **]\n")
    assert accepted.refresh()
    assert any("is not the one that was opened" in str(problem) for problem in accepted.problems)
    assert "path write **" not in accepted.file.bound
    with pytest.raises(PackhostError) as caught:
        accepted.accept(by="ann", channel="cli")
    assert caught.value.code == "NOT_ACCEPTED"


def test_a_root_that_stays_is_not_said_to_have_moved(root: Root) -> None:
    assert not root.moved


def test_what_waits_is_shown_as_a_diff(accepted: Workspace, pack: Path) -> None:
    (pack / "mine.py").write_text("def do_it(context, arguments):\n    return {'a': 1}\n")
    (pack / "new.py").write_text("x = 1\n")
    (pack / "data.bin").write_bytes(b"\0\1")
    accepted.reload()
    (changes,) = accepted.pack_changes().values()
    assert [(one.name, one.change, one.binary) for one in changes] == [
        ("data.bin", "new", True),
        ("mine.py", "changed", False),
        ("new.py", "new", False),
    ]
    assert changes[1].diff[-2:] == ("-    return {}", "+    return {'a': 1}")
    assert changes[2].diff[:2] == ("--- /dev/null", "+++ now/new.py")


def test_nothing_is_shown_where_nothing_waits(accepted: Workspace) -> None:
    assert accepted.pack_changes() == {}


def test_a_long_diff_is_cut_and_says_by_how_much() -> None:
    (change,) = source_changes({}, {"a.py": b"x\n" * 1000})
    assert (len(change.diff), change.left_out) == (DIFF_LINES, 1003 - DIFF_LINES)


def test_a_file_that_is_gone_is_shown() -> None:
    (change,) = source_changes({"a.py": b"x\n"}, {})
    assert (change.change, change.diff[-1]) == ("gone", "-x")
