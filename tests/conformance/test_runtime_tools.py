"""The page of tools of every kind is whole, names tests that exist, and is what its file says."""

from __future__ import annotations

import ast
import re
import runpy
from functools import cache
from pathlib import Path
from typing import Any

MODULE = runpy.run_path(str(Path(__file__).parent / "page.py"))
DATA: Any = MODULE["load"](MODULE["TOOLS_DATA"])
ROOT: Path = MODULE["ROOT"]
STANDINGS = {"tests", "open", "no_place"}


@cache
def functions_of(file: str) -> frozenset[str]:
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    found = (node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return frozenset(node.name for node in found if node.name.startswith("test_"))


def test_every_item_is_there_once_and_in_order() -> None:
    (part,) = DATA["parts"]
    assert [n for group in part["groups"] for n in group["items"]] == list(range(1, part["count"] + 1))
    assert part["count"] == 196


def test_every_item_is_held_or_open_or_has_no_place_and_only_one_of_them() -> None:
    wrong = {n: item for _, n, item in MODULE["items"](DATA) if len(STANDINGS & item.keys()) != 1}
    assert wrong == {}
    known = {"what", "note", *STANDINGS}
    assert [n for _, n, item in MODULE["items"](DATA) if not item.keys() <= known] == []


def test_an_open_item_names_what_closes_it_and_one_without_a_place_says_why() -> None:
    for _, number, item in MODULE["items"](DATA):
        if "open" in item:
            assert re.fullmatch(r"[5-9]\.[1-9]", item["open"]), number
        if "no_place" in item:
            assert len(item["no_place"].split()) > 2, number
        assert item.get("tests", True), number


def test_every_test_that_is_named_exists() -> None:
    named = {name for _, _, item in MODULE["items"](DATA) for name in item.get("tests", ())}
    absent = []
    for name in sorted(named):
        file, _, test = MODULE["node_id"](name, DATA["files"]).partition("::")
        if not (ROOT / file).is_file() or test not in functions_of(file):
            absent.append(name)
    assert absent == []


def test_no_file_has_a_word_that_no_item_uses() -> None:
    named = {
        name.partition("::")[0] for _, _, item in MODULE["items"](DATA) for name in item.get("tests", ())
    }
    assert set(DATA["files"]) - named == set()


def test_the_page_is_what_the_file_says() -> None:
    assert MODULE["TOOLS_PAGE"].read_text(encoding="utf-8") == MODULE["tools_page"](DATA)
