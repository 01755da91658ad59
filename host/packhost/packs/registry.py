"""The registry: every tool of the enabled packs, parsed once and immutable.

One bad pack is reported and left out; it never takes the others down.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from packhost.kinds.base import Kind, Located, PackFacts, Tool
from packhost.kinds.providing import KINDS
from packhost.manifest.model import NamedApprovalSpec, PackManifest, ToolSpec
from packhost.manifest.problems import Problem
from packhost.manifest.schemas import path_arguments
from packhost.manifest.validation import choice
from packhost.names import CURSOR_LIMIT, RESERVED_PACK, ToolId, nearest
from packhost.packs.discover import EntryPoints, FoundPack, find_packs
from packhost.packs.renaming import renamed
from packhost.rules.globs import tool_matches
from packhost.rules.policy import NamedApproval, Rule
from packhost.rules.scopes import parse_scope
from packhost.workspace.settings import NamedSettings
from packhost.workspace.workspace import Workspace

__all__ = ["Problem", "Registry", "build_registry"]


@dataclass(frozen=True, slots=True)
class Registry:
    """What the enabled packs bring. `problems` kept something out; `warnings` kept nothing out."""

    tools: Mapping[str, Tool] = field(default_factory=dict)
    """By canonical name."""
    by_wire: Mapping[str, Tool] = field(default_factory=dict)
    packs: Mapping[str, PackFacts] = field(default_factory=dict)
    manifests: Mapping[str, PackManifest] = field(default_factory=dict)
    approvals: Mapping[str, NamedApproval] = field(default_factory=dict)
    """Every named approval that a tool asks for, raised as the workspace says."""
    problems: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()


def build_registry(
    workspace: Workspace,
    kinds: Mapping[str, Kind],
    *,
    found: Sequence[FoundPack] | None = None,
    problems: Sequence[Problem] = (),
) -> Registry:
    """The tools of the workspace's enabled packs that `kinds` can run.

    `found` and `problems` are what `find_packs` returned, when it was called already. Never raises for a
    pack: see `problems`.
    """
    if found is None:
        found, problems = find_packs(workspace.enabled(), EntryPoints())
    kept: list[FoundPack] = []
    reported = list(problems)
    for pack in found:
        faults = list(_kind_faults(pack, kinds))
        reported += faults
        kept += [] if faults else [pack]
    facts = {pack.manifest.id: _facts(pack) for pack in kept}
    tools = {tool.id.canonical: tool for pack in kept for tool in _tools(pack, facts[pack.manifest.id])}
    tools, misnamed, unknown = renamed(tools, workspace.accepted.names)
    approvals = _approvals(kept, workspace.approvals.named)
    return Registry(
        tools=tools,
        by_wire={tool.wire: tool for tool in tools.values()},
        packs=facts,
        manifests={pack.manifest.id: pack.manifest for pack in kept},
        approvals=approvals,
        problems=(*reported, *misnamed),
        warnings=(*unknown, *_long_names(tools), *_idle(workspace, tools, approvals)),
    )


def _kind_faults(pack: FoundPack, kinds: Mapping[str, Kind]) -> Iterator[Problem]:
    for index, spec in enumerate(pack.manifest.tools):
        place = pack.loaded.tool_place(index)
        kind = kinds.get(spec.kind)
        if kind is None:
            message, hint = choice(spec.kind, kinds, "a kind that can be run here")
            yield Problem(
                "MANIFEST_INVALID",
                f"tool `{spec.name}`: {message}",
                hint,
                place,
                pack.manifest.id,
                f"tools.{index}.kind",
            )
            continue
        for said in kind.check(spec, pack.enabled.path):
            message = f"tool `{spec.name}`: {said}"
            at = place
            if isinstance(said, Located):
                at = pack.loaded.place_in_tool(index, said.path, said.line, said.column)
            yield Problem("MANIFEST_INVALID", message, "", at, pack.manifest.id, f"tools.{index}")


def _facts(pack: FoundPack) -> PackFacts:
    manifest = pack.manifest
    whole = hashlib.sha256(hashlib.sha256(pack.loaded.source).digest() + pack.code.encode())
    return PackFacts(
        id=manifest.id,
        version=manifest.version,
        title=manifest.title,
        digest=whole.hexdigest(),
        folder=pack.enabled.path,
        shipped=pack.shipped,
        trusted=pack.shipped or pack.enabled.trust,
        config_key=manifest.config_key,
        layers=pack.enabled.layers,
        upstream=manifest.upstream,
    )


def _tools(pack: FoundPack, facts: PackFacts) -> Iterator[Tool]:
    asked = {f"{facts.id}:{one.name}": one for one in pack.manifest.approvals}
    for index, spec in enumerate(pack.manifest.tools):
        yield Tool(
            id=ToolId(facts.id, spec.name),
            spec=spec,
            pack=facts,
            scopes=tuple(parse_scope(line) for line in spec.required_scopes),
            version=_version(
                spec, facts, pack.code, [asked[n] for n in spec.required_approvals if n in asked]
            ),
            place=pack.loaded.tool_place(index),
            path_arguments=path_arguments(spec.input_schema),
        )


def _version(spec: ToolSpec, facts: PackFacts, code: str, asked: Sequence[NamedApprovalSpec]) -> str:
    """The pack's version and a digest of all that an approval of this tool was about."""
    about: list[Any] = [spec.model_dump(mode="json"), [one.model_dump(mode="json") for one in asked], code]
    if facts.upstream is not None:
        about.append(facts.upstream.model_dump(mode="json"))
    said = json.dumps(about, sort_keys=True)
    return f"{facts.version}+{hashlib.sha256(said.encode()).hexdigest()[:12]}"


