"""What a pack's manifest says, as a model; its field descriptions are the reference of the format.

Rules that reach over several fields are kept in `checks`, which `load` applies.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from packhost.manifest.upstream import UpstreamSpec
from packhost.manifest.values import Duration, Flag, ScopeLine

Permission = Literal["read", "write", "admin"]
Assurance = Literal["client", "operator"]

NAME = r"^[a-z][a-z0-9_-]*$"
PACK = r"^[a-z][a-z0-9-]*$"
APPROVAL = r"^[a-z][a-z0-9-]*:[a-z][a-z0-9_-]*$"

TARGET = r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*$"

ToolName = Annotated[str, Field(pattern=NAME, max_length=64)]
PackId = Annotated[str, Field(pattern=PACK, max_length=62)]
ApprovalName = Annotated[str, Field(pattern=APPROVAL)]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class NamedApprovalSpec(_Model):
    """A question that tools of this pack put to a person before they run."""

    name: ToolName = Field(description="Its name in this pack; tools refer to it as `<pack>:<name>`.")
    title: str = Field(min_length=1, description="What the person is asked to agree to, in a few words.")
    description: str = Field(default="", description="What agreeing makes possible.")
    assurance: Assurance = Field(
        default="client",
        description="Who may answer: `client` any channel, `operator` only one that asks for a passphrase.",
    )
    grantable: Flag = Field(
        default=True, description="Whether a person may agree once for the calls that follow."
    )


class ToolSpec(_Model):
    """One tool: what it takes and returns, what it may touch and who must agree."""

    name: ToolName = Field(description="Its name in this pack; canonically the tool is `<pack>:<name>`.")
    title: str = Field(default="", description="A short title for people; the canonical name if left out.")
    description: str = Field(min_length=1, description="What the tool does, for the agent that calls it.")
    kind: Annotated[str, Field(pattern=NAME)] = Field(
        description="What runs it: `python`, `http`, `code`, `client`, `mcp` or a kind that a pack provides."
    )
    target: str | None = Field(
        default=None,
        pattern=TARGET,
        description="Of kind `python`, the handler: `module:function`.",
    )
    permission: Permission = Field(description="The strongest thing the tool does.")
    required_approvals: tuple[ApprovalName, ...] = Field(
        default=(), description="Named approvals, `<pack>:<name>`, that each call needs."
    )
    required_scopes: tuple[ScopeLine, ...] = Field(
        default=(),
        description="What the tool may touch, a scope a line: `path read|write GLOB`, `network HOST[:PORT]`, "
        "`env NAME`, `secret NAME`, `exec PROGRAM`, `tool PATTERN`.",
    )
    input_schema: dict[str, Any] = Field(
        default_factory=lambda: {"type": "object", "properties": {}, "additionalProperties": False},
        description="JSON Schema 2020-12 of the arguments, of type `object`. A string property may carry "
        "`x-path: read` or `x-path: write`: its value is then checked as a path.",
    )
    output_schema: dict[str, Any] | None = Field(
        default=None, description="JSON Schema 2020-12 of the result, of type `object`."
    )
    config: dict[str, Any] = Field(default_factory=dict, description="What the kind needs besides.")
    idempotent: Flag = Field(
        default_factory=lambda fields: fields.get("permission") == "read",
        description="Whether the same call made twice has the effect of one. "
        "Left out: `true` for `permission: read`, else `false`.",
    )
    timeout: Duration = Field(default=60.0, description="How long one call may run.")
    untrusted_output: Flag = Field(
        default=False, description="Whether results come from outside and are marked so for the model."
    )
    hidden_parameters: tuple[str, ...] = Field(
        default=(),
        description="Properties that the workspace's `variables`, or those of the run, fill and that no "
        "agent sees. One that nothing fills stays the agent's to give; one with a leading `_` has to be "
        "filled.",
    )
    control: Flag = Field(
        default=False, description="Shipped packs only: autonomy levels do not apply to this tool."
    )


class PackManifest(_Model):
    """A pack: its tools, the approvals they ask for and the section of packhost.yaml that it owns."""

    packhost: Literal[1] = Field(description="The version of this format.")
    id: PackId = Field(description="The pack's name; `packhost` is reserved.")
    version: str = Field(
        min_length=1, max_length=64, description="The pack's own version, in quotes if `1.0`."
    )
    title: str = Field(min_length=1, description="A short title for people.")
    description: str = Field(default="", description="What the pack is for.")
    config_key: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")] | None = Field(
        default=None, description="The section of packhost.yaml that this pack owns."
    )
    config_schema: dict[str, Any] | None = Field(
        default=None, description="JSON Schema 2020-12 of that section."
    )
    approvals: tuple[NamedApprovalSpec, ...] = Field(
        default=(), description="The named approvals that the pack's tools ask for."
    )
    upstream: UpstreamSpec | None = Field(
        default=None, description="The MCP server that the pack's tools of kind `mcp` go to."
    )
    tools: tuple[ToolSpec, ...] = Field(
        description="The pack's tools; empty for a pack that only provides kinds or other hooks."
    )

    def tool(self, name: str) -> ToolSpec | None:
        """The tool of that name, without its pack."""
        return next((tool for tool in self.tools if tool.name == name), None)
