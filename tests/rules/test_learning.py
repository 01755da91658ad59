"""Globs from paths that were used: few, and no wider than sensible."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from packhost.rules.globs import matches
from packhost.rules.learning import glob_within, globs_of

NAMES = st.text(st.sampled_from("ab.é* -"), min_size=1, max_size=3).filter(
    lambda name: name not in (".", "..") and "**" not in name
)
PATHS = st.lists(NAMES, min_size=1, max_size=4).map("/".join)


@pytest.mark.parametrize(
    ("files", "folders", "globs"),
    [
        (["a.py"], [], ("a.py",)),
        (["src/a", "src/b"], [], ("src/a", "src/b")),
        (["src/a", "src/b", "src/c"], [], ("src/**",)),
        (["src/a", "src/b", "src/x/c"], [], ("src/**",)),
        (["a/x/1", "a/x/2", "a/x/3", "a/y/1"], [], ("a/x/**", "a/y/1")),
        (["a", "b", "c", "d"], [], ("a", "b", "c", "d")),
        (["src/a"], ["src"], ("src/**",)),
        (["docs/a"], ["src", "src2"], ("docs/a", "src/**", "src2/**")),
        (["a"], [""], ("**",)),
        (["a*b", "c"], [], ("c",)),
        ([], [], ()),
    ],
)
def test_paths_become_globs(files: list[str], folders: list[str], globs: tuple[str, ...]) -> None:
    assert globs_of(files, folders) == globs


def test_a_folder_is_not_taken_whole_beyond_what_holds() -> None:
    assert globs_of(["src/a", "src/b", "src/c"], [], lambda glob: False) == ("src/a", "src/b", "src/c")


@given(st.lists(PATHS, max_size=8), st.lists(PATHS, max_size=3))
@settings(max_examples=300, deadline=None)
def test_every_path_that_can_be_said_is_covered(files: list[str], folders: list[str]) -> None:
    globs = globs_of(files, folders)
    for path in files:
        covered = any(matches(glob, path) for glob in globs)
        assert covered or "*" in path
    for path in folders:
        covered = any(matches(glob, f"{path}/below/it") for glob in globs)
        assert covered or "*" in path


@given(PATHS, PATHS, PATHS)
@settings(max_examples=300, deadline=None)
def test_what_lies_within_matches_nothing_more(inner: str, outer: str, path: str) -> None:
    for wide in (outer.replace("*", "x"), f"{outer.replace('*', 'x')}/**", "**"):
        for narrow in (inner.replace("*", "x"), f"{inner.replace('*', 'x')}/**"):
            if glob_within(narrow, wide) and matches(narrow, path):
                assert matches(wide, path)


@pytest.mark.parametrize(
    ("inner", "outer", "within"),
    [
        ("src/a", "src/**", True),
        ("src/**", "src/**", True),
        ("src", "src/**", True),
        ("src2/a", "src/**", False),
        ("src2/**", "src/**", False),
        ("**", "src/**", False),
        ("src/*.py", "src/**", True),
        ("src/**", "src/*", False),
        ("a/b", "*/b", True),
    ],
)
def test_what_lies_within_is_told(inner: str, outer: str, within: bool) -> None:
    assert glob_within(inner, outer) is within
