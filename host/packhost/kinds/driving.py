"""What drives runs is given: a run, its tools and its provider, and how it says that the run stops.

Packs that bring a way to run agent turns contribute a `RunDriver` by the hook `packhost_run_drivers`; the
host owns the run's life and gives the driver a `RunHandle`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from packhost.errors import Code

Message = dict[str, Any]


@dataclass(frozen=True, slots=True)
class OfferedTool:
    """A tool as a model may be offered it; `name` is the wire name."""

    name: str
    canonical: str
    description: str
    input_schema: Mapping[str, Any]
    idempotent: bool = False
    read_only: bool = False
    """Whether it declares to change nothing: its permission is `read`."""
    kind: str = ""
    title: str = ""


@dataclass(frozen=True, slots=True)
class ToolOutcome:
    """What came of a nested call: a value, or a code and the text that says why."""

    ok: bool
    text: str
    """What a model reads: the result, or the refusal with what to do next."""
    value: Any = None
    code: Code | None = None
    call_id: str | None = None


@dataclass(frozen=True, slots=True)
class Manner:
    """How a driver makes a call, beside the call itself.

    `top_level`: it is a call of an agent that nobody else's run started; only such a one may ask a person for
    input. `disclose`: its arguments may be shown where it waits for that. `reason`: why the model says that
    it makes it, shown to whoever is asked as nobody's word. `turn`: in which of the run's turns, from 1.
    `consent`: where a person is asked for no other reason than the run's own `ask`, the end user for whom it
    goes may answer, of a top-level call.
    """

    top_level: bool = False
    disclose: bool = False
    reason: str = ""
    turn: int | None = None
    consent: bool = False


PLAIN = Manner()
"""Of a call that neither asks for input nor says why."""


class RunStopped(Exception):
    """Raised by `checkpoint` when the run is to pause or end; a driver lets it pass.

    A driver raises it itself, `waiting`, when nothing is left to do before `wake_at` (seconds since the
    epoch): the run lets go of everything, and the host starts it again then, also after a restart. It
    raises it as `client` when the run's caller is to make calls: its state, or that of branches, then says
    which; see `await_calls`.
    """

    def __init__(
        self,
        how: Literal["paused", "aborted", "waiting", "client"],
        reason: str = "",
        *,
        wake_at: float = 0.0,
    ) -> None:
        super().__init__(f"run {how}")
        self.how = how
        self.reason = reason
        self.wake_at = wake_at


class HttpReply(Protocol):
    """An HTTP reply whose body is read in pieces."""

    @property
    def status(self) -> int:
        """The status code."""

    @property
    def headers(self) -> Mapping[str, str]:
        """Header names in lower case."""

    def chunks(self) -> AsyncIterator[bytes]:
        """The body as it arrives, undecoded."""


class Connection(Protocol):
    """A host-owned connection to one base URL with one key; the pack never sees the key."""

    def post(
        self, path: str, body: bytes, headers: Mapping[str, str]
    ) -> AbstractAsyncContextManager[HttpReply]:
        """Send one request; no retries, no redirects; raises `PackhostError` when it cannot be sent.

        A `ToolFailed` is the network's, and its `data["sent"]` false when the provider got nothing.
        """


class RunHandle(Protocol):
    """A run as its driver sees it."""

    @property
    def run_id(self) -> str:
        """The run's identifier."""

    @property
    def session_id(self) -> str:
        """Its session's identifier."""

    @property
    def spec(self) -> Mapping[str, Any]:
        """The request that started the run; never changes."""

    @property
    def state(self) -> dict[str, Any]:
        """The driver's own JSON state; written down at each checkpoint, given back on a resume."""

    @property
    def config(self) -> Mapping[str, Any]:
        """The pack's section of `packhost.yaml`, as it was accepted."""

    @property
    def waited(self) -> float:
        """Seconds that people were waited for since the run was started or resumed."""

    @property
    def aborting(self) -> bool:
        """Whether the run was asked to end: what its driver then leaves behind is final."""

    def offered(self, patterns: Sequence[str] | None) -> tuple[OfferedTool, ...]:
        """The listed tools that match, by canonical or wire name; `None`: all but the driver's own pack's."""

    def connect(self, base_url: str, *, secret: str | None, header: str, scheme: str = "") -> Connection:
        """A connection whose `header` carries the secret, after `scheme` when one is given."""

    async def checkpoint(self, *, lazily: bool = False) -> None:
        """A safe point: writes `state` down, then raises `RunStopped` if the run is to pause or end.

        `lazily` the writing is not waited for; a call with effects starts only along with it.
        """

    async def sleep(self, seconds: float) -> None:
        """Wait at a safe point: raises `RunStopped` as soon as the run is to pause or end."""

    async def branch(self, name: str, spec: Mapping[str, Any]) -> RunHandle:
        """A part of this run with a conversation of its own, in the session `RUN.NAME`; the same each time.

        Its `spec` is the one given. Its `state` is the member `name` of this handle's
        `state["branches"]` and is written down with it. Its calls are recorded under `NAME/ID`, so that
        two branches may have the same ids. Pausing, ending and autonomy are the run's.
        """

    def define(self, definitions: Sequence[Mapping[str, Any]]) -> tuple[OfferedTool, ...]:
        """Tools for this run alone, as `HostServices.check_inline` returned them; those that may run here.

        A call of one by its name goes to it, also where another tool has that name.
        """

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any],
        *,
        tool_use_id: str,
        ask: str = "",
        calling: object | None = None,
        manner: Manner = PLAIN,
    ) -> ToolOutcome:
        """One governed call in this run; a refusal is an outcome, not an exception.

        With `ask`, a reason, a person is asked even where nothing else says so. `calling` is for kinds of
        the driver's own pack, as `CallContext.calling`.
        """

    async def recorded(self, tool_use_id: str) -> ToolOutcome | None:
        """What the record says of a call made before an interruption; `None`: it never started.

        `CANCELLED` is an idempotent call that was cut off, `EFFECTS_UNKNOWN` any other.
        """

    async def history(self) -> list[Message]:
        """The session's messages so far, in order."""

    async def append(self, messages: Sequence[Message]) -> None:
        """Add messages to the session's history for good and write `state` down, as one step."""

    async def emit(self, type: str, data: Mapping[str, Any]) -> None:
        """Record an event of this run."""

    async def report_progress(self, message: str) -> None:
        """Tell whoever waits for the run what goes on."""


@dataclass(frozen=True, slots=True)
class RunResult:
    """How a driver ended: `outcome` is a word of the driver's own, `result` what the caller gets."""

    outcome: str
    result: Mapping[str, Any]
    failed: bool = False


class RunDriver(Protocol):
    """What runs one kind of run; resumable from `spec` and `state` alone."""

    @property
    def name(self) -> str:
        """The word in a run's `kind`."""

    async def drive(self, run: RunHandle) -> RunResult:
        """Run to an end, or let `RunStopped` pass at a checkpoint."""
