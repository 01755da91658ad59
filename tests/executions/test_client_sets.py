"""Client tools as a set: which are let in, what takes its place, and what is replayed of their calls."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from packhost.gate import Completed, Refusal
from packhost_packs.agent_runtime.client_tools import fingerprint, offered
from packhost_packs.agent_runtime.providers.messages import wire_messages
from packhost_packs.agent_runtime.providers.scripted import ScriptedProvider

pytestmark = pytest.mark.anyio

DONE = {"text": "done"}


def tool(name: str, **more: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    return {"name": name, "description": name, "parameters_schema": schema, "origin": "sdk", **more}


def asks(*calls: tuple[str, str]) -> dict[str, Any]:
    return {"tool_calls": [{"id": id, "name": name, "arguments": {}} for id, name in calls]}


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Every request to the model: its messages as they go out, and the names of its tools."""
    found: list[Any] = []
    before = ScriptedProvider.turn

    async def turn(self: Any, request: Any, **more: Any) -> Any:
        found.append((wire_messages(list(request.messages)), [one.name for one in request.tools]))
        return await before(self, request, **more)

    monkeypatch.setattr(ScriptedProvider, "turn", turn)
    return found


async def start(lab: Any, *script: Any, **arguments: Any) -> Any:
    lab.script(*script)
    with anyio.fail_after(5):
        return await lab.turn(loop=True, **arguments)


async def resume(lab: Any, run_id: str, outputs: Any = None, **more: Any) -> Any:
    asked = {"run_id": run_id, **more}
    if outputs is not None:
        asked["tool_outputs"] = {id: {"result": text} for id, text in outputs.items()}
    with anyio.fail_after(5):
        return await lab.call("resume_workflow", asked)


# what is let in


@pytest.mark.parametrize(
    ("allowlist", "names"),
    [
        (None, ["one", "two", "page_a", "page_b"]),
        ([], ["one", "two"]),
        (["page_a"], ["one", "two", "page_a"]),
        (["page_*"], ["one", "two", "page_a", "page_b"]),
        (["*"], ["one", "two", "page_a", "page_b"]),
        (["page"], ["one", "two"]),
    ],
)
async def test_a_policy_lets_in_the_tools_of_pages_that_it_names(
    lab: Any, sent: Any, allowlist: Any, names: Any
) -> None:
    tools = [tool("one"), tool("two"), tool("page_a", origin="webmcp"), tool("page_b", origin="webmcp")]
    more = {} if allowlist is None else {"client_tools_policy": {"allowlist": allowlist}}
    await start(lab, DONE, client_tools=tools, tools=[], **more)
    assert sent[0][1] == names


async def test_a_policy_with_a_star_inside_is_refused(lab: Any) -> None:
    refused = await start(
        lab, DONE, client_tools=[tool("one")], client_tools_policy={"allowlist": ["a", "p*e"]}
    )
    assert isinstance(refused, Refusal)
    assert (refused.code, refused.data["path"]) == ("INVALID_INPUT", "/client_tools_policy/allowlist/1")


async def test_a_reference_stands_for_a_tool_that_the_host_lists(lab: Any, sent: Any) -> None:
    schema = {"type": "object", "properties": {"x": {"type": "string"}}}
    lab.tool("seen", permission="read", input_schema=schema)
    tools = [tool("one"), {"name": "lab_seen", "catalog": "packhost"}]
    outcome = await start(lab, asks(("a", "lab_seen")), DONE, client_tools=tools, tools=[])
    assert outcome.value["awaits"][0]["origin"] == "webmcp"
    assert sent[0][1] == ["one", "lab_seen"]
    await resume(lab, outcome.value["run_id"], {"a": "from a page"})
    (result,) = (b for m in sent[1][0] for b in m["content"] if b["type"] == "tool_result")
    assert result["content"].startswith("<UNTRUSTED_TOOL_OUTPUT ")
    assert lab.calls(outcome.value["run_id"]) == ()


