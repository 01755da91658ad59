"""The reference of the trace validator, from its own tables."""

from __future__ import annotations

from collections.abc import Iterator

from packhost.docgen.markdown import code, in_cell
from packhost.trace.codes import CODES, GROUPS
from packhost.trace.conduct import EVENTS
from packhost.trace.findings import MAX_ISSUES
from packhost.trace.lookalike import MAX_TEXT
from packhost.trace.model import STOPS
from packhost.trace.read import MAX_FILE
from packhost.trace.schema import ANNOTATIONS, KEYWORDS, MAX_MATCHED, MAX_PATTERN, MAX_STEPS
from packhost.trace.schema import MAX_DEPTH as SCHEMA_DEPTH
from packhost.trace.trust import MAX_DEPTH, REQUIRED

_HEAD = """\
# Traces and their validator

Generated from the validator's own tables by `packhost docs build --reference docs`.

`packhost trace check FILE…` holds a recorded or invented trace of agent turns to the rules of its protocol
and of this runtime. It needs no workspace and no host. `python -m packhost.trace FILE…` does the same with
nothing but Python's standard library, and `packhost.trace.check(trace)` returns the issues to a program.
`packhost runs export RUN` writes a run of this host as a trace.

`tests/trace/corpus/` holds a trace or more for every issue code, in both protocols where a code applies to
both, and clean ones: each file names in `expect` exactly the codes that it must give.

| Exit code | Meaning |
| --- | --- |
| 0 | nothing was found, or warnings alone |
| 1 | an error, or a gap: something that could not be judged and must not pass in silence |
| 2 | a file is no trace; the message says why |

## The shape of a trace

```json
{
  "protocol": "messages",
  "tools": [{"name": "read_file", "input_schema": {"type": "object"}}],
  "messages": [
    {"role": "user", "content": "Look at a.txt."},
    {"role": "assistant", "stop_reason": "tool_use",
     "content": [{"type": "tool_use", "id": "c1", "name": "read_file", "input": {"path": "a.txt"}}]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "…"}]},
    {"role": "assistant", "stop_reason": "end_turn", "content": "It is empty."}
  ],
  "budgets": {"max_turns": 20}
}
```

| Member | Meaning |
| --- | --- |
"""
_MEMBERS = {
    "protocol": "`messages` or `chat_completions`.",
    "tools": "Tools in the provider's own shape; also `strict`, `idempotent`, `untrusted_output`.",
    "messages": "Messages in the provider's own shape, in order; consecutive ones of one role stay apart.",
    "budgets": "`max_turns`, `max_tool_calls`, `wall_clock` (seconds), `max_retries`, `max_tokens`.",
    "budgets.limits": "Of one reply: `response_bytes`, `stream_bytes`, `events`, `snapshots`, "
    "`content_blocks`, `tool_calls`, `argument_bytes`.",
    "events": "What the host did, in order; see below.",
    "stream": "The raw lines of the last reply's stream, or a list of `{turn, lines}`; a byte that is not "
    "UTF-8 stands as `\\udc80` to `\\udcff`.",
    "request": "One request: `headers` (values masked), `max_tokens`, `system`, `tools`, `messages`.",
    "outcome": "How the run ended, where no event says so.",
}
_NOTES = """
An assistant message carries its `stop_reason` or `finish_reason`, and may carry `usage`, `requested_tools`
and `supplied`: true for one that the run began with and that no provider gave in this trace. A tool message
of Chat Completions may carry `is_error`.

Without `events`, a result that is not `is_error` counts as a dispatch. A bad call that was refused as it
should be, not run and answered with an error, is a warning: the issue is the model's, and it was handled.

## Stop reasons
"""

_EVENTS = """
## Events

Each has a `type` and may say `at`, in seconds. `turn` of an issue counts the replies from 1.

| Type | Meaning and members |
| --- | --- |
"""

_CODES = """
## Issue codes

An issue is `{code, severity, turn, block_index, tool_use_id?, path, detail}`; `path` is a JSON pointer into
the trace, behind a `#` one into a call's input. The column *seen in* names the part of a trace without which
a code cannot be found: what a trace leaves out is not judged.
"""


def trace_reference() -> str:
    """The page, as Markdown."""
    members = [f"| {code(name)} | {in_cell(meaning)} |" for name, meaning in _MEMBERS.items()]
    head = [_HEAD.rstrip("\n"), *members, _NOTES, *_stops()]
    return "\n".join([*head, _EVENTS.rstrip("\n"), *_events(), _CODES, *_codes(), *_limits(), ""])


def _stops() -> Iterator[str]:
    yield "| Protocol | Reason | Comes to |\n| --- | --- | --- |"
    for protocol, reasons in STOPS.items():
        for reason, comes_to in reasons.items():
            yield f"| {code(protocol)} | {code(reason)} | {comes_to} |"
    yield "\nAny other is unknown: a gap, and nothing may follow from it."


def _events() -> Iterator[str]:
    for name, meaning in EVENTS.items():
        yield f"| {code(name)} | {in_cell(meaning)} |"


def _codes() -> Iterator[str]:
    for group in GROUPS:
        yield f"### {group}\n\n| Code | Severity | Seen in | Meaning |\n| --- | --- | --- | --- |"
        for one in CODES.values():
            if one.group == group:
                yield f"| {code(one.name)} | {one.severity} | {one.needs} | {in_cell(one.meaning)} |"
        yield ""


def _limits() -> Iterator[str]:
    yield "## The subset of JSON Schema\n"
    yield f"Held: {_list(KEYWORDS)}.\n"
    yield f"Passed over, since they assert nothing here: {_list(sorted(ANNOTATIONS))}, and `x-…`.\n"
    yield (
        "Any other keyword is `SCHEMA_UNSUPPORTED_KEYWORD`. A `$ref` leads into its own schema alone. A "
        "`pattern` has no groups and at most two repetitions; any other is a gap, since it could take long."
    )
    yield "\n## Limits of the validator\n\n| What | Limit |\n| --- | --- |"
    for what, limit in (
        ("a file", f"{MAX_FILE // 1024 // 1024} MiB"),
        ("nesting of a trace", f"{MAX_DEPTH} levels"),
        ("issues that are listed; further ones are counted", f"{MAX_ISSUES}"),
        ("depth of a schema", f"{SCHEMA_DEPTH} levels"),
        ("steps through schemas, for all inputs of a trace", f"{MAX_STEPS}"),
        ("a pattern, and a text that one is tried on", f"{MAX_PATTERN} and {MAX_MATCHED} characters"),
        ("text of a reply that is searched for what looks like a call", f"{MAX_TEXT} characters"),
    ):
        yield f"| {what} | {limit} |"
    headers = "; ".join(f"{_list(names)} for {code(protocol)}" for protocol, names in REQUIRED.items())
    yield f"\nHeaders that a request must have: {headers}. Time and memory grow with the trace and no faster."
    yield (
        "\nWhat tools of the provider's own do, inside `server_tool_use` and its results, is opaque to this "
        "validator; they stay outside the pairing of calls and results."
    )


def _list(names: object) -> str:
    return ", ".join(code(str(name)) for name in names) if isinstance(names, list | tuple) else ""
