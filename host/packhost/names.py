"""Identifiers: packs, tools, sessions, records; how they are spelled and made.

On the wire a tool is `<pack>_<tool>`. A pack's id has no underscore, so the first one splits it.
"""

from __future__ import annotations

import difflib
import os
import re
import time
from collections.abc import Iterable
from typing import NamedTuple

PACK_ID = re.compile(r"[a-z][a-z0-9-]*\Z")
TOOL_NAME = re.compile(r"[a-z][a-z0-9_-]*\Z")
SESSION_ID = re.compile(r"[A-Za-z0-9._-]{1,64}\Z")
RESERVED_PACK = "packhost"
INLINE_PACK = "inline"
"""The pack of tools that are defined for one run."""
RELAYED = "packhost/relayed"
"""Numbers a relayed call in its session, beside its members on a relay's line and in `_meta` after it."""
IDEMPOTENCY_KEY = "packhost/idempotency-key"
"""In a call's `_meta`: what names it, so that it does nothing twice however often it is sent."""
INTENT = "packhost/intent"
"""In a call's `_meta`: `mandatory` where nothing may start before its intent is on record."""
WIRE_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")
"""What every client and model provider takes as it is: of anything else some make `_`."""
WIRE_LIMIT = 64
"""Longest wire name that every model provider takes."""
CURSOR_LIMIT = 60
"""Longest server name and wire name together that Cursor shows."""

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"


class ToolId(NamedTuple):
    """A tool's identity: its pack and its name in that pack."""

    pack: str
    tool: str

    @property
    def canonical(self) -> str:
        """`pack:tool`, used in configuration, records and the CLI."""
        return f"{self.pack}:{self.tool}"

    @property
    def wire(self) -> str:
        """`pack_tool`, used towards models, and MCP clients where the workspace gives no other name."""
        return f"{self.pack}_{self.tool}"

    def __str__(self) -> str:
        return self.canonical


def parse_tool(text: str) -> ToolId | None:
    """Read a canonical (`pack:tool`) or wire (`pack_tool`) name; `None` when it is neither."""
    for separator in (":", "_"):
        pack, found, tool = text.partition(separator)
        if found and PACK_ID.match(pack) and TOOL_NAME.match(tool):
            return ToolId(pack, tool)
    return None


def alike(wire: str) -> str:
    """What two wire names have in common that one is easily taken for the other."""
    return wire.casefold().replace("-", "_")


def reserved(wire: str) -> bool:
    """Whether a wire name looks like one of the host's own, or of a tool that is defined for one run."""
    pack = alike(wire).partition("_")[0]
    return pack in (RESERVED_PACK, INLINE_PACK)


def new_id(prefix: str) -> str:
    """A new identifier whose text order is its order in time: `prefix_` and 26 characters."""
    number = (time.time_ns() // 1_000_000) << 80 | int.from_bytes(os.urandom(10), "big")
    return f"{prefix}_" + "".join(_ALPHABET[number >> shift & 31] for shift in range(125, -1, -5))


def nearest(word: str, known: Iterable[str], count: int = 3) -> list[str]:
    """The known words most like `word`, best first; empty when none is close."""
    return difflib.get_close_matches(word, list(known), n=count, cutoff=0.5)
