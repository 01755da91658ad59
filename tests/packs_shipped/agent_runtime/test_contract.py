"""The exact contract of requested_tools and content_blocks."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from packhost_packs.agent_runtime.contract import check_contract
from packhost_packs.agent_runtime.faults import ContractBroken

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats(-1, 1) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
inputs = st.dictionaries(st.text(max_size=3), json_values, max_size=3)
names = st.text(min_size=1, max_size=5)
batches = st.lists(
    st.tuples(st.text(min_size=1, max_size=4), names, inputs), max_size=6, unique_by=lambda c: c[0]
)


def both(calls: list[tuple[str, str, Any]]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    requested = [{"id": i, "name": n, "input": v} for i, n, v in calls]
    blocks: list[dict[str, Any]] = [{"type": "text", "text": "so"}]
    blocks += [{"type": "tool_call", **copy.deepcopy(call)} for call in requested]
    return requested, blocks


def issue_of(requested: Any, blocks: Any, used: Any = ()) -> str:
    with pytest.raises(ContractBroken) as caught:
        check_contract(requested, blocks, used)
    assert caught.value.outcome == "protocol_error"
    return caught.value.issue


@given(batches)
def test_the_same_calls_in_both_places_hold_the_contract(calls: list[tuple[str, str, Any]]) -> None:
    check_contract(*both(calls))


@given(batches.filter(bool), st.data())
def test_a_call_left_out_of_either_list_is_found(calls: list[Any], data: st.DataObject) -> None:
    requested, blocks = both(calls)
    at = data.draw(st.integers(0, len(calls) - 1))
    assert issue_of(requested[:at] + requested[at + 1 :], blocks) == "CONTRACT_MISSING_CALL"
    assert issue_of(requested, blocks[: at + 1] + blocks[at + 2 :]) == "CONTRACT_EXTRA_CALL"


@given(batches.filter(lambda calls: len(calls) > 1), st.data())
def test_another_order_is_found(calls: list[Any], data: st.DataObject) -> None:
    requested, blocks = both(calls)
    order = data.draw(st.permutations(range(len(calls))).filter(lambda p: list(p) != sorted(p)))
    assert issue_of([requested[i] for i in order], blocks) == "CONTRACT_REORDERED"


@given(batches.filter(bool), st.data())
def test_an_id_that_stands_twice_is_found(calls: list[Any], data: st.DataObject) -> None:
    requested, blocks = both(calls)
    twin = data.draw(st.sampled_from(requested))
    twins = [*requested, dict(twin)]
    assert issue_of(twins, [*blocks, {"type": "tool_call", **twin}]) == "CALL_ID_DUPLICATE"


@given(batches.filter(bool), st.data(), names)
def test_another_name_or_input_in_one_place_is_found(
    calls: list[Any], data: st.DataObject, name: str
) -> None:
    requested, blocks = both(calls)
    at = data.draw(st.integers(0, len(calls) - 1))
    renamed = copy.deepcopy(requested)
    renamed[at]["name"] += name
    assert issue_of(renamed, blocks) == "CONTRACT_NAME_MISMATCH"
    requested[at]["input"]["added"] = True
    assert issue_of(requested, blocks) == "CONTRACT_INPUT_MISMATCH"


@pytest.mark.parametrize(
    ("first", "second"), [(1, True), (1, 1.0), (0, False), ([1], [True]), ({"a": 1}, {"a": 1.0}), ("1", 1)]
)
def test_inputs_that_only_look_alike_are_a_mismatch(first: Any, second: Any) -> None:
    requested = [{"id": "a", "name": "t", "input": {"v": first}}]
    blocks = [{"type": "tool_call", "id": "a", "name": "t", "input": {"v": second}}]
    assert issue_of(requested, blocks) == "CONTRACT_INPUT_MISMATCH"


@pytest.mark.parametrize(
    ("broken", "issue"),
    [
        ({"id": None}, "CALL_ID_MISSING"),
        ({"id": 7}, "CALL_ID_MISSING"),
        ({"id": ""}, "CALL_ID_EMPTY"),
        ({"name": None}, "CALL_NAME_MISSING"),
        ({"name": ""}, "CALL_NAME_MISSING"),
        ({"input": None}, "INPUT_NOT_OBJECT"),
        ({"input": []}, "INPUT_NOT_OBJECT"),
        ({"input": "{}"}, "INPUT_NOT_OBJECT"),
    ],
)
def test_a_call_without_identity_name_or_object_is_refused(broken: dict[str, Any], issue: str) -> None:
    call = {"id": "a", "name": "t", "input": {}, **broken}
    assert issue_of([call], [{"type": "tool_call", **call}]) == issue


def test_one_id_for_two_tools_is_a_conflict_and_not_merged() -> None:
    calls = [{"id": "a", "name": "t", "input": {}}, {"id": "a", "name": "u", "input": {}}]
    assert issue_of(calls, [{"type": "tool_call", **call} for call in calls]) == "CALL_ID_CONFLICT"


def test_an_id_of_an_earlier_turn_is_refused() -> None:
    requested, blocks = both([("a", "t", {})])
    assert issue_of(requested, blocks, {"a"}) == "CALL_ID_REUSED"
