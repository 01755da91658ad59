"""`spawn_subagent`: the tool by which a model decides what to hand to a subagent, and with which tools."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from packhost.api import InvalidInput, OfferedTool

SPAWN = "spawn_subagent"
MAX_SPAWNS = 5
MAX_TURNS = 10
_LISTED = 100
_RANGES = {
    "max_spawns_per_run": (1, 50),
    "max_turns_limit": (1, 100),
    "default_max_turns": (1, 100),
    "default_timeout_ms": (1_000, 600_000),
}
_KNOWN = (*_RANGES, "tool_pool", "allow_nesting", "default_model")


@dataclass(frozen=True, slots=True)
class Spawning:
    """What subagents a run's model may start by itself."""

    tool_pool: tuple[str, ...] | None
    max_spawns: int
    max_turns: int
    default_max_turns: int
    default_model: str | None
    default_timeout_ms: int | None
    allow_nesting: bool


def spawning_of(config: Mapping[str, Any], at: str = "/subagent_config") -> Spawning:
    """The configuration as it holds; raises `InvalidInput` for what it may not be."""
    for name, value in config.items():
        if name not in _KNOWN:
            raise InvalidInput(f"`{str(name)[:64]}` is not known", path=f"{at}/{name}", hint=_known())
        least, most = _RANGES.get(name, (0, 0))
        if most and (isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most):
            raise InvalidInput(
                f"`{name}` is not from {least} to {most}", path=f"{at}/{name}", hint="correct it"
            )
    pool = config.get("tool_pool")
    if pool is not None and not (isinstance(pool, list) and all(isinstance(one, str) for one in pool)):
        raise InvalidInput(
            "`tool_pool` is not a list of names", path=f"{at}/tool_pool", hint="write `[NAME]`"
        )
    if not isinstance(config.get("allow_nesting", False), bool):
        raise InvalidInput("`allow_nesting` is true or false", path=f"{at}/allow_nesting", hint="correct it")
    most_turns = config.get("max_turns_limit", MAX_TURNS)
    return Spawning(
        None if pool is None else tuple(pool),
        config.get("max_spawns_per_run", MAX_SPAWNS),
        most_turns,
        min(config.get("default_max_turns", most_turns), most_turns),
        config.get("default_model"),
        config.get("default_timeout_ms"),
        config.get("allow_nesting", False),
    )


def _known() -> str:
    return f"known: {', '.join(f'`{one}`' for one in _KNOWN)}"


def named(tool: OfferedTool, patterns: Sequence[str]) -> bool:
    """Whether one of the patterns is the tool's, by its name or its canonical one."""
    return any(
        fnmatch.fnmatchcase(name, pattern) for pattern in patterns for name in (tool.name, tool.canonical)
    )


def spawn_definition(config: Mapping[str, Any], tools: Sequence[OfferedTool]) -> dict[str, Any]:
    """The tool as the run brings it; `tools` are the run's own."""
    spawning = spawning_of(config)
    pool = [tool.name for tool in tools if spawning.tool_pool is None or named(tool, spawning.tool_pool)]
    names: dict[str, Any] = {"type": "string"}
    if 0 < len(pool) <= _LISTED:
        names["enum"] = pool
    return {
        "name": SPAWN,
        "description": (
            "Hand a self-contained task to a subagent with a conversation of its own: it sees nothing of "
            f"this one, and only its final answer comes back. At most {spawning.max_spawns} in this run."
        ),
        "tool_type": "subagent",
        "parameters_schema": {
            "type": "object",
            "additionalProperties": False,
            "required": ["task"],
            "properties": {
                "task": {"type": "string", "minLength": 1, "description": "All that it needs to know."},
                "tools": {"type": "array", "items": names, "description": "Its tools; none if left out."},
                "system": {"type": "string", "description": "Who it is and how it is to work."},
                "max_turns": {"type": "integer", "minimum": 1, "maximum": spawning.max_turns},
            },
        },
        "config": {"spawn": dict(config)},
    }
