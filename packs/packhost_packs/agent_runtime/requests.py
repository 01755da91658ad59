"""What a run of turns is started with: everything that it needs later, as it stands at its start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from packhost.api import CallContext, InvalidInput
from packhost_packs.agent_runtime.limits import limits_of
from packhost_packs.agent_runtime.profiles import choose
from packhost_packs.agent_runtime.providers.scripted import MAX_SCRIPT_BYTES, check_script, read_script
from packhost_packs.agent_runtime.spawning import spawning_of
from packhost_packs.agent_runtime.strict_json import dumps

LARGEST = 1024 * 1024
_OF_AGENT = ("approval", "tool_search", "subagent_config")
"""What a request says, else its saved agent."""


def turn_spec(
    context: CallContext,
    asked: Mapping[str, Any],
    more: Mapping[str, Any] | None = None,
    config: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The request of a run, or of one node of a workflow.

    `config` is this pack's section where the call is of another pack's tool.

    Raises `InvalidInput`, `NotFound` for an unknown agent, and `PackhostError` with
    `MODEL_NOT_CONFIGURED`.
    """
    chosen = choose(
        context.config if config is None else config, asked.get("model_profile"), asked.get("agent")
    )
    spec: dict[str, Any] = {
        "model_profile": chosen.name,
        "agent": asked.get("agent"),
        "system": chosen.agent.get("system"),
        "messages": asked["messages"],
        "tools": asked.get("tools"),
        "loop": bool(asked.get("loop")),
        "limits": limits_of(chosen.agent.get("limits") or {}, asked.get("limits") or {}).as_json(),
        **(more or {}),
    }
    if asked.get("runtime_tools"):
        spec["runtime_tools"] = brought(context, asked["runtime_tools"])
    for name in _OF_AGENT:
        value = asked.get(name) if asked.get(name) is not None else chosen.agent.get(name)
        if value is not None:
            spec[name] = value
    if "mandatory" in (asked.get("intent"), chosen.agent.get("intent")):  # a request raises, and never lowers
        spec["intent"] = "mandatory"
    if "subagent_config" in spec:
        spawning_of(spec["subagent_config"])
    if chosen.provider == "scripted":
        script = chosen.profile.get("script")
        if isinstance(script, str):
            spec["script"] = read_script(context.files.read(script, limit=MAX_SCRIPT_BYTES + 1))
        else:
            spec["script"] = check_script(script)
    return spec


def brought(context: CallContext, definitions: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Tools for one run, checked; raises `InvalidInput` for the first that could not run."""
    if context.host is None:
        raise InvalidInput(
            "`runtime_tools` needs the host's services",
            path="/runtime_tools",
            hint="call it through the host",
        )
    return context.host.check_inline(definitions)


def check_size(definitions: Sequence[Any]) -> None:
    """Hold what all steps of a request bring together to the limit; raises `InvalidInput`."""
    if definitions and len(dumps(list(definitions))) > LARGEST:
        raise InvalidInput(
            "the `runtime_tools` of all steps are larger than 1 MiB", path="/runtime_tools", hint="send fewer"
        )
