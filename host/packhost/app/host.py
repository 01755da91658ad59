"""A running host: every room wired for one workspace."""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import pwd
import shlex
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
from anyio.abc import TaskGroup

from packhost.app.configuring import configure
from packhost.app.services import Services
from packhost.app.sharing import host_key, membership_of
from packhost.app.watching import watching
from packhost.clients.launch import installed_command
from packhost.control.base import Parts
from packhost.control.consent import status_json
from packhost.control.operations import LocalControl
from packhost.control.retention import keep_retention
from packhost.errors import PackhostError, StoreUnavailable
from packhost.executions.runs import Runs
from packhost.gate.assets import Assets
from packhost.gate.configuration import Configuration
from packhost.gate.hidden import TENANT
from packhost.gate.operators import Operators
from packhost.gate.questions import PREFIX
from packhost.kinds.base import Kind
from packhost.kinds.code import CodeKind
from packhost.kinds.context import RunDriver
from packhost.kinds.http import HttpKind
from packhost.kinds.identity import Identity
from packhost.kinds.mcp.kind import McpKind
from packhost.kinds.providing import Changed, Provision
from packhost.kinds.python import PythonKind
from packhost.kinds.record import TraceWriter
from packhost.names import new_id
from packhost.packs.discover import EntryPoints
from packhost.server.afar import Afar
from packhost.server.board import Board
from packhost.server.host import Consent, HostStatus
from packhost.store.base import Store
from packhost.store.opening import open_store
from packhost.store.ops import approvals, questions
from packhost.transports.holder import Peer, Wire
from packhost.workspace.operator import OperatorFile
from packhost.workspace.redaction import redacted_logging
from packhost.workspace.root import Root, find_root
from packhost.workspace.workspace import Workspace

if TYPE_CHECKING:
    from packhost.server.mcp import GovernedServer

log = logging.getLogger("packhost")
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


