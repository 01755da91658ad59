"""Tools that are defined for one run: checked like those of a pack, and held to the same layers.

A definition has the members that a request sends: `name`, `description`, `tool_type`, `parameters_schema`,
`config`; names in camel case are taken as well. It becomes a tool of the pack `inline`, which declares no
more than the definition itself shows: the host of its URL, the hosts and secrets that it names. The
workspace's bound, its rules and the session's level stand over it as over any other.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from pydantic import ValidationError

from packhost.errors import ConfigInvalid, InvalidInput
from packhost.gate.catalog import Catalog
from packhost.kinds.base import PackFacts, Tool
from packhost.manifest.checks import manifest_faults
from packhost.manifest.model import PackManifest, ToolSpec
from packhost.manifest.schemas import path_arguments
from packhost.names import INLINE_PACK, ToolId, nearest
from packhost.rules.scopes import parse_scope

LARGEST: Final = 1024 * 1024
"""Bytes of all definitions of a request together, as JSON."""
KINDS: Final = {"external": "http", "custom": "code", "flow": "flow", "subagent": "subagent"}
"""What runs each type of tool."""
RESERVED: Final = frozenset({"tool_search", "spawn_subagent"})

_NEEDED: Final = ("name", "description", "tool_type", "parameters_schema")
_KNOWN: Final = (*_NEEDED, "config", "hidden_parameter_names", "idempotent", "untrusted_output", "scopes")
_NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,55}\Z")
_HUMP: Final = re.compile(r"(?<=[a-z0-9])([A-Z])")
_SECRET: Final = re.compile(r"\{\{\s*secret\s*:\s*([A-Za-z_][A-Za-z0-9_.-]*)\s*\}\}")
_DEEP: Final = frozenset({"network_access", "secrets", "elicit"})
"""Members of a `config` whose own members are named here, and not by the author."""
_PACK: Final = PackFacts(
    id=INLINE_PACK,
    version="1",
    title="Tools of one run",
    digest="",
    folder=None,
    shipped=False,
    trusted=False,
    config_key=None,
)


@dataclass(frozen=True, slots=True)
class _Place:
    """A definition and where it stands."""

    index: int
    raw: Mapping[str, Any]

    def wrong(self, message: str, member: str = "", hint: str = "") -> InvalidInput:
        """An error at this place."""
        name = self.raw.get("name")
        who = f"runtime tool `{str(name)[:64]}`" if isinstance(name, str) else f"runtime tool {self.index}"
        path = f"/runtime_tools/{self.index}" + (f"/{member}" if member else "")
        return InvalidInput(f"{who}: {message}", path=path, hint=hint or "correct it; nothing was run")


def checked(definitions: Sequence[Mapping[str, Any]], catalog: Catalog) -> list[dict[str, Any]]:
    """The definitions, each sound and with its members in one spelling.

    Raises `InvalidInput` for the first that could not run, with its place.
    """
    try:
        size = len(json.dumps(definitions, ensure_ascii=False).encode("utf-8", "surrogatepass"))
    except (TypeError, ValueError, RecursionError):
        size = LARGEST + 1
    if size > LARGEST:
        raise InvalidInput(
            "`runtime_tools` is larger than 1 MiB", path="/runtime_tools", hint="send fewer, or shorter ones"
        )
    found = []
    seen: set[str] = set()
    for index, raw in enumerate(definitions):
        if not isinstance(raw, Mapping):
            raise InvalidInput("a runtime tool is not an object", path=f"/runtime_tools/{index}", hint=_SEE)
        definition = _spelled(raw)
        place = _Place(index, definition)
        _check_members(place)
        if definition["name"] in seen:
            raise place.wrong("its name stands twice", "name", "rename one of them")
        seen.add(definition["name"])
        _check_tool(place, catalog)
        found.append(definition)
    return found


def names_secrets(value: Any) -> bool:
    """Whether any runtime tool in a call's arguments, at whatever depth, is to be given a secret."""
    left = [value]
    while left:  # not by calling itself: what is sent may be nested deeper than that goes
        one = left.pop()
        if isinstance(one, Mapping):
            tools = [inner for name, inner in one.items() if _snake(name) == "runtime_tools"]
            if any(_wants_secret(tool) for inner in tools if isinstance(inner, list) for tool in inner):
                return True
            left.extend(one.values())
        elif isinstance(one, list | tuple):
            left.extend(one)
    return False


