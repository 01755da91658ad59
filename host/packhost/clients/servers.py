"""An MCP server as a client's file describes it, whatever the client: command or URL, and its variables.

Values that look like secrets never leave the file that they stand in: they become references by name.
What is no secret is expanded as it stands now, as the client would at its own start.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from packhost.errors import ConfigInvalid
from packhost.workspace.secrets import SHORTEST

_REFERENCE: Final = re.compile(r"\$\{([^{}]+)\}")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_SECRET_NAME: Final = re.compile(
    r"token|secret|passw|pwd|passphrase|api[_-]?key|access[_-]?key|private[_-]?key|(?:^|[_-])key\Z|credential"
    r"|authorization|bearer|(?:^|[_-])(?:pat|auth|dsn|cookie)\Z|connection[_-]?string|webhook",
    re.IGNORECASE,
)
_SECRET_VALUE: Final = re.compile(
    r"(?:gh[opsu]_|github_pat_|glpat-|sk-|rk_live_|xox[abprs]-|AKIA|ASIA|AIza|ya29\.|eyJ[\w-]+\.|npm_|pypi-|hf_)"
    r"[\w.-]{6,}|-----BEGIN|[a-z][a-z0-9+.-]*://[^/\s:@]*:[^/\s@]+@|\b(?:Bearer|Basic)\s+\S{6,}",
)
_RANDOM: Final = re.compile(r"[A-Za-z0-9+/_=-]{24,}\Z")
_BITS: Final = 3.7
"""Bits of entropy a character from which a long word is taken for a key rather than for a name."""


@dataclass(frozen=True, slots=True)
class Secret:
    """A value that is kept out of what is written: its name in packhost.yaml, its variable, and the value.

    `value` is `None` where only the variable is known; `standing` says that the client's file holds the
    value itself, so that the client has to hand it on.
    """

    name: str
    variable: str
    value: str | None = field(repr=False)
    standing: bool


@dataclass(frozen=True, slots=True)
class Server:
    """A server in packhost's own terms. Text may hold `{{secret:NAME}}`; `secrets` says what each is."""

    name: str
    command: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str | None = None
    url: str | None = None
    sse: bool = False
    """Whether it is reached by the older transport, as its client's file says."""
    headers: Mapping[str, str] = field(default_factory=dict)
    secrets: tuple[Secret, ...] = ()
    start_timeout: float | None = None
    """Seconds that its client waits for it to start; `None` for the client's own default."""
    only: tuple[str, ...] | None = None
    """The tools that the client lets through; `None` for all."""
    without: tuple[str, ...] = ()

    @property
    def where(self) -> str:
        """What is run, or reached, in a line; secrets by name."""
        return self.url or shlex.join(self.command)

    def revealed(self, text: str) -> str:
        """The text with its secrets filled in, to start the server as its client would."""
        for secret in self.secrets:
            text = text.replace(f"{{{{secret:{secret.name}}}}}", secret.value or "")
        return text


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a client fills into its file's variables."""

    environ: Mapping[str, str]
    root: Path
    home: Path
    inputs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """VS Code's questions by id."""
    expands: bool = True
    """Whether the client expands anything at all."""


def looks_secret(name: str, value: str) -> bool:
    """Whether a value is to be kept out of files, going by its name and by its looks."""
    if value.strip().casefold() in ("", "true", "false", "0", "1", "none", "null"):
        return False
    if _SECRET_NAME.search(name) and not value.startswith(("/", "./", "~/")):
        return True
    return bool(_SECRET_VALUE.search(value)) or (bool(_RANDOM.match(value)) and _entropy(value) > _BITS)


def _entropy(text: str) -> float:
    if not (re.search(r"\d", text) and re.search(r"[A-Za-z]", text)) or text.count("/") > 1:
        return 0.0
    shares = [text.count(character) / len(text) for character in set(text)]
    return -sum(share * math.log2(share) for share in shares)


def read_server(
    name: str, raw: Mapping[str, Any], around: Surroundings, taken: Mapping[str, str | None] | None = None
) -> Server:
    """The server that a client's entry describes; `taken` are the values of secrets by names in use.

    Raises `ConfigInvalid` for an entry that describes none, and for a variable that is not set.
    """
    reading = _Reading(name, around, taken or {})
    url = _text(raw, "url", "serverUrl", "httpUrl")
    env = {key: reading.value(key, text) for key, text in _pairs(raw, "env")}
    for key in _names(raw, "env_vars"):
        if (value := around.environ.get(key)) is not None:
            env.setdefault(key, reading.variable(key, value))
    command = _text(raw, "command")
    if command is None and url is None:
        raise ConfigInvalid(f"the server `{name}` has neither a command nor a URL")
    if command is not None:
        words = (command, *_names(raw, "args"))
        cwd = _text(raw, "cwd")
        return Server(
            name,
            command=tuple(reading.word(word, index, words) for index, word in enumerate(words)),
            env=env,
            cwd=reading.plain(cwd) if cwd is not None else None,
            secrets=reading.found,
            **_limits(raw),
        )
    headers = {key: reading.value(key, text) for key, text in _pairs(raw, "headers", "http_headers")}
    for key, variable in _pairs(raw, "env_http_headers"):
        headers[key] = reading.variable(variable, around.environ.get(variable))
    if (bearer := _text(raw, "bearer_token_env_var")) is not None:
        headers["Authorization"] = f"Bearer {reading.variable(bearer, around.environ.get(bearer))}"
    address = reading.value("url", url or "")
    sse = _text(raw, "type", "transport") == "sse"
    return Server(name, url=address, sse=sse, headers=headers, secrets=reading.found, **_limits(raw))


