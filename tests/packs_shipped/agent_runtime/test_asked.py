"""What a call asks for: messages that can go on, budgets, a model profile, and the manifest itself."""

from __future__ import annotations

from typing import Any

import jsonschema_rs
import pytest

from packhost.errors import InvalidInput, NotFound, PackhostError
from packhost.manifest.load import load_manifest
from packhost.shipped import shipped_manifest
from packhost_packs.agent_runtime.conversation import check_continuation, normalised
from packhost_packs.agent_runtime.limits import Limits, limits_of, seconds
from packhost_packs.agent_runtime.profiles import choose

CALL = {"type": "tool_call", "id": "a", "name": "t", "input": {}}
ASKED = {"role": "assistant", "content": [{"type": "text", "text": "…"}, CALL]}
RESULT = {"type": "tool_result", "tool_use_id": "a", "content": "1"}
TEXT = {"type": "text", "text": "go on"}
SCOPES = ("path read .agent-runtime/**", "path write .agent-runtime/**")
CONTROLLED = ("agent-runtime:remote_control",)


def user(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


@pytest.mark.parametrize(
    ("history", "added"),
    [
        ([], [user(TEXT)]),
        ([ASKED], [user(RESULT)]),
        ([ASKED], [user(RESULT, TEXT)]),
        ([], [user(TEXT), ASKED, user(RESULT), {"role": "assistant", "content": [TEXT]}, user(TEXT)]),
        ([user(TEXT)], [user(TEXT)]),
    ],
)
def test_messages_that_answer_every_call_at_once_can_go_on(history: list[Any], added: list[Any]) -> None:
    check_continuation(history, added)


@pytest.mark.parametrize(
    ("history", "added", "path"),
    [
        ([ASKED], [user(TEXT)], "/messages/0"),
        ([ASKED], [user(TEXT, RESULT)], "/messages/0"),
        ([ASKED], [user(RESULT, RESULT)], "/messages/0"),
        ([ASKED], [user(RESULT, {**RESULT, "tool_use_id": "b"})], "/messages/0"),
        ([ASKED], [{"role": "assistant", "content": [TEXT]}], "/messages/0"),
        ([], [user(RESULT)], "/messages/0"),
        ([], [user(TEXT), ASKED], "/messages/1"),
        ([], [user(TEXT), {"role": "assistant", "content": [TEXT]}], "/messages/1"),
        ([], [user(CALL)], "/messages/0"),
        ([], [user(TEXT), {"role": "assistant", "content": [CALL, CALL]}, user(RESULT)], "/messages/1"),
        ([], [user(TEXT), {"role": "assistant", "content": [RESULT]}, user(TEXT)], "/messages/1"),
    ],
)
def test_messages_that_leave_a_call_open_are_refused_with_their_place(
    history: list[Any], added: list[Any], path: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        check_continuation(history, added)
    assert caught.value.data["path"] == path
    assert caught.value.hint


def test_a_plain_string_becomes_one_text_block() -> None:
    assert normalised([{"role": "user", "content": "hi"}]) == [user({"type": "text", "text": "hi"})]


def test_a_request_can_only_lower_what_a_saved_agent_may_spend() -> None:
    saved = {"max_turns": 5, "wall_clock": "1m"}
    asked = {"max_turns": 9, "wall_clock": "30s", "max_tokens": 7}
    assert limits_of(saved, asked) == Limits(5, 100, 30.0, 7, 6)
    assert limits_of({}, {}) == Limits(20, 100, 900.0, 500_000, 6)


@pytest.mark.parametrize(("text", "number"), [("90s", 90), ("1.5m", 90), ("500ms", 0.5), (3, 3), ("2", 2)])
def test_a_duration_is_read_in_seconds(text: Any, number: float) -> None:
    assert seconds(text) == number


@pytest.mark.parametrize("text", ["", "0", "-1s", "1 week", "400d", 0, -3, float("nan"), float("inf")])
def test_what_is_no_duration_is_invalid_input(text: Any) -> None:
    with pytest.raises(InvalidInput):
        seconds(text)


MAIN = {"provider": "messages_compatible", "model": "m", "base_url": "http://h", "max_tokens": 3}
CONFIG = {
    "default_model": "main",
    "models": {"main": MAIN, "odd": {"provider": "scripted"}},
    "agents": {"helper": {"model": "odd", "system": "s"}},
}


def test_a_profile_is_the_named_one_else_the_agents_else_the_default() -> None:
    assert choose(CONFIG, None, None).name == "main"
    assert choose(CONFIG, None, "helper").name == "odd"
    assert choose(CONFIG, "main", "helper").name == "main"


def test_no_model_names_the_lines_to_add() -> None:
    with pytest.raises(PackhostError) as caught:
        choose({}, None, None)
    assert caught.value.code == "MODEL_NOT_CONFIGURED"
    assert "  default_model: main\n" in caught.value.hint
    assert "secrets: {PROVIDER_KEY: env:PROVIDER_KEY}" in caught.value.hint


def test_a_misspelled_profile_or_agent_names_the_nearest() -> None:
    with pytest.raises(PackhostError) as profile:
        choose(CONFIG, "mian", None)
    with pytest.raises(NotFound) as agent:
        choose(CONFIG, None, "helpr")
    assert "`main`" in profile.value.hint
    assert "`helper`" in agent.value.hint


@pytest.fixture(scope="module")
def manifest() -> Any:
    return load_manifest(shipped_manifest("agent-runtime"), shipped=True)


@pytest.mark.parametrize(
    ("name", "approvals", "output"),
    [
        ("execute-turn", (), True),
        ("resume_workflow", (), False),
        ("pause_turn", CONTROLLED, False),
        ("abort_turn", CONTROLLED, False),
        ("elevate_autonomy", CONTROLLED, False),
        ("lower_autonomy", (), False),
        ("approve_inflight", (), False),
    ],
)
def test_a_tool_is_scoped_and_gated_as_the_reference_has_it(
    manifest: Any, name: str, approvals: tuple[str, ...], output: bool
) -> None:
    tool = manifest.tool(name)
    assert (tool.permission, tool.required_approvals, tool.required_scopes) == ("write", approvals, SCOPES)
    assert (tool.output_schema is not None, tool.control, tool.idempotent) == (output, True, False)
    assert len(manifest.tools) == 7


@pytest.mark.parametrize(
    ("message", "fits"),
    [
        ({"role": "user", "content": "hi"}, True),
        (user(RESULT, TEXT), True),
        (ASKED, True),
        ({"role": "system", "content": "hi"}, False),
        ({"role": "user", "content": ""}, False),
        ({"role": "user", "content": []}, False),
        (user({"type": "tool_call", "id": "a", "name": "t", "input": "{}"}), False),
        (user({"type": "image"}), False),
        ({"role": "user", "content": "hi", "native": {}}, False),
    ],
)
def test_the_input_schema_takes_messages_and_nothing_else(manifest: Any, message: Any, fits: bool) -> None:
    schema = jsonschema_rs.Draft202012Validator(manifest.tool("execute-turn").input_schema)
    assert schema.is_valid({"messages": [message]}) is fits
    assert not schema.is_valid({})
    assert not schema.is_valid({"messages": [message], "singular": True})


@pytest.mark.parametrize(
    ("section", "fits"),
    [
        (CONFIG, True),
        ({}, True),
        ({"models": {"m": {"provider": "scripted", "script": [{"text": "x"}]}}}, True),
        ({"models": {"m": {"provider": "somebody"}}}, False),
        ({"models": {"m": {**MAIN, "max_tokens": 0}}}, False),
        ({"models": {"m": {**MAIN, "key": "x"}}}, False),
        ({"flows": {"f": {}}}, False),
        ({"flows": {"f": {"nodes": [{"id": "a", "prompt": "p"}]}}}, True),
    ],
)
def test_the_configuration_schema_takes_profiles_as_documented(
    manifest: Any, section: Any, fits: bool
) -> None:
    assert jsonschema_rs.Draft202012Validator(manifest.config_schema).is_valid(section) is fits
