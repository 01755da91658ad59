"""Tools that the caller of a run runs itself: what may be sent, and how they are offered to the model.

A definition is `{name, description, parameters_schema, origin, untrusted_content_hint?}`, names in camel case
too. `origin` says who runs it: `sdk`, the calling program, or `webmcp`, a page that it shows, whose output is
never trusted. One takes the place of any other tool of its name.

`{name, catalog: packhost}` in place of one stands for a tool that this host lists: its description and schema
are the host's, and it is taken for a page's.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from packhost.api import Conflict, InvalidInput, OfferedTool, schema_fault
from packhost_packs.agent_runtime.strict_json import dumps

KIND = "client"
LARGEST = 256 * 1024
"""Bytes of all definitions of a request together, as JSON."""
LONGEST_TEXT = 2 * 1024
"""Bytes of a description, and of each text in a schema."""
ORIGINS = ("sdk", "webmcp")
CATALOG = "packhost"
"""The catalog that a reference may name: what this host lists."""
MEMBER = "client_tools"
"""Of a run's request the set that it began with, of its state one that was sent anew."""
RESEND = "client_tools_resend_required"
"""Why a set that is named by its fingerprint has to be sent whole."""

_NEEDED = ("name", "description", "parameters_schema", "origin")
_KNOWN = (*_NEEDED, "untrusted_content_hint")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}\Z", re.ASCII)
_RESERVED = frozenset({"tool_search", "spawn_subagent"})
_HUMP = re.compile(r"(?<=[a-z0-9])([A-Z])")
_SEE = "see docs/agent-runtime/resuming.md for what a definition holds"


def admitted(
    definitions: Sequence[Any],
    policy: Mapping[str, Any] | None = None,
    look_up: Callable[[str], OfferedTool | None] | None = None,
) -> list[dict[str, Any]]:
    """The definitions, each sound and in one spelling, without those that the policy does not let in.

    `look_up` finds what a reference names. Raises `InvalidInput` for the first that is not sound, with its
    place; nothing but what the policy keeps out is left out.
    """
    allowed = _allowlist(policy or {})
    if len(dumps([one for one in definitions if not _is_reference(one)])) > LARGEST:
        raise InvalidInput(
            "`client_tools` is larger than 256 KiB", path="/client_tools", hint="send fewer, or shorter ones"
        )
    found: list[dict[str, Any]] = []
    for index, raw in enumerate(definitions):
        if not isinstance(raw, Mapping):
            raise InvalidInput("a client tool is not an object", path=f"/client_tools/{index}", hint=_SEE)
        definition = {_HUMP.sub(r"_\1", str(name)).lower(): value for name, value in raw.items()}
        reference = _is_reference(raw)
        if reference:
            definition = _resolved(definition, index, look_up)
        for member, said in _faults(definition, [one["name"] for one in found], measured=not reference):
            raise InvalidInput(
                f"client tool {index}: {said}", path=f"/client_tools/{index}/{member}".rstrip("/"), hint=_SEE
            )
        found.append(definition)
    return [one for one in found if one["origin"] == "sdk" or _lets_in(allowed, one["name"])]


