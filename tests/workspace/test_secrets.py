"""Secrets: where they come from, and that they are seen nowhere else."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from packhost.errors import ConfigInvalid, NotFound
from packhost.workspace.secrets import REDACTED, Secrets, check_reference

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
        ("vault:x", "nothing here reads"),
    ],
)
def test_a_reference_that_leads_nowhere_is_an_error(tmp_path: Path, reference: str, said: str) -> None:
    with pytest.raises(ConfigInvalid, match=said):
        secrets_of(tmp_path, A=reference).resolve("A")


KEYRING = """
from keyring.errors import KeyringError

def get_password(service, name):
    if service == "locked":
        raise KeyringError("the value is from-the-keyring")
    return {("my/service", "me"): "from-the-keyring"}.get((service, name))
"""


@pytest.fixture
def keyring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A package `keyring` that can be imported, with one entry."""
    package = tmp_path / "site" / "keyring"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(KEYRING)
    (package / "errors.py").write_text("class KeyringError(Exception): pass\n")
    monkeypatch.syspath_prepend(str(package.parent))
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] == "keyring"]:
        del sys.modules[name]


def test_a_missing_keyring_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "keyring", None)
    with pytest.raises(ConfigInvalid) as caught:
        secrets_of(tmp_path, A="keyring:service/me").resolve("A")
    assert caught.value.hint == "install `packhost[keyring]`"


@pytest.mark.usefixtures("keyring")
def test_a_keyring_is_asked_for_the_entry_of_a_service(tmp_path: Path) -> None:
    secrets = secrets_of(tmp_path, A="keyring:my/service/me")
    assert "keyring" not in sys.modules
    assert secrets.resolve("A") == "from-the-keyring"
    assert secrets.redact("from-the-keyring") == REDACTED


@pytest.mark.usefixtures("keyring")
@pytest.mark.parametrize(
    ("reference", "said"),
    [("keyring:my/service/you", "holds no `my/service/you`"), ("keyring:locked/me", "could not be asked")],
)
def test_a_keyring_without_the_value_is_an_error_that_tells_none(
    tmp_path: Path, reference: str, said: str
) -> None:
    with pytest.raises(ConfigInvalid, match=said) as caught:
        secrets_of(tmp_path, A=reference).resolve("A")
    assert "from-the-keyring" not in str(caught.value)


@pytest.mark.parametrize("reference", ["keyring:service", "keyring:/name", "keyring:service/"])
def test_a_keyring_reference_names_service_and_entry(reference: str) -> None:
    with pytest.raises(ValueError, match="does not name an entry"):
        check_reference(reference)


def test_an_unknown_name_is_told_the_nearest_one(tmp_path: Path) -> None:
    with pytest.raises(NotFound) as caught:
        secrets_of(tmp_path, PROVIDER_KEY="env:KEY").resolve("PROVIDER_KYE")
    assert caught.value.hint == "did you mean `PROVIDER_KEY`?"


def test_a_further_source_is_read_and_cannot_take_a_built_in_name(tmp_path: Path) -> None:
    secrets = secrets_of(tmp_path, A="vault:x", B="env:KEY")
    secrets.add_sources({"vault": lambda name: f"vault-{name}-value", "env": lambda name: "stolen"})
    assert (secrets.resolve("A"), secrets.resolve("B")) == ("vault-x-value", VALUE)


def test_a_resolved_value_is_redacted(tmp_path: Path) -> None:
    secrets = secrets_of(tmp_path, A="env:KEY")
    secrets.resolve("A")
    stream = secrets.stream()
    assert secrets.redact(f"before {VALUE} after") == f"before {REDACTED} after"
    assert stream.feed(VALUE[:5]) + stream.feed(VALUE[5:]) + stream.finish() == REDACTED


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


def test_no_value_is_in_a_repr(tmp_path: Path) -> None:
    secrets = secrets_of(tmp_path, A="env:KEY")
    secrets.resolve("A")
    assert repr(secrets) == "Secrets(['A'])"


def test_the_variables_that_hold_secrets_are_known(tmp_path: Path) -> None:
    assert secrets_of(tmp_path, A="env:KEY", B="file:x").environment_names == {"KEY"}
