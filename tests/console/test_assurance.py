"""Decisions in the console that need the operator: by the passphrase, or by a passkey the host can check."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from authenticator import PRESENT, Authenticator

from packhost.app.host import Host
from packhost.console.app import Console, own_name
from packhost.console.kit import Action, Moved, Visit
from packhost.console.proving import base64url
from packhost.control.console import RIGHTS
from packhost.control.operations import OPERATIONS
from packhost.errors import PackhostError
from packhost.gate.passkeys import asserted, challenge_of, signature_of
from packhost.gate.types import Caller, CallRequest, Completed, Refusal
from packhost.rules.statements import decision_statement
from packhost.store.ops import consoles
from packhost.store.restoring import settle, withdrawn
from packhost.workspace import operator as operators
from packhost.workspace.operator import make_record
from packhost.workspace.pen import Pen
from packhost.workspace.root import Root

pytestmark = pytest.mark.anyio
Open = Callable[..., Any]
WRITE = {"path": "src/a.txt", "content": "hello\n"}


async def decide(visit: Visit) -> Moved:
    """What an approval's page does, in short."""
    found = await visit.ask("approvals.show", id=visit.path["id"])
    verdict = "approve" if visit.form.get("verdict") == "approve" else "deny"
    always = {"only": {}, "any": []} if visit.form.get("always") else None
    await visit.decide(found, verdict, visit.form.get("reason"), always)
    return Moved("/account", f"{verdict} it is")


@pytest.fixture
def console(host: Host, root: Root, clock: Any) -> Console:
    """A console with a page that decides."""
    actions = (Action("/decide/{id}", decide, "approvals:decide"),)
    return Console(host.control, own_name(root.hash), clock=clock, pages=(), actions=actions)


@pytest.fixture
async def person(host: Host, operator: str, browser: Open) -> Any:
    """Somebody who signed in by the passphrase, which is unlocked."""
    someone = browser()
    await someone.enter(passphrase=operator)
    return someone


@pytest.fixture
def key(root: Root, name: str) -> Authenticator:
    """An authenticator of theirs."""
    return Authenticator(own_name(root.hash), f"http://{name}")


async def enrolled(person: Any, key: Authenticator, called: str = "laptop") -> None:
    session = json.loads(creation(await person.get("/account")))
    sent = json.dumps(key.created(session["challenge"]))
    done = await person.post("/account/passkeys", csrf=await person.csrf(), name=called, credential=sent)
    assert done.status_code == 303


def creation(answer: Any) -> str:
    found = re.search(r'data-passkey-create="([^"]+)"', answer.text)
    assert found is not None
    return found[1].replace("&#34;", '"').replace("&amp;#34;", '"')


async def asked(host: Host, name: str = "a") -> tuple[CallRequest, str]:
    """A call that waits for a person: itself, and its approval."""
    session = await host.gate.sessions.enter("s", host.principal, "test")
    caller = Caller(host.principal, "test", session)
    request = CallRequest("workspace:write_file", {**WRITE, "path": f"src/{name}.txt"}, caller)
    outcome = await host.gate.call(request, None)
    assert isinstance(outcome, Refusal)
    assert outcome.approval_id
    return request, outcome.approval_id


async def by_passkey(person: Any, key: Authenticator, id: str, **form: str) -> Any:
    """Send a form as the console's script does: ask, have the passkey answer, send."""
    csrf, own = await person.csrf(), {"Origin": f"http://{person.host}"}
    wanted = await person.post(f"/decide/{id}", {**own, "X-Packhost-Passkey": "ask"}, csrf=csrf, **form)
    assert wanted.status_code == 200, wanted.text
    answers = key.answers(wanted.json()["challenges"])
    return await person.post(f"/decide/{id}", csrf=csrf, passkey=answers, back="/console/account", **form)


async def edit(host: Host, sql: str, *values: object) -> None:
    """Change the store behind packhost's back."""

    def changed(tx: Any) -> None:
        tx.execute(sql, values)

    await host.store.write(changed)


async def status(host: Host, id: str) -> str:
    return str((await host.control.request("approvals.show", {"id": id}))["status"])


# the passphrase


