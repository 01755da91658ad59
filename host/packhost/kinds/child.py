"""The process in which one call of a pack from elsewhere runs.

It is started with nothing but a socket to the host. The pack's modules are compiled from their source in the
folder that the host names; what the handler wants of the outside (files, nested calls, secrets) it asks
the host for, one request at a time. Standard output and error go to the host's log.
"""

from __future__ import annotations

import array
import asyncio
import base64
import builtins
import contextlib
import ctypes
import importlib
import importlib.machinery
import inspect
import os
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Collection, Mapping
from importlib.machinery import SOURCE_SUFFIXES, FileFinder, SourceFileLoader
from types import CodeType
from typing import Any, ClassVar

from packhost.errors import PackhostError, ToolFailed
from packhost.kinds.content import Content
from packhost.kinds.eliciting import Elicitation, Elicited, LogLevel
from packhost.kinds.files import FileStat, Walk
from packhost.kinds.frames import FRAME_LIMIT, HEADER, PART, decode, encode, error_frame, error_from
from packhost.kinds.reply import FetchReply

TRACED = 40
"""Frames of a handler's traceback that go to the log, the innermost."""
_PR_SET_PDEATHSIG = 1


class Channel:
    """The socket to the host: one question at a time, whichever thread asks."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._lock = threading.Lock()

    def send(self, frame: dict[str, Any]) -> None:
        """Send a frame that wants no answer."""
        data = encode(frame)
        with self._lock:
            self._socket.sendall(data)

    def receive(self) -> dict[str, Any]:
        """The next frame; the process ends when the host is gone."""
        length = int.from_bytes(self._exactly(HEADER), "big")
        if length > FRAME_LIMIT:
            raise ToolFailed("the host answered with too much at once", hint="ask for less")
        return decode(self._exactly(length))

    def ask(self, frame: dict[str, Any]) -> Any:
        """Send a request and wait for what the host answers; its refusals are raised."""
        try:
            data = encode(frame)
        except OverflowError:
            raise ToolFailed("a request to the host is too long", hint="send less at once") from None
        with self._lock:
            self._socket.sendall(data)
            answer = self.receive()
        if "error" in answer:
            raise error_from(answer["error"])
        return answer.get("value")

    def hand_over(self, word: bytes, descriptor: int | None) -> None:
        """Send one byte and, with it, a descriptor that is then closed here."""
        numbers = array.array("i", () if descriptor is None else (descriptor,))
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, numbers)] if numbers else []
        self._socket.sendmsg([word], rights)
        for number in numbers:
            os.close(number)

    def _exactly(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            part = self._socket.recv(min(count - len(data), 1 << 20))
            if not part:
                os._exit(1)
            data += part
        return bytes(data)


class ChildFiles:
    """The workspace's files, through the host's broker."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def _ask(self, method: str, **arguments: Any) -> Any:
        return self._channel.ask({"op": "files", "method": method, "arguments": arguments})

    def read(self, path: str, *, offset: int = 0, limit: int | None = None) -> bytes:
        """At most `limit` bytes from `offset`."""
        parts: builtins.list[bytes] = []
        while True:
            wanted = PART if limit is None else min(PART, limit)
            part = base64.b64decode(self._ask("read", path=path, offset=offset, limit=wanted))
            parts.append(part)
            offset += len(part)
            limit = None if limit is None else limit - len(part)
            if len(part) < wanted or limit == 0:
                return b"".join(parts)

    def stat(self, path: str) -> FileStat:
        """What lies at `path`."""
        return FileStat(**self._ask("stat", path=path))

    def list(self, path: str) -> builtins.list[FileStat]:
        """The entries of a folder, by name."""
        return [FileStat(**entry) for entry in self._ask("list", path=path)]

    def walk(
        self, path: str, *, glob: str = "**", limit: int = 100_000, skip_folders: Collection[str] = ()
    ) -> Walk:
        """Every readable file below a folder; see `packhost.kinds.files.Files.walk`."""
        found = self._ask("walk", path=path, glob=glob, limit=limit, skip_folders=sorted(skip_folders))
        return Walk(tuple(FileStat(**file) for file in found["files"]), found["skipped"], found["complete"])

    def write(self, path: str, data: bytes, *, create_parents: bool = True) -> None:
        """Replace or create a file as one step."""
        self._ask("write", path=path, data=_text(data), create_parents=create_parents)

    def replace_if_unchanged(self, path: str, old: bytes, new: bytes) -> None:
        """Replace a file whose content is still `old`."""
        self._ask("replace_if_unchanged", path=path, old=_text(old), new=_text(new))

    def move(self, source: str, target: str) -> None:
        """Rename a file or folder; never over something that exists."""
        self._ask("move", source=source, target=target)

    def delete(self, path: str, *, recursive: bool = False) -> None:
        """Remove a file or an empty folder; a filled one only with `recursive`."""
        self._ask("delete", path=path, recursive=recursive)

    def make_directory(self, path: str) -> None:
        """Make a folder and the parents that it lacks."""
        self._ask("make_directory", path=path)


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


