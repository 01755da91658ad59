"""The gate's values: who calls, what is asked of a person, and what came of a call."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from packhost.errors import Code, Place
from packhost.kinds.base import Tool
from packhost.kinds.content import Block
from packhost.kinds.eliciting import LogLevel
from packhost.rules.scopes import Layer
from packhost.sandbox.level import Enforcement

Progress = Callable[[float, float | None, str | None], Awaitable[None]]
"""Receives progress, total and message."""
Log = Callable[[LogLevel, Any, str | None], Awaitable[None]]
"""Receives level, data and who says it."""


Intent = Literal["mandatory", "best-effort"]
"""What must be on record before a call starts; what may not be repeated always must."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The requester of a call: a client or a run, never the person behind it."""

    principal: str
    client: str
    session_id: str
    run_id: str | None = None
    """Set for a nested call: the run that makes it."""
    narrowing: tuple[Layer, ...] = ()
    attended: bool = True
    """Whether a person may be asked through this caller's own channel."""
    epoch: int = 0
    """The fencing epoch of `run_id`."""
    variables: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """What the run was started with for hidden parameters; see `hidden`."""
    intent: Intent = field(default="best-effort", compare=False)
    """`mandatory`: no call starts before its intent is on record, not even one that only reads."""
    subagent: Mapping[str, str] | None = field(default=None, compare=False)
    """Of a subagent's run: `tool_name`, the tool that started it, and `agent_name`."""

    secrets: bool = field(default=True, compare=False)
    """Whether tools that a call brings for one run may be given secrets."""
    end_user: bool = field(default=False, compare=False)
    """Whether an end user, by a token of their own, asked for this or for the run that makes it."""
    tenant: str | None = field(default=None, compare=False)
    """Whom it is made for, where a token said so; else for whom the workspace stands."""

    @property
    def actor(self) -> str:
        """Who is said to have acted, in the record."""
        return f"{self.principal} via {self.client}"


@dataclass(frozen=True, slots=True)
class Given:
    """What a person gave for a call, to be used up with its intent; good for one version of its tool."""

    question_id: str
    binding: str
    version: str
    content: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class CallRequest:
    """One tool, one set of arguments."""

    tool: str
    arguments: Mapping[str, Any]
    caller: Caller
    progress: Progress | None = None
    tool_use_id: str | None = None
    fence: Callable[[], None] | None = None
    """Asked in the transaction of the intent; raises `StoreUnavailable` where the call may not start yet."""
    inline: Tool | None = None
    """A tool that was defined for the run that calls it; `tool` is then its name."""
    ask: str = ""
    """Why a person is asked even where nothing else says so."""
    consent: bool = False
    """Whether `ask` is for the consent of the end user for whom the run goes, if there is one."""
    calling: object | None = None
    """What the driver of the calling run tells a kind of its own pack."""
    top_level: bool = True
    """Whether it is a call of an agent that no other's run started: only such a one asks for input."""
    disclose: bool = False
    """Whether its arguments may be shown where it waits for a person's input."""
    inputs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """What the client answered to what the call wanted of it; see `kinds.inputs`."""
    reason: str = ""
    """Why the model says that it makes the call: nobody's word, shown to whoever is asked."""
    turn: int | None = None
    """The turn of the calling run, from 1; `None` outside of turns."""
    given: Given | None = None
    """What a person gave for it; set by the gate alone."""
    idem_key: str | None = None
    """Names this very call: made again under it, it gets its recorded outcome and does nothing twice."""
    log: Log | None = None
    """Takes what the tool tells the caller while it runs."""
    fresh: bool = False
    """Whether that key was made for this request just now, so that nothing is on record under it."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """What a person is shown: exactly what will run."""

    approval_id: str
    tool: str
    text: str
    """The whole question, ready to show: tool, arguments, reasons, preview; control characters visible."""
    expires_at: float
    nested: bool
    form: Mapping[str, Any] | None = None
    """The fields that a person is to fill in; `None` where they approve a call."""
    url: str | None = None
    """Where a person is sent instead of filling in a form."""
    operator: bool = False
    """Whether only an operator can answer, which no dialog can prove."""
    withheld: bool = False
    """Whether it is not put to whoever calls: an end user does not answer what is their owner's to answer."""
    owner: bool = False
    """Whether only whoever answers for the workspace may approve it, whoever asked for it first."""

    @property
    def waiting(self) -> str:
        """How a run says that it waits for this."""
        return f"{'approval' if self.form is None else 'question'}:{self.approval_id}"

    @property
    def wish(self) -> str:
        """What is waited for and how it can be given elsewhere, in a line."""
        if self.form is None:
            return (
                f"waits for a person to approve {self.tool}: {self.approval_id}, "
                f"`packhost approvals approve {self.approval_id}`"
            )
        return f"waits for a person's input to {self.tool}: `packhost questions answer {self.approval_id}`"


