"""What the `config` of a `code` tool says, read once and checked whole."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from packhost.errors import ConfigInvalid
from packhost.kinds.base import Located
from packhost.manifest.model import ToolSpec
from packhost.names import nearest
from packhost.rules.hosts import canonical_host
from packhost.rules.scopes import Layer, NetworkScope, Scope, network_use, parse_scope, secret_use

LONGEST: Final = 30_000
"""Milliseconds that code may run."""
LARGEST_CODE: Final = 65_536
"""Characters of code."""
GIVEN: Final = ("fetch", "secrets")
"""Names that the code finds beside its parameters."""

_KEYS: Final = ("code", "timeout", "network_access", "secrets", "elicit")
_SECRET_KEYS: Final = ("name", "hostname_pattern", "path", "injection_mode", "header")
_MODES: Final = ("bearer_header", "header")
_TEMPLATE: Final = re.compile(r"\{\{\s*secret\s*:")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z", re.ASCII)
_HEADER: Final = re.compile(r"[A-Za-z0-9-]{1,64}\Z")
_DECODED: Final = re.compile(r"%(2e|2f|5c|00)|//|\\|/\.{1,2}(/|\Z)", re.IGNORECASE)
"""What a server might read as another path than the one that is written."""


@dataclass(frozen=True, slots=True)
class CodeSecret:
    """A secret that the code may send, unseen, to one place; `port` is `None` for any port of https."""

    name: str
    host: str
    port: int | None
    path: str
    header: str
    mode: Literal["bearer_header", "header"]

    def goes_to(self, host: str, port: int, path: str, *, secure: bool) -> bool:
        """Whether it is meant for this place; `path` without its query."""
        if not secure and self.port is None:
            return False
        if self.port not in (None, port) or not _host_matches(self.host, host):
            return False
        if not self.path:
            return True
        if not self.path.endswith("*"):
            return path == self.path
        return path.startswith(self.path[:-1]) and _DECODED.search(path) is None


def _host_matches(pattern: str, host: str) -> bool:
    return host.endswith(pattern[1:]) if pattern.startswith("*.") else host == pattern


@dataclass(frozen=True, slots=True)
class CodeConfig:
    """A tool's code and what it may use."""

    code: str
    timeout: float
    """Seconds."""
    network: bool
    network_layer: Layer | None
    """What `network_access` allows beside the layers of scopes; `None` where these alone decide."""
    secrets: tuple[CodeSecret, ...]
    parameters: tuple[str, ...]


def config_of(spec: ToolSpec) -> CodeConfig:
    """The configuration of a tool that `config_problems` found nothing in."""
    config = spec.config
    access = config.get("network_access")
    hosts = access.get("allowed_hostnames", ()) if isinstance(access, Mapping) else None
    layer = Layer("network_access", tuple(_network(host) for host in hosts)) if hosts is not None else None
    return CodeConfig(
        code=config["code"],
        timeout=config.get("timeout", LONGEST) / 1000,
        network=access in ("on", True) or hosts is not None,
        network_layer=layer,
        secrets=tuple(_secret(raw) for raw in config.get("secrets", ())),
        parameters=tuple(parameters_of(spec)),
    )


def parameters_of(spec: ToolSpec) -> list[str]:
    """The declared parameters."""
    properties = spec.input_schema.get("properties")
    return list(properties) if isinstance(properties, Mapping) else []


def _network(host: str) -> NetworkScope:
    scope = parse_scope(f"network {host}")
    assert isinstance(scope, NetworkScope)
    return scope


def _secret(raw: Mapping[str, Any]) -> CodeSecret:
    host, port = _host_and_port(raw["hostname_pattern"])
    mode = raw.get("injection_mode", "bearer_header")
    header = "authorization" if mode == "bearer_header" else raw["header"].lower()
    return CodeSecret(raw["name"], host, port, raw.get("path", ""), header, mode)


def _host_and_port(pattern: str) -> tuple[str, int | None]:
    wild = pattern.startswith("*.")
    scope = _network(pattern[2:] if wild else pattern)
    return (f"*.{scope.host}" if wild else scope.host), scope.port


def config_problems(spec: ToolSpec) -> list[str]:
    """What is wrong with a tool's definition, but for the code itself, a sentence each."""
    config = spec.config
    problems: list[str] = [_unknown(key, _KEYS, ("config", key)) for key in config if key not in _KEYS]
    if spec.target is not None:
        problems.append(
            Located("a tool of kind `code` has no `target`: its code is `config.code`", ("target",))
        )
    problems += _code_problems(config.get("code"))
    problems += _timeout_problems(config.get("timeout", LONGEST))
    scopes = tuple(parse_scope(line) for line in spec.required_scopes)
    problems += _access_problems(config.get("network_access"), scopes)
    problems += _secrets_problems(config, scopes)
    problems += _parameter_problems(spec)
    return problems


def _unknown(key: Any, known: Sequence[str], path: tuple[str | int, ...]) -> Located:
    near = nearest(str(key), known, 1)
    said = f"did you mean `{near[0]}`?" if near else f"there are {', '.join(f'`{one}`' for one in known)}"
    return Located(f"`config` of kind `code` has no `{key}`: {said}", path)


