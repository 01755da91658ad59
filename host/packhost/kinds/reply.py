"""What a fetch brings, apart from what makes one: a handler's process needs no more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FetchReply:
    """What came back; `url` is where it came from in the end, header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    url: str
