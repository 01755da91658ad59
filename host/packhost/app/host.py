"""A running host: every room wired for one workspace."""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import pwd
import secrets
import shlex
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
from anyio.abc import TaskGroup

from packhost.app.configuring import configure
from packhost.clients.launch import installed_command
from packhost.control.base import Parts
from packhost.control.consent import status_json
from packhost.control.operations import LocalControl
from packhost.errors import PackhostError, StoreUnavailable
from packhost.executions.runs import Runs
from packhost.gate.configuration import Configuration
from packhost.gate.gate import Gate
from packhost.gate.operators import Operators
from packhost.kinds.base import Kind
from packhost.kinds.code import CodeKind
from packhost.kinds.context import ApprovalService, RunDriver, RunService, SessionService
from packhost.kinds.python import PythonKind
from packhost.kinds.record import TraceWriter
from packhost.names import new_id
from packhost.packs.discover import EntryPoints
from packhost.server.host import Consent, HostStatus
from packhost.store.base import Store
from packhost.store.opening import open_store
from packhost.store.ops import approvals, executions
from packhost.transports.holder import Peer, Wire
from packhost.workspace.operator import OperatorFile
from packhost.workspace.redaction import redacted_logging
from packhost.workspace.root import Root, find_root
from packhost.workspace.workspace import Workspace

if TYPE_CHECKING:
    from packhost.server.mcp import GovernedServer

log = logging.getLogger("packhost")
KEY_NAME = "host.key"
LOOK_EVERY = 1.0
"""Seconds between two looks at `packhost.yaml` while no call comes, so that clients hear of an edit."""


def user_name() -> str:
    """The operating system's user: whom stdio clients and the command line act for."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"uid-{os.getuid()}"


def workspace_root(start: Path | None) -> Root:
    """The workspace of a folder, by default the present one; see `find_root`."""
    return Root(find_root(start or Path.cwd()))


def _key(state: Path) -> bytes:
    """The host's own key, made at first use; it outlives the process so that questions do."""
    path = state / KEY_NAME
    with suppress(FileNotFoundError):
        key = path.read_bytes()
        if len(key) >= 32:
            return key
    key = secrets.token_bytes(32)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    with open(descriptor, "wb") as file:
        file.write(key)
        file.flush()
        os.fsync(descriptor)
    return key


class Services:
    """What shipped packs may ask of the host."""

    def __init__(self, runs: RunService, sessions: SessionService, approvals: ApprovalService) -> None:
        self.runs = runs
        self.sessions = sessions
        self.approvals = approvals


