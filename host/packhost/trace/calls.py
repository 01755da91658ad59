"""Each call by itself: who it is, whether its tool is on offer, whether its input holds; and the exact
contract between a reply's calls and its `requested_tools`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from packhost.trace.findings import Findings, shown
from packhost.trace.lookalike import looks_like_a_call
from packhost.trace.model import Call, Mapped, Reply, Tool, Trace
from packhost.trace.schema import Work, check_schema
from packhost.trace.strict import BadInput, fingerprint, inspect, parse


def check_calls(trace: Trace, findings: Findings) -> None:
    """Add the issues of the groups `Call identity`, `Exact contract` and `Input`."""
    earlier: set[str] = set()
    work = Work()
    for reply in trace.replies:
        _identity(reply, earlier, findings)
        for call in reply.calls:
            _caller(reply, call, findings)
            if not reply.supplied:  # what was on offer then is not known
                _tool(trace, call, findings, work)
        _contract(trace, reply, findings)
        earlier |= {call.id for call in reply.calls if isinstance(call.id, str)}


def _say(findings: Findings, code: str, call: Call, detail: str, **more: Any) -> None:
    findings.add(code, call.path, detail, turn=call.turn, block=call.block, id=call.id, **more)


def _identity(reply: Reply, earlier: set[str], findings: Findings) -> None:
    here: dict[str, Call] = {}
    for call in reply.calls:
        if not isinstance(call.id, str):
            _say(findings, "CALL_ID_MISSING", call, "the call has no id that is a string")
        elif not call.id:
            _say(findings, "CALL_ID_EMPTY", call, "the call's id is empty")
        elif call.id in here:
            alike = here[call.id].name == call.name
            code = "CALL_ID_DUPLICATE" if alike else "CALL_ID_CONFLICT"
            _say(findings, code, call, f"two calls of the reply have the id `{shown(call.id)}`")
        else:
            here[call.id] = call
            if call.id in earlier:
                _say(findings, "CALL_ID_REUSED", call, "a call of an earlier reply has the same id")
        if not isinstance(call.name, str) or not call.name:
            _say(findings, "CALL_NAME_MISSING", call, "the call has no name")
    _indexes(reply, findings)


def _indexes(reply: Reply, findings: Findings) -> None:
    given = reply.raw.get("tool_calls")
    for place, raw in enumerate(given if isinstance(given, list) else ()):
        if isinstance(raw, Mapping) and "index" in raw and _not_place(raw["index"], place):
            path = f"{reply.path}/tool_calls/{place}/index"
            detail = f"the call at position {place} has the index {shown(raw['index'])}"
            findings.add("CALL_INDEX_INVALID", path, detail, turn=reply.turn, block=place, id=raw.get("id"))


def _not_place(index: Any, place: int) -> bool:
    return type(index) is not int or index != place


def _caller(reply: Reply, call: Call, findings: Findings) -> None:
    content = reply.raw.get("content")
    raw = content[call.block] if isinstance(content, list) and call.block < len(content) else None
    caller = raw.get("caller") if isinstance(raw, Mapping) and raw.get("type") == "tool_use" else None
    if caller is not None and not (isinstance(caller, Mapping) and caller.get("type") == "direct"):
        _say(findings, "PROGRAMMATIC_CALLER", call, "the call was not made by the model directly")


def _tool(trace: Trace, call: Call, findings: Findings, work: Work) -> None:
    if not isinstance(call.name, str) or not call.name:
        return
    grave = "warning" if trace.handled(call) else None
    tool = trace.tools.get(call.name)
    if tool is None and "tools" in trace.raw:
        _say(findings, "TOOL_UNKNOWN", call, f"no tool `{shown(call.name)}` is on offer", severity=grave)
    broken = _input(call, tool, findings, grave, work)
    if broken and isinstance(call.id, str):
        trace.faulty.add(call.id)
        if tool is not None and tool.strict and call.id in trace.dispatched:
            detail = "the tool is strict, and its handler was given an input that does not hold"
            _say(findings, "STRICT_FAILURE_DISPATCHED", call, detail)


def _input(call: Call, tool: Tool | None, findings: Findings, grave: Any, work: Work) -> bool:
    """Whether a call's input is broken; says how."""
    try:
        value = input_of(call)
    except BadInput as bad:
        _say(findings, bad.code, call, bad.detail, severity=grave)
        return True
    if tool is None or call.wants == "nothing":
        return False
    broken = False

    def say(code: str, place: str, detail: str) -> None:
        nonlocal broken
        gap = code == "SCHEMA_UNSUPPORTED_KEYWORD"
        broken = broken or not gap
        where = f"{call.path}#{place}" if place else call.path
        found = {"turn": call.turn, "block": call.block, "id": call.id}
        findings.add(code, tool.path if gap else where, detail, severity=None if gap else grave, **found)

    check_schema(value, tool.schema, say, work)
    return broken


