"""What a relay keeps account of, without any process: requests, questions, handshakes and progress."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from packhost.transports.ledger import HandshakeChanged, Ledger

ENVELOPE = {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}


def line(**members: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **members}).encode()


def read(lines: list[bytes]) -> list[dict[str, Any]]:
    return [json.loads(one) for one in lines]


@pytest.fixture
def opened() -> Ledger:
    """A client of the older era after its handshake with its first host."""
    ledger = Ledger()
    assert list(ledger.greeting()) == []
    ask(ledger, 1, "initialize", protocolVersion="2099-01-01", capabilities={"roots": {}})
    ledger.from_host(line(id=1, result={"protocolVersion": "2025-11-25"}))
    ledger.from_client(line(method="notifications/initialized"))
    return ledger


def ask(ledger: Ledger, id: int | str, method: str, **params: Any) -> dict[str, Any]:
    sent = ledger.from_client(line(id=id, method=method, params=params))
    assert sent is not None
    return dict(json.loads(sent))


def move(ledger: Ledger, version: str = "2025-11-25") -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The host goes, another comes: what the client is told, and what the new host is sent."""
    told, sent = read(ledger.gone()), []
    for id, greeting in ledger.greeting():
        sent.append(json.loads(greeting))
        method = sent[-1]["method"]
        result = {"protocolVersion": version} if method == "initialize" else {}
        more = ledger.greeted(id, line(id=id, result=result))
        sent += [json.loads(more)] if more is not None else []
    return told, sent + read(ledger.owed())


def test_a_new_host_is_greeted_as_the_client_was(opened: Ledger) -> None:
    ask(opened, 2, "logging/setLevel", level="debug")
    opened.from_host(line(id=2, result={}))
    for number, method in enumerate(("resources/subscribe", "resources/subscribe", "resources/unsubscribe")):
        ask(opened, 10 + number, method, uri=f"file:///{number % 2}")
        opened.from_host(line(id=10 + number, result={}))
    _, sent = move(opened)
    assert [(one["method"], one.get("params", {})) for one in sent] == [
        ("initialize", {"protocolVersion": "2025-11-25", "capabilities": {"roots": {}}}),
        ("notifications/initialized", {}),
        ("logging/setLevel", {"level": "debug"}),
        ("resources/subscribe", {"uri": "file:///1"}),
    ]


def test_a_host_of_another_version_is_no_successor(opened: Ledger) -> None:
    with pytest.raises(HandshakeChanged, match="2024-11-05"):
        move(opened, "2024-11-05")


def test_what_the_client_waits_for_goes_to_the_next_host_in_order(opened: Ledger) -> None:
    called = ask(opened, "a", "tools/call", name="x", arguments={"big": 2**70, "float": 1.0})
    ask(opened, 3, "ping")
    ask(opened, 4, "tools/list")
    ask(opened, 5, "tools/call", name="y")
    opened.from_client(line(method="notifications/cancelled", params={"requestId": 5}))
    opened.from_host(line(id=3, result={}))
    _, sent = move(opened)
    assert sent[2:] == [called, {"jsonrpc": "2.0", "id": 4, "method": "tools/list", "params": {}}]
    assert called["packhost/relayed"] == 1


def test_each_call_has_a_number_of_its_own_even_where_ids_come_again(opened: Ledger) -> None:
    numbers = []
    for _ in range(3):
        numbers.append(ask(opened, 7, "tools/call", name="x")["packhost/relayed"])
        opened.from_host(line(id=7, result={}))
    assert numbers == [1, 2, 3]


def test_a_request_is_answered_once(opened: Ledger) -> None:
    ask(opened, 2, "ping")
    answer = line(id=2, result={})
    assert opened.from_host(answer) == [answer]
    assert opened.from_host(answer) == []


def test_a_torn_line_is_nobodys(opened: Ledger) -> None:
    ask(opened, 2, "ping")
    assert opened.from_host(b'{"jsonrpc":"2.0","id":2,"resu') == []
    assert len(move(opened)[1]) == 3


def test_an_ending_host_does_not_fail_what_the_next_one_answers(opened: Ledger) -> None:
    ask(opened, 2, "tools/call", name="x")
    assert opened.from_host(line(id=2, error={"code": -32000, "message": "Connection closed"})) == []
    assert opened.closing
    assert move(opened)[1][-1]["id"] == 2
    assert not opened.closing


def test_questions_of_a_host_that_is_gone_are_withdrawn_and_ids_never_meet(opened: Ledger) -> None:
    question = line(id=1, method="elicitation/create", params={"message": "?"})
    assert opened.from_host(question) == [question]
    told, _ = move(opened)
    assert [(one["method"], one["params"]["requestId"]) for one in told] == [("notifications/cancelled", 1)]
    (again,) = read(opened.from_host(question))
    assert again["id"] == 2
    assert opened.from_client(line(id=1, result={"action": "accept"})) is None
    reply = opened.from_client(line(id=2, result={"action": "accept"}))
    assert reply is not None
    assert json.loads(reply) == {"jsonrpc": "2.0", "id": 1, "result": {"action": "accept"}}
    assert opened.from_client(line(id=2, result={"action": "decline"})) is None


