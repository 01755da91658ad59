"""JSON-RPC with one upstream server, whatever carries the messages: requests, and what comes unasked.

Everything that arrives is hostile until it is looked at: an answer that nobody waits for is dropped, a
request that is not served is refused, and no message of a server's can hold up another's.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, TypeGuard

log = logging.getLogger(__name__)

Message = dict[str, Any]
Post = Callable[[Message, Mapping[str, str] | None], None]
"""Sends a message, with headers where there are such; never waits, and never raises."""
Advance = Callable[[float, float | None, str | None], None]

MAX_SERVED: Final = 16
"""Requests of a server's that are served at once."""
NO_METHOD, BAD_REQUEST, INTERNAL = -32601, -32602, -32603


class RpcError(Exception):
    """The server's answer is an error."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


class NoAnswer(RpcError):
    """What came in place of an answer is none of the server's words.

    `unsure` says that what was asked may have been done all the same, `session_lost` that it was not, since
    the server does not know the session any more.
    """

    def __init__(
        self, reason: str, *, unsure: bool = False, session_lost: bool = False, code: int = INTERNAL
    ) -> None:
        super().__init__(code, reason)
        self.unsure = unsure
        self.session_lost = session_lost


class Gone(Exception):
    """The way to the server is gone; `asked` says whether the request may have reached it."""

    def __init__(self, reason: str, *, asked: bool = True) -> None:
        super().__init__(reason)
        self.reason = reason
        self.asked = asked


class Flight:
    """One request that was sent and not answered yet."""

    __slots__ = ("advance", "future", "id", "owner", "tasks")

    def __init__(self, id: int, future: asyncio.Future[Any], owner: Any, advance: Advance | None) -> None:
        self.id = id
        self.future = future
        self.owner = owner
        """Whoever the request is made for, to whom a question of the server's may be put."""
        self.advance = advance
        self.tasks: list[asyncio.Task[None]] = []

    def fail(self, error: BaseException) -> None:
        """Let the request end with an error, unless it has ended."""
        if not self.future.done():
            self.future.set_exception(error)


class Served(Protocol):
    """What a server may ask of this client, and tell it."""

    async def answer(self, method: str, params: Mapping[str, Any], peer: Peer) -> Mapping[str, Any]:
        """The result of a request of the server's; raises `RpcError`."""

    def told(self, method: str, params: Mapping[str, Any], peer: Peer) -> None:
        """A notification, but for progress and cancellation."""

    def lost(self, peer: Peer, reason: str) -> None:
        """The way is gone."""


