"""What `packhost.yaml` says, as a model; its field descriptions are the reference of the file.

Every key that is left out has the value that holds with no file at all, so that a short file is never
wider than none. A key that is not packhost's own is the section of an enabled pack.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    StrictInt,
    model_validator,
)

from packhost.errors import PackhostError
from packhost.manifest.model import ApprovalName, Assurance, PackId, Permission
from packhost.manifest.values import Duration, Flag, ScopeLine, Size, fault
from packhost.names import PACK_ID, TOOL_NAME, WIRE_LIMIT, WIRE_NAME, alike, reserved
from packhost.rules.autonomy import Level
from packhost.rules.globs import check_tool_pattern
from packhost.rules.policy import Verdict
from packhost.shipped import SHIPPED_PACKS
from packhost.workspace.authorization import AuthSettings
from packhost.workspace.hooks import HookName, WebhookSettings
from packhost.workspace.secrets import check_reference

Requirement = Literal["kernel", "partial", "advisory"]
Unattended = Literal["hold", "reject"]
SHORTEST_KEPT = 3_600.0
"""Seconds for which the record is kept at least."""
DEFAULT_BOUND = ("path read **", "path write .agent-runtime/**")


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


def _spelled_out(value: object) -> object:
    return {"id": value} if isinstance(value, str) else value


def _checked_tool(pattern: str) -> str:
    try:
        check_tool_pattern(pattern)
    except PackhostError as error:
        raise fault(error.message, error.hint) from None
    return pattern


def _checked_variables(variables: dict[str, Any]) -> dict[str, Any]:
    for name in variables:
        if name in ("_endUser", "_identity") or name.startswith("_internal"):
            raise fault(f"the variable `{name}` is the host's own", "take it out")
    tenant = variables.get("_tenant")
    if tenant is not None and not (isinstance(tenant, dict) and isinstance(tenant.get("id"), str)):
        raise fault("the variable `_tenant` has no `id`", "write `_tenant: {id: NAME}`")
    return variables


def _checked_names(names: dict[str, str]) -> dict[str, str]:
    given: dict[str, str] = {}
    for tool, wire in names.items():
        pack, colon, name = tool.partition(":")
        if not (colon and PACK_ID.match(pack) and TOOL_NAME.match(name)):
            raise fault(f"`{tool}` is no tool's name", "write it as `<pack>:<tool>`")
        if not WIRE_NAME.match(wire):
            raise fault(
                f"clients do not take the name `{wire}` as it is",
                f"use letters, digits, `_` and `-`, {WIRE_LIMIT} at most",
            )
        if reserved(wire):
            raise fault(f"the name `{wire}` is kept for the host's own tools", "begin it otherwise")
        other = given.setdefault(alike(wire), tool)
        if other != tool:
            raise fault(f"`{tool}` and `{other}` would have one name", "give one of them another")
    return names


def _checked_path(path: str) -> str:
    if not path.strip() or "\0" in path:
        raise fault("a pack's path names its folder", "write `path: ./my-pack`")
    return path


def _checked_store(store: str) -> str:
    if store == "sqlite" or store.startswith(("postgresql://", "postgres://")):
        return store
    hint = "write `sqlite`, `postgresql://…` or a reference to that address such as `env:NAME`"
    if "://" in store or ":" not in store:
        raise fault(f"`{store.partition(':')[0]}` is not a store", hint)
    return check_reference(store)


def _checked_age(seconds: float) -> float:
    if seconds < SHORTEST_KEPT:
        raise fault("the record is kept for an hour at least", "write a longer time, such as `90d`")
    return seconds


def _checked_endpoint(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.query:
        raise fault(
            "the endpoint is no plain address of a collector", "write `http://HOST:PORT`, without a user"
        )
    return url.rstrip("/")


class PackSettings(_Model):
    """A pack that this workspace enables."""

    id: PackId | None = Field(default=None, description="A shipped or installed pack.")
    path: Annotated[str, AfterValidator(_checked_path)] | None = Field(
        default=None, description="The folder of a pack that is not installed, relative to this file."
    )
    trust: Flag = Field(
        default=False,
        description="Whether a pack from elsewhere may contribute hooks and run in a pooled worker.",
    )
    scopes: tuple[ScopeLine, ...] | None = Field(
        default=None, description="Narrows what the manifest declares; left out, nothing is narrowed."
    )

    @model_validator(mode="after")
    def _one_source(self) -> PackSettings:
        if (self.id is None) == (self.path is None):
            raise fault("a pack is named by `id` or by `path`", "write one of the two")
        return self

    @property
    def name(self) -> str:
        """How the file names it: its id, or its path."""
        return self.id or self.path or ""


class MatchSettings(_Model):
    """Which calls a rule is about; all that is given must hold, and nothing given means every call."""

    tool: Annotated[str, AfterValidator(_checked_tool)] | None = Field(
        default=None, description="Tools by canonical name; `*` stands for any run of characters."
    )
    pack: PackId | None = Field(default=None, description="Every tool of one pack.")
    kind: str | None = Field(
        default=None,
        min_length=1,
        description="Every tool of one kind; `resource` and `prompt` are what packs have beside their tools.",
    )
    permission: Permission | None = Field(default=None, description="Every tool of one permission.")
    principal: str | None = Field(default=None, min_length=1, description="Calls of one principal.")
    arguments: dict[str, Any] = Field(
        default_factory=dict,
        description="Argument values by dotted path: a value, text with `*` as a glob, or one of "
        "`{exact: VALUE}`, `{glob: GLOB}`, `{min: NUMBER, max: NUMBER}`.",
    )


class RuleSettings(_Model):
    """A rule of policy. Deny beats ask beats allow, whatever their order."""

    match: MatchSettings = Field(default_factory=MatchSettings, description="Which calls it is about.")
    decide: Verdict = Field(description="`allow`, `ask` a person, or `deny`.")
    reason: str = Field(default="", description="Shown to whoever is asked or refused.")
    relaxable: Flag = Field(default=False, description="Whether the level `autonomous` lifts an `ask`.")
    approvers: Annotated[StrictInt, Field(ge=1, le=2)] = Field(
        default=1, description="How many different people must agree."
    )
    assurance: Assurance = Field(default="client", description="Who may answer, as for a named approval.")


class NamedSettings(_Model):
    """Raises what a pack's named approval asks for; never lowers it."""

    assurance: Assurance = Field(default="client", description="`operator` asks for the passphrase.")
    approvers: Annotated[StrictInt, Field(ge=1, le=2)] = Field(
        default=1, description="How many different people must agree."
    )


