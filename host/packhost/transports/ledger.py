"""What a client and the host behind its relay owe each other; no input or output of its own.

The client keeps its connection while hosts come and go. So the ledger knows each request that the client
waits for, each question that it was asked, and what a new host must be told to stand where the old one
stood. A request is answered once, a question of a host that is gone is withdrawn, and its late answer
leads nowhere.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pydantic_core

from packhost.names import RELAYED
from packhost.transports.jsonrpc import CONNECTION_CLOSED, error_line, to_json

Id = str | int
_NOBODY: Final = "\0"
"""Stands for an id that is none, which nobody ever used."""
_OWN: Final = "packhost-relay-"
"""How the ids of the relay's own requests begin."""
_LISTEN: Final = "subscriptions/listen"
_ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"
_LIST_CHANGED: Final = "notifications/tools/list_changed"
_SUBSCRIPTION: Final = "io.modelcontextprotocol/subscriptionId"
_VERSION: Final = "io.modelcontextprotocol/protocolVersion"
_KEPT_META: Final = (
    _VERSION,
    "io.modelcontextprotocol/clientInfo",
    "io.modelcontextprotocol/clientCapabilities",
)
_STATE: Final = {"logging/setLevel": "", "resources/subscribe": "uri", "resources/unsubscribe": "uri"}
"""Requests that change what a connection gets, and the parameter that says of what."""


class HandshakeChanged(Exception):
    """The new host speaks another version of the protocol than the client was promised."""


@dataclass(slots=True)
class _Request:
    """A request that the client waits for."""

    line: bytes
    method: str
    params: Mapping[str, Any]
    since: float
    token: Id | None
    progress: float = float("-inf")
    acknowledged: bool = False

    @property
    def tools_wanted(self) -> bool:
        wanted = self.params.get("notifications")
        return self.method == _LISTEN and isinstance(wanted, dict) and wanted.get("toolsListChanged") is True


