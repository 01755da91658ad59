"""Whether text looks like a tool call. It is asked only to say so, never to run anything."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

_MARKS = (
    "<tool_call>",
    "<tool_use>",
    "<function_call",
    "<function=",
    "<invoke ",
    "[TOOL_CALLS]",
    "<|tool_call",
    "<|python_tag|>",
    "requested_tools",
)
_MEMBERS = ('"arguments"', '"input"', '"parameters"', '"args"', '"tool_input"')
_NAMES = ('"name"', '"tool"', '"tool_name"', '"function"')
_QUOTED = re.compile(r'"([^"\\\n]{1,128})"')
MAX_TEXT = 65_536
"""Characters of a reply's text that are looked at."""


def looks_like_a_call(texts: Sequence[str], tools: Collection[str]) -> bool:
    """Whether a reply's text holds a mark of a call, or JSON that names one of the tools."""
    text = "".join(texts)[:MAX_TEXT]
    if any(mark in text for mark in _MARKS):
        return True
    if "{" not in text or not any(member in text for member in _NAMES):
        return False
    named = any(found[1] in tools for found in _QUOTED.finditer(text))
    return named and any(member in text for member in _MEMBERS)
