"""Steps one to four, and what the gate says when one of them stops a call."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import pytest

from packhost.errors import Place
from packhost.gate.types import CallRequest, Completed, Refusal
from packhost.rules.policy import Rule
from packhost.rules.scopes import Layer, parse_scope
from packhost.store.ops import calls

pytestmark = pytest.mark.anyio

PATH_READ = {"type": "object", "properties": {"path": {"type": "string", "x-path": "read"}}}
PATH_WRITE = {"type": "object", "properties": {"path": {"type": "string", "x-path": "write"}}}


def refusal(outcome: Any) -> Refusal:
    assert isinstance(outcome, Refusal), outcome
    return outcome


async def test_a_covered_read_call_runs_and_returns_its_value(bench):
    bench.tool("look", required_scopes=("path read src/**",))
    outcome = await bench.call("look", {"a": 1})
    assert isinstance(outcome, Completed)
    assert outcome.value == {"echo": {"a": 1}}
    assert outcome.text == '{"echo":{"a":1}}'
    assert outcome.enforcement == "host"


async def test_an_unknown_tool_is_refused_with_the_nearest_name(bench):
    bench.tool("look")
    found = refusal(await bench.call("lok"))
    assert (found.code, found.data["near"]) == ("TOOL_NOT_FOUND", ["t_look"])


async def test_a_tool_with_another_name_is_recorded_by_its_canonical_one(bench):
    bench.tool("look")
    bench.tools["t:look"] = replace(bench.tools["t:look"], alias="see")
    bench.reload()
    request = CallRequest("see", {}, bench.caller)
    outcome = await bench.gate.call(request)
    assert isinstance(outcome, Completed)
    await bench.store.flush()
    assert [row.tool for row in bench.store.read(calls.of_execution, outcome.run_id)] == ["t:look"]


async def test_the_wire_name_that_a_tool_had_is_refused_with_the_one_that_it_has(bench):
    bench.tool("look")
    bench.tool("lock")
    bench.tools["t:look"] = replace(bench.tools["t:look"], alias="see")
    bench.reload()
    found = refusal(await bench.call("look"))
    assert (found.code, found.data["near"]) == ("TOOL_NOT_FOUND", ["see"])


async def test_a_call_from_within_another_knows_a_tool_by_its_own_name_still(bench):
    async def outer(context, arguments):
        return await context.call_tool("t_look", {})

    bench.tool("look")
    bench.tool("outer", outer, required_scopes=("tool t:look",))
    bench.tools["t:look"] = replace(bench.tools["t:look"], alias="see")
    bench.reload()
    outcome = await bench.call("outer")
    assert isinstance(outcome, Completed), outcome
    assert outcome.value == {"echo": {}}


async def test_arguments_that_do_not_fit_name_the_offending_place(bench):
    bench.tool("add", input_schema={"type": "object", "properties": {"n": {"type": "integer"}}})
    found = refusal(await bench.call("add", {"n": "x"}))
    assert (found.code, found.data["path"]) == ("INVALID_INPUT", "/n")
    assert bench.ran == []


async def test_arguments_over_the_limit_are_refused(bench):
    bench.limits = type(bench.limits)(100, 1000)
    bench.tool("add")
    assert refusal(await bench.call("add", {"n": "x" * 200})).code == "INVALID_INPUT"


async def test_not_a_number_is_no_argument(bench):
    bench.tool("add")
    assert refusal(await bench.call("add", {"n": float("nan")})).code == "INVALID_INPUT"


async def test_arguments_too_deep_to_be_looked_through_are_refused(bench):
    bench.tool("add")
    deep = "\\ud800 in words"
    for _ in range(900):
        deep = [deep]
    assert refusal(await bench.call("add", {"n": deep})).code == "INVALID_INPUT"


async def test_hidden_parameters_are_filled_by_the_host_and_redacted_in_the_record(bench):
    bench.variables = {"tenant": "acme"}
    bench.tool("who", hidden_parameters=("tenant",))
    outcome = await bench.call("who", {"q": 1})
    assert outcome.value == {"echo": {"q": 1, "tenant": "acme"}}
    await bench.store.flush()
    (shown,) = bench.store.read(lambda tx: tx.execute("SELECT args_json FROM calls").fetchone())
    assert "acme" not in shown
    assert "[REDACTED]" in shown


async def test_what_a_caller_sends_for_a_hidden_parameter_is_replaced(bench):
    bench.variables = {"tenant": "acme"}
    bench.tool("who", hidden_parameters=("tenant",))
    assert (await bench.call("who", {"tenant": "evil"})).value == {"echo": {"tenant": "acme"}}


async def test_a_tool_that_the_bound_does_not_cover_is_neither_listed_nor_run(bench):
    bench.tool("fetch", required_scopes=("network example.org",))
    listing = bench.gate.listed(bench.caller)
    assert listing.tools == ()
    assert listing.withheld[0].layer == "workspace bound"
    found = refusal(await bench.call("fetch"))
    assert (found.code, found.layer) == ("SCOPE_DENIED", "workspace bound")
    assert bench.ran == []


@pytest.mark.parametrize(
    "path",
    [
        "../out",
        "/etc/passwd",
        "src/../../x",
        "src/link",
        "src/hard",
        "docs/a.txt",
        "src/a\0b",
        "",
        "C:\\x",
        "src//../..",
    ],
)
async def test_a_path_outside_the_scopes_is_denied_and_nothing_runs(bench, path, tmp_path):
    (tmp_path / "secret").write_text("s")
    (bench.root / "src" / "link").symlink_to(tmp_path / "secret")
    os.link(tmp_path / "secret", bench.root / "src" / "hard")
    (bench.root / "docs").mkdir()
    (bench.root / "docs" / "a.txt").write_text("x")
    bench.tool("write", permission="write", required_scopes=("path write src/**",), input_schema=PATH_WRITE)
    found = refusal(await bench.call("write", {"path": path}))
    assert found.code in ("SCOPE_DENIED", "INVALID_INPUT", "NOT_FOUND", "TOOL_FAILED")
    assert bench.ran == []


async def test_a_denied_path_names_layer_pattern_and_the_nearest_allowed_one(bench):
    bench.tool("write", permission="write", required_scopes=("path write **",), input_schema=PATH_WRITE)
    found = refusal(await bench.call("write", {"path": "notes.md"}))
    assert (found.code, found.layer) == ("SCOPE_DENIED", "workspace bound")
    assert found.nearest == {"at": "/path", "value": "src/notes.md"}
    assert "src/notes.md" in found.text


async def test_a_callers_narrowing_is_one_more_layer(bench):
    bench.tool("look", required_scopes=("path read **",), input_schema=PATH_READ)
    narrow = (Layer("subagent", (parse_scope("path read docs/**"),)),)
    found = refusal(await bench.call("look", {"path": "src/a.txt"}, narrowing=narrow))
    assert (found.code, found.layer) == ("SCOPE_DENIED", "subagent")


async def test_a_denying_rule_is_named_with_its_line(bench):
    bench.rules = [Rule("deny", "never on Fridays", False, Place("packhost.yaml", 7), tool="t:look")]
    bench.tool("look")
    found = refusal(await bench.call("look"))
    assert found.code == "POLICY_DENIED"
    assert str(found.rule) == "packhost.yaml:7"
    assert "never on Fridays" in found.message


async def test_observe_runs_read_tools_only(bench):
    bench.autonomy = type(bench.autonomy)("observe", "autonomous")
    bench.tool("look")
    bench.tool("change", permission="write")
    assert isinstance(await bench.call("look"), Completed)
    assert refusal(await bench.call("change")).code == "AUTONOMY_DENIED"


async def test_a_pack_from_elsewhere_needs_the_required_enforcement(bench):
    bench.kind.level = "advisory"
    bench.tool("look", shipped=False)
    assert refusal(await bench.call("look")).code == "ENFORCEMENT_UNAVAILABLE"
    bench.require = "advisory"
    bench.reload()
    outcome = await bench.call("look")
    assert isinstance(outcome, Completed)
    assert outcome.enforcement == "advisory"


async def test_explain_shows_every_step_and_records_nothing(bench):
    from packhost.gate.types import CallRequest

    bench.tool("look", required_scopes=("path read **",), input_schema=PATH_READ)
    before = await bench.events()
    good = bench.gate.explain(CallRequest("t:look", {"path": "src/a.txt"}, bench.caller))
    bad = bench.gate.explain(CallRequest("t:look", {"path": "../x"}, bench.caller))
    assert [step.name for step in good.steps][:4] == ["resolve", "admit", "cover", "decide"]
    assert good.verdict == "allow"
    assert (bad.verdict, bad.steps[-1].passed) == ("refuse", False)
    assert await bench.events() == before
    assert bench.ran == []


async def test_a_refusal_is_recorded(bench):
    bench.tool("look", input_schema={"type": "object", "required": ["x"]})
    await bench.call("look")
    assert "call.refused" in await bench.events()
