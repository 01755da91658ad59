"""What a client's reply to the dialog means."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from mcp import types

from packhost.gate.types import Prompt
from packhost.server.asking import KEY, answer_of, meaning, reply

PROMPT = Prompt("ap_1", "demo:write", "Run write?", 0.0, nested=False)


@pytest.mark.parametrize(
    ("action", "content", "means"),
    [
        ("accept", None, "accept"),
        ("accept", {}, "accept"),
        ("accept", {"approve": True}, "accept"),
        ("accept", {"answer": " Yes "}, "accept"),
        ("accept", {"approve": False}, "decline"),
        ("accept", {"answer": "no"}, "decline"),
        ("accept", {"answer": "Deny"}, "decline"),
        ("accept", {"approve": True, "really": "no"}, "decline"),
        ("accept", {"n": 0}, "decline"),
        ("accept", {"answer": "later"}, "cancel"),
        ("accept", {"answer": ["yes"]}, "cancel"),
        ("accept", {"answer": ""}, "cancel"),
        ("decline", {"approve": True}, "decline"),
        ("cancel", {"approve": True}, "cancel"),
    ],
)
def test_an_acceptance_that_says_no_is_none(action: Any, content: Any, means: str) -> None:
    result = types.ElicitResult(action=action, content=content)
    assert meaning(result) == means
    params = types.CallToolRequestParams(name="x", input_responses={KEY: result})
    assert reply(params) == means


@pytest.mark.parametrize(
    ("action", "verdict"), [("accept", "approve"), ("decline", "deny"), ("cancel", "unanswered")]
)
def test_closing_a_dialog_answers_nothing(action: Any, verdict: str) -> None:
    assert answer_of(types.ElicitResult(action=action), PROMPT, by="ann").verdict == verdict


@pytest.mark.parametrize(
    ("action", "verdict", "reason"),
    [("accept", "approve", ""), ("decline", "deny", "decline"), ("cancel", "deny", "cancel")],
)
def test_a_form_with_fields_is_given_back_as_it_was_filled_in(action: Any, verdict: str, reason: str) -> None:
    content = {"name": "no", "count": 1} if action == "accept" else None
    form = replace(PROMPT, form={"type": "object", "properties": {"name": {"type": "string"}}})
    answer = answer_of(types.ElicitResult(action=action, content=content), form, by="ann")
    assert (answer.verdict, answer.reason, answer.content) == (verdict, reason, content)
