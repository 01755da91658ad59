"""A workflow as it is written: what is refused, and where; what texts and conditions find."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from packhost.errors import InvalidInput
from packhost_packs.agent_runtime.workflows.plan import node_of, read_nodes, wake_time
from packhost_packs.agent_runtime.workflows.values import (
    Condition,
    look_up,
    references,
    render,
    result_values,
)


def node(identity: str = "a", *depends_on: str, **more: Any) -> dict[str, Any]:
    return {"id": identity, "prompt": "go", "depends_on": list(depends_on), **more}


def only(**more: Any) -> list[Any]:
    return [{"id": "a", "prompt": "go", **more}]


LATER = [node("a"), node("b", "a")]


@pytest.mark.parametrize(
    ("nodes", "path"),
    [
        (None, "/nodes"),
        ([], "/nodes"),
        ([node(f"n{n}") for n in range(65)], "/nodes"),
        (["a"], "/nodes/0"),
        ([node("")], "/nodes/0/id"),
        ([node("a b")], "/nodes/0/id"),
        ([node("input")], "/nodes/0/id"),
        ([node("x" * 33)], "/nodes/0/id"),
        ([node("../a")], "/nodes/0/id"),
        ([node("a"), node("a")], "/nodes/1/id"),
        (only(promt="x"), "/nodes/0/promt"),
        ([{"id": "a"}], "/nodes/0"),
        (only(messages=[]), "/nodes/0"),
        ([{"id": "a", "messages": []}], "/nodes/0/messages"),
        ([{"id": "a", "messages": [{"role": "system", "content": "x"}]}], "/nodes/0/messages/0"),
        ([{"id": "a", "messages": [{"role": "user", "content": ""}]}], "/nodes/0/messages/0/content"),
        ([{"id": "a", "messages": [{"role": "assistant", "content": "x"}]}], "/nodes/0/messages/0"),
        ([{"id": "a", "prompt": " "}], "/nodes/0/prompt"),
        (only(depends_on=["b"]), "/nodes/0/depends_on/0"),
        (only(depends_on=["a"]), "/nodes/0/depends_on"),
        (only(depends_on="a"), "/nodes/0/depends_on"),
        ([node("a"), node("b", "a", "a")], "/nodes/1/depends_on"),
        ([node("a", "c"), node("b", "a"), node("c", "b")], "/nodes/0/depends_on"),
        (only(join="some"), "/nodes/0/join"),
        (only(loop="yes"), "/nodes/0/loop"),
        (only(tools="x"), "/nodes/0/tools"),
        (only(agent=3), "/nodes/0/agent"),
        (only(limits={"max_turn": 1}), "/nodes/0/limits/max_turn"),
        (only(limits={"max_turns": True}), "/nodes/0/limits/max_turns"),
        (only(limits=3), "/nodes/0/limits"),
        (only(wake_at="tomorrow"), "/nodes/0/wake_at"),
        (only(wake_at="2027-01-01T00:00:00"), "/nodes/0/wake_at"),
        (only(wake_at="+soon"), "/nodes/0/wake_at"),
        (only(wake_at="+9999d"), "/nodes/0/wake_at"),
        (only(wake_at="9999-12-31T23:59:59-12:00"), "/nodes/0/wake_at"),
        (only(wake_at="0001-01-01T00:00:00+12:00"), "/nodes/0/wake_at"),
        (only(when="x"), "/nodes/0/when"),
        (only(when={"path": "input"}), "/nodes/0/when"),
        (only(when={"path": "input", "equals": 1, "contains": 2}), "/nodes/0/when"),
        (only(when={"path": "input", "equals": 1, "or": 2}), "/nodes/0/when/or"),
        (only(when={"path": "input", "exists": 1}), "/nodes/0/when/exists"),
        (only(when=[{"path": "a.text", "equals": "x"}]), "/nodes/0/when"),
        ([*LATER, node("c", "b", when={"path": "a.txt", "exists": True})], "/nodes/2/when"),
        ([*LATER, node("c", "a", when={"path": "b.text", "exists": True})], "/nodes/2/when"),
        ([*LATER, node("c", "b", prompt="{{d.text}}")], "/nodes/2/prompt"),
        ([*LATER, node("c", "b", prompt="{{a}}")], "/nodes/2/prompt"),
        ([*LATER, node("c", "b", prompt="{{a.text.x}}")], "/nodes/2/prompt"),
    ],
)
def test_a_workflow_that_could_not_run_is_refused_with_its_place(nodes: Any, path: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read_nodes({"nodes": nodes})
    assert caught.value.data["path"] == f"/workflow{path}"
    assert caught.value.hint


def test_a_misspelled_member_or_node_names_the_nearest() -> None:
    with pytest.raises(InvalidInput) as member:
        read_nodes({"nodes": only(depends="x")})
    with pytest.raises(InvalidInput) as name:
        read_nodes({"nodes": [node("draft"), node("b", "daft")]})
    assert ("`depends_on`" in member.value.hint, "`draft`" in name.value.hint) == (True, True)


def test_a_node_may_refer_to_whatever_comes_before_it_at_any_depth() -> None:
    nodes = read_nodes({"nodes": [*LATER, node("c", "b", prompt="{{ a.json.x.0 }} {{input}} {{b.status}}")]})
    assert [one.id for one in nodes] == ["a", "b", "c"]


def test_a_node_survives_being_written_down() -> None:
    when = [{"path": "a.text", "contains": "x"}, {"path": "input", "exists": False}]
    nodes = read_nodes({"nodes": [node("a"), node("b", "a", when=when, join="any", wake_at="+3s")]})
    assert [node_of(one.as_json()) for one in nodes] == nodes


def test_a_time_is_one_of_the_clock_or_counts_from_when_the_node_became_ready() -> None:
    assert wake_time("+1m", 100.0) == 160.0
    assert wake_time("2027-01-31T10:00:00+01:00", 0) == datetime(2027, 1, 31, 9, tzinfo=UTC).timestamp()


VALUES = {
    "input": "rain",
    "a": result_values("ended", "completed", '{"n": 1, "list": ["x", {"y": true}], "none": null}'),
    "b": result_values("ended", "incomplete", "plain words"),
}


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{{input}}", "rain"),
        ("{{ b.text }}/{{b.outcome}}", "plain words/incomplete"),
        ("{{a.json.n}} {{a.json.list.1}} {{a.json.none}}", '1 {"y":true} null'),
        ("{{b.json}}|{{c.text}}|{{a.json.list.9}}|{{a.json.n.x}}", "|||"),
        ("{single} {{}} }}{{", "{single}  }}{{"),
    ],
)
def test_a_text_holds_what_its_references_find(template: str, text: str) -> None:
    assert render(template, VALUES) == text


@pytest.mark.parametrize(
    ("path", "test", "value", "holds"),
    [
        ("b.text", "contains", "words", True),
        ("b.text", "contains", 1, False),
        ("b.text", "equals", "plain words", True),
        ("a.json.n", "equals", 1, True),
        ("a.json.n", "equals", 1.0, False),
        ("a.json.n", "equals", True, False),
        ("a.json.n", "contains", 1, False),
        ("a.json.list", "contains", "x", True),
        ("a.json.list", "contains", {"y": True}, True),
        ("a.json.none", "equals", None, True),
        ("a.json.none", "exists", True, True),
        ("a.json.gone", "equals", None, False),
        ("a.json.gone", "exists", True, False),
        ("a.json.gone", "exists", False, True),
        ("b.json", "exists", False, True),
        ("c.text", "contains", "", False),
    ],
)
def test_a_condition_is_a_test_of_what_a_path_finds(path: str, test: Any, value: Any, holds: bool) -> None:
    assert Condition(path, test, value).holds(VALUES) is holds


def test_what_a_model_said_is_put_in_once_and_never_read_as_a_template() -> None:
    values = {"a": result_values("ended", "completed", "{{input}} {{b.text}}"), "input": "secret"}
    assert render("<{{a.text}}>", values) == "<{{input}} {{b.text}}>"


@pytest.mark.parametrize(
    "text", ["{{" + " " * 200_000, "{{ " * 70_000, "{{a" + " }" * 100_000, "{" * 200_000]
)
def test_a_long_text_without_a_reference_is_read_at_once(text: str) -> None:
    began = time.perf_counter()
    assert (references(text), render(text, {})) == ([], text)
    assert time.perf_counter() - began < 1


DAGS = st.integers(1, 7).flatmap(
    lambda size: st.tuples(*(st.sets(st.integers(0, size - 1), max_size=3) for _ in range(size)))
)


@given(DAGS)
def test_exactly_the_graphs_with_a_cycle_are_refused(edges: tuple[set[int], ...]) -> None:
    nodes = [node(f"n{n}", *(f"n{m}" for m in sorted(before))) for n, before in enumerate(edges)]
    left = dict(enumerate(edges))
    while free := [n for n, before in left.items() if not before & set(left)]:
        for n in free:
            del left[n]
    if not left:
        assert len(read_nodes({"nodes": nodes})) == len(edges)
        return
    with pytest.raises(InvalidInput, match="wait for each other"):
        read_nodes({"nodes": nodes})


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists, max_leaves=5), st.text())
def test_looking_something_up_never_fails(value: Any, path: str) -> None:
    look_up(path, {"a": value, "": value})
    render("{{" + path + "}}", {"a": value})
