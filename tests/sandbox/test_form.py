"""One spelling for each path."""

from __future__ import annotations

import posixpath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from packhost.errors import InvalidInput, ScopeDenied
from packhost.sandbox.form import check_form, problem

pieces = st.sampled_from(
    ["", ".", "..", "a", "b c", "\u00e9", "e\u0301", "~", "C:", "\\", "\x00", "\n", "...", "-", "*"]
)
paths = st.one_of(st.lists(pieces, max_size=6).map("/".join), st.text(max_size=40))


def accepted(path: str) -> bool:
    return problem(path) is None


@given(paths)
def test_a_refusal_is_one_line_and_says_what_to_do(path: str) -> None:
    error = problem(path)
    if error is not None:
        assert isinstance(error, ScopeDenied | InvalidInput)
        assert error.hint
        assert len(error.message.splitlines()) == 1
        assert "\x00" not in error.message


@given(paths)
def test_what_is_accepted_is_plain_and_below_the_root(path: str) -> None:
    if accepted(path):
        assert posixpath.normpath(path) == path
        assert not posixpath.isabs(path)
        assert path.split("/")[0] not in ("..", "~")
        assert "\\" not in path
        assert len(path.splitlines()) == 1


@given(paths, paths)
def test_two_accepted_paths_that_mean_the_same_are_the_same(first: str, second: str) -> None:
    if accepted(first) and accepted(second) and posixpath.normpath(first) == posixpath.normpath(second):
        assert first == second


@pytest.mark.parametrize(
    "path", [".", "a", "a/b", ".hidden", "...", "a b", "\u00e9", "[id]/*.txt", "~file", "10:30.log", "-rf"]
)
def test_ordinary_names_are_accepted(path: str) -> None:
    assert check_form(path) == path
