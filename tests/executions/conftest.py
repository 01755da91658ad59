"""A host on a real store: the real gate, the shipped agent-runtime pack, and the test's own tools."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import anyio.abc
import pytest

import packhost_packs.agent_runtime
from packhost.app.services import Services
from packhost.control.base import Parts
from packhost.control.evidence import evidence_of
from packhost.executions.membership import Membership, replica, uptime
from packhost.executions.runs import Runs
from packhost.gate import Answer, Caller, CallRequest, Gate, Outcome, Prompt
from packhost.gate.assets import Assets
from packhost.gate.catalog import build_catalog
from packhost.gate.configuration import Autonomy, Configuration, Limits, Terms
from packhost.hookspecs import build_plugins
from packhost.kinds.base import PackFacts, Tool
from packhost.kinds.code import CodeKind
from packhost.kinds.context import CallContext
from packhost.kinds.http import HttpKind
from packhost.kinds.python import PythonKind
from packhost.manifest.load import load_manifest
from packhost.manifest.model import ToolSpec
from packhost.names import ToolId
from packhost.packs.registry import Registry
from packhost.rules.policy import NamedApproval, Policy, Rule
from packhost.rules.scopes import Layer, parse_scope
from packhost.shipped import shipped_manifest
from packhost.store.base import Store
from packhost.store.ops import approvals, calls, events, executions
from packhost.store.rows import ApprovalRow, CallRow, ExecutionRow
from packhost.store.sqlite import SqliteStore

Handler = Callable[[CallContext, dict[str, Any]], Awaitable[Any]]
CONTROL = NamedApproval("agent-runtime:remote_control", "Remote control", grantable=False)


class LabKind:
    """Runs the handlers that a test gives it."""

    name = "lab"

    def __init__(self) -> None:
        self.handlers: dict[str, Handler] = {}

    def check(self, spec: ToolSpec, folder: object = None) -> list[str]:
        return []

    def enforcement(self, tool: Tool) -> Any:
        return "host"

    async def run(self, tool: Tool, arguments: dict[str, Any], context: CallContext) -> Any:
        return await self.handlers[tool.id.tool](context, arguments)

    async def preview(self, tool: Tool, arguments: dict[str, Any], context: CallContext) -> str:
        return ""

    async def close(self) -> None:
        """Nothing is left running."""


@dataclass
class Person:
    """A person at a client's dialog: gives one answer to every question."""

    verdict: Any = "approve"
    shown: list[Prompt] = field(default_factory=list)

    async def ask(self, prompt: Prompt) -> Answer:
        self.shown.append(prompt)
        return Answer(self.verdict, by="ann", channel="client")


class Hanging:
    """A tool that hangs until it is told to go on."""

    def __init__(self) -> None:
        self.started = anyio.Event()
        self.go_on = anyio.Event()
        self.times = 0

    async def __call__(self, context: CallContext, arguments: dict[str, Any]) -> Any:
        self.times += 1
        self.started.set()
        await self.go_on.wait()
        return {"done": arguments}


async def echo(context: CallContext, arguments: dict[str, Any]) -> Any:
    return {"echo": arguments}


