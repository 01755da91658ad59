"""Tool search: which of many tools fit some words, ranked the same each time.

A word counts the more, the fewer tools have it, and more in a name than in a description; a part of a word
counts less than a whole one. Equal scores are ordered by name.
"""

from __future__ import annotations

import heapq
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
_NOTHING = 1e-8
"""Scores that differ by less are the same."""

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
    """Tools made ready to be searched: where each of their words stands."""

    def __init__(self, tools: Sequence[OfferedTool]) -> None:
        self._tools = tools
        self._names: dict[str, list[int]] = {}
        self._texts: dict[str, list[int]] = {}
        for index, tool in enumerate(tools):
            for word in set(_plain(tool.name).split()):
                self._names.setdefault(word, []).append(index)
            text = f"{_words(f'{tool.title} {tool.description}')} {_plain(_parameters(tool))}"
            for word in set(text.split()):
                self._texts.setdefault(word, []).append(index)

    def find(self, query: str, limit: int = FOUND) -> list[OfferedTool]:
        """The tools that fit best, best first; none where no word is found at all."""
        scores: dict[int, float] = {}
        for word in list(dict.fromkeys(_plain(query).split()))[:_WORDS]:
            worth = self._worth(word)
            rarity = math.log(1 + len(self._tools) / len(worth)) if worth else 0.0
            for index, one in worth.items():
                scores[index] = scores.get(index, 0.0) + one * rarity
        if not scores:
            return []
        least = heapq.nlargest(limit, scores.values())[-1] - _NOTHING
        best = [index for index, score in scores.items() if score >= least]
        ranked = sorted(best, key=lambda index: (-round(scores[index], 9), self._tools[index].name))
        return [self._tools[index] for index in ranked[:limit]]

    def _worth(self, word: str) -> dict[int, float]:
        """What a word is worth for each tool that has it, or a word that it is a part of."""
        worth: dict[int, float] = {}
        # from the least to the most, so that the best place of a word counts
        for places, whole, part in (
            (self._texts, _IN_TEXT, _PART_OF_TEXT),
            (self._names, _IN_NAME, _PART_OF_NAME),
        ):
            for known, where in places.items():
                if known != word and word in known:
                    worth.update(dict.fromkeys(where, part))
            worth.update(dict.fromkeys(places.get(word, ()), whole))
        return worth


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
