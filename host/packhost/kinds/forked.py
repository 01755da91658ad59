"""Runs calls of packs from elsewhere in processes that the kernel confines.

Each call gets a fresh fork of the zygote, which gives up everything before any code of the pack runs. A pack
that the workspace lists as trusted keeps its process between calls, one for each set of scopes: its state
then leaks from call to call, its reach does not grow. However a call ends, its process and all that it
started are gone before the outcome is told.
"""

from __future__ import annotations

import array
import asyncio
import os
import socket
from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio

from packhost.errors import PackhostError, ToolFailed
from packhost.kinds.base import Tool
from packhost.kinds.confined import CONFINED
from packhost.kinds.context import CallContext
from packhost.kinds.conversation import AUTHOR, Conversation, OutputLog, ended_by, request_of
from packhost.kinds.forking import Fork, Gone, Zygote
from packhost.kinds.setup import setup_of
from packhost.kinds.uses import BrokenFrame
from packhost.kinds.worker import folder_of
from packhost.rules.scopes import ExecScope
from packhost.sandbox.direct import DirectFiles
from packhost.sandbox.supervise import Supervisor

_PARTS = 8
"""Parts of a process's output that are read before others have their turn."""
_OWN_END = 1.0
"""Seconds in which a process that closed its connection may end by itself and say how."""
MAX_IDLE = 8
"""Processes of trusted packs that are kept for their next call."""


@dataclass(frozen=True, slots=True)
class _Returned:
    value: Any


@dataclass(frozen=True, slots=True)
class _Died:
    """The process went without an answer."""

    by_itself: bool


_Outcome = _Returned | PackhostError | _Died


class _Process:
    """A forked process on its way through its calls."""

    def __init__(self, fork: Fork) -> None:
        self.fork = fork
        self.confined = False
        """Whether a handler may have started: nothing of the pack runs before."""
        self.supervisor: Supervisor | None = None
        self._listener = -1

    def supervised_by(self, supervisor: Supervisor, listener: int) -> None:
        """Take over the descriptor on which the process's file calls arrive."""
        self.supervisor, self._listener = supervisor, listener

    @contextmanager
    def attended(self, tool: Tool, context: CallContext) -> Iterator[None]:
        """While a call lasts: its file calls are answered and what it prints is logged."""
        loop, output = asyncio.get_running_loop(), OutputLog(tool, context)
        loop.add_reader(self.fork.output, self._log, output, loop)
        try:
            yield
        finally:
            loop.remove_reader(self.fork.output)
            self._log(output, None)
            output.end()
            if self._listener >= 0:
                loop.remove_reader(self._listener)

    def answer_files(self) -> None:
        """Begin to answer file calls; until then they wait."""
        if self._listener >= 0:
            loop = asyncio.get_running_loop()
            loop.add_reader(self._listener, self._answer, loop)

    def _answer(self, loop: asyncio.AbstractEventLoop) -> None:
        if self.supervisor is None or not self.supervisor.serve():
            loop.remove_reader(self._listener)

    def _log(self, output: OutputLog, loop: asyncio.AbstractEventLoop | None) -> None:
        """Log what is there, a bounded part at a time; at the end nothing more is waited for."""
        with suppress(BlockingIOError):
            for _ in range(_PARTS):
                part = os.read(self.fork.output, 1 << 16)
                if not part:
                    break
                output.feed(part)
            else:
                return
            if loop is not None:
                loop.remove_reader(self.fork.output)

    def close(self) -> None:
        """Close what the host holds of it."""
        self.fork.close()
        if self._listener >= 0:
            os.close(self._listener)
            self._listener = -1