class Clock:
    """The uptime of one host, which a test may let jump."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        return uptime() + self.ahead


class Lab:
    """One host process: gate, runs and what they share."""

    def __init__(
        self,
        store: Store,
        root: Path,
        descriptor: int,
        tasks: anyio.abc.TaskGroup,
        owner: str,
        shared: bool = False,
        lease: float = 0.3,
    ) -> None:
        self.store = store
        self.owner = owner
        self.tasks = tasks
        self.kind = LabKind()
        self.rules: list[Rule] = []
        self.section: dict[str, Any] = {}
        self.secrets: dict[str, str] = {}
        self.variables: dict[str, Any] = {}
        self.terms: dict[str, Any] = {}
        plugins = build_plugins([packhost_packs.agent_runtime])
        self.code = CodeKind()
        self.assets = Assets(store)
        provided = [kind for group in plugins.hook.packhost_kinds() for kind in group]
        own = [self.kind, PythonKind(root), self.code, HttpKind(), *provided]
        self._kinds = {kind.name: kind for kind in own}
        self._tools: dict[str, Tool] = {}
        self._configuration: Configuration | None = None
        manifest = load_manifest(shipped_manifest("agent-runtime"), shipped=True)
        for spec in manifest.tools:
            self._add("agent-runtime", spec)
        self.tool("look", permission="read")
        self.tool("note")
        self.clock = Clock()
        self.membership = Membership(
            store, replica(owner, key_sha="k"), shared=shared, lease=lease, clock=self.clock
        )
        self.gate = Gate(
            store=store,
            key=b"k" * 32,
            root_descriptor=descriptor,
            owner=owner,
            configuration=self.configuration,
            services=lambda: self.services,  # type: ignore[arg-type, return-value]
            check=self.membership.check,
        )
        self.drivers = {
            driver.name: driver for group in plugins.hook.packhost_run_drivers() for driver in group
        }
        self.runs = Runs(
            store,
            self.gate,
            owner=owner,
            drivers=self.drivers,
            tasks=tasks,
            configuration=self.configuration,
            membership=self.membership,
        )
        self.services = Services(
            self.runs, self.gate.sessions, self.gate.approvals, self.configuration, self.assets
        )

    def _add(self, pack: str, spec: ToolSpec, *, shipped: bool = True) -> None:
        self._tools[f"{pack}:{spec.name}"] = Tool(
            id=ToolId(pack, spec.name),
            spec=spec,
            pack=PackFacts(pack, "1", pack, "d", None, shipped, shipped, None),
            scopes=tuple(parse_scope(line) for line in spec.required_scopes),
            version="1-a",
        )
        self._configuration = None

    def tool(self, name: str, handler: Handler = echo, **spec: Any) -> None:
        """Offer `lab:NAME`; it writes and may not be repeated unless the test says otherwise."""
        spec.setdefault("permission", "write")
        spec.setdefault("input_schema", {"type": "object"})
        self._add("lab", ToolSpec(name=name, description=name, kind="lab", **spec))
        self.kind.handlers[name] = handler

    def pack_tool(self, name: str, kind: str, config: Any, properties: Any, **spec: Any) -> None:
        """Offer `mine:NAME` of a pack from elsewhere, checked as when its manifest loads."""
        schema = {"type": "object", "properties": properties, "additionalProperties": False}
        model = ToolSpec(
            name=name,
            description=name,
            kind=kind,
            permission=spec.pop("permission", "write"),
            input_schema=schema,
            config=config,
            **spec,
        )
        assert self._kinds[kind].check(model) == []
        self._add("mine", model, shipped=False)

    def retool(self, name: str, **changes: Any) -> None:
        """Change what a tool is."""
        self._tools[name] = replace(self._tools[name], **changes)
        self._configuration = None

    def rule(self, decide: Any, tool: str) -> None:
        """Add a policy rule."""
        self.rules.append(Rule(decide, "the test says so", False, None, tool=tool))
        self._configuration = None

    def script(self, *replies: Any, **profile: Any) -> None:
        """Set the default model up as a script."""
        self.section["default_model"] = "main"
        self.section["models"] = {"main": {"provider": "scripted", "script": list(replies), **profile}}

    def configuration(self) -> Configuration:
        if self._configuration is None:
            registry = Registry(tools=self._tools, approvals={CONTROL.name: CONTROL})
            lines = ("path read **", "path write **", "tool *")
            bounds = (Layer("workspace bound", tuple(map(parse_scope, lines))),)
            self._configuration = Configuration(
                catalog=build_catalog(registry, self._kinds, bounds, 1, self.variables, self.assets),
                policies=(Policy(tuple(self.rules)),),
                limits=Limits(1 << 20, 1 << 22),
                autonomy=Autonomy("guarded", "autonomous"),
                terms=Terms(**{"timeout": 600.0, "unattended": "hold", **self.terms}),
                require="partial",
                variables=self.variables,
                sections={"agent-runtime": self.section},
                resolve_secret=self.secrets.__getitem__,
                redact=self._redact,
            )
        return self._configuration

    def _redact(self, text: str) -> str:
        for value in filter(None, self.secrets.values()):
            text = text.replace(value, "[REDACTED]")
        return text

    async def call(
        self,
        tool: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        asker: Any = None,
        client: str = "editor",
        principal: str = "ann",
        progress: Any = None,
    ) -> Outcome:
        """One direct call of a client, in that client's own session."""
        session = await self.gate.sessions.enter(f"s-{client}", principal, client)
        name = tool if ":" in tool else f"agent-runtime:{tool}"
        caller = Caller(principal, client, session)
        return await self.gate.call(CallRequest(name, arguments or {}, caller, progress), asker)

    async def turn(
        self, *, asker: Any = None, client: str = "editor", progress: Any = None, **arguments: Any
    ) -> Outcome:
        """`execute-turn` with one message."""
        messages = [{"role": "user", "content": "begin"}]
        arguments = {"messages": messages, **arguments}
        return await self.call("execute-turn", arguments, asker=asker, client=client, progress=progress)

    async def background(self, **arguments: Any) -> str:
        """A run that goes on in the background; its id."""
        outcome: Any = await self.turn(background=True, loop=True, **arguments)
        return str(outcome.value["run_id"])

    def row(self, run_id: str) -> ExecutionRow:
        return self.store.read(executions.get, run_id)

    def run_ids(self) -> list[str]:
        """Runs of turns, oldest first."""
        return [row.id for row in reversed(self.store.read(executions.listing, 50, direct=False))]

    def calls(self, run_id: str) -> tuple[CallRow, ...]:
        return self.store.read(calls.of_execution, run_id)

    def pending(self) -> list[ApprovalRow]:
        return list(self.store.read(approvals.listing, "pending", 100))

    async def events(self, run_id: str) -> list[str]:
        await self.store.flush()
        return [record.type for record in self.store.read(events.page, 0, run_id, 1000)]

    async def until(self, run_id: str, *statuses: str) -> ExecutionRow:
        """Wait until a run has one of these statuses."""
        return await self.when(run_id, lambda row: row.status in statuses)

    async def when(self, run_id: str, holds: Callable[[ExecutionRow], bool]) -> ExecutionRow:
        """Wait until something holds of a run."""
        with anyio.fail_after(5), self.store.watch(f"run:{run_id}") as watch:
            while not holds(self.row(run_id)):
                await watch.changed()
        return self.row(run_id)


