"""What calls want of their client: put as its era has it, and the call made again with the answers."""

from __future__ import annotations

from typing import Any

import pytest
from fake_host import done, make_tool
from mcp import MCPError
from mcp import types as t

from packhost.gate.types import CallRequest, Outcome, Refusal
from packhost.kinds.inputs import InputNeeded, obtain

NAME = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
WHO = {"method": "elicitation/create", "params": {"message": "Who?", "requestedSchema": NAME}}
SAID = {"role": "user", "content": {"type": "text", "text": "Greet"}}
GREET = {"method": "sampling/createMessage", "params": {"messages": [SAID], "maxTokens": 5}}
ROOTS = {"method": "roots/list", "params": {}}


class Wanting:
    """A tool that wants something until it has it."""

    def __init__(self, served: Any, **requests: Any) -> None:
        self.requests = requests
        self.calls: list[CallRequest] = []
        served.gate.tools["want"] = make_tool("want")
        served.gate._want = self
        served.host.generation += 1

    async def __call__(self, request: CallRequest, _: Any) -> Outcome:
        self.calls.append(request)
        try:
            return done(obtain(request, **self.requests))
        except InputNeeded as needed:
            return Refusal(needed.code, needed.message, data={"inputs": needed.requests})


async def sample(_: Any, params: Any) -> t.CreateMessageResult:
    return t.CreateMessageResult(
        role="assistant", model="none", content=t.TextContent(type="text", text="Hello")
    )


async def roots(_: Any) -> t.ListRootsResult:
    return t.ListRootsResult(roots=[])


@pytest.mark.anyio
@pytest.mark.parametrize("era", ["legacy", "modern"])
@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_all_that_a_call_wants_is_asked_and_the_call_made_again(
    serve: Any, transport: str, era: str
) -> None:
    async with serve(transport, era) as served:
        tool = Wanting(served, who=WHO, greeting=GREET, where=ROOTS)
        more = {"sampling_callback": sample, "list_roots_callback": roots}
        async with served.client("accept", {"name": "Ann"}, **more) as client:
            found = (await client.call_tool("demo_want", {"a": 1})).structured_content
        assert found is not None
        assert found["who"] == {"action": "accept", "content": {"name": "Ann"}}
        assert found["greeting"]["content"]["text"] == "Hello"
        assert found["where"]["roots"] == []
        assert [dict(call.arguments) for call in tool.calls] == [{"a": 1}, {"a": 1}]
        (shown,) = served.dialogs
        assert shown.startswith("demo_want asks for your input, in its own words; it approves nothing")


@pytest.mark.anyio
@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_client_that_cannot_give_it_is_told_so_by_the_protocol(serve: Any, era: str) -> None:
    async with serve("stdio", era) as served:
        Wanting(served, greeting=GREET)
        async with served.client("accept") as client:
            with pytest.raises(MCPError) as caught:
                await client.call_tool("demo_want", {})
        assert caught.value.error.code == -32021
        assert caught.value.error.data == {"requiredCapabilities": {"sampling": {}}}


@pytest.mark.anyio
@pytest.mark.parametrize("era", ["legacy", "modern"])
@pytest.mark.parametrize(
    "request_",
    [
        {"method": "tools/list", "params": {}},
        {"method": "elicitation/create", "params": {"message": "Go", "url": "http://example.org/"}},
        {"method": "elicitation/create", "params": {"message": "Who?", "requestedSchema": {"type": "array"}}},
    ],
    ids=["another method", "a link in the open", "no form"],
)
async def test_what_nobody_can_be_asked_is_the_tools_fault(serve: Any, era: str, request_: Any) -> None:
    async with serve("stdio", era) as served:
        Wanting(served, it=request_)
        async with served.client("accept") as client:
            result = await client.call_tool("demo_want", {})
        assert result.is_error
        assert result.meta["packhost/refusal"]["code"] == "TOOL_FAILED"
        assert served.dialogs == []


@pytest.mark.anyio
async def test_a_call_that_is_never_content_is_given_up(serve: Any) -> None:
    async with serve("stdio", "legacy") as served:
        Wanting(served, who=WHO)
        async with served.client("accept", {"name": 1}) as client:
            result = await client.call_tool("demo_want", {})
        assert result.meta["packhost/refusal"]["code"] == "LIMIT_EXCEEDED"
        assert len(served.dialogs) == 8


@pytest.mark.anyio
async def test_a_call_under_a_key_of_its_own_has_another_one_with_each_answer(serve: Any) -> None:
    async with serve("stdio", "modern") as served:
        tool = Wanting(served, who=WHO)
        async with served.client("accept", {"name": "Ann"}) as client:
            await client.call_tool("demo_want", {}, meta={"packhost/idempotency-key": "one"})
        first, second = (call.idem_key for call in tool.calls)
        assert first is not None
        assert second == f"{first}+who"


@pytest.mark.parametrize(
    ("request_", "answer", "fits"),
    [
        (WHO, {"action": "accept", "content": {"name": "Ann"}}, True),
        (WHO, {"action": "accept", "content": {"name": 1}}, False),
        (WHO, {"action": "accept"}, False),
        (WHO, {"action": "decline"}, True),
        (WHO, {"action": "sign"}, False),
        (WHO, None, False),
        (GREET, {"content": {"type": "text", "text": "Hi"}}, True),
        (GREET, {"roots": []}, False),
        (ROOTS, {"roots": []}, True),
        (ROOTS, {}, False),
    ],
)
def test_an_answer_counts_where_it_fits(request_: Any, answer: Any, fits: bool) -> None:
    class Context:
        inputs = {} if answer is None else {"it": answer}

    if fits:
        assert obtain(Context(), it=request_) == {"it": answer}
    else:
        with pytest.raises(InputNeeded) as caught:
            obtain(Context(), it=request_)
        assert caught.value.requests == {"it": request_}
