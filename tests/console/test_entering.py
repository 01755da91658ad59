"""Signing in to the console, how long it lasts, and what ends it."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from packhost.app.host import Host
from packhost.console.app import Console, own_name
from packhost.control.consoles import LASTS
from packhost.errors import PackhostError
from packhost.journal import digest
from packhost.kinds.egress import FETCHED
from packhost.store.ops import consoles
from packhost.store.sqlite import STORE_NAME
from packhost.workspace.root import Root

pytestmark = pytest.mark.anyio
Open = Callable[..., Any]


async def ticket(host: Host) -> str:
    return str((await host.control.request("console.ticket", {}))["ticket"])


async def token(host: Host, role: str = "operator", **more: Any) -> dict[str, Any]:
    made: dict[str, Any] = await host.control.request(
        "tokens.new", {"role": role, "principal": "ann", **more}
    )
    return made


async def backdate(host: Host, session: str, **seconds: float) -> None:
    """Let a session have been opened, or used, so many seconds earlier."""

    def earlier(tx: Any) -> None:
        for column, by in seconds.items():
            tx.execute(f"UPDATE console_sessions SET {column}={column}-? WHERE id=?", (by, session))

    await host.store.write(earlier)


def signed_in(host: Host) -> consoles.ConsoleRow:
    return host.store.read(consoles.live)[0]


# by a ticket


async def test_a_ticket_opens_one_session_once(host: Host, browser: Open) -> None:
    given, first, second = await ticket(host), browser(), browser()
    await first.enter(ticket=given)
    assert (await first.get("/account")).status_code == 200
    again = await second.post("/login", ticket=given)
    assert again.status_code == 403
    assert "was used or is too old" in again.text
    assert second.cookie is None


async def test_a_ticket_is_soon_too_old(host: Host) -> None:
    out = host.parts.consoles
    given = out.give_out("ticket", 100.0)
    assert not out.take_back("ticket", given, 100.0 + LASTS)
    assert not out.take_back("ticket", given, 100.0)


async def test_tickets_do_not_crowd_out_without_end_and_are_no_nonces(host: Host) -> None:
    out = host.parts.consoles
    first = out.give_out("ticket", 0.0)
    assert not out.take_back("nonce", first, 0.0)
    for _ in range(1_000):
        out.give_out("nonce", 0.0)
    assert out.take_back("ticket", first, 0.0)


async def test_the_cookie_is_kept_from_scripts_other_sites_and_other_names(host: Host, browser: Open) -> None:
    answer = await browser().post("/login", ticket=await ticket(host))
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith("__Host-packhost=")
    assert {"Path=/", "Secure", "HttpOnly", "SameSite=Strict"} <= set(cookie.split("; "))
    assert "Domain" not in cookie


async def test_of_a_session_only_the_digest_is_stored(host: Host, person: Any) -> None:
    await host.store.flush()
    found = sqlite3.connect(host.root.state / STORE_NAME)
    try:
        whole = "\n".join(found.iterdump())
    finally:
        found.close()
    assert digest(person.cookie) in whole
    assert person.cookie not in whole


async def test_signing_in_leads_to_the_page_that_was_wanted_and_nowhere_else(
    host: Host, browser: Open
) -> None:
    someone = browser()
    wanted = (await someone.get("/runs?after=1")).headers["location"]
    assert wanted == "/console/login?next=%2Fconsole%2Fruns%3Fafter%3D1"
    page = await someone.get(wanted.removeprefix("/console"))
    assert 'name="next" value="/console/runs?after=1"' in page.text
    done = await someone.post("/login", ticket=await ticket(host), next="/console/runs?after=1")
    assert done.headers["location"] == "/console/runs?after=1"
    for foreign in ("//evil.example", "https://evil.example/console/", "/console/..%2f%2fevil", ""):
        led = await browser().post("/login", ticket=await ticket(host), next=foreign)
        assert led.headers["location"] == "/console/", foreign


async def test_who_signs_in_again_is_somebody_new(host: Host, person: Any) -> None:
    former = person.cookie
    await person.enter(ticket=await ticket(host))
    assert person.cookie != former
    assert len(host.store.read(consoles.live)) == 1


# by a token


@pytest.mark.parametrize("role", ["operator", "auditor"])
async def test_an_operators_or_auditors_token_signs_its_principal_in(
    host: Host, browser: Open, role: str
) -> None:
    someone = browser()
    await someone.enter(token=f"  {(await token(host, role))['token']}\n")
    page = (await someone.get("/account")).text
    assert f"<dd>{role}</dd>" in page
    assert "<dd>ann</dd>" in page


async def test_other_tokens_open_no_console(host: Host, browser: Open) -> None:
    for role in ("caller", "end-user"):
        refused = await browser().post("/login", token=(await token(host, role))["token"])
        assert refused.status_code == 403
        assert "opens no console" in refused.text
    assert "is not known" in (await browser().post("/login", token="pkh_x")).text
    assert (await browser().post("/login")).status_code == 400


async def test_a_session_may_do_no_more_than_its_token(host: Host, browser: Open) -> None:
    someone = browser()
    made = await token(host, scopes=["tools:read", "runs:read"])
    await someone.enter(token=made["token"])
    assert signed_in(host).scopes == ("runs:read", "tools:read")
    assert (await someone.get("/account")).status_code == 200
    asked = {"session": someone.cookie, "op": "approvals.list", "params": {}}
    with pytest.raises(PackhostError, match="may not do this"):
        await host.control.request("console.act", asked)


async def test_a_session_ends_with_the_token_that_opened_it(host: Host, browser: Open) -> None:
    made, someone = await token(host), browser()
    await someone.enter(token=made["token"])
    await host.control.request("tokens.revoke", {"id": made["id"]})
    assert (await someone.get("/account")).status_code == 303


# by the operator's passphrase


async def test_the_passphrase_signs_in_and_unlocks_for_a_while(
    host: Host, operator: str, browser: Open, clock: Any
) -> None:
    someone = browser()
    assert "Operator&#39;s passphrase" in (await someone.get("/login")).text.replace("'", "&#39;")
    await someone.enter(passphrase=operator)
    assert signed_in(host).way == "passphrase"
    assert "Unlocked for" in (await someone.get("/account")).text
    clock.now += 301
    assert "Unlocked for" not in (await someone.get("/account")).text


async def test_a_wrong_passphrase_opens_nothing(host: Host, operator: str, browser: Open) -> None:
    someone = browser()
    refused = await someone.post("/login", passphrase=operator + "x")
    assert refused.status_code == 403
    assert "not the operator" in refused.text
    assert operator not in refused.text
    assert someone.cookie is None


async def test_where_there_is_an_operator_a_ticket_needs_their_signature(host: Host, operator: str) -> None:
    with pytest.raises(PackhostError, match="needs an operator"):
        await host.control.request("console.ticket", {})
    nonce = (await host.control.request("console.nonce", {}))["nonce"]
    forged = {"nonce": nonce, "signed": {"at": host.store.now(), "signature": "00" * 64}}
    with pytest.raises(PackhostError, match="not the operator's"):
        await host.control.request("console.ticket", forged)
    with pytest.raises(PackhostError, match="not known or too old"):
        await host.control.request("console.ticket", forged)


async def test_without_an_operator_no_passphrase_is_asked_for(browser: Open) -> None:
    assert "passphrase" not in (await browser().get("/login")).text
    assert "no operator is set up" in (await browser().post("/login", passphrase="x")).text


# attempts


async def test_who_guesses_must_wait_longer_and_longer(host: Host, browser: Open, clock: Any) -> None:
    someone = browser()
    for _ in range(5):
        assert (await someone.post("/login", token="pkh_wrong")).status_code == 403
    waits = []
    for _ in range(4):
        refused = await someone.post("/login", token="pkh_wrong")
        assert refused.status_code == 429
        waits.append(int(refused.headers["retry-after"]))
        clock.now += waits[-1]
        assert (await someone.post("/login", token="pkh_wrong")).status_code == 403
    assert waits == [2, 4, 8, 16]
    right = await ticket(host)
    assert (await someone.post("/login", ticket=right)).status_code == 429
    clock.now += 32
    await someone.enter(ticket=right)
    assert (await browser().post("/login", token="pkh_wrong")).status_code == 403


async def test_a_foreign_page_does_not_keep_a_person_out(host: Host, browser: Open) -> None:
    for _ in range(20):
        await browser().post("/login", {"Origin": "http://evil.example"}, token="x")
    await browser().enter(ticket=await ticket(host))


# whose process


async def test_another_accounts_process_signs_in_by_a_token_alone(
    host: Host, root: Root, browser: Open
) -> None:
    strangers = Console(host.control, own_name(root.hash), own=lambda scope: False)
    given, someone = await ticket(host), browser(strangers)
    assert 'name="ticket"' not in (await someone.get("/login")).text
    assert (await someone.post("/login", ticket=given)).status_code == 403
    assert (await someone.post("/login", passphrase="x")).status_code == 403
    assert (await someone.post("/login/challenge")).status_code == 403
    await browser().enter(ticket=given)
    await someone.enter(token=(await token(host))["token"])
    assert (await someone.get("/account")).status_code == 200


async def test_a_stolen_cookie_does_nothing_in_another_accounts_process(
    host: Host, root: Root, person: Any, browser: Open
) -> None:
    thief = browser(Console(host.control, own_name(root.hash), own=lambda scope: False))
    thief.cookie = person.cookie
    assert (await thief.get("/account")).status_code == 403


async def test_a_handlers_fetch_does_not_even_see_the_page_to_sign_in(person: Any, browser: Open) -> None:
    for one in (browser(), person):
        answer = await one.get("/login", **{FETCHED: "1"})
        assert (answer.status_code, "passphrase" in answer.text) == (403, False)
    guess = await browser().post("/login", {FETCHED: "1", "Sec-Fetch-Site": "same-origin"}, ticket="x")
    assert guess.status_code == 403
    assert "a handler" in guess.text


async def test_nor_does_one_of_a_session_that_a_token_opened_here(
    host: Host, root: Root, browser: Open
) -> None:
    made = await host.control.request("tokens.new", {"role": "operator"})
    elsewhere = Console(host.control, own_name(root.hash), own=lambda scope: False)
    owner, stranger, thief = browser(), browser(elsewhere), browser(elsewhere)
    await owner.enter(token=made["token"])
    await stranger.enter(token=made["token"])
    thief.cookie = owner.cookie
    assert (await thief.get("/account")).status_code == 403
    assert (await owner.get("/account")).status_code == 200
    assert (await stranger.get("/account")).status_code == 200


# the end


async def test_signing_out_ends_the_session_for_good(person: Any) -> None:
    former = person.cookie
    assert (await person.post("/leave", csrf=await person.csrf())).headers["location"] == "/console/login"
    assert person.cookie is None
    person.cookie = former
    assert (await person.get("/account")).status_code == 303
    assert person.cookie is None


@pytest.mark.parametrize("age", [{"expires_at": consoles.LONGEST}, {"seen_at": consoles.IDLE}])
async def test_a_session_ends_by_itself(host: Host, person: Any, age: dict[str, float]) -> None:
    await backdate(host, signed_in(host).id, **age)
    assert (await person.get("/account")).status_code == 303


async def test_use_keeps_a_session_and_watching_does_not(host: Host, person: Any) -> None:
    id = signed_in(host).id
    await backdate(host, id, seen_at=600)
    before = host.store.read(consoles.get, id).seen_at
    await person.get("/account", **{"X-Packhost-Live": "1"})
    await host.store.flush()
    assert host.store.read(consoles.get, id).seen_at == before
    await person.get("/account")
    await host.store.flush()
    assert host.store.read(consoles.get, id).seen_at > before


async def test_an_operator_ends_anothers_session(host: Host, person: Any, auditor: Any) -> None:
    other = next(row for row in host.store.read(consoles.live) if row.role == "auditor")
    done = await person.post(f"/account/sessions/{other.id}/end", csrf=await person.csrf())
    assert done.status_code == 303
    assert (await auditor.get("/account")).status_code == 303


async def test_an_auditor_ends_nobody_elses(host: Host, person: Any, auditor: Any) -> None:
    other = next(row for row in host.store.read(consoles.live) if row.role == "operator")
    refused = await auditor.post(f"/account/sessions/{other.id}/end", csrf=await auditor.csrf())
    assert refused.status_code == 403
    assert (await person.get("/account")).status_code == 200


async def test_who_came_and_went_is_on_record(host: Host, person: Any) -> None:
    await person.post("/leave", csrf=await person.csrf())
    found = await host.control.request("audit.export", {})
    told = [(one["type"], one["actor"]) for one in found["lines"] if one["type"].startswith("console.")]
    assert told == [("console.entered", host.principal), ("console.left", host.principal)]
    assert person.cookie is None


async def test_a_login_page_names_no_operator_record(host: Host, operator: str, browser: Open) -> None:
    page = (await browser().get("/login")).text
    record = (await host.control.request("operator.show", {}))["record"]
    assert not any(str(value) in page for value in record.values() if len(str(value)) > 8)
    assert json.dumps(record) not in page
    assert re.findall(r'name="(\w+)"', page).count("passphrase") == 1


# live


class Stream:
    """A stream of the console, read piece by piece."""

    def __init__(self, console: Console, cookie: str, host: str) -> None:
        self.left = anyio.Event()
        self.pieces: list[str] = []
        self.more = anyio.Event()
        self._console = console
        self._scope = {
            "type": "http",
            "method": "GET",
            "path": "/console/live",
            "raw_path": b"/console/live",
            "query_string": b"",
            "root_path": "",
            "scheme": "http",
            "headers": [(b"host", host.encode()), (b"cookie", f"__Host-packhost={cookie}".encode())],
        }

    async def run(self) -> None:
        async def receive() -> Any:
            await self.left.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            self.pieces.append(message.get("body", b"").decode() or str(message.get("status", "end")))
            self.more.set()

        await self._console(self._scope, receive, send)
        self.pieces.append("over")
        self.more.set()

    async def until(self, text: str) -> None:
        with anyio.fail_after(10):
            while not any(text in piece for piece in self.pieces):
                await self.more.wait()
                self.more = anyio.Event()


async def test_a_page_is_told_of_what_happens_and_of_the_sessions_end(
    host: Host, console: Console, person: Any, name: str
) -> None:
    stream = Stream(console, person.cookie, name)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(stream.run)
        await stream.until("retry:")
        last = await host.store.write(lambda tx: tx.emit("test.event", {}, actor="t"))
        await stream.until(f"event: change\nid: {last}\ndata: 0")
        await person.post("/leave", csrf=await person.csrf())
        await stream.until("event: end")
        await stream.until("over")


async def test_a_stream_ends_when_its_page_goes_and_there_are_not_too_many(
    host: Host, console: Console, person: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("packhost.console.live.MOST", 1)
    stream = Stream(console, person.cookie, name)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(stream.run)
        await stream.until("retry:")
        assert (await person.get("/live")).status_code == 429
        stream.left.set()
        await stream.until("over")
    second = Stream(console, person.cookie, name)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(second.run)
        await second.until("retry:")
        second.left.set()


async def test_many_guesses_at_once_are_no_more_than_in_turn(
    host: Host, operator: str, browser: Open
) -> None:
    answers: list[int] = []

    async def guess(n: int) -> None:
        answers.append((await browser().post("/login", passphrase=f"guess number {n}")).status_code)

    async with anyio.create_task_group() as tasks:
        for n in range(20):
            tasks.start_soon(guess, n)
    assert sorted(answers) == [403] * 5 + [429] * 15


async def test_by_a_plain_name_no_passkey_is_made(host: Host, operator: str, browser: Open) -> None:
    someone = browser(host="localhost:4321")
    await someone.enter(passphrase=operator)
    page = (await someone.get("/account")).text
    assert "Unlocked for" in page
    assert "data-passkey-create" not in page