class ForkedCalls:
    """Runs calls by forks of `zygote`; `root` is the workspace, `descriptor` the same, opened once."""

    def __init__(self, zygote: Zygote, root: Path, descriptor: int) -> None:
        self._zygote = zygote
        self._root = Path(os.path.realpath(root))
        self._descriptor = descriptor
        self._idle: dict[Hashable, list[_Process]] = {}
        self._killed: set[_Process] = set()

    async def run(self, tool: Tool, arguments: Mapping[str, Any], context: CallContext) -> Any:
        """The handler's JSON value.

        :raises PackhostError: the handler's own refusal, `TOOL_FAILED`, `OUTPUT_INVALID`,
            `OUTPUT_TOO_LARGE`; `ENFORCEMENT_UNAVAILABLE` when it could not be confined, and nothing ran;
            `EFFECTS_UNKNOWN` when nobody can say what became of a call with effects.
        """
        key = (tool.pack.digest, tool.scopes, context.layers) if tool.pack.trusted else None
        process = self._kept(key) or self._fork(tool)
        outcome = await self._lived(process, key, tool, arguments, context)
        if isinstance(outcome, _Died) and not process.confined:
            # The zygote went before anything of the pack ran: another one can do it.
            process = self._fork(tool)
            outcome = await self._lived(process, key, tool, arguments, context)
        if isinstance(outcome, _Died):
            raise _died(tool, process, outcome) if process.confined else _unconfined(tool, "it ended early")
        if isinstance(outcome, PackhostError):
            raise outcome
        return outcome.value

    async def close(self) -> None:
        """End the processes that are kept, and the zygote."""
        loop = asyncio.get_running_loop()
        for process in self._killed:
            loop.remove_reader(process.fork.status)
        rest = [*self._killed, *(process for kept in self._idle.values() for process in kept)]
        self._idle.clear()
        self._killed.clear()
        for process in rest:
            await process.fork.end()
            process.close()
        self._zygote.close()

    def _kept(self, key: Hashable) -> _Process | None:
        """A process that waits for its next call."""
        kept = self._idle.get(key, [])
        while kept:
            process = kept.pop()
            if process.fork.runs():
                process.fork.hold(False)
                return process
            self._close_when_gone(process)
        return None

    def _keep(self, key: Hashable, process: _Process) -> bool:
        if sum(map(len, self._idle.values())) >= MAX_IDLE:
            return False
        if not process.fork.runs():
            return False
        process.fork.hold(True)
        self._idle.setdefault(key, []).append(process)
        return True

    def _close_when_gone(self, process: _Process) -> None:
        loop = asyncio.get_running_loop()

        def look() -> None:
            if not process.fork.alive():
                loop.remove_reader(process.fork.status)
                self._killed.discard(process)
                process.close()

        self._killed.add(process)
        loop.add_reader(process.fork.status, look)

    def _fork(self, tool: Tool) -> _Process:
        try:
            return _Process(self._zygote.fork())
        except Gone as gone:
            raise _unconfined(tool, str(gone)) from None
        except OSError as error:
            why = (error.strerror or type(error).__name__).lower()
            raise ToolFailed(f"the process of `{tool.id}` could not be started: {why}") from error

    async def _lived(
        self,
        process: _Process,
        key: Hashable,
        tool: Tool,
        arguments: Mapping[str, Any],
        context: CallContext,
    ) -> _Outcome:
        """What came of the call; by then its process is gone, or kept for the next one."""
        kept = False
        try:
            with process.attended(tool, context):
                outcome = await self._outcome(process, tool, arguments, context, again=key is not None)
                returned = isinstance(outcome, _Returned)
                kept = returned and key is not None and self._keep(key, process)
                if not kept and returned and _alone(tool) and process.fork.kill():
                    # It cannot have started anything, and from here on runs no further: no need to wait.
                    self._close_when_gone(process)
                    kept = True
                if not kept:
                    await process.fork.end()
        finally:
            if not kept:
                await process.fork.end()
                process.close()
        self._zygote.get_ready()
        return outcome

    async def _outcome(
        self,
        process: _Process,
        tool: Tool,
        arguments: Mapping[str, Any],
        context: CallContext,
        *,
        again: bool,
    ) -> _Outcome:
        talk = Conversation(tool, context, process.fork.connection)
        try:
            if not process.confined:
                await talk.send(setup_of(tool, context, self._root, self._zygote.libraries, again=again))
            await talk.send(request_of(tool, arguments, context))
            if not process.confined:
                await self._confined(process, tool, context)
            process.answer_files()
            return _Returned(await talk.serve())
        except PackhostError as error:
            return error
        except BrokenFrame as error:
            return ToolFailed(f"the process of `{tool.id}` broke the protocol: it sent {error}", hint=AUTHOR)
        except (EOFError, ConnectionError):
            with anyio.move_on_after(_OWN_END):
                await process.fork.wait()
            return _Died(process.fork.ended)

    async def _confined(self, process: _Process, tool: Tool, context: CallContext) -> None:
        word, listener = await _first_word(process.fork.connection)
        if word != CONFINED:
            raise _unconfined(tool, "the kernel refused a part of it") if word else EOFError
        process.confined = True
        if listener >= 0:
            folder = folder_of(tool)
            readable = (*self._zygote.libraries, *(() if folder is None else (folder,)))
            files = DirectFiles(self._descriptor, context.layers)
            process.supervised_by(Supervisor(listener, str(self._root), readable, files), listener)


def _alone(tool: Tool) -> bool:
    """Whether a tool's process can have started no other."""
    return not any(isinstance(scope, ExecScope) for scope in tool.scopes)


async def _first_word(connection: socket.socket) -> tuple[bytes, int]:
    """The byte that says whether the process is confined, and the listener that may come with it."""
    while True:
        try:
            word, ancillary, _, _ = connection.recvmsg(1, socket.CMSG_SPACE(4), socket.MSG_CMSG_CLOEXEC)
        except BlockingIOError:
            await anyio.wait_readable(connection)
            continue
        numbers = array.array("i")
        for _, _, content in ancillary:
            numbers.frombytes(content)
        return word, numbers[0] if numbers else -1


def _unconfined(tool: Tool, why: str) -> PackhostError:
    return PackhostError(
        f"`{tool.id}` did not run, since its process could not be confined: {why}",
        code="ENFORCEMENT_UNAVAILABLE",
        hint="nothing happened; `packhost doctor` says what this system can enforce",
    )


def _died(tool: Tool, process: _Process, how: _Died) -> PackhostError:
    code = process.fork.code
    if not how.by_itself:
        what = "closed its connection"
    elif code is None:
        if tool.spec.idempotent:
            return ToolFailed(
                f"the process of `{tool.id}` was lost", hint="nothing is wrong with the call: repeat it"
            )
        return PackhostError(
            f"the process of `{tool.id}` was lost while it ran",
            code="EFFECTS_UNKNOWN",
            hint="look at what it did before you call it again",
        )
    elif code < 0:
        return ended_by(tool, -code)
    else:
        what = f"ended with exit code {code}"
    return ToolFailed(f"the process of `{tool.id}` {what} before it answered", hint=AUTHOR)
