"""Operations on tools: what there is, what one is, whether a call could run, and a call."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from packhost.control.base import Parts, optional, text
from packhost.errors import InvalidInput, PackhostError
from packhost.gate.catalog import Catalog, Entry
from packhost.gate.recall import key_of
from packhost.gate.types import Answer, Caller, CallRequest, Completed, Deferred, Outcome, Prompt, Refusal
from packhost.rules.remaining import remaining
from packhost.rules.scopes import format_scope
from packhost.store.ops import sessions

CLI_CLIENT = "packhost-cli"
_WIRE: Final = re.compile(r"`([A-Za-z0-9_-]+)`")


async def listing(parts: Parts, params: Mapping[str, Any]) -> Any:
    """The tools on offer; with `all` also those withheld."""
    catalog = parts.configuration().catalog
    withheld = [
        {"tool": held.tool, "layer": held.layer, "reason": held.reason} for held in catalog.withheld()
    ]
    return {
        "tools": [describe(entry) for entry in catalog.listed()],
        "withheld": withheld if params.get("all") else [],
        "withheld_count": len(withheld),
    }


async def show(parts: Parts, params: Mapping[str, Any]) -> Any:
    """One tool whole: schemas, layers, and why it is withheld if it is."""
    name = text(params, "tool")
    catalog = parts.configuration().catalog
    entry = catalog.find(name)
    if entry is None:
        near = catalog.like(name)
        raise PackhostError(
            f"there is no tool `{name}`",
            code="TOOL_NOT_FOUND",
            hint=f"did you mean `{near[0]}`?" if near else "see `packhost tools list --all`",
        )
    spec, pack = entry.tool.spec, entry.tool.pack
    return {
        **describe(entry),
        "pack": {"id": pack.id, "version": pack.version, "title": pack.title, "shipped": pack.shipped},
        "version": entry.tool.version,
        "timeout": spec.timeout,
        "control": spec.control,
        "hidden_parameters": list(spec.hidden_parameters),
        "input_schema": dict(spec.input_schema),
        "output_schema": dict(spec.output_schema) if spec.output_schema else None,
        "layers": [
            {
                "name": layer.name,
                "scopes": [format_scope(scope) for scope in layer.scopes],
                "place": str(layer.place) if layer.place else None,
            }
            for layer in entry.layers
        ],
        "withheld_by": entry.uncovered.layer if entry.uncovered else None,
    }


async def packs(parts: Parts, params: Mapping[str, Any]) -> Any:
    """The packs whose tools are known, and what kept others out."""
    configuration = parts.configuration()
    found: dict[str, dict[str, Any]] = {}
    for entry in configuration.catalog.entries.values():
        pack = entry.tool.pack
        told = found.setdefault(
            pack.id,
            {
                "id": pack.id,
                "version": pack.version,
                "title": pack.title,
                "shipped": pack.shipped,
                "trusted": pack.trusted,
                "digest": pack.digest,
                "tools": [],
                "withheld": [],
            },
        )
        told["withheld" if entry.uncovered else "tools"].append(entry.tool.id.canonical)
    return {
        "packs": list(found.values()),
        "problems": list(configuration.problems),
        "warnings": list(configuration.warnings),
    }


def describe(entry: Entry) -> dict[str, Any]:
    """A tool in a line of a listing."""
    spec, tool = entry.tool.spec, entry.tool
    return {
        "tool": tool.id.canonical,
        "wire": tool.wire,
        "own_name": tool.id.wire,
        "title": spec.title or tool.id.canonical,
        "description": spec.description,
        "permission": spec.permission,
        "kind": spec.kind,
        "required_approvals": list(spec.required_approvals),
        "scopes": [format_scope(scope) for scope in tool.scopes],
        "remaining": [line for scope in tool.scopes for line in remaining(scope, entry.layers)],
        "enforcement": entry.kind.enforcement(tool),
        "idempotent": spec.idempotent,
    }


class _Nobody:
    """For a command line without a terminal: what must be asked is refused at once, also inside a run."""

    async def ask(self, prompt: Prompt) -> Answer:
        """Nobody answers."""
        return Answer("unanswered", channel="cli", reason="nobody is at hand where the call was made")


async def call(parts: Parts, params: Mapping[str, Any]) -> Any:
    """One call through the gate, asked for at the command line.

    With `attended` false nobody is waited for, else what a run must ask waits to be decided.
    """
    asker = _Nobody() if params.get("attended") is False else None
    outcome = await parts.gate.call(await _request(parts, params), asker)
    if isinstance(outcome, Refusal):
        catalog = parts.configuration().catalog
        message, hint = _canonical(outcome.message, catalog), _canonical(outcome.hint, catalog)
        outcome = replace(outcome, message=message, hint=hint)
    return outcome_json(outcome)


def _canonical(said: str, catalog: Catalog) -> str:
    """What is said, with each tool named as it is at the command line; clients know tools by wire names."""

    def named(match: re.Match[str]) -> str:
        entry = catalog.by_wire.get(match[1])
        return f"`{entry.tool.id.canonical}`" if entry is not None else match[0]

    return _WIRE.sub(named, said)


async def explain(parts: Parts, params: Mapping[str, Any]) -> Any:
    """What the gate would do with a call; nothing runs and nothing is recorded.

    With `of_session` it is looked at as if that session made it, with its own level, principal and client;
    with an empty one, as if a new session did.
    """
    session = optional(params, "of_session")
    if session is None:
        return parts.gate.explain(await _request(parts, params, opens=False)).as_json()
    caller = Caller(parts.principal, CLI_CLIENT, "new")
    if session:
        row = parts.store.read(sessions.get, session)
        caller = Caller(row.principal, row.client, row.id)
    return parts.gate.explain(CallRequest(text(params, "tool"), _arguments(params), caller)).as_json()


def _arguments(params: Mapping[str, Any]) -> dict[str, Any]:
    arguments = params.get("arguments", {})
    if not isinstance(arguments, dict):
        raise InvalidInput("the arguments are not an object", hint='write them as `{"name": value}`')
    return arguments


async def _request(parts: Parts, params: Mapping[str, Any], *, opens: bool = True) -> CallRequest:
    arguments = _arguments(params)
    client = text(params, "client", CLI_CLIENT)
    session = text(params, "session", f"cli-{parts.principal}"[:64])
    if opens:
        await parts.gate.sessions.enter(session, parts.principal, client)
    else:
        parts.gate.sessions.look(session, parts.principal, client)
    intent = text(params, "intent", "best-effort")
    caller = Caller(
        parts.principal, client, session, intent="mandatory" if intent == "mandatory" else "best-effort"
    )
    key = key_of(params["key"], caller, "/key") if params.get("key") is not None else None
    return CallRequest(text(params, "tool"), arguments, caller, idem_key=key)


def outcome_json(outcome: Outcome) -> dict[str, Any]:
    """An outcome as the command line and the API show it."""
    if isinstance(outcome, Completed):
        return {
            "status": "completed",
            "value": outcome.value,
            "call_id": outcome.call_id,
            "run_id": outcome.run_id,
            "enforcement": outcome.enforcement,
        }
    if isinstance(outcome, Deferred):
        return {
            "status": "refused",
            "refusal": {"code": "APPROVAL_REQUIRED", "approval_id": outcome.prompt.approval_id},
        }
    return {"status": "refused", "refusal": outcome.as_json()}
