"""Who is let in over HTTP, as packhost.yaml says it: what cannot be meant is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from packhost.errors import ConfigInvalid
from packhost.workspace.authorization import AuthSettings
from packhost.workspace.config import load_settings
from packhost.workspace.differences import widening
from packhost.workspace.root import Root
from packhost.workspace.settings import default_settings
from packhost.workspace.workspace import Workspace

ISSUER = "    - issuer: https://id.example\n"


def settings(auth: str) -> AuthSettings:
    return load_settings(f"packhost: 1\nauth:\n{auth}".encode()).auth


def test_a_short_section_has_what_is_usual() -> None:
    found = settings(f"  issuers:\n{ISSUER}")
    (issuer,) = found.issuers
    assert (issuer.algorithms, issuer.principal) == (("RS256", "ES256", "EdDSA"), "sub")
    assert (issuer.role, issuer.begins, issuer.audience) == ("caller", "https://id.example#", ())
    assert not found.wants_token


@pytest.mark.parametrize(
    ("resource", "wants"),
    [
        ("https://tools.example/", True),
        ("https://tools.example/packhost", True),
        ("http://127.0.0.1:8321", False),
        ("http://localhost:8321", False),
        ("http://[::1]:8321", False),
    ],
)
def test_an_address_that_others_reach_wants_a_token_of_everybody(resource, wants) -> None:
    found = settings(f"  resource: {resource}\n")
    assert found.wants_token is wants
    assert found.resource == resource.rstrip("/")
    assert not settings(f"  resource: {resource}\n  required: false\n").wants_token


@pytest.mark.parametrize(
    ("auth", "said"),
    [
        ("  issuers: [{issuer: 'http://id.example'}]\n", "without encryption"),
        ("  issuers: [{issuer: 'http://localhost.evil.example'}]\n", "without encryption"),
        ("  issuers: [{issuer: 'https://me@id.example'}]\n", "no plain address"),
        ("  issuers: [{issuer: 'https://id.example?a=b'}]\n", "no plain address"),
        ("  issuers: [{issuer: 'https://id.example#a'}]\n", "no plain address"),
        ("  issuers: [{issuer: 'https://id.example:port'}]\n", "no address"),
        ("  issuers: [{issuer: 'ftp://id.example'}]\n", "no plain address"),
        ("  issuers: [{issuer: id.example}]\n", "no plain address"),
        (
            "  issuers: [{issuer: 'https://id.example', jwks: 'http://id.example/keys'}]\n",
            "without encryption",
        ),
        ("  resource: http://tools.example\n", "without encryption"),
        ("  issuers: [{issuer: 'https://id.example', algorithms: [HS256]}]\n", "HS256"),
        ("  issuers: [{issuer: 'https://id.example', algorithms: [none]}]\n", "none"),
        ("  issuers: [{issuer: 'https://id.example', algorithms: []}]\n", "algorithms"),
        ("  issuers: [{issuer: 'https://id.example', role: admin}]\n", "role"),
        ("  issuers: [{issuer: 'https://id.example', isuer: a}]\n", "isuer"),
        ("  scopes: {all: [everything]}\n", "scopes"),
        ("  scopes: {'a b': [mcp]}\n", "cannot be the name of a scope"),
        (f"  issuers:\n{ISSUER}{ISSUER}", "stands twice"),
        (
            "  issuers: [{issuer: 'https://a.example', prefix: ''}, {issuer: 'https://b.example'}]\n",
            "could name the same principal",
        ),
        (
            "  issuers: [{issuer: 'https://a.example', prefix: 'a/'}, "
            "{issuer: 'https://b.example', prefix: 'a/b'}]\n",
            "could name the same principal",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused_with_its_place(auth, said) -> None:
    with pytest.raises(ConfigInvalid) as found:
        settings(auth)
    assert said in str(found.value)
    assert found.value.place is not None


def test_a_person_is_told_whose_tokens_would_be_taken_and_as_what() -> None:
    file = load_settings(
        b"packhost: 1\nauth:\n  required: true\n  issuers:\n"
        b"    - issuer: https://id.example\n"
        b"      roles: [{claim: groups, value: masters, role: operator}]\n"
    )
    texts = [change.text for change in widening(default_settings(), file, {})]
    assert texts == [
        "access tokens of `https://id.example` would be taken over HTTP, in the roles operator, caller",
        "who is let in over HTTP (`auth`) would change",
    ]
    assert widening(file, file, {}) == []
    gone = [change.text for change in widening(file, default_settings(), {})]
    assert gone[0] == "access tokens of `https://id.example` would be taken no more"


def test_only_what_was_accepted_lets_anybody_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "packhost.yaml").write_text("packhost: 1\n")
    with Root(folder) as root:
        workspace = Workspace(root)
        workspace.accept(by="me", channel="cli")
        (folder / "packhost.yaml").write_text(f"packhost: 1\nauth:\n  issuers:\n{ISSUER}")
        workspace.refresh()
        assert workspace.accepted.auth.issuers == ()
        assert workspace.pending
        workspace.accept(by="me", channel="cli")
        assert [one.issuer for one in workspace.accepted.auth.issuers] == ["https://id.example"]