@dataclass(frozen=True, slots=True)
class Answer:
    """What a channel brought back.

    `unanswered`: nobody decided; `deferred`: the client will ask and make the same call again.
    """

    verdict: Literal["approve", "deny", "unanswered", "deferred"]
    by: str = ""
    channel: str = ""
    reason: str = ""
    content: Mapping[str, Any] | None = None
    """What was filled in, of a question with a form; a `deny` then says in `reason` `decline` or `cancel`."""


class Asker(Protocol):
    """A way to put a question to a person. Cancelled when the record is decided elsewhere first."""

    async def ask(self, prompt: Prompt) -> Answer:
        """Ask; returns when there is an answer, or nobody gave one."""


@dataclass(frozen=True, slots=True)
class Completed:
    """A call that ran; `value` is what the tool returned, secrets redacted, untrusted output wrapped.

    `text` is the value as compact JSON, made once, or the text of its blocks: what a client and a model read.
    """

    value: Any
    text: str
    call_id: str
    run_id: str
    enforcement: Enforcement
    blocks: tuple[Block, ...] = ()
    """Content blocks, of a tool that returned such; the value is then their text where they have no data."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A call that did not run, or failed, and why.

    `text` is a sentence that says what to do next; `rule` is the place of the rule that decided,
    `layer` the layer that does not cover the use, `nearest` the nearest call that would be allowed.
    """

    code: Code
    message: str
    hint: str = ""
    rule: Place | None = None
    layer: str | None = None
    patterns: tuple[str, ...] = ()
    nearest: Mapping[str, Any] | None = None
    approval_id: str | None = None
    call_id: str | None = None
    run_id: str | None = None
    enforcement: Enforcement | None = None
    data: Mapping[str, Any] = field(default_factory=dict)
    fault: bool = False
    """Whether the host itself failed, so that it is no word of the tool's."""

    @property
    def text(self) -> str:
        """The refusal as a person and an agent read it."""
        end = f" {self.hint[:1].upper()}{self.hint[1:]}." if self.hint else ""
        return f"{self.code}: {self.message}.{end}"

    def as_json(self) -> dict[str, Any]:
        """The refusal as a program reads it; absent members are left out."""
        members: dict[str, Any] = {
            "code": self.code,
            "message": self.message,
            "next": self.hint,
            "rule": str(self.rule) if self.rule else None,
            "layer": self.layer,
            "patterns": list(self.patterns),
            "nearest": dict(self.nearest) if self.nearest else None,
            "approval_id": self.approval_id,
            "call_id": self.call_id,
            "run_id": self.run_id,
            "enforcement": self.enforcement,
            **self.data,
        }
        return {key: value for key, value in members.items() if value not in (None, "", [])}


@dataclass(frozen=True, slots=True)
class Deferred:
    """The client itself will ask and make the same call again; the record stays pending."""

    prompt: Prompt


Outcome = Completed | Refusal | Deferred


@dataclass(frozen=True, slots=True)
class Withheld:
    """A tool that is not on offer, and the layer that took it away."""

    tool: str
    layer: str
    reason: str


@dataclass(frozen=True, slots=True)
class Listing:
    """The tools on offer to a caller, and those that are not."""

    tools: tuple[Tool, ...]
    withheld: tuple[Withheld, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """One of the gate's eight steps in a trace."""

    name: str
    passed: bool
    detail: str
    place: Place | None = None


@dataclass(frozen=True, slots=True)
class Trace:
    """What the gate would do with a call: every step up to the first that stops it, nothing run."""

    tool: str
    steps: tuple[Step, ...]
    verdict: Literal["allow", "ask", "refuse"]
    refusal: Refusal | None
    enforcement: Enforcement | None

    def as_json(self) -> dict[str, Any]:
        """The trace as a program reads it."""
        return {
            "tool": self.tool,
            "verdict": self.verdict,
            "steps": [
                {
                    "step": s.name,
                    "passed": s.passed,
                    "detail": s.detail,
                    "place": str(s.place) if s.place else None,
                }
                for s in self.steps
            ],
            "refusal": self.refusal.as_json() if self.refusal else None,
            "enforcement": self.enforcement,
        }
