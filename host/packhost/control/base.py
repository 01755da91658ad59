"""Operations on a running host by name: what the CLI, the console and later the API ask for.

The same operations run in the process that holds the workspace and, through its private socket,
from any other process of the same user.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from packhost.control.consoles import Consoles
from packhost.errors import InvalidInput
from packhost.executions.runs import Runs
from packhost.gate.configuration import Configuration
from packhost.gate.gate import Gate
from packhost.kinds.mcp.kind import McpKind
from packhost.kinds.record import TraceWriter
from packhost.store.base import Store
from packhost.workspace.workspace import Workspace


class Control(Protocol):
    """A way to a host's operations."""

    async def request(self, op: str, params: dict[str, Any]) -> Any:
        """Run one operation; its JSON result. Raises `PackhostError` as the operation does."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What the operations work on."""

    workspace: Workspace
    store: Store
    gate: Gate
    runs: Runs
    configuration: Callable[[], Configuration]
    changed: Callable[[], Awaitable[None]]
    """Called after an acceptance: reloads and tells the clients."""
    principal: str
    """The operating system's user: whom a person at the command line acts as."""
    trace_writers: Mapping[str, TraceWriter] = field(default_factory=dict)
    """What writes a run as a trace, by the name of its driver."""
    consoles: Consoles = field(default_factory=Consoles)
    """Where consoles show this workspace."""
    upstreams: McpKind | None = None
    """The servers that packs have upstream."""


Operation = Callable[[Parts, Mapping[str, Any]], Awaitable[Any]]


def text(params: Mapping[str, Any], name: str, default: str | None = None) -> str:
    """A text parameter.

    :raises InvalidInput: when it is missing and has no default, or is not text.
    """
    value = params.get(name, default)
    if not isinstance(value, str):
        raise InvalidInput(f"`{name}` is missing or not text", hint=f"give `{name}`")
    return value


def optional(params: Mapping[str, Any], name: str) -> str | None:
    """A text parameter that may be left out.

    :raises InvalidInput: when it is not text.
    """
    return None if params.get(name) is None else text(params, name)


def whole(params: Mapping[str, Any], name: str, default: int, most: int = 1_000) -> int:
    """A whole number from 0 to `most`.

    :raises InvalidInput: when it is something else.
    """
    value = params.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise InvalidInput(f"`{name}` is not a whole number from 0 to {most}", hint=f"give `{name}` as one")
    return value
