"""A run as its driver sees it: its state, its session's history, and the way through the gate."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import anyio

from packhost.errors import ConfigInvalid
from packhost.executions import ops
from packhost.executions.active import Active, RunAsker, Waits
from packhost.executions.connections import HostConnection, named_together
from packhost.executions.offers import matches, offer, remembered, rendered
from packhost.executions.request import Request, redacted
from packhost.executions.saving import Saving
from packhost.gate import Caller, CallRequest, Gate
from packhost.gate.configuration import Configuration
from packhost.gate.display import as_text
from packhost.gate.inline import tool_of as inline_tool
from packhost.kinds.base import Tool
from packhost.kinds.context import Connection, Manner, Message, OfferedTool, RunStopped, ToolOutcome
from packhost.kinds.driving import PLAIN
from packhost.store.base import Store
from packhost.store.ops import calls, sessions
from packhost.store.rows import ExecutionRow
from packhost.workspace.redaction import redact_json_text


class Handle:
    """Implements `RunHandle` for one run in one epoch."""

    def __init__(
        self,
        row: ExecutionRow,
        request: Request,
        active: Active,
        *,
        store: Store,
        gate: Gate,
        owner: str,
        configuration: Callable[[], Configuration],
    ) -> None:
        self._row = row
        self._request = request
        self._active = active
        self._store = store
        self._gate = gate
        self._owner = owner
        self._configuration = configuration
        self._waits = Waits()
        self._inline: dict[str, Tool] = {}
        self._saved = row.state_json
        self._saving: Saving | None = None
        self._state: dict[str, Any] = json.loads(row.state_json) if row.state_json else {}

    @property
    def run_id(self) -> str:
        """The run's identifier."""
        return self._row.id

    @property
    def session_id(self) -> str:
        """Its session's identifier."""
        return self._row.session_id

    @property
    def spec(self) -> Mapping[str, Any]:
        """The request that started the run."""
        return self._request.spec

    @property
    def state(self) -> dict[str, Any]:
        """The driver's own state."""
        return self._state

    @property
    def state_json(self) -> str:
        """The state as it would be written down now."""
        return self._written(self._state)

    def _written(self, value: Any) -> str:
        """As it may lie on disk: what holds a secret is no longer what it was."""
        return redact_json_text(as_text(value), self._configuration().redact)

    @property
    def config(self) -> Mapping[str, Any]:
        """The accepted section of the driver's pack."""
        return self._configuration().sections.get(self._pack, {})

    @property
    def waited(self) -> float:
        """Seconds that people were waited for since the run was started or resumed."""
        return self._waits.seconds

    @property
    def aborting(self) -> bool:
        """Whether the run was asked to end."""
        return self._active.aborting

    @property
    def _pack(self) -> str:
        return self._row.kind.partition(":")[0]

    @property
    def _variables(self) -> Mapping[str, Any]:
        found = self._request.spec.get("variables")
        return found if isinstance(found, Mapping) else {}

    def offered(self, patterns: Sequence[str] | None) -> tuple[OfferedTool, ...]:
        """The listed tools that match, by canonical or wire name; `None`: all but the driver's own pack's."""
        listed = self._gate.listed(self._caller()).tools
        if patterns is None:
            return tuple(offer(tool, self._variables) for tool in listed if tool.id.pack != self._pack)
        return tuple(offer(tool, self._variables) for tool in listed if matches(tool, patterns))

    def connect(self, base_url: str, *, secret: str | None, header: str, scheme: str = "") -> Connection:
        """A connection to a base URL with the key that the accepted configuration names beside it.

        Raises `ConfigInvalid` when no profile names the two together, or the URL is not plain HTTP(S).
        """
        if not named_together(self.config, base_url, secret):
            raise ConfigInvalid(
                f"no model profile names `{base_url}` together with that key",
                hint="a provider is reached only by the `base_url` and `api_key` of one accepted profile",
            )
        resolve = self._configuration().resolve_secret
        key = None if secret is None else (lambda: resolve(secret))
        return HostConnection(base_url, key, header, scheme, check=self._active.check)

    async def checkpoint(self, *, lazily: bool = False) -> None:
        """Write the state down if it changed; raises `RunStopped` when the run is to pause or end.

        `lazily` it is not waited for; a call with effects then starts in one step with it, or not at all.
        """
        text, epoch = self.state_json, self._active.epoch
        if text == self._saved or lazily:
            pause, abort = self._store.read(ops.wishes, self.run_id)
            if text != self._saved:
                self._saving = Saving(self.run_id, self._owner, epoch, text)
                waiting = self._store.post(self._saving.write)
                if waiting is not None:
                    await waiting
        else:
            before = self._saving
            pause, abort = await self._store.write(ops.save, self.run_id, self._owner, epoch, text)
            self._overtakes(before)
        self._saved = text
        if abort or self._active.aborting:
            self._active.aborting = True
            raise RunStopped("aborted")
        if pause or self._active.leaving:
            raise RunStopped("paused")

    async def sleep(self, seconds: float) -> None:
        """Wait at a safe point; raises `RunStopped` as soon as the run is to pause or end."""
        with anyio.move_on_after(seconds), self._store.watch(f"run:{self.run_id}") as watch:
            while True:
                await self.checkpoint()
                await watch.changed()

    async def branch(self, name: str, spec: Mapping[str, Any]) -> Branch:
        """A part of this run with a conversation of its own; see `RunHandle.branch`.

        Raises `InvalidInput` when `name` cannot be part of a session's name.
        """
        row = self._row
        session = f"{self.run_id}.{name}"
        await self._gate.sessions.enter(session, row.principal, row.client, self.session_id)
        return Branch(self, name, session, spec)

    def define(self, definitions: Sequence[Mapping[str, Any]]) -> tuple[OfferedTool, ...]:
        """Tools for this run alone; see `RunHandle.define`."""
        found, self._inline = self.defined(definitions)
        return found

    def defined(
        self, definitions: Sequence[Mapping[str, Any]]
    ) -> tuple[tuple[OfferedTool, ...], dict[str, Tool]]:
        """Those of the tools that may run here, as they are offered, and each by its name."""
        catalog, request = self._configuration().catalog, self._request
        tools = {tool.spec.name: tool for tool in map(inline_tool, definitions)}
        on_offer = [tool for tool in tools.values() if catalog.allows_inline(tool, request.narrowing)]
        offered = [replace(offer(tool, self._variables), name=tool.spec.name) for tool in on_offer]
        return tuple(offered), tools

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
        """One governed call in this run; a refusal is an outcome, not an exception."""
        inline = self._inline.get(name)
        waits = self._waits
        return await self.call_waiting(name, arguments, tool_use_id, waits, inline, ask, calling, manner)

    async def call_waiting(
        self,
        name: str,
        arguments: Mapping[str, Any],
        tool_use_id: str,
        waits: Waits,
        inline: Tool | None = None,
        ask: str = "",
        calling: object | None = None,
        manner: Manner = PLAIN,
    ) -> ToolOutcome:
        """`call_tool`, with the time in which a person is asked counted by `waits`."""
        asker = RunAsker(self._active, waits, self._store, self._owner)
        fence = None if self._saving is None else self._saving.check
        request = CallRequest(
            name if inline is None else inline.id.canonical,
            arguments,
            self._caller(),
            self._active.tell_of_call,
            tool_use_id,
            fence,
            inline=inline,
            ask=ask,
            calling=calling,
            top_level=manner.top_level,
            disclose=manner.disclose,
            reason=manner.reason,
            turn=manner.turn,
            consent=manner.consent,
        )
        self._active.calling += 1
        try:
            outcome = await self._gate.call(request, asker)
        except BaseException:
            asker.forget()
            raise
        finally:
            self._active.calling -= 1
        await asker.close()
        return rendered(outcome)

    async def recorded(self, tool_use_id: str) -> ToolOutcome | None:
        """What the record says of a call made before an interruption; `None`: it never started."""
        await self._store.flush()
        for row in reversed(self._store.read(calls.of_execution, self.run_id)):
            if row.tool_use_id == tool_use_id:
                return remembered(row)
        return None

    async def history(self) -> list[Message]:
        """The session's messages so far, in order."""
        return await self.history_of(self.session_id)

    async def append(self, messages: Sequence[Message]) -> None:
        """Add messages to the session's history for good and write the state down, as one step."""
        await self.append_to(self.session_id, messages)

    async def append_to(self, session_id: str, messages: Sequence[Message]) -> None:
        """`append`, to the history of a branch's session."""
        text = self.state_json
        added = [self._written(message) for message in messages]
        epoch, before = self._active.epoch, self._saving
        await self._store.write(ops.append, self.run_id, self._owner, epoch, text, session_id, added)
        self._overtakes(before)
        self._saved = text

    def _overtakes(self, before: Saving | None) -> None:
        """A newer state is written: what became of the one before it no longer matters."""
        if self._saving is before:
            self._saving = None

    async def history_of(self, session_id: str) -> list[Message]:
        """The messages of a branch's session."""
        return [row.message for row in self._store.read(sessions.history, session_id)]

    async def emit(self, type: str, data: Mapping[str, Any]) -> None:
        """Record an event of this run, best effort."""
        clean = redacted(data, self._configuration().redact)
        waiting = self._store.post(
            lambda tx: tx.emit(type, clean, execution_id=self.run_id, actor=self._owner)
        )
        if waiting is not None:
            await waiting

    async def report_progress(self, message: str) -> None:
        """Tell whoever waits for the run what goes on."""
        await self._active.tell(self._configuration().redact(message))

    def _caller(self) -> Caller:
        row, active = self._row, self._active
        return Caller(
            row.principal,
            row.client,
            row.session_id,
            row.id,
            self._request.narrowing,
            attended=active.attended and active.asker is not None,
            epoch=active.epoch,
            variables=self._variables,
            intent="mandatory" if self._request.spec.get("intent") == "mandatory" else "best-effort",
            subagent=self._request.spec.get("subagent"),
            secrets=self._request.secrets,
            end_user=self._request.end_user,
            tenant=self._request.tenant,
        )