def input_of(call: Call) -> Any:
    """A call's input as an object. Raises `BadInput`.

    Where the protocol gives text, none at all stands for no arguments: it is `{}`, which the schema
    then judges. Where it gives an object, text is one that was never whole: it is read to say how.
    """
    value = call.input
    if call.wants == "nothing":
        return {}
    if call.wants == "text":
        if not isinstance(value, str):
            raise BadInput("INPUT_JSON_INVALID", "the arguments are no JSON text")
        value = parse(value) if value.strip() else {}
    elif isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        parse(value)
    inspect(value)
    if not isinstance(value, dict):
        raise BadInput("INPUT_NOT_OBJECT", f"the input is {shown(value)}, no object")
    return value


def _contract(trace: Trace, reply: Reply, findings: Findings) -> None:
    requested = reply.raw.get("requested_tools")
    lookalike = not reply.calls and looks_like_a_call(reply.texts, trace.tools)
    if not isinstance(requested, list):
        if lookalike and not reply.supplied:
            findings.add("TEXT_TOOL_LOOKALIKE", reply.path, "the text looks like a call", turn=reply.turn)
        return
    if requested and lookalike:
        detail = "`requested_tools` was filled from text; the reply holds no call"
        findings.add("TEXT_SHAPED_REQUEST", f"{reply.path}/requested_tools", detail, turn=reply.turn)
        return
    _exact(reply, [one if isinstance(one, Mapping) else {} for one in requested], findings)


def _exact(reply: Reply, requested: list[Mapped], findings: Findings) -> None:
    path = f"{reply.path}/requested_tools"
    wanted = [_key(one.get("id")) for one in requested]
    native = [_key(call.id) for call in reply.calls]
    asked, found = set(wanted), set(native)
    for call, key in zip(reply.calls, native, strict=True):
        if key not in asked:
            _say(findings, "CONTRACT_MISSING_CALL", call, "the call is not in `requested_tools`")
    for place, key in enumerate(wanted):
        if key not in found:
            detail = "the content holds no such call"
            id = requested[place].get("id")
            findings.add(
                "CONTRACT_EXTRA_CALL", f"{path}/{place}", detail, turn=reply.turn, block=place, id=id
            )
    if asked == found and wanted != native and len(wanted) == len(native):
        detail = "the order is not that of the content"
        findings.add("CONTRACT_REORDERED", path, detail, turn=reply.turn)
    calls = dict(zip(native, reply.calls, strict=True))
    for one, key in zip(requested, wanted, strict=True):
        if key in calls:
            _alike(one, calls.pop(key), findings)


def _alike(one: Mapped, call: Call, findings: Findings) -> None:
    if one.get("name") != call.name:
        detail = f"it is {shown(one.get('name'))} in `requested_tools`, {shown(call.name)} in the content"
        _say(findings, "CONTRACT_NAME_MISMATCH", call, detail)
    try:
        value = input_of(call)
    except BadInput:
        return
    if fingerprint(one.get("input")) != fingerprint(value):
        _say(findings, "CONTRACT_INPUT_MISMATCH", call, "the inputs differ")


def _key(id: Any) -> str:
    return f"id {id}" if isinstance(id, str) else f"other {shown(id)}"