def _limits(raw: Mapping[str, Any]) -> dict[str, Any]:
    seconds = raw.get("startup_timeout_sec")
    only = raw.get("enabled_tools")
    return {
        "start_timeout": float(seconds) if isinstance(seconds, int | float) and seconds > 0 else None,
        "only": tuple(map(str, only)) if isinstance(only, list) else None,
        "without": tuple(_names(raw, "disabled_tools")),
    }


class _Reading:
    """The variables of one server, and the secrets found among them."""

    def __init__(self, server: str, around: Surroundings, taken: Mapping[str, str | None]) -> None:
        self._server = server
        self._around = around
        self._taken = taken
        self._found: dict[str, Secret] = {}

    @property
    def found(self) -> tuple[Secret, ...]:
        return tuple(self._found.values())

    def plain(self, text: str) -> str:
        """The text expanded; what it refers to is no secret or it becomes one."""
        return self.value("", text)

    def word(self, text: str, index: int, words: Sequence[str]) -> str:
        """A word of a command line; the option before it, or in it, is its name."""
        option, equals, value = text.partition("=")
        if equals and option.startswith("-"):
            return f"{option}={self.value(option.lstrip('-'), value)}"
        before = words[index - 1] if index else ""
        return self.value(before.lstrip("-") if before.startswith("-") else "", text)

    def value(self, name: str, text: str) -> str:
        """A value by its name: with its variables expanded, and secrets as references."""
        if "{{" in text:
            raise ConfigInvalid(f"the server `{self._server}` has `{{{{` in a value, which cannot be adopted")
        pieces = list(self._pieces(name, text))
        whole = "".join(piece for piece, _ in pieces)
        if any(reference for _, reference in pieces) or not looks_secret(name, whole):
            return whole
        scheme = re.match(r"(?:Bearer|Basic|Token)\s+", whole)
        head = scheme[0] if scheme else ""
        if len(whole) - len(head) < SHORTEST:
            return whole
        variable = _as_variable(name if _VARIABLE.match(name) else f"{self._server}_{name or 'secret'}")
        return head + self._secret(variable, whole[len(head) :], standing=True)

    def variable(self, variable: str, value: str | None) -> str:
        """What a variable of the client's environment holds; a secret when it looks like one."""
        if value is None or looks_secret(variable, value):
            return self._secret(variable, value, standing=False)
        return value

    def _secret(self, variable: str, value: str | None, *, standing: bool) -> str:
        name = variable = variable if _VARIABLE.match(variable) else _as_variable(variable)
        if standing and self._taken.get(name, value) != value:
            name = variable = _as_variable(f"{self._server}_{name}")
        self._found.setdefault(name, Secret(name, variable, value, standing))
        return f"{{{{secret:{name}}}}}"

    def _pieces(self, name: str, text: str) -> Iterator[tuple[str, bool]]:
        """The text cut at its variables; with each piece whether it stands for a secret."""
        at = 0
        for found in _REFERENCE.finditer(text) if self._around.expands else ():
            yield text[at : found.start()], False
            value = self._expanded(name, found[1])
            yield value, value.startswith("{{secret:")
            at = found.end()
        yield text[at:], False

    def _expanded(self, name: str, inside: str) -> str:
        around = self._around
        folder = {
            "workspaceFolder": str(around.root),
            "workspaceFolderBasename": around.root.name,
            "userHome": str(around.home),
            "cwd": str(around.root),
            "pathSeparator": "/",
            "/": "/",
        }
        if inside in folder:
            return folder[inside]
        if inside.startswith("input:"):
            return self._input(inside.removeprefix("input:"))
        variable, default, fallback = inside.removeprefix("env:").partition(":-")
        if not _VARIABLE.match(variable):
            raise ConfigInvalid(f"the server `{self._server}` uses `${{{inside}}}`, which is not understood")
        value = around.environ.get(variable)
        if default:
            value = value or fallback
        if value is None:
            raise self._unset(variable)
        if not (looks_secret(variable, value) or looks_secret(name, value)):
            return value
        return self._secret(variable, value, standing=variable not in around.environ)

    def _input(self, key: str) -> str:
        question = self._around.inputs.get(key, {})
        variable = _as_variable(key)
        value = self._around.environ.get(variable, question.get("default"))
        if not isinstance(value, str) or not value:
            raise self._unset(variable)
        if question.get("password") or looks_secret(key, value):
            return self._secret(variable, value, standing=variable not in self._around.environ)
        return value

    def _unset(self, variable: str) -> ConfigInvalid:
        return ConfigInvalid(
            f"the server `{self._server}` needs `{variable}`, which is not set",
            hint=f"set {variable} in the environment, then adopt again",
        )


def _as_variable(name: str) -> str:
    upper = re.sub(r"[^A-Za-z0-9]+", "_", name).strip("_").upper()
    return upper if upper and not upper[0].isdigit() else f"SECRET_{upper}".rstrip("_")


def _text(raw: Mapping[str, Any], *names: str) -> str | None:
    found = next((raw[name] for name in names if raw.get(name)), None)
    return found if isinstance(found, str) else None


def _pairs(raw: Mapping[str, Any], *names: str) -> list[tuple[str, str]]:
    found = [
        (key, one) for name in names if isinstance(raw.get(name), Mapping) for key, one in raw[name].items()
    ]
    return [(str(key), _as_text(one)) for key, one in found if one is not None]


def _as_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _names(raw: Mapping[str, Any], name: str) -> list[str]:
    found = raw.get(name)
    return [_as_text(one) for one in found] if isinstance(found, list) else []
