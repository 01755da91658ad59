"""The page on failures names a test for each of its claims, and each of them exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "failures.md"
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")


def claims() -> list[str]:
    """The rows of the page's tables, without their heads."""
    rows = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    return [row for row in rows if not row.startswith(("| What happens", "| ---"))]


@pytest.mark.parametrize("claim", claims(), ids=lambda claim: claim.split("|")[1].strip())
def test_a_claim_names_tests_that_exist(claim: str) -> None:
    named = NAMED.findall(claim)
    assert named or claim.endswith("| the same |")
    for file, test in named:
        tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
        assert test in {node.name for node in ast.walk(tree) if isinstance(node, kinds)}


def test_each_test_of_failures_is_named() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for file in ("tests/system/test_failures.py", "tests/system/test_takeover.py"):
        tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
        tests = {n.name for n in tree.body if isinstance(n, ast.FunctionDef) and n.name.startswith("test_")}
        assert {test for test in tests if test not in page} <= {"test_clients_survive_many_killed_hosts"}
