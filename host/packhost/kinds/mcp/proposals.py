"""What a tool of an upstream is proposed to be allowed: from its names and annotations, the careful way.

A server's annotations are its own word: they make a proposal stricter at once, and milder only where the
tool's name does not speak against it. A person edits what is proposed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from packhost.manifest.model import Permission


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_READS: Final = _words(
    """
    get list read search find fetch describe show view query lookup count check status info tree
    stat head tail diff log logs browse inspect explain summarize think thinking echo open resolve
    validate preview ping help version whoami sum calculate convert current now time
    """
)
_WRITES: Final = _words(
    """
    create update write set add insert append edit modify change move rename copy upload send post
    put patch commit push merge checkout switch save store import export download publish subscribe
    invite assign close reopen comment reply label start stop pause resume enable disable toggle
    trigger register install clone stage unstage fork replace navigate click fill type press select
    submit record make build generate apply init connect sync mount book order pay buy schedule
    cancel archive restore
    """
)
_ADMIN: Final = _words(
    """
    delete remove drop destroy purge wipe erase truncate exec execute run shell bash command eval
    evaluate kill terminate deploy grant revoke admin sudo reset uninstall restart shutdown reboot
    ban block transfer rotate impersonate script sql
    """
)
_DISCLOSES: Final = _words(
    """
    env environment secret secrets password passwords credential credentials token tokens key keys
    """
)
_PATHS: Final = _words(
    """
    path paths file files filename filepath dir directory folder
    """
)
_PATHS_ALONE: Final = frozenset({"source", "destination", "src", "dst", "cwd", "workdir"})
_ELSEWHERE: Final = frozenset({"owner", "repo", "repository", "project_id", "bucket", "url", "branch"})
"""Parameters beside which a path is one in some service, not on this machine."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """What is proposed for one tool. `paths` are the places of its `x-path` marks in the arguments."""

    permission: Permission
    why: str
    paths: tuple[tuple[str, ...], ...]
    outside: bool
    """Whether what it returns comes from outside and is marked so."""


def words_of(name: str) -> list[str]:
    """The words of a name, whatever its style, in lower case."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", " ", name)
    return [word.casefold() for word in re.split(r"[^A-Za-z0-9]+", spaced) if word]


def propose(definition: Mapping[str, Any], *, local: bool) -> Proposal:
    """What a tool is proposed to be allowed; `local` for a server that runs on this machine."""
    annotations = definition.get("annotations")
    hints = annotations if isinstance(annotations, Mapping) else {}
    permission, why = _permission(words_of(str(definition.get("name", ""))), hints)
    schema = definition.get("inputSchema")
    paths = tuple(_paths(schema)) if local and isinstance(schema, Mapping) else ()
    read = {"fetch", "search", "browse", "crawl", "scrape", "web", "url", "http"}
    outside = hints.get("openWorldHint") is True or bool(
        read & set(words_of(str(definition.get("name", ""))))
    )
    return Proposal(permission, why, paths, outside or not local)


def _permission(words: Sequence[str], hints: Mapping[str, Any]) -> tuple[Permission, str]:
    said = set(words)
    if found := _first(words, _ADMIN):
        if hints.get("readOnlyHint") is True:
            return "write", f"it calls itself read-only, but is named `{found}`"
        return "admin", f"it is named `{found}`"
    if found := _first(words, _WRITES):
        if hints.get("readOnlyHint") is True:
            return "write", f"it calls itself read-only, but is named `{found}`"
        return "write", f"it is named `{found}`"
    if found := _first(words, _DISCLOSES):
        return "write", f"it may disclose `{found}`"
    if hints.get("readOnlyHint") is True:
        return "read", "it calls itself read-only"
    if hints.get("readOnlyHint") is False or hints.get("destructiveHint") is True:
        return "write", "it says that it changes things"
    if said & _READS:
        return "read", f"it is named `{_first(words, _READS)}`"
    return "write", "nothing says that it only reads"


def _first(words: Sequence[str], of: frozenset[str]) -> str:
    return next((word for word in words if word in of), "")


def _paths(schema: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Where strings that are named like paths stand: in the arguments themselves, their lists and objects."""
    properties = schema.get("properties")
    if not isinstance(properties, Mapping) or _ELSEWHERE & {str(name).casefold() for name in properties}:
        return []
    found: list[tuple[str, ...]] = []
    for name, inner in properties.items():
        if not isinstance(inner, Mapping):
            continue
        if _path_like(str(name)) and inner.get("type") == "string" and not {"enum", "const"} & inner.keys():
            found.append((str(name),))
        items = inner.get("items")
        if _path_like(str(name)) and isinstance(items, Mapping) and items.get("type") == "string":
            found.append((str(name), "*"))
    return found


def _path_like(name: str) -> bool:
    words = words_of(name)
    return bool(words) and (words[-1] in _PATHS or name.casefold() in _PATHS_ALONE)
