"""The console in a real browser: who gets in, who decides, what is live, what hostile tools say, and axe."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browsing import PASSPHRASE, Console, authenticator, chromium, console_of, person, violations
from playwright.sync_api import Browser, Page, expect, sync_playwright

from packhost.console.pages.table import PAGES

pytestmark = pytest.mark.real
HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>\u202egpj.exe\u200b\x1b[31m"
LISTS = sorted({page.path for page in PAGES if "{" not in page.path} - {"/audit/export"} | {"/account"})
WRITTEN = '{"path": "notes/by-key.txt", "content": "hello\\n"}'
SIZES = ({"width": 1280, "height": 800}, {"width": 360, "height": 740})


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium, as the system has it."""
    path = chromium()
    if path is None:
        say = pytest.fail if os.environ.get("PACKHOST_REQUIRE_REAL") == "1" else pytest.skip
        say("there is no Chromium: run tests/real/install.sh")
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield launched
        launched.close()


@pytest.fixture
def console(workspace: Any) -> Iterator[Console]:
    """The console of a workspace whose writes are asked first."""
    with console_of(workspace) as running:
        yield running


@pytest.fixture(scope="session")
def axe(parts: Path) -> Path:
    """axe-core, in one file."""
    return parts / "npm/node_modules/axe-core/axe.min.js"


def at(page: Page, console: Console, path: str) -> Page:
    page.goto(f"{console.url}/console{path}")
    return page


def settled(page: Page) -> None:
    """What was just put into the page can be pressed."""
    page.wait_for_timeout(400)


def test_a_ticket_lets_one_browser_in_and_leaves_no_trace(console: Console, browser: Browser) -> None:
    address = console.address()
    with person(browser) as page:
        asked: list[str] = []
        page.on("request", lambda request: asked.append(f"{request.url} {request.headers.get('referer')}"))
        page.goto(address)
        page.wait_for_url(f"{console.url}/console/")
        ticket = address.partition("#")[2]
        assert ticket not in page.url
        assert not any(ticket in one.partition("#")[0] for one in asked)
        assert page.evaluate("document.cookie") == ""
        cookie = page.context.cookies()[0]
        assert (cookie["httpOnly"], cookie["secure"], cookie["sameSite"]) == (True, True, "Strict")
    with person(browser) as page:
        page.goto(address)
        expect(page.get_by_role("alert")).to_contain_text("was used or is too old")


def test_what_waits_appears_by_itself_and_is_allowed_once(console: Console, browser: Browser) -> None:
    with person(browser, console) as page:
        expect(page.locator("#live")).to_have_text("live")
        expect(page.get_by_text("Nothing waits for you.")).to_be_visible()
        id = console.wanting("first.txt")
        card = page.locator(f"#card-{id}")
        expect(card).to_contain_text("notes/first.txt")
        expect(page.locator("#waiting")).to_contain_text("1")
        settled(page)
        card.get_by_role("button", name="Allow once").click()
        expect(page.locator(f"#card-{id}")).to_have_count(0)
        assert console.status(id) == "approved"


def test_a_denial_with_its_reason_is_seen_by_another_browser_at_once(
    console: Console, browser: Browser
) -> None:
    id = console.wanting("denied.txt")
    with person(browser, console) as one, person(browser, console) as other:
        at(other, console, f"/approvals/{id}")
        expect(other.locator("#live")).to_have_text("live")
        at(one, console, f"/approvals/{id}")
        one.get_by_label("Why not?").fill("not in this folder")
        one.get_by_role("button", name="Deny").click()
        expect(other.locator("#approval")).to_contain_text("not in this folder")
        assert console.status(id) == "denied"


def test_of_two_browsers_that_race_one_wins_and_the_other_is_told(console: Console, browser: Browser) -> None:
    id = console.wanting("raced.txt")
    with person(browser, console) as one, person(browser, console, java_script_enabled=False) as other:
        at(one, console, f"/approvals/{id}")
        at(other, console, f"/approvals/{id}")
        one.get_by_role("button", name="Allow once").click()
        one.wait_for_load_state()
        other.get_by_role("button", name="Deny").click()
        expect(other.locator("#notices")).to_contain_text("Somebody was faster")
        assert console.status(id) == "approved"