async def test_an_unlocked_key_approves_with_the_operators_assurance(host: Host, person: Any) -> None:
    request, id = await asked(host)
    assert (
        await person.post(f"/decide/{id}", csrf=await person.csrf(), verdict="approve")
    ).status_code == 303
    answer = (await host.control.request("approvals.show", {"id": id}))["answers"][0]
    assert (answer["assurance"], answer["channel"], answer["by"]) == ("operator", "console", host.principal)
    assert isinstance(await host.gate.call(request, None), Completed)


async def test_a_locked_key_approves_nothing_until_the_passphrase_comes_along(
    host: Host, person: Any, operator: str
) -> None:
    _, id = await asked(host)
    csrf = await person.csrf()
    await person.post("/account/lock", csrf=csrf)
    refused = await person.post(f"/decide/{id}", csrf=csrf, verdict="approve", back="/console/account")
    assert refused.headers["location"] == "/console/account"
    assert "this needs the operator" in (await person.get("/account")).text
    assert await status(host, id) == "pending"
    wrong = await person.post(f"/decide/{id}", csrf=csrf, verdict="approve", passphrase="no, no, no")
    assert wrong.status_code == 403
    assert await status(host, id) == "pending"
    await person.post(f"/decide/{id}", csrf=csrf, verdict="approve", passphrase=operator)
    assert await status(host, id) == "approved"


async def test_denying_needs_no_passphrase(host: Host, person: Any) -> None:
    _, id = await asked(host)
    csrf = await person.csrf()
    await person.post("/account/lock", csrf=csrf)
    await person.post(f"/decide/{id}", csrf=csrf, verdict="deny", reason="not now")
    assert await status(host, id) == "denied"


async def test_always_allowing_is_signed_as_well(host: Host, person: Any) -> None:
    _, id = await asked(host)
    await person.post(f"/decide/{id}", csrf=await person.csrf(), verdict="approve", always="1")
    assert len((await host.control.request("grants.list", {}))["grants"]) == 1


async def test_the_key_stays_unlocked_while_it_is_used_and_not_for_ever(
    host: Host, person: Any, clock: Any
) -> None:
    csrf = await person.csrf()
    for step in range(7):
        clock.now += 290
        answer = await person.post("/account/unlock", csrf=csrf, back="/console/account")
        assert answer.status_code == 303
        page = (await person.get("/account")).text
        assert ("Unlocked for" in page) is (step < 6), step


# a passkey


async def test_a_passkey_approves_with_the_operators_assurance(
    host: Host, person: Any, key: Authenticator, operator: str, browser: Open
) -> None:
    await enrolled(person, key)
    assert "laptop" in (await person.get("/account")).text
    await person.post("/account/lock", csrf=await person.csrf())
    request, id = await asked(host)
    assert (await by_passkey(person, key, id, verdict="approve")).status_code == 303
    answer = (await host.control.request("approvals.show", {"id": id}))["answers"][0]
    assert (answer["assurance"], answer["channel"]) == ("operator", "console")
    assert isinstance(await host.gate.call(request, None), Completed)


async def test_a_passkey_allows_for_good_by_two_answers(host: Host, person: Any, key: Authenticator) -> None:
    await enrolled(person, key)
    await person.post("/account/lock", csrf=await person.csrf())
    _, id = await asked(host)
    await by_passkey(person, key, id, verdict="approve", always="1")
    assert await status(host, id) == "approved"
    assert len((await host.control.request("grants.list", {}))["grants"]) == 1


async def test_a_passkey_signs_in(host: Host, person: Any, key: Authenticator, browser: Open) -> None:
    await enrolled(person, key)
    someone = browser()
    assert "Sign in by passkey" in (await someone.get("/login")).text
    wanted = (await someone.post("/login/challenge")).json()
    assert wanted["allow"] == [base64url(key.id)]
    answers = key.answers(wanted["challenges"])
    await someone.enter(nonce=wanted["nonce"], passkey=answers)
    assert host.store.read(consoles.live)[0].way == "passkey"
    assert "Unlocked for" not in (await someone.get("/account")).text
    again = await browser().post("/login", nonce=wanted["nonce"], passkey=answers)
    assert again.status_code == 403


