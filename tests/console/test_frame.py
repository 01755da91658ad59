"""What the console holds every request to: who comes, by which name, from which page, with what right."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from packhost.app.host import Host
from packhost.console.app import Console, own_name
from packhost.console.kit import Action, Moved, Page, Shown, Visit
from packhost.console.pages.table import ACTIONS, PAGES
from packhost.errors import NotFound
from packhost.workspace.root import Root

pytestmark = pytest.mark.anyio
Open = Callable[..., Any]
PUBLIC = ("/login", "/static/console.css", "/static/console.js", "/static/icon.svg")
EVERY = sorted(
    {re.sub(r"\{\w+\}", "x", page.path) for page in PAGES} | {"/account", "/live", "/nowhere", *PUBLIC}
)
HOSTILE = "<script>alert(1)</script> \u202egnp.exe \u200b\x1b[31m"


def frozen(page: str) -> str:
    """A page without what differs from one look to the next."""
    return re.sub(r'name="csrf" value="\w+"|after=\d+', "", page)


# what every answer says to the browser


@pytest.mark.parametrize("signed_in", [True, False])
async def test_every_answer_forbids_foreign_script_frames_and_referrers(
    person: Any, browser: Open, signed_in: bool
) -> None:
    for path in EVERY:
        if path == "/live" and signed_in:
            continue  # a stream, which test_live looks at
        headers = (await (person if signed_in else browser()).get(path)).headers
        policy = headers["content-security-policy"]
        assert policy.startswith("default-src 'none';"), path
        assert "frame-ancestors 'none'" in policy, path
        assert "unsafe" not in policy, path
        assert headers["x-content-type-options"] == "nosniff", path
        assert headers["referrer-policy"] == "no-referrer", path
        kept = path.startswith("/static/")
        assert headers["cache-control"] == ("public, max-age=31536000, immutable" if kept else "no-store"), (
            path
        )


async def test_no_page_holds_a_script_or_a_style_of_its_own(person: Any) -> None:
    for path in (*(path for path in EVERY if "x" not in path and path != "/live"), "/account"):
        page = (await person.get(path)).text
        assert re.findall(r"<script(?![^>]* src=)|<style| style=| on\w+=", page) == [], path


async def test_the_whole_of_a_first_look_is_small(person: Any) -> None:
    page = (await person.get("/account")).text
    parts = re.findall(r'(?:src|href)="(/console/static/[^"]+)"', page)
    size = len(page) + sum([len((await person.get(part[8:])).content) for part in set(parts)])
    assert size < 100_000


async def test_a_browser_that_has_a_file_is_told_so(browser: Open) -> None:
    first = await browser().get("/static/console.css")
    again = await browser().get("/static/console.css", **{"If-None-Match": first.headers["etag"]})
    assert (first.status_code, again.status_code) == (200, 304)


async def test_nothing_but_the_consoles_own_files_is_given_out(browser: Open) -> None:
    for path in ("/static/", "/static/..%2fapp.py", "/static/base.html"):
        assert (await browser().get(path)).status_code == 404, path


# by which name, from which page


async def test_a_name_that_somebody_elses_page_could_take_is_not_answered(
    console: Console, browser: Open
) -> None:
    for name in ("evil.example", "evil.example:4321", "x.localhost", "127.0.0.1.evil.example", "0"):
        assert (await browser(console, name).get("/login")).status_code == 421, name


async def test_every_loopback_name_is_answered(console: Console, browser: Open) -> None:
    for name in ("127.0.0.1:1", "localhost:1", "[::1]:1", "127.0.0.1"):
        assert (await browser(console, name).get("/login")).status_code == 200, name


FOREIGN: tuple[dict[str, str], ...] = (
    {},
    {"Origin": "null"},
    {"Origin": "http://evil.example"},
    {"Origin": "http://localhost:1"},
    {"Origin": "null", "Sec-Fetch-Site": "cross-site"},
    {"Origin": "null", "Sec-Fetch-Site": "same-site"},
    {"Sec-Fetch-Site": "none"},
)


async def test_a_form_of_another_origin_changes_nothing(person: Any) -> None:
    csrf, before = await person.csrf(), person.cookie
    for headers in FOREIGN:
        assert (await person.post("/leave", headers, csrf=csrf)).status_code == 403, headers
        assert person.cookie == before
    assert (await person.get("/account")).status_code == 200


async def test_a_form_of_the_page_itself_is_taken_as_browsers_send_it(person: Any) -> None:
    headers = {"Origin": "null", "Sec-Fetch-Site": "same-origin"}
    assert (await person.post("/leave", headers, csrf=await person.csrf())).status_code == 303
    assert person.cookie is None


async def test_a_form_without_its_sessions_token_changes_nothing(person: Any) -> None:
    for path in ("/leave", "/account/lock", *(re.sub(r"\{\w+\}", "x", action.path) for action in ACTIONS)):
        for form in ({}, {"csrf": ""}, {"csrf": "0" * 64}):
            assert (await person.post(path, **form)).status_code == 403, path
    assert (await person.get("/account")).status_code == 200


async def test_the_token_of_another_session_does_not_do(person: Any, auditor: Any) -> None:
    assert (await auditor.post("/leave", csrf=await person.csrf())).status_code == 403


async def test_only_plain_forms_of_bounded_size_are_read(person: Any) -> None:
    csrf = await person.csrf()
    own = {"Origin": f"http://{person.host}"}
    huge = await person.send("POST", "/leave", own, data={"csrf": csrf, "x": "y" * 600_000})
    odd = await person.send("POST", "/leave", {**own, "Content-Type": "application/json"}, content=b"{}")
    assert (huge.status_code, odd.status_code) == (400, 400)
    assert person.cookie


# who is signed in, and what they may do


async def test_nothing_but_the_login_page_is_shown_to_nobody(browser: Open) -> None:
    for path in (path for path in EVERY if path not in PUBLIC):
        answer = await browser().get(path)
        if path == "/live":
            assert answer.status_code == 401
        else:
            assert answer.status_code == 303, path
            assert answer.headers["location"] == f"/console/login?next=%2Fconsole{path.replace('/', '%2F')}"


async def test_nobody_changes_anything_without_signing_in(browser: Open) -> None:
    for action in ACTIONS:
        path = re.sub(r"\{\w+\}", "x", action.path)
        assert (await browser().post(path, csrf="x")).status_code == 401, path


async def test_other_methods_are_not_answered(person: Any) -> None:
    for method in ("PUT", "DELETE", "PATCH", "OPTIONS"):
        assert (await person.send(method, "/account", {})).status_code == 405, method


async def test_a_page_that_is_not_there_says_so(person: Any) -> None:
    answer = await person.get("/nowhere")
    assert answer.status_code == 404
    assert "there is no such page" in answer.text


async def test_an_auditor_changes_nothing(auditor: Any) -> None:
    csrf = await auditor.csrf()
    for action in ACTIONS:
        if not action.right.endswith(":read"):
            path = re.sub(r"\{\w+\}", "x", action.path)
            assert (await auditor.post(path, csrf=csrf)).status_code == 403, path


async def test_the_host_refuses_an_auditor_by_itself(host: Host, auditor: Any) -> None:
    answer = await auditor.get("/account")
    assert "auditor" in answer.text
    for op in ("approvals.decide", "grants.revoke", "runs.abort", "sessions.raise", "tokens.new", "call"):
        with pytest.raises(Exception, match="may not do this"):
            await host.control.request("console.act", {"session": auditor.cookie, "op": op, "params": {}})


# what a page is made of


async def view(visit: Visit) -> Shown:
    return Shown("error.html", {"problem": NotFound(visit.path["text"], hint=HOSTILE)})


async def act(visit: Visit) -> Moved:
    if visit.form.get("fail"):
        raise NotFound(HOSTILE)
    return Moved("/account", HOSTILE)


@pytest.fixture
async def odd(host: Host, root: Root, person: Any, browser: Open) -> Any:
    """Somebody at a console with a page and an action of the test's."""
    made = Console(
        host.control,
        own_name(root.hash),
        pages=(Page("/say/{text}", view, "tools:read", "Say", "s"),),
        actions=(Action("/do", act, "tools:read"),),
    )
    someone = browser(made)
    someone.cookie = person.cookie
    return someone