@dataclass
class Building:
    """The workspace in which one host follows another on the same store."""

    store: Store
    root: Path
    descriptor: int

    @asynccontextmanager
    async def host(self, owner: str, *, shared: bool = False, lease: float = 0.3) -> AsyncIterator[Lab]:
        """A host that is killed at the end of the block: nothing is tidied up.

        One that is `shared` stands beside others and takes up what they had to let go.
        """
        async with anyio.create_task_group() as tasks:
            lab = Lab(self.store, self.root, self.descriptor, tasks, owner, shared, lease)
            await lab.runs.start_up()
            tasks.start_soon(lab.runs.wake_due)
            if shared:
                tasks.start_soon(lab.runs.take_up)
            try:
                yield lab
            finally:
                tasks.cancel_scope.cancel()
        await lab.code.close()
        await self.store.flush()
        every_run_passes_the_validator(self.store)


@pytest.fixture
def building_type() -> type[Building]:
    """Makes a workspace without a host, for a test that has many."""
    return Building


def every_run_passes_the_validator(store: Store) -> None:
    """Whatever a test did with its runs: each is written as a trace in which nothing is broken."""
    (writers,) = build_plugins([packhost_packs.agent_runtime]).hook.packhost_trace_writers()
    nothing: Any = SimpleNamespace(catalog=SimpleNamespace(listed=lambda: []))
    parts = Parts(nothing, store, nothing, nothing, lambda: nothing, nothing, "ann", writers)
    for summary in store.read(executions.listing, 100, direct=False):
        found = evidence_of(parts, store.read(executions.get, summary.id)) or {"issues": []}
        assert [issue for issue in found["issues"] if issue["severity"] == "error"] == []