async def test_asking_what_a_passkey_would_sign_changes_nothing(host: Host, person: Any) -> None:
    _, id = await asked(host)
    own = {"Origin": f"http://{person.host}", "X-Packhost-Passkey": "ask"}
    for form in ({"verdict": "approve"}, {"verdict": "approve", "always": "1"}, {"verdict": "deny"}):
        wanted = await person.post(f"/decide/{id}", own, csrf=await person.csrf(), **form)
        assert len(wanted.json()["challenges"]) == len(form) - (form["verdict"] == "deny")
    assert await status(host, id) == "pending"
    refused = await person.post("/account/lock", own, csrf=await person.csrf())
    assert refused.status_code == 303
    never = await person.post("/account/sessions/x/end", {}, csrf="x")
    assert never.status_code == 403


async def test_an_answer_is_for_one_approval_alone(host: Host, person: Any, key: Authenticator) -> None:
    await enrolled(person, key)
    csrf, own = await person.csrf(), {"Origin": f"http://{person.host}"}
    await person.post("/account/lock", csrf=csrf)
    (_, one), (_, other) = await asked(host), await asked(host, "b")
    wanted = await person.post(
        f"/decide/{one}", {**own, "X-Packhost-Passkey": "ask"}, csrf=csrf, verdict="approve"
    )
    answers = key.answers(wanted.json()["challenges"])
    assert (
        await person.post(f"/decide/{other}", csrf=csrf, verdict="approve", passkey=answers)
    ).status_code == 409
    changed = {"verdict": "approve", "reason": "another", "passkey": answers}
    assert (await person.post(f"/decide/{one}", csrf=csrf, **changed)).status_code == 409
    assert (await status(host, one), await status(host, other)) == ("pending", "pending")


@pytest.mark.parametrize("flaw", ["unknown", "unverified", "elsewhere", "other name"])
async def test_what_no_enrolled_passkey_of_this_console_says_counts_for_nothing(
    host: Host, person: Any, key: Authenticator, flaw: str
) -> None:
    await enrolled(person, key)
    await person.post("/account/lock", csrf=await person.csrf())
    if flaw == "unknown":
        key = Authenticator(key.rp_id, key.origin)
    elif flaw == "unverified":
        key.flags = PRESENT
    elif flaw == "elsewhere":
        key.origin = "http://evil.localhost:4321"
    else:
        key.rp_id = "localhost"
    _, id = await asked(host)
    refused = await by_passkey(person, key, id, verdict="approve")
    assert refused.status_code == 303
    assert "the signature is not the operator" in (await person.get("/account")).text
    assert await status(host, id) == "pending"


async def test_a_row_that_the_operator_did_not_sign_is_no_passkey(
    host: Host, person: Any, key: Authenticator
) -> None:
    await enrolled(person, key)
    await person.post("/account/lock", csrf=await person.csrf())
    mine = Authenticator(key.rp_id, key.origin)
    for column, value in (("credential", base64url(mine.id)), ("name", "other"), ("added_at", 1.0)):
        before = getattr(host.store.read(consoles.passkeys)[0], column)
        await edit(host, f"UPDATE passkeys SET {column}=?", value)
        assert host.gate.operators.passkeys() == (), column
        await edit(host, f"UPDATE passkeys SET {column}=?", before)
        assert len(host.gate.operators.passkeys()) == 1
    await edit(host, "UPDATE passkeys SET rp_id='x'")
    assert "1 of the stored passkeys count for nothing" in (await person.get("/account")).text


async def test_an_edited_answer_of_a_passkey_approves_nothing(
    host: Host, person: Any, key: Authenticator
) -> None:
    await enrolled(person, key)
    await person.post("/account/lock", csrf=await person.csrf())
    request, id = await asked(host)
    await by_passkey(person, key, id, verdict="approve", reason="once")
    await host.store.write(
        lambda tx: (
            tx.execute("UPDATE approvals SET answers_json=replace(answers_json, 'once', 'ever')") and None
        )
    )
    assert isinstance(await host.gate.call(request, None), Refusal)


async def test_a_removed_passkey_speaks_for_nobody(host: Host, person: Any, key: Authenticator) -> None:
    await enrolled(person, key)
    csrf = await person.csrf()
    await person.post("/account/lock", csrf=csrf)
    request, id = await asked(host)
    await by_passkey(person, key, id, verdict="approve")
    row = host.store.read(consoles.passkeys)[0]
    assert (await person.post(f"/account/passkeys/{row.id}/remove", csrf=csrf)).status_code == 303
    assert host.store.read(consoles.passkeys) == ()
    assert isinstance(await host.gate.call(request, None), Refusal)