def test_a_host_takes_its_question_back_by_the_id_that_the_client_knows(opened: Ledger) -> None:
    opened.from_host(line(id=3, method="elicitation/create"))
    move(opened)
    opened.from_host(line(id=3, method="elicitation/create"))
    (told,) = read(opened.from_host(line(method="notifications/cancelled", params={"requestId": 3})))
    assert told["params"]["requestId"] == 4
    assert opened.from_host(line(method="notifications/cancelled", params={"requestId": 3})) == []


def test_progress_only_grows_over_two_hosts(opened: Ledger) -> None:
    ask(opened, 2, "tools/call", name="x", _meta={"progressToken": "t"})

    def progress(value: float) -> bool:
        told = line(method="notifications/progress", params={"progressToken": "t", "progress": value})
        return opened.from_host(told) == [told]

    assert [progress(1), progress(3)] == [True, True]
    move(opened)
    assert [progress(1), progress(3), progress(4)] == [False, False, True]


@pytest.mark.parametrize("modern", [True, False])
@pytest.mark.parametrize("same", [True, False])
def test_a_client_hears_of_a_new_hosts_tools_when_they_are_others(modern: bool, same: bool) -> None:
    ledger = Ledger()
    list(ledger.greeting())
    more = {"_meta": ENVELOPE} if modern else {}
    ask(ledger, 1, "tools/list", **more)
    ledger.from_host(line(id=1, result={"tools": [{"name": "a"}]}))
    wanted = {"toolsListChanged": True}
    if modern:
        ask(ledger, 2, "subscriptions/listen", notifications=wanted, **more)
        acknowledged = line(
            method="notifications/subscriptions/acknowledged",
            params={"_meta": {"io.modelcontextprotocol/subscriptionId": 2}},
        )
        assert ledger.from_host(acknowledged) == [acknowledged]
    _, sent = move(ledger)
    if modern:
        assert [one["method"] for one in sent] == ["subscriptions/listen", "tools/list"]
        assert ledger.from_host(acknowledged) == []
    assert sent[-1]["params"] == more
    told = read(ledger.from_host(line(id=sent[-1]["id"], result={"tools": [{"name": "a" if same else "b"}]})))
    assert [one["method"] for one in told] == ([] if same else ["notifications/tools/list_changed"])
    if modern and not same:
        assert told[0]["params"]["_meta"] == {"io.modelcontextprotocol/subscriptionId": 2}


def test_a_silent_host_is_answered_for_and_its_late_answers_lead_nowhere() -> None:
    now = 0.0
    ledger = Ledger(clock=lambda: now)
    list(ledger.greeting())
    ask(ledger, 1, "tools/call", name="x")
    ask(ledger, 2, "tools/list")
    ask(ledger, 3, "subscriptions/listen", notifications={})
    now = 9.0
    assert not ledger.overdue(10)
    now = 10.0
    assert ledger.overdue(10)
    lines, withdrawn = ledger.give_up("process 1 is stopped", "wake it")
    call, listing = read(lines)
    assert call["result"]["isError"] is True
    assert call["result"]["_meta"]["packhost/refusal"]["code"] == "EFFECTS_UNKNOWN"
    assert "wake it" in listing["error"]["message"]
    assert [one["params"]["requestId"] for one in read(withdrawn)] == [1, 2]
    assert ledger.from_host(line(id=1, result={})) == []
    now = 30.0
    assert not ledger.overdue(10)  # a subscription is no request that somebody waits for


EVENTS = st.lists(st.sampled_from(["ask", "answer", "move", "question", "reply", "late"]), max_size=60)


@given(EVENTS)
def test_whatever_happens_each_request_is_answered_once_and_no_answer_meets_a_wrong_question(
    events: list[str],
) -> None:
    ledger = Ledger()
    list(ledger.greeting())
    asked = answered = hosts = own = 0
    open_: list[int] = []
    shown: dict[Any, tuple[int, int]] = {}
    for event in events:
        if event == "ask":
            asked += 1
            ask(ledger, asked, "ping")
            open_.append(asked)
        elif event == "answer" and open_:
            id = open_.pop(0)
            assert len(ledger.from_host(line(id=id, result={}))) == 1
            assert ledger.from_host(line(id=id, result={})) == []
            answered += 1
        elif event == "move":
            hosts, own = hosts + 1, 0
            told, sent = move(ledger)
            assert [one["id"] for one in sent] == open_
            for one in told:
                del shown[one["params"]["requestId"]]
            assert shown == {}
        elif event == "question":
            own += 1
            (question,) = read(ledger.from_host(line(id=own, method="elicitation/create")))
            assert question["id"] not in shown
            shown[question["id"]] = (hosts, own)
        elif event == "reply" and shown:
            id, (host, number) = shown.popitem()
            reply = ledger.from_client(line(id=id, result={}))
            assert reply is not None
            assert host == hosts
            assert json.loads(reply)["id"] == number
            assert ledger.from_client(line(id=id, result={})) is None
    assert len(read(ledger.fail("gone"))) == asked - answered
