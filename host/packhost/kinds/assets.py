"""Binary results: kept by the host, and handed on by an opaque handle that a model can pass as a text."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Protocol

SCHEME: Final = "packhost-asset://"
LARGEST: Final = 6 * 1024 * 1024
"""Bytes of one: as base64 it still fits into one request."""
TOTAL: Final = 256 * 1024 * 1024
"""Bytes that are kept for one principal at a time."""
LIFETIME: Final = 7 * 86_400.0
"""Seconds."""
UNKNOWN: Final = "application/octet-stream"

_HANDLE: Final = re.compile(rf"{SCHEME}(asset_[0-9a-z]{{26}})\Z")
_SIGNATURES: Final = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"%PDF-", "application/pdf"),
    (b"PK\x03\x04", "application/zip"),
)


@dataclass(frozen=True, slots=True)
class Asset:
    """What a handle stands for; `base64` is its content."""

    handle: str
    media_type: str
    size: int
    base64: str


class AssetService(Protocol):
    """Assets of a workspace: each belongs to one principal and to one family of sessions.

    A family is a session, those that it was opened from, and those opened from them.
    """

    async def keep(self, data: bytes, media_type: str, *, session_id: str, principal: str) -> Asset:
        """Keep bytes for seven days; raises `PackhostError` when they are too many."""

    async def open(self, handle: str, *, session_id: str, principal: str) -> Asset:
        """What a handle stands for; raises `NotFound` when it is missing, expired or another's."""


def asset_id(handle: str) -> str | None:
    """The identifier in a handle; `None` for what is none."""
    match = _HANDLE.match(handle)
    return None if match is None else match[1]


def media_type_of(data: bytes) -> str:
    """The type of bytes that come without one, told by how they begin."""
    return next((media for begin, media in _SIGNATURES if data.startswith(begin)), UNKNOWN)
