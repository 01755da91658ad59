"""What a person at the command line is told of authorization servers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from packhost.cli.checks import authorization
from packhost.cli.run import run

SETTINGS = """\
packhost: 1
auth:
  issuers:
    - issuer: http://127.0.0.1:1
      roles: [{claim: groups, value: masters, role: operator}]
"""


def told(auth: dict[str, Any]) -> list[tuple[str, str]]:
    return [(check.state, check.text) for check in authorization(auth)]


@pytest.mark.parametrize(
    ("issuer", "state", "said"),
    [
        ({"keys": 2, "problem": ""}, "ok", "https://id.example: 2 keys"),
        ({"keys": 1, "problem": ""}, "ok", "https://id.example: 1 key"),
        ({"keys": 0, "problem": ""}, "broken", "https://id.example: 0 keys"),
        ({"keys": 0, "problem": "it is down"}, "broken", "none of its tokens can be checked: it is down"),
    ],
)
def test_an_issuer_is_sound_where_its_keys_can_be_had(issuer, state, said) -> None:
    auth = {"issuers": [{"issuer": "https://id.example", **issuer}], "required": False, "resource": None}
    ((found, text),) = told(auth)
    assert found == state
    assert said in text


def test_who_needs_a_token_is_told_where_that_is_everybody() -> None:
    assert told({"issuers": [], "required": False, "resource": None}) == []
    ((state, text),) = told({"issuers": [], "required": True, "resource": "https://tools.example"})
    assert state == "ok"
    assert text.endswith("want a token of everybody, reached at https://tools.example")


@pytest.mark.slow
def test_doctor_asks_each_server_and_accept_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for name in ("CLAUDECODE", "CURSOR_AGENT"):
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "packhost.yaml").write_text(SETTINGS)
    monkeypatch.chdir(folder)
    assert run(["accept", "--yes"]) == 0
    said = capsys.readouterr().out
    assert (
        "access tokens of `http://127.0.0.1:1` would be taken over HTTP, in the roles operator, caller"
        in said
    )
    assert run(["doctor"]) == 1
    assert "http://127.0.0.1:1: none of its tokens can be checked" in capsys.readouterr().out