@pytest.mark.parametrize(
    ("reference", "path", "said"),
    [
        ({"name": "lab_look", "catalog": "other"}, "/client_tools/0/catalog", "`other` is not defined"),
        ({"name": "lab_gone", "catalog": "packhost"}, "/client_tools/0/name", "no tool `lab_gone`"),
        ({"catalog": "packhost"}, "/client_tools/0/name", "no tool"),
        (
            {"name": "lab_look", "catalog": "packhost", "origin": "sdk"},
            "/client_tools/0/origin",
            "has no `origin`",
        ),
    ],
)
async def test_a_reference_that_leads_nowhere_is_never_left_out_in_silence(
    lab: Any, reference: Any, path: str, said: str
) -> None:
    refused = await start(lab, DONE, client_tools=[reference])
    assert (refused.code, refused.data["path"]) == ("INVALID_INPUT", path)
    assert said in refused.message


async def test_a_reference_is_held_to_names_and_policy_like_any_page_tool(lab: Any, sent: Any) -> None:
    reference = {"name": "lab_look", "catalog": "packhost"}
    refused = await start(lab, DONE, client_tools=[tool("lab_look"), reference])
    assert "stands twice" in refused.message
    await start(lab, DONE, client_tools=[reference], tools=[], client_tools_policy={"allowlist": ["x"]})
    assert sent[-1][1] == []


async def test_a_reference_is_not_measured(lab: Any) -> None:
    long = {"type": "object", "properties": {"x": {"type": "string", "description": "d" * 3_000}}}
    lab.tool("long", permission="read", input_schema=long)
    outcome = await start(lab, DONE, client_tools=[{"name": "lab_long", "catalog": "packhost"}])
    assert isinstance(outcome, Completed)
    own = {**tool("mine"), "parameters_schema": long}
    assert isinstance(await start(lab, DONE, client_tools=[own]), Refusal)


# a set that is sent anew


async def test_a_set_that_is_sent_anew_takes_the_place_of_the_former_one(lab: Any, sent: Any) -> None:
    script = (asks(("a", "one")), asks(("b", "one"), ("c", "three")), DONE)
    outcome = await start(lab, *script, client_tools=[tool("one"), tool("two")], tools=[])
    run_id = outcome.value["run_id"]
    outcome = await resume(lab, run_id, {"a": "A"}, client_tools=[tool("three")])
    assert sent[-1][1] == ["three"]
    assert [call["tool_call_id"] for call in outcome.value["awaits"]] == ["c"]
    assert outcome.value["client_tools_fingerprint"] == fingerprint([tool("three")])
    outcome = await resume(lab, run_id, {"c": "C"})
    assert outcome.value["outcome"] == "completed"
    said = {b["tool_use_id"]: b["content"] for m in sent[-1][0] for b in m["content"] if "tool_use_id" in b}
    assert said["b"].startswith("TOOL_NOT_FOUND")
    assert said["c"] == "C"


async def test_a_set_is_checked_again_by_the_runs_own_policy(lab: Any, sent: Any) -> None:
    outcome = await start(
        lab,
        asks(("a", "one")),
        DONE,
        client_tools=[tool("one")],
        tools=[],
        client_tools_policy={"allowlist": ["page_a"]},
    )
    run_id = outcome.value["run_id"]
    bad = await resume(lab, run_id, {"a": "A"}, client_tools=[tool("one", origin="else")])
    assert bad.code == "INVALID_INPUT"
    assert lab.row(run_id).status == "paused"
    pages = [tool("one"), tool("page_a", origin="webmcp"), tool("page_b", origin="webmcp")]
    outcome = await resume(lab, run_id, {"a": "A"}, client_tools=pages)
    assert (outcome.value["outcome"], sent[-1][1]) == ("completed", ["one", "page_a"])


async def test_a_set_that_has_not_changed_is_named_by_its_fingerprint(lab: Any) -> None:
    outcome = await start(lab, asks(("a", "one")), DONE, client_tools=[tool("one")])
    run_id, named = outcome.value["run_id"], outcome.value["client_tools_fingerprint"]
    refused = await resume(lab, run_id, {"a": "A"}, client_tools_fingerprint="ct_other")
    assert refused.code == "RESUME_STATE_CHANGED"
    assert "client_tools_resend_required" in refused.message
    assert lab.row(run_id).status == "paused"
    outcome = await resume(lab, run_id, {"a": "A"}, client_tools_fingerprint=named)
    assert (outcome.value["outcome"], outcome.value["client_tools_fingerprint"]) == ("completed", named)


