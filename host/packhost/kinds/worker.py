"""Runs one call of a pack from elsewhere in a process of its own.

The process gets no environment but the variables that the tool declares, its own process group and one
socket. It dies with its group when the call ends, is cancelled or runs out of time, and with the host.
What it sends is treated as hostile. Nothing keeps it from using the system directly: the level is
`advisory`.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
from anyio.abc import Process

from packhost.errors import PackhostError, ToolFailed
from packhost.kinds.base import Tool
from packhost.kinds.context import CallContext
from packhost.kinds.frames import FRAME_LIMIT, HEADER, OWN_CODES, decode, encode, error_frame, error_from
from packhost.kinds.uses import BrokenFrame, use_files
from packhost.rules.scopes import EnvScope

log = logging.getLogger(__name__)

_LAST_WORDS = 0.5
"""Seconds in which what a process said before its end is still logged."""
LOGGED = 64 * 1024
"""Bytes of a process's output that go to the log."""
_BOOTSTRAP = (
    "import json, sys; sys.path.extend(json.loads(sys.argv[1])); "
    "from packhost.kinds.child import main; main(int(sys.argv[2]), int(sys.argv[3]))"
)
_AUTHOR = "this is a mistake in the pack; its output is in the host's log"


async def run_in_process(tool: Tool, arguments: Mapping[str, Any], context: CallContext, root: Path) -> Any:
    """The handler's JSON value.

    :raises PackhostError: the handler's own refusal, or `TOOL_FAILED`, `OUTPUT_INVALID`, `OUTPUT_TOO_LARGE`.
    """
    ours, theirs = socket.socketpair()
    with ours:
        ours.setblocking(False)
        with theirs:
            try:
                process = await _start(tool, root, theirs)
            except OSError as error:
                why = (error.strerror or type(error).__name__).lower()
                raise ToolFailed(f"the process of `{tool.id}` could not be started: {why}") from error
        async with _ended(process), anyio.create_task_group() as group:
            drained = anyio.Event()
            group.start_soon(_drain, tool, process, drained)
            outcome = await _converse(tool, arguments, context, ours, process)
            _kill(process)
            with anyio.move_on_after(_LAST_WORDS):
                await drained.wait()
            group.cancel_scope.cancel()
    if isinstance(outcome, PackhostError):
        raise outcome
    return outcome.value


@dataclass(frozen=True, slots=True)
class _Returned:
    value: Any


async def _converse(
    tool: Tool,
    arguments: Mapping[str, Any],
    context: CallContext,
    connection: socket.socket,
    process: Process,
) -> _Returned | PackhostError:
    """What came of the call; an error is a value here, since a task group would wrap what is raised."""
    call = _Call(tool, context, connection)
    try:
        return _Returned(await call.run(_request(tool, arguments, context)))
    except PackhostError as error:
        return error
    except BrokenFrame as error:
        return ToolFailed(f"the process of `{tool.id}` broke the protocol: it sent {error}", hint=_AUTHOR)
    except (EOFError, ConnectionError):
        return await _died(tool, process)


