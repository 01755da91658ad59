"""Packs and tools as the pages show them, and the trace that says whether a call could run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from packhost.console.views.texts import about, short, shown

ENFORCEMENT: Final[Mapping[str, str]] = {
    "kernel": "the kernel holds its process to its scopes",
    "partial": "the kernel holds its process to part of its scopes, the host to the rest",
    "advisory": "the host checks what it asks for; nothing holds the process itself",
    "host": "the host does it on the tool's behalf, within its scopes",
}
"""What each level of enforcement means."""
PERMISSION: Final[Mapping[str, str]] = {
    "read": "reads",
    "write": "changes something",
    "admin": "administers",
}
VERDICT: Final[Mapping[str, str]] = {
    "allow": "It would run, and nobody would be asked.",
    "ask": "A person would be asked first.",
    "refuse": "It would be refused.",
}
_STEPS: Final[Mapping[str, str]] = {
    "resolve": "Is there such a tool?",
    "admit": "Do the arguments fit?",
    "cover": "Is it within every bound?",
    "ask": "Is a person asked for input?",
    "decide": "What do the rules say?",
    "enforce": "Can it be held to that?",
    "approve": "Who must agree?",
    "intent": "Is it put on record first?",
    "run": "What would run?",
}


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool in a list."""

    name: str
    title: str
    about: str
    permission: str
    does: str
    kind: str
    enforcement: str
    approvals: tuple[str, ...]
    scopes: tuple[str, ...]
    remaining: tuple[str, ...]
    narrowed: bool


@dataclass(frozen=True, slots=True)
class Withheld:
    """A tool that is not on offer, and the layer that took it."""

    name: str
    layer: str
    reason: str


@dataclass(frozen=True, slots=True)
class Pack:
    """A pack with its tools."""

    id: str
    title: str
    version: str
    origin: str
    digest: str
    tools: tuple[Tool, ...]
    withheld: tuple[Withheld, ...]


def tool_of(tool: Mapping[str, Any]) -> Tool:
    """One tool."""
    scopes, remaining = tuple(map(shown, tool["scopes"])), tuple(map(shown, tool["remaining"]))
    return Tool(
        name=shown(tool["tool"]),
        title=short(tool["title"]),
        about=shown(tool["description"]),
        permission=tool["permission"],
        does=PERMISSION.get(tool["permission"], tool["permission"]),
        kind=shown(tool["kind"]),
        enforcement=shown(tool["enforcement"]),
        approvals=tuple(map(shown, tool["required_approvals"])),
        scopes=scopes,
        remaining=remaining,
        narrowed=set(scopes) != set(remaining),
    )


def packs_of(packs: Mapping[str, Any], tools: Mapping[str, Any]) -> tuple[Pack, ...]:
    """Of what `packs.list` and `tools.list` with `all` return; the host's own tools come last."""
    known = {tool["tool"]: tool_of(tool) for tool in tools["tools"]}
    held = {one["tool"]: one for one in tools["withheld"]}
    found = [_pack(pack, known, held) for pack in packs["packs"]]
    used = {tool.name for pack in found for tool in pack.tools} | {
        one.name for pack in found for one in pack.withheld
    }
    rest = tuple(_withheld(one) for name, one in held.items() if shown(name) not in used)
    if rest:
        found.append(Pack("", "Tools of packs that are not known", "", "", "", (), rest))
    return tuple(found)


def _pack(pack: Mapping[str, Any], known: Mapping[str, Tool], held: Mapping[str, Any]) -> Pack:
    origin = "comes with packhost" if pack["shipped"] else "trusted" if pack["trusted"] else "from elsewhere"
    return Pack(
        id=shown(pack["id"]),
        title=short(pack["title"]),
        version=shown(pack["version"]),
        origin=origin,
        digest=str(pack["digest"] or "")[:16],
        tools=tuple(known[name] for name in pack["tools"] if name in known),
        withheld=tuple(
            _withheld(held.get(name, {"tool": name, "layer": "", "reason": ""})) for name in pack["withheld"]
        ),
    )


def _withheld(one: Mapping[str, Any]) -> Withheld:
    return Withheld(shown(one["tool"]), shown(one["layer"] or ""), shown(one["reason"] or ""))


@dataclass(frozen=True, slots=True)
class Layer:
    """What bounds a tool."""

    name: str
    scopes: tuple[str, ...]
    place: str


@dataclass(frozen=True, slots=True)
class Detail:
    """A tool whole."""

    tool: Tool
    pack: str
    version: str
    timeout: str
    hidden: tuple[str, ...]
    layers: tuple[Layer, ...]
    withheld_by: str
    means: str
    repeatable: bool


def detail_of(tool: Mapping[str, Any]) -> Detail:
    """Of what `tools.show` returns."""
    return Detail(
        tool=tool_of(tool),
        pack=f"{short(tool['pack']['title'])} {shown(tool['pack']['version'])}",
        version=shown(tool["version"]),
        timeout=about(tool["timeout"]),
        hidden=tuple(map(shown, tool["hidden_parameters"])),
        layers=tuple(
            Layer(shown(one["name"]), tuple(map(shown, one["scopes"])), shown(one["place"] or ""))
            for one in tool["layers"]
        ),
        withheld_by=shown(tool["withheld_by"] or ""),
        means=ENFORCEMENT.get(tool["enforcement"], ""),
        repeatable=bool(tool["idempotent"]),
    )


@dataclass(frozen=True, slots=True)
class Step:
    """One question of the gate's, and its answer."""

    name: str
    question: str
    passed: bool
    detail: str
    place: str


@dataclass(frozen=True, slots=True)
class Trace:
    """What the gate would do with a call."""

    verdict: str
    says: str
    steps: tuple[Step, ...]
    code: str
    message: str
    next: str


def trace_of(trace: Mapping[str, Any]) -> Trace:
    """Of what `explain` returns."""
    refusal = trace["refusal"] or {}
    return Trace(
        verdict=trace["verdict"],
        says=VERDICT.get(trace["verdict"], trace["verdict"]),
        steps=tuple(_step(step) for step in trace["steps"]),
        code=refusal.get("code", ""),
        message=shown(refusal.get("message", "")),
        next=shown(refusal.get("next", "") or ""),
    )


def _step(step: Mapping[str, Any]) -> Step:
    return Step(
        step["step"],
        _STEPS.get(step["step"], step["step"]),
        bool(step["passed"]),
        shown(step["detail"]),
        shown(step["place"] or ""),
    )


def changes_of(found: Mapping[str, Any]) -> tuple[Sequence[str], bool]:
    """What waits for `packhost accept`, in words, and whether code is among it."""
    return [shown(one["text"]) for one in found["changes"]], any(one["code"] for one in found["changes"])
