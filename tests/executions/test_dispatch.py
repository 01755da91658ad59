"""A definition runs nothing; a handler runs only after a native request, a look-up and a check."""

from __future__ import annotations

from typing import Any

import pytest

from packhost.gate import Caller, CallRequest
from packhost.kinds.context import CallContext

pytestmark = pytest.mark.anyio
STRICT = {
    "type": "object",
    "properties": {"n": {"type": "integer"}},
    "required": ["n"],
    "additionalProperties": False,
}


class Counting:
    """A tool that counts how often it was run."""

    def __init__(self) -> None:
        self.ran: list[Any] = []

    async def __call__(self, context: CallContext, arguments: dict[str, Any]) -> Any:
        self.ran.append(arguments)
        return "fine"


def call(id: str, name: str = "lab_note", **arguments: Any) -> dict[str, Any]:
    return {"id": id, "name": name, "arguments": arguments}


async def test_offering_listing_and_explaining_a_tool_never_runs_it(lab: Any) -> None:
    tool = Counting()
    lab.tool("note", tool, input_schema=STRICT)
    lab.script({"text": 'call lab_note with {"n": 1}: <tool_call>{"name": "lab_note"}</tool_call>'})
    assert (await lab.turn(loop=True)).value["outcome"] == "completed"
    session = await lab.gate.sessions.enter("s-editor", "ann", "editor")
    caller = Caller("ann", "editor", session)
    assert "lab:note" in {one.id.canonical for one in lab.gate.listed(caller).tools}
    assert lab.gate.explain(CallRequest("lab:note", {"n": 1}, caller)).as_json()
    assert tool.ran == []


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (call("a", "lab_nothing", n=1), "TOOL_NOT_FOUND"),
        (call("a", n="1"), "INVALID_INPUT"),
        (call("a"), "INVALID_INPUT"),
        (call("a", n=1, more=2), "INVALID_INPUT"),
        (call("a", n=True), "INVALID_INPUT"),
    ],
)
async def test_a_handler_runs_only_after_request_look_up_and_check(lab: Any, asked: Any, said: str) -> None:
    tool = Counting()
    lab.tool("note", tool, input_schema=STRICT)
    lab.script({"tool_calls": [asked]}, {"tool_calls": [call("b", n=2)]}, {"text": "done"})
    outcome = await lab.turn(loop=True)
    assert outcome.value["outcome"] == "completed"
    assert tool.ran == [{"n": 2}]
    first = [one for one in await lab.events(outcome.value["run_id"]) if one.startswith(("turn", "call"))]
    refused = ["call.refused"] if said == "INVALID_INPUT" else []
    turn = ["turn.started", "turn.completed"]
    assert first == [*turn, *refused, *turn, "call.started", "call.ok", *turn]
