"""Messages that have names: sent again they are kept once, whatever they hold by then."""

from __future__ import annotations

from typing import Any

import pytest

from packhost.store.ops import sessions
from packhost_packs.agent_runtime.providers import chat, messages

pytestmark = pytest.mark.anyio
ROLES = ("user", "assistant")
NEXT = {"tool_calls": [{"id": "a", "name": "one", "arguments": {}}]}
ONE = {
    "name": "one",
    "description": "One.",
    "parameters_schema": {"type": "object", "properties": {}},
    "origin": "sdk",
}


def said(role: str, text: str, id: str | None = None) -> dict[str, Any]:
    return {"role": role, "content": text, **({} if id is None else {"id": id})}


@pytest.fixture
def talk(lab: Any) -> Any:
    """Puts messages to a scripted model in one session."""

    async def put(*messages: dict[str, Any], script: tuple[Any, ...] = ({"text": "hi"},), **more: Any) -> Any:
        lab.script(*script)
        return await lab.turn(messages=list(messages), session_id="talk", **more)

    return put


@pytest.fixture
def kept(lab: Any) -> Any:
    """The session's messages: role, text and name."""

    def read() -> list[tuple[str, str, str | None]]:
        history = [row.message for row in lab.store.read(sessions.history, "talk")]
        return [(one["role"], one["content"][0].get("text", ""), one.get("id")) for one in history]

    return read


async def test_a_whole_conversation_sent_again_is_kept_once(talk, kept) -> None:
    first = said("user", "hello", "u1")
    outcome = await talk(first, assistant_message_id="page-1")
    assert outcome.value["message_id"] == "page-1"
    again = said("assistant", "hi, as the page shows it", "page-1")
    await talk(first, again, said("user", "and now?", "u2"), script=({"text": "now"},))
    assert [one[:2] for one in kept()] == [
        ("user", "hello"),
        ("assistant", "hi"),
        ("user", "and now?"),
        ("assistant", "now"),
    ]


async def test_a_message_without_a_name_of_the_callers_gets_one_of_the_hosts(talk, kept) -> None:
    outcome = await talk(said("user", "hello"))
    name = outcome.value["message_id"]
    assert name.startswith("msg_")
    assert kept() == [("user", "hello", None), ("assistant", "hi", name)]
    await talk(said("assistant", "hi", name), said("user", "hello"))
    assert [one[:2] for one in kept()] == [("user", "hello"), ("assistant", "hi")] * 2


async def test_text_alone_makes_no_message_the_same(talk, kept) -> None:
    await talk(said("user", "hello", "u1"))
    await talk(said("user", "hello", "u2"))
    assert [one[2] for one in kept() if one[0] == "user"] == ["u1", "u2"]


async def test_one_that_stands_twice_in_a_request_is_taken_once(talk, kept) -> None:
    await talk(said("user", "hello", "u1"), said("user", "hello again", "u1"))
    assert [one[1] for one in kept()] == ["hello", "hi"]


async def test_where_nothing_new_is_said_nothing_is_asked(talk, kept) -> None:
    await talk(said("user", "hello", "u1"))
    before = kept()
    outcome = await talk(said("user", "hello", "u1"))
    assert (outcome.code, outcome.data["path"]) == ("INVALID_INPUT", "/messages")
    assert kept() == before


async def test_what_was_kept_and_never_answered_is_answered_when_it_is_sent_again(talk, kept) -> None:
    await talk(said("user", "hello", "u1"), script=({"text": ""},))
    assert [one[0] for one in kept()] == ["user"]
    outcome = await talk(said("user", "hello", "u1"))
    assert outcome.value["outcome"] == "completed"
    assert [one[0] for one in kept()] == ["user", "assistant"]


async def test_a_name_that_is_taken_names_no_other_message(talk, kept) -> None:
    await talk(said("user", "hello", "u1"), assistant_message_id="m")
    for name in ("m", "u1", "u2"):
        outcome = await talk(said("user", "more", "u2"), assistant_message_id=name)
        assert (outcome.code, outcome.data["path"]) == ("INVALID_INPUT", "/assistant_message_id")
    assert len(kept()) == 2


async def test_what_cannot_be_gone_on_from_is_told_at_its_own_place(talk) -> None:
    await talk(said("user", "hello", "u1"))
    outcome = await talk(said("user", "hello", "u1"), said("assistant", "I end it"))
    assert (outcome.code, outcome.data["path"]) == ("INVALID_INPUT", "/messages/1")


async def test_a_resumption_names_what_its_leg_ends_with(lab, talk, kept) -> None:
    paused = await talk(
        said("user", "go"),
        script=(NEXT, {"text": "done"}),
        loop=True,
        client_tools=[ONE],
        assistant_message_id="begun",
    )
    asked = {
        "run_id": paused.value["run_id"],
        "tool_outputs": {"a": {"result": 1}},
        "assistant_message_id": "ended",
    }
    outcome = await lab.call("resume_workflow", asked)
    assert (outcome.value["text"], outcome.value["message_id"]) == ("done", "ended")
    assert kept()[-1] == ("assistant", "done", "ended")


async def test_a_workflow_ends_with_no_message(lab) -> None:
    nodes = {"nodes": [{"id": "n", "prompt": "go"}]}
    outcome = await lab.call("execute-turn", {"workflow": nodes, "assistant_message_id": "m"})
    assert (outcome.code, outcome.data["path"]) == ("INVALID_INPUT", "/assistant_message_id")


@pytest.mark.parametrize("wire", [chat.wire_messages, messages.wire_messages])
def test_a_provider_is_told_no_name(wire) -> None:
    named = [{"role": role, "content": [{"type": "text", "text": "hi"}], "id": role} for role in ROLES]
    plain = [{name: value for name, value in one.items() if name != "id"} for one in named]
    assert wire(named) == wire(plain)