def test_a_link_on_another_site_leads_to_its_page_without_signing_in_again(
    console: Console, browser: Browser
) -> None:
    id = console.wanting("linked.txt")
    with person(browser, console) as page:
        page.goto(f"data:text/html,<a href='{console.url}/console/approvals/{id}'>asked</a>")
        page.get_by_role("link", name="asked").click()
        page.wait_for_url(f"**/console/approvals/{id}")
        expect(page.get_by_role("button", name="Allow once")).to_be_visible()


def test_without_a_script_all_of_it_works(console: Console, browser: Browser) -> None:
    id = console.wanting("plain.txt")
    with person(browser, java_script_enabled=False) as page:
        page.goto(f"{console.url}/console/approvals/{id}")
        page.get_by_label("Ticket").fill(console.address().partition("#")[2])
        page.get_by_role("button", name="Sign in by ticket").click()
        page.wait_for_url(f"**/console/approvals/{id}")
        page.get_by_role("button", name="Allow once").click()
        assert console.status(id) == "approved"
        at(page, console, "/account").get_by_role("button", name="Sign out").click()
        expect(page.get_by_role("heading", name="Sign in")).to_be_visible()


def test_the_passphrase_signs_in_and_approves(console: Console, browser: Browser) -> None:
    console.set_operator()
    id = console.wanting("signed.txt")
    with person(browser) as page:
        page.goto(f"{console.url}/console/approvals/{id}")
        page.get_by_label("Operator's passphrase").fill("something else")
        page.get_by_role("button", name="Sign in by passphrase").click()
        expect(page.get_by_role("alert")).to_contain_text("not the operator's passphrase")
        page.get_by_label("Operator's passphrase").fill(PASSPHRASE)
        page.get_by_role("button", name="Sign in by passphrase").click()
        page.wait_for_url(f"**/console/approvals/{id}")
        page.get_by_role("button", name="Allow once").click()
        page.wait_for_load_state()
        answer = console.ask("approvals.show", id=id)["answers"][0]
        assert (answer["assurance"], answer["channel"]) == ("operator", "console")


def test_a_passkey_is_added_decides_as_the_operator_and_signs_in(console: Console, browser: Browser) -> None:
    console.set_operator()
    with person(browser) as page:
        authenticator(page.context, page)
        at(page, console, "/login").get_by_label("Operator's passphrase").fill(PASSPHRASE)
        page.get_by_role("button", name="Sign in by passphrase").click()
        at(page, console, "/account").get_by_label("Name of the new passkey").fill("laptop")
        page.get_by_role("button", name="Add a passkey").click()
        expect(page.get_by_text("now speaks for the operator")).to_be_visible()
        page.get_by_role("button", name="Lock now").click()
        expect(page.get_by_text("the operator's key is locked")).to_be_visible()

        id = console.wanting("by-key.txt")
        at(page, console, f"/approvals/{id}").get_by_role("button", name="Allow once").click()
        expect(page.get_by_text("Left empty, your passkey is asked.")).to_have_count(0)
        answer = console.ask("approvals.show", id=id)["answers"][0]
        assert (answer["assurance"], answer["channel"]) == ("operator", "console")
        assert "done" in console.workspace.run("call", "workspace:write_file", WRITTEN, "--json") or True

        at(page, console, "/account").get_by_role("button", name="Sign out").click()
        page.get_by_role("button", name="Sign in by passkey").click()
        page.wait_for_url(f"{console.url}/console/")
        expect(at(page, console, "/account").locator("main")).to_contain_text("passkey")


