"""The closed list of issue codes: what each means, how grave it is, and what a trace needs to show it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "warning", "gap"]
Needs = Literal["messages", "events", "stream", "request"]


@dataclass(frozen=True, slots=True)
class Code:
    """One issue code; `needs` is the part of a trace without which it cannot be seen."""

    name: str
    group: str
    severity: Severity
    needs: Needs
    meaning: str


_CORRELATION = """
RESULT_MISSING error messages A call has no result anywhere after it.
RESULT_LATE error messages A result comes, but not at once after the reply that asked for it.
RESULT_DUPLICATE error messages A call has more than one result.
RESULT_UNMATCHED error messages A result answers no call of the trace so far.
RESULT_NOT_LEADING error messages A result stands behind other content of its message.
RESULT_SPLIT error messages The results of one reply are spread over several messages.
RESULT_WRONG_ROLE error messages A result stands in a message whose role may not carry one.
RESULT_REORDERED warning messages Results have another order than their calls; an error where they were fixed.
RESULT_FOR_SERVER_TOOL error messages A client's result answers a tool that the provider ran itself.
"""
_IDENTITY = """
CALL_ID_MISSING error messages A call has no id, or one that is not a string.
CALL_ID_EMPTY error messages A call's id is empty.
CALL_ID_DUPLICATE error messages Two calls of one reply have one id and one name.
CALL_ID_CONFLICT error messages Two calls of one reply have one id and different names.
CALL_ID_REUSED error messages A call has the id of a call of an earlier reply.
CALL_ID_INVENTED error messages The host used an id that the provider never gave.
CALL_INDEX_INVALID error messages A call's index is missing, no count, out of turn, or shared by two calls.
CALL_NAME_MISSING error messages A call has no name.
CALL_NAME_CONFLICT error events One call has two names.
TOOL_UNKNOWN error messages A call names no tool on offer.
"""
_CONTRACT = """
CONTRACT_MISSING_CALL error messages A call is not in `requested_tools`, or not in the message of its stream.
CONTRACT_EXTRA_CALL error messages `requested_tools` holds a call that the content does not.
CONTRACT_REORDERED error messages `requested_tools` has another order than the content.
CONTRACT_NAME_MISMATCH error messages A requested call has another name than in the content.
CONTRACT_INPUT_MISMATCH error messages A requested call has another input than in the content.
TEXT_SHAPED_REQUEST error messages A call was taken from text: it was acted on and there is no native call.
TEXT_TOOL_LOOKALIKE warning messages Text looks like a call; it is text, and was left alone.
PROGRAMMATIC_CALLER error messages A call was made by a program of the provider's, not by the model directly.
CUSTOM_CALL_UNSUPPORTED error messages A call is of another type than `function`.
"""
_INPUT = """
INPUT_JSON_INVALID error messages A call's input is not JSON.
INPUT_JSON_INCOMPLETE error messages A call's input is the beginning of JSON, cut off.
INPUT_DUPLICATE_KEY error messages A key stands twice in a call's input.
INPUT_NOT_OBJECT error messages A call's input is JSON, but no object.
INPUT_NONFINITE_NUMBER error messages A call's input holds `NaN`, an infinity, or a number too large to hold.
SCHEMA_TYPE error messages A value of the input has another type than its tool declares.
SCHEMA_REQUIRED error messages A member that the tool requires is not there.
SCHEMA_ADDITIONAL error messages A member that the tool does not allow is there.
SCHEMA_ENUM error messages A value is none of those that the tool allows.
SCHEMA_BOUND error messages A number, a length or a count is out of its bounds.
SCHEMA_UNSUPPORTED_KEYWORD gap messages A called tool's schema has a keyword outside the subset.
STRICT_FAILURE_DISPATCHED error messages An input that a `strict` tool does not allow reached its handler.
EAGER_FLAG_NOT_BOOLEAN error messages `eager_input_streaming` of a tool is no boolean.
"""
_STOP = """
STOP_MISSING error messages A reply has no stop reason.
STOP_UNKNOWN gap messages A reply's stop reason is not known; nothing may follow from it.
STOP_CONFLICT error messages A reply has two stop reasons that disagree.
STOP_TOOL_WITHOUT_CALLS error messages A reply stops for tools and asks for none.
CALLS_WITHOUT_TOOL_STOP error messages A reply asks for tools and stops as if it were done.
DISPATCH_AFTER_INCOMPLETE error messages A call of a truncated reply was run.
DISPATCH_AFTER_REFUSAL error messages A call of a refused or filtered reply was run.
PAUSE_TURN_UNHANDLED error messages A reply paused its turn, which was neither continued nor reported.
COMPLETION_FROM_PROSE error messages The run was called completed, its last stop reason is not final.
"""
_STREAM = """
SSE_MALFORMED error stream A line or its data cannot be read as a server-sent event of JSON.
SSE_INVALID_UTF8 error stream The stream holds bytes that are not UTF-8.
EVENT_ORDER error stream An event comes where its protocol does not allow it.
EVENT_UNKNOWN warning stream An event has a type that is not known.
BLOCK_UNKNOWN gap messages A content block has a type that is not known.
BLOCK_NOT_STOPPED error stream The message ended while a content block was open.
DELTA_TYPE_MISMATCH error stream A delta has a type that its block cannot have.
TERMINAL_MISSING error stream The stream ended without its terminal marker.
TERMINAL_EARLY error stream The terminal marker came before a stop reason.
POST_TERMINAL_DATA error stream Something followed the terminal marker.
PROVIDER_ERROR_EVENT error stream The stream holds an error; a warning if the run ended as `provider_error`.
CANCELLED error events The run was aborted, and went on or ended otherwise.
CLIENT_DISCONNECT error events The reader went away, and the run went on or ended otherwise.
OUTCOME_NOT_UNIQUE error events The run has more than one outcome.
"""
_LIMITS = """
LIMIT_RESPONSE_BYTES error events A response is larger than its limit.
LIMIT_STREAM_BYTES error stream A stream is longer than its limit.
LIMIT_EVENTS error stream A stream has more events than its limit.
LIMIT_SNAPSHOTS error events A reply was shown in more snapshots than its limit.
LIMIT_BLOCKS error messages A reply has more content blocks than its limit.
LIMIT_TOOL_CALLS error messages A reply asks for more calls than its limit.
LIMIT_ARGUMENT_BYTES error messages The inputs of one reply together are larger than their limit.
BUDGET_TURNS error messages There are more replies than the budget has turns.
BUDGET_TOOL_CALLS error messages More calls were run than the budget has.
BUDGET_WALL_CLOCK error events Work went on after the time; a warning where only the last step ran past it.
BUDGET_RETRIES error events There were more retries than the budget has.
BUDGET_TOKENS error messages A turn began after the tokens; a warning where only the last reply passed them.
TOOL_TIMEOUT error events A call ran longer than its time-out, and its result does not say so.
BATCH_PARTIAL_ADMISSION error messages Of one reply some calls were run and some refused for a limit.
LIMIT_RESULT_MISSING error messages A batch was refused for a limit, and a call of it has no result.
"""
_EXECUTION = """
TOOL_EXCEPTION warning events A tool's handler raised.
NOT_EXECUTED_RESULT_MISSING error messages After a failed call of a batch, a later one has no result.
RETRY_NON_IDEMPOTENT error events A call that is not idempotent was run again without a key.
EFFECTS_UNKNOWN_RERUN error events A call whose effects are unknown was run again.
INTENT_NOT_COMMITTED error events A call that is not idempotent was run before its intent was on record.
API_ERROR_CONTINUED error events The run went on after an error of the API that must stop it.
APPROVAL_ARGS_CHANGED error events A call was run under an approval of other arguments, or another tool.
APPROVAL_REPLAYED error events An approval was used twice, or was used and never given.
RESUME_STALE error events A run was resumed from a state that was no longer the last, or after its end.
RESUME_CONCURRENT error events A run was resumed while it ran.
DISPATCH_WHILE_PAUSED error events A call was started while the run was paused or interrupted.
"""
_TRUST = """
THINKING_MISSING error request Thinking that the provider gave was not sent back.
THINKING_MODIFIED error request Thinking was changed before it was sent back.
THINKING_REORDERED error request Thinking was sent back in another order.
SIGNATURE_LOST error messages Thinking has lost its signature.
REASONING_UNMERGED error messages Fragments of one reasoning item were kept apart.
PREFIX_MUTATED error request Earlier messages, `system` or `tools` were changed in the middle of a run.
UNTRUSTED_UNWRAPPED error messages Output of a tool that is declared untrusted is not in its envelope.
SECRET_IN_TRACE error messages Something in the trace has the form of a key or token.
HEADER_MISSING error request A header that the protocol requires was not sent.
MAX_TOKENS_INVALID error request `max_tokens` is missing where it is required, or no positive whole number.
"""
GROUPS: Mapping[str, str] = {
    "Correlation": _CORRELATION,
    "Call identity": _IDENTITY,
    "Exact contract": _CONTRACT,
    "Input": _INPUT,
    "Stop state": _STOP,
    "Stream": _STREAM,
    "Limits and budgets": _LIMITS,
    "Execution and durability": _EXECUTION,
    "Provider state and trust": _TRUST,
}
"""A line a code: name, severity, what it needs, meaning."""


def _codes() -> dict[str, Code]:
    found: dict[str, Code] = {}
    for group, lines in GROUPS.items():
        for line in lines.strip().splitlines():
            name, severity, needs, meaning = line.split(" ", 3)
            found[name] = Code(name, group, _SEVERITIES[severity], _NEEDS[needs], meaning)
    return found


_SEVERITIES: Mapping[str, Severity] = {"error": "error", "warning": "warning", "gap": "gap"}
_NEEDS: Mapping[str, Needs] = {
    "messages": "messages",
    "events": "events",
    "stream": "stream",
    "request": "request",
}
CODES: Mapping[str, Code] = _codes()
"""Every code by its name, in the order of the documentation."""