async def test_text_from_elsewhere_hides_nothing_and_is_no_markup(odd: Any) -> None:
    page = (await odd.get("/say/%3Cb%3E%E2%80%AEx")).text
    assert "&lt;b&gt;\\u202ex" in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt; \\u202egnp.exe \\u200b\\u001b[31m" in page
    assert "<script>alert" not in page


async def test_what_an_action_says_is_shown_once_and_as_text(odd: Any) -> None:
    csrf = await odd.csrf()
    done = await odd.post("/do", csrf=csrf)
    assert (done.status_code, done.headers["location"]) == (303, "/console/account")
    assert '<p class="notice done">&lt;script&gt;' in (await odd.get("/account")).text
    assert 'class="notice done"' not in (await odd.get("/account")).text


LEADS = (
    ("/console/say/x", "/console/say/x"),
    ("//evil.example/", None),
    ("https://evil.example", None),
    ("/console/%2e%2e//evil", None),
    ("/console/\\evil", None),
    ("", None),
)


async def test_an_action_that_fails_leads_back_and_nowhere_else(odd: Any) -> None:
    csrf = await odd.csrf()
    for back, led in LEADS:
        failed = await odd.post("/do", csrf=csrf, fail="1", back=back)
        assert failed.headers.get("location") == led, back
        assert led is not None or failed.status_code == 404


async def test_a_fault_is_told_without_what_it_was(
    host: Host, root: Root, person: Any, browser: Open, caplog: pytest.LogCaptureFixture
) -> None:
    async def faulty(visit: Visit) -> Shown:
        raise ValueError("inside")

    someone = browser(Console(host.control, own_name(root.hash), pages=(Page("/x", faulty, "tools:read"),)))
    someone.cookie = person.cookie
    answer = await someone.get("/x")
    assert answer.status_code == 500
    assert "inside" not in answer.text
    assert "a page of the console failed" in caplog.text


async def test_a_name_that_a_template_does_not_know_is_a_fault(
    host: Host, root: Root, person: Any, browser: Open, caplog: pytest.LogCaptureFixture
) -> None:
    async def bare(visit: Visit) -> Shown:
        return Shown("account.html")

    someone = browser(Console(host.control, own_name(root.hash), pages=(Page("/x", bare, "tools:read"),)))
    someone.cookie = person.cookie
    assert (await someone.get("/x")).status_code == 500
    assert "is undefined" in caplog.text


async def test_the_navigation_shows_where_one_is_and_what_one_may_see(odd: Any, person: Any) -> None:
    page = (await odd.get("/account")).text
    assert 'href="/console/say/{text}"' in page
    assert 'href="/console/account" aria-current="page"' in page
    assert frozen(page) == frozen((await odd.get("/account")).text)


async def test_a_page_is_compressed_for_who_takes_that(person: Any, console: Console) -> None:
    console.warm()
    plain = await person.get("/account", **{"Accept-Encoding": "identity"})
    packed = await person.get("/account", **{"Accept-Encoding": "gzip"})
    assert "content-encoding" not in plain.headers
    assert packed.headers["content-encoding"] == "gzip"
    assert int(packed.headers["content-length"]) < len(plain.content) / 2
    assert frozen(packed.text) == frozen(plain.text)


async def test_a_link_on_another_site_leads_in_by_a_page_of_our_own(person: Any, browser: Open) -> None:
    someone = browser()
    led = await someone.get("/runs?status=paused", **{"Sec-Fetch-Site": "cross-site"})
    assert led.status_code == 200
    assert '<meta http-equiv="refresh" content="0">' in led.text
    assert 'href="/console/runs?status=paused"' in led.text
    then = await someone.get("/runs?status=paused", **{"Sec-Fetch-Site": "same-origin"})
    assert then.status_code == 303
    assert "/console/login" in then.headers["location"]
