"""Globs against tables and against a slow, plain reading of their rules."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from packhost.errors import ConfigInvalid
from packhost.rules.globs import (
    canonical,
    compile_glob,
    matches,
    overlaps,
    tool_includes,
    tool_matches,
)

NAMES = ["".join(letters) for size in (1, 2, 3) for letters in itertools.product("ab.", repeat=size)]
NAMES = [name for name in NAMES if name not in (".", "..")]

pieces = st.lists(st.sampled_from(["a", "b", ".", "*"]), min_size=1, max_size=4).map("".join)
segments = st.one_of(pieces, st.just("**"), st.just("*")).filter(
    lambda text: text == "**" or ("**" not in text and text not in (".", ".."))
)
globs = st.lists(segments, min_size=1, max_size=4).map("/".join)
names = (
    st.lists(st.sampled_from("ab."), min_size=1, max_size=4)
    .map("".join)
    .filter(lambda n: n not in (".", ".."))
)
paths = st.lists(names, max_size=5).map("/".join)


def plain_name(pattern: str, name: str) -> bool:
    if not pattern:
        return not name
    if pattern[0] == "*":
        return any(plain_name(pattern[1:], name[at:]) for at in range(len(name) + 1))
    return bool(name) and name[0] == pattern[0] and plain_name(pattern[1:], name[1:])


def plain(pattern: list[str], path: list[str]) -> bool:
    if not pattern:
        return not path
    if pattern[0] == "**":
        return any(plain(pattern[1:], path[at:]) for at in range(len(path) + 1))
    return bool(path) and plain_name(pattern[0], path[0]) and plain(pattern[1:], path[1:])


def plain_matches(glob: str, path: str) -> bool:
    return plain(glob.split("/"), path.split("/") if path else [])


@pytest.mark.parametrize(
    ("glob", "path", "expected"),
    [
        ("src/**", "src", True),
        ("src/**", "src/a/b.py", True),
        ("src/**", "srcs", False),
        ("src/**", "srcs/a", False),
        ("src/*", "src/a", True),
        ("src/*", "src/a/b", False),
        ("src/*", "src", False),
        ("**", "", True),
        ("**", ".", True),
        ("**", ".hidden/x", True),
        ("*", ".hidden", True),
        ("*", "", False),
        ("**/*.py", "a.py", True),
        ("**/*.py", "x/y/a.py", True),
        ("**/*.py", "x/y/a.pyc", False),
        ("a/**/b", "a/b", True),
        ("a/**/b", "a/x/y/b", True),
        ("a/**/b/**/c", "a/b/c", True),
        ("a/**/b/**/c", "a/c/b", False),
        ("**/a/**/a", "a", False),
        ("a*a", "a", False),
        ("a*a", "aa", True),
        ("Src/**", "src/a", False),
        ("a", "a\n", False),
        ("*", "a\nb", True),
        ("*", "a\\b", True),
        ("*", "a\udcffb", True),
        ("src/**", "src/../x", False),
        ("**", "/etc/passwd", False),
        ("**", "a//b", False),
        ("**", "a/", False),
        ("**", "./a", False),
        ("**", "a/\0", False),
    ],
)
def test_a_glob_matches_as_its_table_says(glob: str, path: str, expected: bool) -> None:
    assert matches(glob, path) is expected


@pytest.mark.parametrize(
    "glob",
    [
        "",
        "/a",
        "//",
        "a//b",
        "a/",
        "./a",
        "a/.",
        "..",
        "a/../b",
        "a**",
        "**b",
        "a/***",
        "a?",
        "{a,b}",
        "[ab]",
        "a\\b",
        "C:/x",
        "c:",
        "~/x",
        "a\0",
        "a\nb",
        "a" * 1025,
    ],
)
def test_what_globs_do_not_have_is_an_error_with_a_hint(glob: str) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        compile_glob(glob)
    assert caught.value.hint
    assert "\n" not in caught.value.message
    assert "\0" not in caught.value.message


def test_a_glob_is_composed_but_a_path_is_compared_as_it_is_on_disk() -> None:
    assert matches("caf\u0065\u0301/**", "caf\u00e9/x")
    assert not matches("caf\u00e9/**", "caf\u0065\u0301/x")
    assert matches("caf*/**", "caf\u0065\u0301/x")


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("src/**", "src", True),
        ("src/**", "docs/**", False),
        ("src/*", "src/*/x", False),
        ("a/**", "**/b", True),
        ("*.py", "a*", True),
        ("a*", "b*", False),
        ("*a", "*b", False),
        ("a*b", "ab", True),
        ("ab*", "*bc", True),
        ("**", "anything/at/all", True),
        ("*/**", "a", True),
        ("**/**", "**", True),
        ("a/**/z", "a/*/*/z", True),
        ("a/**/z", "b/**", False),
        (".*", ".git", True),
    ],
)
def test_two_globs_overlap_as_their_table_says(first: str, second: str, expected: bool) -> None:
    assert overlaps(first, second) is expected
    assert overlaps(second, first) is expected


@settings(max_examples=800, deadline=None)
@given(globs, paths)
def test_matching_agrees_with_a_plain_reading_of_the_rules(glob: str, path: str) -> None:
    assert matches(glob, path) is plain_matches(glob, path)


@settings(max_examples=800, deadline=None)
@given(globs, globs, paths)
def test_globs_that_share_a_path_overlap(first: str, second: str, path: str) -> None:
    if plain_matches(first, path) and plain_matches(second, path):
        assert overlaps(first, second)


two_level = st.lists(
    st.sampled_from(["a", "b", ".a", "*", "a*", "*a", "*b", ".*", "*.", "a*b", "**"]), min_size=1, max_size=2
).map("/".join)
SHORT_PATHS = [""] + [
    "/".join(parts) for size in (1, 2, 3) for parts in itertools.product(NAMES[:12], repeat=size)
]
SHORT_PATHS += ["/".join(parts) for size in (1, 2) for parts in itertools.product(NAMES, repeat=size)]


@settings(max_examples=150, deadline=None)
@given(two_level, two_level)
def test_globs_overlap_exactly_when_a_short_path_is_in_both(first: str, second: str) -> None:
    witness = any(plain_matches(first, path) and plain_matches(second, path) for path in SHORT_PATHS)
    assert overlaps(first, second) is witness


@settings(max_examples=500, deadline=None)
@given(globs, globs)
def test_overlapping_is_symmetric(first: str, second: str) -> None:
    assert overlaps(first, second) is overlaps(second, first)


def test_a_hostile_glob_on_a_hostile_path_is_quick() -> None:
    # Either of these takes a backtracking matcher longer than anyone waits.
    assert not matches("*a" * 100 + "b", "a" * 4000)
    assert not matches("/".join(["**", "a"] * 100) + "/b", "/".join(["a"] * 2000))
    assert overlaps("/".join(["**", "*a*"] * 100), "/".join(["a*", "**"] * 100))


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("", ""),
        (".", ""),
        ("a/.b", "a/.b"),
        ("a/./b", None),
        ("..", None),
        ("/", None),
        ("a//b", None),
        ("\0", None),
    ],
)
def test_a_path_is_clean_or_nothing(path: str, expected: str | None) -> None:
    assert canonical(path) == expected


@pytest.mark.parametrize(
    ("pattern", "name", "expected"),
    [
        ("workspace:*", "workspace:read_file", True),
        ("workspace:*", "workspaces:read_file", False),
        ("*:read_*", "workspace:read_file", True),
        ("*:read_*", "workspace:write_file", False),
        ("*", "a:b", True),
        ("*:*", "a:b", True),
        ("*", "ab", False),
        ("a-*:x", "a-b:x", True),
        ("a:x", "a:x", True),
        ("a:x", "a:xy", False),
        ("a*:y", "a:x:y", False),
    ],
)
def test_a_pattern_matches_tools_as_its_table_says(pattern: str, name: str, expected: bool) -> None:
    assert tool_matches(pattern, name) is expected


@pytest.mark.parametrize(
    "pattern", ["", "read_file", "a:b:c", "A:b", "a:", ":b", "a:**", "**", "a:b/c", "a: b", "a:b\n"]
)
def test_what_is_no_pattern_of_tools_is_an_error_with_a_hint(pattern: str) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        tool_matches(pattern, "a:b")
    assert caught.value.hint


@pytest.mark.parametrize(
    ("outer", "inner", "expected"),
    [
        ("*", "a:b", True),
        ("*", "*", True),
        ("a:*", "a:read_*", True),
        ("a:read_*", "a:*", False),
        ("*:read_*", "a:read_x*", True),
        ("a:*x*", "a:yxz", True),
        ("a:b", "*", False),
        ("a:b*", "a:b", True),
    ],
)
def test_a_pattern_includes_another_as_its_table_says(outer: str, inner: str, expected: bool) -> None:
    assert tool_includes(outer, inner) is expected


tool_patterns = st.tuples(*[st.text("ab*", min_size=1, max_size=3).filter(lambda t: "**" not in t)] * 2).map(
    ":".join
)
tool_names = st.tuples(*[st.text("ab", min_size=1, max_size=4)] * 2).map(":".join)


@settings(max_examples=500, deadline=None)
@given(tool_patterns, tool_patterns, tool_names)
def test_an_included_pattern_matches_nothing_that_the_outer_one_does_not(
    outer: str, inner: str, name: str
) -> None:
    if tool_includes(outer, inner) and tool_matches(inner, name):
        assert tool_matches(outer, name)