class Branch:
    """Implements `RunHandle` for one part of a run; everything but conversation and state is the run's."""

    def __init__(self, whole: Handle, name: str, session_id: str, spec: Mapping[str, Any]) -> None:
        self._whole = whole
        self._name = name
        self._waits = Waits()
        self._inline: dict[str, Tool] = {}
        self.session_id = session_id
        self.run_id = whole.run_id
        self.spec = spec
        self.state: dict[str, Any] = whole.state.setdefault("branches", {}).setdefault(name, {})

    @property
    def config(self) -> Mapping[str, Any]:
        """The accepted section of the driver's pack."""
        return self._whole.config

    @property
    def waited(self) -> float:
        """Seconds that this part waited for people."""
        return self._waits.seconds

    @property
    def aborting(self) -> bool:
        """Whether the run was asked to end."""
        return self._whole.aborting

    def offered(self, patterns: Sequence[str] | None) -> tuple[OfferedTool, ...]:
        """The tools on offer to the run."""
        return self._whole.offered(patterns)

    def connect(self, base_url: str, *, secret: str | None, header: str, scheme: str = "") -> Connection:
        """A connection of the run."""
        return self._whole.connect(base_url, secret=secret, header=header, scheme=scheme)

    async def checkpoint(self, *, lazily: bool = False) -> None:
        """The run's safe point."""
        await self._whole.checkpoint(lazily=lazily)

    async def sleep(self, seconds: float) -> None:
        """Wait at the run's safe point."""
        await self._whole.sleep(seconds)

    async def branch(self, name: str, spec: Mapping[str, Any]) -> Branch:
        """A branch has none of its own; raises `ConfigInvalid`."""
        raise ConfigInvalid(f"the branch `{self._name}` has no branch `{name}`", hint="branch off the run")

    def define(self, definitions: Sequence[Mapping[str, Any]]) -> tuple[OfferedTool, ...]:
        """Tools for this branch alone."""
        found, self._inline = self._whole.defined(definitions)
        return found

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
        """One governed call in the run, recorded under `BRANCH/ID`."""
        inline, identity = self._inline.get(name), f"{self._name}/{tool_use_id}"
        below = replace(manner, top_level=False)  # a branch is part of a plan, and no agent of its own
        return await self._whole.call_waiting(
            name, arguments, identity, self._waits, inline, ask, calling, below
        )

    async def recorded(self, tool_use_id: str) -> ToolOutcome | None:
        """What the record says of a call of this branch."""
        return await self._whole.recorded(f"{self._name}/{tool_use_id}")

    async def history(self) -> list[Message]:
        """The branch's own conversation."""
        return await self._whole.history_of(self.session_id)

    async def append(self, messages: Sequence[Message]) -> None:
        """Add to the branch's conversation and write the run's state down, as one step."""
        await self._whole.append_to(self.session_id, messages)

    async def emit(self, type: str, data: Mapping[str, Any]) -> None:
        """An event of the run that names the branch."""
        await self._whole.emit(type, {"branch": self._name, **data})

    async def report_progress(self, message: str) -> None:
        """Tell whoever waits, naming the branch."""
        await self._whole.report_progress(f"{self._name}: {message}")
