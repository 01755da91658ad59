"""The scripted provider, and what a script may be."""

from __future__ import annotations

import math
from typing import Any

import pytest

from packhost.errors import InvalidInput
from packhost_packs.agent_runtime.faults import TurnFault
from packhost_packs.agent_runtime.providers.base import TurnRequest
from packhost_packs.agent_runtime.providers.scripted import ScriptedProvider, check_script, read_script

CALL = {"id": "a", "name": "lab_echo", "arguments": {"x": 1}}


def turn(number: int) -> TurnRequest:
    return TurnRequest("", None, [], (), 1, number)


@pytest.mark.anyio
async def test_each_turn_gets_its_own_reply_whatever_came_before() -> None:
    script = read_script(b"- tool_calls: [{id: a, name: lab_echo, arguments: {x: 1}}]\n- text: done\n")
    second = await ScriptedProvider(script).turn(turn(1), deadline=math.inf)
    first = await ScriptedProvider(script).turn(turn(0), deadline=math.inf)
    assert (second.verdict, second.text) == ("final", "done")
    assert (first.verdict, first.requested) == (
        "tools",
        ({"id": "a", "name": "lab_echo", "input": {"x": 1}},),
    )


@pytest.mark.anyio
async def test_the_end_of_a_script_is_a_protocol_error() -> None:
    with pytest.raises(TurnFault) as caught:
        await ScriptedProvider([{"text": "one"}]).turn(turn(1), deadline=math.inf)
    assert (caught.value.outcome, caught.value.issue) == ("protocol_error", "TERMINAL_MISSING")


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("said", "issue"),
    [
        ({"tool_calls": [{"name": "t"}]}, "CALL_ID_MISSING"),
        ({"tool_calls": [CALL, CALL]}, "CALL_ID_DUPLICATE"),
        ({"tool_calls": [CALL], "stop_reason": "end_turn"}, "CALLS_WITHOUT_TOOL_STOP"),
        ({"text": "x", "stop_reason": "tool_use"}, "STOP_TOOL_WITHOUT_CALLS"),
        ({"text": "x", "stop_reason": "whatever"}, "STOP_UNKNOWN"),
    ],
)
async def test_a_script_is_held_to_the_contract_like_any_provider(said: dict[str, Any], issue: str) -> None:
    with pytest.raises(TurnFault) as caught:
        await ScriptedProvider(check_script([said])).turn(turn(0), deadline=math.inf)
    assert caught.value.issue == issue


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "a list of replies"),
        (b"text: x", "a list of replies"),
        (b"[]", "a list of replies"),
        (b"- 1", "reply 1 of the script is not a mapping"),
        (b"- {txt: x}", "unknown member `txt`"),
        (b"- {text: 1}", "`text` that is not a string"),
        (b"- {stop_reason: no}", "`stop_reason` that is not a string"),
        (b"- {tool_calls: {}}", "not a list of mappings"),
        (b"- {tool_calls: [{tool: x}]}", "unknown member `tool`"),
        (b"- {text: a, text: b}", "a key stands twice"),
        (b"- &a {text: x}\n- *a", "aliases are not allowed"),
        (
            b"- {tool_calls: [{id: a, name: t, arguments: {d: 2026-11-30}}]}",
            "a value that JSON does not have",
        ),
        (b"- {tool_calls: [{id: a, name: t, arguments: {n: .nan}}]}", "a value that JSON does not have"),
        (b"- {1: x}", "a key is not a string"),
        (b"- !!python/object/apply:os.system [ls]", "not readable YAML"),
        (b"[" * 5_000, "not readable YAML"),
        (b"\xff\xfe\x00", "not readable YAML"),
        (b"x" * 1_048_577, "more than"),
    ],
)
def test_what_is_not_a_script_is_refused_with_a_sentence(data: bytes, said: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read_script(data)
    assert said in caught.value.message
    assert "\n" not in caught.value.message
    assert caught.value.hint
