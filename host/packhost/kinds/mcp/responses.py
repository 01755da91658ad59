"""What a server by URL answers by HTTP alone: which of it is no answer, and how much of it is read.

The SDK gives whoever waits an error of its own where a response holds no message. That the words are not the
server's, and whether it may have done what was asked, is known here.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

import httpx2
from mcp_types import CONNECTION_CLOSED, INTERNAL_ERROR, METHOD_NOT_FOUND, PARSE_ERROR

from packhost.kinds.mcp.peer import Message, NoAnswer

LONGEST: Final = 64 * 1024 * 1024
"""Bytes of a response's body, but for one that is a stream of events."""
SESSION: Final = "mcp-session-id"
_FALLBACK: Final = "Server returned an error response"
_BROKEN_OFF: Final = "SSE stream"
_UNREADABLE: Final = "Failed to parse"
_MESSAGES: Final = ("application/json", "text/event-stream")


@dataclass(frozen=True, slots=True)
class _Said:
    status: int
    in_session: bool
    odd: str = ""
    """What makes a response with a status of success no answer."""


class _Limited(httpx2.AsyncByteStream):
    """A body that ends with an error once it is too long."""

    def __init__(self, body: httpx2.AsyncByteStream) -> None:
        self._body = body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        length = 0
        async for part in self._body:
            length += len(part)
            if length > LONGEST:
                raise httpx2.StreamError(f"a response of more than {LONGEST} bytes")
            yield part

    async def aclose(self) -> None:
        await self._body.aclose()


class Responses:
    """Looks at each response of one server, before the SDK does."""

    def __init__(self) -> None:
        self._said: dict[Any, _Said] = {}

    async def look(self, response: httpx2.Response) -> None:
        """Remember what is odd about a response, and limit what is read of it; a hook of the client's."""
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        packed = response.headers.get("content-encoding", "identity").strip().lower() != "identity"
        body = response.stream
        assert isinstance(body, httpx2.AsyncByteStream)
        if packed:  # nobody asked for that, and a little of it may be a lot
            await body.aclose()
            del response.headers["content-encoding"]
            response.stream = httpx2.ByteStream(b"")
        elif kind != "text/event-stream":
            response.stream = _Limited(body)
        id = _asked(response.request)
        if id is None:
            return
        self._said.pop(id, None)
        status, odd = response.status_code, ""
        if packed:
            odd = "it answered in a compressed form"
        elif status == HTTPStatus.ACCEPTED or not 200 <= status < 300:
            odd = f"it answered with status {status}"
        elif kind not in _MESSAGES:
            odd = "it answered with something else than a message"
        if odd:
            self._said[id] = _Said(status, SESSION in response.request.headers, odd)

    def instead(self, message: Message) -> NoAnswer | None:
        """What is to be made of a message that is an error; `None` for one of the server's own."""
        error = message.get("error")
        if not isinstance(error, dict):
            return None
        said = self._said.pop(message.get("id"), None)
        code, text = error.get("code"), str(error.get("message"))
        if said is None:
            if code == CONNECTION_CLOSED and text.startswith(_BROKEN_OFF):
                return NoAnswer("it broke its answer off", unsure=True)
            if code == PARSE_ERROR and text.startswith(_UNREADABLE):
                return NoAnswer("its answer cannot be read", unsure=True)
            return None
        if said.status == HTTPStatus.NOT_FOUND and said.in_session and code != METHOD_NOT_FOUND:
            return NoAnswer("it does not know the session any more", session_lost=True)
        if said.status >= 400 and not (code == INTERNAL_ERROR and text == _FALLBACK):
            return None
        refused = 300 <= said.status < 500 and said.status != HTTPStatus.REQUEST_TIMEOUT
        return NoAnswer(said.odd, unsure=not refused)


def _asked(request: httpx2.Request) -> Any:
    """The id of the request that a POST carries."""
    if request.method != "POST":
        return None
    try:
        found = json.loads(request.content)
    except (ValueError, httpx2.RequestNotRead):
        return None
    return found.get("id") if isinstance(found, dict) and "method" in found else None
