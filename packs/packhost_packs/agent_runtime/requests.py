"""What a run of turns is started with: everything that it needs later, as it stands at its start."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from packhost.api import CallContext
from packhost_packs.agent_runtime.limits import limits_of
from packhost_packs.agent_runtime.profiles import choose
from packhost_packs.agent_runtime.providers.scripted import MAX_SCRIPT_BYTES, check_script, read_script


def turn_spec(
    context: CallContext, asked: Mapping[str, Any], more: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The request of a run, or of one node of a workflow.

    Raises `InvalidInput`, `NotFound` for an unknown agent, and `PackhostError` with
    `MODEL_NOT_CONFIGURED`.
    """
    chosen = choose(context.config, asked.get("model_profile"), asked.get("agent"))
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
    if chosen.provider == "scripted":
        script = chosen.profile.get("script")
        if isinstance(script, str):
            spec["script"] = read_script(context.files.read(script, limit=MAX_SCRIPT_BYTES + 1))
        else:
            spec["script"] = check_script(script)
    return spec
