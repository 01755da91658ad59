"""Scopes: what a tool may touch, one a line, and the layers that each use must lie inside.

Layers (a workspace's bound, a pack's entry, a manifest, a session's narrowing) are never intersected:
each is a check of its own. A tool's *required* scopes are held against them by `coverage`: exact ones
(network, env, secret, exec, tool) must be covered by one scope of every layer, a path scope must share
some path with every layer. A *use* must lie inside every layer. Where there is no layer nothing refuses:
whoever asks brings the bound.

`write` does not imply `read`. No write lies inside any layer when the path is `protected`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from packhost.errors import ConfigInvalid, Place
from packhost.names import nearest
from packhost.rules.globs import (
    Glob,
    canonical,
    check_tool_pattern,
    compile_glob,
    printable,
    tool_includes,
    tool_matches,
)
from packhost.rules.hosts import canonical_host
from packhost.rules.protection import PROTECTED_PATTERNS, protected

__all__ = [
    "Access",
    "EnvScope",
    "ExecScope",
    "Layer",
    "NetworkScope",
    "PathScope",
    "Scope",
    "SecretScope",
    "ToolScope",
    "Uncovered",
    "canonical_host",
    "coverage",
    "env_use",
    "exec_use",
    "format_scope",
    "network_use",
    "parse_scope",
    "path_use",
    "protected",
    "secret_use",
    "tool_use",
]

Access = Literal["read", "write"]


@dataclass(frozen=True, slots=True)
class PathScope:
    """Paths of the workspace that may be read, or written."""

    access: Access
    glob: str


@dataclass(frozen=True, slots=True)
class NetworkScope:
    """One host, at one port or at any (`None`); the host is in `canonical_host`'s form."""

    host: str
    port: int | None = None


@dataclass(frozen=True, slots=True)
class EnvScope:
    """One variable of the environment."""

    name: str


@dataclass(frozen=True, slots=True)
class SecretScope:
    """One secret, by the name that `packhost.yaml` gives it."""

    name: str


@dataclass(frozen=True, slots=True)
class ExecScope:
    """One program: a bare name or an absolute path, compared as written."""

    program: str


@dataclass(frozen=True, slots=True)
class ToolScope:
    """Tools that may be called, a pattern over `pack:tool`."""

    pattern: str


Scope: TypeAlias = PathScope | NetworkScope | EnvScope | SecretScope | ExecScope | ToolScope