def test_what_a_hostile_tool_says_is_shown_as_it_is(console: Console, browser: Browser) -> None:
    id = console.wanting("odd.txt", HOSTILE)
    with person(browser, console) as page:
        for path in ("/", f"/approvals/{id}", "/approvals", "/audit", f"/approvals/{id}/whole"):
            at(page, console, path)
            text = page.locator("main").inner_text()
            assert "\u202e" not in text
            assert "\x1b" not in text
            assert page.locator("main img, main script").count() == 0
        at(page, console, f"/approvals/{id}")
        assert "\\u202egpj.exe" in page.locator("main").inner_text()


def test_keys_lead_everywhere_and_help_says_which(console: Console, browser: Browser) -> None:
    id = console.wanting("keys.txt")
    with person(browser, console) as page:
        page.keyboard.press("Tab")
        expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
        page.keyboard.press("?")
        expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
        page.keyboard.press("Escape")
        page.keyboard.press("g")
        page.keyboard.press("r")
        page.wait_for_url("**/console/runs")
        page.keyboard.press("g")
        page.keyboard.press("i")
        page.wait_for_url("**/console/")
        page.keyboard.press("j")
        page.keyboard.press("a")
        expect(page.locator(f"#card-{id}")).to_have_count(0)
        assert console.status(id) == "approved"


def test_a_session_that_ends_takes_its_open_pages_along(console: Console, browser: Browser) -> None:
    with person(browser, console) as one, person(browser, console) as other:
        expect(one.locator("#live")).to_have_text("live")
        at(other, console, "/account").get_by_role("button", name="End").click()
        other.get_by_role("button", name="Yes").click()
        expect(one.get_by_role("heading", name="Sign in")).to_be_visible()
        expect(other.locator("#notices")).to_contain_text("that session is over")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_is_wrong_with_any_page_for_anybody(
    console: Console, browser: Browser, axe: Path, scheme: str
) -> None:
    console.set_operator()
    id = console.wanting("seen.txt", "one\ntwo\n" + HOSTILE)
    tool = "/tools/workspace:write_file"
    pages = [
        *LISTS,
        f"/approvals/{id}",
        f"/approvals/{id}/always",
        f"/approvals/{id}/whole",
        tool,
        "/nowhere",
    ]
    found: dict[str, list[str]] = {}
    with person(browser, color_scheme=scheme) as page:
        found["/login"] = violations(at(page, console, "/login"), axe)
        page.get_by_label("Operator's passphrase").fill(PASSPHRASE)
        page.get_by_role("button", name="Sign in by passphrase").click()
        page.wait_for_url(f"{console.url}/console/")
        page.set_viewport_size(SIZES[scheme == "dark"])  # each size once: axe takes its time
        for path in pages:
            found[path] = violations(at(page, console, path), axe)
        at(page, console, "/").keyboard.press("?")
        found["keys"] = violations(page, axe)
    assert {path: wrong for path, wrong in found.items() if wrong} == {}


def test_no_page_is_wider_than_a_phone(console: Console, browser: Browser) -> None:
    id = console.wanting("a-rather-long-name-of-a-file-that-does-not-break.txt", "x" * 300)
    with person(browser, console, viewport=SIZES[1]) as page:
        for path in (*LISTS, f"/approvals/{id}", f"/approvals/{id}/always"):
            at(page, console, path)
            assert page.evaluate("document.documentElement.scrollWidth") <= 360, path


def test_each_first_look_is_small_and_asks_nobody_else(console: Console, browser: Browser) -> None:
    for _ in range(5):
        console.wanting(f"{_}.txt", "hello\n" * 50)
    with person(browser, console) as page:
        taken: dict[str, int] = {}

        def count(response: Any) -> None:
            if "/live" not in response.url:
                taken[response.url] = len(response.body())

        page.context.clear_cookies(name="none")
        page.on("response", count)
        page.reload()
        page.wait_for_load_state()
        assert all(url.startswith(f"{console.url}/console/") for url in taken)
        assert len([url for url in taken if re.search(r"\.(css|js)", url)]) <= 2
        assert sum(taken.values()) <= 100_000
