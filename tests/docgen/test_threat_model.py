"""The threat model names a test for each of its claims, and each of them exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "threat-model.md"
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")
SITUATIONS = (
    "A solo developer whose agent has a shell",
    "A team on one server",
    "A hostile pack",
    "A hostile upstream",
    "A hostile model",
)


def claims() -> list[str]:
    """The rows of the page's tables, without their heads."""
    rows = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    return [row for row in rows if not row.startswith(("| What holds", "| ---"))]


def known_in(file: Path) -> set[str]:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in ast.walk(tree) if isinstance(node, kinds)}


@pytest.mark.parametrize("claim", claims(), ids=lambda claim: claim.split("|")[1].strip())
def test_a_claim_names_tests_that_exist(claim: str) -> None:
    named = NAMED.findall(claim)
    assert named
    for file, test in named:
        assert test in known_in(ROOT / file)


@pytest.mark.parametrize("title", SITUATIONS)
def test_each_situation_says_what_does_not_hold(title: str) -> None:
    part = PAGE.read_text(encoding="utf-8").split(f"## {title}\n")[1].split("\n## ")[0]
    assert "**Does not hold.**" in part
    assert part.count("\n| ") > 5


def test_doctor_points_to_the_page() -> None:
    assert "docs/threat-model.md" in (ROOT / "host/packhost/cli/doctor.py").read_text(encoding="utf-8")
