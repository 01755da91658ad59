"""What a handler is given, and what a shipped pack's handler may ask of the host.

A handler is `def handler(context, arguments)`, sync or async: it returns JSON data or raises
`ToolFailed`; its working directory is the workspace's root. Everything it may touch goes through
its `CallContext`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from packhost.kinds.assets import AssetService
from packhost.kinds.driving import (
    Connection,
    HttpReply,
    Manner,
    Message,
    OfferedTool,
    RunDriver,
    RunHandle,
    RunResult,
    RunStopped,
    ToolOutcome,
)
from packhost.kinds.eliciting import Elicitation, Elicited, LogLevel
from packhost.kinds.files import Files
from packhost.kinds.reply import FetchReply
from packhost.rules.autonomy import Level
from packhost.rules.scopes import Layer

__all__ = [
    "ApprovalService",
    "CallContext",
    "Connection",
    "Elicitation",
    "Elicited",
    "HostServices",
    "HttpReply",
    "LogLevel",
    "Manner",
    "Message",
    "OfferedTool",
    "RunDriver",
    "RunHandle",
    "RunResult",
    "RunService",
    "RunStatus",
    "RunStopped",
    "RunView",
    "SessionService",
    "SessionView",
    "ToolOutcome",
]

RunStatus = Literal["queued", "running", "paused", "interrupted", "completed", "failed", "aborted"]


Amend = Callable[[Mapping[str, Any], Mapping[str, Any]], Mapping[str, Any]]
"""From a run's request and state to the members of its state that change."""


@dataclass(frozen=True, slots=True)
class RunView:
    """A run as it is shown: times in seconds since the epoch."""

    id: str
    kind: str
    session_id: str
    status: RunStatus
    outcome: str | None
    waiting_on: str | None
    result: Mapping[str, Any] | None
    reason: str | None
    principal: str
    client: str
    created_at: float
    updated_at: float
    background: bool = False
    """Whether it was started to outlive the call that started it."""
    checkpoint: str | None = None
    """Names what it would go on from, while it is paused or interrupted."""
    awaits: tuple[Mapping[str, Any], ...] = ()
    """The calls that its caller is to make and that have no output yet: `tool_call_id`, `tool_name`,
    `parameters`, `origin`, `awaited_at`."""


@dataclass(frozen=True, slots=True)
class SessionView:
    """A session's autonomy; `expires_at` in seconds since the epoch, when the raise ends."""

    id: str
    level: Level
    expires_at: float | None


class RunService(Protocol):
    """Runs, for a handler: those of the caller's own principal."""

    async def start(
        self,
        driver: str,
        spec: Mapping[str, Any],
        *,
        context: CallContext,
        session_id: str | None,
        background: bool = False,
    ) -> str:
        """Write a new run down, start it in the host's task group, return its id.

        A session holds one run of turns at a time. One in the background outlives its caller.
        """

    async def wait(self, run_id: str, *, context: CallContext) -> RunView:
        """Wait until the run ends or pauses; cancelling the wait aborts a run that this call started.

        While it lasts, what the run must ask a person is put through this call's own channel.
        """

    async def get(self, run_id: str, *, context: CallContext) -> RunView:
        """A run of the caller's; `NotFound` for any other."""

    async def pause(self, run_id: str, reason: str, *, context: CallContext) -> RunView:
        """Ask a run to pause at its next safe point."""

    async def resume(
        self,
        run_id: str,
        *,
        context: CallContext,
        outputs: Mapping[str, Mapping[str, Any]] | None = None,
        checkpoint: str | None = None,
        amend: Amend | None = None,
    ) -> RunView:
        """Start a paused or interrupted run again, or take back a pause that it has not reached.

        `outputs` are what came of the calls that it waits for, `{result, is_error?}` by their ids; it goes
        on once each has one, and until then is still paused. `checkpoint` is the pause that the caller
        means. `amend` is given the run's request and state in the same transaction; what it returns becomes
        part of the state, and what it raises stops everything. One resumption wins. Raises `Conflict`:
        `CONTINUATION_IN_PROGRESS` while another goes on, `RESUME_STATE_CHANGED` when that pause is over;
        `NotFound` when nothing is left to resume; `InvalidInput` for outputs of calls that it does not wait
        for, after which nothing was taken.
        """

    async def abort(self, run_id: str, reason: str, *, context: CallContext) -> RunView:
        """End a run now."""