async def test_a_set_that_does_not_match_its_own_fingerprint_is_refused(lab: Any) -> None:
    outcome = await start(lab, asks(("a", "one")), DONE, client_tools=[tool("one")])
    run_id = outcome.value["run_id"]
    sets = {
        "client_tools": [tool("one"), tool("two")],
        "client_tools_fingerprint": fingerprint([tool("one")]),
    }
    assert (await resume(lab, run_id, {"a": "A"}, **sets)).code == "RESUME_STATE_CHANGED"
    sets["client_tools_fingerprint"] = fingerprint(sets["client_tools"])
    assert (await resume(lab, run_id, {"a": "A"}, **sets)).value["outcome"] == "completed"


# what is replayed


async def test_answered_calls_are_replayed_as_they_were_on_every_later_turn(lab: Any, sent: Any) -> None:
    tools = [tool("one", origin="webmcp")]
    outcome = await start(lab, asks(("a", "one")), DONE, client_tools=tools, session_id="talk")
    await resume(lab, outcome.value["run_id"], {"a": "from a page"})
    first = sent[-1][0]
    for _ in range(2):
        await start(lab, DONE, client_tools=tools, session_id="talk")
        assert sent[-1][0][: len(first)] == first
    assert "<UNTRUSTED_TOOL_OUTPUT " in str(first)
    asked_before = [
        awaited for awaited in await lab.events(outcome.value["run_id"]) if awaited == "call.awaited"
    ]
    assert len(asked_before) == 1


async def test_a_call_is_replayed_only_while_its_tool_is_offered(lab: Any, sent: Any) -> None:
    tools = [tool("one"), tool("two")]
    script = ({**asks(("a", "one"), ("b", "two")), "text": "both"}, DONE)
    outcome = await start(lab, *script, client_tools=tools, session_id="talk")
    await resume(lab, outcome.value["run_id"], {"a": "A", "b": "B"})
    await start(lab, DONE, client_tools=[tool("two")], session_id="talk")
    assert called(sent) == (["b"], ["b"])
    await start(lab, DONE, session_id="talk")
    assert called(sent) == ([], [])
    await start(lab, DONE, client_tools=tools, session_id="talk")
    assert called(sent) == (["a", "b"], ["a", "b"])


def called(sent: Any) -> tuple[list[str], list[str]]:
    """Ids of the calls and of the results in the last request."""
    blocks = [block for message in sent[-1][0] for block in message["content"]]
    return (
        [block["id"] for block in blocks if block["type"] == "tool_use"],
        [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"],
    )


async def test_a_call_that_was_never_answered_is_dropped(
    lab: Any, sent: Any, person: Any, hanging: Any
) -> None:
    tools, hang = [tool("one")], hanging()
    lab.tool("hang", hang)
    script = (asks(("a", "one"), ("h", "lab_hang"), ("c", "one")), DONE)
    outcome = await start(lab, *script, client_tools=tools, session_id="talk")
    run_id = outcome.value["run_id"]
    async with anyio.create_task_group() as group:
        group.start_soon(resume, lab, run_id, {"a": "A"})
        await hang.started.wait()
        await lab.call("abort_turn", {"run_id": run_id}, asker=person())
    await start(lab, DONE, client_tools=tools, session_id="talk")
    assert called(sent) == (["a", "h"], ["a", "h"])


async def test_what_the_host_ran_is_replayed_whatever_is_offered(lab: Any, sent: Any) -> None:
    await start(lab, asks(("a", "lab_look")), DONE, session_id="talk")
    await start(lab, DONE, tools=[], session_id="talk")
    assert called(sent) == (["a"], ["a"])


async def test_the_name_by_which_rules_and_record_know_a_tool_is_the_hosts_to_give(lab: Any) -> None:
    page = {**tool("lab_note"), "origin": "webmcp"}
    outcome = await start(lab, asks(("a", "lab_note")), DONE, client_tools=[page])
    assert outcome.value["waiting_on"] == "client:a"
    assert offered([page])[0].canonical == "client:lab_note"
    for name in ("client:x", "lab:note", "packhost_status", "tool_search"):
        refused = await start(lab, DONE, client_tools=[{**page, "name": name}])
        assert (refused.code, refused.data["path"]) == ("INVALID_INPUT", "/client_tools/0/name")
