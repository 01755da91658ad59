"""What a provider is asked, what it replies, and how a reply is judged, whatever the protocol.

A reply is judged from native calls and the matching reason, both needed; text decides nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol

from packhost.api import Message, OfferedTool
from packhost_packs.agent_runtime.contract import calls_in, check_contract
from packhost_packs.agent_runtime.faults import TurnFault
from packhost_packs.agent_runtime.stream.limits import SafetyLimits, exceeded

Verdict = Literal["final", "tools", "incomplete", "refused"]


@dataclass(frozen=True, slots=True)
class TurnRequest:
    """One provider request: the whole conversation, never a part of it.

    `max_tokens` bounds this reply; `turn` counts the run's replies before it.
    """

    model: str
    system: str | None
    messages: Sequence[Message]
    tools: Sequence[OfferedTool]
    max_tokens: int
    turn: int = 0


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one reply or of a whole run."""

    input_tokens: int = 0
    output_tokens: int = 0

    @property
    def total(self) -> int:
        """Tokens in and out together."""
        return self.input_tokens + self.output_tokens

    def plus(self, other: Usage) -> Usage:
        """Both together."""
        return Usage(self.input_tokens + other.input_tokens, self.output_tokens + other.output_tokens)

    def as_json(self) -> dict[str, int]:
        """The usage as a result shows it."""
        return {"input_tokens": self.input_tokens, "output_tokens": self.output_tokens}


@dataclass(frozen=True, slots=True)
class Reply:
    """A reply that holds the contract: ordered content, the calls in it, and what it comes to."""

    verdict: Verdict
    blocks: tuple[dict[str, Any], ...]
    requested: tuple[dict[str, Any], ...]
    stop_reason: str
    usage: Usage = field(default_factory=Usage)
    native: Mapping[str, Any] | None = None

    @property
    def text(self) -> str:
        """The provider's text, joined."""
        return "".join(block["text"] for block in self.blocks if block["type"] == "text")

    def message(self) -> Message:
        """The assistant message that history keeps; `native` is sent back unmodified."""
        message: Message = {"role": "assistant", "content": [dict(block) for block in self.blocks]}
        if self.native is not None:
            message["native"] = dict(self.native)
        return message


class Snapshot(NamedTuple):
    """The latest piece of a reply that is still arriving; never what came before it.

    `kind` says what grows: the text, the thinking, or the arguments of the call `call_id`, and
    `block` tells blocks of one kind apart. It is for showing progress: unjudged, and never written down.
    """

    kind: Literal["text", "thinking", "call"]
    block: int
    delta: str
    call_id: str | None = None
    name: str | None = None


Emit = Callable[[Snapshot], Awaitable[None]]
"""Takes each snapshot in order; raises `ReaderLost` when nobody reads any more."""


async def unheard(snapshot: Snapshot) -> None:
    """Takes a snapshot and shows it to nobody."""


class Provider(Protocol):
    """Whom a turn is put to."""

    async def turn(self, request: TurnRequest, *, deadline: float, emit: Emit = unheard) -> Reply:
        """One request and its one whole reply, streamed or not; never repeated here.

        `deadline` is a time of `anyio.current_time()`: it bounds the request and the reading of the
        whole reply, together with the profile's own `timeout`; pass `math.inf` for the latter alone.
        Past it a `TurnFault` says so (`limit_exceeded`, `BUDGET_WALL_CLOCK` for `deadline`;
        `provider_error`, `TERMINAL_MISSING` for the profile's). `emit` gets the latest piece of a
        streamed reply and is not called after this returns, raises or is cancelled; `ReaderLost`
        out of it becomes a `TurnFault` with the outcome `client_disconnect`. A cancellation passes
        at once, also in the middle of a body: whoever cancels gives the run its one outcome.

        Raises `TurnFault` for everything that went wrong once or before the request was sent. A fault
        with `begun` false spent nothing and may be retried where its `status` says so, after
        `retry_after` seconds; a fault with the issue `TOOL_COUNT_REFUSED_BY_PROVIDER` is a provider
        that takes fewer tools; `call` is set when the input of an identified call is what is wrong.
        Raises `PackhostError` when the request cannot be made at all (no key, no positive `max_tokens`).
        """


@dataclass(frozen=True, slots=True)
class Reasons:
    """A protocol's words for why a reply ended, by what they come to; any other word is refused."""

    final: frozenset[str]
    tools: str
    incomplete: frozenset[str]
    refused: frozenset[str]
    unsupported: Mapping[str, tuple[str, str]]


def verdict_of(reason: object, calls: bool, reasons: Reasons) -> Verdict:
    """What a reply comes to, of its native reason and of whether it holds native calls.

    Raises `TurnFault` when the two do not fit, or the reason is missing or unknown.
    """
    if reason is None:
        raise TurnFault("protocol_error", "STOP_MISSING", "the reply gives no stop reason")
    if not isinstance(reason, str):
        raise TurnFault("protocol_error", "STOP_UNKNOWN", "the reply's stop reason is not a string")
    if reason == reasons.tools:
        if not calls:
            message = "the reply stops for tools, asks for none"
            raise TurnFault("protocol_error", "STOP_TOOL_WITHOUT_CALLS", message)
        return "tools"
    if reason in reasons.final:
        if calls:
            message = f"the reply asks for tools but stops with `{reason}`"
            raise TurnFault("protocol_error", "CALLS_WITHOUT_TOOL_STOP", message)
        return "final"
    if reason in reasons.incomplete:
        return "incomplete"
    if reason in reasons.refused:
        return "refused"
    if reason in reasons.unsupported:
        raise TurnFault("unsupported", *reasons.unsupported[reason])
    raise TurnFault("protocol_error", "STOP_UNKNOWN", f"the stop reason `{reason[:80]}` is not known")


def reply_of(
    verdict: Verdict,
    blocks: Sequence[dict[str, Any]],
    stop_reason: str,
    usage: Usage,
    native: Mapping[str, Any] | None = None,
) -> Reply:
    """A reply held to the contract; one that is not runnable keeps its text and no call.

    Raises `ContractBroken`.
    """
    if verdict in ("incomplete", "refused"):
        kept = tuple(block for block in blocks if block["type"] == "text")
        return Reply(verdict, kept, (), stop_reason, usage)
    calls = calls_in(blocks)
    requested = tuple({"id": c.get("id"), "name": c.get("name"), "input": c.get("input")} for c in calls)
    check_contract(requested, blocks)
    return Reply(verdict, tuple(blocks), requested, stop_reason, usage, native)


def check_counts(blocks: int, calls: int, limits: SafetyLimits) -> None:
    """Raises `TurnFault` when a reply has more content blocks or calls than is taken in."""
    if blocks > limits.content_blocks:
        raise exceeded("content_blocks", limits.content_blocks)
    if calls > limits.tool_calls:
        raise exceeded("tool_calls", limits.tool_calls)


def count_of(raw: object, name: str) -> int:
    """A count that a provider's usage holds under a name; 0 for nonsense."""
    value = raw.get(name) if isinstance(raw, Mapping) else None
    return value if type(value) is int and value >= 0 else 0
