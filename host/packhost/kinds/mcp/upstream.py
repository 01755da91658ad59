"""One pack's server: started when it is first needed, looked after, and called.

A server that fails is started again by the next call, after a pause that doubles; while the pause lasts calls
are refused at once, so that nobody waits for what does not answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from packhost.characters import visible
from packhost.errors import PackhostError, ToolFailed
from packhost.kinds.base import PackFacts
from packhost.kinds.content import Content
from packhost.kinds.mcp.asking import elicited, refused, whose
from packhost.kinds.mcp.connecting import Connection, Means, connect
from packhost.kinds.mcp.definitions import Definitions
from packhost.kinds.mcp.news import News, Told
from packhost.kinds.mcp.peer import Gone, Peer, RpcError
from packhost.kinds.mcp.pipes import Words
from packhost.kinds.mcp.session import Era, NotSpoken, Session
from packhost.manifest.upstream import UpstreamSpec
from packhost.sandbox.probe import Proof
from packhost.workspace.observed import Observed

log = logging.getLogger(__name__)

FIRST_PAUSE: Final = 0.5
LONGEST_PAUSE: Final = 60.0
"""Seconds before a server that failed is started again: the first time, and at most."""
SHORT: Final = 1.0
"""Seconds of a pause that a call waits out rather than be refused."""
MOST_LINKS: Final = 1_000
FRESH: Final = 30.0
"""Seconds for which a list of resources is taken as it is."""
STEADY: Final = 60.0
"""Seconds after which a server that ends counts as one that ran well."""
PAUSED: Final = 20.0
"""Times as long as a look at its definitions took is the pause before another one."""
LEAST_PAUSE: Final = 0.1
ANSWERS: Final = 10.0
"""Seconds that a server has to answer a ping after a call was given up; else it is ended."""


class Upstream:
    """One pack's server."""

    def __init__(
        self, pack: PackFacts, spec: UpstreamSpec, means: Means, observed: Observed | None, told: Told
    ) -> None:
        self.pack = pack
        self.spec = spec
        self.words = Words()
        self.definitions = Definitions(pack, observed, pinned=spec.pinned, redact=means.redact)
        self._means = means
        self._told = told
        self.news = News(told)
        self._era: Era = spec.era
        self._connection: Connection | None = None
        self._starting: asyncio.Task[Connection] | None = None
        self._looking: asyncio.Task[None] | None = None
        self._look_next = 0.0
        self._doubt: asyncio.Task[None] | None = None
        self._idle: asyncio.TimerHandle | None = None
        self._room = asyncio.Semaphore(spec.concurrency)
        self._failures = 0
        self._next_try = 0.0
        self._why = ""
        self._since = 0.0
        self._closed = False
        self._named: Sequence[Mapping[str, Any]] = ()
        self._named_at = -math.inf
        self._naming: asyncio.Task[None] | None = None
        self.linked: OrderedDict[str, None] = OrderedDict()
        """Resources that results linked to, the latest of them."""

    @asynccontextmanager
    async def attended(self) -> AsyncIterator[None]:
        """While one call is made: room for it, and what is done about a server that it was given up with."""
        async with self._room:
            self._rest(False)
            try:
                yield
            except asyncio.CancelledError:
                self._suspect()
                raise
            finally:
                self._rest(True)

    def remember_links(self, content: Content) -> None:
        """Resources that a result links to may be read, though no list names them."""
        for block in content.blocks:
            if block["type"] == "resource_link":
                self.linked[block["uri"]] = None
                if len(self.linked) > MOST_LINKS:
                    self.linked.popitem(last=False)

    def went_well(self) -> None:
        """A call was answered."""
        self._failures = 0

    @property
    def proof(self) -> Callable[[], Proof | None]:
        """What the kernel can enforce."""
        return self._means.proof

    def named_resources(self) -> Sequence[Mapping[str, Any]]:
        """The resources that the server last named; if that was a while ago, it is asked again meanwhile."""
        loop = asyncio.get_running_loop()
        if self._naming is None and loop.time() - self._named_at > FRESH and not self._closed:
            self._naming = loop.create_task(self._name_resources())
        return self._named

    async def _name_resources(self) -> None:
        before = self._named
        try:
            async with asyncio.timeout(self.spec.start_timeout):
                session = await self.ready()
                self._named = await session.listed("resources/list", "resources")
        except (RpcError, Gone, TimeoutError, PackhostError) as error:
            log.info("the server of `%s` names no resources: %s", self.pack.id, visible(str(error))[:200])
        finally:
            self._naming = None
            self._named_at = asyncio.get_running_loop().time()
        if self._named != before:
            self.news.tell("resources")

    # what the server asks and tells

    async def answer(self, method: str, params: Mapping[str, Any], peer: Peer) -> Mapping[str, Any]:
        """Serve a request of the server's; see `Served`."""
        if method == "ping":
            return {}
        if method != "elicitation/create" or self.spec.elicitation == "deny":
            raise refused(method)
        flight = whose(peer)
        task = asyncio.current_task()
        if task is not None:
            flight.tasks.append(task)
        try:
            return await elicited(params, self.pack.id, flight.owner.context)
        except PackhostError as error:
            flight.fail(error)
            return {"action": "decline"}
        finally:
            if task in flight.tasks:
                flight.tasks.remove(task)

    def told(self, method: str, params: Mapping[str, Any], peer: Peer) -> None:
        """Take a notification; see `Served`."""
        match method:
            case "notifications/tools/list_changed":
                self._look_again()
            case "notifications/prompts/list_changed":
                self._look_again()
                self.news.tell("prompts")
            case "notifications/resources/list_changed":
                self._look_again()
                self._named_at = -math.inf
                self.news.tell("resources")
            case "notifications/resources/updated" if isinstance(params.get("uri"), str):
                self.news.tell("resource", params["uri"])
            case "notifications/message":
                with contextlib.suppress(RpcError):
                    owner = whose(peer).owner
                    owner.relay.log(params.get("level"), params.get("data"), params.get("logger"))

    # its life

    async def ready(self) -> Session:
        """The greeted server, started where it is not, with its definitions looked at.

        Raises `ToolFailed` when it cannot be had.
        """
        connection = self._connection
        if connection is None or connection.session.peer.lost is not None:
            if self._starting is None:
                self._starting = self._start_soon()
            connection = await asyncio.shield(self._starting)
        if self._looking is not None:
            await asyncio.shield(self._looking)
        return connection.session

    @property
    def state(self) -> dict[str, Any]:
        """How it stands, for people."""
        connection = self._connection
        running = connection is not None and connection.session.peer.lost is None
        found: dict[str, Any] = {
            "pack": self.pack.id,
            "state": "running" if running else "failing" if self._failures else "not started",
            "failures": self._failures,
            "why": self._means.redact(self._why),
        }
        if running and connection is not None:
            session = connection.session
            found |= {
                "protocol": session.version,
                "server": visible(self._means.redact(str(session.server.get("name", ""))))[:100],
                "calls": sum(flight.owner is not None for flight in session.peer.flights.values()),
            }
        return found

    async def close(self) -> None:
        """End it, for good."""
        self.let_go()
        await self._stop()

    def let_go(self) -> None:
        """The host stops: nothing is begun any more, and whatever runs gets no further input."""
        self._closed = True
        self.news.close()
        for task in (self._starting, self._looking, self._doubt, self._naming):
            if task is not None:
                task.cancel()
        if self._connection is not None:
            self._connection.let_go()

    async def _stop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def drop(self, session: Session) -> None:
        """End the server that this session is with, if it still is."""
        if self._connection is not None and self._connection.session is session:
            await self._stop()

    def _start_soon(self) -> asyncio.Task[Connection]:
        loop = asyncio.get_running_loop()
        pause = self._next_try - loop.time()
        if self._closed or pause > SHORT:
            raise self._broken(pause)
        task = loop.create_task(self._start(max(0.0, pause)))
        task.add_done_callback(self._started)
        return task

    def _started(self, task: asyncio.Task[Connection]) -> None:
        self._starting = None
        if not task.cancelled():
            task.exception()  # whoever waits for it has it too; where nobody does it is no news

    async def _start(self, pause: float) -> Connection:
        await asyncio.sleep(pause)
        await self._stop()
        try:
            async with asyncio.timeout(self.spec.start_timeout):
                connection = await self._connected()
                turned = await self.definitions.look(connection.session)
        except TimeoutError:
            await self._stop()
            raise self._failed(f"it did not answer within {self.spec.start_timeout:g} s") from None
        except Gone as gone:
            raise self._failed(gone.reason) from None
        except (RpcError, NotSpoken) as error:
            await self._stop()
            raise self._failed(visible(str(error))[:300]) from None
        if turned:
            self._told("tools", "")
        self.news.resume(connection.session)
        loop = asyncio.get_running_loop()
        self._since, self._next_try = loop.time(), 0.0
        return connection

    async def _connected(self) -> Connection:
        """The server, greeted in the era that it was last met in."""
        try:
            connection = await self._connect(self._era)
        except Gone:
            if self._era != "auto" or self.spec.url is not None:
                raise
            connection = await self._connect("legacy")  # some end at a first message that they do not know
        self._connection = connection
        if self.spec.era == "auto":
            self._era = "modern" if connection.session.modern else "legacy"
        return connection

    async def _connect(self, era: Era) -> Connection:
        return await connect(self.pack, self.spec, self._means, self, self.words, era)

    def lost(self, peer: Peer, reason: str) -> None:
        """The way to the server is gone, and packhost has not brought it about."""
        connection = self._connection
        if connection is None or connection.session.peer is not peer or self._closed:
            return
        loop = asyncio.get_running_loop()
        self._failures = 1 if loop.time() - self._since > STEADY else self._failures + 1
        self._why, self._next_try = reason, loop.time() + self._pause()
        self.words.note(reason)
        log.warning("the server of `%s` was lost: %s", self.pack.id, reason)

    def _failed(self, why: str) -> ToolFailed:
        self._failures += 1
        self._why = why
        self._next_try = asyncio.get_running_loop().time() + self._pause()
        if self.spec.era == "auto":
            self._era = "auto"
        self.words.note(f"it did not start: {why}")
        log.warning("the server of `%s` did not start: %s", self.pack.id, why)
        return ToolFailed(f"the server of `{self.pack.id}` did not start: {why}", hint=self.hint)

    def _broken(self, pause: float) -> ToolFailed:
        if self._closed:
            return ToolFailed(f"the server of `{self.pack.id}` was ended", hint="make the call again")
        seconds = math.ceil(pause)
        return ToolFailed(
            f"the server of `{self.pack.id}` fails ({self._failures} times in a row, last: {self._why}), "
            f"and is tried again in {seconds} s",
            hint=self.hint,
            retry_after=seconds,
        )

    def _pause(self) -> float:
        return float(min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** (self._failures - 1)))

    @property
    def hint(self) -> str:
        """Where to look."""
        return f"`packhost upstream logs {self.pack.id}` shows what it printed"

    def _look_again(self) -> None:
        """Hold what the server defines against what was accepted, before it is called again."""
        if self._looking is None and self._connection is not None and not self._closed:
            self._looking = asyncio.get_running_loop().create_task(self._look(self._connection.session))

    async def _look(self, session: Session) -> None:
        try:
            # no sooner than at once: several lists change together
            await asyncio.sleep(max(0.0, self._look_next - asyncio.get_running_loop().time()))
            async with asyncio.timeout(self.spec.start_timeout):
                turned = await self.definitions.look(session)
            pause = max(LEAST_PAUSE, PAUSED * self.definitions.cost)
            self._look_next = asyncio.get_running_loop().time() + pause
            if turned:
                self._told("tools", "")
        except (RpcError, Gone, TimeoutError, PackhostError):
            log.warning("the server of `%s` did not say what it defines", self.pack.id)
            self._looking = None
            await self.drop(session)  # what it defines now is not known: it starts anew
        finally:
            self._looking = None

    def _suspect(self) -> None:
        """A call was given up: a server that does not answer anything any more is ended."""
        connection = self._connection
        if connection is not None and self._doubt is None and not self._closed:
            self._doubt = asyncio.get_running_loop().create_task(self._check(connection.session))

    async def _check(self, session: Session) -> None:
        try:
            async with asyncio.timeout(ANSWERS):
                with contextlib.suppress(RpcError):
                    await session.ping()
        except TimeoutError:
            if not any(flight.owner is not None for flight in session.peer.flights.values()):
                self.words.note(
                    f"it answered nothing for {ANSWERS:g} s after a call was given up: it is ended"
                )
                self._doubt = None
                await self.drop(session)
        except Gone:
            pass
        finally:
            self._doubt = None

    def _rest(self, over: bool) -> None:
        """Have a server that nobody calls any more end after a while, where the manifest says so."""
        if self.spec.idle_timeout is None:
            return
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
        if over:
            loop = asyncio.get_running_loop()
            self._idle = loop.call_later(self.spec.idle_timeout, self._end_idle)

    def _end_idle(self) -> None:
        connection = self._connection
        if connection is not None and not any(f.owner for f in connection.session.peer.flights.values()):
            self._doubt = asyncio.get_running_loop().create_task(self._stop())
            self._doubt.add_done_callback(lambda _: setattr(self, "_doubt", None))
