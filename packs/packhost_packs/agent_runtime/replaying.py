"""What a model is sent of calls that the caller of an earlier run made.

The history keeps every call with its result, and each later turn is sent both exactly as they were first.
Two kinds of calls are left out: those of tools that are not on offer any more, and those that were never
answered because their run ended. What is left out follows from the history and the tools alone, so that the
same tools mean the same beginning of every request.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from packhost_packs.agent_runtime.conversation import Message

MARK = "client_calls"
"""The member of an assistant message that says of each call of a client tool whether it was answered."""

_CANONICAL = "client:"
"""How the canonical name of such a tool begins, by which a model may call it too."""


def marked_calls(message: Message, answered: Mapping[str, bool]) -> Message:
    """The message with its calls of client tools marked."""
    return {**message, MARK: dict(answered)} if answered else message


def replayed(messages: Iterable[Message], offered: Collection[str]) -> Iterator[Message]:
    """The messages as a model with these tools is sent them."""
    gone: set[str] = set()
    for message in messages:
        if message["role"] == "assistant":
            gone = _gone(message, offered)
        if not gone:
            yield message
            continue
        kept = [block for block in message["content"] if _identity(block) not in gone]
        if len(kept) == len(message["content"]):
            yield message
        elif kept:
            # what a provider said itself is one with the calls in it
            yield {"role": message["role"], "content": kept}


def _gone(message: Message, offered: Collection[str]) -> set[str]:
    marks: Mapping[str, bool] = message.get(MARK) or {}
    names = {block["id"]: block["name"] for block in message["content"] if block["type"] == "tool_call"}
    return {
        one
        for one, answered in marks.items()
        if not answered or names.get(one, "").removeprefix(_CANONICAL) not in offered
    }


def _identity(block: Mapping[str, Any]) -> Any:
    return block.get("tool_use_id") if block["type"] == "tool_result" else block.get("id")
