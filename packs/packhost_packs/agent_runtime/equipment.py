"""The tools of one run of turns: what it may call, and what of it the model is sent.

Saved tools come first, then those that the run brought itself; one of these takes the place of a saved tool
of its name. Where there are many, those that the run brought are held back behind `tool_search`: what is
found is added at the end, so that what was sent before stays as it was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from packhost.api import OfferedTool, RunHandle, ToolOutcome
from packhost_packs.agent_runtime.approving import approving_of
from packhost_packs.agent_runtime.client_tools import KIND as CLIENT
from packhost_packs.agent_runtime.client_tools import of_run
from packhost_packs.agent_runtime.client_tools import offered as client_tools
from packhost_packs.agent_runtime.ledger import Ledger
from packhost_packs.agent_runtime.searching import FROM, SEARCH, TOOL, Index, asked_for
from packhost_packs.agent_runtime.spawning import SPAWN, spawn_definition
from packhost_packs.agent_runtime.strict_json import dumps

_INLINE = "inline:"


class Equipment:
    """A run's tools; made when it begins or goes on."""

    def __init__(self, run: RunHandle, saved: Sequence[OfferedTool], ledger: Ledger) -> None:
        spec = run.spec
        self._ledger = ledger
        definitions = list(spec.get("runtime_tools") or ())
        within = spec.get("within")
        if within is not None:
            saved = [tool for tool in saved if tool.name in within or tool.canonical in within]
        resolved = _joined(saved, run.define(definitions) if definitions else ())
        if spec.get("depth") and not spec.get("nesting"):
            resolved = [tool for tool in resolved if tool.kind != "subagent"]
        self.resolved = tuple(resolved)
        """What the run may call, and what a subagent of it may have."""
        self.definitions = tuple(definitions)
        own = list(self.resolved)
        if spec.get("subagent_config") is not None and (not spec.get("depth") or spec.get("nesting")):
            spawning = spawn_definition(spec["subagent_config"], self.resolved)
            own = _joined(own, run.define([*definitions, spawning])[-1:])
        own = _joined(own, client_tools(of_run(spec, run.state)))
        self.approving = approving_of(spec)
        own = [self.approving.shown(tool) for tool in own]
        self._all = _kept(own, ledger)
        self._held = {tool.name: tool for tool in self._held_back(spec)}
        self._index: Index | None = None
        self._sent: tuple[int, tuple[OfferedTool, ...]] | None = None
        self._by_name: dict[str, OfferedTool] = {}

    def _held_back(self, spec: Mapping[str, Any]) -> tuple[OfferedTool, ...]:
        wanted = spec.get("tool_search") or {}
        if not spec["loop"] or wanted.get("enabled") is False:
            return ()
        if spec["limits"]["max_turns"] < 2 or len(self._all) < FROM:
            return ()
        loaded = wanted.get("always_loaded") or ()
        own = [tool for tool in self._all if tool.canonical.startswith(_INLINE) and tool.name != SPAWN]
        return tuple(tool for tool in own if tool.name not in loaded)

    @property
    def sent(self) -> tuple[OfferedTool, ...]:
        """What the model is sent now."""
        loaded = self._ledger.found
        if self._sent is None or self._sent[0] != len(loaded):
            sent = [tool for tool in self._all if tool.name not in self._held]
            if self._held:
                sent += [TOOL, *(self._held[name] for name in loaded if name in self._held)]
            self._sent = (len(loaded), tuple(sent))
            self._by_name = {name: tool for tool in reversed(sent) for name in (tool.canonical, tool.name)}
        return self._sent[1]

    def get(self, name: str) -> OfferedTool | None:
        """What the model was sent by that name, or by that canonical one."""
        return self._by_name.get(name) if self.sent else None

    @property
    def names(self) -> list[str]:
        """The names of all that the run may ever call."""
        return [*(tool.name for tool in self._all), *([SEARCH] if self._held else ())]

    def search(self, arguments: Mapping[str, Any]) -> ToolOutcome:
        """What `tool_search` answers; the tools are there from the next turn on."""
        asked = asked_for(arguments)
        if asked is None:
            text = "INVALID_INPUT: `query` is a few words that say what the tool is for."
            return ToolOutcome(False, text, code="INVALID_INPUT")
        if self._index is None:
            self._index = Index(list(self._held.values()))
        found = self._index.find(*asked)
        self._ledger.load([tool.name for tool in found])
        value = {
            "tools": [{"name": tool.name, "description": tool.description[:500]} for tool in found],
            "note": "call them from your next turn on" if found else "nothing fits: try other words",
        }
        return ToolOutcome(True, dumps(value).decode(), value)


def _joined(saved: Sequence[OfferedTool], own: Sequence[OfferedTool]) -> list[OfferedTool]:
    taken = {tool.name for tool in own}
    return [*(tool for tool in saved if tool.name not in taken), *own]


def _kept(tools: Sequence[OfferedTool], ledger: Ledger) -> list[OfferedTool]:
    """Those that were on offer when the run began; of its caller's own tools those that it has now."""
    return [tool for tool in tools if not ledger.opened or tool.kind == CLIENT or tool.name in ledger.tools]
