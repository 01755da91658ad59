"""A run of turns as a trace: the conversation in its provider's own shape, and what the host did.

Earlier runs of the session and what the run was given stand as `supplied`: no provider gave them here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import packhost_packs.agent_runtime.client_tools as client_tools
from packhost.api import Message, OfferedTool, RecordedMessage, RunRecord
from packhost_packs.agent_runtime.approving import approving_of
from packhost_packs.agent_runtime.conversation import as_seen_by
from packhost_packs.agent_runtime.deeds import events_of
from packhost_packs.agent_runtime.ledger import spent_in
from packhost_packs.agent_runtime.providers import chat, messages

_ENDED = frozenset({"completed", "failed", "aborted"})
_STOP = {messages.PROTOCOL: "stop_reason", chat.PROTOCOL: "finish_reason"}


def trace_of(record: RunRecord) -> dict[str, Any]:
    """A run, or one node of a workflow, for `packhost trace check`."""
    spec, state = _part(record)
    if not record.branch and "nodes" in record.spec:
        return _without_turns(record)
    given = len(spec.get("messages", ()))
    said = [one.message for one in _own(record)[given:] if one.message["role"] == "assistant"]
    native: Mapping[str, Any] = next((one["native"] for one in said if one.get("native")), {})
    replies = _replies(record)
    spoken = (reply["protocol"] for reply in replies.values() if reply.get("protocol"))
    protocol = native.get("protocol") or next(spoken, messages.PROTOCOL)
    events = list(events_of(record))
    asked = {call["name"] for reply in replies.values() for call in reply["requested"]}
    trace: dict[str, Any] = {
        "protocol": protocol,
        "tools": [
            _tool(one and approving_of(spec).shown(one), name, protocol, record)
            for name, one in _on_offer(record, state, asked)
        ],
        "messages": list(_messages(record, protocol, native.get("profile"), given, replies)),
        "budgets": dict(spec.get("limits", {})),
        "used": _used(state),
        "events": events,
        "run": {"id": record.id, "kind": record.kind, "status": record.status, "node": record.branch},
    }
    if record.status not in _ENDED and all(event["type"] != "outcome" for event in events):
        trace["outcome"] = "paused" if record.status in ("running", "queued") else record.status
    return trace


def _without_turns(record: RunRecord) -> dict[str, Any]:
    """A workflow in which no model was asked for anything."""
    return {
        "protocol": messages.PROTOCOL,
        "tools": [],
        "messages": [],
        "budgets": {},
        "used": _used({}),
        "events": [],
        "run": {"id": record.id, "kind": record.kind, "status": record.status, "node": ""},
    }


def _part(record: RunRecord) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Request and state of the run, or of the node that the record is of."""
    if not record.branch:
        return record.spec, record.state
    nodes = {node["id"]: node["turn"] for node in record.spec.get("nodes", ())}
    return nodes.get(record.branch, {}), record.state.get("branches", {}).get(record.branch, {})


def _used(state: Mapping[str, Any]) -> dict[str, float]:
    spent = spent_in(state if "turns" in state else {})  # a workflow keeps its nodes alone
    return {
        "turns": spent.turns,
        "tool_calls": spent.tool_calls,
        "wall_clock": spent.seconds,
        "tokens": spent.tokens,
        "retries": spent.retries,
    }


def _own(record: RunRecord) -> list[RecordedMessage]:
    return [one for one in record.messages if one.own]


def _replies(record: RunRecord) -> dict[int, Mapping[str, Any]]:
    """The replies by their turn; of one that was had twice, because the host died, the last."""
    return {
        event.data["turn"]: event.data
        for event in record.events
        if event.type == "turn.completed" and event.data.get("branch", "") == record.branch
    }


def _messages(
    record: RunRecord,
    protocol: str,
    profile: str | None,
    given: int,
    replies: Mapping[int, Mapping[str, Any]],
) -> Iterator[Message]:
    turn = own = 0
    for one in record.messages:
        own += one.own
        seen = one.message if profile is None else as_seen_by(one.message, profile)
        if one.message["role"] != "assistant":
            yield from _from_user(seen, protocol)
            continue
        (said,) = _wire(seen, protocol)
        if not one.own or own <= given:
            yield {**said, "supplied": True}
            continue
        turn += 1
        reply = replies.get(turn, {})
        stop = (one.message.get("native") or {}).get("stop_reason") or reply.get("stop_reason")
        yield {**said, _STOP[protocol]: stop, "usage": reply.get("usage"), **_requested(one.message)}
    silent = replies.get(turn + 1)
    if silent is not None and not silent["requested"]:  # it said nothing, so that no history keeps it
        yield {
            "role": "assistant",
            "content": None if protocol == chat.PROTOCOL else [],
            _STOP[protocol]: silent.get("stop_reason"),
            "usage": silent.get("usage"),
        }


def _requested(message: Message) -> Mapping[str, Any]:
    """The calls as they were handed to the loop, for the exact contract."""
    calls = [block for block in message["content"] if block["type"] == "tool_call"]
    if not calls:
        return {}
    return {"requested_tools": [{name: call[name] for name in ("id", "name", "input")} for call in calls]}


def _from_user(message: Message, protocol: str) -> Iterator[Message]:
    results = {b["tool_use_id"]: b for b in message["content"] if b["type"] == "tool_result"}
    for wire in _wire(message, protocol):
        if wire["role"] == "tool":
            wire["is_error"] = bool(results[wire["tool_call_id"]].get("is_error"))
        yield wire


def _wire(message: Message, protocol: str) -> Sequence[Message]:
    return chat.wire_messages([message]) if protocol == chat.PROTOCOL else messages.wire_messages([message])


def _on_offer(
    record: RunRecord, state: Mapping[str, Any], asked: set[str]
) -> Iterator[tuple[str, OfferedTool | None]]:
    """The tools that were on offer; one that is no more has no schema. A call may use the canonical name."""
    of_caller = client_tools.offered(record.spec.get("client_tools") or ())
    known = {tool.name: tool for tool in (*record.tools, *of_caller)}
    for name in state.get("tools", ()):
        tool = known.get(name)
        yield name, tool
        if tool is not None and tool.canonical in asked:
            yield tool.canonical, tool


def _tool(tool: OfferedTool | None, name: str, protocol: str, record: RunRecord) -> dict[str, Any]:
    description = tool.description if tool is not None else ""
    schema = tool.input_schema if tool is not None else {}
    of_caller = (one["name"] for one in record.spec.get("client_tools") or () if client_tools.untrusted(one))
    untrusted = record.untrusted if tool is None or tool.kind != client_tools.KIND else frozenset(of_caller)
    marks = {
        "idempotent": tool is not None and tool.idempotent,
        "untrusted_output": tool is not None and tool.name in untrusted,
    }
    if protocol == chat.PROTOCOL:
        function = {"name": name, "description": description, "parameters": schema}
        return {"type": "function", "function": function, **marks}
    return {"name": name, "description": description, "input_schema": schema, **marks}
