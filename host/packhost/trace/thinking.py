"""Thinking of both protocols in one form, and what was kept of it against what the provider gave."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from packhost.trace.findings import Findings

_KINDS = ("thinking", "redacted_thinking")


@dataclass
class Thought:
    """One thinking block or reasoning item; `key` tells the items of one reply apart."""

    kind: str
    texts: list[str]
    signatures: list[str]
    key: Any = None

    @property
    def text(self) -> str:
        """What was thought, of all fragments."""
        return "".join(self.texts)

    @property
    def signature(self) -> str:
        """The signature, of all fragments; empty for none."""
        return "".join(self.signatures)

    def grow(self, text: Any, signature: Any) -> None:
        """Add a fragment."""
        self.texts += [text] if isinstance(text, str) else []
        self.signatures += [signature] if isinstance(signature, str) else []


def thoughts(message: Mapping[str, Any], *, merge: bool = True) -> list[Thought]:
    """The thinking of an assistant message, in order; with `merge` fragments of one item are one."""
    content = message.get("content")
    found = [
        Thought(b["type"], [_text(b, "thinking", "data")], [_text(b, "signature")], ("block", place))
        for place, b in enumerate(content if isinstance(content, list) else ())
        if isinstance(b, Mapping) and b.get("type") in _KINDS
    ]
    details = message.get("reasoning_details")
    items: dict[Any, Thought] = {}
    for place, raw in enumerate(details if isinstance(details, list) else ()):
        if not isinstance(raw, Mapping):
            continue
        index = raw.get("index")
        key = (str(raw.get("type")), index if type(index) is int else f"at {place}")
        one = Thought(key[0], [_text(raw, "text", "summary", "data")], [_text(raw, "signature")], key)
        if merge and key in items:
            items[key].grow(one.text, one.signature)
        else:
            items[key] = one
            found.append(one)
    return found


def _text(raw: Mapping[str, Any], *names: str) -> str:
    return "".join(raw[name] for name in names if isinstance(raw.get(name), str))


def compare(
    given: Sequence[Thought], kept: Sequence[Thought], path: str, turn: int, findings: Findings
) -> None:
    """Say what of the thinking that was given is no longer so in what was kept or sent back."""
    if len(kept) < len(given):
        findings.add("THINKING_MISSING", path, f"{len(kept)} of {len(given)} items are left", turn=turn)
        return
    if [_whole(one) for one in given] == [_whole(one) for one in kept]:
        return
    if sorted(map(_whole, given)) == sorted(map(_whole, kept)):
        findings.add("THINKING_REORDERED", path, "the items have another order", turn=turn)
        return
    for was, now in zip(given, kept, strict=False):
        if (was.kind, was.text) == (now.kind, now.text) and was.signature and not now.signature:
            findings.add("SIGNATURE_LOST", path, "an item has lost its signature", turn=turn)
            return
    findings.add("THINKING_MODIFIED", path, "an item is not what the provider gave", turn=turn)


def _whole(thought: Thought) -> tuple[str, str, str]:
    return (thought.kind, thought.text, thought.signature)