class ApprovalSettings(_Model):
    """How people are asked."""

    timeout: Duration = Field(default=600.0, description="How long an approval stays open.")
    hold: Duration = Field(default=50.0, description="How long a call waits for an answer before it returns.")
    always_allow: Flag = Field(default=True, description="Whether a person may agree for later calls too.")
    unattended: Unattended = Field(
        default="hold",
        description="Calls of a client that cannot ask: `hold` for another channel, or `reject`.",
    )
    named: dict[ApprovalName, NamedSettings] = Field(
        default_factory=dict, description="Raises named approvals, by `<pack>:<name>`."
    )


class EnforcementSettings(_Model):
    """How strongly packs that are not shipped must be confined to run at all."""

    require: Requirement = Field(default="partial", description="`kernel`, `partial` or `advisory`.")


class AutonomySettings(_Model):
    """What sessions may do by themselves."""

    default: Level = Field(default="guarded", description="The level of a new session.")
    maximum: Level = Field(default="autonomous", description="No session is raised past this level.")


class LimitSettings(_Model):
    """What one call may not pass, nor the calls of one tool and the runs by one principal."""

    max_argument_bytes: Size = Field(default=1024**2, description="Largest arguments, as JSON.")
    max_result_bytes: Size = Field(default=4 * 1024**2, description="Largest result, as JSON.")
    calls_at_once: int = Field(
        default=256, ge=1, le=100_000, description="Calls of one tool by one principal that go on at once."
    )
    calls_per_minute: int = Field(
        default=12_000,
        ge=1,
        le=1_000_000,
        description="Calls of one tool by one principal in a minute; after a pause all may come at once.",
    )
    runs_at_once: int = Field(
        default=256, ge=1, le=100_000, description="Runs of one principal that go on at once in a host."
    )


