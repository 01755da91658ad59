"""The examples on the pages about kinds of tools can be accepted and called, and do what the page says."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

TRIED = ("code", "flow", "inline", "subagent")
TRIED_ELSEWHERE = {"elicit", "http", "mcp"}
PAGES = Path(__file__).parents[2] / "docs" / "kinds"


def examples(page: str) -> dict[str, str]:
    text = (PAGES / f"{page}.md").read_text(encoding="utf-8")
    return dict(re.findall(r"<!-- example: (\S+) -->\n```\w+\n(.*?)```", text, re.S))


def fits(shown: Any, found: Any) -> bool:
    """Whether what a page shows is there; members left out may be anything."""
    if isinstance(shown, dict):
        return isinstance(found, dict) and all(k in found and fits(v, found[k]) for k, v in shown.items())
    return bool(shown == found)


def test_every_page_is_tried() -> None:
    assert {path.stem for path in PAGES.glob("*.md")} - TRIED_ELSEWHERE == set(TRIED)


@pytest.mark.parametrize("page", TRIED)
def test_the_call_of_a_page_prints_what_it_says(page: str, empty: Path, packhost: Callable[..., Any]) -> None:
    found = examples(page)
    for name, text in found.items():
        if name not in ("console", "result"):
            (empty / name).parent.mkdir(parents=True, exist_ok=True)
            (empty / name).write_text(text)
    assert packhost("accept", "--yes").status == 0
    line, _, expected = found["console"].partition("\n")
    ran = packhost(*line.removeprefix("$ packhost ").split())
    assert ran.status == 0, ran.err
    if "result" in found:
        assert fits(json.loads(found["result"]), json.loads(ran.out))
    else:
        assert ran.out == expected


def test_code_that_cannot_run_is_told_with_the_line_of_the_manifest(
    empty: Path, packhost: Callable[..., Any]
) -> None:
    for name, text in examples("code").items():
        if name != "console":
            (empty / name).parent.mkdir(parents=True, exist_ok=True)
            (empty / name).write_text(text.replace("price * percent", "price * part"))
    assert packhost("accept", "--yes").status == 0
    ran = packhost("call", "prices:discount", '{"price": 80, "percent": 25}')
    assert ran.status != 0
    told = packhost("doctor").out
    assert "pack.yaml:21:23: tool `discount`: line 1 of `code`: the name `part` is not known" in told
