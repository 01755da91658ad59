"""What a run of turns is started with: everything that it needs later, as it stands at its start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from packhost.api import CallContext, InvalidInput
from packhost_packs.agent_runtime.approving import joined
from packhost_packs.agent_runtime.limits import limits_of
from packhost_packs.agent_runtime.local_tools import local_tools, moved
from packhost_packs.agent_runtime.profiles import choose
from packhost_packs.agent_runtime.providers.scripted import MAX_SCRIPT_BYTES, check_script, read_script
from packhost_packs.agent_runtime.spawning import spawning_of
from packhost_packs.agent_runtime.strict_json import dumps

LARGEST = 1024 * 1024
_OF_AGENT = ("tool_search", "subagent_config", "disclose_tool_arguments")
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
        spec.update(brought(context, asked["runtime_tools"]))
    for name in _OF_AGENT:
        value = asked.get(name) if asked.get(name) is not None else chosen.agent.get(name)
        if value is not None:
            spec[name] = value
    approval = joined(chosen.agent.get("approval"), asked.get("approval"))
    if approval is not None:
        spec["approval"] = approval
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


def brought(context: CallContext, definitions: Sequence[Any]) -> dict[str, Any]:
    """Tools for one run, checked: those that the host runs and those that its caller does.

    Raises `InvalidInput` for the first that could not run.
    """
    if context.host is None:
        raise InvalidInput(
            "`runtime_tools` needs the host's services",
            path="/runtime_tools",
            hint="call it through the host",
        )
    local = local_tools(definitions)
    own = {place: one for place, one in enumerate(definitions) if place not in local}
    found: dict[str, Any] = {"client_tools": list(local.values())} if local else {}
    try:
        return found | ({"runtime_tools": context.host.check_inline(list(own.values()))} if own else {})
    except InvalidInput as error:
        error.data["path"] = moved(str(error.data.get("path", "")), list(own))
        raise


def check_size(definitions: Sequence[Any]) -> None:
    """Hold what all steps of a request bring together to the limit; raises `InvalidInput`."""
    if definitions and len(dumps(list(definitions))) > LARGEST:
        raise InvalidInput(
            "the `runtime_tools` of all steps are larger than 1 MiB", path="/runtime_tools", hint="send fewer"
        )
