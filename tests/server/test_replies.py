"""What a client's reply to the dialog means."""

from __future__ import annotations

from typing import Any

import pytest
from mcp import types

from packhost.server.asking import KEY, answer_of, meaning, reply


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
    ("means", "verdict"), [("accept", "approve"), ("decline", "deny"), ("cancel", "unanswered")]
)
def test_closing_a_dialog_answers_nothing(means: str, verdict: str) -> None:
    assert answer_of(means, by="ann").verdict == verdict