def _wants_secret(definition: Any) -> bool:
    config = definition.get("config") if isinstance(definition, Mapping) else None
    declared = isinstance(config, Mapping) and bool(config.get("secrets"))
    try:
        return declared or _SECRET.search(json.dumps(definition, default=str)) is not None
    except (ValueError, RecursionError):
        return True  # no tool is that deep, and what cannot be read through is not let through


def tool_of(definition: Mapping[str, Any]) -> Tool:
    """The tool of a definition that was checked."""
    return _tool_of(json.dumps(definition, sort_keys=True))


@functools.lru_cache(maxsize=4096)
def _tool_of(text: str) -> Tool:
    """Raises `ValidationError` and `ConfigInvalid`."""
    spec = _spec(json.loads(text))
    return Tool(
        id=ToolId(INLINE_PACK, spec.name),
        spec=spec,
        pack=_PACK,
        scopes=tuple(parse_scope(line) for line in spec.required_scopes),
        version=f"1+{hashlib.sha256(text.encode()).hexdigest()[:12]}",
        path_arguments=path_arguments(spec.input_schema),
    )


_SEE: Final = "see docs/kinds/inline.md for what a definition holds"


def _spelled(raw: Mapping[str, Any]) -> dict[str, Any]:
    """The definition with the members that are named here in snake case."""
    definition = {_snake(name): value for name, value in raw.items()}
    config = definition.get("config")
    if isinstance(config, Mapping):
        definition["config"] = {
            _snake(name): _spelled_within(value) if _snake(name) in _DEEP else value
            for name, value in config.items()
        }
    return definition


def _spelled_within(value: Any) -> Any:
    if isinstance(value, list):
        return [_spelled_within(one) for one in value]
    if isinstance(value, Mapping):
        return {("name" if name == "key" else _snake(name)): one for name, one in value.items()}
    return value


def _snake(name: Any) -> str:
    return _HUMP.sub(lambda found: f"_{found[1].lower()}", str(name))


def _check_members(place: _Place) -> None:
    definition = place.raw
    kind = definition.get("tool_type")
    needed = _NEEDED if kind == "local" else (*_NEEDED, "config")
    missing = [name for name in needed if definition.get(name) in (None, "")]
    if missing:
        listed = ", ".join(f"`{name}`" for name in missing)
        raise place.wrong(f"Runtime tool missing required fields: {listed}", missing[0], _SEE)
    for name in definition:
        if name not in _KNOWN:
            near = nearest(name, _KNOWN, 1)
            raise place.wrong(f"`{name}` is not known", name, f"did you mean `{near[0]}`?" if near else _SEE)
    if kind not in KINDS:
        said = "is run by the caller of a run" if kind == "local" else "is no type of tool"
        raise place.wrong(f"`{kind}` {said}", "tool_type", f"there are {', '.join(f'`{k}`' for k in KINDS)}")
    schema = definition["parameters_schema"]
    if not isinstance(schema, Mapping) or schema.get("type") != "object":
        message = "parametersSchema must be a JSON Schema object"
        raise place.wrong(message, "parameters_schema", 'begin it with `"type": "object"`')
    if not isinstance(definition["config"], Mapping):
        raise place.wrong("`config` is not an object", "config", _SEE)
    _check_name(place)
    _check_config(place, definition["config"])


def _check_name(place: _Place) -> None:
    name = place.raw["name"]
    plain = re.sub(r"[^a-z0-9]", "_", str(name).lower())
    if plain in RESERVED or plain == "packhost" or plain.startswith("packhost_"):
        raise place.wrong(f"its name collides with the reserved tool name `{plain}`", "name", "rename it")
    if not isinstance(name, str) or not _NAME.match(name):
        message = "its name is not a lower-case letter and up to 55 more of a-z 0-9 _ -"
        raise place.wrong(message, "name", "rename it")


