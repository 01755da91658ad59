"""A server by URL as a way for messages: the SDK's transports, driven by a task of their own."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from packhost.kinds.mcp.peer import Message, Peer
from packhost.kinds.mcp.responses import Responses

if TYPE_CHECKING:
    import httpx2

log = logging.getLogger(__name__)

LONGEST_EVENT: Final = 64 * 1024 * 1024
"""Bytes of one server-sent event, which holds a whole result."""
_CONNECT: Final = 15.0
_QUIET: Final = 3600.0
"""Seconds that a response may say nothing: each call has a time limit of its own."""
_LEAVE: Final = 2.0
_PAUSED: Final = 20.0
"""Times as long as an unasked message took is the pause after it, since it had to be read as well."""
_MOMENT: Final = 0.01


class Remote:
    """Messages to and from a URL; `peer` gives whom each is for, who also hears when the way is gone."""

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str],
        auth: httpx2.Auth | None,
        *,
        events: bool,
        peer: Callable[[], Peer],
    ) -> None:
        """`events`: the older transport of server-sent events."""
        self._url = url
        self._headers = dict(headers)
        self._auth = auth
        self._events = events
        self._peer = peer
        self._responses = Responses()
        self._queue: asyncio.Queue[tuple[Message, Mapping[str, str] | None]] = asyncio.Queue()
        self._closing = asyncio.Event()
        self.opened = asyncio.Event()
        self.error: BaseException | None = None
        """What ended it, if not `close`."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    def post(self, message: Message, headers: Mapping[str, str] | None = None) -> None:
        """Send a message after those before it."""
        self._queue.put_nowait((message, headers))

    async def close(self) -> None:
        """Leave the server, which is told so where there is a session."""
        self._closing.set()
        with contextlib.suppress(TimeoutError, asyncio.CancelledError):
            await asyncio.wait_for(asyncio.shield(self._task), _LEAVE)
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    async def _run(self) -> None:
        reason = "the connection was closed"
        try:
            async with self._streams() as (reading, writing):
                self.opened.set()
                sender = asyncio.get_running_loop().create_task(self._send(writing))
                reader = asyncio.get_running_loop().create_task(self._receive(reading))
                closing = asyncio.get_running_loop().create_task(self._closing.wait())
                try:
                    await asyncio.wait((sender, reader, closing), return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for task in (sender, reader, closing):
                        task.cancel()
                    await asyncio.gather(sender, reader, closing, return_exceptions=True)
        except Exception as error:  # whatever a transport raises ends this way
            self.error = _first(error)
            reason = _said(self.error)
        finally:
            self.opened.set()
            self._peer().lose(reason)

    async def _send(self, writing: Any) -> None:
        from mcp.shared.message import ClientMessageMetadata, SessionMessage
        from mcp_types import jsonrpc_message_adapter

        while True:
            message, headers = await self._queue.get()
            metadata = ClientMessageMetadata(headers=dict(headers)) if headers else None
            parsed = jsonrpc_message_adapter.validate_python(message, by_name=False)
            await writing.send(SessionMessage(parsed, metadata))

    async def _receive(self, reading: Any) -> None:
        owed = 0.0
        async for item in reading:
            if owed > _MOMENT:
                await asyncio.sleep(owed)
                owed = 0.0
            begun = time.thread_time()
            if isinstance(item, Exception):
                log.debug("a message of an upstream server could not be read: %s", type(item).__name__)
                continue
            message = item.message.model_dump(by_alias=True, mode="json", exclude_unset=True)
            error = self._responses.instead(message)
            if error is not None:
                self._peer().fail(message["id"], error)
            elif not self._peer().feed(message):
                owed += _PAUSED * (time.thread_time() - begun)

    @asynccontextmanager
    async def _streams(self) -> AsyncIterator[tuple[Any, Any]]:
        import httpx2  # only a server by URL needs it, and it takes a while
        from mcp.client.sse import sse_client
        from mcp.client.streamable_http import streamable_http_client

        timeout = httpx2.Timeout(_CONNECT, read=_QUIET, pool=None)
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=32)
        if self._events:
            found = sse_client(
                self._url,
                headers=self._headers,
                timeout=_CONNECT,
                sse_read_timeout=_QUIET,
                auth=self._auth,
            )
            async with found as streams:
                yield streams[0], streams[1]
            return
        client = httpx2.AsyncClient(
            headers={"accept-encoding": "identity", **self._headers},
            timeout=timeout,
            limits=limits,
            auth=self._auth,
            trust_env=False,
            event_hooks={"response": [self._responses.look]},
        )
        async with (
            client,
            streamable_http_client(
                self._url, http_client=client, max_sse_event_size=LONGEST_EVENT
            ) as streams,
        ):
            yield streams[0], streams[1]


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _said(error: BaseException) -> str:
    response = getattr(error, "response", None)
    status = getattr(response, "status_code", None)
    if status is not None:
        return f"it answered with status {status}"
    name = type(error).__name__
    if name in ("OAuthFlowError", "OAuthTokenError", "OAuthRegistrationError"):
        return "it wants a person to sign in, by `packhost upstream login`"
    if name in ("ConnectError", "ConnectTimeout"):
        return "it cannot be reached"
    return f"the connection failed: {name}"