async def test_a_new_operator_starts_without_passkeys(
    host: Host, person: Any, key: Authenticator, operator: str
) -> None:
    await enrolled(person, key)
    present = operators.record_of((await host.control.request("operator.show", {}))["record"])
    old = operators.unseal(present, operator)
    assert old is not None
    record, signer = make_record("another passphrase", by=host.principal, at=host.store.now())
    pen = Pen(old, host.store.workspace, host.principal)
    consent = host.workspace.consent
    assert consent is not None
    params = {
        "record": record.as_json(),
        "consent": signer.sign(consent.statement(host.store.workspace)),
        "signed": pen.succession(present.fingerprint, record.fingerprint),
    }
    await host.control.request("operator.set", params)
    assert host.gate.operators.passkeys() == ()


async def test_a_passkey_is_added_by_the_passphrase_alone(
    host: Host, person: Any, key: Authenticator
) -> None:
    await enrolled(person, key)
    csrf = await person.csrf()
    shown = json.loads(creation(await person.get("/account")))
    assert shown["excludeCredentials"] == [{"type": "public-key", "id": base64url(key.id)}]
    await person.post("/account/lock", csrf=csrf)
    assert "data-passkey-create" not in (await person.get("/account")).text
    another = Authenticator(key.rp_id, key.origin)
    sent = json.dumps(another.created(shown["challenge"]))
    refused = await person.post("/account/passkeys", csrf=csrf, name="x", credential=sent)
    assert refused.status_code == 409
    at = host.store.now()
    facts = {"credential": base64url(another.id), "public_key": "AAAA", "rp_id": key.rp_id, "name": "x"}
    by_another = {"at": at, "signature": signature_of(key.answered(base64url(b"x" * 32)))}
    params = {"session": person.cookie, **facts, "signed": by_another}
    with pytest.raises(PackhostError, match="needs the operator's passphrase"):
        await host.control.request("console.passkeys.add", params)
    assert len(host.store.read(consoles.passkeys)) == 1


async def test_an_old_answer_is_not_fresh(host: Host, person: Any, key: Authenticator) -> None:
    await enrolled(person, key)
    _, id = await asked(host)
    found = await host.control.request("approvals.show", {"id": id})
    at = host.store.now() - 120
    said = decision_statement(
        workspace=found["workspace"],
        approval_id=id,
        binding=found["binding"],
        verdict="approve",
        reason="",
        by=host.principal,
        at=at,
        expires_at=found["expires_at"],
    )
    signature = signature_of(key.answered(base64url(challenge_of(said))))
    assert host.gate.operators.signed(said, signature)
    params = {"id": id, "verdict": "approve", "signed": {"at": at, "signature": signature}}
    with pytest.raises(PackhostError, match="at another time"):
        await host.control.request("approvals.decide", params)


@pytest.mark.parametrize("given", ["[]", "x", "[1]", '[{"at": 1, "assertion": {}}]', "{}", "[" * 10_000])
async def test_what_is_no_answer_of_a_passkey_is_refused(host: Host, person: Any, given: str) -> None:
    _, id = await asked(host)
    sent = await person.post(f"/decide/{id}", csrf=await person.csrf(), verdict="approve", passkey=given)
    assert sent.status_code == 400
    assert await status(host, id) == "pending"


def test_signatures_that_only_look_like_a_passkeys_are_no_proof() -> None:
    for text in ("", "x", "{}", "[]", '{"id": 1}', '{"id": "a", "clientDataJSON": "!"}', "[" * 10_000):
        assert not asserted(b"said", f"passkey:{text}", ())


def test_every_operation_that_a_console_asks_for_is_there() -> None:
    assert RIGHTS.keys() <= OPERATIONS.keys()


async def test_a_restored_backup_signs_nobody_in_and_brings_no_passkey_back_that_was_removed(
    host: Host, person: Any, key: Authenticator
) -> None:
    await enrolled(person, key)
    await enrolled(person, Authenticator(key.rp_id, key.origin), "phone")
    first, second = host.store.read(consoles.passkeys)
    present = replace(host.store.read(withdrawn), passkeys=frozenset({second.id}))
    manifest: Any = SimpleNamespace(made_at=1.0, head_id=1, head_hash="x")
    await host.store.write(settle, manifest, "t", present)
    assert [row.id for row in host.store.read(consoles.passkeys)] == [second.id] != [first.id]
    assert host.store.read(consoles.live) == ()
