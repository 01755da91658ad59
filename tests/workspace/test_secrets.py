"""Secrets: where they come from, and that they are seen nowhere else."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from packhost.errors import ConfigInvalid, NotFound
from packhost.workspace.secrets import REDACTED, Secrets

VALUE = 'p@ss/wörd+"\n1234'


def secrets_of(tmp_path: Path, **references: str) -> Secrets:
    """Secrets whose environment holds `KEY`."""
    return Secrets(references, base=tmp_path, environ={"KEY": VALUE})


def test_each_source_is_read(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("from-a-file\n")
    secrets = secrets_of(tmp_path, A="env:KEY", B="file:key", C="cmd:printf '%s\\n' from-a-command")
    assert [secrets.resolve(name) for name in "ABC"] == [VALUE, "from-a-file", "from-a-command"]


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ("env:NONE", "the environment has no `NONE`"),
        ("file:none", "cannot be read"),
        ("file:.", "cannot be read"),
        ("cmd:false", "failed with status 1"),
        ("cmd:no-such-program-anywhere", "could not be run"),
        ("cmd:'", "cannot be split"),
        ("cmd:printf abc", "shorter than 4 characters"),
        ("keyring:service", "nothing here reads"),
        ("vault:x", "nothing here reads"),
    ],
)
def test_a_reference_that_leads_nowhere_is_an_error(tmp_path: Path, reference: str, said: str) -> None:
    with pytest.raises(ConfigInvalid, match=said):
        secrets_of(tmp_path, A=reference).resolve("A")


def test_a_missing_keyring_names_the_extra(tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        secrets_of(tmp_path, A="keyring:service").resolve("A")
    assert caught.value.hint == "install `packhost[keyring]`"


def test_an_unknown_name_is_told_the_nearest_one(tmp_path: Path) -> None:
    with pytest.raises(NotFound) as caught:
        secrets_of(tmp_path, PROVIDER_KEY="env:KEY").resolve("PROVIDER_KYE")
    assert caught.value.hint == "did you mean `PROVIDER_KEY`?"


def test_a_further_source_is_read_and_cannot_take_a_built_in_name(tmp_path: Path) -> None:
    secrets = secrets_of(tmp_path, A="vault:x", B="env:KEY")
    secrets.add_sources({"vault": lambda name: f"vault-{name}-value", "env": lambda name: "stolen"})
    assert (secrets.resolve("A"), secrets.resolve("B")) == ("vault-x-value", VALUE)


@pytest.mark.parametrize(
    "form",
    [
        VALUE,
        quote(VALUE),
        quote(VALUE, safe=""),
        quote_plus(VALUE),
        quote(VALUE, safe="").lower(),
        json.dumps(VALUE)[1:-1],
        json.dumps(VALUE, ensure_ascii=False)[1:-1],
        json.dumps(json.dumps(VALUE))[3:-3],
        base64.b64encode(VALUE.encode()).decode(),
        base64.urlsafe_b64encode(VALUE.encode()).decode().rstrip("="),
    ],
)
def test_a_value_is_redacted_in_each_form(tmp_path: Path, form: str) -> None:
    secrets = secrets_of(tmp_path, A="env:KEY")
    secrets.resolve("A")
    assert secrets.redact(f"before {form} after") == f"before {REDACTED} after"


@given(st.text("abcXYZ019:", max_size=9), st.text("abcXYZ019:", max_size=9))
def test_a_value_within_longer_base64_is_broken_up(before: str, after: str) -> None:
    secrets = Secrets({}, base=Path("/"))
    secrets.remember("A", "a-long-secret-value")
    text = base64.b64encode(f"{before}a-long-secret-value{after}".encode()).decode()
    assert REDACTED in secrets.redact(text)


def test_what_is_no_secret_is_left_alone(tmp_path: Path) -> None:
    secrets = secrets_of(tmp_path, A="env:KEY")
    secrets.resolve("A")
    assert secrets.redact("password 1234") == "password 1234"


def test_nothing_is_redacted_before_it_was_resolved(tmp_path: Path) -> None:
    assert secrets_of(tmp_path, A="env:KEY").redact(VALUE) == VALUE


def test_a_value_is_redacted_after_its_reference_is_gone(tmp_path: Path) -> None:
    secrets = secrets_of(tmp_path, A="env:KEY")
    secrets.resolve("A")
    secrets.replace_references({})
    assert (secrets.names, secrets.redact(VALUE)) == ((), REDACTED)


def test_the_longer_of_two_values_is_redacted_whole(tmp_path: Path) -> None:
    secrets = Secrets({}, base=tmp_path)
    secrets.remember("A", "secret")
    secrets.remember("B", "secret-longer")
    assert secrets.redact("secret-longer secret") == f"{REDACTED} {REDACTED}"


def test_no_value_is_in_a_repr(tmp_path: Path) -> None:
    secrets = secrets_of(tmp_path, A="env:KEY")
    secrets.resolve("A")
    assert repr(secrets) == "Secrets(['A'])"


def test_the_variables_that_hold_secrets_are_known(tmp_path: Path) -> None:
    assert secrets_of(tmp_path, A="env:KEY", B="file:x").environment_names == {"KEY"}
