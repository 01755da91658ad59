"""The pages on runs and workflows: their examples run, and their table of budgets is the real one."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from packhost.gate import Completed
from packhost_packs.agent_runtime import calling, ledger, limits, retries
from packhost_packs.agent_runtime.workflows import driver, plan

DOCS = Path(__file__).parents[2] / "docs" / "agent-runtime"
FENCE = re.compile(r"^```(\w+)(?: (\w+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def fits(shown: Any, found: Any) -> bool:
    """Whether what a page shows is what was found: members left out may be anything, `…` any rest."""
    if isinstance(shown, dict):
        return isinstance(found, dict) and all(k in found and fits(v, found[k]) for k, v in shown.items())
    if isinstance(shown, list):
        return isinstance(found, list) and len(shown) == len(found) and all(map(fits, shown, found))
    if isinstance(shown, str) and shown.endswith("…"):
        return isinstance(found, str) and found.startswith(shown[:-1])
    return bool(shown == found)


@pytest.mark.anyio
@pytest.mark.parametrize("page", ["runs.md", "workflows.md", "resuming.md"])
async def test_the_examples_of_a_page_do_what_it_says(lab: Any, person: Any, page: str) -> None:
    run_id, outcome, checked = "", None, 0
    for language, kind, body in FENCE.findall((DOCS / page).read_text()):
        if language == "yaml":
            lab.section.update(yaml.safe_load(body)["agent_runtime"])
        elif kind == "call":
            asked = json.loads(body.replace('"RUN"', json.dumps(run_id)))
            if "once" in asked:
                await lab.until(run_id, asked["once"])
            reader = f"reader-{checked}"  # a script says the same ids again: each run in a session of its own
            outcome = await lab.call(asked["tool"], asked["arguments"], asker=person(), client=reader)
            run_id = outcome.value["run_id"] if isinstance(outcome, Completed) else run_id
            if isinstance(outcome, Completed) and outcome.value["outcome"] == "tool_request":
                result = {"type": "tool_result", "tool_use_id": "c1", "content": "two"}
                answer = {"session_id": "by-hand", "messages": [{"role": "user", "content": [result]}]}
                await lab.call("execute-turn", answer, client=reader)
        elif kind == "result":
            found = outcome.value if isinstance(outcome, Completed) else outcome.as_json()  # type: ignore[union-attr]
            assert fits(json.loads(body), found), (body, found)
            checked += 1
    assert checked >= 3


def test_the_table_of_budgets_holds_the_defaults() -> None:
    text = (DOCS / "runs.md").read_text()
    table = dict(re.findall(r"^\| `(\w+)` \| (\d+)(?: s)? \|", text, re.MULTILINE))
    assert table == {name: f"{value:g}" for name, value in limits.Limits().as_json().items()}


@pytest.mark.parametrize(
    ("page", "sentence"),
    [
        ("runs.md", f"kept up to {retries.LONGEST_ASKED:g} s"),
        ("runs.md", f"the wait is {retries.FIRST_DELAY:g} s and doubles up to {retries.LONGEST_DELAY:g} s"),
        ("runs.md", "side by side, eight at most" if calling.SIDE_BY_SIDE == 8 else "?"),
        ("runs.md", "has failed three times" if ledger.SAME_FAILURES == 3 else "?"),
        ("runs.md", "Asked for twice more" if ledger.SAME_REFUSALS == 2 else "?"),
        (
            "workflows.md",
            f"Up to {plan.MAX_NODES} nodes; four run at once" if driver.SIDE_BY_SIDE == 4 else "?",
        ),
    ],
)
def test_a_figure_in_the_text_is_the_real_one(page: str, sentence: str) -> None:
    assert sentence in " ".join((DOCS / page).read_text().split())
