"""packhost.yaml as adopting leaves it: a first one, or the one that is there with what has to be added."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from packhost.errors import ConfigInvalid
from packhost.manifest.yaml import read_yaml
from packhost.rules.scopes import parse_scope
from packhost.shipped import SHIPPED_PACKS
from packhost.workspace.rewriting import Rewriter, scalar
from packhost.workspace.root import CONFIG_FILE
from packhost.workspace.settings import DEFAULT_BOUND

_RULE: Final[Mapping[str, Any]] = {
    "match": {"kind": "mcp", "permission": "write"},
    "decide": "ask",
    "reason": "writes of adopted servers are looked at first",
    "relaxable": True,
}
_HEAD: Final = """\
# What agents may do in this folder, through packhost. Written by `packhost adopt`.
# A narrowing edit holds at once; a widening one waits until a person accepts it (`packhost accept`).
packhost: 1

packs:
  - agent-runtime            # agent turns, and the controls over them
  - id: workspace            # files of this folder: here only to be read
    scopes: [path read **]
"""
_BOUND: Final = """
# Nothing goes beyond these scopes, whatever a pack declares.
bound:
"""
_POLICY: Final = """
# Rules about calls: allow, ask or deny. Deny beats ask beats allow.
policy:
  - match: {kind: mcp, permission: write}
    decide: ask
    reason: writes of adopted servers are looked at first
    relaxable: true          # the level `autonomous` no longer asks
"""
_ADVISORY: Final = """
# An adopted server runs as its client ran it: nothing holds it to its scopes but what packhost sees of its
# calls. `upstream.sandbox: kernel` in its manifest does; then write `partial` here.
enforcement: {require: advisory}
"""
_SECRETS: Final = """
# Secrets are references, never values: env:NAME, file:PATH or cmd:PROGRAM.
secrets:
"""
_TAIL: Final = """
# observe < supervised < guarded < autonomous
autonomy: {default: guarded, maximum: autonomous}

approvals: {timeout: 10m, hold: 50s}
"""


@dataclass(frozen=True, slots=True)
class Additions:
    """What adopted servers need: packs by path, scopes in the bound, secrets; to be let run unconfined."""

    packs: tuple[str, ...] = ()
    scopes: tuple[str, ...] = ()
    secrets: Mapping[str, str] = field(default_factory=dict)
    advisory: bool = False


def settings_text(existing: bytes | None, more: Additions) -> str:
    """The file's text; of a file that is there the lines that differ change, and no others.

    Raises `ConfigInvalid` for one that is broken.
    """
    return _first(more) if existing is None else _merged(existing.decode("utf-8-sig"), more)


def _first(more: Additions) -> str:
    lines = [_HEAD.rstrip("\n"), *(f"  - path: {scalar(path)}" for path in more.packs), _BOUND.rstrip("\n")]
    lines += [f"  - {scalar(scope)}" for scope in _bound(DEFAULT_BOUND, more.scopes)]
    lines.append(_POLICY.rstrip("\n"))
    if more.advisory:
        lines.append(_ADVISORY.rstrip("\n"))
    if more.secrets:
        lines.append(_SECRETS.rstrip("\n"))
        lines += [f"  {name}: {reference}" for name, reference in more.secrets.items()]
    return "\n".join(lines) + "\n" + _TAIL


def _merged(text: str, more: Additions) -> str:
    data = read_yaml(text.encode(), CONFIG_FILE, error=ConfigInvalid).data
    held = data if isinstance(data, Mapping) else {}
    rewriter = Rewriter(text)
    before = list(held.get("bound", DEFAULT_BOUND))
    after = _bound(before, more.scopes)
    default = [*SHIPPED_PACKS]
    packs = held.get("packs", default)
    rewriter.add_entries("packs", [{"path": path} for path in more.packs], default)
    if after != before:
        rewriter.set_list("bound", after)
        if "workspace" in packs or {"id": "workspace"} in packs:
            # what widens the bound for adopted servers is not meant for the files of this folder
            rewriter.set_pack_scopes({"workspace": [line for line in before if line.startswith("path ")]})
    if _RULE not in held.get("policy", []):
        rewriter.add_rules([_RULE])
    if more.advisory and (held.get("enforcement") or {}).get("require") != "advisory":
        rewriter.add_members("enforcement", {"require": "advisory"})
    rewriter.add_members(
        "secrets", {n: r for n, r in more.secrets.items() if n not in held.get("secrets", {})}
    )
    return rewriter.text


def _bound(before: Sequence[str], scopes: Sequence[str]) -> list[str]:
    """The bound with the scopes that are not in it as they are written."""
    known = {parse_scope(line) for line in before}
    added = [scope for scope in dict.fromkeys(scopes) if parse_scope(scope) not in known]
    return [*before, *sorted(added, key=lambda scope: not scope.startswith("path "))]
