"""The tools on offer as MCP lists them, built once for each state of the catalog."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from mcp import types

from packhost.gate.types import Caller, Listing
from packhost.kinds.base import Tool
from packhost.manifest.elicit import without
from packhost.rules.scopes import NetworkScope
from packhost.server.host import ServerHost
from packhost.server.paging import page

STATUS: Final = "packhost_status"
EXPLAIN: Final = "packhost_explain"
_READS: Final = types.ToolAnnotations(
    read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False
)


_WHOLE: Final = {"anthropic/maxResultSizeChars": 100_000}
"""On tools of ours that read, page by page: a client that puts what is longer into a file of its own has its
agent read it there, around every rule."""
_ALWAYS: Final = {"anthropic/alwaysLoad": True}
"""On one tool alone, since each costs its words in every request: it says what waits for the person, and the
instructions speak of it. Whatever else is wanted, a client's search finds."""


def visible_schema(tool: Tool) -> dict[str, Any]:
    """A tool's input schema without the parameters that the host fills or a person gives."""
    schema, unseen = tool.spec.input_schema, tool.unseen
    return without(schema, unseen) if unseen else schema


def as_mcp(tool: Tool) -> types.Tool:
    """A tool as clients see it."""
    spec = tool.spec
    reads = spec.permission == "read"
    return types.Tool(
        name=tool.wire,
        title=spec.title or tool.id.canonical,
        description=spec.description,
        input_schema=visible_schema(tool),
        output_schema=spec.output_schema,
        annotations=types.ToolAnnotations(
            read_only_hint=reads,
            destructive_hint=not reads and (spec.permission == "admin" or not spec.idempotent),
            idempotent_hint=spec.idempotent,
            open_world_hint=spec.untrusted_output or any(isinstance(s, NetworkScope) for s in tool.scopes),
        ),
        _meta={
            "packhost/tool": tool.id.canonical,
            **({"packhost/own_name": tool.id.wire} if tool.alias else {}),
            "packhost/permission": spec.permission,
            "packhost/required_approvals": list(spec.required_approvals),
            "packhost/required_scopes": list(spec.required_scopes),
            **(_WHOLE if reads and tool.pack.shipped else {}),
        },
    )


OWN: Final = (
    types.Tool(
        name=STATUS,
        title="Status of packhost",
        description="How this host stands: what its person has accepted and what waits to be accepted, "
        "approvals that wait, tools that are withheld and what took them away, problems. If a change waits "
        "to be accepted, this puts it to the person.",
        input_schema={"type": "object", "properties": {}, "additionalProperties": False},
        annotations=_READS,
        _meta=_ALWAYS,
    ),
    types.Tool(
        name=EXPLAIN,
        title="Explain a call",
        description="What would happen to a call, step by step, without making it: whether it would run, be "
        "put to a person or be refused, by which rule or scope, and the nearest call that would be allowed.",
        input_schema={
            "type": "object",
            "properties": {
                "tool": {"type": "string", "description": "The tool, as it is listed or as `pack:tool`."},
                "arguments": {"type": "object", "description": "The arguments of the call."},
            },
            "required": ["tool"],
            "additionalProperties": False,
        },
        annotations=_READS,
    ),
)


class Catalog:
    """The current listing; rebuilt when the host's generation has moved."""

    def __init__(self, host: ServerHost) -> None:
        self._host = host
        self._generation: int | None = None
        self._listing = Listing((), ())
        self._tools: dict[str, Tool] = {}
        self._schemas: dict[str, Mapping[str, Any]] = {}
        self._offered: tuple[types.Tool, ...] | None = None

    def tool(self, name: str) -> Tool | None:
        """The listed tool of that wire or canonical name."""
        self._refresh()
        return self._tools.get(name)

    def schema(self, name: str) -> Mapping[str, Any] | None:
        """The input schema that clients were shown for a wire name."""
        self._refresh()
        return self._schemas.get(name)

    @property
    def listing(self) -> Listing:
        """What is on offer and what is withheld."""
        self._refresh()
        return self._listing

    @property
    def offered(self) -> tuple[types.Tool, ...]:
        """All tools as clients see them; the host's own first, so that they are on the first page."""
        self._refresh()
        if self._offered is None:
            self._offered = (*OWN, *map(as_mcp, self._listing.tools))
        return self._offered

    def listed(self, cursor: str | None = None) -> types.ListToolsResult:
        """What `tools/list` answers; raises `MCPError` for a cursor that leads nowhere."""
        tools, after = page(self.offered, cursor, lambda tool: tool.name)
        return types.ListToolsResult(tools=list(tools), next_cursor=after)

    def _refresh(self) -> None:
        generation = self._host.generation
        if generation == self._generation:
            return
        listing = self._host.gate.listed(Caller(self._host.principal, "listing", "listing"))
        self._listing = listing
        self._tools = {name: tool for tool in listing.tools for name in (tool.wire, tool.id.canonical)}
        self._schemas = {tool.wire: visible_schema(tool) for tool in listing.tools}
        self._schemas.update((tool.name, tool.input_schema) for tool in OWN)
        self._offered = None
        self._generation = generation
