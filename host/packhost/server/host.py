"""What the server needs of the composition root."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from anyio.abc import TaskGroup

from packhost.gate.types import Asker, Caller, CallRequest, Listing, Outcome, Trace
from packhost.kinds.providing import Provision
from packhost.server.afar import Afar
from packhost.server.board import Board


@dataclass(frozen=True, slots=True)
class Consent:
    """What the workspace's file asks for beyond what was accepted."""

    digest: str
    """Names exactly this change: an acceptance of another one counts for nothing."""
    text: str
    """What would become possible, for the person who decides."""
    code: bool
    """Whether the change brings code; then only a person's own terminal may accept it."""
    command: str
    """The absolute command that accepts in a terminal."""
    operator: bool = False
    """Whether an operator's passphrase is needed, which no dialog can ask for."""

    @property
    def by_hand(self) -> bool:
        """Whether a dialog cannot accept it."""
        return self.code or self.operator


@dataclass(frozen=True, slots=True)
class HostStatus:
    """How the host stands, for `packhost_status`."""

    workspace: str
    accepted: str
    """What was accepted, in a sentence."""
    store: str
    pending_approvals: int
    problems: tuple[str, ...] = ()
    more: dict[str, Any] = field(default_factory=dict)


class Calls(Protocol):
    """The gate, as the server uses it."""

    async def call(self, request: CallRequest, asker: Asker | None) -> Outcome:
        """Admit, decide, ask, run and record one call."""

    def explain(self, request: CallRequest) -> Trace:
        """Every step of a call, nothing run."""

    def listed(self, caller: Caller) -> Listing:
        """The tools on offer, and the withheld ones."""


class ServerHost(Protocol):
    """The running host. Read-only members may change from call to call."""

    @property
    def version(self) -> str:
        """Packhost's own version."""

    @property
    def gate(self) -> Calls:
        """The only path to a call."""

    @property
    def provisions(self) -> Mapping[str, Provision]:
        """What packs have beside their tools, by pack."""

    def redact(self, text: str) -> str:
        """A text without the secrets that are known."""

    @property
    def principal(self) -> str:
        """Whom this host's clients act for: the name of the operating system's user."""

    @property
    def generation(self) -> int:
        """Changes whenever the tools on offer may have changed."""

    @property
    def state_keys(self) -> Sequence[bytes]:
        """Keys that seal request states, the newest first, 32 bytes or more; they outlive the process."""

    @property
    def hold(self) -> float:
        """Seconds that a call is held for a person where the client cannot ask."""

    @property
    def approval_timeout(self) -> float:
        """Seconds after which an unanswered approval expires."""

    @property
    def tasks(self) -> TaskGroup:
        """Runs what outlives a request."""

    @property
    def afar(self) -> Afar | None:
        """Calls that other hosts have in flight; `None` where there can be none."""

    @property
    def board(self) -> Board | None:
        """What is kept of tasks; `None` where clients get none."""

    @property
    def console(self) -> str | None:
        """The address of a console that shows this workspace; `None` while none runs."""

    def consent(self) -> Consent | None:
        """The change that waits to be accepted."""

    async def accept(self, digest: str, *, by: str, channel: str) -> None:
        """Accept that change; raises `PackhostError` when it is another one by now or brings code."""

    def status(self) -> HostStatus:
        """How the host stands."""

    def run_of(self, approval_id: str) -> str | None:
        """The run that an approval belongs to."""
