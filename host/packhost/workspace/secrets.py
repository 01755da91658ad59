"""Secrets: references that are resolved late, and their values kept out of everything that is shown.

A reference is `env:NAME`, `file:PATH`, `cmd:PROGRAM ARGUMENTS` or, with the extra `[keyring]`,
`keyring:SERVICE/NAME`; further sources come by the hook `packhost_secret_sources`. A value is never part
of a `repr`, a log or a record.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

from packhost.errors import ConfigInvalid, NotFound
from packhost.manifest.values import fault
from packhost.names import nearest
from packhost.workspace.redaction import REDACTED, SHORTEST, Redactor, StreamRedactor

__all__ = ["REDACTED", "SHORTEST", "SecretSource", "Secrets", "check_reference"]

SecretSource = Callable[[str], str]
"""Given what stands after the colon of a reference, the value; raises `PackhostError` when there is none."""

_BUILT_IN = ("env", "file", "cmd", "keyring")
_LARGEST = 64 * 1024
_PATIENCE = 30.0
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_SOURCE = re.compile(r"[a-z][a-z0-9_-]*\Z")


def check_reference(reference: str) -> str:
    """The reference itself when it is written soundly; whether it leads to a value is seen when it is used.

    Raises `PydanticCustomError`, a `ValueError`; the message never holds more than the source's name,
    since people put the secret itself here by mistake.
    """
    source, found, rest = reference.partition(":")
    hint = "write `env:NAME`, `file:PATH` or `cmd:PROGRAM …`, never the secret itself"
    if not found or not _SOURCE.match(source):
        raise fault("this is not a reference to a secret", hint)
    if not rest.strip():
        raise fault(f"the reference `{source}:` names nothing", hint)
    if source == "env" and not _VARIABLE.match(rest):
        raise fault("this is not the name of a variable", hint)
    if source == "keyring" and not all(rest.rpartition("/")[::2]):
        raise fault("this does not name an entry of the keyring", "write `keyring:SERVICE/NAME`")
    if source not in _BUILT_IN and (near := nearest(source, _BUILT_IN, 1)):
        raise fault(f"`{source}` is not a source of secrets", f"did you mean `{near[0]}:`?")
    return reference


class Secrets:
    """The secrets of one configuration: resolved when they are first needed, redacted from then on.

    `environ` is the environment that `env:` reads; `base` the folder that `file:` is relative to;
    `sources` are further sources by the word before the colon.
    """

    def __init__(
        self,
        references: Mapping[str, str],
        *,
        base: Path,
        environ: Mapping[str, str] | None = None,
        sources: Mapping[str, SecretSource] | None = None,
    ) -> None:
        self._references = dict(references)
        self._base = base
        self._environ = os.environ if environ is None else environ
        self._sources: dict[str, SecretSource] = {
            **(sources or {}),
            "env": self._from_environment,
            "file": self._from_file,
            "cmd": self._from_command,
            "keyring": _from_keyring,
        }
        self.redactor = Redactor()
        """Knows every value that was ever resolved here."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names that can be resolved."""
        return tuple(self._references)

    @property
    def environment_names(self) -> frozenset[str]:
        """The variables that `env:` references read: what no subprocess of a pack may inherit."""
        return frozenset(
            reference.partition(":")[2]
            for reference in self._references.values()
            if reference.startswith("env:")
        )

    def resolve(self, name: str) -> str:
        """The secret's value. A file or a command is read each time, and may block for up to 30 seconds.

        Raises `NotFound` for a name that packhost.yaml does not list, `ConfigInvalid` when the reference
        leads to nothing usable.
        """
        reference = self._references.get(name)
        if reference is None:
            near = nearest(name, self._references, 1)
            hint = f"did you mean `{near[0]}`?" if near else "add it to `secrets` in packhost.yaml"
            raise NotFound(f"there is no secret `{name}`", hint=hint)
        return self.follow(reference, f"the secret `{name}`")

    def follow(self, reference: str, what: str = "the secret") -> str:
        """The value that a reference leads to, which is redacted from then on; `what` names it in errors.

        Raises `ConfigInvalid` when it leads to nothing usable.
        """
        source, _, rest = reference.partition(":")
        read = self._sources.get(source)
        if read is None:
            raise ConfigInvalid(
                f"nothing here reads the secret source `{source}:`", hint="enable the pack that provides it"
            )
        value = read(rest)
        if len(value) < SHORTEST:
            raise ConfigInvalid(
                f"{what} is empty or shorter than {SHORTEST} characters",
                hint=f"check what `{source}:` leads to; so short a value could not be kept out of records",
            )
        self.redactor.add(value)
        return value

    def add_sources(self, sources: Mapping[str, SecretSource]) -> None:
        """Let further sources be read; those that come with packhost keep their names."""
        self._sources = {**sources, **self._sources}

    def redact(self, text: str) -> str:
        """The text without any resolved value, raw or as URLs, JSON, base64 and hex spell it."""
        return self.redactor.redact(text)

    def stream(self) -> StreamRedactor:
        """Redacts a text that comes in pieces."""
        return StreamRedactor(self.redactor)

    def replace_references(self, references: Mapping[str, str]) -> None:
        """Take another configuration's references; what was resolved before stays redacted."""
        self._references = dict(references)

    def _from_environment(self, variable: str) -> str:
        value = self._environ.get(variable)
        if not value:
            raise ConfigInvalid(
                f"the environment has no `{variable}`", hint=f"set {variable} where packhost is started"
            )
        return value

    def _from_file(self, name: str) -> str:
        path = self._base / Path(name).expanduser()
        try:
            with path.open("rb") as file:
                content = file.read(_LARGEST + 1)
        except (OSError, ValueError):
            raise ConfigInvalid(
                f"the secret file `{name}` cannot be read", hint="check its path and mode"
            ) from None
        return _text(content, f"the secret file `{name}`")

    def _from_command(self, line: str) -> str:
        try:
            words = shlex.split(line)
        except ValueError:
            raise ConfigInvalid("the command of a secret cannot be split", hint="close its quotes") from None
        if not words:
            raise ConfigInvalid("the command of a secret is empty")
        try:
            done = subprocess.run(  # noqa: S603 - a person accepted this very command
                words,
                cwd=self._base,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_PATIENCE,
                check=False,
            )
        except (OSError, subprocess.SubprocessError, ValueError):
            raise ConfigInvalid(f"the secret's command `{words[0]}` could not be run to its end") from None
        if done.returncode:
            raise ConfigInvalid(f"the secret's command `{words[0]}` failed with status {done.returncode}")
        return _text(done.stdout, f"the output of the secret's command `{words[0]}`")

    def __repr__(self) -> str:
        return f"Secrets({sorted(self._references)})"


def _from_keyring(entry: str) -> str:
    service, _, name = entry.rpartition("/")
    try:
        import keyring  # an extra, and slow to import: only when a secret lies there
        from keyring.errors import KeyringError
    except ImportError:
        raise ConfigInvalid(
            "the secret source `keyring:` is not installed", hint="install `packhost[keyring]`"
        ) from None
    try:
        value: str | None = keyring.get_password(service, name)
    except (KeyringError, OSError, RuntimeError):
        raise ConfigInvalid(
            f"the keyring could not be asked for `{entry}`", hint="unlock it, and check its backend"
        ) from None
    if not value:
        raise ConfigInvalid(
            f"the keyring holds no `{entry}`", hint=f"put it there with `keyring set {service} {name}`"
        )
    return value


def _text(content: bytes, what: str) -> str:
    if len(content) > _LARGEST:
        raise ConfigInvalid(f"{what} is larger than 64 KiB")
    try:
        value = content.decode("utf-8")
    except UnicodeDecodeError:
        raise ConfigInvalid(f"{what} is not UTF-8 text") from None
    return value.removesuffix("\n").removesuffix("\r")
