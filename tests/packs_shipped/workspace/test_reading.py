"""Reading and searching with the workspace pack."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from packhost.errors import InvalidInput, NotFound, PackhostError, ScopeDenied, ToolFailed
from packhost_packs.workspace import reading, searching


def test_a_short_file_is_one_page(pack: Any) -> None:
    assert pack("read_file", path="src/util.py") == {
        "path": "src/util.py",
        "content": "def twice(n):\n    return 2 * n\n",
        "unit": "lines",
        "offset": 0,
        "count": 2,
        "total": 2,
        "size": 31,
        "truncated": False,
        "next_offset": None,
    }


@pytest.mark.parametrize("unit", ["lines", "bytes"])
@pytest.mark.parametrize("limit", [1, 2, 5, 1000])
@pytest.mark.parametrize(
    "text",
    ["", "\n", "one", "one\ntwo\n", "one\r\ntwo", "\n\n\n", "\u00e9\u4f60\U0001f600\n" * 7, "\ufeffmarked\n"],
)
def test_pages_put_together_are_the_file(pack: Any, root: Path, unit: str, limit: int, text: str) -> None:
    (root / "file.txt").write_bytes(text.encode())
    offset: int | None = 0
    content = ""
    pages = 0
    while offset is not None:
        page = pack("read_file", path="file.txt", unit=unit, limit=limit, offset=offset)
        assert page["truncated"] is (page["next_offset"] is not None)
        content += page["content"]
        offset = page["next_offset"]
        pages += 1
        assert pages <= len(text.encode()) + 1
    assert content == text


def test_a_page_holds_no_more_than_its_bytes(pack: Any, root: Path) -> None:
    (root / "wide.txt").write_text(("x" * 100_000 + "\n") * 5)
    page = pack("read_file", path="wide.txt")
    assert (page["count"], page["next_offset"]) == (2, 2)


def test_a_line_that_is_longer_than_a_page_is_read_by_bytes(pack: Any, root: Path) -> None:
    (root / "long.txt").write_text("short\n" + "x" * (reading.PAGE + 1))
    assert pack("read_file", path="long.txt")["next_offset"] == 1
    with pytest.raises(ToolFailed, match="line 2") as caught:
        pack("read_file", path="long.txt", offset=1)
    assert "bytes" in caught.value.hint
    assert pack("read_file", path="long.txt", unit="bytes", offset=6)["count"] == reading.PAGE


def test_a_file_too_long_for_lines_is_read_by_bytes(pack: Any, root: Path) -> None:
    with open(root / "huge.txt", "wb") as huge:
        huge.write(b"x\n" * (reading.LARGEST // 2 + 1))
    with pytest.raises(ToolFailed, match="too long"):
        pack("read_file", path="huge.txt")
    assert pack("read_file", path="huge.txt", unit="bytes")["truncated"] is True


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"\x89PNG\r\n\x1a\n\0\0", "a PNG image"),
        (b"caf\xe9", "another encoding"),
        ("text".encode("utf-16"), "UTF-16"),
        (b"a\0b", "binary"),
    ],
)
@pytest.mark.parametrize("unit", ["lines", "bytes"])
def test_what_is_not_text_is_said_to_be_what_it_looks_like(
    pack: Any, root: Path, data: bytes, kind: str, unit: str
) -> None:
    (root / "data").write_bytes(data)
    with pytest.raises(ToolFailed, match="not UTF-8 text") as caught:
        pack("read_file", path="data", unit=unit)
    assert kind in caught.value.hint


def test_an_offset_past_the_end_or_inside_a_character_is_invalid(pack: Any, root: Path) -> None:
    (root / "e.txt").write_text("\u00e9")
    for unit, offset in (("lines", 2), ("bytes", 3), ("bytes", 1)):
        with pytest.raises(InvalidInput, match="`offset`"):
            pack("read_file", path="e.txt", unit=unit, offset=offset)


def test_a_missing_file_names_a_near_one(pack: Any) -> None:
    with pytest.raises(NotFound) as caught:
        pack("read_file", path="src/mein.py")
    assert "`src/main.py`" in caught.value.hint


def test_a_folder_is_listed_in_pages(pack: Any) -> None:
    whole = pack("list_directory")
    assert [entry["name"] for entry in whole["entries"]] == [".git", "README.md", "src"]
    assert [entry["type"] for entry in whole["entries"]] == ["directory", "file", "directory"]
    first = pack("list_directory", path="src", limit=1)
    assert (first["total"], first["truncated"], first["next_offset"]) == (2, True, 1)
    second = pack("list_directory", path="src", limit=1, offset=1)
    assert [entry["path"] for entry in second["entries"]] == ["src/util.py"]
    assert second["next_offset"] is None


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ({"pattern": "*.py"}, ["src/main.py", "src/util.py"]),
        ({"pattern": "src/*"}, ["src/main.py", "src/util.py"]),
        ({"pattern": "src/**/main.py"}, ["src/main.py"]),
        ({"pattern": "main.*", "path": "src"}, ["src/main.py"]),
        ({"pattern": "**"}, ["README.md", "src/main.py", "src/util.py"]),
        ({"pattern": "HEAD"}, []),
        ({"pattern": "HEAD", "path": ".git"}, [".git/HEAD"]),
        ({"pattern": "nothing"}, []),
    ],
)
def test_files_are_found_by_glob(pack: Any, arguments: dict[str, Any], found: list[str]) -> None:
    assert [file["path"] for file in pack("find_files", **arguments)["files"]] == found


def test_found_files_come_in_pages(pack: Any) -> None:
    first = pack("find_files", pattern="**", limit=2)
    assert (len(first["files"]), first["total"], first["next_offset"]) == (2, 3, 2)
    assert pack("find_files", pattern="**", limit=2, offset=2)["next_offset"] is None


@pytest.mark.parametrize("pattern", ["a[bc]", "../**", "/etc/*", "{a,b}"])
def test_a_pattern_that_is_no_glob_is_invalid(pack: Any, pattern: str) -> None:
    with pytest.raises(InvalidInput):
        pack("find_files", pattern=pattern)


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ({"query": "hello"}, [("src/main.py", 3), ("src/main.py", 4)]),
        ({"query": "hello", "ignore_case": True}, [("README.md", 3), ("src/main.py", 3), ("src/main.py", 4)]),
        ({"query": "^print.*again", "regex": True}, [("src/main.py", 4)]),
        ({"query": "HELLO|TWICE", "regex": True, "ignore_case": True, "glob": "src/**"}, [
            ("src/main.py", 3), ("src/main.py", 4), ("src/util.py", 1)]),
        ({"query": "hello", "glob": "*.md"}, []),
        ({"query": "twice", "path": "src/util.py"}, [("src/util.py", 1)]),
        ({"query": "(n)"}, [("src/util.py", 1)]),
    ],
)  # fmt: skip
def test_text_is_found_line_by_line(
    pack: Any, arguments: dict[str, Any], found: list[tuple[str, int]]
) -> None:
    result = pack("search_text", **arguments)
    assert [(match["path"], match["line"]) for match in result["matches"]] == found
    assert result["truncated"] is False


def test_a_search_counts_what_it_passes_over(pack: Any, root: Path, tmp_path: Path) -> None:
    outside = tmp_path / "secret.txt"
    outside.write_text("hello from outside")
    os.link(outside, root / "second-name.txt")
    (root / "link.txt").symlink_to(outside)
    os.mkfifo(root / "pipe")
    (root / "image").write_bytes(b"hello\0")
    (root / "latin").write_bytes(b"hello \xe9")
    with open(root / "big.log", "wb") as big:
        big.truncate(searching.SEARCHED + 1)
    result = pack("search_text", query="hello")
    assert result["skipped"] == {
        "hardlink": 1,
        "symlink": 1,
        "other": 1,
        "binary": 2,
        "large": 1,
        "folder": 1,
    }
    assert {match["path"] for match in result["matches"]} == {"src/main.py"}


def test_a_search_sees_only_what_is_in_scope(pack: Any) -> None:
    pack.bound = ("path read src/**",)
    result = pack("search_text", query="hello", ignore_case=True)
    assert {match["path"] for match in result["matches"]} == {"src/main.py"}
    assert result["skipped"] == {"scope": 2}
    with pytest.raises(ScopeDenied):
        pack("read_file", path="README.md")


def test_a_search_stops_at_its_limit_and_says_so(pack: Any) -> None:
    result = pack("search_text", query="hello", limit=1)
    assert (len(result["matches"]), result["truncated"], result["stopped_by"]) == (1, True, "limit")
    assert pack("search_text", query="hello", limit=2)["truncated"] is False


def test_a_search_stops_when_its_time_is_up(pack: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(searching, "SECONDS", -1.0)
    result = pack("search_text", query="hello")
    assert (result["stopped_by"], result["truncated"]) == ("time", True)


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("(", "unclosed group"),
        ("a(?=b)", "look-around"),
        (r"(a)\1", "backreferences"),
        ("(?:(?:a?){100}){1000}", "repeats too much"),
        (r"\w{900}", "size limit"),
        ("a{9999999999}", ""),
    ],
)
def test_an_expression_that_cannot_be_used_is_invalid(pack: Any, pattern: str, words: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        pack("search_text", query=pattern, regex=True)
    assert words in caught.value.message


@pytest.mark.parametrize("pattern", [r"(a+)+$", r"(a|aa)+$", r"(.*a){20}$", r"(?:a?){20}a{20}b"])
def test_no_expression_takes_long(pack: Any, root: Path, pattern: str) -> None:
    (root / "a.txt").write_text(("a" * 5000 + "!\n") * 20)
    started = time.monotonic()
    pack("search_text", query=pattern, regex=True, path="a.txt")
    assert time.monotonic() - started < 5


@pytest.mark.parametrize("tool", ["read_file", "list_directory"])
@pytest.mark.parametrize("path", ["..", "/etc", "src/../..", "link", "src//main.py", ""])
def test_no_tool_reads_by_a_path_that_is_not_plain(pack: Any, root: Path, tool: str, path: str) -> None:
    (root / "link").symlink_to("/etc")
    with pytest.raises(PackhostError):
        pack(tool, path=path)
