"""What one MCP server does right, in both eras of the protocol: it is started, asked this and that, ended.

No tool of it is run unless a person names one. Each finding is a name, whether that is right (`ok`), worth
knowing (`note`) or wrong (`broken`), and a sentence.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

import anyio

from packhost.characters import visible
from packhost.clients.reading import Deaf, look, opened, told_why
from packhost.errors import PackhostError
from packhost.kinds.mcp.connecting import Connection
from packhost.kinds.mcp.peer import Gone, Peer, RpcError
from packhost.kinds.mcp.pins import Pins
from packhost.kinds.mcp.pipes import Words
from packhost.kinds.mcp.session import NotSpoken, Session
from packhost.kinds.mcp.specs import own_schema
from packhost.kinds.mcp.suspicion import suspicions
from packhost.manifest.schemas import input_fault, schema_fault
from packhost.manifest.upstream import UpstreamSpec
from packhost.names import WIRE_LIMIT

State = Literal["ok", "note", "broken"]
_FAILURES: Final = (RpcError, Gone, NotSpoken, TimeoutError, PackhostError, OSError, ValueError)
_PROMPT: Final = 5.0
"""Seconds in which a server answers what takes no work."""
_PLAIN_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")
_NAMED: Final = 5
_NOISE: Final = "[packhost] not a message: "
ERAS: Final[tuple[Literal["modern", "legacy"], ...]] = ("modern", "legacy")
LARGE: Final = 5_000_000
"""Bytes of an answer that a server is expected to be able to give."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    name: str
    state: State
    text: str


@dataclass(slots=True)
class Examination:
    """What is found, and what the server said of itself."""

    findings: list[Finding] = field(default_factory=list)
    pins: Pins | None = None

    def ok(self, name: str, text: str) -> None:
        """Something is right."""
        self.findings.append(Finding(name, "ok", text))

    def note(self, name: str, text: str) -> None:
        """Something is worth knowing."""
        self.findings.append(Finding(name, "note", text))

    def broken(self, name: str, text: str) -> None:
        """Something is wrong."""
        self.findings.append(Finding(name, "broken", text))


@dataclass(frozen=True, slots=True)
class Run:
    """A call that a person wants made: the server's own name of the tool, and its arguments."""

    tool: str
    arguments: Mapping[str, Any]


@dataclass(slots=True)
class Listening(Deaf):
    """Counts what a server tells unasked."""

    heard: list[str] = field(default_factory=list)

    def told(self, method: str, params: Mapping[str, Any], peer: Peer) -> None:
        """Remember that it was told."""
        self.heard.append(method)


