"""What a handler in the host's process is given: `CallContext`, made by the gate for one call."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio

from packhost.errors import PackhostError, ScopeDenied
from packhost.gate.types import (
    Asker,
    Caller,
    CallRequest,
    Completed,
    Deferred,
    Log,
    Outcome,
    Progress,
    Refusal,
)
from packhost.kinds.base import Tool
from packhost.kinds.context import HostServices
from packhost.kinds.eliciting import Elicitation, Elicited, LogLevel
from packhost.kinds.fetch import FetchRequest, fetch
from packhost.kinds.reply import FetchReply
from packhost.rules.scopes import Layer, secret_use, tool_use
from packhost.sandbox.paths import FileBroker
from packhost.workspace.redaction import StreamRedactor, redact_json

Eliciting = Callable[["GateContext", Elicitation], Awaitable[Elicited]]
NestedCall = Callable[[CallRequest, Asker | None, "GateContext"], Awaitable[Outcome]]


@dataclass(slots=True)
class Deadline:
    """A call's time limit, which stands still while a person is asked."""

    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    _asking: int = 0
    _left: float = 0.0

    def start(self, seconds: float) -> None:
        """Let the time run; `seconds` from now."""
        self.scope.deadline = anyio.current_time() + seconds

    def hold(self) -> None:
        """Stop the clock: somebody is being asked."""
        self._asking += 1
        if self._asking == 1:
            self._left = self.scope.deadline - anyio.current_time()
            self.scope.deadline = float("inf")

    def release(self) -> None:
        """Let the clock go on with the time that was left."""
        self._asking -= 1
        if self._asking == 0:
            self.scope.deadline = anyio.current_time() + self._left


@dataclass(slots=True)
class GateContext:
    """One call's `CallContext`, with what the host needs to carry the call's questions further."""

    subject: Tool
    call_id: str
    run_id: str
    caller: Caller
    asker: Asker | None
    progress: Progress | None
    files: FileBroker
    layers: tuple[Layer, ...]
    config: Mapping[str, Any]
    host: HostServices | None
    nested: NestedCall
    resolve_secret: Callable[[str], str]
    redact: Callable[[str], str]
    redacting: Callable[[], StreamRedactor]
    direct: bool
    """Whether the call has its run to itself; the run then ends with it."""
    deadline: Deadline = field(default_factory=Deadline)
    calling: object | None = None
    """What the driver of the calling run tells a kind of its own pack."""
    eliciting: Eliciting | None = None
    parent: GateContext | None = None
    """The call from within which this one is made."""
    tool_use_id: str | None = None
    logged: Log | None = None
    inputs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    pauses: int = 0
    """How often a person was asked since this call last got on."""
    asked: int = 0
    """How often a person was asked at all."""

    @contextmanager
    def untimed(self) -> Iterator[None]:
        """Let this call's time stand still: what runs within has a limit of its own."""
        self.deadline.hold()
        try:
            yield
        finally:
            self.deadline.release()

    @property
    def tool(self) -> str:
        """The canonical name of the tool that runs."""
        return self.subject.id.canonical

    @property
    def session_id(self) -> str:
        """The session that the run belongs to."""
        return self.caller.session_id

    @property
    def principal(self) -> str:
        """Whom the caller acts for."""
        return self.caller.principal

    @property
    def tenant(self) -> str | None:
        """Whom the call is made for, where the caller's token says so."""
        return self.caller.tenant

    @property
    def client(self) -> str:
        """The calling client's name: a label, never an identity."""
        return self.caller.client

    async def report_progress(
        self, progress: float, total: float | None = None, message: str | None = None
    ) -> None:
        """Tell the caller how far the call is."""
        self.pauses = 0
        if self.progress is not None:
            await self.progress(progress, total, self.redact(message) if message else message)

    async def log(self, level: LogLevel, data: Any, logger: str | None = None) -> None:
        """Tell the caller something that is worth a line, without secrets."""
        if self.logged is not None:
            await self.logged(level, redact_json(data, self.redact), logger and self.redact(logger))

    async def elicit(self, wanted: Elicitation) -> Elicited:
        """Ask the person behind the caller; the time of this call and of those around it stands still.

        :raises PackhostError: `LIMIT_EXCEEDED` when it was asked too often without getting on.
        """
        if self.eliciting is None:
            return Elicited("cancel")
        with ExitStack() as held:
            around: GateContext | None = self
            while around is not None:
                held.enter_context(around.untimed())
                around = around.parent
            return await self.eliciting(self, wanted)

    async def call_tool(self, tool: str, arguments: Mapping[str, Any]) -> Any:
        """A nested governed call: its value.

        :raises ScopeDenied: when this tool declares no `tool` scope that covers the other.
        :raises PackhostError: with the refusal's code, when the other was refused or failed.
        """
        request = CallRequest(tool, arguments, self.caller, self.progress, log=self.logged)
        outcome = await self.nested(request, self.asker, self)
        if isinstance(outcome, Completed):
            return outcome.value
        if isinstance(outcome, Deferred):
            raise PackhostError(
                f"`{tool}` waits for a person", code="APPROVAL_REQUIRED", hint="call again once it is decided"
            )
        raise refused(outcome)

    async def fetch(
        self, url: str, *, method: str = "GET", headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> FetchReply:
        """An HTTP request within the layers' `network` scopes; see `packhost.kinds.fetch.fetch`."""
        return await fetch(FetchRequest(url, method, headers or {}, body), self.layers)

    def secret(self, name: str) -> str:
        """A secret's value.

        :raises ScopeDenied: unless the tool declares `secret NAME` and every layer covers it.
        """
        uncovered = secret_use(name, self.layers)
        if uncovered is not None:
            raise ScopeDenied(
                f"the {uncovered.layer} does not cover `{uncovered.needed}`",
                hint="declare the secret in the manifest and in the workspace's bound",
                layer=uncovered.layer,
                patterns=uncovered.patterns,
            )
        return self.resolve_secret(name)


def refused(refusal: Refusal) -> PackhostError:
    """A nested refusal as the exception that a handler sees."""
    return PackhostError(refusal.message, code=refusal.code, hint=refusal.hint, refusal=refusal.as_json())


def may_call(context: GateContext | None, canonical: str) -> Refusal | None:
    """Hold a nested call to the calling tool's `tool` scopes in every layer; `None`: no tool calls."""
    uncovered = tool_use(canonical, context.layers) if context is not None else None
    if context is None or uncovered is None:
        return None
    return Refusal(
        "SCOPE_DENIED",
        f"the {uncovered.layer} of `{context.tool}` does not cover `{uncovered.needed}`",
        f"declare `tool {canonical}` among its scopes",
        rule=uncovered.place,
        layer=uncovered.layer,
        patterns=uncovered.patterns,
    )