class ChildContext:
    """The `CallContext` of a handler in its own process."""

    host = None

    def __init__(self, channel: Channel, facts: Mapping[str, Any]) -> None:
        self._channel = channel
        self.tool: str = facts["tool"]
        self.call_id: str = facts["call_id"]
        self.run_id: str = facts["run_id"]
        self.session_id: str = facts["session_id"]
        self.principal: str = facts["principal"]
        self.client: str = facts["client"]
        self.config: Mapping[str, Any] = facts["config"]
        self.files = ChildFiles(channel)

    async def report_progress(
        self, progress: float, total: float | None = None, message: str | None = None
    ) -> None:
        """Tell the caller how far the call is."""
        self._channel.send({"op": "progress", "progress": progress, "total": total, "message": message})

    async def log(self, level: LogLevel, data: Any, logger: str | None = None) -> None:
        """Tell the caller something that is worth a line."""
        self._channel.send({"op": "log", "level": level, "data": data, "logger": logger})

    async def elicit(self, wanted: Elicitation) -> Elicited:
        """Ask the person behind the caller; `cancel` when nobody answered."""
        asked = {"message": wanted.message, "schema": wanted.schema, "url": wanted.url}
        return Elicited(**await asyncio.to_thread(self._channel.ask, {"op": "elicit", **asked}))

    async def call_tool(self, tool: str, arguments: Mapping[str, Any]) -> Any:
        """Make a nested governed call; raises `PackhostError` when it was refused or failed."""
        frame = {"op": "call", "tool": tool, "arguments": dict(arguments)}
        return await asyncio.to_thread(self._channel.ask, frame)

    async def fetch(
        self, url: str, *, method: str = "GET", headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> FetchReply:
        """An HTTP request made by the host within the `network` scopes."""
        asked = {"url": url, "method": method, "headers": dict(headers or {}), "body": _text(body)}
        found = await asyncio.to_thread(self._channel.ask, {"op": "fetch", **asked})
        return FetchReply(found["status"], found["headers"], base64.b64decode(found["body"]), found["url"])

    def secret(self, name: str) -> str:
        """A secret's value; `ScopeDenied` unless it is declared and covered."""
        return str(self._channel.ask({"op": "secret", "name": name}))


class _FromSource(SourceFileLoader):
    """Compiles from source always: a `.pyc` beside it is neither trusted nor written."""

    ahead: ClassVar[dict[str, bytes]] = {}
    """Sources that were read already, by path."""

    def get_data(self, path: str) -> bytes:
        return self.ahead.pop(path, None) or super().get_data(path)

    def get_code(self, fullname: str) -> CodeType:
        return self.source_to_code(self.get_data(self.path), self.path)


def look_in(folder: str) -> None:
    """Import modules from a pack's folder from now on, compiled from source."""
    inside = folder.rstrip("/") + "/"

    def finder(entry: str) -> FileFinder:
        if f"{entry}/".startswith(inside):
            return FileFinder(entry, (_FromSource, SOURCE_SUFFIXES))
        raise ImportError(entry)

    sys.path_hooks.insert(0, finder)
    sys.path.insert(0, folder)


def read_ahead(folder: str, module: str) -> None:
    """Look for modules in a pack's folder from now on, and read the one that is needed; nothing is run."""
    look_in(folder)
    found = importlib.machinery.PathFinder.find_spec(module.partition(".")[0])
    if found is not None and isinstance(found.loader, _FromSource):
        path = found.loader.path
        with contextlib.suppress(OSError):
            found.loader.ahead[path] = found.loader.get_data(path)


def run(channel: Channel, request: dict[str, Any]) -> dict[str, Any]:
    """Call the handler that the host names; whatever comes of it is a frame."""
    try:
        handler = getattr(importlib.import_module(request["module"]), request["function"])
        value = handler(ChildContext(channel, request["context"]), request["arguments"])
        if inspect.isawaitable(value):
            value = asyncio.run(_finish(value))
        if isinstance(value, Content):
            return {"op": "content", "blocks": list(value.blocks), "data": value.data}
        return {"op": "result", "value": value}
    except PackhostError as error:
        return {"op": "error", **error_frame(error)}
    except BaseException as error:  # whatever a handler raises is the call's failure, not this process's
        traceback.print_exc(limit=-TRACED)  # a stack may be millions deep
        return {"op": "raised", "type": type(error).__name__, "message": str(error)}


async def _finish(value: Any) -> Any:
    return await value


def answer(channel: Channel, frame: dict[str, Any]) -> None:
    """Send the last frame of a call, or why it cannot be sent."""
    try:
        channel.send(frame)
    except OverflowError:
        channel.send({"op": "too_large"})
    except (TypeError, ValueError, RecursionError) as error:
        channel.send({"op": "not_json", "message": str(error)})


def _die_with(parent: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def main(descriptor: int, parent: int) -> None:
    """Run the one call that the host sends, answer it and wait to be ended."""
    sys.dont_write_bytecode = True
    _die_with(parent)
    os.set_inheritable(descriptor, False)
    channel = Channel(socket.socket(fileno=descriptor))
    request = channel.receive()
    if request["folder"] is not None:
        look_in(request["folder"])
    outcome = run(channel, request)
    sys.stdout.flush()
    sys.stderr.flush()
    answer(channel, outcome)
    channel.receive()  # the host ends the whole process group; this only keeps its number taken until then