@dataclass(slots=True)
class Ledger:
    """The accounts of one client."""

    clock: Callable[[], float] = time.monotonic
    heard: float = 0.0
    """When the host last said anything."""
    closing: bool = False
    """The host has said that it ends."""
    _pending: dict[Id, _Request] = field(default_factory=dict)
    _questions: dict[Id, Id] = field(default_factory=dict)
    _asked: int = 0
    _calls: int = 0
    _own: int = 0
    _hosts: int = 0
    _hello: Mapping[str, Any] | None = None
    _version: str | None = None
    _handshake: str | None = None
    _initialized: bytes | None = None
    _envelope: Mapping[str, Any] | None = None
    _state: dict[tuple[str, str], Mapping[str, Any]] = field(default_factory=dict)
    _tools: str | None = None
    _look: str | None = None

    # from the client

    def from_client(self, line: bytes) -> bytes | None:
        """Take a line of the client's; what the host is to be sent of it."""
        data = _object(line)
        if data is None:
            return line  # the host says what is wrong with it
        id, method = _id(data), data.get("method")
        if not isinstance(method, str):
            return self._reply(line, data, id) if id is not None and "method" not in data else line
        params = data.get("params")
        params = params if isinstance(params, dict) else {}
        if id is not None:
            return self._request(line, id, method, params)
        if method == "notifications/initialized":
            self._initialized = line
        elif method == "notifications/cancelled":
            self._pending.pop(_plain(params.get("requestId")), None)
        return line

    def _request(self, line: bytes, id: Id, method: str, params: dict[str, Any]) -> bytes:
        meta = params.get("_meta")
        meta = meta if isinstance(meta, dict) else {}
        if _VERSION in meta:
            self._envelope = {key: meta[key] for key in _KEPT_META if key in meta}
        if method == "tools/call":
            self._calls += 1
            # The number names the call wherever it is sent; put before the rest, it leaves that as it was.
            line = b'{"%b":%d,%b' % (RELAYED.encode(), self._calls, line.lstrip()[1:])
        token = _plain(meta.get("progressToken"))
        small = params if method == "initialize" or method == _LISTEN or method in _STATE else {}
        self._pending[id] = _Request(line, method, small, self.clock(), token)
        return line

    def _reply(self, line: bytes, data: dict[str, Any], id: Id) -> bytes | None:
        own = self._questions.pop(id, None)
        if own is None:
            return None  # asked by a host that is gone
        return line if own == id else to_json({**data, "id": own})

    # from the host

    def from_host(self, line: bytes) -> list[bytes]:
        """Take a line of the host's; what the client is to be sent for it."""
        self.heard = self.clock()
        data = _object(line)
        if data is None:
            return []  # torn off by its end
        id, method = _id(data), data.get("method")
        if isinstance(method, str):
            told = self._question(line, data, id) if id is not None else self._notice(line, data, method)
            return [told] if told is not None else []
        if id is None:
            return [line]
        if id == self._look:
            return list(self._looked(data))
        if _closed(data):
            self.closing = True
            return []  # still owed: the next host answers it
        request = self._pending.pop(id, None)
        if request is None:
            return []
        if isinstance(result := data.get("result"), dict):
            self._remember(request, result)
        return [line]

    def _question(self, line: bytes, data: dict[str, Any], id: Id) -> bytes:
        if self._hosts <= 1:
            self._asked = max(self._asked, id if isinstance(id, int) else 0)
            self._questions[id] = id
            return line
        self._asked += 1  # past whatever a former host used
        self._questions[self._asked] = id
        return to_json({**data, "id": self._asked})

    def _notice(self, line: bytes, data: dict[str, Any], method: str) -> bytes | None:
        params = data.get("params")
        params = params if isinstance(params, dict) else {}
        if method == "notifications/cancelled":
            return self._withdrawn(line, data, params)
        if method == "notifications/progress":
            return line if self._grown(params) else None
        if method == _ACKNOWLEDGED:
            meta = params.get("_meta")
            listen = self._pending.get(_plain(meta.get(_SUBSCRIPTION))) if isinstance(meta, dict) else None
            if listen is not None:
                again, listen.acknowledged = listen.acknowledged, True
                return None if again else line
        return line

    def _withdrawn(self, line: bytes, data: dict[str, Any], params: dict[str, Any]) -> bytes | None:
        own = _plain(params.get("requestId"))
        for shown, asked in self._questions.items():
            if asked == own:
                del self._questions[shown]
                changed = {**data, "params": {**params, "requestId": shown}}
                return line if shown == own else to_json(changed)
        return None

    def _grown(self, params: dict[str, Any]) -> bool:
        """Whether progress has grown, as the protocol wants it: a call that is made again starts anew."""
        token, value = _plain(params.get("progressToken")), params.get("progress")
        if not isinstance(value, int | float):
            return True
        for request in self._pending.values():
            if request.token is not None and request.token == token:
                grown, request.progress = value > request.progress, max(value, request.progress)
                return grown
        return True

    def _remember(self, request: _Request, result: dict[str, Any]) -> None:
        method = request.method
        if method == "initialize":
            self._hello, self._version = request.params, result.get("protocolVersion")
        elif method == "tools/list":
            self._tools = _digest(result)
        elif method in _STATE:
            of = str(request.params.get(_STATE[method], ""))
            self._state[(method.replace("/un", "/"), of)] = {"method": method, "params": request.params}

    # when a host goes, and the next one comes

    def gone(self) -> list[bytes]:
        """The host has gone: what the client is told at once, its questions being withdrawn."""
        self.closing = False
        self._look = None
        told = [_cancelled(id, "the host that asked has ended") for id in self._questions]
        self._questions.clear()
        return told

    def greeting(self) -> Iterator[tuple[str, bytes]]:
        """Requests that a host must have answered before anything else, each with its id.

        Their answers are for `greeted`. Nothing for a client's first host, nor where there is no handshake.
        """
        self._hosts += 1
        self.heard = self.clock()
        if self._hello is None:
            return
        hello = self._mine("initialize", {**self._hello, "protocolVersion": self._version})
        self._handshake = hello[0]
        yield hello
        for state in self._state.values():
            if state["method"] != "resources/unsubscribe":
                yield self._mine(state["method"], state["params"])

    def greeted(self, id: str, answer: bytes) -> bytes | None:
        """Take the answer to a request of `greeting`; what the host is to be sent next.

        :raises HandshakeChanged: when the version is another one.
        """
        if id != self._handshake:
            return None
        result = (_object(answer) or {}).get("result")
        version = result.get("protocolVersion") if isinstance(result, dict) else None
        if version != self._version:
            raise HandshakeChanged(
                f"the new host speaks {version or 'another protocol'}, the client {self._version}"
            )
        return self._initialized

    def owed(self) -> list[bytes]:
        """What a host is sent once it is greeted: every request that the client waits for, in order."""
        lines = [request.line for request in self._pending.values()]
        if self._hosts > 1 and self._tools is not None:
            params = {"_meta": self._envelope} if self._envelope is not None else {}
            self._look, look = self._mine("tools/list", params)
            lines.append(look)
        return lines

    def _looked(self, data: dict[str, Any]) -> Iterator[bytes]:
        """The new host's tools: whoever asked to know is told when they are not those that it knows."""
        self._look = None
        result = data.get("result")
        if not isinstance(result, dict) or _digest(result) == self._tools:
            return
        self._tools = _digest(result)
        if self._envelope is None:
            yield to_json({"jsonrpc": "2.0", "method": _LIST_CHANGED})
        for id, request in self._pending.items():
            if request.tools_wanted:
                meta = {"_meta": {_SUBSCRIPTION: id}}
                yield to_json({"jsonrpc": "2.0", "method": _LIST_CHANGED, "params": meta})

    def _mine(self, method: str, params: Mapping[str, Any]) -> tuple[str, bytes]:
        self._own += 1
        id = f"{_OWN}{self._own}"
        return id, to_json({"jsonrpc": "2.0", "id": id, "method": method, "params": params})

    @property
    def waiting(self) -> int:
        """How many requests the client waits for."""
        return len(self._pending)

    def owes(self, line: bytes) -> bool:
        """Whether a line is sent by `owed`."""
        return any(request.line is line for request in self._pending.values())

    # when nobody answers

    def overdue(self, seconds: float) -> bool:
        """Whether the client waits for something and the host was silent for so long."""
        now = self.clock()
        return now - self.heard >= seconds and any(
            now - request.since >= seconds for request in self._waiting().values()
        )

    def give_up(self, text: str, hint: str) -> tuple[list[bytes], list[bytes]]:
        """End what the client waits for: answers for it, and what takes the requests back at the host.

        A call is answered by a refusal that an agent reads, `EFFECTS_UNKNOWN`.
        """
        waiting = self._waiting()
        answers = [self._answer(id, request, text, hint) for id, request in waiting.items()]
        for id in waiting:
            del self._pending[id]
        return answers, [_cancelled(id, "the host did not answer in time") for id in waiting]

    def fail(self, text: str) -> list[bytes]:
        """Answer everything that the client waits for by an error, since this connection ends."""
        lines = [error_line(id, CONNECTION_CLOSED, text) for id in self._pending]
        self._pending.clear()
        return lines

    def _waiting(self) -> dict[Id, _Request]:
        return {id: request for id, request in self._pending.items() if request.method != _LISTEN}

    def _answer(self, id: Id, request: _Request, text: str, hint: str) -> bytes:
        if request.method != "tools/call":
            return error_line(id, CONNECTION_CLOSED, f"{text}; {hint}")
        refusal = {
            "code": "EFFECTS_UNKNOWN",
            "message": f"{text}; whether the call was made is unknown",
            "next": hint,
        }
        sentence = f"{refusal['code']}: {refusal['message']}. {hint[:1].upper()}{hint[1:]}."
        result: dict[str, Any] = {
            "content": [{"type": "text", "text": f"{sentence}\n{to_json(refusal).decode()}"}],
            "isError": True,
            "_meta": {"packhost/refusal": refusal},
        }
        if self._envelope is not None:
            result["resultType"] = "complete"
        return to_json({"jsonrpc": "2.0", "id": id, "result": result})


def answers(line: bytes, id: Id) -> bool:
    """Whether a line answers the request of that id."""
    data = _object(line)
    return data is not None and "method" not in data and data.get("id") == id


def _object(line: bytes) -> dict[str, Any] | None:
    try:
        data: Any = pydantic_core.from_json(line)
    except ValueError:
        return None
    return data if isinstance(data, dict) else None


def _plain(id: object) -> Id:
    return id if isinstance(id, str | int) and not isinstance(id, bool) else _NOBODY


def _id(data: dict[str, Any]) -> Id | None:
    id = data.get("id")
    return id if isinstance(id, str | int) and not isinstance(id, bool) else None


def _closed(data: dict[str, Any]) -> bool:
    error = data.get("error")
    return isinstance(error, dict) and error.get("code") == CONNECTION_CLOSED


def _cancelled(id: Id, reason: str) -> bytes:
    params = {"requestId": id, "reason": reason}
    return to_json({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})


def _digest(result: dict[str, Any]) -> str:
    return hashlib.sha256(to_json(result.get("tools"))).hexdigest()
