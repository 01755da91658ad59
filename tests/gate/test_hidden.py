"""Hidden parameters: what the host fills, from where, and what stays the agent's to give."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from packhost.gate.hidden import below, fill, filled_by, found
from packhost.gate.types import Answer, Prompt
from packhost.rules.policy import Rule


class Person:
    """Says yes, and remembers what was shown."""

    def __init__(self) -> None:
        self.shown: list[Prompt] = []

    async def ask(self, prompt: Prompt) -> Answer:
        self.shown.append(prompt)
        return Answer("approve", by="person", channel="client")


RECORD = {"_record": {"metadata": {"plan": "gold"}}}


@pytest.mark.parametrize(
    ("name", "variables", "run", "value"),
    [
        ("plan", {"plan": "a"}, {"plan": "b"}, "a"),
        ("plan", {}, {"plan": "b"}, "b"),
        ("plan", RECORD, {}, "gold"),
        ("plan", {"plan": "a", **RECORD}, {}, "a"),
        ("plan", {"account": {"plan": "in"}}, {}, "in"),
        ("plan", {**RECORD, "account": {"plan": "in"}}, {}, "gold"),
        ("plan", {"account": {"plan": "in"}}, {"plan": "b"}, "in"),
        ("plan", {}, RECORD, "gold"),
        ("plan", {"_account": {"plan": "in"}}, {}, None),
        ("plan", {"account": "plan", "list": ["plan"]}, {}, None),
        ("_region", {"_region": "eu"}, {"_region": "us"}, "eu"),
        ("_region", {}, {"_region": "us"}, "us"),
        ("_tenant", {"_tenant": {"id": "acme"}}, {"_tenant": {"id": "evil"}}, {"id": "acme"}),
        ("_endUser", {"_endUser": {"id": "evil"}}, {"_endUser": {"id": "evil"}}, {"id": "ann"}),
        ("nothing", {"nothing": None}, {"nothing": 1}, None),
    ],
)
def test_a_value_comes_from_the_first_that_has_one(
    name: str, variables: dict[str, Any], run: dict[str, Any], value: Any
) -> None:
    arguments = {"other": 1}
    assert fill([name], arguments, variables, "ann", run) is None
    assert arguments.get(name) == value


@pytest.mark.parametrize(
    ("name", "variables", "run"),
    [
        ("_region", {}, {}),
        ("_region", {"account": {"_region": "x"}, "_record": {"metadata": {"_region": "x"}}}, {}),
        ("_tenant", {}, {"_tenant": {"id": "evil"}}),
    ],
)
def test_a_name_with_an_underscore_that_is_not_set_stops_the_call(
    name: str, variables: dict[str, Any], run: dict[str, Any]
) -> None:
    refusal = fill([name], {name: "sent by a model"}, variables, "ann", run)
    assert refusal is not None
    assert (refusal.code, f"`{name}`" in refusal.message) == ("CONFIG_INVALID", True)


def test_what_nothing_fills_stays_visible_and_the_agents_to_give() -> None:
    assert filled_by(["plan", "_region", "account"], {"account": "a"}) == {"_region", "account"}
    arguments = {"plan": "sent by a model"}
    assert fill(["plan"], arguments, {}, "ann") is None
    assert arguments == {"plan": "sent by a model"}


@pytest.mark.anyio
async def test_a_runs_variables_fill_what_the_workspace_leaves_open_and_are_not_shown(bench: Any) -> None:
    bench.variables = {"tenant": "acme"}
    bench.tool("who", hidden_parameters=("tenant", "plan"))
    variables = {"tenant": "evil", "plan": "gold"}
    outcome = await bench.call("who", {"q": 1, "plan": "sent"}, variables=variables, run_id=None)
    assert outcome.value == {"echo": {"q": 1, "tenant": "acme", "plan": "gold"}}
    outcome = await bench.call("who", {"q": 1, "plan": "sent"})
    assert outcome.value == {"echo": {"q": 1, "tenant": "acme", "plan": "sent"}}
    await bench.store.flush()
    shown = bench.store.read(lambda tx: [row[0] for row in tx.execute("SELECT args_json FROM calls")])
    assert sorted(text.count("[REDACTED]") for text in shown) == [1, 2]
    assert sum('"plan":"sent"' in text for text in shown) == 1
    assert [text for text in shown if "gold" in text or "acme" in text] == []


@pytest.mark.anyio
async def test_a_person_is_asked_without_seeing_or_sending_what_the_host_filled(bench: Any) -> None:
    bench.variables = {"tenant": "acme-account"}
    bench.rules = [Rule("ask", "it is sent", False, None, tool="t:send")]
    bench.tool("send", permission="write", hidden_parameters=("tenant",))
    person = Person()
    outcome = await bench.call("send", {"q": 1}, person)
    assert outcome.value == {"echo": {"q": 1, "tenant": "acme-account"}}
    (prompt,) = person.shown
    assert "[REDACTED]" in prompt.text
    assert "acme-account" not in prompt.text


NAMES = st.sampled_from(["plan", "_region", "account", "_record", "metadata", "z"])
VALUES = st.recursive(
    st.integers(0, 3), lambda inner: st.dictionaries(NAMES, inner, max_size=3), max_leaves=6
)
VARIABLES = st.dictionaries(NAMES, VALUES, max_size=4)


@given(above=VARIABLES, own=VARIABLES, name=NAMES)
def test_a_run_below_another_finds_what_the_one_above_finds(above: Any, own: Any, name: str) -> None:
    if name in above or (not name.startswith("_") and filled_by([name], above)):
        assert found(name, below(own, above)) == found(name, above)


def test_a_run_below_another_may_have_more() -> None:
    assert below({"q": 1, "plan": "mine", "set": {"plan": 2}}, {"account": {"plan": "gold"}}) == {
        "account": {"plan": "gold"},
        "q": 1,
    }


def test_the_tenant_of_a_token_comes_before_the_workspaces_and_whatever_was_sent() -> None:
    sent: dict[str, Any] = {"_tenant": {"id": "evil"}, "_endUser": {"id": "evil"}}
    for tenant, expected in (("north", "north"), (None, "harbour")):
        arguments = dict(sent)
        variables = {"_tenant": {"id": "harbour"}, "_endUser": {"id": "nobody"}}
        assert fill(sent.keys(), arguments, variables, "ann", sent, tenant) is None
        assert arguments == {"_tenant": {"id": expected}, "_endUser": {"id": "ann"}}
