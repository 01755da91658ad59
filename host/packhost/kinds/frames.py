"""Frames between the host and a handler's process: a length of four bytes, then JSON.

Both ends treat the length as hostile: it is held to `FRAME_LIMIT` before anything is allocated.
"""

from __future__ import annotations

import json
import struct
from typing import Any, cast

from packhost.errors import CODES, Code, InvalidInput, NotFound, PackhostError, ScopeDenied, ToolFailed

FRAME_LIMIT = 16 * 1024 * 1024
"""Bytes of one frame."""
PART = 4 * 1024 * 1024
"""Bytes of a file that travel in one frame."""
HEADER = 4
SUPERVISED, ALONE = b"s", b"a"
"""What the zygote is asked for: a process whose file calls the host answers, or one that has none."""
STATUS = struct.Struct("=i")
"""What the zygote tells of a process: first its number, at last how it ended."""

_CLASSES: dict[str, type[PackhostError]] = {
    kind.code: kind for kind in (NotFound, InvalidInput, ScopeDenied, ToolFailed)
}
OWN_CODES = frozenset(_CLASSES)
"""Codes that a handler may raise by itself; every other one speaks for the host."""


def encode(frame: dict[str, Any]) -> bytes:
    """A frame, ready to send.

    :raises ValueError: for NaN, an infinity or a cycle.
    :raises TypeError: for what JSON does not have.
    :raises RecursionError: for a value that is nested too deeply.
    :raises OverflowError: for a frame over `FRAME_LIMIT`.
    """
    body = json.dumps(frame, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    data = body.encode("utf-8", "surrogatepass")
    if len(data) > FRAME_LIMIT:
        raise OverflowError(len(data))
    return len(data).to_bytes(HEADER, "big") + data


def decode(body: bytes) -> dict[str, Any]:
    """A frame's content.

    :raises ValueError: when it is not one JSON object.
    """
    try:
        frame = json.loads(body, parse_constant=_no_constant)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(frame, dict):
        raise ValueError("not an object")
    return frame


def _no_constant(name: str) -> Any:
    raise ValueError(f"`{name}` is not JSON")


def error_frame(error: PackhostError) -> dict[str, Any]:
    """What crosses of an error: its code and its sentences."""
    return {"code": error.code, "message": error.message, "hint": error.hint}


def error_from(frame: dict[str, Any]) -> PackhostError:
    """The error that a frame speaks of; an unknown code becomes `TOOL_FAILED`."""
    code, message, hint = (str(frame.get(key, "")) for key in ("code", "message", "hint"))
    kind = _CLASSES.get(code)
    if kind is not None:
        return kind(message, hint=hint)
    return PackhostError(message, code=cast(Code, code) if code in CODES else "TOOL_FAILED", hint=hint)
