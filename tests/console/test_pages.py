"""The console's pages over the application itself: what they show, what their forms do, and who may do it."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable
from typing import Any

import anyio
import pytest
from projects import SETTINGS

from packhost.app.host import Host
from packhost.console.pages.table import PAGES
from packhost.console.views.diffs import CUT

pytestmark = pytest.mark.anyio

HOSTILE = "<script>alert(1)</script> \u202egnp.exe \x1b[31m"
SHOWN = "&lt;script&gt;alert(1)&lt;/script&gt;"


async def ask(host: Host, path: str = "src/a.txt", content: str = "new\n", **more: Any) -> str:
    """A write that waits for a person; its approval."""
    arguments = {"path": path, "content": content}
    done = await host.control.request(
        "call", {"tool": "workspace:write_file", "arguments": arguments, "attended": False, **more}
    )
    return str(done["refusal"]["approval_id"])


async def begin(host: Host) -> tuple[str, str]:
    """A run whose first call waits for a person; the run and the approval."""
    arguments = {"messages": [{"role": "user", "content": HOSTILE}], "loop": True, "background": True}
    done = await host.control.request("call", {"tool": "agent-runtime:execute-turn", "arguments": arguments})
    run = str(done["value"]["run_id"])
    with anyio.fail_after(10):
        while not (await host.control.request("runs.show", {"id": run}))["waiting_on"]:
            await moved(host)
    (found,) = [one for one in await pending(host) if one["run_id"] == run]
    return run, str(found["id"])


async def moved(host: Host) -> None:
    """Something was put on record, or a moment went by."""
    head = (await host.control.request("audit.head", {}))["id"]
    await host.control.request("changes.wait", {"after": head, "within": 1})


async def pending(host: Host) -> list[dict[str, Any]]:
    found = await host.control.request("approvals.list", {"status": "pending"})
    return list(found["approvals"])


async def status(host: Host, approval: str) -> str:
    return str((await host.control.request("approvals.show", {"id": approval}))["status"])


async def grants(host: Host) -> list[dict[str, Any]]:
    return list((await host.control.request("grants.list", {"all": True}))["grants"])


async def until(host: Host, run: str, *wanted: str) -> dict[str, Any]:
    """The run, once it stands so."""
    with anyio.fail_after(10):
        while True:
            found: dict[str, Any] = await host.control.request("runs.show", {"id": run})
            if found["status"] in wanted:
                return found
            await moved(host)


async def sent(person: Any, path: str, **form: str) -> Any:
    """A form that leads on; the page that it leads to."""
    answer = await person.post(path, csrf=await person.csrf(), **form)
    assert answer.status_code == 303, answer.text
    return await person.get(answer.headers["location"].removeprefix("/console"))


def words(page: str) -> str:
    """What a page says, without its markup."""
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", page)).split())


# the inbox


async def test_an_empty_inbox_says_what_will_appear_there(person: Any) -> None:
    assert "Nothing waits for you" in words((await person.get("/")).text)


async def test_the_inbox_shows_exactly_what_will_run_who_asks_and_why(host: Host, person: Any) -> None:
    await ask(host, content="one\ntwo\n")
    page = (await person.get("/")).text
    said = words(page)
    for told in (
        "Write a file",
        "workspace:write_file",
        '"src/a.txt"',
        "one two",
        "2 lines added, 0 lines removed",
        "packhost-cli",
        "writes are looked at first (packhost.yaml:8:5)",
        "10 minutes",
    ):
        assert told in said, told
    assert "<title>(1) Inbox" in page


async def test_hostile_text_is_shown_as_text_with_what_hides_in_it_on_every_page(
    host: Host, person: Any
) -> None:
    approval = await ask(host, content=HOSTILE)
    run, nested = await begin(host)
    for path in (
        "/",
        f"/approvals/{approval}",
        f"/approvals/{approval}/whole",
        f"/approvals/{approval}/always",
        f"/runs/{run}",
    ):
        page = (await person.get(path)).text
        assert SHOWN in page, path
        assert "<script>alert" not in page, path
        assert "\u202e" not in page, path
        assert "\\u202e" in page, path
    assert nested


async def test_a_long_diff_is_cut_and_its_whole_is_a_page_away(host: Host, person: Any) -> None:
    approval = await ask(host, content="".join(f"line {number}\n" for number in range(900)))
    first = (await person.get(f"/approvals/{approval}")).text
    whole = (await person.get(f"/approvals/{approval}/whole")).text
    assert first.count("<ins>") < CUT
    assert f"/approvals/{approval}/whole" in first
    assert "line 899" in re.findall(r"<pre class=\"data\".*?</pre>", whole, re.S)[0]
    assert whole.count("<ins>") > 200


async def test_the_whole_of_a_diff_is_in_no_event_and_goes_with_a_redaction(host: Host, person: Any) -> None:
    approval = await ask(host, content="".join(f"line {number}\n" for number in range(900)))
    await sent(person, f"/approvals/{approval}/decide", verdict="deny")
    found = await host.control.request("audit.search", {"type": "approval.requested"})
    (event,) = found["events"]
    assert "preview" not in event["data"]
    assert "+line 899" not in json.dumps(event)
    assert (await host.control.request("approvals.preview", {"id": approval}))["preview"]
    await host.control.request("audit.redact", {"event": event["id"], "reason": "not for everybody"})
    assert (await host.control.request("approvals.preview", {"id": approval}))["preview"] is None
    assert "line 5" not in (await person.get(f"/approvals/{approval}/whole")).text


# answers


async def test_allowing_once_lets_exactly_that_call_run_and_says_so(host: Host, person: Any) -> None:
    approval = await ask(host)
    page = await sent(person, f"/approvals/{approval}/decide", verdict="approve")
    assert await status(host, approval) == "approved"
    assert "Allowed once: Write a file" in words(page.text)
    found = await host.control.request("approvals.show", {"id": approval})
    assert (found["decided_channel"], found["decided_by"]) == ("console", host.principal)


async def test_denying_takes_a_reason_and_leads_back_to_the_inbox(host: Host, person: Any) -> None:
    approval = await ask(host)
    form = {"verdict": "deny", "reason": "not on a Friday", "from": "inbox"}
    page = await sent(person, f"/approvals/{approval}/decide", **form)
    assert "Denied: Write a file" in words(page.text)
    assert "Nothing waits for you" in words(page.text)
    found = await host.control.request("approvals.show", {"id": approval})
    assert (found["status"], found["reason"]) == ("denied", "not on a Friday")
    assert "not on a Friday" in words((await person.get(f"/approvals/{approval}")).text)


async def test_who_answers_second_is_told_plainly_that_it_was_decided(
    host: Host, person: Any, browser: Callable[[], Any]
) -> None:
    approval = await ask(host)
    other = browser()
    await other.enter(ticket=(await host.control.request("console.ticket", {}))["ticket"])
    await sent(other, f"/approvals/{approval}/decide", verdict="deny")
    page = await sent(person, f"/approvals/{approval}/decide", verdict="approve")
    said = words(page.text)
    assert f"Somebody was faster: this was denied by {host.principal} in the console" in said
    assert "Your answer changed nothing" in said
    assert await status(host, approval) == "denied"


async def test_only_an_answer_is_an_answer(host: Host, person: Any) -> None:
    approval = await ask(host)
    for form in ({}, {"verdict": "maybe"}, {"verdict": "approve", "reason": "x" * 1_001}):
        answer = await person.post(f"/approvals/{approval}/decide", csrf=await person.csrf(), **form)
        assert answer.status_code == 400, form
    assert await status(host, approval) == "pending"


async def test_with_an_operator_only_the_passphrase_allows(host: Host, person: Any, operator: str) -> None:
    approval = await ask(host)
    back = {"back": f"/console/approvals/{approval}", "verdict": "approve"}
    page = await sent(person, f"/approvals/{approval}/decide", **back)
    assert "needs the operator" in words(page.text)
    assert await status(host, approval) == "pending"
    await sent(person, f"/approvals/{approval}/decide", passphrase=operator, **back)
    found = await host.control.request("approvals.show", {"id": approval})
    assert found["status"] == "approved"
    assert found["answers"][0]["assurance"] == "operator"


# always allow


async def test_who_may_not_give_grants_allows_nothing_for_good_nor_raises_a_session(
    host: Host, browser: Any
) -> None:
    approval = await ask(host)
    (asked_for,) = await pending(host)
    for scopes, act in (
        (["approvals:read", "approvals:decide"], "decide"),
        (["runs:read", "sessions:write"], "raise"),
    ):
        someone = browser()
        made = await host.control.request("tokens.new", {"role": "operator", "scopes": scopes})
        await someone.enter(token=made["token"])
        if act == "decide":
            params = {"id": approval, "verdict": "approve", "always": {"any": ["content"]}}
            given = {"session": someone.cookie, "op": "approvals.decide", "params": params}
        else:
            params = {"id": asked_for["session_id"], "level": "autonomous"}
            given = {"session": someone.cookie, "op": "sessions.raise", "params": params}
        with pytest.raises(Exception, match="may not do this"):
            await host.control.request("console.act", given)
    assert (await host.control.request("grants.list", {}))["grants"] == []
    assert [one["id"] for one in await pending(host)] == [approval]


def chosen(page: str) -> str:
    found = re.search(r'name="shown" value="(\w*)"', page)
    assert found is not None
    return found[1]


async def test_always_allow_starts_exact_and_shows_what_a_choice_would_allow(host: Host, person: Any) -> None:
    approval = await ask(host, path="src/deep/a.txt")
    path = f"/approvals/{approval}/always"
    first = (await person.get(path)).text
    assert 'path: exactly "src/deep/a.txt"' in words(first)
    assert 'value="src/deep/**"' in first
    form = {
        "how.path": "pattern",
        "pattern.path": "src/**",
        "how.content": "any",
        "until": "hour",
        "uses": "3",
    }
    shown = await person.post(path, csrf=await person.csrf(), step="look", **form)
    said = words(shown.text)
    assert shown.status_code == 200
    assert 'path: any path below "src"' in said
    assert "Mind: `content` may be anything" in said
    assert "for 1 hour, at most 3 times" in said
    assert await grants(host) == []


async def test_what_is_always_allowed_is_exactly_what_was_shown(host: Host, person: Any) -> None:
    approval = await ask(host)
    path, csrf = f"/approvals/{approval}/always", await person.csrf()
    form = {"how.path": "pattern", "pattern.path": "src/**", "how.content": "any", "until": "day", "uses": ""}
    shown = chosen((await person.post(path, csrf=csrf, step="look", **form)).text)
    wider = await person.post(path, csrf=csrf, step="allow", shown=shown, **{**form, "how.path": "any"})
    assert wider.status_code == 200
    assert "This is what you chose now" in words(wider.text)
    assert (await grants(host), await status(host, approval)) == ([], "pending")
    page = await sent(person, path, step="allow", shown=shown, **form)
    (grant,) = await grants(host)
    assert grant["match"] == {"path": {"glob": "src/**"}, "content": {"any": True}}
    assert await status(host, approval) == "approved"
    assert "Calls like it are allowed from now on" in words(page.text)
    assert "Undo: revoke it" in words(page.text)


async def test_an_undo_revokes_the_grant_and_comes_back(host: Host, person: Any) -> None:
    approval = await ask(host)
    path = f"/approvals/{approval}/always"
    first = (await person.get(path)).text
    form = {"how.path": "exact", "how.content": "exact", "until": "day", "uses": ""}
    await sent(person, path, step="allow", shown=chosen(first), **form)
    (grant,) = await grants(host)
    to = f"/approvals/{approval}?grant={grant['id']}"
    page = await sent(person, f"/grants/{grant['id']}/revoke", to=to)
    assert "Calls like it are asked for again" in words(page.text)
    assert (await grants(host))[0]["state"] == "revoked"


@pytest.mark.parametrize("to", ["//evil.example", "https://evil.example", "/approvals/../x", ""])
async def test_an_undo_leads_nowhere_else(host: Host, person: Any, to: str) -> None:
    approval = await ask(host)
    path = f"/approvals/{approval}/always"
    form = {"how.path": "exact", "how.content": "exact", "until": "day", "uses": ""}
    await sent(person, path, step="allow", shown=chosen((await person.get(path)).text), **form)
    (grant,) = await grants(host)
    answer = await person.post(f"/grants/{grant['id']}/revoke", csrf=await person.csrf(), to=to)
    assert answer.headers["location"] == "/console/grants"


@pytest.mark.parametrize(
    "form",
    [
        {"how.path": "pattern", "pattern.path": "lib/**"},
        {"how.path": "pattern", "pattern.path": "../**"},
        {"uses": "0"},
    ],
)
async def test_a_choice_that_cannot_be_is_told_and_grants_nothing(
    host: Host, person: Any, form: dict[str, str]
) -> None:
    approval = await ask(host)
    answer = await person.post(
        f"/approvals/{approval}/always", csrf=await person.csrf(), step="allow", shown="", **form
    )
    assert answer.status_code == 200
    assert 'role="alert"' in answer.text
    assert await grants(host) == []


async def test_a_question_that_was_answered_meanwhile_can_be_allowed_no_more(host: Host, person: Any) -> None:
    approval = await ask(host)
    await sent(person, f"/approvals/{approval}/decide", verdict="deny")
    assert "was denied already" in words((await person.get(f"/approvals/{approval}/always")).text)


# runs


async def test_a_run_is_shown_with_its_turns_calls_budgets_and_events(host: Host, person: Any) -> None:
    run, approval = await begin(host)
    said = words((await person.get(f"/runs/{run}")).text)
    for told in (
        "It waits for a person's answer",
        "Look at it and answer",
        "Turn 1",
        "workspace_write_file",
        "1 of 20",
    ):
        assert told in said, told
    await sent(person, f"/approvals/{approval}/decide", verdict="approve")
    await until(host, run, "completed")
    said = words((await person.get(f"/runs/{run}")).text)
    for told in ("It is done", "went well", "Done.", "the model replied", "allowed by"):
        assert told in said, told
    assert run in (await person.get("/runs")).text


async def test_pausing_resuming_and_ending_take_a_reason_and_change_the_run(host: Host, person: Any) -> None:
    run, approval = await begin(host)
    assert "Pause this run?" in words((await person.get(f"/runs/{run}/do/pause")).text)
    await sent(person, f"/runs/{run}/do/pause", reason="let me look")
    found = await host.control.request("runs.show", {"id": run})
    assert found["pause_requested"] or found["status"] == "paused"
    await sent(person, f"/approvals/{approval}/decide", verdict="approve")
    await until(host, run, "paused")
    await sent(person, f"/runs/{run}/do/resume")
    await until(host, run, "completed")


async def test_ending_a_run_ends_it_and_withdraws_what_it_asks(host: Host, person: Any) -> None:
    run, approval = await begin(host)
    page = await sent(person, f"/runs/{run}/do/abort", reason="wrong branch")
    found = await until(host, run, "aborted")
    assert "Ended." in words(page.text)
    assert found["reason"] == "wrong branch"
    assert await status(host, approval) == "cancelled"
    assert "cannot be done" in words((await person.get(f"/runs/{run}/do/abort")).text)


async def test_a_runs_trace_is_a_file(host: Host, person: Any) -> None:
    run, _ = await begin(host)
    answer = await person.get(f"/runs/{run}/trace")
    assert answer.headers["content-disposition"] == f'attachment; filename="{run}.json"'
    assert json.loads(answer.text)["messages"]


async def test_autonomy_is_raised_for_a_time_and_lowered_and_never_beyond_the_maximum(
    host: Host, person: Any, project: Any
) -> None:
    await ask(host)
    (session,) = (await host.control.request("sessions.list", {}))["sessions"]
    path = f"/sessions/{session['id']}"
    page = await sent(person, path, level="autonomous", lasts="15m", reason="a long job")
    assert "Raised from guarded to autonomous, for 15 minutes" in words(page.text)
    found = await host.control.request("sessions.show", {"id": session["id"]})
    assert found["level"] == "autonomous"
    assert found["level_expires_at"] - host.store.now() == pytest.approx(900, abs=60)
    await sent(person, path, level="observe", lasts="open", reason="")
    assert (await host.control.request("sessions.show", {"id": session["id"]}))["level"] == "observe"
    (project / "packhost.yaml").write_text(f"{SETTINGS}autonomy: {{default: guarded, maximum: guarded}}\n")
    host.workspace.refresh()
    await host.parts.changed()
    answer = await person.post(path, csrf=await person.csrf(), level="autonomous", lasts="1h")
    assert answer.status_code >= 400
    assert (await host.control.request("sessions.show", {"id": session["id"]}))["level"] == "observe"


# tools


async def test_a_tool_is_shown_with_what_the_bound_leaves_of_it(person: Any) -> None:
    said = words((await person.get("/tools")).text)
    assert "workspace:write_file" in said
    assert "narrowed" in said
    said = words((await person.get("/tools/workspace:write_file")).text)
    for told in ("path write **", "path write src/**", "workspace bound packhost.yaml:3:1", "Held by"):
        assert told in said, told


@pytest.mark.parametrize(
    ("path", "says"),
    [("src/a.txt", "A person would be asked first"), ("lib/a.txt", "It would be refused")],
)
async def test_whether_a_call_could_run_is_told_step_by_step(person: Any, path: str, says: str) -> None:
    form = {"f.path": path, "f.content": "x", "session": ""}
    answer = await person.post("/tools/workspace:write_file", csrf=await person.csrf(), **form)
    said = words(answer.text)
    assert says in said
    assert "Is it within every bound?" in said
    assert f'value="{path}"' in answer.text


async def test_asking_whether_a_call_could_run_leaves_nothing_on_record(host: Host, person: Any) -> None:
    csrf = await person.csrf()
    before = (await host.control.request("audit.head", {}))["id"]
    await person.post("/tools/workspace:read_file", csrf=csrf, session="", **{"f.path": "src/a.txt"})
    assert (await host.control.request("audit.head", {}))["id"] == before
    assert (await host.control.request("sessions.list", {}))["sessions"] == []


async def test_arguments_may_be_entered_as_json_and_a_mistake_is_told(person: Any) -> None:
    csrf = await person.csrf()
    wrong = await person.post("/tools/workspace:read_file", csrf=csrf, **{"as": "json", "json": '{"path": '})
    assert "this is no JSON" in words(wrong.text)
    right = await person.post(
        "/tools/workspace:read_file", csrf=csrf, **{"as": "json", "json": '{"path": "src/a.txt"}'}
    )
    assert "It would run" in words(right.text)


async def test_what_waits_for_acceptance_is_shown_and_cannot_be_accepted_here(
    person: Any, project: Any
) -> None:
    (project / "packhost.yaml").write_text(SETTINGS.replace("path write src/**", "path write lib/**"))
    page = (await person.get("/tools")).text
    assert "path write lib/**" in words(page)
    assert "packhost accept" in words(page)
    assert "/accept" not in re.findall(r'action="([^"]+)"', page)


# grants


async def test_grants_are_told_in_words_and_revoked(host: Host, person: Any) -> None:
    assert "Nothing is always allowed" in words((await person.get("/grants")).text)
    approval = await ask(host)
    path = f"/approvals/{approval}/always"
    form = {"how.path": "exact", "how.content": "exact", "until": "open", "uses": "2"}
    shown = chosen((await person.post(path, csrf=await person.csrf(), step="look", **form)).text)
    await sent(person, path, step="allow", shown=shown, **form)
    said = words((await person.get("/grants")).text)
    assert 'path: exactly "src/a.txt"' in said
    assert "used 0 of 2 times" in said
    (grant,) = await grants(host)
    page = await sent(person, f"/grants/{grant['id']}/revoke")
    assert "Revoked" in words(page.text)
    assert "Nothing is always allowed" in words(page.text)
    assert "is revoked" in words((await person.get("/grants?all=1")).text)


async def test_a_proposal_can_be_taken_up(host: Host, person: Any) -> None:
    for number in range(3):
        approval = await ask(host, content=f"{number}")
        await sent(person, f"/approvals/{approval}/decide", verdict="approve")
    page = (await person.get("/grants")).text
    found = re.search(r"/console(/proposals/\w+/accept)", page)
    assert found is not None
    await sent(person, found[1], until="week")
    (grant,) = await grants(host)
    assert grant["state"] == "live"


# the record


async def test_the_record_is_searched_a_page_at_a_time(host: Host, person: Any) -> None:
    approvals = [await ask(host, content=str(number)) for number in range(60)]
    first = (await person.get("/audit?type=approval.requested")).text
    assert first.count('class="row"') == 50
    older = re.search(r'href="/console(/audit\?[^"]+before=\d+)"', first)
    assert older is not None
    second = (await person.get(html.unescape(older[1]))).text
    assert second.count('class="row"') == 10
    found = words((await person.get(f"/audit?q={approvals[3]}")).text)
    assert "a person was asked" in found
    assert "Nothing was found" in words((await person.get("/audit?q=nowhere-to-be-found")).text)
    assert "is no day" in words((await person.get("/audit?day=2027-02-31")).text)


async def test_an_event_is_shown_whole(host: Host, person: Any) -> None:
    await ask(host, content=HOSTILE)
    page = (await person.get("/audit?type=approval.requested")).text
    number = re.search(r'href="/console(/audit/\d+)"', page)
    assert number is not None
    event = (await person.get(number[1])).text
    assert SHOWN in event
    assert "<script>alert" not in event
    for path in ("/audit/999999", "/audit/x", "/audit/²"):
        assert (await person.get(path)).status_code == 404


async def test_the_chain_is_walked_on_demand_and_the_record_is_a_file(host: Host, person: Any) -> None:
    await ask(host)
    answer = await person.post("/audit", csrf=await person.csrf())
    assert "The chain holds" in words(answer.text)
    file = await person.get("/audit/export")
    lines = [json.loads(line) for line in file.text.splitlines()]
    assert [line["id"] for line in lines] == list(range(1, len(lines) + 1))
    assert file.headers["content-disposition"] == 'attachment; filename="audit.jsonl"'


async def test_the_overview_tells_what_waits_who_is_there_and_what_holds(host: Host, person: Any) -> None:
    await ask(host)
    said = words((await person.get("/overview")).text)
    for told in ("1 question waits for you", "packhost-cli", "partial", "guarded", "SQLite"):
        assert told in said, told


# an auditor


async def test_an_auditor_sees_everything_and_no_button_that_changes_anything(
    host: Host, person: Any, auditor: Any
) -> None:
    approval = await ask(host)
    path = f"/approvals/{approval}/always"
    form = {"how.path": "exact", "how.content": "exact", "until": "day", "uses": ""}
    await sent(person, path, step="allow", shown=chosen((await person.get(path)).text), **form)
    run, nested = await begin(host)
    (session,) = (await host.control.request("sessions.list", {}))["sessions"]
    harmless = {"/console/leave", "/console/tools/workspace%3Awrite_file", "/console/audit"}
    for look in (
        "/",
        f"/approvals/{nested}",
        "/runs",
        f"/runs/{run}",
        f"/sessions/{session['id']}",
        "/grants",
        "/tools/workspace:write_file",
        "/audit",
        "/overview",
    ):
        answer = await auditor.get(look)
        assert answer.status_code == 200, look
        posts = re.findall(r'<form method="post" action="([^"]+)"', answer.text)
        assert {html.unescape(each) for each in posts} <= harmless, look


async def test_an_auditor_who_sends_a_form_all_the_same_gets_403_and_changes_nothing(
    host: Host, auditor: Any
) -> None:
    run, approval = await begin(host)
    (session,) = (await host.control.request("sessions.list", {}))["sessions"]
    csrf = await auditor.csrf()
    for path, form in (
        (f"/approvals/{approval}/decide", {"verdict": "approve"}),
        (f"/approvals/{approval}/decide", {"verdict": "deny"}),
        (f"/approvals/{approval}/always", {"step": "allow"}),
        (f"/runs/{run}/do/abort", {}),
        (f"/sessions/{session['id']}", {"level": "observe"}),
        ("/grants/gr_1/revoke", {}),
        ("/proposals/gp_1/accept", {}),
    ):
        assert (await auditor.post(path, csrf=csrf, **form)).status_code == 403, path
    assert await status(host, approval) == "pending"
    assert (await host.control.request("runs.show", {"id": run}))["status"] == "running"


async def test_what_is_not_there_is_told_as_such(person: Any) -> None:
    for page in PAGES:
        if "{" in page.path:
            path = re.sub(r"\{\w+\}", "ap_nothing", page.path)
            assert (await person.get(path)).status_code == 404, path


# forms of tools

MODEL = """\
    asks:
      provider: scripted
      script:
        - tool_calls: [{id: a, name: look, arguments: {at: door}}]
        - text: Seen.
