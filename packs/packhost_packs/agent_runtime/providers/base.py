"""What a provider is asked, what it replies, and how a reply is judged, whatever the protocol.

A reply is judged from native calls and the matching reason, both needed; text decides nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from packhost.api import Message, OfferedTool
from packhost_packs.agent_runtime.contract import calls_in, check_contract
from packhost_packs.agent_runtime.faults import TurnFault

Verdict = Literal["final", "tools", "incomplete", "refused"]

MAX_RESPONSE_BYTES = 8 * 1024 * 1024
MAX_CONTENT_BLOCKS = 1024
MAX_CALLS = 128
MAX_ARGUMENT_BYTES = 1024 * 1024


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


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The latest piece of a reply that is still arriving; never what came before it.

    `kind` says what grows: the text, the thinking, or the arguments of the call `call_id`. `block`
    is the position of the content block. It is for showing progress: unjudged, and never written down.
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


_FINAL = frozenset({"end_turn", "stop_sequence"})
_INCOMPLETE = frozenset({"max_tokens", "model_context_window_exceeded"})


def judge(
    blocks: Sequence[dict[str, Any]],
    stop_reason: object,
    *,
    usage: Usage | None = None,
    native: Mapping[str, Any] | None = None,
) -> Reply:
    """Make a reply of its ordered content and its native reason, or refuse it.

    Raises `TurnFault` for a broken contract, a reason that does not fit the calls, or one unknown.
    """
    calls = calls_in(blocks)
    if len(blocks) > MAX_CONTENT_BLOCKS:
        raise TurnFault(
            "limit_exceeded", "LIMIT_BLOCKS", f"a reply has more than {MAX_CONTENT_BLOCKS} blocks"
        )
    if len(calls) > MAX_CALLS:
        raise TurnFault("limit_exceeded", "LIMIT_TOOL_CALLS", f"a reply asks for more than {MAX_CALLS} calls")
    verdict = _verdict(stop_reason, bool(calls))
    requested = tuple({"id": c.get("id"), "name": c.get("name"), "input": c.get("input")} for c in calls)
    if verdict in ("final", "tools"):
        check_contract(requested, blocks)
    return Reply(verdict, tuple(blocks), requested, str(stop_reason), usage or Usage(), native)


def _verdict(reason: object, calls: bool) -> Verdict:
    if reason is None:
        raise TurnFault("protocol_error", "STOP_MISSING", "the reply gives no stop reason")
    if reason == "tool_use":
        if not calls:
            raise TurnFault(
                "protocol_error", "STOP_TOOL_WITHOUT_CALLS", "the reply stops for tools, asks for none"
            )
        return "tools"
    if reason in _FINAL:
        if calls:
            message = f"the reply asks for tools but stops with `{reason}`"
            raise TurnFault("protocol_error", "CALLS_WITHOUT_TOOL_STOP", message)
        return "final"
    if reason in _INCOMPLETE:
        return "incomplete"
    if reason == "refusal":
        return "refused"
    if reason == "pause_turn":
        raise TurnFault(
            "unsupported", "PAUSE_TURN_UNHANDLED", "the reply pauses for a tool of the provider's own"
        )
    raise TurnFault("protocol_error", "STOP_UNKNOWN", f"the stop reason `{str(reason)[:80]}` is not known")
