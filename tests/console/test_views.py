"""What the pages show, made from what the operations return: nothing hidden, nothing cut without a word."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from packhost.console.views import (
    approvals,
    audit,
    diffs,
    forms,
    grants,
    narrowing,
    overview,
    runs,
    texts,
    turns,
)
from packhost.console.views import tools as tool_views
from packhost.errors import InvalidInput

NOW = 1_800_000_000.0
HOSTILE = "<script>alert(1)</script>\u202egnp.exe\x1b[31m"


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0, "just now"),
        (-40, "40 seconds ago"),
        (70, "in 1 minute"),
        (-90, "2 minutes ago"),
        (5_400, "in 90 minutes"),
        (-7_200, "2 hours ago"),
        (-200_000, "2 days ago"),
    ],
)
def test_a_time_is_told_as_people_say_it(seconds: float, said: str) -> None:
    found = texts.moment(NOW + seconds, NOW)
    assert found is not None
    assert found.said == said
    assert found.iso.startswith("2027-01-1")
    assert found.exact.endswith(" UTC")


def test_a_value_shows_what_hides_and_letters_that_look_like_others() -> None:
    found = texts.value("path", "p\u0430th\u202e", is_path=True)
    assert "\u202e" not in found.text
    assert "\\u202e" in found.text
    assert any("CYRILLIC SMALL LETTER A" in note for note in found.notes)


def test_a_hidden_value_says_so_and_shows_nothing() -> None:
    assert texts.value("token", "[REDACTED]") == texts.Value("token", "hidden", block=False, redacted=True)


def test_a_long_value_is_cut_with_its_size_and_whole_where_it_is_asked_for() -> None:
    long = "\n".join(f"line {number}" for number in range(500))
    cut, whole = texts.value("content", long), texts.value("content", long, whole=True)
    assert (cut.cut, whole.cut) == (True, False)
    assert cut.size == "500 lines, 4389 characters"
    assert "characters left out" in cut.text
    assert whole.text == long


DIFF = "--- a/x.py\n+++ b/x.py\n@@ -1,3 +1,3 @@\n same\n--- old\n+++ new\n\\ No newline at end of file"


def test_a_diff_is_told_line_by_line_also_where_its_content_looks_like_a_head() -> None:
    found = diffs.preview_of(DIFF)
    assert [line.kind for line in found.lines] == ["file", "file", "hunk", "same", "del", "add", "note"]
    assert found.lines[4].text == "-- old"
    assert found.summary == "1 line added, 1 line removed"


def test_what_is_no_diff_is_shown_as_words() -> None:
    found = diffs.preview_of("GET https://example.org/a?b=+c")
    assert found.lines == ()
    assert found.words == "GET https://example.org/a?b=+c"


def test_a_long_diff_is_cut_and_says_how_much_is_left() -> None:
    long = "--- a/x\n+++ b/x\n@@ -0,0 +1,500 @@\n" + "\n".join(f"+{number}" for number in range(500))
    cut = diffs.preview_of(long)
    assert (len(cut.lines), cut.left) == (diffs.CUT, 503 - diffs.CUT)
    assert cut.summary == "500 lines added, 0 lines removed"
    assert diffs.preview_of(long, None).left == 0


@given(st.text(max_size=200))
def test_a_preview_of_anything_is_shown_whole_and_visible(text: str) -> None:
    found = diffs.preview_of(text, None)
    assert bool(found) is bool(text)
    assert "\u202e" not in found.words + "".join(line.text for line in found.lines)


SCHEMA = {
    "type": "object",
    "required": ["path", "content", "count"],
    "properties": {
        "path": {"type": "string", "x-path": "write", "description": "The file."},
        "content": {"type": "string"},
        "count": {"type": "integer", "minimum": 1, "maximum": 9},
        "ratio": {"type": "number"},
        "unit": {"enum": ["lines", "bytes"], "default": "lines"},
        "whole": {"type": "boolean"},
        "edits": {"type": "array"},
    },
}


def test_a_schema_becomes_fields_of_their_kinds() -> None:
    fields = forms.fields_of(SCHEMA)
    assert fields is not None
    assert [field.control for field in fields] == [
        "line",
        "text",
        "number",
        "number",
        "choice",
        "yes-no",
        "json",
    ]
    assert [field.required for field in fields] == [True, True, True, False, False, False, False]
    assert fields[2].help == "A number from 1 to 9."
    assert fields[4].help == 'Left empty it is "lines".'


def test_what_is_filled_in_is_read_as_its_kind() -> None:
    fields = forms.fields_of(SCHEMA)
    assert fields is not None
    filled = forms.read(
        fields,
        {
            "f.path": "a b",
            "f.content": "one\r\ntwo\r\n",
            "f.count": " 3 ",
            "f.ratio": "1e2",
            "f.unit": "bytes",
            "f.whole": "no",
            "f.edits": '[{"old": "a"}]',
        },
    )
    assert filled.errors == {}
    assert filled.values == {
        "path": "a b",
        "content": "one\ntwo\n",
        "count": 3,
        "ratio": 100.0,
        "unit": "bytes",
        "whole": False,
        "edits": [{"old": "a"}],
    }


def test_an_empty_field_gives_no_value_unless_it_is_a_text_that_is_needed() -> None:
    fields = forms.fields_of(SCHEMA)
    assert fields is not None
    filled = forms.read(fields, {"f.unit": "", "f.whole": ""})
    assert filled.values == {"path": "", "content": ""}
    assert filled.errors == {"count": "this is needed"}


@pytest.mark.parametrize(
    ("key", "text", "said"),
    [
        ("f.count", "3.5", "whole number"),
        ("f.count", "٣", "whole number"),
        ("f.ratio", "NaN", "number"),
        ("f.unit", "pages", "choose one"),
        ("f.whole", "maybe", "yes or no"),
        ("f.edits", "[", "line 1, column 2"),
        ("f.edits", "NaN", "no JSON"),
        ("f.edits", "[" * 100_000, "no JSON"),
    ],
)
def test_what_cannot_be_read_is_told_at_its_field(key: str, text: str, said: str) -> None:
    fields = forms.fields_of(SCHEMA)
    assert fields is not None
    errors = forms.read(fields, {"f.count": "1", key: text}).errors
    assert said in errors[key.removeprefix("f.")]


@pytest.mark.parametrize("schema", [{}, {"properties": {str(n): {} for n in range(100)}}, {"anyOf": []}])
def test_a_schema_without_fields_is_entered_as_json(schema: dict[str, Any]) -> None:
    assert forms.fields_of(schema) is None


MATCH = {"path": {"exact": "src/app/main.py"}, "content": {"exact": "x"}}
PATHS = frozenset({"path"})


def test_without_a_choice_every_argument_stays_exact() -> None:
    choice = narrowing.choice_of(MATCH, PATHS, {})
    assert choice.params == {"only": {}, "any": []}
    assert choice.expires_in == 86_400
    assert choice.arguments[0].suggestions == ("src/app/**", "src/**", "**")
    assert not choice.arguments[1].is_path


def test_a_choice_becomes_what_the_operations_take() -> None:
    choice = narrowing.choice_of(
        MATCH,
        PATHS,
        {
            "how.path": "pattern",
            "pattern.path": " src/** ",
            "how.content": "any",
            "until": "open",
            "uses": "5",
        },
    )
    assert choice.params == {"only": {"path": "src/**"}, "any": ["content"]}
    assert (choice.expires_in, choice.uses) == (None, 5)
    assert choice.ends == "until somebody revokes it, at most 5 times"


@pytest.mark.parametrize(
    "given",
    [
        {"until": "never"},
        {"uses": "0"},
        {"uses": "-1"},
        {"uses": "²"},
        {"how.path": "all"},
        {"how.content": "pattern"},
    ],
)
def test_a_choice_that_there_is_not_is_refused(given: dict[str, str]) -> None:
    with pytest.raises(InvalidInput):
        narrowing.choice_of(MATCH, PATHS, given)


def test_what_was_shown_stands_for_exactly_this_choice() -> None:
    offer = {"match": {"path": {"glob": "src/**"}}, "tool_version": "1"}
    wider = {**offer, "match": {"path": {"glob": "**"}}}
    day, week = narrowing.Choice((), "day"), narrowing.Choice((), "week")
    assert day.digest(offer) == narrowing.Choice((), "day").digest(dict(offer))
    assert len({day.digest(offer), week.digest(offer), day.digest(wider)}) == 3


def approval(**changes: Any) -> dict[str, Any]:
    return {
        "id": "ap_1",
        "status": "pending",
        "tool": "workspace:write_file",
        "tool_version": "1.0.0",
        "arguments": {"path": "src/a.txt", "content": HOSTILE},
        "prompt": (
            'Allow workspace:write_file?\nAsked by a client that calls itself "x" (its own label, no proof), '
            "for ann, in session s at level guarded.\n"
            "Why you are asked: writes are looked at first (packhost.yaml:8:5)"
        ),
        "assurance": "client",
        "approvers_needed": 1,
        "answers": [],
        "session_id": "s",
        "run_id": None,
        "principal": "ann",
        "client": HOSTILE,
        "created_at": NOW - 60,
        "expires_at": NOW + 540,
        "decided_by": None,
        "decided_channel": None,
        "decided_at": None,
        "reason": None,
        "consumed_by": None,
        **changes,
    }


def test_an_approval_tells_what_who_why_and_until_when() -> None:
    facts = approvals.ToolFacts("Write a file", "Create a file.", "write", frozenset({"path"}))
    page = approvals.page_of(approval(), facts, NOW)
    assert page.pending
    assert page.title == "Write a file"
    assert page.left == "9 minutes"
    assert page.reasons == ("writes are looked at first (packhost.yaml:8:5)",)
    assert page.level == "guarded"
    assert "\\u202e" in page.client
    assert "\\u001b" in page.arguments[1].text
    assert page.arguments[0].is_path
    assert page.notes == ()
    odd = approvals.page_of(approval(arguments={"path": "src/p\u0430.txt"}), facts, NOW)
    assert odd.notes == ("path: \u0430 is CYRILLIC SMALL LETTER A (\\u0430)",)


@pytest.mark.parametrize(
    ("changes", "outcome", "state"),
    [
        (
            {
                "status": "approved",
                "decided_by": "ben",
                "decided_channel": "console",
                "answers": [
                    {"by": "ann", "verdict": "approve", "channel": "cli", "assurance": "client"},
                    {"by": "ben", "verdict": "approve", "channel": "console", "assurance": "client"},
                ],
            },
            "allowed by ann and ben in the console",
            "once it is made again",
        ),
        (
            {"status": "approved", "decided_by": "ann", "decided_channel": "cli", "consumed_by": "call_1"},
            "allowed by ann at a terminal",
            "has run",
        ),
        (
            {"status": "denied", "decided_by": "ann", "decided_channel": "client"},
            "denied by ann in the client's dialog",
            "did not run",
        ),
        ({"status": "expired", "decided_by": "host"}, "nobody answered in time", "asks again"),
        ({"status": "cancelled", "decided_by": "host"}, "withdrawn", "did not run"),
    ],
)
def test_a_decided_approval_tells_who_how_and_what_follows(
    changes: dict[str, Any], outcome: str, state: str
) -> None:
    page = approvals.page_of(approval(**changes), approvals.ToolFacts(), NOW)
    assert outcome in page.outcome
    assert state in page.state
    assert not page.pending


def test_a_list_names_the_shortest_of_a_call_and_counts_the_rest() -> None:
    line = approvals.about_call({"path": "a.txt", "content": "x\n" * 50, "three": 3, "four": 4, "five": 5})
    assert line == "a.txt · content: 100 characters · 3 · and 2 more"


def run(**changes: Any) -> dict[str, Any]:
    return {
        "id": "run_1",
        "kind": "agent-runtime:turn",
        "status": "running",
        "outcome": None,
        "session_id": "s",
        "client": "c",
        "agent": None,
        "waiting_on": None,
        "pause_requested": False,
        "created_at": NOW - 60,
        "ended_at": None,
        **changes,
    }


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({}, (True, False, True)),
        ({"pause_requested": True}, (False, True, True)),
        ({"status": "paused"}, (False, True, True)),
        ({"status": "interrupted"}, (False, True, True)),
        ({"status": "completed"}, (False, False, False)),
        ({"kind": "call"}, (False, False, False)),
    ],
)
def test_a_run_offers_what_can_be_done_to_it(changes: dict[str, Any], wanted: tuple[bool, ...]) -> None:
    found = runs.actions(run(**changes))
    assert (found.pause, found.resume, found.abort) == wanted


def test_a_run_says_what_it_waits_for_and_where_to_answer() -> None:
    line = runs.line_of(run(waiting_on="approval:ap_9"), NOW)
    assert line.waits == "waits for a person's answer"
    assert line.waits_link == "/console/approvals/ap_9"
    assert runs.line_of(run(waiting_on="approval:" + HOSTILE), NOW).waits_link == ""


def test_no_level_is_offered_beyond_the_maximum() -> None:
    found = runs.levels("supervised", "guarded")
    assert [(one.name, one.allowed, one.raises) for one in found] == [
        ("observe", True, False),
        ("supervised", True, False),
        ("guarded", True, True),
        ("autonomous", False, True),
    ]


def test_a_budget_is_told_with_its_share() -> None:
    evidence = {
        "budgets": {
            "turns": {"used": 5, "limit": 20},
            "wall_clock": {"used": 90.0, "limit": 900.0},
            "tokens": {"used": 1_200, "limit": None},
            "retries": {"used": 9, "limit": 6},
        }
    }
    assert [(one.said, one.share) for one in runs.budgets(evidence)] == [
        ("5 of 20", 25),
        ("2 minutes of 15 minutes", 10),
        ("1,200", None),
        ("9 of 6", 100),
    ]


TRACE_MESSAGES = {
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "earlier"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "yes"}], "supplied": True},
        {"role": "user", "content": [{"type": "text", "text": HOSTILE}]},
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "c1", "name": "a_b", "input": {"x": 1}}],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "1"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "Done."}]},
    ],
    "events": [{"type": "response"}, {"type": "response"}],
}
TRACE_CHAT = {
    "messages": [
        {"role": "user", "content": "earlier"},
        {"role": "assistant", "content": "yes", "supplied": True},
        {"role": "user", "content": HOSTILE},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c1", "function": {"name": "a_b", "arguments": '{"x": 1}'}}],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "1"},
        {"role": "assistant", "content": "Done."},
    ],
    "events": [{"type": "response"}, {"type": "response"}],
}
CALL = {
    "id": "call_1",
    "tool": "a:b",
    "arguments": {"x": 1},
    "status": "ok",
    "code": None,
    "tool_use_id": "c1",
    "approval_id": "ap_1",
    "grant_id": None,
    "enforcement": "host",
    "result": {"y": HOSTILE},
}


@pytest.mark.parametrize("trace", [TRACE_MESSAGES, TRACE_CHAT], ids=["messages", "chat"])
def test_a_run_is_told_turn_by_turn_in_either_protocol(trace: dict[str, Any]) -> None:
    found = turns.conversation(trace, [CALL], None)
    assert found.earlier == 2
    assert len(found.asked) == 1
    assert "\\u202e" in found.asked[0]
    assert [(turn.number, turn.text) for turn in found.turns] == [(1, ""), (2, "Done.")]
    (call,) = found.turns[0].calls
    assert (call.tool, call.says, call.approval, call.intent) == ("a:b", "went well", "ap_1", "call_1")
    assert call.result is not None
    assert "\\u202e" in call.result.text
    assert found.rest == ()


def test_a_call_that_has_not_run_is_told_as_such() -> None:
    evidence = {"correlation": [{"tool_use_id": "c1", "outcome": "not run", "approval": None}]}
    (call,) = turns.conversation(TRACE_CHAT, [], evidence).turns[0].calls
    assert (call.status, call.says, call.tool) == ("waiting", "has not run", "a_b")


def test_a_reply_whose_calls_still_wait_is_a_turn_as_well() -> None:
    requested = [{"id": "c1", "name": "a_b"}, {"id": "c2", "name": "a_c"}]
    trace = {
        "messages": TRACE_CHAT["messages"][:3],
        "events": [
            {"type": "response", "requested": requested},
            {"type": "approval_asked", "name": "a_b", "input": {"x": HOSTILE}},
        ],
    }
    (turn,) = turns.conversation(trace, [], None).turns
    assert [(call.id, call.status) for call in turn.calls] == [("c1", "waiting"), ("c2", "waiting")]
    assert "\\u202e" in turn.calls[0].arguments[0].text


def test_without_a_trace_the_calls_are_still_told() -> None:
    found = turns.conversation(None, [CALL], None)
    assert [call.id for call in found.rest] == ["call_1"]


def test_an_event_is_told_in_words_with_what_it_happened_to() -> None:
    record = {
        "id": 7,
        "type": "call.refused",
        "actor": "ann",
        "data": {"tool": "a:b", "code": "SCOPE_DENIED", "message": HOSTILE},
        "ts": NOW,
        "execution_id": None,
        "call_id": None,
    }
    event = runs.event_of(record, NOW)
    assert event.text.startswith("a call was refused · a:b · SCOPE_DENIED · <script>")
    assert "\u202e" not in event.text
    assert event.bad
    assert runs.event_of({**record, "data": None}, NOW).redacted


def test_a_search_is_read_from_an_address_and_written_into_one() -> None:
    search = audit.search_of({"q": " ap_1 ", "type": "run.*", "since": "day", "before": "9", "junk": "x"})
    assert search.query == {"q": "ap_1", "type": "run.*", "since": "day"}
    assert search.params(NOW, 50) == {
        "text": "ap_1",
        "type": "run.*",
        "run": "",
        "limit": 50,
        "since": NOW - 86_400,
        "before": 9,
    }
    assert audit.search_of({"since": "ever", "before": "²"}).empty


def test_a_day_is_a_day_of_utc_and_nothing_else() -> None:
    found = audit.Search(day="2027-01-15").params(NOW, 50)
    assert (found["since"], found["until"]) == (1_799_971_200.0, 1_800_057_600.0)
    with pytest.raises(InvalidInput, match="no day"):
        audit.Search(day="2027-02-31").params(NOW, 50)


def test_a_broken_chain_is_told_with_its_place() -> None:
    report = {
        "ok": False,
        "events": 9,
        "first_bad": 4,
        "reason": "the hash differs",
        "redacted": 1,
        "pruned": 0,
        "unfinished": 0,
        "prunings": [{"signed": False}],
    }
    proof = audit.proof_of(report)
    assert proof.says == "The chain is broken at event 4: the hash differs."
    assert proof.notes == (
        "The data of 1 event was removed on purpose, on record.",
        "1 removal was not signed by the present operator.",
    )
    assert audit.proof_of({**report, "ok": True}).says.startswith("The chain holds: 9 events")


def test_a_grant_is_told_in_words() -> None:
    line = grants.line_of(
        {
            "id": "gr_1",
            "state": "void",
            "why": "its tool is not there",
            "tool": "a:b",
            "tool_version": "1",
            "principal": None,
            "words": ['path: any path below "src"'],
            "uses": 1,
            "max_uses": 5,
            "created_by": "ann",
            "created_at": NOW - 10,
            "expires_at": None,
            "revoked_at": None,
        },
        NOW,
    )
    assert (line.says, line.uses, line.principal, line.live) == (
        "covers nothing any more: its tool is not there",
        "used 1 of 5 times",
        "anyone",
        False,
    )


def test_a_tool_that_a_bound_narrows_is_marked_and_one_that_is_withheld_named() -> None:
    tool = {
        "tool": "a:b",
        "title": "B",
        "description": "does b",
        "permission": "write",
        "kind": "python",
        "enforcement": "kernel",
        "required_approvals": [],
        "scopes": ["path write **"],
        "remaining": ["path write src/**"],
    }
    pack = {
        "id": "a",
        "title": "A",
        "version": "1",
        "shipped": False,
        "trusted": False,
        "digest": "d" * 64,
        "tools": ["a:b"],
        "withheld": ["a:c"],
    }
    (found,) = tool_views.packs_of(
        {"packs": [pack]},
        {"tools": [tool], "withheld": [{"tool": "a:c", "layer": "workspace bound", "reason": "no overlap"}]},
    )
    assert found.tools[0].narrowed
    assert found.withheld == (tool_views.Withheld("a:c", "workspace bound", "no overlap"),)
    assert found.origin == "from elsewhere"


def test_the_clients_of_the_last_hour_are_told_the_latest_first() -> None:
    status = {
        "workspace": "/w",
        "accepted": True,
        "pending": [{"text": "a pack", "code": True}],
        "problems": [],
        "warnings": [],
        "broken": None,
        "tools": ["a:b"],
        "withheld": [],
        "store": {"label": "SQLite"},
        "enforcement": {"require": "partial"},
        "autonomy": {"default": "guarded", "maximum": "autonomous"},
        "operator": {"state": "none", "why": ""},
        "replicas": [{"pid": 1, "host": "h", "draining": False}],
    }
    sessions = [
        {"client": "old", "updated_at": NOW - 7_200},
        {"client": "one", "updated_at": NOW - 60},
        {"client": "two", "updated_at": NOW - 5},
        {"client": "one", "updated_at": NOW - 600},
    ]
    found = overview.overview_of(status, sessions, 3, NOW)
    assert [(one.name, one.sessions) for one in found.clients] == [("two", 1), ("one", 2)]
    assert (found.waiting, found.with_code) == (3, True)
