"""The console's pages in a real browser: an operator's day by mouse, by keyboard alone and on a phone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browsing import Console, chromium, console_of, person, violations
from playwright.sync_api import Browser, Page, expect, sync_playwright
from screenshots import begin, demo, write

pytestmark = pytest.mark.real
HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>\u202egpj.exe\u200b\x1b[31m"
PHONE = {"width": 360, "height": 740}


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
def console(tmp_path: Path) -> Iterator[Console]:
    """The console of a workspace with a scripted model whose edit is asked for."""
    with console_of(demo(tmp_path)) as running:
        yield running


@pytest.fixture(scope="session")
def axe(parts: Path) -> Path:
    """axe-core, in one file."""
    return parts / "npm/node_modules/axe-core/axe.min.js"


def at(page: Page, console: Console, path: str) -> Page:
    page.goto(f"{console.url}/console{path}")
    return page


def settled(page: Page) -> None:
    """Wait until what was just put into the page can be pressed."""
    page.wait_for_timeout(500)


def waiting(console: Console) -> str:
    """The one approval that waits."""
    (found,) = console.ask("approvals.list", status="pending")["approvals"]
    return str(found["id"])


def test_a_call_is_allowed_for_good_as_narrowly_as_chosen_and_the_undo_takes_it_back(
    console: Console, browser: Browser
) -> None:
    with person(browser, console) as page:
        run = begin(console)
        page.get_by_role("link", name="Always allow…").click()
        pattern = page.get_by_label("any path that matches")
        pattern.fill("src/*")
        expect(page.get_by_label("paths that match a pattern")).to_be_checked()
        page.get_by_role("group", name="edits").get_by_label("anything").check()
        page.get_by_label("It holds").select_option("for 1 hour")
        page.get_by_label("At most so many calls").fill("3")
        page.get_by_role("button", name="Always allow this").click()
        expect(page.get_by_role("alert")).to_contain_text("This is what you chose now")
        expect(page.locator("section.sum")).to_contain_text('paths that match "src/*"')
        assert console.ask("grants.list", all=True)["grants"] == []
        page.get_by_role("button", name="Always allow this").click()
        expect(page.locator("#grant")).to_contain_text("allowed from now on")
        (grant,) = console.ask("grants.list")["grants"]
        assert grant["match"] == {"path": {"glob": "src/*"}, "edits": {"any": True}}
        assert grant["max_uses"] == 3
        expect(page.locator("#approval")).to_contain_text("The call has run")
        settled(page)
        page.get_by_role("button", name="Undo: revoke it").click()
        expect(page.locator("#grant")).to_contain_text("asked for again")
        assert console.ask("grants.list")["grants"] == []
        expect(at(page, console, f"/runs/{run}").locator("#stands")).to_have_text("It is done")


def test_a_run_is_followed_as_it_goes_without_a_reload(console: Console, browser: Browser) -> None:
    with person(browser, console) as page:
        run = begin(console)
        at(page, console, f"/runs/{run}")
        expect(page.locator("#live")).to_have_text("live")
        expect(page.locator("#stands")).to_have_text("It waits for a person's answer")
        page.evaluate("window.stayed = true")
        console.ask("approvals.decide", id=waiting(console), verdict="approve")
        expect(page.locator("#stands")).to_have_text("It is done")
        expect(page.locator("#turns")).to_contain_text("`greet` takes a name now")
        assert page.evaluate("window.stayed") is True


def test_a_run_is_paused_resumed_and_ended_each_after_a_look(console: Console, browser: Browser) -> None:
    with person(browser, console) as page:
        run = begin(console)
        at(page, console, f"/runs/{run}").get_by_role("link", name="Pause…").click()
        page.get_by_label("Why?").fill("let me look")
        page.get_by_role("button", name="Pause this run").click()
        expect(page.locator("#notices")).to_contain_text("Paused.")
        page.get_by_role("link", name="Look at it and answer").click()
        settled(page)
        page.get_by_role("button", name="Allow once").click()
        expect(page.locator("#notices")).to_contain_text("Allowed once")
        expect(at(page, console, f"/runs/{run}").locator("#stands")).to_contain_text("It is paused")
        page.get_by_role("link", name="Resume…").click()
        page.get_by_role("button", name="Resume this run").click()
        expect(page.locator("#stands")).to_have_text("It is done")
        other = begin(console)
        at(page, console, f"/runs/{other}").get_by_role("link", name="End it…").click()
        page.get_by_role("button", name="End this run").click()
        expect(page.locator("#stands")).to_contain_text("It was ended")
        assert console.ask("runs.show", id=other)["status"] == "aborted"


def test_autonomy_is_changed_and_no_level_beyond_the_maximum_can_be_chosen(
    console: Console, browser: Browser
) -> None:
    with person(browser, console) as page:
        run = begin(console)
        at(page, console, f"/runs/{run}").get_by_role("link", name="Change its autonomy…").click()
        page.get_by_label("autonomous").check()
        page.get_by_label("A higher level holds for").select_option("15 minutes")
        page.get_by_role("button", name="Change the level").click()
        expect(page.locator("#notices")).to_contain_text("Raised from guarded to autonomous, for 15 minutes")
        page.get_by_label("observe").check()
        page.get_by_role("button", name="Change the level").click()
        expect(page.locator("#stands")).to_have_text("Its autonomy is observe")


def test_by_keyboard_alone_one_question_is_allowed_and_the_next_denied(
    console: Console, browser: Browser
) -> None:
    write(console, "src/one.txt", "one\n")
    first = waiting(console)
    write(console, "src/two.txt", "two\n")
    with person(browser, console) as page:
        expect(page.locator("article")).to_have_count(2)
        page.keyboard.press("a")
        page.keyboard.press("d")
        assert console.status(first) == "pending"  # a letter answers nothing but what the focus is in
        page.keyboard.press("j")
        expect(page.locator(f"#card-{first}")).to_be_focused()
        page.keyboard.press("a")
        expect(page.locator("article")).to_have_count(1)
        assert console.status(first) == "approved"
        second = waiting(console)
        page.keyboard.press("j")
        page.keyboard.press("d")
        expect(page.get_by_text("Nothing waits for you.")).to_be_visible()
        assert console.status(second) == "denied"


def test_keys_can_be_turned_off_and_stay_off(console: Console, browser: Browser) -> None:
    write(console, "src/one.txt", "one\n")
    id = waiting(console)
    with person(browser, console) as page:
        page.get_by_role("button", name="Keys").click()
        page.get_by_label("Single letters are keys").uncheck()
        page.get_by_role("button", name="Close").click()
        page.reload()
        page.locator(f"#card-{id}").focus()
        page.keyboard.press("a")
        page.keyboard.press("?")
        expect(page.get_by_role("dialog", name="Keys")).not_to_be_visible()
        assert console.status(id) == "pending"


def test_typing_a_reason_presses_no_key_and_enter_denies(console: Console, browser: Browser) -> None:
    write(console, "src/one.txt", "one\n")
    id = waiting(console)
    with person(browser, console) as page:
        page.get_by_label("Why not?").press_sequentially("a bad idea, jk")
        page.keyboard.press("Enter")
        expect(page.locator("#notices")).to_contain_text("Denied")
        found = console.ask("approvals.show", id=id)
        assert (found["status"], found["reason"]) == ("denied", "a bad idea, jk")


def test_why_a_call_could_not_run_is_told_where_it_is_asked(console: Console, browser: Browser) -> None:
    with person(browser, console) as page:
        at(page, console, "/tools").get_by_role("link", name="Write a file").click()
        page.get_by_label("path", exact=True).fill("lib/a.txt")
        page.get_by_role("button", name="Could it run?").click()
        expect(page.locator("#verdict")).to_contain_text("It would be refused")
        expect(page.get_by_label("path", exact=True)).to_have_value("lib/a.txt")
        page.get_by_label("path", exact=True).fill("src/a.txt")
        page.get_by_role("button", name="Could it run?").click()
        expect(page.locator("#verdict")).to_contain_text("A person would be asked first")


def test_the_record_is_searched_and_its_chain_walked(console: Console, browser: Browser) -> None:
    write(console, "src/one.txt", HOSTILE)
    with person(browser, console) as page:
        at(page, console, "/audit").get_by_label("Text").fill("src/one.txt")
        page.get_by_role("button", name="Find").click()
        page.get_by_role("listitem").filter(has_text="a person was asked").get_by_role("link").click()
        text = page.locator("main").inner_text()
        assert "<script>alert(1)</script>" in text
        assert "\u202e" not in text
        at(page, console, "/audit").get_by_role("button", name="Check the whole chain").click()
        expect(page.locator("#proof")).to_contain_text("The chain holds")
        with page.expect_download() as download:
            page.get_by_role("link", name="Download the record").click()
        assert download.value.suggested_filename == "audit.jsonl"


def test_a_run_with_hostile_words_is_shown_inert(console: Console, browser: Browser) -> None:
    arguments: dict[str, Any] = {"messages": [{"role": "user", "content": HOSTILE}], "loop": True}
    done = console.ask("call", tool="agent-runtime:execute-turn", arguments={**arguments, "background": True})
    with person(browser, console) as page:
        at(page, console, f"/runs/{done['value']['run_id']}")
        expect(page.locator("main")).to_contain_text("\\u202egpj.exe")
        assert page.locator("main img, main script").count() == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_with_something_on_it_holds_for_everybody_and_on_a_phone(
    console: Console, browser: Browser, axe: Path, scheme: str
) -> None:
    with person(browser, console, viewport=PHONE, color_scheme=scheme) as page:
        run = begin(console)
        id = waiting(console)
        at(page, console, f"/approvals/{id}/always")
        page.get_by_role("button", name="Always allow this").click()
        grant = page.url.partition("grant=")[2]
        expect(at(page, console, f"/runs/{run}").locator("#stands")).to_have_text("It is done")
        other = begin(console)
        write(console, "src/a-name-that-does-not-break-anywhere-however-long-it-gets.txt", "x" * 400)
        session = console.ask("sessions.list")["sessions"][0]["id"]
        found: dict[str, list[str]] = {}
        for path in (
            "/",
            f"/approvals/{id}?grant={grant}",
            f"/runs/{run}",
            f"/runs/{other}",
            f"/runs/{other}/do/abort",
            f"/sessions/{session}",
            "/sessions",
            "/grants",
            "/audit",
            "/audit/5",
            "/overview",
            "/tools/workspace:edit_file",
        ):
            at(page, console, path)
            wide = page.evaluate("document.documentElement.scrollWidth")
            found[path] = violations(page, axe) + ([f"{wide} wide"] if wide > PHONE["width"] else [])
    assert {path: wrong for path, wrong in found.items() if wrong} == {}