class Examiner:
    """Looks at one server; `resolve` gives a secret's value."""

    def __init__(
        self, name: str, spec: UpstreamSpec, folder: Path, resolve: Callable[[str], str], patience: float
    ) -> None:
        self._name = name
        self._spec = spec
        self._folder = folder
        self._resolve = resolve
        self._patience = patience
        self._words = Words()
        self.found = Examination()

    async def examine(self, runs: list[Run]) -> Examination:
        """Everything, an era after the other."""
        if not [era for era in ERAS if await self._era(era)]:
            return self.found
        try:
            with anyio.fail_after(self._patience):
                async with self._opened("auto") as (connection, listening):
                    await self._says(connection.session)
                    await self._manners(connection.session, listening)
        except _FAILURES as error:
            self.found.broken("listing", told_why(error, self._words, self._patience))
        for run in runs:
            await self._called(run)
        self._noise()
        return self.found

    @asynccontextmanager
    async def _opened(
        self, era: Literal["auto", "modern", "legacy"]
    ) -> AsyncIterator[tuple[Connection, Listening]]:
        listening = Listening()
        async with opened(
            self._spec, self._folder, self._resolve, self._words, era=era, served=listening, name=self._name
        ) as connection:
            yield connection, listening

    async def _era(self, era: Literal["modern", "legacy"]) -> bool:
        name = "stateless era" if era == "modern" else "session era"
        started = time.monotonic()
        try:
            with anyio.fail_after(self._patience):
                async with self._opened(era) as (connection, _):
                    session = connection.session
                    called = " ".join(str(session.server.get(part, "")) for part in ("name", "version"))
                    seconds = time.monotonic() - started
                    said = f"{session.version}, answered in {seconds:.1f} s"
                    self.found.ok(name, f"{said}, calls itself `{visible(called.strip())[:80]}`")
        except NotSpoken as error:
            self.found.note(name, str(error))
            return False
        except _FAILURES as error:
            (self.found.note if era == "modern" else self.found.broken)(
                name, told_why(error, self._words, self._patience)
            )
            return False
        return True

    # --- what it says of itself --------------------------------------------------------------------

    async def _says(self, session: Session) -> None:
        started = time.monotonic()
        pins = await look(session)
        self.found.pins = pins
        tools = {key.partition(":")[2]: one for key, one in pins.items() if key.startswith("tool:")}
        seconds = time.monotonic() - started
        self.found.ok("tools/list", f"{len(tools)} tools in {seconds:.1f} s")
        self._names(list(tools))
        self._schemas(tools)
        doubts = suspicions(pins)
        for doubt in doubts[:_NAMED]:
            of = visible(doubt.key.partition(":")[2])
            self.found.note(f"text ({doubt.what})", f"`{of}`: {visible(doubt.text)}")
        if len(doubts) > _NAMED:
            self.found.note("text", f"and {len(doubts) - _NAMED} more places that a person should look at")
        if not doubts:
            self.found.ok("text", "nothing hidden, nothing that speaks to the model")

    def _names(self, names: list[str]) -> None:
        odd = [name for name in names if not _PLAIN_NAME.match(name)]
        if odd:
            shown = ", ".join(f"`{visible(name)[:80]}`" for name in odd[:_NAMED])
            limit = f"letters, digits, `_` and `-`, {WIRE_LIMIT} at most"
            self.found.note("names", f"{len(odd)} that not every client takes ({limit}): {shown}")
        else:
            self.found.ok("names", "all of them any client takes")

    def _schemas(self, tools: Mapping[str, Mapping[str, Any]]) -> None:
        faults: list[str] = []
        away: list[str] = []
        references = structured = 0
        for name, tool in tools.items():
            for member in ("inputSchema", "outputSchema"):
                schema = tool.get(member)
                if not isinstance(schema, Mapping):
                    continue
                structured += member == "outputSchema"
                targets = list(_references(schema))
                references += bool(targets)
                away += [name] if any(not target.startswith("#") for target in targets) else []
                fault = schema_fault(own_schema(schema))
                faults += [f"`{visible(name)}`: {fault}"] if fault else []
        if faults:
            self.found.broken("schemas", f"{len(faults)} are not sound: {'; '.join(faults[:_NAMED])}")
        else:
            self.found.ok("schemas", f"all sound, {structured} of results, {references} with `$ref`")
        if away:
            shown = ", ".join(f"`{visible(name)}`" for name in away[:_NAMED])
            self.found.broken("schemas", f"`$ref` to somewhere else, which nobody follows: {shown}")

    # --- how it behaves ----------------------------------------------------------------------------

    async def _manners(self, session: Session, listening: Listening) -> None:
        changes = session.capabilities.get("tools")
        declared = isinstance(changes, Mapping) and changes.get("listChanged") is True
        said = "says that it tells of changed tools" if declared else "does not tell of changed tools"
        (self.found.ok if declared else self.found.note)("list_changed", said)
        await self._expect(
            session, "unknown method", "packhost/no-such-method", {}, "refuses what it does not know"
        )
        params = {"name": "packhost_no_such_tool", "arguments": {}}
        await self._expect(
            session, "unknown tool", "tools/call", params, "refuses a tool that it does not have"
        )
        await self._gives_up(session)

    async def _expect(
        self, session: Session, name: str, method: str, params: Mapping[str, Any], right: str
    ) -> None:
        try:
            with anyio.fail_after(_PROMPT):
                result = await session.request(method, params)
        except RpcError:
            self.found.ok(name, right)
        except TimeoutError:
            self.found.broken(name, f"no answer within {_PROMPT:g} s")
        else:
            good = result.get("isError") is True
            (self.found.ok if good else self.found.broken)(
                name, right if good else "answers as if it were there"
            )

    async def _gives_up(self, session: Session) -> None:
        """A listing that is cancelled at once: the server has to go on answering."""
        task = asyncio.create_task(session.request("tools/list"))
        await asyncio.sleep(0)
        task.cancel()
        try:
            with anyio.fail_after(_PROMPT):
                await session.ping()
        except (RpcError, Gone, TimeoutError) as error:
            self.found.broken("cancellation", f"after one it answers no more: {type(error).__name__.lower()}")
        else:
            self.found.ok("cancellation", "goes on after a request that was given up")

    # --- calls that a person wants -----------------------------------------------------------------

    async def _called(self, run: Run) -> None:
        name = f"call `{visible(run.tool)}`"
        try:
            async with self._opened("auto") as (connection, _):
                await self._one_call(name, run, connection.session)
        except _FAILURES as error:
            self.found.broken(name, told_why(error, self._words, self._patience))

    async def _one_call(self, name: str, run: Run, session: Session) -> None:
        progress: list[float] = []
        params = {"name": run.tool, "arguments": dict(run.arguments)}
        started = time.monotonic()
        call = asyncio.create_task(
            session.request("tools/call", params, advance=lambda done, total, message: progress.append(done))
        )
        try:
            await self._beside(name, session, call)
            done, _ = await asyncio.wait({call}, timeout=self._patience)
            if not done:
                await self._stopped(name, session, call)
                return
            result = call.result()
        finally:
            call.cancel()
        size = len(json.dumps(result, ensure_ascii=False).encode("utf-8", "surrogatepass"))
        seconds = time.monotonic() - started
        said = "fails" if result.get("isError") is True else "answers"
        self.found.ok(
            name, f"{said} after {seconds:.1f} s with {size} bytes, {len(progress)} reports of progress"
        )
        if size >= LARGE:
            self.found.ok(name, "a large result came whole")
        if progress != sorted(progress):
            self.found.broken(name, "its progress goes back")
        self._structured(name, run, result)

    async def _beside(self, name: str, session: Session, call: asyncio.Task[Any]) -> None:
        """While a call goes on, others have to be answered."""
        try:
            with anyio.fail_after(_PROMPT):
                await session.ping()
        except TimeoutError:
            self.found.broken(name, f"answers nothing else within {_PROMPT:g} s while it runs")
        else:
            if not call.done():
                self.found.ok(name, "answers others while it runs")

    async def _stopped(self, name: str, session: Session, call: asyncio.Task[Any]) -> None:
        call.cancel()
        try:
            with anyio.fail_after(_PROMPT):
                await session.ping()
        except (RpcError, Gone, TimeoutError):
            self.found.broken(name, f"not done after {self._patience:g} s, and deaf once it was given up")
        else:
            self.found.note(name, f"not done after {self._patience:g} s; goes on once it was given up")

    def _structured(self, name: str, run: Run, result: Mapping[str, Any]) -> None:
        tool = (self.found.pins or {}).get(f"tool:{run.tool}", {})
        schema = tool.get("outputSchema")
        if not isinstance(schema, Mapping) or result.get("isError") is True:
            return
        given = result.get("structuredContent")
        if given is None:
            self.found.broken(name, "has a schema of its result and gives no structured content")
            return
        fault = input_fault(own_schema(schema), given)
        if fault:
            self.found.broken(name, f"its structured content is not what its schema says: {fault}")
        else:
            self.found.ok(name, "its structured content is as its schema says")

    def _noise(self) -> None:
        lines = self._words.text().split("\n")
        noise = [line.removeprefix(_NOISE) for line in lines if line.startswith(_NOISE)]
        if noise:
            shown = visible(noise[0])[:80]
            self.found.broken("stdout", f"{len(noise)} lines that are no protocol, such as `{shown}`")
        elif self._spec.url is None:
            self.found.ok("stdout", "nothing but the protocol")


def _references(value: Any, deep: int = 0) -> list[str]:
    if deep > 60:
        return []
    if isinstance(value, Mapping):
        own = [value["$ref"]] if isinstance(value.get("$ref"), str) else []
        return own + [found for inner in value.values() for found in _references(inner, deep + 1)]
    if isinstance(value, list):
        return [found for inner in value for found in _references(inner, deep + 1)]
    return []