"""
WHO = {"who": {"type": "string", "maxLength": 20, "title": "Who looks"}, "often": {"type": "integer"}}
LOOK = {
    "name": "look",
    "description": "Look.",
    "tool_type": "custom",
    "parameters_schema": {
        "type": "object",
        "additionalProperties": False,
        "required": ["at", "who"],
        "properties": {"at": {"type": "string"}, **WHO},
    },
    "config": {
        "code": "at + ' for ' + who",
        "elicit": {
            "message": "Who looks?\n<script>alert(1)</script>",
            "requested_schema": {
                "type": "object",
                "additionalProperties": False,
                "required": ["who"],
                "properties": WHO,
            },
            "merge": "parameters",
        },
    },
}


async def asked(host: Host, project: Any) -> tuple[str, str]:
    """A run whose tool asks a person for something; the run and the question."""
    (project / "packhost.yaml").write_text(SETTINGS + MODEL)
    seen = await host.control.request("accept.changes", {})
    await host.control.request("accept.apply", {"digest": seen["digest"]})
    arguments = {
        "messages": [{"role": "user", "content": "go"}],
        "loop": True,
        "background": True,
        "model_profile": "asks",
        "runtime_tools": [LOOK],
    }
    done = await host.control.request("call", {"tool": "agent-runtime:execute-turn", "arguments": arguments})
    with anyio.fail_after(10):
        while not (found := (await host.control.request("questions.list", {}))["questions"]):
            await moved(host)
    return str(done["value"]["run_id"]), str(found[0]["id"])


async def test_what_a_tool_asks_for_is_a_form_whose_answer_the_call_takes(
    host: Host, person: Any, project: Any
) -> None:
    run, question = await asked(host, project)
    inbox = (await person.get("/")).text
    assert "needs something from you" in words(inbox)
    assert SHOWN in inbox
    page = (await person.get(f"/questions/{question}")).text
    for told in ("Who looks?", "Who looks", 'name="f.who"', 'maxlength="20"', "It approves nothing"):
        assert told in page, told
    wrong = await person.post(
        f"/questions/{question}", csrf=await person.csrf(), **{"f.who": "ann", "f.often": "many"}
    )
    assert "this is a whole number" in words(wrong.text)
    assert 'value="ann"' in wrong.text
    page = (await sent(person, f"/questions/{question}", **{"f.who": "ann", "f.often": ""})).text
    assert "Given." in words(page)
    found = await host.control.request("questions.show", {"id": question})
    assert (found["status"], found["answered_by"], found["channel"]) == (
        "accepted",
        host.principal,
        "console",
    )
    late = await sent(person, f"/questions/{question}", **{"f.who": "ben"})
    assert "Somebody was faster" in words(late.text)
    assert run


async def test_a_form_can_be_declined_and_an_auditor_only_sees_it(
    host: Host, person: Any, auditor: Any, project: Any
) -> None:
    run, question = await asked(host, project)
    assert "may not answer it" in words((await auditor.get(f"/questions/{question}")).text)
    csrf = await auditor.csrf()
    for path in (f"/questions/{question}", f"/questions/{question}/decline"):
        assert (await auditor.post(path, csrf=csrf, **{"f.who": "ann"})).status_code == 403
    await sent(person, f"/questions/{question}/decline")
    assert (await host.control.request("questions.show", {"id": question}))["status"] == "declined"
    await until(host, run, "completed")
