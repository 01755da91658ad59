"""Runs one call of a pack from elsewhere in a process of its own.

The process gets no environment but the variables that the tool declares, its own process group and one
socket. It dies with its group when the call ends, is cancelled or runs out of time, and with the host.
What it sends is treated as hostile. Nothing keeps it from using the system directly: the level is
`advisory`.
"""

from __future__ import annotations

import contextlib
import json
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
from anyio.abc import Process

from packhost.errors import PackhostError, ToolFailed
from packhost.kinds.base import Tool
from packhost.kinds.context import CallContext
from packhost.kinds.conversation import AUTHOR, Conversation, OutputLog, ended_by, request_of
from packhost.kinds.uses import BrokenFrame
from packhost.rules.scopes import EnvScope

_LAST_WORDS = 0.5
"""Seconds in which what a process said before its end is still logged."""
_BOOTSTRAP = (
    "import json, sys; sys.path.extend(json.loads(sys.argv[1])); "
    "from packhost.kinds.child import main; main(int(sys.argv[2]), int(sys.argv[3]))"
)


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
            group.start_soon(_drain, OutputLog(tool, context), process, drained)
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
    call = Conversation(tool, context, connection)
    try:
        return _Returned(await call.run(request_of(tool, arguments, context) | {"folder": folder_of(tool)}))
    except PackhostError as error:
        return error
    except BrokenFrame as error:
        return ToolFailed(f"the process of `{tool.id}` broke the protocol: it sent {error}", hint=AUTHOR)
    except (EOFError, ConnectionError):
        return await _died(tool, process)


async def _start(tool: Tool, root: Path, theirs: socket.socket) -> Process:
    declared = [scope.name for scope in tool.scopes if isinstance(scope, EnvScope)]
    environment = {"LANG": "C.UTF-8"} | {name: os.environ[name] for name in declared if name in os.environ}
    number = theirs.fileno()
    arguments = (json.dumps(import_paths(root)), str(number), str(os.getpid()))
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


def folder_of(tool: Tool) -> str | None:
    """Where a pack's own modules lie; `None` for an installed pack."""
    return None if tool.pack.folder is None else str(tool.pack.folder)


def import_paths(root: Path) -> list[str]:
    """Where packhost and the installed libraries lie; never the workspace itself."""
    host = str(Path(__file__).resolve().parents[2])
    others = [path for path in sys.path if os.path.isabs(path) and Path(path).resolve() != root.resolve()]
    return [host, *others]


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


async def _drain(output: OutputLog, process: Process, drained: anyio.Event) -> None:
    """Writes the process's output to the log, up to `LOGGED` bytes, and drops the rest."""
    with contextlib.suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
        if process.stdout is None:
            return
        async for part in process.stdout:
            output.feed(part)
    output.end()
    drained.set()


async def _died(tool: Tool, process: Process) -> PackhostError:
    with anyio.move_on_after(1):
        await process.wait()
    code = process.returncode
    if code is None:
        how = "closed its connection"
    elif code < 0:
        return ended_by(tool, -code)
    else:
        how = f"ended with exit code {code}"
    return ToolFailed(f"the process of `{tool.id}` {how} before it answered", hint=AUTHOR)
