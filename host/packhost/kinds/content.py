"""What a tool may return besides JSON data: content blocks, as MCP has them, for people and models.

A handler or a kind returns a `Content`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

Block = Mapping[str, Any]
"""One block, in the form that it has on the wire: `{"type": "image", "data": BASE64, "mimeType": …}`."""

_NEEDED: Final[Mapping[str, tuple[str, ...]]] = {
    "text": ("text",),
    "image": ("data", "mimeType"),
    "audio": ("data", "mimeType"),
    "resource_link": ("uri", "name"),
}


@dataclass(frozen=True, slots=True)
class Content:
    """A result of content blocks: `text`, `image`, `audio`, `resource` and `resource_link`.

    `data` is the structured result beside them, an object; a tool that declares an output schema has to
    give it. `None` is none.
    """

    blocks: tuple[Block, ...] = ()
    data: Mapping[str, Any] | None = None


def block_fault(block: Any) -> str | None:
    """What is wrong with a block; `None` for a sound one."""
    if not isinstance(block, Mapping):
        return "a block is not an object"
    kind = block.get("type")
    if kind == "resource":
        inner = block.get("resource")
        if not isinstance(inner, Mapping) or not isinstance(inner.get("uri"), str):
            return "a block of type `resource` holds no resource with a `uri`"
        held = [name for name in ("text", "blob") if isinstance(inner.get(name), str)]
        return None if len(held) == 1 else "a resource holds either `text` or `blob`"
    needed = _NEEDED.get(kind) if isinstance(kind, str) else None
    if needed is None:
        return f"a block has no known type, but `{str(kind)[:40]}`"
    missing = next((name for name in needed if not isinstance(block.get(name), str)), None)
    return None if missing is None else f"a block of type `{kind}` has no text `{missing}`"


def value_of(content: Content) -> Any:
    """The one JSON value of a result: its data, else its text, else its blocks."""
    if content.data is not None:
        return content.data
    if all(block["type"] == "text" for block in content.blocks):
        return "\n".join(block["text"] for block in content.blocks)
    return list(content.blocks)


def text_of(blocks: Sequence[Block]) -> str:
    """Blocks as a model that takes texts alone reads them: of what is no text, what it is."""
    return "\n".join(_as_text(block) for block in blocks)


def _as_text(block: Block) -> str:
    kind = block["type"]
    if kind == "text":
        return str(block["text"])
    if kind == "resource_link":
        return f"[{block['name']}: {block['uri']}]"
    if kind == "resource":
        inner = block["resource"]
        held = inner.get("text")
        return str(held) if held is not None else f"[{_media(inner)}: {inner['uri']}]"
    return f"[{kind}, {_media(block)}, {len(block['data']) * 3 // 4} bytes]"


def _media(block: Mapping[str, Any]) -> str:
    return str(block.get("mimeType") or "bytes of no known type")