class SessionService(Protocol):
    """Autonomy of the caller's sessions."""

    async def raise_level(
        self,
        session_id: str | None,
        level: Level,
        reason: str,
        expires_in: float | None,
        *,
        context: CallContext,
    ) -> SessionView:
        """Give a session more autonomy, never past the workspace's maximum; `expires_in` seconds."""

    async def lower_level(
        self, session_id: str | None, level: Level, reason: str, *, context: CallContext
    ) -> SessionView:
        """Take autonomy back at once, also from the sessions opened from it."""


class ApprovalService(Protocol):
    """Approvals that the caller's own client or its runs wait for."""

    async def put_to_person(
        self, approval_id: str, decision: Literal["approve", "deny"], reason: str, *, context: CallContext
    ) -> Mapping[str, Any]:
        """Put a pending call into the caller's own dialog; never itself a decision."""


class HostServices(Protocol):
    """The host's services, for a shipped pack."""

    @property
    def runs(self) -> RunService:
        """Runs."""

    @property
    def sessions(self) -> SessionService:
        """Sessions."""

    @property
    def approvals(self) -> ApprovalService:
        """Approvals."""

    @property
    def assets(self) -> AssetService:
        """Binary results that are kept for a while."""

    def described(self, name: str) -> OfferedTool | None:
        """A tool that this host lists, by its wire or canonical name."""

    def section(self, pack: str) -> Mapping[str, Any]:
        """A pack's own section of `packhost.yaml`, as it was accepted."""

    def check_inline(self, definitions: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Definitions of tools for one run, checked and in the form that `RunHandle.define` takes.

        Raises `InvalidInput` for the first that could not run, with its place.
        """


class CallContext(Protocol):
    """What a handler is given: who calls, what it may use, and the way back through the gate."""

    @property
    def tool(self) -> str:
        """The canonical name of the tool that runs."""

    @property
    def call_id(self) -> str:
        """This call's identifier in the record."""

    @property
    def run_id(self) -> str:
        """The run that this call belongs to."""

    @property
    def session_id(self) -> str:
        """The session that the run belongs to."""

    @property
    def principal(self) -> str:
        """Whom the caller acts for."""

    @property
    def tenant(self) -> str | None:
        """Whom the call is made for, where the caller's token says so; else the workspace's own."""

    @property
    def client(self) -> str:
        """The calling client's name: a label, never an identity."""

    @property
    def config(self) -> Mapping[str, Any]:
        """The pack's own section of `packhost.yaml`, as it was accepted."""

    @property
    def files(self) -> Files:
        """The workspace's files within this call's scopes."""

    @property
    def layers(self) -> tuple[Layer, ...]:
        """The layers that every use of this call is held to."""

    @property
    def host(self) -> HostServices | None:
        """Services of the host; `None` for a handler of a pack that is not shipped."""

    @property
    def calling(self) -> object | None:
        """What the driver of the calling run tells a kind of its own pack; `None` for any other call."""

    @property
    def inputs(self) -> Mapping[str, Mapping[str, Any]]:
        """What the client answered to what the call wanted of it; see `packhost.kinds.inputs.obtain`."""

    def untimed(self) -> AbstractContextManager[None]:
        """Let this call's time stand still: what runs within has a limit of its own."""

    async def report_progress(
        self, progress: float, total: float | None = None, message: str | None = None
    ) -> None:
        """Tell the caller how far the call is."""

    async def log(self, level: LogLevel, data: Any, logger: str | None = None) -> None:
        """Tell the caller something that is worth a line: JSON data, and who says it."""

    async def elicit(self, wanted: Elicitation) -> Elicited:
        """Ask the person behind the caller, by whatever channel reaches one; the call's time stands still.

        `cancel` is also what comes of a question that nobody answered. Raises `PackhostError`
        (`LIMIT_EXCEEDED`) when the call asked too often without getting on.
        """

    async def call_tool(self, tool: str, arguments: Mapping[str, Any]) -> Any:
        """A nested governed call: its value; raises `PackhostError` when it was refused or failed."""

    async def fetch(
        self, url: str, *, method: str = "GET", headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> FetchReply:
        """An HTTP request made by the host within the `network` scopes, redirects followed within them.

        https, or plain http where a scope names host and port. `ScopeDenied` for any other host, and for
        addresses that are not public unless a scope names exactly that host and port.
        """

    def secret(self, name: str) -> str:
        """A secret's value; `ScopeDenied` unless the tool declares it and every layer covers it."""