class Host:
    """A running host: everything wired, for the servers and for control. Made by `open_host`."""

    def __init__(self, root: Root, tasks: TaskGroup) -> None:
        self.root = root
        self.tasks = tasks
        self.version = version("packhost")
        self.principal = user_name()
        self._command = installed_command()
        self._installed = EntryPoints()
        self.workspace = Workspace(root, installed=self._installed)
        workspace = self.workspace
        self.store: Store = open_store(workspace.store, root.state, root.hash, workspace.secrets)
        key = _key(root.state)
        self.state_keys: Sequence[bytes] = (hmac.new(key, b"request state", hashlib.sha256).digest(),)
        self.cursor_key = hmac.new(key, b"api cursors", hashlib.sha256).digest()
        self._owner = new_id("host")
        self._python = PythonKind(root.path)
        self._kinds: tuple[Kind, ...] = (self._python, CodeKind())
        self._ready_for = -1
        self._drivers: dict[str, RunDriver] = {}
        self._writers: dict[str, TraceWriter] = {}
        self._configuration = self._configure()
        self.gate = Gate(
            store=self.store,
            key=key,
            root_descriptor=root.descriptor,
            owner=self._owner,
            configuration=self.configuration,
            services=lambda: self.services,
            operators=Operators(self.store, OperatorFile(root.state)),
        )
        self.runs = Runs(
            self.store,
            self.gate,
            owner=self._owner,
            drivers=self._drivers,
            tasks=tasks,
            configuration=self.configuration,
        )
        self.services = Services(self.runs, self.gate.sessions, self.gate.approvals)
        self.parts = Parts(
            self.workspace,
            self.store,
            self.gate,
            self.runs,
            self.configuration,
            self.changed,
            self.principal,
            self._writers,
        )
        self.control = LocalControl(self.parts)
        self._server: GovernedServer | None = None

    def _configure(self) -> Configuration:
        """One generation of the configuration, from the workspace as it stands."""
        configuration, provided = configure(self.workspace, self._installed, self._kinds)
        self._drivers.update(provided.run_drivers)
        self._writers.update(provided.trace_writers)
        return configuration

    def configuration(self) -> Configuration:
        """The generation that holds now; reads `packhost.yaml` again when it has changed."""
        if self.workspace.refresh():
            self._configuration = self._configure()
            self.tasks.start_soon(self._tell)
        return self._configuration

    async def changed(self) -> None:
        """Take over what was just accepted, and tell the clients."""
        self._configuration = self._configure()
        await self._tell()

    async def _tell(self) -> None:
        if self._server is not None:
            await self._server.tools_changed()

    async def start(self) -> None:
        """Take over after a former host: what it left running is interrupted and can be resumed."""
        await self.store.write(executions.interrupt_orphans, self._owner)
        self.tasks.start_soon(self._look)
        await self.runs.start_up()

    def _get_ready(self, configuration: Configuration) -> None:
        """Prove what can be enforced before somebody asks, once a client's first questions are answered."""
        catalog = configuration.catalog
        if catalog.generation != self._ready_for:
            self._ready_for = catalog.generation
            if any(not entry.tool.pack.shipped for entry in catalog.entries.values()):
                self._python.warm()

    async def _look(self) -> None:
        while True:
            await anyio.sleep(LOOK_EVERY)
            self._get_ready(self.configuration())
            now = self.store.now()
            if self.store.read(approvals.due, now):
                with suppress(StoreUnavailable):
                    await self.store.write(approvals.expire_due)
            with suppress(StoreUnavailable):
                await self.gate.sessions.fall_back()

    async def stop(self) -> None:
        """End what still runs, then commit what is queued."""
        with anyio.CancelScope(shield=True):
            await self.runs.shut_down()
            for kind in self._kinds:
                await kind.close()
            await self.store.close()

    # what the MCP server asks for

    @property
    def server(self) -> GovernedServer:
        """The MCP server of this host, for every transport; the SDK is imported when it is first needed."""
        if self._server is None:
            from packhost.server.mcp import build_server  # the command line has no use for the SDK

            self._server = build_server(self)
        return self._server

    async def serve_wire(self, wire: Wire) -> None:
        """Serve an MCP client that came by the socket."""
        from packhost.transports.lines import serve_lines  # as above

        await serve_lines(self.server, wire.source, wire.sink, wire.session)

    @property
    def generation(self) -> int:
        """Changes whenever the tools on offer may have changed."""
        return self.configuration().catalog.generation

    @property
    def hold(self) -> float:
        """Seconds that a call is held for a person where the client cannot ask."""
        return self.workspace.approvals.hold

    @property
    def approval_timeout(self) -> float:
        """Seconds after which an unanswered approval expires."""
        return self.workspace.approvals.timeout

    def consent(self) -> Consent | None:
        """The change that waits to be accepted; `None` when there is none."""
        changes = self.workspace.changes()
        if not changes:
            return None
        return Consent(
            digest=self.workspace.seen,
            text="\n".join(f"- {change.text}" for change in changes),
            code=any(change.code for change in changes),
            command=shlex.join([*self._command, "accept", "-w", str(self.root.path)]),
            operator=self.gate.operators.standing().state != "none",
        )

    async def accept(self, digest: str, *, by: str, channel: str) -> None:
        """Accept that very change from a dialog; refused when it brings code, or there is an operator."""
        if self.gate.operators.standing().state != "none":
            raise self.gate.operators.missing("accepting needs an operator", "packhost accept")
        self.workspace.accept(by=by, channel=channel, seen=digest, with_code=False)
        await self.changed()

    def status(self) -> HostStatus:
        """How the host stands."""
        shown = status_json(self.parts)
        consent = self.workspace.consent
        accepted = (
            f"accepted by {consent.by} through {consent.channel}"
            if consent is not None
            else "nothing was accepted yet: the defaults hold, narrowed by packhost.yaml where there is one"
        )
        return HostStatus(
            workspace=shown.pop("workspace"),
            accepted=accepted,
            store=shown.pop("store")["label"],
            pending_approvals=shown.pop("approvals_pending"),
            problems=tuple(shown.pop("problems")),
            more={
                key: shown[key]
                for key in ("autonomy", "enforcement", "broken", "withheld", "warnings")
                if shown[key]
            },
        )

    def run_of(self, approval_id: str) -> str | None:
        """The run that an approval belongs to."""
        try:
            return self.store.read(approvals.get, approval_id).run_id
        except PackhostError:
            return None

    async def operate(self, op: str, params: dict[str, Any], peer: Peer) -> dict[str, Any]:
        """One operation for a process of the same user, through the socket."""
        result: dict[str, Any] = await self.control.request(op, params)
        return result


@asynccontextmanager
async def open_host(root: Root) -> AsyncIterator[Host]:
    """A running host for a workspace whose lock the caller holds."""
    async with anyio.create_task_group() as tasks:
        host = Host(root, tasks)
        try:
            with redacted_logging(host.workspace.secrets.redactor):
                await host.start()
                yield host
        finally:
            await host.stop()
            tasks.cancel_scope.cancel()
