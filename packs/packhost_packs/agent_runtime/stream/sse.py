"""Server-sent events out of bytes, in pieces of any size, each byte looked at once.

As the standard has it (CR, LF and CRLF end a line, one leading byte-order mark, comments, several
`data` lines, an unfinished event at the end is no event), and stricter where leniency would hide
something: bytes that are not UTF-8 and lines that are no field of the standard are refused, since
each could be a lost piece of a reply. `id` and `retry` serve a reconnection, which never happens.
"""

from __future__ import annotations

from collections.abc import Iterator

from packhost_packs.agent_runtime.faults import TurnFault
from packhost_packs.agent_runtime.stream.limits import exceeded

_BOM = b"\xef\xbb\xbf"
_UNUSED = frozenset({b"id", b"retry"})


class SseDecoder:
    """Holds at most one unfinished event, of `max_event_bytes` bytes."""

    def __init__(self, max_event_bytes: int) -> None:
        self._limit = max_event_bytes
        self._partial = bytearray()
        self._data: list[bytes] = []
        self._event = b""
        self._held = 0
        self._after_cr = False
        self._begun = False
        self._closed = False

    def close(self) -> None:
        """From the event just given on, only line ends may follow."""
        self._closed = True

    def feed(self, chunk: bytes) -> Iterator[tuple[str, str]]:
        """The events that the chunk completes, as event name and data; to be used up before the next chunk.

        Raises `TurnFault` for bytes that are not UTF-8, a line that is no field, an event that is too
        large, and anything but line ends after `close`.
        """
        if not chunk:
            return
        if self._after_cr and chunk[0] == 10:
            chunk = chunk[1:]
            self._after_cr = False
            if not chunk:
                return
        self._after_cr = chunk[-1] == 13
        if b"\r" in chunk:
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        if self._closed:
            self._refuse_rest(chunk.strip(b"\n"))
            return
        lines = chunk.split(b"\n")
        rest = lines.pop()
        if lines and self._partial:
            self._partial += lines[0]
            lines[0] = bytes(self._partial)
            self._partial.clear()
        for number, line in enumerate(lines):
            if line:
                self._field(line)
            else:
                found = self._dispatch()
                if found is not None:
                    yield found
                    if self._closed:
                        self._refuse_rest(rest or b"".join(lines[number:]))
                        return
        if rest:
            self._partial += rest
            if self._held + len(self._partial) > self._limit:
                raise exceeded("event_bytes", self._limit)

    def _dispatch(self) -> tuple[str, str] | None:
        """The event that a blank line ends; one without a `data` line is none."""
        self._begun = True
        if not self._data:
            self._event = b""
            self._held = 0
            return None
        data = self._data[0] if len(self._data) == 1 else b"\n".join(self._data)
        event = self._event
        self._data = []
        self._event = b""
        self._held = 0
        return _text(event), _text(data)

    def _field(self, line: bytes) -> None:
        if self._held + len(line) > self._limit:
            raise exceeded("event_bytes", self._limit)
        if not self._begun:
            self._begun = True
            line = line.removeprefix(_BOM)
        if line.startswith(b"data:"):
            self._data.append(line[6:] if line[5:6] == b" " else line[5:])
            self._held += len(line)
            return
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"event":
            _text(value)
            self._event = value
        elif name == b"data":
            self._data.append(value)
            self._held += len(line)
        elif line and name and name not in _UNUSED:
            _text(line)
            raise TurnFault("protocol_error", "SSE_MALFORMED", "a line of the stream is no field of an event")
        else:
            _text(line)

    def _refuse_rest(self, rest: bytes) -> None:
        if rest:
            message = "the provider sent more after the reply's end"
            raise TurnFault("protocol_error", "POST_TERMINAL_DATA", message)


def _text(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise TurnFault("protocol_error", "SSE_INVALID_UTF8", "the stream is not valid UTF-8") from None