class RetentionSettings(_Model):
    """How long the record is kept. Left out, nothing is ever removed."""

    events: Annotated[Duration, AfterValidator(_checked_age)] | None = Field(
        default=None, description="Events older than this are removed, from the beginning of the record on."
    )
    runs: Annotated[Duration, AfterValidator(_checked_age)] | None = Field(
        default=None,
        description="Runs that ended longer ago go with their calls, approvals and idle sessions.",
    )
    archive: Flag = Field(
        default=True,
        description="Whether events are first written to a file in `archive/` of the state folder.",
    )


class TelemetrySettings(_Model):
    """Where traces and metrics go; needs `packhost[otel]`. Arguments and results are never among them."""

    endpoint: Annotated[str, AfterValidator(_checked_endpoint)] | None = Field(
        default=None, description="An OTLP/HTTP collector, such as `http://127.0.0.1:4318`."
    )
    headers: dict[str, str] = Field(
        default_factory=dict, description="Headers for the collector; each value is the name of a secret."
    )
    traces: Flag = Field(default=True, description="Whether spans are sent.")
    metrics: Flag = Field(default=True, description="Whether metrics are sent.")


class Settings(_Model):
    """A workspace's `packhost.yaml`. `sections` holds what enabled packs own in it."""

    packhost: Literal[1] = Field(default=1, description="The version of this format.")
    packs: tuple[Annotated[PackSettings, BeforeValidator(_spelled_out)], ...] = Field(
        default=tuple(PackSettings(id=pack) for pack in SHIPPED_PACKS),
        description="The packs that are enabled.",
    )
    bound: tuple[ScopeLine, ...] = Field(
        default=DEFAULT_BOUND, description="Scopes that nothing in this workspace goes beyond."
    )
    policy: tuple[RuleSettings, ...] = Field(default=(), description="Rules that decide about calls.")
    approvals: ApprovalSettings = Field(default_factory=ApprovalSettings, description="How people are asked.")
    enforcement: EnforcementSettings = Field(
        default_factory=EnforcementSettings, description="How strongly packs from elsewhere are confined."
    )
    autonomy: AutonomySettings = Field(default_factory=AutonomySettings, description="Levels of sessions.")
    limits: LimitSettings = Field(default_factory=LimitSettings, description="Sizes of one call.")
    secrets: dict[str, Annotated[str, AfterValidator(check_reference)]] = Field(
        default_factory=dict,
        description="Where secrets come from: `env:NAME`, `file:PATH`, `cmd:…`, `keyring:…`.",
    )
    variables: Annotated[dict[str, Any], AfterValidator(_checked_variables)] = Field(
        default_factory=dict,
        description="Values of hidden parameters, by name. `_tenant: {id: NAME}` says whom calls are "
        "made for.",
    )
    names: Annotated[dict[str, str], AfterValidator(_checked_names)] = Field(
        default_factory=dict,
        description="Names that clients call tools by instead of `<pack>_<tool>`, by canonical name.",
    )
    store: Annotated[str, AfterValidator(_checked_store)] = Field(
        default="sqlite",
        description="`sqlite`, or a PostgreSQL database's address, or a reference to one: `env:NAME`, …",
    )
    retention: RetentionSettings = Field(
        default_factory=RetentionSettings, description="How long the record is kept."
    )
    telemetry: TelemetrySettings = Field(
        default_factory=TelemetrySettings, description="Where traces and metrics go."
    )
    auth: AuthSettings = Field(default_factory=AuthSettings, description="Who is let in over HTTP.")
    webhooks: dict[HookName, WebhookSettings] = Field(
        default_factory=dict, description="Endpoints that are told of what happens, by name."
    )
    _sections: dict[str, dict[str, Any]] = PrivateAttr(default_factory=dict)

    @property
    def sections(self) -> dict[str, dict[str, Any]]:
        """The sections that enabled packs own, by key."""
        return self._sections


def default_settings() -> Settings:
    """What holds with no file, and before consent."""
    return Settings()
