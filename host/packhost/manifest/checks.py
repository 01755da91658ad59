"""What must hold between the fields of a manifest, beyond what the model of each field says."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from packhost.manifest.elicit import elicit_faults
from packhost.manifest.model import PackManifest, ToolSpec
from packhost.manifest.schemas import Path, path_faults, schema_faults
from packhost.manifest.upstream_checks import upstream_faults
from packhost.manifest.validation import choice
from packhost.names import INLINE_PACK, RESERVED_PACK, WIRE_LIMIT, ToolId, nearest

Fault = tuple[tuple[str | int, ...], str, str]
"""Where in the manifest, what is wrong, what to do."""

HOST_KEYS = (
    "packhost",
    "packs",
    "bound",
    "policy",
    "approvals",
    "enforcement",
    "autonomy",
    "limits",
    "secrets",
    "variables",
    "store",
)
"""The keys of packhost.yaml that are packhost's own; no pack may own one of them."""
HOST_FILLED = ("_tenant", "_endUser", "_identity")
"""Arguments that only the host can speak of."""
DESIGNED_KINDS = ("python", "http", "code", "client", "mcp", "flow", "subagent")


def manifest_faults(
    manifest: PackManifest, *, shipped: bool, kinds: Collection[str] | None
) -> Iterator[Fault]:
    """Everything that is wrong between the fields; `kinds` are the kinds at hand, when they are known.

    None at all: whoever knows which there are looks at that.
    """
    yield from _pack_faults(manifest)
    yield from _twice([tool.name for tool in manifest.tools], "tools", "tool")
    yield from _twice([approval.name for approval in manifest.approvals], "approvals", "approval")
    for index, tool in enumerate(manifest.tools):
        at_hand = DESIGNED_KINDS if kinds is None else kinds
        for path, message, hint in _tool_faults(manifest, tool, shipped, at_hand):
            yield ("tools", index, *path), f"tool `{tool.name}`: {message}", hint
    yield from upstream_faults(manifest)


def _pack_faults(manifest: PackManifest) -> Iterator[Fault]:
    if manifest.id == RESERVED_PACK:
        yield ("id",), f"`{RESERVED_PACK}` is reserved for the host's own tools", "give the pack another id"
    if manifest.id == INLINE_PACK:
        yield ("id",), f"`{INLINE_PACK}` is reserved for tools of single runs", "give the pack another id"
    if manifest.config_key in HOST_KEYS:
        yield ("config_key",), f"`{manifest.config_key}` is a key of packhost's own", "give it another name"
    if manifest.config_schema is not None:
        if manifest.config_key is None:
            yield (
                ("config_schema",),
                "`config_schema` has no `config_key`",
                "name the section with `config_key`",
            )
        for path, message, hint in schema_faults(manifest.config_schema, of_object=True):
            yield ("config_schema", *path), f"`config_schema`: {message}", hint


def _twice(names: list[str], key: str, what: str) -> Iterator[Fault]:
    for index, name in enumerate(names):
        if name in names[:index]:
            yield (key, index, "name"), f"the {what} `{name}` stands twice", "give one of them another name"


def _tool_faults(
    manifest: PackManifest, tool: ToolSpec, shipped: bool, kinds: Collection[str]
) -> Iterator[Fault]:
    wire = ToolId(manifest.id, tool.name).wire
    if len(wire) > WIRE_LIMIT:
        message = f"its name on the wire, `{wire}`, has {len(wire)} characters"
        yield ("name",), message, f"shorten the tool's or the pack's name to {WIRE_LIMIT} in all"
    if kinds and tool.kind not in kinds:
        yield ("kind",), *choice(tool.kind, kinds, "a known kind")
    if tool.kind == "python" and tool.target is None:
        yield (), "`target` is missing", "write `target: module:function`"
    if tool.control and not shipped:
        yield ("control",), "`control` is for shipped packs", "leave it out"
    if tool.kind != "http" and (where := _secret_reference(tool.config, ("config",))) is not None:
        # what is not sent as a request would carry the value to wherever the tool likes
        yield where, "cannot reference {{secret:NAME}}: only a tool of kind `http` can", "take it out"
    yield from _approval_faults(manifest, tool)
    yield from _schema_faults(tool)
    yield from _hidden_faults(tool)
    yield from elicit_faults(tool)


def _approval_faults(manifest: PackManifest, tool: ToolSpec) -> Iterator[Fault]:
    own = [f"{manifest.id}:{approval.name}" for approval in manifest.approvals]
    for index, name in enumerate(tool.required_approvals):
        if name.partition(":")[0] == manifest.id and name not in own:
            near = nearest(name, own, 1)
            hint = f"did you mean `{near[0]}`?" if near else "declare it under `approvals`"
            yield ("required_approvals", index), f"the approval `{name}` is not declared", hint


def _schema_faults(tool: ToolSpec) -> Iterator[Fault]:
    schema = tool.input_schema
    yield from _under("input_schema", lambda: schema_faults(schema, of_object=True))
    yield from _under("input_schema", lambda: path_faults(schema))
    if tool.output_schema is not None:
        output = tool.output_schema
        yield from _under("output_schema", lambda: schema_faults(output, of_object=True))


def _secret_reference(value: object, path: Path) -> Path | None:
    """Where in a tool's configuration a secret is asked for."""
    if isinstance(value, str):
        return path if "{{secret:" in value else None
    members = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    found = (_secret_reference(inner, (*path, step)) for step, inner in members)
    return next((one for one in found if one is not None), None)


def _hidden_faults(tool: ToolSpec) -> Iterator[Fault]:
    properties = tool.input_schema.get("properties")
    known = list(properties) if isinstance(properties, dict) else []
    for index, name in enumerate(tool.hidden_parameters):
        if name.startswith("_internal") or name == "_identity":
            message = f"the hidden parameter `{name}` is never filled"
            yield ("hidden_parameters", index), message, "take it out"
        elif name not in known:
            message, hint = choice(name, known, "a property of `input_schema`")
            yield ("hidden_parameters", index), message, hint if known else "declare it under `properties`"
    for name in known:
        if name in HOST_FILLED and name not in tool.hidden_parameters:
            message = f"`input_schema`: `{name}` is the host's to fill, not the agent's to give"
            yield ("input_schema", "properties", name), message, "name it in `hidden_parameters`"


def _under(key: str, faults: Callable[[], Iterator[Fault]]) -> Iterator[Fault]:
    for path, message, hint in faults():
        yield (key, *path), f"`{key}`: {message}", hint
