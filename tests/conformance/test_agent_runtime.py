"""The page of the agent runtime's rules is whole, names tests that exist, and is what its file says."""

from __future__ import annotations

import ast
import runpy
from functools import cache
from pathlib import Path
from typing import Any

MODULE = runpy.run_path(str(Path(__file__).parent / "page.py"))
DATA: Any = MODULE["load"]()
ROOT: Path = MODULE["ROOT"]


@cache
def functions_of(file: str) -> frozenset[str]:
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    found = (node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return frozenset(node.name for node in found if node.name.startswith("test_"))


def test_every_item_is_there_once_and_in_order() -> None:
    for part in DATA["parts"]:
        numbers = [number for group in part["groups"] for number in group["items"]]
        assert numbers == list(range(1, part["count"] + 1))
    assert [(part["id"], part["count"]) for part in DATA["parts"]] == [("B", 60), ("C", 61)]


def test_every_item_has_its_test_or_a_sentence() -> None:
    missing = [
        f"{part['id']}{number}"
        for part, number, item in MODULE["items"](DATA)
        if not item.get("tests") and not item.get("not_yet") and (part["id"] == "B" or not item.get("note"))
    ]
    assert missing == []


def test_every_test_that_is_named_exists() -> None:
    named = {name for _, _, item in MODULE["items"](DATA) for name in item.get("tests", ())}
    named |= {name for one in DATA["open"] for name in one["tests"]}
    absent = []
    for name in sorted(named):
        file, _, test = MODULE["node_id"](name, DATA["files"]).partition("::")
        if not (ROOT / file).is_file() or test not in functions_of(file):
            absent.append(name)
    assert absent == []


def test_every_open_point_has_a_decision_a_reason_and_a_test() -> None:
    assert all(one["decision"] and one["why"] and one["tests"] for one in DATA["open"])


def test_the_page_is_what_the_file_says() -> None:
    assert MODULE["PAGE"].read_text(encoding="utf-8") == MODULE["page"](DATA)
