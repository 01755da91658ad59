"""Changing files with the workspace pack, and what a person is shown before."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from packhost.errors import InvalidInput, ScopeDenied, ToolFailed
from packhost_packs.workspace.text import DIFF_LINES, NO_NEWLINE, diff
from packhost_packs.workspace.writing import write_file


def test_writing_creates_and_replaces(pack: Any, root: Path) -> None:
    assert pack("write_file", path="a/b.txt", content="\u00e9") == {
        "path": "a/b.txt",
        "bytes": 2,
        "created": True,
    }
    assert pack("write_file", path="a/b.txt", content="")["created"] is False
    assert (root / "a" / "b.txt").read_bytes() == b""


def test_half_a_surrogate_pair_is_invalid(pack: Any) -> None:
    with pytest.raises(InvalidInput, match="surrogate"):
        write_file(pack.context("write_file"), {"path": "x", "content": "\ud83d"})


def test_edits_apply_in_turn(pack: Any, root: Path) -> None:
    result = pack(
        "edit_file",
        path="src/util.py",
        edits=[{"old": "twice", "new": "double"}, {"old": "def double", "new": "def double_it"}],
    )
    assert (root / "src" / "util.py").read_text() == "def double_it(n):\n    return 2 * n\n"
    assert result["replacements"] == 2
    assert "-def twice(n):\n+def double_it(n):" in result["diff"]


def test_all_replaces_every_occurrence(pack: Any, root: Path) -> None:
    edits = [{"old": "hello", "new": "bye", "all": True}]
    assert pack("edit_file", path="src/main.py", edits=edits)["replacements"] == 2
    assert "hello" not in (root / "src" / "main.py").read_text()


@pytest.mark.parametrize(
    ("edits", "words", "hint"),
    [
        ([{"old": "absent", "new": "x"}], "is not in", "exactly"),
        ([{"old": "  import os\n\n\n", "new": "x"}], "is not in", "white space"),
        ([{"old": "hello", "new": "x"}], "2 times", "`all`"),
        ([{"old": "import", "new": "x"}, {"old": "import", "new": "y"}], "edit 2", ""),
    ],
)
def test_an_edit_that_does_not_fit_changes_nothing(
    pack: Any, root: Path, edits: list[dict[str, Any]], words: str, hint: str
) -> None:
    before = (root / "src" / "main.py").read_bytes()
    with pytest.raises(ToolFailed, match=words) as caught:
        pack("edit_file", path="src/main.py", edits=edits)
    assert hint in caught.value.hint
    assert (root / "src" / "main.py").read_bytes() == before


def test_an_edit_that_changes_nothing_is_invalid(pack: Any) -> None:
    with pytest.raises(InvalidInput, match="changes nothing"):
        pack("edit_file", path="src/main.py", edits=[{"old": "os", "new": "os"}])


def test_other_line_ends_are_named(pack: Any, root: Path) -> None:
    (root / "dos.txt").write_bytes(b"one\r\ntwo\r\n")
    with pytest.raises(ToolFailed) as caught:
        pack("edit_file", path="dos.txt", edits=[{"old": "one\ntwo", "new": "x"}])
    assert "\\r\\n" in caught.value.hint
    pack("edit_file", path="dos.txt", edits=[{"old": "two", "new": "three"}])
    assert (root / "dos.txt").read_bytes() == b"one\r\nthree\r\n"


def test_moving_and_deleting(pack: Any, root: Path) -> None:
    pack("move_path", path="src", target="lib/code")
    assert (root / "lib" / "code" / "main.py").exists()
    with pytest.raises(ToolFailed, match="not empty"):
        pack("delete_path", path="lib")
    pack("delete_path", path="lib", recursive=True)
    assert sorted(os.listdir(root)) == [".git", "README.md"]


def test_nothing_is_written_outside_the_bound(pack: Any, root: Path) -> None:
    pack.bound = ("path read **", "path write out/**")
    for tool, arguments in (
        ("write_file", {"path": "README.md", "content": "x"}),
        ("edit_file", {"path": "README.md", "edits": [{"old": "#", "new": "x"}]}),
        ("move_path", {"path": "README.md", "target": "out/README.md"}),
        ("move_path", {"path": "out/a", "target": "README.md"}),
        ("delete_path", {"path": "README.md"}),
        ("delete_path", {"path": "src", "recursive": True}),
    ):
        (root / "out").mkdir(exist_ok=True)
        (root / "out" / "a").write_text("")
        with pytest.raises(ScopeDenied):
            pack(tool, **arguments)
    assert (root / "README.md").read_text().startswith("# A project")


def test_only_writers_have_a_preview_and_none_of_them_is_idempotent(pack: Any) -> None:
    for tool in ("write_file", "edit_file", "move_path", "delete_path"):
        spec = pack.spec(tool)
        assert (spec.permission, spec.idempotent, "preview" in spec.config) == ("write", False, True)
    for tool in ("read_file", "list_directory", "find_files", "search_text"):
        spec = pack.spec(tool)
        assert (spec.permission, spec.idempotent, spec.config) == ("read", True, {})


def test_a_write_is_previewed_as_a_diff(pack: Any) -> None:
    text = pack.preview("write_file", path="src/util.py", content="def twice(n):\n    return n + n\n")
    assert text.splitlines()[:2] == ["--- a/src/util.py", "+++ b/src/util.py"]
    assert "-    return 2 * n\n+    return n + n" in text


@pytest.mark.parametrize(
    ("old", "new", "shown"),
    [
        ("", "one\n", ["@@ -0,0 +1 @@", "+one"]),
        ("", "one", ["@@ -0,0 +1 @@", "+one", NO_NEWLINE]),
        ("one\n", "two\n", ["@@ -1 +1 @@", "-one", "+two"]),
        ("one", "one\n", ["@@ -1 +1 @@", "-one", NO_NEWLINE, "+one"]),
        ("one\n", "", ["@@ -1 +0,0 @@", "-one"]),
        ("\n", "", ["@@ -1 +0,0 @@", "-"]),
    ],
)
def test_a_diff_shows_no_line_that_is_not_there(old: str, new: str, shown: list[str]) -> None:
    assert diff("x", old, new).splitlines()[2:] == shown


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("new.txt", "new file `new.txt`"),
        ("data", "is not text (3 bytes)"),
        ("same.txt", "would stay as it is"),
        ("big", "too long to compare"),
        ("link", "not shown"),
    ],
)
def test_what_cannot_be_compared_is_said_in_words(pack: Any, root: Path, path: str, words: str) -> None:
    (root / "data").write_bytes(b"\0\1\2")
    (root / "same.txt").write_text("content")
    (root / "link").symlink_to("/etc/passwd")
    with open(root / "big", "wb") as big:
        big.truncate(5 * 1024 * 1024)
    assert words in pack.preview("write_file", path=path, content="content")


def test_what_may_not_be_read_is_not_shown_to_anybody(pack: Any) -> None:
    pack.bound = ("path read src/**", "path write **")
    write = pack.preview("write_file", path="README.md", content="x")
    edit = pack.preview("edit_file", path="README.md", edits=[{"old": "project", "new": "x"}])
    assert "A project" not in write + edit
    assert "may not read" in write
    assert "may not read" in edit


def test_a_preview_hides_nothing(pack: Any) -> None:
    content = "safe\u202e txet\x1b[2J\u200b\r\u2028end\ufeff"
    text = pack.preview("write_file", path="x\u202ey.txt", content=content)
    for hidden in ("\u202e", "\x1b", "\u200b", "\r", "\u2028", "\ufeff"):
        assert hidden not in text
    assert "\\u202e" in text
    assert "\\u001b" in text


def test_a_preview_is_short(pack: Any) -> None:
    text = pack.preview("write_file", path="new.txt", content=("y" * 10_000 + "\n") * 10_000)
    assert len(text.splitlines()) <= DIFF_LINES + 2
    assert max(map(len, text.splitlines())) < 350


def test_an_edit_that_would_fail_is_said_to(pack: Any) -> None:
    text = pack.preview("edit_file", path="src/main.py", edits=[{"old": "absent", "new": "x"}])
    assert "would fail" in text


def test_a_move_and_a_deletion_are_said_in_words(pack: Any) -> None:
    assert (
        pack.preview("move_path", path="src", target="lib") == "the folder `src` (2 files) would become `lib`"
    )
    assert pack.preview("delete_path", path="README.md") == "the file `README.md` (26 bytes) would be deleted"
    whole = pack.preview("delete_path", path="src", recursive=True)
    assert whole == "the folder `src` (2 files) would be deleted with everything in it"
    assert "nothing is there" in pack.preview("delete_path", path="absent")


def test_a_diff_of_long_files_that_differ_everywhere_takes_no_time() -> None:
    old = "\n".join(f"line {number % 7}" for number in range(50_000))
    new = "\n".join(f"line {number % 5}" for number in range(50_000))
    started = time.monotonic()
    assert len(diff("x", old, new).splitlines()) == DIFF_LINES + 1
    assert time.monotonic() - started < 2


def test_a_small_change_in_a_long_file_is_shown_alone() -> None:
    lines = [f"line {number}" for number in range(20_000)]
    changed = [*lines[:9_999], "changed", *lines[10_000:]]
    shown = diff("x", "\n".join(lines), "\n".join(changed))
    assert "-line 9999\n+changed" in shown
    assert len(shown.splitlines()) < 15