@pytest.fixture
async def building(tmp_path: Path) -> AsyncIterator[Building]:
    """A workspace without a host."""
    root = tmp_path / "work"
    (root / ".agent-runtime").mkdir(parents=True)
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    store = SqliteStore(tmp_path / "store.db", "w")
    try:
        yield Building(store, root, descriptor)
    finally:
        await store.close()
        os.close(descriptor)


@pytest.fixture
async def lab(building: Building) -> AsyncIterator[Lab]:
    """A running host."""
    async with building.host("host_a") as lab:
        yield lab
        await lab.runs.shut_down()


@pytest.fixture
def person() -> type[Person]:
    """Makes a person at a client's dialog."""
    return Person


@pytest.fixture
def hanging() -> type[Hanging]:
    """Makes a tool that hangs until it is told to go on."""
    return Hanging


@dataclass
class Received:
    """A request as the provider saw it."""

    path: str
    headers: dict[str, str]
    body: Any


class FakeProvider:
    """A provider on loopback: gives the replies it was told to, and keeps what it was asked."""

    def __init__(self) -> None:
        self.received: list[Received] = []
        self.replies: list[Callable[[BaseHTTPRequestHandler], None]] = []
        self.asked = threading.Event()
        self.gone = threading.Event()
        provider = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                headers = {name.lower(): value for name, value in self.headers.items()}
                provider.received.append(Received(self.path, headers, body))
                provider.asked.set()
                provider.replies.pop(0)(self)

            def log_message(self, format: str, *args: Any) -> None:
                """Nothing on stderr."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.base_url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def raw(self, body: bytes, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        """Reply with these bytes."""

        def send(request: BaseHTTPRequestHandler) -> None:
            request.send_response(status)
            for name, value in {"content-length": str(len(body)), **(headers or {})}.items():
                request.send_header(name, value)
            request.end_headers()
            request.wfile.write(body)

        self.replies.append(send)

    def message(self, content: Sequence[Any], stop_reason: str = "end_turn", **more: Any) -> None:
        """Reply with an assistant message."""
        reply = {"type": "message", "role": "assistant", "content": list(content), "stop_reason": stop_reason}
        self.raw(json.dumps({**reply, "usage": {"input_tokens": 5, "output_tokens": 2}, **more}).encode())

    def stall(self, *, after: bytes = b"") -> None:
        """Begin a reply that never ends; `gone` is set once the client has left."""

        def send(request: BaseHTTPRequestHandler) -> None:
            request.send_response(200)
            request.send_header("content-length", "1000000")
            request.end_headers()
            request.wfile.write(after)
            request.wfile.flush()
            request.rfile.read(1)
            self.gone.set()
            request.close_connection = True

        self.replies.append(send)

    def cut(self) -> None:
        """Break a reply off."""

        def send(request: BaseHTTPRequestHandler) -> None:
            request.send_response(200)
            request.send_header("content-length", "1000")
            request.end_headers()
            request.wfile.write(b'{"type": "message", "content": [{"type": "tool_use", "name": "lab_note"')
            request.close_connection = True

        self.replies.append(send)

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def provider() -> Iterator[FakeProvider]:
    """A provider on loopback."""
    fake = FakeProvider()
    yield fake
    fake.close()