def _approvals(packs: Sequence[FoundPack], raised: Mapping[str, NamedSettings]) -> dict[str, NamedApproval]:
    found: dict[str, NamedApproval] = {}
    for pack in packs:
        for spec in pack.manifest.approvals:
            name = f"{pack.manifest.id}:{spec.name}"
            found[name] = NamedApproval(name, spec.title, spec.assurance, spec.grantable)
    for pack in packs:
        for tool in pack.manifest.tools:
            for name in tool.required_approvals:
                # Its pack is not enabled: a person is still asked, each time.
                found.setdefault(name, NamedApproval(name, name, grantable=False))
    return {name: _raised(one, raised.get(name)) for name, one in found.items()}


def _raised(approval: NamedApproval, to: NamedSettings | None) -> NamedApproval:
    if to is None:
        return approval
    return NamedApproval(
        approval.name,
        approval.title,
        "operator" if "operator" in (approval.assurance, to.assurance) else "client",
        approval.grantable,
        max(approval.approvers, to.approvers),
    )


def _long_names(tools: Mapping[str, Tool]) -> Iterator[Problem]:
    for tool in tools.values():
        if len(RESERVED_PACK) + len(tool.wire) > CURSOR_LIMIT:
            message = f"Cursor does not show `{tool.wire}`, over {CURSOR_LIMIT} characters in all"
            hint = f'shorten the tool\'s name, or write `names: {{"{tool.id}": SHORTER}}` in packhost.yaml'
            yield Problem("MANIFEST_INVALID", message, hint, tool.place, tool.id.pack)


def _idle(
    workspace: Workspace, tools: Mapping[str, Tool], approvals: Mapping[str, NamedApproval]
) -> Iterator[Problem]:
    """What the workspace says of tools and approvals that do not exist: most likely a slip."""
    if not tools:
        return
    for rule in workspace.rules:
        if rule.kind not in KINDS.values() and not any(_about(rule, tool) for tool in tools.values()):
            near = (
                nearest(rule.tool, tools, 1)
                if rule.tool
                else nearest(rule.pack or "", {t.id.pack for t in tools.values()}, 1)
            )
            hint = f"did you mean `{near[0]}`?" if near else "check its `match`"
            yield Problem("CONFIG_INVALID", "the rule matches no tool of an enabled pack", hint, rule.place)
    for name in workspace.approvals.named:
        if name not in approvals:
            message, hint = choice(name, approvals, "an approval of an enabled pack")
            yield Problem("CONFIG_INVALID", f"`approvals.named`: {message}", hint if approvals else "")


def _about(rule: Rule, tool: Tool) -> bool:
    return (
        (rule.tool is None or tool_matches(rule.tool, tool.id.canonical))
        and rule.pack in (None, tool.id.pack)
        and rule.kind in (None, tool.spec.kind)
        and rule.permission in (None, tool.spec.permission)
    )
