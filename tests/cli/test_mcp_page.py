"""The example on the page about servers upstream does what the page says."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

from packhost.manifest.upstream import UpstreamSpec

PAGE = (Path(__file__).parents[2] / "docs/kinds/mcp.md").read_text(encoding="utf-8")
EXAMPLES = dict(re.findall(r"<!-- example: (\S+) -->\n```\w+\n(.*?)```", PAGE, re.S))


def test_the_lines_of_the_page_print_what_it_says(empty: Path, packhost: Callable[..., Any]) -> None:
    for name, text in EXAMPLES.items():
        if name != "console":
            (empty / name).parent.mkdir(parents=True, exist_ok=True)
            (empty / name).write_text(text)
    steps = EXAMPLES["console"].split("$ packhost ")[1:]
    assert len(steps) == 4
    for step in steps:
        line, _, expected = step.partition("\n")
        ran = packhost(*shlex.split(line))
        if line.startswith("call"):
            assert expected.strip() in ran.out + ran.err
        else:
            assert ran.status == 0, ran.err


def test_every_member_that_the_page_names_is_one_of_the_block() -> None:
    named = {"command", "env", "url", "auth", "era", "sandbox", "readable", "writable", "cwd", "keep_over"}
    named |= {"resources", "prompts", "elicitation"}
    assert named <= UpstreamSpec.model_fields.keys()
    assert all(f"`{name}" in PAGE for name in named)