def of_run(spec: Mapping[str, Any], state: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The set that a run has now: the one that was sent anew, else that of its request."""
    return list(state[MEMBER] if MEMBER in state else spec.get(MEMBER) or ())


def fingerprint(definitions: Sequence[Mapping[str, Any]]) -> str:
    """Names a set of definitions as they were let in."""
    return f"ct_{hashlib.sha256(dumps(list(definitions))).hexdigest()[:32]}"


def refreshed(
    now: Sequence[Mapping[str, Any]],
    sent: Sequence[Any] | None,
    claimed: str | None,
    policy: Mapping[str, Any] | None,
    look_up: Callable[[str], OfferedTool | None] | None,
) -> list[dict[str, Any]] | None:
    """The set that takes the place of the present one; `None` where that stays.

    Raises `Conflict` where a fingerprint is of another set, and what `admitted` raises.
    """
    found = None if sent is None else admitted(sent, policy, look_up)
    if claimed is not None and claimed != fingerprint(now if found is None else found):
        raise Conflict(
            f"{RESEND}: the fingerprint is not that of the set of client tools",
            hint="send the whole set in `client_tools`, without a fingerprint or with its own",
            reason=RESEND,
        )
    return found


def _is_reference(raw: Any) -> bool:
    return isinstance(raw, Mapping) and "catalog" in raw


def _resolved(
    raw: Mapping[str, Any], index: int, look_up: Callable[[str], OfferedTool | None] | None
) -> dict[str, Any]:
    """The definition that a reference stands for; raises `InvalidInput`."""
    at = f"/client_tools/{index}"
    catalog, name = raw["catalog"], raw.get("name")
    if catalog != CATALOG:
        message = f"client tool {index}: the catalog `{str(catalog)[:64]}` is not defined"
        raise InvalidInput(message, path=f"{at}/catalog", hint=f"the only one is `{CATALOG}`")
    for member in raw:
        if member not in ("name", "catalog"):
            message = f"client tool {index}: a reference has no `{member[:64]}`"
            raise InvalidInput(message, path=f"{at}/{member}", hint="it has `name` and `catalog` alone")
    tool = look_up(name) if isinstance(name, str) and look_up is not None else None
    if tool is None:
        message = f"client tool {index}: the catalog `{CATALOG}` has no tool `{str(name)[:64]}`"
        raise InvalidInput(message, path=f"{at}/name", hint="name one that this host lists")
    return {
        "name": tool.name,
        "description": tool.description,
        "parameters_schema": dict(tool.input_schema),
        "origin": "webmcp",
    }


def _allowlist(policy: Mapping[str, Any]) -> list[str] | None:
    """The patterns that let pages' tools in; `None`: all. Raises `InvalidInput`."""
    allowed = policy.get("allowlist")
    for index, pattern in enumerate(allowed or ()):
        if "*" in pattern[:-1]:
            raise InvalidInput(
                f"`{pattern[:64]}` has a `*` that is not its last character",
                path=f"/client_tools_policy/allowlist/{index}",
                hint="write a name, or the beginning of names and one `*`",
            )
    return None if allowed is None else list(allowed)


def _lets_in(allowed: Sequence[str] | None, name: str) -> bool:
    if allowed is None:
        return True
    return any(
        name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern for pattern in allowed
    )


def offered(definitions: Sequence[Mapping[str, Any]]) -> tuple[OfferedTool, ...]:
    """What a model is shown of them."""
    return tuple(
        OfferedTool(
            name=one["name"],
            canonical=f"{KIND}:{one['name']}",
            description=one["description"],
            input_schema=one["parameters_schema"],
            kind=KIND,
        )
        for one in definitions
    )


def untrusted(definition: Mapping[str, Any]) -> bool:
    """Whether the tool's output is nobody's word."""
    return definition["origin"] == "webmcp" or bool(definition.get("untrusted_content_hint"))


def _faults(
    definition: Mapping[str, Any], taken: Sequence[str], *, measured: bool
) -> Iterator[tuple[str, str]]:
    missing = [name for name in _NEEDED if definition.get(name) in (None, "")]
    if missing:
        yield missing[0], f"required members are missing: {', '.join(f'`{one}`' for one in missing)}"
        return
    for name in definition:
        if name not in _KNOWN:
            yield name, f"`{name[:64]}` is not known"
    name, description = definition["name"], definition["description"]
    if not isinstance(name, str) or not _NAME.match(name):
        yield "name", "its name is not a letter and up to 63 more of A-Z a-z 0-9 _ -"
        return
    plain = re.sub(r"[^a-z0-9]", "_", name.lower())
    if plain in _RESERVED or plain == "packhost" or plain.startswith("packhost_"):
        yield "name", f"its name collides with the reserved tool name `{plain}`"
    if name in taken:
        yield "name", f"the name `{name}` stands twice"
    if not isinstance(description, str) or (measured and _bytes(description) > LONGEST_TEXT):
        yield "description", "its description is not a text of up to 2 KiB"
    if definition["origin"] not in ORIGINS:
        yield "origin", "`origin` is `sdk` or `webmcp`"
    if not isinstance(definition.get("untrusted_content_hint", False), bool):
        yield "untrusted_content_hint", "`untrusted_content_hint` is true or false"
    schema = definition["parameters_schema"]
    if not isinstance(schema, Mapping):
        yield "parameters_schema", "`parameters_schema` is not a JSON Schema object"
    elif measured and any(_bytes(text) > LONGEST_TEXT for text in _texts(schema)):
        yield "parameters_schema", "a text in its schema is longer than 2 KiB"
    elif (said := schema_fault(schema)) is not None:
        yield "parameters_schema", said


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


def _texts(value: Any) -> Iterator[str]:
    left = [value]
    while left:
        one = left.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, Mapping):
            left += [*one.keys(), *one.values()]
        elif isinstance(one, list):
            left += one