class Peer:
    """One connection's requests and answers."""

    def __init__(self, post: Post, served: Served) -> None:
        self._post = post
        self._served = served
        self._last = 0
        self._lost: Gone | None = None
        self._theirs: dict[Any, asyncio.Task[None]] = {}
        self.flights: dict[int, Flight] = {}
        """By id, oldest first."""

    @property
    def lost(self) -> Gone | None:
        """Why nothing can be asked any more."""
        return self._lost

    async def request(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        owner: Any = None,
        advance: Advance | None = None,
    ) -> Any:
        """The server's result. Cancelling it tells the server, unless the handshake is cut off.

        Raises `RpcError` for an answer that is an error, `Gone` when the way is lost.
        """
        if self._lost is not None:
            raise Gone(self._lost.reason, asked=False)
        self._last += 1
        id = self._last
        flight = Flight(id, asyncio.get_running_loop().create_future(), owner, advance)
        self.flights[id] = flight
        message: Message = {"jsonrpc": "2.0", "id": id, "method": method}
        if advance is not None:
            params = {**(params or {}), "_meta": {**((params or {}).get("_meta") or {}), "progressToken": id}}
        if params:
            message["params"] = params
        try:
            self._post(message, headers)
            return await flight.future
        except asyncio.CancelledError:
            if method not in ("initialize", "server/discover"):
                self.notify("notifications/cancelled", {"requestId": id, "reason": "the caller gave it up"})
            raise
        finally:
            del self.flights[id]
            for task in flight.tasks:
                task.cancel()

    def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        """Tell the server something, if it is still there."""
        if self._lost is None:
            message: Message = {"jsonrpc": "2.0", "method": method}
            if params:
                message["params"] = dict(params)
            self._post(message, None)

    def feed(self, message: Any) -> bool:
        """Take one message, or a batch of them, from the server; whether it is an awaited answer."""
        if isinstance(message, list):
            for one in message:
                if isinstance(one, dict):
                    self.feed(one)
        elif not isinstance(message, dict):
            pass
        elif "method" not in message:
            return self._answered(message)
        elif "id" in message:
            self._asked(message)
        elif isinstance(message["method"], str):
            params = message.get("params")
            self._told(message["method"], params if isinstance(params, dict) else {})
        return False

    def fail(self, id: Any, error: RpcError) -> None:
        """Let one request end with an error that is not the server's."""
        flight = self.flights.get(id) if isinstance(id, int) else None
        if flight is not None:
            flight.fail(error)

    def lose(self, reason: str) -> None:
        """The way is gone: nobody waits any longer."""
        if self._lost is None:
            self._lost = Gone(reason)
            for flight in list(self.flights.values()):
                flight.fail(Gone(reason))
            for task in self._theirs.values():
                task.cancel()
            self._served.lost(self, reason)

    def _answered(self, message: Message) -> bool:
        id = message.get("id")
        if isinstance(id, str) and id.isdecimal() and len(id) < 16:
            id = int(id)
        flight = self.flights.get(id) if isinstance(id, int) else None
        if flight is None or flight.future.done():
            return False
        error = message.get("error")
        if isinstance(error, dict):
            code = error.get("code")
            said = str(error.get("message") or "it gives no reason")
            flight.fail(RpcError(code if isinstance(code, int) else INTERNAL, said, error.get("data")))
        else:
            flight.future.set_result(message.get("result"))
        return True

    def _told(self, method: str, params: Mapping[str, Any]) -> None:
        if method == "notifications/progress":
            self._progress(params)
        elif method == "notifications/cancelled":
            task = self._theirs.get(_key(params.get("requestId")))
            if task is not None:
                task.cancel()
        else:
            self._served.told(method, params, self)

    def _progress(self, params: Mapping[str, Any]) -> None:
        token, progress, total = (params.get(name) for name in ("progressToken", "progress", "total"))
        flight = self.flights.get(token) if isinstance(token, int) else None
        if flight is None or flight.advance is None or not _number(progress):
            return
        message = params.get("message")
        flight.advance(
            progress, total if _number(total) else None, message if isinstance(message, str) else None
        )

    def _asked(self, message: Message) -> None:
        id, method, params = message["id"], message["method"], message.get("params")
        key = _key(id)
        if len(self._theirs) >= MAX_SERVED or key in self._theirs or not isinstance(method, str):
            self._refuse(id, RpcError(INTERNAL, "too much is asked at once"))
            return
        work = self._serve(id, method, params if isinstance(params, dict) else {})
        self._theirs[key] = asyncio.get_running_loop().create_task(work)

    async def _serve(self, id: Any, method: str, params: Mapping[str, Any]) -> None:
        try:
            result = await self._served.answer(method, params, self)
            self._post({"jsonrpc": "2.0", "id": id, "result": dict(result)}, None)
        except RpcError as error:
            self._refuse(id, error)
        except Exception:
            log.exception("serving a request of an upstream server failed")
            self._refuse(id, RpcError(INTERNAL, "it failed"))
        finally:
            self._theirs.pop(_key(id), None)

    def _refuse(self, id: Any, error: RpcError) -> None:
        if self._lost is None:
            said = {"code": error.code, "message": error.message}
            self._post({"jsonrpc": "2.0", "id": id, "error": said}, None)


def _key(id: Any) -> str:
    return f"{type(id).__name__}:{id}"[:200]


def _number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300