async def _start(tool: Tool, root: Path, theirs: socket.socket) -> Process:
    declared = [scope.name for scope in tool.scopes if isinstance(scope, EnvScope)]
    environment = {"LANG": "C.UTF-8"} | {name: os.environ[name] for name in declared if name in os.environ}
    number = theirs.fileno()
    arguments = (json.dumps(_import_paths(root)), str(number), str(os.getpid()))
    return await anyio.open_process(
        [sys.executable, "-I", "-S", "-B", "-c", _BOOTSTRAP, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd=root,
        env=environment,
        start_new_session=True,
        pass_fds=(number,),
    )


def _import_paths(root: Path) -> list[str]:
    """Where packhost and the installed libraries lie; never the workspace itself."""
    host = str(Path(__file__).resolve().parents[2])
    others = [path for path in sys.path if os.path.isabs(path) and Path(path).resolve() != root.resolve()]
    return [host, *others]


def _request(tool: Tool, arguments: Mapping[str, Any], context: CallContext) -> dict[str, Any]:
    module, _, function = (tool.spec.target or "").partition(":")
    names = ("tool", "call_id", "run_id", "session_id", "principal", "client")
    return {
        "module": module,
        "function": function,
        "folder": None if tool.pack.folder is None else str(tool.pack.folder),
        "arguments": arguments,
        "context": {name: getattr(context, name) for name in names} | {"config": dict(context.config)},
    }


@contextlib.asynccontextmanager
async def _ended(process: Process) -> AsyncIterator[None]:
    """Kills the process and its group on every way out."""
    try:
        yield
    finally:
        _kill(process)
        with anyio.move_on_after(5, shield=True):
            await process.aclose()


def _kill(process: Process) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


async def _drain(tool: Tool, process: Process, drained: anyio.Event) -> None:
    """Writes the process's output to the log, up to `LOGGED` bytes, and drops the rest."""
    room = LOGGED
    with contextlib.suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
        if process.stdout is None:
            return
        async for part in process.stdout:
            for line in part[:room].decode(errors="backslashreplace").splitlines():
                log.info("%s: %s", tool.id, line.encode("unicode_escape").decode("ascii"))
            room = max(room - len(part), 0)
    drained.set()


async def _died(tool: Tool, process: Process) -> ToolFailed:
    with anyio.move_on_after(1):
        await process.wait()
    code = process.returncode
    if code is None:
        how = "closed its connection"
    elif code < 0:
        how = f"was ended by signal {-code}"
    else:
        how = f"ended with exit code {code}"
    return ToolFailed(f"the process of `{tool.id}` {how} before it answered", hint=_AUTHOR)


class _Call:
    """One call's conversation with its process."""

    def __init__(self, tool: Tool, context: CallContext, connection: socket.socket) -> None:
        self._tool = tool
        self._context = context
        self._socket = connection
        self._told: dict[tuple[str, str], PackhostError] = {}

    async def run(self, request: dict[str, Any]) -> Any:
        """Send the request and serve the process until it answers."""
        await self._send(request)
        while True:
            frame = await self._receive()
            match frame.get("op"):
                case "progress":
                    await self._progress(frame)
                case "files" | "call" | "secret":
                    await self._serve(frame)
                case "result" if "value" in frame:
                    return frame["value"]
                case _:
                    raise self._failure(frame)

    def _failure(self, frame: dict[str, Any]) -> PackhostError:
        match frame.get("op"):
            case "error":
                error = error_from(frame)
                if (error.code, error.message) in self._told:
                    return self._told[error.code, error.message]
                return error if error.code in OWN_CODES else ToolFailed(error.message, hint=error.hint)
            case "raised":
                what = f"{_line(frame.get('type'))}: {_line(frame.get('message'))}".rstrip(": ")
                return ToolFailed(f"the handler of `{self._tool.id}` raised {what}", hint=_AUTHOR)
            case "not_json":
                return PackhostError(
                    f"`{self._tool.id}` returned what is not JSON: {_line(frame.get('message'))}",
                    code="OUTPUT_INVALID",
                    hint=_AUTHOR,
                )
            case "too_large":
                return self._too_large()
            case _:
                raise BrokenFrame("a frame of an unknown kind")

    def _too_large(self) -> PackhostError:
        return PackhostError(
            f"`{self._tool.id}` returned more than {FRAME_LIMIT} bytes",
            code="OUTPUT_TOO_LARGE",
            hint="ask for less",
        )

    async def _progress(self, frame: dict[str, Any]) -> None:
        progress, total, message = frame.get("progress"), frame.get("total"), frame.get("message")
        if not isinstance(progress, int | float) or not isinstance(total, int | float | None):
            raise BrokenFrame("progress that is not a number")
        if not (message is None or isinstance(message, str)):
            raise BrokenFrame("a message that is not text")
        await self._context.report_progress(progress, total, message)

    async def _serve(self, frame: dict[str, Any]) -> None:
        try:
            answer = {"value": await self._value(frame)}
        except PackhostError as error:
            self._told[error.code, error.message] = error
            answer = {"error": error_frame(error)}
        await self._send(answer)

    async def _value(self, frame: dict[str, Any]) -> Any:
        match frame:
            case {"op": "files", "method": str(method), "arguments": dict(arguments)}:
                return await anyio.to_thread.run_sync(use_files, self._context.files, method, arguments)
            case {"op": "call", "tool": str(tool), "arguments": dict(arguments)}:
                return await self._context.call_tool(tool, arguments)
            case {"op": "secret", "name": str(name)}:
                return self._context.secret(name)
            case _:
                raise BrokenFrame("a request that is not one")

    async def _send(self, frame: dict[str, Any]) -> None:
        try:
            rest = memoryview(encode(frame))
        except OverflowError:
            error = ToolFailed("the answer is too long for one frame", hint="ask for less at once")
            rest = memoryview(encode({"error": error_frame(error)}))
        while rest:
            try:
                rest = rest[self._socket.send(rest) :]
            except BlockingIOError:
                await anyio.wait_writable(self._socket)

    async def _receive(self) -> dict[str, Any]:
        length = int.from_bytes(await self._exactly(HEADER), "big")
        if length > FRAME_LIMIT:
            raise self._too_large()
        try:
            return decode(await self._exactly(length))
        except ValueError:
            raise BrokenFrame("a frame that is not JSON") from None

    async def _exactly(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            try:
                part = self._socket.recv(min(count - len(data), 1 << 20))
            except BlockingIOError:
                await anyio.wait_readable(self._socket)
                continue
            if not part:
                raise EOFError
            data += part
        return bytes(data)


def _line(value: object) -> str:
    return " ".join(str(value or "").split())[:500]
