"""How the workspace stands, for the first page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from packhost.console.views.texts import Moment, moment, shown

_RECENT: Final = 3_600.0
"""Seconds within which a session that did something counts as at work."""
_REQUIRE: Final[Mapping[str, str]] = {
    "kernel": "Foreign packs run only where the kernel holds their process to all of their scopes.",
    "partial": "Foreign packs run where the kernel holds part of their scopes at least, the host the rest.",
    "advisory": "Foreign packs also run where nothing but the host's own checks holds them.",
}


@dataclass(frozen=True, slots=True)
class Client:
    """A client that did something lately."""

    name: str
    sessions: int
    last: Moment | None


@dataclass(frozen=True, slots=True)
class Overview:
    """The first page."""

    workspace: str
    accepted: bool
    pending: tuple[str, ...]
    with_code: bool
    problems: tuple[str, ...]
    warnings: tuple[str, ...]
    broken: str
    waiting: int
    tools: int
    withheld: int
    store: str
    require: str
    requires: str
    default_level: str
    maximum_level: str
    operator: str
    operator_note: str
    hosts: tuple[str, ...]
    clients: tuple[Client, ...]


def overview_of(
    status: Mapping[str, Any], sessions: Sequence[Mapping[str, Any]], waiting: int, now: float
) -> Overview:
    """Of what `status` and `sessions.list` return."""
    require = status["enforcement"]["require"]
    operator = status["operator"]
    return Overview(
        workspace=shown(status["workspace"]),
        accepted=bool(status["accepted"]),
        pending=tuple(shown(one["text"]) for one in status["pending"]),
        with_code=any(one["code"] for one in status["pending"]),
        problems=tuple(map(shown, status["problems"])),
        warnings=tuple(map(shown, status["warnings"])),
        broken=shown(status["broken"] or ""),
        waiting=waiting,
        tools=len(status["tools"]),
        withheld=len(status["withheld"]),
        store=shown(status["store"]["label"]),
        require=require,
        requires=_REQUIRE.get(require, ""),
        default_level=status["autonomy"]["default"],
        maximum_level=status["autonomy"]["maximum"],
        operator=operator["state"],
        operator_note=shown(operator["why"]),
        hosts=tuple(
            f"process {one['pid']} on {shown(one['host'])}{', stopping' if one['draining'] else ''}"
            for one in status["replicas"]
        ),
        clients=_clients(sessions, now),
    )


def _clients(sessions: Sequence[Mapping[str, Any]], now: float) -> tuple[Client, ...]:
    found: dict[str, list[float]] = {}
    for one in sessions:
        if now - one["updated_at"] <= _RECENT:
            found.setdefault(one["client"], []).append(one["updated_at"])
    rows = sorted(found.items(), key=lambda row: -max(row[1]))
    return tuple(Client(shown(name), len(times), moment(max(times), now)) for name, times in rows)
