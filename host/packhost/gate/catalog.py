"""The registry as the gate uses it: each tool with its validators, its layers and its static coverage.

Built once for each generation of the configuration, so that a call compiles and merges nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jsonschema_rs

from packhost.gate.display import display_arguments
from packhost.gate.hidden import filled_by
from packhost.gate.types import Withheld
from packhost.kinds.assets import AssetService
from packhost.kinds.base import Kind, Tool, Withholding
from packhost.kinds.handles import WithAssets, binary_parameters
from packhost.manifest.elicit import Form, form_of, without
from packhost.names import nearest, parse_tool
from packhost.packs.registry import Registry
from packhost.rules.policy import NamedApproval
from packhost.rules.scopes import Layer, Uncovered, coverage

MANIFEST_LAYER = "manifest"
INLINE_KEPT = 2048
"""Entries of tools of single runs that are kept ready."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A tool, ready to be called."""

    tool: Tool
    kind: Kind
    layers: tuple[Layer, ...]
    """Workspace bounds, the pack's entry and the manifest, in this order."""
    uncovered: Uncovered | None
    """Why the tool is neither listed nor run; `None` when every layer covers it."""
    input_validator: Any
    output_validator: Any | None
    required: tuple[NamedApproval, ...]
    hidden: frozenset[str]
    """The parameters that the host fills."""
    private: frozenset[str] = frozenset()
    """Parameters that are `writeOnly` in the schema: whoever calls gives them, and nobody is shown them."""
    form: Form | None = None
    """What a person is asked for before each call."""
    model_validator: Any | None = None
    """Of the arguments without what a person gives; set along with `form`."""

    def shown(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments as they are recorded and shown to people."""
        return display_arguments(arguments, self.hidden, self.private)

    def hiding(self, more: frozenset[str]) -> Entry:
        """The entry with further parameters filled."""
        return self if more <= self.hidden else replace(self, hidden=self.hidden | more)


@dataclass(frozen=True, slots=True)
class Catalog:
    """Every known tool of one generation of the configuration."""

    generation: int
    entries: Mapping[str, Entry]
    """By canonical name."""
    by_wire: Mapping[str, Entry]
    """By the name towards clients, which the workspace may have given."""
    own: Mapping[str, Entry] = field(default_factory=dict)
    """By `<pack>_<tool>`, for packs and runs, which a client's limits are nothing to."""
    kinds: Mapping[str, Kind] = field(default_factory=dict)
    bounds: tuple[Layer, ...] = ()
    variables: Mapping[str, Any] = field(default_factory=dict)
    assets: AssetService | None = None
    _inline: dict[tuple[str, str], Entry] = field(default_factory=dict, repr=False, compare=False)

    def inline(self, tool: Tool) -> Entry | None:
        """A tool that was defined for one run, as an entry; `None` when its kind is not at hand any more."""
        key = (tool.id.canonical, tool.version)
        kind = self.kinds.get(tool.spec.kind)
        if key not in self._inline and kind is not None:
            while len(self._inline) >= INLINE_KEPT:
                del self._inline[next(iter(self._inline))]
            filled = filled_by(tool.spec.hidden_parameters, self.variables)
            self._inline[key] = _entry(replace(tool, filled=filled), kind, {}, self.bounds, self.assets)
        return self._inline.get(key)

    def allows_inline(self, tool: Tool, narrowing: Sequence[Layer] = ()) -> bool:
        """Whether such a tool may run here at all."""
        entry = self.inline(tool)
        return entry is not None and entry.uncovered is None and coverage(tool.scopes, narrowing) is None

    def find(self, name: str, *, inside: bool = False) -> Entry | None:
        """The entry for a canonical or wire name; `inside` a call or run also for a tool's own wire name."""
        found = self.by_wire.get(name) or self.entries.get(name)
        return self.own.get(name) if found is None and inside else found

    def like(self, name: str) -> list[str]:
        """Wire names of listed tools most like `name`."""
        listed = {wire: entry.tool.id for wire, entry in self.by_wire.items() if entry.uncovered is None}
        if renamed := [wire for wire, id in listed.items() if id.wire == name]:
            return renamed
        known = list(listed)
        parsed = parse_tool(name)
        return nearest(parsed.wire if parsed else name, known)

    def listed(self, narrowing: Sequence[Layer] = ()) -> list[Entry]:
        """Entries that every layer covers, those of a session or subagent included."""
        return [
            entry
            for entry in self.entries.values()
            if entry.uncovered is None
            and (not narrowing or coverage(entry.tool.scopes, narrowing) is None)
            and not withheld_by(entry)
        ]

    def withheld(self, narrowing: Sequence[Layer] = ()) -> list[Withheld]:
        """Tools that are not on offer, each with the layer that took it away."""
        out = []
        for name, entry in self.entries.items():
            uncovered = entry.uncovered or (coverage(entry.tool.scopes, narrowing) if narrowing else None)
            if uncovered is not None:
                out.append(
                    Withheld(name, uncovered.layer, f"{uncovered.layer} does not cover `{uncovered.needed}`")
                )
            elif said := withheld_by(entry):
                out.append(Withheld(name, f"kind {entry.tool.spec.kind}", said))
        return out


def withheld_by(entry: Entry) -> str:
    """Why the kind itself withholds a tool just now; empty where it does not."""
    kind = entry.kind.kind if isinstance(entry.kind, WithAssets) else entry.kind
    said: str = kind.withheld(entry.tool) if isinstance(kind, Withholding) else ""
    return said


def build_catalog(
    registry: Registry,
    kinds: Mapping[str, Kind],
    bounds: Sequence[Layer],
    generation: int,
    variables: Mapping[str, Any] | None = None,
    assets: AssetService | None = None,
) -> Catalog:
    """Join each tool with its kind, validators and layers.

    `variables` are those that fill hidden parameters; without them all of a tool's are taken for filled.
    """
    entries: dict[str, Entry] = {}
    for name, tool in registry.tools.items():
        kind = kinds.get(tool.spec.kind)
        if kind is None:
            continue
        if variables is not None and tool.spec.hidden_parameters:
            tool = replace(tool, filled=filled_by(tool.spec.hidden_parameters, variables))
        entries[name] = _entry(tool, kind, registry.approvals, bounds, assets)
    by_wire = {entry.tool.wire: entry for entry in entries.values()}
    own = {entry.tool.id.wire: entry for entry in entries.values()}
    return Catalog(generation, entries, by_wire, own, kinds, tuple(bounds), variables or {}, assets)


def _write_only(schema: Mapping[str, Any]) -> frozenset[str]:
    properties = schema.get("properties")
    if not isinstance(properties, Mapping):
        return frozenset()
    return frozenset(
        name
        for name, value in properties.items()
        if isinstance(value, Mapping) and value.get("writeOnly") is True
    )


def _entry(
    tool: Tool,
    kind: Kind,
    approvals: Mapping[str, NamedApproval],
    bounds: Sequence[Layer],
    assets: AssetService | None,
) -> Entry:
    layers = (*bounds, *tool.pack.layers, Layer(MANIFEST_LAYER, tool.scopes, tool.place))
    spec = tool.spec
    places = () if assets is None else binary_parameters(spec.input_schema)
    if assets is not None and places:
        kind = WithAssets(kind, places, assets)
    form = form_of(spec)
    alone = None if form is None else without(spec.input_schema, form.names)
    return Entry(
        tool=tool,
        kind=kind,
        layers=layers,
        uncovered=coverage(tool.scopes, layers),
        input_validator=jsonschema_rs.Draft202012Validator(dict(spec.input_schema)),
        output_validator=(
            jsonschema_rs.Draft202012Validator(dict(spec.output_schema)) if spec.output_schema else None
        ),
        required=tuple(approvals[name] for name in spec.required_approvals),
        hidden=tool.hidden,
        private=_write_only(spec.input_schema),
        form=form,
        model_validator=None if alone is None else jsonschema_rs.Draft202012Validator(alone),
    )
