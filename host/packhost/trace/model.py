"""A trace as the checks read it: replies with their calls, results, and what the host did, in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from packhost.trace.findings import shown

Protocol = Literal["messages", "chat_completions"]
Stop = Literal["final", "tools", "incomplete", "refused", "paused", "unknown", "missing"]
Mapped = Mapping[str, Any]

STOPS: Mapping[Protocol, Mapping[str, Stop]] = {
    "messages": {
        "end_turn": "final",
        "stop_sequence": "final",
        "tool_use": "tools",
        "max_tokens": "incomplete",
        "model_context_window_exceeded": "incomplete",
        "refusal": "refused",
        "pause_turn": "paused",
    },
    "chat_completions": {
        "stop": "final",
        "tool_calls": "tools",
        "length": "incomplete",
        "content_filter": "refused",
    },
}
"""What a stop reason comes to; any other is `unknown` and nothing may follow from it."""
ROLES: Mapping[Protocol, frozenset[str]] = {
    "messages": frozenset({"user", "assistant", "tool", "system"}),
    "chat_completions": frozenset({"user", "assistant", "tool", "system", "developer", "function"}),
}


class TraceUnreadable(ValueError):
    """What was given is no trace; the message says what is wrong and where."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool as it was offered."""

    name: str
    schema: Any
    strict: bool
    untrusted: bool
    idempotent: bool
    path: str


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """A call that a reply asks for; `id`, `name` and `input` are what stands there, whatever it is.

    `wants` is the form in which the call's protocol gives an input; `nothing` is not held to any.
    """

    id: Any
    name: Any
    input: Any
    wants: Literal["object", "text", "nothing"]
    turn: int
    block: int
    path: str


@dataclass(frozen=True, slots=True)
class Result:
    """A result of a call; `proper` says whether its message's role may carry one."""

    id: Any
    is_error: bool
    text: str
    block: int
    path: str
    leading: bool
    proper: bool


@dataclass(frozen=True, slots=True, eq=False)
class Reply:
    """An assistant message; `supplied` is one that the run began with."""

    turn: int
    path: str
    raw: Mapped
    calls: Sequence[Call]
    stray: Sequence[Result]
    server_ids: frozenset[str]
    texts: Sequence[str]
    stop: Stop
    stop_text: str
    supplied: bool
    blocks: int


@dataclass(frozen=True, slots=True)
class Group:
    """Any other message; `plain` says whether it holds more than results."""

    path: str
    results: Sequence[Result]
    plain: bool


@dataclass(frozen=True, slots=True)
class Event:
    """Something that the host did."""

    type: str
    raw: Mapped
    path: str

    def text(self, name: str) -> str | None:
        """A text member."""
        value = self.raw.get(name)
        return value if isinstance(value, str) else None

    def number(self, name: str) -> float | None:
        """A numeric member."""
        return number(self.raw.get(name))


@dataclass(frozen=True, slots=True)
class Stream:
    """The raw lines of one streamed reply; `turn` 0 belongs to no reply of the trace."""

    turn: int
    lines: Sequence[str]
    path: str


@dataclass(slots=True)
class Trace:
    """The whole trace, and what several checks ask of it."""

    protocol: Protocol
    raw: Mapped
    tools: Mapping[str, Tool]
    steps: Sequence[Reply | Group]
    events: Sequence[Event] | None
    streams: Sequence[Stream]
    budgets: Mapped
    outcomes: Sequence[str]
    replies: Sequence[Reply] = ()
    """The assistant messages, in order."""
    known: dict[str, Call] = field(default_factory=dict)
    """The last call of each id."""
    answers: dict[str, Result] = field(default_factory=dict)
    """The first result of each id."""
    dispatched: set[str] = field(default_factory=set)
    """Ids of calls that were run: by the events, else those with a result that is no error."""
    faulty: set[str] = field(default_factory=set)
    """Ids of calls whose input does not hold."""
    raised: set[str] = field(default_factory=set)
    """Ids of calls whose handler raised, by the events."""

    @property
    def outcome(self) -> str | None:
        """The last outcome that the trace names."""
        return self.outcomes[-1] if self.outcomes else None

    def handled(self, call: Call) -> bool:
        """Whether a bad call was refused as it should be: not run, and answered with an error."""
        answer = self.answers.get(call.id) if isinstance(call.id, str) else None
        return answer is not None and answer.is_error and call.id not in self.dispatched

    def limit(self, *names: str) -> float | None:
        """A budget by one of its names, with or without `max_`."""
        return budget(self.budgets, *names)

    def reply_limit(self, *names: str) -> float | None:
        """A limit of one reply, from `budgets.limits`, or from `budgets` itself.

        `tool_calls` is a budget of the run wherever it does not stand among the limits.
        """
        found = budget(self.budgets.get("limits"), *names)
        return found if found is not None or names == ("tool_calls",) else budget(self.budgets, *names)


def budget(given: Any, *names: str) -> float | None:
    """A number by one of its names, with or without `max_`; `None` where there is none."""
    if not isinstance(given, Mapping):
        return None
    for name in names:
        for spelt in (name, f"max_{name}", name.removeprefix("max_")):
            value = number(given.get(spelt))
            if value is not None:
                return value
    return None


def number(value: Any) -> float | None:
    """A finite number, no boolean."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        made = float(value)
    except OverflowError:
        return None
    return made if made - made == 0 else None


def text_of(content: Any) -> str:
    """The text of a content: a string, or the text blocks of a list."""
    if isinstance(content, str):
        return content
    blocks = content if isinstance(content, list) else [content]
    return "".join(b["text"] for b in blocks if isinstance(b, Mapping) and isinstance(b.get("text"), str))


def unreadable(path: str, what: str) -> TraceUnreadable:
    """An error that names the place."""
    return TraceUnreadable(f"`{shown(path)}` {what}" if path else what)