@dataclass(frozen=True, slots=True)
class Layer:
    """One set of scopes that a call may not go beyond, with the name that refusals give it.

    :raises ConfigInvalid: a glob or a tool pattern in it is not one.
    """

    name: str
    scopes: tuple[Scope, ...]
    place: Place | None = None
    _reads: tuple[Glob, ...] = field(init=False, repr=False, compare=False)
    _writes: tuple[Glob, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for scope in self.scopes:
            if isinstance(scope, ToolScope):
                check_tool_pattern(scope.pattern)
        object.__setattr__(self, "_reads", self._globs("read"))
        object.__setattr__(self, "_writes", self._globs("write"))

    def _globs(self, access: Access) -> tuple[Glob, ...]:
        return tuple(
            compile_glob(scope.glob)
            for scope in self.scopes
            if isinstance(scope, PathScope) and scope.access == access
        )

    def globs(self, access: Access) -> tuple[Glob, ...]:
        """The layer's globs of one access, compiled."""
        return self._reads if access == "read" else self._writes


@dataclass(frozen=True, slots=True)
class Uncovered:
    """Why something is out of bounds: the first layer that refuses, what was needed, what it has instead."""

    layer: str
    needed: str
    patterns: tuple[str, ...]
    place: Place | None = None


# --- lines -------------------------------------------------------------------------------------------

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_SECRET = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*\Z")
_ENDPOINT = re.compile(r"(?P<host>\[[^\]]*\]|[^:\[\]]+)(?::(?P<port>[0-9]{1,5}))?\Z")
_PROGRAM = re.compile(r"(?:/(?:[^/\s]+/)*)?[^/\s]+\Z")
_FORMS = (
    "a scope is one of `path read GLOB`, `path write GLOB`, `network HOST[:PORT]`, `env NAME`, "
    "`secret NAME`, `exec PROGRAM`, `tool PATTERN`"
)


def parse_scope(text: str, place: Place | None = None) -> Scope:
    """Read one line.

    :raises ConfigInvalid: it is not a scope; the error carries `place` and the nearest right word.
    """
    try:
        kind, *more = text.split(None, 1) or [""]
        if kind not in _PARSERS:
            raise _unknown("kind of scope", kind, tuple(_PARSERS))
        rest = more[0].strip() if more else ""
        if not rest:
            raise ConfigInvalid(f"the scope `{printable(text)}` does not say what it opens", hint=_FORMS)
        return _PARSERS[kind](rest)
    except ConfigInvalid as error:
        if place is None:
            raise
        raise ConfigInvalid(error.message, hint=error.hint, place=place) from None


def format_scope(scope: Scope) -> str:
    """The line, as `parse_scope` reads it."""
    match scope:
        case PathScope(access, glob):
            return f"path {access} {glob}"
        case NetworkScope(host, port):
            shown = f"[{host}]" if ":" in host else host
            return f"network {shown}" if port is None else f"network {shown}:{port}"
        case EnvScope(name):
            return f"env {name}"
        case SecretScope(name):
            return f"secret {name}"
        case ExecScope(program):
            return f"exec {program}"
        case ToolScope(pattern):
            return f"tool {pattern}"


def _unknown(what: str, word: str, known: Sequence[str]) -> ConfigInvalid:
    near = nearest(word, known)
    hint = f"did you mean `{near[0]}`? {_FORMS}" if near else _FORMS
    return ConfigInvalid(f"`{printable(word)}` is no {what}", hint=hint)


def _parse_path(rest: str) -> Scope:
    access, *glob = rest.split(None, 1)
    if access != "read" and access != "write":
        raise _unknown("access to a path", access, ("read", "write"))
    if not glob:
        raise ConfigInvalid(f"the scope `path {access}` names no path", hint=_FORMS)
    return PathScope("write" if access == "write" else "read", compile_glob(glob[0]).text)


def _parse_network(rest: str) -> Scope:
    found = _ENDPOINT.match(rest)
    if not found:
        raise ConfigInvalid(
            f"`{printable(rest)}` is no host with a port",
            hint="write `example.com`, `example.com:443` or, for IPv6, `[2001:db8::1]:443`",
        )
    host, port = found["host"], found["port"]
    if port is not None and not 0 < int(port) < 65536:
        raise ConfigInvalid(f"`{port}` is no port", hint="a port is a number from 1 to 65535")
    return NetworkScope(canonical_host(host), None if port is None else int(port))


def _parse_env(rest: str) -> Scope:
    if not _NAME.match(rest):
        raise ConfigInvalid(
            f"`{printable(rest)}` is no name of a variable", hint="write one name, such as `HOME`"
        )
    return EnvScope(rest)


def _parse_secret(rest: str) -> Scope:
    if not _SECRET.match(rest):
        raise ConfigInvalid(
            f"`{printable(rest)}` is no name of a secret",
            hint="write one name from `secrets` in packhost.yaml",
        )
    return SecretScope(rest)


def _parse_exec(rest: str) -> Scope:
    dots = not {".", ".."}.isdisjoint(rest.split("/"))
    if dots or "*" in rest or not rest.isprintable() or not _PROGRAM.match(rest):
        raise ConfigInvalid(
            f"`{printable(rest)}` is no program",
            hint="write one bare name or absolute path, without arguments",
        )
    return ExecScope(rest)


def _parse_tool(rest: str) -> Scope:
    check_tool_pattern(rest)
    return ToolScope(rest)


_PARSERS: dict[str, Callable[[str], Scope]] = {
    "path": _parse_path,
    "network": _parse_network,
    "env": _parse_env,
    "secret": _parse_secret,
    "exec": _parse_exec,
    "tool": _parse_tool,
}


# --- checks ------------------------------------------------------------------------------------------


def coverage(required: Sequence[Scope], layers: Sequence[Layer]) -> Uncovered | None:
    """The first required scope that a layer leaves no room for, or `None`: the tool may be offered."""
    for scope in required:
        for layer in layers:
            if not _leaves_room(layer, scope):
                return _refusal(layer, format_scope(scope), scope)
    return None


def _leaves_room(layer: Layer, scope: Scope) -> bool:
    if isinstance(scope, PathScope):
        needed = compile_glob(scope.glob)
        return any(glob.overlaps(needed) for glob in layer.globs(scope.access))
    return any(_includes(given, scope) for given in layer.scopes)


def _includes(given: Scope, needed: Scope) -> bool:
    match given, needed:
        case NetworkScope(host, port), NetworkScope(wanted, at):
            return host == wanted and (port is None or port == at)
        case ToolScope(outer), ToolScope(inner):
            return tool_includes(outer, inner)
        case _:
            return given == needed


def _refusal(layer: Layer, needed: str, like: Scope) -> Uncovered:
    patterns = tuple(
        format_scope(scope)
        for scope in layer.scopes
        if type(scope) is type(like)
        and not (isinstance(scope, PathScope) and isinstance(like, PathScope) and scope.access != like.access)
    )
    return Uncovered(layer.name, needed, patterns, layer.place)


def path_use(access: Access, relative: str, layers: Sequence[Layer]) -> Uncovered | None:
    """Why a path, as it resolves under the root, may not be used so; `None` when it may.

    A path that is not clean (absolute, `..`, empty segments, NUL) is refused by every layer, and a
    protected path refuses every write, as the layer `protected`.
    """
    if access == "write" and protected(relative):
        return Uncovered("protected", f"path write {printable(relative)}", PROTECTED_PATTERNS)
    path = canonical(relative)
    for layer in layers:
        if path is None or not any(glob.matches(path) for glob in layer.globs(access)):
            return _refusal(layer, f"path {access} {printable(relative)}", PathScope(access, "**"))
    return None


def network_use(host: str, port: int | None, layers: Sequence[Layer]) -> Uncovered | None:
    """Why a host may not be reached at a port (`None`: at whichever); `None` when it may."""
    try:
        name = canonical_host(host)
    except ConfigInvalid:
        return _exact_use(NetworkScope("", port), f"network {printable(host)}", layers)
    for layer in layers:
        if not any(
            type(scope) is NetworkScope and scope.host == name and (scope.port is None or scope.port == port)
            for scope in layer.scopes
        ):
            needed = NetworkScope(name, port)
            return _refusal(layer, format_scope(needed), needed)
    return None


def env_use(name: str, layers: Sequence[Layer]) -> Uncovered | None:
    """Why a variable of the environment may not be read; `None` when it may."""
    return _exact_use(EnvScope(name), f"env {printable(name)}", layers)


def secret_use(name: str, layers: Sequence[Layer]) -> Uncovered | None:
    """Why a secret may not be used; `None` when it may."""
    return _exact_use(SecretScope(name), f"secret {printable(name)}", layers)


def exec_use(program: str, layers: Sequence[Layer]) -> Uncovered | None:
    """Why a program may not be started; `None` when it may."""
    return _exact_use(ExecScope(program), f"exec {printable(program)}", layers)


def _exact_use(needed: Scope, shown: str, layers: Sequence[Layer]) -> Uncovered | None:
    for layer in layers:
        if not any(_includes(given, needed) for given in layer.scopes):
            return _refusal(layer, shown, needed)
    return None


def tool_use(canonical_name: str, layers: Sequence[Layer]) -> Uncovered | None:
    """Why a tool (`pack:tool`) may not be called; `None` when it may."""
    for layer in layers:
        if not any(
            isinstance(s, ToolScope) and tool_matches(s.pattern, canonical_name) for s in layer.scopes
        ):
            return _refusal(layer, f"tool {printable(canonical_name)}", ToolScope("*"))
    return None
