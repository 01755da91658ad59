"""A run's turns: what its model was told and said, and what became of each call that it asked for."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from packhost.console.views.texts import CUT, Value, short, shown, value, values
from packhost.gate.display import shorten

_OUTCOME: Final[Mapping[str, str]] = {
    "ok": "went well",
    "error": "failed",
    "unknown": "ended with unknown effect",
    "started": "goes on",
    "not run": "has not run",
}


@dataclass(frozen=True, slots=True)
class Call:
    """A call that the model asked for, or that was made in another way."""

    id: str
    tool: str
    arguments: tuple[Value, ...]
    status: str
    says: str
    intent: str | None
    approval: str | None
    grant: str | None
    enforcement: str
    result: Value | None


@dataclass(frozen=True, slots=True)
class Turn:
    """One reply of the model: what it said, and its calls."""

    number: int
    text: str
    calls: list[Call]


@dataclass(frozen=True, slots=True)
class Conversation:
    """What was said in a run: what it was asked, and its turns; `earlier` messages came before it."""

    asked: tuple[str, ...]
    turns: tuple[Turn, ...]
    earlier: int
    rest: tuple[Call, ...]
    """Calls that no reply asked for."""


def conversation(
    trace: Mapping[str, Any] | None,
    made: Sequence[Mapping[str, Any]],
    evidence: Mapping[str, Any] | None,
    node: str = "",
) -> Conversation:
    """Of a run's trace, its recorded calls and what its record proves."""
    prefix = f"{node}/" if node else ""
    by_use = {call["tool_use_id"]: call for call in made if call["tool_use_id"]}
    lines = {
        line["tool_use_id"]: line
        for line in (evidence or {}).get("correlation", [])
        if line.get("node", "") == node
    }
    messages = list((trace or {}).get("messages", []))
    first = _first(messages)
    asked, replies = [], list[tuple[str, list[tuple[str, str, Any]]]]()
    for message in messages[first:]:
        if message.get("role") == "assistant":
            replies.append((shorten(shown(_text(message)), CUT), list(_requests(message))))
        elif message.get("role") in ("user", "system") and not replies and (said := _text(message)):
            asked.append(shorten(shown(said), CUT))
    replies += [("", requests) for requests in _unsaid(trace, len(replies))]
    turns = [
        Turn(
            number,
            text,
            [_call(id, name, given, by_use.get(prefix + id), lines.get(id)) for id, name, given in requests],
        )
        for number, (text, requests) in enumerate(replies, 1)
    ]
    used = {prefix + id for _, requests in replies for id, _, _ in requests}
    rest = tuple(_made(call) for call in made if not node and call["tool_use_id"] not in used)
    return Conversation(tuple(asked), tuple(turns), _said(messages[:first]), rest)


def _said(messages: Sequence[Mapping[str, Any]]) -> int:
    return sum(message.get("role") in ("user", "assistant") for message in messages)


def _first(messages: Sequence[Mapping[str, Any]]) -> int:
    """Where the run's own messages begin: after the last reply that was had before it."""
    return max((place for place, one in enumerate(messages) if one.get("supplied")), default=-1) + 1


def _unsaid(trace: Mapping[str, Any] | None, said: int) -> Iterator[list[tuple[str, str, Any]]]:
    """The calls of replies that stand in no message yet, as while one of their calls waits for a person."""
    events = (trace or {}).get("events", [])
    inputs = {event["name"]: event.get("input") for event in events if event.get("type") == "approval_asked"}
    for reply in [event for event in events if event.get("type") == "response"][said:]:
        yield [(str(one["id"]), str(one["name"]), inputs.get(one["name"])) for one in reply["requested"]]


def _text(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, str):
        return content
    blocks = content if isinstance(content, list) else []
    return "\n".join(str(block["text"]) for block in blocks if isinstance(block.get("text"), str))


def _requests(message: Mapping[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """The calls of a reply, in either protocol."""
    content = message.get("content")
    for block in content if isinstance(content, list) else []:
        if block.get("type") == "tool_use":
            yield str(block.get("id")), str(block.get("name")), block.get("input")
    for call in message.get("tool_calls") or []:
        function = call.get("function", {})
        yield str(call.get("id")), str(function.get("name")), _json(function.get("arguments"))


def _json(text: Any) -> Any:
    try:
        return json.loads(text) if isinstance(text, str) else text
    except ValueError:
        return {"": text}


def _call(
    id: str, name: str, arguments: Any, made: Mapping[str, Any] | None, line: Mapping[str, Any] | None
) -> Call:
    if made is not None:
        return _made(made)
    outcome = line["outcome"] if line is not None else "not run"
    given = arguments if isinstance(arguments, Mapping) else {}
    return Call(
        id=shown(id),
        tool=shown(name),
        arguments=values(given),
        status="waiting" if outcome == "not run" else "answered",
        says=_OUTCOME.get(outcome, shown(outcome)),
        intent=None,
        approval=line["approval"] if line is not None else None,
        grant=None,
        enforcement="",
        result=None,
    )


def _made(call: Mapping[str, Any]) -> Call:
    arguments = call["arguments"] if isinstance(call["arguments"], Mapping) else {}
    told = _OUTCOME.get(call["status"], call["status"])
    result = call["result"]
    return Call(
        id=call["id"],
        tool=shown(call["tool"]),
        arguments=values(arguments),
        status=call["status"],
        says=f"{told} ({call['code']})" if call["code"] else told,
        intent=call["id"],
        approval=call["approval_id"],
        grant=call["grant_id"],
        enforcement=short(call["enforcement"] or ""),
        result=value("result", result) if result is not None else None,
    )