def _code_problems(code: Any) -> Iterator[str]:
    at = ("config", "code")
    if not isinstance(code, str) or not code.strip():
        yield Located("a tool of kind `code` needs `config.code`, the Python that it runs", at)
    elif len(code) > LARGEST_CODE:
        yield Located(f"`config.code` has more than {LARGEST_CODE} characters", at)
    elif found := _TEMPLATE.search(code):
        line = code.count("\n", 0, found.start()) + 1
        yield Located(
            "code cannot reference `{{secret:…}}`: declare it under `config.secrets` and send `secrets.NAME`",
            at,
            line,
        )


def _timeout_problems(timeout: Any) -> Iterator[str]:
    at = ("config", "timeout")
    if isinstance(timeout, bool) or not isinstance(timeout, int) or timeout < 1:
        yield Located("`config.timeout` is a number of milliseconds, at least 1", at)
    elif timeout > LONGEST:
        yield Located(f"`config.timeout` exceeds the limit of 30 s: write {LONGEST} or less", at)


def _access_problems(access: Any, scopes: Sequence[Scope]) -> Iterator[str]:
    at: tuple[str | int, ...] = ("config", "network_access")
    if access is None or access in ("on", "off") or isinstance(access, bool):
        return
    if not isinstance(access, Mapping) or set(access) != {"allowed_hostnames"}:
        yield Located('`config.network_access` is `{allowed_hostnames: […]}`, `"on"` or `"off"`', at)
        return
    hosts = access["allowed_hostnames"]
    if not isinstance(hosts, list) or not all(isinstance(host, str) for host in hosts):
        yield Located("`allowed_hostnames` is a list of hosts", (*at, "allowed_hostnames"))
        return
    for index, host in enumerate(hosts):
        yield from _host_problems(host, scopes, (*at, "allowed_hostnames", index))


def _host_problems(host: str, scopes: Sequence[Scope], at: tuple[str | int, ...]) -> Iterator[str]:
    try:
        scope = _network(host)
    except ConfigInvalid as error:
        yield Located(error.message, at)
        return
    if network_use(scope.host, scope.port, [Layer("manifest", tuple(scopes))]) is not None:
        yield Located(f"`{host}` is not in `required_scopes`: add `network {host}`", at)


def _secrets_problems(config: Mapping[str, Any], scopes: Sequence[Scope]) -> Iterator[str]:
    secrets = config.get("secrets", [])
    at: tuple[str | int, ...] = ("config", "secrets")
    if not isinstance(secrets, list):
        yield Located("`config.secrets` is a list", at)
        return
    if secrets and config.get("network_access") in (None, "off", False):
        yield Located("`config.secrets` needs `network_access` that allows their hosts", at)
    seen: set[str] = set()
    for index, raw in enumerate(secrets):
        place = (*at, index)
        if not isinstance(raw, Mapping):
            yield Located("a secret is `{name, hostname_pattern, path?, injection_mode?, header?}`", place)
            continue
        yield from (_unknown(key, _SECRET_KEYS, (*place, key)) for key in raw if key not in _SECRET_KEYS)
        yield from _secret_problems(raw, scopes, place)
        if raw.get("name") in seen:
            yield Located(f"the secret `{raw['name']}` stands twice", (*place, "name"))
        seen.add(str(raw.get("name")))


def _secret_problems(
    raw: Mapping[str, Any], scopes: Sequence[Scope], at: tuple[str | int, ...]
) -> Iterator[str]:
    name, path, mode = raw.get("name"), raw.get("path", ""), raw.get("injection_mode", "bearer_header")
    if not isinstance(name, str) or not _NAME.match(name) or name.startswith("__") or keyword.iskeyword(name):
        yield Located("a secret's `name` is a name of `secrets:` in packhost.yaml", (*at, "name"))
    elif secret_use(name, [Layer("manifest", tuple(scopes))]) is not None:
        yield Located(f"`{name}` is not in `required_scopes`: add `secret {name}`", (*at, "name"))
    if not _sound_host(raw.get("hostname_pattern")):
        message = "`hostname_pattern` is a host, or `*.` and one, with a port for plain http"
        yield Located(message, (*at, "hostname_pattern"))
    if not isinstance(path, str) or (path and not path.startswith("/")) or "*" in path[:-1] or "?" in path:
        yield Located("`path` begins with `/` and may end in `*`", (*at, "path"))
    if mode not in _MODES:
        yield Located("`injection_mode` is `bearer_header` or `header`", (*at, "injection_mode"))
    header = raw.get("header")
    if (mode == "header") != (header is not None) or (header is not None and not _sound_header(header)):
        yield Located("`header` names the header of `injection_mode: header`, and only that", (*at, "header"))


def _sound_host(pattern: Any) -> bool:
    if not isinstance(pattern, str):
        return False
    try:
        host, _ = _host_and_port(pattern)
        canonical_host(host.removeprefix("*."))
    except ConfigInvalid:
        return False
    return True


def _sound_header(header: Any) -> bool:
    return isinstance(header, str) and _HEADER.match(header) is not None


def _parameter_problems(spec: ToolSpec) -> Iterator[str]:
    for name in parameters_of(spec):
        sound = _NAME.match(name) and not keyword.iskeyword(name) and not name.startswith("__")
        if not sound or name in GIVEN:
            why = "is taken" if name in GIVEN else "cannot be a name in Python"
            yield Located(f"the parameter `{name}` {why}", ("input_schema", "properties", name))
