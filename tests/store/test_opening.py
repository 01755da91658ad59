"""The `store` setting: an address, a reference to one, and what of it may be shown."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from packhost.errors import ConfigInvalid, StoreUnavailable
from packhost.store.address import parse_address
from packhost.store.opening import address_of, open_store
from packhost.workspace.secrets import Secrets

PASSWORD = "p%40ss-w0rd!"


@pytest.fixture
def secrets(tmp_path: Path) -> Secrets:
    (tmp_path / "address").write_text("postgresql://ann:from-a-file@db/app?workspace=shop\n")
    return Secrets({}, base=tmp_path, environ={"ADDRESS": f"postgresql://ann:{PASSWORD}@db:5433/app"})


@pytest.mark.parametrize(
    ("url", "shown", "workspace", "passed"),
    [
        ("postgresql://db/app", "postgresql://db/app", "ws", "postgresql://db/app"),
        ("postgres://ann@db/app?workspace=a-1_b", "postgres://ann@db/app", "a-1_b", "postgres://ann@db/app"),
        (
            "postgresql://ann:secret@a,b:5433/app?sslmode=require&workspace=x&target_session_attrs=any",
            "postgresql://ann@a,b:5433/app",
            "x",
            "postgresql://ann:secret@a,b:5433/app?sslmode=require&target_session_attrs=any",
        ),
        (
            "postgresql:///app?host=/run/postgresql&password=a+b%20c",
            "postgresql:///app",
            "ws",
            "postgresql:///app?host=/run/postgresql&password=a+b%20c",
        ),
    ],
)
def test_an_address_is_taken_apart(url: str, shown: str, workspace: str, passed: str) -> None:
    address = parse_address(url, "ws")
    assert (address.shown, address.workspace, address.url) == (shown, workspace, passed)
    assert address.schema == f"packhost_{workspace}"


def test_every_workspace_has_its_own_lock() -> None:
    keys = {parse_address(f"postgresql://db/app?workspace={name}", "ws").lock for name in "abcdef"}
    assert len(keys) == 6
    assert all(-(2**63) <= key < 2**63 for key in keys)


@pytest.mark.parametrize("given", ["a b", "", "A", "é", "x" * 49, "../x", 'a"b', "-x"])
def test_a_workspace_name_that_cannot_be_a_schema_is_refused(given: str) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        parse_address(f"postgresql://db/app?workspace={given}", "ws")
    assert "a-z" in caught.value.hint


@pytest.mark.parametrize(
    "url",
    [
        "mysql://ann:sesame-key@db/app",
        "postgresql://ann:sesame-key#@db/app",
        "postgresql://ann:sesame-key@db/app?workspace=a&workspace=b",
        "postgresql://ann:sesame-key@db/app?workspace=a b",
        "postgresql://ann:sesame-key@db/app?sesame-key=1",
        "postgresql://ann:sesame-key@db:x%zz/app",
    ],
)
def test_an_address_that_cannot_be_used_is_never_repeated(url: str, tmp_path: Path) -> None:
    with pytest.raises((ConfigInvalid, StoreUnavailable)) as caught:
        open_store(url, tmp_path, "ws", Secrets({}, base=tmp_path))
    error = caught.value
    assert error.hint
    assert "sesame-key" not in f"{error} {error.hint} {error.data}"


def test_a_password_stands_in_no_text_about_its_address() -> None:
    address = parse_address(f"postgresql://ann:{PASSWORD}@db/app", "ws")
    for text in (repr(address), str(address), address.shown, address.clean(f"{PASSWORD} p@ss-w0rd! no")):
        assert "w0rd" not in text


def test_a_reference_leads_to_the_address_and_its_password_is_redacted(secrets: Secrets) -> None:
    address = address_of("env:ADDRESS", "ws", secrets)
    assert (address.shown, address.workspace) == ("postgresql://ann@db:5433/app", "ws")
    assert "w0rd" not in secrets.redact(f"it said p@ss-w0rd! and {PASSWORD}")
    assert address_of("file:address", "ws", secrets).workspace == "shop"
    assert "from-a-file" not in secrets.redact("so from-a-file it came")


def test_a_reference_that_leads_nowhere_is_refused(secrets: Secrets) -> None:
    with pytest.raises(ConfigInvalid):
        address_of("env:NOT_THERE", "ws", secrets)
    with pytest.raises(ConfigInvalid):
        address_of("keyring:a/b", "ws", secrets)


def test_a_missing_extra_is_named_with_what_installs_it(
    secrets: Secrets, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(ConfigInvalid) as caught:
        open_store("env:ADDRESS", tmp_path, "ws", secrets)
    assert "packhost[postgres]" in caught.value.hint


def test_a_database_that_is_not_there_is_an_error_at_once(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable) as caught:
        open_store(f"postgresql://ann:{PASSWORD}@127.0.0.1:1/app", tmp_path, "ws", Secrets({}, base=tmp_path))
    assert "postgresql://ann@127.0.0.1:1/app" in caught.value.message
    assert "w0rd" not in caught.value.message
