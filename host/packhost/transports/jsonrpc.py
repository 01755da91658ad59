"""What JSON-RPC is made of, without the SDK: a relay and the command line start without it."""

from __future__ import annotations

import json
from typing import Final

import pydantic_core

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
CONNECTION_CLOSED: Final = -32000


def to_json(value: object) -> bytes:
    """JSON without spaces; a lone surrogate, which UTF-8 cannot carry, is escaped."""
    try:
        return pydantic_core.to_json(value)
    except (pydantic_core.PydanticSerializationError, UnicodeEncodeError):
        return json.dumps(value, separators=(",", ":")).encode()


def error_line(id: str | int | None, code: int, message: str) -> bytes:
    """A JSON-RPC error as one line."""
    return to_json({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}})