def _check_config(place: _Place, config: Mapping[str, Any]) -> None:
    kind = place.raw["tool_type"]
    if kind != "external" and (found := _SECRET.search(json.dumps(config))):
        raise place.wrong(
            f"a tool of type `{kind}` cannot reference {{{{secret:{found[1]}}}}}",
            "config",
            "only `external` tools may; code declares `config.secrets`",
        )
    if kind == "external":
        url = config.get("url")
        if not url:
            raise place.wrong("missing URL", "config/url", "set `config.url`")
        if not isinstance(url, str) or not re.match(r"https?://[^/]+", url):
            raise place.wrong("has invalid URL format", "config/url", "write `https://HOST/PATH`")
    timeout = config.get("timeout")
    if kind == "custom" and isinstance(timeout, int | float) and timeout > 30_000:
        raise place.wrong("timeout exceeds 30s limit", "config/timeout", "write 30000 or less")


def _check_tool(place: _Place, catalog: Catalog) -> None:
    try:
        tool = tool_of(place.raw)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = "/".join(str(step) for step in first["loc"])
        raise place.wrong(f"{first['msg'].lower()} at `{where}`", where, _SEE) from None
    except ConfigInvalid as error:
        raise place.wrong(error.message, "scopes", error.hint) from None
    spec = tool.spec
    for path, message, hint in _faults(spec, catalog):
        raise place.wrong(message, "/".join(str(step) for step in path), hint)
    for said in catalog.kinds[spec.kind].check(spec):
        raise place.wrong(said, "/".join(str(step) for step in getattr(said, "path", ())), _SEE)
    entry = catalog.inline(tool)
    if entry is not None and (missing := entry.uncovered) is not None:
        raise place.wrong(
            f"the {missing.layer} does not cover `{missing.needed}`, which it needs",
            "",
            "a person adds it to the bound in packhost.yaml, and accepts it",
        )


def _faults(spec: ToolSpec, catalog: Catalog) -> Iterator[tuple[tuple[str | int, ...], str, str]]:
    manifest = PackManifest(packhost=1, id="inline-tools", version="1", title="Inline", tools=(spec,))
    for path, message, hint in manifest_faults(manifest, shipped=False, kinds=catalog.kinds):
        yield path[2:], message.removeprefix(f"tool `{spec.name}`: "), hint


def _spec(definition: Mapping[str, Any]) -> ToolSpec:
    """Raises `ValidationError`."""
    kind = KINDS[definition["tool_type"]]
    config = dict(definition["config"])
    scopes = list(dict.fromkeys([*definition.get("scopes", ()), *_needed_scopes(kind, config)]))
    reads = (kind == "http" and config.get("method", "POST") == "GET") or (
        kind == "code" and config.get("network_access") in (None, "off", False)
    )
    more = {"idempotent": definition["idempotent"]} if "idempotent" in definition else {}
    return ToolSpec(
        name=definition["name"],
        description=definition["description"],
        kind=kind,
        permission="read" if reads else "write",
        required_scopes=tuple(scopes),
        input_schema=dict(definition["parameters_schema"]),
        config=config,
        hidden_parameters=tuple(definition.get("hidden_parameter_names", ())),
        untrusted_output=definition.get("untrusted_output", False),
        **more,
    )


def _needed_scopes(kind: str, config: Mapping[str, Any]) -> Iterator[str]:
    """What a definition shows that it needs, a scope a line."""
    if kind == "http":
        templates = json.dumps([config.get(name) for name in ("url", "headers", "body")])
        yield from (f"secret {name}" for name in _SECRET.findall(templates))
        yield from _host_of(str(config.get("url", "")))
    elif kind == "code":
        access = config.get("network_access")
        hosts = access.get("allowed_hostnames") if isinstance(access, Mapping) else None
        for host in hosts if isinstance(hosts, list) else ():
            yield f"network {host}"
        secrets = config.get("secrets")
        for one in secrets if isinstance(secrets, list) else ():
            if isinstance(one, Mapping):
                yield f"secret {one.get('name')}"


def _host_of(url: str) -> Iterator[str]:
    """The network scope of a URL's host, where no placeholder chooses it."""
    match = re.match(r"(https?)://([^/?#]+)", url)
    if match is None or "{" in match[2]:
        return
    parts = urlsplit(match[0])
    try:
        host, port = parts.hostname, parts.port
    except ValueError:
        return
    if host:
        shown = f"[{host}]" if ":" in host else host
        plain = 80 if match[1] == "http" else None
        yield f"network {shown}" + (f":{port or plain}" if port or plain else "")