class Host:
    """A running host: everything wired, for the servers and for control. Made by `open_host`."""

    def __init__(
        self, root: Root, tasks: TaskGroup, lease: float | None = None, *, serving: bool = False
    ) -> None:
        self.root = root
        self.tasks = tasks
        self.version = version("packhost")
        self.principal = user_name()
        self._command = installed_command()
        self._installed = EntryPoints()
        self.workspace = Workspace(root, installed=self._installed)
        workspace = self.workspace
        self.store: Store = open_store(workspace.store, root.state, root.hash, workspace.secrets)
        key = host_key(root.state, os.environ)
        self.state_keys: Sequence[bytes] = (hmac.new(key, b"request state", hashlib.sha256).digest(),)
        self.cursor_key = hmac.new(key, b"api cursors", hashlib.sha256).digest()
        self._owner = new_id("host")
        self.membership = membership_of(
            self._owner, self.store, workspace, key, self.version, lease, serving=serving
        )
        self._python = PythonKind(root.path)
        self.identity = Identity(key, f"urn:packhost:{self.store.workspace}")
        http = HttpKind(tenant=self._tenant, identity=self.identity)
        self.upstreams = McpKind(
            root.path,
            root.state,
            resolve=workspace.secrets.resolve,
            redact=workspace.secrets.redact,
            proof=lambda: self._python.proof,
            changed=self._tell_soon,
        )
        self._kinds: tuple[Kind, ...] = (self._python, CodeKind(), http, self.upstreams)
        self._ready_for = -1
        self._drivers: dict[str, RunDriver] = {}
        self._writers: dict[str, TraceWriter] = {}
        self.assets = Assets(self.store)
        self._configuration = self._configure()
        self._watching = watching(workspace, self.store, self._owner, self.version, serving=serving)
        self.gate = self._watching.gate(
            store=self.store,
            key=key,
            root_descriptor=root.descriptor,
            owner=self._owner,
            configuration=self.configuration,
            services=lambda: self.services,
            operators=Operators(self.store, OperatorFile(root.state)),
            check=self.membership.check,
        )
        self.runs = Runs(
            self.store,
            self.gate,
            owner=self._owner,
            drivers=self._drivers,
            tasks=tasks,
            configuration=self.configuration,
            membership=self.membership,
        )
        self.afar = Afar(self.store, self.gate.decide, self.gate.questions.answer)
        self.board = Board(self.store, self._owner, self.gate.decide, self.gate.questions.answer)
        self.services: Services = Services(
            self.runs, self.gate.sessions, self.gate.approvals, self.configuration, self.assets
        )
        self.parts = Parts(
            self.workspace,
            self.store,
            self.gate,
            self.runs,
            self.configuration,
            self.changed,
            self.principal,
            self._writers,
            upstreams=self.upstreams,
        )
        self.control = LocalControl(self.parts)
        self._server: GovernedServer | None = None

    def _tenant(self) -> str:
        """Whom this workspace stands for."""
        return str(self._configuration.variables[TENANT]["id"])

    def _configure(self) -> Configuration:
        """One generation of the configuration, from the workspace as it stands."""
        configuration, provided = configure(
            self.workspace,
            self._installed,
            self._kinds,
            tenant=self.store.workspace,
            assets=self.assets,
            announce=self._announce,
        )
        self.upstreams.keep(configuration.upstreams)
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
        await self.membership.tell()
        await self._tell()

    def _announce(self, change: Changed) -> None:
        """A pack says that what it has beside its tools has changed."""
        if self._server is not None:
            self.tasks.start_soon(self._server.announced, change)

    def _tell_soon(self) -> None:
        self.tasks.start_soon(self._tell)

    async def _tell(self) -> None:
        if self._server is not None:
            await self._server.tools_changed()

    async def start(self) -> None:
        """Take over after a former host: what it left running is interrupted and can be resumed."""
        await self.runs.start_up()
        self.tasks.start_soon(self._look)
        self.tasks.start_soon(self._follow_sessions)

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
            with suppress(StoreUnavailable):  # the store may be away for a while: the host outlives that
                if self.store.read(approvals.due, self.store.now()):
                    await self.store.write(approvals.expire_due)
                if self.store.read(questions.due, self.store.now()):
                    await self.store.write(questions.expire_due)
                await self.gate.sessions.fall_back()

    async def _follow_sessions(self) -> None:
        """Another host may have changed a session's autonomy: what is known here of sessions is dropped."""
        if self.membership.shared:
            with self.store.watch("sessions") as watch:
                while True:
                    await watch.changed()
                    self.gate.sessions.forget()

    def go_on(self) -> None:
        """For a host that serves: start what is due, and take up what another had to let go."""
        self.tasks.start_soon(self.runs.wake_due)
        self.tasks.start_soon(self.runs.take_up)
        self.tasks.start_soon(keep_retention, self.parts)
        self._watching.begin(self.tasks)
        self._watching.begin_telling(self.tasks, lambda: self.console)

    async def drain(self, within: float) -> None:
        """Take no further call, let those under way end and runs go, `within` seconds."""
        if self._server is not None:
            self._server.admission.close()
        with anyio.move_on_after(within):
            async with anyio.create_task_group() as group:
                group.start_soon(self.runs.hand_over, within)
                if self._server is not None:
                    await self._server.admission.empty()

    async def stop(self) -> None:
        """End what still runs, hand it over, then commit what is queued."""
        with anyio.CancelScope(shield=True):
            await self.runs.shut_down()
            with suppress(StoreUnavailable):
                await self.membership.leave()
            for kind in self._kinds:
                await kind.close()
            await self._watching.end()
            await self.store.close()

    # what the MCP server asks for

    @property
    def server(self) -> GovernedServer:
        """The MCP server of this host, for every transport; the SDK is imported when it is first needed."""
        if self._server is None:
            from packhost.server.mcp import build_server  # the command line has no use for the SDK

            self._server = build_server(self)
            if self._watching.telemetry is not None:
                self._server.trace()
        return self._server

    async def serve_wire(self, wire: Wire) -> None:
        """Serve an MCP client that came by the socket."""
        from packhost.transports.lines import serve_lines  # as above

        await serve_lines(self.server, wire.source, wire.sink, wire.session)

    @property
    def generation(self) -> int:
        """Changes whenever the tools on offer may have changed."""
        return self.configuration().catalog.generation + self.upstreams.revision

    @property
    def provisions(self) -> Mapping[str, Provision]:
        """What packs have beside their tools, by pack."""
        return self.configuration().provisions

    def redact(self, text: str) -> str:
        """A text without the secrets that are known."""
        return self.workspace.secrets.redact(text)

    @property
    def hold(self) -> float:
        """Seconds that a call is held for a person where the client cannot ask."""
        return self.workspace.approvals.hold

    @property
    def approval_timeout(self) -> float:
        """Seconds after which an unanswered approval expires."""
        return self.workspace.approvals.timeout

    @property
    def console(self) -> str | None:
        """The address of a console that shows this workspace; `None` while none runs."""
        return self.parts.consoles.url

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
        """The run that an approval or another question belongs to."""
        try:
            if approval_id.startswith(f"{PREFIX}_"):
                return self.store.read(questions.get, approval_id).run_id
            return self.store.read(approvals.get, approval_id).run_id
        except PackhostError:
            return None

    async def operate(self, op: str, params: dict[str, Any], peer: Peer) -> dict[str, Any]:
        """One operation for a process of the same user, through the socket."""
        result: dict[str, Any] = await self.control.request(op, params)
        return result


@asynccontextmanager
async def open_host(root: Root, lease: float | None = None, *, serving: bool = False) -> AsyncIterator[Host]:
    """A running host for a workspace whose lock the caller holds, or whose store several may share.

    `lease` in seconds is for how long it may be out of touch before others take over what it runs. One that
    is `serving` tells whoever looks after it what goes on.
    """
    async with anyio.create_task_group() as tasks:
        host = Host(root, tasks, lease, serving=serving)
        try:
            with redacted_logging(host.workspace.secrets.redactor):
                await host.start()
                yield host
        finally:
            await host.stop()
            tasks.cancel_scope.cancel()
