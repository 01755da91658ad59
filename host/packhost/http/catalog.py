"""What there is and how it stands: tools, packs, explanations, the record's head, the host."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from packhost.control import audit, consent, tools
from packhost.http.kit import CLIENT, Call, Model, Reply
from packhost.http.runs import SESSION


class Tool(Model):
    """A tool on offer."""

    tool: str
    wire: str = Field(description="What clients call it.")
    own_name: str = Field(description="`<pack>_<tool>`, which clients call it unless `names` says otherwise.")
    title: str
    description: str
    permission: str
    kind: str
    required_approvals: list[str]
    scopes: list[str]
    enforcement: str = Field(description="How strongly its scopes are enforced here.")
    idempotent: bool
    remaining: list[str] = Field(description="What the workspace leaves of its scopes.")


class Withheld(Model):
    """A tool that is not on offer, the layer that took it away, and why."""

    tool: str
    layer: str
    reason: str


class Tools(Model):
    """The tools on offer, and those withheld."""

    tools: list[Tool]
    withheld: list[Withheld]
    withheld_count: int


class ToolDetail(Tool):
    """A tool whole."""

    pack: dict[str, Any]
    version: str
    timeout: float
    control: bool
    hidden_parameters: list[str]
    input_schema: dict[str, Any]
    output_schema: dict[str, Any] | None
    layers: list[dict[str, Any]]
    withheld_by: str | None


class Pack(Model):
    """A pack and its tools."""

    id: str
    version: str
    title: str
    shipped: bool
    trusted: bool
    digest: str
    tools: list[str]
    withheld: list[str]


class Packs(Model):
    """The packs whose tools are known, and what kept others out."""

    packs: list[Pack]
    problems: list[str]
    warnings: list[str]


class Explanation(Model):
    """A call to explain."""

    tool: str = Field(min_length=1, max_length=256)
    arguments: dict[str, Any] = Field(default_factory=dict)
    session_id: str | None = Field(None, pattern=SESSION, description="Whose autonomy holds.")


class Explained(Model):
    """Every step up to the first that would stop the call; nothing was run."""

    tool: str
    verdict: str
    steps: list[dict[str, Any]]
    refusal: dict[str, Any] | None
    enforcement: str | None


class AuditHead(Model):
    """The end of the chain: what to keep elsewhere, to prove later that nothing was cut off."""

    id: int
    hash: str
    time: float | None
    count: int


class Status(Model):
    """How the host stands."""

    workspace: str
    accepted: bool
    pending: list[dict[str, Any]]
    problems: list[str]
    warnings: list[str]
    broken: str | None
    approvals_pending: int
    operator: dict[str, Any]
    autonomy: dict[str, Any]
    enforcement: dict[str, Any]
    store: dict[str, Any]
    tools: list[str]
    withheld: list[Withheld]
    identity: dict[str, Any] = Field(description="Whom the token stands for, and what it may do.")


async def tools_list(call: Call) -> Reply:
    """`GET /v1/tools`."""
    return Reply(await tools.listing(call.parts, {"all": True}))


async def tools_show(call: Call) -> Reply:
    """`GET /v1/tools/{tool}`: by canonical or wire name."""
    return Reply(await tools.show(call.parts, {"tool": call.path["tool"]}))


async def packs_list(call: Call) -> Reply:
    """`GET /v1/packs`."""
    return Reply(await tools.packs(call.parts, {}))


async def explain(call: Call) -> Reply:
    """`POST /v1/explain`: what the gate would do with a call of the caller's."""
    params = {
        "tool": call.body.tool,
        "arguments": call.body.arguments,
        "client": CLIENT,
        "session": call.body.session_id or call.shared.cursors.session(call.identity.principal),
    }
    return Reply(await tools.explain(call.parts, params))


async def audit_head(call: Call) -> Reply:
    """`GET /v1/audit/head`."""
    return Reply(await audit.head(call.parts, {}))


async def status(call: Call) -> Reply:
    """`GET /v1/status`: without what only a process of the same user has a use for."""
    shown = dict(consent.status_json(call.parts))
    for name in set(shown) - Status.model_fields.keys():
        del shown[name]
    who = call.identity
    shown["identity"] = {"principal": who.principal, "role": who.role, "scopes": sorted(who.scopes)}
    return Reply(shown)
