"""Tool search: which of many tools fit some words, ranked the same each time.

A word counts the more, the fewer tools have it, and more in a name than in a description; a part of a word
counts less than a whole one. Equal scores are ordered by name.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from packhost.api import OfferedTool

SEARCH = "tool_search"
FROM = 20
"""So many tools a run has before some are held back."""
FOUND = 5
MOST_FOUND = 20

_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_SPACED = {code: " " for code in range(128) if not chr(code).isalnum()}
_IN_NAME, _PART_OF_NAME, _IN_TEXT, _PART_OF_TEXT = 4.0, 2.5, 1.5, 1.0
_WORDS = 12

TOOL = OfferedTool(
    name=SEARCH,
    canonical=SEARCH,
    description=(
        "Find further tools by what they are for. Those that are found can be called from your next turn on; "
        "until then they are not there."
    ),
    input_schema={
        "type": "object",
        "additionalProperties": False,
        "required": ["query"],
        "properties": {
            "query": {"type": "string", "minLength": 1, "maxLength": 500, "description": "A few words."},
            "limit": {
                "type": "integer",
                "minimum": 1,
                "maximum": MOST_FOUND,
                "description": "5 if left out.",
            },
        },
    },
    idempotent=True,
    read_only=True,
)


class Index:
    """Tools made ready to be searched."""

    def __init__(self, tools: Sequence[OfferedTool]) -> None:
        self._tools = tools
        self._names = [f" {_plain(tool.name)} " for tool in tools]
        self._texts = [
            f" {_words(f'{tool.title} {tool.description}')} {_plain(_parameters(tool))} " for tool in tools
        ]

    def find(self, query: str, limit: int = FOUND) -> list[OfferedTool]:
        """The tools that fit best, best first; none where no word is found at all."""
        scores = [0.0] * len(self._tools)
        for word in list(dict.fromkeys(_plain(query).split()))[:_WORDS]:
            whole = f" {word} "
            hits: list[tuple[int, float]] = []
            for index, (name, text) in enumerate(zip(self._names, self._texts, strict=True)):
                if word in name:
                    hits.append((index, _IN_NAME if whole in name else _PART_OF_NAME))
                elif word in text:
                    hits.append((index, _IN_TEXT if whole in text else _PART_OF_TEXT))
            rarity = math.log(1 + len(self._tools) / len(hits)) if hits else 0.0
            for index, worth in hits:
                scores[index] += worth * rarity
        ranked = sorted(
            (index for index, score in enumerate(scores) if score > 0),
            key=lambda index: (-round(scores[index], 9), self._tools[index].name),
        )
        return [self._tools[index] for index in ranked[:limit]]


def asked_for(arguments: Mapping[str, Any]) -> tuple[str, int] | None:
    """The words and how many tools are wanted; `None` for what is no search."""
    query, limit = arguments.get("query"), arguments.get("limit", FOUND)
    if (
        not isinstance(query, str)
        or not query.strip()
        or isinstance(limit, bool)
        or not isinstance(limit, int)
    ):
        return None
    return query[:500], max(1, min(limit, MOST_FOUND))


def _plain(text: str) -> str:
    """Words in lower case between spaces; a name in camel case falls apart."""
    return _words(_HUMP.sub(" ", text))


def _words(text: str) -> str:
    return text.lower().translate(_SPACED)


def _parameters(tool: OfferedTool) -> str:
    properties = tool.input_schema.get("properties")
    return " ".join(map(str, properties)) if isinstance(properties, Mapping) else ""
